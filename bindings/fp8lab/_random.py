# SPDX-License-Identifier: Apache-2.0
"""The random streams of PyTorch on the CPU and on CUDA devices, word for word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, check_choice, check_int, check_list, check_real, empty
from fp8lab._entry import guard as _guard
from fp8lab._operator_arrays import OUT_DTYPES
from fp8lab.literals import OutDtypeName

__all__ = [
    "philox4x32",
    "torch_cpu_uniform",
    "torch_cuda_normal",
    "torch_cuda_uniform",
]

_WORD = 2**32 - 1
_LONG = 2**64 - 1
_INT = 2**31 - 1
_MOST_DIMENSIONS = 32  # how many dimensions an array may have in every version of NumPy


def _empty(shape: int | Sequence[int]) -> Array:
    sizes = check_list(shape, "shape", lambda size, argument: check_int(size, argument, 0, _INT))
    if len(sizes) > _MOST_DIMENSIONS:
        raise ValueError(f"shape must have at most {_MOST_DIMENSIONS} dimensions, not {len(sizes)}")
    return empty(sizes, np.float32)


def _words(values: Sequence[int], argument: str, count: int) -> list[int]:
    words = check_list(values, argument, lambda word, name: check_int(word, name, 0, _WORD))
    if len(words) != count:
        raise ValueError(f"{argument} must be {count} words, not {len(words)}")
    return words


def philox4x32(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """The Philox4x32-10 bijection: four 32-bit words of a counter (4 words) and a key (2 words).

    Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    words = _core.philox4x32(_words(counter, "counter", 4), _words(key, "key", 2))
    return (words[0], words[1], words[2], words[3])


def torch_cpu_uniform(shape: int | Sequence[int], *, seed: int) -> Array:
    """What ``torch.manual_seed(seed); torch.rand(shape)`` draws on the CPU, without torch.

    Parameters
    ----------
    shape : int or sequence of int
    seed : int
        From 0 to 2^64 - 1; as in PyTorch, its low 32 bits count.

    Returns
    -------
    ndarray of float32
        In [0, 1), multiples of 2^-24, from the Mersenne Twister MT19937.
    """
    out = _empty(shape)
    _core.torch_cpu_uniform(out, check_int(seed, "seed", 0, _LONG))
    return out


def torch_cuda_uniform(
    shape: int | Sequence[int],
    *,
    low: float = 0.0,
    high: float = 1.0,
    dtype: OutDtypeName = "float32",
    seed: int,
    offset: int = 0,
    sms: int = 114,
    blocks_per_sm: int = 8,
) -> Array:
    """What ``tensor.uniform_(low, high)`` draws on a CUDA device, without the device.

    Parameters
    ----------
    shape : int or sequence of int
        At most 2 GiB of float32.
    low, high : float
        The bounds, low at most high; they and their difference are rounded to the dtype.
    dtype : {"float32", "float16", "bfloat16"}
        The element type of the tensor.
    seed, offset : int
        The state of the CUDA generator; ``torch.cuda.manual_seed`` sets offset 0. A multiple of 4.
    sms : int
        Streaming multiprocessors of the device (H100 PCIe: 114, H100 SXM: 132).
    blocks_per_sm : int
        Resident threads of an SM over 256: 8 on V100, A100 and H100.

    Returns
    -------
    ndarray of dtype
        In [low, high): low + u (high - low), rounded to float32 once and then to the dtype.
    """
    out = _empty(shape)
    name = check_choice(dtype, "dtype", OUT_DTYPES)
    _core.torch_cuda_uniform(
        out,
        check_real(low, "low"),
        check_real(high, "high"),
        name,
        check_int(seed, "seed", 0, _LONG),
        check_int(offset, "offset", 0, _LONG),
        check_int(sms, "sms", 1, _INT),
        check_int(blocks_per_sm, "blocks_per_sm", 1, _INT),
    )
    if name == "float32":
        return out
    narrow = empty(out.shape, name)
    narrow[...] = out  # numbers that the type has
    return narrow


def torch_cuda_normal(
    shape: int | Sequence[int],
    *,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int,
    offset: int = 0,
    sms: int = 114,
    blocks_per_sm: int = 8,
) -> Array:
    """What a float32 ``tensor.normal_(mean, std)`` draws on a CUDA device, without the device.

    The device computes sine and cosine approximately; single values may differ by a few units in the last place.

    Parameters
    ----------
    shape, seed, offset, sms, blocks_per_sm
        As for ``torch_cuda_uniform``.
    mean, std : float

    Returns
    -------
    ndarray of float32
    """
    out = _empty(shape)
    _core.torch_cuda_normal(
        out,
        check_real(mean, "mean"),
        check_real(std, "std"),
        check_int(seed, "seed", 0, _LONG),
        check_int(offset, "offset", 0, _LONG),
        check_int(sms, "sms", 1, _INT),
        check_int(blocks_per_sm, "blocks_per_sm", 1, _INT),
    )
    return out


_guard(__name__, __all__)
