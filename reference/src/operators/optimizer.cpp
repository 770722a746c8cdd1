// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/optimizer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/units/device_function.hpp"
#include "operators/flushed.hpp"
#include "operators/row_buffers.hpp"
#include "operators/tensor_pieces.hpp"
#include "simd/operators_optimizer.hpp"
#include "simd/operators_softmax.hpp"
#include "units/number_pair.hpp"

namespace fp8lab {

namespace {

/// The float32 arrays of a piece.
struct OptimizerBuffers {
  alignas(64) TensorPiece grad{};
  alignas(64) TensorPiece param{};
  alignas(64) TensorPiece m{};
  alignas(64) TensorPiece v{};

  [[nodiscard]] OptimizerPiece piece(std::size_t count) {
    return {grad.data(), param.data(), m.data(), v.data(), padded(count)};
  }
};

/// 1 - beta^step: the power in float64, as std::pow has it but for its last bit, and the difference.
float bias_correction_of(float beta, std::uint32_t step) {
  NumberPair power{1};
  NumberPair square{beta};
  for (std::uint32_t bits = step; bits != 0; bits >>= 1) {
    if (bits % 2 == 1) power = power * square;
    square = square * square;
  }
  return static_cast<float>(1 - power.high);
}

/// x = a function of x, as a Hopper chip computes it in code that is compiled with fast-math.
void apply_on_hopper(DeviceFunction function, std::span<float> x) {
  device_function(function, {.flags = {.fast_math = true}}, x, {}, x);
}

/// What is the kernel's own of the functions that are asked for.
class AdamArithmetic {
 public:
  AdamArithmetic(std::string_view name, const OperatorOptions& options) : functions_(options.functions) {
    check_exact_functions(name, options);
  }

  /// The kernels for CUDA graphs read lr from memory in both branches of the mode, so that nvcc does not fuse it with
  /// what follows them.
  [[nodiscard]] AdamConstants constants(const AdamParameters& parameters, bool is_for_graphs) const {
    if (parameters.step == 0) refuse("step must be at least 1, not 0");
    const DefaultEnvironment environment;
    std::array<float, 2> corrections{1, 1};
    if (parameters.bias_correction) {
      corrections = {bias_correction_of(parameters.beta1, parameters.step),
                     bias_correction_of(parameters.beta2, parameters.step)};
    }
    switch (functions_) {
      case Functions::correctly_rounded:
        return {flushed_reciprocal(corrections[0]), flushed_reciprocal(corrections[1]), true};
      case Functions::hopper: break;
    }
    apply_on_hopper(DeviceFunction::reciprocal, corrections);
    return {corrections[0], corrections[1], !is_for_graphs};
  }

  /// x = 1 / (sqrt(x) + eps).
  void shares(const OptimizerFunctions& loops, float eps, std::span<float> x) const {
    switch (functions_) {
      case Functions::correctly_rounded: return loops.adam_shares(eps, x.data(), x.size());
      case Functions::hopper: break;
    }
    apply_on_hopper(DeviceFunction::sqrtf, x);
    const float summand = flushed_float(eps);
    for (float& value : x) value = flushed_float(value + summand);
    apply_on_hopper(DeviceFunction::reciprocal, x);
  }

