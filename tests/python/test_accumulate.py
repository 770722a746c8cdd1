# SPDX-License-Identifier: Apache-2.0
"""The experiment on sums: recomputed with gemm and with NumPy's exact integers and doubles."""

import csv
import fcntl
from fractions import Fraction

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import interrupted_after


def rows_of(side: int, count: int, k: int, seed: int) -> np.ndarray:
    """Rows of |U(-1, 1)| in E4M3: row i begins at element (2 i + side) * 2^20 of a stream that sample() gives whole."""
    stream = fp8lab.sample("uniform", (2 * (count - 1) + side) * 2**20 + k, seed=seed)
    first = [(2 * i + side) * 2**20 for i in range(count)]
    return np.array([np.abs(stream[i : i + k]).astype(ml_dtypes.float8_e4m3fn) for i in first])


def test_errors_are_those_of_gemm_against_exact_integers(tmp_path):
    k, seed = 1000, 9
    result = fp8lab.experiments.accumulate(
        models="hopper_wgmma_fp8", distributions="abs_uniform", k=[k, 64], promote_k=128, rows=3, columns=2, seed=seed,
    )  # fmt: skip
    points = result.tables["points"]
    assert points["k"].tolist() == [64, k]
    a, b = rows_of(0, 3, k, seed), rows_of(1, 2, k, seed)
    # E4M3 values are multiples of 2^-9: products of whole numbers are exact in int64.
    whole = [np.int64(x.astype(np.float64) * 2**9) for x in (a, b)]
    exact = whole[0] @ whole[1].T
    computed = fp8lab.gemm(a, b, model="hopper_wgmma_fp8", promote_k=128)
    errors = [
        float((Fraction(float(c)) - Fraction(int(e), 2**18)) / Fraction(int(e), 2**18))
        for c, e in zip(computed.flat, exact.flat, strict=True)
    ]
    # Double's rounding of errors of 1e-3, of dot products that are exact in it: 2^-50 leaves room for it.
    for name in ("relative_error", "backward_error"):
        measured = {measure: points[f"{name}_{measure}"] for measure in ("count", "mean", "rms", "median", "largest")}
        assert measured["count"].tolist() == [6, 6]
        assert measured["mean"][1] == pytest.approx(np.mean(errors), abs=2**-50)
        assert measured["rms"][1] == pytest.approx(np.sqrt(np.mean(np.square(errors))), abs=2**-50)
        assert measured["median"][1] == pytest.approx(np.median(np.abs(errors)), abs=2**-50)
        assert measured["largest"][1] == pytest.approx(np.abs(errors).max(), abs=2**-50)
    histogram = list(result.histograms.values())[1]
    assert histogram["counts"].tolist() == np.histogram(np.abs(errors), histogram["edges"])[0].tolist()


def test_files_are_written_all_of_them(tmp_path):
    result = fp8lab.experiments.accumulate(
        k=[32, 100], rows=4, columns=4, models=[fp8lab.models()[0], "exact"], out=tmp_path / "new"
    )
    points = result.tables["points"]
    assert points["promote_k"].tolist() == [0, 0, 128, 128, 0, 0] * 2
    assert (tmp_path / "new" / "accumulate.json").read_text() == result.to_json()
    with (tmp_path / "new" / "points.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["backward_error_largest"]) for row in rows] == points["backward_error_largest"].tolist()
    assert len(rows) == len(result.histograms) == 12
    assert {path.stem for path in (tmp_path / "new").iterdir()} == {
        "accumulate",
        *result.tables,
        *result.histograms,
        *result.curves,
    }
    assert "How to read it" in str(result)


def test_what_overflows_is_nan():
    points = fp8lab.experiments.accumulate(
        models="hopper_wgmma_fp8_f16", distributions="abs_lognormal", k=65536, promote_k=0, rows=2, columns=2
    ).tables["points"]
    assert points["relative_error_count"].tolist() == [0]
    assert np.isnan(points["relative_error_largest"]).all()


def test_the_harmonic_series_stops_where_ml_dtypes_stops(tmp_path):
    formats = ["float16", "bfloat16", "e4m3", "e5m2", "e2m3"]
    result = fp8lab.experiments.harmonic(formats=formats, out=tmp_path / "new")
    dtypes = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float6_e2m3fn]
    for row, dtype in zip(result.tables["sums"].rows, dtypes, strict=True):
        total, before, terms = dtype(0), None, 0
        while total != before:
            terms += 1
            before, total = total, dtype(np.float64(total) + np.float64(dtype(np.float64(1) / terms)))
        assert (row["sum"], row["terms"]) == (float(total), terms)
    assert (tmp_path / "new" / "harmonic.json").read_text() == result.to_json()
    assert result.tables["sums"]["terms"].tolist() == [513, 65, 9, 5, 7]


def test_ctrl_c_stops_it_and_leaves_nothing(tmp_path):
    with interrupted_after(0.2):
        fp8lab.experiments.accumulate(k=2**20, rows=100, columns=100, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_it_waits_for_another_writer_and_ctrl_c_ends_the_waiting(tmp_path):
    hidden = tmp_path / ".new.fp8lab-writing"
    hidden.mkdir(mode=0o700)
    with (hidden / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with interrupted_after(0.3):
            fp8lab.experiments.harmonic(formats=["e5m2"], out=tmp_path / "new")
        assert not (tmp_path / "new").exists()
    fp8lab.experiments.harmonic(formats=["e5m2"], out=tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"harmonic.json", "sums.csv"}
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"models": "h100"}, ValueError, "unknown model 'h100'; known: exact, "),
        ({"models": []}, ValueError, "models must have at least one entry"),
        ({"models": [3]}, TypeError, "models must be a name"),
        ({"models": "hopper_tf32"}, ValueError, "at most 16 bits"),
        ({"distributions": "gauss"}, ValueError, "known: normal, .*abs_normal"),
        ({"k": 0}, ValueError, "k must be from 1 to"),
        ({"k": [1.5]}, TypeError, "k must be an int"),
        ({"k": [32, 32]}, ValueError, "has 32 twice"),
        ({"promote_k": [100]}, ValueError, "promote_k must be a multiple of 32"),
        ({"promote_k": -128}, ValueError, "promote_k must be from 0 to"),
        ({"format_a": "e2m1"}, ValueError, "a is e2m1; hopper_wgmma_fp8 takes e4m3, e5m2"),
        ({"format_b": 3}, TypeError, "format_b must be a name"),
        ({"rows": 0}, ValueError, "rows must be from 1 to 4096"),
        ({"columns": 4096, "rows": 4096}, ValueError, "rows . columns must be at most"),
        ({"seed": -1}, ValueError, "seed must be from 0"),
        ({"out": 5}, TypeError, "out must be a path, not int"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        fp8lab.experiments.accumulate(**arguments)


def test_bad_formats_of_the_harmonic_series_are_named():
    with pytest.raises(ValueError, match="must have a sign, .* e8m0 has not"):
        fp8lab.experiments.harmonic(formats="e8m0")
