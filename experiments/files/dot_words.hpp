// SPDX-License-Identifier: Apache-2.0
// Dot products as codes and words, which files record and experiments compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::experiments {

/// Codes of operands, one a word (TF32's 19 bits in the low end), or words of accumulators.
using Codes = std::vector<std::uint64_t>;
/// Codes of block scales.
using Scales = std::vector<std::uint8_t>;

/// Dot products of K products each: codes and scales row by row.
struct Dots {
  Format format_a, format_b;
  std::size_t k = 0;
  Codes a = {}, b = {};
  Scales scale_a = {}, scale_b = {};
  Codes c = {};  ///< words of the accumulator

  [[nodiscard]] std::size_t count() const { return c.size(); }
};

}  // namespace fp8lab::experiments
