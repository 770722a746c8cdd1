# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import time
from fractions import Fraction

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import interrupted_after, splitmix

VECTORS = pathlib.Path(__file__).parents[1] / "vectors" / "mma_sim.json"


def codes(hexes):
    return np.array([list(bytes.fromhex(text)) for text in hexes], np.uint8)


def words(hexes, dtype=np.float32):
    """Words of float32, or of float16, as numbers."""
    word = np.uint32 if dtype == np.float32 else np.uint16
    return np.array([int(text, 16) for text in hexes], np.uint32).astype(word).view(dtype)


def accumulator(model):
    return np.dtype(next(m for m in fp8lab.models() if m.name == model).accumulator)


def assert_same_words(actual, expected):
    assert actual.dtype == expected.dtype
    word = f"u{actual.dtype.itemsize}"
    np.testing.assert_array_equal(actual.view(word), expected.view(word))


def operand(hexes, format):
    """Codes as mma takes them: E2M1 packed."""
    return fp8lab.pack_pairs(codes(hexes)) if format == "e2m1" else codes(hexes)


def test_mma_gives_mma_sims_words():
    checked = 0
    for group in json.loads(VECTORS.read_text())["groups"]:
        model, format_a, format_b = group["model"], group["format_a"], group["format_b"]
        a, b, *scales, c, d = zip(*group["rows"], strict=True)
        scale_a, scale_b = map(codes, scales) if scales else (None, None)
        out = fp8lab.mma(
            model, operand(a, format_a), operand(b, format_b), words(c, accumulator(model)),
            format_a=format_a, format_b=format_b, scale_a=scale_a, scale_b=scale_b, zero_rule="count_zero_factors",
        )  # fmt: skip
        assert_same_words(out, words(d, accumulator(model)))
        checked += len(out)
    assert checked == 5282


def chained(a, b, c=0.0):
    """c + a @ b, one fused multiply-add after the other: exact rationals, rounded by Python once for each."""
    for x, y in zip(a, b, strict=True):
        c = float(Fraction(float(x)) * Fraction(float(y)) + Fraction(c))
    return c


def test_fp64_is_a_chain_of_fused_multiply_adds():
    random = np.random.default_rng(64)
    a, b = (random.standard_normal((6, 19)) * 2.0 ** random.integers(-30, 30, (6, 19)) for _ in "ab")
    expected = np.array([[chained(x, y) for y in b] for x in a])
    for model in ("ampere_fp64", "hopper_fp64", "cdna2_fp64", "cdna3_fp64"):
        assert_same_words(fp8lab.gemm(a, b, model=model), expected)
        assert_same_words(fp8lab.gemm(np.asfortranarray(a.T), b.T, model=model, layout="tn", threads=2), expected)
    parts = [np.array([[chained(x[i:j], y[i:j]) for y in b] for x in a]) for i, j in ((0, 8), (8, 19))]
    assert_same_words(fp8lab.gemm(a, b, model="cdna3_fp64", split_k=[8, 11]), parts[0] + parts[1])
    c = random.standard_normal(6)
    out = fp8lab.mma("cdna3_fp64", a[:, :4], b[:, :4], c)
    assert_same_words(out, np.array([chained(*row) for row in zip(a[:, :4], b[:, :4], c, strict=True)]))
    nans = np.full((1, 4), 0xFFF0000000000123, np.uint64).view(np.float64)  # signalling
    for model, word in (("hopper_fp64_k4", 0xFFF8000000000123), ("cdna3_fp64", 0x7FFFFFFFFFFFFFFF)):
        assert fp8lab.mma(model, nans, np.ones((1, 4))).view(np.uint64) == word
    invalid = fp8lab.mma("hopper_fp64_k4", np.full((1, 4), np.inf), np.zeros((1, 4)))
    assert invalid.view(np.uint64) == 0xFFF8000000000000
    trace = fp8lab.trace_dot(a[0], b[0], model="hopper_fp64", got=np.float64(expected[0, 0]))
    assert (
        trace.passed and trace.tables["result"]["value"] == expected[0, 0] and len(trace.tables["steps"]["after"]) == 32
    )
    other = fp8lab.trace_dot(
        a[0], b[0], model="hopper_fp64", c=np.float64(3), got=np.nextafter(chained(a[0], b[0], 3.0), 99)
    )
    assert not other.passed and list(other.tables["candidates"]["model"]) == []


