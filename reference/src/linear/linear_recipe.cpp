// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/linear/linear_recipe.hpp"

#include <array>
#include <stdexcept>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "linear/with_name.hpp"

namespace fp8lab {
namespace {

constexpr std::array linear_passes{Named{"fprop", LinearPass::fprop}, Named{"dgrad", LinearPass::dgrad},
                                   Named{"wgrad", LinearPass::wgrad}};
constexpr std::array linear_tensors{Named{"x", LinearTensor::x}, Named{"w", LinearTensor::w},
                                    Named{"dy", LinearTensor::dy}};
constexpr std::array linear_systems{Named{"none", LinearSystem::none},
                                    Named{"transformer_engine", LinearSystem::transformer_engine},
                                    Named{"deepseek", LinearSystem::deepseek}};
static_assert(is_in_order(linear_passes) && is_in_order(linear_tensors) && is_in_order(linear_systems));

bool is_high_precision(const Format& format) { return format == binary32 || format == binary16 || format == bfloat16; }

bool has_given_scale(const LinearCast& cast) {
  const auto* recipe = std::get_if<Recipe>(&cast);
  return recipe != nullptr && is_given(*recipe) && recipe->tile_across == 0;
}

/// Throws for an output that no GEMM of that pass writes.
/// Source: NVIDIA/TransformerEngine, transformer_engine/pytorch/csrc/extensions/gemm.cpp (unfused_quantization_needed).
void check_output(const LinearGemm& gemm, LinearPass pass) {
  const Format& output = gemm.recipe.output;
  if (is_high_precision(output)) return;
  const std::string name = format_name(output);
  if (output != e4m3 && output != e5m2) {
    throw std::invalid_argument(
        "output must be float32, float16 or bfloat16, or e4m3 or e5m2 under delayed scaling, not " + name);
  }
  if (pass == LinearPass::wgrad)
    throw std::invalid_argument("output must not be " + name + ": no system has dw in FP8");
  if (!has_given_scale(gemm.a) || !has_given_scale(gemm.b)) {
    throw std::invalid_argument(
        "output must not be " + name +
        ": GEMMs write FP8 under delayed scaling alone, whose operands have given scales; under "
        "other recipes they write high precision, which a second kernel quantizes (quantize)");
  }
}

void check_linear_gemm(const LinearGemm& gemm, LinearPass pass) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument(what); };
  for (const auto& [name, cast] : {std::pair{"a", &gemm.a}, std::pair{"b", &gemm.b}}) {
    const auto* format = std::get_if<Format>(cast);
    if (format != nullptr && !is_high_precision(*format)) {
      refuse(std::string(name) + " must be a recipe, or float32, float16 or bfloat16, not " + format_name(*format));
    }
    if (const auto* recipe = std::get_if<Recipe>(cast)) check_recipe(*recipe);
  }
  if (gemm.a.index() != gemm.b.index()) refuse("a and b must both be recipes or both be formats");
  check_output(gemm, pass);
  if (gemm.recipe.model.is_fp64()) {
    refuse("model must have a float32 or float16 accumulator, which " + std::string(gemm.recipe.model.name) +
           " has not");
  }
  check_gemm_recipe(gemm.recipe);
}

std::string words_of(const LinearCast& cast) {
  if (const auto* format = std::get_if<Format>(&cast)) return format_name(*format);
  std::string words = describe(std::get<Recipe>(cast));
  return words.insert(0, 1, '"') + '"';
}

}  // namespace

LinearFactors factors_of(LinearPass pass) {
  switch (pass) {
    case LinearPass::fprop: break;
    case LinearPass::dgrad: return {{LinearTensor::dy, Direction::rowwise}, {LinearTensor::w, Direction::columnwise}};
    case LinearPass::wgrad:
      return {{LinearTensor::dy, Direction::columnwise}, {LinearTensor::x, Direction::columnwise}};
  }
  return {{LinearTensor::x, Direction::rowwise}, {LinearTensor::w, Direction::rowwise}};
}

const LinearGemm& gemm_of(const LinearRecipe& recipe, LinearPass pass) {
  switch (pass) {
    case LinearPass::fprop: break;
    case LinearPass::dgrad: return recipe.dgrad;
    case LinearPass::wgrad: return recipe.wgrad;
  }
  return recipe.fprop;
}

Format bias_format_of(const LinearGemm& gemm) {
  const bool is_quantized = std::holds_alternative<Recipe>(gemm.a);
  return is_quantized && gemm.recipe.output != binary16 ? bfloat16 : gemm.recipe.output;
}

LinearRecipe override_linear_precision(LinearRecipe recipe, const LinearPrecision& high_precision,
                                       const LinearRecipe& other) {
  const auto replace = [](bool replaced, LinearGemm& gemm, const LinearGemm& by) {
    if (!replaced) return;
    const Format output = gemm.recipe.output;
    gemm = by;
    gemm.recipe.output = output;
  };
  replace(high_precision.fprop, recipe.fprop, other.fprop);
  replace(high_precision.dgrad, recipe.dgrad, other.dgrad);
  replace(high_precision.wgrad, recipe.wgrad, other.wgrad);
  return recipe;
}

void check_linear_recipe(const LinearRecipe& recipe) {
  const DefaultEnvironment environment;
  for (const LinearPass pass : {LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad}) {
    with_name(std::string(name_of(pass)), [&] { check_linear_gemm(gemm_of(recipe, pass), pass); });
  }
}

std::string describe(const LinearRecipe& recipe) {
  const DefaultEnvironment environment;
  std::string text;
  for (const LinearPass pass : {LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad}) {
    const LinearGemm& gemm = gemm_of(recipe, pass);
    const LinearFactors factors = factors_of(pass);
    text += (text.empty() ? "" : "; ") + std::string(name_of(pass)) + ": ";
    text += std::string(name_of(factors.a.tensor)) + " " + words_of(gemm.a) + ", ";
    text += std::string(name_of(factors.b.tensor)) + " " + words_of(gemm.b) + ", on " + describe(gemm.recipe);
    constexpr Format single = binary32;
    if (gemm.recipe.output == single) text += ", to " + format_name(single);
  }
  return text;
}

std::span<const Named<LinearPass>> named_values(LinearPass /*any*/) { return linear_passes; }
std::span<const Named<LinearTensor>> named_values(LinearTensor /*any*/) { return linear_tensors; }
std::span<const Named<LinearSystem>> named_values(LinearSystem /*any*/) { return linear_systems; }

}  // namespace fp8lab
