# SPDX-License-Identifier: Apache-2.0
"""What a GPU's special function unit computes: ``fp8lab.special_function``."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, apart, as_float32, check_bool, check_choice, check_threads, output

__all__ = ["special_function", "special_functions", "special_units"]


def special_functions() -> dict[str, str]:
    """The instructions ``NAME.approx.f32`` of PTX that ``special_function`` knows, and what they approximate."""
    return dict(_core.special_functions())


def special_units() -> dict[str, str]:
    """The chips whose special function unit is known bit for bit, and how it is known."""
    return dict(_core.special_units())


def special_function(
    name: str, x: Any, *, ftz: bool = False, units: str = "hopper", threads: int = 1, out: Array | None = None
) -> Array:
    """What ``NAME.approx.f32`` gives for each element on a chip: not the correctly rounded value, but the chip's bits.

    CUDA's functions are made of these: ``rsqrtf`` is ``rsqrt``, ``__expf(x)`` is ``ex2`` of a product, divisions under
    ``-use_fast_math`` take ``rcp``.

    Parameters
    ----------
    name : str
        ``rcp``, ``rsqrt``, ``sqrt``, ``lg2`` or ``ex2``.
    x : array_like of float32
    ftz : bool
        The instruction with ``.ftz``, which code compiled with ``-ftz=true`` has: subnormal numbers are zeros.
    units : str
        One of ``special_units()``.
    threads : int
        Threads to use; no result depends on it.
    out : ndarray of float32, of x's shape, optional

    Returns
    -------
    ndarray of float32, of x's shape
        Every NaN is the word 7FFFFFFF.

    Notes
    -----
    A quadratic in each of 64 segments of a binade (``rcp``: 128), by a squarer that leaves out its lowest columns, cut
    to the result's last place. Structure: Oberman and Siu, "A High-Performance Area-Efficient Multifunction
    Interpolator", ARITH 2005; tables: found from the words of an H200, which the model gives for all 2^32 inputs.

    >>> import numpy as np, fp8lab
    >>> fp8lab.special_function("rsqrt", np.float32([1, 2, 3])).view(np.uint32)
    array([1065353216, 1060439282, 1058262330], dtype=uint32)
    """
    kind = check_choice(name, "name", tuple(special_functions()))
    chip = check_choice(units, "units", tuple(special_units()))
    array = as_float32(x, "x")
    result = output(out, array.shape, np.float32)
    _core.special_function(chip, kind, check_bool(ftz, "ftz"), apart(array, result), result, check_threads(threads))
    return result
