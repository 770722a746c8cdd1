# SPDX-License-Identifier: Apache-2.0
"""The router of a mixture of experts and its auxiliary loss; ``fp8lab.operators`` offers them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    as_array,
    as_float32,
    check_bool,
    check_choice,
    check_int,
    check_real,
    check_unread,
    copied,
    output,
)
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import apart_from, as_integers, as_nonempty_rows, check_indices, options_of, result_of
from fp8lab.literals import FunctionsName, OutDtypeName, ScoreName

__all__ = [
    "RoutedTokens",
    "moe_aux_loss",
    "moe_aux_loss_backward",
    "moe_bias_histogram",
    "moe_routing_map",
    "moe_scores",
    "moe_scores_backward",
    "moe_topk",
    "moe_topk_backward",
]

_SCORES = tuple(_core.router_scores())
_MOST = 2**31 - 1


class RoutedTokens(NamedTuple):
    """What ``moe_topk`` gives."""

    probabilities: Array
    """Of the logits' shape, 0 where an expert is not chosen."""
    experts: Array
    """int32, (..., topk): the experts of each token in the order in which they are chosen."""
    saved: Array
    """float32, of the logits' shape: what the gradient needs."""
    cutoff: Array | None
    """float32, one number for each token, where it was asked for: the score with bias of the expert that comes next."""


def _parameters(
    columns: int,
    whose: str,
    topk: Any,
    score: Any,
    softmax_first: Any,
    scaling: Any,
    groups: tuple[Any, Any],
    radix_from: Any,
) -> tuple[tuple[int, int, int, int], tuple[str, bool, float]]:
    """What C++ takes of the arguments that say how to choose; it checks the groups."""
    kind = check_choice(score, "score", _SCORES)
    if kind != "softmax":
        check_unread("the score 'softmax'", softmax_first=softmax_first)
    chosen = check_int(topk, "topk", 1, _MOST)
    if chosen > columns:
        raise ValueError(f"topk must be from 1 to the {columns} experts of {whose}, not {chosen}")
    if (groups[0] is None) != (groups[1] is None):
        raise ValueError("groups and group_topk go together")
    sizes = tuple(
        0 if one is None else check_int(one, name, 1, _MOST) for one, name in zip(groups, ("groups", "group_topk"))
    )
    first = softmax_first is not None and check_bool(softmax_first, "softmax_first")
    threshold = check_int(radix_from, "radix_from", 0, _MOST)
    return (chosen, sizes[0], sizes[1], threshold), (kind, first, check_real(scaling, "scaling"))


def moe_topk(
    logits: Any,
    topk: int,
    *,
    score: ScoreName = "softmax",
    softmax_first: bool | None = None,
    bias: Any = None,
    groups: int | None = None,
    group_topk: int | None = None,
    scaling: float = 1.0,
    cutoff: bool = False,
    radix_from: int = 16,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> RoutedTokens:
    """The experts of each token and their probabilities.

    scaling s of softmax, and of ``sigmoid`` and ``sqrtsoftplus`` scaling (s / (sum(s) + 1e-20)), or scaling s where
    topk is 1. Sums are made in the kernel's own order: lane l of 32 has elements l, l + 32, and so on, and lanes are
    added by exchange with lane l ^ 16, l ^ 8, l ^ 4, l ^ 2 and l ^ 1.

    Of equal scores the naive selection takes the one that comes first by the reversed bits of its lane, then by number;
    the radix one the first. The order of ``experts`` is that of the kernel: by score; of the radix selection those
    above the least one, then those equal to it, by number. Where only -infinity or NaN is left, topk up to 8 takes
    expert 0 again.

    Parameters
    ----------
    logits : array of float32, float16 or bfloat16, (..., experts)
    topk : int
    score : str
        ``softmax``, ``sigmoid`` or ``sqrtsoftplus``: sqrt(log1p(exp(x))), above 20 sqrt(x).
    softmax_first : bool, optional
        Whether softmax is of all logits, before the choice; else it is of those that are chosen.
    bias : array of float32, (experts,), optional
        Added to scores of ``sigmoid`` and ``sqrtsoftplus`` while experts are compared.
    groups, group_topk : int, optional
        Experts lie in ``groups`` of one size, and are chosen from ``group_topk`` of them: those with the largest sums
        of their topk / group_topk best scores.
    scaling : float
    cutoff : bool
        Whether the score of the expert that comes next is wanted. Then topk + 1 are chosen, and the least one is
        dropped, of equal ones that with the largest number.
    radix_from : int
        The radix selection serves from this topk on, for up to 8160 experts: ``NVTE_RADIX_TOPK_THRESHOLD``.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    RoutedTokens

    Source: Transformer Engine 2.20, ``common/fused_router``.
    """
    array, shape = as_nonempty_rows(logits, "logits")
    rows, columns = array[0].shape
    parameters = _parameters(columns, "logits", topk, score, softmax_first, scaling, (groups, group_topk), radix_from)
    own = np.empty(0, np.float32) if bias is None else as_float32(bias, "bias")
    if bias is not None and own.shape != (columns,):
        raise ValueError(f"bias must have shape ({columns},), the columns of logits, not {own.shape}")
    next_scores = np.empty(rows if check_bool(cutoff, "cutoff") else 0, np.float32)
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, shape, out_dtype, array[1])
    experts = np.empty((rows, parameters[0][0]), np.int32)
    saved = np.empty((rows, columns), np.float32)
    given = apart_from(array, words, False)
    _core.moe_topk(*parameters, given, apart(own, words[0]), words, experts, saved, next_scores, options)
    return RoutedTokens(
        result, experts.reshape(*shape[:-1], parameters[0][0]), saved.reshape(shape),
        next_scores.reshape(shape[:-1]) if cutoff else None,
    )  # fmt: skip


