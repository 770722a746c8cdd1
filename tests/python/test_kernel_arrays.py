# SPDX-License-Identifier: Apache-2.0
"""Quantized.from_arrays: what a kernel wrote, as a Quantized."""

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from fp8lab import Quantized

X = fp8lab.sample("normal", 256 * 384, seed=3).astype(np.float32).reshape(256, 384)


def _random_bits(recipe):
    return np.zeros(X.size, np.uint8) if fp8lab.roundings() and "stochastic" in str(recipe) else None


@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
def test_the_arrays_of_every_recipe_are_its_tensor_again(direction):
    for one in fp8lab.recipes():
        if one.recipe.tensor_scale_for_each_row:  # from_arrays takes one amax
            continue
        bits = _random_bits(one.recipe)
        q = fp8lab.quantize(X, one, direction=direction, random_bits=bits)
        scales = q.scale_inv if q.scale_codes is None else q.scale_codes
        amax = q.amax if q.scale_format == "ue4m3" or q.amax else None
        again = Quantized.from_arrays(q.codes, scales, one, direction=direction, amax=amax)
        assert again == q, one.name


@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
@pytest.mark.parametrize("name", ["te_mxfp8", "ocp_mxfp4", "te_nvfp4"])
def test_scales_come_in_every_layout(name, direction):
    q = fp8lab.quantize(X, name, direction=direction)
    for layout in ("padded", "swizzled"):
        assert (
            Quantized.from_arrays(
                q.codes, q.scales(layout), name, direction=direction, amax=q.amax or None, scale_layout=layout
            )
            == q
        )


def test_element_types_of_kernels_are_taken():
    q = fp8lab.quantize(X, "te_mxfp8")
    codes, scales = q.codes.view(ml_dtypes.float8_e4m3fn), q.scale_codes.view(ml_dtypes.float8_e8m0fnu)
    assert Quantized.from_arrays(codes, scales, "te_mxfp8") == q
    rows = fp8lab.quantize(X, "torchao_rowwise")
    assert Quantized.from_arrays(rows.codes, rows.scale_inv.reshape(-1), "torchao_rowwise") == rows
    half = Quantized.from_arrays(rows.codes, rows.scale_inv.astype(ml_dtypes.bfloat16), "torchao_rowwise")
    assert np.array_equal(half.scale_inv, rows.scale_inv.astype(ml_dtypes.bfloat16).astype(np.float32))
    whole = Quantized.from_arrays(q.codes, 0.25, "te_current_scaling")
    assert np.array_equal(fp8lab.dequantize(whole), fp8lab.decode(q.codes, "e4m3") * np.float32(0.25))
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(np.array(q.codes)).view(torch.float8_e4m3fn)
    assert Quantized.from_arrays(tensor, torch.from_numpy(np.array(q.scale_codes)), "te_mxfp8") == q


def test_columnwise_codes_may_lie_as_the_tensor_does():
    q = fp8lab.quantize(X, "te_block_1x128", direction="columnwise")
    assert q.transposed
    plain = Quantized.from_arrays(q.codes.T, q.scale_inv.T, "te_block_1x128", direction="columnwise", transposed=False)
    assert not plain.transposed and plain.shape == q.shape
    assert np.array_equal(fp8lab.dequantize(plain), fp8lab.dequantize(q))
    w = fp8lab.quantize(X[:128], "te_block_1x128", direction="columnwise")
    first = Quantized.from_arrays(w.codes.T, w.scale_inv.T, "te_block_1x128", direction="columnwise", transposed=False)
    expected = fp8lab.gemm(w, w, model="hopper_wgmma_fp8")
    assert np.array_equal(fp8lab.gemm(first, first, model="hopper_wgmma_fp8"), expected)


NVFP4 = ("te_nvfp4", "torchao_nvfp4", "flashinfer_nvfp4", "compressed_tensors_nvfp4", "quark_nvfp4", "te_nvfp4_4over6")


@pytest.mark.parametrize(
    "given",
    [{"tensor_scale": 937.25}, {"tensor_scale_inv": 0.00123}, {"tensor_scale": 512.0, "tensor_scale_inv": 0.00201}],
)
@pytest.mark.parametrize("name", NVFP4)
def test_a_given_scale_of_the_tensor_need_not_be_that_of_an_amax(name, given):
    try:
        q = fp8lab.quantize(X, name, **given)
    except ValueError as error:
        pytest.skip(str(error))
    again = Quantized.from_arrays(q.codes, q.scale_codes, name, **given)
    assert np.array_equal(fp8lab.dequantize(again), fp8lab.dequantize(q))
    assert again.tensor_scale == q.tensor_scale and again.tensor_scale_inv == q.tensor_scale_inv
    assert fp8lab.compare(again, again).equal
    if len(given) == 2:  # some systems divide by the one, and some multiply with the other
        return
    # By hand: E2M1 times E4M3 times the tensor's scale, each product rounded, which is at most three half ulps apart.
    inverse = np.float64(np.float32(given.get("tensor_scale_inv", 1 / given.get("tensor_scale", 1.0))))
    blocks = q.scale_codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64).repeat(16, 1)
    values = fp8lab.decode(np.stack([q.codes & 15, q.codes >> 4], -1).reshape(X.shape), "e2m1").astype(np.float64)
    exact = values * blocks * inverse
    assert np.all(np.abs(fp8lab.dequantize(again) - exact) <= np.abs(exact) * 2.0**-22)
    product = fp8lab.gemm(again, again, model="blackwell_nvf4")
    assert np.array_equal(product, fp8lab.gemm(q, q, model="blackwell_nvf4"))
    assert np.allclose(product, exact @ exact.T, rtol=1e-4)


