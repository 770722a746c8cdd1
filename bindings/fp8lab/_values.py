# SPDX-License-Identifier: Apache-2.0
"""Values as values: equal where every bit is, and with a state from which pickle, copy and deepcopy make them again.

A pickle holds a call of ``restore`` with a kind and its fields by name: numbers, names and arrays, from which the
kind's ``restorer`` makes the value by the checks that a user's own arguments pass. No state reaches an object
unchecked.
"""

from __future__ import annotations

import copyreg
import dataclasses
import importlib
import json
import re
import struct
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, as_floats_of, check_bool, check_int, check_name, check_real
from fp8lab._core import DelayedVersion, Distribution, ErrorTotals, Format, Histogram, MmaModel, Profile
from fp8lab._html import facts_html
from fp8lab._names import HOMES

State = tuple[Callable[[str, dict[str, Any]], Any], tuple[str, dict[str, Any]]]
_Made = TypeVar("_Made", bound=Callable[..., Any])
_Self = TypeVar("_Self", bound="CoreRecord")

#: Float32 and float64, of which there are no codes, are outputs of GEMMs.
WIDE_FORMATS = {one.name: one for one in _core.wide_formats()}
_FORMATS, _PROFILES = [*_core.formats(), *WIDE_FORMATS.values()], _core.profiles()

_RESTORERS: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {}


def restorer(kind: str, *fields: str) -> Callable[[_Made], _Made]:
    """Registers what makes a value of that kind of its state, whose fields are its keyword arguments."""

    def register(make: _Made) -> _Made:
        _RESTORERS[kind] = (fields, make)
        return make

    return register


def record(kind: _Made) -> _Made:
    """Registers a dataclass, whose state is its fields."""
    return restorer(kind.__name__, *(field.name for field in dataclasses.fields(kind)))(kind)  # type: ignore[arg-type]


def restore(kind: str, fields: dict[str, Any]) -> Any:
    """The value of a state. TypeError or ValueError for a state that is none; the message names the kind and the
    field."""
    if isinstance(kind, str) and kind not in _RESTORERS:  # a pickle may be the first that this process hears of it
        for module in {*HOMES.values()}:
            importlib.import_module(f"fp8lab.{module}")
    if not isinstance(kind, str) or kind not in _RESTORERS:
        raise ValueError(f"unknown kind of state {str(kind)[:40]!r}; known: {', '.join(_RESTORERS)}")
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        raise TypeError(f"the state of a {kind} must be a dict of fields by name")
    names, make = _RESTORERS[kind]
    if fields.keys() != set(names):
        given = ", ".join(fields)[:200]
        shown = given if given.isprintable() else repr(given)
        raise ValueError(f"the state of a {kind} has the fields {', '.join(names)}, not {shown}")
    return make(**fields)


def state(kind: str, /, **fields: Any) -> State:
    """What ``__reduce__`` returns."""
    return restore, (kind, fields)


