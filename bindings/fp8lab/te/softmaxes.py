# SPDX-License-Identifier: Apache-2.0
"""The scaled softmaxes of attention that PyTorch code computes, and the cross entropy of Triton's kernels."""

from __future__ import annotations

from typing import Any

import torch

from fp8lab.te._functions import refuse
from fp8lab.te.operators import as_tensor, kernel_options, operators, options
from fp8lab.te.quantize import threads

EXPORTED = (
    "cross_entropy_backward",
    "cross_entropy_forward",
    "scaled_aligned_causal_masked_softmax_backward",
    "scaled_aligned_causal_masked_softmax_forward",
    "scaled_masked_softmax_backward",
    "scaled_masked_softmax_forward",
    "scaled_softmax_backward",
    "scaled_softmax_forward",
    "scaled_upper_triang_masked_softmax_backward",
    "scaled_upper_triang_masked_softmax_forward",
)
__all__ = [*EXPORTED]


def _options(scores: Any) -> dict[str, Any]:
    """The device's functions where its kernels take such scores."""
    return options() if scores.dtype == torch.float32 or scores.shape[-1] > 16384 else kernel_options()


def _forward(inputs: Any, scale: float, mask: Any = None, causal: str = "none") -> Any:
    given = inputs.detach().contiguous()
    mask = None if mask is None else mask.detach().contiguous()
    return as_tensor(operators().softmax(given, scale=float(scale), mask=mask, causal=causal, **_options(given)))


def _backward(output_grads: Any, softmax_results: Any, scale: float, causal: str = "none") -> Any:
    gradient, made = output_grads.detach().contiguous(), softmax_results.detach().contiguous()
    return as_tensor(operators().softmax_backward(gradient, made, scale=float(scale), causal=causal, **_options(made)))


def scaled_softmax_forward(input: Any, scale_factor: float) -> Any:
    return _forward(input, scale_factor)


def scaled_softmax_backward(output_grad: Any, softmax_results: Any, scale_factor: float) -> Any:
    return _backward(output_grad, softmax_results, scale_factor)


def scaled_masked_softmax_forward(input: Any, mask: Any, scale_factor: float) -> Any:
    return _forward(input, scale_factor, mask)


def scaled_masked_softmax_backward(output_grad: Any, softmax_results: Any, scale_factor: float) -> Any:
    return _backward(output_grad, softmax_results, scale_factor)


def scaled_upper_triang_masked_softmax_forward(input: Any, scale_factor: float) -> Any:
    return _forward(input, scale_factor, causal="upper_triangular")


def scaled_upper_triang_masked_softmax_backward(output_grads: Any, softmax_results: Any, scale_factor: float) -> Any:
    return _backward(output_grads, softmax_results, scale_factor, "upper_triangular")


def scaled_aligned_causal_masked_softmax_forward(input: Any, scale_factor: float) -> Any:
    return _forward(input, scale_factor, causal="aligned_causal")


def scaled_aligned_causal_masked_softmax_backward(output_grad: Any, softmax_results: Any, scale_factor: float) -> Any:
    return _backward(output_grad, softmax_results, scale_factor, "aligned_causal")


def cross_entropy_forward(
    _input: Any,
    target: Any,
    label_smoothing: float,
    reduce_loss: bool,
    dist_process_group: Any,
    ignore_idx: int,
    overwrite_input: bool,
) -> tuple[Any, ...]:
    """The loss of each token, or their mean, and what the backward pass needs of input, statistics and ranks."""
    ranks = 1 if dist_process_group is None else torch.distributed.get_world_size(dist_process_group)
    if ranks != 1:
        refuse(
            f"parallel_cross_entropy of {ranks} ranks", "the kernel of one rank is modelled; gather the logits before"
        )
    given, targets = _input.detach().contiguous(), target.detach().contiguous()
    made = operators().cross_entropy(
        given, targets, label_smoothing=float(label_smoothing), ignore_index=int(ignore_idx), threads=threads()
    )
    loss, largest, total = (as_tensor(one) for one in made)
    counted = None
    result = loss.reshape(_input.shape[:2])
    if reduce_loss:
        counted = (targets != ignore_idx).sum(dtype=torch.int64).reshape(1).clamp_(min=1)
        result = loss.sum() / counted
    saved = _input if overwrite_input else given.clone()
    return result, saved, torch.stack((largest, total), dim=1), targets, counted, 0, 1


def cross_entropy_backward(
    saved_input: Any,
    stats: Any,
    target: Any,
    n_non_ignore: Any,
    grad_output: Any,
    label_smoothing: float,
    reduce_loss: bool,
    rank: int,
    world_size: int,
    ignore_idx: int,
) -> Any:
    """The gradient of the input, in the place of what was saved of it."""
    grads = grad_output.detach().float().reshape(-1)
    if reduce_loss:
        grads = (grads / n_non_ignore).expand(target.numel())
    largest, total = (one.contiguous() for one in stats.detach().unbind(dim=1))
    made = operators().cross_entropy_backward(
        grads.contiguous(), saved_input.detach(), target.detach(), largest, total,
        label_smoothing=float(label_smoothing), ignore_index=int(ignore_idx), threads=threads(),
    )  # fmt: skip
    saved_input.detach().copy_(as_tensor(made))
    return saved_input
