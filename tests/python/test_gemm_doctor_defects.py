# SPDX-License-Identifier: Apache-2.0
"""fp8lab.diagnose_gemm on outputs that are a number times the right one, and on kernels that read scales, rows and
products wrong. Each defect is planted in NumPy, in what ``fp8lab.gemm`` is given or in what it gives."""

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from gemm_recomputed import departure, diagnosed
from sampled import EXHAUSTIVE

F = np.float32
HOPPER = "hopper_wgmma_fp8"
KINDS = ("normal", "outliers", "lognormal") if EXHAUSTIVE else ("outliers",)


def values(kind, rows, columns, seed):
    """Three kinds of tensors."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0.1, 1, (rows, columns))
    if kind == "outliers":
        x[:, :: max(columns // 8, 1)] *= 40
    if kind == "lognormal":
        x = np.exp(rng.normal(0, 1.5, x.shape)) * rng.choice([-1, 1], x.shape)
    return x.astype(F)


def codes(kind, rows, depth, seed):
    x = values(kind, rows, depth, seed)
    return fp8lab.encode(x / F(np.abs(x).max() / 448), "e4m3")


def names(found):
    """The departures of all explanations that explain equally much."""
    return [one.departures[0].name if one.departures else "none" for one in found.explanations[: found.tied]]


def check(found, defect):
    """It is named, and nothing that is wrong is called correct."""
    assert found.explained and not found.correct and departure(found) == defect, (defect, found)


# 1. One number, or one for each row or column.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("factor", "words"),
    [(0.25, "2^-2 (0.25)"), (1 / np.sqrt(128), "1/sqrt(128)"), (2, "2^1 (2)"), (-1, "-2^0 (-1)"), (0.8375, ": 0.8375")],
)
def test_an_output_times_a_number_is_named_with_the_number(kind, factor, words):
    a, b = codes(kind, 24, 256, 1), codes(kind, 20, 256, 2)
    out = fp8lab.gemm(a, b, model=HOPPER, scale_a=0.0123, scale_b=1.7)
    found = diagnosed(a, b, out * F(factor), scale_a=0.0123, scale_b=1.7)
    check(found, "output_scaled")
    assert found.explanations[0].departures[0].factors == (F(factor),) and words in found.verdict, found
    narrow = diagnosed(a, b, (out * F(factor)).astype(ml_dtypes.bfloat16), scale_a=0.0123, scale_b=1.7)
    assert not narrow.correct and departure(narrow) == "output_scaled", narrow
    assert abs(narrow.explanations[0].departures[0].factors[0] / factor - 1) < 2**-8, narrow
    assert diagnosed(a, b, out, scale_a=0.0123, scale_b=1.7).correct


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_columns_times_numbers_are_named(kind):
    a, b = codes(kind, 24, 256, 3), codes(kind, 20, 256, 4)
    out = fp8lab.gemm(a, b, model=HOPPER)
    rng = np.random.default_rng(5)
    by_row, by_column = (rng.uniform(0.5, 2, n).astype(F) for n in (24, 20))
    found = diagnosed(a, b, out * by_row[:, None])
    check(found, "rows_scaled")
    assert found.explanations[0].departures[0].factors == tuple(by_row)
    found = diagnosed(a, b, out * by_column)
    check(found, "columns_scaled")
    assert found.explanations[0].departures[0].factors == tuple(by_column)


# 2. Scales of blocks and tiles.


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_mx_blocks_in_a_wrong_place_are_named(kind):
    qx, qw = (fp8lab.quantize(values(kind, n, 512, n) * F(s), "te_mxfp8") for n, s in ((64, 1), (96, 0.02)))
    a, b = qx.scale_codes, qw.scale_codes
    rng = np.random.default_rng(6)
    a = (a + rng.integers(-3, 4, a.shape)).astype(np.uint8)  # scales that all differ
    b = (b + rng.integers(-3, 4, b.shape)).astype(np.uint8)
    four = np.arange(16) // 4 * 4
    for scale_a, scale_b, defect in (
        (a[:, four], b, "first_of_four_scales_a"),
        (a[:, four], b[:, four], "first_of_four_scales"),
        (a.T.reshape(a.shape), b, "scales_a_stored_turned"),
        (a.reshape(16, 64).T, b, "scales_a_read_turned"),
        (a, np.concatenate([b[:1], b[:-1]]), "scale_b_of_previous_row"),
        (np.concatenate([a[1:], a[-1:]]), b, "scale_a_of_next_row"),
        (np.concatenate([a[:, 1:], a[:, -1:]], axis=1), b, "scale_a_of_next_tile"),
        ((a - 1).astype(np.uint8), b, "scales_a_halved"),
        ((a - 1).astype(np.uint8), (b - 1).astype(np.uint8), "scales_halved"),
        (b.ravel()[: a.size].reshape(a.shape), b, "scales_a_of_other"),
    ):
        out = fp8lab.gemm(
            qx.codes, qw.codes, model="blackwell_mxf8", scale_a=np.ascontiguousarray(scale_a), scale_b=scale_b
        )
        check(diagnosed(qx.codes, qw.codes, out, scale_a=a, scale_b=b), defect)
    square = fp8lab.quantize(values(kind, 64, 512, 9), "te_mxfp8")
    own, other = a, (square.scale_codes + rng.integers(-3, 4, a.shape)).astype(np.uint8)
    out = fp8lab.gemm(qx.codes, square.codes, model="blackwell_mxf8", scale_a=other, scale_b=own)
    check(diagnosed(qx.codes, square.codes, out, scale_a=own, scale_b=other), "scales_of_other")


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_tiles_and_of_nvfp4_blocks_that_are_read_wrong_are_named(kind):
    a, b = codes(kind, 32, 512, 7), codes(kind, 128, 512, 8)
    rng = np.random.default_rng(9)
    tiles_a = rng.uniform(0.01, 0.03, (32, 4)).astype(F)
    tiles_b = rng.uniform(0.5, 2, (1, 4)).astype(F)

    def powers(x):
        return (x.view(np.uint32) & 0x7F800000).view(F)

    as_bytes = np.ldexp(F(1), np.frombuffer(tiles_a.tobytes(), np.uint8)[: tiles_a.size].astype(int) - 127)
    as_bytes = np.minimum(as_bytes, F(2.0**60)).astype(F).reshape(tiles_a.shape)
    for scale_a, scale_b, defect in (
        (powers(tiles_a), tiles_b, "scales_a_without_mantissa"),
        (powers(tiles_a), powers(tiles_b), "scales_without_mantissa"),
        (np.ascontiguousarray(tiles_a.reshape(4, 32).T), tiles_b, "scales_a_read_turned"),
        (np.concatenate([tiles_a[:1], tiles_a[:-1]]), tiles_b, "scale_a_of_previous_row"),
        (tiles_a[:, [0, 0, 0, 0]], tiles_b, "first_of_four_scales_a"),
    ):
        out = fp8lab.gemm(a, b, model=HOPPER, scale_a=np.ascontiguousarray(scale_a), scale_b=scale_b)
        check(diagnosed(a, b, out, scale_a=tiles_a, scale_b=tiles_b), defect)
    if as_bytes.max() < 2.0**60:
        out = fp8lab.gemm(a, b, model=HOPPER, scale_a=as_bytes, scale_b=tiles_b)
        check(diagnosed(a, b, out, scale_a=tiles_a, scale_b=tiles_b), "scale_words_a_as_bytes")
    qa, qb = (fp8lab.quantize(values(kind, n, 256, n), "te_nvfp4") for n in (32, 24))
    given = {"format_a": "e2m1", "format_b": "e2m1"}
    cut = (qa.scale_codes & 0x78).astype(np.uint8)
    out = fp8lab.gemm(qa.codes, qb.codes, model="blackwell_nvf4", scale_a=cut, scale_b=qb.scale_codes, **given)
    found = diagnosed(qa.codes, qb.codes, out, scale_a=qa.scale_codes, scale_b=qb.scale_codes, **given)
    check(found, "scales_a_without_mantissa")


@pytest.mark.parametrize("kind", KINDS)
def test_codes_that_are_taken_for_fnuz_are_named(kind):
    a, b = codes(kind, 24, 256, 10), codes(kind, 20, 256, 11)
    a[3, 5] = 0x80  # -0, which E4M3FNUZ has for NaN
    b[7, 9] = 0x80
    x, y = (fp8lab.decode(one, "e4m3fnuz") for one in (a, b))
    right = fp8lab.gemm(a, b, model=HOPPER)
    out = right * F(0.25)
    out[np.isnan(x).any(1)] = np.nan
    out[:, np.isnan(y).any(1)] = np.nan
    check(diagnosed(a, b, out), "codes_as_fnuz")
    one = right * F(0.5)
    one[np.isnan(x).any(1)] = np.nan
    check(diagnosed(a, b, one), "codes_a_as_fnuz")


# 3. Products, rows and what is added.


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_k_that_are_missing_or_counted_twice_are_named(kind):
    a, b = codes(kind, 24, 512, 12), codes(kind, 20, 512, 13)

    def of(*parts):
        return [np.ascontiguousarray(np.concatenate([one[:, p] for p in parts], axis=1)) for one in (a, b)]

    everything, head, tail = slice(None), slice(0, 64), slice(448, 512)
    for parts, defect in (
        ((slice(64, None),), "head_dropped"),
        ((head, everything), "head_twice"),
        ((everything, tail), "tail_twice"),
        ((slice(0, 448),), "tail_dropped"),
    ):
        found = diagnosed(a, b, fp8lab.gemm(*of(*parts), model=HOPPER, promote_k=128))
        check(found, defect)
        assert found.explanations[0].departures[0].depth == (448 if defect == "tail_dropped" else 64)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_exchanged_a_bias_one_off_relu_and_a_narrow_total_are_named(kind):
    a, b = codes(kind, 32, 512, 14), codes(kind, 48, 512, 15)
    out = fp8lab.gemm(a, b, model=HOPPER)
    check(diagnosed(a, b, np.ascontiguousarray(out[np.arange(32) ^ 8])), "rows_exchanged")
    check(diagnosed(a, b, np.ascontiguousarray(out[:, np.arange(48) ^ 8])), "columns_exchanged")
    bias = np.random.default_rng(16).normal(0, float(out.std()), 48).astype(F)
    check(diagnosed(a, b, out + np.roll(bias, -1), bias=bias), "bias_of_next_column")
    found = diagnosed(a, b, np.maximum(out, F(0)))
    assert found.explained and not found.correct and found.explanations[0].recipe.activation == "relu", found
    total = np.zeros((32, 48), F)
    for k in range(0, 512, 64):
        part = fp8lab.gemm(*(np.ascontiguousarray(one[:, k : k + 64]) for one in (a, b)), model=HOPPER)
        total = (total + part).astype(ml_dtypes.bfloat16).astype(F)
    found = diagnosed(a, b, total)
    assert found.explained and not found.correct, found
    assert found.explanations[0].recipe.total_type == "bfloat16", found
