// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/exact_sqnr.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>
#include <vector>

#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// The partial moments of x^0, x^1, x^2 over (a, infinity), a >= 0, in closed form.
std::array<double, 3> moments_above(Family family, double a) {
  constexpr double root2 = std::numbers::sqrt2;
  const auto normal_above = [](double z) { return std::erfc(z / root2) / 2; };
  switch (family) {
    case Family::normal: {
      const double peak = std::exp(-a * a / 2) / std::sqrt(2 * std::numbers::pi);
      return {normal_above(a), peak, a * peak + normal_above(a)};
    }
    case Family::uniform: {
      const double b = std::min(a, 1.0);
      return {(1 - b) / 2, (1 - b * b) / 4, (1 - b * b * b) / 6};
    }
    case Family::laplace: {
      const double tail = std::exp(-root2 * a) / 2;
      return {tail, tail * (a + 1 / root2), tail * (a * a + root2 * a + 1)};
    }
    case Family::student_t: {
      // x = 2 s / sqrt(1 - s^2) makes the density times dx 3/4 (1 - s^2) ds; g = 1 - s cancels nowhere.
      const double w = 1 + a * a / 4;
      const double g = 1 / (w * (1 + a / std::sqrt(4 + a * a)));
      return {(3 - g) * g * g / 4, std::pow(w, -1.5) / 2, g * (3 - 3 * g + g * g)};
    }
    case Family::lognormal: {
      const double z = std::log(a);
      return {normal_above(z), std::exp(0.5) * normal_above(z - 1), std::exp(2.0) * normal_above(z - 2)};
    }
  }
  return {};
}

/// What an implementation could do wrong.
enum class FormulaDefect { none, no_saturating_cell, ends_at_codes };

/// The positive values from the definition of the formats: fraction, field, bias; no code of fp8lab's.
std::vector<double> values_from_zero(const Format& format, double largest) {
  std::vector<double> values;
  const int steps = 1 << format.mantissa_bits;
  for (int magnitude = 0;; ++magnitude) {
    const int field = magnitude / steps;
    const int significand = magnitude % steps + (field > 0 ? steps : 0);
    const double value = std::ldexp(significand, std::max(field, 1) - format.bias - format.mantissa_bits);
    if (value > largest) return values;
    values.push_back(value);
  }
}

/// The SQNR from closed-form partial moments: an error (x - v)^2 over a cell is m2 - 2 v m1 + v^2 m0. Both signs are
/// alike, or there is only one.
double closed_form_db(const Format& format, double largest, Family family, double scale,
                      FormulaDefect defect = FormulaDefect::none) {
  const auto values = values_from_zero(format, largest);
  double noise = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double v = values[i] / scale;
    const bool last = i + 1 == values.size();
    if (last && defect == FormulaDefect::no_saturating_cell) break;
    const double share = defect == FormulaDefect::ends_at_codes ? 1 : 0.5;
    const auto low = moments_above(family, i == 0 ? 0 : v - share * (v - values[i - 1] / scale));
    const auto high =
        last ? std::array<double, 3>{} : moments_above(family, v + (1 - share) * (values[i + 1] / scale - v));
    noise += low[2] - high[2] - 2 * v * (low[1] - high[1]) + v * v * (low[0] - high[0]);
  }
  return 10 * std::log10(moments_above(family, 0)[2] / noise);
}

/// Exact SQNRs in dB, four decimals: 40-digit sums of the partial moments in mpmath, and known before this library.
struct Published {
  std::string_view format;
  double largest;
  std::array<double, 3> normal;   // at scale 1, amax = 6 sigma, amax = 4 sigma
  std::array<double, 3> laplace;  // the same
  double uniform;                 // amax = 1
};
const std::vector<Published> published{
    {"e4m3", 448, {31.5211, 31.5202, 31.5087}, {31.5366, 30.4443, 23.8293}, 31.8657},
    {"e5m2", 57344, {25.5430, 25.5392, 25.5622}, {25.5592, 25.2787, 22.1723}, 25.8451},
    {"e2m3", 7.5, {28.3011, 29.5120, 30.7678}, {27.9356, 28.5293, 23.6602}, 32.1388},
    {"e3m2", 28, {25.4580, 25.5383, 25.5619}, {25.4298, 25.2773, 22.1721}, 25.8451},
    {"e2m1", 6, {16.3443, 16.3443, 18.3471}, {16.0575, 16.0575, 17.3136}, 19.1532},
};
constexpr double four_decimals = 0.51e-4;