def equal(a: Any, b: Any) -> bool:
    """Whether two results are the same to the last bit: arrays, numbers, names, and lists and dicts of them."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
            return False
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    return bool(a == b)


class Record:
    """A frozen dataclass whose state is its fields, and which is checked again when it is restored."""

    def __reduce__(self) -> State:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return state(type(self).__name__, **{field.name: getattr(self, field.name) for field in fields})


class CoreRecord(Record):
    """A frozen dataclass over a record in C++, which has the same fields by name and checks how they go together."""

    _kind: ClassVar[Any]  # the class of the record in C++
    _checks: ClassVar[dict[str, Callable[[Any, str], Any]]]  # of a field, by its annotation
    _made: ClassVar[Any] = None  # the record in C++, which each has

    def __post_init__(self) -> None:
        kinds = {one.name: re.sub(r"\b\w+Name\b", "str", str(one.type)) for one in fields_of(self)}
        given = {name: self._checks[kind](getattr(self, name), name) for name, kind in kinds.items()}
        core = self._kind(given)
        own = {name: value for name, value in given.items() if isinstance(value, (Format, Profile))}
        self._set(core, {**core.fields, **own})  # C++ does not keep the names of a user's own

    def _set(self, core: Any, fields: dict[str, Any]) -> None:
        object.__setattr__(self, "_made", core)
        for name, value in fields.items():
            object.__setattr__(self, name, _by_name(value))

    @classmethod
    def _of(cls: type[_Self], core: Any, **own: Any) -> _Self:
        """The record of one in C++, which has been checked; ``own`` has fields under the names that the user gave."""
        made = object.__new__(cls)
        made._set(core, {**core.fields, **own})
        return made

    def to_json(self) -> str:
        """The fields that are not as by default, by name; ``from_json`` makes the record again."""
        return json.dumps({name: _plain(value) for name, value in self._told().items()})

    @classmethod
    def from_json(cls: type[_Self], text: str) -> _Self:
        """The record of ``to_json()``. ValueError or TypeError for what is none; the message names the field."""
        try:
            fields = json.loads(check_name(text, "text"))
        except json.JSONDecodeError as error:
            raise ValueError(f"text must be the JSON of a {cls.__name__}") from error
        if not isinstance(fields, dict):
            raise ValueError(f"text must be the JSON of a {cls.__name__}, an object of its fields")
        return changed(cls(), {name: _restored(value) for name, value in fields.items()})

    def _told(self) -> dict[str, Any]:
        """The fields that are not as by default."""
        return {one.name: getattr(self, one.name) for one in fields_of(self) if getattr(self, one.name) != one.default}

    def __str__(self) -> str:
        description: str = self._made.description
        return description

    def _repr_html_(self) -> str:
        told = {name: getattr(value, "name", value) for name, value in self._told().items()}
        return facts_html(type(self).__name__, told, [str(self)])

    def __repr__(self) -> str:
        """The fields that are not as by default, as one would write it."""
        shown = [f"{name}={getattr(value, 'name', value)!r}" for name, value in self._told().items()]
        return f"{type(self).__name__}({', '.join(shown)})"


def fields_of(record: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a dataclass or of its class."""
    return dataclasses.fields(record)


def changed(record: _Self, fields: dict[str, Any]) -> _Self:
    """The record with other fields."""
    known = [field.name for field in fields_of(record)]
    unknown = [name for name in fields if name not in known]
    if unknown:
        kind = type(record).__name__
        raise ValueError(f"a {kind} has the fields {', '.join(known)}, not {', '.join(map(str, unknown))}")
    made: _Self = dataclasses.replace(record, **fields) if fields else record  # type: ignore[type-var]
    return made


def _by_name(value: Any) -> Any:
    """A format or profile that has a name is that name, so that records of equal fields are equal."""
    known: list[Any] = _FORMATS if isinstance(value, Format) else _PROFILES if isinstance(value, Profile) else []
    return next((one.name for one in known if one == value), value)


def _plain(value: Any) -> Any:
    """What JSON holds: a name, a number, a list; of a value that has more than a name, its state."""
    if isinstance(value, MmaModel):
        if value == _core.find_gemm_model(value.name):
            return value.name
    elif not isinstance(value, (Format, Profile)):
        return list(value) if isinstance(value, tuple) else value
    reduced: Any = copyreg.dispatch_table[type(value)](value)
    kind, fields = reduced[1]
    return {"kind": kind, **fields}


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return restore(value.get("kind", ""), {name: one for name, one in value.items() if name != "kind"})


def named(own: Any, known: list[Any]) -> Any:
    """The entry of the package's list that is this very value; else the value, which a user made up or another version
    had."""
    return next((one for one in known if one == own and one.name == own.name), own)


_FORMAT_FIELDS = ("exponent_bits", "mantissa_bits", "bias", "is_signed", "has_subnormals", "specials", "name")
_PROFILE_FIELDS = tuple(
    name
    for name, value in vars(Profile).items()
    if isinstance(value, property) and name not in ("description", "source")
)
_SUMS = (
    "sum_error", "sum_absolute_error", "sum_squared_error", "sum_squared_reference", "max_absolute_error",
    "max_relative_error",
)  # fmt: skip
_HISTOGRAM_COUNTS = ("zeros", "infinities", "nans", "below", "above", "underflows", "saturations")


@restorer("Format", *_FORMAT_FIELDS)
def _format(
    *,
    exponent_bits: int,
    mantissa_bits: int,
    bias: int,
    is_signed: bool,
    has_subnormals: bool,
    specials: str,
    name: str,
) -> Format:
    own = Format(
        check_int(exponent_bits, "exponent_bits", 0, 64),
        check_int(mantissa_bits, "mantissa_bits", 0, 64),
        check_int(bias, "bias", -(2**31), 2**31 - 1),
        is_signed=check_bool(is_signed, "is_signed"),
        has_subnormals=check_bool(has_subnormals, "has_subnormals"),
        specials=cast(Any, check_name(specials, "specials")),
        name=check_name(name, "name"),
    )
    return named(own, _core.formats())  # type: ignore[no-any-return]


