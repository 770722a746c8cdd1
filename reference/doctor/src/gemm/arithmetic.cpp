// SPDX-License-Identifier: Apache-2.0
#include "gemm/arithmetic.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <tuple>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"

namespace fp8lab::doctor {
namespace {

/// What multiplies, or divides.
struct Factor {
  float value = 1;
  bool divides = false;
};

float times(float x, const Factor& factor) { return factor.divides ? x / factor.value : x * factor.value; }

/// Both scales of an element or a tile, as the defect has them.
struct ScalePair {
  float a, b;
  bool a_divides = false, b_divides = false;

  ScalePair(float scale_a, float scale_b, const GemmHypothesis& h) : a(scale_a), b(scale_b) {
    const GemmDefect defect = h.defect;
    const bool both = defect == GemmDefect::scales_missing || defect == GemmDefect::tensor_scales_missing;
    if (both || defect == GemmDefect::scale_a_missing || defect == GemmDefect::tensor_scale_a_missing) a = 1;
    if (both || defect == GemmDefect::scale_b_missing || defect == GemmDefect::tensor_scale_b_missing) b = 1;
    const bool inverts_a = defect == GemmDefect::scales_inverted || defect == GemmDefect::scale_a_inverted;
    const bool inverts_b = defect == GemmDefect::scales_inverted || defect == GemmDefect::scale_b_inverted;
    a_divides = inverts_a && h.divided;
    b_divides = inverts_b && h.divided;
    if (inverts_a && !h.divided) a = 1 / a;
    if (inverts_b && !h.divided) b = 1 / b;
    const bool twice = defect == GemmDefect::scales_twice;
    if (twice || defect == GemmDefect::scale_a_twice) a *= a;
    if (twice || defect == GemmDefect::scale_b_twice) b *= b;
  }

