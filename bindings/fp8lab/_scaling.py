# SPDX-License-Identifier: Apache-2.0
"""Quantizing and dequantizing tensors by a recipe, and the layouts of their scales."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_array,
    as_bytes,
    as_doubles,
    as_float32,
    as_floats,
    as_floats_of,
    as_format,
    as_kernel_floats,
    check_bool,
    check_choice,
    check_int,
    check_name,
    check_real,
    check_threads,
    contiguous,
    copied,
    kind_of,
    named,
    output,
)
from fp8lab._delayed import AmaxHistory, Delayed
from fp8lab._device_arrays import on_host
from fp8lab._entry import guard as _guard
from fp8lab._html import facts_html
from fp8lab._recipes import NamedRecipe, Recipe, as_recipe, of_core
from fp8lab._values import State, equal, restorer, state
from fp8lab.literals import DirectionName, HalfTypeName, RecipeName, ScaleLayoutName

__all__ = [
    "Quantized",
    "dequantize",
    "hadamard_columns",
    "pad_scales",
    "quantize",
    "quantize_both",
    "swizzle_scales",
    "unpad_scales",
    "unswizzle_scales",
]


class Quantized:
    """A tensor as codes and scales; made by ``quantize``. Arrays are views: what is changed there is changed here.

    Two are equal where recipe, direction, shape and every bit of codes, scales and amax are. Pickling and both ways of
    copying take the arrays along. Threads may read one at a time that none writes to its arrays.
    """

    def __init__(
        self,
        core: _core.Quantized,
        recipe: Recipe | Delayed,
        direction: DirectionName,
        tensor_shape: tuple[int, ...] | None = None,
    ) -> None:
        self._core = core
        self.recipe = recipe
        self.direction = direction
        self._tensor_shape = core.shape if tensor_shape is None else tensor_shape

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """The codes by DLPack 1.1, as elements of their format: ``torch.from_dlpack(q)`` is a float8 tensor over the
        same memory, of E2M1 one of two codes in each byte."""
        if stream is not None or dl_device not in (None, (1, 0)):
            raise BufferError("a Quantized lies on the host, without streams")
        codes = self.codes.copy() if copy else self.codes
        return _core.dlpack_capsule(codes, self.format, max_version is not None and max_version[0] >= 1, bool(copy))

    @staticmethod
    def from_arrays(
        codes: Any,
        scales: Any,
        recipe: RecipeName | NamedRecipe | Recipe,
        *,
        direction: DirectionName = "rowwise",
        transposed: bool | None = None,
        scale_layout: ScaleLayoutName = "compact",
        amax: float | None = None,
        tensor_scale: float | None = None,
        tensor_scale_inv: float | None = None,
        row_amaxes: Any = None,
        allow_special_scales: bool = False,
    ) -> Quantized:
        """What a kernel wrote, to dequantize, multiply and compare it. The arrays are copied.

        Parameters
        ----------
        codes : array_like of uint8 or of a float8 type, (..., columns), or (columns, rows) where they are transposed
            Leading dimensions are rows, as for ``quantize``. Of formats of 4 bits, two a byte, half as many columns.
        scales : array_like
            What multiplies on dequantize: a number, or one for every tile, float32, float16 or bfloat16; or uint8 or
            float8 codes where the recipe stores E8M0 or E4M3. Rows of scales lie along rows of codes; compact ones may
            have the leading dimensions of the codes.
        recipe : str, NamedRecipe or Recipe
            Says which elements share a scale, and the formats. How scales are made of amaxes is not checked.
        direction : str
            ``rowwise`` or ``columnwise``: the dimension along which elements share scales.
        transposed : bool, optional
            Columnwise codes and scales are those of the transpose; if left out, as the recipe has them.
        scale_layout : str
            ``compact``, ``padded`` or ``swizzled``, as ``scales()`` has them.
        amax : float, optional
            For recipes with a scale of the tensor over those of its tiles (NVFP4): the amax of which the recipe makes
            it.
        tensor_scale, tensor_scale_inv : float, optional
            Or that scale itself, whatever it was made of, as it multiplies on quantize, on dequantize, or both, as
            ``quantize`` takes it.
        row_amaxes : array_like, optional
            For recipes where each row (columnwise: column) has such a scale of its own: their amaxes, float32.
        allow_special_scales : bool
            Scales and amaxes may be NaN or infinite, as some recipes make them of tiles that have such elements.

        Raises
        ------
        TypeError, ValueError
            For arrays that do not fit the recipe and each other; the message names the array, and what it must be.
        """
        own = as_recipe(recipe)
        elements, carried = as_bytes(on_host(codes), "codes")
        wanted_format = as_format(own.format, "format")
        if carried is not None and carried != wanted_format:
            raise ValueError(
                f"codes are {carried.name} by their element type, and the recipe's are {wanted_format.name}"
            )
        if elements.ndim == 0:
            raise ValueError("codes must have one dimension or more, not 0")
        stored = elements.shape
        elements = elements.reshape(-1, stored[-1])
        direction = check_choice(direction, "direction", ("rowwise", "columnwise"))
        layout = check_choice(scale_layout, "scale_layout", ("compact", "padded", "swizzled"))
        values, shape = _stored_scales(scales, own.scale_format)
        is_float = own.scale_format == "float32"
        core = _core.quantized_from(
            elements,
            values if is_float else _NO_SCALES,
            _NO_CODES if is_float else values,
            own._core(),
            direction,
            None if transposed is None else check_bool(transposed, "transposed"),
            layout,
            _optional_real(amax, "amax"),
            _optional_real(tensor_scale, "tensor_scale"),
            _optional_real(tensor_scale_inv, "tensor_scale_inv"),
            _row_amaxes(row_amaxes),
            check_bool(allow_special_scales, "allow_special_scales"),
        )
        wanted = (core.scale_inv if is_float else core.scale_codes).shape
        if layout == "compact" and len(shape) >= 2 and (math.prod(shape[:-1]), shape[-1]) != wanted:
            raise ValueError(f"scales must have shape {wanted}, one for every tile, not {shape}")
        if core.transposed and len(stored) != 2:
            raise ValueError(f"codes that are transposed must have two dimensions, (columns, rows), not {len(stored)}")
        if transposed is not None and direction == "columnwise" and wanted_format.bits != 4:
            own = dataclasses.replace(own, transposed_columnwise=core.transposed)
        return Quantized(core, own, direction, None if core.transposed else (*stored[:-1], core.shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the tensor, whatever the layout of its codes."""
        return self._core.shape

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """The shape that the tensor came in, whose leading dimensions are the rows of ``shape``; ``dequantize`` gives
        it back."""
        return self._tensor_shape

    @property
    def format(self) -> str:
        """The format of the codes."""
        return self._core.format

    @property
    def transposed(self) -> bool:
        """Whether codes and scales are those of the transpose: columnwise ones are, but for MX codes that take a
        byte."""
        return self._core.transposed

    @property
    def codes(self) -> Array:
        """uint8, in the shape of the tensor or of its transpose; of formats of 4 bits, half as many columns, packed two
        a byte."""
        return self._core.codes

    @property
    def scale_inv(self) -> Array | None:
        """float32: what multiplies on dequantize, one a block or (1, 1); None where scales have codes."""
        values = self._core.scale_inv
        return values if values.size else None

    @property
    def scale_codes(self) -> Array | None:
        """uint8: codes of the block scales, E8M0 or E4M3; None where scales are float32."""
        codes = self._core.scale_codes
        return codes if codes.size else None

    @property
    def amax(self) -> float:
        """Of the tensor, where its scales depend on it, now or later (one scale for all, a tensor_scale, Delayed); else
        0."""
        return self._core.amax

    @property
    def row_amaxes(self) -> Array | None:
        """float32: the amax of each row (columnwise: column), where each has a tensor's scale of its own; otherwise
        None."""
        values = self._core.row_amaxes
        return values.reshape(-1) if values.size else None

    @property
    def tensor_scale(self) -> float | None:
        """The scale of the tensor over those of tiles, where the caller gave it; otherwise None."""
        return self._core.tensor_scale or None

    @property
    def tensor_scale_inv(self) -> float | None:
        """Its inverse, where the caller gave that; otherwise None."""
        return self._core.tensor_scale_inv or None

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
        """What ``dequantize`` multiplies the codes of each tile with: float32, (tiles down, tiles across) of the
        tensor.

        The scale's value; for NVFP4 fl(fl(scale * amax) * fl(1 / 2688)), which has the tensor's scale in it. Tiles are
        those of the tensor, whatever the layout of the scales.
        """
        return self._core.tile_scales_inv()

    def scale_inv_at(self, row: int, column: int) -> float:
        """What ``dequantize`` multiplies the code of that element of the tensor with. ValueError where there is
        none."""
        last = (self.shape[0] - 1, self.shape[1] - 1)
        return self._core.scale_inv_at(check_int(row, "row", 0, last[0]), check_int(column, "column", 0, last[1]))

    def scales(self, layout: ScaleLayoutName = "compact") -> Array:
        """The scales in a layout.

        Parameters
        ----------
        layout : str
            ``compact``: scale_codes or scale_inv as they are. For scale codes also ``padded``: rows (across K) up to a
            multiple of 128, blocks up to one of 4, filled with zeros; and ``swizzled``: that in tiles of 128 x 4, one
            after the other, as Blackwell's tensor cores read them.

        Raises
        ------
        ValueError
            For unknown layouts, and for other layouts than compact where scales are float32.
        """
        layout = check_choice(layout, "layout", ("compact", "padded", "swizzled"))
        codes = self.scale_codes
        if codes is None:
            if layout != "compact":
                raise ValueError(f"layout {layout!r} is for scale codes, and {self.recipe} has float32 scales")
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
            "row_amaxes": core.row_amaxes,
            "tensor_scale": core.tensor_scale,
            "tensor_scale_inv": core.tensor_scale_inv,
            "tensor_shape": self._tensor_shape,
            "cast": (core.format, core.given_scale) if isinstance(self.recipe, Delayed) else None,
        }

    def __eq__(self, other: object) -> bool:
        return equal(self._fields(), other._fields()) if isinstance(other, Quantized) else NotImplemented

    def __reduce__(self) -> State:
        return state("Quantized", **self._fields())

    def _repr_html_(self) -> str:
        facts = {"shape": f"{self.shape[0]} x {self.shape[1]}", "format": self.format, "direction": self.direction}
        return facts_html("Quantized", facts, [str(self.recipe)])

    def __repr__(self) -> str:
        return f"<fp8lab.Quantized {self.shape[0]} x {self.shape[1]} {self.direction}: {self.recipe}>"


