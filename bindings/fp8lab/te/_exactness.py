# SPDX-License-Identifier: Apache-2.0
"""What ``fp8lab.te`` has of a device's bits."""

from __future__ import annotations

from fp8lab import operators
from fp8lab.operators import Exactness
from fp8lab.te._tf32_splits import KNOWN

__all__ = ["exactness"]


def exactness() -> list[Exactness]:
    """What is exact of each function: the rows of ``operators.exactness()``, and one of products of float32.

    The latter has no distance: the sum is the tensor core's, but of one range of K, and a device may split K.
    """
    known, asked = KNOWN
    why = (
        f"cuBLASLt splits K by shape: for h200 it is known of {known:,} of {asked:,} shapes of 16 to 16384 rows, "
        "columns and K, whose words are an H200's; elsewhere K is not split"
    )
    return [*operators.exactness(), Exactness("generic_gemm", "float32", False, why, 0, 0, 0, "", False)]
