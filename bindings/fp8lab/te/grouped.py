# SPDX-License-Identifier: Apache-2.0
"""Grouped tensors: the tensors of a group in one buffer each for codes, scales and amaxes.

A group is quantized and multiplied tensor by tensor, as its members would be; which buffers it has follows
``create_grouped_tensor`` of pytorch/csrc/quantizer.cpp (2.20).
"""

from __future__ import annotations

import itertools
import math
import os
from typing import Any

import torch

from fp8lab.te.gemm import generic_gemm
from fp8lab.te.layouts import swizzle_scales_for_gemm_
from fp8lab.te.operators import as_tensor, operators
from fp8lab.te.quantize import (
    bias_gradient,
    check_grouped,
    current_scale,
    dequantize,
    new_member,
    nvfp4_quantize_with_amax,
    quantize,
    reduced_amaxes,
    threads,
)
from fp8lab.te.state import amax_of
from fp8lab.te.tensors import element_type, kind_of_quantizer

EXPORTED = (
    "bgrad_group_quantize",
    "compute_grouped_dbias",
    "compute_grouped_dbias_dscales",
    "group_dequantize",
    "group_quantize",
    "group_requantize_inplace",
    "grouped_swizzle_for_gemm",
    "nvfp4_group_quantize_with_amax",
    "te_general_grouped_gemm_for_discrete_in",
    "te_general_grouped_gemm_for_discrete_out",
    "te_general_grouped_gemm_for_grouped_tensor",
)
__all__ = [*EXPORTED]

#: The buffers of a group, and those of its members that are in them, one after the other.
_PARTS = {
    "float8": {"data": "_data", "columnwise_data": "_transpose", "scale_inv": "_scale_inv"},
    "other": {
        "data": "_rowwise_data",
        "columnwise_data": "_columnwise_data",
        "scale_inv": "_rowwise_scale_inv",
        "columnwise_scale_inv": "_columnwise_scale_inv",
        "amax": "_amax_rowwise",
        "columnwise_amax": "_amax_columnwise",
    },
}


def _classes() -> tuple[Any, Any]:
    from transformer_engine.pytorch.tensor.grouped_tensor import GroupedTensor
    from transformer_engine.pytorch.tensor.storage.grouped_tensor_storage import GroupedTensorStorage

    return GroupedTensor, GroupedTensorStorage


