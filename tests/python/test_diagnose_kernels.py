# SPDX-License-Identifier: Apache-2.0
"""What diagnose() says of NumPy kernels whose defects lie beside those of ``planted.DEFECTS``: how it says it, and where."""

import re

import numpy as np
import pytest

import fp8lab

planted = pytest.importorskip("planted", reason="ml_dtypes is not installed")
F = np.float32
X = planted.X


@pytest.mark.parametrize(("scale", "departures"), [(np.abs(X).max(), ("stored_amax",)), (3.14159, ()), (0, ()), (np.nan, ())])
def test_a_single_scale_has_no_other_place(scale, departures):
    codes, _ = planted.tensorwise(X)
    found = fp8lab.diagnose(X, codes, np.array([scale], F), expected="te_current_scaling")
    first = found.explanations[0]
    assert first.base == "te_current_scaling" and first.departures == departures, found
    assert found.explained == bool(departures) and first.codes == 0, found


def scales_of(x):
    return (np.maximum(planted.amax_of(x, 128), F(1e-4)) / F(448)).astype(F)


def codes_with(x, scales, cast=planted.e4m3, size=128):
    return cast((x / planted.spread(scales, size)).astype(F))


def one_tile(s):
    s[37, 3] = s[37, 2]


def one_row(s):
    s[37] = np.roll(s[37], 1)


def some_halved(s):
    s[np.random.default_rng(0).random(s.shape) < 0.05] *= F(0.5)


@pytest.mark.parametrize(
    ("change", "places"),
    [
        (one_tile, "1 scale is not as predicted.*All lie in row 37 of 64. All lie in column 3 of 4."),
        (one_row, "4 scales are not as predicted.*All lie in row 37 of 64."),
        (some_halved, "scales are not as predicted. Each is the predicted one times 0.5."),
    ],
)
@pytest.mark.parametrize("expected", [None, "deepseek_v3_2024"])
def test_some_tiles_whose_scales_are_wrong_are_told_from_the_rule_of_the_others(change, places, expected):
    scales = scales_of(X)
    right = scales.copy()
    change(scales)
    wrong = np.count_nonzero(scales != right)
    found = fp8lab.diagnose(X, codes_with(X, scales), scales, expected=expected)
    first = found.explanations[0]
    assert first.departures == ("tiles_as_stored",) and found.explained and not found.correct, found
    assert f"{256 - wrong} of 256 scales follow the rule of {first.base}." in " ".join(found.notes), found
    assert re.search(places, " ".join(found.notes)), found
    assert "no rule that was searched" not in found.verdict
    if expected:
        assert first.base == expected and found.tied == 1 or "deepseek" in found.verdict, found
