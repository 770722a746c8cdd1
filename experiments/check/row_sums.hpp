// SPDX-License-Identifier: Apache-2.0
// Sums over the elements of a row, in one order whatever the processor: element i goes to lane i % 8, in order; then
// the lanes are added as ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fp8lab::experiments {

/// The sum of squares.
[[nodiscard]] double row_energy(std::span<const float> x);
/// The sum of the squares of back - x.
[[nodiscard]] double row_noise(std::span<const float> back, std::span<const float> x);
/// How many of back are zero where x is not.
[[nodiscard]] std::uint64_t count_zeroed(std::span<const float> back, std::span<const float> x);
/// How many codes have a magnitude, the code & mask, from 1 to `most`.
[[nodiscard]] std::uint64_t count_from_one_to(std::span<const std::uint8_t> codes, std::uint8_t mask,
                                              std::uint8_t most);
/// The largest magnitude of each run of 16 elements; the last run may have fewer.
void amaxes_of_runs(std::span<const float> x, std::span<float> out);
/// The largest magnitude that is finite, and how many are not.
struct FiniteAmax {
  float amax;
  std::uint64_t not_finite;
};
[[nodiscard]] FiniteAmax finite_amax(std::span<const float> x);

}  // namespace fp8lab::experiments
