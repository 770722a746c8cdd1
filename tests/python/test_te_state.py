# SPDX-License-Identifier: Apache-2.0
"""What releases of Transformer Engine do with the FP8 state of a Linear module, found by running them (te_state.py)."""

import random

import numpy as np
import pytest
from releases import number_of
from sampled import EXHAUSTIVE
from te_ranks import RealRanks
from te_scripts import features_of, largest_of_ranks, random_script, scripts_of_ranks
from te_state import TAGS, RealState

pytestmark = pytest.mark.filterwarnings("ignore")  # of the releases
SINCE_1_6 = [tag for tag in TAGS if number_of(tag) >= (1, 6)]
EXIT = {"do": "exit"}


def enter(**fields) -> dict:
    recipe = {
        "margin": 0,
        "fp8_format": "hybrid",
        "amax_history_len": 4,
        "amax_compute_algo": "max",
        "reduce_amax": True,
        "group": 0,
    }
    return {"do": "enter", "enabled": True, **recipe, **fields}


def forward(x: float, w: float = 1.0, layer: int = 0, call: int | None = 0, **options) -> dict:
    return {"do": "forward", "layer": layer, "x": x, "w": w, "call": call, **options}


def backward(dy: float, call: int = 0) -> dict:
    return {"do": "backward", "call": call, "dy": dy}


def training_step(x: float = 2.0, w: float = 1.0, dy: float = 1.0, **options) -> list[dict]:
    return [enter(), forward(x, w, **options), EXIT, backward(dy)]


def histories(state: dict, layer: int = 0) -> list[float]:
    return state["layers"][layer]["fwd_history"][:, 0].tolist()


@pytest.mark.parametrize("tag", SINCE_1_6)
def test_forward_scales_change_when_the_region_ends_and_backward_scales_with_the_backward_pass(tag):
    script = [enter(), forward(2.0, 0.5), forward(4.0, layer=1, call=1), EXIT, backward(8.0, call=1), backward(2.0)]
    states = RealState(tag).run(script)
    assert [s["layers"][0]["fwd_scale"].tolist() for s in states[1:4]] == [[1, 1], [1, 1], [224, 896]]
    assert [s["layers"][1]["bwd_scale"].tolist() for s in states[3:]] == [
        [1],
        [1],
        [7168],
    ]  # the first layer's backward pass is the last
    assert [s["layers"][0]["bwd_scale"].tolist() for s in states[3:]] == [[1], [1], [28672]]


@pytest.mark.parametrize("tag", [tag for tag in TAGS if number_of(tag) < (1, 6)])
def test_until_1_5_scales_change_before_the_next_pass_of_the_layer(tag):
    states = RealState(tag).run([*training_step(2.0, dy=1.0), *training_step(4.0)])
    scale = 128 if tag == "v0.6" else 224
    assert [s["layers"][0]["fwd_scale"][0] for s in states[1:6]] == [1, 1, 1, 1, scale]
    assert [s["layers"][0]["bwd_scale"][0] for s in states[5:]] == [1, 1, 32768 if tag == "v0.6" else 57344]


@pytest.mark.parametrize("tag", TAGS)
def test_zero_leaves_the_history_since_1_6(tag):
    *_, last = RealState(tag).run([*training_step(2.0), *training_step(0.0), *training_step(1.0)[:3]])
    assert histories(last) == ([0, 0, 2, 1] if number_of(tag) >= (1, 6) else [1, 0, 2, 0])


@pytest.mark.parametrize("tag", TAGS)
def test_products_read_a_stale_scale_inv_of_a_cached_weight_in_1_6_and_1_7_only(tag):
    states = RealState(tag).run([*training_step(first_microbatch=True), *training_step(first_microbatch=False)])
    for used in (states[5]["used"]["fprop"]["w"], states[7]["used"]["dgrad"]["w"]):
        assert used["made_with"] == 1
        assert used["scale_inv"] == (np.float32(1 / 448) if tag in ("v1.6", "v1.7") else 1)


@pytest.mark.parametrize("tag", [tag for tag in TAGS if number_of(tag) >= (1, 6)])
def test_a_second_forward_pass_casts_with_the_scale_of_the_first(tag):
    recomputed = [
        enter(),
        {"do": "grad", "enabled": False},
        forward(4.0, call=None, recompute=1),
        {"do": "grad", "enabled": True},
        EXIT,
    ]
    states = RealState(tag).run(
        [*training_step(2.0), *recomputed, enter(), forward(4.0, recompute=2), EXIT, backward(1.0)]
    )
    first, after, second = states[6], states[8], states[10]
    assert first["used"]["x"] == second["used"]["x"] == 224
    assert after["layers"][0]["fwd_scale"][0] == 112
    # 2.0 to 2.3 leave what the first pass found, with the amax of the second; other releases put the state back.
    copied = (2,) <= number_of(tag) < (2, 4)
    assert second["layers"][0]["fwd_scale"][0] == (224 if copied else 112)
    assert histories(second) == ([4, 0, 0, 2] if copied else [0, 0, 2, 4])


