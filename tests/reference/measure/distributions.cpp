// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/distributions.hpp"

#include <algorithm>
#include <boost/math/distributions/laplace.hpp>
#include <boost/math/distributions/lognormal.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/distributions/uniform.hpp>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Calls visit(distribution, the same of Boost.Math) for every distribution.
template <typename Visit>
void for_each_with_boost(const Visit& visit) {
  visit(find_distribution("normal"), boost::math::normal_distribution<>());
  visit(find_distribution("uniform"), boost::math::uniform_distribution<>(-1, 1));
  visit(find_distribution("laplace"), boost::math::laplace_distribution<>(0, 1 / std::numbers::sqrt2));
  visit(find_distribution("student_t"), boost::math::students_t_distribution<>(4));
  visit(find_distribution("lognormal"), boost::math::lognormal_distribution<>());
}

double relative(double actual, double expected) { return std::abs(actual - expected) / std::abs(expected); }

std::vector<float> drawn(const Distribution& distribution, std::uint64_t seed, std::uint64_t first, std::size_t n) {
  std::vector<float> x(n);
  sample(distribution, seed, first, x);
  return x;
}

}  // namespace

TEST_CASE("quantiles are those of 40-digit arithmetic") {
  struct Row {
    double p;
    double normal, laplace, student_t, lognormal;
  };
  // mpmath 1.3, at the float64 nearest to p; 0.975 and 0.9995 are the columns of the usual printed tables, and
  // 0.4999999 is where closed forms that subtract nearly equal numbers lose half of the digits.
  constexpr double at_median = -2.50662827470310651e-7;
  const std::vector<Row> rows{
      {1e-12, -7.03448382530113193, -19.0479533304474886, -1316.07274655925654, 0.000880972783446860474},
      {0.001, -3.09023230616781354, -4.39439152881116692, -7.17318221978230844, 0.0454913852476535093},
      {0.25, -0.674489750196081743, -0.490129071734273596, -0.740697084112682633, 0.509416283863277465},
      {0.3, -0.524400512708040816, -0.361208262568780051, -0.56864906304970548, 0.591910100609554125},
      {0.4999999, at_median, -1.4142137038351368e-7, -2.66666666674338794e-7, 0.999999749337203946},
      {0.75, 0.674489750196081743, 0.490129071734273596, 0.740697084112682633, 1.96303108415825707},
      {0.975, 1.95996398454005386, 2.11830260524941981, 2.77644510519779349, 7.09907138423133364},
      {0.9995, 3.29052673149192578, 4.88452060054551841, 8.61030158137952276, 26.857006361896925},
  };
  constexpr double places = 1e-14;  // some forty units in the last place of float64
  for (const Row& row : rows) {
    INFO(row.p);
    CHECK(relative(quantile(find_distribution("normal"), row.p), row.normal) < places);
    CHECK(relative(quantile(find_distribution("laplace"), row.p), row.laplace) < places);
    CHECK(relative(quantile(find_distribution("student_t"), row.p), row.student_t) < places);
    CHECK(relative(quantile(find_distribution("lognormal"), row.p), row.lognormal) < places);
    CHECK(quantile(find_distribution("uniform"), row.p) == 2 * row.p - 1);
  }
  CHECK(relative(quantile(find_distribution("normal"), 0x1p-54), -8.29236107581359554) < places);
  CHECK(relative(quantile(find_distribution("student_t"), 0x1p-54), -15247.0299022178934) < places);
}

TEST_CASE("quantile and density are those of Boost.Math's distributions, both tails") {
  for_each_with_boost([](const Distribution& distribution, const auto& boost) {
    INFO(distribution.name);
    for (double p = 0.5; p > 0x1p-54; p *= 0.7) {
      // p is about x^2 times as sensitive as x: a few units in the last place become 1e-13 in the normal's far tail.
      const double x = quantile(distribution, p);
      CHECK(relative(cdf(boost, x), p) < (distribution.family == Family::uniform ? 0x1p-53 / p : 1e-12));
      const double above = 1 - p;  // rounded, so that the tail is 1 - above
      if (above < 1) {
        const double y = quantile(distribution, above);
        CHECK(relative(cdf(complement(boost, y)), 1 - above) <
              (distribution.family == Family::uniform ? 0x1p-53 / p : 1e-12));
        CHECK(std::abs(density(distribution, y) - pdf(boost, y)) <= 1e-13 * pdf(boost, y));
      }
    }
  });
  CHECK(density(find_distribution("uniform"), 1.01) == 0);
  CHECK(density(find_distribution("lognormal"), 0) == 0);
  CHECK(density(find_distribution("lognormal"), -1) == 0);
}

