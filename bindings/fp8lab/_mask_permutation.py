# SPDX-License-Identifier: Apache-2.0
"""Rows dealt out to the experts of a mask, brought back, and sorted by chunks; ``fp8lab.operators`` offers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    as_array,
    as_kernel_floats,
    check_bool,
    check_int,
    check_threads,
    contiguous,
    copied,
)
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import Typed, apart_from, as_integers, result_of
from fp8lab._permutation import _float_rows, _row_bytes, _rows_like, _typed_rows

__all__ = [
    "moe_chunk_map",
    "moe_mask_map",
    "moe_mask_permute",
    "moe_mask_permute_probabilities",
    "moe_mask_unpermute",
    "moe_mask_unpermute_backward",
    "moe_mask_unpermute_probabilities",
    "moe_sort_chunks",
]

#: What C++ takes: the map, the number of experts and the offsets.
_Rows = tuple[Array, int, Array]
_MOST_ROWS = 2**31 - 1


def moe_mask_map(mask: Any) -> Array:
    """Where the rows of tokens lie when they are dealt out to the experts that a mask names: in the order of experts,
    then of tokens.

    Parameters
    ----------
    mask : array of integers or bool, (tokens, experts)
        1 where a token goes to an expert, and 0 elsewhere.

    Returns
    -------
    ndarray of int32, (tokens, 2 experts + 1)
        Of each token its rows, the largest first, from entry 0 on; their experts from entry ``experts`` on; and last
        how many they are. The entries between, which the kernel leaves as they are, are 0.

    Source: Transformer Engine 2.20, ``common/triton/permutation.py``, whose bits this and the functions that take the
    map give, but for the order of the sums of ``moe_mask_unpermute_backward``.
    """
    array, name = as_array(mask, "mask")
    array = array.view(np.uint8) if name == "bool" else as_integers(mask, "mask")
    if array.ndim != 2:
        raise ValueError(f"mask must have two dimensions, (tokens, experts), not {array.ndim}")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) <= 1:
        raise ValueError("mask must be of 0 and 1")
    tokens, experts = array.shape
    out = np.zeros((tokens, 2 * experts + 1), np.int32)
    _core.mask_map(copied(array, np.uint8), tokens, out)
    return out


def _at(map: Any, pad_offsets: Any, tokens: int | None = None) -> _Rows:
    array, name = as_array(map, "map")
    if name != "int32":
        raise TypeError(f"map must be int32, not {name}")
    if array.ndim != 2 or array.shape[1] % 2 == 0 or (tokens is not None and array.shape[0] != tokens):
        wanted = "tokens" if tokens is None else f"{tokens} tokens"
        raise ValueError(f"map must have shape ({wanted}, 2 experts + 1), not {array.shape}")
    experts = (array.shape[1] - 1) // 2
    offsets = np.empty(0, np.int64)
    if pad_offsets is not None:
        offsets = as_integers(pad_offsets, "pad_offsets")
        if offsets.shape != (experts,):
            raise ValueError(f"pad_offsets must have shape ({experts},), the experts of map, not {offsets.shape}")
        if experts and not 0 <= int(offsets.min()) <= int(offsets.max()) <= _MOST_ROWS:
            raise ValueError(f"pad_offsets must be from 0 to {_MOST_ROWS}")
        offsets = copied(offsets, np.int64)
    return contiguous(array), experts, offsets


def _probabilities(probabilities: Any, at: _Rows) -> Typed:
    array, source = as_kernel_floats(probabilities, "probabilities")
    shape = (at[0].shape[0], at[1])
    if array.shape != shape:
        raise ValueError(f"probabilities must have shape {shape}, tokens and experts of map, not {array.shape}")
    return array, source


def _probabilities_or_none(probabilities: Any, at: _Rows) -> Typed:
    none = (np.empty((0, 0), np.float32), "float32")
    return none if probabilities is None else _probabilities(probabilities, at)


def moe_mask_permute(
    x: Any,
    map: Any,
    *,
    rows: int,
    probabilities: Any = None,
    pad_offsets: Any = None,
    threads: int | None = None,
) -> Array:
    """Rows dealt out to experts: row ``map[token, k]`` of the result is row ``token`` of x.

    Parameters
    ----------
    x : array of any numbers, (tokens, columns)
        Codes and scales of FP8 rows, too, each in a call of its own.
    map : array of int32, (tokens, 2 experts + 1)
        As ``moe_mask_map`` gives it.
    rows : int
        The rows of the result; those to which none goes are 0.
    probabilities : array of float32, float16 or bfloat16, (tokens, experts), optional
        Where a probability is 0, zeros go to the row.
    pad_offsets : array of integers, (experts,), optional
        Rows by which those of each expert lie further down, where these are filled up to a multiple.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Returns
    -------
    ndarray of x's type, (rows, columns)
        The gradient is ``moe_mask_unpermute`` without probabilities.

    Source: as of ``moe_mask_map``.
    """
    count = check_int(rows, "rows", 0, _MOST_ROWS)
    array, _ = _row_bytes(x, "x")
    at = _at(map, pad_offsets, array.shape[0])
    weights = _probabilities_or_none(probabilities, at)
    _, bytes_of, made = _rows_like(x, "x", count)
    _core.permute_rows_by_mask(bytes_of, bytes_of.shape[1], at, weights, made, check_threads(threads, made.size))
    return _typed_rows(x, made)


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def moe_mask_permute_probabilities(probabilities: Any, map: Any, *, rows: int, pad_offsets: Any = None) -> Array:
    """The probabilities of the rows that ``moe_mask_permute`` deals out.

    Parameters
    ----------
    probabilities : array of float32, float16 or bfloat16, (tokens, experts)
    map, rows, pad_offsets
        As for ``moe_mask_permute``.

    Returns
    -------
    ndarray of the type of probabilities, (rows,)
        0 for rows that no token has.

    Source: as of ``moe_mask_map``.
    """
    count = check_int(rows, "rows", 0, _MOST_ROWS)
    at = _at(map, pad_offsets)
    array, source = _probabilities(probabilities, at)
    result, words = result_of(None, (count,), None, source)
    words[0].fill(0)
    _core.permute_probabilities_by_mask(False, _bytes(array), array.itemsize, at, _bytes(words[0]))
    return result


def moe_mask_unpermute_probabilities(probabilities: Any, map: Any, *, pad_offsets: Any = None) -> Array:
    """The probability of each row at (token, expert): the gradient of ``moe_mask_permute_probabilities``.

    Parameters
    ----------
    probabilities : array of float32, float16 or bfloat16, (rows,)
    map, pad_offsets
        As for ``moe_mask_permute``.

    Returns
    -------
    ndarray of the type of probabilities, (tokens, experts)
        0 where a token does not go to an expert.

    Source: as of ``moe_mask_map``.
    """
    at = _at(map, pad_offsets)
    array, source = as_kernel_floats(probabilities, "probabilities")
    if array.ndim != 1:
        raise ValueError(f"probabilities must have one dimension, (rows,), not {array.ndim}")
    result, words = result_of(None, (at[0].shape[0], at[1]), None, source)
    _core.permute_probabilities_by_mask(True, _bytes(array), array.itemsize, at, _bytes(words[0]))
    return result


def moe_mask_unpermute(
    x: Any,
    map: Any,
    probabilities: Any = None,
    *,
    pad_offsets: Any = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The sum of each token's rows, each times its probability: in float32, in the order of the map and from +0 on,
    each product fused into its addition, and rounded once to x's type.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (rows, columns)
    map : array of int32, (tokens, 2 experts + 1)
        As ``moe_mask_map`` gives it.
    probabilities : array of float32, float16 or bfloat16, (tokens, experts), optional
        Without them rows are added as they are.
    pad_offsets, threads
        As for ``moe_mask_permute``.
    out : ndarray of x's type, (tokens, columns), optional

    Returns
    -------
    ndarray of x's type, (tokens, columns)

    Source: as of ``moe_mask_map``.
    """
    given = _float_rows(x, "x")
    at = _at(map, pad_offsets)
    weights = _probabilities_or_none(probabilities, at)
    number = check_threads(threads, given[0].size)
    result, words = result_of(out, (at[0].shape[0], given[0].shape[1]), None, given[1])
    given, weights = apart_from(given, words, False), apart_from(weights, words, False)
    own = (apart(at[0], words[0]), at[1], apart(at[2], words[0]))
    _core.unpermute_rows_by_mask(given, given[0].shape[1], own, weights, words, number)
    return result


