# SPDX-License-Identifier: Apache-2.0
"""Switching a device on and off: PyTorch's answers, the mode, and where Transformer Engine's imports go meanwhile."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fp8lab._arrays import check_bool, check_choice
from fp8lab.literals import DeviceFunctionsName, EmulatedDeviceName, FunctionsName
from fp8lab.te._cuda import Replacements, seen_on_gpu, stand_ins
from fp8lab.te._distributed import coalescing_manager_of
from fp8lab.te._draws import CudaGenerator, cuda_generator
from fp8lab.te._releases import NEWEST, installed_release, releases
from fp8lab.te.devices import Device, find_device

__all__ = ["Activation", "activate", "active_device", "active_functions", "register_operators"]

EXTENSION = "transformer_engine_torch"
#: Child processes read these: the device, whether all code is to see a GPU, and the kernels' functions.
DEVICE_VARIABLE, PRETEND_VARIABLE = "FP8LAB_TE_DEVICE", "FP8LAB_TE_PRETEND_CUDA"
FUNCTIONS_VARIABLE = "FP8LAB_TE_FUNCTIONS"

_TRITON = "transformer_engine.pytorch.triton"
_ONNX = "transformer_engine.pytorch.te_onnx_extensions"
_MSAMP = "msamp"
#: What Transformer Engine reads when it is imported or run: of attention what PyTorch computes.
_SETTINGS = {"NVTE_FRAMEWORK": "pytorch", "NVTE_FLASH_ATTN": "0", "NVTE_FUSED_ATTN": "0"}
_INSTALL = (
    f"pip install transformer_engine=={NEWEST} torch onnxscript einops pydantic packaging pyyaml "
    "(its Python, without [pytorch], needs no CUDA)"
)


class _Loader(importlib.abc.Loader):
    """Makes a module of a function."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module: types.ModuleType = self._make(spec.name)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _CommonLoader(importlib.abc.Loader):
    """Runs ``transformer_engine.common`` without the CUDA libraries, and has it take this extension."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self._own.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        before = os.environ.get("NVTE_PROJECT_BUILDING")
        os.environ["NVTE_PROJECT_BUILDING"] = "1"  # the package then loads no library
        try:
            self._own.exec_module(module)
        finally:
            if before is None:
                del os.environ["NVTE_PROJECT_BUILDING"]
        if installed_release().loads_file:  # which pytorch/__init__.py looks for, by these functions
            module.get_te_path = lambda: Path(__file__).parent / "_loaded"  # type: ignore[attr-defined]
            module._get_sys_extension = lambda: "py"  # type: ignore[attr-defined]
            return
        own_load: Any = vars(module)["load_framework_extension"]

        def load_framework_extension(framework: str) -> None:
            if framework != "torch":
                own_load(framework)
                return
            importlib.import_module(EXTENSION)

        module.load_framework_extension = load_framework_extension  # type: ignore[attr-defined]


class _TensorLoader(importlib.abc.Loader):
    """Runs Transformer Engine's module of quantized tensors; PyTorch dispatches to them under the mode."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self._own.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        import torch

        from fp8lab.te._mode import under

        self._own.exec_module(module)
        tensor: Any = vars(module)["QuantizedTensor"]

        def wrap(kind: Any, /, **_options: Any) -> None:
            if "__torch_dispatch__" not in vars(kind):
                return
            own = vars(kind)["__torch_dispatch__"].__func__

            def dispatch(cls: Any, *args: Any, **options: Any) -> Any:
                if _ACTIVATION is None or not _ACTIVATION.is_active:
                    return own(cls, *args, **options)
                return under(_ACTIVATION.mode, own)(cls, *args, **options)

            kind.__torch_dispatch__ = classmethod(dispatch)

        wrap(tensor)
        tensor.__init_subclass__ = classmethod(wrap)
        tensor.untyped_storage = lambda self: torch.UntypedStorage(0)  # on its device there is none


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the extension, and what Transformer Engine imports of Triton, here."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == EXTENSION:
            from fp8lab.te.extension import make_extension

            return importlib.machinery.ModuleSpec(name, _Loader(make_extension), is_package=True)
        if name == _TRITON or name.startswith(_TRITON + "."):
            from fp8lab.te.extension import make_triton_module

            return importlib.machinery.ModuleSpec(name, _Loader(make_triton_module), is_package=name == _TRITON)
        if name == _ONNX and importlib.machinery.PathFinder.find_spec(name, path, target) is not None:
            from fp8lab.te.extension import make_refusing_module

            return importlib.machinery.ModuleSpec(name, _Loader(make_refusing_module))
        if name == _MSAMP and importlib.machinery.PathFinder.find_spec(name, path, target) is None:
            return importlib.machinery.ModuleSpec(name, _Loader(_make_msamp), is_package=True)
        if name in _LOADERS:
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _LOADERS[name](spec.loader)
            return spec
        return None

    def find_distributions(self, context: Any = None) -> list[importlib.metadata.Distribution]:
        """MS-AMP, by which accelerate decides whether it is there. One that is installed comes first."""
        name = getattr(context, "name", None)
        if name is None or name.lower().replace("_", "-") != "ms-amp":
            return []
        # Others are asked for while the modules that this one needs are imported.
        from fp8lab.msamp._module import Distribution

        installed = importlib.metadata.MetadataPathFinder.find_distributions(context)
        return [] if any(True for _ in installed) else [Distribution()]


