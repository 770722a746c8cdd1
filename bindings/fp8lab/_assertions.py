# SPDX-License-Identifier: Apache-2.0
"""The assertions of ``fp8lab.pytest_plugin``."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

import fp8lab
from fp8lab._arrays import as_array, as_bytes, as_format, check_bool, contiguous
from fp8lab._compare import with_kinds
from fp8lab._device_arrays import on_host
from fp8lab._recipes import as_recipe
from fp8lab.literals import DirectionName, FormatName, HalfTypeName, RecipeName, ScaleLayoutName

__all__ = ["assert_codes_equal", "assert_matches"]


def assert_codes_equal(
    actual: Any,
    expected: Any,
    *,
    format: FormatName | fp8lab.Format | None = None,
    pairs: bool = False,
    input: Any = None,
    shown: int = 5,
) -> None:
    """Fail unless two arrays of codes or values, or two Quantized, are equal bit for bit.

    Parameters
    ----------
    actual, expected, format, pairs, shown
        As ``fp8lab.compare`` takes a, b and the rest.
    input : array_like, optional
        What the kernel read: the message begins with what the kernel did to it.

    Raises
    ------
    AssertionError
        Its message has the diagnosis, what the differences share, and the first ones.
    """
    __tracebackhide__ = True
    found = fp8lab.compare(actual, expected, format=format, pairs=pairs, input=input, shown=shown)
    if found.equal:
        return
    told = (
        "" if input is None or isinstance(actual, fp8lab.Quantized) else _diagnosis(input, actual, None, format=format)
    )
    raise AssertionError(f"{told}codes of the kernel (a) differ from those expected (b)\n{found}")


def assert_matches(
    x: Any,
    codes: Any,
    recipe: RecipeName | fp8lab.NamedRecipe | fp8lab.Recipe,
    scales: Any = None,
    *,
    direction: DirectionName = "rowwise",
    transposed: bool | None = None,
    scale_layout: ScaleLayoutName = "compact",
    input_type: HalfTypeName | None = None,
    amax_before_rounding: bool = False,
    amax: Any = None,
    scale: Any = None,
    scale_inv: Any = None,
    tensor_amax: float | None = None,
    tensor_scale: float | None = None,
    tensor_scale_inv: float | None = None,
    row_amaxes: Any = None,
    random_bits: Any = None,
    strict: bool = False,
    shown: int = 5,
) -> None:
    """Fail unless a kernel made of x what the recipe says, bit for bit.

    Parameters
    ----------
    x : array_like of float32, float16 or bfloat16, (..., columns)
        What the kernel read. Leading dimensions are rows.
    codes : array_like of uint8 or of a float8 type
        What it wrote, in the order of ``fp8lab.quantize(x, recipe).codes``, of its shape or with the leading dimensions
        of x.
    recipe : str, NamedRecipe or Recipe
        What it should do.
    scales : array_like, optional
        The scales that it wrote: what multiplies on dequantize, or the codes of that. Not compared if left out.
    direction, input_type, amax_before_rounding, random_bits
        As ``fp8lab.quantize`` takes them.
    transposed, scale_layout
        As ``fp8lab.Quantized.from_arrays`` takes them: whether columnwise codes and scales are those of the transpose,
        and the layout of scale codes: ``compact``, ``padded``, or ``swizzled``, which may have any shape of as many
        bytes.
    amax, scale, scale_inv, tensor_amax, tensor_scale, tensor_scale_inv, row_amaxes
        What the kernel was given instead of making it, such as a static scale; also as ``fp8lab.quantize`` takes it.
    strict : bool
        Fail also where x does not show all that tells kernels of the recipe apart, such as ties, subnormal codes and
        zeros; ``fp8lab.diagnose(...).exercise()`` makes an x that does.
    shown : int
        How many differing elements to list.

    Raises
    ------
    AssertionError
        Its message begins with what the kernel did instead, or names what x does not show.
    TypeError, ValueError
        For arrays that cannot be compared: other shapes or element types.
    """
    __tracebackhide__ = True
    x, codes, scales = on_host(x), on_host(codes), on_host(scales)
    strict = check_bool(strict, "strict")
    own = _stored_as(as_recipe(recipe), direction, transposed)
    given = {"amax": on_host(amax), "scale": on_host(scale), "scale_inv": on_host(scale_inv)}
    expected = fp8lab.quantize(
        x, own, direction=direction, input_type=input_type, amax_before_rounding=amax_before_rounding, **given,
        tensor_amax=tensor_amax, tensor_scale=tensor_scale, tensor_scale_inv=tensor_scale_inv,
        row_amaxes=on_host(row_amaxes), random_bits=on_host(random_bits),
    )  # fmt: skip
    written, carried = as_bytes(codes, "codes")
    if carried is not None and carried.name != expected.format:
        raise ValueError(f"codes are {carried.name} by their element type, and the recipe's are {expected.format}")
    codes = _in_rows(written, expected.codes.shape, "codes")
    pairs = expected.codes.shape != (expected.shape[::-1] if expected.transposed else expected.shape)
    made_of = _input(x, expected)
    of_codes = fp8lab.compare(codes, expected.codes, format=_format(expected), pairs=pairs, input=made_of, shown=shown)
    if isinstance(of_codes, fp8lab.Comparison):
        of_codes = with_kinds(of_codes, codes, expected, made_of)
    of_scales = None if scales is None else _compare_scales(scales, expected, scale_layout, shown)
    tensor = tensor_scale if tensor_scale is not None else tensor_scale_inv
    expected_recipe = recipe if own == as_recipe(recipe) else own
    if of_codes.equal and (of_scales is None or of_scales.equal):
        if strict:
            _check_exercised(x, codes, scales, expected_recipe, direction, tensor)
        return
    lines = [f"Codes of the kernel (a) and of the recipe (b): {of_codes}"]
    if of_scales is not None:
        lines.append(f"Scales of the kernel (a) and of the recipe (b): {of_scales}")
    told = _diagnosis(x, codes, scales, expected=expected_recipe, direction=direction, tensor_scale=tensor)
    raise AssertionError(told + "\n".join(lines))


def _check_exercised(
    x: Any, codes: Any, scales: Any, recipe: Any, direction: DirectionName, tensor_scale: float | None
) -> None:
    __tracebackhide__ = True
    found = fp8lab.diagnose(x, codes, scales, expected=recipe, direction=direction, tensor_scale=tensor_scale)
    if found.unexercised:
        raise AssertionError(
            f"the kernel is right, and x does not show what it makes of {', '.join(found.unexercised)}: "
            "fp8lab.diagnose(...).exercise() makes an x that does"
        )


def _stored_as(recipe: fp8lab.Recipe, direction: str, transposed: bool | None) -> fp8lab.Recipe:
    """The recipe with columnwise codes stored as the kernel's are."""
    if transposed is None:
        return recipe
    is_transposed = check_bool(transposed, "transposed")
    if direction != "columnwise":
        if is_transposed:
            raise ValueError("transposed is for columnwise codes: rowwise ones lie along K as they are")
        return recipe
    if as_format(recipe.format, "format").bits == 4:
        if not is_transposed:
            raise ValueError(
                "transposed: columnwise codes of 4 bits are those of the transpose, so that a byte has two along K"
            )
        return recipe
    return dataclasses.replace(recipe, transposed_columnwise=is_transposed)


