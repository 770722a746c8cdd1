// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `cast`: what a cast does to values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cast/cast.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/experiment.hpp"
#include "kit/tensor_arguments.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();  // there is no such number

/// Without a finite value there is no SQNR.
double sqnr_of(const ErrorTotals& totals) { return totals.count == 0 ? none : totals.sqnr_db(); }

bool all_of(const CastResult& result, const std::function<bool(const MeasuredCast&)>& holds) {
  return std::ranges::all_of(result.casts, holds);
}
/// Whether value_of(cast) is the same for all casts.
template <typename Value>
bool is_common(const CastResult& result, const Value& value_of) {
  return all_of(result, [&](const MeasuredCast& one) { return value_of(one) == value_of(result.casts.front()); });
}

const std::string& format_of(const MeasuredCast& one) { return one.cast.format.name; }
const std::string& profile_of(const MeasuredCast& one) { return one.cast.profile.name; }
std::string_view rounding_of(const MeasuredCast& one) { return name_of(one.cast.rounding); }
double scale_of(const MeasuredCast& one) { return one.cast.scale; }

/// A table with a row for each cast, and the columns that say which. A terminal shows those in which casts differ.
Tabulated<std::vector<MeasuredCast>> table_of_casts(const CastResult& result, Table facts) {
  const auto has_no_amax = [](const MeasuredCast& one) { return !one.cast.amax; };
  const auto is_not_best = [](const MeasuredCast& one) { return !one.cast.is_best_scale; };
  const std::vector<std::string> names = names_in_tables(result.tensors);
  auto table = tabulate(result.casts, std::move(facts));
  table.column({.name = "cast", .title = "#"}, [&](const MeasuredCast& one) { return &one - result.casts.data() + 1; })
      .column({.name = "tensor", .detail = true}, &MeasuredCast::tensor);
  if (names.size() > 1) {
    table.column({.name = "tensor_name", .title = "tensor"},
                 [&](const MeasuredCast& one) { return names[one.tensor]; });
  }
  table.column({.name = "format"}, format_of)
      .column({.name = "profile", .detail = is_common(result, profile_of)}, profile_of)
      .column({.name = "rounding", .detail = is_common(result, rounding_of)}, rounding_of)
      .column({.name = "scale", .detail = is_common(result, scale_of)}, scale_of)
      .column({.name = "amax", .detail = all_of(result, has_no_amax)},
              [](const MeasuredCast& one) { return one.cast.amax; })
      .column({.name = "is_best_scale", .title = "best", .detail = all_of(result, is_not_best)},
              [](const MeasuredCast& one) { return one.cast.is_best_scale; });
  return table;
}

Table errors_table(const CastResult& result) {
  const auto decibels = [](const char* name, const char* title) {
    return Head{.name = name, .title = title, .unit = "dB", .notation = Notation::fixed, .digits = 4};
  };
  const auto brief = [](const char* name, const char* title) {
    return Head{.name = name, .title = title, .notation = Notation::scientific, .digits = 2};
  };
  auto table = table_of_casts(result, {.name = "casts", .title = "Errors of what comes back"});
  Head exact = decibels("exact_sqnr_db", "exact");
  exact.detail = !result.arguments.exact;
  const auto total = [&](Head head, const auto& value_of) {
    table.column(std::move(head), [&](const MeasuredCast& one) { return std::invoke(value_of, one.totals); });
  };
  total(decibels("sqnr_db", "SQNR"), sqnr_of);
  table.column(exact, &MeasuredCast::exact_sqnr_db);
  total(brief("rms_error", "rms"), &ErrorTotals::rms_error);
  total(brief("mean_error", "mean"), &ErrorTotals::mean_error);
  total({.name = "mean_absolute_error", .detail = true}, &ErrorTotals::mean_absolute_error);
  total({.name = "max_absolute_error", .title = "largest", .digits = 3},
        [](const ErrorTotals& totals) { return totals.count == 0 ? none : totals.max_absolute_error; });
  total({.name = "max_relative_error", .detail = true},
        [](const ErrorTotals& totals) { return totals.count == 0 ? none : totals.max_relative_error; });
  total({.name = "compared", .detail = true}, &ErrorTotals::count);
  const bool none_left_out = all_of(result, [](const MeasuredCast& one) { return one.totals.not_finite == 0; });
  total({.name = "not_finite", .title = "left out", .detail = none_left_out}, &ErrorTotals::not_finite);
  return table;
}

