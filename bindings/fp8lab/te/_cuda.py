# SPDX-License-Identifier: Apache-2.0
"""What PyTorch answers and does for "cuda" while a device is emulated: its tensors are on the CPU.

Streams and ranges of nvtx are stand-ins that do nothing, for a CPU computes one call after the other; events have its
time, and memory figures count tensors on the GPU.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from fp8lab.te._draws import CudaGenerator, warn_of_cpu_factor, warn_of_cpu_time
from fp8lab.te.devices import Device

__all__ = ["Replacements", "is_of_transformer_engine", "nothing", "refused", "seen_on_gpu", "stand_ins"]

#: What the emulated libraries are: CUDA, cuBLASLt and cuDNN, which Transformer Engine's support checks ask for.
CUDA_VERSION = "13.0"
CUBLASLT_VERSION = 130100
CUDNN_VERSION = 91900


class Replacements:
    """Attributes that were set to other values, to be set back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute; what it was is kept."""
        self._before.append((owner, name, vars(owner).get(name, self)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Sets all of them back, the last one first."""
        while self._before:
            owner, name, value = self._before.pop()
            if value is self:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def is_of_transformer_engine(depth: int = 2) -> bool:
    """Whether the caller of the caller is Transformer Engine's own code."""
    return str(sys._getframe(depth).f_globals.get("__name__", "")).startswith("transformer_engine")


def _is_torch(depth: int = 2) -> bool:
    return str(sys._getframe(depth).f_globals.get("__name__", "")).split(".")[0] == "torch"


def nothing(*_args: Any, **_options: Any) -> None:
    """What there is nothing to do for on a CPU."""


class _Range(contextlib.ContextDecorator):
    """A context that does nothing: a range of nvtx, a stream, a device, a memory pool."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


class _Stream(_Range):
    """A stream: everything that was given to it is done."""

    cuda_stream = 0
    priority = 0
    device_index = 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, -5)

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        taken = _Event() if event is None else event
        taken.record()
        return taken

    synchronize = wait_event = wait_stream = nothing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream)

    def __hash__(self) -> int:
        return 0


class _Event(_Range):
    """An event: it has happened. The time between two is the CPU's, of which the first call warns."""

    wait = synchronize = nothing
    _at: float | None = None

    def record(self, _stream: Any = None) -> None:
        self._at = time.perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to the other one."""
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        warn_of_cpu_time()
        return 1000 * float(end_event._at - self._at)


def refused(name: str, instead: str) -> Callable[..., Any]:
    """A function that is not provided."""

    def refuse(*_args: Any, **_options: Any) -> Any:
        raise NotImplementedError(f"{name} is not provided by fp8lab.te: {instead}")

    return refuse


class _Graph:
    """CUDA graphs: there are none on a CPU."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        refused("torch.cuda.CUDAGraph", "there are no CUDA graphs on a CPU; run the module without one")()


def stand_ins(replaced: Replacements, device: Device, generator: CudaGenerator, pretend_cuda: bool) -> None:
    """Puts the device's answers in place of PyTorch's."""
    import torch

    _device_answers(replaced, torch, device, pretend_cuda)
    _streams(replaced, torch)
    _memory(replaced, torch, device)
    _random(replaced, torch, generator)
    _tensors(replaced, torch, pretend_cuda)
    _autocast(replaced, torch)
    _collectives(replaced, torch)
    _custom_operators(replaced, torch)
    _compiled(replaced, torch)


def _device_answers(replaced: Replacements, torch: Any, device: Device, pretend_cuda: bool) -> None:
    properties = SimpleNamespace(
        name=device.title,
        major=device.capability[0],
        minor=device.capability[1],
        multi_processor_count=device.sms,
        max_threads_per_multi_processor=device.threads_per_sm,
        total_memory=device.memory_gib << 30,
        warp_size=32,
    )
    own_is_available = torch.cuda.is_available
    own_count = torch.cuda.device_count

    def is_available() -> bool:
        if _is_torch():
            return bool(own_is_available())
        return pretend_cuda or is_of_transformer_engine()

    def device_count() -> int:
        if _is_torch():
            return int(own_count())
        return 1 if pretend_cuda or is_of_transformer_engine() else int(own_count())

    answers: dict[str, Any] = {
        "is_available": is_available,
        "device_count": device_count,
        "current_device": lambda: 0,
        "set_device": nothing,
        "get_device_properties": lambda *_args, **_options: properties,
        "get_device_capability": lambda *_args, **_options: device.capability,
        "get_device_name": lambda *_args, **_options: device.title,
        "get_arch_list": lambda: [f"sm_{device.arch}"],
        "is_bf16_supported": lambda *_args, **_options: True,
        "is_initialized": lambda: False,
        "init": nothing,
        "_lazy_init": nothing,
        "device": _Range,
    }
    for name, value in answers.items():
        replaced.set(torch.cuda, name, value)
    replaced.set(torch.version, "cuda", CUDA_VERSION)


