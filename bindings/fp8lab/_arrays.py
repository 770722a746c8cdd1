# SPDX-License-Identifier: Apache-2.0
"""Turns what users pass (NumPy, ml_dtypes, torch) into contiguous NumPy arrays, or says which argument is wrong."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._core import Format, MmaModel, Profile

#: FP8 element types of ml_dtypes and torch, and the format each carries.
_CODE_DTYPES = {
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float8_e8m0fnu": "e8m0",
    "float8_e3m4": "e3m4",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
    "float6_e2m3fn": "e2m3",
    "float6_e3m2fn": "e3m2",
    "float4_e2m1fn": "e2m1",
}
_SOURCES = ("float32", "float64", "float16", "bfloat16")

Array = np.ndarray[Any, np.dtype[Any]]


def _from_torch(x: Any) -> tuple[Array, str]:
    """A torch tensor as (array, dtype name); 16-bit and 8-bit floats that NumPy lacks come as words."""
    torch: Any = sys.modules["torch"]
    x = x.detach().cpu()
    name = str(x.dtype).removeprefix("torch.")
    if name == "bfloat16":
        return x.view(torch.int16).numpy().view(np.uint16), name
    if name in _CODE_DTYPES:
        return x.view(torch.uint8).numpy(), name
    return x.numpy(), name


def as_array(x: Any, argument: str) -> tuple[Array, str]:
    """``x`` as an array and the name of its element type; types that NumPy lacks come as unsigned words."""
    if type(x).__module__.partition(".")[0] == "torch":
        return _from_torch(x)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{argument} must not be a masked array: fill or compress it first")
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{argument} is no array: {error}") from None
    name = array.dtype.name if array.dtype.isnative else array.dtype.str
    if name == "bfloat16":
        return array.view(np.uint16), name
    if name in _CODE_DTYPES:
        return array.view(np.uint8), name
    return array, name


def _contiguous(array: Array) -> Array:
    """``array`` itself where C++ can read it in place, else a C-contiguous, aligned copy."""
    return np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])


def as_floats(x: Any, argument: str) -> tuple[Array, str]:
    """A C-contiguous array of floats to encode, halves and bfloat16s as words, and the name of the source type."""
    array, name = as_array(x, argument)
    if name not in _SOURCES:
        raise TypeError(f"{argument} must be {', '.join(_SOURCES[:-1])} or {_SOURCES[-1]}, not {name}")
    if name == "float16":
        array = array.view(np.uint16)
    return _contiguous(array), name


def carried_format(dtype: str) -> Format | None:
    """The format that an element type of that name carries, if it does."""
    return _core.find_format(_CODE_DTYPES[dtype]) if dtype in _CODE_DTYPES else None


def as_codes(x: Any, argument: str, format: str | Format | None, format_argument: str = "format") -> tuple[Array, Format]:
    """A C-contiguous array of codes and its format: the one that the element type carries, else ``format``, else E4M3.

    ValueError where the element type carries another format than ``format``.
    """
    array, name = as_array(x, argument)
    carried = carried_format(name)
    wanted = None if format is None else as_format(format, format_argument)
    if carried is not None:
        if wanted is not None and wanted != carried:
            raise ValueError(f"{format_argument} is {wanted.name}, and {argument} is {carried.name} by its element type, {name}")
        return _contiguous(array), carried
    format = _core.find_format("e4m3") if wanted is None else wanted
    if name != code_dtype(format).name:
        own = "" if format.bits > 8 else f" or one of {', '.join(_CODE_DTYPES)}"
        raise TypeError(f"{argument} must be {code_dtype(format).name} codes{own}, not {name}")
    return _contiguous(array), format


def as_bytes(x: Any, argument: str) -> tuple[Array, Format | None]:
    """A C-contiguous array of codes of one byte, of whatever format, and the format that its element type carries, if any."""
    array, name = as_array(x, argument)
    carried = carried_format(name)
    if carried is None and name != "uint8":
        raise TypeError(f"{argument} must be uint8 codes or one of {', '.join(_CODE_DTYPES)}, not {name}")
    return _contiguous(array), carried


def as_doubles(x: Any, argument: str) -> Array:
    """A C-contiguous array of real numbers, converted to float64."""
    array, name = as_array(x, argument)
    if name == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    elif array.dtype.kind not in "fiu" or array.dtype.itemsize > 8 or name in _CODE_DTYPES:
        raise TypeError(f"{argument} must hold real numbers, not {name}")
    with np.errstate(invalid="ignore"):  # a signalling NaN stays a NaN
        return _contiguous(array.astype(np.float64, copy=False))


def as_float32(x: Any, argument: str, shape: tuple[int, ...] | None = None) -> Array:
    """A C-contiguous float32 array, of ``shape`` if given."""
    return as_floats_of(x, argument, "float32", shape)


def as_floats_of(x: Any, argument: str, dtype: str, shape: tuple[int, ...] | None = None) -> Array:
    """A C-contiguous array of the element type ``dtype``, of ``shape`` if given."""
    array, name = as_array(x, argument)
    if name != dtype:
        raise TypeError(f"{argument} must be {dtype}, not {name}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{argument} must have shape {shape}, not {array.shape}")
    return _contiguous(array)


def check_int(value: Any, argument: str, low: int, high: int) -> int:
    """``value`` as an int from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{argument} must be an int, not {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{argument} must be from {low} to {high}, not {value}")
    return int(value)


def check_name(value: Any, argument: str, instead: str = "") -> str:
    """The name of something, a string; ``instead`` says what else the argument could be."""
    name = value.name if isinstance(value, MmaModel) else value
    if not isinstance(name, str):
        raise TypeError(f"{argument} must be a name (str){instead}, not {type(value).__name__}")
    if not name.isprintable():
        raise ValueError(f"{argument} must be a name of printable characters, not {name!r}")
    return name


def as_format(value: Any, argument: str) -> Format:
    """A format by name, or one that is given as it is."""
    return value if isinstance(value, Format) else _core.find_format(check_name(value, argument, " or a Format"))


def as_profile(value: Any, argument: str) -> Profile:
    """A profile by name, or one that is given as it is."""
    return value if isinstance(value, Profile) else _core.find_profile(check_name(value, argument, " or a Profile"))


def code_dtype(format: Format) -> np.dtype[Any]:
    """The element type of a format's codes."""
    return np.dtype(np.uint8 if format.bits <= 8 else np.uint16)


def check_real(value: Any, argument: str) -> float:
    """``value`` as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{argument} must be a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{argument} is too large for a float") from None


def check_unread(reason: str, **arguments: Any) -> None:
    """ValueError where one of the arguments, which nothing would read, is given: not None. ``reason`` says what it goes with."""
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(f"{' and '.join(given)} {'goes' if len(given) == 1 else 'go'} with {reason}")


def apart(array: Array, out: Array) -> Array:
    """``array`` itself where writing ``out`` changes no element before it is read: where both lie apart, or are the same
    elements; else a copy. Every function with an ``out`` passes its inputs through this. Both are C-contiguous.
    """
    same = array.ctypes.data == out.ctypes.data and array.itemsize == out.itemsize and array.nbytes == out.nbytes
    return array.copy() if not same and np.may_share_memory(array, out) else array


def output(out: Any, shape: tuple[int, ...], dtype: Any, argument: str = "out") -> Array:
    """``out`` if it can take the result as it is, or a new array where it is None."""
    dtype = np.dtype(dtype)
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{argument} must be a NumPy array, not {type(out).__name__}")
    if out.dtype != dtype:
        raise TypeError(f"{argument} must be {dtype.name}, not {out.dtype.name if out.dtype.isnative else out.dtype.str}")
    if out.shape != shape:
        raise ValueError(f"{argument} must have shape {shape}, not {out.shape}")
    if not (out.flags.c_contiguous and out.flags.aligned and out.flags.writeable):
        raise ValueError(f"{argument} must be C-contiguous, aligned and writable")
    return out
