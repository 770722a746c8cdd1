// SPDX-License-Identifier: Apache-2.0
// Recipes by the names that systems give them: Transformer Engine's classes, which make records, and a table of
// records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/tiles.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab {

// Each of these converts to a Recipe, and throws std::invalid_argument where a field does not go with its rule. Fields
// that Transformer Engine has carry its names and defaults. Defaults that depend on the rule are those of the named
// recipe with that rule.

/// One scale for the whole tensor, which comes from outside: delayed scaling, a calibration, or just a number.
/// Codes are those of fl(x * scale), scale_inv = fl(1 / scale).
struct GivenScale {
  Format format = e4m3;
  float scale = 1;  ///< positive and finite

  operator Recipe() const;
};

/// The elements that share a just-in-time scale.
enum class Axis : std::uint8_t {
  tensor,  ///< all
  row,     ///< a row; columnwise, a column ("rowwise" or "axiswise" scaling)
};
/// Who makes the just-in-time scale.
enum class JustInTimeRule : std::uint8_t {
  te,       ///< Transformer Engine: fl(largest / max(amax, amax_epsilon)), at most FLT_MAX; 1 for an amax of 0 or inf
  torchao,  ///< fl(largest / max(amax, 1e-12)); a NaN makes all NaN; codes are clamped, then cast
};
/// Current scaling: the scale is made of the amax of the very tensor. Codes are those of fl(x * scale),
/// scale_inv = fl(1 / scale).
struct JustInTime {
  Format format = e4m3;
  JustInTimeRule rule = JustInTimeRule::te;
  Axis axis = Axis::tensor;
  float amax_epsilon = 0;  ///< for rule te: what smaller amaxes count as
  /// te: the scale's mantissa is cleared; torchao: 2^floor(log2(scale)). Left out: true for torchao's rows.
  std::optional<bool> force_pow_2_scales = {};

  operator Recipe() const;
};

/// How a block's amax becomes its E8M0 scale. emax is the exponent of the format's largest value. Scales are limited to
/// 2^-127 and 2^127; what is not finite gives NaN, but for te.
enum class MxRule : std::uint8_t {
  te,     ///< Transformer Engine: p = fl(amax * fl(1 / largest)), rounded up to a power of two; an infinite amax is 254
  floor,  ///< 2^(floor(log2 amax) - emax), as OCP MX has it: the largest element may saturate
  ceil,   ///< 2^(ceil(log2 amax) - emax)
  even,   ///< 2^(e - emax), e the exponent of the amax rounded to the format's mantissa, ties up
  rceil,  ///< torchao after 0.18: as te, but an infinite amax, and p above 2^127, is NaN
};
/// MX: blocks of 32 elements along K with an E8M0 scale each. Codes are those of x times the exact inverse of it. What
/// a NaN becomes in a format without NaN is of no system: where NaN is counted, the scale says that the block is NaN.
struct MxBlock {
  Format format = e4m3;
  MxRule rule = MxRule::te;
  bool enable_2d_quantization = false;  ///< blocks of 32 x 32, which both directions share
  /// counted: a NaN makes its block's scale, and all of the block, NaN. Left out: dropped by te and floor, else
  /// counted.
  std::optional<NanInAmax> nan = {};
  bool drop_negative_zero = false;  ///< -0 is quantized to +0, as kernels do whose multiply is an fma with +0
  /// With torchao_0_18, an amax of infinity is 2^128 (rceil: 254), and rceil is 2^ceil(log2(fl(amax / largest))).
  E8m0Edges edges = E8m0Edges::specified;

  operator Recipe() const;
};

/// Who makes the scale of a tile; s is scale_inv, which multiplies on dequantize. In DeepGEMM and torchao, whose
/// maximum is PyTorch's, a NaN makes its tile's s NaN (DeepGEMM's power of two: 2^127, which leaves the others 0).
enum class BlockRule : std::uint8_t {
  te,             ///< Transformer Engine: as JustInTime's, at most the largest value of the input's type
  deepseek_2024,  ///< s = fl(amax / largest), codes of fl(x / s): a tile of zeros is NaN
  deepseek_2025,  ///< the same with an amax of at least 1e-4
  deepgemm_cpu,   ///< an amax of at least 1e-4, s = fl(amax / largest), codes of fl(x * fl(1 / s))
  deepgemm_cuda,  ///< the same with s = fl(amax * fl(1 / largest)), as PyTorch divides by a number on a GPU
  torchao,        ///< scale = fl(largest / max(amax, 1e-12)), s = fl(1 / scale), codes of fl(x * scale)
};
/// Tiles of 1 x 128 or 128 x 128 elements with a float32 scale each, as DeepSeek-V3 has them.
struct Block {
  Format format = e4m3;
  BlockRule rule = BlockRule::te;
  std::size_t rows = 1;       ///< across K: 1, or `columns`
  std::size_t columns = 128;  ///< along K
  float amax_epsilon = 0;     ///< for rule te: what smaller amaxes count as
  /// te, torchao: the scale as JustInTime's; others: s is rounded up to a power of two, from 2^-126 to 2^127. Left out:
  /// true for te.
  std::optional<bool> force_pow_2_scales = {};

  operator Recipe() const;
};

/// NVFP4: E2M1 in blocks of 16 along K with an E4M3 scale each, and a float32 scale of the tensor, as Transformer
/// Engine has it. With G the amax of the tensor and A that of a block, S = min(fl(2688 / G), FLT_MAX), or 1 where that
/// is 0 or G is; d = E4M3(fl(A * fl(S * fl(1 / 6)))); codes of fl(x * min(fl(1 / fl(d * fl(1 / S))), FLT_MAX)).
/// Dequantized: fl(code * fl(fl(d * G) * fl(1 / 2688))).
struct NvFp4 {
  bool with_2d_quantization = false;  ///< blocks of 16 x 16, which both directions share
  bool stochastic_rounding = false;   ///< with the caller's random bits
  bool with_rht = false;  ///< columnwise, every 16 elements along K are turned by a random Hadamard matrix first
  /// With with_rht, what the matrix gives is rounded to bfloat16 before its amax is taken, as by all kernels since 2.8;
  /// false: not rounded, as by the fused ones with NVTE_USE_FAST_MATH=1 (from 2.12).
  bool round_rht = true;
  NanInAmax nan = NanInAmax::dropped;  ///< counted: a NaN makes its block's scale NaN

  operator Recipe() const;
};

/// A recipe with the name users call it by and the source that defines it: package, version and file.
struct NamedRecipe {
  std::string_view name;
  Recipe recipe;
  std::string_view source;
};

/// The recipes of real systems.
[[nodiscard]] std::span<const NamedRecipe> recipes();

/// The recipe called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const NamedRecipe& find_recipe(std::string_view name);

/// The enumerators with their names (see named.hpp).
[[nodiscard]] std::span<const Named<Axis>> named_values(Axis of_type);
[[nodiscard]] std::span<const Named<JustInTimeRule>> named_values(JustInTimeRule of_type);
[[nodiscard]] std::span<const Named<MxRule>> named_values(MxRule of_type);
[[nodiscard]] std::span<const Named<BlockRule>> named_values(BlockRule of_type);

}  // namespace fp8lab
