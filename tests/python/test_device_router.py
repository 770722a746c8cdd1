# SPDX-License-Identifier: Apache-2.0
"""The router of a mixture of experts as NVIDIA's kernels computed it on an H200 (tests/vectors/device/README.md)."""

import sys
from pathlib import Path

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
VECTORS = Path(__file__).parents[1] / "vectors" / "device" / "h200_te_router.npz"
sys.path.insert(0, str(Path(__file__).parent / "te"))
from drawn_words import digest, drawn  # noqa: E402

operators = fp8lab.operators
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
SCORES = ("softmax", "sigmoid", "sqrtsoftplus")


def tensor(seed, shape, dtype, scale=1.0):
    return torch.from_numpy(drawn(seed, shape, scale)).to(dtype)


def differing(recorded, key, made):
    """How many of the recorded words are others; of a large tensor also whether its digest is another."""
    own = np.ascontiguousarray(made)
    if key in recorded.files:
        expected = recorded[key]
        return int((own.reshape(expected.shape).view(expected.dtype) != expected).sum()), own.size
    first, whole = recorded[f"{key}#first"], own.view(f"int{own.dtype.itemsize * 8}").reshape(-1)
    others = int((whole[: first.size].view(first.dtype) != first).sum())
    return others + int(digest(whole) != recorded[f"{key}#digest"]), own.size


def bias_of(score, seed, experts):
    return None if score == "softmax" else drawn(seed, (experts,), 0.1)


def routed(dtype, score, first, groups, functions):
    given = {} if groups is None else {"groups": groups, "group_topk": 2}
    made = operators.moe_topk(
        tensor(400, (64, 16), dtype, 4.0), 4, score=score, softmax_first=first if score == "softmax" else None,
        bias=bias_of(score, 401, 16), scaling=1.5, functions=functions, **given,
    )  # fmt: skip
    return made.probabilities, operators.moe_routing_map(made.experts, 16).astype(np.int32), made.saved


def routed_among_256(dtype, score, functions):
    given = {"score": score, "softmax_first": True if score == "softmax" else None, "functions": functions}
    made = operators.moe_topk(
        tensor(403, (128, 256), dtype, 6.0), 8, bias=bias_of(score, 404, 256), groups=8, group_topk=4, scaling=2.5,
        **given,
    )  # fmt: skip
    routing = operators.moe_routing_map(made.experts, 256)
    grad = tensor(405, (128, 256), dtype)
    dlogits = operators.moe_topk_backward(grad, made.saved, 8, routing=routing, scaling=2.5, **given)
    return made.probabilities, routing, made.saved, dlogits


def scored(dtype, score, functions):
    scores, experts, saved = operators.moe_scores(
        tensor(400, (64, 16), dtype, 4.0), 4, score=score, functions=functions
    )
    return scores, operators.moe_routing_map(experts, 16).astype(np.int32), saved


def calls(functions):
    """The name of each recorded call, and what it returned."""
    for type_name, dtype in TYPES.items():
        for score in SCORES:
            for first in (True, False):
                for groups in (None, 4):
                    yield f"topk/{type_name}/{score}/{first}/{groups}", routed(dtype, score, first, groups, functions)
            yield f"aux_score/{type_name}/{score}", scored(dtype, score, functions)
            yield f"topk256/{type_name}/{score}", routed_among_256(dtype, score, functions)


def test_every_word_is_an_h200s():
    recorded, words = np.load(VECTORS), 0
    for name, parts in calls("hopper"):
        for i, part in enumerate(parts):
            others, size = differing(recorded, f"{name}.{i}", part)
            assert others == 0, (name, i)
            words += size
    assert words == 2 * 3 * (5 * 3 * 64 * 16 + 4 * 128 * 256)


def test_functions_that_are_rounded_correctly_give_other_words():
    recorded = np.load(VECTORS)
    for score, count in zip(SCORES, (62, 5, 16)):
        made = routed(torch.float32, score, True, None, "correctly_rounded")
        assert differing(recorded, f"topk/fp32/{score}/True/None.0", made[0])[0] == count


def test_the_auxiliary_loss_is_an_h200s_but_for_the_order_of_its_blocks():
    """64 blocks add a row each by atomics, whose order no program fixes; each of their sums is rounded."""
    recorded = np.load(VECTORS)
    for type_name, dtype in TYPES.items():
        loss, factor = operators.moe_aux_loss(
            tensor(402, (64, 16), dtype).abs(), np.arange(16) * 3, tokens=64, experts=16, topk=4, coefficient=0.01
        )
        found_factor, found_loss = recorded[f"aux_loss/{type_name}.1"].view(np.float32)
        assert found_factor == factor
        assert abs(float(found_loss) - float(loss)) <= 63 * 2.0**-24 * float(loss)


def test_without_probabilities_their_gradient_is_a_column_as_the_extensions():
    """The device's was of shape (96, 1), of memory that no kernel writes (permutation.cpp)."""
    from fp8lab.te.permutes import moe_unpermute_bwd

    grad, rows = tensor(133, (96, 128), torch.float32), torch.arange(96, dtype=torch.int32).flip(0)
    of_rows, of_probabilities = moe_unpermute_bwd(grad, grad, None, rows, torch.empty(0))
    assert torch.equal(of_rows, grad.flip(0))
    assert (of_probabilities.shape, of_probabilities.dtype) == ((96, 1), torch.float32)
