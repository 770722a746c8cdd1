// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/tiles.hpp"

namespace fp8lab {

// The amax is the largest magnitude of the elements that share a scale. The scale multiplies on quantize, scale_inv
// multiplies on dequantize. `largest` is the largest value of the format. fl() rounds to float32, nearest even.

/// The transform of the tensor before its amax is taken.
enum class Transform : std::uint8_t {
  none,
  hadamard_columnwise,           ///< columnwise, every 16 elements along K are turned by a random Hadamard matrix
  hadamard_columnwise_bfloat16,  ///< the same, and rounded to bfloat16
};

/// How the amax makes the scale, or scale_inv. The other of the two is the rounded inverse. PyTorch divides a number by
/// a tensor by way of the tensor's rounded inverse, and on a GPU a tensor by a number by way of the number's.
enum class Quotient : std::uint8_t {
  given_scale,            ///< the scale is given_scale
  given_scale_inv,        ///< scale_inv is given_scale
  largest_over_amax,      ///< scale = fl(largest / amax)
  largest_times_inverse,  ///< scale = fl(largest * fl(1 / amax))
  amax_over_largest,      ///< scale_inv = fl(amax / largest)
  amax_times_inverse,     ///< scale_inv = fl(amax * fl(1 / largest))
  amax_over_power,        ///< scale_inv = amax / 2^emax, emax the exponent of largest: for powers of two only
  inverse_of_quotient,    ///< scale_inv = fl(1 / fl(largest / amax))
  inverse_of_product,     ///< scale_inv = fl(1 / fl(largest * fl(1 / amax)))
};

/// The type in which the quotient of a scale, or the product of an element and its factor, is rounded.
enum class ScaleArithmetic : std::uint8_t {
  float32,
  input_type,     ///< that of the tensor: bfloat16 and float16 are coarser
  bfloat16_type,  ///< "bfloat16", whatever the tensor's
};

/// How the scale, or scale_inv, is rounded to a power of two. By log2: 2^floor(log2(x)) or 2^ceil(log2(x)) in float32,
/// as PyTorch computes it on a CPU: a value next to a power of two may become that power (at most 44 of the 2^23 values
/// of a binade, none that an amax of bfloat16 makes).
enum class ScaleRounding : std::uint8_t {
  none,
  down,          ///< the mantissa is cleared
  up,            ///< to the next power of two that is not below; as float32 from 2^-126 to 2^127, which NaN becomes too
  even,          ///< down, after rounding to even_mantissa_bits bits of mantissa, ties up
  down_by_log2,  ///< 2^floor(log2(x))
  up_by_log2,    ///< 2^ceil(log2(x))
  nearest_by_log2,  ///< 2^k, k the integer nearest to log2(x) in the type of the arithmetic, the even one of two
};

/// What a scale that overflows float32 becomes.
enum class ScaleLimit : std::uint8_t {
  none,        ///< infinite
  float32,     ///< the largest float32
  input_type,  ///< the largest value of the tensor's type
};

/// What an amax of zero, infinity or NaN makes. That of zero counts also where amax / largest is a scale_inv that
/// rounds to 0.
enum class SpecialScale : std::uint8_t {
  computed,      ///< what the formula gives
  one,           ///< a scale of 1
  nan,           ///< for E8M0: NaN; where infinity makes that, so does a scale_inv above 2^127
  smallest,      ///< for E8M0: 2^-127
  epsilon,       ///< for float32: a scale_inv of 2^-23
  type_epsilon,  ///< where the stored scale_inv is 0: 2^-23, of a bfloat16 arithmetic 2^-7, of float16 2^-10, of E4M3
                 ///< 2^-3, of E8M0 that float16 has not 1
  smallest_of_nan,  ///< for E8M0: 2^-127, and all elements count as NaN
  largest,          ///< for E8M0: 2^127
  zero_factor,      ///< for float32: a scale_inv of 0, and the elements are multiplied by 0
  as_infinity,      ///< for a NaN amax: what an infinite one makes
};

/// The type in which scales are stored.
enum class ScaleType : std::uint8_t {
  float32,
  e8m0_code,  ///< "e8m0": a power of two from 2^-127 to 2^127
  e4m3_code,  ///< "e4m3": unsigned, nearest even, at most 448
};

/// What codes of E8M0 at the ends of its range mean, as multiplier of a quantization (q) and of a dequantization (d).
enum class E8m0Edges : std::uint8_t {
  specified,           ///< q: 0 is 2^127, 254 is 2^-127, 255 is NaN; d: 0 is 2^-127, 255 is NaN
  te_before_2_19,      ///< Transformer Engine 2.13 to 2.18. q: as specified; d: 0 is 0, 255 is infinite
  te_before_2_13,      ///< Transformer Engine 2.9 to 2.12. q: 0 is 1, 254 is 0, 255 is -infinity; d: as before 2.19
  torchao_0_18,        ///< torchao 0.18. q: 0 is 2^126 and 255 is 0; d: as specified
  torchao_0_18_rceil,  ///< the same by its rule rceil. q: 0 is 1, 255 is NaN; d: as specified
  zero_at_ends,        ///< FlashInfer, vLLM. q: 0 and 254 are 0, 255 is NaN; d: as specified
};

/// The float32 scale of the whole tensor over E4M3 scales of its tiles. G is the amax of the tensor, L = range *
/// largest with the recipe's tensor_range, 448 for all but some of 4over6. Under arithmetic input_type, both roundings
/// of largest_times_inverse are to that type. E multiplies on quantize, D on dequantize.
enum class TensorScaleRule : std::uint8_t {
  none,
  largest_over_amax,      ///< E = min(fl(L / G), FLT_MAX), or 1 where that is 0 or G is; D = fl(1 / E). Dequantized:
                          ///< fl(code * fl(fl(d * G) * fl(1 / L))) for a tile's scale d
  largest_times_inverse,  ///< E = fl(L * fl(1 / G)), or 1 where that is not finite; D = fl(1 / E). Dequantized:
                          ///< fl(code * fl(d / E))
  amax_over_largest,      ///< D = fl(G / L), E = fl(1 / D). Dequantized: fl(code * fl(d * D))
  two_products,           ///< E = fl(range * fl(largest * fl(1 / G))), D = fl(1 / E). Dequantized: fl(code * fl(d / E))
};

/// The product that is rounded to E4M3 as a tile's scale under a tensor's; A is the tile's amax.
enum class BlockProduct : std::uint8_t {
  amax_times_scale,        ///< fl(A * fl(E * fl(1 / largest)))
  scale_times_amax,        ///< fl(E * fl(A * fl(1 / largest)))
  scale_times_quotient,    ///< fl(E * fl(A / largest))
  quotient_over_inverse,   ///< fl(fl(A / largest) / D)
  amax_over_inverse,       ///< fl(A / fl(largest * D))
  quotient_over_quotient,  ///< fl(fl(fl(A / largest) * range) / fl(G / largest)); a zero_amax of 1 is that of A /
                           ///< largest
};

/// How the elements' factor is made of a tile's E4M3 scale d under a tensor's.
enum class BlockFactor : std::uint8_t {
  inverse_of_product,             ///< min(fl(1 / fl(d * D)), FLT_MAX)
  inverse_of_product_or_zero,     ///< fl(1 / fl(d * D)), or 0 where d is
  inverse_of_product_by_amax,     ///< the same, infinite where d is 0, and 0 where the tile's amax is
  inverse_of_product_by_product,  ///< the same, infinite where d is 0, and 0 where what is rounded to d is
  scale_over_block,               ///< fl(E / d)
  scale_over_block_bfloat16,      ///< the same, at most the largest bfloat16, rounded to bfloat16
  scale_times_inverse_or_zero,    ///< fl(E * fl(1 / d)), or 0 where d is
  product,                        ///< fl(d * D), to divide by
  block_over_scale,               ///< fl(d / E), to divide by
};

/// How the elements' factor is made of the stored scale.
enum class FactorRule : std::uint8_t {
  of_scale,           ///< the scale, fl(1 / scale_inv), or scale_inv where elements are divided
  largest_over_amax,  ///< fl(largest / amax): rounded independently of the stored scale_inv
  of_rounded_scale,   ///< scale_inv rounded to the type of the product, by which elements are divided
};

/// Whether a tile under a tensor's scale may be stretched by half, so that its amax becomes 4 instead of 6 in E2M1:
/// "4 over 6". The product that is rounded to its scale is then multiplied by 1.5 (fl, at most 448). The error of a
/// choice is the sum, in float32, of |v - x| or of (v - x)^2 over the tile's elements along K, v = fl(fl(fl(code * d) *
/// G) / L); rows of a square tile are added as a tree. The smaller error wins, and by equal errors the usual scale. The
/// scaled ones leave the tensor's scale on both sides: v = code * d, which is exact, and fl(x * E) in place of x.
enum class BlockChoice : std::uint8_t {
  none,
  four_or_six_absolute,         ///< by |v - x|
  four_or_six_squared,          ///< by (v - x)^2
  four_or_six_absolute_scaled,  ///< by |v - fl(x * E)|
  four_or_six_squared_scaled,   ///< by (v - fl(x * E))^2
};

/// How one tensor is cast, as a function of the tensor alone: a record of facts, from which all else follows. Real
/// systems are entries of a table, and Transformer Engine's names make records (named_recipes.hpp). Delayed
/// (delayed_scaling.hpp) is a recipe of a run: each of its casts has a given scale.
struct Recipe {
  // 1. Which elements share a scale.
  std::size_t tile_across = 0;  ///< elements of a tile across K; 0: all
  std::size_t tile_along = 0;   ///< elements of a tile along K; 0: all
  bool whole_tiles = false;     ///< rows and columns must be multiples of the tile's; otherwise the last may be shorter
  bool pads_tiles = false;  ///< zeros fill the last tiles up, and are stored: codes and scales are of a larger tensor
  // 2. Their amax.
  Transform transform = Transform::none;
  NanInAmax nan_in_amax = NanInAmax::dropped;
  double least_amax = 0;                                          ///< smaller amaxes count as it
  ScaleArithmetic least_amax_type = ScaleArithmetic::float32;     ///< the type that least_amax is rounded to first
  double largest_amax = std::numeric_limits<double>::infinity();  ///< larger amaxes count as it
  bool flush_subnormal_amax = false;  ///< elements of tiles whose amax is below 2^-126 are multiplied by 0
  // 3. The scale.
  Quotient quotient = Quotient::largest_over_amax;
  float given_scale = 1;  ///< positive and finite, and its inverse finite; quantize() takes others for each tile
  ScaleArithmetic arithmetic = ScaleArithmetic::float32;
  float least_scale_inv = 0;  ///< a smaller scale_inv becomes it, before it is rounded
  ScaleRounding rounding = ScaleRounding::none;
  int even_mantissa_bits = 0;  ///< for ScaleRounding::even; 0: as many as the format has
  ScaleLimit limit = ScaleLimit::none;
  SpecialScale zero_amax = SpecialScale::computed;
  SpecialScale infinite_amax = SpecialScale::computed;
  SpecialScale nan_amax = SpecialScale::computed;
  ScaleType scale_type = ScaleType::float32;
  E8m0Edges edges = E8m0Edges::specified;
  // 4. The tensor's scale over those of tiles.
  TensorScaleRule tensor_scale = TensorScaleRule::none;
  bool tensor_scale_for_each_row = false;  ///< each row (columnwise: column) has its own, of its own amax
  float tensor_range = 448;                ///< the E4M3 scale that the tensor's leaves room for, up to 448
  BlockProduct block_product = BlockProduct::amax_times_scale;
  BlockFactor block_factor = BlockFactor::inverse_of_product;
  BlockChoice block_choice = BlockChoice::none;
  // 5. How an element meets its scale, and becomes a code.
  FactorRule factor = FactorRule::of_scale;
  float largest_factor = std::numeric_limits<float>::infinity();  ///< larger factors largest_over_amax become it
  float least_divisor = 0;  ///< a smaller scale_inv counts as it where elements meet it, and is stored as it is
  TileOperation operation = TileOperation::multiply;
  ScaleArithmetic product = ScaleArithmetic::float32;  ///< the type that the product or quotient is rounded to
  bool float32_steps = false;  ///< codes are made by float32 arithmetic, as by microxcaling: floor(x + 0.5), and log2
  Format format = e4m3;
  CastPolicy cast = {};
  // 6. What is stored.
  bool transposed_columnwise =
      true;                         ///< columnwise codes and scales are those of the transpose; codes of 4 bits always
  bool scale_for_each_row = false;  ///< a square tile's scale stands in each of its rows (columnwise: columns)

