# SPDX-License-Identifier: Apache-2.0
import json
import re

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

# The exact SQNRs of saturating casts to nearest in dB, to four decimals: for each format at scale 1, and with 6 and
# with 4 standard
#: deviations mapped to the largest value. From 40-digit arithmetic, and known before this program.
EXACT = {
    "normal": {
        "e4m3": ["31.5211", "31.5202", "31.5087"],
        "e5m2": ["25.5430", "25.5392", "25.5622"],
        "e2m3": ["28.3011", "29.5120", "30.7678"],
        "e3m2": ["25.4580", "25.5383", "25.5619"],
        "e2m1": ["16.3443", "16.3443", "18.3471"],
    },
    "laplace": {
        "e4m3": ["31.5366", "30.4443", "23.8293"],
        "e5m2": ["25.5592", "25.2787", "22.1723"],
        "e2m3": ["27.9356", "28.5293", "23.6602"],
        "e3m2": ["25.4298", "25.2773", "22.1721"],
        "e2m1": ["16.0575", "16.0575", "17.3136"],
    },
}


@pytest.mark.parametrize("distribution", EXACT)
def test_exact_sqnrs_are_those_of_40_digit_arithmetic(distribution):
    formats = EXACT[distribution]
    shown = prints(
        f"cast --distribution {distribution} --size 16 --formats {','.join(formats)} --scales 1 --amax 6,4 --exact"
    )
    expected = [sqnr for three in formats.values() for sqnr in three]
    for row, sqnr in enumerate(expected, start=1):
        assert re.search(rf"\n *{row} [^\n]* {sqnr}  ", shown), f"cast {row}: {sqnr}"


def test_exact_sqnrs_of_a_uniform_distribution():
    rows = "".join(rf"[^\n]*  {sqnr}  [^\n]*\n" for sqnr in ("31.8657", "25.8451", "32.1388", "25.8451", "19.1532"))
    prints("cast --distribution uniform --amax 1 --formats e4m3,e5m2,e2m3,e3m2,e2m1 --exact --size 16", rows)


def test_the_best_scale_has_the_highest_exact_sqnr():
    number = "[-+.0-9e]+"
    e4m3 = rf"e4m3 +49.07[0-9]* +yes +{number} +31.5568[^\n]*\n"
    prints("cast --best-scale --exact --size 16", rf"{e4m3}[^\n]*e5m2 +[0-9.]+ +yes +{number} +25.5822")


def test_it_writes_one_file_per_histogram_and_the_totals(tmp_path):
    prints(f"cast --out {tmp_path}/cast", "Highest SQNR: #1 e4m3")
    assert len(files_in(tmp_path / "cast")) == 12
    assert column(tmp_path / "cast" / "cast.json", "casts", "compared") == [1048576] * 2


def test_a_grid_is_cast_without_a_draw():
    prints_nothing("cast --quiet --grid --size 100")


def test_profile_rounding_and_scale_can_be_chosen():
    prints(
        "cast --profiles onnx --roundings toward_zero --scales 2 --size 9",
        "profile onnx, rounding toward_zero, scale 2\n",
    )


def test_a_profile_can_be_changed_field_by_field():
    changed = "cuda_nosat:overflow=saturate:infinity=saturate"
    document = json.loads(prints(f"cast --formats e4m3 --profiles cuda_satfinite,{changed} --size 999 --json"))
    (casts,) = [one for one in document["sections"] if one["name"] == "casts"]
    columns = {column["name"]: column["values"] for column in casts["columns"]}
    assert columns.pop("profile") == ["cuda_satfinite", changed] and columns.pop("cast") == [1, 2]
    assert all(first == second for first, second in columns.values())


REFUSED = {
    "--formats e4m3,e4m4": "unknown format 'e4m4'; known: e4m3, e5m2.*",
    "--profiles cuda": "unknown profile 'cuda'; known: .*",
    "--profiles ieee:overflow": "'ieee:overflow' is no PROFILE:FIELD=VALUE, such as ieee:overflow=saturate",
    "--profiles ieee:colour=red": "unknown field of a profile 'colour'; known: rounding, overflow, .*",
    "--profiles ieee:overflow=up": "unknown overflow 'up'; known: saturate, to_special, .*",
    "--roundings stochastic": "unknown rounding.*'stochastic'; known: nearest_even.*",
    "--distribution gauss": "unknown distribution 'gauss'; known: normal, uniform.*",
    "--scales 1,1.0": "scales must have each entry once, and has 1 twice",
    "--scales 1e40": "scale must be positive and finite, and so must its inverse, in float32, not 1e.40",
    "--size 0": "size must be from 1 to 2.40, not 0",
    "--size -3": "size must be from 1 to 2.40, not -3",
    "--file x --grid": "--(file|grid) cannot be given with --(file|grid).*",
    "--tensor x": "--tensor.*--file.*",
    "--file no-such-file": "cannot read .*",
    **{f"--scales {scale}": f"scales must be positive and finite, not {scale}" for scale in ("0", "-1", "inf", "nan")},
    **{f"--amax {amax}": f"amax must be positive and finite, not {amax}" for amax in ("0", "-1", "inf", "nan")},
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"cast {options}", REFUSED[options])


def test_it_refuses_a_file_that_is_no_tensor(tmp_path):
    (tmp_path / "cast.json").write_text("{}")
    refuses(f"cast --file {tmp_path}/cast.json", "cannot read .*neither .npy.*")


def test_a_file_has_no_exact_sqnr(tmp_path):
    (tmp_path / "cast.json").write_text("{}")
    refuses(
        f"cast --exact --file {tmp_path}/cast.json",
        "exact needs the values of a distribution or of the grid, not a tensor",
    )


def test_it_refuses_a_file_as_directory(tmp_path):
    refuses_a_file_as_directory("cast --size 10", tmp_path)


def test_a_run_that_cannot_write_keeps_the_old_result(tmp_path):
    keeps_the_old_result("cast --size 10", "02_e5m2_codes.csv", tmp_path)


def test_a_stopped_run_leaves_nothing(tmp_path):
    leaves_nothing_when_stopped("cast --size 100000000000", tmp_path)