/// A column that the terminal shows for a count: the count, or its share of all values.
struct ShownCount {
  NamedCount count;
  const char* share;  ///< the name of the share's column; empty where the count is shown
  const char* title;
  bool always = true;  ///< also where all are 0
};
constexpr std::array<ShownCount, cast_counts.size()> shown_counts{{
    {cast_counts[0], "zeros_share", "zero", false},
    {cast_counts[1], "underflows_share", "underflow"},
    {cast_counts[2], "subnormals_share", "subnormal"},
    {cast_counts[3], "saturated_share", "saturated"},
    {cast_counts[4], "", "inf in", false},
    {cast_counts[5], "", "inf out", false},
    {cast_counts[6], "", "NaN in", false},
    {cast_counts[7], "", "NaN out", false},
}};

Table fates_table(const CastResult& result) {
  auto table = table_of_casts(result, {.name = "fates", .title = "What became of the values"});
  for (const auto& [named, share, title, always] : shown_counts) {
    const auto count_of = [count = named.count](const MeasuredCast& one) { return one.counts.*count; };
    const bool is_left_out = !always && all_of(result, [&](const MeasuredCast& one) { return count_of(one) == 0; });
    const bool is_shown_as_share = *share != '\0';
    table.column({.name = named.name, .title = title, .detail = is_shown_as_share || is_left_out}, count_of);
    if (!is_shown_as_share) continue;
    table.column({.name = share, .title = title, .notation = Notation::percent, .digits = 3, .detail = is_left_out},
                 [&](const MeasuredCast& one) {
                   const auto size = static_cast<double>(result.tensors[one.tensor].size());
                   return count_of(one) == 0 ? 0 : static_cast<double>(count_of(one)) / size;
                 });
  }
  return table;
}

/// Adds the histograms of all casts: those that are drawn, and the others.
void add_histograms(const CastResult& result, std::vector<Section>& sections) {
  constexpr std::size_t most_drawn = 12;
  Histograms drawn{.name = "errors",
                   .title = "|error| by binade, each with its own scale (2^-5: from 2^-5 up to 2^-4)",
                   .least = 0.001};
  if (result.casts.size() > most_drawn) drawn.title += fmt::format(", of the first {} casts", most_drawn);
  Histograms others{.name = "histograms", .title = "Histograms of every cast", .detail = true};
  for (std::size_t row = 0; row < result.casts.size(); ++row) {
    const std::string& format = format_of(result.casts[row]);
    std::string label = fmt::format("#{} {}", row + 1, format);
    if (label.size() > least_column) label = fmt::format("#{}", row + 1);  // a user's format may have any name
    for (const NamedHistogram& entry : result.casts[row].histograms()) {
      const bool is_drawn = entry.name == "error" && row < most_drawn;
      (is_drawn ? drawn : others)
          .histograms.push_back(
              counts_of(entry.histogram, histogram_name(row, format, entry.name), entry.title, is_drawn ? label : ""));
    }
  }
  sections.emplace_back(std::move(drawn));
  sections.emplace_back(std::move(others));
}

/// The amax of the tensor, or of the least and the largest, and whose energy it is.
void add_values(const CastResult& result, Text& text) {
  const std::vector<std::string> names = names_in_tables(result.tensors);
  const auto [least, most] = std::ranges::minmax_element(result.values, {}, &TensorOfCast::amax);
  const auto name = [&](auto one) { return names[static_cast<std::size_t>(one - result.values.begin())]; };
  if (result.values.size() == 1) {
    text.paragraphs.push_back(fmt::format("The largest magnitude, amax: {:.6g}", least->amax));
  } else {
    text.paragraphs.push_back(fmt::format("The largest magnitude of a tensor, amax: from {:.6g} ({}) to {:.6g} ({})",
                                          least->amax, name(least), most->amax, name(most)));
  }
  constexpr std::size_t most_told = 5;
  std::size_t told = 0;
  for (std::size_t i = 0; i < result.values.size() && told < most_told; ++i) {
    const std::optional<Concentration>& few = result.values[i].concentration;
    if (!few) continue;
    const std::string where = names[i].empty() ? "" : names[i] + ": ";
    text.paragraphs.push_back("Warning: " + where + concentration_words(*few, result.tensors[i].size()));
    ++told;
  }
}

