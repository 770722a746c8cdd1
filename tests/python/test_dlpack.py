# SPDX-License-Identifier: Apache-2.0
"""DLPack: codes as torch's own float8 tensors and back, over the same memory, by capsules of before and after 1.0."""

import ctypes
import gc
import pathlib
import re
import sys

import fp8lab
import numpy as np
import pytest
from fp8lab import _core

torch = pytest.importorskip("torch")
X = fp8lab.sample("normal", 64 * 64, seed=1).astype(np.float32).reshape(64, 64)


class Alone:
    """An array that tells its elements by DLPack alone, with or without versions."""

    def __init__(self, of, versioned=True):
        self.of, self.versioned = of, versioned

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **options):
        if "max_version" in options and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.of.__dlpack__(**options)


@pytest.mark.parametrize(("recipe", "dtype"), [("te_mxfp8", "float8_e4m3fn"), ("te_current_scaling_e5m2", "float8_e5m2"), ("te_nvfp4", "float4_e2m1fn_x2")])  # fmt: skip
def test_a_quantized_is_a_tensor_of_torch_over_the_same_memory(recipe, dtype):
    known = {one.name for one in fp8lab.recipes()}
    q = fp8lab.quantize(X, recipe if recipe in known else fp8lab.JustInTime("e5m2"))
    tensor = torch.from_dlpack(q)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.view(torch.uint8).numpy().tobytes() == q.codes.tobytes()
    assert tensor.data_ptr() == q.codes.ctypes.data


@pytest.mark.parametrize("versioned", [True, False])
def test_arrays_by_dlpack_alone_are_read_in_place(versioned):
    codes = fp8lab.encode(X, "e4m3")
    for dtype in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
        tensor = torch.from_numpy(codes).view(getattr(torch, dtype))
        assert fp8lab.decode(Alone(tensor, versioned)).tobytes() == fp8lab.decode(tensor).tobytes()
    for tensor in (
        torch.from_numpy(X),
        torch.from_numpy(X).half(),
        torch.from_numpy(X).bfloat16(),
        torch.from_numpy(X).T,
    ):
        assert np.array_equal(fp8lab.encode(Alone(tensor, versioned), "e4m3"), fp8lab.encode(tensor, "e4m3"))
    tensor = torch.zeros(4, dtype=torch.complex64)
    with pytest.raises(TypeError, match="x must be an array"):
        fp8lab.encode(Alone(tensor, versioned), "e4m3")


def test_type_codes_are_those_of_the_header():
    header = pathlib.Path(torch.__file__).parent / "include" / "ATen" / "dlpack.h"
    known = {name.lower(): int(code) for name, code in re.findall(r"kDL(Float\d_\w+) = (\d+)U", header.read_text())}
    names = {
        "e4m3": "float8_e4m3fn",
        "e8m0": "float8_e8m0fnu",
        "e2m3": "float6_e2m3fn",
        "e3m2": "float6_e3m2fn",
        "e2m1": "float4_e2m1fn",
    }
    for format in ("e3m4", "e4m3", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0", "e2m3", "e3m2", "e2m1"):
        capsule = _core.dlpack_capsule(np.zeros(8, np.uint8), format, True, False)
        fields = _fields(capsule)
        assert fields["code"] == known[names.get(format, f"float8_{format}")], format
        assert fields["bits"] * fields["lanes"] == {"e2m3": 6, "e3m2": 6}.get(format, 8)
        assert (fields["flags"] & 4 != 0) == (format in ("e2m3", "e3m2"))
    with pytest.raises(BufferError, match="no element type for codes of float16"):
        _core.dlpack_capsule(np.zeros(8, np.uint8), "float16", True, False)


def _fields(capsule):
    """Of a versioned capsule, by the layout of the header: version, context, deleter, flags, and the tensor."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = pointer(capsule, b"dltensor_versioned")
    flags = ctypes.c_uint64.from_address(at + 24).value
    code, bits = (ctypes.c_uint8.from_address(at + 32 + 20 + i).value for i in range(2))
    return {"flags": flags, "code": code, "bits": bits, "lanes": ctypes.c_uint16.from_address(at + 32 + 22).value}


def test_what_is_read_only_says_so():
    codes = np.zeros(8, np.uint8)
    codes.flags.writeable = False
    assert _fields(_core.dlpack_capsule(codes, "e4m3", True, False))["flags"] == 1
    assert _fields(_core.dlpack_capsule(codes.copy(), "e4m3", True, True))["flags"] == 2
    with pytest.raises(BufferError, match="only DLPack 1 tells read-only arrays"):
        _core.dlpack_capsule(codes, "e4m3", False, False)
    capsule = _core.dlpack_capsule(codes, "e4m3", True, False)
    assert _core.dlpack_facts(capsule) == (codes.ctypes.data, [8], [1], "float8_e4m3fn", True)
    assert not _core.dlpack_view(capsule, np.dtype(np.uint8)).flags.writeable
    q = fp8lab.quantize(X, "te_mxfp8")
    with pytest.raises(BufferError, match="lies on the host"):
        q.__dlpack__(stream=1)


def test_the_memory_lives_as_long_as_the_last_that_uses_it():
    codes = np.zeros(8, np.uint8)
    before = sys.getrefcount(codes)
    for versioned in (True, False):
        capsule = _core.dlpack_capsule(codes, "e4m3", versioned, False)
        assert sys.getrefcount(codes) == before + 1
        view = _core.dlpack_view(capsule, codes.dtype)
        del capsule
        view[0] = 7
        assert codes[0] == 7 and sys.getrefcount(codes) == before + 1
        del view
        assert sys.getrefcount(codes) == before
    tensor = torch.from_dlpack(fp8lab.quantize(X, "te_mxfp8"))
    gc.collect()
    assert tensor.view(torch.uint8).numpy().tobytes() == fp8lab.quantize(X, "te_mxfp8").codes.tobytes()
