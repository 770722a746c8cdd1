# SPDX-License-Identifier: Apache-2.0
"""The scaled softmaxes of attention that PyTorch code computes."""

from __future__ import annotations

from typing import Any

import torch

from fp8lab.te.operators import as_tensor, kernel_options, operators, options

EXPORTED = (
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
