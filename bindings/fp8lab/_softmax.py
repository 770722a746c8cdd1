# SPDX-License-Identifier: Apache-2.0
"""Softmaxes and the cross entropy, with their gradients; ``fp8lab.operators`` offers them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    as_array,
    as_kernel_floats,
    check_choice,
    check_int,
    check_real,
    contiguous,
    copied,
)
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import (
    apart_from,
    as_integers,
    as_nonempty_rows,
    as_rows_like,
    flat,
    of_each_row,
    options_of,
    result_of,
)
from fp8lab.literals import FunctionsName, MaskName, OutDtypeName

__all__ = ["cross_entropy", "cross_entropy_backward", "softmax", "softmax_backward"]

_MASKS = ("none", "upper_triangular", "aligned_causal")


def _softmax_mask(mask: Any, causal: Any, shape: tuple[int, ...], argument: str) -> tuple[str, Array]:
    """The kind of mask, and the bytes of a given one."""
    if len(shape) < 2:
        raise ValueError(f"{argument} must have at least two dimensions, (..., queries, keys), not {len(shape)}")
    kind = check_choice(causal, "causal", _MASKS)
    if kind == "upper_triangular" and shape[-1] != shape[-2]:
        raise ValueError(
            f"causal 'upper_triangular' needs {argument} with as many queries as keys, not {shape[-2]} and {shape[-1]}"
        )
    if mask is None:
        return kind, np.empty(0, np.uint8)
    if kind != "none":
        raise ValueError("mask and causal cannot be combined")
    bytes_of, name = as_array(mask, "mask")
    if name not in ("uint8", "bool"):
        raise TypeError(f"mask must be uint8 or bool, not {name}")
    if len(shape) != 4 or bytes_of.shape not in ((1, 1, *shape[2:]), (shape[0], 1, *shape[2:])):
        raise ValueError(
            f"mask needs {argument} of shape (batches, heads, queries, keys) and must have shape (1 or batches, 1, "
            f"queries, keys), not {bytes_of.shape} for {shape}"
        )
    return "given", contiguous(bytes_of).view(np.uint8)


def _softmax_shape(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    batches = shape[0] if len(shape) > 2 else 1
    return batches, math.prod(shape[1:-2]), shape[-2], shape[-1]


def softmax(
    x: Any,
    *,
    scale: float = 1.0,
    mask: Any = None,
    causal: MaskName = "none",
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The softmax of scaled scores along the keys, by the fused kernels' steps.

    e / sum(e), e = exp(fl(x scale) - max(fl(x scale))), by a product with the reciprocal of the sum. Subnormal numbers
    count as zeros, as in a build with fast-math.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (..., queries, keys)
    scale : float
        Rounded to x's type first, as the kernels do.
    mask : array of uint8 or bool, (1 or batches, 1, queries, keys), optional
        For x of (batches, heads, queries, keys): where it is 1, the score is -10000. A row whose largest score is
        -10000 becomes 0.
    causal : str
        ``none``; ``upper_triangular``: query i sees keys 0 to i; ``aligned_causal``: keys 0 to i + keys - queries, and
        the scores of the others count as -10000 in the sum.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape

    Source: Transformer Engine 2.20, ``common/fused_softmax``.
    """
    array, source = as_kernel_floats(x, "x")
    kind, bytes_of = _softmax_mask(mask, causal, array.shape, "x")
    factor = check_real(scale, "scale")
    options = options_of(functions, threads, array.size)
    result, words = result_of(out, array.shape, out_dtype, source)
    given = apart_from((flat(array), source), words)
    _core.softmax(kind, _softmax_shape(array.shape), factor, given, apart(bytes_of, words[0]), words, options)
    return result


