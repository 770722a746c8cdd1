// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/facts.hpp"

#include <cfenv>
#include <chrono>
#include <cmath>
#include <limits>

#include "formats/simd/memory.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Any bit pattern, numbers near the formats' range, and what goes wrong most easily; `tame`: the second alone.
std::vector<float> values(std::size_t count, std::uint64_t seed, bool tame = false) {
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

std::vector<BFloat16> as_bfloats(const std::vector<float>& x) {
  std::vector<BFloat16> result;
  for (const float value : x) result.push_back({static_cast<std::uint16_t>(bits(value) >> 16)});
  return result;
}
float value_of(float x) { return x; }
float value_of(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

/// What shares a scale: rows across K, elements along K; 0: all.
struct Shape {
  std::size_t across, along;
};
Shape shape_of(const Recipe& recipe) { return {recipe.tile_across, recipe.tile_along}; }

/// The plain model: an element's code and its scale, from the formulas, one element at a time.
template <typename Source>
class Plain {
 public:
  Plain(const std::vector<Source>& x, std::size_t rows, std::size_t columns, const Recipe& recipe, Direction direction)
      : x_(x), rows_(rows), columns_(columns), recipe_(recipe), rowwise_(direction == Direction::rowwise) {
    facts_.input_type = std::is_same_v<Source, float> ? binary32 : bfloat16;
    facts_.amax = amax(0, rows, 0, columns);
  }
  [[nodiscard]] TileScale scale(std::size_t row, std::size_t column) const {
    const Shape shape = shape_of(recipe_);
    const std::size_t height = rowwise_ ? shape.across : shape.along;
    const std::size_t width = rowwise_ ? shape.along : shape.across;
    const std::size_t top = height == 0 ? 0 : row / height * height;
    const std::size_t left = width == 0 ? 0 : column / width * width;
    const std::size_t bottom = height == 0 ? rows_ : std::min(top + height, rows_);
    const std::size_t right = width == 0 ? columns_ : std::min(left + width, columns_);
    return tile_scale(recipe_, amax(top, bottom, left, right), facts_);
  }
  [[nodiscard]] std::uint32_t code(std::size_t row, std::size_t column) const {
    const float x = value_of(x_[row * columns_ + column]);
    const float factor = scale(row, column).factor;
    float scaled = recipe_.operation == TileOperation::divide ? x / factor : x * factor;
    if (recipe_.operation == TileOperation::multiply_add_zero) scaled = std::fma(x, factor, 0.0F);
    if (std::isnan(scaled)) scaled = std::isnan(x) ? x : std::bit_cast<float>(0x7FC00000U);
    return encode(recipe_.format, recipe_.cast, scaled);
  }

 private:
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
  TensorFacts facts_;
};

/// The code of an element of x, wherever the layout has it.
std::uint32_t code_at(const Quantized& q, std::size_t row, std::size_t column) {
  const std::size_t at = q.transposed ? column * q.rows + row : row * q.columns + column;
  if (q.format.bits() > 4) return q.codes[at];
  return at % 2 == 0 ? q.codes[at / 2] & 0xFU : q.codes[at / 2] >> 4U;
}

/// The number of an element's scale.
std::size_t scale_index(const Quantized& q, std::size_t row, std::size_t column) {
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
std::vector<Sizes> all_sizes_of(const Recipe& recipe) {
  if (recipe.whole_tiles && recipe.tile_along == 32) return {{32, 32}, {32, 288}, {96, 64}, {64, 4128}};
  if (recipe.whole_tiles && recipe.tile_along == 16) return {{16, 16}, {48, 80}, {16, 4112}};
  if (recipe.whole_tiles) return {{128, 128}, {256, 384}};
  if (recipe.tile_across == 1 && recipe.tile_along == 0) return {{3, 5}, {130, 67}, {600, 1001}};  // columns in pieces
  return {{1, 1}, {3, 5}, {130, 67}, {129, 257}, {2, 8209}};
}

std::vector<Sizes> sizes_of(const Recipe& recipe) {
  std::vector<Sizes> sizes = all_sizes_of(recipe);
  if (sanitized) sizes.pop_back();
  return sizes;
}

/// Recipes whose every field has been turned, beside the named ones.
std::vector<Recipe> many_recipes() {
  std::vector<Recipe> all;
  for (const NamedRecipe& one : recipes()) {
    if (one.recipe.transform == Transform::none) all.push_back(one.recipe);
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

template <typename Source>
void compare_with_plain(const std::vector<Source>& x, const Sizes& size, const Recipe& recipe, const Quantized& q) {
  const Plain<Source> plain(x, size.rows, size.columns, recipe, q.direction);
  Mismatches mismatches;
  // All of the small ones, a sample of the others: the plain model looks at a whole tile for each element.
  const std::size_t stride = x.size() < 1000 ? 1 : x.size() / 211;
  for (std::size_t i = 0; i < x.size(); i += stride) {
    const std::size_t row = i / size.columns;
    const std::size_t column = i % size.columns;
    mismatches.compare(i, bits(value_of(x[i])), code_at(q, row, column), plain.code(row, column), "code");
    const TileScale expected = plain.scale(row, column);
    const std::size_t at = scale_index(q, row, column);
    if (!q.scale_codes.empty()) {
      mismatches.compare(i, bits(value_of(x[i])), q.scale_codes[at], expected.code, "scale code");
    } else {
      mismatches.compare(i, bits(value_of(x[i])), word_of(q.scale_inv[at]), word_of(expected.scale_inv), "scale_inv");
    }
  }
  INFO(describe(recipe) << ", " << size.rows << " x " << size.columns
                        << (q.direction == Direction::rowwise ? ", rowwise" : ", columnwise"));
  REQUIRE_NO(mismatches);
}

std::vector<std::uint32_t> words_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> words;
  for (const float value : x) words.push_back(word_of(value));
  return words;
}

void require_same(const Quantized& actual, const Quantized& expected) {
  REQUIRE(actual.codes == expected.codes);
  REQUIRE(actual.scale_codes == expected.scale_codes);
  REQUIRE(words_of(actual.scale_inv) == words_of(expected.scale_inv));
  REQUIRE(actual.scale_rows == expected.scale_rows);
  REQUIRE(actual.scale_columns == expected.scale_columns);
  REQUIRE((std::isnan(actual.amax) ? std::isnan(expected.amax) : bits(actual.amax) == bits(expected.amax)));
}

double sqnr_of(const Quantized& q, const std::vector<float>& x) {
  std::vector<float> back(x.size());
  dequantize(q, back);
  ErrorTotals totals;
  totals.add(back, x);
  return totals.sqnr_db();
}

void round_to_bfloat16(std::vector<float>& x) {
  std::vector<std::uint16_t> words(x.size());
  encode(bfloat16, {}, std::span<const float>(x), std::span(words));
  decode(bfloat16, std::span<const std::uint16_t>(words), std::span(x));
}

/// Every 16 rows turned by Sylvester's matrix with Transformer Engine's signs.
std::vector<float> turned_columns(const std::vector<float>& x, std::size_t rows, std::size_t columns) {
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

/// Numbers whose size changes from one 16 x 16 to the next, so that a neighbour's scale would not do.
std::vector<float> uneven(std::size_t rows, std::size_t columns) {
  std::vector<float> x = values(rows * columns, 3, true);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t tile = i / columns / 16 * columns + i % columns / 16;
    x[i] = std::ldexp(x[i], static_cast<int>(random_bits(4, tile) % 17) - 8);
  }
  return x;
}

/// Where the rule of a recipe puts the amax of what shares a scale, in units of the scale.
struct Place {
  double low, high;
};
Place place_of(const Recipe& recipe, double largest) {
  if (is_given(recipe)) return {0, inf};
  // The scale of NVFP4 is rounded to E4M3: by a sixteenth at most.
  if (recipe.scale_type == ScaleType::e4m3_code) return {largest * 16 / 17, largest * 16 / 15};
  const bool over_power = recipe.quotient == Quotient::amax_over_power;
  const double power = over_power ? std::exp2(std::ilogb(largest)) : largest;
  switch (recipe.rounding) {
    case ScaleRounding::none: return {largest, largest};
    case ScaleRounding::up: return {power / 2, power};
    case ScaleRounding::even: return {power * (1 - std::ldexp(0.25, -recipe.format.mantissa_bits)), 2 * power};
    case ScaleRounding::down: break;
    case ScaleRounding::down_by_log2: break;
    case ScaleRounding::up_by_log2: return {power / 2, power};
  }
  return over_power ? Place{power, 2 * power} : Place{power / 2, power};
}

/// An element's scale, exactly.
double scale_at(const Quantized& q, std::size_t row, std::size_t column) {
  const std::size_t at = scale_index(q, row, column);
  if (q.recipe.scale_type == ScaleType::e8m0_code) return decode(e8m0, q.scale_codes[at]);
  if (has_tensor_scale(q.recipe)) return double{decode(e4m3, q.scale_codes[at])} * q.amax / 2688;
  if (q.recipe.scale_type == ScaleType::e4m3_code) return decode(e4m3, q.scale_codes[at]);
  return q.scale_inv[at];
}

/// The largest |x| of what shares an element's scale, for each element.
std::vector<float> amaxes_of(const std::vector<float>& x, const Quantized& q) {
  const Shape shape = shape_of(q.recipe);
  const bool rowwise = q.direction == Direction::rowwise;
  const std::size_t across = shape.across == 0 ? x.size() : shape.across;
  const std::size_t along = shape.along == 0 ? x.size() : shape.along;
  const auto tile = [&](std::size_t i) {
    return i / q.columns / (rowwise ? across : along) * q.columns + i % q.columns / (rowwise ? along : across);
  };
  std::vector<float> most(x.size(), 0);
  for (std::size_t i = 0; i < x.size(); ++i) most[tile(i)] = std::fmax(most[tile(i)], std::fabs(x[i]));
  std::vector<float> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result[i] = most[tile(i)];
  return result;
}

/// What becomes of elements on the way to codes and back.
struct Fate {
  std::size_t rounded = 0, underflowed = 0, saturated = 0;
  std::size_t beyond = 0;     ///< the bound of all of these
  std::size_t misplaced = 0;  ///< amaxes that are not where the rule puts them
};
Fate fate_of(const std::vector<float>& x, const Quantized& q) {
  std::vector<float> back(x.size());
  dequantize(q, back);
  const std::vector<float> amaxes = amaxes_of(x, q);
  const double largest = decode(q.format, static_cast<std::uint32_t>(q.format.max_code()));
  const double smallest = std::ldexp(1.0, q.format.min_exponent() - q.format.mantissa_bits);
  const Place place = place_of(q.recipe, largest);
  // The roundings of the scale, its inverse and the products are at most eight of 2^-24.
  constexpr double slack = 0x1p-21;
  const bool fp4 = has_tensor_scale(q.recipe);
  Fate fate;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double scale = scale_at(q, i / q.columns, i % q.columns);
    if (scale == 0) {  // NVFP4's, of a block so far below the tensor's amax that its scale underflows
      ++fate.underflowed;
      if (back[i] != 0 || amaxes[i] > 0x1p-10 * 6 * q.amax / 2688 * (1 + slack)) ++fate.beyond;
      continue;
    }
    const double wanted = x[i] / scale;
    const double got = back[i] / scale;
    const double size = std::fabs(wanted);
    const int binade = std::max(std::ilogb(wanted), q.format.min_exponent());
    double bound = std::ldexp(0.5, binade - q.format.mantissa_bits);
    if (size > largest) {
      ++fate.saturated;
      bound = std::fabs(size - largest);
    } else if (got == 0 && x[i] != 0) {
      ++fate.underflowed;
      bound = smallest / 2;
    } else {
      ++fate.rounded;
    }
    if (!(std::fabs(got - wanted) <= bound + size * slack)) ++fate.beyond;
    const double amax = amaxes[i] / scale;
    const bool has_floor = double{amaxes[i]} < q.recipe.least_amax || scale <= double{q.recipe.least_scale_inv};
    const bool tiny = fp4 && scale < 0x1.1p-6 * q.amax / 2688;  // a subnormal scale, or rounded from one
    if (!has_floor && !tiny && !(amax >= place.low * (1 - slack) && amax <= place.high * (1 + slack))) ++fate.misplaced;
  }
  return fate;
}

}  // namespace

TEST_CASE("quantize is the plain formula for each element, by every recipe, direction and source") {
  for (const Recipe& recipe : many_recipes()) {
    for (const Sizes& size : sizes_of(recipe)) {
      const std::vector<float> x = values(size.rows * size.columns, size.rows + 31 * size.columns);
      const std::vector<BFloat16> narrow = as_bfloats(x);
      for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
        if (recipe.format.bits() == 4 && (size.rows % 2 != 0 || size.columns % 2 != 0)) continue;
        compare_with_plain(x, size, recipe, quantize({x, size.rows, size.columns}, recipe, direction));
        compare_with_plain(narrow, size, recipe, quantize({narrow, size.rows, size.columns}, recipe, direction));
      }
    }
  }
}

TEST_CASE("halves are quantized as the floats that they are, and doubles by nobody") {
  for (const Recipe& recipe : many_recipes()) {
    for (const Sizes& size : sizes_of(recipe)) {
      std::vector<Half> halves(size.rows * size.columns);
      for (std::size_t i = 0; i < halves.size(); ++i) {
        const auto word = static_cast<std::uint16_t>(random_bits(5, i));
        halves[i].bits = i % 101 == 0 ? word : static_cast<std::uint16_t>(word & 0xBFFFU);  // some are no numbers
      }
      std::vector<float> floats(halves.size());
      std::ranges::transform(halves, floats.begin(), [](Half x) { return decode(binary16, x.bits); });
      QuantizeOptions as_floats;  // of a scale that is rounded to the type of the tensor, the type too
      if (recipe.arithmetic == ScaleArithmetic::input_type) as_floats.input_type = binary16;
      for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
        if (recipe.format.bits() == 4 && (size.rows % 2 != 0 || size.columns % 2 != 0)) continue;
        INFO(describe(recipe) << ", " << size.rows << " x " << size.columns);
        require_same(quantize({halves, size.rows, size.columns}, recipe, direction, {.threads = 2}),
                     quantize({floats, size.rows, size.columns}, recipe, direction, as_floats));
      }
    }
  }
  CHECK_THROWS_WITH(quantize({std::vector<double>(4), 2, 2}, JustInTime{}), ContainsSubstring("not float64"));
}

