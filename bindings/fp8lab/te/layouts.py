# SPDX-License-Identifier: Apache-2.0
"""Functions of the extension that move bytes: transposes, swizzles of scales, paddings, offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import fp8lab
from fp8lab.te._mode import placed
from fp8lab.te.tensors import kind_of_tensor, logical_shape, matrix

EXPORTED = (
    "fp8_transpose",
    "fused_multi_row_padding",
    "fused_multi_row_unpadding",
    "multi_tensor_swizzle_scales_for_gemm_",
    "multi_tensor_swizzle_scales_for_gemm_unchecked_",
    "multi_tensor_transpose_to_bhsd",
    "nvfp4_2d_multi_tensor_transpose",
    "nvfp4_2d_scale_transpose",
    "nvfp4_data_transpose",
    "pad_columnwise_scale_inv",
    "splits_to_offsets",
    "splits_to_offsets_multi",
    "swap_first_dims",
    "swizzle_scales_for_gemm_",
)
__all__ = [*EXPORTED]


def _written(result: Any, out: Any) -> Any:
    """The result, in ``out`` where that is given."""
    if out is None:
        return result.contiguous()
    out.detach().copy_(result.view(out.shape) if result.is_contiguous() else result.reshape(out.shape))
    return out


# --- transposes -------------------------------------------------------------------------------------------------------


def fp8_transpose(input: Any, dtype: Any, *, out: Any = None) -> Any:
    """The codes with their last dimension first."""
    codes = input.detach()
    if codes.ndim == 0:
        return _written(codes.clone(), out)
    rows = matrix(codes)
    return _written(rows.t().contiguous().view(codes.shape[-1], *codes.shape[:-1]), out)


def swap_first_dims(tensor: Any, *, out: Any = None) -> Any:
    """A tensor with its first two dimensions swapped."""
    if tensor.ndim < 2:
        raise ValueError(f"swap_first_dims takes a tensor of two or more dimensions, not {tensor.ndim}")
    return _written(tensor.detach().transpose(0, 1).contiguous(), out)


def nvfp4_data_transpose(input: Any, *, out: Any = None) -> Any:
    """The transpose of codes of 4 bits, two a byte along their rows, the first in the low half."""
    packed = matrix(input)
    codes = torch.stack((packed & 15, packed >> 4), dim=-1).view(packed.shape[0], -1).t().contiguous()
    if codes.shape[1] % 2:
        raise ValueError(f"NVFP4 data transpose needs an even number of rows, not {codes.shape[1]}")
    return _written(codes[:, ::2] | (codes[:, 1::2] << 4), out)


def nvfp4_2d_scale_transpose(input: Any, output: Any, M_tiles: int, K_tiles: int) -> None:
    """The scales of 16 x 16 tiles, one in each of a tile's rows, as those of the transpose."""
    tiles = input.detach()[: M_tiles * 16 : 16, :K_tiles]
    rows = output.shape[0]
    output.detach()[: min(rows, K_tiles * 16), :M_tiles].copy_(tiles.t().repeat_interleave(16, dim=0)[:rows])


