# SPDX-License-Identifier: Apache-2.0
import pytest
from command import column, prints, refuses, run


def test_it_ends_with_status_3_where_something_does_not_fit(tmp_path):
    done = run(f"shapes 1000 4096 4096 --recipe te_mxfp8_blackwell --out {tmp_path}/out")
    assert done.returncode == 3
    assert "fprop: x: tokens (rows) must be a multiple of 32, not 1000" in done.stdout
    assert column(tmp_path / "out" / "shapes.json", "nearest", "below") == [992, 4096, 4096]
    assert column(tmp_path / "out" / "shapes.json", "broken", "operand") == ["x", "dy", "dy", "x"]


def test_it_takes_sizes_by_place_and_by_name():
    prints("shapes 1024 4096 4096", "te_mxfp8_blackwell: fits")
    prints(
        "shapes --tokens 8 --in-features 16 --out-features 16 --recipe te_delayed_blackwell,exact",
        "exact: all sizes fit",
    )


REFUSED = {
    "1000": "K, N are missing: fp8lab shapes takes M K N together .*",
    "0 16 16": "tokens must be from 1 to 1099511627776, not 0",
    "16 16 x": "--out-features: 'x' is not a whole number.*",
    "--recipe te_mxfp8": "--recipe: .*te_mxfp8_blackwell.*",
    "--ranks 2": "--ranks can be given only with --parallel",
    "--parallel rows": "known: none, column, row.*",
    "--parallel none --ranks 2": "ranks must be 1 where the parallel mode is none, not 2",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"shapes {options}", REFUSED[options])
