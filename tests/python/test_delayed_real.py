# SPDX-License-Identifier: Apache-2.0
"""Delayed scaling against the code of each release: its functions are taken out of a git directory by tag, and run.

FP8LAB_TE_GIT, FP8LAB_MSAMP_GIT and FP8LAB_AO_GIT name git directories of NVIDIA/TransformerEngine, Azure/MS-AMP and
pytorch/ao, with their tags. Transformer Engine's kernels are compiled for the host, with blocks of one thread.
"""

import ast
import ctypes
import importlib.util
import itertools
import math
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fp8lab
from conftest import splitmix

TENSORS = 32
STEPS = 480 if "FP8LAB_EXHAUSTIVE" in os.environ else 40
FP8_MAX = {False: 448.0, True: 57344.0}


def source_of(variable: str, tag: str, path: str) -> str:
    directory = os.environ.get(variable)
    if not directory:
        pytest.skip(f"{variable} names no git directory with the releases")
    return subprocess.run(["git", f"--git-dir={directory}", "show", f"{tag}:{path}"], capture_output=True, text=True, check=True).stdout


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


def amaxes_of(seed: int, steps: int = STEPS, tensors: int = TENSORS) -> np.ndarray:
    """Where quotients and logarithms round to another side: within 2 ulps of 2^k, 1.5 * 2^k and 1.75 * 2^k; and any."""
    words = splitmix(seed, steps * tensors).reshape(steps, tensors)
    corner = np.array([0x00000000, 0x00400000, 0x00600000], np.uint32)[(words % np.uint64(3)).astype(int)]
    exponent = ((words >> np.uint64(8)) % np.uint64(252) + np.uint64(1)).astype(np.uint32) << np.uint32(23)
    # Half of the tensors have amaxes of near binades, so that a window has a new maximum now and then.
    exponent[:, ::2] = (((words >> np.uint64(8)) % np.uint64(12)).astype(np.uint32)[:, ::2] + np.uint32(127)) << np.uint32(23)
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


# --- Transformer Engine: PyTorch code -------------------------------------------------------------------------------

TE_HEADER = """
import os
from typing import *
from types import SimpleNamespace
import torch
DelayedScaling = object
tex = SimpleNamespace(DType=object)
def jit_fuser(function):
    return torch.jit.script(function) if SCRIPTED else function
"""
TE_FUNCTIONS = {
    "update_amax_history", "_update_amax_history", "_default_get_amax", "_default_get_amax_and_update_history", "_default_sf_compute",
    "_compute_scaling_factor_inverse", "fused_amax_and_scale_update", "_fused_amax_and_scale_update", "_compute_amax",
    "_compute_amax_and_update_history", "_compute_scaling_factor", "amax_and_scale_update", "_amax_and_scale_update",
}  # fmt: skip
# Version, tags.
TE_UNFUSED = [
    ("te_0_1", ["v0.1", "v0.2", "v0.3", "v0.4"]),
    ("te_0_5", ["v0.5", "v0.6", "v0.7", "v0.8", "v0.9", "v0.10", "v0.11", "v0.12"]),
    ("te_0_13", ["v0.13", "v1.0", "v1.1", "v1.2", "v1.2.1", "v1.3"]),
    ("te_1_4", ["v1.4", "v1.5"]),  # a function for the amax takes the code of 1.3
    ("te_1_6_unfused", ["v1.6"]),
    ("te_1_7_unfused", ["v1.7", "v1.8", "v1.9", "v1.10"]),
    ("te_current_unfused", ["v1.11", "v1.12", "v1.13", "v2.0", "v2.4", "v2.8", "v2.9", "v2.13", "v2.18"]),
]
TE_TAGS = [(version, tag) for version, tags in TE_UNFUSED for tag in tags]


def number_of(tag: str) -> tuple[int, ...]:
    return tuple(int(part) for part in tag[1:].split("."))


