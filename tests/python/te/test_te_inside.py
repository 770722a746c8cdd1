# SPDX-License-Identifier: Apache-2.0
"""Transformer Engine's own modules on an emulated device compute fp8lab's bits: a process for each device runs all checks."""

import json
from pathlib import Path

import pytest
import warm
from checks import CHECKS
from installed import without_transformer_engine
from sampled import sampled


@without_transformer_engine
@pytest.mark.parametrize("device", sampled(CHECKS, 2))
def test_every_check_of_the_device_passes(device: str) -> None:
    inside = str(Path(__file__).parent / "inside.py")
    told = warm.run("--device", device, inside, device)
    results = dict(json.loads(line) for line in told.stdout.splitlines() if line.startswith("["))
    errors = {name: results.get(name, f"it did not run: {told.stderr}") for name in CHECKS[device]}
    assert not any(errors.values()), {name: error for name, error in errors.items() if error}
