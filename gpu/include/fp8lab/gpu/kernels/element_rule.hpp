// SPDX-License-Identifier: Apache-2.0
// How an element and its factor become a code, by the instructions of ptx/cvt.hpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

#include "fp8lab/gpu/kernels/run.hpp"
#include "fp8lab/gpu/ptx/cvt.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab::gpu {

/// The formats that kernels cast to.
enum class CodeFormat : std::uint8_t { e4m3, e5m2, e2m1 };

/// The facts of a recipe that an element meets after its factor.
struct ElementRule {
  CodeFormat format = CodeFormat::e4m3;
  TileOperation operation = TileOperation::multiply;
  NanCode nan = NanCode::positive_all_ones;  ///< or sign_all_ones, or largest
  bool stochastic = false;                   ///< e2m1 only
};

/// The operations that kernels have are those up to this one.
inline constexpr TileOperation last_operation = TileOperation::multiply_add_zero;

/// The rule of a recipe, or none where no instruction casts so.
[[nodiscard]] constexpr std::optional<ElementRule> element_rule_of(const Recipe& recipe) {
  ElementRule rule{.operation = recipe.operation, .nan = recipe.cast.nan};
  const bool in_float32 = recipe.product == ScaleArithmetic::float32 && recipe.operation <= last_operation;
  const bool by_amax = recipe.block_choice == BlockChoice::none && !recipe.tensor_scale_for_each_row;
  if (!in_float32 || recipe.float32_steps || !by_amax || recipe.cast.zero_sign != ZeroSign::kept) return {};
  if (recipe.format == e4m3) {
    rule.format = CodeFormat::e4m3;
  } else if (recipe.format == e5m2) {
    rule.format = CodeFormat::e5m2;
  } else if (recipe.format == e2m1) {
    rule.format = CodeFormat::e2m1;
    rule.nan = NanCode::positive_all_ones;
    if (recipe.cast.missing_nan != MissingNan::largest) return {};
  } else {
    return {};
  }
  rule.stochastic = recipe.cast.rounding == Rounding::stochastic;
  const bool rounds =
      recipe.cast.rounding == Rounding::nearest_even || (rule.stochastic && rule.format == CodeFormat::e2m1);
  const bool names_nan =
      rule.nan == NanCode::positive_all_ones || rule.nan == NanCode::sign_all_ones || rule.nan == NanCode::largest;
  const bool saturates = recipe.cast.overflow == Overflow::saturate && recipe.cast.infinity == Overflow::saturate;
  if (!rounds || !names_nan || !saturates) return {};
  return rule;
}

/// Elements as their factor has them, each rounded once to float32.
template <typename Source>
[[nodiscard]] FP8LAB_HD Run<float> scaled(TileOperation operation, const Run<Source>& run, float factor) {
  Run<float> result;
  const auto each = [&](const auto& f) {
    unrolled<run_length>([&](unsigned i) { result.words[i] = std::bit_cast<std::uint32_t>(f(ptx::float_of(run[i]))); });
  };
  switch (operation) {
    case TileOperation::multiply: each([&](float x) { return x * factor; }); break;
    case TileOperation::divide: each([&](float x) { return x / factor; }); break;
    case TileOperation::multiply_then_add_zero:  // these have no kernel
    case TileOperation::divide_then_add_zero:
    case TileOperation::multiply_negative_zero:
    case TileOperation::multiply_add_zero: each([&](float x) { return std::fma(x, factor, 0.0F); }); break;
  }
  return result;
}

/// Philox words of a run of 16 codes: one call.
struct RunRandom {
  std::uint32_t words[4];  // NOLINT(modernize-avoid-c-arrays)
};
[[nodiscard]] FP8LAB_HD inline RunRandom random_of_run(std::uint64_t seed, std::uint64_t offset, std::uint64_t run) {
  const auto words = philox4x32({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32),
                                 static_cast<std::uint32_t>(run), static_cast<std::uint32_t>(run >> 32)},
                                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return {{words[0], words[1], words[2], words[3]}};
}

/// The sign bit, which a convert may drop of a NaN.
[[nodiscard]] FP8LAB_HD inline bool is_negative(float x) { return std::bit_cast<std::uint32_t>(x) >> 31 != 0; }
[[nodiscard]] FP8LAB_HD inline bool is_negative(Half x) { return x.bits >> 15 != 0; }
[[nodiscard]] FP8LAB_HD inline bool is_negative(BFloat16 x) { return x.bits >> 15 != 0; }

/// The NaNs of a run, where the recipe's differ from the instruction's 7F: a NaN element keeps its sign, one that
/// arises has none; or the largest code takes its place.
template <typename Source>
FP8LAB_HD void name_nans(const ElementRule& rule, const Run<Source>& run, const Run<float>& values, RunCodes& codes) {
  const std::uint32_t largest = rule.format == CodeFormat::e4m3 ? 0x7EU : 0x7BU;
  unrolled<run_length>([&](unsigned i) {
    const float value = values[i];
    if (value == value) return;
    const float x = ptx::float_of(run[i]);
    const bool negative = x != x && is_negative(run[i]);
    const std::uint32_t named = negative ? 0xFFU : 0x7FU;
    const std::uint32_t code = rule.nan == NanCode::largest ? largest : named;
    const std::uint32_t shift = i % 4 * 8;
    codes.words[i / 4] = (codes.words[i / 4] & ~(0xFFU << shift)) | code << shift;
  });
}

/// Codes of a run whose elements share a factor. `random` counts where the rule is stochastic.
template <typename Source>
[[nodiscard]] FP8LAB_HD RunCodes codes_of_run(const ElementRule& rule, const Run<Source>& run, float factor,
                                              const RunRandom& random = {}) {
  const Run<float> x = scaled(rule.operation, run, factor);
  RunCodes codes{};
  switch (rule.format) {
    case CodeFormat::e4m3:
      unrolled<8>([&](unsigned i) { codes.words[i / 2] |= ptx::e4m3x2(x[2 * i], x[2 * i + 1]) << (i % 2 * 16); });
      break;
    case CodeFormat::e5m2:
      unrolled<8>([&](unsigned i) { codes.words[i / 2] |= ptx::e5m2x2(x[2 * i], x[2 * i + 1]) << (i % 2 * 16); });
      break;
    case CodeFormat::e2m1:
      if (rule.stochastic) {
        unrolled<4>([&](unsigned i) {
          const ptx::Four four{x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]};
          codes.words[i / 2] |= ptx::e2m1x4_stochastic(four, random.words[i]) << (i % 2 * 16);
        });
      } else {
        unrolled<8>([&](unsigned i) { codes.words[i / 4] |= ptx::e2m1x2(x[2 * i], x[2 * i + 1]) << (i % 4 * 8); });
      }
      return codes;
  }
  if (rule.nan != NanCode::positive_all_ones) name_nans(rule, run, x, codes);
  return codes;
}

}  // namespace fp8lab::gpu
