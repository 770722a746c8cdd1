# SPDX-License-Identifier: Apache-2.0
"""CUDA's float32 functions, ``fp8lab.device_function``, beside two other sources of the same words.

- What an NVIDIA H200 gave: tests/vectors/device/h200_units.tar has digests of all 2^32 results under nvcc's options.
- CUDA's own libdevice, whose bitcode runs on this processor (libdevice.py), over the same special function units.
"""

import json
import lzma
import tarfile

import fp8lab
import libdevice
import numpy as np
import pytest
from conftest import mixed
from sampled import EXHAUSTIVE, sampled
from test_device_units import FILE, digest

FLAGS = {
    "default": {},
    "ftz": {"ftz": True},
    "fast": {"fast_math": True},
    "precdiv": {"prec_div": False},
    "precsqrt": {"prec_sqrt": False},
}
OF_TWO = ("x / y", "__fdividef", "__fdiv_rn")
OF_ONE = tuple(name for name in fp8lab.device_functions() if name not in OF_TWO)
CHUNK = 1 << 24


@pytest.fixture(scope="module")
def recorded():
    """What a device gave, by variant and function as the recorder calls them."""
    rows = {}
    with tarfile.open(FILE) as tar:
        for variant in FLAGS:
            text = lzma.decompress(tar.extractfile(f"digests.{variant}.jsonl.xz").read()).decode()
            for line in text.splitlines():
                row = json.loads(line)
                rows[variant, row["function"]] = row
    return rows


def written(name):
    """A function as the recorder has it."""
    return {"1 / x": "1.0f / x", "x / y": "x / y"}.get(name) or f"{name}({'x, y' if name in OF_TWO else 'x'})"


#: Variant, function and the first byte of the inputs: around 1, where results become subnormal or infinite, negative.
CHUNKS = [(variant, name, byte) for variant in FLAGS for name in OF_ONE for byte in range(256)]
SOME = [
    ("default", "expf", 0xC2),
    ("ftz", "tanhf", 0x3F),
    ("default", "erff", 0x3F),
    ("fast", "expf", 0x42),
    ("precdiv", "1 / x", 0x7E),
    ("ftz", "sinf", 0x47),
]


@pytest.mark.parametrize(("variant", "name", "byte"), CHUNKS if EXHAUSTIVE else sampled(SOME, 6))
def test_a_device_gave_these_words(recorded, variant, name, byte):
    digests = recorded[variant, written(name)]["digests"]
    if variant.startswith("prec") and digests == recorded["default", written(name)]["digests"] and EXHAUSTIVE:
        return  # the option is none of this function's
    x = np.arange(byte * CHUNK, (byte + 1) * CHUNK, dtype=np.uint32).view(np.float32)
    own = fp8lab.device_function(name, x, threads=2, **FLAGS[variant]).view(np.uint32)
    assert digest(byte * CHUNK, own) == int(digests[byte], 16)


