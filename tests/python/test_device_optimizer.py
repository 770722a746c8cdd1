# SPDX-License-Identifier: Apache-2.0
"""Adam and norms of tensors with ``functions="hopper"``, beside those of NVIDIA's kernels on an H200.

tests/vectors/device/README.md says what is recorded; the calls are those of te/device_words.py. What no device has been
asked for is played as the source of Transformer Engine 2.20 has it: common/multi_tensor/multi_tensor_apply.cuh.
"""

import sys
from collections import Counter
from pathlib import Path

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
VECTORS = Path(__file__).parents[1] / "vectors" / "device" / "h200_te_optimizer.npz"
sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import digest, drawn, hashed  # noqa: E402

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SHAPES = ((1000,), (64, 65), (2048 * 33 + 5,))
HOPPER = {"functions": "hopper"}


def tensor(seed, shape, name, scale=1.0, wide=False):
    return torch.from_numpy(drawn(seed, shape, scale, wide)).to(TYPES[name])


def grads(name):
    return [tensor(70 + i, shape, name, 0.1, wide=True) for i, shape in enumerate(SHAPES)]


def lists(name):
    """Gradients, parameters and both moments."""
    params = [tensor(80 + i, shape, name) for i, shape in enumerate(SHAPES)]
    first = [tensor(90 + i, shape, "fp32", 0.01) for i, shape in enumerate(SHAPES)]
    second = [tensor(100 + i, shape, "fp32", 0.001).abs() for i, shape in enumerate(SHAPES)]
    return [grads(name), params, first, second]


def words_of(values):
    return values.contiguous().view(torch.int32 if values.element_size() == 4 else torch.int16).numpy().reshape(-1)


def same_words(recorded, call, made):
    """How many words of these tensors are the recorded ones: all, or this fails."""
    count = 0
    for i, tensors in enumerate(made):
        for j, one in enumerate(tensors):
            name, words = f"{call}.{i}.{j}", words_of(one)
            first = recorded[f"{name}#first"]
            assert (words[: first.size] == first).all(), name
            assert digest(words) == recorded[f"{name}#digest"], name
            count += words.size
    return count


def test_adam_is_that_of_an_h200():
    recorded, words = np.load(VECTORS), Counter()
    for name in TYPES:
        for mode in (0, 1):
            for correction in (0, 1):
                made = lists(name)
                given = {"mode": ("l2", "decoupled")[mode], "bias_correction": bool(correction), **HOPPER}
                for step in (1, 2, 3):
                    for one in zip(*made):
                        fp8lab.operators.adam_update(*one, lr=1e-3, step=step, weight_decay=0.01, **given)
                words["adam"] += same_words(recorded, f"adam/{name}/{mode}/{correction}", made[1:])
        made = [*lists(name), [one.float() for one in lists(name)[1]]]
        given = {"lr": 1e-3, "betas": (0.9, 0.95), "step": 7, "weight_decay": 0.1, **HOPPER}
        for *one, master in zip(*made):
            fp8lab.operators.adam_update(*one, master=master, **given)
        words["master"] += same_words(recorded, f"adam_master/{name}", made[1:])
    size = 1000 + 64 * 65 + 2048 * 33 + 5
    assert words == {"adam": 12 * 3 * size, "master": 3 * 4 * size}


def test_adam_of_cuda_graphs_and_of_shared_out_masters_is_that_of_an_h200():
    recorded = np.load(VECTORS)
    for scale in ("1", "0.3"):
        made = lists("fp32")
        for one in zip(*made):
            fp8lab.operators.adam_update(
                *one, inverse_scale=float(np.float32(scale)), lr=1e-3, step=5, weight_decay=0.01, **HOPPER
            )
        same_words(recorded, f"adam_capturable/{scale}", made)
    made = lists("bf16")
    low = [(hashed(int(np.prod(shape)), 120) & np.uint64(0xFFFF)).astype(np.uint16) for shape in SHAPES]
    made.append([torch.from_numpy(one.view(np.int16)).reshape(shape) for one, shape in zip(low, SHAPES)])
    for one in zip(*made):
        fp8lab.operators.adam_update_remainder(*one, lr=1e-3, step=3, weight_decay=0.01, **HOPPER)
    same_words(recorded, "adam_remainder", made[1:])


def test_adam_of_codes_has_the_same_master():
    """No device has been asked; the kernel's instructions are those of a float32 master."""
    grad, param, first, second = (one[1] for one in lists("fp32"))
    master, codes = param.clone(), np.zeros(param.shape, np.uint8)
    given = {"lr": 1e-3, "step": 3, "weight_decay": 0.01, **HOPPER}
    fp8lab.operators.adam_update_fp8(grad, codes, first.clone(), second.clone(), master, scale=8.0, **given)
    fp8lab.operators.adam_update(grad, param, first, second, **given)
    assert torch.equal(master, param)
    assert (codes == fp8lab.encode(param.numpy() * np.float32(8), "e4m3")).all()


