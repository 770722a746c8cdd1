# SPDX-License-Identifier: Apache-2.0
"""Which modules of a model ``convert`` takes, and why it leaves others."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._arrays import kind_of, short
from fp8lab._linear import LinearRecipe
from fp8lab._scaling import Quantized
from fp8lab.torch._converted import ConvertedLinear
from fp8lab.torch._linear import DTYPES, misfit

__all__ = [
    "LeftModule",
    "Patterns",
    "as_codes",
    "choice",
    "is_conv1d",
    "linears_of",
    "names_of_weights",
    "notes_of",
    "reason_of",
    "sizes_of",
]

Patterns = str | Iterable[str] | Callable[[str], bool]

_CONV1D = ("transformers.pytorch_utils", "Conv1D")  # the class is found by its name: nobody imports the package for it


@dataclasses.dataclass(frozen=True)
class LeftModule:
    """A module that stayed as it was, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name or '(the model)'}: {self.reason}"


def is_conv1d(module: torch.nn.Module) -> bool:
    return any((kind.__module__, kind.__name__) == _CONV1D for kind in type(module).__mro__)


def _reason_of_class(module: torch.nn.Module) -> str | None:
    """Why a module's class or its own attributes keep it from being converted; None: they do not."""
    kind = type(module)
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        return "its parameters are made by its first forward: run the model once before"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "its parameters are computed by torch.nn.utils.parametrize"
    if kind.__name__ == "NonDynamicallyQuantizableLinear":
        return "torch.nn.MultiheadAttention reads its weight past the module"
    if "forward" in vars(module):
        return "its forward was replaced on the module itself"
    plain: Any = torch.nn.Linear if not is_conv1d(module) else next(
        one for one in kind.__mro__ if (one.__module__, one.__name__) == _CONV1D
    )  # fmt: skip
    if kind.forward is not plain.forward:
        return f"{kind.__module__}.{kind.__qualname__} has a forward of its own"
    return None


def _reason_of_parameter(value: Any, name: str) -> str | None:
    if type(value) is not torch.nn.Parameter or type(value.data) is not torch.Tensor:
        return f"its {name} is {kind_of(value)}, and no plain torch.nn.Parameter"
    if value.device.type != "cpu":
        return f"its {name} is on {value.device}, not on the CPU"
    if value.dtype not in DTYPES:
        return f"its {name} is {str(value.dtype).removeprefix('torch.')}, not float32, float16 or bfloat16"
    return None


def sizes_of(module: Any) -> tuple[int, int]:
    """in and out."""
    return (int(module.nx), int(module.nf)) if is_conv1d(module) else (module.in_features, module.out_features)


def reason_of(module: Any, recipe: LinearRecipe | None, codes: Quantized | None) -> str | None:
    """Why a linear module cannot be converted; None: it can. Without a recipe all shapes are taken."""
    reason = _reason_of_class(module)
    if reason is not None:
        return reason
    parameters = module._parameters
    if codes is None:  # else the weight is not read
        if reason := _reason_of_parameter(parameters.get("weight"), "weight"):
            return reason
    if parameters.get("bias") is not None or getattr(module, "bias", None) is not None:
        if reason := _reason_of_parameter(parameters.get("bias"), "bias"):
            return reason
    inputs, outputs = sizes_of(module)
    if 0 in (inputs, outputs):
        return f"it has no elements: {inputs} -> {outputs}"
    stored = (inputs, outputs) if is_conv1d(module) else (outputs, inputs)
    if codes is None and tuple(module.weight.shape) != stored:
        return f"its weight has the shape {tuple(module.weight.shape)}, not {stored}"
    return None if recipe is None else misfit(recipe, inputs, outputs)


def _selection(patterns: Any, argument: str, names: set[str]) -> Callable[[str], bool]:
    """Whether a name is one of ``patterns``, each of which is that of at least one of ``names``."""
    if callable(patterns):
        return lambda name: bool(patterns(name))
    given = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(given, Iterable) or isinstance(given, (bytes, Mapping)):
        raise TypeError(f"{argument} must be a pattern, a list of patterns or a function, not {kind_of(patterns)}")
    wanted = list(given)
    for pattern in wanted:
        if not isinstance(pattern, str):
            raise TypeError(f"{argument} must have patterns as str, not {kind_of(pattern)}")
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"{argument} has {short(pattern)!r}, which no linear layer of the model is called; "
                             f"there are {_listed(names)}")  # fmt: skip
    return lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(name or "(the model)" for name in shown[:6]) + (", ..." if len(shown) > 6 else "")


