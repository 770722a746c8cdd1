# SPDX-License-Identifier: Apache-2.0
"""Norms beside those of NVIDIA's kernels on an H200 (tests/vectors/device/README.md).

With ``functions="hopper"`` results, means and reciprocal deviations are the device's. Without it fp8lab rounds the reciprocal root correctly and adds in an order of its own, the kernels take CUDA's rsqrtf, of which the
CUDA programming guide says 2 ulp, and add as their tiles lie. In a type of 16 bits an output may then be the neighbouring
word, where its exact value is near the middle of two; more would be another formula.
"""

import sys
from collections import Counter
from pathlib import Path

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
VECTORS = Path(__file__).parents[1] / "vectors" / "device" / "h200_norms.npz"
sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import drawn, normal  # noqa: E402


def ordered(words):
    """Words of 16 bits as integers in the order of their values."""
    unsigned = words.view(np.uint16).astype(np.int32)
    return np.where(unsigned >> 15, -(unsigned & 0x7FFF), unsigned & 0x7FFF)


def words_of(array, dtype):
    tensor = torch.from_numpy(np.asarray(array, np.float32)) if not isinstance(array, torch.Tensor) else array
    return tensor.to(dtype).contiguous().view(torch.int16).numpy().reshape(-1)


def computed(kind, dtype, rows, hidden, zero_centered):
    def tensor(values):
        return torch.from_numpy(values).to(dtype)

    x = tensor(normal(40 + rows, (rows, hidden)))
    x[1] *= 30
    w, b, dz = tensor(drawn(41, (hidden,))), tensor(drawn(42, (hidden,))), tensor(drawn(43, (rows, hidden)))
    given = {"zero_centered_gamma": zero_centered}
    if kind == "layer":
        y, mean, rsigma = fp8lab.operators.layernorm(x, w, b, eps=1e-5, **given)
        dx, dgamma, dbeta = fp8lab.operators.layernorm_backward(dz, x, mean, rsigma, w, **given)
        return {"y": y, "dx": dx, "dgamma": dgamma, "dbeta": dbeta}
    y, rsigma = fp8lab.operators.rmsnorm(x, w, eps=1e-5, **given)
    dx, dgamma = fp8lab.operators.rmsnorm_backward(dz, x, rsigma, w, **given)
    return {"y": y, "dx": dx, "dgamma": dgamma}


def test_norms_beside_those_of_an_h200():
    recorded = np.load(VECTORS)
    calls = sorted({tuple(name.split("/")[:4]) for name in recorded.files})
    assert len(calls) == 46
    words, other = Counter(), Counter()
    for kind, type_name, shape, centered in calls:
        rows, hidden = map(int, shape.split("x"))
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[type_name]
        for part, made in computed(kind, dtype, rows, hidden, centered == "True").items():
            expected = recorded[f"{kind}/{type_name}/{shape}/{centered}/{part}"]
            own = words_of(made, dtype)[: expected.size]
            distance = np.abs(ordered(own) - ordered(expected))
            assert distance.max() <= 1, (kind, type_name, shape, centered, part)
            words[part] += expected.size
            other[part] += int((distance != 0).sum())
    assert words == {"y": 46 * 1024, "dx": 46 * 1024, "dgamma": 7584, "dbeta": 3792}
    assert other == {"y": 1, "dx": 3, "dgamma": 4, "dbeta": 0}