class TransformerEngine:
    """The state of some tensors, which the code of a release updates."""

    def __init__(self, folder, tag: str, scripted: bool) -> None:
        path = f"transformer_engine/pytorch/{'quantization' if number_of(tag) >= (2, 9) else 'fp8'}.py"
        source = source_of("FP8LAB_TE_GIT", tag, path)
        self.torch = pytest.importorskip("torch", reason="Transformer Engine's updates are PyTorch code")
        self.code = module_of(folder, f"SCRIPTED = {scripted}\n" + TE_HEADER, [(source, TE_FUNCTIONS)])
        self.tag = number_of(tag)

    def start(self, length: int, fp8_max: float, margin: int, algo) -> None:
        torch = self.torch
        self.fp8_max = fp8_max
        self.recipe = SimpleNamespace(margin=margin, amax_compute_algo=algo, scaling_factor_compute_algo=None)
        self.state = SimpleNamespace(
            amax_history=torch.zeros(length, TENSORS), scale=torch.ones(TENSORS), scale_inv=torch.ones(TENSORS)
        )

    def cast(self, amaxes) -> None:
        self.state.amax_history[0] = self.torch.from_numpy(amaxes.copy())
        if self.tag < (0, 5):
            self.state.scale_inv = 1 / self.state.scale

    def update(self) -> None:
        state = self.state
        if self.tag >= (2,):
            self.code._amax_and_scale_update(state.amax_history, state.scale, self.fp8_max, self.recipe)
        elif self.tag >= (1, 6):
            self.code._amax_and_scale_update(state.amax_history, state.scale, state.scale_inv, self.fp8_max, self.recipe)
        else:
            meta = {
                "recipe": self.recipe, "scaling_fwd": state, "fp8_max_fwd": self.fp8_max,
                "scaling_fwd_non_weight_mask": self.torch.ones(TENSORS, dtype=self.torch.bool),
            }  # fmt: skip
            self.code.amax_and_scale_update(meta, True)

    def against(self, version: str, backward: bool, length: int, margin: int, algo, ours, seed: int) -> Replay:
        replay = Replay(backward, amax_history_len=length, version=version, margin=margin, amax_compute_algo=ours)
        self.start(length, FP8_MAX[backward], margin, algo)
        for amaxes in amaxes_of(seed):
            replay.record(amaxes)
            self.cast(amaxes)
            if self.tag < (0, 5):
                replay.compare("scale_inv", self.state.scale_inv)
            replay.update()
            self.update()
            replay.compare("scale", self.state.scale)
            replay.compare("amaxes", self.state.amax_history.T)
            if (0, 5) <= self.tag < (1, 11):
                replay.compare("scale_inv", self.state.scale_inv)
        return replay


def by_numpy(algo):
    """fp8lab gives such a function the history of one tensor, Transformer Engine a column for each of some."""
    return {"max": lambda h: h.max(axis=0), "row 0": lambda h: h[0], "last row": lambda h: h[-1], "twice": lambda h: h[0] * 2}[algo]


def by_torch(algo):
    return {"max": lambda h: h.max(dim=0).values, "row 0": lambda h: h[0], "last row": lambda h: h[-1], "twice": lambda h: h[0] * 2}[algo]


@pytest.mark.parametrize(("version", "tag"), TE_TAGS)
@pytest.mark.parametrize("scripted", [False, True], ids=["eager", "scripted"])
def test_updates_of_pytorch_code(tmp_path, version, tag, scripted):
    real = TransformerEngine(tmp_path, tag, scripted)
    seeds = itertools.count(number_of(tag)[0] * 1000 + number_of(tag)[1])
    for backward, length, margin in [(False, 1, 0), (True, 5, -4), (False, 16, 3)]:
        algorithms = ["max", "most_recent"] if version != "te_1_4" else [by_torch("max")]
        for algo in algorithms:
            ours = by_numpy("max") if callable(algo) else algo
            real.against(version, backward, length, margin, algo, ours, next(seeds)).check()


@pytest.mark.parametrize(("version", "tag"), TE_TAGS)
def test_functions_that_return_views(tmp_path, version, tag):
    if tag == "v0.5":
        pytest.skip("te_0_5 has the window of 1 as 0.6 to 0.12 have it")
    real = TransformerEngine(tmp_path, tag, False)
    for length, algo in itertools.product([1, 4], ["row 0", "last row", "twice"]):
        real.against(version, False, length, 0, by_torch(algo), by_numpy(algo), 7 + length).check()


# --- Transformer Engine: kernels -------------------------------------------------------------------------------------

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
# Version, which kernel, tags.
TE_KERNELS = [
    ("te_1_4", "single", ["v1.4", "v1.5", "v1.6"]),
    ("te_1_6", "bulk", ["v1.6"]),
    ("te_1_7_single", "single", ["v1.7", "v1.10"]),
    ("te_1_7", "bulk", ["v1.7", "v1.10"]),
    ("te_current_single", "single", ["v1.11", "v1.13", "v2.0", "v2.18"]),
    ("te_current", "bulk", ["v1.11", "v1.13", "v2.0", "v2.18"]),
]


