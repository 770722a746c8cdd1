# SPDX-License-Identifier: Apache-2.0
"""The experiments on casts: every number recomputed with NumPy and ml_dtypes, which share no code with fp8lab."""

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import interrupted_after, splitmix

FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
SMALLEST_NORMAL = {"e4m3": 2.0**-6, "e5m2": 2.0**-14}


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    """Seeded float32 over 24 binades, with zeros; nothing that 3.7 times itself is beyond 448."""
    words = splitmix(5, 300_000).astype(np.uint32)
    exponents = np.uint32(0x3C800000) - ((words >> np.uint32(3)) % np.uint32(24) << np.uint32(23))
    x = ((words & np.uint32(0x807FFFFF)) | exponents).view(np.float32) * np.float32(2**11)
    x[::1000] = 0
    return x[np.abs(x) < 120]


def rows_of(document):
    """The row of each cast: its errors and its counts."""
    return [
        {**errors, **fates}
        for errors, fates in zip(document.tables["casts"].rows, document.tables["fates"].rows, strict=True)
    ]


def told(document):
    """The rows and histograms, the same for the same values, wherever they come from; NaN compares as its text."""
    counts = {
        name: {key: np.asarray(value).tolist() for key, value in one.items()}
        for name, one in document.histograms.items()
    }
    return repr((rows_of(document), counts))


def binned(values: np.ndarray, histogram: dict) -> list[int]:
    """What np.histogram counts in the histogram's bins, whose last one it closes: values on that edge go."""
    edges = np.array(histogram["edges"])
    kept = values[(values >= edges[0]) & (values < edges[-1])]
    return np.histogram(kept, edges)[0].tolist()


@pytest.mark.parametrize("scale", [1.0, 3.7])
@pytest.mark.parametrize("format", FP8)
def test_a_seeded_array_gives_what_numpy_and_ml_dtypes_compute(values, format, scale):
    document = fp8lab.experiments.cast(values, formats=[format], scales=[scale])
    [cast] = rows_of(document)
    scaled = values * np.float32(scale)
    cast_values = scaled.astype(FP8[format])
    back = cast_values.astype(np.float32) * (np.float32(1) / np.float32(scale))
    x, error = values.astype(np.float64), back.astype(np.float64) - values.astype(np.float64)
    # Sums of 300,000 terms in different orders: relative 1e-12 leaves room for n * 2^-53 and for the mean's
    # cancellation.
    assert cast["sqnr_db"] == pytest.approx(10 * np.log10((x**2).sum() / (error**2).sum()), abs=1e-10)
    assert cast["rms_error"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-12)
    assert cast["mean_error"] == pytest.approx(error.mean(), rel=1e-9, abs=1e-14)
    assert cast["mean_absolute_error"] == pytest.approx(np.abs(error).mean(), rel=1e-12)
    assert cast["max_absolute_error"] == np.abs(error).max()
    assert cast["compared"] == values.size and cast["not_finite"] == 0

    decoded = np.abs(cast_values.astype(np.float64))
    counts = {
        "zeros": np.count_nonzero(x == 0),
        "underflows": np.count_nonzero((x != 0) & (decoded == 0)),
        "subnormals": np.count_nonzero((decoded > 0) & (decoded < SMALLEST_NORMAL[format])),
        "saturated": 0, "infinities_in": 0, "infinities_out": 0, "nans_in": 0, "nans_out": 0,
    }  # fmt: skip
    assert {name: cast[name] for name in counts} == counts
    for name in ("zeros", "underflows", "subnormals", "saturated"):
        assert cast[f"{name}_share"] == counts[name] / values.size

    histograms = {
        name: document.histograms[f"01_{format}_{name}"] for name in ("error", "relative_error", "ulp_error", "codes")
    }
    codes = np.bincount(cast_values.view(np.uint8), minlength=256)
    assert histograms["codes"]["counts"].tolist() == codes.tolist()
    wrong = np.abs(error[error != 0])
    assert histograms["error"]["counts"].tolist() == binned(wrong, histograms["error"])
    assert histograms["error"]["zeros"] == np.count_nonzero(error == 0)
    relative = (np.abs(error[x != 0] / np.abs(x[x != 0])))[error[x != 0] != 0]
    assert histograms["relative_error"]["counts"].tolist() == binned(relative, histograms["relative_error"])
    mantissa = {"e4m3": 3, "e5m2": 2}[format]
    ulp = 2.0 ** (
        np.maximum(np.floor(np.log2(np.abs(scaled[x != 0].astype(float)))), np.log2(SMALLEST_NORMAL[format])) - mantissa
    )
    in_ulps = (cast_values.astype(np.float64)[x != 0] - scaled[x != 0].astype(float)) / ulp
    assert histograms["ulp_error"]["counts"].tolist() == binned(in_ulps[in_ulps != 0], histograms["ulp_error"])
    assert np.abs(in_ulps).max() <= 0.5


