# SPDX-License-Identifier: Apache-2.0
"""Operators in Python: against float64 within the bound of their roundings, over types, shapes and refusals. Their bits
are tested in tests/reference/operators."""

import ml_dtypes
import numpy as np
import pytest
from conftest import splitmix
from fp8lab import operators

U = 2.0**-24  # a float32 rounding's relative error


def drawn(seed: int, *shape: int) -> np.ndarray:
    """Standard normal float32, of seeded words."""
    uniform = (splitmix(seed, 12 * int(np.prod(shape))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return (uniform.reshape(-1, 12).sum(axis=1) - 6).reshape(shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x * (
        0.5 + 0.5 * np.tanh(x * (np.float64(np.float32(0.79788456)) + np.float64(np.float32(0.03567741)) * x * x))
    )


#: The exact value, and a bound of what roundings make of it in units of U. gelu: the argument of tanh has 3 roundings,
#: |a| (1 - tanh(a)^2) <= 0.448, so tanh is off by 1.35 + 1; half of that and the rounding of 0.5 + 0.5 tanh, at most 1,
#: and of the product: 3.2 |x|. sigmoid has 3 relative roundings: those of exp, of the sum and of the quotient.
FORMULAS = {
    "gelu": (gelu, lambda x, y: 3.3 * np.abs(x)),
    "silu": (lambda x: x * sigmoid(x), lambda x, y: 4.1 * np.abs(y)),
    "qgelu": (
        lambda x: x * sigmoid(np.float64(np.float32(1.702)) * x),
        lambda x, y: (4.1 + 1.702 * np.abs(x)) * np.abs(y),  # alpha x has a rounding, which exp multiplies by it
    ),
    "relu": (lambda x: np.maximum(x, 0), lambda x, y: 0 * x),
    "srelu": (lambda x: np.maximum(x, 0) ** 2, lambda x, y: y),
}
GATED = {"geglu": "gelu", "swiglu": "silu", "qgeglu": "qgelu", "reglu": "relu", "sreglu": "srelu"}


@pytest.mark.parametrize("name", FORMULAS)
def test_an_activation_is_the_formula(name):
    x = 3 * drawn(1, 5, 77)
    exact, bound = FORMULAS[name]
    y = exact(np.float64(x))
    out = operators.activation(name, x)
    assert out.dtype == np.float32 and out.shape == x.shape
    assert np.all(np.abs(out - y) <= 1.001 * U * bound(np.float64(x), y))


@pytest.mark.parametrize("name", GATED)
def test_a_gated_activation_multiplies_the_halves(name):
    x = drawn(2, 3, 4, 50)
    out = operators.activation(name, x)
    value = operators.activation(GATED[name], np.ascontiguousarray(x[..., :25]))
    assert np.array_equal(out, value * x[..., 25:])
    grad = drawn(3, 3, 4, 25)
    dx = operators.activation_backward(name, grad, x)
    assert np.array_equal(dx[..., 25:], grad * value)
    slope = operators.activation_backward(GATED[name], grad, np.ascontiguousarray(x[..., :25]))
    assert np.array_equal(dx[..., :25], slope * x[..., 25:])


@pytest.mark.parametrize("name", [row.name for row in operators.activations()])
def test_a_gradient_is_the_derivative(name):
    # The central difference of the exact formula would need that formula again: the float32 values themselves are
    # differentiated over 2 h = 2^-5, which leaves h^2 / 6 |f'''|, f''' < 4 for all of them here, and 2 ulps over 2 h.
    row = next(one for one in operators.activations() if one.name == name)
    columns = 64 if row.gated else 32
    x = np.float32(drawn(4, 6, columns))
    x[np.abs(x) < 0.1] = 0.5  # where relu and srelu have no third derivative
    h = np.float32(2.0**-6)
    gradient = operators.activation_backward(name, np.ones((6, 32), np.float32), x)
    step = np.zeros_like(x)
    step[:, :32] = h
    difference = np.float64(operators.activation(name, x + step)) - operators.activation(name, x - step)
    size = 1 + np.abs(x[:, 32:]) if row.gated else 1
    assert np.all(np.abs(difference / (2 * h) - gradient[:, :32]) <= size * (float(h) ** 2 * 4 / 6 + 40 * U / float(h)))


def test_situglu_is_the_formula_and_so_are_its_gradients():
    torch = pytest.importorskip("torch")
    x, grad = 4 * drawn(13, 7, 40), drawn(14, 7, 20)
    a, b = (torch.from_numpy(np.float64(half)).requires_grad_() for half in (x[:, :20], x[:, 20:]))
    y = 3 * torch.tanh(a / 3) * torch.sigmoid(a) * 9 * torch.tanh(b / 9)
    y.backward(torch.from_numpy(np.float64(grad)))
    out = operators.activation("situglu", x, beta1=3, beta2=9)
    # A share and its tanh have 2 roundings, beta times it 3, the sigmoid 3, and three products follow: 3 + 3 + 3 + 2.
    assert np.all(np.abs(out - y.detach().numpy()) <= 1.001 * U * 11 * np.abs(y.detach().numpy()))
    dx = operators.activation_backward("situglu", grad, x, beta1=3, beta2=9)
    wide = np.float64(x)
    t, s = np.tanh(wide[:, :20] / 3), sigmoid(wide[:, :20])
    gate, value = 9 * np.tanh(wide[:, 20:] / 9), 3 * t * s
    # By a: (1 - t^2) s is off by 4 s, beta t s (1 - s) by 9 beta t s, their sum by 1; grad and the gate bring 5 more.
    of_a = 15 * (s + np.abs(value)) * np.abs(grad * gate)
    # By b: 1 - t^2 is off by 4; the value has 7 roundings, and three products follow.
    of_b = 14 * np.abs(grad * value)
    assert np.all(np.abs(dx[:, :20] - a.grad.numpy()) <= 1.001 * U * of_a)
    assert np.all(np.abs(dx[:, 20:] - b.grad.numpy()) <= 1.001 * U * of_b)
    assert np.array_equal(operators.activation("situglu", x), operators.activation("situglu", x, beta1=4, beta2=25))
    scales = drawn(15, 7)
    scaled = operators.scaled_activation("situglu", x, scales, beta1=3, beta2=9)
    assert np.array_equal(scaled, out * scales[:, None])


def test_types_and_the_unrounded_result():
    x = drawn(5, 33, 18)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        typed = x.astype(dtype)
        rounded = operators.activation("gelu", typed)
        unrounded = operators.activation("gelu", typed, out_dtype="float32")
        assert rounded.dtype == dtype and unrounded.dtype == np.float32
        assert np.array_equal(rounded, unrounded.astype(dtype))
        other = operators.activation("gelu", typed, out_dtype="float16")
        assert np.array_equal(other, unrounded.astype(np.float16))
        assert np.array_equal(operators.activation("gelu", typed[::2, ::-1]), rounded[::2, ::-1])
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(x).bfloat16()
    assert np.array_equal(
        operators.activation("silu", tensor), operators.activation("silu", x.astype(ml_dtypes.bfloat16))
    )


def test_out_and_arrays_that_overlap_it():
    x = drawn(6, 4, 10)
    expected = operators.activation("gelu", x)
    own = x.copy()
    assert operators.activation("gelu", own, out=own) is own and np.array_equal(own, expected)
    both = np.concatenate([x.ravel(), np.zeros(20, np.float32)])
    out = operators.activation("swiglu", both[:40].reshape(4, 10), out=both[20:40].reshape(4, 5))
    assert np.array_equal(out, operators.activation("swiglu", x))
    grad = drawn(7, 4, 5)
    own = x.copy()
    dx = operators.activation_backward("swiglu", grad, x)
    assert np.array_equal(operators.activation_backward("swiglu", grad, own, out=own), dx)


def test_the_gradient_of_a_bias_is_a_sum_of_blocks_of_rows():
    x, grad = drawn(8, 70, 9), drawn(9, 70, 9)
    dx, sums = operators.activation_backward("gelu", grad, x, bias_gradient=True, threads=2)
    assert np.array_equal(dx, operators.activation_backward("gelu", grad, x))
    blocks = np.zeros((32, 9), np.float32)
    for i, row in enumerate(dx):
        blocks[i // 3] += row  # n = ceil(70 / 32)
    for half in (16, 8, 4, 2, 1):
        blocks[:half] += blocks[half : 2 * half]
    assert np.array_equal(sums, blocks[0])


def test_rows_are_scaled_before_they_are_rounded():
    x, scales = drawn(10, 6, 128).astype(ml_dtypes.bfloat16), drawn(11, 6)
    out = operators.scaled_activation("swiglu", x, scales)
    unrounded = operators.activation("swiglu", x, out_dtype="float32") * scales[:, None]
    assert np.array_equal(out, unrounded.astype(ml_dtypes.bfloat16))
    halves = np.stack([x[:, :64].reshape(6, 2, 32), x[:, 64:].reshape(6, 2, 32)], axis=2).reshape(6, 128)
    assert np.array_equal(operators.scaled_activation("swiglu", halves, scales, interleave=32), out)
    grad = drawn(12, 6, 64)
    _, of_scales = operators.scaled_activation_backward("swiglu", grad, x, scales)
    exact = (np.float64(grad) * operators.activation("swiglu", x, out_dtype="float32")).sum(axis=1)
    magnitude = np.abs(np.float64(grad) * operators.activation("swiglu", x, out_dtype="float32")).sum(axis=1)
    assert np.all(np.abs(of_scales - exact) <= 1.001 * U * (64 / 32 + 5) * magnitude)  # 7 additions behind each term


def norm_case(rows, columns, seed):
    x = 2 * drawn(seed, rows, columns) + np.float32(0.5)
    return x, drawn(seed + 1, rows, columns), drawn(seed + 2, columns), drawn(seed + 3, columns)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_norms_and_their_gradients_are_those_of_float64(kind, centered):
    torch = pytest.importorskip("torch")
    rows, columns = 37, 300
    x, grad, gamma, beta = norm_case(rows, columns, 20)
    is_layernorm = kind == "layernorm"
    tensors = [torch.from_numpy(np.float64(one)).requires_grad_() for one in (x, gamma, beta)]
    weight = tensors[1] + 1 if centered else tensors[1]
    eps = float(np.float32(1e-5))
    if is_layernorm:
        exact = torch.nn.functional.layer_norm(tensors[0], (columns,), weight, tensors[2], eps)
    else:
        exact = tensors[0] * torch.rsqrt((tensors[0] ** 2).mean(-1, keepdim=True) + eps) * weight
    exact.backward(torch.from_numpy(np.float64(grad)))
    wide = np.float64(x)
    mean = wide.mean(axis=1, keepdims=True) if is_layernorm else np.zeros((rows, 1))
    rsigma = 1 / np.sqrt(((wide - mean) ** 2).mean(axis=1, keepdims=True) + eps)
    # 1. Forward. D additions stand behind each term of a sum; the mean is off by (D + 2) U mean|x|, rsigma by a relative
    # (D + 6) / 2 + 1 roundings, what follows by 3, and the result by its own.
    behind = columns / 32 + 6
    of_mean = (behind + 2) * U * np.abs(wide).mean(axis=1, keepdims=True) if is_layernorm else 0 * mean
    g = np.abs(np.float64(gamma) + centered)
    of_y = rsigma * (np.abs(wide - mean) * (behind / 2 + 7) * U + of_mean)
    y = exact.detach().numpy()
    if is_layernorm:
        out, own_mean, own_rsigma = operators.layernorm(x, gamma, beta, zero_centered_gamma=centered, threads=2)
        assert np.all(np.abs(own_mean - mean[:, 0]) <= 1.02 * of_mean[:, 0])
    else:
        out, own_rsigma = operators.rmsnorm(x, gamma, zero_centered_gamma=centered, threads=2)
    assert np.all(np.abs(own_rsigma / rsigma[:, 0] - 1) <= 1.02 * (behind / 2 + 4) * U)
    assert np.all(np.abs(out - y) <= 1.02 * (g * of_y + 2 * U * np.abs(y)))
    # 2. Backward, for statistics that are the float32 nearest to the exact ones. With d = gamma grad, the sums of d and of
    # d y have D additions behind each term, and at most 8 roundings before and after; y is off by 3 U |y| and by U rsigma
    # |mean|, which enters the sum of d y and its product with y.
    single = np.float32(mean[:, 0]), np.float32(rsigma[:, 0])
    normal = (wide - mean) * rsigma
    d = np.abs(np.float64(grad) * g)
    of_d, of_dy = d.mean(axis=1, keepdims=True), (d * np.abs(normal)).mean(axis=1, keepdims=True)
    shift = rsigma * np.abs(mean) * U
    bound = rsigma * ((behind + 9) * U * (d + of_d + of_dy * np.abs(normal)) + shift * (of_dy + of_d * np.abs(normal)))
    if is_layernorm:
        dx, dgamma, dbeta = operators.layernorm_backward(
            grad, x, *single, gamma, zero_centered_gamma=centered, threads=2
        )
        rest = U * (rows / 32 + 6) * np.abs(grad).sum(axis=0)
        assert np.all(np.abs(dbeta - np.float64(grad).sum(axis=0)) <= 1.02 * rest)
        assert np.all(np.abs(dbeta - tensors[2].grad.numpy()) <= 1.02 * rest + 1e-12)
    else:
        dx, dgamma = operators.rmsnorm_backward(grad, x, single[1], gamma, zero_centered_gamma=centered, threads=2)
    assert np.all(np.abs(dx - tensors[0].grad.numpy()) <= 1.02 * bound)
    of_gamma = (np.abs(grad) * (np.abs(normal) * U * (rows / 32 + 6 + 4) + shift)).sum(axis=0)
    assert np.all(np.abs(dgamma - tensors[1].grad.numpy()) <= 1.02 * of_gamma)


def test_norms_take_and_give_every_type():
    x, grad, gamma, beta = norm_case(5, 40, 30)
    low = [one.astype(ml_dtypes.bfloat16) for one in (x, grad, gamma)]
    unrounded = operators.layernorm(low[0], low[2], beta, out_dtype="float32")[0]
    out, mean, rsigma = operators.layernorm(low[0].reshape(5, 1, 40), low[2], beta)
    assert out.dtype == ml_dtypes.bfloat16 and out.shape == (5, 1, 40) and mean.shape == rsigma.shape == (5,)
    assert np.array_equal(out.reshape(5, 40), unrounded.astype(ml_dtypes.bfloat16))
    dx, dgamma, dbeta = operators.layernorm_backward(low[1], low[0], mean, rsigma, gamma)
    assert (dx.dtype, dgamma.dtype, dbeta.dtype) == (ml_dtypes.bfloat16, np.float32, np.float32)
    add = drawn(34, 5, 40)
    with_add, _ = operators.rmsnorm_backward(grad, x, rsigma, gamma, add=add)
    without, _ = operators.rmsnorm_backward(grad, x, rsigma, gamma)
    # One rounding instead of two: they differ by at most one of each.
    assert np.all(np.abs(with_add - (np.float64(without) + add)) <= U * (np.abs(without) + np.abs(with_add)))
    assert operators.rmsnorm(np.empty((0, 3), np.float32), np.ones(3, np.float32))[0].shape == (0, 3)


@pytest.mark.parametrize("causal", ["none", "upper_triangular", "aligned_causal"])
def test_softmax_is_that_of_float64(causal):
    queries, keys = (6, 9) if causal != "upper_triangular" else (9, 9)
    x = drawn(40, 2, 3, queries, keys)
    seen = np.ones((queries, keys), bool)
    if causal != "none":
        seen = np.tril(seen, keys - queries)
    scaled = np.where(seen, np.float64(x) * 0.5, -np.inf)  # a product with 0.5 is exact
    e = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    exact = e / e.sum(axis=-1, keepdims=True)
    out = operators.softmax(x, scale=0.5, causal=causal, threads=2)
    # The difference has a rounding, which exp multiplies by it; exp, its 5 additions at most, the reciprocal, the product.
    bound = U * (np.abs(scaled - scaled.max(axis=-1, keepdims=True)).max(where=seen, initial=0) * 2 + 8) * exact
    assert np.all(np.abs(out - exact) <= 1.001 * bound)
    grad = drawn(41, 2, 3, queries, keys)
    wide = np.float64(out)
    sums = (wide * grad).sum(axis=-1, keepdims=True)
    dx = operators.softmax_backward(grad, out, scale=0.5, causal=causal)
    magnitude = np.abs(wide * grad).sum(axis=-1, keepdims=True) * wide + np.abs(wide * grad)
    assert np.all(np.abs(dx - 0.5 * (wide * grad - sums * wide)) <= 1.001 * U * 0.5 * 9 * magnitude)


def test_softmax_with_a_mask():
    x = drawn(42, 2, 2, 3, 8)
    mask = np.zeros((2, 1, 3, 8), np.uint8)
    mask[0, 0, 1, 4:] = 1
    mask[1, 0, 2] = 1
    out = operators.softmax(x, mask=mask)
    assert np.array_equal(out[0, :, 1, :4], operators.softmax(np.ascontiguousarray(x[0, :, 1:2, :4]))[:, 0])
    assert np.all(out[0, :, 1, 4:] == 0) and np.all(out[1, :, 2] == 0)
    assert np.array_equal(out[1, :, 0], operators.softmax(x)[1, :, 0])
    assert np.array_equal(
        operators.softmax(x, mask=mask[:1].astype(bool))[1, :, 1],
        out[0, :, 1] * 0 + operators.softmax(x[1:], mask=mask[:1])[0, :, 1],
    )


def test_optimizers_update_in_place():
    grad, param, m, v = (drawn(50 + i, 7, 11) for i in range(4))
    v = np.abs(v)
    own = param.copy(), m.copy(), v.copy()
    operators.adam_update(grad, *own, lr=0.01, weight_decay=0.1, step=3)
    wide = [np.float64(one) for one in (grad, param, m, v)]
    new_m = 0.9 * wide[2] + 0.1 * wide[0]
    new_v = 0.999 * wide[3] + 0.001 * wide[0] ** 2
    update = new_m / (1 - 0.9**3) / (np.sqrt(new_v / (1 - 0.999**3)) + 1e-8) + 0.1 * wide[1]
    # beta1 = 0.9 has a rounding, 1 - beta1 of it is 9 of them off; c2 = 1 - 0.999^3 is 1000 of them off, c1 11, its power
    # 3; the rest are at most 12.
    assert np.all(
        np.abs(own[0] - (wide[1] - 0.01 * update))
        <= U * (np.abs(param) + 0.01 * 1040 * (np.abs(wide[2]) + np.abs(grad)) * 40)
    )
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(one.copy()) for one in (param, m, v)]
    operators.adam_update(torch.from_numpy(grad), *tensors, lr=0.01, weight_decay=0.1, step=3)
    assert all(np.array_equal(tensor.numpy(), one) for tensor, one in zip(tensors, own))
    operators.sgd_update(grad, own[0], own[1], lr=0.5, momentum=0.5, first_run=True)
    assert np.array_equal(own[1], grad)


def test_adam_with_parameters_of_fp8_and_of_two_words():
    grad, master, m, v = (drawn(60 + i, 50) for i in range(4))
    v = np.abs(v)
    options = {"lr": 0.01, "step": 2, "mode": "l2", "weight_decay": 0.5}
    plain = master.copy(), m.copy(), v.copy()
    operators.adam_update(grad, *plain, **options)
    codes, own = np.zeros(50, np.uint8), (m.copy(), v.copy(), master.copy())
    amax, scale_inv = operators.adam_update_fp8(grad, codes, *own, scale=8.0, **options)
    import fp8lab

    assert np.array_equal(own[2], plain[0]) and amax == np.abs(plain[0]).max() and scale_inv == 0.125
    assert np.array_equal(codes, fp8lab.encode(plain[0] * np.float32(8), "e4m3"))
    words = master.view(np.uint32)
    remainder = (words & 0xFFFF).astype(np.uint16).view(np.int16)
    high = ((words + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16).view(ml_dtypes.bfloat16)
    operators.adam_update_remainder(grad, high, m.copy(), v.copy(), remainder, **options)
    bits = plain[0].view(np.uint32)
    assert np.array_equal(remainder.view(np.uint16), (bits & 0xFFFF).astype(np.uint16))
    assert np.array_equal(high.view(np.uint16), ((bits + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16))


def test_adam_unscales_gradients_where_they_lie():
    grad, param, m, v = (drawn(65 + i, 50) for i in range(4))
    v = np.abs(v)
    low = grad.astype(ml_dtypes.bfloat16)
    scaled = low.astype(np.float32) * np.float32(0.3)
    plain, own = (param.copy(), m.copy(), v.copy()), (param.copy(), m.copy(), v.copy())
    operators.adam_update(scaled, *plain, lr=0.01, step=2)
    operators.adam_update(low, *own, inverse_scale=0.3, lr=0.01, step=2)
    assert all(np.array_equal(one, other) for one, other in zip(own, plain))
    assert np.array_equal(low, scaled.astype(ml_dtypes.bfloat16))
    with pytest.raises(ValueError, match="grad and param must lie apart"):
        operators.adam_update(param, param, m, v, inverse_scale=0.3, lr=0.01, step=2)
    with pytest.raises(ValueError, match="grad must be C-contiguous"):
        operators.adam_update(grad[::2], param[:25], m[:25], v[:25], inverse_scale=0.3, lr=0.01, step=2)


def test_a_tensor_whose_memory_is_elsewhere_is_not_updated_in_a_copy():
    torch = pytest.importorskip("torch")

    class OfDevice(torch.Tensor):
        def cpu(self):
            return self.as_subclass(torch.Tensor).clone()

    given = [torch.ones(4).as_subclass(OfDevice) if i == 1 else torch.ones(4) for i in range(4)]
    with pytest.raises(ValueError, match="param must be a tensor on the CPU: it is updated in place"):
        operators.adam_update(*given, lr=0.1, step=1)
    given[1] = torch.ones(4)
    operators.adam_update(*given, lr=0.1, step=1)
    assert (given[1] < 1).all()


def test_scales_and_norms_of_tensors():
    x = drawn(70, 3, 5)
    x[0, 0] = 1e-39
    out, finite = operators.scale_tensor(x, 0.5)
    assert finite and out[0, 0] == 0 and np.array_equal(out[1:], x[1:] * np.float32(0.5))
    x[1, 1] = np.inf
    assert not operators.scale_tensor(x, 0.5)[1]
    total, each = operators.l2norm([np.float32([3, 4]), np.float16([[12]])])
    assert (total, each) == (13.0, [5.0, 12.0])
    assert operators.scale_of_amax(7.0, "e4m3") == (64.0, 1 / 64)
    assert operators.scale_of_amax(2.0, "e5m2", power_of_two=True) == (16384.0, 2.0**-14)


def test_scales_of_a_sharded_nvfp4_weight_are_rounded_where_the_kernels_round():
    largest = float(np.finfo(np.float32).max)
    ends = {0.0: 1.0, -1.0: 1.0, float("nan"): 1.0, float("inf"): 0.0, 2.0**-140: largest, 2688.0: 1.0, 3.0: 896.0}
    for amax, scale in ends.items():
        assert operators.nvfp4_global_scale(amax) == scale
    amaxes = np.abs(drawn(71, 40, 5))
    global_amax = float(amaxes.max())
    # Quotients and products of two float32 numbers in float64, rounded once more, are those rounded once.
    factor = np.float32(np.float64(np.float32(2688 / global_amax)) * np.float64(np.float32(1 / 6)))
    expected = np.float32(np.float64(amaxes) * np.float64(factor))
    assert np.array_equal(operators.nvfp4_tile_scales(amaxes, global_amax), expected)
    odd = operators.nvfp4_tile_scales(np.float32([np.nan, np.inf, 0, 3e38]), 1e-30)
    assert odd.tolist() == [largest, largest, 0.0, largest]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_codes_of_a_shard_of_an_nvfp4_weight(dtype):
    ties = {0.25: 0, 0.75: 2, 1.25: 2, 1.75: 4, 2.5: 4, 3.5: 6, 5.0: 6, 7.0: 7, 0.0: 0, 0.5: 1, 6.0: 7}
    values = np.float32([*ties, *(-x for x in ties)])
    shard = np.resize(values, 40 * 24).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    codes = np.resize(np.uint8([*ties.values(), *(8 + code for code in ties.values())]), 40 * 24)
    ones = np.ones((3, 2), np.float32)
    assert np.array_equal(operators.nvfp4_shard_codes(shard[50:], ones, 1.0, columns=24, start=50), codes[50:])
    twice = [1, 3, 4, 6, 6, 7, 7, 7, 0, 2, 7]
    # A tile's scale is rounded to E4M3, and divides the elements of that tile alone.
    halves = np.where(np.arange(6).reshape(3, 2) == 3, np.float32(0.51), ones)
    made = operators.nvfp4_shard_codes(shard, halves, 1.0, columns=24, threads=2).reshape(40, 24)
    inside = np.zeros((40, 24), bool)
    inside[16:32, 16:24] = True
    assert np.array_equal(made[~inside], codes.reshape(40, 24)[~inside])
    doubled = np.resize(np.uint8([*twice, *(8 + code for code in twice)]), (40, 24))
    assert np.array_equal(made[inside], doubled[inside]) and not np.array_equal(made, codes.reshape(40, 24))
    for bad, words in (
        (
            lambda: operators.nvfp4_shard_codes(shard, ones, 1.0, columns=24, start=193),
            "does not lie in a weight of 48 x 24",
        ),
        (lambda: operators.nvfp4_shard_codes(shard, ones[:, :1], 1.0, columns=24), "scales must have 2 columns"),
        (lambda: operators.nvfp4_shard_codes(shard, ones, 1.0, columns=0), "columns must be from 1"),
        (lambda: operators.nvfp4_shard_codes(shard, ones, 1.0, columns=24, start=-1), "start must be from 0"),
    ):
        with pytest.raises(ValueError, match=words):
            bad()


def test_elementary_functions():
    x = np.float32([[0.5, 1], [2, np.inf]])
    assert np.array_equal(operators.elementary("exp", x), np.exp(np.float64(x)).astype(np.float32))
    assert operators.functions() == ["correctly_rounded", "hopper"]


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda x: operators.activation("gelus", x), ValueError, "gelu"),
        (lambda x: operators.activation("swiglu", x[:, :3]), ValueError, "x must have an even number of columns"),
        (lambda x: operators.activation("gelu", np.float64(x)), TypeError, "x must be float32, float16 or bfloat16"),
        (lambda x: operators.activation("gelu", x[0, 0]), ValueError, "x must have at least one dimension"),
        (lambda x: operators.activation("gelu", x, limit=3), ValueError, "limit goes with"),
        (lambda x: operators.activation("clamped_swiglu", x, limit=-1), ValueError, "limit must be positive"),
        (lambda x: operators.activation("situglu", x, beta1=0), ValueError, "beta1 must be positive and finite, not 0"),
        (lambda x: operators.activation("swiglu", x, beta2=1), ValueError, "beta2 goes with the name 'situglu'"),
        (lambda x: operators.activation("gelu", x, out_dtype="float64"), ValueError, "out_dtype"),
        (lambda x: operators.activation("gelu", x, functions="fast"), ValueError, "functions"),
        (lambda x: operators.activation_backward("gelu", x[1:], x), ValueError, "grad must have shape"),
        (lambda x: operators.scaled_activation("gelu", x, x[:, 0]), ValueError, "srelu, swiglu, clamped_swiglu"),
        (lambda x: operators.scaled_activation("srelu", x, x[:1, 0]), ValueError, "scales must have one element"),
        (lambda x: operators.scaled_activation("swiglu", x, x[:, 0], interleave=2), ValueError, "interleave must be"),
        (lambda x: operators.layernorm(x, x[0], x[0, :3]), ValueError, "beta must have shape"),
        (lambda x: operators.rmsnorm(x, x[0], eps=-1), ValueError, "eps must not be negative"),
        (lambda x: operators.layernorm_backward(x, x, x[:1, 0], x[:, 0], x[0]), ValueError, "mean must have one"),
        (lambda x: operators.softmax(x, causal="upper_triangular"), ValueError, "as many queries as keys"),
        (lambda x: operators.softmax(x, mask=np.zeros((3, 4), np.uint8)), ValueError, "mask needs x of shape"),
        (lambda x: operators.sgd_update(x, x, x, lr=1), ValueError, "param and momentum_buffer must lie apart"),
        (lambda x: operators.adam_update(x, x[:, :2], x, x, lr=1, step=1), ValueError, "param must have shape"),
        (lambda x: operators.adam_update(x, x.T.copy().T, x, x, lr=1, step=1), ValueError, "updated in place"),
    ],
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call(drawn(80, 3, 4))


def turned(x, angles, interleaved):
    """float64: x cos + x' sin."""
    n = angles.shape[-1]
    other = np.empty_like(x[..., :n])
    if interleaved:
        other[..., ::2], other[..., 1::2] = -x[..., 1:n:2], x[..., :n:2]
    else:
        other[..., : n // 2], other[..., n // 2 :] = -x[..., n // 2 : n], x[..., : n // 2]
    return np.concatenate([x[..., :n] * np.cos(angles) + other * np.sin(angles), x[..., n:]], axis=-1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_turns_pairs(interleaved):
    x, freqs = drawn(90, 5, 2, 3, 20), 50 * np.abs(drawn(91, 8, 16))
    angles = np.float64(freqs)[:5, None, None]
    exact = turned(np.float64(x), angles, interleaved)
    out = operators.rope(x, freqs, interleaved=interleaved, threads=2)
    # cos and sin have a rounding each, the products one, and the sum one.
    assert np.all(np.abs(out - exact) <= 1.001 * U * 4 * 2 * np.abs(x).max())
    assert np.array_equal(out[..., 16:], x[..., 16:])
    swapped = np.ascontiguousarray(x.swapaxes(0, 1))
    other = operators.rope(swapped, freqs.reshape(8, 1, 1, 16), tensor_format="bshd", interleaved=interleaved)
    assert np.array_equal(other.swapaxes(0, 1), out)
    # The gradient is the adjoint: <grad, R x> = <R^T grad, x>, both with at most 4 roundings of a term.
    grad = drawn(92, 5, 2, 3, 20)
    dx = operators.rope_backward(grad, freqs, interleaved=interleaved)
    of_terms = 1.001 * U * 16 * np.abs(grad).sum() * np.abs(x).max()
    assert abs((np.float64(grad) * exact).sum() - (np.float64(dx) * x).sum()) <= of_terms


def test_rope_of_packed_sequences_and_of_chunks():
    x, freqs = drawn(93, 8, 2, 16), drawn(94, 12, 16)
    out = operators.rope(x, freqs, tensor_format="thd", cu_seqlens=[0, 3, 8], start_positions=[0, 4])
    assert np.array_equal(out[:3], operators.rope(x[:3, None], freqs)[:, 0])
    assert np.array_equal(out[3:], operators.rope(x[3:, None], freqs[4:])[:, 0])
    whole = operators.rope(x[:, None], freqs)
    for rank in (0, 1):  # of 4 chunks of 2 tokens, rank 0 has the outer ones
        tokens = [0, 1, 6, 7] if rank == 0 else [2, 3, 4, 5]
        part = operators.rope(x[tokens][:, None], freqs, cp_size=2, cp_rank=rank)
        assert np.array_equal(part, whole[tokens])
    for bad in ([0, 9], [1, 8], [0, 5, 3, 8]):
        with pytest.raises(ValueError, match="cu_seqlens"):
            operators.rope(x, freqs, tensor_format="thd", cu_seqlens=bad)
    of_bfloat16 = np.array([0, 8], ml_dtypes.bfloat16)  # whose words are no integers
    with pytest.raises(TypeError, match="cu_seqlens must hold integers, not bfloat16"):
        operators.rope(x, freqs, tensor_format="thd", cu_seqlens=of_bfloat16)
    with pytest.raises(ValueError, match="freqs has 12 positions, and a token of x or grad has position 12"):
        operators.rope(x, freqs, tensor_format="thd", cu_seqlens=[0, 8], start_positions=[5])


def test_rope_of_query_and_key_beside_the_value():
    qkv, freqs = drawn(95, 4, 2, 3, 32), (drawn(96, 6, 8), 3 * drawn(97, 6, 8))
    widths, starts = [16, 8, 8], [2, 0]
    query, key, value = operators.rope_qkv(qkv, widths, *freqs, start_positions=starts, threads=2)
    parts = [np.ascontiguousarray(one) for one in np.split(qkv, [16, 24], axis=-1)]
    assert np.array_equal(query, operators.rope(parts[0].reshape(4, 2, 6, 8), freqs[0], start_positions=starts))
    assert np.array_equal(key, operators.rope(parts[1], freqs[1], start_positions=starts))
    assert np.array_equal(value, parts[2])
    swapped = operators.rope_qkv(
        qkv.swapaxes(0, 1), widths, *freqs, tensor_format="bshd", start_positions=starts, out_dtype="float16"
    )
    assert np.array_equal(swapped[0].swapaxes(0, 1), query.astype(np.float16))
    dqkv = operators.rope_qkv_backward((query, key, value), widths, *freqs)
    of_query = operators.rope_backward(query, freqs[0]).reshape(4, 2, 3, 16)
    assert np.array_equal(dqkv, np.concatenate([of_query, operators.rope_backward(key, freqs[1]), value], axis=-1))
    for bad, words in (
        (lambda: operators.rope_qkv(qkv, [16, 8], *freqs), "widths must have three entries"),
        (lambda: operators.rope_qkv(qkv, [12, 12, 8], *freqs), "widths must be multiples"),
        (lambda: operators.rope_qkv(qkv, [8, 8, 8], *freqs), "qkv must have four dimensions, and 24 columns"),
        (lambda: operators.rope_qkv(qkv, widths, freqs[0], freqs[1][:, :4]), "as many columns, not 8 and 4"),
        (lambda: operators.rope_qkv(qkv, widths, *freqs, tensor_format="thd"), "tensor_format"),
        (lambda: operators.rope_qkv_backward((query, key, key[1:]), widths, *freqs), "grads must have the types"),
    ):
        with pytest.raises(ValueError, match=words):
            bad()


def philox(counter, key):
    """Philox4x32-10, in Python's integers."""
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ key[0], second % 2**32, first >> 32 ^ counter[3] ^ key[1], first % 2**32]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_dropout_keeps_what_the_generators_bytes_say(dtype):
    x = drawn(120, 3, 32).astype(dtype)
    out, mask = operators.dropout(x, 0.3, seed=2**32 + 5, offset=8, threads=2)
    kept = np.unpackbits(mask, bitorder="little").astype(bool)
    for chunk in range(6):
        words = np.array(philox([2, 0, chunk, 0], [5, 1]), np.uint32).view(np.uint8).reshape(4, 4)
        # Bytes 0 and 1 of a word are for the odd elements, 2 and 3 for those before them; 8 elements lie between.
        drawn_bytes = np.stack([words[:, 2:], words[:, :2]], axis=-1).transpose(1, 0, 2).ravel()
        assert np.array_equal(kept[16 * chunk :][:16], drawn_bytes >= int(0.3 * 256))
    scale = 1 / (1 - np.float32(0.3))
    assert np.array_equal(out, np.where(kept.reshape(3, 32), x.astype(np.float32) * scale, 0).astype(dtype))
    assert np.array_equal(operators.dropout_backward(x, mask, 0.3), out)
    assert operators.dropout(x[:0], 0.3, seed=0)[1].shape == (0,)
    for bad, error, words in (
        (lambda: operators.dropout(x, 1, seed=0), ValueError, "probability must be from 0 to below 1, not 1"),
        (lambda: operators.dropout(x[:, :5], 0.5, seed=0), ValueError, "x must have a multiple of 16 elements, not 15"),
        (lambda: operators.dropout(x, 0.5, seed=0, offset=2), ValueError, "offset must be a multiple of 4, not 2"),
        (lambda: operators.dropout_backward(x, mask[1:], 0.5), ValueError, "mask must have 12 bytes"),
        (lambda: operators.dropout_backward(x, kept, 0.5), TypeError, "mask must be uint8, not bool"),
    ):
        with pytest.raises(error, match=words):
            bad()


def test_exactness_is_told_of_every_function_that_computes():
    told = {row.function for row in operators.exactness()}
    silent = {
        "activations", "cast_transpose_thread_rows", "elementary", "exactness", "functions", "has_one_shape_sums",
    }  # fmt: skip
    functions = {name for name in operators.__all__ if name[0].islower() and not name.endswith("_bounds")}
    assert functions - silent == told


def test_cross_entropy_is_that_of_torch():
    torch = pytest.importorskip("torch")
    x = 3 * drawn(100, 20, 50)
    targets = (splitmix(101, 20) % np.uint64(50)).astype(np.int64)
    targets[3] = -100
    tensor = torch.from_numpy(np.float64(x)).requires_grad_()
    for smoothing in (0.0, 0.2):
        exact = torch.nn.functional.cross_entropy(
            tensor, torch.from_numpy(targets), reduction="none", label_smoothing=smoothing
        )
        loss, largest, total = operators.cross_entropy(x, targets, label_smoothing=smoothing, threads=2)
        # The difference of the target, up to 25, and the logarithm, up to 4, have 3 roundings of up to 30; the sum has 9
        # roundings and exponentials of differences that have one; with smoothing a mean of x and two more sums.
        bound = 1.01 * U * (3 * 30 + 9 + 25 + (60 if smoothing else 0))
        assert np.all(np.abs(loss - exact.detach().numpy()) <= bound)
        (wanted,) = torch.autograd.grad(exact.sum(), tensor)
        dx = operators.cross_entropy_backward(
            np.ones(20, np.float32), x, targets, largest, total, label_smoothing=smoothing
        )
        assert np.all(np.abs(dx - wanted.numpy()) <= 1.01 * U * (25 + 15))
        assert np.all(dx[3] == 0) and loss[3] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_rows_go_to_experts_and_back(dtype):
    x = drawn(110, 6, 24).astype(dtype)
    experts = np.array([[0, 2], [1, 2], [2, 0], [0, 1], [1, 0], [2, 1]])
    rows = operators.moe_permutation_map(experts)
    order = np.argsort(experts.ravel(), kind="stable")
    permuted = operators.moe_permute(x, rows, threads=2)
    assert permuted.dtype == x.dtype and np.array_equal(permuted.view(np.uint8), x[order // 2].view(np.uint8))
    if dtype == ml_dtypes.float8_e4m3fn:
        return
    weights = np.abs(drawn(111, 6, 2))
    out = operators.moe_unpermute(permuted, rows, weights)
    typed = weights.astype(dtype).astype(np.float64)
    exact = typed.sum(axis=1, keepdims=True) * x.astype(np.float64)
    unit = {np.float32: 2.0**-24, np.float16: 2.0**-11}.get(dtype, 2.0**-8)
    magnitude = np.abs(typed).sum(axis=1, keepdims=True) * np.abs(x.astype(np.float64))
    assert np.all(np.abs(out.astype(np.float64) - exact) <= unit * 2 * magnitude + 2.0**-25)  # float16 has subnormals
    grad = drawn(112, 6, 24).astype(dtype)
    dx, of_weights = operators.moe_unpermute_backward(grad, permuted, rows, weights)
    assert np.array_equal(
        dx[rows[0]], (grad.astype(np.float32) * weights[:, :1].astype(dtype).astype(np.float32)).astype(dtype)
    )
    products = grad.astype(np.float64) * x.astype(np.float64)
    assert np.all(
        np.abs(of_weights - products.sum(axis=1, keepdims=True)) <= unit * 9 * np.abs(products).sum(axis=1)[:, None]
    )
    dropped = operators.moe_permutation_map(experts, kept=3)
    assert operators.moe_permute(x, dropped).shape == (3, 24) and (dropped >= 0).sum() == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.uint8])
@pytest.mark.parametrize("padded", [False, True])
def test_rows_go_to_the_experts_of_a_mask_and_back(dtype, padded):
    """Small whole numbers and probabilities of two bits: every product and sum is exact in each of the types."""
    tokens, experts, columns = 30, 5, 7
    words = splitmix(120, tokens * (experts + 2 * columns)).astype(np.int64)
    mask = (words[: tokens * experts].reshape(tokens, experts) % 3 == 0).astype(bool)
    mask[0] = False
    x = (words[-tokens * columns :].reshape(tokens, columns) % 8).astype(dtype)
    weights = np.where(mask, (words[: tokens * experts].reshape(tokens, experts) >> 7) % 4 / 4, 0.5).astype(np.float32)
    counts = mask.sum(axis=0)
    pads = (-counts) % 8
    offsets = np.cumsum(pads) - pads
    rows = int(counts.sum() + pads.sum()) if padded else int(counts.sum())
    order = [(expert, token) for expert in range(experts) for token in range(tokens) if mask[token, expert]]
    places = {one: row + (int(offsets[one[0]]) if padded else 0) for row, one in enumerate(order)}
    given = {"pad_offsets": offsets if padded else None}
    assert (weights[mask] == 0).any() and (not padded or rows > len(order))

    table = operators.moe_mask_map(mask)
    assert np.array_equal(table, operators.moe_mask_map(mask.astype(np.int64)))
    assert table[:, -1].tolist() == mask.sum(axis=1).tolist() and table.dtype == np.int32
    for token in range(tokens):
        own = [(row, expert) for row, (expert, of) in reversed(list(enumerate(order))) if of == token]
        assert table[token, : len(own)].tolist() == [row for row, _ in own]
        assert table[token, experts : experts + len(own)].tolist() == [expert for _, expert in own]

    plain, weighted = np.zeros((rows, columns), x.dtype), np.zeros((rows, columns), x.dtype)
    moved = np.zeros(rows, np.float32)
    for (expert, token), row in places.items():
        plain[row] = x[token]
        weighted[row] = x[token] if weights[token, expert] != 0 else 0
        moved[row] = weights[token, expert]
    permuted = operators.moe_mask_permute(x, table, rows=rows, threads=2, **given)
    assert permuted.dtype == x.dtype and np.array_equal(permuted, plain)
    assert np.array_equal(operators.moe_mask_permute(x, table, rows=rows, probabilities=weights, **given), weighted)
    found = operators.moe_mask_permute_probabilities(weights, table, rows=rows, **given)
    assert found.dtype == np.float32 and np.array_equal(found, moved)
    back = operators.moe_mask_unpermute_probabilities(moved, table, **given)
    assert np.array_equal(back, np.where(mask, weights, 0))
    if dtype == np.uint8:
        with pytest.raises(TypeError, match="x must be float32, float16 or bfloat16, not uint8"):
            operators.moe_mask_unpermute(permuted, table)
        return
    wide = x.astype(np.float64)
    for probabilities, factor in ((None, mask), (weights, mask * weights), (weights.astype(dtype), mask * weights)):
        out = operators.moe_mask_unpermute(permuted, table, probabilities, threads=2, **given)
        assert out.dtype == x.dtype and np.array_equal(out, (factor.sum(axis=1, keepdims=True) * wide).astype(dtype))
    grad = (words[tokens * experts : -tokens * columns].reshape(tokens, columns) % 4).astype(dtype)
    dx, of_weights = operators.moe_mask_unpermute_backward(grad, permuted, table, weights, threads=2, **given)
    assert dx.dtype == x.dtype and of_weights.dtype == np.float32
    wanted = np.zeros((rows, columns))
    for (expert, token), row in places.items():
        wanted[row] = grad[token].astype(np.float64) * weights[token, expert]
    assert np.array_equal(dx, wanted.astype(dtype))
    assert np.array_equal(of_weights, mask * (grad.astype(np.float64) * wide).sum(axis=1, keepdims=True))
    typed = operators.moe_mask_unpermute_backward(grad, permuted, table, weights.astype(dtype), **given)
    assert typed[1].dtype == dtype and np.array_equal(typed[1], of_weights.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, "bfloat16"])
def test_biases_of_groups_have_sums_of_their_rows(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    draw = np.random.default_rng(7)
    grad, bias = (draw.integers(-4, 5, shape).astype(dtype) for shape in ((70, 33), (3, 33)))
    scales = draw.choice([-2, 0.5, 1], 70).astype(np.float32)
    offsets = [2, 40, 40, 69]
    rows = [slice(*pair) for pair in zip(offsets, offsets[1:])]
    wide = grad.astype(np.float64)
    dbias = operators.group_bias_gradient(grad, offsets, threads=2)
    assert dbias.dtype == np.float32 and np.array_equal(dbias, [wide[one].sum(axis=0) for one in rows])
    more = operators.group_bias_gradient(grad, np.array(offsets, np.uint16), dbias=dbias)
    assert np.array_equal(more, 2 * dbias) and np.array_equal(dbias, [wide[one].sum(axis=0) for one in rows])
    given = np.full(70, 3, np.float32)
    scaled, of_scales = operators.scaled_group_bias_gradient(grad, scales, bias, offsets, dbias=dbias, dscales=given)
    weighted = wide * scales[:, None]
    assert np.array_equal(scaled, [weighted[one].sum(axis=0) + wide[one].sum(axis=0) for one in rows])
    expected = np.zeros(70)
    for one, row in zip(rows, bias.astype(np.float64)):
        expected[one] = wide[one] @ row
    assert np.array_equal(of_scales, expected + 3) and (given == 3).all()
    added = np.zeros((70, 33))
    for one, row in zip(rows, bias.astype(np.float64)):
        added[one] = row
    made = operators.add_group_bias(grad, bias, offsets, threads=2)
    assert made.dtype == dtype and np.array_equal(made, (wide + added).astype(dtype))
    place = grad.copy()
    assert operators.add_group_bias(place, bias, offsets, scales=scales, out=place) is place
    assert np.array_equal(place, (wide + added * scales[:, None]).astype(dtype))


def test_what_groups_of_rows_must_be():
    grad, scales = np.ones((4, 3), np.float32), np.ones(4, np.float32)
    with pytest.raises(ValueError, match=r"offsets must have shape \(groups \+ 1,\)"):
        operators.group_bias_gradient(grad, [0])
    with pytest.raises(ValueError, match="offsets must ascend from 0 or more to at most the 4 rows of grad"):
        operators.group_bias_gradient(grad, [0, 3, 2])
    with pytest.raises(ValueError, match=r"dbias must have shape \(1, 3\), not \(3,\)"):
        operators.group_bias_gradient(grad, [0, 4], dbias=np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="offsets must hold integers"):
        operators.group_bias_gradient(grad, [0.0, 4.0])
    with pytest.raises(ValueError, match=r"bias must have shape \(1, 3\), as groups of offsets and columns of grad"):
        operators.scaled_group_bias_gradient(grad, scales, grad, [0, 4])
    with pytest.raises(ValueError, match=r"scales must have shape \(4,\), not \(3,\)"):
        operators.scaled_group_bias_gradient(grad, scales[:3], grad[:1], [0, 4])


def test_a_mask_may_name_nobody():
    for tokens in (0, 3):
        x = np.ones((tokens, 4), np.float32)
        table = operators.moe_mask_map(np.zeros((tokens, 2), np.int32))
        assert table.shape == (tokens, 5) and not table.any()
        nobodys = operators.moe_mask_permute(x, table, rows=0)
        assert nobodys.shape == (0, 4) and operators.moe_mask_permute(x, table, rows=2).tolist() == [[0] * 4] * 2
        out = operators.moe_mask_unpermute(nobodys, table, np.ones((tokens, 2), np.float32))
        assert out.shape == (tokens, 4) and not out.any()
        dx, of_weights = operators.moe_mask_unpermute_backward(x, nobodys, table, np.ones((tokens, 2), np.float32))
        assert dx.shape == (0, 4) and of_weights.shape == (tokens, 2) and not of_weights.any()


def test_what_a_mask_and_its_map_must_be():
    x, table = np.ones((2, 4), np.float32), operators.moe_mask_map(np.eye(2, dtype=np.int32))
    with pytest.raises(ValueError, match="mask must be of 0 and 1"):
        operators.moe_mask_map(np.full((2, 2), 2))
    with pytest.raises(ValueError, match=r"map must have shape \(2 tokens, 2 experts \+ 1\), not \(2, 4\)"):
        operators.moe_mask_permute(x, table[:, :4], rows=2)
    with pytest.raises(ValueError, match="map has row 1, and out has 1 rows"):
        operators.moe_mask_permute(x, table, rows=1)
    with pytest.raises(ValueError, match=r"pad_offsets must have shape \(2,\)"):
        operators.moe_mask_permute(x, table, rows=2, pad_offsets=[0])
    with pytest.raises(ValueError, match=r"probabilities must have shape \(2, 2\), tokens and experts of map"):
        operators.moe_mask_unpermute(x, table, np.ones((2, 3), np.float32))
    table[1, 0] = 0
    with pytest.raises(ValueError, match="map has row 0 twice"):
        operators.moe_mask_unpermute(x, table)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.uint8])
def test_chunks_are_sorted_and_back(dtype):
    counts, order = [3, 0, 4, 1], [2, 0, 3, 1]
    x = np.arange(40).reshape(10, 4).astype(dtype)  # two rows are behind all chunks
    table = operators.moe_chunk_map(counts, order, tokens=10)
    parts = np.split(np.arange(10), np.cumsum(counts))
    wanted = np.concatenate([*[parts[one] for one in order], parts[-1]])
    out = operators.moe_sort_chunks(x, table, threads=2)
    assert out.dtype == x.dtype and np.array_equal(out, x[wanted])
    assert np.array_equal(operators.moe_sort_chunks(out, table, back=True), x)
    assert len(operators.moe_chunk_map(counts, order)) == 8 and operators.moe_chunk_map(
        np.empty(0, int), np.empty(0, int)
    ).shape == (0,)
    with pytest.raises(ValueError, match="tokens must be at least 8, the sum of counts, not 7"):
        operators.moe_chunk_map(counts, order, tokens=7)
    with pytest.raises(ValueError, match="order must have each of 4 chunks once"):
        operators.moe_chunk_map(counts, [0, 0, 1, 2])


def test_groups_of_rows_are_padded():
    for x in (
        drawn(113, 7, 3),
        drawn(113, 7, 3).astype(ml_dtypes.bfloat16),
        np.arange(21, dtype=np.uint8).reshape(7, 3),
    ):
        padded = operators.pad_rows(x, [3, 0, 4], 4)
        assert padded.dtype == x.dtype and padded.shape == (8, 3)
        assert np.array_equal(padded[:3], x[:3]) and np.all(padded[3] == 0) and np.array_equal(padded[4:], x[3:])
        assert np.array_equal(operators.unpad_rows(padded, [3, 0, 4], 4), x)
    with pytest.raises(ValueError, match="x must have 7 rows"):
        operators.pad_rows(np.zeros((6, 3), np.float32), [3, 4], 4)
