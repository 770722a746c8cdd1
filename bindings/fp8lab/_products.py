# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, as_array, as_codes, as_float32, as_floats_of, as_format, check_int, check_name, check_real
from fp8lab._casts import unpack_pairs
from fp8lab._core import Format, MmaModel


def models() -> list[MmaModel]:
    """The tensor cores that are modelled; ``str()`` of each explains it, with its source and its evidence.

    Each tells its instruction's ``k`` (None: any), the formats of its ``operands``, the type of its ``accumulator``, and
    ``scale_format`` and ``scale_block`` where it takes block scales (else None).
    """
    return _core.models()


def _elements(x: Any, argument: str, format: str | Format) -> tuple[Array, Format | None]:
    """A matrix of codes with its format, or of float32 values, without."""
    array, name = as_array(x, argument)
    own: Format | None = None
    if name == "float32":
        result = as_float32(x, argument)
    elif name == "float64":
        raise TypeError(f"{argument} must be codes, halves or float32, not {name}")
    elif name in ("float16", "bfloat16"):
        own = _core.find_format(name)
        result, own = as_codes(array.view(np.uint16), argument, own)
    else:
        result, own = as_codes(x, argument, as_format(format, f"format_{argument}"))
        if name == "uint8" and own == _core.find_format("e2m1") and result.ndim == 2:
            result = unpack_pairs(result)
    if result.ndim != 2:
        raise ValueError(f"{argument} must have two dimensions, not {result.ndim}")
    return result, own


def _scale_codes(x: Any, argument: str, model: MmaModel, shape: tuple[int, ...]) -> Array:
    """The block scales of an operand of ``shape``, as bytes; none if left out."""
    if x is None:
        return np.empty(0, np.uint8)
    if model.scale_format is None or model.scale_block is None:
        raise ValueError(f"{argument} must be left out: {model.name} has no block scales")
    codes, carried = as_codes(x, argument, _core.find_format(model.scale_format))
    signed = {"ue4m3": "e4m3"}.get(model.scale_format)  # as float8 types have it
    if carried.name not in (model.scale_format, signed):
        raise ValueError(f"{argument} is {carried.name}; {model.name} takes {model.scale_format}")
    wanted = (shape[0], -(-shape[1] // model.scale_block))
    if codes.shape != wanted:
        raise ValueError(f"{argument} must have shape {wanted}, one for every {model.scale_block} of K, not {codes.shape}")
    return codes


def mma(
    model: str | MmaModel,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    format_a: str | Format = "e4m3",
    format_b: str | Format = "e4m3",
    scale_a: Any = None,
    scale_b: Any = None,
    zero_rule: str = "skip",
) -> Array:
    """A batch of dot products of one tensor-core instruction, bit for bit.

    Parameters
    ----------
    model : str
        One of ``models()``.
    a, b : array_like, (n, K)
        What the model takes: codes (uint8, or an ml_dtypes or torch float8 type, which carries its format), float16 or
        bfloat16 (also as uint16 codes), or float32. E2M1 as uint8 is packed, (n, K / 2), the first of a pair in the low
        nibble. K is the instruction's, any for ``exact``.
    c : array_like of the model's accumulator type, (n,), optional
        The accumulators; zeros if left out.
    format_a, format_b : str
        Formats of uint8 and uint16 codes.
    scale_a, scale_b : array_like of uint8 (or float8), (n, K / block), optional
        Codes of the block scales, for models that have them, which need both.
    zero_rule : str
        What zero terms contribute to the alignment: ``skip`` (nothing) or ``mma_sim`` (as MMA-Sim has it). No measured
        row tells them apart. Groups of FP4 products count with their scales even where they are zero, but for
        ``skip_empty_groups`` (not if all products are zero) and ``skip_zero_groups`` (not if their sum is).

    Returns
    -------
    ndarray of the model's accumulator type, float32 or float16, (n,)
        Result words are kept bit for bit; NaN is 7FFFFFFF or 7FFF.

    Raises
    ------
    TypeError, ValueError
        For wrong element types, shapes, K, formats the model does not take, scales that are missing or not wanted, and
        unknown names.
    """
    core = _core.find_model(check_name(model, "model"))
    left, left_format = _elements(a, "a", format_a)
    right, right_format = _elements(b, "b", format_b)
    dtype = np.dtype(core.accumulator)
    word = np.dtype(np.uint16 if dtype.itemsize == 2 else np.float32)
    accumulators = np.empty(0, dtype) if c is None else as_floats_of(c, "c", core.accumulator, (left.shape[0],))
    out = np.empty(left.shape[0], dtype)
    _core.mma(
        core.name,
        _core.Operands(left, left_format, _scale_codes(scale_a, "scale_a", core, left.shape)),
        _core.Operands(right, right_format, _scale_codes(scale_b, "scale_b", core, right.shape)),
        accumulators.view(word),
        out.view(word),
        check_name(zero_rule, "zero_rule"),
    )
    return out


def _split_scale(value: Any) -> tuple[Any, Any]:
    """What gemm's scale is made of: codes of block scales, or None, and the tensor's scale."""
    if isinstance(value, tuple) and len(value) == 2:
        return value
    number = isinstance(value, (int, float, np.integer, np.floating)) or value is None
    return (None, value) if number else (value, 1.0)


def gemm(
    a: Any,
    b: Any,
    *,
    model: str | MmaModel,
    format_a: str | Format = "e4m3",
    format_b: str | Format = "e4m3",
    scale_a: Any = 1.0,
    scale_b: Any = 1.0,
    promote_k: int | None = None,
    bias: Any = None,
    out_dtype: str = "float32",
    zero_rule: str = "skip",
    threads: int = 1,
) -> Array:
    """``a @ b.T`` as a tensor core computes it, bit for bit; Ctrl-C stops it.

    One instruction follows the other, K ascending from a zero accumulator; a tail is filled with zeros (with block
    scales, K is a multiple of their block). The bits do not depend on threads or processor. Accumulators of float16 are
    float32 numbers when they are promoted, scaled and returned.

    Parameters
    ----------
    a : array_like, (M, K)
    b : array_like, (N, K)
        As a Linear layer has its input and its weight. Element types as for ``mma``.
    model : str
        One of ``models()``; ``exact`` is the real dot product, rounded once.
    format_a, format_b : str
        Formats of uint8 and uint16 codes.
    scale_a, scale_b : float, array_like of uint8 (or float8), or a tuple of both
        A number is the whole tensor's and multiplies on dequantize: the result is
        fl(fl(scale_a * scale_b) * accumulator) + bias in float32. An array, (M, K / block) or (N, K / block), has the
        codes of the block scales, for models that have them; ``(array, number)`` is both, as NVFP4 has them.
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
    core = _core.find_model(check_name(model, "model"))
    left, left_format = _elements(a, "a", format_a)
    right, right_format = _elements(b, "b", format_b)
    codes_a, number_a = _split_scale(scale_a)
    codes_b, number_b = _split_scale(scale_b)
    if out_dtype not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"unknown out_dtype {out_dtype!r}; known: float32, float16, bfloat16")
    bias_array = np.empty(0, np.float32) if bias is None else as_float32(bias, "bias", (right.shape[0],))
    out = np.empty((left.shape[0], right.shape[0]), np.float32)
    _core.gemm(
        core.name,
        _core.Operands(left, left_format, _scale_codes(codes_a, "scale_a", core, left.shape)),
        _core.Operands(right, right_format, _scale_codes(codes_b, "scale_b", core, right.shape)),
        out,
        check_real(number_a, "scale_a"),
        check_real(number_b, "scale_b"),
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
