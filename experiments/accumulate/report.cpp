// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "accumulate/accumulate.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/report.hpp"

namespace fp8lab::experiments {
namespace {

/// A measure of a point, under the name that JSON and CSV give it.
struct NamedMeasure {
  const char* name;
  double ErrorSummary::* value;
};
constexpr std::array measures{NamedMeasure{"mean", &ErrorSummary::mean}, NamedMeasure{"rms", &ErrorSummary::rms},
                              NamedMeasure{"median", &ErrorSummary::median},
                              NamedMeasure{"largest", &ErrorSummary::largest}};

struct NamedSummary {
  const char* name;
  ErrorSummary AccumulatePoint::* summary;
};
constexpr std::array summaries{NamedSummary{"relative_error", &AccumulatePoint::relative_error},
                               NamedSummary{"backward_error", &AccumulatePoint::backward_error}};

/// The curves of one distribution.
using Curves = std::vector<const AccumulateCurve*>;

std::vector<Curves> by_distribution(const AccumulateResult& result) {
  std::vector<Curves> groups;
  for (const AccumulateCurve& curve : result.curves) {
    if (groups.empty() || groups.back().front()->draws.name() != curve.draws.name()) groups.emplace_back();
    groups.back().push_back(&curve);
  }
  return groups;
}

std::string formats_text(const AccumulateCurve& curve) {
  if (curve.format_a.name == curve.format_b.name) return curve.format_a.name;
  return curve.format_a.name + " x " + curve.format_b.name;
}

std::string label_of(const AccumulateCurve& curve, char mark) {
  std::string label = formatted("%c ", mark) + std::string(curve.model.name);
  if (curve.format_a.format != e4m3 || curve.format_b.format != e4m3) label += ", " + formats_text(curve);
  if (curve.promote_k != 0) label += formatted(", promote %d", curve.promote_k);
  return label;
}

std::string table_text(const Curves& curves, const std::string& title, ErrorSummary AccumulatePoint::* summary,
                       double ErrorSummary::* value, const TextStyle& style) {
  std::vector<std::vector<std::string>> rows{{"# model"}};
  for (const AccumulatePoint& point : curves.front()->points) rows.front().push_back(formatted("K=%lld", point.k));
  for (std::size_t i = 0; i < curves.size(); ++i) {
    rows.push_back({label_of(*curves[i], mark_of(i))});
    for (const AccumulatePoint& point : curves[i]->points) {
      const double measured = point.*summary.*value;
      rows.back().push_back(std::isnan(measured) ? "-" : formatted("%.1e", measured));
    }
  }
  return "\n" + title + ":\n" + draw_table(rows, style);
}

std::string picture_text(const Curves& curves, const TextStyle& style) {
  std::vector<Line> lines;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    Line& line = lines.emplace_back(Line{mark_of(i), {}, {}});
    for (const AccumulatePoint& point : curves[i]->points) {
      line.x.push_back(static_cast<double>(point.k));
      line.y.push_back(point.backward_error.largest);
    }
  }
  const std::string picture = draw_lines(lines, style);
  return picture.empty()
             ? ""
             : "\nLargest |error| / sum |products| against K (*: several lines; zeros are left out):\n" + picture;
}

/// What the errors leave out, if anything.
std::string left_out_text(const Curves& curves, std::uint64_t dots) {
  std::uint64_t left_out = 0;
  std::uint64_t all = 0;
  for (const AccumulateCurve* curve : curves) {
    for (const AccumulatePoint& point : curve->points) {
      all += dots;
      left_out += dots - point.relative_error.count;
    }
  }
  if (left_out == 0) return "";
  return "\nNo finite relative error, and left out: " + std::to_string(left_out) + " of " + std::to_string(all) +
         " dot products\n";
}

std::string distribution_text(const Curves& curves, std::uint64_t dots, const TextStyle& style) {
  const FactorDraws& draws = curves.front()->draws;
  std::string description(draws.distribution.description);
  if (draws.magnitudes) description = "magnitudes of " + description.substr(0, description.find(':'));
  std::string text = "\n";
  text += draws.name() + ": " + description + "\n";
  const auto add = [&](const std::string& title, ErrorSummary AccumulatePoint::* summary,
                       double ErrorSummary::* value) { text += table_text(curves, title, summary, value, style); };
  if (draws.has_one_sign()) {
    add("Largest |relative error|", &AccumulatePoint::relative_error, &ErrorSummary::largest);
    add("Mean relative error, the bias", &AccumulatePoint::relative_error, &ErrorSummary::mean);
  } else {
    add("Median |relative error|", &AccumulatePoint::relative_error, &ErrorSummary::median);
    add("Largest |error| / sum |products|", &AccumulatePoint::backward_error, &ErrorSummary::largest);
    add("Mean error / sum |products|, the bias", &AccumulatePoint::backward_error, &ErrorSummary::mean);
  }
  return text + left_out_text(curves, dots) + picture_text(curves, style);
}

Json json_of(const AccumulateArguments& arguments) {
  Json json{{"models", Json::array()}, {"distributions", Json::array()},
            {"k", arguments.ks},       {"promote_k", arguments.promote_ks},
            {"format_a", nullptr},     {"format_b", nullptr},
            {"rows", arguments.rows},  {"columns", arguments.columns},
            {"seed", arguments.seed}};
  for (const MmaModel& model : arguments.models) json["models"].push_back(model.name);
  for (const FactorDraws& draws : arguments.distributions) json["distributions"].push_back(draws.name());
  if (arguments.format_a) json["format_a"] = arguments.format_a->name;
  if (arguments.format_b) json["format_b"] = arguments.format_b->name;
  return json;
}

/// The curve as series: one entry a K.
Json json_of(const AccumulateCurve& curve) {
  Json json{{"distribution", curve.draws.name()}, {"model", curve.model.name},        {"format_a", curve.format_a.name},
            {"format_b", curve.format_b.name},    {"promote_k", curve.promote_k},     {"k", Json::array()},
            {"relative_error", Json::object()},   {"backward_error", Json::object()}, {"histograms", Json::array()}};
  for (const AccumulatePoint& point : curve.points) {
    json["k"].push_back(point.k);
    for (const NamedSummary& summary : summaries) {
      const ErrorSummary& errors = point.*summary.summary;
      json[summary.name]["count"].push_back(errors.count);
      for (const NamedMeasure& measure : measures) json[summary.name][measure.name].push_back(errors.*measure.value);
    }
    json["histograms"].push_back(json_of_histogram(point.histogram));
  }
  return json;
}

std::string summary_csv(const AccumulateResult& result) {
  TextStream csv;
  csv.precision(std::numeric_limits<double>::max_digits10);
  csv << "point,distribution,model,format_a,format_b,promote_k,k";
  for (const NamedSummary& summary : summaries) {
    csv << ',' << summary.name << "_count";
    for (const NamedMeasure& measure : measures) csv << ',' << summary.name << '_' << measure.name;
  }
  csv << '\n';
  std::size_t row = 0;
  for (const AccumulateCurve& curve : result.curves) {
    for (const AccumulatePoint& point : curve.points) {
      csv << ++row << ',' << curve.draws.name() << ',' << curve.model.name << ',' << csv_field(curve.format_a.name)
          << ',' << csv_field(curve.format_b.name) << ',' << curve.promote_k << ',' << point.k;
      for (const NamedSummary& summary : summaries) {
        const ErrorSummary& errors = point.*summary.summary;
        csv << ',' << errors.count;
        for (const NamedMeasure& measure : measures) {
          csv << ',';
          if (std::isfinite(errors.*measure.value)) csv << errors.*measure.value;  // no number: an empty field
        }
      }
      csv << '\n';
    }
  }
  return csv.str();
}

std::string histogram_file(std::size_t row, const AccumulateCurve& curve, long long k) {
  std::string name = formatted("%02zu_", row) + curve.draws.name() + "_" + std::string(curve.model.name);
  if (curve.promote_k != 0) name += formatted("_promoted%d", curve.promote_k);
  return name + formatted("_k%lld.csv", k);
}

}  // namespace

