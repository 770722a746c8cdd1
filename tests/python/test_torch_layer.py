# SPDX-License-Identifier: Apache-2.0
"""fp8lab.torch: gradients of torch networks are those of the layers that C++ computes, bit for bit."""

import copy
import gc

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
import fp8lab.torch  # noqa: E402
from torch_models import EXHAUSTIVE  # noqa: E402

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


SHORT = fp8lab.Delayed(amax_history_len=4)


def delayed_pair():
    """Two layers over one state."""
    torch.manual_seed(3)
    state = fp8lab.Fp8State(layers=2)
    return torch.nn.ModuleList(
        fp8lab.torch.Linear(64, 64, recipe="te_delayed_hopper", state=state, layer=i, delayed=SHORT) for i in range(2)
    )


def descend(pair, steps, first=0):
    """Losses of some steps; histories move."""
    losses = []
    for step in range(first, first + steps):
        pair.zero_grad()
        with pair[0].state.autocast("te_delayed_hopper", delayed=SHORT):
            y = pair[1](torch.relu(pair[0](tensor(32, 64, step, 1 + step))))
        loss = y.float().square().mean()
        loss.backward()
        with torch.no_grad():
            for one in pair.parameters():
                one -= one.grad
        losses.append(loss.item())
    return losses


def test_a_checkpoint_has_the_histories(tmp_path):
    pair = delayed_pair()
    descend(pair, 3)
    torch.save(pair.state_dict(), tmp_path / "pair.pt")
    expected = descend(pair, 2, 3)
    stored = torch.load(tmp_path / "pair.pt", weights_only=True)
    other = delayed_pair()
    assert other.load_state_dict(stored).missing_keys == []
    arrays = other[0].state.arrays()
    for layer in range(2):
        for row, name in enumerate(("x", "w", "dy")):
            kept = [arrays[f"{layer}.{name}.{part}"] for part in ("scale", "scale_inv", "amax_history")]
            assert bits(stored[f"{layer}._extra_state"][row]) == np.hstack(kept).astype(np.float32).tobytes()
    assert descend(other, 2, 3) == expected
    assert other.state_dict().keys() == stored.keys()
    # A state that has begun begins anew by what a layer saved before its first step.
    other.load_state_dict(delayed_pair().state_dict())
    assert descend(other, 3) == descend(delayed_pair(), 3)
    # torch refuses weights alone; they give other losses.
    weights = {name: value for name, value in stored.items() if "_extra_state" not in name}
    third = delayed_pair()
    with pytest.raises(RuntimeError, match='Missing key.*"0._extra_state"'):
        third.load_state_dict(weights)
    third.load_state_dict(weights, strict=False)
    assert descend(third, 2, 3) != expected
    for wrong, message in (
        (torch.zeros(2, 6), r"\(3, 2 \+ amax_history_len\)"),
        (torch.zeros(3, 6).double(), "float32"),
        (3, "tensor"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            third[0].set_extra_state(wrong)


def test_two_layers_have_no_history_in_common():
    state = fp8lab.Fp8State(layers=2)
    first = fp8lab.torch.Linear(64, 64, recipe="te_delayed_hopper", state=state)
    with pytest.raises(ValueError, match="layer 0 of the state belongs to another Linear.*layer=1 is free"):
        fp8lab.torch.Linear(64, 64, recipe="te_delayed_hopper", state=state)
    second = fp8lab.torch.Linear(64, 64, recipe="te_delayed_hopper", state=state, layer=1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64))
    with pytest.raises(ValueError, match="layer 0 of the state belongs.*make the Fp8State with more layers"):
        fp8lab.torch.convert(model, "te_delayed_hopper", state=state)
    assert type(model[0]) is torch.nn.Linear
    # One layer called twice is one layer; a copy has a state of its own, and claims its layer there.
    x = tensor(32, 64, 1)
    first(first(x))
    other = copy.deepcopy(torch.nn.ModuleList([first, second]))
    assert other[0].state is other[1].state is not state
    other[0](x)
    with pytest.raises(ValueError, match="layer 0 of the state"):
        fp8lab.torch.Linear(64, 64, recipe="te_delayed_hopper", state=other[0].state)
    shallow = copy.copy(first)
    with pytest.raises(ValueError, match="layer 0 of the state"):
        shallow(x)
    # A layer that is gone leaves its number.
    del first, shallow
    gc.collect()
    done = fp8lab.torch.convert(model, "te_delayed_hopper", state=state)
    done.undo()
    fp8lab.torch.convert(torch.nn.Linear(64, 64), "te_delayed_hopper", state=state)


def test_recomputation_runs_the_layer_that_there_is():
    from torch.utils.checkpoint import checkpoint

    layer = fp8lab.torch.Linear(64, 64, recipe="te_current_scaling_hopper")
    x = leaf(tensor(32, 64, 1))
    expected = torch.autograd.grad(layer(x).float().square().sum(), [x, layer.weight])
    again = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).float().square().sum(), [x, layer.weight])
    assert all(map(torch.equal, expected, again))


