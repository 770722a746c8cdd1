// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <numeric>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/report.hpp"
#include "transpose/transpose.hpp"

namespace fp8lab::experiments {
namespace {

/// A number for a table; "-" where there is none.
std::string decibel_text(double value) { return std::isnan(value) ? "-" : formatted("%.2f", value); }

/// Without a finite value there is no SQNR.
double sqnr_of_copy(const ErrorTotals& totals) {
  return totals.count == 0 ? std::numeric_limits<double>::quiet_NaN() : totals.sqnr_db();
}

std::uint64_t size_of(const TransposeResult& result, const MeasuredTranspose& one) {
  return result.tensors[one.tensor].size();
}

/// A count as a part of all elements; whatever is there shows, and only 0 is "0".
std::string part_text(std::uint64_t count, std::uint64_t size) {
  if (count == 0) return "0";
  const double percent = 100 * static_cast<double>(count) / static_cast<double>(size);
  return percent < 0.001 ? formatted("%.0e %%", percent) : formatted("%.3f %%", percent);
}

std::string number_of_recipe(std::size_t i, const TransposeResult& result) {
  return formatted(result.recipes.size() > 9 ? "%2zu " : "%zu ", i + 1);
}
std::string label_of_recipe(std::size_t i, const TransposeResult& result) {
  const std::string tensor =
      result.tensors.size() > 1 ? "tensor " + std::to_string(result.recipes[i].tensor + 1) + ", " : "";
  return number_of_recipe(i, result) + tensor + result.recipes[i].recipe.name;
}
const char* heading_of_recipes(const TransposeResult& result) {
  return result.recipes.size() > 9 ? " # recipe" : "# recipe";
}

/// A difference as text. It may be far below what a table shows, and is then written with an exponent.
std::string small_text(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0) return "0";
  return std::abs(value) < 5e-4 ? formatted("%.1e", value) : formatted("%.4f", value);
}

std::string factor_of_scales(double factor) {
  if (factor == 1) return "1";
  if (factor < 1.001) return formatted("1 %+.0e", factor - 1);
  return formatted(factor < 1000 ? "%.3f" : "%.1e", factor);
}

std::string sqnr_table(const TransposeResult& result, const TextStyle& style) {
  std::vector<std::vector<std::string>> rows{
      {heading_of_recipes(result), "rowwise", "original", "requantized", "lost dB", "rms apart", "scales apart"}};
  for (std::size_t i = 0; i < result.recipes.size(); ++i) {
    const MeasuredTranspose& one = result.recipes[i];
    rows.push_back({label_of_recipe(i, result), decibel_text(sqnr_of_copy(one.rowwise)),
                    decibel_text(sqnr_of_copy(one.original)), decibel_text(sqnr_of_copy(one.requantized)),
                    small_text(one.loss_db()), small_text(one.relative_rms_difference()),
                    factor_of_scales(one.widest_scale_factor)});
  }
  return "\nSQNR in dB of each copy, and how far the requantized one is from the original:\n" + draw_table(rows, style);
}

std::string differences_table(const TransposeResult& result, const TextStyle& style) {
  std::vector<std::vector<std::string>> rows{
      {heading_of_recipes(result), "codes transposed", "requantized", "codes", "scales"}};
  for (std::size_t i = 0; i < result.recipes.size(); ++i) {
    const TransposeCounts& counts = result.recipes[i].counts;
    rows.push_back({label_of_recipe(i, result)});
    for (const std::uint64_t count :
         {counts.transposed_differ, counts.values_differ, counts.codes_differ, counts.scales_differ}) {
      rows.back().push_back(part_text(count, size_of(result, result.recipes[i])));
    }
  }
  return "\nElements that are not as in the original copy (codes, scales: those of the requantized one):\n" +
         draw_table(rows, style);
}

std::string fates_table(const TransposeResult& result, const TextStyle& style) {
  std::vector<std::vector<std::string>> rows{
      {heading_of_recipes(result), "underflow", "requantized", "extra", "saturated", "requantized"}};
  for (std::size_t i = 0; i < result.recipes.size(); ++i) {
    const TransposeCounts& counts = result.recipes[i].counts;
    rows.push_back({label_of_recipe(i, result)});
    for (const std::uint64_t count :
         {counts.underflows_original, counts.underflows_requantized, counts.extra_underflows, counts.saturated_original,
          counts.saturated_requantized}) {
      rows.back().push_back(part_text(count, size_of(result, result.recipes[i])));
    }
  }
  return "\nWhat became of the values, in the original and in the requantized copy:\n" + draw_table(rows, style);
}

/// The recipes that lose most first, equal ones in their order.
std::vector<std::size_t> by_loss(const TransposeResult& result) {
  std::vector<std::size_t> order(result.recipes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const double loss_a = result.recipes[a].loss_db();
    const double loss_b = result.recipes[b].loss_db();
    return !std::isnan(loss_a) && (std::isnan(loss_b) || loss_a > loss_b);
  });
  return order;
}