def _experts(experts: Any, rows: int, argument: str = "experts") -> Array:
    array = as_integers(experts, argument)
    if array.ndim == 0 or array.size // max(array.shape[-1], 1) != rows:
        raise ValueError(f"{argument} must have topk numbers for each of the {rows} tokens, not shape {array.shape}")
    check_indices(array, argument)
    return copied(array, np.int32).reshape(rows, array.shape[-1])


def moe_routing_map(experts: Any, count: int, *, bits: bool = False) -> Array:
    """Which experts each token goes to, as a table.

    Parameters
    ----------
    experts : array of integers, (..., topk)
        As ``moe_topk`` gives them.
    count : int
        The number of experts.
    bits : bool
        Whether a byte has 8 experts, the first one in its lowest bit.

    Returns
    -------
    ndarray of bool, (..., count), or with bits of uint8, (..., ceil(count / 8))

    Source: as of ``moe_topk``.
    """
    shape = as_array(experts, "experts")[0].shape
    rows = math.prod(shape[:-1])
    own = _experts(experts, rows)
    columns = check_int(count, "count", 1, _MOST)
    if own.size and int(own.max()) >= columns:
        raise ValueError(f"experts must be below count, {columns}, not {int(own.max())}")
    table = np.zeros((rows, columns), bool)
    np.put_along_axis(table, own, True, axis=1)
    if check_bool(bits, "bits"):
        table = np.packbits(table, axis=1, bitorder="little")
    return table.reshape(*shape[:-1], table.shape[1])


