# SPDX-License-Identifier: Apache-2.0
"""The GELU that Transformer Engine has PyTorch compile; ``fp8lab.operators`` offers it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, as_float32, check_bool, check_int, check_threads
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import apart_from, as_rows, as_rows_like, result_of
from fp8lab.literals import OutDtypeName

__all__ = ["compiled_gelu", "compiled_gelu_backward", "has_one_shape_sums"]

_MOST = 2**31 - 1


def _bias_of(bias: Any, columns: int) -> Array:
    return np.empty(0, np.float32) if bias is None else as_float32(bias, "bias", (columns,))


def compiled_gelu(
    x: Any,
    bias: Any = None,
    *,
    out_dtype: OutDtypeName | None = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The GELU (by tanh) of x + bias as PyTorch's compiler makes it of Transformer Engine's function on a Hopper chip.

    Layers without FP8 have it. Every operation is in float32, and the result is rounded once: for ``y = x + bias``,
    ``(y / 2) (1 + t)`` with ``t = tanhf((0.79788456 y) fma(0.044715 y, y, 1))``, whose tanhf is CUDA's.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (..., columns)
    bias : array_like of float32, (columns,), optional
        Numbers of x's type; nothing rounds them.
    out_dtype, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape

    Raises
    ------
    TypeError, ValueError
        For other element types and shapes.

    Source: Transformer Engine 2.20, ``pytorch/jit.py``; an H200's words (PyTorch 2.11, Triton 3.6) for what is fused.
    """
    array, shape = as_rows(x, "x")
    result, words = result_of(out, shape, out_dtype, array[1])
    given = _bias_of(bias, shape[-1])
    _core.compiled_gelu(apart_from(array, words), given, words, check_threads(threads, array[0].size))
    return result


def compiled_gelu_backward(
    grad: Any,
    x: Any,
    bias: Any = None,
    *,
    bias_gradient: bool = False,
    for_one_shape: bool = False,
    out_dtype: OutDtypeName | None = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Any:
    """The gradient by x of ``compiled_gelu``, as PyTorch's compiler makes it.

    ``((y / 2) (s p) + (1 + t) / 2) grad`` with ``s = fma(-t, t, 1)`` and ``p = fma(0.1070322243 y, y, 0.79788456)``.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16, of x's shape
    x, bias
        As for ``compiled_gelu``.
    bias_gradient : bool
        Whether the sum over rows is wanted, in the order of the compiled kernel. Code for any shape adds the rounded
        gradient: row i to place i modulo 64, and the places as a block of two warps does (an H200's words for 64 to
        1024 rows of 512 and 1024 columns).
    for_one_shape : bool
        Whether the code is compiled for this shape alone, as that of a function's first call is. It adds what is not
        rounded, up to 128 rows, with ``fma(slope, grad, sum)``; of more rows it adds 128 at a time, rounded, and then
        these sums. ``has_one_shape_sums`` says for which shapes that is known.
    out_dtype, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape; with bias_gradient a tuple of it and of an ndarray of float32, (columns,)

    Raises
    ------
    TypeError, ValueError
        For other element types and shapes, and ``for_one_shape`` where ``has_one_shape_sums`` is false or x is float16.

    Source: as of ``compiled_gelu``.
    """
    wants_sums = check_bool(bias_gradient, "bias_gradient")
    is_special = check_bool(for_one_shape, "for_one_shape")
    if is_special and not wants_sums:
        raise ValueError("for_one_shape is about the sums: it needs bias_gradient=True")
    array, shape = as_rows(x, "x")
    gradient = as_rows_like(grad, "grad", shape, "x")
    result, words = result_of(out, shape, out_dtype, array[1])
    given = _bias_of(bias, shape[-1])
    sums = np.zeros(shape[-1] if wants_sums else 0, np.float32)
    gradient, array = apart_from(gradient, words), apart_from(array, words)
    count = check_threads(threads, array[0].size)
    _core.compiled_gelu_backward(gradient, array, given, words, sums, is_special, count)
    return (result, sums) if wants_sums else result


def has_one_shape_sums(rows: int, columns: int) -> bool:
    """Whether it is known how code that is compiled for one shape alone adds the gradient of a bias.

    It is known of 64, 128, 256, ... or 4096 rows and 128, 256, ... or 4096 columns. All words of an H200 for float32
    and bfloat16 are those of ``compiled_gelu_backward(..., bias_gradient=True, for_one_shape=True)``. With fewer rows
    PyTorch takes the fastest of several kernels, which another run may not find.

    Parameters
    ----------
    rows, columns : int
        The shape, 0 or more.

    Raises
    ------
    TypeError, ValueError
        For what is no such number.
    """
    sizes = (check_int(rows, "rows", 0, _MOST), check_int(columns, "columns", 0, _MOST))
    return _core.has_one_shape_sums(*sizes)


_guard(__name__, __all__)
