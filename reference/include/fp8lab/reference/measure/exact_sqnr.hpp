// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fp8lab/formats/format.hpp"
#include "fp8lab/reference/measure/distributions.hpp"

namespace fp8lab {

/// The signal to quantization noise ratio of a cast of a continuous distribution, in dB, without sampling:
/// 10 log10(E[x^2] / E[(x - Q(x * scale) / scale)^2]), Q to the format's nearest value (a tie has probability zero),
/// saturating beyond the largest one.
///
/// The error is integrated over the cell of each value, the inputs that round to it, by Gauss-Legendre quadrature of 20
/// points on pieces of at most a binade; relative error of the ratio below 1e-9. x is real: the roundings of a float32
/// x * scale, some 100 dB further down, are not counted. The scale that maps amax to the format's largest value is
/// largest / amax.
///
/// Throws std::invalid_argument where the format has no sign, more than 8 bits or no finite value but zero, or the
/// scale or its inverse is not positive and finite.
[[nodiscard]] double exact_sqnr_db(const Format& format, const Distribution& distribution, double scale);

/// A scale and the SQNR in dB that it gives.
struct BestScale {
  double scale;
  double sqnr_db;
};

/// The scale of the highest exact_sqnr_db.
///
/// There is a local maximum about every binade, because the values repeat. The scales from where the root mean square
/// is a quarter of the smallest positive value to where it is four times the largest are scanned, and the best maxima
/// refined (Brent). In a wide format many maxima agree to 1e-10 dB, neither underflow nor saturation in sight: of those
/// the middle one is returned, the upper of two. Throws as exact_sqnr_db does.
[[nodiscard]] BestScale best_scale(const Format& format, const Distribution& distribution);

}  // namespace fp8lab
