# SPDX-License-Identifier: Apache-2.0
import re

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from fp8lab.pytest_plugin import assert_codes_equal, assert_matches
from sampled import EXHAUSTIVE, sampled

pytestmark = pytest.mark.sample(2, tests=8)

planted = pytest.importorskip("planted", reason="ml_dtypes is not installed")
planted_pairs = pytest.importorskip("planted_pairs", reason="ml_dtypes is not installed")


# The doctor's own tests plant every departure of its table each time.
@pytest.mark.parametrize("name", sampled(planted.DEFECTS, 3))
def test_a_planted_defect_is_the_first_explanation(name):
    x, (codes, scales), called, options = planted.DEFECTS[name]
    found = fp8lab.diagnose(x, codes, scales, **options)
    first = found.explanations[0]
    told = " ".join((first.base, *first.also, *first.changes, *first.departures, first.direction))
    assert found.explained, found
    assert re.search(called, told), found


@pytest.mark.parametrize("pair", sampled(planted_pairs.PAIRS, 10), ids=" and ".join)
@pytest.mark.parametrize("expected", [None, "deepseek_v3_2024"] if EXHAUSTIVE else ["deepseek_v3_2024"])
def test_two_independent_defects_are_named_as_a_pair(pair, expected):
    found = fp8lab.diagnose(planted_pairs.X, *planted_pairs.kernel(pair), expected=expected)
    first = found.explanations[0]
    told = " ".join((*first.changes, *first.departures, *first.also, first.base))
    assert found.explained, found
    for one in pair:
        assert re.search(planted_pairs.DEFECTS[one], told), found


@pytest.mark.parametrize("moves", ["codes and scales", "columns", *(["codes"] if EXHAUSTIVE else [])])
def test_rows_and_columns_in_any_order_are_found_by_their_signs(moves):
    draw = np.random.default_rng(7)
    codes, scales = planted_pairs.kernel(("product_bfloat16",))
    order = draw.permutation(512 if moves == "columns" else 64)
    stands = np.argsort(order)
    found = fp8lab.diagnose(
        planted_pairs.X,
        codes[:, order] if moves == "columns" else codes[order],
        scales[order] if "scales" in moves else scales,
        expected="deepseek_v3_2024",
    )
    assert found.explained and not found.correct and found.explanations[0].departures == ("product_bfloat16",), found
    what = "columns" if moves == "columns" else "rows"
    assert f"the codes of {what} 0, 1, 2, ... stand in {what} {stands[0]}, {stands[1]}, {stands[2]}," in str(found), (
        found
    )


def test_what_no_pair_explains_is_located():
    codes, scales = planted_pairs.kernel(("product_bfloat16", "codes_one_late"))
    codes = codes.copy()
    codes[:, 300:303] = 0x55
    codes[20, 10], codes[21, 11] = 0x7F, 0xFF
    scales = scales.copy()
    scales[4:6, 3] *= np.float32(2)
    found = fp8lab.diagnose(planted_pairs.X, codes, scales, expected="deepseek_v3_2024")
    assert not found.explained and set(found.explanations[0].departures) == {"product_bfloat16", "codes_one_late"}, (
        found
    )
    rest = " ".join(found.rest)
    assert "All lie in columns 299 to 301 of 512." in rest, found
    assert (
        "2 codes are not as predicted (a: predicted, b: written). Every one is a number in a and a NaN in b." in rest
    ), found
    assert (
        "2 scales are not as predicted. Each is the predicted one times 2. All lie in rows 4 to 5 of 64. All lie in column 3 of 4."
        in rest
    )
    assert rest in str(found).replace("\n", " ")


@pytest.mark.parametrize("name", [one.name for one in fp8lab.profiles() if not one.name.startswith("e8m0")])
@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_a_cast_of_every_profile_is_correct(name, format):
    x = (planted.tensor(16, 256) * 1000).astype(np.float32)
    x[0, :3] = np.nan, np.inf, -np.inf
    found = fp8lab.diagnose(x, fp8lab.encode(x, format, profile=name), format=format)
    assert found.correct, found
    tied = found.explanations[: found.tied]
    assert any(f"{format} cast of profile {name}" in (one.base, *one.also) for one in tied), found


