# SPDX-License-Identifier: Apache-2.0
"""What ``fp8lab`` has of the extension module as it is."""

from fp8lab._core import (
    DelayedVersion,
    Distribution,
    ErrorTotals,
    Format,
    Histogram,
    MmaModel,
    Profile,
    force_target,
    targets,
)
from fp8lab._core import (
    version as __version__,
)
from fp8lab._entry import guard as _guard

__all__ = [
    "__version__",
    "DelayedVersion",
    "Distribution",
    "ErrorTotals",
    "Format",
    "Histogram",
    "MmaModel",
    "Profile",
    "force_target",
    "targets",
]

_guard(__name__, __all__)
