# SPDX-License-Identifier: Apache-2.0
"""Functions of the extension and of Triton kernels as earlier releases have them, with other arguments."""

from __future__ import annotations

from typing import Any

import torch

import fp8lab
from fp8lab.te import permutes, ropes
from fp8lab.te.quantize import quantize
from fp8lab.te.tensors import matrix

EXPORTED = (
    "columnwise_swizzle",
    "fused_multi_quantize",
    "fused_rope_backward",
    "fused_rope_forward",
    "fused_rope_thd_backward",
    "fused_rope_thd_forward",
    "permute_with_mask_map",
    "rowwise_swizzle",
    "unpermute_with_mask_map",
    "unpermute_with_mask_map_bwd_with_merging_probs",
)
__all__ = [*EXPORTED]


def fused_multi_quantize(input_list: Any, output_list: Any, quantizer_list: Any, otype: Any) -> list[Any]:
    """Each tensor by its quantizer, as a new tensor or in its output."""
    outputs = [None] * len(input_list) if output_list is None else output_list
    return [quantize(*one) for one in zip(input_list, quantizer_list, outputs)]


# --- scales of MXFP8, in a new tensor ---------------------------------------------------------------------------------


def rowwise_swizzle(input: Any, scale_inv: Any) -> Any:
    """The scales of rows of 32 elements as Blackwell's tensor cores read them."""
    rows, columns = matrix(input).shape
    return _swizzled(scale_inv, scale_inv.detach()[:rows, : columns // 32])


def columnwise_swizzle(input: Any, scale_inv: Any) -> Any:
    """The same of columns."""
    rows, columns = matrix(input).shape
    return _swizzled(scale_inv, scale_inv.detach()[: rows // 32, :columns].t())


def _swizzled(scales: Any, across: Any) -> Any:
    made = torch.from_numpy(fp8lab.swizzle_scales(across.contiguous().numpy())).view(scales.shape)
    made.is_swizzled = True
    return made


# --- rope -------------------------------------------------------------------------------------------------------------


def fused_rope_forward(input: Any, freqs: Any, transpose_output_memory: bool) -> Any:
    """Of (sequence, batch, heads, columns); with the flag the batch comes first in memory."""
    return _in_memory(ropes.fused_rope_forward(input, freqs, None, "sbhd", False, None, 1, 0), transpose_output_memory)


def _in_memory(result: Any, is_batch_first: bool) -> Any:
    return result.transpose(0, 1).contiguous().transpose(0, 1) if is_batch_first else result


def fused_rope_backward(output_grads: Any, freqs: Any, transpose_output_memory: bool) -> Any:
    """Its gradient."""
    made = ropes.fused_rope_backward(output_grads, freqs, None, "sbhd", False, None, 1, 0)
    return _in_memory(made, transpose_output_memory)


def fused_rope_thd_forward(input: Any, cu_seqlens: Any, freqs: Any, cp_size: int, cp_rank: int) -> Any:
    """Of sequences that lie one after the other."""
    return ropes.fused_rope_forward(input, freqs, None, "thd", False, cu_seqlens, cp_size, cp_rank)


def fused_rope_thd_backward(output_grads: Any, cu_seqlens: Any, freqs: Any, cp_size: int, cp_rank: int) -> Any:
    """Its gradient."""
    return ropes.fused_rope_backward(output_grads, freqs, None, "thd", False, cu_seqlens, cp_size, cp_rank)


# --- rows that go to experts by a mask, without offsets of padding ----------------------------------------------------


def permute_with_mask_map(
    inp: Any, row_id_map: Any, probs: Any, scale: Any, num_tokens: int, num_experts: int, num_out_tokens: int,
    hidden_size: int, scale_hidden_dim: int | None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The rows in the order of experts, their scales and their probabilities."""
    return permutes.permute_with_mask_map(
        inp, row_id_map, probs, scale, None, num_tokens, num_experts, num_out_tokens, hidden_size, scale_hidden_dim
    )


def unpermute_with_mask_map(
    inp: Any, row_id_map: Any, merging_probs: Any, permuted_probs: Any, num_tokens: int, num_experts: int,
    hidden_size: int,
) -> tuple[Any, Any]:  # fmt: skip
    """The sum of each token's rows, and the probabilities of the rows."""
    return permutes.unpermute_with_mask_map(
        inp, row_id_map, merging_probs, permuted_probs, None, num_tokens, num_experts, hidden_size
    )


def unpermute_with_mask_map_bwd_with_merging_probs(
    fwd_output_grad: Any, row_id_map: Any, fwd_input: Any, merging_probs: Any, num_tokens: int, num_experts: int,
    num_out_tokens: int, hidden_size: int,
) -> tuple[Any, Any]:  # fmt: skip
    """The gradients of the rows and of the probabilities."""
    return permutes.unpermute_with_mask_map_bwd_with_merging_probs(
        fwd_output_grad,
        row_id_map,
        fwd_input,
        merging_probs,
        None,
        num_tokens,
        num_experts,
        num_out_tokens,
        hidden_size,
    )
