// SPDX-License-Identifier: Apache-2.0
#include "linear/linear.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <stdexcept>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

/// Random bytes for a tensor in a step: those of philox4x32.
std::vector<std::uint8_t> random_bytes(std::uint64_t seed, std::size_t step, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; i += 16) {
    checkpoint(i / 16);
    const std::uint64_t index = i / 16;
    const auto words = philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                                   static_cast<std::uint32_t>(step), 1},
                                  {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    for (std::size_t j = 0; j < std::min<std::size_t>(16, count - i); ++j) {
      bytes[i + j] = static_cast<std::uint8_t>(words[j / 4] >> (8 * (j % 4)));
    }
  }
  return bytes;
}

/// The state of a tensor under delayed scaling, by one recipe.
struct TensorHistory {
  Delayed delayed;
  Pass pass;
  AmaxHistory history;
};

/// A recipe with its state.
class LinearRunner {
 public:
  LinearRunner(const ChosenLinearRecipe& chosen, const LinearArguments& arguments)
      : recipe_(chosen.recipe), arguments_(arguments) {
    measured_ = {.name = chosen.name, .description = describe(recipe_), .source = {}, .passes = {}};
    for (const NamedLinearRecipe& named : linear_recipes()) {
      if (named.name == chosen.name) measured_.source = named.source;
    }
  }

  /// Splits a pass of a step. `index` is the place of the pass among all.
  void run(const Layer& layer, std::size_t step, std::size_t index, LinearPass pass, const RealProducts& real,
           const Progress& progress) {
    const LinearGemm& gemm = gemm_of(recipe_, pass);
    const LinearFactors factors = factors_of(pass);
    SplitGemm split{.pass = pass, .gemm = gemm, .real = &real, .threads = arguments_.threads};
    split.a = cast(layer, step, factors.a, gemm.a, gemm.recipe.model);
    split.b = cast(layer, step, factors.b, gemm.b, gemm.recipe.model);
    if (pass == LinearPass::fprop) split.bias = layer.bias();
    if (measured_.passes.size() <= index) measured_.passes.push_back({pass, {}, {}, Histogram(BinadeBins{-40, 10})});
    measure(split, measured_.passes[index], progress);
  }
  /// The end of a step.
  void update() {
    for (auto& [tensor, state] : histories_) update_scale(state.delayed, state.pass, state.history);
  }
  [[nodiscard]] const std::string& name() const { return measured_.name; }
  [[nodiscard]] MeasuredLinear& result() { return measured_; }

 private:
  SplitOperand cast(const Layer& layer, std::size_t step, const LinearFactor& factor, const LinearCast& cast,
                    const MmaModel& model) {
    SplitCast how{.factor = factor, .cast = cast, .threads = arguments_.threads};
    const MatrixView& x = layer.view(factor.tensor);
    std::vector<std::uint8_t> bytes;
    if (const auto* recipe = std::get_if<Recipe>(&cast)) {
      if (is_given(*recipe)) {
        TensorHistory& state = history_of(factor.tensor, *recipe);
        how.delayed = &state.delayed;
        how.history = &state.history;
      }
      if (is_stochastic(*recipe)) {
        bytes = random_bytes(arguments_.rounding_seed, step, x.size());
        how.random = RandomSource{std::span<const std::uint8_t>(bytes), 8};
      }
    } else {
      how.rounds_to_tf32 = std::ranges::find(model.operands, tf32) != model.operands.end();
    }
    try {
      return cast_operand(x, how);
    } catch (const std::invalid_argument& error) {
      refuse(name_of(factor.tensor), ": ", error.what());
    }
  }

  TensorHistory& history_of(LinearTensor tensor, const Recipe& recipe) {
    const auto found = histories_.find(tensor);
    if (found != histories_.end()) return found->second;
    Delayed delayed = arguments_.delayed;
    const bool is_gradient = tensor == LinearTensor::dy;
    delayed.fp8_format = is_gradient && recipe.format == e4m3 ? Fp8Format::e4m3_only : Fp8Format::hybrid;
    TensorHistory state{delayed, is_gradient ? Pass::backward : Pass::forward, start_history(delayed)};
    return histories_.emplace(tensor, std::move(state)).first->second;
  }

