# SPDX-License-Identifier: Apache-2.0
"""The same check from pytest, for kernels that Python calls: python -m pytest test_kernel.py

Each kernel is a function from a float32 array (rows, columns) to uint8 codes and float32 scale_inv, one for 128
neighbours.
"""

import fp8lab
import numpy as np
import pytest
from fp8lab.pytest_plugin import assert_matches

BLOCK = 128
LARGEST = np.finfo(np.float32).max


def hard_input():
    """Draws in blocks of every magnitude, and what kernels forget: zeros of both signs, subnormals, infinity and
    NaN."""
    x = fp8lab.sample("normal", 256 * 1024, seed=1).reshape(-1, BLOCK)
    x = np.ldexp(x, np.arange(len(x))[:, None] % 270 - 150).astype(np.float32)
    x[0] = np.copysign(0, x[0])
    x[3, 5], x[4, 6] = np.nan, -np.inf
    return x.reshape(256, 1024)


def in_numpy(x, too_late=False):
    """What the kernel of triton_quantizer.py computes, in NumPy. ``too_late``: the scale is rounded for the memory
    only."""
    blocks = x.reshape(-1, BLOCK)
    with np.errstate(all="ignore"):
        amax = np.fmax.reduce(np.abs(blocks), axis=1, initial=np.float32(0))
        scale = np.minimum(np.float32(448) / amax, LARGEST)
        scale = np.where((amax > 0) & (amax <= LARGEST), scale, np.float32(1))
        rounded = (scale.view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
        scaled = blocks * (scale if too_late else rounded)[:, None]
        # E4M3 of |scaled|: 3 bits of mantissa from 2^-6 up, and steps of 2^-9 below, which are those of floats at 2^14.
        bits = np.abs(scaled).view(np.uint32)
        normal = ((bits + np.uint32(0x7FFFF) + (bits >> np.uint32(20) & np.uint32(1))) >> np.uint32(20)) - np.uint32(
            120 << 3
        )
        small = (np.abs(scaled) + np.float32(16384)).view(np.uint32) - np.float32(16384).view(np.uint32)
    codes = np.where(bits < 0x3C800000, small, np.minimum(normal, np.uint32(0x7E)))
    codes = np.where(bits >= 0x43E00000, np.uint32(0x7E), codes) | np.signbit(scaled) * np.uint32(0x80)
    codes = np.where(np.isnan(scaled), 0x7F, codes).astype(np.uint8)
    return codes.reshape(x.shape), (1 / rounded).reshape(x.shape[0], -1)


def in_triton(x):
    pytest.importorskip("triton")
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("no CUDA device")
    import triton_quantizer

    return triton_quantizer.quantize(x)


@pytest.mark.parametrize("kernel", [in_numpy, in_triton])
def test_a_kernel_gives_the_bits_of_fp8lab(kernel):
    x = hard_input()
    codes, scale_inv = kernel(x)
    assert_matches(x, codes, "te_block_1x128", scale_inv)


def test_a_scale_that_is_rounded_too_late_is_found():
    x = hard_input()
    codes, scale_inv = in_numpy(x, too_late=True)
    with pytest.raises(AssertionError, match="Different: 237978 of 262144 elements"):
        assert_matches(x, codes, "te_block_1x128", scale_inv)
