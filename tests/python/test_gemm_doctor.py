# SPDX-License-Identifier: Apache-2.0
"""fp8lab.diagnose_gemm. What it says of GEMMs composed by hand is in tests/reference/doctor/diagnose_gemm.cpp."""

import re

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from gemm_recomputed import departure, diagnosed, told
from sampled import EXHAUSTIVE, sampled

pytestmark = pytest.mark.sample(3, tests=6)

WORDS = np.random.default_rng(5)
MAGNITUDES = 2.0 ** WORDS.integers(-6, 7, (24, 512))
A = fp8lab.encode((WORDS.normal(0.3, 1, (24, 512)) * MAGNITUDES).astype(np.float32), "e4m3")
B = fp8lab.encode((WORDS.normal(0.3, 1, (20, 512)) * MAGNITUDES[:20]).astype(np.float32), "e4m3")


def chained(model, a, b, promote):
    """A GEMM of single instructions, promoted in float32."""
    k = next(one.k for one in fp8lab.models() if one.name == model)
    m, n = np.meshgrid(np.arange(len(a)), np.arange(len(b)), indexing="ij")
    left, right = a[m.ravel()], b[n.ravel()]
    total, sums = np.zeros(m.size, np.float32), np.zeros(m.size, np.float32)
    for at in range(0, a.shape[1], k):
        sums = fp8lab.mma(
            model, np.ascontiguousarray(left[:, at : at + k]), np.ascontiguousarray(right[:, at : at + k]), sums
        )
        if (at + k) % promote == 0:
            total, sums = total + sums, np.zeros_like(sums)
    return total.reshape(m.shape)


def test_a_gemm_of_instructions_is_named():
    out = chained("hopper_wgmma_fp8", A, B, 128)
    found = diagnosed(A, B, out)
    first = found.explanations[0]
    assert (
        found.correct
        and "hopper_wgmma_fp8" in first.models
        and first.recipe.promote_k == 128
        and first.unexplained == 0
    )
    assert first.checked == out.size == found.elements and found.searched > 100
    assert "promoted every 128" in str(found) and found.verdict.startswith(f"Correct: all {out.size} elements")
    scaled = diagnosed(A, B, out * np.float32(0.37) * np.float32(1.9), scale_a=0.37, scale_b=1.9)
    assert scaled.correct and scaled.explanations[0].recipe.scale_order == "accumulator_first"


def test_a_few_elements_and_small_outputs_are_enough_for_much():
    out = chained("blackwell_tcgen05_fp8", A, B, 512)
    places = [(0, 1), (7, 3), (23, 19), (11, 4), (5, 5), (17, 0)]
    few = np.array([out[place] for place in places])
    found = diagnosed(A, B, few, places=places)
    assert found.correct and "blackwell_tcgen05_fp8" in found.explanations[0].models and found.elements == 6
    small = diagnosed(A, B, out.astype(ml_dtypes.bfloat16))
    assert small.correct and small.explanations[0].recipe.cast is None
    forgotten = diagnosed(A, B, out, scale_a=0.3, scale_b=0.7)
    assert forgotten.explained and not forgotten.correct and departure(forgotten) == "scales_missing"


