// SPDX-License-Identifier: Apache-2.0
// FP8 GEMM by the kernels of kernels/gemm_*.hpp, on a device and on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/gpu/fragments.hpp"
#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"

namespace fp8lab::gpu {

/// A GEMM kernel, and what gemm() of the reference must be told to give its bits.
enum class GemmKernel : std::uint8_t {
  wgmma_fast,         ///< Hopper's wgmma, promote_k = 0
  wgmma_promoted,     ///< wgmma, promoted every promote_k
  wgmma_scaled_1d2d,  ///< wgmma, tile scales 1 x 128 of a and 128 x 128 of b, promoted as DeepGEMM does
  wgmma_scaled_1d1d,  ///< wgmma, tile scales 1 x 128 of both
  mma_sync,           ///< mma.sync of Ada and later, float32 accumulator, promote_k = 0
  mma_sync_float16,   ///< the same with a float16 accumulator
};
/// The name of the kernel, as the enumerator is, and the kernel called `name`. The latter throws std::invalid_argument
/// that lists the known names.
[[nodiscard]] std::string_view name_of(GemmKernel kernel);
[[nodiscard]] GemmKernel find_gemm_kernel(std::string_view name);

/// The model of the instruction that the kernel uses on a chip. Throws std::invalid_argument where it has none.
[[nodiscard]] const MmaModel& model_of(GemmKernel kernel, HostChip chip = HostChip::hopper);

/// What a GEMM reads and writes: out = scale_a * scale_b * (a * b^T) + bias, from left to right, every operation
/// rounded to float32, then to the type of out, nearest even. Arrays lie where the kernel runs; those of a and b begin
/// at a multiple of 16 bytes, out at one of two elements.
struct GemmArguments {
  std::size_t m = 0, n = 0;
  std::size_t k = 0;  ///< a positive multiple of 16
  MmaType type_a = MmaType::e4m3, type_b = MmaType::e4m3;
  std::span<const std::uint8_t> a = {};  ///< codes, (M, K)
  std::span<const std::uint8_t> b = {};  ///< codes, (N, K), as a Linear layer keeps its weight
  std::span<const float> scale_a = {};   ///< one number, which multiplies on dequantize, or empty: 1
  std::span<const float> scale_b = {};
  std::span<const float> tile_scales_a = {};  ///< of the scaled kernels: (M, K / 128 rounded up)
  std::span<const float> tile_scales_b = {};  ///< of the scaled kernels: the same of N, or of N / 128 rounded up
  std::span<const float> bias = {};           ///< N numbers, or empty
  std::size_t promote_k = 128;                ///< of wgmma_promoted: a positive multiple of 128
  std::variant<std::span<float>, std::span<BFloat16>, std::span<Half>> out = {};  ///< (M, N)
};

/// Throws std::invalid_argument where sizes, places or formats do not fit the kernel; the message says what is allowed.
void check_gemm(GemmKernel kernel, const GemmArguments& arguments);

/// Starts the kernel on the current device and does not wait for it. `stream` is a cudaStream_t, or null.
///
/// Throws as check_gemm() does, and std::invalid_argument for arrays that are not on the device; NoDeviceError where
/// there is no device, or none that has the instruction (wgmma: compute capability 9.0, mma.sync: 8.9 and later);
/// CudaError.
void gemm_on_device(GemmKernel kernel, const GemmArguments& arguments, void* stream = nullptr);
/// Runs the kernel's source on the host, with the matrix instructions of `chip`.
///
/// Throws as check_gemm() does, and std::invalid_argument where the chip does not have the instruction.
void gemm_on_host(GemmKernel kernel, const GemmArguments& arguments, HostOrder order = {},
                  HostChip chip = HostChip::hopper);

}  // namespace fp8lab::gpu
