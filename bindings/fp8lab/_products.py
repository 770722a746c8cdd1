# SPDX-License-Identifier: Apache-2.0
"""Products of matrices of codes: single instructions of tensor cores, and whole GEMMs."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_array,
    as_bytes,
    as_codes,
    as_float32,
    as_floats_of,
    as_format,
    as_profile,
    check_choice,
    check_int,
    check_name,
    check_real,
    check_threads,
    check_unread,
    code_dtype,
    kind_of,
    named,
    short,
)
from fp8lab._core import Format, MmaModel, Profile
from fp8lab._entry import guard as _guard
from fp8lab._gemm_recipes import GemmRecipe, NamedGemmRecipe, as_gemm_model, as_gemm_recipe, check_sizes
from fp8lab._models import as_model
from fp8lab._scaling import Quantized
from fp8lab._values import changed
from fp8lab.literals import (
    FormatName,
    GemmCEntersName,
    GemmModelName,
    GemmOutDtypeName,
    GemmRecipeName,
    GemmScaleLayoutName,
    GemmScaleOrderName,
    GemmZeroRuleName,
    LayoutName,
    ModelName,
    ProfileName,
    RoundingName,
)

__all__ = [
    "gemm",
    "mma",
]

_OUT_DTYPES = ("float16", "bfloat16", *(f.name for f in _core.formats() if f.bits <= 8))
_WIDE_DTYPES = ("float32", "float64")
_REMEMBERED = frozenset((str, int, type(None)))  # equal values of these types make equal recipes
_E2M1 = _core.find_format("e2m1")
_NONE = np.empty(0, np.float32)


class Matrix(NamedTuple):
    """A matrix of codes with its format, or of float32 or float64 values, without; packed codes of 4 bits are two a
    byte."""

    array: Array
    format: Format | None
    packed: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of elements."""
        rows, columns = self.array.shape
        return rows, columns * (2 if self.packed else 1)

    def operand(self, transposed: bool = False) -> _core.Operand:
        """The operand, without scales; ``transposed`` where the array is (K, rows)."""
        return _core.Operand(self.array, self.format, transposed, self.packed)


def matrix_of(x: Any, argument: str, format: FormatName | Format | None) -> Matrix:
    """What ``mma``, ``gemm`` and ``trace_dot`` take as an operand's elements."""
    array, name = as_array(x, argument)
    own: Format | None = None
    packed = False
    format_argument = f"format_{argument}"
    if name in ("float32", "float64"):
        check_unread(f"codes, and {argument} is {name}", **{format_argument: format})
        result = as_floats_of(x, argument, name)
    elif name in ("float16", "bfloat16"):
        check_unread(f"codes, and {argument} is {name}", **{format_argument: format})
        result, own = as_codes(array.view(np.uint16), argument, name)
    else:
        result, own = as_codes(x, argument, format, format_argument)
        packed = format is not None and name == "uint8" and own == _E2M1
    if result.ndim != 2:
        raise ValueError(f"{argument} must have two dimensions, not {result.ndim}")
    return Matrix(result, own, packed)


def set_codes(
    operand: _core.Operand,
    x: Any,
    argument: str,
    model: MmaModel,
    swizzled: bool = False,
) -> None:
    """Gives an operand the codes of its block scales, if there are any."""
    if x is None:
        return
    codes, carried = as_bytes(x, argument)
    format = None if carried is None else carried.name
    if format == "e4m3" and model.scale_format == "ue4m3":  # as float8 types have it
        format = "ue4m3"
    block = model.scale_block
    if block is not None and operand.depth % block == 0 and not swizzled:  # else the library says what is wrong
        wanted = operand.block_scale_shape(block)
        if codes.shape != wanted:
            raise ValueError(f"{argument} must have shape {wanted}, one for every {block} of K, not {codes.shape}")
    operand.set_codes(codes, swizzled, format, block)