def test_c_a_bias_and_a_scale_of_the_output_are_told():
    out = chained("blackwell_tcgen05_fp8", A, B, 512)
    c, bias = (WORDS.normal(0, 100, shape).astype(np.float32) for shape in (out.shape, (20,)))
    both = diagnosed(A, B, out + bias + c, c=c, bias=bias)
    assert (
        both.correct
        and both.explanations[0].recipe.addition == "after_scales"
        and both.explanations[0].recipe.bias_first
    )
    half = bias.astype(ml_dtypes.bfloat16)
    rounded = diagnosed(
        A,
        B,
        (out.astype(ml_dtypes.bfloat16).astype(np.float32) + half.astype(np.float32)).astype(ml_dtypes.bfloat16),
        bias=half,
    )
    assert rounded.correct and rounded.explanations[0].recipe.addition == "after_rounding"
    forgotten = diagnosed(A, B, out, bias=bias)
    assert departure(forgotten) == "bias_missing" and not forgotten.correct
    small = np.float32(2.0**-9) * np.float32(1.3)
    codes = np.clip(out * small, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    scaled = diagnosed(A, B, codes, scale_out=float(small))
    assert scaled.correct and scaled.explanations[0].recipe.cast is None
    probe = both.probe()
    assert probe.c.shape == (24, 20) and probe.bias.shape == (20,) and probe.scale_out == 1 and probe.scale_a == 1


def test_an_order_of_k_is_told():
    model, order = (
        "blackwell_tcgen05_fp8",
        np.arange(512).reshape(8, 32, 2).transpose(0, 2, 1).reshape(-1),
    )  # even, then odd of 64
    found = diagnosed(A, B, chained(model, A[:, order], B[:, order], 512))
    assert (
        found.correct and found.explanations[0].recipe.k_order == (2, 1, 64) and model in found.explanations[0].models
    )
    assert diagnosed(A, B, chained(model, A, B, 512)).explanations[0].recipe.k_order is None


def test_quantized_operands_bring_their_scales():
    rng = np.random.default_rng(6)
    x, w = rng.normal(0, 1, (16, 256)).astype(np.float32), rng.normal(0, 1, (128, 256)).astype(np.float32)
    qx, qw = fp8lab.quantize(x, "te_block_1x128_fp32"), fp8lab.quantize(w, "te_block_1x128_fp32")
    out = fp8lab.gemm(qx, qw, model="hopper_wgmma_fp8", out_dtype="bfloat16")
    found = diagnosed(qx, qw, out, most_products=2**24)
    assert found.correct and any("hopper_wgmma_fp8" in one.models for one in found.explanations[: found.tied])
    mx = fp8lab.quantize(x, "te_mxfp8")
    out = fp8lab.gemm(mx, mx, model="blackwell_mxf8")
    assert diagnosed(mx, mx, out).explanations[0].models[0] == "blackwell_mxf8"
    again = diagnosed(mx.codes, mx.codes, out, scale_a=mx.scale_codes, scale_b=mx.scale_codes)
    assert again.correct


def test_a_probe_parts_what_the_data_cannot():
    zeros = np.zeros_like(A)
    found = diagnosed(zeros, B, np.zeros((24, 20), np.float32))
    assert found.tied > 10 and "Cannot tell" in found.verdict
    probe = found.probe(512)
    assert probe.a.shape == (24, 512) and probe.b.shape == (20, 512) and probe.parted > probe.pairs * 0.7
    assert len(probe.unparted) == probe.pairs - probe.parted
    out = fp8lab.gemm(probe.a, probe.b, model="hopper_wgmma_fp8", promote_k=64)
    parted = diagnosed(probe.a, probe.b, out)
    assert parted.explanations[0].recipe.promote_k == 64 and parted.tied < found.tied


def test_a_probe_is_small_and_what_it_leaves_has_equal_bits():
    rng = np.random.default_rng(3)
    a, b = (fp8lab.encode(rng.normal(0, 1, (n, 1024)).astype(np.float32), "e4m3") for n in (96, 80))
    bfloat16 = {"model": "hopper_wgmma_fp8", "out_dtype": "bfloat16", "promote_k": 128}
    out = np.asarray(fp8lab.gemm(a, b, **bfloat16))
    found = diagnosed(a[:, :256], b[:, :256], np.asarray(fp8lab.gemm(a[:, :256], b[:, :256], **bfloat16)))
    assert found.tied == 2 and {one.recipe.range_k for one in found.explanations[:2]} == {0, 128}, found
    probe = found.probe()
    assert probe.a.shape[0] == 64 and probe.b.shape[0] == 64 and probe.a.shape[1] <= 256, probe
    left = found.parted_by(probe, fp8lab.gemm(probe.a, probe.b, **bfloat16))
    assert len(left) == 2 and probe.unparted == ((0, 1),)  # both ways to say the same bits
    assert found.parted_by(probe, np.zeros((64, 64), out.dtype)) == ()
    with pytest.raises(ValueError, match=r"out must have shape \(64, 64\)"):
        found.parted_by(probe, out)


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (-np.inf, "-inf"), (0, "0")])
def test_an_output_of_one_kind_is_called_so(value, name):
    found = diagnosed(A, B, np.full((24, 20), value, np.float32))
    # One product is 0 by chance. Codes of a in E5M2 are so large that many sums leave the range of an accumulator in float16.
    wide = fp8lab.gemm(A, B, model="hopper_wgmma_fp8_f16", format_a="e5m2")
    by_chance = {"NaN": 0, "0": 1, "-inf": int((wide == -np.inf).sum())}[name]
    said = f"Every element of the output is {name}, which the nearest hypothesis makes of {by_chance} of the 480 looked at."
    assert found.verdict.startswith(said), found
    if name != "0":
        assert any(line.startswith("Located: 0 of 24 rows are near exact sums") for line in found.rest), found
    assert "written" in found.verdict and not found.explained, found