TEST_CASE(
    "every target, thread count and rounding mode quantizes and dequantizes alike, both directions at once or not") {
  const UnforceTarget after;
  for (const Recipe& recipe : many_recipes()) {
    for (const Sizes& size : sizes_of(recipe)) {
      const std::vector<float> x = values(size.rows * size.columns, 7 * size.rows + size.columns);
      force_target("scalar");
      const Quantized row = quantize({x, size.rows, size.columns}, recipe);
      const Quantized column = quantize({x, size.rows, size.columns}, recipe, Direction::columnwise);
      std::vector<float> back(x.size());
      dequantize(row, back);
      std::vector<float> back_columnwise(x.size());
      dequantize(column, back_columnwise);
      int threads = 1;
      for (const std::string_view target : targets()) {
        INFO(describe(recipe) << ", " << size.rows << " x " << size.columns << ", " << target << ", " << threads);
        force_target(target);
        Quantized rowwise;
        Quantized columnwise;
        std::fesetround(FE_UPWARD);
        quantize_both({x, size.rows, size.columns}, recipe, rowwise, columnwise, {.threads = threads});
        std::vector<float> again(x.size());
        std::vector<float> again_columnwise(x.size());
        dequantize(rowwise, again, threads);
        dequantize(columnwise, again_columnwise, threads);
        std::fesetround(FE_TONEAREST);
        require_same(rowwise, row);
        require_same(columnwise, column);
        require_same(quantize({x, size.rows, size.columns}, recipe, Direction::rowwise, {.threads = threads}), row);
        REQUIRE(words_of(again) == words_of(back));
        REQUIRE(words_of(again_columnwise) == words_of(back_columnwise));
        threads = threads % 3 + 1;
      }
    }
  }
}

