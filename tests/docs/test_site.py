# SPDX-License-Identifier: Apache-2.0
"""What ``./dev docs`` makes a site of is complete; --exhaustive makes it, and a warning is an error there."""

import ast
import json
import re

import pytest
from command import ROOT
from fp8lab import _core
from fp8lab._names import HOMES

DOCS = ROOT / "docs"
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
SITE = ROOT / "build" / "docs" / "html"


def test_every_page_is_in_a_table_of_contents():
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    listed = [line for block in blocks for line in block.splitlines() if not line.startswith(":")]
    pages = [path.stem for path in DOCS.iterdir() if path.suffix in (".md", ".rst") and path.stem != "index"]
    assert sorted(listed) == sorted([*pages, *(f"notebooks/{name}.ipynb" for name in NOTEBOOKS)])


@pytest.mark.skipif(not SITE.exists(), reason="the site is not made: ./dev docs")
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_site_shows_what_a_notebook_gives(name):
    page = (SITE / "notebooks" / f"{name}.html").read_text()
    cells = json.loads((DOCS / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    shown = sum("plt.subplots(" in line for cell in cells if cell["cell_type"] == "code" for line in cell["source"])
    assert len(re.findall(r'<img [^>]*src="\.\./_images/[0-9a-f]+\.png"', page)) == shown > 0


def test_every_public_name_has_a_group():
    tree = ast.parse((DOCS / "conf.py").read_text()).body
    (groups,) = [one.value for one in tree if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "GROUPS"]
    homes = {home for name, home in HOMES.items() if home != name and not name.startswith("__")}
    assert sorted(ast.literal_eval(groups)) == sorted(homes)


@pytest.mark.skipif(not SITE.exists(), reason="the site is not made: ./dev docs")
@pytest.mark.parametrize("choices", [_core.recipe_choices, _core.gemm_recipe_choices], ids=["recipe", "gemm"])
def test_the_site_shows_the_names_that_a_record_takes(choices):
    page = (SITE / "python_reference.html").read_text()
    for field, names in choices().items():
        assert f">{field} : {', '.join(names)}<" in page, field
