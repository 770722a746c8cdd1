# SPDX-License-Identifier: Apache-2.0
from fractions import Fraction

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import interrupted_after, splitmix


def word(text, dtype=np.float32):
    return np.array(int(text, 16), f"u{np.dtype(dtype).itemsize}").view(dtype)[()]


def rows(seed, depth):
    """Finite E4M3 codes."""
    codes = (splitmix(seed, 2 * depth) % 256).astype(np.uint8)
    codes[codes % 128 == 127] = 0
    return codes[:depth], codes[depth:]


@pytest.mark.parametrize("model", ["hopper_wgmma_fp8", "ada_mma_fp8", "hopper_mma_sync_fp8", "blackwell_tcgen05_fp8"])
@pytest.mark.parametrize("promote_k", [None, 64])
def test_a_trace_ends_in_the_word_of_gemm(model, promote_k):
    for seed in range(5):
        a, b = rows(seed, 150)
        trace = fp8lab.trace_dot(a, b, model=model, promote_k=promote_k)
        out = fp8lab.gemm(a[None], b[None], model=model, promote_k=promote_k)[0, 0]
        (result,) = trace.tables["result"].rows
        assert result["word"] == f"{out.view(np.uint32):08x}" and result["value"] == float(out)
        assert trace.tables["instructions"]["products"].tolist() == [32, 32, 32, 32, 22]


def test_what_is_kept_and_cut_adds_up_exactly():
    a, b = rows(7, 32)
    real_a, real_b = fp8lab.decode(a, "e4m3"), fp8lab.decode(b, "e4m3")
    trace = fp8lab.trace_dot(a, b, model="hopper_wgmma_fp8", c=np.float32(0.1))
    assert (
        fp8lab.trace_dot(a, b, np.float32(0.1), model="hopper_wgmma_fp8").tables["steps"].rows
        == trace.tables["steps"].rows
    )
    (step,) = trace.tables["steps"].rows
    terms = trace.tables["terms"].rows
    unit = Fraction(2) ** step["unit"]
    assert step["exponent"] == max(term["exponent"] for term in terms if term["exponent"] is not None)
    for term in terms:
        assert Fraction(term["kept"]) + Fraction(term["cut"]) == Fraction(term["value"])
        assert Fraction(term["kept"]) % unit == 0 and abs(Fraction(term["cut"])) < unit
    assert step["sum"] * unit == sum(Fraction(term["kept"]) for term in terms)
    assert terms[0]["is_accumulator"] and terms[0]["value"] == float(np.float32(0.1))
    values = {term["k"]: Fraction(term["value"]) for term in terms[1:]}
    for product in trace.tables["products"].rows:
        k = product["k"]
        assert (product["a"], product["b"]) == (real_a[k], real_b[k]) and product["code_a"] == f"{a[k]:02x}"
        assert values[k] == Fraction(product["a"]) * Fraction(product["b"])


def test_what_was_got_is_explained():
    a, b = rows(3, 256)
    got = fp8lab.gemm(a[None], b[None], model="ada_mma_fp8", promote_k=128)[0, 0]
    trace = fp8lab.trace_dot(a, b, model="hopper_wgmma_fp8", got=got)
    assert trace.passed is False and trace.tables["result"]["equal"] == [False]
    found = {"model": "ada_mma_fp8", "promote_k": 128, "zero_rules": "all"}
    assert found in trace.tables["candidates"].rows
    assert "NOT equal" in str(trace) and "What would give it:" in str(trace)
    assert fp8lab.trace_dot(a, b, model="ada_mma_fp8", promote_k=128, got=got).passed is True
    assert fp8lab.trace_dot(a, b, model="ada_mma_fp8").passed is None


