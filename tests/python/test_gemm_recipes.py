# SPDX-License-Identifier: Apache-2.0
"""How a GEMM is composed, as a value: it is made, changed, stored, run, found and trained with."""

import json
import pickle
from contextlib import nullcontext

import fp8lab
import numpy as np
import pytest

RNG = np.random.default_rng(1)
A, B = (fp8lab.encode(RNG.normal(0.3, 1, (n, 256)).astype(np.float32), "e4m3") for n in (24, 20))
HOPPER = "hopper_wgmma_fp8"
OWN = fp8lab.GemmRecipe(
    fp8lab.model_with(HOPPER, fraction_bits=20), k_order=(2, 32, 256), range_k=128, order="descending",
    partial_type="bfloat16", output=fp8lab.Format(3, 2, 3, specials="none", name="mine"),
    cast=fp8lab.Profile(name="own", rounding="toward_zero"),
)  # fmt: skip
NAMED = {one.name: one for one in fp8lab.gemm_recipes()}


@pytest.mark.parametrize("recipe", [OWN, *(one.recipe for one in NAMED.values())], ids=repr)
def test_a_recipe_comes_back_from_json_and_pickle_and_from_its_repr(recipe):
    text = recipe.to_json()
    assert isinstance(json.loads(text), dict)
    for same in (fp8lab.GemmRecipe.from_json(text), pickle.loads(pickle.dumps(recipe))):
        assert same == recipe and hash(same) == hash(recipe) and (str(same), repr(same)) == (str(recipe), repr(recipe))
    if recipe != OWN:
        assert eval(repr(recipe), {"GemmRecipe": fp8lab.GemmRecipe}) == recipe


def test_named_ones_have_sources_and_words():
    assert {"deepgemm_1d2d_hopper", "te_hopper_fprop", "te_hopper_wgrad"} <= NAMED.keys()
    for one in NAMED.values():
        assert one.source and str(one) == f"{one.name}: {one.recipe} [{one.source}]"
    assert str(NAMED["te_hopper_dgrad"].recipe) == "hopper_wgmma_fp8, promoted every 128, to bfloat16"
    layers = {one.name: one.recipe for one in fp8lab.linear_recipes()}
    assert layers["te_current_scaling_hopper"].wgrad.recipe == NAMED["te_hopper_wgrad"].recipe
    assert layers["deepseek_v3_hopper"].fprop.recipe == NAMED["deepgemm_1d2d_hopper"].recipe


def test_keywords_make_a_recipe_and_change_one():
    recipe = fp8lab.GemmRecipe(HOPPER, promote_k=128)
    out = fp8lab.gemm(A, B, recipe)
    for same in (
        fp8lab.gemm(A, B, model=HOPPER, promote_k=128),
        fp8lab.gemm(A, B, HOPPER, promote_k=128),
        fp8lab.gemm(A, B, "te_hopper_wgrad"),
        fp8lab.gemm(A, B, NAMED["te_hopper_wgrad"], model=fp8lab.model_with(HOPPER)),
        fp8lab.gemm(A, B, "te_hopper_dgrad", out_dtype="float32"),
    ):
        assert np.array_equal(same, out)
    half = fp8lab.gemm(A, B, recipe, out_dtype="float16", out_profile="ieee")
    assert np.array_equal(half, out.astype(np.float16))
    ranges = fp8lab.gemm(A, B, fp8lab.GemmRecipe(HOPPER, ranges=2))
    assert np.array_equal(ranges, fp8lab.gemm(A, B, model=HOPPER, split_k=[128, 128]))
    parts = [fp8lab.gemm(*(np.ascontiguousarray(x[:, k : k + 64]) for x in (A, B)), HOPPER) for k in range(0, 256, 64)]
    pairwise = fp8lab.gemm(A, B, fp8lab.GemmRecipe(HOPPER, range_k=64, order="pairwise"))
    assert fp8lab.GemmRecipe(HOPPER, range_k=64, order="pairwise").slow_because == "order is pairwise"
    assert fp8lab.GemmRecipe(HOPPER, range_k=64).slow_because == ""
    assert np.array_equal(pairwise, (parts[0] + parts[1]) + (parts[2] + parts[3]))
    assert np.array_equal(
        fp8lab.gemm(A, B, fp8lab.GemmRecipe(HOPPER, activation="relu")), np.maximum(fp8lab.gemm(A, B, HOPPER), 0)
    )


