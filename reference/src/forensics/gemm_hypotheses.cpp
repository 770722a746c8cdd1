// SPDX-License-Identifier: Apache-2.0
#include "forensics/gemm_hypotheses.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"

namespace fp8lab::forensics {
namespace {

/// Ways to add partial sums.
struct Composition {
  std::size_t promote_k = 0, split_k = 0;
  PartialOrder order = PartialOrder::ascending;
};

void add_splits(std::vector<Composition>& all, std::size_t depth, std::size_t unit, std::size_t promote_k) {
  for (const std::size_t count : {2, 3, 4, 5, 6, 7, 8, 12, 16, 32}) {
    const std::size_t length = (depth + count * unit - 1) / (count * unit) * unit;
    const std::size_t ranges = (depth + length - 1) / length;
    if (ranges != count) continue;
    // Without promotion, ranges that are added one by one are a promotion every `length`.
    if (promote_k != 0) all.push_back({promote_k, length, PartialOrder::ascending});
    if (promote_k != 0 && ranges > 2) all.push_back({promote_k, length, PartialOrder::descending});
    if (ranges > 3) all.push_back({promote_k, length, PartialOrder::pairwise});
  }
}

std::vector<Composition> compositions(const MmaModel& model, const GemmFacts& facts, std::size_t depth) {
  const auto unit = static_cast<std::size_t>(model.k());
  std::vector<Composition> all;
  if (facts.tile_depth != 0) {
    all.push_back({facts.tile_depth});
    if (depth > facts.tile_depth * 2) all.push_back({facts.tile_depth, 0, PartialOrder::descending});
    if (depth > facts.tile_depth) add_splits(all, depth, facts.tile_depth, facts.tile_depth);
    return all;
  }
  all.emplace_back();
  if (unit == 0) return all;
  std::vector<std::size_t> lengths;
  for (std::size_t length = unit; length < depth; length *= 2) lengths.push_back(length);
  for (const std::size_t count : {2, 3, 4, 5, 6, 7, 8, 12, 16, 32}) {
    const std::size_t length = (depth + count * unit - 1) / (count * unit) * unit;
    if (length < depth && std::ranges::find(lengths, length) == lengths.end()) lengths.push_back(length);
  }
  for (const std::size_t length : lengths) {
    all.push_back({length});
    if (depth > 2 * length) all.push_back({length, 0, PartialOrder::descending});
  }
  add_splits(all, depth, unit, 0);
  for (const std::size_t promote_k : {64, 128, 256, 512}) {
    if (promote_k % unit == 0 && promote_k < depth) add_splits(all, depth, promote_k, promote_k);
  }
  // A range that is one promotion long is the promotion itself.
  std::erase_if(all, [](const Composition& one) { return one.split_k != 0 && one.split_k == one.promote_k; });
  return all;
}

std::vector<ScaleUse> scale_uses(const GemmFacts& facts) {
  if (!facts.scales_a && !facts.scales_b) return {ScaleUse::none};
  if (!facts.scales_a || !facts.scales_b) return {ScaleUse::product_first};
  return {ScaleUse::product_first, ScaleUse::a_first, ScaleUse::b_first};
}

std::vector<OutputRounding> roundings(const Format& format) {
  std::vector<OutputRounding> all{OutputRounding::nearest};
  constexpr Format single = binary32;
  if (format != single) {
    all.push_back(OutputRounding::toward_zero);
    all.push_back(OutputRounding::nearest_away);
  }
  constexpr Format half = binary16;
  constexpr Format brain = bfloat16;
  if (format != half) all.push_back(OutputRounding::via_float16);
  if (format != brain) all.push_back(OutputRounding::via_bfloat16);
  return all;
}

bool goes_with(GemmDefect defect, const GemmFacts& facts) {
  switch (defect) {
    case GemmDefect::none:
    case GemmDefect::a_transposed:
    case GemmDefect::b_transposed:
    case GemmDefect::out_transposed:
    case GemmDefect::tail_dropped: return true;
    case GemmDefect::scale_a_missing: return facts.scales_a || facts.block_scales;
    case GemmDefect::scale_b_missing: return facts.scales_b || facts.block_scales;
    case GemmDefect::scales_missing: return (facts.scales_a && facts.scales_b) || facts.block_scales;
    case GemmDefect::scale_a_twice: return facts.scales_a;
    case GemmDefect::scale_b_twice: return facts.scales_b;
    case GemmDefect::scales_twice: return facts.scales_a && facts.scales_b;
    case GemmDefect::scales_inverted: break;
  }
  return facts.scales_a || facts.scales_b;
}

/// Both scales of an element or a tile, as the defect has them.
struct ScalePair {
  float a, b;

