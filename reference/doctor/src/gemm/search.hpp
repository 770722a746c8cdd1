// SPDX-License-Identifier: Apache-2.0
// The search for hypotheses that explain the output of a GEMM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gemm/scorer.hpp"
#include "gemm/stages.hpp"

namespace fp8lab::doctor {

/// Elements that are gathered at a time.
inline constexpr std::size_t batch_elements = 128;
/// Elements that hypotheses meet first.
inline constexpr std::size_t sieve_elements = 16;

/// What a search comes to.
struct GemmFindings {
  std::vector<GemmCandidate> candidates;  ///< the best first
  std::size_t searched = 0;               ///< hypotheses
  bool is_cut_short = false;              ///< something explained the sieve, so that not all was searched
  std::size_t seen = 0;                   ///< elements, the first in order, that all have met
  std::size_t checked = 0;                ///< these, and the next ones, which contradict what was compared with all
  std::optional<GemmCandidate> runner_up = {};           ///< the best of those that were dropped
  std::optional<std::vector<std::uint64_t>> whole = {};  ///< the output by the first, where it was compared with all
  std::size_t whole_unexplained = 0;
  /// What brings exact sums nearest to an output that nothing explains, in words.
  std::string nearest = {};

  [[nodiscard]] std::size_t unexplained() const {
    return whole ? whole_unexplained : checked - candidates.front().matches;
  }
};

class GemmSearcher {
 public:
  /// All must outlive it. Operands that were dequantized to `dequantized` meet the usual GEMMs alone.
  GemmSearcher(const GemmProblem& problem, const GemmDoctorOptions& options, StepType dequantized);

  /// What explains the output best, and the elements in the order in which they were looked at.
  [[nodiscard]] GemmFindings find(std::vector<std::size_t>& order) const;

  [[nodiscard]] const GemmScorer& scorer() const { return scorer_; }
  /// The expected GEMM, if one is.
  [[nodiscard]] const std::optional<GemmCandidate>& expected() const { return expected_; }

 private:
  [[nodiscard]] GemmFindings search(std::vector<std::size_t>& order) const;
  void add_scaled(GemmFindings& found, std::span<const std::size_t> order, std::span<const std::size_t> sieve) const;
  void add_suggested(GemmFindings& found, std::span<const std::size_t> order, std::span<const std::size_t> sieve) const;
  void add_unusual(GemmFindings& found, std::vector<GemmCandidate> unusual, std::span<const std::size_t> sieve) const;
  [[nodiscard]] std::vector<std::size_t> contradictions_first(const GemmFindings& found,
                                                              std::span<const std::size_t> order) const;
  [[nodiscard]] bool is_better(const GemmFindings& again, const GemmFindings& found,
                               std::span<const std::size_t> order) const;
  void add_expected(std::vector<GemmCandidate>& candidates) const;
  void rank(std::vector<GemmCandidate>& candidates) const;
  void keep_best(GemmFindings& found, std::size_t seen) const;
  void keep_perfect(GemmFindings& found, std::size_t seen) const;
  void check_rest(GemmFindings& found, std::span<const std::size_t> order, std::size_t seen) const;
  void check_whole(GemmFindings& found, std::vector<std::size_t>& order) const;
  [[nodiscard]] std::vector<std::size_t> contradicting(const GemmFindings& found, std::size_t number,
                                                       std::span<const std::size_t> order) const;
  void try_stale_tile(GemmFindings& found, std::span<const std::size_t> order) const;
  void join_contradictions(GemmFindings& found, std::vector<std::size_t>& order) const;

  const GemmProblem& problem_;
  const GemmDoctorOptions& options_;
  StepType dequantized_;
  GemmScorer scorer_;
  GemmStages stages_;
  std::optional<GemmCandidate> expected_;
};

}  // namespace fp8lab::doctor
