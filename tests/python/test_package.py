# SPDX-License-Identifier: Apache-2.0
"""The package and the checkout themselves: stubs, docstrings, notebooks, facts that have one home."""

import inspect
import json
import pathlib
import re
import subprocess
import sys

import fp8lab
import nbformat
import pytest
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_version_has_one_home():
    version = re.search(r"project\(fp8lab VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert version and fp8lab.__version__ == version[1]
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_public_name_is_documented():
    for name in fp8lab.__all__:
        value = getattr(fp8lab, name)
        if inspect.isfunction(value):
            assert value.__doc__, name


def test_stubs_match_the_extension_module(tmp_path):
    # pybind11's metaclass, and the __init__ of classes without one, differ from what a stub can say.
    classes = "(AmaxHistory|AmaxTrace|CastArguments|DelayedRecipe|DelayedVersion|Distribution|ErrorTotals|Format|Fp8State|GivenScales|GemmCall|GemmDiagnosis|GemmRecipe|Histogram|Hypothesis|LinearCall|LinearGemm|LinearRecipe|MmaModel|Operand|Profile|Quantized|Recipe)"
    # fp8lab.torch imports PyTorch, which may be missing.
    # Its types are a hundred thousand lines, which stubtest would read each time.
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n")
    (tmp_path / "allowed").write_text(
        f"fp8lab\\.torch.*\nfp8lab\\._core\\.{classes}\nfp8lab\\._core\\.{classes}\\.__init__\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "fp8lab", "--ignore-disjoint-bases", "--ignore-unused-allowlist",
         "--allowlist", str(tmp_path / "allowed"), "--mypy-config-file", str(tmp_path / "mypy.ini")], capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_package_is_typed():
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", str(ROOT / "bindings" / "fp8lab")],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_notebooks_are_stored_without_outputs():
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            assert not cell.get("outputs") and not cell.get("execution_count"), path


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_run(path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    pictures = [o for cell in notebook.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
    assert pictures, "a notebook without a picture"
