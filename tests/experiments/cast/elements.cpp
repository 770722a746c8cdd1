// SPDX-License-Identifier: Apache-2.0
// What cast counts of an array is what the functions of one element say of its elements.
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "cast/cast.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;

double number_of(float x) { return static_cast<double>(x); }
double number_of(double x) { return x; }
double number_of(Half x) { return static_cast<double>(decode(binary16, x.bits)); }
double number_of(BFloat16 x) { return static_cast<double>(decode(bfloat16, x.bits)); }

/// Counts of a value and its code.
void count_element(const Cast& cast, double x, double scaled, std::uint32_t code, CastCounts& counts) {
  const Format& format = cast.format.format;
  const Unpacked result = unpack(format, code);
  if (std::isnan(x)) {
    ++counts.nans_in;
  } else if (std::isinf(x)) {
    ++counts.infinities_in;
  } else if (x == 0) {
    ++counts.zeros;
  } else if (result.kind == Kind::zero) {
    ++counts.underflows;
  } else if (cast_outcome(format, cast.rounding, scaled) == Outcome::saturated) {
    ++counts.saturated;
  }
  if (result.kind == Kind::nan) ++counts.nans_out;
  if (result.kind == Kind::infinite) ++counts.infinities_out;
  if (result.kind == Kind::finite && result.significand >> format.mantissa_bits == 0) ++counts.subnormals;
}

/// The cast, measured one element at a time.
template <typename T>
MeasuredCast plainly(const Cast& cast, const std::vector<T>& values) {
  using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Format& format = cast.format.format;
  MeasuredCast into(cast);
  for (const T value : values) {
    const double x = number_of(value);
    const double back = number_of(cast_to_representable(format, cast.policy(), value, cast.scale));
    const Arithmetic scaled = static_cast<Arithmetic>(x) * static_cast<Arithmetic>(cast.scale);
    const std::uint32_t code = encode(format, cast.policy(), scaled);
    into.totals.add(back, x);
    into.error.add(absolute_error(back, x));
    into.relative_error.add(relative_error(back, x));
    into.ulp_error.add(
        fp8lab::ulp_error(static_cast<double>(decode(format, code)), static_cast<double>(scaled), format));
    into.codes.add_code(code);
    count_element(cast, x, static_cast<double>(scaled), code, into.counts);
  }
  return into;
}

template <typename T>
void check_elements(const std::vector<T>& values) {
  CastArguments arguments;
  arguments.source = HeldTensors{{MatrixView(std::span<const T>(values), 1, values.size())}};
  arguments.out_dtype = OutDtype::source;
  arguments.formats.clear();
  for (const NamedFormat& named : named_formats) arguments.formats.push_back(choose_format(named.name));
  arguments.profiles = {choose_profile("cuda_satfinite"), choose_profile("cuda_nosat")};
  arguments.roundings = {Rounding::nearest_even, Rounding::upward, Rounding::toward_zero};
  arguments.scales = {1, 3.7, 1e30};
  for (const MeasuredCast& one : run_cast(arguments).casts) {
    const MeasuredCast expected = plainly(one.cast, values);
    CAPTURE(one.cast.format.name, one.cast.profile.name, static_cast<int>(one.cast.rounding), one.cast.scale);
    for (const NamedCount& named : cast_counts) {
      INFO(named.name);
      CHECK(one.counts.*named.count == expected.counts.*named.count);
    }
    CHECK(one.totals.count == expected.totals.count);
    CHECK(one.totals.not_finite == expected.totals.not_finite);
    CHECK(one.totals.max_absolute_error == expected.totals.max_absolute_error);
    CHECK(one.totals.max_relative_error == expected.totals.max_relative_error);
    const auto histograms = one.histograms();
    const auto expected_histograms = expected.histograms();
    for (std::size_t i = 0; i < histograms.size(); ++i) {
      CHECK(histograms[i].histogram == expected_histograms[i].histogram);
    }
  }
}

}  // namespace

TEST_CASE("cast counts of an array what it counts of its elements") {
  constexpr std::size_t size = sanitized ? 500 : 5000;  // more than a block
  std::vector<float> floats{0.0F, -0.0F, inf, -inf, nan, 448, 464, 465, 0x1p-10F, 0x1p-149F, 57344, 3e38F, 6, 0.25F};
  std::vector<double> doubles{1e300, -1e-300, 464.0000001};
  std::vector<Half> halves;
  std::vector<BFloat16> bfloats;
  for (std::uint64_t i = 0; i < size; ++i) {
    const std::uint64_t word = random_bits(31, i);
    // Any bits, and numbers of the size that formats have.
    const auto any = std::bit_cast<float>(static_cast<std::uint32_t>(word));
    const auto usual = static_cast<float>(static_cast<std::int32_t>(word)) * 0x1p-26F;
    floats.push_back(word >> 63 != 0 ? any : usual);
    halves.push_back({static_cast<std::uint16_t>(word >> 20)});
    bfloats.push_back({static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(floats.back()) >> 16)});
  }
  doubles.insert(doubles.end(), floats.begin(), floats.end());
  doubles.resize(600);
  SECTION("float32") { check_elements(floats); }
  SECTION("float64") { check_elements(doubles); }
  SECTION("float16") { check_elements(halves); }
  SECTION("bfloat16") { check_elements(bfloats); }
}

}  // namespace fp8lab::tests
