// SPDX-License-Identifier: Apache-2.0
// What check does to elements, many at a time. Sums have one order on every processor: element i goes to lane i % 8, in
// order; then the lanes are added as ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab::experiments {

/// The precision that magnitudes are rounded to: that of a format with subnormals, whatever its largest value.
struct RoundedPrecision {
  float smallest_normal = 0;   ///< of the format
  std::uint32_t spacings = 0;  ///< powers of two from a binade to the number whose ulp is the binade's spacing, << 23
};
/// A cast to a format with sign and subnormals, to nearest even, where larger magnitudes become the largest value.
struct SaturatingCast {
  float largest;  ///< of the format
  RoundedPrecision format;
  bool divides;         ///< elements are divided by their factor
  bool rounds_product;  ///< products or quotients are rounded to another type first
  RoundedPrecision product;
};
/// `product` is binary32, binary16 or bfloat16.
[[nodiscard]] SaturatingCast saturating_cast(const Format& format, bool divides, const Format& product);

/// What a cast makes of the elements of a row.
struct RowLoss {
  double noise = 0;             ///< the sum of the squares of what comes back less the element
  std::uint64_t zeroed = 0;     ///< nonzero elements that come back as zero
  std::uint64_t subnormal = 0;  ///< codes below the smallest normal value, zero excluded
};
/// The loss of a row of magnitudes, where element i meets factor i / tile and its code multiplier i / tile. Signs
/// change nothing. Precondition: elements over factors are finite.
[[nodiscard]] RowLoss row_loss(const SaturatingCast& cast, std::span<const float> magnitudes, std::size_t tile,
                               std::span<const float> factors, std::span<const float> multipliers);

/// Magnitudes in float32; those of infinities and NaNs are not finite.
void magnitudes_of(std::span<const float> x, std::span<float> out);
void magnitudes_of(std::span<const Half> x, std::span<float> out);
void magnitudes_of(std::span<const BFloat16> x, std::span<float> out);

/// The sum of the squares of back - x.
[[nodiscard]] double row_noise(std::span<const float> back, std::span<const float> x);
/// The sum of squares; and the largest magnitude of each run of 16 elements, not finite where an element is not. The
/// last run may have fewer.
[[nodiscard]] double energy_and_amaxes(std::span<const float> x, std::span<float> amaxes);
inline constexpr std::size_t run_length = 16;
/// The largest magnitude that is finite, and how many are not.
struct FiniteAmax {
  float amax;
  std::uint64_t not_finite;
};
[[nodiscard]] FiniteAmax finite_amax(std::span<const float> x);
[[nodiscard]] FiniteAmax finite_amax(std::span<const BFloat16> x);

}  // namespace fp8lab::experiments
