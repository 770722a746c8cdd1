// SPDX-License-Identifier: Apache-2.0
// What a recipe and a tensor core make of a layer's outputs y = x w^T, where its inputs x are known.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "check/check.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "kit/exact_product.hpp"
#include "kit/tensor.hpp"

namespace fp8lab::experiments {
namespace {

/// The name of a layer, of that of its weight or of its inputs: "mlp.up_proj" of "mlp.up_proj.weight".
std::string layer_name(std::string name) {
  for (const std::string_view ending : {".input", ".weight"}) {
    if (name.ends_with(ending)) name.erase(name.size() - ending.size());
  }
  return name;
}

/// The recipe of a layer's inputs, beside weights by `recipe`: the same, but a row of a tile alone, where several rows
/// share a scale. So each token has scales of its own, as in DeepSeek-V3's 1 x 128 beside 128 x 128, unless there is
/// one for the tensor.
Recipe recipe_of_inputs(Recipe recipe) {
  recipe.tile_across = std::min<std::size_t>(recipe.tile_across, 1);
  return recipe;
}

std::vector<std::size_t> counted(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

/// Rows of a tensor in equal steps, at most `most`.
std::vector<std::size_t> spread_rows(std::size_t rows, std::size_t most) {
  std::vector<std::size_t> all;
  const std::size_t count = std::min(rows, most);
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) all.push_back(i * rows / count);
  return all;
}

/// float64 rounded to float32, as no recipe quantizes it.
Tensor quantizable(Tensor tensor) {
  if (tensor.type() != ElementType::float64) return tensor;
  Tensor rounded;
  tensor.widen(0, rounded.allocate<float>(tensor.rows(), tensor.columns()));
  return rounded;
}

Tensor load_whole(const TensorStream& stream, std::size_t tensor) {
  Tensor all;
  stream.load(tensor, all);
  return quantizable(std::move(all));
}

/// These rows alone.
Tensor load_some(const TensorStream& stream, std::size_t tensor, std::span<const std::size_t> rows) {
  const std::size_t columns = stream.facts(tensor).columns;
  Tensor row;
  Tensor all;
  const auto take = [&]<typename T>(T /*type*/) {
    const std::span<T> out = all.allocate<T>(rows.size(), columns);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      checkpoint();
      stream.load_row(tensor, rows[i], row);
      const std::span<T> into = out.subspan(i * columns, columns);
      row.view().visit([&]<typename Stored>(std::span<const Stored> values) {
        if constexpr (std::is_same_v<Stored, T>) std::ranges::copy(values, into.begin());
      });
    }
  };
  switch (stream.facts(tensor).type) {
    case ElementType::float16: take(Half{}); break;
    case ElementType::bfloat16: take(BFloat16{}); break;
    case ElementType::float64: take(double{}); break;
    case ElementType::float32:
    case ElementType::uint8: take(float{}); break;  // a stream has no codes
  }
  return quantizable(std::move(all));
}

/// A factor as it is cast, and the values that this stands for.
struct CastFactor {
  Quantized q;
  std::vector<float> values;
};

CastFactor cast_factor(const MatrixView& x, const Recipe& recipe, int threads) {
  CastFactor factor;
  quantize(x, recipe, Direction::rowwise, factor.q, {.threads = threads});
  if (factor.q.rows != x.rows() || factor.q.columns != x.columns()) refuse("it fills the last tiles up with zeros");
  factor.values.resize(x.size());
  dequantize(factor.q, factor.values, threads);
  return factor;
}

/// Real products of rows, each to about the last bit of a double.
std::vector<double> products(std::span<const float> x, std::span<const float> w, std::size_t depth, int threads) {
  const FactorMatrix a{x, x.size() / depth, depth};
  const FactorMatrix b{w, w.size() / depth, depth};
  std::vector<double> high(a.rows * b.rows);
  std::vector<double> low(high.size());
  exact_products(a, counted(a.rows), b, counted(b.rows), threads, {high, low, b.rows});
  return high;
}

double decibels_of(double energy, double noise) {
  if (energy == 0 && noise == 0) return std::numeric_limits<double>::quiet_NaN();
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(energy / noise);
}

/// A weight with the inputs of its layer, and their real product.
struct LayerInputs {
  std::size_t tensor;  ///< of CheckResult::tensors
  std::vector<std::size_t> rows;
  std::size_t of_rows;
  Tensor x, w;
  std::vector<float> x_values, w_values;
  std::vector<double> real;