def test_float16_and_bfloat16_operands():
    x = np.float32([[1, 2, 3, 4] * 4, [0.5, -0.5] * 8])
    halves, brains = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(fp8lab.mma("hopper_fp16", halves, halves), np.float32([120, 4]))
    np.testing.assert_array_equal(fp8lab.mma("ampere_bf16", brains, brains), np.float32([120, 4]))
    coded = fp8lab.mma("hopper_fp16", halves.view(np.uint16), halves, format_a="float16")
    np.testing.assert_array_equal(coded, np.float32([120, 4]))
    out = fp8lab.mma("turing_fp16_f16", halves[:, ::2], halves[:, ::2], np.float16([65504, 1]))
    assert_same_words(out, np.float16([np.inf, 3]))
    np.testing.assert_array_equal(fp8lab.gemm(halves, brains.astype(np.float16), model="volta_fp16"), x @ x.T)
    np.testing.assert_array_equal(fp8lab.gemm(halves, brains, model="exact"), x @ x.T)


def test_fp4_is_packed_or_carries_its_type():
    x = np.float32(np.tile([1, -2, 6, 0.5], (3, 16)))
    typed = x.astype(ml_dtypes.float4_e2m1fn)
    scales = np.uint8([[127, 128]] * 3)
    packed = fp8lab.pack_pairs(typed)
    assert packed.shape == (3, 32)
    both = {"format_a": "e2m1", "format_b": "e2m1", "scale_a": scales, "scale_b": scales}
    expected = np.full(3, 8 * 41.25 * (1 + 4), np.float32)
    np.testing.assert_array_equal(fp8lab.mma("blackwell_mxf4", packed, packed, **both), expected)
    both["scale_a"] = scales.view(ml_dtypes.float8_e8m0fnu)
    np.testing.assert_array_equal(fp8lab.mma("blackwell_mxf4", typed, packed, **both), expected)


def test_gemm_with_block_scales():
    a = (splitmix(8, 3 * 96) % 16).astype(np.uint8).reshape(3, 96)
    b = (splitmix(9, 5 * 96) % 16).astype(np.uint8).reshape(5, 96)
    scale_a = (splitmix(10, 3 * 6) % 120).astype(np.uint8).reshape(3, 6)
    scale_b = (splitmix(11, 5 * 6) % 120).astype(np.uint8).reshape(5, 6)

    def real(codes, scales):
        return fp8lab.decode(codes, "e2m1") * np.repeat(fp8lab.decode(scales, "ue4m3"), 16, axis=1)

    fp4 = {"model": "blackwell_nvf4", "format_a": "e2m1", "format_b": "e2m1"}
    packed_a, packed_b = fp8lab.pack_pairs(a), fp8lab.pack_pairs(b)
    out = fp8lab.gemm(packed_a, packed_b, scale_a=scale_a, scale_b=scale_b, threads=2, **fp4)
    exact = fp8lab.gemm(real(a, scale_a), real(b, scale_b), model="exact")
    np.testing.assert_allclose(out, exact, rtol=1e-6, atol=1e-6 * np.abs(exact).max())
    typed = scale_b.view(ml_dtypes.float8_e4m3fn)
    both = fp8lab.gemm(
        packed_a, packed_b, scale_a=(scale_a, 0.5), scale_b=(typed, 4.0), bias=np.ones(5, np.float32), **fp4
    )
    np.testing.assert_array_equal(both, out * np.float32(2) + np.float32(1))
    # The first instruction by itself, and the second, whose last two groups are missing.
    first = fp8lab.mma(
        "blackwell_nvf4", np.repeat(packed_a[:, :32], 5, axis=0), np.tile(packed_b[:, :32], (3, 1)), format_a="e2m1",
        format_b="e2m1", scale_a=np.repeat(scale_a[:, :4], 5, axis=0), scale_b=np.tile(scale_b[:, :4], (3, 1)),
    )  # fmt: skip
    fast = fp8lab.gemm(packed_a[:, :32], packed_b[:, :32], scale_a=scale_a[:, :4], scale_b=scale_b[:, :4], **fp4)
    assert_same_words(fast.ravel(), first)


