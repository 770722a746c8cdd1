# SPDX-License-Identifier: Apache-2.0
"""fp8lab.diagnose_gemm. What it says of GEMMs composed by hand is in tests/reference/forensics/diagnose_gemm.cpp."""

import ml_dtypes
import numpy as np
import pytest

import fp8lab

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
        sums = fp8lab.mma(model, np.ascontiguousarray(left[:, at : at + k]), np.ascontiguousarray(right[:, at : at + k]), sums)
        if (at + k) % promote == 0:
            total, sums = total + sums, np.zeros_like(sums)
    return total.reshape(m.shape)


def test_a_gemm_of_instructions_is_named():
    out = chained("hopper_wgmma_fp8", A, B, 128)
    found = fp8lab.diagnose_gemm(A, B, out)
    first = found.explanations[0]
    assert found.correct and "hopper_wgmma_fp8" in first.models and first.promote_k == 128 and first.unexplained == 0
    assert first.checked == out.size == found.elements and found.searched > 100
    assert "promoted every 128" in str(found) and found.verdict.startswith(f"All {out.size} elements")
    scaled = fp8lab.diagnose_gemm(A, B, out * np.float32(0.37) * np.float32(1.9), scale_a=0.37, scale_b=1.9)
    assert scaled.correct and scaled.explanations[0].scale_use == "a_first"


def test_a_few_elements_and_small_outputs_are_enough_for_much():
    out = chained("blackwell_tcgen05_fp8", A, B, 512)
    places = [(0, 1), (7, 3), (23, 19), (11, 4), (5, 5), (17, 0)]
    few = np.array([out[place] for place in places])
    found = fp8lab.diagnose_gemm(A, B, few, places=places)
    assert found.correct and "blackwell_tcgen05_fp8" in found.explanations[0].models and found.elements == 6
    small = fp8lab.diagnose_gemm(A, B, out.astype(ml_dtypes.bfloat16))
    assert small.correct and small.explanations[0].output == "nearest"
    forgotten = fp8lab.diagnose_gemm(A, B, out, scale_a=0.3, scale_b=0.7)
    assert forgotten.explained and not forgotten.correct and forgotten.explanations[0].defect == "scales_missing"


