// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {}  // namespace

TEST_CASE("error measures on values worked out by hand") {
  CHECK(absolute_error(1.5, 2) == -0.5);
  CHECK(relative_error(1.5, -2) == 1.75);
  CHECK(relative_error(0, 0) == 0);
  CHECK(ulp_error(1 + 0x1p-22, 1) == 2);
  CHECK(ulp_error(1, 1.25, e4m3) == -2);   // spacing 1/8 in [1, 2)
  CHECK(ulp_error(0x1p-9, 0, e4m3) == 1);  // smallest spacing around zero
  CHECK(ulp_error(448, 464, e4m3) == -0.5);
  CHECK(ulp_error(448, 1e6, e4m3) == (448 - 1e6) / 32);  // above the top binade, its spacing
  ErrorTotals totals;
  const std::vector<float> actual{1, 2, 4, nan, 1};
  const std::vector<float> reference{1, 1, 5, 1, inf};
  totals.add(actual, reference);
  CHECK(totals.count == 3);
  CHECK(totals.not_finite == 2);
  CHECK(totals.mean_error() == 0);
  CHECK(totals.mean_absolute_error() == 2.0 / 3);
  CHECK(totals.rms_error() == std::sqrt(2.0 / 3));
  CHECK(totals.max_relative_error == 1);
  CHECK(totals.sqnr_db() == 10 * std::log10(27.0 / 2));
  ErrorTotals merged;
  merged.add(2, 1);
  merged.merge(totals);
  CHECK(merged.count == 4);
  CHECK(merged.sum_squared_error == 3);
  CHECK(std::isinf(ErrorTotals{}.sqnr_db()));
  CHECK_THROWS_WITH(totals.add(std::span(actual).first(2), reference), "actual has 2 elements, reference 5");
}

TEST_CASE("every value is counted exactly once") {
  for (const Bins& bins :
       {Bins{LinearBins{-1, 1, 7}}, Bins{LogBins{1e-3, 1e3, 12}}, Bins{BinadeBins{-4, 4}}, Bins{CodeBins{e4m3}}}) {
    Histogram all(bins);
    Histogram parts[2]{Histogram(bins), Histogram(bins)};
    for (std::uint64_t i = 0; i < 20000; ++i) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(4, i)));
      all.add(x);
      parts[i % 2].add(x);
    }
    for (const float x : {0.0F, -0.0F, inf, -inf, nan}) all.add(x), parts[0].add(x);
    all.add(1, Outcome::underflow), parts[1].add(1, Outcome::underflow);
    all.add(1, Outcome::saturated), parts[1].add(1, Outcome::saturated);
    CHECK(all.total() == 20007);
    CHECK(all.zeros == 2);
    CHECK(all.infinities >= 2);
    CHECK(all.nans >= 1);
    CHECK(all.underflows == 1);
    CHECK(all.saturations == 1);
    parts[0].merge(parts[1]);
    CHECK(parts[0].counts() == all.counts());
    CHECK(parts[0].total() == all.total());
    CHECK(parts[0].below == all.below);
  }
}

TEST_CASE("values fall into the bins that their edges say") {
  Histogram linear(LinearBins{0, 1, 4});
  for (const double x : {0.1, 0.25, 0.999, 1.0, -0.1}) linear.add(x);
  CHECK(linear.counts() == std::vector<std::uint64_t>{1, 1, 0, 1});
  CHECK(linear.above == 1);
  CHECK(linear.below == 1);
  Histogram binades(BinadeBins{-1, 1});
  for (const double x : {0.5, -0.75, 1.0, 3.99, 4.0, 0.49}) binades.add(x);
  CHECK(binades.counts() == std::vector<std::uint64_t>{2, 1, 1});
  CHECK(binades.edges() == std::vector<double>{0.5, 1, 2, 4});
  Histogram decades(LogBins{1, 1000, 3});
  for (const double x : {1.0, 9.9, -10.1, 999.0}) decades.add(x);
  CHECK(decades.counts() == std::vector<std::uint64_t>{2, 1, 1});
  Histogram codes(CodeBins{e4m3});
  for (const double x : {1.0, -1.0, 448.0, 1e9}) codes.add(x);
  CHECK(codes.counts()[0x38] == 1);
  CHECK(codes.counts()[0xB8] == 1);
  CHECK(codes.counts()[0x7E] == 2);
  CHECK(to_csv(linear) ==
        "low,high,count\n0,0.25,1\n0.25,0.5,1\n0.5,0.75,0\n0.75,1,1\nzeros,,0\ninfinities,,0\nnans,,0\nbelow,,1\nabove,"
        ",1\n"
        "underflows,,0\nsaturations,,0\n");
}

