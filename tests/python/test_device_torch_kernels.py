# SPDX-License-Identifier: Apache-2.0
"""What PyTorch gave on an NVIDIA H200 where Transformer Engine calls it: batched products, and compiled GELUs.

tests/vectors/device/h200_torch_kernels.npz has digests of words (PyTorch 2.11.0, CUDA 13.0, Triton 3.6): of batched
products the first 4096, of compiled functions all, or the first 8192 of a module's sizes, and gradients of biases.
"""

import math
import sys
from pathlib import Path

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from fp8lab.operators import compiled_gelu, compiled_gelu_backward, has_one_shape_sums

sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import digest, drawn, hashed, normal  # noqa: E402
from sampled import EXHAUSTIVE  # noqa: E402

RECORDED = np.load(Path(__file__).parents[1] / "vectors" / "device" / "h200_torch_kernels.npz")
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
MODELS = {"bf16": ("hopper_bf16", "bfloat16"), "f16": ("hopper_fp16", "float16")}
BATCHES = sorted({name.split("/")[2].split("#")[0] for name in RECORDED.files if name.startswith("dq/")})


def words(values):
    """Words of a result; a GPU's NaN has all bits but the sign."""
    own = values.view(np.int32 if values.dtype == np.float32 else np.int16).copy()
    own[np.isnan(values.astype(np.float32))] = 0x7FFFFFFF if values.dtype == np.float32 else 0x7FFF
    return own


def attention(name, sizes):
    """Pairs of batches whose product each matrix of attention is: scores s (times alpha), contexts c, and gradients."""
    b, sq, sk, d = sizes
    q, k, v = normal(60, (b, sq, d)), normal(61, (b, sk, d)), drawn(62, (b, sk, d))
    p, do = np.abs(drawn(63, (b, sq, sk))), normal(64, (b, sq, d))
    q, k, v, p, do = (one.astype(TYPES[name]) for one in (q, k, v, p, do))
    turned = [one.transpose(0, 2, 1) for one in (k, v, p)]
    alpha = 1 / math.sqrt(d)
    return {"s": (q, turned[0], alpha), "s2": (q, turned[0], alpha), "s1": (q, turned[0], 1.0), "c": (p, v, 1.0),
            "c2": (p, v, 1.0), "dv": (turned[2], do, 1.0), "dp": (do, turned[1], 1.0), "dq": (p, k, 1.0)}  # fmt: skip


def batched(a, b, recipe):
    """The first 4096 words: of a large product its first rows."""
    products, rows = math.ceil(4096 / (a.shape[1] * b.shape[2])), math.ceil(4096 / b.shape[2])
    made = [
        fp8lab.gemm(x, y, recipe, layout="nn") for x, y in zip(a[:products, :rows], np.ascontiguousarray(b[:products]))
    ]
    return np.concatenate([one.reshape(-1) for one in made])[:4096]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", MODELS)
def test_batched_products_are_one_sum_times_alpha(name, batch):
    model, output = MODELS[name]
    for which, (a, b, alpha) in attention(name, tuple(map(int, batch.split("x")))).items():
        own = batched(a, b, fp8lab.GemmRecipe(model, alpha=alpha, output=output))
        assert digest(words(own)) == RECORDED[f"{which}/{name}/{batch}#digest"], which


def test_another_product_is_seen():
    """Float32 sums without a tensor core, or alpha after the rounding, have other words."""
    late = fp8lab.GemmRecipe("hopper_bf16", alpha=64**-0.5, unscaled_type="bfloat16", sum_type="bfloat16")
    plain = fp8lab.GemmRecipe("cuda_cores_fma", output="bfloat16")
    for which, batch, other in (("s", "2x256x512x128", late), ("c", "1x1024x1024x64", plain)):
        a, b, _ = attention("bf16", tuple(map(int, batch.split("x"))))[which]
        own = batched(a, b, other).astype(ml_dtypes.bfloat16)
        assert digest(words(own)) != RECORDED[f"{which}/bf16/{batch}#digest"]


def all_words(name):
    """All words of a type of 16 bits, or drawn float32 ones of 40 binades; a gradient and a bias."""
    if name == "f32":
        binade = hashed(1 << 18, 71) % np.uint64(40) + np.uint64(95)
        word = (hashed(1 << 18, 70) & np.uint64(0x807FFFFF)) | (binade << np.uint64(23))
        x = word.astype(np.uint32).view(np.float32).reshape(256, 1024)
    else:
        x = np.arange(65536, dtype=np.uint16).view(TYPES[name]).reshape(256, 256)
    return x, drawn(72, x.shape, 2.0).astype(TYPES[name]), drawn(73, (x.shape[1],)).astype(TYPES[name])


@pytest.mark.parametrize("name", TYPES)
def test_compiled_gelus_of_all_words(name):
    x, grad, bias = all_words(name)
    wide = bias.astype(np.float32)
    with np.errstate(all="ignore"):
        assert digest(words(compiled_gelu(x).reshape(-1))) == RECORDED[f"gelu/{name}/all#digest"]
        assert digest(words(compiled_gelu(x, wide).reshape(-1))) == RECORDED[f"bias_gelu/{name}/all#digest"]
        assert digest(words(compiled_gelu_backward(grad, x).reshape(-1))) == RECORDED[f"dgelu/{name}/all#digest"]
        dx, sums = compiled_gelu_backward(grad, x, wide, bias_gradient=True)
        assert digest(words(dx.reshape(-1))) == RECORDED[f"bgrad_dgelu/{name}/all#digest"]
        differs = words(sums.astype(TYPES[name])) != RECORDED[f"bgrad_dgelu/{name}/all/sums"]
    # Code that is compiled for one shape alone, as here, adds float32 in an order of its own.
    assert differs.any() == (name == "f32")


