# SPDX-License-Identifier: Apache-2.0
"""How cuBLASLt composed Transformer Engine's GEMMs on an NVIDIA H200, every recorded bit.

tests/vectors/device/h200_te_products.npz has what tests/python/te/device_words.py recorded on 2026-11-27: driver
580.159.04, CUDA 13.0, cuBLASLt 13.1, PyTorch 2.11.0, Transformer Engine 2.20.2. KIND/MxKxN/LAYOUT/OUT/EXTRA is a product
of w (N, K), x (M, K) and dy (M, N): TN is x @ w.T, NN dy @ w, NT dy.T @ x; of some the first 4096 words.
"""

import pathlib
import sys

import fp8lab
import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "te"))
from drawn_words import digest, drawn, normal  # noqa: E402

RECORDED = np.load(pathlib.Path(__file__).parents[1] / "vectors" / "device" / "h200_te_products.npz")
BFLOAT16 = ml_dtypes.bfloat16


def operands(name, dtype):
    """The layout, and the operands whose rows are multiplied."""
    sizes, layout = name.split("/")[1:3]
    m, k, n = (int(size) for size in sizes.split("x"))
    w, x = drawn(140, (n, k), 0.1).astype(dtype), normal(141, (m, k)).astype(dtype)
    dy = normal(142, (m, n), 0.01).astype(dtype)
    return layout, {"TN": (x, w), "NN": (dy, w.T), "NT": (dy.T, x.T)}[layout]


def differing(name, product):
    """How many recorded words are others than the product's."""
    got = RECORDED[name].reshape(-1)
    own = np.ascontiguousarray(product).reshape(-1)[: got.size]
    return int((own.view(got.dtype) != got).sum())


#: How the kernel that cuBLASLt took cuts K: of float32 operands it promotes every so many, or never.
TF32 = {"16x4096x64/NN": None, "16x4096x64/TN": 128, "256x1024x256/NN": None, "64x96x160/TN": 32}


@pytest.mark.parametrize("shape", TF32)
def test_float32_is_rounded_to_even_on_its_way_to_tf32(shape):
    name = f"plain/{shape}/fp32/none"
    a, b = operands(name, np.float32)[1]
    given = {"model": "hopper_tf32", "promote_k": TF32[shape]}
    assert differing(name, fp8lab.gemm(a, b, tf32_rounding="nearest_even", **given)) == 0
    assert differing(name, fp8lab.gemm(a, b, **given)) > 100  # ties away from zero


