# SPDX-License-Identifier: Apache-2.0
"""``tex.quantize`` and its family: what a quantizer makes of a tensor, by the recipes of fp8lab.

Which recipe a quantizer is, and which amax enters, follows pytorch/csrc/quantizer.cpp (2.20); sections 2 and 3 of
Transformer Engine's recipes are fp8lab's ``te_*``.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import numpy as np
import torch

import fp8lab
from fp8lab.literals import ScaleLayoutName
from fp8lab.te._activation import active_device, active_functions, active_generator
from fp8lab.te._functions import refuse
from fp8lab.te._observers import OBSERVERS
from fp8lab.te._releases import NEWEST, installed_release
from fp8lab.te.tensors import (
    as_the_tensor_has,
    element_type,
    format_name,
    fuses_hadamard,
    kind_of_quantizer,
    kind_of_tensor,
    logical_shape,
    matrix,
    new_tensor,
    prepared,
    rounded,
)

EXPORTED = (
    "bgrad_quantize",
    "create_empty_quantized_tensor",
    "dequantize",
    "multi_tensor_quantize",
    "nvfp4_quantize_with_amax",
    "quantize",
    "split_quantize",
)
__all__ = [
    *EXPORTED,
    "as_quantized",
    "bias_gradient",
    "bias_gradient_of_kernel",
    "current_scale",
    "new_member",
    "block_scales",
    "check_grouped",
    "nvfp4_recipe",
    "quantize_as",
    "reduced_amaxes",
    "threads",
    "write_delayed",
]


def threads() -> int:
    """How many threads fp8lab takes: as many as PyTorch."""
    return max(1, int(torch.get_num_threads()))


def quantize(tensor: Any, quantizer: Any, output: Any = None, noop: Any = None) -> Any:
    """The tensor by the quantizer, as a new tensor or in ``output``; a ``noop`` flag of 1 leaves all as it is."""
    return quantize_as(tensor, quantizer, tensor.dtype, output, noop)


def quantize_as(
    tensor: Any, quantizer: Any, dtype: torch.dtype, output: Any = None, noop: Any = None, amax: float | None = None
) -> Any:
    """The same of a tensor whose nominal type may be another; ``amax`` takes the place of the tensor's own."""
    if output is None:
        result = new_tensor(quantizer, tensor.shape, dtype)
    else:
        quantizer = as_the_tensor_has(quantizer, output)
        result = prepared(quantizer, output)
    is_noop = noop is not None and noop.numel() > 0 and float(noop) == 1.0
    if tensor.numel() and not is_noop:
        kind = kind_of_quantizer(quantizer)
        _WRITERS[kind](quantizer, matrix(tensor), result, {"amax": amax, "has_noop": noop is not None})
        for observer in OBSERVERS:
            observer.saw_cast(quantizer, matrix(tensor), result, amax)
    return result


def create_empty_quantized_tensor(
    quantizer: Any, shape: Any, dtype: Any, device: Any = None, pin_memory: bool = False
) -> Any:
    """A quantized tensor whose values nothing has written."""
    return new_tensor(quantizer, shape, element_type(dtype))


def new_member(quantizer: Any, tensor: Any) -> Any:
    """A quantized tensor of the shape and type of a tensor, without values."""
    return new_tensor(quantizer, tensor.shape, tensor.dtype)


def split_quantize(
    tensor: Any, split_sections: Any, quantizer_list: Any, disable_bulk_allocation: bool = False
) -> list[Any]:
    """Each section of the rows by its quantizer."""
    sections = [int(size) for size in split_sections]
    if len(sections) != len(quantizer_list):
        raise ValueError(f"split_sections has {len(sections)} sections, and there are {len(quantizer_list)} quantizers")
    if sum(sections) != tensor.shape[0]:
        raise ValueError(f"split_sections must add up to the {tensor.shape[0]} rows, not to {sum(sections)}")
    parts = torch.split(tensor, sections)
    check_grouped(quantizer_list)
    return [quantize(part, quantizer) for part, quantizer in zip(parts, quantizer_list)]


