# SPDX-License-Identifier: Apache-2.0
import pathlib
import tracemalloc

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import splitmix

DTYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e8m0": ml_dtypes.float8_e8m0fnu}
FP8 = ["e4m3", "e5m2"]
OTHERS = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e3m4": ml_dtypes.float8_e3m4,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
DTYPES |= OTHERS


def boundaries(name: str) -> np.ndarray:
    """All values, midpoints and their float neighbours, from ml_dtypes' table of values."""
    codes = np.arange(128, dtype=np.uint8)
    values = codes.view(DTYPES[name]).astype(np.float64)
    values = values[np.isfinite(values)]
    values = np.append(values, 2 * values[-1] - values[-2])  # where the next one would be
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2]).astype(np.float32)
    points = np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-1))])
    return np.concatenate([points, -points])


def expected(x: np.ndarray, name: str) -> np.ndarray:
    """ml_dtypes' codes under the rules of cuda_nosat, which differs in NaN's sign and payload only."""
    with np.errstate(all="ignore"):
        codes = x.astype(DTYPES[name]).view(np.uint8).copy()
        codes[np.isnan(x.astype(np.float64))] = 0x7F
    return codes


@pytest.mark.parametrize("name", DTYPES)
def test_decode_equals_ml_dtypes_on_all_codes(name):
    codes = np.arange(1 << ml_dtypes.finfo(DTYPES[name]).bits).astype(np.uint8)
    values = fp8lab.decode(codes, name)
    reference = codes.view(DTYPES[name]).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(values), np.isnan(reference))
    number = ~np.isnan(reference)
    np.testing.assert_array_equal(values[number].view(np.uint32), reference[number].view(np.uint32))
    np.testing.assert_array_equal(fp8lab.decode(codes.view(DTYPES[name])).view(np.uint32), values.view(np.uint32))


@pytest.mark.parametrize("name", FP8)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_encode_equals_ml_dtypes_on_all_halves_and_bfloat16s(name, dtype):
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    np.testing.assert_array_equal(fp8lab.encode(x, name, profile="cuda_nosat"), expected(x, name))


@pytest.mark.parametrize("name", FP8)
def test_encode_equals_ml_dtypes_on_boundaries_and_seeded_floats(name, floats):
    for x in (boundaries(name), floats):
        np.testing.assert_array_equal(fp8lab.encode(x, name, profile="cuda_nosat", threads=2), expected(x, name))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_profile_ieee_is_numpy_and_ml_dtypes(dtype, floats):
    name = np.dtype(dtype).name
    with np.errstate(all="ignore"):
        reference = floats.astype(dtype).view(np.uint16)
    number = ~np.isnan(floats)
    codes = fp8lab.encode(floats, name, profile="ieee", threads=2)
    assert codes.dtype == np.uint16
    np.testing.assert_array_equal(codes[number], reference[number])
    with np.errstate(all="ignore"):
        values = reference.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(fp8lab.decode(codes, name)[number].view(np.uint32), values[number].view(np.uint32))
    if dtype == np.float16:  # from float64 with one rounding, as NumPy does
        x = floats[:1000000:3]
        x = x[np.isfinite(x)].astype(np.float64) * (1 + 2.0**-40)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(fp8lab.encode(x, name, profile="ieee"), x.astype(dtype).view(np.uint16))


GFLOAT_MODES = {
    "nearest_even": "TiesToEven",
    "nearest_away": "TiesToAway",
    "toward_zero": "TowardZero",
    "upward": "TowardPositive",
    "downward": "TowardNegative",
    "stochastic": "StochasticFastest",
}


