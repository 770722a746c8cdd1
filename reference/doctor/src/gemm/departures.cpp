// SPDX-License-Identifier: Apache-2.0
// Departures of a GEMM: the rows that no quantization has, and those of the table for its operands.
#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "gemm/hypotheses.hpp"
#include "quantize/departure.hpp"

namespace fp8lab::doctor {
namespace {

using Facts = const GemmFacts&;

bool any_facts(Facts /*facts*/) { return true; }
bool has_sides(Facts facts) { return facts.rows > 1 && facts.columns > 1; }
bool has_c(Facts facts) { return facts.c; }
bool has_bias(Facts facts) { return facts.bias; }
bool has_scale_out(Facts facts) { return facts.scale_out != 1; }

bool never_searched(Facts /*facts*/) { return false; }
bool has_no_tiles(Facts facts) { return facts.tile_depth == 0; }
bool has_rows(Facts facts) { return facts.rows > 8; }
bool has_columns(Facts facts) { return facts.columns > 8; }

/// A row about what is not of an operand's scales.
constexpr Departure gemm_row(std::string_view name, std::string_view words, double cost, bool (*is_searched)(Facts),
                             const GemmReading& reading, bool drops_tail = false) {
  return {.name = name, .words = words, .cost = cost, .gemm = {is_searched, reading, drops_tail}};
}

/// A row about elements that are scaled: what the output suggests.
constexpr Departure scaled_row(std::string_view name, std::string_view words, double cost, ScaledBy by) {
  return {.name = name, .words = words, .cost = cost, .gemm = {never_searched, {.scaled_by = by}}};
}

/// A row that only what is found in the output suggests.
constexpr Departure found_row(std::string_view name, std::string_view words, double cost, const GemmReading& reading) {
  return {.name = name, .words = words, .cost = cost, .gemm = {never_searched, reading}};
}

/// A row about what takes the place of an operand's scale, where the opposite edge takes that of one beyond.
constexpr Departure wrapped_row(std::string_view name, const OperandReading& operand) {
  return {.name = name, .words = operand.words_of_both, .cost = 1, .operand = operand};
}

bool has_places(const OperandScales& own) { return own.tiles || own.codes; }

constexpr auto gemm_table = of_stage(
    KernelStage::gemm,
    std::array{
        // 1. What is read, or stored, as if it were the transpose.
        gemm_row("a_transposed", "a is read as if it were stored as (K, M)", 1.0010, any_facts, {.turned = Turned::a}),
        gemm_row("b_transposed", "b is read as if it were stored as (K, N)", 1.0012, any_facts, {.turned = Turned::b}),
        gemm_row("out_transposed", "the output is stored transposed, as (N, M)", 1.0014, has_sides,
                 {.turned = Turned::out}),
        // 2. Scales of operands.
        Departure{.name = "scale_twice",
                  .words = "scales are applied twice",
                  .cost = 1,
                  .operand = {.name = "scale{}_twice",
                              .words = "the scale of {} is applied twice",
                              .words_of_both = "both scales are applied twice",
                              .cost = 1.0022,
                              .is_searched = [](const OperandScales& own) { return own.numbers || own.powers; },
                              .reading = {.scales = ScaleReading::twice, .blocks = BlockReading::squared}}},
        Departure{.name = "block_scales_missing",
                  .words = "the scales of blocks are not applied, those of tensors or rows are",
                  .cost = 1,
                  .operand = {.name = "block_scales{}_missing",
                              .words = "the scales of the blocks of {} are not applied, that of its tensor or row is",
                              .words_of_both = "the scales of blocks are not applied, those of tensors or rows are",
                              .cost = 1.0030,
                              .is_searched = [](const OperandScales& own) { return own.numbers && own.codes; },
                              .reading = {.blocks = BlockReading::missing}}},
        Departure{.name = "first_of_four_scales",
                  .words = "of each four scales along K the first is taken for all",
                  .cost = 1,
                  .operand = {.name = "first_of_four_scales{}",
                              .words = "of each four scales of {} along K the first is taken for all",
                              .words_of_both = "of each four scales along K the first is taken for all, in a and in b",
                              .cost = 1.0070,
                              .is_searched = has_places,
                              .reading = {.place = ScalePlace::first_of_four}}},
        Departure{.name = "scale_words_as_bytes",
                  .words = "float32 scales are read as E8M0, a byte each",
                  .cost = 1,
                  .operand = {.name = "scale_words{}_as_bytes",
                              .words = "the float32 scales of {} are read as E8M0, a byte each",
                              .words_of_both = "float32 scales are read as E8M0, a byte each",
                              .cost = 1.0072,
                              .is_searched = [](const OperandScales& own) { return own.tiles; },
                              .reading = {.word = ScaleWord::byte_of_float32}}},
        Departure{.name = "scales_read_turned",
                  .words = "scales are stored row-major and read column-major",
                  .cost = 1,
                  .operand = {.name = "scales{}_read_turned",
                              .words = "the scales of {} are stored row-major and read column-major",
                              .words_of_both = "both operands' scales are stored row-major and read column-major",
                              .cost = 1.0074,
                              .is_searched = has_places,
                              .reading = {.place = ScalePlace::read_turned}}},
        Departure{.name = "scales_of_other_operand",
                  .words = "the scales of a are taken for b, and those of b for a",
                  .cost = 1,
                  .operand = {.name = "scales{}_of_other",
                              .words = "the scales of the other operand are taken for {}",
                              .words_of_both = "the scales of a and b are exchanged",
                              .cost = 1.0076,
                              .is_searched = has_places,
                              .reading = {.place = ScalePlace::other_operand}}},
        Departure{
            .name = "codes_as_fnuz",
            .words = "codes of E4M3 are read as E4M3FNUZ: half the value, and -0 is NaN",
            .cost = 1,
            .operand = {.name = "codes{}_as_fnuz",
                        .words = "the E4M3 codes of {} are read as E4M3FNUZ: half the value, and -0 is NaN",
                        .words_of_both = "the E4M3 codes of both are read as E4M3FNUZ: half the value, and -0 is NaN",
                        .cost = 1.16,
                        .is_searched = [](const OperandScales& own) { return own.e4m3; },
                        .reading = {.as_fnuz = true}}},
        Departure{.name = "codes_as_other_format",
                  .words = "codes are read in another format of as many bits",
                  .cost = 1,
                  .operand = {.name = "codes{}_as_other_format",
                              .words = "the codes of {} are read in another format: E4M3 as E5M2, E2M3 as E3M2, or the "
                                       "other way round",
                              .words_of_both = "the codes of both are read in another format: E4M3 as E5M2, E2M3 as "
                                               "E3M2, or the other way round",
                              .cost = 1.0064,
                              .is_searched = [](const OperandScales& own) { return own.e4m3_or_e5m2; },
                              .reading = {.as_other_format = true}}},
        Departure{.name = "operand_rows_exchanged",
                  .words = "codes of rows i and i + 8 of each 16 are exchanged, their scales are not",
                  .cost = 1,
                  .operand = {.name = "operand_rows{}_exchanged",
                              .words = "codes of rows i and i + 8 of each 16 of {} are exchanged, what their rows are "
                                       "scaled with and what is added is not",
                              .words_of_both = "codes of rows i and i + 8 of each 16 of both are exchanged, what their "
                                               "rows are scaled with and what is added is not",
                              .cost = 1.0066,
                              .is_searched =
                                  [](const OperandScales& own) { return own.eight_rows && own.is_told_from_output; },
                              .reading = {.codes_exchanged = true}}},
        wrapped_row("row_scale_of_next", {.name = "row_scale{}_of_next",
                                          .words = "the scale of each row of {} is that of the next row, and of the "
                                                   "last row that of the first",
                                          .words_of_both = "scales of rows are those of the next rows",
                                          .cost = 1.0078,
                                          .is_searched = [](const OperandScales& own) { return own.rows; },
                                          .reading = {.row_scale_step = 1}}),
        wrapped_row("row_scale_of_previous",
                    {.name = "row_scale{}_of_previous",
                     .words = "the scale of each row of {} is that of the row before, and of the first row that of the "
                              "last",
                     .words_of_both = "scales of rows are those of the rows before",
                     .cost = 1.0079,
                     .is_searched = [](const OperandScales& own) { return own.rows; },
                     .reading = {.row_scale_step = -1}}),
        wrapped_row("scales_from_next_tile",
                    {.name = "scales{}_from_next_tile",
                     .words = "scales of {} are those of the next tile or block along K, and of the last that of the "
                              "first",
                     .words_of_both = "scales of both are those of the next tile or block along K",
                     .cost = 1.0080,
                     .is_searched = has_places,
                     .reading = {.place = ScalePlace::next, .wraps = true}}),
        wrapped_row("scales_from_previous_tile",
                    {.name = "scales{}_from_previous_tile",
                     .words = "scales of {} are those of the tile or block before along K, and of the first that of "
                              "the last",
                     .words_of_both = "scales of both are those of the tile or block before along K",
                     .cost = 1.0081,
                     .is_searched = has_places,
                     .reading = {.place = ScalePlace::previous, .wraps = true}}),
        wrapped_row("scales_from_next_row",
                    {.name = "scales{}_from_next_row",
                     .words = "scales of {} are those of the next row, and of the last row those of the first",
                     .words_of_both = "scales of both are those of the next row",
                     .cost = 1.0082,
                     .is_searched = has_places,
                     .reading = {.place = ScalePlace::next_row, .wraps = true}}),
        wrapped_row("scales_from_previous_row",
                    {.name = "scales{}_from_previous_row",
                     .words = "scales of {} are those of the row before, and of the first row those of the last",
                     .words_of_both = "scales of both are those of the row before",
                     .cost = 1.0083,
                     .is_searched = has_places,
                     .reading = {.place = ScalePlace::previous_row, .wraps = true}}),
        wrapped_row("scales_of_first_tile", {.name = "scales{}_of_first_tile",
                                             .words = "the first scale of {} along K is taken for all",
                                             .words_of_both = "the first scale along K is taken for all, in a and in b",
                                             .cost = 1.0084,
                                             .is_searched = has_places,
                                             .reading = {.place = ScalePlace::first}}),
        gemm_row("block_scales_after_sums",
                 "codes are multiplied alone, and the scales of a block multiply the sum of its products in float32",
                 1.0086, [](Facts facts) { return facts.block_codes; }, {.blocks_as_tiles = true}),
        // 3. What is added, and the scale of the output.
        gemm_row("c_missing", "c is not added", 1.0040, has_c, {.c = CReading::missing}),
        gemm_row("c_transposed", "c is read as if it were stored as (N, M)", 1.0042,
                 [](Facts facts) { return facts.c && has_sides(facts); }, {.c = CReading::transposed}),
        gemm_row("bias_missing", "the bias is not added", 1.0044, has_bias, {.bias = BiasReading::missing}),
        gemm_row("addends_missing", "neither c nor the bias is added", 1.0046,
                 [](Facts facts) { return facts.c && facts.bias; },
                 {.c = CReading::missing, .bias = BiasReading::missing}),
        gemm_row("bias_along_rows", "the bias is added to rows, not to columns", 1.0048,
                 [](Facts facts) { return facts.bias && facts.rows <= facts.columns; },
                 {.bias = BiasReading::along_rows}),
        gemm_row("bias_in_each_range", "every range of K adds the bias", 1.0050, has_bias,
                 {.bias = BiasReading::in_each_range}),
        gemm_row("scale_out_missing", "the scale of the output is not applied", 1.0052, has_scale_out,
                 {.scale_out = ScaleReading::missing}),
        gemm_row("scale_out_inverted", "the scale of the output divides instead of multiplying", 1.0054, has_scale_out,
                 {.scale_out = ScaleReading::inverted}),
        gemm_row("bias_of_next_column", "the bias of the next column is added", 1.0049, has_bias,
                 {.bias = BiasReading::next}),
        gemm_row("bias_of_previous_column", "the bias of the column before is added", 1.0051, has_bias,
                 {.bias = BiasReading::previous}),
        // 4. Products.
        gemm_row("tail_dropped", "the last products are missing", 1.2, any_facts, {}, true),
        gemm_row("head_dropped", "the first products are missing", 1.21, any_facts,
                 {.products = ProductReading::head_missing}),
        gemm_row("head_twice", "the first products are added twice", 1.22, any_facts,
                 {.products = ProductReading::head_twice}),
        gemm_row("tail_twice", "the last products are added twice", 1.23, any_facts,
                 {.products = ProductReading::tail_twice}),
        gemm_row("k_descending", "K is taken from its end to its beginning, block by block", 1.18, any_facts,
                 {.products = ProductReading::descending}),
        found_row("k_blocks", "other blocks of K are multiplied than all in their order", 1.25,
                  {.products = ProductReading::blocks}),
        gemm_row("promotion_missed", "one promotion is left out: its accumulator goes on to the next", 1.19,
                 has_no_tiles, {.promotion = PromotionReading::missed}),
        gemm_row("accumulator_kept", "the accumulator is not cleared after one promotion, and is added again", 1.191,
                 has_no_tiles, {.products = ProductReading::blocks, .promotion = PromotionReading::kept}),
        gemm_row("accumulator_never_cleared", "the accumulator is not cleared after promotions, each adds all before",
                 1.192, has_no_tiles,
                 {.products = ProductReading::blocks, .promotion = PromotionReading::never_cleared}),
        found_row("stale_tile", "a tile of the output goes on from the accumulators of another one", 1.24,
                  {.stale_start = true}),
        // 5. The output.
        gemm_row("rows_exchanged", "rows i and i + 8 of each 16 are exchanged", 1.0060, has_rows,
                 {.rows_exchanged = true}),
        gemm_row("columns_exchanged", "columns i and i + 8 of each 16 are exchanged", 1.0062, has_columns,
                 {.columns_exchanged = true}),
        scaled_row("output_scaled", "every element is multiplied with the same number", 1.15, ScaledBy::one_number),
        scaled_row("rows_scaled", "each row is multiplied with a number of its own", 1.3, ScaledBy::rows),
        scaled_row("columns_scaled", "each column is multiplied with a number of its own", 1.31, ScaledBy::columns),
    });

/// The text with `words` in the place of {}.
std::string filled(std::string_view text, std::string_view words) {
  std::string all(text);
  if (const auto at = all.find("{}"); at != std::string::npos) all.replace(at, 2, words);
  return all;
}

/// The plural of a name.
std::string plural(std::string_view name) {
  return filled(name, name.find("s{}") == std::string_view::npos ? "s" : "");
}

void add_row(std::vector<GemmDeparture>& all, const Departure& row) {
  const auto& [name, words, words_of_both, cost, is_searched, reading] = row.operand;
  if (is_searched != nullptr) {
    const std::string_view both = words_of_both.empty() ? words : words_of_both;
    all.push_back({filled(name, "_a"), filled(words, "a"), cost, &row, {.a = reading}, true, false});
    all.push_back({filled(name, "_b"), filled(words, "b"), cost, &row, {.b = reading}, false, true});
    all.push_back({plural(name), filled(both, "both"), cost, &row, {.a = reading, .b = reading}, true, true});
  }
  if (row.gemm.is_searched == nullptr) return;
  all.push_back({std::string(row.name), std::string(row.words), row.cost, &row, row.gemm.reading});
  all.back().drops_tail = row.gemm.drops_tail;
}

/// Puts `other` where `own` is as meant. Whether both differ from that.
template <typename T>
bool clashes(T& own, const T& other, const T& meant = {}) {
  if (other == meant) return false;
  const bool both = own != meant;
  own = other;
  return both;
}

bool clashes(SideReading& own, const SideReading& other) {
  bool any = clashes(own.scales, other.scales);
  any |= clashes(own.previous_tile, other.previous_tile);
  any |= clashes(own.blocks, other.blocks);
  any |= clashes(own.place, other.place);
  any |= clashes(own.word, other.word);
  any |= clashes(own.wraps, other.wraps);
  any |= clashes(own.as_fnuz, other.as_fnuz);
  any |= clashes(own.as_other_format, other.as_other_format);
  any |= clashes(own.codes_exchanged, other.codes_exchanged);
  any |= clashes(own.row_scale_step, other.row_scale_step);
  // Two readings of the same scales are no two defects.
  const bool of_place = own.place != ScalePlace::own && (own.previous_tile || own.blocks != BlockReading::own);
  return any || of_place || (own.as_fnuz && own.as_other_format);
}

/// Both readings at once; none where they change the same.
std::optional<GemmReading> joined(GemmReading own, const GemmReading& other) {
  bool any = clashes(own.a, other.a);
  any |= clashes(own.b, other.b);
  any |= clashes(own.turned, other.turned);
  any |= clashes(own.c, other.c);
  any |= clashes(own.bias, other.bias);
  any |= clashes(own.scale_out, other.scale_out);
  any |= clashes(own.products, other.products);
  any |= clashes(own.promotion, other.promotion);
  any |= clashes(own.scaled_by, other.scaled_by);
  any |= clashes(own.stale_start, other.stale_start);
  any |= clashes(own.blocks_as_tiles, other.blocks_as_tiles);
  any |= clashes(own.rows_exchanged, other.rows_exchanged);
  any |= clashes(own.columns_exchanged, other.columns_exchanged);
  if (any) return std::nullopt;
  return own;
}

/// All of them, in the order of their costs.
const std::vector<GemmDeparture>& table() {
  static const std::vector<GemmDeparture> all = [] {
    std::vector<GemmDeparture> rows;
    const auto add = [&](const Departure& row) { add_row(rows, row); };
    for_each_departure(add);
    std::ranges::for_each(gemm_table, add);
    std::ranges::stable_sort(rows, {}, &GemmDeparture::cost);
    return rows;
  }();
  return all;
}

}  // namespace

std::span<const GemmDeparture> gemm_departures() { return table(); }
const GemmDeparture& find_gemm_departure(std::string_view name) { return find_named(table(), "departure", name); }

bool is_searched(const GemmDeparture& departure, const GemmFacts& facts) {
  const auto is_of = [&](bool numbers, bool other_layout, bool e4m3, bool other_format, bool row_scales,
                         std::size_t count) {
    return departure.row->operand.is_searched(
        {.numbers = numbers,
         .tiles = numbers && facts.tile_depth != 0,
         .blocks = facts.block != 0,
         .codes = facts.block_codes,
         .powers = facts.power_blocks,
         .e4m3 = e4m3,
         .e4m3_or_e5m2 = other_format,
         .rows = row_scales,
         .eight_rows = count > 8,
         .is_told_from_output = facts.c || facts.bias || numbers || facts.block != 0,
         .other_layout = other_layout});
  };
  if (departure.first != nullptr) return is_searched(*departure.first, facts) && is_searched(*departure.second, facts);
  if (!departure.of_a && !departure.of_b) return departure.row->gemm.is_searched(facts);
  return (!departure.of_a || is_of(facts.scales_a, facts.other_layout_a, facts.e4m3_a, facts.other_format_a,
                                   facts.row_scales_a, facts.rows)) &&
         (!departure.of_b || is_of(facts.scales_b, facts.other_layout_b, facts.e4m3_b, facts.other_format_b,
                                   facts.row_scales_b, facts.columns));
}

std::vector<const GemmDeparture*> parts_of(const GemmDeparture& departure) {
  if (departure.first == nullptr) return {&departure};
  return {departure.first, departure.second};
}

const GemmDeparture* both_departures(const GemmDeparture& first, const GemmDeparture& second) {
  static std::mutex guard;
  static std::map<std::pair<const GemmDeparture*, const GemmDeparture*>, std::optional<GemmDeparture>> all;
  const bool drops_both = first.drops_tail && second.drops_tail;
  const auto reading = joined(first.reading, second.reading);
  const std::scoped_lock lock(guard);
  auto& pair = all[{&first, &second}];
  if (pair) return &*pair;
  const bool has_two_numbers = (first.drops_tail && second.reading.products != ProductReading::own) ||
                               (second.drops_tail && first.reading.products != ProductReading::own);
  if (!reading || drops_both || has_two_numbers) return nullptr;
  pair = GemmDeparture{.name = first.name + "+" + second.name,
                       .words = first.words + "; and " + second.words,
                       .cost = first.cost + second.cost,
                       .row = first.row,
                       .reading = *reading,
                       .drops_tail = first.drops_tail || second.drops_tail,
                       .first = &first,
                       .second = &second};
  return &*pair;
}

const GemmDeparture& row_of_products(ProductReading products, PromotionReading promotion) {
  return *std::ranges::find_if(table(), [&](const GemmDeparture& one) {
    return one.reading.products == products && one.reading.promotion == promotion;
  });
}

const GemmDeparture& stale_tile() {
  return *std::ranges::find_if(table(), [](const GemmDeparture& one) { return one.reading.stale_start; });
}

const GemmDeparture& dropped_tail() { return *std::ranges::find_if(table(), &GemmDeparture::drops_tail); }

const GemmDeparture& scaled_elements(ScaledBy by) {
  return *std::ranges::find_if(table(), [&](const GemmDeparture& one) { return one.reading.scaled_by == by; });
}

std::size_t depth_with(ProductReading reading, std::size_t depth, std::size_t count, std::size_t blocks) {
  switch (reading) {
    case ProductReading::own:
    case ProductReading::descending: break;
    case ProductReading::blocks: return blocks * count;
    case ProductReading::head_missing: return depth - count;
    case ProductReading::head_twice:
    case ProductReading::tail_twice: return depth + count;
  }
  return depth;
}

const GemmReading& reading_of(const GemmDeparture* departure) {
  static constexpr GemmReading as_meant;
  return departure == nullptr ? as_meant : departure->reading;
}

}  // namespace fp8lab::doctor