_NO_SCALES, _NO_CODES = np.empty(0, np.float32), np.empty(0, np.uint8)


def _row_amaxes(values: Any) -> Array:
    if values is None:
        return _NO_SCALES
    array = as_float32(on_host(values), "row_amaxes")
    if array.ndim not in (1, 2):
        raise ValueError(f"row_amaxes must have one dimension, not {array.ndim}")
    return array.reshape(-1)


def _optional_real(value: Any, argument: str) -> float | None:
    return None if value is None else check_real(value, argument)


def _stored_scales(scales: Any, stored: str) -> tuple[Array, tuple[int, ...]]:
    """The scales that a kernel wrote, as float32 or bytes, and their shape."""
    if stored == "float32":
        if isinstance(scales, (int, float)) and not isinstance(scales, bool):
            scales = np.float32(scales)
        values, name = as_array(on_host(scales), "scales")
        if name == "bfloat16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        elif name not in ("float32", "float16"):
            raise TypeError(f"scales must be float32, float16 or bfloat16, as the recipe's are numbers, not {name}")
        return contiguous(values.astype(np.float32, copy=False)), values.shape
    codes, carried = as_bytes(on_host(scales), "scales")
    if carried is not None and carried.name != ("e4m3" if stored == "ue4m3" else stored):
        raise TypeError(f"scales must be {stored} codes, as the recipe's are, not {carried.name}")
    return codes, codes.shape


