// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/quantize.hpp"

#include <cfenv>
#include <cmath>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/distributions.hpp"
#include "fp8lab/reference/errors.hpp"
#include "fp8lab/reference/tile_scale.hpp"
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
Shape shape_of(const Recipe& recipe) {
  if (std::holds_alternative<GivenScale>(recipe)) return {0, 0};
  if (const auto* one = std::get_if<JustInTime>(&recipe)) return {one->axis == Axis::row ? 1U : 0U, 0};
  if (const auto* one = std::get_if<MxBlock>(&recipe)) return {one->enable_2d_quantization ? 32U : 1U, 32};
  if (const auto* one = std::get_if<Block>(&recipe)) return {one->rows, one->columns};
  return {std::get<NvFp4>(recipe).with_2d_quantization ? 16U : 1U, 16};
}

NanInAmax nan_of(const Recipe& recipe) {
  if (const auto* one = std::get_if<MxBlock>(&recipe)) return one->nan;
  if (const auto* one = std::get_if<NvFp4>(&recipe)) return one->nan;
  const auto* block = std::get_if<Block>(&recipe);
  const auto* current = std::get_if<JustInTime>(&recipe);
  const bool torchao = (block != nullptr && block->rule == BlockRule::torchao) ||
                       (current != nullptr && current->rule == JustInTimeRule::torchao);
  return torchao ? NanInAmax::counted : NanInAmax::dropped;
}

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
    const auto* block = std::get_if<Block>(&recipe_);
    const auto* mx = std::get_if<MxBlock>(&recipe_);
    const bool divides =
        block != nullptr && (block->rule == BlockRule::deepseek_2024 || block->rule == BlockRule::deepseek_2025);
    float scaled = divides ? x / factor : x * factor;
    if (mx != nullptr && mx->drop_negative_zero) scaled = std::fma(x, factor, 0.0F);
    if (std::isnan(scaled)) scaled = std::isnan(x) ? x : std::bit_cast<float>(0x7FC00000U);
    const bool torch =
        block != nullptr && (block->rule == BlockRule::deepgemm_cpu || block->rule == BlockRule::deepgemm_cuda);
    const bool clamps = nan_of(recipe_) == NanInAmax::counted && mx == nullptr && block_or_current();
    const char* profile = torch ? "torch_2_13" : clamps ? "clamp_then_cast" : "cuda_satfinite";
    return encode(format_of(recipe_), find_profile(profile).policy, scaled);
  }

 private:
  [[nodiscard]] bool block_or_current() const {
    return std::holds_alternative<Block>(recipe_) || std::holds_alternative<JustInTime>(recipe_);
  }
  [[nodiscard]] float amax(std::size_t top, std::size_t bottom, std::size_t left, std::size_t right) const {
    float most = 0;
    for (std::size_t r = top; r < bottom; ++r) {
      for (std::size_t c = left; c < right; ++c) {
        const float x = std::fabs(value_of(x_[r * columns_ + c]));
        if (std::isnan(x)) {
          if (nan_of(recipe_) == NanInAmax::counted) return x;
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
  const bool block = std::holds_alternative<Block>(q.recipe);
  if (q.scale_rows * q.scale_columns == 1) return 0;
  const bool rowwise = q.direction == Direction::rowwise;
  const std::size_t across = (rowwise ? row : column) / (block ? shape.across : 1);
  const std::size_t along = shape.along == 0 ? 0 : (rowwise ? column : row) / shape.along;
  const bool stands = rowwise || q.transposed;  // rows of scales are rows of K
  return stands ? across * q.scale_columns + along : along * q.scale_columns + across;
}

struct Sizes {
  std::size_t rows, columns;
};
/// Odd sizes, where the recipe allows them; the last is longer than a thread's piece of a row.
std::vector<Sizes> all_sizes_of(const Recipe& recipe) {
  if (std::holds_alternative<MxBlock>(recipe)) return {{32, 32}, {32, 288}, {96, 64}, {64, 4128}};
  if (std::holds_alternative<NvFp4>(recipe)) return {{16, 16}, {48, 80}, {16, 4112}};
  const auto* block = std::get_if<Block>(&recipe);
  const bool whole = block != nullptr && block->rule != BlockRule::te && block->rule != BlockRule::deepgemm_cpu &&
                     block->rule != BlockRule::deepgemm_cuda;
  if (whole) return {{128, 128}, {256, 384}};
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
    const auto* nvfp4 = std::get_if<NvFp4>(&one.recipe);
    if (nvfp4 == nullptr || !nvfp4->with_rht) all.push_back(one.recipe);
  }
  all.emplace_back(GivenScale{.format = e5m2, .scale = 0.3F});
  all.emplace_back(JustInTime{.format = e3m2, .axis = Axis::row, .amax_epsilon = 1});
  all.emplace_back(MxBlock{.drop_negative_zero = true, .edges = E8m0Edges::te_before_2_13});
  all.emplace_back(MxBlock{.format = e2m1, .enable_2d_quantization = true, .nan = NanInAmax::counted});
  all.emplace_back(MxBlock{.format = e5m2, .edges = E8m0Edges::te_before_2_19});
  all.emplace_back(MxBlock{.rule = MxRule::even, .edges = E8m0Edges::torchao_0_18});
  all.emplace_back(Block{.format = e5m2, .rule = BlockRule::deepgemm_cpu, .rows = 32, .columns = 32});
  all.emplace_back(Block{.rule = BlockRule::deepseek_2025});
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
      mismatches.compare(i, bits(value_of(x[i])), bits(q.scale_inv[at]), bits(expected.scale_inv), "scale_inv");
    }
  }
  INFO(describe(recipe) << ", " << size.rows << " x " << size.columns
                        << (q.direction == Direction::rowwise ? ", rowwise" : ", columnwise"));
  REQUIRE_NO(mismatches);
}

