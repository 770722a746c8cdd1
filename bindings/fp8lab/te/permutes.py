# SPDX-License-Identifier: Apache-2.0
"""Rows that are dealt out to experts and summed up again."""

from __future__ import annotations

from typing import Any

import torch

from fp8lab.te.operators import as_tensor, operators
from fp8lab.te.quantize import threads

EXPORTED = (
    "make_chunk_sort_map",
    "make_row_id_map",
    "moe_permute_bwd",
    "moe_permute_fwd",
    "moe_unpermute_bwd",
    "moe_unpermute_fwd",
    "permute_with_mask_map",
    "sort_chunks_by_map",
    "unpermute_with_mask_map",
    "unpermute_with_mask_map_bwd_with_merging_probs",
)
__all__ = [*EXPORTED]


def moe_permute_fwd(
    input: Any, dtype: Any, indices: Any, num_out_tokens: int, workspace: Any, max_expanded_token_num: int
) -> tuple[Any, Any, Any]:
    """The rows in the order of experts, and where each token's rows are."""
    kept = int(num_out_tokens) or None
    rows = operators().moe_permutation_map(indices.detach().contiguous(), kept=kept)
    made = operators().moe_permute(input.detach().contiguous(), rows, threads=threads())
    return as_tensor(made), torch.from_numpy(rows).reshape(-1), workspace


def _map(row_id_map: Any, num_tokens: int) -> Any:
    return row_id_map.detach().view(-1, int(num_tokens)).contiguous()


def moe_unpermute_fwd(input: Any, dtype: Any, row_id_map: Any, prob: Any, num_tokens: int, topK: int) -> Any:
    """The sum of each token's rows, times its probabilities where they are given."""
    weights = prob.detach().contiguous() if prob.numel() else None
    made = operators().moe_unpermute(
        input.detach().contiguous(), _map(row_id_map, num_tokens), weights, threads=threads()
    )
    return as_tensor(made)


moe_permute_bwd = moe_unpermute_fwd


def moe_unpermute_bwd(input_bwd: Any, input_fwd: Any, dtype: Any, row_id_map: Any, prob: Any) -> tuple[Any, Any]:
    """The gradients of the rows and of the probabilities.

    Without probabilities the extension returns a column of memory that nobody has written; here it is zeros.
    """
    gradient = input_bwd.detach().contiguous()
    rows = _map(row_id_map, gradient.shape[0])
    if prob.numel() == 0:
        unwritten = torch.zeros((row_id_map.shape[0], 1), dtype=torch.float32)
        return as_tensor(operators().moe_permute(gradient, rows, threads=threads())), unwritten
    made, of_prob = operators().moe_unpermute_backward(
        gradient, input_fwd.detach().contiguous(), rows, prob.detach().contiguous(), threads=threads()
    )
    return as_tensor(made), as_tensor(of_prob)


def _detached(tensor: Any) -> Any:
    return None if tensor is None else tensor.detach().contiguous()


def make_row_id_map(routing_map: Any, num_tokens: int, num_experts: int) -> Any:
    """Where each token's rows are, of a mask of tokens and experts."""
    return as_tensor(operators().moe_mask_map(routing_map.detach().to(torch.int32)))


def permute_with_mask_map(
    inp: Any,
    row_id_map: Any,
    probs: Any,
    scale: Any,
    pad_offsets: Any,
    num_tokens: int,
    num_experts: int,
    num_out_tokens: int,
    hidden_size: int,
    scale_hidden_dim: int | None,
) -> tuple[Any, Any, Any]:
    """The rows in the order of experts, their scales and their probabilities.

    Rows to which no token goes are zeros; a GPU leaves them unwritten where there are no offsets.
    """
    rows, weights = _detached(row_id_map), _detached(probs)
    given = {"rows": int(num_out_tokens), "pad_offsets": _detached(pad_offsets)}
    made = operators().moe_mask_permute(_detached(inp), rows, probabilities=weights, threads=threads(), **given)
    of_scale = of_probs = None
    if scale is not None:
        of_scale = as_tensor(operators().moe_mask_permute(_detached(scale), rows, threads=threads(), **given))
    if weights is not None:
        of_probs = as_tensor(operators().moe_mask_permute_probabilities(weights, rows, **given))
    return as_tensor(made), of_scale, of_probs


def unpermute_with_mask_map(
    inp: Any,
    row_id_map: Any,
    merging_probs: Any,
    permuted_probs: Any,
    pad_offsets: Any,
    num_tokens: int,
    num_experts: int,
    hidden_size: int,
) -> tuple[Any, Any]:
    """The sum of each token's rows, times its probabilities where they are given, and the probabilities of the rows."""
    rows, offsets = _detached(row_id_map), _detached(pad_offsets)
    made = operators().moe_mask_unpermute(
        _detached(inp), rows, _detached(merging_probs), pad_offsets=offsets, threads=threads()
    )
    of_probs = None
    if permuted_probs is not None:
        weights = _detached(permuted_probs)
        of_probs = as_tensor(operators().moe_mask_unpermute_probabilities(weights, rows, pad_offsets=offsets))
    return as_tensor(made), of_probs


def unpermute_with_mask_map_bwd_with_merging_probs(
    fwd_output_grad: Any,
    row_id_map: Any,
    fwd_input: Any,
    merging_probs: Any,
    pad_offsets: Any,
    num_tokens: int,
    num_experts: int,
    num_out_tokens: int,
    hidden_size: int,
) -> tuple[Any, Any]:
    """The gradients of the rows and of the probabilities. Rows to which no token went are zeros."""
    made, of_probs = operators().moe_mask_unpermute_backward(
        _detached(fwd_output_grad),
        _detached(fwd_input),
        _detached(row_id_map),
        _detached(merging_probs),
        pad_offsets=_detached(pad_offsets),
        threads=threads(),
    )
    return as_tensor(made), as_tensor(of_probs)


def make_chunk_sort_map(split_sizes: Any, sorted_indices: Any, num_tokens: int, num_splits: int) -> Any:
    """Where each row goes when chunks are sorted by their indices."""
    return as_tensor(operators().moe_chunk_map(split_sizes.detach(), sorted_indices.detach(), tokens=int(num_tokens)))


def sort_chunks_by_map(
    inp: Any, row_id_map: Any, probs: Any, num_tokens: int, hidden_size: int, is_forward: bool
) -> tuple[Any, Any]:
    """The rows and their probabilities in the order of the map, or back."""
    rows = _detached(row_id_map)

    def sort(x: Any) -> Any:
        return as_tensor(operators().moe_sort_chunks(x, rows, back=not is_forward, threads=threads()))

    of_probs = None if probs is None else sort(_detached(probs).view(-1, 1)).view(-1)
    return sort(_detached(inp)), of_probs
