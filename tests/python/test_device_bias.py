# SPDX-License-Identifier: Apache-2.0
"""Gradients of biases in the order in which an H200 added them (tests/vectors/device/README.md).

Transformer Engine's calls are those of te/device_words.py; PyTorch's sums over rows those of test_device_sums.py.
"""

import dataclasses
import sys
from collections import Counter
from pathlib import Path

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from fp8lab.operators import (  # noqa: E402
    cast_transpose_row_sums,
    cast_transpose_thread_rows,
    cublaslt_row_sums,
    torch_row_sums,
)

VECTORS = Path(__file__).parents[1] / "vectors" / "device"
sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import digest, drawn, hashed, normal  # noqa: E402
from sampled import EXHAUSTIVE  # noqa: E402

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def tensor(values, name):
    return torch.from_numpy(values).to(TYPES[name])


def words_of(sums, name):
    made = tensor(sums, name)
    return made.view(torch.int32 if made.element_size() == 4 else torch.int16).numpy()


def summed(rows, scaling, name, has_activation):
    if scaling == "delayed":  # one kernel casts, transposes and adds what is not rounded
        return cast_transpose_row_sums(rows, item_size=TYPES[name].itemsize, has_activation=has_activation)
    return torch_row_sums(tensor(rows, name))


def test_gradients_of_biases_are_those_of_an_h200():
    recorded, words = np.load(VECTORS / "h200_te_bias.npz"), Counter()
    for key in recorded.files:
        call, scaling, name, shape = key.split("/")
        size = tuple(map(int, shape.split("x")))
        if call == "bgrad":
            rows = tensor(normal(7, size), name).float().numpy()
        else:
            x, grad = tensor(drawn(30, size, 5.0, wide=True), name), tensor(drawn(31, size), name)
            rows = fp8lab.operators.activation_backward(
                call.removeprefix("dbias_d"), grad, x, out_dtype="float32", functions="hopper"
            )
        own = words_of(summed(rows, scaling, name, call != "bgrad"), name)
        assert (own == recorded[key]).all(), key
        words[call == "bgrad", scaling, name] += own.size
    assert words == {(plain, scaling, name): 1616 if plain else 5 * 512
                     for plain in (True, False) for scaling in ("delayed", "current") for name in TYPES}  # fmt: skip


def test_gradients_beside_a_product_are_cublaslts():
    """h200_gemm_bias.npz: gradients of a bias that cuBLASLt 13.1 added beside a product of (M, K) and (N, K), by TYPE/NxK:
    digests of the first 512 elements, and of some all words."""
    recorded, words, products = np.load(VECTORS / "h200_gemm_bias.npz"), 0, 0
    for i, (key, expected) in enumerate(zip(str(recorded["names"]).split("\n"), recorded["digests"], strict=True)):
        name, shape = key.split("/")
        columns, rows = map(int, shape.split("x"))
        if not EXHAUSTIVE and (rows * columns > 2**18 or i % 2):
            continue
        x = tensor(np.ascontiguousarray(normal(941, (columns, rows)).T), name)
        own = fp8lab.operators.cublaslt_row_sums(x).view(np.int32)
        assert digest(own[:512]) == expected, key
        if key in recorded:
            assert (own == recorded[key]).all(), key
            if name == "fp32":  # another order
                assert (fp8lab.operators.torch_row_sums(x).view(np.int32) != own).mean() > 0.1
        if rows * columns <= 2**14:  # beside a product
            recipe = fp8lab.GemmRecipe("hopper_tf32" if name == "fp32" else "hopper_bf16", bias_gradient="of_a")
            ones = torch.ones(rows, 2, dtype=x.dtype)
            out, gradient = fp8lab.gemm(x, ones, recipe, layout="tn")
            plain = fp8lab.gemm(x, ones, dataclasses.replace(recipe, bias_gradient="none"), layout="tn")
            assert (gradient.view(np.int32) == own).all(), key
            assert (out == plain).all()
            products += 1
        words += own[:512].size
    assert words > 20_000
    assert products > 40


FORMATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "e4m3", "e5m2": "e5m2"}
MODELS = {"f16": "hopper_fp16", "bf16": "hopper_bf16", "e4m3": "hopper_wgmma_fp8", "e5m2": "hopper_wgmma_fp8"}


def as_operand(values, name):
    """Float32 values, or those of a format."""
    return values if name == "f32" else fp8lab.decode(fp8lab.encode(values, FORMATS[name]), FORMATS[name])


