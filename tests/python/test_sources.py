# SPDX-License-Identifier: Apache-2.0
"""The same tensor means the same values in every experiment, and what comes back is compared in the type that is asked
for."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from fp8lab import experiments


def save_file(tensors: dict[str, np.ndarray[Any, Any]], path: Path) -> None:
    """https://github.com/huggingface/safetensors#format"""
    names = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16"}
    header: dict[str, Any] = {}
    data = b""
    for name, x in tensors.items():
        offsets = [len(data), len(data) + x.nbytes]
        header[name] = {"dtype": names[x.dtype.name], "shape": list(x.shape), "data_offsets": offsets}
        data += x.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


X = np.random.default_rng(5).standard_normal((64, 96))
TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def sqnr(x: np.ndarray[Any, Any], back: np.ndarray[Any, Any]) -> float:
    x, error = x.astype(np.float64), back.astype(np.float64) - x.astype(np.float64)
    return float(10 * np.log10(np.sum(x * x) / np.sum(error * error)))


def told(**source: Any) -> list[float]:
    """The SQNR that each command tells of current scaling."""
    scaling = experiments.scaling(recipes="te_current_scaling", delayed=[], **source)
    scale = float(scaling.tables["steps"]["scale"][0])
    cast = experiments.cast(formats="e4m3", scales=[scale], **source)
    transpose = experiments.transpose(recipes="te_current_scaling", **source)
    return [
        scaling.tables["recipes"]["sqnr_db"][0],
        cast.tables["casts"]["sqnr_db"][0],
        transpose.tables["recipes"]["sqnr_rowwise_db"][0],
    ]


@pytest.mark.parametrize("dtype", TYPES)
def test_every_experiment_tells_one_sqnr_of_arrays_and_files_in_either_order(dtype: Any, tmp_path: Path) -> None:
    x = X.astype(dtype)
    quantized = fp8lab.quantize(x.astype(np.float32), fp8lab.JustInTime())
    expected = sqnr(x, fp8lab.dequantize(quantized))
    # float64 is cast in float64, so that what comes back is off by up to 2^-23: 4e-5 dB of a noise of 2^-5.
    tolerance = 4e-5 if dtype is np.float64 else 1e-10
    save_file({"w": x, "other": x[:1]}, tmp_path / "x.safetensors")
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    of_array = told(x=x)
    assert of_array == pytest.approx([expected] * 3, abs=tolerance)
    assert told(x=np.asfortranarray(x)) == of_array
    assert told(file=tmp_path / "x.safetensors", tensor="w") == of_array
    if dtype is not ml_dtypes.bfloat16:  # which .npy has no type for
        assert told(file=tmp_path / "x.npy") == of_array


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_out_dtype_source_rounds_what_comes_back_to_the_type_of_the_values(dtype: Any) -> None:
    x = (X * 1e-3).astype(dtype)
    scale = float(np.float32(448) / np.abs(x).max().astype(np.float32))
    rounded = sqnr(x, fp8lab.cast_to_representable(x, "e4m3", scale=scale))
    kept = sqnr(x, fp8lab.cast_to_representable(x.astype(np.float32), "e4m3", scale=scale))
    assert rounded != kept
    for out_dtype, expected in (("source", rounded), ("float32", kept)):
        cast = experiments.cast(x, formats="e4m3", scales=[scale], out_dtype=out_dtype)
        scaling = experiments.scaling([x], recipes="te_current_scaling", delayed=[], out_dtype=out_dtype)
        assert cast.tables["casts"]["sqnr_db"][0] == pytest.approx(expected, abs=1e-10)
        assert scaling.tables["recipes"]["sqnr_db"][0] == pytest.approx(expected, abs=1e-10)
    with pytest.raises(ValueError, match="unknown out_dtype 'float16'; known: float32, source"):
        experiments.cast(x, out_dtype="float16")


def test_patterns_choose_tensors_and_each_is_measured_apart(tmp_path: Path) -> None:
    tensors = {f"layers.{i}.weight": (X * i).astype(np.float32) for i in (10, 2, 1)} | {"norm": X[0].astype(np.float32)}
    save_file(tensors, tmp_path / "x.safetensors")
    names = [f"layers.{i}.weight" for i in (1, 2, 10)]
    arguments: dict[str, Any] = {"file": tmp_path / "x.safetensors", "tensor": "layers.*.weight"}
    cast = experiments.cast(formats="e4m3", scales=[3.0], **arguments)
    assert [told.endswith(f'tensor "{name}"') for told, name in zip(cast.tables["tensors"]["name"], names)] == [
        True
    ] * 3
    transpose = experiments.transpose(recipes=["te_mxfp8"], **arguments)
    scaling = experiments.scaling(file=arguments["file"], tensor=["layers.*.weight", "norm"], delayed=[])
    assert scaling.tables["tensors"]["shape"].tolist() == ["(64, 96)"] * 3 + ["(96,)"]
    for i, name in enumerate(names):
        [alone] = experiments.cast(tensors[name], formats="e4m3", scales=[3.0], exact=False).tables["casts"].rows
        differ = {key for key, value in cast.tables["casts"].rows[i].items() if repr(value) != repr(alone.get(key))}
        assert differ <= {"cast", "tensor", "tensor_name"} and cast.tables["casts"]["tensor"][i] == i
        [alone_too] = experiments.transpose(tensors[name], recipes=["te_mxfp8"]).tables["recipes"].rows
        assert transpose.tables["recipes"].rows[i] == {**alone_too, "tensor": i, "tensor_name": name}
        assert cast.tables["casts"]["tensor_name"][i] == name
    with pytest.raises(ValueError, match='it has no tensor "layers.w"; it holds 4 tensors: "layers.1.weight"'):
        experiments.cast(file=arguments["file"], tensor="layers.w")
    with pytest.raises(ValueError, match='has no tensor "head"'):
        experiments.cast(file=arguments["file"], tensor=["norm", "head"])