@pytest.mark.parametrize("name", ["te_mxfp8", "te_nvfp4", "te_block_1x128", "te_current_scaling", "torchao_rowwise"])
def test_leading_dimensions_are_rows(name):
    x = X.reshape(4, 2, 32, 384)
    q = fp8lab.quantize(x, name)
    assert q.tensor_shape == x.shape
    codes = q.codes.reshape(4, 2, 32, -1)
    scales = q.scale_inv if q.scale_codes is None else q.scale_codes
    wide = scales if scales.size == 1 else scales.reshape(4, 2, 32, -1)
    for some in (scales, wide):
        again = Quantized.from_arrays(codes, some, name, amax=q.amax or None)
        assert again == q and again.tensor_shape == x.shape
    assert np.array_equal(fp8lab.dequantize(again), fp8lab.dequantize(q)) and fp8lab.dequantize(again).shape == x.shape
    row = Quantized.from_arrays(
        codes[0, 0, 0], scales if scales.size == 1 else wide[0, 0, 0], name, amax=q.amax or None
    )
    assert row.tensor_shape == (384,) and np.array_equal(fp8lab.dequantize(row), fp8lab.dequantize(q)[0, 0, 0])


class _OnDevice:
    """As CuPy's arrays are: no implicit copy."""

    __cuda_array_interface__ = {}  # noqa: RUF012

    def __init__(self, array):
        self._array = array

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def get(self):
        return self._array


def test_arrays_on_a_device_are_copied():
    q = fp8lab.quantize(X, "te_mxfp8")
    assert Quantized.from_arrays(_OnDevice(q.codes), _OnDevice(q.scale_codes), "te_mxfp8") == q


def test_wrong_arrays_are_refused_by_name():
    q = fp8lab.quantize(X, "te_mxfp8")
    b = fp8lab.quantize(X, "te_block_1x128")
    n = fp8lab.quantize(X, "te_nvfp4")
    make = Quantized.from_arrays
    nan = b.scale_inv.copy()
    nan[0, 2] = np.nan
    assert make(b.codes, nan, "te_block_1x128", allow_special_scales=True).scale_inv.shape == (256, 3)
    for call, kind, message in (
        (lambda: make(q.codes[:, :5].T, q.scale_codes, "ocp_mxfp8_e4m3"), ValueError, "scale_codes must have"),
        (lambda: make(q.codes.reshape(-1), q.scale_codes.T, "te_mxfp8"), ValueError, r"scales must have shape \(1, 3072\)"),
        (lambda: make(q.codes.reshape(-1)[0], q.scale_codes, "te_mxfp8"), ValueError, "codes must have one dimension or more"),
        (lambda: make(b.codes.reshape(2, 128, 384), b.scale_inv, "te_block_1x128", direction="columnwise"), ValueError, "codes that are transposed must have two"),
        (lambda: make(n.codes, n.scale_codes, "te_nvfp4", amax=1.0, tensor_scale=2.0), ValueError, "give the one or the other"),
        (lambda: make(X, q.scale_codes, "te_mxfp8"), TypeError, "codes must be uint8"),
        (lambda: make(q.codes.view(ml_dtypes.float8_e5m2), q.scale_codes, "te_mxfp8"), ValueError, "codes are e5m2 by their"),
        (lambda: make(q.codes, q.scale_codes.astype(np.float32), "te_mxfp8"), TypeError, "scales must be uint8"),
        (lambda: make(q.codes, q.scale_codes.view(ml_dtypes.float8_e4m3fn), "te_mxfp8"), TypeError, "scales must be e8m0 codes"),
        (lambda: make(b.codes, b.scale_inv.astype(np.float64), "te_block_1x128"), TypeError, "scales must be float32"),
        (lambda: make(b.codes, b.scale_inv.T, "te_block_1x128"), ValueError, r"scales must have shape \(256, 3\)"),
        (lambda: make(b.codes, nan, "te_block_1x128"), ValueError, "scale 2 of scale_inv is NaN"),
        (lambda: make(n.codes, n.scale_codes, "te_nvfp4"), ValueError, "must be given"),
        (lambda: make(q.codes, q.scale_codes, "te_mxfp8", scale_layout="swirled"), ValueError, "scale_layout"),
        (lambda: make(q.codes, q.scale_codes, "te_mxfp8", transposed=True), ValueError, "transposed is for columnwise"),
        (lambda: make(q.codes, q.scale_codes, "te_mxfp8", direction="across"), ValueError, "direction"),
        (lambda: make(_OnDevice(None), q.scale_codes, "te_mxfp8"), TypeError, "codes must be"),
    ):  # fmt: skip
        with pytest.raises(kind, match=message):
            call()
