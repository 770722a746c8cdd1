// SPDX-License-Identifier: Apache-2.0
// The hypotheses about a GEMM, in the order in which they are tried.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gemm/candidates.hpp"
#include "gemm/problem.hpp"

namespace fp8lab::doctor {

class GemmStages {
 public:
  /// The problem and the names must outlive it. Hypotheses are about operands that were dequantized to `dequantized`,
  /// and have no departure called as one of `without`.
  GemmStages(const GemmProblem& problem, StepType dequantized, std::span<const std::string> without)
      : problem_(problem), dequantized_(dequantized), without_(without) {}

  /// GEMMs as they usually are. Throws std::invalid_argument where no model takes the operands.
  [[nodiscard]] std::vector<GemmCandidate> usual() const;
  /// Other orders of K and rules for zeros, rounded sums, and those without a tensor core.
  [[nodiscard]] std::vector<GemmCandidate> unusual() const;
  /// GEMMs with a departure.
  [[nodiscard]] std::vector<GemmCandidate> defects() const;
  /// GEMMs with that departure; of a list of blocks of K `number` is the length of each.
  [[nodiscard]] std::vector<GemmCandidate> with(const GemmDeparture& departure, std::size_t number,
                                                std::span<const std::size_t> blocks) const;
  /// GEMMs that leave out c, the bias or both.
  [[nodiscard]] std::vector<GemmCandidate> missing_addends() const;
  /// Whether it, or one of both that it is made of, is not to be searched.
  [[nodiscard]] bool is_left_out(const GemmDeparture* departure) const;

 private:
  void add(std::vector<GemmCandidate>& all, const GemmDeparture* departure, std::size_t depth,
           GemmSearch search = GemmSearch::usual, std::span<const std::size_t> blocks = {},
           bool is_suggested = false) const;
  [[nodiscard]] bool are_float32() const;
  void add_cuda_cores(std::vector<GemmCandidate>& all) const;

  const GemmProblem& problem_;
  StepType dequantized_;
  std::span<const std::string> without_;
};

}  // namespace fp8lab::doctor
