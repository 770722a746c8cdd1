# SPDX-License-Identifier: Apache-2.0
import pytest
from command import (
    column,
    files_in,
    keeps_the_old_result,
    leaves_nothing_when_stopped,
    prints,
    prints_nothing,
    refuses,
    refuses_a_file_as_directory,
    takes_long,
)

SMALL = "transpose --rows 64 --columns 64"


@pytest.mark.parametrize("side", [pytest.param(1024, marks=takes_long), 128])
def test_it_measures_all_recipes_and_writes_a_file_per_histogram(tmp_path, side):
    title = f"{side} x {side} float32 values drawn with seed 1 from normal\n"
    shown = rf"{title}.*h te_block_128x128 +0 +0 .*e original +e requant."
    prints(f"transpose --rows {side} --columns {side} --out {tmp_path}/transpose", shown)
    assert len(files_in(tmp_path / "transpose")) == 55
    written = tmp_path / "transpose" / "transpose.json"
    assert column(written, "recipes", "values_differ")[9] == 0
    if side == 1024:  # smaller matrices lose something else
        loss = column(written, "recipes", "loss_db")
        assert abs(loss[5]) < 1e-9
        assert 2.9 <= loss[6] < 3.1


def test_quiet_prints_nothing():
    prints_nothing("transpose --quiet --rows 32 --columns 64 --recipes te_mxfp8")


def test_outliers_are_told_in_the_title():
    line = f"{SMALL} --distribution laplace --outlier-rows 4,64 --outlier-columns 1,0.5 --recipes te_nvfp4"
    prints(line, r"from\s+laplace,\s+4\s+rows\s+times\s+64,\s+1\s+columns\s+times\s+0.5\n")


REFUSED = {
    "--recipes te_nvfp4,mxfp8": "unknown recipe 'mxfp8'; known: te_mxfp8, .*",
    "--recipes te_mxfp8,te_mxfp8": "--recipes must have each entry once, and has 'te_mxfp8' twice",
    "--recipes te_nvfp4_rht": "te_nvfp4_rht transforms only the columnwise values.*",
    "--columns 100": "te_mxfp8: columns must be a multiple of 32, .*not 100 .nearest: 96 or 128.",
    "--rows 100": "te_mxfp8: rows must be a multiple of 32, .*not 100 .nearest: 96 or 128.",
    "--rows 0": "rows and columns must be 1 or more, not 0 and 1024",
    "--rows 1048576": r"rows \* columns must be at most 2\^27, not 1048576 \* 1024",
    "--rows 1e3": "rows must be a multiple of 32.*not 1000.*",
    "--outlier-rows 4": "--outlier-rows: '4' must be two numbers, COUNT,FACTOR",
    "--rows 64 --columns 64 --outlier-rows 65,2": "the count of outlier_rows must be from 0 to 64, not 65",
    "--outlier-columns 1,inf": "the factor of outlier_columns must be positive and finite in float32, not inf",
    "--file no-such-file": "cannot read .*",
    "--file x --rows 3": "--rows cannot be given with --file",
    "--tensor x": "--tensor.*--file.*",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"transpose {options}", REFUSED[options])


def test_it_refuses_a_file_as_directory(tmp_path):
    refuses_a_file_as_directory(SMALL + " --recipes te_mxfp8", tmp_path)


def test_a_run_that_cannot_write_keeps_the_old_result(tmp_path):
    keeps_the_old_result(SMALL + " --recipes te_mxfp8", "01_te_mxfp8_error_original.csv", tmp_path)


def test_a_stopped_run_leaves_nothing(tmp_path):
    leaves_nothing_when_stopped("transpose --rows 8192 --columns 8192", tmp_path)
