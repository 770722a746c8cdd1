# SPDX-License-Identifier: Apache-2.0
"""Fp8State against the modules of each release of Transformer Engine, which te_state.py runs.

The same random script goes through both. After each event all scales and histories are equal bit for bit, and so are
the scales that casts used and the scale_inv that products applied. Products have the values that these say.
"""

import random

import fp8lab
import numpy as np
import pytest
from releases import number_of
from sampled import EXHAUSTIVE
from te_ranks import RealRanks
from te_scripts import features_of, random_script, scripts_of_ranks
from te_state import SIDE, RealState

# Rules, version of the formulas, tags.
RELEASES = [
    ("te_0_1", "te_0_1", ["v0.1", "v0.2"]),
    ("te_0_3", "te_0_1", ["v0.3", "v0.4"]),
    ("te_0_3", "te_0_5", ["v0.5", "v0.6"]),
    ("te_0_7", "te_0_5", ["v0.7", "v0.8", "v0.9", "v0.12"]),
    ("te_0_7", "te_0_13", ["v0.13"]),
    ("te_1_0", "te_0_13", ["v1.0", "v1.3"]),
    ("te_1_0", "te_1_4", ["v1.4"]),
    ("te_1_5", "te_1_4", ["v1.5"]),
    ("te_1_6", "te_1_6", ["v1.6"]),
    ("te_1_6", "te_1_7", ["v1.7"]),
    ("te_1_8", "te_1_7", ["v1.8"]),
    ("te_1_9", "te_1_7", ["v1.9", "v1.10"]),
    ("te_1_9", "te_current", ["v1.11"]),
    ("te_1_12", "te_current", ["v1.12"]),
    ("te_1_13", "te_current", ["v1.13"]),
    ("te_2_0", "te_current", ["v2.0", "v2.3"]),
    ("te_2_4", "te_current", ["v2.4", "v2.5"]),
    ("te_2_6", "te_current", ["v2.6", "v2.7"]),
    ("te_2_8", "te_current", ["v2.8", "v2.9", "v2.15", "v2.18"]),
]
CASES = [(rules, version, tag) for rules, version, tags in RELEASES for tag in (tags if EXHAUSTIVE else tags[-1:])]
FP8_WEIGHTS = [case for case in CASES if number_of(case[2]) >= (1, 6) and case[2] not in ("v2.1", "v2.3")]


class ModelState:
    """Fp8State behind the events of a script. With `length`, that of the histories, weights exist in FP8 only."""

    def __init__(self, rules: str, version: str, layers: int = 2, ranks: int = 1, length: int | None = None) -> None:
        self.version, self.length = version, length
        self.state = fp8lab.Fp8State(layers=layers, rules=rules, ranks=ranks, high_precision="exact", trace=True)
        self.calls: dict[int, fp8lab.LinearCall] = {}
        self.seen = 0
        if length is not None:
            for layer in range(layers):
                self.write(layer, 1.0)

    def step(self, event: dict) -> dict:
        arguments = {key: value for key, value in event.items() if key != "do"}
        used = getattr(self, event["do"])(**arguments)
        return {"layers": self.layers(), "used": used}

    def layers(self) -> list[dict | None]:
        arrays = self.state.arrays()
        return [layer_of(arrays, layer) for layer in range(self.state.layers)]

    def enter(self, enabled, group, fp8_format, **fields) -> None:
        recipe = "te_delayed_hopper" + ("_e4m3" if fp8_format == "e4m3" else "")
        delayed = fp8lab.Delayed(fp8_format=fp8_format, version=self.version, **fields)
        self.state.enter_autocast(recipe, delayed=delayed, enabled=enabled, group=f"group {group}")

    def exit(self) -> None:
        self.state.exit_autocast()

    def grad(self, enabled) -> None:
        self.state.grad_enabled = enabled

    def forward(self, layer, x, w, requires_grad, training, first_microbatch, recompute, call) -> dict:
        weight = filled(w) if self.length is None else None
        made = self.state.forward(
            layer, filled(x), weight, is_first_microbatch=first_microbatch, training=training,
            requires_grad=requires_grad, recompute=["none", "first", "second"][recompute],
        )  # fmt: skip
        if call is not None:
            self.calls[call] = made
        casts = self.casts()
        return {"x": casts.get("x"), "w": casts.get("w"), "w_scale_inv": made.weight_scale_inv, "y": made.y}

    def backward(self, call, dy) -> dict:
        made = self.calls.pop(call)
        grads = self.state.backward(made, filled(dy))
        read = [event.scale_inv for event in self.state.trace[self.seen :] if event.action == "read"]
        inverse = read[0] if read else made.weight_scale_inv
        return {"dy": self.casts().get("dy"), "w_scale_inv": inverse, "dx": grads.dx, "dw": grads.dw}

    def write(self, layer, w) -> dict:
        delayed = fp8lab.Delayed(version=self.version, amax_history_len=self.length)
        self.state.write_weight(layer, filled(w), "te_delayed_hopper", delayed=delayed)
        return {"w": self.casts().get("w")}

    def casts(self) -> dict[str, float]:
        """The scales that casts used since the last call."""
        events = self.state.trace[self.seen :]
        self.seen += len(events)
        return {event.tensor: event.scale for event in events if event.action == "cast"}