def test_c_a_bias_and_a_scale_of_the_output_are_told():
    out = chained("blackwell_tcgen05_fp8", A, B, 512)
    c, bias = (WORDS.normal(0, 100, shape).astype(np.float32) for shape in (out.shape, (20,)))
    both = fp8lab.diagnose_gemm(A, B, out + bias + c, c=c, bias=bias)
    assert both.correct and both.explanations[0].addend_use == "after_scales" and both.explanations[0].bias_first
    half = bias.astype(ml_dtypes.bfloat16)
    rounded = fp8lab.diagnose_gemm(A, B, (out.astype(ml_dtypes.bfloat16).astype(np.float32) + half.astype(np.float32)).astype(ml_dtypes.bfloat16), bias=half)
    assert rounded.correct and rounded.explanations[0].addend_use == "after_rounding"
    forgotten = fp8lab.diagnose_gemm(A, B, out, bias=bias)
    assert forgotten.explanations[0].defect == "bias_missing" and not forgotten.correct
    small = np.float32(2.0**-9) * np.float32(1.3)
    codes = np.clip(out * small, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    scaled = fp8lab.diagnose_gemm(A, B, codes, scale_out=float(small))
    assert scaled.correct and scaled.explanations[0].output == "nearest" and scaled.explanations[0].saturated
    probe = both.probe()
    assert probe.c.shape == (24, 20) and probe.bias.shape == (20,) and probe.scale_out == 1 and probe.scale_a == 1


def test_an_order_of_k_is_told():
    model, order = "blackwell_tcgen05_fp8", np.arange(512).reshape(8, 32, 2).transpose(0, 2, 1).reshape(-1)  # even, then odd of 64
    found = fp8lab.diagnose_gemm(A, B, chained(model, A[:, order], B[:, order], 512))
    assert found.correct and found.explanations[0].k_order == (2, 1, 64) and model in found.explanations[0].models
    assert fp8lab.diagnose_gemm(A, B, chained(model, A, B, 512)).explanations[0].k_order is None


def test_quantized_operands_bring_their_scales():
    rng = np.random.default_rng(6)
    x, w = rng.normal(0, 1, (16, 256)).astype(np.float32), rng.normal(0, 1, (128, 256)).astype(np.float32)
    qx, qw = fp8lab.quantize(x, "te_block_1x128_fp32"), fp8lab.quantize(w, "te_block_1x128_fp32")
    out = fp8lab.gemm(qx, qw, model="hopper_wgmma_fp8", out_dtype="bfloat16")
    found = fp8lab.diagnose_gemm(qx, qw, out, most_products=2**24)
    assert found.correct and any("hopper_wgmma_fp8" in one.models for one in found.explanations[: found.tied])
    mx = fp8lab.quantize(x, "te_mxfp8")
    out = fp8lab.gemm(mx, mx, model="blackwell_mxf8")
    assert fp8lab.diagnose_gemm(mx, mx, out).explanations[0].models[0] == "blackwell_mxf8"
    again = fp8lab.diagnose_gemm(mx.codes, mx.codes, out, scale_a=mx.scale_codes, scale_b=mx.scale_codes)
    assert again.correct


def test_a_probe_parts_what_the_data_cannot():
    zeros = np.zeros_like(A)
    found = fp8lab.diagnose_gemm(zeros, B, np.zeros((24, 20), np.float32))
    assert found.tied > 10 and "cannot tell" in found.verdict
    probe = found.probe()
    assert probe.a.shape == (24, 512) and probe.b.shape == (20, 512) and probe.parted > probe.pairs * 0.7
    assert len(probe.unparted) == probe.pairs - probe.parted
    out = fp8lab.gemm(probe.a, probe.b, model="hopper_wgmma_fp8", promote_k=64)
    parted = fp8lab.diagnose_gemm(probe.a, probe.b, out)
    assert parted.explanations[0].promote_k == 64 and parted.tied < found.tied


def test_what_is_no_product_is_refused():
    out = np.zeros((24, 20), np.float32)
    q = fp8lab.quantize(np.ones((16, 256), np.float32), "te_mxfp8")
    for call, kind, message in (
        (lambda: fp8lab.diagnose_gemm(A, B[:, :256], out), ValueError, "the same K, not 512 and 256"),
        (lambda: fp8lab.diagnose_gemm(A, B, out[:3]), ValueError, r"out must have shape \(24, 20\)"),
        (lambda: fp8lab.diagnose_gemm(A, B, out.astype(np.float64)), TypeError, "out must be float32"),
        (lambda: fp8lab.diagnose_gemm(A, B, out.astype(np.uint8)), ValueError, "out_format must be given"),
        (lambda: fp8lab.diagnose_gemm(A, B, out[0], places=[(0, 0)]), ValueError, "places must be pairs"),
        (lambda: fp8lab.diagnose_gemm(A, B, out[0, :1], places=[(0, 20)]), ValueError, "does not"),
        (lambda: fp8lab.diagnose_gemm(A, B, out, scale_a=np.zeros((24, 7), np.uint8)), ValueError, "scale_a must have a code"),
        (lambda: fp8lab.diagnose_gemm(q, q, q), TypeError, "out must be an array"),
        (lambda: fp8lab.diagnose_gemm(A, B, out, bias=out[0, :7]), ValueError, r"bias must have shape \(20,\), not \(7,\)"),
        (lambda: fp8lab.diagnose_gemm(A, B, out, c=out.T), ValueError, r"c must have shape \(24, 20\)"),
        (lambda: fp8lab.diagnose_gemm(A, B, out, c=out.astype(int)), TypeError, "c must be float32"),
        (lambda: fp8lab.diagnose_gemm(A, B, out, scale_out=0), ValueError, "scale_out must be a normal number"),
        (lambda: fp8lab.diagnose_gemm(A, B, out, layout="xy"), ValueError, "layout"),
        (lambda: fp8lab.diagnose_gemm(np.ones((24, 512)), np.ones((20, 512)), out), ValueError, "float64"),
    ):  # fmt: skip
        with pytest.raises(kind, match=message):
            call()