def _as_matrix(x: Any, argument: str, dtype: str) -> Array:
    array = as_floats_of(x, argument, dtype)
    if array.ndim != 2:
        raise ValueError(f"{argument} must have two dimensions, not {array.ndim}")
    return array


@restorer(
    "Quantized", "recipe", "direction", "shape", "transposed", "codes", "scale_inv", "scale_codes", "amax",
    "row_amaxes", "tensor_scale", "tensor_scale_inv", "tensor_shape", "cast",
)  # fmt: skip
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
    row_amaxes: Array,
    tensor_scale: float,
    tensor_scale_inv: float,
    tensor_shape: tuple[int, ...],
    cast: tuple[str, float] | None,
) -> Quantized:
    if isinstance(recipe, Delayed):  # the format and the scale of its casts come from the run
        if not isinstance(cast, tuple) or len(cast) != 2:
            raise TypeError("the cast of delayed scaling must be a format's name and a scale")
        core = _core.cast_recipe(recipe._recipe(), as_format(cast[0], "format"), check_real(cast[1], "scale"))
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
        _as_matrix(row_amaxes, "row_amaxes", "float32"),
        check_real(tensor_scale, "tensor_scale"),
        check_real(tensor_scale_inv, "tensor_scale_inv"),
    )
    if not isinstance(tensor_shape, tuple) or not tensor_shape:
        raise TypeError("tensor_shape must be a tuple of ints")
    sizes = tuple(check_int(size, "tensor_shape", 1, 2**40) for size in tensor_shape)
    if math.prod(sizes) != rows * columns or sizes[-1] != columns:
        raise ValueError(f"tensor_shape must be one of {rows} x {columns} elements, not {tensor_shape}")
    return Quantized(values, recipe, check_choice(direction, "direction", ("rowwise", "columnwise")), tensor_shape)


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
    """Block scales as Transformer Engine allocates them: rows up to a multiple of 128, blocks up to one of 4, zeros
    there.

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


def _random_words(x: Any) -> tuple[Array | None, int]:
    """Words of 8, 16 or 32 random bits, and how many these are."""
    if x is None:
        return None, 0
    words, name = as_array(x, "random_bits")
    if name not in ("uint8", "uint16", "uint32"):
        raise TypeError(f"random_bits must be uint8, uint16 or uint32, not {name}")
    return contiguous(words).reshape(-1), 8 * words.itemsize


def _given_array(x: Any, argument: str) -> Array | None:
    if x is None:
        return None
    if isinstance(x, (int, float, list, tuple)) and not isinstance(x, bool):
        with np.errstate(over="ignore", under="ignore"):
            x = copied(as_doubles(x, argument), np.float32)
    values = as_floats_of(x, argument, "float32")
    if values.size == 0:
        raise ValueError(f"{argument} must not be empty")
    return contiguous(values).reshape(-1)


def _given_number(x: Any, argument: str) -> float:
    if x is None:
        return 0.0
    value = check_real(x, argument)
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(value)
    if not single > 0 or np.isinf(single):
        raise ValueError(f"{argument} must be positive and finite in float32, not {value}")
    return float(single)


def _given(options: dict[str, Any]) -> _core.GivenScales:
    amax = options["tensor_amax"]
    return _core.GivenScales(
        _given_array(options["amax"], "amax"),
        _given_array(options["scale"], "scale"),
        _given_array(options["scale_inv"], "scale_inv"),
        None if amax is None else check_real(amax, "tensor_amax"),
        _given_number(options["tensor_scale"], "tensor_scale"),
        _given_number(options["tensor_scale_inv"], "tensor_scale_inv"),
        _given_array(options["row_amaxes"], "row_amaxes"),
    )


def _shape_of(part: _core.Quantized, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The tensor's shape, with what the recipe filled up."""
    rows, columns = part.shape
    filled_up = (*shape[:-1], columns)
    return filled_up if math.prod(filled_up) == rows * columns else (rows, columns)


