# SPDX-License-Identifier: Apache-2.0
"""The layer that ``convert`` makes of a linear module, and the region around a model's forward."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._delayed import Delayed
from fp8lab._linear import LinearRecipe
from fp8lab._linear import linear as _array_linear
from fp8lab._scaling import Quantized
from fp8lab._state import Fp8State
from fp8lab.torch._linear import as_tensor, check_tensor, linear, name_of
from fp8lab.torch._uncompiled import uncompiled

__all__ = ["FIELDS", "ConvertedLinear", "Region", "class_of", "is_delayed", "runs_forward"]

#: What a converted module has beside a torch.nn.Linear.
FIELDS = ("recipe", "delayed", "state", "layer", "threads", "codes")


class ConvertedLinear(torch.nn.Linear):
    """A ``torch.nn.Linear`` that ``convert`` took over. Parameters, hooks and names are those that it had.

    Its result has the type that the module would have without the conversion: that of the recipe's output, bfloat16 by
    most, is then converted to it. Under ``torch.autocast`` inputs, weights and biases are first rounded to autocast's
    type.
    """

    recipe: LinearRecipe
    delayed: Delayed
    state: Fp8State
    layer: int
    threads: int | None
    codes: Quantized | None

    def _weight(self) -> torch.Tensor:
        """(out, in)."""
        return self.weight

    def _sizes(self) -> tuple[int, int]:
        return self.in_features, self.out_features

    @uncompiled
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """``fp8lab.torch.linear`` of the input."""
        x, bias = check_tensor(input, "input"), self.bias
        self.state._claim(self.layer, self)  # a copy has a copy of the state, which knows it from here on
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.get_autocast_dtype("cpu"))
        if self.codes is not None:
            return self._multiply_codes(x)
        w = self._weight()
        if torch.is_autocast_enabled("cpu"):
            w, bias = w.to(x.dtype), None if bias is None else bias.to(x.dtype)
        if torch._C._current_graph_task_id() != -1 and is_delayed(self.recipe):
            raise RuntimeError(
                "a forward within a backward, as activation checkpointing runs it, would cast with other scales and "
                "count amaxes twice under delayed scaling: call fp8lab.torch.linear with recompute, or take a recipe "
                "without delayed scaling"
            )
        y = linear(
            x, w, bias, recipe=None if self.state.regions else self.recipe, delayed=self.delayed, state=self.state,
            layer=self.layer, training=self.training, threads=self.threads,
        )  # fmt: skip
        return y.to(x.dtype)

    def _multiply_codes(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a layer with an FP8 checkpoint's codes has no gradients: run it under torch.no_grad() or "
                "torch.inference_mode()"
            )
        assert self.codes is not None
        bias = None if self.bias is None else self.bias.detach()
        y = _array_linear(
            x.reshape(-1, x.shape[-1]), self.codes, bias, recipe=self.recipe, threads=self.threads
        )  # fmt: skip
        result = as_tensor(y)
        assert result is not None
        return result.view(*x.shape[:-1], self.codes.shape[0]).to(x.dtype)

    def extra_repr(self) -> str:
        """What torch prints of it."""
        inputs, outputs = self._sizes()
        source = ", of an FP8 checkpoint's codes" if self.codes is not None else ""
        sizes = f"in_features={inputs}, out_features={outputs}"
        return f"{sizes}, bias={self.bias is not None}, recipe={name_of(self.recipe)}, layer={self.layer}{source}"


class _ConvertedConv1D(ConvertedLinear):
    """The same of a Hugging Face Conv1D, whose weight is (in, out)."""

    def _weight(self) -> torch.Tensor:
        return self.weight.t()

    def _sizes(self) -> tuple[int, int]:
        return int(self.nx), int(self.nf)


_CLASSES: dict[tuple[type, bool], type] = {}


def class_of(kind: type, *, is_conv1d: bool) -> type:
    """The class that modules of ``kind`` get: what ``kind`` has beside its forward stays."""
    if (kind, is_conv1d) not in _CLASSES:
        base = _ConvertedConv1D if is_conv1d else ConvertedLinear
        made = base if kind is torch.nn.Linear else type(kind.__name__, (base, kind), {"__module__": kind.__module__})
        _CLASSES[kind, is_conv1d] = made
    return _CLASSES[kind, is_conv1d]


def is_delayed(recipe: LinearRecipe) -> bool:
    """Whether a cast takes the scale that it is given, which is that of a history."""
    casts = (cast for gemm in (recipe.fprop, recipe.dgrad, recipe.wgrad) for cast in (gemm.a, gemm.b))
    return any(not isinstance(cast, str) and cast.quotient == "given_scale" for cast in casts)


class Region:
    """The autocast region around each forward of a converted model: all layers of a step end it together."""

    def __init__(self, state: Fp8State, recipe: LinearRecipe, delayed: Delayed) -> None:
        self.state, self.recipe, self.delayed = state, recipe, delayed
        self.entered: list[bool] = []

    @uncompiled
    def enter(self, _module: Any, _args: Any) -> None:
        """Before the forward; inside of a region of the user's, the layers run as that says."""
        is_outer = self.state.regions == 0
        if is_outer:
            self.state.enter_autocast(self.recipe, delayed=self.delayed)
        self.entered.append(is_outer)

    @uncompiled
    def leave(self, _module: Any, _args: Any, _result: Any) -> None:
        """After it, also where it raised."""
        if not self.entered or not self.entered.pop():
            return
        before, self.state.grad_enabled = self.state.grad_enabled, torch.is_grad_enabled()
        try:
            self.state.exit_autocast()
        finally:
            self.state.grad_enabled = before


def runs_forward(_module: Any, _args: Any) -> None:
    """A hook that does nothing: torch's fused encoder layer, which reads weights past their modules, runs without
    hooks only."""
