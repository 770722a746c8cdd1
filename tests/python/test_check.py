# SPDX-License-Identifier: Apache-2.0
"""`fp8lab.check` takes files, arrays and modules, and tells the same of all of them."""

import json
import pathlib
import pickle
import struct

import fp8lab
import ml_dtypes
import numpy as np
import pytest

RECIPES = ["modelopt_fp8", "ocp_mxfp8_e4m3"]
F = np.float32


def tensors():
    random = np.random.default_rng(7)
    return {
        "layers.0.up.weight": random.standard_normal((96, 128)).astype(F),
        "layers.0.experts.down": random.standard_normal((3, 64, 32)).astype(F),
        "layers.0.norm.weight": np.ones(128, F),
    }


def figures(document):
    """The measures of each tensor and recipe by the tensor's own name."""
    columns = document.tables["measures"]
    names = [name.replace('"', "").removesuffix(".npy").split("/")[-1] for name in columns["tensor"]]
    rest = [
        columns[name] for name in ("median_row_sqnr_db", "worst_row_sqnr_db", "worst_row", "zeroed_share", "blocks")
    ]
    return sorted(zip(names, columns["recipe"], *rest, strict=True))


def test_files_arrays_and_a_module_tell_the_same(tmp_path):
    torch = pytest.importorskip("torch")
    arrays = tensors()
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    of_files = fp8lab.check(tmp_path, recipes=RECIPES)
    of_arrays = fp8lab.check(arrays, recipes=RECIPES)
    assert len(of_arrays.tables["tensors"]["tensor"]) == 4
    assert list(of_arrays.tables["left_out"]["name"]) == ['"layers.0.norm.weight"']
    assert [row[1:] for row in figures(of_files)] == [row[1:] for row in figures(of_arrays)]
    module = torch.nn.Module()
    for name, array in arrays.items():
        module.register_buffer(name.replace(".", "_"), torch.from_numpy(array))
    module.register_buffer("steps", torch.arange(3))
    assert [row[1:] for row in figures(fp8lab.check(module, recipes=RECIPES))] == [
        row[1:] for row in figures(of_arrays)
    ]
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, tmp_path / "model.pt")
    assert figures(fp8lab.check(tmp_path / "model.pt", recipes=RECIPES)) == figures(of_arrays)


def test_bfloat16_arrays_are_checked_as_such():
    x = tensors()["layers.0.up.weight"].astype(ml_dtypes.bfloat16)
    document = fp8lab.check({"w": x}, recipes=["ocp_mxfp8_e4m3"])
    scaled = fp8lab.experiments.scaling(x, recipes=["ocp_mxfp8_e4m3"], delayed=[])
    assert abs(document.tables["measures"]["sqnr_db"][0] - scaled.tables["recipes"]["sqnr_db"][0]) < 1e-9


DTYPES = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32, "F64": np.float64}


@pytest.mark.parametrize(
    ("dtype", "ending"), [*((dtype, "safetensors") for dtype in DTYPES), ("F16", "npy"), ("F32", "npy"), ("F64", "npy")]
)
def test_cast_scaling_and_check_tell_one_number(dtype, ending, tmp_path):
    """The sums are added up in other orders, which moves the last bits of a double."""
    values = (np.random.default_rng(1).standard_normal((256, 512)) * 0.02).astype(DTYPES[dtype])
    values[5, 7] = 1.3
    path = tmp_path / f"w.{ending}"
    if ending == "npy":
        np.save(path, values)
    else:
        header = {"w": {"dtype": dtype, "shape": [256, 512], "data_offsets": [0, values.nbytes]}}
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + values.tobytes())
    recipes = ["te_current_scaling", "modelopt_fp8", "compressed_tensors_block", "ocp_mxfp4", "modelopt_nvfp4"]
    checked = fp8lab.check(path, recipes=recipes).tables["measures"]
    scaled = fp8lab.experiments.scaling(path, recipes=recipes, delayed=[]).tables["recipes"]
    assert list(checked["recipe"]) == list(scaled["recipe"]) == recipes
    assert checked["sqnr_db"] == pytest.approx(scaled["sqnr_db"], rel=1e-12)
    scale = float(np.float32(448) / np.float32(np.abs(values).max()))
    cast = fp8lab.experiments.cast(path, formats=["e4m3"], scales=[scale], profiles=["cuda_satfinite"])
    # cast encodes float64 itself; recipes quantize it rounded to float32.
    tolerance = 1e-7 if dtype == "F64" else 1e-12
    assert cast.tables["casts"]["sqnr_db"][0] == pytest.approx(checked["sqnr_db"][0], rel=tolerance)


class Evil:
    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path("ran"),)


def test_what_executes_is_refused_and_not_run(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for save in (torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))):
        save({"w": Evil()}, tmp_path / "model.bin")
        with pytest.raises(
            ValueError, match=r"model, '.*model.bin', holds more than tensors, and to read that is to run"
        ):
            fp8lab.check(tmp_path / "model.bin")
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (3, TypeError, "model must be a path, paths, a mapping of names to arrays or a module, not int"),
        ({}, ValueError, "model has no arrays of float32"),
        ({"w": 3}, TypeError, "model must map names to arrays, and has int"),
        ({3: np.ones((2, 2), F)}, TypeError, "model must have texts as names, not int"),
        ({"w": np.ones(3, F)}, ValueError, 'none of the arrays can be used; "w": it has fewer than two dimensions'),
        ("none.safetensors", OSError, "none.safetensors"),
    ],
)
def test_wrong_models_are_told(model, error, message):
    with pytest.raises(error, match=message):
        fp8lab.check(model)


def test_resume_is_a_bool():
    with pytest.raises(TypeError, match="resume must be a bool, not ndarray"):
        fp8lab.check({"w": np.ones((2, 2), F)}, resume=np.ones(2))
