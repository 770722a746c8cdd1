# SPDX-License-Identifier: Apache-2.0
"""The rotary position embedding as NVIDIA's kernels computed it on an H200 (tests/vectors/device/README.md)."""

import sys
from pathlib import Path

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
VECTORS = Path(__file__).parents[1] / "vectors" / "device" / "h200_te_rope.npz"
sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import digest, drawn  # noqa: E402

operators = fp8lab.operators
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def tensor(seed, shape, dtype, scale=1.0):
    return torch.from_numpy(drawn(seed, shape, scale)).to(dtype)


def words_of(array):
    return array.view(np.int32 if array.dtype.itemsize == 4 else np.int16).reshape(-1)


def check(recorded, key, made):
    """Both the first words and the digest of all of them."""
    words = words_of(np.ascontiguousarray(made))
    first = recorded[f"{key}#first"]
    assert (words[: first.size] == first).all(), key
    assert digest(words) == recorded[f"{key}#digest"], key
    return words.size


def turned(call, functions):
    """The embedding and its gradient, of the operands of device_words.py."""
    type_name, share, interleaved, layout = call
    dtype, angles = TYPES[type_name], drawn(62, (40, 1, 1, int(64 * float(share))), 40.0)
    shape = (40, 2, 3, 64) if layout == "sbhd" else (2, 40, 3, 64)
    given = {"tensor_format": layout, "interleaved": interleaved == "True", "functions": functions}
    y = operators.rope(tensor(60, shape, dtype, 2.0), angles, **given)
    return y, operators.rope_backward(tensor(61, shape, dtype), angles, **given)


def test_every_word_is_an_h200s():
    recorded = np.load(VECTORS)
    calls = sorted({tuple(name.split("#")[0].split("/")[1:]) for name in recorded.files if name.startswith("rope/")})
    assert len(calls) == 48
    words = 0
    for *call, part in calls:
        layout, number = part.split(".")
        made = turned((*call, layout), "hopper")[int(number)]
        words += check(recorded, "/".join(("rope", *call, part)), made)
    assert words == 48 * 40 * 2 * 3 * 64


def test_every_word_of_query_key_and_value_together_is_an_h200s():
    recorded = np.load(VECTORS)
    words = 0
    for type_name, dtype in TYPES.items():
        for interleaved in (False, True):
            angles, widths = drawn(62, (40, 1, 1, 64), 40.0), [128, 64, 64]
            given = {"interleaved": interleaved, "functions": "hopper"}
            made = operators.rope_qkv(tensor(415, (40, 2, 2, 256), dtype, 2.0), widths, angles, angles, **given)
            grads = tuple(tensor(416 + i, one.shape, dtype) for i, one in enumerate(made))
            dqkv = operators.rope_qkv_backward(grads, widths, angles, angles, **given)
            for i, one in ((0, made[0]), (1, made[1]), (3, dqkv)):
                words += check(recorded, f"qkv_rope/{type_name}/{interleaved}.{i}", one)
    assert words == 3 * 2 * 40 * 2 * 2 * (128 + 64 + 256)


def test_sines_that_are_rounded_correctly_have_other_words():
    recorded = np.load(VECTORS)
    y, dx = turned(("fp32", "1.0", "False", "sbhd"), "correctly_rounded")
    others = [
        int((words_of(one)[:4096] != recorded[f"rope/fp32/1.0/False/sbhd.{i}#first"]).sum())
        for i, one in enumerate((y, dx))
    ]
    assert others == [806, 798]
