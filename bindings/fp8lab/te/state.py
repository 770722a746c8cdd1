# SPDX-License-Identifier: Apache-2.0
"""The state of delayed scaling, and amaxes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import fp8lab
from fp8lab.te.quantize import threads
from fp8lab.te.tensors import format_name, matrix

__all__ = ["compute_amax", "fused_amax_and_scale_update_after_reduction"]
EXPORTED = tuple(__all__)

_FORMATS = {"e4m3": "e4m3", "e5m2": "hybrid"}


def fused_amax_and_scale_update_after_reduction(
    amax_reduction_buffer: Any, amax_histories: Any, scales: Any, amax_compute_algo: str, fp8_dtype: Any, margin: float
) -> None:
    """The end of a step: each tensor's next scale, and its window moves on.

    A reduced amax that is not zero takes the place of the running step's own.
    """
    if float(margin) != int(margin):
        raise ValueError(f"margin must be a whole number, not {margin}")
    reduced = amax_reduction_buffer.detach().reshape(-1).numpy()
    name = format_name(fp8_dtype)
    first = 0
    for history, scale in zip(amax_histories, scales):
        count = scale.numel()
        _update(history.detach(), scale.detach().view(-1), reduced[first : first + count], amax_compute_algo,
                _FORMATS[name], int(margin))  # fmt: skip
        first += count


def _update(window: Any, scales: Any, reduced: Any, algo: str, fp8_format: str, margin: int) -> None:
    """Writes as a kernel does: also to tensors that were made in PyTorch's inference mode."""
    recipe = _recipe(margin, fp8_format, window.shape[0], algo)
    for column in range(scales.numel()):
        state = fp8lab.AmaxHistory(recipe, backward=fp8_format == "hybrid")
        amaxes = np.ascontiguousarray(window[:, column].numpy())
        if reduced[column] != 0:
            amaxes[0] = reduced[column]
        state.amaxes, state.scale = amaxes, float(scales[column])
        state.update_scale()
        window.numpy()[:, column] = state.amaxes
        scales.numpy()[column] = state.scale


@functools.cache
def _recipe(margin: int, fp8_format: Any, length: int, algo: Any) -> Any:
    return fp8lab.Delayed(margin=margin, fp8_format=fp8_format, amax_history_len=length, amax_compute_algo=algo)


def compute_amax(input: Any, amax: Any) -> None:
    """The largest magnitude of a tensor, NaN left out."""
    amax.detach().view(-1).numpy()[0] = amax_of(input)


def amax_of(tensor: Any) -> float:
    """The same as a number."""
    if tensor.numel() == 0:
        return 0.0
    return fp8lab.quantize(matrix(tensor), "te_current_scaling", threads=threads()).amax