def test_gemm_of_a_float16_accumulator_is_float32():
    a = np.full((2, 64), 0x38, np.uint8)
    out = fp8lab.gemm(a, a, model="hopper_wgmma_fp8_f16")
    assert_same_words(out, np.full((2, 2), 64, np.float32))
    a[0, 0] = 0x7F
    assert fp8lab.gemm(a, a, model="ada_mma_fp8_f16").view(np.uint32)[0, 0] == 0x7FFFFFFF


def test_zero_rules_part_where_a_group_of_fp4_is_zero():
    zeros, scales = np.zeros((1, 32), np.uint8), np.full((1, 2), 147, np.uint8)
    both = {"format_a": "e2m1", "format_b": "e2m1", "scale_a": scales, "scale_b": scales}
    results = {
        rule: fp8lab.mma("blackwell_mxf4", zeros, zeros, np.float32([1]), zero_rule=rule, **both)[0]
        for rule in ("floor", "skip_terms", "count_zero_factors", "skip_empty_groups", "skip_zero_groups")
    }
    assert list(results.values()) == [1, 0, 0, 1, 1]


def test_models_tell_what_they_take():
    by_name = {model.name: model for model in fp8lab.models()}
    assert len(by_name) == 99
    nvf4 = by_name["blackwell_nvf4"]
    assert (nvf4.k, nvf4.operands, nvf4.scale_format, nvf4.scale_block) == (64, ["e2m1"], "ue4m3", 16)
    assert (by_name["exact"].k, by_name["exact"].scale_block) == (None, None)
    assert by_name["ada_mma_fp8_f16"].accumulator == "float16"
    assert "measured: B200" in str(by_name["hopper_mma_sync_fp8"])
    assert "no device has decided" in nvf4.evidence_note


def test_gemm_composes_mma():
    a = (splitmix(1, 5 * 96) % 120).astype(np.uint8).reshape(5, 96)
    b = (splitmix(2, 7 * 96) % 120).astype(np.uint8).reshape(7, 96)
    for promote_k in (None, 32, 64):
        total = np.zeros((5, 7), np.float32)
        accumulator = np.zeros((5, 7), np.float32)
        for k in range(0, 96, 32):
            left = np.repeat(a[:, k : k + 32], 7, axis=0)
            right = np.tile(b[:, k : k + 32], (5, 1))
            accumulator = fp8lab.mma("hopper_wgmma_fp8", left, right, accumulator.ravel()).reshape(5, 7)
            if promote_k and (k + 32) % promote_k == 0:
                total, accumulator = total + accumulator, np.zeros_like(accumulator)
        out = fp8lab.gemm(a, b, model="hopper_wgmma_fp8", promote_k=promote_k, threads=2)
        np.testing.assert_array_equal(out.view(np.uint32), (total + accumulator).view(np.uint32))


def test_exact_is_the_rational_sum_rounded_once():
    x = splitmix(3, 4 * 50).astype(np.uint32)
    x = ((x & np.uint32(0x807FFFFF)) | ((np.uint32(100) + (x >> np.uint32(8)) % np.uint32(50)) << np.uint32(23))).view(
        np.float32
    )
    a, b = x[:100].reshape(2, 50), x[100:].reshape(2, 50)
    out = fp8lab.gemm(a, b, model="exact")
    for i in range(2):
        for j in range(2):
            real = sum(Fraction(float(p)) * Fraction(float(q)) for p, q in zip(a[i], b[j], strict=True))
            candidates = [
                out[i, j],
                np.nextafter(out[i, j], np.float32(np.inf)),
                np.nextafter(out[i, j], np.float32(-np.inf)),
            ]
            distances = [abs(Fraction(float(value)) - real) for value in candidates]
            assert distances[0] == min(distances)


