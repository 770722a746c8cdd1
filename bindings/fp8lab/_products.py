# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, as_array, as_codes, as_float32, as_format, check_int, check_name, check_real
from fp8lab._core import Format, MmaModel


def models() -> list[MmaModel]:
    """The tensor cores that are modelled; ``str()`` of each explains it, with its source and its evidence."""
    return _core.models()


def _operand(x: Any, argument: str, format: str | Format) -> tuple[Array, Format | None]:
    """A matrix of codes with its format, or of float32 values, without."""
    _, name = as_array(x, argument)
    own: Format | None = None
    if name == "float32":
        result = as_float32(x, argument)
    elif name in ("float64", "float16", "bfloat16"):
        raise TypeError(f"{argument} must be codes (uint8, or a float8 type) or float32, not {name}")
    else:
        own = as_format(format, f"format_{argument}")
        if own.bits > 8:
            raise ValueError(f"format_{argument} must have at most 8 bits, not {own.bits}")
        result, own = as_codes(x, argument, own)
    if result.ndim != 2:
        raise ValueError(f"{argument} must have two dimensions, not {result.ndim}")
    return result, own


def mma(
    model: str | MmaModel,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    format_a: str | Format = "e4m3",
    format_b: str | Format = "e4m3",
    zero_rule: str = "skip",
) -> Array:
    """A batch of dot products of one tensor-core instruction, bit for bit.

    Parameters
    ----------
    model : str
        One of ``models()``.
    a, b : array_like, (n, K)
        Codes (uint8, or an ml_dtypes or torch float8 type, which carries its format), or float32 for models that take it.
        K is the instruction's, any for ``exact``.
    c : array_like of float32, (n,), optional
        The accumulators; zeros if left out.
    format_a, format_b : str
        Formats of uint8 codes.
    zero_rule : str
        What zero terms contribute to the alignment: ``skip`` (nothing) or ``mma_sim`` (as MMA-Sim has it).

    Returns
    -------
    ndarray of float32, (n,)
        Result words are kept bit for bit; NaN is 7FFFFFFF.

    Raises
    ------
    TypeError, ValueError
        For wrong element types, shapes, K, formats the model does not take, and unknown names.
    """
    left, left_format = _operand(a, "a", format_a)
    right, right_format = _operand(b, "b", format_b)
    accumulators = np.empty(0, np.float32) if c is None else as_float32(c, "c", (left.shape[0],))
    out = np.empty(left.shape[0], np.float32)
    _core.mma(
        check_name(model, "model"),
        left,
        left_format,
        right,
        right_format,
        accumulators,
        out,
        check_name(zero_rule, "zero_rule"),
    )
    return out


def gemm(
    a: Any,
    b: Any,
    *,
    model: str | MmaModel,
    format_a: str | Format = "e4m3",
    format_b: str | Format = "e4m3",
    scale_a: float = 1.0,
    scale_b: float = 1.0,
    promote_k: int | None = None,
    bias: Any = None,
    out_dtype: str = "float32",
    zero_rule: str = "skip",
    threads: int = 1,
) -> Array:
    """``a @ b.T`` as a tensor core computes it, bit for bit; Ctrl-C stops it.

    K ascends from a zero accumulator; a tail is filled with zeros. The bits do not depend on threads or processor.

    Parameters
    ----------
    a : array_like, (M, K)
    b : array_like, (N, K)
        As a Linear layer has its input and its weight. Element types as for ``mma``.
    model : str
        One of ``models()``; ``exact`` is the real dot product, rounded once.
    format_a, format_b : str
        Formats of uint8 codes.
    scale_a, scale_b : float
        Multiply on dequantize: the result is fl(fl(scale_a * scale_b) * accumulator) + bias in float32.
    promote_k : int, optional
        Elements of K after which the accumulator is added to a float32 one and cleared (CUTLASS, DeepGEMM: 128);
        never if left out ("fast accumulation").
    bias : array_like of float32, (N,), optional
    out_dtype : str
        ``float32``, ``float16`` or ``bfloat16`` (needs ml_dtypes): the result is rounded to it, nearest even.
    zero_rule : str
        As for ``mma``.
    threads : int

    Returns
    -------
    ndarray of out_dtype, (M, N)

    Raises
    ------
    TypeError, ValueError
        As ``mma`` does, and for a promote_k that is no multiple of the instruction's K.
    """
    left, left_format = _operand(a, "a", format_a)
    right, right_format = _operand(b, "b", format_b)
    if out_dtype not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"unknown out_dtype {out_dtype!r}; known: float32, float16, bfloat16")
    bias_array = np.empty(0, np.float32) if bias is None else as_float32(bias, "bias", (right.shape[0],))
    out = np.empty((left.shape[0], right.shape[0]), np.float32)
    _core.gemm(
        check_name(model, "model"),
        left,
        left_format,
        right,
        right_format,
        out,
        check_real(scale_a, "scale_a"),
        check_real(scale_b, "scale_b"),
        0 if promote_k is None else check_int(promote_k, "promote_k", 1, 2**31 - 1),
        bias_array,
        check_name(zero_rule, "zero_rule"),
        check_int(threads, "threads", 1, 1024),
    )
    if out_dtype == "float32":
        return out
    dtype: Any = out_dtype
    if out_dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    with np.errstate(over="ignore", invalid="ignore"):
        return out.astype(dtype)