  [[nodiscard]] Factor first() const { return {a, a_divides}; }
  [[nodiscard]] Factor second() const { return {b, b_divides}; }
  [[nodiscard]] Factor product() const {
    if (a_divides && b_divides) return {a * b, true};
    if (a_divides) return {b / a};
    return {b_divides ? a / b : a * b};
  }
};

/// An element of the tile along K whose scale multiplies products from k on.
std::size_t tile_of(std::size_t k, std::size_t tile_depth, bool is_previous) {
  return is_previous && k >= tile_depth ? k - tile_depth : k;
}

float promoted(const GemmHypothesis& h, float sum, float x, const ScalePair& scales) {
  float left = x;
  Factor right = scales.product();
  if (h.scale_use == ScaleUse::a_first) {
    left = times(x, scales.first());
    right = scales.second();
  } else if (h.scale_use == ScaleUse::b_first) {
    left = times(x, scales.second());
    right = scales.first();
  }
  return h.fused && !right.divides ? std::fma(left, right.value, sum) : sum + times(left, right);
}

/// The sum of numbers in the order of a hypothesis, in float32, rounded to `type` after each addition.
float sum_of(std::vector<float>& parts, PartialOrder order, AddendType type) {
  switch (order) {
    case PartialOrder::ascending: break;
    case PartialOrder::descending: std::ranges::reverse(parts); break;
    case PartialOrder::pairwise:
      while (parts.size() > 1) {
        const std::size_t count = parts.size();
        for (std::size_t i = 0; 2 * i + 1 < count; ++i) parts[i] = rounded_to(type, parts[2 * i] + parts[2 * i + 1]);
        if (count % 2 != 0) parts[count / 2] = parts[count - 1];
        parts.resize((count + 1) / 2);
      }
      break;
  }
  float sum = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) sum = rounded_to(type, sum + parts[i]);
  return sum;
}

/// Whether the defect is one of float32 scales.
bool changes_scales(GemmDefect defect) {
  return defect >= GemmDefect::scale_a_missing && defect <= GemmDefect::tensor_scales_missing;
}

/// The factors of an epilogue, in the order in which they multiply.
struct EpilogueFactors {
  std::array<Factor, 3> values{};
  std::size_t count = 0;
};

/// Scales of rows by their order, then those of both tensors as one number, as gemm() multiplies.
EpilogueFactors factors_as_gemm(const GemmHypothesis& h, const GemmSums& sums, std::size_t entry) {
  const TensorScale& left = sums.a.tensor_scale();
  const TensorScale& right = sums.b.tensor_scale();
  const Factor alpha{left.factor * right.factor * (1 / (left.divisor * right.divisor))};
  const float row_a = sums.a.row_scale(entry);
  const float row_b = sums.b.row_scale(entry);
  if (h.scale_use == ScaleUse::a_first) return {{Factor{row_a}, Factor{row_b}, alpha}, 3};
  return {{Factor{row_a * row_b}, alpha}, 2};
}

EpilogueFactors factors_of(const GemmHypothesis& h, const GemmFacts& facts, const GemmSums& sums, std::size_t entry) {
  if (h.alpha_last) return factors_as_gemm(h, sums, entry);
  const TensorScale& left = sums.a.tensor_scale();
  const TensorScale& right = sums.b.tensor_scale();
  const ScalePair scales(sums.a.row_scale(entry) * (left.factor / left.divisor),
                         sums.b.row_scale(entry) * (right.factor / right.divisor), h);
  switch (h.scale_use) {
    case ScaleUse::none: break;
    case ScaleUse::product_first: {
      Factor alpha = scales.product();
      if ((left.divisor != 1 || right.divisor != 1) && !changes_scales(h.defect)) {
        alpha = {left.factor * right.factor * (1 / (left.divisor * right.divisor))};
      }
      if (h.scale_out_first) alpha.value *= facts.scale_out;
      return {{alpha}, 1};
    }
    case ScaleUse::a_first: return {{scales.first(), scales.second()}, 2};
    case ScaleUse::b_first: return {{scales.second(), scales.first()}, 2};
  }
  return {};
}

float scaled(const EpilogueFactors& factors, float x) {
  for (std::size_t i = 0; i < factors.count; ++i) x = times(x, factors.values[i]);
  return x;
}

/// What the epilogue adds, in its order.
struct Terms {
  std::array<float, 2> values{};
  std::size_t count = 0;
};

Terms terms_of(const GemmHypothesis& h, const GemmFacts& facts, const ElementAddends& addends) {
  const bool none = h.defect == GemmDefect::addends_missing;
  const bool c = facts.c && h.addend_use != AddendUse::accumulator && h.defect != GemmDefect::c_missing && !none;
  const bool bias =
      facts.bias && h.defect != GemmDefect::bias_missing && h.defect != GemmDefect::bias_in_each_range && !none;
  Terms terms;
  if (bias && h.bias_first) terms.values[terms.count++] = rounded_to(h.addend_type, addends.bias);
  if (c) terms.values[terms.count++] = rounded_to(h.addend_type, addends.c);
  if (bias && !h.bias_first) terms.values[terms.count++] = rounded_to(h.addend_type, addends.bias);
  return terms;
}

/// The type that the result has when c and the bias are added after it is rounded.
float rounded_midway(const GemmHypothesis& h, const Format& format, float x) {
  constexpr Format half = binary16;
  const bool is_half =
      h.output == OutputRounding::via_float16 || (h.output != OutputRounding::via_bfloat16 && format == half);
  return rounded_to(is_half ? AddendType::float16 : AddendType::bfloat16, x);
}

float epilogue(const GemmHypothesis& h, const GemmFacts& facts, const GemmSums& sums, std::size_t entry,
               const ElementAddends& addends, float x) {
  EpilogueFactors factors = factors_of(h, facts, sums, entry);
  const Terms terms = terms_of(h, facts, addends);
  const auto added = std::span(terms.values).first(terms.count);
  x = rounded_to(h.sum_type, x);
  switch (h.addend_use) {
    case AddendUse::none:
    case AddendUse::after_scales:
    case AddendUse::accumulator:
      x = h.defect == GemmDefect::bias_in_each_range ? x : scaled(factors, x);
      for (const float term : added) x += term;
      break;
    case AddendUse::fused: {
      const float last = factors.values[--factors.count].value;
      x = std::fma(scaled(factors, x), last, added.front());
      for (const float term : added.subspan(1)) x += term;
      break;
    }
    case AddendUse::before_scales:
      for (const float term : added) x += term;
      x = scaled(factors, x);
      break;
    case AddendUse::after_rounding:
      x = rounded_midway(h, facts.format, scaled(factors, x));
      for (const float term : added) x = rounded_midway(h, facts.format, x + term);
      break;
  }
  if (h.output == OutputRounding::float16_before_scale) x = rounded_to(AddendType::float16, x);
  if (h.output == OutputRounding::bfloat16_before_scale) x = rounded_to(AddendType::bfloat16, x);
  if (facts.scale_out == 1 || h.scale_out_first || h.defect == GemmDefect::scale_out_missing) return x;
  return h.defect == GemmDefect::scale_out_inverted ? x / facts.scale_out : x * facts.scale_out;
}

std::uint64_t rounded(const GemmHypothesis& h, const Format& format, float x) {
  constexpr Format single = binary32;
  if (h.output == OutputRounding::via_float16) x = rounded_to(AddendType::float16, x);
  if (h.output == OutputRounding::via_bfloat16) x = rounded_to(AddendType::bfloat16, x);
  if (format == single) return std::bit_cast<std::uint32_t>(x);
  if (h.policy) return encode(format, *h.policy, x);
  CastPolicy policy = h.saturated ? CastPolicy{} : cuda_nosat_policy;
  if (h.output == OutputRounding::toward_zero) policy.rounding = Rounding::toward_zero;
  if (h.output == OutputRounding::nearest_away) policy.rounding = Rounding::nearest_away;
  return encode(format, policy, x);
}

}  // namespace

