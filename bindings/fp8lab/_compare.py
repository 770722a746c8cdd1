# SPDX-License-Identifier: Apache-2.0
"""Two arrays that should be equal, and what their differences share."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_array,
    as_doubles,
    as_format,
    carried_format,
    check_bool,
    check_int,
    check_threads,
    contiguous,
    holds_pairs,
    kind_of,
)
from fp8lab._core import Format
from fp8lab._device_arrays import on_host
from fp8lab._entry import guard as _guard
from fp8lab._html import facts_html, table_html
from fp8lab._recipes import Recipe
from fp8lab._scaling import Quantized
from fp8lab.literals import FormatName

__all__ = [
    "Comparison",
    "Distance",
    "Mismatch",
    "QuantizedComparison",
    "compare",
]

_WIDE = ("float32", "float64", "float16", "bfloat16")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


class Mismatch(NamedTuple):
    """An element that differs."""

    place: tuple[int, ...]  #: its index in the shape of the arrays, in elements
    a: int  #: the word in a
    b: int
    value_a: float
    value_b: float
    input: float | None  #: the value that both were made of, where it is given


class Distance(NamedTuple):
    """How many elements of b lie so many values of the format below and above those of a."""

    low: int
    high: int
    below: int
    above: int


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """What ``compare`` finds: how many elements differ, of which kind, how far, and where. ``str()`` tells it."""

    format: str  #: the format of the elements
    bits: int  #: how many bits an element has
    shape: tuple[int, ...]  #: the shape in elements
    elements: int
    differing: int  #: elements whose bits are not equal: the sum of the next five
    zero_signs: int  #: elements where both are zeros
    nan_words: int  #: elements where both are NaNs
    nan_in_a: int  #: elements where a alone is a NaN
    nan_in_b: int
    numbers: int  #: elements where both are numbers that are not equal; the next five tell of these
    opposite_signs: int  #: one is above zero and one below
    opposite_values: int  #: b is -a
    became_zero: int  #: b alone is zero
    was_zero: int  #: a alone is zero
    largest_distance: int  #: the largest difference of two numbers, in values of the format (for floats: ulps)
    distances: tuple[Distance, ...]
    rows: Array  #: how many elements of each row differ; where there are more than 65,536 rows, of each group of rows
    columns: Array
    findings: tuple[str, ...]  #: what the differences share, one sentence for each finding
    first: tuple[Mismatch, ...]

    @property
    def equal(self) -> bool:
        """Whether every bit is equal."""
        return self.differing == 0

    def __str__(self) -> str:
        if self.equal:
            return f"Equal: all {_counted(self.elements, 'element')}, bit for bit."
        percent = 100 * self.differing / self.elements
        lines = [
            f"Different: {self.differing} of {_counted(self.elements, 'element')} ({percent:.3g} %) of {self.format}."
        ]
        lines += self.findings or ("Nothing that all of them share.",)
        kinds = (
            (self.numbers, "number", "numbers"), (self.zero_signs, "zero of the other sign", "zeros of the other sign"),
            (self.nan_words, "other NaN", "other NaNs"), (self.nan_in_a, "NaN in a", "NaN in a"),
            (self.nan_in_b, "NaN in b", "NaN in b"),
        )  # fmt: skip
        lines.append(
            "Of them: "
            + ", ".join(f"{count} {one if count == 1 else more}" for count, one, more in kinds if count)
            + "."
        )
        for low, high, below, above in self.distances:
            far = f"{low}" if low == high else f"{low} to {high}"
            lines.append(f"  {far} value{'' if high == 1 else 's'} apart: {below} below, {above} above")
        lines += [self._line(one) for one in self.first]
        if self.differing > len(self.first):
            lines.append(f"  ... and {self.differing - len(self.first)} more")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        verdict = str(self).splitlines()[0]
        told = facts_html(verdict, {"format": self.format, "shape": self.shape}, self.findings)
        if not self.first:
            return told
        digits = (self.bits + 3) // 4
        return told + table_html(
            "The first that differ",
            {
                "place": [", ".join(map(str, one.place)) for one in self.first],
                "a": [f"{one.a:0{digits}X} = {one.value_a:.6g}" for one in self.first],
                "b": [f"{one.b:0{digits}X} = {one.value_b:.6g}" for one in self.first],
            },
        )

    def _line(self, one: Mismatch) -> str:
        digits = (self.bits + 3) // 4
        made = "" if one.input is None else f"input {one.input:.9g}: "
        at = ", ".join(map(str, one.place))
        return (
            f"  ({at}): {made}{one.a:0{digits}X} = {one.value_a:.9g} in a, {one.b:0{digits}X} = {one.value_b:.9g} in b"
        )


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class QuantizedComparison:
    """What ``compare`` finds of two Quantized."""

    codes: Comparison
    scales: Comparison
    others: tuple[
        str, ...
    ]  #: one sentence for each other thing that differs: the recipe, scales and amaxes of the tensor

    @property
    def equal(self) -> bool:
        """Whether codes, scales, recipe and amax are equal."""
        return self.codes.equal and self.scales.equal and not self.others

    @property
    def findings(self) -> tuple[str, ...]:
        """What the differences share, a sentence each, which says whether it is about codes or scales."""
        parts = (("Codes", self.codes), ("Scales", self.scales))
        return tuple(f"{name}: {line}" for name, part in parts for line in part.findings) + self.others

    def __str__(self) -> str:
        return "\n".join([f"Codes: {self.codes}", f"Scales: {self.scales}", *self.others])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = (("Codes", self.codes), ("Scales", self.scales))
        return "".join(f"<div>{name}</div>{one._repr_html_()}" for name, one in parts) + facts_html("", {}, self.others)


class _Side(NamedTuple):
    words: Array
    name: str  # the name of the element type
    format: Format | None  # the format that the element type carries
    pairs: bool  # whether its element type says that each byte has two codes


def _side(x: Any, argument: str) -> _Side:
    if isinstance(x, (str, bytes, os.PathLike)):
        raise TypeError(
            f"{argument} must be an array or a Quantized, not {kind_of(x)}: fp8lab.experiments.compare compares files"
        )
    held = on_host(x)
    array, name = as_array(held, argument)
    pairs = holds_pairs(held)
    carried = _core.find_format("e2m1") if pairs else carried_format(name)
    if name not in (*_WIDE, "uint8", "int8", "uint16") and carried is None:
        raise TypeError(f"{argument} must be floats, or uint8, int8, uint16, float8 or float4 codes, not {name}")
    array = contiguous(array)
    return _Side(array.view(np.uint8) if name == "int8" else array, name, carried, pairs)


def _format_of(a: _Side, b: _Side, format: str | Format | None) -> str | Format:
    """What the elements of both are."""
    if a.name in _WIDE or b.name in _WIDE:
        if a.name != b.name:
            raise TypeError(f"a and b must be of one element type, not {a.name} and {b.name}")
        if format is not None:
            raise ValueError(f"format is of codes, and a is {a.name}")
        return a.name
    if a.words.itemsize != b.words.itemsize:
        raise TypeError(f"a and b must have codes of one size, not {a.name} and {b.name}")
    known = [x.format for x in (a, b) if x.format is not None]
    wanted = None if format is None else as_format(format, "format")
    if wanted is not None:
        known.append(wanted)
    if not known:
        raise ValueError(f"format must be given: a and b are {a.name}, which does not tell what its codes are")
    if any(one != known[0] for one in known):
        raise ValueError(
            f"a, b and format must be of one format, not {' and '.join(dict.fromkeys(one.name for one in known))}"
        )
    if (known[0].bits > 8) != (a.words.itemsize == 2):
        raise TypeError(f"codes of {known[0].name} have {known[0].bits} bits, and a is {a.name}")
    return known[0]


def _comparison(
    a: Array, b: Array, format: str | Format, pairs: bool, input: Array | None, shown: int, threads: int
) -> Comparison:
    shape = (*a.shape[:-1], a.shape[-1] * 2) if pairs else a.shape
    columns = shape[-1] if shape else 1
    if input is not None and input.shape != shape:
        raise ValueError(f"input must have shape {shape}, as the elements of a and b, not {input.shape}")
    made = np.empty(0) if input is None else contiguous(input).reshape(-1)
    found = _core.compare(
        a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8), format if isinstance(format, Format) else None,
        "" if isinstance(format, Format) else format, pairs, columns, shown, threads, made,
    )  # fmt: skip
    first = tuple(
        Mismatch(
            tuple(map(int, np.unravel_index(index, shape))), word_a, word_b, value_a, value_b,
            None if input is None else float(input.reshape(-1)[index]))
        for index, word_a, word_b, value_a, value_b in found.pop("first"))  # fmt: skip
    distances = tuple(Distance(*one) for one in found.pop("distances"))
    name = format.name if isinstance(format, Format) else format
    findings = tuple(found.pop("findings"))
    return Comparison(format=name, shape=shape, first=first, distances=distances, findings=findings, **found)


def compare(
    a: Any,
    b: Any,
    *,
    format: FormatName | Format | None = None,
    pairs: bool = False,
    input: Any = None,
    shown: int = 10,
    threads: int | None = None,
) -> Comparison | QuantizedComparison:
    """Compare two arrays of codes or values, or two Quantized, bit for bit.

    Parameters
    ----------
    a, b : array_like, or Quantized
        Of one shape and element type: floats, or codes as uint8 or int8 (uint16 for formats of more than 8 bits) or a
        float8 or float4 type of ml_dtypes or torch. Arrays on a device are copied to the host once: torch tensors, and
        by DLPack those of JAX and CuPy.
    format : str or Format, optional
        What uint8, int8 and uint16 codes are.
    pairs : bool
        Every byte holds two codes of 4 bits, the first in the lower half. torch's float4_e2m1fn_x2 says so itself.
    input : array_like, optional
        What both were made of, to show beside elements that differ. ``findings`` then also say where all differences
        are exact ties, or were made of zeros, NaNs or infinities; of two Quantized of one recipe, where all are scaled
        to ties, subnormal codes or beyond the largest number, or lie in tiles of a kind, as ``diagnose`` counts them.
    shown : int
        How many differing elements to list.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Returns
    -------
    Comparison, or QuantizedComparison

    Raises
    ------
    TypeError, ValueError
        For arrays that cannot be compared: other shapes or element types, codes whose format nothing tells.
    """
    shown = check_int(shown, "shown", 0, 2**20)
    pairs = check_bool(pairs, "pairs")
    number = check_threads(threads)
    made = None if input is None else as_doubles(on_host(input), "input")
    if isinstance(a, Quantized) or isinstance(b, Quantized):
        return _compare_quantized(a, b, format, made, shown, number)
    left, right = _side(a, "a"), _side(b, "b")
    if left.words.shape != right.words.shape:
        raise ValueError(f"a and b must have one shape, not {left.words.shape} and {right.words.shape}")
    if left.words.size == 0:
        raise ValueError("a and b must not be empty")
    if left.pairs or right.pairs:
        alone = next((x for x in (left, right) if x.format is not None and not x.pairs), None)
        if alone is not None:
            single = "a" if alone is left else "b"
            raise TypeError(f"a and b must both hold pairs of codes, or neither, and {single} is {alone.name}")
        pairs = True
    if pairs and left.words.ndim == 0:
        raise ValueError("pairs need at least one dimension")
    own = _format_of(left, right, format)
    if pairs and not (isinstance(own, Format) and own.bits == 4):
        raise ValueError("pairs are of formats of 4 bits, such as e2m1")
    return _comparison(left.words, right.words, own, pairs, made, shown, number)


def _compare_quantized(
    a: Any, b: Any, format: Any, input: Array | None, shown: int, threads: int
) -> QuantizedComparison:
    for x, argument, other in ((a, "a", "b"), (b, "b", "a")):
        if not isinstance(x, Quantized):
            raise TypeError(f"{argument} must be a Quantized, as {other} is, not {kind_of(x)}")
    if format is not None:
        raise ValueError("format is of arrays: a Quantized has its own")
    for what in ("shape", "direction", "transposed", "format", "scale_format", "tile"):
        if getattr(a, what) != getattr(b, what):
            raise ValueError(
                f"a and b must be alike to be compared; {what} is {getattr(a, what)} of a and {getattr(b, what)} of b"
            )
    if input is not None and a.transposed and input.shape == a.shape:
        input = np.ascontiguousarray(input.T)
    own = as_format(a.format if a.format in _FORMATS else a.recipe.format, "format")
    codes = _comparison(contiguous(a.codes), contiguous(b.codes), own, own.bits == 4, input, shown, threads)
    if a.recipe == b.recipe:
        codes = with_kinds(codes, a.codes, b, input)
    if a.scale_codes is None:
        scales = _comparison(contiguous(a.scale_inv), contiguous(b.scale_inv), "float32", False, None, shown, threads)
    else:
        kind = _core.find_format(a.scale_format)
        scales = _comparison(contiguous(a.scale_codes), contiguous(b.scale_codes), kind, False, None, shown, threads)
    others = _others(a, b)
    if a.recipe != b.recipe:
        others.append(f"The recipe is {a.recipe!s} of a, and {b.recipe!s} of b.")
    return QuantizedComparison(codes, scales, tuple(others))


def with_kinds(codes: Comparison, a: Array, b: Quantized, input: Array | None) -> Comparison:
    """The comparison of codes that should be b's, and what the recipe makes of the elements that differ: a finding
    for each kind that all of them are of."""
    given = b.tensor_scale is not None or b.tensor_scale_inv is not None or b.row_amaxes is not None
    if codes.equal or input is None or not isinstance(b.recipe, Recipe) or given:
        return codes
    # Kinds are those of rows whose elements share scales.
    is_turned = b.direction == "columnwise" and not b.transposed
    x = np.ascontiguousarray(input.T if is_turned else input, np.float32)
    differs = _differing(a, b.codes, codes.shape)
    differs = np.ascontiguousarray(differs.T if is_turned else differs)
    kinds = _core.kinds_of_elements(x, "float32", b.recipe._core(), False)
    told = _core.findings_by_kind(kinds, differs.reshape(-1))
    # Ties that the recipe's own scales make are told of them, and not again of scales that powers of two might be.
    are_ties = any(one.startswith(_TIES) for one in told)
    kept = [one for one in codes.findings if not (are_ties and one.startswith(_TIES))]
    return dataclasses.replace(codes, findings=(*kept, *told))


def _differing(a: Array, b: Array, shape: tuple[int, ...]) -> Array:
    """1 for elements that differ; ``shape`` is in elements, of which a byte may have two."""
    different = a ^ b
    if a.shape != shape:
        different = np.stack([different & 15, different >> 4], axis=-1).reshape(shape)
    ones: Array = np.minimum(different, 1)
    return ones


def _others(a: Quantized, b: Quantized) -> list[str]:
    """What differs of the tensor as a whole, a sentence each."""
    found = []
    for name in ("tensor_scale", "tensor_scale_inv"):
        of_a, of_b = getattr(a, name), getattr(b, name)
        if of_a != of_b:
            found.append(f"The {name} that was given is {of_a} of a and {of_b} of b.")
    # A Quantized that was made of arrays may have no amax, where no scale follows from it.
    counts = (
        isinstance(a.recipe, Recipe)
        and a.recipe.tensor_scale != "none"
        and a.tensor_scale is None
        and a.tensor_scale_inv is None
    )
    if (counts or (a.amax and b.amax)) and np.float32(a.amax).tobytes() != np.float32(b.amax).tobytes():
        found.append(f"The amax is {a.amax:.9g} of a and {b.amax:.9g} of b.")
    if a.row_amaxes is not None and b.row_amaxes is not None:
        rows = np.flatnonzero(a.row_amaxes.view(np.uint32) != b.row_amaxes.view(np.uint32))
        if rows.size:
            first = int(rows[0])
            pair = f"{a.row_amaxes[first]:.9g} of a and {b.row_amaxes[first]:.9g} of b"
            found.append(
                f"{rows.size} of {a.row_amaxes.size} row_amaxes differ; the first, that of {first}, is {pair}."
            )
    return found


_FORMATS = {known.name for known in _core.formats()}
_TIES = "Every one is an exact tie"  # so a finding begins

_guard(__name__, __all__)
