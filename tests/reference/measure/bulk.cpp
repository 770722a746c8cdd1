// SPDX-License-Identifier: Apache-2.0
// What measures arrays gives what the functions of one pair or value give, on every vector target: these are the
// definition.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "fp8lab/reference/measure/outcome.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using Doubles = std::vector<double>;
constexpr double huge = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// Corners of double and of float, and the neighbours of powers of two and of ten.
Doubles corners() {
  Doubles all{0, huge, no_number, 0x1p-1074, 0x1p-1022, std::numeric_limits<double>::max(), 1e-300, 1e300};
  for (const double base :
       {0x1p-149, 0x1p-126, 1e-8, 1e-3, 0.1, 0.25, 1.0, 3.0, 10.0, 448.0, 464.0, 1e4, 57344.0, 0x1p127}) {
    for (const double x : {base, std::nextafter(base, 0.0), std::nextafter(base, huge)}) all.push_back(x);
  }
  const std::size_t positive = all.size();
  for (std::size_t i = 0; i < positive; ++i) all.push_back(-all[i]);
  return all;
}

/// Corners, numbers like errors in units in the last place, floats and doubles of random bits.
Doubles sample_of(std::size_t size, std::uint64_t seed) {
  const Doubles some = corners();
  Doubles all(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint64_t word = random_bits(seed, i);
    switch (word % 4) {
      case 0: all[i] = some[word / 4 % some.size()]; break;
      case 1: all[i] = static_cast<double>(static_cast<std::int64_t>(word)) * 0x1p-62; break;
      case 2: all[i] = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(word >> 32))); break;
      case 3: all[i] = std::bit_cast<double>(random_bits(seed + 1, i)); break;
    }
  }
  return all;
}

std::uint64_t word_of(double x) { return std::isnan(x) ? 0x7FF8000000000000U : std::bit_cast<std::uint64_t>(x); }

void require_equal(const Doubles& actual, const Doubles& expected, const std::string& what) {
  Mismatches mismatches;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    mismatches.compare(i, expected[i], word_of(actual[i]), word_of(expected[i]), what.c_str());
  }
  REQUIRE_NO(mismatches);
}

/// Sizes around those of vectors, blocks and pieces.
const std::array<std::size_t, 12> sizes{0, 1, 2, 7, 8, 9, 31, 4095, 4096, 4097, 20000, 70001};

const std::vector<Bins>& all_bins() {
  static const std::vector<Bins> all{LinearBins{-1, 1, 64},
                                     LinearBins{-4, 4, 64},
                                     LinearBins{0, 1, 100},
                                     LinearBins{-1, 1, 7},
                                     LinearBins{0.1, 0.7, 3},
                                     LinearBins{-1e300, 1e300, 10},
                                     LinearBins{0, 0x1p-1070, 5},
                                     LinearBins{1e16, 1e16 + 8, 1000},  // edges that coincide
                                     LinearBins{-3, 448, 5000},
                                     LogBins{1e-8, 1e4, 96},
                                     LogBins{1e-3, 1e3, 12},
                                     LogBins{1, 1.0000001, 40},
                                     LogBins{0x1p-1070, 1e300, 64},
                                     LogBins{0.1, 10, 1000},
                                     BinadeBins{-149, 127},
                                     BinadeBins{-40, 20},
                                     BinadeBins{-1074, 1023},
                                     BinadeBins{-1022, 1023},
                                     BinadeBins{-1, 1},
                                     CodeBins{e4m3},
                                     CodeBins{bfloat16}};
  return all;
}

}  // namespace

TEST_CASE("errors of arrays are those of their pairs, on every target") {
  const UnforceTarget unforce;
  for (const std::size_t size : sizes) {
    const Doubles actual = sample_of(size, 1);
    Doubles reference = sample_of(size, 7);
    for (std::size_t i = 0; i < size; i += 5) reference[i] = actual[i];
    Doubles expected(size);
    Doubles result(size);
    const auto check = [&](const std::string& what, const auto& one, const auto& all) {
      std::ranges::transform(actual, reference, expected.begin(), one);
      for (const std::string_view target : targets()) {
        force_target(target);
        all();
        require_equal(result, expected, what + " on " + std::string(target));
      }
    };
    check(
        "absolute", [](double a, double r) { return absolute_error(a, r); },
        [&] { absolute_error(actual, reference, result); });
    check(
        "relative", [](double a, double r) { return relative_error(a, r); },
        [&] { relative_error(actual, reference, result); });
    for (const Format& format : {e4m3, e5m2, e2m1, e8m0, e5m2fnuz, binary16, binary32, binary64}) {
      check(
          "ulp", [&](double a, double r) { return ulp_error(a, r, format); },
          [&] { ulp_error(actual, reference, format, result); });
    }
  }
}

