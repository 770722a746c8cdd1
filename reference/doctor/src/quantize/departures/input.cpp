// SPDX-License-Identifier: Apache-2.0
// Departures of the input: what elements are before anything is computed with them.
#include <algorithm>
#include <array>

#include "quantize/departures/shared.hpp"

namespace fp8lab::doctor {
namespace {

template <Narrowing narrowing>
void narrow_input(InputNarrowing& input) {
  input.elements = std::max(input.elements, narrowing);
  input.counted = std::max(input.counted, narrowing);
}

template <Narrowing narrowing>
void narrow_elements(InputNarrowing& input) {
  input.elements = std::max(input.elements, narrowing);
}

bool is_not_of_float16(const SearchCase& one) { return one.facts().input_type != binary16; }
bool is_not_of_bfloat16(const SearchCase& one) { return one.facts().input_type != bfloat16; }

constexpr auto input_table =
    of_stage(KernelStage::input, std::array{
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
                                 });

}  // namespace

std::span<const Departure> input_departures() { return input_table; }

}  // namespace fp8lab::doctor
