# SPDX-License-Identifier: Apache-2.0
"""Biases of groups of rows, as a mixture of experts has them, and their gradients; ``fp8lab.operators`` has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, as_float32, check_threads, copied
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import Typed, apart_from, as_integers, as_rows_like, result_of
from fp8lab._permutation import _float_rows

__all__ = ["add_group_bias", "group_bias_gradient", "scaled_group_bias_gradient"]


def add_group_bias(
    x: Any, bias: Any, offsets: Any, *, scales: Any = None, threads: int | None = None, out: Array | None = None
) -> Array:
    """Rows plus the bias of their group, or that times a factor of each row.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (rows, columns)
    bias : array of float32, float16 or bfloat16, (groups, columns)
    offsets : array of integers, (groups + 1,)
        As for ``group_bias_gradient``; rows of no group stay as they are.
    scales : array of float32, (rows,), optional
        Row i has ``bias[g] * scales[i]`` added, a multiply-add that is rounded once.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of x's type, (rows, columns), optional

    Returns
    -------
    ndarray of x's type, (rows, columns)
        Sums of float32, rounded to x's type.

    Raises
    ------
    TypeError, ValueError
        As ``group_bias_gradient``.

    Source: Transformer Engine 2.20, ``common/gemm/cublaslt_grouped_gemm.cu``, whose kernel adds to a product that is
    rounded already.
    """
    rows, starts = _groups(x, offsets, "x")
    shape = rows[0].shape
    biases = as_rows_like(bias, "bias", (len(starts) - 1, shape[1]), "groups of offsets and columns of x")
    factors = np.empty(0, np.float32) if scales is None else as_float32(scales, "scales", (shape[0],))
    result, words = result_of(out, shape, None, rows[1])
    biases, own = apart_from(biases, words, same=False), apart_from((factors, "float32"), words, same=False)[0]
    number = check_threads(threads, rows[0].size)
    _core.add_group_bias(apart_from(rows, words), biases, starts, own, words, number)
    return result


def group_bias_gradient(grad: Any, offsets: Any, *, dbias: Any = None, threads: int | None = None) -> Array:
    """The sum of the rows of each group: the gradient of its bias.

    Rows are added in float32, in 32 blocks that follow each other, and so are pairs of blocks. The kernel adds in an
    order that depends on Triton's release, the alignment of rows and the moments of its atomic additions.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16, (rows, columns)
    offsets : array of integers, (groups + 1,)
        Group g has rows ``offsets[g]`` to ``offsets[g + 1]``; rows behind the last group belong to none.
    dbias : array of float32, (groups, columns), optional
        What the sums are added to; it stays as it is.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Returns
    -------
    ndarray of float32, (groups, columns)
        Every NaN is the word 7FFFFFFF.

    Raises
    ------
    TypeError, ValueError
        For other element types and shapes, and offsets that do not ascend from 0 or more to at most the number of rows.

    Source: Transformer Engine 2.20, ``common/triton/grouped_dbias_dscales.py``.
    """
    rows, starts = _groups(grad, offsets)
    made = _total(dbias, "dbias", (len(starts) - 1, rows[0].shape[1]))
    _core.group_bias_gradient(rows, starts, made.reshape(-1), check_threads(threads, rows[0].size))
    return made


def scaled_group_bias_gradient(
    grad: Any,
    scales: Any,
    bias: Any,
    offsets: Any,
    *,
    dbias: Any = None,
    dscales: Any = None,
    threads: int | None = None,
) -> tuple[Array, Array]:
    """The gradients of the biases of groups, and of what they were multiplied with in each row.

    Parameters
    ----------
    grad, offsets, dbias, threads
        As for ``group_bias_gradient``.
    scales : array of float32, (rows,)
        Row i of the output had its group's bias times ``scales[i]``.
    bias : array of float32, float16 or bfloat16, (groups, columns)
    dscales : array of float32, (rows,), optional
        What the gradients of scales are added to; it stays as it is.

    Returns
    -------
    dbias : ndarray of float32, (groups, columns)
        The sums of ``grad[i] * scales[i]``, of which each multiply-add is rounded once.
    dscales : ndarray of float32, (rows,)
        The sums of ``grad[i] * bias[g]``, of which each product is rounded; 0, or what was given, in rows of no group.

    Raises
    ------
    TypeError, ValueError
        As ``group_bias_gradient``.

    Source: as of ``group_bias_gradient``.
    """
    rows, starts = _groups(grad, offsets)
    shape = (len(starts) - 1, rows[0].shape[1])
    factors = as_float32(scales, "scales", (rows[0].shape[0],))
    biases = as_rows_like(bias, "bias", shape, "groups of offsets and columns of grad")
    made = _total(dbias, "dbias", shape)
    of_scales = _total(dscales, "dscales", (rows[0].shape[0],))
    number = check_threads(threads, rows[0].size)
    _core.scaled_group_bias_gradient(rows, factors, biases, starts, made.reshape(-1), of_scales, number)
    return made, of_scales


def _groups(x: Any, offsets: Any, argument: str = "grad") -> tuple[Typed, Array]:
    rows = _float_rows(x, argument)
    array = as_integers(offsets, "offsets")
    if array.ndim != 1 or array.size < 2:
        raise ValueError(f"offsets must have shape (groups + 1,), and there is at least one group, not {array.shape}")
    most = rows[0].shape[0]
    if int(array[0]) < 0 or bool((array[1:] < array[:-1]).any()) or int(array[-1]) > most:
        raise ValueError(f"offsets must ascend from 0 or more to at most the {most} rows of {argument}")
    return rows, copied(array, np.int64)


def _total(given: Any, argument: str, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.float32) if given is None else copied(as_float32(given, argument, shape))


_guard(__name__, __all__)
