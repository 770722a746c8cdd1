# SPDX-License-Identifier: Apache-2.0
"""The rotary position embedding and its gradient; ``fp8lab.operators`` offers them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    as_float32,
    as_kernel_floats,
    check_bool,
    check_choice,
    check_int,
    check_list,
    copied,
)
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import apart_from, as_integers, flat, options_of, result_of
from fp8lab.literals import FunctionsName, OutDtypeName, RopeLayoutName, RopeQkvLayoutName

__all__ = ["rope", "rope_backward", "rope_qkv", "rope_qkv_backward"]

_ROPE_FORMATS = ("sbhd", "bshd", "thd")


def _integers(values: Any, argument: str) -> Array:
    """A vector of int32 for an argument that may be left out."""
    if values is None:
        return np.empty(0, np.int32)
    array = as_integers(values, argument)
    if array.ndim != 1:
        raise ValueError(f"{argument} must have one dimension, not {array.ndim}")
    if array.size and not -(2**31) <= int(array.min()) <= int(array.max()) < 2**31:
        raise ValueError(f"{argument} must fit into int32")
    return copied(array, np.int32)


def _angles(freqs: Any, argument: str, size: int, whose: str) -> Array:
    """The angles of (positions, n) or (positions, 1, 1, n)."""
    angles = as_float32(freqs, argument)
    if angles.ndim not in (2, 4) or angles.shape[1:-1] not in ((), (1, 1)):
        raise ValueError(f"{argument} must have shape (positions, n) or (positions, 1, 1, n), not {angles.shape}")
    rotated = angles.shape[-1]
    if rotated % 2 or not 0 < rotated <= size:
        raise ValueError(
            f"{argument} must have an even number of columns, at most the {size} of {whose}, not {rotated}"
        )
    return angles


def _rank_of(parts: tuple[Any, Any]) -> tuple[int, int]:
    """``cp_size`` and ``cp_rank``."""
    ranks, rank = check_int(parts[0], "cp_size", 1, 2**20), check_int(parts[1], "cp_rank", 0, 2**20)
    if rank >= ranks:
        raise ValueError(f"cp_rank must be below cp_size, {ranks}, not {rank}")
    return ranks, rank


def _widths(widths: Any) -> list[int]:
    known: list[int] = check_list(widths, "widths", lambda value, name: check_int(value, name, 0, 2**31 - 1))
    return known


def _rope(
    backward: bool, name: str, x: Any, freqs: Any, tensor_format: Any, interleaved: Any, sequences: tuple[Any, Any],
    parts: tuple[Any, Any], out_dtype: Any, functions: Any, threads: Any, out: Any
) -> Array:  # fmt: skip
    array, source = as_kernel_floats(x, name)
    layout = check_choice(tensor_format, "tensor_format", _ROPE_FORMATS)
    if array.ndim != len(layout):
        raise ValueError(f"{name} must have {len(layout)} dimensions for tensor_format {layout!r}, not {array.ndim}")
    cu_seqlens = _integers(sequences[0], "cu_seqlens")
    if (layout == "thd") != (cu_seqlens.size > 0):
        raise ValueError("cu_seqlens goes with tensor_format 'thd', which needs it, with at least two entries")
    angles = _angles(freqs, "freqs", array.shape[-1], name)
    rotated = angles.shape[-1]
    first = layout != "bshd"
    sequence, batches = (array.shape[0], 1) if layout == "thd" else array.shape[:2] if first else array.shape[1::-1]
    ranks, rank = _rank_of(parts)
    if layout == "thd" and int(cu_seqlens[-1]) // ranks != sequence:
        raise ValueError(
            f"cu_seqlens must end with cp_size times the {sequence} tokens of {name}, not {cu_seqlens[-1]}"
        )
    choices = first, check_bool(interleaved, "interleaved"), ranks, rank
    options = options_of(functions, threads, array.size)
    result, words = result_of(out, array.shape, out_dtype, source)
    given = apart_from((flat(array), source), words)
    starts = _integers(sequences[1], "start_positions")
    sizes = (sequence, batches, *array.shape[-2:], rotated)
    _core.rope(backward, sizes, choices, given, apart(angles, words[0]), cu_seqlens, starts, words, options)
    return result


def rope(
    x: Any,
    freqs: Any,
    *,
    tensor_format: RopeLayoutName = "sbhd",
    interleaved: bool = False,
    cu_seqlens: Any = None,
    start_positions: Any = None,
    cp_size: int = 1,
    cp_rank: int = 0,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The fused rotary position embedding: fma(x, cos(f), x' sin(f)), x' being the other element of the pair, negative
    for the first one.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16
        (sequence, batch, head, element), (batch, sequence, head, element) or packed (token, head, element), by
        tensor_format.
    freqs : array of float32, (positions, n) or (positions, 1, 1, n)
        The angles of the first n elements, an even number; elements behind them are copied.
    tensor_format : str
        ``sbhd``, ``bshd`` or ``thd``.
    interleaved : bool
        Whether pairs are elements 2 i and 2 i + 1, not i and i + n / 2.
    cu_seqlens : array of integers, optional
        Of ``thd``: where sequences begin, and the end of the last one.
    start_positions : array of integers, optional
        The position of each sequence's first token.
    cp_size, cp_rank : int
        Of context parallelism: sequences lie in 2 cp_size chunks, of which a rank has the cp_rank-th from both ends.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape

    Source: Transformer Engine 2.20, ``common/fused_rope/fused_rope.cu``.
    """
    sequences, parts = (cu_seqlens, start_positions), (cp_size, cp_rank)
    return _rope(False, "x", x, freqs, tensor_format, interleaved, sequences, parts, out_dtype, functions, threads, out)


