# SPDX-License-Identifier: Apache-2.0
"""Elementary functions, and what is exact of operators; ``fp8lab.operators`` offers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    as_float32,
    check_choice,
    check_threads,
    output,
)
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import FUNCTIONS
from fp8lab.literals import ElementaryName

__all__ = ["Exactness", "elementary", "exactness", "functions"]

_ELEMENTARY = ("exp", "exp2", "tanh", "log", "log2", "log1p", "rsqrt", "sin", "cos")


@dataclass(frozen=True)
class Exactness:
    """What of a function is a device's every bit, and how far the rest is from the exact value of its formula."""

    function: str
    name: str
    """Of an activation, or empty."""
    exact: bool
    """Whether every bit is the kernel's of Transformer Engine 2.20, as nvcc 13.0 compiles it for sm_90."""
    why: str
    """Why not, or what is unknown."""
    ulps: float
    """The largest distance of the unrounded result from the exact value, in units of its last place in float32. A
    device's differs likewise, by its own functions and order of sums."""
    flips: float
    """The share of E4M3 codes that differ where the exact value is encoded instead, by the scale of the tensor's
    amax."""
    device_flips: float
    """At most this share of the codes is another on a device whose functions keep the errors that CUDA documents (2
    units of the last place, and 2 + floor(abs(1.173 x)) for ``__expf(x)``), with sums in any order."""
    draws: str
    """What these were measured on."""
    exact_on_hopper: bool
    """Whether every bit is a Hopper chip's with ``functions="hopper"``: by the words of an H200 for norms (16 to
    16384 columns), softmaxes, rope, the router, Adam, ``l2norm`` and activations."""


def exactness() -> list[Exactness]:
    """What is exact of each function, and bounds of the rest, measured against 50 decimal digits."""
    return [Exactness(*row) for row in _core.exactness_rows()]


def functions() -> list[str]:
    """The values of the argument ``functions``.

    ``correctly_rounded`` has the float32 nearest to the exact value. ``hopper`` has what ``device_function`` has for
    sm_90, and sums in the kernel's order; activations take it, and so do norms of at most 16384
    columns, softmaxes of 16 bits an element and at most 16384 keys, rope, the router of experts, the gradients of these
    (of norms: of at most 2048 columns), Adam and ``l2norm``.
    """
    return list(FUNCTIONS)


def elementary(name: ElementaryName, x: Any, *, threads: int | None = None, out: Array | None = None) -> Array:
    """An elementary function of each element, rounded correctly: the same bits on every processor.

    Parameters
    ----------
    name : str
        ``exp``, ``exp2``, ``tanh``, ``log``, ``log2``, ``log1p``, ``rsqrt``, ``sin`` or ``cos``.
    x : array_like of float32
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of float32, of x's shape, optional

    Returns
    -------
    ndarray of float32, of x's shape
    """
    kind = check_choice(name, "name", _ELEMENTARY)
    array = as_float32(x, "x")
    number = check_threads(threads, array.size)
    result = output(out, array.shape, np.float32)
    _core.elementary(kind, apart(array, result), result, number)
    return result


_guard(__name__, __all__)
