# SPDX-License-Identifier: Apache-2.0
"""Quantization kernels in NumPy and ml_dtypes, each with one defect, and how diagnose() should call it.

Nothing here is of fp8lab: amaxes, scales and casts are written again.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

F = np.float32
E4M3 = ml_dtypes.float8_e4m3fn
E5M2 = ml_dtypes.float8_e5m2
BF16 = ml_dtypes.bfloat16


def tensor(rows=64, columns=512, seed=0):
    """Heavy tails, so that codes of all binades appear; some zeros of both signs."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, columns)) * 2.0 ** draw.integers(-12, 3, (rows, columns))
    x[draw.random(x.shape) < 0.01] = 0
    x[draw.random(x.shape) < 0.01] = -0.0
    return x.astype(F)


def e4m3(y):
    """Nearest even; too large becomes 448, NaN 7F."""
    codes = np.clip(y, -448, 448).astype(E4M3).view(np.uint8)
    return np.where(np.isnan(y), np.uint8(0x7F), codes)


def e5m2(y):
    return np.clip(y, -57344, 57344).astype(E5M2).view(np.uint8)


def e2m1(y):
    """By comparison with the midpoints: ties to even."""
    a = np.abs(y)
    code = np.zeros(y.shape, np.uint8)
    for k, (middle, up_at_tie) in enumerate([(0.25, 0), (0.75, 1), (1.25, 0), (1.75, 1), (2.5, 0), (3.5, 1), (5, 0)]):
        code[(a > middle) | ((a == middle) & (up_at_tie == 1))] = k + 1
    return code | (np.signbit(y).astype(np.uint8) << 3)


def packed(codes):
    return codes[..., 0::2] | codes[..., 1::2] << 4


def power_up(s):
    bits = s.view(np.uint32)
    return ((bits + np.uint32(0x7FFFFF)) & np.uint32(0x7F800000)).view(F)


def power_down(s):
    return (s.view(np.uint32) & np.uint32(0x7F800000)).view(F)


def blocks(x, size):
    return x.reshape(x.shape[0], -1, size)


def spread(scales, size):
    return np.repeat(scales, size, axis=1)


def amax_of(x, size):
    return np.abs(blocks(x, size)).max(axis=2).astype(F)


def group(x, size=128, amax=None, cast=e4m3, after=lambda s: s, used=lambda s: s, largest=F(448), times=None):
    """Tiles of a row: s = amax / 448, of at least 1e-4; codes of x / s."""
    a = amax_of(x, size) if amax is None else amax
    s = after(np.maximum(a, F(1e-4)) / largest)
    f = spread(used(s), size)
    y = (x / f if times is None else times(x, f)).astype(F)
    return cast(y), s


def mx(x, cast=e4m3, size=32, round_scale=power_up, largest=F(448), used=None, amax=None):
    """MX with scales rounded up."""
    p = ((amax_of(x, size) if amax is None else amax) * (F(1) / largest)).astype(F)
    s = np.maximum(round_scale(p), F(2.0**-127))
    f = spread(s if used is None else used(p), size)
    byte = (s.view(np.uint32) >> 23).astype(np.uint8)
    return cast((x * (F(1) / f)).astype(F)), byte


def tensorwise(x, cast=e4m3, amax=None, largest=F(448), change=lambda y: y, factor=lambda s: s):
    a = np.abs(x).max() if amax is None else amax
    scale = F(largest / F(a))
    return cast(change((x * factor(scale)).astype(F))), np.array([F(1) / scale], F)


def with_(codes_and_scales, codes=lambda c: c, scales=lambda s: s):
    c, s = codes_and_scales
    return codes(c), scales(s)


def by_rows(x, counted):
    """s = amax / 448 of each row, of which those columns count."""
    return group(x, size=x.shape[1], amax=np.abs(x[:, counted]).max(axis=1, keepdims=True))


def with_last(s, last):
    """Some of the last scales are others, in the order of memory."""
    out = s.copy()
    out.ravel()[s.size - len(last) :] = last
    return out


