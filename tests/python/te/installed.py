# SPDX-License-Identifier: Apache-2.0
"""Whether the release of Transformer Engine that fp8lab.te is the extension of can be had here."""

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

RELEASE = "2.20.2"


def reason() -> str | None:
    """Why it cannot; None where it can."""
    for package in ("torch", "transformer_engine", "einops"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    found = importlib.metadata.version("transformer_engine")
    return None if found == RELEASE else f"transformer_engine {RELEASE} is wanted, and {found} is installed"


without_transformer_engine = pytest.mark.skipif(reason() is not None, reason=str(reason()))


def folder() -> Path:
    """Where its Python is."""
    spec = importlib.util.find_spec("transformer_engine")
    assert spec is not None and spec.submodule_search_locations
    return Path(list(spec.submodule_search_locations)[0])
