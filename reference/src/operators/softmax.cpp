// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/softmax.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/units/device_function.hpp"
#include "fp8lab/reference/units/special_function.hpp"
#include "operators/row_buffers.hpp"
#include "simd/operators_softmax.hpp"

namespace fp8lab {

namespace {

constexpr float masked_score = -10000;

std::size_t rows_of(const SoftmaxShape& shape) { return shape.batches * shape.heads * shape.queries; }

void check_scores(const SoftmaxShape& shape, std::string_view name, const MatrixView& x) {
  check_kernel_floats(name, x);
  check_size(name, x.size(), rows_of(shape) * shape.keys);
}

void check_softmax(SoftmaxMask kind, const SoftmaxShape& shape, std::string_view out_name, const FloatOutput& out) {
  if (kind == SoftmaxMask::upper_triangular && shape.queries != shape.keys) {
    refuse("upper_triangular needs as many queries as keys, not ", shape.queries, " and ", shape.keys);
  }
  check_size(out_name, output_size(out), rows_of(shape) * shape.keys);
}

/// How many keys of a row have a weight.
std::size_t seen_keys(SoftmaxMask kind, const SoftmaxShape& shape, std::size_t row) {
  const std::size_t query = row % shape.queries;
  switch (kind) {
    case SoftmaxMask::none:
    case SoftmaxMask::given: return shape.keys;
    case SoftmaxMask::upper_triangular: return query + 1;
    case SoftmaxMask::aligned_causal:
      return query + shape.keys + 1 > shape.queries ? query + shape.keys + 1 - shape.queries : 0;
  }
  return 0;
}

/// The scale in the type of the scores, as the forward kernels take it.
float scale_in_type_of(const MatrixView& x, float scale) {
  return x.visit([&]<typename T>(std::span<const T> /*of_type*/) {
    if constexpr (std::is_same_v<T, Half>) {
      return widened(Half{static_cast<std::uint16_t>(encode(binary16, cuda_nosat_policy, scale))});
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      return widened(BFloat16{static_cast<std::uint16_t>(encode(bfloat16, cuda_nosat_policy, scale))});
    } else {
      return scale;
    }
  });
}

/// The mask's bytes for a row; null where there is none.
const std::uint8_t* mask_of_row(const SoftmaxShape& shape, std::span<const std::uint8_t> mask, std::size_t row) {
  if (mask.empty()) return nullptr;
  const std::size_t of_batch = shape.queries * shape.keys;
  const std::size_t batch = mask.size() == of_batch ? 0 : row / (shape.heads * shape.queries);
  return mask.data() + batch * of_batch + row % shape.queries * shape.keys;
}

/// Row buffers hold as many scores as the kernels' registers: the next power of two.
std::size_t softmax_row_size(const SoftmaxShape& shape) { return padded(std::bit_ceil(shape.keys)); }

/// The scores of a row as they are compared: those behind the keys that are seen are what the kernels have there.
void fill_unseen(SoftmaxMask kind, std::vector<float>& row, std::size_t keys, std::size_t seen) {
  const float behind = kind == SoftmaxMask::aligned_causal ? masked_score : -std::numeric_limits<float>::infinity();
  const std::size_t end = kind == SoftmaxMask::aligned_causal ? std::bit_ceil(keys) : row.size();
  std::fill(row.begin() + static_cast<std::ptrdiff_t>(seen), row.begin() + static_cast<std::ptrdiff_t>(end), behind);
  std::fill(row.begin() + static_cast<std::ptrdiff_t>(end), row.end(), -std::numeric_limits<float>::infinity());
}

/// How a warp of the kernels has a row in its registers and adds it up: a power of two of keys, by one each in turn
/// where a lane gets fewer than 4 of them and else by four, each lane's in order, then those of partners at a distance
/// of half the warp, a quarter and so on.
class SoftmaxWarp {
 public:
  static constexpr std::size_t most_keys = 16384;

  explicit SoftmaxWarp(std::size_t keys)
      : keys_(std::bit_ceil(keys)), lanes_(std::min(keys_, most_lanes)), per_lane_(keys_ / lanes_ < 4 ? 1 : 4) {}

  /// The sum of row[0] to row[keys - 1], which are followed by what fills the registers, from `first` on in each lane.
  [[nodiscard]] float sum(const std::vector<float>& row) const {
    std::array<float, most_lanes> lanes{};
    for (std::size_t j = 0; j < keys_; ++j) {
      float& lane = lanes[j / per_lane_ % lanes_];
      lane = j < lanes_ * per_lane_ && j % per_lane_ == 0 ? row[j] : flushed_sum(lane, row[j]);
    }
    for (std::size_t step = lanes_ / 2; step > 0; step /= 2) {
      for (std::size_t i = 0; i < step; ++i) lanes[i] = flushed_sum(lanes[i], lanes[i + step]);
    }
    return lanes[0];
  }

 private:
  static constexpr std::size_t most_lanes = 32;

  /// add.ftz: subnormal numbers are zeros of their sign.
  static float flushed_sum(float a, float b) {
    return without_subnormals(without_subnormals(a) + without_subnormals(b));
  }
  static float without_subnormals(float x) {
    return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
  }

