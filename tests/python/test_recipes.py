# SPDX-License-Identifier: Apache-2.0
"""Recipes against the packages that they are named after: their own functions on a CPU, where they are installed.

Amaxes lie within two ulps of 1, 1.5 and 1.75 times every power of two, where scales change, and anywhere.
"""

import warnings

import fp8lab
import numpy as np
import pytest
from conftest import splitmix
from fp8lab import Block, JustInTime, MxBlock
from sampled import EXHAUSTIVE

torch = pytest.importorskip("torch")

from quantizers import checkouts  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def package(name):
    """A module, or a skip that says why; what packages warn of while they are imported is theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, exc_type=ImportError)


def amaxes():
    fields = np.arange(255, dtype=np.int64) << 23
    near = fields[:, None, None] + np.array([0, 0x400000, 0x600000])[:, None] + np.arange(-2, 3)
    anywhere = splitmix(3, 2000) >> np.uint64(33)
    words = np.concatenate([near.reshape(-1), anywhere.astype(np.int64)])
    return words[(words > 0) & (words < 0x7F800000)].astype(np.uint32).view(np.float32)


def rows(columns, wild=False):
    """A row for every amax: multiples of a 32nd of it, at any of eight sizes, half of them made uneven."""
    amax = amaxes()[:, None]
    bits = splitmix(4, amax.size * columns).reshape(amax.size, columns)
    x = amax * ((bits % np.uint64(65)).astype(np.float32) / 32 - 1)
    x = x * np.exp2(-(bits >> np.uint64(8) & np.uint64(7)).astype(np.float32))
    x = np.where(
        bits >> np.uint64(16) & np.uint64(1), x * ((bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)), x
    )
    at = bits[:, 0] % np.uint64(columns)
    x[np.arange(amax.size), at] = amax[:, 0]
    if wild:
        for i, value in enumerate((np.nan, -np.nan, np.inf, -np.inf)):
            x[i::37, 3 * i] = value
    return torch.from_numpy(x.astype(np.float32))


def codes_of(tensor):
    return tensor.view(torch.uint8).numpy()


def assert_same_codes(codes, expected, format="e4m3"):
    """Every byte; of NaN, whose sign is the processor's, that it is one."""
    nan = {"e4m3": 0x7E, "e5m2": 0x7C}.get(format, 0x7F)
    is_nan = (codes & 0x7F) > nan
    assert np.array_equal(is_nan, (expected & 0x7F) > nan)
    different = np.flatnonzero((codes != expected) & ~is_nan)
    assert different.size == 0, (different.size, different[:5], codes.flat[different[:5]], expected.flat[different[:5]])


def assert_same_floats(actual, expected):
    assert np.array_equal(actual.reshape(-1), expected.reshape(-1), equal_nan=True)


MX_TYPES = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e2m1": "float4_e2m1fn_x2",
    "e2m3": "fp6_e2m3",
    "e3m2": "fp6_e3m2",
}


@pytest.mark.parametrize("mode", ["floor", "ceil", "even", "rceil"])
def test_torchaos_mx_conversions_give_the_same_bits(mode):
    torchao = package("torchao")
    mx = package("torchao.prototype.mx_formats.mx_tensor")
    scaling = package("torchao.prototype.mx_formats.config").ScaleCalculationMode(mode)
    released = torchao.__version__.startswith("0.18.")
    named = {one.name: one.recipe for one in fp8lab.recipes()}
    edges = named[f"torchao_0_18_mxfp8_{mode}" if released else f"torchao_mxfp8_{mode}"].edges
    halves = rows(32)[::8].to(torch.bfloat16)
    halves = halves[torch.isfinite(halves).all(dim=1)]  # which the rounding may have left
    tensors = [(rows(32), "e4m3")] + [
        (x, format) for x in (rows(32)[::8], halves, rows(32, wild=True)[::8]) for format in MX_TYPES
    ]
    for x, format in tensors:
        dtype = getattr(torch, MX_TYPES[format], MX_TYPES[format])
        scale, codes = mx.to_mx(x.contiguous(), dtype, 32, scaling_mode=scaling)
        q = fp8lab.quantize(x, MxBlock(format=format, rule=mode, nan="counted", edges=edges))
        assert np.array_equal(q.scale_codes, codes_of(scale))
        # Formats without NaN: what stands for one under a scale that is NaN is nobody's promise.
        usable = np.ones(x.shape[0], bool) if format in ("e4m3", "e5m2") else q.scale_codes[:, 0] != 255
        assert_same_codes(q.codes[usable], codes_of(codes)[usable], format)
        back = mx.to_dtype(codes, scale, dtype, 32, torch.float32).numpy()
        assert_same_floats(fp8lab.dequantize(q)[usable], back[usable])


