# SPDX-License-Identifier: Apache-2.0
"""fp8lab.torch.watch: what it says of a model's casts is what the experiment of a Linear layer says of the tensors."""

import json
import math
import pathlib

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
import fp8lab.torch  # noqa: E402
import torch_models  # noqa: E402
from command import run  # noqa: E402
from torch_models import EXHAUSTIVE, MODELS, train, words_of  # noqa: E402

STEPS = 3
RECIPES = ["te_delayed_hopper", "te_current_scaling_hopper", "te_mxfp8_blackwell", "te_block_hopper"]


def drawn(rows, columns, seed, size=1.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(0, size, (rows, columns)).astype(np.float32))


def layer():
    torch.manual_seed(5)
    return torch.nn.Linear(128, 128)


def inputs(step):
    """x and dy of a step; both jump, so that old scales saturate and underflow."""
    factor = (1, 32, 0.001)[step]
    return drawn(128, 128, step, factor), drawn(128, 128, 10 + step, 1e-3 / factor).bfloat16()


def watched(recipe, **options):
    model = layer()
    fp8lab.torch.convert(model, recipe)
    with fp8lab.torch.watch(model, **options) as seen:
        for step in range(STEPS):
            x, dy = inputs(step)
            model(x.requires_grad_()).backward(dy.float())
    return model, seen


def by_experiment(recipe):
    model = layer()
    x, dy = zip(*(inputs(step) for step in range(STEPS)))
    return fp8lab.experiments.linear(
        list(x), [model.weight.detach()] * STEPS, dy=[one.float() for one in dy],
        bias=[model.bias.detach()] * STEPS, recipes=recipe,
    )  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_casts_and_causes_are_those_of_the_experiment(recipe):
    _, seen = watched(recipe, causes_every=1)
    expected = by_experiment(recipe)
    rows = {(row["step"], row["pass"], row["tensor"]): row for row in seen.document.tables["tensors"].rows}
    casts = expected.tables["casts"].rows
    assert len(casts) == len(rows) == 6 * STEPS
    for cast in casts:
        row = rows[cast["step"], cast["pass"], cast["tensor"]]
        assert row["elements"] == cast["elements"] == 128 * 128
        assert round(row["underflow"] * row["elements"]) == cast["underflows"], row
        assert round(row["saturated"] * row["elements"]) == cast["saturated"], row
        if "delayed" in recipe or "current" in recipe:
            assert row["scale"] == cast["scale"]
            assert row["scale_lag"] == cast["scale"] / cast["scale_of_own_amax"]
        else:
            assert math.isnan(row["scale"]) and math.isnan(row["scale_lag"])
    parts = {
        (row["step"], row["cause"]): row["rms_error"] for row in expected.tables["steps"].rows if row["pass"] == "fprop"
    }
    for row in seen.document.tables["causes"].rows:
        if row["cause"] in ("output_rounding", "total"):
            assert row["rms"] == pytest.approx(parts[row["step"], row["cause"]], rel=1e-9)
        elif row["cause"] == "accumulation":  # which the experiment has in two parts
            both = parts[row["step"], "accumulator"], parts[row["step"], "bias"]
            assert max(both) - min(both) <= row["rms"] * (1 + 1e-9) and row["rms"] <= sum(both) * (1 + 1e-9)
    if "delayed" in recipe:
        assert rows[1, "fprop", "x"]["saturated"] > 0.5 and rows[1, "fprop", "x"]["scale_lag"] > 16
        assert rows[2, "fprop", "x"]["scale_lag"] < 1 / 1000 and rows[0, "dgrad", "dy"]["underflow"] > 0


def test_casts_of_a_step_without_lag_are_apart_by_tensor():
    _, seen = watched("te_current_scaling_hopper", causes_every=2)
    table = seen.document.tables["causes"]
    assert sorted(set(table["step"].tolist())) == [0, 2]
    expected = by_experiment("te_current_scaling_hopper").tables["steps"].rows
    for tensor in ("x", "w"):
        rms = [
            row["rms_error"]
            for row in expected
            if row["pass"] == "fprop" and row["step"] == 0 and row["cause"].startswith(tensor)
        ]
        own = next(row for row in table.rows if row["step"] == 0 and row["cause"] == f"{tensor}_cast")
        assert own["rms"] == pytest.approx(max(rms), rel=1e-2)  # rounding alone, but for a few elements


def test_sqnr_is_that_of_what_comes_back():
    _, seen = watched("te_delayed_hopper")
    arrays = seen.arrays()
    assert arrays["step"].dtype == np.int64 and arrays["layer"].tolist() == [""] * 18
    for step in range(STEPS):
        x = inputs(step)[0].numpy()
        at = (arrays["step"] == step) & (arrays["pass"] == "fprop") & (arrays["tensor"] == "x")
        scale = np.float32(arrays["scale"][at][0])
        back = fp8lab.decode(fp8lab.encode(x * scale, "e4m3"), "e4m3") * np.float32(1 / scale)
        error = np.square(back.astype(float) - x).sum()
        assert arrays["sqnr"][at][0] == pytest.approx(10 * np.log10(np.square(x.astype(float)).sum() / error), abs=1e-9)
        assert arrays["amax"][at][0] == np.abs(x).max()


