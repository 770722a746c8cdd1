// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "delayed/delayed.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/report.hpp"

namespace fp8lab::experiments {
namespace {

/// The variants of a tensor that never part: one line of tables and pictures.
struct Group {
  char mark;
  std::vector<std::size_t> variants;  ///< at least one
};

/// Whether no cast of the trace tells them apart.
bool are_equal(const ReplayedScales& a, const ReplayedScales& b) {
  return std::equal(a.scales.begin(), a.scales.end() - 1, b.scales.begin(),
                    [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

std::vector<Group> groups_of(const DelayedResult& result, const ReplayedTensor& tensor) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < tensor.variants.size(); ++i) {
    const auto same = std::ranges::find_if(groups, [&](const Group& group) {
      const std::size_t first = group.variants.front();
      return result.variants[first].pass == result.variants[i].pass &&
             are_equal(tensor.variants[first], tensor.variants[i]);
    });
    if (same != groups.end()) {
      same->variants.push_back(i);
    } else {
      groups.push_back({mark_of(groups.size()), {i}});
    }
  }
  return groups;
}

/// A group's mark and the names of its variants, in lines of the terminal's width.
std::string names_text(const DelayedResult& result, const Group& group, const TextStyle& style) {
  std::string text;
  std::string line = formatted("  %c", group.mark);
  for (const std::size_t i : group.variants) {
    std::string name(" ");
    name += result.variants[i].name() + (i == group.variants.back() ? "" : ",");
    if (std::cmp_greater(line.size() + name.size(), style.width) && line.size() > 4) {
      text += line + '\n';
      line = "   ";
    }
    line += name;
  }
  return text + line + '\n';
}

std::string factor_text(double factor) { return formatted(factor >= 1e5 ? "%.1e" : "%.4g", factor); }

std::string binades_text(double binades) {
  if (std::isnan(binades)) return "-";
  return formatted("%.2f", std::round(100 * binades) / 100 + 0.0);  // + 0.0: no -0.00
}

std::string table_text(const DelayedResult& result, const ReplayedTensor& tensor, const std::vector<Group>& groups,
                       const TextStyle& style) {
  const auto step = [&](std::size_t i) { return std::to_string(result.arguments.trace.steps[i]); };
  std::vector<std::vector<std::string>> rows{
      {"#", "parts at step", "by", "at most by", "at step", "steps apart", "clipped steps", "unused binades"}};
  for (const Group& group : groups) {
    const ReplayedScales& replayed = tensor.variants[group.variants.front()];
    rows.push_back({std::string(1, group.mark)});
    if (const auto& parting = replayed.parting) {
      for (const std::string& cell :
           {step(parting->first), factor_text(parting->factor), factor_text(parting->widest_factor),
            step(parting->widest), std::to_string(parting->count)}) {
        rows.back().push_back(cell);
      }
    } else {
      rows.back().insert(rows.back().end(), 5, "-");
    }
    rows.back().push_back(std::to_string(replayed.clipped));
    rows.back().push_back(binades_text(replayed.unused_binades));
  }
  return draw_table(rows, style);
}

/// The steps worth a line: the first ones, and those around a parting or a widest one.
std::vector<std::size_t> steps_to_show(const ReplayedTensor& tensor, const std::vector<Group>& groups) {
  constexpr std::size_t most = 20;
  std::vector<std::size_t> steps{0, 1, 2};
  for (const Group& group : groups) {
    const auto& parting = tensor.variants[group.variants.front()].parting;
    if (!parting) continue;
    for (const std::size_t step : {parting->first, parting->widest}) {
      if (step > 0) steps.push_back(step - 1);
      steps.push_back(step);
      steps.push_back(step + 1);
    }
  }
  std::ranges::sort(steps);
  steps.erase(std::ranges::unique(steps).begin(), steps.end());
  std::erase_if(steps, [&](std::size_t step) { return step >= tensor.amaxes.size(); });
  steps.resize(std::min(steps.size(), most));
  return steps;
}

/// Scales side by side, as many columns as fit.
std::string steps_text(const DelayedResult& result, const ReplayedTensor& tensor, const std::vector<Group>& groups,
                       const TextStyle& style) {
  constexpr int width = 12;  // of a column
  const std::size_t columns = std::min(groups.size(), static_cast<std::size_t>(std::max(1, style.width / width - 2)));
  std::vector<std::vector<std::string>> rows{{"step", "amax"}};
  for (std::size_t i = 0; i < columns; ++i) rows.front().push_back(formatted("scale %c", groups[i].mark));
  for (const std::size_t step : steps_to_show(tensor, groups)) {
    rows.push_back({std::to_string(result.arguments.trace.steps[step]),
                    formatted("%.6g", static_cast<double>(tensor.amaxes[step]))});
    for (std::size_t i = 0; i < columns; ++i) {
      const float scale = tensor.variants[groups[i].variants.front()].scales[step];
      rows.back().push_back(formatted("%.6g", static_cast<double>(scale)));
    }
  }
  std::string text = draw_table(rows, style);
  if (columns < groups.size()) text += formatted("  (--out writes all %zu columns)\n", groups.size());
  return text;
}

/// Where a line bends: its ends, and the points with a neighbour of another scale.
Line bends_of(char mark, const std::vector<std::uint64_t>& steps, const std::vector<float>& scales) {
  Line line{mark, {}, {}};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool is_inside = i > 0 && i + 1 < steps.size();
    if (is_inside && scales[i] == scales[i - 1] && scales[i] == scales[i + 1]) continue;
    line.x.push_back(static_cast<double>(steps[i]));
    line.y.push_back(static_cast<double>(scales[i]));
  }
  return line;
}

/// Scales further from the median of all than 8 decades would leave no room for the others.
std::string picture_text(const DelayedResult& result, const ReplayedTensor& tensor, const std::vector<Group>& groups,
                         const TextStyle& style) {
  constexpr double furthest = 1e8;
  std::vector<double> all;
  std::vector<Line> lines;
  for (const Group& group : groups) {
    const Line& line = lines.emplace_back(
        bends_of(group.mark, result.arguments.trace.steps, tensor.variants[group.variants.front()].scales));
    for (const double y : line.y) {
      if (std::isfinite(y) && y > 0) all.push_back(y);
    }
  }
  if (all.empty()) return "";
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle);
  bool leaves_out = false;
  for (Line& line : lines) {
    for (double& y : line.y) {
      if (y < *middle * furthest && y > *middle / furthest) continue;
      y = 0;
      leaves_out = true;
    }
  }
  const std::string title = "\nScale against step, marked where it changes (*: several lines";
  return title + (leaves_out ? "; without 0, inf, NaN, 8 decades away):\n" : "):\n") +
         draw_lines(lines, style, AxisOfX::linear);
}

constexpr std::size_t most_tensors = 8;  // of a report

std::string tensor_text(const DelayedResult& result, const ReplayedTensor& tensor, const TextStyle& style) {
  const std::vector<Group> groups = groups_of(result, tensor);
  std::string text = "\n";
  text += tensor.name + ", variants with the same scales together:\n";
  for (const Group& group : groups) text += names_text(result, group, style);
  return text + "\n" + table_text(result, tensor, groups, style) + "\n" + steps_text(result, tensor, groups, style) +
         picture_text(result, tensor, groups, style);
}

/// A number, or what it is instead.
Json json_of(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}
Json json_of(const std::vector<float>& values) {
  Json json = Json::array();
  for (const float x : values) json.push_back(json_of(static_cast<double>(x)));
  return json;
}

Json json_of(const DelayedArguments& arguments) {
  Json json{{"trace", arguments.trace.source},     {"formats", Json::array()},       {"versions", Json::array()},
            {"algorithms", Json::array()},         {"history", arguments.histories}, {"margin", arguments.margin},
            {"reduce_amax", arguments.reduce_amax}};
  for (const ChosenFormat& format : arguments.formats) json["formats"].push_back(format.name);
  for (const DelayedVersion& version : arguments.versions) json["versions"].push_back(version.name);
  for (const AmaxComputeAlgo algorithm : arguments.algorithms) json["algorithms"].push_back(name_of(algorithm));
  return json;
}

Json json_of(const DelayedVariant& variant) {
  const Delayed& recipe = variant.recipe;
  return {{"name", variant.name()},
          {"version", recipe.version.name},
          {"format", variant.pass == Pass::forward ? "e4m3" : "e5m2"},
          {"amax_history_len", recipe.amax_history_len},
          {"amax_compute_algo", name_of(std::get<AmaxComputeAlgo>(recipe.amax_compute_algo))},
          {"margin", recipe.margin}};
}

Json json_of(const ReplayedScales& replayed, const std::string& name) {
  Json json{{"variant", name},
            {"scales", json_of(replayed.scales)},
            {"clipped", replayed.clipped},
            {"unused_binades", replayed.unused_binades},
            {"parting", nullptr}};
  if (const auto& parting = replayed.parting) {
    json["parting"] = {{"first", parting->first},
                       {"factor", json_of(parting->factor)},
                       {"count", parting->count},
                       {"widest", parting->widest},
                       {"widest_factor", json_of(parting->widest_factor)}};
  }
  return json;
}

std::string scales_csv(const DelayedResult& result) {
  TextStream csv;
  csv.precision(std::numeric_limits<float>::max_digits10);
  csv << "tensor,step,amax";
  for (const DelayedVariant& variant : result.variants) csv << ',' << variant.name();
  csv << '\n';
  for (const ReplayedTensor& tensor : result.tensors) {
    for (std::size_t step = 0; step < tensor.amaxes.size(); ++step) {
      csv << csv_field(tensor.name) << ',' << result.arguments.trace.steps[step] << ',' << tensor.amaxes[step];
      for (const ReplayedScales& replayed : tensor.variants) csv << ',' << replayed.scales[step];
      csv << '\n';
    }
  }
  return csv.str();
}

std::string summary_csv(const DelayedResult& result) {
  const std::vector<std::uint64_t>& steps = result.arguments.trace.steps;
  TextStream csv;
  csv << "tensor,variant,parts_at_step,factor,steps_apart,widest_step,widest_factor,clipped_steps,unused_binades\n";
  for (const ReplayedTensor& tensor : result.tensors) {
    for (std::size_t i = 0; i < tensor.variants.size(); ++i) {
      const ReplayedScales& replayed = tensor.variants[i];
      csv << csv_field(tensor.name) << ',' << result.variants[i].name() << ',';
      if (const auto& parting = replayed.parting) {
        csv << steps[parting->first] << ',' << parting->factor << ',' << parting->count << ',' << steps[parting->widest]
            << ',' << parting->widest_factor;
      } else {
        csv << ",,0,,";
      }
      csv << ',' << replayed.clipped << ',';
      if (!std::isnan(replayed.unused_binades)) csv << replayed.unused_binades;
      csv << '\n';
    }
  }
  return csv.str();
}

}  // namespace

