// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/norm.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/units/special_function.hpp"
#include "operators/norm_gradient_order.hpp"
#include "operators/norm_row_order.hpp"
#include "operators/row_buffers.hpp"
#include "units/hopper_functions.hpp"

namespace fp8lab {

namespace {

/// A row of float32, with zeros up to padded().
using NormRow = std::vector<float>;

float device_rsqrt(float x) { return special_function(SpecialFunction::rsqrt, Subnormals::kept, x); }

/// A parameter as float32, 1 more where `more` says so.
NormRow parameter_row(const MatrixView& values, float more) {
  NormRow row(padded(values.columns()));
  read_piece(values, 0, values.columns(), row.data());
  if (more != 0) {
    for (std::size_t i = 0; i < values.columns(); ++i) row[i] += more;
  }
  return row;
}
NormRow gamma_row(const NormParameters& parameters, const MatrixView& gamma) {
  return parameter_row(gamma, parameters.zero_centered_gamma ? 1.0F : 0.0F);
}

void check_parameter_row(std::string_view name, const MatrixView& values, std::size_t columns) {
  check_kernel_floats(name, values);
  check_size(name, values.size(), columns);
}

void check_norm(const MatrixView& x, const MatrixView& gamma, std::string_view out_name, const FloatOutput& out) {
  check_kernel_floats("x", x);
  if (x.columns() == 0) refuse("x must have columns");
  check_parameter_row("gamma", gamma, x.columns());
  check_size(out_name, output_size(out), x.size());
  check_apart_or_same_as("x", x, out_name, out);
  check_apart_from("gamma", gamma, out_name, out);
}

void check_norm_gradient(const MatrixView& grad, const MatrixView& x, std::span<const float> rsigma,
                         const MatrixView& gamma, const FloatOutput& dx, const FloatOutput& dgamma) {
  check_norm(x, gamma, "dx", dx);
  check_kernel_floats("grad", grad);
  if (grad.rows() != x.rows() || grad.columns() != x.columns()) {
    refuse("grad must be ", x.rows(), " x ", x.columns(), ", as x, not ", grad.rows(), " x ", grad.columns());
  }
  check_apart_or_same_as("grad", grad, "dx", dx);
  check_size("rsigma", rsigma.size(), x.rows());
  check_size("dgamma", output_size(dgamma), x.columns());
}

float inverse_of_columns(const MatrixView& x) { return 1 / static_cast<float>(x.columns()); }

/// Zeros behind the columns, where a loop has written.
void clear_padding(NormRow& row, std::size_t columns) {
  std::fill(row.begin() + static_cast<std::ptrdiff_t>(columns), row.end(), 0.0F);
}

/// Writes float32, every NaN as FloatOutput has it.
void write_number(float value, float& out) { narrow_row(&value, 1, &out); }

/// The buffers of a row's gradient.
struct NormGradientRows {
  explicit NormGradientRows(std::size_t columns)
      : x(padded(columns)),
        grad(padded(columns)),
        y(padded(columns)),
        dy(padded(columns)),
        add(padded(columns)),
        earlier(padded(columns)) {}
  NormRow x;
  NormRow grad;
  NormRow y;
  NormRow dy;
  NormRow add;
  NormRow earlier;  ///< sums before this row
};

/// Writes the sums of all blocks.
void write_total(BlockSums& sums, std::size_t columns, const FloatOutput& out) {
  NormRow total(padded(columns));
  sums.total(std::span(total).first(columns));
  write_piece(total.data(), columns, out, 0);
}

/// The row's mean and rsigma, by the order of a device's kernel or by that of sum_order.hpp. Deviations from the mean
/// are left in `row`.
struct NormStatistics {
  float mean;
  float rsigma;
};
NormStatistics layernorm_statistics(const std::optional<NormRowOrder>& order, const RowFunctions& loops, NormRow& row,
                                    std::size_t columns, float inverse, float eps, int words) {
  RowMoments of_row{};
  of_row = order ? order->moments(std::span(row).first(columns))
                 : RowMoments{loops.sum_of_row(row.data(), row.size()) * inverse, 0};
  loops.subtract(row.data(), of_row.mean, row.size(), row.data());
  clear_padding(row, columns);
  if (!order) of_row.squares = loops.sum_of_squares(row.data(), row.size());
  const float variance = std::fma(of_row.squares, inverse, eps);
  return {of_row.mean, order ? device_rsqrt(variance) : words_off(variance, rounded_rsqrt(variance), words)};
}

/// A tuned kernel of a device adds the mean's square to the variance again.
float rmsnorm_rsigma(const std::optional<NormRowOrder>& order, const RowFunctions& loops, const NormRow& row,
                     std::size_t columns, float inverse, float eps, int words) {
  if (!order) {
    const float squares = std::fma(loops.sum_of_squares(row.data(), row.size()), inverse, eps);
    return words_off(squares, rounded_rsqrt(squares), words);
  }
  const auto elements = std::span(row).first(columns);
  if (!order->is_tuned()) return device_rsqrt(std::fma(order->sum_of_squares(elements), inverse, eps));
  const auto [mean, squares] = order->moments(elements);
  return device_rsqrt(std::fma(mean, mean, squares * inverse) + eps);
}

/// What a gradient is computed of: without a mean it is that of RMSNorm, which has no beta.
struct NormGradientCall {
  const NormParameters* parameters;
  const MatrixView* grad;
  const MatrixView* x;
  std::span<const float> mean, rsigma;
  const MatrixView* gamma;
  const MatrixView* add = nullptr;
  FloatOutput dx, dgamma;
  std::optional<FloatOutput> dbeta;

