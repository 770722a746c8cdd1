# SPDX-License-Identifier: Apache-2.0
"""The PyTorch modules of a release of Transformer Engine, imported on a machine without CUDA.

A release's Python files come from the checkout of Transformer Engine (``repositories``) and run as they are. The caller gives a module in
place of the compiled extension. PyTorch answers as on a machine with one H100.

``fp8lab.te`` is another way: a release as pip installs it, whole, and one in a process. Here releases from 0.2 on, of which pip has
no wheels before 1.9, take turns in one process, with an extension that keeps a trace and computes nothing.
"""

import atexit
import contextlib
import copy
import dataclasses
import functools
import importlib
import inspect
import io
import os
import shutil
import sys
import tarfile
import tempfile
import types
from pathlib import Path
from types import SimpleNamespace

import pytest
import repositories
from releases import number_of

EXTENSIONS = ("transformer_engine_extensions", "transformer_engine_torch")
FAKES = ("pydantic", "pydantic.dataclasses", "onnx", "onnxscript", "onnx_ir", "onnxscript.onnx_opset")
ENVIRONMENT = {"NVTE_TORCH_COMPILE": "0", "NVTE_FRAMEWORK": "pytorch"}
PACKAGES = (
    "transformer_engine",
    "transformer_engine.pytorch",
    "transformer_engine.common",
    "transformer_engine.pytorch.module",
)