def check_grouped(quantizers: Any) -> None:
    """Refuses what the kernel of a group does, and that of one tensor does not."""
    is_turned = any(kind_of_quantizer(one) == "nvfp4" and one.with_rht for one in quantizers)
    if is_turned and is_set(_FAST) and fuses_hadamard(1, 1, 128):
        refuse_fast_hadamard()


def multi_tensor_quantize(tensor_list: Any, quantizer_list: Any) -> list[Any]:
    """Each tensor by its quantizer."""
    return [quantize(tensor, quantizer) for tensor, quantizer in zip(tensor_list, quantizer_list)]


def bias_gradient(gradient: Any, dtype: torch.dtype) -> Any:
    """The sum of the rows in float32, ascending, rounded once."""
    if gradient.numel() == 0:
        return torch.zeros(gradient.shape[-1], dtype=dtype)
    return rounded(torch.from_numpy(fp8lab.linear_bias_gradient(matrix(gradient))), dtype)


def bgrad_quantize(input: Any, quantizer: Any) -> list[Any]:
    """The gradient of a bias, and the gradient by the quantizer."""
    sums = bias_gradient_of_kernel(input, input.dtype, quantizer)
    return [sums, input if quantizer is None else quantize(input, quantizer)]


def bias_gradient_of_kernel(gradient: Any, dtype: torch.dtype, quantizer: Any, has_activation: bool = False) -> Any:
    """The same in the order of the kernel that the extension has for this quantizer, where that is known.

    One kernel casts by delayed scaling in both directions and adds; others cast what ``torch.sum`` has added.
    """
    rows = matrix(gradient)
    if not has_known_order(rows):
        return bias_gradient(gradient, dtype)
    is_delayed = quantizer is not None and kind_of_quantizer(quantizer) == "delayed"
    if not (is_delayed and quantizer.rowwise_usage and quantizer.columnwise_usage):
        return sum_of_rows(rows, dtype)
    sums = fp8lab.operators.cast_transpose_row_sums(
        rows.float().numpy(), item_size=dtype.itemsize, has_activation=has_activation,
        multiprocessors=active_device().sms,
    )  # fmt: skip
    return rounded(torch.from_numpy(sums), dtype)


def has_known_order(rows: Any) -> bool:
    """Whether the order is known in which the device's kernels add a matrix's rows."""
    return active_functions() == "hopper" and min(rows.shape) > 1 and rows.nbytes < 2**31


def sum_of_rows(rows: Any, dtype: torch.dtype) -> Any:
    """What ``torch.sum`` over the rows gives on the device, rounded once."""
    sums = fp8lab.operators.torch_row_sums(
        rows.float().numpy(), offset=rows.storage_offset(), multiprocessors=active_device().sms
    )
    return rounded(torch.from_numpy(sums), dtype)


def nvfp4_quantize_with_amax(tensor: Any, quantizer: Any, rowwise_amax: Any, columnwise_amax: Any) -> Any:
    """NVFP4 by amaxes that are known."""
    if kind_of_quantizer(quantizer) != "nvfp4":
        raise TypeError(f"nvfp4_quantize_with_amax takes an NVFP4Quantizer, not a {type(quantizer).__name__}")
    result = new_tensor(quantizer, tensor.shape, tensor.dtype)
    given = {"amax": float(rowwise_amax), "columnwise_amax": float(columnwise_amax), "has_noop": False}
    _write_nvfp4(quantizer, matrix(tensor), result, given)
    return result


def dequantize(input: Any, otype: Any) -> Any:
    """The values of codes and scales, rounded to a type."""
    shape = logical_shape(input)
    if 0 in shape:
        return torch.empty(shape, dtype=element_type(otype))
    values = fp8lab.dequantize(as_quantized(input), threads=threads())
    return torch.from_numpy(values).to(element_type(otype)).reshape(shape)


