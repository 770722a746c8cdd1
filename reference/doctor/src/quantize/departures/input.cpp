// SPDX-License-Identifier: Apache-2.0
// Departures of the input: what elements are before anything is computed with them.
#include <algorithm>
#include <array>

#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "quantize/departures/shared.hpp"
#include "quantize/named_rows.hpp"

namespace fp8lab::doctor {
namespace {

template <Narrowing narrowing>
void narrow_input(InputNarrowing& input, const Deviation& /*own*/) {
  input.elements = std::max(input.elements, narrowing);
  input.counted = std::max(input.counted, narrowing);
}

template <Narrowing narrowing>
void narrow_elements(InputNarrowing& input, const Deviation& /*own*/) {
  input.elements = std::max(input.elements, narrowing);
}

bool is_of_float16(const SearchCase& one) { return one.facts().input_type == binary16; }
bool is_of_bfloat16(const SearchCase& one) { return one.facts().input_type == bfloat16; }
bool is_not_of_float16(const SearchCase& one) { return one.facts().input_type != binary16; }
bool is_not_of_bfloat16(const SearchCase& one) { return one.facts().input_type != bfloat16; }

/// The recipe of that number.
void quantize_before(InputNarrowing& input, const Deviation& own) {
  input.earlier = &find_recipe(rows::earlier_recipes.at(own.place)).recipe;
}

constexpr auto input_table =
    of_stage(KernelStage::input,
             std::array{
                 Departure{.name = "input_float16",
                           .words = "elements are rounded to float16 first",
                           .cost = 1.0200,
                           .is_searched = is_not_of_float16,
                           .input = narrow_input<Narrowing::float16>},
                 Departure{.name = "input_bfloat16",
                           .words = "elements are rounded to bfloat16 first",
                           .cost = 1.0207,
                           .is_searched = is_not_of_bfloat16,
                           .input = narrow_input<Narrowing::bfloat16>},
                 Departure{.name = "input_flushed",
                           .words = "subnormal float32 elements are taken as zeros",
                           .cost = 1.0214,
                           .input = narrow_input<Narrowing::flushed>,
                           .plant = {.recipe = "te_mxfp8"}},
                 Departure{.name = "elements_float16",
                           .words = "elements are rounded to float16 after their amax was taken",
                           .cost = 1.0221,
                           .is_searched = is_not_of_float16,
                           .input = narrow_elements<Narrowing::float16>},
                 Departure{.name = "elements_bfloat16",
                           .words = "elements are rounded to bfloat16 after their amax was taken",
                           .cost = 1.0228,
                           .is_searched = is_not_of_bfloat16,
                           .input = narrow_elements<Narrowing::bfloat16>},
                 Departure{.name = "float16_as_bfloat16",
                           .words = "words of float16 are read as bfloat16",
                           .cost = 1.0235,
                           .is_searched = is_of_float16,
                           .input = narrow_input<Narrowing::float16_as_bfloat16>,
                           .plant = {.input_type = binary16}},
                 Departure{.name = "bfloat16_as_float16",
                           .words = "words of bfloat16 are read as float16",
                           .cost = 1.0236,
                           .is_searched = is_of_bfloat16,
                           .input = narrow_input<Narrowing::bfloat16_as_float16>,
                           .plant = {.input_type = bfloat16}},
                 Departure{.name = "input_quantized",
                           .words = "the tensor was quantized before, by",
                           .cost = 1.2,
                           .is_searched = never,
                           .details = [](TextStream& text, const Deviation& own,
                                         const Hypothesis&) { text << ' ' << rows::earlier_recipes.at(own.place); },
                           .input = quantize_before},
             });

}  // namespace

std::span<const Departure> input_departures() { return input_table; }

namespace rows {
constinit const Departure& input_quantized = row_named(input_table, "input_quantized");
}  // namespace rows

}  // namespace fp8lab::doctor
