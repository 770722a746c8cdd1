# SPDX-License-Identifier: Apache-2.0
import pytest
from command import column, prints, refuses, takes_long


def test_it_counts_the_codes_that_change(tmp_path):
    pattern = r" 32768 [^\n]*\n[^\n]* 32764 [^\n]*\n[^\n]* 262144 [^\n]*\n[^\n]* 262140 "
    prints(f"double-rounding --out {tmp_path}/twice", pattern)
    share = column(tmp_path / "twice" / "double_rounding.json", "chains", "share")[3]
    assert f"{share:.17f}".startswith("0.03124952316284")


def test_it_takes_every_float_of_a_binade():
    prints("double-rounding --via float16", "8388608 inputs")


@takes_long
def test_a_uniform_draw_has_its_share():
    line = "double-rounding --uniform -448,448 --via float16 --via-roundings toward_zero"
    prints(line, r"e4m3 +float16 +toward_zero +[0-9]+ +0.390. %")


REFUSED = {
    "--low 2 --high 1": "low and high must be finite, and low less than high, not 2 and 1",
    "--uniform 1": "uniform must be two numbers.*not 1",
    "--uniform 3,1": "a uniform distribution needs low < high.*not 3 and 1",
    "--uniform 3,4 --low 1": "--(uniform|low) cannot be given with --(uniform|low).*",
    "--size 5": "--size.*--uniform.*",
    "--formats float16": "formats must have at most 8 bits, and float16 has 16",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"double-rounding {options}", REFUSED[options])
