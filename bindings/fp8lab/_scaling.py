# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Union

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_array,
    as_bytes,
    as_codes,
    as_floats,
    as_floats_of,
    as_format,
    check_bool,
    check_choice,
    check_int,
    check_name,
    check_real,
    check_threads,
    contiguous,
    kind_of,
    named,
    output,
)
from fp8lab._core import Format
from fp8lab._delayed import AmaxHistory, Delayed
from fp8lab._values import Record, State, equal, record, restorer, state


def _use_name_of_format(record: Any) -> None:
    """A format that has a name is that name, so that records of equal fields are equal."""
    named = [known.name for known in _core.formats() if isinstance(record.format, Format) and known == record.format]
    if named:
        object.__setattr__(record, "format", named[0])


@dataclasses.dataclass(frozen=True)
class GivenScale(Record):
    """One scale for the whole tensor, which comes from outside: delayed scaling, a calibration, or just a number.

    Codes are those of fl(x * scale), scale_inv is fl(1 / scale).
    """

    format: str | Format = "e4m3"
    scale: float = 1.0  #: positive and finite

    def __post_init__(self) -> None:
        _use_name_of_format(self)
        self._core()

    def _core(self) -> _core.Recipe:
        return _core.given_scale(as_format(self.format, "format"), check_real(self.scale, "scale"))

    def __str__(self) -> str:
        return self._core().description


@dataclasses.dataclass(frozen=True)
class JustInTime(Record):
    """Current scaling: the scale is made of the amax of the very tensor, or row.

    Codes are those of fl(x * scale), scale_inv is fl(1 / scale).

    Parameters
    ----------
    format : str or Format
    rule : str
        ``te``: fl(largest / max(amax, amax_epsilon)), at most the largest float32, 1 for an amax of 0 or infinity; NaN is not
        counted. ``torchao``: fl(largest / max(amax, 1e-12)); a NaN makes all NaN.
    axis : str
        ``tensor``, or ``row``: a scale for every row (columnwise: every column).
    amax_epsilon : float
        Of rule ``te``: what smaller amaxes count as.
    force_pow_2_scales : bool
        ``te``: the scale's mantissa is cleared. ``torchao``: 2^floor(log2(scale)) with log2 in float32, as PyTorch computes it
        on a CPU: a scale within 44 * 2^-24 below a power of two may become that power (never of a bfloat16 amax).
    """

    format: str | Format = "e4m3"
    rule: str = "te"
    axis: str = "tensor"
    amax_epsilon: float = 0.0
    force_pow_2_scales: bool = False

    def __post_init__(self) -> None:
        _use_name_of_format(self)
        self._core()

    def _core(self) -> _core.Recipe:
        return _core.just_in_time(
            as_format(self.format, "format"),
            check_name(self.rule, "rule"),
            check_name(self.axis, "axis"),
            check_real(self.amax_epsilon, "amax_epsilon"),
            check_bool(self.force_pow_2_scales, "force_pow_2_scales"),
        )

    def __str__(self) -> str:
        return self._core().description