def test_what_tells_nothing_is_not_called_correct():
    nans = np.full_like(A, 0x7F)
    ones, sums = np.full_like(A, 0x38), np.full((24, 20), 512, np.float32)  # 1 in E4M3
    cases = [
        (nans, B, np.full((24, 20), np.nan, np.float32)),
        (ones, ones[:20], sums),
        (np.zeros_like(A), B, np.zeros((24, 20), np.float32)),
        (A, np.zeros_like(B), np.zeros((24, 20), ml_dtypes.bfloat16)),
    ]
    for a, b, out in cases if EXHAUSTIVE else cases[1:2]:
        found = diagnosed(a, b, out)
        assert (
            not found.correct and found.explained and not found.telling and found.verdict.startswith("Cannot tell: ")
        ), found
        assert not diagnosed(a, b, out, expected="hopper_wgmma_fp8").correct
    zeros, bias = np.zeros((24, 20), np.float32), WORDS.normal(0, 9, 20).astype(np.float32)
    biased = diagnosed(np.zeros_like(A), B, zeros + bias, bias=bias, scale_a=0.3)
    assert not biased.correct and not biased.telling and "Cannot tell" in str(biased)
    assert diagnosed(A, B, chained("hopper_wgmma_fp8", A, B, 512)).telling


def test_only_a_plain_gemm_is_correct_and_only_the_expected_one_where_one_is():
    model = "blackwell_tcgen05_fp8"
    sums = chained(model, A, B, 512)
    bias = WORDS.normal(0, 300, 20).astype(np.float32)
    early = diagnosed(A, B, (sums + bias) * np.float32(0.37), scale_a=0.37, bias=bias)
    assert (
        early.explained
        and not early.correct
        and early.verdict.startswith("Explained: ")
        and early.explanations[0].recipe.addition == "before_scales"
    )
    cut = (sums.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
    twice = sums.astype(ml_dtypes.bfloat16).astype(np.float16)
    for out, how in ((cut, {"rounding": "toward_zero"}), (twice, {"via_type": "bfloat16"})):
        found = diagnosed(A, B, out)
        assert (
            found.explained
            and not found.correct
            and told(found.explanations[0].recipe) == how
            and "Explained: " in str(found)
        )
    # What was meant: 1. it is that.
    meant = diagnosed(A, B, sums, expected={"model": model})
    assert (
        meant.correct
        and meant.expected == model
        and meant.expected_unexplained == 0
        and meant.verdict.startswith("Correct: ")
    )
    promoted = chained(model, A, B, 128)
    for arguments in ({"promote_k": 128}, {"split_k": [128] * 4}, {"promote_k": 128, "split_k": [512]}):
        found = diagnosed(A, B, promoted, expected={"model": model, **arguments})
        assert found.correct and model in found.explanations[0].models, found
    # 2. It is another GEMM, or there is a mistake in it.
    others_than_meant = (
        (sums, {}, {"model": model, "promote_k": 128}),
        (promoted, {}, {"model": model}),
        (promoted, {}, {"model": "hopper_wgmma_fp8", "promote_k": 128}),
        (promoted[:, ::-1], {}, {"model": model, "promote_k": 128}),
        (sums * np.float32(0.37) + bias, {"scale_a": 0.37}, {"model": model}),
        (cut, {}, {"model": model}),
    )
    for out, others, arguments in sampled(others_than_meant, 2):
        found = diagnosed(A, B, out, expected=arguments, **others)
        assert (
            not found.correct and found.verdict.startswith(f"Not {found.expected}: ") and found.expected_unexplained > 0
        ), found
    both = diagnosed(A, B, promoted, expected=model)
    assert both.explained and both.shown and all(one.second != one.word == one.first for one in both.shown)
    assert "expected one" in str(both)
    split = sum(
        chained(model, A[:, first : first + 128], B[:, first : first + 128], 128) for first in (384, 256, 128, 0)
    )
    for order in ([3, 2, 1, 0], None):
        found = diagnosed(A, B, split, expected={"model": model, "split_k": [128] * 4, "split_order": order})
        assert found.correct == (order is not None), found
    for arguments, message in (
        ({"model": model, "promote_k": 100}, "promote_k must be a multiple of 32"),
        ({"model": model, "split_k": [100, 412]}, "a range must be a positive multiple of 32 .*, not 100"),
        ({"model": model, "split_k": [128]}, "must add up to K, 512"),
        ({"model": model, "split_k": [256, 256], "split_order": [1]}, "split_order must have every number"),
        ({"model": model, "threads": 2}, "not threads"),
        ({"promote_k": 128}, "must have the model"),
        ({"model": "blackwell_mxf8"}, "a is not what blackwell_mxf8 takes"),
        ({"model": model, "out_profile": "ieee"}, "float32 is not rounded"),
        ("no_such", "unknown"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            diagnosed(A, B, sums, expected=arguments)


def test_what_gemm_computes_is_what_is_expected():
    rng = np.random.default_rng(8)
    rows_a, rows_b = (rng.uniform(0.5, 2, (n, 1)).astype(np.float32) for n in (24, 20))
    tiles_a, tiles_b = rng.uniform(0.5, 2, (24, 4)).astype(np.float32), rng.uniform(0.5, 2, (1, 4)).astype(np.float32)
    c, bias = rng.normal(0, 90, (24, 20)).astype(np.float32), rng.normal(0, 90, 20).astype(np.float32)
    for i, (given, meant) in enumerate(
        (
            ({"scale_a": 0.37, "scale_b": 1.9, "bias": bias, "c": c}, {"promote_k": 64}),
            ({"scale_a": rows_a, "scale_b": rows_b}, {}),
            ({"scale_a": rows_a, "scale_b": rows_b}, {"scale_order": "scales_first"}),
            ({"scale_a": rows_a, "scale_b": 0.3}, {}),
            ({"scale_a": 0.3, "scale_b": rows_b}, {"scale_order": "scales_first"}),
            ({"scale_a": tiles_a, "scale_b": tiles_b}, {}),
            ({"scale_a": tiles_a, "scale_b": tiles_b}, {"scale_order": "accumulator_first", "split_k": [256, 256]}),
            ({"c": c, "scale_a": 0.7}, {"c_enters": "accumulator", "promote_k": 128}),
            ({"bias": bias}, {"split_k": [64, 320, 128], "split_order": [1, 2, 0]}),
            ({"scale_a": tiles_a, "scale_b": tiles_b}, {"split_k": [128, 384]}),
            ({"scale_a": (rows_a, 0.3), "scale_b": (rows_b, 1.7)}, {}),
            ({"scale_a": (tiles_a, 0.3), "scale_b": tiles_b}, {"scale_order": "accumulator_first"}),
        )
    ):
        types = ("float32", "bfloat16")
        for out_dtype in types if EXHAUSTIVE else types[i % 2 :][:1]:
            expected = {"model": "hopper_wgmma_fp8", **meant}
            out = fp8lab.gemm(A, B, out_dtype=out_dtype, **given, **expected)
            found = diagnosed(A, B, out, expected=expected, **given)
            assert found.correct and found.expected_unexplained == 0, (given, meant, found)


def test_elements_that_are_left_are_located():
    model = "blackwell_tcgen05_fp8"
    rng = np.random.default_rng(19)
    a, b = (
        fp8lab.encode((rng.normal(0.3, 1, (n, 256)) * 2.0 ** rng.integers(-6, 7, (n, 256))).astype(np.float32), "e4m3")
        for n in (64, 48)
    )
    out = chained(model, a, b, 256)

    def found_of(change, dtype=np.float32, expected=None):
        wrong = out.astype(dtype)
        change(wrong)
        found = diagnosed(a, b, wrong, expected=expected)
        assert not found.correct and not found.explained and model in found.explanations[0].models, found
        for one in found.shown:  # what is there, and what should be
            right = out.astype(dtype)[one.row, one.column]
            for value, word in ((wrong[one.row, one.column], one.word), (right, one.first)):
                assert np.isnan(value) or value.tobytes() == word.to_bytes(value.itemsize, "little")
        return found

    def one_ulp(x):
        x.view(np.uint32 if x.itemsize == 4 else np.uint16)[37, 21] += 1

    def not_written(x):
        x[:, 16:32] = 0

    def scattered(x):
        x[5, 7], x[40, 40], x[63, 0] = 1, np.nan, -3

    for dtype in (np.float32, ml_dtypes.bfloat16) if EXHAUSTIVE else (np.float32,):
        ulp = found_of(one_ulp, dtype)  # of bfloat16 11 s: nearly all hypotheses explain nearly all elements
        assert ulp.explanations[0].unexplained == 1 and [(one.row, one.column) for one in ulp.shown] == [(37, 21)]
        assert (
            "3071 of 3072" in ulp.verdict
            and "row 37 of 64" in ulp.rest[0]
            and "column 21 of 48" in ulp.rest[0]
            and "by one value" in ulp.rest[0]
        )
        assert "(37, 21), of row 37 of a and row 21 of b" in str(ulp)
    for dtype in (np.float32, ml_dtypes.bfloat16) if EXHAUSTIVE else (ml_dtypes.bfloat16,):
        tile = found_of(not_written, dtype, model)
        assert (
            "columns 16 to 31 of 48" in " ".join(tile.rest)
            and "zero in b" in " ".join(tile.rest)
            and tile.expected_unexplained == 64 * 16
        )
    few = found_of(scattered)
    assert {(one.row, one.column) for one in few.shown} == {(5, 7), (40, 40), (63, 0)} and len(few.rest) == 3
    some = diagnosed(a, b, np.array([out[3, 4], out[9, 9] + 1, out[60, 40]]), places=[(3, 4), (9, 9), (60, 40)])
    assert not some.correct and not some.rest
    exact = chained(model, a, b, 256)
    assert diagnosed(a, b, exact).rest == ()


def test_an_element_beyond_the_sample_is_found():
    rng = np.random.default_rng(20)
    a, b = (
        fp8lab.encode((rng.normal(0.3, 1, (n, 128)) * 2.0 ** rng.integers(-6, 7, (n, 128))).astype(np.float32), "e4m3")
        for n in (96, 80)
    )
    out = chained("hopper_wgmma_fp8", a, b, 64)
    right = diagnosed(a, b, out, most_products=2**17)
    assert right.correct and right.explanations[0].checked == out.size
    for place in ((0, 0), (50, 33), (95, 79)):
        wrong = out.copy()
        wrong.view(np.uint32)[place] ^= 1
        for expected in (None, {"model": "hopper_wgmma_fp8", "promote_k": 64}):
            found = diagnosed(a, b, wrong, expected=expected, most_products=2**17)
            assert not found.correct and (place in [(one.row, one.column) for one in found.shown]), found
            assert found.explanations[0].unexplained == 1 and found.explanations[0].checked == out.size


MODEL = "blackwell_tcgen05_fp8"


def test_an_inverted_scale_is_named():
    sums, scale_a, scale_b = chained(MODEL, A, B, 512), np.float32(0.37), np.float32(1.9)
    one = np.float32(1)
    cases = (
        (sums * (one / scale_a) * scale_b, "scale_a_inverted"),
        (sums / scale_a * scale_b, "scale_a_inverted"),
        (sums * (scale_b / scale_a), "scale_a_inverted"),
        (sums * scale_a / scale_b, "scale_b_inverted"),
        (sums * (scale_a * (one / scale_b)), "scale_b_inverted"),
        (sums / scale_a / scale_b, "scales_inverted"),
        (sums * (one / scale_a) * (one / scale_b), "scales_inverted"),
        (sums / (scale_a * scale_b), "scales_inverted"),
    )
    for out, defect in cases if EXHAUSTIVE else cases[2::4]:
        found = diagnosed(A, B, out, scale_a=0.37, scale_b=1.9)
        assert found.explained and not found.correct and departure(found) == defect, found
        assert found.explanations[0].checked == out.size
    rows = np.random.default_rng(3).uniform(0.3, 3, (24, 1)).astype(np.float32)
    found = diagnosed(A, B, sums / rows * scale_b, scale_a=rows, scale_b=1.9)
    assert found.explained and departure(found) == "scale_a_inverted" and "the scale of a divides" in found.verdict


def as_type(x, dtype):
    with np.errstate(over="ignore"):
        return x.astype(dtype).astype(np.float32)


def test_sums_that_are_rounded_to_16_bits_are_named():
    sums, scale_a, scale_b = chained(MODEL, A, B, 512), np.float32(0.37), np.float32(1.9)
    types = ((ml_dtypes.bfloat16, "bfloat16"), (np.float16, "float16"))
    for dtype, name in types if EXHAUSTIVE else types[:1]:
        found = diagnosed(A, B, as_type(sums, dtype) * (scale_a * scale_b), scale_a=0.37, scale_b=1.9)
        assert (
            found.explained
            and not found.correct
            and found.explanations[0].recipe.sum_type == name
            and "Explained: " in str(found)
        )
        parts = [
            chained(MODEL, A[:, first : first + 128], B[:, first : first + 128], 128) for first in range(0, 512, 128)
        ]
        total = np.zeros_like(sums)
        for part in parts:
            total = total + as_type(part, dtype)
        found = diagnosed(A, B, total)
        first = found.explanations[0]
        assert (
            found.explained and not found.correct and (first.recipe.partial_type, first.recipe.range_k) == (name, 128)
        ), found


def test_ranges_of_whole_blocks_are_named():
    rng = np.random.default_rng(23)
    a, b = (
        fp8lab.encode(
            (rng.normal(0.3, 1, (n, 1024)) * 2.0 ** rng.integers(-6, 7, (n, 1024))).astype(np.float32), "e4m3"
        )
        for n in (16, 12)
    )
    parts = [
        chained(MODEL, a[:, first:last], b[:, first:last], last - first)
        for first, last in ((0, 384), (384, 768), (768, 1024))
    ]
    found = diagnosed(a, b, parts[0] + parts[1] + parts[2])
    assert found.correct and 384 in (found.explanations[0].recipe.promote_k, found.explanations[0].recipe.range_k), (
        found
    )
    meant = {"model": MODEL, "split_k": [384, 384, 256]}
    assert diagnosed(a, b, parts[0] + parts[1] + parts[2], expected=meant).correct


def pairwise(parts):
    while len(parts) > 1:
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    return parts[0]


def in_order(products):
    total = np.zeros_like(products[0])
    for product in products:
        total = total + product
    return total


def test_float32_sums_without_a_tensor_core_are_named():
    left, right = fp8lab.decode(A, "e4m3"), fp8lab.decode(B, "e4m3")
    products = (left[:, None, :] * right[None, :, :]).transpose(2, 0, 1)
    cases = (
        (in_order(products), (0, 0, "ascending")),
        (pairwise(list(products)), (0, 1, "pairwise")),
        (in_order([in_order(products[k : k + 128]) for k in range(0, 512, 128)]), (128, 0, "ascending")),
        (pairwise([in_order(products[k : k + 64]) for k in range(0, 512, 64)]), (0, 64, "pairwise")),
    )
    for out, expected in cases if EXHAUSTIVE else cases[::3]:
        found = diagnosed(A, B, out)
        first = found.explanations[0]
        assert (
            first.models == ("cuda_cores",)
            and (first.recipe.promote_k, first.recipe.range_k, first.recipe.order) == expected
        ), found
        assert found.explained and not found.correct  # of FP8, which is multiplied by a tensor core
        assert (
            found.verdict.startswith("Explained: ")
            and "No tensor core that was searched computes this." in found.verdict
        )
    assert found.probe().parted == found.probe().pairs
    scaled = diagnosed(A, B, in_order(products) * np.float32(0.37), scale_a=0.37)
    assert scaled.explained and scaled.explanations[0].models == ("cuda_cores",)
    # Products of float32 operands are rounded, but not by fma. float64 holds them, and a sum with another float32
    # nearly always.
    rng = np.random.default_rng(29)
    x, y = rng.normal(0, 1, (9, 40)).astype(np.float32), rng.normal(0, 1, (7, 40)).astype(np.float32)
    fused, rounded = np.zeros((9, 7), np.float32), np.zeros((9, 7), np.float32)
    for k in range(40):
        wide = x[:, k, None].astype(np.float64) * y[None, :, k]
        fused, rounded = (fused + wide).astype(np.float32), rounded + wide.astype(np.float32)
    for out, name in ((fused, "cuda_cores_fma"), (rounded, "cuda_cores")):
        found = diagnosed(x, y, out)
        assert found.correct and found.explanations[0].models[0] == name, found
        assert ("cuda_cores_fma" in found.explanations[0].models) == (name == "cuda_cores_fma")


def test_scales_of_the_previous_tile_are_named():
    rng = np.random.default_rng(31)
    tiles_a, tiles_b = rng.uniform(0.5, 2, (24, 4)).astype(np.float32), rng.uniform(0.5, 2, (1, 4)).astype(np.float32)
    parts = [chained("hopper_wgmma_fp8", A[:, k : k + 128], B[:, k : k + 128], 128) for k in range(0, 512, 128)]
    before = [0, 0, 1, 2]
    for late_a, late_b, defect in (
        (True, False, "scale_a_of_previous_tile"),
        (False, True, "scale_b_of_previous_tile"),
        (True, True, "scales_of_previous_tile"),
    ):
        total = np.zeros((24, 20), np.float32)
        for j, part in enumerate(parts):
            scale = tiles_a[:, before[j] if late_a else j, None] * tiles_b[0, before[j] if late_b else j]
            total = total + part * scale
        found = diagnosed(A, B, total, scale_a=tiles_a, scale_b=tiles_b)
        assert found.explained and not found.correct and departure(found) == defect, found
        assert "of the previous tile along K" in found.verdict or "those of the previous tile" in found.verdict


def test_the_verdict_says_what_the_data_cannot_tell():
    found = diagnosed(A, B, chained("hopper_wgmma_fp8", A, B, 128).astype(ml_dtypes.bfloat16))
    assert found.tied > 1 and re.search(
        r"The data cannot tell it from \d+ other hypothes[ie]s, which differs? in .*the promotion", found.verdict
    ), found
    fields = {tuple(told(one.recipe).items()) for one in found.explanations[: found.tied]}
    assert ("the rounding of the output" in found.verdict) == (len(fields) > 1)


def test_what_is_no_product_is_refused():
    out = np.zeros((24, 20), np.float32)
    q = fp8lab.quantize(np.ones((16, 256), np.float32), "te_mxfp8")
    for call, kind, message in (
        (lambda: diagnosed(A, B[:, :256], out), ValueError, "the same K, not 512 and 256"),
        (lambda: diagnosed(A, B, out[:3]), ValueError, r"out must have shape \(24, 20\)"),
        (lambda: diagnosed(A, B, out.astype(np.float64)), TypeError, "out must be float32"),
        (lambda: diagnosed(A, B, out.astype(np.uint8)), ValueError, "out_format must be given"),
        (lambda: diagnosed(A, B, out[0], places=[(0, 0)]), ValueError, "places must be pairs"),
        (lambda: diagnosed(A, B, out[0, :1], places=[(0, 20)]), ValueError, "does not"),
        (lambda: diagnosed(A, B, out, scale_a=np.zeros((24, 7), np.uint8)), ValueError, "scale_a must have a code"),
        (lambda: diagnosed(q, q, q), TypeError, "out must be an array"),
        (lambda: diagnosed(A, B, out, bias=out[0, :7]), ValueError, r"bias must have shape \(20,\), not \(7,\)"),
        (lambda: diagnosed(A, B, out, c=out.T), ValueError, r"c must have shape \(24, 20\)"),
        (lambda: diagnosed(A, B, out, c=out.astype(int)), TypeError, "c must be float32"),
        (lambda: diagnosed(A, B, out, scale_out=0), ValueError, "scale_out must be a normal number"),
        (lambda: diagnosed(A, B, out, layout="xy"), ValueError, "layout"),
        (lambda: diagnosed(np.ones((24, 512)), np.ones((20, 512)), out), ValueError, "float64"),
    ):  # fmt: skip
        with pytest.raises(kind, match=message):
            call()


def wrong_from(first, seed=41, dtype=np.float32):
    """Operands, and the right sums over the first K elements, but that what comes from one on is cut to 10 bits."""
    rng = np.random.default_rng(seed)
    a, b = (fp8lab.encode(rng.normal(0.1, 1, (n, 256)).astype(np.float32), "e4m3") for n in (16, 12))

    def out(depth, left=a, right=b):
        total = np.zeros((len(left), len(right)), np.float32)
        for k in range(0, depth, 32):
            part = fp8lab.gemm(left[:, k : k + 32].copy(), right[:, k : k + 32].copy(), model=MODEL)
            if k >= first:
                part = (part.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) * np.float32(1.03)
            total = total + part
        return total.astype(dtype)

    return a, b, out


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16] if EXHAUSTIVE else [np.float32])
def test_prefixes_tell_where_along_k_the_first_difference_enters(dtype):
    a, b, out = wrong_from(160, dtype=dtype)
    prefixes = {k: out(k) for k in ((32, 64, 128, 160, 192, 224) if EXHAUSTIVE else (160, 192))}
    found = fp8lab.diagnose_gemm(a, b, out(256), prefixes=prefixes)
    assert not found.explained and found.first_difference == (160, 192), found
    said = "The first difference enters along K behind the first 160 elements, and within the first 192."
    assert said in found.rest and said in str(found)
    right = wrong_from(256, dtype=dtype)[2]
    correct = fp8lab.diagnose_gemm(a, b, right(256), prefixes={64: right(64)})
    assert correct.correct and correct.first_difference is None
    for wrong, kind, message in (
        ({64: out(64)[1:]}, ValueError, r"prefixes\[64\] must have shape \(16, 12\)"),
        ([out(64)], TypeError, "prefixes must be a dict"),
        ({64: out(64).astype(np.float16)}, TypeError, r"prefixes\[64\] must be "),
    ):
        with pytest.raises(kind, match=message):
            fp8lab.diagnose_gemm(a, b, right(256), prefixes=wrong)
    if not EXHAUSTIVE:
        return
    for wrong, along in (({224: out(224)}, (0, 224)), ({160: out(160)}, (160, 256))):
        assert fp8lab.diagnose_gemm(a, b, out(256), prefixes=wrong).first_difference == along
    expected = {"model": MODEL, "promote_k": 32}
    found = fp8lab.diagnose_gemm(a, b, out(256), prefixes=prefixes, expected=expected)
    assert found.first_difference == (160, 192)
    with pytest.raises(ValueError, match="a prefix has 1 to 256 elements of K, not 257"):
        fp8lab.diagnose_gemm(a, b, out(256), prefixes={257: out(64)})


def test_the_probe_of_an_output_that_nothing_explains_tells_where_the_difference_enters():
    a, b, out = wrong_from(160)
    found = diagnosed(a, b, out(256))
    assert not found.explained and found.first_difference is None
    probe = found.probe()
    assert probe.a.shape == (16, 256) and probe.pairs == 0
    ends = [np.flatnonzero(row)[-1] for row in probe.a]
    assert all(abs(16 * (i + 1) - 1 - end) <= 1 for i, end in enumerate(ends)), ends
    again = diagnosed(probe.a, probe.b, out(256, probe.a, probe.b))
    low, high = again.first_difference
    assert low <= 160 < high and high - low <= 17, again
    assert f"behind the first {low} elements, and within the first {high}" in " ".join(again.rest)


@pytest.mark.skipif(not EXHAUSTIVE, reason="--exhaustive has it: each output takes a second")
def test_prefixes_of_scaled_operands_have_their_scales():
    rng = np.random.default_rng(43)
    given = {"format_a": "e2m1", "format_b": "e2m1"}
    for recipe, model, formats in (("te_mxfp8", "blackwell_mxf8", {}), ("te_nvfp4", "blackwell_nvf4", given)):
        qa, qb = (fp8lab.quantize(rng.normal(0, 1, (n, 256)).astype(np.float32), recipe) for n in (32, 24))
        packing = 2 if formats else 1
        block = 256 // qa.scale_codes.shape[1]

        def out(depth, qa=qa, qb=qb, packing=packing, block=block, model=model, formats=formats):
            left, right = (np.ascontiguousarray(q.codes[:, : depth // packing]) for q in (qa, qb))
            scales = [np.ascontiguousarray(q.scale_codes[:, : depth // block]) for q in (qa, qb)]
            return fp8lab.gemm(left, right, model=model, scale_a=scales[0], scale_b=scales[1], **formats)

        wrong = out(256)
        wrong = np.where(np.arange(24) % 3 == 1, wrong * np.float32(1.01), wrong * np.float32(0.99))
        scales = {"scale_a": qa.scale_codes, "scale_b": qb.scale_codes}
        found = fp8lab.diagnose_gemm(qa.codes, qb.codes, wrong + out(64), prefixes={128: out(128)}, **scales, **formats)
        assert not found.explained and found.first_difference == (128, 256), found
    tiles_a, tiles_b = rng.uniform(0.5, 2, (24, 4)).astype(np.float32), rng.uniform(0.5, 2, (1, 4)).astype(np.float32)
    right = fp8lab.gemm(A, B, model=MODEL, scale_a=tiles_a, scale_b=tiles_b)
    cut = fp8lab.gemm(
        A[:, :256].copy(), B[:, :256].copy(), model=MODEL, scale_a=tiles_a[:, :2].copy(), scale_b=tiles_b[:, :2].copy()
    )
    wrong = right + cut * np.float32(0.37) * np.sign(right)
    for layout in ("nt", "nn", "tn"):
        a, b = (A.T.copy() if layout[0] == "t" else A), (B.T.copy() if layout[1] == "n" else B)
        scale_a = tiles_a.T.copy() if layout[0] == "t" else tiles_a
        scale_b = tiles_b.T.copy() if layout[1] == "n" else tiles_b
        scales = {"scale_a": scale_a, "scale_b": scale_b, "layout": layout}
        found = fp8lab.diagnose_gemm(a, b, wrong, prefixes={256: cut}, **scales)
        assert found.first_difference == (256, 512), found
        with pytest.raises(ValueError, match="a prefix has a multiple of 128 elements of K"):
            fp8lab.diagnose_gemm(a, b, wrong, prefixes={64: cut}, **scales)


def test_no_diagnosis_depends_on_the_threads():
    rng = np.random.default_rng(8)
    a, b = (fp8lab.encode(rng.standard_normal((rows, 256)).astype(np.float32), "e4m3") for rows in (24, 20))
    right = fp8lab.gemm(a, b, "hopper_wgmma_fp8", promote_k=128)
    one = right.copy()
    one[3, 5] += 1
    for out in (right, one, np.asarray(right * np.float32(1.5)), np.asarray(right.T[:, ::-1]).reshape(24, 20)):
        told = [fp8lab.diagnose_gemm(a, b, out, threads=threads) for threads in (1, 2, 5)]
        assert len({str(one) for one in told}) == 1
        assert len({repr(one.shown) for one in told}) == len({one.searched for one in told}) == 1
    with pytest.raises(ValueError, match="threads must be from 1 to 1024, not 0"):
        fp8lab.diagnose_gemm(a, b, right, threads=0)
