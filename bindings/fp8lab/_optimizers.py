# SPDX-License-Identifier: Apache-2.0
"""Optimizers and the other multi-tensor kernels; ``fp8lab.operators`` offers them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_array,
    as_format,
    as_kernel_floats,
    check_bool,
    check_choice,
    check_int,
    check_real,
    check_threads,
    copied,
    is_torch_tensor,
)
from fp8lab._core import Format
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import OUT_DTYPES, Typed, apart_from, options_of, result_of
from fp8lab.literals import AdamModeName, FormatName, FunctionsName, OutDtypeName

__all__ = [
    "adam_update",
    "adam_update_fp8",
    "adam_update_remainder",
    "l2norm",
    "scale_of_amax",
    "scale_tensor",
    "sgd_update",
]


def scale_tensor(
    x: Any, scale: float, *, out_dtype: OutDtypeName | None = None, threads: int | None = None, out: Array | None = None
) -> tuple[Array, bool]:
    """The multi-tensor scale kernel: x times a number, and whether every element of x is finite.

    Every bit is the kernel's, which is compiled with fast-math: subnormal numbers count as zeros of their sign.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16
    scale : float
    out_dtype, threads, out
        As the module says.

    Returns
    -------
    ndarray of out_dtype, of x's shape
    bool

    Source: Transformer Engine 2.20, ``common/multi_tensor/scale.cu``.
    """
    array, source = as_kernel_floats(x, "x")
    factor = check_real(scale, "scale")
    number = check_threads(threads, array.size)
    result, words = result_of(out, array.shape, out_dtype, source)
    return result, _core.scale_tensor(apart_from((array.reshape(1, -1), source), words), factor, words, number)


def l2norm(
    tensors: Any, *, functions: FunctionsName = "correctly_rounded", threads: int | None = None
) -> tuple[float, list[float]]:
    """The Euclidean norm of all tensors together, and that of each.

    sqrt(sum(x^2)) in float32 with subnormal numbers flushed: chunks of 65536 elements are added as the module says of
    rows, each square fused; their sums, and those of the tensors, likewise. With ``functions="hopper"`` every bit is
    that of the kernel on an H100 or H200 for such chunks, of tensors that begin at a multiple of 4 elements, as those
    that PyTorch allocates do.

    Parameters
    ----------
    tensors : array of float32, float16 or bfloat16, or a list of such arrays
    functions, threads
        As the module says.

    Returns
    -------
    float
    list of float

    Source: Transformer Engine 2.20, ``common/multi_tensor/l2norm.cu``.
    """
    given = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    found = [as_kernel_floats(one, "tensors") for one in given]
    options = options_of(functions, threads, sum(array.size for array, _ in found))
    return _core.l2norms([(array.reshape(1, -1), source) for array, source in found], options)


def scale_of_amax(
    amax: float, format: FormatName | Format = "e4m3", *, power_of_two: bool = False, eps: float = 0.0
) -> tuple[float, float]:
    """The multi-tensor kernel's scale for an amax, and its inverse; both are exact.

    As of ``Float8CurrentScaling`` but for the fast-math build: an amax that is subnormal counts as 0, and an inverse
    that is subnormal is 0.

    Parameters
    ----------
    amax : float
    format : str or Format
        The largest value of this format becomes the quotient's dividend.
    power_of_two : bool
        Whether the scale is rounded down to a power of two.
    eps : float
        What a smaller amax counts as.

    Returns
    -------
    scale, scale_inv : float

    Source: Transformer Engine 2.20, ``common/multi_tensor/compute_scale.cu``.
    """
    largest = as_format(format, "format").max
    return _core.scale_of_amax(
        check_real(amax, "amax"), largest, check_bool(power_of_two, "power_of_two"), check_real(eps, "eps")
    )


def _in_place(x: Any, argument: str, known: tuple[str, ...], shape: tuple[int, ...] | None = None) -> Typed:
    """An array that is updated where it lies, as one row."""
    array, source = as_array(x, argument)
    if source not in known:
        raise TypeError(f"{argument} must be {' or '.join(known)}, not {source}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{argument} must have shape {shape}, as grad, not {array.shape}")
    if is_torch_tensor(x) and array.size and array.__array_interface__["data"][0] != x.data_ptr():
        raise ValueError(f"{argument} must be a tensor on the CPU: it is updated in place, and this one was copied")
    if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
        raise ValueError(f"{argument} must be C-contiguous, aligned and writable: it is updated in place")
    words = array.view(np.uint16) if source == "float16" else array
    return words.reshape(1, -1), source


def _gradient(grad: Any) -> tuple[Typed, tuple[int, ...]]:
    array, source = as_kernel_floats(grad, "grad")
    return (array.reshape(1, -1), source), array.shape


def _check_distinct(grad: Typed, /, **updated: Typed | None) -> Typed:
    """ValueError where two arrays that are updated share memory; the gradient, copied where it shares any."""
    given = {name: one[0] for name, one in updated.items() if one is not None}
    names = list(given)
    for i, name in enumerate(names):
        for other in names[:i]:
            if np.may_share_memory(given[name], given[other]):
                raise ValueError(f"{other} and {name} must lie apart in memory")
    shared = any(np.may_share_memory(grad[0], one) for one in given.values())
    return (copied(grad[0]) if shared else grad[0]), grad[1]


def sgd_update(
    grad: Any,
    param: Any,
    momentum_buffer: Any,
    *,
    model: Any = None,
    lr: float,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    first_run: bool = False,
    weight_decay_after_momentum: bool = False,
    scale: float = 1.0,
    threads: int | None = None,
) -> None:
    """SGD's update of one tensor by the multi-tensor kernel, in place. Every bit is the kernel's.

    g = grad scale; g = fma(weight_decay, param, g); b = fma(momentum, b, (1 - dampening) g), or g in the first run; g =
    b, or with nesterov fma(momentum, b, g); param = fma(-g, lr, param). Each operation flushes subnormal numbers to
    zeros of their sign. A float16 param is param + fl16(-(lr g)) in float16.

    Parameters
    ----------
    grad : array of float32 or float16
    param, momentum_buffer : array of float32, or of float16 with a grad of float16
        C-contiguous, of grad's shape; updated where they lie.
    model : array of float16, optional
        Gets a copy of a param of float32; a grad of float16 needs it.
    lr, weight_decay, momentum, dampening, scale : float
    nesterov, first_run, weight_decay_after_momentum : bool
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Source: Transformer Engine 2.20, ``common/multi_tensor/sgd.cu``, compiled with fast-math. What devices do with
    values within 2**-150 below 2**-126, which round to a normal number, is unknown: here they are that number.
    """
    gradient, shape = _gradient(grad)
    weights = _in_place(param, "param", ("float32", "float16"), shape)
    moments = _in_place(momentum_buffer, "momentum_buffer", (weights[1],), shape)
    copies = None if model is None else _in_place(model, "model", ("float16",), shape)
    if (gradient[1], weights[1], copies is None) not in (
        ("float16", "float16", True), ("float32", "float32", True), ("float32", "float32", False),
        ("float16", "float32", False),
    ):  # fmt: skip
        raise TypeError(
            "grad, param and model must have types that a kernel has: float16, float16 and none; or float32, float32 "
            "and float16 or none; or float16, float32 and float16"
        )
    checked = (
        check_real(lr, "lr"),
        check_real(weight_decay, "weight_decay"),
        check_real(momentum, "momentum"),
        check_real(dampening, "dampening"),
        check_real(scale, "scale"),
    )
    switches = (
        check_bool(nesterov, "nesterov"),
        check_bool(first_run, "first_run"),
        check_bool(weight_decay_after_momentum, "weight_decay_after_momentum"),
    )
    apart_grad = _check_distinct(gradient, param=weights, momentum_buffer=moments, model=copies)
    _core.sgd_update(checked, switches, apart_grad, weights, moments, copies, check_threads(threads, math.prod(shape)))


def _adam(
    lr: Any, betas: Any, eps: Any, weight_decay: Any, step: Any, bias_correction: Any, mode: Any
) -> tuple[tuple[float, float, float, float, float], tuple[int, bool, str]]:
    """The numbers and the choices of an update."""
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise TypeError("betas must be a tuple of two numbers")
    numbers = (
        check_real(lr, "lr"),
        check_real(betas[0], "betas"),
        check_real(betas[1], "betas"),
        check_real(eps, "eps"),
        check_real(weight_decay, "weight_decay"),
    )
    choices = (
        check_int(step, "step", 1, 2**31 - 1),
        check_bool(bias_correction, "bias_correction"),
        check_choice(mode, "mode", ("l2", "decoupled")),
    )
    return numbers, choices


def adam_update(
    grad: Any,
    param: Any,
    exp_avg: Any,
    exp_avg_sq: Any,
    *,
    master: Any = None,
    inverse_scale: float | None = None,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    step: int,
    bias_correction: bool = True,
    mode: AdamModeName = "decoupled",
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
) -> None:
    """Adam's update of one tensor by the multi-tensor kernel's steps, in place.

    With c = 1 - beta^step, or 1, in float32: of ``l2`` g = fma(weight_decay, param, g); m = fma(beta1, m, (1 - beta1)
    g); v = fma(beta2, v, ((1 - beta2) g) g); u = (m / c1) / (sqrt(v / c2) + eps); of ``decoupled`` u =
    fma(weight_decay, param, u); param = fma(-lr, u, param). A division multiplies by the reciprocal; each operation
    flushes subnormal numbers. Reciprocals and roots are rounded correctly; with ``functions="hopper"`` they are those
    of an H100 or H200, and every bit is the kernel's.

    Parameters
    ----------
    grad : array of float32, float16 or bfloat16
    param, exp_avg, exp_avg_sq : array of float32, float16 or bfloat16, of grad's shape
        C-contiguous; updated where they lie.
    master : array of float32, optional
        Holds the parameters; param gets their copies.
    inverse_scale : float, optional
        Multiplies grad first, also where it lies, rounded to its type: grad is C-contiguous then. This is what the
        kernels for CUDA graphs do, which round lr u before they subtract it: so does ``functions="hopper"``.
    lr, betas, eps, weight_decay : float
    step : int
        The number of this update, from 1 on.
    bias_correction : bool
    mode : str
        ``l2`` (Adam) or ``decoupled`` (AdamW).
    functions, threads
        As the module says.

    Source: Transformer Engine 2.20, ``common/multi_tensor/adam.cu``, compiled with fast-math.
    """
    gradient, shape = _gradient(grad)
    weights, first, second = (
        _in_place(one, name, OUT_DTYPES, shape)
        for one, name in ((param, "param"), (exp_avg, "exp_avg"), (exp_avg_sq, "exp_avg_sq"))
    )
    full = None if master is None else _in_place(master, "master", ("float32",), shape)
    checked = _adam(lr, betas, eps, weight_decay, step, bias_correction, mode)
    options = options_of(functions, threads, math.prod(shape))
    apart_grad = _check_distinct(gradient, param=weights, exp_avg=first, exp_avg_sq=second, master=full)
    wide = None if full is None else full[0]
    if inverse_scale is None:
        _core.adam_update(*checked, apart_grad, weights, first, second, wide, options)
        return
    updated = _in_place(grad, "grad", OUT_DTYPES)
    _check_distinct(gradient, grad=updated, param=weights, exp_avg=first, exp_avg_sq=second, master=full)
    factor = check_real(inverse_scale, "inverse_scale")
    _core.adam_update_unscaling(*checked, factor, updated, weights, first, second, wide, options)


def adam_update_fp8(
    grad: Any,
    codes: Any,
    exp_avg: Any,
    exp_avg_sq: Any,
    master: Any,
    *,
    format: FormatName | Format = "e4m3",
    scale: float = 1.0,
    amax: float = 0.0,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    step: int,
    bias_correction: bool = True,
    mode: AdamModeName = "decoupled",
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
) -> tuple[float, float]:
    """The same with parameters of FP8: codes of master times scale, saturated.

    Parameters
    ----------
    grad, exp_avg, exp_avg_sq, lr, betas, eps, weight_decay, step, bias_correction, mode, functions, threads
        As for ``adam_update``.
    codes : array of uint8, of grad's shape
        Gets the parameters' codes.
    master : array of float32, of grad's shape
        Holds the parameters.
    format : str or Format
    scale : float
    amax : float
        What the slot of the amax holds before.

    Returns
    -------
    amax : float
        The largest of it and of the magnitudes of the updated master.
    scale_inv : float

    Source: as of ``adam_update``.
    """
    gradient, shape = _gradient(grad)
    first, second = (
        _in_place(one, name, OUT_DTYPES, shape) for one, name in ((exp_avg, "exp_avg"), (exp_avg_sq, "exp_avg_sq"))
    )
    bytes_of = _in_place(codes, "codes", ("uint8",), shape)
    full = _in_place(master, "master", ("float32",), shape)
    own = as_format(format, "format")
    if own.bits > 8:
        raise ValueError(f"format must have at most 8 bits, not {own.bits}")
    factor, before = check_real(scale, "scale"), check_real(amax, "amax")
    checked = _adam(lr, betas, eps, weight_decay, step, bias_correction, mode)
    options = options_of(functions, threads, math.prod(shape))
    apart_grad = _check_distinct(gradient, codes=bytes_of, exp_avg=first, exp_avg_sq=second, master=full)
    largest = _core.adam_update_fp8(
        *checked, apart_grad, own, factor, before, bytes_of[0], first, second, full[0], options
    )
    with np.errstate(all="ignore"):
        return largest, float(np.float32(1) / np.float32(factor))


def adam_update_remainder(
    grad: Any,
    param: Any,
    exp_avg: Any,
    exp_avg_sq: Any,
    remainder: Any,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    step: int,
    bias_correction: bool = True,
    mode: AdamModeName = "decoupled",
    functions: FunctionsName = "correctly_rounded",
    threads: int | None = None,
) -> None:
    """The same with a master of float32 whose words are shared out: a bfloat16 parameter and 16 bits behind it.

    The low word is ``remainder``; the parameter is the high word, plus 1 where the low word is negative as int16.

    Parameters
    ----------
    grad, exp_avg, exp_avg_sq, lr, betas, eps, weight_decay, step, bias_correction, mode, functions, threads
        As for ``adam_update``.
    param : array of bfloat16, of grad's shape
    remainder : array of int16, of grad's shape

    Source: as of ``adam_update``.
    """
    gradient, shape = _gradient(grad)
    first, second = (
        _in_place(one, name, OUT_DTYPES, shape) for one, name in ((exp_avg, "exp_avg"), (exp_avg_sq, "exp_avg_sq"))
    )
    weights = _in_place(param, "param", ("bfloat16",), shape)
    low = _in_place(remainder, "remainder", ("int16",), shape)
    checked = _adam(lr, betas, eps, weight_decay, step, bias_correction, mode)
    options = options_of(functions, threads, math.prod(shape))
    apart_grad = _check_distinct(gradient, param=weights, exp_avg=first, exp_avg_sq=second, remainder=low)
    _core.adam_update_remainder(*checked, apart_grad, weights, first, second, low[0], options)


_guard(__name__, __all__)