def test_what_the_data_cannot_tell_apart_is_said_and_a_probe_parts_it():
    x = planted.X
    q = fp8lab.quantize(x, "te_mxfp8")
    found = fp8lab.diagnose(x, q.codes, q.scale_codes)
    assert found.correct and found.tied > 1
    assert "does not tell it apart" in found.verdict
    one, other = (next(e for e in found.explanations if e.base == name) for name in ("te_mxfp8", "flashinfer_mxfp8"))
    values, digests, alike = found.probe((one, other))
    assert digests[0] != digests[1] and not alike
    for recipe, digest in (("te_mxfp8", digests[0]), ("flashinfer_mxfp8", digests[1])):
        value = 0xCBF29CE484222325
        for code in fp8lab.quantize(values, recipe).codes.ravel().tolist():
            value = (value ^ code) * 0x100000001B3 % 2**64
        assert value == digest


def test_another_recipe_than_the_expected_one_is_not_correct():
    q = fp8lab.quantize(planted.X, "te_mxfp8")
    found = fp8lab.diagnose(planted.X, q.codes, q.scale_codes, expected="ocp_mxfp8_e4m3")
    assert found.explained and not found.correct and found.verdict.startswith("Not ocp_mxfp8_e4m3: te_mxfp8."), found
    assert fp8lab.diagnose(
        planted.X, q.codes, q.scale_codes, expected="flashinfer_mxfp8"
    ).correct  # which makes the same of X
    odd = np.ascontiguousarray(planted.X[:, :100])
    q = fp8lab.quantize(odd, "deepgemm_cpu")
    found = fp8lab.diagnose(odd, q.codes[:, :100], q.scale_inv, expected="te_block_1x128")
    assert not found.correct and "does not take" not in str(found)
    found = fp8lab.diagnose(odd, q.codes[:, :100], q.scale_inv, expected="vllm_group")
    assert not found.correct and "vllm_group does not take a tensor of this shape." in str(found), found


def test_what_makes_the_same_as_the_expected_recipe_is_told_and_a_probe_parts_multiply_from_divide():
    x = np.random.default_rng(3).standard_normal((16, 512), np.float32)
    q = fp8lab.quantize(x, "vllm_group_before_0_33")
    found = fp8lab.diagnose(x, q.codes, q.scale_inv, expected="vllm_group_before_0_33")
    assert found.correct and re.search("does not tell it apart from .*vllm_group[;.]", found.verdict), found
    one, other = (
        next(e for e in found.explanations if e.base == name) for name in ("vllm_group_before_0_33", "vllm_group")
    )
    values, digests, alike = found.probe((one, other))
    assert digests[0] != digests[1] and not alike
    divided, multiplied = (fp8lab.quantize(values, name).codes for name in ("vllm_group_before_0_33", "vllm_group"))
    assert np.count_nonzero(divided != multiplied) > 0


def test_scales_that_follow_from_nothing_do_not_stand_one_place_off():
    q = fp8lab.quantize(planted.X, "deepseek_v3_2024")
    for scales in (np.zeros_like(q.scale_inv), np.full_like(q.scale_inv, np.nan), -q.scale_inv):
        assert fp8lab.diagnose(planted.X, q.codes, scales, expected="deepseek_v3_2024").explanations[0].departures == ()


def test_columns_whose_codes_stand_in_the_order_of_x_are_called_so():
    x = np.random.default_rng(5).standard_normal((64, 128), np.float32)
    q = fp8lab.quantize(x, "vllm_per_token", direction="columnwise")
    assert q.transposed
    found = fp8lab.diagnose(x, np.ascontiguousarray(q.codes.T), q.scale_inv, expected="vllm_per_token")
    assert "vllm_per_token, columnwise, but codes are not transposed" in found.verdict, found


def test_a_stale_scale_has_an_interval_in_which_it_lies():
    x, (codes, _), _, _ = planted.DEFECTS["stale scale"]
    found = fp8lab.diagnose(x, codes)
    assert found.factor[0] <= 448 / 7.3 <= found.factor[1]