def _set_float_scales(operand: _core.Operand, x: Any, argument: str) -> None:
    """Gives an operand the float32 scales of its rows, or of its tiles of 1 x 128 or 128 x 128 elements."""
    scales = as_float32(x, argument)
    if scales.ndim != 2 or not operand.set_float_scales(scales):
        allowed = operand.float_scale_shapes()
        raise ValueError(
            f"{argument} must have shape {allowed[0]} or {allowed[1]}, one for every 1 x 128 or 128 x 128 elements, "
            f"or {allowed[2]}, one for every row, not {scales.shape}"
        )


def mma(
    model: ModelName | MmaModel,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    format_a: FormatName | Format | None = None,
    format_b: FormatName | Format | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    zero_rule: GemmZeroRuleName = "floor",
    tf32_rounding: RoundingName = "toward_zero",
) -> Array:
    """A batch of dot products of one tensor-core instruction, bit for bit.

    Parameters
    ----------
    model : str or MmaModel
        One of ``models()``, or what ``model_with`` made of it.
    a, b : array_like, (n, K)
        What the model takes: codes (uint8, or an ml_dtypes or torch float8 type, which carries its format), float16 or
        bfloat16 (also as uint16 codes), float32, or float64 for FP64 models alone. E2M1 as uint8 is packed, (n, K / 2),
        the first of a pair in the low nibble. K is the instruction's, any for ``exact``.
    c : array_like of the model's accumulator type, (n,), optional
        The accumulators; zeros if left out.
    format_a, format_b : str or Format, optional
        Formats of uint8 and uint16 codes; ``e4m3`` if left out. Other element types carry theirs.
    scale_a, scale_b : array_like of uint8 (or float8), (n, K / block), optional
        Codes of the block scales, for models that have them, which need both.
    zero_rule : str
        What terms that are zero contribute to the alignment: ``floor``, the model's ``zero_exponent``, which a group of
        FP4 products has, too, where all of them or a scale are zero (MMA-Sim 2.1.1; Khattak and Mikaitis, August 2026).
        Other opinions, of earlier simulators: ``skip_terms`` (nothing; FP4's groups count with their scales),
        ``skip_empty_groups`` (FP4's not if all products are zero), ``skip_zero_groups`` (not if their sum is),
        ``count_zero_factors`` (a zero factor counts as 2^-126). No row measured on a device tells them apart.
    tf32_rounding : str
        How float32 becomes TF32 for models that take it: ``toward_zero``, as instructions cut it, ``nearest_away``, as
        ``cvt.rna`` rounds it, or ``nearest_even``, as cuBLASLt 13.1 does on an H200.

    Returns
    -------
    ndarray of the model's accumulator type, float32, float16 or float64, (n,)
        Result words are kept bit for bit; NaN is 7FFFFFFF or 7FFF; of FP64 models AMD's give 7FFFFFFFFFFFFFFF, and
        NVIDIA's keep a NaN of b, c or a, or give FFF8000000000000.

    Raises
    ------
    TypeError, ValueError
        For wrong element types, shapes, K, formats the model does not take, codes with bits beyond their format's width
        (of scales in UE4M3, bit 7 is ignored, as by the instruction), scales that are missing or not wanted, and
        unknown names. For a wrong format, K or kind of scales, the message names models that take them.
    """
    core = as_model(model)
    left, right = matrix_of(a, "a", format_a), matrix_of(b, "b", format_b)
    x, y = left.operand(), right.operand()
    for operand in (x, y):
        named("tf32_rounding", operand.set_tf32_rounding, check_name(tf32_rounding, "tf32_rounding"))
    set_codes(x, scale_a, "scale_a", core)
    set_codes(y, scale_b, "scale_b", core)
    dtype = np.dtype(core.accumulator)
    word = np.dtype(np.uint16) if dtype.itemsize == 2 else dtype
    accumulators = np.empty(0, dtype) if c is None else as_floats_of(c, "c", core.accumulator, (left.shape[0],))
    out = np.empty(left.shape[0], dtype)
    _core.mma(
        core,
        x,
        y,
        accumulators.view(word),
        out.view(word),
        check_name(zero_rule, "zero_rule"),
    )
    return out