/// Both copies' errors side by side, of the recipes that lose most.
std::string pairs_picture(const TransposeResult& result, const TextStyle& style) {
  const std::size_t pairs = std::max<std::size_t>(1, columns_that_fit(style) / 2);
  std::vector<std::size_t> drawn = by_loss(result);
  drawn.resize(std::min(pairs, drawn.size()));
  std::ranges::sort(drawn);
  std::vector<std::string> titles;
  std::vector<const Histogram*> histograms;
  for (const std::size_t i : drawn) {
    titles.push_back(formatted("#%zu original", i + 1));
    titles.push_back(formatted("#%zu requant.", i + 1));
    histograms.push_back(&result.recipes[i].error_original);
    histograms.push_back(&result.recipes[i].error_requantized);
  }
  std::string text = "\n|error| by binade, each column with its own scale (2^-5: from 2^-5 up to 2^-4)";
  if (drawn.size() < result.recipes.size()) text += ", where most is lost";
  return text + ":\n" + draw_binades(titles, histograms, style, 0.001);
}

/// The names of the recipes that `chosen` holds for, in lines of at most 90 columns.
template <typename Chosen>
std::string names_where(const TransposeResult& result, const Chosen& chosen) {
  std::string text;
  std::size_t begin = 0;
  for (const MeasuredTranspose& one : result.recipes) {
    if (!chosen(one)) continue;
    const std::string& name = one.recipe.name;
    text += text.empty() ? "  " : ", ";
    if (text.size() + name.size() > begin + 90) {
      text += "\n  ";
      begin = text.size();
    }
    text += name;
  }
  return text.empty() ? "  none\n" : text + '\n';
}

std::string costs_text(const TransposeResult& result) {
  return "\nThe rowwise codes, transposed, are the columnwise copy, value for value:\n" +
         names_where(result, [](const MeasuredTranspose& one) { return one.counts.transposed_differ == 0; }) +
         "Requantizing gives back the original copy, value for value:\n" +
         names_where(result, [](const MeasuredTranspose& one) { return one.counts.values_differ == 0; }) +
         "Requantizing gives back its codes, with scales that differ:\n" +
         names_where(result, [](const MeasuredTranspose& one) {
           return one.counts.values_differ != 0 && one.counts.codes_differ == 0;
         });
}

constexpr const char* how_to_read =
    "\nHow to read it:\n"
    "  Rowwise, original: quantized from the values, along rows and along columns. Requantized: along\n"
    "  columns, of what the rowwise copy gives back; its error is that of two quantizations.\n"
    "  SQNR: 10 log10(sum of value^2 / sum of error^2). Lost: the original's less the requantized one's.\n"
    "  Rms apart: rms of requantized minus original, over that of the values. Scales apart: the largest\n"
    "  factor between an element's requantized scale and its original one, either way.\n"
    "  Codes transposed: the rowwise codes and scales are used for the columns as they are, which\n"
    "  hardware can do where both directions share scales.\n"
    "  Underflow: not zero, and became zero. Extra: in the requantized copy, and not in the original.\n"
    "  Saturated: beyond the format's largest value once scaled; requantized: what rowwise gave back.\n";

/// A number, or null.
Json number_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json json_of(const TransposeArguments& arguments) {
  Json json = json_of_source(arguments.source);
  json["recipes"] = Json::array();
  for (const ChosenRecipe& one : arguments.recipes) json["recipes"].push_back(one.name);
  return json;
}

/// A recipe's measures in the order of tables, each with the name that files give it.
std::vector<std::pair<std::string, double>> measures_of(const MeasuredTranspose& one) {
  return {{"sqnr_rowwise_db", sqnr_of_copy(one.rowwise)},
          {"sqnr_original_db", sqnr_of_copy(one.original)},
          {"sqnr_requantized_db", sqnr_of_copy(one.requantized)},
          {"loss_db", one.loss_db()},
          {"relative_rms_difference", one.relative_rms_difference()},
          {"widest_scale_factor", one.widest_scale_factor}};
}

