# SPDX-License-Identifier: Apache-2.0
"""What every registered experiment promises: a document that its schema describes, and a report at any width."""

import copy
import csv
import importlib.resources
import inspect
import json
import math
import pickle
import re
import sys

import fp8lab
import jsonschema
import numpy as np
import pytest
from fp8lab import _core, _experiments, experiments
from fp8lab.experiments import Document
from small_calls import PUBLIC, REGISTERED, path_of, small_call

#: A small call of each: the one that it registers, or one that shows more.
CALLS = {name: small_call(name) for name in REGISTERED} | {
    "doctor": {**small_call("doctor"), "probe": path_of("probe")},
    "doctor_gemm": {**small_call("doctor_gemm"), "probe": path_of("gemm_probe")},
    "linear": {
        **small_call("linear"),
        "recipes": ["te_delayed_hopper", "te_mxfp8_blackwell", ("mine", fp8lab.linear_recipes()[-1].recipe)],
    },
    "train": {
        "sizes": (64, 32, 16),
        "recipes": ["te_delayed_hopper", "te_mxfp8_blackwell"],
        "batch": 32,
        "steps": 30,
        "jump_step": 25,
        "loss": "mse",
        "error_steps": [1, 30],
    },
    "delayed": {"trace": {"x": np.float32([4, 0, 0, 0, 1, np.inf, 1]), "y": np.ones(7, np.float32)}, "history": [3]},
}
SCHEMA = json.loads((importlib.resources.files("fp8lab") / "document.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
WIDTHS = (40, 80, 200)


@pytest.fixture(scope="module")
def documents():
    made = {}

    def document(name):
        if name not in made:
            made[name] = _experiments.run(name, CALLS[name])
        return made[name]

    return document


def test_every_public_experiment_is_a_function():
    assert set(CALLS) == set(REGISTERED)
    assert [*experiments.__all__] == ["Document", *PUBLIC]


@pytest.mark.parametrize("name", CALLS)
def test_the_schema_describes_it(documents, name):
    content = json.loads(documents(name).to_json())
    VALIDATOR.validate(content)
    names = [section["name"] for section in content["sections"]]
    assert len(set(names)) == len(names) and content["experiment"] == name
    of_the_run = {"threads", "scheduler"}  # they change no result
    assert content["arguments"].keys() == {one["name"] for one in REGISTERED[name]["arguments"]} - of_the_run


def test_the_schema_finds_what_is_wrong(documents):
    good = json.loads(documents("double_rounding").to_json())
    table = next(i for i, section in enumerate(good["sections"]) if section["kind"] == "table")
    for change in (
        lambda wrong: wrong.pop("passed"),
        lambda wrong: wrong.update(schema=1),
        lambda wrong: wrong.update(more=1),
        lambda wrong: wrong["sections"][table].pop("columns"),
        lambda wrong: wrong["sections"][table]["columns"][1].update(values=["1"]),
        lambda wrong: wrong["sections"][table]["columns"][1].update(type="float"),
        lambda wrong: wrong["sections"][0].update(kind="picture"),
    ):
        wrong = copy.deepcopy(good)
        change(wrong)
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(wrong)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_vanishes_at_any_width(documents, name):
    document = documents(name)
    words = {width: document.text(width=width) for width in WIDTHS}
    for width, text in words.items():
        assert all(len(line) <= width or len(line.split()) == 1 for line in text.splitlines()), (
            width
        )  # a path is not broken
        flat = " ".join(text.split())
        for section in json.loads(document.to_json())["sections"]:
            if section["kind"] == "text":
                assert all(" ".join(paragraph.split()) in flat for paragraph in section["paragraphs"])
            elif section["detail"]:
                assert section["name"] in flat
            elif section["kind"] == "histograms":
                assert all((one["label"] or one["name"]) in text for one in section["histograms"])
            elif section["kind"] == "table" and section["layout"] == "rows":
                for column in section["columns"]:
                    assert (column["name"] if column["detail"] else column["title"] or column["name"]) in flat, column[
                        "name"
                    ]
                    if not column["detail"] and column["type"] == "text":
                        assert all(value is None or " ".join(value.split()) in flat for value in column["values"])


@pytest.mark.parametrize("name", CALLS)
def test_files_are_the_document(documents, name, tmp_path):
    document = documents(name)
    document.save(tmp_path / "new")
    assert (tmp_path / "new" / f"{name}.json").read_text() == document.to_json()
    written = {path.stem for path in (tmp_path / "new").glob("*.csv")}
    assert written == {*document.tables, *document.histograms, *document.curves}
    for table in document.tables.values():
        with (tmp_path / "new" / f"{table.name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(table.rows)
        for column, values in table.items():
            for row, value in zip(rows, values.tolist(), strict=True):
                if isinstance(value, float):
                    assert math.isnan(value) and row[column] == "" or float(row[column]) == value
                else:
                    assert row[column] == (
                        "" if value is None else str(int(value)) if isinstance(value, bool) else str(value)
                    )


@pytest.mark.parametrize("name", CALLS)
def test_a_document_comes_back_from_its_json_and_from_a_pickle(documents, name):
    document = documents(name)
    for same in (Document(document.to_json()), pickle.loads(pickle.dumps(document)), copy.deepcopy(document)):
        assert same == document and str(same) == str(document) and repr(same) == repr(document)
    assert document != 1 and document.schema == 2 and document.provenance["version"] == fp8lab.__version__


@pytest.mark.parametrize("name", CALLS)
def test_what_a_notebook_shows_is_short(documents, name):
    document = documents(name)
    assert len(repr(document).splitlines()) <= 6 and len(repr(document)) < 1000
    shown = document._repr_html_()
    assert (
        len(shown) < 40_000
        and re.search(f"fp8lab {name.replace('_', '[- ]')}", shown)
        and re.sub(r"<[^>]*>", "", shown).count("<") == 0
        and shown.count("<tr>") <= 11
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_signature_and_docstring_follow_from_the_arguments(name):
    function = getattr(experiments, name)
    parameters = inspect.signature(function).parameters
    assert list(parameters) == [*(one["name"] for one in REGISTERED[name]["arguments"]), "out"]
    for argument in parameters:
        assert f"\n{argument} : " in function.__doc__, argument


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"experiment": "x"}'])
def test_what_is_no_document_is_refused(text):
    with pytest.raises(ValueError, match="must be the JSON of a document"):
        Document(text)


def test_what_is_no_document_of_the_extension_module_is_refused(documents):
    content = json.loads(documents("double_rounding").to_json())
    content["sections"].append({"kind": "picture"})
    with pytest.raises(ValueError, match="picture"):
        str(Document(json.dumps(content)))
    with pytest.raises(TypeError, match="text must be"):
        Document(3)
    with pytest.raises(ValueError, match="unknown argument 'higth'.*did you mean high"):
        _core.run_experiment("double_rounding", {"higth": [1.0]}, None)
    with pytest.raises(ValueError, match="width must be from 20"):
        documents("double_rounding").text(width=3)


def test_columns_are_arrays(documents):
    chains = documents("double_rounding").tables["chains"]
    assert (
        chains["count"].dtype == np.int64
        and chains["share"].dtype == np.float64
        and chains["format"].tolist() == ["e4m3"] * 4
    )
    with pytest.raises(KeyError, match="no column 'x' in chains; its columns: format"):
        chains["x"]


def test_unknown_parts_are_told_the_known_ones(documents):
    document = documents("double_rounding")
    for parts, kind in (
        (document.tables, "table"),
        (document.histograms, "histogram"),
        (document.curves, "set of curves"),
        (document.texts, "text"),
    ):
        with pytest.raises(KeyError, match=f"no {kind} 'x'; there are: {', '.join(parts) or 'none'}"):
            parts["x"]
        assert "x" not in parts and parts.get("x") is None
        with pytest.raises(TypeError):
            parts["x"] = 1


@pytest.mark.parametrize("name", ["x.json", "x.csv", "x.htm", "x.pdf"])
def test_the_name_of_another_kind_of_file_is_no_directory(documents, name, tmp_path):
    with pytest.raises(ValueError, match=rf"page \(.html\), not of a file \{name[1:]}"):
        documents("double_rounding").save(tmp_path / name)
    assert not list(tmp_path.iterdir())
    (tmp_path / name).mkdir()
    documents("double_rounding").save(tmp_path / name)
    assert (tmp_path / name / "double_rounding.json").exists()


def test_a_table_is_a_frame_of_its_columns(monkeypatch):
    table = fp8lab.experiments.cast(size=100).tables["casts"]
    assert isinstance(table, dict)  # of which pandas.DataFrame makes columns; of any other mapping, rows of its keys
    with pytest.raises(TypeError, match="a Table is read-only"):
        table["cast"] = table["cast"]
    with pytest.raises(KeyError, match="no column 'casts' in casts; its columns: cast, tensor"):
        table["casts"]
    for same in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert same["sqnr_db"].tolist() == table["sqnr_db"].tolist() and same.units == table.units
        assert repr(same) == repr(table)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"to_frame\(\) needs pandas or polars: pip install pandas"):
        table.to_frame()
    monkeypatch.undo()
    pandas = pytest.importorskip("pandas")
    for frame in (table.to_frame(), pandas.DataFrame(table)):
        assert list(frame.columns) == list(table) and len(frame) == 2
        assert frame["format"].tolist() == ["e4m3", "e5m2"] and frame["sqnr_db"].tolist() == table["sqnr_db"].tolist()