@pytest.mark.parametrize("recipe", ["te_delayed_hopper", "te_nvfp4_blackwell"])
def test_a_watched_model_has_the_bits_of_an_unwatched_one(recipe):
    results = []
    for is_watched in (False, True):
        torch.manual_seed(3)
        model = MODELS["vit"]()
        done = fp8lab.torch.convert(model, recipe)
        if is_watched:
            with fp8lab.torch.watch(model, causes_every=1) as seen:
                train(model, 2)
        else:
            train(model, 2)
        results.append(
            (words_of(torch.cat([one.flatten() for one in model.parameters()])), done.state.arrays().__repr__())
        )
    assert results[0] == results[1]
    assert seen.steps == 2 and np.isfinite(seen.arrays()["sqnr"]).all()


def check_a_model(make, tmp_path):
    """Watches a few steps, and replays the amaxes: the scales are those that the layers used."""
    torch.manual_seed(3)
    model = make()
    done = fp8lab.torch.convert(
        model, "te_delayed_hopper_e4m3", delayed=fp8lab.Delayed(fp8_format="e4m3", amax_history_len=16)
    )
    with fp8lab.torch.watch(model, first_step=7) as seen:
        losses = train(model, 50 if EXHAUSTIVE else 3)
    assert all(map(math.isfinite, losses))
    assert len(seen.arrays()["step"]) == 6 * len(done.converted) * seen.steps
    seen.write_traces(tmp_path / "amaxes.csv")
    ran = run(
        [
            "delayed",
            "--amax",
            str(tmp_path / "amaxes.csv"),
            "--versions",
            "te_current",
            "--algorithms",
            "max",
            "--history",
            "16",
            "--json",
        ]
    )
    assert ran.returncode == 0, ran.stderr
    replayed = fp8lab.experiments.delayed(tmp_path / "amaxes.csv", versions="te_current", algorithms="max", history=16)
    rows = {(row["tensor"], row["step"]): row for row in replayed.tables["scales"].rows}
    arrays = seen.arrays()
    count = 0
    for step, name, which, tensor, scale in zip(*(arrays[key] for key in ("step", "layer", "pass", "tensor", "scale"))):
        if (which, tensor) in (("fprop", "x"), ("fprop", "w"), ("dgrad", "dy")):
            assert rows[f"{name}.{tensor}", step]["te_current_max_16"] == scale
            count += 1
    assert count == len(rows)


@pytest.mark.parametrize("name", MODELS)
def test_amaxes_of_a_model_are_replayed(name, tmp_path):
    check_a_model(MODELS[name], tmp_path)


@pytest.mark.parametrize("name", ["llama", "gpt2", "vit"])
def test_amaxes_of_a_model_of_hugging_face_are_replayed(name, tmp_path):
    check_a_model(torch_models.hugging_face(name), tmp_path)


def test_the_document_is_one_of_experiments(tmp_path):
    _, seen = watched("te_mxfp8_blackwell", causes_every=1)
    document = seen.document
    validate = pytest.importorskip("jsonschema").validate
    schema = json.loads((pathlib.Path(fp8lab.__file__).parent / "document.schema.json").read_text())
    validate(json.loads(document.to_json()), schema)
    assert document.experiment == "torch_watch" and document.arguments == {
        "causes_every": 1,
        "first_step": 0,
        "steps": 3,
    }
    assert "least SQNR" in str(seen) and "accumulation" in str(seen) and "1 layers, 3 steps" in repr(seen)
    document.save(tmp_path / "out")
    assert any(path.suffix == ".csv" for path in (tmp_path / "out").iterdir())


def test_steps_without_gradients_and_layers_that_run_twice():
    model = torch.nn.Sequential(layer(), torch.nn.ReLU(), torch.nn.Identity())
    model.add_module("again", model[0])
    fp8lab.torch.convert(model, "te_current_scaling_hopper")
    with fp8lab.torch.watch(model) as seen, torch.no_grad():
        model(drawn(128, 128, 1))
    arrays = seen.arrays()
    assert arrays["pass"].tolist() == ["fprop", "fprop"] and arrays["layer"].tolist() == ["0", "0"]
    assert arrays["elements"].tolist() == [2 * 128 * 128] * 2
    model(drawn(128, 128, 1))
    assert seen.steps == 1 and len(seen.arrays()["step"]) == 2  # nothing is seen afterwards


def test_wrong_calls_are_refused(tmp_path):
    with pytest.raises(TypeError, match="model must be a torch.nn.Module"):
        fp8lab.torch.watch(3)
    with pytest.raises(ValueError, match=r"no layer that fp8lab.torch computes: convert\(\) it first"):
        fp8lab.torch.watch(layer())
    model = layer()
    fp8lab.torch.convert(model, "exact")
    with pytest.raises(ValueError, match="causes_every must be"):
        fp8lab.torch.watch(model, causes_every=-1)
    seen = fp8lab.torch.watch(model)
    with pytest.raises(ValueError, match="nothing was watched yet"):
        seen.write_traces(tmp_path / "t.csv")
    with seen, pytest.raises(RuntimeError, match="watched already"):
        seen.__enter__()
    assert seen.arrays()["sqnr"].shape == (0,) and "worst" in seen.document.tables
