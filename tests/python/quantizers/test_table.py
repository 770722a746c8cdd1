# SPDX-License-Identifier: Apache-2.0
"""fp8lab's recipes against the quantizers that they are named after: a sample, or with FP8LAB_EXHAUSTIVE what
docs/quantizers.md shows."""

import dataclasses
import re

import numpy as np
import pytest
from sampled import EXHAUSTIVE

pytest.importorskip("torch")

import fp8lab  # noqa: E402

from quantizers import inputs, port_vllm, table  # noqa: E402
from quantizers.numerics import F, Result, q8  # noqa: E402
from quantizers.rows import CHECKOUTS, PACKAGES, ROWS  # noqa: E402

COUNT = table.ALL if EXHAUSTIVE else 16


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe + "-given" * bool(row.given) + "-cuda" * bool(row.how))
def test_a_recipe_gives_the_bits_of_its_system(row):
    if row.recipe not in table.recipe_names():
        pytest.skip(f"fp8lab has no recipe {row.recipe}")
    try:
        outcome = table.compare(row, COUNT)
    except ImportError as missing:
        pytest.skip(str(missing))
    assert outcome.elements > 0
    assert outcome.codes + outcome.scales == 0, outcome.first


def test_a_recipe_cites_the_version_that_it_is_compared_with():
    cited = {one.name: one.source for one in fp8lab.recipes()}
    cells = [re.split(r" *\| *", line) for line in table.PAGE.read_text().splitlines() if line.startswith("| `")]
    others = [
        name
        for _, name, package, version, *_ in cells
        if package != "Transformer Engine" and version not in cited[name.split("`")[1]]
    ]
    assert len(cells) > 100 and not others, others  # sources of Transformer Engine's say since which release


def without_its_floor(x):
    rows = x.float().numpy()
    scale = np.fmax.reduce(np.abs(rows), axis=1, keepdims=True, initial=F(0)) / F(448)
    return Result(q8(rows / scale), scale)


def multiplied(x):
    got = port_vllm.per_token(x)
    return Result(q8(x.float().numpy() * (F(1) / got.scales)), got.scales)


@pytest.mark.parametrize("planted", [without_its_floor, multiplied])
def test_an_oracle_with_another_formula_is_told_apart(planted):
    row = next(one for one in ROWS if one.recipe == "vllm_per_token")
    outcome = table.compare(dataclasses.replace(row, oracle=planted), 16)
    assert outcome.codes > 0 and outcome.first


def ragged(row):
    height, width = row.tile
    return inputs.tiles("normals", row.dtypes[-1], width * 3 // 2, 3 if height == 1 else height * 3 // 2, row.format)


#: Quark's tiles are made by its oracle here, and Transformer Engine's kernels refuse what its reference pads.
TILED = [
    row
    for row in PACKAGES + CHECKOUTS
    if row.scope == "tile" and row.package not in ("amd-quark", "Transformer Engine")
]


@pytest.mark.parametrize("row", TILED, ids=lambda row: row.recipe + "-cuda" * bool(row.how))
def test_what_tiles_do_not_divide_is_cut_filled_up_or_refused_as_the_package_does(row):
    x = ragged(row)
    try:
        row.version_found()
        expected = row.oracle(x.clone())
    except ImportError as missing:
        pytest.skip(str(missing))
    except (AssertionError, ValueError, RuntimeError):
        with pytest.raises(ValueError, match="must be a multiple of"):
            table.fp8labs(x, row)
        return
    got = table.fp8labs(x, row)
    assert got.codes.shape == expected.codes.shape
    at, scales = table.differences(expected, got, x, row)
    assert len(at) == scales == 0


def test_the_page_shows_every_row():
    shown = table.shown()
    assert [cells[:2] for cells in shown] == [[row.name(), row.package] for row in ROWS]
    for cells in shown:
        assert cells[-1] == "0", cells
