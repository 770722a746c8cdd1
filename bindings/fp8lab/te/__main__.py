# SPDX-License-Identifier: Apache-2.0
"""``python -m fp8lab.te [--device h100] [--pretend-cuda] (script.py | -m MODULE) args...``

Runs a program that uses Transformer Engine on the CPU with a device's bits, and all Python programs that it starts.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from fp8lab.te._activation import DEVICE_VARIABLE, PRETEND_VARIABLE, activate
from fp8lab.te.devices import devices, find_device

_USAGE = "usage: python -m fp8lab.te [--device NAME] [--pretend-cuda] (script.py | -m MODULE) args..."
_HELP = f"""{_USAGE}

Runs a program that uses NVIDIA's Transformer Engine on the CPU with a device's bits, and all Python programs that it
starts.

  --device NAME    {", ".join(one.name for one in devices())}; h100 if left out
  --pretend-cuda   torch.cuda.is_available() is True for all code, and not for Transformer Engine alone
"""


class _Wrong(Exception):
    """What is wrong with the command line."""


def _parsed(words: list[str]) -> tuple[str, bool, bool, list[str]]:
    """Device, whether code is to see CUDA, whether a module is named, and the program with its arguments."""
    device, pretends = "h100", False
    while words and words[0].startswith("--"):
        option, *words = words
        if option == "--pretend-cuda":
            pretends = True
        elif option == "--device":
            if not words:
                raise _Wrong("--device needs a name")
            device, *words = words
        elif option.startswith("--device="):
            device = option.removeprefix("--device=")
        else:
            raise _Wrong(f"unknown option {option}")
    is_module = bool(words) and words[0] == "-m"
    program = words[1:] if is_module else words
    if not program:
        raise _Wrong("a script or -m MODULE is missing")
    return device, pretends, is_module, program


def inherit(device: str, pretends: bool) -> None:
    """Has the Python programs that this process starts emulate the same device.

    They find a ``sitecustomize`` first on their path. It acts when they import torch, and runs the one behind it.
    """
    os.environ[DEVICE_VARIABLE] = device
    os.environ[PRETEND_VARIABLE] = "1" if pretends else "0"
    startup = str(Path(__file__).parent / "_startup")
    others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one != startup]
    os.environ["PYTHONPATH"] = os.pathsep.join([startup, *others])


def main(words: list[str]) -> int:
    """Runs the program. The status is the program's; 2 for a wrong command line."""
    if words[:1] in (["-h"], ["--help"]):
        print(_HELP, end="")
        return 0
    try:
        device, pretends, is_module, program = _parsed(words)
        find_device(device)
    except (_Wrong, ValueError) as error:
        print(f"{_USAGE}\npython -m fp8lab.te: {error}", file=sys.stderr)
        return 2
    inherit(device, pretends)
    try:
        activate(device, pretend_cuda=pretends)
    except RuntimeError as error:
        print(f"python -m fp8lab.te: {error}", file=sys.stderr)
        return 2
    sys.argv = program
    if is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(program[0]).resolve().parent))
        runpy.run_path(program[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