@functools.cache
def files_of(tag: str) -> str:
    """A folder with the Python files of the package at this tag."""
    try:
        archive = repositories.git(repositories.TRANSFORMER_ENGINE, "archive", tag, "transformer_engine")
    except repositories.NoCheckoutError as error:
        pytest.skip(str(error))
    folder = tempfile.mkdtemp(prefix="fp8lab-te-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            if member.isfile() and member.name.endswith(".py"):
                target = Path(folder, member.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(files.extractfile(member).read())
    return folder


def ignored(*_args, **_kwargs) -> None:
    pass


class FakeMeta(type):
    """A class whose unknown attributes are further such classes: annotations and tables of constants may name them."""

    def __getattr__(cls, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        value = FakeMeta(f"{cls.__name__}.{name}", (), {"__init__": ignored})
        setattr(cls, name, value)
        return value


class FakeModule(types.ModuleType):
    """A module that has every name."""

    __path__: list[str] = []

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        value = FakeMeta(name, (), {"__init__": ignored})
        setattr(self, name, value)
        return value


def on_cpu(function):
    """The function with its device dropped."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        kwargs.pop("device", None)
        kwargs.pop("pin_memory", None)
        return function(*args, **kwargs)

    return call


class Range(contextlib.ContextDecorator):
    def __init__(self, *_args, **_kwargs) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return False


class Stream:
    def __init__(self, *_args, **_kwargs) -> None:
        self.cuda_stream = 0

    def __getattr__(self, name: str):
        return lambda *args, **kwargs: None


def answers() -> list[tuple[object, str, object]]:
    """What PyTorch says about the device: object, attribute, value."""
    import torch

    h100 = SimpleNamespace(
        major=9, minor=0, multi_processor_count=132, total_memory=80 << 30, name="NVIDIA H100 80GB HBM3"
    )
    nothing = lambda *args, **kwargs: None  # noqa: E731
    cuda = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: torch.device("cpu"),
        "get_device_properties": lambda *args: h100,
        "get_device_capability": lambda *args: (9, 0),
        "get_device_name": lambda *args: h100.name,
        "current_stream": lambda *args: Stream(),
        "Stream": Stream,
        "Event": Stream,
        "stream": Range,
        "device": Range,
        "synchronize": nothing,
        "get_rng_state": lambda *args: torch.zeros(1, dtype=torch.uint8),
        "is_current_stream_capturing": lambda: False,
        "nvtx": SimpleNamespace(range=Range, range_push=nothing, range_pop=nothing, mark=nothing),
    }
    return [(torch.cuda, name, value) for name, value in cuda.items()] + [
        (torch.Tensor, "is_cuda", property(lambda self: True)),
        (torch.Tensor, "cuda", lambda self, *args, **kwargs: self),
        (torch.version, "cuda", "12.8"),
    ]


def factories() -> list[tuple[object, str, object]]:
    """What makes tensors on the CPU. Not for imports: TorchScript compiles what it finds under these names."""
    import torch

    names = ("zeros", "ones", "full", "tensor", "arange", "zeros_like", "ones_like", "full_like")
    made = [(torch, name, on_cpu(getattr(torch, name))) for name in names]
    return made + [(torch, name, unwritten(on_cpu(getattr(torch, name)))) for name in ("empty", "empty_like")]


def unwritten(function):
    """The function with all bits of new bytes set, so that a test sees what no kernel wrote."""

    def call(*args, **kwargs):
        tensor = function(*args, **kwargs)
        return tensor.fill_(255 if tensor.dtype.is_signed is False else -1) if tensor.dtype.itemsize == 1 else tensor

    return call


@contextlib.contextmanager
def replaced(values):
    missing = object()
    before = [(owner, name, vars(owner).get(name, missing)) for owner, name, _ in values]
    for owner, name, value in values:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def bare_package(name: str, folder: str) -> types.ModuleType:
    """A package whose __init__ is not run: it would import the compiled library and every module."""
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(folder, *name.split("."))]
    return package


class Release:
    """The modules of a release, and the environment in which their code runs."""

    def __init__(self, tag: str, extension: types.ModuleType, operators) -> None:
        self.torch = pytest.importorskip("torch", reason="Transformer Engine's modules are PyTorch code")
        import torch._dynamo
        import torch.distributed.fsdp
        import torch.distributed.tensor  # noqa: F401

        self.tag = number_of(tag)
        self.folder = files_of(tag)
        self.modules = {name: extension for name in EXTENSIONS}
        for name in PACKAGES:
            self.modules[name] = bare_package(name, self.folder)
        kernels = Path(self.folder, "transformer_engine", "pytorch").glob("triton/*.py")
        triton = [f"transformer_engine.pytorch.triton.{file.stem}" for file in kernels]
        for name in (*FAKES, "transformer_engine.pytorch.triton", *triton):
            self.modules[name] = FakeModule(name)
        self.modules["pydantic.dataclasses"].dataclass = dataclasses.dataclass
        self.modules["transformer_engine.pytorch"].torch_version = lambda: (2, 13, 0)
        self.roots = {name.split(".")[0] for name in self.modules}
        self.values = [*answers(), (torch.ops, "tex_ts", operators)]
        self.recipe = self.load("common.recipe")
        if self.tag >= (2, 9):
            self.load("pytorch.tensor")  # it and quantized_tensor import each other
        # 1. Until 0.7 all modules were in one file.
        folder = os.path.join(self.folder, "transformer_engine", "pytorch")
        if os.path.exists(os.path.join(folder, "module.py")):
            del self.modules["transformer_engine.pytorch.module"]
            self.linear = self.base = self.load("pytorch.module")
        else:
            self.linear, self.base = self.load("pytorch.module.linear"), self.load("pytorch.module.base")
        # 2. The file of the global state was renamed in 2.9.
        self.state = self.load("pytorch.quantization" if self.tag >= (2, 9) else "pytorch.fp8")
        self.distributed = self.load("pytorch.distributed")
        for name in ("_get_cuda_rng_state", "_set_cuda_rng_state"):
            setattr(self.distributed, name, ignored)
        self.distributed.has_te_modules = lambda *args: True
        self.manager = getattr(self.state, "FP8GlobalStateManager", None)
        owner = self.manager or self.state
        kept = (bool, int, str, list, dict, type(None))
        self.globals = (
            owner,
            {
                name: copy.copy(v)
                for name, v in vars(owner).items()
                if isinstance(v, kept) and not name.startswith("__")
            },
        )
        self.autocast = self.state.autocast if self.tag >= (2, 9) else self.state.fp8_autocast
        if self.tag >= (2,):
            self.float8_classes, self.storage_has_fake_dtype = self.tensor_classes()
        self.values += factories()
        self.regions: list = []  # of autocast, the innermost last
        atexit.register(self.leave_regions)

    def leave_regions(self) -> None:
        """Leaves the regions that a failed run left open: the collector of garbage would do it at any time."""
        while self.regions:
            with contextlib.suppress(Exception):
                self.regions.pop().__exit__(None, None, None)

    def tensor_classes(self):
        tensor = self.load("pytorch.tensor.float8_tensor")
        if self.tag >= (2, 9):
            storage = self.load("pytorch.tensor.storage.float8_tensor_storage").Float8TensorStorage
        else:
            storage = self.load("pytorch.tensor._internal.float8_tensor_base").Float8TensorBase
        return (tensor.Float8Tensor, storage), "fake_dtype" in inspect.signature(storage.__new__).parameters

    @contextlib.contextmanager
    def active(self):
        """Runs the release's code: its modules are the imported ones, and PyTorch answers as on an H100."""
        before = {name: os.environ.get(name) for name in ENVIRONMENT}
        os.environ.update(ENVIRONMENT)
        try:
            with self.imported(), replaced(self.values):
                yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})

    @contextlib.contextmanager
    def imported(self):
        """The modules of this release stand in sys.modules, for imports inside functions."""
        others = self.taken_out()
        sys.modules.update(self.modules)
        try:
            yield
        finally:
            self.modules.update(self.taken_out())
            sys.modules.update(others)

    def taken_out(self) -> dict[str, types.ModuleType]:
        found = {name: module for name, module in sys.modules.items() if name.split(".")[0] in self.roots}
        for name in found:
            del sys.modules[name]
        return found

    def load(self, name: str) -> types.ModuleType:
        with self.active():
            return importlib.import_module(f"transformer_engine.{name}")
