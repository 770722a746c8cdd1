# SPDX-License-Identifier: Apache-2.0
"""`fp8lab check` on quantized checkpoints: right ones are not accused, and each damage is named with its tensors.

With FP8LAB_CHECKPOINTS=DIR, a folder of checkpoints with the file truth.json that says what each is, those are audited
too.
"""

import copy
import json
import os
import pathlib

import fp8lab
import numpy as np
import pytest
from quantized_models import DAMAGE, LAYOUTS, original, right, write


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write(tmp_path_factory.mktemp("original"), *original())


def audited(folder, original=None):
    document = fp8lab.experiments.check(file=[str(folder)], original=None if original is None else str(original))
    return document, document.tables["findings"].rows if "findings" in document.tables else []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_right_is_not_accused(layout, model, tmp_path):
    folder = write(tmp_path, *right(layout))
    document, findings = audited(folder)
    assert findings == [] and document.passed
    document, findings = audited(folder, model)
    assert findings == [] and document.passed
    weights = document.tables["weights"].rows
    assert len(weights) == 14
    assert all(row["recipe"] and row["codes_differing"] == 0 and row["scales_differing"] == 0 for row in weights)


@pytest.mark.parametrize("name", DAMAGE)
def test_each_damage_is_named(name, model, tmp_path):
    layout, kind, alone, plant = DAMAGE[name]
    tensors, config = copy.deepcopy(right(layout))
    accused = plant(tensors, config)
    folder = write(tmp_path, tensors, config)
    for beside in (None, model):
        document, findings = audited(folder, beside)
        if beside is None and not alone:
            assert findings == [], name
            continue
        assert not document.passed
        told = {(stem(row["tensor"]), row["kind"]) for row in findings}
        assert told == {(stem(tensor), kind) for tensor in accused}, (name, beside, findings)


def stem(name):
    """The module of a tensor: of a fused layer the attention or the MLP."""
    return name.rsplit(".", 1)[0]


def test_a_folder_of_checkpoints():
    folder = os.environ.get("FP8LAB_CHECKPOINTS")
    if folder is None:
        pytest.skip("set FP8LAB_CHECKPOINTS=DIR to audit checkpoints with known damage (truth.json)")
    folder = pathlib.Path(folder)
    wrong = {}
    for name, truth in json.loads((folder / "truth.json").read_text())["checkpoints"].items():
        if truth["layout"].startswith("original"):
            continue
        beside = folder / (truth["original"] or "original")
        for source in (None, beside):
            _, findings = audited(folder / name, source)
            is_told = truth["damage"] is not None and (source is not None or truth["told_without_original"])
            if bool(findings) != is_told:
                wrong[name, source is not None] = [(row["tensor"], row["kind"]) for row in findings]
    assert wrong == {}


def test_a_name_moves_no_cursor_and_an_empty_tensor_is_not_accused(tmp_path):
    tensors, config = copy.deepcopy(right("deepseek"))
    name = "model.layers.0.mlp.up_proj.weight"
    odd = "a\n\x1b[31mb.weight"
    tensors[odd], tensors[odd + "_scale_inv"] = tensors.pop(name), ("F32", np.full((2, 2), np.nan, np.float32))
    tensors.pop(name + "_scale_inv")
    tensors["empty.weight"] = ("F8_E4M3", np.zeros((0, 128), np.uint8))
    tensors["empty.weight_scale_inv"] = ("F32", np.zeros((0, 1), np.float32))
    document, findings = audited(write(tmp_path, tensors, config))
    assert [(row["tensor"], row["kind"]) for row in findings] == [("a\\n\\u001b[31mb.weight_scale_inv", "nan_scale")]
    assert not set(str(document)) & {"\x1b"}
    assert "empty.weight" not in str(document)
