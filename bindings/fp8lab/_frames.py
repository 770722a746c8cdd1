# SPDX-License-Identifier: Apache-2.0
"""Tables as frames of pandas or polars, and pictures by matplotlib: what is not installed is named, and nothing else
needs it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def frame_of(columns: Mapping[str, Any]) -> Any:
    """A pandas DataFrame of these columns; a polars one where pandas is not installed."""
    for package in ("pandas", "polars"):
        try:
            library = importlib.import_module(package)
        except ImportError:
            continue
        return library.DataFrame(dict(columns))
    raise ImportError("to_frame() needs pandas or polars: pip install pandas")


def counts_frame(edges: Any, counts: Any) -> Any:
    """A frame with a row for each bin: its edges and its count."""
    return frame_of({"low": np.asarray(edges)[:-1], "high": np.asarray(edges)[1:], "count": np.asarray(counts)})


def axes_of(axes: Any) -> Any:
    """The axes to draw on: those that are given, or new ones of matplotlib."""
    if axes is not None:
        return axes
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install matplotlib") from error
    return pyplot.subplots()[1]


#: Okabe and Ito's colours (Color Universal Design, 2008), which readers with a weak sense of red or green tell apart.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def plot_counts(axes: Any, edges: Any, counts: Any, label: str, color: str) -> None:
    """Draws a histogram as steps, from its first bin with a count to its last; edges above 0 on a logarithmic axis to
    base 2."""
    edges, counts = np.asarray(edges, np.float64), np.asarray(counts)
    used = np.flatnonzero(counts)
    if used.size == 0:
        return
    first, last = int(used[0]), int(used[-1]) + 1
    axes.stairs(counts[first:last], edges[first : last + 1], label=label, color=color)
    if edges[first] > 0:
        axes.set_xscale("log", base=2)
    axes.set_ylabel("count")


def plot_histogram(histogram: Any, axes: Any) -> Any:
    """A ``Histogram`` on axes, which are returned."""
    axes = axes_of(axes)
    plot_counts(axes, histogram.edges, histogram.counts, "", COLORS[0])
    return axes
