# SPDX-License-Identifier: Apache-2.0
"""The experiments of the ``fp8lab`` command line; each gives a ``Document``."""

from fp8lab import _registered
from fp8lab._document import Document
from fp8lab._entry import guard as _guard
from fp8lab._registered import *  # noqa: F403

__all__ = ["Document"]
__all__ += _registered.__all__

_guard(__name__, __all__)
