# SPDX-License-Identifier: Apache-2.0
"""Ports of quantizers of training, each compared with its source, and of the formulas of OCP MX 1.0.

Transformer Engine d0067d0: transformer_engine/common/recipe/recipe_common.cuh:compute_scale_from_amax, and for MXFP8
common/util/ptx_arch_spec.cuh:float_to_e8m0 and common/util/ptx.cuh:exp2f_rcp. DeepSeek-V3:
inference/kernel.py:act_quant_kernel.
"""

import numpy as np
import torch

from quantizers.numerics import (
    FLT_MAX,
    FORMATS,
    MAX8,
    F,
    Result,
    Tiles,
    bits,
    codes_of_values,
    e8m0_up,
    floats,
    of_bits,
    power,
    q8,
    rcp,
)


def given(x: torch.Tensor, scale: float) -> Result:
    return Result(q8(floats(x) * F(scale)), rcp(F(scale)))


def transformer_engine_scale(
    amax: np.ndarray, largest: np.ndarray, for_infinity: np.ndarray, powers: bool
) -> np.ndarray:
    """compute_scale_from_amax without an epsilon."""
    with np.errstate(divide="ignore"):
        scale = largest / amax
    scale = np.where(np.isinf(scale), for_infinity, scale)
    if powers:
        scale = of_bits(bits(scale) & 0xFF800000)
    return np.where(np.isinf(amax) | (amax == 0) | np.isnan(amax), F(1), scale)


def transformer_engine_tensor(x: torch.Tensor, format: str = "e4m3", powers: bool = False) -> Result:
    """Float8CurrentScaling: an infinite scale becomes FLT_MAX, or the power below it."""
    scale = transformer_engine_scale(Tiles(x, None).amax(), FORMATS[format][0][-1], FLT_MAX, powers)
    return Result(codes_of_values(floats(x) * scale, format), rcp(scale))


def transformer_engine_block(x: torch.Tensor, tile: tuple[int, int], powers: bool = True) -> Result:
    """Float8BlockScaling: an infinite scale becomes the largest value of the tensor's type."""
    tiles = Tiles(x, tile)
    scale = transformer_engine_scale(tiles.amax(), MAX8, F(torch.finfo(x.dtype).max), powers)
    return Result(q8(tiles.x * tiles.at_elements(scale)), rcp(scale))


def transformer_engine_mxfp8(x: torch.Tensor, tile: tuple[int, int] = (1, 32)) -> Result:
    """MXFP8BlockScaling, and with enable_2d_quantization, where the scale of a tile stands in each of its rows."""
    tiles = Tiles(x, tile)
    byte = e8m0_up(tiles.amax() * rcp(MAX8))
    codes = q8(tiles.x * tiles.at_elements(power(254 - byte.astype(np.int32))))
    return Result(codes, np.repeat(byte, tile[0], axis=0))


def ocp_mx(x: torch.Tensor, format: str) -> Result:
    """Section 6.3: the largest power of two that is not above the amax, over the largest power of two of the element's
    format."""
    blocks = Tiles(x, (1, 32))
    emax = int(np.log2(FORMATS[format][0][-1]))
    exponent = np.frexp(blocks.amax())[1] - 1 - emax
    byte = np.where(blocks.amax() == 0, 0, np.clip(exponent, -127, 127) + 127)
    return Result(codes_of_values(blocks.x * blocks.at_elements(power(254 - byte)), format), byte.astype(np.uint8))


def deepseek(x: torch.Tensor, least: float) -> Result:
    """act_quant_kernel, from 2025-08-27 on with an amax of at least 1e-4."""
    tiles = Tiles(x, (1, 128))
    scale = np.fmax(tiles.amax(), F(least)) / MAX8
    return Result(q8(tiles.x / tiles.at_elements(scale)), scale)
