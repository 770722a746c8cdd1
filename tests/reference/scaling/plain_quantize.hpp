// SPDX-License-Identifier: Apache-2.0
// The plain model of quantize, values to quantize, and the recipes that tests of quantize go through.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "support.hpp"

namespace fp8lab::tests::quantization {

/// Floats of any bit pattern, numbers in the range of the formats, and special values; with `tame` only the second.
inline std::vector<float> values(std::size_t count, std::uint64_t seed, bool tame = false) {
  constexpr float max = std::numeric_limits<float>::max();
  const float special[] = {0, -0.0F, 448, -448, 6, 0x1p-149F, -0x1p-149F, 0x1p-127F, max, -max, inf, -inf, NAN, -NAN};
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = random_bits(seed, i);
    const auto low = static_cast<std::uint32_t>(word);
    const std::uint64_t kind = tame ? 9 : word >> 60;
    if (kind == 0 && i % 37 == 0) {
      x[i] = special[low % std::size(special)];
    } else if (kind == 1 && i % 5 == 0) {
      x[i] = std::bit_cast<float>(low);
    } else {
      x[i] = std::bit_cast<float>((low & 0x80FFFFFFU) + 0x3C000000U + (low >> 29 << 23));
    }
  }
  return x;
}

inline std::vector<BFloat16> as_bfloats(const std::vector<float>& x) {
  std::vector<BFloat16> result;
  for (const float value : x) result.push_back({static_cast<std::uint16_t>(bits(value) >> 16)});
  return result;
}
inline float value_of(float x) { return x; }
inline float value_of(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

/// The tile that shares a scale: rows across K, elements along K; 0 stands for all.
struct Shape {
  std::size_t across, along;
};
inline Shape shape_of(const Recipe& recipe) { return {recipe.tile_across, recipe.tile_along}; }

/// The plain model: an element's code and its scale, from the formulas, one element at a time.
template <typename Source>
class Plain {
 public:
  Plain(const std::vector<Source>& x, std::size_t rows, std::size_t columns, const Recipe& recipe, Direction direction)
      : x_(x), rows_(rows), columns_(columns), recipe_(recipe), rowwise_(direction == Direction::rowwise) {
    facts_.input_type = std::is_same_v<Source, float> ? binary32 : bfloat16;
    facts_.amax = amax(0, rows, 0, columns);  // unless each row has its own
  }
  [[nodiscard]] TileScale scale(std::size_t row, std::size_t column) const {
    const Shape shape = shape_of(recipe_);
    const std::size_t height = rowwise_ ? shape.across : shape.along;
    const std::size_t width = rowwise_ ? shape.along : shape.across;
    const std::size_t top = height == 0 ? 0 : row / height * height;
    const std::size_t left = width == 0 ? 0 : column / width * width;
    const std::size_t bottom = height == 0 ? rows_ : std::min(top + height, rows_);
    const std::size_t right = width == 0 ? columns_ : std::min(left + width, columns_);
    fp8lab::TensorFacts facts = facts_;
    if (recipe_.tensor_scale_for_each_row) {
      facts.amax = rowwise_ ? amax(row, row + 1, 0, columns_) : amax(0, rows_, column, column + 1);
    }
    return tile_scale(recipe_, amax(top, bottom, left, right), facts);
  }
  [[nodiscard]] std::uint32_t code(std::size_t row, std::size_t column) const {
    const float x = value_of(x_[row * columns_ + column]);
    const float factor = scale(row, column).factor;
    const bool is_quotient =
        recipe_.operation == TileOperation::divide || recipe_.operation == TileOperation::divide_then_add_zero;
    float scaled = is_quotient ? x / factor : x * factor;
    switch (recipe_.operation) {
      case TileOperation::multiply:
      case TileOperation::divide: break;
      case TileOperation::multiply_add_zero: scaled = std::fma(x, factor, 0.0F); break;
      case TileOperation::multiply_then_add_zero:
      case TileOperation::divide_then_add_zero: scaled = scaled == 0 ? 0.0F : scaled; break;
      case TileOperation::multiply_negative_zero: scaled = scaled == 0 ? -0.0F : scaled; break;
    }
    if (std::isnan(scaled)) scaled = std::isnan(x) ? x : std::bit_cast<float>(0x7FC00000U);
    const bool in_input = recipe_.product == ScaleArithmetic::input_type && facts_.input_type == bfloat16;
    if (in_input || recipe_.product == ScaleArithmetic::bfloat16_type) {
      scaled = decode(bfloat16, encode(bfloat16, ieee_policy, scaled));
      if (scaled == 0 && adds_zero_after(recipe_.operation)) scaled = 0;
    }
    return encode(recipe_.format, recipe_.cast, recipe_.float32_steps ? in_steps(scaled) : scaled);
  }

 private:
  /// What floor(|x| + 0.5) and floor(|x|), in places of the exponent that float32 says log2(x) has, come to.
  [[nodiscard]] float in_steps(float x) const {
    if (!std::isfinite(x) || x == 0) return x;
    const auto exponent =
        static_cast<int>(std::floor(static_cast<float>(std::log2(static_cast<double>(std::fabs(x))))));
    const float place =
        std::ldexp(1.0F, std::max(exponent, recipe_.format.min_exponent()) - recipe_.format.mantissa_bits);
    const float steps = std::fabs(x) / place;
    const bool is_tie = std::fmod(steps - 0.5F, 2.0F) == 0 && recipe_.cast.rounding == Rounding::nearest_even;
    const float whole = recipe_.cast.rounding == Rounding::toward_zero
                            ? std::floor(steps)
                            : std::floor(steps + 0.5F) - (is_tie ? 1.0F : 0.0F);
    return std::copysign(whole * place, x);
  }

  [[nodiscard]] float amax(std::size_t top, std::size_t bottom, std::size_t left, std::size_t right) const {
    float most = 0;
    for (std::size_t r = top; r < bottom; ++r) {
      for (std::size_t c = left; c < right; ++c) {
        const float x = std::fabs(value_of(x_[r * columns_ + c]));
        if (std::isnan(x)) {
          if (recipe_.nan_in_amax == NanInAmax::counted) return x;
        } else if (x > most) {
          most = x;
        }
      }
    }
    return most;
  }

  const std::vector<Source>& x_;
  std::size_t rows_, columns_;
  Recipe recipe_;
  bool rowwise_;
  fp8lab::TensorFacts facts_;
};

/// The code of an element of x, in whatever layout.
inline std::uint32_t code_at(const Quantized& q, std::size_t row, std::size_t column) {
  const std::size_t at = q.transposed ? column * q.rows + row : row * q.columns + column;
  if (q.format.bits() > 4) return q.codes[at];
  return at % 2 == 0 ? q.codes[at / 2] & 0xFU : q.codes[at / 2] >> 4U;
}

/// The index of an element's scale.
inline std::size_t scale_index(const Quantized& q, std::size_t row, std::size_t column) {
  const Shape shape = shape_of(q.recipe);
  if (q.scale_rows * q.scale_columns == 1) return 0;
  const bool rowwise = q.direction == Direction::rowwise;
  const std::size_t across = (rowwise ? row : column) / (q.recipe.scale_for_each_row ? 1 : shape.across);
  const std::size_t along = shape.along == 0 ? 0 : (rowwise ? column : row) / shape.along;
  const bool stands = rowwise || q.transposed;  // rows of scales are rows of K
  return stands ? across * q.scale_columns + along : along * q.scale_columns + across;
}

struct Sizes {
  std::size_t rows, columns;
};
/// Odd sizes, where the recipe allows them; the last is longer than a thread's piece of a row.
inline std::vector<Sizes> all_sizes_of(const Recipe& recipe) {
  if ((recipe.whole_tiles || recipe.pads_tiles) && recipe.tile_along == 32)
    return {{32, 32}, {32, 288}, {96, 64}, {64, 4128}};
  if ((recipe.whole_tiles || recipe.pads_tiles) && recipe.tile_along == 16) return {{16, 16}, {48, 80}, {16, 4112}};
  if (recipe.whole_tiles || recipe.pads_tiles) return {{128, 128}, {256, 384}};
  if (recipe.format.bits() == 4) return {{2, 6}, {130, 68}, {256, 384}};  // pairs along K in both directions
  if (recipe.tile_across == 1 && recipe.tile_along == 0) return {{3, 5}, {130, 67}, {600, 1001}};  // columns in pieces
  return {{1, 1}, {3, 5}, {130, 67}, {129, 257}, {2, 8209}};
}

inline std::vector<Sizes> sizes_of(const Recipe& recipe) {
  std::vector<Sizes> sizes = all_sizes_of(recipe);
  if (sanitized) sizes.pop_back();
  return sizes;
}

/// One size of three in an ordinary run: those next to each other take turns, and each recipe has one at least.
inline std::vector<Sizes> some_sizes_of(const Recipe& recipe, std::size_t number) {
  const std::vector<Sizes> all = sizes_of(recipe);
  const std::size_t turn = exhaustive() ? 1 : std::min<std::size_t>(3, all.size());
  std::vector<Sizes> some;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((i + number) % turn == 0) some.push_back(all[i]);
  }
  return some;
}

