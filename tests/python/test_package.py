# SPDX-License-Identifier: Apache-2.0
"""The package and the checkout themselves: stubs, docstrings, notebooks, facts that have one home."""

import inspect
import json
import pathlib
import re
import subprocess
import sys

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import fp8lab

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_version_has_one_home():
    version = re.search(r"project\(fp8lab VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert version and fp8lab.__version__ == version[1]
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_readme_shows_what_the_programs_print():
    shown = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    a, b = (fp8lab.encode(np.float32(x), "e4m3") for x in ([448, -30, 1.75, 0.3125], [448, 0.5, 6, 30]))
    results = [
        fp8lab.experiments.primer(),
        fp8lab.experiments.cast(scales=[1], amax=[4], exact=True),
        fp8lab.experiments.accumulate(),
        fp8lab.trace_dot(a, b, model="hopper_wgmma_fp8", c=13, got=np.uint32(0x48440478).view(np.float32)),
        fp8lab.experiments.delayed(versions=["te_current", "te_0_1"], algorithms=["max"]),
        fp8lab.experiments.scaling(threads=2),
        fp8lab.experiments.transpose(),
    ]
    for block, result in zip(shown, results, strict=True):
        printed = str(result).splitlines()
        for line in block.splitlines():
            assert line in printed or line == "...", line


def test_the_readme_python_runs(capsys):
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block
    exec(compile(block[1], "README.md", "exec"), {})
    assert capsys.readouterr().out.endswith(" dB\n")


def test_every_public_name_is_documented():
    for name in fp8lab.__all__:
        value = getattr(fp8lab, name)
        if inspect.isfunction(value):
            assert value.__doc__, name


def test_stubs_match_the_extension_module(tmp_path):
    # pybind11's metaclass, and the __init__ of classes without one, differ from what a stub can say.
    classes = "(AmaxHistory|CastArguments|DelayedRecipe|DelayedVersion|Distribution|ErrorTotals|Format|GemmOptions|Histogram|MmaModel|Operands|Profile|Quantized|Recipe|ScalingArguments)"
    (tmp_path / "allowed").write_text(f"fp8lab\\._core\\.{classes}\nfp8lab\\._core\\.{classes}\\.__init__\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "fp8lab", "--ignore-disjoint-bases", "--ignore-unused-allowlist",
         "--allowlist", str(tmp_path / "allowed")], capture_output=True, text=True,
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