def _quantize(x: Any, recipe: Any, direction: str, **options: Any) -> tuple[Quantized, ...]:
    values, source = as_kernel_floats(x, "x")
    if values.ndim == 0:
        raise ValueError("x must have a dimension or more, not 0")
    shape = values.shape
    if values.ndim != 2:
        values = contiguous(values).reshape(-1 if values.size else 0, shape[-1])
    input_type = options["input_type"]
    if input_type is not None:
        input_type = check_choice(input_type, "input_type", ("float16", "bfloat16"))
    rounds_to = None if input_type is None else _core.find_format(input_type)
    before = check_bool(options["amax_before_rounding"], "amax_before_rounding")
    bits, count = _random_words(options["random_bits"])
    given = _given(options)
    threads = check_threads(options["threads"], values.size)
    own: Recipe | Delayed
    if isinstance(recipe, AmaxHistory):
        if before or bits is not None:
            raise ValueError("amax_before_rounding and random_bits are not for delayed scaling")
        if any(options[name] is not None for name in _GIVEN):
            raise ValueError("given amaxes and scales are not for delayed scaling, whose history gives them")
        with recipe._lock:  # no other thread comes between reading the scale and recording the amax
            own = recipe.recipe
            parts = _core.quantize_delayed(values, source, recipe._history, direction, rounds_to, threads)
    else:
        own = as_recipe(recipe)
        parts = _core.quantize(values, source, own._core(), direction, rounds_to, before, given, bits, count, threads)
        if options["scale"] is not None or options["scale_inv"] is not None:
            own = of_core(parts[0].recipe, own)
    directions: tuple[Any, ...] = ("rowwise", "columnwise") if direction == "both" else (direction,)
    return tuple(Quantized(part, own, name, _shape_of(part, shape)) for part, name in zip(parts, directions))