/// Recipes whose every field has been turned, beside the named ones.
inline std::vector<Recipe> many_recipes() {
  std::vector<Recipe> all;
  for (const NamedRecipe& one : recipes()) {
    const bool is_plain = one.recipe.transform == Transform::none && one.recipe.block_choice == BlockChoice::none;
    if (is_plain) all.push_back(one.recipe);
  }
  all.emplace_back(GivenScale{.format = e5m2, .scale = 0.3F});
  all.emplace_back(JustInTime{.format = e3m2, .axis = Axis::row, .amax_epsilon = 1});
  all.emplace_back(MxBlock{.drop_negative_zero = true, .edges = E8m0Edges::te_before_2_13});
  all.emplace_back(MxBlock{.format = e2m1, .enable_2d_quantization = true, .nan = NanInAmax::counted});
  all.emplace_back(MxBlock{.format = e5m2, .edges = E8m0Edges::te_before_2_19});
  all.emplace_back(MxBlock{.rule = MxRule::even, .edges = E8m0Edges::torchao_0_18});
  all.emplace_back(Block{.format = e5m2, .rule = BlockRule::deepgemm_cpu, .rows = 32, .columns = 32});
  all.emplace_back(Block{.rule = BlockRule::deepseek_2025});
  all.emplace_back(Block{.rows = 6, .columns = 6});
  all.emplace_back(Block{.columns = 10});
  all.emplace_back(NvFp4{.nan = NanInAmax::counted});
  return all;
}

