# SPDX-License-Identifier: Apache-2.0
"""Ports of FlashInfer fb28d72 (as 0.7.2.post1 has it) and TensorRT-LLM 0193dbd and dad183f, each compared with its
source, which is named there.

FlashInfer's CUDA kernels: csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh; its CuTe kernels:
flashinfer/quantization/quantization_cute_dsl_utils.py and cute_dsl/fp4_common.py. TensorRT-LLM's:
cpp/tensorrt_llm/kernels/quantization.cuh, and of dad183f
cutlass_kernels/fp8_blockscale_gemm/fp8_blockscale_gemm_kernel.cuh. What rcp.approx.ftz flushes is not flushed here, and
blocks of NaN alone, whose amax is NaN there, have an amax of 0.
"""

import numpy as np
import torch

from quantizers.numerics import (
    FLT_MAX,
    MAX8,
    F,
    Result,
    Tiles,
    e8m0_up,
    high_then_low,
    power,
    q4,
    q8,
    ra,
    rcp,
    rounded,
    value8,
)

SIXTH = rcp(F(6))


def global_scale(amax: np.ndarray) -> np.ndarray:
    """What callers give: 2688 over the tensor's amax, or 1 over zeros."""
    return np.where(amax.max() == 0, F(1), np.fmin(F(2688) / amax.max(), FLT_MAX))


def _nvfp4(x: torch.Tensor, g: float | None, kept) -> Result:
    """The block's scale under the global one, 2688 over the tensor's amax, and a factor where ``kept(amax, block,
    unrounded)``."""
    blocks = Tiles(x, (1, 16))
    amax = blocks.amax()
    g = global_scale(amax) if g is None else F(g)
    unrounded = g * (amax * ra(F(6)))
    block = q8(unrounded)
    factor = np.where(kept(amax, block, unrounded), ra(value8(block) * ra(g)), F(0))
    return Result(q4(blocks.x * blocks.at_elements(factor)), block)


def flashinfer_nvfp4(x: torch.Tensor, g: float | None = None) -> Result:
    """cvt_warp_fp16_to_fp4 as it is built by default; a block whose scale underflows multiplies by infinity."""
    return _nvfp4(x, g, lambda amax, block, unrounded: amax != 0)


def flashinfer_cute_nvfp4(x: torch.Tensor, g: float | None = None) -> Result:
    """fp4_common.py:nvfp4_compute_output_scale, which gives zeros where the block's scale is zero."""
    return _nvfp4(x, g, lambda amax, block, unrounded: block != 0)


def trtllm_nvfp4(x: torch.Tensor, g: float | None = None) -> Result:
    """quantization.cuh:cvt_warp_fp16_to_fp4, whose guard is the scale before it is rounded."""
    return _nvfp4(x, g, lambda amax, block, unrounded: unrounded != 0)


def flashinfer_nvfp4_exact(x: torch.Tensor, g: float | None = None) -> Result:
    """With FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH=1: Transformer Engine's order and true reciprocals."""
    blocks = Tiles(x, (1, 16))
    amax = blocks.amax()
    g = global_scale(amax) if g is None else F(g)
    block = q8(amax * (g * SIXTH))
    factor = np.where(amax != 0, np.fmin(rcp(value8(block) * rcp(g)), FLT_MAX), F(0))
    return Result(q4(blocks.x * blocks.at_elements(factor)), block)


def of_e4m3(x: torch.Tensor, g: float) -> torch.Tensor:
    """The float16 values on which the cast from E4M3 works: the codes of x times 6 over the global scale, rounded."""
    codes = x.to(torch.float8_e4m3fn).float().numpy()
    with np.errstate(over="ignore"):
        return torch.from_numpy((codes * (F(6) * ra(F(g)))).astype(np.float16))


def _fp8_to_nvfp4(x: torch.Tensor, g: float, kept) -> Result:
    """The maximum is one of float16 values, which drops NaN; the factor is the global scale times the inverse of the
    block's."""
    blocks = Tiles(of_e4m3(x, g), (1, 16))
    unrounded = F(g) * (blocks.amax() * ra(F(6)))
    block = q8(unrounded)
    factor = np.where(kept(block, unrounded), F(g) * ra(value8(block)), F(0))
    return Result(q4(blocks.x * blocks.at_elements(factor)), block)


def flashinfer_fp8_to_nvfp4(x: torch.Tensor, g: float) -> Result:
    """quantization_utils.cuh:cvt_warp_fp8_to_fp4, whose guard is the scale before it is rounded."""
    return _fp8_to_nvfp4(x, g, lambda block, unrounded: unrounded != 0)


def trtllm_fp8_to_nvfp4(x: torch.Tensor, g: float) -> Result:
    """quantization.cuh:cvt_warp_fp8_to_fp4, which looks at the scale after it was rounded."""
    return _fp8_to_nvfp4(x, g, lambda block, unrounded: block != 0)


def flashinfer_cute_fp8_to_nvfp4(x: torch.Tensor, g: float) -> Result:
    """quantization_cute_dsl_utils.py:process_nvfp4_block_fp8: from float16 on as of float16 tensors."""
    return flashinfer_cute_nvfp4(of_e4m3(x, g), g)


