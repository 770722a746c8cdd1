# SPDX-License-Identifier: Apache-2.0
"""Documents as pages: valid HTML that needs nothing else, with the numbers of the JSON and escaped texts."""

import html.parser
import json
import math
import os
import pathlib
import re

import fp8lab
import numpy as np
import pytest
from command import files_in, prints, refuses
from fp8lab import _core, _experiments
from fp8lab.experiments import Document
from small_calls import REGISTERED, small_call

VOID = {"meta", "input", "br"}
CLOSED = {"path", "rect", "circle"}


class Page(html.parser.HTMLParser):
    """The tables and texts of a page; every tag is closed, and nothing is loaded."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.texts: list[str] = []
        self.ids: list[str] = []
        self._cell: str | None = None
        self._title: str | None = None
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        assert not {"src", "href", "action", "data", "xlink:href"} & given.keys() or given.get("href", "").startswith(
            "#"
        )
        assert not any(name.startswith("on") for name in given)
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")
        if "id" in given:
            self.ids.append(given["id"])
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self._cell, self._title = "", given.get("title")

    def handle_startendtag(self, tag, attrs):
        assert tag in CLOSED, tag

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self._title if self._title is not None else self._cell)
            self._cell = None

    def handle_data(self, data):
        if self._cell is not None and self.open[-1] in ("td", "th", "mark"):
            self._cell += data.strip()
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)


def check_no_network(text: str) -> None:
    assert not re.search(r"https?://|@import|url\(", re.sub(r"<(td|dd|p|th|dt)\b[^>]*>[^<]*", "", text))


def expected_cell(value, kind):
    if value is None:
        return "-"
    if kind == "flag":
        return "yes" if value else "no"
    return value if kind == "text" else str(value)


def has_hidden_columns(section) -> bool:
    """Of a table in rows: a list of facts has no columns to be shown."""
    in_rows = section["kind"] == "table" and section["layout"] == "rows" and not section["detail"]
    return in_rows and any(one["values"] and one["detail"] for one in section["columns"])


def is_same(shown: str, value: object, kind: str) -> bool:
    if kind == "number" and value is not None:
        return math.isclose(float(shown), float(value), rel_tol=0, abs_tol=0)
    return " ".join(shown.split()) == " ".join(expected_cell(value, kind).split())


@pytest.mark.parametrize("name", REGISTERED)
def test_a_page_is_valid_and_has_the_numbers_of_the_json(name):
    document = _experiments.run(name, small_call(name))
    text = _core.document_page(document.to_json())
    page = Page(text)
    check_no_network(text)
    command = f"fp8lab {REGISTERED[name]['command']}"
    assert (
        f"<title>{command}</title>" in text
        and f"<h1>{command}" in text
        and f"<b>{command}</b>" in document._repr_html_()
    )
    tables = iter(page.tables)
    for section in json.loads(document.to_json())["sections"]:
        if section["kind"] == "text":
            flat = " ".join(" ".join(page.texts).split())
            assert all(" ".join(one.split()) in flat for one in section["paragraphs"])
        if section["kind"] != "table" or section["layout"] == "records" or not section["columns"]:
            continue
        rows = len(section["columns"][0]["values"])
        if rows == 0:
            continue
        shown = next(tables)
        assert len(shown) == 1 + min(rows, 500) and len(shown[0]) == len(section["columns"])
        for i, column in enumerate(section["columns"]):
            for row, value in zip(shown[1:], column["values"]):
                assert is_same(row[i], value, column["type"]), (column["name"], row[i], value)
    assert next(tables, None) is None
    assert text.count("all columns") == sum(
        has_hidden_columns(one) for one in json.loads(document.to_json())["sections"]
    )
    for fact in document.provenance.values():
        assert fact in " ".join(page.texts)


WORDS = "<script>alert(\"1\")</script> & 'x' \x01 \u00e9"


def hostile() -> str:
    """A document all of whose texts are HTML."""
    content = json.loads(_experiments.run("double_rounding", small_call("double_rounding")).to_json())
    table = next(section for section in content["sections"] if section["kind"] == "table")
    counts = {key: 1 for key in ("zeros", "infinities", "nans", "below", "above", "underflows", "saturations", "total")}
    for section in content["sections"]:
        section["title"] = WORDS
        section.update({"paragraphs": [WORDS]} if section["kind"] == "text" else {})
    for column in table["columns"]:
        column.update(title=WORDS, unit=WORDS)
        if column["type"] == "text":
            column["values"] = [WORDS for _ in column["values"]]
            column["expected"] = [WORDS + "<" for _ in column["values"]]
    content["sections"] += [
        {"kind": "histograms", "name": "h", "title": WORDS, "least": 0.0, "detail": False, "histograms": [
            {"name": "h", "title": WORDS, "label": WORDS, "edges": [0.5, 1, 2], "counts": [2, 3], **counts}]},
        {"kind": "curves", "name": "c", "title": WORDS, "x": {"name": WORDS, "logarithmic": False}, "labelled": False,
         "y": {"name": WORDS, "logarithmic": True}, "detail": False,
         "lines": [{"label": WORDS, "x": [1, 2, 3], "y": [1, None, "inf"]}]},
        {"kind": "number_line", "name": "n", "title": WORDS, "detail": False, "values": [1, 2], "marked": 0,
         "labels": [WORDS, WORDS], "low": 0.5, "high": 1.5, "low_included": True, "high_included": False},
    ]  # fmt: skip
    content["arguments"] = {"x": WORDS}
    content["provenance"]["cpu"] = WORDS
    return json.dumps(content)


@pytest.mark.parametrize("render", [_core.document_page, _core.document_fragment])
def test_every_text_is_escaped(render):
    text = render(hostile())
    Page(text)
    assert "<script>alert" not in text and "alert(&quot;1&quot;)" in text and "\x01" not in text
    assert text.count("<script>") == (1 if render is _core.document_page else 0)


def test_a_curve_stops_where_there_is_no_number():
    text = _core.document_page(hostile())
    line = re.search(r'<path class="s0" d="([^"]*)"/><circle', text)[1]
    assert (
        line.count("M") == 1
        and "L" not in line
        and "nan" not in text.lower().split("</style>")[1].split("<script>")[0].replace("nan 1", "")
    )


def test_an_axis_has_plain_numbers():
    document = fp8lab.experiments.accumulate(k=[32, 16384], rows=2, columns=2)
    ticks = re.findall(r'<text class="ax"[^>]*>([0-9.e+-]+)</text>', _core.document_page(document.to_json()))
    assert {"100", "1000", "10000"} <= set(ticks) and "1e+04" not in ticks


def test_names_on_a_page_are_words():
    text = _core.document_page(_experiments.run("accumulate", small_call("accumulate")).to_json())
    assert re.search(r">backward error [a-z]+</text>", text) and "_error_" not in "".join(
        re.findall(">([^<]*)</text>", text)
    )
    assert "<summary>rounds to it</summary>" in fp8lab.explain("e4m3", 0x2A).to_html()


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    document = fp8lab.experiments.cast(size=10)
    path = tmp_path / "cast.html"
    document.save(path)
    Page(path.read_text())
    assert files_in(tmp_path) == ["cast.html"]
    path.chmod(0o600)
    document.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o400)
    with pytest.raises(OSError, match="the file is read-only"):
        document.save(path)
    for wrong, words in {
        "/dev/full/x.html": "cannot write",
        str(tmp_path / "none" / "x.html"): "there is no directory",
    }.items():
        with pytest.raises(OSError, match=words):
            document.save(wrong)
    if os.path.exists("/dev/full"):
        os.symlink("/dev/full", tmp_path / "full.html")
        with pytest.raises(OSError, match="is a device"):
            _core.save_page(document.to_json(), b"/dev/full")
    assert "cast.html" in files_in(tmp_path) and not any(name.startswith(".") for name in files_in(tmp_path))


def test_the_command_writes_a_page(tmp_path):
    page = tmp_path / "a page.html"
    prints(["cast", "--size", "10", "--html", str(page)], rf"Page: {page}\n$")
    assert "fp8lab cast" in page.read_text()
    prints(["cast", "--size", "10", "--quiet", "--html", str(page)], "^$")
    refuses("cast --size 10 --html /dev/full", "cannot write /dev/full: it is a device, .*")
    refuses(f"cast --size 10 --html {tmp_path}", f"cannot write {tmp_path}: it is a directory")


def test_a_report_has_all_documents_and_names_the_others(tmp_path):
    fp8lab.experiments.cast(size=10, out=tmp_path)
    fp8lab.experiments.double_rounding(high=1.001, out=tmp_path)
    (tmp_path / "a<b>.json").write_text("{}")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    made = fp8lab.report(tmp_path)
    assert made == tmp_path / "report.html"
    page = Page(made.read_text())
    assert page.ids == ["d1", "d2"] and "a<b>.json" in " ".join(page.texts)
    printed = prints(["report", str(tmp_path), "--html", str(tmp_path / "other.html")], "Page: .*, of 2 results\n")
    assert "Left out: a<b>.json: this is not the JSON of a document" in printed
    assert (tmp_path / "other.html").read_text() == made.read_text()
    empty = pathlib.Path(tmp_path, "empty")
    empty.mkdir()
    with pytest.raises(ValueError, match="there is no document of fp8lab"):
        fp8lab.report(empty)
    refuses(f"report {empty}", "there is no document of fp8lab .*")


def test_a_report_looks_into_the_directories_below(tmp_path):
    fp8lab.experiments.double_rounding(high=1.001, out=tmp_path / "second")
    fp8lab.experiments.cast(size=10, out=tmp_path / "first" / "deeper")
    (tmp_path / "first" / "note.json").write_text("{}")
    (tmp_path / "back").symlink_to(tmp_path)
    page = Page(fp8lab.report(tmp_path).read_text())
    assert page.ids == ["d1", "d2"]
    names = ["first/deeper/cast", "second/double_rounding"]
    assert [one for one in page.texts if one in names][:2] == names
    printed = prints(["report", str(tmp_path)], "Page: .*, of 2 results\n")
    assert "Left out: back: a link to a directory, which is not followed\n" in printed
    assert "Left out: first/note.json: this is not the JSON of a document" in printed
    for name in range(30):
        (tmp_path / "first" / f"{name}.json").write_text("{}")
    printed = prints(["report", str(tmp_path)], "Page: .*, of 2 results\n")
    assert printed.count("Left out: ") == 21 and printed.endswith("Left out: 12 more, which the page names\n")
    refuses(f"report {tmp_path / 'none'}", "'.*none' is not a directory")
    none = tmp_path / "none" / "below"
    none.mkdir(parents=True)
    (none / "a.json").write_text("{}")
    (none / "b.json").write_text("{}")
    refuses(
        f"report {none.parent}",
        r"there is no document of fp8lab \(.json\) in '.*none' or a directory below it; "
        r"left out: below/a.json: this is not .* \(and 1 more\)",
    )


NO_DOCUMENTS = {
    "": "this is not the JSON of a document: it is not JSON, or its end is missing",
    '{"schema": 2, "exper': "this is not the JSON of a document: it is not JSON, or its end is missing",
    "[1, 2]": "this is not the JSON of a document: it is not an object with keys",
    '{"name": "other"}': 'this is not the JSON of a document: the key "schema" is missing',
    '{"schema": 2, "experiment": "cast"}': 'this is not the JSON of a document: the key "arguments" is missing',
    '{"schema": "2"#': 'this is not the JSON of a document: "schema" is not a whole number',
    '{"schema": 99#': "the document has schema 99, and this version of fp8lab reads 2",
    '{"schema": 2#': "this is not the JSON of a document: a key is missing in it, or a value has another type",
}
KEYS = ', "experiment": "cast", "arguments": {}, "provenance": {}, "passed": null, "sections": []}'


@pytest.mark.parametrize("text", NO_DOCUMENTS)
def test_json_that_is_no_document_is_told_in_words_of_ours(text, tmp_path):
    (tmp_path / "other.json").write_text(text.replace("#", KEYS))
    refuses(f"report {tmp_path}", f".*; left out: other.json: {re.escape(NO_DOCUMENTS[text])}")


def test_a_report_names_the_directories_that_it_cannot_read(tmp_path):
    fp8lab.experiments.cast(size=10, out=tmp_path / "open")
    within = os.open(tmp_path, os.O_DIRECTORY)
    for _ in range(17):  # longer than any path that can be opened
        os.mkdir("d" * 250, dir_fd=within)
        deeper = os.open("d" * 250, os.O_DIRECTORY, dir_fd=within)
        os.close(within)
        within = deeper
    os.close(within)
    page = tmp_path / "page.html"
    printed = prints(["report", str(tmp_path), "--html", str(page)], "Page: .*, of 1 result\n")
    assert printed.endswith("d: a directory that cannot be read: File name too long\n")
    assert "a directory that cannot be read" in page.read_text()


def test_long_arrays_are_not_printed_whole():
    x = np.arange(100_000, dtype=np.float32)
    for shown in (fp8lab.quantize(x.reshape(3125, 32), "te_mxfp8"), fp8lab.histogram(x)):
        assert len(shown._repr_html_()) < 20_000
    content = json.loads(fp8lab.experiments.double_rounding(high=1.001).to_json())
    table = next(section for section in content["sections"] if section["kind"] == "table")
    for column in table["columns"]:
        column["values"] = column["values"][:1] * 700
    many = Document(json.dumps(content))
    text = _core.document_page(many.to_json())
    assert "The first 500 of 700 rows" in text and len(text) < 400_000
