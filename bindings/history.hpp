// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fp8lab/reference/scaling/delayed_scaling.hpp"

namespace fp8lab::bindings {

/// A history with what it needs to go on.
struct OwnedHistory {
  Delayed recipe;
  Pass pass;
  AmaxHistory state;
};

}  // namespace fp8lab::bindings
