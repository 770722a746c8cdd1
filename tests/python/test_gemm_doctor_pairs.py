# SPDX-License-Identifier: Apache-2.0
"""fp8lab.diagnose_gemm on kernels that do two things wrong, drawn at random: what is wrong is never called correct, and
what is not named is located. Each defect is planted in NumPy, in what ``fp8lab.gemm`` is given or in what it gives."""

import collections
import dataclasses
import os

import fp8lab
import ml_dtypes
import numpy as np
from gemm_recomputed import diagnosed, words
from sampled import EXHAUSTIVE

F = np.float32
ROWS, COLUMNS, DEPTH = 48, 40, 1024
KINDS = ("normal", "outliers", "lognormal")
#: All pairs take hours: FP8LAB_PAIRS_FROM=N goes on at the pair of that number, where an earlier run ended.
CASES = range(int(os.environ.get("FP8LAB_PAIRS_FROM", "0")), 1000) if EXHAUSTIVE else (1,)


@dataclasses.dataclass
class Kernel:
    """A GEMM of codes under scales of rows, with a bias: what the kernel reads, step by step."""

    a: np.ndarray
    b: np.ndarray
    scale_a: np.ndarray
    scale_b: np.ndarray
    bias: np.ndarray
    promote_k: int
    out_dtype: object
    format_a: str = "e4m3"
    format_b: str = "e4m3"

    def run(self):
        total = np.zeros((self.a.shape[0], self.b.shape[0]), F)
        step = self.promote_k or self.a.shape[1]
        for k in range(0, self.a.shape[1], step):
            part = [np.ascontiguousarray(one[:, k : k + step]) for one in (self.a, self.b)]
            formats = {"format_a": self.format_a, "format_b": self.format_b}
            total = total + fp8lab.gemm(*part, model="hopper_wgmma_fp8", **formats)
        # Both scales first, as one product; then the bias.
        return total * (self.scale_a * self.scale_b.T) + self.bias


