# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels on arrays, wherever they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    as_format,
    as_profile,
    check_choice,
    check_int,
    check_real,
    check_threads,
    check_unread,
    kind_of,
)
from fp8lab._core import Format
from fp8lab._delayed import Delayed
from fp8lab._device_arrays import Buffer, input_buffer, output_buffer, overlaps, stream_of, to_numpy
from fp8lab._recipes import GivenScale, Recipe, as_recipe
from fp8lab._scaling import Quantized, _quantized, unswizzle_scales
from fp8lab.literals import FormatName

_Place = tuple[str, int, int, int]
_ArrayPlaces = tuple[_Place, _Place | None, _Place | None, _Place | None]
_Team = tuple[bool, int, str, int, int]
_FLOATS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, eq=False)
class QuantizedArrays:
    """A quantized matrix as arrays of the library that its input came from, on the device where that lies."""

    recipe: Recipe
    direction: str
    shape: tuple[int, int]
    """Rows and columns of the tensor, whatever the layout of its codes."""
    codes: Any
    """uint8, as ``Quantized.codes`` has them."""
    scale_inv: Any = None
    """float32, what multiplies on dequantize; None where scales have codes."""
    scale_codes: Any = None
    """uint8, E8M0 or E4M3 scales in ``layout``; None where scales are float32."""
    amax: Any = None
    """float32, (1,): the amax of the tensor, where the recipe's scales depend on it or it was asked for."""
    layout: str = "compact"
    """Of scale_codes: ``compact``, (rows, blocks) or its transpose, or ``swizzled``, one-dimensional."""

    def to_host(self) -> Quantized:
        """A copy in the host's memory. It waits for the stream of the arrays."""
        rows, columns = self.shape
        counts = _core.gpu_sizes(self.recipe._core(), self.direction, rows, columns, "compact")
        codes = to_numpy(self.codes)
        scale_inv, scale_codes = (None if one is None else to_numpy(one) for one in (self.scale_inv, self.scale_codes))
        shape = _scale_shape(self.recipe, self.direction, self.shape, max(counts[1:]))
        if scale_codes is not None and self.layout == "swizzled":
            is_across = self.direction == "rowwise" or _is_transposed(self.recipe, self.direction)
            scale_codes = unswizzle_scales(scale_codes, shape if is_across else shape[::-1])
            scale_codes = np.ascontiguousarray(scale_codes if is_across else scale_codes.T)
        depends = _depends_on_amax(self.recipe)
        return _quantized(
            recipe=self.recipe, direction=self.direction, shape=self.shape,
            transposed=_is_transposed(self.recipe, self.direction), codes=codes,
            scale_inv=np.zeros((0, 0), np.float32) if scale_inv is None else scale_inv,
            scale_codes=np.zeros((0, 0), np.uint8) if scale_codes is None else scale_codes,
            amax=float(to_numpy(self.amax)[0]) if depends else 0.0, row_amaxes=np.zeros((0, 0), np.float32),
            tensor_scale=0.0, tensor_scale_inv=0.0, tensor_shape=self.shape, cast=None,
        )  # fmt: skip


def _is_transposed(recipe: Recipe, direction: str) -> bool:
    return direction == "columnwise" and (recipe.transposed_columnwise or as_format(recipe.format, "format").bits == 4)


def _depends_on_amax(recipe: Recipe) -> bool:
    return recipe.tensor_scale != "none" or (recipe.tile_across == 0 and not recipe.quotient.startswith("given"))


