# SPDX-License-Identifier: Apache-2.0
import json
import math
import re

import numpy as np
import pytest
from command import (
    column,
    files_in,
    keeps_the_old_result,
    leaves_nothing_when_stopped,
    prints,
    prints_nothing,
    refuses,
    refuses_a_file_as_directory,
)

SMALL = "linear --tokens 32 --in-features 32 --out-features 64"


def test_it_tells_where_the_difference_of_each_pass_comes_from(tmp_path):
    recipes = "te_delayed_hopper,te_nvfp4_blackwell,exact"
    text = prints(f"{SMALL} --recipes {recipes} --out {tmp_path}/linear", r"a te_delayed_hopper +[0-9.]+ %")
    for name in ("fprop, y = x w^T + bias", "dgrad, dx = dy w", "wgrad, dw = dy^T x"):
        assert f"{name}: where the difference comes from" in text
    assert re.search(r"x_lag_saturation +[0-9.]+ % +- +-\n", text)
    written = tmp_path / "linear" / "linear.json"
    causes = {
        key: column(written, "causes", key)
        for key in ("recipe", "pass", "cause", "rms_error", "share", "growth")
    }  # fmt: skip
    rows = list(zip(*causes.values(), strict=True))
    for recipe in recipes.split(","):
        for name in ("fprop", "dgrad", "wgrad"):
            parts = [row for row in rows if row[:2] == (recipe, name)]
            assert parts[-1][2] == "total"
            for at in (4, 5):
                assert math.isclose(sum(row[at] for row in parts[:-1]), 1, rel_tol=1e-12)
    used = [row[2] for row in rows if row[:2] == ("exact", "fprop") and row[3] > 0]
    assert used == ["accumulator", "bias", "total"]
    assert {f"01_te_delayed_hopper_{name}_error.csv" for name in ("fprop", "dgrad", "wgrad")} <= set(
        files_in(tmp_path / "linear")
    )


def test_one_recipe_is_told_in_full():
    prints(
        f"{SMALL} --recipes te_delayed_hopper --steps 1 --passes dgrad",
        r"cause +rms error .* largest +mean +share +growth\n",
    )


def test_the_first_step_of_delayed_scaling_has_the_scale_1(tmp_path):
    prints_nothing(f"{SMALL} --recipes te_delayed_hopper --steps 2 --quiet --out {tmp_path}/linear")
    scales = column(tmp_path / "linear" / "linear.json", "casts", "scale")
    assert scales[:6] == [1] * 6 and 1 not in scales[6:]


def test_tensors_come_from_files(tmp_path):
    rng = np.random.default_rng(1)
    shapes = {"x": (2, 16, 32), "w": (48, 32), "dy": (2, 16, 48), "bias": (48,)}
    for name, shape in shapes.items():
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(shape).astype(np.float32))
    named = " ".join(f"--{name} {tmp_path}/{name}.npy" for name in shapes)
    prints(f"linear {named} --recipes bf16_hopper --out {tmp_path}/all", r"x: 2 x 16 x 32 float32")
    assert set(column(tmp_path / "all" / "linear.json", "causes", "pass")) == {"fprop", "dgrad", "wgrad"}
    prints(f"linear --dy {tmp_path}/dy.npy --w {tmp_path}/w.npy --recipes bf16_hopper --out {tmp_path}/one")
    one, every = (json.loads((tmp_path / name / "linear.json").read_text())["sections"] for name in ("one", "all"))
    dgrad = [next(s for s in sections if s["name"] == "dgrad") for sections in (one, every)]
    assert dgrad[0] == dgrad[1]
    refuses(
        f"linear --x {tmp_path}/x.npy --w {tmp_path}/dy.npy",
        r"w: .*dy.npy.*: must have two dimensions, \(out, in\), not shape .*",
    )
    refuses(
        f"linear --x {tmp_path}/dy.npy --w {tmp_path}/w.npy", r"x has 48 columns \(in\) and w has 32 columns \(in\); .*"
    )


def test_a_safetensors_file_has_all_tensors(tmp_path):
    header, data = {}, b""
    for name, shape in {"h": (16, 32), "weight": (8, 32)}.items():
        values = np.random.default_rng(1).standard_normal(shape).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    words = json.dumps(header).encode()
    file = tmp_path / "t.safetensors"
    file.write_bytes(len(words).to_bytes(8, "little") + words + data)
    prints(f"linear --x {file} --x-tensor h --w {file} --w-tensor weight --recipes tf32_hopper", r'tensor "weight"')
    refuses(f"linear --x {file} --w {file} --w-tensor weight", r"x: .*t.safetensors.*")


REFUSED = {
    "--recipes te_mxfp9": "unknown linear recipe 'te_mxfp9'; known: exact, .*",
    "--recipes exact,exact": "--recipes must have each entry once, and has 'exact' twice",
    "--passes forward": "unknown entry of passes 'forward'; known: fprop, dgrad, wgrad",
    "--tokens 0": r"tokens must be from 1 to 2\^26, not 0",
    "--in-features 100000000": "in_features must be from 1 to .*",
    "--recipes te_mxfp8_blackwell --in-features 40": r"te_mxfp8_blackwell: x: in \(columns\) must be a multiple of 16, not 40.*",
    "--x-factor -1": "x_factor must be positive and finite in float32, not -1",
    "--bias-factor -1": "bias_factor must be positive and finite in float32, or 0, not -1",
    "--steps 0": "steps must be from 1 to 65536, not 0",
    "--amax-history-len 0": ".*amax_history_len.*",
    "--version te_9": "unknown .*te_9.*",
    "--x no-such-file": "--w.*|.*no-such-file.*",
    "--x x.npy --tokens 3": "--tokens cannot be given with --x",
    "--x-tensor h": "--x-tensor can be given only with --x",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"linear {options}", REFUSED[options])


def test_it_refuses_a_file_as_directory(tmp_path):
    refuses_a_file_as_directory(f"{SMALL} --recipes exact --steps 1", tmp_path)


def test_a_run_that_cannot_write_keeps_the_old_result(tmp_path):
    keeps_the_old_result(f"{SMALL} --recipes exact --steps 1", "01_exact_fprop_error.csv", tmp_path)


def test_a_stopped_run_leaves_nothing(tmp_path):
    leaves_nothing_when_stopped("linear --tokens 4096 --in-features 4096 --out-features 4096", tmp_path)
