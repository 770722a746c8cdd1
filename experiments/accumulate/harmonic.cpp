// SPDX-License-Identifier: Apache-2.0
#include "accumulate/harmonic.hpp"

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

HarmonicSum harmonic_sum(const ChosenFormat& chosen) {
  const Format& format = chosen.format;
  // Rounding to double first changes nothing: it has more than twice the digits of 16-bit formats (Figueroa, "When is
  // double rounding innocuous?", 1995).
  const auto rounded = [&](double x) -> double { return decode(format, encode(format, CastPolicy{}, x)); };
  HarmonicSum result{chosen, 0, 0};
  for (double before = -1; result.sum != before;) {
    before = result.sum;
    ++result.terms;
    result.sum = rounded(before + rounded(1 / static_cast<double>(result.terms)));
  }
  return result;
}

void check_format_for_sums(const ChosenFormat& chosen) {
  check_format(chosen.format);
  const bool is_narrow = chosen.format.bits() <= 16;
  if (is_narrow && chosen.format.is_signed && max_value(chosen.format) >= 2) {
    return;
  }
  refuse("formats must have a sign, at most 16 bits and a largest value of at least 2, and ", chosen.name, " has not");
}

}  // namespace

HarmonicResult run_harmonic(const HarmonicArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  check_filled_list("formats", arguments.formats);
  for (const ChosenFormat& format : arguments.formats) check_format_for_sums(format);
  HarmonicResult result{arguments, {}};
  for (const ChosenFormat& format : arguments.formats) {
    result.sums.push_back(harmonic_sum(format));
    if (progress) progress(static_cast<double>(result.sums.size()) / static_cast<double>(arguments.formats.size()));
  }
  return result;
}

}  // namespace fp8lab::experiments
