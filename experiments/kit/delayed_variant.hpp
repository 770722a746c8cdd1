// SPDX-License-Identifier: Apache-2.0
// Names delayed scaling of one format, as the results of experiments show it.
#pragma once

#include <string>

#include "fp8lab/reference/scaling/delayed_scaling.hpp"

namespace fp8lab::experiments {

/// A recipe of delayed scaling, for the format of one pass.
struct DelayedVariant {
  Delayed recipe;
  Pass pass;  ///< whose format the scales are for

  /// Such as "te_current max 16", with " e5m2" after it where that is the format.
  [[nodiscard]] std::string name() const;
};

}  // namespace fp8lab::experiments
