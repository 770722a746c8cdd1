# SPDX-License-Identifier: Apache-2.0
import pytest
from command import column, keeps_the_old_result, prints, refuses, refuses_a_file_as_directory, takes_long

SMALL = "primer --rows 32 --in-features 64 --out-features 48"


@takes_long
def test_it_reproduces_the_published_numbers(tmp_path):
    matches = "out_fp8 36/36, out_fp32 35/36, out_fp8_representable 36/36, difference 36/36: reproduced"
    prints(f"primer --out {tmp_path}/primer", matches)
    assert column(tmp_path / "primer" / "primer.json", "matches", "matches") == [36, 35, 36, 36]


@pytest.mark.parametrize("line", [SMALL, f"{SMALL} --mma exact"])
def test_other_sizes_and_models_are_not_judged(line):
    prints(line, "not judged")


REFUSED = {
    "--mma h200": "unknown model for the FP8 product 'h200'; known: .*",
    "--mma hopper_tf32": "unknown model for the FP8 product 'hopper_tf32'; known: .*",
    "--rows 100": "rows must be a multiple of 16.*not 100",
    "--rows -16": "not -16",
    "--in-features 0": "not 0",
    "--out-features 99999999999999": "not 99999999999999",
    "--rows 65536 --in-features 65536": r"rows \* in_features must be at most.*",
    "--scale-w -1": "scale_x and scale_w must be positive.*",
    "--scale-x 1e-30 --scale-w 1e-30": "scale_x and scale_w must be positive.*1e-30 and 1e-30",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"primer {options}", REFUSED[options])


def test_it_refuses_a_file_as_directory(tmp_path):
    refuses_a_file_as_directory(SMALL, tmp_path)


def test_a_run_that_cannot_write_keeps_the_old_result(tmp_path):
    keeps_the_old_result(SMALL, "codes_x.csv", tmp_path)