def moe_mask_unpermute_backward(
    grad: Any, x: Any, map: Any, probabilities: Any, *, pad_offsets: Any = None, threads: int | None = None
) -> tuple[Array, Array]:
    """The gradients of ``moe_mask_unpermute`` by x and by the probabilities.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16, (tokens, columns)
    x, map, probabilities, pad_offsets, threads
        As for ``moe_mask_unpermute``.

    Returns
    -------
    dx : ndarray of grad's type, (rows, columns)
        grad times the probability, rounded to float32 and then to grad's type; 0 in rows that the map does not have.
    dprobabilities : ndarray of the type of probabilities, (tokens, experts)
        The sum of x grad over a row, each product fused, and 0 where a token does not go to an expert: element j is
        added to sum j % 1024, then sum i to sum i + 512, of these i to i + 256, and so on. The kernel's tuning takes 64
        to 4096 sums, so a GPU has another order.

    Source: as of ``moe_mask_map``.
    """
    given = _float_rows(x, "x")
    at = _at(map, pad_offsets)
    gradient = _float_rows(grad, "grad")
    wanted = (at[0].shape[0], given[0].shape[1])
    if gradient[0].shape != wanted:
        raise ValueError(f"grad must have shape {wanted}, tokens of map and columns of x, not {gradient[0].shape}")
    weights = _probabilities(probabilities, at)
    number = check_threads(threads, given[0].size)
    dx, words = result_of(None, given[0].shape, None, gradient[1])
    words[0].fill(0)
    of_weights, own = result_of(None, weights[0].shape, None, weights[1])
    _core.unpermute_rows_by_mask_backward(gradient, given, wanted[1], at, weights, words, own, number)
    return dx, of_weights


