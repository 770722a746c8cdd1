# SPDX-License-Identifier: Apache-2.0
import re

import numpy as np
import pytest

import fp8lab

planted = pytest.importorskip("planted", reason="ml_dtypes is not installed")


@pytest.mark.parametrize("name", planted.DEFECTS)
def test_a_planted_defect_is_the_first_explanation(name):
    x, (codes, scales), called, options = planted.DEFECTS[name]
    found = fp8lab.diagnose(x, codes, scales, **options)
    first = found.explanations[0]
    told = " ".join((first.base, *first.also, *first.changes, *first.departures, first.direction))
    assert found.explained, found
    assert re.search(called, told), found


@pytest.mark.parametrize("name", [one.name for one in fp8lab.profiles() if not one.name.startswith("e8m0")])
@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_a_cast_of_every_profile_is_correct(name, format):
    x = (planted.tensor(16, 256) * 1000).astype(np.float32)
    x[0, :3] = np.nan, np.inf, -np.inf
    found = fp8lab.diagnose(x, fp8lab.encode(x, format, profile=name), format=format)
    assert found.correct, found
    tied = found.explanations[: found.tied]
    assert any(f"{format} cast of profile {name}" in (one.base, *one.also) for one in tied), found


def test_what_the_data_cannot_tell_apart_is_said_and_a_probe_parts_it():
    x = planted.X
    q = fp8lab.quantize(x, "te_mxfp8")
    found = fp8lab.diagnose(x, q.codes, q.scale_codes)
    assert found.correct and found.tied > 1
    assert "does not tell it apart" in found.verdict
    one, other = (next(e for e in found.explanations if e.base == name) for name in ("te_mxfp8", "flashinfer_mxfp8"))
    values, digests = found.probe((one, other))
    assert digests[0] != digests[1]
    for recipe, digest in (("te_mxfp8", digests[0]), ("flashinfer_mxfp8", digests[1])):
        value = 0xCBF29CE484222325
        for code in fp8lab.quantize(values, recipe).codes.ravel().tolist():
            value = (value ^ code) * 0x100000001B3 % 2**64
        assert value == digest


def test_a_stale_scale_has_an_interval_in_which_it_lies():
    x, (codes, _), _, _ = planted.DEFECTS["stale scale"]
    found = fp8lab.diagnose(x, codes)
    assert found.factor[0] <= 448 / 7.3 <= found.factor[1]


def test_a_tensor_that_says_nothing_is_said_so():
    x = np.full((4, 32), np.nan, np.float32)
    found = fp8lab.diagnose(x, np.full((4, 32), 0x7F, np.uint8), format="e4m3")
    assert "says nothing of scales" in str(found)
    noise = np.random.default_rng(1).integers(0, 127, (64, 512), dtype=np.uint8)
    assert fp8lab.diagnose(planted.X, noise, format="e4m3").verdict.startswith("Cannot tell")


def test_elements_tell_explanations_apart():
    x, (codes, scales), _, _ = planted.DEFECTS["double rounding through bfloat16"]
    found = fp8lab.diagnose(x, codes, scales)
    assert found.discriminators
    for one in found.discriminators:
        assert x[one.place] == one.x and codes[one.place] == one.code == one.first != one.second
    assert "<table>" in found._repr_html_()


def test_what_does_not_fit_is_refused():
    x = np.ones((2, 32), np.float32)
    with pytest.raises(ValueError, match="codes has 5 bytes; x has 64 elements"):
        fp8lab.diagnose(x, np.zeros(5, np.uint8))
    with pytest.raises(ValueError, match="x has no elements"):
        fp8lab.diagnose(x[:0], np.zeros(0, np.uint8))
    with pytest.raises(TypeError, match="x must be float32, float16 or bfloat16, not float64"):
        fp8lab.diagnose(np.ones((2, 32)), np.zeros((2, 32), np.uint8))
