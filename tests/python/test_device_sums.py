# SPDX-License-Identifier: Apache-2.0
"""In which order PyTorch 2.11 adds on an H200 (tests/vectors/device/README.md): the recorded trees give the recorded sums.

A tree was asked for as FPRev does (Xie et al., "FPRev: Revealing the Order of Floating-Point Summation", 2024): with 2^60
at place i, -2^60 at j and ones elsewhere, the sum is the number of ones that are added after both.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import hashed  # noqa: E402

#: What was recorded of each device, whose name the files begin with; `./dev gpu` writes a file for each type.
RECORDED = {}
for file in sorted((Path(__file__).parents[1] / "vectors" / "device").glob("*_torch_reductions*.npz")):
    RECORDED.setdefault(file.name.split("_torch_reductions")[0], {}).update(np.load(file))
of_each_device = pytest.mark.parametrize("device", RECORDED)


def values(rows, columns):
    words = hashed(rows * columns, columns + rows)
    return ((words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)).reshape(rows, columns)


def leaves_below(device, name, count):
    """For each two places, how many are added before the sum that joins them, or with it."""
    after, below, start = RECORDED[device][name].astype(int), np.zeros((count, count), int), 0
    for i in range(count):
        below[i, i + 1 :] = count - after[start : start + count - i - 1]
        start += count - i - 1
    return below + below.T


def summed(below, places, terms):
    """The sum of terms [place][...] in float32, in the order of the tree."""
    first, *others = places
    total = terms[first]
    for size in sorted({below[first, one] for one in others}):
        total = total + summed(below, [one for one in others if below[first, one] == size], terms)
    return total


@of_each_device
@pytest.mark.parametrize("count", [32, 64, 100, 128, 256])
@pytest.mark.parametrize("rows", [64, 1024])
def test_sums_along_rows(device, rows, count):
    tree = leaves_below(device, f"tree/float32/axis-1/{rows}x{count}", count)
    own = summed(tree, range(count), values(rows, count).T)
    assert own.dtype == np.float32
    assert (own.view(np.int32) == RECORDED[device][f"sum/float32/{rows}x{count}"]).all()
    # bfloat16 has another tree, for a thread takes more of its elements at once; the total is rounded to it once.
    tree = leaves_below(device, f"tree/bfloat16/axis-1/{rows}x{count}", count)
    own = summed(tree, range(count), rounded(values(rows, count)).T)
    assert (
        rounded(own).view(np.uint32) >> 16 == RECORDED[device][f"sum/bfloat16/{rows}x{count}"].view(np.uint16)
    ).all()


def rounded(x):
    """To bfloat16, ties to even; no NaN occurs."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@of_each_device
def test_sums_over_rows(device):
    """As the gradient of a bias is summed; columns are those of 64 and 1024."""
    for columns in (64, 1024):
        tree = leaves_below(device, f"tree/float32/axis0/{columns}x64", 64)
        own = summed(tree, range(64), values(64, columns))
        assert (own.view(np.int32) == RECORDED[device][f"sum0/float32/64x{columns}"]).all(), columns


def test_another_order_gives_other_sums():
    own = values(1024, 256).astype(np.float32).T
    ascending = own[0]
    for term in own[1:]:
        ascending = ascending + term
    assert (ascending.view(np.int32) != RECORDED["h200"]["sum/float32/1024x256"]).mean() > 0.5
