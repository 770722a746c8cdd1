# SPDX-License-Identifier: Apache-2.0
"""The fused router of a mixture of experts, and its auxiliary loss."""

from __future__ import annotations

import math
import os
from typing import Any

import torch

from fp8lab.te._activation import active_device
from fp8lab.te.enums import NVTEQBHistogramMode, NVTERoutingMapFormat
from fp8lab.te.operators import as_tensor, kernel_options, operators, options, type_name

EXPORTED = (
    "fused_moe_aux_loss_bwd", "fused_moe_aux_loss_fwd", "fused_moe_aux_loss_fwd_graph_safe",
    "fused_score_for_moe_aux_loss_bwd", "fused_score_for_moe_aux_loss_fwd", "fused_topk_with_score_function_bwd",
    "fused_topk_with_score_function_fwd", "fused_topk_with_score_function_qb_fwd",
)  # fmt: skip
__all__ = [*EXPORTED]

_INDEX_TYPES = (torch.int16, torch.int32, torch.int64)


def _plain(tensor: Any) -> Any:
    return tensor.detach().contiguous()


def _radix_from() -> int:
    """The topk from which the radix selection serves."""
    return int(os.environ.get("NVTE_RADIX_TOPK_THRESHOLD", "16"))


def _check_tokens(logits: Any, topk: int, name: str = "logits") -> int:
    """The number of experts."""
    if logits.dim() < 1:
        raise ValueError(f"{name} must have at least one dimension")
    if logits.numel() == 0:
        raise ValueError(f"{name} must have tokens and experts, not shape {tuple(logits.shape)}")
    experts = int(logits.shape[-1])
    if not 0 < topk <= experts:
        raise ValueError(f"topk must be from 1 to the {experts} experts, not {topk}")
    return experts


def _is_bitmap(routing_map_format: Any) -> bool:
    if int(routing_map_format) not in (0, 1):
        raise ValueError(f"routing_map_format must be BYTEMAP (0) or BITMAP_U8 (1), not {routing_map_format}")
    return int(routing_map_format) == int(NVTERoutingMapFormat.BITMAP_U8)


def _check_indices(topk_indices: Any, shape: tuple[int, ...], topk: int, is_bitmap: bool) -> None:
    if is_bitmap:
        raise ValueError("topk_indices take the place of the routing map: routing_map_format must be BYTEMAP (0)")
    if topk_indices.dtype not in _INDEX_TYPES:
        raise TypeError(f"topk_indices must be int16, int32 or int64, not {topk_indices.dtype}")
    if tuple(topk_indices.shape) != (*shape[:-1], topk):
        raise ValueError(f"topk_indices must have shape {(*shape[:-1], topk)}, not {tuple(topk_indices.shape)}")
    if topk_indices.dtype == torch.int16 and shape[-1] > 2**15 - 1:
        raise ValueError(f"topk_indices of int16 are for up to 32767 experts, not {shape[-1]}")


def _routing(experts: Any, count: int, is_bitmap: bool, topk_indices: Any) -> Any:
    """The routing map, or the indices where they are wanted."""
    if topk_indices is None:
        return as_tensor(operators().moe_routing_map(experts, count, bits=is_bitmap))
    topk_indices.detach().copy_(as_tensor(experts))
    return topk_indices


def _score_options(score_function: str, use_pre_softmax: bool, scaling_factor: float | None) -> dict[str, Any]:
    """Softmax before the choice is for softmax alone; others do not read it."""
    return {
        "score": score_function,
        "softmax_first": bool(use_pre_softmax) if score_function == "softmax" else None,
        "scaling": 1.0 if scaling_factor is None else float(scaling_factor),
        **kernel_options(),
    }


def _bias(expert_bias: Any) -> Any:
    if expert_bias is None:
        return None
    if expert_bias.dtype != torch.float32:
        raise TypeError(f"expert_bias must be float32, not {expert_bias.dtype}")
    return _plain(expert_bias)