def test_a_tensor_that_says_nothing_is_said_so():
    x = np.full((4, 32), np.nan, np.float32)
    found = fp8lab.diagnose(x, np.full((4, 32), 0x7F, np.uint8), format="e4m3")
    assert found.verdict.startswith("Cannot tell: x has no number but zero") and not found.correct
    assert len(found.explanations) <= 10
    zeros = np.zeros((4, 32), np.float32)
    assert "says nothing of scales" in fp8lab.diagnose(zeros, fp8lab.encode(zeros, "e4m3"), expected="te_mxfp8").verdict
    noise = np.random.default_rng(1).integers(0, 127, (64, 512), dtype=np.uint8)
    assert fp8lab.diagnose(planted.X, noise, format="e4m3").verdict.startswith("Cannot tell")


def test_elements_tell_explanations_apart():
    x, (codes, scales), _, _ = planted.DEFECTS["double rounding through bfloat16"]
    found = fp8lab.diagnose(x, codes, scales)
    assert found.discriminators
    for one in found.discriminators:
        assert x[one.place] == one.x and codes[one.place] == one.code == one.first != one.second
    assert "<table>" in found._repr_html_()


def test_what_does_not_fit_is_refused():
    x = np.ones((2, 32), np.float32)
    with pytest.raises(ValueError, match="codes have 5 bytes; x has 64 elements"):
        fp8lab.diagnose(x, np.zeros(5, np.uint8))
    with pytest.raises(ValueError, match="x has no elements"):
        fp8lab.diagnose(x[:0], np.zeros(0, np.uint8))
    with pytest.raises(ValueError, match="codes have the byte 159 at index 1; a code of e2m1 has 4 bits"):
        fp8lab.diagnose(
            x, np.full((2, 32), 0x9F, np.uint8) * (np.arange(64) > 0).reshape(2, 32).astype(np.uint8), format="e2m1"
        )
    codes = np.zeros((2, 32), np.uint8)
    unsigned = "codes are of a format with a sign and at most 8 bits, such as e4m3, e5m2 or e2m1, not of e8m0, which is of scales: give these as scales"
    for e8m0, how in ((codes, {"format": "e8m0"}), (codes.view(ml_dtypes.float8_e8m0fnu), {})):
        with pytest.raises(ValueError, match=unsigned):
            fp8lab.diagnose(x, e8m0, **how)
    for scale in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="tensor_scale, the scale of the tensor, must be positive and finite"):
            fp8lab.diagnose(x, codes, tensor_scale=scale)
    with pytest.raises(ValueError, match="scales have no elements"):
        fp8lab.diagnose(x, codes, codes[:0])
    with pytest.raises(ValueError, match="scale_format says what scales are, and scales are not given"):
        fp8lab.diagnose(x, codes, scale_format="e8m0")
    with pytest.raises(ValueError, match="scale_format is ue4m3, and scales are e8m0 by their element type"):
        fp8lab.diagnose(x, codes, np.ones(2, np.uint8).view(ml_dtypes.float8_e8m0fnu), scale_format="ue4m3")
    with pytest.raises(ValueError, match="scale_format says what bytes are, and scales are float32"):
        fp8lab.diagnose(x, codes, np.ones(2, np.float32), scale_format="e8m0")
    with pytest.raises(TypeError, match="x must be float32, float16 or bfloat16, not float64"):
        fp8lab.diagnose(np.ones((2, 32)), np.zeros((2, 32), np.uint8))
    with pytest.raises(TypeError, match="x must be float32, float16 or bfloat16, not int32$"):
        fp8lab.diagnose(np.ones((2, 32), np.int32), np.zeros((2, 32), np.uint8))


def test_codes_of_which_half_are_missing_are_told():
    x = np.random.default_rng(6).standard_normal((64, 256)).astype(np.float32)
    q = fp8lab.quantize(x, "te_nvfp4")
    whole = fp8lab.diagnose(x, q.codes, q.scale_codes)
    assert whole.explained and not any("missing" in note for note in whole.notes), whole
    half = fp8lab.diagnose(x, fp8lab.encode(x, "e4m3")[:32])
    assert (
        "their shape is (32, 256), and that of pairs would have rows of 128 bytes: half of them may be missing"
        in half.notes[0]
    )
    flat = fp8lab.diagnose(x, fp8lab.encode(x, "e4m3")[:32].reshape(-1))
    assert not any("missing" in note for note in flat.notes), flat


