# SPDX-License-Identifier: Apache-2.0
"""What diagnose() says of NumPy kernels whose defects lie beside those of ``planted.DEFECTS``: how it says it, and
where."""

import dataclasses
import re

import fp8lab
import numpy as np
import pytest
from sampled import EXHAUSTIVE, sampled

pytestmark = pytest.mark.sample(5, tests=6)

planted = pytest.importorskip("planted", reason="ml_dtypes is not installed")
F = np.float32
X = planted.X


@pytest.mark.parametrize(
    ("scale", "departures"), [(np.abs(X).max(), ("stored_amax",)), (3.14159, ()), (0, ()), (np.nan, ())]
)
def test_a_single_scale_has_no_other_place(scale, departures):
    codes, _ = planted.tensorwise(X)
    found = fp8lab.diagnose(X, codes, np.array([scale], F), expected="te_current_scaling")
    first = found.explanations[0]
    assert first.base == "te_current_scaling" and first.departures == departures, found
    assert found.explained == bool(departures) and first.codes == 0, found


def scales_of(x):
    return (np.maximum(planted.amax_of(x, 128), F(1e-4)) / F(448)).astype(F)


def codes_with(x, scales, cast=planted.e4m3, size=128):
    return cast((x / planted.spread(scales, size)).astype(F))


def one_tile(s):
    s[37, 3] = s[37, 2]


def one_row(s):
    s[37] = np.roll(s[37], 1)


def some_halved(s):
    s[np.random.default_rng(0).random(s.shape) < 0.05] *= F(0.5)


@pytest.mark.parametrize(
    ("change", "places"),
    [
        (one_tile, "1 scale is not as predicted.*All lie in row 37 of 64. All lie in column 3 of 4."),
        (one_row, "4 scales are not as predicted.*All lie in row 37 of 64."),
        (some_halved, "scales are not as predicted. Each is the predicted one times 0.5."),
    ],
)
@pytest.mark.parametrize("expected", [None, "deepseek_v3_2024"])
def test_some_tiles_whose_scales_are_wrong_are_told_from_the_rule_of_the_others(change, places, expected):
    scales = scales_of(X)
    right = scales.copy()
    change(scales)
    wrong = np.count_nonzero(scales != right)
    found = fp8lab.diagnose(X, codes_with(X, scales), scales, expected=expected)
    first = found.explanations[0]
    assert first.departures == ("tiles_as_stored",) and found.explained and not found.correct, found
    assert f"{256 - wrong} of 256 scales follow the rule of {first.base}." in " ".join(found.notes), found
    assert re.search(places, " ".join(found.notes)), found
    assert "no rule that was searched" not in found.verdict
    if expected:
        assert first.base == expected and found.tied == 1 or "deepseek" in found.verdict, found


def fnuz(y):
    return np.clip(y, -240, 240).astype(planted.ml_dtypes.float8_e4m3fnuz).view(np.uint8)


#: A cast, and the largest value of its format.
CASTS = {"e5m2": (planted.e5m2, F(57344)), "e4m3fnuz": (fnuz, F(240))}


@pytest.mark.parametrize("format", CASTS)
def test_a_format_that_is_told_is_no_worse_than_bytes(format):
    cast, largest = CASTS[format]
    codes, scales = planted.group(X, cast=cast, largest=largest)
    type_ = {"e5m2": planted.ml_dtypes.float8_e5m2, "e4m3fnuz": planted.ml_dtypes.float8_e4m3fnuz}[format]
    for found in (
        fp8lab.diagnose(X, codes, scales),
        fp8lab.diagnose(X, codes, scales, format=format),
        fp8lab.diagnose(X, codes.view(type_), scales),
    ):
        assert found.explained and f"deepseek_v3_2024, but format is {format} instead of e4m3" in str(found), found


@pytest.mark.parametrize(
    ("defect", "called"),
    [
        (dict(used=lambda s: np.concatenate([s[:, :1], s[:, :-1]], 1)), "scale_of_previous_tile"),
        (dict(after=planted.power_up), "rounding is up"),
        (dict(times=lambda x, f: (x / f).astype(planted.BF16).astype(F)), "product_bfloat16"),
        ("transposed", "codes_transposed"),
    ],
)
@pytest.mark.parametrize(("format", "is_told"), [("e5m2", True), ("e5m2", False), ("e4m3fnuz", True)])
def test_a_defect_is_found_in_another_format(format, is_told, defect, called):
    cast, largest = CASTS[format]
    codes, scales = planted.group(X, cast=cast, largest=largest, **(defect if isinstance(defect, dict) else {}))
    if defect == "transposed":
        codes = np.ascontiguousarray(codes.T)
    found = fp8lab.diagnose(X, codes, scales, format=format if is_told else None, expected="deepseek_v3_2024")
    first = found.explanations[0]
    told = " ".join((*first.changes, *first.departures))
    assert found.explained and not found.correct and first.base == "deepseek_v3_2024", found
    assert f"format is {format} instead of e4m3" in told and called in told, found


def test_columns_in_a_format_that_is_told():
    codes, scales = planted.group(np.ascontiguousarray(planted.TALL.T), cast=planted.e5m2, largest=F(57344))
    found = fp8lab.diagnose(planted.TALL, codes, scales, format="e5m2")
    assert found.explained and found.explanations[0].direction == "columnwise", found


def test_an_expected_recipe_of_mx_in_another_format():
    codes, scales = planted.mx(X, cast=planted.e5m2, largest=F(57344))
    found = fp8lab.diagnose(X, codes, scales, format="e5m2", expected="te_mxfp8")
    assert found.explained and found.explanations[0].description == "te_mxfp8, but format is e5m2 instead of e4m3", (
        found
    )


@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_a_static_scale_is_given_in_any_format(format):
    cast = {"e4m3": planted.e4m3, "e5m2": planted.e5m2}[format]
    codes = cast((X / F(0.01)).astype(F))
    for told in (None, format):
        found = fp8lab.diagnose(X, codes, np.array([0.01], F), format=told)
        assert (
            found.explained
            and found.explanations[0].base.startswith("given_scale")
            and not found.explanations[0].departures
        ), found
        assert (
            "The scale is a given number" in found.verdict
            and "It is right where such a recipe is expected" in found.verdict
        )
        assert not found.correct  # which a scale that nobody expects is not: it may be wrong
    recipe = next(one.recipe for one in fp8lab.recipes() if one.name == "vllm_static")
    expected = "vllm_static" if format == "e4m3" else dataclasses.replace(recipe, format=format)
    assert fp8lab.diagnose(X, codes, np.array([0.01], F), expected=expected).correct


