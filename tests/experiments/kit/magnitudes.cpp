// SPDX-License-Identifier: Apache-2.0
// The few elements with most of the energy, and the scale that loses least, against sums over the elements.
#include "kit/magnitudes.hpp"

#include <cmath>
#include <span>
#include <vector>

#include "cast/cast.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "scaling/scaling.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using experiments::Concentration;
using experiments::Magnitudes;

std::vector<float> uniform_values(std::size_t count) {
  std::vector<float> values(count);
  sample_uniform(-1, 1, 5, 0, values);
  return values;
}

Magnitudes magnitudes_of(const std::vector<float>& values) {
  Magnitudes all;
  all.add(std::span<const float>(values));
  return all;
}

/// The SQNR of a cast to E4M3, element by element, in double.
double elementwise_sqnr(const std::vector<float>& values, double scale) {
  double signal = 0;
  double noise = 0;
  for (const float x : values) {
    const float scaled = x * static_cast<float>(scale);
    const double back = decode(e4m3, encode(e4m3, CastPolicy{}, scaled)) / scale;
    signal += static_cast<double>(x) * static_cast<double>(x);
    noise += (back - static_cast<double>(x)) * (back - static_cast<double>(x));
  }
  return 10 * std::log10(signal / noise);
}

}  // namespace

TEST_CASE("magnitudes: bfloat16 is counted as the same values in float32, in parts or at once") {
  std::vector<float> values = uniform_values(300'001);
  values[7] = 1e5F;
  values[300'000] = -2e5F;
  values[11] = 1e-40F;  // subnormal
  values[13] = nan;
  values[14] = 0;
  std::vector<BFloat16> words;
  for (float& x : values) {
    words.push_back({static_cast<std::uint16_t>(encode(bfloat16, CastPolicy{}, x))});
    if (words.size() == 13) words.back() = {0x7F80};  // infinity
    x = widened(words.back());
  }
  const Magnitudes floats = magnitudes_of(values);
  Magnitudes whole;
  whole.add(std::span<const BFloat16>(words));
  Magnitudes parts;
  parts.add(std::span<const BFloat16>(words).first(12));
  Magnitudes rest;
  rest.add(std::span<const BFloat16>(words).subspan(12));
  parts.merge(rest);
  REQUIRE(floats.concentration());
  CHECK(floats.concentration()->elements == 2);
  CHECK(floats.size() == values.size() - 2);
  for (const Magnitudes* made : {&whole, &parts}) {
    CHECK(made->size() == floats.size());
    CHECK(made->amax() == floats.amax());
    CHECK(made->concentration()->elements == floats.concentration()->elements);
    CHECK(made->concentration()->share == floats.concentration()->share);
    CHECK(made->best_scale(e4m3)->scale == floats.best_scale(e4m3)->scale);
  }
}

TEST_CASE("magnitudes: the few elements that hold most of the energy are counted, up to the widest gap") {
  std::vector<float> values = uniform_values(1 << 16);
  CHECK(!magnitudes_of(values).concentration());
  // Six of 500 to 750 beside 65530 whose squares sum up to a third of their number.
  double energy = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    values[1000 * i] = (i % 2 == 0 ? -1.F : 1.F) * (500 + 50 * static_cast<float>(i));
    energy += std::pow(500 + 50 * static_cast<double>(i), 2);
  }
  const Magnitudes all = magnitudes_of(values);
  const std::optional<Concentration> few = all.concentration();
  REQUIRE(few);
  CHECK(few->elements == 6);
  CHECK(std::abs(few->share - energy / (energy + 65530 / 3.0)) < 1e-3);
  CHECK(all.amax() == 750);
  CHECK(experiments::concentration_words({6, 0.8525}, 1000) ==
        "6 of 1000 elements hold 85.2 % of the energy; the SQNR is theirs");
  // Too few to tell, and a tensor of one number beside zeros and a NaN.
  CHECK(!magnitudes_of({1, 1000}).concentration());
  std::vector<float> zeros(2000);
  CHECK(!magnitudes_of(zeros).concentration());
  zeros[3] = 5;
  zeros[4] = std::nanf("");
  CHECK(magnitudes_of(zeros).concentration()->elements == 1);
  CHECK(magnitudes_of(zeros).size() == 1999);
}

TEST_CASE("magnitudes: no scale of a fine grid is better than the best scale") {
  for (const bool has_outliers : {false, true}) {
    std::vector<float> values = uniform_values(3000);
    if (has_outliers) values[7] = 3000;
    const std::optional<BestScale> best = magnitudes_of(values).best_scale(e4m3);
    REQUIRE(best);
    // The search drops 12 of 24 bits of each value, which changes an error of 2^-4 of it by 2^-8 of itself at most.
    CHECK(std::abs(elementwise_sqnr(values, best->scale) - best->sqnr_db) < 0.05);
    const double first = has_outliers ? -4 : 7;
    for (double at = first; at < first + 16; at += 1.0 / 24) {
      CHECK(elementwise_sqnr(values, std::exp2(at)) < elementwise_sqnr(values, best->scale) + 0.05);
    }
  }
  CHECK(!magnitudes_of({0, 0}).best_scale(e4m3));
  CHECK_THROWS_WITH(magnitudes_of({1}).best_scale(e8m0), ContainsSubstring("a format with a sign"));
}

TEST_CASE("magnitudes: cast with --amax auto and current scaling of scaling tell one number") {
  std::vector<float> values = uniform_values(4096);
  values[9] = -7.3F;
  const experiments::TensorSource source = experiments::HeldTensors{{MatrixView(values, 64, 64)}};
  experiments::CastArguments cast{.source = source};
  cast.formats = {experiments::choose_format("e4m3")};
  cast.own_amax = cast.best_scale = true;
  const experiments::CastResult casts = run_cast(cast);
  const experiments::ScalingResult scaled = experiments::run_scaling(
      {.source = source, .recipes = {experiments::choose_recipe("te_current_scaling")}, .delayed = {}});
  REQUIRE(casts.casts.size() == 2);
  CHECK(casts.values[0].amax == static_cast<double>(7.3F));
  CHECK(*casts.casts[0].cast.amax == static_cast<double>(7.3F));
  CHECK(static_cast<double>(static_cast<float>(casts.casts[0].cast.scale)) == scaled.measured[0].steps[0].scale);
  CHECK(std::abs(casts.casts[0].totals.sqnr_db() - scaled.measured[0].totals.sqnr_db()) < 1e-12);
  CHECK(casts.casts[1].cast.is_best_scale);
  CHECK(casts.casts[1].totals.sqnr_db() >= casts.casts[0].totals.sqnr_db() - 0.05);
}

}  // namespace fp8lab::tests
