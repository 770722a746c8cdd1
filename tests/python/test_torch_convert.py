# SPDX-License-Identifier: Apache-2.0
"""fp8lab.torch.convert: a model's linear layers are those of Fp8State, and all else of the model stays as it was."""

import copy

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
import fp8lab.torch  # noqa: E402
import torch_models  # noqa: E402
from torch_models import EXHAUSTIVE, MODELS, optimizer_of, train, words_of  # noqa: E402

DELAYED = fp8lab.Delayed(amax_history_len=4)


def two_layers():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 32, bias=False))


def drawn(rows, columns, seed, size=1.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(0, size, (rows, columns)).astype(np.float32))


def steps_by_hand(model, recipe, delayed, steps):
    """Losses' gradients of two_layers() by Fp8State and arrays alone: a region a forward, backwards in reverse order."""
    first, second = (model[0].weight.detach().clone(), model[2].weight.detach().clone())
    bias = model[0].bias.detach().clone()
    state = fp8lab.Fp8State(2)
    found = []
    for step in range(steps):
        x, dy = drawn(32, 64, step), drawn(32, 32, 50 + step, 1e-3)
        with state.autocast(recipe, delayed=delayed):
            one = state.forward(0, x, first, bias)
            hidden = np.maximum(one.y.astype(np.float32), 0)
            two = state.forward(1, hidden, second)
        grads = state.backward(two, dy.bfloat16())
        dh = np.where(hidden > 0, grads.dx.astype(np.float32), 0)
        # The gradient of the layer's own output is that of its result, whose type torch converted to float32.
        narrow = torch.from_numpy(dh).bfloat16()
        dw = state.backward(one, narrow).dw
        db = fp8lab.linear_bias_gradient(narrow)
        found.append((torch.from_numpy(two.y.astype(np.float32)), *map(torch.from_numpy, (dw, db, grads.dw))))
        first -= 0.5 * found[-1][1]
        bias -= 0.5 * found[-1][2]
        second -= 0.5 * found[-1][3]
    return found, state


@pytest.mark.parametrize("recipe", ["te_delayed_hopper", "te_current_scaling_hopper", "te_mxfp8_blackwell"])
def test_a_model_has_the_bits_of_the_state_called_by_hand(recipe):
    model = two_layers()
    delayed = DELAYED if "delayed" in recipe else None
    expected, state = steps_by_hand(model, recipe, delayed, 3)
    optimizer = optimizer_of(model, 0.5)  # made before
    done = fp8lab.torch.convert(model, recipe, delayed=delayed)
    for step, (y, *grads) in enumerate(expected):
        result = model(drawn(32, 64, step))
        assert result.dtype == torch.float32 and words_of(result) == words_of(y)
        optimizer.zero_grad()
        result.backward(drawn(32, 32, 50 + step, 1e-3))
        for parameter, grad in zip(model.parameters(), grads):
            assert words_of(parameter.grad) == words_of(grad)
        optimizer.step()
    assert done.state == state
    # Another recipe does not have them.
    other, _ = steps_by_hand(two_layers(), "te_current_scaling_hopper_e4m3", None, 2)
    assert words_of(other[1][0]) != words_of(expected[1][0])


def test_all_else_stays_as_it_was():
    model = two_layers()
    seen = []
    model[0].register_forward_hook(lambda module, args, y: seen.append(y.dtype))
    parameters, modules = list(model.parameters()), list(model.modules())
    before = {name: words_of(value) for name, value in model.state_dict().items()}
    x = drawn(32, 64, 1)
    plain = model(x)
    done = fp8lab.torch.convert(model, "te_current_scaling_hopper")
    assert [*map(id, model.parameters())] == [*map(id, parameters)]
    assert [*map(id, model.modules())] == [*map(id, modules)]
    assert {name: words_of(value) for name, value in model.state_dict().items()} == before
    assert isinstance(model[0], torch.nn.Linear) and "layer=1" in repr(model)
    assert not torch.equal(model(x), plain) and len(seen) == 2
    done.undo()
    assert type(model[0]) is torch.nn.Linear and torch.equal(model(x), plain) and "state" not in vars(model[0])
    done.undo()
    fp8lab.torch.convert(model, "exact")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_and_goes_on_from_a_checkpoint(name, tmp_path):
    check_checkpoint(MODELS[name], tmp_path)


