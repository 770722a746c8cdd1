# SPDX-License-Identifier: Apache-2.0
"""Turns the arguments of operators into rows of known types, and makes their results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    as_array,
    as_float32,
    as_kernel_floats,
    check_choice,
    check_threads,
    copied,
    output,
)
from fp8lab.literals import FunctionsName, OutDtypeName

OUT_DTYPES = ("float32", "float16", "bfloat16")
FUNCTIONS = tuple(_core.functions())
#: An array that C++ reads, halves and bfloat16s as words, and the name of its element type.
Typed = tuple[Array, str]


def as_rows(x: Any, argument: str) -> tuple[Typed, tuple[int, ...]]:
    """An array as (rows, columns), and its shape."""
    array, source = as_kernel_floats(x, argument)
    if array.ndim == 0:
        raise ValueError(f"{argument} must have at least one dimension")
    return (flat(array), source), array.shape


def flat(array: Array) -> Array:
    """Any dimensions but the last as one; a number as a row of one."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1] if array.ndim else 1)


def as_vector(x: Any, argument: str, length: int) -> Typed:
    """A parameter of ``length`` elements, as a matrix of one row."""
    array, source = as_kernel_floats(x, argument)
    if array.shape != (length,):
        raise ValueError(f"{argument} must have shape ({length},), the columns of x, not {array.shape}")
    return array.reshape(1, length), source


def as_rows_like(x: Any, argument: str, shape: tuple[int, ...], whose: str) -> Typed:
    """An array of that shape, as (rows, columns)."""
    array, source = as_kernel_floats(x, argument)
    if array.shape != shape:
        raise ValueError(f"{argument} must have shape {shape}, as {whose}, not {array.shape}")
    return flat(array), source


def result_of(out: Any, shape: tuple[int, ...], out_dtype: OutDtypeName | None, source: str) -> tuple[Array, Typed]:
    """The array of a result, and the same as (rows, columns) of words where NumPy or C++ has no such type."""
    dtype = source if out_dtype is None else check_choice(out_dtype, "out_dtype", OUT_DTYPES)
    if dtype == "bfloat16":
        import ml_dtypes

        array = output(out, shape, ml_dtypes.bfloat16)
    else:
        array = output(out, shape, np.dtype(dtype))
    words = as_array(array, "out")[0]
    return array, (flat(words.view(np.uint16) if dtype == "float16" else words), dtype)


def apart_from(typed: Typed, words: Typed, same: bool = True) -> Typed:
    """An input that lies apart from the result, or where ``same`` allows that is the very same elements."""
    array = typed[0]
    if not same and np.may_share_memory(array, words[0]):
        return copied(array), typed[1]
    return apart(array, words[0]), typed[1]


class FunctionsOff(str):
    """``correctly_rounded``, each function off by so many float32 numbers: what bounds are made of."""

    words: int

    def __new__(cls, words: int) -> FunctionsOff:
        self = super().__new__(cls, "correctly_rounded")
        self.words = words
        return self


def options_of(functions: FunctionsName, threads: int | None, elements: int) -> tuple[str, int, int]:
    """The arguments ``functions`` and ``threads`` of a call of so many elements; how many words functions are off."""
    words = functions.words if isinstance(functions, FunctionsOff) else 0
    return str(check_choice(functions, "functions", FUNCTIONS)), check_threads(threads, elements), words


def as_nonempty_rows(x: Any, argument: str = "x") -> tuple[Typed, tuple[int, ...]]:
    """An array as (rows, columns) that has columns, and its shape."""
    array, shape = as_rows(x, argument)
    if shape[-1] == 0:
        raise ValueError(f"{argument} must have columns")
    return array, shape


def as_integers(values: Any, argument: str) -> Array:
    """An array of integers of 8 to 64 bits."""
    array, name = as_array(values, argument)
    if array.dtype.kind not in "iu" or array.dtype.itemsize > 8 or name == "bfloat16":
        raise TypeError(f"{argument} must hold integers, not {name}")
    return array


def check_indices(array: Array, argument: str) -> None:
    """ValueError for integers that are no numbers of experts."""
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < 2**31:
        raise ValueError(f"{argument} must be from 0 to 2**31 - 1")


def of_each_row(values: Any, argument: str, rows: int) -> Array:
    """One float32 for each row."""
    array = as_float32(values, argument)
    if array.size != rows:
        raise ValueError(f"{argument} must have one element for each of the {rows} rows of x, not {array.size}")
    return array.reshape(rows)
