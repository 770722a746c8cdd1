# SPDX-License-Identifier: Apache-2.0
"""Quantizers against NumPy's own arithmetic and ml_dtypes' casts."""

import dataclasses
import pickle

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from fp8lab import AmaxHistory, Block, Delayed, GivenScale, JustInTime, MxBlock, NvFp4
from fp8lab.pytest_plugin import assert_matches

INF = np.float32(np.inf)
FLT_MAX = np.finfo(np.float32).max


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def tensor(rows, columns, seed=0, spread=4.0):
    """Rows and columns of very different sizes."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns)) * np.exp2(rng.uniform(-spread, spread, (rows, columns)))
    return x.astype(np.float32)


def fp8(x, dtype=ml_dtypes.float8_e4m3fn):
    """Clamped to the largest finite value, then cast by ml_dtypes."""
    largest = np.float32(ml_dtypes.finfo(dtype).max)
    return np.clip(x, -largest, largest).astype(dtype).view(np.uint8)


def blocks(x, width):
    return x.reshape(x.shape[0], -1, width)


def test_just_in_time_is_numpys_division_and_ml_dtypes_cast():
    x = tensor(33, 65)
    for format, dtype, largest in (("e4m3", ml_dtypes.float8_e4m3fn, 448), ("e5m2", ml_dtypes.float8_e5m2, 57344)):
        scale = np.float32(largest) / np.abs(x).max()
        q = fp8lab.quantize(x, JustInTime(format=format))
        assert np.array_equal(q.codes, fp8(x * scale, dtype))
        assert q.scale_inv.shape == (1, 1) and q.scale_inv[0, 0] == np.float32(1) / scale
        assert q.amax == np.abs(x).max()
        back = q.codes.view(dtype).astype(np.float32) * q.scale_inv
        assert np.array_equal(fp8lab.dequantize(q), back)
    row_scale = np.float32(448) / np.abs(x).max(axis=1, keepdims=True)
    q = fp8lab.quantize(x, JustInTime(axis="row"))
    assert np.array_equal(q.codes, fp8(x * row_scale))
    assert np.array_equal(q.scale_inv, np.float32(1) / row_scale)


def test_tiles_of_1x128_and_128x128_are_numpys():
    x = tensor(256, 384)
    amax = np.abs(blocks(x, 128)).max(axis=2)
    scale = np.float32(448) / amax
    q = fp8lab.quantize(x, Block(force_pow_2_scales=False))
    assert np.array_equal(q.codes, fp8(x * np.repeat(scale, 128, axis=1)))
    assert np.array_equal(q.scale_inv, np.float32(1) / scale)
    inverse = amax / np.float32(448)
    q = fp8lab.quantize(x, "deepseek_v3_2024")
    assert np.array_equal(q.codes, fp8(x / np.repeat(inverse, 128, axis=1)))
    assert np.array_equal(q.scale_inv, inverse)
    power = np.exp2(np.floor(np.log2(448 / amax.reshape(2, 128, 3).max(axis=1).astype(np.float64)))).astype(np.float32)
    q = fp8lab.quantize(x, "te_block_128x128")
    assert np.array_equal(q.codes, fp8(x * np.repeat(np.repeat(power, 128, axis=0), 128, axis=1)))
    assert np.array_equal(q.scale_inv, 1 / power)


@pytest.mark.parametrize(
    ("format", "dtype", "largest"),
    [("e4m3", "float8_e4m3fn", 448), ("e5m2", "float8_e5m2", 57344), ("e2m3", "float6_e2m3fn", 7.5),
     ("e3m2", "float6_e3m2fn", 28), ("e2m1", "float4_e2m1fn", 6)],
)  # fmt: skip
def test_mx_blocks_are_ml_dtypes_casts_under_exact_powers_of_two(format, dtype, largest):
    x = tensor(64, 96)
    amax = np.abs(blocks(x, 32)).max(axis=2).astype(np.float64)
    exponents = {
        "te": np.ceil(np.log2(amax / largest)),
        "floor": np.floor(np.log2(amax)) - np.floor(np.log2(largest)),
        "ceil": np.ceil(np.log2(amax)) - np.floor(np.log2(largest)),
    }
    for rule, exponent in exponents.items():
        q = fp8lab.quantize(x, MxBlock(format=format, rule=rule))
        assert np.array_equal(q.scale_codes, exponent + 127)
        codes = fp8(x / np.repeat(np.exp2(exponent), 32, axis=1).astype(np.float32), getattr(ml_dtypes, dtype))
        assert np.array_equal(q.codes, fp8lab.pack_pairs(codes) if format == "e2m1" else codes)


def numpy_nvfp4(x, square=False):
    """Transformer Engine's formulas, one NumPy operation each."""
    f = np.float32
    tensor_amax = np.abs(x).max()
    encode = np.minimum(f(2688) / tensor_amax, FLT_MAX)
    amax = np.abs(blocks(x, 16)).max(axis=2)
    if square:
        amax = np.repeat(amax.reshape(-1, 16, amax.shape[1]).max(axis=1), 16, axis=0)
    scale = np.clip(amax * (encode * (f(1) / f(6))), -448, 448).astype(ml_dtypes.float8_e4m3fn)
    inverse = np.minimum(f(1) / (scale.astype(f) * (f(1) / encode)), FLT_MAX)
    codes = fp8(x * np.repeat(inverse, 16, axis=1), ml_dtypes.float4_e2m1fn)
    factor = scale.astype(f) * tensor_amax * (f(1) / (f(6) * f(448)))
    back = codes.view(ml_dtypes.float4_e2m1fn).astype(f) * np.repeat(factor, 16, axis=1)
    return scale.view(np.uint8), codes, back


