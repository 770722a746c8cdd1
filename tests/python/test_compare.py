# SPDX-License-Identifier: Apache-2.0
"""fp8lab.compare of arrays and of Quantized."""

import re

import fp8lab
import ml_dtypes
import numpy as np
import pytest

X = fp8lab.sample("normal", 64 * 256, seed=3).astype(np.float32).reshape(64, 256)
CODES = fp8lab.encode(X, "e4m3")


def test_equal_arrays_are_equal_and_say_so():
    found = fp8lab.compare(CODES, CODES.copy(), format="e4m3")
    assert found.equal and found.differing == 0 and found.first == () and found.findings == ()
    assert str(found) == "Equal: all 16384 elements, bit for bit."


def test_counts_and_first_mismatches_are_those_of_numpy():
    other = fp8lab.encode(X * np.float32(1.01), "e4m3")
    found = fp8lab.compare(CODES, other, format="e4m3", input=X, shown=4)
    where = np.argwhere(CODES != other)
    assert found.differing == len(where) and not found.equal
    assert [one.place for one in found.first] == [tuple(map(int, place)) for place in where[:4]]
    for one in found.first:
        assert (one.a, one.b, one.input) == (CODES[one.place], other[one.place], X[one.place])
        assert one.value_a == fp8lab.decode(CODES, "e4m3")[one.place]
    assert np.array_equal(found.rows, (CODES != other).sum(1)) and np.array_equal(
        found.columns, (CODES != other).sum(0)
    )
    assert sum(one.below + one.above for one in found.distances) == found.numbers
    text = str(found)
    assert f"Different: {len(where)} of 16384" in text and f"{one.a:02X} = {one.value_a:.9g} in a" in text
    assert repr(found) == text


def test_floats_are_compared_in_units_of_the_last_place():
    b = np.nextafter(X, np.float32(np.inf))
    b[3, 5] = X[3, 5]
    found = fp8lab.compare(X, b)
    assert found.differing == X.size - 1 and found.largest_distance == 1 and found.format == "float32"
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64):
        assert fp8lab.compare(X.astype(dtype), X.astype(dtype)).equal
        assert fp8lab.compare(X.astype(dtype), -X.astype(dtype)).opposite_values == X.size


def test_small_distances_are_counted_one_by_one():
    a = np.repeat(np.arange(1, 13, dtype=np.uint8), 3)
    b = np.full_like(a, 0x40)
    found = fp8lab.compare(b, b - a, format="e4m3")
    assert [one[:3] for one in found.distances] == [(i, i, 3) for i in range(1, 9)] + [(9, 15, 12)]
    assert "  3 values apart: 3 below, 0 above" in str(found) and "  9 to 15 values apart" in str(found)


def test_a_wrong_tile_is_named():
    other = CODES.copy()
    other[7, 64:96] ^= 8
    findings = " ".join(fp8lab.compare(CODES, other, format="e4m3").findings)
    assert "1 of 512 tiles of 1 x 32" in findings and "row 7, column 2 of the tiles" in findings


def test_three_dimensions_and_pairs():
    a = CODES.reshape(4, 16, 256)
    b = a.copy()
    b[2, 3, 4] ^= 1
    assert fp8lab.compare(a, b, format="e4m3").first[0].place == (2, 3, 4)
    packed = fp8lab.pack_pairs(fp8lab.encode(X, "e2m1"))
    other = packed.copy()
    other[1, 2] ^= 0x10
    found = fp8lab.compare(packed, other, format="e2m1", pairs=True)
    assert found.shape == (64, 256) and found.first[0].place == (1, 5)


def test_element_types_carry_formats():
    assert fp8lab.compare(CODES.view(ml_dtypes.float8_e4m3fn), CODES).equal
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(CODES.copy())
    assert fp8lab.compare(tensor.view(torch.float8_e4m3fn), CODES).equal
    assert fp8lab.compare(torch.from_numpy(X).bfloat16(), torch.from_numpy(X).bfloat16()).equal


def test_bytes_with_a_sign_are_codes():
    assert fp8lab.compare(CODES.view(np.int8), CODES, format="e4m3").equal
    assert fp8lab.compare(CODES.view(np.int8), CODES.view(np.int8), format="e4m3").format == "e4m3"


def test_one_of_something_is_called_so():
    one = np.zeros(1, np.uint8)
    assert str(fp8lab.compare(one, one, format="e4m3")) == "Equal: all 1 element, bit for bit."
    text = str(fp8lab.compare(one, one + 1, format="e4m3"))
    assert text.startswith("Different: 1 of 1 element (100 %) of e4m3.") and "Of them: 1 number." in text
    assert "Of them: 1 zero of the other sign." in str(fp8lab.compare(one, one + 0x80, format="e4m3"))
    a, b = np.full(3, 0x38, np.uint8), np.array([0x39, 0x37, 0x37], np.uint8)
    assert "b lies above a 1 time and below it 2 times" in fp8lab.compare(a, b, format="e4m3").findings[0]