def fused_topk_with_score_function_fwd(
    logits: Any, topk: int, use_pre_softmax: bool, num_groups: int | None, group_topk: int | None,
    scaling_factor: float | None, score_function: str, expert_bias: Any, routing_map_format: Any = 0,
    topk_indices: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The probabilities of the experts that are chosen, the routing map, and what the gradient needs."""
    count = _check_tokens(logits, topk)
    is_bitmap = _is_bitmap(routing_map_format)
    if topk_indices is not None:
        _check_indices(topk_indices, tuple(logits.shape), topk, is_bitmap)
    grouped = group_topk is not None and group_topk > 0
    made = operators().moe_topk(
        _plain(logits), int(topk), bias=_bias(expert_bias), groups=num_groups if grouped else None,
        group_topk=group_topk if grouped else None, radix_from=_radix_from(),
        **_score_options(score_function, use_pre_softmax, scaling_factor),
    )  # fmt: skip
    routing = _routing(made.experts, count, is_bitmap, topk_indices)
    return as_tensor(made.probabilities), routing, as_tensor(made.saved)


def fused_topk_with_score_function_qb_fwd(
    logits: Any, topk: int, scaling_factor: float | None, expert_bias: Any, routing_map_format: Any,
    topk_indices: Any, histogram: Any, bin_bounds: Any, histogram_mode: Any, bin_bounds_validated: bool = False,
) -> tuple[Any, Any, Any, Any, Any]:  # fmt: skip
    """The same of sigmoids with a bias, which also counts the biases that experts would need."""
    count = _check_tokens(logits, topk)
    is_bitmap = _is_bitmap(routing_map_format)
    if topk == count:
        raise ValueError(f"topk must be below the {count} experts for quantile balancing, not {topk}")
    if int(histogram_mode) not in [int(one) for one in NVTEQBHistogramMode]:
        raise ValueError(f"histogram_mode must be TWO_KERNEL (0) or FUSED_ATOMIC (1), not {histogram_mode}")
    if bin_bounds.dtype != torch.float32 or tuple(bin_bounds.shape) != (2,):
        raise ValueError(
            f"bin_bounds must be float32 of shape (2,), not {bin_bounds.dtype} of {tuple(bin_bounds.shape)}"
        )
    lower, upper = (float(one) for one in bin_bounds.detach())
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):  # the extension's kind of error
        raise RuntimeError(f"bin_bounds must be finite with lower < upper, not {lower} and {upper}")
    if topk_indices is not None:
        _check_indices(topk_indices, tuple(logits.shape), topk, is_bitmap)
    made = operators().moe_topk(
        _plain(logits), int(topk), bias=_bias(expert_bias), cutoff=True, radix_from=_radix_from(),
        **_score_options("sigmoid", False, scaling_factor),
    )  # fmt: skip
    operators().moe_bias_histogram(made.saved, made.cutoff, histogram.detach(), lower=lower, upper=upper)
    routing = _routing(made.experts, count, is_bitmap, topk_indices)
    cutoff = as_tensor(made.cutoff).reshape(-1)
    return as_tensor(made.probabilities), routing, as_tensor(made.saved), cutoff, histogram


def fused_topk_with_score_function_bwd(
    routing_map: Any, intermediate_output: Any, grad_probs: Any, grad_logits: Any, topk: int, use_pre_softmax: bool,
    scaling_factor: float | None, score_function: str, use_dense_indices: bool = False, routing_map_format: Any = 0,
) -> None:  # fmt: skip
    """The gradient of the logits, written to ``grad_logits``."""
    _check_tokens(grad_probs, topk, "grad_probs")
    is_bitmap = _is_bitmap(routing_map_format)
    if use_dense_indices:
        _check_indices(routing_map, tuple(grad_probs.shape), topk, is_bitmap)
    made = operators().moe_topk_backward(
        _plain(grad_probs), _plain(intermediate_output), int(topk),
        **{"experts" if use_dense_indices else "routing": _plain(routing_map)},
        **_score_options(score_function, use_pre_softmax, scaling_factor),
    )  # fmt: skip
    grad_logits.detach().copy_(as_tensor(made))


def fused_score_for_moe_aux_loss_fwd(
    logits: Any, topk: int, score_function: str, routing_map_format: Any = 0
) -> tuple[Any, Any, Any]:
    """The scores of all experts in float32, the routing map that they give, and what the gradient needs."""
    count = _check_tokens(logits, topk)
    is_bitmap = _is_bitmap(routing_map_format)
    scores, experts, saved = operators().moe_scores(
        _plain(logits), int(topk), score=score_function, radix_from=_radix_from(), **kernel_options()
    )
    return as_tensor(scores), _routing(experts, count, is_bitmap, None), as_tensor(saved)


def fused_score_for_moe_aux_loss_bwd(
    intermediate_output: Any, grad_scores: Any, grad_logits: Any, topk: int, score_function: str
) -> None:
    """Its gradient, written to ``grad_logits``."""
    made = operators().moe_scores_backward(
        _plain(grad_scores), _plain(intermediate_output), score=score_function,
        out_dtype=type_name(grad_logits.dtype), **kernel_options(),
    )  # fmt: skip
    grad_logits.detach().copy_(as_tensor(made))


def fused_moe_aux_loss_fwd(
    probs: Any, tokens_per_expert: Any, total_num_tokens: int, num_experts: int, num_rows: int, num_cols: int,
    topk: int, coeff: float,
) -> tuple[Any, Any]:  # fmt: skip
    """The auxiliary loss in the type of the probabilities; its factor and its unrounded value."""
    loss, factor = operators().moe_aux_loss(
        _plain(probs).view(int(num_rows), int(num_cols)), _plain(tokens_per_expert), tokens=int(total_num_tokens),
        experts=int(num_experts), topk=int(topk), coefficient=float(coeff), sms=active_device().sms, **options(),
    )  # fmt: skip
    buffer = torch.tensor([float(factor), float(loss)], dtype=torch.float32)
    return torch.tensor(float(loss), dtype=probs.dtype), buffer


def fused_moe_aux_loss_fwd_graph_safe(
    probs: Any, tokens_per_expert: Any, total_num_tokens: Any, num_experts: int, num_rows: int, num_cols: int,
    topk: int, coeff: float,
) -> tuple[Any, Any]:  # fmt: skip
    """The same with the number of tokens in a tensor."""
    if total_num_tokens.numel() != 1 or total_num_tokens.dtype != torch.int64:
        raise TypeError(
            f"total_num_tokens must be one int64, not {total_num_tokens.numel()} of {total_num_tokens.dtype}"
        )
    return fused_moe_aux_loss_fwd(
        probs, tokens_per_expert, int(total_num_tokens), num_experts, num_rows, num_cols, topk, coeff
    )


def fused_moe_aux_loss_bwd(
    Const_buf: Any,
    tokens_per_expert: Any,
    num_rows: int,
    num_cols: int,
    grad_aux_loss: Any,  # noqa: N803
) -> Any:
    """Its gradient by the probabilities."""
    made = operators().moe_aux_loss_backward(
        float(grad_aux_loss), float(Const_buf.detach()[0]), _plain(tokens_per_expert), int(num_rows),
        out_dtype=type_name(grad_aux_loss.dtype),
    )  # fmt: skip
    return as_tensor(made)