def _in_rows(array: Any, shape: tuple[int, ...], argument: str) -> Any:
    """The array in that shape, where its leading dimensions are the rows."""
    rows = (math.prod(array.shape[:-1]), array.shape[-1]) if array.ndim > 0 else (1, 1)
    if rows != shape and not (array.ndim < 2 and array.size == math.prod(shape)):
        raise ValueError(
            f"{argument} must have shape {shape}, or leading dimensions that are these rows, not {array.shape}"
        )
    return contiguous(array).reshape(shape)


def _format(expected: fp8lab.Quantized) -> Any:
    known = {one.name for one in fp8lab.formats()}
    return expected.format if expected.format in known else getattr(expected.recipe, "format", None)


def _input(x: Any, expected: fp8lab.Quantized) -> Any:
    """x in the order of the codes, in float64."""
    values, name = as_array(x, "x")
    values = _in_float32(values, name).astype(np.float64).reshape(expected.shape)
    return values.T if expected.transposed else values


def _in_float32(values: Any, name: str) -> Any:
    """Numbers of float32 or float16, or the words of bfloat16, exactly."""
    return (values.astype(np.uint32) << 16).view(np.float32) if name == "bfloat16" else values.astype(np.float32)


def _compare_scales(scales: Any, expected: fp8lab.Quantized, layout: ScaleLayoutName, shown: int) -> Any:
    wanted = expected.scales(layout)
    if expected.scale_codes is None:
        if isinstance(scales, (int, float)) and not isinstance(scales, bool):
            scales = np.float32(scales)
        written, name = as_array(scales, "scales")
        if name in ("float16", "bfloat16"):
            written = _in_float32(written, name)
        elif name != "float32":
            raise TypeError(f"scales must be float32, as the recipe's are, not {name}")
        kind = None
    else:
        written, _ = as_bytes(scales, "scales")
        kind = as_format(expected.scale_format, "scale_format")
    if layout == "swizzled" and written.size == wanted.size:
        written = contiguous(written).reshape(-1)
    return fp8lab.compare(_in_rows(written, wanted.shape, "scales"), wanted, format=kind, shown=shown)


def _diagnosis(x: Any, codes: Any, scales: Any, **facts: Any) -> str:
    """What the kernel did, in a line, where that can be told."""
    try:
        found = fp8lab.diagnose(x, codes, scales, **facts)
    except (TypeError, ValueError) as error:
        return f"no diagnosis: {error}\n"
    if found.correct:
        return (
            "The arithmetic is the recipe's; given scales, types, layouts or shapes are not. "
            f"The doctor says: {found.verdict}\n"
        )
    return f"{found.verdict}\n"
