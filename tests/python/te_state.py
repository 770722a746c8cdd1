# SPDX-License-Identifier: Apache-2.0
"""The FP8 state of Linear modules under delayed scaling, as a release of Transformer Engine keeps it.

RealState runs the release's own Linear, autocast and global state on a CPU: te_environment.py stands for CUDA,
te_extension.py for the compiled extension. A script is a list of events:

    {"do": "enter", "enabled": True, "margin": 0, "fp8_format": "hybrid", "amax_history_len": 4,
     "amax_compute_algo": "max", "reduce_amax": True, "group": 0}
    {"do": "exit"}
    {"do": "grad", "enabled": False}
    {"do": "forward", "layer": 0, "x": 2.0, "w": 1.0, "requires_grad": True, "training": True,
     "first_microbatch": None, "recompute": 0, "call": 7}
    {"do": "backward", "call": 7, "dy": 3.0}
    {"do": "write", "layer": 0, "w": 2.0}
    {"do": "checkpoint", "layers": [0, 1], "x": 2.0, "call": 8}

x, w and dy fill whole tensors. `recompute` is 1 in the first forward of a checkpointed region, 2 in the second.
"""

import contextlib
import copy
import functools
import inspect

import numpy as np
from releases import kernel_of, number_of
from te_environment import Release
from te_extension import DType, Extension

FORMATS = {DType.kFloat8E4M3: "e4m3", DType.kFloat8E5M2: "e5m2"}
SIDE = 16  # the smallest side that FP8 products accept
TAGS = ["v0.6", "v1.3", "v1.5", "v1.6", "v1.7", "v1.8", "v1.12", "v1.13", "v2.0", "v2.4", "v2.9", "v2.18"]


@functools.cache
def release_of(tag: str, rank: int) -> tuple[Release, Extension]:
    """Each rank has modules of its own, and with them the release's global state."""
    number = number_of(tag)
    kernel = None if number < (1, 4) else kernel_of(tag, "single" if number < (1, 6) else "bulk")
    extension = Extension(number, kernel)
    release = Release(tag, extension.module, extension.operators)
    extension.release = release
    return release, extension


