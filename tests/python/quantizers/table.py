# SPDX-License-Identifier: Apache-2.0
"""Compares every row with fp8lab's recipe of its name: PYTHONPATH=tests/python python -m quantizers.table [--small]
[NAME...]

With --page it writes the table of docs/quantizers.md.
"""

import argparse
import functools
import pathlib
import sys
import warnings
from typing import NamedTuple

import fp8lab
import numpy as np
import torch

from quantizers import inputs
from quantizers.numerics import FORMATS, Result
from quantizers.rows import ROWS, Row

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "quantizers.md"
BEGIN, END = (
    "<!-- The table is generated: PYTHONPATH=tests/python python -m quantizers.table --page -->\n",
    "<!-- end of the table -->\n",
)
#: Tiles for each case, and with it every amax of the inputs.
ALL = 4096


class Outcome(NamedTuple):
    elements: int
    codes: int
    scales: int
    first: str


@functools.cache
def recipe_names() -> frozenset[str]:
    return frozenset(one.name for one in fp8lab.recipes())


def fp8labs(x: torch.Tensor, row: Row) -> Result:
    given = {what: value(x) if callable(value) else value for what, value in row.given}
    q = fp8lab.quantize(x if row.input is None else row.input(x), row.recipe, direction=row.direction, **given)
    codes = fp8lab.unpack_pairs(q.codes) if row.format == "e2m1" else q.codes
    return Result(codes, q.scale_inv if q.scale_codes is None else q.scale_codes)


def of_other_direction(x: torch.Tensor, row: Row) -> Result:
    """The same by the other direction, of the transpose of x; codes and scales that keep the tensor's order are turned."""
    turned = x.t().contiguous()
    given = dict(row.given)
    q = fp8lab.quantize(
        turned if row.input is None else row.input(turned),
        row.recipe,
        direction="rowwise" if row.direction == "columnwise" else "columnwise",
        **given,
    )
    codes = fp8lab.unpack_pairs(q.codes) if row.format == "e2m1" else q.codes
    scales = q.scale_inv if q.scale_codes is None else q.scale_codes
    is_in_order = codes.shape == tuple(turned.shape)
    return Result(codes.T if is_in_order else codes, scales.T if is_in_order and scales.ndim == 2 else scales)


def has_other_direction(row: Row) -> bool:
    """Whether both directions of the recipe have one rule: not where rows alone skip the Hadamard transform, and not
    where arrays of scales are given, which would have to be turned too."""
    return "_rht" not in row.recipe and not any(callable(value) for _, value in row.given)


def scales_like(scales: np.ndarray, other: np.ndarray, is_e4m3: bool) -> np.ndarray:
    """Scales as words: of powers of two in float32 where one side stores bytes and the other floats."""
    if scales.dtype == np.uint8 and other.dtype != np.uint8:
        powers = np.ldexp(np.float32(1), np.minimum(scales, 254).astype(np.int32) - 127)
        scales = np.where(scales == 255, np.float32(np.nan), powers)
    if scales.dtype == np.uint8:
        return np.where(is_e4m3 & (scales & 0x7F == 0x7F), 0x7F, scales).reshape(-1).astype(np.uint32)
    return np.where(np.isnan(scales), np.float32(np.nan), scales).reshape(-1).view(np.uint32)


def differences(expected: Result, got: Result, x: torch.Tensor, row: Row) -> tuple[np.ndarray, int]:
    """Where codes differ, and how many scales do. A NaN is as good as another, as its sign is the processor's."""
    a, b = expected.codes, got.codes
    if row.format in ("e4m3", "e5m2"):
        largest = len(FORMATS[row.format][0]) - (row.format == "e4m3")
        a, b = (np.where(codes & 0x7F > largest, 0x7F, codes) for codes in (a, b))
    if not row.negative_zero:
        a, b = (np.where(codes & 7 == 0, 0, codes) for codes in (a, b))
    mine, theirs = (
        scales_like(got.scales, expected.scales, row.tensor_scale),
        scales_like(expected.scales, got.scales, row.tensor_scale),
    )
    scales = len(mine) if len(mine) != len(theirs) else int(np.count_nonzero(mine != theirs))
    return np.flatnonzero((a != b).reshape(-1)), scales