def test_bytes_of_scales_are_first_those_of_a_recipe_that_stores_bytes():
    found = fp8lab.diagnose(X, *planted.mx(X, size=16))
    first = found.explanations[0]
    assert found.explained and "mxfp8" in first.base and "tiles are 1 x 16 instead of 1 x 32" in first.changes, found


@pytest.mark.parametrize("expected", [None, "vllm_nvfp4"])
def test_a_scale_of_the_tensor_that_is_given_is_correct(expected):
    codes, scales, scale = planted.nvfp4(X, amax=9.5)
    for given in (scale, F(1) / scale):
        found = fp8lab.diagnose(X, codes, scales, tensor_scale=given, expected=expected)
        assert found.correct and "The scale of the tensor is the one that was given" in found.verdict, found
    found = fp8lab.diagnose(X, codes, scales, tensor_scale=F(1.5) * scale, expected=expected)
    assert (
        found.explained and not found.correct and "that was given, 424.421, is not the one that was used" in str(found)
    ), found
    assert f"it is {scale:.6g}" in found.verdict
    own = planted.nvfp4(X)
    assert "given" not in fp8lab.diagnose(X, *own[:2], tensor_scale=own[2], expected="te_nvfp4").verdict


@pytest.mark.parametrize(("shape", "seed", "digits"), [((256, 512), 106, 6), ((64, 256), 112, 3)])
def test_a_scale_of_the_tensor_that_is_not_given_is_found_to_its_last_bits(shape, seed, digits):
    # 106: few floats explain all codes, and none with a short mantissa does. 112: scales of tiles saturate, and many
    # floats explain all.
    draw = np.random.default_rng(seed)
    x = draw.standard_normal(shape, dtype=F)
    codes, scales, scale = planted.nvfp4(x, amax=np.abs(x).max() * F(draw.uniform(0.3, 3)))
    found = fp8lab.diagnose(x, codes, scales)
    first = found.explanations[0]
    assert found.explained and first.base == "te_nvfp4" and first.departures == ("tensor_scale_stale",), found
    told = float(re.search(r": it is ([0-9.]+)", first.description)[1])
    assert f"{told:.{digits}g}" == f"{scale:.{digits}g}", found


@pytest.mark.parametrize("name", ["te_nvfp4_4over6", "te_nvfp4_4over6_2d", "te_nvfp4_rht"])
def test_columns_of_a_large_tensor_that_the_model_has_not_are_found_by_the_first_of_them(name):
    x = np.random.default_rng(1).standard_normal((1024, 1024), dtype=F)
    x[700, 900] = 9  # the amax lies in neither the first rows nor the first columns
    q = fp8lab.quantize(x, name, direction="columnwise")
    found = fp8lab.diagnose(x, q.codes, q.scale_codes)
    assert found.correct and found.explanations[0].base == name and found.explanations[0].direction == "columnwise", (
        found
    )


def clamped(s, axis, late):
    first, last = np.take(s, [0], axis), np.take(s, [-1], axis)
    length = s.shape[axis]
    if late:
        return np.concatenate([first, np.take(s, range(length - 1), axis)], axis)
    return np.concatenate([np.take(s, range(1, length), axis), last], axis)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("wraps", [True, False])
def test_stored_scales_of_a_neighbor_are_named(wraps, axis, late):
    codes, scales = planted.group(X)
    moved = np.roll(scales, 1 if late else -1, axis) if wraps else clamped(scales, axis, late)
    found = fp8lab.diagnose(X, codes, moved, expected="deepseek_v3_2024")
    name = f"stored_of_{'previous' if late else 'next'}_{'tile' if axis else 'row'}"
    assert found.explained and found.explanations[0].departures == (name,), found


def test_the_place_of_a_moved_scale_is_where_it_is_stored():
    codes, scales = planted.group(X)
    moved = np.roll(scales.ravel(), 1).reshape(scales.shape)
    moved[1:, 0] = 3
    found = fp8lab.diagnose(X, codes, moved, expected="deepseek_v3_2024")
    assert found.explanations[0].departures == ("stored_one_late",) or "stored_of_previous_tile" in str(found), found
    assert "All lie in column 0 of 4." in " ".join(found.rest), found


def test_an_inverse_that_is_computed_anew_is_one_departure():
    amax = planted.amax_of(X, 128)
    inverse = (F(448) / np.maximum(amax, F(1e-4))).astype(F)
    codes, _ = planted.group(X)
    for expected in (None, "deepseek_v3_2024"):
        found = fp8lab.diagnose(X, codes, inverse, expected=expected)
        assert found.explained and found.explanations[0].departures == ("stored_quotient",), found
        assert (
            "the inverse of the scale is stored" in found.verdict and "no rule that was searched" not in found.verdict
        )
    found = fp8lab.diagnose(X, planted.e4m3((X * planted.spread(inverse, 128)).astype(F)), inverse)
    assert found.explained and "the inverse of the scale is stored" in found.verdict, found
    assert "no rule that was searched" not in found.verdict, found


def test_a_scale_that_is_rounded_after_it_was_used_comes_before_another_recipe():
    codes, scales = planted.group(X)
    first = fp8lab.diagnose(X, codes, planted.power_up(scales)).explanations[0]
    assert first.departures in (("stored_rounded_up",), ("scale_unrounded",)) and not first.changes, first


def test_codes_that_were_not_written_are_not_a_lost_sign():
    codes, scales = planted.group(X)
    for told in (None, "e4m3"):
        found = fp8lab.diagnose(X, np.zeros_like(codes), scales, format=told)
        assert found.verdict.startswith("All codes are 0: nothing was written? The scales are those of "), found
        assert "deepseek_v3_2024" in str(found) and not found.correct, found
    assert fp8lab.diagnose(X, np.zeros_like(codes)).verdict == "All codes are 0: nothing was written?"
    assert fp8lab.diagnose(X, np.zeros_like(codes), 7 * scales).verdict.endswith("No recipe makes the scales.")
    tiny = (X * F(2.0**-40)).astype(F)
    assert fp8lab.diagnose(
        tiny, planted.e4m3(tiny) & 0x80
    ).correct  # a cast without a scale, of numbers that are too small


