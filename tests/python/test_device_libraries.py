# SPDX-License-Identifier: Apache-2.0
"""What PyTorch and Triton computed on an NVIDIA H200, every recorded bit: tests/vectors/device/h200_libraries.npz.

Recorded on 2026-11-26: driver 580.159.04, CUDA 13.0, PyTorch 2.11.0, cuBLASLt 13.1, Triton 3.6.0. ``mm/MxNxK/...`` has
256 elements of ``torch._scaled_mm(a, b.t())`` for E4M3 operands of (M, K) and (N, K), with scales of tensors or of rows,
fast accumulation or not, a bias or none, in bfloat16 or float32. ``triton_dot/K/BLOCK/P`` is a product of (64, K) and
(64, K) in one program: P is 0 for ``tl.dot(x, y, acc)``, 1 for ``acc += tl.dot(x, y)``, and else max_num_imprecise_acc.
Operands follow from SplitMix64 by integers, as below.
"""

import functools
import pathlib

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import mixed

pytestmark = pytest.mark.sample(3)

#: What was recorded of each device, whose name the files begin with; `./dev gpu` writes a file for each task.
RECORDED = {}
for file in sorted((pathlib.Path(__file__).parents[1] / "vectors" / "device").glob("*_libraries*.npz")):
    RECORDED.setdefault(file.name.split("_libraries")[0], {}).update(np.load(file))
SCALE_A, SCALE_B = np.float32(0.0078125 * 1.3125), np.float32(0.015625 * 1.171875)
#: Ranges of K that cuBLASLt 13.1 sums apart under fast accumulation and scales of tensors, where tiles are too few for
#: the 132 multiprocessors. Everything else is one range.
SPLIT = {(16, 64, 7168): 3584, (128, 128, 7168): 3584, (16, 64, 16384): 2816, (128, 128, 16384): 2816}


def words(seed: int, index: np.ndarray) -> np.ndarray:
    """SplitMix64's words at these places of the stream ``seed``."""
    step = np.uint64(0x9E3779B97F4A7C15)
    start = mixed(np.array([seed], np.uint64) + step)
    return mixed(start + (index.astype(np.uint64) + np.uint64(1)) * step)


def codes(seed: int, rows: np.ndarray, columns: int) -> np.ndarray:
    """These rows of a matrix of E4M3 codes of both signs, whose exponent fields are 3 to 10."""
    w = words(seed, rows[:, None] * columns + np.arange(columns))
    exponent = np.uint64(3) + (w >> np.uint64(8)) % np.uint64(8)
    return ((w >> np.uint64(63)) << np.uint64(7) | exponent << np.uint64(3) | w & np.uint64(7)).astype(np.uint8)


def centred(seed: int, count: int) -> np.ndarray:
    """Sums of four 16-bit integers less their mean, over 2^15: exact in float32."""
    w = words(seed, np.arange(count))
    total = sum((w >> np.uint64(16 * i) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4))
    return ((total - 131070) / 32768.0).astype(np.float32)


def row_scales(seed: int, count: int) -> np.ndarray:
    return np.abs(centred(seed, count)) * np.float32(0.01) + np.float32(0.001)


@functools.cache
def accumulated(shape: tuple[int, int, int], promote_k: int | None, range_k: int) -> np.ndarray:
    """The sums of the recorded elements before scales: ranges of K one after the other, added in float32."""
    m, n, k = shape
    rows, columns = elements(m, n)
    (row_set, row), (column_set, column) = (np.unique(i, return_inverse=True) for i in (rows, columns))
    a, b = codes(1, row_set, k), codes(2, column_set, k)
    parts = [
        fp8lab.gemm(a[:, at : at + range_k], b[:, at : at + range_k], model="hopper_wgmma_fp8", promote_k=promote_k)
        for at in range(0, k, range_k)
    ]
    total = functools.reduce(np.add, parts)
    return total[row, column]


def elements(m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    index = (words(9, np.arange(256)) % np.uint64(m * n)).astype(np.int64)
    return index // n, index % n


def recorded(kind: str) -> list[tuple[str, str]]:
    return [(device, key) for device, words in RECORDED.items() for key in words if key.startswith(kind)]


def check(device: str, key: str, out: np.ndarray) -> None:
    got = RECORDED[device][key]
    expected = out.view(np.int16 if out.dtype.itemsize == 2 else np.int32)
    wrong = np.flatnonzero(got.reshape(-1) != expected.reshape(-1))
    first = f"; the first: {got.flat[wrong[0]]:x}, not {expected.flat[wrong[0]]:x}" if wrong.size else ""
    assert wrong.size == 0, f"{device}, {key}: {wrong.size} of {got.size} words are not the device's{first}"


@pytest.mark.parametrize(("device", "key"), recorded("mm/"))
def test_scaled_mm_of_pytorch_gave_what_the_model_gives(device, key):
    _, sizes, kind, dtype, accumulation, with_bias = key.split("/")
    m, n, k = shape = tuple(int(size) for size in sizes.split("x"))
    rows, columns = elements(m, n)
    fast = accumulation == "fast"
    range_k = SPLIT.get(shape, k) if fast and kind == "tensor" else k
    sums = accumulated(shape, None if fast else 128, range_k)
    if kind == "tensor":
        out = sums * (SCALE_A * SCALE_B)
    else:  # cuBLASLt, whose left operand is PyTorch's right one
        out = sums * row_scales(5, n)[columns] * row_scales(4, m)[rows]
    if with_bias == "bias":
        out = out + centred(3, n).astype(ml_dtypes.bfloat16).astype(np.float32)[columns]
    check(device, key, out.astype(ml_dtypes.bfloat16) if dtype == "bfloat16" else out)


@pytest.mark.parametrize(("device", "key"), recorded("triton_dot/"))
def test_dot_of_triton_gave_what_the_model_gives(device, key):
    _, depth, block, promoted = (int(part) if part.isdigit() else part for part in key.split("/"))
    promote_k = {0: None, 1: block}.get(promoted, promoted)
    a, b = codes(41, np.arange(64), depth), codes(42, np.arange(64), depth)
    check(device, key, fp8lab.gemm(a, b, model="hopper_wgmma_fp8", promote_k=promote_k))


def test_another_promotion_or_model_is_not_what_the_device_gave():
    with pytest.raises(AssertionError, match="words are not the device's"):
        check(
            "h200",
            "mm/128x128x4096/tensor/float32/split/nobias",
            accumulated((128, 128, 4096), 64, 4096) * (SCALE_A * SCALE_B),
        )
    a, b = codes(41, np.arange(64), 1024), codes(42, np.arange(64), 1024)
    with pytest.raises(AssertionError, match="words are not the device's"):
        check("h200", "triton_dot/1024/128/0", fp8lab.gemm(a, b, model="exact", format_a="e4m3", format_b="e4m3"))
