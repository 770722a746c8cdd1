# SPDX-License-Identifier: Apache-2.0
"""gemm of Quantized: what the arrays of a Quantized give when they are passed one by one."""

import fp8lab
import numpy as np
import pytest
from conftest import splitmix
from sampled import sampled

pytestmark = pytest.mark.sample(3)

NAMES = [recipe.name for recipe in fp8lab.recipes()]
FP8 = {
    "hopper_wgmma_fp8", "hopper_wgmma_fp8_f16", "ada_mma_fp8", "ada_mma_fp8_f16", "ada_mma_fp8_k16", "ada_mma_fp8_k16_f16",
    "hopper_mma_sync_fp8", "hopper_mma_sync_fp8_f16", "hopper_mma_sync_fp8_k16", "hopper_mma_sync_fp8_k16_f16",
    "blackwell_tcgen05_fp8", "blackwell_tcgen05_fp8_f16", "rtx_blackwell_mma_fp8", "rtx_blackwell_mma_fp8_f16",
    "rtx_blackwell_mma_fp8_k16", "rtx_blackwell_mma_fp8_k16_f16", "exact",
}  # fmt: skip


def values(rows, columns, seed):
    words = splitmix(seed, rows * columns)
    return (((words % 4096).astype(np.float32) - 2048) * np.exp2((words >> 40) % 7).astype(np.float32)).reshape(
        rows, columns
    )


def assert_same(actual, expected):
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


X, W, DY = values(128, 256, 1), values(128, 256, 2), values(128, 128, 3)


@pytest.mark.parametrize("name", sampled([name for name in NAMES if "row_scaled" not in name], 3))
def test_exact_is_the_exact_product_of_what_dequantize_gives(name):
    (x, xt), (w, wt), (dy, dyt) = (fp8lab.quantize_both(tensor, name) for tensor in (X, W, DY))
    passes = [(x, w, lambda a, b: (a, b)), (dyt, xt, lambda a, b: (a.T, b.T))]
    if "rht" not in name:
        passes.append((dy, wt, lambda a, b: (a, b.T)))
    for a, b, lay in passes:
        left, right = lay(fp8lab.dequantize(a), fp8lab.dequantize(b))
        assert_same(fp8lab.gemm(a, b, model="exact"), fp8lab.gemm(left.copy(), right.copy(), model="exact"))


def scales_of(q):
    """What gemm takes of a Quantized as ``scale_a``, and the layout that it is in."""
    name = q.recipe if isinstance(q.recipe, str) else type(q.recipe).__name__
    if name == "NvFp4":
        raise AssertionError("its tensor scale is folded")
    return (
        q.scale_codes
        if q.scale_codes is not None
        else q.scale_inv
        if q.scale_inv.size > 1
        else float(q.scale_inv[0, 0])
    )


# Float32 scales of 32 elements, and one E8M0 code for a tensor, have no argument of gemm that says them.
@pytest.mark.parametrize(
    "name",
    sampled(
        [
            name
            for name in NAMES
            if "nvfp4" not in name and name not in ("deepgemm_fp4_ue8m0", "torchao_float8_tensor_e8m0")
        ],
        3,
    ),
)
def test_a_quantized_is_its_arrays(name):
    # K is above 128 in both: up to there, scales of (M, 1) are those of 1 x 128 tiles, not of rows.
    (x, xt), (w, wt) = (fp8lab.quantize_both(np.concatenate([tensor, tensor]), name) for tensor in (X, W))
    for a, b in ((x, w), (xt, wt)):
        side = "n" if a.direction == "rowwise" or a.transposed else "t"
        layout = side + ("t" if side == "n" else "n")
        for model in (m.name for m in fp8lab.models()):
            if model == "exact" or not fp8lab.takes(model, a):
                continue
            out = fp8lab.gemm(a, b, model=model)
            assert_same(out, fp8lab.gemm(a.codes, b.codes, model=model, format_a=a.format, format_b=b.format,
                                         scale_a=scales_of(a), scale_b=scales_of(b), layout=layout))  # fmt: skip


