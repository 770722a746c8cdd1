// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/outcome.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/round_pack.hpp"
#include "fp8lab/formats/unpack.hpp"
#include "measure/check.hpp"
#include "simd/measure.hpp"

namespace fp8lab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The least magnitude, 0 and infinity among them, for which `holds`, which then holds for all above it.
template <typename Holds>
double least_magnitude(const Holds& holds) {
  std::uint64_t low = 0;
  auto high = std::bit_cast<std::uint64_t>(infinity);
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (holds(std::bit_cast<double>(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::bit_cast<double>(low);
}

OutcomeBounds bounds_of(const Format& format, Rounding rounding, double sign) {
  const auto is = [&](Outcome outcome, double magnitude) {
    return cast_outcome(format, rounding, sign * magnitude) == outcome;
  };
  const double above = least_magnitude([&](double x) { return x != 0 && !is(Outcome::underflow, x); });
  return {.underflow = std::nextafter(above, 0.0),
          .saturated = least_magnitude([&](double x) { return is(Outcome::saturated, x); })};
}

void count_outcomes_scalar(const OutcomeConstants& limits, const double* x, const double* scaled, const double* result,
                           std::size_t count, OutcomeCounts& counts) {
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isnan(x[i])) {
      ++counts.nans;
    } else if (std::isinf(x[i])) {
      ++counts.infinities;
    } else if (x[i] == 0) {
      ++counts.zeros;
    } else if (std::abs(scaled[i]) <= limits.largest_scaled) {
      if (result[i] == 0) {
        ++counts.underflows;
      } else if (scaled[i] >= limits.saturated_positive || scaled[i] <= -limits.saturated_negative) {
        ++counts.saturated;
      }
    }
  }
}

}  // namespace

Outcome cast_outcome(const Format& format, Rounding rounding, double x) {
  const Unpacked input = unpack(x);
  if (input.kind == Kind::infinite) return Outcome::saturated;
  if (input.kind != Kind::finite) return Outcome::rounded;
  // Overflow is what the two overflow policies treat differently; without a special code to tell it by, compare values.
  Format wider = format;
  wider.specials = Specials::none;
  ++wider.exponent_bits;
  const std::uint64_t code =
      round_pack(wider, {.rounding = rounding}, input.negative, input.exponent, input.significand);
  const std::uint64_t magnitude = code & wider.magnitude_mask();
  if (magnitude == 0 && format.has_subnormals) return Outcome::underflow;
  return magnitude > format.max_code() ? Outcome::saturated : Outcome::rounded;
}

CastBounds cast_bounds(const Format& format, Rounding rounding) {
  return {.positive = bounds_of(format, rounding, 1), .negative = bounds_of(format, rounding, -1)};
}

void cast_outcome(const Format& format, Rounding rounding, std::span<const double> x, std::span<Outcome> out) {
  const DefaultEnvironment environment;
  check_same_size("x", x.size(), "out", out.size());
  const CastBounds bounds = cast_bounds(format, rounding);
  for (std::size_t i = 0; i < x.size(); ++i) {
    checkpoint(i);
    const OutcomeBounds& own = std::signbit(x[i]) ? bounds.negative : bounds.positive;
    const double magnitude = std::abs(x[i]);
    const bool is_underflow = magnitude != 0 && magnitude <= own.underflow;
    out[i] = magnitude >= own.saturated ? Outcome::saturated : Outcome::rounded;
    if (is_underflow) out[i] = Outcome::underflow;
  }
}

void OutcomeCounts::merge(const OutcomeCounts& other) {
  zeros += other.zeros;
  infinities += other.infinities;
  nans += other.nans;
  underflows += other.underflows;
  saturated += other.saturated;
}

void count_outcomes(const CastBounds& bounds, std::span<const double> x, std::span<const double> scaled,
                    std::span<const double> result, ScaledRange range, OutcomeCounts& counts) {
  const DefaultEnvironment environment;
  check_same_size("x", x.size(), "scaled", scaled.size());
  check_same_size("x", x.size(), "result", result.size());
  const OutcomeConstants limits{
      .saturated_positive = bounds.positive.saturated,
      .saturated_negative = bounds.negative.saturated,
      .largest_scaled = range == ScaledRange::all ? infinity : std::numeric_limits<double>::max()};
  const auto add = vector_code_allowed() ? &count_outcomes_vector : &count_outcomes_scalar;
  for_each_piece(x.size(), [&](std::size_t first, std::size_t count) {
    add(limits, x.data() + first, scaled.data() + first, result.data() + first, count, counts);
  });
}

}  // namespace fp8lab
