# SPDX-License-Identifier: Apache-2.0
"""fp8lab.diagnose_gemm on GEMMs as kernels get them wrong: sums of ``fp8lab.gemm``, and scales, addends and roundings
in NumPy."""

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from gemm_recomputed import departure, diagnosed
from sampled import sampled

pytestmark = pytest.mark.sample(3, tests=6)

F = np.float32
HOPPER, BLACKWELL = "hopper_wgmma_fp8", "blackwell_tcgen05_fp8"


def drawn(rows, columns, depth, seed):
    """Activations and weights under scales of their tensors: codes (rows, depth) and (columns, depth), and both
    scales."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(0, 1, (rows, depth)), rng.normal(0, 0.02, (columns, depth))
    scales = [F(np.abs(one).max() / 448) for one in (x, w)]
    return *(fp8lab.encode((one / scale).astype(F), "e4m3") for one, scale in zip((x, w), scales, strict=True)), *scales


def sums(a, b, first=0, last=None, model=HOPPER):
    return fp8lab.gemm(np.ascontiguousarray(a[:, first:last]), np.ascontiguousarray(b[:, first:last]), model=model)


def test_c_or_a_bias_that_was_forgotten_is_named():
    # A tensor core cuts off a c that it starts from, and bfloat16 hides a bias that is scaled.
    a, b, scale_a, scale_b = drawn(64, 48, 256, 0)
    out = sums(a, b) * (scale_a * scale_b)
    scales = {"scale_a": float(scale_a), "scale_b": float(scale_b)}
    c, bias = (
        np.random.default_rng(1).normal(0, 1, (64, 48)).astype(F),
        np.random.default_rng(2).normal(0, 0.02, 48).astype(F),
    )
    for given, defect in (
        ({"c": c}, "c_missing"),
        ({"bias": bias}, "bias_missing"),
        ({"c": c, "bias": bias}, "addends_missing"),
    ):
        found = diagnosed(a, b, out.astype(ml_dtypes.bfloat16), **given, **scales)
        assert found.explained and not found.correct and departure(found) == defect, found
    found = diagnosed(a, b, out, c=c, **scales, expected=HOPPER)
    assert departure(found) == "c_missing" and found.expected_unexplained > 0, found
    added = fp8lab.gemm(a, b, model=HOPPER, c=c, c_enters="accumulator", **scales)
    found = diagnosed(a, b, added, c=c, **scales)  # which the scales multiply, too
    assert found.explained and not found.correct, found


def test_what_explains_a_few_elements_alone_does_not_end_the_search():
    a, b, scale_a, scale_b = drawn(64, 48, 256, 9)
    x, y = fp8lab.decode(a, "e4m3"), fp8lab.decode(b, "e4m3")
    total = np.zeros((64, 48), F)
    for k in range(256):
        total = total + x[:, k, None] * y[None, :, k]
    found = diagnosed(a, b, total * (scale_a * scale_b), scale_a=float(scale_a), scale_b=float(scale_b))
    assert found.explained and found.explanations[0].models == ("cuda_cores",), found


def test_all_elements_of_a_whole_output_are_counted():
    a, b, scale_a, scale_b = drawn(192, 160, 256, 3)
    scales = {"scale_a": float(scale_a), "scale_b": float(scale_b)}
    right, other = (fp8lab.gemm(a, b, model=model, out_dtype="bfloat16", **scales) for model in (BLACKWELL, HOPPER))
    for wrong in (False, True):
        out = right.copy()
        if wrong:
            out[64:128, 32:96] = 7
        for expected, by_it in ((BLACKWELL, right), (HOPPER, other)):
            found = diagnosed(a, b, out, expected=expected, most_products=2**19, **scales)
            first = found.explanations[0]
            unexplained = np.count_nonzero(by_it.view(np.uint16) != out.view(np.uint16))
            assert (found.expected_checked, found.expected_unexplained) == (out.size, unexplained), found
            assert (first.checked, first.unexplained) == (out.size, wrong * 4096) and BLACKWELL in first.models, found
            assert found.correct == (not wrong and expected == BLACKWELL)
            if wrong:
                assert "rows 64 to 127 of 192" in " ".join(found.rest) and found.rest[0].startswith("4096 elements"), (
                    found
                )


def test_saturated_codes_say_nothing():
    a, b, scale_a, scale_b = drawn(8, 8, 256, 0)
    out = fp8lab.encode(sums(a, b) * scale_a * F(1e4), "e4m3")  # the scale of b is forgotten
    assert np.all(out & 0x7F == 0x7E)
    found = diagnosed(a, b, out, scale_a=float(scale_a), scale_b=float(scale_b), scale_out=1e4, out_format="e4m3")
    assert not found.correct and not found.telling and found.verdict.startswith("Cannot tell"), found


def test_zeros_behind_k_hide_nothing():
    a, b, _, _ = drawn(64, 48, 256, 1)
    padded = [np.concatenate([x, np.zeros_like(x)], axis=1) for x in (a, b)]
    assert diagnosed(*padded, sums(a, b)).correct
    found = diagnosed(*padded, sums(a, b), expected="ada_mma_fp8")
    assert not found.correct and found.verdict.startswith("Not ada_mma_fp8: all 3072 elements are those of "), found


def test_a_probe_is_compared_in_many_elements():
    rng = np.random.default_rng(2)
    a, b = (
        fp8lab.encode((rng.normal(0, 1, (n, 1024)) * 2.0 ** rng.integers(-3, 4, (n, 1024))).astype(F), "e4m3")
        for n in (64, 48)
    )
    found = diagnosed(a, b, fp8lab.gemm(a, b, model=HOPPER, promote_k=128))
    probe = found.probe(1024)
    ascending, descending = (
        fp8lab.gemm(probe.a, probe.b, model=HOPPER, split_k=[128] * 8, split_order=order)
        for order in (None, list(range(7, -1, -1)))
    )
    assert np.count_nonzero(ascending != descending) < 12  # of 3072
    at = [
        i
        for i, one in enumerate(found.explanations[: found.tied])
        if one.recipe.order == "descending" and one.recipe.range_k == 0
    ]
    assert len(at) == 1 and (0, at[0]) not in probe.unparted and probe.parted > probe.pairs / 2, probe.unparted


@pytest.mark.sample(2)
@pytest.mark.parametrize("as_quantized", [True, False])
def test_a_scale_of_nvfp4_that_is_missing_is_told_from_the_others(as_quantized):
    rng = np.random.default_rng(0)
    qa, qb = (fp8lab.quantize(rng.normal(0, size, (n, 256)).astype(F), "te_nvfp4") for size, n in ((1, 32), (0.02, 24)))
    alphas = [F(q.amax) / F(2688) for q in (qa, qb)]
    given = {"format_a": "e2m1", "format_b": "e2m1"}

    def product(scales_a, scales_b):
        return fp8lab.gemm(qa.codes, qb.codes, model="blackwell_nvf4", scale_a=scales_a, scale_b=scales_b, **given)

    out, ones = product(qa.scale_codes, qb.scale_codes), [np.full_like(q.scale_codes, 0x38) for q in (qa, qb)]
    late = np.concatenate([qa.scale_codes[:, :1], qa.scale_codes[:, :-1]], axis=1)
    for wrong, defect in (
        (out, "tensor_scales_missing"),
        (out * alphas[1], "tensor_scale_a_missing"),
        (out * alphas[0], "tensor_scale_b_missing"),
        (product(*ones) * (alphas[0] * alphas[1]), "block_scales_missing"),
        (product(qa.scale_codes, ones[1]) * (alphas[0] * alphas[1]), "block_scales_b_missing"),
        (product(*ones), "scales_missing"),
        (product(late, qb.scale_codes) * (alphas[0] * alphas[1]), "scale_a_of_previous_tile"),
    ):
        if as_quantized:
            found = diagnosed(qa, qb, wrong)
        else:
            scales = {"scale_a": (qa.scale_codes, float(alphas[0])), "scale_b": (qb.scale_codes, float(alphas[1]))}
            found = diagnosed(qa.codes, qb.codes, wrong, **scales, **given)
        assert departure(found) == defect and not found.correct, (defect, found)


def test_scales_of_mx_blocks_that_are_read_wrong_are_named():
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (128, 256)) * np.exp(rng.normal(0, 1, (128, 1)))
    w = rng.normal(0, 0.02, (128, 256)) * np.exp(rng.normal(0, 1, (1, 256)))
    qx, qw = (fp8lab.quantize(one.astype(F), "te_mxfp8") for one in (x, w))
    own, other = qx.scale_codes, qw.scale_codes

    def as_swizzled(codes):
        return np.asarray(fp8lab.unswizzle_scales(codes.reshape(-1), codes.shape))

    for scale_a, scale_b, defect in (
        (own, other, "none"),
        (as_swizzled(own), as_swizzled(other), "scale_layouts"),
        (own, as_swizzled(other), "scale_layout_b"),
        ((254 - own.astype(int)).astype(np.uint8), other, "scale_a_inverted"),
        ((2 * own.astype(int) - 127).astype(np.uint8), other, "scale_a_twice"),
        (own, np.concatenate([other[:, :1], other[:, :-1]], axis=1), "scale_b_of_previous_tile"),
        (np.full_like(own, 127), other, "scale_a_missing"),
    ):
        out = fp8lab.gemm(qx.codes, qw.codes, model="blackwell_mxf8", scale_a=scale_a, scale_b=scale_b)
        found = diagnosed(qx.codes, qw.codes, out, scale_a=own, scale_b=other)
        assert found.explained and departure(found) == defect, (defect, found)
        assert found.correct == (defect == "none")


def test_promotions_within_a_tile_are_named():
    rng = np.random.default_rng(1)
    x, w = rng.normal(0, 1, (32, 512)), rng.normal(0, 0.02, (128, 512))
    tiles_x = (np.abs(x.reshape(32, 4, 128)).max(axis=2) / 448).astype(F)
    tiles_w = (np.abs(w.reshape(1, 128, 4, 128)).max(axis=(1, 3)) / 448).astype(F)
    a = fp8lab.encode((x / np.repeat(tiles_x, 128, axis=1)).astype(F), "e4m3")
    b = fp8lab.encode((w / np.repeat(np.repeat(tiles_w, 128, axis=0), 128, axis=1)).astype(F), "e4m3")
    for step in (64, 32):  # BLOCK_K of a kernel whose tiles are of 128
        total = np.zeros((32, 128), F)
        for k in range(0, 512, step):
            total = total + sums(a, b, k, k + step) * tiles_x[:, k // 128, None] * tiles_w[0, k // 128]
        found = diagnosed(a, b, total, scale_a=tiles_x, scale_b=tiles_w)
        assert found.correct and found.explanations[0].recipe.promote_k == step, found


def test_a_rounding_before_the_scale_of_the_output_and_sums_kept_in_16_bits_are_named():
    a, b, scale_a, scale_b = drawn(64, 48, 512, 5)
    scales = {"scale_a": float(scale_a), "scale_b": float(scale_b)}
    for dtype, name in ((ml_dtypes.bfloat16, "bfloat16"), (np.float16, "float16")):
        halves = (sums(a, b) * (scale_a * scale_b)).astype(dtype).astype(F)
        out = fp8lab.encode(halves * F(37.3), "e4m3")
        found = diagnosed(a, b, out, scale_out=37.3, out_format="e4m3", **scales)
        assert found.explained and not found.correct and found.explanations[0].recipe.unscaled_type == name, found
    total = np.zeros((64, 48), ml_dtypes.bfloat16)
    for k in range(0, 512, 128):  # atomic additions to an output in bfloat16
        total = (total.astype(F) + sums(a, b, k, k + 128).astype(ml_dtypes.bfloat16).astype(F)).astype(
            ml_dtypes.bfloat16
        )
    first = (found := diagnosed(a, b, total)).explanations[0]
    assert (
        found.explained
        and not found.correct
        and (first.recipe.partial_type, first.recipe.total_type, first.recipe.range_k) == ("bfloat16", "bfloat16", 128)
    ), found


@pytest.mark.parametrize("recipe", sampled(["vllm_per_token", "te_mxfp8", "te_nvfp4"], 3))
def test_operands_that_are_dequantized_first_are_named(recipe):
    rng = np.random.default_rng(7)
    qa, qb = (fp8lab.quantize(rng.normal(0, size, (n, 256)).astype(F), recipe) for size, n in ((1, 24), (0.02, 16)))
    for dtype, model, name in ((ml_dtypes.bfloat16, "hopper_bf16", "bfloat16"), (np.float16, "hopper_fp16", "float16")):
        out = fp8lab.gemm(fp8lab.dequantize(qa).astype(dtype), fp8lab.dequantize(qb).astype(dtype), model=model)
        found = diagnosed(qa, qb, out)
        first = found.explanations[0]
        if recipe == "te_mxfp8":  # whose values both types hold
            model, name = "hopper_bf16", "bfloat16"
        assert found.explained and not found.correct and first.recipe.dequantized == name and model in first.models, (
            found
        )
        assert f"dequantized to {name} first" in found.verdict
    own = (
        "hopper_wgmma_fp8"
        if recipe == "vllm_per_token"
        else "blackwell_mxf8"
        if recipe == "te_mxfp8"
        else "blackwell_nvf4"
    )
    found = diagnosed(qa, qb, out, expected=own)
    assert (
        found.verdict.startswith(f"Not {own}")
        and found.expected_unexplained > 0
        and found.explanations[0].recipe.dequantized == name
    ), found
    probe = found.probe()
    assert probe.a.shape[0] == 24 and probe.parted > 0, probe


def test_explanations_that_differ_in_the_profile_alone_say_so():
    a, b, _, _ = drawn(16, 8, 128, 1)
    out = sums(a, b).astype(ml_dtypes.bfloat16)
    found = diagnosed(a, b, out, expected={"model": HOPPER, "out_profile": "ieee"})
    assert found.correct and "differs in the rounding of the output." in found.verdict, found
    with pytest.raises(ValueError, match="starts from c, and there is no c"):
        diagnosed(a, b, out, expected={"model": HOPPER, "c_enters": "accumulator"})
    with pytest.raises(ValueError, match="a must not be float64"):
        diagnosed(fp8lab.decode(a, "e4m3").astype(np.float64), b, out)
    one = diagnosed(a, b, np.array([sums(a, b)[3, 4]]), places=[(3, 4)])
    assert "all 1" not in one.verdict, one
