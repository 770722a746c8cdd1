# SPDX-License-Identifier: Apache-2.0
"""What ``torch.compile`` leaves alone: it runs between two compiled graphs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

__all__ = ["uncompiled"]

_REASON = "fp8lab computes it on the CPU, by code that torch.compile does not see"


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which breaks a graph that is compiled. Nothing of the compiler is imported for it: that takes as
    long as torch itself."""

    apart: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **options)
        if not apart:
            apart.append(torch._dynamo.disable(function, reason=_REASON))
        return apart[0](*args, **options)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    call._torchdynamo_disable_msg = _REASON  # type: ignore[attr-defined]
    return call
