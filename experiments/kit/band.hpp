// SPDX-License-Identifier: Apache-2.0
// A large tensor is measured in bands of rows, so that what its codes stand for is never in memory as a whole.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab::experiments {

/// How many rows a band of these has, which are the same tensor quantized in several ways: about `elements` elements,
/// but whole blocks of all of them.
[[nodiscard]] std::size_t rows_of_bands(std::initializer_list<const Quantized*> all, std::size_t elements);

/// Rows [first, first + rows) of a quantized tensor as one of their own. `first` is a multiple of rows_of_bands(), and
/// so is `rows`, unless they reach to the end.
void take_band(const Quantized& q, std::size_t first, std::size_t rows, Quantized& band);

}  // namespace fp8lab::experiments
