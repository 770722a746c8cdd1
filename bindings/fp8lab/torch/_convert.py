# SPDX-License-Identifier: Apache-2.0
"""Any torch model under an FP8 recipe: its linear layers become recipe layers in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._arrays import check_threads, kind_of
from fp8lab._delayed import Delayed
from fp8lab._linear import LinearRecipe, _as_linear_recipe
from fp8lab._state import Fp8State, RecipeLike, _as_delayed
from fp8lab.torch._converted import FIELDS, ConvertedLinear, Region, class_of, runs_forward
from fp8lab.torch._linear import load_history, name_of, packed_history
from fp8lab.torch._selection import (
    LeftModule,
    Patterns,
    as_codes,
    choice,
    is_conv1d,
    linears_of,
    names_of_weights,
    notes_of,
    reason_of,
    sizes_of,
)

__all__ = ["Conversion", "ConvertedModule", "convert"]


@dataclasses.dataclass(frozen=True)
class ConvertedModule:
    """A module that was converted."""

    name: str
    """Its qualified name in the model; empty for the model itself."""
    layer: int
    """Which of the state's layers it is."""
    kind: str
    """``Linear`` or ``Conv1D``, or the name of a subclass."""
    in_features: int
    out_features: int
    notes: tuple[str, ...] = ()
    """Other names of the module or of its weight, and what computes it where that is not usual."""

    def __str__(self) -> str:
        text = (
            f"{self.name or '(the model)'}: {self.kind} {self.in_features} -> {self.out_features}, layer {self.layer}"
        )
        return "; ".join((text, *self.notes))


