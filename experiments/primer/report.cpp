// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "kit/report.hpp"
#include "primer/primer.hpp"

namespace fp8lab::experiments {
namespace {

/// A corner as lines; below a row, carets under the characters in which it differs from `other`.
std::vector<std::string> lines_of(const Corner& corner, const Corner& other, std::size_t cell, bool mark,
                                  const TextStyle& style) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < 6; ++i) {
    std::string row;
    std::string carets;
    for (std::size_t j = 0; j < 6; ++j) {
      const std::string& text = corner[i][j];
      const std::string& reference = other[i][j];
      row += std::string(cell - std::min(cell, text.size()), ' ');
      carets += std::string(cell - std::min(cell, text.size()), ' ');
      for (std::size_t at = 0; at < text.size(); ++at) {
        const bool differs = text.size() != reference.size() || text[at] != reference[at];
        row +=
            differs && mark && style.color ? std::string("\x1b[31m") + text[at] + "\x1b[0m" : std::string(1, text[at]);
        carets += differs ? '^' : ' ';
      }
    }
    lines.push_back(row);
    // The published side gets an empty line where ours has carets, so that rows stay side by side.
    if (carets.find('^') != std::string::npos) lines.push_back(mark ? carets : std::string(carets.size(), ' '));
  }
  return lines;
}

std::string table_text(const PrimerTable& table, bool judged, const TextStyle& style) {
  std::size_t cell = 0;
  for (const Corner* corner : {&table.ours, &table.published}) {
    for (const auto& row : *corner) {
      for (const auto& text : row) cell = std::max(cell, text.size() + 1);
    }
  }
  std::string text = formatted("%s - %s: %d of 36 match%s\n", table.name.c_str(), table.title.c_str(), table.matches,
                               judged && table.matches < table.required ? " (TOO FEW)" : "");
  const auto ours = lines_of(table.ours, table.published, cell, true, style);
  const auto theirs = lines_of(table.published, table.ours, cell, false, style);
  const bool side_by_side = std::cmp_less_equal(2 * (6 * cell) + 3, style.width);
  const auto heading = [&](const char* title) {
    std::string padded = std::string("  ") + title;
    padded.resize(6 * cell, ' ');
    return padded;
  };
  if (side_by_side) {
    text += trimmed(heading("computed here") + "  |" + heading("printed by NVIDIA (H100)")) + '\n';
    for (std::size_t i = 0; i < ours.size(); ++i) text += trimmed(ours[i] + "  |" + theirs[i]) + '\n';
    return text + '\n';
  }
  text += "  computed here\n";
  for (const auto& line : ours) text += line + '\n';
  text += "  printed by NVIDIA (H100)\n";
  for (const auto& line : theirs) {
    if (line.find_first_not_of(' ') != std::string::npos) text += line + '\n';
  }
  return text + '\n';
}

std::string causes_text(const PrimerResult& result, const TextStyle& style) {
  std::string text = "Where out_fp8 - out_fp32 comes from, over all " +
                     std::to_string(result.causes.front().totals.count) + " outputs:\n";
  text += "  cause          rms error   largest     mean            share  what it is\n";
  for (const PrimerCause& cause : result.causes) {
    text +=
        formatted("  %-13s  %9.3e   %9.3e  %10.3e  %9.4f %%  %s\n", cause.name.c_str(), cause.totals.rms_error(),
                  cause.totals.max_absolute_error, cause.totals.mean_error(), 100 * cause.share, cause.meaning.c_str());
  }
  text += "\n|error| by cause; one line a binade, each column with its own scale:\n";
  std::vector<std::string> titles;
  std::vector<const Histogram*> histograms;
  for (std::size_t i = 0; i + 1 < result.causes.size(); ++i) {
    titles.push_back(result.causes[i].name);
    histograms.push_back(&result.histograms[i].histogram);
  }
  return text + draw_binades(titles, histograms, style);
}

const Histogram& histogram_of(const PrimerResult& result, std::string_view name) {
  return std::ranges::find(result.histograms, name, &NamedHistogram::name)->histogram;
}