std::string to_json(const AccumulateResult& result) {
  const DefaultEnvironment environment;
  Json json{{"dots", result.arguments.rows * result.arguments.columns}, {"curves", Json::array()}};
  for (const AccumulateCurve& curve : result.curves) json["curves"].push_back(json_of(curve));
  return text_of(json_of_result("accumulate", json_of(result.arguments), json));
}

std::vector<std::string> file_names_of(const std::vector<AccumulateCurve>& curves, const std::vector<long long>& ks) {
  std::vector<long long> ascending = ks;
  std::ranges::sort(ascending);
  std::vector<std::string> names{"accumulate.json", "summary.csv"};
  std::size_t row = 0;
  for (const AccumulateCurve& curve : curves) {
    for (const long long k : ascending) names.push_back(histogram_file(++row, curve, k));
  }
  return names;
}

std::vector<std::pair<std::string, std::string>> files_of(const AccumulateResult& result) {
  const DefaultEnvironment environment;
  std::vector<std::pair<std::string, std::string>> files{{"accumulate.json", to_json(result)},
                                                         {"summary.csv", summary_csv(result)}};
  std::size_t row = 0;
  for (const AccumulateCurve& curve : result.curves) {
    for (const AccumulatePoint& point : curve.points) {
      files.emplace_back(histogram_file(++row, curve, point.k), to_csv(point.histogram));
    }
  }
  return files;
}

std::string report_of(const AccumulateResult& result, const TextStyle& style) {
  const DefaultEnvironment environment;
  const AccumulateArguments& arguments = result.arguments;
  std::string text = formatted("The accumulator's error: %lld x %lld dot products of drawn rows, seed %llu\n",
                               arguments.rows, arguments.columns, static_cast<unsigned long long>(arguments.seed));
  text += "Factors are cast to E4M3 unless a line says otherwise; exact are the dot products of what is cast.\n";
  const auto dots = static_cast<std::uint64_t>(arguments.rows * arguments.columns);
  for (const Curves& curves : by_distribution(result)) text += distribution_text(curves, dots, style);
  return text +
         "\nHow to read it:\n"
         "  A tensor core cuts every term to a few bits below the largest: where the sum is large,\n"
         "  small products vanish, and all errors go toward zero. Without promotion that grows\n"
         "  with K. Promote: every so many elements the sum is added to a float32 one and starts anew.\n"
         "  The bias is the mean of signed errors; sums of one sign have it, and others hardly.\n";
}

}  // namespace fp8lab::experiments
