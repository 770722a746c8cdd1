# SPDX-License-Identifier: Apache-2.0
"""The module ``transformer_engine_torch``, put together of one file per family and the table of its functions."""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

from fp8lab.te import enums
from fp8lab.te._activation import register_operators
from fp8lab.te._functions import OPERATORS, functions
from fp8lab.te._releases import installed_release

__all__ = ["make_extension", "make_refusing_module", "make_triton_module"]


def make_extension(name: str) -> types.ModuleType:
    """The extension: what is provided runs, what is not raises NotImplementedError with its reason."""
    import torch

    module = types.ModuleType(name, "Transformer Engine's extension, computed by fp8lab on the CPU.")
    module.__path__ = []
    for tag in enums.__all__:
        setattr(module, tag, getattr(enums, tag))
    operators = types.SimpleNamespace()
    for one in functions():
        if one.module not in ("", OPERATORS):
            continue  # make_triton_module() has it
        value = one.refusal() if one.family is None else _provided(torch, one.family, one.name)
        if value is not None:
            setattr(operators if one.module else module, one.name, value)
    if vars(operators):
        register_operators(operators)
    return module


def _provided(torch: Any, family: str, name: str) -> Any:
    """A function of a family; of the enumerations, which are there, None."""
    if family == "enums":
        return None
    value = getattr(importlib.import_module(f"fp8lab.te.{family}"), name)
    return _entry(torch, value) if callable(value) else value


def _entry(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without PyTorch's modes, subclasses and gradients: a kernel sees buffers alone."""
    from fp8lab.te._mode import computed

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            return computed(function(*args, **options))

    return call


def make_triton_module(name: str) -> types.ModuleType:
    """A module of Transformer Engine's Triton kernels: each of its functions refuses by name."""
    short = name.removeprefix("transformer_engine.pytorch.")
    provided = {one.name: one for one in functions() if one.module == short}
    module = types.ModuleType(name)

    def function_of(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        if wanted in provided and provided[wanted].family is not None:
            import torch

            return _provided(torch, str(provided[wanted].family), wanted)

        def refuse(*_args: Any, **_options: Any) -> Any:
            raise NotImplementedError(
                f"{short}.{wanted} is not provided by fp8lab.te for transformer_engine {installed_release().name}: it "
                "is a Triton kernel, which runs on a GPU alone; use PyTorch's function of that purpose"
            )

        return refuse

    module.__getattr__ = function_of  # type: ignore[method-assign]
    return module


def make_refusing_module(name: str) -> types.ModuleType:
    """Transformer Engine 1's registrations for ONNX, which name functions of PyTorch that later releases lack."""
    module = types.ModuleType(name)

    def refuse(*_args: Any, **_options: Any) -> Any:
        raise NotImplementedError(f"{name} is not provided by fp8lab.te: export to ONNX with a newer release")

    def function_of(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return refuse

    module.__getattr__ = function_of  # type: ignore[method-assign]
    return module
