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

from quantizers import inputs, packages, port_vllm, table  # noqa: E402
from quantizers.numerics import F, Result, q8  # noqa: E402
from quantizers.rows import CHECKOUTS, PACKAGES, ROWS  # noqa: E402

COUNT = table.ALL if EXHAUSTIVE else 16


@pytest.mark.sample(4)
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


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if table.has_other_direction(row)],
    ids=lambda row: row.recipe + "-given" * bool(row.given) + "-cuda" * bool(row.how),
)
def test_the_other_direction_of_a_recipe_gives_the_bits_that_its_system_has_of_the_transpose(row):
    if row.recipe not in table.recipe_names():
        pytest.skip(f"fp8lab has no recipe {row.recipe}")
    try:
        cases = ("normals", "zeros") if row.scope == "tensor" else ("amaxes", "zeros")  # of one scale there is one way
        cases = inputs.CASES if EXHAUSTIVE else cases
        outcome = table.compare(row, 16, cases, of=table.of_other_direction)
    except ImportError as missing:
        pytest.skip(str(missing))
    assert outcome.elements > 0
    assert outcome.codes + outcome.scales == 0, outcome.first


def test_torchaos_kernels_clamp_columns_in_float32_and_its_pytorch_code_in_the_tensors_type():
    # Triton's tl.clamp promotes bfloat16 to float32 (triton/language/core.py), so that both kernels of torchao have a
    # floor of fl(1e-12). torch_blockwise_scale_act_quant_rhs calls torch.clamp on bfloat16: 1e-12 becomes 1.0018e-12.
    torch = pytest.importorskip("torch")
    try:
        theirs = packages.torchao_blockwise_columns
        x = inputs.tiles("normals", torch.bfloat16, 128, 8, "e4m3").t().contiguous()[:128].repeat(1, 16)
        x[:, ::4] *= 2.0**-60
        expected = theirs(x)
    except ImportError as missing:
        pytest.skip(str(missing))
    got = fp8lab.quantize(x, "torchao_blockwise", direction="columnwise")
    amax = x.float().abs().amax(0).numpy()
    clamped = amax < 1e-12
    assert clamped.any() and not clamped.all()
    assert np.array_equal(got.codes.T[:, ~clamped], expected.codes[:, ~clamped])
    assert np.array_equal(got.scale_inv.reshape(-1)[~clamped], expected.scales.reshape(-1)[~clamped])
    one = np.float32(1)
    floor, rounded = np.float32(1e-12), torch.tensor(1e-12, dtype=torch.bfloat16).item()
    assert np.all(got.scale_inv.reshape(-1)[clamped] == one / np.float32(448 / np.float64(floor)))
    assert np.all(expected.scales.reshape(-1)[clamped] == one / np.float32(448 / rounded))


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
