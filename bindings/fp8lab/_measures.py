# SPDX-License-Identifier: Apache-2.0
"""Errors and histograms of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_array,
    as_doubles,
    as_float32,
    as_format,
    check_choice,
    check_int,
    check_real,
    check_unread,
    contiguous,
)
from fp8lab._core import ErrorTotals, Format, Histogram
from fp8lab._entry import guard as _guard
from fp8lab.literals import BinsName, FormatName, OutputName, RoundingName

__all__ = [
    "absolute_error",
    "errors",
    "histogram",
    "relative_error",
    "ulp_error",
]


def _numbers(x: Any, argument: str) -> Array:
    """float32 as it is, everything else as float64."""
    array, _ = as_array(x, argument)
    return contiguous(array) if array.dtype == np.float32 else as_doubles(x, argument)


def _pair(actual: Any, reference: Any) -> tuple[Array, Array]:
    a, r = as_doubles(actual, "actual"), as_doubles(reference, "reference")
    if a.shape != r.shape:
        raise ValueError(f"actual and reference must have the same shape, not {a.shape} and {r.shape}")
    return a, r


def absolute_error(actual: Any, reference: Any) -> Array:
    """``actual - reference``, elementwise in float64."""
    result: Array = _core.absolute_error(*_pair(actual, reference))
    return result


def relative_error(actual: Any, reference: Any) -> Array:
    """``(actual - reference) / |reference|``, elementwise in float64; 0 where both are equal."""
    result: Array = _core.relative_error(*_pair(actual, reference))
    return result


def ulp_error(actual: Any, reference: Any, *, format: OutputName | Format = "float32") -> Array:
    """``actual - reference`` in units in the last place of ``format`` at the reference, elementwise in float64.

    ``format`` is float32 or one of ``formats()``, or a ``Format`` of one's own. The unit is the spacing in the
    reference's binade:
    the smallest one below the smallest normal value, the largest one above the largest value.
    """
    own = None if isinstance(format, str) and format == "float32" else as_format(format, "format")
    result: Array = _core.ulp_error(*_pair(actual, reference), own)
    return result


def errors(actual: Any, reference: Any) -> ErrorTotals:
    """Totals of the errors of two arrays of one shape: count, mean, rms and largest errors, SQNR in dB.

    Pairs with a NaN or an infinity are counted in ``not_finite`` and left out. Totals merge: ``a.merge(b)``.
    """
    totals = ErrorTotals()
    a, r = _numbers(actual, "actual"), _numbers(reference, "reference")
    if a.dtype != r.dtype or a.shape != r.shape:
        a, r = _pair(actual, reference)
    totals._add(a, r)
    return totals


def histogram(
    values: Any,
    bins: BinsName = "binade",
    *,
    low: float | None = None,
    high: float | None = None,
    count: int | None = None,
    format: FormatName | Format | None = None,
    cast_input: Any = None,
    rounding: RoundingName | None = None,
) -> Histogram:
    """A histogram that counts zeros, infinities, NaN, underflow and saturation apart; every value counts once.

    Parameters
    ----------
    values : array_like of real numbers
    bins : str
        ``linear``: ``count`` bins over [low, high), signed; ``log``: ``count`` bins of log10 of magnitudes, over
        [low, high);
        ``binade``: a bin for each 2^e <= magnitude < 2^(e+1), e from low to high (-150 to 127 if left out);
        ``code``: a bin for each code of ``format``.
    low, high : float
        Values outside are counted in ``below`` and ``above``; not for ``code``.
    count : int, optional
        Bins, for ``linear`` and ``log``; 100 if left out.
    format : str or Format, optional
        The format of ``code`` bins and of ``cast_input``'s cast; ``e4m3`` if left out.
    cast_input : array_like of float32, of values' shape, optional
        What was cast to give ``values``: elements that the cast to ``format`` underflows or saturates are counted in
        ``underflows`` and ``saturations`` instead of the bins.
    rounding : str, optional
        The rounding of that cast; ``nearest_even`` if left out.

    Returns
    -------
    Histogram
        ``counts`` and ``edges`` (one more), the counts apart, ``merge`` and ``to_csv``.

    Raises
    ------
    TypeError, ValueError
        For arguments that make no bins, or that nothing would read; the message says the rule.
    """
    array = _numbers(values, "values") if cast_input is None else as_doubles(values, "values")
    bins = check_choice(bins, "bins", ("linear", "log", "binade", "code"))
    if bins in ("linear", "log") and (low is None or high is None):
        raise ValueError(f"low and high are needed for {bins} bins")
    if bins == "code":
        check_unread("linear, log and binade bins", low=low, high=high)
    if bins in ("binade", "code"):
        check_unread("linear and log bins", count=count)
    if bins != "code" and cast_input is None:
        check_unread("code bins and cast_input", format=format)
    if cast_input is None:
        check_unread("cast_input", rounding=rounding)
    if bins == "binade":
        low = check_int(-150 if low is None else low, "low", -1074, 1023)
        high = check_int(127 if high is None else high, "high", -1074, 1023)
    own = as_format("e4m3" if format is None else format, "format")
    result = Histogram(
        bins,
        0.0 if low is None else check_real(low, "low"),
        0.0 if high is None else check_real(high, "high"),
        check_int(100 if count is None else count, "count", 1, 2**24),
        own,
    )
    source = None if cast_input is None else as_float32(cast_input, "cast_input")
    if source is not None and source.shape != array.shape:
        raise ValueError(f"cast_input must have the shape of values, {array.shape}, not {source.shape}")
    mode = check_choice("nearest_even" if rounding is None else rounding, "rounding", _core.roundings())
    if source is None:
        result._add(array)
    else:
        result._add_cast(array, source, own, mode)
    return result


_guard(__name__, __all__)