def test_quantized_are_compared_by_codes_and_scales():
    q, other = fp8lab.quantize(X, "te_mxfp8"), fp8lab.quantize(X, "ocp_mxfp8_e4m3")
    same = fp8lab.compare(q, fp8lab.quantize(X, "te_mxfp8"))
    assert same.equal and same.findings == ()
    found = fp8lab.compare(q, other, input=X)
    assert found.codes.differing == np.count_nonzero(q.codes != other.codes)
    assert found.scales.differing == np.count_nonzero(q.scale_codes != other.scale_codes)
    assert found.others and "Scales: " in str(found) and any(line.startswith("Scales:") for line in found.findings)
    nv = fp8lab.quantize(X, "te_nvfp4", direction="columnwise")
    assert fp8lab.compare(nv, nv, input=X).equal


def test_what_the_tensor_is_scaled_by_counts():
    given = fp8lab.quantize(X, "vllm_nvfp4", tensor_scale=300.0)
    made = [
        fp8lab.Quantized.from_arrays(given.codes, given.scale_codes, "vllm_nvfp4", tensor_scale=scale)
        for scale in (300.0, 150.0)
    ]
    assert fp8lab.compare(made[0], given).equal  # of which one has no amax, which gives nothing
    other = fp8lab.compare(made[0], made[1])
    assert not other.equal and other.findings == ("The tensor_scale that was given is 300.0 of a and 150.0 of b.",)
    rows = fp8lab.quantize(X, "te_nvfp4_row_scaled")
    amaxes = rows.row_amaxes.copy()
    amaxes[3:5] *= 2
    twice = fp8lab.Quantized.from_arrays(rows.codes, rows.scale_codes, "te_nvfp4_row_scaled", row_amaxes=amaxes)
    (found,) = fp8lab.compare(rows, twice).findings
    assert found.startswith(f"2 of {len(X)} row_amaxes differ; the first, that of 3, is ")
    whole = fp8lab.quantize(X, "vllm_per_tensor")
    assert fp8lab.compare(fp8lab.Quantized.from_arrays(whole.codes, whole.scale_inv, "vllm_per_tensor"), whole).equal
    history = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=2))
    delayed = fp8lab.quantize(X, history)
    assert fp8lab.compare(delayed, delayed).equal
    own = fp8lab.quantize(X, "te_nvfp4")
    halved = fp8lab.Quantized.from_arrays(own.codes, own.scale_codes, "te_nvfp4", amax=own.amax / 2)
    assert "The amax is" in fp8lab.compare(own, halved).findings[-1]


def test_torch_tensors_of_packed_codes_are_their_bytes():
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch has no float4_e2m1fn_x2")
    q = fp8lab.quantize(X, "te_nvfp4")
    codes = torch.from_numpy(q.codes.copy()).view(torch.float4_e2m1fn_x2)
    assert fp8lab.compare(codes, q.codes, format="e2m1", pairs=True).equal
    told = fp8lab.compare(codes, codes)
    assert told.equal and told.format == "e2m1" and told.shape == X.shape
    assert fp8lab.compare(q.codes, codes).equal
    with pytest.raises(TypeError, match="must both hold pairs of codes, or neither, and b is float4_e2m1fn"):
        fp8lab.compare(codes, q.codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn))
    assert fp8lab.compare(fp8lab.Quantized.from_arrays(codes, q.scale_codes, "te_nvfp4", amax=q.amax), q).equal


def test_what_cannot_be_compared_is_refused():
    q = fp8lab.quantize(X, "te_mxfp8")
    for call, kind, message in (
        (lambda: fp8lab.compare(CODES, CODES), ValueError, "format must be given"),
        (lambda: fp8lab.compare(CODES, CODES[:3], format="e4m3"), ValueError, "one shape"),
        (lambda: fp8lab.compare(CODES[:0], CODES[:0], format="e4m3"), ValueError, "must not be empty"),
        (lambda: fp8lab.compare(X, X, format="e4m3"), ValueError, "format is of codes"),
        (lambda: fp8lab.compare(X, X.astype(np.float16)), TypeError, "one element type"),
        (lambda: fp8lab.compare(X.astype(np.int32), X.astype(np.int32)), TypeError, "a must be floats"),
        (lambda: fp8lab.compare(CODES, CODES, format="bfloat16"), TypeError, "16 bits"),
        (lambda: fp8lab.compare(CODES, CODES.view(ml_dtypes.float8_e5m2), format="e4m3"), ValueError, "of one format"),
        (lambda: fp8lab.compare(CODES, CODES, format="e4m3", pairs=True), ValueError, "formats of 4 bits"),
        (lambda: fp8lab.compare(CODES, CODES, format="e4m3", input=X[:3]), ValueError, "input must have shape"),
        (lambda: fp8lab.compare(CODES | 0x40, CODES, format="e2m1"), ValueError, "bits beyond"),
        (lambda: fp8lab.compare("a.npy", "b.npy"), TypeError, "experiments.compare compares files"),
        (lambda: fp8lab.compare(q, CODES), TypeError, "b must be a Quantized"),
        (lambda: fp8lab.compare(q, fp8lab.quantize(X, "te_block_1x128")), ValueError, "scale_format is e8m0 of a"),
    ):  # fmt: skip
        with pytest.raises(kind, match=message):
            call()


