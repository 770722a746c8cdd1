// SPDX-License-Identifier: Apache-2.0
// Names what the factors of a dot product are drawn from: a distribution, or its magnitudes.
#pragma once

#include <string>
#include <string_view>

#include "fp8lab/reference/measure/distributions.hpp"

namespace fp8lab::experiments {

/// Where the factors of a dot product come from: draws of sample(), or their magnitudes.
struct FactorDraws {
  Distribution distribution;
  bool magnitudes = false;

  /// The distribution's name, with "abs_" before it for magnitudes: abs_uniform is U(0, 1).
  [[nodiscard]] std::string name() const;
  /// Whether all factors have one sign, so that |error| / sum |products| is the relative error.
  [[nodiscard]] bool has_one_sign() const;
};
/// The draws with that name(). Throws std::invalid_argument that lists the known names.
[[nodiscard]] FactorDraws choose_factor_draws(std::string_view name);

}  // namespace fp8lab::experiments
