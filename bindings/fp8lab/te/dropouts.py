# SPDX-License-Identifier: Apache-2.0
"""Dropout with 8 random bits for each element, of the emulated device's generator."""

from __future__ import annotations

from typing import Any

import torch

from fp8lab.te._activation import active_generator
from fp8lab.te.operators import as_tensor, operators, type_name
from fp8lab.te.quantize import dequantize, threads
from fp8lab.te.tensors import kind_of_tensor

EXPORTED = ("dropout_bwd", "dropout_fwd")
__all__ = [*EXPORTED]

_OF_A_THREAD = 4  # random numbers
_TYPES = (torch.float16, torch.bfloat16)


def _check_type(tensor: Any, name: str) -> None:
    if tensor.dtype not in _TYPES:
        raise TypeError(f"{name} must be float16, bfloat16 or a Float8Tensor of these, not {tensor.dtype}")


def dropout_fwd(input: Any, dropout_probability: float, out: Any = None) -> list[Any]:
    """What is kept, times the scale, and the mask: bits of 8 elements in each byte. The generator moves on by 4."""
    _check_type(input, "input")
    kind = kind_of_tensor(input)
    if kind not in ("plain", "float8"):
        raise TypeError(f"input must be a plain tensor or a Float8Tensor, not of {kind}")
    # The product with the inverse scale is rounded to float32 before that with the scale.
    values = input if kind == "plain" else dequantize(input, torch.float32)
    seed, offset = active_generator().take(_OF_A_THREAD)
    target = input.dtype if out is None else out.dtype
    made, mask = operators().dropout(
        values.detach().contiguous(), float(dropout_probability), seed=seed, offset=offset,
        out_dtype=type_name(target), threads=threads(),
    )  # fmt: skip
    result = as_tensor(made)
    if out is not None:
        out.detach().copy_(result.view(out.shape))
        result = out
    return [result, torch.from_numpy(mask)]


def dropout_bwd(grad_output: Any, mask: Any, dropout_probability: float, grad_input: Any = None) -> Any:
    """The gradient, by the same mask."""
    _check_type(grad_output, "grad_output")
    made = as_tensor(
        operators().dropout_backward(
            grad_output.detach().contiguous(), mask.detach().contiguous(), float(dropout_probability), threads=threads()
        )
    )
    if grad_input is None:
        return made
    grad_input.detach().copy_(made.view(grad_input.shape))
    return grad_input