TEST_CASE("quantiles are total") {
  for (const Distribution& distribution : distributions) {
    INFO(distribution.name);
    const bool bounded = distribution.family == Family::uniform;
    CHECK(quantile(distribution, 1) == (bounded ? 1 : inf));
    CHECK(quantile(distribution, 0) == (bounded ? -1 : distribution.family == Family::lognormal ? 0 : -inf));
    CHECK(quantile(distribution, 0.5) == (distribution.family == Family::lognormal ? 1 : 0));
    for (const double p : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
      CHECK(std::isnan(quantile(distribution, p)));
    }
  }
  CHECK_THROWS_WITH(find_distribution("gauss"),
                    "unknown distribution 'gauss'; known: normal, uniform, laplace, student_t, lognormal");
}

TEST_CASE("second moments are those of the textbooks") {
  CHECK(second_moment(find_distribution("normal")) == 1);
  CHECK(second_moment(find_distribution("uniform")) == 1.0 / 3);
  CHECK(second_moment(find_distribution("laplace")) == 1);
  CHECK(second_moment(find_distribution("student_t")) == 2);  // nu / (nu - 2)
  CHECK(relative(second_moment(find_distribution("lognormal")), std::exp(2.0)) < 1e-15);
}

TEST_CASE("an element of a sample is the documented function of seed and index") {
  struct Row {
    std::uint64_t seed, index;
    float normal, uniform, laplace, student_t, lognormal;
  };
  // A Python script: Philox with Random123's known answers, quantiles in mpmath. The words of the first row are those
  // of tests/kat_vectors: 6627E8D5, E169C58D.
  const std::vector<Row> rows{
      {0, 0, 0x1.2d769ep+0F, 0x1.85a716p-1F, 0x1.031f4p+0F, 0x1.61f37ap+0F, 0x1.9f8ec6p+1F},
      {0, 1, -0x1.69580ap-2F, -0x1.1a6ffap-2F, -0x1.d35654p-3F, -0x1.83beeep-2F, 0x1.67c3b8p-1F},
      {(7ULL << 32) + 5, 3, -0x1.eeb576p-2F, -0x1.7be39p-2F, -0x1.4faec6p-2F, -0x1.0b72ap-1F, 0x1.3bd5p-1F},
      {(7ULL << 32) + 5, (1ULL << 32) + 3, -0x1.c50c5cp-1F, -0x1.3f5e7ep-1F, -0x1.61e914p-1F, -0x1.fd3a34p-1F,
       0x1.a6adb4p-2F},
  };
  for (const Row& row : rows) {
    const auto is = [&](std::string_view name, float expected) {
      const float actual = drawn(find_distribution(name), row.seed, row.index, 1).front();
      INFO(name << ' ' << row.seed << ' ' << row.index << ' ' << actual);
      // A last place of the math library's sine or logarithm may decide the rounding to float32.
      return std::abs(actual - expected) <= 0x1p-23F * std::abs(expected);
    };
    CHECK(is("normal", row.normal));
    CHECK(is("uniform", row.uniform));
    CHECK(is("laplace", row.laplace));
    CHECK(is("student_t", row.student_t));
    CHECK(is("lognormal", row.lognormal));
  }
}

TEST_CASE("pieces make the same sample, seeds another") {
  for (const Distribution& distribution : distributions) {
    INFO(distribution.name);
    const std::uint64_t start = (1ULL << 32) - 100;  // across the word border of the counter
    const auto whole = drawn(distribution, 17, start, 1000);
    std::vector<float> pieces(1000);
    for (const std::size_t first : {617, 0, 1, 250}) {
      const std::size_t last = first == 617 ? 1000 : first == 0 ? 1 : first == 1 ? 250 : 617;
      sample(distribution, 17, start + first, std::span(pieces).subspan(first, last - first));
    }
    CHECK(pieces == whole);
    CHECK(drawn(distribution, 18, start, 1000) != whole);
    CHECK(drawn(distribution, 17 + (1ULL << 32), start, 1000) != whole);
    CHECK(drawn(distribution, 17, 0, 0).empty());
  }
}

