// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `transpose`: what it costs to make the columnwise copy from the rowwise one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"
#include "kit/experiment.hpp"
#include "kit/tensor_arguments.hpp"
#include "transpose/transpose.hpp"

namespace fp8lab::experiments {
namespace {

using Measured = MeasuredTranspose;

/// Without a finite value there is no SQNR.
double sqnr_of_copy(const ErrorTotals& totals) {
  return totals.count == 0 ? std::numeric_limits<double>::quiet_NaN() : totals.sqnr_db();
}

/// A table with a row for each recipe of each tensor, and the columns that say which.
Tabulated<std::vector<Measured>> table_of_recipes(const TransposeResult& result, const std::string& name,
                                                  const std::string& title) {
  const std::vector<std::string> names = names_in_tables(result.tensors);
  auto table = tabulate(result.recipes, {.name = name, .title = title, .marked = true});
  table.column({"recipe"}, [](const Measured& one) { return one.recipe.name; })
      .column({.name = "tensor", .detail = true}, &Measured::tensor);
  if (names.size() > 1) {
    table.column({.name = "tensor_name", .title = "tensor"}, [&](const Measured& one) { return names[one.tensor]; });
  }
  return table;
}

Table recipes_table(const TransposeResult& result) {
  const auto decibels = [](const char* name, const char* title) {
    return Head{.name = name, .title = title, .notation = Notation::fixed, .digits = 2};
  };
  auto table = table_of_recipes(result, "recipes",
                                "SQNR in dB of each copy, and how far the requantized one is from the original");
  table.column(decibels("sqnr_rowwise_db", "rowwise"), [](const Measured& one) { return sqnr_of_copy(one.rowwise); })
      .column(decibels("sqnr_original_db", "original"), [](const Measured& one) { return sqnr_of_copy(one.original); })
      .column(decibels("sqnr_requantized_db", "requantized"),
              [](const Measured& one) { return sqnr_of_copy(one.requantized); })
      .column({.name = "loss_db", .title = "lost", .unit = "dB", .digits = 3}, &Measured::loss_db)
      .column({.name = "relative_rms_difference", .title = "rms apart", .digits = 3},
              &Measured::relative_rms_difference)
      .column({.name = "widest_scale_factor", .title = "scales apart", .digits = 8}, &Measured::widest_scale_factor)
      .column({.name = "format", .detail = true},
              [](const Measured& one) { return format_name(one.recipe.recipe.format); })
      .column({.name = "description", .detail = true},
              [](const Measured& one) { return fp8lab::describe(one.recipe.recipe); })
      .column({.name = "compared", .detail = true}, [](const Measured& one) { return one.requantized.count; })
      .column({.name = "not_finite", .detail = true}, [](const Measured& one) { return one.requantized.not_finite; });
  for (const NamedTransposeCount& named : transpose_counts) {
    table.column({.name = named.name, .detail = true}, [&](const Measured& one) { return one.counts.*named.count; });
  }
  return table;
}

/// A count of elements, and the heading of its share of all.
struct Share {
  const char* name;
  const char* title;
  std::uint64_t TransposeCounts::* count;
};

Table shares_table(const TransposeResult& result, const std::string& name, const std::string& title,
                   const std::vector<Share>& shares) {
  auto table = table_of_recipes(result, name, title);
  for (const Share& share : shares) {
    table.column({.name = share.name, .title = share.title, .notation = Notation::percent, .digits = 3},
                 [&](const Measured& one) {
                   return static_cast<double>(one.counts.*share.count) /
                          static_cast<double>(result.tensors[one.tensor].size());
                 });
  }
  return table;
}

/// The names of the recipes for which `chosen` holds.
std::string names_where(const TransposeResult& result, const std::function<bool(const TransposeCounts&)>& chosen) {
  std::string names;
  for (const Measured& one : result.recipes) {
    if (chosen(one.counts)) names.append(names.empty() ? "" : ", ").append(one.recipe.name);
  }
  return names.empty() ? "none" : names;
}

Text costs(const TransposeResult& result) {
  return {"costs",
          "What it costs",
          {"The rowwise codes, transposed, are the columnwise copy, value for value: " +
               names_where(result, [](const TransposeCounts& counts) { return counts.transposed_differ == 0; }),
           "Requantizing gives back the original copy, value for value: " +
               names_where(result, [](const TransposeCounts& counts) { return counts.values_differ == 0; }),
           "Requantizing gives back its codes, with scales that differ: " +
               names_where(result, [](const TransposeCounts& counts) {
                 return counts.values_differ != 0 && counts.codes_differ == 0;
               })}};
}

/// The rows whose errors are drawn: those that lose most, equal ones in their order.
std::vector<std::size_t> drawn_rows(const TransposeResult& result) {
  constexpr std::size_t most = 3;  // as many pairs as fit side by side into 100 columns
  std::vector<std::size_t> order(result.recipes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const double loss_a = result.recipes[a].loss_db();
    const double loss_b = result.recipes[b].loss_db();
    return !std::isnan(loss_a) && (std::isnan(loss_b) || loss_a > loss_b);
  });
  order.resize(std::min(most, order.size()));
  std::ranges::sort(order);
  return order;
}

/// Adds the histograms of all rows: those that are drawn, and the others.
void add_histograms(const TransposeResult& result, std::vector<Section>& sections) {
  const std::vector<std::size_t> drawn = drawn_rows(result);
  Histograms pairs{.name = "errors",
                   .title = "|error| by binade, each with its own scale (2^-5: from 2^-5 up to 2^-4)",
                   .least = 0.001};
  if (drawn.size() < result.recipes.size()) pairs.title += ", where most is lost";
  Histograms others{.name = "histograms", .title = "Histograms of every recipe", .detail = true};
  for (std::size_t row = 0; row < result.recipes.size(); ++row) {
    const Measured& one = result.recipes[row];
    for (const NamedHistogram& entry : one.histograms()) {
      const bool is_original = entry.name == "error_original";
      const bool is_pair = is_original || entry.name == "error_requantized";
      const bool is_drawn = is_pair && std::ranges::find(drawn, row) != drawn.end();
      const std::string label = fmt::format("{} {}", mark_of(row), is_original ? "original" : "requant.");
      (is_drawn ? pairs : others)
          .histograms.push_back(counts_of(entry.histogram, histogram_name(row, one.recipe.name, entry.name),
                                          entry.title, is_pair ? label : ""));
    }
  }
  sections.emplace_back(std::move(pairs));
  sections.emplace_back(std::move(others));
}

Text reading_of_copies() {
  return {"reading",
          "How to read it",
          {"Rowwise, original: quantized from the values, along rows and along columns. Requantized: along columns, of "
           "what the rowwise copy gives back; its error is that of two quantizations.",
           "SQNR: 10 log10(sum of value^2 / sum of error^2). Lost: the original's less the requantized one's. Rms "
           "apart: rms of requantized minus original, over that of the values. Scales apart: the largest factor "
           "between an element's requantized scale and its original one, either way.",
           "Codes transposed: the rowwise codes and scales are used for the columns as they are, which hardware can do "
           "where both directions share scales.",
           "Underflow: a value that is not zero became zero. Extra: only in the requantized copy it did. Saturated: "
           "beyond the format's largest value once scaled; requantized: what rowwise gave back."}};
}

/// The arguments as a user gives them.
struct TransposeOptions {
  TransposeArguments arguments;
  TensorArguments matrix{.draws = {.rows = 1024, .columns = 1024}};
};

void describe(TransposeOptions& options, ArgumentList& list) {
  options.matrix.add_arrays(list, "bfloat16 as such, float16 as float32, float64 rounded to float32");
  list.add("recipes", options.arguments.recipes, "scaling recipes to measure (fp8lab recipes lists them)");
  options.matrix.add_draws(list);
  options.matrix.add_shape(list);
  options.matrix.add_outliers(list);
  options.matrix.add_files(list);
  list.add_threads(options.arguments.threads);
}

Document run(const TransposeOptions& options, const Context& context) {
  for (const HeldTensor& x : options.matrix.arrays) {
    if (x.shape && x.shape->size() < 2) refuse("x must have two dimensions or more, not shape ", shape_text(*x.shape));
  }
  TransposeArguments arguments = options.arguments;
  arguments.source = options.matrix.source();
  return document_of(run_transpose(arguments, context.progress));
}

}  // namespace

