# SPDX-License-Identifier: Apache-2.0
"""What the columnwise copy costs that is made of the rowwise one: recomputed with NumPy and ml_dtypes."""

import csv

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import interrupted_after, undated

F = np.float32
HISTOGRAMS = (
    "error_original",
    "error_requantized",
    "relative_error_original",
    "relative_error_requantized",
    "difference_ulps",
)
E4M3, E5M2, E2M1 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn
LARGEST = {E4M3: F(448), E5M2: F(57344), E2M1: F(6)}


def recipes_of(document):
    """The row of each recipe."""
    return document.tables["recipes"].rows


def told(document):
    """All tables but that of the tensors, and all histograms: the same for the same values, wherever they come from."""
    tables = {name: table.rows for name, table in document.tables.items() if name != "tensors"}
    return tables, {
        name: {key: np.asarray(value).tolist() for key, value in counts.items()}
        for name, counts in document.histograms.items()
    }


def cast(x, dtype):
    """To nearest even, and to the largest value beyond it."""
    return np.clip(x, -LARGEST[dtype], LARGEST[dtype]).astype(dtype).astype(np.float32)


def blocks(x, width):
    return x.reshape(x.shape[0], -1, width)


def mx(dtype, exponent_of):
    def quantized(x):
        tiles = blocks(x, 32)
        exponents = exponent_of(np.abs(tiles).max(-1, keepdims=True), LARGEST[dtype])
        codes = cast(np.ldexp(tiles, -exponents), dtype)
        scales = np.broadcast_to(np.ldexp(F(1), exponents), tiles.shape)
        return np.ldexp(codes, exponents).reshape(x.shape), codes.reshape(x.shape), scales.reshape(x.shape)

    return quantized


def floor_rule(amax, largest):
    return np.where(amax == 0, -127, np.frexp(amax)[1] - np.frexp(largest)[1])


def te_rule(amax, largest):
    mantissa, exponent = np.frexp(amax * (F(1) / largest))
    return exponent - (mantissa == 0.5)


def float_scales(width, power_of_two=False):
    def quantized(x):
        tiles = blocks(x, width) if width else x.reshape(1, 1, -1)
        scale = F(448) / np.abs(tiles).max(-1, keepdims=True)
        if power_of_two:
            scale = np.exp2(np.floor(np.log2(scale)))
        codes = cast(tiles * scale, E4M3)
        scale_inv = np.broadcast_to(F(1) / scale, tiles.shape)
        return (codes * scale_inv).reshape(x.shape), codes.reshape(x.shape), scale_inv.reshape(x.shape)

    return quantized


def nvfp4(x):
    tiles, largest = blocks(x, 16), np.abs(x).max()
    s = F(2688) / largest
    d = cast(np.abs(tiles).max(-1, keepdims=True) * (s * (F(1) / F(6))), E4M3)
    with np.errstate(divide="ignore"):
        inverse = np.minimum(F(1) / (d * (F(1) / s)), np.finfo(F).max)
    codes = cast(tiles * inverse, E2M1)
    factor = np.broadcast_to(d * largest * (F(1) / F(2688)), tiles.shape)
    return (codes * factor).reshape(x.shape), codes.reshape(x.shape), factor.reshape(x.shape)


RECIPES = {
    "te_mxfp8": mx(E4M3, te_rule),
    "ocp_mxfp8_e4m3": mx(E4M3, floor_rule),
    "ocp_mxfp8_e5m2": mx(E5M2, floor_rule),
    "ocp_mxfp4": mx(E2M1, floor_rule),
    "te_nvfp4": nvfp4,
    "te_block_1x128": float_scales(128, True),
    "te_block_1x128_fp32": float_scales(128),
    "te_current_scaling": float_scales(None),
    "te_current_scaling_pow2": float_scales(None, True),
}


def columnwise(quantized, x):
    return tuple(np.ascontiguousarray(part.T) for part in quantized(np.ascontiguousarray(x.T)))


