# SPDX-License-Identifier: Apache-2.0
"""Where a result lies on a GPU whose functions nobody has recorded: ``fp8lab.device_function_bounds``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fp8lab._arrays import Array, as_float32, check_choice, check_real
from fp8lab._casts import encode, formats
from fp8lab._elementary import elementary
from fp8lab._entry import guard as _guard
from fp8lab._units import device_function
from fp8lab.literals import DocumentedFunctionName, FormatName

__all__ = ["Bounds", "device_function_bounds"]

#: The largest distance of a function from its correctly rounded result, in float32 numbers: the table of the CUDA C++
#: Programming Guide, "Mathematical Functions", compiled without options.
_DOCUMENTED = {
    "expf": 2, "exp2f": 2, "exp10f": 2, "expm1f": 1, "logf": 1, "log2f": 1, "log10f": 2, "log1pf": 1, "tanhf": 2,
    "erff": 2, "erfcf": 4, "normcdff": 5, "sinf": 2, "cosf": 2, "rsqrtf": 2, "sqrtf": 0, "x / y": 0, "1 / x": 0,
    "__fdiv_rn": 0, "__frcp_rn": 0, "__fsqrt_rn": 0,
}  # fmt: skip
#: Those that ``elementary`` rounds correctly.
_ROUNDED: dict[str, Any] = {
    "expf": "exp", "exp2f": "exp2", "logf": "log", "log2f": "log2", "log1pf": "log1p", "tanhf": "tanh", "sinf": "sin",
    "cosf": "cos", "rsqrtf": "rsqrt",
}  # fmt: skip


@dataclass(frozen=True)
class Bounds:
    """The smallest and the largest result that a device can have, of each element."""

    low: Array
    high: Array
    decided: Array
    """Whether every such device has the same word: bool, of the shape of the result."""

    def undecided_codes(self, format: FormatName = "e4m3", *, scale: float | None = None) -> int:
        """How many codes of these results are not decided: those where ``low`` and ``high`` give two.

        Parameters
        ----------
        format : str
            One of ``formats()``.
        scale : float, optional
            Multiplies the results. Left out: the largest finite value of the format by the largest magnitude here, as
            of current scaling.
        """
        known = {one.name: one.max for one in formats()}
        largest = known[check_choice(format, "format", tuple(known))]
        low, high = (_as_float32(one) for one in (self.low, self.high))
        if scale is None:
            finite = np.concatenate([np.abs(one[np.isfinite(one)]).reshape(-1) for one in (low, high)])
            amax = finite.max(initial=np.float32(0))
            factor = largest / float(amax) if amax > 0 else 1.0
        else:
            factor = check_real(scale, "scale")
        with np.errstate(over="ignore"):
            first, second = (encode(one * np.float32(factor), format) for one in (low, high))
        return int(np.count_nonzero((first != second) | (np.isnan(low) & ~self.decided)))


def _as_float32(values: Array) -> Array:
    return np.asarray(values).astype(np.float32)


def device_function_bounds(
    name: DocumentedFunctionName, x: Any, y: Any = None, *, threads: int | None = None
) -> Bounds:
    """Where a float32 function of CUDA lies on any GPU that keeps the errors which NVIDIA documents.

    For chips whose special function unit nobody has recorded. Compiled without options.

    Parameters
    ----------
    name : str
        One of ``device_functions()`` for which the table has an error in units of the last place: not ``__expf``,
        ``__logf``, ``__log2f`` and ``__fdividef``.
    x : array_like of float32
    y : array_like of float32, of x's shape
        For ``x / y`` and ``__fdiv_rn`` alone.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Returns
    -------
    Bounds
        Of float32. Results that are 0 or NaN, and those for 0 and infinities, count as decided, and no tangent is
        beyond 1.

    Notes
    -----
    Source of the errors: CUDA C++ Programming Guide, "Mathematical Functions", the table for single precision: the
    difference from the correctly rounded result. NVIDIA says that they come from extensive tests, and guarantees none.
    ``exp10f``, ``expm1f``, ``log10f``, ``erff``, ``erfcf`` and ``normcdff`` have no correctly rounded form in fp8lab:
    their bounds are twice as wide, around the words of Hopper.

    >>> import numpy as np, fp8lab
    >>> bounds = fp8lab.device_function_bounds("expf", np.float32([0, 1]))
    >>> bounds.decided, bounds.high.view(np.uint32) - bounds.low.view(np.uint32)
    (array([ True, False]), array([0, 4], dtype=uint32))
    """
    kind = check_choice(name, "name", tuple(_DOCUMENTED))
    array = as_float32(x, "x")
    if kind in _ROUNDED:
        if y is not None:
            raise ValueError(f"y must have 0 elements for {kind}, not {np.size(y)}")
        base, off = elementary(_ROUNDED[kind], array, threads=threads), _DOCUMENTED[kind]
    else:
        base, off = device_function(kind, array, y, threads=threads), 2 * _DOCUMENTED[kind]
    word = base.view(np.uint32).astype(np.int64)
    sign, magnitude = word & 0x80000000, word & 0x7FFFFFFF
    special = (array == 0) | np.isinf(array) | (magnitude == 0) | (magnitude > 0x7F800000) | (off == 0)
    nearer, further = (
        np.where(special, word, sign | np.clip(magnitude + step, 0, 0x7F800000)).astype(np.uint32).view(np.float32)
        for step in (-off, off)
    )
    if kind == "tanhf":
        nearer, further = (np.clip(one, np.float32(-1), np.float32(1)) for one in (nearer, further))
        special = special | (nearer == further)
    positive = sign == 0
    return Bounds(np.where(positive, nearer, further), np.where(positive, further, nearer), special)


_guard(__name__, __all__)
