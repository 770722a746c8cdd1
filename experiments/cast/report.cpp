// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "cast/cast.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/report.hpp"

namespace fp8lab::experiments {
namespace {

using Row = std::vector<std::string>;

constexpr double none = std::numeric_limits<double>::quiet_NaN();  // a measure that there is not

/// Without a finite value there is no SQNR.
double sqnr_of(const ErrorTotals& totals) { return totals.count == 0 ? none : totals.sqnr_db(); }

/// A number for a table; "-" where there is none.
std::string shown(const char* format, double value) { return std::isnan(value) ? "-" : formatted(format, value); }

std::string scale_text(const Cast& cast) {
  const bool is_large = cast.scale >= 1e4 && cast.scale < 1e7;  // %g would write 1e+04
  std::string text = formatted(is_large ? "scale %.0f" : "scale %.4g", cast.scale);
  if (cast.amax) text += formatted(" (amax %.6g)", *cast.amax);
  if (cast.is_best_scale) text += " (best)";
  return text;
}

/// What all casts have in common, and what tells them apart.
struct Labels {
  std::string common;
  std::vector<std::string> own;
};

Labels labels_of(const std::vector<MeasuredCast>& casts) {
  Labels labels{"", std::vector<std::string>(casts.size())};
  const auto add = [](std::string& text, const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const auto part = [&](const std::string& title, const auto& text_of, bool is_always_own) {
    const std::string first = text_of(casts.front().cast);
    const bool same = std::ranges::all_of(casts, [&](const MeasuredCast& c) { return text_of(c.cast) == first; });
    if (same && !is_always_own) return add(labels.common, title + first);
    for (std::size_t i = 0; i < casts.size(); ++i) add(labels.own[i], text_of(casts[i].cast));
  };
  for (std::size_t i = 0; i < casts.size() && casts.back().tensor > 0; ++i) {
    add(labels.own[i], "tensor " + std::to_string(casts[i].tensor + 1));
  }
  part("", [](const Cast& cast) { return cast.format.name; }, true);
  part("profile ", [](const Cast& cast) { return cast.profile.name; }, false);
  part("rounding ", [](const Cast& cast) { return std::string(name_of(cast.rounding)); }, false);
  part("", scale_text, false);
  for (std::size_t i = 0; i < casts.size(); ++i) {
    labels.own[i] = formatted(casts.size() > 9 ? "%2zu " : "%zu ", i + 1) + labels.own[i];
  }
  return labels;
}

/// Above the labels.
const char* heading_of(const Labels& labels) { return labels.own.size() > 9 ? " # cast" : "# cast"; }

std::string errors_text(const CastResult& result, const Labels& labels, const TextStyle& style) {
  std::vector<Row> rows{{heading_of(labels), "SQNR dB", "exact dB", "rms", "mean", "largest", "left out"}};
  for (std::size_t i = 0; i < labels.own.size(); ++i) {
    const ErrorTotals& totals = result.casts[i].totals;
    rows.push_back(
        {labels.own[i], shown("%.4f", sqnr_of(totals)), shown("%.4f", result.casts[i].exact_sqnr_db.value_or(none)),
         shown("%.2e", totals.rms_error()), shown("%.2e", totals.mean_error()),
         shown("%.3g", totals.count == 0 ? none : totals.max_absolute_error), std::to_string(totals.not_finite)});
  }
  const bool none_left_out =
      std::ranges::all_of(result.casts, [](const MeasuredCast& cast) { return cast.totals.not_finite == 0; });
  if (none_left_out) std::ranges::for_each(rows, [](Row& row) { row.pop_back(); });
  if (!result.arguments.exact) std::ranges::for_each(rows, [](Row& row) { row.erase(row.begin() + 2); });
  return "\nErrors of what comes back:\n" + draw_table(rows, style);
}

/// A part of `size` in percent; whatever is there shows.
std::string share_text(std::uint64_t count, std::uint64_t size) {
  if (count == 0) return "0";
  const double percent = 100 * static_cast<double>(count) / static_cast<double>(size);
  return percent < 0.001 ? formatted("%.0e %%", percent) : formatted("%.3f %%", percent);
}

std::string counts_text(const CastResult& result, const Labels& labels, const TextStyle& style) {
  std::vector<Row> rows{{heading_of(labels)}};
  for (const std::string& label : labels.own) rows.push_back({label});
  const auto add = [&](const char* heading, std::uint64_t CastCounts::* count, bool as_share, bool always) {
    if (!always && std::ranges::all_of(result.casts, [&](const auto& c) { return c.counts.*count == 0; })) return;
    rows.front().emplace_back(heading);
    for (std::size_t i = 0; i < result.casts.size(); ++i) {
      const std::uint64_t counted = result.casts[i].counts.*count;
      rows[i + 1].push_back(as_share ? share_text(counted, result.tensors[result.casts[i].tensor].size())
                                     : std::to_string(counted));
    }
  };
  add("zero", &CastCounts::zeros, true, false);
  add("underflow", &CastCounts::underflows, true, true);
  add("subnormal", &CastCounts::subnormals, true, true);
  add("saturated", &CastCounts::saturated, true, true);
  add("inf in", &CastCounts::infinities_in, false, false);
  add("inf out", &CastCounts::infinities_out, false, false);
  add("NaN in", &CastCounts::nans_in, false, false);
  add("NaN out", &CastCounts::nans_out, false, false);
  return "\nWhat became of the values:\n" + draw_table(rows, style);
}

std::string picture_text(const CastResult& result, const TextStyle& style) {
  const std::size_t drawn = std::min(columns_that_fit(style), result.casts.size());
  std::vector<std::string> titles;
  std::vector<const Histogram*> histograms;
  for (std::size_t i = 0; i < drawn; ++i) {
    const std::string number = formatted("#%zu", i + 1);
    titles.push_back(formatted("#%zu ", i + 1) + result.casts[i].cast.format.name);
    if (titles.back().size() > least_column) titles.back() = number;  // a format of the user's own, of any name
    histograms.push_back(&result.casts[i].error);
  }
  std::string text = "\n|error| by binade, each column with its own scale (2^-5: from 2^-5 up to 2^-4):\n" +
                     draw_binades(titles, histograms, style, 0.001);
  if (drawn == result.casts.size()) return text;
  const std::size_t left = result.casts.size() - drawn;
  return text + formatted("Not drawn for want of width: #%zu%s; --out writes all histograms.\n", drawn + 1,
                          left == 1 ? "" : formatted(" to #%zu", result.casts.size()).c_str());
}

/// The first formats' largest values: "e4m3 448, e5m2 57344".
std::string largest_values(const CastResult& result) {
  const std::vector<ChosenFormat>& formats = result.arguments.formats;
  constexpr std::size_t most = 3;
  std::string text;
  for (const ChosenFormat& format : std::span(formats).first(std::min(most, formats.size()))) {
    const double largest = max_value(format.format);
    text += (text.empty() ? "" : ", ") + format.name + formatted(" %.6g", largest);
  }
  return text + (formats.size() > most ? ", ..." : "");
}

std::string reading_text(const CastResult& result, const Labels& labels) {
  std::string text =
      "\nHow to read it:\n"
      "  An error is what comes back minus the value. Mean: the bias of the cast. Left out\n"
      "  (of the errors, where there are any): values that are, or became, NaN or infinite.\n"
      "  SQNR: 10 log10(sum of value^2 / sum of error^2); 6 dB more is half the error.\n";
  if (result.arguments.exact) {
    text +=
        "  Exact: the SQNR over the whole distribution, by quadrature; for saturating casts\n"
        "  to nearest. What differs from it is the chance of these values.\n";
  }
  text +=
      "  Underflow: not zero, and became zero. Subnormal: so small that the format has\n"
      "  fewer bits for it. Saturated: beyond the format's largest value\n  (" +
      largest_values(result) + ").\n";
  // What overflows to NaN would win otherwise: its largest errors are not counted.
  const auto best = std::ranges::max_element(result.casts, {}, [](const MeasuredCast& cast) {
    const double sqnr = sqnr_of(cast.totals);
    return std::pair(cast.totals.count, std::isnan(sqnr) ? -std::numeric_limits<double>::infinity() : sqnr);
  });
  if (result.casts.size() < 2 || best->totals.count == 0) return text;
  const std::string& label = labels.own[static_cast<std::size_t>(best - result.casts.begin())];
  text += best->totals.not_finite == 0 ? "\nHighest SQNR: #" : "\nHighest SQNR, of the casts that leave out least: #";
  return text + label.substr(label.find_first_not_of(' ')) + formatted(", %.4f dB\n", best->totals.sqnr_db());
}

/// A number or null.
template <typename T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json json_of(const CastArguments& arguments) {
  Json json = json_of_source(arguments.source);
  json["out_dtype"] = name_of(arguments.out_dtype);
  for (const char* list : {"roundings", "profiles", "formats"}) json[list] = Json::array();
  for (const ChosenFormat& format : arguments.formats) json["formats"].push_back(format.name);
  for (const ChosenProfile& profile : arguments.profiles) json["profiles"].push_back(profile.name);
  for (const Rounding rounding : arguments.roundings) json["roundings"].push_back(name_of(rounding));
  json["scales"] = arguments.scales;
  json["amax"] = arguments.amaxes;
  json["best_scale"] = arguments.best_scale;
  json["exact"] = arguments.exact;
  return json;
}

Json json_of(const MeasuredCast& measured) {
  const Cast& cast = measured.cast;
  const ErrorTotals& totals = measured.totals;
  Json json{{"tensor", measured.tensor},
            {"format", cast.format.name},
            {"profile", cast.profile.name},
            {"rounding", name_of(cast.rounding)},
            {"scale", cast.scale},
            {"amax", json_of(cast.amax)},
            {"is_best_scale", cast.is_best_scale},
            {"sqnr_db", sqnr_of(totals)},
            {"exact_sqnr_db", json_of(measured.exact_sqnr_db)},
            {"rms_error", totals.rms_error()},
            {"mean_error", totals.mean_error()},
            {"mean_absolute_error", totals.mean_absolute_error()},
            {"max_absolute_error", totals.max_absolute_error},
            {"max_relative_error", totals.max_relative_error},
            {"compared", totals.count},
            {"not_finite", totals.not_finite}};
  for (const NamedCount& named : cast_counts) json["counts"][named.name] = measured.counts.*named.count;
  for (const NamedHistogram& entry : measured.histograms()) {
    json["histograms"][entry.name] = json_of_histogram(entry.histogram);
    json["histograms"][entry.name]["title"] = entry.title;
  }
  return json;
}

/// A format's name as part of a file's: a user may have put anything into it.
std::string histogram_file(std::size_t row, const Cast& cast, const std::string& histogram) {
  std::string format = cast.format.name.substr(0, 40);
  std::ranges::replace_if(
      format, [](unsigned char c) { return c >= 0x80 || (std::isalnum(c) == 0 && c != '.' && c != '-'); }, '_');
  return formatted("%02zu_", row + 1) + format + "_" + histogram + ".csv";
}

/// A field of a CSV; no number, or an infinite one, is an empty field.
struct Field {
  std::string name;
  std::variant<std::string, double, std::uint64_t> value;

  void write(std::ostream& csv) const {
    if (const auto* number = std::get_if<double>(&value)) {
      if (std::isfinite(*number)) csv << *number;
    } else if (const auto* count = std::get_if<std::uint64_t>(&value)) {
      csv << *count;
    } else {
      csv << csv_field(std::get<std::string>(value));
    }
  }
};

std::vector<Field> fields_of(std::uint64_t row, const MeasuredCast& measured) {
  const Cast& cast = measured.cast;
  const ErrorTotals& totals = measured.totals;
  std::vector<Field> fields{{"cast", row},
                            {"format", cast.format.name},
                            {"profile", cast.profile.name},
                            {"rounding", std::string(name_of(cast.rounding))},
                            {"scale", cast.scale},
                            {"amax", cast.amax.value_or(none)},
                            {"is_best_scale", std::uint64_t{cast.is_best_scale}},
                            {"sqnr_db", sqnr_of(totals)},
                            {"exact_sqnr_db", measured.exact_sqnr_db.value_or(none)},
                            {"rms_error", totals.rms_error()},
                            {"mean_error", totals.mean_error()},
                            {"mean_absolute_error", totals.mean_absolute_error()},
                            {"max_absolute_error", totals.max_absolute_error},
                            {"max_relative_error", totals.max_relative_error},
                            {"compared", totals.count},
                            {"not_finite", totals.not_finite}};
  for (const NamedCount& named : cast_counts) fields.push_back({named.name, measured.counts.*named.count});
  return fields;
}

std::string summary_csv(const CastResult& result) {
  TextStream csv;
  csv.precision(std::numeric_limits<double>::max_digits10);
  for (std::size_t i = 0; i < result.casts.size(); ++i) {
    const std::vector<Field> fields = fields_of(i + 1, result.casts[i]);
    if (i == 0) {
      for (const Field& field : fields) csv << (&field == fields.data() ? "" : ",") << field.name;
      csv << '\n';
    }
    for (const Field& field : fields) {
      if (&field != fields.data()) csv << ',';
      field.write(csv);
    }
    csv << '\n';
  }
  return csv.str();
}

}  // namespace

std::string to_json(const CastResult& result) {
  const DefaultEnvironment environment;
  std::uint64_t size = 0;
  for (const SourceTensor& facts : result.tensors) size += facts.size();
  Json json{{"source", result.source},
            {"type", name_of(result.tensors.front().type)},
            {"size", size},
            {"tensors", json_of_tensors(result.tensors)},
            {"casts", Json::array()}};
  for (const MeasuredCast& cast : result.casts) json["casts"].push_back(json_of(cast));
  return text_of(json_of_result("cast", json_of(result.arguments), json));
}

std::vector<std::string> file_names_of(const std::vector<Cast>& casts) {
  std::vector<std::string> names{"cast.json", "summary.csv"};
  for (std::size_t i = 0; i < casts.size(); ++i) {
    for (const NamedHistogram& entry : MeasuredCast(casts[i]).histograms()) {
      names.push_back(histogram_file(i, casts[i], entry.name));
    }
  }
  return names;
}

std::vector<std::pair<std::string, std::string>> files_of(const CastResult& result) {
  const DefaultEnvironment environment;
  std::vector<std::pair<std::string, std::string>> files{{"cast.json", to_json(result)},
                                                         {"summary.csv", summary_csv(result)}};
  for (std::size_t i = 0; i < result.casts.size(); ++i) {
    for (const NamedHistogram& entry : result.casts[i].histograms()) {
      files.emplace_back(histogram_file(i, result.casts[i].cast, entry.name), to_csv(entry.histogram));
    }
  }
  return files;
}

std::string report_of(const CastResult& result, const TextStyle& style) {
  const DefaultEnvironment environment;
  const Labels labels = labels_of(result.casts);
  std::string text = "Casting " + result.source + "\n";
  if (const auto* draws = std::get_if<Draws>(&result.arguments.source)) {
    text += std::string(draws->distribution.name) + ": " + std::string(draws->distribution.description) + "\n";
  }
  const bool has_float64 = std::ranges::count(result.tensors, ElementType::float64, &SourceTensor::type) != 0;
  text += "What comes back: decode(encode(x * scale)) * (1 / scale), in ";
  if (result.arguments.out_dtype == OutDtype::source) {
    text += "the values' own type.\n";
  } else {
    text += has_float64 ? "float64 where values are, or float32.\n" : "float32.\n";
  }
  if (!labels.common.empty()) text += "All casts: " + labels.common + "\n";
  text += errors_text(result, labels, style) + counts_text(result, labels, style);
  return text + picture_text(result, style) + reading_text(result, labels);
}

}  // namespace fp8lab::experiments