def _scale_shape(recipe: Recipe, direction: Any, shape: tuple[int, int], count: int) -> tuple[int, int]:
    """Rows and columns of the ``count`` compact scales."""
    if recipe.tile_across == 0 and count == 1:
        return 1, 1
    high, wide = recipe.tile_shape(shape, direction=direction)
    if recipe.scale_for_each_row:  # one scale for each row (columnwise: column) of a square tile
        high, wide = (1, wide) if direction == "rowwise" else (high, 1)
    down, across = -(-shape[0] // high), -(-shape[1] // wide)
    return (across, down) if _is_transposed(recipe, direction) else (down, across)


def _team(buffers: list[Buffer], stream: Any, order: Any, seed: Any, threads: Any) -> _Team:
    """Where the kernel runs. Options of the other place are refused."""
    if buffers[0].on_device:
        check_unread("arrays on the host", order=order, seed=seed, threads=threads)
        handle = stream_of(stream, buffers)
        _core.gpu_require_device()
        return True, handle, "ascending", 0, 1
    check_unread("arrays on a device", stream=stream)
    kind = check_choice("ascending" if order is None else order, "order", ("ascending", "descending", "shuffled"))
    return (
        False,
        0,
        kind,
        check_int(0 if seed is None else seed, "seed", 0, 2**64 - 1),
        check_threads(1 if threads is None else threads),
    )


def _matrix(x: Any, argument: str = "x") -> Buffer:
    buffer = input_buffer(x, argument)
    if buffer.dtype not in _FLOATS:
        raise TypeError(f"{argument} must be float32, float16 or bfloat16, not {buffer.dtype}")
    if len(buffer.shape) != 2:
        raise ValueError(f"{argument} must have two dimensions, not {len(buffer.shape)}")
    if buffer.size == 0:
        raise ValueError(f"{argument} must not be empty: it is {buffer.shape[0]} x {buffer.shape[1]}")
    return buffer


def _apart(written: list[Buffer], read: list[Buffer]) -> None:
    for i, one in enumerate(written):
        for other in [*read, *written[i + 1 :]]:
            if overlaps(one, other):
                raise ValueError(f"{one.argument} must not overlap {other.argument}")


def _outputs(
    x: Buffer, recipe: Recipe, direction: str, layout: str, wants_amax: bool, out: Any
) -> tuple[list[Buffer | None], QuantizedArrays]:
    """The buffers of codes, scale_inv, scale_codes and amax, new or those of ``out``, and the result that has them."""
    shape = (x.shape[0], x.shape[1])
    if out is not None and not isinstance(out, QuantizedArrays):
        raise TypeError(f"out must be a QuantizedArrays, not {kind_of(out)}")
    given = (None,) * 4 if out is None else (out.codes, out.scale_inv, out.scale_codes, out.amax)
    codes, scale_inv, scale_codes = _core.gpu_sizes(recipe._core(), direction, *shape, layout)
    rows, columns = shape[::-1] if _is_transposed(recipe, direction) else shape
    own = recipe.format
    code_types = (
        "uint8",
        {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}.get(own if isinstance(own, str) else "", "uint8"),
    )
    compact = _scale_shape(recipe, direction, shape, max(scale_inv, scale_codes))
    wanted: list[tuple[bool, tuple[int, ...], tuple[str, ...], str]] = [
        (
            True,
            (rows, columns * codes // (rows * columns)) if codes == rows * columns else (rows, columns // 2),
            code_types,
            "codes",
        ),
        (scale_inv > 0, compact, ("float32",), "scale_inv"),
        (scale_codes > 0, (scale_codes,) if layout == "swizzled" else compact, ("uint8",), "scale_codes"),
        (wants_amax or _depends_on_amax(recipe), (1,), ("float32",), "amax"),
    ]
    buffers: list[Buffer | None] = []
    for array, (is_wanted, size, dtypes, name) in zip(given, wanted):
        if not is_wanted and array is not None:
            raise ValueError(f"out.{name} must be None: the recipe has none")
        if out is not None and is_wanted and array is None:
            raise ValueError(f"out.{name} must be there, with shape {size}")
        buffers.append(
            output_buffer(array, x, size, dtypes, name if out is None else f"out.{name}") if is_wanted else None
        )
    _apart([one for one in buffers if one is not None], [x])
    made = [None if one is None else one.owner for one in buffers]
    return buffers, QuantizedArrays(recipe, direction, shape, made[0], made[1], made[2], made[3], layout)


def _places(buffers: list[Buffer | None]) -> _ArrayPlaces:
    codes, scale_inv, scale_codes, amax = (None if one is None else one.place for one in buffers)
    assert codes is not None
    return codes, scale_inv, scale_codes, amax


def _philox(seed: Any, offset: Any) -> tuple[int, int] | None:
    if seed is None:
        check_unread("philox_seed", philox_offset=offset)
        return None
    return check_int(seed, "philox_seed", 0, 2**64 - 1), check_int(
        0 if offset is None else offset, "philox_offset", 0, 2**64 - 1
    )


def quantize_arrays(
    x: Any,
    recipe: Any,
    directions: tuple[str, ...],
    layout: Any,
    outs: tuple[Any, ...],
    philox: tuple[Any, Any],
    place: tuple[Any, ...],
) -> tuple[QuantizedArrays, ...]:
    """The kernel of a recipe; ``place`` is stream, order, seed and threads."""
    values, own = _matrix(x), as_recipe(recipe)
    layout = check_choice(layout, "layout", ("compact", "swizzled"))
    random = _philox(*philox)
    if random is not None and as_profile(own.cast, "cast").rounding != "stochastic":
        raise ValueError("philox_seed goes with recipes that round stochastically")
    team = _team([values], *place)
    made = {way: _outputs(values, own, way, layout, False, out) for way, out in zip(directions, outs)}
    places = {way: _places(buffers) for way, (buffers, _) in made.items()}
    rows, columns = values.shape
    _core.gpu_quantize(
        values.place, values.dtype, rows, columns, own._core(), places.get("rowwise"), places.get("columnwise"), layout,
        None, random, team,
    )  # fmt: skip
    return tuple(result for _, result in made.values())


def cast_arrays(
    x: Any,
    format: FormatName | Format,
    scale: Any,
    directions: tuple[str, ...],
    outs: tuple[Any, ...],
    place: tuple[Any, ...],
) -> tuple[QuantizedArrays, ...]:
    """The cast by a given scale, with the amax in the same pass."""
    values, own = _matrix(x), as_format(format, "format")
    if own.name not in ("e4m3", "e5m2"):
        raise ValueError(f"format must be e4m3 or e5m2, not {own.name}")
    scales: Buffer | None = None
    number = 1.0
    if isinstance(scale, (int, float, np.integer, np.floating)):
        number = check_real(scale, "scale")
    else:
        scales = input_buffer(scale, "scale")
        if scales.dtype != "float32" or scales.size != 1 or scales.on_device != values.on_device:
            raise ValueError("scale must be a number, or one float32 that lies where x does")
    recipe = GivenScale(own, scale=number)
    team = _team([values, *([] if scales is None else [scales])], *place)
    made = {way: _outputs(values, recipe, way, "compact", True, out) for way, out in zip(directions, outs)}
    for (buffers, _), out in zip(made.values(), outs):
        amax = buffers[3]
        assert amax is not None
        if out is None:
            fill_with_zeros(amax)
    places = {way: _places(buffers) for way, (buffers, _) in made.items()}
    rows, columns = values.shape
    _core.gpu_quantize(
        values.place, values.dtype, rows, columns, recipe._core(), places.get("rowwise"), places.get("columnwise"),
        "compact", None if scales is None else scales.place, None, team,
    )  # fmt: skip
    return tuple(result for _, result in made.values())


def fill_with_zeros(buffer: Buffer) -> None:
    """On the stream of its library, which orders it before the kernel."""
    buffer.owner.fill_(0) if buffer.library == "torch" else buffer.owner.fill(0)


def amax_array(x: Any, nan: Any, out: Any, place: tuple[Any, ...]) -> Any:
    """The largest magnitude, as an array of one float32."""
    values = input_buffer(x, "x")
    if values.dtype not in _FLOATS:
        raise TypeError(f"x must be float32, float16 or bfloat16, not {values.dtype}")
    if values.size == 0:
        raise ValueError("x must not be empty")
    nan = check_choice(nan, "nan", ("dropped", "counted"))
    team = _team([values], *place)
    result = output_buffer(out, values, (1,), ("float32",), "out")
    _apart([result], [values])
    _core.gpu_amax(values.place, values.dtype, values.size, nan, result.place, team)
    return result.owner


def dequantize_arrays(q: Any, out: Any, place: tuple[Any, ...]) -> Any:
    """The values that codes and scales stand for, as float32."""
    if isinstance(q, Quantized):
        own = as_recipe(q.recipe, "q.recipe")
        q = QuantizedArrays(
            own,
            q.direction,
            q.shape,
            q.codes,
            q.scale_inv,
            q.scale_codes,
            np.array([q.amax], np.float32) if _depends_on_amax(own) else None,
        )
    if not isinstance(q, QuantizedArrays):
        raise TypeError(f"q must be a QuantizedArrays or a Quantized, not {kind_of(q)}")
    codes = input_buffer(q.codes, "q.codes")
    team = _team([codes], *place)
    needs_amax = _depends_on_amax(q.recipe)
    found = _parts(codes, q, needs_amax)
    result = output_buffer(out, codes, q.shape, ("float32",), "out")
    _apart([result], [one for one in found if one is not None])
    _core.gpu_dequantize(q.recipe._core(), q.direction, *q.shape, _places(found), q.layout, result.place, team)
    return result.owner


def _parts(codes: Buffer, q: QuantizedArrays, needs_amax: bool, argument: str = "q") -> list[Buffer | None]:
    """The arrays of q as buffers, which lie where its codes do; ``argument`` is what q is called in messages."""
    buffers: list[Buffer | None] = [codes]
    for name, array in (
        ("scale_inv", q.scale_inv),
        ("scale_codes", q.scale_codes),
        ("amax", q.amax if needs_amax else None),
    ):
        one = None if array is None else input_buffer(array, f"{argument}.{name}")
        if one is not None and one.on_device != codes.on_device:
            raise ValueError(f"{argument}.{name} must lie where {argument}.codes does")
        if one is not None and one.dtype != ("uint8" if name == "scale_codes" else "float32"):
            raise TypeError(
                f"{argument}.{name} must be {'uint8' if name == 'scale_codes' else 'float32'}, not {one.dtype}"
            )
        buffers.append(one)
    return buffers


def update_scale_arrays(
    recipe: Any, amaxes: Any, scale: Any, scale_inv: Any, backward: bool, place: tuple[Any, ...]
) -> None:
    """The end of a step of delayed scaling for many tensors, in place."""
    if not isinstance(recipe, Delayed):
        raise TypeError(f"recipe must be a Delayed, not {kind_of(recipe)}")
    first = input_buffer(amaxes, "amaxes")
    if first.dtype != "float32" or len(first.shape) != 2:
        raise ValueError("amaxes must be float32, (amax_history_len, tensors)")
    if first.shape[0] != recipe.amax_history_len:
        raise ValueError(
            f"amaxes must have as many rows as the recipe's amax_history_len, {recipe.amax_history_len}, "
            f"not {first.shape[0]}"
        )
    tensors = first.shape[1]
    team = _team([first], *place)
    history = output_buffer(amaxes, first, (recipe.amax_history_len, tensors), ("float32",), "amaxes")
    scales = output_buffer(scale, first, (tensors,), ("float32",), "scale")
    given = [] if scale_inv is None else [output_buffer(scale_inv, first, (tensors,), ("float32",), "scale_inv")]
    _apart([history, scales, *given], [])
    inverses = given[0].place if given else None
    _core.gpu_update_scales(recipe._recipe(), backward, history.place, scales.place, inverses, team)
