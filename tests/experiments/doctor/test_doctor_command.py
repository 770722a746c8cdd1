# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from command import column, prints, refuses, run


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


def test_rows_that_were_not_written_are_named_and_the_status_is_1(dump):
    done = run(f"doctor {dump}/x.npy {dump}/half.npy --format e4m3 --expected given_scale --out {dump}/out")
    assert done.returncode == 1
    assert "given_scale, but the last rows are not written, from row 4 on" in " ".join(done.stdout.split())
    assert column(dump / "out" / "doctor.json", "explanations", "codes")[0] == 0


def test_a_probe_is_a_npy_file_with_digests(dump):
    done = run(f"doctor {dump}/x.npy {dump}/codes.npy --format e4m3 --probe {dump}/probe")
    assert done.returncode == 0, done.stderr
    assert np.load(dump / "probe" / "probe.npy").shape == (128, 256)
    assert "given_scale" in (dump / "probe" / "probe.txt").read_text()


def test_what_does_not_fit_is_refused(dump):
    np.save(dump / "wide.npy", np.ones((7, 32)))
    np.save(dump / "empty.npy", np.ones((0, 32), np.float32))
    np.save(dump / "short.npy", np.zeros(5, np.uint8))
    refuses(f"doctor {dump}/x.npy {dump}/short.npy", "codes has 5 bytes; x has 224 elements, which have 224 codes of a byte or 112 bytes of two codes of 4 bits each")
    refuses(f"doctor {dump}/wide.npy {dump}/codes.npy", "x is of float64.*")
    refuses(f"doctor {dump}/empty.npy {dump}/codes.npy", "x has no elements.*")
    refuses(f"doctor {dump}/x.npy {dump}/x.npy", "codes is of float32; codes are bytes.*")
    refuses(f"doctor {dump}/x.npy {dump}/codes.npy {dump}/codes.npy --format e9", "e9.*")


def test_a_file_larger_than_memory_is_refused(dump):
    with open(dump / "huge.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (100_000, 300_000)})
        file.truncate(128 + 4 * 100_000 * 300_000)
    refuses(f"doctor {dump}/huge.npy {dump}/codes.npy", "x has 30000000000 elements, of which at most 1073741824 are read into memory: dump some rows of it, and the codes and scales of these")
