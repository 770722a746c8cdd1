# SPDX-License-Identifier: Apache-2.0
"""Ports of vLLM 0.33.0, each compared with its source: csrc/quantization/w8a8/fp8, csrc/quantization/fp4, and
vllm/model_executor."""

import numpy as np
import torch

from quantizers.numerics import (
    MAX8,
    F,
    Result,
    Tiles,
    bits,
    floats,
    high_then_low,
    low_then_high,
    power,
    q4,
    q8,
    ra,
    rcp,
    rounded,
    torch_cast,
    value8,
)  # fmt: skip
from quantizers.port_nvidia import global_scale

LEAST_TOKEN_SCALE = F(1) / (MAX8 * F(512))


def static(x: torch.Tensor, scale: float) -> Result:
    """common.cu: one division for the tensor's scale, then products."""
    return Result(q8(high_then_low(floats(x) * rcp(F(scale)))), np.array([scale], F))


def static_tiles(x: torch.Tensor, scales) -> Result:
    """The same with a scale for each row, column or group: the inverse of each is rounded, and multiplies."""
    scale = scales(x)
    height, width = (-(-size // count) for size, count in zip(x.shape, scale.shape, strict=True))
    inverse = np.repeat(np.repeat(rcp(scale), height, axis=0), width, axis=1)[: x.shape[0], : x.shape[1]]
    return Result(q8(high_then_low(floats(x) * inverse)), scale)


def per_tensor(x: torch.Tensor) -> Result:
    """common.cu: dynamic_scaled_fp8_quant. No floor: a tensor of zeros has scale 0, and 0 * inf is NaN."""
    scale = Tiles(x, None).amax() / MAX8
    return Result(q8(high_then_low(floats(x) * rcp(scale))), scale)


def per_token(x: torch.Tensor) -> Result:
    """common.cu: dynamic_per_token_scaled_fp8_quant."""
    rows = Tiles(x, (1, x.shape[1]))
    scale = np.fmax(rows.amax() / MAX8, LEAST_TOKEN_SCALE)
    return Result(q8(high_then_low(rows.x / scale)), scale)


def upper_power(x: np.ndarray) -> np.ndarray:
    """2^ceil(log2(x)), the logarithm in float32 as PyTorch has it."""
    return torch.exp2(torch.ceil(torch.log2(torch.from_numpy(x)))).numpy()


def group(x: torch.Tensor) -> Result:
    """per_token_group_quant.cu, groups of 128."""
    groups = Tiles(x, (1, 128))
    scale = np.fmax(groups.amax(), F(1e-10)) / MAX8
    return Result(q8(low_then_high(groups.x * groups.at_elements(rcp(scale)))), scale)


def group_ue8m0(x: torch.Tensor) -> Result:
    """per_token_group_quant.cu with scale_ue8m0."""
    groups = Tiles(x, (1, 128))
    scale = np.fmax(groups.amax(), F(1e-10)) / MAX8
    scale = upper_power(np.fmax(scale, F(1e-10)))
    return Result(q8(low_then_high(groups.x * groups.at_elements(rcp(scale)))), scale)


def group_packed(x: torch.Tensor) -> Result:
    """per_token_group_quant.cu:per_token_group_quant_8bit_packed_register_kernel, whose exponents are taken from bits.

    Its products in bfloat16, on sm_100, are exact where E4M3 can tell.
    """
    groups = Tiles(x, (1, 128))
    word = bits(np.fmax(np.fmax(groups.amax(), F(1e-10)) / MAX8, F(1e-10)))
    byte = (word >> 23) + ((word & 0x7FFFFF) != 0)
    inverse = rcp((byte.astype(np.uint32) << np.uint32(23)).view(F))
    return Result(q8(low_then_high(groups.x * groups.at_elements(inverse))), byte.astype(np.uint8))


def group_native(x: torch.Tensor, ue8m0: bool) -> Result:
    """input_quant_fp8.py:QuantFP8._quantize_group_native, as compiled graphs have it, divisions as on a CPU."""
    groups = Tiles(x, (1, 128))
    scale = np.maximum(groups.amax("kept") / MAX8, LEAST_TOKEN_SCALE)
    scale = upper_power(scale) if ue8m0 else scale
    return Result(torch_cast(np.clip(groups.x / groups.at_elements(scale), -MAX8, MAX8)), scale)


def group_before_0_33(x: torch.Tensor) -> Result:
    """per_token_group_quant.cu as of 619f1cf: a division for each element."""
    groups = Tiles(x, (1, 128))
    scale = np.fmax(groups.amax(), F(1e-10)) / MAX8
    return Result(q8(low_then_high(groups.x / groups.at_elements(scale))), scale)


def group_triton_ue8m0(x: torch.Tensor) -> Result:
    """fp8_utils.py, without the second floor of the kernel in CUDA."""
    groups = Tiles(x, (1, 128))
    scale = np.fmax(groups.amax(), F(1e-10)) * rcp(MAX8)
    scale = upper_power(scale)
    return Result(q8(high_then_low(groups.x / groups.at_elements(scale))), scale)


def per_token_native(x: torch.Tensor) -> Result:
    """input_quant_fp8.py:QuantFP8.forward_native, as compiled graphs have it: the floor of the kernel, products, NaN
    kept."""
    rows = Tiles(x, (1, x.shape[1]))
    scale = np.maximum(rows.amax("kept") / MAX8, LEAST_TOKEN_SCALE)
    return Result(torch_cast(np.clip(rows.x * rcp(scale), -MAX8, MAX8)), scale)


def group_triton(x: torch.Tensor) -> Result:
    """fp8_utils.py: _per_token_group_quant_fp8, where the division of a constant is a product. On sm_90 and later
    Triton clamps by min.xorsign.abs.f32, which makes +448 of the NaN that a division gives.
    """
    groups = Tiles(x, (1, 128))
    scale = np.fmax(groups.amax(), F(1e-10)) * rcp(MAX8)
    return Result(q8(high_then_low(groups.x / groups.at_elements(scale))), scale)


def input_to_float8(x: torch.Tensor) -> Result:
    """fp8_utils.py: in the input's type, with PyTorch's number / tensor, a reciprocal and a product."""
    dtype = x.dtype
    amax = np.maximum(Tiles(x, None).amax("kept"), rounded(np.array(1e-12), dtype))
    scale = rounded(rounded(rcp(amax), dtype) * MAX8, dtype)
    scaled = rounded(floats(x) * scale, dtype)
    return Result(q8(np.clip(scaled, -MAX8, MAX8)), rcp(scale))


def weight_ue8m0(x: torch.Tensor) -> Result:
    """utils/deep_gemm.py:per_block_cast_to_fp8 with use_ue8m0, of which requant_weight_ue8m0_inplace makes weights."""
    blocks = Tiles(x, (128, 128))
    scale = upper_power(np.maximum(blocks.amax("kept"), F(1e-4)) / MAX8)
    return Result(torch_cast(blocks.x * blocks.at_elements(rcp(scale))), scale)


def nvfp4(x: torch.Tensor, g: float | None = None) -> Result:
    """fp4/nvfp4_utils.cuh: cvt_warp_fp16_to_fp4, the global scale 2688 over the tensor's amax."""
    blocks = Tiles(x, (1, 16))
    amax = blocks.amax()
    g = global_scale(amax) if g is None else F(g)
    block = q8(g * (amax * ra(F(6))))
    product = np.where(block == 0, F(0), ra(value8(block) * ra(g)))
    return Result(q4(blocks.x * blocks.at_elements(product)), block)


def mxfp4(x: torch.Tensor) -> Result:
    """nvfp4_utils.cuh:cvt_warp_fp16_to_fp4 with UE8M0_SF, for experts: a quarter of the largest exponent, mantissas
    from 1.75 up rounded to the next.
    """
    blocks = Tiles(x, (1, 32))
    bumped = (bits(blocks.amax()) + np.uint32(1 << 21)) >> np.uint32(23)
    byte = np.clip(bumped.astype(np.int32) - 2, 0, 254)
    product = np.where(byte == 0, F(0), power(254 - byte))
    return Result(q4(blocks.x * blocks.at_elements(product)), byte.astype(np.uint8))


def mxfp8(x: torch.Tensor) -> Result:
    """utils/mxfp8_utils.py:_mxfp8_e4m3_quantize_torch. A block with NaN has byte 0, but is divided by NaN."""
    blocks = Tiles(x, (1, 32))
    amax = np.maximum(blocks.amax("kept"), F(2.0**-126))
    exponent = np.clip(torch.ceil(torch.log2(torch.from_numpy(amax / MAX8))).numpy() + 127, 0, 254)
    byte = np.where(np.isnan(exponent), 0, exponent).astype(np.uint8)
    divisor = np.where(np.isnan(exponent), F(np.nan), power(byte))
    return Result(torch_cast(blocks.x / blocks.at_elements(divisor)), byte)