def test_gelus_gradient_and_that_of_its_bias_beside_a_product_are_cublaslts():
    """h200_gemm_dgelu_bgrad.npz: of operands and an output by types, and the compute type (68 float32, 77 TF32), the first
    four rows of the output, and the gradient of the bias."""
    recorded = np.load(VECTORS / "h200_gemm_dgelu_bgrad.npz")
    a, b, given = drawn(930, (256, 128)), drawn(931, (512, 128)), drawn(932, (512, 256), 3.0)
    for key in recorded.files:
        operands, out, compute = key.split("_")
        left, right = operands.split("x")
        model = "hopper_tf32" if compute == "77" else MODELS.get(left, "cuda_cores_fma")
        tf32 = {"tf32_rounding": "nearest_even"} if compute == "77" else {}
        pair = (as_operand(b, right), as_operand(a, left))
        if left != "f32":
            pair = tuple(fp8lab.encode(x, FORMATS[name]) for x, name in zip(pair, (right, left)))
            tf32 = {"format_a": FORMATS[right], "format_b": FORMATS[left]}
        product = as_operand(fp8lab.gemm(*pair, model=model, **tf32), out)
        wide = fp8lab.gemm_activation("dgelu", product, as_operand(given, out))
        words = np.concatenate([wide[:4].ravel(), cublaslt_row_sums(wide, after_gelu=True)])
        own = words.view(np.int32) if out == "f32" else fp8lab.encode(words, FORMATS[out]).view(np.int16)
        assert (own == recorded[key]).all(), key
    assert len(recorded.files) == 9


def test_gradients_beside_a_product_that_are_not_known_are_refused():
    a, b = np.ones((3, 8), np.float32), np.ones((5, 8), np.float32)
    of_a = fp8lab.GemmRecipe("hopper_tf32", bias_gradient="of_a")
    with pytest.raises(ValueError, match="operand without scales"):
        fp8lab.gemm(a, b, of_a, scale_a=2.0)
    with pytest.raises(ValueError, match="bias_gradient is beside the output, which alone is compared"):
        fp8lab.diagnose_gemm(a, b, np.zeros((3, 5), np.float32), expected=of_a)
    for model in ("exact", "hopper_fp16", "hopper_wgmma_fp8"):
        with pytest.raises(ValueError, match="known of the models hopper_bf16 and hopper_tf32"):
            fp8lab.GemmRecipe(model, bias_gradient="of_a")
    out, gradient = fp8lab.gemm(a[:, :0], b[:, :0], of_a)
    assert (out == 0).all() and (gradient == 0).all()


def test_sums_over_rows_are_those_of_pytorch_on_an_h200():
    recorded, count = np.load(VECTORS / "h200_torch_reductions.npz"), 0
    for key in recorded.files:
        operation, type_name, *shape = key.split("/")
        if operation != "sum0" or type_name not in ("float32", "bfloat16"):
            continue
        name = {"float32": "fp32", "bfloat16": "bf16"}[type_name]
        rows, columns = map(int, shape[0].split("x"))
        values = (hashed(rows * columns, rows + columns) >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-23) - 1
        own = torch_row_sums(tensor(values.reshape(rows, columns), name))
        assert (words_of(own, name) == recorded[key].view(np.int32 if name == "fp32" else np.int16)).all(), key
        count += 1
    assert count == 66


@pytest.mark.parametrize(
    ("rows", "columns", "item_size", "has_activation", "multiprocessors", "expected"),
    [
        (64, 32, 2, False, 132, 2), (2048, 4096, 2, False, 132, 4), (2048, 4096, 2, False, 114, 8),
        (2048, 11008, 2, False, 132, 8), (64, 11008, 2, True, 114, 1), (2048, 768, 2, True, 114, 2),
        (512, 768, 4, True, 114, 1), (512, 4096, 2, True, 132, 4), (40, 64, 2, True, 132, 4), (64, 80, 2, False, 132, 8),
    ],
)  # fmt: skip
def test_the_kernel_that_is_chosen(rows, columns, item_size, has_activation, multiprocessors, expected):
    """But for the last two, which it is not asked for: by Transformer Engine 2.20's class KernelConfig, compiled."""
    given = {"item_size": item_size, "has_activation": has_activation, "multiprocessors": multiprocessors}
    assert cast_transpose_thread_rows(rows, columns, **given) == expected


def test_special_numbers():
    rows = np.float32([[np.nan, -0.0, np.inf, 1], [1, -0.0, 1, 1e-40]])
    for sums in (
        torch_row_sums(rows), torch_row_sums(rows, offset=1), cast_transpose_row_sums(rows), cublaslt_row_sums(rows),
    ):  # fmt: skip
        assert (sums.view(np.uint32) == [0x7FFFFFFF, 0, 0x7F800000, 0x3F800000]).all()
