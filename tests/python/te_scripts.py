# SPDX-License-Identifier: Apache-2.0
"""Random scripts of training steps for te_state.py: regions, passes, microbatches, evaluation, recompute."""

import random
from dataclasses import dataclass, field

import numpy as np

FEATURES = frozenset(
    {
        "nesting",  # regions in regions, side by side, enabled or not
        "recipes",  # regions with other margins, algorithms and groups
        "formats",  # those recipes also have other formats
        "reductions",  # and another reduce_amax
        "several calls",  # a layer may run more than once before its backward
        "no_grad",  # passes without gradients, inside a region and around one
        "evaluation",  # passes in evaluation mode
        "frozen",  # passes of which neither input nor weight needs a gradient
        "caching",  # the weight is quantized in the first of some microbatches
        "refilled caches",  # also while a backward pass still needs the bytes that this overwrites
        "recompute",  # a pass without gradients is repeated before its backward
        "recompute outside",  # of every region, where te.checkpoint of 2.1 and earlier does it
        "inside",  # a backward pass before the region ends
        "lengths",  # another length of the history
        "written weights",  # an optimizer writes the weights, which exist in FP8 only
        "odd amaxes",  # zero, infinity, NaN, and so small or large that a scale leaves its range
    }
)
ODD = [0.0, float("inf"), float("nan"), 1e-42, 1e-38, 3e-37, 1e30, 3.4e38]


def features_of(tag: tuple[int, ...]) -> frozenset[str]:
    """What works in a release: before 0.3 with one layer, from 0.3 to 0.13 with reduce_amax=False."""
    if tag < (0, 3):
        return frozenset({"no_grad", "odd amaxes"})
    features = set(FEATURES) - {"written weights"}
    if tag < (1, 0) or (2,) <= tag < (2, 4):
        features.remove("refilled caches")  # PyTorch notices that a saved tensor changed
    if tag < (0, 9):
        features.remove("nesting")  # a layer that ran under FP8 goes on so outside of regions
    if tag < (1, 0):
        features.remove("several calls")  # the same with the weight of every call
    if tag >= (1, 6):
        features.remove("lengths")  # the next update raises: the forward history is exchanged for the backward one
    return frozenset(features)


def random_script(
    rng: random.Random, features=FEATURES, layers: int = 2, steps: int = 6, reduce_amax: bool = True
) -> list[dict]:
    """Each step runs some layers in one or more regions, then the backward passes in reversed order."""
    writer = Writer(rng, frozenset(features), layers, reduce_amax)
    for _ in range(steps):
        writer.step()
    return writer.script


def scripts_of_ranks(rng: random.Random, script: list[dict], world: int) -> list[list[dict]]:
    """The same events with other values on each rank."""

    def with_values(event: dict) -> dict:
        return event | {name: event[name] * rng.choice([0, 0.25, 0.5, 1]) for name in ("x", "w", "dy") if name in event}

    return [[with_values(event) for event in script] for _ in range(world)]


def largest_of_ranks(scripts: list[list[dict]]) -> list[dict]:
    """One script with the largest magnitudes of all ranks."""

    def largest(events: tuple[dict, ...]) -> dict:
        values = {name: [abs(event[name]) for event in events] for name in ("x", "w", "dy") if name in events[0]}
        return events[0] | {name: float(np.fmax.reduce(magnitudes)) for name, magnitudes in values.items()}

    return [largest(events) for events in zip(*scripts, strict=True)]