Table tensors_with_amax(const CastResult& result) {
  Table table = tensors_table(result.tensors);
  Numbers amaxes;
  for (const TensorOfCast& one : result.values) amaxes.push_back(one.amax);
  table.columns.push_back({{"amax"}, std::move(amaxes)});
  return table;
}

Text intro(const CastResult& result) {
  Text text{.name = "intro", .paragraphs = {"Casting " + result.source}};
  if (const auto* draws = std::get_if<Draws>(&result.arguments.source)) {
    text.paragraphs.push_back(fmt::format("{}: {}", draws->distribution.name, draws->distribution.description));
  }
  const bool has_float64 = std::ranges::count(result.tensors, ElementType::float64, &SourceTensor::type) != 0;
  const char* type = has_float64 ? "float64 where the values are float64, or float32" : "float32";
  if (result.arguments.out_dtype == OutDtype::source) type = "the type of the values";
  text.paragraphs.push_back(fmt::format("What comes back: decode(encode(x * scale)) * (1 / scale), in {}.", type));
  add_values(result, text);
  std::string common;
  const auto add = [&](const char* what, const auto& value_of) {
    if (!is_common(result, value_of)) return;
    common += fmt::format("{}{} {}", common.empty() ? "" : ", ", what, value_of(result.casts.front()));
  };
  add("profile", profile_of);
  add("rounding", rounding_of);
  add("scale", scale_of);
  if (!common.empty()) text.paragraphs.push_back("All casts: " + common);
  return text;
}

/// The share of a tensor's finite values that a cast leaves out: those that became NaN or infinite. Tensors differ in
/// size, so that no count compares.
double share_lost(const MeasuredCast& one) {
  const std::uint64_t not_finite = one.counts.infinities_in + one.counts.nans_in;
  const std::uint64_t lost = one.totals.not_finite - std::min(not_finite, one.totals.not_finite);
  const std::uint64_t finite = one.totals.count + lost;
  return finite == 0 ? 1 : static_cast<double>(lost) / static_cast<double>(finite);
}

/// The cast that loses least.
Text best(const CastResult& result) {
  // A cast that overflows to NaN would win otherwise, for its largest errors are not counted.
  const auto found = std::ranges::max_element(result.casts, {}, [](const MeasuredCast& one) {
    const double sqnr = sqnr_of(one.totals);
    return std::pair(-share_lost(one), std::isnan(sqnr) ? -std::numeric_limits<double>::infinity() : sqnr);
  });
  Text text{.name = "best"};
  if (result.casts.size() < 2 || found->totals.count == 0) return text;
  const std::string name = result.tensors.size() == 1 ? "" : " of " + names_in_tables(result.tensors)[found->tensor];
  text.paragraphs.push_back(fmt::format(
      "Highest SQNR{}: #{} {}{}, {:.4f} dB", share_lost(*found) == 0 ? "" : ", of the casts that leave out least",
      found - result.casts.begin() + 1, format_of(*found), name, found->totals.sqnr_db()));
  return text;
}

/// The largest values of the first formats: "e4m3 448, e5m2 57344".
std::string largest_values(const std::vector<ChosenFormat>& formats) {
  constexpr std::size_t most = 3;
  std::string text;
  for (const ChosenFormat& format : std::span(formats).first(std::min(most, formats.size()))) {
    text += fmt::format("{}{} {:.6g}", text.empty() ? "" : ", ", format.name, max_value(format.format));
  }
  return text + (formats.size() > most ? ", ..." : "");
}

Text reading(const CastResult& result) {
  Text text{
      "reading",
      "How to read it",
      {"An error is what comes back minus the value. Mean: the mean error, which is the bias of the cast. Left out: "
       "the number of values that have no error, as they are, or became, NaN or infinite.",
       "SQNR: 10 log10(sum of value^2 / sum of error^2); 6 dB more is half the error."}};
  if (result.arguments.exact) {
    text.paragraphs.emplace_back(
        "Exact: the SQNR over the whole distribution, by quadrature; for saturating casts to nearest. The measured "
        "SQNR "
        "differs from it by the chance of the draws.");
  }
  text.paragraphs.push_back(
      "Underflow: values that are not zero and became zero. Subnormal: values so small that the format has fewer bits "
      "for them. Saturated: values beyond the largest one of the format (" +
      largest_values(result.arguments.formats) + ").");
  return text;
}