@dataclasses.dataclass(frozen=True)
class MxBlock(Record):
    """MX: blocks of 32 elements along K with an E8M0 scale each. Codes are those of x times the exact inverse of it.

    Parameters
    ----------
    format : str or Format
        ``e4m3``, ``e5m2``, ``e2m3``, ``e3m2``, ``e2m1`` or one's own.
    rule : str
        How the block's amax becomes the scale. ``te``: fl(amax * fl(1 / largest)) rounded up to a power of two; ``floor``: the
        power of two at or below amax over that of the largest value, as OCP MX has it; ``ceil``: at or above; ``even``: that
        of amax rounded to the format's mantissa; ``rceil``: torchao's after 0.18, as te, but NaN where it is not finite.
    enable_2d_quantization : bool
        Blocks of 32 x 32, which both directions share.
    nan : str
        ``dropped``: a NaN does not count; ``counted``: it makes all of its block NaN.
    drop_negative_zero : bool
        -0 is quantized to +0, as by kernels whose multiply is an fma with +0.
    edges : str
        What the codes 00, FE and FF of E8M0 mean: ``specified``, ``te_before_2_19``, ``te_before_2_13`` or
        ``torchao_0_18``, where also an infinite amax makes a scale that is not NaN, the numbers beside a NaN are
        quantized to 0 (but by ``rceil``), and ``rceil`` is 2^ceil(log2(amax / largest)) with log2 in float32.
    """

    format: str | Format = "e4m3"
    rule: str = "te"
    enable_2d_quantization: bool = False
    nan: str = "dropped"
    drop_negative_zero: bool = False
    edges: str = "specified"

    def __post_init__(self) -> None:
        _use_name_of_format(self)
        self._core()

    def _core(self) -> _core.Recipe:
        return _core.mx_block(
            as_format(self.format, "format"),
            check_name(self.rule, "rule"),
            check_bool(self.enable_2d_quantization, "enable_2d_quantization"),
            check_name(self.nan, "nan"),
            check_bool(self.drop_negative_zero, "drop_negative_zero"),
            check_name(self.edges, "edges"),
        )

    def __str__(self) -> str:
        return self._core().description


@dataclasses.dataclass(frozen=True)
class Block(Record):
    """Tiles of 1 x 128 or 128 x 128 elements with a float32 scale each, as DeepSeek-V3 has them.

    Parameters
    ----------
    format : str or Format
    rule : str
        ``te`` (as JustInTime's), ``deepseek_2024``, ``deepseek_2025``, ``deepgemm_cpu``, ``deepgemm_cuda`` or ``torchao``; ``str()``
        of the record says what each does. A NaN makes all of its tile NaN by DeepGEMM's and torchao's rules, whose maximum is
        PyTorch's (DeepGEMM's powers of two have no NaN: 2^127).
    rows, columns : int
        Of a tile, across K and along it; rows is 1 or as columns.
    amax_epsilon : float
        Of rule ``te``: what smaller amaxes count as.
    force_pow_2_scales : bool
        The scale is rounded down (scale_inv up) to a power of two; of ``torchao`` as JustInTime's.
    """

    format: str | Format = "e4m3"
    rule: str = "te"
    rows: int = 1
    columns: int = 128
    amax_epsilon: float = 0.0
    force_pow_2_scales: bool = True

    def __post_init__(self) -> None:
        _use_name_of_format(self)
        self._core()

    def _core(self) -> _core.Recipe:
        return _core.block(
            as_format(self.format, "format"),
            check_name(self.rule, "rule"),
            check_int(self.rows, "rows", 1, 2**31),
            check_int(self.columns, "columns", 1, 2**31),
            check_real(self.amax_epsilon, "amax_epsilon"),
            check_bool(self.force_pow_2_scales, "force_pow_2_scales"),
        )

    def __str__(self) -> str:
        return self._core().description


@dataclasses.dataclass(frozen=True)
class NvFp4(Record):
    """NVFP4: E2M1 in blocks of 16 along K with an E4M3 scale each, and a float32 scale of the tensor, as Transformer Engine has it.

    Parameters
    ----------
    with_2d_quantization : bool
        Blocks of 16 x 16, which both directions share.
    stochastic_rounding : bool
        With the ``random_bits`` of ``quantize``.
    with_rht : bool
        Columnwise, every 16 elements along K are turned by a random Hadamard matrix first.
    round_rht : bool
        With ``with_rht``: what the matrix gives is rounded to bfloat16 before its amax is taken, as by all kernels since 2.8. False:
        not rounded, as by the fused kernels with NVTE_USE_FAST_MATH=1 (from 2.12).
    nan : str
        ``dropped``: a NaN does not count; ``counted``: it makes its block's scale NaN.
    """

    with_2d_quantization: bool = False
    stochastic_rounding: bool = False
    with_rht: bool = False
    round_rht: bool = True
    nan: str = "dropped"

    def __post_init__(self) -> None:
        self._core()

    def _core(self) -> _core.Recipe:
        return _core.nvfp4(
            check_bool(self.with_2d_quantization, "with_2d_quantization"),
            check_bool(self.stochastic_rounding, "stochastic_rounding"),
            check_bool(self.with_rht, "with_rht"),
            check_bool(self.round_rht, "round_rht"),
            check_name(self.nan, "nan"),
        )

    def __str__(self) -> str:
        return self._core().description


