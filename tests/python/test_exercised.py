# SPDX-License-Identifier: Apache-2.0
"""What a correct kernel was not asked: drawn numbers have no ties, zeros or special values."""

import subprocess

import fp8lab
import numpy as np
import pytest
from fp8lab.pytest_plugin import assert_matches
from sampled import sampled
from test_messages import COMMAND, has_command

planted = pytest.importorskip("planted", reason="ml_dtypes is not installed")
F = np.float32
X = np.random.default_rng(1).standard_normal((256, 512)).astype(F)


def made_by(x, recipe):
    q = fp8lab.quantize(x, recipe)
    return q.codes, q.scale_inv if q.scale_codes is None else q.scale_codes


@pytest.mark.parametrize("recipe", sampled([one.name for one in fp8lab.recipes()], 8))
def test_an_exercise_has_all_that_drawn_numbers_have_not(recipe):
    try:
        codes, scales = made_by(X, recipe)
    except ValueError:
        pytest.skip("it takes no such tensor, or needs random words")
    found = fp8lab.diagnose(X, codes, scales, expected=recipe)
    assert found.correct, found
    x = found.exercise()
    again = fp8lab.diagnose(x, *made_by(x, recipe), expected=recipe)
    assert again.correct and not again.unexercised, again
    assert "does not show" not in again.verdict
    assert set(found.unexercised) == {
        kind for kind in again.exercised if kind not in found.exercised or not found.exercised[kind]
    }
    assert "zeros" in found.unexercised and "negative zeros" in found.verdict


def test_ties_and_subnormals_are_those_of_an_exact_count():
    """Of an E4M3 cast without scale, by all codes' values in double."""
    draw = np.random.default_rng(2)
    x = draw.standard_normal(4096) * 2.0 ** draw.integers(-12, 3, 4096)
    x = (np.round(x * 2**12) / 2**12).astype(F).reshape(8, 512)
    values = np.sort(np.arange(127, dtype=np.uint8).view(planted.E4M3).astype(np.float64))
    middles = (values[1:] + values[:-1]) / 2
    magnitude = np.abs(x.astype(np.float64))
    is_tie = np.isin(magnitude, middles)
    found = fp8lab.diagnose(x, fp8lab.encode(x, "e4m3"), format="e4m3")
    counts = found.exercised
    assert counts["exact ties"] == (is_tie & (magnitude > 2.0**-6)).sum() > 0
    assert counts["exact ties of subnormal codes"] == (is_tie & (magnitude < 2.0**-6)).sum() > 0
    assert counts["subnormal codes"] == ((magnitude > 2.0**-10) & (magnitude < 2.0**-6)).sum() > 0
    assert counts["underflow"] == ((magnitude > 0) & (magnitude < 2.0**-10)).sum() > 0


@pytest.mark.parametrize("recipe", sampled(["te_mxfp8", "deepseek_v3_2024", "te_nvfp4", "ocp_mxfp4"], 4))
def test_kinds_of_each_element_are_those_that_are_counted(recipe):
    own = next(one for one in fp8lab.recipes() if one.name == recipe).recipe._core()
    x = fp8lab.diagnose(X, *made_by(X, recipe), expected=recipe).exercise()
    kinds = fp8lab._core.kinds_of_elements(x, "float32", own, False)
    counts = fp8lab.diagnose(x, *made_by(x, recipe), expected=recipe).exercised
    elements = ["exact ties", "exact ties of subnormal codes", "subnormal codes", "underflow", "saturation", "zeros"]
    elements += ["negative zeros", "NaN", "infinity"]
    for bit, kind in enumerate(elements):
        assert (kinds >> bit & 1).sum() == counts.get(kind, 0), kind
    assert counts["exact ties"] > 0 and counts["zeros"] > 0


def ties_up(y):
    """E4M3 whose subnormals' ties go up."""
    codes = planted.e4m3(y)
    halves = np.abs(y) * 2.0**10
    is_tie = (np.abs(y) < 2.0**-6) & (halves % 2 == 1)
    return np.where(is_tie, (codes & 0x80) | ((halves + 1) / 2).astype(np.uint8), codes).astype(np.uint8)


def test_a_kernel_that_rounds_ties_of_subnormals_up_is_correct_until_it_is_asked():
    found = fp8lab.diagnose(X, *planted.group(X, cast=ties_up), expected="deepseek_v3_2024")
    assert found.correct and "exact ties of subnormal codes" in found.unexercised
    assert (
        "does not show what the kernel makes of exact ties" in found.verdict and "exercise() makes one" in found.verdict
    )
    x = found.exercise()
    x[~np.isfinite(x)] = 1
    codes, scales = planted.group(x, cast=ties_up)
    asked = fp8lab.diagnose(x, codes, scales, expected="deepseek_v3_2024")
    assert not asked.correct, asked


def test_an_epsilon_shows_where_tiles_are_small():
    epsilon = dict(amax=(np.abs(X).reshape(256, 4, 128).max(axis=2) + F(1e-12)).astype(F))
    found = fp8lab.diagnose(X, *planted.group(X, **epsilon), expected="vllm_group_native")
    assert "tiles with a very small amax" in found.unexercised or not found.correct


def test_strict_assertions_name_what_is_not_shown():
    codes, scales = planted.mx(X)
    assert_matches(X, codes, "te_mxfp8", scales)
    with pytest.raises(AssertionError, match="x does not show what it makes of exact ties"):
        assert_matches(X, codes, "te_mxfp8", scales, strict=True)
    x = fp8lab.diagnose(X, codes, scales, expected="te_mxfp8").exercise()
    made = fp8lab.quantize(x, "te_mxfp8")
    assert_matches(x, made.codes, "te_mxfp8", made.scale_codes, strict=True)
    with pytest.raises(TypeError, match="strict"):
        assert_matches(X, codes, "te_mxfp8", scales, strict=1)


@has_command
def test_the_command_ends_with_3_where_the_input_does_not_show_all(tmp_path):
    def status(x, *more):
        codes, scales = made_by(x, "te_mxfp8")
        for name, array in {"x": x, "codes": codes, "scales": scales}.items():
            np.save(tmp_path / f"{name}.npy", array)
        files = [str(tmp_path / f"{name}.npy") for name in ("x", "codes", "scales")]
        words = [str(COMMAND), "doctor", *files, "--expected", "te_mxfp8", *more]
        return subprocess.run(words, capture_output=True, text=True, check=False).returncode

    assert status(X) == 0
    assert status(X, "--strict", "--exercise", str(tmp_path / "exercise")) == 3
    assert status(np.load(tmp_path / "exercise" / "exercise.npy"), "--strict") == 0
