// SPDX-License-Identifier: Apache-2.0
// Runs of delayed scaling: the scales and histories of a list of amaxes.
#pragma once

#include <cstddef>
#include <vector>

#include "fp8lab/reference/scaling/delayed_scaling.hpp"

namespace fp8lab::tests {

using Floats = std::vector<float>;

inline Delayed recipe_of(const DelayedVersion& version, std::size_t length = 1, int margin = 0) {
  Delayed recipe;
  recipe.version = version;
  recipe.amax_history_len = length;
  recipe.margin = margin;
  return recipe;
}

/// What a run of steps does: the scale of each step's cast, and the scale and the history after each step.
struct Run {
  Floats used, after;
  std::vector<Floats> histories;
};
inline Run run_of(const Delayed& recipe, const Floats& amaxes, Pass pass = Pass::forward) {
  Run run;
  AmaxHistory history = start_history(recipe);
  for (const float amax : amaxes) {
    record_amax(recipe, pass, history, amax);
    run.used.push_back(history.scale);
    update_scale(recipe, pass, history);
    run.after.push_back(history.scale);
    run.histories.push_back(history.amaxes);
  }
  return run;
}

inline Run run_of(const DelayedVersion& version, std::size_t length, const Floats& amaxes) {
  return run_of(recipe_of(version, length), amaxes);
}

}  // namespace fp8lab::tests
