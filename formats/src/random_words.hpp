// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/formats/stochastic.hpp"

namespace fp8lab {

/// A word for each of the elements from `first` on, whose lowest source.count bits are the element's random bits.
void random_words_of(const Format& format, const RandomSource& source, std::size_t first, std::span<std::uint32_t> out);

}  // namespace fp8lab