  [[nodiscard]] NormGradientKind kind() const {
    if (dbeta) return NormGradientKind::layernorm;
    return add == nullptr ? NormGradientKind::rmsnorm : NormGradientKind::rmsnorm_add;
  }
};

/// The gradients in the order in which a device's kernel adds up.
class DeviceGradient {
 public:
  explicit DeviceGradient(const NormGradientCall& call)
      : call_(call),
        order_(call.kind(), *call.x, *call.gamma, *call.grad),
        columns_(call.x->columns()),
        stride_(padded(columns_)),
        inverse_(inverse_of_columns(*call.x)),
        loops_(row_functions()),
        gamma_(gamma_row(*call.parameters, *call.gamma)),
        of_gamma_(order_.blocks() * stride_),
        of_beta_(call.dbeta ? of_gamma_.size() : 0) {}

  [[nodiscard]] std::size_t blocks() const { return order_.blocks(); }

  /// Writes the gradients of those blocks' rows, and keeps the blocks' sums. Threads may do so for blocks of their own.
  void add_blocks(std::size_t first_block, std::size_t last_block) {
    NormGradientRows rows(columns_);
    WarpSums sums_of_warps;
    const std::size_t warps = order_.rows_of_block();
    for (std::size_t block = first_block; block < last_block; ++block) {
      sums_of_warps.gamma.assign(warps * stride_, 0.0F);
      sums_of_warps.beta.assign(call_.dbeta ? warps * stride_ : 0, 0.0F);
      for (std::size_t first = block * warps; first < call_.x->rows(); first += order_.blocks() * warps) {
        const std::size_t count = std::min(warps, call_.x->rows() - first);
        for (std::size_t warp = 0; warp < count; ++warp) add_row(first + warp, warp, rows, sums_of_warps);
      }
      order_.sum_of_block(sums_of_warps.gamma, std::span(of_gamma_).subspan(block * stride_, columns_));
      if (call_.dbeta) {
        order_.sum_of_block(sums_of_warps.beta, std::span(of_beta_).subspan(block * stride_, columns_));
      }
    }
  }

  /// Writes the sums of all blocks.
  void write_sums() const {
    NormRow total(stride_);
    order_.sum_of_blocks(of_gamma_, std::span(total).first(columns_));
    write_piece(total.data(), columns_, call_.dgamma, 0);
    if (!call_.dbeta) return;
    order_.sum_of_blocks(of_beta_, std::span(total).first(columns_));
    write_piece(total.data(), columns_, *call_.dbeta, 0);
  }

 private:
  /// The sums of dgamma and dbeta over the rows of each warp.
  struct WarpSums {
    std::vector<float> gamma, beta;
  };