@pytest.mark.parametrize("tag", SINCE_1_6)
def test_another_length_of_the_history_makes_the_next_update_fail(tag):
    state = RealState(tag)
    states = state.run([*training_step(2.0), *training_step(4.0), enter(amax_history_len=2), forward(1.0)])
    assert histories(states[-1]) == [1, 0]  # the oldest are kept
    with pytest.raises(RuntimeError, match="Expected 2 elements, Found 3"):
        state.step(EXIT)


@pytest.mark.parametrize("tag", SINCE_1_6)
def test_the_first_module_that_needs_gradients_updates_the_backward_scales(tag):
    """With a layer that needs none before it, and where two regions lie in one that is not enabled."""
    frozen = [enter(), forward(2.0, requires_grad=False, call=None), forward(2.0, layer=1), EXIT, backward(4.0)]
    assert RealState(tag).run(frozen)[-1]["layers"][1]["bwd_scale"] == 14336
    siblings = [enter(), forward(2.0), EXIT, enter(), forward(2.0, layer=1, call=1), EXIT]
    *_, first, second = RealState(tag).run(
        [enter(enabled=False), *siblings, EXIT, backward(4.0, call=1), backward(2.0)]
    )
    assert [s["layers"][1]["bwd_scale"][0] for s in (first, second)] == [14336, 14336]
    assert [s["layers"][0]["bwd_scale"][0] for s in (first, second)] == [1, 28672]
    assert second["layers"][0]["fwd_scale"][0] == 1  # no enabled region was the outermost one


@pytest.mark.parametrize("tag", [tag for tag in TAGS if number_of(tag) >= (1, 5)])
def test_checkpointed_layers_whose_backward_pass_comes_after_the_region(tag):
    """Their backward scales did not change at all from 1.6 to 1.11; 2.0 takes back the forward pass's update."""
    both = [enter(), forward(2.0), forward(2.0, layer=1, call=1), EXIT, backward(1.0, call=1), backward(1.0)]
    checkpointed = [enter(), {"do": "checkpoint", "layers": [0, 1], "x": 4.0, "call": 2}, EXIT, backward(8.0, call=2)]
    last = RealState(tag).run([*both, *checkpointed])[-1]["layers"]
    number = number_of(tag)
    assert last[1]["bwd_scale"][0] == (57344 if number < (1, 12) else 7168)
    assert last[1]["bwd_history"][0, 0] == (8 if number < (1, 12) else 0)
    assert last[0]["fwd_scale"][0] == (224 if number in ((1, 5), (2, 0)) else 112)


@pytest.mark.parametrize("tag", [tag for tag in TAGS if number_of(tag) >= (1, 5)])
def test_a_weight_kept_in_fp8_is_cast_when_it_is_written(tag):
    state = RealState(tag, primary_weights_in_fp8=True)
    *_, written, _, used, _, _ = state.run([*training_step(), {"do": "write", "layer": 0, "w": 2.0}, *training_step()])
    first_amax_counts, at_once = number_of(tag) >= (2,), (1, 6) <= number_of(tag) < (1, 13)
    made_with = 448 if first_amax_counts else 1
    assert written["used"]["w"] == used["used"]["fprop"]["w"]["made_with"] == made_with
    assert used["used"]["fprop"]["w"]["scale_inv"] == np.float32(1 / made_with)
    # Layer 1 has an FP8 weight, too, but did not run: it is in no buffer, so nothing waits for it.
    assert written["layers"][0]["fwd_scale"][1] == (224 if at_once else made_with)


@pytest.mark.parametrize("tag", ["v1.6", "v1.13", "v2.18"])
def test_ranks_have_the_scales_of_the_largest_amax(tag):
    for seed in range(30 if EXHAUSTIVE else 1):
        rng = random.Random(seed)
        features = features_of(number_of(tag)) - {"reductions"}
        scripts = scripts_of_ranks(rng, random_script(rng, features), 2)
        alone = RealState(tag).run(largest_of_ranks(scripts))
        for states in RealRanks(tag, 2).run(scripts):
            for state, expected in zip(states, alone, strict=True):
                for layer, of_all in zip(state["layers"], expected["layers"], strict=True):
                    for scale in ("fwd_scale", "bwd_scale"):
                        assert layer is None or layer[scale].tolist() == of_all[scale].tolist()


@pytest.mark.parametrize("tag", TAGS if EXHAUSTIVE else TAGS[-1:])
def test_random_scripts_run(tag):
    number = number_of(tag)
    for seed in range(100 if EXHAUSTIVE else 1):
        script = random_script(random.Random(seed), features_of(number), reduce_amax=number >= (1,))
        assert len(RealState(tag).run(script)) == len(script)