@pytest.mark.parametrize("shape", ["64x512", "128x512", "128x1024", "1024x512"])
@pytest.mark.parametrize("name", ["bf16", "f32"])
def test_gradients_of_biases_are_added_in_the_compiled_kernels_order(name, shape):
    rows, columns = map(int, shape.split("x"))
    x, bias, grad = (
        normal(seed, size).astype(TYPES[name]) for seed, size in ((75, (rows, columns)), (76, (columns,)), (77, (rows, columns)))
    )  # fmt: skip
    wide = bias.astype(np.float32)
    y = compiled_gelu(x, wide, threads=2)
    dx, sums = compiled_gelu_backward(grad, x, wide, bias_gradient=True, threads=2)
    assert digest(words(y).reshape(-1)[:8192]) == RECORDED[f"bias_gelu/{name}/{shape}#digest"]
    assert digest(words(dx).reshape(-1)[:8192]) == RECORDED[f"bgrad_dgelu/{name}/{shape}#digest"]
    recorded = RECORDED[f"bgrad_dgelu/{name}/{shape}/sums"]
    np.testing.assert_array_equal(words(sums.astype(TYPES[name])), recorded)
    if name == "f32":  # another order of the sums, and another tangent
        assert (dx.sum(0, dtype=np.float32).view(np.int32) != recorded).mean() > 0.2
        assert digest(words(fp8lab.operators.activation("gelu", x + wide)).reshape(-1)[:8192]) != digest(words(y))


#: Small shapes, and one of each order in which code for one shape adds.
SHORT = {f"{name}/{shape}" for name in ("f32", "bf16") for shape in (
    "64x128", "64x512", "64x4096", "128x128", "128x512", "128x1024", "128x2048", "256x128", "512x256", "1024x128", "1024x1024",
    "2048x512", "4096x256",
)}  # fmt: skip


def test_code_for_one_shape_adds_in_an_order_of_its_own():
    """As PyTorch compiled it for 64 to 4096 rows and 128 to 4096 columns: all sums of float32 and bfloat16."""
    names, count = str(RECORDED["one_shape_names"]).split("\n"), 0
    for key, expected in zip(names, RECORDED["one_shape_digests"], strict=True):
        if not EXHAUSTIVE and key not in SHORT:
            continue
        name, shape = key.split("/")
        rows, columns = map(int, shape.split("x"))
        assert has_one_shape_sums(rows, columns)
        x, bias, grad = (
            normal(seed, size).astype(TYPES[name])
            for seed, size in ((75, (rows, columns)), (76, (columns,)), (77, (rows, columns)))
        )
        given = {"bias": bias.astype(np.float32), "bias_gradient": True, "threads": 2}
        _, sums = compiled_gelu_backward(grad, x, for_one_shape=True, **given)
        own = words(sums.astype(TYPES[name]))
        assert digest(own) == expected, key
        if f"one_shape/{key}" in RECORDED:
            np.testing.assert_array_equal(own, RECORDED[f"one_shape/{key}"])
            other = words(compiled_gelu_backward(grad, x, **given)[1].astype(TYPES[name]))
            assert name == "bf16" or (other != own).mean() > 0.1, key
        count += 1
    assert count == (len(names) if EXHAUSTIVE else len(SHORT))


def test_shapes_whose_order_is_not_known_are_refused():
    x = np.ones((64, 512), np.float32)
    for rows, columns in ((32, 512), (8192, 512), (96, 512), (64, 96), (64, 8192), (0, 0)):
        assert not has_one_shape_sums(rows, columns)
    with pytest.raises(ValueError, match="x has 32 x 512 elements: .* 64 to 4096 rows"):
        compiled_gelu_backward(x[:32], x[:32], bias_gradient=True, for_one_shape=True)
    with pytest.raises(ValueError, match="x is float16"):
        compiled_gelu_backward(x, x.astype(np.float16), bias_gradient=True, for_one_shape=True)
    with pytest.raises(ValueError, match="for_one_shape is about the sums"):
        compiled_gelu_backward(x, x, for_one_shape=True)


def test_what_does_not_fit_is_refused():
    x = np.ones((4, 8), np.float32)
    with pytest.raises(ValueError, match=r"bias must have shape \(8,\)"):
        compiled_gelu(x, np.ones(4, np.float32))
    with pytest.raises(TypeError, match="x must"):
        compiled_gelu(x.astype(np.float64))
    with pytest.raises(ValueError, match=r"grad must have shape \(4, 8\), as x"):
        compiled_gelu_backward(x[:2], x)
    with pytest.raises(ValueError, match="out must have"):
        compiled_gelu_backward(x, x, out=np.empty((4, 7), np.float32))
    same = x.copy()
    assert compiled_gelu(same, out=same) is same
    assert (same == compiled_gelu(x)).all()
    assert compiled_gelu(np.empty((0, 8), np.float32)).shape == (0, 8)
