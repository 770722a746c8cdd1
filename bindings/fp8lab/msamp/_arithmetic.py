# SPDX-License-Identifier: Apache-2.0
"""Float32 arithmetic as the kernels of MS-AMP round it, on torch tensors, and the casts of FP8 codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import fp8lab
from fp8lab.literals import Fp8QtypeName

__all__ = ["decoded", "encoded", "float32", "fma", "number_amax", "rooted"]


def float32(value: float) -> float:
    """A Python number as a C float has it."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def fma(a: torch.Tensor | float, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a b + c of float32 tensors, rounded once to float32, which torch has no operation for.

    The product is exact in float64. The sum is rounded to odd there: its error tells on which side of it the exact sum
    lies, and a last bit that is set keeps that for the rounding to float32 (Boldo and Melquiond, IEEE Transactions on
    Computers 57(4), 2008).
    """
    wide = float32(a) if isinstance(a, float) else a.double()
    product, addend = b.double() * wide, c.double()
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(torch.int64)
    is_even = (bits & 1) == 0
    grows = (error > 0) == (total > 0)
    odd = torch.where(is_even & (error != 0) & torch.isfinite(total), torch.where(grows, bits + 1, bits - 1), bits)
    return odd.view(torch.float64).float()


def rooted(x: torch.Tensor) -> torch.Tensor:
    """The square root of a float32 tensor, correctly rounded: torch's own on a CPU is an ulp away at times.

    Of float64 it may be so too, and a root of a float32 number is never so near to halfway between two.
    """
    return x.double().sqrt().float()


def number_amax(x: torch.Tensor) -> torch.Tensor:
    """The largest magnitude as a kernel's atomic maximum finds it, in float32: NaN is not counted, and of nothing but
    NaN it is 0."""
    magnitudes = x.detach().float().abs()
    return torch.where(magnitudes.isnan(), torch.zeros_like(magnitudes), magnitudes).max()


def encoded(x: torch.Tensor, format: Fp8QtypeName) -> torch.Tensor:
    """The codes of a float32 tensor, nearest even, where what is too large becomes the largest code (satfinite)."""
    flat = x.detach().contiguous().view(-1)
    if flat.numel() == 0:
        return torch.empty(x.shape, dtype=torch.uint8)
    codes: Any = fp8lab.encode(flat.numpy(), format, threads=torch.get_num_threads())
    return torch.from_numpy(codes).view(x.shape)


def decoded(codes: torch.Tensor, format: Fp8QtypeName) -> torch.Tensor:
    """The float32 values of codes."""
    flat = codes.detach().contiguous().view(-1)
    if flat.numel() == 0:
        return torch.empty(codes.shape, dtype=torch.float32)
    values: Any = fp8lab.decode(flat.numpy(), format, threads=torch.get_num_threads())
    return torch.from_numpy(values).view(codes.shape)
