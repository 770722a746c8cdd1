# SPDX-License-Identifier: Apache-2.0
"""Linear layers that are split over ranks: what their parts give one by one, added with NumPy."""

import dataclasses
import functools
from types import SimpleNamespace

import fp8lab
import numpy as np
import pytest
import repositories
from conftest import splitmix
from fp8lab import Reduction, TensorParallel
from releases import module_of, source_of

pytestmark = pytest.mark.sample(2)

ml_dtypes = pytest.importorskip("ml_dtypes")
RECIPES = {one.name: one.recipe for one in fp8lab.linear_recipes()}
RANKS = 4


def values(rows, columns, seed, exponent=0):
    words = splitmix(seed, rows * columns)
    numbers = ((words % 4096).astype(np.float32) - 2048) * np.exp2((words >> 40) % 7).astype(np.float32)
    return np.ldexp(numbers, exponent - 16).reshape(rows, columns)


X, W, DY = values(128, 512, 1), values(512, 512, 2), values(128, 512, 3, -9)
BIAS = np.linspace(-1, 1, 512, dtype=np.float32) / 3
BITS = (splitmix(4, DY.size) % 256).astype(np.uint8)


def parts(x, axis):
    return [np.ascontiguousarray(part) for part in np.split(x, RANKS, axis)]


def added(results, order, in_float32=False):
    """Each sum of two rounded to the type of the results, or the last alone."""
    ordered = [results[rank] for rank in order]
    if in_float32:
        return functools.reduce(np.add, [one.astype(np.float32) for one in ordered]).astype(results[0].dtype)
    return functools.reduce(lambda a, b: (a.astype(np.float32) + b.astype(np.float32)).astype(a.dtype), ordered)


def ring(results):
    """Chunk c of the rows begins at rank c + 1 and ends at rank c."""
    chunks = [parts(one, 0) for one in results]
    return np.concatenate([
        added([chunk[c] for chunk in chunks], [(c + 1 + i) % RANKS for i in range(RANKS)]) for c in range(RANKS)
    ])  # fmt: skip


def assert_same(actual, expected):
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", RECIPES)
def test_a_column_parallel_layer_is_its_parts(name):
    recipe, split = RECIPES[name], TensorParallel("column", RANKS)
    of_dy = {}
    if name.startswith("te_nvfp4"):
        of_dy = {"rowwise": parts(BITS.reshape(DY.shape), 1), "columnwise": parts(BITS.reshape(DY.shape[::-1]), 0)}
    whole = {"random_bits": BITS} if of_dy else {}
    own = lambda direction, i: {"random_bits": of_dy[direction][i].ravel()} if of_dy else {}  # noqa: E731
    ws, dys, biases = parts(W, 0), parts(DY, 1), parts(BIAS, 0)
    call = functools.partial(dict, recipe=recipe, check_shapes=False)
    y = [fp8lab.linear(X, w, bias, **call()) for w, bias in zip(ws, biases)]
    assert_same(fp8lab.linear(X, W, BIAS, parallel=split, **call()), np.concatenate(y, 1))
    dx = [fp8lab.linear_dgrad(dy, w, **own("rowwise", i), **call()) for i, (dy, w) in enumerate(zip(dys, ws))]
    assert_same(fp8lab.linear_dgrad(DY, W, parallel=split, **whole, **call()), ring(dx))
    dw = np.concatenate([fp8lab.linear_wgrad(dy, X, **own("columnwise", i), **call()) for i, dy in enumerate(dys)])
    assert_same(fp8lab.linear_wgrad(DY, X, parallel=split, threads=2, **whole, **call()), dw)
    main_grad = np.full(W.shape, 1 / 3, np.float32)
    if recipe.wgrad.output == "float32":
        fp8lab.linear_wgrad(DY, X, parallel=split, main_grad=main_grad, **whole, **call())
        assert_same(main_grad, np.float32(1 / 3) + dw)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("sequence", [False, True])
def test_a_row_parallel_layer_is_its_parts_and_its_bias_comes_last(name, sequence):
    recipe, split = RECIPES[name], TensorParallel("row", RANKS, sequence)
    whole = {"random_bits": BITS} if name.startswith("te_nvfp4") else {}
    call = functools.partial(dict, recipe=recipe, check_shapes=False)
    xs, ws = parts(X, 1), parts(W, 1)
    y = ring([fp8lab.linear(x, w, **call()) for x, w in zip(xs, ws)])
    assert_same(fp8lab.linear(X, W, parallel=split, **call()), y)
    with_bias = (y.astype(np.float32) + BIAS.astype(y.dtype).astype(np.float32)).astype(y.dtype)
    assert_same(fp8lab.linear(X, W, BIAS, parallel=split, **call()), with_bias)
    dx = np.concatenate([fp8lab.linear_dgrad(DY, w, **whole, **call()) for w in ws], 1)
    assert_same(fp8lab.linear_dgrad(DY, W, parallel=split, **whole, **call()), dx)
    dw = np.concatenate([fp8lab.linear_wgrad(DY, x, **whole, **call()) for x in xs], 1)
    assert_same(fp8lab.linear_wgrad(DY, X, parallel=split, **whole, **call()), dw)


