// SPDX-License-Identifier: Apache-2.0
// The departures that the search itself refers to: those about scales that follow from nothing or are given, and codes
// of which none was written.
#pragma once

#include <array>
#include <string_view>

#include "quantize/departure.hpp"

namespace fp8lab::doctor::rows {

// departures/input.cpp
extern const Departure& input_quantized;
/// The recipes by which a tensor may have been quantized before, by number.
inline constexpr std::array<std::string_view, 5> earlier_recipes{"te_current_scaling", "vllm_per_tensor",
                                                                 "vllm_per_token", "deepseek_v3_2024", "te_mxfp8"};
// departures/scale.cpp
extern const Departure& tensor_scale_stale;
extern const Departure& tensor_scale_given;
// departures/used_scale.cpp
extern const Departure& scale_as_stored;
extern const Departure& tiles_as_stored;
extern const Departure& tile_scales_given;
extern const Departure& scale_stale;
// departures/place.cpp
extern const Departure& codes_unwritten;

}  // namespace fp8lab::doctor::rows
