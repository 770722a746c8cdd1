// SPDX-License-Identifier: Apache-2.0
// Departures of a GEMM: the rows that no quantization has, and those of the table for its operands.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
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
        // 4. Products.
        gemm_row("tail_dropped", "the last products are missing", 1.2, any_facts, {}, true),
        gemm_row("head_dropped", "the first products are missing", 1.21, any_facts,
                 {.products = ProductReading::head_missing}),
        gemm_row("head_twice", "the first products are added twice", 1.22, any_facts,
                 {.products = ProductReading::head_twice}),
        gemm_row("tail_twice", "the last products are added twice", 1.23, any_facts,
                 {.products = ProductReading::tail_twice}),
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
  const auto is_of = [&](bool numbers, bool other_layout, bool e4m3) {
    return departure.row->operand.is_searched({.numbers = numbers,
                                               .tiles = numbers && facts.tile_depth != 0,
                                               .blocks = facts.block != 0,
                                               .codes = facts.block_codes,
                                               .powers = facts.power_blocks,
                                               .e4m3 = e4m3,
                                               .other_layout = other_layout});
  };
  if (!departure.of_a && !departure.of_b) return departure.row->gemm.is_searched(facts);
  return (!departure.of_a || is_of(facts.scales_a, facts.other_layout_a, facts.e4m3_a)) &&
         (!departure.of_b || is_of(facts.scales_b, facts.other_layout_b, facts.e4m3_b));
}

const GemmDeparture& dropped_tail() { return *std::ranges::find_if(table(), &GemmDeparture::drops_tail); }

const GemmDeparture& scaled_elements(ScaledBy by) {
  return *std::ranges::find_if(table(), [&](const GemmDeparture& one) { return one.reading.scaled_by == by; });
}

std::size_t depth_with(ProductReading reading, std::size_t depth, std::size_t count) {
  switch (reading) {
    case ProductReading::own: break;
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
