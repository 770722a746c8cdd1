# SPDX-License-Identifier: Apache-2.0
"""fp8lab.msamp: scales, casts, layers, and Adam's moments of few bits, against oracles written from the formulas.

test_msamp_real.py compares whole trainings with MS-AMP's own Python.
"""

import copy
import math
import pickle
import subprocess
import sys
import warnings
from fractions import Fraction

import fp8lab
import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fp8lab.msamp computes on torch tensors")
from fp8lab import msamp  # noqa: E402
from fp8lab.msamp import _arithmetic, _distributed  # noqa: E402
from msamp_scenarios import loss_of, network, shared, tensors_of, train  # noqa: E402

INF, NAN = math.inf, math.nan


def same(a, b) -> bool:
    """Whether two tensors have the same bits, any NaN being one."""
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    return bool(((a == b) & (torch.signbit(a) == torch.signbit(b)) | (a != a) & (b != b)).all())


# --- the scale --------------------------------------------------------------------------------------------------------

#: What MS-AMP's formula gives for E4M3 and an old scale of 4, by C++ of one rounding for each operation.
SCALES = [
    (0, 4), (1e-40, INF), (1e-37, INF), (1.4e-36, 2.0**127), (1e-8, 2.0**35), (0.4375, 1024), (1, 256), (1.75, 256),
    (3.5, 128), (10, 32), (448, 1), (448.00003, 0.5), (896, 0.5), (10000, 2.0**-5), (1e30, 2.0**-91), (INF, 0.25),
    (NAN, 4),
]  # fmt: skip


def test_scales_of_known_amaxes():
    amax = torch.tensor([pair[0] for pair in SCALES])
    made = msamp.scaling_factor(amax, torch.full_like(amax, 4), 448.0)
    assert same(made, torch.tensor([float(pair[1]) for pair in SCALES]))
    ones = torch.ones(3)  # what test_meta.py of MS-AMP asks for
    assert msamp.scaling_factor(torch.tensor([0.0, 10.0, 10000.0]), ones, 448.0).tolist() == [1, 32, 1 / 32]
    assert msamp.scaling_factor(torch.tensor([10.0]), ones[:1], 448.0, margin=3).tolist() == [4]


@pytest.mark.parametrize("largest", [448.0, 57344.0, 65504.0])
def test_scales_of_all_amaxes(largest):
    """Of any bits, and near the powers of two where a rounding decides; log2 of 64 bits is the oracle's."""
    draw = np.random.default_rng(31)
    near = np.float32(largest) * np.float32(2.0) ** draw.integers(-120, 100, 20000).astype(np.float32)
    near = (near.view(np.int32) + draw.integers(-6, 7, near.size)).astype(np.int32).view(np.float32)
    amax = np.concatenate([draw.integers(0, 0x7F800000, 20000).astype(np.int32).view(np.float32), near])
    old = np.float32(2.0) ** draw.integers(-20, 20, amax.size).astype(np.float32)
    with np.errstate(all="ignore"):
        quotient = np.float32(1) / amax * np.float32(largest)
        exponent = np.floor(np.log2(quotient.astype(np.longdouble)).astype(np.float32))
        power = np.float32(2) ** np.abs(exponent)
        wanted = np.where(amax > 0, power, old)
        wanted = np.where(exponent < 0, 1 / wanted, wanted).astype(np.float32)
        divided = np.floor(np.log2((np.float32(largest) / amax).astype(np.longdouble)).astype(np.float32))
    made = msamp.scaling_factor(torch.from_numpy(amax), torch.from_numpy(old), largest)
    assert same(made, torch.from_numpy(wanted))
    assert (divided != exponent).any()  # a true division would give other scales


# --- casts ------------------------------------------------------------------------------------------------------------


def test_just_in_time_and_delayed_scales():
    """A trace of a window of 16: amaxes by step, and the scales that the casts used."""
    state = msamp.ModelState()
    state.metas = [{"input": msamp.ScalingMeta("e4m3", window_size=16), "ograd": msamp.ScalingMeta("e5m2")}]
    meta = state.metas[0]["input"]
    amaxes = [1.0] * 40
    amaxes[3], amaxes[16:23] = 50.0, [100.0, 1.0, 2.0, 1.0, 1.0, 1.0, INF]
    used, codes = [], []
    for amax in amaxes:
        made = msamp.cast(torch.tensor([-amax, amax / 4]), "e4m3", meta)
        used.append(float(meta.scale))
        codes.append(int(made.value[0]))
        state.is_ready = True
        state.update_scales()
    assert used == [256] * 3 + [8] + [256] * 12 + [8] + [4] * 5 + [4] + [256] * 16 + [256]
    assert codes[16] == 0xFE  # saturated
    assert meta.amax_counter == 17
    state.update_scales()  # no layer ran since
    assert meta.amax_counter == 17


