# SPDX-License-Identifier: Apache-2.0
"""fp8lab.torch: gradients of torch networks are those of the layers that C++ computes, bit for bit."""

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
import fp8lab.torch  # noqa: E402

RECIPES = [one.name for one in fp8lab.linear_recipes() if not one.name.startswith(("te_nvfp4", "deepseek"))]


def tensor(rows, columns, seed, size=1.0, dtype=torch.float32):
    values = np.random.default_rng(seed).normal(0, size, (rows, columns)).astype(np.float32)
    return torch.from_numpy(values).to(dtype)


def bits(x):
    if isinstance(x, torch.Tensor):
        x = x.detach().view(torch.int16 if x.dtype == torch.bfloat16 else x.dtype).numpy()
    return x.tobytes()


def leaf(x):
    return x.clone().requires_grad_()


@pytest.mark.parametrize("recipe", RECIPES)
def test_gradients_of_a_network_are_those_of_its_passes(recipe):
    x, w1, w2 = leaf(tensor(64, 128, 1)), leaf(tensor(128, 128, 2, 0.1)), leaf(tensor(64, 128, 3, 0.1))
    b1, b2 = leaf(tensor(1, 128, 4)[0]), leaf(tensor(1, 64, 5)[0])
    hidden = fp8lab.torch.linear(x, w1, b1, recipe=recipe)
    hidden.retain_grad()
    active = torch.relu(hidden)
    y = fp8lab.torch.linear(active, w2, b2, recipe=recipe)
    dy = tensor(64, 64, 6, 1e-2).to(y.dtype)
    y.backward(dy)
    # The same by the functions for arrays.
    first = fp8lab.linear(x.detach(), w1.detach(), b1.detach(), recipe=recipe)
    assert bits(hidden) == bits(first)
    rectified = torch.relu(hidden.detach())
    assert bits(y) == bits(fp8lab.linear(rectified, w2.detach(), b2.detach(), recipe=recipe))
    assert bits(w2.grad) == bits(fp8lab.linear_wgrad(dy, rectified, recipe=recipe))
    assert bits(b2.grad) == bits(fp8lab.linear_bias_gradient(dy))
    gradient = torch.from_numpy(fp8lab.linear_dgrad(dy, w2.detach(), recipe=recipe).astype(np.float32)).to(y.dtype)
    gradient = torch.where(hidden.detach() > 0, gradient, 0)
    assert bits(hidden.grad) == bits(gradient)
    assert bits(w1.grad) == bits(fp8lab.linear_wgrad(gradient, x.detach(), recipe=recipe))
    assert bits(x.grad) == bits(fp8lab.linear_dgrad(gradient, w1.detach(), recipe=recipe).astype(np.float32))


def test_the_gradient_is_the_straight_through_one():
    # Casts count as the identity: dx is q(dy) @ q(w), where q is the cast. Sums of small numbers on E4M3's grid are
    # exact.
    cast = fp8lab.GivenScale()
    gemm = fp8lab.LinearGemm("exact", cast, cast)
    recipe = fp8lab.LinearRecipe(gemm, gemm, gemm)
    x, w = leaf(tensor(32, 48, 1)), leaf(tensor(16, 48, 2))
    dy = tensor(32, 16, 3)
    y = fp8lab.torch.linear(x, w, recipe=recipe)
    y.backward(dy)
    q = {
        name: torch.from_numpy(fp8lab.cast_to_representable(one.detach(), "e4m3")).double()
        for name, one in (("x", x), ("w", w), ("dy", dy))
    }
    assert torch.equal(y.detach().double(), q["x"] @ q["w"].T)
    assert torch.equal(x.grad.double(), q["dy"] @ q["w"])
    assert torch.equal(w.grad.double(), q["dy"].T @ q["x"])


def test_tensors_are_read_and_written_in_place():
    from fp8lab._arrays import as_floats

    for dtype, words in ((torch.float32, torch.float32), (torch.bfloat16, torch.int16)):
        x = tensor(32, 64, 1, dtype=dtype)
        assert np.shares_memory(as_floats(x, "x")[0], x.view(words).numpy())
    state = fp8lab.Fp8State()
    call = state.forward(0, x, tensor(32, 64, 2))
    result = fp8lab.torch._linear.as_tensor(call.y)
    assert result.data_ptr() == call.y.ctypes.data


