# SPDX-License-Identifier: Apache-2.0
"""te.Linear on two processes of torchrun, tensor and sequence parallel, has the bits of its parts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed import without_transformer_engine

#: Each takes half a minute, of which importing on both processes is most.
CASES = [("h100", ["delayed", "current"])]
if "FP8LAB_EXHAUSTIVE" in os.environ:
    CASES += [("h100", ["block"]), ("b200", ["delayed", "current", "mxfp8"])]


@without_transformer_engine
@pytest.mark.parametrize("device, recipes", CASES)
def test_a_parallel_layer_is_its_parts(device, recipes):
    torchrun = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    script = Path(__file__).with_name("parallel_ranks.py")
    done = subprocess.run(
        [sys.executable, "-m", "fp8lab.te", "--device", device, *torchrun, str(script), *recipes],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[], []]
