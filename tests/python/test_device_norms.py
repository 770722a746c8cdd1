# SPDX-License-Identifier: Apache-2.0
"""Norms beside those of NVIDIA's kernels on an H200 (tests/vectors/device/README.md).

With ``functions="hopper"`` results, means and reciprocal deviations are the device's. Without it fp8lab rounds the reciprocal root correctly and adds in an order of its own, the kernels take CUDA's rsqrtf, of which the
CUDA programming guide says 2 ulp, and add as their tiles lie. In a type of 16 bits an output may then be the neighbouring
word, where its exact value is near the middle of two; more would be another formula.
"""

import sys
from collections import Counter
from pathlib import Path

import fp8lab
import numpy as np
import pytest
from sampled import EXHAUSTIVE, sampled

torch = pytest.importorskip("torch")
VECTORS = Path(__file__).parents[1] / "vectors" / "device" / "h200_norms.npz"
sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import digest, drawn, normal  # noqa: E402


def ordered(words):
    """Words of 16 bits as integers in the order of their values."""
    unsigned = words.view(np.uint16).astype(np.int32)
    return np.where(unsigned >> 15, -(unsigned & 0x7FFF), unsigned & 0x7FFF)


def words_of(array, dtype):
    tensor = torch.from_numpy(np.asarray(array, np.float32)) if not isinstance(array, torch.Tensor) else array
    return tensor.to(dtype).contiguous().view(torch.int16).numpy().reshape(-1)


def computed(kind, dtype, rows, hidden, zero_centered, functions="correctly_rounded"):
    def tensor(values):
        return torch.from_numpy(values).to(dtype)

    x = tensor(normal(40 + rows, (rows, hidden)))
    x[1] *= 30
    w, b, dz = tensor(drawn(41, (hidden,))), tensor(drawn(42, (hidden,))), tensor(drawn(43, (rows, hidden)))
    given = {"zero_centered_gamma": zero_centered, "functions": functions}
    if kind == "layer":
        y, mean, rsigma = fp8lab.operators.layernorm(x, w, b, eps=1e-5, **given)
        dx, dgamma, dbeta = fp8lab.operators.layernorm_backward(dz, x, mean, rsigma, w, **given)
        return {"y": y, "dx": dx, "dgamma": dgamma, "dbeta": dbeta}
    y, rsigma = fp8lab.operators.rmsnorm(x, w, eps=1e-5, **given)
    dx, dgamma = fp8lab.operators.rmsnorm_backward(dz, x, rsigma, w, **given)
    return {"y": y, "dx": dx, "dgamma": dgamma}


def test_norms_beside_those_of_an_h200():
    recorded = np.load(VECTORS)
    calls = sorted({tuple(name.split("/")[:4]) for name in recorded.files})
    assert len(calls) == 46
    words, other = Counter(), Counter()
    for kind, type_name, shape, centered in calls:
        rows, hidden = map(int, shape.split("x"))
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[type_name]
        for part, made in computed(kind, dtype, rows, hidden, centered == "True").items():
            expected = recorded[f"{kind}/{type_name}/{shape}/{centered}/{part}"]
            own = words_of(made, dtype)[: expected.size]
            distance = np.abs(ordered(own) - ordered(expected))
            assert distance.max() <= 1, (kind, type_name, shape, centered, part)
            words[part] += expected.size
            other[part] += int((distance != 0).sum())
    assert words == {"y": 46 * 1024, "dx": 46 * 1024, "dgamma": 7584, "dbeta": 3792}
    assert other == {"y": 1, "dx": 3, "dgamma": 4, "dbeta": 0}