TEST_CASE("what comes back is within the format's bound, or saturated, or underflowed, by every recipe") {
  const Sizes size{128, 256};
  const std::vector<float> x = uneven(size.rows, size.columns);
  std::vector<float> turned = turned_columns(x, size.rows, size.columns);
  const CastPolicy ieee = find_profile("ieee").policy;
  for (float& value : turned) value = decode(bfloat16, encode(bfloat16, ieee, value));
  std::vector<Recipe> all = many_recipes();
  for (const NamedRecipe& one : recipes()) all.push_back(one.recipe);  // those with a Hadamard matrix, too
  for (const Recipe& recipe : all) {
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      INFO(describe(recipe) << (direction == Direction::rowwise ? " rowwise" : " columnwise"));
      const bool turns = recipe.transform != Transform::none && direction == Direction::columnwise;
      const Fate fate = fate_of(turns ? turned : x, quantize({x, size.rows, size.columns}, recipe, direction));
      CHECK(fate.beyond == 0);
      CHECK(fate.misplaced == 0);
      CHECK(fate.rounded + fate.underflowed + fate.saturated == x.size());
      CHECK(fate.rounded > x.size() / 8);
      // A scale that reaches beyond the amax saturates nothing.
      const double largest = decode(recipe.format, static_cast<std::uint32_t>(recipe.format.max_code()));
      if (place_of(recipe, largest).high < largest) CHECK(fate.saturated == 0);
    }
  }
}

