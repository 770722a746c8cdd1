// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "delayed/delayed.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/report.hpp"
#include "scaling/scaling.hpp"

namespace fp8lab::experiments {
namespace {

std::string db_text(double db) { return std::isnan(db) ? "-" : formatted("%.3f", db); }

/// A share in percent; none at all shows as a plain 0.
std::string share_text(std::uint64_t count, std::uint64_t of) {
  if (count == 0) return "0";
  return formatted("%.4g %%", 100 * static_cast<double>(count) / static_cast<double>(of));
}

std::string recipes_text(const ScalingResult& result, const TextStyle& style) {
  std::vector<std::vector<std::string>> rows{
      {"# recipe", "SQNR dB", "lowest", "at step", "saturated", "underflows", "clipped blocks"}};
  for (std::size_t i = 0; i < result.measured.size(); ++i) {
    const MeasuredScaling& measured = result.measured[i];
    rows.push_back({formatted("%c ", mark_of(i)) + measured.name,
                    db_text(measured.totals.count > 0 ? measured.totals.sqnr_db() : std::nan("")),
                    db_text(measured.steps[measured.worst].sqnr_db), std::to_string(measured.worst),
                    share_text(measured.saturated, measured.elements),
                    share_text(measured.underflows, measured.elements),
                    share_text(measured.clipped_blocks, measured.blocks)});
  }
  return draw_table(rows, style);
}

/// The steps worth a line: the first ones, the last, and those around the largest changes of the amax.
std::vector<std::size_t> telling_steps(const std::vector<double>& amaxes) {
  constexpr std::size_t changes = 4;
  std::vector<std::size_t> order;
  for (std::size_t i = 1; i < amaxes.size(); ++i) order.push_back(i);
  const auto change = [&](std::size_t i) {
    const double ratio = std::abs(std::log2(amaxes[i] / amaxes[i - 1]));
    return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
  };
  std::ranges::stable_sort(order, [&](std::size_t i, std::size_t j) { return change(i) > change(j); });
  order.resize(std::min(order.size(), changes));
  std::vector<std::size_t> steps{0, 1, 2, amaxes.size() - 1};
  for (const std::size_t i : order) {
    for (const std::size_t near : {i - 1, i, i + 1}) steps.push_back(near);
  }
  std::ranges::sort(steps);
  steps.erase(std::ranges::unique(steps).begin(), steps.end());
  std::erase_if(steps, [&](std::size_t step) { return step >= amaxes.size(); });
  return steps;
}

std::string by_step_text(const ScalingResult& result, const TextStyle& style) {
  constexpr int width = 10;  // of a column
  const std::size_t columns =
      std::min(result.measured.size(), static_cast<std::size_t>(std::max(1, style.width / width - 2)));
  std::vector<std::vector<std::string>> rows{{"step", "amax"}};
  for (std::size_t i = 0; i < columns; ++i) rows.front().push_back(formatted("%c", mark_of(i)));
  for (const std::size_t step : telling_steps(result.amaxes)) {
    rows.push_back({std::to_string(step), formatted("%.4g", result.amaxes[step])});
    for (std::size_t i = 0; i < columns; ++i) {
      const double db = result.measured[i].steps[step].sqnr_db;
      rows.back().push_back(std::isnan(db) ? "-" : formatted("%.2f", db));
    }
  }
  std::string text = "\nSQNR in dB by step, around the largest changes of the amax:\n" + draw_table(rows, style);
  if (columns < result.measured.size()) {
    text += formatted("  (--out writes all %zu columns)\n", result.measured.size());
  }
  return text;
}

std::string lines_text(const ScalingResult& result, const TextStyle& style) {
  std::vector<Line> lines;
  for (std::size_t i = 0; i < result.measured.size(); ++i) {
    Line& line = lines.emplace_back(Line{mark_of(i), {}, {}});
    for (std::size_t step = 0; step < result.amaxes.size(); ++step) {
      line.x.push_back(static_cast<double>(step));
      line.y.push_back(result.measured[i].steps[step].rms);
    }
  }
  const std::string picture = result.amaxes.size() < 2 ? "" : draw_lines(lines, style, AxisOfX::linear);
  if (picture.empty()) return "";
  return "\nrms error / rms of the tensor against step (*: several lines):\n" + picture;
}

std::string binades_text(const ScalingResult& result, const TextStyle& style) {
  std::vector<std::string> titles;
  std::vector<const Histogram*> histograms;
  const std::size_t columns = std::min(result.measured.size(), columns_that_fit(style));
  for (std::size_t i = 0; i < columns; ++i) {
    titles.push_back(formatted("%c", mark_of(i)));
    histograms.push_back(&result.measured[i].relative_error);
  }
  std::string text = "\n|relative error| by binade, elements (2^0: all of it is lost):\n";
  return text + draw_binades(titles, histograms, style, 0.001);
}

Json json_of(const ScalingArguments& arguments) {
  Json json{{"source", json_of_source(arguments.source)},
            {"recipes", Json::array()},
            {"delayed", Json::array()},
            {"pass", arguments.pass == Pass::forward ? "forward" : "backward"},
            {"bfloat16", arguments.bfloat16},
            {"out_dtype", name_of(arguments.out_dtype)}};
  for (const ChosenRecipe& chosen : arguments.recipes) json["recipes"].push_back(chosen.name);
  for (const Delayed& delayed : arguments.delayed) json["delayed"].push_back(describe(delayed));
  return json;
}

Json json_of(const MeasuredScaling& measured) {
  Json json{{"name", measured.name},
            {"description", measured.description},
            {"source", measured.source},
            {"sqnr_db", measured.totals.count > 0 ? measured.totals.sqnr_db() : std::nan("")},
            {"rms_error", measured.totals.rms_error()},
            {"mean_error", measured.totals.mean_error()},
            {"elements", measured.elements},
            {"not_finite", measured.totals.not_finite},
            {"saturated", measured.saturated},
            {"underflows", measured.underflows},
            {"blocks", measured.blocks},
            {"clipped_blocks", measured.clipped_blocks},
            {"steps", Json::object()},
            {"histograms", Json::object()}};
  Json& steps = json["steps"];
  for (const ScalingStep& step : measured.steps) {
    steps["scale"].push_back(step.scale);
    steps["sqnr_db"].push_back(step.sqnr_db);
    steps["rms"].push_back(step.rms);
    steps["saturated"].push_back(step.saturated);
    steps["underflows"].push_back(step.underflows);
  }
  for (const NamedHistogram& entry : measured.histograms()) {
    json["histograms"][entry.name] = json_of_histogram(entry.histogram);
  }
  return json;
}

/// As a field; no number is an empty one.
std::string number_field(double value) { return std::isfinite(value) ? formatted("%.17g", value) : ""; }

std::string summary_csv(const ScalingResult& result) {
  TextStream csv;
  csv << "recipe,sqnr_db,lowest_sqnr_db,lowest_at_step,rms_error,mean_error,elements,not_finite,saturated,underflows,"
         "blocks,clipped_blocks\n";
  for (const MeasuredScaling& m : result.measured) {
    csv << csv_field(m.name) << ',' << number_field(m.totals.count > 0 ? m.totals.sqnr_db() : std::nan("")) << ','
        << number_field(m.steps[m.worst].sqnr_db) << ',' << m.worst << ',' << number_field(m.totals.rms_error()) << ','
        << number_field(m.totals.mean_error()) << ',' << m.elements << ',' << m.totals.not_finite << ',' << m.saturated
        << ',' << m.underflows << ',' << m.blocks << ',' << m.clipped_blocks << '\n';
  }
  return csv.str();
}

std::string steps_csv(const ScalingResult& result) {
  TextStream csv;
  csv << "step,tensor,amax,recipe,scale,sqnr_db,rms,saturated,underflows\n";
  for (std::size_t i = 0; i < result.amaxes.size(); ++i) {
    const std::string tensor = csv_field(result.tensors[i].name);
    for (const MeasuredScaling& m : result.measured) {
      const ScalingStep& step = m.steps[i];
      csv << i << ',' << tensor << ',' << number_field(result.amaxes[i]) << ',' << csv_field(m.name) << ','
          << number_field(step.scale) << ',' << number_field(step.sqnr_db) << ',' << number_field(step.rms) << ','
          << step.saturated << ',' << step.underflows << '\n';
    }
  }
  return csv.str();
}

}  // namespace

std::string to_json(const ScalingResult& result) {
  const DefaultEnvironment environment;
  Json json{{"source", result.source},
            {"tensors", json_of_tensors(result.tensors)},
            {"amax", result.amaxes},
            {"recipes", Json::array()}};
  for (const MeasuredScaling& measured : result.measured) json["recipes"].push_back(json_of(measured));
  return text_of(json_of_result("scaling", json_of(result.arguments), json));
}

std::vector<std::pair<std::string, std::string>> files_of(const ScalingResult& result) {
  const DefaultEnvironment environment;
  const std::vector<std::string> names = file_names_of(result.arguments);
  std::vector<std::pair<std::string, std::string>> files{
      {names[0], to_json(result)}, {names[1], summary_csv(result)}, {names[2], steps_csv(result)}};
  for (const MeasuredScaling& measured : result.measured) {
    for (const NamedHistogram& entry : measured.histograms()) {
      files.emplace_back(names[files.size()], to_csv(entry.histogram));
    }
  }
  return files;
}

std::string report_of(const ScalingResult& result, const TextStyle& style) {
  const DefaultEnvironment environment;
  std::string text = "Scaling: " + result.source + (result.arguments.bfloat16 ? ", rounded to bfloat16" : "") + "\n\n";
  text += recipes_text(result, style);
  if (result.amaxes.size() > 1) text += by_step_text(result, style);
  text += lines_text(result, style) + binades_text(result, style);
  return text +
         "\nHow to read it:\n"
         "  SQNR compares what comes back with what went in. Saturated: beyond the format's largest\n"
         "  value once scaled and rounded. Underflows: nonzero elements that came back as zero.\n"
         "  Clipped blocks: groups with a scale whose largest element is above that value.\n"
         "  Delayed scaling casts with the scale of the steps before: after a jump upward it saturates\n"
         "  until the new amax is in its window, after an outlier it underflows until that has left it.\n";
}

}  // namespace fp8lab::experiments
