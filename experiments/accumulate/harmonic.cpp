// SPDX-License-Identifier: Apache-2.0
#include "accumulate/harmonic.hpp"

#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/lists.hpp"
#include "kit/report.hpp"

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
  if (is_narrow && chosen.format.is_signed &&
      decode(chosen.format, static_cast<std::uint32_t>(chosen.format.max_code())) >= 2) {
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

std::vector<std::string> harmonic_files() { return {"harmonic.json", "harmonic.csv"}; }

std::vector<std::pair<std::string, std::string>> files_of(const HarmonicResult& result) {
  const DefaultEnvironment environment;
  TextStream csv;
  csv.precision(std::numeric_limits<double>::max_digits10);
  csv << "format,sum,terms\n";
  for (const HarmonicSum& sum : result.sums)
    csv << csv_field(sum.format.name) << ',' << sum.sum << ',' << sum.terms << '\n';
  return {{"harmonic.json", to_json(result)}, {"harmonic.csv", csv.str()}};
}

std::string to_json(const HarmonicResult& result) {
  const DefaultEnvironment environment;
  Json formats = Json::array();
  Json sums = Json::array();
  for (const HarmonicSum& sum : result.sums) {
    formats.push_back(sum.format.name);
    sums.push_back({{"format", sum.format.name}, {"sum", sum.sum}, {"terms", sum.terms}});
  }
  return text_of(json_of_result("harmonic", {{"formats", formats}}, {{"sums", sums}}));
}

std::string report_of(const HarmonicResult& result, const TextStyle& style) {
  const DefaultEnvironment environment;
  std::vector<std::vector<std::string>> rows{{"format", "stops at", "after terms"}};
  for (const HarmonicSum& sum : result.sums) {
    rows.push_back({sum.format.name, formatted("%.10g", sum.sum), std::to_string(sum.terms)});
  }
  return "The harmonic series 1 + 1/2 + 1/3 + ..., rounded to nearest even after every operation\n\n" +
         draw_table(rows, style) +
         "\nThe sum grows without bound. Rounded, it stops at the first term that is too small to move it: why\n"
         "products of small formats are not summed in small formats.\n";
}

}  // namespace fp8lab::experiments