def test_nvfp4_is_its_arrays_with_transformer_engines_alpha():
    for a, b in zip(fp8lab.quantize_both(X, "te_nvfp4"), fp8lab.quantize_both(W, "te_nvfp4_2d"), strict=True):
        plain = fp8lab.gemm(a.codes, b.codes, model="blackwell_nvf4", format_a="e2m1", format_b="e2m1",
                            scale_a=a.scale_codes, scale_b=b.scale_codes)  # fmt: skip
        alpha = np.float32(a.amax) * np.float32(b.amax) * (np.float32(1) / np.float32(6 * 6 * 448 * 448))
        assert_same(fp8lab.gemm(a, b, model="blackwell_nvf4"), plain * alpha)
        swizzled = fp8lab.gemm(a.codes, b.codes, model="blackwell_nvf4", format_a="e2m1", format_b="e2m1",
                               scale_a=a.scales("swizzled"), scale_b=b.scales("swizzled"), scale_layout="swizzled")  # fmt: skip
        assert_same(swizzled, plain)


def test_takes_names_the_models_of_a_recipe():
    def takers(name):
        return {model.name for model in fp8lab.models() if fp8lab.takes(model, fp8lab.quantize(X, name))}

    assert takers("te_current_scaling") == takers("torchao_rowwise") == takers("deepseek_v3_2024") == FP8
    assert takers("te_block_1x128") == FP8 | {"blackwell_mxf8"}
    assert takers("te_mxfp8") == {"blackwell_mxf8", "exact"}
    assert takers("ocp_mxfp4") == {"blackwell_mxf8", "blackwell_mxf4", "exact"}
    assert takers("te_nvfp4") == {"blackwell_nvf4", "exact"}


def test_the_options_of_gemm_hold_for_quantized_tensors():
    q = fp8lab.quantize(X, "te_current_scaling")
    plain = fp8lab.gemm(q, q, model="hopper_wgmma_fp8", promote_k=128)
    assert_same(fp8lab.gemm(q, q, model="hopper_wgmma_fp8", promote_k=128, threads=2, bias=np.ones(128, np.float32), scale_out=0.5),
                (plain + np.float32(1)) * np.float32(0.5))  # fmt: skip
    codes = fp8lab.gemm(q, q, model="hopper_wgmma_fp8", promote_k=128, out_dtype="e5m2")
    np.testing.assert_array_equal(codes, fp8lab.encode(plain, "e5m2"))


Q, T = fp8lab.quantize_both(X, "te_mxfp8")
N = fp8lab.quantize(DY, "te_nvfp4_rht", direction="columnwise")
BAD = [
    (lambda: fp8lab.gemm(Q, X, model="blackwell_mxf8"), TypeError, "b must be a Quantized, as a is, not "),
    (lambda: fp8lab.gemm(Q.codes, Q, model="blackwell_mxf8"), TypeError, "a must be a Quantized, as b is, not "),
    (lambda: fp8lab.gemm(Q, Q, model="blackwell_mxf8", scale_a=2.0), ValueError, "scale_a goes with arrays; a Quantized has its own"),
    (lambda: fp8lab.gemm(Q, Q, model="blackwell_mxf8", format_b="e4m3", layout="nn"), ValueError, "format_b and layout go with arrays"),
    (lambda: fp8lab.gemm(Q, Q, model="blackwell_mxf8", scale_layout="swizzled"), ValueError, "scale_layout goes with arrays"),
    (lambda: fp8lab.gemm(Q, T, model="blackwell_mxf8"), ValueError, "of a it is 256, its columns .*, of b 128, its rows"),
    (lambda: fp8lab.gemm(Q, Q, model="hopper_wgmma_fp8"), ValueError, "which hopper_wgmma_fp8 does not take.*take it: blackwell_mxf8, exact"),
    (lambda: fp8lab.gemm(N, fp8lab.quantize(DY, "te_nvfp4"), model="exact"), ValueError, "a Hadamard matrix turned a along K, and not b"),
    (lambda: fp8lab.gemm(Q.codes[:9], Q.codes[:9], model="blackwell_mxf8", scale_a=Q.scale_codes[:9], scale_b=Q.scale_codes[:9],
                         scale_layout="swizzled"), ValueError, r"scale_a must have 9 \* 8 codes, .* swizzled to 1024, not 72"),
    (lambda: fp8lab.takes("exact", X), TypeError, "q must be a Quantized, not "),
    (lambda: fp8lab.takes("none", Q), ValueError, "unknown model 'none'"),
    (lambda: fp8lab.gemm(DY, DY, model="exact", scale_layout="padded"), ValueError, "scale_layout"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_what_does_not_fit_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
