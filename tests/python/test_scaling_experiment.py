# SPDX-License-Identifier: Apache-2.0
"""``experiments.scaling``: its figures are those that NumPy and ml_dtypes give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import undated
from fp8lab import experiments


def run() -> list[Any]:
    generator = np.random.default_rng(5)
    tensors = [generator.standard_normal((64, 128)).astype(np.float32) for _ in range(5)]
    tensors[2] *= np.float32(100)
    return tensors


def sqnr(x: Any, back: Any) -> Any:
    wide = x.astype(np.float64)
    return 10 * np.log10(np.sum(wide**2) / np.sum((back.astype(np.float64) - wide) ** 2))


def cast(x: Any, scale: Any) -> Any:
    """With one scale, through ml_dtypes."""
    clipped = np.clip(x * scale, np.float32(-448), np.float32(448))
    return clipped.astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * (np.float32(1) / scale)


def steps_of(result: experiments.Document, name: str) -> dict[str, Any]:
    """The columns of table `steps` for one recipe."""
    steps = result.tables["steps"]
    return {column: values[steps["recipe"] == name] for column, values in steps.items()}


def test_current_and_delayed_scaling_are_numpys() -> None:
    tensors = run()
    result = experiments.scaling(
        tensors, recipes="te_current_scaling", delayed=["max:2", fp8lab.Delayed(amax_compute_algo="most_recent")]
    )
    names = ["te_current_scaling", "te_current max 2", "te_current most_recent"]
    assert result.tables["recipes"]["recipe"].tolist() == names
    current, longest, recent = (steps_of(result, name) for name in names)
    amaxes = [np.abs(x).max() for x in tensors]
    assert result.tables["tensors"]["amax"].tolist() == [float(a) for a in amaxes]
    for step, x in enumerate(tensors):
        one = np.float32(1)
        for measured, scale in (
            (current, np.float32(448) / amaxes[step]),
            (longest, np.float32(448) / max(amaxes[max(0, step - 2) : step]) if step else one),
            (recent, np.float32(448) / amaxes[step - 1] if step else one),
        ):
            assert measured["scale"][step] == scale
            # Sums of 8,192 squares in another order: off by less than 2^-53 times the count, in the ratio.
            assert measured["sqnr_db"][step] == pytest.approx(sqnr(x, cast(x, scale)), rel=1e-11)
            assert measured["saturated"][step] == np.count_nonzero(np.abs(x * scale) > 464)
    assert longest["sqnr_db"][2] < 5 < 31 < current["sqnr_db"][2]


def test_blocks_are_those_of_quantize() -> None:
    tensors = run()
    own = fp8lab.MxBlock(format="e2m3", rule="ceil")
    result = experiments.scaling(tensors, recipes={"mine": own, "nvfp4": fp8lab.NvFp4()}, delayed=[], bfloat16=True)
    assert result.tables["recipes"]["recipe"].tolist() == ["mine", "nvfp4"]
    for name, recipe in (("mine", own), ("nvfp4", fp8lab.NvFp4())):
        measured = steps_of(result, name)
        for step, x in enumerate(tensors):
            rounded = x.astype(ml_dtypes.bfloat16).astype(np.float32)
            back = fp8lab.dequantize(fp8lab.quantize(rounded, recipe))
            assert measured["sqnr_db"][step] == pytest.approx(sqnr(rounded, back), rel=1e-11)
            assert measured["underflows"][step] == np.count_nonzero((back == 0) & (rounded != 0))
            assert np.isnan(measured["scale"][step])


def test_arrays_files_and_types_are_the_same_stream(tmp_path: Path) -> None:
    tensors = [x.astype(ml_dtypes.bfloat16).astype(np.float32) for x in run()]
    files = []
    for i, x in enumerate(tensors):
        np.save(tmp_path / f"{i}.npy", x.astype(np.float64 if i % 2 else np.float32))
        files.append(tmp_path / f"{i}.npy")
    held = experiments.scaling([tensors[0].astype(np.float64), tensors[1].astype(ml_dtypes.bfloat16), *tensors[2:]])
    stored = experiments.scaling(file=files, out=tmp_path / "out", threads=2)
    for name in ("recipes", "changes", "steps"):
        for column, values in held.tables[name].items():
            np.testing.assert_array_equal(values, stored.tables[name][column])
    for name, counts in held.histograms.items():
        np.testing.assert_array_equal(counts["counts"], stored.histograms[name]["counts"])
    assert experiments.Document((tmp_path / "out" / "scaling.json").read_text()) == stored
    assert "SQNR in dB by step" in str(stored)


def test_strided_arrays_and_more_dimensions() -> None:
    x = np.arange(1, 2 * 3 * 64 + 1, dtype=np.float32).reshape(2, 3, 64)
    result = experiments.scaling([x[:, :, ::2], x.transpose(2, 1, 0)], recipes="te_block_1x128", delayed=[])
    [recipe] = result.tables["recipes"].rows
    assert recipe["elements"] == 2 * 3 * 32 + 64 * 3 * 2
    assert recipe["blocks"] == 6 + 64 * 3


def test_recipes_and_delayed_scaling_come_in_every_form() -> None:
    x = run()[:2]
    own = fp8lab.MxBlock(format="e2m3", rule="ceil")
    forms: list[Any] = [{"mine": own}, [("mine", own)], [fp8lab.NamedRecipe("mine", own, "here")]]
    tables = [
        experiments.scaling(x, recipes=recipes, delayed="none").tables["recipes"]["sqnr_db"].tolist()
        for recipes in forms
    ]
    assert tables[0] == tables[1] == tables[2]
    assert experiments.scaling(x, recipes=own, delayed=[]).tables["recipes"]["sqnr_db"].tolist() == tables[0]
    # Version and margin are those of texts; a record has its own.
    record = fp8lab.Delayed(amax_history_len=8, margin=2)
    result = experiments.scaling(x, recipes=[], delayed=["max:4", record], version="te_1_6", margin=1)
    assert result.tables["recipes"]["recipe"].tolist() == ["te_1_6 max 4", "te_current max 8"]
    largest = [float(np.abs(one).max()) for one in x]
    assert steps_of(result, "te_1_6 max 4")["scale"][1] == np.float32(448) / np.float32(largest[0]) / 2
    assert steps_of(result, "te_current max 8")["scale"][1] == np.float32(448) / np.float32(largest[0]) / 4
    assert result.arguments["delayed"] == ["max:4", str(record)] and result.arguments["version"] == "te_1_6"


def test_one_array_is_one_tensor() -> None:
    x = np.stack(run())
    one = experiments.scaling(x, recipes="te_mxfp8", delayed=[])
    assert one.tables["tensors"]["shape"].tolist() == ["(5, 64, 128)"] and set(one.tables) == {
        "recipes",
        "steps",
        "tensors",
    }
    several = experiments.scaling(list(x), recipes="te_mxfp8", delayed=[])
    assert several.tables["tensors"]["shape"].tolist() == ["(64, 128)"] * 5 and several.tables["recipes"][
        "elements"
    ] == [x.size]
    assert set(several.curves["errors_by_step"]) == {"te_mxfp8"}


def test_paths_in_the_place_of_the_arrays_mean_file(tmp_path):
    paths = [tmp_path / f"{i}.npy" for i in range(2)]
    for i, path in enumerate(paths):
        np.save(path, np.random.default_rng(i).standard_normal((2, 64)).astype(np.float32))
    by_file = experiments.scaling(file=paths, recipes="te_mxfp8", delayed=[])
    by_array = experiments.scaling([paths[0], str(paths[1])], recipes="te_mxfp8", delayed=[])
    assert undated(by_array) == undated(by_file)
    alone = experiments.scaling(file=paths[0], recipes="te_mxfp8", delayed=[])
    assert undated(experiments.scaling(paths[0], recipes="te_mxfp8", delayed=[])) == undated(alone)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"x": []}, ValueError, "x must have at least one entry"),
        (
            {"x": [np.ones(32), np.zeros((0, 32), np.float32)]},
            ValueError,
            r"x\[1\] must have from 1 to 2\^28 elements, not 0",
        ),
        ({"x": np.zeros((0, 32), np.float32)}, ValueError, "x must have from 1 to"),
        ({"x": [np.float32(1)]}, ValueError, "x: it is a single number"),
        (
            {"x": [np.zeros((2, 32), complex)]},
            TypeError,
            r"x\[0\] must be float32, float64, float16 or bfloat16, not complex128",
        ),
        ({"x": [np.zeros((2, 33), np.float32)]}, ValueError, "columns must be a multiple of 32"),
        ({"x": np.ones(32), "file": ["a.npy"]}, ValueError, "file cannot be given with x"),
        ({"x": ["a.npy", np.ones(32)]}, TypeError, "x must have arrays or paths, not both"),
        (
            {"x": ["a.npy", "max"]},
            ValueError,
            "x must be an array, or the path of a .npy or .safetensors file, an index or a folder, not 'max'",
        ),
        ({"x": np.ones(32), "steps": 3}, ValueError, "steps cannot be given with x"),
        ({"grid": True, "stream": "drift"}, ValueError, "stream cannot be given with grid"),
        ({"tensor": "w"}, ValueError, "tensor can be given only with file"),
        ({"file": []}, ValueError, "file must have at least one entry"),
        ({"file": ["none.npy"]}, OSError, "none.npy"),
        ({"stream": "x"}, ValueError, "known: stationary, drift, outliers, jump"),
        ({"recipes": [], "delayed": []}, ValueError, "at least one entry"),
        ({"recipes": ["x"]}, ValueError, "unknown recipe 'x'; known: "),
        ({"recipes": [3]}, TypeError, "recipes must be a name"),
        ({"recipes": fp8lab.NvFp4(stochastic_rounding=True)}, ValueError, "rounds stochastically"),
        ({"delayed": ["max:0"]}, ValueError, "amax_history_len must be from 1"),
        ({"delayed": [3]}, TypeError, "delayed must be a name"),
        ({"delayed": 3.0}, TypeError, "delayed must be a name"),
        ({"stream": np.zeros(3)}, TypeError, "stream must be a name"),
        ({"delayed": np.float32(3)}, TypeError, "delayed must be"),
        ({"delayed": [fp8lab.Delayed(amax_compute_algo=lambda history: history[0])]}, ValueError, "not a function"),
        ({"steps": 0}, ValueError, "steps must be from 1 to 65536"),
        ({"threads": 0}, ValueError, "threads must be from 1"),
        ({"recipes": [("mine", 3)]}, TypeError, "recipes must be a name"),
        ({"recipes": {3: fp8lab.MxBlock()}}, TypeError, "a name in recipes must be"),
        ({"delayed": "none", "backward": True}, ValueError, "backward goes with delayed scaling"),
        ({"delayed": "max:8", "version": "ms_amp", "margin": 1}, ValueError, "ms_amp has no margin"),
        ({"bfloat16": 1}, TypeError, "bfloat16 must be a bool"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        experiments.scaling(**arguments)
