# SPDX-License-Identifier: Apache-2.0
"""What a foreign kernel did, from what it made of a tensor."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_array,
    as_bytes,
    as_format,
    as_kernel_floats,
    carried_format,
    check_choice,
    check_int,
    check_real,
    check_threads,
    contiguous,
    empty,
)
from fp8lab._device_arrays import on_host
from fp8lab._entry import guard as _guard
from fp8lab._html import facts_html, table_html
from fp8lab._recipes import NamedRecipe, Recipe, as_recipe
from fp8lab.literals import DirectionName, FormatName, RecipeName, ScaleFormatName

__all__ = [
    "Diagnosis",
    "Discriminator",
    "Explanation",
    "Probe",
    "diagnose",
]

_SCALE_TYPES = ("float32", "float16", "bfloat16")
_SCALE_CODES = ("e8m0", "ue4m3")


class Discriminator(NamedTuple):
    """An element whose code tells the first explanation from the best one that makes another code of it."""

    place: tuple[int, ...]  #: its index in x
    x: float
    code: int  #: the code that the kernel wrote
    first: int  #: the code by the first explanation
    second: int
    value: float  #: the value of the code that the kernel wrote
    value_first: float
    value_second: float


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Explanation:
    """What a kernel may have done, and how much of its output that leaves unexplained."""

    base: str  #: the named recipe, or the cast of a profile
    also: tuple[str, ...]  #: other names of the same arithmetic
    changes: tuple[str, ...]  #: the fields in which the recipe differs from the named one, in words
    departures: tuple[str, ...]  #: the names of what no field of a recipe can say
    direction: str
    description: str
    codes: int  #: how many codes it does not explain
    scales: int  #: how many scales it does not explain
    _made: Any

    @property
    def unexplained(self) -> int:
        """Codes and scales."""
        return self.codes + self.scales

    def __str__(self) -> str:
        codes, scales = (
            f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in ((self.codes, "code"), (self.scales, "scale"))
        )
        return f"{self.description} ({codes} and {scales} unexplained)"

    __repr__ = __str__


class Probe(NamedTuple):
    """A tensor on which explanations differ."""

    values: Array  #: the input, in float32; the type of x holds each value
    digests: list[int]  #: digests of the codes by each explanation: FNV-1a with 64 bits, one byte for each code
    alike: tuple[
        tuple[Explanation, Explanation], ...
    ]  #: the pairs of explanations that this input does not tell apart: their digests are equal


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Diagnosis:
    """What ``diagnose`` finds. ``str()`` tells it."""

    verdict: str
    explained: bool  #: whether the first explanation leaves nothing unexplained
    #: whether it also has neither change nor departure, is what was expected if anything was, and the next two hold;
    #: a scale of the tensor that does not follow from x is so only where a recipe that takes one is expected
    correct: bool
    in_order: bool  #: whether codes stand in the order of x; otherwise they were put in order, as a note says
    telling: bool  #: whether x has a number that is not zero: otherwise nothing is known of scales
    elements: int
    scales: int  #: how many scales were given
    searched: int  #: how many hypotheses were searched
    format: str  #: the format of the codes by the first explanation
    explanations: tuple[Explanation, ...]  #: the best first
    tied: int  #: how many of the first ones the data cannot tell apart
    discriminators: tuple[Discriminator, ...]
    factor: (
        tuple[float, float] | None
    )  #: the interval of factors of which one would explain all codes, where there is one
    rest: tuple[str, ...]  #: one sentence for each place where codes lie that the first explanation leaves unexplained
    notes: tuple[str, ...]
    input_type: str
    exercised: dict[
        str, int
    ]  #: where it is correct: how many elements or tiles of x are of each kind that tells kernels
    #: the kinds that x has not, and that one tensor can have: what the verdict does not say; ``exercise()`` has them
    unexercised: tuple[str, ...]

    def exercise(self) -> Array:
        """A tensor that has all that tells kernels of the first explanation's recipe apart, as far as one tensor can:
        exact ties, subnormal codes, zeros, tiles of zeros, incomplete tiles, and where tiles have scales of their own,
        NaN, infinity and amaxes at the edges of binades.

        Returns
        -------
        ndarray of float32, (rows, columns)
            The type of x holds each value.
        """
        first = self.explanations[0]._made
        made: Array = _core.exercise(first.recipe, first.columnwise, self.input_type)
        return made

    def probe(self, explanations: tuple[Explanation, ...] | None = None) -> Probe:
        """A tensor to run through the kernel, on which explanations differ, and the digest of the codes by each of
        them.

        Parameters
        ----------
        explanations : tuple of Explanation, optional
            At least two. Left out: all of them.

        Returns
        -------
        Probe
            Its values, the digest of each explanation, and the pairs of explanations that it does not part.
        """
        wanted = self.explanations if explanations is None else tuple(explanations)
        if not all(isinstance(one, Explanation) for one in wanted):
            raise TypeError("explanations must be those of a Diagnosis")
        values, digests, alike = _core.probe([one._made for one in wanted], self.input_type)
        return Probe(values, digests, tuple((wanted[i], wanted[j]) for i, j in alike))

    def __str__(self) -> str:
        lines = [self.verdict, *self.rest, *self.notes]
        if self.discriminators:
            lines.append("Elements that tell the first explanation from the next:")
            lines += [
                f"  {one.place}: x = {one.x:.9g}, code {one.code:02X} = {one.value:.9g}; first {one.first:02X} = "
                f"{one.value_first:.9g}, second {one.second:02X} = {one.value_second:.9g}"
                for one in self.discriminators
            ]
        others = self.explanations[1:]
        if others:
            lines.append("Next explanations:")
            lines += [f"  {one}" for one in others[:5]]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return facts_html(self.verdict, {}, [*self.rest, *self.notes]) + table_html(
            "Explanations",
            {
                "explanation": [one.description for one in self.explanations],
                "codes unexplained": [one.codes for one in self.explanations],
                "scales unexplained": [one.scales for one in self.explanations],
            },
        )


def _as_rows(values: Array) -> Array:
    if values.size == 0:
        raise ValueError("x has no elements")
    return values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)


def _scales(scales: Any, scale_format: str | None) -> tuple[Array | None, str | None]:
    if scales is None:
        if scale_format is not None:
            raise ValueError("scale_format says what scales are, and scales are not given")
        return None, None
    if isinstance(scales, (int, float)) and not isinstance(scales, bool):
        scales = np.float32(check_real(scales, "scales"))
    array, name = as_array(on_host(scales), "scales")
    if array.size == 0:
        raise ValueError("scales have no elements; leave them out where none are known")
    carried = carried_format(name)
    if carried is not None:
        name, told = "uint8", "e8m0" if carried.name == "e8m0" else "ue4m3"
        if scale_format not in (None, told):
            raise ValueError(f"scale_format is {scale_format}, and scales are {told} by their element type")
        scale_format = told
    if name == "uint8":
        if scale_format is not None:
            check_choice(scale_format, "scale_format", _SCALE_CODES)
        return contiguous(array).view(np.uint8).reshape(-1), scale_format
    if name not in _SCALE_TYPES:
        raise TypeError(f"scales must be {', '.join(_SCALE_TYPES)} or uint8 codes, not {name}")
    if scale_format is not None:
        raise ValueError(f"scale_format says what bytes are, and scales are {name}")
    return contiguous(array).reshape(-1).view(np.uint8), name


def _expected(value: Any) -> Recipe:
    try:
        return as_recipe(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"expected: {error}") from None


def diagnose(
    x: Any,
    codes: Any,
    scales: Any = None,
    *,
    format: FormatName | _core.Format | None = None,
    scale_format: ScaleFormatName | None = None,
    tensor_scale: float | None = None,
    expected: RecipeName | NamedRecipe | Recipe | None = None,
    direction: DirectionName | None = None,
    shown: int = 10,
    threads: int | None = None,
) -> Diagnosis:
    """Names what a kernel did, from a tensor and the codes and scales that the kernel made of it.

    Named recipes and casts by profiles are searched first, then those with another value in one field of the record,
    one departure that no record says, and two and three of these.

    Parameters
    ----------
    x : array_like of float32, float16 or bfloat16
        What the kernel read; its last dimension lies along K. Arrays on a device are copied to the host once.
    codes : array_like of uint8 or int8, or of a float8 type
        As many as x has elements, or half as many: two codes of 4 bits in each byte.
    scales : array_like, optional
        float32, float16 or bfloat16, or uint8 codes of E8M0 or E4M3, in whatever order. A number is one float32.
    format : str or Format, optional
        Of the codes; every recipe is searched in it. Left out: that of their element type, else any.
    scale_format : str, optional
        ``e8m0`` or ``ue4m3``: what uint8 scales are. Left out: what a recipe stores.
    tensor_scale : float, optional
        The scale of the tensor over those of blocks (NVFP4), or its inverse. It need not follow from x: that is no
        departure.
    expected : str or recipe, optional
        What the kernel should do: departures are told from it.
    direction : str, optional
        ``rowwise`` or ``columnwise``. Left out: rowwise is searched first, then columnwise.
    shown : int
        Explanations and discriminating elements that are listed.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

    Returns
    -------
    Diagnosis

    Raises
    ------
    TypeError, ValueError
        For other element types, an empty x or empty scales, codes that do not fit x or their format, a scale of the
        tensor that is not positive and finite, unknown names.
    """
    values, source = as_kernel_floats(on_host(x), "x")
    shape = values.shape
    stored, carried = as_bytes(on_host(codes), "codes")
    wanted = carried if format is None else as_format(format, "format")
    if carried is not None and wanted != carried:
        raise ValueError(
            f"format is {wanted.name if wanted else None}, and codes are {carried.name} by their element type"
        )
    bytes_of_scales, type_of_scales = _scales(scales, scale_format)
    recipe = None if expected is None else _expected(expected)
    name = expected if isinstance(expected, str) else getattr(expected, "name", "the expected recipe")
    if direction is not None:
        direction = check_choice(direction, "direction", ("rowwise", "columnwise"))
    found = _core.diagnose(
        _as_rows(values), source, stored.reshape(-1), wanted, bytes_of_scales, type_of_scales,
        None if tensor_scale is None else check_real(tensor_scale, "tensor_scale"),
        recipe._core() if recipe else None, str(name),
        direction, check_int(shown, "shown", 0, 2**20), check_threads(threads),
    )  # fmt: skip
    note = _core.note_on_pairs(shape, stored.shape)
    found["notes"] = [note, *found["notes"]] if note else found["notes"]
    return _told(found, shape, source)


def _told(found: dict[str, Any], shape: tuple[int, ...], source: str) -> Diagnosis:
    words = np.arange(256, dtype=np.uint8)
    known = _core.find_format(found["format"])
    decoded = empty((1 << known.bits,), np.float32)
    _core.decode(words[: 1 << known.bits], decoded, known, 1)

    def value(code: int) -> float:
        return float(decoded[code]) if code < len(decoded) else float("nan")

    return Diagnosis(
        verdict=found["verdict"],
        explained=found["explained"],
        correct=found["correct"],
        in_order=found["in_order"],
        telling=found["telling"],
        elements=found["elements"],
        scales=found["scales"],
        searched=found["searched"],
        format=found["format"],
        explanations=tuple(
            Explanation(
                base=made.base,
                also=tuple(made.also),
                changes=tuple(made.changes),
                departures=tuple(made.departures),
                direction="columnwise" if made.columnwise else "rowwise",
                description=made.description,
                codes=codes,
                scales=scales,
                _made=made,
            )
            for made, codes, scales in found["explanations"]
        ),
        tied=found["tied"],
        discriminators=tuple(
            Discriminator(
                tuple(int(i) for i in np.unravel_index(index, shape)) if shape else (),
                x,
                code,
                first,
                second,
                value(code),
                value(first),
                value(second),
            )  # fmt: skip
            for index, x, code, first, second in found["discriminators"]
        ),
        factor=found["factor"],
        rest=tuple(found["rest"]),
        notes=tuple(found["notes"]),
        input_type=source,
        exercised=found["exercised"],
        unexercised=tuple(found["unexercised"]),
    )


_guard(__name__, __all__)
