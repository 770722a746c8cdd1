// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/errors.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/unpack.hpp"
#include "measure/check.hpp"
#include "simd/measure.hpp"

namespace fp8lab {

namespace {

double ulp_error_of(double actual, double reference, const Format& format) {
  if (actual == reference) return 0;
  const Unpacked largest = unpack(format, format.max_code());
  const int highest = largest.exponent + format.mantissa_bits;
  int binade = format.min_exponent();
  if (reference != 0 && std::isfinite(reference)) binade = std::clamp(std::ilogb(reference), binade, highest);
  return std::ldexp(actual - reference, format.mantissa_bits - binade);
}

void add_pair(ErrorTotals& totals, double actual, double reference) {
  if (!std::isfinite(actual) || !std::isfinite(reference)) {
    ++totals.not_finite;
    return;
  }
  ++totals.count;
  const double error = actual - reference;
  totals.sum_error += error;
  totals.sum_absolute_error += std::abs(error);
  totals.sum_squared_error += error * error;
  totals.sum_squared_reference += reference * reference;
  totals.max_absolute_error = std::max(totals.max_absolute_error, std::abs(error));
  if (reference != 0) totals.max_relative_error = std::max(totals.max_relative_error, std::abs(error / reference));
}

double relative_error_of(double actual, double reference) {
  return actual == reference ? 0 : (actual - reference) / std::abs(reference);
}

/// The constants for vector code, where all units and their inverses are normal numbers.
std::optional<UlpConstants> ulp_constants(const Format& format) {
  const int lowest = format.min_exponent();
  const int highest = unpack(format, format.max_code()).exponent + format.mantissa_bits;
  if (lowest < -900 || highest > 900) return std::nullopt;
  return UlpConstants{.lowest = std::ldexp(1.0, lowest),
                      .highest = std::ldexp(1.0, highest),
                      .values_a_binade = std::ldexp(1.0, format.mantissa_bits)};
}

void check_sizes(std::span<const double> actual, std::span<const double> reference, std::span<double> out) {
  check_same_size("actual", actual.size(), "reference", reference.size());
  check_same_size("actual", actual.size(), "out", out.size());
}

void add_error_lanes_scalar(const double* actual, const double* reference, std::size_t count, ErrorLanes& lanes) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(actual[i]) || !std::isfinite(reference[i])) {
      ++lanes.not_finite;
      continue;
    }
    const std::size_t lane = i % error_lanes;
    const double error = actual[i] - reference[i];
    lanes.error[lane] += error;
    lanes.absolute_error[lane] += std::abs(error);
    lanes.squared_error[lane] += error * error;
    lanes.squared_reference[lane] += reference[i] * reference[i];
    lanes.max_absolute_error[lane] = std::max(lanes.max_absolute_error[lane], std::abs(error));
    if (reference[i] == 0) continue;
    lanes.max_relative_error[lane] = std::max(lanes.max_relative_error[lane], std::abs(error / reference[i]));
  }
}

double sum_of(const ErrorLanes::Lanes& x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

/// Adds at most error_block pairs.
void add_block(const double* actual, const double* reference, std::size_t count, ErrorTotals& totals) {
  ErrorLanes lanes;
  (vector_code_allowed() ? add_error_lanes_vector : add_error_lanes_scalar)(actual, reference, count, lanes);
  totals.count += count - lanes.not_finite;
  totals.not_finite += lanes.not_finite;
  totals.sum_error += sum_of(lanes.error);
  totals.sum_absolute_error += sum_of(lanes.absolute_error);
  totals.sum_squared_error += sum_of(lanes.squared_error);
  totals.sum_squared_reference += sum_of(lanes.squared_reference);
  totals.max_absolute_error = std::max(totals.max_absolute_error, *std::ranges::max_element(lanes.max_absolute_error));
  totals.max_relative_error = std::max(totals.max_relative_error, *std::ranges::max_element(lanes.max_relative_error));
}

/// Calls add(first, count) for blocks.
template <typename Add>
void for_each_error_block(std::size_t size, const Add& add) {
  for (std::size_t first = 0; first < size; first += error_block) {
    checkpoint();
    add(first, std::min(error_block, size - first));
  }
}

template <typename T>
void widen_all(std::span<const T> in, std::span<double> out) {
  const DefaultEnvironment environment;
  check_same_size("in", in.size(), "out", out.size());
  const bool vector = vector_code_allowed();
  for_each_piece(in.size(), [&](std::size_t first, std::size_t count) {
    if (vector) return widen_vector(in.data() + first, count, out.data() + first);
    for (std::size_t i = first; i < first + count; ++i) {
      if constexpr (std::is_same_v<T, Half>) out[i] = static_cast<double>(decode(binary16, in[i].bits));
      if constexpr (std::is_same_v<T, BFloat16>) out[i] = static_cast<double>(decode(bfloat16, in[i].bits));
      if constexpr (std::is_same_v<T, float>) out[i] = static_cast<double>(in[i]);
    }
  });
}

}  // namespace