def expected(x, quantized):
    """The counts and measures, all but the saturated ones."""
    rowwise, original, again = quantized(x)[0], *(columnwise(quantized, y) for y in (x, quantized(x)[0]))
    signal_power = np.sum(np.square(x, dtype=np.float64))

    def decibels(y):
        return 10 * np.log10(signal_power / np.sum(np.square(y.astype(np.float64) - x)))

    counts = {
        "transposed_differ": rowwise != original[0],
        "values_differ": again[0] != original[0],
        "codes_differ": again[1] != original[1],
        "scales_differ": again[2] != original[2],
        "underflows_original": (original[0] == 0) & (x != 0),
        "underflows_requantized": (again[0] == 0) & (x != 0),
        "extra_underflows": (again[0] == 0) & (original[0] != 0),
    }
    difference = np.sum(np.square(again[0].astype(np.float64) - original[0]))
    usable = (again[2] != 0) & (original[2] != 0)
    factors = again[2][usable].astype(np.float64) / original[2][usable]
    measures = {
        "sqnr_rowwise_db": decibels(rowwise),
        "sqnr_original_db": decibels(original[0]),
        "sqnr_requantized_db": decibels(again[0]),
        "loss_db": decibels(original[0]) - decibels(again[0]),
        "relative_rms_difference": np.sqrt(difference / signal_power),
        "widest_scale_factor": np.maximum(factors, 1 / factors).max(),
    }
    return {name: np.count_nonzero(where) for name, where in counts.items()}, measures, (original[0], again[0])


@pytest.fixture(scope="module")
def matrix():
    x = fp8lab.sample("student_t", 256 * 384, seed=11).reshape(256, 384)
    x[5] *= 64
    x[:, 17] *= F(1 / 512)
    return x


def test_every_recipe_is_as_numpy_and_ml_dtypes_compute_it(matrix):
    result = fp8lab.experiments.transpose(matrix, recipes=list(RECIPES))
    rows = recipes_of(result)
    assert [one["recipe"] for one in rows] == list(RECIPES)
    assert result.tables["tensors"].rows == [
        {"name": "", "type": "float32", "shape": "(256, 384)", "rows": 256, "columns": 384}
    ]
    for i, one in enumerate(rows):
        counts, measures, (original, requantized) = expected(matrix, RECIPES[one["recipe"]])
        assert {name: one[name] for name in counts} == counts, one["recipe"]
        for table, share, count in (
            ("differences", "transposed_share", "transposed_differ"),
            ("differences", "values_share", "values_differ"),
            ("differences", "codes_share", "codes_differ"),
            ("differences", "scales_share", "scales_differ"),
            ("fates", "underflows_original_share", "underflows_original"),
            ("fates", "underflows_requantized_share", "underflows_requantized"),
            ("fates", "extra_underflows_share", "extra_underflows"),
        ):
            assert result.tables[table][share][i] == counts[count] / matrix.size
        for name, value in measures.items():
            assert one[name] == pytest.approx(value, rel=1e-9, abs=1e-9), (one["recipe"], name)
        for name, copy in (("original", original), ("requantized", requantized)):
            histogram = result.histograms[f"{i + 1:02}_{one['recipe']}_relative_error_{name}"]
            with np.errstate(divide="ignore", invalid="ignore"):
                errors = np.abs((copy.astype(np.float64) - matrix) / np.abs(matrix))
            assert histogram["zeros"] == np.count_nonzero(errors == 0)
            assert histogram["counts"].tolist() == np.histogram(errors[errors > 0], histogram["edges"])[0].tolist()
            binades = result.histograms[f"{i + 1:02}_{one['recipe']}_error_{name}"]
            sizes = np.abs(copy.astype(np.float64) - matrix)
            assert binades["counts"].tolist() == np.histogram(sizes[sizes > 0], binades["edges"])[0].tolist()


def test_differences_in_units_in_the_last_place(matrix):
    result = fp8lab.experiments.transpose(matrix, recipes="ocp_mxfp8_e4m3")
    copy = columnwise(RECIPES["ocp_mxfp8_e4m3"], matrix)
    again = columnwise(RECIPES["ocp_mxfp8_e4m3"], RECIPES["ocp_mxfp8_e4m3"](matrix)[0])
    units = np.exp2(np.maximum(np.frexp(copy[1])[1] - 1, -6) - 3.0) * copy[2]
    differences = (again[0].astype(np.float64) - copy[0]) / units
    histogram = result.histograms["01_ocp_mxfp8_e4m3_difference_ulps"]
    assert histogram["zeros"] == np.count_nonzero(differences == 0) > 0
    assert histogram["counts"].tolist() == np.histogram(differences[differences != 0], histogram["edges"])[0].tolist()


def test_power_of_two_scales_lose_less_than_float_scales():
    result = fp8lab.experiments.transpose(recipes=["te_block_1x128", "te_block_1x128_fp32"])
    power_of_two, floats = result.tables["recipes"]["loss_db"]
    assert abs(power_of_two) < 1e-6
    assert 2.9 < floats < 3.1