@pytest.mark.parametrize("square", [False, True])
def test_nvfp4_is_its_formula_in_numpy(square):
    recipe = NvFp4(with_2d_quantization=square)
    for seed in range(20):
        x = tensor(32, 64, seed, spread=seed)
        scale, codes, back = numpy_nvfp4(x, square)
        q = fp8lab.quantize(x, recipe)
        assert np.array_equal(q.scale_codes, scale)
        assert np.array_equal(q.codes, fp8lab.pack_pairs(codes))
        assert np.array_equal(fp8lab.dequantize(q), back)


def test_columnwise_is_rowwise_of_the_transpose():
    x = tensor(128, 256)
    turned = np.ascontiguousarray(x.T)
    for one in fp8lab.recipes():
        if one.recipe.transform != "none":
            continue
        q = fp8lab.quantize(x, one, direction="columnwise")
        rowwise = fp8lab.quantize(turned, one.recipe)
        across = (lambda a: a) if q.transposed else np.transpose
        assert np.array_equal(across(q.codes), rowwise.codes), one.name
        assert np.array_equal(across(q.scales()), rowwise.scales()), one.name
        assert np.array_equal(fp8lab.dequantize(q), fp8lab.dequantize(rowwise).T), one.name
        both = fp8lab.quantize_both(x, one.name, threads=2)
        assert np.array_equal(both[0].codes, fp8lab.quantize(x, one.name).codes)
        assert np.array_equal(both[1].codes, q.codes)


def test_what_quantize_gives_feeds_the_tensor_core():
    a, b = tensor(64, 128, 1, 1), tensor(32, 128, 2, 1)
    left, right = fp8lab.quantize(a, MxBlock()), fp8lab.quantize(b, MxBlock())
    model = next(m.name for m in fp8lab.models() if m.scale_format == "e8m0" and "e4m3" in m.operands)
    out = fp8lab.gemm(left.codes, right.codes, model=model, scale_a=left.scale_codes, scale_b=right.scale_codes)
    exact = fp8lab.gemm(fp8lab.dequantize(left), fp8lab.dequantize(right), model="exact")
    assert fp8lab.errors(out, exact).sqnr_db > 80


