# SPDX-License-Identifier: Apache-2.0
"""Checkouts of other projects, whose code some tests run beside fp8lab's.

FP8LAB_CHECKOUTS names a folder: its NAME is a work tree, or NAME.git a git directory, with the tags and the history of
the project. A test takes the files of its tag out of it, and is skipped where there is none.
"""

import os
import subprocess
from pathlib import Path

TRANSFORMER_ENGINE = "TransformerEngine"
MS_AMP = "MS-AMP"
TORCHAO = "ao"
DEEPGEMM = "DeepGEMM"
MICROXCALING = "microxcaling"
ACCELERATE = "accelerate"
#: The names, and where the projects are.
PROJECTS = {
    TRANSFORMER_ENGINE: "https://github.com/NVIDIA/TransformerEngine",
    MS_AMP: "https://github.com/Azure/MS-AMP",
    TORCHAO: "https://github.com/pytorch/ao",
    DEEPGEMM: "https://github.com/deepseek-ai/DeepGEMM",
    MICROXCALING: "https://github.com/microsoft/microxcaling",
    ACCELERATE: "https://github.com/huggingface/accelerate",
}


class NoCheckoutError(ImportError):
    """There is no checkout of that name."""


def git_directory(name: str) -> Path:
    """The git directory of a project. Raises NoCheckoutError that says which is missing."""
    assert name in PROJECTS
    folder = os.environ.get("FP8LAB_CHECKOUTS")
    if not folder:
        raise NoCheckoutError(f"no checkout of {name}: FP8LAB_CHECKOUTS names no folder")
    for path in (Path(folder, name, ".git"), Path(folder, name + ".git")):
        if path.exists():
            return path
    raise NoCheckoutError(f"no checkout of {name} in FP8LAB_CHECKOUTS: neither {name} nor {name}.git")


def git(name: str, *arguments: str) -> bytes:
    """What git prints of a project's checkout."""
    command = ["git", f"--git-dir={git_directory(name)}", *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout
