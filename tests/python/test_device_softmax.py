# SPDX-License-Identifier: Apache-2.0
"""Softmaxes with ``functions="hopper"``, beside the kernels played lane by lane, and beside an H200's words.

The kernels are those of Transformer Engine 2.20, common/fused_softmax: 32 lanes or fewer hold a row in registers, four
neighbours at a time or one, add what they hold, and exchange their sums with the partner at half the warp, a quarter and
so on. What nvcc 13.0 makes of a step for sm_90 with --use_fast_math: FADD, FMUL and FFMA that flush subnormal numbers,
MUFU.EX2 of a product with log2(e), and a product with MUFU.RCP for the division.
"""

import sys
from pathlib import Path

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from sampled import sampled

VECTORS = Path(__file__).parents[1] / "vectors" / "device" / "h200_te_softmax.npz"
sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import digest, drawn, hashed  # noqa: E402

F = np.float32


def flushed(x):
    return np.where(np.abs(x) < F(2**-126), np.copysign(F(0), x), x).astype(F)


def add(a, b):
    return flushed(flushed(a) + flushed(b))


def times(a, b):
    return flushed(flushed(a) * flushed(b))


def unit(name, x):
    return fp8lab.special_function(name, np.ascontiguousarray(x, F), ftz=True)


class Warp:
    """The columns of a row by lane and register."""

    def __init__(self, keys):
        power = 1 << (keys - 1).bit_length()
        self.lanes = min(power, 32)
        registers = power // self.lanes
        width = 1 if registers < 4 else 4
        lane, register = np.meshgrid(np.arange(self.lanes), np.arange(registers), indexing="ij")
        self.columns = width * lane + register // width * width * self.lanes + register % width

    def held(self, row, keys, behind):
        """What the registers hold of a row; ``behind`` beyond its keys."""
        return np.where(self.columns < keys, row[np.minimum(self.columns, keys - 1)], F(behind)).astype(F)

    def total(self, registers, starts_at_zero):
        one = add(F(0), registers[:, 0]) if starts_at_zero else registers[:, 0]
        for next_one in registers[:, 1:].T:
            one = add(one, next_one)
        step = self.lanes // 2
        while step:
            one = add(one, one[np.arange(self.lanes) ^ step])
            step //= 2
        assert (one.view(np.uint32) == one.view(np.uint32)[0]).all()
        return one[0]

    def row(self, registers, keys):
        out = np.zeros(keys, F)
        is_key = self.columns < keys
        out[self.columns[is_key]] = registers[is_key]
        return out


def forward(x, scale, kind, mask, rows):
    keys = x.shape[-1]
    warp = Warp(keys)
    out = np.zeros((rows, keys), F)
    for i in range(rows):
        query = i % x.shape[-2]
        seen = {"upper_triangular": query + 1, "aligned_causal": query + keys - x.shape[-2] + 1}.get(kind, keys)
        scores = times(x.reshape(rows, keys)[i].astype(F), F(x.dtype.type(scale)))
        if mask is not None:
            scores[mask.reshape(-1, keys)[i % mask.shape[-2]] == 1] = -10000
        held = warp.held(scores, max(seen, 0), -10000 if kind == "aligned_causal" else -np.inf)
        most = held.max()
        e = unit("ex2", times(add(held, -most), F(1.44269504)))
        kept = F(0) if mask is not None and most == -10000 else F(1)
        quotient = times(times(e, kept), unit("rcp", np.full(1, warp.total(e, True)))[0])
        out[i, : max(seen, 0)] = warp.row(quotient, keys)[: max(seen, 0)]
    return out.astype(x.dtype).reshape(x.shape)


def backward(grad, y, scale, kind, rows):
    keys = y.shape[-1]
    warp = Warp(keys)
    out = np.zeros((rows, keys), F)
    for i in range(rows):
        query = i % y.shape[-2]
        seen = {"upper_triangular": query + 1, "aligned_causal": query + keys - y.shape[-2] + 1}.get(kind, keys)
        of_y = warp.held(flushed(y.reshape(rows, keys)[i].astype(F)), max(seen, 0), 0)
        products = times(warp.held(grad.reshape(rows, keys)[i].astype(F), max(seen, 0), 0), of_y)
        total = warp.total(products, False)
        inner = (np.float64(-total) * of_y + products.astype(np.float64)).astype(F)  # the product is exact in float64
        out[i] = warp.row(times(flushed(inner), F(scale)), keys)
    return out.astype(y.dtype).reshape(y.shape)


def same(own, expected):
    np.testing.assert_array_equal(own.view(np.uint16), expected.view(np.uint16))


SIZES = [
    (kind, keys)
    for kind in ("none", "given", "aligned_causal")
    for keys in (1, 3, 16, 48, 64, 100, 128, 192, 512, 1024)
]


@pytest.mark.parametrize(
    ("kind", "keys"), [*SIZES, ("upper_triangular", 1), ("upper_triangular", 3), ("upper_triangular", 40)]
)
def test_a_warp_gives_these_words(kind, keys):
    dtype = [np.float16, ml_dtypes.bfloat16][keys % 3 != 1]
    draws = np.random.default_rng(keys)
    queries = keys if kind == "upper_triangular" else 4
    shape = (1, 2, queries, keys)
    x = (3 * draws.standard_normal(shape)).astype(dtype)
    mask = None
    if kind == "given":
        mask = (draws.random((1, 1, queries, keys)) < 0.3).astype(np.uint8)
        mask[0, 0, -1] = 1
    causal = "none" if kind == "given" else kind
    own = fp8lab.operators.softmax(x, scale=0.37, mask=mask, causal=causal, functions="hopper")
    same(own, forward(x, 0.37, kind, mask, 2 * queries))
    grad = draws.standard_normal(shape).astype(dtype)
    dx = fp8lab.operators.softmax_backward(grad, own, scale=0.37, causal=causal, functions="hopper")
    same(dx, backward(grad, own, 0.37, kind, 2 * queries))


def test_the_order_and_the_units_show():
    """Words of float32 results: another order of sums, or functions that are rounded correctly, gives others."""
    x = (3 * np.random.default_rng(7).standard_normal((64, 512))).astype(ml_dtypes.bfloat16)
    own = fp8lab.operators.softmax(x, functions="hopper", out_dtype="float32")
    assert (own != fp8lab.operators.softmax(x, out_dtype="float32")).mean() > 0.2
    assert abs(own - fp8lab.operators.softmax(x, out_dtype="float32")).max() < 1e-6
    same(own.astype(ml_dtypes.bfloat16), forward(x, 1, "none", None, 64))
    others = fp8lab.operators.softmax(np.ascontiguousarray(x[:, ::-1]), functions="hopper", out_dtype="float32")[
        :, ::-1
    ]
    assert (own != others).any()


def test_what_the_kernels_do_not_take_is_refused():
    with pytest.raises(ValueError, match="softmaxes of float16 and bfloat16, not of float32"):
        fp8lab.operators.softmax(np.ones((2, 4), F), functions="hopper")
    wide = np.ones((1, 16385), np.float16)
    with pytest.raises(ValueError, match="at most 16384 keys, not 16385"):
        fp8lab.operators.softmax_backward(wide, wide, functions="hopper")


#: Of each kind: its arguments.
RECORDED = {
    "plain": {"scale": 0.125},
    "masked": {"scale": 0.3},
    "aligned": {"scale": 0.25, "causal": "aligned_causal"},
    "causal": {"scale": 0.5, "causal": "upper_triangular"},
}


def softmax_and_gradient(kind, dtype, keys, functions):
    """Of the operands that device_words.py makes."""
    shape, seeds, size = ((4, keys, keys), (53, 54), 6.0) if kind == "causal" else ((2, 2, 64, keys), (50, 51), 8.0)
    given = {**RECORDED[kind], "functions": functions}
    x, dy = drawn(seeds[0], shape, size).astype(dtype), drawn(seeds[1], shape).astype(dtype)
    mask = (hashed(2 * 64 * keys, 52) % np.uint64(3) == 0).reshape(2, 1, 64, keys) if kind == "masked" else None
    y = fp8lab.operators.softmax(x, mask=mask, **given)
    return y, fp8lab.operators.softmax_backward(dy, y, **given)


def test_every_word_is_an_h200s():
    recorded = np.load(VECTORS)
    calls = sorted({key.split(".")[0] for key in recorded.files})
    assert len(calls) == 68
    for call in sampled(calls, 9):
        kind, type_name, keys = call.split("/")
        dtype = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}[type_name]
        for i, one in enumerate(softmax_and_gradient(kind, dtype, int(keys), "hopper")):
            assert digest(one.view(np.int16)) == recorded[f"{call}.{i}"], (call, i)


def test_functions_that_are_rounded_correctly_give_other_words_in_some_tensors():
    recorded, equal = np.load(VECTORS), []
    for keys in (16, 64, 256):
        made = softmax_and_gradient("plain", np.float16, keys, "correctly_rounded")
        equal += [digest(one.view(np.int16)) == recorded[f"plain/fp16/{keys}.{i}"] for i, one in enumerate(made)]
    assert not all(equal)
