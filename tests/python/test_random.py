# SPDX-License-Identifier: Apache-2.0
from fractions import Fraction

import fp8lab
import ml_dtypes
import numpy as np
import pytest


def test_cpu_uniform_words_of_torch():
    # Printed by PyTorch 2.13.0: torch.manual_seed(0); torch.rand(4).view(torch.int32).
    words = fp8lab.torch_cpu_uniform(4, seed=0).view(np.uint32)
    assert words.tolist() == [1056839000, 1061464623, 1035285416, 1040659200]


def test_cpu_uniform_equals_installed_torch():
    torch = pytest.importorskip("torch")
    for seed in (0, 12345, 2**63 + 5):
        torch.manual_seed(seed)
        np.testing.assert_array_equal(fp8lab.torch_cpu_uniform((33, 7), seed=seed), torch.rand(33, 7).numpy())


def test_philox_known_answer_and_its_place_in_the_stream():
    assert fp8lab.philox4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    sms, blocks = 2, 1  # 512 threads: element 512 is word 1 of thread 0's first call
    stream = fp8lab.torch_cuda_uniform(1024, seed=3, sms=sms, blocks_per_sm=blocks)
    word = fp8lab.philox4x32((0, 0, 0, 0), (3, 0))[1]
    assert stream[512] == np.float32(word * 2.0**-32 + 2.0**-33)
    np.testing.assert_array_equal(
        fp8lab.torch_cuda_uniform(4, seed=3, offset=4)[:1],
        [np.float32(fp8lab.philox4x32((1, 0, 0, 0), (3, 0))[0] * 2.0**-32 + 2.0**-33)],
    )


def _nearest(exact: Fraction) -> np.float32:
    """The float32 number next to a rational one, the even one of two."""
    near = np.float32(float(exact))
    around = [np.nextafter(near, -np.float32(np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(around, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.uint32)) & 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-(48**-0.5), 48**-0.5), (-0.3, 1.7), (3.0, 3.01), (2.0, 2.0)])
def test_a_cuda_uniform_between_bounds_by_rational_numbers(dtype, low, high):
    """The bounds and their difference in the type, one rounding to float32, one to the type, and high becomes low."""
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).type
    found = fp8lab.torch_cuda_uniform(4000, low=low, high=high, dtype=dtype, seed=7)
    u = [_nearest(Fraction(int(np.float32(word)), 2**32) + Fraction(1, 2**33)) for word in _words_of_stream(4000, 7)]
    start, end = kind(low), kind(high)
    width = Fraction(float(end - start))
    near = np.array([_nearest(Fraction(float(one)) * width + Fraction(float(start))) for one in u]).astype(kind)
    np.testing.assert_array_equal(found, np.where(near == end, start, near))
    assert found.dtype == kind


def _words_of_stream(count: int, seed: int) -> list[int]:
    """The words of a tensor that one wave of blocks of 256 threads covers, four words a thread."""
    threads = -(-count // 256) * 256
    calls = [fp8lab.philox4x32((0, 0, thread, 0), (seed, 0)) for thread in range(threads)]
    return [calls[i % threads][i // threads] for i in range(count)]


def test_cuda_normal_moments_and_shape():
    x = fp8lab.torch_cuda_normal((512, 512), mean=1.0, std=2.0, seed=9)
    assert x.shape == (512, 512) and x.dtype == np.float32
    assert abs(x.mean() - 1) < 5 * 2 / 512  # five standard errors
    assert abs(x.std() - 2) < 5 * 2 / (512 * 2**0.5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fp8lab.torch_cpu_uniform(3, seed=-1), ValueError, "seed must be from 0"),
        (lambda: fp8lab.torch_cpu_uniform(-3, seed=1), ValueError, "shape must be from 0"),
        (lambda: fp8lab.torch_cpu_uniform(3.5, seed=1), TypeError, "shape must be an int, not 3.5"),
        (lambda: fp8lab.torch_cpu_uniform(None, seed=1), TypeError, "shape must be an int, not NoneType"),
        (lambda: fp8lab.torch_cuda_uniform(3, seed=1, offset=2), ValueError, "offset must be a multiple of 4"),
        (lambda: fp8lab.torch_cuda_uniform(3, seed=1, low=2), ValueError, "low must be at most high.* not 2 and 1"),
        (lambda: fp8lab.torch_cuda_uniform(3, seed=1, high=float("inf")), ValueError, "not 0 and inf"),
        (lambda: fp8lab.torch_cuda_uniform(3, seed=1, high=7e4, dtype="float16"), ValueError, "finite in the type"),
        (
            lambda: fp8lab.torch_cuda_uniform(3, seed=1, dtype="float64"),
            ValueError,
            "unknown dtype 'float64'; known: float32, float16, bfloat16",
        ),
        (lambda: fp8lab.torch_cuda_normal(3, seed=1, sms=0), ValueError, "sms must be from 1"),
        (lambda: fp8lab.torch_cuda_normal(3, seed=1, std="x"), TypeError, "std must be a number"),
        (lambda: fp8lab.philox4x32((0, 0), (0, 0)), ValueError, "counter must be 4 words, not 2"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
