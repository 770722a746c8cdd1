# SPDX-License-Identifier: Apache-2.0
"""The module ``msamp`` that programs import while a device is emulated, and the package that tools look for."""

from __future__ import annotations

import importlib.metadata
import types
from pathlib import Path
from typing import Any

__all__ = ["DISTRIBUTION", "Distribution", "make_module"]

#: The name that MS-AMP is installed by, and the version whose behaviour this is.
DISTRIBUTION, VERSION = "ms-amp", "0.4.0"


class Distribution(importlib.metadata.Distribution):
    """What ``importlib.metadata`` says of it; there are no files."""

    def read_text(self, filename: str) -> str | None:
        """Its METADATA."""
        return f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        """Where the package is."""
        return Path(__file__).parent / path


def make_module(name: str) -> types.ModuleType:
    """``msamp``: what MS-AMP's own module offers to programs."""
    from fp8lab import msamp

    made = types.ModuleType(name, "MS-AMP as fp8lab.msamp computes it.")
    for own in ("LBAdam", "LBAdamW", "clip_grad_norm_", "initialize"):
        setattr(made, own, getattr(msamp, own))
    vars(made).update(
        __version__=VERSION, __path__=[], opt_levels=["O1", "O2"], __all__=["clip_grad_norm_", "initialize"]
    )
    return made