# --- one scale for the tensor -----------------------------------------------------------------------------------------


def write_delayed(quantizer: Any, x: Any, result: Any, given: dict[str, Any]) -> None:
    """The cast by the scale of earlier steps; the amax slot keeps the largest."""
    _check_float8(result)
    history = _history(format_name(quantizer.dtype)).copy()
    history.scale = float(quantizer.scale.detach().reshape(-1)[0])
    made = fp8lab.quantize(x, history, threads=threads())
    slot = quantizer.amax.detach().reshape(-1)
    if slot.numel():
        slot.numpy()[0] = max(float(slot[0]), made.amax)
    _store_float8(result, made)


@functools.cache
def _history(name: str) -> Any:
    """The state of a tensor that is cast to that format, of one step."""
    is_gradient = name == "e5m2"
    recipe = fp8lab.Delayed(fp8_format="hybrid" if is_gradient else "e4m3", amax_history_len=1)
    return fp8lab.AmaxHistory(recipe, backward=is_gradient)


@functools.cache
def _given_scale(name: Any) -> Any:
    return fp8lab.GivenScale(name)


def _write_current(quantizer: Any, x: Any, result: Any, given: dict[str, Any]) -> None:
    """The cast by the scale that the tensor's own amax makes, or the largest of a group's."""
    _check_float8(result)
    recipe = _current_recipe(format_name(quantizer.dtype), quantizer.amax_epsilon, quantizer.force_pow_2_scales)
    amax = given["amax"]
    if quantizer.with_amax_reduction:
        own = fp8lab.quantize(x, recipe, threads=threads()).amax if amax is None else amax
        amax = _largest_of_group(quantizer, [own])[0]
    made = fp8lab.quantize(x, recipe, amax=None if amax is None else [amax], threads=threads())
    _store_float8(result, made)


def current_scale(quantizer: Any, amax: float) -> float:
    """The scale that an amax makes."""
    recipe = _current_recipe(format_name(quantizer.dtype), quantizer.amax_epsilon, quantizer.force_pow_2_scales)
    factor = fp8lab.quantize(np.full((1, 1), amax, np.float32), recipe).factor
    assert factor is not None
    return factor


@functools.cache
def _current_recipe(name: Any, epsilon: float, is_power: bool) -> Any:
    return fp8lab.JustInTime(name, amax_epsilon=epsilon, force_pow_2_scales=is_power)


def _largest_of_group(quantizer: Any, amaxes: list[float]) -> list[float]:
    group = quantizer._canonicalized_amax_reduction_group()
    if group is None:
        raise RuntimeError(f"{type(quantizer).__name__} reduces its amax over a group, and names none")
    shared = torch.tensor(amaxes, dtype=torch.float32)
    torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX, group=group)
    return [float(one) for one in shared]


def reduced_amaxes(quantizer: Any, amaxes: list[Any]) -> list[Any]:
    """Tensors of amaxes, in their place the largest of the quantizer's group where it reduces them."""
    if quantizer.with_amax_reduction:
        group = quantizer._canonicalized_amax_reduction_group()
        for one in amaxes:
            torch.distributed.all_reduce(one, op=torch.distributed.ReduceOp.MAX, group=group)
    return amaxes


def _check_float8(result: Any) -> None:
    """The cast kernel writes the transpose beside the codes, never alone. Programs look for the first words of the
    message, which are Transformer Engine's."""
    if result._data is None and result._transpose is not None:
        raise NotImplementedError(
            "Columnwise-only per-tensor FP8 quantization is not implemented: the kernel that casts and transposes "
            "writes both; set rowwise_usage"
        )


def _store_float8(result: Any, made: Any) -> None:
    codes = torch.from_numpy(made.codes)
    if result._data is not None:
        result._data.detach().copy_(codes.view(result._data.shape))
    if result._transpose is not None:
        result._transpose.detach().copy_(codes.t().reshape(result._transpose.shape))
        result._transpose_invalid = False
    result._scale_inv.detach().copy_(torch.from_numpy(made.scale_inv).view(result._scale_inv.shape))