Recipe = Union[GivenScale, JustInTime, MxBlock, Block, NvFp4]
_KINDS: dict[str, Any] = {kind.__name__: record(kind) for kind in (GivenScale, JustInTime, MxBlock, Block, NvFp4)}


class NamedRecipe(NamedTuple):
    """A recipe with the name users call it by and the source that defines it."""

    name: str
    recipe: Recipe
    source: str

    def __str__(self) -> str:
        return f"{self.name}: {self.recipe} [{self.source}]"


def recipes() -> list[NamedRecipe]:
    """The recipes of real systems: which elements share a scale, and who makes it; ``str()`` of each explains it."""
    return [NamedRecipe(name, _KINDS[kind](**fields), source) for name, kind, fields, source in _core.recipes()]


_RECIPES = {one.name: one.recipe for one in recipes()}


def as_recipe(value: Any, argument: str = "recipe") -> Recipe:
    if isinstance(value, NamedRecipe):
        return value.recipe
    if isinstance(value, Delayed):
        raise TypeError(f"{argument} must not be a Delayed, which takes its scale of earlier steps: give an AmaxHistory of it")
    if isinstance(value, (GivenScale, JustInTime, MxBlock, Block, NvFp4)):
        return value
    name = named(argument, _core.find_recipe, check_name(value, argument, " or a recipe: " + ", ".join(_KINDS)))
    return _RECIPES[name]


def _record_text(recipe: Recipe) -> str:
    """A record with the fields that are not as by default, as one would write it."""
    fields = [(field.name, getattr(recipe, field.name), field.default) for field in dataclasses.fields(recipe)]
    shown = [f"{name}={getattr(value, 'name', value)!r}" for name, value, default in fields if value != default]
    return f"{type(recipe).__name__}({', '.join(shown)})"


def as_named_recipe(value: Any, argument: str = "recipe") -> tuple[str, Recipe]:
    """A recipe with the name that results give it: its own, or how one would write the record."""
    recipe = as_recipe(value, argument)
    if isinstance(value, NamedRecipe):
        return value.name, recipe
    return value if isinstance(value, str) else _record_text(recipe), recipe