  friend bool operator==(const Recipe&, const Recipe&) = default;
};

/// Calls f(name, field) for each field of a Recipe, in order.
template <typename AnyRecipe, typename Function>
  requires std::same_as<std::remove_const_t<AnyRecipe>, Recipe>
void for_fields(AnyRecipe& recipe, const Function& f) {
  f("tile_across", recipe.tile_across);
  f("tile_along", recipe.tile_along);
  f("whole_tiles", recipe.whole_tiles);
  f("pads_tiles", recipe.pads_tiles);
  f("transform", recipe.transform);
  f("nan_in_amax", recipe.nan_in_amax);
  f("least_amax", recipe.least_amax);
  f("least_amax_type", recipe.least_amax_type);
  f("largest_amax", recipe.largest_amax);
  f("flush_subnormal_amax", recipe.flush_subnormal_amax);
  f("quotient", recipe.quotient);
  f("given_scale", recipe.given_scale);
  f("arithmetic", recipe.arithmetic);
  f("least_scale_inv", recipe.least_scale_inv);
  f("rounding", recipe.rounding);
  f("even_mantissa_bits", recipe.even_mantissa_bits);
  f("limit", recipe.limit);
  f("zero_amax", recipe.zero_amax);
  f("infinite_amax", recipe.infinite_amax);
  f("nan_amax", recipe.nan_amax);
  f("scale_type", recipe.scale_type);
  f("edges", recipe.edges);
  f("tensor_scale", recipe.tensor_scale);
  f("tensor_scale_for_each_row", recipe.tensor_scale_for_each_row);
  f("tensor_range", recipe.tensor_range);
  f("block_product", recipe.block_product);
  f("block_factor", recipe.block_factor);
  f("block_choice", recipe.block_choice);
  f("factor", recipe.factor);
  f("largest_factor", recipe.largest_factor);
  f("least_divisor", recipe.least_divisor);
  f("operation", recipe.operation);
  f("product", recipe.product);
  f("float32_steps", recipe.float32_steps);
  f("format", recipe.format);
  f("cast", recipe.cast);
  f("transposed_columnwise", recipe.transposed_columnwise);
  f("scale_for_each_row", recipe.scale_for_each_row);
}

/// In words: which elements share a scale, how it is made, and what is cast how.
[[nodiscard]] std::string describe(const Recipe& recipe);

/// Throws std::invalid_argument for a field that is out of range or does not go with another; the message names the
/// field and says what is allowed.
void check_recipe(const Recipe& recipe);
/// Whether check_recipe() takes the recipe, at less cost where it does not.
[[nodiscard]] bool is_valid(const Recipe& recipe);

}  // namespace fp8lab