  void add_row(std::size_t i, std::size_t warp, NormGradientRows& rows, WarpSums& sums_of_warps) const {
    checkpoint();
    read_piece(*call_.x, i * columns_, columns_, rows.x.data());
    read_piece(*call_.grad, i * columns_, columns_, rows.grad.data());
    if (call_.add != nullptr) read_piece(*call_.add, i * columns_, columns_, rows.add.data());
    loops_.normalize(rows.x.data(), call_.dbeta ? &call_.mean[i] : nullptr, call_.rsigma[i], stride_, rows.y.data());
    clear_padding(rows.y, columns_);
    // 1. The sums over the rows of the warp.
    float* const of_warp = sums_of_warps.gamma.data() + warp * stride_;
    if (order_.rounds_products()) std::copy_n(of_warp, stride_, rows.earlier.begin());
    loops_.norm_gradient_sums(rows.grad.data(), rows.y.data(), gamma_.data(), stride_, rows.dy.data(), of_warp,
                              call_.dbeta ? sums_of_warps.beta.data() + warp * stride_ : nullptr);
    for (std::size_t j = 0; order_.rounds_products() && j < columns_; ++j) {
      if (order_.is_fused(j, call_.parameters->zero_centered_gamma)) continue;
      of_warp[j] = rows.earlier[j] + rows.grad[j] * rows.y[j];
    }
    // 2. The row's gradient.
    const float of_dy_y =
        order_.sum_of_row([&](std::size_t j, float sum) { return std::fma(rows.dy[j], rows.y[j], sum); });
    if (call_.dbeta) {
      const NormSums sums{order_.sum_of_row([&](std::size_t j, float sum) { return sum + rows.dy[j]; }), of_dy_y};
      (order_.has_means() ? loops_.layernorm_gradient_of_means : loops_.layernorm_gradient)(
          rows.dy.data(), rows.y.data(), sums, inverse_, call_.rsigma[i], stride_, rows.x.data());
    } else {
      loops_.rmsnorm_gradient(rows.dy.data(), rows.y.data(), call_.add == nullptr ? nullptr : rows.add.data(), of_dy_y,
                              inverse_, call_.rsigma[i], stride_, rows.x.data());
    }
    write_piece(rows.x.data(), columns_, call_.dx, i * columns_);
  }

  const NormGradientCall& call_;
  NormGradientOrder order_;
  std::size_t columns_;
  std::size_t stride_;
  float inverse_;
  RowFunctions loops_;
  NormRow gamma_;
  std::vector<float> of_gamma_;  // the sums of blocks
  std::vector<float> of_beta_;
};

void device_gradient(const NormGradientCall& call, int threads) {
  const DefaultEnvironment environment;
  DeviceGradient gradient(call);
  parallel_for(gradient.blocks(), threads,
               [&](std::size_t first, std::size_t last) { gradient.add_blocks(first, last); });
  gradient.write_sums();
}

/// The order of a device's kernel, where its functions are asked for.
std::optional<NormRowOrder> row_order(const OperatorOptions& options, NormRowOrder::Norm norm, const MatrixView& x,
                                      const FloatOutput& out) {
  switch (options.functions) {
    case Functions::correctly_rounded: return {};
    case Functions::hopper: return NormRowOrder(norm, x, out);
  }
  return {};
}

}  // namespace

void layernorm(const NormParameters& parameters, const MatrixView& x, const MatrixView& gamma, const MatrixView& beta,
               FloatOutput out, std::span<float> mean, std::span<float> rsigma, const OperatorOptions& options) {
  check_function_words(options);
  check_norm(x, gamma, "out", out);
  check_parameter_row("beta", beta, x.columns());
  check_apart_from("beta", beta, "out", out);
  check_size("mean", mean.size(), x.rows());
  check_size("rsigma", rsigma.size(), x.rows());
  const std::size_t columns = x.columns();
  const float inverse = inverse_of_columns(x);
  const DefaultEnvironment environment;
  const RowFunctions loops = row_functions();
  const NormRow g = gamma_row(parameters, gamma);
  const NormRow b = parameter_row(beta, 0);
  const std::optional<NormRowOrder> order = row_order(options, NormRowOrder::Norm::layernorm, x, out);
  parallel_for(x.rows(), options.threads, [&](std::size_t first, std::size_t last) {
    NormRow row(padded(columns));
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      read_piece(x, i * columns, columns, row.data());
      const NormStatistics of_row =
          layernorm_statistics(order, loops, row, columns, inverse, parameters.eps, options.function_words);
      loops.scale(row.data(), of_row.rsigma, g.data(), b.data(), row.size(), row.data());
      write_piece(row.data(), columns, out, i * columns);
      write_number(of_row.mean, mean[i]);
      write_number(of_row.rsigma, rsigma[i]);
    }
  });
}

void rmsnorm(const NormParameters& parameters, const MatrixView& x, const MatrixView& gamma, FloatOutput out,
             std::span<float> rsigma, const OperatorOptions& options) {
  check_function_words(options);
  check_norm(x, gamma, "out", out);
  check_size("rsigma", rsigma.size(), x.rows());
  const std::size_t columns = x.columns();
  const float inverse = inverse_of_columns(x);
  const DefaultEnvironment environment;
  const RowFunctions loops = row_functions();
  const NormRow g = gamma_row(parameters, gamma);
  const std::optional<NormRowOrder> order = row_order(options, NormRowOrder::Norm::rmsnorm, x, out);
  parallel_for(x.rows(), options.threads, [&](std::size_t first, std::size_t last) {
    NormRow row(padded(columns));
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      read_piece(x, i * columns, columns, row.data());
      const float factor = rmsnorm_rsigma(order, loops, row, columns, inverse, parameters.eps, options.function_words);
      loops.scale(row.data(), factor, g.data(), nullptr, row.size(), row.data());
      write_piece(row.data(), columns, out, i * columns);
      write_number(factor, rsigma[i]);
    }
  });
}

