# SPDX-License-Identifier: Apache-2.0
"""``python -m fp8lab.te [--device h100] [--functions NAME] [--pretend-cuda] (script.py | -m MODULE) args...``

Runs a program that uses Transformer Engine on the CPU with a device's bits, and all Python programs that it starts.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from fp8lab.te._activation import DEVICE_VARIABLE, FUNCTIONS_VARIABLE, PRETEND_VARIABLE, activate, check_functions
from fp8lab.te.devices import devices, find_device

_USAGE = (
    "usage: python -m fp8lab.te [--device NAME] [--functions NAME] [--pretend-cuda] (script.py | -m MODULE) args..."
)
_HELP = f"""{_USAGE}

Runs a program that uses NVIDIA's Transformer Engine on the CPU with a device's bits, and all Python programs that it
starts.

  --device NAME    {", ".join(one.name for one in devices())}; h100 if left out
  --functions NAME hopper: activations, norms, Adam and the like as an H100 or H200 has them; else correctly_rounded
  --pretend-cuda   torch.cuda.is_available() is True for all code, and not for Transformer Engine alone
"""


class _Wrong(Exception):
    """What is wrong with the command line."""


def _parsed(words: list[str]) -> tuple[Any, Any, bool, bool, list[str]]:
    """Device, its kernels' functions, whether code is to see CUDA, whether a module is named, and the program with its
    arguments."""
    device, functions, pretends = "h100", "correctly_rounded", False
    while words and words[0].startswith("--"):
        option, *words = words
        if option == "--pretend-cuda":
            pretends = True
        elif option == "--device":
            if not words:
                raise _Wrong("--device needs a name")
            device, *words = words
        elif option == "--functions":
            if not words:
                raise _Wrong("--functions needs a name")
            functions, *words = words
        elif option.startswith("--functions="):
            functions = option.removeprefix("--functions=")
        elif option.startswith("--device="):
            device = option.removeprefix("--device=")
        else:
            raise _Wrong(f"unknown option {option}")
    is_module = bool(words) and words[0] == "-m"
    program = words[1:] if is_module else words
    if not program:
        raise _Wrong("a script or -m MODULE is missing")
    return device, functions, pretends, is_module, program


def _check_program(name: str, is_module: bool) -> None:
    if not is_module and not os.path.exists(name):
        raise _Wrong(f"there is no script {name}")
    if is_module and importlib.util.find_spec(name.split(".")[0]) is None:
        raise _Wrong(f"there is no module {name}")


def inherit(device: str, pretends: bool, functions: str = "correctly_rounded") -> None:
    """Has the Python programs that this process starts emulate the same device.

    They find a ``sitecustomize`` first on their path. It acts when they import torch, and runs the one behind it.
    """
    os.environ[DEVICE_VARIABLE] = device
    os.environ[PRETEND_VARIABLE] = "1" if pretends else "0"
    os.environ[FUNCTIONS_VARIABLE] = functions
    startup = str(Path(__file__).parent / "_startup")
    others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one != startup]
    os.environ["PYTHONPATH"] = os.pathsep.join([startup, *others])


def main(words: list[str]) -> int:
    """Runs the program. The status is the program's; 2 for a wrong command line."""
    if words[:1] in (["-h"], ["--help"]):
        print(_HELP, end="")
        return 0
    try:
        device, functions, pretends, is_module, program = _parsed(words)
        check_functions(find_device(device), functions)
        _check_program(program[0], is_module)
    except (_Wrong, ValueError) as error:
        print(f"{_USAGE}\npython -m fp8lab.te: {error}", file=sys.stderr)
        return 2
    inherit(device, pretends, functions)
    try:
        activate(device, pretend_cuda=pretends, functions=functions)
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
