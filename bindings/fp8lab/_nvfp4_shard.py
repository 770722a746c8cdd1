# SPDX-License-Identifier: Apache-2.0
"""Scales and codes of NVFP4 weights whose shards lie on several ranks; ``fp8lab.operators`` offers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, apart, as_float32, as_kernel_floats, check_int, check_real, check_threads, output
from fp8lab._entry import guard as _guard

__all__ = ["nvfp4_global_scale", "nvfp4_shard_codes", "nvfp4_tile_scales"]

_TILE = 16
_MOST = 2**31 - 1


def nvfp4_global_scale(amax: float) -> float:
    """The scale of an NVFP4 weight whose amax was reduced over ranks: 2688 / amax, as the kernel rounds it.

    At most the largest float32, which subnormal amaxes make; 1 for an amax of 0, below 0 or NaN; 0 for an infinite one,
    of which a cast of the whole weight makes another scale.

    Parameters
    ----------
    amax : float

    Returns
    -------
    float

    Source: Transformer Engine 2.20, ``common/recipe/nvfp4.cu``.
    """
    return _core.nvfp4_global_scale(check_real(amax, "amax"))


def nvfp4_tile_scales(amaxes: Any, global_amax: float, *, out: Array | None = None) -> Array:
    """The scales of tiles of 16 x 16 of such a weight, in float32: each amax times ``nvfp4_global_scale(global_amax) /
    6``, at most the largest float32.

    ``fp8lab.encode(scales, "e4m3")`` has the codes that the weight stores.

    Parameters
    ----------
    amaxes : array of float32
        Those of the tiles, reduced over ranks.
    global_amax : float
        That of the weight.
    out : array, optional
        As the module says.

    Returns
    -------
    ndarray of float32, of the shape of amaxes

    Source: Transformer Engine 2.20, ``common/recipe/nvfp4.cu``.
    """
    array = as_float32(amaxes, "amaxes")
    result = output(out, array.shape, np.float32)
    own = apart(array, result)
    _core.nvfp4_tile_scales(own.reshape(-1), check_real(global_amax, "global_amax"), result.reshape(-1))
    return result


def nvfp4_shard_codes(
    shard: Any,
    scales: Any,
    global_scale: float,
    *,
    columns: int,
    start: int = 0,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """E2M1 codes of a shard of an NVFP4 weight, one a byte: the element times 1 / (E4M3 of its tile's scale /
    global_scale).

    Parameters
    ----------
    shard : array of float32, float16 or bfloat16
        Elements that follow each other in the weight, row by row.
    scales : array of float32, (rows / 16, columns / 16), rounded up
        One for each tile of 16 x 16 of the whole weight: ``nvfp4_tile_scales()``.
    global_scale : float
        ``nvfp4_global_scale()`` of the weight's amax.
    columns : int
        Those of the weight.
    start : int
        How many elements of the weight lie before the shard.
    threads, out
        As the module says.

    Returns
    -------
    ndarray of uint8, of the shape of shard

    Raises
    ------
    ValueError
        If the shard reaches beyond the last row of tiles, or scales have another shape.

    Source: Transformer Engine 2.20, ``common/recipe/nvfp4.cu``.
    """
    array, source = as_kernel_floats(shard, "shard")
    of_tiles = as_float32(scales, "scales")
    across = -(-check_int(columns, "columns", 1, _MOST) // _TILE)
    if of_tiles.ndim != 2 or of_tiles.shape[1] != across:
        raise ValueError(f"scales must have {across} columns, one for every {_TILE} of {columns}, not {of_tiles.shape}")
    result = output(out, array.shape, np.uint8)
    _core.nvfp4_shard_codes(
        (apart(array, result).reshape(1, -1), source),
        (of_tiles.shape[0] * _TILE, columns, check_int(start, "start", 0, 2**63 - 1)),
        apart(of_tiles, result),
        check_real(global_scale, "global_scale"),
        result.reshape(-1),
        check_threads(threads, array.size),
    )
    return result


_guard(__name__, __all__)
