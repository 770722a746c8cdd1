# SPDX-License-Identifier: Apache-2.0
"""Transformer Engine's modules under ``fp8lab.te``, for ``watch``: which layer and tensor a quantizer casts, and what
the cast did."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._delayed import Delayed
from fp8lab._scaling import dequantize, hadamard_columns
from fp8lab.torch._observed import Cast, measured, scale_for, widened

__all__ = ["BOTH_WAYS", "TEModules", "merge"]

_PACKAGE = "transformer_engine.pytorch.module."
#: How many GEMMs a module of a class has, and what each is called.
_GEMMS: dict[str, tuple[str, ...] | None] = {
    "Linear": ("",),
    "LayerNormLinear": ("",),
    "LayerNormMLP": ("fc1", "fc2"),
    "GroupedLinear": None,  # as many as it was made with
}
#: What the entries of a module's lists of quantizers are for, GEMM by GEMM (FP8FwdTensorIdx and FP8BwdTensorIdx).
_TENSORS = {"scaling_fwd": ("x", "w", None), "scaling_bwd": ("dy", None)}
#: The passes whose products read a tensor's codes rowwise and columnwise.
_PASSES = {"x": ("fprop", "wgrad"), "w": ("fprop", "dgrad"), "dy": ("dgrad", "wgrad")}
#: For a tensor of one scale, whose codes are the same in both directions: the forward's cast, and what it is backward.
BOTH_WAYS = ((("fprop", "x"), ("wgrad", "x")), (("fprop", "w"), ("dgrad", "w")))


def _gemms_of(module: Any) -> tuple[str, ...]:
    """The names of a module's GEMMs; none of a module that is not Transformer Engine's."""
    for kind in type(module).__mro__:
        if kind.__module__.startswith(_PACKAGE) and kind.__name__ in _GEMMS:
            names = _GEMMS[kind.__name__]
            return tuple(f"gemm{one}" for one in range(module.num_gemms)) if names is None else names
    return ()


class TEModules:
    """The modules of a model that have GEMMs, and the quantizers that they have at the moment."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = [(name, one, gemms) for name, one in model.named_modules() if (gemms := _gemms_of(one))]
        self._places: dict[int, tuple[Any, str, str, Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._modules)

    def names(self) -> list[str]:
        """A name for each GEMM."""
        return [_joined(name, gemm) for name, _, gemms in self._modules for gemm in gemms]

    def place_of(self, quantizer: Any) -> tuple[str, str, Any] | None:
        """The layer and the tensor that a quantizer is for, and its module; None for others. Modules make new
        quantizers where a recipe changes."""
        found = self._places.get(id(quantizer))
        if found is None:
            self._places = dict(self._all_places())
            found = self._places.get(id(quantizer))
        return None if found is None else found[1:]

    def _all_places(self) -> Any:
        for name, module, gemms in self._modules:
            for direction, tensors in _TENSORS.items():
                for index, quantizer in enumerate(module.quantizers.get(direction) or ()):
                    gemm, role = divmod(index, len(tensors))
                    tensor = tensors[role]
                    if quantizer is not None and tensor is not None and gemm < len(gemms):
                        yield id(quantizer), (quantizer, _joined(name, gemms[gemm]), tensor, module)

    def casts_of(self, place: tuple[str, str, Any], quantizer: Any, x: Any, result: Any, amax: Any) -> Any:
        """What a cast did, by the pass that reads it."""
        from fp8lab.te.quantize import as_quantized, current_scale, threads
        from fp8lab.te.tensors import kind_of_quantizer

        _, tensor, module = place
        kind = kind_of_quantizer(quantizer)
        values = widened(x.detach().numpy() if x.dtype != torch.bfloat16 else x.view(torch.int16).numpy(), _name(x))
        if kind in ("delayed", "current"):
            own = float(abs(values).max(initial=0.0))
            used, wanted = math.nan, math.nan
            if kind == "delayed":
                used = float(quantizer.scale.detach().reshape(-1)[0])
                wanted = scale_for(own, _delayed_of(quantizer, module), tensor == "dy")
            elif own > 0:
                used = wanted = current_scale(quantizer, own if amax is None else float(amax))
            quantized = as_quantized(result)
            back = dequantize(quantized, threads=threads())
            yield _PASSES[tensor][0], measured(values, values, quantized, back, used, used / wanted)
            return
        for direction, pass_name in zip(("rowwise", "columnwise"), _PASSES[tensor]):
            if getattr(result, f"_{direction}_data") is None:
                continue
            quantized = as_quantized(result, direction)
            is_turned = direction == "columnwise" and kind == "nvfp4" and quantizer.with_rht
            seen = hadamard_columns(values, rounds=False, threads=threads()) if is_turned else values
            back = dequantize(quantized, threads=threads())
            yield pass_name, measured(values, seen, quantized, back, math.nan, math.nan)


def _joined(name: str, gemm: str) -> str:
    return ".".join(part for part in (name, gemm) if part)


def _name(x: Any) -> str:
    return str(x.dtype).removeprefix("torch.")


def _delayed_of(quantizer: Any, module: Any) -> Delayed:
    from fp8lab.te.tensors import format_name

    return _delayed(format_name(quantizer.dtype), int(getattr(module.fp8_meta.get("recipe"), "margin", 0)))


@functools.cache
def _delayed(name: str, margin: int) -> Delayed:
    return Delayed(fp8_format="hybrid" if name == "e5m2" else "e4m3", margin=margin, amax_history_len=1)


def merge(casts: dict[Any, Cast], key: Any, cast: Cast) -> None:
    """Adds a cast to what a step has in its place."""
    if key in casts:
        casts[key].merge(cast)
    else:
        casts[key] = Cast(**vars(cast))