def as_codes(codes: Any, recipe: LinearRecipe, linears: Mapping[str, torch.nn.Module]) -> dict[str, Quantized]:
    if codes is None:
        return {}
    if not isinstance(codes, Mapping):
        raise TypeError(f"codes must be a mapping of names to codes and scales, not {kind_of(codes)}")
    cast = recipe.fprop.b
    if isinstance(cast, str):
        raise ValueError(f"codes are for a recipe that quantizes weights, and this one multiplies them in {cast}")
    made: dict[str, Quantized] = {}
    for name, value in codes.items():
        if name not in linears:
            raise ValueError(f"codes has {short(str(name))!r}, which no linear layer of the model is called; "
                             f"there are {_listed(linears)}")  # fmt: skip
        if not isinstance(value, Quantized):
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise TypeError(f"codes[{name!r}] must be a Quantized, or codes and scale_inv, not {kind_of(value)}")
            try:
                value = Quantized.from_arrays(value[0], value[1], cast)
            except (TypeError, ValueError) as error:
                raise type(error)(f"codes[{name!r}]: {error}") from None
        inputs, outputs = sizes_of(linears[name])
        if value.shape != (outputs, inputs):
            raise ValueError(f"codes[{name!r}] must be (out, in), {(outputs, inputs)}, not {value.shape}")
        made[name] = value
    return made


def linears_of(
    model: torch.nn.Module,
) -> tuple[dict[str, torch.nn.Module], dict[str, list[str]], list[LeftModule]]:
    """The linear layers by the first name of each, all names of these, and weights that no linear layer has."""
    linears: dict[str, torch.nn.Module] = {}
    first_names: dict[int, str] = {}
    names: dict[str, list[str]] = {}
    left: list[LeftModule] = []
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, ConvertedLinear):
            raise ValueError(f"the model is converted already: {name or 'it'} is a converted layer; undo() that first")
        if isinstance(module, torch.nn.MultiheadAttention):
            reason = "torch.nn.MultiheadAttention multiplies by it in one function with the attention"
            weights = [one for one, _ in module.named_parameters(recurse=False) if one.endswith("proj_weight")]
            left += [LeftModule(f"{name}.{weight}".lstrip("."), reason) for weight in weights]
        if isinstance(module, torch.nn.Linear) or is_conv1d(module):
            first = first_names.setdefault(id(module), name)
            linears[first] = module
            names.setdefault(first, []).append(name)
    return linears, names, left


def choice(include: Any, exclude: Any, every: set[str]) -> Callable[[list[str]], str | None]:
    """Why a module of these names is not chosen; None: it is."""
    included = None if include is None else _selection(include, "include", every)
    excluded = None if exclude is None else _selection(exclude, "exclude", every)

    def reason(names: list[str]) -> str | None:
        if included is not None and not any(map(included, names)):
            return "it is not included"
        return "it is excluded" if excluded is not None and any(map(excluded, names)) else None

    return reason


def names_of_weights(model: torch.nn.Module) -> dict[int, list[str]]:
    """The names of each parameter that has several."""
    found: dict[int, list[str]] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(value), []).append(name)
    return {key: some for key, some in found.items() if len(some) > 1}


def notes_of(module: Any, aliases: list[str], shared: Mapping[int, list[str]], has_codes: bool) -> tuple[str, ...]:
    notes = []
    if len(aliases) > 1:
        notes.append(f"also called {', '.join(aliases[1:])}")
    own = {f"{alias}.weight".lstrip(".") for alias in aliases}
    others = [one for one in shared.get(id(module.weight), ()) if one not in own]
    if others:
        notes.append(f"its weight is also {', '.join(others)}")
    if has_codes:
        notes.append("of an FP8 checkpoint's codes")
    return tuple(notes)