/// Bits of floats, with all NaNs the same.
std::vector<std::uint32_t> words_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> words;
  for (const float value : x) words.push_back(std::isnan(value) ? 0x7FC00000U : bits(value));
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

}  // namespace

TEST_CASE("quantize is the plain formula for each element, by every recipe, direction and source") {
  for (const Recipe& recipe : many_recipes()) {
    for (const Sizes& size : sizes_of(recipe)) {
      const std::vector<float> x = values(size.rows * size.columns, size.rows + 31 * size.columns);
      const std::vector<BFloat16> narrow = as_bfloats(x);
      for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
        if (format_of(recipe).bits() == 4 && (size.rows % 2 != 0 || size.columns % 2 != 0)) continue;
        compare_with_plain(x, size, recipe, quantize(std::span(x), size.rows, size.columns, recipe, direction));
        compare_with_plain(narrow, size, recipe,
                           quantize(std::span(narrow), size.rows, size.columns, recipe, direction));
      }
    }
  }
}

TEST_CASE(
    "every target, thread count and rounding mode quantizes and dequantizes alike, both directions at once or not") {
  const UnforceTarget after;
  for (const Recipe& recipe : many_recipes()) {
    for (const Sizes& size : sizes_of(recipe)) {
      const std::vector<float> x = values(size.rows * size.columns, 7 * size.rows + size.columns);
      force_target("scalar");
      const Quantized row = quantize(std::span(x), size.rows, size.columns, recipe);
      const Quantized column = quantize(std::span(x), size.rows, size.columns, recipe, Direction::columnwise);
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
        quantize_both(std::span(x), size.rows, size.columns, recipe, rowwise, columnwise, {.threads = threads});
        std::vector<float> again(x.size());
        std::vector<float> again_columnwise(x.size());
        dequantize(rowwise, again, threads);
        dequantize(columnwise, again_columnwise, threads);
        std::fesetround(FE_TONEAREST);
        require_same(rowwise, row);
        require_same(columnwise, column);
        require_same(quantize(std::span(x), size.rows, size.columns, recipe, Direction::rowwise, {.threads = threads}),
                     row);
        REQUIRE(words_of(again) == words_of(back));
        REQUIRE(words_of(again_columnwise) == words_of(back_columnwise));
        threads = threads % 3 + 1;
      }
    }
  }
}

