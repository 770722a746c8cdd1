# SPDX-License-Identifier: Apache-2.0
"""The autograd function over ``Fp8State``, and the module of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._arrays import Array, check_bool, check_int, check_threads, kind_of
from fp8lab._delayed import Delayed
from fp8lab._linear import LinearRecipe, _as_linear_recipe, linear_recipes
from fp8lab._shapes import shape_fits
from fp8lab._state import Fp8State, LinearCall, RecipeLike, _as_delayed, linear_bias_gradient
from fp8lab.literals import RecomputeName
from fp8lab.torch._uncompiled import uncompiled

__all__ = [
    "DTYPES",
    "OBSERVERS",
    "Linear",
    "as_tensor",
    "check_tensor",
    "linear",
    "load_history",
    "misfit",
    "name_of",
    "packed_history",
]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
#: Who is told of every call of a state: has ``saw_forward(state, call)`` and ``sees_backward(state, call, dy, bits)``.
OBSERVERS: list[Any] = []


_TOKENS = 1 << 12  # a number of rows that every rule takes: only the sizes of the weight are judged here


def name_of(recipe: LinearRecipe) -> str:
    """A recipe's name, for a reader."""
    return next((one.name for one in linear_recipes() if one.recipe == recipe), "a recipe of one's own")


def misfit(recipe: LinearRecipe, in_features: int, out_features: int) -> str | None:
    """Why a recipe's system does not take a weight of these sizes; None: it does."""
    for fit in shape_fits(recipe, _TOKENS, in_features, out_features):
        if not fit.fits and fit.dimension != "tokens":
            return f"the recipe does not take the shape: {fit}"
    return None


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
        ctx.generator = options.pop("generator")
        ctx.how = {"threads": options["threads"], "check_shapes": options["check_shapes"]}
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
            dx, dw = ctx.state.backward(call, gradient, dx=wants_dx, dw=wants_dw, random_bits=bits, **ctx.how)
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
    recompute: RecomputeName = "none",
    generator: torch.Generator | None = None,
    threads: int | None = None,
    check_shapes: bool = True,
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
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    check_shapes : bool
        As for ``fp8lab.linear``: False computes sizes that the recipe's system refuses.

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
        "generator": generator, "threads": threads, "check_shapes": check_bool(check_shapes, "check_shapes"),
        "requires_grad": any(one.requires_grad for one in tensors),
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
        Which layers share; left out, the layer has one of its own. ``state_dict()`` has the layer's history and scales
        of it as ``_extra_state``, a tensor of float32: (3, 2 + amax_history_len), of x, w and dy the scale, scale_inv
        and history, or (0,) while there are none.
    layer : int
        Which of the state's layers it is. Two modules that live have no layer in common.
    dtype : torch.dtype
        Of the parameters.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    check_shapes : bool
        Whether sizes that the recipe's system refuses are refused: those of the weight here, that of x in ``forward``.

    Raises
    ------
    TypeError, ValueError
        For sizes that the recipe does not take, and for a layer that another module has.

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
        threads: int | None = None,
        check_shapes: bool = True,
    ) -> None:
        super().__init__()
        if dtype not in DTYPES:
            raise TypeError(f"dtype must be torch.float32, torch.float16 or torch.bfloat16, not {dtype}")
        self.in_features = check_int(in_features, "in_features", 1, 2**31 - 1)
        self.out_features = check_int(out_features, "out_features", 1, 2**31 - 1)
        self._begin(recipe, delayed, state, layer, threads, check_shapes)
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, dtype=dtype).normal_(0, 0.023))
        self.bias = torch.nn.Parameter(torch.zeros(out_features, dtype=dtype)) if check_bool(bias, "bias") else None

    def _begin(
        self,
        recipe: RecipeLike,
        delayed: Delayed | None,
        state: Fp8State | None,
        layer: int,
        threads: int | None,
        check_shapes: bool,
    ) -> None:
        """All but the parameters."""
        self.recipe, self.threads = _as_linear_recipe(recipe), check_threads(threads)
        self.delayed = _as_delayed(delayed, self.recipe)
        if state is not None and not isinstance(state, Fp8State):
            raise TypeError(f"state must be an Fp8State, not {kind_of(state)}")
        self.check_shapes = check_bool(check_shapes, "check_shapes")
        if self.check_shapes:
            if reason := misfit(self.recipe, self.in_features, self.out_features):
                raise ValueError(f"{reason}; check_shapes=False makes the layer")
        self.state = Fp8State() if state is None else state
        self.layer = self.state._layer(layer)
        self.state._claim(self.layer, self)

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        recipe: RecipeLike,
        *,
        delayed: Delayed | None = None,
        state: Fp8State | None = None,
        layer: int = 0,
        threads: int | None = None,
        check_shapes: bool = True,
    ) -> Linear:
        """A layer over the parameters of a ``torch.nn.Linear``: the same objects, so that an optimizer goes on.

        Parameters
        ----------
        linear : torch.nn.Linear
            It stays as it is. A subclass with a forward of its own, and parameters that are computed, on another device
            or of another type than float32, float16 and bfloat16 are refused.
        recipe, delayed, state, layer, threads, check_shapes
            As for the constructor.

        Raises
        ------
        TypeError, ValueError
            As the constructor, and for a module that is none of these.
        """
        from fp8lab.torch._selection import reason_of

        if not isinstance(linear, torch.nn.Linear):
            raise TypeError(f"linear must be a torch.nn.Linear, not {kind_of(linear)}")
        if reason := reason_of(linear, None, None):
            raise ValueError(f"linear cannot be taken over: {reason}")
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        made.in_features, made.out_features = linear.in_features, linear.out_features
        made._begin(recipe, delayed, state, layer, threads, check_shapes)
        made.weight, made.bias = linear.weight, linear.bias
        made.train(linear.training)
        return made

    @uncompiled
    def forward(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        """``linear`` of x; ``options`` are its is_first_microbatch, recompute and generator."""
        self.state._claim(self.layer, self)  # a copy has a copy of the state, which knows it from here on
        recipe = None if self.state.regions else self.recipe
        return linear(
            x, self.weight, self.bias, recipe=recipe, delayed=self.delayed, state=self.state, layer=self.layer,
            training=self.training, threads=self.threads, check_shapes=self.check_shapes, **options,
        )  # fmt: skip

    def get_extra_state(self) -> torch.Tensor:
        """What ``state_dict()`` has of the layer's FP8 state."""
        return packed_history(self.state, self.layer)

    def set_extra_state(self, state: Any) -> None:
        """Takes what ``get_extra_state`` gave. TypeError, ValueError for another tensor."""
        load_history(self.state, self.layer, state, self.delayed)

    def extra_repr(self) -> str:
        """What torch prints of it."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{sizes}, recipe={name_of(self.recipe)}, layer={self.layer}"


_TENSORS = ("x", "w", "dy")
_SCALES = ("scale", "scale_inv")


def packed_history(state: Fp8State, layer: int) -> torch.Tensor:
    """A layer's scales and histories as one tensor; (0,) where it has none."""
    kept = state._history_of(layer)
    if not kept:
        return torch.empty(0)
    rows = [
        np.concatenate([*(kept[f"{one}.{name}"].reshape(1) for name in _SCALES), kept[f"{one}.amax_history"]])
        for one in _TENSORS
    ]
    return torch.from_numpy(np.stack(rows))


def load_history(state: Fp8State, layer: int, packed: Any, delayed: Delayed) -> None:
    """Takes what ``packed_history`` gave: the histories are as long as they were."""
    kept = check_tensor(packed, "the FP8 state of a layer")
    if kept.dtype != torch.float32 or not (kept.shape == (0,) or (kept.ndim == 2 and len(kept) == 3)):
        raise ValueError(
            "the FP8 state of a layer must be a float32 tensor of shape (3, 2 + amax_history_len) or (0,), not "
            f"{str(kept.dtype).removeprefix('torch.')} {tuple(kept.shape)}"
        )
    if kept.numel() == 0:
        if not state._history_of(layer):
            return
        kept = torch.zeros(3, 2 + delayed.amax_history_len)
        kept[:, :2] = 1  # scales as a first step has them
    arrays = {
        f"{layer}.{tensor}.{name}": values
        for tensor, row in zip(_TENSORS, kept.detach().numpy())
        for name, values in (("scale", row[0]), ("scale_inv", row[1]), ("amax_history", row[2:]))
    }
    state.load_arrays(arrays, delayed=dataclasses.replace(delayed, amax_history_len=kept.shape[1] - 2))