def test_promotions_of_tf32_are_cublaslts_splits_of_k():
    """h200_gemm_plans.npz: the configuration that cuBLASLt's heuristic names by TYPE/OUTPUT/COMPUTE/LAYOUT and the sizes
    m, n and k of column-major matrices, as h200_gemm_activations.npz has it: the third number splits K."""
    plans = np.load(pathlib.Path(__file__).parents[1] / "vectors" / "device" / "h200_gemm_plans.npz")
    place = {int(size): i for i, size in enumerate(plans["sizes"])}
    found = 0
    for name, promote_k in TF32.items():
        rows, depth, columns = map(int, name.split("/")[0].split("x"))
        layout = name.split("/")[1]
        m, n, k = (columns, rows, depth) if layout == "TN" else (depth, rows, columns)
        if not {m, n, k} <= set(place):
            continue
        splits = int(plans[f"float32/float32/tf32/{layout}"][place[m], place[n], place[k]][2])
        assert (k // splits if splits > 1 else None) == promote_k
        found += 1
    assert found == 3


PLANS = np.load(pathlib.Path(__file__).parents[1] / "vectors" / "device" / "h200_gemm_plans.npz")


def test_splits_of_tf32_are_those_that_cublaslts_heuristic_names():
    """Equal ranges of 32 elements or more by kernel 21, and no split by kernels 21 and 43; the rest is not known."""
    table, sizes = pytest.importorskip("fp8lab.te._tf32_splits"), PLANS["sizes"].tolist()
    assert table.SIZES == tuple(sizes)
    k, known = np.array(sizes), 0
    for layout in ("TN", "NN", "NT"):
        plans = PLANS[f"float32/float32/tf32/{layout}"].astype(np.int64)
        kernel, splits, reduction = plans[..., 0], plans[..., 2], plans[..., 3]
        is_equal = (kernel == 21) & (splits > 1) & (reduction == 2) & (k % (32 * np.maximum(splits, 1)) == 0)
        is_whole = np.isin(kernel, (21, 43)) & (splits == 1)
        expected = np.where(is_equal | is_whole, splits, 0)
        own = [[[table.split_of_k(layout, m, n, depth) for depth in sizes] for n in sizes] for m in sizes]
        np.testing.assert_array_equal(own, expected)
        known += int((expected > 0).sum())
    assert table.KNOWN == (known, 3 * 4096)
    for outside in (("TT", 64, 64, 64), ("TN", 96, 64, 256), ("TN", 64, 64, 1280), ("NN", 0, 64, 64)):
        assert table.split_of_k(*outside) == 0
    row = pytest.importorskip("fp8lab.te").exactness()[-1]
    assert (row.function, row.name, row.exact) == ("generic_gemm", "float32", False)
    assert f"known of {known:,} of 12,288 shapes" in row.why


def test_products_of_those_splits_are_an_h200s():
    """``tf32_names`` and ``tf32_digests`` of the same file: the first 2048 elements of the column-major products of drawn
    matrices of (m, k) and (n, k), by LAYOUT/MxNxK; without splits 24 are others."""
    split_of_k = pytest.importorskip("fp8lab.te._tf32_splits").split_of_k
    counts = {True: 0, False: 0}
    for name, expected in zip(str(PLANS["tf32_names"]).split("\n"), PLANS["tf32_digests"], strict=True):
        layout, shape = name.split("/")
        m, n, k = map(int, shape.split("x"))
        splits = split_of_k(layout, m, n, k)
        if not splits:
            continue
        a, b = drawn(940, (m, k)), normal(941, (n, k))[: -(-2048 // m)]
        given = {"model": "hopper_tf32", "tf32_rounding": "nearest_even", "threads": 2}
        own = fp8lab.gemm(b, a, promote_k=k // splits if splits > 1 else None, **given)
        assert digest(own.reshape(-1)[:2048].view(np.int32)) == expected, name
        whole = fp8lab.gemm(b, a, **given)
        assert (digest(whole.reshape(-1)[:2048].view(np.int32)) != expected) == (splits > 1), name
        counts[splits > 1] += 1
    assert counts == {True: 24, False: 23}


@pytest.mark.parametrize("shape", ["64x96x160", "16x4096x64"])
def test_a_bfloat16_sum_is_rounded_before_it_is_added(shape):
    name = f"plain/{shape}/NT/bf16/accumulate"
    _, (a, b) = operands(name, BFLOAT16)
    c = drawn(144, (a.shape[0], b.shape[0])).astype(BFLOAT16).astype(np.float32)
    added = fp8lab.GemmRecipe(model="hopper_bf16", addition="after_rounding", output="bfloat16")
    assert differing(name, fp8lab.gemm(a, b, added, c=c)) == 0
    assert differing(name, fp8lab.gemm(a, b, fp8lab.GemmRecipe(model="hopper_bf16", output="bfloat16"), c=c)) > 300


def blocks(x, rows):
    """In E4M3 with scales that are any float32, of 1 x 128 or 128 x 128 elements."""
    return fp8lab.quantize(np.ascontiguousarray(x), fp8lab.Block("e4m3", rows=rows, force_pow_2_scales=False))


@pytest.mark.parametrize("shape", ["16x4096x64", "64x96x160"])
@pytest.mark.parametrize("layout", ["TN", "NN", "NT"])
def test_scales_of_blocks_multiply_first_where_one_is_of_a_square(shape, layout):
    name = f"block/{shape}/{layout}/fp32/none"
    _, (a, b) = operands(name, BFLOAT16)
    has_square = layout != "NT"
    orders = ["scales_first", "accumulator_first"] if has_square else ["accumulator_first", "scales_first"]
    quantized = blocks(a, 1), blocks(b, 128 if has_square else 1)
    products = [fp8lab.gemm(*quantized, model="hopper_wgmma_fp8", promote_k=128, scale_order=one) for one in orders]
    assert differing(name, products[0]) == 0
    assert differing(name, products[1]) > 100
    named = "te_block_hopper_fprop" if has_square else "te_block_hopper_wgrad"
    (recipe,) = (one.recipe for one in fp8lab.gemm_recipes() if one.name == named)
    assert recipe.scale_order == orders[0]


#: The GELU that cuBLASLt fuses: a digest of each product in bfloat16, and of some the first words.
FUSED_GELU = np.load(pathlib.Path(__file__).parents[1] / "vectors" / "device" / "h200_te_gelu.npz")


def low_precision(x, kind):
    """Codes of E4M3 and what their products are multiplied by; bfloat16 as it is."""
    if kind == "plain":
        return x, np.float32(1)
    scale = np.float32(3.7) if kind == "delayed" else np.float32(448) / np.abs(x.astype(np.float32)).max()
    codes = np.clip(x.astype(np.float32) * scale, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return codes, np.float32(1) / scale


def fused_gelu(name, **changed):
    """The product's GELU, and what differs of its digest and of its first words."""
    kind, sizes, accumulation = name.split("/")
    _, (x, w) = operands(f"{kind}/{sizes}/TN", BFLOAT16)
    (a, of_a), (b, of_b) = low_precision(x, kind), low_precision(w, kind)
    model = "hopper_bf16" if kind == "plain" else "hopper_wgmma_fp8"
    promote_k = 128 if kind != "plain" and accumulation == "promoted" else 0
    recipe = fp8lab.GemmRecipe(model, promote_k=promote_k, alpha=of_b * of_a, **{"activation": "gelu", **changed})
    return fp8lab.gemm(a, b, recipe)


@pytest.mark.parametrize("name", [name.removesuffix("#digest") for name in FUSED_GELU.files if "#digest" in name])
def test_a_gelu_in_the_epilogue_is_cublaslts(name):
    own = fused_gelu(name, output="bfloat16")
    if f"{name}#first" in FUSED_GELU:
        first = FUSED_GELU[f"{name}#first"]
        np.testing.assert_array_equal(own.view(np.int16).reshape(-1)[: first.size], first)
    assert digest(own) == FUSED_GELU[f"{name}#digest"]


def test_another_gelu_is_seen():
    """That of Transformer Engine's kernels has other words, and so has the same one whose sum is not fused."""
    name = "current/128x256x512/fast"
    wide = fused_gelu(name, activation="none")
    own = fp8lab.gemm_activation("gelu", wide)
    np.testing.assert_array_equal(
        own.astype(BFLOAT16).view(np.int16), fused_gelu(name, output="bfloat16").view(np.int16)
    )
    square = np.float64(wide) * np.float32(0.035677426)
    slope = (square.astype(np.float32) * np.float64(wide) + np.float32(0.7978846)).astype(np.float32)
    tangent = fp8lab.special_function("tanh", wide * slope)
    half = wide / 2
    np.testing.assert_array_equal((np.float64(half) * tangent + half).astype(np.float32), own)
    for other in (half * (1 + tangent), fp8lab.operators.activation("gelu", wide, functions="hopper")):
        assert (other.astype(BFLOAT16).view(np.int16) != own.astype(BFLOAT16).view(np.int16)).mean() > 0.01
        assert digest(other.astype(BFLOAT16)) != FUSED_GELU[f"{name}#digest"]