TEST_CASE("the SQNR and the clipped blocks of MX on the normal grid are what another program measured") {
  struct Measured {
    double sqnr, clipped;  // dB, per cent
  };
  const struct {
    Format format;
    Measured floor, even, ceil, rceil;
  } table[] = {{e4m3, {30.638, 16.97}, {31.189, 11.83}, {31.521, 0}, {31.521, 0}},
               {e5m2, {25.357, 16.97}, {25.543, 7.53}, {25.543, 0}, {25.543, 0}},
               {e2m3, {30.939, 9.44}, {30.987, 4.31}, {28.766, 0}, {30.959, 0}},
               {e3m2, {25.357, 16.97}, {25.543, 7.53}, {25.542, 0}, {25.543, 0}},
               {e2m1, {18.786, 29.63}, {19.028, 12.66}, {16.822, 0}, {18.757, 0}}};
  std::vector<float> x(std::size_t{1} << 20);
  normal_grid(x);
  std::vector<float> amaxes(x.size() / 32, 0);
  for (std::size_t i = 0; i < x.size(); ++i) amaxes[i / 32] = std::max(amaxes[i / 32], std::fabs(x[i]));
  for (const auto& one : table) {
    const auto compare = [&](MxRule rule, const Measured& expected) {
      INFO(format_name(one.format) << ' ' << name_of(rule));
      const Quantized q = quantize({x, 1024, 1024}, MxBlock{.format = one.format, .rule = rule});
      CHECK(std::round(sqnr_of(q, x) * 1000) / 1000 == expected.sqnr);
      const double largest = decode(one.format, static_cast<std::uint32_t>(one.format.max_code()));
      double clipped = 0;
      for (std::size_t i = 0; i < amaxes.size(); ++i) {
        if (amaxes[i] > largest * decode(e8m0, q.scale_codes[i])) ++clipped;
      }
      CHECK(std::round(clipped / static_cast<double>(amaxes.size()) * 10000) / 100 == expected.clipped);
    };
    compare(MxRule::floor, one.floor);
    compare(MxRule::even, one.even);
    compare(MxRule::ceil, one.ceil);
    compare(MxRule::rceil, one.rceil);
  }
  const Quantized current = quantize({x, 1024, 1024}, JustInTime{});
  CHECK(std::round(sqnr_of(current, x) * 1000) / 1000 == 31.553);
  CHECK(std::round(current.amax * 1e6) / 1e6 == 4.900964);
}

TEST_CASE("what MX rules cost by distribution: rounding a scale down loses most where amaxes are close together") {
  // bfloat16 draws; decibels as torchao's rules gave them in a program of its own.
  const struct {
    const char* distribution;
    Format format;
    double floor, rceil, ceil, even;
  } table[] = {{"normal", e4m3, 30.66, 31.48, 31.48, 31.16},    {"normal", e5m2, 25.37, 25.54, 25.54, 25.54},
               {"lognormal", e4m3, 29.31, 31.49, 31.49, 30.38}, {"lognormal", e5m2, 25.03, 25.53, 25.53, 25.53},
               {"uniform", e4m3, 26.59, 32.49, 32.49, 30.96},   {"uniform", e5m2, 24.53, 26.50, 26.50, 26.50}};
  for (const auto& one : table) {
    std::vector<float> x(std::size_t{1} << 20);
    sample(find_distribution(one.distribution), 1, 0, x);
    round_to_bfloat16(x);
    const auto compare = [&](MxRule rule, double expected) {
      INFO(one.distribution << ' ' << format_name(one.format) << ' ' << name_of(rule));
      const MxBlock recipe{.format = one.format, .rule = rule, .nan = NanInAmax::counted};
      const Quantized q = quantize({x, 1024, 1024}, recipe);
      CHECK(std::fabs(sqnr_of(q, x) - expected) < 0.1);  // of other draws: the clipped few weigh most
    };
    compare(MxRule::floor, one.floor);
    compare(MxRule::rceil, one.rceil);
    compare(MxRule::ceil, one.ceil);
    compare(MxRule::even, one.even);
  }
}

