# SPDX-License-Identifier: Apache-2.0
"""Bounds of results on GPUs whose functions nobody has recorded: a Hopper chip's own results lie within them."""

import math

import fp8lab
import numpy as np
import pytest
from conftest import mixed
from fp8lab import operators
from fp8lab._bounds import _DOCUMENTED


def ordered(x):
    """Words as integers in the order of their values."""
    bits = {2: np.uint16, 4: np.uint32}[x.dtype.itemsize]
    words = np.asarray(x).view(bits).astype(np.int64)
    sign = 1 << (8 * x.dtype.itemsize - 1)
    return np.where(words & sign, -(words & (sign - 1)), words)


def inputs(count, least=-20, most=20):
    drawn = mixed(np.arange(count, dtype=np.uint64) + np.uint64(77))
    share = (drawn >> np.uint64(40)).astype(np.float64) * 2.0**-24
    return np.float32(least + (most - least) * share)


def inside(bounds, result):
    low, high, got = ordered(bounds.low), ordered(bounds.high), ordered(result)
    assert ((low <= got) & (got <= high)).all()
    assert ((low == high) == bounds.decided).all()
    return got


@pytest.mark.parametrize("name", _DOCUMENTED)
def test_hopper_lies_within_the_documented_errors(name):
    x = np.concatenate([inputs(4096), inputs(4096, 0, 1), np.float32([0, -0.0, 1, np.inf, -np.inf, 1e-40, 88.7, 104])])
    y = x[::-1].copy() if name in ("x / y", "__fdiv_rn") else None
    bounds = fp8lab.device_function_bounds(name, x, y)
    own = fp8lab.device_function(name, x, y)
    number = ~np.isnan(own)
    assert (np.isnan(bounds.low) == ~number).all() and (np.isnan(bounds.high) == ~number).all()
    low, high = ordered(bounds.low)[number], ordered(bounds.high)[number]
    got = ordered(own)[number]
    assert ((low <= got) & (got <= high)).all()
    if _DOCUMENTED[name] == 0:
        assert bounds.decided.all()
    else:
        assert 0 < np.count_nonzero(bounds.decided[number]) < 4096
        widths = (high - low)[~bounds.decided[number]]
        twice = 2 * _DOCUMENTED[name]
        assert widths.max() in (twice, 2 * twice) and widths.min() >= 1


def test_functions_without_a_rounded_form_keep_the_documented_errors_on_hopper():
    """Their bounds rest on it: Python's functions of float64, rounded once more."""
    x = np.concatenate([inputs(2048, -9, 9), inputs(2048, -1, 1)])
    exact = {
        "erff": math.erf,
        "erfcf": math.erfc,
        "normcdff": lambda value: 0.5 * math.erfc(-value / math.sqrt(2)),
        "expm1f": math.expm1,
        "exp10f": lambda value: 10.0**value,
        "log10f": lambda value: math.log10(abs(value)),
    }
    for name, function in exact.items():
        argument = np.abs(x) if name == "log10f" else x
        rounded = np.float32([function(float(value)) for value in argument])
        distance = np.abs(ordered(fp8lab.device_function(name, argument)) - ordered(rounded))
        assert distance.max() <= _DOCUMENTED[name], name


GATED = [one.name for one in operators.activations() if one.gated and one.name != "situglu"]
PLAIN = [one.name for one in operators.activations() if not one.gated]


@pytest.mark.parametrize("name", PLAIN + GATED)
def test_activations_of_hopper_lie_within(name):
    x = inputs(8192, -8, 8).reshape(16, 512)
    grad = inputs(8192, -1, 1).reshape(16, 512)[:, : 256 if name in GATED else 512].copy()
    for out_dtype in ("float32", "float16"):
        bounds = operators.activation_bounds(name, x, out_dtype=out_dtype)
        inside(bounds, operators.activation(name, x, functions="hopper", out_dtype=out_dtype))
        inside(bounds, operators.activation(name, x, out_dtype=out_dtype))
        open_share = np.count_nonzero(~bounds.decided) / bounds.decided.size
        if name in ("relu", "srelu", "reglu", "sreglu"):
            assert open_share == 0 and bounds.undecided_codes() == 0
        else:
            assert out_dtype == "float16" or open_share > 0.5
            assert bounds.undecided_codes() < 0.02 * bounds.decided.size
        backward = operators.activation_backward_bounds(name, grad, x, out_dtype=out_dtype)
        inside(backward, operators.activation_backward(name, grad, x, functions="hopper", out_dtype=out_dtype))


def test_norms_with_another_root_lie_within():
    x = inputs(4096, -3, 5).reshape(32, 128)
    gamma, beta = inputs(128, -1, 1), inputs(128, 2, 3)
    for bounds, (result, *_) in (
        (operators.layernorm_bounds(x, gamma, beta), operators.layernorm(x, gamma, beta)),
        (operators.rmsnorm_bounds(x, gamma), operators.rmsnorm(x, gamma)),
    ):
        inside(bounds, result)
        assert np.count_nonzero(bounds.decided) < bounds.decided.size
        assert bounds.undecided_codes() < 10
    # As the kernel has it, with a root that is two numbers off.
    _, rsigma = operators.rmsnorm(x, gamma)
    rsigma = (rsigma.view(np.uint32) + np.uint32(2)).view(np.float32)
    got = inside(bounds, gamma * (rsigma[:, None] * x))
    assert (got == ordered(np.where(gamma * x > 0, bounds.high, bounds.low))).all()


def test_undecided_codes_are_counted_by_hand():
    low, high = np.float32([1, 16.9, 17, -448, np.nan, np.nan]), np.float32([1.05, 17.1, 17.5, -448, np.nan, np.nan])
    bounds = fp8lab.Bounds(low, high, np.array([False, False, False, True, True, False]))
    # The numbers of E4M3 about 17 are 16 and 18: 17 is a tie, to the even code of 16; 1.05 becomes 1.
    assert bounds.undecided_codes(scale=1) == 3
    assert bounds.undecided_codes() == 3
    assert bounds.undecided_codes("e5m2", scale=2.0**-20) == 1


def test_what_has_no_bounds_is_refused():
    x = np.ones((2, 4), np.float32)
    for name in ("__expf", "__fdividef"):
        with pytest.raises(ValueError, match=f"unknown name '{name}'"):
            fp8lab.device_function_bounds(name, x)
    with pytest.raises(ValueError, match="situglu has three functions"):
        operators.activation_bounds("situglu", x)
    with pytest.raises(ValueError, match="y must have 0 elements for expf, not 8"):
        fp8lab.device_function_bounds("expf", x, x)
    with pytest.raises(ValueError, match="unknown format 'e9m9'"):
        operators.activation_bounds("gelu", x).undecided_codes("e9m9")
