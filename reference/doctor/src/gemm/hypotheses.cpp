// SPDX-License-Identifier: Apache-2.0
#include "gemm/hypotheses.hpp"

#include <algorithm>
#include <utility>

#include "fp8lab/formats/refuse.hpp"
#include "gemm/plain_rows.hpp"

namespace fp8lab::doctor {
namespace {

/// Ways to add partial sums.
struct Composition {
  std::size_t promote_k = 0, split_k = 0;
  PartialOrder order = PartialOrder::ascending;
  StepType partial_type = StepType::as_given, sum_type = StepType::as_given;
  StepType total_type = StepType::as_given;
};

void add_splits(std::vector<Composition>& all, std::size_t depth, std::size_t unit, std::size_t promote_k) {
  for (const std::size_t count : {2, 3, 4, 5, 6, 7, 8, 12, 16, 32}) {
    const std::size_t length = (depth + count * unit - 1) / (count * unit) * unit;
    const std::size_t ranges = (depth + length - 1) / length;
    if (ranges != count) continue;
    // Without promotion, ranges that are added one by one are a promotion every `length`.
    // Two ranges are a promotion, too: both are told.
    if (promote_k != 0 || ranges == 2) all.push_back({promote_k, length, PartialOrder::ascending});
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
  for (const StepType type : {StepType::to_bfloat16, StepType::to_float16}) {
    for (Composition one : usual_compositions(model, facts, depth)) {
      if (one.order != PartialOrder::ascending) continue;
      if (facts.scales_a || facts.scales_b) {
        all.push_back(one);
        all.back().sum_type = type;
      }
      if (one.split_k == 0 && one.promote_k != 0 && one.promote_k == facts.tile_depth) {
        one.split_k = one.promote_k;  // each tile is a range, and the running total is rounded
        all.push_back(one);
        all.back().total_type = type;
        continue;
      }
      if (one.split_k == 0 && (one.promote_k == 0 || facts.tile_depth != 0)) continue;
      if (one.split_k == 0) std::swap(one.promote_k, one.split_k);  // ranges, not promotions
      all.push_back(one);
      all.back().partial_type = type;
      all.push_back(all.back());
      all.back().total_type = type;
      all.push_back(all.back());
      all.back().partial_type = StepType::as_given;  // the running total alone
    }
  }
  if (facts.tile_depth != 0) std::erase_if(all, [](const auto& one) { return one.sum_type != StepType::as_given; });
  return all;
}

std::vector<std::optional<ScaleOrder>> scale_orders(const GemmFacts& facts) {
  if (!facts.scales_a && !facts.scales_b) return {std::nullopt};
  if (!facts.scales_a || !facts.scales_b) return {ScaleOrder::scales_first};
  return {ScaleOrder::scales_first, ScaleOrder::accumulator_first, ScaleOrder::b_first};
}

/// How c and the bias enter, and how the output is scaled.
struct AdditionWay {
  CEntry c_enters = CEntry::epilogue;
  Addition addition = Addition::after_scales;
  StepType type = StepType::as_given;
  bool bias_first = false;
  bool scale_out_first = false;
};

bool is_usual(const GemmCandidate& h) {
  const GemmRecipe& r = h.recipe;
  const bool is_rounded = r.partial_type != StepType::as_given || r.sum_type != StepType::as_given;
  return h.departure == nullptr && r.k_order.ways == 1 && r.zero_rule == ZeroRule::floor && !is_rounded;
}

/// Where c and the bias may enter.
std::vector<AdditionWay> addition_ways(const MmaModel& model, const GemmFacts& facts, const GemmCandidate& h) {
  std::vector<AdditionWay> ways{{}};
  if (h.departure != nullptr) return ways;
  constexpr Format single = binary32;
  const bool scaled_last = h.recipe.scale_order && facts.tile_depth == 0;
  if (scaled_last) ways.push_back({.addition = Addition::fused});
  if (scaled_last && is_usual(h)) ways.push_back({.addition = Addition::before_scales});
  if (facts.format != single && facts.format.bits() > 8) ways.push_back({.addition = Addition::after_rounding});
  if (facts.c && model.k() != 0 && is_usual(h)) ways.push_back({.c_enters = CEntry::accumulator});
  return ways;
}

/// All ways where nothing else is unusual; beside another order of K, rule for zeros or a departure the frequent ones,
/// or there would be millions of hypotheses.
std::vector<AdditionWay> additions(const MmaModel& model, const GemmFacts& facts, const GemmCandidate& h) {
  const GemmReading& reading = reading_of(h.departure);
  const bool has_c = facts.c && reading.c != CReading::missing;
  const bool has_bias =
      facts.bias && reading.bias != BiasReading::missing && reading.bias != BiasReading::in_each_range;
  std::vector<AdditionWay> all;
  if (!has_c && !has_bias) {
    all.emplace_back();
    const bool is_product = h.recipe.scale_order == ScaleOrder::scales_first && facts.tile_depth == 0;
    if (facts.scale_out != 1 && is_product) all.push_back({.scale_out_first = true});
    return all;
  }
  for (AdditionWay way : addition_ways(model, facts, h)) {
    for (const StepType type : facts.addend_types) {
      if (!is_usual(h) && type != StepType::as_given) continue;
      way.type = type;
      way.bias_first = false;
      all.push_back(way);
      way.bias_first = true;
      if (has_c && has_bias && way.c_enters == CEntry::epilogue && is_usual(h)) all.push_back(way);
    }
  }
  return all;
}

/// How the float32 result becomes an element of the output.
struct OutputWay {
  Rounding rounding = Rounding::nearest_even;
  StepType via_type = StepType::as_given;
  StepType unscaled_type = StepType::as_given;
};

std::vector<OutputWay> output_ways(const GemmFacts& facts, const GemmRecipe& r) {
  const Format& format = facts.format;
  std::vector<OutputWay> all{{}};
  const bool is_rounded = r.partial_type != StepType::as_given || r.sum_type != StepType::as_given;
  if (r.k_order.ways != 1 || r.zero_rule != ZeroRule::floor || is_rounded) return all;
  constexpr Format single = binary32;
  if (format != single) {
    all.push_back({.rounding = Rounding::toward_zero});
    all.push_back({.rounding = Rounding::nearest_away});
  }
  constexpr Format half = binary16;
  constexpr Format brain = bfloat16;
  if (format != half) all.push_back({.via_type = StepType::to_float16});
  if (format != brain) all.push_back({.via_type = StepType::to_bfloat16});
  if (facts.scale_out != 1 && !r.scale_out_first) {
    all.push_back({.unscaled_type = StepType::to_float16});
    all.push_back({.unscaled_type = StepType::to_bfloat16});
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

/// How the result is rounded to the output so; of overflow the usual comes first.
std::vector<std::optional<CastPolicy>> casts(const GemmFacts& facts, Rounding rounding) {
  constexpr Format single = binary32;
  if (facts.format == single) return {std::nullopt};
  CastPolicy saturated;
  CastPolicy special = cuda_nosat_policy;
  saturated.rounding = special.rounding = rounding;
  const bool usually = facts.format.bits() <= 8;
  std::optional<CastPolicy> usual;
  if (rounding != Rounding::nearest_even) usual = usually ? saturated : special;
  if (!facts.overflowed) return {usual};
  return {usual, usually ? special : saturated};
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
void add_epilogues(std::vector<GemmCandidate>& all, GemmCandidate h, const GemmFacts& facts) {
  GemmRecipe& r = h.recipe;
  for (const std::optional<ScaleOrder>& order : scale_orders(facts)) {
    for (const bool fused : {true, false}) {
      if (!fused && (facts.tile_depth == 0 || !order)) continue;
      r.scale_order = order;
      r.tensor_scales = order ? TensorScaleUse::with_rows : TensorScaleUse::as_alpha;
      r.fused = fused;
      for (const AdditionWay& way : additions(*h.model, facts, h)) {
        r.c_enters = way.c_enters;
        r.addition = way.addition;
        r.addend_type = way.type;
        r.bias_first = way.bias_first;
        r.scale_out_first = way.scale_out_first;
        for (const OutputWay& output : output_ways(facts, r)) {
          r.via_type = output.via_type;
          r.unscaled_type = output.unscaled_type;
          for (const std::optional<CastPolicy>& cast : casts(facts, output.rounding)) {
            r.cast = cast;
            all.push_back(h);
          }
        }
      }
    }
  }
}

/// The hypothesis with each promotion that may go wrong as its departure says.
std::vector<GemmCandidate> with_promotions(const GemmCandidate& h, std::size_t depth) {
  constexpr std::size_t most = 64;
  constexpr std::size_t most_uncleared = 16;  // their sums are as long as the square of it
  const auto length = static_cast<std::size_t>(h.recipe.promote_k);
  std::vector<GemmCandidate> all;
  if (length == 0 || depth % length != 0) return all;
  const std::size_t count = depth / length;
  const PromotionReading promotion = reading_of(h.departure).promotion;
  if (promotion == PromotionReading::never_cleared) {
    if (count > most_uncleared) return all;
    all.push_back(h);
    all.back().depth = length;
    for (std::size_t last = 0; last < count; ++last) {
      for (std::size_t j = 0; j <= last; ++j) all.back().blocks.push_back(j);
    }
    return all;
  }
  for (std::size_t j = 0; j + 1 < count && count <= most; ++j) {
    GemmCandidate one = h;
    one.depth = (j + 1) * length;
    if (promotion == PromotionReading::kept) {
      one.depth = length;
      for (std::size_t i = 0; i < count; ++i) one.blocks.insert(one.blocks.end(), i == j ? 2 : 1, i);
    }
    all.push_back(std::move(one));
  }
  return all;
}

/// A way to sum along K that a search tries.
struct TriedSum {
  KOrder k_order;
  Composition composition;
  ZeroRule zero_rule = ZeroRule::floor;
};

std::vector<TriedSum> tried_sums(const MmaModel& model, const GemmFacts& facts, std::size_t depth, GemmSearch search) {
  std::vector<TriedSum> all;
  switch (search) {
    case GemmSearch::usual:
      for (const Composition& one : usual_compositions(model, facts, depth)) all.push_back({{}, one});
      break;
    case GemmSearch::rounded_sums:
      for (const Composition& one : rounded_compositions(model, facts, depth)) all.push_back({{}, one});
      break;
    case GemmSearch::orders:
      for (const auto& [order, one] : other_orders(model, facts)) all.push_back({order, one});
      break;
    case GemmSearch::zeros:
      if (!has_zero_rules(model)) break;
      for (const ZeroRule rule : {ZeroRule::skip_terms, ZeroRule::skip_empty_groups, ZeroRule::skip_zero_groups,
                                  ZeroRule::count_zero_factors}) {
        for (const Composition& one : usual_compositions(model, facts, depth)) all.push_back({{}, one, rule});
      }
      break;
  }
  return all;
}

bool is_inversion(const GemmReading& reading) {
  return reading.a.scales == ScaleReading::inverted || reading.b.scales == ScaleReading::inverted;
}

}  // namespace

std::vector<GemmCandidate> gemm_hypotheses(const MmaModel& model, const GemmFacts& facts,
                                           const GemmDeparture* departure, std::size_t number, GemmSearch search,
                                           std::span<const std::size_t> blocks) {
  std::vector<GemmCandidate> all;
  const GemmReading& reading = reading_of(departure);
  const bool repeats = reading.products != ProductReading::own && reading.promotion == PromotionReading::own;
  const bool has_number = repeats || (departure != nullptr && departure->drops_tail);
  const std::size_t depth = repeats ? depth_with(reading.products, facts.depth, number, blocks.size()) : number;
  for (const auto& [k_order, composition, zero_rule] : tried_sums(model, facts, depth, search)) {
    GemmCandidate h{.recipe = {.model = model,
                               .zero_rule = zero_rule,
                               .k_order = k_order,
                               .promote_k = static_cast<int>(composition.promote_k),
                               .range_k = composition.split_k,
                               .order = composition.order,
                               .partial_type = composition.partial_type,
                               .total_type = composition.total_type,
                               .sum_type = composition.sum_type,
                               .output = facts.format},
                    .departure = departure,
                    .depth = has_number ? number : 0,
                    .blocks = {blocks.begin(), blocks.end()},
                    .model = &model};
    const bool has_ranges = composition.promote_k != 0 || composition.split_k != 0;
    if (reading.bias == BiasReading::in_each_range && !has_ranges) continue;
    if (reading.promotion != PromotionReading::own) {
      if (composition.split_k != 0 || composition.order != PartialOrder::ascending) continue;
      for (const GemmCandidate& one : with_promotions(h, facts.depth)) add_epilogues(all, one, facts);
      continue;
    }
    add_epilogues(all, h, facts);
    if (!is_inversion(reading)) continue;
    h.recipe.divided = true;
    add_epilogues(all, h, facts);
  }
  return all;
}

void take_departures(GemmCandidate& candidate, std::span<const FoundDeparture> departures) {
  if (departures.empty()) return;
  if (departures.size() > 2) refuse("departures must be two at most");
  candidate.departure = departures.front().row;
  if (departures.size() == 2) {
    candidate.departure = both_departures(*departures.front().row, *departures.back().row);
    if (candidate.departure == nullptr) refuse("departures must be two that change something else each");
  }
  for (const FoundDeparture& one : departures) {
    candidate.depth = std::max(candidate.depth, one.depth);
    if (!one.factors.empty()) candidate.factors = one.factors;
    if (!one.blocks.empty()) candidate.blocks = one.blocks;
  }
}

std::vector<FoundDeparture> departures_of(const GemmCandidate& candidate) {
  std::vector<FoundDeparture> all;
  if (candidate.departure == nullptr) return all;
  for (const GemmDeparture* part : parts_of(*candidate.departure)) {
    const GemmReading& reading = part->reading;
    const bool has_number =
        part->drops_tail || reading.products != ProductReading::own || reading.promotion != PromotionReading::own;
    const bool has_blocks = reading.products == ProductReading::blocks || reading.stale_start;
    all.push_back({part, has_number ? candidate.depth : 0,
                   reading.scaled_by != ScaledBy::nothing ? candidate.factors : std::vector<float>(),
                   has_blocks ? candidate.blocks : std::vector<std::size_t>()});
  }
  return all;
}

/// How far from usual it is to add c and the bias so.
static int strangeness_of_addends(const GemmRecipe& r) {
  constexpr int scaled = 105;  // which is seldom meant: an addend that is missing is more likely
  if (r.c_enters == CEntry::accumulator) return r.scale_order ? scaled : 5;
  switch (r.addition) {
    case Addition::after_scales: break;
    case Addition::fused: return 2;
    case Addition::before_scales: return scaled;
    case Addition::after_rounding: return 7;
  }
  return 0;
}

/// How far from usual it is to round so.
static int strangeness_of_roundings(const GemmRecipe& r) {
  int cost = 0;
  if (!is_rounded_once(r)) cost += 20;
  if (r.addend_type != StepType::as_given) cost += 6;
  if (r.partial_type != StepType::as_given) cost += 10;
  if (r.total_type != StepType::as_given) cost += 2;
  if (r.sum_type != StepType::as_given) cost += 15;
  if (r.dequantized != StepType::as_given) cost += 15;
  return cost;
}

double strangeness(const GemmCandidate& candidate) {
  const GemmRecipe& r = candidate.recipe;
  int cost = strangeness_of_addends(r) + strangeness_of_roundings(r);
  if (r.zero_rule != ZeroRule::floor) cost += 30;
  if (r.k_order.ways != 1) cost += r.k_order.granule < 16 ? 12 : 8;
  if (r.divided) cost += 1;
  if (r.bias_first) cost += 3;
  if (r.scale_out_first) cost += 3;
  if (r.scale_order == ScaleOrder::b_first) cost += 6;
  if (r.scale_order == ScaleOrder::accumulator_first) cost += 3;
  if (!r.fused) cost += 4;
  if (r.order != PartialOrder::ascending) cost += r.order == PartialOrder::pairwise ? 4 : 6;
  if (r.range_k != 0) cost += 5;
  if (r.promote_k != 0) cost += r.promote_k == 128 ? 1 : 2;
  return candidate.departure == nullptr ? cost : cost + 100 * candidate.departure->cost;
}

}  // namespace fp8lab::doctor
