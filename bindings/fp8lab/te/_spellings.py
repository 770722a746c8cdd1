# SPDX-License-Identifier: Apache-2.0
"""Other ways to ask PyTorch for the GPU than a function's ``device``: a default device, generators, types of tensors,
profilers."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch

from fp8lab.te._cuda import Replacements, nothing, refused
from fp8lab.te._draws import cuda_generator
from fp8lab.te._mode import CudaToCpu, is_gpu, placed
from fp8lab.te.devices import Device

__all__ = ["set_spellings"]

#: Types of tensors by their old names, which ``torch.cuda`` has, too.
_TYPES = (
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "ShortTensor",
)  # fmt: skip


def set_spellings(replaced: Replacements, mode: CudaToCpu, device: Device) -> None:
    """Puts the device's answers in place of PyTorch's."""
    _default_device(replaced, mode)
    _generators(replaced, device)
    _types(replaced)
    _tools(replaced)
    own_range = torch.range

    @functools.wraps(own_range)
    def range_(*args: Any, device: Any = None, **options: Any) -> Any:  # which PyTorch keeps from its modes
        made = own_range(*args, device=None if is_gpu(device) else device, **options)
        return made if device is None else placed(made, device)

    replaced.set(torch, "range", range_)


def _default_device(replaced: Replacements, mode: CudaToCpu) -> None:
    """PyTorch has a mode of its own for it, beneath all others."""
    own_set, own_get = torch.set_default_device, torch.get_default_device

    def set_default_device(device: Any) -> None:
        mode.is_default = device is not None and is_gpu(device)
        own_set(None if mode.is_default else device)

    def get_default_device() -> Any:
        found = own_get()
        return torch.device("cuda", 0) if mode.is_default and found.type == "cpu" else found

    own_type = torch.set_default_tensor_type

    def set_default_tensor_type(kind: Any) -> None:
        if isinstance(kind, str) and kind.startswith("torch.cuda."):
            kind = getattr(torch.cuda, kind.rsplit(".", 1)[1])
        if isinstance(kind, TensorType):
            torch.set_default_dtype(kind.dtype)
            set_default_device("cuda")
            return
        own_type(kind)
        if mode.is_default:
            set_default_device(None)

    replaced.set(torch, "set_default_tensor_type", set_default_tensor_type)
    replaced.set(torch, "set_default_device", set_default_device)
    replaced.set(torch, "get_default_device", get_default_device)


def _generators(replaced: Replacements, emulated: Device) -> None:
    """``torch.Generator("cuda")`` has a state of its own, from which the GPU's numbers are drawn."""
    own = torch.Generator

    class Kind(type(own)):  # type: ignore[misc]
        def __call__(cls, device_: Any = None, *, device: Any = None) -> Any:
            wanted = device_ if device is None else device
            if wanted is not None and is_gpu(wanted):
                return cuda_generator(emulated)
            return own() if wanted is None else own(device=wanted)

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, own)

    replaced.set(torch, "Generator", Kind("Generator", (own,), {"__module__": "torch", "__doc__": own.__doc__}))


class TensorType(type):
    """A type of tensors on the GPU, by the name that ``torch.cuda`` has for it."""

    dtype: torch.dtype

    def __call__(cls, *args: Any) -> Any:
        return placed(getattr(torch, cls.__name__)(*args), "cuda")

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype is cls.dtype and value.device.type == "cuda"


def _types(replaced: Replacements) -> None:
    for name in _TYPES:
        facts = {"__module__": "torch.cuda", "dtype": getattr(torch, name).dtype}
        replaced.set(torch.cuda, name, TensorType(name, (), facts))


def _tools(replaced: Replacements) -> None:
    runtime = SimpleNamespace(cudaProfilerStart=lambda: 0, cudaProfilerStop=lambda: 0)
    for name, value in {
        "cudart": lambda: runtime,
        "check_error": nothing,
        "set_per_process_memory_fraction": nothing,
        "current_blas_handle": refused("torch.cuda.current_blas_handle", "there is no cuBLAS on a CPU"),
    }.items():
        replaced.set(torch.cuda, name, value)
    for name in ("start", "stop"):
        replaced.set(torch.cuda.profiler, name, nothing)
    instead = "the memory is the CPU's; torch.cuda.memory_stats has the bytes of tensors on the emulated GPU"
    for name in ("memory_snapshot", "_snapshot", "_dump_snapshot", "_record_memory_history"):
        for owner in (torch.cuda, torch.cuda.memory):
            if hasattr(owner, name):
                replaced.set(owner, name, refused(f"torch.cuda.memory.{name}", instead))
