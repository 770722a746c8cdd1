# SPDX-License-Identifier: Apache-2.0
"""What a GPU's special function unit computes, and the functions that CUDA makes of it: ``fp8lab.special_function`` and
``fp8lab.device_function``."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, apart, as_float32, as_floats, check_bool, check_choice, check_threads, empty, output
from fp8lab._entry import guard as _guard
from fp8lab.literals import (
    CudaReleaseName,
    DeviceChipName,
    DeviceFunctionName,
    SpecialFunctionName,
    SpecialTypeName,
    SpecialUnitsName,
)

__all__ = [
    "device_function",
    "device_functions",
    "special_function",
    "special_functions",
    "special_types",
    "special_units",
]


def special_functions() -> dict[str, str]:
    """The instructions ``NAME.approx`` of PTX that ``special_function`` knows, and what they approximate."""
    return dict(_core.special_functions())


def special_units() -> dict[str, str]:
    """The chips whose special function unit is known bit for bit, how it is known, and what stands in for others'."""
    return dict(_core.special_units())


def special_types() -> dict[str, str]:
    """The types of a special function unit's instructions, and which functions each has."""
    return dict(_core.special_types())


def special_function(
    name: SpecialFunctionName,
    x: Any,
    *,
    dtype: SpecialTypeName = "float32",
    ftz: bool | None = None,
    units: SpecialUnitsName = "hopper",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """What ``NAME.approx`` gives for each element on a chip: not the correctly rounded value, but the chip's bits.

    CUDA's functions are made of these: ``rsqrtf`` is ``rsqrt``, ``__expf(x)`` is ``ex2`` of a product, divisions under
    ``-use_fast_math`` take ``rcp``, and ``tanhf`` is ``tanh`` there.

    Parameters
    ----------
    name : str
        ``rcp``, ``rsqrt``, ``sqrt``, ``lg2``, ``ex2``, ``sin``, ``cos`` or ``tanh``.
    x : array_like
        Numbers of the type ``dtype``; others are refused.
    dtype : str
        ``float32``; for ``ex2`` and ``tanh`` also ``float16`` and ``bfloat16`` (the instruction of two elements is that
        of each); for ``rcp`` and ``rsqrt`` also ``float64``, whose instruction ignores the lower half of an operand's
        word, and whose results have zeros there.
    ftz : bool, optional
        The instruction with ``.ftz``, which code compiled with ``-ftz=true`` has: subnormal numbers are zeros. PTX has
        one instruction alone of ``tanh`` and of the other types, which is taken if this is left out; otherwise that
        without ``.ftz`` is.
    units : str
        One of ``special_units()``.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of ``dtype``, of x's shape, optional

    Returns
    -------
    ndarray of ``dtype`` (bfloat16 as ml_dtypes.bfloat16), of x's shape
        Every NaN has all bits but the sign: 7FFFFFFF of float32.

    Notes
    -----
    A quadratic in each of 64 segments of a binade (``rcp``: 128, ``tanh``: 1 to 16), by a squarer that leaves out its
    lowest columns, cut to the result's last place. Structure: Oberman and Siu, "A High-Performance Area-Efficient
    Multifunction Interpolator", ARITH 2005; tables: found from the words of an H200, which the model gives for all
    inputs of each instruction. The results of 16 bits are those of float32 rounded toward zero, those of float64 have
    the upper 20 bits of float32's mantissa.

    >>> import numpy as np, fp8lab
    >>> fp8lab.special_function("rsqrt", np.float32([1, 2, 3])).view(np.uint32)
    array([1065353216, 1060439282, 1058262330], dtype=uint32)
    >>> fp8lab.special_function("tanh", np.float16([0.5, 2]), dtype="float16")
    array([0.462 , 0.9634], dtype=float16)
    """
    kind = check_choice(name, "name", tuple(special_functions()))
    chip = check_choice(units, "units", tuple(special_units()))
    of_type = check_choice(dtype, "dtype", tuple(special_types()))
    flushes = None if ftz is None else check_bool(ftz, "ftz")
    if of_type == "float32":
        array = as_float32(x, "x")
        result = output(out, array.shape, np.float32)
        _core.special_function(chip, kind, flushes, apart(array, result), result, check_threads(threads, array.size))
        return result
    numbers, source = as_floats(x, "x")
    if source != of_type:
        raise TypeError(f"x must have dtype {of_type}, not {source}")
    result = output(out, numbers.shape, empty((0,), of_type).dtype)
    word = numbers.view(f"u{numbers.itemsize}")
    unused = 32 if of_type == "float64" else 0  # lower bits
    words = np.ascontiguousarray((word >> unused).astype(np.uint32))
    _core.special_instruction(chip, kind, of_type, flushes, words, check_threads(threads, words.size))
    result.view(word.dtype)[...] = words.astype(word.dtype) << unused
    return result


def device_functions() -> dict[str, str]:
    """The functions and operators of CUDA C++ that ``device_function`` knows, and what they compute."""
    return dict(_core.device_functions())


def device_function(
    name: DeviceFunctionName,
    x: Any,
    y: Any = None,
    *,
    chip: DeviceChipName = "sm_90",
    cuda: CudaReleaseName = "13.0",
    ftz: bool = False,
    prec_div: bool = True,
    prec_sqrt: bool = True,
    fast_math: bool = False,
    units: SpecialUnitsName | None = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """What a float32 function of CUDA gives for each element on a chip, bit for bit.

    Parameters
    ----------
    name : str
        One of ``device_functions()``: ``expf``, ``__expf``, ``tanhf``, ``erff``, ``x / y``, ...
    x : array_like of float32
    y : array_like of float32, of x's shape
        For ``x / y``, ``__fdividef`` and ``__fdiv_rn`` alone.
    chip : str
        ``sm_80``, ``sm_90`` or ``sm_100``. nvcc makes the same operations for each, over the chip's own unit.
    cuda : str
        The release of CUDA whose functions they are: ``13.0``.
    ftz, prec_div, prec_sqrt, fast_math : bool
        nvcc's options ``-ftz``, ``-prec-div``, ``-prec-sqrt`` and ``-use_fast_math``. The last implies ``-ftz=true``,
        ``-prec-div=false`` and ``-prec-sqrt=false``, and faster functions: ``expf`` is then ``__expf``.
    units : str, optional
        One of ``special_units()``. None takes the chip's; ``correctly_rounded`` is no chip's, and stands in for those
        that nobody has recorded.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of float32, of x's shape, optional

    Returns
    -------
    ndarray of float32, of x's shape
        Every NaN is the word 7FFFFFFF.

    Raises
    ------
    ValueError
        For a chip whose unit is not known, where ``units`` is None.

    Notes
    -----
    Formulas and constants are those of CUDA 13.0's ``libdevice.10.bc``; divisions and roots are as ptxas makes them for
    sm_90. An H200 gave the same words for all 2^32 inputs of ``expf``, ``__expf``, ``tanhf``, ``erff``, ``logf`` and
    ``sinf``, without options and with ``ftz``, and of ``rsqrtf``, ``exp2f`` and ``1 / x`` without; for 5 * 2^24 inputs
    or more of the other functions and options; and for 10^8 pairs of words of each function of two arguments.

    >>> import numpy as np, fp8lab
    >>> fp8lab.device_function("tanhf", np.float32([0.5, 1, 2])).view(np.uint32)
    array([1055693472, 1061353430, 1064749699], dtype=uint32)
    """
    kind = check_choice(name, "name", tuple(device_functions()))
    of_chip = check_choice(chip, "chip", tuple(dict(_core.device_chips())))
    release = check_choice(cuda, "cuda", tuple(dict(_core.cuda_releases())))
    of_units = "" if units is None else check_choice(units, "units", tuple(special_units()))
    flags = (
        check_bool(ftz, "ftz"),
        check_bool(prec_div, "prec_div"),
        check_bool(prec_sqrt, "prec_sqrt"),
        check_bool(fast_math, "fast_math"),
    )
    array = as_float32(x, "x")
    second = np.empty(0, np.float32) if y is None else as_float32(y, "y")
    if y is not None and second.shape != array.shape:
        raise ValueError(f"y must have the shape {array.shape} of x, not {second.shape}")
    result = output(out, array.shape, np.float32)
    _core.device_function(
        kind,
        (of_chip, release),
        of_units,
        flags,
        apart(array, result),
        apart(second, result),
        result,
        check_threads(threads, array.size),
    )
    return result


_guard(__name__, __all__)
