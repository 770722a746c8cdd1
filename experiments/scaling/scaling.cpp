// SPDX-License-Identifier: Apache-2.0
#include "scaling/scaling.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/reference/measure/outcome.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "kit/band.hpp"
#include "kit/chosen.hpp"
#include "kit/delayed_variant.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// The factor by which dequantize multiplies the codes of each tile.
struct TileScales {
  TileShape tile;
  std::size_t across;  // tiles side by side in a row
  std::vector<float> values;

  explicit TileScales(const Quantized& q)
      : tile(tile_shape(q)), across((q.columns + tile.columns - 1) / tile.columns), values(tile_scales_inv(q)) {}
  [[nodiscard]] std::size_t index(std::size_t row, std::size_t column) const {
    return row / tile.rows * across + column / tile.columns;
  }
};

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5;
}

/// Whether a scaled element, before rounding, is above the format's largest value. A scale that is not a power of two
/// is rounded, and so is its inverse: the amax that made it may then lie 2^-23 above the largest value, and is not
/// clipped.
bool is_clipped(double scaled, double scale_inv, double largest) {
  return std::abs(scaled) > (is_power_of_two(scale_inv) ? largest : largest * (1 + 0x1p-22));
}

/// The measures of one step of one recipe, before they are added to the totals.
struct MeasuredStep {
  ErrorTotals totals;
  ScalingStep step{no_number, no_number, no_number};
};

/// Measures bands of a quantized tensor, error_block elements at a time.
class ScalingMeter {
 public:
  ScalingMeter(const Quantized& q, ElementType out_type, MeasuredScaling& into, MeasuredStep& measured)
      : scales_(q),
        out_type_(out_type),
        largest_(max_value(q.format)),
        bounds_(cast_bounds(q.format, Rounding::nearest_even)),
        clipped_(scales_.values.size()),
        into_(into),
        measured_(measured) {}

  /// Adds rows from `row` on.
  void add(const Quantized& band, std::size_t row, std::span<const float> x) {
    back_.resize(x.size());
    dequantize(band, back_);
    round_to(out_type_, back_);
    std::span<const std::uint8_t> codes = band.codes;
    if (band.format.bits() == 4) {
      unpacked_.resize(x.size());
      unpack_pairs(band.codes, unpacked_);
      codes = unpacked_;
    }
    for (std::size_t first = 0; first < x.size(); first += error_block) {
      checkpoint();
      const std::size_t count = std::min(error_block, x.size() - first);
      add_block(x.subspan(first, count), std::span(back_).subspan(first, count), codes.subspan(first, count),
                row * band.columns + first, band.columns);
    }
  }
  /// Adds the counts that are complete at the end of the tensor.
  void finish() {
    measured_.step.underflows += outcomes_.underflows;
    measured_.step.saturated += outcomes_.saturated;
    into_.blocks += clipped_.size();
    into_.clipped_blocks += static_cast<std::uint64_t>(std::ranges::count(clipped_, true));
  }

 private:
  /// Adds elements from number `first` of the tensor on.
  void add_block(std::span<const float> x, std::span<const float> back, std::span<const std::uint8_t> codes,
                 std::size_t first, std::size_t columns) {
    const std::size_t size = x.size();
    const auto room = [size](std::array<double, error_block>& all) { return std::span(all).first(size); };
    // 1. Widen to double.
    widen(x, room(x_));
    widen(back, room(result_));
    decode(into_.format, codes, std::span(decoded_).first(size));
    widen(std::span(decoded_).first(size), room(value_of_code_));
    scale(size, first, columns);
    // 2. Errors.
    measured_.totals.add(std::span<const double>(room(result_)), std::span<const double>(room(x_)));
    relative_error(room(result_), room(x_), room(errors_));
    into_.relative_error.add(std::span<const double>(room(errors_)));
    ulp_error(room(value_of_code_), room(scaled_), into_.format, room(errors_));
    into_.ulp_error.add(std::span<const double>(room(errors_)));
    count_outcomes(bounds_, room(x_), room(scaled_), room(result_), ScaledRange::finite, outcomes_);
  }
  /// Divides by the scales, run by run of elements that share one, and marks the tiles that are clipped.
  void scale(std::size_t size, std::size_t first, std::size_t columns) {
    for (std::size_t i = 0; i < size;) {
      const std::size_t column = (first + i) % columns;
      const std::size_t in_tile = scales_.tile.columns - column % scales_.tile.columns;
      const std::size_t end = std::min({size, i + in_tile, i + columns - column});
      const std::size_t tile = scales_.index((first + i) / columns, column);
      const auto scale_inv = static_cast<double>(scales_.values[tile]);
      double most = 0;
      for (; i < end; ++i) {
        scaled_[i] = x_[i] / scale_inv;
        const double magnitude = std::abs(scaled_[i]);
        most = std::max(most, magnitude <= std::numeric_limits<double>::max() ? magnitude : 0);
      }
      if (is_clipped(most, scale_inv, largest_)) clipped_[tile] = true;
    }
  }

