# SPDX-License-Identifier: Apache-2.0
"""fp8lab.gpu: what it says of the machine, where arrays lie, and kernels on the host team."""

import os
import pathlib
import re
import subprocess
import sys
import types

import numpy as np
import pytest

import fp8lab
from fp8lab import _device_arrays as arrays
from fp8lab import gpu

ROOT = pathlib.Path(__file__).parents[2]
HEADERS = ROOT / "gpu" / "include" / "fp8lab" / "gpu"


def need_device(told: gpu.Status) -> None:
    """Skips a test where no CUDA device is, and fails it where FP8LAB_REQUIRE_GPU=1."""
    if told.count == 0 and os.environ.get("FP8LAB_REQUIRE_GPU") == "1":
        pytest.fail(f"FP8LAB_REQUIRE_GPU=1, and {told.why_none}")
    if told.count == 0:
        pytest.skip(told.why_none)


@pytest.fixture
def device():
    need_device(gpu.status())
    return gpu.devices()[0]


def test_without_a_device_tests_are_skipped_and_where_one_is_required_they_fail(monkeypatch):
    none = gpu.Status(0, "", "13.0", "90", "there is none")
    monkeypatch.delenv("FP8LAB_REQUIRE_GPU", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is none"):
        need_device(none)
    monkeypatch.setenv("FP8LAB_REQUIRE_GPU", "1")
    with pytest.raises(pytest.fail.Exception, match="FP8LAB_REQUIRE_GPU=1, and there is none"):
        need_device(none)


# 1. The machine and the kernels.


def test_a_machine_says_what_devices_it_has_or_why_none():
    told = gpu.status()
    assert gpu.device_count() == told.count == len(gpu.devices())
    assert (told.why_none == "") == (told.count > 0)
    if not told.cuda:
        assert "built without CUDA" in told.why_none and "-C cmake.define.FP8LAB_CUDA=ON" in told.why_none


def test_devices_are_described(device):
    assert device.name and device.capability >= (7, 0) and device.memory > 2**30 and device.processors > 0


def functors(path: pathlib.Path) -> list[str]:
    """The kernels of a header: structs that tell how many threads their teams have."""
    return re.findall(r"^struct (\w+) \{\n(?:  //[^\n]*\n)*  static constexpr unsigned threads\b", path.read_text(), re.MULTILINE)


def test_the_list_of_kernels_is_that_of_the_sources():
    found = {name: str(path.relative_to(HEADERS)) for path in sorted(HEADERS.rglob("*.hpp")) for name in functors(path)}
    assert len(found) > 1
    assert {kernel.name: kernel.header for kernel in gpu.kernels()} == found


# 2. Where arrays lie: fake ones, whose addresses nobody reads.


class OnDevice:
    """An array on a device by the CUDA Array Interface."""

    def __init__(self, shape, typestr="<f4", **told):
        own = {"shape": shape, "typestr": typestr, "data": (4096, False), "version": 3, "strides": None, "stream": 7}
        self.__cuda_array_interface__ = {**own, **told}


class ByDlpack:
    """An array that says so of itself by DLPack; its capsule is that of an array of NumPy."""

    def __init__(self, array, device=2):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, stream=None):
        assert stream == 1  # the default stream, on which kernels run
        return self.array.__dlpack__()


class FakeTensor:
    """A tensor of torch on a device."""

    is_cuda, layout, dtype, device = True, "strided", "torch.bfloat16", "cuda:0"

    def __init__(self, shape, contiguous=True):
        self.shape, self.contiguous = shape, contiguous

    def data_ptr(self):
        return 8192

    def is_contiguous(self):
        return self.contiguous


@pytest.fixture
def fake_torch(monkeypatch):
    def current_stream(of):
        assert of == "cuda:0"
        return types.SimpleNamespace(cuda_stream=99)

    def empty(shape, dtype, device):
        tensor = FakeTensor(shape)
        tensor.dtype, tensor.device = dtype, device
        return tensor

    module = types.SimpleNamespace(
        Tensor=FakeTensor, strided="strided", cuda=types.SimpleNamespace(current_stream=current_stream), empty=empty, uint8="torch.uint8"
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_arrays_on_a_device_tell_where_they_lie(fake_torch):
    one = arrays.input_buffer(OnDevice((3, 4), data=(4096, True)), "x")
    assert (one.address, one.shape, one.dtype, one.on_device, one.stream, one.size) == (4096, (3, 4), "float32", True, 7, 12)
    assert arrays.input_buffer(OnDevice((3,), "<V2", stream=None), "x").dtype == "bfloat16"
    assert arrays.input_buffer(OnDevice((3, 4), strides=(16, 4)), "x").place == ("x", 4096, 48, 4)
    assert arrays.input_buffer(OnDevice((0, 4), strides=(1, 1)), "x").size == 0
    tensor = arrays.input_buffer(FakeTensor((2, 5)), "x")
    assert (tensor.address, tensor.dtype, tensor.stream, tensor.library, tensor.size) == (8192, "bfloat16", 99, "torch", 10)
    host = np.ones((2, 3), np.float16)
    by_dlpack = arrays.input_buffer(ByDlpack(host), "x")
    assert (by_dlpack.address, by_dlpack.shape, by_dlpack.dtype, by_dlpack.on_device) == (host.ctypes.data, (2, 3), "float16", True)
    assert not arrays.input_buffer(host, "x").on_device
    assert not arrays.input_buffer(ByDlpack(host, device=1).array, "x").on_device


def test_element_types_of_dlpack_are_those_of_torch():
    torch = pytest.importorskip("torch")
    for name in ("float32", "float16", "bfloat16", "uint8", "float8_e4m3fn", "float8_e5m2"):
        try:
            found = arrays.input_buffer(ByDlpack(_Dlpack(torch.zeros(3, dtype=getattr(torch, name)))), "x")
        except (RuntimeError, BufferError):  # a torch whose DLPack has no such type
            continue
        assert found.dtype == name


class _Dlpack:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self):
        return self.tensor.__dlpack__()