@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
@pytest.mark.parametrize(
    "recipe", ["te_current_scaling", "torchao_rowwise", "te_mxfp8", "te_block_128x128", "te_nvfp4_2d"]
)
def test_a_quantized_tells_its_tiles_and_what_multiplies_on_dequantize(recipe, direction):
    x = np.linspace(-3, 5, 128 * 256, dtype=np.float32).reshape(128, 256)
    q = fp8lab.quantize(x, recipe, direction=direction)
    scales = np.kron(q.tile_scales_inv(), np.ones(q.tile, np.float32))[:128, :256]
    codes = fp8lab.unpack_pairs(q.codes) if q.format == "e2m1" else q.codes
    values = fp8lab.decode(codes.T if q.transposed else codes, q.format)
    assert np.array_equal(values * scales, fp8lab.dequantize(q))
    assert q.scale_inv_at(77, 131) == scales[77, 131]
    assert q.scale_format == {"te_mxfp8": "e8m0", "te_nvfp4_2d": "ue4m3"}.get(recipe, "float32")
    assert q.factor == (np.float32(448) / np.float32(5) if recipe == "te_current_scaling" else None)
    with pytest.raises(ValueError, match="column must be from 0 to 255, not 256"):
        q.scale_inv_at(0, 256)


def test_scales_come_padded_and_swizzled_and_back():
    x = tensor(160, 288)
    q = fp8lab.quantize(x, "te_mxfp8")
    assert q.scales().shape == (160, 9)
    padded = q.scales("padded")
    assert padded.shape == (256, 12) and np.array_equal(padded[:160, :9], q.scale_codes) and not padded[160:].any()
    # cuBLAS's tiles, by NumPy's transposes.
    tiles = padded.reshape(2, 4, 32, 3, 4).transpose(0, 3, 2, 1, 4)
    assert np.array_equal(q.scales("swizzled"), tiles.reshape(-1))
    assert np.array_equal(fp8lab.unswizzle_scales(q.scales("swizzled"), (160, 9)), q.scale_codes)
    assert np.array_equal(fp8lab.pad_scales(q.scale_codes), padded)
    assert np.array_equal(fp8lab.unpad_scales(padded, (160, 9)), q.scale_codes)
    columnwise = fp8lab.quantize(x, "te_mxfp8", direction="columnwise")
    assert columnwise.scales().shape == (5, 288) and columnwise.scales("padded").shape == (8, 384)
    assert np.array_equal(fp8lab.unswizzle_scales(columnwise.scales("swizzled"), (288, 5)), columnwise.scale_codes.T)
    with pytest.raises(ValueError, match="float32 scales"):
        fp8lab.quantize(x, "te_current_scaling").scales("swizzled")


def test_sources_views_and_threads():
    x = tensor(64, 128)
    narrow = x.astype(ml_dtypes.bfloat16)
    expected = fp8lab.quantize(narrow.astype(np.float32), "te_mxfp8")
    for same in (narrow, np.asfortranarray(narrow), np.repeat(narrow, 2, axis=1)[:, ::2]):
        assert np.array_equal(fp8lab.quantize(same, "te_mxfp8", threads=3).codes, expected.codes)
    assert np.array_equal(fp8lab.quantize(x, "te_mxfp8", input_type="bfloat16").codes, expected.codes)
    q = fp8lab.quantize(x, GivenScale(scale=2))
    q.codes[0, 0] = 0x38  # a view
    assert fp8lab.dequantize(q)[0, 0] == 0.5
    out = np.empty((64, 128), np.float32)
    assert fp8lab.dequantize(q, out=out, threads=2) is out


def test_halves_are_read_as_they_are():
    x = tensor(8, 256).astype(np.float16)
    x[0, :32] = 2.0**-24
    for recipe in ("te_current_scaling", "te_block_1x128_fp32", "te_mxfp8"):
        assert np.array_equal(fp8lab.quantize(x, recipe).codes, fp8lab.quantize(x.astype(np.float32), recipe).codes)


