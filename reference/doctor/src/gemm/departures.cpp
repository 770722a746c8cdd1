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

constexpr auto gemm_table = of_stage(
    KernelStage::gemm,
    std::array{
        // 1. What is read, or stored, as if it were the transpose.
        Departure{.name = "a_transposed",
                  .words = "a is read as if it were stored as (K, M)",
                  .cost = 1.0010,
                  .gemm = {.is_searched = any_facts, .reading = {.turned = Turned::a}}},
        Departure{.name = "b_transposed",
                  .words = "b is read as if it were stored as (K, N)",
                  .cost = 1.0012,
                  .gemm = {.is_searched = any_facts, .reading = {.turned = Turned::b}}},
        Departure{.name = "out_transposed",
                  .words = "the output is stored transposed, as (N, M)",
                  .cost = 1.0014,
                  .gemm = {.is_searched = has_sides, .reading = {.turned = Turned::out}}},
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
        // 3. What is added, and the scale of the output.
        Departure{.name = "c_missing",
                  .words = "c is not added",
                  .cost = 1.0040,
                  .gemm = {.is_searched = has_c, .reading = {.c = CReading::missing}}},
        Departure{.name = "c_transposed",
                  .words = "c is read as if it were stored as (N, M)",
                  .cost = 1.0042,
                  .gemm = {.is_searched = [](Facts facts) { return facts.c && has_sides(facts); },
                           .reading = {.c = CReading::transposed}}},
        Departure{.name = "bias_missing",
                  .words = "the bias is not added",
                  .cost = 1.0044,
                  .gemm = {.is_searched = has_bias, .reading = {.bias = BiasReading::missing}}},
        Departure{.name = "addends_missing",
                  .words = "neither c nor the bias is added",
                  .cost = 1.0046,
                  .gemm = {.is_searched = [](Facts facts) { return facts.c && facts.bias; },
                           .reading = {.c = CReading::missing, .bias = BiasReading::missing}}},
        Departure{.name = "bias_along_rows",
                  .words = "the bias is added to rows, not to columns",
                  .cost = 1.0048,
                  .gemm = {.is_searched = [](Facts facts) { return facts.bias && facts.rows <= facts.columns; },
                           .reading = {.bias = BiasReading::along_rows}}},
        Departure{.name = "bias_in_each_range",
                  .words = "every range of K adds the bias",
                  .cost = 1.0050,
                  .gemm = {.is_searched = has_bias, .reading = {.bias = BiasReading::in_each_range}}},
        Departure{.name = "scale_out_missing",
                  .words = "the scale of the output is not applied",
                  .cost = 1.0052,
                  .gemm = {.is_searched = has_scale_out, .reading = {.scale_out = ScaleReading::missing}}},
        Departure{.name = "scale_out_inverted",
                  .words = "the scale of the output divides instead of multiplying",
                  .cost = 1.0054,
                  .gemm = {.is_searched = has_scale_out, .reading = {.scale_out = ScaleReading::inverted}}},
        // 4. Products.
        Departure{.name = "tail_dropped",
                  .words = "the last products are missing",
                  .cost = 1.2,
                  .gemm = {.is_searched = any_facts, .drops_tail = true}},
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
  const auto is_of = [&](bool numbers, bool other_layout) {
    return departure.row->operand.is_searched({.numbers = numbers,
                                               .tiles = numbers && facts.tile_depth != 0,
                                               .blocks = facts.block != 0,
                                               .codes = facts.block_codes,
                                               .powers = facts.power_blocks,
                                               .other_layout = other_layout});
  };
  if (!departure.of_a && !departure.of_b) return departure.row->gemm.is_searched(facts);
  return (!departure.of_a || is_of(facts.scales_a, facts.other_layout_a)) &&
         (!departure.of_b || is_of(facts.scales_b, facts.other_layout_b));
}

const GemmDeparture& dropped_tail() { return *std::ranges::find_if(table(), &GemmDeparture::drops_tail); }

const GemmReading& reading_of(const GemmDeparture* departure) {
  static constexpr GemmReading as_meant;
  return departure == nullptr ? as_meant : departure->reading;
}

}  // namespace fp8lab::doctor
