# SPDX-License-Identifier: Apache-2.0
"""The sums over rows that are a bias's gradient, in the order in which a Hopper chip's kernels add them.

Sources: PyTorch 2.11, aten/src/ATen/native/cuda/Reduce.cuh (a sum over the outer of two dimensions); Transformer Engine
2.20, common/transpose/cast_transpose_fusion.cu. Each function takes float32 rows and gives float32 sums, of which every
NaN is that of NVIDIA's instructions.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

__all__ = ["cast_transpose_sums", "torch_sums"]


def _added(parts: Any) -> Any:
    """The parts one after the other, from +0 on."""
    total = np.zeros(parts.shape[1:], np.float32)
    for part in parts:
        total = total + part
    return total


def _halved(parts: Any) -> Any:
    """Each part and the one half of them behind it, then a quarter and so on."""
    while len(parts) > 1:
        parts = parts[: len(parts) // 2] + parts[len(parts) // 2 :]
    return parts[0]


def _split(rows: Any, *sizes: int) -> Any:
    """Rows filled up with zeros and dealt out: the last size changes fastest."""
    of_all = int(np.prod(sizes))
    return np.pad(rows, ((0, -len(rows) % of_all), (0, 0))).reshape(-1, *sizes, rows.shape[1])


def _with_nans(sums: Any) -> Any:
    sums.view(np.uint32)[np.isnan(sums)] = 0x7FFFFFFF
    return sums


def _power_below(number: int, most: int) -> int:
    return 1 << (min(number, most).bit_length() - 1)


@functools.lru_cache(maxsize=1024)
def _threads_and_blocks(rows: int, columns: int, offset: int, multiprocessors: int) -> tuple[int, int]:
    """How many threads of a block, and how many blocks, share the rows of a column."""
    vector = next(size for size in (4, 2, 1) if columns % size == 0 and offset % size == 0)
    most = 512 // vector
    width, height = _power_below(columns // vector, most), _power_below(rows, most)
    height = min(height, most // min(width, 32))
    width = min(width, most // height)
    if rows < min(16 * height, 256):
        return 1, 1
    of_thread = -(-rows // height)
    grid, largest = -(-columns // (vector * width)), multiprocessors * (2048 // (width * height))
    if of_thread < 256 or grid > largest:
        return height, 1
    return height, max(min(-(-largest // grid), -(-of_thread // 16)), -(-of_thread // 256))


def torch_sums(rows: Any, multiprocessors: int, offset: int = 0) -> Any:
    """``torch.sum`` over rows of a contiguous matrix that begins ``offset`` elements behind an aligned address.

    A thread has four sums, to which it adds in turns. Rows of one element are another kernel's.
    """
    threads, blocks = _threads_and_blocks(*rows.shape, offset, multiprocessors)
    with np.errstate(all="ignore"):
        of_block = _halved(np.moveaxis(_added(_added(_split(rows, 4, blocks, threads))), 1, 0))
        return _with_nans(of_block[0] if blocks == 1 else _halved(_added(_split(of_block, threads))))


def _cost(loads: int, stores: int, shape: tuple[int, int], item_size: int, multiprocessors: int) -> tuple[int, ...]:
    """Elements of a cache line that a tile loads, writes and writes transposed; the multiprocessors that are busy."""
    width, height = 32 * loads // item_size, 32 * stores
    tiles = shape[1] // width * (shape[0] // height)
    busy = min(-(-tiles * 8 // 16), multiprocessors)
    return min(128 // item_size, width), min(128, width), min(128, height), busy


def _is_cheaper(one: tuple[int, ...], other: tuple[int, ...], has_activation: bool) -> bool:
    """By the sum of reciprocals over the busy multiprocessors, in whole numbers of 64 bits."""

    def scale(of: tuple[int, ...]) -> int:
        return int(np.prod(of)) * (of[0] if has_activation else 1)

    def cost(of: tuple[int, ...]) -> int:
        whole = scale(one) * scale(other) % 2**64
        return sum(whole // part for part in (*of[:3], *of[: int(has_activation)])) // of[3]

    return cost(one) < cost(other)


#: The bytes that a thread loads and stores at a time, in the order in which the kernels are compared.
_SIZES = (
    (8, 8), (4, 8), (8, 4), (4, 4), (2, 8), (8, 2), (2, 4), (4, 2), (2, 2), (1, 8), (8, 1), (1, 4), (4, 1), (1, 2),
    (2, 1), (1, 1),
)  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _rows_of_thread(shape: tuple[int, int], item_size: int, has_activation: bool, multiprocessors: int) -> int:
    """The rows that a thread transposes at a time: the bytes that it stores, which the cheapest kernel has."""
    most = 4 if has_activation else 8
    if shape[0] % 32 or shape[1] % 32:
        return most  # the kernel that is not compiled at run time
    chosen = None
    for loads, stores in _SIZES:
        if (
            max(loads, stores) > most
            or loads % item_size
            or shape[1] % (32 * loads // item_size)
            or shape[0] % (32 * stores)
        ):
            continue
        own = (stores, _cost(loads, stores, shape, item_size, multiprocessors))
        if chosen is None or _is_cheaper(own[1], chosen[1], has_activation):
            chosen = own
    return chosen[0] if chosen is not None else most


def cast_transpose_sums(rows: Any, item_size: int, has_activation: bool, multiprocessors: int) -> Any:
    """What the kernel that casts and transposes adds: of elements of ``item_size`` bytes, or an activation's gradient.

    A tile has 8 warps, a warp 4 turns, and a turn some rows that follow each other.
    """
    parts = _split(rows, 8, 4, _rows_of_thread(rows.shape, item_size, has_activation, multiprocessors))
    with np.errstate(all="ignore"):
        while parts.ndim > 1:
            parts = _added(np.moveaxis(parts, -2, 0))
    return _with_nans(parts)
