# SPDX-License-Identifier: Apache-2.0
"""The experiments of the ``fp8lab`` command line."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    as_floats,
    as_format,
    as_profile,
    check_bool,
    check_choice,
    check_int,
    check_list,
    check_name,
    check_path,
    check_real,
    check_threads,
    check_unread,
)
from fp8lab._core import Distribution, Format, Profile
from fp8lab._delayed import Delayed
from fp8lab._distributions import as_distribution
from fp8lab._document import Document
from fp8lab._registered import (
    accumulate,
    delayed,
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
_Entry = TypeVar("_Entry")


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


def _list(values: Any, argument: str, entry: Callable[[Any, str], _Entry]) -> list[_Entry]:
    """A list of checked entries, at least one; a single name, format, profile or number is a list of one."""
    entries = check_list(values, argument, entry, (Format, Profile))
    if not entries:
        raise ValueError(f"{argument} must have at least one entry; leave it out for its default")
    return entries


def _optional_list(values: Any, argument: str, entry: Callable[[Any, str], _Entry]) -> list[_Entry]:
    """The same of an argument that is left out as None or (), and is then an empty list."""
    return [] if values is None or isinstance(values, tuple) and not values else _list(values, argument, entry)


def _rounding(value: Any, argument: str) -> str:
    """A rounding that needs no random bits."""
    return check_choice(value, argument, [name for name in _core.roundings() if name != "stochastic"])


def cast(
    x: Any = None,
    *,
    distribution: str | Distribution | None = None,
    seed: int | None = None,
    size: int | None = None,
    grid: bool = False,
    file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    tensor: str | Sequence[str] | None = None,
    formats: Sequence[str | Format] = ("e4m3", "e5m2"),
    profiles: Sequence[str | Profile] = ("cuda_satfinite",),
    roundings: Sequence[str] = (),
    scales: Sequence[float] = (),
    amax: Sequence[float] = (),
    exact: bool = False,
    best_scale: bool = False,
    out_dtype: str = "float32",
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Result:
    """Measure what casts do to values: SQNR, errors, underflow, saturation, histograms; Ctrl-C stops it.

    Every combination of format, profile, rounding and scale is measured. What comes back of a value is
    ``cast_to_representable`` of it, in float32 (of float64 in float64); its error is measured in float64 against the value
    itself.

    Parameters
    ----------
    x : array_like of float32, float64, float16 or bfloat16, optional
        The values, cast directly and not by way of float32. Without them, and without grid and file, they are drawn.
    distribution : str or Distribution, optional
        One of ``distributions()``, ``normal`` if left out; ``sample`` draws the values.
    seed : int, optional
        Of these draws; 1 if left out.
    size : int, optional
        How many draws, or values of the grid; 2^20 if left out.
    grid : bool
        ``normal_grid`` instead of draws.
    file : path or sequence of path, optional
        .npy or .safetensors files of any size, read piece by piece.
    tensor : str or sequence of str, optional
        Which tensors of the files: names, or patterns such as ``layers.*.weight``. Each is measured apart.
    formats : sequence of str or Format
        What to cast to.
    profiles : sequence of str or Profile
        What overflow, infinities and NaN become.
    roundings : sequence of str
        All but ``stochastic``; each profile's own if left out.
    scales : sequence of float
        Factors before the cast, divided out afterwards; 1 if there are neither scales nor amax nor best_scale.
    amax : sequence of float
        Magnitudes that become the format's largest value: the scale is ``largest / amax``.
    exact : bool
        Also ``exact_sqnr_db`` of each saturating cast to nearest; for distributions and the grid.
    best_scale : bool
        Also the scale that ``best_scale`` gives for each format; for distributions and the grid.
    out_dtype : str
        What comes back is compared in ``float32`` (in float64 where values of float64 are cast), or rounded to the type of
        the values first: ``source``.
    threads : int
        Changes nothing but the time.
    out : path, optional
        Directory for ``cast.json``, ``summary.csv`` with a row a cast, and one CSV a histogram.

    Returns
    -------
    Result
        ``experiment``, ``provenance``, ``source``, ``type``, ``size`` and ``casts``: a list with ``format``, ``profile``,
        ``rounding``, ``scale``, ``amax``, ``is_best_scale``, ``sqnr_db``, ``exact_sqnr_db``, ``rms_error``, ``mean_error``,
        ``mean_absolute_error``, ``max_absolute_error``, ``max_relative_error``, ``compared`` (finite pairs), ``not_finite``
        (the others), ``counts`` and ``histograms`` (error, relative_error, ulp_error, codes). A number that there is not,
        and an infinite one, is None.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; the message says the rule.
    OSError
        Where the file cannot be read or ``out`` cannot be written; nothing is left half-written.
    """
    arguments = _core.CastArguments(
        _list(formats, "formats", as_format),
        _list(profiles, "profiles", as_profile),
        _optional_list(roundings, "roundings", _rounding),
        _optional_list(scales, "scales", check_real),
        _optional_list(amax, "amax", check_real),
        check_bool(exact, "exact"),
        check_bool(best_scale, "best_scale"),
        check_choice(out_dtype, "out_dtype", ("float32", "source")),
        check_threads(threads),
    )
    drawn = distribution is not None or seed is not None
    given = [x is not None, drawn, check_bool(grid, "grid"), file is not None]
    if sum(given) > 1:
        raise ValueError("values come from one of x, distribution (with seed), grid and file")
    if size is not None and (x is not None or file is not None):
        raise ValueError("size belongs to a distribution or the grid")
    if tensor is not None and file is None:
        raise ValueError("tensor needs file")
    where = _path(out, "out")
    number = 2**20 if size is None else check_int(size, "size", 1, 2**40)
    if x is not None:
        array, source = as_floats(x, "x")
        content, report = _core.cast_array(arguments, array, source, where)
    elif file is not None:
        content, report = _core.cast_file(arguments, _paths(file, "file"), _names(tensor), where)
    elif grid:
        content, report = _core.cast_grid(arguments, number, where)
    else:
        values = as_distribution("normal" if distribution is None else distribution, "distribution")
        key = check_int(1 if seed is None else seed, "seed", 0, _LONG)
        content, report = _core.cast_draws(arguments, values, key, number, where)
    return Result(json.loads(content), report)


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
