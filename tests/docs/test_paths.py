# SPDX-License-Identifier: Apache-2.0
"""Paths that comments and pages name lead to files and folders of this project."""

import pathlib
import re

import pytest
from command import ROOT

ROOMS = ("formats", "reference", "gpu", "experiments", "bindings", "notebooks", "docs", "tests")
#: A path from a room on, or the bare name of a header; a placeholder or a pattern is none, nor is what lies in the folder
#: `range` that docs/add_an_experiment.md adds.
PATH = re.compile(rf"(?<![\w/.<>${{}}*-])((?:{'|'.join(ROOMS)})/[\w./<>{{}}*-]*[\w*>}}]|[\w/-]+\.hpp)(?![\w*<{{])")
PLACEHOLDER = re.compile(r"[*<>{}]|[A-Z]{3}_[A-Z]|\.\.|(^|/)range/")
#: Names of other projects' files, and of files that the build makes.
FOREIGN = {"tests/kat_vectors", "tests/pytorch", "boost/version.hpp", "build_facts.hpp", "all_headers.hpp"}
CODE = {".hpp", ".cpp", ".cu", ".cuh"}
TEXTS = CODE | {".py", ".md", ".sh", ".cmake", ".txt", ".toml", ".ipynb"}


def project() -> list[pathlib.Path]:
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for room in ROOMS:
        files += [path for path in (ROOT / room).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return [path.relative_to(ROOT) for path in files]


def known(files: list[pathlib.Path]) -> set[str]:
    """Every file and folder by its path from the root, and by the ends of it, as includes and comments beside it say."""
    names = set()
    for file in files:
        for path in (file, *file.parents[:-1]):
            parts = path.parts
            names.update("/".join(parts[first:]) for first in range(len(parts)))
    return names


def comments(file: pathlib.Path, text: str) -> list[str]:
    if file.suffix not in CODE:
        return text.splitlines()
    return [found[1] if (found := re.search(r"//(.*)", line)) else "" for line in text.splitlines()]


def stale(file: pathlib.Path, text: str, names: set[str]) -> list[str]:
    wrong = []
    for number, line in enumerate(comments(file, text), 1):
        for path in PATH.findall(line):
            if path.rstrip("/.") not in names and path not in FOREIGN and not PLACEHOLDER.search(path):
                wrong.append(f"{file}:{number}: {path}")
    return wrong


def read_by_people(file: pathlib.Path) -> bool:
    if file.parts[:2] in {("tests", "vectors"), ("tests", "fakes")} or file.name in ("CHANGELOG.md", "test_paths.py"):
        return False
    return file.suffix in TEXTS or str(file) == "dev"


def test_paths_in_comments_and_pages_exist():
    files = project()
    names = known(files)
    read = [file for file in files if read_by_people(file)]
    assert len(read) > 500
    wrong = [line for file in read for line in stale(file, (ROOT / file).read_text(), names)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "file, text, found",
    [
        ("docs/a.md", "see `reference/src/no_such.cpp`", ["docs/a.md:1: reference/src/no_such.cpp"]),
        ("gpu/a.hpp", "int x;  // as no_such.hpp has it", ["gpu/a.hpp:1: no_such.hpp"]),
        ("gpu/a.hpp", '#include "no_such.hpp"', []),  # of which the compiler tells
        ("docs/a.md", "`experiments/<question>/`, `tests/vectors/*.json` and [this](docs/cpp.md)", []),
        ("docs/a.md", "`formats/` and `fp8lab/formats/encode.hpp`", []),
    ],
)
def test_a_path_that_leads_nowhere_is_found(file, text, found):
    assert stale(pathlib.Path(file), text, known(project())) == found
