# SPDX-License-Identifier: Apache-2.0
"""Quantized checkpoints are recognized and dequantized bit for bit."""

import json
import os
import pathlib

import numpy as np
import pytest
from checkpoint_files import read_safetensors, write_gguf, write_safetensors
from fp8lab import experiments
from golden_checkpoints import COLUMNS, GOLDEN, MADE_BY, ROWS, X, bf, crc, decoded, fp8, words


def _checkpoint(name: str, directory: pathlib.Path) -> pathlib.Path:
    """Writes the file of a golden row; its configuration is the least that its library writes."""
    _, method, make, *_ = GOLDEN[name]
    made = make()
    if name.startswith("gguf"):
        write_gguf(directory / "model.gguf", {"w.weight": (39 if name == "gguf_mxfp4" else 40, [ROWS, COLUMNS], made)})
        return directory
    metadata = None
    if method == "torchao":
        kind = {"torchao_row": "Float8Tensor", "torchao_mxfp8": "MXTensor"}.get(name, "NVFP4Tensor")
        about = {"_type": kind, "_data": {"is_swizzled_scales": name.endswith("swizzled")}}
        metadata = {"tensor_names": json.dumps(["w.weight"]), "w.weight": json.dumps(about)}
    write_safetensors(directory / "model.safetensors", made, metadata)
    if method is not None:
        (directory / "config.json").write_text(
            json.dumps({"hidden_size": 1, "quantization_config": {"quant_method": method}})
        )
    return directory


def _dequantized(model: pathlib.Path, into: pathlib.Path, **how: object) -> dict[str, tuple[str, np.ndarray]]:
    experiments.dequantize(model=str(model), into=str(into), **how)
    return read_safetensors(into / "model.safetensors")[0]


def test_the_golden_tensor_is_that_of_the_numbers():
    assert crc(words()) == "FD9E1841"
    assert set(MADE_BY) == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_codes_scales_and_values_of_each_layout_are_those_of_its_library(name, tmp_path):
    layout, _, make, codes, scales, values = GOLDEN[name]
    made = make()
    if name.startswith("gguf"):
        assert crc(made) == codes
    else:
        stored = [array for _, array in made.values()]
        assert crc(stored[0]) == codes
        told = [
            f"{np.asarray(one).view(np.uint32).item():08X}"
            if np.size(one) == 1 and np.asarray(one).dtype == np.float32
            else crc(one)
            for one in stored[1:]
        ]
        told = told[: len(scales.split())]
        assert " ".join(told) == scales
    model = _checkpoint(name, tmp_path)
    listed = experiments.tensors(model=str(model)).tables["weights"]
    assert list(listed["layout"]) == [layout]
    assert list(listed["disagreements"]) == [""]
    dtype, got = _dequantized(model, tmp_path / "out")["w" if name == "gpt_oss" else "w.weight"]
    assert dtype == "BF16"
    if name == "gpt_oss":
        assert got.shape == (1, COLUMNS, ROWS)
        got = got[0].T
    if name == "torchao_row":  # a row of zeros has scale 0 and NaN codes; which NaN is not told
        assert ((got[129] & 0x7FFF) > 0x7F80).all()
        got = np.where(np.arange(ROWS)[:, None] == 129, np.uint16(0xFFC0), got)
    assert crc(got) == values


