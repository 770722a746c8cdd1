# SPDX-License-Identifier: Apache-2.0
"""The autograd function over ``Fp8State``, and the module of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._arrays import Array, check_bool, check_int, kind_of
from fp8lab._delayed import Delayed
from fp8lab._linear import _as_linear_recipe
from fp8lab._state import Fp8State, LinearCall, RecipeLike, _as_delayed, linear_bias_gradient

__all__ = ["DTYPES", "OBSERVERS", "Linear", "as_tensor", "check_tensor", "linear"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
#: Who is told of every call of a state: has ``saw_forward(state, call)`` and ``sees_backward(state, call, dy, bits)``.
OBSERVERS: list[Any] = []


def check_tensor(x: Any, argument: str) -> torch.Tensor:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{argument} must be a torch tensor, not {kind_of(x)}")
    if x.device.type != "cpu":
        raise TypeError(f"{argument} must be on the CPU, not on {x.device}")
    if x.dtype not in DTYPES:
        raise TypeError(f"{argument} must be float32, float16 or bfloat16, not {str(x.dtype).removeprefix('torch.')}")
    return x


def as_tensor(array: Array | None) -> torch.Tensor | None:
    """A tensor that shares the array's memory."""
    if array is None:
        return None
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class _LinearFunction(torch.autograd.Function):
    """y of a call of an Fp8State, whose backward is that of the state."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        w: torch.Tensor,
        bias: torch.Tensor | None,
        state: Fp8State,
        layer: int,
        options: dict[str, Any],
    ) -> torch.Tensor:
        ctx.generator, ctx.threads = options.pop("generator"), options["threads"]
        call = state.forward(layer, x.reshape(-1, x.shape[-1]), w, bias, **options)
        ctx.state, ctx.call, ctx.shape = state, call, x.shape
        for observer in OBSERVERS:
            observer.saw_forward(state, call, bias)
        result = as_tensor(call.y)
        assert result is not None
        return result.view(*x.shape[:-1], w.shape[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        call: LinearCall = ctx.call
        gradient = dy.reshape(-1, dy.shape[-1]).contiguous()
        wants_dx, wants_dw, wants_db = ctx.needs_input_grad[:3]
        dx = dw = None
        if wants_dx or wants_dw:
            bits = None
            if call.wants_random_bits:
                bits = torch.randint(0, 256, (gradient.numel(),), dtype=torch.uint8, generator=ctx.generator).numpy()
            for observer in OBSERVERS:
                observer.sees_backward(ctx.state, call, gradient, bits)
            dx, dw = ctx.state.backward(call, gradient, dx=wants_dx, dw=wants_dw, random_bits=bits, threads=ctx.threads)
        db = torch.from_numpy(linear_bias_gradient(gradient)) if wants_db else None
        input_grad = as_tensor(dx)
        return None if input_grad is None else input_grad.view(ctx.shape), as_tensor(dw), db, None, None, None


def linear(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    recipe: RecipeLike | None = None,
    delayed: Delayed | None = None,
    state: Fp8State | None = None,
    layer: int = 0,
    is_first_microbatch: bool | None = None,
    training: bool = True,
    recompute: str = "none",
    generator: torch.Generator | None = None,
    threads: int = 1,
) -> torch.Tensor:
    """``torch.nn.functional.linear`` as a recipe's system computes it, with gradients: an autograd function on CPU
    tensors.

    Parameters
    ----------
    x : Tensor of float32, float16 or bfloat16, (..., in)
    w : Tensor of the same types, (out, in)
    bias : Tensor of the same types, (out,), optional
    recipe : str or LinearRecipe, optional
        One of ``fp8lab.linear_recipes()``. With a state that has a region open it is left out: the layer runs as that
        says.
    delayed : Delayed, optional
        For a recipe of delayed scaling.
    state : Fp8State, optional
        Keeps histories, scales and cached weights between calls. Left out, each call begins anew, and delayed scaling
        has a scale of 1, as in its first iteration.
    layer : int
        Which of the state's layers it is.
    is_first_microbatch, training, recompute
        As for ``Fp8State.forward``; torch's grad mode is the state's.
    generator : torch.Generator, optional
        For dy that is rounded stochastically: a byte for each of its elements comes from ``torch.randint``.
    threads : int
        The result does not depend on it.

    Returns
    -------
    Tensor, (..., out)
        Of the recipe's output. Gradients are those of ``Fp8State.backward``, rounded to the tensors' own types by
        torch, nearest even; the bias's is ``fp8lab.linear_bias_gradient``.

    Raises
    ------
    TypeError, ValueError
        As ``Fp8State.forward``, for tensors on other devices, and for a recipe that is missing or not wanted.
    """
    check_tensor(x, "x"), check_tensor(w, "w")
    if x.ndim < 1:
        raise ValueError("x must have at least one dimension")
    if bias is not None:
        check_tensor(bias, "bias")
    if state is None:
        state = Fp8State(check_int(layer, "layer", 0, 2**20) + 1)
    elif not isinstance(state, Fp8State):
        raise TypeError(f"state must be an Fp8State, not {kind_of(state)}")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, not {kind_of(generator)}")
    tensors = [one for one in (x, w, bias) if one is not None]
    options = {
        "is_first_microbatch": is_first_microbatch, "training": training, "recompute": recompute,
        "generator": generator, "threads": threads, "requires_grad": any(one.requires_grad for one in tensors),
    }  # fmt: skip
    before, state.grad_enabled = state.grad_enabled, torch.is_grad_enabled()
    try:
        if state.regions:
            if recipe is not None:
                raise ValueError("recipe must be left out inside of a region of the state")
            result: torch.Tensor = _LinearFunction.apply(x, w, bias, state, layer, options)
            return result
        if recipe is None:
            raise ValueError("recipe must be given outside of the state's regions")
        with state.autocast(recipe, delayed=delayed):
            result = _LinearFunction.apply(x, w, bias, state, layer, options)
        return result
    finally:
        state.grad_enabled = before


class Linear(torch.nn.Module):
    """``torch.nn.Linear`` as a recipe's system computes it. Its FP8 state is ``state``, its layer there ``layer``.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    recipe : str or LinearRecipe
        Used where the state has no region open.
    delayed : Delayed, optional
        For a recipe of delayed scaling; Transformer Engine's defaults where left out.
    state : Fp8State, optional
        Which layers share; left out, the layer has one of its own. It is no part of ``state_dict()``:
        ``state.arrays()`` is.
    layer : int
        Which of the state's layers it is.
    dtype : torch.dtype
        Of the parameters.
    threads : int
        The result does not depend on it.

    Weights are drawn as Transformer Engine draws them, from a normal distribution of standard deviation 0.023, by
    torch's generator; biases are 0.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        recipe: RecipeLike,
        delayed: Delayed | None = None,
        state: Fp8State | None = None,
        layer: int = 0,
        dtype: torch.dtype = torch.float32,
        threads: int = 1,
    ) -> None:
        super().__init__()
        if dtype not in DTYPES:
            raise TypeError(f"dtype must be torch.float32, torch.float16 or torch.bfloat16, not {dtype}")
        self.in_features = check_int(in_features, "in_features", 1, 2**31 - 1)
        self.out_features = check_int(out_features, "out_features", 1, 2**31 - 1)
        self.recipe, self.threads = _as_linear_recipe(recipe), threads
        self.delayed = _as_delayed(delayed, self.recipe)
        if state is not None and not isinstance(state, Fp8State):
            raise TypeError(f"state must be an Fp8State, not {kind_of(state)}")
        self.state = Fp8State() if state is None else state
        self.layer = self.state._layer(layer)
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, dtype=dtype).normal_(0, 0.023))
        self.bias = torch.nn.Parameter(torch.zeros(out_features, dtype=dtype)) if check_bool(bias, "bias") else None

    def forward(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        """``linear`` of x; ``options`` are its is_first_microbatch, recompute and generator."""
        recipe = None if self.state.regions else self.recipe
        return linear(
            x, self.weight, self.bias, recipe=recipe, delayed=self.delayed, state=self.state, layer=self.layer,
            training=self.training, threads=self.threads, **options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """What torch prints of it."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
