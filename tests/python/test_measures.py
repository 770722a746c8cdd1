# SPDX-License-Identifier: Apache-2.0
import fp8lab
import numpy as np
import pytest


def test_binades_equal_numpy(floats):
    h = fp8lab.histogram(floats, low=-20, high=20)
    magnitude = np.abs(floats[np.isfinite(floats)]).astype(np.float64)
    counts, _ = np.histogram(magnitude, bins=2.0 ** np.arange(-20, 22))
    counts[-1] -= np.count_nonzero(magnitude == 2.0**21)  # NumPy's last bin is closed
    np.testing.assert_array_equal(h.counts, counts)
    assert h.total == floats.size
    assert h.nans == np.isnan(floats).sum() and h.infinities == np.isinf(floats).sum()
    assert h.zeros == (floats == 0).sum() and h.edges[0] == 2.0**-20 and h.edges[-1] == 2.0**21


def test_linear_log_and_code_bins():
    x = np.linspace(0, 1, 11)
    assert fp8lab.histogram(x, "linear", low=0, high=1, count=2).counts.tolist() == [4, 5]
    assert fp8lab.histogram([1.0, 20.0, 300.0], "log", low=1, high=1000, count=3).counts.tolist() == [1, 1, 1]
    h = fp8lab.histogram(np.float32([1, -1, 448]), "code", format="e4m3")
    assert np.flatnonzero(h.counts).tolist() == [0x38, 0x7E, 0xB8]


def test_underflow_and_saturation_are_apart():
    x = np.float32([1e-9, 0, 1, 448, 1000, np.inf, np.nan])
    h = fp8lab.histogram(fp8lab.cast_to_representable(x, "e4m3"), "code", cast_input=x)
    assert (h.underflows, h.saturations, h.zeros, h.nans, int(h.counts.sum())) == (1, 2, 1, 1, 2)


def test_histograms_merge():
    a, b = fp8lab.histogram([1.0, 2.0]), fp8lab.histogram([2.0, 0.0])
    a.merge(b)
    assert a.total == 4 and a.zeros == 1
    assert a.to_csv().startswith("low,high,count\n")
    with pytest.raises(ValueError, match="different bins"):
        a.merge(fp8lab.histogram([1.0], low=0, high=3))


def test_bounds_of_casts_are_where_encode_changes():
    for one in [f for f in fp8lab.formats() if f.bits <= 8 and f.is_signed and f.has_subnormals]:
        for rounding in ("nearest_even", "nearest_away", "toward_zero", "upward", "downward"):
            for sign, bounds in zip((1.0, -1.0), fp8lab.cast_bounds(one, rounding=rounding), strict=True):
                kept = np.nextafter(bounds.underflow, np.inf)
                x = sign * np.array([bounds.underflow, kept, np.nextafter(bounds.saturated, 0.0)])
                code = fp8lab.decode(fp8lab.encode(x, one, rounding=rounding), one)
                every = np.abs(fp8lab.decode(np.arange(1 << one.bits, dtype=np.uint8), one))
                assert code[0] == 0 and code[1] != 0 and abs(code[2]) == every[np.isfinite(every)].max(), (
                    one.name,
                    rounding,
                    bounds,
                )
    assert fp8lab.cast_bounds("e4m3").positive == (2.0**-10, np.nextafter(464.0, 500.0))  # ties go to 0 and to 448
    assert fp8lab.cast_bounds("e5m2", rounding="toward_zero").negative.saturated == 65536.0
    with pytest.raises(ValueError, match="unknown rounding 'stochastic'; known: nearest_even, "):
        fp8lab.cast_bounds("e4m3", rounding="stochastic")


def test_outcomes_are_counted_as_a_cast_with_a_scale_makes_them(floats):
    with np.errstate(invalid="ignore"):  # signalling NaN
        x = np.concatenate([floats[: 1 << 16], np.float32([0, -0.0, np.inf, -np.inf, np.nan])]).astype(np.float64)
    scaled = x * 2.0**30
    result = fp8lab.decode(fp8lab.encode(scaled, "e4m3"), "e4m3")
    counts = fp8lab.count_outcomes(fp8lab.cast_bounds("e4m3"), x, scaled, result)
    finite = np.isfinite(x) & (x != 0)
    assert (counts.zeros, counts.nans, counts.infinities) == ((x == 0).sum(), np.isnan(x).sum(), np.isinf(x).sum())
    assert (
        counts.underflows == (finite & (np.abs(scaled) <= 2.0**-10)).sum() > 0
    )  # half of the smallest subnormal, a tie to 0
    assert counts.saturated == (finite & (np.abs(scaled) > 464)).sum() > 0  # 448 and half a unit, a tie to 448
    scaled[0] = np.inf
    assert fp8lab.count_outcomes(fp8lab.cast_bounds("e4m3"), x[:1], scaled[:1], [448.0]).saturated == 1
    assert (
        fp8lab.count_outcomes(fp8lab.cast_bounds("e4m3"), x[:1], scaled[:1], [448.0], scaled_range="finite").saturated
        == 0
    )
    counts.merge(counts)
    assert counts.zeros == 2 * (x == 0).sum()
    with pytest.raises(ValueError, match=r"scaled must have the shape of x, \(1,\), not \(2,\)"):
        fp8lab.count_outcomes(fp8lab.cast_bounds("e4m3"), [1.0], [1.0, 2.0], [1.0])
    with pytest.raises(TypeError, match="bounds must be a CastBounds, not "):
        fp8lab.count_outcomes((1, 2), [1.0], [1.0], [1.0])


