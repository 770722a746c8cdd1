# SPDX-License-Identifier: Apache-2.0
"""Scaling recipes as records: the constructors, and the table of real systems."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

from fp8lab import _core
from fp8lab._arrays import as_format, as_profile, check_bool, check_choice, check_int, check_name, check_real, named
from fp8lab._core import Format, Profile
from fp8lab._delayed import Delayed
from fp8lab._entry import guard as _guard
from fp8lab._html import facts_html
from fp8lab._values import CoreRecord, record
from fp8lab.literals import (
    BlockRuleName,
    DirectionName,
    FormatName,
    JustInTimeAxisName,
    JustInTimeRuleName,
    MxRuleName,
    OutDtypeName,
    ProfileName,
    RecipeArithmeticName,
    RecipeBlockChoiceName,
    RecipeBlockFactorName,
    RecipeBlockProductName,
    RecipeEdgesName,
    RecipeFactorName,
    RecipeInfiniteAmaxName,
    RecipeLeastAmaxTypeName,
    RecipeLimitName,
    RecipeNanAmaxName,
    RecipeNanInAmaxName,
    RecipeOperationName,
    RecipeProductName,
    RecipeQuotientName,
    RecipeRoundingName,
    RecipeScaleTypeName,
    RecipeTensorScaleName,
    RecipeTransformName,
    RecipeZeroAmaxName,
)

__all__ = [
    "Block",
    "GivenScale",
    "JustInTime",
    "MxBlock",
    "NamedRecipe",
    "NvFp4",
    "Recipe",
    "TileScale",
    "recipes",
]

_MOST = 2**40


@record
@dataclasses.dataclass(frozen=True, repr=False)
class Recipe(CoreRecord):
    """How one tensor is cast: a record of facts. ``MxBlock(...)`` and its like make one, ``recipes()`` lists those of
    real systems.

    The amax is the largest magnitude of the elements that share a scale. The scale multiplies on quantize, scale_inv on
    dequantize. ``str()`` says the record in words; ValueError for fields that do not go together, whose message says
    why.

    Parameters
    ----------
    tile_across, tile_along : int
        Elements that share a scale, across K and along K; 0: all.
    whole_tiles, pads_tiles : bool
        Rows and columns must be multiples of the tile's, or zeros fill the last tiles up and are stored: codes and
        scales are then those of the larger tensor. Otherwise the last tile may be shorter, as if it were filled up with
        zeros.
    transform, nan_in_amax, least_amax, least_amax_type, largest_amax : str, str, float, str, float
        The amax: what is done to the tensor before, whether NaN counts, and what smaller and larger ones count as (the
        former may be rounded to the tensor's type).
    flush_subnormal_amax : bool
        Elements of tiles whose amax is below 2^-126 are multiplied by 0.
    quotient, given_scale, arithmetic, least_scale_inv : str, float, str, float
        How the amax makes the scale or scale_inv, in which type; a given scale; what a smaller scale_inv becomes.
    rounding, even_mantissa_bits, limit : str, int, str
        How that is rounded to a power of two (``even``: after rounding to so many bits of mantissa; 0: as the format
        has), and what an infinite scale becomes.
    zero_amax, infinite_amax, nan_amax : str
        What an amax of zero, infinity or NaN makes.
    scale_type, edges : str
        The type of stored scales, and what E8M0 means at the ends of its range.
    tensor_scale, tensor_scale_for_each_row, tensor_range : str, bool, float
        The tensor's scale over those of tiles, or of each row; the largest tile scale that it leaves room for.
    block_product, block_factor, block_choice : str
        What is rounded to a tile's scale under the tensor's; the factor of that; whether a tile of E2M1 may put its
        amax at 4 instead of 6, and by which error that is chosen.
    factor, largest_factor, least_divisor, operation, product, float32_steps : str, float, float, str, str, bool
        How the elements' factor is made of the stored scale; what a smaller scale_inv counts as there; how an element
        meets it; the type that the product or quotient is rounded to before the cast; whether that is made by steps in
        float32, two of which lose a bit, as by microxcaling.
    format, cast : str or Format, str or Profile
        What elements are cast to, and the policy of that cast.
    transposed_columnwise, scale_for_each_row : bool
        What is stored: columnwise codes as those of the transpose; the scale of a square tile in each of its rows.
    """

    tile_across: int = 0
    tile_along: int = 0
    whole_tiles: bool = False
    pads_tiles: bool = False
    transform: RecipeTransformName = "none"
    nan_in_amax: RecipeNanInAmaxName = "dropped"
    least_amax: float = 0.0
    least_amax_type: RecipeLeastAmaxTypeName = "float32"
    largest_amax: float = float("inf")
    flush_subnormal_amax: bool = False
    quotient: RecipeQuotientName = "largest_over_amax"
    given_scale: float = 1.0
    arithmetic: RecipeArithmeticName = "float32"
    least_scale_inv: float = 0.0
    rounding: RecipeRoundingName = "none"
    even_mantissa_bits: int = 0
    limit: RecipeLimitName = "none"
    zero_amax: RecipeZeroAmaxName = "computed"
    infinite_amax: RecipeInfiniteAmaxName = "computed"
    nan_amax: RecipeNanAmaxName = "computed"
    scale_type: RecipeScaleTypeName = "float32"
    edges: RecipeEdgesName = "specified"
    tensor_scale: RecipeTensorScaleName = "none"
    tensor_scale_for_each_row: bool = False
    tensor_range: float = 448.0
    block_product: RecipeBlockProductName = "amax_times_scale"
    block_factor: RecipeBlockFactorName = "inverse_of_product"
    block_choice: RecipeBlockChoiceName = "none"
    factor: RecipeFactorName = "of_scale"
    largest_factor: float = float("inf")
    least_divisor: float = 0.0
    operation: RecipeOperationName = "multiply"
    product: RecipeProductName = "float32"
    float32_steps: bool = False
    format: FormatName | Format = "e4m3"
    cast: ProfileName | Profile = "cuda_satfinite"
    transposed_columnwise: bool = True
    scale_for_each_row: bool = False

    _kind: ClassVar[Any] = _core.Recipe
    _checks: ClassVar[dict[str, Any]] = {
        "int": lambda value, name: check_int(value, name, 0, _MOST if name.startswith("tile") else 2**31 - 1),
        "bool": check_bool,
        "float": check_real,
        "str": check_name,
        "str | Format": as_format,
        "str | Profile": as_profile,
    }

    def _core(self) -> _core.Recipe:
        made: _core.Recipe = self._made
        return made

    @property
    def scale_format(self) -> str:
        """The format of stored scales: ``float32``, ``e8m0`` or ``ue4m3``."""
        return self._core().scale_format

    def tile_shape(self, shape: tuple[int, int], *, direction: DirectionName = "rowwise") -> tuple[int, int]:
        """Rows and columns that share a scale in a tensor of that shape. ValueError for shapes that the recipe does not
        take."""
        if not isinstance(shape, tuple) or len(shape) != 2:
            raise TypeError("shape must be a tuple of two ints")
        rows, columns = (check_int(size, "shape", 1, _MOST) for size in shape)
        return self._core().tile_shape(check_choice(direction, "direction", ("rowwise", "columnwise")), rows, columns)

    def tile_scale(self, amax: float, *, tensor_amax: float = 0.0, input_type: OutDtypeName = "float32") -> TileScale:
        """The scale that the amax of a tile makes.

        Parameters
        ----------
        amax : float
            Not negative; NaN where the recipe counts it.
        tensor_amax : float
            Of the whole tensor, where that has a scale over those of tiles.
        input_type : str
            ``float32``, ``float16`` or ``bfloat16``: that of the tensor, where the recipe's limit or arithmetic is of
            it.
        """
        kind = check_choice(input_type, "input_type", ("float32", "float16", "bfloat16"))
        amax, tensor_amax = check_real(amax, "amax"), check_real(tensor_amax, "tensor_amax")
        for value, argument in ((amax, "amax"), (tensor_amax, "tensor_amax")):
            if value < 0:
                raise ValueError(f"{argument} must not be negative, and is {value}")
        type_of_input = None if kind == "float32" else _core.find_format(kind)
        return TileScale(*self._core().tile_scale(abs(amax), abs(tensor_amax), type_of_input))


Recipe.__doc__ = f"{Recipe.__doc__}\n    Notes\n    -----\n    The names that fields take:\n\n" + "".join(
    f"    - {field} : {', '.join(choices)}\n" for field, choices in _core.recipe_choices().items()
)


class TileScale(NamedTuple):
    """What the amax of a tile makes."""

    factor: float  #: multiplies the elements, or divides them where the recipe does that
    scale_inv: float  #: multiplies on dequantize; where the tensor has a scale too, this is the tile's alone
    code: int  #: the code of the scale, where it is E8M0 or E4M3; else 0


def _recipe(core: _core.Recipe, format: Format | None = None) -> Recipe:
    """The record; ``format`` is that of the caller, which may have another name."""
    return Recipe._of(core) if format is None else Recipe._of(core, format=format)


def of_core(core: _core.Recipe, like: Recipe) -> Recipe:
    """The record in C++, with the format as another record has it."""
    return Recipe._of(core, format=like.format, cast=like.cast)


def _optional_bool(value: Any, argument: str) -> bool | None:
    return None if value is None else check_bool(value, argument)


def GivenScale(format: FormatName | Format = "e4m3", scale: float = 1.0) -> Recipe:
    """One scale for the whole tensor, which comes from outside: delayed scaling, a calibration, or just a number.

    Codes are those of fl(x * scale), scale_inv is fl(1 / scale). The scale is positive and finite, and so is its
    inverse.
    """
    own = as_format(format, "format")
    return _recipe(_core.given_scale(own, check_real(scale, "scale")), own)


def JustInTime(
    format: FormatName | Format = "e4m3",
    rule: JustInTimeRuleName = "te",
    axis: JustInTimeAxisName = "tensor",
    amax_epsilon: float = 0.0,
    force_pow_2_scales: bool | None = None,
) -> Recipe:
    """Current scaling: the scale is made of the amax of the very tensor, or row.

    Codes are those of fl(x * scale), scale_inv is fl(1 / scale).

    Parameters
    ----------
    format : str or Format
    rule : str
        ``te``: fl(largest / max(amax, amax_epsilon)), at most the largest float32, 1 for an amax of 0 or infinity; NaN
        is not counted. ``torchao``: fl(largest / max(amax, 1e-12)); a NaN makes all NaN.
    axis : str
        ``tensor``, or ``row``: a scale for every row (columnwise: every column).
    amax_epsilon : float
        For rule ``te``: what smaller amaxes count as.
    force_pow_2_scales : bool, optional
        ``te``: the scale's mantissa is cleared. ``torchao``: 2^floor(log2(scale)) with log2 in float32, as PyTorch
        computes it on a CPU: a scale within 44 * 2^-24 below a power of two may become that power (never of a bfloat16
        amax). Left out:
        True for torchao's rows.
    """
    own = as_format(format, "format")
    core = _core.just_in_time(
        own,
        check_name(rule, "rule"),
        check_name(axis, "axis"),
        check_real(amax_epsilon, "amax_epsilon"),
        _optional_bool(force_pow_2_scales, "force_pow_2_scales"),
    )
    return _recipe(core, own)


def MxBlock(
    format: FormatName | Format = "e4m3",
    rule: MxRuleName = "te",
    enable_2d_quantization: bool = False,
    nan: RecipeNanInAmaxName | None = None,
    drop_negative_zero: bool = False,
    edges: RecipeEdgesName = "specified",
) -> Recipe:
    """MX: blocks of 32 elements along K with an E8M0 scale each. Codes are those of x times the exact inverse of it.

    Parameters
    ----------
    format : str or Format
        ``e4m3``, ``e5m2``, ``e2m3``, ``e3m2``, ``e2m1`` or one's own.
    rule : str
        How the block's amax becomes the scale. ``te``: fl(amax * fl(1 / largest)) rounded up to a power of two;
        ``floor``: the power of two at or below amax over that of the largest value, as OCP MX has it; ``ceil``: at or
        above; ``even``: that of amax rounded to the format's mantissa; ``rceil``: torchao's after 0.18, as te, but NaN
        where it is not finite.
    enable_2d_quantization : bool
        Blocks of 32 x 32, which both directions share.
    nan : str, optional
        ``dropped``: a NaN does not count; ``counted``: it makes all of its block NaN. Left out: dropped by ``te`` and
        ``floor``, counted by the others, which are torchao's.
    drop_negative_zero : bool
        -0 is quantized to +0, as by kernels whose multiply is an fma with +0.
    edges : str
        What the codes 00, FE and FF of E8M0 mean. With ``torchao_0_18`` also an infinite amax makes a scale that is not
        NaN, the numbers beside a NaN are quantized to 0 (but by ``rceil``), and ``rceil`` is 2^ceil(log2(amax /
        largest)) with log2 in float32.
    """
    own = as_format(format, "format")
    core = _core.mx_block(
        own,
        check_name(rule, "rule"),
        check_bool(enable_2d_quantization, "enable_2d_quantization"),
        None if nan is None else check_name(nan, "nan"),
        check_bool(drop_negative_zero, "drop_negative_zero"),
        check_name(edges, "edges"),
    )
    return _recipe(core, own)


def Block(
    format: FormatName | Format = "e4m3",
    rule: BlockRuleName = "te",
    rows: int = 1,
    columns: int = 128,
    amax_epsilon: float = 0.0,
    force_pow_2_scales: bool | None = None,
) -> Recipe:
    """Tiles of 1 x 128 or 128 x 128 elements with a float32 scale each, as DeepSeek-V3 has them.

    Parameters
    ----------
    format : str or Format
    rule : str
        ``te`` (as JustInTime's), ``deepseek_2024``, ``deepseek_2025``, ``deepgemm_cpu``, ``deepgemm_cuda`` or
        ``torchao``; ``str()`` of the record says what each does. A NaN makes all of its tile NaN by DeepGEMM's and
        torchao's rules, whose maximum is PyTorch's (DeepGEMM's powers of two have no NaN: 2^127).
    rows, columns : int
        Of a tile, across K and along it; rows is 1 or as columns.
    amax_epsilon : float
        For rule ``te``: what smaller amaxes count as.
    force_pow_2_scales : bool, optional
        The scale is rounded down (scale_inv up) to a power of two; of ``torchao`` as JustInTime's. Left out: True for
        ``te``.
    """
    own = as_format(format, "format")
    core = _core.block(
        own,
        check_name(rule, "rule"),
        check_int(rows, "rows", 1, 2**31),
        check_int(columns, "columns", 1, 2**31),
        check_real(amax_epsilon, "amax_epsilon"),
        _optional_bool(force_pow_2_scales, "force_pow_2_scales"),
    )
    return _recipe(core, own)


def NvFp4(
    with_2d_quantization: bool = False,
    stochastic_rounding: bool = False,
    with_rht: bool = False,
    round_rht: bool = True,
    nan: RecipeNanInAmaxName = "dropped",
) -> Recipe:
    """NVFP4 of Transformer Engine since 2.14: E2M1 in blocks of 16 along K with an E4M3 scale each, and a float32 scale
    of the tensor.

    Parameters
    ----------
    with_2d_quantization : bool
        Blocks of 16 x 16, which both directions share.
    stochastic_rounding : bool
        With the ``random_bits`` of ``quantize``.
    with_rht : bool
        Columnwise, every 16 elements along K are turned by a random Hadamard matrix first.
    round_rht : bool
        With ``with_rht``: what the matrix gives is rounded to bfloat16 before its amax is taken, as by all kernels
        since 2.8. False:
        not rounded, as by the fused kernels with NVTE_USE_FAST_MATH=1 (from 2.12).
    nan : str
        ``dropped``: a NaN does not count; ``counted``: it makes its block's scale NaN.
    """
    core = _core.nvfp4(
        check_bool(with_2d_quantization, "with_2d_quantization"),
        check_bool(stochastic_rounding, "stochastic_rounding"),
        check_bool(with_rht, "with_rht"),
        check_bool(round_rht, "round_rht"),
        check_name(nan, "nan"),
    )
    return _recipe(core)


class NamedRecipe(NamedTuple):
    """A recipe with the name users call it by and the source that defines it."""

    name: str
    recipe: Recipe
    source: str

    def __str__(self) -> str:
        return f"{self.name}: {self.recipe} [{self.source}]"

    def _repr_html_(self) -> str:
        return facts_html(self.name, {"source": self.source}, [str(self.recipe)])


def recipes() -> list[NamedRecipe]:
    """The recipes of real systems: which elements share a scale, and who makes it; ``str()`` of each explains it."""
    return [NamedRecipe(name, _recipe(core), source) for name, core, source in _core.recipes()]


_RECIPES = {one.name: one.recipe for one in recipes()}


def as_recipe(value: Any, argument: str = "recipe") -> Recipe:
    if isinstance(value, NamedRecipe):
        return value.recipe
    if isinstance(value, Delayed):
        raise TypeError(
            f"{argument} must not be a Delayed, which takes its scale of earlier steps: give an AmaxHistory of it"
        )
    if isinstance(value, Recipe):
        return value
    return _RECIPES[named(argument, _core.find_recipe, check_name(value, argument, " or a Recipe"))]


def as_named_recipe(value: Any, argument: str = "recipe") -> tuple[str, Recipe]:
    """A recipe with the name that results give it: its own, that of an equal one, or how one would write the record."""
    recipe = as_recipe(value, argument)
    if isinstance(value, NamedRecipe):
        return value.name, recipe
    if isinstance(value, str):
        return value, recipe
    return next((name for name, known in _RECIPES.items() if known == recipe), repr(recipe)), recipe


_guard(__name__, __all__)
