# SPDX-License-Identifier: Apache-2.0
"""Runs at the start of each Python program that one under ``python -m fp8lab.te`` has started.

It emulates the same device once the program has imported torch: a program that does not import it is not slowed down.
The sitecustomize that stands behind this one on the path runs as well.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any


class _AfterTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports torch as it is, and then activates the device."""

    _own: Any

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None:
            return None
        self._own, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> Any:
        return self._own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        from fp8lab.te import activate

        pretends = os.environ.get("FP8LAB_TE_PRETEND_CUDA") == "1"
        functions: Any = os.environ.get("FP8LAB_TE_FUNCTIONS", "correctly_rounded")
        device: Any = os.environ["FP8LAB_TE_DEVICE"]
        activate(device, pretend_cuda=pretends, functions=functions)


def _run_the_next() -> None:
    """The sitecustomize that this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [one for one in sys.path if os.path.abspath(one or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("FP8LAB_TE_DEVICE"):
    sys.meta_path.insert(0, _AfterTorch())
_run_the_next()
