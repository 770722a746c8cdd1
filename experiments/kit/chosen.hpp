// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/gemm/gemm_recipe.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"

namespace fp8lab::experiments {

/// A format under the name that results give it: one of named_formats, or one of the user's own.
struct ChosenFormat {
  std::string name;
  Format format;
};

/// A profile under the name that results give it: one of profiles, or one of the user's own.
struct ChosenProfile {
  std::string name;
  CastPolicy policy;
};

/// A magnitude that a scale maps to a format's largest value.
struct ChosenAmax {
  std::optional<double> amax = {};  ///< none, "auto": the largest of each tensor
};

/// The format, profile or rounding called `name`. All throw std::invalid_argument that lists the known names; the last
/// one also where the rounding needs random bits, which no experiment draws.
[[nodiscard]] ChosenFormat choose_format(std::string_view name);
[[nodiscard]] ChosenProfile choose_profile(std::string_view name);
[[nodiscard]] Rounding choose_rounding(std::string_view name);

/// Throws std::invalid_argument where the rounding is stochastic.
void check_deterministic(Rounding rounding);

/// A recipe without memory, as it was named.
struct ChosenRecipe {
  std::string name;
  Recipe recipe;
};
/// A recipe of recipes(), or "mx:FORMAT:RULE": MX blocks of those elements and that rule. Throws std::invalid_argument
/// that lists the known names.
[[nodiscard]] ChosenRecipe choose_recipe(std::string_view text);

/// A Linear layer's recipe, as it was named.
struct ChosenLinearRecipe {
  std::string name;
  LinearRecipe recipe;
};
/// A recipe of linear_recipes(). Throws std::invalid_argument that lists the known names.
[[nodiscard]] ChosenLinearRecipe choose_linear_recipe(std::string_view name);

/// How a GEMM is composed, as it was named; one of the user's own is named by its words.
struct ChosenGemmRecipe {
  std::string name;
  GemmRecipe recipe;
};
/// A recipe of gemm_recipes(), or the name of a model, as find_gemm() has it. Throws std::invalid_argument that lists
/// the known names.
[[nodiscard]] ChosenGemmRecipe choose_gemm_recipe(std::string_view name);

/// Delayed scaling as it was given: by a text, which leaves its version and margin open, or as a record.
struct ChosenDelayed {
  std::string text;  ///< empty for a record
  Delayed recipe;
};
/// "ALGORITHM:LENGTH", such as "max:1024" or "most_recent:1": Delayed with that amax_compute_algo and amax_history_len.
/// Throws std::invalid_argument where the text is none.
[[nodiscard]] Delayed choose_delayed(std::string_view text);

}  // namespace fp8lab::experiments
