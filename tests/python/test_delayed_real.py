# SPDX-License-Identifier: Apache-2.0
"""Delayed scaling against the code of each release of Transformer Engine.

releases.py says where that code comes from. The kernels are compiled for the host, with blocks of one thread.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import repositories
from releases import FP8_MAX, TENSORS, Replay, amaxes_of, kernel_of, module_of, number_of, source_of

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


class TransformerEngine:
    """The state of some tensors, which the code of a release updates."""

    def __init__(self, folder, tag: str, scripted: bool) -> None:
        path = f"transformer_engine/pytorch/{'quantization' if number_of(tag) >= (2, 9) else 'fp8'}.py"
        source = source_of(repositories.TRANSFORMER_ENGINE, tag, path)
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
            self.code._amax_and_scale_update(
                state.amax_history, state.scale, state.scale_inv, self.fp8_max, self.recipe
            )
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
    return {
        "max": lambda h: h.max(axis=0),
        "row 0": lambda h: h[0],
        "last row": lambda h: h[-1],
        "twice": lambda h: h[0] * 2,
    }[algo]


def by_torch(algo):
    return {
        "max": lambda h: h.max(dim=0).values,
        "row 0": lambda h: h[0],
        "last row": lambda h: h[-1],
        "twice": lambda h: h[0] * 2,
    }[algo]


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

# Version, which kernel, tags.
TE_KERNELS = [
    ("te_1_4", "single", ["v1.4", "v1.5", "v1.6"]),
    ("te_1_6", "bulk", ["v1.6"]),
    ("te_1_7_single", "single", ["v1.7", "v1.10"]),
    ("te_1_7", "bulk", ["v1.7", "v1.10"]),
    ("te_current_single", "single", ["v1.11", "v1.13", "v2.0", "v2.18"]),
    ("te_current", "bulk", ["v1.11", "v1.13", "v2.0", "v2.18"]),
]


@pytest.mark.parametrize(
    ("version", "kind", "tag"), [(version, kind, tag) for version, kind, tags in TE_KERNELS for tag in tags]
)
def test_updates_of_kernels(version, kind, tag):
    update = kernel_of(tag, kind)
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
                    update(None, history[i], scale[i], scale_inv[i], length, number, scaled_max)
                replay.compare("scale", scale[:, 0])
                replay.compare("amaxes", history)
                if number_of(tag) < (1, 11):
                    replay.compare("scale_inv", scale_inv[:, 0])
            replay.check()
