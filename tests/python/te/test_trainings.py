# SPDX-License-Identifier: Apache-2.0
"""The study of docs/train_without_the_hardware.md gives its committed results again."""

import ast
import importlib.metadata
import json
import re
from pathlib import Path

import pytest
import warm
from installed import without_transformer_engine
from sampled import EXHAUSTIVE

DOCS = Path(__file__).parents[3] / "docs"
PROGRAM = DOCS / "examples" / "train_without_the_hardware.py"
RESULTS = DOCS / "data" / "train_without_the_hardware"
STEPS = 3 if EXHAUSTIVE else 2


def first_losses(document: dict, recipe: str) -> list[str]:
    """The bits of the losses of the first steps, of seed 1."""
    (run,) = [one for one in document["runs"] if one["recipe"] == recipe and one["seed"] == 1]
    return run["loss"][:STEPS]


def stored(device: str) -> dict:
    return json.loads((RESULTS / f"{device}.json").read_text())


@without_transformer_engine
def test_the_first_steps_have_the_bits_of_the_committed_results(tmp_path):
    """In BF16 and under a recipe. PyTorch computes attention and the loss, so that its version and the processor's instructions must
    be those of the results; without that, losses that differ say nothing."""
    wanted = stored("h100")
    if wanted["environment"]["versions"]["torch"] != importlib.metadata.version("torch"):
        pytest.skip(f"the results are of PyTorch {wanted['environment']['versions']['torch']}")
    out = tmp_path / "out.json"
    done = warm.run("--device", "h100", PROGRAM, "--recipe", "delayed", "--steps", STEPS, "--out", out)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text())
    if found["environment"]["instructions"] != wanted["environment"]["instructions"]:
        pytest.skip(f"the results are of a processor with {wanted['environment']['instructions']}")
    assert [one["recipe"] for one in found["runs"]] == ["bf16", "delayed"]
    for one in found["runs"]:
        assert one["loss"] == first_losses(wanted, one["recipe"])
        assert one["weights"] == wanted["runs"][0]["weights"]


@without_transformer_engine
def test_the_program_of_the_page_compares_each_layer(tmp_path):
    page = (DOCS / "train_without_the_hardware.md").read_text()
    (program,) = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "compare.py").write_text(program)
    done = warm.run("--device", "h100", tmp_path / "compare.py", path=[DOCS / "examples"])
    assert done.returncode == 0, done.stderr[-3000:]
    found = ast.literal_eval(done.stdout)
    assert list(found) == ["0", "1"] and all(0.001 < one < 0.2 for one in found.values()), found


def test_every_run_begins_with_the_same_weights():
    """Of a seed: the generator's draws are those of all devices, for no tensor has more elements than a device draws at once."""
    runs = [run for path in sorted(RESULTS.glob("*.json")) for run in json.loads(path.read_text())["runs"]]
    of_seed = {seed: {one["weights"] for one in runs if one["seed"] == seed} for seed in {one["seed"] for one in runs}}
    assert all(len(found) == 1 for found in of_seed.values()) and len(set.union(*of_seed.values())) == len(of_seed)


def test_the_results_tell_devices_and_recipes_apart():
    """So that a run of another device, or under another recipe, would not pass for one of these."""
    assert len({tuple(first_losses(stored(device), "delayed")) for device in ("h100", "b200", "l40s")}) == 3
    assert first_losses(stored("h100"), "bf16") != first_losses(stored("l40s"), "bf16")
    assert first_losses(stored("h100"), "bf16") != first_losses(stored("h100"), "delayed")


def test_bfloat16_has_the_same_bits_on_an_h100_and_a_b200():
    """The page says so: at the K of this model the two tensor cores sum alike."""
    of_h100, of_b200 = stored("h100")["runs"][0], stored("b200")["runs"][0]
    assert of_h100["recipe"] == of_b200["recipe"] == "bf16" and of_h100["loss"] == of_b200["loss"]
