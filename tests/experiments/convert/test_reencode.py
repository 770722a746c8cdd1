# SPDX-License-Identifier: Apache-2.0
"""Whether a checkpoint is exact in another layout: told value by value, beside fractions."""

import json
from fractions import Fraction

import numpy as np
import pytest
from checkpoint_files import read_safetensors, write_safetensors
from fp8lab import experiments
from golden_checkpoints import F32, GOLDEN, decoded

E2M1 = [Fraction(x) / 2 for x in (0, 1, 2, 3, 4, 6, 8, 12)]
#: The magnitudes of E4M3 by their codes: without the NaN.
E4M3 = [Fraction(c, 8) / 64 if c < 8 else Fraction(8 + c % 8, 8) * Fraction(2) ** (c // 8 - 7) for c in range(127)]
ROWS, COLUMNS = 256, 384


def mxfp4(exponents, seed=3):
    """Codes, and E8M0 bytes of groups of 32: 2^exponent."""
    codes = np.random.default_rng(seed).integers(0, 16, (ROWS, COLUMNS)).astype(np.uint8)
    return codes, (127 + exponents).astype(np.uint8)


def write(folder, codes, scales, method="modelopt"):
    folder.mkdir()
    tensors = {
        "a.weight": ("U8", codes[:, ::2] | codes[:, 1::2] << 4),
        "a.weight_scale": ("U8", scales),
        "norm.weight": ("F32", np.ones(4, F32)),
    }
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({"n": 7, "quantization_config": {"quant_method": method}}))
    return folder


def rounded(x):
    """The magnitude of E4M3 nearest to x, ties to the even code; at most 448."""
    if x >= 448:
        return E4M3[126]
    below = max(code for code in range(127) if E4M3[code] <= x)
    if E4M3[below] == x:
        return x
    low, high = E4M3[below], E4M3[below + 1]
    if x - low == high - x:
        return low if below % 2 == 0 else high
    return low if x - low < high - x else high


def blocks_of(codes, exponents):
    """The count of values that change in each block, by the power of two that changes the fewest."""
    changed = {}
    for i in range(ROWS // 128):
        for j in range(COLUMNS // 128):
            values = set()
            counts = {}
            for row in range(i * 128, i * 128 + 128):
                for column in range(j * 128, j * 128 + 128):
                    x = E2M1[codes[row, column] & 7] * Fraction(2) ** int(exponents[row, column // 32])
                    counts[x] = counts.get(x, 0) + 1
            values = set(counts) - {0}
            top = int(exponents[i * 128 : i * 128 + 128, j * 4 : j * 4 + 4].max())
            fewest = min(
                sum(counts[x] for x in values if rounded(x / Fraction(2) ** s) * Fraction(2) ** s != x)
                for s in range(top - 9, top - 3)
            )
            changed[i, j] = fewest
    return changed


def test_mxfp4_is_exact_in_blocks_whose_scales_are_near_each_other(tmp_path):
    exponents = np.full((ROWS, COLUMNS // 32), -8)
    exponents[3, 1] = -22  # 2^-14 of the largest: 0.5 of it is the smallest subnormal
    exponents[5, 5] = -23  # 2^-15
    exponents[200, 2] = -40
    exponents[201, 9] = 6  # all others are 2^-14 of it
    codes, scales = mxfp4(exponents)
    codes[130, 0:32] = np.uint8([1] * 32)
    source = write(tmp_path / "model", codes, scales)
    document = experiments.reencode(model=str(source), to="e4m3_128x128")
    expected = {place: count for place, count in blocks_of(codes, exponents).items() if count}
    assert len(expected) == 2 and (0, 0) not in expected  # of six
    rows = document.tables["blocks"].rows
    assert {(row["row"], row["column"]): row["changed"] for row in rows} == expected
    (told,) = document.tables["weights"].rows
    assert told["exact"] == "no" and told["blocks"] == 6 and told["inexact_blocks"] == 2
    assert told["changed"] == sum(expected.values())
    assert not document.passed


def test_what_is_exact_is_written_and_read_as_the_same_values(tmp_path):
    exponents = np.random.default_rng(5).integers(-20, -6, (ROWS, COLUMNS // 32))
    codes, scales = mxfp4(exponents)
    source = write(tmp_path / "model", codes, scales)
    for layout in (
        "e4m3_128x128",
        "ct_fp8_block",
        "transformers_fp8_block_ue8m0",
        "ct_mxfp4",
        "quark_mxfp4",
        "modelopt_mxfp8",
    ):
        document = experiments.reencode(model=str(source), to=layout, into=str(tmp_path / "out"))
        assert document.passed, layout
        assert all(row["exact"] == "yes" and row["changed"] == 0 for row in document.tables["weights"].rows)
        (listed,) = experiments.tensors(model=str(tmp_path / "out")).tables["weights"].rows
        assert (
            listed["layout"] == layout.replace("e4m3_128x128", "deepseek_fp8_block") and listed["disagreements"] == ""
        )
        experiments.dequantize(model=str(source), into=str(tmp_path / "before"))
        experiments.dequantize(model=str(tmp_path / "out"), into=str(tmp_path / "after"))
        before, after = (read_safetensors(tmp_path / one / "model.safetensors")[0] for one in ("before", "after"))
        assert set(before) == set(after) == {"a.weight", "norm.weight"}
        same = before["a.weight"][1] & 0x7FFF == after["a.weight"][1] & 0x7FFF  # a zero's sign may go
        assert same.all() and before["a.weight"][1].any()
        assert json.loads((tmp_path / "out" / "config.json").read_text())["n"] == 7


def test_what_a_model_lacks_is_left_out_and_told(tmp_path):
    codes, scales = mxfp4(np.full((ROWS, COLUMNS // 32), -8))
    source = write(tmp_path / "model", codes, scales)
    tensors, _ = read_safetensors(source / "model.safetensors")
    lost = {name.replace("a.", "b."): one for name, one in tensors.items() if name.startswith("a.")}
    half = {name.replace("a.", "c."): one for name, one in tensors.items() if name.startswith("a.")}
    scale = next(name for name in half if "scale" in name)
    del half[scale]
    write_safetensors(source / "model.safetensors", {**tensors, **half})
    weight_map = dict.fromkeys([*tensors, *half], "model.safetensors") | dict.fromkeys(lost, "other.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    document = experiments.reencode(model=str(source), to="ct_fp8_block", into=str(tmp_path / "out"))
    assert not document.passed
    assert [row["weight"] for row in document.tables["weights"].rows] == ["a.weight"]
    reasons = {row["weight"]: row["reason"] for row in document.tables["left_out"].rows}
    codes_of_half = next(name for name in half if "scale" not in name)
    assert set(reasons) == {*lost, codes_of_half}
    assert all("other.safetensors" in reasons[name] for name in lost)
    assert scale in reasons[codes_of_half]


def test_nvfp4_of_modelopt_keeps_codes_and_scales_in_compressed_tensors(tmp_path):
    file = GOLDEN["modelopt_nvfp4"][2]()
    s = decoded(file["w.weight_scale"][1])
    scales = (np.float32(3e-4) + np.float32(1e-9) * np.arange(1000)).astype(F32)
    file["w.weight_scale_2"] = ("F32", next(g for g in scales if (s * g != s / (F32(1) / g)).any()))
    source = tmp_path / "model"
    source.mkdir()
    write_safetensors(source / "model.safetensors", file)
    document = experiments.reencode(model=str(source), to="ct_nvfp4", into=str(tmp_path / "out"))
    tensors, _ = read_safetensors(tmp_path / "out" / "model.safetensors")
    assert (tensors["w.weight_packed"][1] == file["w.weight"][1]).all()
    assert (tensors["w.weight_scale"][1] == file["w.weight_scale"][1]).all()
    divisor = F32(1) / file["w.weight_scale_2"][1]
    assert tensors["w.weight_global_scale"][1].item() == divisor
    # The factors of blocks are fl(s * g) and fl(s / fl(1 / g)).
    differ = np.repeat(s * file["w.weight_scale_2"][1] != s / divisor, 16, axis=1)
    codes = np.stack([file["w.weight"][1] & 15, file["w.weight"][1] >> 4], -1).reshape(differ.shape)
    (told,) = document.tables["weights"].rows
    assert told["changed"] == np.count_nonzero(differ & (codes & 7 != 0)) > 0
    assert told["recipe"] == "same codes and scales" and told["sqnr_db"] > 100


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"to": "gguf_nvfp4"}, ValueError, "layout to re-encode to"),
    ({"recipe": "no_such"}, ValueError, "power_of_two"),
    ({"tensors": ["b*"]}, ValueError, "tensors names no weight"),
    ({"model": "no/such"}, RuntimeError, "cannot read"),
    ({"to": "torchao_mxfp4", "into": "out"}, ValueError, "torchao's metadata"),
])  # fmt: skip
def test_wrong_arguments_are_named(change, error, words, tmp_path):
    codes, scales = mxfp4(np.full((ROWS, COLUMNS // 32), -8))
    call = {"model": str(write(tmp_path / "model", codes, scales)), "to": "e4m3_128x128"} | change
    if "into" in call:
        call["into"] = str(tmp_path / "out")
    with pytest.raises((error, OSError), match=words):
        experiments.reencode(**call)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_without_quantized_weights_is_refused(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", {"a.weight": ("F32", np.ones((4, 4), F32))})
    with pytest.raises(ValueError, match="no quantized weight"):
        experiments.reencode(model=str(tmp_path), to="ct_fp8_block")
