// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab {

/// actual - reference.
[[nodiscard]] double absolute_error(double actual, double reference);
/// (actual - reference) / |reference|; 0 where both are zero, infinite or NaN where only the reference is.
[[nodiscard]] double relative_error(double actual, double reference);
/// (actual - reference) in units in the last place of `format` at the reference: the spacing of the format's values in
/// the reference's binade (the smallest spacing below the smallest normal value, the largest above the largest one).
[[nodiscard]] double ulp_error(double actual, double reference, const Format& format = binary32);

/// The same for every pair, into `out`, which may be one of the inputs. All throw std::invalid_argument where the sizes
/// differ.
void absolute_error(std::span<const double> actual, std::span<const double> reference, std::span<double> out);
void relative_error(std::span<const double> actual, std::span<const double> reference, std::span<double> out);
void ulp_error(std::span<const double> actual, std::span<const double> reference, const Format& format,
               std::span<double> out);

/// The elements of `in` as doubles, which is exact. Throws std::invalid_argument where the sizes differ.
void widen(std::span<const float> in, std::span<double> out);
void widen(std::span<const Half> in, std::span<double> out);
void widen(std::span<const BFloat16> in, std::span<double> out);

/// The pairs that ErrorTotals adds up among themselves before it adds them to what it has.
inline constexpr std::size_t error_block = 4096;

/// Running totals over pairs (actual, reference). Pairs with a NaN or an infinity are counted and left out.
///
/// Arrays are added in blocks of error_block pairs: pair i of a block to lane i % 8 of its sums, in order; then the
/// lanes as ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)); then the block's sums to the totals. Every vector target gives
/// the same bits, and so do arrays that are split at multiples of error_block, and blocks that are totals of their own
/// and merged in order.
struct ErrorTotals {
  std::uint64_t count = 0;       ///< finite pairs
  std::uint64_t not_finite = 0;  ///< pairs left out
  double sum_error = 0;
  double sum_absolute_error = 0;
  double sum_squared_error = 0;
  double sum_squared_reference = 0;
  double max_absolute_error = 0;
  double max_relative_error = 0;  ///< over nonzero references

  void add(double actual, double reference);
  void add(std::span<const double> actual, std::span<const double> reference);  ///< throws where the sizes differ
  void add(std::span<const float> actual, std::span<const float> reference);    ///< throws where the sizes differ
  void merge(const ErrorTotals& other);

  /// Whether every bit is the same.
  friend bool operator==(const ErrorTotals& a, const ErrorTotals& b) {
    using Words = std::array<std::uint64_t, sizeof(ErrorTotals) / sizeof(std::uint64_t)>;
    return std::bit_cast<Words>(a) == std::bit_cast<Words>(b);
  }

  [[nodiscard]] double mean_error() const;  ///< the bias
  [[nodiscard]] double mean_absolute_error() const;
  [[nodiscard]] double rms_error() const;
  /// Signal to quantization noise ratio, 10 log10(sum reference^2 / sum error^2) in dB; infinite without error.
  [[nodiscard]] double sqnr_db() const;
};

}  // namespace fp8lab