def compare(row: Row, count: int, cases=inputs.CASES, of=fp8labs) -> Outcome:
    """Compares the oracle with what ``of`` has fp8lab make. Raises ImportError where the package is missing."""
    row.version_found()
    elements = codes = scales = 0
    first = ""
    for dtype in row.dtypes:
        for case in cases:
            if case in row.without:
                continue
            for x in inputs.matrices(case, dtype, row.scope, row.tile, count, row.format, row.tensor_scale):
                largest = row.largest_half if dtype == torch.float16 else row.largest
                if largest < torch.finfo(dtype).max:
                    x = torch.where(torch.isfinite(x), x.clamp(-largest, largest), x)
                if not row.usable(x) or (of is of_other_direction and x.shape[0] == x.shape[1]):
                    continue  # a square does not tell which way it was turned
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    expected, got = row.oracle(x.clone()), of(x, row)
                at, unequal = differences(expected, got, x, row)
                elements, codes, scales = elements + x.numel(), codes + len(at), scales + unequal
                if not first and (len(at) or unequal):
                    first = described(case, dtype, x, expected, got, at, row)
    return Outcome(elements, codes, scales, first)


def described(
    case: str, dtype: torch.dtype, x: torch.Tensor, expected: Result, got: Result, at: np.ndarray, row: Row
) -> str:
    words = f"{case}, {str(dtype).removeprefix('torch.')}"
    if len(at):
        i = at[0]
        value = x.reshape(-1)[int(i)].item()
        words += f": element {i} of {tuple(x.shape)}, {value!r}: {expected.codes.reshape(-1)[i]:02X}, fp8lab {got.codes.reshape(-1)[i]:02X}"
    if expected.scales.size == got.scales.size:
        a, b = (
            scales_like(*pair, row.tensor_scale)
            for pair in ((expected.scales, got.scales), (got.scales, expected.scales))
        )
        if len(unequal := np.flatnonzero(a != b)):
            i = unequal[0]
            tile = np.abs(x.float().numpy()).reshape(-1)
            words += f"; scale {i}: {a[i]:08X}, fp8lab {b[i]:08X}; amax of all {np.fmax.reduce(tile)!r}"
    return words


def line(row: Row, count: int) -> tuple[list[str], bool]:
    types = ", ".join(
        {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}[one] for one in row.dtypes
    )
    what = [row.name(), row.package]
    try:
        what += [row.version_found(), row.kind]
    except ImportError as missing:
        return [*what, "", row.kind, types, f"skipped: {missing}", ""], True
    if row.recipe not in recipe_names():
        return [*what, types, "", "no recipe"], False
    outcome = compare(row, count)
    mismatches = outcome.codes + outcome.scales
    told = f"{mismatches:,}" + (f" ({outcome.first})" if mismatches else "")
    return [*what, types, f"{outcome.elements:,}", told], mismatches == 0


def shown() -> list[list[str]]:
    """The rows of the page's table, as cells."""
    lines = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


HEAD = ["recipe", "package", "version", "kind", "inputs", "elements", "mismatches"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    text, good = "", True
    names = set(options.names) or {row.recipe for row in ROWS}
    for cells in [HEAD, ["---"] * len(HEAD)]:
        text += f"| {' | '.join(cells)} |\n"
    print(text, end="", flush=True)
    for row in ROWS:
        if row.recipe not in names:
            continue
        cells, fine = line(row, 32 if options.small else ALL)
        good = good and fine
        text += f"| {' | '.join(cells)} |\n"
        print(f"| {' | '.join(cells)} |", flush=True)
    if options.page:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