TEST_CASE("DeepSeek's, DeepGEMM's and torchao's tiles differ in a code of a thousand, and in most scales") {
  constexpr std::size_t rows = sanitized ? 256 : 4096;
  constexpr std::size_t columns = 1280;
  std::vector<float> x(rows * columns);
  sample(find_distribution("normal"), 7, 0, x);
  round_to_bfloat16(x);
  const auto tiles = [&](BlockRule rule) {
    return quantize({x, rows, columns}, Block{.rule = rule, .force_pow_2_scales = false});
  };
  const Quantized d1 = tiles(BlockRule::deepseek_2024);
  const Quantized d1_floor = tiles(BlockRule::deepseek_2025);
  const Quantized d2_on_cpu = tiles(BlockRule::deepgemm_cpu);
  const Quantized d2 = tiles(BlockRule::deepgemm_cuda);
  const Quantized d3 = tiles(BlockRule::torchao);
  const auto share = [](const auto& a, const auto& b) {
    double count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] ? 1 : 0;
    return 100 * count / static_cast<double>(a.size());
  };
  // Per cent of the codes, of other draws: more than five standard deviations of tiles that differ together.
  const double within = sanitized ? 0.05 : 0.015;
  CHECK(std::fabs(share(d1.codes, d2.codes) - 0.116) < within);
  CHECK(std::fabs(share(d1.codes, d3.codes) - 0.034) < within);
  CHECK(std::fabs(share(d2.codes, d3.codes) - 0.148) < within);
  CHECK(std::fabs(share(d2_on_cpu.codes, d2.codes) - 0.165) < within);
  CHECK(std::fabs(share(d2.scale_inv, d3.scale_inv) - 60) < 3);
  CHECK(d1_floor.codes == d1.codes);  // no tile is as small as the floor
  CHECK(d1_floor.scale_inv == d1.scale_inv);
}

TEST_CASE("NaN, infinity and -0 in MX blocks, by every switch") {
  std::vector<float> x(64, 1.0F);
  x[1] = NAN;
  x[2] = -0.0F;
  x[33] = -std::numeric_limits<float>::infinity();
  const Quantized kept = quantize({x, 1, 64}, MxBlock{});
  CHECK(kept.scale_codes == std::vector<std::uint8_t>{119, 254});
  CHECK(kept.codes[0] == 0x78);
  CHECK(kept.codes[1] == 0x7F);
  CHECK(kept.codes[2] == 0x80);
  CHECK(kept.codes[33] == 0xFE);
  CHECK(kept.codes[34] == 0);  // 2^-127 is far below the format
  const Quantized poisoned = quantize({x, 1, 64}, MxBlock{.nan = NanInAmax::counted, .drop_negative_zero = true});
  CHECK(poisoned.scale_codes == std::vector<std::uint8_t>{255, 254});
  for (std::size_t i = 0; i < 32; ++i) CHECK(poisoned.codes[i] == 0x7F);
  CHECK(quantize({x, 1, 64}, MxBlock{.rule = MxRule::rceil}).scale_codes[1] == 255);
  x[1] = 1;
  CHECK(quantize({x, 1, 64}, MxBlock{.drop_negative_zero = true}).codes[2] == 0);
  x[3] = -0x1p-149F;  // underflows, and keeps its sign
  CHECK(quantize({x, 1, 64}, MxBlock{.drop_negative_zero = true}).codes[3] == 0x80);
}

TEST_CASE("a NaN makes its tile NaN where PyTorch takes the maximum, and is alone where a kernel does") {
  std::vector<float> x(256, 2.0F);
  x[5] = NAN;
  const auto quantized = [&](const char* name) { return quantize({x, 2, 128}, find_recipe(name).recipe); };
  for (const char* name : {"deepgemm_cpu", "deepgemm_cuda", "torchao_blockwise"}) {
    INFO(name);
    const Quantized q = quantized(name);
    CHECK(std::isnan(q.scale_inv[0]));
    CHECK(std::ranges::count(q.codes, 0x7F) == 128);
    CHECK(q.codes[128] == 0x7E);
  }
  for (const char* name : {"te_block_1x128_fp32", "deepseek_v3_2024", "deepseek_v3_2025"}) {
    INFO(name);
    const Quantized q = quantized(name);
    CHECK(q.scale_inv[0] == q.scale_inv[1]);
    CHECK(std::ranges::count(q.codes, 0x7F) == 1);
  }
  // The exponent field of NaN and a fraction, limited to 254: UE8M0 has no NaN in DeepGEMM.
  const Quantized power = quantized("deepgemm_ue8m0");
  CHECK(power.scale_inv[0] == 0x1p127F);
  CHECK(power.codes[0] == 0);
  CHECK(power.codes[5] == 0x7F);
}

TEST_CASE("an amax from before the rounding to the input's type makes another scale than one from after") {
  const std::vector<float> x{1.00390625F, 0.5F};  // in bfloat16, 1
  const QuantizeOptions before{.input_type = bfloat16, .amax_before_rounding = true};
  const QuantizeOptions after{.input_type = bfloat16};
  CHECK(quantize({x, 1, 2}, JustInTime{}, Direction::rowwise, before).amax == 1.00390625F);
  CHECK(quantize({x, 1, 2}, JustInTime{}, Direction::rowwise, after).amax == 1);
  CHECK(quantize({x, 1, 2}, JustInTime{}).amax == 1.00390625F);
  CHECK_THROWS_WITH(quantize({x, 1, 2}, Block{}, Direction::rowwise, before),
                    ContainsSubstring("amax_before_rounding is for one scale of the tensor"));
}

