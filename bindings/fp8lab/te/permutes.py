# SPDX-License-Identifier: Apache-2.0
"""Rows that are dealt out to experts and summed up again."""

from __future__ import annotations

from typing import Any

import torch

from fp8lab.te.operators import as_tensor, operators
from fp8lab.te.quantize import threads

EXPORTED = ("moe_permute_bwd", "moe_permute_fwd", "moe_unpermute_bwd", "moe_unpermute_fwd")
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