def test_what_amaxes_see():
    """NaN and infinity: by torch's maximum just in time, by the kernel's integers later."""
    meta = msamp.ScalingMeta("e4m3")
    made = msamp.cast(torch.tensor([NAN, 3.0, -1000.0]), "e4m3", meta)
    assert made.meta is meta and math.isnan(meta.amax[0]) and made.has_inf_or_nan()
    assert made.value.tolist() == [0x7F, 0x44, 0xFE] and meta.scale == 1
    msamp.cast(torch.tensor([8.0]), "e4m3", meta)
    scales = []
    for _ in range(3):  # an infinity inverts the scale, and again
        made = msamp.cast(torch.tensor([INF, 1.0]), "e4m3", meta)
        scales.append(float(meta.scale))
    assert scales == [1 / 32, 32, 1 / 32] and made.value[0] == 0x7E and made.has_inf_or_nan()
    delayed = msamp.ScalingMeta("e5m2", window_size=2)
    delayed.amax_counter = 2
    msamp.cast(torch.tensor([NAN, 3.0]), "e5m2", delayed)
    msamp.cast(torch.tensor([2.0]), "e5m2", delayed)
    assert delayed.amax.tolist() == [3, 0] and delayed.scale == 1
    delayed.amax[0] = NAN
    msamp.cast(torch.tensor([2.0]), "e5m2", delayed)  # which an integer's maximum keeps
    assert delayed.amax[0].isnan() and delayed.scale == 1
    msamp.cast(torch.tensor([2.0]), "e5m2", delayed, sync=True)  # of all ranks it is infinity
    assert delayed.amax[0] == INF and delayed.scale == 1


def test_casts_between_types():
    """Weights: float32 to float16 with a scale, and of that E4M3 by the amax that stands there."""
    x = torch.randn(40, 30, generator=torch.Generator().manual_seed(2)) * 0.01
    half = msamp.cast(x, "float16")
    amax = float(x.abs().max())
    s16 = 2.0 ** math.floor(math.log2(65504 / amax))
    assert half.meta.scale == s16 and half.meta.scale_inv == 1 / s16
    assert same(half.value, (x * s16).half()) and same(half.float(), half.value.float() / s16)
    e4m3 = half.cast("e4m3")
    s8 = 2.0 ** math.floor(math.log2(448 / amax))
    wanted = (half.value.float().numpy() * np.float32(s8 / s16)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert e4m3.value.numpy().tobytes() == wanted.tobytes()
    assert e4m3.meta.scale_inv == 1 / s8 and e4m3.meta.scale == s8 / s16 and e4m3.meta.amax[0] == half.meta.amax[0]
    once = (x.numpy() * np.float32(s8)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (once != wanted).any()  # two roundings
    assert half.cast("float16") is half
    again = e4m3.cast("e5m2")  # through float32, with an amax of its own
    assert again.meta.amax[0] == e4m3.float().abs().max()
    e4m3.mul_(3.0)
    assert (
        e4m3.meta.scale_inv == np.float32(3) * np.float32(1 / s8) and e4m3.value.numpy().tobytes() == wanted.tobytes()
    )
    e4m3.div_(torch.tensor(7.0))
    assert e4m3.meta.scale_inv == np.float32(3 / s8) / np.float32(7)
    assert msamp.cast(x, "bfloat16").meta.scale == 1 == msamp.cast(x, "float32").meta.scale
    codes = torch.tensor([0x7F, 0xFF, 0x00, 0x90], dtype=torch.uint8)
    small = msamp.ScalingTensor(codes, msamp.ScalingMeta("e4m3"))
    assert small.isnan().tolist() == [True, False, False, False] and small.abs().value.tolist() == [0x7F, 0x7F, 0, 0x10]


def test_a_tiny_amax():
    """Below 448 / 2^128 the scale is infinite: numbers saturate, zeros are NaN."""
    made = msamp.cast(torch.tensor([1e-37, -1e-38, 0.0]), "e4m3")
    assert made.meta.scale == INF and made.meta.scale_inv == 0 and made.value.tolist() == [0x7E, 0xFE, 0x7F]


def test_fused_operations():
    """a b + c rounded once, against the sum of fractions."""
    draw = np.random.default_rng(5)
    a, b, c = draw.integers(-(2**31), 2**31, (3, 3000)).astype(np.int32).view(np.float32)
    with np.errstate(all="ignore"):
        c[1000:] = -(a * b)[1000:] * (1 + draw.integers(-3, 4, 2000) * 2.0**-23).astype(np.float32)
        keep = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
        a, b, c = a[keep], b[keep], c[keep]
        twice = a * b + c
    made = _arithmetic.fma(*map(torch.from_numpy, (a, b, c))).numpy()
    wanted = [rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))) for x, y, z in zip(a, b, c)]
    differ = made != np.float32(wanted)
    assert not differ.any()
    assert (twice != made).any()