  static CastFacts facts_of(const SplitOperand& operand) {
    const CastValues& used = operand.used();
    return {.tensor = operand.tensor,
            .scale = used.scale,
            .fresh_scale = operand.fresh.scale,
            .elements = operand.given.size(),
            .saturated = used.saturated,
            .underflows = used.underflows};
  }

  void measure(const SplitGemm& split, MeasuredPass& into, const Progress& progress) {
    // 1. The root mean square of the real product.
    const std::size_t columns = split.b.rows;
    SplitStep step{.totals = {}, .a = facts_of(split.a), .b = facts_of(split.b)};
    step.totals.parts.resize(causes_of(split.pass).size());
    double squares = 0;
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < split.real->high.size(); ++i) {
      checkpoint(i);
      const double bias = split.bias.empty() ? 0 : static_cast<double>(split.bias[i % columns]);
      const double value = split.real->high[i] + bias;
      if (!std::isfinite(value)) continue;
      squares += value * value;
      ++count;
    }
    const double real_rms = std::sqrt(squares / static_cast<double>(count));
    // 2. The parts, added up in the order of the output's rows.
    std::vector<double> relative;
    const auto use = [&](const SplitBand& band) {
      add_band(band, step.totals);
      relative.clear();
      for (const double total : band.total) {
        if (!std::isnan(total)) relative.push_back(total / real_rms);
      }
      into.histogram.add(std::span<const double>(relative));
    };
    split_gemm(split, progress, use, out_);
    into.totals.merge(step.totals);
    into.steps.push_back(std::move(step));
  }

  static void add_band(const SplitBand& band, SplitTotals& into) {
    for (std::size_t i = 0; i < band.elements; ++i) {
      checkpoint(i);
      if (std::isnan(band.total[i])) {
        ++into.not_finite;
        continue;
      }
      ++into.count;
      into.real_squares += band.real[i] * band.real[i];
      into.total.add(band.total[i], 0, band.total[i]);
      double before = 0;
      for (std::size_t cause = 0; cause < band.parts.size(); ++cause) {
        if (band.parts[cause].empty()) continue;
        into.parts[cause].add(band.parts[cause][i], before, band.total[i]);
        before += band.parts[cause][i];
      }
    }
  }

  LinearRecipe recipe_;
  const LinearArguments& arguments_;
  std::map<LinearTensor, TensorHistory> histories_;
  MeasuredLinear measured_;
  Buffer<float> out_;
};

std::vector<LinearRunner> runners_of(const LinearArguments& arguments) {
  std::vector<std::string> names;
  std::ranges::transform(arguments.recipes, std::back_inserter(names), &ChosenLinearRecipe::name);
  check_filled_list("recipes", names);
  check(arguments.delayed);
  if (!std::holds_alternative<AmaxComputeAlgo>(arguments.delayed.amax_compute_algo)) {
    refuse("delayed must have the amax_compute_algo max or most_recent, not a function");
  }
  std::vector<LinearRunner> runners;
  for (const ChosenLinearRecipe& chosen : arguments.recipes) {
    try {
      check_linear_recipe(chosen.recipe);
    } catch (const std::invalid_argument& error) {
      refuse(chosen.name, ": ", error.what());
    }
    runners.emplace_back(chosen, arguments);
  }
  return runners;
}

std::vector<LinearPass> passes_of(const LinearArguments& arguments, const Layer& layer) {
  constexpr std::array all{LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad};
  check_list("passes", arguments.passes);
  std::vector<LinearPass> passes = arguments.passes;
  if (passes.empty()) {
    std::ranges::copy_if(all, std::back_inserter(passes), [&](LinearPass pass) { return layer.has(pass); });
  }
  for (const LinearPass pass : passes) {
    if (layer.has(pass)) continue;
    const LinearFactors factors = factors_of(pass);
    refuse(name_of(pass), " needs ", name_of(factors.a.tensor), " and ", name_of(factors.b.tensor), ", and ",
           name_of(layer.has(factors.a.tensor) ? factors.b.tensor : factors.a.tensor), " is missing");
  }
  if (passes.empty()) refuse("two of the tensors x, w and dy are needed: each pass multiplies two of them");
  std::ranges::sort(passes);
  return passes;
}

