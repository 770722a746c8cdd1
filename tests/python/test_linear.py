# SPDX-License-Identifier: Apache-2.0
"""The passes of a Linear layer: what quantize and gemm give when they are called one by one, and what is refused."""

import dataclasses
import pathlib

import fp8lab
import numpy as np
import pytest
from conftest import splitmix

NAMES = [one.name for one in fp8lab.linear_recipes()]


def values(rows, columns, seed, exponent=0):
    words = splitmix(seed, rows * columns)
    numbers = ((words % 4096).astype(np.float32) - 2048) * np.exp2((words >> 40) % 7).astype(np.float32)
    return np.ldexp(numbers, exponent - 16).reshape(rows, columns)


X, W, DY = values(128, 256, 1), values(384, 256, 2), values(128, 384, 3, -9)
BIAS = np.linspace(-1, 1, 384, dtype=np.float32) / 3
RANDOM = (splitmix(4, DY.size) % 256).astype(np.uint8)
RECIPES = {one.name: one.recipe for one in fp8lab.linear_recipes()}


def random_bits(name):
    return RANDOM if name == "te_nvfp4_blackwell" else None


def composed(gemm, a, b, directions, bits=None, **options):
    """quantize, then gemm."""
    if isinstance(gemm.a, str):
        return composed_unquantized(gemm, a, b, directions, **options)
    left = fp8lab.quantize(a, gemm.a, direction=directions[0], random_bits=bits)
    right = fp8lab.quantize(b, gemm.b, direction=directions[1])
    return product(gemm, left, right, **options)


def composed_unquantized(gemm, a, b, directions, **options):
    import ml_dtypes

    dtypes = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
    left, right = a.astype(dtypes[gemm.a]), b.astype(dtypes[gemm.b])
    sides = [x if way == "rowwise" else np.ascontiguousarray(x.T) for x, way in zip((left, right), directions)]
    return product(gemm, *sides, **options)


def product(gemm, a, b, **options):
    return fp8lab.gemm(
        a,
        b,
        model=gemm.model,
        promote_k=gemm.promote_k or None,
        scale_order=gemm.scale_order,
        out_dtype=gemm.output,
        **options,
    )


def assert_same(actual, expected):
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_passes_are_quantize_and_gemm(name):
    pytest.importorskip("ml_dtypes")
    recipe = RECIPES[name]
    bits = random_bits(name)
    assert_same(fp8lab.linear(X, W, recipe=name), composed(recipe.fprop, X, W, ("rowwise", "rowwise")))
    dx = fp8lab.linear_dgrad(DY, W, recipe=name, random_bits=bits, threads=2)
    assert_same(dx, composed(recipe.dgrad, DY, W, ("rowwise", "columnwise"), bits))
    dw = fp8lab.linear_wgrad(DY, X, recipe=recipe, random_bits=bits)
    assert_same(dw, composed(recipe.wgrad, DY, X, ("columnwise", "columnwise"), bits))
    main_grad = np.full(W.shape, 1 / 3, np.float32)
    summed = composed(recipe.wgrad, DY, X, ("columnwise", "columnwise"), bits, c=main_grad.copy())
    assert fp8lab.linear_wgrad(DY, X, recipe=recipe, random_bits=bits, main_grad=main_grad) is main_grad
    assert_same(main_grad, summed)