def softmax_backward(
    grad: Any,
    y: Any,
    *,
    scale: float = 1.0,
    causal: MaskName = "none",
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The gradient of ``softmax`` by x: scale fma(-sum(grad y), y, grad y), with zeros for both where causal gives no
    weight.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16, (..., queries, keys)
    y : array of float32, float16 or bfloat16, of grad's shape
        What ``softmax`` gave, with or without a mask.
    scale : float
        As it is: the kernels do not round it here.
    causal : str
        As for ``softmax``.
    out_dtype, functions, threads, out
        As the module says; the gradient's type if left out.

    Returns
    -------
    ndarray of out_dtype, of grad's shape

    Source: as of ``softmax``.
    """
    array, source = as_kernel_floats(grad, "grad")
    kind, _ = _softmax_mask(None, causal, array.shape, "grad")
    outputs = as_rows_like(y, "y", array.shape, "grad")
    factor = check_real(scale, "scale")
    options = options_of(functions, threads, array.size)
    result, words = result_of(out, array.shape, out_dtype, source)
    given = apart_from((flat(array), source), words)
    _core.softmax_backward(kind, _softmax_shape(array.shape), factor, given, apart_from(outputs, words), words, options)
    return result


def _targets(targets: Any, rows: int) -> Array:
    array = as_integers(targets, "targets")
    if array.size != rows:
        raise ValueError(f"targets must have one element for each of the {rows} rows of x, not {array.size}")
    return copied(array, np.int64).reshape(rows)


def _smoothing(label_smoothing: Any, ignore_index: Any) -> tuple[float, int]:
    smoothing = check_real(label_smoothing, "label_smoothing")
    if not 0 <= smoothing < 1:
        raise ValueError(f"label_smoothing must be from 0 to below 1, not {smoothing}")
    return smoothing, check_int(ignore_index, "ignore_index", -(2**63), 2**63 - 1)


def cross_entropy(
    x: Any,
    targets: Any,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
) -> tuple[Array, Array, Array]:
    """The cross entropy of each row by the Triton kernel's steps, with what the backward pass needs.

    loss = -((x[target] - largest) - log(sum)), sum = sum(exp(x - largest)). With smoothing s and eps = s / columns:
    loss (1 - s) + (-eps sum(x) + s (largest + log(sum))).

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (..., columns)
    targets : array of integers, with an element for each row
        One without a column has an infinite loss.
    label_smoothing : float
    ignore_index : int
        Rows of this target have the loss 0.
    functions, threads
        As the module says.

    Returns
    -------
    loss, largest, sum : ndarray of float32, with an element for each row

    Source: Transformer Engine 2.20, ``common/triton/cross_entropy.py``, of one rank. Whether Triton fuses products and
    sums is unknown; here none are.
    """
    array, _ = as_nonempty_rows(x)
    rows = array[0].shape[0]
    own = _targets(targets, rows)
    smoothing = _smoothing(label_smoothing, ignore_index)
    options = options_of(functions, threads, array[0].size)
    loss, largest, total = (np.empty(rows, np.float32) for _ in range(3))
    _core.cross_entropy(*smoothing, array, own, loss, largest, total, options)
    return loss, largest, total


def cross_entropy_backward(
    grad: Any,
    x: Any,
    targets: Any,
    largest: Any,
    sum: Any,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """The gradient of ``cross_entropy`` by x: (exp(x - largest) / sum - eps) grad, less 1 - s before the product for
    the target.

    Parameters
    ----------
    grad : array of float32, with an element for each row
        The gradient by the loss of each row.
    x, targets, label_smoothing, ignore_index
        As for ``cross_entropy``; rows that are ignored have the gradient 0.
    largest, sum : array of float32
        As ``cross_entropy`` gave them.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape

    Source: as of ``cross_entropy``.
    """
    array, shape = as_nonempty_rows(x)
    rows = array[0].shape[0]
    own = _targets(targets, rows)
    of_rows = [of_each_row(one, name, rows) for one, name in ((grad, "grad"), (largest, "largest"), (sum, "sum"))]
    smoothing = _smoothing(label_smoothing, ignore_index)
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, shape, out_dtype, array[1])
    gradient, most, total = (apart(one, words[0]) for one in of_rows)
    _core.cross_entropy_backward(*smoothing, gradient, apart_from(array, words), own, most, total, words, options)
    return result


_guard(__name__, __all__)