TEST_CASE("what comes back is within the format's bound, or saturated, or underflowed, by every recipe") {
  for (const Recipe& recipe : many_recipes()) {
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      const Sizes size{128, 256};
      const std::vector<float> x = values(size.rows * size.columns, 3, true);
      const Quantized q = quantize(std::span(x), size.rows, size.columns, recipe, direction);
      std::vector<float> back(x.size());
      dequantize(q, back);
      const Format format = q.format;
      const double largest = decode(format, static_cast<std::uint32_t>(format.max_code()));
      std::size_t beyond = 0;
      std::size_t saturated = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t at = scale_index(q, i / size.columns, i % size.columns);
        double scale = q.scale_codes.empty() ? q.scale_inv[at] : 0;
        if (std::holds_alternative<MxBlock>(recipe)) scale = decode(e8m0, q.scale_codes[at]);
        if (std::holds_alternative<NvFp4>(recipe)) scale = double{decode(e4m3, q.scale_codes[at])} * q.amax / 2688;
        const double wanted = std::fabs(x[i]) / scale;
        const double got = std::fabs(back[i]) / scale;
        // A binade's spacing, and the roundings of the scale, its inverse and the products, at most eight of 2^-24.
        const int binade = std::max(std::ilogb(wanted), format.min_exponent());
        const double bound = std::ldexp(0.5, binade - format.mantissa_bits) + wanted * 0x1p-21;
        if (wanted > largest) {
          ++saturated;
          if (std::fabs(got - largest) > largest * 0x1p-21) ++beyond;
        } else if (!(std::fabs(got - wanted) <= bound)) {
          ++beyond;
        }
      }
      INFO(describe(recipe) << (direction == Direction::rowwise ? " rowwise" : " columnwise"));
      CHECK(beyond == 0);
      // None but the rules that round the scale down, and GivenScale, saturate much.
      const auto* mx = std::get_if<MxBlock>(&recipe);
      const bool may = std::holds_alternative<GivenScale>(recipe) || std::holds_alternative<NvFp4>(recipe) ||
                       (mx != nullptr && (mx->rule == MxRule::floor || mx->rule == MxRule::even));
      if (!may) CHECK(saturated <= x.size() / 32);
    }
  }
}

TEST_CASE("the SQNR of MX blocks on the normal grid is what another program measured") {
  const struct {
    Format format;
    double floor, even, ceil, rceil;
  } table[] = {{e4m3, 30.638, 31.189, 31.521, 31.521},
               {e5m2, 25.357, 25.543, 25.543, 25.543},
               {e2m3, 30.939, 30.987, 28.766, 30.959},
               {e3m2, 25.357, 25.543, 25.542, 25.543},
               {e2m1, 18.786, 19.028, 16.822, 18.757}};
  std::vector<float> x(std::size_t{1} << 20);
  normal_grid(x);
  std::vector<float> back(x.size());
  const auto sqnr = [&](const Recipe& recipe) {
    dequantize(quantize(std::span<const float>(x), 1024, 1024, recipe), back);
    ErrorTotals totals;
    totals.add(back, x);
    return std::round(totals.sqnr_db() * 1000) / 1000;
  };
  for (const auto& one : table) {
    INFO(format_name(one.format));
    CHECK(sqnr(MxBlock{.format = one.format, .rule = MxRule::floor}) == one.floor);
    CHECK(sqnr(MxBlock{.format = one.format, .rule = MxRule::even}) == one.even);
    CHECK(sqnr(MxBlock{.format = one.format, .rule = MxRule::ceil}) == one.ceil);
    CHECK(sqnr(MxBlock{.format = one.format, .rule = MxRule::rceil}) == one.rceil);
  }
  CHECK(sqnr(JustInTime{}) == 31.553);
}

