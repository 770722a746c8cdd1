# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import as_array, check_int, check_name, check_real
from fp8lab._core import Format, MmaModel
from fp8lab._products import Matrix, as_model, matrix_of, set_codes
from fp8lab.experiments import Result


def _as_matrix(x: Any, argument: str) -> Any:
    """One row as a matrix of one."""
    dimensions = as_array(x, argument)[0].ndim
    if dimensions != 1:
        raise ValueError(f"{argument} must have one dimension, not {dimensions}")
    return x.reshape(1, -1) if hasattr(x, "reshape") else np.asarray(x)[None]


def _word(value: Any, argument: str, dtype: np.dtype[Any]) -> int:
    """The word of a number of ``dtype``; that of a NumPy scalar of the same type bit for bit."""
    word = np.uint16 if dtype.itemsize == 2 else np.uint32
    if isinstance(value, np.generic) and value.dtype == dtype:
        return int(value.view(word))
    number = check_real(value, argument)
    with np.errstate(over="ignore"):
        converted = np.array(number, dtype)
    if not (float(converted) == number or np.isnan(number)):
        raise ValueError(f"{argument} must be a number of {dtype.name}, not {number!r}")
    return int(converted.view(word))


def _operand(row: Matrix, scales: Any, argument: str, model: MmaModel) -> _core.Operand:
    operand = row.operand()
    set_codes(operand, None if scales is None else _as_matrix(scales, argument), argument, model, row)
    return operand


def trace_dot(
    a: Any,
    b: Any,
    *,
    model: str | MmaModel,
    c: Any = 0.0,
    format_a: str | Format | None = None,
    format_b: str | Format | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    promote_k: int | None = None,
    zero_rule: str = "skip",
    got: Any = None,
    at: int | None = None,
) -> Result:
    """One dot product of a tensor core, told step by step: for a kernel's one wrong element.

    Parameters
    ----------
    a, b : array_like, (K,)
        A row of each operand, as ``gemm`` takes matrices; E2M1 as uint8 is packed. Zeros fill up the last instruction.
    model : str
        One of ``models()``.
    c : number
        What the first instruction adds to, of the accumulator's type.
    format_a, format_b : str or Format, optional
        Formats of uint8 and uint16 codes; ``e4m3`` if left out. Other element types carry theirs.
    scale_a, scale_b : array_like of uint8 (or float8), (K / block,), optional
        Codes of the block scales, for models that have them, which need both.
    promote_k : int, optional
        As for ``gemm``.
    zero_rule : str
        As for ``mma``.
    got : number, optional
        What a kernel gave, of the result's type: float16 for models with a float16 accumulator and no promotion, else
        float32. A NumPy scalar of that type is taken bit for bit. Where it is another word, every model that takes the
        operands is tried, under every zero rule, promoted and not.
    at : int, optional
        ``str()`` tells of more than four instructions a line each; that of this k in full.

    Returns
    -------
    experiments.Result
        ``word`` (hexadecimal), its ``format`` and ``value``; ``exact``, the real sum rounded once (None with block scales);
        ``equal`` and the ``candidates`` that would give what was got; and ``instructions``: each with ``k``, ``products``,
        ``steps``, ``added`` (the c of a last IEEE addition, else None), ``result`` and ``promoted`` (else None). A step has the
        words ``before`` and ``after``, the largest ``exponent`` and the ``unit`` of what is kept (as powers of two; None where
        nothing is aligned), the ``sum`` of what is kept in units, the ``accumulator`` as a term, and ``terms``: each with ``k``,
        its ``products`` (codes and values), its exact ``value``, its ``exponent``, and what of it is ``kept`` and ``cut``. NaN
        and infinities are the strings ``nan``, ``inf`` and ``-inf``.

    Raises
    ------
    TypeError, ValueError
        As ``gemm`` does, and for numbers that are not of their type.
    """
    core = as_model(model)
    left, right = matrix_of(_as_matrix(a, "a"), "a", format_a), matrix_of(_as_matrix(b, "b"), "b", format_b)
    accumulator = np.dtype(core.accumulator)
    result = np.dtype(np.float32) if promote_k is not None else accumulator
    content, report = _core.trace_dot(
        core,
        _operand(left, scale_a, "scale_a", core),
        _operand(right, scale_b, "scale_b", core),
        _word(c, "c", accumulator),
        check_name(zero_rule, "zero_rule"),
        0 if promote_k is None else check_int(promote_k, "promote_k", 1, 2**31 - 1),
        None if got is None else _word(got, "got", result),
        None if at is None else check_int(at, "at", 0, 2**63 - 1),
    )
    return Result(json.loads(content), report)