def nvfp4_2d_multi_tensor_transpose(
    rowwise_data_list: Any,
    columnwise_data_list: Any,
    rowwise_scale_inv_list: Any,
    columnwise_scale_inv_list: Any,
    M_list: Any,
    K_list: Any,
) -> None:
    """Both of the above for each tensor."""
    lists = (rowwise_data_list, columnwise_data_list, rowwise_scale_inv_list, columnwise_scale_inv_list)
    for data, transposed, scales, of_transpose, rows, columns in zip(*lists, M_list, K_list):
        nvfp4_data_transpose(data, out=transposed)
        nvfp4_2d_scale_transpose(scales, of_transpose, -(-int(rows) // 16), -(-int(columns) // 16))


def multi_tensor_transpose_to_bhsd(inputs: Any, original_format: Any, outputs: Any = ()) -> list[Any]:
    """Each tensor of (batch, sequence, heads, columns), or (sequence, batch, ...), with the heads second."""
    name = original_format.name if hasattr(original_format, "name") else str(original_format)
    if not ("BSHD" in name or "SBHD" in name):
        raise ValueError(f"original_format must be BSHD or SBHD, not {name}")
    order = (1, 2, 0, 3) if "SBHD" in name else (0, 2, 1, 3)
    given = [*outputs, *[None] * len(inputs)]
    return [_written(one.detach().permute(order).contiguous(), out) for one, out in zip(inputs, given)]


# --- scales -----------------------------------------------------------------------------------------------------------


def swizzle_scales_for_gemm_(tensor: Any) -> None:
    """A tensor's block scales, rowwise and columnwise, as Blackwell's tensor cores read them; in their place."""
    if kind_of_tensor(tensor) not in ("mxfp8", "nvfp4") or tensor._with_gemm_swizzled_scales:
        return
    for direction in ("rowwise", "columnwise"):
        _swizzle(tensor, direction)
    tensor._with_gemm_swizzled_scales = True


def _swizzle(tensor: Any, direction: str) -> None:
    scales = getattr(tensor, f"_{direction}_scale_inv")
    if scales is None or scales.numel() == 0:
        return
    own = scales.detach()
    across = own.t() if direction == "columnwise" and kind_of_tensor(tensor) == "mxfp8" else own
    swizzled = fp8lab.swizzle_scales(_without_padding(tensor, across, direction))
    setattr(tensor, f"_{direction}_scale_inv", torch.from_numpy(swizzled).view(own.shape))


def _without_padding(tensor: Any, across: Any, direction: str) -> Any:
    """The scales that stand for elements: what lies beside them is not read, and becomes zeros."""
    *lead, columns = logical_shape(tensor)
    rows = int(np.prod(lead))
    block = 32 if kind_of_tensor(tensor) == "mxfp8" else 16
    sides = (rows, columns // block) if direction == "rowwise" else (columns, rows // block)
    return np.ascontiguousarray(across[: sides[0], : sides[1]].numpy())


def multi_tensor_swizzle_scales_for_gemm_(tensors: Any, rowwise_usage: bool, columnwise_usage: bool) -> None:
    """The scales of one direction of each tensor, in the same way."""
    if rowwise_usage == columnwise_usage:
        raise ValueError("Expect exactly one of rowwise_usage and columnwise_usage.")
    for tensor in tensors:
        if kind_of_tensor(tensor) in ("mxfp8", "nvfp4") and not tensor._with_gemm_swizzled_scales:
            _swizzle(tensor, "rowwise" if rowwise_usage else "columnwise")
            tensor._with_gemm_swizzled_scales = True


multi_tensor_swizzle_scales_for_gemm_unchecked_ = multi_tensor_swizzle_scales_for_gemm_


def pad_columnwise_scale_inv(inp: Any) -> Any:
    """Scales with their rows filled up to a multiple of 128 and their columns to one of 4, with zeros."""
    if inp.ndim != 2:
        raise ValueError(f"scales must have two dimensions, not {inp.ndim}")
    rows, columns = inp.shape
    padded = torch.zeros((-(-rows // 128) * 128, -(-columns // 4) * 4), dtype=inp.dtype)
    padded[:rows, :columns].copy_(inp.detach())
    return padded


# --- rows of groups ---------------------------------------------------------------------------------------------------


def _check_rows(input: Any, output: Any, rows: Any, others: Any) -> None:
    if len(rows) != len(others):
        raise ValueError("Number of input row list and padded row list must match.")
    for tensor, name in ((input, "input"), (output, "output")):
        if tensor.ndim != 2:
            raise ValueError(f"Dimension of {name} must equal 2, not {tensor.ndim}.")


def fused_multi_row_padding(input: Any, output: Any, input_row_list: Any, padded_input_row_list: Any) -> None:
    """The rows of each group, followed by zeros."""
    _check_rows(input, output, input_row_list, padded_input_row_list)
    first = first_out = 0
    for rows, padded in zip(input_row_list, padded_input_row_list):
        if rows:
            part = output.detach()[first_out : first_out + padded]
            part[:rows].copy_(input.detach()[first : first + rows])
            part[rows:].zero_()
        first, first_out = first + rows, first_out + padded


def fused_multi_row_unpadding(input: Any, output: Any, input_row_list: Any, unpadded_input_row_list: Any) -> None:
    """The rows of each group without those that were filled up."""
    _check_rows(input, output, input_row_list, unpadded_input_row_list)
    first = first_out = 0
    for rows, kept in zip(input_row_list, unpadded_input_row_list):
        output.detach()[first_out : first_out + kept].copy_(input.detach()[first : first + kept])
        first, first_out = first + rows, first_out + kept


def splits_to_offsets(first_dims: Any, logical_last_dim: int) -> Any:
    """Where each group begins, in elements, and where the last one ends."""
    return _offsets(first_dims, logical_last_dim, True, torch.int64)


def _offsets(sizes: Any, stride: int, has_zero: bool, dtype: Any) -> Any:
    sums = torch.cumsum(sizes.detach().to(torch.int64), 0) * int(stride)
    return (torch.cat((torch.zeros(1, dtype=torch.int64), sums)) if has_zero else sums).to(dtype)


def splits_to_offsets_multi(
    split_sizes: Any,
    device: Any,
    *,
    strides: Any,
    include_leading_zero: Any,
    dtypes: Any,
    bulk_allocate: bool = False,
) -> tuple[Any, list[Any]]:
    """The sizes as int64, and their sums for each stride and type."""
    if not len(strides) == len(include_leading_zero) == len(dtypes):
        raise ValueError(
            "strides, include_leading_zero, and dtypes must have matching lengths, but got "
            f"{len(strides)}, {len(include_leading_zero)}, and {len(dtypes)}."
        )
    sizes = split_sizes.detach().to(torch.int64, copy=True)
    wanted = zip(strides, include_leading_zero, dtypes)
    made = [_offsets(sizes, stride, has_zero, dtype) for stride, has_zero, dtype in wanted]
    return placed(sizes, device), [placed(one, device) for one in made]
