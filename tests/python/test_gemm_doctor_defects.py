# SPDX-License-Identifier: Apache-2.0
"""fp8lab.diagnose_gemm on outputs that are a number times the right one, and on kernels that read scales, rows and
products wrong. Each defect is planted in NumPy, in what ``fp8lab.gemm`` is given or in what it gives."""

import importlib
import itertools

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from gemm_recomputed import departure, diagnosed
from gemm_recomputed import diagnosed as recomputed_diagnosis
from sampled import EXHAUSTIVE, sampled

pytestmark = pytest.mark.sample(3, tests=6)

F = np.float32
HOPPER = "hopper_wgmma_fp8"
KINDS = ("normal", "outliers", "lognormal", "sparse") if EXHAUSTIVE else ("outliers",)


def values(kind, rows, columns, seed):
    """Four kinds of tensors; of a sparse one four of five elements are 0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0.1, 1, (rows, columns))
    if kind == "outliers":
        x[:, :: max(columns // 8, 1)] *= 40
    if kind == "lognormal":
        x = np.exp(rng.normal(0, 1.5, x.shape)) * rng.choice([-1, 1], x.shape)
    if kind == "sparse":
        x[rng.random(x.shape) < 0.8] = 0
    return x.astype(F)


def codes(kind, rows, depth, seed):
    x = values(kind, rows, depth, seed)
    return fp8lab.encode(x / F(np.abs(x).max() / 448), "e4m3")


def moved(scale_codes, rng):
    """E8M0 scales that all differ, of which none is the least or NaN."""
    steps = rng.integers(-3, 4, scale_codes.shape)
    return np.clip(scale_codes.astype(int) + steps, 1, 253).astype(np.uint8)


def names(found):
    """The departures of all explanations that explain equally much."""
    return [one.departures[0].name if one.departures else "none" for one in found.explanations[: found.tied]]


def check(found, defect):
    """It is named, and nothing that is wrong is called correct."""
    assert found.explained and not found.correct and departure(found) == defect, (defect, found)


# 1. One number, or one for each row or column.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("factor", "words"),
    [(0.25, "2^-2 (0.25)"), (1 / np.sqrt(128), "1/sqrt(128)"), (2, "2^1 (2)"), (-1, "-2^0 (-1)"), (0.8375, ": 0.8375")],
)
def test_an_output_times_a_number_is_named_with_the_number(kind, factor, words):
    a, b = codes(kind, 24, 256, 1), codes(kind, 20, 256, 2)
    out = fp8lab.gemm(a, b, model=HOPPER, scale_a=0.0123, scale_b=1.7)
    found = diagnosed(a, b, out * F(factor), scale_a=0.0123, scale_b=1.7)
    check(found, "output_scaled")
    assert found.explanations[0].departures[0].factors == (F(factor),) and words in found.verdict, found
    if not EXHAUSTIVE and factor != 0.25:
        return
    narrow = diagnosed(a, b, (out * F(factor)).astype(ml_dtypes.bfloat16), scale_a=0.0123, scale_b=1.7)
    assert not narrow.correct and departure(narrow) == "output_scaled", narrow
    assert abs(narrow.explanations[0].departures[0].factors[0] / factor - 1) < 2**-8, narrow
    assert diagnosed(a, b, out, scale_a=0.0123, scale_b=1.7).correct


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_columns_times_numbers_are_named(kind):
    a, b = codes(kind, 24, 256, 3), codes(kind, 20, 256, 4)
    out = fp8lab.gemm(a, b, model=HOPPER)
    rng = np.random.default_rng(5)
    by_row, by_column = (rng.uniform(0.5, 2, n).astype(F) for n in (24, 20))
    found = diagnosed(a, b, out * by_row[:, None])
    check(found, "rows_scaled")
    assert found.explanations[0].departures[0].factors == tuple(by_row)
    found = diagnosed(a, b, out * by_column)
    check(found, "columns_scaled")
    assert found.explanations[0].departures[0].factors == tuple(by_column)


# 2. Scales of blocks and tiles.


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_mx_blocks_in_a_wrong_place_are_named(kind):
    qx, qw = (fp8lab.quantize(values(kind, n, 512, n) * F(s), "te_mxfp8") for n, s in ((64, 1), (96, 0.02)))
    a, b = qx.scale_codes, qw.scale_codes
    rng = np.random.default_rng(6)
    a, b = moved(a, rng), moved(b, rng)
    four = np.arange(16) // 4 * 4
    for scale_a, scale_b, defect in (
        (a[:, four], b, "first_of_four_scales_a"),
        (a[:, four], b[:, four], "first_of_four_scales"),
        (a.T.reshape(a.shape), b, "scales_a_stored_turned"),
        (a.reshape(16, 64).T, b, "scales_a_read_turned"),
        (a, np.concatenate([b[:1], b[:-1]]), "scale_b_of_previous_row"),
        (np.concatenate([a[1:], a[-1:]]), b, "scale_a_of_next_row"),
        (np.concatenate([a[:, 1:], a[:, -1:]], axis=1), b, "scale_a_of_next_tile"),
        ((a - 1).astype(np.uint8), b, "scales_a_halved"),
        ((a - 1).astype(np.uint8), (b - 1).astype(np.uint8), "scales_halved"),
        (b.ravel()[: a.size].reshape(a.shape), b, "scales_a_of_other"),
    ):
        out = fp8lab.gemm(
            qx.codes, qw.codes, model="blackwell_mxf8", scale_a=np.ascontiguousarray(scale_a), scale_b=scale_b
        )
        check(diagnosed(qx.codes, qw.codes, out, scale_a=a, scale_b=b), defect)
    square = fp8lab.quantize(values(kind, 64, 512, 9), "te_mxfp8")
    own, other = a, moved(square.scale_codes, rng)
    out = fp8lab.gemm(qx.codes, square.codes, model="blackwell_mxf8", scale_a=other, scale_b=own)
    check(diagnosed(qx.codes, square.codes, out, scale_a=own, scale_b=other), "scales_of_other")


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_tiles_and_of_nvfp4_blocks_that_are_read_wrong_are_named(kind):
    a, b = codes(kind, 32, 512, 7), codes(kind, 128, 512, 8)
    rng = np.random.default_rng(9)
    tiles_a = rng.uniform(0.01, 0.03, (32, 4)).astype(F)
    tiles_b = rng.uniform(0.5, 2, (1, 4)).astype(F)

    def powers(x):
        return (x.view(np.uint32) & 0x7F800000).view(F)

    cases = (
        (powers(tiles_a), tiles_b, "scales_a_without_mantissa"),
        (powers(tiles_a), powers(tiles_b), "scales_without_mantissa"),
        (np.ascontiguousarray(tiles_a.reshape(4, 32).T), tiles_b, "scales_a_read_turned"),
        (np.concatenate([tiles_a[:1], tiles_a[:-1]]), tiles_b, "scale_a_of_previous_row"),
        (tiles_a[:, [0, 0, 0, 0]], tiles_b, "first_of_four_scales_a"),
    )
    for scale_a, scale_b, defect in sampled(cases, 2):
        out = fp8lab.gemm(a, b, model=HOPPER, scale_a=np.ascontiguousarray(scale_a), scale_b=scale_b)
        check(diagnosed(a, b, out, scale_a=tiles_a, scale_b=tiles_b), defect)
    # Bytes near 127, so that they are scales near 1 as E8M0.
    words = rng.integers(110, 140, (32, 4, 4)).astype(np.uint8)
    words[:, :, 3] = 0x3F
    tiles_a = words.reshape(32, 16).view(F)
    as_bytes = np.ldexp(F(1), words.ravel()[: tiles_a.size].astype(int) - 127).astype(F).reshape(tiles_a.shape)
    out = fp8lab.gemm(a, b, model=HOPPER, scale_a=as_bytes, scale_b=tiles_b)
    check(diagnosed(a, b, out, scale_a=tiles_a, scale_b=tiles_b), "scale_words_a_as_bytes")
    qa, qb = (fp8lab.quantize(values(kind, n, 256, n), "te_nvfp4") for n in (32, 24))
    given = {"format_a": "e2m1", "format_b": "e2m1"}
    cut = (qa.scale_codes & 0x78).astype(np.uint8)
    out = fp8lab.gemm(qa.codes, qb.codes, model="blackwell_nvf4", scale_a=cut, scale_b=qb.scale_codes, **given)
    found = diagnosed(qa.codes, qb.codes, out, scale_a=qa.scale_codes, scale_b=qb.scale_codes, **given)
    check(found, "scales_a_without_mantissa")


@pytest.mark.parametrize("kind", KINDS)
def test_codes_that_are_taken_for_fnuz_are_named(kind):
    a, b = codes(kind, 24, 256, 10), codes(kind, 20, 256, 11)
    a[3, 5] = 0x80  # -0, which E4M3FNUZ has for NaN
    b[7, 9] = 0x80
    x, y = (fp8lab.decode(one, "e4m3fnuz") for one in (a, b))
    right = fp8lab.gemm(a, b, model=HOPPER)
    out = right * F(0.25)
    out[np.isnan(x).any(1)] = np.nan
    out[:, np.isnan(y).any(1)] = np.nan
    check(diagnosed(a, b, out), "codes_as_fnuz")
    one = right * F(0.5)
    one[np.isnan(x).any(1)] = np.nan
    check(diagnosed(a, b, one), "codes_a_as_fnuz")


# 3. Products, rows and what is added.


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_k_that_are_missing_or_counted_twice_are_named(kind):
    a, b = codes(kind, 24, 512, 12), codes(kind, 20, 512, 13)

    def of(*parts):
        return [np.ascontiguousarray(np.concatenate([one[:, p] for p in parts], axis=1)) for one in (a, b)]

    everything, head, tail = slice(None), slice(0, 64), slice(448, 512)
    cases = (
        ((slice(64, None),), "head_dropped"),
        ((head, everything), "head_twice"),
        ((slice(0, 448),), "tail_dropped"),
        ((everything, tail), "tail_twice"),
    )
    for parts, defect in sampled(cases, 2):
        found = diagnosed(a, b, fp8lab.gemm(*of(*parts), model=HOPPER, promote_k=128))
        check(found, defect)
        assert found.explanations[0].departures[0].depth == (448 if defect == "tail_dropped" else 64)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_exchanged_a_bias_one_off_relu_and_a_narrow_total_are_named(kind):
    a, b = codes(kind, 32, 512, 14), codes(kind, 48, 512, 15)
    out = fp8lab.gemm(a, b, model=HOPPER)
    check(diagnosed(a, b, np.ascontiguousarray(out[np.arange(32) ^ 8])), "rows_exchanged")
    check(diagnosed(a, b, np.ascontiguousarray(out[:, np.arange(48) ^ 8])), "columns_exchanged")
    bias = np.random.default_rng(16).normal(0, float(out.std()), 48).astype(F)
    check(diagnosed(a, b, out + np.roll(bias, -1), bias=bias), "bias_of_next_column")
    found = diagnosed(a, b, np.maximum(out, F(0)))
    assert found.explained and not found.correct and found.explanations[0].recipe.activation == "relu", found
    total = np.zeros((32, 48), F)
    for k in range(0, 512, 64):
        part = fp8lab.gemm(*(np.ascontiguousarray(one[:, k : k + 64]) for one in (a, b)), model=HOPPER)
        total = (total + part).astype(ml_dtypes.bfloat16).astype(F)
    found = diagnosed(a, b, total)
    assert found.explained and not found.correct, found
    assert found.explanations[0].recipe.total_type == "bfloat16", found


# 4. Other blocks of K, promotions, formats, rows and tiles.


def blocks_of(a, b, blocks, length=128):
    at = np.concatenate([np.arange(length * j, length * (j + 1)) for j in blocks])
    return np.ascontiguousarray(a[:, at]), np.ascontiguousarray(b[:, at])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("blocks", "defect"),
    sampled(
        [
            ([0, 1, 2, 4, 5, 6, 7], "k_blocks"),  # the fourth is dropped
            ([0, 1, 2, 2, 3, 4, 5, 6, 7], "k_blocks"),  # one is multiplied twice
            (
                [0, 1, 2, 3, 4, 5, 6, 6],
                "k_blocks",
            ),  # the last stage of a pipeline still has the operands of the one before
            ([1, 1, 2, 3, 4, 5, 6, 7], "k_blocks"),  # the first one has those of the next
            ([0, 1, 2, 3, 0, 1, 2, 3], "k_blocks"),  # each stage has those of four before
            ([7, 6, 5, 4, 3, 2, 1, 0], "k_descending"),
        ],
        6,
    ),
)
def test_blocks_of_k_that_are_stale_or_missing_anywhere_are_named(kind, blocks, defect):
    length = 128 if EXHAUSTIVE else 64
    a, b = codes(kind, 24, 8 * length, 21), codes(kind, 20, 8 * length, 22)
    out = fp8lab.gemm(*blocks_of(a, b, blocks, length), model=HOPPER, scale_a=0.0123, scale_b=1.7)
    found = diagnosed(
        a, b, out.astype(ml_dtypes.bfloat16) if defect == "k_blocks" else out, scale_a=0.0123, scale_b=1.7
    )
    check(found, defect)
    told = found.explanations[0].departures[0]
    if defect == "k_blocks":
        read = [told.depth * j + k for j in told.blocks for k in range(told.depth)]
        assert read == [length * j + k for j in blocks for k in range(length)], told


@pytest.mark.parametrize("kind", KINDS)
def test_promotions_that_go_wrong_are_named(kind):
    a, b = codes(kind, 24, 1024, 23), codes(kind, 20, 1024, 24)

    def part(first, last, start=None):
        c = {} if start is None else {"c": start, "c_enters": "accumulator"}
        return fp8lab.gemm(*(np.ascontiguousarray(x[:, first:last]) for x in (a, b)), model=HOPPER, **c)

    edges = [0, 128, 256, 512, 640, 768, 896, 1024]
    missed = np.zeros((24, 20), F)
    for first, last in zip(edges, edges[1:], strict=False):
        missed = missed + part(first, last)
    kept, never = np.zeros((24, 20), F), np.zeros((24, 20), F)
    before = None
    for j in range(8):
        own = part(128 * j, 128 * j + 128)
        kept = kept + (part(128 * j, 128 * j + 128, before) if j == 3 else own)
        before = own
    going = None
    for j in range(8):
        going = part(128 * j, 128 * j + 128, going)
        never = never + going
    cases = (
        (missed, "promotion_missed", 384),
        (kept, "accumulator_kept", 128),
        (never, "accumulator_never_cleared", 128),
    )
    for out, defect, depth in sampled(cases, 3):
        found = diagnosed(a, b, out)
        check(found, defect)
        assert found.explanations[0].departures[0].depth == depth, found
    if not EXHAUSTIVE:
        return
    assert "before k = 384" in diagnosed(a, b, kept).verdict
    # Two ranges of K and a promotion in its middle are the same bits.
    halves = diagnosed(a, b, part(0, 512) + part(512, 1024))
    assert halves.correct and halves.tied == 2, halves
    assert {(e.recipe.promote_k, e.recipe.range_k) for e in halves.explanations[:2]} == {(512, 0), (0, 512)}, halves


@pytest.mark.parametrize("kind", KINDS)
def test_codes_that_are_read_in_another_format_and_rows_out_of_place_are_named(kind):
    a, b = codes(kind, 32, 512, 25), codes(kind, 48, 512, 26)
    cases = (
        ({"format_a": "e5m2"}, "codes_a_as_other_format"),
        ({"format_b": "e5m2"}, "codes_b_as_other_format"),
    )
    for formats, defect in sampled(cases, 2):
        check(diagnosed(a, b, fp8lab.gemm(a, b, model=HOPPER, **formats)), defect)
    if not EXHAUSTIVE:
        return
    out = fp8lab.gemm(a, b, model=HOPPER)
    rng = np.random.default_rng(27)
    scales = {"scale_a": rng.uniform(0.5, 2, (32, 1)).astype(F), "scale_b": rng.uniform(0.5, 2, (48, 1)).astype(F)}
    scale_a, scale_b = scales["scale_a"], scales["scale_b"][:, 0]
    bias = rng.normal(0, float(out.std()), 48).astype(F)
    for wrong, defect in (
        (out[np.arange(32) ^ 8] * (scale_a * scale_b), "operand_rows_a_exchanged"),
        (out[:, np.arange(48) ^ 8] * (scale_a * scale_b), "operand_rows_b_exchanged"),
        (out * (np.roll(scale_a, -1, 0) * scale_b), "row_scale_a_of_next"),
        (out * (scale_a * np.roll(scale_b, 1)), "row_scale_b_of_previous"),
    ):
        check(diagnosed(a, b, wrong, **scales), defect)
    check(diagnosed(a, b, out + np.roll(bias, 1), bias=bias), "bias_of_previous_column")


@pytest.mark.skipif(not EXHAUSTIVE, reason="--exhaustive has it: 4 seconds for each kind of tensors")
@pytest.mark.parametrize("kind", KINDS)
def test_a_tile_that_goes_on_from_the_accumulators_of_another_is_named(kind):
    a, b = codes(kind, 32, 512, 28), codes(kind, 48, 512, 29)
    right = fp8lab.gemm(a, b, model=HOPPER)
    start = np.zeros_like(right)
    start[16:32, 8:16] = right[16:32, 0:8]
    out = right.copy()
    out[16:32, 8:16] = fp8lab.gemm(a, b, model=HOPPER, c=start, c_enters="accumulator")[16:32, 8:16]
    found = diagnosed(a, b, out)
    check(found, "stale_tile")
    assert found.explanations[0].departures[0].blocks == (16, 8, 16, 8, 16, 0), found


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_blocks_that_wrap_around_or_multiply_sums_are_named(kind):
    qx, qw = (fp8lab.quantize(values(kind, n, 512, n), "te_mxfp8") for n in (32, 24))
    rng = np.random.default_rng(30)
    a, b = (moved(q.scale_codes, rng) for q in (qx, qw))
    for scale_a, scale_b, defect in (
        (np.roll(a, 1, 1), b, "scales_a_from_previous_tile"),
        (a, np.roll(b, -1, 1), "scales_b_from_next_tile"),
        (np.roll(a, 1, 0), b, "scales_a_from_previous_row"),
        (a, np.roll(b, -1, 0), "scales_b_from_next_row"),
    ):
        out = fp8lab.gemm(qx.codes, qw.codes, model="blackwell_mxf8", scale_a=scale_a, scale_b=scale_b)
        check(diagnosed(qx.codes, qw.codes, out, scale_a=a, scale_b=b), defect)
    x, y = (fp8lab.decode(q.codes, "e4m3") for q in (qx, qw))
    total = np.zeros((32, 24), F)
    for j in range(16):
        part = np.zeros((32, 24), F)
        for k in range(32 * j, 32 * j + 32):
            part = part + x[:, k, None] * y[None, :, k]
        powers = np.ldexp(F(1), a[:, j, None].astype(int) + b[None, :, j].astype(int) - 254)
        total = total + part * powers.astype(F)
    promoted = fp8lab.gemm(qx.codes, qw.codes, model="blackwell_mxf8", scale_a=a, scale_b=b, promote_k=32)
    if np.array_equal(total, promoted):  # few products of a block are not 0, whose sums nothing rounds
        assert kind == "sparse" and diagnosed(qx.codes, qw.codes, total, scale_a=a, scale_b=b).correct
        return
    found = diagnosed(qx.codes, qw.codes, total, scale_a=a, scale_b=b)
    check(found, "block_scales_after_sums")
    assert found.explanations[0].models == ("cuda_cores",), found


def test_float32_sums_of_sparse_codes_are_correct_only_where_they_are_a_tensor_cores_bits():
    a, b = codes("sparse", 24, 256, 31), codes("sparse", 20, 256, 32)
    x, y = fp8lab.decode(a, "e4m3"), fp8lab.decode(b, "e4m3")
    out = np.zeros((24, 20), F)
    for k in range(256):
        out = out + x[:, k, None] * y[None, :, k]
    models = (HOPPER, "blackwell_tcgen05_fp8")
    same = [np.array_equal(fp8lab.gemm(a, b, model=model), out) for model in models]
    assert same == [False, True]  # few products are not 0: 25 bits hold their sums
    for model, is_same in zip(models, same, strict=True):
        found = diagnosed(a, b, out, expected=model)
        assert found.correct == is_same and (found.expected_unexplained == 0) == is_same, found


# 5. The departures are what names them.


class Asked:
    """Arguments of a diagnosis, which is made where something asks for more than to check it."""

    def __init__(self, args, given):
        self.args, self.given, self.made = args, given, None

    def __getattr__(self, name):
        if self.made is None:
            self.made = recomputed_diagnosis(*self.args, **self.given)
        return getattr(self.made, name)


def cases_of(test):
    """The arguments of each case of a test."""
    marks = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    choices = []
    for mark in marks:
        names, values = mark.args
        names = [names] if isinstance(names, str) else list(names)
        choices.append([dict(zip(names, one if len(names) > 1 else [one], strict=True)) for one in values])
    for some in itertools.product(*choices):
        yield {name: value for one in some for name, value in one.items()}


def is_of_kinds(one):
    return any(mark.args and mark.args[0] == "kind" for mark in getattr(one, "pytestmark", []))


DEFECT_TESTS = [name for name, one in sorted(globals().items()) if name.startswith("test_") and is_of_kinds(one)]
DEFECT_TESTS.sort(key=lambda name: "fnuz" not in name)  # an ordinary run takes the first, which is quick


@pytest.mark.sample(1000)
@pytest.mark.parametrize("name", DEFECT_TESTS)
def test_without_its_departure_a_defect_has_another_verdict(name, monkeypatch):
    left_out, wrong = [], []
    module = importlib.import_module("fp8lab._gemm_doctor")
    core = module._core

    class Core:
        def __getattr__(self, one):
            return getattr(core, one)

        def diagnose_gemm(self, *args):
            return core.diagnose_gemm(*args[:-2], left_out, args[-1])

    def mutated(asked, defect):
        left_out[:] = [defect]
        monkeypatch.setattr(module, "_core", Core())
        found = fp8lab.diagnose_gemm(*asked.args, **asked.given)
        monkeypatch.setattr(module, "_core", core)
        names = {one.name for one in found.explanations[0].departures} if found.explained else set()
        if found.correct or defect in names:
            wrong.append((defect, found))

    monkeypatch.setitem(globals(), "check", mutated)
    monkeypatch.setitem(globals(), "diagnosed", lambda *args, **given: Asked(args, given))
    for case in cases_of(globals()[name]):
        globals()[name](**case)
    assert not wrong, wrong
