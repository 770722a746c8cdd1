# SPDX-License-Identifier: Apache-2.0
"""The experiments of the ``fp8lab`` command line."""

from __future__ import annotations

import json
import os
from typing import Any

from fp8lab import _core
from fp8lab._arrays import check_int, check_name, check_real
from fp8lab._core import MmaModel

__all__ = ["Result", "primer"]


class Result(dict[str, Any]):
    """An experiment's result: a dict with the keys of its JSON file; ``str()`` is the report for a terminal."""

    def __init__(self, content: dict[str, Any], report: str) -> None:
        super().__init__(content)
        self.report = report

    def __str__(self) -> str:
        return self.report


def primer(
    *,
    seed: int = 12345,
    sms: int = 114,
    mma: str | MmaModel = "hopper_wgmma_fp8",
    in_features: int = 768,
    out_features: int = 768,
    rows: int = 1024,
    scale_x: float = 1.0,
    scale_w: float = 1.0,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Result:
    """Reproduce the tables of Transformer Engine's FP8 primer and explain FP8's difference from FP32; Ctrl-C stops it.

    Parameters
    ----------
    seed : int
        ``torch.manual_seed``.
    sms : int
        Streaming multiprocessors of the device that draws the weight.
    mma : str
        One of ``models()`` that takes E4M3: the tensor core of the FP8 product.
    in_features, out_features, rows : int
        Multiples of 16 from 16 to 65536.
    scale_x, scale_w : float
        Factors before the cast, divided out afterwards.
    threads : int
        Changes nothing but the time.
    out : path, optional
        Directory for ``primer.json`` and one CSV a histogram.

    Returns
    -------
    Result
        ``experiment``, ``provenance``, ``tables``, ``published``, ``matches``, ``causes``, ``histograms``; ``judged`` tells
        whether the arguments are the published ones, ``passed`` whether every table has its required matches.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; the message says the rule.
    OSError
        Where ``out`` cannot be written; nothing is left half-written.
    """
    most = 2**31 - 1
    if out is not None:
        if not isinstance(out, (str, bytes, os.PathLike)):
            raise TypeError(f"out must be a path, not {type(out).__name__}")
        if b"\0" in os.fsencode(out):
            raise ValueError("out must be a path without NUL")
    content, report = _core.primer(
        check_int(seed, "seed", 0, 2**64 - 1),
        check_int(sms, "sms", -most, most),
        check_name(mma, "mma"),
        check_int(in_features, "in_features", -most, most),
        check_int(out_features, "out_features", -most, most),
        check_int(rows, "rows", -most, most),
        check_real(scale_x, "scale_x"),
        check_real(scale_w, "scale_w"),
        check_int(threads, "threads", 1, 1024),
        None if out is None else os.fsencode(out),
    )
    return Result(json.loads(content), report)