TEST_CASE("NaN, infinity and -0 in MX blocks, by every switch") {
  std::vector<float> x(64, 1.0F);
  x[1] = NAN;
  x[2] = -0.0F;
  x[33] = -std::numeric_limits<float>::infinity();
  const Quantized kept = quantize(std::span<const float>(x), 1, 64, MxBlock{});
  CHECK(kept.scale_codes == std::vector<std::uint8_t>{119, 254});
  CHECK(kept.codes[0] == 0x78);
  CHECK(kept.codes[1] == 0x7F);
  CHECK(kept.codes[2] == 0x80);
  CHECK(kept.codes[33] == 0xFE);
  CHECK(kept.codes[34] == 0);  // 2^-127 is far below the format
  const Quantized poisoned =
      quantize(std::span<const float>(x), 1, 64, MxBlock{.nan = NanInAmax::counted, .drop_negative_zero = true});
  CHECK(poisoned.scale_codes == std::vector<std::uint8_t>{255, 254});
  for (std::size_t i = 0; i < 32; ++i) CHECK(poisoned.codes[i] == 0x7F);
  CHECK(quantize(std::span<const float>(x), 1, 64, MxBlock{.rule = MxRule::rceil}).scale_codes[1] == 255);
  x[1] = 1;
  CHECK(quantize(std::span<const float>(x), 1, 64, MxBlock{.drop_negative_zero = true}).codes[2] == 0);
  x[3] = -0x1p-149F;  // underflows, and keeps its sign
  CHECK(quantize(std::span<const float>(x), 1, 64, MxBlock{.drop_negative_zero = true}).codes[3] == 0x80);
}

TEST_CASE("an amax from before the rounding to the input's type makes another scale than one from after") {
  const std::vector<float> x{1.00390625F, 0.5F};  // in bfloat16, 1
  const QuantizeOptions before{.input_type = bfloat16, .amax_before_rounding = true};
  const QuantizeOptions after{.input_type = bfloat16};
  CHECK(quantize(std::span<const float>(x), 1, 2, JustInTime{}, Direction::rowwise, before).amax == 1.00390625F);
  CHECK(quantize(std::span<const float>(x), 1, 2, JustInTime{}, Direction::rowwise, after).amax == 1);
  CHECK(quantize(std::span<const float>(x), 1, 2, JustInTime{}).amax == 1.00390625F);
  CHECK_THROWS_WITH(quantize(std::span<const float>(x), 1, 2, Block{}, Direction::rowwise, before),
                    ContainsSubstring("amax_before_rounding is for JustInTime"));
}

