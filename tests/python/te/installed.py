# SPDX-License-Identifier: Apache-2.0
"""Whether the release of Transformer Engine that fp8lab.te is the extension of can be had here."""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest

RELEASE = "2.20.2"
#: Where ./dev test installs older releases, each in a folder of its own.
RELEASES = Path(sys.prefix, "releases")


def reason() -> str | None:
    """Why it cannot; None where it can."""
    for package in ("torch", "transformer_engine", "einops"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    found = importlib.metadata.version("transformer_engine")
    return None if found == RELEASE else f"transformer_engine {RELEASE} is wanted, and {found} is installed"


without_transformer_engine = pytest.mark.skipif(reason() is not None, reason=str(reason()))
without_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "einops")),
    reason="torch or einops is not installed",
)


def folder_of(release: str, package: str = "transformer_engine") -> Path:
    """What stands first on the path of modules for another release, or for a package that the tests install apart; the test is
    skipped where it is not installed."""
    found = RELEASES / f"{package}-{release}"
    if not found.exists():
        pytest.skip(f"{package} {release} is not installed in {found}")
    return found


def folder() -> Path:
    """Where the Python of the newest release is."""
    spec = importlib.util.find_spec("transformer_engine")
    assert spec is not None and spec.submodule_search_locations
    return Path(list(spec.submodule_search_locations)[0])