# --- MXFP8 ------------------------------------------------------------------------------------------------------------


def _write_mxfp8(quantizer: Any, x: Any, result: Any, given: dict[str, Any]) -> None:
    recipe = _mxfp8_recipe(
        format_name(quantizer.dtype), quantizer.with_2d_quantization, _is_cast_only(quantizer, x, given)
    )
    layout = "swizzled" if result._with_gemm_swizzled_scales else "padded"
    for name, made in _both(quantizer, x, recipe).items():
        getattr(result, f"_{name}_data").detach().copy_(_shaped(made.codes, getattr(result, f"_{name}_data")))
        _store_scale_codes(getattr(result, f"_{name}_scale_inv"), made, layout)


@functools.cache
def _mxfp8_recipe(name: Any, is_square: bool, drops_negative_zero: bool) -> Any:
    return fp8lab.MxBlock(name, enable_2d_quantization=is_square, drop_negative_zero=drops_negative_zero)


def _is_cast_only(quantizer: Any, x: Any, given: dict[str, Any]) -> bool:
    """Whether the kernel is the specialised one, whose multiply is an fma with +0 and loses the sign of -0.

    The conditions are those of common/cast/mxfp8/quantize_mxfp8.cuh (2.20).
    """
    if given["has_noop"] or given.get("is_fused") or quantizer.with_2d_quantization or x.dtype == torch.float32:
        return False
    if not quantizer.rowwise_usage:
        return False
    return bool(quantizer.columnwise_usage) or x.shape[1] % 128 == 0


def _both(quantizer: Any, x: Any, recipe: Any, **given: Any) -> dict[str, Any]:
    """What the quantizer's usages want: codes and scales by direction, both made of the tensor itself."""
    if quantizer.rowwise_usage and quantizer.columnwise_usage:
        rowwise, columnwise = fp8lab.quantize_both(x, recipe, threads=threads(), **given)
        return {"rowwise": rowwise, "columnwise": columnwise}
    names: list[Any] = [name for name in ("rowwise", "columnwise") if getattr(quantizer, f"{name}_usage")]
    return {name: fp8lab.quantize(x, recipe, direction=name, threads=threads(), **given) for name in names}


def _shaped(array: Any, buffer: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array)).view(buffer.shape)


def _store_scale_codes(buffer: Any, made: Any, layout: str) -> None:
    buffer.detach().copy_(_shaped(made.scales(layout), buffer))


# --- tiles of 1 x 128 and 128 x 128 -----------------------------------------------------------------------------------


def _write_block(quantizer: Any, x: Any, result: Any, given: dict[str, Any]) -> None:
    device = active_device()
    if device.arch >= 100 and not quantizer.force_pow_2_scales:
        raise RuntimeError(f"on {device.title} scales of Float8BlockQuantizer must be powers of two: its GEMM is MXFP8")
    is_square = quantizer.block_scaling_dim == 2
    recipe = _block_recipe(
        format_name(quantizer.dtype), 128 if is_square else 1, quantizer.amax_epsilon, quantizer.force_pow_2_scales
    )
    for name, made in _both(quantizer, x, recipe).items():
        getattr(result, f"_{name}_data").detach().copy_(_shaped(made.codes, getattr(result, f"_{name}_data")))
        scales = torch.from_numpy(made.scale_inv)
        _store_corner(getattr(result, f"_{name}_scale_inv"), scales if is_square else scales.t())


@functools.cache
def _block_recipe(name: Any, rows: int, epsilon: float, is_power: bool) -> Any:
    return fp8lab.Block(name, rows=rows, amax_epsilon=epsilon, force_pow_2_scales=is_power)


def _store_corner(buffer: Any, values: Any) -> None:
    """The values in the first rows and columns of a padded buffer."""
    buffer.detach()[: values.shape[0], : values.shape[1]].copy_(values)