def test_what_is_found_runs_in_a_product_in_a_layer_and_in_training():
    bias = RNG.normal(0, 10, 20).astype(np.float32)
    bare = fp8lab.gemm(A, B, "te_hopper_wgrad") * (np.float32(0.37) * np.float32(1.9))
    out = bare + bias
    found = fp8lab.diagnose_gemm(A, B, out, scale_a=0.37, scale_b=1.9, bias=bias, expected="te_hopper_wgrad")
    first = found.explanations[0]
    assert found.correct and first.departures == (), found
    assert np.array_equal(first.output(A, B, scale_a=0.37, scale_b=1.9, bias=bias), out)
    assert np.array_equal(fp8lab.gemm(A, B, first.recipe, scale_a=0.37, scale_b=1.9, bias=bias), out)
    wrong = fp8lab.diagnose_gemm(A, B, bare, scale_a=0.37, scale_b=1.9, bias=bias)
    assert [one.name for one in wrong.explanations[0].departures] == ["bias_missing"], wrong
    assert wrong.explanations[0].departures[0] in fp8lab.gemm_departures()
    assert np.array_equal(wrong.explanations[0].output(A, B, scale_a=0.37, scale_b=1.9, bias=bias), bare)
    gemms = [
        fp8lab.LinearGemm(first.recipe, *["te_current_scaling"] * 2, output=dtype) for dtype in ("bfloat16", "float32")
    ]
    layer = fp8lab.LinearRecipe(gemms[0], gemms[0], gemms[1])
    x, w = RNG.normal(0, 1, (16, 32)).astype(np.float32), RNG.normal(0, 1, (48, 32)).astype(np.float32)
    qx, qw = fp8lab.quantize(x, "te_current_scaling"), fp8lab.quantize(w, "te_current_scaling")
    by_gemm = fp8lab.gemm(qx, qw, first.recipe, out_dtype="bfloat16")
    assert fp8lab.linear(x, w, recipe=layer).tobytes() == by_gemm.tobytes()
    document = fp8lab.experiments.train(
        recipes={"found": layer}, steps=2, sizes=[64, 32, 32], batch=32, error_steps=[2]
    )
    assert np.isfinite(np.array(document.tables["losses"]["found"], float)).all()


def test_the_command_expects_a_recipe_by_its_name_a_record_or_a_model(tmp_path):
    scales = [np.float32([[0.37, 3.1]] * len(x)) for x in (A, B[:1])]
    out = fp8lab.gemm(A, B, "deepgemm_1d1d_hopper", scale_a=scales[0], scale_b=scales[1])
    given = {"a": A, "b": B, "product": out, "scale_a": scales[0], "scale_b": scales[1]}
    for name, array in given.items():
        np.save(tmp_path / f"{name}.npy", array)
    paths = {name: tmp_path / f"{name}.npy" for name in given}
    recipe = NAMED["deepgemm_1d1d_hopper"]
    for expected, name in (
        (recipe.name, recipe.name),
        (recipe, recipe.name),
        (recipe.recipe, str(recipe.recipe)),
        (fp8lab.model_with(HOPPER), HOPPER),
    ):
        found = fp8lab.experiments.doctor_gemm(**paths, expected=expected)
        assert "Correct: all 480 elements" in str(found) and found.arguments["expected"] == name, found
    for expected in ("deepgemm_1d2d_hopper", fp8lab.GemmRecipe(HOPPER, scale_order="b_first")):
        with pytest.raises(ValueError, match="output is bfloat16") if isinstance(expected, str) else nullcontext():
            assert "Not hopper_wgmma_fp8" in str(fp8lab.experiments.doctor_gemm(**paths, expected=expected))
    with pytest.raises(TypeError, match="expected must be a GemmRecipe"):
        fp8lab.experiments.doctor_gemm(**paths, expected=3)


