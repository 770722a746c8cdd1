# SPDX-License-Identifier: Apache-2.0
"""Dropout and its gradient; ``fp8lab.operators`` offers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, apart, as_array, as_kernel_floats, check_int, check_real, check_threads
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import Typed, apart_from, flat, result_of
from fp8lab.literals import OutDtypeName

__all__ = ["dropout", "dropout_backward"]


def _checked(probability: Any, x: Any, argument: str, out_dtype: Any, out: Any) -> tuple[float, Typed, Array, Typed]:
    share = check_real(probability, "probability")
    if not 0 <= share < 1:
        raise ValueError(f"probability must be from 0 to below 1, not {share}")
    array, source = as_kernel_floats(x, argument)
    if array.size % 16:
        raise ValueError(f"{argument} must have a multiple of 16 elements, not {array.size}")
    result, words = result_of(out, array.shape, out_dtype, source)
    return share, apart_from((flat(array), source), words), result, words


def dropout(
    x: Any,
    probability: float,
    *,
    seed: int,
    offset: int = 0,
    out_dtype: OutDtypeName | None = None,
    threads: int | None = None,
    out: Array | None = None,
) -> tuple[Array, Array]:
    """x / (1 - probability) where an element is kept, else 0: every bit is the kernel's.

    Each element has 8 random bits of curand's Philox4x32-10, and is dropped where they are below floor(256
    probability).

    Parameters
    ----------
    x : array of float32, float16 or bfloat16
        A multiple of 16 elements.
    probability : float
        From 0 to below 1.
    seed, offset : int
        The state of PyTorch's CUDA generator. A call on the device moves the offset on by 4.
    out_dtype, threads, out
        As the module says.

    Returns
    -------
    out : ndarray of out_dtype, of x's shape
    mask : ndarray of uint8, (elements / 8,)
        Bit j of byte i is 1 where element 8 i + j is kept.

    Source: Transformer Engine 2.20, ``common/dropout/dropout.cu``.
    """
    share, given, result, words = _checked(probability, x, "x", out_dtype, out)
    state = check_int(seed, "seed", 0, 2**64 - 1), check_int(offset, "offset", 0, 2**64 - 4)
    if state[1] % 4:
        raise ValueError(f"offset must be a multiple of 4, not {state[1]}")
    mask = np.zeros(result.size // 8, np.uint8)
    _core.dropout(share, state, given, words, mask, check_threads(threads, result.size))
    return result, mask


def dropout_backward(
    grad: Any,
    mask: Any,
    probability: float,
    *,
    out_dtype: OutDtypeName | None = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The gradient of ``dropout``: grad / (1 - probability) where the mask says so, else 0.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16
    mask : array of uint8, (elements / 8,)
        As ``dropout`` gave it.
    probability, out_dtype, threads, out
        As for ``dropout``.

    Returns
    -------
    ndarray of out_dtype, of grad's shape

    Source: as of ``dropout``.
    """
    share, given, result, words = _checked(probability, grad, "grad", out_dtype, out)
    bits, name = as_array(mask, "mask")
    if name != "uint8":
        raise TypeError(f"mask must be uint8, not {name}")
    if bits.size * 8 != result.size:
        raise ValueError(f"mask must have {result.size // 8} bytes, a bit for each element of grad, not {bits.size}")
    own = apart(np.ascontiguousarray(bits).reshape(-1), words[0])
    _core.dropout(share, None, given, words, own, check_threads(threads, result.size))
    return result


_guard(__name__, __all__)
