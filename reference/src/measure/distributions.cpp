// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/distributions.hpp"

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/measure/random.hpp"

namespace fp8lab {
namespace {

using std::numbers::sqrt2;
using std::numbers::sqrt3;

/// The z > 0 that N(0, 1) exceeds with probability `tail` <= 1/2.
double normal_tail(double tail) {
  namespace policies = boost::math::policies;
  // Boost's approximations are good to double's last places; promoting to long double would only cost time.
  using Fast = policies::policy<policies::promote_double<false>, policies::overflow_error<policies::ignore_error>>;
  return sqrt2 * boost::math::erfc_inv(2 * tail, Fast());
}

/// The t > 0 that Student's t with 4 degrees of freedom exceeds with probability `tail` <= 1/2.
///
/// With s = t / sqrt(4 + t^2) the distribution function is 1/2 + (3 s - s^3) / 4, so 3 s - s^3 = 2 (1 - 2 tail), which
/// s = 2 sin(a) turns into sin(3 a) = 1 - 2 tail. The usual closed form (Shaw, "Sampling Student's T distribution",
/// Journal of Computational Finance 9(4), 2006, which Boost.Math follows) cancels near the median.
double student_tail(double tail) {
  double s = 0;
  double gap = 0;  // 1 - s
  if (tail < 0.25) {
    // a = pi/6 - b: the gap is computed, not left over, for it makes the tail.
    const double b = 2 * std::asin(std::sqrt(tail)) / 3;
    const double half = std::sin(b / 2);
    gap = 2 * half * half + sqrt3 * std::sin(b);
    s = 1 - gap;
  } else {
    s = 2 * std::sin(std::asin(1 - 2 * tail) / 3);
    gap = 1 - s;
  }
  return 2 * s / std::sqrt(gap * (1 + s));
}

/// The 53 random bits of element i of a stream.
std::uint64_t bits_of_element(std::uint64_t seed, std::uint64_t i) {
  const auto words = philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0},
                                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return (std::uint64_t{words[1]} << 32 | words[0]) >> 11;
}

/// The quantile of `tail` <= 1/2 or, where `upper`, of 1 - tail.
double tail_quantile(Family family, double tail, bool upper) {
  const double side = upper ? 1 : -1;
  switch (family) {
    case Family::normal: return side * normal_tail(tail);
    case Family::uniform: return side * (1 - 2 * tail);
    case Family::laplace: return side * -std::log(2 * tail) / sqrt2;
    case Family::student_t: return side * student_tail(tail);
    case Family::lognormal: return std::exp(side * normal_tail(tail));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double density_of(Family family, double x) {
  constexpr double normal_peak = std::numbers::inv_sqrtpi / sqrt2;
  switch (family) {
    case Family::normal: return normal_peak * std::exp(-x * x / 2);
    case Family::uniform: return std::abs(x) < 1 ? 0.5 : 0;
    case Family::laplace: return std::exp(-sqrt2 * std::abs(x)) / sqrt2;
    case Family::student_t: {
      const double w = 1 + x * x / 4;
      return 0.375 / (w * w * std::sqrt(w));
    }
    case Family::lognormal: {
      if (!(x > 0)) return 0;
      const double z = std::log(x);
      return normal_peak * std::exp(-z * z / 2) / x;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double quantile_of(Family family, double p) {
  if (std::isnan(p) || p < 0 || p > 1) return std::numeric_limits<double>::quiet_NaN();
  const bool upper = p >= 0.5;
  return tail_quantile(family, upper ? 1 - p : p, upper);
}

}  // namespace

const Distribution& find_distribution(std::string_view name) { return find_named(distributions, "distribution", name); }

double density(const Distribution& distribution, double x) {
  return by_default_arithmetic([&] { return density_of(distribution.family, x); });
}

double quantile(const Distribution& distribution, double p) {
  return by_default_arithmetic([&] { return quantile_of(distribution.family, p); });
}

double second_moment(const Distribution& distribution) {
  switch (distribution.family) {
    case Family::normal: return 1;
    case Family::uniform: return 1.0 / 3;
    case Family::laplace: return 1;
    case Family::student_t: return 2;
    case Family::lognormal: return std::numbers::e * std::numbers::e;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void sample(const Distribution& distribution, std::uint64_t seed, std::uint64_t first, std::span<float> out) {
  const DefaultEnvironment environment;
  constexpr std::uint64_t last = (std::uint64_t{1} << 53) - 1;
  for (std::size_t j = 0; j < out.size(); ++j) {
    checkpoint(j);
    const std::uint64_t u = bits_of_element(seed, first + j);
    // u + 1/2 needs 54 bits in the upper half; its distance from the nearer end never does.
    const bool upper = u > last / 2;
    const double tail = (static_cast<double>(upper ? last - u : u) + 0.5) * 0x1p-53;
    out[j] = static_cast<float>(tail_quantile(distribution.family, tail, upper));
  }
}

void sample_uniform(double low, double high, std::uint64_t seed, std::uint64_t first, std::span<float> out) {
  const DefaultEnvironment environment;
  constexpr double most = std::numeric_limits<float>::max();
  if (!(low < high) || low < -most || high > most) {
    TextStream reason;
    reason << "a uniform distribution needs low < high, both finite in float32, not " << low << " and " << high;
    throw std::invalid_argument(reason.str());
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    checkpoint(j);
    const double p = (static_cast<double>(bits_of_element(seed, first + j)) + 0.5) * 0x1p-53;
    out[j] = static_cast<float>(low + (high - low) * p);
  }
}

void normal_grid(std::span<float> out) {
  const DefaultEnvironment environment;
  struct Keyed {
    std::uint32_t key;
    float x;
  };
  const std::size_t n = out.size();
  std::vector<Keyed> grid;
  grid.reserve(n);
  std::uint64_t state = 12345;
  for (std::size_t i = 0; i < n; ++i) {
    checkpoint(i);
    state = 6364136223846793005U * state + 1442695040888963407U;
    const bool upper = i >= n / 2;
    const double tail = (static_cast<double>(upper ? n - 1 - i : i) + 0.5) / static_cast<double>(n);
    const double x = tail_quantile(Family::normal, tail, upper);
    grid.push_back({static_cast<std::uint32_t>(state >> 33), static_cast<float>(x)});
  }
  std::size_t comparisons = 0;
  const auto is_before = [&](const Keyed& a, const Keyed& b) {
    checkpoint(++comparisons);
    return a.key < b.key;
  };
  std::ranges::stable_sort(grid, is_before);
  std::ranges::transform(grid, out.begin(), &Keyed::x);
}

}  // namespace fp8lab
