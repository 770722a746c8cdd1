# SPDX-License-Identifier: Apache-2.0
"""Quantizers of projects that checkouts hold (``repositories``): Transformer Engine, DeepGEMM, microxcaling, torchao."""

import functools

import numpy as np
import repositories
import torch

from quantizers import installed
from quantizers.numerics import Result, codes_of_values
from quantizers.packages import codes4, codes8

TE = repositories.TRANSFORMER_ENGINE
DEEPGEMM = repositories.DEEPGEMM
MICROXCALING = repositories.MICROXCALING
AO = repositories.TORCHAO


#: The last release that divided a block's amax by 6.
TE_BEFORE_2_14 = "v2.13"


def reference_nvfp4(tag: str = "HEAD"):
    """Transformer Engine's quantizer for NVFP4 in PyTorch, of its newest commit or of TE_BEFORE_2_14."""
    folder = "transformer_engine/pytorch/custom_recipes"
    names = (
        ("reference_nvfp4", "reference_utils", "gemm")
        if tag == "HEAD"
        else ("quantization_nvfp4", "quantization", "utils")
    )
    unused = (
        "transformer_engine.pytorch.quantized_tensor",
        "transformer_engine.pytorch.tensor",
        "transformer_engine.pytorch.tensor.utils",
    )
    files = [f"{folder}/{name}.py" for name in names]
    return installed.from_git(
        TE, f"{folder.replace('/', '.')}.{names[0]}", files, unused=unused, commit=tag
    ).NVFP4QuantizerRef


def transformer_engine_nvfp4(x: torch.Tensor, tag: str = "HEAD", **options) -> Result:
    """The quantizer in PyTorch that Transformer Engine's tests hold its kernels to. It makes +0 of -0."""
    got = reference_nvfp4(tag)(dtype=None, columnwise=False, **options).quantize(x)
    return Result(codes4(got.data), codes8(got.scale))


def transformer_engine_nvfp4_rht(x: torch.Tensor, tag: str = "HEAD") -> Result:
    """The same of the columns of the transpose, which are turned by the Hadamard matrix first, in the type of the
    tensor."""
    quantizer = reference_nvfp4(tag)(dtype=None, rowwise=False, columnwise=True, with_rht=True)
    got = quantizer.quantize(x.T.contiguous())
    return Result(codes4(got.data_t), codes8(got.scale_t))


def torchao_mx(x: torch.Tensor, mode: str, bits: int) -> Result:
    """torchao's to_mx as its newest commit has it."""
    mx_formats, common = "torchao/prototype/mx_formats", "torchao/quantization/quantize_/common"
    files = [f"{mx_formats}/{name}.py" for name in ("mx_tensor", "config", "constants", "kernels", "utils")]
    files += [f"{common}/{name}.py" for name in ("kernel_preference", "quantize_tensor_kwargs")]
    mx = installed.from_git(
        AO,
        "torchao.prototype.mx_formats.mx_tensor",
        [*files, "torchao/prototype/custom_fp_utils.py", "torchao/utils.py"],
    )
    dtype = torch.float8_e4m3fn if bits == 8 else torch.float4_e2m1fn_x2
    scale, codes = mx.to_mx(x.contiguous(), dtype, 32, scaling_mode=mx.ScaleCalculationMode(mode))
    return Result(codes8(codes) if bits == 8 else codes4(codes), codes8(scale))


class DivisionOfCuda(torch.overrides.TorchFunctionMode):
    """A tensor over a Python number is a product with the number's rounded inverse, as on a GPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.__truediv__, torch.Tensor.div, torch.div) and isinstance(args[1], (int, float)):
            return args[0] * (1 / args[1])
        return func(*args, **(kwargs or {}))


def on_cuda(oracle):
    """What an oracle in PyTorch gives with the divisions of a GPU."""

    @functools.wraps(oracle)
    def with_its_divisions(*args, **options):
        with DivisionOfCuda():
            return oracle(*args, **options)

    return with_its_divisions


def deepgemm():
    return installed.from_git(DEEPGEMM, "deep_gemm.utils.math", ["deep_gemm/utils/math.py"])


def deepgemm_fp8(x: torch.Tensor, ue8m0: bool, group: int) -> Result:
    codes, scale = deepgemm().per_token_cast_to_fp8(x, ue8m0, group)
    return Result(codes8(codes), scale.numpy())


def deepgemm_fp4(x: torch.Tensor, ue8m0: bool, group: int) -> Result:
    codes, scale = deepgemm().per_token_cast_to_fp4(x, ue8m0, group)
    return Result(codes4(codes), scale.numpy())


MX_FORMATS = {
    "fp8_e4m3": ("e4m3", 8),
    "fp8_e5m2": ("e5m2", 15),
    "fp6_e2m3": ("e2m3", 2),
    "fp6_e3m2": ("e3m2", 4),
    "fp4_e2m1": ("e2m1", 2),
}


def microxcaling(x: torch.Tensor, element: str, round: str, flush: bool) -> Result:
    """Fake quantization. Its shared exponents come from its own function; the values under them are encoded,
    exactly."""
    files = [f"mx/{name}.py" for name in ("mx_ops", "elemwise_ops", "formats", "specs")]
    mx = installed.from_git(MICROXCALING, "mx.mx_ops", files)
    format, emax = MX_FORMATS[element]
    width = x.shape[-1]
    padding = -width % 32
    blocks = torch.nn.functional.pad(x.float(), (0, padding)).unflatten(-1, (-1, 32))
    exponent = mx._shared_exponents(blocks, axes=[-1], ebits=0) - emax
    exponent = torch.where(exponent > 127, torch.nan, exponent.clamp(min=-127))
    values = mx._quantize_mx(x.float(), 8, element, axes=[-1], block_size=32, round=round, flush_fp32_subnorms=flush)
    values = torch.nn.functional.pad(values, (0, padding)).unflatten(-1, (-1, 32))
    unscaled = (values.double() / 2.0 ** exponent.double()).float().flatten(-2)[..., :width].numpy()
    byte = np.where(np.isnan(exponent.numpy()), 255, np.nan_to_num(exponent.numpy()) + 127).astype(np.uint8)[..., 0]
    return Result(codes_of_values(unscaled, format), byte)


def deepgemm_fp8_block(x: torch.Tensor) -> Result:
    codes, scale = deepgemm().per_block_cast_to_fp8(x, True, 128)
    return Result(codes8(codes), scale.numpy())
