# SPDX-License-Identifier: Apache-2.0
"""te.Linear on two processes, tensor and sequence parallel, has the bits of its parts."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import warm
from installed import without_transformer_engine
from sampled import EXHAUSTIVE

SCRIPT = Path(__file__).with_name("parallel_ranks.py")
CASES = [("h100", ["delayed", "current"])]
if EXHAUSTIVE:
    CASES += [("h100", ["block"]), ("b200", ["delayed", "current", "mxfp8"])]


def on_two_processes(device: str, script: Path, *words: str, options: Sequence[str] = (), path=()) -> list[warm.Told]:
    """What torchrun starts, by the environment that it gives them."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        port = str(one.getsockname()[1])
    facts = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
    }
    ranks = [{**facts, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    command = ["--device", device, *options, script, *words]
    return warm.run_together(*((command, {"env": rank, "path": path}) for rank in ranks))


@without_transformer_engine
@pytest.mark.parametrize("device, recipes", CASES)
def test_a_parallel_layer_is_its_parts(device, recipes):
    first, second = on_two_processes(device, SCRIPT, *recipes)
    assert first.returncode == second.returncode == 0, first.stderr[-3000:] + second.stderr[-3000:]
    assert json.loads(first.stdout.splitlines()[-1]) == [[], []]


@without_transformer_engine
@pytest.mark.skipif(not EXHAUSTIVE, reason="half a minute, of which importing is most: ./dev test --exhaustive")
def test_processes_of_torchrun_emulate_the_device():
    torchrun = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    command = [sys.executable, "-m", "fp8lab.te", "--device", "h100", *torchrun, str(SCRIPT), "current"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[], []]
