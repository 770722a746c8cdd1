// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {

/// The effect of a cast on an element.
enum class Outcome : std::uint8_t {
  rounded,    ///< an ordinary result
  underflow,  ///< a nonzero input became zero
  saturated,  ///< a finite input beyond the largest finite value after rounding, or an infinite one
};

/// The outcome of casting `x` to `format` with `rounding`, whatever the overflow policy makes of it.
[[nodiscard]] Outcome cast_outcome(const Format& format, Rounding rounding, double x);
/// The same for every element of `x`, into `out`. Throws std::invalid_argument where the sizes differ.
void cast_outcome(const Format& format, Rounding rounding, std::span<const double> x, std::span<Outcome> out);

/// The magnitudes where cast_outcome() changes. It is Outcome::underflow for nonzero magnitudes up to `underflow` (0:
/// for none) and Outcome::saturated from `saturated` on (infinity: for no finite one).
struct OutcomeBounds {
  double underflow;
  double saturated;
};

/// The bounds of a cast. A rounding may treat positive and negative inputs differently.
struct CastBounds {
  OutcomeBounds positive;
  OutcomeBounds negative;
};
[[nodiscard]] CastBounds cast_bounds(const Format& format, Rounding rounding);

/// Counts of what a cast did to elements. A value is a zero, an infinity, a NaN or one that can underflow or saturate.
struct OutcomeCounts {
  std::uint64_t zeros = 0;
  std::uint64_t infinities = 0;
  std::uint64_t nans = 0;
  std::uint64_t underflows = 0;  ///< finite nonzero values whose result is zero
  std::uint64_t saturated = 0;   ///< the other values whose scaled value cast_outcome() calls saturated

  void merge(const OutcomeCounts& other);
  friend bool operator==(const OutcomeCounts&, const OutcomeCounts&) = default;
};

/// Which scaled values count_outcomes() counts as underflows or saturated.
enum class ScaledRange : std::uint8_t {
  all,
  finite,  ///< all but those that scaling made infinite
};

/// Counts what became of the values `x`, which were `scaled` in front of a cast with these bounds, and `result` after
/// it (in any unit: only whether it is zero counts).
///
/// Throws std::invalid_argument where the sizes differ.
void count_outcomes(const CastBounds& bounds, std::span<const double> x, std::span<const double> scaled,
                    std::span<const double> result, ScaledRange range, OutcomeCounts& counts);

}  // namespace fp8lab