class RealState:
    def __init__(self, tag: str, layers: int = 2, primary_weights_in_fp8: bool = False, rank: int = 0) -> None:
        self.release, self.extension = release_of(tag, rank)
        self.torch = self.release.torch
        self.tag = number_of(tag)
        self.outputs: dict[int, tuple] = {}
        self.grad_enabled = True
        with self.release.active():
            self.release.leave_regions()
            self.reset()
            self.layers = [self.linear(primary_weights_in_fp8) for _ in range(layers)]

    def linear(self, primary_weights_in_fp8: bool):
        make = functools.partial(
            self.release.linear.Linear,
            SIDE,
            SIDE,
            bias=False,
            params_dtype=self.torch.float32,
            init_method=self.torch.nn.init.ones_,
        )
        if "device" in inspect.signature(make).parameters:
            make = functools.partial(make, device="cpu")
        if not primary_weights_in_fp8:
            return make()
        with self.release.state.fp8_model_init(enabled=True):
            return make()

    def reset(self) -> None:
        """A release keeps its state in globals: every run starts with those of a new process."""
        owner, initial = self.release.globals
        for name, value in initial.items():
            setattr(owner, name, copy.copy(value))
        if hasattr(owner, "reset"):
            owner.reset()
        recompute = getattr(self.release.distributed, "activation_recompute_forward", None)
        if hasattr(recompute, "_is_first_fp8_module"):
            recompute._is_first_fp8_module.clear()
        for name in ("transformer_engine.pytorch.float8_tensor", "transformer_engine.pytorch.tensor.float8_tensor"):
            if written := getattr(self.release.modules.get(name), "updated_fp8_params", None):
                written.clear()

    # --- events -------------------------------------------------------------------------------------------------------

    def run(self, script: list[dict]) -> list[dict]:
        """After each event: the state of each layer, and what its casts and products used."""
        return [self.step(event) for event in script]

    def step(self, event: dict) -> dict:
        with self.release.active():
            return self.step_in_active_release(event)

    def step_in_active_release(self, event: dict) -> dict:
        arguments = {key: value for key, value in event.items() if key != "do"}
        self.extension.trace.clear()
        with self.torch.set_grad_enabled(self.grad_enabled):
            used = getattr(self, event["do"])(**arguments)
            return {"layers": [self.layer_state(layer) for layer in self.layers], "used": used}

    def enter(self, enabled=True, group=0, calibrating=False, **fields) -> None:
        """The names of autocast's arguments changed in 2.9. Old releases lack some: these have their usual values."""
        recipe, group = self.recipe_of(**fields), group or None
        arguments = {"enabled": enabled, "calibrating": calibrating}
        arguments |= (
            {"fp8_recipe": recipe, "fp8_group": group}
            if self.tag < (2, 9)
            else {"recipe": recipe, "amax_reduction_group": group}
        )
        region = self.release.autocast(**known_by(self.release.autocast, arguments, calibrating=False))
        region.__enter__()
        self.release.regions.append(region)

    def exit(self) -> None:
        self.release.regions.pop().__exit__(None, None, None)

    def grad(self, enabled: bool) -> None:
        self.grad_enabled = enabled

    def recipe_of(self, fp8_format="hybrid", **fields):
        module = self.release.recipe
        fields["fp8_format"] = module.Format[fp8_format.upper()]
        return module.DelayedScaling(**known_by(module.DelayedScaling, fields, reduce_amax=True))

    def forward(
        self, layer, x, w, requires_grad=True, training=True, first_microbatch=None, recompute=0, call=None
    ) -> dict:
        module, torch = self.layers[layer], self.torch
        module.train(training)
        if not hasattr(module.weight, "_scale_inv"):
            module.weight.data.fill_(w)  # not an in-place operation that the backward of an earlier call would notice
        module.weight.requires_grad_(requires_grad)
        value = torch.full((SIDE, SIDE), x, dtype=torch.float32).requires_grad_(requires_grad)
        phase = contextlib.nullcontext()
        if recompute:
            phase = self.release.distributed.activation_recompute_forward(
                activation_recompute=True, recompute_phase=recompute == 2
            )
        with phase:
            output = module(value, is_first_microbatch=first_microbatch)
        if call is not None:
            self.outputs[call] = (module, output)
        return self.used_in_forward(module)

    def checkpoint(self, layers, x, call) -> None:
        """te.checkpoint of 1.5 and later, over layers one after the other: a backward pass repeats their passes."""
        modules = [self.layers[layer] for layer in layers]
        for module in modules:
            module.train()
        value = self.torch.full((SIDE, SIDE), x).requires_grad_()
        run = functools.partial(functools.reduce, lambda values, module: module(values), modules)
        self.outputs[call] = (modules[-1], self.release.distributed.checkpoint(run, value))

    def write(self, layer, w) -> dict:
        """What an optimizer does with a parameter; one that is kept in FP8 is quantized again."""
        weight = self.layers[layer].weight
        with self.torch.no_grad():
            weight.copy_(self.torch.full((SIDE, SIDE), w))
        casts, _ = self.trace()
        return {"w": casts[0]["scale"] if casts else None}

    def backward(self, call, dy) -> dict:
        module, output = self.outputs.pop(call)
        self.torch.autograd.backward([output], [self.torch.full_like(output, dy)])
        module.weight.grad = None
        casts, products = self.trace()
        used: dict = {"dy": casts[0]["scale"] if casts else None}
        for name, factor, product in zip(("dgrad", "wgrad"), ("w", "x"), products, strict=False):
            first, second = product["gemm"]
            used[name] = {factor: operand(first), "dy": operand(second)}
        return used

    # --- what the state holds -----------------------------------------------------------------------------------------

    def trace(self):
        casts = [entry for entry in self.extension.trace if "cast" in entry]
        return casts, [entry for entry in self.extension.trace if "gemm" in entry]

    def used_in_forward(self, module) -> dict:
        casts, products = self.trace()
        weight = None if hasattr(module.weight, "_scale_inv") else module.weight.data_ptr()
        used: dict = {"x": None, "w": None, "fprop": None}
        for cast in casts:
            used["w" if cast["cast"] == weight else "x"] = cast["scale"]
        for product in products:
            first, second = product["gemm"]
            used["fprop"] = {"w": operand(first), "x": operand(second)}
        return used

    def layer_state(self, module) -> dict | None:
        """None until the first forward under FP8 makes the module's tensors."""
        if "scaling_fwd" not in module.fp8_meta:
            return None
        forward, backward = module.fp8_meta["scaling_fwd"], module.fp8_meta["scaling_bwd"]
        return {
            "fwd_scale": forward.scale[:2].numpy().copy(),
            "fwd_history": forward.amax_history[:, :2].numpy().copy(),
            "bwd_scale": backward.scale[:1].numpy().copy(),
            "bwd_history": backward.amax_history[:, :1].numpy().copy(),
        }


def known_by(function, arguments: dict, **usual) -> dict:
    """The arguments that the function has; it may lack one that has its usual value."""
    unknown = set(arguments) - set(inspect.signature(function).parameters)
    assert all(name in usual and arguments[name] == usual[name] for name in unknown), unknown
    return {name: value for name, value in arguments.items() if name not in unknown}


def operand(factor: tuple) -> dict:
    """What made the bytes, and what the product took them for."""
    scale, value, made_as, scale_inv, read_as = factor
    return {
        "made_with": np.float32(scale), "value": np.float32(value), "made_as": FORMATS.get(made_as),
        "scale_inv": np.float32(scale_inv), "read_as": FORMATS[read_as],
    }  # fmt: skip
