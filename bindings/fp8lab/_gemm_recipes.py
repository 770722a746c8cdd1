# SPDX-License-Identifier: Apache-2.0
"""How a GEMM is composed, as a record of facts."""

from __future__ import annotations

import copyreg
import dataclasses
import json
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    as_format,
    as_profile,
    check_bool,
    check_int,
    check_list,
    check_name,
    check_real,
    kind_of,
    named,
)
from fp8lab._core import Format, MmaModel, Profile
from fp8lab._values import Record, record, restore

__all__ = [
    "GemmRecipe",
    "NamedGemmRecipe",
    "gemm_recipes",
]

_MOST = 2**62
_WIDE = ("float32", "float64")
_FORMATS, _PROFILES = _core.formats(), _core.profiles()


def as_gemm_model(model: Any, argument: str = "model") -> MmaModel:
    """A model by name, ``cuda_cores`` and ``cuda_cores_fma`` included, or one that is given as it is."""
    if isinstance(model, MmaModel):
        return model
    return named(argument, _core.find_gemm_model, check_name(model, argument, " or an MmaModel"))


def check_sizes(values: Any, argument: str) -> list[int]:
    """A list of sizes; none where nothing is given."""
    if values is None:
        return []
    return check_list(values, argument, lambda value, argument: check_int(value, argument, 0, _MOST))


