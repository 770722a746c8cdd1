# SPDX-License-Identifier: Apache-2.0
"""What the casts of a model's layers do, step by step: ``watch``."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._arrays import Array, check_int, check_path, kind_of
from fp8lab._document import Document
from fp8lab._linear import LinearRecipe, _linear_recipe
from fp8lab._state import Fp8State, LinearCall
from fp8lab.te._observers import OBSERVERS as TE_OBSERVERS
from fp8lab.torch._converted import ConvertedLinear
from fp8lab.torch._linear import OBSERVERS, Linear
from fp8lab.torch._observed import Cast, cast_of, causes_of, scale_for, widened
from fp8lab.torch._watched_te import BOTH_WAYS, TEModules, merge

__all__ = ["Watch", "watch"]

_TRACED = (("fprop", "x"), ("fprop", "w"), ("dgrad", "dy"))
#: Name, title, unit, type, notation and digits of the columns of tensors.
_COLUMNS = (
    ("step", "", "", "integer", "general", 6),
    ("layer", "", "", "text", "general", 6),
    ("pass", "", "", "text", "general", 6),
    ("tensor", "", "", "text", "general", 6),
    ("sqnr", "SQNR", "dB", "number", "fixed", 2),
    ("underflow", "", "", "number", "percent", 3),
    ("saturated", "", "", "number", "percent", 3),
    ("amax", "", "", "number", "general", 4),
    ("scale", "", "", "number", "general", 4),
    ("scale_lag", "scale lag", "", "number", "general", 4),
    ("elements", "", "", "integer", "general", 6),
)
_CAUSE_COLUMNS = (
    ("step", "", "", "integer", "general", 6),
    ("layer", "", "", "text", "general", 6),
    ("cause", "", "", "text", "general", 6),
    ("rms", "", "", "number", "scientific", 2),
    ("sqnr", "SQNR", "dB", "number", "fixed", 2),
)
_WORST_COLUMNS = (
    ("layer", "", "", "text", "general", 6),
    ("pass", "", "", "text", "general", 6),
    ("tensor", "", "", "text", "general", 6),
    ("least_sqnr", "least SQNR", "dB", "number", "fixed", 2),
    ("most_underflow", "most underflow", "", "number", "percent", 3),
    ("most_saturated", "most saturated", "", "number", "percent", 3),
    ("least_lag", "least lag", "", "number", "general", 4),
    ("most_lag", "most lag", "", "number", "general", 4),
)
_INTRO = (
    "Each layer casts x and w in fprop, dy and w in dgrad, dy and x in wgrad. SQNR is that of what comes back of the "
    "cast beside the tensor; underflow is the share of elements that became zero and were not, saturated that of "
    "elements beyond the format's largest value. The scale lag is the scale that was used over the one that this "
    "step's own amax makes: above 1 values saturate, below 1 binades stay unused. Tensors of many scales have neither."
)
_OF_CAUSES = (
    "The difference of a layer's output from the real product: x_cast and w_cast put what comes back of the casts in "
    "place of the tensors, accumulation is the tensor core, its scales and the bias, output_rounding the rounding to "
    "the output's type. Parts add up to the total element by element."
)


class Watch:
    """What the casts of a model's layers did while it was watched; made by ``watch``.

    Attributes
    ----------
    steps : int
        Forwards of the model that were seen.
    """

    def __init__(self, model: torch.nn.Module, causes_every: int, first_step: int) -> None:
        self._model = model
        self._layers: dict[tuple[int, int], tuple[str, Any]] = {}
        for name, module in model.named_modules():
            if isinstance(module, (ConvertedLinear, Linear)):
                self._layers.setdefault((id(module.state), module.layer), (name, module))
        self._modules = TEModules(model)
        if not self._layers and not self._modules:
            raise ValueError("model has no layer that fp8lab.torch computes: convert() it first")
        if causes_every and not self._layers:
            raise ValueError("causes_every is for layers of convert() and fp8lab.torch.Linear: the model has none")
        self._names = [*dict.fromkeys(name for name, _ in self._layers.values()), *self._modules.names()]
        self._causes_every, self._first_step = causes_every, first_step
        self.steps = 0
        self._casts: dict[tuple[int, str, str, str], Cast] = {}
        self._causes: list[tuple[int, str, str, float, float]] = []
        self._recipes: dict[str, LinearRecipe] = {}
        self._handle: Any = None

    def __enter__(self) -> Watch:
        if self._handle is not None:
            raise RuntimeError("the model is watched already by this watch")
        self._handle = self._model.register_forward_pre_hook(self._begins)
        OBSERVERS.append(self)
        if self._modules:
            TE_OBSERVERS.append(self)
        return self

    def __exit__(self, *_error: object) -> None:
        OBSERVERS.remove(self)
        if self._modules:
            TE_OBSERVERS.remove(self)
        self._handle.remove()
        self._handle = None

    def _begins(self, _module: Any, _args: Any) -> None:
        self.steps += 1

    @property
    def _step(self) -> int:
        return self._first_step + max(0, self.steps - 1)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def _recipe_of(self, call: LinearCall) -> LinearRecipe:
        core = call._core.recipe
        words = core.description
        if words not in self._recipes:
            self._recipes[words] = _linear_recipe(core)
        return self._recipes[words]

    def _cast(
        self, place: tuple[Fp8State, int], names: tuple[str, str], x: Array, cast: Any, bits: Array | None = None
    ) -> Any:
        """One tensor's cast in a pass; None in high precision."""
        if isinstance(cast, str):
            return None
        (state, layer), (pass_name, tensor) = place, names
        _, module = self._layers[id(state), layer]
        scale, wanted = None, math.nan
        if cast.quotient == "given_scale":
            scale = float(state._core.history(layer, tensor)[1])
            wanted = scale_for(float(np.max(np.abs(x), initial=0.0)), module.delayed, tensor == "dy")
        is_rowwise = (pass_name, tensor) in _TRACED
        return cast_of(x, cast, "rowwise" if is_rowwise else "columnwise", scale=scale, wanted=wanted, bits=bits,
                       threads=module.threads)  # fmt: skip

    def _keep(self, step: int, name: str, names: tuple[str, str], made: Any) -> None:
        if made is None:
            return
        merge(self._casts, (step, name, *names), made[0])

    def saw_forward(self, state: Fp8State, call: LinearCall, bias: Any) -> None:
        """After a forward of a layer, whose scales are still those that it used."""
        if (id(state), call.layer) not in self._layers or call._kept[1] is None:
            return
        name, module = self._layers[id(state), call.layer]
        recipe, step, place = self._recipe_of(call), self._step, (state, call.layer)
        x, w = _tensors_of(call)
        made = {"x": self._cast(place, ("fprop", "x"), x, recipe.fprop.a),
                "w": self._cast(place, ("fprop", "w"), w, recipe.fprop.b)}  # fmt: skip
        for tensor, one in made.items():
            self._keep(step, name, ("fprop", tensor), one)
        kept = {tensor: one[:1] if one is not None else None for tensor, one in made.items()}
        call._seen = (step, kept)  # type: ignore[attr-defined]
        if self._causes_every and step % self._causes_every == 0:
            y = widened(call.y, call.y.dtype.name).astype(np.float64)
            given = None if bias is None else bias.detach().float().numpy()
            of_x, of_w = (_rounded(value, cast) if one is None else one[1:] for value, cast, one in (
                (x, recipe.fprop.a, made["x"]), (w, recipe.fprop.b, made["w"])))  # fmt: skip
            for cause, numbers in causes_of(x, w, given, y, (of_x, of_w), recipe, module.threads).items():
                self._causes.append((step, name, cause, *numbers))

    def sees_backward(self, state: Fp8State, call: LinearCall, dy: torch.Tensor, bits: Any) -> None:
        """Before a backward of a layer, whose scale of dy is the one that it will use."""
        if not hasattr(call, "_seen") or (id(state), call.layer) not in self._layers:
            return
        name, _ = self._layers[id(state), call.layer]
        step, seen = call._seen
        recipe, place = self._recipe_of(call), (state, call.layer)
        gradient = dy.detach().float().numpy()
        tensors = {"dy": gradient}
        rowwise = self._cast(place, ("dgrad", "dy"), gradient, recipe.dgrad.a, bits)
        self._keep(step, name, ("dgrad", "dy"), rowwise)
        first = {"dy": (recipe.dgrad.a, rowwise), "x": (recipe.fprop.a, seen["x"]), "w": (recipe.fprop.b, seen["w"])}
        columnwise = (("dgrad", "w", recipe.dgrad.b), ("wgrad", "dy", recipe.wgrad.a), ("wgrad", "x", recipe.wgrad.b))
        for pass_name, tensor, cast in columnwise:
            if _is_same(cast, first[tensor][0]):  # one scale for all of it: the same values in both directions
                made = first[tensor][1]
            else:
                if tensor not in tensors:
                    tensors.update(zip("xw", _tensors_of(call)))
                own_bits = bits if tensor == "dy" else None
                made = self._cast(place, (pass_name, tensor), tensors[tensor], cast, own_bits)
            self._keep(step, name, (pass_name, tensor), made)

    def saw_cast(self, quantizer: Any, x: Any, result: Any, amax: Any) -> None:
        """After a cast of Transformer Engine's; its scale is still the one that it used."""
        place = self._modules.place_of(quantizer)
        if place is None:
            return
        step, (name, tensor, _) = self._step, place
        for pass_name, cast in self._modules.casts_of(place, quantizer, x, result, amax):
            merge(self._casts, (step, name, pass_name, tensor), cast)
        if tensor != "dy":
            return
        # The backward reads what the forward has cast: the codes of a tensor with one scale.
        both = (("dgrad", "dy"), ("wgrad", "dy"))
        for first, second in (*BOTH_WAYS, both):
            cast = self._casts.get((step, name, *first))
            if cast is not None and not math.isnan(cast.scale):
                self._casts[(step, name, *second)] = Cast(**vars(cast))

    # --- what it gives ------------------------------------------------------------------------------------------------

    def _rows(self) -> list[tuple[Any, ...]]:
        order = {name: index for index, name in enumerate(self._names)}
        passes = ("fprop", "dgrad", "wgrad")
        keys = sorted(self._casts, key=lambda key: (key[0], order[key[1]], passes.index(key[2]), key[3]))
        return [(*key, *_numbers_of(self._casts[key])) for key in keys]

    def arrays(self) -> dict[str, Array]:
        """The columns of the table of tensors, one entry for each step, layer, pass and tensor.

        ``step``, ``layer``, ``pass``, ``tensor``, ``sqnr`` (dB), ``underflow`` and ``saturated`` (shares), ``amax``,
        ``scale``, ``scale_lag``, ``elements``.
        """
        columns = list(zip(*self._rows())) or [()] * len(_COLUMNS)
        types: dict[str, Any] = {"integer": np.int64, "number": np.float64, "text": str}
        return {one[0]: np.array(values, types[one[3]]) for one, values in zip(_COLUMNS, columns)}

    @property
    def document(self) -> Document:
        """What was seen until now: the tables ``worst``, ``tensors`` and ``causes``, as text, JSON and arrays."""
        from fp8lab import experiments

        rows = self._rows()
        sections: list[dict[str, Any]] = [
            _text("intro", _INTRO),
            _table("worst", "The worst of all steps", _WORST_COLUMNS, _worst_of(rows)),
            _table("tensors", "Every tensor of every step", _COLUMNS, rows, detail=True),
        ]
        if self._causes:
            sections += [_text("of_causes", _OF_CAUSES),
                         _table("causes", "The error of outputs by cause", _CAUSE_COLUMNS, self._causes)]  # fmt: skip
        content = {
            "experiment": "torch_watch",
            "schema": experiments.harmonic().schema,
            "arguments": {"causes_every": self._causes_every, "first_step": self._first_step, "steps": self.steps},
            "provenance": experiments.harmonic().provenance,  # an experiment of no cost has this build's
            "passed": None,
            "sections": sections,
        }
        return Document(json.dumps(content))

    def write_traces(self, path: str | os.PathLike[str]) -> None:
        """Write the amaxes of x, w and dy of every layer as a CSV that ``fp8lab delayed`` replays: a line a step, 0 for
        what a step did not have.

        Raises
        ------
        ValueError
            Where nothing was seen.
        OSError
            Where it cannot be written.
        """
        target = check_path(path, "path")
        steps = sorted({key[0] for key in self._casts})
        if not steps:
            raise ValueError("nothing was watched yet: there are no amaxes to write")
        places = [(name, *place) for name in self._names for place in _TRACED]
        kept = [one for one in places if any((step, *one) in self._casts for step in steps)]
        lines = ["step," + ",".join(f"{name}.{tensor}".lstrip(".") for name, _, tensor in kept)]
        for step in steps:
            casts = (self._casts.get((step, *one)) for one in kept)
            lines.append(",".join([str(step), *("0" if one is None else repr(one.amax) for one in casts)]))
        with open(target, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    def __str__(self) -> str:
        return self.document.text()

    def __repr__(self) -> str:
        return f"<fp8lab.torch.Watch of {len(self._names)} layers, {self.steps} steps>"


def _tensors_of(call: LinearCall) -> tuple[Array, Array]:
    """x and w, as the call keeps them."""
    inputs, (weights, _) = call._kept
    return widened(*inputs), widened(*weights)


def _rounded(values: Array, dtype: Any) -> tuple[Array, Array]:
    """Values in high precision, and what the product takes for them."""
    return values, torch.from_numpy(values).to(getattr(torch, dtype)).float().numpy()


def _is_same(cast: Any, other: Any) -> bool:
    """Whether a cast columnwise has the values of another rowwise."""
    if isinstance(cast, str) or cast != other:
        return isinstance(cast, str)
    return cast.tile_across == 0 == cast.tile_along and cast.transform == "none" and not cast.scale_for_each_row


def _numbers_of(cast: Cast) -> tuple[Any, ...]:
    share = max(1, cast.elements)
    return (
        cast.totals.sqnr_db, cast.underflows / share, cast.saturated / share, cast.amax, cast.scale, cast.scale_lag,
        cast.elements,
    )  # fmt: skip


def _worst_of(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    places = list(dict.fromkeys(row[1:4] for row in rows))
    worst = []
    for place in places:
        sqnr, underflow, saturated, lag = (
            [row[column] for row in rows if row[1:4] == place and not math.isnan(row[column])]
            for column in (4, 5, 6, 9)
        )
        worst.append((
            *place, min(sqnr, default=math.nan), max(underflow, default=math.nan), max(saturated, default=math.nan),
            min(lag, default=math.nan), max(lag, default=math.nan),
        ))  # fmt: skip
    return worst


def _text(name: str, paragraph: str) -> dict[str, Any]:
    return {"kind": "text", "name": name, "title": "", "paragraphs": [paragraph]}


def _value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _table(name: str, title: str, columns: Any, rows: list[tuple[Any, ...]], *, detail: bool = False) -> dict[str, Any]:
    values = list(zip(*rows)) or [()] * len(columns)
    return {
        "kind": "table", "name": name, "title": title, "layout": "rows", "marked": False, "detail": detail,
        "columns": [
            {
                "name": column, "title": heading, "unit": unit, "type": kind, "notation": notation, "digits": digits,
                "right": False, "detail": False, "values": [_value(one) for one in of_column],
            }
            for (column, heading, unit, kind, notation, digits), of_column in zip(columns, values)
        ],
    }  # fmt: skip


def watch(model: torch.nn.Module, *, causes_every: int = 0, first_step: int = 0) -> Watch:
    """Watch what the casts of a converted model's layers do, as a context: each forward of the model is a step.

    Parameters
    ----------
    model : torch.nn.Module
        One that ``convert`` converted, or that has layers of ``fp8lab.torch.Linear`` or Transformer Engine's modules:
        Linear, LayerNormLinear, LayerNormMLP, under ``fp8lab.te``, also within TransformerLayer. A LayerNormMLP is two
        layers, ``fc1`` and ``fc2``. GroupedLinear is watched too, which no test has shown to be right.
    causes_every : int
        In every so manieth step, the error of each layer's output is split by cause: the casts of x and of w, the
        accumulation, the rounding of the output. That computes each fprop once more, and its real product. 0: never.
        Not of Transformer Engine's modules.
    first_step : int
        The number of the first step, of a run that goes on.

    Returns
    -------
    Watch
        Its ``document``, ``arrays()`` and ``write_traces(path)`` tell what was seen until then; results of the model
        have the same bits as unwatched.

    Raises
    ------
    TypeError, ValueError
        For a model without such layers, and numbers that are negative.

    Examples
    --------
    >>> with fp8lab.torch.watch(model) as seen:
    ...     loss = model(x).sum()
    ...     loss.backward()
    >>> print(seen)
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)}")
    every = check_int(causes_every, "causes_every", 0, 2**31 - 1)
    return Watch(model, every, check_int(first_step, "first_step", 0, 2**62))
