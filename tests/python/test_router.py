# SPDX-License-Identifier: Apache-2.0
"""The router in Python: against float64 and torch.topk within the bound of its roundings, over types, shapes and
refusals. Its bits are tested in tests/reference/operators/router.cpp."""

import ml_dtypes
import numpy as np
import pytest
from fp8lab import operators
from test_operators import U, drawn

torch = pytest.importorskip("torch")

EXPERTS = 70
LANES = 3  # elements that a lane has of a row of that many experts


def scores_of(x, score):
    """float64 scores with gradients."""
    if score == "sigmoid":
        return torch.sigmoid(x)
    return torch.sqrt(torch.log1p(torch.exp(x))) if score == "sqrtsoftplus" else x


def routed(x, topk, score, softmax_first, scaling):
    """float64: scores, the chosen experts and their probabilities, in a table."""
    s = torch.softmax(x, -1) if softmax_first else scores_of(x, score)
    chosen = torch.topk(s, topk, dim=-1).indices
    p = s.gather(-1, chosen)
    if score == "softmax":
        p = p if softmax_first else torch.softmax(p, -1)
    elif topk > 1:
        p = p / p.sum(-1, keepdim=True)
    return s, chosen, torch.zeros_like(x).scatter(-1, chosen, scaling * p)


def roundings_of_softmax(x):
    """A relative error of a softmax: a term of its sum has an exponential of a difference, which has a rounding, and for
    each element of a lane and each of 5 exchanges at most another one, a product and a sum, of differences that are
    the row's range in all; the exponential of the value itself, the reciprocal and the product."""
    return 2 * (x.max(axis=-1, keepdims=True) - x.min(axis=-1, keepdims=True)) + 4 * (LANES + 5) + 5


@pytest.mark.parametrize("topk", [1, 5, 20])
@pytest.mark.parametrize(
    "score, softmax_first", [("softmax", False), ("softmax", True), ("sigmoid", None), ("sqrtsoftplus", None)]
)
def test_the_router_is_the_formula_and_its_gradient_autograds(score, softmax_first, topk):
    logits, grad = 2 * drawn(1, 6, EXPERTS), drawn(2, 6, EXPERTS)
    x = torch.from_numpy(np.float64(logits)).requires_grad_()
    s, chosen, exact = routed(x, topk, score, bool(softmax_first), 2.5)
    choices = {"score": score, "softmax_first": softmax_first, "scaling": 2.5}
    made = operators.moe_topk(logits, topk, threads=2, **choices)
    assert np.array_equal(np.sort(made.experts, axis=-1), np.sort(chosen.numpy(), axis=-1))
    wide, p = np.float64(logits), exact.detach().numpy()
    if score == "softmax":
        of_s = roundings_of_softmax(wide) + 0 * wide
        of_p = of_s + 1
    else:
        # A sigmoid has 3 roundings; sqrt(log1p(exp(x))) has 1, which log1p passes on, and 1, halved, and 1.
        of_s = 3 + 0 * wide
        of_p = of_s + (3 + LANES + 6 + 1 if topk > 1 else 0) + 1
    assert np.all(np.abs(made.probabilities - p) <= 1.001 * U * of_p * np.abs(p))
    # The gradient.
    exact.backward(torch.from_numpy(np.float64(grad)))
    g = np.abs(2.5 * np.float64(grad)) * (p != 0)
    of_sum = LANES + 5
    if score == "softmax":
        value = np.float64(made.saved) if softmax_first else p / 2.5
        terms = value * (g + (g * value).sum(axis=-1, keepdims=True))
        bound = (2 * of_s + of_sum + 5) * terms
    else:
        value = s.detach().numpy()
        slope = value if score == "sigmoid" else sigmoid_over_twice(wide, value)
        below = (value * (p != 0)).sum(axis=-1, keepdims=True)
        of_below = 3 + of_sum + 1
        terms = g / below + (g * value).sum(axis=-1, keepdims=True) / below**2 if topk > 1 else g
        # g has a rounding, quotients by the sum theirs; s (1 - s) is off by at most 8 s, the slope by 8 of it.
        bound = (2 * of_below + 3 + of_sum + 8 + 8) * terms * slope * (p != 0)
    for routing in ({"experts": made.experts}, {"routing": operators.moe_routing_map(made.experts, EXPERTS)}):
        dx = operators.moe_topk_backward(grad, made.saved, topk, threads=2, **routing, **choices)
        assert np.all(np.abs(dx - x.grad.numpy()) <= 1.001 * U * bound)
    bits = operators.moe_routing_map(made.experts, EXPERTS, bits=True)
    assert bits.shape == (6, 9) and np.array_equal(
        operators.moe_topk_backward(grad, made.saved, topk, routing=bits, **choices), dx
    )