def _make_msamp(name: str) -> types.ModuleType:
    """The module, and DistributedDataParallel with its gradients, as an import of MS-AMP does it."""
    import torch

    from fp8lab.msamp import FP8DistributedDataParallel
    from fp8lab.msamp._module import make_module

    assert _ACTIVATION is not None
    _ACTIVATION.replace(torch.nn.parallel, "DistributedDataParallel", FP8DistributedDataParallel)
    return make_module(name)


_LOADERS: dict[str, Any] = {
    "transformer_engine.common": _CommonLoader,
    "transformer_engine.pytorch.quantized_tensor": _TensorLoader,
    "transformer_engine.pytorch.tensor.quantized_tensor": _TensorLoader,  # until 2.8
}


class Activation:
    """A device that is emulated; leaving it as a context, or ``deactivate()``, gives PyTorch's own answers back."""

    def __init__(self, device: Device, pretend_cuda: bool, functions: FunctionsName) -> None:
        self.device = device
        self.pretend_cuda = pretend_cuda
        self.functions = functions
        self.generator = cuda_generator(device)
        self._replaced = Replacements()
        self._finder = _Finder()
        self._environment: dict[str, str | None] = {}
        self._mode: Any = None
        self._depth = 0

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        import torch._dynamo
        import torch.distributed.fsdp
        import torch.distributed.tensor  # noqa: F401  # before answers change: they ask for the GPU

        from fp8lab.te._mode import CudaToCpu, under
        from fp8lab.te._spellings import set_spellings

        for name, value in _SETTINGS.items():
            self._environment[name] = os.environ.get(name)
            os.environ.setdefault(name, value)
        coalescing = coalescing_manager_of(torch.distributed._coalescing_manager)
        self._replaced.set(torch.distributed, "_coalescing_manager", coalescing)
        stand_ins(self._replaced, self.device, self.generator, self.pretend_cuda)
        if not hasattr(torch.onnx, "_type_utils"):  # Transformer Engine 1 imports it, for exports to ONNX
            self._replaced.set(torch.onnx, "_type_utils", types.ModuleType("torch.onnx._type_utils"))
        sys.meta_path.insert(0, self._finder)
        self._mode = CudaToCpu(self.generator, self._sees_gpu, self.pretend_cuda)
        set_spellings(self._replaced, self._mode, self.device)
        run_backward = torch.autograd._engine_run_backward  # which calls hooks and functions of programs
        self._replaced.set(torch.autograd, "_engine_run_backward", under(self._mode, run_backward))
        hooks = torch.autograd.graph.saved_tensors_hooks
        own_init = hooks.__init__

        def init(this: Any, pack: Any, unpack: Any) -> None:  # recomputation runs in such a hook
            own_init(this, under(self._mode, pack), under(self._mode, unpack))

        self._replaced.set(hooks, "__init__", init)
        self._mode.__enter__()

    def _sees_gpu(self, depth: int) -> bool:
        return seen_on_gpu(self.pretend_cuda, depth + 1)

    def deactivate(self) -> None:
        """Ends the emulation. Modules of Transformer Engine stay imported, and compute nothing until it begins
        again."""
        if self._depth == 0:
            return
        self._depth -= 1
        if self._depth:
            return
        self._mode.__exit__(None, None, None)
        sys.meta_path.remove(self._finder)
        spec = getattr(sys.modules.get(_MSAMP), "__spec__", None)
        if spec is not None and isinstance(spec.loader, _Loader):
            del sys.modules[_MSAMP]
        self._replaced.undo()
        for name, value in self._environment.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Has an attribute be another one for as long as the device is emulated."""
        self._replaced.set(owner, name, value)

    @property
    def mode(self) -> Any:
        """The mode over PyTorch's functions while it is on."""
        return self._mode

    @property
    def is_active(self) -> bool:
        """Whether it is on."""
        return self._depth > 0

    def __enter__(self) -> Activation:
        return self

    def __exit__(self, *_error: object) -> None:
        self.deactivate()

    def __repr__(self) -> str:
        return f"<fp8lab.te.Activation of {self.device}: {'on' if self.is_active else 'off'}>"


_ACTIVATION: Activation | None = None


def active_device() -> Device:
    """The device that is emulated. RuntimeError while none is."""
    if _ACTIVATION is None or not _ACTIVATION.is_active:
        raise RuntimeError("no device is emulated: call fp8lab.te.activate, or run python -m fp8lab.te script.py")
    return _ACTIVATION.device


def active_functions() -> str:
    """Where the functions of its kernels come from: one of ``fp8lab.operators.functions()``."""
    active_device()
    assert _ACTIVATION is not None
    return _ACTIVATION.functions


