# SPDX-License-Identifier: Apache-2.0
"""Float32 arithmetic of the ports, on NumPy arrays: an operation, one rounding."""

from typing import NamedTuple

import numpy as np
import torch

F = np.float32
MAX8, MAX4 = F(448), F(6)
FLT_MAX = np.finfo(F).max


class Result(NamedTuple):
    """A quantizer's output: one code for each element, and the scales of the tiles as they are stored."""

    codes: np.ndarray
    scales: np.ndarray


def _magnitudes(exponent_bits: int, mantissa_bits: int, bias: int, count: int) -> np.ndarray:
    code = np.arange(count)
    exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    fraction = np.where(exponent > 0, (1 << mantissa_bits) + mantissa, mantissa)
    return (fraction * 2.0 ** (np.maximum(exponent, 1) - bias - mantissa_bits)).astype(F)


E4M3 = _magnitudes(4, 3, 7, 127)
E2M1 = _magnitudes(2, 1, 1, 8)
#: The finite magnitudes of each format by their codes, and the bit of the sign.
FORMATS = {
    "e4m3": (E4M3, 7),
    "e5m2": (_magnitudes(5, 2, 15, 124), 7),
    "e2m3": (_magnitudes(2, 3, 1, 32), 5),
    "e3m2": (_magnitudes(3, 2, 3, 32), 5),
    "e2m1": (E2M1, 3),
}


def nearest(values: np.ndarray, x: np.ndarray, ties: str = "even") -> np.ndarray:
    """The index of the nearest of ``values`` to |x|, by search among the midpoints; the largest above them, and for
    NaN."""
    middle = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(F)
    low = np.searchsorted(middle, np.abs(x), "left")
    if ties == "zero":
        return low.astype(np.uint8)
    high = np.searchsorted(middle, np.abs(x), "right")
    return np.where((low == high) | (low % 2 == 0), low, high).astype(np.uint8)


def signed(magnitude: np.ndarray, x: np.ndarray, bit: int) -> np.ndarray:
    return magnitude | (np.signbit(x).astype(np.uint8) << np.uint8(bit))


def q8(x: np.ndarray) -> np.ndarray:
    """E4M3 as NVIDIA's saturating instruction makes it: nearest even, infinities to the largest, NaN to 7F."""
    return np.where(np.isnan(x), np.uint8(0x7F), signed(nearest(E4M3, x), x, 7))


def q4(x: np.ndarray) -> np.ndarray:
    """E2M1 as NVIDIA's saturating instruction makes it: nearest even, infinities to the largest, NaN to 7."""
    return np.where(np.isnan(x), np.uint8(7), signed(nearest(E2M1, x), x, 3))


def codes_of_values(values: np.ndarray, format: str) -> np.ndarray:
    """The codes of values that a format has; of NaN that of all ones without the sign, also where a format has none."""
    table, bit = FORMATS[format]
    codes = signed(nearest(table, values), values, bit)
    return np.where(np.isnan(values), (1 << bit) - 1, codes).astype(np.uint8)


def value8(code: np.ndarray) -> np.ndarray:
    return np.append(E4M3, F(np.nan))[code & 0x7F]


def bits(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, F).view(np.uint32)


def of_bits(word: np.ndarray) -> np.ndarray:
    return np.asarray(word, np.uint32).view(F)


def rcp(x: np.ndarray) -> np.ndarray:
    return F(1) / np.asarray(x, F)


def ra(x: np.ndarray) -> np.ndarray:
    """What kernels take by rcp.approx.ftz. Its last bit is known to GPUs only: here it is IEEE's, and nothing is
    flushed."""
    return rcp(x)


def e8m0_up(x: np.ndarray) -> np.ndarray:
    """The byte of the least power of two that is not below x >= 0: 254 for what is larger, 255 for NaN."""
    word = bits(x)
    byte = np.minimum((word >> 23) + ((word & 0x7FFFFF) != 0), 254)
    subnormal = (word >> 23) == 0
    byte = np.where(subnormal, (word > 0x400000).astype(np.uint32), byte)
    return np.where(np.isnan(x), 255, byte).astype(np.uint8)


def power(byte: np.ndarray) -> np.ndarray:
    """2^(byte - 127)."""
    return np.ldexp(F(1), np.asarray(byte, np.int32) - 127)


def floats(x: torch.Tensor) -> np.ndarray:
    return x.float().numpy()


def rounded(x: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Float32 values rounded to a tensor's type, as float32."""
    return torch.from_numpy(np.ascontiguousarray(x, F)).to(dtype).float().numpy()


class Tiles:
    """A matrix as tiles: their amaxes, and what each tile shares, at every element."""

    def __init__(self, x: torch.Tensor, tile: tuple[int, int] | None):
        self.x, self.dtype = floats(x), x.dtype
        rows, columns = self.x.shape
        self.tile = tile or (rows, columns)
        self.grid = (rows // self.tile[0], columns // self.tile[1])
        self.tiled = self.x.reshape(self.grid[0], self.tile[0], self.grid[1], self.tile[1])

    def amax(self, nan: str = "drop") -> np.ndarray:
        """As fmaxf has it, without NaN; or "kept"."""
        reduce = np.fmax.reduce if nan == "drop" else np.maximum.reduce
        return reduce(np.abs(self.tiled), axis=(1, 3), initial=F(0))

    def at_elements(self, values: np.ndarray) -> np.ndarray:
        return np.repeat(np.repeat(values.reshape(self.grid), self.tile[0], axis=0), self.tile[1], axis=1)


def high_then_low(x: np.ndarray) -> np.ndarray:
    """fmaxf(-448, fminf(x, 448)), which makes +448 of NaN."""
    return np.fmax(-MAX8, np.fmin(x, MAX8))


def low_then_high(x: np.ndarray) -> np.ndarray:
    """fminf(448, fmaxf(x, -448)), which makes -448 of NaN."""
    return np.fmin(MAX8, np.fmax(x, -MAX8))


def torch_cast(x: np.ndarray) -> np.ndarray:
    """PyTorch's own cast: infinities saturate, a NaN keeps its sign."""
    return torch.from_numpy(np.ascontiguousarray(x)).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