Document document_of(const TransposeResult& result) {
  const DefaultEnvironment environment;
  Document document;
  document.sections = sections_of(
      Text{"intro", "", {"Quantized in both directions: " + result.source}}, recipes_table(result),
      shares_table(result, "differences",
                   "Elements that are not as in the original copy (codes, scales: those of the requantized one)",
                   {{"transposed_share", "codes transposed", &TransposeCounts::transposed_differ},
                    {"values_share", "requantized", &TransposeCounts::values_differ},
                    {"codes_share", "codes", &TransposeCounts::codes_differ},
                    {"scales_share", "scales", &TransposeCounts::scales_differ}}),
      shares_table(result, "fates", "What became of the values, in the original and in the requantized copy",
                   {{"underflows_original_share", "underflow", &TransposeCounts::underflows_original},
                    {"underflows_requantized_share", "requantized", &TransposeCounts::underflows_requantized},
                    {"extra_underflows_share", "extra", &TransposeCounts::extra_underflows},
                    {"saturated_original_share", "saturated", &TransposeCounts::saturated_original},
                    {"saturated_requantized_share", "requantized", &TransposeCounts::saturated_requantized}}),
      costs(result));
  add_histograms(result, document.sections);
  document.sections.emplace_back(tensors_table(result.tensors));
  add_left_out(result.left_out, result.tensors.size(), document.sections);
  document.sections.emplace_back(reading_of_copies());
  return document;
}

std::vector<Experiment> transpose_experiments() {
  return {experiment<TransposeOptions>(
      {.name = "transpose",
       .summary = "Measure what it costs to make the columnwise copy from the rowwise one",
       .description =
           "Training needs a tensor along its rows (fprop) and along its columns (wgrad). When both copies are "
           "quantized from the original values, both are as good as the format allows. When the columnwise copy is "
           "made from the rowwise copy, its values are quantized twice. Where both directions share scales, the "
           "transposed codes already are the columnwise copy, and nothing is lost. Copies are dequantized to float32 "
           "and then compared. Each tensor has two dimensions or more, of which all but the last are rows, and is "
           "measured separately.",
       .result = "tables `recipes` (SQNR of the rowwise copy, of the columnwise one made of the values, the original, "
                 "and of the one made of the rowwise copy, requantized; counts of elements), `differences` and `fates` "
                 "(counts as shares), `tensors`, and five histograms for each recipe: error_original, "
                 "error_requantized, relative_error_original, relative_error_requantized, difference_ulps",
       .examples = {{"transpose", "ten recipes on 1024 x 1024 normal values"},
                    {"transpose --recipes te_block_1x128,te_block_1x128_fp32", "scales that are powers of two, or not"},
                    {"transpose --outlier-rows 8,64", "eight tokens are 64 times as large"},
                    {"transpose --file model.safetensors --tensor w", "a tensor of your own"}},
       .small = R"({"rows": 64, "columns": 64, "recipes": ["te_mxfp8", "te_nvfp4"], "outlier_rows": [2, 8.0]})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