def test_doubles_and_halves_are_cast_directly():
    above_the_tie = np.array([1.0625 + 2.0**-40])
    [cast] = rows_of(fp8lab.experiments.cast(above_the_tie, formats="e4m3"))
    assert cast["mean_error"] == 1.125 - above_the_tie[0]
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = splitmix(9, 4096).astype(np.uint16).view(dtype)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            x = x[np.isfinite(x)]
        result = fp8lab.experiments.cast(x, formats=["e4m3"], profiles=["cuda_satfinite"])
        error = fp8lab.cast_to_representable(x, "e4m3").astype(np.float64) - x.astype(np.float64)
        [cast] = rows_of(result)
        assert result.tables["tensors"]["type"] == [np.dtype(dtype).name]
        assert cast["max_absolute_error"] == np.abs(error).max()
        assert cast["mean_absolute_error"] == pytest.approx(np.abs(error).mean(), rel=1e-12)


def test_draws_the_grid_and_files_are_what_the_library_draws_and_reads(tmp_path):
    def casts(*arguments, **named):
        return told(fp8lab.experiments.cast(*arguments, formats=["e5m2"], amax=[4], **named))

    drawn = fp8lab.sample("laplace", 5000, seed=3)
    np.save(tmp_path / "x.npy", drawn)
    assert casts(distribution="laplace", seed=3, size=5000) == casts(drawn) == casts(file=tmp_path / "x.npy")
    assert casts(grid=True, size=999) == casts(fp8lab.normal_grid(999), grid=False)
    assert casts(drawn, threads=3) == casts(drawn)


def test_the_exact_sqnr_and_the_best_scale():
    result = fp8lab.experiments.cast(grid=True, formats=["e4m3", "e8m0"], scales=[1, 2], exact=True)
    exact = result.tables["casts"]["exact_sqnr_db"]
    assert exact.tolist()[:2] == [
        fp8lab.exact_sqnr_db("e4m3", "normal"),
        fp8lab.exact_sqnr_db("e4m3", "normal", scale=2),
    ]
    assert np.isnan(exact[2:]).all()
    assert exact[0] == pytest.approx(31.5211, abs=0.51e-4)  # four decimals of a 40-digit computation
    best = fp8lab.best_scale("e5m2", "normal")
    [cast] = rows_of(fp8lab.experiments.cast(size=10, formats="e5m2", best_scale=True))
    assert cast["scale"] == best.scale and cast["is_best_scale"]
    assert best.sqnr_db == pytest.approx(25.5821, abs=1e-3) and best.sqnr_db >= fp8lab.exact_sqnr_db(
        "e5m2", "normal", scale=12.34
    )


def test_formats_and_profiles_of_ones_own():
    own = fp8lab.Format(4, 2, 7, name="mine\u2026 /")
    profile = fp8lab.Profile(name="odd", rounding="to_odd")
    result = fp8lab.experiments.cast(size=100, formats=[own, "float16"], profiles=[profile])
    assert result.tables["casts"]["format"].tolist() == ["mine\u2026 /", "float16"]
    assert result.tables["casts"]["rounding"].tolist() == ["to_odd"] * 2
    assert "01_mine______error" in result.histograms
    assert "mine\u2026 /" in str(result)


def test_files_are_written_all_of_them(tmp_path):
    result = fp8lab.experiments.cast(size=1000, roundings=["nearest_even", "upward"], out=tmp_path / "new")
    assert (tmp_path / "new" / "cast.json").read_text() == result.to_json()
    names = {f"{row:02}_{format}_{histogram}"
             for row, format in [(1, "e4m3"), (2, "e4m3"), (3, "e5m2"), (4, "e5m2")]
             for histogram in ("error", "relative_error", "ulp_error", "codes")}  # fmt: skip
    assert {path.stem for path in (tmp_path / "new").glob("*.csv")} == names | {"casts", "fates", "tensors"}
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="is not a directory"):
        fp8lab.experiments.cast(size=10, out=tmp_path / "file")
    with pytest.raises(OSError, match="cannot read"):
        fp8lab.experiments.cast(file=tmp_path / "file")


