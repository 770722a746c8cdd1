// SPDX-License-Identifier: Apache-2.0
#include "transpose/transpose.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "kit/band.hpp"
#include "kit/lists.hpp"
#include "transpose/band.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t elements_a_band = std::size_t{1} << 19;  // fixed, so that sums never depend on threads

void check_recipes(const std::vector<ChosenRecipe>& recipes) {
  std::vector<std::string> names;
  std::ranges::transform(recipes, std::back_inserter(names), &ChosenRecipe::name);
  check_filled_list("recipes", names);
  for (const ChosenRecipe& one : recipes) {
    check_recipe(one.recipe);
    if (is_stochastic(one.recipe)) refuse(one.name, " needs random bits, which this experiment does not draw");
    if (one.recipe.transform != Transform::none) {
      refuse(one.name, " transforms only the columnwise values, so that the copies cannot be compared");
    }
  }
}

/// Throws where a tensor that was not drawn has fewer than two dimensions.
void check_dimensions(const TensorSource& source, const std::vector<SourceTensor>& tensors) {
  if (std::holds_alternative<Draws>(source) || std::holds_alternative<Grid>(source)) return;
  for (const SourceTensor& facts : tensors) {
    if (facts.shape.size() >= 2) continue;
    refuse(facts.name.empty() ? "x" : facts.name, " must have two dimensions or more, not shape ",
           shape_text(facts.shape));
  }
}

/// Why the recipes cannot quantize a stored tensor in both directions; empty: they can.
std::string misfit_of(const TransposeArguments& arguments, const SourceTensor& facts) {
  if (facts.shape.size() < 2) return "it must have two dimensions or more, not shape " + shape_text(facts.shape);
  for (const ChosenRecipe& chosen : arguments.recipes) {
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      try {
        (void)tile_shape(chosen.recipe, direction, facts.rows, facts.columns);
      } catch (const std::invalid_argument& error) {
        return chosen.name + ": " + error.what();
      }
    }
  }
  return "";
}

/// Rows of a band that is quantized for itself as it is within the matrix, about elements_a_band: none where the recipe
/// has a scale for more rows than that.
std::optional<std::size_t> rows_of_own_bands(const Recipe& recipe, const Tensor& matrix) {
  if (has_tensor_scale(recipe)) return {};
  std::size_t unit = 32;  // pairs of codes, and rows of which each has a scale
  for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
    const std::size_t rows = tile_shape(recipe, direction, matrix.rows(), matrix.columns()).rows;
    if (rows > 1024) return {};
    unit = std::lcm(unit, rows);
  }
  return std::max<std::size_t>(1, elements_a_band / matrix.columns() / unit) * unit;
}

/// Measures a recipe whose scales are those of few rows, with no more than a band in memory. Calls step(share).
template <typename Step>
void measure_own_bands(const Recipe& recipe, const Tensor& matrix, std::size_t most, int threads, Band& band,
                       MeasuredTranspose& into, const Step& step) {
  for (std::size_t first = 0; first < matrix.rows(); first += most) {
    const std::size_t rows = std::min(most, matrix.rows() - first);
    band.x.resize(rows * matrix.columns());
    matrix.widen(first * matrix.columns(), band.x);
    const MatrixView x = matrix.view(first, rows);
    quantize(x, recipe, Direction::rowwise, band.rowwise.q, {.threads = threads});
    quantize(x, recipe, Direction::columnwise, band.original.q, {.threads = threads});
    dequantize_band(band.rowwise, threads);
    quantize({band.rowwise.values, rows, matrix.columns()}, recipe, Direction::columnwise, band.requantized.q,
             {.threads = threads});
    dequantize_band(band.original, threads);
    dequantize_band(band.requantized, threads);
    measure_band(band, threads, into);
    step(static_cast<double>(first + rows) / static_cast<double>(matrix.rows()));
  }
}

/// The whole matrix in its three copies.
struct Copies {
  Quantized rowwise;
  Quantized original;
  Quantized requantized;
};

/// Quantizes all of the matrix. Calls step(share).
template <typename Step>
Copies quantize_copies(const Recipe& recipe, const Tensor& matrix, int threads, const Step& step) {
  Copies copies;
  const MatrixView x = matrix.view(0, matrix.rows());
  quantize(x, recipe, Direction::rowwise, copies.rowwise, {.threads = threads});
  step(0.2);
  quantize(x, recipe, Direction::columnwise, copies.original, {.threads = threads});
  step(0.4);
  Buffer<float> back(matrix.rows() * matrix.columns());
  dequantize(copies.rowwise, back, threads);
  quantize({back, matrix.rows(), matrix.columns()}, recipe, Direction::columnwise, copies.requantized,
           {.threads = threads});
  step(0.6);
  return copies;
}