Json json_of(const MeasuredTranspose& one) {
  Json json{{"tensor", one.tensor},
            {"name", one.recipe.name},
            {"description", describe(one.recipe.recipe)},
            {"format", format_name(one.recipe.recipe.format)}};
  for (const auto& [name, value] : measures_of(one)) json[name] = number_or_null(value);
  json["compared"] = one.requantized.count;
  json["not_finite"] = one.requantized.not_finite;
  for (const NamedTransposeCount& named : transpose_counts) json["counts"][named.name] = one.counts.*named.count;
  for (const NamedHistogram& entry : one.histograms()) {
    json["histograms"][entry.name] = json_of_histogram(entry.histogram);
    json["histograms"][entry.name]["title"] = entry.title;
  }
  return json;
}

/// A recipe's name as part of a file's: it may be a record of the user's own.
std::string transpose_file(std::size_t row, const ChosenRecipe& recipe, const std::string& histogram) {
  std::string name = recipe.name.substr(0, 40);
  std::ranges::replace_if(
      name, [](unsigned char c) { return c >= 0x80 || (std::isalnum(c) == 0 && c != '.' && c != '-'); }, '_');
  return formatted("%02zu_", row + 1) + name + "_" + histogram + ".csv";
}

std::string transpose_summary(const TransposeResult& result) {
  TextStream csv;
  csv.precision(std::numeric_limits<double>::max_digits10);
  csv << "recipe,format";
  for (const auto& [name, value] : measures_of(result.recipes.front())) csv << ',' << name;
  csv << ",compared,not_finite";
  for (const NamedTransposeCount& named : transpose_counts) csv << ',' << named.name;
  csv << '\n';
  for (const MeasuredTranspose& one : result.recipes) {
    csv << csv_field(one.recipe.name) << ',' << format_name(one.recipe.recipe.format);
    for (const auto& [name, value] : measures_of(one)) {
      csv << ',';
      if (std::isfinite(value)) csv << value;
    }
    csv << ',' << one.requantized.count << ',' << one.requantized.not_finite;
    for (const NamedTransposeCount& named : transpose_counts) csv << ',' << one.counts.*named.count;
    csv << '\n';
  }
  return csv.str();
}

}  // namespace

std::string to_json(const TransposeResult& result) {
  const DefaultEnvironment environment;
  Json json{{"source", result.source},
            {"type", name_of(result.tensors.front().type)},
            {"rows", result.tensors.front().rows},
            {"columns", result.tensors.front().columns},
            {"tensors", json_of_tensors(result.tensors)},
            {"recipes", Json::array()}};
  for (const MeasuredTranspose& one : result.recipes) json["recipes"].push_back(json_of(one));
  return text_of(json_of_result("transpose", json_of(result.arguments), json));
}

std::vector<std::string> file_names_of(const TransposeArguments& arguments) {
  std::vector<std::string> names{"transpose.json", "summary.csv"};
  for (std::size_t i = 0; i < arguments.recipes.size(); ++i) {
    for (const NamedHistogram& entry : MeasuredTranspose(arguments.recipes[i]).histograms()) {
      names.push_back(transpose_file(i, arguments.recipes[i], entry.name));
    }
  }
  return names;
}

std::vector<std::pair<std::string, std::string>> files_of(const TransposeResult& result) {
  const DefaultEnvironment environment;
  std::vector<std::pair<std::string, std::string>> files{{"transpose.json", to_json(result)},
                                                         {"summary.csv", transpose_summary(result)}};
  for (std::size_t i = 0; i < result.recipes.size(); ++i) {
    for (const NamedHistogram& entry : result.recipes[i].histograms()) {
      files.emplace_back(transpose_file(i, result.recipes[i].recipe, entry.name), to_csv(entry.histogram));
    }
  }
  return files;
}

std::string report_of(const TransposeResult& result, const TextStyle& style) {
  const DefaultEnvironment environment;
  return "Quantized in both directions: " + result.source + "\n" + sqnr_table(result, style) +
         differences_table(result, style) + fates_table(result, style) + costs_text(result) +
         pairs_picture(result, style) + how_to_read;
}

}  // namespace fp8lab::experiments