TEST_CASE("NVFP4 rounds stochastically with the word of each code, in the order of the codes") {
  const NvFp4 recipe{.stochastic_rounding = true};
  const std::vector<float> x = values(std::size_t{32} * 48, 5, true);
  std::vector<std::uint8_t> words(x.size());
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint8_t>(random_bits(6, i));
  const RandomSource random{std::span<const std::uint8_t>(words), 8};
  const Quantized nearest = quantize(std::span(x), 32, 48, NvFp4{}, Direction::columnwise);
  const UnforceTarget after;
  for (const std::string_view target : targets()) {
    force_target(target);
    const Quantized q = quantize(std::span(x), 32, 48, recipe, Direction::columnwise, {.random = random, .threads = 2});
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
  CHECK_THROWS_WITH(quantize(std::span(x), 32, 48, recipe), ContainsSubstring("needs random bits"));
  CHECK_THROWS_WITH(quantize(std::span(x), 32, 48, NvFp4{}, Direction::rowwise, {.random = random}),
                    ContainsSubstring("stochastic_rounding only"));
}

TEST_CASE("the Hadamard option turns columns alone, by Sylvester's matrix with Transformer Engine's signs") {
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
  std::vector<float> x(std::size_t{32} * 16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<int>(random_bits(8, i) % 4001) - 2000) / 64;  // whose sums are exact
  }
  std::vector<float> turned(x.size());
  for (std::size_t r = 0; r < 32; ++r) {
    for (std::size_t c = 0; c < 16; ++c) {
      float sum = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        const float sign = signs[i] == '+' ? 1.0F : -1.0F;
        sum += sign * static_cast<float>(matrix[i][r % 16]) * x[(r / 16 * 16 + i) * 16 + c];
      }
      turned[r * 16 + c] = sum / 4;
    }
  }
  const NvFp4 recipe{.with_rht = true};
  Quantized rowwise;
  Quantized columnwise;
  quantize_both(std::span<const float>(x), 32, 16, recipe, rowwise, columnwise);
  require_same(rowwise, quantize(std::span<const float>(x), 32, 16, NvFp4{}));
  require_same(columnwise, quantize(std::span<const float>(turned), 32, 16, NvFp4{}, Direction::columnwise));
  const NvFp4 rounds{.with_rht = true, .round_rht = true};
  require_same(
      quantize(std::span<const float>(x), 32, 16, rounds, Direction::columnwise),
      quantize(std::span<const float>(turned), 32, 16, NvFp4{}, Direction::columnwise, {.input_type = bfloat16}));
}

TEST_CASE("what cannot be quantized is refused with the sizes that can") {
  const std::vector<float> x(std::size_t{33} * 40);
  const auto refused = [&](const Recipe& recipe, Direction direction, const std::string& why) {
    CHECK_THROWS_WITH(quantize(std::span(x), 33, 40, recipe, direction), ContainsSubstring(why));
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
  refused(JustInTime{.amax_epsilon = -1}, Direction::rowwise, "amax_epsilon must be 0 or more");
  refused(JustInTime{.format = e8m0}, Direction::rowwise, "format must have a sign");
  refused(Block{.rows = 3}, Direction::rowwise, "rows of a block must be 1 or as its columns, 128, not 3");
  CHECK_THROWS_WITH(quantize(std::span(x), 33, 41, JustInTime{}), ContainsSubstring("33 x 41 elements, not 1320"));
  CHECK_THROWS_WITH(quantize(std::span(x).first(0), 0, 5, JustInTime{}), ContainsSubstring("empty: it is 0 x 5"));
  CHECK_THROWS_WITH(quantize(std::span(x), 33, 40, JustInTime{}, Direction::rowwise, {.threads = 0}),
                    ContainsSubstring("threads must be 1 or more, not 0"));
  Quantized q = quantize(std::span(x), 33, 40, JustInTime{});
  std::vector<float> out(5);
  CHECK_THROWS_WITH(dequantize(q, out), ContainsSubstring("out must have 1320 elements, not 5"));
  q.codes.pop_back();
  out.resize(1320);
  CHECK_THROWS_WITH(dequantize(q, out), ContainsSubstring("codes must have 1320 elements, not 1319"));
}

TEST_CASE("recipes are found by name and explain themselves") {
  CHECK(find_recipe("te_mxfp8").recipe == Recipe{MxBlock{}});
  CHECK_THROWS_WITH(find_recipe("fp7"), ContainsSubstring("unknown recipe 'fp7'; known: given_scale, "));
  for (const NamedRecipe& one : recipes()) {
    CHECK(!one.source.empty());
    CHECK_FALSE(describe(one.recipe).empty());
    CHECK_NOTHROW(check_recipe(one.recipe));
  }
  CHECK(describe(Block{}) ==
        "e4m3, a float32 scale for 1 x 128: scale = largest / amax, or 1 where the amax is 0 or "
        "infinite, a power of two");
}

}  // namespace fp8lab::tests