@pytest.mark.parametrize("mode", GFLOAT_MODES)
def test_every_mode_equals_gfloat(mode, floats):
    # gfloat 0.5: formats from their records, and the rounding modes that ml_dtypes and torch lack.
    gfloat = pytest.importorskip("gfloat")
    from gfloat import formats as known

    infos = {
        "e4m3": known.format_info_ocp_e4m3, "e5m2": known.format_info_ocp_e5m2, "e2m3": known.format_info_ocp_e2m3,
        "e3m2": known.format_info_ocp_e3m2, "e2m1": known.format_info_ocp_e2m1, "float16": known.format_info_binary16,
        "bfloat16": known.format_info_bfloat16,
    }  # fmt: skip
    rounding = getattr(gfloat.RoundMode, GFLOAT_MODES[mode])
    for name, info in infos.items():
        ties = boundaries(name) if name in DTYPES else np.float32([65519, 65520, 2**-25, 1.0009765625 + 2**-12])
        x = np.concatenate([floats[:40000], ties])
        x = x[np.isfinite(x)]
        words = splitmix(3, x.size).astype(np.uint8)
        random = {"srbits": words.astype(np.int64), "srnumbits": 8} if mode == "stochastic" else {}
        reference = gfloat.round_ndarray(info, x.astype(np.float64), rounding, True, **random)
        codes = fp8lab.encode(x, name, rounding=mode, random_bits=words if random else None)
        np.testing.assert_array_equal(fp8lab.decode(codes, name), reference.astype(np.float32), err_msg=name)


def test_a_format_of_ones_own():
    own = fp8lab.Format(4, 3, 7, specials="nan_at_all_ones", name="mine")
    assert own == fp8lab.formats()[0] and own.bits == 8 and own.name == "mine"
    x = np.linspace(-500, 500, 1001, dtype=np.float32)
    np.testing.assert_array_equal(fp8lab.encode(x, own), fp8lab.encode(x, "e4m3"))
    tiny = fp8lab.Format(3, 0, 3, specials="none")
    assert fp8lab.decode(fp8lab.encode([0.3, 5.0, 100.0], tiny), tiny).tolist() == [0.25, 4.0, 16.0]
    wide = fp8lab.Format(5, 6, 15)
    np.testing.assert_array_equal(
        fp8lab.cast_to_representable(np.float32([1 + 2**-6, 1 + 2**-7]), wide), np.float32([1 + 2**-6, 1])
    )


def test_a_profile_of_ones_own(floats):
    own = fp8lab.Profile(overflow="to_special", infinity="to_special", nan="sign_quiet", name="mine")
    x = floats[: 1 << 16]
    np.testing.assert_array_equal(fp8lab.encode(x, "e5m2", profile=own), fp8lab.encode(x, "e5m2", profile="ml_dtypes"))
    assert str(own).startswith("mine: rounds nearest_even; finite overflow gives infinity")
    for entry in fp8lab.profiles():
        again = fp8lab.Profile(**{key: getattr(entry, key) for key in (
            "rounding", "overflow", "infinity", "nan", "nan_of_double", "missing_nan", "zero", "smallest", "negative",
            "float64_via_float32")})  # fmt: skip
        assert again.description == entry.description


def test_stochastic_rounding_follows_the_random_bits():
    x = np.full(256, 1 + 0.125 * 77 / 256, np.float32)  # 77/256 of the way from 1 to 1.125
    words = np.arange(256, dtype=np.uint8)
    codes = fp8lab.encode(x, "e4m3", rounding="stochastic", random_bits=words)
    assert (codes == 0x39).sum() == 77 and (codes[256 - 77 :] == 0x39).all()
    wide = fp8lab.encode(x, "e4m3", rounding="stochastic", random_bits=words.astype(np.uint32), random_count=8)
    np.testing.assert_array_equal(codes, wide)
    # PTX: 16 bits for each pair of neighbours, the low half first.
    shared = fp8lab.encode(
        x[:4], "e4m3", rounding="stochastic", random_bits=np.uint32([0xFFFF0000]), random_sharing="ptx"
    )
    assert shared.tolist() == [0x38, 0x38, 0x39, 0x39]