  ScalePair(float scale_a, float scale_b, GemmDefect defect) : a(scale_a), b(scale_b) {
    const bool both = defect == GemmDefect::scales_missing;
    if (both || defect == GemmDefect::scale_a_missing) a = 1;
    if (both || defect == GemmDefect::scale_b_missing) b = 1;
    if (defect == GemmDefect::scales_inverted) {
      a = 1 / a;
      b = 1 / b;
    }
    const bool twice = defect == GemmDefect::scales_twice;
    if (twice || defect == GemmDefect::scale_a_twice) a *= a;
    if (twice || defect == GemmDefect::scale_b_twice) b *= b;
  }
};

float promoted(const GemmHypothesis& h, float sum, float x, const ScalePair& scales) {
  float left = x;
  float right = scales.a * scales.b;
  if (h.scale_use == ScaleUse::a_first) {
    left = x * scales.a;
    right = scales.b;
  } else if (h.scale_use == ScaleUse::b_first) {
    left = x * scales.b;
    right = scales.a;
  }
  return h.fused ? std::fma(left, right, sum) : sum + left * right;
}

/// The sum of numbers in the order of a hypothesis, in float32.
float sum_of(std::vector<float>& parts, PartialOrder order) {
  switch (order) {
    case PartialOrder::ascending: break;
    case PartialOrder::descending: std::ranges::reverse(parts); break;
    case PartialOrder::pairwise:
      while (parts.size() > 1) {
        const std::size_t count = parts.size();
        for (std::size_t i = 0; 2 * i + 1 < count; ++i) parts[i] = parts[2 * i] + parts[2 * i + 1];
        if (count % 2 != 0) parts[count / 2] = parts[count - 1];
        parts.resize((count + 1) / 2);
      }
      break;
  }
  float sum = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) sum += parts[i];
  return sum;
}

/// The accumulator before the epilogue.
float accumulated(const GemmHypothesis& h, const GemmFacts& facts, std::span<const float> partials, const PlainRows& a,
                  const PlainRows& b, std::size_t entry) {
  const std::size_t count = partials.size() / a.count();
  if (h.promote_k == 0 && h.split_k == 0) return partials[entry];
  const std::size_t length = h.promote_k != 0 ? h.promote_k : h.split_k;
  const std::size_t in_range = h.split_k != 0 ? h.split_k / length : count;
  const bool turned = h.split_k == 0 && h.order == PartialOrder::descending;
  std::vector<float> ranges;
  for (std::size_t first = 0; first < count; first += in_range) {
    float sum = 0;
    const std::size_t last = std::min(count, first + in_range);
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t j = turned ? count - 1 - i : i;
      const float x = partials[j * a.count() + entry];
      if (facts.tile_depth != 0) {
        const std::size_t k = j * length;
        sum = promoted(h, sum, x, ScalePair(a.tile_scale(entry, k), b.tile_scale(entry, k), h.defect));
      } else {
        sum = h.promote_k != 0 ? sum + x : x;
      }
    }
    ranges.push_back(sum);
  }
  return sum_of(ranges, h.split_k != 0 ? h.order : PartialOrder::ascending);
}