def rope_backward(
    grad: Any,
    freqs: Any,
    *,
    tensor_format: RopeLayoutName = "sbhd",
    interleaved: bool = False,
    cu_seqlens: Any = None,
    start_positions: Any = None,
    cp_size: int = 1,
    cp_rank: int = 0,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The gradient of ``rope`` by x: fma(grad, cos(f), grad' sin(f')), grad' and f' being those of the pair's other
    element, the sine negative for the second one.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16, of the shape of x
    freqs, tensor_format, interleaved, cu_seqlens, start_positions, cp_size, cp_rank
        As for ``rope``.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of grad's shape

    Source: as of ``rope``.
    """
    sequences, parts = (cu_seqlens, start_positions), (cp_size, cp_rank)
    return _rope(
        True, "grad", grad, freqs, tensor_format, interleaved, sequences, parts, out_dtype, functions, threads, out
    )


def _qkv(
    shape: tuple[int, ...], widths: Any, freqs: tuple[Any, Any], tensor_format: Any, interleaved: Any,
    parts: tuple[Any, Any]
) -> tuple[Any, Any, Any, tuple[Array, Array]]:  # fmt: skip
    """Sizes, widths and choices for C++, and the angles; ``shape`` is that of all three together."""
    layout = check_choice(tensor_format, "tensor_format", _ROPE_FORMATS[:2])
    known = _widths(widths)
    if len(known) != 3:
        raise ValueError(f"widths must have three entries, of query, key and value, not {len(known)}")
    size = known[2]
    if size == 0 or known[1] == 0 or known[1] % size or known[0] % known[1]:
        raise ValueError(
            f"widths must be multiples: that of the query of the key's, and that of the key of the value's, not {known}"
        )
    if len(shape) != 4 or shape[-1] != sum(known):
        raise ValueError(f"qkv must have four dimensions, and {sum(known)} columns, the sum of widths, not {shape}")
    angles = tuple(_angles(one, name, size, "the value") for one, name in zip(freqs, ("query_freqs", "key_freqs")))
    if angles[0].shape[-1] != angles[1].shape[-1]:
        raise ValueError(
            f"query_freqs and key_freqs must have as many columns, not {angles[0].shape[-1]} and {angles[1].shape[-1]}"
        )
    sequence, batches = shape[:2] if layout == "sbhd" else shape[1::-1]
    choices = layout == "sbhd", check_bool(interleaved, "interleaved"), *_rank_of(parts)
    return (sequence, batches, shape[2], angles[0].shape[-1]), known, choices, (angles[0], angles[1])


def rope_qkv(
    qkv: Any,
    widths: Any,
    query_freqs: Any,
    key_freqs: Any,
    *,
    tensor_format: RopeQkvLayoutName = "sbhd",
    interleaved: bool = False,
    start_positions: Any = None,
    cp_size: int = 1,
    cp_rank: int = 0,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
) -> tuple[Array, Array, Array]:
    """``rope`` of query and key that lie beside the value, each with its own angles.

    Parameters
    ----------
    qkv : array of float32, float16 or bfloat16
        (sequence, batch, head, element) or (batch, sequence, head, element), by tensor_format.
    widths : list of int
        The elements of a head's query, key and value. A vector has as many as the value; the query's is a multiple of
        the key's, and that one of the value's.
    query_freqs, key_freqs : array of float32, (positions, n) or (positions, 1, 1, n)
    tensor_format : str
        ``sbhd`` or ``bshd``.
    interleaved, cp_size, cp_rank
        As for ``rope``.
    start_positions : array of integers, optional
        The position of each sequence's first token; the kernel does not read it where cp_size is above 1.
    out_dtype, functions, threads
        As the module says.

    Returns
    -------
    query, key, value : ndarray of out_dtype
        With widths[1], widths[1] and widths[2] columns: a head's query is several heads of the result.

    Source: as of ``rope``.
    """
    array, source = as_kernel_floats(qkv, "qkv")
    freqs = query_freqs, key_freqs
    sizes, known, choices, angles = _qkv(array.shape, widths, freqs, tensor_format, interleaved, (cp_size, cp_rank))
    options = options_of(functions, threads, array.size)
    heads = array.shape[2]
    shapes = ((heads * known[0] // known[1], known[1]), (heads, known[1]), (heads, known[2]))
    made = [result_of(None, (*array.shape[:2], *one), out_dtype, source) for one in shapes]
    starts = _integers(start_positions, "start_positions")
    words = [one for _, one in made]
    _core.rope_qkv(sizes, known, choices, (flat(array), source), *angles, starts, words, options)
    return made[0][0], made[1][0], made[2][0]


def rope_qkv_backward(
    grads: Any,
    widths: Any,
    query_freqs: Any,
    key_freqs: Any,
    *,
    tensor_format: RopeQkvLayoutName = "sbhd",
    interleaved: bool = False,
    cp_size: int = 1,
    cp_rank: int = 0,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The gradient of ``rope_qkv`` by qkv. The kernel counts positions from 0, whatever start_positions were.

    Parameters
    ----------
    grads : tuple of three arrays of one type, float32, float16 or bfloat16
        The gradients by query, key and value, of their shapes.
    widths, query_freqs, key_freqs, tensor_format, interleaved, cp_size, cp_rank
        As for ``rope_qkv``.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of qkv's shape

    Source: as of ``rope``.
    """
    if not isinstance(grads, (tuple, list)) or len(grads) != 3:
        raise TypeError("grads must be a tuple of three arrays, by query, key and value")
    given = [as_kernel_floats(one, "grads") for one in grads]
    value = given[2][0]
    if value.ndim != 4:
        raise ValueError(f"grads must have four dimensions, not {value.ndim}")
    shape = (*value.shape[:3], sum(_widths(widths)))
    freqs = query_freqs, key_freqs
    sizes, known, choices, angles = _qkv(shape, widths, freqs, tensor_format, interleaved, (cp_size, cp_rank))
    wanted = ((shape[2] * known[0] // known[1], known[1]), (shape[2], known[1]), (shape[2], known[2]))
    for (array, source), own in zip(given, wanted):
        if array.shape != (*shape[:2], *own) or source != given[0][1]:
            raise ValueError(
                f"grads must have the types and shapes of query, key and value, {given[0][1]} of "
                f"{[(*shape[:2], *one) for one in wanted]}, not {source} of {array.shape}"
            )
    options = options_of(functions, threads, math.prod(shape))
    result, words = result_of(out, shape, out_dtype, given[0][1])
    apart_grads = [apart_from((flat(array), source), words, False) for array, source in given]
    _core.rope_qkv_backward(
        sizes, known, choices, apart_grads, apart(angles[0], words[0]), apart(angles[1], words[0]), words, options
    )
    return result


_guard(__name__, __all__)