def odd_rows(x, stride):
    """Tiles of 128 and one of what is left over, whose scales are read with that row stride."""
    _, s = group(np.pad(x, ((0, 0), (0, -x.shape[1] % 128))))
    places = np.arange(x.shape[0])[:, None] * stride + np.arange(s.shape[1])
    used = spread(s.ravel()[places], 128)[:, : x.shape[1]]
    return e4m3((x / used).astype(F)), s


def by_columns(x):
    s = (np.abs(x).max(axis=0) / F(448)).astype(F)
    return e4m3((x / s).astype(F)), s


def shifted_tiles(x, early):
    """Tiles of 128 that begin one element early or late."""
    columns = np.arange(x.shape[1])
    tile = (columns + 1) // 128 if early else np.maximum(columns - 1, 0) // 128
    s = np.stack([np.abs(x[:, tile == t]).max(axis=1) for t in range(tile.max() + 1)], axis=1).astype(F)
    s = np.maximum(s, F(1e-4)) / F(448)
    return e4m3((x / s[:, tile]).astype(F)), None


def away(y):
    """E4M3 with ties away from zero, of values in range."""
    a = np.minimum(np.abs(y).astype(np.float64), 448)
    e = np.maximum(np.floor(np.log2(np.where(a == 0, 1, a))), -6)
    q = np.floor(a / 2.0 ** (e - 3) + 0.5) * 2.0 ** (e - 3)
    return np.copysign(q, y).astype(F).astype(E4M3).view(np.uint8)


def truncated(y):
    a = np.minimum(np.abs(y).astype(np.float64), 448)
    e = np.maximum(np.floor(np.log2(np.where(a == 0, 1, a))), -6)
    return np.copysign(np.floor(a / 2.0 ** (e - 3)) * 2.0 ** (e - 3), y).astype(F).astype(E4M3).view(np.uint8)


def flushed(codes):
    return np.where((codes & 0x7F) < 8, codes & 0x80, codes).astype(np.uint8)


def ties(x):
    """Some elements on midpoints of E4M3 under a scale that is a power of two."""
    x = x.copy()
    x[:, ::7] = (np.round(x[:, ::7] * 8) + 0.5) / 8
    x[:, 0] = 448
    return x


def specials(x):
    x = x.copy()
    x[3, 5] = np.nan
    x[9, 100] = np.nan
    return x


def float16_then(cast):
    return lambda y: cast(y.astype(np.float16).astype(F))


def bfloat16_then(cast):
    return lambda y: cast(y.astype(BF16).astype(F))


def one_tile_of_its_neighbor(x):
    a = amax_of(x, 128)
    s = np.maximum(a, F(1e-4)) / F(448)
    used = s.copy()
    used[10, 2] = s[10, 1]
    return e4m3((x / spread(used, 128)).astype(F)), s


def unwritten(codes, columns=0, rows=0):
    codes = codes.copy()
    if columns:
        codes[:, -columns:] = 0
    if rows:
        codes[-rows:] = 0
    return codes


def saturating_not(y):
    codes = y.astype(E4M3).view(np.uint8)  # ml_dtypes: too large is NaN
    return codes


def wraps(y):
    """A conversion by bits that forgets to saturate: the exponent runs over."""
    wide = np.clip(np.abs(y), 0, 2**20).astype(F)
    e = np.floor(np.log2(np.where(wide == 0, 1, wide)))
    big = wide >= 480
    q = np.round(wide / 2.0 ** (e - 3)).astype(np.int64)
    e, q = np.where(q == 16, e + 1, e), np.where(q == 16, 8, q)
    code = ((e + 7).astype(np.int64) * 8 + q - 8) & 0x7F
    # From 464 on, what rounds to 480 has the code of NaN; 480 to 496 too.
    small = e4m3(y) & 0x7F
    near = (wide > 464) & ~big
    magnitude = np.where(big | near, np.where(near, 0x7F, code), small).astype(np.uint8)
    return magnitude | (np.signbit(y).astype(np.uint8) << 7)