@pytest.mark.skipif(not EXHAUSTIVE, reason="imports torch.distributed and the compiler: ./dev test --exhaustive")
def test_several_processes_wrap_the_layer(tmp_path):
    pair, plain = delayed_pair(), delayed_pair()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(pair[0])
        for layer in (wrapped, plain[0]):
            layer(tensor(32, 64, 1)).float().square().mean().backward()
        assert torch.equal(pair[0].weight.grad, plain[0].weight.grad) and pair[0].state == plain[0].state
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.skipif(not EXHAUSTIVE, reason="the compiler's import takes seconds: ./dev test --exhaustive")
def test_a_compiled_layer_breaks_the_graph():
    import torch._dynamo

    pair, other = delayed_pair(), delayed_pair()
    compiled = torch.compile(torch.nn.Sequential(*other), backend="eager")
    x = tensor(32, 64, 1)
    assert torch.equal(compiled(x), pair[1](pair[0](x)))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="by code that torch.compile does not see"):
        torch.compile(torch.nn.Sequential(*other), backend="eager", fullgraph=True)(x)


def test_a_layer_takes_over_a_linear():
    torch.manual_seed(1)
    plain = torch.nn.Linear(64, 32).eval()
    layer = fp8lab.torch.Linear.from_linear(plain, "te_current_scaling_hopper")
    assert layer.weight is plain.weight and layer.bias is plain.bias and not layer.training
    assert repr(layer) == (
        "Linear(in_features=64, out_features=32, bias=True, recipe=te_current_scaling_hopper, layer=0)"
    )
    x = tensor(32, 64, 1)
    expected = fp8lab.linear(x, plain.weight.detach(), plain.bias.detach(), recipe="te_current_scaling_hopper")
    assert bits(layer(x)) == expected.tobytes()
    without = fp8lab.torch.Linear.from_linear(torch.nn.Linear(64, 32, bias=False), "exact")
    assert without.bias is None and "bias=False, recipe=exact" in repr(without)
    # Two layers may share a parameter, as tied weights do; each has a layer of its own.
    state = fp8lab.Fp8State(2)
    tied = [fp8lab.torch.Linear.from_linear(plain, "te_delayed_hopper", state=state, layer=i) for i in range(2)]
    assert tied[0].weight is tied[1].weight


def test_sizes_that_a_system_refuses_are_computed_where_that_is_asked():
    layer = fp8lab.torch.Linear(64, 30, recipe="te_current_scaling_hopper", check_shapes=False)
    x, dy = leaf(tensor(5, 64, 1)), tensor(5, 30, 2).bfloat16()
    y = layer(x)
    y.backward(dy)
    how = {"recipe": "te_current_scaling_hopper", "check_shapes": False}
    w = layer.weight.detach()
    assert bits(y) == fp8lab.linear(x.detach(), w, layer.bias.detach(), **how).tobytes()
    assert bits(layer.weight.grad) == fp8lab.linear_wgrad(dy, x.detach(), **how).astype(np.float32).tobytes()
    assert bits(x.grad) == fp8lab.linear_dgrad(dy, w, **how).astype(np.float32).tobytes()
    with pytest.raises(ValueError, match="tokens.*check_shapes"):
        fp8lab.torch.linear(x, tensor(32, 64, 1), recipe="te_current_scaling_hopper")


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


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
        (
            lambda x, w: fp8lab.torch.Linear(64, 30, recipe="te_delayed_hopper"),
            "the recipe does not take the shape: w: out .rows. must be a multiple of 8, not 30.*check_shapes=False makes the layer",
        ),
        (lambda x, w: fp8lab.torch.Linear(64, 64, recipe="exact", check_shapes=1), "check_shapes must be a bool"),
        (lambda x, w: fp8lab.torch.linear(x, w, recipe="exact", check_shapes=None), "check_shapes must be a bool"),
        (lambda x, w: fp8lab.torch.Linear(64, 64, recipe="exact", threads=-1), "threads must be"),
        (
            lambda x, w: fp8lab.torch.Linear.from_linear(torch.nn.ReLU(), "exact"),
            "linear must be a torch.nn.Linear, not a? ?ReLU",
        ),
        (
            lambda x, w: fp8lab.torch.Linear.from_linear(Doubled(64, 64), "exact"),
            "linear cannot be taken over: .*Doubled has a forward of its own",
        ),
        (
            lambda x, w: fp8lab.torch.Linear.from_linear(torch.nn.Linear(64, 64, device="meta"), "exact"),
            "its weight is on meta",
        ),
        (
            lambda x, w: fp8lab.torch.Linear.from_linear(torch.nn.Linear(64, 64).double(), "exact"),
            "its weight is float64",
        ),
        (
            lambda x, w: fp8lab.torch.Linear.from_linear(torch.nn.Linear(60, 64), "te_mxfp8_blackwell"),
            "must be a multiple of 16, not 60",
        ),
        (
            lambda x, w: fp8lab.torch.Linear.from_linear(torch.nn.Linear(64, 64), "te_mxfp8_hopper"),
            "unknown linear recipe",
        ),
    ],
)
def test_wrong_calls_are_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(tensor(32, 64, 1), tensor(32, 64, 2))
