# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows of the package's values: short, with few digits, and every text escaped."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fp8lab import _core

_ROWS = 10  # of a table; more are counted
_COUNTS = ("zeros", "infinities", "nans", "below", "above", "underflows", "saturations", "total")
_CELL = 'style="text-align:left;vertical-align:top;padding-right:12px"'


def shown(value: Any) -> str:
    """A value in a cell: six significant digits, and texts as they are."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _escaped(value: Any) -> str:
    return html.escape(shown(value)).replace("\n", "<br>")


def table_html(title: str, columns: Mapping[str, Sequence[Any]]) -> str:
    """A table of its first rows."""
    rows = max((len(values) for values in columns.values()), default=0)
    head = "".join(f"<th {_CELL}>{_escaped(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td {_CELL}>{_escaped(cell)}</td>" for cell in row) + "</tr>"
        for row in zip(*(values[:_ROWS] for values in columns.values()))
    )
    more = f"<div>... and {rows - _ROWS} more rows</div>" if rows > _ROWS else ""
    return f"<div><b>{_escaped(title)}</b><table><tr>{head}</tr>{body}</table>{more}</div>"


def facts_html(title: str, facts: Mapping[str, Any], sentences: Sequence[str] = ()) -> str:
    """A title, facts by name, and sentences."""
    rows = "".join(f"<tr><th {_CELL}>{_escaped(name)}</th><td {_CELL}>{_escaped(value)}</td></tr>"
                   for name, value in facts.items())  # fmt: skip
    told = "".join(f"<div>{_escaped(one)}</div>" for one in sentences)
    return f"<div><b>{_escaped(title)}</b>{told}<table>{rows}</table></div>"


def with_names(fragment: str, names: Mapping[str, str]) -> str:
    """The fragment of a document, and what else it has."""
    return fragment + "".join(f"<div>.{_escaped(kind)}: {_escaped(text)}</div>" for kind, text in names.items())


def counts_html(name: str, title: str, counts: Mapping[str, Any]) -> str:
    """A histogram's picture."""
    edges, values = [float(one) for one in counts["edges"]], [int(one) for one in counts["counts"]]
    used = [i for i, one in enumerate(values) if one]
    first, last = (used[0], used[-1] + 1) if used else (0, 0)
    entry = {"name": name, "title": title, "label": "", "edges": edges[first : last + 1], "counts": values[first:last],
             **{key: int(counts[key]) for key in _COUNTS}}  # fmt: skip
    section = {"kind": "histograms", "name": name, "title": "", "least": 0.0, "detail": False, "histograms": [entry]}
    return _core.document_fragment(json.dumps({
        "experiment": "histogram", "schema": 2, "arguments": {}, "passed": None, "sections": [section],
        "provenance": dict.fromkeys(("version", "commit", "compiler", "cpu", "date"), ""),
    }))  # fmt: skip


def _format_html(one: Any) -> str:
    names = ("bits", "exponent_bits", "mantissa_bits", "bias", "is_signed", "has_subnormals", "specials", "max")
    return facts_html(one.name, {name: getattr(one, name) for name in names}, [one.description])


def _model_html(one: Any) -> str:
    names = ("maker", "chip", "instruction", "k", "products_per_step", "steps", "fraction_bits", "zero_exponent",
             "accumulator", "scale_format", "scale_block", "evidence", "source")  # fmt: skip
    facts = {name: getattr(one, name) for name in names if getattr(one, name) not in (None, "")}
    return facts_html(one.name, {**facts, "operands": ", ".join(one.operands)}, [one.description])


def _totals_html(one: Any) -> str:
    names: tuple[str, ...] = ("count", "not_finite")
    if one.count:
        names += ("sqnr_db", "mean_error", "mean_absolute_error", "rms_error", "max_absolute_error",
                  "max_relative_error")  # fmt: skip
    return facts_html("Errors", {name: getattr(one, name) for name in names})


def _histogram_html(one: Any) -> str:
    counts = {name: getattr(one, name) for name in ("edges", "counts", *_COUNTS)}
    return counts_html("histogram", f"{one.total} values", counts)


def value_html(value: Any) -> str:
    """What a notebook shows of a class of the extension module."""
    made: dict[type, Callable[[Any], str]] = {
        _core.Format: _format_html,
        _core.MmaModel: _model_html,
        _core.ErrorTotals: _totals_html,
        _core.Histogram: _histogram_html,
    }
    return next(show(value) for kind, show in made.items() if isinstance(value, kind))
