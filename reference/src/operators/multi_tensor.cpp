// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/multi_tensor.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "operators/flushed.hpp"
#include "operators/tensor_pieces.hpp"
#include "simd/operators_optimizer.hpp"
#include "simd/operators_softmax.hpp"

namespace fp8lab {

namespace {

/// The elements whose squares are added up on their own: the chunk that Transformer Engine's optimizers ask for.
constexpr std::size_t norm_chunk = 65536;

bool are_finite(const TensorPiece& values, std::size_t count) {
  return std::all_of(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count),
                     [](float x) { return std::isfinite(x); });
}

/// The sum of a row of sums.
float added_up(std::span<const float> sums) {
  std::vector<float> row(padded(sums.size()));
  std::copy(sums.begin(), sums.end(), row.begin());
  return flushed_float(row_functions().sum_of_row(row.data(), row.size()));
}

}  // namespace

bool scale_tensor(FloatSpan x, float scale, FloatOutput out, int threads) {
  const std::size_t size = tensor_size("x", x);
  check_size("out", output_size(out), size);
  const SoftmaxFunctions loops = softmax_functions();
  std::atomic<bool> finite = true;
  for_each_tensor_piece(size, threads, [&](std::size_t first, std::size_t count) {
    alignas(64) TensorPiece values{};
    read_tensor(x, first, count, values.data());
    if (!are_finite(values, count)) finite = false;
    loops.scale(values.data(), scale, padded(count), values.data());
    write_piece(values.data(), count, out, first);
  });
  return finite;
}

float l2norm(FloatSpan x, float* sum, int threads) {
  const std::size_t size = tensor_size("x", x);
  std::vector<float> sums((size + norm_chunk - 1) / norm_chunk);
  const OptimizerFunctions loops = optimizer_functions();
  parallel_for(sums.size(), threads, [&](std::size_t begin, std::size_t end) {
    std::vector<float> values(norm_chunk);
    for (std::size_t i = begin; i < end; ++i) {
      checkpoint();
      const std::size_t count = std::min(norm_chunk, size - i * norm_chunk);
      read_tensor(x, i * norm_chunk, count, values.data());
      sums[i] = flushed_float(loops.sum_of_squares(values.data(), padded(count)));
    }
  });
  const DefaultEnvironment environment;
  const float total = added_up(sums);
  if (sum != nullptr) *sum = total;
  return std::sqrt(total);
}

float l2norm_of_sums(std::span<const float> sums) {
  const DefaultEnvironment environment;
  return std::sqrt(added_up(sums));
}

AmaxScale scale_of_amax(float amax, float largest, bool power_of_two, float eps) {
  const DefaultEnvironment environment;
  const float counted = flushed_float(amax < flushed_float(eps) ? eps : amax);
  if (std::isinf(counted) || counted == 0 || std::isnan(counted)) return {1, 1};
  float scale = flushed_float(largest / counted);
  if (std::isinf(scale)) scale = std::numeric_limits<float>::max();
  if (power_of_two) scale = std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & 0xFF800000U);
  return {scale, flushed_reciprocal(scale)};
}

}  // namespace fp8lab
