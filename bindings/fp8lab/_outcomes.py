# SPDX-License-Identifier: Apache-2.0
"""Where casts underflow and saturate, and how many elements did."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from fp8lab import _core
from fp8lab._arrays import as_doubles, as_format, check_choice, check_int, kind_of
from fp8lab._core import Format
from fp8lab._entry import guard as _guard
from fp8lab._values import State, record, state
from fp8lab.literals import DrawlessRoundingName, FormatName, ScaledRangeName

__all__ = [
    "CastBounds",
    "OutcomeBounds",
    "OutcomeCounts",
    "cast_bounds",
    "count_outcomes",
]


class OutcomeBounds(NamedTuple):
    """The magnitudes of one sign where a cast's outcome changes.

    Nonzero magnitudes up to ``underflow`` become zero (0: none does); those from ``saturated`` on lie beyond the
    largest finite value after rounding (inf: no finite one does).
    """

    underflow: float
    saturated: float


class CastBounds(NamedTuple):
    """The bounds of a cast; a rounding may treat positive and negative values differently."""

    positive: OutcomeBounds
    negative: OutcomeBounds


@record
@dataclasses.dataclass
class OutcomeCounts:
    """Counts of what a cast did to elements. A value is a zero, an infinity, a NaN or one that can underflow or
    saturate.

    ``underflows`` are finite nonzero values whose result is zero; ``saturated`` are the other values whose scaled value
    lies beyond the largest finite value after rounding, or is infinite.
    """

    zeros: int = 0
    infinities: int = 0
    nans: int = 0
    underflows: int = 0
    saturated: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_int(value, name, 0, 2**64 - 1)

    def __reduce__(self) -> State:
        return state("OutcomeCounts", **vars(self))

    def merge(self, other: OutcomeCounts) -> None:
        """Add the counts of ``other``."""
        if not isinstance(other, OutcomeCounts):
            raise TypeError(f"other must be an OutcomeCounts, not {kind_of(other)}")
        self.zeros += other.zeros
        self.infinities += other.infinities
        self.nans += other.nans
        self.underflows += other.underflows
        self.saturated += other.saturated


def cast_bounds(format: FormatName | Format, *, rounding: DrawlessRoundingName = "nearest_even") -> CastBounds:
    """The magnitudes from which on, and up to which, a cast to ``format`` saturates and underflows.

    Parameters
    ----------
    format : str or Format
    rounding : str
        One of ``roundings()``, but ``stochastic``, whose outcome hangs on its random bits.
    """
    mode = check_choice(rounding, "rounding", [name for name in _core.roundings() if name != "stochastic"])
    positive, negative = _core.cast_bounds(as_format(format, "format"), mode)
    return CastBounds(OutcomeBounds(*positive), OutcomeBounds(*negative))


def count_outcomes(
    bounds: CastBounds, x: Any, scaled: Any, result: Any, *, scaled_range: ScaledRangeName = "all"
) -> OutcomeCounts:
    """Counts what became of the values ``x``.

    Parameters
    ----------
    bounds : CastBounds
        The cast's, of ``cast_bounds``.
    x, scaled, result : array_like of real numbers, of one shape
        Values, what they were in front of the cast, and what they were after it (in any unit: only whether it is zero
        counts).
    scaled_range : str
        ``all``, or ``finite``: values that scaling made infinite count neither as underflows nor as saturated.

    Returns
    -------
    OutcomeCounts

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; the message says the rule.
    """
    if not isinstance(bounds, CastBounds):
        raise TypeError(f"bounds must be a CastBounds, not {kind_of(bounds)}")
    values, before, after = as_doubles(x, "x"), as_doubles(scaled, "scaled"), as_doubles(result, "result")
    for array, argument in ((before, "scaled"), (after, "result")):
        if array.shape != values.shape:
            raise ValueError(f"{argument} must have the shape of x, {values.shape}, not {array.shape}")
    finite = check_choice(scaled_range, "scaled_range", ("all", "finite")) == "finite"
    return OutcomeCounts(*_core.count_outcomes(bounds.positive, bounds.negative, values, before, after, finite))


_guard(__name__, __all__)
