# SPDX-License-Identifier: Apache-2.0
"""How results of ``fp8lab.operators`` become Transformer Engine's: rounded and quantized as its kernels do."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from fp8lab.te._activation import active_device, active_functions
from fp8lab.te.quantize import quantize_as, threads
from fp8lab.te.state import amax_of
from fp8lab.te.tensors import as_tensor, kind_of_quantizer, rounded

__all__ = [
    "as_tensor",
    "kernel_options",
    "norm_options",
    "operators",
    "options",
    "quantized_result",
    "rounded",
    "type_name",
]

_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def operators() -> Any:
    """The module ``fp8lab.operators``."""
    if importlib.util.find_spec("fp8lab.operators") is None:
        raise NotImplementedError(
            "norms, activations, softmaxes and optimizers are not provided by this build of fp8lab: it has no "
            "fp8lab.operators; install a newer one"
        )
    return importlib.import_module("fp8lab.operators")


def type_name(dtype: torch.dtype) -> str:
    """fp8lab's name of a type in high precision."""
    if dtype not in _NAMES:
        raise TypeError(f"the type must be float32, float16 or bfloat16, not {dtype}")
    return _NAMES[dtype]


def quantized_result(wide: Any, dtype: torch.dtype, quantizer: Any, output: Any, amax_is_wide: bool) -> Any:
    """What a kernel that ends with a quantizer writes.

    Delayed scaling casts the unrounded result. All others quantize the result rounded to ``dtype``; ``amax_is_wide``:
    current scaling, and NVFP4 without a Hadamard matrix, by the amax of the unrounded one.
    """
    kind = kind_of_quantizer(quantizer)
    if kind == "delayed":
        return quantize_as(wide, quantizer, dtype, output)
    takes_wide = kind == "current" or (kind == "nvfp4" and not (quantizer.with_rht or quantizer.row_scaled_nvfp4))
    amax = amax_of(wide) if amax_is_wide and takes_wide else None
    return quantize_as(rounded(wide, dtype), quantizer, dtype, output, amax=amax)


def options() -> dict[str, Any]:
    """The options that every function of ``fp8lab.operators`` takes."""
    return {"threads": threads()}


def kernel_options() -> dict[str, Any]:
    """The same, with the functions of the kernels that the activation asks for."""
    return {**options(), "functions": active_functions()}


def norm_gradient_options(x: Any, gamma: Any, grad: Any, sm_margin: int) -> dict[str, Any]:
    """Those of a norm's gradients.

    The order of their sums is known of the same rows and types, and of a chip whose kernels have 132 multiprocessors;
    of another chip as long as each row has a block of its own.
    """
    columns = x.shape[-1]
    multiprocessors = active_device().sms - sm_margin
    have_types = gamma.dtype == grad.dtype and x.dtype in (gamma.dtype, torch.float32)
    is_one_round = multiprocessors == 132 or x.numel() // max(columns, 1) <= 2 * multiprocessors
    return kernel_options() if columns <= 2048 and have_types and is_one_round else options()


def norm_options(x: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Those of a norm of x with a result of ``dtype``.

    A device's sums are not known beyond 16384 columns. Where rows of float32 have results of 16 bits, which are rounded
    later here, at most 128 and 10240 columns have kernels with another order.
    """
    columns = x.shape[-1]
    has_own_order = columns <= 128 or columns == 10240
    is_known = columns <= 16384 and (not has_own_order or x.dtype != torch.float32 or dtype == torch.float32)
    return kernel_options() if is_known else options()