def test_float8_arrays_carry_their_format():
    x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(2, 32)
    e5m2 = x.astype(ml_dtypes.float8_e5m2)
    out = fp8lab.gemm(e5m2, e5m2, model="hopper_wgmma_fp8")
    plain = fp8lab.gemm(
        e5m2.view(np.uint8), e5m2.view(np.uint8), model="hopper_wgmma_fp8", format_a="e5m2", format_b="e5m2"
    )
    np.testing.assert_array_equal(out, plain)


def test_epilogue_and_output_types():
    a = np.full((3, 32), 0x38, np.uint8)
    bias = np.float32([1, -32, 1e6])
    out = fp8lab.gemm(a, a, model="hopper_wgmma_fp8", scale_a=0.5, scale_b=4.0, bias=bias)
    np.testing.assert_array_equal(out, np.float32([[65, 32, 1000064]] * 3))
    half = fp8lab.gemm(a, a, model="hopper_wgmma_fp8", bias=bias, out_dtype="float16")
    assert half.dtype == np.float16 and half[0].tolist() == [33, 0, float("inf")]
    assert fp8lab.gemm(a, a, model="exact", out_dtype="bfloat16").dtype == ml_dtypes.bfloat16


def test_targets_give_the_same_bits():
    a = (splitmix(5, 3 * 256) % 256).astype(np.uint8).reshape(3, 256)
    results = []
    try:
        for target in fp8lab.targets():
            fp8lab.force_target(target)
            results.append(fp8lab.gemm(a, a, model="hopper_wgmma_fp8").tobytes())
    finally:
        fp8lab.force_target("")
    assert len(results) > 1 and len(set(results)) == 1
    with pytest.raises(ValueError, match="unknown target 'NEON'"):
        fp8lab.force_target("NEON")
    with pytest.raises(TypeError):
        fp8lab.force_target(None)


def chain(a, b, k0, k1, c=0.0):
    """The accumulators of rows times rows after the instructions of K from k0 to k1."""
    rows, columns = len(a), len(b)
    sums = np.full(rows * columns, c, np.float32)
    for k in range(k0, k1, 32):
        left = np.repeat(a[:, k : k + 32], columns, axis=0)
        right = np.tile(b[:, k : k + 32], (rows, 1))
        sums = fp8lab.mma("blackwell_tcgen05_fp8", left, right, sums)
    return sums.reshape(rows, columns)


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("shape", [(3, 5, 40), (16, 16, 16), (70, 130, 64)])  # the last is no small call
def test_codes_in_every_layout_give_what_integers_do(layout, shape):
    rng = np.random.default_rng(16)
    rows, columns, depth = shape
    numbers_a, numbers_b = rng.integers(-8, 9, (rows, depth)), rng.integers(-8, 9, (columns, depth))
    expected = (numbers_a @ numbers_b.T).astype(np.float32)  # the sums stay where the tensor core cuts nothing
    a, b = (fp8lab.encode(x.astype(np.float32), "e4m3") for x in (numbers_a, numbers_b))
    stored_a, stored_b = (a.T if layout[0] == "t" else a), (b.T if layout[1] == "n" else b)
    for order in ("C", "F"):
        left, right = np.array(stored_a, order=order), np.array(stored_b, order=order)
        assert_same_words(fp8lab.gemm(left, right, model="hopper_wgmma_fp8", layout=layout), expected)
        assert_same_words(fp8lab.gemm(left, right, model="hopper_wgmma_fp8", layout=layout, threads=2), expected)
    with pytest.raises(ValueError, match="a and b must have the same K"):
        fp8lab.gemm(stored_a, np.ones((7, 7), np.uint8), model="hopper_wgmma_fp8", layout=layout)