def filled(value: float) -> np.ndarray:
    return np.full((SIDE, SIDE), value, np.float32)


def layer_of(arrays: dict, layer: int) -> dict | None:
    if f"{layer}.x.scale" not in arrays:
        return None
    part = {name: [arrays[f"{layer}.{name}.{what}"] for what in ("scale", "amax_history")] for name in ("x", "w", "dy")}
    return {
        "fwd_scale": np.stack([part["x"][0], part["w"][0]]),
        "fwd_history": np.stack([part["x"][1], part["w"][1]], axis=1),
        "bwd_scale": part["dy"][0][None],
        "bwd_history": part["dy"][1][:, None],
    }


def decoded(factor: dict) -> float:
    """What a product takes for an element."""
    with np.errstate(all="ignore"):
        code = fp8lab.encode(factor["value"] * factor["made_with"], factor["made_as"])
        return float(fp8lab.decode(code, factor["read_as"])) * float(factor["scale_inv"])


def product_differs(ours, factors: dict) -> bool:
    """Whether a product is further off than the accumulator of 13 fraction bits and bfloat16 explain."""
    a, b = factors.values()
    expected, scale_inv = SIDE * decoded(a) * decoded(b), float(a["scale_inv"]) * float(b["scale_inv"])
    if not 1e-30 < scale_inv < 1e30 or np.isnan(expected) or abs(expected) > 1e30:
        return False  # factors in float32 overflow or underflow on the way
    return not np.allclose(np.asarray(ours, np.float32), expected, rtol=0.01, atol=1e-30)


def differences(event: dict, ours: dict, real: dict) -> list[str]:
    """What the two have differently after an event."""
    found = []
    for i, (mine, theirs) in enumerate(zip(ours["layers"], real["layers"], strict=True)):
        if theirs is not None and len(theirs["fwd_history"]) == 1024:
            continue  # made with the module, whose first region brings the script's length
        if mine is None or theirs is None:
            found += [] if mine is theirs else [f"layer {i}: ours {mine} real {theirs}"]
            continue
        for name in theirs:
            if not np.array_equal(mine[name], theirs[name]):
                found.append(f"layer {i} {name}: ours {mine[name].tolist()} real {theirs[name].tolist()}")
    if event["do"] in ("forward", "backward", "write"):
        found += used_differently(ours["used"], real["used"])
    return found


