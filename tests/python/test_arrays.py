# SPDX-License-Identifier: Apache-2.0
"""Arrays that overlap ``out``, codes with bits beyond their format's width, and arguments that nothing would read."""

import copy

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import splitmix

SIZE = 70
FLOATS = (splitmix(1, SIZE) % np.uint64(4096)).astype(np.float32) / 64 - 32
CODES = np.arange(SIZE, dtype=np.uint8)
SOURCES = ["float32", "float64", "float16", "bfloat16"]


def cast_cases():
    for source in SOURCES:
        x = FLOATS.astype(source if source != "bfloat16" else ml_dtypes.bfloat16)
        for format, dtype in (("e4m3", np.uint8), ("float16", np.uint16)):
            yield (
                f"encode {source} to {format}",
                (x,),
                dtype,
                x.shape,
                lambda x, out, f=format: fp8lab.encode(x, f, out=out),
            )
            for words in ("uint8", "uint16", "uint32"):
                bits = splitmix(2, SIZE).astype(words)
                yield (
                    f"encode {source} to {format} with {words}",
                    (x, bits),
                    dtype,
                    x.shape,
                    lambda x, bits, out, f=format: fp8lab.encode(
                        x, f, rounding="stochastic", random_bits=bits, out=out
                    ),
                )
        shared = splitmix(3, (SIZE + 3) // 4).astype(np.uint32)
        yield (
            f"encode {source} with PTX's words",
            (x, shared),
            np.uint8,
            x.shape,
            lambda x, bits, out: fp8lab.encode(
                x, "e4m3", rounding="stochastic", random_bits=bits, random_sharing="ptx", out=out
            ),
        )
        yield (
            f"cast {source}",
            (x,),
            x.dtype,
            x.shape,
            lambda x, out: fp8lab.cast_to_representable(x, "e4m3", scale=3, out=out),
        )
    for source in SOURCES[:2]:
        x = FLOATS.astype(source)
        yield (
            f"encode {source} by float16",
            (x,),
            np.uint8,
            x.shape,
            lambda x, out: fp8lab.encode(x, "e4m3", via="float16", out=out),
        )


def code_cases():
    yield "decode", (CODES,), np.float32, CODES.shape, lambda codes, out: fp8lab.decode(codes, "e4m3", out=out)
    halves = splitmix(4, SIZE).astype(np.uint16)
    yield (
        "decode halves",
        (halves,),
        np.float32,
        CODES.shape,
        lambda codes, out: fp8lab.decode(codes, "float16", out=out),
    )
    for count in (SIZE, SIZE + 1):
        pairs = np.resize(CODES % 16, count)
        packed = fp8lab.pack_pairs(pairs)
        yield f"pack {count}", (pairs,), np.uint8, packed.shape, lambda pairs, out: fp8lab.pack_pairs(pairs, out=out)
        yield (
            f"unpack {count}",
            (packed,),
            np.uint8,
            pairs.shape,
            lambda packed, out: fp8lab.unpack_pairs(packed, out.shape[-1], out=out),
        )


CASES = [*cast_cases(), *code_cases()]


def places(size, out_bytes, itemsize):
    """Where an output may lie in a buffer whose bytes [out_bytes, out_bytes + size) are the input, and each neighbour
    of that."""
    every = range(0, size + out_bytes + 1, itemsize)
    some = {*every[:: max(1, len(every) // 24)], out_bytes, out_bytes - itemsize, out_bytes + itemsize, size}
    return sorted(some & {*every})


@pytest.mark.parametrize(("name", "inputs", "dtype", "shape", "call"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("reverse", [False, True])
def test_an_input_that_overlaps_out_gives_what_one_apart_gives(name, inputs, dtype, shape, call, reverse):
    """Every input at every distance from the output, forward and reversed: bytes and elements apart, in part the same,
    the same."""
    out_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    for i, own in enumerate(inputs):
        given = own[::-1].copy() if reverse else own
        arguments = [*inputs[:i], given, *inputs[i + 1 :]]
        expected = call(*arguments, out=np.empty(shape, dtype)).tobytes()
        begin = -(-out_bytes // 8) * 8
        for place in places(begin - out_bytes + own.nbytes, out_bytes, np.dtype(dtype).itemsize):
            room = np.zeros(begin + own.nbytes + out_bytes + 8, np.uint8)
            lying = room[begin : begin + own.nbytes].view(own.dtype)
            lying = lying[::-1] if reverse else lying
            lying[...] = given
            out = room[place : place + out_bytes].view(dtype).reshape(shape)
            result = call(*inputs[:i], lying, *inputs[i + 1 :], out=out)
            assert result is out and result.tobytes() == expected, (name, i, place, begin)


def test_both_inputs_may_be_the_output_itself():
    x = FLOATS.astype(np.float16)
    expected = fp8lab.encode(x, "float16", rounding="stochastic", random_bits=x.view(np.uint16))
    own = x.copy()
    result = fp8lab.encode(
        own, "float16", rounding="stochastic", random_bits=own.view(np.uint16), out=own.view(np.uint16), threads=3
    )
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "recipe", ["te_mxfp8", "te_nvfp4", "te_current_scaling", fp8lab.Block(columns=1, force_pow_2_scales=False)]
)
@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
def test_dequantize_into_the_arrays_of_its_own_input(recipe, direction):
    """Views of a Quantized's arrays are inputs, too: those that have room for the output, as they are or in part."""
    x = np.resize(FLOATS, (32, 64)).copy()
    q = fp8lab.quantize(x, recipe, direction=direction)
    expected = fp8lab.dequantize(q)
    state = copy.deepcopy(q)
    tried = 0
    for array in (q.codes, q.scale_inv, q.scale_codes):
        flat = np.empty(0, np.uint8) if array is None else array.reshape(-1).view(np.uint8)
        for begin in (0, 4):
            if flat.size - begin < expected.nbytes:
                continue
            out = flat[begin : begin + expected.nbytes].view(np.float32).reshape(expected.shape)
            assert fp8lab.dequantize(q, out=out) is out
            np.testing.assert_array_equal(out, expected)
            array[...] = (
                state.codes if array is q.codes else state.scale_inv if array.dtype == np.float32 else state.scale_codes
            )
            tried += 1
    assert tried or recipe != fp8lab.Block(columns=1, force_pow_2_scales=False)


NARROW = [format for format in fp8lab.formats() if format.bits < 8]


@pytest.mark.parametrize("format", [*NARROW, fp8lab.Format(4, 5, 7)], ids=lambda format: format.name)
def test_codes_beyond_their_width_are_refused_with_the_first(format):
    dtype = np.uint8 if format.bits <= 8 else np.uint16
    codes = np.zeros((3, 1000), dtype)
    out = np.full(codes.shape, 7, np.float32)
    for bit in range(format.bits, 8 * np.dtype(dtype).itemsize):
        codes[2, 999] = codes[1, 17] = 1 << bit
        for threads in (1, 3):
            with pytest.raises(
                ValueError,
                match=f"element 1017 of codes is {1 << bit:X} .hexadecimal.; codes of .* have {format.bits} bits",
            ):
                fp8lab.decode(codes, format, threads=threads, out=out)
            assert (out == 7).all()
    codes[2, 999] = codes[1, 17] = (1 << format.bits) - 1
    fp8lab.decode(codes, format)


def test_codes_beyond_their_width_are_refused_by_every_function():
    good = np.full((2, 32), 0x3F, np.uint8)
    bad = good.copy()
    bad[1, 30] = 0x40
    wide = "element 62 of {} is 40 .hexadecimal.; codes of e2m3 have 6 bits: 0 to 3F"
    options = {"model": "blackwell_tcgen05_fp8", "format_a": "e2m3", "format_b": "e2m3"}
    for function in (fp8lab.gemm, fp8lab.mma):
        with pytest.raises(ValueError, match=wide.format("a")):
            function(a=bad, b=good, **options)
        with pytest.raises(ValueError, match=wide.format("b")):
            function(a=good, b=bad, **options)
    with pytest.raises(ValueError, match='b: "40" is not a hexadecimal code of e2m3, which has 6 bits'):
        fp8lab.trace_dot(good[1], bad[1], **options)
    with pytest.raises(ValueError, match="element 2 of codes is 40 .hexadecimal.; codes of e2m1 have 4 bits: 0 to F"):
        fp8lab.pack_pairs(np.uint8([1, 0xF, 0x40, 0x41]))
    with pytest.raises(ValueError, match="element 1 of a is F1"):
        fp8lab.gemm(
            np.uint8([[1, 0xF1]]).view(ml_dtypes.float4_e2m1fn), np.uint8([[0x11]]), model="exact", format_b="e2m1"
        )
    q = fp8lab.quantize(np.resize(FLOATS, (2, 32)), fp8lab.MxBlock("e3m2"))
    q.codes[1, 30] = 0x40
    with pytest.raises(ValueError, match="element 62 of codes is 40"):
        fp8lab.dequantize(q)
    q = fp8lab.quantize(np.resize(FLOATS, (2, 32)), "te_nvfp4")
    q.scale_codes[1, 1] |= 0x80
    with pytest.raises(ValueError, match="element 3 of scale_codes is .* codes of ue4m3 have 7 bits"):
        fp8lab.dequantize(q)


A = np.full((4, 32), 0x38, np.uint8)
F8 = A.view(ml_dtypes.float8_e5m2)
X = np.resize(FLOATS, (32, 64)).copy()
MXF8 = {"model": "blackwell_mxf8", "scale_b": np.full((4, 1), 127, np.uint8)}
GEMM = {"model": "hopper_wgmma_fp8"}
EXPERIMENTS = fp8lab.experiments


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fp8lab.gemm(A, A, out_profile="ieee", **GEMM), ValueError, "out_profile goes with an out_dtype of 16 bits or fewer"),
        (lambda: fp8lab.gemm(A, A, scale_order="accumulator_first", **GEMM), ValueError, "scale_order goes with scales of tiles or rows"),
        (lambda: fp8lab.gemm(A, A, c_enters="accumulator", **GEMM), ValueError, "c_enters goes with c"),
        (lambda: fp8lab.gemm(A, A, split_order=[0], **GEMM), ValueError, "split_order"),
        (lambda: fp8lab.gemm(F8, A, format_a="e4m3", **GEMM), ValueError, "format_a is e4m3, and a is e5m2 by its element type, float8_e5m2"),
        (lambda: fp8lab.mma(a=A, b=F8, format_b="e4m3", **GEMM), ValueError, "format_b is e4m3, and b is e5m2"),
        (lambda: fp8lab.trace_dot(A[0], F8[0], format_b="e4m3", **GEMM), ValueError, "format_b is e4m3, and b is e5m2"),
        (lambda: fp8lab.gemm(X, X, model="exact", format_a="e4m3"), ValueError, "format_a goes with codes, and a is float32"),
        (lambda: fp8lab.gemm(np.float16(X), np.float16(X), model="exact", format_b="float16"), ValueError, "format_b goes with codes"),
        (lambda: fp8lab.decode(F8, "e4m3"), ValueError, "format is e4m3, and codes is e5m2 by its element type, float8_e5m2"),
        (lambda: fp8lab.pack_pairs(F8), ValueError, "codes is e5m2"),
        (lambda: fp8lab.gemm(A, A, scale_a=np.ones((4, 1)), **MXF8), TypeError, "scale_a must be a number, .*float32.*uint8.*not float64"),
        (lambda: fp8lab.gemm(A, A, scale_a=[1.0], **GEMM), TypeError, "scale_a must be a number, an array of float32 .*, not list"),
        (lambda: fp8lab.gemm(A, A, scale_a="1", **GEMM), TypeError, "scale_a must be a number, .*, not str"),
        (lambda: fp8lab.gemm(A, A, scale_a=(np.ones((4, 1)), 1.0), **MXF8), TypeError, "scale_a must be .*not float64"),
        (lambda: fp8lab.gemm(A, A, scale_a=(1.0, 1.0), **GEMM), TypeError, "scale_a must be .*not float64"),
        (lambda: fp8lab.gemm(A, A, scale_a={}, **GEMM), TypeError, "scale_a must be a number, .*, not dict"),
        (lambda: fp8lab.encode(X, "e4m3", via_profile="ieee"), ValueError, "via_profile goes with via"),
        (lambda: fp8lab.encode(X, "e4m3", via_profile="ieee", via_rounding="upward"), ValueError, "via_profile and via_rounding go with via"),
        (lambda: fp8lab.encode(X, "e4m3", random_bits=A), ValueError, "random_bits must have as many elements"),
        (lambda: fp8lab.encode(A.view(np.float32), "e4m3", random_bits=np.zeros((4, 8), np.uint8)), ValueError, "random bits are for rounding 'stochastic' only"),
        (lambda: fp8lab.histogram([1.0], count=5), ValueError, "count goes with linear and log bins"),
        (lambda: fp8lab.histogram([1.0], "code", low=1, high=2), ValueError, "low and high go with linear, log and binade bins"),
        (lambda: fp8lab.histogram([1.0], format="e5m2"), ValueError, "format goes with code bins and cast_input"),
        (lambda: fp8lab.histogram([1.0], rounding="upward"), ValueError, "rounding goes with cast_input"),
        (lambda: fp8lab.quantize(X, "te_mxfp8", random_bits=np.zeros(X.shape, np.uint8)), ValueError, "random bits are for stochastic_rounding only"),
        (lambda: fp8lab.Block(rule="torchao", amax_epsilon=1.0), ValueError, "amax_epsilon is for rule 'te' only"),
        (lambda: EXPERIMENTS.verify_casts(formats=[]), ValueError, "formats must have at least one entry; leave it out for its default"),
        (lambda: EXPERIMENTS.verify_casts(profiles=[]), ValueError, "profiles must have at least one entry"),
        (lambda: EXPERIMENTS.verify_casts(roundings=()), ValueError, "roundings must have at least one entry"),
        (lambda: EXPERIMENTS.verify_casts(all=True, chunks=3), ValueError, "chunks cannot be given with all"),
        (lambda: EXPERIMENTS.verify_tensor_cores(models=[]), ValueError, "models must have at least one entry"),
        (lambda: EXPERIMENTS.cast(formats=[]), ValueError, "formats must have at least one entry"),
        (lambda: EXPERIMENTS.cast(profiles=[]), ValueError, "profiles must have at least one entry"),
        (lambda: EXPERIMENTS.cast(scales=[]), ValueError, "scales must have at least one entry"),
        (lambda: EXPERIMENTS.cast(X, seed=1), ValueError, "seed cannot be given with x"),
        (lambda: EXPERIMENTS.cast("a.npy", seed=1), ValueError, "seed cannot be given with x"),
        (lambda: EXPERIMENTS.cast(X, exact=True), ValueError, "exact"),
        (lambda: EXPERIMENTS.double_rounding(via=[]), ValueError, "via must have at least one entry"),
        (lambda: EXPERIMENTS.double_rounding(size=8), ValueError, "size can be given only with uniform"),
        (lambda: EXPERIMENTS.accumulate(k=[]), ValueError, "k must have at least one entry"),
        (lambda: EXPERIMENTS.harmonic(formats=[]), ValueError, "formats must have at least one entry"),
        (lambda: EXPERIMENTS.delayed(versions=[]), ValueError, "versions must have at least one entry"),
        (lambda: EXPERIMENTS.transpose(recipes=[]), ValueError, "recipes must have at least one entry"),
        (lambda: EXPERIMENTS.scaling([X], seed=1, stream="jump"), ValueError, "stream cannot be given with x"),
        (lambda: EXPERIMENTS.scaling([X], tensor="w"), ValueError, "tensor can be given only with file"),
        (lambda: EXPERIMENTS.scaling(grid=True, steps=3), ValueError, "steps cannot be given with grid"),
        (lambda: EXPERIMENTS.scaling([X], delayed=[], backward=True), ValueError, "backward goes with delayed scaling"),
        (lambda: EXPERIMENTS.scaling([X], recipes=[], delayed=[]), ValueError, "recipe"),
        (lambda: EXPERIMENTS.scaling([]), ValueError, "x must have at least one entry"),
        (lambda: EXPERIMENTS.scaling(file=[]), ValueError, "file must have at least one entry"),
    ],
)  # fmt: skip
def test_nothing_is_ignored_silently(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_codes_that_carry_their_format_may_name_it():
    np.testing.assert_array_equal(fp8lab.decode(F8, "e5m2"), fp8lab.decode(F8))
    np.testing.assert_array_equal(
        fp8lab.gemm(F8, F8, format_a="e5m2", **GEMM), fp8lab.gemm(A, A, format_a="e5m2", format_b="e5m2", **GEMM)
    )