# --- NVFP4 ------------------------------------------------------------------------------------------------------------


def _write_nvfp4(quantizer: Any, x: Any, result: Any, given: dict[str, Any]) -> None:
    _check_nvfp4(quantizer, x)
    recipe = nvfp4_recipe(
        quantizer.with_2d_quantization, quantizer.with_rht, quantizer.stochastic_rounding,
        quantizer.row_scaled_nvfp4, quantizer.nvfp4_use_4over6, quantizer.nvfp4_e4m3_max,
        quantizer.nvfp4_4over6_err_mode, _takes_fast_factors(quantizer, x), is_set(_FAST_ERRORS),
    )  # fmt: skip
    seen = {"rowwise": x, "columnwise": _without_signs(x) if _has_plain_hadamard(quantizer) else x}
    amaxes = _nvfp4_amaxes(quantizer, seen, recipe, given)
    if installed_release().name == NEWEST:  # where the cast does not swizzle the scales, a kernel behind it does
        result._with_gemm_swizzled_scales = bool(quantizer.optimize_for_gemm)
    layout = "swizzled" if result._with_gemm_swizzled_scales else "padded"
    for name in ("rowwise", "columnwise"):
        if getattr(quantizer, f"{name}_usage"):
            made = fp8lab.quantize(
                seen[name], recipe, direction=name, tensor_amax=amaxes[name], random_bits=_random_bits(quantizer, x),
                threads=threads(),
            )  # fmt: skip
            getattr(result, f"_{name}_data").detach().copy_(_shaped(made.codes, getattr(result, f"_{name}_data")))
            _store_scale_codes(getattr(result, f"_{name}_scale_inv"), made, layout)
            amax = getattr(result, f"_amax_{name}").detach()
            amax.copy_(torch.from_numpy(made.row_amaxes) if quantizer.row_scaled_nvfp4 else torch.tensor([made.amax]))


#: Variables of NVFP4: factors in bfloat16, or an approximate reciprocal; errors of 4over6 without the tensor's scale.
_FAST, _FAST_ERRORS = "NVTE_USE_FAST_MATH", "NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH"


def is_set(variable: str) -> bool:
    """Whether a variable of the environment is 1; common/util/system.h reads no other words than 0 and 1."""
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise RuntimeError(f"Invalid environment variable value: {variable} must be 0 or 1, not {value!r}")
    return value == "1"


def refuse_fast_hadamard() -> None:
    """Refuses the kernels of a Hadamard transform under NVTE_USE_FAST_MATH."""
    refuse(
        f"NVFP4 with a Hadamard transform and {_FAST}=1",
        "its kernel takes Blackwell's approximate reciprocal, which is not modelled; unset the variable",
    )


def _takes_fast_factors(quantizer: Any, x: Any) -> bool:
    """Whether the kernel is the tuned one (common/cast/dispatch/quantize.cuh) under NVTE_USE_FAST_MATH; all others
    that do not fuse the transform ignore the variable."""
    if quantizer.nvfp4_use_4over6 or not is_set(_FAST):
        return False
    if installed_release().name != NEWEST:
        refuse(f"NVFP4 with {_FAST}=1", f"which kernels read it is known of {NEWEST} alone; unset the variable")
    if quantizer.with_rht and fuses_hadamard(64, *x.shape):
        refuse_fast_hadamard()
    is_tuned = x.dtype == torch.bfloat16 and x.shape[0] % 32 == 0 and x.shape[1] % 32 == 0
    return is_tuned and not quantizer.with_2d_quantization and bool(quantizer.rowwise_usage or quantizer.with_rht)


