// SPDX-License-Identifier: Apache-2.0
// What a wrong GEMM does otherwise: the table.
#include <array>

#include "fp8lab/formats/named.hpp"
#include "gemm/hypotheses.hpp"

namespace fp8lab::doctor {
namespace {

using Facts = const GemmFacts&;

bool always(Facts /*facts*/) { return true; }
bool sides(Facts facts) { return facts.rows > 1 && facts.columns > 1; }
bool any_scale_a(Facts facts) { return facts.scales_a || facts.block != 0; }
bool any_scale_b(Facts facts) { return facts.scales_b || facts.block != 0; }
bool any_scales(Facts facts) { return (facts.scales_a && facts.scales_b) || facts.block != 0; }
bool number_a(Facts facts) { return facts.scales_a || facts.power_blocks; }
bool number_b(Facts facts) { return facts.scales_b || facts.power_blocks; }
bool numbers(Facts facts) { return (facts.scales_a && facts.scales_b) || facts.power_blocks; }
bool tiles_a(Facts facts) { return (facts.scales_a && facts.tile_depth != 0) || facts.block_codes; }
bool tiles_b(Facts facts) { return (facts.scales_b && facts.tile_depth != 0) || facts.block_codes; }
bool tiles(Facts facts) { return (facts.scales_a && facts.scales_b && facts.tile_depth != 0) || facts.block_codes; }
bool number_over_blocks_a(Facts facts) { return facts.scales_a && facts.block_codes; }
bool number_over_blocks_b(Facts facts) { return facts.scales_b && facts.block_codes; }
bool numbers_over_blocks(Facts facts) { return facts.scales_a && facts.scales_b && facts.block_codes; }
bool layout_a(Facts facts) { return facts.other_layout_a; }
bool layout_b(Facts facts) { return facts.other_layout_b; }
bool layouts(Facts facts) { return facts.other_layout_a && facts.other_layout_b; }
bool c(Facts facts) { return facts.c; }
bool c_of_sides(Facts facts) { return facts.c && sides(facts); }
bool bias(Facts facts) { return facts.bias; }
bool c_and_bias(Facts facts) { return facts.c && facts.bias; }
bool bias_for_rows(Facts facts) { return facts.bias && facts.rows <= facts.columns; }
bool scale_out(Facts facts) { return facts.scale_out != 1; }

// How the scales of a side are read.
constexpr SideReading missing{.scales = ScaleReading::missing, .blocks = BlockReading::missing};
constexpr SideReading twice{.scales = ScaleReading::twice, .blocks = BlockReading::squared};
constexpr SideReading inverted{.scales = ScaleReading::inverted, .blocks = BlockReading::inverted};
constexpr SideReading previous{.previous_tile = true, .blocks = BlockReading::previous};
constexpr SideReading number_missing{.scales = ScaleReading::missing};
constexpr SideReading blocks_missing{.blocks = BlockReading::missing};
constexpr SideReading other_layout{.blocks = BlockReading::other_layout};

constexpr int usual_cost = 100;

constexpr std::array table{
    GemmDeparture{
        "a_transposed", "a is read as if it were stored as (K, M)", usual_cost, always, {.turned = Turned::a}},
    GemmDeparture{
        "b_transposed", "b is read as if it were stored as (K, N)", usual_cost, always, {.turned = Turned::b}},
    GemmDeparture{
        "out_transposed", "the output is stored transposed, as (N, M)", usual_cost, sides, {.turned = Turned::out}},
    GemmDeparture{"scale_a_missing", "the scale of a is not applied", usual_cost, any_scale_a, {.a = missing}},
    GemmDeparture{"scale_b_missing", "the scale of b is not applied", usual_cost, any_scale_b, {.b = missing}},
    GemmDeparture{"scales_missing", "no scale is applied", usual_cost, any_scales, {.a = missing, .b = missing}},
    GemmDeparture{"scale_a_twice", "the scale of a is applied twice", usual_cost, number_a, {.a = twice}},
    GemmDeparture{"scale_b_twice", "the scale of b is applied twice", usual_cost, number_b, {.b = twice}},
    GemmDeparture{"scales_twice", "both scales are applied twice", usual_cost, numbers, {.a = twice, .b = twice}},
    GemmDeparture{
        "scale_a_inverted", "the scale of a divides instead of multiplying", usual_cost, number_a, {.a = inverted}},
    GemmDeparture{
        "scale_b_inverted", "the scale of b divides instead of multiplying", usual_cost, number_b, {.b = inverted}},
    GemmDeparture{"scales_inverted",
                  "both scales divide instead of multiplying",
                  usual_cost,
                  numbers,
                  {.a = inverted, .b = inverted}},
    GemmDeparture{"scale_a_of_previous_tile",
                  "the scale of a is that of the previous tile along K, or block",
                  usual_cost,
                  tiles_a,
                  {.a = previous}},
    GemmDeparture{"scale_b_of_previous_tile",
                  "the scale of b is that of the previous tile along K, or block",
                  usual_cost,
                  tiles_b,
                  {.b = previous}},
    GemmDeparture{"scales_of_previous_tile",
                  "both scales are those of the previous tile along K, or block",
                  usual_cost,
                  tiles,
                  {.a = previous, .b = previous}},
    GemmDeparture{"tensor_scale_a_missing",
                  "the scale of the tensor or row of a is not applied, those of its blocks are",
                  usual_cost,
                  number_over_blocks_a,
                  {.a = number_missing}},
    GemmDeparture{"tensor_scale_b_missing",
                  "the scale of the tensor or row of b is not applied, those of its blocks are",
                  usual_cost,
                  number_over_blocks_b,
                  {.b = number_missing}},
    GemmDeparture{"tensor_scales_missing",
                  "the scales of both tensors or rows are not applied, those of blocks are",
                  usual_cost,
                  numbers_over_blocks,
                  {.a = number_missing, .b = number_missing}},
    GemmDeparture{"block_scales_a_missing",
                  "the scales of the blocks of a are not applied, that of its tensor or row is",
                  usual_cost,
                  number_over_blocks_a,
                  {.a = blocks_missing}},
    GemmDeparture{"block_scales_b_missing",
                  "the scales of the blocks of b are not applied, that of its tensor or row is",
                  usual_cost,
                  number_over_blocks_b,
                  {.b = blocks_missing}},
    GemmDeparture{"block_scales_missing",
                  "the scales of blocks are not applied, those of tensors or rows are",
                  usual_cost,
                  numbers_over_blocks,
                  {.a = blocks_missing, .b = blocks_missing}},
    GemmDeparture{"scale_layout_a",
                  "the block scales of a are read in the other layout, swizzled or compact",
                  usual_cost,
                  layout_a,
                  {.a = other_layout}},
    GemmDeparture{"scale_layout_b",
                  "the block scales of b are read in the other layout, swizzled or compact",
                  usual_cost,
                  layout_b,
                  {.b = other_layout}},
    GemmDeparture{"scale_layouts",
                  "the block scales of both are read in the other layout, swizzled or compact",
                  usual_cost,
                  layouts,
                  {.a = other_layout, .b = other_layout}},
    GemmDeparture{"c_missing", "c is not added", usual_cost, c, {.c = CReading::missing}},
    GemmDeparture{"c_transposed",
                  "c is read as if it were stored as (N, M)",
                  usual_cost,
                  c_of_sides,
                  {.c = CReading::transposed}},
    GemmDeparture{"bias_missing", "the bias is not added", usual_cost, bias, {.bias = BiasReading::missing}},
    GemmDeparture{"addends_missing",
                  "neither c nor the bias is added",
                  usual_cost,
                  c_and_bias,
                  {.c = CReading::missing, .bias = BiasReading::missing}},
    GemmDeparture{"bias_along_rows",
                  "the bias is added to rows, not to columns",
                  usual_cost,
                  bias_for_rows,
                  {.bias = BiasReading::along_rows}},
    GemmDeparture{
        "bias_in_each_range", "every range of K adds the bias", usual_cost, bias, {.bias = BiasReading::in_each_range}},
    GemmDeparture{"scale_out_missing",
                  "the scale of the output is not applied",
                  usual_cost,
                  scale_out,
                  {.scale_out = ScaleReading::missing}},
    GemmDeparture{"scale_out_inverted",
                  "the scale of the output divides instead of multiplying",
                  usual_cost,
                  scale_out,
                  {.scale_out = ScaleReading::inverted}},
    GemmDeparture{"tail_dropped", "the last products are missing", usual_cost + 20, always, {}, true}};

}  // namespace

std::span<const GemmDeparture> gemm_departures() { return table; }
const GemmDeparture& find_gemm_departure(std::string_view name) { return find_named(table, "departure", name); }

const GemmDeparture& dropped_tail() { return table.back(); }

const GemmReading& reading_of(const GemmDeparture* departure) {
  static constexpr GemmReading as_meant;
  return departure == nullptr ? as_meant : departure->reading;
}

}  // namespace fp8lab::doctor