/// Measures the copies band by band. Calls step(share) now and then.
template <typename Step>
void measure_copies(const Copies& copies, const Tensor& matrix, int threads, Band& band, MeasuredTranspose& into,
                    const Step& step) {
  const std::size_t most = rows_of_bands({&copies.rowwise, &copies.original, &copies.requantized}, elements_a_band);
  for (std::size_t first = 0; first < matrix.rows(); first += most) {
    const std::size_t rows = std::min(most, matrix.rows() - first);
    for (const auto& [all, some] : {std::pair{&copies.rowwise, &band.rowwise},
                                    {&copies.original, &band.original},
                                    {&copies.requantized, &band.requantized}}) {
      take_band(*all, first, rows, some->q);
      dequantize_band(*some, threads);
    }
    band.x.resize(rows * matrix.columns());
    matrix.widen(first * matrix.columns(), band.x);
    measure_band(band, threads, into);
    step(static_cast<double>(first + rows) / static_cast<double>(matrix.rows()));
  }
}

/// Measures one recipe. Calls step(share).
template <typename Step>
MeasuredTranspose measure_recipe(const ChosenRecipe& chosen, const Tensor& matrix, int threads, const Step& step) {
  MeasuredTranspose measured(chosen);
  Band band;
  const Recipe& recipe = chosen.recipe;
  try {
    if (const auto rows = rows_of_own_bands(recipe, matrix)) {
      measure_own_bands(recipe, matrix, *rows, threads, band, measured, step);
      return measured;
    }
    const Copies copies = quantize_copies(recipe, matrix, threads, step);
    measure_copies(copies, matrix, threads, band, measured, [&](double share) { step(0.6 + 0.4 * share); });
  } catch (const std::invalid_argument& error) {
    refuse(chosen.name, ": ", error.what());
  }
  return measured;
}

}  // namespace

std::vector<ChosenRecipe> transpose_recipes() {
  std::vector<ChosenRecipe> recipes;
  std::ranges::transform(default_transpose_recipes, std::back_inserter(recipes), choose_recipe);
  return recipes;
}

MeasuredTranspose::MeasuredTranspose(ChosenRecipe what)
    : recipe(std::move(what)),
      error_original(BinadeBins{-149, 127}),  // what float32 holds
      error_requantized(BinadeBins{-149, 127}),
      relative_error_original(LogBins{1e-8, 1e4, 96}),
      relative_error_requantized(LogBins{1e-8, 1e4, 96}),
      difference_ulps(LinearBins{-4, 4, 64}) {}

void MeasuredTranspose::merge(const MeasuredTranspose& other) {
  rowwise.merge(other.rowwise);
  original.merge(other.original);
  requantized.merge(other.requantized);
  difference.merge(other.difference);
  for (const NamedTransposeCount& named : transpose_counts) counts.*named.count += other.counts.*named.count;
  widest_scale_factor = std::max(widest_scale_factor, other.widest_scale_factor);
  error_original.merge(other.error_original);
  error_requantized.merge(other.error_requantized);
  relative_error_original.merge(other.relative_error_original);
  relative_error_requantized.merge(other.relative_error_requantized);
  difference_ulps.merge(other.difference_ulps);
}

double MeasuredTranspose::loss_db() const {
  const DefaultEnvironment environment;
  if (original.count == 0 || requantized.count == 0) return std::numeric_limits<double>::quiet_NaN();
  const double before = original.sqnr_db();
  const double after = requantized.sqnr_db();
  return before == after ? 0 : before - after;  // both may be infinite
}

double MeasuredTranspose::relative_rms_difference() const {
  const DefaultEnvironment environment;
  return std::sqrt(difference.sum_squared_error / original.sum_squared_reference);
}

std::vector<NamedHistogram> MeasuredTranspose::histograms() const {
  return {{"error_original", "|error| by binade, quantized from the original", error_original},
          {"error_requantized", "|error| by binade, requantized from the rowwise copy", error_requantized},
          {"relative_error_original", "|error / x|, quantized from the original", relative_error_original},
          {"relative_error_requantized", "|error / x|, requantized from the rowwise copy", relative_error_requantized},
          {"difference_ulps", "requantized minus original in units in the last place of the original's code",
           difference_ulps}};
}

TransposeResult run_transpose(const TransposeArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  check_recipes(arguments.recipes);
  const TensorStream stream(arguments.source,
                            {.log2_most_elements = 27,
                             .loads = Loads::quantizable,
                             .threads = arguments.threads,
                             .progress = &progress,
                             .splits_experts = true,
                             .unfit = [&](const SourceTensor& facts) { return misfit_of(arguments, facts); }});
  TransposeResult result{arguments, stream.description(), stream.all_facts(), stream.left_out(), {}};
  check_dimensions(arguments.source, result.tensors);
  const double work = stream.elements() * static_cast<double>(arguments.recipes.size());
  double done = 0;
  Tensor matrix;
  for (std::size_t tensor = 0; tensor < stream.count(); ++tensor) {
    stream.load(tensor, matrix);
    const auto size = static_cast<double>(matrix.size());
    for (const ChosenRecipe& recipe : arguments.recipes) {
      try {
        result.recipes.push_back(measure_recipe(recipe, matrix, arguments.threads, [&](double share) {
          if (progress) progress((done + share * size) / work);
        }));
      } catch (const std::invalid_argument& error) {
        refuse(stream.count() > 1 ? stream.called(tensor) : "", error.what());
      }
      result.recipes.back().tensor = tensor;
      done += size;
    }
  }
  return result;
}

}  // namespace fp8lab::experiments
