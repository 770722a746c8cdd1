// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/errors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/unpack.hpp"

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

}  // namespace

double absolute_error(double actual, double reference) {
  return by_default_arithmetic([=] { return actual - reference; });
}

double relative_error(double actual, double reference) {
  return by_default_arithmetic([=] { return actual == reference ? 0 : (actual - reference) / std::abs(reference); });
}

double ulp_error(double actual, double reference, const Format& format) {
  return by_default_arithmetic([&] { return ulp_error_of(actual, reference, format); });
}

void ErrorTotals::add(double actual, double reference) {
  by_default_arithmetic([&] { add_pair(*this, actual, reference); });
}

void ErrorTotals::add(std::span<const float> actual, std::span<const float> reference) {
  if (actual.size() != reference.size()) {
    throw std::invalid_argument("actual has " + std::to_string(actual.size()) + " elements, reference " +
                                std::to_string(reference.size()));
  }
  const DefaultEnvironment environment;
  for (std::size_t i = 0; i < actual.size(); ++i) add_pair(*this, actual[i], reference[i]);
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
