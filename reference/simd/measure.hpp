// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/reference/measure/outcome.hpp"

namespace fp8lab {

/// Sums have this many lanes on every target, so that every target gives the same bits.
inline constexpr std::size_t error_lanes = 8;

/// Sums of errors: pair i of a block is added to lane i % error_lanes.
struct ErrorLanes {
  using Lanes = std::array<double, error_lanes>;
  Lanes error{};
  Lanes absolute_error{};
  Lanes squared_error{};
  Lanes squared_reference{};
  Lanes max_absolute_error{};
  Lanes max_relative_error{};
  std::uint64_t not_finite = 0;  // pairs that were left out
};

/// The unit of ulp_error() as powers of two: those of the lowest and the highest binade, and 2^mantissa_bits.
struct UlpConstants {
  double lowest;
  double highest;
  double values_a_binade;
};

/// Bins of equal width: bin floor(x * bins_a_unit) + first_bin of `count`, which may be one too low or too high.
struct LinearConstants {
  double bins_a_unit;
  double first_bin;
  double count;
};

/// The limits of CastBounds and of finite_scaled for count_outcomes().
struct OutcomeConstants {
  double saturated_positive;
  double saturated_negative;
  double largest_scaled;  // larger magnitudes neither underflow nor saturate
};

// The functions of errors.hpp, histogram.hpp and outcome.hpp for `count` elements.
void add_error_lanes_vector(const double* actual, const double* reference, std::size_t count, ErrorLanes& lanes);
void absolute_errors_vector(const double* actual, const double* reference, std::size_t count, double* out);
void relative_errors_vector(const double* actual, const double* reference, std::size_t count, double* out);
void ulp_errors_vector(const UlpConstants& ulp, const double* actual, const double* reference, std::size_t count,
                       double* out);
void linear_slots_vector(const LinearConstants& bins, const double* values, std::size_t count, std::int32_t* slots);
void count_outcomes_vector(const OutcomeConstants& limits, const double* x, const double* scaled, const double* result,
                           std::size_t count, OutcomeCounts& counts);
void widen_vector(const float* in, std::size_t count, double* out);
void widen_vector(const Half* in, std::size_t count, double* out);
void widen_vector(const BFloat16* in, std::size_t count, double* out);

}  // namespace fp8lab
