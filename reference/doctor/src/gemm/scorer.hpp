// SPDX-License-Identifier: Apache-2.0
// Computes elements of a GEMM by hypotheses, and counts those that agree with the output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <tuple>
#include <vector>

#include "gemm/candidates.hpp"
#include "gemm/problem.hpp"

namespace fp8lab::doctor {

class GemmScorer {
 public:
  /// Elements whose rows are gathered at a time.
  static constexpr std::size_t batch = 32;

  /// The problem must outlive it.
  explicit GemmScorer(const GemmProblem& problem, int threads = 1) : problem_(problem), threads_(threads) {}

  /// The facts of a candidate on which its partial sums depend.
  using Key = std::tuple<Turned, BlockReading, BlockReading, std::size_t, const MmaModel*, std::size_t, std::size_t,
                         std::size_t, std::size_t, ZeroRule, int, std::vector<std::size_t>, std::vector<std::size_t>,
                         const GemmDeparture*>;
  [[nodiscard]] Key key_of(const GemmCandidate& one) const;

  using Use = std::function<void(GemmCandidate& candidate, std::size_t i, float result)>;
  /// Calls use(candidate, i, result) for all candidates and elements[i], at a time from several threads, but for a
  /// candidate and elements of one `batch` from one: the result is not yet rounded to the output. Partial sums are
  /// computed once for all candidates that need them, and sums of these once for neighbours that differ in the epilogue
  /// alone.
  void compute(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements, const Use& use) const;
  /// Adds the elements that each candidate explains to its matches.
  void score(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements) const;
  /// The words of the elements by one candidate.
  [[nodiscard]] std::vector<std::uint64_t> words(const GemmCandidate& candidate,
                                                 std::span<const std::size_t> elements) const;
  /// The accumulators of elements before the epilogue, by one candidate.
  [[nodiscard]] std::vector<float> accumulators(const GemmCandidate& candidate,
                                                std::span<const std::size_t> elements) const;

 private:
  void compute_group(std::span<GemmCandidate* const> group, std::span<const std::size_t> elements, bool as_accumulators,
                     const Use& use) const;
  void add_stale(const GemmCandidate& one, std::span<const std::size_t> elements, std::span<float> starts) const;
  [[nodiscard]] float factor_of(const GemmCandidate& one, std::size_t element) const;

  const GemmProblem& problem_;
  int threads_;
};

/// The words of elements by an explanation: of all, or of `out.indices`. What is there is not looked at.
[[nodiscard]] std::vector<std::uint64_t> words_by_explanation(const GemmExplanation& explanation, const Operand& a,
                                                              const Operand& b, const GemmOutput& out);

}  // namespace fp8lab::doctor
