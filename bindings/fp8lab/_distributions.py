# SPDX-License-Identifier: Apache-2.0
"""Distributions to draw from, and the exact SQNR of a format for each of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, as_format, check_int, check_name, check_real, named
from fp8lab._core import Distribution, Format
from fp8lab._entry import guard as _guard
from fp8lab.literals import DistributionName, FormatName

__all__ = [
    "BestScale",
    "best_scale",
    "distributions",
    "exact_sqnr_db",
    "normal_grid",
    "sample",
]


class BestScale(NamedTuple):
    """A scale and the SQNR in dB that it gives."""

    scale: float
    sqnr_db: float


def as_distribution(value: Any, argument: str) -> Distribution:
    """A distribution by name, or one that is given as it is."""
    if isinstance(value, Distribution):
        return value
    return named(argument, _core.find_distribution, check_name(value, argument, " or a Distribution"))


def distributions() -> list[Distribution]:
    """The distributions that there are: normal, uniform, laplace, student_t, lognormal; ``str()`` of each explains
    it."""
    return _core.distributions()


def sample(distribution: DistributionName | Distribution, size: int, *, seed: int) -> Array:
    """Draws of a distribution: the same for the same seed, on every machine and in C++.

    Element i is the quantile of ``(u + 1/2) / 2**53``, u from the Philox4x32-10 words of counter i and key ``seed``.
    The math library's last place may move an element by one float32 unit.

    Parameters
    ----------
    distribution : str or Distribution
        One of ``distributions()``.
    size : int
        How many; the first of more draws are the same.
    seed : int
        From 0 to 2^64 - 1.

    Returns
    -------
    ndarray of float32, (size,)

    Raises
    ------
    TypeError, ValueError
        For unknown distributions (the message lists the known ones), sizes and seeds out of range.
    """
    drawn = as_distribution(distribution, "distribution")
    out = np.empty(check_int(size, "size", 0, 2**40), np.float32)
    _core.sample(out, drawn, check_int(seed, "seed", 0, 2**64 - 1))
    return out


def normal_grid(size: int) -> Array:
    """The standard normal without chance: the quantiles of ``(i + 1/2) / size`` in a scrambled order that never
    changes.

    Parameters
    ----------
    size : int

    Returns
    -------
    ndarray of float32, (size,)

    Raises
    ------
    TypeError, ValueError
        For a size that is no int from 0 to 2^28.
    """
    out = np.empty(check_int(size, "size", 0, 2**28), np.float32)
    _core.normal_grid(out)
    return out


def exact_sqnr_db(
    format: FormatName | Format, distribution: DistributionName | Distribution, *, scale: float = 1.0
) -> float:
    """The SQNR in dB of a saturating cast to nearest, over a whole distribution, without sampling.

    ``10 log10(E[x^2] / E[(x - Q(x * scale) / scale)^2])`` by quadrature over the cell of each value.

    Parameters
    ----------
    format : str or Format
        With a sign, of at most 8 bits.
    distribution : str or Distribution
        One of ``distributions()``.
    scale : float
        Multiplies before the cast; ``largest / amax`` maps amax to the format's largest value.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        For other formats, unknown names, and a scale that is not positive and finite.
    """
    own = as_format(format, "format")
    return _core.exact_sqnr_db(own, as_distribution(distribution, "distribution"), check_real(scale, "scale"))


def best_scale(format: FormatName | Format, distribution: DistributionName | Distribution) -> BestScale:
    """The scale of the highest ``exact_sqnr_db``, and that SQNR.

    Parameters
    ----------
    format, distribution
        As for ``exact_sqnr_db``.

    Returns
    -------
    BestScale
        ``scale`` and ``sqnr_db``. Where many scales are equally good, the middle one.

    Raises
    ------
    TypeError, ValueError
        As ``exact_sqnr_db`` does.
    """
    return BestScale(*_core.best_scale(as_format(format, "format"), as_distribution(distribution, "distribution")))


_guard(__name__, __all__)
