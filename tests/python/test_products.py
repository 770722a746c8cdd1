# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import os
import pathlib
import signal
import threading
import time
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import fp8lab
from conftest import splitmix

VECTORS = pathlib.Path(__file__).parents[1] / "vectors" / "mma_sim_fp8.json"


def codes(hexes):
    return np.array([list(bytes.fromhex(text)) for text in hexes], np.uint8)


def words(hexes):
    return np.array([int(text, 16) for text in hexes], np.uint32).view(np.float32)


def test_mma_gives_mma_sims_words():
    checked = 0
    for group in json.loads(VECTORS.read_text())["groups"]:
        rows = list(zip(*group.get("cases", []), strict=True))
        if not rows:
            continue
        out = fp8lab.mma(
            group["model"], codes(rows[1]), codes(rows[2]), words(rows[3]),
            format_a=group["a"], format_b=group["b"], zero_rule="mma_sim",
        )  # fmt: skip
        np.testing.assert_array_equal(out.view(np.uint32), words(rows[4]).view(np.uint32))
        checked += len(out)
    assert checked == 1486


def test_hopper_gives_the_words_that_devices_gave():
    # Measured on H100 and H200 by Khattak and Mikaitis (MATLAB-tensor-core, BSD-2-Clause); not part of this project.
    path = pathlib.Path(__file__).parents[3] / "shared" / "data" / "tensor_core_gpu_rows.json.gz"
    if not path.exists():
        pytest.skip("the rows measured on devices are not here")
    checked = 0
    for group in json.loads(gzip.decompress(path.read_bytes()))["groups"]:
        if not group["model"].startswith("sm90a.wgmma"):
            continue
        a, b, c, d = zip(*group["cases"], strict=True)
        out = fp8lab.mma("hopper_wgmma_fp8", codes(a), codes(b), words(c), format_a=group["fmt"], format_b=group["fmt"])
        np.testing.assert_array_equal(out.view(np.uint32), words(d).view(np.uint32))
        checked += len(d)
    assert checked == 4000


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
    x = ((x & np.uint32(0x807FFFFF)) | ((np.uint32(100) + (x >> np.uint32(8)) % np.uint32(50)) << np.uint32(23))).view(np.float32)
    a, b = x[:100].reshape(2, 50), x[100:].reshape(2, 50)
    out = fp8lab.gemm(a, b, model="exact")
    for i in range(2):
        for j in range(2):
            real = sum(Fraction(float(p)) * Fraction(float(q)) for p, q in zip(a[i], b[j], strict=True))
            candidates = [out[i, j], np.nextafter(out[i, j], np.float32(np.inf)), np.nextafter(out[i, j], np.float32(-np.inf))]
            distances = [abs(Fraction(float(value)) - real) for value in candidates]
            assert distances[0] == min(distances)


def test_float8_arrays_carry_their_format():
    x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(2, 32)
    e5m2 = x.astype(ml_dtypes.float8_e5m2)
    out = fp8lab.gemm(e5m2, e5m2, model="hopper_wgmma_fp8")
    plain = fp8lab.gemm(e5m2.view(np.uint8), e5m2.view(np.uint8), model="hopper_wgmma_fp8", format_a="e5m2", format_b="e5m2")
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


def test_ctrl_c_stops_a_long_gemm():
    a = np.full((4096, 4096), 0x38, np.uint8)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fp8lab.gemm(a, a, model="blackwell_tcgen05_fp8")  # minutes if it were not stopped
    assert time.monotonic() - start < 30


A = np.zeros((2, 32), np.uint8)
F = np.zeros((2, 32), np.float32)
GEMM = {"model": "hopper_wgmma_fp8"}
BAD_CALLS = [
    (lambda: fp8lab.gemm(A, A, model="h100"), ValueError, "unknown model 'h100'; known: hopper_wgmma_fp8"),
    (lambda: fp8lab.gemm(A, A[:, :16], **GEMM), ValueError, "a and b must have the same K, not 32 and 16"),
    (lambda: fp8lab.gemm(A[0], A, **GEMM), ValueError, "a must have two dimensions, not 1"),
    (lambda: fp8lab.gemm(A, F.astype(np.float64), **GEMM), TypeError, "b must be codes .* or float32, not float64"),
    (lambda: fp8lab.gemm(A, A.astype(np.int32), **GEMM), TypeError, "b must be uint8 codes"),
    (lambda: fp8lab.gemm(F, A, **GEMM), ValueError, "a is float32; hopper_wgmma_fp8 takes e4m3, e5m2"),
    (lambda: fp8lab.gemm(A, A, format_b="e8m0", **GEMM), ValueError, "b is e8m0; hopper_wgmma_fp8 takes e4m3, e5m2"),
    (lambda: fp8lab.gemm(A, A, model="hopper_tf32"), ValueError, "a is e4m3; hopper_tf32 takes float32"),
    (lambda: fp8lab.gemm(A, A, promote_k=48, **GEMM), ValueError, "promote_k must be a multiple of 32"),
    (lambda: fp8lab.gemm(A, A, promote_k=0, **GEMM), ValueError, "promote_k must be from 1"),
    (lambda: fp8lab.gemm(A, A, bias=np.zeros(3, np.float32), **GEMM), ValueError, r"bias must have shape \(2,\), not \(3,\)"),
    (lambda: fp8lab.gemm(A, A, bias=np.zeros(2), **GEMM), TypeError, "bias must be float32, not float64"),
    (lambda: fp8lab.gemm(A, A, out_dtype="int8", **GEMM), ValueError, "unknown out_dtype 'int8'"),
    (lambda: fp8lab.gemm(A, A, scale_a=float("inf"), **GEMM), ValueError, "must be finite"),
    (lambda: fp8lab.gemm(A, A, zero_rule="none", **GEMM), ValueError, "unknown zero_rule 'none'; known: skip, mma_sim"),
    (lambda: fp8lab.mma("hopper_wgmma_fp8", A[:, :16], A[:, :16]), ValueError, "K must be 32, one step of hopper_wgmma_fp8"),
    (lambda: fp8lab.mma("hopper_wgmma_fp8", A, A, np.zeros(3, np.float32)), ValueError, r"c must have shape \(2,\)"),
    (lambda: fp8lab.mma("hopper_wgmma_fp8", A, A[:1]), ValueError, "a and b must have the same shape"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
