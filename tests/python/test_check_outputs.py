# SPDX-License-Identifier: Apache-2.0
"""The outputs of layers in `fp8lab.check`: errors by cause, recomputed of what comes back of the casts."""

import math

import fp8lab
import ml_dtypes
import numpy as np
import pytest

F = np.float32
ROWS = 32


def decibels(real, error):
    noise = math.fsum(x * x for x in error.ravel())
    return 10 * math.log10(math.fsum(x * x for x in real.ravel()) / noise) if noise else math.inf


def product(x, w):
    """The real product, each sum rounded once: float32 factors have exact products in float64."""
    return np.array(
        [[math.fsum((row * column).tolist()) for column in w.astype(np.float64)] for row in x.astype(np.float64)]
    )


def back(values, recipe):
    return fp8lab.dequantize(fp8lab.quantize(values, recipe))


def layer(rows=50, out=24, depth=128, kind=F):
    random = np.random.default_rng(11)
    x = random.standard_normal((rows, depth))
    x[:, 5] *= 30
    x[17] *= 1e-4
    return x.astype(kind), (random.standard_normal((out, depth)) * 0.03).astype(kind)


def taken(x):
    count = min(len(x), ROWS)
    return x[[i * len(x) // count for i in range(count)]]


#: A recipe, that of its inputs, and the core that multiplies.
RECIPES = {
    "modelopt_fp8": ("modelopt_fp8", "hopper_wgmma_fp8"),
    "compressed_tensors_channel": ("compressed_tensors_channel", "hopper_wgmma_fp8"),
    "ocp_mxfp8_e4m3": ("ocp_mxfp8_e4m3", "blackwell_mxf8"),
    "ocp_mxfp4": ("ocp_mxfp4", "blackwell_mxf4"),
    "modelopt_nvfp4": ("modelopt_nvfp4", "blackwell_nvf4"),
}


def row_of(document, recipe):
    table = document.tables["outputs"]
    (at,) = [i for i, name in enumerate(table["recipe"]) if name == recipe]
    return {name: values[at] for name, values in table.items()}


@pytest.mark.parametrize("kind", [F, ml_dtypes.bfloat16])
@pytest.mark.parametrize("recipe", RECIPES)
def test_each_cause_alone_and_all_together_are_what_the_casts_leave(recipe, kind):
    x, w = layer(kind=kind)
    document = fp8lab.check({"up.weight": w}, recipes=[recipe], activations={"up": x})
    row = row_of(document, recipe)
    of_inputs, core = RECIPES[recipe]
    assert (row["layer"].strip('"'), row["tensor_core"], row["rows"], row["of_rows"]) == ("up.weight", core, ROWS, 50)
    some = taken(x)
    cast_x, cast_w = back(some, of_inputs), back(w, recipe)
    real, both = product(some, w), product(cast_x, cast_w)
    out = fp8lab.gemm(fp8lab.quantize(some, of_inputs), fp8lab.quantize(w, recipe), model=core).astype(np.float64)
    assert row["weight_sqnr_db"] == pytest.approx(decibels(real, product(some, cast_w) - real), abs=1e-9)
    assert row["activations_sqnr_db"] == pytest.approx(decibels(real, product(cast_x, w) - real), abs=1e-9)
    assert row["accumulation_sqnr_db"] == pytest.approx(decibels(real, out - both), abs=1e-6)
    assert row["sqnr_db"] == pytest.approx(decibels(real, out - real), abs=1e-9)
    rows = [decibels(real[i], out[i] - real[i]) for i in range(ROWS)]
    worst = int(np.argmin(rows))
    assert row["worst_row_sqnr_db"] == pytest.approx(rows[worst], abs=1e-9)
    assert row["worst_row"] == worst * 50 // ROWS
    assert row["not_finite"] == 0


def test_blocks_of_weights_have_inputs_with_scales_of_their_own_row():
    x, w = layer(out=130, depth=256)
    row = row_of(
        fp8lab.check({"w": w}, recipes=["compressed_tensors_block"], activations={"w": x}), "compressed_tensors_block"
    )
    named = {one.name: one.recipe for one in fp8lab.recipes()}["compressed_tensors_block"]
    import dataclasses

    cast_x = back(taken(x), dataclasses.replace(named, tile_across=1))
    real = product(taken(x), w)
    assert row["activations_sqnr_db"] == pytest.approx(decibels(real, product(cast_x, w) - real), abs=1e-9)


def test_files_arrays_and_a_recorded_module_tell_the_same(tmp_path):
    torch = pytest.importorskip("torch")
    import fp8lab.torch

    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 32), torch.nn.LayerNorm(32)
    )
    x = torch.randn(2, 20, 64)
    with fp8lab.torch.record_activations(model, rows=36) as inputs:
        first = model(x)
        model(x)
    assert torch.equal(first, model(x))
    assert not model[0]._forward_pre_hooks  # none is left
    assert {name: tuple(one.shape) for name, one in inputs.items()} == {"0": (36, 64), "2": (36, 96)}
    assert torch.equal(inputs["0"], x.reshape(-1, 64)[:36])
    assert torch.equal(inputs["2"], model[1](model[0](x)).reshape(-1, 96)[:36])
    recipes = ["modelopt_fp8", "ocp_mxfp8_e4m3"]
    of_module = fp8lab.check(model, recipes=recipes, activations=inputs)
    weights = tmp_path / "model"
    weights.mkdir()
    given = tmp_path / "inputs"
    given.mkdir()
    for name, tensor in model.state_dict().items():
        np.save(weights / f"{name}.npy", tensor.numpy())
    for name, tensor in inputs.items():
        np.save(given / f"{name}.input.npy", tensor.numpy())
    of_files = fp8lab.check(weights, recipes=recipes, activations=given)
    assert len(of_module.tables["outputs"]["layer"]) == 4
    for name, values in of_module.tables["outputs"].items():
        if name != "layer":
            assert list(of_files.tables["outputs"][name]) == list(values), name