void layernorm_backward(const NormParameters& parameters, const MatrixView& grad, const MatrixView& x,
                        std::span<const float> mean, std::span<const float> rsigma, const MatrixView& gamma,
                        FloatOutput dx, FloatOutput dgamma, FloatOutput dbeta, const OperatorOptions& options) {
  check_exact_functions("layernorm_backward", options);
  check_norm_gradient(grad, x, rsigma, gamma, dx, dgamma);
  check_size("mean", mean.size(), x.rows());
  check_size("dbeta", output_size(dbeta), x.columns());
  if (options.functions == Functions::hopper) {
    return device_gradient({.parameters = &parameters,
                            .grad = &grad,
                            .x = &x,
                            .mean = mean,
                            .rsigma = rsigma,
                            .gamma = &gamma,
                            .dx = dx,
                            .dgamma = dgamma,
                            .dbeta = dbeta},
                           options.threads);
  }
  const std::size_t columns = x.columns();
  const float inverse = inverse_of_columns(x);
  const DefaultEnvironment environment;
  const RowFunctions loops = row_functions();
  const NormRow g = gamma_row(parameters, gamma);
  BlockSums of_gamma(columns);
  BlockSums of_beta(columns);
  for_each_block(x.rows(), options.threads, [&](std::size_t block, std::size_t first, std::size_t last) {
    NormGradientRows rows(columns);
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      read_piece(x, i * columns, columns, rows.x.data());
      read_piece(grad, i * columns, columns, rows.grad.data());
      loops.normalize(rows.x.data(), &mean[i], rsigma[i], rows.x.size(), rows.y.data());
      clear_padding(rows.y, columns);
      const NormSums sums = loops.norm_gradient_sums(rows.grad.data(), rows.y.data(), g.data(), rows.y.size(),
                                                     rows.dy.data(), of_gamma.of_block(block), of_beta.of_block(block));
      loops.layernorm_gradient(rows.dy.data(), rows.y.data(), sums, inverse, rsigma[i], rows.y.size(), rows.x.data());
      write_piece(rows.x.data(), columns, dx, i * columns);
    }
  });
  write_total(of_gamma, columns, dgamma);
  write_total(of_beta, columns, dbeta);
}

void rmsnorm_backward(const NormParameters& parameters, const MatrixView& grad, const MatrixView& x,
                      std::span<const float> rsigma, const MatrixView& gamma, const MatrixView* add, FloatOutput dx,
                      FloatOutput dgamma, const OperatorOptions& options) {
  check_exact_functions("rmsnorm_backward", options);
  check_norm_gradient(grad, x, rsigma, gamma, dx, dgamma);
  if (add != nullptr) {
    check_kernel_floats("add", *add);
    check_size("add", add->size(), x.size());
    check_apart_or_same_as("add", *add, "dx", dx);
  }
  if (options.functions == Functions::hopper) {
    return device_gradient({.parameters = &parameters,
                            .grad = &grad,
                            .x = &x,
                            .mean = {},
                            .rsigma = rsigma,
                            .gamma = &gamma,
                            .add = add,
                            .dx = dx,
                            .dgamma = dgamma,
                            .dbeta = {}},
                           options.threads);
  }
  const std::size_t columns = x.columns();
  const float inverse = inverse_of_columns(x);
  const DefaultEnvironment environment;
  const RowFunctions loops = row_functions();
  const NormRow g = gamma_row(parameters, gamma);
  BlockSums of_gamma(columns);
  for_each_block(x.rows(), options.threads, [&](std::size_t block, std::size_t first, std::size_t last) {
    NormGradientRows rows(columns);
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      read_piece(x, i * columns, columns, rows.x.data());
      read_piece(grad, i * columns, columns, rows.grad.data());
      if (add != nullptr) read_piece(*add, i * columns, columns, rows.add.data());
      loops.normalize(rows.x.data(), nullptr, rsigma[i], rows.x.size(), rows.y.data());
      clear_padding(rows.y, columns);
      const NormSums sums = loops.norm_gradient_sums(rows.grad.data(), rows.y.data(), g.data(), rows.y.size(),
                                                     rows.dy.data(), of_gamma.of_block(block), nullptr);
      loops.rmsnorm_gradient(rows.dy.data(), rows.y.data(), add == nullptr ? nullptr : rows.add.data(), sums.of_dy_y,
                             inverse, rsigma[i], rows.y.size(), rows.x.data());
      write_piece(rows.x.data(), columns, dx, i * columns);
    }
  });
  write_total(of_gamma, columns, dgamma);
}

}  // namespace fp8lab
