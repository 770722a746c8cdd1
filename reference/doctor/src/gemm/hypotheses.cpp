// SPDX-License-Identifier: Apache-2.0
#include "gemm/hypotheses.hpp"

#include <algorithm>
#include <utility>

#include "gemm/sample.hpp"

namespace fp8lab::doctor {
namespace {

/// Ways to add partial sums.
struct Composition {
  std::size_t promote_k = 0, split_k = 0;
  PartialOrder order = PartialOrder::ascending;
  AddendType partial_type = AddendType::as_given, sum_type = AddendType::as_given;
  AddendType total_type = AddendType::as_given;
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

/// Lengths of ranges: powers of two of instructions, and equal parts of K in whole instructions or in whole blocks of
/// 64 or more, of which the last may be shorter.
std::vector<std::size_t> range_lengths(std::size_t unit, std::size_t depth) {
  std::vector<std::size_t> lengths;
  for (std::size_t length = unit; length < depth; length *= 2) lengths.push_back(length);
  for (const std::size_t block : {unit, std::size_t{64}, std::size_t{128}, std::size_t{256}}) {
    for (const std::size_t count : {2, 3, 4, 5, 6, 7, 8, 12, 16, 32}) {
      const std::size_t length = (depth + count * block - 1) / (count * block) * block;
      const bool fits = block % unit == 0 && length < depth;
      if (fits && std::ranges::find(lengths, length) == lengths.end()) lengths.push_back(length);
    }
  }
  return lengths;
}

/// Float32 sums without a tensor core: in order, pairwise, or of ranges.
std::vector<Composition> plain_compositions(const GemmFacts& facts, std::size_t depth) {
  if (facts.tile_depth != 0) return {{facts.tile_depth}};
  std::vector<Composition> all{{}, {0, 1, PartialOrder::pairwise}};
  for (const std::size_t length : range_lengths(8, depth)) {
    all.push_back({length});
    if (depth > 3 * length) all.push_back({0, length, PartialOrder::pairwise});
  }
  return all;
}

std::vector<Composition> usual_compositions(const MmaModel& model, const GemmFacts& facts, std::size_t depth) {
  const auto unit = static_cast<std::size_t>(model.k());
  std::vector<Composition> all;
  if (is_cuda_cores(model)) return plain_compositions(facts, depth);
  if (facts.tile_depth != 0) {
    all.push_back({facts.tile_depth});
    if (depth > facts.tile_depth * 2) all.push_back({facts.tile_depth, 0, PartialOrder::descending});
    if (depth > facts.tile_depth) add_splits(all, depth, facts.tile_depth, facts.tile_depth);
    return all;
  }
  all.emplace_back();
  if (unit == 0) return all;
  for (const std::size_t length : range_lengths(unit, depth)) {
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

/// Ways in which ranges, or the accumulator, are rounded to 16 bits.
std::vector<Composition> rounded_compositions(const MmaModel& model, const GemmFacts& facts, std::size_t depth) {
  const auto unit = static_cast<std::size_t>(model.k());
  std::vector<Composition> all;
  if (unit == 0) return all;
  for (const AddendType type : {AddendType::bfloat16, AddendType::float16}) {
    for (Composition one : usual_compositions(model, facts, depth)) {
      if (one.order != PartialOrder::ascending) continue;
      if (facts.scales_a || facts.scales_b) {
        all.push_back(one);
        all.back().sum_type = type;
      }
      if (one.split_k == 0 && (one.promote_k == 0 || facts.tile_depth != 0)) continue;
      if (one.split_k == 0) std::swap(one.promote_k, one.split_k);  // ranges, not promotions
      all.push_back(one);
      all.back().partial_type = type;
      all.push_back(all.back());
      all.back().total_type = type;
    }
  }
  if (facts.tile_depth != 0) std::erase_if(all, [](const auto& one) { return one.sum_type != AddendType::as_given; });
  return all;
}

std::vector<ScaleUse> scale_uses(const GemmFacts& facts) {
  if (!facts.scales_a && !facts.scales_b) return {ScaleUse::none};
  if (!facts.scales_a || !facts.scales_b) return {ScaleUse::product_first};
  return {ScaleUse::product_first, ScaleUse::a_first, ScaleUse::b_first};
}

/// How c and the bias enter, and how the output is scaled.
struct Addition {
  AddendUse use = AddendUse::none;
  AddendType type = AddendType::as_given;
  bool bias_first = false;
  bool scale_out_first = false;
};

bool is_usual(const GemmHypothesis& h) {
  const bool is_rounded = h.partial_type != AddendType::as_given || h.sum_type != AddendType::as_given;
  return h.defect == GemmDefect::none && h.k_order.ways == 1 && h.zero_rule == ZeroRule::floor && !is_rounded;
}

/// Where c and the bias may enter.
std::vector<AddendUse> addend_uses(const MmaModel& model, const GemmFacts& facts, const GemmHypothesis& h) {
  using enum AddendUse;
  std::vector<AddendUse> uses{after_scales};
  if (h.defect != GemmDefect::none) return uses;
  constexpr Format single = binary32;
  const bool scaled_last = h.scale_use != ScaleUse::none && facts.tile_depth == 0;
  if (scaled_last) uses.push_back(fused);
  if (scaled_last && is_usual(h)) uses.push_back(before_scales);
  if (facts.format != single && facts.format.bits() > 8) uses.push_back(after_rounding);
  if (facts.c && model.k() != 0 && is_usual(h)) uses.push_back(accumulator);
  return uses;
}

/// All ways where nothing else is unusual; beside another order of K, rule for zeros or a defect the frequent ones, or
/// there would be millions of hypotheses.
std::vector<Addition> additions(const MmaModel& model, const GemmFacts& facts, const GemmHypothesis& h) {
  const bool has_none = h.defect == GemmDefect::addends_missing;
  const bool has_c = facts.c && h.defect != GemmDefect::c_missing && !has_none;
  const bool has_bias =
      facts.bias && h.defect != GemmDefect::bias_missing && h.defect != GemmDefect::bias_in_each_range && !has_none;
  std::vector<Addition> all;
  if (!has_c && !has_bias) {
    const bool adds = h.defect == GemmDefect::bias_in_each_range;
    all.push_back({.use = adds ? AddendUse::after_scales : AddendUse::none});
    const bool is_product = h.scale_use == ScaleUse::product_first && facts.tile_depth == 0;
    if (facts.scale_out != 1 && is_product) all.push_back({.scale_out_first = true});
    return all;
  }
  for (const AddendUse use : addend_uses(model, facts, h)) {
    for (const AddendType type : facts.addend_types) {
      if (!is_usual(h) && type != AddendType::as_given) continue;
      all.push_back({use, type});
      if (has_c && has_bias && use != AddendUse::accumulator && is_usual(h)) all.push_back({use, type, true});
    }
  }
  return all;
}

std::vector<OutputRounding> roundings(const GemmFacts& facts, const GemmHypothesis& h) {
  const Format& format = facts.format;
  std::vector<OutputRounding> all{OutputRounding::nearest};
  const bool is_rounded = h.partial_type != AddendType::as_given || h.sum_type != AddendType::as_given;
  if (h.k_order.ways != 1 || h.zero_rule != ZeroRule::floor || is_rounded) return all;
  constexpr Format single = binary32;
  if (format != single) {
    all.push_back(OutputRounding::toward_zero);
    all.push_back(OutputRounding::nearest_away);
  }
  constexpr Format half = binary16;
  constexpr Format brain = bfloat16;
  if (format != half) all.push_back(OutputRounding::via_float16);
  if (format != brain) all.push_back(OutputRounding::via_bfloat16);
  if (facts.scale_out != 1 && !h.scale_out_first) {
    all.push_back(OutputRounding::float16_before_scale);
    all.push_back(OutputRounding::bfloat16_before_scale);
  }
  return all;
}

/// Ways to add partial sums of products in that order of K.
std::vector<Composition> compositions_in(const KOrder& order, const GemmFacts& facts) {
  const bool is_shared = order.window == facts.depth;  // each part may be a range of its own
  const std::size_t range = facts.depth / order.ways;
  std::vector<Composition> all;
  if (facts.tile_depth != 0) {
    all.push_back({facts.tile_depth});
  } else {
    all.emplace_back();
    for (const std::size_t promote_k : {std::size_t{64}, std::size_t{128}, std::size_t{256}}) {
      const bool fits = is_shared ? promote_k != range : promote_k % order.window == 0;
      if (fits && promote_k < facts.depth) all.push_back({promote_k});
    }
  }
  if (!is_shared) return all;
  for (const std::size_t promote_k : {std::size_t{0}, std::size_t{128}}) {
    if (facts.tile_depth != 0 && promote_k != facts.tile_depth) continue;
    if (promote_k != 0 && (promote_k >= range || range % promote_k != 0)) continue;
    all.push_back({promote_k, range, PartialOrder::ascending});
    if (order.ways > 2) all.push_back({promote_k, range, PartialOrder::descending});
    if (order.ways > 3) all.push_back({promote_k, range, PartialOrder::pairwise});
  }
  return all;
}

/// Orders of K that kernels have: elements of one instruction or of a few exchanged, and warps that share K in turn.
std::vector<KOrder> k_orders(const MmaModel& model, const GemmFacts& facts) {
  const auto unit = static_cast<std::size_t>(model.k());
  std::vector<KOrder> all;
  if (unit == 0) return all;
  for (const std::size_t ways : {2, 4, 8}) {
    for (const std::size_t granule : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
      if (facts.block != 0 && granule % facts.block != 0) continue;
      const std::size_t turn = ways * granule;
      const std::size_t few = ways * unit;
      const bool in_tile = facts.tile_depth == 0 || facts.tile_depth % few == 0;
      if (granule < unit && facts.depth % few == 0 && few < facts.depth && few % turn == 0 && in_tile) {
        all.push_back({ways, granule, few});
      }
      const bool of_tiles = facts.tile_depth == 0 || granule % facts.tile_depth == 0;
      if (facts.depth % turn == 0 && turn < facts.depth && facts.depth / ways % unit == 0 && of_tiles) {
        all.push_back({ways, granule, facts.depth});
      }
    }
  }
  return all;
}

/// Elements of K in each promotion, where there are several within a tile, whose scales multiply each.
std::vector<std::size_t> lengths_within_tile(const MmaModel& model, const GemmFacts& facts) {
  const auto unit = static_cast<std::size_t>(model.k());
  std::vector<std::size_t> all;
  if (unit == 0 || is_cuda_cores(model)) return all;
  for (std::size_t length = facts.tile_depth / 2; length >= std::max(unit, std::size_t{16}); length /= 2) {
    if (length % unit == 0 && facts.tile_depth % length == 0) all.push_back(length);
  }
  return all;
}

/// Ways to add partial sums in other orders of K, and where several promotions lie within a tile.
std::vector<std::pair<KOrder, Composition>> other_orders(const MmaModel& model, const GemmFacts& facts) {
  std::vector<std::pair<KOrder, Composition>> all;
  for (const KOrder& order : k_orders(model, facts)) {
    for (const Composition& one : compositions_in(order, facts)) all.emplace_back(order, one);
  }
  for (const std::size_t length : lengths_within_tile(model, facts)) all.emplace_back(KOrder{}, Composition{length});
  return all;
}

bool goes_with(GemmDefect defect, const GemmFacts& facts) {
  switch (defect) {
    case GemmDefect::c_missing: return facts.c;
    case GemmDefect::addends_missing: return facts.c && facts.bias;
    case GemmDefect::c_transposed: return facts.c && facts.rows > 1 && facts.columns > 1;
    case GemmDefect::bias_missing:
    case GemmDefect::bias_in_each_range: return facts.bias;
    case GemmDefect::bias_along_rows: return facts.bias && facts.rows <= facts.columns;
    case GemmDefect::scale_out_missing:
    case GemmDefect::scale_out_inverted: return facts.scale_out != 1;
    case GemmDefect::none:
    case GemmDefect::a_transposed:
    case GemmDefect::b_transposed:
    case GemmDefect::out_transposed:
    case GemmDefect::tail_dropped: return true;
    case GemmDefect::scale_a_missing: return facts.scales_a || facts.block != 0;
    case GemmDefect::scale_b_missing: return facts.scales_b || facts.block != 0;
    case GemmDefect::scales_missing: return (facts.scales_a && facts.scales_b) || facts.block != 0;
    case GemmDefect::scale_a_inverted:
    case GemmDefect::scale_a_twice: return facts.scales_a || facts.power_blocks;
    case GemmDefect::scale_b_inverted:
    case GemmDefect::scale_b_twice: return facts.scales_b || facts.power_blocks;
    case GemmDefect::scales_inverted:
    case GemmDefect::scales_twice: return (facts.scales_a && facts.scales_b) || facts.power_blocks;
    case GemmDefect::scale_a_of_previous_tile: return (facts.scales_a && facts.tile_depth != 0) || facts.block_codes;
    case GemmDefect::scale_b_of_previous_tile: return (facts.scales_b && facts.tile_depth != 0) || facts.block_codes;
    case GemmDefect::tensor_scale_a_missing:
    case GemmDefect::block_scales_a_missing: return facts.scales_a && facts.block_codes;
    case GemmDefect::tensor_scale_b_missing:
    case GemmDefect::block_scales_b_missing: return facts.scales_b && facts.block_codes;
    case GemmDefect::tensor_scales_missing:
    case GemmDefect::block_scales_missing: return facts.scales_a && facts.scales_b && facts.block_codes;
    case GemmDefect::scale_layout_a: return facts.other_layout_a;
    case GemmDefect::scale_layout_b: return facts.other_layout_b;
    case GemmDefect::scale_layouts: return facts.other_layout_a && facts.other_layout_b;
    case GemmDefect::scales_of_previous_tile: break;
  }
  return (facts.scales_a && facts.scales_b && facts.tile_depth != 0) || facts.block_codes;
}

/// Whether overflow saturates, the usual first.
std::vector<bool> saturations(const GemmFacts& facts) {
  constexpr Format single = binary32;
  if (facts.format == single) return {false};
  const bool usual = facts.format.bits() <= 8;
  if (!facts.overflowed) return {usual};
  return {usual, !usual};
}

/// Whether rules for zeros make a difference for the model. (They do not where products of FP8 or float16 meet a
/// float32 accumulator: none is near 2^-126.)
bool has_zero_rules(const MmaModel& model) {
  constexpr Format half = binary16;
  const auto has = [&](const Format& format) {
    return std::ranges::find(model.operands, format) != model.operands.end();
  };
  return model.accumulator() == half || model.scales || has(bfloat16) || has(tf32);
}

/// Adds the hypothesis with all epilogues.
void add_epilogues(std::vector<GemmHypothesis>& all, GemmHypothesis h, const MmaModel& model, const GemmFacts& facts) {
  for (const ScaleUse use : scale_uses(facts)) {
    for (const bool fused : {true, false}) {
      if (!fused && (facts.tile_depth == 0 || use == ScaleUse::none)) continue;
      h.scale_use = use;
      h.fused = fused;
      for (const Addition& addition : additions(model, facts, h)) {
        h.addend_use = addition.use;
        h.addend_type = addition.type;
        h.bias_first = addition.bias_first;
        h.scale_out_first = addition.scale_out_first;
        for (const OutputRounding output : roundings(facts, h)) {
          h.output = output;
          for (const bool saturated : saturations(facts)) {
            h.saturated = saturated;
            all.push_back(h);
          }
        }
      }
    }
  }
}

bool is_inversion(GemmDefect defect) {
  using enum GemmDefect;
  return defect == scale_a_inverted || defect == scale_b_inverted || defect == scales_inverted;
}

}  // namespace

std::vector<GemmHypothesis> gemm_hypotheses(const MmaModel& model, const GemmFacts& facts, GemmDefect defect,
                                            std::size_t depth, GemmSearch search) {
  std::vector<GemmHypothesis> all;
  if (!goes_with(defect, facts)) return all;
  const auto add = [&](const KOrder& k_order, const Composition& composition, ZeroRule zero_rule) {
    GemmHypothesis h{.model = std::string(model.name),
                     .promote_k = composition.promote_k,
                     .split_k = composition.split_k,
                     .order = composition.order,
                     .partial_type = composition.partial_type,
                     .total_type = composition.total_type,
                     .sum_type = composition.sum_type,
                     .k_order = k_order,
                     .zero_rule = zero_rule,
                     .defect = defect,
                     .depth = defect == GemmDefect::tail_dropped ? depth : 0};
    if (defect == GemmDefect::bias_in_each_range && h.promote_k == 0 && h.split_k == 0) return;
    add_epilogues(all, h, model, facts);
    if (!is_inversion(defect)) return;
    h.divided = true;
    add_epilogues(all, h, model, facts);
  };
  switch (search) {
    case GemmSearch::usual:
      for (const Composition& one : usual_compositions(model, facts, depth)) add({}, one, ZeroRule::floor);
      break;
    case GemmSearch::rounded_sums:
      for (const Composition& one : rounded_compositions(model, facts, depth)) add({}, one, ZeroRule::floor);
      break;
    case GemmSearch::orders:
      for (const auto& [order, one] : other_orders(model, facts)) add(order, one, ZeroRule::floor);
      break;
    case GemmSearch::zeros:
      if (!has_zero_rules(model)) break;
      for (const ZeroRule rule : {ZeroRule::skip_terms, ZeroRule::skip_empty_groups, ZeroRule::skip_zero_groups,
                                  ZeroRule::count_zero_factors}) {
        for (const Composition& one : usual_compositions(model, facts, depth)) add({}, one, rule);
      }
      break;
  }
  return all;
}

std::size_t partial_length(const GemmHypothesis& hypothesis, std::size_t depth) {
  if (hypothesis.promote_k != 0) return hypothesis.promote_k;
  return hypothesis.split_k != 0 ? hypothesis.split_k : depth;
}

/// How far from usual it is to add c and the bias so.
static int strangeness_of_addends(const GemmHypothesis& h) {
  constexpr int scaled = 105;  // which is seldom meant: an addend that is missing is more likely
  switch (h.addend_use) {
    case AddendUse::none:
    case AddendUse::after_scales: break;
    case AddendUse::fused: return 2;
    case AddendUse::accumulator: return h.scale_use == ScaleUse::none ? 5 : scaled;
    case AddendUse::before_scales: return scaled;
    case AddendUse::after_rounding: return 7;
  }
  return 0;
}

/// How far from usual it is to round so.
static int strangeness_of_roundings(const GemmHypothesis& h) {
  int cost = 0;
  if (h.output != OutputRounding::nearest) cost += 20;
  if (h.addend_type != AddendType::as_given) cost += 6;
  if (h.partial_type != AddendType::as_given) cost += 10;
  if (h.total_type != AddendType::as_given) cost += 2;
  if (h.sum_type != AddendType::as_given) cost += 15;
  if (h.dequantized != AddendType::as_given) cost += 15;
  return cost;
}

int strangeness(const GemmHypothesis& h) {
  int cost = strangeness_of_addends(h) + strangeness_of_roundings(h);
  if (h.defect != GemmDefect::none) cost += h.defect == GemmDefect::tail_dropped ? 120 : 100;
  if (h.zero_rule != ZeroRule::floor) cost += 30;
  if (h.k_order.ways != 1) cost += h.k_order.granule < 16 ? 12 : 8;
  if (h.divided) cost += 1;
  if (h.bias_first) cost += 3;
  if (h.scale_out_first) cost += 3;
  if (h.scale_use == ScaleUse::b_first) cost += 6;
  if (h.scale_use == ScaleUse::a_first) cost += 3;
  if (!h.fused) cost += 4;
  if (h.order != PartialOrder::ascending) cost += h.order == PartialOrder::pairwise ? 4 : 6;
  if (h.split_k != 0) cost += 5;
  if (h.promote_k != 0) cost += h.promote_k == 128 ? 1 : 2;
  return cost;
}

}  // namespace fp8lab::doctor