def active_generator() -> CudaGenerator:
    """Its generator."""
    active_device()
    assert _ACTIVATION is not None
    return _ACTIVATION.generator


def register_operators(operators: Any) -> None:
    """Has ``torch.ops.tex_ts`` be these functions, for as long as the device is emulated."""
    import torch

    assert _ACTIVATION is not None
    _ACTIVATION.replace(torch.ops, "tex_ts", operators)


def activate(
    device: EmulatedDeviceName = "h100",
    *,
    pretend_cuda: bool = False,
    functions: DeviceFunctionsName = "correctly_rounded",
) -> Activation:
    """Emulates a device for NVIDIA's Transformer Engine, whose own Python then runs on this CPU with the GPU's bits.

    Call it before ``transformer_engine`` is imported. Tensors on "cuda" are the CPU's, and the draws ``rand``,
    ``randn``, ``uniform_`` and ``normal_`` on it have the GPU's values. A thread that was started before does not see
    it.

    Parameters
    ----------
    device : str
        The name of one of ``fp8lab.te.devices()``. A process emulates one.
    pretend_cuda : bool
        ``torch.cuda.is_available()`` is True for all code, and not for Transformer Engine alone.
    functions : str
        One of ``fp8lab.operators.functions()``. ``hopper`` has activations, softmaxes, norms of at most 16384
        columns (gradients: 2048), rope and routers, their gradients and those of biases, Adam and norms of tensors give
        the device's words; for h100, h100_pcie and h200, and release 2.20.2.

    Returns
    -------
    Activation
        Also a context, at whose end PyTorch answers as before.

    Raises
    ------
    ValueError
        For an unknown device, and for functions that it or the installed release does not have.
    RuntimeError
        Where a second device is asked for, where Transformer Engine was imported before, where it or PyTorch is not
        installed or has another release, and where another ``transformer_engine_torch`` is imported; the message says
        what to do.
    """
    global _ACTIVATION
    wanted, pretends = find_device(device), check_bool(pretend_cuda, "pretend_cuda")
    of_kernels = check_functions(wanted, functions)
    of_torch = sys.modules.get("fp8lab.torch._emulate")
    if of_torch is not None and of_torch.emulated_device() is not None:
        raise RuntimeError(f"fp8lab.torch emulates {of_torch.emulated_device().name} already: deactivate that first")
    if _ACTIVATION is None:
        _check_imports()
        _check_installed()
        _ACTIVATION = Activation(wanted, pretends, of_kernels)
    elif _ACTIVATION.device != wanted:
        raise RuntimeError(
            f"this process emulates {_ACTIVATION.device.name}, and Transformer Engine keeps what a device answers: "
            f"run {wanted.name} in a process of its own"
        )
    elif _ACTIVATION.pretend_cuda != pretends:
        raise RuntimeError(f"this process was activated with pretend_cuda={_ACTIVATION.pretend_cuda}: keep that")
    elif _ACTIVATION.functions != of_kernels:
        raise RuntimeError(f"this process was activated with functions={_ACTIVATION.functions!r}: keep that")
    _ACTIVATION._enter()
    return _ACTIVATION


def check_functions(device: Device, functions: FunctionsName) -> Any:
    """``functions``, which the device and the installed release must have."""
    chosen = check_choice(functions, "functions", ("correctly_rounded", "hopper"))
    if chosen != "correctly_rounded" and device.special_units != chosen:
        raise ValueError(f"functions of {chosen} are not those of {device.name}")
    if chosen != "correctly_rounded" and installed_release().name != NEWEST:
        raise ValueError(f"functions of {chosen} are known of the kernels of transformer_engine {NEWEST} alone")
    return chosen


def _check_imports() -> None:
    """Nothing of Transformer Engine is there yet."""
    if EXTENSION in sys.modules:
        where = getattr(sys.modules[EXTENSION], "__file__", None) or "of unknown origin"
        raise RuntimeError(
            f"another {EXTENSION} is imported ({where}): call fp8lab.te.activate before transformer_engine is imported"
        )
    if "transformer_engine" in sys.modules:
        raise RuntimeError(
            "transformer_engine was imported before: call fp8lab.te.activate first, or run the program with "
            "python -m fp8lab.te"
        )


def _check_installed() -> None:
    other = importlib.util.find_spec(EXTENSION)
    if other is not None:
        raise RuntimeError(
            f"another {EXTENSION} is installed ({other.origin}): uninstall it, or use an environment without it"
        )
    for package in ("torch", "transformer_engine"):
        if importlib.util.find_spec(package) is None:
            raise RuntimeError(f"fp8lab.te needs {package}, which is not installed: {_INSTALL}")
    found = importlib.metadata.version("transformer_engine")
    if found not in releases():
        raise RuntimeError(f"fp8lab.te is the extension of transformer_engine {', '.join(releases())}, and {found} is "
                           f"installed: {_INSTALL}")  # fmt: skip