def test_chains_count_what_double_rounding_changes():
    x = np.arange(0x3F800000, 0x40000000, dtype=np.uint32).view(np.float32)  # [1, 2)
    found = fp8lab.chain_differences(x, "e4m3", via="float16", threads=2)
    assert (found.total, found.count, found.indices[0]) == (1 << 23, 32768, 0x80001)
    assert fp8lab.chain_differences(x, "e4m3", via="bfloat16", via_rounding="toward_zero").count == 262140
    assert fp8lab.chain_differences(x, "e4m3", via="float16", via_rounding="to_odd").count == 0
    codes = fp8lab.encode(x, "e4m3", via="float16")
    assert np.count_nonzero(codes != fp8lab.encode(x, "e4m3")) == 32768
    np.testing.assert_array_equal(codes, fp8lab.encode(x.astype(np.float16), "e4m3"))


def test_fp4_pairs():
    codes = fp8lab.encode(np.float32([[0.5, -6, 1], [2, 3, 4]]), "e2m1")
    packed = fp8lab.pack_pairs(codes)
    assert packed.tolist() == [[0xF1, 0x02], [0x54, 0x06]]
    np.testing.assert_array_equal(fp8lab.unpack_pairs(packed, 3), codes)
    np.testing.assert_array_equal(fp8lab.pack_pairs(codes.view(ml_dtypes.float4_e2m1fn)), packed)
    assert fp8lab.unpack_pairs(packed).shape == (2, 4)


@pytest.mark.parametrize("name", OTHERS)
def test_other_formats_equal_ml_dtypes_up_to_their_largest_value(name, floats):
    largest = next(entry.max for entry in fp8lab.formats() if entry.name == name)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    near = (splitmix(5, 1 << 20).astype(np.float64) / 2.0**63 - 1).astype(np.float32) * np.float32(largest)
    for x in (halves, floats, near):
        x = x[np.abs(x) <= largest]
        reference = x.astype(DTYPES[name]).view(np.uint8) & ((1 << ml_dtypes.finfo(DTYPES[name]).bits) - 1)
        np.testing.assert_array_equal(fp8lab.encode(x, name), reference)


def test_e8m0_equals_ml_dtypes_where_all_families_agree():
    # Positive normal floats that do not overflow; the families part on zero, subnormals, signs and overflow.
    x = np.append(
        np.ldexp(np.float32(1.5), np.arange(-126, 127)), splitmix(8, 1 << 20).astype(np.uint32).view(np.float32)
    )
    x = np.abs(x[np.isfinite(x)]).astype(np.float32)
    x = x[(x >= 2.0**-126) & (x < 1.5 * 2.0**127)]
    np.testing.assert_array_equal(fp8lab.encode(x, "e8m0"), x.astype(DTYPES["e8m0"]).view(np.uint8))


@pytest.mark.parametrize("name", FP8)
def test_satfinite_is_nosat_with_the_largest_value_for_overflow(name, floats):
    nosat = fp8lab.encode(floats, name, profile="cuda_nosat")
    largest = int(fp8lab.encode(np.float32(3e38), name))
    overflow = ((nosat & 0x7F) > largest) & ~np.isnan(floats)
    np.testing.assert_array_equal(fp8lab.encode(floats, name), np.where(overflow, (nosat & 0x80) | largest, nosat))


def test_float64_is_rounded_once():
    # NVIDIA's cuda_fp8.h gives 39 for 1 + 2^-4 + 2^-52; by way of float32 it would be a tie, and 38.
    assert fp8lab.encode(np.float64(1.0625 + 2**-52), "e4m3") == 0x39
    assert fp8lab.encode(np.float32(1.0625 + 2**-52), "e4m3") == 0x38


