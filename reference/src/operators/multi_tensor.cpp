// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/multi_tensor.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/reference/units/device_function.hpp"
#include "operators/flushed.hpp"
#include "operators/tensor_pieces.hpp"
#include "simd/operators_optimizer.hpp"
#include "simd/operators_softmax.hpp"

namespace fp8lab {

namespace {

/// The elements whose squares are added up on their own: the chunk that Transformer Engine's optimizers ask for.
constexpr std::size_t norm_chunk = 65536;

bool are_finite(const TensorPiece& values, std::size_t count) {
  return std::ranges::all_of(std::span(values).first(count), [](float x) { return std::isfinite(x); });
}

/// The sum of a row of sums.
float added_up(std::span<const float> sums) {
  std::vector<float> row(padded(sums.size()));
  std::ranges::copy(sums, row.begin());
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

namespace {

/// The order in which the kernels of a Hopper chip add squares.
class NormKernel {
 public:
  /// The sum of each chunk of a tensor.
  static std::vector<float> sums_of_chunks(const FloatSpan& x, int threads) {
    const std::size_t size = tensor_size("x", x);
    std::vector<float> sums((size + norm_chunk - 1) / norm_chunk);
    parallel_for(sums.size(), threads, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        checkpoint();
        sums[i] = sum_of_chunk(x, size, i * norm_chunk);
      }
    });
    return sums;
  }

  /// Adds the sums of a tensor's chunks, each to that of its block.
  void add(std::span<const float> chunks) {
    tensors_ += 1;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      blocks_[block_] = flushed_float(blocks_[block_] + chunks[i]);
      block_ += 1;
      const bool is_last = i + 1 == chunks.size();
      if (block_ < most_blocks && (tensors_ < most_tensors || !is_last)) continue;
      block_ = 0;
      tensors_ = is_last ? 0 : 1;
    }
  }
  [[nodiscard]] float root_of_blocks() const { return root_of(blocks_); }

  /// The root of a sum, of which thread t has every 512th number from t on.
  static float root_of(std::span<const float> sums) {
    Threads of_threads{};
    for (std::size_t i = 0; i < sums.size(); ++i) {
      float& sum = of_threads[i % of_threads.size()];
      sum = flushed_float(sum + sums[i]);
    }
    std::array root{sum_of(of_threads)};
    device_function(DeviceFunction::sqrtf, {.flags = {.fast_math = true}}, root, {}, root);
    return root[0];
  }

 private:
  using Threads = std::array<float, 512>;
  static constexpr std::size_t most_blocks = 320;  // of a launch, as the next
  static constexpr std::size_t most_tensors = 110;
  static constexpr std::size_t sums_of_thread = 4;

  /// Threads add those that lie half of them behind, then a quarter and so on.
  static float sum_of(Threads& threads) {
    for (std::size_t half = threads.size() / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) threads[i] = flushed_float(threads[i] + threads[i + half]);
    }
    return threads[0];
  }

  /// A thread's own sums are of four elements that follow each other, or 512 apart where a tensor has a rest of four.
  static float sum_of_chunk(const FloatSpan& x, std::size_t size, std::size_t first) {
    constexpr std::size_t stride = Threads().size() * sums_of_thread;
    alignas(64) std::array<float, stride> sums{};
    const OptimizerFunctions loops = optimizer_functions();
    const std::size_t last = std::min(first + norm_chunk, size);
    for (std::size_t at = first; at < last; at += stride) {
      alignas(64) std::array<float, stride> values;
      const std::size_t count = std::min(stride, last - at);
      read_tensor(x, at, count, values.data());
      loops.add_squares(values.data(), sums.data(), padded(count));
    }
    const bool follow = size % sums_of_thread == 0;
    Threads threads{};
    for (std::size_t i = 0; i < threads.size(); ++i) {
      for (std::size_t j = 0; j < sums_of_thread; ++j) {
        const float sum = sums[follow ? i * sums_of_thread + j : j * threads.size() + i];
        threads[i] = flushed_float(threads[i] + sum);
      }
    }
    return sum_of(threads);
  }

  std::array<float, most_blocks> blocks_{};
  std::size_t block_ = 0;    // of the launch
  std::size_t tensors_ = 0;  // likewise
};

TensorNorms norms_of_kernel(std::span<const FloatSpan> tensors, int threads) {
  TensorNorms norms{0, {}};
  NormKernel kernel;
  for (const FloatSpan& x : tensors) {
    const std::vector<float> chunks = NormKernel::sums_of_chunks(x, threads);
    const DefaultEnvironment environment;
    kernel.add(chunks);
    norms.each.push_back(NormKernel::root_of(chunks));
  }
  const DefaultEnvironment environment;
  norms.total = kernel.root_of_blocks();
  return norms;
}

}  // namespace

TensorNorms l2norms(std::span<const FloatSpan> tensors, const OperatorOptions& options) {
  check_exact_functions("l2norm", options);
  switch (options.functions) {
    case Functions::correctly_rounded: break;
    case Functions::hopper: return norms_of_kernel(tensors, options.threads);
  }
  TensorNorms norms{0, {}};
  std::vector<float> sums(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) norms.each.push_back(l2norm(tensors[i], &sums[i], options.threads));
  norms.total = l2norm_of_sums(sums);
  return norms;
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