@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
@pytest.mark.parametrize("power", [False, True])
def test_torchaos_float8_conversions_give_the_same_bits(format, power):
    utils = package("torchao.float8.float8_utils")
    axiswise = package("torchao.float8.config").ScalingGranularity.AXISWISE
    dtype = getattr(torch, MX_TYPES[format])
    for x in (rows(32), rows(32).to(torch.bfloat16), rows(32, wild=True)):
        for axis, direction, dim in (("row", "rowwise", -1), ("row", "columnwise", 0), ("tensor", "rowwise", None)):
            options = {} if dim is None else {"scaling_granularity": axiswise, "axiswise_dim": dim}
            scale = utils.tensor_to_scale(x, dtype, round_scales_to_power_of_2=power, **options)
            codes = codes_of(utils.to_fp8_saturated(x.float() * scale, dtype))
            recipe = JustInTime(format=format, rule="torchao", axis=axis, force_pow_2_scales=power)
            q = fp8lab.quantize(x, recipe, direction=direction)
            assert_same_codes(q.codes, codes.T if q.transposed else codes, format)
            assert_same_floats(q.scale_inv, (1 / scale).numpy())
    names = {one.name: one.recipe for one in fp8lab.recipes()}
    assert names["torchao_tensorwise"] == JustInTime(rule="torchao")
    assert names["torchao_rowwise"] == JustInTime(rule="torchao", axis="row", force_pow_2_scales=True)


def test_torchaos_tiles_give_the_same_bits():
    kernels = package("torchao.prototype.blockwise_fp8_training.kernels")  # which needs Triton
    for x in (rows(128), rows(128).to(torch.bfloat16), rows(128, wild=True)):
        codes, scale_inv = kernels.torch_blockwise_scale_act_quant_lhs(x)
        q = fp8lab.quantize(x, "torchao_blockwise")
        assert_same_codes(q.codes, codes_of(codes))
        assert_same_floats(q.scale_inv, scale_inv.numpy())
    x = rows(128)[:1024]
    codes, scale_inv = kernels.torch_blockwise_scale_weight_quant(x)
    q = fp8lab.quantize(x, Block(rule="torchao", rows=128, force_pow_2_scales=False))
    assert_same_codes(q.codes, codes_of(codes))
    assert_same_floats(q.scale_inv, scale_inv.numpy())


def test_a_scale_next_below_a_power_of_two_is_that_power():
    # torch.log2 says so, on which torchao's rounding to powers of two rests; words of torchao 0.18.0 on PyTorch 2.13.0.
    scale = torch.tensor([np.nextafter(np.float32(1024), np.float32(0))])
    assert torch.exp2(torch.floor(torch.log2(scale))).item() == 1024
    q = fp8lab.quantize(np.array([[float.fromhex("0x1.c00002p-2")]], np.float32), "torchao_rowwise")
    assert q.scale_inv.tolist() == [[1 / 1024]] and q.codes.tolist() == [[0x7E]]
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = float.fromhex("0x1.c00002p+18")
    assert fp8lab.quantize(x, "torchao_0_18_mxfp8_rceil").scale_codes.tolist() == [[137]]
    assert fp8lab.quantize(x, "torchao_mxfp8_rceil").scale_codes.tolist() == [[138]]


@pytest.mark.skipif(not EXHAUSTIVE, reason="all 2^31 amaxes: ./dev test --exhaustive")
def test_torchaos_powers_of_two_of_every_amax():
    utils = package("torchao.float8.float8_utils")
    recipe = JustInTime(rule="torchao", axis="row", force_pow_2_scales=True)
    for first in range(0, 2**31, 2**22):
        amax = np.arange(first, first + 2**22, dtype=np.uint32).view(np.float32).reshape(-1, 1)
        scale = utils.amax_to_scale(torch.from_numpy(amax), torch.float8_e4m3fn, True)
        assert_same_floats(fp8lab.quantize(amax, recipe).scale_inv, (1 / scale).numpy())


