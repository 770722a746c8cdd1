# SPDX-License-Identifier: Apache-2.0
import pytest
from command import files_in, prints, prints_nothing, refuses


def test_it_shows_all_recipes_and_the_steps_and_writes_a_file_per_histogram(tmp_path):
    pattern = "a te_current_scaling .*g te_current most_recent .*SQNR in dB by step.*relative error.*How to read it"
    prints(f"scaling --steps 6 --rows 32 --out {tmp_path}/scaling", pattern)
    files = files_in(tmp_path / "scaling")
    assert len(files) == 1 + 4 + 1 + 2 * 7 and "05_te_current_max_1024_ulp_error.csv" in files


def test_a_recipe_can_be_made_of_a_format_and_a_rule():
    line = "scaling --grid --rows 1024 --columns 32 --delayed none --recipes ocp_mxfp8_e4m3,mx:e4m3:even"
    prints(line, r"b mx:e4m3:even +31\.[0-9]+ .*1[0-9]\.[0-9]+ %")


def test_version_and_type_of_the_stream_can_be_chosen():
    prints_nothing("scaling --quiet --stream outliers --steps 6 --rows 32 --version ms_amp --delayed max:2 --bfloat16")


REFUSED = {
    "--stream x": "unknown stream 'x'; known: stationary, drift, outliers, jump",
    "--recipes mxfp8": "unknown recipe 'mxfp8'; known: .*te_mxfp8.*",
    "--recipes mx:e4m3": "'mx:e4m3' is no mx:FORMAT:RULE.*",
    "--delayed mean:16": "unknown amax_compute_algo 'mean'; known: max, most_recent",
    "--delayed max": "'max' is no ALGORITHM:LENGTH.*",
    "--delayed max:0": "amax_history_len must be from 1 to 1048576, not 0",
    "--columns 40": "columns must be a multiple of 32.*not 40.*",
    "--steps 0": "steps must be from 1 to 65536, not 0",
    "--file none.npy": "none.npy.*",
    "--file a.npy --steps 3": "--steps cannot be given with --file",
    "--grid --steps 3": "--steps cannot be given with --grid",
    "--grid --stream drift": "--stream cannot be given with --grid",
    "--recipes none --delayed none": "recipes must have at least one entry",
    "--delayed none --backward": "backward goes with delayed scaling, and there is none",
    "--delayed max:8 --version ms_amp --margin 1": "ms_amp has no margin.*",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"scaling {options}", REFUSED[options])