def test_gemm_splits_promotes_and_scales_tiles_as_numpy_does():
    rng = np.random.default_rng(4)
    a = fp8lab.encode(rng.standard_normal((3, 384), np.float32), "e4m3")
    b = fp8lab.encode(rng.standard_normal((130, 384), np.float32), "e4m3")
    c = rng.standard_normal((3, 130), np.float32)
    model = "blackwell_tcgen05_fp8"
    parts = [chain(a, b, 0, 128), chain(a, b, 128, 320), chain(a, b, 320, 384)]
    out = fp8lab.gemm(a, b, model=model, split_k=[128, 192, 64], split_order=[1, 2, 0], threads=2)
    np.testing.assert_array_equal(out, (parts[1] + parts[2]) + parts[0])
    np.testing.assert_array_equal(fp8lab.gemm(a, b, model=model, c=c), chain(a, b, 0, 384) + c)
    started = fp8lab.gemm(a, b, model=model, c=c, c_enters="accumulator", promote_k=192)
    np.testing.assert_array_equal(started, (c + chain(a, b, 0, 192)) + chain(a, b, 192, 384))

    scale_a = rng.uniform(0.1, 2, (3, 3)).astype(np.float32)
    scale_b = rng.uniform(0.1, 2, (2, 3)).astype(np.float32)
    out = fp8lab.gemm(a, b, model=model, scale_a=scale_a, scale_b=(scale_b, 2.0))
    real = np.zeros((3, 130))
    for tile in range(3):  # what fma does: products of 48 bits and sums that a double almost holds
        scale = (scale_a[:, tile : tile + 1] * np.repeat(scale_b[:, tile], 128)[:130]).astype(np.float64)
        real = (scale * chain(a, b, 128 * tile, 128 * tile + 128) + real).astype(np.float32).astype(np.float64)
    different = out != 2 * real.astype(np.float32)
    assert different.mean() < 1e-3  # a double rounds first, which shows once in 2^28 sums or so
    both = fp8lab.gemm(a.T, b.T, model=model, scale_a=scale_a.T, scale_b=(scale_b.T, 2.0), layout="tn")
    np.testing.assert_array_equal(both, out)
    np.testing.assert_array_equal(fp8lab.gemm(a, b.T, model=model, layout="nn"), fp8lab.gemm(a, b, model=model))
    np.testing.assert_array_equal(fp8lab.gemm(a.T, b, model=model, layout="tt"), fp8lab.gemm(a, b, model=model))


def test_what_is_unverified_can_be_replaced():
    tiny = np.zeros((1, 32), np.uint8)
    tiny[0, 0] = 0x01  # 2^-16 in E5M2; the product underflows in float16
    e5m2 = {"format_a": "e5m2", "format_b": "e5m2"}
    for name in ("hopper_wgmma_fp8_f16", "blackwell_tcgen05_fp8_f16"):
        kept = fp8lab.model_with(name, keeps_sign=True)
        assert kept.keeps_sign and kept.name == name
        for model, word in ((name, 0x0000), (kept, 0x8000)):
            assert fp8lab.mma(model, tiny, tiny ^ 0x80, **e5m2).view(np.uint16)[0] == word
            assert fp8lab.gemm(tiny, tiny ^ 0x80, model=model, **e5m2).view(np.uint32)[0, 0] == word << 16
    one = np.full((1, 32), 0x22, np.uint8)  # packed E2M1: 64 times 1
    scales = np.array([[0x38, 0x38, 0x38, 0x08]], np.uint8)  # the last 2^-6, so that its group is 2^-12 * 16
    units = np.full((1, 4), 0x38, np.uint8)
    fp4 = {
        "scale_a": scales,
        "scale_b": scales,
        "c": np.array([2.0**30], np.float32),
        "format_a": "e2m1",
        "format_b": "e2m1",
    }
    assert fp8lab.mma("blackwell_nvf4", one, one, **fp4)[0] == 2.0**30
    few = fp8lab.model_with("blackwell_nvf4", fraction_bits=1)
    fp4 |= {"scale_b": units, "c": np.array([0.0], np.float32)}
    assert fp8lab.mma("blackwell_nvf4", one, one, **fp4)[0] == 48 + 16 / 64
    assert fp8lab.mma(few, one, one, **fp4)[0] == 48  # the last group's quarter is cut
    with pytest.raises(ValueError, match="fraction_bits must be from 1 to 40, not 0"):
        fp8lab.model_with("blackwell_nvf4", fraction_bits=0)
    with pytest.raises(ValueError, match="exact has nothing to replace"):
        fp8lab.model_with("exact", keeps_sign=True)
    with pytest.raises(TypeError, match="keeps_sign must be a bool"):
        fp8lab.model_with("blackwell_nvf4", keeps_sign=1)


