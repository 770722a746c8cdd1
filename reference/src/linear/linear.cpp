// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/linear/linear.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/memory.hpp"
#include "fp8lab/reference/linear/shape_rules.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "linear/linear_parallel.hpp"
#include "linear/with_name.hpp"

namespace fp8lab {
namespace {

std::size_t input_rows(const LinearInput& input) {
  if (const auto* x = std::get_if<MatrixView>(&input)) return x->rows();
  return std::get<1>(input).get().rows;
}
std::size_t input_columns(const LinearInput& input) {
  if (const auto* x = std::get_if<MatrixView>(&input)) return x->columns();
  return std::get<1>(input).get().columns;
}

/// The recipe with a scale of 1, if it is one whose scale is given.
Recipe without_scale(Recipe recipe) {
  if (is_given(recipe)) recipe.given_scale = 1;
  return recipe;
}

void check_quantized_as(const Quantized& q, const Recipe& recipe, Direction direction) {
  if (q.direction != direction) {
    const std::string wanted = direction == Direction::rowwise ? "rowwise" : "columnwise";
    throw std::invalid_argument("must be quantized " + wanted + " for this pass");
  }
  if (without_scale(q.recipe) != without_scale(recipe)) {
    throw std::invalid_argument("must be quantized by \"" + describe(recipe) +
                                "\", the recipe of this operand, not by \"" + describe(q.recipe) + "\"");
  }
}

/// A tensor as an operand that is not quantized, with the memory of its values.
class HighPrecision {
 public:
  using Cast = Format;

  HighPrecision(const LinearInput& input, const Format& format, const LinearFactor& factor,
                const LinearOptions& /*options*/) {
    const auto* x = std::get_if<MatrixView>(&input);
    if (x == nullptr) {
      throw std::invalid_argument("must not be quantized: the recipe leaves this operand in " + format_name(format));
    }
    x->visit([&](auto values) { set(values, format); });
    const bool rowwise = factor.direction == Direction::rowwise;
    operand_.rows = rowwise ? x->rows() : x->columns();
    operand_.depth = rowwise ? x->columns() : x->rows();
    operand_.transposed = !rowwise;
  }
  HighPrecision(const HighPrecision&) = delete;
  HighPrecision& operator=(const HighPrecision&) = delete;
  ~HighPrecision() = default;

  [[nodiscard]] const Operand& get() const { return operand_; }

 private:
  static void set(std::span<const double> /*values*/, const Format& /*format*/) {
    throw std::invalid_argument("must be of float32, float16 or bfloat16, not float64");
  }
  template <typename T>
  void set(std::span<const T> values, const Format& format) {
    operand_.format = format;
    if (format.bits() == 16) {
      codes_.resize(values.size());
      encode(format, cuda_nosat_policy, values, codes_);
      operand_.elements = std::span<const std::uint16_t>(codes_);
    } else if constexpr (std::is_same_v<T, float>) {
      operand_.elements = values;
    } else {
      floats_.resize(values.size());
      const auto value = [](T x) { return decode(std::is_same_v<T, Half> ? binary16 : bfloat16, x.bits); };
      std::ranges::transform(values, floats_.begin(), value);
      operand_.elements = std::span<const float>(floats_);
    }
  }

  Operand operand_ = Operand::floats({}, 0, 0);
  Buffer<std::uint16_t> codes_;
  Buffer<float> floats_;
};

/// A tensor as a Quantized: the caller's, or one that is made here.
class QuantizedInput {
 public:
  using Cast = Recipe;

  QuantizedInput(const LinearInput& input, const Recipe& recipe, const LinearFactor& factor,
                 const LinearOptions& options) {
    if (const auto* given = std::get_if<std::reference_wrapper<const Quantized>>(&input)) {
      check_quantized_as(*given, recipe, factor.direction);
      q_ = &given->get();
      return;
    }
    QuantizeOptions how{.threads = options.threads};
    if (factor.tensor == LinearTensor::dy) how.random = options.random;
    quantize(std::get<MatrixView>(input), recipe, factor.direction, own_, how);
    q_ = &own_;
  }
  QuantizedInput(const QuantizedInput&) = delete;
  QuantizedInput& operator=(const QuantizedInput&) = delete;
  ~QuantizedInput() = default;

  [[nodiscard]] const Quantized& get() const { return *q_; }