class Quantized:
    """A tensor as codes and scales; made by ``quantize``. Arrays are views: what is changed there is changed here.

    Two are equal where recipe, direction, shape and every bit of codes, scales and amax are. Pickling and both ways of
    copying take the arrays along. Threads may read one at a time that none writes to its arrays.
    """

    def __init__(self, core: _core.Quantized, recipe: Recipe | Delayed, direction: str) -> None:
        self._core = core
        self.recipe = recipe
        self.direction = direction

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the tensor, whatever the layout of its codes."""
        return self._core.shape

    @property
    def format(self) -> str:
        """The format of the codes."""
        return self._core.format

    @property
    def transposed(self) -> bool:
        """Whether codes and scales are those of the transpose: columnwise ones are, but for those of MxBlock that take a byte."""
        return self._core.transposed

    @property
    def codes(self) -> Array:
        """uint8, in the shape of the tensor or of its transpose; of formats of 4 bits, half as many columns, packed two a byte."""
        return self._core.codes

    @property
    def scale_inv(self) -> Array | None:
        """float32: what multiplies on dequantize, one a block or (1, 1); None where scales have codes."""
        values = self._core.scale_inv
        return values if values.size else None

    @property
    def scale_codes(self) -> Array | None:
        """uint8: codes of the block scales, E8M0 of MxBlock and E4M3 of NvFp4; None where scales are float32."""
        codes = self._core.scale_codes
        return codes if codes.size else None

    @property
    def amax(self) -> float:
        """Of the tensor, where its scales depend on it, now or later (JustInTime, NvFp4, Delayed); else 0."""
        return self._core.amax

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the tensor that share a scale; the last tile of a row or column may have fewer."""
        return self._core.tile

    @property
    def scale_format(self) -> str:
        """The format of the stored scales: ``float32``, ``e8m0``, or ``ue4m3`` for NVFP4."""
        return self._core.scale_format

    @property
    def factor(self) -> float | None:
        """What the elements were multiplied with, where the whole tensor has one scale; otherwise None."""
        return self._core.factor

    def tile_scales_inv(self) -> Array:
        """What ``dequantize`` multiplies the codes of each tile with: float32, (tiles down, tiles across) of the tensor.

        The scale's value; for NVFP4 fl(fl(scale * amax) * fl(1 / 2688)), which has the tensor's scale in it. Tiles are
        those of the tensor, whatever the layout of the scales.
        """
        return self._core.tile_scales_inv()

    def scale_inv_at(self, row: int, column: int) -> float:
        """What ``dequantize`` multiplies the code of that element of the tensor with. ValueError where there is none."""
        last = (self.shape[0] - 1, self.shape[1] - 1)
        return self._core.scale_inv_at(check_int(row, "row", 0, last[0]), check_int(column, "column", 0, last[1]))

    def scales(self, layout: str = "compact") -> Array:
        """The scales in a layout.

        Parameters
        ----------
        layout : str
            ``compact``: scale_codes or scale_inv as they are. For scale codes also ``padded``: rows (across K) up to a
            multiple of 128, blocks up to one of 4, filled with zeros; and ``swizzled``: that in tiles of 128 x 4, one after
            the other, as Blackwell's tensor cores read them.

        Raises
        ------
        ValueError
            For unknown layouts, and for other layouts than compact where scales are float32.
        """
        layout = check_choice(layout, "layout", ("compact", "padded", "swizzled"))
        codes = self.scale_codes
        if codes is None:
            if layout != "compact":
                raise ValueError(f"layout {layout!r} is for scale codes, and {type(self.recipe).__name__} has float32 scales")
            return self._core.scale_inv
        if layout == "compact":
            return codes
        across = codes.T if self.direction == "columnwise" and not self.transposed else codes
        if layout == "swizzled":
            return swizzle_scales(across)
        padded = pad_scales(across)
        return padded if across is codes else padded.T

    __hash__ = None  # type: ignore[assignment]

    def _fields(self) -> dict[str, Any]:
        core = self._core
        return {
            "recipe": self.recipe,
            "direction": self.direction,
            "shape": core.shape,
            "transposed": core.transposed,
            "codes": core.codes,
            "scale_inv": core.scale_inv,
            "scale_codes": core.scale_codes,
            "amax": core.amax,
            "cast": (core.format, core.given_scale) if isinstance(self.recipe, Delayed) else None,
        }

    def __eq__(self, other: object) -> bool:
        return equal(self._fields(), other._fields()) if isinstance(other, Quantized) else NotImplemented

    def __reduce__(self) -> State:
        return state("Quantized", **self._fields())

    def __repr__(self) -> str:
        return f"<fp8lab.Quantized {self.shape[0]} x {self.shape[1]} {self.direction}: {self.recipe}>"


def _as_matrix(x: Any, argument: str, dtype: str) -> Array:
    array = as_floats_of(x, argument, dtype)
    if array.ndim != 2:
        raise ValueError(f"{argument} must have two dimensions, not {array.ndim}")
    return array


@restorer("Quantized", "recipe", "direction", "shape", "transposed", "codes", "scale_inv", "scale_codes", "amax", "cast")
def _quantized(
    *,
    recipe: Recipe | Delayed,
    direction: str,
    shape: tuple[int, int],
    transposed: bool,
    codes: Array,
    scale_inv: Array,
    scale_codes: Array,
    amax: float,
    cast: tuple[str, float] | None,
) -> Quantized:
    if isinstance(recipe, Delayed):  # its cast has a format and a scale of the run
        if not isinstance(cast, tuple) or len(cast) != 2:
            raise TypeError("the cast of delayed scaling must be a format's name and a scale")
        core = _core.any_scale(as_format(cast[0], "format"), check_real(cast[1], "scale"))
    else:
        recipe = as_recipe(recipe)
        core = recipe._core()
    rows, columns = _as_shape(shape)
    values = _core.Quantized(
        core,
        check_name(direction, "direction"),
        rows,
        columns,
        check_bool(transposed, "transposed"),
        _as_matrix(codes, "codes", "uint8"),
        _as_matrix(scale_inv, "scale_inv", "float32"),
        _as_matrix(scale_codes, "scale_codes", "uint8"),
        check_real(amax, "amax"),
    )
    return Quantized(values, recipe, direction)