def _streams(replaced: Replacements, torch: Any) -> None:
    current = _Stream()
    nvtx = SimpleNamespace(range=_Range, range_push=nothing, range_pop=nothing, mark=nothing)
    answers: dict[str, Any] = {
        "Stream": _Stream,
        "ExternalStream": _Stream,
        "Event": _Event,
        "stream": _Range,
        "StreamContext": _Range,
        "current_stream": lambda *_args, **_options: current,
        "default_stream": lambda *_args, **_options: current,
        "set_stream": nothing,
        "synchronize": nothing,
        "is_current_stream_capturing": lambda: False,
        "CUDAGraph": _Graph,
        "graph": refused("torch.cuda.graph", "there are no CUDA graphs on a CPU; run the module without one"),
        "nvtx": nvtx,
    }
    for name, value in answers.items():
        replaced.set(torch.cuda, name, value)


def _memory(replaced: Replacements, torch: Any, device: Device) -> None:
    """Figures of memory: the bytes of what was made on the GPU, or computed there by PyTorch, and still lives."""
    from fp8lab.te._mode import bytes_on_gpu

    total = device.memory_gib << 30
    for name in ("empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect"):
        replaced.set(torch.cuda, name, nothing)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        replaced.set(torch.cuda, name, lambda *_args, **_options: bytes_on_gpu())
    for owner in (torch.cuda, torch.cuda.memory):
        replaced.set(owner, "mem_get_info", lambda *_args, **_options: (total - bytes_on_gpu(), total))
    kinds = ("active_bytes", "allocated_bytes", "requested_bytes", "reserved_bytes")
    figures = [f"{kind}.all.{which}" for kind in kinds for which in ("current", "peak")]

    def memory_stats(*_args: Any, **_options: Any) -> dict[str, int]:
        return defaultdict(int, {"num_alloc_retries": 0, "num_ooms": 0, **dict.fromkeys(figures, bytes_on_gpu())})

    for owner in (torch.cuda, torch.cuda.memory):
        replaced.set(owner, "memory_stats", memory_stats)
    own_summary = torch.cuda.memory_summary
    replaced.set(torch.cuda, "memory_summary", lambda _device=None, abbreviated=False: own_summary(0, abbreviated))


def _random(replaced: Replacements, torch: Any, generator: CudaGenerator) -> None:
    from fp8lab.te._mode import is_on_gpu

    answers: dict[str, Any] = {
        "manual_seed": generator.manual_seed,
        "manual_seed_all": generator.manual_seed,
        "initial_seed": generator.initial_seed,
        "seed": generator.seed,
        "seed_all": generator.seed,
        "get_rng_state": lambda *_args, **_options: generator.get_state(),
        "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state": lambda new_state, *_args, **_options: generator.set_state(new_state),
        "set_rng_state_all": lambda states: [generator.set_state(state) for state in states][:0],
        "default_generators": (generator,),
        "_is_in_bad_fork": lambda: False,
    }
    for owner in (torch.cuda, torch.cuda.random):
        for name, value in answers.items():
            if hasattr(owner, name):
                replaced.set(owner, name, value)
    own_orthogonal = torch.nn.init.orthogonal_

    @functools.wraps(own_orthogonal)
    def orthogonal_(tensor: Any, *args: Any, **options: Any) -> Any:
        if is_on_gpu(tensor):
            warn_of_cpu_factor("orthogonal_")
        return own_orthogonal(tensor, *args, **options)

    replaced.set(torch.nn.init, "orthogonal_", orthogonal_)


def _tensors(replaced: Replacements, torch: Any, pretend_cuda: bool) -> None:
    """What a tensor says of where it is: to Transformer Engine, and with ``pretend_cuda`` to all but PyTorch, on the
    GPU."""
    from fp8lab.te._mode import is_on_cpu

    own = torch.Tensor.is_cpu.__get__
    own_wrapper = torch.Tensor._make_wrapper_subclass

    def make_wrapper(*args: Any, **options: Any) -> Any:
        if len(args) > 7:  # PyTorch's own, which are where they say
            return own_wrapper(*args, **options)
        return own_wrapper(*args, **{**options, "device": torch.device("cpu")})

    def own_is_cpu(tensor: Any) -> bool:
        with torch._C.DisableTorchFunction():  # a mode would be asked for the property that stands there now
            return bool(own(tensor))

    def is_named(tensor: Any) -> bool:
        """Whether the program put it on the CPU; one that does not see the GPU has nowhere else to put it."""
        return pretend_cuda and is_on_cpu(tensor)

    def is_cpu(tensor: Any) -> bool:
        return own_is_cpu(tensor) and (is_named(tensor) or not seen_on_gpu(pretend_cuda, 2))

    def is_cuda(tensor: Any) -> bool:
        return own_is_cpu(tensor) and not is_named(tensor) and seen_on_gpu(pretend_cuda, 2)

    replaced.set(torch.Tensor, "is_cuda", property(is_cuda))
    replaced.set(torch.Tensor, "is_cpu", property(is_cpu))
    replaced.set(torch.Tensor, "_make_wrapper_subclass", staticmethod(make_wrapper))
    # What was saved for a GPU is loaded to the CPU.
    own_packages = list(torch.serialization._package_registry)
    restored = (5, lambda _obj: None, lambda obj, location: obj if location.startswith("cuda") else None)
    replaced.set(torch.serialization, "_package_registry", [restored, *own_packages])


