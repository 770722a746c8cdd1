# SPDX-License-Identifier: Apache-2.0
"""The tensors on which quantizers are compared, by case, element type and the tile that shares a scale."""

import numpy as np
import torch

from quantizers.numerics import FORMATS

CASES = ("normals", "student_t", "lognormal", "subnormals", "zeros", "amaxes", "ties", "nonfinite")
MANTISSA = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
EXPONENTS = {torch.float32: 254, torch.float16: 30, torch.bfloat16: 254}
WORDS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def of_words(words: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """The values of these bit patterns of a type, as float32."""
    return torch.from_numpy(words.astype(np.int64)).to(WORDS[dtype]).view(dtype).float().numpy()


def amaxes(dtype: torch.dtype) -> np.ndarray:
    """Every power of two, 1.5 and 1.75 times it, as E4M3's 448 is, and a unit in the last place to both sides."""
    bits = MANTISSA[dtype]
    corners = np.array([0, 1 << (bits - 1), (1 << (bits - 1)) + (1 << (bits - 2))])
    words = (np.arange(EXPONENTS[dtype] + 1)[:, None, None] << bits) + corners[:, None] + np.arange(-1, 2)
    words = words.reshape(-1)
    return of_words(words[(words > 0) & (words < (EXPONENTS[dtype] + 1 << bits))], dtype)


def calibrated(x: torch.Tensor, tile: tuple[int, int]) -> np.ndarray:
    """Scales that some other tensor gave, of many sizes and in the type of x, as float32; one for each tile, where 0 is
    the whole side."""
    shape = [-(-size // (side or size)) for size, side in zip(x.shape, tile, strict=True)]
    draw = np.random.RandomState(shape[0] * 1000 + shape[1])
    scales = (1 + draw.random_sample(shape)) * 2.0 ** draw.randint(-12, 3, shape)
    return torch.from_numpy(scales).to(x.dtype).float().numpy()


def _below(amax: np.ndarray, shape: tuple[int, int], draw: np.random.RandomState) -> np.ndarray:
    """Tiles with these amaxes: multiples of a 64th of it, at several sizes, half of them made uneven."""
    x = amax[:, None] * (draw.randint(-64, 65, shape) / 64) * 2.0 ** -draw.randint(0, 8, shape)
    x = np.where(draw.randint(0, 2, shape), x * draw.random_sample(shape), x)
    x[np.arange(shape[0]), draw.randint(0, shape[1], shape[0])] = amax * draw.choice([-1, 1], shape[0])
    return x


def _ties(values: np.ndarray, shape: tuple[int, int], draw: np.random.RandomState) -> np.ndarray:
    """Midpoints of a format and their neighbours' values under a scale: a power of two, or any."""
    scale = 2.0 ** draw.randint(-12, 5, shape[0]) * np.where(
        draw.randint(0, 2, shape[0]), 1, 1 + draw.random_sample(shape[0])
    )
    points = np.concatenate([(values[1:] + values[:-1]) / 2, values])
    x = draw.choice(points, shape) * draw.choice([-1, 1], shape)
    x[:, 0] = values[-1]
    return x * scale[:, None]


def _subnormals(dtype: torch.dtype, shape: tuple[int, int], draw: np.random.RandomState) -> np.ndarray:
    """The type's own, to twice its least normal number."""
    words = draw.randint(0, 2 << MANTISSA[dtype], shape) >> draw.randint(0, MANTISSA[dtype], shape)
    return of_words(words, dtype) * draw.choice([-1, 1], shape)


def _zeros(shape: tuple[int, int], draw: np.random.RandomState) -> np.ndarray:
    """Of both signs: whole tiles, and a few other elements in every third tile."""
    x = np.where(draw.randint(0, 2, shape), 0.0, -0.0)
    x[::3, :3] = draw.standard_normal((len(x[::3]), 3)) * 2.0 ** draw.randint(-30, 9, (len(x[::3]), 1))
    return x


def _nonfinite(shape: tuple[int, int], draw: np.random.RandomState, finite_amax: bool) -> np.ndarray:
    x = draw.standard_normal(shape)
    kinds = [np.nan, -np.nan] if finite_amax else [np.nan, np.inf, -np.inf, -np.nan]
    for i, kind in enumerate(kinds):
        x[i :: len(kinds), draw.randint(0, shape[1])] = kind
    if not finite_amax:
        x[5::16, 1], x[7::16, 2] = np.inf, np.nan
    x[-1, 3::5] = 0
    return x


def tiles(
    case: str, dtype: torch.dtype, size: int, count: int, format: str, *, finite_amax: bool = False
) -> torch.Tensor:
    """``count`` tiles of ``size`` elements, (count, size). Of the amaxes it takes that many, or all where there are
    fewer."""
    multiple = 2 if size > 1024 else 16
    seed = CASES.index(case) * 1000 + size % 1000
    draw = np.random.RandomState(seed)
    shape = (count, size)
    if case == "amaxes":
        amax = amaxes(dtype)
        amax = amax[np.arange(count) * len(amax) // count] if count < len(amax) else amax
        amax = np.resize(amax, -(-len(amax) // multiple) * multiple)
        x = _below(amax.astype(np.float64), (len(amax), size), draw)
    else:
        x = {
            "normals": lambda: draw.standard_normal(shape) * 2.0 ** draw.randint(-6, 6, (count, 1)),
            "student_t": lambda: draw.standard_t(2, shape),
            "lognormal": lambda: draw.lognormal(0, 3, shape) * draw.choice([-1, 1], shape),
            "subnormals": lambda: _subnormals(dtype, shape, draw),
            "zeros": lambda: _zeros(shape, draw),
            "ties": lambda: _ties(FORMATS[format][0].astype(np.float64), shape, draw),
            "nonfinite": lambda: _nonfinite(shape, draw, finite_amax),
        }[case]()
    largest = torch.finfo(dtype).max
    with np.errstate(invalid="ignore"):
        x = np.where(np.isfinite(x), np.clip(x, -largest, largest), x)
    return torch.from_numpy(x).to(dtype)


def matrices(
    case: str, dtype: torch.dtype, scope: str, tile: tuple[int, int], count: int, format: str, tensor_scale: bool
) -> list[torch.Tensor]:
    """Matrices of at least ``count`` tiles: one, or where a tensor has an amax many.

    The scope of a scale is a "tensor", each of which is small, a "row" of ``tile``'s width, or a "tile".
    """
    height, width = tile
    count = max(2, count // 8 if case == "amaxes" else count // 64) if height * width > 1024 else count
    x = tiles(case, dtype, height * width, count, format, finite_amax=tensor_scale)
    if scope == "tensor":
        return list(x.reshape(-1, height, width))
    if scope == "row":
        return list(x.chunk(8)) if tensor_scale else [x]
    across = 4 if height == 1 else 2
    x = x.reshape(-1, across, height, width).transpose(1, 2).reshape(-1, across * width)
    return list(x.chunk(8)) if tensor_scale else [x]
