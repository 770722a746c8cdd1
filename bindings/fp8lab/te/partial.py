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
from fp8lab.te._functions import refuse
from fp8lab.te.operators import operators
from fp8lab.te.quantize import threads
from fp8lab.te.state import compute_amax
from fp8lab.te.tensors import format_name

EXPORTED = (
    "fp8_block_scaling_compute_partial_amax",
    "fp8_block_scaling_partial_cast",
    "multi_tensor_compute_scale_and_scale_inv",
    "multi_tensor_compute_scale_inv_e8m0",
    "mxfp8_scaling_compute_partial_amax",
    "mxfp8_scaling_partial_cast",
    "nvfp4_compute_global_scale",
    "nvfp4_multi_tensor_2d_partial_cast",
    "nvfp4_multi_tensor_compute_partial_amax",
    "nvfp4_multi_tensor_fused_scale",
)
__all__ = [*EXPORTED]

_FORMATS = {448.0: "e4m3", 57344.0: "e5m2"}


def _check_place(shard: Any, h: int, w: int, start: int) -> None:
    if start < 0 or start + shard.numel() > h * w:
        raise ValueError(f"a shard of {shard.numel()} elements at {start} does not lie in a weight of {h} x {w}")


def _whole(shard: Any, h: int, w: int, start: int) -> Any:
    """The weight with zeros where other ranks have their shards."""
    _check_place(shard, h, w, start)
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
    both: Any = (
        (output_rowwise, scale_inv_rowwise, "rowwise", (rows, cols // 32)),
        (output_colwise, scale_inv_colwise, "columnwise", (rows // 32, cols)),
    )
    for out, codes, direction, shape in both:
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


# --- NVFP4 in tiles of 16 x 16 ----------------------------------------------------------------------------------------


def _check_tile(block_len: int) -> None:
    if block_len != 16:
        raise ValueError(f"NVFP4 has tiles of 16 x 16: block_len must be 16, not {block_len}")


def nvfp4_compute_global_scale(global_amax: Any, global_scale: Any) -> None:
    """The scale that each amax of a weight makes; of 0 it is 1."""
    scale_of = operators().nvfp4_global_scale
    made = [scale_of(amax) for amax in global_amax.detach().reshape(-1).tolist()]
    global_scale.detach().reshape(-1).copy_(torch.tensor(made))


def nvfp4_multi_tensor_compute_partial_amax(
    master_weight_list: Any, partial_amax_list: Any, global_amax_list: Any, h_list: Any, w_list: Any,
    start_offset_list: Any, block_len: int = 16,
) -> None:  # fmt: skip
    """The amax of what each shard has of each tile, and that of the shard."""
    _check_tile(block_len)
    for shard, amax, whole, h, w, start in zip(
        master_weight_list, partial_amax_list, global_amax_list, h_list, w_list, start_offset_list, strict=True
    ):
        _store(amax, _tile_amaxes(_whole(shard, h, w, start), 16, 16))
        compute_amax(shard, whole)


def nvfp4_multi_tensor_fused_scale(
    block_amax_list: Any, global_amax_list: Any, per_block_scale_list: Any, target_scale_list: Any,
    target_amax_list: Any, tile_rows_list: Any, tile_cols_list: Any, rows_padded_list: Any, block_len: int,
) -> None:  # fmt: skip
    """The scale of each tile, as float32 and as E4M3 in each of its rows, and the amax of the weight.

    Rows of E4M3 scales follow one another without padding, as the kernel writes them, whatever the target's width.
    """
    _check_tile(block_len)
    for amaxes, whole, scales, codes, amax, rows, columns, padded in zip(
        block_amax_list, global_amax_list, per_block_scale_list, target_scale_list, target_amax_list, tile_rows_list,
        tile_cols_list, rows_padded_list, strict=True,
    ):  # fmt: skip
        amax.detach().reshape(-1).copy_(whole.detach().reshape(-1))
        made = operators().nvfp4_tile_scales(amaxes.detach()[:rows, :columns], float(whole.detach()))
        _store(scales, torch.from_numpy(made))
        expanded = np.zeros((padded, columns), np.uint8)
        expanded[: rows * 16] = fp8lab.encode(made, "e4m3").repeat(16, axis=0)[:padded]
        codes.detach().view(-1)[: expanded.size].copy_(torch.from_numpy(expanded).view(-1))


def nvfp4_multi_tensor_2d_partial_cast(
    inp_list: Any, out_list: Any, scale_list: Any, global_scale_list: Any, h_list: Any, w_list: Any,
    start_offset_list: Any, block_len: int = 16,
) -> None:  # fmt: skip
    """Each shard's E2M1 codes, two in a byte, by the scales of the tiles."""
    _check_tile(block_len)
    for shard, out, scale, whole, h, w, start in zip(
        inp_list, out_list, scale_list, global_scale_list, h_list, w_list, start_offset_list, strict=True
    ):
        if start % 2 or w % 2:
            refuse(
                "an NVFP4 shard that begins at an odd element, or in rows of an odd length",
                "the kernel writes two pairs of codes to one byte there, in no fixed order; divide the weight evenly",
            )
        _check_place(shard, h, w, start)
        codes = operators().nvfp4_shard_codes(
            shard.detach().reshape(-1), scale.detach()[: -(-h // 16), : -(-w // 16)], float(whole.detach()),
            columns=w, start=start, threads=threads(),
        )  # fmt: skip
        _store_pairs(out.detach().view(torch.uint8).reshape(-1).numpy(), codes)


def _store_pairs(out: Any, codes: Any) -> None:
    """Codes as pairs, the first in the low half; a last single one leaves the other half as it is."""
    pairs, count = codes[: codes.size // 2 * 2].reshape(-1, 2), codes.size // 2
    out[:count] = pairs[:, 0] | pairs[:, 1] << 4
    if codes.size % 2:
        out[count] = (out[count] & 0xF0) | codes[-1]