def _check_nvfp4(quantizer: Any, x: Any) -> None:
    if not quantizer.with_rht:
        return
    if x.dtype != torch.bfloat16:
        raise TypeError(f"an NVFP4Quantizer with_rht takes bfloat16, not {x.dtype}")
    if not quantizer.with_post_rht_amax:
        raise ValueError("an NVFP4Quantizer with_rht needs with_post_rht_amax=True: its kernel has no other amax")
    if quantizer.nvfp4_use_4over6 or quantizer.row_scaled_nvfp4:
        raise ValueError("an NVFP4Quantizer with_rht has neither 4over6 nor scales of rows")


@functools.cache
def nvfp4_recipe(
    is_square: bool,
    with_rht: bool = False,
    is_stochastic: bool = False,
    each_row: bool = False,
    four_over_six: bool = False,
    e4m3_max: int = 448,
    error: str = "MAE",
    fast_factors: bool = False,
    fast_errors: bool = False,
) -> Any:
    """fp8lab's recipe of an NVFP4Quantizer."""
    if four_over_six:
        if is_stochastic:
            raise ValueError("an NVFP4Quantizer with 4over6 rounds to nearest: stochastic_rounding must be False")
        names = {one.name: one.recipe for one in fp8lab.recipes()}
        base = names["te_nvfp4_4over6_2d" if is_square else "te_nvfp4_4over6"]
        choice: Any = names["te_nvfp4_4over6_mse" if error == "MSE" else "te_nvfp4_4over6"].block_choice
        choice += "_scaled" if fast_errors else ""
        recipe = dataclasses.replace(base, tensor_range=float(e4m3_max), block_choice=choice)
    else:
        recipe = fp8lab.NvFp4(with_2d_quantization=is_square, stochastic_rounding=is_stochastic, with_rht=with_rht)
    if fast_factors:
        fast = next(one.recipe for one in fp8lab.recipes() if one.name == "te_nvfp4_fast_math")
        recipe = dataclasses.replace(recipe, block_factor=fast.block_factor, operation=fast.operation)
    return dataclasses.replace(recipe, tensor_scale_for_each_row=True) if each_row else recipe


def _has_plain_hadamard(quantizer: Any) -> bool:
    return bool(quantizer.with_rht and quantizer.rht_matrix_random_sign_mask_t == 0)