float rounded_to(AddendType type, float x) {
  switch (type) {
    case AddendType::as_given: break;
    case AddendType::float16: return decode(binary16, encode(binary16, cuda_nosat_policy, x));
    case AddendType::bfloat16: return decode(bfloat16, encode(bfloat16, cuda_nosat_policy, x));
  }
  return x;
}

ElementAddends addends_of(const GemmHypothesis& h, const GemmAddends& addends, std::size_t row, std::size_t column) {
  ElementAddends result;
  const bool turned = h.defect == GemmDefect::c_transposed;
  if (!addends.c.empty()) result.c = addends.c[turned ? column * addends.rows + row : row * addends.columns + column];
  if (!addends.bias.empty()) result.bias = addends.bias[h.defect == GemmDefect::bias_along_rows ? row : column];
  return result;
}

/// A sum and the partial sum number j, of `length` products: added, promoted under the scales of tiles, or in its
/// place.
static float with_partial(const GemmHypothesis& h, const GemmFacts& facts, const GemmSums& sums, std::size_t entry,
                          std::size_t length, std::size_t j, float sum) {
  const float x = sums.partials[j * sums.a.count() + entry];
  if (facts.tile_depth == 0) return h.promote_k != 0 ? sum + x : x;
  const bool both = h.defect == GemmDefect::scales_of_previous_tile;
  const std::size_t k = j * length;
  const std::size_t tile_a = tile_of(k, facts.tile_depth, both || h.defect == GemmDefect::scale_a_of_previous_tile);
  const std::size_t tile_b = tile_of(k, facts.tile_depth, both || h.defect == GemmDefect::scale_b_of_previous_tile);
  return promoted(h, sum, x, ScalePair(sums.a.tile_scale(entry, tile_a), sums.b.tile_scale(entry, tile_b), h));
}

/// Partial sums of a range, of which `left` are left.
static std::size_t partials_in_range(const GemmHypothesis& h, std::size_t number, std::size_t left) {
  if (number + 1 >= h.ranges.size()) return left;
  const std::size_t count = h.promote_k == 0 ? 1 : (h.ranges[number] + h.promote_k - 1) / h.promote_k;
  return std::min(count, left);
}