REFUSED = {
    "not contiguous": (lambda: OnDevice((3, 4), strides=(4, 12)), ValueError, "x must be C-contiguous"),
    "every second": (lambda: OnDevice((3,), strides=(8,)), ValueError, "x must be C-contiguous"),
    "half an element apart": (lambda: OnDevice((3,), strides=(2,)), ValueError, "x must be C-contiguous"),
    "complex": (lambda: OnDevice((3,), "<c8"), TypeError, "x must be an array of .*, not <c8"),
    "big-endian": (lambda: OnDevice((3,), ">f4"), TypeError, "x must be an array of .*, not >f4"),
    "stream 0": (lambda: OnDevice((3,), stream=0), ValueError, "x tells stream 0"),
    "masked": (lambda: OnDevice((3,), mask=OnDevice((3,))), TypeError, "x must not be masked"),
    "no data": (lambda: OnDevice((3,), data=None), TypeError, "x has a __cuda_array_interface__ without"),
    "transposed of DLPack": (lambda: ByDlpack(np.ones((2, 3), np.float32).T), ValueError, "x must be C-contiguous"),
    "integers of DLPack": (lambda: ByDlpack(np.ones(3, np.int64)), TypeError, "x must be an array of .*, not type 0 of 64 bits"),
    "a producer that fails": (lambda: ByDlpack(None), TypeError, "x does not tell where it lies"),
}


@pytest.mark.parametrize("made, kind, message", REFUSED.values(), ids=REFUSED)
def test_arrays_that_a_kernel_cannot_read_are_refused(made, kind, message):
    with pytest.raises(kind, match=message):
        arrays.input_buffer(made(), "x")


def test_tensors_of_torch_that_a_kernel_cannot_read_are_refused(fake_torch):
    with pytest.raises(ValueError, match="x must be C-contiguous"):
        arrays.input_buffer(FakeTensor((2, 2), contiguous=False), "x")


def test_results_are_arrays_of_the_same_library(fake_torch):
    x = arrays.input_buffer(FakeTensor((2, 4)), "x")
    made = arrays.output_buffer(None, x, (2, 4), ("uint8",), "codes")
    assert isinstance(made.owner, FakeTensor) and (made.dtype, made.shape, made.owner.device) == ("uint8", (2, 4), "cuda:0")
    own = OnDevice((2, 4), "|u1")
    assert arrays.output_buffer(own, x, (2, 4), ("uint8",), "codes").owner is own
    with pytest.raises(TypeError, match="codes must be given: fp8lab does not know how test_gpu makes arrays"):
        arrays.output_buffer(None, arrays.input_buffer(OnDevice((2, 4)), "x"), (2, 4), ("uint8",), "codes")


WRONG_OUTPUTS = {
    "on the host": (lambda: np.zeros((2, 4), np.uint8), TypeError, "codes must lie on the device as x does"),
    "read-only": (lambda: OnDevice((2, 4), "|u1", data=(4096, True)), ValueError, "codes must be writable"),
    "other elements": (lambda: OnDevice((2, 4), "<f4"), TypeError, "codes must be uint8, not float32"),
    "another shape": (lambda: OnDevice((4, 2), "|u1"), ValueError, r"codes must have shape \(2, 4\), not \(4, 2\)"),
    "not contiguous": (lambda: OnDevice((2, 4), "|u1", strides=(1, 2)), ValueError, "codes must be C-contiguous"),
    "by DLPack": (lambda: ByDlpack(np.zeros((2, 4), np.uint8)), ValueError, "codes must be a torch tensor or have"),
}


@pytest.mark.parametrize("made, kind, message", WRONG_OUTPUTS.values(), ids=WRONG_OUTPUTS)
def test_outputs_that_a_kernel_cannot_write_are_refused(made, kind, message):
    x = arrays.input_buffer(OnDevice((2, 4)), "x")
    with pytest.raises(kind, match=message):
        arrays.output_buffer(made(), x, (2, 4), ("uint8",), "codes")


def test_outputs_on_the_host_are_checked_as_elsewhere():
    x = arrays.input_buffer(np.ones((2, 4), np.float32), "x")
    read_only = np.zeros((2, 4), np.uint8)
    read_only.flags.writeable = False
    for out, kind, message in [
        (OnDevice((2, 4), "|u1"), TypeError, "out must lie on the host"),
        ([1], TypeError, "out must be a NumPy array, not list"),
        (read_only, ValueError, "out must be C-contiguous, aligned and writable"),
    ]:
        with pytest.raises(kind, match=message):
            arrays.output_buffer(out, x, (2, 4), ("uint8",), "out")


def test_the_stream_is_the_one_given_or_the_arrays_own():
    x, y = arrays.input_buffer(OnDevice((1,), stream=None), "x"), arrays.input_buffer(OnDevice((1,), stream=5), "y")
    assert arrays.stream_of(None, [x]) == 0
    assert arrays.stream_of(None, [x, y]) == 5
    assert arrays.stream_of(12, [x, y]) == 12
    assert arrays.stream_of(types.SimpleNamespace(cuda_stream=3), [y]) == 3
    assert arrays.stream_of(types.SimpleNamespace(ptr=4), [y]) == 4
    for wrong in (True, -1, "0", object()):
        with pytest.raises(TypeError, match="stream must be a handle"):
            arrays.stream_of(wrong, [y])


def test_nothing_of_torch_is_needed():
    code = "import sys; sys.modules['torch'] = None; import fp8lab; print(fp8lab.gpu.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