float epilogue(const GemmHypothesis& h, const PlainRows& a, const PlainRows& b, std::size_t entry, float x) {
  const TensorScale& left = a.tensor_scale();
  const TensorScale& right = b.tensor_scale();
  const ScalePair scales(a.row_scale(entry) * (left.factor / left.divisor),
                         b.row_scale(entry) * (right.factor / right.divisor), h.defect);
  switch (h.scale_use) {
    case ScaleUse::none: break;
    case ScaleUse::product_first:
      if (left.divisor != 1 || right.divisor != 1) {
        return x * (left.factor * right.factor * (1 / (left.divisor * right.divisor)));
      }
      return x * (scales.a * scales.b);
    case ScaleUse::a_first: return x * scales.a * scales.b;
    case ScaleUse::b_first: return x * scales.b * scales.a;
  }
  return x;
}

std::uint64_t rounded(const Format& format, OutputRounding rounding, float x) {
  constexpr Format single = binary32;
  constexpr CastPolicy ieee = cuda_nosat_policy;
  if (rounding == OutputRounding::via_float16) x = decode(binary16, encode(binary16, ieee, x));
  if (rounding == OutputRounding::via_bfloat16) x = decode(bfloat16, encode(bfloat16, ieee, x));
  if (format == single) return std::bit_cast<std::uint32_t>(x);
  CastPolicy policy = format.bits() <= 8 ? CastPolicy{} : ieee;
  if (rounding == OutputRounding::toward_zero) policy.rounding = Rounding::toward_zero;
  if (rounding == OutputRounding::nearest_away) policy.rounding = Rounding::nearest_away;
  return encode(format, policy, x);
}

}  // namespace

std::uint64_t canonical_word(const Format& format, std::uint64_t word) {
  constexpr Format single = binary32;
  if (format == single) return std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(word))) ? 0x7FFFFFFF : word;
  return std::isnan(decode(format, static_cast<std::uint32_t>(word))) ? format.magnitude_mask() : word;
}

std::vector<GemmHypothesis> gemm_hypotheses(const MmaModel& model, const GemmFacts& facts, GemmDefect defect,
                                            std::size_t depth) {
  std::vector<GemmHypothesis> all;
  if (!goes_with(defect, facts)) return all;
  for (const Composition& composition : compositions(model, facts, depth)) {
    for (const ScaleUse use : scale_uses(facts)) {
      for (const bool fused : {true, false}) {
        if (!fused && (facts.tile_depth == 0 || use == ScaleUse::none)) continue;
        for (const OutputRounding output : roundings(facts.format)) {
          GemmHypothesis h;
          h.model = model.name;
          h.promote_k = composition.promote_k;
          h.split_k = composition.split_k;
          h.order = composition.order;
          h.scale_use = use;
          h.fused = fused;
          h.output = output;
          h.defect = defect;
          h.depth = defect == GemmDefect::tail_dropped ? depth : 0;
          all.push_back(std::move(h));
        }
      }
    }
  }
  return all;
}

std::size_t partial_length(const GemmHypothesis& hypothesis, std::size_t depth) {
  if (hypothesis.promote_k != 0) return hypothesis.promote_k;
  return hypothesis.split_k != 0 ? hypothesis.split_k : depth;
}

std::uint64_t gemm_word(const GemmHypothesis& hypothesis, const GemmFacts& facts, std::span<const float> partials,
                        const PlainRows& a, const PlainRows& b, std::size_t entry) {
  const float sum = accumulated(hypothesis, facts, partials, a, b, entry);
  const float x = epilogue(hypothesis, a, b, entry, sum);
  return canonical_word(facts.format, rounded(facts.format, hypothesis.output, x));
}

int strangeness(const GemmHypothesis& h) {
  int cost = 0;
  if (h.defect != GemmDefect::none) cost += h.defect == GemmDefect::tail_dropped ? 120 : 100;
  if (h.output != OutputRounding::nearest) cost += 20;
  if (h.scale_use == ScaleUse::b_first) cost += 6;
  if (h.scale_use == ScaleUse::a_first) cost += 3;
  if (!h.fused) cost += 4;
  if (h.order != PartialOrder::ascending) cost += h.order == PartialOrder::pairwise ? 4 : 6;
  if (h.split_k != 0) cost += 5;
  if (h.promote_k != 0) cost += h.promote_k == 128 ? 1 : 2;
  return cost;
}

}  // namespace fp8lab::forensics