def test_outlier_rows_turn_the_loss_as_the_readme_says():
    result = fp8lab.experiments.transpose(outlier_rows=(8, 64), threads=2)
    loss = {one["recipe"]: one["loss_db"] for one in recipes_of(result)}
    assert max(loss["ocp_mxfp8_e4m3"], loss["ocp_mxfp8_e5m2"], loss["ocp_mxfp4"]) < -0.5
    assert f"{loss['te_block_1x128_fp32']:.0f}" == "15"
    assert abs(loss["te_mxfp8"]) < 1e-6 and abs(loss["te_block_1x128"]) < 1e-6


def test_the_readme_says_how_many_amaxes_make_another_scale():
    """Over every mantissa of an amax; its exponent changes nothing."""
    amax = (np.arange(2**23, dtype=np.uint32) | np.uint32(0x3F800000)).view(np.float32)
    scale = F(448) / amax
    scale_inv = F(1) / scale
    again = F(448) / (F(448) * scale_inv)
    assert f"{np.mean(F(1) / again != scale_inv):.1%}" == "6.8%"
    assert f"{np.mean(again != scale):.1%}" == "18.8%"
    # A code's value times the new scale is the code again but for roundings, far from half of its last place.
    codes = np.arange(0x7F, dtype=np.uint8).view(E4M3).astype(np.float32)
    for first in range(0, 2**23, 2**20 + 1):
        some = slice(first, first + 4096)
        back = (codes[:, None] * scale_inv[None, some]) * again[None, some]
        assert (cast(back, E4M3) == codes[:, None]).all()


def test_draws_arrays_and_files_give_the_same(tmp_path):
    drawn = fp8lab.experiments.transpose(
        distribution="laplace",
        seed=3,
        rows=64,
        columns=96,
        outlier_rows=(3, 32.0),
        outlier_columns=(2, 0.5),
        recipes=["te_mxfp8"],
    )
    x = fp8lab.sample("laplace", 64 * 96, seed=3).reshape(64, 96)
    x[[0, 21, 42]] *= 32
    x[:, [0, 48]] *= F(0.5)
    assert told(fp8lab.experiments.transpose(x, recipes=["te_mxfp8"])) == told(drawn)
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    assert told(fp8lab.experiments.transpose(file=tmp_path / "x.npy", recipes="te_mxfp8")) == told(drawn)
    assert told(fp8lab.experiments.transpose(np.asfortranarray(x), recipes="te_mxfp8", threads=3)) == told(drawn)
    assert fp8lab.experiments.transpose(x, recipes="te_mxfp8").arguments["x"] == [
        {"type": "float32", "rows": 64, "columns": 96}
    ]
    assert drawn.arguments["outlier_rows"] == {"count": 3, "factor": 32} and drawn.arguments["x"] == []


def test_bfloat16_and_halves_come_as_they_are():
    x = fp8lab.sample("normal", 64 * 64, seed=1).reshape(64, 64)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        narrow = x.astype(dtype)
        result = fp8lab.experiments.transpose(narrow, recipes=["te_mxfp8", "te_current_scaling"])
        assert result.tables["tensors"]["type"] == np.dtype(dtype).name
        wide = fp8lab.experiments.transpose(narrow.astype(np.float32), recipes=["te_mxfp8", "te_current_scaling"])
        assert told(result) == told(wide)


def test_recipes_of_ones_own_have_the_names_of_their_fields():
    own = [fp8lab.MxBlock(rule="ceil"), fp8lab.MxBlock(format="e5m2", rule="even"), fp8lab.Block(), "te_mxfp8"]
    result = fp8lab.experiments.transpose(rows=128, columns=128, recipes=own)
    names = ["torchao_mxfp8_ceil", repr(own[1]), "te_block_1x128", "te_mxfp8"]
    assert [one["recipe"] for one in recipes_of(result)] == names
    assert recipes_of(result)[1]["format"] == "e5m2"
    one = fp8lab.recipes()[7]
    assert fp8lab.experiments.transpose(rows=64, columns=64, recipes=one).tables["recipes"]["recipe"] == one.name


