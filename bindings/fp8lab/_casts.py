# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, as_array, as_codes, as_floats, check_int, check_name, check_real, output
from fp8lab._core import Format, Profile

_MOST_THREADS = 1024


def formats() -> list[Format]:
    """The formats that there are; ``str()`` of each explains it.

    Sources: OCP 8-bit Floating Point Specification 1.0, OCP Microscaling Formats 1.0.
    """
    return _core.formats()


def profiles() -> list[Profile]:
    """The named rules for overflow, infinity and NaN; ``str()`` of each explains it and names its source."""
    return _core.profiles()


def _apart(array: Array, out: Array) -> Array:
    """``array``, copied where it overlaps ``out`` without being the same elements."""
    same = array.ctypes.data == out.ctypes.data and array.itemsize == out.itemsize
    return array.copy() if not same and np.may_share_memory(array, out) else array


def encode(
    x: Any,
    format: str | Format,
    *,
    profile: str | Profile = "cuda_satfinite",
    rounding: str = "nearest_even",
    threads: int = 1,
    out: Array | None = None,
) -> Array:
    """Encode numbers as codes of an 8-bit format, each rounded once from its own precision.

    Parameters
    ----------
    x : array_like of float32, float64, float16 or bfloat16
        NumPy, ml_dtypes or torch. Read in place where it is C-contiguous, copied otherwise.
    format : str
        One of ``formats()``.
    profile : str
        One of ``profiles()``: what overflow, infinities and NaN become.
    rounding : str
        ``nearest_even``, ``nearest_away``, ``toward_zero``, ``upward`` or ``downward``.
    threads : int
        Threads to use; the result does not depend on it.
    out : ndarray of uint8, optional
        Where to write, of x's shape and C-contiguous.

    Returns
    -------
    ndarray of uint8
        The codes, of x's shape; ``out`` where it is given.

    Raises
    ------
    TypeError
        For other element types; the message names the argument.
    ValueError
        For unknown names (the message lists the known ones), a wrong shape of ``out``, threads < 1.
    """
    array, source = as_floats(x, "x")
    result = output(out, array.shape, np.uint8)
    _core.encode(
        _apart(array, result),
        source,
        result,
        check_name(format, "format"),
        check_name(profile, "profile"),
        check_name(rounding, "rounding"),
        check_int(threads, "threads", 1, _MOST_THREADS),
    )
    return result


def decode(codes: Any, format: str | Format = "e4m3", *, threads: int = 1, out: Array | None = None) -> Array:
    """The values of codes, exactly.

    Parameters
    ----------
    codes : array_like of uint8, or of an ml_dtypes or torch float8 type
        A float8 type carries its format, which then counts instead of ``format``.
    format : str
        One of ``formats()``.
    threads : int
        Threads to use.
    out : ndarray of float32, optional
        Where to write, of codes' shape and C-contiguous.

    Returns
    -------
    ndarray of float32
        The values, of codes' shape. NaN codes give the quiet NaN with the code's sign.

    Raises
    ------
    TypeError, ValueError
        As ``encode`` does.
    """
    array, name = as_codes(codes, "codes", check_name(format, "format"))
    result = output(out, array.shape, np.float32)
    _core.decode(_apart(array, result), result, name, check_int(threads, "threads", 1, _MOST_THREADS))
    return result


def cast_to_representable(
    x: Any,
    format: str | Format,
    *,
    scale: float = 1.0,
    profile: str | Profile = "cuda_satfinite",
    rounding: str = "nearest_even",
    threads: int = 1,
    out: Array | None = None,
) -> Array:
    """Numbers as they come back from a trip through an 8-bit format under a scale.

    ``decode(encode(x * scale)) * (1 / scale)``, computed in float32 (float64 for float64 input) and rounded to x's type:
    what Transformer Engine's FP8 primer calls ``cast_to_representable``.

    Parameters
    ----------
    x : array_like of float32, float64, float16 or bfloat16
    format, profile, rounding, threads
        As for ``encode``.
    scale : float
        Multiplies before the cast; positive and finite.
    out : ndarray of x's type, optional
        Where to write, of x's shape and C-contiguous; may be ``x`` itself.

    Returns
    -------
    ndarray of x's type (bfloat16 as ml_dtypes.bfloat16)

    Raises
    ------
    TypeError, ValueError
        As ``encode`` does, and for a scale that is not positive and finite.
    """
    array, source = as_floats(x, "x")
    if source == "bfloat16":
        import ml_dtypes

        dtype: Any = ml_dtypes.bfloat16
    else:
        dtype = np.dtype(source)
    result = output(out, array.shape, dtype)
    words = as_array(result, "out")[0].view(array.dtype)
    _core.cast_to_representable(
        _apart(array, words),
        source,
        words,
        check_name(format, "format"),
        check_real(scale, "scale"),
        check_name(profile, "profile"),
        check_name(rounding, "rounding"),
        check_int(threads, "threads", 1, _MOST_THREADS),
    )
    return result