def told(a, b, **given):
    return " ".join(fp8lab.compare(a, b, format="e4m3", **given).findings)


SPREAD = (X * np.exp2(np.arange(256) % 24 - 16)).astype(np.float32)
SPREAD_CODES = fp8lab.encode(SPREAD, "e4m3")


def test_codes_that_are_all_subnormal_or_the_largest_are_said_to_be():
    magnitude = SPREAD_CODES & 0x7F
    is_small = (magnitude < 8) & (magnitude > 0)
    flushed = np.where(is_small, SPREAD_CODES & 0x80, SPREAD_CODES).astype(np.uint8)
    said = told(flushed, SPREAD_CODES)
    assert "Every one is subnormal or 0 in a and in b. No element that is equal is of that kind." in said
    flushed[:32] = SPREAD_CODES[:32]
    said = told(flushed, SPREAD_CODES)
    assert f"{is_small[:32].sum()} elements that are equal are of that kind, too." in said
    codes = np.where(magnitude > 0x70, (SPREAD_CODES & 0x80) | 0x7E, SPREAD_CODES).astype(np.uint8)
    other = np.where((codes & 0x7F) == 0x7E, codes | 0x7F, codes).astype(np.uint8)
    assert "Every one has the largest number in b. No element" in told(other, codes)
    assert "Every one has the largest number in a. No element" in told(codes, other)
    one_more = codes.copy()
    one_more[np.nonzero(magnitude == 0x38)] += 1  # of no kind
    assert "Every one" not in told(one_more, other)


def test_exact_ties_are_told_from_what_they_were_made_of():
    x = (np.round(X * 64) / 64).astype(np.float32)
    codes = fp8lab.encode(x, "e4m3")
    values = np.sort(np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64))
    is_tie = np.isin(np.abs(x), (values[1:] + values[:-1]) / 2)
    away = fp8lab.encode(x, "e4m3", rounding="nearest_away")
    assert np.all(is_tie[away != codes])
    equal = (is_tie & (away == codes)).sum()
    said = told(away, codes, input=x)
    assert f"an exact tie: what it was made of lies halfway between a and b. {equal} elements that are equal" in said
    assert "under a scale that is a power of two" in told(away, codes, input=x * 4)
    assert "a has the one whose last bit is 0, as ties to even have" in told(codes, away)
    other = away.copy()
    other[3, 5] ^= 1 if not is_tie[3, 5] else 0
    other[4, 5] ^= 1 if not is_tie[4, 5] else 0
    assert "tie" not in told(other, codes, input=x)
    for special, words in ((np.nan, "a NaN"), (np.inf, "an infinity"), (0, "a zero")):
        made = x.copy()
        made[x == 0] = 1
        made[5, ::17] = special
        wrong = codes.copy()
        wrong[5, ::17] = 0x22
        right = wrong.copy()
        right[5, ::17] = 0x2A
        assert f"Every one was made of {words}. No element" in told(wrong, right, input=made), words


@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
def test_what_a_recipe_makes_of_all_elements_that_differ_is_said(direction):
    """Scales of te_mxfp8 are powers of two, by which float64 divides exactly."""
    x = (np.round(SPREAD * 2**14) / 2**14).astype(np.float32)
    x[7, ::16] = 0
    x = np.ascontiguousarray(x.T if direction == "columnwise" else x)
    q = fp8lab.quantize(x, "te_mxfp8", direction=direction)
    assert not q.transposed and q.scale_codes.size * 32 == x.size
    powers = np.exp2(127.0 - q.scale_codes)
    powers = powers.repeat(32, axis=0 if direction == "columnwise" else 1)
    scaled = x.astype(np.float64) * powers
    values = np.sort(np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64))
    is_tie = np.isin(np.abs(scaled), (values[1:] + values[:-1]) / 2)
    is_subnormal = (np.abs(scaled) < 2.0**-6) & (np.abs(scaled) > 2.0**-10)

    def findings(codes):
        made = fp8lab.Quantized.from_arrays(codes, q.scale_codes, "te_mxfp8", direction=direction, amax=q.amax)
        found = fp8lab.compare(made, q, input=x).codes
        return " ".join(found.findings), found.differing

    said, differing = findings(fp8lab.encode(scaled.astype(np.float32), "e4m3", rounding="nearest_away"))
    equal = is_tie.sum() - differing
    assert differing > 100 and re.search(rf"is an exact tie[^.]*\. {equal} elements that are equal", said), said
    assert said.count("is an exact tie") == 1, said
    small = (q.codes & 0x7F) < 8
    said, differing = findings(np.where(small, q.codes & 0x80, q.codes).astype(np.uint8))
    equal = is_subnormal.sum() - differing
    assert re.search(rf"within the subnormal codes\. {equal} elements that are equal", said), (equal, said)
    zeros = q.codes.copy()
    zeros[x == 0] |= 0x80
    assert "Every one was made of 0. " in findings(zeros)[0]
