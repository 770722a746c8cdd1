# SPDX-License-Identifier: Apache-2.0
"""Sums over a matrix's rows in the order in which kernels of a Hopper chip add them; ``fp8lab.operators`` has them."""

from __future__ import annotations

from typing import Any

from fp8lab import _core
from fp8lab._arrays import Array, as_kernel_floats, check_bool, check_int
from fp8lab._entry import guard as _guard

__all__ = ["cast_transpose_row_sums", "cast_transpose_thread_rows", "cublaslt_row_sums", "torch_row_sums"]

_MOST = 2**31 - 1
_ITEM_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}


def torch_row_sums(x: Any, *, offset: int = 0, multiprocessors: int = 132) -> Array:
    """The sum of each column in the order of ``torch.sum(x, dim=0)`` on a Hopper chip: the gradient of a bias.

    The rows of a column are dealt out to threads of blocks, of which each has four sums in float32. Every bit is that
    of an H200, in the words that its kernels gave.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (rows, columns)
        With 2 columns or more: another kernel adds a single one.
    offset : int
        How many elements behind an aligned address the matrix begins on the device: what PyTorch allocates begins at
        one, and a slice of it behind it.
    multiprocessors : int
        Those of the device: 132 of an H100 SXM and an H200, 114 of an H100 PCIe.

    Returns
    -------
    ndarray of float32, (columns,)

    Raises
    ------
    TypeError, ValueError
        For other element types, shapes, and numbers that are out of range.

    Source: PyTorch 2.11, ``aten/src/ATen/native/cuda/Reduce.cuh``.
    """
    array, source = as_kernel_floats(x, "x")
    _check_matrix(array.shape)
    first = check_int(offset, "offset", 0, _MOST)
    return _core.torch_row_sums((array, source), first, check_int(multiprocessors, "multiprocessors", 1, _MOST))


def cublaslt_row_sums(x: Any, *, after_gelu: bool = False) -> Array:
    """The sum of each column as cuBLASLt 13.1 adds it beside a product on a Hopper chip, for its epilogue BGRADB: the
    gradient of a bias in layers without FP8.

    Row i is added to place i modulo 16, 64 or 128 in float32; then the upper half of the places to the lower one, and
    so on. There are 16 places for at most 160 rows or more than 1024 columns, 64 for at most 2048 rows, and 128 for
    more. An H200's words of 620 calls are these, of 16 to 16384 rows and 16 to 8192 columns; where between 160 and 192
    rows, 2048 and 3072 rows, and 1024 and 1536 columns the number changes was not recorded.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (rows, columns)
        The gradient whose columns are those of the output.
    after_gelu : bool
        Whether the epilogue is DGELU_BGRAD, which adds what the product becomes, GELU's gradient before it is rounded
        (``gemm_activation``): 32 rows one after the other, and so these sums. An H200's words of products of 512 rows
        and 256 columns are these, of nine kinds of operands and outputs; no other shape was recorded. An output of 16
        bits is rounded there before GELU's gradient is taken, and again after it.

    Returns
    -------
    ndarray of float32, (columns,)

    Raises
    ------
    TypeError, ValueError
        For other element types and shapes.

    Source: cuBLASLt 13.1 on an H200 (driver 580.159.04), 2026-11-27.
    """
    array, source = as_kernel_floats(x, "x")
    _check_matrix(array.shape)
    return _core.cublaslt_row_sums((array, source), check_bool(after_gelu, "after_gelu"))


def cast_transpose_row_sums(
    x: Any, *, item_size: int | None = None, has_activation: bool = False, multiprocessors: int = 132
) -> Array:
    """The sum of each column in the order of the kernel of Transformer Engine that casts to FP8, transposes and adds.

    That is the gradient of a bias under delayed scaling. A tile has 8 warps, a warp 4 turns, and a turn as many rows as
    ``cast_transpose_thread_rows`` says. Every bit is that of an H200, in the words that its kernels gave.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (rows, columns)
        With an activation the gradient in float32, which the kernel does not round before it adds.
    item_size : int, optional
        The bytes of an element of the kernel's input: 2 or 4; that of x if left out.
    has_activation : bool
        Whether the kernel multiplies with an activation's derivative before.
    multiprocessors : int
        As of ``torch_row_sums``.

    Returns
    -------
    ndarray of float32, (columns,)

    Raises
    ------
    TypeError, ValueError
        For other element types, shapes, and numbers that are out of range.

    Source: Transformer Engine 2.20, ``common/transpose/cast_transpose_fusion.cu``.
    """
    array, source = as_kernel_floats(x, "x")
    _check_matrix(array.shape)
    size = _ITEM_SIZES[source] if item_size is None else item_size
    return _core.cast_transpose_row_sums((array, source), _kernel(size, has_activation, multiprocessors))


def cast_transpose_thread_rows(
    rows: int, columns: int, *, item_size: int = 2, has_activation: bool = False, multiprocessors: int = 132
) -> int:
    """The rows that a thread of the kernel of ``cast_transpose_row_sums`` transposes at a time, which a cost decides.

    Parameters
    ----------
    rows, columns : int
        Of the matrix.
    item_size, has_activation, multiprocessors
        As of ``cast_transpose_row_sums``.

    Returns
    -------
    int
        1, 2, 4 or 8.

    Raises
    ------
    TypeError, ValueError
        For numbers that are out of range.

    Source: as of ``cast_transpose_row_sums``.
    """
    shape = check_int(rows, "rows", 1, _MOST), check_int(columns, "columns", 1, _MOST)
    return _core.cast_transpose_thread_rows(*shape, _kernel(item_size, has_activation, multiprocessors))


def _check_matrix(shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise ValueError(f"x must have two dimensions, not shape {shape}")


def _kernel(item_size: int, has_activation: bool, multiprocessors: int) -> tuple[int, bool, int]:
    size = check_int(item_size, "item_size", 1, 4)
    return size, check_bool(has_activation, "has_activation"), check_int(multiprocessors, "multiprocessors", 1, _MOST)


_guard(__name__, __all__)
