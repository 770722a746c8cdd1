# SPDX-License-Identifier: Apache-2.0
"""GELU and its gradient in cuBLASLt's epilogues, in the words of an NVIDIA H200.

tests/vectors/device/h200_gemm_activations.npz: FUNCTION/OPERANDS/OUTPUT/COMPUTE has a digest of each call's output, the
configuration of the kernel that cuBLASLt 13.1 took, and of some calls the last words. A GELU was that of a bias over a
product of zeros, or the gradient multiplied a product of rows (g, 0, 0, ...) with ones, at an input of its own.
"""

import sys
from pathlib import Path

import fp8lab
import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import digest, drawn, hashed  # noqa: E402

RECORDED = np.load(Path(__file__).parents[1] / "vectors" / "device" / "h200_gemm_activations.npz")
CALLS = [name.removesuffix("#digest") for name in RECORDED.files if "#digest" in name]
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TYPES |= {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
SIZE = 1 << 17


def words(seed):
    """All values of bfloat16, then drawn float32 numbers of 37 binades."""
    mantissa, binade = hashed(SIZE - 65536, seed), hashed(SIZE - 65536, seed + 1) % np.uint64(37) + np.uint64(97)
    rest = ((mantissa & np.uint64(0x807FFFFF)) | (binade << np.uint64(23))).astype(np.uint32)
    return np.concatenate([np.arange(65536, dtype=np.uint32) << 16, rest]).view(np.float32)


def narrowed(wide, name):
    """Its words in a type, as a GPU rounds: a NaN has all bits but the sign."""
    made = np.float32(wide).astype(TYPES[name])
    own = made.view(np.int32 if name == "f32" else np.int16).copy()
    own[np.isnan(wide)] = 0x7FFFFFFF if name == "f32" else 0x7FFF
    return own


def rounded_to(x, name):
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(TYPES[name]).astype(np.float32)


def gelu_of(operands, output):
    """That of cuBLASLt's bias, which has the output's type, or bfloat16 beside FP8; it is added to zero."""
    of_bytes = operands.startswith("e")
    with np.errstate(invalid="ignore"):
        x = rounded_to(words(900), "bf16" if of_bytes and output != "f16" else output) + np.float32(0)
    name = "gelu_float32" if operands == "f32xf32" else "gelu"
    return narrowed(fp8lab.gemm_activation(name, x), output)


def slopes(operands, output, compute):
    """(N, M) inputs, in the output's type, and M multipliers."""
    rows, columns = 4096, 32
    x = words(921)
    if output != "f32":
        x = (np.arange(SIZE, dtype=np.uint32) & 0xFFFF).astype(np.uint16).view(TYPES[output]).astype(np.float32)
    g = np.ones(rows, np.float32)
    g[3 * rows // 4 :] = drawn(920, (rows // 4,), 4.0)
    if compute == "tf32":
        word = g.view(np.uint32)
        g = ((word + 0xFFF + ((word >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.ascontiguousarray(x.reshape(rows, columns).T), rounded_to(g, operands.split("x")[0])


@pytest.mark.parametrize("name", CALLS)
def test_the_epilogue_has_an_h200s_words(name):
    function, operands, output, compute = name.split("/")
    if function == "gelu":
        own = gelu_of(operands, output)
        last = own[-4096:]
    else:
        x, g = slopes(operands, output, compute)
        with np.errstate(over="ignore"):
            own = narrowed(fp8lab.gemm_activation("dgelu", np.tile(g, (len(x), 1)), x), output)
        last = own[:, -128:]
    if f"{name}#last" in RECORDED:
        np.testing.assert_array_equal(last, RECORDED[f"{name}#last"])
    assert digest(own) == RECORDED[f"{name}#digest"]


def test_all_kernels_of_one_function_are_seen():
    """Kernels of 8, 16 and 32 bits, of both functions; those of float32 operands have a GELU of their own."""
    kernels = {(name.split("/")[0], name.split("/")[1][:4], int(RECORDED[f"{name}#kernel"][0])) for name in CALLS}
    assert {("gelu", "e4m3", 66), ("gelu", "bf16", 66), ("gelu", "f32x", 21), ("gelu", "f32x", 55)} < kernels
    assert {("dgelu", "e5m2", 66), ("dgelu", "bf16", 21), ("dgelu", "f16x", 21), ("dgelu", "f32x", 55)} < kernels
    of_bytes, of_float32 = RECORDED["gelu/e4m3xe4m3/f32/float32#digest"], RECORDED["gelu/f32xf32/f32/float32#digest"]
    x = rounded_to(words(900), "bf16") + np.float32(0)
    assert digest(narrowed(fp8lab.gemm_activation("gelu_float32", x), "f32")) not in (of_bytes, of_float32)


def test_another_gradient_is_seen():
    """The same formula with one fma more, or with CUDA's tanhf, has other words."""
    last = RECORDED["dgelu/bf16xbf16/f32/float32#last"].view(np.float32)
    x, g = slopes("bf16xbf16", "f32", "float32")
    x, g = x[:, -128:], np.tile(g[-128:], (len(x), 1))

    def fma(a, b, c):
        return (np.longdouble(a) * np.longdouble(b) + np.longdouble(c)).astype(np.float32)

    half, one, root = np.float32(0.5), np.float32(1), np.float32(0.7978845608)
    argument = (root * x) * fma(np.float32(0.044715) * x, x, one)
    for tanh, is_fused, differs in (("tanh", False, False), ("tanh", True, True), ("tanhf", False, True)):
        unit = fp8lab.special_function if tanh == "tanh" else fp8lab.device_function
        t = unit(tanh, argument)
        slope = fma(-t, t, one) * fma(np.float32(0.1070322243) * x, x, root)
        end = half * (t + one)
        own = (fma(half * x, slope, end) if is_fused else (half * x) * slope + end) * g
        assert ((own.view(np.int32) != last.view(np.int32)).mean() > 0.01) == differs
        assert differs or (own.view(np.int32) == last.view(np.int32)).all()
