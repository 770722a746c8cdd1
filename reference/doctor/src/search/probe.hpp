// SPDX-License-Identifier: Apache-2.0
// Which of several inputs tells the most hypotheses apart.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "fp8lab/doctor/probed_pairs.hpp"

namespace fp8lab::doctor {

/// The pairs of hypotheses that answered an input so.
template <typename Answer>
[[nodiscard]] ProbedPairs pairs_of(const std::vector<Answer>& answers) {
  ProbedPairs found;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    for (std::size_t j = i + 1; j < answers.size(); ++j) {
      ++found.pairs;
      if (answers[i] == answers[j]) found.alike.emplace_back(i, j);
    }
  }
  return found;
}

/// The probe, of those that are tried, on which the most pairs of hypotheses differ: draw(number) makes one, and
/// ask(probe) gives each hypothesis' answer to it.
template <typename Probe, typename Draw, typename Ask>
[[nodiscard]] Probe most_parting(int tries, const Draw& draw, const Ask& ask) {
  Probe best;
  for (int number = 0; number < tries; ++number) {
    Probe one = draw(number);
    static_cast<ProbedPairs&>(one) = pairs_of(ask(one));
    if (number == 0 || one.alike.size() < best.alike.size()) best = std::move(one);
    if (best.alike.empty()) break;
  }
  return best;
}

}  // namespace fp8lab::doctor