class Conversion:
    """What ``convert`` did to a model; ``str()`` lists it, ``undo()`` takes it back.

    Attributes
    ----------
    model : torch.nn.Module
    recipe : LinearRecipe
    delayed : Delayed
    state : Fp8State
        Of all converted layers; no part of ``model.state_dict()``, whose keys stay those of the model. A checkpoint is
        both: ``state_dict()`` of the conversion has histories and scales.
    converted : tuple of ConvertedModule
    left : tuple of LeftModule
    """

    def __init__(
        self,
        model: torch.nn.Module,
        recipe: LinearRecipe,
        delayed: Delayed,
        state: Fp8State,
        converted: tuple[ConvertedModule, ...],
        left: tuple[LeftModule, ...],
    ) -> None:
        self.model, self.recipe, self.delayed, self.state = model, recipe, delayed, state
        self.converted, self.left = converted, left
        self._kinds: list[tuple[Any, type]] = []
        self._handles: list[Any] = []

    def __getitem__(self, name: str) -> ConvertedModule:
        """The converted module of that name. KeyError where there is none."""
        for one in self.converted:
            if one.name == name:
                return one
        raise KeyError(name)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Histories and scales of the converted layers by the names of their modules, for ``torch.save``: without them
        a run under delayed scaling that goes on from a checkpoint has other losses. Each is the tensor that
        ``fp8lab.torch.Linear`` keeps as ``_extra_state``."""
        return {one.name: packed_history(self.state, one.layer) for one in self.converted}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes what ``state_dict`` gave.

        Raises
        ------
        TypeError, ValueError
            For names that are not those of the converted layers, and for other tensors; nothing is taken then.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"state_dict must be a mapping of names to tensors, not {kind_of(state_dict)}")
        layers = {one.name: one.layer for one in self.converted}
        for title, strange in (("has", set(state_dict) - set(layers)), ("lacks", set(layers) - set(state_dict))):
            if strange:
                raise ValueError(f"state_dict {title} {min(map(str, strange))!r}: it must have the converted layers")
        tried = self.state.copy()
        for state in (tried, self.state):
            for name, layer in layers.items():
                load_history(state, layer, state_dict[name], self.delayed)

    def undo(self) -> None:
        """Gives each module back its class; parameters have the values that they have now. A second call does
        nothing."""
        while self._kinds:
            module, kind = self._kinds.pop()
            module.state._release(module.layer, module)
            module.__class__ = kind
            for field in FIELDS:
                delattr(module, field)
        while self._handles:
            self._handles.pop().remove()

    def _take(self, module: torch.nn.Module, fields: dict[str, Any]) -> None:
        """Converts a module: it gets another class, and what that reads."""
        self._kinds.append((module, type(module)))
        module.__class__ = class_of(type(module), is_conv1d=is_conv1d(module))
        vars(module).update(fields)

    def _hook(self) -> None:
        """Puts a region around each forward of the model."""
        for layer in self.model.modules():
            if isinstance(layer, torch.nn.TransformerEncoderLayer):
                inner = [one for one in layer.children() if isinstance(one, ConvertedLinear)]
                self._handles += [one.register_forward_pre_hook(runs_forward) for one in inner]
        region = Region(self.state, self.recipe, self.delayed)
        self._handles.append(self.model.register_forward_pre_hook(region.enter))
        self._handles.append(self.model.register_forward_hook(region.leave, always_call=True))

    def __str__(self) -> str:
        lines = [f"{len(self.converted)} layers by {name_of(self.recipe)}:"]
        lines += [f"  {one}" for one in self.converted]
        if self.left:
            lines += [f"left as they were: {len(self.left)}", *(f"  {one}" for one in self.left)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<fp8lab.torch.Conversion of {len(self.converted)} layers, {len(self.left)} left as they were>"


def convert(
    model: torch.nn.Module,
    recipe: RecipeLike,
    *,
    include: Patterns | None = None,
    exclude: Patterns | None = None,
    delayed: Delayed | None = None,
    state: Fp8State | None = None,
    codes: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Conversion:
    """Have a model's linear layers computed as a recipe's system computes them, with gradients, in place.

    ``torch.nn.Linear`` and Hugging Face's ``Conv1D`` become ``ConvertedLinear``. Modules, parameters, hooks and names
    stay the same objects: optimizers that were made before go on, and ``state_dict()`` has the same keys and values.
    Each forward of the model is an autocast region of the state: its end makes the scales of x and w under delayed
    scaling, and the backward that of dy. Where a region of the state is open, layers run as that says.

    Parameters
    ----------
    model : torch.nn.Module
    recipe : str or LinearRecipe
        One of ``fp8lab.linear_recipes()``, or one's own.
    include, exclude : str, list of str, or function of a name, optional
        Patterns of qualified names, such as ``"layers.*.mlp.*"``; ``*`` stands for any characters. Left out, all layers
        are included and none excluded.
    delayed : Delayed, optional
        For a recipe of delayed scaling; Transformer Engine's defaults where left out.
    state : Fp8State, optional
        With at least as many layers as are converted; left out, a new one.
    codes : mapping of names to Quantized or (codes, scale_inv), optional
        An FP8 checkpoint's weights, (out, in), by the names of their modules: these layers multiply the codes as they
        are, have no gradients, and read no weight. A recipe of delayed scaling quantizes their x with a scale of 1.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Returns
    -------
    Conversion
        What was converted, and what was left as it was and why: a module with a forward of its own, one whose weight
        others read past it, parameters of other types or devices or under a parametrization, a shape that the recipe
        does not take.

    Raises
    ------
    TypeError, ValueError
        For an unknown recipe, a pattern that no linear layer has the name of, codes that do not fit, a state with too
        few layers, a model that is converted already, and where nothing can be converted. The model is then as it was.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)}")
    own = _as_linear_recipe(recipe)
    own_delayed = _as_delayed(delayed, own)
    if state is not None and not isinstance(state, Fp8State):
        raise TypeError(f"state must be an Fp8State, not {kind_of(state)}")
    check_threads(threads)
    Fp8State().enter_autocast(own, delayed=own_delayed)  # refuses recipes that do not go together
    # 1. Find the linear layers, and judge each.
    linears, names, left = linears_of(model)
    given = as_codes(codes, own, linears)
    is_chosen = choice(include, exclude, {name for some in names.values() for name in some})
    chosen: list[tuple[str, torch.nn.Module]] = []
    for name, module in linears.items():
        reason = is_chosen(names[name]) or reason_of(module, own, given.get(name))
        if reason is None:
            chosen.append((name, module))
        elif name in given:
            raise ValueError(f"codes has {name!r}, which is not converted: {reason}")
        else:
            left.append(LeftModule(name, reason))
    if not chosen:
        why = "; ".join(map(str, left[:3])) + ("; ..." if len(left) > 3 else "")
        raise ValueError(f"the model has no layer to convert{': ' + why if left else ''}")
    if state is None:
        state = Fp8State(len(chosen))
    elif state.layers < len(chosen):
        raise ValueError(f"state has {state.layers} layers, and {len(chosen)} are converted")
    try:
        for layer, (_, module) in enumerate(chosen):
            state._claim(layer, module)
    except ValueError:
        for layer, (_, module) in enumerate(chosen):
            state._release(layer, module)
        raise
    # 2. Convert those that can be.
    shared = names_of_weights(model)
    converted = tuple(
        ConvertedModule(
            name, layer, type(module).__name__, *sizes_of(module), notes_of(module, names[name], shared, name in given)
        )
        for layer, (name, module) in enumerate(chosen)
    )
    done = Conversion(model, own, own_delayed, state, converted, tuple(left))
    for layer, (name, module) in enumerate(chosen):
        done._take(module, dict(zip(FIELDS, (own, own_delayed, state, layer, threads, given.get(name)))))
    done._hook()
    return done
