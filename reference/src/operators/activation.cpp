// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/activation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/row_buffers.hpp"
#include "simd/operators_activation.hpp"

namespace fp8lab {

namespace {

/// Elements that vector code gets at a time: five arrays of them fit into the first cache.
constexpr std::size_t activation_piece_size = 1024;

struct ActivationBuffers {
  explicit ActivationBuffers(const OperatorOptions& options)
      : functions(options.functions), function_words(options.function_words) {}

  using Piece = std::array<float, activation_piece_size>;
  alignas(64) Piece x{};
  alignas(64) Piece gate{};
  alignas(64) Piece grad{};
  alignas(64) Piece out{};
  alignas(64) Piece gate_out{};
  Functions functions;
  int function_words;

  [[nodiscard]] ActivationPiece piece(std::size_t count) {
    return {.x = x.data(),
            .gate = gate.data(),
            .grad = grad.data(),
            .out = out.data(),
            .gate_out = gate_out.data(),
            .count = padded(count),
            .functions = functions,
            .function_words = function_words};
  }
};

/// How rows are laid out: `segment` elements of the result follow each other, and so do those of a and of b.
struct ActivationShape {
  std::size_t rows;
  std::size_t columns;  // of the result
  std::size_t segment;
  bool gated;

  [[nodiscard]] std::size_t columns_in() const { return gated ? 2 * columns : columns; }
};

/// Where a piece of a row lies: its first element in x (b's is a segment further on) and in the result.
struct PiecePlace {
  std::size_t in;
  std::size_t out;
  std::size_t count;
};

template <typename Run>
void for_each_piece_of_row(const ActivationShape& shape, std::size_t row, const Run& run) {
  checkpoint();
  for (std::size_t segment = 0; segment < shape.columns; segment += shape.segment) {
    const std::size_t in = row * shape.columns_in() + (shape.gated ? 2 * segment : segment);
    for (std::size_t i = 0; i < shape.segment; i += activation_piece_size) {
      const std::size_t count = std::min(activation_piece_size, shape.segment - i);
      run(PiecePlace{in + i, row * shape.columns + segment + i, count});
    }
  }
}

/// Rows do not matter to an activation that is not gated: pieces of all elements.
ActivationShape in_pieces(const ActivationShape& shape) {
  if (shape.gated) return shape;
  const std::size_t size = shape.rows * shape.columns;
  return {(size + activation_piece_size - 1) / activation_piece_size, activation_piece_size, activation_piece_size,
          false};
}
/// The last piece of in_pieces() is shorter.
PiecePlace cut(PiecePlace place, std::size_t size) {
  place.count = std::min(place.count, size - place.out);
  return place;
}

void check_beta(std::string_view name, float beta) {
  if (!(beta > 0) || !std::isfinite(beta)) refuse(name, " must be positive and finite, not ", beta);
}

ActivationShape checked_shape(KernelActivation kind, const ActivationParameters& parameters, const MatrixView& x,
                              std::size_t interleave) {
  const ActivationRow& row = row_of(kind);
  check_kernel_floats("x", x);
  if (row.gated && x.columns() % 2 != 0) {
    refuse("x must have an even number of columns for ", row.name, ", not ", x.columns());
  }
  if (kind == KernelActivation::clamped_swiglu && !(parameters.limit > 0)) {
    refuse("limit must be positive, not ", parameters.limit);
  }
  if (kind == KernelActivation::situglu) {
    check_beta("beta1", parameters.beta1);
    check_beta("beta2", parameters.beta2);
  }
  const std::size_t columns = row.gated ? x.columns() / 2 : x.columns();
  if (interleave == 0) return {x.rows(), columns, columns, row.gated};
  if (!row.gated) refuse("interleave is for gated activations, not for ", row.name);
  if (interleave % 32 != 0 || columns % interleave != 0) {
    refuse("interleave must be a multiple of 32 that divides the ", columns, " columns of the result, not ",
           interleave);
  }
  return {x.rows(), columns, interleave, true};
}

void check_arrays(const ActivationShape& shape, const MatrixView& x, std::string_view out_name, const FloatOutput& out,
                  std::size_t size) {
  check_size(out_name, output_size(out), size);
  (shape.gated ? check_apart_from : check_apart_or_same_as)("x", x, out_name, out);
}

void check_gradient(const ActivationShape& shape, const MatrixView& grad, const MatrixView& x, const FloatOutput& dx) {
  check_kernel_floats("grad", grad);
  if (grad.rows() != shape.rows || grad.columns() != shape.columns) {
    refuse("grad must be ", shape.rows, " x ", shape.columns, ", as the result, not ", grad.rows(), " x ",
           grad.columns());
  }
  check_arrays(shape, x, "dx", dx, x.size());
  (shape.gated ? check_apart_from : check_apart_or_same_as)("grad", grad, "dx", dx);
}

void check_scales(KernelActivation kind, const ActivationShape& shape, std::span<const float> scales) {
  if (!row_of(kind).scaled) refuse("no kernel scales the rows of ", row_of(kind).name);
  check_size("scales", scales.size(), shape.rows);
}

std::size_t bytes_of_float(const MatrixView& x) {
  return x.visit([]<typename T>(std::span<const T> /*of_type*/) { return sizeof(T); });
}

/// How a block of a Hopper chip's kernel adds up the gradient by the scale of a row. Its threads take loads of 32 bytes
/// of the wider type in turns, or single elements where a segment is not a multiple of such loads.
///
/// Source: Transformer Engine 2.20, common/activation/scaled_activation.cu, the result being of the gradient's type.
class ScaleGradientOrder {
 public:
  ScaleGradientOrder(const ActivationShape& shape, const MatrixView& grad, const MatrixView& x) {
    const std::size_t size = 32 / std::max(bytes_of_float(grad), bytes_of_float(x));
    per_load_ = shape.segment % size == 0 ? size : 1;
    const std::size_t loads = shape.columns / per_load_;
    threads_ = std::clamp<std::size_t>((loads + sum_lanes - 1) / sum_lanes * sum_lanes, sum_lanes, most_threads);
  }