  TileScales scales_;
  ElementType out_type_;  // the type of the dequantized values
  double largest_;
  CastBounds bounds_;
  OutcomeCounts outcomes_;
  std::vector<bool> clipped_;
  MeasuredScaling& into_;
  MeasuredStep& measured_;
  std::vector<float> back_;
  std::vector<std::uint8_t> unpacked_;
  std::array<float, error_block> decoded_;
  std::array<double, error_block> x_, result_, value_of_code_, scaled_, errors_;
};

void measure(const Quantized& q, const Tensor& x, ElementType out_type, MeasuredScaling& into, MeasuredStep& measured) {
  constexpr std::size_t elements_a_band = std::size_t{1} << 18;
  const auto meter = std::make_unique<ScalingMeter>(q, out_type, into, measured);
  const std::size_t most = rows_of_bands({&q}, elements_a_band);
  Quantized band;
  Buffer<float> room;
  for (std::size_t row = 0; row < q.rows; row += most) {
    const std::size_t rows = std::min(most, q.rows - row);
    take_band(q, row, rows, band);
    meter->add(band, row, x.floats(row * q.columns, rows * q.columns, room));
  }
  meter->finish();
}

/// The amax as kernels compute it: NaN does not count.
float amax_of(const Tensor& x) {
  constexpr std::size_t most = std::size_t{1} << 16;
  float amax = 0;
  Buffer<float> room;
  for (std::size_t first = 0; first < x.size(); first += most) {
    checkpoint();
    for (const float value : x.floats(first, std::min(most, x.size() - first), room)) {
      amax = std::max(amax, std::fabs(value));  // a NaN is not counted
    }
  }
  return amax;
}

std::optional<Concentration> concentration_of(const Tensor& x) {
  constexpr std::size_t most = std::size_t{1} << 16;
  Magnitudes magnitudes;
  Buffer<float> room;
  for (std::size_t first = 0; first < x.size(); first += most) {
    checkpoint();
    magnitudes.add(x.floats(first, std::min(most, x.size() - first), room));
  }
  return magnitudes.concentration();
}

/// One recipe of either kind, with its state.
class Runner {
 public:
  Runner(const ChosenRecipe& chosen, const std::vector<NamedRecipe>& known)
      : recipe_(chosen.recipe), into_(empty(chosen.name, describe(chosen.recipe), chosen.recipe.format)) {
    const auto named = std::ranges::find(known, chosen.name, &NamedRecipe::name);
    if (named != known.end()) into_.source = named->source;
  }
  Runner(const Delayed& delayed, Pass pass)
      : delayed_(delayed),
        pass_(pass),
        history_(start_history(delayed)),
        into_(empty(DelayedVariant{delayed, pass}.name(), describe(delayed), format_of(delayed, pass))) {
    into_.source = delayed.version.source;
  }

  void run(const Tensor& x, ElementType out_type) {
    Quantized q;
    if (delayed_) {
      // The cast uses the scale of the steps before, and leaves its amax for those after it.
      quantize(x.view(), *delayed_, pass_, history_, Direction::rowwise, q);
      update_scale(*delayed_, pass_, history_);
    } else {
      quantize(x.view(), recipe_, Direction::rowwise, q);
    }
    MeasuredStep measured;
    if (const std::optional<float> scale = tensor_factor(q)) measured.step.scale = static_cast<double>(*scale);
    measure(q, x, out_type, into_, measured);
    finish(x.size(), measured);
  }
  [[nodiscard]] MeasuredScaling& result() { return into_; }

 private:
  static MeasuredScaling empty(std::string name, std::string description, const Format& format) {
    return {.name = std::move(name),
            .description = std::move(description),
            .source = {},
            .format = format,
            .steps = {},
            .totals = {},
            .relative_error = Histogram(BinadeBins{-40, 20}),
            .ulp_error = Histogram(LinearBins{-1, 1, 64})};
  }
  void finish(std::size_t size, MeasuredStep& measured) {
    const ErrorTotals& totals = measured.totals;
    if (totals.count > 0) {
      measured.step.sqnr_db = totals.sqnr_db();
      measured.step.rms = std::sqrt(totals.sum_squared_error / totals.sum_squared_reference);
    }
    into_.elements += size;
    into_.saturated += measured.step.saturated;
    into_.underflows += measured.step.underflows;
    into_.totals.merge(totals);
    into_.steps.push_back(measured.step);
    // A step without a finite value has NaN as SQNR, and counts as the worst.
    const double worst = into_.steps[into_.worst].sqnr_db;
    if (!(measured.step.sqnr_db >= worst) && !std::isnan(worst)) into_.worst = into_.steps.size() - 1;
  }

