# SPDX-License-Identifier: Apache-2.0
"""The older releases of Transformer Engine train under fp8lab.te, by their own Python."""

import json
from pathlib import Path

import fp8lab.te
import pytest
import warm
from installed import folder_of, without_torch
from sampled import EXHAUSTIVE, sampled

#: On a B200 a release has all its recipes; Transformer Engine 1 knows no Blackwell.
DEVICES = {"1.13.0": ["h100"]}
OTHERS = ["h100"] if EXHAUSTIVE else []
CASES = [
    (release, device) for release in fp8lab.te.releases()[1:] for device in DEVICES.get(release, ["b200", *OTHERS])
]
CASES = sampled(CASES, 3)  # the one that is nearest to the newest
HERE = Path(__file__).parent


@without_torch
@pytest.mark.parametrize(("release", "device"), CASES)
def test_every_module_trains_and_resumes_under_every_recipe(release: str, device: str) -> None:
    path = [folder_of(release), *([folder_of("1.10.1", "accelerate")] if release == "1.13.0" else [])]
    told = warm.run("--device", device, HERE / "release_steps.py", device, path=path, env={"OMP_NUM_THREADS": "1"})
    assert told.returncode == 0, told.stderr[-3000:]
    found = json.loads(told.stdout.splitlines()[-1])
    assert found["release"] == release and found["wrong"] == {}
    least = {"2.10.0": 15, "2.2.0": 10, "1.13.0": 9} if EXHAUSTIVE else {"2.10.0": 11, "2.2.0": 7, "1.13.0": 6}
    assert len(found["cases"]) >= least[release]
