# SPDX-License-Identifier: Apache-2.0
"""Delayed scaling against the code of each release of MS-AMP and torchao, which releases.py takes out of git
directories."""

import itertools
import math
from types import SimpleNamespace

import fp8lab
import pytest
import repositories
from releases import TENSORS, Replay, amaxes_of, module_of, source_of

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


@pytest.mark.parametrize(
    ("version", "tag"), [("ms_amp_0_1", "v0.1.0"), ("ms_amp", "v0.2.0"), ("ms_amp", "v0.3.0"), ("ms_amp", "v0.4.0")]
)
def test_ms_amp(tmp_path, version, tag):
    header = f"WRITES_SCALE_INV = {tag == 'v0.1.0'}\n" + MSAMP_HEADER
    files = [
        ("common/tensor/meta.py", {"ScalingMeta"}),
        ("common/tensor/cast.py", {"TypeCast"}),
        ("optim/optimizer.py", {"_update_scaling_factors"}),
    ]
    sources = []
    for path, names in files:
        text = (
            source_of(repositories.MS_AMP, tag, f"msamp/{path}")
            .replace(".is_cuda", ".is_cpu")
            .replace("device='cuda'", "device='cpu'")
        )
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
    sources = [(source_of(repositories.TORCHAO, tag, f"torchao/float8/{file}"), AO_FUNCTIONS) for file in files]
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
                    amax, history, scale = (
                        getattr(layer, f"fp8_{what}_{kind}") for what in ("amax", "amax_history", "scale")
                    )
                    real._maybe_initialize_amaxes_scales_for_float8_cast(
                        x, amax, history, scale, "max", cast_format, step > 0, reduce_amax=True
                    )
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