std::string to_json(const DelayedResult& result) {
  const DefaultEnvironment environment;
  Json json{{"steps", result.arguments.trace.steps}, {"variants", Json::array()}, {"tensors", Json::array()}};
  for (const DelayedVariant& variant : result.variants) json["variants"].push_back(json_of(variant));
  for (const ReplayedTensor& tensor : result.tensors) {
    Json replayed = Json::array();
    for (std::size_t i = 0; i < tensor.variants.size(); ++i) {
      replayed.push_back(json_of(tensor.variants[i], result.variants[i].name()));
    }
    json["tensors"].push_back({{"name", tensor.name}, {"amaxes", json_of(tensor.amaxes)}, {"replayed", replayed}});
  }
  return text_of(json_of_result("delayed", json_of(result.arguments), json));
}

std::vector<std::string> delayed_files() { return {"delayed.json", "scales.csv", "summary.csv"}; }

std::vector<std::pair<std::string, std::string>> files_of(const DelayedResult& result) {
  const DefaultEnvironment environment;
  return {{"delayed.json", to_json(result)}, {"scales.csv", scales_csv(result)}, {"summary.csv", summary_csv(result)}};
}

std::string report_of(const DelayedResult& result, const TextStyle& style) {
  const DefaultEnvironment environment;
  std::string text = "Delayed scaling, replayed from the amaxes of " + result.arguments.trace.source + ": " +
                     std::to_string(result.arguments.trace.steps.size()) + " steps, " +
                     std::to_string(result.tensors.size()) + " tensors, " + std::to_string(result.variants.size()) +
                     " variants\n";
  for (std::size_t i = 0; i < std::min(most_tensors, result.tensors.size()); ++i) {
    text += tensor_text(result, result.tensors[i], style);
  }
  if (result.tensors.size() > most_tensors) {
    text += formatted("\nThese are the first %zu tensors; --out writes all.\n", most_tensors);
  }
  return text +
         "\nHow to read it:\n"
         "  A scale is that of the step's cast, made of earlier steps' amaxes; \"max 16\" is the largest of 16.\n"
         "  Partings are from a, or from the first of the same format: this scale over that one.\n"
         "  Clipped: amax * scale rounds to more than the format's largest value. Unused: how far below\n"
         "  it the largest value lies, in powers of two, on average over the steps.\n";
}

}  // namespace fp8lab::experiments