def test_gemm_rounds_to_the_output_once():
    rng = np.random.default_rng(5)
    a = fp8lab.encode(rng.standard_normal((4, 96), np.float32), "e4m3")
    plain = fp8lab.gemm(a, a, model="hopper_wgmma_fp8")
    codes = fp8lab.gemm(a, a, model="hopper_wgmma_fp8", out_dtype="e5m2", scale_out=1e3)
    np.testing.assert_array_equal(codes, fp8lab.encode(plain * np.float32(1e3), "e5m2"))
    assert codes.dtype == np.uint8
    nosat = fp8lab.gemm(a, a, model="hopper_wgmma_fp8", out_dtype="e4m3", out_profile="cuda_nosat", scale_out=1e6)
    np.testing.assert_array_equal(nosat, fp8lab.encode(plain * np.float32(1e6), "e4m3", profile="cuda_nosat"))
    with np.errstate(over="ignore"):
        large = fp8lab.gemm(a, a, model="hopper_wgmma_fp8", out_dtype="float16", scale_out=1e5)
        np.testing.assert_array_equal(large, (plain * np.float32(1e5)).astype(np.float16))
    assert np.isinf(large).any()


def test_ctrl_c_stops_a_long_gemm():
    a = np.full((16384, 4096), 0x38, np.uint8)
    start = time.monotonic()
    with interrupted_after(0.5):
        fp8lab.gemm(a, a, model="blackwell_tcgen05_fp8")  # many minutes if it were not stopped
    assert time.monotonic() - start < 30