def sigmoid_over_twice(x, s):
    return 1 / (1 + np.exp(-x)) / (2 * s)


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "sqrtsoftplus"])
def test_scores_of_the_auxiliary_loss_and_the_loss(score):
    logits, grad = 2 * drawn(3, 6, EXPERTS), drawn(4, 6, EXPERTS)
    x = torch.from_numpy(np.float64(logits)).requires_grad_()
    s = torch.softmax(x, -1) if score == "softmax" else scores_of(x, score)
    y = s / s.sum(-1, keepdim=True)
    y.backward(torch.from_numpy(np.float64(grad)))
    scores, experts, saved = operators.moe_scores(logits, 4, score=score, threads=2)
    wide, exact = np.float64(logits), y.detach().numpy()
    of_s = roundings_of_softmax(wide) if score == "softmax" else 3
    assert np.all(np.abs(scores - exact) <= 1.001 * U * (of_s + (0 if score == "softmax" else LANES + 10)) * exact)
    assert np.array_equal(experts, torch.topk(y, 4).indices.numpy())
    dx = operators.moe_scores_backward(grad, saved, score=score, threads=2)
    g, value = np.abs(np.float64(grad)), s.detach().numpy()
    total = value.sum(axis=-1, keepdims=True)
    slope = value if score != "sqrtsoftplus" else sigmoid_over_twice(wide, value)
    terms = g / total + (g * value).sum(axis=-1, keepdims=True) / total**2
    bound = (2 * (of_s + LANES + 6) + 3 + LANES + 5 + 16) * terms * slope
    assert np.all(np.abs(dx - x.grad.numpy()) <= 1.001 * U * bound)
    # The loss: of 6 rows on as many blocks a term has a product, 3 sums of a lane of a warp's threads, 5 exchanges, the
    # product with a factor of 4 roundings, and 6 sums of blocks.
    counts = np.arange(EXPERTS)
    loss, factor = operators.moe_aux_loss(
        scores, counts, tokens=99, experts=EXPERTS // 2, topk=4, coefficient=0.01, threads=2
    )
    wanted = (np.float64(scores) * counts).sum() * (EXPERTS // 2) * 0.01 / 4 / 99**2
    assert abs(loss - wanted) <= 1.001 * U * (1 + 3 + 5 + 5 + 6 + 1) * wanted
    of_probabilities = operators.moe_aux_loss_backward(1.5, factor, counts, 6)
    assert np.all(np.abs(of_probabilities / np.maximum(factor * 1.5 * counts, 1e-30)[None] - (counts > 0)) <= 3 * U)


def test_types_shapes_and_threads():
    logits = drawn(5, 4, 3, 24)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        typed = logits.astype(dtype)
        made = operators.moe_topk(typed, 4, score="sigmoid", threads=3)
        wide = operators.moe_topk(typed.astype(np.float32), 4, score="sigmoid")
        assert made.probabilities.dtype == dtype and made.experts.shape == (4, 3, 4) and made.cutoff is None
        assert np.array_equal(made.probabilities, wide.probabilities.astype(dtype))
        assert np.array_equal(made.saved, wide.saved) and made.saved.dtype == np.float32
        grad = drawn(6, 4, 3, 24).astype(dtype)
        dx = operators.moe_topk_backward(grad, made.saved, 4, experts=made.experts, score="sigmoid")
        unrounded = operators.moe_topk_backward(
            grad, made.saved, 4, experts=made.experts.astype(np.int64), score="sigmoid", out_dtype="float32"
        )
        assert dx.dtype == dtype and np.array_equal(dx, unrounded.astype(dtype))
    own = logits.copy()
    assert operators.moe_topk(own, 4, out=own).probabilities is own
    assert np.array_equal(own, operators.moe_topk(logits, 4).probabilities)
    empty = operators.moe_topk(np.empty((0, 5), np.float32), 2)
    assert empty.probabilities.shape == (0, 5) and empty.experts.shape == (0, 2)
    assert np.array_equal(operators.moe_topk(logits[..., :1], 1).probabilities, np.ones((4, 3, 1)))
    every = operators.moe_topk(logits, 24)
    assert np.array_equal(np.sort(every.experts), np.broadcast_to(np.arange(24), (4, 3, 24)))


def test_a_bias_chooses_and_does_not_weigh():
    logits, bias = drawn(7, 50, 32), 2 * drawn(8, 32)
    made = operators.moe_topk(logits, 4, score="sigmoid", bias=bias, cutoff=True)
    compared = torch.sigmoid(torch.from_numpy(np.float64(logits))) + torch.from_numpy(np.float64(bias))
    best = torch.topk(compared, 5)
    assert np.array_equal(made.experts, best.indices[:, :4].numpy())
    assert np.all(np.abs(made.cutoff - best.values[:, 4].numpy()) <= 4 * U * (1 + np.abs(bias).max()))
    p = torch.sigmoid(torch.from_numpy(np.float64(logits))).numpy()
    chosen = np.take_along_axis(p, made.experts.astype(np.int64), -1)
    weights = np.take_along_axis(made.probabilities, made.experts.astype(np.int64), -1)
    # The bias is added and taken off again: two roundings of numbers up to 1 + |bias|.
    lost = 4 * (2 + np.abs(bias).max()) / chosen.min(axis=-1, keepdims=True)
    assert np.all(np.abs(weights - chosen / chosen.sum(axis=-1, keepdims=True)) <= U * (lost + 16))
    histogram = np.zeros((32, 10), np.int32)
    operators.moe_bias_histogram(made.saved, made.cutoff, histogram, lower=-4, upper=4)
    needed = np.float64(made.cutoff)[:, None] - np.float64(made.saved)
    wanted = [np.bincount(np.clip((one + 4) // 0.8, 0, 9).astype(int), minlength=10) for one in needed.T]
    assert histogram.sum() == 50 * 32 and np.array_equal(histogram, wanted)


def test_groups_limit_the_choice():
    logits = drawn(9, 40, 32)
    made = operators.moe_topk(logits, 6, score="sigmoid", groups=8, group_topk=3)
    s = 1 / (1 + np.exp(-np.float64(logits))).reshape(40, 8, 4)
    groups = np.argsort(-np.sort(s, axis=-1)[..., 2:].sum(axis=-1), axis=-1)[:, :3]
    masked = np.zeros_like(s)
    np.put_along_axis(masked, groups[..., None], np.take_along_axis(s, groups[..., None], 1), 1)
    wanted = np.argsort(-masked.reshape(40, 32), axis=-1)[:, :6]
    assert np.array_equal(made.experts, wanted)


def test_infinities_and_nan():
    logits = np.float32([[1, np.inf, 0, -np.inf], [np.nan, 1, 2, 3]])
    assert operators.moe_topk(logits, 2, score="sigmoid").experts.tolist() == [[1, 0], [3, 2]]
    assert operators.moe_topk(logits, 2, score="sigmoid", radix_from=2).experts.tolist() == [[1, 0], [0, 3]]
    # -infinity as the first of a lane makes the sum of all NaN: exp(-inf + inf) times 0, as in the kernel.
    first = np.zeros((1, 40), np.float32)
    first[0, 3] = -np.inf
    assert np.all(operators.moe_topk(first, 2, softmax_first=True).saved.view(np.uint32) == 0x7FFFFFFF)
    behind = np.concatenate([np.zeros((1, 32), np.float32), np.full((1, 3), -np.inf, np.float32)], axis=-1)
    assert np.array_equal(
        operators.moe_topk(behind, 1, softmax_first=True).saved, np.repeat([1 / 32, 0], [32, 3])[None]
    )


X = drawn(10, 2, 6)
SAVED = np.zeros((2, 6), np.float32)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: operators.moe_topk(X, 7), ValueError, "topk must be from 1 to the 6 experts of logits, not 7"),
        (lambda: operators.moe_topk(X, 0), ValueError, "topk must be"),
        (lambda: operators.moe_topk(np.float64(X), 2), TypeError, "logits must be float32, float16 or bfloat16"),
        (lambda: operators.moe_topk(X[:, :0], 1), ValueError, "logits must have columns"),
        (lambda: operators.moe_topk(X, 2, score="tanh"), ValueError, "sigmoid"),
        (lambda: operators.moe_topk(X, 2, score="sigmoid", softmax_first=True), ValueError, "softmax_first goes with"),
        (lambda: operators.moe_topk(X, 2, bias=X[0]), ValueError, "bias goes with"),
        (lambda: operators.moe_topk(X, 2, score="sigmoid", bias=X[0, :5]), ValueError, "bias must have shape"),
        (lambda: operators.moe_topk(X, 2, groups=3), ValueError, "groups and group_topk go together"),
        (lambda: operators.moe_topk(X, 2, groups=4, group_topk=2), ValueError, "groups must divide the 6 experts"),
        (lambda: operators.moe_topk(X, 3, groups=3, group_topk=2), ValueError, "group_topk must be at most the 3 groups"),
        (lambda: operators.moe_topk(X, 6, score="sigmoid", cutoff=True), ValueError, "topk must be below the 6 experts"),
        (lambda: operators.moe_topk_backward(X, SAVED, 2), ValueError, "routing or experts must be given"),
        (lambda: operators.moe_topk_backward(X, SAVED[:1], 2, experts=[[0, 1]] * 2), ValueError, "saved must have shape"),
        (lambda: operators.moe_topk_backward(X, SAVED, 2, experts=[[0, 6]] * 2), ValueError, "experts must be below the 6"),
        (lambda: operators.moe_topk_backward(X, SAVED, 2, experts=[[0]] * 2), ValueError, "experts must have topk, 2,"),
        (lambda: operators.moe_topk_backward(X, SAVED, 2, routing=X), TypeError, "routing must be bool or uint8"),
        (lambda: operators.moe_topk_backward(X, SAVED, 2, routing=X[:, :2] > 0), ValueError, "routing must have 6 bytes"),
        (lambda: operators.moe_routing_map([[0, 6]], 6), ValueError, "experts must be below count, 6, not 6"),
        (lambda: operators.moe_routing_map([[0.5]], 6), TypeError, "experts must hold integers"),
        (lambda: operators.moe_scores(X, 7), ValueError, "topk must be"),
        (lambda: operators.moe_aux_loss(X, [1] * 5, tokens=1, experts=3, topk=1, coefficient=1), ValueError, "tokens_per"),
        (lambda: operators.moe_aux_loss(X, [1] * 6, tokens=1, experts=4, topk=1, coefficient=1), ValueError, "experts must"),
        (lambda: operators.moe_aux_loss(X, [1] * 6, tokens=0, experts=3, topk=1, coefficient=1), ValueError, "tokens"),
        (
            lambda: operators.moe_bias_histogram(X, X[:, 0].copy(), np.zeros((6, 3), np.int64), lower=0, upper=1),
            TypeError, "histogram must be int32, not int64",
        ),
        (
            lambda: operators.moe_bias_histogram(X, X[:, 0].copy(), np.zeros((6, 3), np.int32), lower=1, upper=0),
            ValueError, "lower and upper must be finite and ascend",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
