# SPDX-License-Identifier: Apache-2.0
"""Which layers of a torch model accelerate runs in FP8, backend by backend; nothing is converted. Needs PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["ConvertedLayer", "converted_layers"]

_BACKENDS = ("TE", "AO", "MSAMP")


@dataclass(frozen=True)
class ConvertedLayer:
    """A Linear or LayerNorm of a model, and what becomes of it.

    Attributes
    ----------
    name : str
        Its path in the model; empty for the model itself.
    layer : str
        What it is, such as ``Linear(32, 10)``.
    becomes : str
        Its class under the backend, or an empty text where it stays.
    why : str
        The rule that leaves it as it is, or that changes it besides; empty where there is none.
    """

    name: str
    layer: str
    becomes: str
    why: str = ""

    def __str__(self) -> str:
        change = f"becomes {self.becomes}" if self.becomes else "stays"
        return f"{self.name or '(the model)'}: {self.layer} {change}{'; ' if self.why else ''}{self.why}"


def converted_layers(model: Any, backend: str = "TE") -> list[ConvertedLayer]:
    """The Linear and LayerNorm layers of a model, in order, and what ``Accelerator.prepare`` makes of each.

    Parameters
    ----------
    model : torch.nn.Module
        Not changed.
    backend : {"TE", "AO", "MSAMP"}

    Raises
    ------
    TypeError, ValueError
        For another model or backend.

    Notes
    -----
    Follows convert_model of accelerate/utils/transformer_engine.py (0.18 to 1.15), accelerate/utils/ao.py, and MS-AMP,
    which pads where the others want multiples of 16.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    if backend not in _BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(_BACKENDS)}, not {backend!r}")
    if backend == "TE":
        root = [_root(model)] if _is_layer(model) else []
        return root + list(_by_transformer_engine(model, ""))
    if backend == "MSAMP":
        return [_by_msamp(*one) for one in _linears(model, "")]
    named = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    return [_by_torchao(named, *one) for one in _linears(model, "")]


def _is_layer(module: Any) -> bool:
    import torch

    return isinstance(module, (torch.nn.Linear, torch.nn.LayerNorm))


def _text(module: Any) -> str:
    import torch

    if isinstance(module, torch.nn.Linear):
        return f"{type(module).__name__}({module.in_features}, {module.out_features})"
    return f"{type(module).__name__}{tuple(module.normalized_shape)}"


def _root(model: Any) -> ConvertedLayer:
    return ConvertedLayer("", _text(model), "", "children of the model are converted, never the model itself")


def _by_transformer_engine(parent: Any, path: str) -> Iterator[ConvertedLayer]:
    """convert_model() returns at the first Linear that it cannot convert: what follows in that container stays."""
    import torch

    stopped_at = ""
    for child, module in parent.named_children():
        name = f"{path}.{child}" if path else child
        if stopped_at:
            yield from _left(module, name, f"it follows {stopped_at}, where the conversion of this container ends")
        elif not _is_layer(module):
            yield from _by_transformer_engine(module, name)
        elif isinstance(module, torch.nn.LayerNorm):
            yield ConvertedLayer(name, _text(module), "te.LayerNorm", _of_norm(module))
        elif any(size % 16 != 0 for size in module.weight.shape):
            stopped_at = name
            yield ConvertedLayer(name, _text(module), "", "a dimension of its weight is no multiple of 16")
        else:
            yield ConvertedLayer(name, _text(module), "te.Linear")


def _left(module: Any, name: str, why: str) -> Iterator[ConvertedLayer]:
    for inner, one in module.named_modules():
        if _is_layer(one):
            yield ConvertedLayer(f"{name}.{inner}" if inner else name, _text(one), "", why)


def _of_norm(module: Any) -> str:
    if len(module.normalized_shape) > 1:
        return "its several dimensions raise a RuntimeError"
    if module.weight is None:
        return "its missing weight raises an AttributeError"
    return "" if module.bias is not None else "it gains a bias of zeros, which is trained"


def _linears(module: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Container by container, so that a layer of two containers comes twice, as it is converted twice."""
    import torch

    if isinstance(module, torch.nn.Linear):
        yield path, module
    for name, child in module.named_children():
        yield from _linears(child, f"{path}.{name}" if path else name)


def _by_torchao(named: list[str], name: str, module: Any) -> ConvertedLayer:
    why = ""
    if name in (named[0], named[-1]):
        why = f"it is the {'first' if name == named[0] else 'last'} Linear of the model"
    elif module.in_features % 16 != 0 or module.out_features % 16 != 0:
        why = "a dimension of its weight is no multiple of 16"
    return ConvertedLayer(name, _text(module), "" if why else "Float8Linear", why)


def _by_msamp(name: str, module: Any) -> ConvertedLayer:
    if getattr(module, "use_fp32_linear", False):
        return ConvertedLayer(name, _text(module), "", "it has use_fp32_linear")
    return ConvertedLayer(name, _text(module), "FP8Linear")