def test_error_measures():
    actual, reference = np.float32([1, 2, 4]), np.float32([1, 1, 5])
    totals = fp8lab.errors(actual, reference)
    assert (totals.count, totals.mean_error, totals.max_relative_error) == (3, 0, 1)
    assert totals.sqnr_db == pytest.approx(10 * np.log10(27 / 2), rel=1e-15)
    totals.merge(fp8lab.errors([1.0], [np.nan]))
    assert totals.not_finite == 1
    assert fp8lab.absolute_error(actual, reference).tolist() == [0, 1, -1]
    assert fp8lab.relative_error(actual, reference).tolist() == [0, 1, -0.2]
    assert fp8lab.ulp_error([1 + 2.0**-22], [1.0]).tolist() == [2]
    assert fp8lab.ulp_error([1.0], [1.25], format="e4m3").tolist() == [-2]


def test_arrays_are_measured_as_their_elements_are(floats):
    actual, reference = floats[:9001], floats[::-1][:9001]  # more than two blocks of sums, NaN and infinity among them
    for error in (fp8lab.absolute_error, fp8lab.relative_error, fp8lab.ulp_error):
        one = [float(error(a, r)) for a, r in zip(actual[:500], reference[:500], strict=True)]
        np.testing.assert_array_equal(error(actual[:500], reference[:500]), one)
    own = fp8lab.errors(actual, reference)
    for kind in (np.float64, ">f4"):
        with np.errstate(invalid="ignore"):  # a signalling NaN
            a, r = actual.astype(kind), reference.astype(kind)
        assert fp8lab.errors(a, r) == own
        assert fp8lab.errors(actual, r) == own
        assert fp8lab.histogram(a) == fp8lab.histogram(actual)
    linear = fp8lab.histogram(actual, "linear", low=-1, high=1, count=30)
    for value in actual[:200]:
        assert fp8lab.histogram(value, "linear", low=-1, high=1, count=30).total == 1
    parts = fp8lab.histogram(actual[:77], "linear", low=-1, high=1, count=30)
    parts.merge(fp8lab.histogram(actual[77:], "linear", low=-1, high=1, count=30))
    assert parts == linear


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: fp8lab.histogram([1.0], "square"),
            ValueError,
            "unknown bins 'square'; known: linear, log, binade, code",
        ),
        (lambda: fp8lab.histogram([1.0], "linear"), ValueError, "low and high are needed"),
        (lambda: fp8lab.histogram([1.0], "log", low=0, high=1), ValueError, "0 < low"),
        (lambda: fp8lab.histogram(["a"]), TypeError, "values must hold real numbers"),
        (
            lambda: fp8lab.histogram([1.0], cast_input=np.float32([1, 2])),
            ValueError,
            "cast_input must have the shape of values",
        ),
        (lambda: fp8lab.histogram([1.0], cast_input=np.float32([1]), rounding="x"), ValueError, "unknown rounding 'x'"),
        (lambda: fp8lab.histogram([1.0], np.array([1, 2])), TypeError, "bins must be a name"),
        (lambda: fp8lab.histogram(np.longdouble([1.0])), TypeError, "values must hold real numbers"),
        (lambda: fp8lab.errors([1.0], [1.0, 2.0]), ValueError, "must have the same shape"),
        (lambda: fp8lab.ulp_error([1.0], [1.0], format="e9m9"), ValueError, "unknown format 'e9m9'"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_totals_show_their_sqnr():
    totals = fp8lab.errors(np.float32([1, 2]), np.float32([1, 2.5]))
    assert repr(totals) == "<fp8lab.ErrorTotals of 2 pairs, and 0 not finite: SQNR 14.6240 dB>"  # 10 log10(7.25 / 0.25)
    assert repr(fp8lab.ErrorTotals()) == "<fp8lab.ErrorTotals of 0 pairs, and 0 not finite>"


def test_a_name_whose_words_are_in_another_is_taken_for_that():
    with pytest.raises(ValueError, match=r"unknown model 'ada_fp8'; .* did you mean ada_mma_fp8\?"):
        fp8lab.GemmRecipe("ada_fp8")