def _shapes(tensor: Any, num_tensors: int, first_dims: Any, last_dims: Any) -> list[tuple[int, int]]:
    """The rows and columns of each tensor of the group, which lie one after the other in the buffer of `tensor`."""
    if tensor.ndim != 2:
        raise ValueError(f"Tensor must be 2D, and has {tensor.ndim} dimensions")
    rows, columns = tensor.shape
    if num_tensors < 1:
        raise ValueError(f"num_tensors must be at least 1, not {num_tensors}")
    if first_dims is None and last_dims is None:
        if rows % num_tensors:
            raise ValueError(f"{rows} rows are no {num_tensors} tensors of one shape: give first_dims")
        return [(rows // num_tensors, columns)] * num_tensors
    shapes = list(
        zip(_dims("first_dims", first_dims, num_tensors, rows), _dims("last_dims", last_dims, num_tensors, columns))
    )
    elements = sum(first * last for first, last in shapes)
    if elements > tensor.numel():
        given = "first_dims" if last_dims is None else "last_dims" if first_dims is None else "first_dims and last_dims"
        raise ValueError(f"{given} make tensors of {elements} elements, and the tensor has {tensor.numel()}")
    return shapes


def _dims(name: str, dims: Any, num_tensors: int, common: int) -> list[int]:
    if dims is None:
        return [common] * num_tensors
    sizes = [int(size) for size in dims.detach().tolist()]
    if len(sizes) != num_tensors or min(sizes, default=0) < 0:
        raise ValueError(f"{name} must have length {num_tensors}, of numbers that are not negative, not {sizes}")
    return sizes


def _parts(tensor: Any, shapes: list[tuple[int, int]]) -> list[Any]:
    """The tensors of the group."""
    flat, first, parts = tensor.reshape(-1), 0, []
    for rows, columns in shapes:
        parts.append(flat[first : first + rows * columns].view(rows, columns))
        first += rows * columns
    return parts


def _check_widths(kind: str, shapes: list[tuple[int, int]], first_dims: Any, last_dims: Any) -> None:
    """Which kernels take tensors of several widths (common/cast: group_quantize of each kind)."""
    if last_dims is None:
        return
    if kind not in ("current", "mxfp8"):
        raise RuntimeError(
            f"group_quantize with last_dims takes current scaling or MXFP8, whose kernels alone have it, not {kind}"
        )
    if kind == "current" and first_dims is not None:
        raise RuntimeError("group_quantize by current scaling takes first_dims or last_dims, not both")
    if kind == "mxfp8" and any(size % 128 for shape in shapes for size in shape):
        raise RuntimeError(
            f"group_quantize by MXFP8 with last_dims takes multiples of 128 rows and columns, not {shapes}"
        )


def group_quantize(
    tensor: Any,
    quantizer: Any,
    num_tensors: int,
    first_dims: Any,
    last_dims: Any = None,
    tensor_offsets: Any = None,
    noop_flag: Any = None,
    output: Any = None,
) -> Any:
    """The tensors of a group, each by the quantizer, as a grouped tensor."""
    if output is not None and noop_flag is not None and float(noop_flag) == 1.0:
        return output
    shapes = _shapes(tensor, num_tensors, first_dims, last_dims)
    check_grouped([quantizer])
    _check_widths(kind_of_quantizer(quantizer), shapes, first_dims, last_dims)
    own = quantizer
    if kind_of_quantizer(quantizer) in ("delayed", "current") and not quantizer.rowwise_usage:
        own = quantizer.copy()  # the grouped kernel writes transposes alone as well
        own.set_usage(rowwise=True)
    parts = _parts(tensor, shapes)
    members = [quantize(part, own, None, noop_flag) if part.numel() else None for part in parts]
    made = _grouped(tensor, quantizer, members, parts, first_dims, last_dims, tensor_offsets)
    if output is None:
        return made
    if output.num_tensors != num_tensors or tuple(output.logical_shape) != tuple(tensor.shape):
        raise ValueError("group_quantize: output has an incompatible logical shape.")
    for name in (
        "rowwise_data", "columnwise_data", "scale_inv", "columnwise_scale_inv", "amax", "columnwise_amax", "scale",
    ):  # fmt: skip
        if getattr(output, name) is not None:
            getattr(output, name).detach().copy_(getattr(made, name))
    return output


def _grouped(
    tensor: Any, quantizer: Any, members: Any, parts: Any, first_dims: Any, last_dims: Any, tensor_offsets: Any
) -> Any:
    if tensor_offsets is None and not (first_dims is None and last_dims is None):
        tensor_offsets = torch.tensor([0, *itertools.accumulate(part.numel() for part in parts)])
    kind = kind_of_quantizer(quantizer)
    whole = tensor
    if first_dims is not None and last_dims is not None:
        # The tensor may be one row: the kernel knows tiles of 128 x 128.
        whole = torch.empty((-(-tensor.numel() // 128**2) * 128, 128), dtype=tensor.dtype, device="meta")
    whole = new_member(quantizer, whole)
    fields = {
        name: _joined([None if one is None else getattr(one, own) for one in members], getattr(whole, own))
        for name, own in _PARTS["float8" if kind in ("delayed", "current") else "other"].items()
        if hasattr(whole, own)
    }
    if kind in ("delayed", "current"):
        inverses = torch.cat([torch.ones(1) if one is None else one._scale_inv.detach() for one in members])
        fields["scale_inv"] = inverses if fields["data"] is not None else None
        fields["columnwise_scale_inv"] = inverses if fields["columnwise_data"] is not None else None
    if kind == "current":
        amaxes = [amax_of(part) for part in parts]
        fields["amax"] = torch.tensor(amaxes)
        fields["scale"] = torch.tensor([current_scale(quantizer, amax) for amax in amaxes])
    if kind == "nvfp4":
        for name, own in (("amax", "_amax_rowwise"), ("columnwise_amax", "_amax_columnwise")):
            if fields.get(name) is not None and not quantizer.row_scaled_nvfp4:  # of tensors without rows, too
                amaxes = [torch.zeros(1) if one is None else getattr(one, own).detach().reshape(1) for one in members]
                fields[name] = torch.cat(amaxes)
        fields.update(
            row_scaled_nvfp4=quantizer.row_scaled_nvfp4, nvfp4_use_4over6=quantizer.nvfp4_use_4over6,
            nvfp4_e4m3_max=quantizer.nvfp4_e4m3_max,
        )  # fmt: skip
    is_swizzled = kind in ("mxfp8", "nvfp4") and bool(quantizer.optimize_for_gemm)
    kinds = _classes()
    return kinds[1 if quantizer.internal else 0](
        shape=tuple(tensor.shape), dtype=tensor.dtype, num_tensors=len(parts), quantizer=quantizer,
        first_dims=first_dims, last_dims=last_dims, tensor_offsets=tensor_offsets,
        with_gemm_swizzled_scales=is_swizzled, **fields,
    )  # fmt: skip


def _joined(parts: list[Any], whole: Any) -> Any:
    """The buffers of the members one after the other; at least as long as that of a tensor of all rows."""
    if whole is None:
        return None
    flat = torch.cat([one.detach().reshape(-1) for one in parts if one is not None] or [whole.reshape(-1)[:0]])
    missing = whole.numel() - flat.numel()
    return torch.cat((flat, torch.zeros(missing, dtype=flat.dtype))) if missing > 0 else flat


def _check_one_width(name: str, last_dims: Any) -> None:
    if last_dims is not None:
        raise RuntimeError(f"{name} takes tensors of one width: last_dims must be None")


def bgrad_group_quantize(
    tensor: Any,
    quantizer: Any,
    num_tensors: int,
    first_dims: Any,
    last_dims: Any = None,
    tensor_offsets: Any = None,
) -> tuple[Any, Any]:
    """A grouped tensor and the gradient of each member's bias, a row for each."""
    _check_one_width("bgrad_group_quantize", last_dims)
    made = group_quantize(tensor, quantizer, num_tensors, first_dims, None, tensor_offsets)
    parts = _parts(tensor, _shapes(tensor, num_tensors, first_dims, None))
    return made, torch.stack([bias_gradient(part, tensor.dtype) for part in parts])


def compute_grouped_dbias(dy: Any, offsets: Any, num_groups: int, dbias: Any = None) -> Any:
    """The sum of the rows of each group."""
    starts = _starts(offsets, num_groups)
    made = operators().group_bias_gradient(dy.detach(), starts, dbias=_values(dbias), threads=threads())
    return _total(dbias, made)


def compute_grouped_dbias_dscales(
    dy: Any, scales: Any, bias: Any, offsets: Any, dbias: Any = None, dscales: Any = None
) -> tuple[Any, Any]:
    """The gradients of each group's bias and of the factor that it has in each row."""
    made, of_scales = operators().scaled_group_bias_gradient(
        dy.detach(), scales.detach(), bias.detach(), _starts(offsets, bias.shape[0]), dbias=_values(dbias),
        dscales=_values(dscales), threads=threads(),
    )  # fmt: skip
    return _total(dbias, made), _total(dscales, of_scales)


def _starts(offsets: Any, num_groups: int) -> Any:
    if os.environ.get("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "1") == "0":
        raise RuntimeError(
            "the kernel of grouped biases has atomic additions, which NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 rules out"
        )
    if offsets.numel() != num_groups + 1:
        raise ValueError(f"offsets must have {num_groups + 1} entries, one more than groups, not {offsets.numel()}")
    return offsets.detach()


def _values(given: Any) -> Any:
    return None if given is None else given.detach()


def _total(given: Any, made: Any) -> Any:
    """What was made, in the place of the tensor that it was added to."""
    return as_tensor(made) if given is None else given.copy_(as_tensor(made))


def group_dequantize(input: Any, otype: Any) -> Any:
    """The values of a grouped tensor as a grouped tensor in high precision; zeros stand behind its last member."""
    parts = [dequantize(one, otype).reshape(-1) for one in input.split_into_quantized_tensors()]
    rest = math.prod(input.logical_shape) - sum(part.numel() for part in parts)
    parts.append(torch.zeros(rest, dtype=element_type(otype)))
    return _classes()[1](
        shape=input.logical_shape, dtype=element_type(otype), num_tensors=input.num_tensors, quantizer=None,
        data=torch.cat(parts), first_dims=input.first_dims, last_dims=input.last_dims,
        tensor_offsets=input.tensor_offsets,
    )  # fmt: skip


def nvfp4_group_quantize_with_amax(
    tensor: Any, quantizer: Any, num_tensors: int, first_dims: Any, last_dims: Any = None, *, rowwise_amax: Any,
    columnwise_amax: Any, tensor_offsets: Any = None,
) -> Any:  # fmt: skip
    """The tensors of a group by NVFP4 with a Hadamard transform, each by amaxes that are known."""
    if kind_of_quantizer(quantizer) != "nvfp4":
        raise TypeError(f"nvfp4_group_quantize_with_amax takes an NVFP4Quantizer, not a {type(quantizer).__name__}")
    if quantizer.with_2d_quantization or quantizer.nvfp4_use_4over6 or not quantizer.with_rht:
        raise RuntimeError("the kernel of a group has NVFP4 with_rht alone: neither square tiles nor 4over6")
    check_grouped([quantizer])
    _check_one_width("nvfp4_group_quantize_with_amax", last_dims)
    parts = _parts(tensor, _shapes(tensor, num_tensors, first_dims, None))
    amaxes = [rowwise_amax, columnwise_amax]
    for name, one in zip(("rowwise_amax", "columnwise_amax"), amaxes):
        if one.dtype != torch.float32 or one.numel() != num_tensors:
            raise RuntimeError(f"{name} must be {num_tensors} numbers of float32, one for each tensor")
    rowwise, columnwise = reduced_amaxes(quantizer, amaxes)
    members = [
        nvfp4_quantize_with_amax(part, quantizer, rowwise[i], columnwise[i]) if part.numel() else None
        for i, part in enumerate(parts)
    ]
    made = _grouped(tensor, quantizer, members, parts, first_dims, None, tensor_offsets)
    made.amax = rowwise_amax if made.amax is not None else None
    made.columnwise_amax = columnwise_amax if made.columnwise_amax is not None else None
    return made


def group_requantize_inplace(
    grouped_x: Any, quantizer: Any, num_tensors: int, first_dims: Any, otype: Any, tensor_offsets: Any = None,
    return_dequantized: bool = False,
) -> Any:  # fmt: skip
    """Makes an MXFP8 group that has rowwise data alone ready for GEMMs: its scales in the layout of the tensor cores,
    and columnwise data of what it stands for, where the quantizer wants them."""
    has_columnwise = grouped_x.columnwise_data is not None and grouped_x.columnwise_scale_inv is not None
    wants_columnwise = bool(quantizer.columnwise_usage)
    _check_requantized(grouped_x, quantizer)
    if grouped_x._with_gemm_swizzled_scales:
        if wants_columnwise and not has_columnwise:
            raise RuntimeError("columnwise data cannot be rebuilt of a grouped input whose scales are swizzled")
        if return_dequantized:
            raise RuntimeError("a grouped input is dequantized of scales in compact format alone, not swizzled ones")
        return None
    if has_columnwise:
        raise RuntimeError("a grouped input with columnwise data must have swizzled scales")
    if kind_of_quantizer(quantizer) != "mxfp8":
        raise RuntimeError("a grouped input is quantized again by MXFP8 alone")
    rows, columns = grouped_x.logical_shape
    if rows % 128 or columns % 128:
        raise RuntimeError(f"a grouped input must have multiples of 128 rows and columns, not {rows} x {columns}")
    values = group_dequantize(grouped_x, otype).rowwise_data.view(rows, columns)
    grouped_swizzle_for_gemm(grouped_x, True, False)
    if wants_columnwise:
        own = quantizer.copy()
        own.set_usage(rowwise=False, columnwise=True)
        own.optimize_for_gemm = True
        made = group_quantize(values, own, num_tensors, first_dims, None, tensor_offsets)
        grouped_x.columnwise_data = made.columnwise_data
        grouped_x.columnwise_scale_inv = made.columnwise_scale_inv
    return values if return_dequantized else None


def _check_requantized(grouped_x: Any, quantizer: Any) -> None:
    if grouped_x.rowwise_data is None or grouped_x.scale_inv is None:
        raise RuntimeError("a grouped input has no rowwise data and scales for a GEMM")
    own = grouped_x.quantizer
    if own is None or type(own) is not type(quantizer):
        raise RuntimeError(f"a grouped input must be quantized by a {type(quantizer).__name__}, as the operation is")
    if int(own.dtype) != int(quantizer.dtype):
        raise RuntimeError(f"a grouped input must have the quantizer's dtype {quantizer.dtype}, not {own.dtype}")


def grouped_swizzle_for_gemm(tensor: Any, rowwise: bool, columnwise: bool) -> None:
    """The scales of each member in the layout of the tensor cores, in their place."""
    if tensor._with_gemm_swizzled_scales:
        return
    members = tensor.split_into_quantized_tensors()
    for one in members:
        swizzle_scales_for_gemm_(one)
    for name, own in (("scale_inv", "_rowwise_scale_inv"), ("columnwise_scale_inv", "_columnwise_scale_inv")):
        buffer = getattr(tensor, name)
        if buffer is not None:
            setattr(tensor, name, _joined([getattr(one, own) for one in members], buffer))
    tensor._with_gemm_swizzled_scales = True


# --- GEMMs ------------------------------------------------------------------------------------------------------------


def _members(tensor: Any) -> list[Any]:
    return list(tensor) if isinstance(tensor, (list, tuple)) else list(tensor.split_into_quantized_tensors())


def _multiply(a: Any, transa: bool, b: Any, transb: bool, out: Any, alpha: Any, beta: Any, splits: bool) -> Any:
    """A GEMM for each pair of members, into each member of the output."""
    rights, lefts, outs = _members(a), _members(b), _members(out)
    alphas, betas = (values.detach().reshape(-1).tolist() for values in (alpha, beta))
    for i, (right, left, result) in enumerate(zip(rights, lefts, outs)):
        times, keeps = alphas[i % len(alphas)], betas[i % len(betas)]
        if result.numel():
            generic_gemm(
                right, transa, left, transb, result, None, result.dtype, None, None, False, None, False, None, 0,
                keeps != 0, splits, alpha=times, beta=keeps,
            )  # fmt: skip
    return out


def _add_biases(out: Any, bias: Any, scale: Any) -> None:
    """A kernel of its own adds biases to products that are rounded already."""
    rows, outs, biases = out.logical_shape[0], _members(out), _members(bias)
    if len(biases) != len(outs) or any(one.dtype != outs[0].dtype for one in biases):
        raise RuntimeError(f"bias must be {len(outs)} tensors of {outs[0].dtype}, as the output is")
    if scale is not None and (scale.dtype != torch.float32 or scale.shape != (rows,)):
        raise RuntimeError(f"bias_scale must be float32 of shape ({rows},), not {scale.dtype} of {tuple(scale.shape)}")
    values = out.rowwise_data.detach().view(rows, -1)
    starts = [0, *itertools.accumulate(one.shape[0] for one in outs)]
    made = operators().add_group_bias(
        values, torch.stack([one.detach().reshape(-1) for one in biases]), starts,
        scales=None if scale is None else scale.detach(), threads=threads(),
    )  # fmt: skip
    values.copy_(as_tensor(made))


def te_general_grouped_gemm_for_grouped_tensor(
    A: Any, transa: bool, B: Any, transb: bool, D: Any, bias: Any, bias_scale: Any, alpha: Any, beta: Any,
    workspace_setup: Any, workspace_cublas: Any, use_split_accumulator: bool, math_sm_count: int,
) -> Any:  # fmt: skip
    """A and B are grouped tensors, and so is the output; A may be a list."""
    if bias_scale is not None and bias is None:
        raise RuntimeError("bias_scale needs a bias")
    _multiply(A, transa, B, transb, D, alpha, beta, use_split_accumulator)
    if bias is not None:
        _add_biases(D, bias, bias_scale)
    return D


te_general_grouped_gemm_for_discrete_in = te_general_grouped_gemm_for_grouped_tensor


def te_general_grouped_gemm_for_discrete_out(
    A: Any, transa: bool, B: Any, transb: bool, D: Any, bias: Any, bias_scale: Any, alpha: Any, beta: Any,
    workspace_setup: Any, workspace_cublas: Any, use_split_accumulator: bool, math_sm_count: int,
) -> Any:  # fmt: skip
    """A and B are grouped tensors, and the output is a list of tensors."""
    if bias is not None:
        raise RuntimeError("Bias is not supported for discrete output grouped GEMM.")
    return _multiply(A, transa, B, transb, D, alpha, beta, use_split_accumulator)