TEST_CASE("totals of arrays are the documented sums, on every target and for every split at blocks") {
  const UnforceTarget unforce;
  for (const std::size_t size : sizes) {
    // 1. Float errors, so that no sum is infinite; some pairs are left out.
    std::vector<float> actual(size);
    std::vector<float> reference(size);
    for (std::size_t i = 0; i < size; ++i) {
      reference[i] = static_cast<float>(static_cast<std::int64_t>(random_bits(3, i))) * 0x1p-60F;
      actual[i] = reference[i] + static_cast<float>(static_cast<std::int64_t>(random_bits(4, i))) * 0x1p-66F;
      if (random_bits(5, i) % 16 == 0) actual[i] = nan;
      if (random_bits(5, i) % 16 == 1) reference[i] = random_bits(6, i) % 2 == 0 ? 0 : -inf;
    }
    // 2. By the words of errors.hpp.
    ErrorTotals expected;
    for (std::size_t first = 0; first < size; first += error_block) {
      std::array<ErrorTotals, 8> lane;
      for (std::size_t i = first; i < std::min(size, first + error_block); ++i) {
        lane[(i - first) % 8].add(static_cast<double>(actual[i]), static_cast<double>(reference[i]));
      }
      for (const auto& [a, b] : {std::pair{0, 4}, {2, 6}, {0, 2}, {1, 5}, {3, 7}, {1, 3}, {0, 1}}) {
        lane[static_cast<std::size_t>(a)].merge(lane[static_cast<std::size_t>(b)]);
      }
      expected.merge(lane[0]);
    }
    // 3. At once, split, and by blocks.
    const std::span<const float> a(actual);
    const std::span<const float> r(reference);
    for (const std::string_view target : targets()) {
      CAPTURE(size, target);
      force_target(target);
      ErrorTotals all;
      all.add(a, r);
      CHECK(all == expected);
      ErrorTotals split;
      const std::size_t cut = std::min(size, error_block);
      split.add(a.first(cut), r.first(cut));
      split.add(a.subspan(cut), r.subspan(cut));
      CHECK(split == expected);
      ErrorTotals merged;
      for (std::size_t first = 0; first < size; first += error_block) {
        ErrorTotals block;
        const std::size_t count = std::min(error_block, size - first);
        block.add(a.subspan(first, count), r.subspan(first, count));
        merged.merge(block);
      }
      CHECK(merged == expected);
    }
  }
}

TEST_CASE("totals of arrays of any doubles count and compare as pairs do, on every target") {
  const UnforceTarget unforce;
  const Doubles actual = sample_of(70001, 1);
  const Doubles reference = sample_of(70001, 7);
  ErrorTotals expected;
  for (std::size_t i = 0; i < actual.size(); ++i) expected.add(actual[i], reference[i]);
  for (const std::string_view target : targets()) {
    CAPTURE(target);
    force_target(target);
    ErrorTotals all;
    all.add(std::span<const double>(actual), std::span<const double>(reference));
    CHECK(all.count == expected.count);
    CHECK(all.not_finite == expected.not_finite);
    CHECK(all.max_absolute_error == expected.max_absolute_error);
    CHECK(all.max_relative_error == expected.max_relative_error);
  }
}

TEST_CASE("histograms of arrays count what histograms of their values count, on every target") {
  const UnforceTarget unforce;
  for (const Bins& bins : all_bins()) {
    const Histogram empty(bins);
    for (const std::size_t size : sizes) {
      // Edges and their neighbours, at which bins begin.
      Doubles values = sample_of(size, 11);
      for (std::size_t i = 0; i < size; i += 3) {
        const double edge = empty.edges()[random_bits(12, i) % empty.edges().size()];
        values[i] = i % 2 == 0 ? edge : std::nextafter(edge, i % 4 == 1 ? -huge : huge);
        if (i % 9 == 0) values[i] = -values[i];
      }
      std::vector<float> floats(size);
      std::ranges::transform(values, floats.begin(), [](double x) { return static_cast<float>(x); });
      Histogram expected(bins);
      Histogram expected_floats(bins);
      for (const double x : values) expected.add(x);
      for (const float x : floats) expected_floats.add(static_cast<double>(x));
      for (const std::string_view target : targets()) {
        CAPTURE(bins.index(), empty.counts().size(), size, target);
        force_target(target);
        Histogram all(bins);
        all.add(std::span<const double>(values));
        CHECK(all == expected);
        Histogram all_floats(bins);
        all_floats.add(std::span<const float>(floats));
        CHECK(all_floats == expected_floats);
      }
      force_target("");
    }
  }
}