def pairs(first, count):
    """The recorder's pairs: the halves of its random words."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    index = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    words = mixed(mixed(np.atleast_1d(np.uint64(1) + golden)) + index * golden)
    return tuple((words >> shift).astype(np.uint32).view(np.float32) for shift in (np.uint64(0), np.uint64(32)))


@pytest.mark.parametrize("variant", FLAGS)
@pytest.mark.parametrize("name", OF_TWO)
def test_a_device_divided_so(recorded, variant, name):
    row = recorded[variant, written(name)]
    assert row["seed"] == 1
    first = [int(word, 16) for word in row["first"]]
    x, y = pairs(0, len(first))
    assert fp8lab.device_function(name, x, y, **FLAGS[variant]).view(np.uint32).tolist() == first
    if not EXHAUSTIVE:
        return
    total = 0
    for begin in range(0, row["pairs"], 10**7):
        own = fp8lab.device_function(name, *pairs(begin, 10**7), threads=2, **FLAGS[variant]).view(np.uint32)
        total += digest(begin, own)
    assert total % 2**64 == int(row["digest"], 16)


#: libdevice's name of a function, and that of the faster one that -use_fast_math takes.
OF_LIBDEVICE = {
    name: f"__nv_fast_{name[2:]}" if name in ("__expf", "__logf", "__log2f") else f"__nv_{name.removeprefix('__')}"
    for name in OF_ONE
    if name != "1 / x"
}
FASTER = {name: f"__nv_fast_{name}" for name in ("expf", "exp10f", "logf", "log2f", "log10f")}


def inputs(count):
    """Words of any exponent, and the neighbours of all numbers at which a function changes its formula."""
    near = np.float32([0, 0.41, 0.6, 1, 9.01, 10.05, 14.5, 88.7, 104, 126, 127, 128, 105615, np.inf, 2**-126, 1.004])
    steps = np.arange(-3, 4, dtype=np.int32)
    words = (near.view(np.int32)[:, None] + steps).astype(np.uint32).reshape(-1)
    drawn = mixed(np.arange(count, dtype=np.uint64) + np.uint64(39))
    random = drawn.astype(np.uint32)
    of_size_one = (drawn >> np.uint64(32)).astype(np.uint32) % np.uint32(0x0C000000) + np.uint32(0x38000000)
    return np.concatenate([words, words ^ np.uint32(1 << 31), random, of_size_one]).view(np.float32)


def with_one_nan(x):
    return np.where(np.isnan(x), np.uint32(0x7FFFFFFF), x.view(np.uint32))


def second_opinion(flushes, names, **given):
    pytest.importorskip("llvmlite")
    if not libdevice.is_possible():
        pytest.skip("no libdevice beside nvcc, or another processor than x86-64 with FMA")
    return libdevice.Libdevice(flushes, names, **given)


@pytest.mark.parametrize(("flushes", "units"), [(False, "hopper"), (True, "correctly_rounded")])
def test_libdevice_itself_gives_these_words(flushes, units):
    names = {*OF_LIBDEVICE.values(), *FASTER.values()}
    host = second_opinion(flushes, names)
    x = inputs(1 << 22 if EXHAUSTIVE else 1 << 12)

    def unit(name, arguments, ftz):
        return fp8lab.special_function(name, arguments, ftz=ftz, units=units)

    for name, own_name in OF_LIBDEVICE.items():
        own = fp8lab.device_function(name, x, ftz=flushes, units=units).view(np.uint32)
        np.testing.assert_array_equal(own, with_one_nan(host.run(own_name, x, unit)), err_msg=name)
    for name, own_name in FASTER.items() if flushes else ():
        own = fp8lab.device_function(name, x, fast_math=True, units=units).view(np.uint32)
        np.testing.assert_array_equal(own, with_one_nan(host.run(own_name, x, unit)), err_msg=name)


def test_another_constant_is_seen():
    """The check fails where one bit of one constant of libdevice differs."""
    host = second_opinion(
        False, ["__nv_tanhf"], changed=lambda text: text.replace("0x3FC10B2820000000", "0x3FC10B2840000000")
    )
    x = inputs(1 << 12)
    other = host.run("__nv_tanhf", x, lambda name, arguments, ftz: fp8lab.special_function(name, arguments, ftz=ftz))
    assert (with_one_nan(other) != fp8lab.device_function("tanhf", x).view(np.uint32)).any()


def test_what_is_not_known_is_refused():
    x = np.ones((2, 3), np.float32)
    assert list(fp8lab.device_functions())[:4] == ["expf", "__expf", "tanhf", "erff"]
    assert (fp8lab.device_function("tanhf", x, fast_math=True) == fp8lab.special_function("tanh", x)).all()
    for chip in ("sm_80", "sm_100"):
        with pytest.raises(
            ValueError, match=f"the special function unit of {chip} is not known; units of correctly_rounded stand in"
        ):
            fp8lab.device_function("expf", x, chip=chip)
        with pytest.raises(ValueError, match=f"units are hopper, which are not those of {chip}"):
            fp8lab.device_function("expf", x, chip=chip, units="hopper")
        own = fp8lab.device_function("expf", x, chip=chip, units="correctly_rounded")
        assert own.view(np.uint32)[0, 0] == np.float32(np.e).view(np.uint32)
    with pytest.raises(ValueError, match="unknown cuda '12.8'; known: 13.0"):
        fp8lab.device_function("expf", x, cuda="12.8")
    with pytest.raises(ValueError, match="unknown chip 'gfx942'"):
        fp8lab.device_function("expf", x, chip="gfx942")
    with pytest.raises(ValueError, match="unknown name 'acosf'"):
        fp8lab.device_function("acosf", x)
    with pytest.raises(ValueError, match="y must have 6 elements for x / y, not 0"):
        fp8lab.device_function("x / y", x)
    with pytest.raises(ValueError, match="y must have 0 elements for expf, not 6"):
        fp8lab.device_function("expf", x, x)
    with pytest.raises(ValueError, match=r"y must have the shape \(2, 3\) of x"):
        fp8lab.device_function("x / y", x, x[0])
    with pytest.raises(TypeError, match="fast_math must be a bool"):
        fp8lab.device_function("expf", x, fast_math=1)
    out = np.empty_like(x)
    assert fp8lab.device_function("x / y", x, x * 2, out=out) is out and (out == 0.5).all()


def test_the_stand_in_is_the_nearest_number():
    """2^x and the binary logarithm of 53 bits, rounded once more: near a tie that may differ, which no sample meets."""
    x = inputs(1 << 12)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        for name, exact in {
            "rcp": 1 / wide,
            "rsqrt": 1 / np.sqrt(wide),
            "sqrt": np.sqrt(wide),
            "lg2": np.log2(wide),
            "ex2": np.exp2(wide),
        }.items():
            own = fp8lab.special_function(name, x, units="correctly_rounded").view(np.uint32)
            np.testing.assert_array_equal(own, with_one_nan(exact.astype(np.float32)), err_msg=name)


def fused(a, b, c):
    """fma of float32: the product is exact in float64, and the sum meets no tie that a second rounding would miss."""
    return (np.float64(a) * np.float64(b) + np.float64(c)).astype(np.float32)


def test_activations_are_made_of_these_functions():
    """The formulas of Transformer Engine 2.20's common/util/math.h, with the functions of the same flags."""
    one, half = np.float32(1), np.float32(0.5)
    x = np.linspace(-12, 12, 4097, dtype=np.float32)
    gate = x[::-1].copy()

    def sigmoid(x):
        return one / (one + fp8lab.device_function("expf", -x))

    def gelu(x):
        inner = x * fused(x, x * np.float32(0.03567741), np.float32(0.79788456))
        return x * fused(fp8lab.device_function("tanhf", inner), half, half)

    def rounded(name, *halves):
        return fp8lab.operators.activation(
            name, np.stack(halves, axis=1).reshape(x.size, -1), functions="hopper"
        ).ravel()

    with np.errstate(over="ignore"):
        for name, expected, halves in (
            ("gelu", gelu(x), (x,)),
            ("silu", x * sigmoid(x), (x,)),
            ("qgelu", x * sigmoid(np.float32(1.702) * x), (x,)),
            ("swiglu", (x * sigmoid(x)) * gate, (x, gate)),
            ("geglu", gelu(x) * gate, (x, gate)),
        ):
            own = rounded(name, *halves)
            np.testing.assert_array_equal(own.view(np.uint32), expected.view(np.uint32), err_msg=name)
            ordinary = fp8lab.operators.activation(name, np.stack(halves, axis=1).reshape(x.size, -1)).ravel()
            assert 0 < (own != ordinary).sum() < x.size, name
    grad = np.ones((x.size, 1), np.float32)
    t = fp8lab.device_function("tanhf", (x * np.float32(0.79788456)) * fused(x, x * np.float32(0.044715), one))
    slope = (x * half) * (fused(-t, t, one) * fused(x, x * np.float32(0.1070322243), np.float32(0.79788456)))
    dx = fp8lab.operators.activation_backward("gelu", grad, x[:, None].copy(), functions="hopper")
    np.testing.assert_array_equal(dx.ravel().view(np.uint32), fused(t + one, half, slope).view(np.uint32))
