# SPDX-License-Identifier: Apache-2.0
import fp8lab
import numpy as np
import pytest


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The primer with all of its rows, and where it is written: it takes a second."""
    out = tmp_path_factory.mktemp("made") / "primer"
    return fp8lab.experiments.primer(threads=2, out=out), out


def test_primer_reproduces_the_published_tables(made):
    result, out = made
    matches = {row["table"]: row["matches"] for row in result.tables["matches"].rows}
    assert matches == {"out_fp8": 36, "out_fp32": 35, "out_fp8_representable": 36, "difference": 36}
    assert result.passed
    assert (out / "primer.json").read_text() == result.to_json()
    assert "36 of 36 match" in str(result)
    assert len(result.histograms) == 10
    for name, histogram in result.histograms.items():
        lines = (out / f"{name}.csv").read_text().splitlines()
        assert len(lines) == 1 + len(histogram["counts"]) + 7
    assert result.arguments["seed"] == 12345 and result.arguments["mma"] == "hopper_wgmma_fp8"


def test_the_same_numbers_come_from_the_parts(made):
    x = fp8lab.torch_cpu_uniform((1024, 768), seed=12345)
    w = fp8lab.torch_cuda_normal((768, 768), std=0.023, seed=12345)
    out = fp8lab.gemm(fp8lab.encode(x, "e4m3"), fp8lab.encode(w, "e4m3"), model="hopper_wgmma_fp8")
    table = made[0].tables["out_fp8"]
    rows = table["row"]
    columns = [int(name.removeprefix("column_")) for name in table if name != "row"]
    assert rows.tolist() == [0, 1, 2, 1021, 1022, 1023] and columns == [0, 1, 2, 765, 766, 767]
    assert [[f"{value:.4f}" for value in row] for row in out[np.ix_(rows, columns)].T] == [
        table[f"column_{i}"].tolist() for i in columns
    ]


def test_other_arguments_are_not_judged():
    result = fp8lab.experiments.primer(mma="exact", rows=16, in_features=32, out_features=48)
    assert result.passed is None
    causes = {row["cause"]: row for row in result.tables["causes"].rows}
    assert causes["accumulator"]["max_absolute_error"] == 0
    assert causes["total"]["share"] == pytest.approx(1, abs=1e-12)  # a sum divided by itself


def test_an_unwritable_directory_is_an_oserror(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="is not a directory"):
        fp8lab.experiments.primer(out=tmp_path / "file")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rows": 17}, ValueError, "rows must be a multiple of 16"),
        ({"rows": 1.5}, TypeError, "rows must be an int"),
        ({"mma": "h100"}, ValueError, "unknown model for the FP8 product 'h100'"),
        ({"scale_x": 0}, ValueError, "scale_x and scale_w must be positive"),
        ({"seed": -1}, ValueError, "seed must be from 0"),
        ({"out": 5}, TypeError, "out must be a path, not int"),
        ({"out": "a\0b"}, ValueError, "without NUL"),
        ({"sms": 0}, ValueError, "sms must be at least 1"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        fp8lab.experiments.primer(**arguments)
