# SPDX-License-Identifier: Apache-2.0
"""A training step of each module under each recipe that a release of Transformer Engine has, and te.Linear against fp8lab's own
state: run by test_releases.py under ``python -m fp8lab.te``. Prints one JSON line: what ran, and what went wrong."""

import io
import json
import sys
import traceback

import checks
import torch
import transformer_engine
import transformer_engine.pytorch as te
from transformer_engine.common import recipe as recipes

#: The recipes by the device that has them, and fp8lab's name of the same.
LINEAR = {
    "DelayedScaling": ("h100", "te_delayed_hopper"),
    "Float8CurrentScaling": ("h100", "te_current_scaling_hopper"),
    "Float8BlockScaling": ("h100", "te_block_hopper"),
    "MXFP8BlockScaling": ("b200", "te_mxfp8_blackwell"),
    "NVFP4BlockScaling": ("b200", "te_nvfp4_blackwell"),
}
SIZE, INNER, HEADS = 64, 128, 4
MODULES = {
    "Linear": lambda: te.Linear(SIZE, SIZE),
    "LayerNormLinear": lambda: te.LayerNormLinear(SIZE, SIZE, normalization="RMSNorm"),
    "LayerNormMLP": lambda: te.LayerNormMLP(SIZE, INNER, activation="swiglu"),
    "TransformerLayer": lambda: te.TransformerLayer(
        SIZE, INNER, HEADS, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=torch.bfloat16
    ),
}


def steps(module, recipe, count: int) -> list:
    """The outputs and gradients of some steps."""
    dtype, found = next(module.parameters()).dtype, []
    for step in range(count):
        x = checks.drawn(step, 32 * 2, SIZE, "float32").to(dtype).view(32, 2, SIZE).requires_grad_()
        with checks.autocast(recipe):
            y = module(x)
        y.backward(checks.drawn(step + 9, 32 * 2, SIZE, "float32", 1e-2).to(dtype).view(y.shape))
        found += [checks.words(y), checks.words(x.grad)]
    return found


def trains_and_resumes(module: str, recipe: str) -> None:
    """Two steps, a checkpoint of state_dict through a file, and the third step: the same from the checkpoint."""
    made, again = MODULES[module](), MODULES[module]()
    steps(made, getattr(recipes, recipe)(), 2)
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    again.load_state_dict(torch.load(file, weights_only=False))
    assert steps(made, getattr(recipes, recipe)(), 1) == steps(again, getattr(recipes, recipe)(), 1)
    assert made is not again and all(parameter.grad is not None for parameter in again.parameters())


def linear(recipe: str) -> None:
    import fp8lab

    options, more = {}, {}
    if recipe == "DelayedScaling":
        options, more = {"amax_history_len": 2}, {"delayed": fp8lab.Delayed(amax_history_len=2)}
    elif recipe == "NVFP4BlockScaling":
        options, more = {"disable_stochastic_rounding": True}, {"dy": fp8lab.NvFp4(with_rht=True)}
    checks.compare_linear(getattr(recipes, recipe)(**options), LINEAR[recipe][1], "bfloat16", **more)


def wgrad_in_high_precision() -> None:
    """override_linear_precision, which Transformer Engine 1 alone has: the weight's gradient of operands that are not cast."""
    layer = te.Linear(SIZE, SIZE, bias=False)
    x = checks.drawn(1, 32, SIZE, "float32").requires_grad_()
    gradient = checks.drawn(2, 32, SIZE, "float32")
    with checks.autocast(recipes.DelayedScaling(override_linear_precision=(False, False, True))):
        y = layer(x)
    y.backward(gradient)
    import fp8lab

    assert checks.words(layer.weight.grad) == checks.words(fp8lab.linear_wgrad(gradient, x, recipe="tf32_hopper"))


def main(device: str) -> None:
    found = {name for name in LINEAR if hasattr(recipes, name)}
    cases = {}
    for recipe in sorted(name for name in found if LINEAR[name][0] == device):
        cases[f"te.Linear under {recipe}"] = lambda recipe=recipe: linear(recipe)
        for module in MODULES:
            cases[f"{module}, {recipe}"] = lambda module=module, recipe=recipe: trains_and_resumes(module, recipe)
    if hasattr(recipes, "_OverrideLinearPrecision"):
        cases["override_linear_precision"] = wgrad_in_high_precision
    wrong = {}
    for name, case in cases.items():
        try:
            case()
        except Exception:
            wrong[name] = traceback.format_exc()
    print(json.dumps({"release": transformer_engine.__version__, "cases": list(cases), "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1])
