// SPDX-License-Identifier: Apache-2.0
// The departures that the search itself refers to: those about scales that follow from nothing or are given, and codes
// of which none was written.
#pragma once

#include "quantize/departure.hpp"

namespace fp8lab::doctor::rows {

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