@pytest.mark.parametrize("name", ["llama", "gpt2", "vit"])
def test_a_model_of_hugging_face_trains_and_goes_on_from_a_checkpoint(name, tmp_path):
    check_checkpoint(torch_models.hugging_face(name), tmp_path)


def check_checkpoint(make, folder):
    def made():
        torch.manual_seed(7)
        model = make()
        return model, fp8lab.torch.convert(model, "te_delayed_hopper", delayed=DELAYED, threads=2)

    steps = 50 if EXHAUSTIVE else 2
    model, done = made()
    losses = train(model, steps)
    assert all(map(np.isfinite, losses))
    torch.save(model.state_dict(), folder / "model.pt")
    torch.save(done.state_dict(), folder / "fp8.pt")
    expected = train(model, 2, steps)
    other, restored = made()
    other.load_state_dict(torch.load(folder / "model.pt"))
    restored.load_state_dict(torch.load(folder / "fp8.pt", weights_only=True))
    assert train(other, 2, steps) == expected
    assert arrays_of(restored.state) == arrays_of(done.state)
    for one, two in zip(model.parameters(), other.parameters()):
        assert words_of(one) == words_of(two)
    # Without the state, scales begin anew, and bits differ.
    third, _ = made()
    third.load_state_dict(torch.load(folder / "model.pt"))
    assert train(third, 2, steps) != expected


