// SPDX-License-Identifier: Apache-2.0
// A special function of a word, for callers that already have the default arithmetic.
#pragma once

#include <cstdint>

#include "fp8lab/reference/units/special_function.hpp"

namespace fp8lab {

/// As special_function().
[[nodiscard]] std::uint32_t special_word(SpecialUnits units, SpecialFunction function, Subnormals subnormals,
                                         std::uint32_t word);

}  // namespace fp8lab
