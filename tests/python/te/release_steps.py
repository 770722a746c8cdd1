# SPDX-License-Identifier: Apache-2.0
"""A training step of each module under each recipe that a release of Transformer Engine has, and te.Linear against fp8lab's own
state: run by test_releases.py under ``python -m fp8lab.te``. Prints one JSON line: what ran, and what went wrong."""

import inspect
import io
import json
import os
import sys
import traceback

import checks
import torch
import transformer_engine
import transformer_engine.pytorch as te
from transformer_engine.common import recipe as recipes

#: The recipes that a device has, and fp8lab's name of the same.
LINEAR = {
    "h100": {
        "DelayedScaling": "te_delayed_hopper",
        "Float8CurrentScaling": "te_current_scaling_hopper",
        "Float8BlockScaling": "te_block_hopper",
    },
    "b200": {
        "DelayedScaling": "te_delayed_blackwell",
        "Float8CurrentScaling": "te_current_scaling_blackwell",
        "Float8BlockScaling": "te_block_blackwell",
        "MXFP8BlockScaling": "te_mxfp8_blackwell",
        "NVFP4BlockScaling": "te_nvfp4_blackwell",
    },
}
#: A GPU deals out the words of stochastic rounding in an order of its own.
OPTIONS = {"NVFP4BlockScaling": {"disable_stochastic_rounding": True}, "DelayedScaling": {"amax_history_len": 2}}
SIZE, INNER, HEADS = 64, 128, 4
EXHAUSTIVE = "FP8LAB_EXHAUSTIVE" in os.environ
MODULES = {
    "Linear": lambda **options: te.Linear(SIZE, SIZE, **options),
    "LayerNormLinear": lambda **options: te.LayerNormLinear(SIZE, SIZE, normalization="RMSNorm", **options),
    "LayerNormMLP": lambda **options: te.LayerNormMLP(SIZE, INNER, activation="swiglu", **options),
    "TransformerLayer": lambda **options: te.TransformerLayer(
        SIZE, INNER, HEADS, hidden_dropout=0.0, attention_dropout=0.0, **options
    ),
}


#: The forms of an ``_extra_state`` that a release reads.
FORMS = {"2.10.0": ("first", "second"), "2.2.0": ("second",), "1.13.0": ("first",)}


def recipe_of(name: str):
    return getattr(recipes, name)(**OPTIONS.get(name, {}))


def steps(module, recipe, count: int) -> list:
    """The outputs and gradients of some steps."""
    found: list = []
    for step in range(count):
        x = checks.drawn(step, 32 * 2, SIZE, "bfloat16").view(32, 2, SIZE).requires_grad_()
        with checks.autocast(recipe):
            y = module(x)
        y.backward(checks.drawn(step + 9, 32 * 2, SIZE, "bfloat16", 1e-2).view(y.shape))
        found += [checks.words(y), checks.words(x.grad)]
    return found


def trains_and_resumes(module: str, recipe: str) -> None:
    """Two steps, a checkpoint of state_dict through a file, and the third step: the same from the checkpoint."""
    made, again = (MODULES[module](params_dtype=torch.bfloat16) for _ in range(2))
    steps(made, recipe_of(recipe), 2)
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    again.load_state_dict(torch.load(file, weights_only=False))
    assert steps(made, recipe_of(recipe), 1) == steps(again, recipe_of(recipe), 1)
    assert all(parameter.grad is not None for parameter in again.parameters())


def keeps_fp8_weights() -> None:
    """A Linear whose weight is FP8 codes alone, saved and loaded as such."""
    recipe = recipes.DelayedScaling(amax_history_len=2)
    takes_recipe = "recipe" in inspect.signature(te.fp8_model_init).parameters
    with te.fp8_model_init(enabled=True, **({"recipe": recipe} if takes_recipe else {})):
        made, again = te.Linear(SIZE, SIZE), te.Linear(SIZE, SIZE)
    assert type(made.weight).__name__.startswith("Float8")
    x = checks.drawn(1, 32, SIZE, "float32")

    def output(layer):
        with checks.autocast(recipe):
            return checks.words(layer(x))

    output(made)
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    again.load_state_dict(torch.load(file, weights_only=False))
    assert output(made) == output(again)


def linear(device: str, recipe: str) -> None:
    import fp8lab

    more = {
        "DelayedScaling": {"delayed": fp8lab.Delayed(amax_history_len=2)},
        "NVFP4BlockScaling": {"dy": fp8lab.NvFp4(with_rht=True)},
    }
    checks.compare_linear(recipe_of(recipe), LINEAR[device][recipe], "bfloat16", **more.get(recipe, {}))


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