def test_with_hoppers_functions_every_word_is_an_h200s():
    recorded = np.load(VECTORS)
    words = Counter()
    for kind, type_name, shape, centered in sorted({tuple(name.split("/")[:4]) for name in recorded.files}):
        rows, columns = map(int, shape.split("x"))
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[type_name]

        def tensor(values, dtype=dtype):
            return torch.from_numpy(values).to(dtype)

        x = tensor(normal(40 + rows, (rows, columns)))
        x[1] *= 30
        given = {"eps": 1e-5, "zero_centered_gamma": centered == "True", "functions": "hopper"}
        key = f"{kind}/{type_name}/{shape}/{centered}"
        if kind == "layer":
            w, b = tensor(drawn(41, (columns,))), tensor(drawn(42, (columns,)))
            y, mean, rsigma = fp8lab.operators.layernorm(x, w, b, **given)
            assert (np.asarray(mean).view(np.int32) == recorded[f"{key}/mu"]).all(), key
        else:
            y, rsigma = fp8lab.operators.rmsnorm(x, tensor(drawn(41, (columns,))), **given)
        assert (np.asarray(rsigma).view(np.int32) == recorded[f"{key}/rs"]).all(), key
        expected = recorded[f"{key}/y"]
        assert (words_of(y, dtype)[: expected.size] == expected).all(), key
        words.update(y=expected.size, rsigma=rows)
    assert words == {"y": 46 * 1024, "rsigma": 46 * 64}


def test_hoppers_functions_are_refused_where_they_are_not_known():
    x = np.ones((4, 2049), np.float32)
    with pytest.raises(ValueError, match="functions of hopper are known for at most 2048 columns"):
        fp8lab.operators.rmsnorm(x, x[0], functions="hopper")
    few = x[:, :16].copy()
    with pytest.raises(ValueError, match="functions must be correctly_rounded for adam_update, whose sums"):
        fp8lab.operators.adam_update(few, few.copy(), few.copy(), few.copy(), lr=0.1, step=1, functions="hopper")
    with pytest.raises(ValueError, match="functions must be correctly_rounded for rmsnorm_backward"):
        fp8lab.operators.rmsnorm_backward(few, few, few[:, 0].copy(), few[0], functions="hopper")


def lanes_of(x, elements):
    """[element][row][lane]: what a lane of a warp reads of each row, in its order; zeros behind the last column."""
    rows, columns = x.shape
    padded = np.pad(x, ((0, 0), (0, -columns % (32 * elements))))
    return padded.reshape(rows, -1, 32, elements).transpose(1, 3, 0, 2).reshape(-1, rows, 32)


def sum_of_lanes(lanes):
    for step in (1, 2, 4, 8, 16):
        lanes = lanes + lanes[:, np.arange(32) ^ step]
    return lanes[:, 0]


def test_layernorms_statistics_are_those_of_an_h200():
    """By the kernel's order of sums (common/normalization of Transformer Engine 2.20) and the unit's reciprocal root."""
    recorded = np.load(VECTORS)
    calls = [name.split("/")[1:4] for name in recorded.files if name.startswith("layer/") and name.endswith("/mu")]
    assert len(calls) == 23
    for type_name, shape, centered in calls:
        rows, columns = map(int, shape.split("x"))
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[type_name]
        tensor = torch.from_numpy(normal(40 + rows, (rows, columns))).to(dtype)
        tensor[1] *= 30
        elements = 4 if columns <= 128 else 8
        x, exists = (lanes_of(one, elements) for one in (tensor.float().numpy(), np.ones((rows, columns), np.float32)))
        total = np.zeros((rows, 32), np.float32)
        for term in x:
            total = total + term
        share = np.float32(1) / np.float32(columns)
        mean = sum_of_lanes(total) * share
        squares = np.zeros((rows, 32), np.float32)
        for term, there in zip(x, exists):
            step = (term - mean[:, None]).astype(np.float64)  # float64 has the square, and the sum but for ties
            squares = np.where(there == 1, (step * step + squares).astype(np.float32), squares)
        variance = (sum_of_lanes(squares).astype(np.float64) * share + np.float32(1e-5)).astype(np.float32)
        key = f"layer/{type_name}/{shape}/{centered}"
        assert (mean.view(np.int32) == recorded[f"{key}/mu"]).all(), key
        assert (fp8lab.special_function("rsqrt", variance).view(np.int32) == recorded[f"{key}/rs"]).all(), key
