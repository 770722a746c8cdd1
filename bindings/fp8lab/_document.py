# SPDX-License-Identifier: Apache-2.0
"""What an experiment gives back: its tables, histograms and curves as arrays, and its report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, check_bool, check_int, check_name, check_path, kind_of
from fp8lab._frames import COLORS, axes_of, counts_frame, frame_of, plot_counts
from fp8lab._html import counts_html, table_html, with_names
from fp8lab._values import State, restorer, state

_Value = TypeVar("_Value")
#: Ends of names that no directory has by intention.
_OTHER_FILES = (b".json", b".csv", b".htm", b".txt", b".pdf", b".md")


def _numbers(values: list[Any]) -> Array:
    return np.array([np.nan if value is None else float(value) for value in values], np.float64)


def _array(column: Mapping[str, Any]) -> Array:
    """A column's values; a missing number is NaN, any other missing value None in an array of objects."""
    values = column["values"]
    if column["type"] == "number":
        return _numbers(values)
    dtypes: dict[str, Any] = {"text": str, "integer": np.int64, "flag": np.bool_}
    return np.array(values, object if None in values else dtypes[column["type"]])


class _ByName(dict[str, _Value]):
    """Parts of a document by name; an error names those that there are."""

    def __init__(self, kind: str, parts: Mapping[str, _Value]) -> None:
        self._kind = kind
        super().__init__(parts)

    def __missing__(self, name: str) -> _Value:
        raise KeyError(f"no {self._kind} {name!r}; there are: {', '.join(self) or 'none'}")