def test_files(tmp_path):
    result = fp8lab.experiments.transpose(rows=128, columns=128, out=tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"transpose.json", *(f"{table}.csv" for table in ("recipes", "differences", "fates", "tensors")),
                     *(f"{i + 1:02}_{one['recipe']}_{histogram}.csv" for i, one in enumerate(recipes_of(result)) for histogram in HISTOGRAMS)}  # fmt: skip
    assert (tmp_path / "out" / "transpose.json").read_text() == result.to_json()
    with (tmp_path / "out" / "recipes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["recipe"] for row in rows] == [one["recipe"] for one in recipes_of(result)]
    assert [float(row["loss_db"]) for row in rows] == [one["loss_db"] for one in recipes_of(result)]
    assert [int(row["codes_differ"]) for row in rows] == [one["codes_differ"] for one in recipes_of(result)]
    assert "te_mxfp8" in str(result)


def test_a_path_in_the_place_of_the_array_means_file(tmp_path):
    rng = np.random.default_rng(3)
    np.save(tmp_path / "x.NPY", rng.standard_normal((32, 64)).astype(F))
    (tmp_path / "x.NPY.npy").rename(tmp_path / "x.NPY")
    by_file = fp8lab.experiments.transpose(file=tmp_path / "x.NPY", recipes="te_mxfp8")
    for x in (tmp_path / "x.NPY", str(tmp_path / "x.NPY")):
        assert undated(fp8lab.experiments.transpose(x, recipes="te_mxfp8")) == undated(by_file)


def test_wrong_arguments_are_named(tmp_path):
    transpose = fp8lab.experiments.transpose
    for arguments, error, message in [
        ({"x": np.ones(32, F)}, ValueError, r"x must have two dimensions or more, not shape \(32,\)"),
        ({"x": np.ones((32, 32), int)}, TypeError, "x must be float32, float64, float16 or bfloat16, not int64"),
        ({"x": np.ones((32, 0), F)}, ValueError, r"from 1 to 2\^27 elements, not 0 \(shape \(32, 0\)\)"),
        ({"x": np.ones((32, 48), F)}, ValueError, "te_mxfp8: columns must be a multiple of 32"),
        ({"x": np.ones((48, 32), F)}, ValueError, "te_mxfp8: rows must be a multiple of 32"),
        ({"recipes": ["mxfp8"]}, ValueError, "unknown recipe 'mxfp8'; known: te_mxfp8, "),
        ({"recipes": []}, ValueError, "recipes must have at least one entry"),
        ({"recipes": ["te_mxfp8", "te_mxfp8"]}, ValueError, "has te_mxfp8 twice"),
        ({"recipes": [3]}, TypeError, "recipes must be a name .str. or a Recipe"),
        ({"recipes": "te_nvfp4_rht"}, ValueError, "te_nvfp4_rht transforms only the columnwise values"),
        ({"recipes": [fp8lab.NvFp4(stochastic_rounding=True)]}, ValueError, "needs random bits"),
        ({"distribution": "gauss"}, ValueError, "unknown distribution 'gauss'"),
        ({"rows": 0}, ValueError, "rows and columns must be 1 or more, not 0 and 1024"),
        ({"rows": 1.5}, TypeError, "rows must be an int"),
        ({"rows": 2**30}, ValueError, "rows \\* columns must be at most 2\\^27, not 1073741824 \\* 1024"),
        ({"outlier_rows": 3}, TypeError, r"outlier_rows must be a tuple of two numbers, \(count, factor\)"),
        ({"outlier_rows": (2000, 2.0)}, ValueError, "the count of outlier_rows must be from 0 to 1024, not 2000"),
        ({"outlier_columns": (1, 0.0)}, ValueError, "the factor of outlier_columns must be positive"),
        ({"tensor": "w"}, ValueError, "tensor can be given only with file"),
        ({"x": np.ones((32, 32), F), "seed": 1}, ValueError, "seed cannot be given with x"),
        ({"file": tmp_path / "none.npy"}, OSError, "cannot read"),
        ({"x": tmp_path / "none"}, OSError, "cannot read .*none: there is no such file"),
        ({"x": "none.npy"}, OSError, "cannot read none.npy: there is no such file"),
        ({"x": "normal"}, ValueError, "an index or a folder, not 'normal'"),
        ({"x": "a.npy", "file": "b.npy"}, ValueError, "x cannot be given with file"),
        ({"x": "a.npy", "seed": 2}, ValueError, "seed cannot be given with x"),
        ({"threads": 0}, ValueError, "threads must be from 1"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            transpose(**arguments)
    np.save(tmp_path / "one.npy", np.ones(64, F))
    with pytest.raises(ValueError, match=r"must have two dimensions or more, not shape \(64,\)"):
        transpose(file=tmp_path / "one.npy")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="not a directory"):
        transpose(rows=64, columns=64, recipes="te_mxfp8", out=tmp_path / "file")


def test_ctrl_c_stops_it_and_leaves_nothing(tmp_path):
    with interrupted_after(0.3):
        fp8lab.experiments.transpose(rows=4096, columns=4096, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
