# SPDX-License-Identifier: Apache-2.0
"""Repositories that git directories hold: FP8LAB_TE_GIT, FP8LAB_DEEPGEMM_GIT, FP8LAB_MICROXCALING_GIT."""

import numpy as np
import torch

from quantizers import installed
from quantizers.numerics import E2M1, E4M3, Result, nearest, signed
from quantizers.packages import codes4, codes8

TE = "FP8LAB_TE_GIT"
DEEPGEMM = "FP8LAB_DEEPGEMM_GIT"
MICROXCALING = "FP8LAB_MICROXCALING_GIT"


def transformer_engine_nvfp4(x: torch.Tensor, **options) -> Result:
    """The quantizer in PyTorch that Transformer Engine's tests hold its kernels to. It makes +0 of -0."""
    folder = "transformer_engine/pytorch/custom_recipes"
    names = ("reference_nvfp4", "reference_utils", "gemm")
    unused = ("transformer_engine.pytorch.quantized_tensor", "transformer_engine.pytorch.tensor", "transformer_engine.pytorch.tensor.utils")
    reference = installed.from_git(
        TE, "transformer_engine.pytorch.custom_recipes.reference_nvfp4", [f"{folder}/{name}.py" for name in names], unused=unused
    )
    got = reference.NVFP4QuantizerRef(dtype=None, columnwise=False, **options).quantize(x)
    return Result(codes4(got.data), codes8(got.scale))


def deepgemm():
    return installed.from_git(DEEPGEMM, "deep_gemm.utils.math", ["deep_gemm/utils/math.py"])


def deepgemm_fp8(x: torch.Tensor, ue8m0: bool, group: int) -> Result:
    codes, scale = deepgemm().per_token_cast_to_fp8(x, ue8m0, group)
    return Result(codes8(codes), scale.numpy())


def deepgemm_fp4(x: torch.Tensor, ue8m0: bool, group: int) -> Result:
    codes, scale = deepgemm().per_token_cast_to_fp4(x, ue8m0, group)
    return Result(codes4(codes), scale.numpy())


def microxcaling(x: torch.Tensor, element: str, round: str, flush: bool) -> Result:
    """Fake quantization. Its shared exponents come from its own function; the values under them are encoded, exactly."""
    files = [f"mx/{name}.py" for name in ("mx_ops", "elemwise_ops", "formats", "specs")]
    mx = installed.from_git(MICROXCALING, "mx.mx_ops", files)
    emax = 8 if element == "fp8_e4m3" else 2
    blocks = x.float().unflatten(-1, (-1, 32))
    exponent = mx._shared_exponents(blocks, axes=[-1], ebits=0) - emax
    exponent = torch.where(exponent > 127, torch.nan, exponent.clamp(min=-127))
    values = mx._quantize_mx(x.float(), 8, element, axes=[-1], block_size=32, round=round, flush_fp32_subnorms=flush)
    unscaled = (values.unflatten(-1, (-1, 32)).double() / 2.0 ** exponent.double()).float().flatten(-2).numpy()
    byte = np.where(np.isnan(exponent.numpy()), 255, np.nan_to_num(exponent.numpy()) + 127).astype(np.uint8)[..., 0]
    table, bit = (E4M3, 7) if element == "fp8_e4m3" else (E2M1, 3)
    codes = signed(nearest(table, unscaled), unscaled, bit)
    return Result(np.where(np.isnan(unscaled), (1 << bit) - 1, codes).astype(np.uint8), byte)
