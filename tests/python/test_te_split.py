# SPDX-License-Identifier: Apache-2.0
"""fp8lab's split layers against Transformer Engine's own Linear, whose ranks run on a CPU."""

import dataclasses

import fp8lab
import numpy as np
import pytest
from te_split import run_split
from test_parallel import values

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the releases
RANKS = 2
RECIPES = {
    "DelayedScaling": "te_delayed_hopper",
    "Float8CurrentScaling": "te_current_scaling_hopper",
    "Float8BlockScaling": "te_block_hopper",
}
# Tokens, in and out: tiles of 128 are ragged in a rank's part of the tokens, or whole.
SHAPES = {"ragged": (192, 128, 96), "whole": (256, 256, 64)}


def bfloat16(x):
    return x.astype(ml_dtypes.bfloat16)


def layer(tokens, inputs, outputs):
    x, w, dy = values(tokens, inputs, 1, -2), values(outputs, inputs, 2, -3), values(tokens, outputs, 3, -5)
    x[tokens // 2 :] *= np.float32(0.01)  # parts have other amaxes
    w[:, inputs // 2 :] *= np.float32(0.7)
    w[outputs // 2 :] *= np.float32(0.6)
    dy[:, outputs // 2 :] *= np.float32(0.4)
    dy[tokens // 2 :] *= np.float32(0.9)
    return {"x": x, "w": w, "dy": dy, "bias": np.linspace(-3, 3, outputs, dtype=np.float32)}


def part_of(whole, axis, rank):
    return whole if axis is None else np.ascontiguousarray(np.split(whole, RANKS, axis)[rank])


@pytest.mark.parametrize(
    ("recipe", "tag"),
    [
        (recipe, tag)
        for recipe in RECIPES
        for tag in ("v2.9", "v2.18")
        if (recipe, tag) != ("Float8BlockScaling", "v2.9")
    ],
)  # tiles had other layouts in 2.9
@pytest.mark.parametrize("mode", ["column", "row"])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_split_layer_has_the_bits_of_transformer_engines_ranks(tag, recipe, mode, sequence, shape):
    whole = {name: bfloat16(value).astype(np.float32) for name, value in layer(*SHAPES[shape]).items()}
    column = mode == "column"
    axes = {"w": 0 if column else 1, "bias": 0 if column else None}
    axes["x"] = (0 if sequence else None) if column else 1
    axes["dy"] = 1 if column else (0 if sequence else None)
    parts = [{name: part_of(value, axes[name], rank) for name, value in whole.items()} for rank in range(RANKS)]
    real = run_split(tag, recipe, mode, sequence, parts)

    def joined(name, axis):
        if axis is None:
            assert all(one[name].tobytes() == real[0][name].tobytes() for one in real)
            return real[0][name]
        return np.concatenate([one[name] for one in real], axis)

    own = next(one.recipe for one in fp8lab.linear_recipes() if one.name == RECIPES[recipe])
    own = dataclasses.replace(own, wgrad=dataclasses.replace(own.wgrad, output="bfloat16"))
    order = fp8lab.Reduction("sequential")
    options = {"recipe": own, "parallel": fp8lab.TensorParallel(mode, RANKS, sequence, order)}
    y = fp8lab.linear(bfloat16(whole["x"]), bfloat16(whole["w"]), whole["bias"], **options)
    dx = fp8lab.linear_dgrad(bfloat16(whole["dy"]), bfloat16(whole["w"]), **options)
    dw = fp8lab.linear_wgrad(bfloat16(whole["dy"]), bfloat16(whole["x"]), **options)
    for name, found, axis in (("y", y, axes["dy"]), ("dx", dx, axes["x"]), ("dw", dw, axes["w"])):
        expected = joined(name, axis)
        assert found.shape == expected.shape
        wrong = np.count_nonzero(found.astype(np.float32).view(np.uint32) != expected.view(np.uint32))
        assert wrong == 0, f"{name}: {wrong} of {expected.size} differ"