def _split_scale(value: Any) -> tuple[Any, Any]:
    """What gemm's scale is made of: an array of scales, or None, and the tensor's scale."""
    if value is None:
        return None, 1.0
    if isinstance(value, tuple) and len(value) == 2:
        return value
    number = isinstance(value, (int, float, np.integer, np.floating))
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


def gemm_operand(
    x: Any,
    argument: str,
    format: FormatName | Format | None,
    scale: Any,
    model: MmaModel,
    transposed: bool,
    swizzled: bool,
) -> tuple[_core.Operand, int, int]:
    """An operand of arrays, its number of rows, and its K."""
    matrix = matrix_of(x, argument, format)
    operand = matrix.operand(transposed)
    rows, depth = matrix.shape[::-1] if transposed else matrix.shape
    if scale is None:
        return operand, rows, depth
    scales, number = _split_scale(scale)
    name = f"scale_{argument}"
    if scales is not None:
        _check_scales(scales, name, model)
    if scales is not None and as_array(scales, name)[1] == "float32":
        _set_float_scales(operand, scales, name)
    else:
        set_codes(operand, scales, name, model, swizzled)
    tensor = check_real(number, name)
    if not math.isfinite(tensor):
        raise ValueError(f"{name} must be finite, not {tensor}")
    operand.set_tensor(tensor)
    return operand, rows, depth


def _operands(
    a: Any,
    b: Any,
    model: MmaModel,
    layout: str,
    scale_layout: str,
    format_a: FormatName | Format | None,
    format_b: FormatName | Format | None,
    scale_a: Any,
    scale_b: Any,
) -> tuple[_core.Operand | _core.Quantized, _core.Operand | _core.Quantized, tuple[int, int], int]:
    """Both operands of ``gemm``, the shape of the product, and K."""
    if isinstance(a, Quantized) or isinstance(b, Quantized):
        for x, argument, other in ((a, "a", "b"), (b, "b", "a")):
            if not isinstance(x, Quantized):
                raise TypeError(f"{argument} must be a Quantized, as {other} is, not {kind_of(x)}")
        check_unread(
            "arrays; a Quantized has its own", format_a=format_a, format_b=format_b, scale_a=scale_a, scale_b=scale_b,
            layout=None if layout == "nt" else layout,
            scale_layout=None if scale_layout == "compact" else scale_layout,
        )  # fmt: skip
        rows, columns = (q.shape[q.direction == "columnwise"] for q in (a, b))
        return a._core, b._core, (rows, columns), a.shape[a.direction != "columnwise"]
    swizzled = scale_layout == "swizzled"
    left, rows, depth = gemm_operand(a, "a", format_a, scale_a, model, layout[0] == "t", swizzled)
    right, columns, _ = gemm_operand(b, "b", format_b, scale_b, model, layout[1] == "n", swizzled)
    return left, right, (rows, columns), depth


def recipe_with(
    recipe: Any,
    model: Any,
    *,
    promote_k: Any = None,
    scale_order: Any = None,
    split_k: Any = None,
    split_order: Any = None,
    c_enters: Any = None,
    zero_rule: Any = None,
    out_dtype: Any = None,
    out_profile: Any = None,
) -> GemmRecipe:
    """The recipe that arguments of ``gemm`` make or change."""
    if recipe is None and model is None:
        raise TypeError("a recipe or a model must be given")
    base = GemmRecipe(as_gemm_model(model)) if recipe is None else as_gemm_recipe(recipe)
    fields: dict[str, Any] = {}
    if recipe is not None and model is not None:
        fields["model"] = as_gemm_model(model)
    if promote_k is not None:
        fields["promote_k"] = check_int(promote_k, "promote_k", 1, 2**31 - 1)
    if scale_order is not None:
        fields["scale_order"] = check_name(scale_order, "scale_order")
    if split_k is not None:
        fields.update(split_k=check_sizes(split_k, "split_k"), ranges=0, range_k=0)
    if split_order is not None:
        fields["split_order"] = check_sizes(split_order, "split_order")
    for name, value in (("c_enters", c_enters), ("zero_rule", zero_rule)):
        if value is not None:
            fields[name] = check_name(value, name)
    if out_dtype is not None:
        fields.update(output=out_dtype, cast=None)
    if out_profile is not None:
        fields["cast"] = as_profile(out_profile, "out_profile")
    return changed(base, fields)


