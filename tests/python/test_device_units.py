# SPDX-License-Identifier: Apache-2.0
"""What special function units of an NVIDIA H200 gave: tests/vectors/device/h200_units.tar, described beside it.

The words are held to the digests that the device made of all of its results, and to exact values: how far they are
from the correctly rounded result is a fact of the device.
"""

import json
import lzma
import pathlib
import tarfile

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import mixed
from sampled import EXHAUSTIVE, sampled

FILE = pathlib.Path(__file__).parents[1] / "vectors" / "device" / "h200_units.tar"


def read(name: str) -> bytes:
    with tarfile.open(FILE) as tar:
        (member,) = (one for one in tar if one.name.startswith(name))
        return lzma.decompress(tar.extractfile(member).read())


def words(name: str) -> np.ndarray:
    """The words of consecutive inputs."""
    planes = np.frombuffer(read(name), np.uint8).reshape(4, -1)
    steps = sum(planes[i].astype(np.uint32) << np.uint32(8 * i) for i in range(4))
    return steps if "64" in name.split(".")[0] or "h_" in name else np.cumsum(steps, dtype=np.uint32)


def digest(first: int, results: np.ndarray) -> int:
    """The digest of results whose inputs begin at ``first``, as the recorder defines it."""
    index = np.arange(first, first + results.size, dtype=np.uint64)
    terms = mixed(
        mixed(index + np.uint64(0x9E3779B97F4A7C15)) ^ (results.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03))
    )
    return int(np.add.reduce(terms))


def recorded(function: str) -> list[int]:
    for line in read("digests.units").decode().splitlines():
        row = json.loads(line)
        if row["function"] == function:
            return [int(word, 16) for word in row["digests"]]
    raise KeyError(function)


@pytest.mark.parametrize(
    ("name", "function"), sampled([("ex2_ftz", "ex2.approx.ftz.f32"), ("tanh", "tanh.approx.f32")], 2)
)
def test_the_words_are_those_of_the_digest(name, function):
    both = np.concatenate([words(f"{name}.3f000000"), words(f"{name}.3f800000")])
    assert digest(0x3F000000, both) == recorded(function)[0x3F]
    both[12345] ^= 1
    assert digest(0x3F000000, both) != recorded(function)[0x3F]


#: The first input, the exact function in float64, whose error is far below an ulp of float32; the largest distance from
#: the correctly rounded result in ulps, and how many of the 2^23 results are not correctly rounded.
MEASURED = {
    "rcp_ftz.3f800000": (0x3F800000, lambda x: 1 / x, 1, 1108522),
    "rsqrt_ftz.3f800000": (0x3F800000, lambda x: 1 / np.sqrt(x), 2, 1883445),
    "rsqrt_ftz.40000000": (0x40000000, lambda x: 1 / np.sqrt(x), 1, 1750685),
    "ex2_ftz.3f800000": (0x3F800000, np.exp2, 1, 3262733),
}


@pytest.mark.parametrize("name", sampled(MEASURED, 2))
def test_how_far_a_unit_is_from_the_rounded_result(name):
    first, exact, largest, count = MEASURED[name]
    got = words(name)
    x = np.arange(first, first + got.size, dtype=np.uint32).view(np.float32).astype(np.float64)
    distance = got.view(np.int32).astype(np.int64) - exact(x).astype(np.float32).view(np.int32)
    assert (int(np.abs(distance).max()), int((distance != 0).sum())) == (largest, count)


#: Those of the functions that fp8lab has, with what is known of the file's inputs: instruction, ftz.
MODELLED = {
    name: (name.split(".")[0].removesuffix("_ftz"), "_ftz" in name, int(name.split(".")[1], 16))
    for name in (
        "rcp.00000000", "rcp_ftz.3f800000", "rsqrt_ftz.3f800000", "rsqrt_ftz.40000000", "sqrt_ftz.3f800000",
        "sqrt_ftz.40000000", "lg2_ftz.3f000000", "lg2_ftz.3f800000", "lg2_ftz.40000000", "ex2.c2f80000",
        "ex2_ftz.3a800000", "ex2_ftz.3f000000", "ex2_ftz.3f800000", "ex2_ftz.40000000", "ex2_ftz.bf000000",
        "ex2_ftz.bf800000", "sin_ftz.3b000000", "sin_ftz.3e000000", "sin_ftz.3e800000", "sin_ftz.3f000000",
        "sin_ftz.3f800000", "cos_ftz.3e000000", "cos_ftz.3e800000", "cos_ftz.3f000000", "cos_ftz.3f800000",
        "tanh.3b000000", "tanh.3b800000", "tanh.3c000000", "tanh.3c800000", "tanh.3d000000", "tanh.3d800000",
        "tanh.3e000000", "tanh.3e800000", "tanh.3f000000", "tanh.3f800000", "tanh.40000000", "tanh.40800000",
        "tanh.41000000",
    )
}  # fmt: skip