TEST_CASE("cast outcomes: what underflows, what saturates") {
  CHECK(cast_outcome(e4m3, Rounding::nearest_even, 0x1p-10F) == Outcome::underflow);
  CHECK(cast_outcome(e4m3, Rounding::nearest_even, 0x1.000002p-10F) == Outcome::rounded);
  CHECK(cast_outcome(e4m3, Rounding::upward, 1e-30F) == Outcome::rounded);
  CHECK(cast_outcome(e4m3, Rounding::nearest_even, 464) == Outcome::rounded);
  CHECK(cast_outcome(e4m3, Rounding::nearest_even, -465) == Outcome::saturated);
  CHECK(cast_outcome(e5m2, Rounding::nearest_even, 61439) == Outcome::rounded);
  CHECK(cast_outcome(e5m2, Rounding::nearest_even, 61440) == Outcome::saturated);
  CHECK(cast_outcome(e5m2, Rounding::nearest_even, inf) == Outcome::saturated);
  CHECK(cast_outcome(e5m2, Rounding::nearest_even, 0) == Outcome::rounded);
  CHECK(cast_outcome(e5m2, Rounding::nearest_even, nan) == Outcome::rounded);
  CHECK(cast_outcome(e8m0, Rounding::nearest_even, 0x1p-149F) == Outcome::rounded);
}

TEST_CASE("bins that make no sense are refused") {
  CHECK_THROWS_WITH(Histogram(LinearBins{1, 1, 3}), ContainsSubstring("low < high"));
  CHECK_THROWS_WITH(Histogram(LinearBins{0, 1, 0}), ContainsSubstring("count from 1"));
  CHECK_THROWS_WITH(Histogram(LogBins{0, 1, 3}), ContainsSubstring("0 < low"));
  CHECK_THROWS_WITH(Histogram(BinadeBins{3, 2}), ContainsSubstring("lowest <= highest"));
  CHECK_THROWS_WITH(Histogram(CodeBins{binary32}), ContainsSubstring("at most 16 bits"));
  CHECK_THROWS_WITH(Histogram(LinearBins{-1.7e308, 1.7e308, 4}), ContainsSubstring("a finite range"));
  Histogram codes(CodeBins{e4m3});
  CHECK_THROWS_WITH(codes.merge(Histogram(CodeBins{e5m2})), ContainsSubstring("different bins"));
  Histogram a(LinearBins{0, 1, 3});
  CHECK_THROWS_WITH(a.merge(Histogram(LinearBins{0, 1, 4})), ContainsSubstring("different bins"));
}

TEST_CASE("histograms and totals that were saved are equal to what they were") {
  Histogram own(LinearBins{-1, 1, 4});
  for (const double value : {-0.9, 0.3, 0.3, 0.0, 2.0}) own.add(value);
  Histogram saved(own.bins());
  saved.set_counts(own.counts());
  CHECK(!(saved == own));
  saved.zeros = 1;
  saved.above = 1;
  CHECK(saved == own);
  CHECK_THROWS_WITH(saved.set_counts(std::vector<std::uint64_t>(3)), "there must be 4 counts, one a bin, not 3");
  ErrorTotals totals;
  totals.add(1.5, 1);
  ErrorTotals same = totals;
  CHECK(same == totals);
  same.max_relative_error = -0.0;
  ErrorTotals zero = same;
  zero.max_relative_error = 0;
  CHECK(!(same == zero));  // every bit
  zero.sum_error = same.sum_error = std::nan("");
  zero.max_relative_error = -0.0;
  CHECK(same == zero);
}

}  // namespace fp8lab::tests
