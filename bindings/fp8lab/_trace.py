# SPDX-License-Identifier: Apache-2.0
"""Every step of one dot product on a tensor core."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, as_array, as_bytes, check_int, check_name, check_real
from fp8lab._casts import unpack_pairs
from fp8lab._core import Format, MmaModel
from fp8lab._document import Document
from fp8lab._entry import guard as _guard
from fp8lab._models import as_model
from fp8lab._products import Matrix, matrix_of, set_codes
from fp8lab.literals import FormatName, GemmZeroRuleName, ModelName

__all__ = [
    "trace_dot",
]


def _as_matrix(x: Any, argument: str) -> Any:
    """One row as a matrix of one."""
    dimensions = as_array(x, argument)[0].ndim
    if dimensions != 1:
        raise ValueError(f"{argument} must have one dimension, not {dimensions}")
    return x.reshape(1, -1) if hasattr(x, "reshape") else np.asarray(x)[None]


def _word(value: Any, argument: str, dtype: np.dtype[Any]) -> int:
    """The word of a number of ``dtype``; that of a NumPy scalar of the same type bit for bit."""
    word = {2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.itemsize]
    if isinstance(value, np.generic) and value.dtype == dtype:
        return int(value.view(word))
    number = check_real(value, argument)
    with np.errstate(over="ignore"):
        converted = np.array(number, dtype)
    if not (float(converted) == number or np.isnan(number)):
        raise ValueError(f"{argument} must be a number of {dtype.name}, not {number!r}")
    return int(converted.view(word))


def _hexadecimal(codes: Array) -> str:
    """Codes of a format's whole width, one after the other; of float32 and float64 the bit patterns."""
    return codes.astype(codes.dtype.newbyteorder(">")).tobytes().hex()


def _codes(row: Matrix) -> str:
    return _hexadecimal(unpack_pairs(row.array) if row.packed else row.array)


def _scales(scales: Any, argument: str, model: MmaModel, row: Matrix) -> str | None:
    if scales is None:
        return None
    set_codes(row.operand(), _as_matrix(scales, argument), argument, model)  # set_codes checks them
    return _hexadecimal(as_bytes(_as_matrix(scales, argument), argument)[0])


def trace_dot(
    a: Any,
    b: Any,
    c: Any = 0.0,
    *,
    model: ModelName | MmaModel,
    format_a: FormatName | Format | None = None,
    format_b: FormatName | Format | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    promote_k: int | None = None,
    zero_rule: GemmZeroRuleName = "floor",
    got: Any = None,
    at: int | None = None,
) -> Document:
    """One dot product of a tensor core, told step by step: for a kernel's one wrong element.

    Parameters
    ----------
    a, b : array_like, (K,)
        A row of each operand, as ``gemm`` takes matrices; E2M1 as uint8 is packed. Zeros fill up the last instruction.
    c : number
        What the first instruction adds to, of the accumulator's type.
    model : str
        One of ``models()``.
    format_a, format_b : str or Format, optional
        Formats of uint8 and uint16 codes; ``e4m3`` if left out. Other element types carry theirs.
    scale_a, scale_b : array_like of uint8 (or float8), (K / block,), optional
        Codes of the block scales, for models that have them, which need both.
    promote_k : int, optional
        As for ``gemm``.
    zero_rule : str
        As for ``mma``.
    got : number, optional
        What a kernel gave, of the result's type: float16 for models with a float16 accumulator and no promotion,
        float64 for FP64 models, else float32. A NumPy scalar of that type is taken bit for bit. Where it is another
        word, every model that takes the operands is tried, under every zero rule, promoted and not.
    at : int, optional
        ``str()`` tells of more than four instructions a line each; that of this k in full.

    Returns
    -------
    experiments.Document
        Tables: ``result`` with one row, ``word`` (hexadecimal), its ``format`` and ``value``, ``exact`` (the real sum
        rounded once; NaN with block scales), ``got`` and ``equal``; ``candidates`` that would give what was got;
        ``instructions`` with ``k``, ``products``, ``added`` (the c of a last IEEE addition), ``result`` and
        ``promoted``; ``steps`` with the words ``before`` and ``after``, the largest ``exponent`` and the ``unit`` of
        what is kept (as powers of two; None where nothing is aligned) and the ``sum`` of what is kept in units;
        ``terms`` of each step with their exact ``value``, their ``exponent``, and what of it is ``kept`` and ``cut``;
        ``products`` with codes and values, and ``scales`` of their blocks. ``instruction`` is the first k of one.
        ``passed`` tells whether what was got, if anything, is the model's word.

    Raises
    ------
    TypeError, ValueError
        As ``gemm`` does, and for numbers that are not of their type.
    """
    core = as_model(model)
    left, right = matrix_of(_as_matrix(a, "a"), "a", format_a), matrix_of(_as_matrix(b, "b"), "b", format_b)
    if not left.array.size:
        raise ValueError("K must be at least 1, not 0")
    accumulator = np.dtype(core.accumulator)
    result = np.dtype(np.float32) if promote_k is not None else accumulator
    arguments = {
        "model": core, "a": _codes(left), "b": _codes(right), "format_a": left.format or left.array.dtype.name,
        "format_b": right.format or right.array.dtype.name, "c": f"{_word(c, 'c', accumulator):x}",
        "zero_rule": check_name(zero_rule, "zero_rule"),
        "at": None if at is None else check_int(at, "at", 0, 2**63 - 1),
        "promote_k": None if promote_k is None else check_int(promote_k, "promote_k", 1, 2**31 - 1),
        "scale_a": _scales(scale_a, "scale_a", core, left), "scale_b": _scales(scale_b, "scale_b", core, right),
        "got": None if got is None else f"{_word(got, 'got', result):x}",
    }  # fmt: skip
    given = {name: [value] for name, value in arguments.items() if value is not None}
    return Document(_core.run_experiment("dot", given, None))


_guard(__name__, [*__all__, "Document"])