def drawn(kind, rows, depth, rng):
    x = rng.normal(0.1, 1, (rows, depth))
    if kind == "outliers":
        x[:, :: max(depth // 8, 1)] *= 40
    if kind == "lognormal":
        x = np.exp(rng.normal(0, 1.5, x.shape)) * rng.choice([-1, 1], x.shape)
    x = x.astype(F)
    scale = (np.abs(x).max(1, keepdims=True) / 448 * rng.uniform(1, 2, (rows, 1))).astype(F)
    return fp8lab.encode(x / scale, "e4m3"), scale


def exchanged(count):
    rows = np.arange(count) ^ 8
    return np.where(rows < count, rows, np.arange(count))


def changed(**fields):
    """What the kernel reads is another one."""
    return lambda kernel, rng: dataclasses.replace(kernel, **{name: f(kernel, rng) for name, f in fields.items()})


def blocks(choose):
    """K is read block by block."""

    def change(kernel, rng):
        taken = choose(list(range(kernel.a.shape[1] // 128)), rng)
        at = np.concatenate([np.arange(128 * j, 128 * j + 128) for j in taken])
        return dataclasses.replace(kernel, a=kernel.a[:, at], b=kernel.b[:, at])

    return change


# Each defect: what it changes, which no two of a pair share, and how it does so.
READ = {
    "scale_a_missing": ("scale_a", changed(scale_a=lambda k, _: np.ones_like(k.scale_a))),
    "scale_b_missing": ("scale_b", changed(scale_b=lambda k, _: np.ones_like(k.scale_b))),
    "scale_a_twice": ("scale_a", changed(scale_a=lambda k, _: k.scale_a * k.scale_a)),
    "scale_b_inverted": ("scale_b", changed(scale_b=lambda k, _: F(1) / k.scale_b)),
    "row_scale_a_of_next": ("scale_a", changed(scale_a=lambda k, _: np.roll(k.scale_a, -1, 0))),
    "row_scale_b_of_previous": ("scale_b", changed(scale_b=lambda k, _: np.roll(k.scale_b, 1, 0))),
    "bias_missing": ("bias", changed(bias=lambda k, _: np.zeros_like(k.bias))),
    "bias_of_next_column": ("bias", changed(bias=lambda k, _: np.roll(k.bias, -1))),
    "bias_of_previous_column": ("bias", changed(bias=lambda k, _: np.roll(k.bias, 1))),
    "codes_a_as_other_format": ("codes_a", changed(format_a=lambda *_: "e5m2")),
    "codes_b_as_other_format": ("codes_b", changed(format_b=lambda *_: "e5m2")),
    "operand_rows_a_exchanged": ("rows_a", changed(a=lambda k, _: k.a[exchanged(len(k.a))])),
    "operand_rows_b_exchanged": ("rows_b", changed(b=lambda k, _: k.b[exchanged(len(k.b))])),
    "first_block_dropped": ("k", blocks(lambda all, _: all[1:])),
    "last_block_dropped": ("k", blocks(lambda all, _: all[:-1])),
    "a_block_dropped": ("k", blocks(lambda all, rng: np.delete(all, rng.integers(1, len(all) - 1)))),
    "a_block_twice": ("k", blocks(lambda all, rng: np.repeat(all, 1 + (np.array(all) == rng.integers(1, 6))))),
    "a_stale_stage": ("k", blocks(lambda all, rng: [*all[:5], all[rng.integers(1, 4)], *all[6:]])),
}
WRITTEN = {
    "rows_exchanged": ("place", lambda x, _: x[exchanged(ROWS)]),
    "columns_exchanged": ("place", lambda x, _: x[:, exchanged(COLUMNS)]),
    "output_scaled": ("times", lambda x, rng: x * F(rng.choice([0.25, 2, 3, 0.7]))),
    "tile_of_ones": ("tile", lambda x, _: np.where(np.arange(ROWS)[:, None] // 16 == 1, F(1), x)),
    "row_of_zeros": ("tile", lambda x, rng: np.where(np.arange(ROWS)[:, None] == rng.integers(ROWS), F(0), x)),
}


def planted(number, depth=DEPTH):
    """Two defects that change something else each, and the kernel's output with and without them."""
    rng = np.random.default_rng(number)
    kind = KINDS[number % 3]
    (a, scale_a), (b, scale_b) = drawn(kind, ROWS, depth, rng), drawn(kind, COLUMNS, depth, rng)
    dtype = rng.choice([F, ml_dtypes.bfloat16])
    kernel = Kernel(a, b, scale_a, scale_b, np.zeros(COLUMNS, F), int(rng.choice([0, 128])), dtype)
    kernel.bias = (rng.normal(0, 1, COLUMNS) * kernel.run().std()).astype(F)
    table = {**READ, **WRITTEN}
    while True:
        pair = rng.choice(list(table), 2, replace=False)
        if table[pair[0]][0] != table[pair[1]][0]:
            break
    wrong = kernel
    for name in pair:
        wrong = READ[name][1](wrong, rng) if name in READ else wrong
    out = wrong.run()
    for name in pair:
        out = WRITTEN[name][1](out, rng) if name in WRITTEN else out
    return kernel, [str(name) for name in pair], out.astype(dtype), kernel.run().astype(dtype)


BLOCKS = {"k_blocks", "head_dropped", "tail_dropped", "head_twice", "tail_twice", "accumulator_kept"}


# A departure of both operands is one of each.
OF_BOTH = {
    "scales_missing": ("scale_a_missing", "scale_b_missing"),
    "codes_as_other_format": ("codes_a_as_other_format", "codes_b_as_other_format"),
    "operand_rows_exchanged": ("operand_rows_a_exchanged", "operand_rows_b_exchanged"),
}


def verdict_on(kernel, out, diagnose=diagnosed):
    return diagnose(kernel.a, kernel.b, out, scale_a=kernel.scale_a, scale_b=kernel.scale_b, bias=kernel.bias)


def outcome(number, diagnose=diagnosed):
    """``named``, ``located``, or what is wrong about the verdict."""
    kernel, pair, out, right = planted(number)
    found = verdict_on(kernel, out, diagnose)
    is_right = np.array_equal(
        words(out, None if out.dtype == F else "bfloat16"), words(right, None if out.dtype == F else "bfloat16")
    )
    if is_right:
        return "the same"
    if found.correct:
        return f"{number}: {pair} is called correct"
    told = {one.name for one in found.explanations[0].departures}
    told |= {one for name in told for one in OF_BOTH.get(name, ())}
    wanted = [BLOCKS if READ.get(name, ("", 0))[0] == "k" else {name} for name in pair]
    if found.explained and all(told & names for names in wanted):
        return "named"
    if found.explained:
        return "explained otherwise"
    return "located" if any(line.startswith("Located: ") for line in found.rest) else f"{number}: {pair} is not located"


def test_two_defects_at_random_are_named_or_located_and_never_called_correct():
    counts: collections.Counter[str] = collections.Counter()
    for number in CASES:
        counts[outcome(number)] += 1
        print(f"pairs {CASES[0]} to {number}: {dict(counts)}", flush=True)
    assert set(counts) <= {"named", "located", "explained otherwise", "the same"}, counts
    assert counts["named"] * 2 >= len(CASES), counts


def test_a_defect_in_one_row_is_located_beside_another_that_is_named():
    kernel, pair, out, right = planted(27, depth=256)
    assert pair == ["row_of_zeros", "bias_of_previous_column"]
    row = int(*np.flatnonzero((out == 0).all(1) & (right != 0).any(1)))
    found = verdict_on(kernel, out)
    assert not found.explained and not found.correct, found
    assert [one.name for one in found.explanations[0].departures] == ["bias_of_previous_column"], found
    assert f"All lie in row {row} of {ROWS}." in found.rest[0], found
    assert any(line.startswith("Located: ") for line in found.rest), found
    assert found.explanations[0].unexplained == COLUMNS, found
