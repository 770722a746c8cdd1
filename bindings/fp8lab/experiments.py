# SPDX-License-Identifier: Apache-2.0
"""The experiments of the ``fp8lab`` command line."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    as_floats,
    check_bool,
    check_choice,
    check_int,
    check_list,
    check_name,
    check_path,
    check_threads,
    check_unread,
)
from fp8lab._core import Distribution
from fp8lab._delayed import Delayed
from fp8lab._distributions import as_distribution
from fp8lab._document import Document
from fp8lab._registered import (
    accumulate,
    cast,
    delayed,
    dot,
    double_rounding,
    harmonic,
    primer,
    transpose,
    verify_casts,
    verify_tensor_cores,
)
from fp8lab._recipes import NamedRecipe, Recipe, as_named_recipe, as_recipe
from fp8lab._values import equal

__all__ = [
    "Document",
    "Result",
    "accumulate",
    "cast",
    "delayed",
    "dot",
    "double_rounding",
    "harmonic",
    "primer",
    "scaling",
    "transpose",
    "verify_casts",
    "verify_tensor_cores",
]

_MOST = 2**31 - 1
_LONG = 2**64 - 1


class Result(dict[str, Any]):
    """An experiment's result: a dict with the keys of its JSON file; ``str()`` is the report for a terminal.

    Two are equal where every number, text and array is, bit for bit.
    """

    __hash__ = None

    def __init__(self, content: dict[str, Any], report: str) -> None:
        super().__init__(content)
        self.report = report

    def __eq__(self, other: object) -> bool:
        return equal(self, other) if isinstance(other, dict) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not equal(self, other) if isinstance(other, dict) else NotImplemented

    def __str__(self) -> str:
        return self.report


def _path(value: Any, argument: str) -> bytes | None:
    return None if value is None else check_path(value, argument)


def _paths(value: Any, argument: str) -> list[bytes]:
    """One path, or a list of at least one."""
    paths = check_list(value, argument, check_path, (os.PathLike,))
    if not paths:
        raise ValueError(f"{argument} must have at least one entry")
    return paths


def _names(tensor: Any) -> list[str]:
    """The argument ``tensor``: names or patterns."""
    return [] if tensor is None else check_list(tensor, "tensor", check_name)


def _named_recipes(values: Any) -> list[tuple[str, _core.Recipe | None]]:
    """Recipes with their names; without one where C++ knows it by the name."""
    if isinstance(values, Mapping):
        return [(check_name(name, "a name in recipes"), as_recipe(recipe, "recipes")._core()) for name, recipe in values.items()]
    return check_list(values, "recipes", _named_recipe, (NamedRecipe,))


def _named_recipe(value: Any, argument: str) -> tuple[str, _core.Recipe | None]:
    if isinstance(value, str):
        return check_name(value, argument), None
    name, recipe = as_named_recipe(value, argument)
    return name, recipe._core()


def _delayed(value: Any, argument: str) -> str | _core.DelayedRecipe:
    return value._recipe() if isinstance(value, Delayed) else check_name(value, argument, " or a Delayed")


def scaling(
    x: Sequence[Any] | None = None,
    *,
    stream: str | None = None,
    distribution: str | Distribution | None = None,
    steps: int | None = None,
    rows: int | None = None,
    columns: int | None = None,
    seed: int | None = None,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    tensor: str | Sequence[str] | None = None,
    recipes: Sequence[str | NamedRecipe | Recipe] | Mapping[str, Recipe] = (
        "te_current_scaling",
        "te_mxfp8",
        "te_block_1x128",
        "te_nvfp4",
    ),
    delayed: Sequence[str | Delayed] = ("max:1024", "max:8", "most_recent:1"),
    backward: bool = False,
    bfloat16: bool = False,
    out_dtype: str = "float32",
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Result:
    """Quantize one stream of tensors by every recipe, and measure what comes back step by step; Ctrl-C stops it.

    All recipes see the same tensors in the same order, rows along K. Delayed scaling casts with the scale of the steps
    before, the first one with 1.

    Parameters
    ----------
    x : sequence of array_like of real numbers, optional
        The tensors, a step each; the last dimension is the one that blocks lie along. bfloat16 is quantized as such,
        float16 as float32, float64 is rounded to float32. Drawn, or read from ``files``, if left out.
    stream : str, optional
        How drawn tensors change, ``jump`` if left out: ``stationary``; ``drift``, step t times ``2**(t / 8)``; ``outliers``, in every eighth step
        one element of 4096 times 256; ``jump``, the middle third of the steps times 32. ``grid``: one tensor of the
        quantiles of N(0, 1).
    distribution : str or Distribution, optional
        What they are drawn from; ``normal`` if left out.
    steps, rows, columns, seed : int, optional
        How many tensors, their shape, and which draws; 48, 256, 256 and 1 if left out.
    files : sequence of path, optional
        A tensor a step, of ``.npy`` or ``.safetensors`` files in this order.
    tensor : str or sequence of str, optional
        Which tensors of ``.safetensors`` files: names, or patterns such as ``layers.*.weight``; may be left out where they
        have one.
    recipes : sequence of str, NamedRecipe or recipe, or mapping from names to recipes
        Those without memory: of ``recipes()``, ``mx:FORMAT:RULE`` such as ``mx:e2m3:even``, or records of one's own.
    delayed : sequence of str or Delayed
        Delayed scaling: ``ALGORITHM:LENGTH`` such as ``max:1024``, or records.
    backward : bool
        Delayed scaling casts to the format of gradients: E5M2 of ``hybrid``.
    bfloat16 : bool
        Values are rounded to bfloat16 first.
    out_dtype : str
        What comes back is compared in ``float32`` (in float64 where values of float64 are cast), or rounded to the type of
        the values first: ``source``.
    threads : int
        Changes nothing but the time.
    out : path, optional
        Directory for ``scaling.json``, ``summary.csv``, ``steps.csv`` and CSVs of histograms.

    Returns
    -------
    Result
        ``experiment``, ``provenance``, ``source``, ``tensors``, the array ``amax`` and ``recipes``: a list with ``name``,
        ``description``, ``source``, ``sqnr_db``, ``rms_error``, ``mean_error``, the counts ``elements``, ``not_finite``,
        ``saturated``, ``underflows``, ``blocks`` and ``clipped_blocks``, ``steps`` (arrays ``scale``, NaN where a tensor has
        more than one, ``sqnr_db``, ``rms``, ``saturated``, ``underflows``) and ``histograms`` (``relative_error`` by binade,
        ``ulp_error``).

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, and shapes that break a rule of a recipe's blocks; the message says which.
    OSError
        Where a file cannot be read or ``out`` cannot be written; nothing is left half-written.
    """
    given_delayed = check_list(delayed, "delayed", _delayed, (Delayed,))
    stream = None if stream is None else check_name(stream, "stream")
    arguments = _core.ScalingArguments(
        _named_recipes(recipes),
        given_delayed,
        check_bool(backward, "backward"),
        check_bool(bfloat16, "bfloat16"),
        check_choice(out_dtype, "out_dtype", ("float32", "source")),
        check_threads(threads),
    )
    if x is not None and files is not None:
        raise TypeError("x and files are both streams; one of them is enough")
    if x is not None or files is not None:
        check_unread(
            "drawn tensors, which x and files take the place of",
            stream=stream, distribution=distribution, steps=steps, rows=rows, columns=columns, seed=seed,
        )  # fmt: skip
    if files is None:
        check_unread("files", tensor=tensor)
    if stream == "grid":
        check_unread("draws, which the grid has none of", distribution=distribution, steps=steps, seed=seed)
    if backward and not given_delayed:
        raise ValueError("backward goes with delayed scaling, of which there is none")
    target = _path(out, "out")
    if x is not None:
        place = itertools.count()
        arrays = check_list(x, "x", lambda value, argument: as_floats(value, f"{argument}[{next(place)}]"))
        if not arrays:
            raise ValueError("x must have at least one tensor")
        for i, (array, _) in enumerate(arrays):
            if array.ndim == 0 or array.size == 0:
                raise ValueError(f"x[{i}] must have at least one element in one dimension or more, not shape {array.shape}")
        content, report = _core.scaling_arrays(arguments, arrays, target)
    elif files is not None:
        content, report = _core.scaling_files(arguments, _paths(files, "files"), _names(tensor), target)
    else:
        content, report = _core.scaling_draws(
            arguments,
            check_name("jump" if stream is None else stream, "stream"),
            as_distribution("normal" if distribution is None else distribution, "distribution"),
            check_int(1 if seed is None else seed, "seed", 0, _LONG),
            check_int(48 if steps is None else steps, "steps", -_MOST, _MOST),
            check_int(256 if rows is None else rows, "rows", -_MOST, _MOST),
            check_int(256 if columns is None else columns, "columns", -_MOST, _MOST),
            target,
        )
    result = Result(json.loads(content), report)
    result["amax"] = np.array(result["amax"])
    for recipe in result["recipes"]:
        for name, values in recipe["steps"].items():
            recipe["steps"][name] = np.array([np.nan if value is None else value for value in values])
    return result
