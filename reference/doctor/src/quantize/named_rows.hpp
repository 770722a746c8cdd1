// SPDX-License-Identifier: Apache-2.0
// The departures that searches look for by themselves, because a dump suggests them and their numbers.
#pragma once

#include "quantize/departure.hpp"

namespace fp8lab::doctor::rows {

// departures/amax.cpp
extern const Departure& amax_of_first;
extern const Departure& amax_of_last;
extern const Departure& amax_of_first_elements;
extern const Departure& amax_times;
// departures/scale.cpp
extern const Departure& largest_of_value;
extern const Departure& scale_nearest_power;
extern const Departure& scale_times;
extern const Departure& tensor_scale_stale;
extern const Departure& tensor_scale_given;
// departures/used_scale.cpp
extern const Departure& scale_row_stride;
extern const Departure& scale_as_stored;
extern const Departure& tiles_as_stored;
extern const Departure& tile_scales_given;
extern const Departure& scale_stale;
// departures/place.cpp
extern const Departure& codes_unwritten;
// departures/stored.cpp
extern const Departure& stored_end_unwritten;

}  // namespace fp8lab::doctor::rows