def moe_chunk_map(counts: Any, order: Any, *, tokens: int | None = None) -> Array:
    """The row to which each row goes where chunks of rows are put into another order.

    Parameters
    ----------
    counts : array of integers, (chunks,)
        The rows of each chunk.
    order : array of integers, (chunks,)
        The chunk that comes first, the one after it, and so on.
    tokens : int, optional
        All rows, the sum of counts if left out; those behind the chunks stay where they are.

    Returns
    -------
    ndarray of int32, (tokens,)

    Source: as of ``moe_mask_map``.
    """
    known = {}
    for argument, values in (("counts", counts), ("order", order)):
        array = as_integers(values, argument)
        if array.ndim != 1:
            raise ValueError(f"{argument} must have one dimension, (chunks,), not {array.ndim}")
        if array.size and not 0 <= int(array.min()) <= int(array.max()) <= _MOST_ROWS:
            raise ValueError(f"{argument} must be from 0 to {_MOST_ROWS}")
        known[argument] = copied(array, np.int64)
    if len(known["order"]) != len(known["counts"]):
        raise ValueError(f"order must have {len(known['counts'])} chunks, as counts, not {len(known['order'])}")
    total = int(known["counts"].sum()) if tokens is None else tokens
    rows = check_int(total, "the sum of counts" if tokens is None else "tokens", 0, _MOST_ROWS)
    if int(known["counts"].sum()) > rows:
        raise ValueError(f"tokens must be at least {int(known['counts'].sum())}, the sum of counts, not {rows}")
    out = np.empty(rows, np.int32)
    _core.chunk_map(known["counts"], known["order"], rows, out)
    return out


def moe_sort_chunks(x: Any, map: Any, *, back: bool = False, threads: int | None = None) -> Array:
    """Rows in the order of a map: row i of x is row ``map[i]`` of the result.

    Parameters
    ----------
    x : array of any numbers, (tokens, columns)
    map : array of int32, (tokens,)
        As ``moe_chunk_map`` gives it: each row once.
    back : bool
        Row ``map[i]`` of x is row i of the result: the way back, and the gradient.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Returns
    -------
    ndarray of x's type and shape

    Source: as of ``moe_mask_map``.
    """
    is_back = check_bool(back, "back")
    array, bytes_of, made = _rows_like(x, "x", len(_row_bytes(x, "x")[0]))
    own, name = as_array(map, "map")
    if name != "int32":
        raise TypeError(f"map must be int32, not {name}")
    if own.shape != array.shape[:1]:
        raise ValueError(f"map must have shape {array.shape[:1]}, the rows of x, not {own.shape}")
    number = check_threads(threads, made.size)
    _core.sort_chunks(is_back, bytes_of, bytes_of.shape[1], contiguous(own), made, number)
    return _typed_rows(x, made)


_guard(__name__, __all__)