  [[nodiscard]] std::size_t depth() const { return x.columns(); }
};

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(tensor.size());
  tensor.widen(0, values);
  return values;
}

/// The factors of a layer, quantized.
struct LayerOperands {
  CastFactor x, w;
};

/// Adds up errors row by row, without elements of which anything is not finite.
class OutputMeter {
 public:
  OutputMeter(const LayerInputs& layer, const LayerOperands& operands, int threads) : layer_(layer) {
    of_weight_ = products(layer.x_values, operands.w.values, layer.depth(), threads);
    of_inputs_ = products(operands.x.values, layer.w_values, layer.depth(), threads);
    of_both_ = products(operands.x.values, operands.w.values, layer.depth(), threads);
  }

  /// Measures the core's float32 outputs.
  [[nodiscard]] CheckedOutputs measure(std::span<const float> out) const {
    CheckedOutputs result{.tensor = layer_.tensor, .rows = layer_.rows.size(), .of_rows = layer_.of_rows};
    const std::size_t columns = out.size() / layer_.rows.size();
    double energy = 0;
    double weight = 0;
    double inputs = 0;
    double core = 0;
    double all = 0;
    bool has_worst = false;
    for (std::size_t row = 0; row < layer_.rows.size(); ++row) {
      checkpoint();
      double row_energy = 0;
      double row_noise = 0;
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
        const double real = layer_.real[i];
        const double total = static_cast<double>(out[i]) - real;
        if (!std::isfinite(total) || !std::isfinite(of_both_[i]) || !std::isfinite(of_weight_[i]) ||
            !std::isfinite(of_inputs_[i])) {
          ++result.not_finite;
          continue;
        }
        const auto square = [](double x) { return x * x; };
        row_energy += square(real);
        row_noise += square(total);
        weight += square(of_weight_[i] - real);
        inputs += square(of_inputs_[i] - real);
        core += square(static_cast<double>(out[i]) - of_both_[i]);
      }
      energy += row_energy;
      all += row_noise;
      const double sqnr = decibels_of(row_energy, row_noise);
      if (std::isnan(sqnr) || (has_worst && sqnr >= result.worst_row_sqnr_db)) continue;
      has_worst = true;
      result.worst_row_sqnr_db = sqnr;
      result.worst_row = layer_.rows[row];
    }
    result.sqnr_db = decibels_of(energy, all);
    result.weight_sqnr_db = decibels_of(energy, weight);
    result.inputs_sqnr_db = decibels_of(energy, inputs);
    result.accumulation_sqnr_db = decibels_of(energy, core);
    return result;
  }

 private:
  const LayerInputs& layer_;
  std::vector<double> of_weight_, of_inputs_, of_both_;
};

/// The cores on which a layer by a recipe is computed: those that are asked for, or the first that takes it.
std::vector<MmaModel> cores_for(const CheckArguments& arguments, const LayerOperands& operands) {
  if (!arguments.tensor_cores.empty()) return arguments.tensor_cores;
  for (const MmaModel& core : {hopper_wgmma_fp8, blackwell_mxf4, blackwell_nvf4, blackwell_mxf8}) {
    if (takes(core, operands.x.q) && takes(core, operands.w.q)) {
      return {core};
    }
  }
  refuse("no tensor core of H100 or B200 takes what it makes");
}