def _as_k_order(value: Any, argument: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    sizes = check_sizes(value, argument)
    if len(sizes) != 3:
        raise ValueError(f"{argument} must be (ways, granule, window), not of {len(sizes)} numbers")
    return tuple(sizes)


def _as_output(value: Any, argument: str) -> Format | str:
    return value if isinstance(value, str) and value in _WIDE else as_format(value, argument)


def _name_of(value: Any, known: list[Any]) -> Any:
    """A format or profile that has a name is that name, so that records of equal fields are equal."""
    return next((one.name for one in known if one == value), value)


@record
@dataclasses.dataclass(frozen=True, repr=False)
class GemmRecipe(Record):
    """How a GEMM is composed: a record of facts. ``gemm`` runs it, a ``LinearGemm`` has one, and ``diagnose_gemm``
    finds one; ``gemm_recipes()`` lists those of real systems.

    It is a function of the operands alone: c, the bias and the scale of the output are arguments of ``gemm``.
    ``str()`` says the record in words; ValueError for fields that do not go together, whose message says why. What the
    fast path does not have is computed element by element, with the same bits where both could (``slow_because``).

    Parameters
    ----------
    model : str or MmaModel
        The tensor core, one of ``models()``; or ``cuda_cores`` or ``cuda_cores_fma``, float32 sums of K ascending
        without one, which round each product, or use an fma.
    dequantized : str
        The type to which each code times its scales is rounded before it is multiplied: ``as_given`` is none.
    zero_rule : str
        As for ``mma``.
    k_order : tuple of int, optional
        (ways, granule, window): each window of K is dealt out to so many parts, granule by granule, and the parts
        follow one after the other. K ascends if left out.
    promote_k : int
        Elements of K after which the accumulator is added to a float32 one and cleared; 0: never, or where operands
        have tile scales, their depth.
    ranges, range_k, split_k : int, int, list of int
        Split-K, one of three: how many ranges of K are computed apart, how long each is, or each length. The last may
        be shorter. 0 and empty: one range.
    split_order, order : list of int, str
        The ranges' numbers as they are added, or ``ascending``, ``descending`` or ``pairwise``; the latter are of
        promoted accumulators where there is one range.
    partial_type, total_type : str, str
        What ranges are rounded to before they are added, and their sum after each of them.
    scale_order : str, optional
        How float32 scales multiply: ``scales_first``, ``accumulator_first`` or ``b_first``. Left out, scales_first for
        tiles, accumulator_first for rows.
    tensor_scales : str
        Scales of the tensors multiply ``as_alpha``, one number, after those of rows; or ``with_rows``, that of each
        multiplies those of its rows, and the products the accumulator by ``scale_order``.
    fused, divided, sum_type : bool, bool, str
        Whether a promotion with scales ends with an fma; whether divisors of tensor scales divide; what the accumulator
        is rounded to before the scales multiply.
    alpha, beta : float, float
        They multiply the product, and c.
    c_enters, addition, addend_type, bias_first : str, str, str, bool
        Whether the accumulation starts from c; how c and the bias are added in the epilogue; what they are rounded to
        before; whether the bias is added before c.
    activation, bias_gradient : str, str
        What is applied to the sum, and which operand's gradient of a bias is written. Those that are not computed yet
        are refused by name.
    scale_out_first, unscaled_type : bool, str
        Whether the scale of the output multiplies those of a and b; what the result is rounded to before it does.
    via_type, output, cast : str, str or Format, str or Profile, optional
        What the result is rounded to on its way; the type of the output, ``float32`` or one of up to 16 bits; and the
        profile of that rounding (left out: saturated to codes, to infinity of float16 and bfloat16).
    """

    model: str | MmaModel = "exact"
    dequantized: str = "as_given"
    zero_rule: str = "floor"
    k_order: tuple[int, int, int] | None = None
    promote_k: int = 0
    ranges: int = 0
    range_k: int = 0
    split_k: tuple[int, ...] = ()
    split_order: tuple[int, ...] = ()
    order: str = "ascending"
    partial_type: str = "as_given"
    total_type: str = "as_given"
    scale_order: str | None = None
    tensor_scales: str = "as_alpha"
    fused: bool = True
    divided: bool = False
    sum_type: str = "as_given"
    alpha: float = 1.0
    beta: float = 1.0
    c_enters: str = "epilogue"
    addition: str = "after_scales"
    addend_type: str = "as_given"
    bias_first: bool = False
    activation: str = "none"
    bias_gradient: str = "none"
    scale_out_first: bool = False
    unscaled_type: str = "as_given"
    via_type: str = "as_given"
    output: str | Format = "float32"
    cast: str | Profile | None = None

    _made: ClassVar[Any] = None  # the record in C++, which each has

    def __post_init__(self) -> None:
        fields = {one.name: _CHECKS[str(one.type)](getattr(self, one.name), one.name) for one in _FIELDS}
        core = _core.GemmRecipe(fields)
        self._set(core, {**core.fields, "output": fields["output"], "cast": fields["cast"]})  # by names as given

    def _set(self, core: _core.GemmRecipe, fields: dict[str, Any]) -> None:
        object.__setattr__(self, "_made", core)
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        for name, known in (("output", _FORMATS), ("cast", _PROFILES)):
            value = fields[name]
            if value is not None and not isinstance(value, str):
                object.__setattr__(self, name, _name_of(value, known))

    def _core(self) -> _core.GemmRecipe:
        made: _core.GemmRecipe = self._made
        return made

    @property
    def slow_because(self) -> str:
        """What of it the fast path of ``gemm`` does not have, so that each element is computed by itself; empty:
        nothing.

        Operands with scales of tiles may add to it: promotions within a tile, that are not fused, or with the scales of
        b first.
        """
        return self._core().slow_because(_NOTHING, _NOTHING)

    def to_json(self) -> str:
        """The fields that are not as by default, by name; ``from_json`` makes the record again."""
        fields = {}
        for field in _FIELDS:
            value = getattr(self, field.name)
            if value != field.default or field.name == "model":
                fields[field.name] = _plain(value)
        return json.dumps(fields)

    @staticmethod
    def from_json(text: str) -> GemmRecipe:
        """The record of ``to_json()``. ValueError or TypeError for what is none; the message names the field."""
        try:
            fields = json.loads(check_name(text, "text"))
        except json.JSONDecodeError as error:
            raise ValueError("text must be the JSON of a GemmRecipe") from error
        if not isinstance(fields, dict):
            raise ValueError("text must be the JSON of a GemmRecipe, an object of its fields")
        return changed(GemmRecipe(), {name: _restored(value) for name, value in fields.items()})

    def __str__(self) -> str:
        return self._core().description

    def __repr__(self) -> str:
        """The fields that are not as by default, as one would write it."""
        fields = [(field.name, getattr(self, field.name), field.default) for field in _FIELDS]
        shown = [
            f"{name}={getattr(value, 'name', value)!r}"
            for name, value, default in fields
            if value != default or name == "model"
        ]
        return f"GemmRecipe({', '.join(shown)})"


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


_NOTHING = _core.Operand(np.empty((0, 0), np.uint8), _core.find_format("e4m3"), False, False)
_FIELDS = dataclasses.fields(GemmRecipe)
_CHECKS: dict[str, Any] = {
    "str | MmaModel": as_gemm_model,
    "tuple[int, int, int] | None": _as_k_order,
    "tuple[int, ...]": check_sizes,
    "int": lambda value, name: check_int(value, name, 0, 2**31 - 1 if name == "promote_k" else _MOST),
    "bool": check_bool,
    "float": check_real,
    "str": check_name,
    "str | None": lambda value, name: None if value is None else check_name(value, name),
    "str | Format": _as_output,
    "str | Profile | None": lambda value, name: None if value is None else as_profile(value, name),
}
GemmRecipe.__doc__ = f"{GemmRecipe.__doc__}\n    Names\n    -----\n" + "".join(
    f"    {field} : {', '.join(choices)}\n" for field, choices in _core.gemm_recipe_choices().items()
)


def changed(recipe: GemmRecipe, fields: dict[str, Any]) -> GemmRecipe:
    """The recipe with other fields."""
    known = [field.name for field in _FIELDS]
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ValueError(f"a GemmRecipe has the fields {', '.join(known)}, not {', '.join(map(str, unknown))}")
    return dataclasses.replace(recipe, **fields) if fields else recipe


def gemm_recipe_of(core: _core.GemmRecipe) -> GemmRecipe:
    """The record of one in C++, which has been checked."""
    recipe = object.__new__(GemmRecipe)
    recipe._set(core, core.fields)
    return recipe


class NamedGemmRecipe(NamedTuple):
    """A GEMM recipe with the name users call it by and the source that defines it."""

    name: str
    recipe: GemmRecipe
    source: str

    def __str__(self) -> str:
        return f"{self.name}: {self.recipe} [{self.source}]"


def gemm_recipes() -> list[NamedGemmRecipe]:
    """The GEMM recipes of real systems; ``str()`` of each explains it."""
    return [NamedGemmRecipe(name, gemm_recipe_of(core), source) for name, core, source in _core.gemm_recipes()]


def as_gemm_recipe(value: Any, argument: str = "recipe", instead: str = "or an MmaModel") -> GemmRecipe:
    """A recipe; one by its name; or by a model, or its name, what that computes as it is."""
    if isinstance(value, GemmRecipe):
        return value
    if isinstance(value, NamedGemmRecipe):
        return value.recipe
    if isinstance(value, MmaModel):
        return GemmRecipe(value)
    if not isinstance(value, str):
        raise TypeError(
            f"{argument} must be a GemmRecipe, the name of one or of a model, {instead}, not {kind_of(value)}"
        )
    return gemm_recipe_of(named(argument, _core.find_gemm, check_name(value, argument)))