def test_every_kind_of_operand():
    x = np.float32(np.tile([1, -2, 6, 0.5], 16))
    scales = np.uint8([127, 128])
    fp4 = fp8lab.trace_dot(
        x.astype(ml_dtypes.float4_e2m1fn), fp8lab.pack_pairs(fp8lab.encode(x, "e2m1")), model="blackwell_mxf4", format_b="e2m1",
        scale_a=scales, scale_b=scales.view(ml_dtypes.float8_e8m0fnu),
    )  # fmt: skip
    assert fp4.tables["result"]["value"] == 8 * 41.25 * (1 + 4) and np.isnan(fp4.tables["result"]["exact"])
    assert fp4.tables["terms"]["k"].tolist() == [0, 0, 16, 32, 48]
    halves = fp8lab.trace_dot(
        x[:16].astype(np.float16), x[:16].astype(np.float16), model="hopper_fp16_f16", c=np.float16(1)
    )
    assert (halves.tables["result"]["format"], halves.tables["result"]["value"]) == ("float16", 4 * 41.25 + 1)
    assert fp8lab.trace_dot(x, x, model="hopper_tf32", at=3).tables["result"]["value"] == 16 * 41.25
    nan = fp8lab.trace_dot(np.uint8([0x7F]), np.uint8([0]), model="hopper_wgmma_fp8", got=word("7fffffff"))
    assert np.isnan(nan.tables["result"]["value"]) and nan.passed and np.isnan(nan.tables["terms"]["value"][1])


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    x = np.float32(np.tile([1, -2, 6, 0.5], 16))
    tensor = torch.from_numpy(x).to(torch.float8_e5m2)
    assert fp8lab.trace_dot(tensor, tensor, model="hopper_wgmma_fp8").tables["result"]["value"] == 16 * 41.25


A = np.zeros(32, np.uint8)
S = np.full(1, 127, np.uint8)
DOT = {"model": "hopper_wgmma_fp8"}
BAD_CALLS = [
    (lambda: fp8lab.trace_dot(A[None], A, **DOT), ValueError, "a must have one dimension, not 2"),
    (lambda: fp8lab.trace_dot(A, A[:3], **DOT), ValueError, "a and b must have the same K, not 32 and 3"),
    (lambda: fp8lab.trace_dot(A[:0], A[:0], **DOT), ValueError, "K must be at least 1, not 0"),
    (lambda: fp8lab.trace_dot(A, A.astype(np.float64), **DOT), ValueError, "b is float64; hopper_wgmma_fp8 takes e4m3, e5m2. Models that take float64: ampere_fp64"),
    (lambda: fp8lab.trace_dot(A, A, model="h100"), ValueError, "unknown model 'h100'; known: "),
    (lambda: fp8lab.trace_dot(A, A, zero_rule="x", **DOT), ValueError, "unknown zero_rule 'x'"),
    (lambda: fp8lab.trace_dot(A, A, promote_k=33, **DOT), ValueError, "promote_k must be a multiple of 32"),
    (lambda: fp8lab.trace_dot(A, A, c="1", **DOT), TypeError, "c must be a number, not str"),
    (lambda: fp8lab.trace_dot(A, A, got=1e39, **DOT), ValueError, "got must be a number of float32, not 1e\\+39"),
    (lambda: fp8lab.trace_dot(A, A, c=0.1, **DOT), ValueError, "c must be a number of float32, not 0.1"),
    (lambda: fp8lab.trace_dot(A, A, at=32, **DOT), ValueError, "at must be from 0 to 31, not 32"),
    (lambda: fp8lab.trace_dot(A, A, scale_a=S, **DOT), ValueError, "scale_a has 1 code; hopper_wgmma_fp8 has no block scales. Models that take e4m3 with such scales: blackwell_mxf8$"),
    (lambda: fp8lab.trace_dot(A, A, model="blackwell_mxf8", scale_a=S), ValueError, "scale_b must have 1 \\* 1 codes"),
    (lambda: fp8lab.trace_dot(A, A, model="blackwell_mxf8", scale_a=S[None], scale_b=S), ValueError, "scale_a must have one dim"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_ctrl_c_stops_a_search():
    a, b = rows(1, 1 << 15)
    with interrupted_after(0.5):
        fp8lab.trace_dot(a, b, got=np.float32(12345.678), **DOT)


def test_the_experiment_draws_what_distribution_seed_and_k_name():
    drawn = fp8lab.experiments.dot(distribution_a="normal", distribution_b="uniform", seed_b=7, k=40)
    a, b = (fp8lab.sample(name, 40, seed=seed) for name, seed in (("normal", 1), ("uniform", 7)))
    assert drawn.passed is None
    codes = [fp8lab.encode(x, "e4m3") for x in (a, b)]
    assert drawn.tables["result"]["word"] == fp8lab.trace_dot(*codes, model="hopper_wgmma_fp8").tables["result"]["word"]
    products = drawn.tables["products"]
    for name, side in zip(("code_a", "code_b"), codes):
        assert [products[name][list(products["k"]).index(k)] for k in (3, 39)] == [f"{side[k]:02x}" for k in (3, 39)]