/// How many of the 35 published numbers sqnr(format, largest, family, scale) misses.
template <typename Sqnr>
int misses(const Sqnr& sqnr) {
  int count = 0;
  for (const Published& row : published) {
    const Format& format = find_format(row.format).format;
    const auto check = [&](Family family, double scale, double expected) {
      if (!(std::abs(sqnr(format, row.largest, family, scale) - expected) <= four_decimals)) ++count;
    };
    const std::array scales{1.0, row.largest / 6, row.largest / 4};
    for (std::size_t i = 0; i < scales.size(); ++i) {
      check(Family::normal, scales[i], row.normal[i]);
      check(Family::laplace, scales[i], row.laplace[i]);
    }
    check(Family::uniform, row.largest, row.uniform);
  }
  return count;
}

const Distribution& of(Family family) { return *std::ranges::find(distributions, family, &Distribution::family); }

}  // namespace

TEST_CASE("exact_sqnr_db gives the 35 known numbers, four decimals") {
  CHECK(misses([](const Format& format, double, Family family, double scale) {
          return exact_sqnr_db(format, of(family), scale);
        }) == 0);
}

TEST_CASE("the known numbers tell a wrong implementation") {
  const auto with = [](FormulaDefect defect) {
    return misses([=](const Format& format, double largest, Family family, double scale) {
      return closed_form_db(format, largest, family, scale, defect);
    });
  };
  CHECK(with(FormulaDefect::none) == 0);
  CHECK(with(FormulaDefect::no_saturating_cell) > 20);
  CHECK(with(FormulaDefect::ends_at_codes) == 35);
}

TEST_CASE("quadrature equals the closed forms, whatever saturates or underflows") {
  struct Named {
    Format format;
    double largest;
  };
  for (const Named& named : {Named{e4m3, 448}, Named{e5m2, 57344}, Named{e2m1, 6}, Named{e3m4, 15.5},
                             Named{e4m3fnuz, 240}, Named{e5m2fnuz, 57344}}) {
    for (const Distribution& distribution : distributions) {
      for (const double amax : {1e-3, 0.03, 0.7, 1.0, 3.3, 17.0, 1e3, 1e6}) {
        const double scale = named.largest / amax;
        INFO(distribution.name << ' ' << named.largest << ' ' << amax);
        // Both lose single digits of sixteen; 1e-9 dB is far above that and far below any slip of a formula.
        CHECK(std::abs(exact_sqnr_db(named.format, distribution, scale) -
                       closed_form_db(named.format, named.largest, distribution.family, scale)) < 1e-9);
      }
    }
  }
}

TEST_CASE("at scales beyond all reason everything saturates or vanishes: 0 dB") {
  for (const Distribution& distribution : distributions) {
    INFO(distribution.name);
    for (const double scale : {1e-30, 1e30, 1e-300, 1e300}) {
      CHECK(std::abs(exact_sqnr_db(e5m2, distribution, scale)) < 1e-8);
    }
  }
}