TEST_CASE("NVFP4 rounds stochastically with the word of each code, in the order of the codes") {
  const NvFp4 recipe{.stochastic_rounding = true};
  const std::vector<float> x = values(std::size_t{32} * 48, 5, true);
  std::vector<std::uint8_t> words(x.size());
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint8_t>(random_bits(6, i));
  const RandomSource random{std::span<const std::uint8_t>(words), 8};
  const Quantized nearest = quantize({x, 32, 48}, NvFp4{}, Direction::columnwise);
  const UnforceTarget after;
  for (const std::string_view target : targets()) {
    force_target(target);
    const Quantized q = quantize({x, 32, 48}, recipe, Direction::columnwise, {.random = random, .threads = 2});
    REQUIRE(q.scale_codes == nearest.scale_codes);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / 48;
      const std::size_t column = i % 48;
      const TileScale scale = Plain<float>(x, 32, 48, recipe, Direction::columnwise).scale(row, column);
      const std::size_t code = column * 32 + row;
      REQUIRE(code_at(q, row, column) ==
              encode(e2m1, {.rounding = Rounding::stochastic}, x[i] * scale.factor, RandomBits{words[code], 8}));
    }
  }
  CHECK_THROWS_WITH(quantize({x, 32, 48}, recipe), ContainsSubstring("needs random bits"));
  CHECK_THROWS_WITH(quantize({x, 32, 48}, NvFp4{}, Direction::rowwise, {.random = random}),
                    ContainsSubstring("stochastic_rounding only"));
}

TEST_CASE("the Hadamard option turns columns alone, by Sylvester's matrix with Transformer Engine's signs") {
  std::vector<float> x(std::size_t{32} * 16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<int>(random_bits(8, i) % 4001) - 2000) / 64;  // whose sums are exact
  }
  const std::vector<float> turned = turned_columns(x, 32, 16);
  const NvFp4 recipe{.with_rht = true, .round_rht = false};
  Quantized rowwise;
  Quantized columnwise;
  quantize_both({x, 32, 16}, recipe, rowwise, columnwise);
  require_same(rowwise, quantize({x, 32, 16}, NvFp4{}));
  require_same(columnwise, quantize({turned, 32, 16}, NvFp4{}, Direction::columnwise));
  const NvFp4 rounds{.with_rht = true};
  CHECK(find_recipe("te_nvfp4_rht").recipe == Recipe(rounds));
  require_same(quantize({x, 32, 16}, rounds, Direction::columnwise),
               quantize({turned, 32, 16}, NvFp4{}, Direction::columnwise, {.input_type = bfloat16}));
}

TEST_CASE("a block of subnormals has the smallest scale, under which bfloat16's are codes and float32's mostly not") {
  std::vector<float> x(32, 0x1p-133F);  // bfloat16's smallest
  x[1] = 0x1p-149F;
  x[2] = -0x1p-149F;
  const Quantized q = quantize({x, 1, 32}, find_recipe("torchao_mxfp8_rceil").recipe);
  CHECK(q.scale_codes == std::vector<std::uint8_t>{0});
  CHECK(q.codes[0] == 0x08);
  CHECK(q.codes[1] == 0x00);
  CHECK(q.codes[2] == 0x80);
  CHECK(quantize({as_bfloats(x), 1, 32}, MxBlock{}).codes[0] == 0x08);
}

TEST_CASE("delayed scaling casts with the history's scale and leaves its amax there, both directions at once or not") {
  Delayed recipe;
  recipe.amax_history_len = 3;
  AmaxHistory history = start_history(recipe);
  AmaxHistory plain = history;
  for (const float factor : {2.0F, 0.0F, 0.1F, 8.0F}) {
    std::vector<float> x = values(std::size_t{6} * 10, 2, true);
    for (float& value : x) value *= factor;
    x[3] = NAN;  // which the kernel's maximum drops
    float amax = 0;
    for (const float value : x) amax = std::fmax(amax, std::fabs(value));
    record_amax(recipe, Pass::backward, plain, amax);
    const GivenScale given{e5m2, plain.scale};
    Quantized rowwise;
    Quantized columnwise;
    quantize_both({x, 6, 10}, recipe, Pass::backward, history, rowwise, columnwise);
    CHECK(rowwise.recipe == Recipe(given));
    CHECK(rowwise.codes == quantize({x, 6, 10}, given).codes);
    CHECK(columnwise.codes == quantize({x, 6, 10}, given, Direction::columnwise).codes);
    CHECK(bits(rowwise.scale_inv[0]) == bits(1 / plain.scale));
    CHECK(rowwise.amax == amax);
    CHECK(columnwise.amax == amax);
    CHECK(history.amaxes == plain.amaxes);
    quantize({as_bfloats(x), 6, 10}, recipe, Pass::backward, history, Direction::rowwise, rowwise, {.threads = 2});
    CHECK(rowwise.codes == quantize({as_bfloats(x), 6, 10}, given).codes);
    CHECK(history.amaxes == plain.amaxes);  // which keeps the larger of the two
    update_scale(recipe, Pass::backward, plain);
    update_scale(recipe, Pass::backward, history);
    CHECK(history.scale == plain.scale);
  }
}