  Recipe recipe_;
  std::optional<Delayed> delayed_;
  Pass pass_ = Pass::forward;
  AmaxHistory history_;
  MeasuredScaling into_;
};

std::vector<std::string> names_of(const ScalingArguments& arguments) {
  std::vector<std::string> names;
  names.reserve(arguments.recipes.size() + arguments.delayed.size());
  for (const Delayed& delayed : arguments.delayed) {
    if (std::holds_alternative<AmaxComputeAlgo>(delayed.amax_compute_algo)) continue;
    refuse("delayed scaling is measured with the amax_compute_algo max or most_recent, not a function");
  }
  for (const ChosenRecipe& chosen : arguments.recipes) names.push_back(chosen.name);
  for (const Delayed& delayed : arguments.delayed) names.push_back(DelayedVariant{delayed, arguments.pass}.name());
  return names;
}

std::vector<Runner> runners_of(const ScalingArguments& arguments) {
  check_filled_list("recipes", names_of(arguments));
  const std::vector<NamedRecipe> known(fp8lab::recipes().begin(), fp8lab::recipes().end());
  std::vector<Runner> runners;
  for (const ChosenRecipe& chosen : arguments.recipes) {
    check_recipe(chosen.recipe);
    if (is_stochastic(chosen.recipe))
      refuse(in_quotes(chosen.name), " rounds stochastically, and has no random bits here");
    runners.emplace_back(chosen, known);
  }
  for (const Delayed& delayed : arguments.delayed) {
    check(delayed);
    runners.emplace_back(delayed, arguments.pass);
  }
  return runners;
}

/// Why the recipes cannot quantize a tensor; empty: they can.
std::string misfit(const ScalingArguments& arguments, const SourceTensor& facts) {
  if (facts.shape.empty()) return "it is a single number; a tensor has 1 dimension or more";
  for (const ChosenRecipe& chosen : arguments.recipes) {
    try {
      (void)tile_shape(chosen.recipe, Direction::rowwise, facts.rows, facts.columns);
    } catch (const std::invalid_argument& error) {
      return chosen.name + ": " + error.what();
    }
  }
  return "";
}

void round_to_bfloat16(const Tensor& x, Tensor& out) {
  constexpr std::size_t most = std::size_t{1} << 16;
  const std::span<BFloat16> rounded = out.allocate<BFloat16>(x.rows(), x.columns());
  Buffer<float> room;
  std::vector<std::uint16_t> words;
  for (std::size_t first = 0; first < x.size(); first += most) {
    const std::size_t count = std::min(most, x.size() - first);
    words.resize(count);
    encode(bfloat16, profiles[0].policy, x.floats(first, count, room), words);
    std::ranges::transform(words, rounded.begin() + static_cast<std::ptrdiff_t>(first),
                           [](std::uint16_t word) { return BFloat16{word}; });
  }
}

}  // namespace

std::vector<NamedHistogram> MeasuredScaling::histograms() const {
  return {{"relative_error", "|error / x| by binade", relative_error},
          {"ulp_error", "error of the scaled value in units in the last place of the format", ulp_error}};
}

ScalingResult run_scaling(const ScalingArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  std::vector<Runner> runners = runners_of(arguments);
  const TensorStream stream(arguments.source,
                            {.log2_most_elements = 28,
                             .loads = Loads::quantizable,
                             .threads = arguments.threads,
                             .splits_experts = true,
                             .unfit = [&](const SourceTensor& facts) { return misfit(arguments, facts); }});
  ScalingResult result{arguments, stream.description(), stream.all_facts(), stream.left_out(), {}, {}, {}};
  const double work = stream.elements();
  double done = 0;
  Tensor tensor;
  Tensor rounded;
  for (std::size_t step = 0; step < stream.count(); ++step) {
    const SourceTensor& facts = stream.facts(step);
    if (facts.shape.empty()) refuse(stream.called(step), "it is a single number; a tensor has 1 dimension or more");
    stream.load(step, tensor);
    if (arguments.bfloat16) round_to_bfloat16(tensor, rounded);
    const Tensor& x = arguments.bfloat16 ? rounded : tensor;
    ElementType out_type = ElementType::float32;
    if (arguments.out_dtype == OutDtype::source) out_type = x.type();
    result.concentrations.push_back(concentration_of(x));
    result.amaxes.push_back(static_cast<double>(amax_of(x)));
    try {
      parallel_for(runners.size(), arguments.threads, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) runners[i].run(x, out_type);
      });
    } catch (const std::invalid_argument& error) {
      refuse(stream.called(step), error.what());
    }
    done += static_cast<double>(x.size());
    if (progress) progress(done / work);
  }
  for (Runner& runner : runners) result.measured.push_back(std::move(runner.result()));
  return result;
}

}  // namespace fp8lab::experiments
