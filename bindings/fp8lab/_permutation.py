# SPDX-License-Identifier: Apache-2.0
"""Rows dealt out to experts, brought back and padded; ``fp8lab.operators`` offers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    as_array,
    as_float32,
    as_kernel_floats,
    check_int,
    check_list,
    check_threads,
    contiguous,
    copied,
)
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import Typed, apart_from, as_integers, check_indices, result_of

__all__ = ["moe_permutation_map", "moe_permute", "moe_unpermute", "moe_unpermute_backward", "pad_rows", "unpad_rows"]


def _row_bytes(x: Any, argument: str) -> tuple[Array, Array]:
    """An array of rows of any element type, and its rows as bytes."""
    array = np.ascontiguousarray(as_array(x, argument)[0])
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.hasobject:
        raise ValueError(f"{argument} must have two dimensions, (rows, columns), of numbers, not {array.shape}")
    return array, array.view(np.uint8)


def _rows_like(x: Any, argument: str, rows: int) -> tuple[Array, Array, Array]:
    """What ``_row_bytes`` gives, and a new array of as many rows of x's type as bytes, still to be viewed."""
    array, bytes_of = _row_bytes(x, argument)
    return array, bytes_of, np.zeros((rows, bytes_of.shape[1]), np.uint8)


def _typed_rows(x: Any, made: Array) -> Array:
    """Rows as bytes in x's element type; those that NumPy lacks are ml_dtypes'."""
    name = as_array(x, "x")[1]
    dtype = as_array(x, "x")[0].dtype
    if name == "bfloat16":
        import ml_dtypes

        dtype = np.dtype(ml_dtypes.bfloat16)
    elif name.startswith("float8"):
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, name))
    return made.view(dtype)


def moe_permutation_map(experts: Any, *, kept: int | None = None) -> Array:
    """Where the rows of tokens lie when they are dealt out to experts: in the order of experts, then of tokens.

    Parameters
    ----------
    experts : array of integers, (tokens, k)
        The experts of each token.
    kept : int, optional
        Rows from there on are dropped.

    Returns
    -------
    ndarray of int32, (k, tokens)
        The row of each token for each of its experts, -1 where it is dropped.

    Source: Transformer Engine 2.20, ``common/permutation/permutation.cu``, whose bits this and the functions that take
    the map give.
    """
    array = as_integers(experts, "experts")
    if array.ndim != 2:
        raise ValueError(f"experts must have two dimensions, (tokens, k), not {array.ndim}")
    check_indices(array, "experts")
    most = array.size if kept is None else check_int(kept, "kept", 0, 2**31 - 1)
    out = np.empty(array.shape[::-1], np.int32)
    _core.permutation_map(copied(array, np.int32), array.shape[0], most, out)
    return out


def _map(map: Any, tokens: int | None, rows: int | None) -> Array:
    array, name = as_array(map, "map")
    if name != "int32":
        raise TypeError(f"map must be int32, not {name}")
    if array.ndim != 2 or (tokens is not None and array.shape[1] != tokens):
        raise ValueError(
            f"map must have shape (k, {'tokens' if tokens is None else f'{tokens} tokens of x'}), not {array.shape}"
        )
    if array.size and (int(array.min()) < -1 or (rows is not None and int(array.max()) >= rows)):
        raise ValueError(f"map must hold rows of x below {rows}, or -1")
    return contiguous(array)


def moe_permute(x: Any, map: Any, *, threads: int | None = None) -> Array:
    """Rows dealt out to experts: row ``map[k, token]`` of the result is row ``token`` of x.

    Parameters
    ----------
    x : array of any numbers, (tokens, columns)
    map : array of int32, (k, tokens)
        As ``moe_permutation_map`` gives it.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Returns
    -------
    ndarray of x's type, (rows, columns)
        As many rows as are not dropped. The gradient is ``moe_unpermute`` without probabilities.

    Source: as of ``moe_permutation_map``.
    """
    array, _ = _row_bytes(x, "x")
    own = _map(map, array.shape[0], None)
    rows = int(own.max(initial=-1)) + 1
    if rows > own.size:
        raise ValueError(f"map must hold rows below {own.size}, its size, or -1")
    _, bytes_of, made = _rows_like(x, "x", rows)
    _core.permute_rows(bytes_of, bytes_of.shape[1], own, made, check_threads(threads, made.size))
    return _typed_rows(x, made)


def _float_rows(x: Any, argument: str) -> Typed:
    array, source = as_kernel_floats(x, argument)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{argument} must have two dimensions, (rows, columns), not {array.shape}")
    return array, source


