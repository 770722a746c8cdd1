// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/exact_sqnr.hpp"

#include <algorithm>
#include <boost/math/quadrature/gauss.hpp>
#include <boost/math/tools/minima.hpp>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab {
namespace {

/// The finite values, ascending, zero once.
std::vector<double> finite_values(const Format& format) {
  std::vector<double> values;
  if (format.is_signed && format.bits() <= 8) {
    for (std::uint32_t code = 0; code < 1U << format.bits(); ++code) {
      const double value = decode(format, code);
      if (std::isfinite(value)) values.push_back(value);
    }
  }
  std::ranges::sort(values);
  values.erase(std::ranges::unique(values).begin(), values.end());
  if (values.size() < 2) {
    throw std::invalid_argument(
        "an exact SQNR is defined for formats with a sign, at most 8 bits and a finite value other than zero, not for "
        "one of " +
        std::to_string(format.bits()) + " bits " + (format.is_signed ? "with" : "without") + " a sign");
  }
  return values;
}

/// Zero and the powers of two of both signs, ascending, where pieces of the integral end at the latest: so the kinks of
/// the densities (Laplace at 0, uniform at +-1) are ends, and an infinite cell or one much wider than the distribution
/// is resolved. Beyond the last one Student's t, the heaviest tail, has a share 6 * 2^-64 of its second moment.
std::vector<double> binade_ends() {
  constexpr int lowest = -16;
  constexpr int highest = 32;
  std::vector<double> ends{0};
  for (int exponent = lowest; exponent <= highest; ++exponent) {
    ends.push_back(std::ldexp(1, exponent));
    ends.push_back(-std::ldexp(1, exponent));
  }
  std::ranges::sort(ends);
  return ends;
}

/// E[(x - Q(x * scale) / scale)^2], Q to the nearest of `values`.
double mean_squared_error(const std::vector<double>& values, const Distribution& distribution, double scale) {
  checkpoint();
  // 1. A cell ends in the middle between two values; the first and the last one are infinite.
  std::vector<double> middles;
  for (std::size_t i = 1; i < values.size(); ++i) middles.push_back((values[i - 1] + values[i]) / 2 / scale);
  // 2. Pieces lie in one cell and one binade each.
  std::vector<double> ends = binade_ends();
  const double reach = ends.back();
  std::ranges::copy_if(middles, std::back_inserter(ends), [=](double x) { return std::abs(x) < reach; });
  std::ranges::sort(ends);
  // 3. Their integrals.
  double sum = 0;
  std::size_t cell = 0;
  for (std::size_t i = 1; i < ends.size(); ++i) {
    if (ends[i - 1] == ends[i]) continue;
    while (cell < middles.size() && middles[cell] <= ends[i - 1]) ++cell;
    const double rounded = values[cell] / scale;
    const auto noise = [&](double x) { return (x - rounded) * (x - rounded) * density(distribution, x); };
    sum += boost::math::quadrature::gauss<double, 20>::integrate(noise, ends[i - 1], ends[i]);
  }
  return sum;
}

double sqnr_db(const std::vector<double>& values, const Distribution& distribution, double scale) {
  return 10 * std::log10(second_moment(distribution) / mean_squared_error(values, distribution, scale));
}

/// The maxima of `sqnr`, a function of log2 of the scale, between `low` and `high` that are within 0.1 dB of the
/// highest: found on a grid of `step`, on which a maximum is off by much less than that, then refined.
template <typename Function>
std::vector<BestScale> best_maxima(const Function& sqnr, double low, double high, double step) {
  constexpr double slack = 0.1;
  constexpr int bits = std::numeric_limits<double>::digits / 2;  // a maximum is flat: more would be noise
  const auto at = [=](std::size_t i) { return low + static_cast<double>(i) * step; };
  std::vector<double> scan;
  for (std::size_t i = 0; at(i) < high; ++i) scan.push_back(sqnr(at(i)));
  const double highest = *std::ranges::max_element(scan);
  std::vector<BestScale> maxima;
  for (std::size_t i = 1; i + 1 < scan.size(); ++i) {
    if (scan[i] < highest - slack || scan[i] < scan[i - 1] || scan[i] < scan[i + 1]) continue;
    const auto [best, loss] =
        boost::math::tools::brent_find_minima([&](double x) { return -sqnr(x); }, at(i - 1), at(i + 1), bits);
    maxima.push_back({std::exp2(best), -loss});
  }
  return maxima;
}

}  // namespace

double exact_sqnr_db(const Format& format, const Distribution& distribution, double scale) {
  const DefaultEnvironment environment;
  if (!(scale > 0) || std::isinf(scale) || std::isinf(1 / scale)) {
    TextStream reason;
    reason << "scale must be positive and finite, and so must its inverse, not " << scale;
    throw std::invalid_argument(reason.str());
  }
  return sqnr_db(finite_values(format), distribution, scale);
}

BestScale best_scale(const Format& format, const Distribution& distribution) {
  const DefaultEnvironment environment;
  constexpr double tie_db = 1e-10;
  const std::vector<double> values = finite_values(format);
  const double smallest = *std::ranges::upper_bound(values, 0.0);
  const double rms = std::sqrt(second_moment(distribution));
  // Eight points from a value to the next within a binade: the ripple where a density's edge runs over the cells.
  const double step = std::ldexp(1, -3 - format.mantissa_bits);
  const auto maxima = best_maxima([&](double x) { return sqnr_db(values, distribution, std::exp2(x)); },
                                  std::log2(smallest / (4 * rms)), std::log2(4 * values.back() / rms), step);
  const double highest = std::ranges::max(maxima, {}, &BestScale::sqnr_db).sqnr_db;
  std::vector<BestScale> tied;
  std::ranges::copy_if(maxima, std::back_inserter(tied),
                       [=](const BestScale& m) { return m.sqnr_db >= highest - tie_db; });
  return tied[tied.size() / 2];
}

}  // namespace fp8lab