def flashinfer_mxfp4(x: torch.Tensor) -> Result:
    """cvt_warp_fp16_to_fp4 with UE8M0_SF: exp2f_rcp makes 1 of byte 0."""
    blocks = Tiles(x, (1, 32))
    amax = blocks.amax()
    byte = e8m0_up(amax * ra(F(6)))
    factor = np.where(amax * SIXTH != 0, np.where(byte == 0, F(1), power(254 - byte.astype(np.int32))), F(0))
    return Result(q4(blocks.x * blocks.at_elements(factor)), byte)


def inverse_or_zero(byte: np.ndarray) -> np.ndarray:
    """ue8m0_to_inv_scale_fast: exponents are shifted as integers, so that bytes 0 and 254 have the factor 0."""
    return np.where((byte == 0) | (byte == 254), F(0), power(254 - byte.astype(np.int32)))


def flashinfer_cute_mxfp4(x: torch.Tensor) -> Result:
    """process_mxfp4_block_half of the CuTe kernel."""
    blocks = Tiles(x, (1, 32))
    byte = e8m0_up(blocks.amax() * ra(F(6)))
    return Result(q4(blocks.x * blocks.at_elements(inverse_or_zero(byte))), byte)


def flashinfer_mxfp8(x: torch.Tensor) -> Result:
    """cvt_warp_fp16_to_mxfp8, and half2_to_fp8x2_scaled of the CuTe kernel."""
    blocks = Tiles(x, (1, 32))
    byte = e8m0_up(blocks.amax() * ra(F(448)))
    return Result(q8(high_then_low(blocks.x * blocks.at_elements(inverse_or_zero(byte)))), byte)


def trtllm_mxfp8(x: torch.Tensor) -> Result:
    """quantization.cuh:cvt_warp_fp16_to_mxfp8. Byte 0 multiplies by 2^127 here; where 2^-127 is flushed, by
    infinity."""
    blocks = Tiles(x, (1, 32))
    unrounded = blocks.amax() * ra(F(448))
    byte = e8m0_up(unrounded)
    factor = np.where(unrounded != 0, ra(power(byte)), F(0))
    return Result(q8(blocks.x * blocks.at_elements(factor)), byte)


def trtllm_per_token(x: torch.Tensor, min_scaling: bool = False) -> Result:
    """quantization.cuh:perTokenQuantization of 16-bit inputs: the stored scale and the factor are rounded apart.

    Values are clamped to -FLT_MAX and FLT_MAX in their type, which are infinities: NaN becomes -infinity.
    cudaTypeUtils.cuh's cuda_cast of a pair of floats goes by way of bfloat16.
    """
    rows = Tiles(x, (1, x.shape[1]))
    values = np.where(np.isnan(rows.x), F(-np.inf), rows.x)
    amax = np.maximum(np.abs(values).max(axis=1, keepdims=True), rounded(np.array([1e-6]), x.dtype))
    scale, factor = amax / MAX8, MAX8 / amax
    if min_scaling:
        scale, factor = np.fmax(scale, F(1) / (MAX8 * F(512))), np.fmin(factor, MAX8 * F(512))
    return Result(q8(rounded(values * factor, torch.bfloat16)), scale)


def trtllm_1x128(x: torch.Tensor) -> Result:
    """fp8_blockscale_gemm_kernel.cuh:scale_1x128_kernel: the reciprocal of the factor is stored."""
    tiles = Tiles(x, (1, 128))
    amax = tiles.amax()
    factor = np.where(amax == 0, F(1), MAX8 / amax)
    return Result(q8(tiles.x * tiles.at_elements(factor)), rcp(factor))


def trtllm_1x128_ue8m0(x: torch.Tensor) -> Result:
    """The same kernel with USE_UE8M0."""
    tiles = Tiles(x, (1, 128))
    amax = tiles.amax()
    byte = e8m0_up(rcp(np.where(amax == 0, F(1), MAX8 / amax)))
    return Result(q8(tiles.x * tiles.at_elements(power(254 - byte.astype(np.int32)))), byte)


def trtllm_1x128_packed(x: torch.Tensor) -> Result:
    """fp8_blockscale_quant_packed.cu:fp8_quantize_1x128_packed_kernel_impl: the amax is at least 1e-10, and multiplies
    448's inverse."""
    tiles = Tiles(x, (1, 128))
    byte = e8m0_up(np.fmax(tiles.amax(), F(1e-10)) * ra(F(448)))
    return Result(q8(tiles.x * tiles.at_elements(power(254 - byte.astype(np.int32)))), byte)


def trtllm_mxfp4(x: torch.Tensor) -> Result:
    """quantization.cuh:cvt_warp_fp16_to_fp4 with UE8M0_SF and a global scale of 1."""
    blocks = Tiles(x, (1, 32))
    unrounded = blocks.amax() * ra(F(6))
    byte = e8m0_up(unrounded)
    factor = np.where(unrounded != 0, ra(power(byte)), F(0))
    return Result(q4(blocks.x * blocks.at_elements(factor)), byte)


def transformer_engine_fast_math(x: torch.Tensor, g: float | None = None) -> Result:
    """Transformer Engine's tuned kernel under NVTE_USE_FAST_MATH=1: a factor in bfloat16, +0 added to the product."""
    blocks = Tiles(x, (1, 16))
    amax = blocks.amax()
    g = global_scale(amax) if g is None else F(g)
    block = q8(amax * (g * SIXTH))
    factor = rounded(np.fmin(g / value8(block), F(torch.finfo(torch.bfloat16).max)), torch.bfloat16)
    return Result(q4(blocks.x * blocks.at_elements(factor) + F(0)), block)