def swizzle_scales(scales: Any) -> Array:
    """Block scales in the layout that Blackwell's tensor cores read: padded with zeros, in tiles of 128 x 4.

    Parameters
    ----------
    scales : array_like of uint8 (or float8), (rows, blocks)
        A row for each row across K.

    Returns
    -------
    ndarray of uint8, one-dimensional
        The scale of (r, c) is at ((r // 128) * tiles + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4, with
        tiles = blocks / 4, rounded up.
    """
    codes = _byte_array(scales, "scales")
    if codes.ndim != 2:
        raise ValueError(f"scales must have two dimensions, not {codes.ndim}")
    return _core.swizzle_scales(codes, *codes.shape)


def unswizzle_scales(swizzled: Any, shape: tuple[int, int]) -> Array:
    """The inverse of ``swizzle_scales``: scales of ``shape``, (rows, blocks). ValueError where the sizes do not fit."""
    rows, columns = _as_shape(shape)
    codes = named("swizzled or shape", _core.unswizzle_scales, _byte_array(swizzled, "swizzled"), rows, columns)
    return codes.reshape(rows, columns)


def pad_scales(scales: Any) -> Array:
    """Block scales as Transformer Engine allocates them: rows up to a multiple of 128, blocks up to one of 4, zeros there.

    Parameters
    ----------
    scales : array_like of uint8 (or float8), (rows, blocks)
    """
    codes = _byte_array(scales, "scales")
    if codes.ndim != 2:
        raise ValueError(f"scales must have two dimensions, not {codes.ndim}")
    return _core.pad_scales(codes, *codes.shape).reshape(-(-codes.shape[0] // 128) * 128, -(-codes.shape[1] // 4) * 4)


def unpad_scales(padded: Any, shape: tuple[int, int]) -> Array:
    """The inverse of ``pad_scales``: scales of ``shape``, (rows, blocks). ValueError where the sizes do not fit."""
    rows, columns = _as_shape(shape)
    codes = named("padded or shape", _core.unpad_scales, _byte_array(padded, "padded"), rows, columns)
    return codes.reshape(rows, columns)


def _as_shape(shape: Any) -> tuple[int, int]:
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise TypeError("shape must be a tuple of two ints")
    return check_int(shape[0], "shape", 0, 2**40), check_int(shape[1], "shape", 0, 2**40)


def _byte_array(x: Any, argument: str) -> Array:
    return as_bytes(x, argument)[0]


def _random_bits(x: Any) -> Array | None:
    if x is None:
        return None
    words, name = as_array(x, "random_bits")
    if name != "uint8":
        raise TypeError(f"random_bits must be uint8, not {name}")
    return contiguous(words).reshape(-1)


def _quantize(x: Any, recipe: Any, direction: str, **options: Any) -> tuple[Quantized, ...]:
    values, source = as_floats(x, "x")
    if source == "float64":
        raise TypeError("x must be float32, float16 or bfloat16, not float64: no kernel reads that")
    if values.ndim != 2:
        raise ValueError(f"x must have two dimensions, not {values.ndim}")
    input_type = options["input_type"]
    if input_type is not None:
        input_type = check_choice(input_type, "input_type", ("float16", "bfloat16"))
    rounds_to = None if input_type is None else _core.find_format(input_type)
    before = check_bool(options["amax_before_rounding"], "amax_before_rounding")
    bits = _random_bits(options["random_bits"])
    threads = check_threads(options["threads"])
    own: Recipe | Delayed
    if isinstance(recipe, AmaxHistory):
        if before or bits is not None:
            raise ValueError("amax_before_rounding and random_bits are not for delayed scaling")
        with recipe._lock:  # from reading the scale to recording the amax
            own = recipe.recipe
            parts = _core.quantize_delayed(values, source, recipe._history, direction, rounds_to, threads)
    else:
        own = as_recipe(recipe)
        parts = _core.quantize(values, source, own._core(), direction, rounds_to, before, bits, 8, threads)
    directions = ("rowwise", "columnwise") if direction == "both" else (direction,)
    return tuple(Quantized(part, own, name) for part, name in zip(parts, directions))


def quantize(
    x: Any,
    recipe: str | NamedRecipe | Recipe | AmaxHistory,
    *,
    direction: str = "rowwise",
    input_type: str | None = None,
    amax_before_rounding: bool = False,
    random_bits: Any = None,
    threads: int = 1,
) -> Quantized:
    """A matrix as codes and scales, bit for bit as the recipe's system computes them.

    Parameters
    ----------
    x : array_like of float32, float16 or bfloat16, (rows, columns)
    recipe : str, a recipe, or the state of one
        The name of one of ``recipes()``, or a record: GivenScale, JustInTime, MxBlock, Block, NvFp4. Delayed scaling by an
        AmaxHistory: its scale, which may be infinite, 0 or NaN by some versions, casts, and it records the amax;
        ``update_scale()`` of it ends the step. Threads that share one cast one after the other.
    direction : str
        ``rowwise``: a row's elements lie along K, which a GEMM sums over, and share scales; ``columnwise``: a column's do.
    input_type : str, optional
        ``float16`` or ``bfloat16``: what the values are rounded to before they are quantized.
    amax_before_rounding : bool
        The amax is that of the values before that rounding, as in Transformer Engine's current scaling of activations.
    random_bits : array_like of uint8, optional
        For stochastic rounding: one for each code, in the order of the codes.
    threads : int
        The result does not depend on it.

    Returns
    -------
    Quantized

    Raises
    ------
    TypeError, ValueError
        For other element types, empty arrays, sizes that break a rule of the recipe's blocks (the message names the
        nearest that do not), unknown names, random bits that are missing or not wanted.
    """
    direction = check_choice(direction, "direction", ("rowwise", "columnwise"))
    return _quantize(
        x, recipe, direction, input_type=input_type, amax_before_rounding=amax_before_rounding,
        random_bits=random_bits, threads=threads,
    )[0]  # fmt: skip


def quantize_both(
    x: Any,
    recipe: str | NamedRecipe | Recipe | AmaxHistory,
    *,
    input_type: str | None = None,
    amax_before_rounding: bool = False,
    random_bits: Any = None,
    threads: int = 1,
) -> tuple[Quantized, Quantized]:
    """Rowwise and columnwise, both from the original values; see ``quantize``. The random bits serve both."""
    rowwise, columnwise = _quantize(
        x, recipe, "both", input_type=input_type, amax_before_rounding=amax_before_rounding,
        random_bits=random_bits, threads=threads,
    )  # fmt: skip
    return rowwise, columnwise


def dequantize(q: Quantized, *, threads: int = 1, out: Array | None = None) -> Array:
    """The values that codes and scales stand for: fl(code * scale_inv), of NvFp4 fl(code * fl(fl(scale * amax) * fl(1 / 2688))).

    Parameters
    ----------
    q : Quantized
        Where a Hadamard matrix turned the tensor, it stays turned.
    threads : int
    out : ndarray of float32, optional
        Takes the result. Where it overlaps an array of q, that is read first.

    Returns
    -------
    ndarray of float32, (rows, columns), whatever the direction
    """
    if not isinstance(q, Quantized):
        raise TypeError(f"q must be a Quantized, not {kind_of(q)}")
    values = output(out, q.shape, np.float32)
    arrays = (q._core.codes, q._core.scale_inv, q._core.scale_codes)
    core = _core.Quantized(q._core) if any(np.may_share_memory(array, values) for array in arrays) else q._core
    _core.dequantize(core, values, check_threads(threads))
    return values
