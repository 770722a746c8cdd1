# SPDX-License-Identifier: Apache-2.0
"""Ports of SGLang 0.5.23: kernels/jit/csrc/gemm, and srt/layers/quantization."""

import numpy as np
import torch

from quantizers.numerics import MAX8, F, Result, Tiles, bits, floats, high_then_low, of_bits, power, q8, rcp, rounded


def per_tensor(x: torch.Tensor) -> Result:
    """per_tensor_quant_fp8.cuh."""
    scale = Tiles(x, None).amax() / MAX8
    return Result(q8(high_then_low(floats(x) * rcp(scale))), scale)


def per_token(x: torch.Tensor) -> Result:
    """per_token_quant_fp8.cuh, the kernel for few tokens: one per thread block, zero rows 0 * inf."""
    rows = Tiles(x, (1, x.shape[1]))
    scale = rows.amax() / MAX8
    return Result(q8(high_then_low(rows.x * rcp(scale))), scale)


def per_token_warp(x: torch.Tensor) -> Result:
    """per_token_quant_fp8.cuh, the kernel for 16 tokens and more for each multiprocessor: zero rows stay zero."""
    rows = Tiles(x, (1, x.shape[1]))
    scale = rows.amax() / MAX8
    return Result(q8(high_then_low(rows.x * np.where(scale == 0, F(0), rcp(scale)))), scale)


def group(x: torch.Tensor) -> Result:
    """per_token_group_quant.cuh: the stored scale and the factor are rounded apart. Its fast division is IEEE's
    here."""
    groups = Tiles(x, (1, 128))
    amax = np.fmax(groups.amax(), F(1e-10))
    scaled = groups.x * groups.at_elements(MAX8 / amax)
    return Result(q8(scaled if x.dtype == torch.bfloat16 else np.fmin(scaled, MAX8)), amax * rcp(MAX8))


def group_ue8m0(x: torch.Tensor) -> Result:
    """per_token_group_quant.cuh: 16-bit inputs are multiplied in their own type."""
    groups = Tiles(x, (1, 128))
    byte = (lambda word: (word >> 23) + ((word & 0x7FFFFF) != 0))(bits(np.fmax(groups.amax(), F(1e-10)) * rcp(MAX8)))
    factor = rounded(of_bits((254 - byte.astype(np.int64)).astype(np.uint32) << np.uint32(23)), x.dtype)
    scaled = rounded(groups.x * groups.at_elements(factor), x.dtype)
    least = np.minimum if x.dtype == torch.bfloat16 else np.fmin
    return Result(q8(least(scaled, MAX8)), byte.astype(np.uint8))


def input_to_float8(x: torch.Tensor) -> Result:
    """fp8_utils.py: the amax is float32, and so is the product. The division of a number by a tensor is a product,
    too."""
    amax = np.maximum(Tiles(x, None).amax("kept"), F(1e-12))
    scale = rcp(amax) * MAX8
    return Result(q8(np.clip(floats(x) * scale, -MAX8, MAX8)), rcp(scale))


def mxfp8(x: torch.Tensor) -> Result:
    """mxfp8_quant.py: as vLLM's torch path, with a floor of 1e-30. Triton's maximum drops NaN, and on sm_90 and later
    it clamps by min.xorsign.abs.f32, which makes +448 of the NaN that a division gives.
    """
    blocks = Tiles(x, (1, 32))
    amax = np.fmax(blocks.amax(), F(1e-30))
    byte = np.clip(torch.ceil(torch.log2(torch.from_numpy(amax / MAX8))).numpy() + 127, 0, 254).astype(np.uint8)
    return Result(q8(high_then_low(blocks.x / blocks.at_elements(power(byte)))), byte)
