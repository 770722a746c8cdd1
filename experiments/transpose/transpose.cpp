// SPDX-License-Identifier: Apache-2.0
#include "transpose/transpose.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "kit/band.hpp"
#include "kit/lists.hpp"
#include "transpose/source.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t elements_a_part = 1 << 16;  // fixed, so that sums never depend on threads
constexpr std::size_t elements_a_band = elements_a_part * 32;

void check_recipes(const std::vector<ChosenRecipe>& recipes) {
  std::vector<std::string> names;
  std::ranges::transform(recipes, std::back_inserter(names), &ChosenRecipe::name);
  check_filled_list("recipes", names);
  for (const ChosenRecipe& one : recipes) {
    check_recipe(one.recipe);
    if (is_stochastic(one.recipe)) refuse(one.name, " needs random bits, which this experiment does not draw");
    const auto* nvfp4 = std::get_if<NvFp4>(&one.recipe);
    if (nvfp4 != nullptr && nvfp4->with_rht)
      refuse(one.name, " turns columnwise values, which then compare with nothing");
  }
}

/// The matrix in one direction: all of its codes and scales, and of a band of rows the values they stand for and each
/// element's scale.
struct Copy {
  Quantized q;
  Quantized band;
  Room<float> values;
  Room<float> scales;  ///< what the element's code is multiplied with on dequantize
};

/// The scales of a band's elements.
void spread_scales(Copy& copy, int threads) {
  const TileShape tile = tile_shape(copy.band);
  const std::vector<float> scales = tile_scales_inv(copy.band);
  const std::size_t columns = copy.band.columns;
  const std::size_t across = (columns + tile.columns - 1) / tile.columns;
  parallel_for(copy.band.rows, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t row = first; row < last; ++row) {
      const float* of_row = &scales[row / tile.rows * across];
      for (std::size_t i = 0; i < columns; ++i) copy.scales[row * columns + i] = of_row[i / tile.columns];
    }
  });
}

/// Makes rows [first, first + rows) the band of a copy.
void load_band(std::size_t first, std::size_t rows, int threads, Copy& copy) {
  take_band(copy.q, first, rows, copy.band);
  copy.values.resize(rows * copy.q.columns);
  copy.scales.resize(rows * copy.q.columns);
  dequantize(copy.band, copy.values, threads);
  spread_scales(copy, threads);
}

/// The three copies that are compared.
struct Copies {
  Copy rowwise;
  Copy original;
  Copy requantized;
  std::vector<float> room;  ///< what the rowwise copy gives back, all of it
  std::vector<float> band;  ///< the matrix's own
};

bool are_same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Whether x, in units of its scale, rounds to more than the format's largest value.
bool is_beyond(double x, float scale, const Format& format, double largest) {
  const double scaled = x / static_cast<double>(scale);
  return std::isfinite(scaled) && std::abs(scaled) > largest &&
         cast_outcome(format, Rounding::nearest_even, scaled) == Outcome::saturated;
}

/// Counts what became of element i, whose value is x.
void count_element(double x, const Copies& copies, std::size_t i, double largest, TransposeCounts& counts) {
  const Copy& rowwise = copies.rowwise;
  const Copy& original = copies.original;
  const Copy& requantized = copies.requantized;
  const Format& format = original.q.format;
  counts.transposed_differ += are_same(rowwise.values[i], original.values[i]) ? 0 : 1;
  counts.values_differ += are_same(requantized.values[i], original.values[i]) ? 0 : 1;
  counts.scales_differ += are_same(requantized.scales[i], original.scales[i]) ? 0 : 1;
  counts.extra_underflows += original.values[i] != 0 && requantized.values[i] == 0 ? 1 : 0;
  if (std::isfinite(x) && x != 0) {
    counts.underflows_original += original.values[i] == 0 ? 1 : 0;
    counts.underflows_requantized += requantized.values[i] == 0 ? 1 : 0;
  }
  const auto given = static_cast<double>(rowwise.values[i]);
  counts.saturated_rowwise += is_beyond(x, rowwise.scales[i], format, largest) ? 1 : 0;
  counts.saturated_original += is_beyond(x, original.scales[i], format, largest) ? 1 : 0;
  counts.saturated_requantized += is_beyond(given, requantized.scales[i], format, largest) ? 1 : 0;
}

/// The larger of two scales over the smaller; 1 where that is no number.
double factor_between(float a, float b) {
  const double factor = static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
  return std::isfinite(factor) && factor > 1 ? factor : 1;
}