 private:
  Functions functions_;
};

/// An update: its name in messages, and whether it is that of the kernels for CUDA graphs.
struct AdamCall {
  std::string_view name;
  bool is_for_graphs = false;
};

/// Runs Adam piece by piece: read(first, count, out) and write(in, first, count) are those of the parameters, and
/// read_grad(first, count, out) that of the gradient.
template <typename ReadGrad, typename Read, typename Write>
void run_adam(const AdamCall& call, const AdamParameters& parameters, std::size_t size, const ReadGrad& read_grad,
              const FloatOutput& m, const FloatOutput& v, const OperatorOptions& options, const Read& read,
              const Write& write) {
  const AdamArithmetic arithmetic(call.name, options);
  check_size("m", output_size(m), size);
  check_size("v", output_size(v), size);
  const AdamConstants constants = arithmetic.constants(parameters, call.is_for_graphs);
  const OptimizerFunctions loops = optimizer_functions();
  for_each_tensor_piece(size, options.threads, [&](std::size_t first, std::size_t count) {
    OptimizerBuffers buffers;
    read_grad(first, count, buffers.grad.data());
    read_output(m, first, count, buffers.m.data());
    read_output(v, first, count, buffers.v.data());
    read(first, count, buffers.param.data());
    alignas(64) TensorPiece shares{};
    const OptimizerPiece piece = buffers.piece(count);
    loops.adam_moments(parameters, constants, piece, shares.data());
    arithmetic.shares(loops, parameters.eps, std::span(shares).first(piece.count));
    loops.adam_step(parameters, constants, piece, shares.data());
    write(buffers.param.data(), first, count);
    write_piece(buffers.m.data(), count, m, first);
    write_piece(buffers.v.data(), count, v, first);
  });
}

/// Reads the gradient as it is.
auto reader_of(const FloatSpan& grad) {
  return [&grad](std::size_t first, std::size_t count, float* out) { read_tensor(grad, first, count, out); };
}

/// The master's bits of its two parts, and back.
float joined(BFloat16 param, std::int16_t remainder) {
  const auto high = static_cast<std::uint16_t>(param.bits - (remainder < 0 ? 1 : 0));
  return std::bit_cast<float>(std::uint32_t{high} << 16 | static_cast<std::uint16_t>(remainder));
}
void split(float master, BFloat16& param, std::int16_t& remainder) {
  const auto word = std::bit_cast<std::uint32_t>(master);
  remainder = static_cast<std::int16_t>(word & 0xFFFFU);
  param.bits = static_cast<std::uint16_t>((word >> 16) + (remainder < 0 ? 1 : 0));
}

/// Throws unless a kernel has these types.
void check_sgd_types(const FloatSpan& grad, const FloatOutput& param, const FloatOutput& momentum, bool has_model) {
  const bool half_grad = std::holds_alternative<std::span<const Half>>(grad);
  const bool half_param = std::holds_alternative<std::span<Half>>(param);
  const bool float_grad = std::holds_alternative<std::span<const float>>(grad);
  const bool float_param = std::holds_alternative<std::span<float>>(param);
  const bool same = param.index() == momentum.index();
  const bool known =
      (half_grad && half_param && !has_model) || (float_param && (float_grad || (half_grad && has_model)));
  if (!same || !known) {
    refuse(
        "grad, param and momentum must be float16 without a model, or param and momentum float32 and grad float32, "
        "or float16 with a model");
  }
}

/// param + change in float16: the exact sum, rounded once.
void add_halves(const float* change, std::span<Half> param, std::size_t first, std::size_t count) {
  std::array<Half, tensor_piece_size> rounded_change{};
  narrow_row(change, count, rounded_change.data());
  for (std::size_t i = 0; i < count; ++i) {
    Half& value = param[first + i];
    const double sum = double{widened(value)} + double{widened(rounded_change[i])};
    value.bits = sum == sum ? static_cast<std::uint16_t>(encode(binary16, cuda_nosat_policy, sum)) : 0x7FFFU;
  }
}

}  // namespace

void sgd_update(const SgdParameters& parameters, FloatSpan grad, FloatOutput param, FloatOutput momentum,
                std::span<Half> model, int threads) {
  const std::size_t size = tensor_size("grad", grad);
  check_sgd_types(grad, param, momentum, !model.empty());
  check_size("param", output_size(param), size);
  check_size("momentum", output_size(momentum), size);
  if (!model.empty()) check_size("model", model.size(), size);
  const OptimizerFunctions loops = optimizer_functions();
  for_each_tensor_piece(size, threads, [&](std::size_t first, std::size_t count) {
    OptimizerBuffers buffers;
    read_tensor(grad, first, count, buffers.grad.data());
    read_output(param, first, count, buffers.param.data());
    read_output(momentum, first, count, buffers.m.data());
    const OptimizerPiece piece = buffers.piece(count);
    loops.sgd_gradient(parameters, piece);
    if (flushed_float(parameters.momentum) != 0) write_piece(piece.m, count, momentum, first);
    if (const auto* halves = std::get_if<std::span<Half>>(&param)) {
      loops.sgd_change(parameters.lr, piece);
      return add_halves(piece.grad, *halves, first, count);
    }
    loops.sgd_step(parameters.lr, piece);
    write_piece(piece.param, count, param, first);
    if (!model.empty()) narrow_row(piece.param, count, model.data() + first);
  });
}

namespace {

/// Runs Adam on parameters that lie in param, or in master, and then in param as copies.
template <typename ReadGrad>
void run_adam_of_floats(const AdamCall& call, const AdamParameters& parameters, std::size_t size,
                        const ReadGrad& read_grad, const FloatOutput& param, const FloatOutput& m, const FloatOutput& v,
                        std::span<float> master, const OperatorOptions& options) {
  check_size("param", output_size(param), size);
  if (!master.empty()) check_size("master", master.size(), output_size(param));
  const FloatOutput read_from = master.empty() ? param : FloatOutput(master);
  run_adam(
      call, parameters, size, read_grad, m, v, options,
      [&](std::size_t first, std::size_t count, float* out) { read_output(read_from, first, count, out); },
      [&](const float* in, std::size_t first, std::size_t count) {
        if (!master.empty()) narrow_row(in, count, master.data() + first);
        write_piece(in, count, param, first);
      });
}

}  // namespace

void adam_update(const AdamParameters& parameters, FloatSpan grad, FloatOutput param, FloatOutput m, FloatOutput v,
                 std::span<float> master, const OperatorOptions& options) {
  run_adam_of_floats({"adam_update"}, parameters, tensor_size("grad", grad), reader_of(grad), param, m, v, master,
                     options);
}

void adam_update_unscaling(const AdamParameters& parameters, float inverse_scale, FloatOutput grad, FloatOutput param,
                           FloatOutput m, FloatOutput v, std::span<float> master, const OperatorOptions& options) {
  const SoftmaxFunctions loops = softmax_functions();
  const auto read_grad = [&](std::size_t first, std::size_t count, float* out) {
    read_output(grad, first, count, out);
    loops.scale(out, inverse_scale, padded(count), out);
    write_piece(out, count, grad, first);
  };
  run_adam_of_floats({"adam_update_unscaling", true}, parameters, output_size(grad), read_grad, param, m, v, master,
                     options);
}

float adam_update_fp8(const AdamParameters& parameters, FloatSpan grad, const Format& format, float scale, float amax,
                      std::span<std::uint8_t> codes, FloatOutput m, FloatOutput v, std::span<float> master,
                      const OperatorOptions& options) {
  const std::size_t size = tensor_size("grad", grad);
  check_size("codes", codes.size(), size);
  check_size("master", master.size(), size);
  check_bulk(format, 1, 8, size, size);
  run_adam(
      {"adam_update_fp8"}, parameters, size, reader_of(grad), m, v, options,
      [&](std::size_t first, std::size_t count, float* out) { widen_row(master.data() + first, count, out); },
      [&](const float* in, std::size_t first, std::size_t count) { narrow_row(in, count, master.data() + first); });
  const DefaultEnvironment environment;
  const SoftmaxFunctions loops = softmax_functions();
  for (std::size_t first = 0; first < size; first += tensor_piece_size) {
    checkpoint();
    TensorPiece values{};
    const std::size_t count = std::min(tensor_piece_size, size - first);
    widen_row(master.data() + first, count, values.data());
    for (std::size_t i = 0; i < count; ++i) amax = std::fmax(amax, std::abs(values[i]));
    loops.scale(values.data(), scale, padded(count), values.data());
    encode(format, CastPolicy{}, std::span<const float>(values).first(count), codes.subspan(first, count));
  }
  return amax;
}

void adam_update_remainder(const AdamParameters& parameters, FloatSpan grad, std::span<BFloat16> param, FloatOutput m,
                           FloatOutput v, std::span<std::int16_t> remainder, const OperatorOptions& options) {
  const std::size_t size = tensor_size("grad", grad);
  check_size("param", param.size(), size);
  check_size("remainder", remainder.size(), size);
  run_adam(
      {"adam_update_remainder"}, parameters, size, reader_of(grad), m, v, options,
      [&](std::size_t first, std::size_t count, float* out) {
        std::fill(out, out + padded(count), 0.0F);
        for (std::size_t i = 0; i < count; ++i) out[i] = joined(param[first + i], remainder[first + i]);
      },
      [&](const float* in, std::size_t first, std::size_t count) {
        TensorPiece values{};
        narrow_row(in, count, values.data());
        for (std::size_t i = 0; i < count; ++i) split(values[i], param[first + i], remainder[first + i]);
      });
}

}  // namespace fp8lab
