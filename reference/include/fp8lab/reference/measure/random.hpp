// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

/// How PyTorch spreads a random CUDA kernel over a device: it fixes which Philox counter an element gets.
///
/// Source: PyTorch aten/src/ATen/native/cuda/DistributionTemplates.h, calc_execution_policy: 256 threads a block, four
/// elements a Philox call, at most multiprocessors * blocks_per_multiprocessor blocks.
struct LaunchGeometry {
  int multiprocessors = 114;          ///< SMs of the device; 114 is an H100 PCIe
  int blocks_per_multiprocessor = 8;  ///< resident threads of an SM (2,048 on V100, A100, H100) over 256
};

/// The Philox4x32-10 bijection: four random words of a counter and a key.
///
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
[[nodiscard]] FP8LAB_HD constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                          std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(second),
               static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(first)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

/// Draws what `torch.manual_seed(seed); torch.rand(n)` draws on the CPU: float32 in [0, 1), multiples of 2^-24.
///
/// One 32-bit word of the Mersenne Twister MT19937 an element, of which the low 24 bits count; as in PyTorch, only the
/// low 32 bits of the seed matter.
void torch_cpu_uniform(std::uint64_t seed, std::span<float> out);

/// From where to where a uniform draw goes, and the element type of the tensor: binary32, binary16 or bfloat16.
struct UniformDraw {
  double low = 0;
  double high = 1;
  Format type = binary32;
};

/// Draws what `tensor.uniform_(low, high)` draws on a CUDA device with generator state (seed, offset): [low, high).
///
/// The bounds and their difference are rounded to the type. low + u (high - low) has one rounding to float32, as the
/// kernel's fma has it, and one to the type; u is in (0, 1], and a result that is high becomes low.
///
/// Throws std::invalid_argument where the offset is no multiple of 4 (PyTorch's never is), the geometry is not
/// positive, the tensor is larger than 2 GiB (PyTorch then launches several kernels), low is above high, either or
/// their difference is not finite in the type, or the type is another.
void torch_cuda_uniform(std::uint64_t seed, std::uint64_t offset, const LaunchGeometry& geometry, std::span<float> out,
                        const UniformDraw& draw = {});

/// Draws what a float32 `tensor.normal_(mean, deviation)` draws on a CUDA device with generator state (seed, offset).
///
/// Box-Muller over pairs of Philox words as in cuRAND's curand_normal4. Logarithm, sine and cosine are rounded from
/// double; the device uses logf and the approximate __sincosf instead, so single values may differ by a few units in
/// the last place. Throws as torch_cuda_uniform does.
void torch_cuda_normal(std::uint64_t seed, std::uint64_t offset, const LaunchGeometry& geometry, float mean,
                       float deviation, std::span<float> out);

}  // namespace fp8lab