/// Adds elements from `first` to below `last`.
void measure_elements(std::span<const float> values, const Copies& copies, std::size_t first, std::size_t last,
                      MeasuredTranspose& into) {
  const Format& format = copies.original.q.format;
  const double largest = decode(format, static_cast<std::uint32_t>(format.max_code()));
  for (std::size_t i = first; i < last; ++i) {
    checkpoint(i);
    const auto x = static_cast<double>(values[i]);
    const auto original = static_cast<double>(copies.original.values[i]);
    const auto requantized = static_cast<double>(copies.requantized.values[i]);
    const auto scale = static_cast<double>(copies.original.scales[i]);
    into.rowwise.add(static_cast<double>(copies.rowwise.values[i]), x);
    into.original.add(original, x);
    into.requantized.add(requantized, x);
    into.difference.add(requantized, original);
    into.error_original.add(absolute_error(original, x));
    into.error_requantized.add(absolute_error(requantized, x));
    into.relative_error_original.add(relative_error(original, x));
    into.relative_error_requantized.add(relative_error(requantized, x));
    into.difference_ulps.add(fp8lab::ulp_error(requantized / scale, original / scale, format));
    count_element(x, copies, i, largest, into.counts);
    const double factor = factor_between(copies.requantized.scales[i], copies.original.scales[i]);
    into.widest_scale_factor = std::max(into.widest_scale_factor, factor);
  }
}

/// The same of a band, on threads, part by part; parts are merged in their order.
void measure_band(const Copies& copies, int threads, MeasuredTranspose& into) {
  const std::size_t size = copies.band.size();
  const std::size_t parts = (size + elements_a_part - 1) / elements_a_part;
  std::vector<MeasuredTranspose> measured(parts, MeasuredTranspose(into.recipe));
  parallel_for(parts, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t from = i * elements_a_part;
      measure_elements(copies.band, copies, from, std::min(from + elements_a_part, size), measured[i]);
    }
  });
  for (const MeasuredTranspose& part : measured) into.merge(part);
}

/// The same of all, band by band. Calls step(share) now and then.
template <typename Step>
void measure_matrix(const Matrix& matrix, int threads, Copies& copies, MeasuredTranspose& into, const Step& step) {
  const std::size_t band =
      rows_of_bands({&copies.rowwise.q, &copies.original.q, &copies.requantized.q}, elements_a_band);
  for (std::size_t first = 0; first < matrix.rows; first += band) {
    const std::size_t rows = std::min(band, matrix.rows - first);
    for (Copy* copy : {&copies.rowwise, &copies.original, &copies.requantized}) {
      load_band(first, rows, threads, *copy);
    }
    copies.band.resize(rows * matrix.columns);
    matrix.widen(first * matrix.columns, copies.band);
    measure_band(copies, threads, into);
    step(static_cast<double>(first + rows) / static_cast<double>(matrix.rows));
  }
}

/// Elements whose codes differ; of formats of 4 bits, two are in a byte.
std::uint64_t differing_codes(const Quantized& a, const Quantized& b) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < a.codes.size(); ++i) {
    checkpoint(i);
    const auto differing = static_cast<unsigned>(a.codes[i] ^ b.codes[i]);
    if (a.format.bits() != 4) {
      count += differing != 0 ? 1 : 0;
      continue;
    }
    count += (differing & 0x0FU) != 0 ? 1 : 0;
    count += (differing & 0xF0U) != 0 ? 1 : 0;
  }
  return count;
}

/// Measures one recipe; `copies` has room for the matrix. Calls step(share).
template <typename Step>
MeasuredTranspose measure_recipe(const ChosenRecipe& recipe, const Matrix& matrix, int threads, Copies& copies,
                                 const Step& step) {
  MeasuredTranspose measured(recipe);
  try {
    quantize(matrix.view(), recipe.recipe, Direction::rowwise, copies.rowwise.q, {.threads = threads});
    step(0.2);
    quantize(matrix.view(), recipe.recipe, Direction::columnwise, copies.original.q, {.threads = threads});
    step(0.4);
  } catch (const std::invalid_argument& error) {
    refuse(recipe.name, ": ", error.what());
  }
  dequantize(copies.rowwise.q, copies.room, threads);
  quantize({copies.room, matrix.rows, matrix.columns}, recipe.recipe, Direction::columnwise, copies.requantized.q,
           {.threads = threads});
  step(0.6);
  measure_matrix(matrix, threads, copies, measured, [&](double share) { step(0.6 + 0.4 * share); });
  measured.counts.codes_differ = differing_codes(copies.original.q, copies.requantized.q);
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
  const Matrix matrix = matrix_of(arguments.source, arguments.threads, progress);
  TransposeResult result{arguments, matrix.description, matrix.type, matrix.rows, matrix.columns, {}};
  Copies copies;
  copies.room.resize(matrix.rows * matrix.columns);
  for (std::size_t i = 0; i < arguments.recipes.size(); ++i) {
    result.recipes.push_back(measure_recipe(arguments.recipes[i], matrix, arguments.threads, copies, [&](double share) {
      const double done = static_cast<double>(i) + share;
      if (progress) progress(done / static_cast<double>(arguments.recipes.size()));
    }));
  }
  return result;
}

}  // namespace fp8lab::experiments