def moe_unpermute(
    x: Any, map: Any, probabilities: Any = None, *, threads: int | None = None, out: Array | None = None
) -> Array:
    """The sum of each token's rows, each times its probability.

    The arithmetic is that of x's type: probabilities are rounded to it, the first product too, and each further product
    with its sum, which is fused.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (rows, columns)
    map : array of int32, (k, tokens)
        As ``moe_permutation_map`` gives it.
    probabilities : array of float32, (tokens, k), optional
        Without them rows are added as they are.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of x's type, (tokens, columns), optional

    Returns
    -------
    ndarray of x's type, (tokens, columns)

    Source: as of ``moe_permutation_map``.
    """
    rows = _float_rows(x, "x")
    own = _map(map, None, rows[0].shape[0])
    shape = own.shape[::-1]
    weights = np.empty(0, np.float32) if probabilities is None else as_float32(probabilities, "probabilities", shape)
    number = check_threads(threads, rows[0].size)
    result, words = result_of(out, (shape[0], rows[0].shape[1]), None, rows[1])
    given, own, weights = apart_from(rows, words, False), apart(own, words[0]), apart(weights, words[0])
    _core.unpermute_rows(given, rows[0].shape[1], own, weights, words, number)
    return result


def moe_unpermute_backward(
    grad: Any, x: Any, map: Any, probabilities: Any, *, threads: int | None = None
) -> tuple[Array, Array]:
    """The gradients of ``moe_unpermute`` by x and by the probabilities.

    Parameters
    ----------
    grad : array of x's type, (tokens, columns)
    x, map, probabilities, threads
        As for ``moe_unpermute``.

    Returns
    -------
    dx : ndarray of x's type, (rows, columns)
        grad times the probability, in x's type; 0 in rows that the map does not have.
    dprobabilities : ndarray of float32, (tokens, k)
        The sum of grad x over a row: products of 16-bit types are rounded to them, those of float32 fused; element j is
        added to lane j / n % 32, n = 16 / bytes of an element, and lanes are added in pairs.

    Source: as of ``moe_permutation_map``.
    """
    rows = _float_rows(x, "x")
    own = _map(map, None, rows[0].shape[0])
    gradient = _float_rows(grad, "grad")
    shape = own.shape[::-1]
    if gradient[1] != rows[1]:
        raise TypeError(f"grad must be {rows[1]}, as x, not {gradient[1]}")
    if gradient[0].shape != (shape[0], rows[0].shape[1]):
        wanted = (shape[0], rows[0].shape[1])
        raise ValueError(f"grad must have shape {wanted}, tokens of map and columns of x, not {gradient[0].shape}")
    weights = as_float32(probabilities, "probabilities", shape)
    number = check_threads(threads, rows[0].size)
    dx, words = result_of(None, rows[0].shape, None, rows[1])
    words[0].fill(0)
    of_weights = np.zeros(shape, np.float32)
    _core.unpermute_rows_backward(gradient, rows, rows[0].shape[1], own, weights, words, of_weights, number)
    return dx, of_weights


def _counts(counts: Any, multiple: Any) -> tuple[list[int], int, int]:
    """The rows of groups, the multiple, and the rows of all groups after padding."""
    known = check_list(counts, "counts", lambda value, name: check_int(value, name, 0, 2**40))
    size = check_int(multiple, "multiple", 1, 2**40)
    return known, size, sum(-(-count // size) * size for count in known)


def pad_rows(x: Any, counts: Any, multiple: int) -> Array:
    """Groups of rows filled up with zeros to a multiple each, as GEMMs of FP8 need it.

    Parameters
    ----------
    x : array of any numbers, (rows, columns)
    counts : list of int
        The rows of each group.
    multiple : int

    Returns
    -------
    ndarray of x's type

    Source: Transformer Engine 2.20, ``common/util/padding.cu``.
    """
    known, size, rows = _counts(counts, multiple)
    array, bytes_of, made = _rows_like(x, "x", rows)
    if array.shape[0] != sum(known):
        raise ValueError(f"x must have {sum(known)} rows, the sum of counts, not {array.shape[0]}")
    _core.pad_rows(False, bytes_of, bytes_of.shape[1], known, size, made)
    return _typed_rows(x, made)


def unpad_rows(x: Any, counts: Any, multiple: int) -> Array:
    """The rows without those that ``pad_rows`` added, of the same counts and multiple.

    Parameters
    ----------
    x : array of any numbers, (rows, columns)
    counts, multiple
        As for ``pad_rows``.

    Returns
    -------
    ndarray of x's type

    Source: as of ``pad_rows``.
    """
    known, size, rows = _counts(counts, multiple)
    array, bytes_of, made = _rows_like(x, "x", sum(known))
    if array.shape[0] != rows:
        raise ValueError(f"x must have {rows} rows, the counts up to the next multiple, not {array.shape[0]}")
    _core.pad_rows(True, bytes_of, bytes_of.shape[1], known, size, made)
    return _typed_rows(x, made)


_guard(__name__, __all__)