TEST_CASE("delayed scaling by versions whose scales run off, and whose maximum counts NaN") {
  const auto cast = [](const DelayedVersion& version, AmaxHistory& history, std::vector<float> x) {
    Delayed recipe;
    recipe.amax_history_len = history.amaxes.size();
    recipe.version = version;
    Quantized q;
    quantize({x, 1, x.size()}, recipe, Pass::forward, history, Direction::rowwise, q);
    update_scale(recipe, Pass::forward, history);
    std::vector<float> back(x.size());
    dequantize(q, back);
    return std::pair(q.codes, back);
  };
  using Bytes = Buffer<std::uint8_t>;
  AmaxHistory history{.amaxes = {0}};
  cast(te_1_6, history, {1e-40F});
  CHECK(history.scale == inf);
  const auto overflowed = cast(te_1_6, history, {1, -1e-30F, 0});
  CHECK(overflowed.first == Bytes{0x7E, 0xFE, 0x7F});
  CHECK(overflowed.second[0] == 0);  // 448 times the inverse, 0
  history = {.amaxes = {0, 0}};
  CHECK(cast(torchao_delayed, history, {inf, 1}).first == Bytes{0x7F, 0x00});  // a scale of 0 of its own
  history = {.amaxes = {0, 0}};
  CHECK(cast(torchao_delayed, history, {2, 1}).first == Bytes{0x7E, 0x76});
  cast(torchao_delayed, history, {2, NAN});
  CHECK(std::isnan(history.scale));
  history = {.amaxes = {0, 0}, .scale = 4};
  cast(ms_amp, history, {2, NAN});  // just in time: the amax is NaN, which keeps the scale and is dropped in the end
  CHECK(history.scale == 4);
  CHECK(history.position == 0);
  history = {.amaxes = {0, 3}, .scale = 4, .position = 2};
  cast(ms_amp, history, {2, NAN});  // delayed: the amax is 2
  CHECK(history.amaxes == std::vector<float>{0, 2});
  CHECK(history.scale == 128);
}

TEST_CASE("what delayed scaling cannot cast leaves the history as it was") {
  const std::vector<float> x(12, 2.0F);
  Delayed recipe;
  recipe.amax_history_len = 2;
  AmaxHistory history = start_history(recipe);
  Quantized q;
  const auto refused = [&](std::size_t rows, const Delayed& with, const QuantizeOptions& options, const char* why) {
    CHECK_THROWS_WITH(quantize({x, rows, 4}, with, Pass::forward, history, Direction::rowwise, q, options),
                      ContainsSubstring(why));
    CHECK(history.amaxes == std::vector<float>{0, 0});
  };
  refused(2, recipe, {}, "x must have 2 x 4 elements, not 12");
  refused(3, recipe, {.threads = 0}, "threads must be from 1 to 1024");
  refused(3, recipe, {.input_type = e4m3}, "input_type must be float32, float16 or bfloat16");
  refused(3, recipe, {.input_type = bfloat16, .amax_before_rounding = true},
          "amax_before_rounding is for one scale of the tensor");
  refused(3, Delayed{}, {}, "the history has 2 amaxes, and the recipe's amax_history_len is 1024");
  Delayed none = recipe;
  none.amax_history_len = 0;
  refused(3, none, {}, "amax_history_len must be from 1 to 1048576, not 0");
  CHECK_THROWS_WITH(quantize_both({x, 3, 4}, recipe, Pass::forward, history, q, q),
                    ContainsSubstring("rowwise and columnwise must not be the same Quantized"));
  CHECK_THROWS_WITH(quantize_both({x, 3, 4}, JustInTime{}, q, q), ContainsSubstring("must not be the same Quantized"));
}

TEST_CASE("codes of large tensors, which go past the caches, are those of their parts") {
  constexpr std::size_t height = 128;  // of a part
  for (const std::size_t columns : {std::size_t{2048}, std::size_t{2080}}) {
    const std::size_t rows = (streaming_bytes / columns / height + 1) * height;
    const std::vector<float> x = values(rows * columns, 77);
    for (const Recipe& recipe : {Recipe(MxBlock{}), Recipe(Block{})}) {
      for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
        CAPTURE(columns, describe(recipe), static_cast<int>(direction));
        const Quantized whole = quantize({x, rows, columns}, recipe, direction, {.threads = 3});
        REQUIRE(whole.codes.size() >= streaming_bytes);
        Mismatches wrong;
        for (std::size_t first = 0; first < rows; first += height) {
          const auto part = std::span(x).subspan(first * columns, height * columns);
          const Quantized own = quantize({part, height, columns}, recipe, direction);
          REQUIRE(own.transposed == whole.transposed);
          for (std::size_t i = 0; i < own.codes.size(); ++i) {
            const std::size_t row = i / own.code_columns();
            const std::size_t column = i % own.code_columns();
            const std::size_t in_whole =
                own.transposed ? row * rows + first + column : (first + row) * columns + column;
            wrong.compare(in_whole, 0, whole.codes[in_whole], own.codes[i]);
          }
        }
        REQUIRE_NO(wrong);
      }
    }
  }
}

TEST_CASE("a tile larger than any tensor is the tensor, or its row") {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  const std::vector<float> x = values(std::size_t{9} * 40, 4, true);
  for (const bool square : {false, true}) {
    const auto quantized = [&](std::size_t columns) {
      const Block recipe{.rule = BlockRule::deepgemm_cuda, .rows = square ? columns : 1, .columns = columns};
      return quantize({x, 9, 40}, recipe);
    };
    const Quantized q = quantized(most);
    require_same(q, quantized(64));
    std::vector<float> back(x.size());
    std::vector<float> expected(x.size());
    dequantize(q, back);
    dequantize(quantized(64), expected);
    CHECK(back == expected);
  }
}