def _blocks(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes of so many rows, the scales of blocks of 128 rows, and what those give."""
    codes = fp8(X[:rows, :256] * 100)
    scales = np.float32([[0.001, 0.002], [0.003, 0.004]])
    spread = np.repeat(np.repeat(scales, 128, 0), 128, 1)[:rows]
    return codes, scales, (decoded(codes) * spread)


def _words(values: np.ndarray) -> np.ndarray:
    return (bf(values).view(np.uint32) >> 16).astype(np.uint16)


def test_transformers_makes_the_block_size_of_the_shapes(tmp_path):
    codes, scales, right = _blocks(192)
    model = tmp_path / "model"
    model.mkdir()
    write_safetensors(
        model / "model.safetensors", {"w.weight": ("F8_E4M3", codes), "w.weight_scale_inv": ("F32", scales)}
    )
    (model / "config.json").write_text(
        json.dumps({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
    )
    _, got = _dequantized(model, tmp_path / "own")["w.weight"]
    assert (got == _words(right)).all()
    # Two rows of scales for 192 rows of weights: blocks of 96 rows.
    wrong = decoded(codes) * np.repeat(np.repeat(scales, 96, 0), 128, 1)
    document = experiments.dequantize(model=str(model), into=str(tmp_path / "theirs"), loader="transformers")
    _, got = read_safetensors(tmp_path / "theirs" / "model.safetensors")[0]["w.weight"]
    assert (got == _words(wrong)).all()
    differing = int((_words(wrong) != _words(right)).sum())
    assert list(document.tables["weights"]["differing"]) == [differing]
    assert list(document.tables["weights"]["block"]) == ["96x128"]
    assert 32 * 256 * 0.9 < differing <= 32 * 256  # the rows from 96 on; zeros are zeros


def test_what_a_loader_cannot_read_is_refused_by_name(tmp_path):
    model = _checkpoint("comfy_nvfp4", tmp_path)
    with pytest.raises(ValueError, match="not known how quark reads the layout comfy_nvfp4; known: format"):
        experiments.dequantize(model=str(model), into=str(tmp_path / "out"), loader="quark")
    assert not (tmp_path / "out").exists()


def test_a_global_scale_without_a_dimension_changes_the_bits_as_in_compressed_tensors(tmp_path):
    file = GOLDEN["ct_nvfp4"][2]()
    packed, s8 = file["w.weight_packed"][1], file["w.weight_scale"][1]
    divisor = np.float32(3000.123)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(X.shape)
    values = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes]
    quotient = decoded(s8) / divisor
    for shape, by in (((1,), quotient), ((), bf(quotient))):
        file["w.weight_global_scale"] = ("F32", divisor.reshape(shape))
        write_safetensors(tmp_path / "model.safetensors", file)
        _, got = _dequantized(tmp_path, tmp_path / "out")["w.weight"]
        assert (got == _words(values * np.repeat(by, 16, 1))).all()


def test_the_scale_of_a_gguf_tensor_counts_but_for_its_own_reader(tmp_path):
    blocks = GOLDEN["gguf_repacked"][2]()
    scale = np.float32([0.37])
    write_gguf(tmp_path / "m.gguf", {"w.weight": (40, [ROWS, COLUMNS], blocks), "w.scale": (0, [1], scale)})
    _, own = _dequantized(tmp_path, tmp_path / "own")["w.weight"]
    _, reader = _dequantized(tmp_path, tmp_path / "reader", loader="gguf")["w.weight"]
    assert crc(reader) == GOLDEN["gguf_repacked"][5]
    # Each value before its rounding is a product of two numbers of few bits, which bfloat16 holds here.
    before = (reader.astype(np.uint32) << 16).view(np.float32)
    assert (own == _words(before * scale)).all()


def test_the_model_before_has_the_shards_names_and_configuration_of_the_input(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    codes, scales, right = _blocks(256)
    plain = np.arange(6, dtype=np.uint16).reshape(2, 3)
    write_safetensors(model / "a.safetensors", {"l.0.q.weight": ("F8_E4M3", codes), "norm.weight": ("BF16", plain)})
    write_safetensors(
        model / "b.safetensors",
        {
            "l.0.q.weight_scale_inv": ("F32", scales),
            "l.1.q.weight": ("F8_E4M3", codes),
            "l.1.q.weight_scale_inv": ("F32", scales),
        },
    )
    (model / "model.safetensors.index.json").write_text(
        json.dumps(
            {
                "weight_map": {
                    "l.0.q.weight": "a.safetensors",
                    "norm.weight": "a.safetensors",
                    **dict.fromkeys(
                        ["l.0.q.weight_scale_inv", "l.1.q.weight", "l.1.q.weight_scale_inv"], "b.safetensors"
                    ),
                }
            }
        )
    )
    (model / "config.json").write_text(
        json.dumps({"torch_dtype": "float16", "n": 7, "quantization_config": {"quant_method": "fp8"}})
    )
    out = tmp_path / "out"
    for _ in range(2):  # what an earlier call made is replaced
        document = experiments.dequantize(model=str(model), into=str(out))
    assert document.passed
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {
        "l.0.q.weight": "a.safetensors",
        "norm.weight": "a.safetensors",
        "l.1.q.weight": "b.safetensors",
    }
    assert index["metadata"]["total_size"] == 2 * 2 * codes.size + plain.nbytes
    assert json.loads((out / "config.json").read_text()) == {"n": 7, "torch_dtype": "bfloat16"}
    first, _ = read_safetensors(out / "a.safetensors")
    assert (first["norm.weight"][1] == plain).all()
    assert (first["l.0.q.weight"][1] == _words(right)).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]
    # A directory of something else stays, and so does the model itself.
    for other in (tmp_path, model):
        with pytest.raises((OSError, RuntimeError, ValueError)):
            experiments.dequantize(model=str(model), into=str(other))
    assert len(list(model.iterdir())) == 4


def test_what_cannot_be_written_is_told_and_the_rest_is_written(tmp_path):
    codes, scales, _ = _blocks(256)
    write_safetensors(
        tmp_path / "model.safetensors",
        {"a.weight": ("F8_E4M3", codes), "a.weight_scale_inv": ("F32", scales), "b.weight": ("F8_E4M3", codes)},
    )
    document = experiments.dequantize(model=str(tmp_path), into=str(tmp_path / "out"))
    assert not document.passed
    assert list(document.tables["left_out"]["tensor"]) == ["b.weight"]
    assert "b.weight_scale_inv" in document.tables["left_out"]["reason"][0]
    assert list(read_safetensors(tmp_path / "out" / "model.safetensors")[0]) == ["a.weight"]


def test_every_layout_of_a_generated_set_is_recognized(tmp_path):
    """``FP8LAB_CHECKPOINTS`` names a directory of checkpoints, whose truth.json says which layout each has."""
    where = os.environ.get("FP8LAB_CHECKPOINTS")
    if where is None:
        pytest.skip("FP8LAB_CHECKPOINTS is not set")
    truth = json.loads((pathlib.Path(where) / "truth.json").read_text())["checkpoints"]
    names = {"deepseek_v31": "deepseek_v3", "qwen3_fp8": "deepseek_v3"}
    seen: dict[frozenset[str], set[str]] = {}
    for name, facts in truth.items():
        if facts["damage"] is None and not name.startswith("original"):
            found = experiments.tensors(model=str(pathlib.Path(where) / name))
            assert len(found.tables["problems"]["kind"]) == 0, name
            assert set(found.tables["weights"]["disagreements"]) == {""}, name
            seen.setdefault(frozenset(found.tables["weights"]["layout"]), set()).add(names.get(name, name))
    assert all(len(of) == 1 for of in seen.values()), seen