double absolute_error(double actual, double reference) {
  return by_default_arithmetic([=] { return actual - reference; });
}

double relative_error(double actual, double reference) {
  return by_default_arithmetic([=] { return relative_error_of(actual, reference); });
}

double ulp_error(double actual, double reference, const Format& format) {
  return by_default_arithmetic([&] { return ulp_error_of(actual, reference, format); });
}

void absolute_error(std::span<const double> actual, std::span<const double> reference, std::span<double> out) {
  const DefaultEnvironment environment;
  check_sizes(actual, reference, out);
  const bool vector = vector_code_allowed();
  for_each_piece(out.size(), [&](std::size_t first, std::size_t count) {
    if (vector) return absolute_errors_vector(&actual[first], &reference[first], count, &out[first]);
    for (std::size_t i = first; i < first + count; ++i) out[i] = actual[i] - reference[i];
  });
}

void relative_error(std::span<const double> actual, std::span<const double> reference, std::span<double> out) {
  const DefaultEnvironment environment;
  check_sizes(actual, reference, out);
  const bool vector = vector_code_allowed();
  for_each_piece(out.size(), [&](std::size_t first, std::size_t count) {
    if (vector) return relative_errors_vector(&actual[first], &reference[first], count, &out[first]);
    for (std::size_t i = first; i < first + count; ++i) out[i] = relative_error_of(actual[i], reference[i]);
  });
}

void ulp_error(std::span<const double> actual, std::span<const double> reference, const Format& format,
               std::span<double> out) {
  const DefaultEnvironment environment;
  check_sizes(actual, reference, out);
  const auto vector = vector_code_allowed() ? ulp_constants(format) : std::nullopt;
  for_each_piece(out.size(), [&](std::size_t first, std::size_t count) {
    if (vector) return ulp_errors_vector(*vector, &actual[first], &reference[first], count, &out[first]);
    for (std::size_t i = first; i < first + count; ++i) out[i] = ulp_error_of(actual[i], reference[i], format);
  });
}

void widen(std::span<const float> in, std::span<double> out) { widen_all(in, out); }
void widen(std::span<const Half> in, std::span<double> out) { widen_all(in, out); }
void widen(std::span<const BFloat16> in, std::span<double> out) { widen_all(in, out); }

void ErrorTotals::add(double actual, double reference) {
  by_default_arithmetic([&] { add_pair(*this, actual, reference); });
}

void ErrorTotals::add(std::span<const double> actual, std::span<const double> reference) {
  check_same_size("actual", actual.size(), "reference", reference.size());
  const DefaultEnvironment environment;
  for_each_error_block(actual.size(), [&](std::size_t first, std::size_t size) {
    add_block(actual.data() + first, reference.data() + first, size, *this);
  });
}

void ErrorTotals::add(std::span<const float> actual, std::span<const float> reference) {
  check_same_size("actual", actual.size(), "reference", reference.size());
  const DefaultEnvironment environment;
  std::array<double, error_block> a;
  std::array<double, error_block> r;
  for_each_error_block(actual.size(), [&](std::size_t first, std::size_t size) {
    widen(actual.subspan(first, size), std::span(a).first(size));
    widen(reference.subspan(first, size), std::span(r).first(size));
    add_block(a.data(), r.data(), size, *this);
  });
}

void ErrorTotals::merge(const ErrorTotals& other) {
  const DefaultEnvironment environment;
  count += other.count;
  not_finite += other.not_finite;
  sum_error += other.sum_error;
  sum_absolute_error += other.sum_absolute_error;
  sum_squared_error += other.sum_squared_error;
  sum_squared_reference += other.sum_squared_reference;
  max_absolute_error = std::max(max_absolute_error, other.max_absolute_error);
  max_relative_error = std::max(max_relative_error, other.max_relative_error);
}

double ErrorTotals::mean_error() const {
  const DefaultEnvironment environment;
  return sum_error / static_cast<double>(count);
}
double ErrorTotals::mean_absolute_error() const {
  const DefaultEnvironment environment;
  return sum_absolute_error / static_cast<double>(count);
}
double ErrorTotals::rms_error() const {
  const DefaultEnvironment environment;
  return std::sqrt(sum_squared_error / static_cast<double>(count));
}
double ErrorTotals::sqnr_db() const {
  const DefaultEnvironment environment;
  if (sum_squared_error == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(sum_squared_reference / sum_squared_error);
}

}  // namespace fp8lab