def under_accelerate() -> None:
    """The last accelerate whose handler names override_linear_precision: its Accelerator trains as te.fp8_autocast does by hand."""
    import accelerate
    from accelerate.utils import TERecipeKwargs

    assert accelerate.__version__ == "1.10.1"
    facts = {"amax_history_len": 4, "amax_compute_algo": "max", "override_linear_precision": (False, False, True)}
    made = accelerate.Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[TERecipeKwargs(**facts)])
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(torch.nn.Sequential(torch.nn.Linear(SIZE, INNER), torch.nn.ReLU(), torch.nn.Linear(INNER, SIZE)))
    with torch.no_grad():
        accelerate.utils.transformer_engine.convert_model(models[0])
    models[1], _ = made.prepare(models[1], torch.optim.SGD(models[1].parameters(), lr=0.1))
    recipe = recipes.DelayedScaling(**facts)
    for step in range(3):
        x, gradient = checks.drawn(step, 32, SIZE, "float32"), checks.drawn(step + 9, 32, SIZE, "float32")
        with checks.autocast(recipe), torch.autocast("cuda", dtype=torch.bfloat16):
            models[0](x).float().backward(gradient)
        models[1](x).backward(gradient)
    for by_hand, by_accelerate in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert checks.words(by_hand.grad) == checks.words(by_accelerate.grad)


def casts_into_what_a_tensor_has() -> None:
    """Until 2.2 a cast writes the buffers of its output, whatever the quantizer would make."""
    import transformer_engine_torch as tex

    quantizer = te.tensor.float8_tensor.Float8Quantizer(torch.ones(1), torch.zeros(1), tex.DType.kFloat8E4M3)
    tensor = quantizer(checks.drawn(1, 32, 64, "float32"))
    assert tensor._transpose is not None
    quantizer.set_usage(columnwise=False)
    quantizer.update_quantized(checks.drawn(2, 32, 64, "float32"), tensor)
    assert not tensor._transpose_invalid and checks.words(tensor._transpose) == checks.words(tensor._data.t())


def rope_lies_in_memory_as_asked() -> None:
    """The batch comes first where the flag says so, and the values are those of the other order."""
    import transformer_engine_torch as tex

    x, freqs = (
        checks.drawn(1, 6 * 3, 2 * 8, "float32").view(6, 3, 2, 8),
        checks.drawn(2, 6, 8, "float32").view(6, 1, 1, 8),
    )
    for function in (tex.fused_rope_forward, tex.fused_rope_backward):
        plain, other = function(x, freqs, False), function(x, freqs, True)
        assert plain.is_contiguous() and other.transpose(0, 1).is_contiguous()
        assert checks.words(plain) == checks.words(other)


def norms_stand_alone() -> None:
    """The modules of norms, whose functions of the extension take no quantizer in Transformer Engine 1."""
    import fp8lab

    x, gradient = checks.drawn(1, 32, SIZE, "bfloat16"), checks.drawn(2, 32, SIZE, "bfloat16")
    for module, function in ((te.LayerNorm, "layernorm"), (te.RMSNorm, "rmsnorm")):
        norm, own = module(SIZE, params_dtype=torch.bfloat16), x.clone().requires_grad_()
        y = norm(own)
        y.backward(gradient)
        parameters = [one.detach() for one in norm.parameters()]
        made, *saved = getattr(fp8lab.operators, function)(x, *parameters, out_dtype="bfloat16")
        of_x = getattr(fp8lab.operators, f"{function}_backward")(gradient, x, *saved, parameters[0])[0]
        assert checks.words(y) == made.tobytes() and checks.words(own.grad) == of_x.tobytes()


def main(device: str) -> None:
    cases = {}
    for recipe in (name for name in LINEAR[device] if hasattr(recipes, name)):
        cases[f"te.Linear under {recipe}"] = lambda recipe=recipe: linear(device, recipe)
        for module in MODULES if EXHAUSTIVE else ["TransformerLayer"]:  # which is made of the others
            cases[f"{module}, {recipe}"] = lambda module=module, recipe=recipe: trains_and_resumes(module, recipe)
    for form in FORMS[transformer_engine.__version__] if device == "h100" else ():
        cases[f"the {form} form of an extra state"] = lambda form=form: checks.the_extra_state_goes_both_ways(form)
    cases["FP8 weights"] = keeps_fp8_weights
    cases["norms alone"] = norms_stand_alone
    if transformer_engine.__version__ == "2.2.0":
        cases["rope in memory"] = rope_lies_in_memory_as_asked
        if device == "h100":
            cases["casts into what a tensor has"] = casts_into_what_a_tensor_has
    if transformer_engine.__version__ == "2.10.0":
        cases["rows that go to experts by a mask"] = lambda: checks.rows_go_to_experts_by_a_mask("bfloat16")
    if hasattr(recipes, "_OverrideLinearPrecision") and device == "h100":
        cases["override_linear_precision"] = wgrad_in_high_precision
        cases["accelerate 1.10.1"] = under_accelerate
    wrong = {}
    for name, case in cases.items():
        try:
            case()
        except Exception:
            wrong[name] = traceback.format_exc()
    print(json.dumps({"release": transformer_engine.__version__, "cases": list(cases), "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1])