@restorer("Profile", *_PROFILE_FIELDS)
def _profile(**fields: Any) -> Profile:
    flags = {name for name in fields if isinstance(getattr(_core.profiles()[0], name), bool)}
    checked: dict[str, Any] = {
        name: check_bool(value, name) if name in flags else check_name(value, name) for name, value in fields.items()
    }
    own = Profile(**checked)
    return named(own, _core.profiles())  # type: ignore[no-any-return]


@restorer("MmaModel", "name", "fraction_bits", "zero_exponent", "keeps_sign")
def _model(*, name: str, fraction_bits: int, zero_exponent: int | None, keeps_sign: bool) -> MmaModel:
    known = _core.find_model(check_name(name, "model"))
    bits = check_int(fraction_bits, "fraction_bits", 0, 40)
    zero = None if zero_exponent is None else check_int(zero_exponent, "zero_exponent", -1000, 127)
    sign = check_bool(keeps_sign, "keeps_sign")
    if known.arithmetic != "fused" and (bits, zero, sign) != (
        known.fraction_bits,
        known.zero_exponent,
        known.keeps_sign,
    ):
        raise ValueError(
            f"fraction_bits, zero_exponent and keeps_sign of {known.name} must be what they are: it has none to replace"
        )
    return known._replace(bits, zero, sign)


@restorer("DelayedVersion", "name")
def _version(*, name: str) -> DelayedVersion:
    known = {one.name: one for one in _core.delayed_versions()}
    if check_name(name, "version") not in known:
        raise ValueError(f"unknown version of delayed scaling {name!r}; known: {', '.join(known)}")
    return known[name]


@restorer("Distribution", "name")
def _distribution(*, name: str) -> Distribution:
    return _core.find_distribution(check_name(name, "distribution"))


@restorer("Histogram", "kind", "low", "high", "count", "format", "counts", *_HISTOGRAM_COUNTS)
def _histogram(
    *, kind: str, low: float, high: float, count: int, format: Format | None, counts: Array, **apart: int
) -> Histogram:
    if format is not None and not isinstance(format, Format):
        raise TypeError(f"format must be a Format, not {type(format).__name__}")
    histogram = Histogram(
        check_name(kind, "bins"),
        check_real(low, "low"),
        check_real(high, "high"),
        check_int(count, "count", 0, 2**24),
        _core.find_format("e4m3") if format is None else format,
    )
    values = [check_int(apart[name], name, 0, 2**64 - 1) for name in _HISTOGRAM_COUNTS]
    histogram._restore(as_floats_of(counts, "counts", "uint64"), values)
    return histogram


@restorer("ErrorTotals", "count", "not_finite", *_SUMS)
def _totals(*, count: int, not_finite: int, **sums: float) -> ErrorTotals:
    values = [check_real(sums[name], name) for name in _SUMS]
    for name, value in zip(_SUMS, values):
        if value < 0 and name != "sum_error":
            raise ValueError(f"{name} must not be negative, and is {value}")
    totals = ErrorTotals()
    totals._restore(check_int(count, "count", 0, 2**64 - 1), check_int(not_finite, "not_finite", 0, 2**64 - 1), values)
    return totals


def _reduce_with(kind: str, *names: str) -> Callable[[Any], State]:
    return lambda value: state(kind, **{name: getattr(value, name) for name in names})


copyreg.pickle(Format, _reduce_with("Format", *_FORMAT_FIELDS))
copyreg.pickle(Profile, _reduce_with("Profile", *_PROFILE_FIELDS))
copyreg.pickle(MmaModel, _reduce_with("MmaModel", "name", "fraction_bits", "zero_exponent", "keeps_sign"))
copyreg.pickle(DelayedVersion, _reduce_with("DelayedVersion", "name"))
copyreg.pickle(Distribution, _reduce_with("Distribution", "name"))
copyreg.pickle(Histogram, lambda value: state("Histogram", **value._state()))
copyreg.pickle(ErrorTotals, lambda value: state("ErrorTotals", **value._state()))
