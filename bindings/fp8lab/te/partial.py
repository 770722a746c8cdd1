# SPDX-License-Identifier: Apache-2.0
"""Amaxes and casts of a shard of a weight, whose other shards other ranks have; and scales of reduced amaxes.

The shard is ``start_offset`` elements behind the beginning of a weight of h rows and w columns.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

import fp8lab
from fp8lab.te.operators import operators
from fp8lab.te.quantize import threads
from fp8lab.te.tensors import format_name

EXPORTED = (
    "fp8_block_scaling_compute_partial_amax",
    "fp8_block_scaling_partial_cast",
    "multi_tensor_compute_scale_and_scale_inv",
    "multi_tensor_compute_scale_inv_e8m0",
    "mxfp8_scaling_compute_partial_amax",
    "mxfp8_scaling_partial_cast",
)
__all__ = [*EXPORTED]

_FORMATS = {448.0: "e4m3", 57344.0: "e5m2"}


def _whole(shard: Any, h: int, w: int, start: int) -> Any:
    """The weight with zeros where other ranks have their shards."""
    if start < 0 or start + shard.numel() > h * w:
        raise ValueError(f"a shard of {shard.numel()} elements at {start} does not lie in a weight of {h} x {w}")
    whole = torch.zeros(h * w, dtype=shard.dtype)
    whole[start : start + shard.numel()] = shard.detach().reshape(-1)
    return whole.view(h, w)


def _tile_amaxes(whole: Any, rows: int, columns: int) -> Any:
    """The largest magnitude in each tile, NaN left out."""
    h, w = whole.shape
    magnitudes = torch.nan_to_num(whole.float().abs(), nan=0.0, posinf=float("inf"))
    filled = torch.nn.functional.pad(magnitudes, (0, -w % columns, 0, -h % rows))
    return filled.view(-(-h // rows), rows, -(-w // columns), columns).amax(dim=(1, 3))


def _store(target: Any, values: Any) -> None:
    target.detach()[: values.shape[0], : values.shape[1]].copy_(values)


def _check_block(block_len: int) -> None:
    if block_len != 128:
        raise ValueError(f"Currently only block_len = 128 is supported, not {block_len}")


def fp8_block_scaling_compute_partial_amax(
    tensor: Any, amax: Any, h: int, w: int, start_offset: int, block_len: int
) -> None:
    """The amax of what the shard has of each tile of 128 x 128."""
    _check_block(block_len)
    _store(amax, _tile_amaxes(_whole(tensor, h, w, start_offset), 128, 128))


def fp8_block_scaling_partial_cast(
    inp: Any, out: Any, scale: Any, h: int, w: int, start_offset: int, block_len: int, out_dtype: Any
) -> None:
    """The shard's codes by the scales of the tiles of 128 x 128."""
    _check_block(block_len)
    scales = scale.detach()[: -(-h // 128), : -(-w // 128)].contiguous().numpy()
    made = fp8lab.quantize(
        _whole(inp, h, w, start_offset), fp8lab.Block(format_name(out_dtype), rows=128), scale=scales, threads=threads()
    )
    _store_shard(out, made.codes, start_offset, inp.numel())


def _store_shard(out: Any, codes: Any, start: int, count: int) -> None:
    part = np.ascontiguousarray(codes).reshape(-1)[start : start + count]
    out.detach().view(torch.uint8).reshape(-1)[:count].copy_(torch.from_numpy(part))


def mxfp8_scaling_compute_partial_amax(
    input: Any, amax_rowwise: Any, amax_colwise: Any, rows: int, cols: int, start_offset: int
) -> None:
    """The amax of what the shard has of each 1 x 32 and of each 32 x 1."""
    whole = _whole(input, rows, cols, start_offset)
    _store(amax_rowwise, _tile_amaxes(whole, 1, 32).to(amax_rowwise.dtype))
    _store(amax_colwise, _tile_amaxes(whole, 32, 1).to(amax_colwise.dtype))


def mxfp8_scaling_partial_cast(
    input: Any,
    output_rowwise: Any,
    output_colwise: Any,
    scale_inv_rowwise: Any,
    scale_inv_colwise: Any,
    rows: int,
    cols: int,
    start_offset: int,
) -> None:
    """The shard's E4M3 codes of both directions by E8M0 scales."""
    whole = _whole(input, rows, cols, start_offset)
    recipe = fp8lab.Block("e4m3", rows=1, columns=32)
    for out, codes, direction, shape in (
        (output_rowwise, scale_inv_rowwise, "rowwise", (rows, cols // 32)),
        (output_colwise, scale_inv_colwise, "columnwise", (rows // 32, cols)),
    ):
        inverse = fp8lab.decode(codes.detach()[: shape[0], : shape[1]].contiguous().numpy(), "e8m0")
        made = fp8lab.quantize(whole, recipe, direction=direction, scale_inv=inverse, threads=threads())
        _store_shard(out, made.codes.T if made.transposed else made.codes, start_offset, input.numel())


# --- scales of amaxes -------------------------------------------------------------------------------------------------


def multi_tensor_compute_scale_and_scale_inv(
    chunk_size: int,
    noop_flag: Any,
    tensor_lists: Any,
    max_fp8: float,
    force_pow_2_scales: bool,
    epsilon: float,
) -> None:
    """The scale of each amax and its inverse, as current scaling makes them."""
    if float(max_fp8) not in _FORMATS:
        raise ValueError(f"max_fp8 must be 448 or 57344, the largest of E4M3 and E5M2, not {max_fp8}")
    facts = {"power_of_two": bool(force_pow_2_scales), "eps": float(epsilon)}
    scale_of = operators().scale_of_amax
    for amaxes, scales, inverses in zip(*tensor_lists):
        made = [scale_of(amax, _FORMATS[float(max_fp8)], **facts) for amax in amaxes.detach().reshape(-1).tolist()]
        scales.detach().view(-1).copy_(torch.tensor([one[0] for one in made]))
        inverses.detach().view(-1).copy_(torch.tensor([one[1] for one in made]))


def multi_tensor_compute_scale_inv_e8m0(chunk_size: int, noop_flag: Any, tensor_lists: Any, *_rest: Any) -> None:
    """The E8M0 code of each amax of MXFP8 in E4M3."""
    recipe = dataclasses.replace(fp8lab.MxBlock("e4m3"), tile_along=1)  # an amax is a tile of its own
    for amaxes, codes in zip(*tensor_lists):
        made = fp8lab.quantize(amaxes.detach().reshape(1, -1), recipe, threads=threads()).scale_codes
        codes.detach().view(torch.uint8).view(-1).copy_(torch.from_numpy(made).view(-1))