def test_the_order_of_a_sum_is_an_argument():
    results = [fp8lab.linear(x, w, recipe="te_mxfp8_blackwell") for x, w in zip(parts(X, 1), parts(W, 1))]
    found = {}
    for ranks in ((0, 1, 2, 3), (3, 1, 0, 2)):
        for in_float32 in (False, True):
            reduction = Reduction("sequential", ranks, in_float32)
            found[ranks, in_float32] = fp8lab.linear(
                X, W, recipe="te_mxfp8_blackwell", parallel=TensorParallel("row", 4, False, reduction)
            )
            assert_same(found[ranks, in_float32], added(results, ranks, in_float32))
    assert len({y.tobytes() for y in found.values()}) >= 3  # another order, and float32 sums, have other bits
    a, b, c, d = results
    pairs = TensorParallel("row", 4, reduction=Reduction("pairwise"))
    assert_same(
        fp8lab.linear(X, W, recipe="te_mxfp8_blackwell", parallel=pairs),
        added([added([a, b], (0, 1)), added([c, d], (0, 1))], (0, 1)),
    )


def once_and_twice(tokens, inputs):
    """A split sequence of x in tiles of 128: dw of the layer, of x, and of x that its parts' codes stand for."""
    recipe = RECIPES["te_block_hopper"]
    x = np.resize(X, (tokens, inputs)).astype(ml_dtypes.bfloat16)
    x[tokens // 2 :] = (x[tokens // 2 :].astype(np.float32) * np.float32(2.0**-7)).astype(ml_dtypes.bfloat16)
    again = np.concatenate([
        fp8lab.dequantize(fp8lab.quantize(half, recipe.wgrad.b, direction="columnwise")).astype(ml_dtypes.bfloat16)
        for half in np.split(x, 2)
    ])  # fmt: skip
    dy = np.resize(DY, (tokens, 64))
    whole = TensorParallel("column", 2)
    found = fp8lab.linear_wgrad(dy, x, recipe=recipe, parallel=TensorParallel("column", 2, True))
    return found, *(fp8lab.linear_wgrad(dy, one, recipe=recipe, parallel=whole) for one in (x, again))


def test_an_x_in_ragged_tiles_is_quantized_twice_where_its_sequence_is_split():
    found, once, twice = once_and_twice(96, 128)
    assert_same(found, twice)
    assert found.tobytes() != once.tobytes()
    found, once, _ = once_and_twice(512, 128)
    assert_same(found, once)


def test_tiles_are_ragged_where_transformer_engine_says_so(tmp_path):
    source = source_of(
        repositories.TRANSFORMER_ENGINE, "v2.18", "transformer_engine/pytorch/tensor/float8_blockwise_tensor.py"
    )
    header = "import math\nfrom types import SimpleNamespace\ntorch = SimpleNamespace(Tensor=object)\n"
    real = module_of(tmp_path, header, [(source, {"is_quantizable"})]).is_quantizable
    for tokens, inputs in ((96, 128), (256, 128), (256, 192), (512, 256), (768, 64)):
        part = SimpleNamespace(size=lambda shape=(tokens // 2, inputs): shape)
        found, once, twice = once_and_twice(tokens, inputs)
        assert_same(found, once if real(SimpleNamespace(block_len=128), part) else twice)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Reduction("tree"), ValueError, "unknown order 'tree'"),
        (lambda: Reduction(ranks="01"), TypeError, "ranks must be an int"),
        (lambda: TensorParallel("row", 2, reduction=Reduction(ranks=(0, 0))), ValueError, "the reduction's ranks must be each of 0 to 1 once"),
        (lambda: TensorParallel("row", 2, reduction="ring"), TypeError, "reduction must be a Reduction"),
        (lambda: fp8lab.linear(X, W, recipe="exact", parallel="row"), TypeError, "parallel must be a TensorParallel"),
        (lambda: fp8lab.linear(X, W, recipe="exact", parallel=TensorParallel("row", 3)), ValueError, "fprop: in must be a multiple of 3, the ranks that share it, not 512"),
        (lambda: fp8lab.linear(X, W, recipe="te_mxfp8_blackwell", parallel=TensorParallel("column", 32)), ValueError, r"w: out \(rows\) must be a multiple of 1024 \(32 on each of 32 ranks\), not 512"),
        (lambda: fp8lab.linear(fp8lab.quantize(X, "te_mxfp8"), W, recipe="te_mxfp8_blackwell", parallel=TensorParallel("row", 2)), ValueError, "fprop: x must not be quantized"),
        (lambda: fp8lab.linear(X, W, recipe=with_fp8_output(), parallel=TensorParallel("row", 2)), ValueError, "parallel is for an output in high precision"),
    ],
)  # fmt: skip
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def with_fp8_output():
    recipe = RECIPES["te_delayed_hopper"]
    return dataclasses.replace(recipe, fprop=dataclasses.replace(recipe.fprop, output="e4m3"))
