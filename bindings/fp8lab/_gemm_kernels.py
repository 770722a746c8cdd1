# SPDX-License-Identifier: Apache-2.0
"""GEMM kernels on arrays, wherever they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import as_format, check_choice, check_int, check_real, check_unread
from fp8lab._device_arrays import Buffer, input_buffer, output_buffer
from fp8lab._kernels import QuantizedArrays, _apart, _depends_on_amax, _is_transposed, _parts, _team
from fp8lab._scaling import Quantized

_BLOCK_SCALED = ("blackwell_mxf8f6f4", "blackwell_mxf4", "blackwell_mxf4nvf4_ue8m0", "blackwell_mxf4nvf4")


def _codes(x: Any, argument: str, format: Any, format_argument: str) -> tuple[Buffer, str]:
    """The codes of a GEMM's operand and their format: the one that the element type carries, or the one given, or
    E4M3."""
    buffer = input_buffer(x, argument)
    carried = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}.get(buffer.dtype)
    if carried is None and buffer.dtype != "uint8":
        raise TypeError(f"{argument} must be uint8, float8_e4m3fn or float8_e5m2, not {buffer.dtype}")
    if len(buffer.shape) != 2 or buffer.size == 0:
        raise ValueError(f"{argument} must have two dimensions and not be empty, not shape {buffer.shape}")
    wanted = None if format is None else check_choice(format, format_argument, ("e4m3", "e5m2"))
    if carried is not None and wanted not in (None, carried):
        raise ValueError(f"{format_argument} is {wanted}, and {argument} is {carried} by its element type")
    return buffer, carried or wanted or "e4m3"


def _scales(x: Any, argument: str, near: Buffer) -> Buffer | None:
    """Scales that lie where the codes do: one float32, or one for each tile."""
    if x is None:
        return None
    if not near.on_device and isinstance(x, (int, float, np.integer, np.floating)):
        x = np.array([_core.nearest_float32(check_real(x, argument))], np.float32)
    buffer = input_buffer(x, argument)
    if buffer.dtype != "float32" or buffer.on_device != near.on_device:
        raise TypeError(f"{argument} must be float32 and lie where {near.argument} does")
    return buffer


@dataclass(frozen=True)
class _Side:
    """An operand: its codes, (rows, K), or in pairs (rows, K / 2), with their format and scales."""

    codes: Buffer
    format: str
    scale: Buffer | None = None
    tile_scales: Buffer | None = None
    block_scales: Buffer | None = None
    is_swizzled: bool = False
    divisor: float = 1.0

    @property
    def depth(self) -> int:
        return self.codes.shape[1] * (2 if self.format == "e2m1" else 1)

    def facts(self) -> tuple[str, bool, float]:
        return self.format, self.is_swizzled, self.divisor

    def read(self) -> list[Buffer]:
        return [one for one in (self.codes, self.scale, self.tile_scales, self.block_scales) if one is not None]


def _takes_tiles(kernel: str) -> bool:
    return kernel.startswith("wgmma_scaled")


def _check_tile_scales(scales: Buffer, named: str, argument: str, codes: Buffer, kernel: str) -> None:
    """Requires a scale for each tile of the operand."""
    rows = 128 if kernel == "wgmma_scaled_1d2d" and argument == "b" else 1
    shape = tuple(-(-size // tile) for size, tile in zip(codes.shape, (rows, 128)))
    if scales.shape != shape:
        raise ValueError(
            f"{named} must have shape {shape}, one for {rows} x 128 codes of {argument}, not {scales.shape}"
        )


def _side_of_codes(x: Any, argument: str, format: Any, scales: Any, kernel: str) -> _Side:
    """An operand that is given as codes."""
    if kernel in _BLOCK_SCALED:
        raise TypeError(
            f"{argument} must be a Quantized or QuantizedArrays for {kernel}, whose operands have block scales"
        )
    codes, name = _codes(x, argument, format, f"format_{argument}")
    buffer = _scales(scales, f"scale_{argument}", codes)
    if not _takes_tiles(kernel):
        return _Side(codes, name, buffer)
    if buffer is None:
        raise ValueError(f"scale_{argument} must be given: {kernel} reads one for each tile")
    _check_tile_scales(buffer, f"scale_{argument}", argument, codes, kernel)
    return _Side(codes, name, None, buffer)


def _side_of_arrays(q: QuantizedArrays, argument: str, kernel: str) -> _Side:
    """An operand that a kernel has quantized on a device."""
    codes, scale_inv, scale_codes, amax = _parts(
        input_buffer(q.codes, f"{argument}.codes"), q, _depends_on_amax(q.recipe), argument
    )
    assert codes is not None
    if q.direction == "columnwise" and not _is_transposed(q.recipe, q.direction):
        raise ValueError(
            f"{argument} must have K along its rows: quantize it rowwise, or columnwise by a recipe that transposes"
        )
    is_one = scale_inv is not None and scale_inv.size == 1
    for has, takes, what in (
        (scale_inv is not None and not is_one, _takes_tiles(kernel), "float32 scales of tiles"),
        (scale_codes is not None, kernel in _BLOCK_SCALED, "block scales"),
    ):
        if has != takes:
            raise ValueError(f"{kernel} does not take {argument}: it has {'no ' if takes else ''}{what}")
    if scale_inv is not None and _takes_tiles(kernel):
        _check_tile_scales(scale_inv, f"{argument}.scale_inv", argument, codes, kernel)
    scale, divisor = (scale_inv if is_one else None), 1.0
    if q.recipe.tensor_scale == "largest_over_amax":
        scale, divisor = amax, _core.gpu_tensor_divisor(q.recipe._core())
    elif q.recipe.tensor_scale != "none":
        raise ValueError(
            f"{argument} has a recipe whose tensor_scale is {q.recipe.tensor_scale}: "
            "on a device a kernel takes largest_over_amax"
        )
    return _Side(
        codes,
        as_format(q.recipe.format, "format").name,
        scale,
        None if is_one else scale_inv,
        scale_codes,
        q.layout == "swizzled",
        divisor,
    )


def _both(
    a: Any, b: Any, name: str, formats: tuple[Any, Any], scales: tuple[Any, Any]
) -> tuple[_Side, _Side] | tuple[Quantized, Quantized]:
    """The operands: on the host those that were quantized are two ``Quantized``."""
    if not isinstance(a, (Quantized, QuantizedArrays)) or not isinstance(b, (Quantized, QuantizedArrays)):
        if isinstance(a, (Quantized, QuantizedArrays)) or isinstance(b, (Quantized, QuantizedArrays)):
            raise TypeError("a and b must both be codes, or both Quantized or QuantizedArrays")
        return _side_of_codes(a, "a", formats[0], scales[0], name), _side_of_codes(b, "b", formats[1], scales[1], name)
    check_unread("codes", format_a=formats[0], format_b=formats[1], scale_a=scales[0], scale_b=scales[1])
    on_device = [
        isinstance(q, QuantizedArrays) and input_buffer(q.codes, f"{name}.codes").on_device
        for q, name in ((a, "a"), (b, "b"))
    ]
    if on_device[0] != on_device[1]:
        raise ValueError("b must lie where a does")
    if isinstance(a, QuantizedArrays) and isinstance(b, QuantizedArrays) and on_device[0]:
        return _side_of_arrays(a, "a", name), _side_of_arrays(b, "b", name)
    left, right = (one.to_host() if isinstance(one, QuantizedArrays) else one for one in (a, b))
    return left, right


def _place_of(buffer: Buffer | None) -> tuple[str, int, int, int] | None:
    return None if buffer is None else buffer.place


def _written(
    bias: Any, out: Any, codes: Buffer, shape: tuple[int, int], dtype: str, read: list[Buffer]
) -> tuple[tuple[str, int, int, int] | None, Buffer]:
    """The place of the bias, and the array of the result."""
    bias_of = _scales(bias, "bias", codes)
    result = output_buffer(out, codes, shape, (dtype,), "out")
    _apart([result], read if bias_of is None else [*read, bias_of])
    return _place_of(bias_of), result


def gemm_arrays(
    a: Any, b: Any, kernel: Any, formats: tuple[Any, Any], scales: tuple[Any, Any], promote_k: Any, bias: Any,
    out_dtype: Any, chip: Any, out: Any, place: tuple[Any, ...],
) -> Any:  # fmt: skip
    """The product of codes by a GEMM kernel."""
    name = check_choice(kernel, "kernel", _core.gpu_gemm_kernels())
    dtype = check_choice(out_dtype, "out_dtype", ("float32", "bfloat16", "float16"))
    interval = check_int(128 if promote_k is None else promote_k, "promote_k", 1, 2**40)
    if promote_k is not None and name != "wgmma_promoted":
        raise ValueError("promote_k goes with the kernel wgmma_promoted")
    own_chip = (
        None if chip is None else check_choice(chip, "chip", ("ampere", "ada", "hopper", "blackwell", "rtx_blackwell"))
    )
    left, right = _both(a, b, name, formats, scales)
    if isinstance(left, Quantized):
        assert isinstance(right, Quantized)
        codes, other = input_buffer(left.codes, "a"), input_buffer(right.codes, "b")
        m, n = (q.shape[0 if q.direction == "rowwise" else 1] for q in (left, right))
        bias_place, result = _written(bias, out, codes, (m, n), dtype, [codes, other])
        team = _team([codes, other], *place)
        _core.gpu_gemm_quantized(
            name, left._core, right._core, bias_place, result.place, interval, dtype, own_chip, team
        )
        return result.owner
    assert not isinstance(right, Quantized)
    if left.codes.on_device != right.codes.on_device:
        raise ValueError("b must lie where a does")
    if left.depth != right.depth:
        raise ValueError(f"b must have as many columns as a, {left.depth}, not {right.depth}")
    if left.codes.on_device:
        check_unread("arrays on the host", chip=chip)
    team = _team([left.codes, right.codes], *place)
    m, n = left.codes.shape[0], right.codes.shape[0]
    bias_place, result = _written(bias, out, left.codes, (m, n), dtype, left.read() + right.read())
    places = (
        left.codes.place, right.codes.place, _place_of(left.block_scales), _place_of(right.block_scales),
        _place_of(left.scale), _place_of(right.scale), _place_of(left.tile_scales), _place_of(right.tile_scales),
        bias_place, result.place,
    )  # fmt: skip
    _core.gpu_gemm(name, m, n, left.depth, left.facts(), right.facts(), places, interval, dtype, own_chip, team)
    return result.owner
