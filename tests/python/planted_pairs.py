# SPDX-License-Identifier: Apache-2.0
"""A quantization kernel in NumPy with any two of ten frequent defects."""

from __future__ import annotations

import itertools

import numpy as np
from planted import BF16, F, amax_of, e4m3, flushed, power_up, spread, tensor, truncated, unwritten

X = tensor(64, 512)
#: What diagnose() calls each.
DEFECTS = {
    "negative_zero_lost": "negative_zero_lost|add_zero",
    "columns_unwritten": "columns_unwritten",
    "rows_unwritten": "rows_unwritten|end_unwritten",
    "subnormals_flushed": "subnormals_flushed",
    "product_bfloat16": "product_bfloat16",
    "truncation": "codes are rounded toward_zero",
    "scale_bfloat16": "scale_bfloat16",
    "tile_of_left_neighbor": "tile_of_left_neighbor",
    "codes_one_late": "codes_one_late",
    "stored_rounded_up": "stored_rounded_up|scale_unrounded|rounding is up",
}
PAIRS = list(itertools.combinations(DEFECTS, 2))


def kernel(defects, x=X):
    """Tiles of 1 x 128: s = amax / 448, of at least 1e-4; codes of x / s in E4M3."""
    s = np.maximum(amax_of(x, 128), F(1e-4)) / F(448)
    used = s.astype(BF16).astype(F) if "scale_bfloat16" in defects else s.copy()
    if "tile_of_left_neighbor" in defects:
        used[10, 2] = used[10, 1]
    y = (x / spread(used, 128)).astype(F)
    if "product_bfloat16" in defects:
        y = y.astype(BF16).astype(F)
    codes = truncated(y) if "truncation" in defects else e4m3(y)
    if "subnormals_flushed" in defects:
        codes = flushed(codes)
    if "negative_zero_lost" in defects:
        codes = np.where(codes == 0x80, np.uint8(0), codes)
    codes = unwritten(codes, columns=4 * ("columns_unwritten" in defects), rows=3 * ("rows_unwritten" in defects))
    if "codes_one_late" in defects:
        codes = np.roll(codes.ravel(), 1).reshape(codes.shape)
    return codes, power_up(s) if "stored_rounded_up" in defects else s