#: One of each, and where results are subnormal; the others with --exhaustive.
SAMPLED = (
    "rcp.00000000",
    "rsqrt_ftz.40000000",
    "sqrt_ftz.3f800000",
    "lg2_ftz.3f000000",
    "ex2.c2f80000",
    "ex2_ftz.bf000000",
    "sin_ftz.3f800000",
    "tanh.40000000",
)


@pytest.mark.parametrize("name", MODELLED if EXHAUSTIVE else SAMPLED)
def test_the_model_gives_every_word(name):
    function, ftz, first = MODELLED[name]
    expected = words(name)
    taken = slice(
        None, None, None if EXHAUSTIVE else 5
    )  # of each run of inputs that share a line of the unit's table some
    x = np.arange(first, first + expected.size, dtype=np.uint32).view(np.float32)[taken]
    own = fp8lab.special_function(function, x, ftz=ftz or None, threads=2)
    np.testing.assert_array_equal(own.view(np.uint32), expected[taken])


#: The file's name, and the instruction: function, dtype.
OF_OTHER_TYPES = {
    "h_ex2": ("ex2", "float16"), "b_ex2": ("ex2", "bfloat16"), "h_tanh": ("tanh", "float16"),
    "b_tanh": ("tanh", "bfloat16"), "rcp64h.3ff00000": ("rcp", "float64"), "rsqrt64h.3ff00000": ("rsqrt", "float64"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_OTHER_TYPES)
def test_the_model_gives_every_word_of_other_types(name):
    function, dtype = OF_OTHER_TYPES[name]
    expected = words(name)
    if dtype == "float64":
        high = np.arange(0x3FF00000, 0x3FF00000 + expected.size, dtype=np.uint64)
        ignored = np.uint64(0x9ABCDEF0)
        own = fp8lab.special_function(function, (high << np.uint64(32) | ignored).view(np.float64), dtype=dtype)
        assert not (own.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
        own = own.view(np.uint64) >> np.uint64(32)
    else:
        of_type = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
        own = fp8lab.special_function(function, np.arange(65536, dtype=np.uint16).view(of_type), dtype=dtype)
        assert own.dtype == of_type
        own = own.view(np.uint16)
    np.testing.assert_array_equal(own.astype(np.uint32), expected)


def test_special_functions_are_told_and_refused():
    assert list(fp8lab.special_functions()) == ["rcp", "rsqrt", "sqrt", "lg2", "ex2", "sin", "cos", "tanh"]
    assert "hopper" in fp8lab.special_units()
    x = np.ones((2, 3), np.float32)
    out = np.empty((2, 3), np.float32)
    assert fp8lab.special_function("lg2", x * 8, out=out) is out
    assert (out == 3).all()
    assert fp8lab.special_function("rcp", np.empty((0, 4), np.float32)).shape == (0, 4)
    with pytest.raises(ValueError, match="unknown name 'exp'; known: rcp, rsqrt, sqrt, lg2, ex2, sin, cos, tanh"):
        fp8lab.special_function("exp", x)
    with pytest.raises(ValueError, match="PTX has no tanh.approx.ftz.f32; it has"):
        fp8lab.special_function("tanh", x, ftz=True)
    with pytest.raises(ValueError, match="PTX has no sin.approx.f16; it has ex2.approx.f16, tanh.approx.f16"):
        fp8lab.special_function("sin", x.astype(np.float16), dtype="float16")
    with pytest.raises(TypeError, match="x must have dtype float16, not float32"):
        fp8lab.special_function("tanh", x, dtype="float16")
    with pytest.raises(ValueError, match="unknown units 'ada'"):
        fp8lab.special_function("rcp", x, units="ada")
    with pytest.raises(TypeError, match="x must"):
        fp8lab.special_function("rcp", x.astype(np.float64))
    with pytest.raises(TypeError, match="ftz must be a bool"):
        fp8lab.special_function("rcp", x, ftz=1)