def test_norms_are_those_of_an_h200():
    recorded = np.load(VECTORS)

    def check(call, tensors, per_tensor):
        total, each = fp8lab.operators.l2norm(tensors, **HOPPER)
        assert np.float32([total]).view(np.int32) == recorded[f"{call}.0"], call
        if per_tensor:
            assert (np.float32(each).view(np.int32) == recorded[f"{call}.1"]).all(), call

    for name in TYPES:
        check(f"l2norm/{name}", grads(name), True)
        unscaled = [fp8lab.operators.scale_tensor(one, 0.37, out_dtype="float32")[0] for one in grads(name)]
        check(f"unscale_l2norm/{name}", unscaled, True)
    for size in (1, 7, 512, 2048, 65536, 65537, 1000003):
        check(f"l2norm/fp32/{size}", [tensor(110, (size,), "fp32")], False)


def tree(sums):
    """512 threads add those half of them behind, then a quarter and so on."""
    threads = np.zeros(512, np.float32)
    threads[: sums.size] = sums
    while threads.size > 1:
        threads = threads[: threads.size // 2] + threads[threads.size // 2 :]
    return threads[0]


def root(x):
    return fp8lab.special_function("sqrt", np.float32([x]), ftz=True)[0]


def played(x):
    """The norms of up to 65536 numbers of 11 bits: with a thread's four sums of neighbours, and of numbers 512 apart."""
    sums = np.zeros(2048)  # float64 has each fused sum
    for part in np.pad(x.astype(np.float64), (0, -x.size % 2048)).reshape(-1, 2048):
        sums = (part**2 + sums).astype(np.float32).astype(np.float64)
    of_threads = (sums.reshape(512, 4), sums.reshape(4, 512).T)
    return [root(tree(np.add.accumulate(np.float32(one), axis=1)[:, 3])) for one in of_threads]


@pytest.mark.parametrize("size", [2047, 2048, 4098, 30000, 65535, 65536])
def test_a_threads_own_sums_lie_as_the_size_has_it(size):
    draws = (drawn(seed, (size,)).astype(np.float16) for seed in range(1, 100))
    x, norms = next((x, norms) for x in draws if len(set(norms := played(x))) == 2)
    assert fp8lab.operators.l2norm(x, **HOPPER) == (norms[size % 4 != 0], [norms[size % 4 != 0]])


@pytest.mark.parametrize(
    "sizes", [[1] * 250, [65536 * 330], [65536 * 100, 3] * 4, [65536 * 400, 8], [65536 * 321, *[1] * 200]]
)
def test_norms_of_several_launches_add_their_blocks_in_the_kernels_order(sizes):
    """A chunk has one number that is not 0, so that its sum is the square; the order of blocks is what is left."""
    squares = iter(drawn(5, (1000,), 4.0, wide=True).astype(np.float16))
    tensors, blocks, launch = [], np.zeros(320, np.float32), Counter()
    for size in sizes:
        values = np.zeros(size, np.float16)
        values[::65536] = [next(squares) for _ in values[::65536]]
        tensors.append(values)
        launch["tensors"] += 1
        chunks = np.float32(values[::65536]) ** 2
        for chunk, square in enumerate(chunks):
            blocks[launch["blocks"]] += square
            launch["blocks"] += 1
            is_last = chunk + 1 == chunks.size
            if launch["blocks"] == 320 or (launch["tensors"] == 110 and is_last):
                launch = Counter(tensors=0 if is_last else 1)
    total, each = fp8lab.operators.l2norm(tensors, **HOPPER)
    assert total == root(tree(blocks))
    for norm, values in zip(each, tensors):
        chunks = np.float32(values[::65536]) ** 2
        rows = np.zeros((-(-chunks.size // 512), 512), np.float32)
        rows.reshape(-1)[: chunks.size] = chunks
        assert norm == root(tree(np.add.accumulate(rows, axis=0)[-1]))


def test_norms_without_elements_and_with_special_numbers():
    assert fp8lab.operators.l2norm([], **HOPPER) == (0.0, [])
    assert fp8lab.operators.l2norm([np.zeros(0, np.float32), np.float32([3, 4])], **HOPPER) == (5.0, [0.0, 5.0])
    total, each = fp8lab.operators.l2norm([np.float32([1e-30, 1e-39]), np.float32([np.inf, 1])], **HOPPER)
    assert (total, each) == (np.inf, [0.0, np.inf])
    assert np.isnan(fp8lab.operators.l2norm(np.float32([np.nan, 1]), **HOPPER)[0])