inline std::vector<std::uint32_t> words_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> words;
  for (const float value : x) words.push_back(word_of(value));
  return words;
}

inline void require_same(const Quantized& actual, const Quantized& expected) {
  REQUIRE(actual.codes == expected.codes);
  REQUIRE(actual.scale_codes == expected.scale_codes);
  REQUIRE(words_of(actual.scale_inv) == words_of(expected.scale_inv));
  REQUIRE(actual.scale_rows == expected.scale_rows);
  REQUIRE(actual.scale_columns == expected.scale_columns);
  REQUIRE((std::isnan(actual.amax) ? std::isnan(expected.amax) : bits(actual.amax) == bits(expected.amax)));
}

/// Each 16 rows of every column times Sylvester's matrix with Transformer Engine's signs.
inline std::vector<float> turned_columns(const std::vector<float>& x, std::size_t rows, std::size_t columns) {
  // Sylvester's construction: H(2n) = [H H; H -H].
  int matrix[16][16] = {{1}};
  for (int n = 1; n < 16; n *= 2) {
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        matrix[i][j + n] = matrix[i + n][j] = matrix[i][j];
        matrix[i + n][j + n] = -matrix[i][j];
      }
    }
  }
  const std::string signs = "+++-+------+-+--";
  std::vector<float> turned(x.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        const double sign = signs[i] == '+' ? 1 : -1;
        sum += sign * matrix[i][r % 16] * x[(r / 16 * 16 + i) * columns + c];
      }
      turned[r * columns + c] = static_cast<float>(sum / 4);
    }
  }
  return turned;
}

}  // namespace fp8lab::tests::quantization