def test_with_hoppers_functions_every_word_is_an_h200s():
    recorded = np.load(VECTORS)
    words = Counter()
    for kind, type_name, shape, centered in sorted({tuple(name.split("/")[:4]) for name in recorded.files}):
        rows, columns = map(int, shape.split("x"))
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[type_name]

        def tensor(values, dtype=dtype):
            return torch.from_numpy(values).to(dtype)

        x = tensor(normal(40 + rows, (rows, columns)))
        x[1] *= 30
        given = {"eps": 1e-5, "zero_centered_gamma": centered == "True", "functions": "hopper"}
        key = f"{kind}/{type_name}/{shape}/{centered}"
        if kind == "layer":
            w, b = tensor(drawn(41, (columns,))), tensor(drawn(42, (columns,)))
            y, mean, rsigma = fp8lab.operators.layernorm(x, w, b, **given)
            assert (np.asarray(mean).view(np.int32) == recorded[f"{key}/mu"]).all(), key
        else:
            y, rsigma = fp8lab.operators.rmsnorm(x, tensor(drawn(41, (columns,))), **given)
        assert (np.asarray(rsigma).view(np.int32) == recorded[f"{key}/rs"]).all(), key
        expected = recorded[f"{key}/y"]
        assert (words_of(y, dtype)[: expected.size] == expected).all(), key
        words.update(y=expected.size, rsigma=rows)
    assert words == {"y": 46 * 1024, "rsigma": 46 * 64}


def test_tuned_rmsnorms_have_the_reciprocal_deviations_of_an_h200():
    """The product that is rounded is that of the squares' sum: with the mean's square rounded, 272 of 4,320 rows differ."""
    recorded = np.load(VECTORS.with_name("h200_te_rmsnorms.npz"))
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    words = 0
    for key in recorded.files:
        _, type_name, shape, centered = key.removesuffix(".1").split("/")
        rows, columns = map(int, shape.split("x"))
        x = torch.from_numpy(normal(40 + rows, (rows, columns))).to(types[type_name])
        x[1] *= 30
        w = torch.from_numpy(drawn(41, (columns,))).to(x.dtype)
        given = {"eps": 1e-5, "zero_centered_gamma": centered == "True", "functions": "hopper"}
        rsigma = fp8lab.operators.rmsnorm(x, w, **given)[1]
        assert (np.asarray(rsigma).view(np.int32) == recorded[key]).all(), key
        words += rows
    assert words == 5 * 64 + 4 * 1000


def test_norms_of_long_rows_are_an_h200s():
    """Four warps of a block or two, 2304 to 16384 columns: kernels for any columns, and those for these alone."""
    recorded = np.load(VECTORS.with_name("h200_te_long_norms.npz"))
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    calls = sorted({name.rsplit("/", 1)[0] for name in recorded.files})
    assert len(calls) == 48
    for key in calls:
        kind, type_name, shape = key.split("/")
        rows, columns = map(int, shape.split("x"))
        x, w, b = (
            torch.from_numpy(one).to(types[type_name])
            for one in (normal(40 + rows, (rows, columns)), drawn(41, (columns,)), drawn(42, (columns,)))
        )
        x[1] *= 30
        given = {"eps": 1e-5, "functions": "hopper"}
        if kind == "layer":
            y, mean, rsigma = fp8lab.operators.layernorm(x, w, b, **given)
            assert (np.asarray(mean).view(np.int32) == recorded[f"{key}/mu"]).all(), key
        else:
            y, rsigma = fp8lab.operators.rmsnorm(x, w, **given)
        assert (np.asarray(rsigma).view(np.int32) == recorded[f"{key}/rs"]).all(), key
        words = np.asarray(y).view(np.uint32) if type_name == "fp32" else words_of(y, x.dtype)
        assert digest(words) == recorded[f"{key}/y#digest"], key


def row_sums(lanes, add, in_halves):
    """Sums of warps: ``lanes`` is [row][turn][warp][lane][element]; of lanes in halves, or of partners."""
    total = np.zeros(lanes.shape[:1] + lanes.shape[2:4], np.float32)
    for turn in range(lanes.shape[1]):
        for element in range(lanes.shape[4]):
            total = add(total, lanes[:, turn, :, :, element])
    for step in (16, 8, 4, 2, 1) if in_halves else (1, 2, 4, 8, 16):
        total = total + total[:, :, np.arange(32) ^ step]
    return total[:, :, 0]


def squares_from(mean):
    return lambda total, x: fused(x - mean, x - mean, total)