/// Measures a layer by one recipe, and adds what cannot be computed to those left out.
void measure_layer(const CheckArguments& arguments, const LayerInputs& layer, std::size_t recipe,
                   const std::string& name, CheckResult& result) {
  const ChosenRecipe& chosen = arguments.recipes[recipe];
  const auto leave_out = [&](const std::string& why) {
    result.left_out.push_back({name, "its outputs by " + chosen.name + ": " + why, {}});
  };
  try {
    if (is_given(chosen.recipe)) return leave_out("the recipe has a given scale");
    const LayerOperands operands{cast_factor(layer.x.view(), recipe_of_inputs(chosen.recipe), arguments.threads),
                                 cast_factor(layer.w.view(), chosen.recipe, arguments.threads)};
    std::optional<OutputMeter> meter;
    for (const MmaModel& core : cores_for(arguments, operands)) {
      Buffer<float> out(layer.real.size());
      try {
        gemm({.model = core}, operands.x.q, operands.w.q, out, {.threads = arguments.threads});
      } catch (const std::invalid_argument& error) {
        leave_out(error.what());
        continue;
      }
      if (!meter) meter.emplace(layer, operands, arguments.threads);
      CheckedOutputs& one = result.outputs.emplace_back(meter->measure(out));
      one.recipe = recipe;
      one.core = std::string(core.name);
    }
  } catch (const std::invalid_argument& error) {
    leave_out(error.what());
  }
}

/// The measured tensors of each layer's name; stacks of experts have several.
std::map<std::string, std::vector<std::size_t>> layers_of(const CheckResult& result) {
  std::map<std::string, std::vector<std::size_t>> layers;
  for (std::size_t i = 0; i < result.tensors.size(); ++i) layers[layer_name(result.tensors[i].own_name)].push_back(i);
  return layers;
}

/// Why inputs do not go with a layer; empty: they do.
std::string reason_against(const SourceTensor& inputs, const CheckResult& result,
                           const std::map<std::string, std::vector<std::size_t>>& layers) {
  const auto found = layers.find(layer_name(inputs.own_name));
  if (found == layers.end()) return "these inputs have the name of no weight that is measured";
  if (found->second.size() > 1) return "these inputs are of a stack of experts, which have inputs of their own";
  const CheckedTensor& weight = result.tensors[found->second.front()];
  if (inputs.columns == weight.columns) return "";
  return "these inputs have " + std::to_string(inputs.columns) + " columns, and the weight " +
         std::to_string(weight.columns);
}

}  // namespace

void check_outputs(const CheckArguments& arguments, const TensorStream& weights, const TensorStream& inputs,
                   CheckResult& result) {
  const auto layers = layers_of(result);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < inputs.count(); ++i) {
    const SourceTensor& facts = inputs.facts(i);
    if (const std::string reason = reason_against(facts, result, layers); !reason.empty()) {
      result.left_out.push_back({facts.name, reason, facts.own_name});
      continue;
    }
    ++taken;
    const std::size_t tensor = layers.at(layer_name(facts.own_name)).front();
    LayerInputs layer{.tensor = tensor,
                      .rows = spread_rows(facts.rows, arguments.activation_rows),
                      .of_rows = facts.rows,
                      .x = {},
                      .w = {},
                      .x_values = {},
                      .w_values = {},
                      .real = {}};
    layer.x = load_some(inputs, i, layer.rows);
    layer.w = load_whole(weights, tensor);
    layer.x_values = floats_of(layer.x);
    layer.w_values = floats_of(layer.w);
    layer.real = products(layer.x_values, layer.w_values, layer.depth(), arguments.threads);
    for (std::size_t recipe = 0; recipe < arguments.recipes.size(); ++recipe) {
      measure_layer(arguments, layer, recipe, facts.name, result);
    }
  }
  if (taken == 0) {
    refuse("activations: none of the ", inputs.count(), " tensors has the name and the columns of a weight; ",
           result.left_out.back().name, ": ", result.left_out.back().reason);
  }
}

}  // namespace fp8lab::experiments