def test_delayed_scaling_casts_with_the_scale_of_earlier_steps():
    history = AmaxHistory(Delayed(amax_history_len=2), backward=True)
    largest = np.float32(57344)
    amaxes = []
    for step in range(5):
        x = tensor(6, 10, step) * np.float32(4.0 ** (2 - step))
        used = largest / max(amaxes[-2:]) if amaxes else np.float32(1)
        rowwise, columnwise = fp8lab.quantize_both(x, history, threads=2)
        assert history.scale == used
        assert np.array_equal(rowwise.codes, fp8(x * used, ml_dtypes.float8_e5m2))
        assert np.array_equal(columnwise.codes, rowwise.codes.T)
        assert rowwise.scale_inv[0, 0] == np.float32(1) / used
        values = rowwise.codes.view(ml_dtypes.float8_e5m2).astype(np.float32)
        assert np.array_equal(fp8lab.dequantize(rowwise), values * (np.float32(1) / used))
        assert rowwise.amax == history.amaxes[0] == np.abs(x).max()
        assert rowwise.recipe == history.recipe and rowwise.format == "e5m2"
        amaxes.append(np.abs(x).max())
        history.update_scale()
    before = history.amaxes
    with pytest.raises(ValueError, match="must not be empty"):
        fp8lab.quantize(np.ones((0, 3), "f4"), history)
    assert np.array_equal(history.amaxes, before)
    unlimited = AmaxHistory(Delayed(amax_history_len=1, version="te_1_6"))
    fp8lab.quantize(np.full((1, 1), 1e-40, "f4"), unlimited)
    unlimited.update_scale()
    q = fp8lab.quantize(np.array([[1, -1, 0]], "f4"), unlimited)  # an infinite scale
    assert q.codes.tolist() == [[0x7E, 0xFE, 0x7F]] and q.scale_inv[0, 0] == 0


def test_stochastic_rounding_takes_the_callers_bits():
    x = np.full((16, 256), 0.625, np.float32)  # under the scale 1, a quarter of the way from 0.5 to 1
    x[0, 0] = 6
    bits = np.tile(np.arange(256, dtype=np.uint8), (16, 1))
    q = fp8lab.quantize(x, NvFp4(stochastic_rounding=True), random_bits=bits)
    values = fp8lab.decode(fp8lab.unpack_pairs(q.codes), "e2m1")
    # The block of the 6 has scale 1, in which a quarter of 16 words carry; by all 256 words of a row the mean is exact.
    assert (values[0, 1:16] == 0.5).all()
    assert fp8lab.dequantize(q)[1:].mean() == pytest.approx(0.625, rel=2e-2)
    with pytest.raises(ValueError, match="needs random bits"):
        fp8lab.quantize(x, NvFp4(stochastic_rounding=True))
    with pytest.raises(TypeError, match="random_bits must be uint8, uint16 or uint32, not int64"):
        fp8lab.quantize(x, NvFp4(stochastic_rounding=True), random_bits=bits.astype(np.int64))


def test_recipes_are_records_that_explain_themselves():
    listed = fp8lab.recipes()
    assert len({one.name for one in listed}) == len(listed) > 20
    for one in listed:
        assert one.source and str(one).startswith(f"{one.name}: {one.recipe} [")
        assert dataclasses.replace(one.recipe) == one.recipe
    by_name = {one.name: one.recipe for one in listed}
    assert by_name["te_mxfp8"] == MxBlock() and by_name["te_current_scaling"] == JustInTime()
    assert by_name["te_block_1x128"] == Block() and by_name["te_nvfp4"] == NvFp4()
    assert by_name["te_nvfp4_rht"] == NvFp4(with_rht=True)
    assert by_name["given_scale"] == GivenScale()
    assert str(MxBlock()) == (
        "e4m3, an E8M0 scale for 1 x 32: scale_inv = amax * fl(1 / largest), rounded up to a power of two"
    )
    assert "amax / largest, rounded up to a power of two by its float32 log2" in str(
        by_name["torchao_0_18_mxfp8_rceil"]
    )
    assert str(NvFp4(with_rht=True)).startswith(
        "e2m1, turned by a Hadamard matrix where columnwise and rounded to bfloat16, "
    )
    assert str(NvFp4(with_rht=True, round_rht=False)).startswith("e2m1, turned by a Hadamard matrix where columnwise, ")