def test_what_is_no_recipe_is_refused_by_name():
    for make, error, message in (
        (
            lambda: fp8lab.GemmRecipe("ada_mma_fp8", activation="gelu"),
            ValueError,
            "activation gelu is known of Hopper's cuBLASLt alone, whose models begin with hopper_ or cuda_cores, not of ada_mma_fp8",
        ),
        (lambda: fp8lab.gemm_activation("dgelu", A), TypeError, "x must"),
        (lambda: fp8lab.gemm_activation("dgelu", np.float32([1])), ValueError, "activation_input must have 1 elements"),
        (
            lambda: fp8lab.gemm_activation("dgelu", np.float32([1]), np.float32([1, 2])),
            ValueError,
            r"activation_input must have shape \(1,\)",
        ),
        (
            lambda: fp8lab.gemm_activation("relu", np.float32([1]), np.float32([1])),
            ValueError,
            "activation_input goes with dgelu, not with relu",
        ),
        (lambda: fp8lab.gemm_activation("silu", np.float32([1])), ValueError, "'silu'; known: none, relu, gelu, "),
        (
            lambda: fp8lab.gemm_activation("gelu", np.ones(3, np.float32), out=np.empty(2, np.float32)),
            ValueError,
            "out must have",
        ),
        (lambda: fp8lab.GemmRecipe(HOPPER, activation="gelu_float32"), ValueError, "it is gelu"),
        (lambda: fp8lab.GemmRecipe("hopper_tf32", activation="gelu"), ValueError, "it is gelu_float32"),
        (
            lambda: fp8lab.gemm(A, B, fp8lab.GemmRecipe(HOPPER, activation="dgelu")),
            ValueError,
            r"activation dgelu needs an activation_input of 24 \* 20 elements",
        ),
        (
            lambda: fp8lab.diagnose_gemm(
                A, B, np.ones((24, 20), np.float32), expected=fp8lab.GemmRecipe(HOPPER, activation="dgelu")
            ),
            ValueError,
            "activation dgelu has an activation_input, which is not given here",
        ),
        (lambda: fp8lab.GemmRecipe(HOPPER, activation="silu"), ValueError, "'silu'; known: none, relu, gelu, "),
        (
            lambda: fp8lab.GemmRecipe(HOPPER, bias_gradient="of_a"),
            ValueError,
            "bias_gradient of_a is known of the models hopper_bf16",
        ),
        (
            lambda: fp8lab.GemmRecipe.from_json('{"model": "exact", "bias_gradient": "of_b"}'),
            ValueError,
            "bias_gradient of_b is added in an order that is not known",
        ),
        (
            lambda: fp8lab.gemm(A, B, fp8lab.GemmRecipe(HOPPER, activation="relu"), activation_input=np.ones((24, 20))),
            TypeError,
            "activation_input",
        ),
        (
            lambda: fp8lab.gemm(A, B, HOPPER, activation_input=np.ones((24, 20), np.float32)),
            ValueError,
            "activation_input goes with the activation dgelu, not with none",
        ),
        (lambda: fp8lab.GemmRecipe(HOPPER, order="up"), ValueError, "unknown order 'up'; known: ascending"),
        (lambda: fp8lab.GemmRecipe(HOPPER, promote_k=48), ValueError, "promote_k must be a multiple of 32"),
        (lambda: fp8lab.GemmRecipe(HOPPER, fused=1), TypeError, "fused"),
        (lambda: fp8lab.GemmRecipe.from_json("[]"), ValueError, "an object of its fields"),
        (lambda: fp8lab.GemmRecipe.from_json('{"deep": 1}'), ValueError, "has the fields model"),
        (lambda: fp8lab.gemm(A, B), TypeError, "a recipe or a model must be given"),
        (lambda: fp8lab.gemm(A, B, 3), TypeError, "recipe must be a GemmRecipe"),
        (
            lambda: fp8lab.gemm(A, B, "deepgemm"),
            ValueError,
            "unknown GEMM recipe or model 'deepgemm'.*deepgemm_1d2d_hopper",
        ),
        (lambda: fp8lab.LinearGemm(), TypeError, "a recipe or a model must be given"),
    ):
        with pytest.raises(error, match=message):
            make()
