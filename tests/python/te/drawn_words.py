# SPDX-License-Identifier: Apache-2.0
"""Operands of device_words.py, by integers and exact steps, so that they are the same on every machine."""

import numpy as np


def words_of(count: int, seed: int) -> np.ndarray:
    """Well mixed words of 32 bits."""
    h = np.arange(count, dtype=np.uint32)
    h *= np.uint32(2654435761)
    h += np.uint32(seed * 0x9E3779B9 % 2**32)
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39), (15, 1)):
        h ^= h >> np.uint32(shift)
        h *= np.uint32(factor)
    return h


def hashed(count: int, seed: int) -> np.ndarray:
    """The same as uint64."""
    return words_of(count, seed).astype(np.uint64)


def uniform(count: int, seed: int) -> np.ndarray:
    """Multiples of 2^-23 in [-1, 1)."""
    return (words_of(count, seed) >> np.uint32(8)) * 2.0**-23 - 1.0


def drawn(seed: int, shape, scale: float = 1.0, wide: bool = False) -> np.ndarray:
    """Values in [-scale, scale), float32; wide: of many binades."""
    count = int(np.prod(shape))
    values = uniform(count, seed) * scale
    if wide:
        values *= np.exp2((words_of(count, seed + 1000) % np.uint32(13)).astype(np.float64) - 8)
    return values.astype(np.float32).reshape(shape)


def normal(seed: int, shape, scale: float = 1.0) -> np.ndarray:
    """Sums of four uniform numbers, some of them outliers, float32."""
    count = int(np.prod(shape))
    total = sum((words_of(count, seed * 4 + i + 77) >> np.uint32(8)).astype(np.int32) for i in range(4))  # 26 bits
    total = total * 2.0**-23 - 4.0
    total[words_of(count, seed + 5) % np.uint32(61) == 0] *= 16
    return (total * scale).astype(np.float32).reshape(shape)


def digest(words: np.ndarray) -> np.uint64:
    """A sum over words and their places, modulo 2^64."""
    flat = words.reshape(-1)
    with np.errstate(over="ignore"):
        x = flat.view(f"uint{flat.itemsize * 8}").astype(np.uint64) ^ (
            np.arange(flat.size, dtype=np.uint64) << np.uint64(32)
        )
        x = x * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(29)
        x = x * np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(32)
        return np.uint64(x.sum(dtype=np.uint64))
