# SPDX-License-Identifier: Apache-2.0
"""Transformer Engine's own modules on an emulated device compute fp8lab's bits: a process for each device runs all checks."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from checks import CHECKS
from installed import without_transformer_engine


@functools.cache
def found(device: str) -> dict[str, str | None]:
    """What each check of the device found; None where all was right."""
    inside = str(Path(__file__).parent / "inside.py")
    command = [sys.executable, "-m", "fp8lab.te", "--device", device, inside, device]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600)
    results = dict(json.loads(line) for line in told.stdout.splitlines() if line.startswith("["))
    return {name: results.get(name, f"it did not run: {told.stderr}") for name in CHECKS[device]}


@without_transformer_engine
@pytest.mark.parametrize(("device", "name"), [(device, name) for device in CHECKS for name in CHECKS[device]])
def test_inside(device: str, name: str) -> None:
    error = found(device)[name]
    assert error is None, error