 private:
  Quantized own_;
  const Quantized* q_ = nullptr;
};

/// The dimension that a GEMM sums over, of one factor.
std::size_t input_depth(const LinearInput& input, Direction direction) {
  return direction == Direction::rowwise ? input_columns(input) : input_rows(input);
}

void check_depths(const LinearInput& a, const LinearInput& b, const LinearFactors& factors) {
  const auto text = [](const LinearInput& input, const LinearFactor& factor) {
    return std::string(name_of(factor.tensor)) + " has " + std::to_string(input_depth(input, factor.direction)) +
           (factor.direction == Direction::rowwise ? " columns" : " rows");
  };
  if (input_depth(a, factors.a.direction) == input_depth(b, factors.b.direction)) return;
  throw std::invalid_argument(text(a, factors.a) + " and " + text(b, factors.b) + "; they must be as many");
}

/// The layer's sizes, of the operands of a pass.
LinearShape shape_of(LinearPass pass, const LinearInput& a, const LinearInput& b) {
  if (pass == LinearPass::fprop) return {.tokens = input_rows(a), .in = input_columns(a), .out = input_rows(b)};
  return {.tokens = input_rows(a), .in = input_columns(b), .out = input_columns(a)};
}

void check_linear_options(LinearPass pass, const LinearGemm& gemm, const LinearInput& a, const LinearOptions& options) {
  if (!options.bias.empty() && pass != LinearPass::fprop) throw std::invalid_argument("bias is for fprop alone");
  if (options.accumulate && (pass != LinearPass::wgrad || gemm.recipe.output != binary32)) {
    throw std::invalid_argument("accumulate is for wgrad alone, with an output of float32");
  }
  if (options.output_scale && gemm.recipe.output.bits() != 8) {
    throw std::invalid_argument("output_scale is for an output of e4m3 or e5m2");
  }
  if (!options.random) return;
  const auto* recipe = std::get_if<Recipe>(&gemm.a);
  const bool is_read =
      pass != LinearPass::fprop && std::holds_alternative<MatrixView>(a) && recipe != nullptr && is_stochastic(*recipe);
  if (!is_read) throw std::invalid_argument("random bits are for a dy that is cast here by stochastic rounding");
}

/// The values that the bias has after it is rounded.
std::vector<float> rounded_bias(std::span<const float> bias, const Format& format) {
  std::vector<float> result(bias.begin(), bias.end());
  if (format == binary32) return result;
  std::ranges::transform(bias, result.begin(),
                         [&](float x) { return decode(format, encode(format, cuda_nosat_policy, x)); });
  return result;
}

template <typename Out>
void check_linear_output(const LinearGemm& gemm, std::span<Out> /*out*/) {
  constexpr int bits = std::is_same_v<Out, float> ? 32 : 16;
  const Format& output = gemm.recipe.output;
  if (output.bits() == bits) return;
  std::string wanted = "16-bit codes";
  if (output == binary32) wanted = "float32";
  if (output.bits() == 8) wanted = "a Quantized";
  throw std::invalid_argument("out must be " + wanted + ", for the recipe's output is " + format_name(output));
}

/// Casts both operands and multiplies them; `Factor` is HighPrecision or QuantizedInput.
template <typename Factor, typename Out>
void cast_and_multiply(LinearPass pass, const LinearGemm& gemm, const LinearInput& a, const LinearInput& b,
                       std::span<Out> out, const LinearOptions& options, const GemmRecipe& recipe,
                       const GemmCall& call) {
  const auto cast = [&](const LinearInput& input, const LinearCast& how, const LinearFactor& factor) {
    return with_name(std::string(name_of(factor.tensor)),
                     [&] { return Factor(input, std::get<typename Factor::Cast>(how), factor, options); });
  };
  const LinearFactors factors = factors_of(pass);
  const Factor left = cast(a, gemm.a, factors.a);
  const Factor right = cast(b, gemm.b, factors.b);
  fp8lab::gemm(recipe, left.get(), right.get(), out, call);
}

template <typename Out>
void run_pass(const LinearRecipe& recipe, LinearPass pass, const LinearInput& a, const LinearInput& b,
              std::span<Out> out, const LinearOptions& options) {
  if (options.parallel.mode != ParallelMode::none) return run_parallel_pass(recipe, pass, a, b, out, options);
  const DefaultEnvironment environment;
  check_linear_recipe(recipe);
  check_tensor_parallel(options.parallel);
  const LinearGemm& gemm = gemm_of(recipe, pass);
  with_name(std::string(name_of(pass)), [&] {
    check_linear_output(gemm, out);
    check_linear_options(pass, gemm, a, options);
    check_depths(a, b, factors_of(pass));
    if (options.check_shapes) check_shape(recipe, pass, shape_of(pass, a, b));
    const std::vector<float> bias = rounded_bias(options.bias, bias_format_of(gemm));
    GemmRecipe how = gemm.recipe;
    if (options.zero_rule != ZeroRule::floor) how.zero_rule = options.zero_rule;
    GemmCall call{.bias = bias, .threads = options.threads};
    if constexpr (std::is_same_v<Out, float>) {
      if (options.accumulate) call.c = out;
    }
    if (std::holds_alternative<Format>(gemm.a)) {
      cast_and_multiply<HighPrecision>(pass, gemm, a, b, out, options, how, call);
    } else {
      cast_and_multiply<QuantizedInput>(pass, gemm, a, b, out, options, how, call);
    }
  });
}

/// The codes of fl(value * scale), and the amax of the values, as a cast of delayed scaling makes them.
void quantize_output(const MatrixView& values, const Format& format, float scale, Quantized& out, int threads) {
  const Delayed delayed{.fp8_format = Fp8Format::hybrid, .amax_history_len = 1};
  AmaxHistory history = start_history(delayed);
  history.scale = scale;
  const Pass pass = format == e4m3 ? Pass::forward : Pass::backward;
  quantize(values, delayed, pass, history, Direction::rowwise, out, {.threads = threads});
}

/// The pass with an FP8 output: the float32 result, which the GEMM keeps in registers, and its cast.
void run_pass(LinearRecipe recipe, LinearPass pass, const LinearInput& a, const LinearInput& b, Quantized& out,
              LinearOptions options) {
  const DefaultEnvironment environment;
  check_linear_recipe(recipe);
  LinearGemm& gemm = pass == LinearPass::fprop ? recipe.fprop : recipe.dgrad;
  const Format format = gemm.recipe.output;
  const LinearShape shape = shape_of(pass, a, b);
  const std::size_t columns = pass == LinearPass::fprop ? shape.out : shape.in;
  with_name(std::string(name_of(pass)), [&] {
    if (format.bits() != 8) {
      throw std::invalid_argument("out must not be a Quantized, for the recipe's output is " + format_name(format));
    }
    if (options.parallel.mode != ParallelMode::none) {
      throw std::invalid_argument("parallel is for an output in high precision: ranks add their results in it");
    }
    if (options.output_scale.value_or(1) < 0) {
      throw std::invalid_argument("output_scale must not be negative, as " + std::to_string(*options.output_scale));
    }
    check_depths(a, b, factors_of(pass));
    if (options.check_shapes) check_shape(recipe, pass, shape);
  });
  const float scale = options.output_scale.value_or(1);
  options.output_scale.reset();
  options.check_shapes = false;
  gemm.recipe.output = binary32;
  gemm.recipe.cast.reset();
  Buffer<float> values(shape.tokens * columns);
  run_pass(recipe, pass, a, b, std::span<float>(values), options);
  quantize_output({std::span<const float>(values), shape.tokens, columns}, format, scale, out, options.threads);
}

}  // namespace

void linear(const LinearRecipe& recipe, const LinearInput& x, const LinearInput& w, Quantized& out,
            const LinearOptions& options) {
  run_pass(recipe, LinearPass::fprop, x, w, out, options);
}
void linear_dgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& w, Quantized& out,
                  const LinearOptions& options) {
  run_pass(recipe, LinearPass::dgrad, dy, w, out, options);
}

void linear(const LinearRecipe& recipe, const LinearInput& x, const LinearInput& w, std::span<float> out,
            const LinearOptions& options) {
  run_pass(recipe, LinearPass::fprop, x, w, out, options);
}
void linear(const LinearRecipe& recipe, const LinearInput& x, const LinearInput& w, std::span<std::uint16_t> out,
            const LinearOptions& options) {
  run_pass(recipe, LinearPass::fprop, x, w, out, options);
}
void linear_dgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& w, std::span<float> out,
                  const LinearOptions& options) {
  run_pass(recipe, LinearPass::dgrad, dy, w, out, options);
}
void linear_dgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& w, std::span<std::uint16_t> out,
                  const LinearOptions& options) {
  run_pass(recipe, LinearPass::dgrad, dy, w, out, options);
}
void linear_wgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& x, std::span<float> out,
                  const LinearOptions& options) {
  run_pass(recipe, LinearPass::wgrad, dy, x, out, options);
}
void linear_wgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& x, std::span<std::uint16_t> out,
                  const LinearOptions& options) {
  run_pass(recipe, LinearPass::wgrad, dy, x, out, options);
}

}  // namespace fp8lab
