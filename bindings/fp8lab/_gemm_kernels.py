# SPDX-License-Identifier: Apache-2.0
"""GEMM kernels on arrays, wherever they lie."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import check_choice, check_int, check_real, check_unread
from fp8lab._device_arrays import Buffer, input_buffer, output_buffer
from fp8lab._kernels import _apart, _team


def _codes(x: Any, argument: str, format: Any, format_argument: str) -> tuple[Buffer, str]:
    """The codes of a GEMM's operand and their format: the one that the element type carries, or the one given, or E4M3."""
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


def gemm_arrays(
    a: Any, b: Any, kernel: Any, formats: tuple[Any, Any], scales: tuple[Any, Any], promote_k: Any, bias: Any, out_dtype: Any, chip: Any,
    out: Any, place: tuple[Any, ...],
) -> Any:  # fmt: skip
    """The product of codes by a GEMM kernel."""
    left, format_a = _codes(a, "a", formats[0], "format_a")
    right, format_b = _codes(b, "b", formats[1], "format_b")
    if left.on_device != right.on_device:
        raise ValueError("b must lie where a does")
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"b must have as many columns as a, {left.shape[1]}, not {right.shape[1]}")
    name = check_choice(kernel, "kernel", _core.gpu_gemm_kernels())
    dtype = check_choice(out_dtype, "out_dtype", ("float32", "bfloat16", "float16"))
    interval = check_int(128 if promote_k is None else promote_k, "promote_k", 1, 2**40)
    if promote_k is not None and name != "wgmma_promoted":
        raise ValueError("promote_k goes with the kernel wgmma_promoted")
    team = _team([left, right], *place)
    if left.on_device:
        check_unread("arrays on the host", chip=chip)
    own_chip = check_choice("hopper" if chip is None else chip, "chip", ("ampere", "ada", "hopper", "blackwell", "rtx_blackwell"))
    scale_a, scale_b, bias_of = _scales(scales[0], "scale_a", left), _scales(scales[1], "scale_b", left), _scales(bias, "bias", left)
    result = output_buffer(out, left, (left.shape[0], right.shape[0]), (dtype,), "out")
    read = [one for one in (left, right, scale_a, scale_b, bias_of) if one is not None]
    _apart([result], read)
    in_tiles = name.startswith("wgmma_scaled")
    ones = [None if in_tiles or one is None else one.place for one in (scale_a, scale_b)]
    tiles = [one.place if in_tiles and one is not None else None for one in (scale_a, scale_b)]
    _core.gpu_gemm(
        name, left.shape[0], right.shape[0], left.shape[1], format_a, format_b,
        (left.place, right.place, ones[0], ones[1], tiles[0], tiles[1], None if bias_of is None else bias_of.place, result.place),
        interval, dtype, own_chip, team,
    )  # fmt: skip
    return result.owner