def test_a_recipe_is_built_from_its_parts_and_shows_them():
    te = fp8lab.Recipe(
        tile_across=1, tile_along=32, whole_tiles=True, quotient="amax_times_inverse", rounding="up", scale_type="e8m0",
        transposed_columnwise=False,
    )  # fmt: skip
    assert te == MxBlock() and hash(te) == hash(MxBlock())
    assert eval(repr(te), {"Recipe": fp8lab.Recipe}) == te
    assert (te.tile_across, te.tile_along, te.quotient, te.format, te.cast) == (
        1,
        32,
        "amax_times_inverse",
        "e4m3",
        "cuda_satfinite",
    )
    even = dataclasses.replace(te, quotient="amax_over_power", rounding="even", even_mantissa_bits=1)
    assert fp8lab.quantize(np.full((1, 32), 1.75, "f4"), even).scale_codes[0, 0] == 127 + 1 - 8  # the threshold of E2M1
    assert fp8lab.quantize(np.full((1, 32), 1.75, "f4"), MxBlock(rule="even")).scale_codes[0, 0] == 127 - 8
    assert NvFp4(stochastic_rounding=True).cast.rounding == "stochastic"
    assert {field.name for field in dataclasses.fields(te)} >= set(fp8lab._core.recipe_choices())
    for field, choices in fp8lab._core.recipe_choices().items():
        assert f"{field} : {', '.join(choices)}" in fp8lab.Recipe.__doc__


@pytest.mark.parametrize(
    ("rule", "name"),
    [(dict(rule=rule), rule) for rule in ("deepgemm_cpu", "deepgemm_cuda")]
    + [(dict(rule="deepseek_2024"), "deepseek_v3_2024"), (dict(rule="deepseek_2025"), "deepseek_v3_2025"),
       (dict(rule="torchao"), "torchao_blockwise"), (dict(), "te_block_1x128")],
)  # fmt: skip
def test_defaults_of_a_rule_are_the_named_recipes(rule, name):
    by_name = {one.name: one.recipe for one in fp8lab.recipes()}
    assert Block(**rule) == by_name[name]
    assert JustInTime(rule="torchao", axis="row") == by_name["torchao_rowwise"]
    for mode in ("ceil", "even", "rceil"):
        assert MxBlock(rule=mode) == by_name[f"torchao_mxfp8_{mode}"]


