# SPDX-License-Identifier: Apache-2.0
"""What a cast did to a tensor, and what it costs the product: the numbers that ``watch`` keeps."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fp8lab._arrays import Array, as_format, as_profile
from fp8lab._core import ErrorTotals
from fp8lab._delayed import AmaxHistory, Delayed
from fp8lab._linear import LinearGemm, LinearRecipe
from fp8lab._linear import linear as array_linear
from fp8lab._measures import errors
from fp8lab._outcomes import cast_bounds
from fp8lab._recipes import Recipe
from fp8lab._scaling import Quantized, dequantize, hadamard_columns, quantize

__all__ = ["CAUSES", "Cast", "cast_of", "causes_of", "measured", "scale_for", "widened"]

#: The parts of an output's error, in the order of the chain from the real product to the output.
CAUSES = ("x_cast", "w_cast", "accumulation", "output_rounding", "total")


@dataclasses.dataclass
class Cast:
    """What a cast did to a tensor, or to all of a step that a layer cast in the same place."""

    amax: float
    scale: float
    """What the elements were multiplied with; NaN where there is no single scale."""
    scale_lag: float
    """``scale`` over that which this tensor's own amax makes; NaN where there is none."""
    elements: int
    underflows: int
    saturated: int
    totals: ErrorTotals

    def merge(self, other: Cast) -> None:
        """Adds another tensor of the step; scales are those of the last one."""
        self.amax = max(self.amax, other.amax)
        self.scale, self.scale_lag = other.scale, other.scale_lag
        self.elements += other.elements
        self.underflows += other.underflows
        self.saturated += other.saturated
        totals = ErrorTotals()  # those of other tensors stay
        totals.merge(self.totals)
        totals.merge(other.totals)
        self.totals = totals


def widened(values: Array, name: str) -> Array:
    """Floats of a type as float32."""
    if name == "bfloat16":
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values if name == "float32" else values.view(name).astype(np.float32)


def scale_for(amax: float, delayed: Delayed, backward: bool) -> float:
    """The scale that a recipe of delayed scaling makes of one amax; NaN of zero, which makes none."""
    if amax == 0:
        return math.nan
    history = AmaxHistory(dataclasses.replace(delayed, amax_history_len=1), backward=backward)
    history.record_amax(amax)
    history.update_scale()
    return history.scale


def _saturated(x: Array, quantized: Quantized, factor: float | None) -> int:
    """Elements that lie beyond the format's largest value after they are scaled and rounded."""
    bound = np.float32(cast_bounds(as_format(quantized.format, "format")).positive.saturated)
    if factor is not None:
        return int(np.count_nonzero(np.abs(x * np.float32(factor)) >= bound))
    rows, columns = quantized.tile
    limits = np.repeat(np.repeat(bound * quantized.tile_scales_inv(), rows, 0)[: x.shape[0]], columns, 1)
    return int(np.count_nonzero(np.abs(x) >= limits[:, : x.shape[1]]))


def cast_of(
    x: Array,
    cast: Recipe,
    direction: Any,
    *,
    scale: float | None,
    wanted: float,
    bits: Array | None,
    threads: int | None,
) -> tuple[Cast, Quantized, Array]:
    """A tensor's cast by a recipe, under delayed scaling by the scale that it used, and what comes back of it."""
    given = None if scale is None else np.float32(scale)
    random_bits = bits if as_profile(cast.cast, "cast").rounding == "stochastic" else None
    quantized = quantize(x, cast, direction=direction, scale=given, random_bits=random_bits, threads=threads)
    back = dequantize(quantized, threads=threads).astype(np.float32, copy=False)
    is_turned = direction == "columnwise" and cast.transform != "none"
    seen = hadamard_columns(x, rounds=False, threads=threads) if is_turned else x
    factor = quantized.factor
    used = math.nan if factor is None else float(factor)
    lag = math.nan if factor is None else 1.0 if scale is None else used / wanted
    return measured(x, seen, quantized, back, used, lag), quantized, back


def measured(x: Array, seen: Array, quantized: Quantized, back: Array, scale: float, scale_lag: float) -> Cast:
    """What a cast of x did; ``seen`` is what was rounded, ``back`` what comes back of it, and the scale NaN where there
    is no single one."""
    return Cast(
        float(np.max(np.abs(x), initial=0.0)), scale, scale_lag, x.size,
        int(np.count_nonzero((back == 0) & (seen != 0))),
        _saturated(seen, quantized, None if math.isnan(scale) else scale), errors(back, seen),
    )  # fmt: skip


def causes_of(
    x: Array, w: Array, bias: Array | None, y: Array, casts: tuple[Any, Any], recipe: LinearRecipe, threads: int | None
) -> dict[str, tuple[float, float]]:
    """The parts of an output's error: for each cause of ``CAUSES`` its rms and its SQNR in dB.

    ``casts`` are x and w as the product takes them: a Quantized and what comes back of it, or a tensor in high
    precision and what it is rounded to. The real products are sums in float64.
    """
    (taken_x, back_x), (taken_w, back_w) = casts
    offset = 0.0 if bias is None else bias.astype(np.float64)
    wide = [one.astype(np.float64) for one in (x, w, back_x, back_w)]
    real = wide[0] @ wide[1].T + offset
    by_x = wide[2] @ wide[1].T + offset
    by_both = wide[2] @ wide[3].T + offset
    fprop = LinearGemm(recipe.fprop.recipe, recipe.fprop.a, recipe.fprop.b, output="float32")
    own = LinearRecipe(fprop, recipe.dgrad, recipe.wgrad)
    rounded_bias = bias if bias is None else bias.astype(np.float32)
    exact = array_linear(taken_x, taken_w, rounded_bias, recipe=own, threads=threads).astype(np.float64)
    parts = (by_x - real, by_both - by_x, exact - by_both, y - exact, y - real)
    power = _rms(real)
    return {name: (_rms(part), _decibels(power, _rms(part))) for name, part in zip(CAUSES, parts)}


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def _decibels(signal: float, noise: float) -> float:
    if noise == 0 or not math.isfinite(noise):
        return math.inf if noise == 0 else math.nan
    return -math.inf if signal == 0 else 20 * math.log10(signal / noise)
