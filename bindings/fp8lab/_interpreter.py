# SPDX-License-Identifier: Apache-2.0
"""Refuses, at import, the interpreters in which no test of fp8lab runs. An extension module would hang in some of
them."""

from typing import Any

try:
    import _interpreters  # type: ignore[import-not-found, unused-ignore]  # Python 3.13
except ImportError:
    import _xxsubinterpreters as _interpreters  # type: ignore[import-not-found, unused-ignore, no-redef]

_module: Any = _interpreters
if _module.get_current() != _module.get_main():
    raise ImportError("fp8lab runs in the main interpreter alone: subinterpreters are not supported")