@dataclass
class Writer:
    rng: random.Random
    features: frozenset[str]
    layers: int
    reduce_amax: bool
    script: list[dict] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)  # calls whose backward has not run
    stashed: list[dict] = field(default_factory=list)  # forward passes to be recomputed, in their order
    ran: set[int] = field(default_factory=set)  # layers of the pending calls
    cached: set[int] = field(default_factory=set)
    calls: int = 0
    length: int = 0
    recipes: list[dict] = field(default_factory=list)

    def chance(self, feature: str, probability: float) -> bool:
        return feature in self.features and self.rng.random() < probability

    def value(self) -> float:
        if self.chance("odd amaxes", 0.15):
            return self.rng.choice(ODD)
        return float(np.float32(self.rng.choice([-1, 1]) * self.rng.lognormvariate(0, 3)))

    # --- regions ------------------------------------------------------------------------------------------------------

    def recipe(self) -> dict:
        if not self.recipes:
            self.recipes, self.length = self.some_recipes(), self.rng.choice([1, 2, 3, 5])
        if self.chance("lengths", 0.15):
            self.length = self.rng.choice([1, 2, 3, 5])
        chosen = self.rng.randrange(3) if self.chance("recipes", 0.4) else 0
        return {**self.recipes[chosen], "amax_history_len": self.length}

    def some_recipes(self) -> list[dict]:
        """The second differs from the first in what the key of a buffer may leave out."""
        algorithms = self.rng.sample(["max", "most_recent"], 2)
        first = {
            "margin": self.rng.choice([0, 1, -2]),
            "fp8_format": "hybrid" if "written weights" in self.features else self.rng.choice(["hybrid", "e4m3"]),
            "amax_compute_algo": algorithms[0],
            "reduce_amax": self.reduce_amax,
            "group": self.rng.choice([0, 1]),
        }
        second = first | {"amax_compute_algo": algorithms[1]}
        if "reductions" in self.features:
            second["reduce_amax"] = self.rng.choice([False, self.reduce_amax])
        third = first | {"margin": self.rng.choice([0, 1, -2]), "group": self.rng.choice([0, 1])}
        if "formats" in self.features:
            third["fp8_format"] = self.rng.choice(["hybrid", "e4m3"])
        return [first, second, third]

    def step(self) -> None:
        for _ in range(self.rng.choice([1, 1, 2])):
            alone = self.chance("no_grad", 0.15)
            self.without_grad(self.region) if alone else self.region()
        if "several calls" in self.features:
            self.recompute()
        while self.pending:
            self.backward()
        self.recompute()
        for layer in range(self.layers):
            if self.chance("written weights", 0.6):
                self.script.append({"do": "write", "layer": layer, "w": self.value()})

    def region(self, depth: int = 0) -> None:
        enabled = not self.chance("nesting", 0.25)
        self.script.append({"do": "enter", "enabled": enabled, **self.recipe()})
        for _ in range(self.rng.choice([1, 2, 3])):
            if depth < 2 and self.chance("nesting", 0.3):
                self.region(depth + 1)
            elif self.chance("no_grad", 0.15):
                self.without_grad(self.forward)
            else:
                self.forward()
            if self.pending and self.chance("inside", 0.2):
                self.backward()
        self.script.append({"do": "exit"})

    def without_grad(self, body) -> None:
        if self.script and not self.grad_enabled():
            body()
            return
        self.script.append({"do": "grad", "enabled": False})
        body()
        self.script.append({"do": "grad", "enabled": True})

    def grad_enabled(self) -> bool:
        return next((event["enabled"] for event in reversed(self.script) if event["do"] == "grad"), True)

    def fp8_enabled(self) -> bool:
        regions: list[bool] = []
        for event in self.script:
            if event["do"] == "enter":
                regions.append(event["enabled"])
            elif event["do"] == "exit":
                regions.pop()
        return bool(regions) and regions[-1]

    # --- passes -------------------------------------------------------------------------------------------------------

    def forward(self) -> None:
        free = [layer for layer in range(self.layers) if self.may_run(layer)]
        if not free:
            return
        layer, grad = self.rng.choice(free), self.grad_enabled()
        event = {"do": "forward", "layer": layer, "x": self.value(), "w": self.value()}
        event["requires_grad"] = not self.chance("frozen", 0.15)
        event["training"] = not self.chance("evaluation", 0.2 if grad else 0.7)
        event["first_microbatch"] = self.microbatch(layer, grad and event["requires_grad"])
        event["recompute"], event["call"] = 0, None
        if grad and self.fp8_enabled() and event["first_microbatch"] is None and self.chance("recompute", 0.3):
            event |= {"training": True, "requires_grad": True, "recompute": 1}
            self.stashed.append(event)
            self.without_grad(lambda: self.script.append(event))
        else:
            self.call(event, grad and event["requires_grad"])

    def may_run(self, layer: int) -> bool:
        """Between the two runs of a recomputed pass its layer stays under FP8; the second looks at the last pass."""
        if any(event["layer"] == layer for event in self.stashed) and not self.fp8_enabled():
            return False
        return "several calls" in self.features or layer not in self.ran

    def call(self, event: dict, has_backward: bool) -> None:
        if has_backward:
            event["call"] = self.calls
            self.pending.append(self.calls)
            self.ran.add(event["layer"])
            self.calls += 1
        self.script.append(event)

    def microbatch(self, layer: int, grad: bool) -> bool | None:
        """Every second layer caches its weight, from its first FP8 pass with gradients on."""
        if "caching" not in self.features or layer % 2 or not grad:
            return None
        if layer not in self.cached:
            if not self.fp8_enabled():
                return None
            self.cached.add(layer)
            return True
        may_fill = "refilled caches" in self.features or layer not in self.ran
        return may_fill and self.fp8_enabled() and self.rng.random() < 0.3

    def recompute(self) -> None:
        """Runs the second passes in the order of the first ones: a release takes the oldest stash of a layer."""
        for event in self.stashed:
            in_region = not self.chance("recompute outside", 0.4)
            if in_region:
                self.script.append({"do": "enter", "enabled": True, **self.recipe()})
            self.call({**event, "recompute": 2}, True)
            inside = self.chance("inside", 0.5)
            if inside:
                self.backward()
            if in_region:
                self.script.append({"do": "exit"})
            if not inside:
                self.backward()
        self.stashed.clear()

    def backward(self) -> None:
        self.script.append({"do": "backward", "call": self.pending.pop(), "dy": self.value()})
        if not self.pending:
            self.ran.clear()