# --- Adam -------------------------------------------------------------------------------------------------------------


def rounded(x: Fraction, bits: int = 24, least: int = -149, most: float = 3.4028234663852886e38) -> float:
    """The nearest number of so many bits, even at a tie, and not below 2^least; above the largest one infinity."""
    if x == 0:
        return 0.0
    magnitude = abs(x)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    made = round(magnitude / unit) * unit
    value = INF if made > Fraction(most) else float(made)
    return value if x > 0 else -value


def exact(x) -> Fraction:
    return Fraction(float(x))


def root(x: float) -> float:
    """The square root, rounded to float32: 80 more bits than that of an integer decide."""
    shifted = exact(x) * 4**120
    return rounded(Fraction(math.isqrt(shifted.numerator // shifted.denominator), 2**120)) if x else 0.0


def moment(beta, code, inverse, term) -> float:
    beta32 = rounded(exact(beta))
    rest = rounded(1 - exact(beta32))
    return rounded(
        exact(rounded(exact(beta32) * exact(code))) * exact(inverse) + exact(rounded(exact(rest) * exact(term)))
    )


def adam_oracle(w, g, m, v, inverse_m, inverse_v, step, lr, betas, eps, decay, fused=True) -> tuple[list, list, list]:
    """One parameter tensor of LBAdamW, by fractions: the new parameter, and moments before they are stored."""
    correction1, correction2 = (rounded(exact(1 - rounded(exact(beta)) ** step)) for beta in betas)
    step_size = rounded(exact(rounded(exact(lr))) / exact(correction1))
    below = root(correction2)
    made = ([], [], [])
    for wi, gi, mi, vi in zip(w, g, m, v, strict=True):
        wi = rounded(exact(wi) * exact(rounded(exact(1 - lr * decay)))) if decay else wi
        mi = moment(betas[0], mi, inverse_m, gi)
        vi = moment(betas[1], vi, inverse_v, rounded(exact(gi) ** 2))
        denominator = rounded(exact(rounded(exact(root(vi)) / exact(below))) + exact(rounded(exact(eps))))
        ratio = rounded(exact(mi) / exact(denominator))
        change = exact(step_size) * exact(ratio)
        made[0].append(rounded(exact(wi) - (change if fused else exact(rounded(change)))))
        made[1].append(mi)
        made[2].append(vi)
    return made


def test_adamw_by_fractions():
    draw = torch.Generator().manual_seed(11)
    w = torch.nn.Parameter(torch.randn(150, generator=draw))
    options = {"lr": 0.013, "betas": (0.9, 0.98), "eps": 1e-8}
    optimizer = msamp.LBAdamW([w], weight_decay=0.1, **options)
    stored = (np.zeros(150, np.float32), np.zeros(150, np.float32))
    inverses = (1.0, 1.0)
    others = 0
    for step in range(1, 4):
        w.grad = torch.randn(150, generator=draw) * 10.0 ** torch.randint(-4, 1, (150,), generator=draw)
        before = w.detach().clone().tolist(), w.grad.tolist()
        numbers = (*before, *stored, *inverses, step)
        wanted, m, v = adam_oracle(*numbers, **options, decay=0.1)
        optimizer.step()
        assert w.detach().tolist() == wanted
        others += wanted != adam_oracle(*numbers, **options, decay=0.1, fused=False)[0]
        state = optimizer.state[w]
        scales = []
        for one, largest in ((m, 448), (v, 65504)):
            scales.append(2.0 ** math.floor(math.log2(largest / max(map(abs, one)))))
        codes = (np.float32(m) * np.float32(scales[0])).astype(ml_dtypes.float8_e4m3fn)
        halves = (np.float32(v) * np.float32(scales[1])).astype(np.float16)
        assert state["exp_avg"].value.numpy().tobytes() == codes.tobytes()
        assert state["exp_avg_sq"].value.numpy().tobytes() == halves.tobytes()
        assert [state[name].meta.scale_inv for name in ("exp_avg", "exp_avg_sq")] == [1 / scale for scale in scales]
        stored, inverses = (codes.astype(np.float32), halves.astype(np.float32)), [1 / scale for scale in scales]
    assert others  # without the fused operation the parameter is another one


def test_moments_of_small_gradients():
    """A gradient below some 4e-16 has a second moment whose scale is infinite: zeros of it become NaN."""
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = msamp.LBAdamW([w])
    w.grad = torch.tensor([1e-16, 0.0])
    optimizer.step()
    second = optimizer.state[w]["exp_avg_sq"]
    assert second.meta.scale == INF and second.value[0] == INF and second.value[1].isnan()
    assert torch.isfinite(w).all()  # it was updated by the moments before they were stored
    optimizer.step()
    assert w.isnan().all()


def test_the_decay_of_adam():
    """LBAdam: maxima and the update have the decay's term, and the stored moments do not."""
    w = torch.nn.Parameter(torch.linspace(-0.25, 0.25, 64))
    optimizer = msamp.LBAdam([w], weight_decay=1.0)
    w.grad = torch.zeros(64)
    optimizer.step()
    first = optimizer.state[w]["exp_avg"]
    assert first.meta.scale == 16384 and (first.value == 0).all()
    # Where the term makes the moment smaller, the raw one is beyond its scale, and float16 overflows.
    w = torch.nn.Parameter(torch.full((2,), -1.0))
    optimizer = msamp.LBAdam([w], weight_decay=1.0)
    w.grad = torch.full((2,), 1.001)
    optimizer.step()
    assert optimizer.state[w]["exp_avg_sq"].value.isinf().all()


def test_parameters_of_other_types():
    """A half parameter that is no ScalingTensor stays, as in the original."""
    for dtype, moves in ((torch.float32, True), (torch.float16, False), (torch.bfloat16, False)):
        for moments in ((torch.uint8, torch.float16), (torch.float32, torch.float32)):
            w = torch.nn.Parameter(torch.ones(4, dtype=dtype))
            optimizer = msamp.LBAdamW([w], lr=0.1, exp_avg_dtype=moments[0], exp_avg_sq_dtype=moments[1])
            w.grad = torch.ones(4, dtype=dtype)
            optimizer.step()
            assert bool((w != 1).all()) == moves


def test_without_scales_of_moments():
    w = torch.nn.Parameter(torch.ones(4))
    optimizer = msamp.LBAdamW([w], tensor_scale=False, bias_correction=False)
    w.grad = torch.full((4,), 2.0)
    optimizer.step()
    assert optimizer.state[w]["exp_avg"].meta.scale == 1
    assert optimizer.state[w]["exp_avg"].value[0] == int(np.float32(0.2).astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


def test_a_limited_norm():
    model, optimizer = msamp.initialize(network(), None, "O2")
    loss_of(model, 0, torch.float32)[0].backward()
    gradients = [one.grad.float().double() for one in model.parameters()]
    norm = math.sqrt(sum(float(one.square().sum()) for one in gradients))
    codes, inverse = model.first.weight.grad.value.clone(), float(model.first.weight.grad.meta.scale_inv)
    found = msamp.clip_grad_norm_(model.parameters(), 0.1)
    assert abs(float(found) - norm) < 1e-5 * norm
    coefficient = np.float32(np.float32(0.1) / (np.float32(found) + np.float32(1e-6)))
    assert model.first.weight.grad.meta.scale_inv == np.float32(inverse) * coefficient
    assert (model.first.weight.grad.value == codes).all()
    with pytest.raises(RuntimeError, match="is inf, and cannot be limited"):
        model.scale.grad[0] = INF
        msamp.clip_grad_norm_(model.parameters(), 0.1, error_if_nonfinite=True)
    assert msamp.clip_grad_norm_([], 1.0) == 0


# --- layers -----------------------------------------------------------------------------------------------------------


def layer_oracle(x, w, dy, dtype):
    """y, dx and dw of one call, by casts of ml_dtypes and fp8lab.gemm."""

    def quantized(t, kind, largest):
        amax = float(t.abs().max())
        scale = np.float32(2.0 ** math.floor(math.log2(largest / amax)))
        return (t.float().numpy() * scale).astype(kind).view(np.uint8), 1 / float(scale)

    def product(left, right, formats, splits, out):
        recipe = fp8lab.GemmRecipe(model="hopper_wgmma_fp8", promote_k=128 if splits else 0, output=out)
        sizes = left[0].shape[0], right[0].shape[0]
        padded = [np.pad(one[0], [(0, -n % 16) for n in one[0].shape]) for one in (left, right)]
        made = fp8lab.gemm(*padded, recipe, format_a=formats[0], format_b=formats[1], scale_a=left[1], scale_b=right[1])
        return torch.from_numpy(np.asarray(made, np.float32)[: sizes[0], : sizes[1]]).to(dtype)

    out = str(dtype).removeprefix("torch.")
    half = msamp.cast(w, "float16")
    a = quantized(x, ml_dtypes.float8_e4m3fn, 448)
    b = half.cast("e4m3")
    b = (b.value.numpy(), float(b.meta.scale_inv))
    y = product(a, b, ("e4m3", "e4m3"), False, out)
    d = quantized(dy, ml_dtypes.float8_e5m2, 57344)
    dx = product(d, (np.ascontiguousarray(b[0].T), b[1]), ("e5m2", "e4m3"), True, out)
    dw = product(
        (np.ascontiguousarray(d[0].T), d[1]), (np.ascontiguousarray(a[0].T), a[1]), ("e5m2", "e4m3"), True, out
    )
    return y, dx, quantized(dw, ml_dtypes.float8_e4m3fn, 448)


@pytest.mark.parametrize(
    ("dtype", "inner", "outer", "tokens"),
    [
        (torch.float32, 300, 21, 10),
        (torch.float16, 300, 21, 10),
        (torch.float32, 40, 300, 260),
        (torch.bfloat16, 40, 260, 300),
    ],
)
def test_a_layer(dtype, inner, outer, tokens):
    """With K beyond two promotions in the forward pass, which has none, or in the backward one, and padded sides."""
    draw = torch.Generator().manual_seed(3)
    linear = torch.nn.Linear(inner, outer, bias=False)
    with torch.no_grad():
        linear.weight.normal_(0, 0.05, generator=draw)
    x = torch.randn(2, tokens // 2, inner, generator=draw).to(dtype).requires_grad_()
    dy = torch.randn(2, tokens // 2, outer, generator=draw).to(dtype)
    layer = msamp.replace_linears(copy.deepcopy(linear))
    y = layer(x)
    y.backward(dy)
    rows = x.detach().view(tokens, inner), dy.view(tokens, outer)
    wanted = layer_oracle(rows[0], linear.weight.detach(), rows[1], dtype)
    assert y.dtype == dtype and same(y.detach().view(tokens, outer), wanted[0])
    assert same(x.grad.view(tokens, inner), wanted[1])
    assert layer.weight.grad.value.numpy().tobytes() == wanted[2][0].tobytes()
    assert layer.weight.grad.meta.scale_inv == wanted[2][1]
    other = msamp.replace_linears(copy.deepcopy(linear), device="h200")(x)  # whose name has no H100: a GEMM of y's type
    if dtype == torch.bfloat16:
        operands = msamp.cast(rows[0], "e4m3"), msamp.cast(linear.weight.detach(), "float16").cast("e4m3")
        sides = [torch.nn.functional.pad(one.bfloat16(), (0, -inner % 16, 0, -len(one) % 16)) for one in operands]
        recipe = fp8lab.GemmRecipe(model="hopper_bf16", output="bfloat16")
        wanted = np.asarray(fp8lab.gemm(*sides, recipe), np.float32)[:tokens, :outer]
        assert same(other.detach().float().view(tokens, outer), torch.from_numpy(np.ascontiguousarray(wanted)))
    else:
        assert not same(other.detach(), y.detach())


def test_autocast_decides_on_the_output():
    layer = msamp.replace_linears(torch.nn.Linear(32, 16))
    x = torch.randn(4, 32)
    plain = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert same(
            layer(x).detach().float(), (plain - layer.bias).bfloat16().add(layer.bias.bfloat16()).detach().float()
        )
    assert plain.dtype == torch.float32
    assert torch.nn.functional.linear(x, layer.weight, layer.bias).equal(plain)


def test_gradients_add_up():
    """A second backward adds to the float of the first one's codes, in the GEMM. Both share the layer's scale."""
    layer = msamp.replace_linears(torch.nn.Linear(32, 16, bias=False))
    x = torch.randn(8, 32)
    layer(x).square().sum().backward()
    first = layer.weight.grad
    before, wgrad = first.float(), layer.scaling_metas["wgrad"]
    layer(x).square().sum().backward()
    assert layer.weight.grad.meta is first.meta is wgrad
    largest = float(before.abs().max())
    assert float((layer.weight.grad.float() - 2 * before).abs().max()) < 2**-3 * largest
    assert 1.9 * largest < float(wgrad.amax[0]) < 2.1 * largest


def test_a_model_is_converted():
    model = network()
    model.last.use_fp32_linear = True
    weight = model.first.weight.detach().clone()
    converted, optimizer = msamp.initialize(model, torch.optim.AdamW(model.parameters(), lr=0.5), "O2")
    assert converted is model and isinstance(model.first, msamp.Linear) and type(model.last) is torch.nn.Linear
    assert same(model.first.weight.float(), msamp.cast(weight, "float16").float())
    assert optimizer.param_groups[0]["lr"] == 0.5 and type(optimizer) is msamp.LBAdamW
    assert [id(one) for one in optimizer.param_groups[0]["params"]] == [id(one) for one in model.parameters()]
    kinds = [(torch.optim.Adam, {}), (torch.optim.Adam, {"weight_decay": 0.1}), (torch.optim.AdamW, {})]
    made = [type(msamp.initialize(m, k(m.parameters(), **o))[1]) for k, o in kinds for m in [network()]]
    assert made == [msamp.LBAdam, msamp.LBAdam, msamp.LBAdamW]
    model.half()  # the weight's type is its own
    assert model.first.bias.dtype == torch.float16 and model.first.weight.dtype == torch.float16
    assert list(dict(model.first.named_parameters())) == ["weight", "bias"]


def test_groups_and_their_options():
    model = network()
    groups = [{"params": model.first.parameters(), "lr": 0.1}, {"params": [model.scale], "weight_decay": 0.0}]
    _, optimizer = msamp.initialize(model, torch.optim.AdamW(groups, lr=0.2), "O1")
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [(0.1, 0.01), (0.2, 0.0)]
    assert optimizer.param_groups[0]["params"][0] is model.first.weight
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    train(model, optimizer, torch.float32, 1)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_a_training_goes_on(level):
    """From copies of the states, with the windows of the layers, which no state dict has."""

    def begun():
        model = network()
        if level == "O3":
            return msamp.initialize_zero(model)
        return msamp.initialize(model, None, level)

    model, optimizer = begun()
    train(model, optimizer, torch.float32, 3)
    kept = pickle.loads(pickle.dumps((model.state_dict(), optimizer.state_dict())))
    metas = copy.deepcopy([one.scaling_metas for one in model.modules() if isinstance(one, msamp.Linear)])
    wanted = train(model, optimizer, torch.float32, 3)
    resumed, other = begun()
    assert str(resumed.load_state_dict(kept[0])) == "<All keys matched successfully>"
    other.load_state_dict(kept[1])
    layers = [one for one in resumed.modules() if isinstance(one, msamp.Linear)]
    for layer, saved in zip(layers, metas, strict=True):
        for name, meta in saved.items():
            layer.scaling_metas[name].copy_(meta)
    assert train(resumed, other, torch.float32, 3) == wanted
    for a, b in zip(model.parameters(), resumed.parameters(), strict=True):
        assert all(same(x.float(), y.float()) for x, y in zip(tensors_of(a), tensors_of(b), strict=True))
    twin = copy.deepcopy(model)
    assert same(twin(torch.ones(3, 20)).detach(), model(torch.ones(3, 20)).detach())


def test_bytes():
    """The table, and what the tensors of a training take."""
    assert [msamp.bytes_per_parameter(level).total for level in ("O1", "O2", "O3")] == [11, 6, 7]
    assert [msamp.bytes_per_parameter(level, "other").total for level in ("O1", "O2", "O3")] == [16, 11, 11]

    def taken(one) -> float:
        """Bytes of a parameter's values."""
        values = one.value if isinstance(one, msamp.ScalingTensor) else one
        return values.element_size() * values.numel()

    for level in ("O1", "O2"):
        model, optimizer = msamp.initialize(network(), None, level)
        loss_of(model, 0, torch.float32)[0].backward()
        optimizer.step()
        for one in model.parameters():
            kind = "linear" if isinstance(one, msamp.ScalingParameter) else "other"
            state = optimizer.state[one]
            told = msamp.bytes_per_parameter(level, kind)
            found = [taken(part) / one.numel() for part in (one, one.grad, state["exp_avg"], state["exp_avg_sq"])]
            assert found == [told.weight, told.gradient, told.exp_avg, told.exp_avg_sq]
    model, optimizer = msamp.initialize_zero(network())
    loss_of(model, 0, torch.float32)[0].backward()
    gradients = [taken(one.grad) for one in model.parameters() if isinstance(one, msamp.ScalingParameter)]
    optimizer.step()
    told = msamp.bytes_per_parameter("O3")
    for (weight, _, master), gradient in zip(
        sorted(optimizer.weights, key=lambda one: -one[0].numel()), sorted(gradients)[::-1]
    ):
        state = optimizer.optimizer.state[master]
        found = [taken(part) for part in (weight, master, state["exp_avg"], state["exp_avg_sq"])]
        assert [*found, gradient] == [
            weight.numel() * n for n in (told.weight, told.master, told.exp_avg, told.exp_avg_sq, told.gradient)
        ]


# --- sums of gradients ------------------------------------------------------------------------------------------------


def codes(*values: int):
    return torch.tensor(values, dtype=torch.uint8)


def test_sums_of_codes():
    """The pairs of test_dist.py of MS-AMP; and all pairs, whose sum in float16 is cast with saturation."""
    assert msamp.sum_codes([codes(0x4A), codes(0x50)]).item() == 0x55
    assert msamp.sum_codes([codes(0x58), codes(0x5C)]).item() == 0x62
    assert msamp.sum_codes([codes(0x38)] * 32, schedule="rank_order").item() == 0x58  # 32 ones are 16: 17 is not E4M3
    for name, kind, largest in (("e4m3", ml_dtypes.float8_e4m3fn, 448), ("e5m2", ml_dtypes.float8_e5m2, 57344)):
        every = np.arange(256, dtype=np.uint8)
        every = every[np.isfinite(every.view(kind).astype(np.float32))]
        left, right = every.repeat(every.size), np.tile(every, every.size)
        with np.errstate(over="ignore"):
            total = left.view(kind).astype(np.float16) + right.view(kind).astype(np.float16)
        wanted = np.clip(total.astype(np.float32), -largest, largest).astype(kind).view(np.uint8)
        made = msamp.sum_codes([torch.from_numpy(left), torch.from_numpy(right)], name)
        assert made.numpy().tobytes() == wanted.tobytes()
    four = [codes(*[0x58] * 4), *[codes(*[0x38] * 4)] * 3]  # 16, and thrice 1
    assert msamp.sum_codes(four, schedule="rank_order").tolist() == [0x58] * 4
    assert msamp.sum_codes(four).tolist() == [0x5A, 0x5A, 0x58, 0x58]  # 3 + 16 is 20, and 2 + 16 + 1


def test_the_scale_that_grows_with_fp8_lm():
    scale = msamp.AutoScale()
    history = []
    for _ in range(1590):
        scale.update(1.0 if scale.mu > 3 else 0.0)
        history.append(scale.mu)
    assert round(history[999], 9) == 2
    first = next(i for i, mu in enumerate(history) if mu > 3)
    assert first + 1 == 1585 and round(history[first], 4) == 3.0001 and round(history[first + 1], 4) == 1.5
    one = msamp.AutoScale(threshold=0.1, interval=7)
    g = torch.tensor([7.0, -7.0, 1.0, 0.0])
    made = one.reduce([g])[0]  # half of the codes are the largest one
    assert one.mu == 0.5 and same(made.float(), g)
    assert same(one.reduce([g])[0].float(), g)


def test_scales_of_zero_gradients_decay():
    """FP8DistributedDataParallel multiplies also a scale that stays by 1 / sqrt(N): of 4 ranks NaN after 128 steps."""
    scale, zero = torch.ones(1), torch.zeros(1)
    steps = 0
    while True:
        scale = _distributed.scales_before_sum(zero, scale, 4)
        steps += 1
        if (0 * torch.reciprocal(scale)).isnan():
            break
    assert steps == 128 and scale == 2.0**-128
    trace, scale = [], torch.ones(1)
    for amax in (1.0, 0.0, 0.0, 1.0, INF, 0.0):
        scale = _distributed.scales_before_sum(torch.tensor([amax]), scale, 4)
        trace.append(float(scale))
    assert trace == [128, 64, 32, 128, 2.0**-8, 2.0**-9]


# --- what is refused --------------------------------------------------------------------------------------------------


def tied():
    model = network()
    model.other = torch.nn.Embedding(5, 33)
    model.other.weight = model.last.weight
    return model


def twice():
    model = network()
    model.again = model.first
    return model


def double():
    model = network()
    model.last.double()
    return model


REFUSED = [
    (lambda: msamp.initialize(network(), None, "O3"), ValueError, "O1 or O2, not O3.*initialize_zero"),
    (lambda: msamp.initialize(network(), None, "O4"), ValueError, "opt_level.*O1.*O2"),
    (lambda: msamp.initialize(network(), None, 2), TypeError, "opt_level"),
    (lambda: msamp.initialize(network(), None, use_te=True), ValueError, "use_te must be False"),
    (lambda: msamp.initialize(network(), None, device="v100"), ValueError, "unknown device 'v100'; known: h100"),
    (lambda: msamp.initialize(network(), None, reduction="mean"), ValueError, "reduction.*code.*paper"),
    (lambda: msamp.initialize("model"), TypeError, "model must be a torch.nn.Module"),
    (lambda: msamp.initialize(tied()), ValueError, "last.weight and other.weight are one parameter.*use_fp32_linear"),
    (lambda: msamp.initialize(twice()), ValueError, "first and again are the same layer"),
    (lambda: msamp.initialize(double()), TypeError, "last.weight must be float32, float16 or bfloat16, not torch.float64"),
    (lambda: msamp.initialize(msamp.initialize(network())[0]), ValueError, "first is an fp8lab.msamp.Linear already"),
    (lambda: msamp.initialize(torch.nn.MultiheadAttention(32, 2)), ValueError, "out_proj.use_fp32_linear = True"),
    (lambda: msamp.initialize(network(), torch.optim.SGD(network().parameters())), TypeError, "Adam or AdamW, not SGD"),
    (lambda: msamp.initialize(network(), torch.optim.Adam(network().parameters())), ValueError, "parameters of the model"),
    (lambda m: msamp.initialize(m, torch.optim.Adam(m.parameters(), amsgrad=True)), ValueError, "amsgrad must be False"),
    (lambda: msamp.initialize_zero(network().half()), TypeError, "outside of FP8 layers must be float32"),
    (lambda: msamp.ZeroOptimizer(None), TypeError, "optimizer must be an fp8lab.msamp.LBAdamW"),
    (lambda: msamp.bytes_per_parameter("O0"), ValueError, "opt_level.*O1.*O2.*O3"),
    (lambda: msamp.bytes_per_parameter("O1", "bias"), ValueError, "kind.*linear.*other"),
    (lambda: msamp.cast(torch.ones(2, dtype=torch.int32), "e4m3"), TypeError, "float32, float16 or bfloat16, not int32"),
    (lambda: msamp.cast(torch.ones(2, dtype=torch.float64), "e4m3"), TypeError, "not float64"),
    (lambda: msamp.cast([1.0], "e4m3"), TypeError, "x must be a torch tensor, not list"),
    (lambda: msamp.cast(torch.ones(2), "e3m4"), ValueError, "qtype.*e4m3.*float32"),
    (lambda: msamp.cast(torch.ones(0), "e4m3"), ValueError, "x must not be empty"),
    (lambda: msamp.cast(torch.ones(2), "e4m3", msamp.ScalingMeta("e5m2")), ValueError, "meta.qtype must be the qtype e4m3"),
    (lambda: msamp.cast(torch.ones(2), "e4m3", 1), TypeError, "meta must be a ScalingMeta"),
    (lambda: msamp.ScalingTensor(torch.ones(2), msamp.ScalingMeta("e4m3")), TypeError, "must be torch.uint8"),
    (lambda: msamp.ScalingMeta("e4m3", window_size=0), ValueError, "window_size"),
    (lambda: msamp.replace_linears(torch.nn.Linear(4, 4))(torch.ones(2, 5)), ValueError, "x must have 4 columns"),
    (lambda: msamp.replace_linears(torch.nn.Linear(4, 4))(torch.ones(0, 4)), ValueError, "x must not be empty"),
    (lambda: msamp.replace_linears(torch.nn.Linear(4, 4))(torch.ones(2, 4).double()), TypeError, "not float64"),
    (lambda: torch.add(msamp.cast(torch.ones(2), "e4m3"), 1), TypeError, "torch's add takes no ScalingTensor.*float"),
    (lambda: msamp.cast(torch.ones(2), "e4m3").to(torch.int8), TypeError, "dtype must be float32, float16 or bfloat16"),
    (lambda: msamp.cast(torch.ones(2), "e4m3").to("cuda"), TypeError, "is on the CPU"),
    (lambda: msamp.cast(torch.ones(2), "e4m3").mul_(torch.ones(2)), ValueError, "one element"),
    (lambda: msamp.cast(torch.ones(2), "e4m3").copy_(msamp.cast(torch.ones(3), "e4m3")), ValueError, "shape"),
    (lambda: msamp.LBAdamW([torch.nn.Parameter(torch.ones(2))], exp_avg_dtype=torch.float64), ValueError, "exp_avg_dtype"),
    (lambda: msamp.LBAdamW([torch.nn.Parameter(torch.ones(2))], exp_avg_dtype=torch.int8), ValueError, "torch.uint8"),
    (
        lambda: msamp.LBAdamW([torch.nn.Parameter(torch.ones(2))], exp_avg_dtype=torch.float32),
        ValueError,
        "must both be torch.float32, or neither",
    ),
    (lambda: msamp.LBAdamW([torch.nn.Parameter(torch.ones(2))], lr=-1), ValueError, "lr must be at least 0"),
    (lambda: msamp.LBAdamW([torch.nn.Parameter(torch.ones(2))], betas=(0.9, 1)), ValueError, "betas.1. must be.*below 1"),
    (lambda: msamp.LBAdamW([torch.nn.Parameter(torch.ones(2))] * 2), ValueError, "a parameter twice"),
    (lambda: msamp.LBAdamW([1.0]), TypeError, "torch tensors or ScalingTensors, not float"),
    (lambda: msamp.sum_codes([codes(1), codes(1, 2)]), ValueError, "one shape"),
    (lambda: msamp.sum_codes([torch.ones(2)]), TypeError, "uint8"),
    (lambda: msamp.sum_codes([codes(1)], "float16"), ValueError, "qtype.*e4m3.*e5m2"),
    (lambda: msamp.sum_codes([codes(1)], schedule="tree"), ValueError, "schedule.*ring.*rank_order"),
    (lambda: msamp.scaling_factor(torch.ones(2), torch.ones(1), 448.0), ValueError, "scale must have the shape"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals(number):
    call, kind, message = REFUSED[number]
    with pytest.raises(kind, match=message) as caught:
        call(network()) if call.__code__.co_argcount else call()
    assert len(str(caught.value)) < 300


def test_a_refused_model_stays():
    model = tied()
    with pytest.raises(ValueError, match="one parameter"):
        msamp.initialize(model)
    assert type(model.first) is torch.nn.Linear


def test_a_state_of_another_kind():
    model, optimizer = msamp.initialize(shared(), None, "O2")
    with pytest.raises(RuntimeError, match=r"first.weight must be a ScalingTensor, not Tensor: load it before"):
        model.load_state_dict(shared().state_dict())
    with pytest.raises(ValueError, match="groups of"):
        optimizer.load_state_dict(msamp.initialize(network(), None, "O2")[1].state_dict())


def test_fp8lab_does_not_import_it():
    code = "import sys, fp8lab; print([n for n in sys.modules if n == 'torch' or 'msamp' in n])"
    with warnings.catch_warnings():
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
