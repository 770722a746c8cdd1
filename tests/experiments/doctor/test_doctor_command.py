# SPDX-License-Identifier: Apache-2.0
import json
import re

import numpy as np
import pytest
from command import ROOT, column, prints, refuses, run
from sampled import EXHAUSTIVE


@pytest.fixture
def dump(tmp_path):
    """Powers of two as E4M3 by a cast without scale, one of them wrong in the last row."""
    x = 2.0 ** np.arange(-6, 8, dtype=np.float32).repeat(16).reshape(7, 32)
    codes = (np.log2(x).astype(int) + 7).astype(np.uint8) << 3
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "codes.npy", codes)
    np.save(tmp_path / "swapped.npy", codes.reshape(7, 16, 2)[:, :, ::-1].copy())
    half = codes.copy()
    half[4:] = 0
    np.save(tmp_path / "half.npy", half)
    return tmp_path


def test_a_cast_is_correct(dump):
    prints(f"doctor {dump}/x.npy {dump}/codes.npy --format e4m3", "Correct: given_scale. That explains all 224 codes.")


def test_a_folder_and_an_index_have_the_tensors_that_are_named(dump):
    folder = dump / "folder"
    folder.mkdir()
    tensors, data = {}, b""
    for name, dtype in (("x", "F32"), ("codes", "F8_E4M3")):
        array = np.load(dump / f"{name}.npy")
        tensors[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    header = json.dumps(tensors).encode()
    (folder / "1.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    index = folder / "model.safetensors.index.json"
    for given in (folder, index):
        index.write_text(json.dumps({"weight_map": dict.fromkeys(tensors, "1.safetensors")}))
        prints(
            f"doctor {given} {given} --tensors '[x],{{codes,}}'", "Correct: given_scale. That explains all 224 codes."
        )
    refuses(f"doctor {folder} {folder}", "x: 2 tensors are there; name one")
    refuses(f"doctor {folder} {folder} --tensors 'x,none'", ".*has no tensor .none.*")
    (dump / "empty").mkdir()
    (dump / "empty" / "1.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    refuses(f"doctor {dump}/empty {dump}/codes.npy", "x: .*empty. has no tensor")
    refuses(f"doctor-gemm {dump}/empty {dump}/x.npy {dump}/x.npy", "a: .*empty. has no tensor")


def test_rows_that_were_not_written_are_named_and_the_status_is_1(dump):
    done = run(f"doctor {dump}/x.npy {dump}/half.npy --format e4m3 --expected given_scale --out {dump}/out")
    assert done.returncode == 1
    assert "given_scale, but the last rows are not written, from row 4 on" in " ".join(done.stdout.split())
    assert column(dump / "out" / "doctor.json", "explanations", "codes")[0] == 0


def test_a_probe_is_a_npy_file_with_digests(dump):
    done = run(f"doctor {dump}/x.npy {dump}/codes.npy --format e4m3 --probe {dump}/probe")
    assert done.returncode == 0, done.stderr
    assert np.load(dump / "probe" / "probe.npy").shape == (128, 256)
    text = (dump / "probe" / "probe.txt").read_text()
    assert "given_scale" in text
    parted, pairs = map(int, re.search(r"(\d+) of (\d+) pairs of hypotheses differ on it", text).groups())
    assert text.count("\n  and ") == pairs - parted and (pairs == parted or "It does not part these pairs" in text), (
        text
    )


def test_what_does_not_fit_is_refused(dump):
    np.save(dump / "wide.npy", np.ones((7, 32)))
    np.save(dump / "empty.npy", np.ones((0, 32), np.float32))
    np.save(dump / "short.npy", np.zeros(5, np.uint8))
    needed = "x has 224 elements, which have 224 codes of a byte or 112 bytes of two codes of 4 bits each"
    refuses(f"doctor {dump}/x.npy {dump}/short.npy", f"codes have 5 bytes; {needed}")
    refuses(f"doctor {dump}/wide.npy {dump}/codes.npy", "x is of float64.*")
    refuses(f"doctor {dump}/empty.npy {dump}/codes.npy", "x has no elements.*")
    refuses(f"doctor {dump}/x.npy {dump}/x.npy", "codes are of float32; they must be bytes.*")
    refuses(f"doctor {dump}/x.npy {dump}/codes.npy {dump}/codes.npy --format e9", "e9.*")


def test_a_format_that_contradicts_the_file_is_refused(dump):
    codes, x = np.load(dump / "codes.npy"), np.load(dump / "x.npy")
    header = (
        b'{"x":{"dtype":"F32","shape":[7,32],"data_offsets":[0,896]},"c":{"dtype":"F8_E4M3","shape":[7,32],"data_offsets":[896,1120]},'
        b'"s":{"dtype":"F8_E8M0","shape":[7],"data_offsets":[1120,1127]}}'
    )
    file = dump / "dump.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + x.tobytes() + codes.tobytes() + bytes([127] * 7))
    prints(f"doctor {file} {file} --tensors x,c --format e4m3", "Correct: given_scale.")
    refuses(f"doctor {file} {file} --tensors x,c --format e5m2", "codes are e4m3, as their file tells, and not e5m2")
    refuses(
        f"doctor {file} {file} {file} --tensors x,c,s --scale-format ue4m3",
        "scales are e8m0, as their file tells, and not ue4m3",
    )
    refuses(f"doctor {file} {file} --tensors x,c,s", "tensors has 3 names, and there are 2 files")


def test_codes_of_which_half_are_missing_are_told(dump):
    x = np.load(dump / "x.npy")
    np.save(dump / "x.npy", np.concatenate([x, x]))
    done = run(f"doctor {dump}/x.npy {dump}/codes.npy")
    text = " ".join(done.stdout.split())
    assert "their shape is (7, 32), and that of pairs would have rows of 16 bytes: half of them may be missing" in text
    if not EXHAUSTIVE:  # a second; the test of fp8lab.diagnose has the same
        return
    np.save(dump / "codes.npy", np.load(dump / "codes.npy").reshape(-1))
    assert "half of them" not in run(f"doctor {dump}/x.npy {dump}/codes.npy").stdout


def group_of_32(x):
    """E4M3 under scales of tiles of 1 x 32 that are powers of two, of values that E4M3 has."""
    scales = 2.0 ** (np.floor(np.log2(np.abs(x).reshape(len(x), -1, 32).max(axis=2))) - 8)
    codes = np.log2(np.abs(x) / scales.repeat(32, axis=1)).astype(int) + 7 << 3
    return (codes | (x < 0) << 7).astype(np.uint8), (np.log2(scales) + 127).astype(np.uint8)


def test_of_a_large_tensor_rows_are_sampled(tmp_path):
    draw = np.random.default_rng(2)
    x = (2.0 ** draw.integers(-5, 3, (700, 64)) * draw.choice([-1, 1], (700, 64))).astype(np.float32)
    codes, scales = group_of_32(x)
    codes[699, 5] ^= 1
    for name, array in {"x": x, "codes": codes, "scales": scales}.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = f"{tmp_path}/x.npy {tmp_path}/codes.npy {tmp_path}/scales.npy"
    done = run(f"doctor {files} --elements {3 * 128 * 64} --out {tmp_path}/out")
    text = " ".join(done.stdout.split())
    assert "A sample: 316 of 700 rows are looked at, in 3 groups from the first row to the last." in text, text
    assert "leaves 1 of 20224 codes and 0 of 632 scales unexplained" in text, text
    assert column(tmp_path / "out" / "doctor.json", "discriminators", "row")[-1:] in ([699], [])
    refuses(
        f"doctor {files} --elements 10",
        "a row of x has 64 elements, of which at most 10 are looked at: say more elements",
    )


def sparse(path, descr, shape):
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + np.dtype(descr).itemsize * int(np.prod(shape)))


def test_files_of_100_gb_are_sampled_in_little_memory(tmp_path):
    sparse(tmp_path / "x.npy", "<f4", (100_000, 300_000))
    sparse(tmp_path / "codes.npy", "|u1", (100_000, 300_000))
    done = run(f"doctor {tmp_path}/x.npy {tmp_path}/codes.npy --format e4m3 --elements 300000")
    text = " ".join(done.stdout.split())
    assert "A sample: 1 of 100000 rows are looked at" in text and "says nothing of scales" in text, (
        done.stdout + done.stderr
    )
    sparse(tmp_path / "flat.npy", "<f4", (2**33,))
    sparse(tmp_path / "codes.npy", "|u1", (2**33,))
    text = " ".join(
        run(f"doctor {tmp_path}/flat.npy {tmp_path}/codes.npy --format e4m3 --elements 300000").stdout.split()
    )
    assert "Its 1 row of 8589934592 elements are looked at as rows of 4096." in text


def test_the_python_and_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("fp8lab")
    page = (ROOT / "docs" / "doctor.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "doctor.md", "exec"), names)
    assert capsys.readouterr().out
    commands = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    assert len(commands) >= 2
    for command in commands:
        done = run(command.removeprefix("fp8lab "))
        assert done.returncode == 1 and "rounded to float16" in done.stdout and not done.stderr, (
            done.stdout + done.stderr
        )