/// The sums of ranges in the order of their numbers.
static std::vector<float> in_order(const std::vector<float>& ranges, const std::vector<std::size_t>& order) {
  std::vector<float> turned;
  for (const std::size_t number : order) {
    if (number < ranges.size()) turned.push_back(ranges[number]);
  }
  return turned;
}

float accumulated(const GemmHypothesis& h, const GemmFacts& facts, const GemmSums& sums, std::size_t entry,
                  const ElementAddends& addends) {
  const std::size_t count = sums.partials.size() / sums.a.count();
  if (h.promote_k == 0 && h.split_k == 0 && h.ranges.empty()) return sums.partials[entry];
  const std::size_t length = h.promote_k != 0 ? h.promote_k : h.split_k;
  const bool each = h.defect == GemmDefect::bias_in_each_range;
  std::size_t in_range = h.split_k != 0 ? h.split_k / length : count;
  if (each && h.split_k == 0 && facts.tile_depth == 0) in_range = 1;
  const bool turned = h.split_k == 0 && h.order == PartialOrder::descending;
  const bool starts_from_c = h.promote_k != 0 && h.addend_use == AddendUse::accumulator;
  std::vector<float> ranges;
  for (std::size_t first = 0; first < count; first += in_range) {
    if (!h.ranges.empty()) in_range = partials_in_range(h, ranges.size(), count - first);
    float sum = starts_from_c && first == 0 ? rounded_to(h.addend_type, addends.c) : 0;
    const std::size_t last = std::min(count, first + in_range);
    for (std::size_t i = first; i < last; ++i) {
      sum = with_partial(h, facts, sums, entry, length, turned ? count - 1 - i : i, sum);
    }
    if (each) sum = scaled(factors_of(h, facts, sums, entry), sum) + rounded_to(h.addend_type, addends.bias);
    ranges.push_back(rounded_to(h.partial_type, sum));
  }
  if (!h.range_order.empty()) ranges = in_order(ranges, h.range_order);
  return sum_of(ranges, h.split_k != 0 ? h.order : PartialOrder::ascending, h.total_type);
}

bool accumulates_equally(const GemmHypothesis& x, const GemmHypothesis& y) {
  const auto key = [](const GemmHypothesis& h) {
    const bool start = h.addend_use == AddendUse::accumulator;
    const AddendType type = start || h.defect == GemmDefect::bias_in_each_range ? h.addend_type : AddendType::as_given;
    return std::tuple(h.promote_k, h.split_k, h.order, h.partial_type, h.total_type, h.scale_use, h.divided, h.fused,
                      h.scale_out_first, start, type, h.defect, h.ranges, h.range_order);
  };
  return key(x) == key(y);
}

std::uint64_t gemm_word(const GemmHypothesis& h, const GemmFacts& facts, const GemmSums& sums, std::size_t entry,
                        const ElementAddends& addends, float accumulator) {
  return output_word(h, facts.format, epilogue(h, facts, sums, entry, addends, accumulator));
}

std::uint64_t output_word(const GemmHypothesis& h, const Format& format, float x) {
  return canonical_word(format, rounded(h, format, x));
}

std::uint64_t canonical_word(const Format& format, std::uint64_t word) {
  constexpr Format single = binary32;
  if (format == single) return std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(word))) ? 0x7FFFFFFF : word;
  return std::isnan(decode(format, static_cast<std::uint32_t>(word))) ? format.magnitude_mask() : word;
}

std::vector<float> partial_sums_by(const GemmHypothesis& h, const MmaModel& model, PlainRows& a, PlainRows& b,
                                   std::span<const float> starts) {
  const bool from_c = h.addend_use == AddendUse::accumulator && h.promote_k == 0;
  std::vector<float> first(from_c ? starts.size() : 0);
  std::ranges::transform(starts.first(first.size()), first.begin(),
                         [&](float c) { return rounded_to(h.addend_type, c); });
  return partial_sums(model, a, b,
                      {.length = partial_length(h, a.depth()),
                       .starts = first,
                       .zero_rule = h.zero_rule,
                       .lengths = h.promote_k == 0 ? std::span(h.ranges) : std::span<const std::size_t>()});
}

}  // namespace fp8lab::doctor