def test_leading_dimensions_and_strides_change_nothing():
    x, w = tensor(64, 128, 1), tensor(32, 128, 2)
    expected = fp8lab.torch.linear(x, w, recipe="te_mxfp8_blackwell")
    assert torch.equal(
        fp8lab.torch.linear(x.view(2, 32, 128), w, recipe="te_mxfp8_blackwell"), expected.view(2, 32, 32)
    )
    strided = torch.empty(64, 256)[:, ::2].copy_(x)
    assert torch.equal(fp8lab.torch.linear(strided, w.T.contiguous().T, recipe="te_mxfp8_blackwell"), expected)


def test_a_module_trains_and_its_state_moves():
    torch.manual_seed(3)
    state = fp8lab.Fp8State(layers=2)
    layers = [
        fp8lab.torch.Linear(
            64, 64, recipe="te_delayed_hopper", state=state, layer=i, delayed=fp8lab.Delayed(amax_history_len=4)
        )
        for i in range(2)
    ]
    assert abs(layers[0].weight.std().item() - 0.023) < 0.001 and "in_features=64" in repr(layers[0])
    optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=4.0)
    x, wanted = tensor(64, 64, 1), tensor(64, 64, 2)
    losses = []
    for _ in range(30):
        with state.autocast("te_delayed_hopper", delayed=fp8lab.Delayed(amax_history_len=4)):
            y = layers[1](torch.relu(layers[0](x)))
        loss = ((y.float() - wanted) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert (
        float(state.arrays()["1.dy.scale"]) > 1
        and float(state.arrays()["0.x.scale"]) == np.float32(448) / x.abs().max().numpy()
    )
    with torch.no_grad():
        before = state.arrays()["0.x.scale"]
        layers[0](x * 100)
    assert state.arrays()["0.x.scale"] == before and state.grad_enabled


def test_cached_weights_and_recomputation_go_through():
    x, w = tensor(32, 64, 1), leaf(tensor(32, 64, 2))
    state = fp8lab.Fp8State()
    with state.autocast("te_current_scaling_hopper"):
        first = fp8lab.torch.linear(x, w, state=state, is_first_microbatch=True)
        with torch.no_grad():
            w.mul_(2)
        assert torch.equal(first, fp8lab.torch.linear(x, w, state=state, is_first_microbatch=False))
        assert not torch.equal(first, fp8lab.torch.linear(x, w, state=state))


def test_stochastic_rounding_takes_a_generator():
    x, w = leaf(tensor(32, 64, 1)), leaf(tensor(32, 64, 2))

    def gradient(seed):
        x.grad = None
        generator = torch.Generator().manual_seed(seed)
        fp8lab.torch.linear(x, w, recipe="te_nvfp4_blackwell", generator=generator).float().square().sum().backward()
        return x.grad

    assert torch.equal(gradient(1), gradient(1)) and not torch.equal(gradient(1), gradient(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x, w: fp8lab.torch.linear(x.double(), w, recipe="exact"),
            "x must be float32, float16 or bfloat16, not float64",
        ),
        (lambda x, w: fp8lab.torch.linear(x.to("meta"), w, recipe="exact"), "x must be on the CPU, not on meta"),
        (lambda x, w: fp8lab.torch.linear(x.numpy(), w, recipe="exact"), "x must be a torch tensor"),
        (lambda x, w: fp8lab.torch.linear(x, w), "recipe must be given outside"),
        (lambda x, w: fp8lab.torch.linear(x, w[:, :32], recipe="exact"), "x has 64 columns and w has 32"),
        (lambda x, w: fp8lab.torch.linear(x, w, recipe="exact", state=3), "state must be an Fp8State"),
        (lambda x, w: fp8lab.torch.linear(x, w, recipe="exact", generator=3), "generator must be a torch.Generator"),
        (lambda x, w: fp8lab.torch.Linear(64, 64, recipe="exact", dtype=torch.float64), "dtype must be torch.float32"),
        (lambda x, w: fp8lab.torch.Linear(0, 64, recipe="exact"), "in_features must be"),
    ],
)
def test_wrong_calls_are_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(tensor(32, 64, 1), tensor(32, 64, 2))
