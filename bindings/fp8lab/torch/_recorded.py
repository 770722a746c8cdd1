# SPDX-License-Identifier: Apache-2.0
"""The inputs of a model's linear layers, for ``fp8lab.check``: ``record_activations``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._arrays import check_int, kind_of

__all__ = ["record_activations"]


def _recorder(name: str, rows: int, inputs: dict[str, Any]) -> Callable[[Any, tuple[Any, ...]], None]:
    def record(module: Any, given: tuple[Any, ...]) -> None:
        held = inputs.get(name)
        missing = rows - (0 if held is None else len(held))
        if missing <= 0 or not given or not isinstance(given[0], torch.Tensor):
            return
        x = given[0].detach()
        some = x.reshape(-1, x.shape[-1])[:missing].cpu().clone()
        inputs[name] = some if held is None else torch.cat([held, some.to(held.dtype)])

    return record


def record_activations(model: Any, *, rows: int = 256) -> contextlib.AbstractContextManager[dict[str, Any]]:
    """Record the inputs of each ``torch.nn.Linear`` of a model while it runs, for ``fp8lab.check``.

    >>> import torch, fp8lab, fp8lab.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    >>> with fp8lab.torch.record_activations(model) as inputs:
    ...     _ = model(torch.randn(32, 64))
    >>> document = fp8lab.check(model, activations=inputs)

    Parameters
    ----------
    model : torch.nn.Module
    rows : int
        Rows of each layer's inputs that are kept: the first ones, of all calls together.

    Returns
    -------
    context manager
        Gives a dict, which maps the names of layers to tensors (rows, in features), on the CPU and of the inputs' type.
        Layers that did not run are not in it.

    Raises
    ------
    TypeError, ValueError
        For what is no module, a number of rows below 1, and a model without linear layers.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)}")
    check_int(rows, "rows", 1, 2**31 - 1)
    layers = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    if not layers:
        raise ValueError("model has no torch.nn.Linear, whose inputs are recorded")

    @contextlib.contextmanager
    def recording() -> Iterator[dict[str, Any]]:
        inputs: dict[str, Any] = {}
        hooks = [module.register_forward_pre_hook(_recorder(name, rows, inputs)) for name, module in layers.items()]
        try:
            yield inputs
        finally:
            for hook in hooks:
                hook.remove()

    return recording()
