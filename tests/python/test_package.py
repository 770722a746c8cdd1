# SPDX-License-Identifier: Apache-2.0
"""The package and the checkout themselves: stubs, docstrings, notebooks, facts that have one home."""

import importlib.util
import inspect
import json
import pathlib
import re
import subprocess
import sys
import typing

import fp8lab
import nbformat
import pytest
from fp8lab import literals
from nbclient import NotebookClient
from sampled import EXHAUSTIVE, sampled

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "hostile"))
from wrong_calls import CALLS  # noqa: E402

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_version_has_one_home():
    version = re.search(r"project\(fp8lab VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert version and fp8lab.__version__ == version[1]
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [version[1]]


def test_the_changelog_begins_with_the_newest_version_in_a_page():
    head, *parts = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    versions = [tuple(map(int, part.split("\n", 1)[0].split("."))) for part in parts]
    assert head == "# Changelog\n\n" and versions == sorted(versions, reverse=True)
    assert len(parts[0].splitlines()) <= 60


def test_every_public_name_is_documented():
    for name in fp8lab.__all__:
        value = getattr(fp8lab, name)
        if inspect.isfunction(value):
            assert value.__doc__, name


def test_the_stubs_are_those_that_are_generated():
    if "SupportsInt" not in fp8lab._core.encode.__doc__:
        pytest.skip("the stubs are written with pybind11 3, and an older one built this module")
    program = ROOT / "bindings" / "stubs.py"
    spec = importlib.util.spec_from_file_location("stubs", program)
    stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    for name, text in stubs.stubs().items():
        assert (program.parent / "fp8lab" / name).read_text() == text, f"{program} writes {name} anew"


def test_stubs_match_the_extension_module(tmp_path):
    # What a stub cannot say: pybind11's metaclass, and that a class has no __init__.
    (tmp_path / "allowed").write_text(r"fp8lab\._core\.[A-Z]\w*(\.__init__)?" + "\n")
    # It compares names, parameters and defaults, which no type of NumPy changes: to read those takes longer than all else.
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\n[mypy-numpy.*]\nfollow_imports = skip\nfollow_imports_for_stubs = True\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "fp8lab._core", "fp8lab._registered", "--ignore-disjoint-bases", "--ignore-unused-allowlist",
         "--allowlist", str(tmp_path / "allowed"), "--mypy-config-file", str(tmp_path / "mypy.ini")], capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_package_is_typed():
    calls = "tests/python/typed_calls.py"
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "bindings/fp8lab", calls],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    found = re.findall(rf"^{re.escape(calls)}:(\d+): error", checked.stdout, re.MULTILINE)
    others = [one for one in checked.stdout.splitlines() if ": error" in one and not one.startswith(calls)]
    assert not others and not checked.stderr, checked.stdout + checked.stderr
    lines = (ROOT / calls).read_text().splitlines()
    assert sorted({int(one) for one in found}) == [n for n, line in enumerate(lines, 1) if line.endswith("  # refused")]


#: Names that are taken and not listed where another is refused: of wide formats, and of models whose results are float64.
NOT_LISTED = {"OutputName": {"float32", "float64"}, "GemmOutDtypeName": {"float64"}}


def listed_names(function, given, parameter):
    """What a function lists as known names of an argument; nothing where it is not listed in full."""
    try:
        function(**{**given, parameter: "no such name"})
    except (TypeError, ValueError) as error:
        listed = re.search(r"; known: ([^;]*)", str(error))
        return set(listed[1].split(", ")) if listed and " more" not in listed[1] else None
    return None


def test_the_types_of_names_have_the_names_that_are_taken():
    aliases = {name: set(typing.get_args(value)) for name, value in vars(literals).items() if name.endswith("Name")}
    seen, wrong = set(), []
    for label, (function, given) in CALLS.items():
        try:
            parameters = inspect.signature(function).parameters.values() if isinstance(given, dict) else ()
        except ValueError:  # of a class in C++
            continue
        for parameter in parameters:
            alias = re.search(r"\b\w+Name\b", str(parameter.annotation))
            known = listed_names(function, given, parameter.name) if alias else None
            if known is not None:
                seen.add(alias[0])
                if known | NOT_LISTED.get(alias[0], set()) != aliases[alias[0]] | NOT_LISTED.get(alias[0], set()):
                    wrong.append((label, parameter.name, alias[0], sorted(known)))
    assert not wrong
    assert len(seen) > 20, sorted(seen)


def test_notebooks_are_stored_without_outputs():
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            assert not cell.get("outputs") and not cell.get("execution_count"), path


#: In an ordinary run one notebook is run as Jupyter does, and the cells of some others one after the other in one process.
RUN_BY_JUPYTER = [one for one in NOTEBOOKS if EXHAUSTIVE or one.stem == "train_without_the_hardware"]
CELLS = """
import json, sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import fp8lab
whole = fp8lab.experiments.primer  # seconds each time: with arguments it is asked for fewer rows here
fp8lab.experiments.primer = lambda **given: whole(**given, **({"rows": 64} if given else {}))
for path in sys.argv[1:]:
    names = {}
    for number, cell in enumerate(json.load(open(path))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path}, cell {number}", "exec"), names)
    assert plt.get_fignums(), f"{path} makes no picture"
    plt.close("all")
"""


@pytest.mark.parametrize("path", RUN_BY_JUPYTER, ids=lambda path: path.name)
def test_notebooks_run(path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    pictures = [o for cell in notebook.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
    assert pictures, "a notebook without a picture"


def test_the_cells_of_notebooks_run():
    others = sampled([str(path) for path in NOTEBOOKS if path not in RUN_BY_JUPYTER and path.stem != "accumulate"], 4)
    done = subprocess.run([sys.executable, "-c", CELLS, *others], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_notebooks_are_short_and_begin_with_a_picture():
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert len(cells) <= 25 and cells[0]["cell_type"] == "markdown", path


def test_every_command_that_needs_python_is_there():
    from fp8lab import _core
    from fp8lab._command_line import COMMANDS

    assert [name for name, _ in _core.python_commands()] == list(COMMANDS)