def _routing(routing: Any, experts: Any, rows: int, columns: int) -> tuple[Array, Array, int]:
    """A byte for each row and column, or the numbers of experts; and how many a row has, 0 where it is not known."""
    if (routing is None) == (experts is None):
        raise ValueError("routing or experts must be given, and not both")
    if routing is None:
        own = _experts(experts, rows)
        if own.size and int(own.max()) >= columns:
            raise ValueError(f"experts must be below the {columns} columns of grad, not {int(own.max())}")
        return np.empty(0, np.uint8), own, own.shape[1]
    array, name = as_array(routing, "routing")
    if name not in ("bool", "uint8"):
        raise TypeError(f"routing must be bool or uint8, not {name}")
    row_bytes = array.shape[-1] if array.ndim else 0
    if array.size != rows * row_bytes or row_bytes not in (columns, -(-columns // 8)):
        raise ValueError(
            f"routing must have {columns} bytes, or {-(-columns // 8)} bytes of 8 bits, for each of the {rows} tokens, "
            f"not shape {array.shape}"
        )
    table = np.ascontiguousarray(array).view(np.uint8).reshape(rows, row_bytes)
    if row_bytes != columns:
        table = np.unpackbits(table, axis=1, count=columns, bitorder="little")
    return np.ascontiguousarray(table), np.empty(0, np.int32), 0


def _saved(saved: Any, shape: tuple[int, ...]) -> Array:
    array = as_float32(saved, "saved")
    if array.shape != shape:
        raise ValueError(f"saved must have shape {shape}, as grad, not {array.shape}")
    return array


def moe_topk_backward(
    grad: Any,
    saved: Any,
    topk: int,
    *,
    routing: Any = None,
    experts: Any = None,
    score: ScoreName = "softmax",
    softmax_first: bool | None = None,
    scaling: float = 1.0,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The gradient of ``moe_topk`` by the logits, for that by the probabilities.

    With g = grad scaling and d = sum(s) + 1e-20, sums over the chosen experts: of ``sigmoid`` n s (1 - s), of
    ``sqrtsoftplus`` n sigmoid(x) / (2 s + 1e-20), n = g / d - sum(g s) / d^2, or g where topk is 1; of softmax s (g -
    sum(g s)). 0 for the others, but that with softmax_first s (0 - sum(g s)).

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16, (..., experts)
    saved : array of float32, of grad's shape
        As ``moe_topk`` gave it.
    topk, score, softmax_first, scaling
        As for ``moe_topk``.
    routing : array of bool or uint8, (..., experts) or (..., ceil(experts / 8)), optional
        As ``moe_routing_map`` gives it. Sums go by the numbers of experts.
    experts : array of integers, (..., topk), optional
        Instead of it. Sums go by this order.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of grad's shape

    Source: as of ``moe_topk``.
    """
    array, shape = as_nonempty_rows(grad, "grad")
    rows, columns = array[0].shape
    parameters = _parameters(columns, "grad", topk, score, softmax_first, scaling, (None, None), 0)
    own = _saved(saved, shape)
    table, numbers, count = _routing(routing, experts, rows, columns)
    if experts is not None and count != parameters[0][0]:
        raise ValueError(f"experts must have topk, {parameters[0][0]}, numbers for each token, not {count}")
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, shape, out_dtype, array[1])
    given = apart_from(array, words, False)
    _core.moe_topk_backward(*parameters, table, numbers, apart(own, words[0]), given, words, options)
    return result


def moe_scores(
    logits: Any,
    topk: int,
    *,
    score: ScoreName = "softmax",
    radix_from: int = 16,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> tuple[Array, Array, Array]:
    """The scores of all experts for the auxiliary loss, and the experts that they choose.

    Softmax, or s / (sum(s) + 1e-20) over all experts.

    Parameters
    ----------
    logits, topk, score, radix_from
        As for ``moe_topk``.
    functions, threads
        As the module says.
    out : ndarray of float32, of logits' shape, optional

    Returns
    -------
    scores : ndarray of float32, of logits' shape
    experts : ndarray of int32, (..., topk)
    saved : ndarray of float32, of logits' shape
        What the gradient needs.

    Source: as of ``moe_topk``.
    """
    array, shape = as_nonempty_rows(logits, "logits")
    rows, columns = array[0].shape
    parameters = _parameters(columns, "logits", topk, score, None, 1.0, (None, None), radix_from)
    options = options_of(functions, threads, array[0].size)
    scores = output(out, shape, np.float32)
    experts = np.empty((rows, parameters[0][0]), np.int32)
    saved = np.empty((rows, columns), np.float32)
    _core.moe_scores(*parameters, (apart(array[0], scores), array[1]), scores, experts, saved, options)
    return scores, experts.reshape(*shape[:-1], parameters[0][0]), saved.reshape(shape)


def moe_scores_backward(
    grad: Any,
    saved: Any,
    *,
    score: ScoreName = "softmax",
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The gradient of ``moe_scores`` by the logits: as of ``moe_topk``, all experts being chosen.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16, (..., experts)
    saved : array of float32, of grad's shape
        As ``moe_scores`` gave it.
    score : str
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of grad's shape

    Source: as of ``moe_topk``.
    """
    array, shape = as_nonempty_rows(grad, "grad")
    kind = check_choice(score, "score", _SCORES)
    own = _saved(saved, shape)
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, shape, out_dtype, array[1])
    given = apart_from(array, words, False)
    _core.moe_scores_backward(kind, apart(own, words[0]), given, words, options)
    return result


def _tokens_per_expert(values: Any, columns: int | None) -> Array:
    """One float32 for each column, also of integers."""
    array, name = as_array(values, "tokens_per_expert")
    if array.dtype.kind in "iu" and name != "bfloat16" and array.dtype.itemsize <= 8:
        own = array.astype(np.float32)
    else:
        own = as_float32(values, "tokens_per_expert")
    if own.ndim != 1 or (columns is not None and own.size != columns):
        wanted = "" if columns is None else f" of {columns} elements, the columns of probabilities"
        raise ValueError(f"tokens_per_expert must have one dimension{wanted}, not shape {own.shape}")
    return np.ascontiguousarray(own)


def moe_aux_loss(
    probabilities: Any,
    tokens_per_expert: Any,
    *,
    tokens: int,
    experts: int,
    topk: int,
    coefficient: float,
    sms: int = 132,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
) -> tuple[np.float32, np.float32]:
    """The auxiliary loss that balances experts: the sum over columns of (the sum of a column) tokens_per_expert, times
    experts coefficient / topk / tokens / tokens.

    Block b of 2 sms adds rows b, b + 2 sms, and so on; a thread has every n-th column, n = min(1024, columns) up to a
    multiple of 32, the product fused; threads are added as lanes of a warp. Blocks are added in ascending order, each
    times the factor; the kernel adds them in any order.

    Parameters
    ----------
    probabilities : array of float32, float16 or bfloat16, (rows, columns)
    tokens_per_expert : array of integers, float32 or bfloat16, (columns,)
    tokens : int
        Of the whole loss.
    experts : int
        A divisor of the columns.
    topk : int
    coefficient : float
    sms : int
        The multiprocessors of the device.
    functions, threads
        As the module says.

    Returns
    -------
    loss : float32
    factor : float32
        What the gradient needs.

    Source: as of ``moe_topk``.
    """
    array, shape = as_nonempty_rows(probabilities, "probabilities")
    if len(shape) != 2:
        raise ValueError(f"probabilities must have two dimensions, (rows, columns), not {len(shape)}")
    counts = _tokens_per_expert(tokens_per_expert, shape[1])
    fields = (
        check_int(experts, "experts", 1, _MOST),
        check_int(topk, "topk", 1, _MOST),
        check_int(tokens, "tokens", 1, 2**63 - 1),
        check_real(coefficient, "coefficient"),
        check_int(sms, "sms", 1, 2**20),
    )
    loss, factor = _core.moe_aux_loss(fields, array, counts, options_of(functions, threads, array[0].size))
    return np.float32(loss), np.float32(factor)


def moe_aux_loss_backward(
    grad: float,
    factor: float,
    tokens_per_expert: Any,
    rows: int,
    *,
    out_dtype: OutDtypeName = "float32",
    out: Array | None = None,
) -> Array:
    """The gradient of ``moe_aux_loss`` by the probabilities: (factor tokens_per_expert) grad in each row.

    Parameters
    ----------
    grad : float
    factor : float
        As ``moe_aux_loss`` gave it.
    tokens_per_expert : array of integers, float32 or bfloat16, (columns,)
    rows : int
    out_dtype, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, (rows, columns)

    Source: as of ``moe_topk``.
    """
    counts = _tokens_per_expert(tokens_per_expert, None)
    number = check_int(rows, "rows", 0, _MOST)
    result, words = result_of(out, (number, counts.size), out_dtype, "float32")
    of_loss, of_sums = check_real(grad, "grad"), check_real(factor, "factor")
    _core.moe_aux_loss_backward(of_sums, apart(counts, words[0]), of_loss, number, words)
    return result


def moe_bias_histogram(scores: Any, cutoff: Any, histogram: Any, *, lower: float, upper: float) -> None:
    """Counts which bias each expert would need to be chosen, in place: quantile balancing.

    Adds 1 to bin floor((cutoff - score - lower) (bins / (upper - lower))) of the expert's row, at least 0 and at most
    the last one.

    Parameters
    ----------
    scores : array of float32, (..., experts)
        What ``moe_topk`` saved.
    cutoff : array of float32, (...)
        As ``moe_topk`` gave it.
    histogram : array of int32, (experts, bins)
        C-contiguous; updated where it lies.
    lower, upper : float
        The limits of the bins.

    Source: as of ``moe_topk``.
    """
    own = as_float32(scores, "scores")
    if own.ndim == 0 or own.shape[-1] == 0:
        raise ValueError("scores must have columns, one for each expert")
    limits = as_float32(cutoff, "cutoff")
    if limits.shape != own.shape[:-1]:
        raise ValueError(f"cutoff must have shape {own.shape[:-1]}, the tokens of scores, not {limits.shape}")
    bins, name = as_array(histogram, "histogram")
    if name != "int32":
        raise TypeError(f"histogram must be int32, not {name}")
    if bins.ndim != 2 or bins.shape[0] != own.shape[-1] or bins.shape[1] == 0:
        raise ValueError(
            f"histogram must have shape ({own.shape[-1]}, bins), a row for each column of scores, not {bins.shape}"
        )
    if not (bins.flags.c_contiguous and bins.flags.aligned and bins.flags.writeable):
        raise ValueError("histogram must be C-contiguous, aligned and writable: it is updated in place")
    _core.moe_bias_histogram(own, limits, check_real(lower, "lower"), check_real(upper, "upper"), bins)


_guard(__name__, __all__)