def test_what_has_no_elements_is_refused():
    with pytest.raises(ValueError, match="0 float32 values of an array: there are no elements to cast"):
        fp8lab.experiments.cast(np.float32([]))


@pytest.mark.parametrize("x", [np.float32([np.nan, np.nan]), np.float32([np.inf])])
def test_without_a_finite_value_there_is_no_sqnr(x):
    result = fp8lab.experiments.cast(x)
    assert result.tables["tensors"].rows[0]["shape"] == f"({x.size},)"
    assert (
        np.isnan(result.tables["casts"]["sqnr_db"]).all()
        and np.isnan(result.tables["casts"]["max_absolute_error"]).all()
    )
    assert "How to read it" in str(result)


def test_ctrl_c_stops_it_and_leaves_nothing(tmp_path):
    with interrupted_after(0.2):
        fp8lab.experiments.cast(size=2**40, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": np.int32([1])}, TypeError, "x must be float32, float64, float16 or bfloat16, not int32"),
        ({"x": np.float32([1]), "grid": True}, ValueError, "grid cannot be given with x"),
        ({"file": "x", "distribution": "normal"}, ValueError, "distribution cannot be given with file"),
        ({"x": np.float32([1]), "size": 3}, ValueError, "size cannot be given with x"),
        ({"x": np.float32([1]), "exact": True}, ValueError, "not a tensor"),
        ({"formats": []}, ValueError, "formats must have at least one entry"),
        ({"formats": ["e4m4"]}, ValueError, "unknown format 'e4m4'; known: e4m3"),
        ({"formats": ["e4m3", "e4m3"]}, ValueError, "has e4m3 twice"),
        ({"formats": [3]}, TypeError, "formats must be a name"),
        ({"profiles": ["cuda"]}, ValueError, "unknown profile 'cuda'; known: "),
        ({"roundings": ["stochastic"]}, ValueError, "'stochastic'; known: nearest_even"),
        ({"scales": [0]}, ValueError, "scales must be positive and finite, not 0"),
        ({"scales": ["1"]}, TypeError, "scales must be a number"),
        ({"scales": "1"}, TypeError, "scales must be a number"),
        ({"amax": [float("nan")]}, ValueError, "amax must be positive and finite"),
        ({"distribution": "gauss"}, ValueError, "unknown distribution 'gauss'; known: normal"),
        ({"distribution": 1}, TypeError, "distribution must be a name"),
        ({"size": 0}, ValueError, "size must be from 1 to 2.40, not 0"),
        ({"size": 2**27, "grid": True}, ValueError, "size must be from 1 to 2.26, not 134217728"),
        ({"out_dtype": "float16"}, ValueError, "out_dtype: unknown out_dtype 'float16'; known: float32, source"),
        ({"grid": 1}, TypeError, "grid must be a bool"),
        ({"tensor": "w"}, ValueError, "tensor can be given only with file"),
        ({"file": 3}, TypeError, "file must be a path"),
        ({"out": "a\0b"}, ValueError, "without NUL"),
        ({"formats": "e8m0", "best_scale": True}, ValueError, "best_scale of 'e8m0'"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        fp8lab.experiments.cast(**arguments)


def test_double_rounding_counts_what_ml_dtypes_counts(tmp_path):
    result = fp8lab.experiments.double_rounding(
        formats=["e4m3", "e5m2"], via_roundings=["nearest_even"], out=tmp_path / "new"
    )
    assert result.tables["summary"]["size"] == [2**23]
    x = np.arange(0x3F800000, 0x40000000, dtype=np.uint32).view(np.float32)
    examples = result.tables["examples"].rows
    for chain in result.tables["chains"].rows:
        direct = x.astype(FP8[chain["format"]]).view(np.uint8)
        middle = x.astype(np.float16 if chain["via"] == "float16" else ml_dtypes.bfloat16)
        twice = middle.astype(np.float32).astype(FP8[chain["format"]]).view(np.uint8)
        where = np.flatnonzero(direct != twice)
        assert chain["count"] == where.size and chain["share"] == where.size / x.size
        assert chain["toward_zero"] == np.count_nonzero(twice < direct)
        first = [row for row in examples if (row["format"], row["via"]) == (chain["format"], chain["via"])]
        assert [row["input"] for row in first] == x[where[:8]].tolist()
        assert [row["via_code"] for row in first] == twice[where[:8]].tolist()
    files = {"double_rounding.json", "summary.csv", "chains.csv", "examples.csv"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == files


def test_the_known_counts_of_double_rounding():
    result = fp8lab.experiments.double_rounding(threads=2)
    assert result.tables["chains"]["count"].tolist() == [32768, 32764, 262144, 262140]
    drawn = fp8lab.experiments.double_rounding(uniform=(-448, 448), via="float16", via_roundings="toward_zero")
    assert f"{100 * drawn.tables['chains']['share'][0]:.2f}" == "0.39"
    assert drawn.tables["chains"]["away"] == [0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"low": 2, "high": 1}, ValueError, "low less than high, not 2 and 1"),
        ({"low": "1"}, TypeError, "low must be a number"),
        ({"high": 1e39}, ValueError, "must be finite"),
        ({"uniform": (1, 2), "low": 1}, ValueError, "uniform cannot be given with low"),
        ({"uniform": 1}, ValueError, "uniform must be two numbers"),
        ({"uniform": (2, 1)}, ValueError, "low < high, both finite in float32, not 2 and 1"),
        ({"size": 5}, ValueError, "size can be given only with uniform"),
        ({"formats": ["bfloat16"]}, ValueError, "at most 8 bits, and bfloat16 has 16"),
        ({"via": []}, ValueError, "via must have at least one entry"),
        ({"via_roundings": ["stochastic"]}, ValueError, "known: nearest_even"),
        ({"out": 5}, TypeError, "out must be a path, not int"),
    ],
)
def test_bad_arguments_of_double_rounding_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        fp8lab.experiments.double_rounding(**arguments)


