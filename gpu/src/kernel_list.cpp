// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/kernel_list.hpp"

#include <array>

namespace fp8lab::gpu {

std::span<const KernelInfo> kernels() {
  static constexpr std::array all{
      KernelInfo{"EncodeKernel", "encode_kernel.hpp", "all", "codes of any format of floats", "encode()"},
      KernelInfo{"Cast", "kernels/cast.hpp", "all", "casts by one scale, with the amax in the same pass", "quantize()"},
      KernelInfo{"Amax", "kernels/cast.hpp", "all", "the amax of a tensor", "quantize()"},
      KernelInfo{"QuantizeRows", "kernels/quantize_rows.hpp", "all",
                 "MXFP8, 1 x 128 and NVFP4 rowwise, scales compact or swizzled", "quantize()"},
      KernelInfo{"QuantizeTile", "kernels/quantize_tile.hpp", "all",
                 "both directions of every recipe with tiles, or one, and casts with the transpose", "quantize_both()"},
      KernelInfo{"Dequantize", "kernels/dequantize.hpp", "all", "the values of codes and scales", "dequantize()"},
      KernelInfo{"UpdateScales", "kernels/delayed.hpp", "all", "delayed scaling's update of many tensors",
                 "update_scale()"},
      KernelInfo{"FillZero", "kernels/fill.hpp", "all", "zeros, where amaxes are raised and scales padded",
                 "std::fill()"},
      KernelInfo{"MmaSyncTiles", "kernels/instruction_tiles.hpp", "sm_80, FP8 from sm_89",
                 "single mma.sync instructions on tiles in memory", "mma()"},
      KernelInfo{"WgmmaTiles", "kernels/instruction_tiles.hpp", "sm_90a",
                 "single wgmma instructions on tiles in memory", "mma()"},
      KernelInfo{"MmaSyncScaledTiles", "kernels/scaled_tiles.hpp", "sm_120a",
                 "single mma.sync instructions with block scales on tiles in memory", "mma()"},
      KernelInfo{"Tcgen05Tiles", "kernels/scaled_tiles.hpp", "sm_100a",
                 "single tcgen05.mma instructions on tiles in memory", "mma()"},
      KernelInfo{"WgmmaGemm", "kernels/gemm_wgmma.hpp", "sm_90a",
                 "FP8 GEMM: fast accumulation, promotion, DeepGEMM's scaled promotion", "gemm()"},
      KernelInfo{"MmaSyncGemm", "kernels/gemm_mma_sync.hpp", "sm_89 and later", "FP8 GEMM by mma.sync", "gemm()"},
      KernelInfo{"GemmSm100", "kernels/gemm_sm100.hpp", "sm_100a",
                 "FP8, MXFP8, MXFP4 and NVFP4 GEMM: tcgen05, scales in tensor memory", "gemm()"},
      KernelInfo{"GemmSm120", "kernels/gemm_sm120.hpp", "sm_120a",
                 "MXFP8, MXFP4 and NVFP4 GEMM: mma.sync with block scales", "gemm()"},
      KernelInfo{"SwizzleScales", "kernels/swizzle.hpp", "all",
                 "block scales in the layout of Blackwell's tensor cores", "swizzle_scales()"},
      KernelInfo{"SweepCasts", "recorder/casts.hpp", "all", "digests of conversions of many inputs, for the recorder",
                 "encode()"},
      KernelInfo{"GenerateTiles", "recorder/tiles.hpp", "all",
                 "seeded operands of matrix instructions, for the recorder", "operand_word()"},
      KernelInfo{"FillGaussian", "recorder/fill_gaussian.hpp", "all", "Gaussian values, for measuring speeds",
                 "generator::gaussian()"},
      KernelInfo{"DigestTiles", "recorder/tiles.hpp", "all", "digests of results, for the recorder", "digest_term()"},
  };
  return all;
}

}  // namespace fp8lab::gpu