@pytest.mark.parametrize(("rows", "columns"), [((20, 21), (128, 256)), ((20, 28), (128, 256)), ((5, 6), (0, 512))])
def test_a_block_that_was_not_written_is_named(rows, columns):
    codes, scales = planted.group(X)
    codes = codes.copy()
    codes[slice(*rows), slice(*columns)] = 0
    found = fp8lab.diagnose(X, codes, scales, expected="deepseek_v3_2024")
    assert found.explained and found.explanations[0].departures == ("block_unwritten",), found
    assert (
        f"From element {rows[0] * 512 + columns[0]} to element {rows[1] * 512 - 512 + columns[1] - 1}" in found.verdict
    ), found


def magnitudes(x, axis):
    return np.abs(x).max(axis)


def windows(x, first, end, step=1, largest=magnitudes):
    """The amaxes of parts of tiles of 128."""
    columns = range(0, x.shape[1], 128)
    return np.stack([largest(x[:, c + first : c + end : step], axis=1) for c in columns], axis=1)


@pytest.mark.parametrize(
    ("name", "amax"),
    [
        ("amax_reads_next", windows(X, 0, 129)),
        ("amax_of_first_half", windows(X, 0, 64)),
        ("amax_of_second_half", windows(X, 64, 128)),
        ("amax_of_even_elements", windows(X, 0, 128, 2)),
        ("amax_of_odd_elements", windows(X, 1, 128, 2)),
        ("amax_signed", windows(X, 0, 128, largest=np.max)),
    ],
)
def test_an_amax_of_a_part_is_named(name, amax):
    found = fp8lab.diagnose(X, *planted.group(X, amax=amax), expected="deepseek_v3_2024")
    assert found.explained and found.explanations[0].departures == (name,), found


def in_tiles(x, amax, tile_of_column):
    """Codes and scales of tiles that have any columns."""
    scales = (np.maximum(amax, F(1e-4)) / F(448)).astype(F)
    return planted.e4m3((x / scales[:, tile_of_column]).astype(F)), scales


def amax_between(x, first, last):
    """The amaxes of columns from `first` on, before `last`, of each tile, within the row."""
    ends = [(max(a, 0), min(b, x.shape[1])) for a, b in zip(first, last)]
    return np.stack([np.abs(x[:, a:b]).max(axis=1) for a, b in ends], axis=1).astype(F)


SMALL = np.ascontiguousarray(X[:, :256])
COLUMNS = np.arange(X.shape[1])