@pytest.mark.parametrize("power", [False, True])
def test_deepgemms_arithmetic_in_torch_gives_the_same_bits(power):
    x = rows(128, wild=True).to(torch.bfloat16)
    scale_inv = torch.clamp(torch.amax(torch.abs(x.float()), dim=1, keepdim=True), min=1e-4) / 448.0
    if power:  # the exponent field, one more where there is a fraction
        words = scale_inv.view(torch.int32)
        field = (words >> 23) + (words % 2**23 != 0).int()
        scale_inv = (torch.clamp(field, 1, 254) << 23).view(torch.float32)
    codes = codes_of((x.float() * (1.0 / scale_inv)).to(torch.float8_e4m3fn))
    q = fp8lab.quantize(x, Block(rule="deepgemm_cpu", force_pow_2_scales=power))
    assert_same_codes(q.codes, codes)
    assert_same_floats(q.scale_inv, scale_inv.numpy())


NVFP4 = [("te_nvfp4", {}), ("te_nvfp4_2d", {"quant_tile_shape": (16, 16)}), ("te_nvfp4_rht", {"with_rht": True})]


@pytest.mark.parametrize(("tag", "ending"), [("HEAD", ""), (checkouts.TE_BEFORE_2_14, "_before_2_14")])
@pytest.mark.parametrize(("name", "options"), NVFP4)
def test_transformer_engines_reference_for_nvfp4_gives_the_same_bits(name, options, tag, ending):
    """In both directions."""
    name += ending
    try:
        quantizer = checkouts.reference_nvfp4(tag)(dtype=None, **options)
    except ImportError as missing:
        pytest.skip(str(missing))
    torch.manual_seed(0)
    normal = torch.randn(256, 256)
    for x in (normal, normal * torch.exp2(torch.randn(256, 256) * 4), torch.randint(-32, 33, (256, 256)).float()):
        x = x.to(torch.bfloat16)
        reference = quantizer.quantize(x)
        for direction, data, scale in (
            ("rowwise", reference.data, reference.scale),
            ("columnwise", reference.data_t, reference.scale_t),
        ):
            q = fp8lab.quantize(x, name, direction=direction)
            scales = codes_of(scale)
            assert np.array_equal(
                q.scale_codes if direction == "rowwise" else q.scale_codes.reshape(scales.shape), scales
            )
            codes, expected = fp8lab.unpack_pairs(q.codes), fp8lab.unpack_pairs(data.numpy())
            different = np.flatnonzero(codes != expected)  # the kernels keep -0, the reference makes 0 of it
            assert np.all(codes.flat[different] == 8) and np.all(expected.flat[different] == 0)


@pytest.mark.parametrize("name", ["torchao_float8_tensor", "torchao_float8_row"])
def test_torchaos_float8_tensors_give_the_same_bits(name):
    primitives = package("torchao.quantization.quant_primitives")
    parts = [rows(32), rows(32).to(torch.bfloat16), rows(32, wild=True)]
    if name == "torchao_float8_tensor":  # one scale: a few amaxes, each alone
        parts = [part[i : i + 1].contiguous() for part in parts for i in range(0, part.shape[0], 41)]
    for x in parts:
        block = list(x.shape) if name == "torchao_float8_tensor" else [1, x.shape[1]]
        scale = primitives._choose_scale_float8(x, block, torch.float8_e4m3fn)
        codes = primitives._quantize_affine_float8(x, scale, torch.float8_e4m3fn)
        q = fp8lab.quantize(x, name)
        assert_same_floats(q.scale_inv, scale.float().numpy())
        assert_same_codes(q.codes, codes_of(codes))


@pytest.mark.parametrize("levels", [1, 2])
def test_torchaos_nvfp4_gives_the_same_bits(levels):
    nvfp4 = package("torchao.prototype.mx_formats.nvfp4_tensor")
    for x in (rows(64)[::8], rows(64)[::8].to(torch.bfloat16)):
        x = x[torch.isfinite(x.float()).all(dim=1)]
        spread = x.float().abs().amax(dim=1)
        for near in (1.0, 2.0**-40, 2.0**90):  # rows whose amaxes one tensor has beside another
            part = x[(spread > near / 64) & (spread < near * 64)].contiguous()
            per_tensor = nvfp4.per_tensor_amax_to_scale(part.float().abs().max()) if levels == 2 else None
            scales, codes = nvfp4.nvfp4_quantize(part, 16, per_tensor)
            q = fp8lab.quantize(part, "torchao_nvfp4" if levels == 2 else "torchao_nvfp4_one_level")
            assert np.array_equal(q.scale_codes, codes_of(scales))
            assert np.array_equal(q.codes, codes_of(codes))
