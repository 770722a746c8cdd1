# SPDX-License-Identifier: Apache-2.0
"""Activations of all words of 16 bits as NVIDIA's kernels computed them on an H200 (tests/vectors/device/README.md)."""

import sys
from pathlib import Path

import fp8lab
import numpy as np
import pytest
from sampled import sampled

torch = pytest.importorskip("torch")
VECTORS = Path(__file__).parents[1] / "vectors" / "device" / "h200_te_activations.npz"
sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import digest, drawn  # noqa: E402

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def tensor(seed, dtype, scale):
    return torch.from_numpy(drawn(seed, (256, 256), scale)).to(dtype)


def every16(dtype):
    words = torch.from_numpy(np.arange(65536, dtype=np.uint16).view(np.int16)).reshape(256, 256)
    return words.view(torch.bfloat16).float() if dtype == torch.float32 else words.view(dtype)


def operands(name, type_name, place):
    """What device_words.py makes: the input, and the gradient of the output."""
    dtype = TYPES[type_name]
    if place is None:
        return every16(dtype), tensor(20, dtype, 2.0)
    halves = [every16(dtype), tensor(23, dtype, 3.0)] if place == "a" else [tensor(24, dtype, 3.0), every16(dtype)]
    return torch.cat(halves, 1).contiguous(), tensor(25, dtype, 2.0)


def computed(name, type_name, place, out_dtype=None):
    x, grad = operands(name, type_name, place)
    given = {"functions": "hopper", "out_dtype": out_dtype}
    is_gradient = name not in [one.name for one in fp8lab.operators.activations()]
    if is_gradient:
        return fp8lab.operators.activation_backward(name[1:], grad, x, **given)
    return fp8lab.operators.activation(name, x, **given)


def words_of(array):
    return np.ascontiguousarray(array).view(f"int{array.dtype.itemsize * 8}").reshape(-1)


def test_every_word_is_an_h200s():
    recorded = np.load(VECTORS)
    assert len(recorded.files) == 102
    for key in sampled(sorted(recorded.files), 17):
        name, type_name, *place = key.split("/")
        assert digest(words_of(computed(name, type_name, *(place or [None])))) == recorded[key], key


def test_a_result_that_pytorch_rounds_gets_the_nan_of_an_h200():
    """As fp8lab.te does with what an operator gives in float32; PyTorch's own word of a NaN is the processor's."""
    from fp8lab.te.tensors import rounded

    recorded = np.load(VECTORS)
    for type_name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        wide = torch.from_numpy(computed("gelu", type_name, None, "float32"))
        own = rounded(wide, dtype).view(torch.int16).numpy()
        assert digest(own) == recorded[f"gelu/{type_name}"]
        others = np.where(np.isnan(wide.numpy()), np.int16(-1), own)
        assert digest(others) != recorded[f"gelu/{type_name}"]