def seen_on_gpu(pretend_cuda: bool, depth: int) -> bool:
    """Whether the code so many frames up, this function's own included, sees tensors on the GPU.

    Where that is the property ``device`` of a quantized tensor, it is who asked for that.
    """
    frame: Any = sys._getframe(depth)
    if frame.f_code.co_name == "device" and frame.f_back is not None:
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", ""))
    if name.startswith("transformer_engine"):
        return True
    return pretend_cuda and (not name.startswith("torch.") or name.startswith("torch.testing"))


def _autocast(replaced: Replacements, torch: Any) -> None:
    """Autocast of "cuda" is that of the CPU; where no type is given, it stays float16, as on a GPU."""
    own_init = torch.autocast.__init__
    own_enabled, own_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype

    def init(self: Any, device_type: str, dtype: Any = None, *args: Any, **options: Any) -> None:
        if device_type != "cuda":
            own_init(self, device_type, dtype, *args, **options)
            return
        dtype = torch.float16 if dtype is None else dtype
        is_wide = dtype is torch.float32  # which autocast takes on a GPU, and not on a CPU
        own_init(self, "cpu", torch.bfloat16 if is_wide else dtype, *args, **options)
        if is_wide:
            self.fast_dtype = dtype

    def device_of(device_type: Any) -> str:
        return "cpu" if device_type in (None, "cuda") else str(device_type)

    replaced.set(torch.autocast, "__init__", init)
    replaced.set(torch, "is_autocast_enabled", lambda device_type=None: own_enabled(device_of(device_type)))
    replaced.set(torch, "get_autocast_dtype", lambda device_type="cuda": own_dtype(device_of(device_type)))
    replaced.set(torch, "get_autocast_gpu_dtype", lambda: own_dtype("cpu"))


def _collectives(replaced: Replacements, torch: Any) -> None:
    """Groups of processes that ask for NCCL get Gloo, whose collectives take tensors of the CPU."""
    if not torch.distributed.is_available():
        return
    own_init, own_new = torch.distributed.init_process_group, torch.distributed.new_group

    def on_cpu(backend: Any) -> Any:
        return "gloo" if isinstance(backend, str) and "nccl" in backend else backend

    def init_process_group(backend: Any = None, *args: Any, **options: Any) -> None:
        options.pop("device_id", None)
        own_init("gloo" if backend is None else on_cpu(backend), *args, **options)

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **options: Any) -> Any:
        options.pop("device_id", None)
        return own_new(ranks, timeout, on_cpu(backend), *args, **options)

    for owner in (torch.distributed, torch.distributed.distributed_c10d):
        replaced.set(owner, "init_process_group", init_process_group)
        replaced.set(owner, "new_group", new_group)


def _custom_operators(replaced: Replacements, torch: Any) -> None:
    """What Transformer Engine registers with PyTorch for tensors on a GPU takes those of the CPU."""
    own = torch.library.custom_op

    def custom_op(name: str, fn: Any = None, /, **options: Any) -> Any:
        if options.get("device_types") == "cuda" and is_of_transformer_engine():
            options["device_types"] = None
        return own(name, fn, **options)

    replaced.set(torch.library, "custom_op", custom_op)


def _compiled(replaced: Replacements, torch: Any) -> None:
    """What Transformer Engine has PyTorch compile: functions of elements, which compiled code computes in float32 and
    rounds once at their ends. They run so without a compiler."""
    own = torch.compile

    def compile_function(model: Any = None, *args: Any, **options: Any) -> Any:
        if model is not None and is_of_transformer_engine():
            return _fused(torch, model)
        return own(model, *args, **options)

    replaced.set(torch, "compile", compile_function)


def _fused(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    halves = (torch.float16, torch.bfloat16)

    def is_float(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.is_floating_point()

    def widened(value: Any) -> Any:
        return value.float() if is_float(value) and value.dtype in halves else value

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        from fp8lab.te import torch_kernels

        known = torch_kernels.compiled(function.__name__, args, options)
        if known is not None:
            return known
        types = {one.dtype for one in (*args, *options.values()) if is_float(one)}
        wide = [widened(one) for one in args]
        made = function(*wide, **{name: widened(one) for name, one in options.items()})
        for given, used in zip(args, wide):
            if used is not given and used._version:  # it was written to
                given.copy_(used)
        if len(types) != 1 or not types <= set(halves):
            return made
        narrow = types.pop()
        results = made if isinstance(made, tuple) else (made,)
        rounded = tuple(one.to(narrow) if is_float(one) else one for one in results)
        return rounded if isinstance(made, tuple) else rounded[0]

    return call