TEST_CASE("codes of arrays are counted as codes are") {
  std::vector<std::uint8_t> bytes(70001);
  std::vector<std::uint16_t> words(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(words[i] = static_cast<std::uint16_t>(random_bits(1, i)));
  Histogram expected(CodeBins{e4m3});
  Histogram expected_words(CodeBins{bfloat16});
  for (const std::uint8_t code : bytes) expected.add_code(code);
  for (const std::uint16_t code : words) expected_words.add_code(code);
  Histogram all(CodeBins{e4m3});
  Histogram all_words(CodeBins{bfloat16});
  all.add_codes(bytes);
  all_words.add_codes(words);
  CHECK(all == expected);
  CHECK(all_words == expected_words);
}

TEST_CASE("outcomes of arrays are those of their elements, on every target") {
  const UnforceTarget unforce;
  for (const NamedFormat& named : named_formats) {
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero,
                                    Rounding::upward, Rounding::downward, Rounding::to_odd}) {
      CAPTURE(named.name, static_cast<int>(rounding));
      const CastBounds bounds = cast_bounds(named.format, rounding);
      Doubles x = sample_of(997, 21);
      for (const OutcomeBounds& side : {bounds.positive, bounds.negative}) {
        for (const double edge : {side.underflow, side.saturated}) {
          for (const double y : {edge, std::nextafter(edge, 0.0), std::nextafter(edge, huge)})
            x.insert(x.end(), {y, -y});
        }
      }
      std::vector<Outcome> expected;
      for (const double y : x) expected.push_back(cast_outcome(named.format, rounding, y));
      std::vector<Outcome> outcomes(x.size());
      cast_outcome(named.format, rounding, x, outcomes);
      CHECK(outcomes == expected);
      Histogram one(BinadeBins{-20, 20});
      for (std::size_t i = 0; i < x.size(); ++i) one.add(x[i], expected[i]);
      Histogram all(BinadeBins{-20, 20});
      all.add(x, outcomes);
      CHECK(all == one);
      // Counted: what the scaled value gives, where the value is a number that can underflow or saturate.
      Doubles scaled = x;
      std::ranges::rotate(scaled, scaled.begin() + 3);
      Doubles result = x;
      for (std::size_t i = 0; i < result.size(); i += 4) result[i] = 0;
      for (const ScaledRange range : {ScaledRange::all, ScaledRange::finite}) {
        OutcomeCounts counts;
        for (std::size_t i = 0; i < x.size(); ++i) {
          counts.nans += std::isnan(x[i]) ? 1 : 0;
          counts.infinities += std::isinf(x[i]) ? 1 : 0;
          counts.zeros += x[i] == 0 ? 1 : 0;
          if (!std::isfinite(x[i]) || x[i] == 0 || std::isnan(scaled[i])) continue;
          if (range == ScaledRange::finite && std::isinf(scaled[i])) continue;
          const bool saturates = cast_outcome(named.format, rounding, scaled[i]) == Outcome::saturated;
          counts.underflows += result[i] == 0 ? 1 : 0;
          counts.saturated += result[i] != 0 && saturates ? 1 : 0;
        }
        for (const std::string_view target : targets()) {
          force_target(target);
          OutcomeCounts counted;
          count_outcomes(bounds, x, scaled, result, range, counted);
          CHECK(counted == counts);
        }
        force_target("");
      }
    }
  }
}

TEST_CASE("every half and bfloat16 is widened as it decodes, on every target") {
  const UnforceTarget unforce;
  std::vector<Half> halves(65536);
  std::vector<BFloat16> bfloats(65536);
  std::vector<float> floats(65537);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    halves[i].bits = bfloats[i].bits = static_cast<std::uint16_t>(i);
    floats[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(1, i)));
  }
  for (const std::string_view target : targets()) {
    force_target(target);
    Doubles expected(65536);
    Doubles result(65536);
    std::ranges::transform(halves, expected.begin(),
                           [](Half x) { return static_cast<double>(decode(binary16, x.bits)); });
    widen(halves, result);
    require_equal(result, expected, "halves");
    std::ranges::transform(bfloats, expected.begin(),
                           [](BFloat16 x) { return static_cast<double>(decode(bfloat16, x.bits)); });
    widen(bfloats, result);
    require_equal(result, expected, "bfloat16s");
    expected.assign(floats.begin(), floats.end());
    result.resize(floats.size());
    widen(floats, result);
    require_equal(result, expected, "floats");
  }
}

TEST_CASE("arrays of other sizes are refused by the functions that measure") {
  Doubles two(2);
  Doubles three(3);
  const std::vector<Outcome> outcomes(2);
  Histogram histogram(BinadeBins{-1, 1});
  ErrorTotals totals;
  OutcomeCounts counts;
  const CastBounds bounds = cast_bounds(e4m3, Rounding::nearest_even);
  CHECK_THROWS_WITH(absolute_error(two, three, two), "actual has 2 elements, reference 3");
  CHECK_THROWS_WITH(relative_error(two, two, three), "actual has 2 elements, out 3");
  CHECK_THROWS_WITH(ulp_error(three, two, e4m3, two), "actual has 3 elements, reference 2");
  CHECK_THROWS_WITH(totals.add(std::span<const double>(two), std::span<const double>(three)),
                    "actual has 2 elements, reference 3");
  CHECK_THROWS_WITH(histogram.add(three, outcomes), "values has 3 elements, outcomes 2");
  CHECK_THROWS_WITH(count_outcomes(bounds, two, two, three, ScaledRange::all, counts), "x has 2 elements, result 3");
  CHECK_THROWS_WITH(widen(std::span<const float>(), two), "in has 0 elements, out 2");
}

}  // namespace fp8lab::tests