#: A GEMM does so many products in the time in which a cast does an element.
PRODUCTS = 16


def _composition_of(
    recipe: Any,
    model: Any,
    promote_k: Any,
    scale_order: Any,
    split_k: Any,
    split_order: Any,
    c_enters: Any,
    zero_rule: Any,
    out_dtype: Any,
    out_profile: Any,
) -> tuple[_core.GemmRecipe, MmaModel, str | Format]:
    """The recipe that arguments of ``gemm`` make, its model and the element type of the result."""
    if out_dtype is not None:
        is_wide = check_name(out_dtype, "out_dtype") == "float64"  # which FP64 models alone give
        check_choice(out_dtype, "out_dtype", ("float64" if is_wide else "float32", *_OUT_DTYPES))
    output = _output_of(recipe, model, out_dtype, out_profile)
    made = recipe_with(
        recipe, model, promote_k=promote_k, scale_order=scale_order, split_k=split_k, split_order=split_order,
        c_enters=c_enters, zero_rule=zero_rule, out_dtype=output, out_profile=out_profile,
    )  # fmt: skip
    core = as_gemm_model(made.model)
    return made._core(), core, "float64" if core.accumulator == "float64" else made.output


_remembered_composition = functools.lru_cache(maxsize=256)(_composition_of)


@functools.lru_cache(maxsize=64)
def _plain_call(threads: int) -> _core.GemmCall:
    """What a GEMM of operands alone is given."""
    return _core.GemmCall(_NONE, _NONE, _NONE, _NONE, 1.0, threads)