TEST_CASE("a Quantized that does not fit together is refused, not read beyond its end") {
  const std::vector<float> x(std::size_t{64} * 32, 1.0F);
  const Quantized good = quantize({x, 64, 32}, MxBlock{});
  std::vector<float> out(x.size());
  const auto refused = [&](auto change, std::size_t size, const char* why) {
    Quantized q = good;
    change(q);
    CHECK_THROWS_WITH(dequantize(q, std::span(out).first(size)), ContainsSubstring(why));
    CHECK_THROWS_WITH(check_quantized(q), ContainsSubstring(why));
  };
  check_quantized(good);
  refused([](Quantized& q) { std::swap(q.scale_rows, q.scale_columns); }, x.size(),
          "scale_rows and scale_columns must be 64 and 1, not 1 and 64");
  refused([](Quantized& q) { q.format = e2m1; }, x.size(), "format and transposed must be as the recipe");
  refused([](Quantized& q) { q.transposed = true; }, x.size(), "format and transposed must be as the recipe");
  refused([](Quantized& q) { q = {}; }, 0, "must be 1 or more, and make a size, not 0 x 0");
  refused([](Quantized& q) { q = Quantized{}, q.scale_rows = q.scale_columns = 1, q.scale_inv = {1}; }, 0, "not 0 x 0");
  const auto overflowing = [](Quantized& q) {
    q = Quantized{};
    q.rows = q.columns = std::size_t{1} << 32;
    q.scale_rows = q.scale_columns = 1;
    q.scale_inv = {1};
  };
  refused(overflowing, 0, "not 4294967296 x 4294967296");
}

TEST_CASE("what cannot be quantized is refused with the sizes that can") {
  const std::vector<float> x(std::size_t{33} * 40);
  const auto refused = [&](const Recipe& recipe, Direction direction, const std::string& why) {
    CHECK_THROWS_WITH(quantize({x, 33, 40}, recipe, direction), ContainsSubstring(why));
  };
  refused(MxBlock{}, Direction::rowwise,
          "columns must be a multiple of 32, the recipe's block, not 40 (nearest: 32 or 64)");
  refused(MxBlock{}, Direction::columnwise,
          "rows must be a multiple of 32, the recipe's block, not 33 (nearest: 32 or 64)");
  refused(NvFp4{}, Direction::columnwise,
          "rows must be a multiple of 16, the recipe's block, not 33 (nearest: 32 or 48)");
  refused(Block{.rule = BlockRule::torchao}, Direction::rowwise, "not 40 (nearest: 128)");
  refused(JustInTime{.format = e2m1}, Direction::columnwise, "rows must be a multiple of 2");
  refused(GivenScale{.scale = 0}, Direction::rowwise, "scale must be positive and finite, not 0");
  refused(GivenScale{.scale = -1}, Direction::rowwise, "scale must be positive and finite, not -1");
  refused(GivenScale{.scale = NAN}, Direction::rowwise, "scale must be positive and finite, not nan");
  refused(GivenScale{.scale = std::numeric_limits<float>::infinity()}, Direction::rowwise, "not inf");
  refused(JustInTime{.amax_epsilon = -1}, Direction::rowwise, "least_amax (amax_epsilon) must be 0 or more");
  refused(JustInTime{.format = e8m0}, Direction::rowwise, "format must have a sign");
  refused(Block{.rows = 3}, Direction::rowwise,
          "tile_across (rows of a block) must be 0, 1 or as tile_along, 128, not 3");
  CHECK_THROWS_WITH(quantize({x, 33, 41}, JustInTime{}), ContainsSubstring("33 x 41 elements, not 1320"));
  CHECK_THROWS_WITH(quantize({std::span(x).first(0), 0, 5}, JustInTime{}), ContainsSubstring("empty: it is 0 x 5"));
  CHECK_THROWS_WITH(quantize({x, 33, 40}, JustInTime{}, Direction::rowwise, {.threads = 0}),
                    ContainsSubstring("threads must be from 1 to 1024, not 0"));
  Quantized q = quantize({x, 33, 40}, JustInTime{});
  std::vector<float> out(5);
  CHECK_THROWS_WITH(dequantize(q, out), ContainsSubstring("out must have 1320 elements, not 5"));
  q.codes.pop_back();
  out.resize(1320);
  CHECK_THROWS_WITH(dequantize(q, out), ContainsSubstring("codes must have 1320 elements, not 1319"));
}

TEST_CASE("a cast that is interrupted leaves the history as it was, and one that is not leaves its amax there") {
  Delayed recipe;
  recipe.amax_history_len = 2;
  const std::vector<float> x(1 << 18, 2.0F);
  for (int polls = 1; polls <= 8; ++polls) {
    AmaxHistory history = start_history(recipe);
    Quantized rowwise;
    Quantized columnwise;
    int left = polls;
    const auto poll = [&] {
      if (--left == 0) throw std::runtime_error("interrupted");
    };
    const Interruptible scope(poll, std::chrono::steady_clock::duration::zero());
    bool interrupted = false;
    try {
      quantize_both({x, 512, 512}, recipe, Pass::forward, history, rowwise, columnwise, {.threads = 2});
    } catch (const std::runtime_error&) {
      interrupted = true;
    }
    CHECK(history.amaxes == (interrupted ? std::vector<float>{0, 0} : std::vector<float>{2, 0}));
    CHECK((interrupted || left > 0));
  }
}

TEST_CASE("recipes are found by name and explain themselves") {
  CHECK(find_recipe("te_mxfp8").recipe == Recipe(MxBlock{}));
  CHECK_THROWS_WITH(find_recipe("fp7"), ContainsSubstring("unknown recipe 'fp7'; known: te_mxfp8, "));
  for (const NamedRecipe& one : recipes()) {
    CHECK(!one.source.empty());
    CHECK_FALSE(describe(one.recipe).empty());
    CHECK_NOTHROW(check_recipe(one.recipe));
  }
  CHECK(describe(Block{}) ==
        "e4m3, a float32 scale for 1 x 128: scale = largest / amax, at most the largest of the tensor's type, rounded "
        "down to a power of two; 1 where the amax is 0, infinite or NaN");
}

}  // namespace fp8lab::tests
