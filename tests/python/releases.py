# SPDX-License-Identifier: Apache-2.0
"""The code of releases of delayed scaling, taken out of checkouts (``repositories``) by tag, and what compares fp8lab
with it."""

import ast
import ctypes
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import fp8lab
import numpy as np
import pytest
import repositories
from conftest import splitmix

TENSORS = 32
STEPS = 480 if "FP8LAB_EXHAUSTIVE" in os.environ else 40
FP8_MAX = {False: 448.0, True: 57344.0}


def number_of(tag: str) -> tuple[int, ...]:
    return tuple(int(part) for part in tag[1:].split("."))


def source_of(project: str, tag: str, path: str) -> str:
    try:
        return repositories.git(project, "show", f"{tag}:{path}").decode()
    except repositories.NoCheckoutError as error:
        pytest.skip(str(error))


def module_of(folder, header: str, sources: list[tuple[str, set[str]]]):
    """A module of the functions and classes of these names: TorchScript reads its file."""
    text = header
    for source, names in sources:
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names:
                first = min([node.lineno] + [decorator.lineno for decorator in node.decorator_list])
                body = lines[first - 1 : node.end_lineno]
                indent = len(body[0]) - len(body[0].lstrip())
                text += "\n\n" + "\n".join(line[indent:] for line in body) + "\n"
    file = folder / "real.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"real_{abs(hash(str(folder)))}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


KERNEL_HEADER = """
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
using std::isfinite; using std::isinf; using std::size_t;
#define __global__
#define __shared__ static
#define __launch_bounds__(n)
static void __syncthreads() {}
struct Index { int x = 0; };
static Index threadIdx, blockIdx;
enum class AmaxComputeAlgo { INVALID, MOST_RECENT, MAX };
"""


@functools.cache
def kernel_of(tag: str, kind: str):
    """The kernel of Transformer Engine by tag as a host function of one tensor.

    Its arguments: (reduced amax or None, history, scale, scale_inv, length, algorithm, scaled_max). The single kernel
    knows no reduced amax.
    """
    text = source_of(repositories.TRANSFORMER_ENGINE, tag, "transformer_engine/common/recipe/delayed_scaling.cu")
    kernels = (
        text[
            text.index("namespace amax_and_scale_update_impl {") : text.index(
                "}  // namespace amax_and_scale_update_impl"
            )
        ]
        + "}\n"
    )
    assert "constexpr size_t bsize = 256;" in kernels
    structs = ""
    if "struct AmaxParam {" in text:
        structs = text[text.index("struct AmaxParam {") : text.index("};", text.index("struct AmaxParam {")) + 2]
        structs += "\nstruct AmaxParams { AmaxParam param[1]; };\n"
    has_inverse = "float* scale_inv" in structs or "scale_inv_ptr" in kernels
    call = {
        (
            "single",
            True,
        ): "kernel(history, scale, scale_inv, nullptr, history, scale, scale_inv, length, 1, a, scaled_max);",
        ("single", False): "kernel(history, scale, history, scale, length, 1, a, scaled_max);",
        (
            "bulk",
            True,
        ): "AmaxParams p; p.param[0] = {1, history, scale, scale_inv}; kernel_bulk(reduced, p, length, a, scaled_max);",
        (
            "bulk",
            False,
        ): "AmaxParams p; p.param[0] = {1, history, scale}; kernel_bulk(reduced, p, length, a, scaled_max);",
    }[kind, has_inverse]
    return compiled(
        KERNEL_HEADER
        + structs
        + kernels.replace("bsize = 256;", "bsize = 1;")
        + "using namespace amax_and_scale_update_impl;\n"
        'extern "C" void update(float* reduced, float* history, float* scale, float* scale_inv, size_t length, int algo, float scaled_max) {\n'
        f"  const auto a = static_cast<AmaxComputeAlgo>(algo);\n  {call}\n}}\n"
    )


@functools.cache
def compiled(source: str):
    """The function `update` of this C++ source, which releases with the same kernel share."""
    compiler = shutil.which("g++") or shutil.which("clang++") or pytest.skip("no C++ compiler")
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        code.write_text(source)
        subprocess.run(
            [compiler, "-std=c++20", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o", library, code],
            check=True,
        )
        update = ctypes.CDLL(str(library)).update
    pointer, floats = ctypes.c_void_p, np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    update.argtypes = [pointer, floats, floats, floats, ctypes.c_size_t, ctypes.c_int, ctypes.c_float]
    update.restype = None
    return update


def amaxes_of(seed: int, steps: int = STEPS, tensors: int = TENSORS) -> np.ndarray:
    """Where quotients and logarithms round to another side: within 2 ulps of 2^k, 1.5 * 2^k and 1.75 * 2^k; and any."""
    words = splitmix(seed, steps * tensors).reshape(steps, tensors)
    corner = np.array([0x00000000, 0x00400000, 0x00600000], np.uint32)[(words % np.uint64(3)).astype(int)]
    exponent = ((words >> np.uint64(8)) % np.uint64(252) + np.uint64(1)).astype(np.uint32) << np.uint32(23)
    # Half of the tensors have amaxes of near binades, so that a window has a new maximum now and then.
    exponent[:, ::2] = (
        ((words >> np.uint64(8)) % np.uint64(12)).astype(np.uint32)[:, ::2] + np.uint32(127)
    ) << np.uint32(23)
    ulps = ((words >> np.uint64(20)) % np.uint64(5)).astype(np.int64) - 2
    bits = (exponent + corner).astype(np.int64) + ulps
    kind = (words >> np.uint64(32)) % np.uint64(32)
    anything = (words >> np.uint64(40)).astype(np.uint32) & np.uint32(0x7FFFFF)
    near = (words >> np.uint64(16)).astype(np.uint32) % np.uint32(1 << 27) + np.uint32(0x3E000000)
    bits = np.where(kind >= 20, near, bits).astype(np.uint32)
    bits = np.where(kind == 1, anything, bits)  # subnormal
    amaxes = bits.astype(np.uint32).view(np.float32).copy()
    amaxes[kind == 0] = 0
    strange = (words >> np.uint64(48)) % np.uint64(64)
    amaxes[strange == 0], amaxes[strange == 1] = np.inf, np.nan
    return amaxes


def same(ours, theirs) -> np.ndarray:
    ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs, np.float32)
    return (ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))


class Replay:
    """fp8lab's histories of some tensors, step by step beside another code, and where the two differ."""

    def __init__(self, backward: bool, tensors: int = TENSORS, **fields) -> None:
        self.histories = [fp8lab.AmaxHistory(fp8lab.Delayed(**fields), backward=backward) for _ in range(tensors)]
        self.steps = 0
        self.differences: list = []

    def record(self, amaxes) -> None:
        for history, amax in zip(self.histories, amaxes, strict=True):
            history.record_amax(amax)

    def update(self) -> None:
        for history in self.histories:
            history.update_scale()
        self.steps += len(self.histories)

    def compare(self, what: str, theirs) -> None:
        ours = np.array([getattr(history, what) for history in self.histories], np.float32)
        for i in np.flatnonzero(~same(ours, np.asarray(theirs)).reshape(len(ours), -1).all(1)):
            self.differences.append((self.steps, int(i), what, ours[i].tolist(), np.asarray(theirs)[i].tolist()))

    def check(self) -> None:
        assert not self.differences, (len({d[:2] for d in self.differences}), self.steps, self.differences[:3])