TEST_CASE("samples follow their distribution") {
  constexpr std::size_t n = 1 << 17;
  for_each_with_boost([](const Distribution& distribution, const auto& boost) {
    INFO(distribution.name);
    auto x = drawn(distribution, 2, 0, n);
    std::ranges::sort(x);
    double distance = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double p = cdf(boost, static_cast<double>(x[i]));
      const auto rank = static_cast<double>(i);
      distance = std::max({distance, (rank + 1) / n - p, p - rank / n});
    }
    // Dvoretzky, Kiefer, Wolfowitz, with Massart's constant: more has a probability of 2 exp(-2 n d^2) = 1e-9.
    CHECK(distance < std::sqrt(std::log(2e9) / (2 * n)));
  });
}

TEST_CASE("samples have their distribution's moments") {
  constexpr std::size_t n = 1 << 17;
  struct Row {
    std::string_view name;
    int power;  // of |x|
    double mean, variance;
  };
  // E|x|^k and its variance in closed form. Student's x^2 has no variance, so its |x| is taken: E|x| = 1, E x^2 = 2.
  const double e = std::numbers::e;
  for (const Row& row : {Row{"normal", 2, 1, 2}, Row{"uniform", 2, 1.0 / 3, 4.0 / 45}, Row{"laplace", 2, 1, 5},
                         Row{"student_t", 1, 1, 1}, Row{"lognormal", 1, std::sqrt(e), e * e - e}}) {
    INFO(row.name);
    double sum = 0;
    for (const float x : drawn(find_distribution(row.name), 3, 0, n)) sum += std::pow(std::abs(x), row.power);
    CHECK(std::abs(sum / n - row.mean) < 5 * std::sqrt(row.variance / n));  // five standard errors
  }
}

TEST_CASE("the normal grid is the documented sequence") {
  // numpy: norm.ppf((arange(n) + 0.5) / n).astype(float32)[argsort(keys, kind="stable")].
  std::vector<float> five(5);
  normal_grid(five);
  const std::vector<float> expected_five{-1.2815516F, -0.52440053F, 1.2815516F, 0.52440053F, 0};
  CHECK(five == expected_five);
  CHECK_FALSE(std::signbit(five.back()));
  std::vector<float> eight(8);
  normal_grid(eight);
  const std::vector<float> expected_eight{-1.5341206F, -0.88714653F, 0.15731068F,  1.5341206F,
                                          0.48877642F, 0.88714653F,  -0.15731068F, -0.48877642F};
  CHECK(eight == expected_eight);
  normal_grid({});
}

TEST_CASE("the normal grid of 2^20 has the extremes, the order and the blocks of its definition") {
  std::vector<float> x(1 << 20);
  normal_grid(x);
  CHECK(*std::ranges::max_element(x) == 4.9009643F);  // quantile of 1 - 2^-21
  CHECK(*std::ranges::min_element(x) == -4.9009643F);
  CHECK(std::vector(x.begin(), x.begin() + 3) == std::vector{-1.562741F, -0.01806963F, 1.394461F});
  // By numpy: two of the 269 pairs of equal keys, which stay in the order of i, and two of keys that differ in the last
  // bit only, where a shift by 34 would do that.
  const auto pair_at = [&](std::size_t i) { return std::vector{x[i], x[i + 1]}; };
  CHECK(pair_at(850) == std::vector{-1.273255F, -0.15062332F});
  CHECK(pair_at(11581) == std::vector{-1.4375583F, 0.7064521F});
  CHECK(pair_at(1720) == std::vector{1.4462994F, -1.4483707F});
  CHECK(pair_at(3283) == std::vector{0.021954985F, -1.5946385F});
  // MX with E4M3 and the scale floor(log2(amax)) - 8 clips the blocks of 32 whose amax has a significand above 1.75.
  // Which blocks there are depends on the order: 5,560 of 32,768 by numpy.
  int clipped = 0;
  for (auto block = x.begin(); block != x.end(); block += 32) {
    float amax = 0;
    for (auto i = block; i != block + 32; ++i) amax = std::max(amax, std::abs(*i));
    int exponent = 0;
    clipped += std::frexp(amax, &exponent) * 2 > 1.75F ? 1 : 0;
  }
  CHECK(clipped == 5560);
}

}  // namespace fp8lab::tests