def test_the_state_of_a_conversion_is_that_of_its_layers_by_name():
    model = two_layers()
    done = fp8lab.torch.convert(model, "te_delayed_hopper", delayed=DELAYED)
    assert {name: tuple(one.shape) for name, one in done.state_dict().items()} == {"0": (0,), "2": (0,)}
    model(drawn(32, 64, 1)).square().mean().backward()
    kept, arrays = done.state_dict(), done.state.arrays()
    assert kept["2"].shape == (3, 6) and float(kept["2"][1, 0]) == float(arrays["1.w.scale"])
    other = two_layers()
    again = fp8lab.torch.convert(other, "te_delayed_hopper", delayed=DELAYED)
    for wrong, message in (
        ({"0": kept["0"]}, "lacks '2'"),
        ({**kept, "x": kept["0"]}, "has 'x'"),
        ([1], "mapping"),
        ({**kept, "2": kept["2"][:2]}, "shape"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            again.load_state_dict(wrong)
        assert again.state.arrays() == {}
    again.load_state_dict(kept)
    assert arrays_of(again.state) == arrays_of(done.state)


def arrays_of(state):
    return {name: value.tobytes() for name, value in state.arrays().items()}


def test_conv1d_is_the_linear_layer_of_its_transposed_weight():
    torch.manual_seed(2)
    conv = torch_models.Conv1D(48, 64)
    torch.nn.init.normal_(conv.bias)
    plain = torch.nn.Linear(64, 48)
    plain.load_state_dict({"weight": conv.weight.detach().T.contiguous(), "bias": conv.bias.detach()})
    done = fp8lab.torch.convert(conv, "te_current_scaling_hopper")
    fp8lab.torch.convert(plain, "te_current_scaling_hopper")
    assert str(done[""]) == "(the model): Conv1D 64 -> 48, layer 0" and "in_features=64, out_features=48" in repr(conv)
    x = drawn(32, 64, 3)
    results = [module(x) for module in (conv, plain)]
    assert torch.equal(*results)
    for result in results:
        result.square().sum().backward()
    assert torch.equal(conv.weight.grad, plain.weight.grad.T) and torch.equal(conv.bias.grad, plain.bias.grad)


class OwnForward(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class OwnName(torch.nn.Linear):
    def twice(self):
        return 2 * self.in_features


class Odd(torch.nn.Module):
    """A module of each kind that is not converted."""

    def __init__(self):
        super().__init__()
        self.plain = torch.nn.Linear(64, 64)
        self.named = OwnName(64, 64)
        self.forwards = OwnForward(64, 64)
        self.attention = torch.nn.MultiheadAttention(64, 2)
        self.odd_size = torch.nn.Linear(64, 30)
        self.double = torch.nn.Linear(64, 64, dtype=torch.float64)
        self.away = torch.nn.Linear(64, 64, device="meta")
        self.lazy = torch.nn.LazyLinear(64)
        self.parametrized = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(64, 64))
        self.normed = torch.nn.utils.weight_norm(torch.nn.Linear(64, 64))
        self.patched = torch.nn.Linear(64, 64)
        self.patched.forward = lambda x: x
        self.frozen = torch.nn.Linear(64, 64)
        self.embedding = torch.nn.Embedding(64, 64)
        self.head = torch.nn.Linear(64, 64, bias=False)
        self.head.weight = self.embedding.weight
        self.other_head = torch.nn.Linear(64, 64)
        self.other_head.weight = self.embedding.weight
        self.again = self.plain


@pytest.mark.filterwarnings("ignore")
def test_the_record_says_what_was_left_and_why():
    model = Odd()
    done = fp8lab.torch.convert(model, "te_current_scaling_hopper", exclude="fro*")
    assert [one.name for one in done.converted] == ["plain", "named", "head", "other_head"]
    assert [one.layer for one in done.converted] == [0, 1, 2, 3]
    assert done["plain"].notes == ("also called again",)
    assert done["head"].notes == ("its weight is also embedding.weight, other_head.weight",)
    assert type(model.named).__name__ == "OwnName" and model.named.twice() == 128
    reasons = {one.name: one.reason for one in done.left}
    expected = {
        "forwards": "OwnForward has a forward of its own",
        "attention.in_proj_weight": "in one function with the attention",
        "attention.out_proj": "reads its weight past the module",
        "odd_size": "the recipe does not take the shape: w: out (rows) must be a multiple of 8, not 30",
        "double": "its weight is float64",
        "away": "its weight is on meta",
        "lazy": "made by its first forward",
        "parametrized": "computed by torch.nn.utils.parametrize",
        "normed": "no plain torch.nn.Parameter",
        "patched": "replaced on the module itself",
        "frozen": "it is excluded",
    }
    assert reasons.keys() == expected.keys()
    for name, words in expected.items():
        assert words in reasons[name], reasons[name]
    text = str(done)
    assert text.startswith("4 layers by te_current_scaling_hopper:") and "left as they were: 11" in text
    assert all(name in text for name in reasons)


def test_layers_are_chosen_by_patterns_and_functions():
    def converted(**options):
        return [one.name for one in fp8lab.torch.convert(torch_models.llama(), "exact", **options).converted]

    assert converted(include="*.mlp.*", exclude=["*.1.mlp.*", "*.up"]) == ["blocks.0.mlp.gate", "blocks.0.mlp.down"]
    assert converted(include=lambda name: name.endswith("out")) == ["blocks.0.attention.out", "blocks.1.attention.out"]
    assert converted(include=["head"]) == ["head"]


def test_tied_weights_have_the_sum_of_their_gradients():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    model = Two()
    fp8lab.torch.convert(model, "te_current_scaling_hopper")
    assert model.first.layer == 0 and model.second.layer == 1 and len(list(model.parameters())) == 1
    x = drawn(32, 64, 1)
    model(x).backward(drawn(32, 64, 2))
    w = model.first.weight.detach()
    hidden = fp8lab.linear(x, w, recipe="te_current_scaling_hopper").astype(np.float32)
    dy = drawn(32, 64, 2).bfloat16()
    parts = [fp8lab.linear_wgrad(dy, hidden, recipe="te_current_scaling_hopper")]
    dh = fp8lab.linear_dgrad(dy, w, recipe="te_current_scaling_hopper")
    parts.append(fp8lab.linear_wgrad(dh, x, recipe="te_current_scaling_hopper"))
    assert words_of(model.first.weight.grad) == (parts[0] + parts[1]).tobytes()


def test_autocast_rounds_to_its_type_first():
    model = two_layers()
    w, bias = model[0].weight.detach(), model[0].bias.detach()
    fp8lab.torch.convert(model, "te_current_scaling_hopper")
    x = drawn(32, 64, 1)
    with torch.autocast("cpu", torch.bfloat16):
        y = model[0](x)
    assert y.dtype == torch.bfloat16
    rounded = [one.bfloat16() for one in (x, w, bias)]
    assert words_of(y) == fp8lab.linear(*rounded, recipe="te_current_scaling_hopper").tobytes()
    y.float().sum().backward()
    assert model[0].weight.grad.dtype == torch.float32


def test_codes_of_a_checkpoint_are_multiplied_as_they_are():
    model, x = two_layers(), drawn(32, 64, 1)
    recipe = next(one.recipe for one in fp8lab.linear_recipes() if one.name == "te_current_scaling_hopper")
    weight = fp8lab.quantize(model[0].weight.detach(), recipe.fprop.b)
    # The weight of the module is another one: it is not read.
    with torch.no_grad():
        model[0].weight.zero_()
    expected = fp8lab.linear(x, weight, model[0].bias.detach(), recipe=recipe)
    scale_inv = float(weight.scale_inv[0, 0])
    for codes in (
        weight,
        (weight.codes, scale_inv),
        (torch.from_numpy(weight.codes).view(torch.float8_e4m3fn), scale_inv),
    ):
        own = copy.deepcopy(model)
        done = fp8lab.torch.convert(own, recipe, codes={"0": codes})
        assert "of an FP8 checkpoint's codes" in done["0"].notes and "codes" in repr(own[0])
        with torch.no_grad():
            assert words_of(own[0](x)) == words_of(torch.from_numpy(expected.astype(np.float32)))
        with pytest.raises(RuntimeError, match=r"has no gradients: run it under torch.no_grad"):
            own(x)
    # Blocks of 128 x 128, as DeepSeek's checkpoints have them, in a module without a weight in memory.
    block = next(one.recipe for one in fp8lab.linear_recipes() if one.name == "te_block_hopper")
    layer = torch.nn.Linear(256, 128, bias=False, device="meta")
    quantized = fp8lab.quantize(drawn(128, 256, 5), block.fprop.b)
    fp8lab.torch.convert(layer, block, codes={"": (quantized.codes, quantized.scale_inv)})
    wide = drawn(16, 256, 6)
    with torch.inference_mode():
        assert words_of(layer(wide.bfloat16())) == fp8lab.linear(wide.bfloat16(), quantized, recipe=block).tobytes()


def test_a_forward_is_one_region_and_a_users_region_goes_first():
    model = two_layers()
    done = fp8lab.torch.convert(model, "te_delayed_hopper", state=fp8lab.Fp8State(2, trace=True))
    x = drawn(32, 64, 1)
    model(x).sum().backward()
    updates = {event.call for event in done.state.trace if event.action == "update"}
    assert len(updates) == 2  # at the end of the forward, and of the backward
    before = done.state.arrays()
    with torch.no_grad():
        model(100 * x)
    assert done.state.arrays()["0.x.scale"] == before["0.x.scale"] and done.state.regions == 0
    with done.state.autocast("exact"):
        inside = model(x)
    assert words_of(inside) == words_of(torch.from_numpy(exact_of(model, x)))
    with pytest.raises(RuntimeError, match="shapes|columns|size") as _:
        torch.nn.Sequential(model, torch.nn.Linear(7, 7))(x)
    assert done.state.regions == 0
    with pytest.raises(ValueError, match="tokens"):
        model(drawn(3, 64, 1))
    assert done.state.regions == 0 and model(x).shape == (32, 32)


def exact_of(model, x):
    hidden = fp8lab.linear(x, model[0].weight.detach(), model[0].bias.detach(), recipe="exact")
    return fp8lab.linear(np.maximum(hidden, 0), model[2].weight.detach(), recipe="exact")


def test_a_copy_has_a_state_of_its_own():
    model = two_layers()
    done = fp8lab.torch.convert(model, "te_delayed_hopper")
    train_one(model)
    other = copy.deepcopy(model)
    assert other[0].state is other[2].state and other[0].state is not done.state and other[0].state == done.state
    train_one(other)
    assert other[0].state != done.state
    train_one(model)
    assert other[0].state == done.state and words_of(other[0].weight) == words_of(model[0].weight)


def train_one(model):
    model(drawn(32, 64, 1)).sum().backward()


def test_recomputation_under_delayed_scaling_is_refused():
    from torch.utils.checkpoint import checkpoint

    for reentrant in (True, False):
        model, x = two_layers(), drawn(32, 64, 1).requires_grad_()
        done = fp8lab.torch.convert(model, "te_delayed_hopper")
        with pytest.raises(RuntimeError, match="a forward within a backward, as activation checkpointing"):
            checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        done.undo()
        fp8lab.torch.convert(model, "te_current_scaling_hopper")
        grads = []
        for run in (model, lambda x: checkpoint(model, x, use_reentrant=reentrant)):
            model.zero_grad()
            run(x).sum().backward()
            grads.append(model[0].weight.grad.clone())
        assert torch.equal(*grads)


def test_the_fused_encoder_layer_of_torch_does_not_go_past_the_layers():
    torch.manual_seed(1)
    model = torch.nn.TransformerEncoderLayer(64, 2, 128, batch_first=True).eval()
    x = drawn(32, 64, 1).view(2, 16, 64)
    done = fp8lab.torch.convert(model, "te_delayed_hopper", state=fp8lab.Fp8State(2, trace=True))
    assert [one.name for one in done.converted] == ["linear1", "linear2"]
    with torch.no_grad():
        model(x)
    assert {event.layer for event in done.state.trace if event.action == "cast"} == {0, 1}


@pytest.mark.skipif(not EXHAUSTIVE, reason="the compiler's import takes seconds: ./dev test --exhaustive")
def test_a_compiled_model_breaks_its_graph_at_the_layers():
    import torch._dynamo

    model = two_layers()
    other = copy.deepcopy(model)
    for one in (model, other):
        fp8lab.torch.convert(one, "te_delayed_hopper")
    compiled = torch.compile(other, backend="eager")
    for step in range(2):
        results = [one(drawn(32, 64, step)) for one in (model, compiled)]
        assert torch.equal(*results)
        for result in results:
            result.square().sum().backward()
        assert torch.equal(model[0].weight.grad, other[0].weight.grad)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="by code that torch.compile does not see"):
        torch.compile(other, backend="eager", fullgraph=True)(drawn(32, 64, 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: fp8lab.torch.convert(model, "te_delayed_hoper"), "unknown linear recipe 'te_delayed_hoper'.*did you mean te_delayed_hopper"),
        (lambda model: fp8lab.torch.convert(model, 3), "recipe must be"),
        (lambda model: fp8lab.torch.convert([], "exact"), "model must be a torch.nn.Module"),
        (lambda model: fp8lab.torch.convert(model, "exact", include="3.*"), r"include has '3.\*', which no linear layer of the model is called; there are 0, 2"),
        (lambda model: fp8lab.torch.convert(model, "exact", exclude=["0", "x"]), "exclude has 'x'"),
        (lambda model: fp8lab.torch.convert(model, "exact", include=3), "include must be a pattern"),
        (lambda model: fp8lab.torch.convert(model, "exact", include=[3]), "include must have patterns as str"),
        (lambda model: fp8lab.torch.convert(model, "exact", exclude="*"), "no layer to convert: 0: it is excluded; 2: it is excluded"),
        (lambda model: fp8lab.torch.convert(torch.nn.ReLU(), "exact"), "the model has no layer to convert$"),
        (lambda model: fp8lab.torch.convert(model, "te_delayed_hopper", delayed=3), "delayed must be a Delayed"),
        (lambda model: fp8lab.torch.convert(model, "exact", state=3), "state must be an Fp8State"),
        (lambda model: fp8lab.torch.convert(model, "exact", state=fp8lab.Fp8State(1)), "state has 1 layers, and 2 are converted"),
        (lambda model: fp8lab.torch.convert(model, "exact", threads=-1), "threads must be"),
        (lambda model: fp8lab.torch.convert(model, "exact", codes={"0": (1, 2)}), "this one multiplies them in float32"),
        (lambda model: fp8lab.torch.convert(model, "te_mxfp8_blackwell", codes={"7": (1, 2)}), "codes has '7', which no linear layer"),
        (lambda model: fp8lab.torch.convert(model, "te_mxfp8_blackwell", codes=[1]), "codes must be a mapping"),
        (lambda model: fp8lab.torch.convert(model, "te_mxfp8_blackwell", codes={"0": 3}), r"codes\['0'\] must be a Quantized, or"),
        (lambda model: fp8lab.torch.convert(model, "te_mxfp8_blackwell", codes={"0": (np.zeros((96, 64), np.uint8), 1.0)}), r"codes\['0'\]: "),
        (lambda model: fp8lab.torch.convert(model, "te_current_scaling_hopper", codes={"0": (np.zeros((96, 32), np.uint8), 1.0)}), r"must be \(out, in\), \(96, 64\), not \(96, 32\)"),
        (lambda model: (fp8lab.torch.convert(model, "exact"), fp8lab.torch.convert(model, "exact")), "converted already: 0 is a converted layer"),
    ],
)  # fmt: skip
def test_wrong_calls_are_refused(call, message):
    model = two_layers()
    with pytest.raises((TypeError, ValueError), match=message) as error:
        call(model)
    assert "already" in str(error.value) or type(model[0]) is torch.nn.Linear
    assert len(str(error.value)) < 300