def test_the_verdict_tells_outputs_below_min_sqnr():
    x, w = layer()
    document = fp8lab.check(
        {"good": w, "bad": w},
        recipes=["modelopt_fp8"],
        activations={"good": x[:, ::-1].copy(), "bad": x * (1 + 1e4 * (np.arange(128) == 3)).astype(F)},
        min_sqnr=31,
    )
    text = str(document)
    assert "Worst of all outputs are those of" in text
    assert "outputs by modelopt_fp8 have less than 31 dB (min_sqnr); the worst, " in " ".join(text.split())


def test_what_cannot_be_measured_is_told():
    x, w = layer()
    weights = {"a.weight": w, "b.experts": np.stack([w, w])}
    inputs = {"a": x, "c": x, "b.experts": x}
    document = fp8lab.check(weights, recipes=["modelopt_fp8"], activations=inputs)
    left = dict(zip(document.tables["left_out"]["name"], document.tables["left_out"]["reason"]))
    assert left['"c"'] == "these inputs have the name of no weight that is measured"
    assert left['"b.experts"'].startswith("these inputs are of a stack of experts")
    with pytest.raises(
        ValueError,
        match="none of the 1 tensors has the name and the columns of a weight; .*128 columns, and the weight 64",
    ):
        fp8lab.check({"a": w[:, :64].copy()}, activations={"a": x})
    with pytest.raises(ValueError, match="activation_rows must be 1 or more, not 0"):
        fp8lab.check(weights, activations=inputs, activation_rows=0)
    with pytest.raises(TypeError, match="activations must map names to arrays, and has int"):
        fp8lab.check(weights, activations={"a": 3})
    document = fp8lab.check(
        {"a": w}, recipes=["modelopt_fp8"], activations={"a": x}, tensor_cores=["blackwell_mxf8", "hopper_wgmma_fp8"]
    )
    assert list(document.tables["outputs"]["tensor_core"]) == ["hopper_wgmma_fp8"]
    assert any("its outputs by modelopt_fp8: " in reason for reason in document.tables["left_out"]["reason"])


def test_what_records_refuses_what_is_no_model():
    torch = pytest.importorskip("torch")
    import fp8lab.torch

    with pytest.raises(TypeError, match="model must be a torch.nn.Module, not int"):
        fp8lab.torch.record_activations(3)
    with pytest.raises(ValueError, match="model has no torch.nn.Linear"):
        fp8lab.torch.record_activations(torch.nn.ReLU())
    with pytest.raises(ValueError, match="rows"):
        fp8lab.torch.record_activations(torch.nn.Linear(2, 2), rows=0)