/// Throws where a recipe's system refuses a size, or a recipe's output is none that is split here.
void check_recipes(const LinearArguments& arguments, const Layer& layer, const std::vector<LinearPass>& passes) {
  for (const ChosenLinearRecipe& chosen : arguments.recipes) {
    for (const LinearPass pass : passes) {
      const Format& output = gemm_of(chosen.recipe, pass).recipe.output;
      if (output != binary32 && output != binary16 && output != bfloat16) {
        refuse(chosen.name, ": ", name_of(pass), ": output must be float32, float16 or bfloat16, not ",
               format_name(output));
      }
      for (std::size_t step = 0; arguments.check_shapes && step < layer.steps(); ++step) {
        try {
          check_shape(chosen.recipe, pass, layer.shape(step));
        } catch (const std::invalid_argument& error) {
          refuse(chosen.name, ": ", error.what());
        }
      }
    }
  }
}

/// The real products of a pass.
RealProducts real_products_of(const Layer& layer, LinearPass pass, int threads, const Progress& progress) {
  const LinearFactors factors = factors_of(pass);
  const auto given = [&](const LinearFactor& factor) {
    return cast_operand(layer.view(factor.tensor), {.factor = factor, .threads = threads});
  };
  const SplitOperand a = given(factors.a);
  const SplitOperand b = given(factors.b);
  return real_products({a.given, a.rows, a.depth}, {b.given, b.rows, b.depth}, threads, progress);
}

}  // namespace

void PartTotals::add(double part, double before, double total) {
  sum += part;
  sum_squares += part * part;
  sum_with_total += part * total;
  sum_growth += part * (2 * before + part);
  largest = std::max(largest, std::abs(part));
}

void PartTotals::merge(const PartTotals& other) {
  sum += other.sum;
  sum_squares += other.sum_squares;
  sum_with_total += other.sum_with_total;
  sum_growth += other.sum_growth;
  largest = std::max(largest, other.largest);
}

void SplitTotals::merge(const SplitTotals& other) {
  count += other.count;
  not_finite += other.not_finite;
  real_squares += other.real_squares;
  parts.resize(other.parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].merge(other.parts[i]);
  total.merge(other.total);
}

double SplitTotals::rms(const PartTotals& part) const {
  return count == 0 ? no_value : std::sqrt(part.sum_squares / static_cast<double>(count));
}
double SplitTotals::relative_rms(const PartTotals& part) const {
  return count == 0 ? no_value : std::sqrt(part.sum_squares / real_squares);
}
double SplitTotals::mean(const PartTotals& part) const {
  return count == 0 ? no_value : part.sum / static_cast<double>(count);
}
double SplitTotals::share(const PartTotals& part) const {
  return total.sum_squares == 0 ? no_value : part.sum_with_total / total.sum_squares;
}

double SplitTotals::growth(const PartTotals& part) const {
  return total.sum_squares == 0 ? no_value : part.sum_growth / total.sum_squares;
}

LinearResult run_linear(const LinearArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  std::vector<LinearRunner> runners = runners_of(arguments);
  Layer layer(arguments.source, arguments.threads);
  LinearResult result{arguments, layer.description(), layer.facts(), layer.left_out(), passes_of(arguments, layer), {}};
  check_recipes(arguments, layer, result.passes);
  const auto work = static_cast<double>(layer.steps() * result.passes.size() * (runners.size() + 1));
  double done = 0;
  const Progress part = [&](double share) {
    if (progress) progress((done + share) / work);
  };
  for (std::size_t step = 0; step < layer.steps(); ++step) {
    layer.load(step);
    for (std::size_t i = 0; i < result.passes.size(); ++i) {
      const LinearPass pass = result.passes[i];
      const RealProducts real = real_products_of(layer, pass, arguments.threads, part);
      ++done;
      for (LinearRunner& runner : runners) {
        try {
          runner.run(layer, step, i, pass, real, part);
        } catch (const std::invalid_argument& error) {
          refuse(runner.name(), ": ", name_of(pass), ": ", error.what());
        }
        ++done;
      }
    }
    for (LinearRunner& runner : runners) runner.update();
  }
  for (LinearRunner& runner : runners) result.measured.push_back(std::move(runner.result()));
  return result;
}

}  // namespace fp8lab::experiments
