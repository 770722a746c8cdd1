# SPDX-License-Identifier: Apache-2.0
"""Activations of all words of 16 bits as NVIDIA's kernels computed them on an H200 (tests/vectors/device/README.md)."""

import sys
from collections import Counter
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
    keys = [key for key in sorted(recorded.files) if not key.startswith("scaled_")]
    assert len(keys) == 102
    for key in sampled(keys, 17):
        name, type_name, *place = key.split("/")
        assert digest(words_of(computed(name, type_name, *(place or [None])))) == recorded[key], key


#: Of each function: the activation, and the seed and the columns of the gradient.
SCALED = {"scaled_dswiglu": ("swiglu", 27, 256), "scaled_dsrelu": ("srelu", 29, 512)}


def test_gradients_of_rows_scales_are_an_h200s():
    recorded, others = np.load(VECTORS), Counter()
    for key, (name, seed, columns) in SCALED.items():
        for type_name in ("bf16", "fp32"):
            x, grad = (
                torch.from_numpy(drawn(*one)).to(TYPES[type_name])
                for one in ((26, (256, 512), 10.0), (seed, (256, columns)))
            )
            for functions in ("hopper", "correctly_rounded"):
                dx, sums = fp8lab.operators.scaled_activation_backward(
                    name, grad, x, drawn(28, (256,), 2.0), functions=functions
                )
                others[functions] += int((sums.view(np.int32) != recorded[f"{key}/{type_name}.1"]).sum())
                if functions == "hopper":
                    assert digest(words_of(dx)) == recorded[f"{key}/{type_name}.0"], key
    assert others["hopper"] == 0
    assert others["correctly_rounded"] > 4 * 128


def added_lanes(lanes):
    for step in (16, 8, 4, 2, 1):
        lanes = lanes[..., :step] + lanes[..., step : 2 * step]
    return lanes[..., 0]


def added_up(grad, values, load, threads):
    """The kernel's sum of rows, played for all threads at once; float64 has the product, and the sum but for ties."""
    rows, columns = grad.shape
    padding = ((0, 0), (0, -columns % (threads * load)))
    left, right = (np.pad(one, padding).reshape(rows, -1, threads, load).astype(np.float64) for one in (grad, values))
    total = np.zeros((rows, threads), np.float32)
    for turn in range(left.shape[1]):
        for i in range(load):
            total = (left[:, turn, :, i] * right[:, turn, :, i] + total).astype(np.float32)
    warps = added_lanes(total.reshape(rows, -1, 32))
    return added_lanes(np.pad(warps, ((0, 0), (0, 32 - warps.shape[1]))))


@pytest.mark.parametrize(
    ("type_name", "columns", "interleave", "load", "threads"),
    [("bf16", 300, 0, 1, 256), ("fp32", 256, 32, 8, 32), ("fp16", 8192, 0, 16, 256), ("bf16", 1040, 0, 16, 96)],
)
def test_gradients_of_other_rows_scales_are_the_kernel_played_thread_by_thread(
    type_name, columns, interleave, load, threads
):
    """No device has been asked for these columns: several turns, single elements, segments."""
    dtype = TYPES[type_name]
    x = torch.from_numpy(drawn(31, (7, 2 * columns), 6.0)).to(dtype)
    grad = torch.from_numpy(drawn(32, (7, columns))).to(dtype)
    given = {"interleave": interleave, "functions": "hopper"}
    ones = np.ones(7, np.float32)
    _, sums = fp8lab.operators.scaled_activation_backward("swiglu", grad, x, ones, **given)
    values = fp8lab.operators.scaled_activation("swiglu", x, ones, out_dtype="float32", **given)
    expected = added_up(grad.float().numpy(), values, load, threads)
    assert (sums.view(np.int32) == expected.view(np.int32)).all()


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