  /// The sum of grad[i] values[i], each product fused: of a thread, of the threads of a warp, of warps.
  [[nodiscard]] float sum(std::span<const float> grad, std::span<const float> values) const {
    std::array<float, most_threads> of_threads{};
    for (std::size_t i = 0; i < grad.size(); ++i) {
      float& own = of_threads[i / per_load_ % threads_];
      own = std::fma(grad[i], values[i], own);
    }
    std::array<float, sum_lanes> of_warps{};
    for (std::size_t warp = 0; warp < threads_ / sum_lanes; ++warp) {
      of_warps[warp] = sum_of_lanes(of_threads.data() + warp * sum_lanes);
    }
    return sum_of_lanes(of_warps.data());
  }

 private:
  static constexpr std::size_t most_threads = 256;
  std::size_t per_load_;
  std::size_t threads_;
};

/// What a row's gradient by its scale is made of.
struct ScaledRow {
  explicit ScaledRow(std::size_t columns) : grad(columns), values(columns) {}
  std::vector<float> grad;
  std::vector<float> values;

  /// Keeps a piece's gradients, which are in the buffers, and f(a) b.
  void keep(KernelActivation kind, const ActivationParameters& parameters, std::size_t first, std::size_t count,
            ActivationBuffers& buffers) {
    activation_piece(kind, parameters, buffers.piece(count));
    std::copy_n(buffers.out.begin(), count, values.begin() + static_cast<std::ptrdiff_t>(first));
    std::copy_n(buffers.grad.begin(), count, grad.begin() + static_cast<std::ptrdiff_t>(first));
  }
};

/// Reads a piece of x, and of the gate.
void read_inputs(const ActivationShape& shape, const MatrixView& x, const PiecePlace& at, ActivationBuffers& buffers) {
  read_piece(x, at.in, at.count, buffers.x.data());
  if (shape.gated) read_piece(x, at.in + shape.segment, at.count, buffers.gate.data());
}
/// Writes the gradients of a piece.
void write_gradients(const ActivationShape& shape, const PiecePlace& at, const ActivationBuffers& buffers,
                     const FloatOutput& dx) {
  write_piece(buffers.out.data(), at.count, dx, at.in);
  if (shape.gated) write_piece(buffers.gate_out.data(), at.count, dx, at.in + shape.segment);
}

/// sums[j] += values[j].
void add_values(const ActivationBuffers::Piece& values, std::size_t count, float* sums) {
  for (std::size_t j = 0; j < count; ++j) sums[j] += values[j];
}

/// The gradients of a row, and their sums where `sums` is not null.
void backward_row(KernelActivation kind, const ActivationParameters& parameters, const ActivationShape& shape,
                  std::size_t row, const MatrixView& grad, const MatrixView& x, const FloatOutput& dx,
                  ActivationBuffers& buffers, float* sums) {
  for_each_piece_of_row(shape, row, [&](const PiecePlace& place) {
    const PiecePlace at = shape.gated ? place : cut(place, x.size());
    read_inputs(shape, x, at, buffers);
    read_piece(grad, at.out, at.count, buffers.grad.data());
    activation_gradient_piece(kind, parameters, buffers.piece(at.count));
    write_gradients(shape, at, buffers, dx);
    if (sums == nullptr) return;
    const std::size_t column = at.in - row * shape.columns_in();
    add_values(buffers.out, at.count, sums + column);
    if (shape.gated) add_values(buffers.gate_out, at.count, sums + column + shape.segment);
  });
}

}  // namespace

void activation(KernelActivation kind, const ActivationParameters& parameters, const MatrixView& x, FloatOutput out,
                const OperatorOptions& options) {
  check_function_words(options);
  const ActivationShape given = checked_shape(kind, parameters, x, 0);
  check_arrays(given, x, "out", out, given.rows * given.columns);
  const ActivationShape shape = in_pieces(given);
  parallel_for(shape.rows, options.threads, [&](std::size_t first, std::size_t last) {
    ActivationBuffers buffers(options);
    for (std::size_t row = first; row < last; ++row) {
      for_each_piece_of_row(shape, row, [&](const PiecePlace& place) {
        const PiecePlace at = cut(place, given.rows * given.columns);
        read_inputs(shape, x, at, buffers);
        activation_piece(kind, parameters, buffers.piece(at.count));
        write_piece(buffers.out.data(), at.count, out, at.out);
      });
    }
  });
}

void activation_backward(KernelActivation kind, const ActivationParameters& parameters, const MatrixView& grad,
                         const MatrixView& x, FloatOutput dx, std::span<float> bias_gradient,
                         const OperatorOptions& options) {
  check_function_words(options);
  const ActivationShape given = checked_shape(kind, parameters, x, 0);
  check_gradient(given, grad, x, dx);
  if (bias_gradient.empty()) {
    const ActivationShape shape = in_pieces(given);
    parallel_for(shape.rows, options.threads, [&](std::size_t first, std::size_t last) {
      ActivationBuffers buffers(options);
      for (std::size_t row = first; row < last; ++row) {
        backward_row(kind, parameters, shape, row, grad, x, dx, buffers, nullptr);
      }
    });
    return;
  }
  check_size("bias_gradient", bias_gradient.size(), x.columns());
  BlockSums sums(x.columns());
  for_each_block(given.rows, options.threads, [&](std::size_t block, std::size_t first, std::size_t last) {
    ActivationBuffers buffers(options);
    for (std::size_t row = first; row < last; ++row) {
      backward_row(kind, parameters, given, row, grad, x, dx, buffers, sums.of_block(block));
    }
  });
  sums.total(bias_gradient);
}

void scaled_activation(KernelActivation kind, const ActivationParameters& parameters, const MatrixView& x,
                       std::span<const float> scales, FloatOutput out, ScaledLayout layout,
                       const OperatorOptions& options) {
  check_function_words(options);
  const ActivationShape shape = checked_shape(kind, parameters, x, layout.interleave);
  check_scales(kind, shape, scales);
  check_arrays(shape, x, "out", out, shape.rows * shape.columns);
  parallel_for(shape.rows, options.threads, [&](std::size_t first, std::size_t last) {
    ActivationBuffers buffers(options);
    for (std::size_t row = first; row < last; ++row) {
      for_each_piece_of_row(shape, row, [&](const PiecePlace& at) {
        read_inputs(shape, x, at, buffers);
        ActivationPiece piece = buffers.piece(at.count);
        piece.scale = scales[row];
        activation_piece(kind, parameters, piece);
        write_piece(buffers.out.data(), at.count, out, at.out);
      });
    }
  });
}

void scaled_activation_backward(KernelActivation kind, const ActivationParameters& parameters, const MatrixView& grad,
                                const MatrixView& x, std::span<const float> scales, FloatOutput dx,
                                std::span<float> scale_gradient, ScaledLayout layout, const OperatorOptions& options) {
  const ActivationShape shape = checked_shape(kind, parameters, x, layout.interleave);
  check_scales(kind, shape, scales);
  check_gradient(shape, grad, x, dx);
  if (!scale_gradient.empty()) check_size("scale_gradient", scale_gradient.size(), shape.rows);
  const bool is_in_device_order = options.functions == Functions::hopper && !scale_gradient.empty();
  const ScaleGradientOrder order(shape, grad, x);
  parallel_for(shape.rows, options.threads, [&](std::size_t first, std::size_t last) {
    const DefaultEnvironment environment;
    ActivationBuffers buffers(options);
    ScaledRow kept(is_in_device_order ? shape.columns : 0);
    for (std::size_t row = first; row < last; ++row) {
      std::array<float, sum_lanes> lanes{};
      for_each_piece_of_row(shape, row, [&](const PiecePlace& at) {
        read_inputs(shape, x, at, buffers);
        read_piece(grad, at.out, at.count, buffers.grad.data());
        if (is_in_device_order) kept.keep(kind, parameters, at.out - row * shape.columns, at.count, buffers);
        ActivationPiece piece = buffers.piece(at.count);
        piece.scale = scales[row];
        piece.lanes = lanes.data();
        scaled_gradient_piece(kind, parameters, piece);
        write_gradients(shape, at, buffers, dx);
      });
      if (scale_gradient.empty()) continue;
      const float sum = is_in_device_order ? order.sum(kept.grad, kept.values) : sum_of_lanes(lanes.data());
      narrow_row(&sum, 1, &scale_gradient[row]);
    }
  });
}

}  // namespace fp8lab
