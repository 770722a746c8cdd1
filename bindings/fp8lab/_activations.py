# SPDX-License-Identifier: Apache-2.0
"""Activations and their gradients; ``fp8lab.operators`` offers them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    check_bool,
    check_choice,
    check_int,
    check_real,
    check_unread,
)
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import Typed, apart_from, as_rows, as_rows_like, of_each_row, options_of, result_of
from fp8lab.literals import ActivationName, FunctionsName, OutDtypeName

__all__ = [
    "Activation",
    "activation",
    "activation_backward",
    "activations",
    "scaled_activation",
    "scaled_activation_backward",
]


@dataclass(frozen=True)
class Activation:
    """Facts of an activation."""

    name: str
    formula: str
    """sigmoid(x) is 1 / (1 + exp(-x)); a and b are the halves of a row."""
    gradient: str
    """The derivative by x, or by a."""
    gated: bool
    """Whether it takes rows of two halves, a and b, and gives rows of half the length."""
    scaled: bool
    """Whether ``scaled_activation`` has it."""


#: limit, alpha, offset, beta1 and beta2.
_Parameters = tuple[float, float, float, float, float]
_ROWS = {row[0]: Activation(*row) for row in _core.activation_rows()}


def activations() -> list[Activation]:
    """The activations that there are.

    Source: Transformer Engine 2.20, ``common/util/math.h``.
    """
    return list(_ROWS.values())


def _activation(name: Any, gated_shape: tuple[int, ...]) -> tuple[Activation, tuple[int, ...]]:
    """The facts of an activation, and the shape of its result for x of that shape."""
    row = _ROWS[check_choice(name, "name", tuple(_ROWS))]
    *rest, columns = gated_shape
    if row.gated and columns % 2:
        raise ValueError(f"x must have an even number of columns for {row.name}, not {columns}")
    return row, (*rest, columns // 2 if row.gated else columns)


def _beta(beta: Any, argument: str, default: float) -> float:
    value = default if beta is None else check_real(beta, argument)
    if not 0 < value < math.inf:
        raise ValueError(f"{argument} must be positive and finite, not {value}")
    return value


def _parameters(name: str, limit: Any, alpha: Any, offset: Any, beta1: Any, beta2: Any) -> _Parameters:
    if name != "clamped_swiglu":
        check_unread("the name 'clamped_swiglu'", limit=limit, alpha=alpha, offset=offset)
    if name != "situglu":
        check_unread("the name 'situglu'", beta1=beta1, beta2=beta2)
    most = 7.0 if limit is None else check_real(limit, "limit")
    if not most > 0:
        raise ValueError(f"limit must be positive, not {most}")
    return (
        most,
        1.702 if alpha is None else check_real(alpha, "alpha"),
        1.0 if offset is None else check_real(offset, "offset"),
        _beta(beta1, "beta1", 4.0),
        _beta(beta2, "beta2", 25.0),
    )


def activation(
    name: ActivationName,
    x: Any,
    *,
    limit: float | None = None,
    alpha: float | None = None,
    offset: float | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """An activation of each element, or a gated one of each row.

    Parameters
    ----------
    name : str
        One of ``activations()``: ``gelu``, ``qgelu``, ``relu``, ``srelu``, ``silu``, and the gated ``glu``, ``geglu``,
        ``qgeglu``, ``reglu``, ``sreglu``, ``swiglu``, ``clamped_swiglu`` and ``situglu``.
    x : array of float32, float16 or bfloat16, (..., columns)
        Of gated ones a and b side by side: an even number of columns.
    limit, alpha, offset : float, optional
        Of ``clamped_swiglu``: c sigmoid(alpha c) (d + offset), where c = min(a, limit) and d is b limited to [-limit,
        limit]. As of Transformer Engine's operation if left out: 7, 1.702 and 1.
    beta1, beta2 : float, optional
        Of ``situglu``: beta1 tanh(a / beta1) sigmoid(a) beta2 tanh(b / beta2). 4 and 25 if left out.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, (..., columns), of gated ones (..., columns / 2)

    Source: Transformer Engine 2.20, ``common/util/math.h`` and ``common/util/vectorized_pointwise.h``, compiled without
    fast-math, as by default.
    """
    array, shape = as_rows(x, "x")
    row, result_shape = _activation(name, shape)
    parameters = _parameters(row.name, limit, alpha, offset, beta1, beta2)
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, result_shape, out_dtype, array[1])
    _core.activation(row.name, parameters, apart_from(array, words, not row.gated), None, words, 0, options)
    return result


def _backward(
    name: Any, grad: Any, x: Any, parameters: tuple[Any, Any, Any, Any, Any], out_dtype: Any, out: Any
) -> tuple[Activation, _Parameters, Typed, Typed, Array, Typed]:
    array, shape = as_rows(x, "x")
    row, result_shape = _activation(name, shape)
    checked = _parameters(row.name, *parameters)
    gradient = as_rows_like(grad, "grad", result_shape, "the result for x")
    result, words = result_of(out, shape, out_dtype, array[1])
    gradient, array = (apart_from(one, words, not row.gated) for one in (gradient, array))
    return row, checked, gradient, array, result, words


def activation_backward(
    name: ActivationName,
    grad: Any,
    x: Any,
    *,
    limit: float | None = None,
    alpha: float | None = None,
    offset: float | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    bias_gradient: bool = False,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Any:
    """The gradient by x of an activation.

    f'(x) grad; of gated ones (f'(a) grad) b and grad f(a), side by side as a and b are.

    Parameters
    ----------
    name, x, limit, alpha, offset, beta1, beta2
        As for ``activation``.
    grad : array of float32, float16 or bfloat16, of the shape of the result
    bias_gradient : bool
        Whether the sum over rows of the gradient before it is rounded is wanted, which is that of a bias before the
        activation.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape; with bias_gradient a tuple of it and of an ndarray of float32, (columns,)

    Source: as of ``activation``; the sums ``common/cast/core/common.cuh``, whose order is another one.
    """
    wants_sums = check_bool(bias_gradient, "bias_gradient")
    given = limit, alpha, offset, beta1, beta2
    row, parameters, gradient, array, result, words = _backward(name, grad, x, given, out_dtype, out)
    options = options_of(functions, threads, array[0].size)
    sums = np.zeros(array[0].shape[1] if wants_sums else 0, np.float32)
    _core.activation_backward(row.name, parameters, gradient, array, None, words, sums, 0, options)
    return (result, sums) if wants_sums else result


def _check_scaled(row: Activation, columns: int, interleave: Any) -> int:
    if not row.scaled:
        known = ", ".join(one.name for one in _ROWS.values() if one.scaled)
        raise ValueError(f"name must be of an activation whose rows a kernel scales ({known}), not {row.name!r}")
    size = check_int(interleave, "interleave", 0, 2**62)
    if size and (not row.gated or size % 32 or columns % size):
        raise ValueError(
            f"interleave must be 0, or for gated activations a multiple of 32 that divides the {columns} columns of "
            f"the result for x, not {size}"
        )
    return size


def scaled_activation(
    name: ActivationName,
    x: Any,
    scales: Any,
    *,
    limit: float | None = None,
    alpha: float | None = None,
    offset: float | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    interleave: int = 0,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """An activation times a scale for each row, as a mixture of experts has it: rounded once, behind both.

    Parameters
    ----------
    name : str
        ``srelu``, ``swiglu``, ``clamped_swiglu`` or ``situglu``.
    x, limit, alpha, offset, beta1, beta2
        As for ``activation``.
    scales : array of float32, with an element for each row
    interleave : int
        0: a and b are halves of a row. Else a multiple of 32: that many columns of a and of b lie in turns.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of the shape of ``activation``'s result

    Source: Transformer Engine 2.20, ``common/activation/scaled_activation.cu``.
    """
    array, shape = as_rows(x, "x")
    row, result_shape = _activation(name, shape)
    size = _check_scaled(row, result_shape[-1], interleave)
    parameters = _parameters(row.name, limit, alpha, offset, beta1, beta2)
    of_rows = of_each_row(scales, "scales", array[0].shape[0])
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, result_shape, out_dtype, array[1])
    of_rows = apart(of_rows, words[0])
    _core.activation(row.name, parameters, apart_from(array, words, not row.gated), of_rows, words, size, options)
    return result


def scaled_activation_backward(
    name: ActivationName,
    grad: Any,
    x: Any,
    scales: Any,
    *,
    limit: float | None = None,
    alpha: float | None = None,
    offset: float | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    interleave: int = 0,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> tuple[Array, Array]:
    """The gradients by x and by the scales of ``scaled_activation``.

    Parameters
    ----------
    name, x, scales, limit, alpha, offset, beta1, beta2, interleave
        As for ``scaled_activation``.
    grad : array of float32, float16 or bfloat16, of the shape of the result
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape
        (grad scale) (f'(a) b) and (grad scale) f(a).
    ndarray of float32, with an element for each row
        The sum over a row of grad (f(a) b).

    Source: as of ``scaled_activation``.
    """
    given = limit, alpha, offset, beta1, beta2
    row, parameters, gradient, array, result, words = _backward(name, grad, x, given, out_dtype, out)
    options = options_of(functions, threads, array[0].size)
    size = _check_scaled(row, gradient[0].shape[1], interleave)
    of_rows = of_each_row(scales, "scales", array[0].shape[0])
    sums = np.zeros(of_rows.shape, np.float32)
    of_rows = apart(of_rows, words[0])
    _core.activation_backward(row.name, parameters, gradient, array, of_rows, words, sums, size, options)
    return result, sums


_guard(__name__, __all__)