def _without_signs(x: Any) -> Any:
    """The rows times the random signs of the recipe's Hadamard matrix, which so meet themselves and are gone: a matrix
    without signs turns the tensor."""
    from transformer_engine.pytorch.tensor.nvfp4_tensor import get_wgrad_sign_vector

    signs = get_wgrad_sign_vector(device="cpu").to(x.dtype)
    return x * signs.repeat(-(-x.shape[0] // len(signs)))[: x.shape[0], None]


def _nvfp4_amaxes(quantizer: Any, seen: dict[str, Any], recipe: Any, given: dict[str, Any]) -> dict[str, float | None]:
    """The tensor's amax by direction, where it is not the one that quantizing finds."""
    rowwise = given["amax"]
    amaxes = {"rowwise": rowwise, "columnwise": given.get("columnwise_amax", rowwise)}
    if not quantizer.with_amax_reduction:
        return amaxes
    names: list[Any] = [name for name in ("rowwise", "columnwise") if getattr(quantizer, f"{name}_usage")]
    plain = dataclasses.replace(recipe, cast="cuda_satfinite")
    own = [
        fp8lab.quantize(seen[name], plain, direction=name, threads=threads()).amax
        if amaxes[name] is None
        else amaxes[name]
        for name in names
    ]
    return {**amaxes, **dict(zip(names, _largest_of_group(quantizer, own)))}


def _random_bits(quantizer: Any, x: Any) -> Any:
    """A random byte for each code, of the device's seed and offset.

    The bytes are uniform and follow the generator's state. Which element takes which of the kernel's words is not
    modelled: single codes differ from a GPU's, their distribution does not.
    """
    if not quantizer.stochastic_rounding:
        return None
    seed, offset = active_generator().take(1024)
    words = np.random.Generator(np.random.Philox(key=seed, counter=offset))
    return words.integers(0, 256, x.numel(), dtype=np.uint8)


_WRITERS = {
    "delayed": write_delayed,
    "current": _write_current,
    "mxfp8": _write_mxfp8,
    "block": _write_block,
    "nvfp4": _write_nvfp4,
}


# --- quantized tensors as fp8lab's ------------------------------------------------------------------------------------


def as_quantized(tensor: Any, direction: str | None = None) -> Any:
    """A quantized tensor of Transformer Engine as one of fp8lab's; rowwise where it has that."""
    kind = kind_of_tensor(tensor)
    if kind == "float8":
        return _float8_as_quantized(tensor)
    if direction is None:
        direction = "rowwise" if tensor._rowwise_data is not None else "columnwise"
    codes = getattr(tensor, f"_{direction}_data")
    scales = getattr(tensor, f"_{direction}_scale_inv")
    if codes is None or scales is None:
        raise ValueError(f"the {type(tensor).__name__} has no {direction} data")
    is_transposed = kind == "block" and direction == "columnwise"  # (in, ...) of a tensor (..., in)
    codes = codes.detach().reshape(*((codes.shape[0], -1) if is_transposed else (-1, codes.shape[-1])))
    if kind == "mxfp8":
        recipe = _mxfp8_recipe(format_name(tensor._fp8_dtype), False, False)
        return _from_codes(codes, scales, recipe, direction, tensor._with_gemm_swizzled_scales)
    if kind == "nvfp4":
        return _nvfp4_as_quantized(tensor, codes, scales, direction)
    return _block_as_quantized(tensor, codes, scales, direction)


def _float8_as_quantized(tensor: Any) -> Any:
    recipe = _given_scale(format_name(tensor._fp8_dtype))
    scale = float(tensor._scale_inv.detach().reshape(-1)[0])
    codes = tensor._data
    if codes is None:
        codes = tensor._transpose.detach().reshape(tensor._transpose.shape[0], -1).t().contiguous()
    return fp8lab.Quantized.from_arrays(matrix(codes), scale, recipe, allow_special_scales=True)


def _from_codes(codes: Any, scales: Any, recipe: Any, direction: Any, is_swizzled: bool, **given: Any) -> Any:
    layout: ScaleLayoutName = "swizzled" if is_swizzled else "padded"
    scales = scales.detach()
    return fp8lab.Quantized.from_arrays(
        codes, scales.reshape(-1) if is_swizzled else scales, recipe, direction=direction, scale_layout=layout,
        allow_special_scales=True, **given,
    )  # fmt: skip


def _nvfp4_as_quantized(tensor: Any, codes: Any, scales: Any, direction: Any) -> Any:
    amax = getattr(tensor, f"_amax_{direction}").detach().reshape(-1)
    each_row = tensor._row_scaled_nvfp4
    recipe = nvfp4_recipe(
        False, each_row=each_row, four_over_six=tensor._nvfp4_use_4over6, e4m3_max=tensor._nvfp4_e4m3_max
    )
    given: dict[str, Any] = {"row_amaxes": amax} if each_row else {"amax": float(amax[0])}
    return _from_codes(codes, scales, recipe, direction, tensor._with_gemm_swizzled_scales, **given)


def _block_as_quantized(tensor: Any, codes: Any, scales: Any, direction: Any) -> Any:
    recipe = _block_recipe(format_name(tensor._fp8_dtype), 128 if tensor._is_2D_scaled else 1, 0.0, True)
    return fp8lab.Quantized.from_arrays(
        codes, block_scales(tensor, codes, scales), recipe, direction=direction, allow_special_scales=True
    )


def block_scales(tensor: Any, codes: Any, scales: Any) -> Any:
    """The scales of a block-scaled tensor, a row for each row of codes, without padding."""
    rows, columns = codes.shape
    across = -(-columns // 128)
    own = scales.detach()
    return own[: -(-rows // 128), :across] if tensor._is_2D_scaled else own[:across, :rows].t()
