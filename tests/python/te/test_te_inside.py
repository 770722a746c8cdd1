# SPDX-License-Identifier: Apache-2.0
"""Transformer Engine's own modules on an emulated device compute fp8lab's bits: a process for each device runs all checks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checks import CHECKS
from installed import without_transformer_engine


@without_transformer_engine
@pytest.mark.parametrize("device", CHECKS)
def test_every_check_of_the_device_passes(device: str) -> None:
    inside = str(Path(__file__).parent / "inside.py")
    command = [sys.executable, "-m", "fp8lab.te", "--device", device, inside, device]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600)
    results = dict(json.loads(line) for line in told.stdout.splitlines() if line.startswith("["))
    errors = {name: results.get(name, f"it did not run: {told.stderr}") for name in CHECKS[device]}
    assert not any(errors.values()), {name: error for name, error in errors.items() if error}
