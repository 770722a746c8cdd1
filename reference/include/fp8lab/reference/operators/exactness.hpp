// SPDX-License-Identifier: Apache-2.0
// What of the operators is a device's every bit, and how far the rest is from the exact value of its formula.
#pragma once

#include <span>
#include <string_view>

namespace fp8lab {

/// A function and, where it has several, its case.
struct Exactness {
  std::string_view function;
  std::string_view name;  ///< of an activation, or empty
  bool exact;             ///< every bit is the kernel's of Transformer Engine 2.20, as nvcc 13.0 compiles it for sm_90
  std::string_view why;   ///< not, or what is unknown
  /// The largest distance of the unrounded float32 result from the exact value of the formula, in units of that value's
  /// last place; and the share of E4M3 codes that differ where the exact value is encoded instead, with the scale of
  /// the tensor's amax. A device differs from the exact value likewise, by its own functions and order of sums. 0 where
  /// exact.
  double ulps = 0;
  double flips = 0;
  /// At most this share of the codes is another on a device whose functions keep the errors that CUDA documents: 2
  /// units of the last place, and 2 + floor(|1.173 x|) for __expf(x). Each other operation may be rounded otherwise,
  /// and sums have any order. 0 where exact.
  double device_flips = 0;
  std::string_view draws = {};  ///< on what both were measured
};

/// Whether every bit is a Hopper chip's with Functions::hopper: by the words of an H200 for norms (16 to 16384
/// columns, with gradients), for the functions that activations are made of, for Adam and l2norm().
[[nodiscard]] bool is_exact_on_hopper(const Exactness& row);

/// A row for each function, measured by tests/reference/operators/exactness.cpp against 50 digits.
[[nodiscard]] std::span<const Exactness> exactness();

}  // namespace fp8lab
