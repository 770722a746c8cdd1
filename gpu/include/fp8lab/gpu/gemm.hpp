// SPDX-License-Identifier: Apache-2.0
// GEMM of FP8 and FP4 by the kernels of kernels/gemm_*.hpp, on a device and on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/gpu/block_scaled.hpp"
#include "fp8lab/gpu/fragments.hpp"
#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"
#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab::gpu {

/// A GEMM kernel, and what gemm() of the reference must be told to give its bits.
enum class GemmKernel : std::uint8_t {
  wgmma_fast,         ///< Hopper's wgmma, promote_k = 0
  wgmma_promoted,     ///< wgmma, promoted every promote_k
  wgmma_scaled_1d2d,  ///< wgmma, tile scales 1 x 128 of a and 128 x 128 of b, promoted as DeepGEMM does
  wgmma_scaled_1d1d,  ///< wgmma, tile scales 1 x 128 of both
  mma_sync,           ///< mma.sync of Ada and later, float32 accumulator, promote_k = 0
  mma_sync_float16,   ///< the same with a float16 accumulator
  // Blackwell's kinds of instructions: tcgen05 on sm_100a, mma.sync with block scales on sm_120a.
  blackwell_f8f6f4,          ///< FP8 without block scales; sm_100a alone
  blackwell_mxf8f6f4,        ///< MXFP8: E8M0 scales of 32
  blackwell_mxf4,            ///< MXFP4: E2M1 with E8M0 scales of 32
  blackwell_mxf4nvf4_ue8m0,  ///< E2M1 with E8M0 scales of 16; sm_100a alone
  blackwell_mxf4nvf4,        ///< NVFP4: E2M1 with E4M3 scales of 16
};
/// Lists all kernels, in the order of the enumeration.
[[nodiscard]] std::span<const GemmKernel> gemm_kernels();
[[nodiscard]] std::span<const Named<GemmKernel>> named_values(GemmKernel of_type);

/// The kind of Blackwell's instructions that a kernel uses; nothing for kernels of other instructions.
[[nodiscard]] std::optional<MmaKind> kind_of(GemmKernel kernel);

/// The model of the instruction that the kernel uses on a chip; left out: on Blackwell by its own kernels, on Hopper
/// by the others. Throws std::invalid_argument where the chip has no such instruction.
[[nodiscard]] const MmaModel& model_of(GemmKernel kernel, std::optional<HostChip> chip = {});

/// The arrays of a GEMM: out = scale_a * scale_b * (1 / (divisor_a * divisor_b)) * (a * b^T) + bias, from left
/// to right, every operation rounded to float32, then to the type of out, nearest even. Arrays lie where the kernel
/// runs; those of a and b, and swizzled scales, begin at a multiple of 16 bytes, out at one of two elements.
struct GemmArguments {
  std::size_t m = 0, n = 0;
  std::size_t k = 0;                                       ///< a positive multiple of 16, of 32 with block scales
  MmaType type_a = MmaType::e4m3, type_b = MmaType::e4m3;  ///< without meaning where the kernel's codes are E2M1
  std::span<const std::uint8_t> a = {};                    ///< codes, (M, K); of E2M1 (M, K / 2), two in a byte
  std::span<const std::uint8_t> b = {};                    ///< codes, (N, K), as a Linear layer keeps its weight
  BlockScaleCodes block_scales_a = {};  ///< of kernels with block scales; compact ones are swizzled first
  BlockScaleCodes block_scales_b = {};
  std::span<const float> scale_a = {};  ///< one number, which multiplies on dequantize, or empty: 1
  std::span<const float> scale_b = {};
  float divisor_a = 1;  ///< of scale_a: 6 * 448 where that is the amax of a tensor that Transformer Engine made NVFP4
  float divisor_b = 1;
  std::span<const float> tile_scales_a = {};  ///< of the scaled kernels: (M, K / 128 rounded up)
  std::span<const float> tile_scales_b = {};  ///< of the scaled kernels: the same of N, or of N / 128 rounded up
  std::span<const float> bias = {};           ///< N numbers, or empty
  std::size_t promote_k = 128;                ///< of wgmma_promoted: a positive multiple of 32
  std::variant<std::span<float>, std::span<BFloat16>, std::span<Half>> out = {};  ///< (M, N)
};

/// Throws std::invalid_argument where sizes, places or formats do not fit the kernel; the message says what is allowed.
void check_gemm(GemmKernel kernel, const GemmArguments& arguments);

/// Starts the kernel on the current device and does not wait for it. `stream` is a cudaStream_t, or null.
///
/// Throws as check_gemm() does, and std::invalid_argument for arrays that are not on the device; NoDeviceError where
/// there is no device, or none that has the instruction (wgmma: compute capability 9.0, mma.sync: 8.9 and later,
/// Blackwell's kinds: 10.0 and, but for the two of sm_100a alone, 12.0), or where the CUDA that fp8lab was built with
/// does not know the chip; CudaError.
void gemm_on_device(GemmKernel kernel, const GemmArguments& arguments, void* stream = nullptr);
/// Runs the kernel's source on the host, with the matrix instructions of `chip`; left out: as model_of() has it.
///
/// Throws as check_gemm() does, and std::invalid_argument where the chip does not have the instruction.
void gemm_on_host(GemmKernel kernel, const GemmArguments& arguments, HostOrder order = {},
                  std::optional<HostChip> chip = {});
/// The same of two operands that quantize() made, whose formats and scales are theirs. Of `others`, promote_k, bias
/// and out count.
///
/// Throws also where operands are not of the kernel's formats and scales, or their codes do not have K along rows.
void gemm_on_host(GemmKernel kernel, const Quantized& a, const Quantized& b, const GemmArguments& others,
                  HostOrder order = {}, std::optional<HostChip> chip = {});

}  // namespace fp8lab::gpu
