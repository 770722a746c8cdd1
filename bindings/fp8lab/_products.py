# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_array,
    as_bytes,
    as_codes,
    as_float32,
    as_floats_of,
    as_profile,
    check_bool,
    check_choice,
    check_int,
    check_list,
    check_name,
    check_real,
    check_threads,
    check_unread,
    code_dtype,
    named,
)
from fp8lab._casts import unpack_pairs
from fp8lab._core import Format, MmaModel, Profile


def as_model(model: str | MmaModel) -> MmaModel:
    """A model by name, or one that is given as it is."""
    return model if isinstance(model, MmaModel) else named("model", _core.find_model, check_name(model, "model", " or an MmaModel"))


def model_with(model: str | MmaModel, *, fraction_bits: int | None = None, keeps_sign: bool | None = None) -> MmaModel:
    """A model with other answers to what no device has decided, for ``mma`` and ``gemm``.

    Parameters
    ----------
    model : str or MmaModel
    fraction_bits : int, optional
        Bits kept below the largest exponent, 1 to 40: 25 instead of 35 is what a probe of an RTX 5090 is said to have
        read for FP4.
    keeps_sign : bool, optional
        Whether a negative sum that underflows becomes -0 (Khattak and Mikaitis, arXiv 2512.07004) instead of +0
        (Xie et al., MMA-Sim, arXiv 2511.10909).

    Raises
    ------
    ValueError
        For an unknown name, ``exact``, or fraction bits out of range.
    """
    core = as_model(model)
    if core.k is None:
        raise ValueError("exact has nothing to replace")
    if fraction_bits is not None:
        fraction_bits = check_int(fraction_bits, "fraction_bits", 1, 40)
    return core._replace(fraction_bits, None if keeps_sign is None else check_bool(keeps_sign, "keeps_sign"))


_OUT_DTYPES = ("float32", "float16", "bfloat16", *(f.name for f in _core.formats() if f.bits <= 8))


def models() -> list[MmaModel]:
    """The tensor cores that are modelled; ``str()`` of each explains it, with its source and its evidence.

    Each tells its instruction's ``k`` (None: any), the formats of its ``operands``, the type of its ``accumulator``, and
    ``scale_format`` and ``scale_block`` where it takes block scales (else None).
    """
    return _core.models()


def _elements(x: Any, argument: str, format: str | Format | None) -> tuple[Array, Format | None]:
    """A matrix of codes with its format, or of float32 values, without."""
    array, name = as_array(x, argument)
    own: Format | None = None
    format_argument = f"format_{argument}"
    if name == "float32":
        check_unread(f"codes, and {argument} is {name}", **{format_argument: format})
        result = as_float32(x, argument)
    elif name == "float64":
        raise TypeError(f"{argument} must be codes, halves or float32, not {name}")
    elif name in ("float16", "bfloat16"):
        check_unread(f"codes, and {argument} is {name}", **{format_argument: format})
        result, own = as_codes(array.view(np.uint16), argument, name)
    else:
        result, own = as_codes(x, argument, format, format_argument)
        if name == "uint8" and own == _core.find_format("e2m1") and result.ndim == 2:
            result = unpack_pairs(result)
    if result.ndim != 2:
        raise ValueError(f"{argument} must have two dimensions, not {result.ndim}")
    return result, own


def _operands(
    array: Array, format: Format | None, scales: Array, tiles: Array = np.empty((0, 0), np.float32), transposed: bool = False
) -> _core.Operands:
    rows, depth = array.shape[::-1] if transposed else array.shape
    tile_rows = 128 if tiles.size and tiles.shape[int(transposed)] != rows else 1
    return _core.Operands(array, format, scales, tiles, tile_rows, 128, transposed)