@pytest.mark.parametrize("name", NAMES)
def test_a_bias_is_rounded_to_its_type(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    recipe = RECIPES[name]
    for output in ("float32", "float16", "bfloat16"):
        fprop = dataclasses.replace(recipe.fprop, output=output)
        changed = dataclasses.replace(recipe, fprop=fprop)
        quantized = not isinstance(fprop.a, str)
        dtype = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[output]
        rounded = BIAS.astype(ml_dtypes.bfloat16 if quantized and output == "float32" else dtype)
        assert fprop.bias_format == rounded.dtype.name
        expected = composed(fprop, X, W, ("rowwise", "rowwise"), bias=rounded.astype(np.float32))
        for bias in (BIAS, rounded):
            assert_same(fp8lab.linear(X, W, bias, recipe=changed), expected)


def test_a_tensor_under_delayed_scaling_is_a_quantized_with_the_scale_of_its_history():
    pytest.importorskip("ml_dtypes")
    history = fp8lab.AmaxHistory(fp8lab.Delayed())
    history.scale = 3.5
    w, wt = fp8lab.quantize_both(W, history)
    gemm = dataclasses.replace(RECIPES["te_delayed_hopper"].fprop, b=fp8lab.GivenScale(scale=3.5))
    assert_same(fp8lab.linear(X, w, recipe="te_delayed_hopper"), composed(gemm, X, W, ("rowwise", "rowwise")))
    history.update_scale()
    dgrad = dataclasses.replace(RECIPES["te_delayed_hopper"].dgrad, b=fp8lab.GivenScale(scale=3.5))
    assert_same(
        fp8lab.linear_dgrad(DY, wt, recipe="te_delayed_hopper"), composed(dgrad, DY, W, ("rowwise", "columnwise"))
    )


def test_override_linear_precision():
    mixed = fp8lab.override_linear_precision("te_delayed_hopper", "tf32_hopper", fprop=True, wgrad=True)
    assert mixed.dgrad == RECIPES["te_delayed_hopper"].dgrad
    assert (mixed.fprop.model.name, mixed.fprop.output, mixed.wgrad.a) == ("hopper_tf32", "bfloat16", "float32")


def with_fp8_output(forward="e4m3", backward="e5m2"):
    recipe = RECIPES["te_delayed_hopper"]
    fprop, dgrad = dataclasses.replace(recipe.fprop, output=forward), dataclasses.replace(recipe.dgrad, output=backward)
    return dataclasses.replace(recipe, fprop=fprop, dgrad=dgrad)


@pytest.mark.parametrize("output", ["e4m3", "e5m2"])
def test_an_fp8_output_is_the_cast_of_the_scaled_float32_result(output):
    recipe = with_fp8_output(output, output)
    floats = dataclasses.replace(
        recipe,
        fprop=dataclasses.replace(recipe.fprop, output="float32"),
        dgrad=dataclasses.replace(recipe.dgrad, output="float32"),
    )
    for scale in (2.0**-9, 1.7):
        for made, result in (
            (fp8lab.linear(X, W, BIAS, recipe=recipe, output_scale=scale), fp8lab.linear(X, W, BIAS, recipe=floats)),
            (fp8lab.linear_dgrad(DY, W, recipe=recipe, output_scale=scale), fp8lab.linear_dgrad(DY, W, recipe=floats)),
        ):
            assert_same(made.codes, fp8lab.encode(result * np.float32(scale), output))
            assert (made.format, made.shape, made.recipe) == (output, result.shape, fp8lab.GivenScale(output, scale))
            assert made.amax == np.abs(result).max() and made.scale_inv[0, 0] == np.float32(1) / np.float32(scale)
    assert fp8lab.linear(X, W, recipe=recipe).recipe == fp8lab.GivenScale(output)


def test_an_fp8_output_of_a_history_takes_its_scale_and_records_its_amax():
    recipe = with_fp8_output()
    history, gradients = fp8lab.AmaxHistory(fp8lab.Delayed()), fp8lab.AmaxHistory(fp8lab.Delayed(), backward=True)
    history.scale = gradients.scale = 0.5
    y = fp8lab.linear(X, W, recipe=recipe, output_scale=history)
    dx = fp8lab.linear_dgrad(DY, W, recipe=recipe, output_scale=gradients)
    assert y.codes.tobytes() == fp8lab.linear(X, W, recipe=recipe, output_scale=0.5).codes.tobytes()
    assert (history.amaxes[0], gradients.amaxes[0]) == (y.amax, dx.amax)
    history.update_scale()
    assert history.scale == np.float32(448) / np.float32(y.amax)
    assert fp8lab.linear(y, np.ascontiguousarray(W[:, :1].repeat(384, 1)), recipe=recipe).shape == (128, 384)
    for wrong in (gradients, -1.0, 0.0, float("nan")):
        with pytest.raises(ValueError, match="output_scale"):
            fp8lab.linear(X, W, recipe=recipe, output_scale=wrong)


def short_wgrad():
    return dataclasses.replace(RECIPES["exact"], wgrad=fp8lab.LinearGemm("exact", output="float16"))


def mixed_operands():
    gemm = fp8lab.LinearGemm("exact")
    return fp8lab.LinearRecipe(gemm, fp8lab.LinearGemm("exact", "te_mxfp8"), gemm)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fp8lab.linear(X, W[:, :128], recipe="exact"), ValueError, "fprop: x has 256 columns and w has 128 columns"),
        (lambda: fp8lab.linear(X[:, :48], W[:, :48], recipe="te_mxfp8_blackwell"), ValueError, r"fprop: x: in \(columns\) must be a multiple of 32"),
        (lambda: fp8lab.linear(X[0], W, recipe="exact"), ValueError, "x must have two dimensions"),
        (lambda: fp8lab.linear(X.astype(np.float64), W, recipe="exact"), TypeError, "x must be float32, float16 or bfloat16"),
        (lambda: fp8lab.linear(X, W.astype(np.int32), recipe="exact"), TypeError, "w must be float32, float16 or bfloat16, not int32$"),
        (lambda: fp8lab.linear(X, W, BIAS.astype(np.int32), recipe="exact"), TypeError, "bias must be float32, float16 or bfloat16, not int32$"),
        (lambda: fp8lab.linear(X, W, BIAS[1:], recipe="exact"), ValueError, r"bias must have shape \(384,\)"),
        (lambda: fp8lab.linear(X, W, recipe="te_mxfp8"), ValueError, "te_mxfp8_blackwell"),
        (lambda: fp8lab.linear(X, W, recipe=3), TypeError, "recipe must be a name"),
        (lambda: fp8lab.linear_wgrad(DY, X, recipe="exact", main_grad=X), ValueError, "main_grad must have shape"),
        (lambda: fp8lab.linear_wgrad(DY, X, recipe=short_wgrad(), main_grad=W.copy()), ValueError, "main_grad goes with a recipe"),
        (lambda: fp8lab.linear_dgrad(DY, W, recipe="exact", random_bits=RANDOM), ValueError, "dgrad: random bits are for a dy"),
        (lambda: fp8lab.linear(X, fp8lab.quantize(W, "te_mxfp8"), recipe="exact"), ValueError, "fprop: w: must not be quantized"),
        (lambda: fp8lab.LinearGemm("exact", "e4m3"), ValueError, "a"),
        (lambda: fp8lab.LinearGemm("exact", 3), TypeError, "a must be a recipe"),
        (lambda: fp8lab.LinearGemm("exact", output="e3m2"), ValueError, "output"),
        (lambda: dataclasses.replace(RECIPES["exact"], fprop=fp8lab.LinearGemm("exact", output="e4m3")), ValueError, "fprop: output must not be e4m3: GEMMs write FP8"),
        (lambda: fp8lab.linear(X, W, recipe="exact", output_scale=2.0), ValueError, "output_scale is for a recipe whose fprop has the output e4m3"),
        (lambda: fp8lab.LinearRecipe(1, 2, 3), TypeError, "fprop must be a LinearGemm"),
        (mixed_operands, ValueError, "dgrad: a and b must both be recipes or both be formats"),
    ],
)  # fmt: skip
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_each_explains_itself():
    for one in fp8lab.linear_recipes():
        assert str(one).startswith(f"{one.name}: fprop: x ")


def test_the_page_tells_of_every_linear_recipe():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "linear.md").read_text()
    table = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert [name.strip(" `") for cell in table for name in cell.split(",")] == NAMES