std::string reading_text(const PrimerResult& result) {
  const auto percent = [&](std::string_view name, std::uint64_t counted) {
    return 100 * static_cast<double>(counted) / static_cast<double>(histogram_of(result, name).total());
  };
  const auto cause = [&](std::string_view name) {
    return 100 * std::ranges::find(result.causes, name, &PrimerCause::name)->share;
  };
  const auto tiny = [&](std::string_view name) {  // zero and the subnormal codes 01-07 and 81-87
    const Histogram& codes = histogram_of(result, name);
    std::uint64_t count = codes.underflows + codes.zeros;
    for (std::size_t code = 1; code < 8; ++code) count += codes.counts()[code] + codes.counts()[code + 128];
    return count;
  };
  std::string text = "\nHow to read it:\n";
  text += formatted(
      "  Of the difference between FP8 and FP32, %.3f %% comes from the casts, %.3f %% from the tensor core's sums.\n",
      cause("cast_of_x") + cause("cast_of_w"), cause("accumulator"));
  for (const auto& [name, tensor, scale] :
       {std::tuple{"codes_x", "x", result.arguments.scale_x}, std::tuple{"codes_w", "w", result.arguments.scale_w}}) {
    text += formatted("  %s at scale %g: %.1f %% zero or subnormal in E4M3, %.1f %% saturated.\n", tensor,
                      static_cast<double>(scale), percent(name, tiny(name)),
                      percent(name, histogram_of(result, name).saturations));
  }
  text += "  out_fp8 - out_fp8_representable has equal inputs on both sides: what is left is the accumulator of\n  " +
          std::string(result.arguments.mma.name) + ".\n";
  if (result.judged) {
    text +=
        "  out_fp32's missing digit: the device draws the weight with an approximate sine and cosine, and two weights "
        "of\n"
        "  that output lie so close to a tie of TF32's rounding that this decides the last printed digit.\n";
  }
  return text;
}

Json json_of(const PrimerCause& cause) {
  return {{"meaning", cause.meaning},
          {"share", cause.share},
          {"rms_error", cause.totals.rms_error()},
          {"mean_error", cause.totals.mean_error()},
          {"mean_absolute_error", cause.totals.mean_absolute_error()},
          {"max_absolute_error", cause.totals.max_absolute_error}};
}

Json json_of(const PrimerArguments& arguments) {
  return {{"seed", arguments.seed},
          {"sms", arguments.sms},
          {"mma", arguments.mma.name},
          {"in_features", arguments.in_features},
          {"out_features", arguments.out_features},
          {"rows", arguments.rows},
          {"scale_x", arguments.scale_x},
          {"scale_w", arguments.scale_w}};
}

}  // namespace

std::string to_json(const PrimerResult& result) {
  const DefaultEnvironment environment;
  Json json =
      json_of_result("primer", json_of(result.arguments), {{"judged", result.judged}, {"passed", result.passed}});
  json["provenance"]["source"] =
      "Transformer Engine documentation, Using FP8 with Transformer Engine (fp8_primer.ipynb)";
  for (const PrimerTable& table : result.tables) {
    json["tables"][table.name] = table.ours;
    json["published"][table.name] = table.published;
    json["matches"][table.name] = table.matches;
    json["required"][table.name] = table.required;
  }
  for (const PrimerCause& cause : result.causes) json["causes"][cause.name] = json_of(cause);
  for (const NamedHistogram& entry : result.histograms) {
    json["histograms"][entry.name] = json_of_histogram(entry.histogram);
    json["histograms"][entry.name]["title"] = entry.title;
  }
  return text_of(json);
}

std::vector<std::string> primer_files() {
  return {"primer.json",         "error_cast_of_x.csv", "error_cast_of_w.csv", "error_accumulator.csv",
          "error_tf32.csv",      "error_total.csv",     "relative_error.csv",  "difference_linear.csv",
          "accumulator_ulp.csv", "codes_x.csv",         "codes_w.csv"};
}

std::vector<std::pair<std::string, std::string>> files_of(const PrimerResult& result) {
  const DefaultEnvironment environment;
  std::vector<std::pair<std::string, std::string>> files{{"primer.json", to_json(result)}};
  for (const NamedHistogram& entry : result.histograms)
    files.emplace_back(entry.name + ".csv", to_csv(entry.histogram));
  return files;
}

std::string report_of(const PrimerResult& result, const TextStyle& style) {
  const DefaultEnvironment environment;
  std::string text =
      formatted("Transformer Engine's FP8 primer: %lld x %lld inputs, %lld outputs, seed %llu, %d SMs, %s\n\n",
                result.arguments.rows, result.arguments.in_features, result.arguments.out_features,
                static_cast<unsigned long long>(result.arguments.seed), result.arguments.sms,
                std::string(result.arguments.mma.name).c_str());
  for (const PrimerTable& table : result.tables) text += table_text(table, result.judged, style);
  text += causes_text(result, style) + reading_text(result);
  std::string counts;
  for (const PrimerTable& table : result.tables) {
    counts += formatted("%s%s %d/36", counts.empty() ? "" : ", ", table.name.c_str(), table.matches);
  }
  text += "\nMatches: " + counts;
  if (!result.judged) return text + " (not judged: the published tables belong to the default arguments)\n";
  return text + (result.passed ? ": reproduced\n" : ": NOT reproduced\n");
}

}  // namespace fp8lab::experiments