def test_a_recipe_tells_its_tiles_and_scales():
    block = Block(rows=128)
    assert block.tile_shape((256, 512)) == (128, 128) and MxBlock().tile_shape((64, 32), direction="columnwise") == (
        32,
        1,
    )
    assert JustInTime().tile_shape((3, 5)) == (3, 5) and JustInTime(axis="row").tile_shape((3, 5)) == (1, 5)
    assert [one.scale_format for one in (JustInTime(), MxBlock(), NvFp4())] == ["float32", "e8m0", "ue4m3"]
    assert JustInTime().tile_scale(2.0) == (224, 1 / np.float32(224), 0)
    assert MxBlock().tile_scale(448 * 2.0**-3) == (8, 2.0**-3, 127 - 3)
    assert Block(rule="deepseek_2024").tile_scale(2.0).factor == np.float32(2) / np.float32(448)
    assert NvFp4().tile_scale(6.0, tensor_amax=2688.0) == (1, 1, 0x38)
    assert Block(force_pow_2_scales=False).tile_scale(1e-45, input_type="bfloat16").factor == 2.0**127 * (2 - 2.0**-7)
    with pytest.raises(ValueError, match="amax must not be negative, and is -1"):
        JustInTime().tile_scale(-1)
    with pytest.raises(ValueError, match="columns must be a multiple of 32"):
        MxBlock().tile_shape((1, 33))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [(lambda: MxBlock(rule="up"), ValueError, "unknown rule 'up'; known: te, floor"),
     (lambda: MxBlock(nan="kept"), ValueError, "unknown nan 'kept'; known: dropped, counted"),
     (lambda: JustInTime(axis="column"), ValueError, "unknown axis 'column'"),
     (lambda: JustInTime(amax_epsilon="x"), TypeError, "amax_epsilon must be a number, not str"),
     (lambda: JustInTime(force_pow_2_scales=1), TypeError, "force_pow_2_scales must be a bool, not int"),
     (lambda: NvFp4(round_rht=False), ValueError, "round_rht is for with_rht only"),
     (lambda: GivenScale(scale=0), ValueError, "scale must be positive and finite, not 0"),
     (lambda: GivenScale(scale=float("nan")), ValueError, "not nan"),
     (lambda: GivenScale(scale=-1), ValueError, "scale must be positive and finite, not -1"),
     (lambda: GivenScale(scale=float("inf")), ValueError, "scale must be positive and finite, not inf"),
     (lambda: GivenScale(scale=1e-40), ValueError, "scale must have a finite inverse"),
     (lambda: fp8lab.quantize(np.ones((2, 32), "f4"), Delayed()), TypeError, "give an AmaxHistory of it"),
     (lambda: fp8lab.quantize(np.ones((2, 32), "f4"), AmaxHistory(Delayed()), amax_before_rounding=True), ValueError, "not for delayed"),
     (lambda: fp8lab.pad_scales(np.zeros(5, "u1")), ValueError, "scales must have two dimensions, not 1"),
     (lambda: fp8lab.unpad_scales(np.zeros(5, "u1"), (2, 1)), ValueError, "of 2 x 1 scales must have 512 bytes, not 5"),
     (lambda: fp8lab.unswizzle_scales(np.zeros(0, "u1"), (2**40, 2**40)), ValueError, "there is no room for"),
     (lambda: GivenScale(format="e9m9"), ValueError, "unknown format 'e9m9'"),
     (lambda: GivenScale(format="e8m0"), ValueError, "format must have a sign"),
     (lambda: Block(rows=0), ValueError, "rows must be from 1"),
     (lambda: Block(rows=2), ValueError, r"tile_across \(rows of a block\) must be 0, 1 or as tile_along, 128, not 2"),
     (lambda: fp8lab.Recipe(quotient="up"), ValueError, "unknown quotient 'up'; known: given_scale"),
     (lambda: fp8lab.Recipe(tile_along="x"), TypeError, "tile_along must be an int"),
     (lambda: fp8lab.Recipe(rounding="even"), ValueError, "rounding even is for scale_type e8m0"),
     (lambda: fp8lab.Recipe(scale_type="e8m0"), ValueError, "scale_type e8m0 needs a rounding to a power of two"),
     (lambda: fp8lab.quantize(np.ones((4, 40), "f4"), "te_mxfp8"), ValueError, "columns must be a multiple of 32.*nearest: 32 or 64"),
     (lambda: fp8lab.quantize(np.ones((4, 32), "f4"), "te_mxfp8", direction="columnwise"), ValueError, "rows must be a multiple of 32"),
     (lambda: fp8lab.quantize(np.ones((0, 32), "f4"), "te_mxfp8"), ValueError, "x must not be empty: it is 0 x 32"),
     (lambda: fp8lab.quantize(np.float32(1), "te_mxfp8"), ValueError, "x must have a dimension or more, not 0"),
     (lambda: fp8lab.quantize(np.ones((2, 32)), "te_mxfp8"), TypeError, "x must be float32, float16 or bfloat16, not float64"),
     (lambda: fp8lab.quantize(np.ones((2, 32), "i8"), "te_mxfp8"), TypeError, "x must be float32, float16 or bfloat16, not int64$"),
     (lambda: fp8lab.quantize(np.ones((2, 32), "f4"), "fp7"), ValueError, "unknown recipe 'fp7'; known: te_mxfp8"),
     (lambda: fp8lab.quantize(np.ones((2, 32), "f4"), 3), TypeError, "recipe must be a name"),
     (lambda: fp8lab.quantize(np.ones((2, 32), "f4"), JustInTime(), direction="up"), ValueError, "unknown direction 'up'"),
     (lambda: fp8lab.quantize(np.ones((2, 32), "f4"), JustInTime(), input_type="int8"), ValueError, "unknown input_type"),
     (lambda: fp8lab.dequantize(np.ones(3)), TypeError, "q must be a Quantized, not ndarray"),
     (lambda: fp8lab.unswizzle_scales(np.zeros(5, "u1"), (1, 1)), ValueError, "must have 512 bytes, not 5")],
)  # fmt: skip
def test_wrong_arguments_are_named(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()


def test_hadamard_columns_is_sylvesters_matrix_with_transformer_engines_signs():
    signs = np.array([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1], np.float64)
    matrix = np.array([[1.0]])
    for _ in range(4):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    matrix = signs[:, None] * matrix / 4
    x = fp8lab.sample("normal", 32 * 5, seed=1).reshape(32, 5)
    for dtype in (np.float32, np.float64, np.float16):
        given = x.astype(dtype)
        expected = np.concatenate([matrix.T @ part.astype(np.float64) for part in (given[:16], given[16:])])
        turned = fp8lab.hadamard_columns(given, rounds=False)
        assert np.allclose(turned, expected, rtol=2e-7, atol=1e-7)
        assert np.array_equal(
            fp8lab.hadamard_columns(given), fp8lab.decode(fp8lab.encode(turned, "bfloat16"), "bfloat16")
        )
    with pytest.raises(ValueError, match="rows in multiples of 16 and not be empty: it is 8 x 5"):
        fp8lab.hadamard_columns(x[:8])


def test_a_tensor_of_any_dimensions_is_its_rows_and_comes_back_in_its_shape():
    x = np.arange(2 * 3 * 64, dtype=np.float32).reshape(2, 3, 64)
    q = fp8lab.quantize(x, "te_mxfp8")
    assert q.shape == (6, 64) and q.tensor_shape == (2, 3, 64)
    flat = fp8lab.quantize(x.reshape(6, 64), "te_mxfp8")
    np.testing.assert_array_equal(q.codes, flat.codes)
    back = fp8lab.dequantize(q)
    assert back.shape == (2, 3, 64)
    np.testing.assert_array_equal(back.reshape(6, 64), fp8lab.dequantize(flat))
    assert pickle.loads(pickle.dumps(q)) == q != flat
    assert fp8lab.quantize(x[0, 0], "te_mxfp8").tensor_shape == (64,)


def test_scales_and_amaxes_are_given():
    x = np.arange(-128, 128, dtype=np.float32).reshape(4, 64)
    by_row = np.float32([[1], [2], [3], [4]])
    q = fp8lab.quantize(x, "vllm_per_token", scale_inv=by_row)
    np.testing.assert_array_equal(q.scale_inv, by_row)
    np.testing.assert_array_equal(q.codes, fp8lab.encode(x / by_row, "e4m3"))
    assert q.recipe.quotient == "given_scale_inv"
    q = fp8lab.quantize(x, "vllm_static", scale_inv=0.5)
    np.testing.assert_array_equal(q.codes, fp8lab.encode(x * 2, "e4m3"))
    own = fp8lab.quantize(x, "te_mxfp8")
    amaxes = np.abs(x.reshape(4, 2, 32)).max(axis=2)
    assert fp8lab.quantize(x, "te_mxfp8", amax=amaxes) == own
    nvfp4 = fp8lab.quantize(x, "vllm_nvfp4")
    scale = float(np.float32(2688) / np.float32(nvfp4.amax))
    given = fp8lab.quantize(x, "vllm_nvfp4", tensor_scale=scale)
    np.testing.assert_array_equal(given.codes, nvfp4.codes)
    assert given.tensor_scale == scale and nvfp4.tensor_scale is None
    assert pickle.loads(pickle.dumps(given)) == given
    with pytest.raises(ValueError, match="amaxes must have one element, or one for each of the 4 x 2 tiles, not 3"):
        fp8lab.quantize(x, "te_mxfp8", amax=[1, 2, 3])
    for wrong in (-1.0, 0.0, float("inf"), float("nan"), 1e39, 1e-50):
        for name in ("tensor_scale", "tensor_scale_inv"):
            with pytest.raises(ValueError, match=f"{name} must be positive and finite"):
                fp8lab.quantize(x, "vllm_nvfp4", **{name: wrong})
            with pytest.raises(ValueError, match=f"{name} must be positive and finite"):
                fp8lab.Quantized.from_arrays(given.codes, given.scale_codes, "vllm_nvfp4", **{name: wrong})
    restore, (kind, fields) = given.__reduce__()
    with pytest.raises(ValueError, match="tensor_scale must be positive and finite"):
        restore(kind, {**fields, "tensor_scale": float("inf")})


def test_each_row_may_have_its_own_tensor_scale():
    x = np.arange(1, 129, dtype=np.float32).reshape(4, 32)
    q = fp8lab.quantize(x, "te_nvfp4_row_scaled")
    np.testing.assert_array_equal(q.row_amaxes, np.abs(x).max(axis=1))
    for row in range(4):
        np.testing.assert_array_equal(q.codes[row], fp8lab.quantize(x[row : row + 1], "te_nvfp4").codes[0])
    # Amaxes of the caller's, such as those of a token before it was sharded: each row is as under one amax of the
    # tensor.
    given = np.array([200, 64, 1e-3, 7e4], np.float32)
    for direction, values in (("rowwise", x), ("columnwise", np.ascontiguousarray(x.T))):
        q = fp8lab.quantize(values, "te_nvfp4_row_scaled", direction=direction, row_amaxes=given)
        np.testing.assert_array_equal(q.row_amaxes, given)
        for row in range(4):
            alone = fp8lab.quantize(x[row : row + 1], "te_nvfp4", tensor_amax=float(given[row]))
            np.testing.assert_array_equal(q.codes[row], alone.codes[0])
            np.testing.assert_array_equal(q.scale_codes[row], alone.scale_codes[0])
            back = fp8lab.dequantize(q) if direction == "rowwise" else fp8lab.dequantize(q).T
            np.testing.assert_array_equal(back[row], fp8lab.dequantize(alone)[0])
        stored = fp8lab.Quantized.from_arrays(
            q.codes, q.scale_codes, "te_nvfp4_row_scaled", direction=direction, row_amaxes=given
        )
        assert stored == q
        assert_matches(values, q.codes, "te_nvfp4_row_scaled", q.scale_codes, direction=direction, row_amaxes=given)
    assert fp8lab.quantize(x, "te_nvfp4_row_scaled", row_amaxes=np.abs(x).max(axis=1)) == fp8lab.quantize(
        x, "te_nvfp4_row_scaled"
    )
    with pytest.raises(ValueError, match="row_amaxes must have 4 elements, one for every row along K, not 3"):
        fp8lab.quantize(x, "te_nvfp4_row_scaled", row_amaxes=given[:3])
    with pytest.raises(ValueError, match="row_amaxes are those of one direction"):
        fp8lab.quantize_both(np.ones((32, 32), np.float32), "te_nvfp4_row_scaled", row_amaxes=np.ones(32, np.float32))
    with pytest.raises(ValueError, match="row_amaxes are for recipes where each row has a scale"):
        fp8lab.quantize(x, "te_nvfp4", row_amaxes=given)
    assert fp8lab.quantize(x, "te_nvfp4").row_amaxes is None
