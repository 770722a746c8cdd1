# SPDX-License-Identifier: Apache-2.0
import fp8lab
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
        (lambda: fp8lab.torch_cuda_normal(3, seed=1, sms=0), ValueError, "sms must be from 1"),
        (lambda: fp8lab.torch_cuda_normal(3, seed=1, std="x"), TypeError, "std must be a number"),
        (lambda: fp8lab.philox4x32((0, 0), (0, 0)), ValueError, "counter must be 4 words, not 2"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