  std::size_t keys_, lanes_, per_lane_;
};

/// The order of a device's kernels, where their functions are asked for. They take 16 bits an element.
std::optional<SoftmaxWarp> softmax_warp(const OperatorOptions& options, const SoftmaxShape& shape,
                                        const MatrixView& x) {
  switch (options.functions) {
    case Functions::correctly_rounded: return {};
    case Functions::hopper: break;
  }
  if (x.visit([]<typename T>(std::span<const T> /*of_type*/) { return std::is_same_v<T, float>; })) {
    refuse("functions of hopper are known for softmaxes of float16 and bfloat16, not of float32");
  }
  if (shape.keys > SoftmaxWarp::most_keys) {
    refuse("functions of hopper are known for softmaxes of at most ", SoftmaxWarp::most_keys, " keys, not ",
           shape.keys);
  }
  return SoftmaxWarp(shape.keys);
}

/// exp(x - max) in place; returns what multiplies it.
float softmax_factor(SoftmaxMask kind, const SoftmaxFunctions& loops, const std::optional<SoftmaxWarp>& warp,
                     std::vector<float>& row) {
  float largest = row[0];
  for (const float score : row) largest = largest > score ? largest : score;
  if (warp) {
    loops.subtract(row.data(), largest, row.size(), row.data());
    device_function(DeviceFunction::fast_expf, {.flags = {.fast_math = true}}, row, {}, row);
  }
  const float sum = warp ? warp->sum(row) : loops.exponentials(row.data(), largest, row.size(), row.data());
  // A reciprocal that is subnormal has no row: a sum is at least 1, or NaN, or 0 where every score is -infinity.
  const float inverse = warp ? special_function(SpecialFunction::rcp, Subnormals::flushed, sum) : 1 / sum;
  return kind == SoftmaxMask::given && largest == masked_score ? 0 * inverse : inverse;
}

}  // namespace

void softmax(SoftmaxMask kind, const SoftmaxShape& shape, float scale, const MatrixView& x,
             std::span<const std::uint8_t> mask, FloatOutput out, const OperatorOptions& options) {
  check_scores(shape, "x", x);
  check_softmax(kind, shape, "out", out);
  check_apart_or_same_as("x", x, "out", out);
  const std::size_t of_batch = shape.queries * shape.keys;
  if (kind == SoftmaxMask::given && mask.size() != of_batch && mask.size() != shape.batches * of_batch) {
    refuse("mask must have ", of_batch, " or ", shape.batches * of_batch, " bytes, not ", mask.size());
  }
  if (kind != SoftmaxMask::given && !mask.empty()) refuse("mask goes with the kind given");
  if (shape.keys == 0) return check_threads(options.threads);
  const SoftmaxFunctions loops = softmax_functions();
  const std::optional<SoftmaxWarp> warp = softmax_warp(options, shape, x);
  const float factor = scale_in_type_of(x, scale);
  parallel_for(rows_of(shape), options.threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> row(softmax_row_size(shape));
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      const std::size_t seen = seen_keys(kind, shape, i);
      read_piece(x, i * shape.keys, shape.keys, row.data());
      loops.scale(row.data(), factor, padded(shape.keys), row.data());
      fill_unseen(kind, row, shape.keys, seen);
      if (const std::uint8_t* bytes = mask_of_row(shape, mask, i)) {
        for (std::size_t j = 0; j < shape.keys; ++j) {
          if (bytes[j] == 1) row[j] = masked_score;
        }
      }
      loops.scale(row.data(), softmax_factor(kind, loops, warp, row), padded(shape.keys), row.data());
      std::fill(row.begin() + static_cast<std::ptrdiff_t>(seen), row.end(), 0.0F);
      write_piece(row.data(), shape.keys, out, i * shape.keys);
    }
  });
}

void softmax_backward(SoftmaxMask kind, const SoftmaxShape& shape, float scale, const MatrixView& grad,
                      const MatrixView& y, FloatOutput dx, const OperatorOptions& options) {
  check_scores(shape, "grad", grad);
  check_scores(shape, "y", y);
  check_softmax(kind, shape, "dx", dx);
  check_apart_or_same_as("grad", grad, "dx", dx);
  check_apart_or_same_as("y", y, "dx", dx);
  if (shape.keys == 0) return check_threads(options.threads);
  const SoftmaxFunctions loops = softmax_functions();
  const std::optional<SoftmaxWarp> warp = softmax_warp(options, shape, grad);
  parallel_for(rows_of(shape), options.threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> of_y(softmax_row_size(shape));
    std::vector<float> products(softmax_row_size(shape));
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      const auto seen = static_cast<std::ptrdiff_t>(seen_keys(kind, shape, i));
      read_piece(grad, i * shape.keys, shape.keys, products.data());
      read_piece(y, i * shape.keys, shape.keys, of_y.data());
      std::fill(products.begin() + seen, products.end(), 0.0F);
      std::fill(of_y.begin() + seen, of_y.end(), 0.0F);
      const float in_turns = loops.products(products.data(), of_y.data(), of_y.size(), products.data());
      const float sum = warp ? warp->sum(products) : in_turns;
      loops.gradient(products.data(), of_y.data(), sum, scale, of_y.size(), products.data());
      write_piece(products.data(), shape.keys, dx, i * shape.keys);
    }
  });
}

}  // namespace fp8lab