@pytest.mark.parametrize("size", [32, 128])
@pytest.mark.parametrize("moved", [1, -1])
def test_an_amax_of_a_window_that_is_moved_is_named(moved, size):
    starts = np.arange(0, 500, size)  # the last tile is shorter
    x = np.ascontiguousarray(X[:, :500])
    codes, scales = in_tiles(x, amax_between(x, starts + moved, starts + size + moved), COLUMNS[:500] // size)
    found = fp8lab.diagnose(x, codes, scales)
    first = found.explanations[0]
    assert found.explained and first.departures == ("amax_of_moved_window",), found
    assert f"the amax is that of a window moved by {moved:+}" in first.description


@pytest.mark.parametrize("count", [8, 96, 112, 120])
@pytest.mark.parametrize("part", ["first", "last"])
def test_an_amax_of_the_first_or_last_elements_is_named(part, count):
    amax = windows(SMALL, 0, count) if part == "first" else windows(SMALL, 128 - count, 128)
    found = fp8lab.diagnose(SMALL, *planted.group(SMALL, amax=amax))
    first = found.explanations[0]
    assert found.explained and first.departures == (f"amax_of_{part}",), found
    assert f"the amax is that of the {part} {count} of 128 elements" in first.description


@pytest.mark.parametrize("part", ["first", "last"])
def test_an_amax_of_the_first_or_last_elements_of_each_row_is_named(part):
    counted = X[:, :96] if part == "first" else X[:, -96:]
    codes, scales = in_tiles(X, magnitudes(counted, 1)[:, None], np.zeros(X.shape[1], int))
    found = fp8lab.diagnose(X, codes, scales)
    first = found.explanations[0]
    assert found.explained and first.departures == (f"amax_of_{part}",), found
    assert f"the amax is that of the {part} 96 elements of each row" in first.description


#: Tiles of 128 that begin early or late: the columns that count in each amax (the first and the one behind the last), the
#: tile of each column, and words of the diagnosis.
EDGES = {
    "early, a tile more": ([-1, 127, 255, 383, 511], [127, 255, 383, 511, 639], (COLUMNS + 1) // 128, "early"),
    "early, with the last": (
        [-1, 127, 255, 383],
        [127, 255, 383, 512],
        (COLUMNS[:-1] + 1) // 128,
        "early, and the last tile has",
    ),
    "early, clipped": (
        [-1, 127, 255, 383],
        [127, 255, 383, 511],
        (COLUMNS[:-1] + 1) // 128,
        "early, and the last element of a row",
    ),
    "late, with the first": ([0, 129, 257, 385], [129, 257, 385, 513], (COLUMNS - 1) // 128, "late"),
    "late, a tile more": (
        [-127, 1, 129, 257, 385],
        [1, 129, 257, 385, 513],
        (COLUMNS + 127) // 128,
        "late, and the first element is",
    ),
    "late, clipped": (
        [1, 129, 257, 385],
        [129, 257, 385, 513],
        (COLUMNS - 1) // 128,
        "late, and the first element of a row",
    ),
}


@pytest.mark.parametrize("edge", EDGES)
def test_tiles_that_begin_elsewhere_are_named_with_what_becomes_of_the_end(edge):
    first, last, tiles, words = EDGES[edge]
    x = X.copy()
    x[0, 0], x[1, 511] = 50, 50  # no other element is as large
    tiles = np.clip(np.append(tiles, tiles[-1])[:512], 0, None)
    found = fp8lab.diagnose(x, *in_tiles(x, amax_between(x, first, last), tiles))
    told = found.explanations[0]
    assert found.explained and told.departures == (f"tile_starts_{edge.split(',')[0]}",), found
    assert found.tied == 1 or all(words in one.description for one in found.explanations[: found.tied]), found
    assert f"tiles begin one element too {words}" in told.description
    assert ("," in words) == (", and" in told.description)


@pytest.mark.parametrize("rows", [60, 61, 62, 63])
@pytest.mark.parametrize("padding", [0, 7, np.nan])
def test_scales_in_the_layout_of_deepgemm_are_named(rows, padding):
    x = np.ascontiguousarray(SMALL[:rows])
    codes, scales = planted.group(x)
    stored = np.full((scales.shape[1], (rows + 3) // 4 * 4), padding, F)
    stored[:, :rows] = scales.T
    for shape in (stored.shape, -1):
        found = fp8lab.diagnose(x, codes, stored.reshape(shape), expected="deepseek_v3_2024")
        name = "stored_transposed" if rows == 60 else "stored_for_tma"
        assert found.explained and found.explanations[0].departures == (name,), found


def test_a_scale_in_the_layout_of_deepgemm_that_is_wrong_is_located():
    x = np.ascontiguousarray(SMALL[:61])
    codes, scales = planted.group(x)
    scales[37, 1] *= F(2)
    stored = np.pad(scales.T, ((0, 0), (0, 3)))
    found = fp8lab.diagnose(x, codes, stored, expected="deepseek_v3_2024")
    assert found.explanations[0].departures == ("stored_for_tma",), found
    assert "1 scale is not as predicted. It is the predicted one times 2. All lie in row 37 of 61." in " ".join(
        found.rest
    ), found


def test_an_amax_of_the_other_axis_is_named():
    x = np.ascontiguousarray(X[:, :64])
    scales = (np.maximum(np.abs(x).max(axis=0), F(1e-10)) / F(448)).astype(F)
    found = fp8lab.diagnose(x, planted.e4m3((x / scales[:, None]).astype(F)), scales, expected="vllm_per_token")
    assert found.explained and "amax_of_other_axis" in found.explanations[0].departures, found


@pytest.mark.parametrize(("format", "least"), [("e4m3", F(2.0**-6)), ("e5m2", F(2.0**-14))])
def test_what_is_flushed_before_it_is_rounded_is_told_from_what_is_flushed_after(format, least):
    cast, largest = {"e4m3": (planted.e4m3, F(448)), "e5m2": CASTS["e5m2"]}[format]
    x = (X * F(2.0) ** np.random.default_rng(1).integers(-20, 1, X.shape)).astype(F)
    flushed = lambda y: cast(np.where(np.abs(y) < least, np.copysign(F(0), y), y))  # noqa: E731
    found = fp8lab.diagnose(
        x, *planted.group(x, cast=flushed, largest=largest), format=format, expected="deepseek_v3_2024"
    )
    assert found.explained and found.explanations[0].departures == ("product_flushed",), found


def block_scales(x, rounding):
    """Scales of E4M3 under one of the tensor, found among all of them: 'down' or 'up'; and E = 448 * 6 / amax."""
    e = (F(2688) / np.abs(x).max()).astype(F)
    product = np.minimum((e * (planted.amax_of(x, 16) * (F(1) / F(6))).astype(F)).astype(F), F(448))
    values = np.arange(127, dtype=np.uint8).view(planted.E4M3).astype(F)
    if rounding == "up":
        return np.searchsorted(values, product, side="left").astype(np.uint8), e
    return (np.searchsorted(values, product, side="right") - 1).astype(np.uint8), e


@pytest.mark.parametrize("rounding", ["down", "up"])
def test_block_scales_that_are_not_rounded_to_nearest_are_named(rounding):
    x = (np.random.default_rng(3).standard_normal((64, 512))).astype(F)
    codes, e = block_scales(x, rounding)
    factor = (F(1) / (codes.view(planted.E4M3).astype(F) * (F(1) / e)).astype(F)).astype(F)
    q = planted.packed(planted.e2m1((x * planted.spread(factor, 16)).astype(F)))
    for options in ({}, {"tensor_scale": e}):
        found = fp8lab.diagnose(x, q, codes, expected="te_nvfp4", **options)
        name = {"down": "block_scale_truncated", "up": "block_scale_rounded_up"}[rounding]
        assert found.explained and found.explanations[0].departures == (name,), found


@pytest.mark.parametrize("kind", ["x / (amax / 6)", "x * (6 / amax)"])
def test_codes_of_nvfp4_that_are_made_before_the_block_scale_is_rounded_are_named(kind):
    x = (np.random.default_rng(4).standard_normal((64, 512))).astype(F)
    _, scales, e = planted.nvfp4(x)
    amax = planted.amax_of(x, 16)
    y = (
        x / planted.spread((amax / F(6)).astype(F), 16)
        if "/ (" in kind
        else x * planted.spread((F(6) / amax).astype(F), 16)
    )
    for options in ({}, {"tensor_scale": e}):
        found = fp8lab.diagnose(x, planted.packed(planted.e2m1(y.astype(F))), scales, expected="te_nvfp4", **options)
        assert found.explained and found.explanations[0].departures == ("scale_unrounded",), found


def nearest_power(s):
    return ((s.view(np.uint32) + np.uint32(0x400000)) & np.uint32(0x7F800000)).view(F)


@pytest.mark.parametrize("expected", ["te_mxfp8", None, "deepseek_v3_2024"])
def test_the_nearest_power_of_two_by_value_is_named(expected):
    if expected == "deepseek_v3_2024":
        kernel = planted.group(X, after=nearest_power)
    else:
        kernel = planted.mx(X, round_scale=nearest_power)
    found = fp8lab.diagnose(X, *kernel, expected=expected)
    assert found.explained and found.explanations[0].departures == ("scale_nearest_power",), found


@pytest.mark.parametrize("largest", [240, 256, 464, 480])
def test_another_largest_value_is_named(largest):
    found = fp8lab.diagnose(X, *planted.group(X, largest=F(largest)), expected="deepseek_v3_2024")
    first = found.explanations[0]
    assert found.explained and first.departures[0].startswith("largest_of_") and str(largest) in first.description, (
        found
    )


@pytest.mark.parametrize("added", [1e-12, 1e-8, 1e-6, 1e-4])
@pytest.mark.parametrize("what", ["amax", "scale"])
def test_an_epsilon_that_is_added_is_named(what, added):
    x = (X * F(added * 1e3)).astype(F)
    amax = planted.amax_of(x, 128)
    scales = ((amax + F(added)) / F(448)).astype(F) if what == "amax" else (amax / F(448)).astype(F) + F(added)
    found = fp8lab.diagnose(x, codes_with(x, scales), scales)
    first = found.explanations[0]
    assert found.explained and first.departures == (f"{what}_plus",), found
    assert re.search(rf"a number is added to the {what}: (0\.0001|{added:g})", first.description), found


def of_all_sizes(added, least=-12, most=12):
    """Tiles of amaxes far above and far below a number, between powers of two in all places."""
    size = 2.0 ** np.random.default_rng(5).uniform(least, most, (64, 2)).repeat(128, axis=1)
    return (np.random.default_rng(6).standard_normal((64, 256)) * added * size).astype(F)


# What a defect is called, and how scales follow from amaxes with an epsilon or a floor, and codes from quotients,
# where it is there.
BESIDE = {
    "to the nearest power of two": ("scale_nearest_power", nearest_power, planted.e4m3),
    "up to a power of two": ("rounding is up", planted.power_up, planted.e4m3),
    "truncation": ("codes are rounded toward_zero", lambda s: s, planted.truncated),
    "for 240": ("largest_of_e4m3fnuz", lambda s: s, planted.e4m3),
}


#: One of each, and each with another; the others behind FP8LAB_EXHAUSTIVE.
NUMBERS = ("amax_plus", "scale_plus", "least_amax", "least_scale_inv")
PAIRS = [(what, beside) for what in NUMBERS for beside in BESIDE]


@pytest.mark.parametrize(("what", "beside"), PAIRS[:: 1 if EXHAUSTIVE else 3])
@pytest.mark.parametrize("number", [F(1e-5), F(1e-8)] if EXHAUSTIVE else [F(1e-5)])
def test_an_epsilon_or_a_floor_is_named_beside_another_defect(what, beside, number):
    called, round_scale, cast = BESIDE[beside]
    largest = F(240) if beside == "for 240" else F(448)
    x = of_all_sizes(number * F(448) if "scale" in what else number)
    amax = planted.amax_of(x, 128)
    scales = {
        "amax_plus": (amax + number) / largest,
        "scale_plus": amax / largest + number,
        "least_amax": np.maximum(amax, number) / largest,
        "least_scale_inv": np.maximum(amax / largest, number),
    }[what]
    scales = round_scale(scales.astype(F))
    found = fp8lab.diagnose(x, cast((x / planted.spread(scales, 128)).astype(F)), scales, expected="deepseek_v3_2024")
    first = found.explanations[0]
    told = " ".join((*first.changes, *first.departures))
    assert found.explained and re.search(called, told) and what in told, found
    assert f"{number:g}" in first.description, found


def nearest_powers_with(what, x, number, is_mx):
    """Codes and scales that are rounded to the nearest power of two, by value."""
    amax = planted.amax_of(x, 32 if is_mx else 128)
    amax = amax + number if what == "amax_plus" else np.maximum(amax, number) if what == "least_amax" else amax
    if is_mx:
        return planted.mx(x, amax=amax, round_scale=nearest_power)
    scales = (amax / F(448)).astype(F)
    scales = (
        scales + number if what == "scale_plus" else np.maximum(scales, number) if what == "least_scale_inv" else scales
    )
    scales = nearest_power(scales)
    return codes_with(x, scales), scales


#: What beside which recipe, and the sizes of most tiles: nearly all lie below the number, or few.
NEAREST = [
    ("scale_plus", "deepseek_v3_2024", -24, 1),
    ("least_amax", "te_mxfp8", -24, 1),
    ("amax_plus", None, -2, 22),
    ("amax_plus", "te_mxfp8", -12, 12),
    ("least_amax", "deepseek_v3_2024", -6, 6),
    ("least_scale_inv", None, -12, 12),
    ("least_amax", None, -2, 22),
    ("least_scale_inv", None, -24, 1),
    ("least_scale_inv", "deepseek_v3_2024", -24, 1),
    ("scale_plus", None, -24, 1),
]


@pytest.mark.parametrize(("what", "expected", "least", "most"), NEAREST[: None if EXHAUSTIVE else 5])
def test_a_number_that_most_or_few_tiles_show_is_named_beside_the_nearest_power_of_two(what, expected, least, most):
    number = F(1e-8)
    x = of_all_sizes(number * F(448) if "scale" in what else number, least, most)
    found = fp8lab.diagnose(x, *nearest_powers_with(what, x, number, is_mx=expected == "te_mxfp8"), expected=expected)
    first = found.explanations[0]
    told = " ".join((*first.changes, *first.departures))
    assert found.explained and "nearest" in told and what in told and "1e-08" in first.description, found


def test_roundings_to_the_nearest_power_of_two_that_make_the_same_scales_are_both_named():
    size = 2.0 ** np.arange(-20, -4)[:, None]
    x = (np.random.default_rng(6).uniform(-1, 1, (16, 256)) * size).astype(F)
    x[:, ::128] = 448 * 1.1 * size  # nothing between the square root of 2 and 1.5
    for what in ("nothing", "least_scale_inv"):
        verdict = fp8lab.diagnose(x, *nearest_powers_with(what, x, F(1e-4), False), expected="deepseek_v3_2024").verdict
        assert "to the nearest power of two, by their value" in verdict and "rounding is nearest_by_log2" in verdict, (
            verdict
        )


@pytest.mark.parametrize(("what", "number"), [("least_amax", F(1e-5)), ("amax_plus", F(1e-8))])
def test_an_epsilon_or_a_floor_of_scales_that_are_powers_of_two_is_named(what, number):
    x = of_all_sizes(number)
    amax = planted.amax_of(x, 32)
    found = fp8lab.diagnose(
        x, *planted.mx(x, amax=amax + number if what == "amax_plus" else np.maximum(amax, number)), expected="te_mxfp8"
    )
    first = found.explanations[0]
    assert (
        found.explained and what in " ".join((*first.changes, *first.departures)) and f"{number:g}" in first.description
    ), found


def read_with(scales, stride):
    """The scales that tiles meet where rows of them are read that far apart: behind the last one lies something
    else."""
    rows, across = scales.shape
    memory = np.append(scales.ravel(), np.full(rows * stride, 1, scales.dtype))
    return memory[np.arange(rows)[:, None] * stride + np.arange(across)]


@pytest.mark.parametrize(("stride", "expected"), [(5, "te_mxfp8"), (20, None), (1, "deepseek_v3_2024"), (2, None)])
def test_any_row_stride_with_which_scales_are_read_is_named(stride, expected):
    x = planted.tensor(32, 768)
    is_mx = stride in (5, 20)
    codes, scales = (
        planted.mx(x, used=lambda p: read_with(planted.power_up(p), stride))
        if is_mx
        else planted.group(x, used=lambda s: read_with(s, stride))
    )
    found = fp8lab.diagnose(x, codes, scales, expected=expected)
    first = found.explanations[0]
    assert found.explained and first.departures == ("scale_row_stride",), found
    assert f"read with a wrong row stride, of {stride} scales" in first.description, found


def test_a_row_stride_that_is_too_long_is_the_nearest_explanation():
    x = planted.tensor(
        32, 640
    )  # rows of 20 scales, read as if they were padded to 32: rows from 20 on lie behind the last scale
    found = fp8lab.diagnose(x, *planted.mx(x, used=lambda p: read_with(planted.power_up(p), 32)), expected="te_mxfp8")
    first = found.explanations[0]
    assert first.departures == ("scale_row_stride",) and "of 32 scales" in first.description and not found.explained, (
        found
    )
    assert "All lie in rows 20 to 31 of 32, to the end." in " ".join(found.rest), found


@pytest.mark.parametrize("size", [8, 24, 96, 192])
@pytest.mark.parametrize("expected", [None, "te_mxfp8"])
def test_the_number_of_scales_tells_the_length_of_tiles(size, expected):
    x = np.ascontiguousarray(X[:, :384])
    found = fp8lab.diagnose(x, *planted.mx(x, size=size), expected=expected)
    first = found.explanations[0]
    assert found.explained and f"tiles are 1 x {size} instead of 1 x 32" in first.changes, found


def nvfp4_with(x, change):
    """As planted.nvfp4, with scales of tiles that are changed before they are used and stored."""
    e = F(2688) / np.abs(x).max()
    d = change(planted.e4m3((e * (planted.amax_of(x, 16) * (F(1) / F(6))).astype(F)).astype(F)))
    factor = (F(1) / (d.view(planted.E4M3).astype(F) * (F(1) / e)).astype(F)).astype(F)
    return planted.packed(planted.e2m1((x * planted.spread(factor, 16)).astype(F))), d


@pytest.mark.parametrize("expected", [None, "te_nvfp4"])
def test_some_tiles_of_nvfp4_whose_scales_are_wrong_are_told_from_the_rule_of_the_others(expected):
    def change(d):
        d[37, 3], d[5, 7] = d[37, 2] + 9, d[5, 6] - 9
        return d

    x = (np.random.default_rng(3).standard_normal((64, 256))).astype(F)
    found = fp8lab.diagnose(x, *nvfp4_with(x, change), expected=expected)
    first = found.explanations[0]
    assert (
        first.base == "te_nvfp4" and first.departures == ("tiles_as_stored",) and found.explained and not found.correct
    ), found
    assert "1022 of 1024 scales follow the rule of te_nvfp4. 2 scales are not as predicted." in " ".join(found.notes), (
        found
    )


def test_scales_that_are_one_unit_off_are_told_in_units():
    codes, scales = planted.group(X)
    off = scales.copy()
    off[::9] = np.nextafter(off[::9], F(1))
    found = fp8lab.diagnose(X, codes, off, expected="deepseek_v3_2024")
    assert "They differ from the predicted ones by 1 unit in the last place." in " ".join(found.rest), found


def test_nothing_is_named_where_nothing_fits():
    noise = np.random.default_rng(1).integers(0, 127, X.shape, dtype=np.uint8)
    verdict = fp8lab.diagnose(X, noise, format="e4m3").verdict
    assert verdict == "Cannot tell: nothing fits. No hypothesis explains half of the codes."


@pytest.mark.parametrize("word", [0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0x7F800001])
def test_scales_of_nan_are_equal(word):
    x = X.copy()
    x[3, 5] = np.nan
    amax = planted.amax_of(x, 128)
    codes, scales = planted.group(x, amax=amax)
    assert np.isnan(scales).sum() == 1
    stored = np.where(np.isnan(scales), np.array(word, np.uint32).view(F), scales)
    found = fp8lab.diagnose(x, codes, stored)
    assert found.explained and found.explanations[0].scales == 0, found


def test_a_probe_lists_the_pairs_that_it_does_not_part():
    found = fp8lab.diagnose(X, *planted.mx(X))
    values, digests, alike = found.probe()
    assert values.shape == (128, 256)
    expected = [(i, j) for i in range(len(digests)) for j in range(i + 1, len(digests)) if digests[i] == digests[j]]
    assert [(found.explanations.index(a), found.explanations.index(b)) for a, b in alike] == expected


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_scales_that_are_stored_in_16_bits_are_no_float32_scales(name):
    import ml_dtypes

    x = (SMALL * F(1e-3)).astype(F)
    codes, scales = planted.group(x)
    found = fp8lab.diagnose(
        x, codes, scales.astype(np.dtype(getattr(ml_dtypes, name, np.float16))), expected="deepseek_v3_2024"
    )
    assert not found.correct and found.explanations[0].departures == (f"stored_{name}",), found


def test_what_a_tensor_does_not_tell_apart_is_told_however_few_are_shown():
    made = fp8lab.quantize(SMALL, "ocp_mxfp8_e4m3")
    few, many = (
        fp8lab.diagnose(SMALL, made.codes, made.scale_codes, expected="ocp_mxfp8_e4m3", shown=n) for n in (1, 20)
    )
    assert "does not tell it apart from torchao_mxfp8_floor" in few.verdict and few.verdict == many.verdict
    assert len(few.explanations) > 2


def test_a_recipe_that_explains_all_is_told_beside_a_departure_from_the_expected_one():
    made = fp8lab.quantize(SMALL, "compressed_tensors_mxfp8")
    found = fp8lab.diagnose(SMALL, made.codes, made.scale_codes, expected="vllm_mxfp8")
    assert found.explained and not found.correct
    assert "compressed_tensors_mxfp8" in found.verdict, found


def plain_place(found, base):
    plain = [
        i for i, one in enumerate(found.explanations) if one.base == base and not one.departures and not one.changes
    ]
    assert plain, found
    return plain[0]


def test_the_expected_recipe_is_told_where_nothing_fits():
    codes, scales = planted.group((SMALL + F(1 / 16)).astype(F))
    found = fp8lab.diagnose(SMALL, codes, scales, expected="deepseek_v3_2024")
    assert not found.explained
    plain_place(found, "deepseek_v3_2024")


def test_a_departure_that_explains_nothing_more_does_not_stand_before_its_recipe():
    codes, scales = planted.group(SMALL)
    order = np.random.default_rng(3).permuted(np.tile(np.arange(8), (len(codes), codes.shape[1] // 8, 1)), axis=2)
    swapped = np.take_along_axis(codes.reshape(order.shape), order, axis=2).reshape(codes.shape)  # in each row others
    found = fp8lab.diagnose(SMALL, swapped, scales, expected="deepseek_v3_2024")
    assert not found.explained and plain_place(found, "deepseek_v3_2024") == 0, found


def test_codes_that_differ_at_one_end_of_the_format_are_told_as_such():
    x = (SMALL * F(2) ** np.random.default_rng(8).integers(-14, 1, SMALL.shape)).astype(F)
    codes, scales = planted.group(x)
    early = np.where((codes & 127) == 126, codes - 1, codes)  # saturates at 416
    odd = np.where((codes & 127) < 8, codes & 0xFE, codes)  # an even multiple of the least number
    for wrong, sentence in ((early, "the largest number"), (odd, "None is larger than the least normal number")):
        assert (wrong != codes).sum() > 10
        found = fp8lab.diagnose(x, wrong.astype(np.uint8), scales, expected="deepseek_v3_2024")
        assert not found.explained and sentence in " ".join(found.rest), (found, found.rest)


#: Which scales a kernel reads instead of those of each tile, by name.
READS = {
    "scale_of_first_row": lambda s: np.repeat(s[:1], len(s), 0),
    "scale_of_first_tile": lambda s: np.repeat(s[:, :1], s.shape[1], 1),
    "scale_index_turned": lambda s: s.ravel().reshape(s.shape[::-1]).T,
}


@pytest.mark.parametrize("departure", READS)
@pytest.mark.parametrize("expected", [None, "deepseek_v3_2024"])
def test_scales_that_are_read_at_a_wrong_index_are_named(departure, expected):
    x = np.random.default_rng(4).standard_normal((64, 640)).astype(F)
    scales = scales_of(x)
    found = fp8lab.diagnose(x, codes_with(x, READS[departure](scales)), scales, expected=expected)
    first = found.explanations[0]
    assert (
        found.explained and not found.correct and first.departures == (departure,) and first.base == "deepseek_v3_2024"
    ), found


@pytest.mark.parametrize("size", [512, 128])
@pytest.mark.parametrize("is_garbage", [False, True])
def test_stored_scales_that_no_code_is_made_with_are_compared(size, is_garbage):
    """All rows meet the scales of the first row: those of other rows are right, or explained by nothing."""
    draw = np.random.default_rng(4)
    x = draw.standard_normal((64, 512)).astype(F)
    scales = (np.abs(x).reshape(64, -1, size).max(axis=2) / F(448)).astype(F)
    codes = codes_with(x, np.repeat(scales[:1], 64, 0), size=size)
    if is_garbage:
        scales[1:] = draw.random((63, 512 // size)) * 1000
    found = fp8lab.diagnose(x, codes, scales)
    first = found.explanations[0]
    assert first.departures == ("scale_of_first_row",) and found.explained != is_garbage, found
    assert first.codes == 0 and first.scales == (63 * 512 // size if is_garbage else 0), found
    if is_garbage:
        assert "All lie in rows 1 to 63 of 64" in " ".join(found.rest), found
        assert all(one.unexplained for one in found.explanations), found


def test_stored_scales_of_no_rule_that_no_code_is_made_with_are_not_explained():
    """Scales of another tensor are stored, and each row reads the next one's: the first row's scale says nothing."""
    x = np.random.default_rng(4).standard_normal((64, 512)).astype(F)
    scales = np.random.default_rng(5).uniform(0.004, 0.02, (64, 1)).astype(F)
    found = fp8lab.diagnose(x, codes_with(x, np.concatenate([scales[1:], scales[-1:]]), size=512), scales)
    assert not found.explained and found.explanations[0].scales == 1, found


@pytest.mark.parametrize(
    ("scale", "departure", "told"),
    [
        (lambda x: x.max() / F(448) * 2, "scale_times", ": 2"),
        (lambda x: x.max() / F(416), "largest_of_value", ": 416"),
        (
            lambda x: x[0].max() / F(448),
            "amax_of_first_elements",
            "its first 200 elements (167 to 370 make the same scale)",
        ),
        (lambda x: x.ravel()[:64].max() / F(448), "amax_of_first_elements", "its first 64 elements"),
    ],
)
def test_a_wrong_scale_of_the_tensor_is_told_by_how_it_follows_from_it(scale, departure, told):
    x = np.random.default_rng(4).standard_normal((96, 200)).astype(F)
    scale = F(scale(np.abs(x)))
    codes = planted.e4m3((x / scale).astype(F))
    found = fp8lab.diagnose(x, codes, scale)
    first = found.explanations[0]
    assert found.explained and not found.correct and first.departures == (departure,) and told in first.description, (
        found
    )
    assert any(one.base == "vllm_static" for one in found.explanations[: found.tied]), found
    given = next(
        one.base for one in found.explanations if one.base in ("given_scale", "vllm_static") and not one.departures
    )
    assert fp8lab.diagnose(x, codes, scale, expected=given).correct


@pytest.mark.parametrize("expected", [None, "deepseek_v3_2024"])
@pytest.mark.parametrize(
    ("change", "departure", "told"),
    [
        (lambda a: a / F(416), "largest_of_value", ": 416"),
        (lambda a: a / F(127), "largest_of_value", ": 127"),
        (lambda a: a * F(1.1) / F(448), "amax_times", ": 1.1"),
        (lambda a: a / F(448) * F(1.05), "scale_times", ": 1.05"),
        (lambda a: a / F(448) * F(4), "scale_times", ": 4"),
    ],
)
def test_scales_that_are_a_multiple_of_the_rule_are_told_with_the_number(change, departure, told, expected):
    x = np.random.default_rng(4).standard_normal((96, 640)).astype(F)
    scales = change(planted.amax_of(x, 128)).astype(F)
    found = fp8lab.diagnose(x, codes_with(x, scales), scales, expected=expected)
    first = found.explanations[0]
    assert found.explained and not found.correct and first.base == "deepseek_v3_2024", found
    assert first.departures == (departure,) and first.description.endswith(told), found


def test_a_multiple_that_no_short_number_makes_is_noted():
    x = np.random.default_rng(4).standard_normal((96, 640)).astype(F)
    scales = scales_of(x) * F(1.234567)
    found = fp8lab.diagnose(x, codes_with(x, scales), scales, expected="deepseek_v3_2024")
    assert found.explained and "scale_as_stored" in found.explanations[0].departures, found
    assert "All scales are those of deepseek_v3_2024 times 1.23457." in found.notes, found


def test_the_largest_value_of_another_system_is_told_in_a_format_that_is_told():
    x = np.random.default_rng(4).standard_normal((96, 512)).astype(F)
    scales = (np.abs(x).max(axis=1, keepdims=True) / F(224)).astype(F)
    found = fp8lab.diagnose(x, fnuz(x / scales), scales, format="e4m3fnuz")
    first = found.explanations[0]
    assert found.explained and first.departures == ("largest_of_value",) and first.description.endswith(": 224"), found


def test_bytes_of_scales_that_are_doubled_are_one_departure():
    x = np.random.default_rng(4).standard_normal((64, 512)).astype(F)
    codes, bytes_ = planted.mx(x, round_scale=lambda s: planted.power_up(s) * F(2))
    found = fp8lab.diagnose(x, codes, bytes_, expected="te_mxfp8")
    assert found.explained and found.explanations[0].departures == ("scale_times",), found


@pytest.mark.parametrize(
    "shape", [(64, 128), (128, 64), (256, 128), (256, 256), (32, 128), (128, 1024), (512, 128), (2, 1024)]
)
@pytest.mark.parametrize("expected", [None, "compressed_tensors_block"])
def test_the_number_of_scales_tells_the_shape_of_tiles_of_several_rows(shape, expected):
    height, width = shape
    x = np.random.default_rng(4).standard_normal((512, 1024)).astype(F)
    scales = (np.abs(x).reshape(512 // height, height, 1024 // width, width).max(axis=(1, 3)) / F(448)).astype(F)
    used = np.repeat(np.repeat(scales, height, 0), width, 1)
    found = fp8lab.diagnose(x, planted.e4m3((x / used).astype(F)), scales, expected=expected)
    first = found.explanations[0]
    told = f"tiles are {'all rows' if height == 512 else height} x {'all columns' if width == 1024 else width}"
    assert found.explained and not found.correct and told in first.description, found
    assert expected is None or first.base == expected, found


@pytest.mark.parametrize(("rows", "size"), sampled([(70, 128), (256, 512), (256, 128), (70, 512)], 2))
def test_rows_and_scales_that_were_not_written_are_named_however_few_they_are(rows, size):
    """A grid that is one block too small: codes and scales are 0 from there on."""
    x = np.random.default_rng(4).standard_normal((rows, 512)).astype(F)
    written = (rows - 1) // 64 * 64
    scales = (planted.amax_of(x, size) / F(448)).astype(F)
    codes = codes_with(x, scales, size=size)
    codes[written:], scales[written:] = 0, 0
    found = fp8lab.diagnose(x, codes, scales)
    assert found.explained and set(found.explanations[0].departures) == {"rows_unwritten", "stored_end_unwritten"}, (
        found
    )
    assert f"from row {written} on" in found.verdict and f"from scale {written * 512 // size} on" in found.verdict, (
        found
    )


@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_the_sign_of_a_nan_is_not_compared_but_told(format):
    """0 / 0 of a group of zeros: NaN has a sign on x86 and none on a GPU."""
    x = X.copy()
    x[9, 128:256] = 0
    cast = {"e4m3": planted.e4m3, "e5m2": planted.e5m2}[format]
    scales = (planted.amax_of(x, 128) / F({"e4m3": 448, "e5m2": 57344}[format])).astype(F)
    with np.errstate(invalid="ignore"):
        right = codes_with(x, scales, cast=cast)
    for word in (right[9, 200] & 0x7F, right[9, 200] | 0x80):
        codes = right.copy()
        codes[9, 128:256] = word
        found = fp8lab.diagnose(x, codes, scales, expected="deepseek_v3_2024", format=format)
        assert found.explained and found.correct == (format == "e4m3") and not found.explanations[0].departures, found
        is_told = any(note.startswith("128 codes are NaNs of the other sign than predicted") for note in found.notes)
        assert is_told == (word >= 0x80), found
    codes[9, 130] = 0x40
    assert not fp8lab.diagnose(x, codes, scales, expected="deepseek_v3_2024", format=format).explained


@pytest.mark.parametrize("expected", [None, "vllm_group_ue8m0"])
def test_scales_that_are_stored_before_they_are_rounded_are_one_departure(expected):
    x = np.random.default_rng(4).standard_normal((96, 640)).astype(F)
    scales = (planted.amax_of(x, 128) / F(448)).astype(F)
    found = fp8lab.diagnose(x, codes_with(x, planted.power_up(scales)), scales, expected=expected)
    first = found.explanations[0]
    assert found.explained and not found.correct and first.departures == ("stored_unrounded",), found
    assert expected in (None, first.base), found


@pytest.mark.parametrize("kind", ["x / d", "x * (1 / d)"])
@pytest.mark.parametrize("expected", [None, "te_nvfp4"])
def test_codes_of_nvfp4_that_are_made_without_the_scale_of_the_tensor_are_named(expected, kind):
    x = (np.random.default_rng(4).standard_normal((128, 512)) * 3000).astype(F)
    _, scales, scale = planted.nvfp4(x)
    used = planted.spread(scales.view(planted.ml_dtypes.float8_e4m3fn).astype(F), 16)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = planted.packed(planted.e2m1((x / used if kind == "x / d" else x * (F(1) / used)).astype(F)))
    found = fp8lab.diagnose(x, codes, scales, tensor_scale=scale, expected=expected)
    first = found.explanations[0]
    assert found.explained and not found.correct and first.departures == ("tensor_scale_missing",), found
    assert expected in (None, first.base), found


def test_what_explains_no_more_than_another_with_less_is_not_listed():
    codes, scales = planted.halves_of_blocks(X)
    found = fp8lab.diagnose(X, codes, np.roll(scales, 1), expected="te_mxfp8")
    listed = [(set(one.changes) | set(one.departures), one.codes, one.scales) for one in found.explanations]
    bases = [one.base for one in found.explanations]
    for i in range(found.tied, len(listed)):
        for j in range(i):
            is_within = bases[i] == bases[j] and listed[j][0] < listed[i][0]
            assert not (is_within and listed[j][1] <= listed[i][1] and listed[j][2] <= listed[i][2]), found