def test_distributions_and_their_draws():
    assert [d.name for d in fp8lab.distributions()] == ["normal", "uniform", "laplace", "student_t", "lognormal"]
    assert str(fp8lab.distributions()[0]) == "normal: N(0, 1): mean 0, variance 1"
    for distribution in fp8lab.distributions():
        x = fp8lab.sample(distribution, 10_000, seed=1)
        assert x.dtype == np.float32 and x.shape == (10_000,)
        assert np.array_equal(x[:100], fp8lab.sample(distribution.name, 100, seed=1))
        assert not np.array_equal(x, fp8lab.sample(distribution, 10_000, seed=2))
    assert [d.second_moment for d in fp8lab.distributions()] == pytest.approx([1, 1 / 3, 1, 2, np.e**2])
    # u from NumPy's Philox would need its rounds; the uniform ones follow from philox4x32, which has published vectors.
    low, high, _, _ = fp8lab.philox4x32((7, 0, 0, 0), (1, 0))
    u = (high << 32 | low) >> 11
    assert fp8lab.sample("uniform", 8, seed=1)[7] == np.float32(2 * (u + 0.5) / 2**53 - 1)


def test_the_normal_grid_is_the_quantiles_in_the_order_of_the_generator():
    n, state, keys = 1000, 12345, []
    for _ in range(n):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        keys.append(state >> 33)
    grid = fp8lab.normal_grid(n)
    ascending = np.empty_like(grid)
    ascending[np.argsort(keys, kind="stable")] = grid
    assert np.all(np.diff(ascending) > 0) and np.array_equal(ascending, -ascending[::-1])
    assert ascending[841] == pytest.approx(1.0005, abs=5e-4)  # Phi(1) = 0.84134


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fp8lab.sample("gauss", 3, seed=1), ValueError, "known: normal, uniform"),
        (lambda: fp8lab.sample("normal", -1, seed=1), ValueError, "size must be from 0"),
        (lambda: fp8lab.sample("normal", 1.5, seed=1), TypeError, "size must be an int"),
        (lambda: fp8lab.sample("normal", 3, seed=-1), ValueError, "seed must be from 0"),
        (lambda: fp8lab.normal_grid("3"), TypeError, "size must be an int"),
        (lambda: fp8lab.exact_sqnr_db("e8m0", "normal"), ValueError, "formats with a sign"),
        (lambda: fp8lab.exact_sqnr_db("e4m3", "normal", scale=0), ValueError, "scale must be positive"),
        (lambda: fp8lab.exact_sqnr_db("e4m3", 3), TypeError, "distribution must be a name"),
        (lambda: fp8lab.best_scale("float16", "normal"), ValueError, "at most 8 bits"),
    ],
)
def test_wrong_draws_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