def test_blocks_of_fp4_with_dimensions_of_their_own_are_whole():
    """gpt-oss stores (experts, rows, blocks, bytes of a block)."""
    x = np.random.default_rng(7).standard_normal((256, 512)).astype(np.float32)
    q = fp8lab.quantize(x, "ocp_mxfp4")
    found = fp8lab.diagnose(x, q.codes.reshape(1, 256, 16, 16), q.scale_codes.reshape(1, 256, 16), expected="ocp_mxfp4")
    assert found.correct and not any("missing" in note for note in found.notes), found


def test_where_nothing_fits_the_nearest_is_told():
    noise = np.random.default_rng(1).integers(0, 127, (64, 512), dtype=np.uint8)
    found = fp8lab.diagnose(planted.X, noise, format="e4m3")
    assert found.rest[0] == (
        f"The first explanation, {found.explanations[0].description}, is the nearest, "
        f"and leaves {found.explanations[0].codes} of 32768 codes unexplained."
    )


def test_arrays_of_jax_are_taken():
    jax = pytest.importorskip("jax")
    q = fp8lab.quantize(planted.X, "te_mxfp8")
    for type_ in (np.float32, "bfloat16", np.float16):
        x = jax.numpy.asarray(planted.X).astype(type_)
        q = fp8lab.quantize(np.asarray(x), "te_mxfp8")
        codes = jax.lax.bitcast_convert_type(jax.numpy.asarray(q.codes), jax.numpy.float8_e4m3fn)
        scales = jax.numpy.asarray(q.scale_codes)
        assert fp8lab.diagnose(x, codes, scales, expected="te_mxfp8").correct
        assert fp8lab.compare(codes, q.codes, format="e4m3").equal and fp8lab.compare(x, x + 1).differing
        assert_matches(x, codes, "te_mxfp8", scales)
        with pytest.raises(AssertionError, match="codes_one_late|stands one place too late"):
            assert_codes_equal(jax.numpy.roll(codes, 1), codes, input=x)


def test_bytes_with_a_sign_and_a_number_for_the_scale_are_taken():
    scale = np.float32(np.abs(planted.X).max()) / np.float32(448)
    codes = fp8lab.encode(planted.X / scale, "e4m3")
    as_arrays = fp8lab.diagnose(planted.X, codes, np.array([scale]))
    found = fp8lab.diagnose(planted.X, codes.view(np.int8), float(scale))
    assert found.explained and str(found) == str(as_arrays)


def test_a_probe_parts_recipes_that_differ_below_their_floors_alone():
    x = fp8lab.sample("normal", 16 * 512, seed=4).astype(np.float32).reshape(16, 512)
    q = fp8lab.quantize(x, "vllm_group")
    found = fp8lab.diagnose(x, q.codes, q.scale_inv)
    assert found.correct and "does not tell it apart from" in found.verdict
    assert not found.probe().alike


STATIC = (
    "vllm_static_row",
    "vllm_static_group",
    "compressed_tensors_static_channel",
    "compressed_tensors_static_block",
)


@pytest.mark.parametrize(
    ("name", "direction"), sampled([(name, way) for name in STATIC for way in ("rowwise", "columnwise")], 3)
)
def test_static_scales_of_rows_and_tiles_are_no_defect_where_they_are_expected(name, direction):
    """Scales of a calibration do not follow from the tensor: only what is expected tells them from a wrong rule."""
    random = np.random.default_rng(3)
    x = random.standard_normal((128, 256)).astype(np.float32)
    recipe = next(one.recipe for one in fp8lab.recipes() if one.name == name)
    height, width = recipe.tile_shape(x.shape, direction=direction)
    static = (random.random((-(-128 // height), -(-256 // width))) * 0.01 + 0.004).astype(np.float32)
    q = fp8lab.quantize(x, name, direction=direction, scale_inv=static)
    found = fp8lab.diagnose(x, q.codes, q.scale_inv, expected=name, direction=direction)
    assert found.correct and found.explanations[0].departures == ("tile_scales_given",), found
    assert found.verdict.startswith(f"Correct: {name}") and "static, delayed or stale" in found.verdict
    wrong = q.codes.copy()
    wrong[5, 7] ^= 1
    assert not fp8lab.diagnose(x, wrong, q.scale_inv, expected=name, direction=direction).explained
    unexpected = fp8lab.diagnose(x, q.codes, q.scale_inv, direction=direction)
    assert unexpected.explained and not unexpected.correct, unexpected
    assert "scale_as_stored" in unexpected.explanations[0].departures and "static, or stale?" in unexpected.verdict
