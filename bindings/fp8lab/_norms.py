# SPDX-License-Identifier: Apache-2.0
"""LayerNorm and RMSNorm and their gradients; ``fp8lab.operators`` offers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    check_bool,
    check_real,
)
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import (
    apart_from,
    as_nonempty_rows,
    as_rows_like,
    as_vector,
    of_each_row,
    options_of,
    result_of,
)
from fp8lab.literals import FunctionsName, OutDtypeName

__all__ = ["layernorm", "layernorm_backward", "rmsnorm", "rmsnorm_backward"]


def _eps(value: Any) -> float:
    eps = check_real(value, "eps")
    if not eps >= 0:
        raise ValueError(f"eps must not be negative, and is {eps}")
    return eps


def layernorm(
    x: Any,
    gamma: Any,
    beta: Any,
    *,
    eps: float = 1e-5,
    zero_centered_gamma: bool = False,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> tuple[Array, Array, Array]:
    """LayerNorm of each row, with what the backward pass needs.

    With n columns and r = 1 / n in float32: mean = sum(x) r, rsigma = rsqrt(fma(sum((x - mean)^2), r, eps)), and the
    result fma(gamma, rsigma (x - mean), beta).

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (..., columns)
    gamma, beta : array of float32, float16 or bfloat16, (columns,)
    eps : float
    zero_centered_gamma : bool
        Whether gamma + 1 multiplies.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape
    mean, rsigma : ndarray of float32, with an element for each row

    Source: Transformer Engine 2.20, ``common/normalization/layernorm/ln_fwd_kernels.cuh``: the general kernel.
    """
    array, shape = as_nonempty_rows(x)
    weights = as_vector(gamma, "gamma", shape[-1])
    biases = as_vector(beta, "beta", shape[-1])
    parameters = _eps(eps), check_bool(zero_centered_gamma, "zero_centered_gamma")
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, shape, out_dtype, array[1])
    mean, rsigma = (np.empty(array[0].shape[0], np.float32) for _ in range(2))
    array, weights, biases = (apart_from(one, words) for one in (array, weights, biases))
    _core.norm(parameters, array, weights, biases, words, mean, rsigma, options)
    return result, mean, rsigma


def rmsnorm(
    x: Any,
    gamma: Any,
    *,
    eps: float = 1e-5,
    zero_centered_gamma: bool = False,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> tuple[Array, Array]:
    """RMSNorm of each row, with what the backward pass needs.

    With n columns and r = 1 / n in float32: rsigma = rsqrt(fma(sum(x^2), r, eps)), and the result gamma (rsigma x).

    Parameters
    ----------
    x, gamma, eps, zero_centered_gamma
        As for ``layernorm``.
    out_dtype, functions, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape
    rsigma : ndarray of float32, with an element for each row

    Source: Transformer Engine 2.20, ``common/normalization/rmsnorm/rmsnorm_fwd_kernels.cuh``: the general kernel.
    """
    array, shape = as_nonempty_rows(x)
    weights = as_vector(gamma, "gamma", shape[-1])
    parameters = _eps(eps), check_bool(zero_centered_gamma, "zero_centered_gamma")
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, shape, out_dtype, array[1])
    rsigma = np.empty(array[0].shape[0], np.float32)
    _core.norm(
        parameters,
        apart_from(array, words),
        apart_from(weights, words),
        None,
        words,
        np.empty(0, np.float32),
        rsigma,
        options,
    )
    return result, rsigma


def layernorm_backward(
    grad: Any,
    x: Any,
    mean: Any,
    rsigma: Any,
    gamma: Any,
    *,
    zero_centered_gamma: bool = False,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients of ``layernorm`` by x, gamma and beta.

    With y = rsigma (x - mean), d = gamma grad and r = 1 / columns in float32: dx = rsigma (d - fma(sum(d), r, (sum(d y)
    r) y)), dgamma the sum of grad y over rows, each product fused, and dbeta that of grad.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16, of x's shape
    x, gamma, zero_centered_gamma
        As for ``layernorm``.
    mean, rsigma : array of float32
        As ``layernorm`` gave them.
    out_dtype, functions, threads, out
        As the module says; the gradients of the parameters have gamma's type if out_dtype is left out.

    Returns
    -------
    dx : ndarray of out_dtype, of x's shape
    dgamma, dbeta : ndarray of out_dtype, (columns,)

    Source: Transformer Engine 2.20, ``common/normalization/layernorm/ln_bwd_kernels.cuh``: the general kernel.
    """
    array, shape = as_nonempty_rows(x)
    rows, columns = array[0].shape
    gradient = as_rows_like(grad, "grad", shape, "x")
    means, factors = of_each_row(mean, "mean", rows), of_each_row(rsigma, "rsigma", rows)
    weights = as_vector(gamma, "gamma", columns)
    centered = check_bool(zero_centered_gamma, "zero_centered_gamma")
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, shape, out_dtype, array[1])
    dgamma, gamma_words = result_of(None, (columns,), out_dtype, weights[1])
    dbeta, beta_words = result_of(None, (columns,), out_dtype, weights[1])
    gradient, array, weights = (apart_from(one, words) for one in (gradient, array, weights))
    means, factors = apart(means, words[0]), apart(factors, words[0])
    _core.layernorm_backward(
        centered, gradient, array, means, factors, weights, words, gamma_words, beta_words, options
    )
    return result, dgamma, dbeta


def rmsnorm_backward(
    grad: Any,
    x: Any,
    rsigma: Any,
    gamma: Any,
    *,
    zero_centered_gamma: bool = False,
    add: Any = None,
    out_dtype: OutDtypeName | None = None,
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
    out: Array | None = None,
) -> tuple[Array, Array]:
    """The gradients of ``rmsnorm`` by x and gamma.

    With y = rsigma x, d = gamma grad and r = 1 / columns in float32: dx = rsigma fma(-(sum(d y) r), y, d), and dgamma
    the sum of grad y over rows, each product fused.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16, of x's shape
    x, gamma, zero_centered_gamma
        As for ``layernorm``.
    rsigma : array of float32
        As ``rmsnorm`` gave it.
    add : array of float32, float16 or bfloat16, of x's shape, optional
        Added to dx, in one rounding with its last product: the gradient that comes past the norm.
    out_dtype, functions, threads, out
        As the module says; the gradient of gamma has gamma's type if out_dtype is left out.

    Returns
    -------
    dx : ndarray of out_dtype, of x's shape
    dgamma : ndarray of out_dtype, (columns,)

    Source: Transformer Engine 2.20, ``common/normalization/rmsnorm/rmsnorm_bwd_kernels.cuh``: the general kernel.
    """
    array, shape = as_nonempty_rows(x)
    rows, columns = array[0].shape
    gradient = as_rows_like(grad, "grad", shape, "x")
    factors = of_each_row(rsigma, "rsigma", rows)
    weights = as_vector(gamma, "gamma", columns)
    past = None if add is None else as_rows_like(add, "add", shape, "x")
    centered = check_bool(zero_centered_gamma, "zero_centered_gamma")
    options = options_of(functions, threads, array[0].size)
    result, words = result_of(out, shape, out_dtype, array[1])
    dgamma, gamma_words = result_of(None, (columns,), out_dtype, weights[1])
    inputs = apart_from(gradient, words), apart_from(array, words), apart(factors, words[0]), apart_from(weights, words)
    _core.rmsnorm_backward(
        centered, *inputs, None if past is None else apart_from(past, words), words, gamma_words, options
    )
    return result, dgamma


_guard(__name__, __all__)