def gemm(
    a: Any,
    b: Any,
    recipe: GemmRecipeName | GemmRecipe | NamedGemmRecipe | MmaModel | None = None,
    *,
    model: GemmModelName | MmaModel | None = None,
    format_a: FormatName | Format | None = None,
    format_b: FormatName | Format | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    layout: LayoutName = "nt",
    scale_layout: GemmScaleLayoutName = "compact",
    promote_k: int | None = None,
    scale_order: GemmScaleOrderName | None = None,
    split_k: Any = None,
    split_order: Any = None,
    c: Any = None,
    c_enters: GemmCEntersName | None = None,
    bias: Any = None,
    activation_input: Any = None,
    scale_out: float = 1.0,
    out_dtype: GemmOutDtypeName | None = None,
    out_profile: ProfileName | Profile | None = None,
    zero_rule: GemmZeroRuleName | None = None,
    tf32_rounding: RoundingName = "nearest_away",
    threads: int | None = None,
) -> Any:
    """``a @ b.T`` as a tensor core computes it, bit for bit; Ctrl-C stops it.

    One instruction follows the other, K ascending from a zero accumulator; a tail is filled with zeros (with block
    scales, K is a multiple of their block). The bits do not depend on threads or processor. Accumulators of float16 are
    float32 numbers when they are promoted, scaled and returned.

    Parameters
    ----------
    a : array_like, (M, K), or Quantized
    b : array_like, (N, K), or Quantized
        As a Linear layer has its input and its weight. Element types as for ``mma``. A Quantized brings its format, its
        scales and their layout, and its direction says which dimension K is: forward, both are rowwise; dx = dy @ w has
        dy rowwise and w columnwise, dw = dy.T @ x has both columnwise. ``exact`` multiplies what ``dequantize`` gives.
    recipe : GemmRecipe, str or MmaModel, optional
        How the GEMM is composed: a ``GemmRecipe``, the name of one of ``gemm_recipes()`` or of a model. Of the
        arguments below, model, promote_k, scale_order, split_k, split_order, c_enters, zero_rule, out_dtype and
        out_profile make one, or change the one that is given.
    model : str or MmaModel, optional
        One of ``models()``, or what ``model_with`` made of it; ``exact`` is the real dot product, rounded once.
    format_a, format_b : str or Format, optional
        Formats of uint8 and uint16 codes; ``e4m3`` if left out. Other element types carry theirs.
    scale_a, scale_b : float, array_like, or a tuple of both, optional
        A number is the whole tensor's and multiplies on dequantize, in the epilogue; 1 if left out. An array of uint8
        or float8, (M, K / block) or (N, K / block), has the codes of the block scales, for models that have them;
        ``(array, number)`` is both, as NVFP4 has them. An array of float32 has a scale for every tile of 1 x 128
        elements, (M, K / 128), or 128 x 128, (M / 128, K / 128), rounded up; they multiply at every promotion, which
        is then every 128 (DeepSeek-V3, DeepGEMM), and models with E8M0 scales take them where they are powers of two
        (Transformer Engine on Blackwell). Or it has a scale for every row, (M, 1), which multiplies in the epilogue.
    layout : str
        Letters of row-major BLAS for how a and b are stored: ``nt`` as above, ``nn`` with b (K, N), ``tn`` with a
        (K, M) and b (K, N), ``tt`` with a (K, M). Arrays of scales are transposed with their elements. cuBLAS,
        column-major, calls ``nt`` TN.
    scale_layout : str
        How codes of block scales are stored: ``compact``, as above, or ``swizzled``, as ``swizzle_scales`` gives those
        of (M, K / block) whatever the layout of a.
    promote_k : int, optional
        Elements of K after which the accumulator is added to a float32 one and cleared (CUTLASS, DeepGEMM: 128);
        never if left out ("fast accumulation").
    scale_order : str, optional
        How float32 scales of tiles and rows multiply: ``scales_first``, sum = fma(fl(scale_a * scale_b), accumulator,
        sum), or ``accumulator_first``, sum = fma(fl(accumulator * scale_a), scale_b, sum). If left out, scales_first
        for tiles (DeepGEMM), accumulator_first for rows (PyTorch's _scaled_mm), where the sum is 0.
    split_k : list of int, optional
        Lengths of ranges of K that are computed apart, then added in float32.
    split_order : list of int, optional
        The ranges' numbers in the order of addition; ascending if left out.
    c : array_like of float32, (M, N), optional
        Is added in the epilogue, or with ``c_enters="accumulator"`` what the accumulation starts from.
    c_enters : str
        ``epilogue``, as if left out, or ``accumulator``.
    bias : array_like of float32, (N,), optional
    activation_input : array_like of float32, (M, N), optional
        The input of the GELU with whose gradient a recipe with the activation ``dgelu`` multiplies; no other reads it.
    scale_out : float
        The epilogue, where the recipe has no other, is scale_out * (alpha * (scales of the row * accumulator) + c +
        bias), from left to right, every operation rounded to float32. alpha is fl(scale_a * scale_b), of NVFP4's
        Quantized fl(fl(amax_a * amax_b) * fl(1 / (6 * 6 * 448 * 448))), as Transformer Engine computes it for cuBLAS.
    out_dtype : str, optional
        ``float32`` if left out, for FP64 models ``float64``, which nothing else is; ``float16``, ``bfloat16`` (needs
        ml_dtypes), or a format of up to 8 bits, whose codes the result has: rounded once.
    out_profile : str, optional
        One of ``profiles()``, for the rounding to the output; ``cuda_satfinite`` for codes, ``cuda_nosat`` for
        float16 and bfloat16 if left out. float32 is not rounded, and has none.
    zero_rule : str
        As for ``mma``.
    tf32_rounding : str
        As for ``mma``, but ``nearest_away`` if left out.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Returns
    -------
    ndarray of out_dtype, or of uint8 codes, (M, N)
        Where the recipe has a ``bias_gradient``, a tuple of it and of the sums of a along K, ndarray of float32, (M,).

    Raises
    ------
    TypeError, ValueError
        As ``mma`` does, and for options that do not fit or that nothing would read; the message says what does. For a
        Quantized that the model does not take, the message names the models that do; ``takes`` asks.
    """
    # A recipe takes longer to make and to check than a small GEMM to compute: that of names and numbers is remembered.
    said = recipe, model, promote_k, scale_order, split_k, split_order, c_enters, zero_rule, out_dtype, out_profile
    of_names = _REMEMBERED.issuperset(map(type, said))
    recipe_core, core, output = (_remembered_composition if of_names else _composition_of)(*said)
    layout = check_choice(layout, "layout", ("nt", "nn", "tn", "tt"))
    scale_layout = check_choice(scale_layout, "scale_layout", ("compact", "swizzled"))
    if (
        type(a) is type(b) is np.ndarray
        and output == "float32"
        and scale_a is scale_b is format_a is format_b is c is bias is activation_input is threads is None
        and type(scale_out) is float
        and scale_out == 1
        and type(tf32_rounding) is str
        and tf32_rounding == "nearest_away"
        and not recipe_core.has_bias_gradient
    ):
        small = _core.small_gemm(recipe_core, a, b, layout)
        if small is not None:
            return small
    left, right, shape, depth = _operands(
        a, b, core, layout, scale_layout, format_a, format_b, scale_a, scale_b
    )  # fmt: skip
    if type(tf32_rounding) is not str or tf32_rounding != "nearest_away":  # which an operand has as it is made
        for operand in (left, right):
            if isinstance(operand, _core.Operand):
                named("tf32_rounding", operand.set_tf32_rounding, check_name(tf32_rounding, "tf32_rounding"))
    wide = output == "float64"
    if wide:
        for argument, value in (("c", c), ("bias", bias), ("activation_input", activation_input)):
            if value is not None:
                raise ValueError(f"{argument} does not apply to {core.name}, which has no epilogue and no scales")
    scale = check_real(scale_out, "scale_out")
    threads = check_threads(threads, shape[0] * shape[1] * depth // PRODUCTS)
    gradient = np.empty(shape[0], np.float32) if recipe_core.has_bias_gradient else None
    if c is bias is activation_input is gradient is None and scale == 1:
        call = _plain_call(threads)
    else:
        call = _core.GemmCall(
            _NONE if c is None else as_float32(c, "c", shape),
            _NONE if bias is None else as_float32(bias, "bias", shape[1:]),
            _NONE if activation_input is None else as_float32(activation_input, "activation_input", shape),
            _NONE if gradient is None else gradient,
            scale,
            threads,
        )
    if output in _WIDE_DTYPES:
        exact = wide and isinstance(left, _core.Operand)  # a Quantized is refused
        out = np.empty(shape, np.float64 if exact else np.float32)
        _core.gemm(recipe_core, left, right, out, call)
        return out if gradient is None else (out, gradient)
    format = as_format(output, "output")
    out = np.empty(shape, code_dtype(format))
    _core.gemm(recipe_core, left, right, out, call)
    return as_typed(out, format) if gradient is None else (as_typed(out, format), gradient)


def as_typed(out: Array, format: Format) -> Array:
    """16-bit words as a view of their type, where NumPy or ml_dtypes has it."""
    if format.bits <= 8 or format.name not in ("float16", "bfloat16"):
        return out
    dtype: Any = format.name
    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    return out.view(dtype)


def _output_of(recipe: Any, model: Any, out_dtype: Any, out_profile: Any) -> Any:
    """The output that arguments of ``gemm`` say, after checks that name them; None: that of the recipe."""
    base = recipe_with(recipe, model)
    core = as_gemm_model(base.model)
    wide = core.accumulator == "float64"
    if wide and out_dtype is not None and out_dtype != "float64":
        raise ValueError(
            f"out_dtype must be float64, the accumulator of {core.name}, which nothing rounds, not {short(out_dtype)}"
        )
    if not wide and out_dtype == "float64":
        check_choice(out_dtype, "out_dtype", ("float32", *_OUT_DTYPES))
    own = "float64" if wide else base.output if out_dtype is None else out_dtype
    if own in _WIDE_DTYPES:
        check_unread(
            f"an out_dtype of 16 bits or fewer, which the result is rounded to; {own} is not", out_profile=out_profile
        )
    return None if wide or out_dtype is None else out_dtype


_guard(__name__, __all__)