A = np.zeros((2, 32), np.uint8)
F = np.zeros((2, 32), np.float32)
D = np.zeros((2, 4))
H = np.zeros((2, 16), np.float16)
S = np.full((2, 1), 127, np.uint8)
GEMM = {"model": "hopper_wgmma_fp8"}
BAD_CALLS = [
    (lambda: fp8lab.gemm(A, A, model="h100"), ValueError, "unknown model 'h100'; known: exact, "),
    (lambda: fp8lab.gemm(A, A[:, :16], **GEMM), ValueError, "a and b must have the same K, not 32 and 16"),
    (lambda: fp8lab.gemm(A[0], A, **GEMM), ValueError, "a must have two dimensions, not 1"),
    (lambda: fp8lab.gemm(A, F.astype(np.float64), **GEMM), ValueError, "b is float64; .* takes e4m3, e5m2. Models that take float64: ampere_fp64"),
    (lambda: fp8lab.gemm(A, A.astype(np.int32), **GEMM), TypeError, "b must be uint8 codes"),
    (lambda: fp8lab.gemm(F, A, **GEMM), ValueError, "a is float32; hopper_wgmma_fp8 takes e4m3, e5m2"),
    (lambda: fp8lab.gemm(A, A, format_b="e8m0", **GEMM), ValueError, "b is e8m0; hopper_wgmma_fp8 takes e4m3, e5m2"),
    (lambda: fp8lab.gemm(A, A, model="hopper_tf32"), ValueError, "a is e4m3; hopper_tf32 takes float32"),
    (lambda: fp8lab.gemm(A, A, promote_k=48, **GEMM), ValueError, "promote_k must be a multiple of 32"),
    (lambda: fp8lab.gemm(A, A, promote_k=0, **GEMM), ValueError, "promote_k must be from 1"),
    (lambda: fp8lab.gemm(A, A, bias=np.zeros(3, np.float32), **GEMM), ValueError, r"bias must have shape \(2,\), not \(3,\)"),
    (lambda: fp8lab.gemm(A, A, bias=np.zeros(2), **GEMM), TypeError, "bias must be float32, not float64"),
    (lambda: fp8lab.gemm(A, A, out_dtype="int8", **GEMM), ValueError, "unknown out_dtype 'int8'; known: float32, float16, bfloat16, e4m3"),
    (lambda: fp8lab.gemm(A, A, layout="tnt", **GEMM), ValueError, "unknown layout 'tnt'; known: nt, nn, tn, tt"),
    (lambda: fp8lab.gemm(A, A, split_k="32", **GEMM), TypeError, "split_k must be an int, not str"),
    (lambda: fp8lab.gemm(A, A, split_k=[16, 16], **GEMM), ValueError, "split_k: a range must be a positive multiple of 32"),
    (lambda: fp8lab.gemm(A, A, split_k=[32], split_order=[1], **GEMM), ValueError, "split_order must have every number"),
    (lambda: fp8lab.gemm(A, A, c=np.zeros((2, 3), np.float32), **GEMM), ValueError, r"c must have shape \(2, 2\), not \(2, 3\)"),
    (lambda: fp8lab.gemm(A, A, c_enters="first", **GEMM), ValueError, "unknown c_enters 'first'; known: epilogue, accumulator"),
    (lambda: fp8lab.gemm(A, A, scale_order="x", **GEMM), ValueError, "unknown scale_order 'x'; known: scales_first"),
    (lambda: fp8lab.gemm(A, A, scale_a=F, **GEMM), ValueError, r"scale_a must have shape \(2, 1\) or \(1, 1\), one for every 1 x 128"),
    (lambda: fp8lab.gemm(A, A, scale_out="1", **GEMM), TypeError, "scale_out must be a number"),
    (lambda: fp8lab.gemm(A, A, out_dtype="float16", out_profile="none", **GEMM), ValueError, "unknown profile 'none'"),
    (lambda: fp8lab.gemm(A, A, scale_a=float("inf"), **GEMM), ValueError, "must be finite"),
    (lambda: fp8lab.gemm(A, A, zero_rule="none", **GEMM), ValueError, "unknown zero_rule 'none'; known: floor, skip_terms"),
    (lambda: fp8lab.mma("hopper_wgmma_fp8", A[:, :16], A[:, :16]), ValueError, "K must be 32, one instruction of hopper_wgmma_fp8, not 16; gemm takes any K. Models with K = 16: ada_mma_fp8_k16"),
    (lambda: fp8lab.mma("hopper_wgmma_fp8", A, A, np.zeros(3, np.float32)), ValueError, r"c must have shape \(2,\)"),
    (lambda: fp8lab.mma("hopper_wgmma_fp8_f16", A, A, np.zeros(2, np.float32)), TypeError, "c must be float16, not float32"),
    (lambda: fp8lab.mma("hopper_wgmma_fp8", A, A, np.zeros(2, np.float16)), TypeError, "c must be float32, not float16"),
    (lambda: fp8lab.mma("hopper_wgmma_fp8", A, A, scale_a=S), ValueError, "scale_a has 2 codes; hopper_wgmma_fp8 has no block scales. Models that .* such scales: blackwell_mxf8$"),
    (lambda: fp8lab.mma("blackwell_mxf8", A, A, scale_a=S), ValueError, r"scale_b must have 2 \* 1 codes, one for every 32"),
    (lambda: fp8lab.mma("blackwell_mxf8", A, A, scale_a=S, scale_b=S[:1]), ValueError, r"scale_b must have shape \(2, 1\)"),
    (lambda: fp8lab.mma("blackwell_mxf8", A, A, scale_a=S, scale_b=S * 1.0), TypeError, "scale_b must be uint8 codes"),
    (lambda: fp8lab.mma("blackwell_mxf8", A, A, scale_a=S, scale_b=S.view(ml_dtypes.float8_e5m2)), ValueError, "scale_b is e5m2, .* takes e8m0, one for every 32 of K. No model takes e4m3 with such scales"),
    (lambda: fp8lab.mma("blackwell_nvf4", A, A, format_a="e2m1"), ValueError, "a and b must have the same shape"),
    (lambda: fp8lab.mma("hopper_fp16", H, A[:, :16]), ValueError, "b is e4m3; hopper_fp16 takes float16"),
    (lambda: fp8lab.mma("hopper_fp16", H, H.view(np.uint8), format_b="float16"), TypeError, "b must be uint16 codes"),
    (lambda: fp8lab.gemm(A, A, scale_a=S, **GEMM), ValueError, "scale_a has 2 codes; hopper_wgmma_fp8 has no block scales. Models that .* such scales: blackwell_mxf8$"),
    (lambda: fp8lab.gemm(A[:, :20], A[:, :20], model="blackwell_mxf8"), ValueError, r"K must be a multiple of 32, a block of blackwell_mxf8, not 20 \(nearest: 32\)"),
    (lambda: fp8lab.gemm(A[:, :20], A[:, :20], scale_a=S, scale_b=S, model="blackwell_mxf8"), ValueError, r"not 20 \(nearest: 32\)"),
    (lambda: fp8lab.gemm(D, D, scale_a=2.0, model="cdna3_fp64"), ValueError, "scale_a does not apply to cdna3_fp64, which has no epilogue"),
    (lambda: fp8lab.gemm(D, D, c=np.zeros((2, 2)), model="cdna3_fp64"), ValueError, "c does not apply to cdna3_fp64, which has no epilogue"),
    (lambda: fp8lab.gemm(D, D, promote_k=4, model="cdna3_fp64"), ValueError, "promote_k does not apply to cdna3_fp64"),
    (lambda: fp8lab.gemm(D, D, out_dtype="float32", model="cdna3_fp64"), ValueError, "out_dtype must be float64, the accumulator of cdna3_fp64"),
    (lambda: fp8lab.gemm(D, D, out_profile="ieee", model="cdna3_fp64"), ValueError, "out_profile goes with an out_dtype of 16 bits or fewer"),
    (lambda: fp8lab.gemm(A, A, out_dtype="float64", **GEMM), ValueError, "unknown out_dtype 'float64'; known: float32, float16"),
    (lambda: fp8lab.gemm(D.astype(np.float32), D, model="cdna3_fp64"), ValueError, "a is float32; cdna3_fp64 takes float64. Models that take float32: "),
    (lambda: fp8lab.mma("cdna3_fp64", D, D, np.zeros(2, np.float32)), TypeError, "c must be float64, not float32"),
    (lambda: fp8lab.mma("cdna3_fp64", D[:, :3], D[:, :3]), ValueError, "K must be 4, one instruction of cdna3_fp64, not 3; gemm takes any K$"),
    (lambda: fp8lab.mma("hopper_wgmma_fp8", A, A[:1]), ValueError, "a and b must have the same shape"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_model_tells_which_nan_it_gives():
    words = {(model.maker, model.nan) for model in fp8lab.models() if model.accumulator == "float64"}
    assert words == {("AMD", "all_ones"), ("NVIDIA", "propagated")}
    assert {model.nan for model in fp8lab.models() if model.accumulator != "float64"} == {"all_ones"}
