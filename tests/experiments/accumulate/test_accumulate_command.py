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
)

SMALL = "accumulate --k 32 --rows 2 --columns 3"


def test_it_shows_the_growth_of_the_error_and_writes_a_file_per_histogram(tmp_path):
    shown = r"a hopper_wgmma_fp8 +1.3e-04 .*Largest .error. / sum .products. against K"
    prints(f"accumulate --out {tmp_path}/accumulate", shown)
    files = files_in(tmp_path / "accumulate")
    assert sum(name[0].isdigit() for name in files) == 48 and "points.csv" in files
    assert 0.069 <= column(tmp_path / "accumulate" / "accumulate.json", "points", "relative_error_largest")[4] < 0.08


def test_quiet_prints_nothing():
    prints_nothing(f"{SMALL} --quiet")


def test_the_operands_are_what_the_model_takes():
    line = "accumulate --models exact,hopper_bf16 --k 64 --promote-k 16 --distributions abs_laplace"
    prints(line, "b hopper_bf16, bfloat16")


def test_the_harmonic_series_stops_where_small_formats_do(tmp_path):
    stops = r"float16 +7.0859375 +513\n +bfloat16 +5.0625 +65\n +e4m3 +3 +9\n +e5m2 +2 +5\n"
    prints(f"harmonic --out {tmp_path}/harmonic", stops)
    assert {"harmonic.json", "sums.csv"} <= set(files_in(tmp_path / "harmonic"))


REFUSED = {
    "--models h100": "unknown model 'h100'; known: .*",
    "--distributions gauss": "unknown distribution 'gauss'; known: normal, .*abs_normal.*",
    "--format-a e4m4": "unknown format 'e4m4'; known: e4m3.*",
    "--format-a e2m1": "a is e2m1; hopper_wgmma_fp8 takes e4m3, e5m2. Models that take e2m1: blackwell_tcgen05_fp8, .*",
    "--promote-k 100": "promote_k must be a multiple of 32.*not 100 \\(nearest: 96 or 128\\)",
    "--k 0": "k must be from 1 to 1048576, not 0",
    "--k 1e3x": "--k: '1e3x' is not a whole number.*",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"accumulate {options}", REFUSED[options])


def test_the_harmonic_series_refuses_formats_without_a_sign():
    refuses("harmonic --formats e8m0", "formats must have a sign.*e8m0 has not")


def test_it_refuses_a_file_as_directory(tmp_path):
    refuses_a_file_as_directory(SMALL, tmp_path)


def test_a_run_that_cannot_write_keeps_the_old_result(tmp_path):
    keeps_the_old_result(SMALL, "01_abs_uniform_hopper_wgmma_fp8_k32.csv", tmp_path)


def test_a_stopped_run_leaves_nothing(tmp_path):
    leaves_nothing_when_stopped("accumulate --k 1048576", tmp_path)