def kernel_of(folder, tag: str, kind: str):
    """The kernel by tag as a host function: (history, scale, scale_inv, length, algorithm, scaled_max)."""
    text = source_of("FP8LAB_TE_GIT", tag, "transformer_engine/common/recipe/delayed_scaling.cu")
    compiler = shutil.which("g++") or shutil.which("clang++") or pytest.skip("no C++ compiler")
    kernels = text[text.index("namespace amax_and_scale_update_impl {") : text.index("}  // namespace amax_and_scale_update_impl")] + "}\n"
    assert "constexpr size_t bsize = 256;" in kernels
    structs = ""
    if "struct AmaxParam {" in text:
        structs = text[text.index("struct AmaxParam {") : text.index("};", text.index("struct AmaxParam {")) + 2]
        structs += "\nstruct AmaxParams { AmaxParam param[1]; };\n"
    has_inverse = "float* scale_inv" in structs or "scale_inv_ptr" in kernels
    call = {
        ("single", True): "kernel(history, scale, scale_inv, nullptr, history, scale, scale_inv, length, 1, a, scaled_max);",
        ("single", False): "kernel(history, scale, history, scale, length, 1, a, scaled_max);",
        ("bulk", True): "AmaxParams p; p.param[0] = {1, history, scale, scale_inv}; kernel_bulk(nullptr, p, length, a, scaled_max);",
        ("bulk", False): "AmaxParams p; p.param[0] = {1, history, scale}; kernel_bulk(nullptr, p, length, a, scaled_max);",
    }[kind, has_inverse]
    (folder / "kernel.cpp").write_text(
        KERNEL_HEADER + structs + kernels.replace("bsize = 256;", "bsize = 1;") + "using namespace amax_and_scale_update_impl;\n"
        'extern "C" void update(float* history, float* scale, float* scale_inv, size_t length, int algo, float scaled_max) {\n'
        f"  const auto a = static_cast<AmaxComputeAlgo>(algo);\n  {call}\n}}\n"
    )
    library = folder / "kernel.so"
    subprocess.run([compiler, "-std=c++20", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o", library, folder / "kernel.cpp"], check=True)
    update = ctypes.CDLL(str(library)).update
    floats = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    update.argtypes = [floats, floats, floats, ctypes.c_size_t, ctypes.c_int, ctypes.c_float]
    update.restype = None
    return update


@pytest.mark.parametrize(("version", "kind", "tag"), [(version, kind, tag) for version, kind, tags in TE_KERNELS for tag in tags])
def test_updates_of_kernels(tmp_path, version, kind, tag):
    update = kernel_of(tmp_path, tag, kind)
    seed = 500
    for backward, length, margin in [(False, 1, 0), (True, 5, -4), (False, 16, 3)]:
        for algo, number in [("max", 2), ("most_recent", 1)]:
            replay = Replay(backward, amax_history_len=length, version=version, margin=margin, amax_compute_algo=algo)
            history = np.zeros((TENSORS, length), np.float32)
            scale, scale_inv = np.ones((TENSORS, 1), np.float32), np.ones((TENSORS, 1), np.float32)
            scaled_max = float(np.float32(FP8_MAX[backward]) * np.float32(2.0**-margin))
            seed += 1
            for amaxes in amaxes_of(seed):
                replay.record(amaxes)
                history[:, 0] = amaxes
                replay.update()
                for i in range(TENSORS):
                    update(history[i], scale[i], scale_inv[i], length, number, scaled_max)
                replay.compare("scale", scale[:, 0])
                replay.compare("amaxes", history)
                if number_of(tag) < (1, 11):
                    replay.compare("scale_inv", scale_inv[:, 0])
            replay.check()


# --- MS-AMP ----------------------------------------------------------------------------------------------------------

MSAMP_HEADER = """
import copy
from types import SimpleNamespace
import torch
import torch.distributed as dist
class Dtypes:
    kfloat32, kbfloat16, kfloat8_e4m3, kfloat8_e5m2 = range(4)
class Floating:
    qfp_max = {Dtypes.kfloat8_e4m3: 448.0, Dtypes.kfloat8_e5m2: 57344.0}
class TransformerEngineWrapper:
    # A cast's kernel: the largest number, and from TE 0.5 on it writes no scale_inv.
    @staticmethod
    def cast_to_fp8(input, scale, amax, scale_inv, qtype):
        amax.copy_(torch.fmax(amax, input.values))
        if WRITES_SCALE_INV:
            scale_inv.copy_(1 / scale)
        return input
model_state = SimpleNamespace()
"""


class Tensor:
    """What a cast reads of its input."""

    is_cpu = is_contiguous = True

    def __init__(self, values) -> None:
        self.values = self.shape = values

    def abs(self):
        return self

    def max(self):
        return self.values

    def view(self, *shape):
        return self

    view_as = view


@pytest.mark.parametrize(("version", "tag"), [("ms_amp_0_1", "v0.1.0"), ("ms_amp", "v0.2.0"), ("ms_amp", "v0.3.0"), ("ms_amp", "v0.4.0")])
def test_ms_amp(tmp_path, version, tag):
    header = f"WRITES_SCALE_INV = {tag == 'v0.1.0'}\n" + MSAMP_HEADER
    files = [("common/tensor/meta.py", {"ScalingMeta"}), ("common/tensor/cast.py", {"TypeCast"}), ("optim/optimizer.py", {"_update_scaling_factors"})]
    sources = []
    for path, names in files:
        text = source_of("FP8LAB_MSAMP_GIT", tag, f"msamp/{path}").replace(".is_cuda", ".is_cpu").replace("device='cuda'", "device='cpu'")
        sources.append((text, names))
    torch = pytest.importorskip("torch", reason="MS-AMP's updates are PyTorch code")
    real = module_of(tmp_path, header, sources)
    for seed, (backward, length) in enumerate(itertools.product([False, True], [1, 2, 7])):
        qtype = real.Dtypes.kfloat8_e5m2 if backward else real.Dtypes.kfloat8_e4m3
        scales, amaxs = torch.ones(TENSORS), torch.zeros(TENSORS, length)
        counters = torch.zeros(TENSORS, dtype=torch.int32)
        metas = [real.ScalingMeta(qtype, scales[i], torch.ones(()), amaxs[i], length) for i in range(TENSORS)]
        for i, meta in enumerate(metas):
            meta.amax_counter = counters[i]
        flat = {"qtype": qtype, "scales": scales, "amaxs": amaxs, "amax_counters": counters}
        replay = Replay(backward, amax_history_len=length, version=version)
        for amaxes in amaxes_of(900 + seed):
            replay.record(amaxes)
            for meta, amax in zip(metas, torch.from_numpy(amaxes), strict=True):
                real.TypeCast.cast_to_fp8(Tensor(amax), meta)
            replay.compare("scale", scales)
            replay.compare("scale_inv", [meta.scale_inv for meta in metas])
            replay.update()
            real.model_state.ready_to_scale_tensor = True
            real.model_state.flattened_scaling_metas = {"input": flat, "ograd": flat}
            real._update_scaling_factors(None, training=False)
            replay.compare("scale", scales)
            replay.compare("amaxes", amaxs)
        replay.check()


# --- torchao ---------------------------------------------------------------------------------------------------------

AO_HEADER = """
from typing import *
import torch
import torch.distributed as dist
from enum import Enum
class ScalingGranularity(Enum):
    TENSORWISE, AXISWISE = range(2)
LinearMMConfig = Float8Tensor = object
class GemmInputRole:
    INPUT = None
EPS = 1e-12
FP8_TYPES = {torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
e4m3_dtype, e5m2_dtype = torch.float8_e4m3fn, torch.float8_e5m2
def hp_tensor_and_scale_to_float8(hp_tensor, *rest):
    return hp_tensor
"""
AO_FUNCTIONS = {
    "amax_to_scale", "amax_history_to_scale", "amax_history_to_scale_stack", "tensor_to_amax", "_update_history_stack",
    "sync_float8_amax_and_scale_history", "_maybe_initialize_amaxes_scales_for_float8_cast", "hp_tensor_to_float8_delayed",
}  # fmt: skip


@pytest.mark.parametrize(
    ("version", "tag", "dtype"),
    [
        ("torchao_0_4", "v0.4.0", "float32"), ("torchao_0_4", "v0.5.0", "float32"),
        ("torchao_0_4_float16", "v0.4.0", "float16"), ("torchao_0_4_float16", "v0.5.0", "float16"),
        ("torchao_0_6_float16", "v0.6.0", "float16"), ("torchao", "v0.6.0", "bfloat16"), ("torchao", "v0.6.0", "float32"),
        ("torchao", "v0.7.0", "float16"), ("torchao", "v0.8.0", "float32"), ("torchao", "v0.9.0", "float32"),
    ],
)  # fmt: skip
def test_torchao(tmp_path, version, tag, dtype):
    files = ["float8_utils.py", "float8_linear_utils.py", "float8_scaling_utils.py"]
    sources = [(source_of("FP8LAB_AO_GIT", tag, f"torchao/float8/{file}"), AO_FUNCTIONS) for file in files]
    torch = pytest.importorskip("torch", reason="torchao's updates are PyTorch code")
    real = module_of(tmp_path, AO_HEADER, sources)
    kinds = ["input", "weight", "grad_output"]
    formats = [torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e5m2]
    for seed, length in enumerate([1, 3, 16]):
        config = SimpleNamespace(delayed_scaling_config=SimpleNamespace(scale_fn_name="max"))
        layers = [SimpleNamespace(config=config, last_seen_input_dtype=getattr(torch, dtype)) for _ in range(TENSORS)]
        for kind, cast_format in zip(kinds, formats, strict=True):
            setattr(config, f"cast_config_{kind}", SimpleNamespace(target_dtype=cast_format))
            for layer in layers:
                setattr(layer, f"fp8_amax_{kind}", torch.tensor([1e-12]))
                setattr(layer, f"fp8_amax_history_{kind}", torch.zeros(length))
                setattr(layer, f"fp8_scale_{kind}", torch.tensor([1.0]))
        replays = [Replay(kind == "grad_output", amax_history_len=length, version=version) for kind in kinds]
        for step, amaxes in enumerate(amaxes_of(1300 + seed)):
            inputs = torch.from_numpy(amaxes).to(getattr(torch, dtype))
            for kind, cast_format, replay in zip(kinds, formats, replays, strict=True):
                replay.record(inputs.to(torch.float32).numpy())
                for layer, x in zip(layers, inputs, strict=True):
                    amax, history, scale = (getattr(layer, f"fp8_{what}_{kind}") for what in ("amax", "amax_history", "scale"))
                    real._maybe_initialize_amaxes_scales_for_float8_cast(x, amax, history, scale, "max", cast_format, step > 0, reduce_amax=True)
                    real.hp_tensor_to_float8_delayed(x, scale, cast_format, amax)
                replay.compare("scale", [getattr(layer, f"fp8_scale_{kind}").item() for layer in layers])
                replay.update()
            real.sync_float8_amax_and_scale_history(None, layers)
            for kind, replay in zip(kinds, replays, strict=True):
                replay.compare("scale", [getattr(layer, f"fp8_scale_{kind}").item() for layer in layers])
        for replay in replays:
            replay.check()


def test_the_numbers_of_single_amaxes():
    """Known without the code: the reciprocal is rounded, then its product."""
    for version in ["te_0_13", "te_1_6_unfused", "te_1_7_unfused", "te_current_unfused", "torchao_0_4"]:
        assert scale_after(version, 1017.7764282226562) == 0.44017523527145386
    for version in ["te_1_4", "te_1_6", "te_1_7", "te_1_7_single", "te_current", "te_current_single", "torchao"]:
        assert scale_after(version, 1017.7764282226562) == 0.440175265073776245
    for version in ["te_0_1", "te_0_5"]:
        assert scale_after(version, 896.0001220703125, backward=True, margin=-4) == 512
    for version in ["ms_amp_0_1", "ms_amp"]:
        assert scale_after(version, 28672.00390625) == 2**-7
    assert math.isinf(scale_after("te_1_4", 1e-42))
    assert scale_after("torchao_0_4_float16", 1e-42) == scale_after("torchao_0_6_float16", 0.0) == 65504


def scale_after(version: str, amax: float, backward: bool = False, margin: int = 0) -> float:
    history = fp8lab.AmaxHistory(fp8lab.Delayed(version=version, amax_history_len=1, margin=margin), backward=backward)
    history.record_amax(amax)
    history.update_scale()
    return history.scale
