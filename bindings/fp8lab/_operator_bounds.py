# SPDX-License-Identifier: Apache-2.0
"""Where activations and norms lie on a GPU whose functions nobody has recorded; ``fp8lab.operators`` offers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab._activations import activation, activation_backward, activations
from fp8lab._arrays import Array, check_choice
from fp8lab._bounds import Bounds
from fp8lab._entry import guard as _guard
from fp8lab._norms import layernorm, rmsnorm
from fp8lab._operator_arrays import FunctionsOff
from fp8lab.literals import ActivationName, OutDtypeName

__all__ = ["activation_backward_bounds", "activation_bounds", "layernorm_bounds", "rmsnorm_bounds"]

#: What expf, tanhf and rsqrtf may give, by the errors that NVIDIA documents (``device_function_bounds``).
_OFF: tuple[Any, ...] = tuple(FunctionsOff(words) for words in range(-2, 3))


def _words(values: Array) -> Array:
    return np.asarray(values).view({2: np.uint16, 4: np.uint32}[values.dtype.itemsize])


def _bounds_of(results: list[Array]) -> Bounds:
    """Of the results of devices that stand for all."""
    low = high = results[0]
    decided = np.ones(low.shape, bool)
    for one in results[1:]:
        decided &= _words(one) == _words(results[0])
        low, high = np.minimum(low, one), np.maximum(high, one)
    return Bounds(low, high, decided)


def _check_one_function(name: Any) -> Any:
    kind = check_choice(name, "name", tuple(row.name for row in activations()))
    if kind == "situglu":
        raise ValueError("situglu has three functions of different arguments, whose bounds are not known")
    return kind


def activation_bounds(
    name: ActivationName,
    x: Any,
    *,
    limit: float | None = None,
    alpha: float | None = None,
    offset: float | None = None,
    out_dtype: OutDtypeName | None = None,
    threads: int | None = None,
) -> Bounds:
    """Where ``activation`` lies on any GPU whose expf and tanhf keep the errors that NVIDIA documents.

    Parameters
    ----------
    name, x, limit, alpha, offset, out_dtype, threads
        As for ``activation``; ``situglu``, which has three functions of different arguments, is refused.

    Returns
    -------
    Bounds
        Of out_dtype. ``undecided_codes()`` counts the FP8 codes that such devices do not agree on.

    Notes
    -----
    An element has one value of expf or tanhf, which is one of five float32 numbers: the correctly rounded one and two
    on each side (``device_function_bounds``). The result is computed for each of them, so that the bounds are those of
    all such devices whose other operations are what nvcc 13.0 makes for sm_90.

    >>> import numpy as np
    >>> from fp8lab import operators
    >>> bounds = operators.activation_bounds("silu", np.linspace(-3, 3, 1001, dtype=np.float32)[None])
    >>> int(np.count_nonzero(bounds.decided)), bounds.undecided_codes("e4m3")
    (203, 0)
    """
    kind = _check_one_function(name)
    given: Any = {"limit": limit, "alpha": alpha, "offset": offset, "out_dtype": out_dtype, "threads": threads}
    return _bounds_of([activation(kind, x, functions=one, **given) for one in _OFF])


def activation_backward_bounds(
    name: ActivationName,
    grad: Any,
    x: Any,
    *,
    limit: float | None = None,
    alpha: float | None = None,
    offset: float | None = None,
    out_dtype: OutDtypeName | None = None,
    threads: int | None = None,
) -> Bounds:
    """Where ``activation_backward`` lies on any GPU whose expf and tanhf keep the errors that NVIDIA documents.

    Parameters
    ----------
    name, grad, x, limit, alpha, offset, out_dtype, threads
        As for ``activation_backward``, and name as for ``activation_bounds``.

    Returns
    -------
    Bounds
        Of out_dtype, as of ``activation_bounds``.
    """
    kind = _check_one_function(name)
    given: Any = {"limit": limit, "alpha": alpha, "offset": offset, "out_dtype": out_dtype, "threads": threads}
    return _bounds_of([activation_backward(kind, grad, x, functions=one, **given) for one in _OFF])


def layernorm_bounds(
    x: Any,
    gamma: Any,
    beta: Any,
    *,
    eps: float = 1e-5,
    zero_centered_gamma: bool = False,
    out_dtype: OutDtypeName | None = None,
    threads: int | None = None,
) -> Bounds:
    """Where the result of ``layernorm`` lies on any GPU whose rsqrtf keeps the error that NVIDIA documents.

    Parameters
    ----------
    x, gamma, beta, eps, zero_centered_gamma, out_dtype, threads
        As for ``layernorm``.

    Returns
    -------
    Bounds
        Of out_dtype, as of ``activation_bounds``. The order of sums is fp8lab's: a kernel with another one can lie
        outside. ``exactness()`` has a bound for all orders.
    """
    given: Any = {"eps": eps, "zero_centered_gamma": zero_centered_gamma, "out_dtype": out_dtype, "threads": threads}
    return _bounds_of([layernorm(x, gamma, beta, functions=one, **given)[0] for one in _OFF])


def rmsnorm_bounds(
    x: Any,
    gamma: Any,
    *,
    eps: float = 1e-5,
    zero_centered_gamma: bool = False,
    out_dtype: OutDtypeName | None = None,
    threads: int | None = None,
) -> Bounds:
    """Where the result of ``rmsnorm`` lies on any GPU whose rsqrtf keeps the error that NVIDIA documents.

    Parameters
    ----------
    x, gamma, eps, zero_centered_gamma, out_dtype, threads
        As for ``rmsnorm``.

    Returns
    -------
    Bounds
        As of ``layernorm_bounds``.
    """
    given: Any = {"eps": eps, "zero_centered_gamma": zero_centered_gamma, "out_dtype": out_dtype, "threads": threads}
    return _bounds_of([rmsnorm(x, gamma, functions=one, **given)[0] for one in _OFF])


_guard(__name__, __all__)