def too_large(x):
    """For scales that are too large by eight."""
    return tensorwise(x, factor=lambda s: s)


def swizzled(s):
    rows, columns = s.shape
    out = np.zeros((-(-rows // 128) * 128) * (-(-columns // 4) * 4), np.uint8)
    for r in range(rows):
        for c in range(columns):
            tile = r // 128 * -(-columns // 4) + c // 4
            out[tile * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = s[r, c]
    return out


def core_matrices(c, down):
    """Bytes in matrices of 8 rows x 16 bytes, one after the other along the rows, or down the columns."""
    rows, columns = c.shape
    order = (2, 0, 1, 3) if down else (0, 2, 1, 3)
    return c.reshape(rows // 8, 8, columns // 16, 16).transpose(order).ravel()


def address_swizzled(c, mask):
    """Bytes whose addresses are swizzled as a tensor map of CUDA says."""
    place = np.arange(c.size)
    out = np.empty(c.size, np.uint8)
    out[place ^ (place >> 3 & mask)] = c.ravel()
    return out


def exchanged(rows, first=0, last=None, away=8):
    """Rows i and i + 8 have each other's place: all of them, or those between two."""
    order = np.arange(len(rows))
    last = len(rows) - 1 if last is None else last
    for i in range(first, last + 1 - away):
        if (i - first) // away % 2 == 0:
            order[[i, i + away]] = i + away, i
    return rows[order]


def from_above(scales, away, first=0, goes_round=False):
    """The scales of rows further above, where there are any."""
    moved = np.roll(scales, away, axis=0)
    if not goes_round:
        moved[: max(away, first)] = scales[: max(away, first)]
    return moved


def halves_of_blocks(x):
    """MX where 16 threads alone reduce an amax: each half of a block has its own scale, and the first is stored."""
    codes, bytes_ = mx(x, size=16)
    return codes, np.ascontiguousarray(bytes_[:, ::2])


def quantized_before(x):
    """What is left of E4M3 under a scale of the tensor."""
    scale = F(448) / np.abs(x).max()
    return (e4m3((x * scale).astype(F)).view(E4M3).astype(F) * (F(1) / scale)).astype(F)


def with_carry_ored(x):
    """float16 to E5M2 as Triton's interpreter does: ties go away from zero, and the mantissa that has become too long is
    ORed into the exponent."""
    bits = x.view(np.uint16).astype(np.int64)
    mantissa = (bits >> 8 & 3) + (bits >> 7 & 1)
    return (bits >> 15 << 7 | bits >> 8 & 0x7C | mantissa).astype(np.uint8)


def interleaved(c):
    out = np.empty_like(c)
    out[:, 0::2], out[:, 1::2] = np.split(c, 2, axis=1)
    return out


def nvfp4(x, amax=None):
    """Tiles of 16 with scales of E4M3 under one of the tensor, E = 448 * 6 / amax; codes, scales, E."""
    e = F(2688) / (np.abs(x).max() if amax is None else F(amax))
    d = e4m3((e * (amax_of(x, 16) * (F(1) / F(6))).astype(F)).astype(F))
    product = (d.view(E4M3).astype(F) * (F(1) / e)).astype(F)
    factor = np.divide(F(1), product, where=product > 0, out=np.zeros_like(product))
    return packed(e2m1((x * spread(factor, 16)).astype(F))), d, e


def beside_midpoints(x):
    """Elements on the midpoints of E4M3 under the scales of group(), where x / s and x * (1 / s) part."""
    s = spread(group(x)[1], 128)
    codes = group(x)[0]
    values = codes.view(E4M3).astype(F)
    above = ((codes & 0x7F) + 1 | codes & 0x80).astype(np.uint8)
    next_ = np.where((codes & 0x7F) < 0x7E, above, codes).view(E4M3).astype(F)
    near = ((values + next_) / F(2) * s).astype(F)
    is_amax = np.abs(x) == spread(amax_of(x, 128), 128)
    return np.where(is_amax | (np.abs(near) >= spread(amax_of(x, 128), 128)), x, near).astype(F)


X = tensor()
TALL = tensor(256, 256, 3)
ODD = np.ascontiguousarray(X[:, :500])
EVER_SMALLER = (X * 2.0 ** -(np.arange(64)[:, None] // 6)).astype(F)
NVFP4 = nvfp4(X)
STALE_NVFP4 = nvfp4(X, amax=9.5)
MIDDLE = beside_midpoints(X)
TIES = ties(X)
NANS = specials(X)
LARGE = (X * 2**8).astype(F)
FOUR = np.array([[0.3, -1.2, 0.7, 2.1]], F)
SPARSE = np.where(np.random.default_rng(5).random(X.shape) < 0.8, F(0), X)
HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16)
HALVES = HALVES[np.isfinite(HALVES)].reshape(-1, 256)

OF_FLOAT16, OF_BFLOAT16 = X.astype(np.float16), X.astype(BF16)

#: name: (x, (codes, scales), what diagnose() calls it, further arguments)
DEFECTS = {
    "truncation": (X, group(X, cast=truncated), "codes are rounded toward_zero", {}),
    "ties away from zero": (TIES, tensorwise(TIES, cast=away, amax=448), "codes are rounded nearest_away", {}),
    "double rounding through half": (X, group(X, cast=float16_then(e4m3)), "product_float16", {}),
    "double rounding through bfloat16": (X, group(X, cast=bfloat16_then(e4m3)), "product_bfloat16", {}),
    "subnormals flushed": (X, with_(group(X), flushed), "subnormals_flushed", {}),
    "-0 lost": (X, with_(group(X), lambda c: np.where(c == 0x80, np.uint8(0), c)), "negative_zero_lost|multiply_add_zero", {}),
    "sign lost": (X, with_(group(X), lambda c: c & 0x7F), "sign_lost", {}),
    "sign inverted": (X, with_(group(X), lambda c: c ^ 0x80), "sign_inverted", {}),
    "negatives zeroed": (X, with_(group(X), lambda c: np.where(c & 0x80, np.uint8(0), c)), "negatives_zeroed", {}),
    "float32 scale stored as bfloat16": (X, with_(group(X), scales=lambda s: s.astype(ml_dtypes.bfloat16).astype(F)), "stored_bfloat16", {}),
    "float32 scale stored as float16": (X, with_(group(X), scales=lambda s: s.astype(np.float16).astype(F)), "stored_float16", {}),
    "NaN becomes 0": (NANS, group(NANS, amax=amax_of(np.nan_to_num(NANS), 128), cast=lambda y: np.where(np.isnan(y), np.uint8(0), e4m3(y))), "nan_is_zero", {}),
    "no saturation": (LARGE, (saturating_not(LARGE), None), "ml_dtypes|cuda_nosat|does not saturate", {}),
    "overflow wraps": (LARGE, (wraps(LARGE), None), "overflow_wraps", {}),
    "clamped to 240": (X, group(X, cast=lambda y: e4m3(np.clip(y, -240, 240))), "clamped_to_240", {}),
    "scale for fnuz": (X, tensorwise(X, largest=F(240)), "largest_of_e4m3fnuz", {}),
    "scale for E5M2": (X, group(X, largest=F(57344)), "largest_of_e5m2", {}),
    "multiplies by a rounded reciprocal": (MIDDLE, group(MIDDLE, times=lambda x, f: x * (F(1) / f)), "operation is multiply|deepgemm_cpu", {}),
    "scale inverted": (X, group(X, times=lambda x, f: x * f), "scale_inverted|operation is multiply", {}),
    "scale missing": (X, (e4m3(X), group(X)[1]), "scale_missing", {}),
    "scale rounded after the codes were made": (X, mx(X, used=lambda p: p), "scale_unrounded|stored_rounded_up", {}),
    "float32 scale rounded up when stored": (X, with_(group(X), scales=power_up), "stored_rounded_up|scale_unrounded|rounding is up", {}),
    "power of two rounded down": (X, mx(X, round_scale=power_down), "rounding is down", {}),
    "epsilon added to the scale before it is rounded up": (EVER_SMALLER, group(EVER_SMALLER, after=lambda s: power_up(s + F(1e-5))), "scale_plus", {"expected": "deepseek_v3_2024"}),
    "scale in bfloat16": (X, group(X, used=lambda s: s.astype(BF16).astype(F)), "scale_bfloat16", {}),
    "scale in half": (X, group(X, used=lambda s: s.astype(np.float16).astype(F)), "scale_float16", {}),
    "scale doubled": (X, group(X, used=lambda s: s / 2), "scale_doubled", {}),
    "scale halved": (X, group(X, used=lambda s: s * 2), "scale_halved", {}),
    "amax of the largest element": (X, group(X, amax=np.maximum(blocks(X, 128).max(axis=2), 0)), "amax_signed", {}),
    "amax misses the last element": (X, mx(X, amax=np.abs(blocks(X, 32)[:, :, :-1]).max(axis=2)), "amax_misses_last", {}),
    "amax misses the first element": (X, mx(X, amax=np.abs(blocks(X, 32)[:, :, 1:]).max(axis=2)), "amax_misses_first", {}),
    "amax of the rounded input": (X, group(X, amax=amax_of(X.astype(BF16).astype(F), 128)), "amax_bfloat16", {}),
    "amax of the first half of each row": (X, by_rows(X, slice(0, 256)), "amax_of_first_half", {}),
    "amax of every second element of each row": (X, by_rows(X, slice(1, None, 2)), "amax_of_odd_elements", {}),
    "amax misses a tail of each row": (X, by_rows(X, slice(0, 480)), "amax_of_first$|amax_of_first ", {}),
    "amax misses the beginning of each row, expected": (X, by_rows(X, slice(100, None)), "amax_of_last", {"expected": "vllm_per_token"}),
    "input rounded to bfloat16": (X, group(X.astype(BF16).astype(F)), "input_bfloat16", {}),
    "input rounded to half": (X, group(X.astype(np.float16).astype(F)), "input_float16", {}),
    "float16 read as bfloat16": (OF_FLOAT16, group(OF_FLOAT16.view(BF16).astype(F)), "float16_as_bfloat16", {}),
    "bfloat16 read as float16": (OF_BFLOAT16, mx(OF_BFLOAT16.view(np.float16).astype(F)), "bfloat16_as_float16", {}),
    "elements rounded after the amax": (X, group(X.astype(BF16).astype(F), amax=amax_of(X, 128)), "elements_bfloat16", {}),
    "tiles of 64": (X, group(X, size=64), "tiles are 1 x 64", {}),
    "amax of the other axis": (X, by_columns(X), "tiles are all x 1|columnwise", {}),
    "tiles begin early": (X, shifted_tiles(X, True), "tile_starts_early", {}),
    "tiles begin late": (X, shifted_tiles(X, False), "tile_starts_late", {}),
    "scale of the next tile": (X, group(X, used=lambda s: np.concatenate([s[:, 1:], s[:, -1:]], 1)), "scale_of_next_tile", {}),
    "scale of the next tile, across rows": (X, group(X, used=lambda s: np.append(s.ravel()[1:], s.ravel()[-1]).reshape(s.shape)), "scale_of_next_tile", {}),
    "row stride of scales without the tile at the end": (ODD, odd_rows(ODD, stride=3), "scale_row_stride", {}),
    "scale of the previous row": (X, group(X, used=lambda s: np.concatenate([s[:1], s[:-1]])), "scale_of_previous_row", {}),
    "one tile from its neighbor": (X, one_tile_of_its_neighbor(X), "tile_of_left_neighbor", {}),
    "codes transposed": (X, with_(group(X), lambda c: np.ascontiguousarray(c.T)), "codes_transposed", {}),
    "pairs swapped": (X, with_(mx(X, e2m1, largest=F(6)), lambda c: packed(c[:, ::-1])[:, ::-1]), "pairs_swapped", {}),
    "pairs of halves": (X, with_(mx(X, e2m1, largest=F(6)), lambda c: c[:, :256] | c[:, 256:] << 4), "pairs_of_halves", {}),
    "bytes swapped in pairs": (X, with_(group(X), lambda c: c.reshape(64, -1, 2)[:, :, ::-1].reshape(64, -1)), "bytes_swapped_2", {}),
    "bytes swapped in words": (X, with_(group(X), lambda c: c.reshape(64, -1, 4)[:, :, ::-1].reshape(64, -1)), "bytes_swapped_4", {}),
    "codes one late": (X, with_(group(X), lambda c: np.roll(c.ravel(), 1)), "codes_one_late", {}),
    "tail not written": (X[:, :500], with_(tensorwise(np.ascontiguousarray(X[:, :500])), lambda c: unwritten(c, columns=4)), "columns_unwritten", {}),
    "last rows not written": (X, with_(group(X), lambda c: unwritten(c, rows=3)), "rows_unwritten", {}),
    "scales stored inverted": (X, with_(group(X), scales=lambda s: F(1) / s), "stored_inverted", {}),
    "scales stored transposed": (X, with_(mx(X), scales=lambda s: np.ascontiguousarray(s.T)), "stored_transposed", {}),
    "scales swizzled": (X, with_(mx(X), scales=swizzled), "stored_swizzled", {}),
    "scales stored one late": (X, with_(mx(X), scales=lambda s: np.roll(s.ravel(), 1)), "stored_one_late", {}),
    "tail of scales not written": (X, with_(group(X), scales=lambda s: with_last(s, [0] * 12)), "stored_end_unwritten", {}),
    "tail of scales with a fill pattern": (X, with_(mx(X), scales=lambda s: with_last(s, [0xCD] * 40)), "stored_end_unwritten", {}),
    "tail of scales with what was there": (X, with_(group(X), scales=lambda s: with_last(s, group(tensor(seed=9))[1].ravel()[-20:])), "stored_end_unwritten", {}),
    "tail of NVFP4's scales not written": (X, (NVFP4[0], with_last(NVFP4[1], [0] * 32)), "stored_end_unwritten", {"tensor_scale": NVFP4[2]}),
    "amax stored": (X, with_(group(X), scales=lambda s: np.maximum(amax_of(X, 128), F(1e-4))), "stored_amax", {}),
    "bytes of scales reversed": (X, with_(group(X), scales=lambda s: s.byteswap()), "stored_bytes_reversed", {}),
    "stale scale": (X, (tensorwise(X, amax=F(7.3))[0], None), "scale_stale", {}),
    "stale scale, expected": (X, tensorwise(X, amax=F(7.3)), "scale_as_stored|scale_stale", {"expected": "te_current_scaling"}),
    "stale scales of tiles": (X, group(X, amax=amax_of(tensor(seed=9), 128)), "scale_as_stored", {}),
    "codes in tiles of 128 x 4": (TALL, with_(group(TALL), lambda c: c.reshape(2, 4, 32, 64, 4).transpose(0, 3, 2, 1, 4).ravel()), "codes_tiled_128x4", {}),
    "codes in core matrices": (TALL, with_(group(TALL), lambda c: core_matrices(c, False)), "codes_tiled_8x16$|codes_tiled_8x16 ", {}),
    "codes in core matrices, down": (TALL, with_(group(TALL), lambda c: core_matrices(c, True)), "codes_tiled_8x16_down", {}),
    "codes of FP4 in core matrices": (TALL, with_(mx(TALL, e2m1, largest=F(6)), lambda c: core_matrices(packed(c), True)), "codes_tiled_8x16_down", {}),
    "codes with the swizzle of 128 bytes": (X, with_(group(X), lambda c: address_swizzled(c, 0x70)), "codes_swizzled_128", {}),
    "codes with the swizzle of 64 bytes": (X, with_(mx(X, e2m1, largest=F(6)), lambda c: address_swizzled(packed(c), 0x30)), "codes_swizzled_64", {}),
    "codes with the swizzle of 32 bytes": (X, with_(group(X), lambda c: address_swizzled(c, 0x10)), "codes_swizzled_32", {}),
    "columns interleaved": (X, with_(group(X), interleaved), "columns_interleaved", {}),
    "columns deinterleaved": (X, with_(group(X), lambda c: np.concatenate([c[:, 0::2], c[:, 1::2]], 1)), "columns_deinterleaved", {}),
    "rows interleaved": (X, with_(group(X), lambda c: interleaved(c.T).T), "rows_interleaved", {}),
    "rows deinterleaved": (X, with_(group(X), lambda c: np.concatenate([c[0::2], c[1::2]])), "rows_deinterleaved", {}),
    "given scale of an NVFP4 tensor": (X, STALE_NVFP4[:2], "tensor_scale_given", {"tensor_scale": STALE_NVFP4[2]}),
    "given scale of an NVFP4 tensor, its inverse": (X, STALE_NVFP4[:2], "tensor_scale_given", {"tensor_scale": F(1) / STALE_NVFP4[2]}),
    "stale scale of an NVFP4 tensor, not given": (X, STALE_NVFP4[:2], "tensor_scale_stale", {}),
    "a largest value of 480 that is not clamped": (X, group(X, largest=F(480), cast=saturating_not), "cuda_nosat.*largest_of_value", {}),
    "a largest value of 480 that is not clamped, of four": (FOUR, group(FOUR, size=4, largest=F(480), cast=saturating_not), "cuda_nosat.*largest_of_value", {}),
    "quantized before": (X, group(quantized_before(X)), "input_quantized", {"expected": "deepseek_v3_2024"}),
    "scale squared": (X, group(X, used=lambda s: s * s), "scale_squared", {}),
    "scale met twice": (X, group(X, times=lambda x, f: (x / f).astype(F) / f), "scale_met_twice|scale_squared", {}),
    "scale stored squared": (X, with_(group(X), scales=lambda s: s * s), "stored_squared", {}),
    "scale squared everywhere": (X, group(X, after=lambda s: s * s), "scale_inv_squared", {}),
    "two rows exchanged": (SPARSE, with_(group(SPARSE), lambda c: exchanged(c, 3, 11)), "rows_exchanged", {}),
    "rows exchanged": (SPARSE, with_(group(SPARSE), exchanged), "rows_exchanged", {}),
    "rows exchanged, and scales": (SPARSE, with_(group(SPARSE), exchanged, exchanged), "rows_and_scales_exchanged", {}),
    "the carry is ORed into the exponent": (HALVES, (with_carry_ored(HALVES), None), "nearest_away.*carry_lost", {}),
    "the scale of half a block": (X, halves_of_blocks(X), "tiles are 1 x 16.*stored_of_some", {"expected": "te_mxfp8"}),
    "scales of the rows 64 above": (TALL, group(TALL, used=lambda s: from_above(s, 64)), "scale_of_other_row", {}),
    "scales of the last rows from 64 above": (TALL, group(TALL, used=lambda s: from_above(s, 64, 192)), "scale_of_other_row", {}),
    "scales stored of the rows 64 above": (TALL, with_(mx(TALL), scales=lambda s: from_above(s, 64, goes_round=True)), "stored_of_other_row", {"expected": "te_mxfp8"}),
    "scales made of the rows 64 above": (TALL, group(TALL, after=lambda s: from_above(s, 64)), "tile_of_other_row", {"expected": "deepseek_v3_2024"}),
    "E5M2 in place of E4M3": (X, tensorwise(X, cast=e5m2), "format is e5m2|largest_of_e4m3", {}),
}  # fmt: skip
