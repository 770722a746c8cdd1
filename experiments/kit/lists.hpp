// SPDX-License-Identifier: Apache-2.0
// Checks arguments that are lists: entries that occur twice, and lists that are empty.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"
#include "kit/chosen.hpp"
#include "kit/factor_draws.hpp"

namespace fp8lab::experiments {

/// The key that tells an entry of a list from the others.
inline std::string_view key_of(const ChosenFormat& format) { return format.name; }
inline std::string_view key_of(const ChosenProfile& profile) { return profile.name; }
inline std::string_view key_of(Rounding rounding) { return name_of(rounding); }
inline std::string_view key_of(const DelayedVersion& version) { return version.name; }
inline std::string_view key_of(AmaxComputeAlgo algo) { return name_of(algo); }
inline std::string_view key_of(const MmaModel& model) { return model.name; }
inline std::string key_of(const FactorDraws& draws) { return draws.name(); }
inline std::string_view key_of(LinearPass pass) { return name_of(pass); }
inline double key_of(double value) { return value; }
inline long long key_of(long long value) { return value; }
inline std::string_view key_of(const std::string& name) { return name; }

/// Throws where the list has an entry twice.
template <typename T>
void check_list(std::string_view what, const std::vector<T>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (key_of(list[i]) != key_of(list[j])) continue;
      refuse(what, " must have each entry once, and has ", key_of(list[i]), " twice");
    }
  }
}

/// Throws where the list has an entry twice, or none.
template <typename T>
void check_filled_list(std::string_view what, const std::vector<T>& list) {
  if (list.empty()) refuse(what, " must have at least one entry");
  check_list(what, list);
}

}  // namespace fp8lab::experiments