TEST_CASE("best_scale finds the highest of many maxima") {
  // 40-digit golden section in mpmath: 31.5567850214594 dB at 49.0745 for E4M3; 25.5821553048479 dB for E5M2
  // at 12.39349 times a power of two, of which those from 2^-5 to 2^9 differ in the eleventh decimal at most: 2^2 is
  // the middle.
  const BestScale four = best_scale(e4m3, find_distribution("normal"));
  CHECK(std::abs(four.sqnr_db - 31.5567850214594) < 1e-8);
  CHECK(std::abs(four.scale / 49.0744866903 - 1) < 1e-5);  // a maximum is flat: 1e-5 of the scale is 1e-10 dB
  const BestScale five = best_scale(e5m2, find_distribution("normal"));
  CHECK(std::abs(five.sqnr_db - 25.5821553048480) < 1e-8);
  CHECK(std::abs(five.scale / 12.3934905837 / 4 - 1) < 1e-5);
  // Known before this library, from a coarser search.
  CHECK(std::abs(exact_sqnr_db(e4m3, find_distribution("normal"), 48.82) - 31.5568) < 1e-3);
  CHECK(std::abs(exact_sqnr_db(e5m2, find_distribution("normal"), 12.34) - 25.5821) < 1e-3);
}

TEST_CASE("no scale of a fine scan is better than best_scale") {
  for (const Distribution& distribution : distributions) {
    const BestScale best = best_scale(e2m1, distribution);
    INFO(distribution.name << ' ' << best.scale << ' ' << best.sqnr_db);
    CHECK(best.sqnr_db == exact_sqnr_db(e2m1, distribution, best.scale));
    double highest = -std::numeric_limits<double>::infinity();
    for (double log2_scale = -16; log2_scale < 8; log2_scale += 0.003) {
      highest = std::max(highest, closed_form_db(e2m1, 6, distribution.family, std::exp2(log2_scale)));
    }
    CHECK(highest <= best.sqnr_db + 1e-8);
    CHECK(highest >= best.sqnr_db - 1e-3);
  }
}

TEST_CASE("a cast of the normal grid has the exact SQNR") {
  // The grid is the midpoint rule for integrals over p, n = 2^20: by Koksma's inequality off by at most V / (2 n), V
  // the variation of the integrand. The squared error of a cell goes from h^2 to 0 and back, h half the spacing. Scale
  // 1: 8 cells to a binade and sign, h = 1/4 in [4, 8), 1/8 in [2, 4) and so on: V < 2 * 16 * (1/16 + 1/64 + ...) =
  // 8/3, so 1.3e-6 of a noise of 7.0e-4: 0.008 dB. A scale from amax moves every h by less than a binade, hence at most
  // 4 times that. x^2 itself: its variation up to the last x is 2 * 4.9^2, beyond it E[x^2; |x| > 4.9] < 3e-5: below
  // 1e-3 dB.
  std::vector<float> x(1 << 20);
  normal_grid(x);
  std::vector<float> rounded(x.size());
  const auto sampled = [&](double scale) {
    cast_to_representable(e4m3, CastPolicy{}, x, scale, rounded);
    ErrorTotals totals;
    totals.add(rounded, x);
    return totals.sqnr_db();
  };
  CHECK(std::abs(sampled(1) - exact_sqnr_db(e4m3, find_distribution("normal"), 1)) < 0.008 + 0.001);
  const double scale = 448 / 4.9009643;
  CHECK(std::abs(sampled(scale) - exact_sqnr_db(e4m3, find_distribution("normal"), scale)) < 4 * 0.008 + 0.001);
}

TEST_CASE("what has no exact SQNR is refused") {
  const Distribution& normal = find_distribution("normal");
  CHECK_THROWS_WITH(exact_sqnr_db(binary16, normal, 1),
                    ContainsSubstring("at most 8 bits") && ContainsSubstring("not for one of 16 bits with a sign"));
  CHECK_THROWS_WITH(best_scale(e8m0, normal), ContainsSubstring("not for one of 8 bits without a sign"));
  CHECK_THROWS_WITH(best_scale(Format{1, 0, 0}, normal), ContainsSubstring("a finite value other than zero"));
  for (const double scale :
       {0.0, -1.0, 1e-320, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_WITH(exact_sqnr_db(e4m3, normal, scale), ContainsSubstring("scale must be positive and finite"));
  }
}

}  // namespace fp8lab::tests