def test_representable_values_are_ml_dtypes_values(floats):
    x = floats[np.abs(floats) < 400]
    with np.errstate(all="ignore"):
        reference = x.astype(DTYPES["e4m3"]).astype(np.float32)
    np.testing.assert_array_equal(fp8lab.cast_to_representable(x, "e4m3").view(np.uint32), reference.view(np.uint32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_cast_to_representable_keeps_the_type_and_writes_in_place(dtype):
    x = np.linspace(-3, 3, 101).astype(dtype)
    result = fp8lab.cast_to_representable(x, "e5m2", scale=4)
    assert result.dtype == x.dtype
    kept = x.copy()
    assert fp8lab.cast_to_representable(kept, "e5m2", scale=4, out=kept) is kept
    assert kept.tobytes() == result.tobytes()


def test_rounding_modes_order_the_codes():
    x = np.float32([1.01, -1.01])
    codes = {
        mode: fp8lab.decode(fp8lab.encode(x, "e4m3", rounding=mode)).tolist()
        for mode in ("upward", "downward", "toward_zero")
    }
    assert codes == {"upward": [1.125, -1.0], "downward": [1.0, -1.125], "toward_zero": [1.0, -1.0]}


def test_shapes_layouts_and_scalars():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    codes = fp8lab.encode(x, "e4m3")
    assert codes.shape == (4, 6)
    np.testing.assert_array_equal(fp8lab.encode(x.T, "e4m3"), codes.T)
    np.testing.assert_array_equal(fp8lab.encode(x[::2, ::-3], "e4m3"), codes[::2, ::-3])
    assert fp8lab.encode(np.float32(1), "e4m3").shape == ()
    assert fp8lab.encode(np.empty((0, 3), np.float32), "e4m3").shape == (0, 3)
    assert fp8lab.encode([0.5, 1.0], "e4m3").tolist() == [0x30, 0x38]


def test_no_copies_are_made():
    x = np.ones(1 << 22, np.float32)
    codes = np.empty(x.shape, np.uint8)
    tracemalloc.start()
    assert fp8lab.encode(x, "e4m3", out=codes) is codes
    assert fp8lab.decode(codes, "e4m3", out=x) is x
    assert fp8lab.cast_to_representable(x, "e4m3", out=x) is x
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 16, "an array of 2^22 elements was copied"
    # An ml_dtypes array is read where it lies, too.
    halves = x[: 1 << 20].astype(ml_dtypes.bfloat16)
    tracemalloc.start()
    fp8lab.encode(halves, "e4m3", out=codes[: 1 << 20])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 16


def test_unaligned_input_is_copied_and_right():
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)
    assert not unaligned.flags.aligned
    np.testing.assert_array_equal(fp8lab.encode(unaligned, "e4m3"), fp8lab.encode(x, "e4m3"))


def test_output_that_overlaps_the_input():
    x = np.linspace(0, 100, 4096, dtype=np.float32)
    plain = fp8lab.encode(x, "e4m3")
    for start in (0, 4096):
        shared = x.copy()
        out = shared.view(np.uint8)[start : start + 4096]
        np.testing.assert_array_equal(fp8lab.encode(shared, "e4m3", threads=2, out=out), plain)


BAD_CALLS = [
    (
        lambda: fp8lab.encode(np.arange(3), "e4m3"),
        TypeError,
        "x must be float32, float64, float16 or bfloat16, not int64",
    ),
    (lambda: fp8lab.encode(np.ones(3, ">f4"), "e4m3"), TypeError, "not >f4"),
    (lambda: fp8lab.encode(["a"], "e4m3"), TypeError, "x must be"),
    (lambda: fp8lab.encode([1.0], "e4m4"), ValueError, "unknown format 'e4m4'; known: e4m3, e5m2, e8m0, "),
    (lambda: fp8lab.encode([1.0], 7), TypeError, r"format must be a name \(str\) or a Format, not int"),
    (lambda: fp8lab.encode([1.0], "e4m3", rounding="stochastic"), ValueError, "'stochastic' needs random bits"),
    (lambda: fp8lab.encode([1.0], "e4m3", random_bits=np.uint8([1])), ValueError, "for rounding 'stochastic' only"),
    (
        lambda: fp8lab.encode([1.0], "e4m3", random_bits=np.int8([1])),
        TypeError,
        "random_bits must be uint8, uint16 or uint32",
    ),
    (lambda: fp8lab.encode([1.0], "e4m3", random_bits=np.uint8([1, 2])), ValueError, "as many elements as x, 1, not 2"),
    (
        lambda: fp8lab.encode([1.0], "e4m3", random_bits=np.uint8([1]), random_count=9),
        ValueError,
        "random_count must be from 0 to 8",
    ),
    (lambda: fp8lab.encode([1.0], "e4m3", random_count=9), ValueError, "need random_bits"),
    (
        lambda: fp8lab.encode([1.0], "e4m3", rounding="stochastic", random_bits=np.uint8([1]), random_sharing="ptx"),
        TypeError,
        "must be uint32",
    ),
    (
        lambda: fp8lab.encode([1.0], "e3m4", rounding="stochastic", random_bits=np.uint32([1]), random_sharing="ptx"),
        ValueError,
        "cvt.rs knows",
    ),
    (lambda: fp8lab.encode([1.0], "e4m3", random_sharing="all"), ValueError, "known: none, ptx"),
    (
        lambda: fp8lab.encode(np.float16([1]), "e4m3", via="bfloat16"),
        TypeError,
        "x must be float32 or float64 for a chain",
    ),
    (
        lambda: fp8lab.encode(np.int32([1]), "e4m3", via="bfloat16"),
        TypeError,
        "x must be float32 or float64 for a chain of casts, not int32",
    ),
    (
        lambda: fp8lab.chain_differences([1], "e4m3", via="float16"),
        TypeError,
        "x must be float32 or float64 for a chain of casts, not int64",
    ),
    (lambda: fp8lab.encode([1.0], "float16", via="bfloat16"), ValueError, "at most 8 bits at the end of a chain"),
    (lambda: fp8lab.encode([1.0], "float16", out=np.empty(1, np.uint8)), TypeError, "out must be uint16, not uint8"),
    (lambda: fp8lab.decode(np.uint8([1]), "float16"), TypeError, "codes must be uint16 codes, not uint8"),
    (lambda: fp8lab.cast_to_representable([1.0], "e4m3", rounding="stochastic"), ValueError, "use encode and decode"),
    (lambda: fp8lab.Format(9, 3, 7), ValueError, "1 to 8 exponent bits, not 9"),
    (lambda: fp8lab.Format(4, 3, 7, specials="inf"), ValueError, "unknown specials 'inf'; known: ieee, "),
    (lambda: fp8lab.Profile(overflow="wrap"), ValueError, "unknown overflow 'wrap'; known: saturate, "),
    (
        lambda: fp8lab.gemm(np.ones((1, 1), np.uint16), np.ones((1, 1), np.uint16), model="exact", format_a="float16"),
        TypeError,
        "b must be uint8 codes",
    ),
    (lambda: fp8lab.unpack_pairs(np.uint8([1]), 3), ValueError, "count must be from 1 to 2"),
    (lambda: fp8lab.pack_pairs(np.uint8(1)), ValueError, "at least one dimension"),
    (
        lambda: fp8lab.encode([1.0], "e4m3", profile="nvidia"),
        ValueError,
        "unknown profile 'nvidia'; known: .*ml_dtypes",
    ),
    (lambda: fp8lab.encode([1.0], "e4m3", rounding="rne"), ValueError, "unknown rounding 'rne'"),
    (lambda: fp8lab.encode([1.0], "e4m3", threads=0), ValueError, "threads must be from 1"),
    (lambda: fp8lab.encode([1.0], "e4m3", threads=1.5), TypeError, "threads must be an int, not 1.5"),
    (
        lambda: fp8lab.encode([1.0], "e4m3", out=np.empty(2, np.uint8)),
        ValueError,
        r"out must have shape \(1,\), not \(2,\)",
    ),
    (lambda: fp8lab.encode([1.0], "e4m3", out=np.empty(1, np.int8)), TypeError, "out must be uint8, not int8"),
    (lambda: fp8lab.encode([1.0], "e4m3", out=[0]), TypeError, "out must be a NumPy array, not list"),
    (lambda: fp8lab.encode([1.0, 2.0], "e4m3", out=np.empty(4, np.uint8)[::2]), ValueError, "out must be C-contiguous"),
    (lambda: fp8lab.decode(np.ones(2, np.int8), "e4m3"), TypeError, "codes must be uint8"),
    (lambda: fp8lab.decode(np.ones(2, np.float32)), TypeError, "codes must be uint8"),
    (lambda: fp8lab.cast_to_representable([1.0], "e4m3", scale=0), ValueError, "scale must be positive"),
    (lambda: fp8lab.cast_to_representable([1.0], "e4m3", scale=float("nan")), ValueError, "scale must be positive"),
    (lambda: fp8lab.cast_to_representable(np.float32([1]), "e4m3", scale=1e-40), ValueError, "so must its inverse"),
    (lambda: fp8lab.cast_to_representable([1.0], "e4m3", scale=10**400), ValueError, "scale is too large"),
    (lambda: fp8lab.encode(np.ma.array([1.0], mask=[1]), "e4m3"), TypeError, "x must not be a masked array"),
    (
        lambda: fp8lab.encode([[1.0], [1.0, 2.0]], "e4m3"),
        ValueError,
        "x must be an array, or nested lists of equal lengths",
    ),
    (lambda: fp8lab.encode([1.0], "e4m3\0"), ValueError, "format must be a name of printable characters"),
    (lambda: fp8lab.encode([1.0], "e\udc80"), ValueError, "format must be a name of printable characters"),
    (lambda: fp8lab.encode([1.0], pathlib.Path("e4m3")), TypeError, "format must be a name"),
    (lambda: fp8lab.Profile(name="\ud800"), ValueError, "name must have characters that UTF-8 has"),
    (lambda: fp8lab.Profile(nan=fp8lab.formats()[0]), TypeError, r"nan must be a name \(str\), not Format"),
    (lambda: fp8lab.encode([1.0], "e4m3", out=np.empty(1, ">u2")), TypeError, "out must be uint8, not >u2"),
    (lambda: fp8lab.decode([1], "e4m3"), TypeError, "codes must be uint8"),
    (
        lambda: fp8lab.decode(np.ones(1, np.uint8), out=np.empty(5, np.uint8)[1:].view(np.float32)),
        ValueError,
        "aligned",
    ),
    (lambda: fp8lab.cast_to_representable([1.0], "e4m3", scale="1"), TypeError, "scale must be a number"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_lists_explain_themselves():
    for entry in fp8lab.formats() + fp8lab.profiles() + fp8lab.models():
        assert str(entry).startswith(entry.name + ": ")
        assert entry.name in repr(entry)
    assert fp8lab.encode([448.0], fp8lab.formats()[0], profile=fp8lab.profiles()[0]) == 0x7E
    assert fp8lab.roundings()[0] == "nearest_even"
    e4m3 = fp8lab.formats()[0]
    assert (e4m3.exponent_bits, e4m3.mantissa_bits, e4m3.bias, e4m3.max) == (4, 3, 7, 448)
    assert (e4m3.is_signed, e4m3.has_subnormals, e4m3.specials) == (True, True, "nan_at_all_ones")


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.linspace(-5, 5, 33).to(dtype)
        np.testing.assert_array_equal(fp8lab.encode(x, "e4m3"), x.to(torch.float8_e4m3fn).view(torch.uint8).numpy())
    np.testing.assert_array_equal(fp8lab.decode(torch.tensor([1.5]).to(torch.float8_e5m2)), [1.5])
