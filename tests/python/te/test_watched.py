# SPDX-License-Identifier: Apache-2.0
"""What fp8lab.torch.watch says of Transformer Engine's modules is what it says of the layers of fp8lab.torch.convert."""

from pathlib import Path

import pytest
import warm
from installed import without_transformer_engine
from sampled import EXHAUSTIVE

CASES = [
    ("h100", "DelayedScaling", "te_delayed_hopper"),
    ("h100", "Float8CurrentScaling", "te_current_scaling_hopper"),
    ("h100", "Float8BlockScaling", "te_block_hopper"),
    ("b200", "MXFP8BlockScaling", "te_mxfp8_blackwell"),
    ("b200", "NVFP4BlockScaling", "te_nvfp4_blackwell"),
]


@without_transformer_engine
@pytest.mark.skipif(not EXHAUSTIVE, reason="12 seconds each: ./dev test --exhaustive")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[2])
def test_rows_are_those_of_converted_layers(case):
    device, recipe, name = case
    told = warm.run("--device", device, Path(__file__).with_name("watched.py"), recipe, name)
    assert told.returncode == 0, told.stderr[-3000:]
    rows = 12 if "nvfp4" in name else 18
    assert told.stdout.startswith(f"{rows} rows, {4 if 'delayed' in name else 0} of casts that saturate")