/// The arguments as a user gives them.
struct CastOptions {
  CastArguments arguments;
  TensorArguments tensors;
  std::vector<ChosenAmax> amaxes;
};

void describe(CastOptions& options, ArgumentList& list) {
  CastArguments& arguments = options.arguments;
  options.tensors.add_arrays(list, "each type is cast directly, float64 and halves too");
  options.tensors.add_draws(list);
  options.tensors.add_size(list);
  options.tensors.add_grid(list);
  options.tensors.add_files(list);
  list.add("formats", arguments.formats, "what to cast to (fp8lab formats lists them)");
  list.add("profiles", arguments.profiles,
           "what overflow, infinity and NaN become (fp8lab profiles lists them; ieee:overflow=saturate changes a field "
           "of one)");
  list.add("roundings", arguments.roundings,
           "how values are rounded: nearest_even, nearest_away, toward_zero, upward, downward, to_odd")
      .by_default("the rounding of each profile");
  list.add("scales", arguments.scales, "factors before the cast, which are divided out after it")
      .by_default("1, or those of amax and best_scale");
  list.add("amax", options.amaxes,
           "magnitudes that become the format's largest value: scale = largest / amax; auto is the tensor's own amax")
      .by_default("none");
  list.add("best_scale", arguments.best_scale,
           "also cast with the scale that has the highest exact SQNR; of tensors of files and arrays the best of 32 a "
           "binade and what is found between its neighbours");
  list.add("exact", arguments.exact, "also compute the exact SQNR of the distribution, which is free of chance");
  list.add("out_dtype", arguments.out_dtype,
           "the type of what comes back: float32 (float64 where the values are float64), or source, the type of the "
           "values");
  list.add_threads(arguments.threads);
}

Document run(const CastOptions& options, const Context& context) {
  CastArguments arguments = options.arguments;
  arguments.source = options.tensors.source();
  for (const ChosenAmax& one : options.amaxes) {
    if (one.amax) arguments.amaxes.push_back(*one.amax);
    if (!one.amax && std::exchange(arguments.own_amax, true)) refuse("amax has the entry auto twice");
  }
  return document_of(run_cast(arguments, context.progress));
}

}  // namespace

Document document_of(const CastResult& result) {
  const DefaultEnvironment environment;
  Document document;
  document.sections = sections_of(intro(result), errors_table(result), fates_table(result));
  Text highest = best(result);
  if (!highest.paragraphs.empty()) document.sections.emplace_back(std::move(highest));
  add_histograms(result, document.sections);
  document.sections.emplace_back(tensors_with_amax(result));
  add_left_out(result.left_out, result.tensors.size(), document.sections);
  document.sections.emplace_back(reading(result));
  return document;
}

std::vector<Experiment> cast_experiments() {
  return {experiment<CastOptions>(
      {.name = "cast",
       .summary = "Measure what a cast does to values: SQNR, errors, underflow, saturation",
       .description =
           "Every combination of format, profile, rounding and scale is measured on every value. What comes back is "
           "decode(encode(x * scale)) * (1 / scale), computed in float32, or in float64 for float64 values; its error "
           "is measured in float64 against x. Each tensor is measured apart.",
       .result =
           "tables `casts` (errors), `fates` (counts of values, and their shares), `tensors`, and four histograms "
           "for each cast: error, relative_error, ulp_error, codes",
       .examples = {{"cast", "E4M3 and E5M2 on a million normal values"},
                    {"cast --formats e4m3 --amax 6,4 --exact", "where to clip: 6 or 4 standard deviations"},
                    {"cast --file model.safetensors --tensor w --amax auto --best-scale", "a tensor of your own"},
                    {"cast --roundings nearest_even,toward_zero", "the bias of truncation"},
                    {"cast --best-scale --scales 1 --exact", "how much a scale can help"}},
       .small = R"({"size": 1000, "formats": ["e4m3", "e2m1", "e4m3fnuz"], "roundings": ["nearest_even", "toward_zero"],
"scales": [1, 12345.678], "amax": [4], "exact": true, "best_scale": true})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
