# SPDX-License-Identifier: Apache-2.0
"""Where memory runs out, a call raises MemoryError; each in a process of its own, whose memory is limited."""

import os
import subprocess
import sys

import pytest

# A sanitizer takes terabytes of address space.
pytestmark = pytest.mark.skipif(
    "FP8LAB_SANITIZED" in os.environ, reason="a sanitized module ends where memory runs out"
)

LIMITED = """
import resource, sys
import numpy as np
import fp8lab
from fp8lab import experiments

x = np.zeros((4096, 4096), np.float32)
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (40 << 20), resource.RLIM_INFINITY))
for call in (
    lambda: experiments.cast(size=1 << 26, grid=True, formats=["e4m3"]),
    lambda: experiments.transpose(rows=8192, columns=8192, recipes=["te_mxfp8"]),
    lambda: experiments.transpose(x, recipes=["te_current_scaling"], threads=2),
    lambda: experiments.scaling(steps=1, rows=8192, columns=8192),
):
    try:
        call()
    except MemoryError as error:
        print(error)
    else:
        print("no error")
q = fp8lab.quantize(x[:64, :64], "te_mxfp8")
print(q.codes.shape)
"""


def run(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_too_little_memory_is_a_memory_error_in_one_line():
    told = [f"{name} needs more memory than there is: smaller or fewer arrays, or fewer threads, take less"
            for name in ("cast", "transpose", "transpose", "scaling")]  # fmt: skip
    assert run(LIMITED) == [*told, "(64, 64)"]
