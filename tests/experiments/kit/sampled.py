# SPDX-License-Identifier: Apache-2.0
"""How much is tested: a sample each time, all of it with ``./dev test --exhaustive``."""

import os
from collections.abc import Iterable
from typing import TypeVar

EXHAUSTIVE = "FP8LAB_EXHAUSTIVE" in os.environ
Case = TypeVar("Case")


def sampled(cases: Iterable[Case], every: int) -> list[Case]:
    """One case of ``every``, or all of them."""
    return list(cases)[:: 1 if EXHAUSTIVE else every]