def used_differently(ours: dict, real: dict) -> list[str]:
    found = [
        f"{name} cast with: ours {ours[name]} real {real[name]}"
        for name in ("x", "w", "dy")
        if real.get(name) != ours.get(name)
    ]
    for product, result in (("fprop", "y"), ("dgrad", "dx"), ("wgrad", "dw")):
        factors = real.get(product)
        if not factors:
            continue
        if "w" in factors and ours["w_scale_inv"] != factors["w"]["scale_inv"]:
            found.append(f"scale_inv of w: ours {ours['w_scale_inv']} real {factors['w']}")
        if product_differs(ours[result], factors):
            found.append(f"{result}: ours {ours[result][0, 0]} real {factors}")
    return found


def not_modelled(tag: tuple[int, ...]) -> set[str]:
    """What Fp8State does not do as the release does."""
    features = {
        "formats"
    }  # a layer keeps the format of its first recipe (2.x), or casts dy to that of its latest one (before)
    if tag < (1, 0):
        features.add("caching")  # which passes write over the cached bytes differs from one release to the next
    return features


def script_of(seed: int, tag: tuple[int, ...]) -> tuple[int, list[dict]]:
    """How many layers there are, and what they do."""
    layers = 1 if tag < (0, 3) else 2
    reduce_amax = tag < (0, 3) or tag >= (1,)
    return layers, random_script(
        random.Random(seed), features_of(tag) - not_modelled(tag), layers, reduce_amax=reduce_amax
    )


def first_difference(model: ModelState, real: RealState, script: list[dict]) -> list[str]:
    for i, event in enumerate(script):
        if found := differences(event, model.step(event), real.step(event)):
            return [f"event {i} {event}", *found]
    return []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rules", "version", "tag"), CASES)
def test_random_scripts(rules, version, tag):
    for seed in range(100 if EXHAUSTIVE else 2):
        layers, script = script_of(seed, number_of(tag))
        assert not first_difference(ModelState(rules, version, layers), RealState(tag, layers), script), seed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rules", "version", "tag"), FP8_WEIGHTS)
def test_weights_in_fp8_only(rules, version, tag):
    """Not 2.1 to 2.3: there a pass without gradients takes away what an earlier pass's dgrad needs."""
    number = number_of(tag)
    features = features_of(number) - not_modelled(number) - {"caching", "nesting"} | {"written weights"}
    if number < (1, 13):
        features -= {"frozen", "recipes"}  # a layer's first region and pass decide which writes count for its update
    for seed in range(100 if EXHAUSTIVE else 1):
        script = random_script(random.Random(seed), features)
        length = next(event["amax_history_len"] for event in script if event["do"] == "enter")
        model, real = ModelState(rules, version, length=length), RealState(tag, primary_weights_in_fp8=True)
        assert not first_difference(model, real, script), seed


class ModelRanks:
    """States of ranks that update their scales together."""

    def __init__(self, rules: str, version: str, world: int) -> None:
        self.ranks = [ModelState(rules, version, ranks=world) for _ in range(world)]

    def step(self, events: list[dict]) -> list[dict]:
        results = [rank.step(event) for rank, event in zip(self.ranks, events, strict=True)]
        if any(rank.state.is_due for rank in self.ranks):
            fp8lab.reduce_and_update([rank.state for rank in self.ranks])
            results = [result | {"layers": rank.layers()} for rank, result in zip(self.ranks, results, strict=True)]
        return results


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rules", "version", "tag"), [case for case in CASES if case[2] in ("v1.7", "v1.13", "v2.18")])
def test_ranks(rules, version, tag):
    for seed in range(100 if EXHAUSTIVE else 1):
        rng = random.Random(seed)
        scripts = scripts_of_ranks(rng, script_of(seed, number_of(tag))[1], 2)
        model, real = ModelRanks(rules, version, 2), RealRanks(tag, 2)
        for i, events in enumerate(zip(*scripts, strict=True)):
            for rank, (ours, theirs) in enumerate(zip(model.step(list(events)), real.step(list(events)), strict=True)):
                assert not differences(events[rank], ours, theirs), (seed, i, rank)