def _scale_codes(x: Any, argument: str, model: MmaModel, shape: tuple[int, ...], transposed: bool = False) -> Array:
    """The block scales of an operand of ``shape``, as bytes; none if left out."""
    if x is None:
        return np.empty(0, np.uint8)
    if model.scale_format is None or model.scale_block is None:
        raise ValueError(f"{argument} must be left out: the model {model.name} has no block scales")
    codes, carried = as_bytes(x, argument)
    signed = {"ue4m3": "e4m3"}.get(model.scale_format)  # as float8 types have it
    if carried is not None and carried.name not in (model.scale_format, signed):
        raise ValueError(f"{argument} is {carried.name}; {model.name} takes {model.scale_format}")
    rows, depth = shape[::-1] if transposed else shape
    wanted = (rows, -(-depth // model.scale_block))
    if codes.shape != (wanted[::-1] if transposed else wanted):
        wanted = wanted[::-1] if transposed else wanted
        raise ValueError(f"{argument} must have shape {wanted}, one for every {model.scale_block} of K, not {codes.shape}")
    return codes


def _tile_scales(x: Any, argument: str, shape: tuple[int, ...], transposed: bool) -> Array:
    """The float32 scales of an operand's tiles of 1 x 128 or 128 x 128 elements."""
    tiles = as_float32(x, argument)
    rows, depth = shape[::-1] if transposed else shape
    allowed = [(rows, -(-depth // 128)), (-(-rows // 128), -(-depth // 128))]
    if transposed:
        allowed = [size[::-1] for size in allowed]
    if tiles.shape not in allowed:
        raise ValueError(
            f"{argument} must have shape {allowed[0]} or {allowed[1]}, one for every 1 x 128 or 128 x 128 elements, not {tiles.shape}"
        )
    return tiles


def mma(
    model: str | MmaModel,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    format_a: str | Format | None = None,
    format_b: str | Format | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    zero_rule: str = "skip",
) -> Array:
    """A batch of dot products of one tensor-core instruction, bit for bit.

    Parameters
    ----------
    model : str or MmaModel
        One of ``models()``, or what ``model_with`` made of it.
    a, b : array_like, (n, K)
        What the model takes: codes (uint8, or an ml_dtypes or torch float8 type, which carries its format), float16 or
        bfloat16 (also as uint16 codes), or float32. E2M1 as uint8 is packed, (n, K / 2), the first of a pair in the low
        nibble. K is the instruction's, any for ``exact``.
    c : array_like of the model's accumulator type, (n,), optional
        The accumulators; zeros if left out.
    format_a, format_b : str or Format, optional
        Formats of uint8 and uint16 codes; ``e4m3`` if left out. Other element types carry theirs.
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
        For wrong element types, shapes, K, formats the model does not take, codes with bits beyond their format's width
        (of scales in UE4M3, bit 7 is ignored, as by the instruction), scales that are missing or not wanted, and unknown
        names.
    """
    core = as_model(model)
    left, left_format = _elements(a, "a", format_a)
    right, right_format = _elements(b, "b", format_b)
    dtype = np.dtype(core.accumulator)
    word = np.dtype(np.uint16 if dtype.itemsize == 2 else np.float32)
    accumulators = np.empty(0, dtype) if c is None else as_floats_of(c, "c", core.accumulator, (left.shape[0],))
    out = np.empty(left.shape[0], dtype)
    _core.mma(
        core,
        _operands(left, left_format, _scale_codes(scale_a, "scale_a", core, left.shape)),
        _operands(right, right_format, _scale_codes(scale_b, "scale_b", core, right.shape)),
        accumulators.view(word),
        out.view(word),
        check_name(zero_rule, "zero_rule"),
    )
    return out


def _split_scale(value: Any) -> tuple[Any, Any]:
    """What gemm's scale is made of: an array of scales, or None, and the tensor's scale."""
    if isinstance(value, tuple) and len(value) == 2:
        return value
    number = isinstance(value, (int, float, np.integer, np.floating)) or value is None
    return (None, value) if number else (value, 1.0)


def _check_scales(x: Any, argument: str, model: MmaModel) -> None:
    """TypeError for what is an array of neither kind of scales."""
    name = type(x).__name__ if isinstance(x, (str, bytes, list, dict)) else as_array(x, argument)[1]
    if name in ("uint8", "float32") or name.startswith("float8"):
        return
    allowed = "a number, an array of float32 (scales of tiles)"
    if model.scale_format is not None:
        allowed += f", an array of uint8 ({model.scale_format} codes of block scales), a tuple of that and a number"
    raise TypeError(f"{argument} must be {allowed}, not {name}")


def _gemm_operand(
    x: Any, argument: str, format: str | Format | None, scale: Any, model: MmaModel, transposed: bool
) -> tuple[_core.Operands, int, float]:
    """An operand, its number of rows, and its tensor's scale."""
    array, own = _elements(x, argument, format)
    scales, number = _split_scale(scale)
    name = f"scale_{argument}"
    codes, tiles = np.empty(0, np.uint8), np.empty((0, 0), np.float32)
    if scales is not None:
        _check_scales(scales, name, model)
    if scales is not None and as_array(scales, name)[1] == "float32":
        tiles = _tile_scales(scales, name, array.shape, transposed)
    else:
        codes = _scale_codes(scales, name, model, array.shape, transposed)
    rows = array.shape[1 if transposed else 0]
    return _operands(array, own, codes, tiles, transposed), rows, check_real(number, name)


def _sizes(values: Any, argument: str) -> list[int]:
    if values is None:
        return []
    return check_list(values, argument, lambda value, argument: check_int(value, argument, 0, 2**62))


def gemm(
    a: Any,
    b: Any,
    *,
    model: str | MmaModel,
    format_a: str | Format | None = None,
    format_b: str | Format | None = None,
    scale_a: Any = 1.0,
    scale_b: Any = 1.0,
    layout: str = "nt",
    promote_k: int | None = None,
    scale_order: str = "scales_first",
    split_k: Any = None,
    split_order: Any = None,
    c: Any = None,
    c_enters: str = "epilogue",
    bias: Any = None,
    scale_out: float = 1.0,
    out_dtype: str = "float32",
    out_profile: str | Profile | None = None,
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
    model : str or MmaModel
        One of ``models()``, or what ``model_with`` made of it; ``exact`` is the real dot product, rounded once.
    format_a, format_b : str or Format, optional
        Formats of uint8 and uint16 codes; ``e4m3`` if left out. Other element types carry theirs.
    scale_a, scale_b : float, array_like, or a tuple of both
        A number is the whole tensor's and multiplies on dequantize, in the epilogue. An array of uint8 or float8,
        (M, K / block) or (N, K / block), has the codes of the block scales, for models that have them;
        ``(array, number)`` is both, as NVFP4 has them. An array of float32 has a scale for every tile of 1 x 128
        elements, (M, K / 128), or 128 x 128, (M / 128, K / 128), rounded up; they multiply at every promotion, which
        is then every 128 (DeepSeek-V3, DeepGEMM).
    layout : str
        Letters of row-major BLAS for how a and b are stored: ``nt`` as above, ``nn`` with b (K, N), ``tn`` with a
        (K, M) and b (K, N), ``tt`` with a (K, M). Arrays of scales are transposed with their elements. cuBLAS, column-major,
        calls ``nt`` TN.
    promote_k : int, optional
        Elements of K after which the accumulator is added to a float32 one and cleared (CUTLASS, DeepGEMM: 128);
        never if left out ("fast accumulation").
    scale_order : str
        How tile scales multiply: ``scales_first``, sum = fma(fl(scale_a * scale_b), accumulator, sum), or
        ``accumulator_first``, sum = fma(fl(accumulator * scale_a), scale_b, sum).
    split_k : list of int, optional
        Lengths of ranges of K that are computed apart, then added in float32.
    split_order : list of int, optional
        The ranges' numbers in the order of addition; ascending if left out.
    c : array_like of float32, (M, N), optional
        Is added in the epilogue, or with ``c_enters="accumulator"`` what the accumulation starts from.
    c_enters : str
        ``epilogue`` or ``accumulator``.
    bias : array_like of float32, (N,), optional
    scale_out : float
        The epilogue is scale_out * (fl(scale_a * scale_b) * accumulator + c + bias), from left to right, every
        operation rounded to float32.
    out_dtype : str
        ``float32``, ``float16``, ``bfloat16`` (needs ml_dtypes), or a format of up to 8 bits, whose codes the result
        has: rounded once.
    out_profile : str, optional
        One of ``profiles()``, for the rounding to the output; ``cuda_satfinite`` for codes, ``cuda_nosat`` for
        float16 and bfloat16 if left out. float32 is not rounded, and has none.
    zero_rule : str
        As for ``mma``.
    threads : int

    Returns
    -------
    ndarray of out_dtype, or of uint8 codes, (M, N)

    Raises
    ------
    TypeError, ValueError
        As ``mma`` does, and for options that do not fit or that nothing would read; the message says what does.
    """
    core = as_model(model)
    layout = check_choice(layout, "layout", ("nt", "nn", "tn", "tt"))
    left, rows, number_a = _gemm_operand(a, "a", format_a, scale_a, core, layout[0] == "t")
    right, columns, number_b = _gemm_operand(b, "b", format_b, scale_b, core, layout[1] == "n")
    options = _core.GemmOptions(
        number_a,
        number_b,
        check_real(scale_out, "scale_out"),
        0 if promote_k is None else check_int(promote_k, "promote_k", 1, 2**31 - 1),
        check_name(scale_order, "scale_order"),
        _sizes(split_k, "split_k"),
        _sizes(split_order, "split_order"),
        np.empty(0, np.float32) if c is None else as_float32(c, "c", (rows, columns)),
        check_name(c_enters, "c_enters"),
        np.empty(0, np.float32) if bias is None else as_float32(bias, "bias", (columns,)),
        check_name(zero_rule, "zero_rule"),
        check_threads(threads),
    )
    if check_choice(out_dtype, "out_dtype", _OUT_DTYPES) == "float32":
        check_unread("an out_dtype of 16 bits or fewer, which the result is rounded to; float32 is not", out_profile=out_profile)
        out = np.empty((rows, columns), np.float32)
        _core.gemm(core, left, right, out, options)
        return out
    format = _core.find_format(out_dtype)
    default = "cuda_satfinite" if format.bits <= 8 else "cuda_nosat"
    profile = as_profile(default if out_profile is None else out_profile, "out_profile")
    out = np.empty((rows, columns), code_dtype(format))
    _core.gemm_encoded(core, left, right, format, profile, out, options)
    if format.bits <= 8:
        return out
    dtype: Any = out_dtype
    if out_dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    return out.view(dtype)