class Table(dict[str, Array]):
    """A table: a read-only dict of the array of each column by its name. ``pandas.DataFrame(table)`` takes it.

    Attributes
    ----------
    name, title : str
        What it is called, and what it tells.
    units : dict of str
        The unit of each column that has one.
    expected : dict of arrays
        What the texts of a column should be, for each column that has such.
    """

    def __init__(self, section: Mapping[str, Any]) -> None:
        self._section = section
        self.name: str = section["name"]
        self.title: str = section["title"]
        self.units = {column["name"]: column["unit"] for column in section["columns"] if column["unit"]}
        self.expected = {
            column["name"]: np.array(column["expected"]) for column in section["columns"] if "expected" in column
        }
        super().__init__({column["name"]: _array(column) for column in section["columns"]})

    def __missing__(self, name: str) -> Array:
        raise KeyError(f"no column {name!r} in {self.name}; its columns: {', '.join(self)}")

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a Table is read-only; dict(table) is one of your own")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:  # for copies and pickles, which would set items
        return Table, (self._section,)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, each a dict with the names of the columns."""
        return [dict(zip(self, row)) for row in zip(*(column.tolist() for column in self.values()))]

    def to_frame(self) -> Any:
        """A pandas DataFrame with the columns of the table; a polars one where pandas is not installed.

        Raises
        ------
        ImportError
            Where neither is installed: nothing else here needs them.
        """
        return frame_of(self)

    def _repr_html_(self) -> str:
        return table_html(self.title or self.name, {name: values.tolist() for name, values in self.items()})

    def __repr__(self) -> str:
        rows = len(next(iter(self.values()), ()))
        return f"<Table {self.name}: {rows} rows of {', '.join(self)}>"


class Counts(Mapping[str, Any]):
    """A histogram's counts: the arrays ``edges`` and ``counts``, and the numbers beside the bins."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name: str = entry["name"]
        self.title: str = entry["title"]
        arrays = {"edges": np.array(entry["edges"]), "counts": np.array(entry["counts"], np.int64)}
        self._values = {
            key: arrays.get(key, value) for key, value in entry.items() if key not in ("name", "title", "label")
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def to_frame(self) -> Any:
        """A pandas DataFrame, or a polars one, with a row for each bin: ``low``, ``high`` and ``count``.

        Raises
        ------
        ImportError
            Where neither is installed.
        """
        return counts_frame(self["edges"], self["counts"])

    def plot(self, axes: Any = None) -> Any:
        """Draw the bins by matplotlib.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Where to draw; new ones if left out.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            Where matplotlib is not installed.
        """
        axes = axes_of(axes)
        plot_counts(axes, self["edges"], self["counts"], self.name, COLORS[0])
        axes.set_title(self.title)
        return axes

    def _repr_html_(self) -> str:
        return counts_html(self.name, self.title, self)

    def __repr__(self) -> str:
        return f"<Counts {self.name}: {self['total']} elements, {self.title}>"


def _sections(content: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    return [section for section in content["sections"] if section["kind"] == kind]


class Document:
    """What an experiment found. ``str()`` is its report for a terminal.

    Two documents are equal where every number, text and array is.

    Parameters
    ----------
    text : str
        JSON as ``to_json()`` gives it and ``out`` and ``save`` write it.

    Raises
    ------
    TypeError, ValueError
        Where that is not the JSON of a document.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"text must be the JSON of a document (str), not {kind_of(text)}")
        self._text = text
        try:
            self._content: dict[str, Any] = json.loads(text)
            self._facts = {
                key: self._content[key] for key in ("experiment", "schema", "arguments", "provenance", "passed")
            }
            list(self._content["sections"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError("text must be the JSON of a document") from error
        self._tables: Mapping[str, Table] | None = None  # made when it is asked for the first time
        self._histograms: Mapping[str, Counts] | None = None

    @property
    def experiment(self) -> str:
        """The experiment's name."""
        return str(self._facts["experiment"])

    @property
    def schema(self) -> int:
        """The version of the keys in JSON."""
        return int(self._facts["schema"])

    @property
    def arguments(self) -> dict[str, Any]:
        """The values of all arguments."""
        return dict(self._facts["arguments"])

    @property
    def provenance(self) -> dict[str, str]:
        """The version, commit, compiler, CPU and date that made it."""
        return dict(self._facts["provenance"])

    @property
    def passed(self) -> bool | None:
        """Whether what the experiment checks holds; None where it checks nothing."""
        passed: bool | None = self._facts["passed"]
        return passed

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables by name."""
        if self._tables is None:
            tables = {section["name"]: Table(section) for section in _sections(self._content, "table")}
            self._tables = MappingProxyType(_ByName("table", tables))
        return self._tables

    @property
    def histograms(self) -> Mapping[str, Counts]:
        """The histograms by name."""
        if self._histograms is None:
            entries = [entry for section in _sections(self._content, "histograms") for entry in section["histograms"]]
            histograms = {entry["name"]: Counts(entry) for entry in entries}
            self._histograms = MappingProxyType(_ByName("histogram", histograms))
        return self._histograms

    @property
    def curves(self) -> Mapping[str, Mapping[str, tuple[Array, Array]]]:
        """The sets of curves by name: of each line the arrays x and y, by its label."""
        curves: dict[str, Mapping[str, tuple[Array, Array]]] = {
            section["name"]: {line["label"]: (_numbers(line["x"]), _numbers(line["y"])) for line in section["lines"]}
            for section in _sections(self._content, "curves")
        }
        return MappingProxyType(_ByName("set of curves", curves))

    @property
    def texts(self) -> Mapping[str, str]:
        """The texts by name."""
        texts = {section["name"]: "\n".join(section["paragraphs"]) for section in _sections(self._content, "text")}
        return MappingProxyType(_ByName("text", texts))

    def text(self, *, width: int = 100, unicode: bool = True) -> str:
        """The report for a terminal of ``width`` columns; without ``unicode``, pictures are drawn in ASCII."""
        return _core.document_text(self._text, check_int(width, "width", 20, 1000), check_bool(unicode, "unicode"))

    def to_json(self) -> str:
        """The document as JSON, as ``document.schema.json`` beside this package's modules describes it."""
        return self._text

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the JSON and a CSV for each table, histogram and set of curves into a directory, all of them or none.

        Or write a page for a browser, where the name ends in ``.html``: one file that needs no other and no network,
        with the report's words, pictures, tables that can be sorted, and provenance. Tables have 500 rows there at
        most, and say so.

        Raises
        ------
        OSError
            Where they cannot be written; what was there stays.
        ValueError
            For the name of another kind of file, such as ``x.json``, where there is no such directory.
        """
        path = check_path(directory, "directory")
        suffix = os.path.splitext(path)[1]
        if suffix in _OTHER_FILES and not os.path.isdir(path):
            raise ValueError(
                f"directory must be that of a directory, or of a page (.html), not of a file {os.fsdecode(suffix)}: "
                "JSON and CSV are written into a directory, and to_json() gives the JSON"
            )
        if path.endswith(b".html") and not os.path.isdir(path):
            _core.save_page(self._text, path)
        else:
            _core.save_document(self._text, path)

    def to_html(self) -> str:
        """The page that ``save("x.html")`` writes."""
        return _core.document_page(self._text)

    def to_frame(self, table: str | None = None) -> Any:
        """A table as a pandas DataFrame, or a polars one where pandas is not installed.

        Parameters
        ----------
        table : str, optional
            The name of one of ``tables``; the first if left out.

        Raises
        ------
        ValueError
            For an unknown name, and where the document has no table.
        ImportError
            Where neither is installed.
        """
        return self._one_of(self.tables, "table", table).to_frame()

    def plot(self, name: str | None = None, axes: Any = None) -> Any:
        """Draw a histogram or a set of curves by matplotlib.

        Parameters
        ----------
        name : str, optional
            One of ``histograms`` or ``curves``; if left out, the first set of curves, or else the first histogram.
        axes : matplotlib.axes.Axes, optional
            Where to draw; new ones if left out.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError
            For an unknown name, and where the document has nothing to draw.
        ImportError
            Where matplotlib is not installed.
        """
        drawn: Any = self._one_of({**self.curves, **self.histograms}, "histogram or set of curves", name)
        if isinstance(drawn, Counts):
            return drawn.plot(axes)
        axes = axes_of(axes)
        section = next(one for one in _sections(self._content, "curves") if name in (None, one["name"]))
        for i, (label, (x, y)) in enumerate(drawn.items()):
            axes.plot(x, y, label=label, color=COLORS[i % len(COLORS)], linestyle=("-", "--", ":")[i // 7 % 3])
        for axis in ("x", "y"):
            getattr(axes, f"set_{axis}label")(section[axis]["name"])
            if section[axis]["logarithmic"]:
                getattr(axes, f"set_{axis}scale")("log")
        axes.set_title(section["title"])
        axes.legend()
        return axes

    def _one_of(self, known: Mapping[str, Any], kind: str, name: str | None) -> Any:
        if not known:
            raise ValueError(f"{self.experiment} has no {kind}")
        if name is None:
            return next(iter(known.values()))
        if check_name(name, kind.split()[0]) not in known:
            raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(known)}")
        return known[name]

    def __str__(self) -> str:
        return self.text()

    def _names(self) -> dict[str, str]:
        tables = (f"{table.name} ({len(next(iter(table.values()), ()))} rows)" for table in self.tables.values())
        names = {"tables": list(tables), "histograms": list(self.histograms), "curves": list(self.curves)}
        return {
            kind: ", ".join(some[:6]) + (f" and {len(some) - 6} more" if len(some) > 6 else "")
            for kind, some in names.items()
            if some
        }

    def __repr__(self) -> str:
        judged = {None: "", True: ": passed", False: ": NOT passed"}[self.passed]
        lines = [
            f"<fp8lab {self.experiment}{judged}",
            *(f"  .{kind}: {names}" for kind, names in self._names().items()),
        ]
        return "\n".join(lines) + "\n  print() shows the report>"

    def _repr_html_(self) -> str:
        return with_names(_core.document_fragment(self._text), self._names())

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Document) else NotImplemented

    def __reduce__(self) -> State:
        return state("Document", text=self._text)


restorer("Document", "text")(Document)
