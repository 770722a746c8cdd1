// SPDX-License-Identifier: Apache-2.0
// How far what comes back of quantize is from the values.
#include <cmath>
#include <string>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "plain_quantize.hpp"

namespace fp8lab::tests::quantization {
namespace {

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

/// Numbers whose size changes from one tile of 16 x 16 to the next, so that the scale of another tile would not do.
std::vector<float> uneven(std::size_t rows, std::size_t columns) {
  std::vector<float> x = values(rows * columns, 3, true);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t tile = i / columns / 16 * columns + i % columns / 16;
    x[i] = std::ldexp(x[i], static_cast<int>(random_bits(4, tile) % 17) - 8);
  }
  return x;
}

/// The range in which the rule of a recipe puts the amax of a tile, in units of the tile's scale.
struct Place {
  double low, high;
};
Place place_of(const Recipe& recipe, double largest) {
  if (is_given(recipe)) return {0, inf};
  // The scale of NVFP4 is rounded to E4M3: by a sixteenth at most.
  // 4 over 6 may put the amax at 4.
  const double low = recipe.block_choice == BlockChoice::none ? largest : 4;
  if (recipe.scale_type == ScaleType::e4m3_code) return {low * 16 / 17, largest * 16 / 15};
  const bool over_power = recipe.quotient == Quotient::amax_over_power;
  const double power = over_power ? std::exp2(std::ilogb(largest)) : largest;
  switch (recipe.rounding) {
    case ScaleRounding::none: return {largest, largest};
    case ScaleRounding::up: return {power / 2, power};
    case ScaleRounding::even: {
      const int bits = recipe.even_mantissa_bits == 0 ? recipe.format.mantissa_bits : recipe.even_mantissa_bits;
      return {power * (1 - std::ldexp(0.25, -bits)), 2 * power};
    }
    case ScaleRounding::down: break;
    case ScaleRounding::down_by_log2: break;
    case ScaleRounding::up_by_log2: return {power / 2, power};
    case ScaleRounding::nearest_by_log2: return {power / std::sqrt(2.0), power * std::sqrt(2.0)};
  }
  return over_power ? Place{power, 2 * power} : Place{power / 2, power};
}

/// The amax that the tensor's scale over that of an element is of.
double tensor_amax_at(const Quantized& q, std::size_t row, std::size_t column) {
  if (q.row_amaxes.empty()) return q.amax;
  return q.row_amaxes[q.direction == Direction::rowwise ? row : column];
}

/// An element's scale, exactly.
double scale_at(const Quantized& q, std::size_t row, std::size_t column) {
  const std::size_t at = scale_index(q, row, column);
  if (q.recipe.scale_type == ScaleType::e8m0_code) return decode(e8m0, q.scale_codes[at]);
  if (has_tensor_scale(q.recipe))
    return double{decode(e4m3, q.scale_codes[at])} * tensor_amax_at(q, row, column) /
           (6 * double{q.recipe.tensor_range});
  if (q.recipe.scale_type == ScaleType::e4m3_code) return decode(e4m3, q.scale_codes[at]);
  return q.scale_inv[at];
}

/// For each element, the largest |x| of its tile.
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

/// Counts of what became of elements on the way to codes and back.
struct Fate {
  std::size_t rounded = 0, underflowed = 0, saturated = 0;
  std::size_t beyond = 0;     ///< elements whose error exceeds the bound of their kind
  std::size_t misplaced = 0;  ///< amaxes that are not where the rule puts them
};
Fate fate_of(const std::vector<float>& x, const Quantized& q) {
  std::vector<float> back(x.size());
  dequantize(q, back);
  const std::vector<float> amaxes = amaxes_of(x, q);
  const double largest = decode(q.format, static_cast<std::uint32_t>(q.format.max_code()));
  const double smallest = std::ldexp(1.0, q.format.min_exponent() - q.format.mantissa_bits);
  const Place place = place_of(q.recipe, largest);
  // The roundings of the scale, its inverse and the products are at most eight of 2^-24, but for one or two to
  // bfloat16.
  const bool is_coarse = q.recipe.block_factor == BlockFactor::scale_over_block_bfloat16 ||
                         q.recipe.product == ScaleArithmetic::bfloat16_type;
  const bool is_scale_coarse = q.recipe.factor == FactorRule::of_rounded_scale;
  const double slack = is_scale_coarse ? 0x1.2p-7 : is_coarse ? 0x1.1p-8 : 0x1p-21;
  const double half = q.recipe.cast.rounding == Rounding::toward_zero ? 1 : 0.5;  // of the distance of two values
  const bool fp4 = has_tensor_scale(q.recipe);
  Fate fate;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double scale = scale_at(q, i / q.columns, i % q.columns);
    if (scale == 0) {  // NVFP4's, of a block so far below the tensor's amax that its scale underflows
      ++fate.underflowed;
      const double unit = tensor_amax_at(q, i / q.columns, i % q.columns) / q.recipe.tensor_range;
      if (back[i] != 0 || amaxes[i] > 0x1p-10 * unit * (1 + slack)) ++fate.beyond;
      continue;
    }
    const double wanted = x[i] / scale;
    const double got = back[i] / scale;
    const double size = std::fabs(wanted);
    const int binade = std::max(std::ilogb(wanted), q.format.min_exponent());
    double bound = std::ldexp(half, binade - q.format.mantissa_bits);
    if (size > largest) {
      ++fate.saturated;
      bound = std::fabs(size - largest);
    } else if (got == 0 && x[i] != 0) {
      ++fate.underflowed;
      bound = smallest * half;
    } else {
      ++fate.rounded;
    }
    if (!(std::fabs(got - wanted) <= bound + size * slack)) ++fate.beyond;
    const double amax = amaxes[i] / scale;
    const bool has_floor = double{amaxes[i]} < q.recipe.least_amax || scale <= double{q.recipe.least_scale_inv};
    const double unit = tensor_amax_at(q, i / q.columns, i % q.columns) / (6 * double{q.recipe.tensor_range});
    const bool replaced =
        q.recipe.zero_amax == SpecialScale::type_epsilon && std::fabs(scale - unit / 8) <= unit * slack;
    const bool tiny = replaced || (fp4 && scale < 0x1.1p-6 * unit);  // a subnormal scale, or rounded from one
    if (!has_floor && !tiny && !(amax >= place.low * (1 - slack) && amax <= place.high * (1 + slack))) ++fate.misplaced;
  }
  return fate;
}

}  // namespace

TEST_CASE("what comes back is within the format's bound, or saturated, or underflowed, by every recipe") {
  const Sizes size{128, 256};
  const std::vector<float> x = uneven(size.rows, size.columns);
  std::vector<float> turned = turned_columns(x, size.rows, size.columns);
  const CastPolicy ieee = find_profile("ieee").policy;
  for (float& value : turned) value = decode(bfloat16, encode(bfloat16, ieee, value));
  std::vector<Recipe> all = many_recipes();
  for (const NamedRecipe& one : recipes()) all.push_back(one.recipe);  // those with a Hadamard matrix, too
  std::size_t number = 0;
  for (const Recipe& recipe : all) {
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      if (number++ % 3 != 0 && !exhaustive()) continue;
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

}  // namespace fp8lab::tests::quantization
