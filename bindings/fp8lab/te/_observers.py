# SPDX-License-Identifier: Apache-2.0
"""Who is told of every cast under the emulation: has ``saw_cast(quantizer, x, result, amax)``."""

from __future__ import annotations

from typing import Any

__all__ = ["OBSERVERS"]

OBSERVERS: list[Any] = []