_GIVEN = ("amax", "scale", "scale_inv", "tensor_amax", "tensor_scale", "tensor_scale_inv", "row_amaxes")


def quantize(
    x: Any,
    recipe: RecipeName | NamedRecipe | Recipe | AmaxHistory,
    *,
    direction: DirectionName = "rowwise",
    input_type: HalfTypeName | None = None,
    amax_before_rounding: bool = False,
    amax: Any = None,
    scale: Any = None,
    scale_inv: Any = None,
    tensor_amax: float | None = None,
    tensor_scale: float | None = None,
    tensor_scale_inv: float | None = None,
    row_amaxes: Any = None,
    random_bits: Any = None,
    threads: int | None = None,
) -> Quantized:
    """A tensor as codes and scales, bit for bit as the recipe's system computes them.

    Parameters
    ----------
    x : array_like of float32, float16 or bfloat16, (..., columns)
        The leading dimensions are rows. ``tensor_shape`` of the result remembers the shape.
    recipe : str, a recipe, or the state of one
        The name of one of ``recipes()``, or a Recipe, as GivenScale, JustInTime, MxBlock, Block and NvFp4 make. Delayed
        scaling by an AmaxHistory: its scale, which may be infinite, 0 or NaN by some versions, casts, and it records
        the amax; ``update_scale()`` of it ends the step. Threads that share one cast one after the other.
    direction : str
        ``rowwise``: a row's elements lie along K, which a GEMM sums over, and share scales; ``columnwise``: a column's
        do.
    input_type : str, optional
        ``float16`` or ``bfloat16``: what the values are rounded to before they are quantized.
    amax_before_rounding : bool
        The amax is that of the values before that rounding, as in Transformer Engine's current scaling of activations.
    amax : array_like of float32, optional
        What the recipe makes the scales of, in place of the tensor's own amaxes: one for each tile of the tensor,
        (tiles down, tiles across), or one for all. Of a calibration, or of an all-reduce.
    scale, scale_inv : array_like of float32, optional
        The scales, or their inverses, which are used as they are: in the same way, for recipes whose scales are
        float32.
        The result's recipe has the quotient ``given_scale`` or ``given_scale_inv``.
    tensor_amax : float, optional
        For NVFP4: what the tensor's scale is made of.
    tensor_scale, tensor_scale_inv : float, optional
        For NVFP4: the tensor's scale, which multiplies on quantize, or its inverse. 1.0: none.
    row_amaxes : array_like of float32, optional
        For recipes where each row (columnwise: column) has such a scale of its own, in place of the rows' amaxes.
    random_bits : array_like of uint8, uint16 or uint32, optional
        For stochastic rounding (a cast with rounding ``stochastic``): a word for each code, in the order of the codes.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.

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
        x, recipe, direction, input_type=input_type, amax_before_rounding=amax_before_rounding, amax=amax, scale=scale,
        scale_inv=scale_inv, tensor_amax=tensor_amax, tensor_scale=tensor_scale, tensor_scale_inv=tensor_scale_inv,
        row_amaxes=row_amaxes, random_bits=random_bits, threads=threads,
    )[0]  # fmt: skip


def quantize_both(
    x: Any,
    recipe: RecipeName | NamedRecipe | Recipe | AmaxHistory,
    *,
    input_type: HalfTypeName | None = None,
    amax_before_rounding: bool = False,
    amax: Any = None,
    scale: Any = None,
    scale_inv: Any = None,
    tensor_amax: float | None = None,
    tensor_scale: float | None = None,
    tensor_scale_inv: float | None = None,
    row_amaxes: Any = None,
    random_bits: Any = None,
    threads: int | None = None,
) -> tuple[Quantized, Quantized]:
    """Rowwise and columnwise, both from the original values; see ``quantize``. The random bits serve both."""
    rowwise, columnwise = _quantize(
        x, recipe, "both", input_type=input_type, amax_before_rounding=amax_before_rounding, amax=amax, scale=scale,
        scale_inv=scale_inv, tensor_amax=tensor_amax, tensor_scale=tensor_scale, tensor_scale_inv=tensor_scale_inv,
        row_amaxes=row_amaxes, random_bits=random_bits, threads=threads,
    )  # fmt: skip
    return rowwise, columnwise


def dequantize(q: Quantized, *, threads: int | None = None, out: Array | None = None) -> Array:
    """The values that codes and scales stand for: fl(code * scale_inv), of NVFP4 fl(code * fl(fl(scale * amax) * fl(1 /
    2688))).

    Parameters
    ----------
    q : Quantized
        Where a Hadamard matrix turned the tensor, it stays turned.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of float32, optional
        Takes the result. Where it overlaps an array of q, that is read first.

    Returns
    -------
    ndarray of float32, in the tensor's shape, whatever the direction
    """
    if not isinstance(q, Quantized):
        raise TypeError(f"q must be a Quantized, not {kind_of(q)}")
    values = output(out, q.tensor_shape, np.float32)
    arrays = (q._core.codes, q._core.scale_inv, q._core.scale_codes)
    core = _core.Quantized(q._core) if any(np.may_share_memory(array, values) for array in arrays) else q._core
    _core.dequantize(core, values, check_threads(threads, values.size))
    return values


def hadamard_columns(x: Any, *, rounds: bool = True, threads: int | None = None, out: Array | None = None) -> Array:
    """Every 16 elements of a column times the 16 x 16 Hadamard matrix whose rows have the random signs of Transformer
    Engine, over 4.

    It is what NVFP4 with ``with_rht`` does to a tensor that it quantizes columnwise. The product of two tensors turned
    so is that of the tensors, but for roundings.

    Parameters
    ----------
    x : array_like of float32, float64, float16 or bfloat16, (rows, columns)
        rows is a multiple of 16.
    rounds : bool
        Round to bfloat16.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of float32, optional
        Takes the result.

    Returns
    -------
    ndarray of float32, (rows, columns)
    """
    values, source = as_floats(x, "x")
    if values.ndim != 2:
        raise ValueError(f"x must have two dimensions, not {values.ndim}")
    turned = output(out, values.shape, np.float32)
    _core.hadamard_columns(values, source, check_bool(rounds, "rounds"), turned, check_threads(threads, values.size))
    return turned


_guard(__name__, __all__)