def general_moments(x, elements):
    """Four warps of each block; blocks of 8192 columns take turns at 32 lanes."""
    rows, columns = x.shape
    blocks = -(-columns // 8192)
    wide = np.pad(x, ((0, 0), (0, -columns % (128 * blocks * elements))), constant_values=np.nan)
    lanes = wide.reshape(rows, -1, 4 * blocks, 32, elements)

    def total(add):
        warps = row_sums(lanes, lambda sums, part: np.where(np.isnan(part), sums, add(sums, part)), in_halves=True)
        of_blocks = np.zeros((rows, blocks), np.float32)
        for warp in range(4):
            of_blocks = of_blocks + warps[:, warp * blocks : (warp + 1) * blocks]
        return of_blocks[:, 0] if blocks == 1 else of_blocks[:, 0] + of_blocks[:, 1]

    mean = total(lambda sums, part: sums + part) * (np.float32(1) / np.float32(columns))
    return mean, total(squares_from(mean[:, None, None])), total(squares_from(np.float32(0)))


def tuned_moments(x, elements, blocks):
    """Moments of each warp, merged by Chan's formula: of a block's warps, then of blocks."""
    rows, columns = x.shape
    lanes = x.reshape(rows, -1, 4 * blocks, 32, elements)
    count = np.float32(columns // (4 * blocks))
    mean = row_sums(lanes, lambda sums, part: sums + part, in_halves=False) * (np.float32(1) / count)
    squares = row_sums(lanes, squares_from(mean[:, :, None]), in_halves=False)
    mean, squares = (one.reshape(rows, blocks, 4) for one in (mean, squares))
    for warps in (4, 2, *([1] if blocks == 2 else [])):
        if warps == 1:
            mean, squares = (one.reshape(rows, 2) for one in (mean, squares))
        half = mean.shape[-1] // 2
        (a, b), (p, q) = ((one[..., :half], one[..., half:]) for one in (mean, squares))
        share = np.float32(1) / (count + count)
        squares = fused((a - b) * (a - b) * count * count, share, p + q)
        mean = fused(count, a, count * b) * share
        count = count + count
    return mean.reshape(rows), squares.reshape(rows)


#: Norm, type, rows, columns: elements of a load, and of a kernel for these columns the blocks of a row.
LONG = {
    "layer fp32 5 5000": (4, None), "layer bf16 3 9000": (8, None), "rms fp16 5 4096": (8, None),
    "layer bf16 4 3840": (2, 1), "layer fp32 4 10240": (4, 2), "layer fp16 4 10240": (8, 1),
    "layer bf16 4 12800": (2, 2), "layer fp32 4 15360": (2, 2), "rms bf16 4 8192": (8, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", LONG)
def test_long_rows_are_the_kernels_played_lane_by_lane(case):
    """No device has been asked for most of these; ``blocks`` of None is the kernel for any columns."""
    elements, blocks = LONG[case]
    kind, type_name, rows, columns = (int(word) if word.isdigit() else word for word in case.split())
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[type_name]
    x = torch.from_numpy(normal(13, (rows, columns)) + np.float32(0.5)).to(dtype)
    ones = torch.ones(columns, dtype=dtype)
    wide, share, eps = x.float().numpy(), np.float32(1) / np.float32(columns), np.float32(1e-5)
    if blocks:
        mean, squares = tuned_moments(wide, elements, blocks)
        root = fused(mean, mean, squares * share) + eps
    else:
        mean, squares, whole = general_moments(wide, elements)
        root = fused(whole, share, eps)
    if kind == "layer":
        root = fused(squares, share, eps)
        assert (fp8lab.operators.layernorm(x, ones, ones, functions="hopper")[1] == mean).all()
        own = fp8lab.operators.layernorm(x, ones, ones, functions="hopper")[2]
    else:
        own = fp8lab.operators.rmsnorm(x, ones, functions="hopper")[1]
    assert (own == fp8lab.special_function("rsqrt", root)).all()


def test_gradients_added_up_in_hoppers_order_are_an_h200s():
    recorded = np.load(VECTORS)
    words = Counter()
    for kind, type_name, shape, centered in sorted({tuple(name.split("/")[:4]) for name in recorded.files}):
        rows, columns = map(int, shape.split("x"))
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[type_name]
        made = computed(kind, dtype, rows, columns, centered == "True", functions="hopper")
        for part in made.keys() - {"y"}:
            expected = recorded[f"{kind}/{type_name}/{shape}/{centered}/{part}"]
            assert (words_of(made[part], dtype)[: expected.size] == expected).all(), (kind, type_name, shape, part)
            words[part] += expected.size
    assert words == {"dx": 46 * 1024, "dgamma": 7584, "dbeta": 3792}


LONG_GRADIENTS = np.load(VECTORS.with_name("h200_te_long_norm_gradients.npz"))
LONG_CALLS = str(LONG_GRADIENTS["names"]).split("\n")
#: Kernels that round products of float32 before they add them, and one of each other kind; of 512 rows, which are more than the
#: kernels take at once, one.
LONG_SAMPLE = {"layer/fp32/512x2304/False", "layer/fp32/64x5120/False", "rms/fp32/64x8192/False", "layer/fp32/64x12288/True",
               "layer/fp32/8x16384/False", "rms/fp32/64x12288/False", "layer/bf16/64x6144/False", "rms/fp16/8x3072/False",
               "layer/fp32/64x8192/False"}  # fmt: skip


@pytest.mark.parametrize("call", [one for one in LONG_CALLS if EXHAUSTIVE or one in LONG_SAMPLE])
def test_gradients_of_long_rows_are_an_h200s(call):
    """2304 to 16384 columns, rows of one to four blocks."""
    kind, type_name, shape, centered = call.split("/")
    rows, columns = map(int, shape.split("x"))
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[type_name]
    made = computed(kind, dtype, rows, columns, centered == "True", functions="hopper")
    expected = LONG_GRADIENTS["digests"][LONG_CALLS.index(call)]
    for part, wanted in zip(("dx", "dgamma", "dbeta")[: len(made) - 1], expected):
        own = np.asarray(made[part])
        assert digest(own.view(np.uint32) if type_name == "fp32" else words_of(own, dtype)) == wanted, part


def test_hoppers_functions_are_refused_where_they_are_not_known():
    longest = np.ones((4, 16385), np.float32)
    with pytest.raises(ValueError, match="functions of hopper are known for at most 16384 columns, not 16385"):
        fp8lab.operators.rmsnorm(longest, longest[0], functions="hopper")
    with pytest.raises(ValueError, match="functions of hopper are known for at most 16384 columns, not 16385"):
        fp8lab.operators.rmsnorm_backward(longest, longest, longest[:, 0].copy(), longest[0], functions="hopper")
    few = longest[:, :16].copy()
    with pytest.raises(ValueError, match="functions must be correctly_rounded for cross_entropy, whose sums"):
        fp8lab.operators.cross_entropy(few, np.zeros(4, np.int64), functions="hopper")
    with pytest.raises(ValueError, match="functions of hopper take gamma and grad of x's type, or both of one type"):
        fp8lab.operators.rmsnorm_backward(few, few, few[:, 0].copy(), few[0].astype(np.float16), functions="hopper")


def lanes_of(x, elements):
    """[element][row][lane]: what a lane of a warp reads of each row, in its order; zeros behind the last column."""
    rows, columns = x.shape
    padded = np.pad(x, ((0, 0), (0, -columns % (32 * elements))))
    return padded.reshape(rows, -1, 32, elements).transpose(1, 3, 0, 2).reshape(-1, rows, 32)


def sum_of_lanes(lanes):
    for step in (1, 2, 4, 8, 16):
        lanes = lanes + lanes[:, np.arange(32) ^ step]
    return lanes[:, 0]


def test_layernorms_statistics_are_those_of_an_h200():
    """By the kernel's order of sums (common/normalization of Transformer Engine 2.20) and the unit's reciprocal root."""
    recorded = np.load(VECTORS)
    calls = [name.split("/")[1:4] for name in recorded.files if name.startswith("layer/") and name.endswith("/mu")]
    assert len(calls) == 23
    for type_name, shape, centered in calls:
        rows, columns = map(int, shape.split("x"))
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[type_name]
        tensor = torch.from_numpy(normal(40 + rows, (rows, columns))).to(dtype)
        tensor[1] *= 30
        elements = 4 if columns <= 128 else 8
        x, exists = (lanes_of(one, elements) for one in (tensor.float().numpy(), np.ones((rows, columns), np.float32)))
        total = np.zeros((rows, 32), np.float32)
        for term in x:
            total = total + term
        share = np.float32(1) / np.float32(columns)
        mean = sum_of_lanes(total) * share
        squares = np.zeros((rows, 32), np.float32)
        for term, there in zip(x, exists):
            step = (term - mean[:, None]).astype(np.float64)  # float64 has the square, and the sum but for ties
            squares = np.where(there == 1, (step * step + squares).astype(np.float32), squares)
        variance = (sum_of_lanes(squares).astype(np.float64) * share + np.float32(1e-5)).astype(np.float32)
        key = f"layer/{type_name}/{shape}/{centered}"
        assert (mean.view(np.int32) == recorded[f"{key}/mu"]).all(), key
        assert (fp8lab.special_function("rsqrt", variance).view(np.int32) == recorded[f"{key}/rs"]).all(), key


def fused(a, b, c):
    """float64 has the product, and the sum but for ties."""
    return (np.float64(a) * b + c).astype(np.float32)


class Block:
    """A kernel, played for all threads at once: common/normalization of Transformer Engine 2.20."""

    def __init__(self, columns, elements, warps_of_row, blocks, tuned, loads, blocks_of_row=1):
        self.lanes, self.elements, self.loads = 32 * warps_of_row * blocks_of_row, elements, loads
        self.rows_at_once, self.blocks, self.tuned, self.columns = 4 // warps_of_row or 1, blocks, tuned, columns
        self.warps_of_row, self.blocks_of_row = warps_of_row, blocks_of_row

    def threads(self, rows):
        """[row][load][lane][element], zeros behind the last column."""
        wide = np.pad(rows, ((0, 0), (0, self.loads * self.lanes * self.elements - self.columns)))
        return wide.reshape(len(rows), self.loads, self.lanes, self.elements)

    def row_sums(self, add, count):
        total = np.zeros((count, self.lanes), np.float32)
        for load in range(self.loads):
            for element in range(self.elements):
                total = add(total, load, element)
        if self.lanes == 32:
            return sum_of_lanes(total)
        total = total.reshape(count, -1, 32)
        for step in (16, 8, 4, 2, 1):
            total = total + np.pad(total, ((0, 0), (0, 0), (0, step)))[:, :, step:]
        if self.tuned:
            of_warps = total[:, :, 0].reshape(count, self.blocks_of_row, self.warps_of_row)
        else:
            of_warps = total[:, :, 0].reshape(count, self.warps_of_row, self.blocks_of_row).transpose(0, 2, 1)
        whole = np.zeros((count, self.blocks_of_row), np.float32)
        for warp in range(self.warps_of_row):
            whole = whole + of_warps[:, :, warp]
        if self.blocks_of_row == 1:
            return whole[:, 0]
        return sum_of_lanes(np.pad(whole, ((0, 0), (0, 32 - self.blocks_of_row))))

    def column_sums(self, add, rows):
        """``add(sums, the rows)`` of each thread in turn, then of the threads of a block, then of the blocks."""
        shape = (self.blocks, self.rows_at_once, self.loads, self.lanes, self.elements)
        total, step = np.zeros(shape, np.float32), self.blocks * self.rows_at_once
        for first in range(0, rows, step):
            flat, count = total.reshape(step, *shape[2:]), min(step, rows - first)
            flat[:count] = add(flat[:count], slice(first, first + count))
        part = np.zeros((self.blocks, *shape[2:]), np.float32)
        if self.rows_at_once == 1:
            part = total[:, 0]
        elif self.tuned:
            for warp in range(4):
                part = part + total[:, warp]
        else:
            for load in range(self.loads):
                own = load % 4
                kept = total[:, own, load]
                for warp in range(4):
                    kept = kept if warp == own else kept + total[:, warp, load]
                part[:, load] = kept
        part = part.reshape(self.blocks, -1)
        warps = 32 if self.tuned else 4
        sums = np.zeros((warps, part.shape[1]), np.float32)
        for block in range(self.blocks):
            sums[block % warps] = sums[block % warps] + part[block]
        if self.tuned:
            return sum_of_lanes(sums.T)[: self.columns]
        for half in (2, 1):
            sums = sums[:half] + sums[half : 2 * half]
        return sums[0, : self.columns]


#: Norm, types of x and of the others, rows, columns; elements of a load, warps of a row, blocks of 132 multiprocessors,
#: whether the kernel is for these columns alone, loads of a row; then blocks that share a row, if any.
PLAYED = {
    "layer bf16 bf16 1600 768": (8, 1, 132 * 3, True, 3),
    "layer fp16 fp16 1062 1024": (8, 1, 132 * 2, False, 4),
    "layer bf16 bf16 664 1536": (4, 4, 132 * 5, True, 3),
    "layer fp32 fp32 531 1900": (4, 4, 132 * 4, False, 4),
    "layer fp32 bf16 90 100": (2, 1, 23, False, 2),
    "rms bf16 bf16 664 2048": (8, 4, 132 * 5, True, 2),
    "rms fp32 fp16 2115 300": (4, 1, 132 * 5, False, 4),
    "rms fp16 fp16 3172 512": (8, 1, 132 * 5, True, 2),
    "add fp32 fp32 2116 512": (4, 1, 132 * 4, True, 4),
    "add bf16 bf16 30 700": (8, 1, 8, False, 4),
    "layer fp32 fp32 268 3840": (2, 4, 132 * 2, True, 15),
    "layer bf16 bf16 108 12800": (4, 4, 105, True, 5, 5),
    "layer fp16 fp16 68 15360": (2, 4, 66, True, 15, 4),
    "layer fp32 fp32 136 10240": (4, 4, 132, True, 10, 2),
    "layer bf16 bf16 67 9000": (8, 4, 67, False, 3, 3),
    "rms fp32 fp32 102 13000": (4, 4, 99, False, 7, 4),
    "add fp32 fp32 268 8192": (4, 4, 132 * 2, True, 16),
    "add fp32 fp32 40 3000": (4, 4, 40, False, 6),
}
#: Cases whose kernel rounds the products that dgamma is the sum of.
ROUNDED = {
    "layer fp32 fp32 268 3840",
    "layer fp16 fp16 68 15360",
    "layer fp32 fp32 136 10240",
    "add fp32 fp32 268 8192",
}


@pytest.mark.parametrize("case", sampled(PLAYED, 5))
def test_gradients_added_up_in_hoppers_order_are_the_kernels_played_thread_by_thread(case):
    """No device has been asked for these rows and columns; blocks beyond the first round are in them."""
    kind, of_x, of_rest, rows, columns = (int(word) if word.isdigit() else word for word in case.split())
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

    def tensor(values, name):
        return torch.from_numpy(np.asarray(values, np.float32)).to(types[name])

    x = tensor(normal(7, (rows, columns)), of_x)
    gamma, dz = tensor(drawn(8, (columns,)), of_rest), tensor(drawn(9, (rows, columns)), of_rest)
    add = tensor(normal(10, (rows, columns)), of_rest) if kind == "add" else None
    mean, rsigma = drawn(11, (rows,)) / 8, np.abs(drawn(12, (rows,))) + np.float32(0.25)
    given = {"zero_centered_gamma": True, "functions": "hopper", "out_dtype": "float32"}
    if kind == "layer":
        dx, dgamma, dbeta = fp8lab.operators.layernorm_backward(dz, x, mean, rsigma, gamma, **given)
    else:
        dx, dgamma = fp8lab.operators.rmsnorm_backward(dz, x, rsigma, gamma, add=add, **given)

    block = Block(columns, *PLAYED[case])
    wide, grad = x.float().numpy(), dz.float().numpy()
    y = rsigma[:, None] * (wide - mean[:, None] if kind == "layer" else wide)
    dy = (gamma.float().numpy() + np.float32(1)) * grad
    share = np.float32(1) / np.float32(columns)
    of_y, of_dy, of_grad = block.threads(y), block.threads(dy), block.threads(grad)
    dyy = block.row_sums(lambda s, i, j: fused(of_dy[:, i, :, j], of_y[:, i, :, j], s), rows) * share
    if kind == "layer":
        plain = block.row_sums(lambda s, i, j: s + of_dy[:, i, :, j], rows) * share
        inner = dy - fused(dyy[:, None], y, plain[:, None])
    else:
        inner = fused(-dyy[:, None], y, dy)
    expected = rsigma[:, None] * inner if add is None else fused(rsigma[:, None], inner, add.float().numpy())
    assert (expected.view(np.int32) == np.asarray(dx).view(np.int32)).all()
    plus_product = (lambda a, b, c: a * b + c) if case in ROUNDED else fused
    sums = block.column_sums(lambda s, at: plus_product(of_grad[at], of_y[at], s), rows)
    assert (sums.view(np.int32) == np.asarray(dgamma).view(np.int32)).all()
    if kind == "layer":
        sums = block.column_sums(lambda s, at: s + of_grad[at], rows)
        assert (sums.view(np.int32) == np.asarray(dbeta).view(np.int32)).all()
