# SPDX-License-Identifier: Apache-2.0
"""fp8lab.torch.emulate: PyTorch's scaled GEMMs on CPU tensors give the bits of a GPU's, and torchao trains by them."""

import threading

import fp8lab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
import fp8lab.torch  # noqa: E402
from test_device_libraries import RECORDED, SCALE_A, SCALE_B, SPLIT, centred, codes, elements, row_scales  # noqa: E402
from torch_models import words_of  # noqa: E402

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
#: Small ones; where cuBLASLt splits K, which the emulation does not model, fast accumulation is left out.
RECORDED_SIZES = ("16x64x1024", "16x64x7168", "128x128x128", "128x128x1024")


def fp8(array, dtype=E4M3):
    return torch.from_numpy(array).view(dtype)


def drawn(rows, columns, seed, size=1.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(0, size, (rows, columns)).astype(np.float32))


def quantized(rows, columns, seed, dtype=E4M3):
    return drawn(rows, columns, seed).to(dtype)


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).numpy()


@pytest.mark.parametrize("sizes", RECORDED_SIZES)
def test_what_an_h200_gave_is_what_the_emulation_gives(sizes):
    m, n, k = (int(size) for size in sizes.split("x"))
    a, b = fp8(codes(1, np.arange(m), k)), fp8(codes(2, np.arange(n), k))
    rows, columns = elements(m, n)
    scales = {
        "tensor": (torch.tensor(SCALE_A), torch.tensor(SCALE_B)),
        "row": (torch.from_numpy(row_scales(4, m)).view(m, 1), torch.from_numpy(row_scales(5, n)).view(1, n)),
    }
    bias = torch.from_numpy(centred(3, n)).bfloat16()
    count = 0
    with fp8lab.torch.emulate("h200"):
        for key in RECORDED["h200"]:
            if not key.startswith(f"mm/{sizes}/"):
                continue
            _, _, kind, dtype, accumulation, with_bias = key.split("/")
            if (m, n, k) in SPLIT and accumulation == "fast" and kind == "tensor":
                continue
            y = torch._scaled_mm(
                a, b.t(), scale_a=scales[kind][0], scale_b=scales[kind][1], out_dtype=getattr(torch, dtype),
                bias=bias if with_bias == "bias" else None, use_fast_accum=accumulation == "fast",
            )  # fmt: skip
            got = y[rows, columns].view(torch.int16 if dtype == "bfloat16" else torch.int32).numpy()
            assert np.array_equal(got, RECORDED["h200"][key].reshape(-1)), key
            count += 1
    assert count >= 8


def test_the_cpu_computes_otherwise_and_is_untouched_outside():
    a, b, one = fp8(codes(1, np.arange(16), 1024)), fp8(codes(2, np.arange(16), 1024)), torch.ones(())

    def product(**options):
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, **options)

    before = product()
    with fp8lab.torch.emulate("h100") as emulation:
        assert emulation.is_active and fp8lab.torch.emulated_device().name == "h100"
        inside = product()
        assert torch.cuda.is_available() is False and "on" in repr(emulation)
    assert torch.equal(product(), before) and not torch.equal(inside, before)
    assert not emulation.is_active and fp8lab.torch.emulated_device() is None
    emulation.deactivate()
    with pytest.raises(NotImplementedError, match="_scaled_grouped_mm"):
        torch._scaled_grouped_mm(a, b.t().unsqueeze(0), torch.ones(16), torch.ones(1, 16), offs=torch.tensor([16], dtype=torch.int32), out_dtype=torch.bfloat16)  # fmt: skip
    # A switch: on until it is switched off, as often as it was switched on.
    switch = fp8lab.torch.emulate("h100")
    assert fp8lab.torch.emulate("h100") is switch
    switch.deactivate()
    assert torch.equal(product(), inside)
    switch.deactivate()
    assert torch.equal(product(), before)


def test_each_device_has_its_tensor_core_in_every_thread_and_below_dispatch():
    a, b, one = quantized(32, 256, 1), quantized(16, 256, 2), torch.ones(())
    models = {"h100": ("hopper_wgmma_fp8", 128), "l4": ("ada_mma_fp8", None), "b200": ("blackwell_tcgen05_fp8", None)}
    for name, (model, promote_k) in models.items():
        expected = fp8lab.gemm(bytes_of(a), bytes_of(b), model=model, promote_k=promote_k)
        found = []
        with fp8lab.torch.emulate(name):
            calls = (
                lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32),
                lambda: torch.ops.aten._scaled_mm.default(a, b.t(), one, one, None, None, torch.float32, False),
            )
            threads = [threading.Thread(target=lambda call=call: found.append(call())) for call in calls]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        assert [words_of(one) for one in found] == [expected.tobytes()] * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scales_of_rows_on_other_chips_multiply_as_cutlass_does(dtype):
    a, b = quantized(32, 256, 1), quantized(16, 256, 2)
    of_a, of_b = drawn(32, 1, 3).abs(), drawn(1, 16, 4).abs()
    bias = drawn(1, 16, 5)[0].to(dtype)
    with fp8lab.torch.emulate("l40s"):
        y = torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b, bias=bias, out_dtype=dtype)
    sums = fp8lab.gemm(bytes_of(a), bytes_of(b), model="ada_mma_fp8")
    with fp8lab.torch.emulate("l40s"), pytest.raises(ValueError, match="scales of rows on NVIDIA L40S give"):
        torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b, out_dtype=torch.float32)
    scaled = torch.from_numpy(sums) * of_a * of_b + bias.float()
    assert words_of(y) == words_of(scaled.to(dtype))


def test_fp8_results_are_cast():
    a, b = quantized(16, 64, 1), quantized(16, 64, 2, E5M2)
    of_a, of_b = torch.tensor(0.5), torch.tensor(0.3)
    with fp8lab.torch.emulate("h100"):
        y = torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b)
        with pytest.raises(NotImplementedError, match="releases differ in whether it scales"):
            torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b, scale_result=torch.tensor(7.0))
        other = torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b, out_dtype=E5M2)
    assert (y.dtype, other.dtype) == (E4M3, E5M2)
    sums = torch.from_numpy(
        fp8lab.gemm(bytes_of(a), bytes_of(b), model="hopper_wgmma_fp8", promote_k=128, format_b="e5m2")
    )
    wide = sums * (of_a * of_b)
    assert np.array_equal(bytes_of(y), fp8lab.encode(wide.numpy(), "e4m3"))
    assert np.array_equal(bytes_of(other), fp8lab.encode(wide.numpy(), "e5m2"))


def block_scaled(name, x, **options):
    q = fp8lab.quantize(x, name, **options)
    return q, torch.from_numpy(q.scales("swizzled"))


def test_blocks_with_e8m0_and_e4m3_scales_are_those_of_blackwell():
    scaling = torch.nn.functional.ScalingType
    swizzle = torch.nn.functional.SwizzleType.SWIZZLE_32_4_4
    x, w = drawn(48, 128, 1), drawn(32, 128, 2)
    (a, of_a), (b, of_b) = (block_scaled("torchao_mxfp8_floor", one) for one in (x, w))
    expected = fp8lab.gemm(a, b, model="blackwell_mxf8", out_dtype="bfloat16")
    of_a, of_b = of_a.view(torch.float8_e8m0fnu), of_b.view(torch.float8_e8m0fnu)
    with fp8lab.torch.emulate("b200"):
        y = torch._scaled_mm(fp8(a.codes), fp8(b.codes).t(), scale_a=of_a, scale_b=of_b, out_dtype=torch.bfloat16)
        same = torch.nn.functional.scaled_mm(fp8(a.codes), fp8(b.codes).t(), of_a, scaling.BlockWise1x32, of_b, scaling.BlockWise1x32, swizzle, swizzle)  # fmt: skip
    assert words_of(y) == words_of(same) == expected.tobytes()
    (a, of_a), (b, of_b) = (block_scaled("torchao_nvfp4_one_level", one) for one in (x, w))
    expected = fp8lab.gemm(a.codes, b.codes, model="blackwell_nvf4", format_a="e2m1", format_b="e2m1", scale_a=a.scale_codes, scale_b=b.scale_codes, out_dtype="bfloat16")  # fmt: skip
    left, right = (fp8(one.codes, torch.float4_e2m1fn_x2) for one in (a, b))
    of_a, of_b = of_a.view(E4M3), of_b.view(E4M3)
    with fp8lab.torch.emulate("b200"):
        y = torch._scaled_mm(left, right.t(), scale_a=of_a, scale_b=of_b, out_dtype=torch.bfloat16)
        both = [scaling.BlockWise1x16, scaling.TensorWise]
        two = torch.nn.functional.scaled_mm(left, right.t(), [of_a, torch.tensor(0.5)], both, [of_b, torch.tensor(0.25)], both, [swizzle], [swizzle])  # fmt: skip
    assert words_of(y) == expected.tobytes()
    assert words_of(two) == words_of(y / 8)  # a power of two, and nothing near the ends of bfloat16
    with (
        fp8lab.torch.emulate("h100"),
        pytest.raises(RuntimeError, match="NVIDIA H100 80GB HBM3 has no GEMM in PyTorch"),
    ):
        torch._scaled_mm(left, right.t(), scale_a=of_a, scale_b=of_b, out_dtype=torch.bfloat16)


def test_float32_scales_of_blocks_are_those_of_hopper():
    a, b = quantized(32, 256, 1), quantized(128, 256, 2)
    of_a, of_b = drawn(2, 32, 3).abs().t(), drawn(2, 1, 4).abs()
    with fp8lab.torch.emulate("h100"):
        y = torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b, out_dtype=torch.bfloat16)
    expected = fp8lab.gemm(bytes_of(a), bytes_of(b), "te_block_hopper_fprop", scale_a=of_a.contiguous().numpy(), scale_b=of_b.t().contiguous().numpy())  # fmt: skip
    assert words_of(y) == expected.tobytes()
    with (
        fp8lab.torch.emulate("b200"),
        pytest.raises(RuntimeError, match="no GEMM in PyTorch whose scales are those of 1x128"),
    ):
        torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b, out_dtype=torch.bfloat16)


def grouped(left, right, of_a, of_b, fast):
    """A group by hand: CUTLASS multiplies the scale of the row first."""
    sums = torch.from_numpy(
        fp8lab.gemm(bytes_of(left), bytes_of(right.t()), model="hopper_wgmma_fp8", promote_k=None if fast else 128)
    )
    return (sums * of_a.view(-1, 1) * of_b.view(1, -1)).bfloat16()


@pytest.mark.parametrize("fast", [False, True])
def test_groups_are_each_a_gemm(fast):
    options = {"out_dtype": torch.bfloat16, "use_fast_accum": fast}
    ends = torch.tensor([16, 48], dtype=torch.int32)
    of_48, of_16 = drawn(1, 48, 3).abs()[0], drawn(2, 16, 4).abs()
    x, w = quantized(48, 256, 1), quantized(32, 256, 2).view(2, 16, 256).transpose(1, 2)
    with fp8lab.torch.emulate("h100"):
        y = torch._scaled_grouped_mm(x, w, of_48, of_16, offs=ends, **options)
        turned = torch._scaled_grouped_mm(w.transpose(1, 2), x.t(), of_16, of_48, offs=ends, **options)
        many = torch._scaled_grouped_mm(x.view(2, 24, 256), w, of_48.view(2, 24), of_16, **options)
        deep = torch._scaled_grouped_mm(
            quantized(16, 48, 5), quantized(32, 48, 6).t(), torch.cat([of_16[0], of_16[1]]), drawn(1, 64, 7).abs()[0], offs=ends, **options,
        )  # fmt: skip
    parts = [slice(0, 16), slice(16, 48)]
    assert words_of(y) == words_of(
        torch.cat([grouped(x[p], w[g], of_48[p], of_16[g], fast) for g, p in enumerate(parts)])
    )
    expected = [grouped(w[g].t(), x.t()[:, p], of_16[g], of_48[p], fast) for g, p in enumerate(parts)]
    assert words_of(turned) == words_of(torch.cat(expected, 1))
    expected = [grouped(x.view(2, 24, 256)[g], w[g], of_48.view(2, 24)[g], of_16[g], fast) for g in range(2)]
    assert words_of(many) == words_of(torch.stack(expected))
    left, right, of_b = quantized(16, 48, 5), quantized(32, 48, 6).t(), drawn(1, 64, 7).abs()[0].view(2, 32)
    expected = [grouped(left[:, p], right[p], of_16[g], of_b[g], fast) for g, p in enumerate(parts)]
    assert words_of(deep) == words_of(torch.stack(expected))
    with fp8lab.torch.emulate("b200"), pytest.raises(RuntimeError, match="runs on compute capability 9.0 alone"):
        torch._scaled_grouped_mm(x, w, of_48, of_16, offs=ends, **options)


# --- torchao ----------------------------------------------------------------------------------------------------------


def cast(x, format, recipe, dim):
    """torchao's scale by its formula in float64, and the codes: float8_utils.amax_to_scale, 0.18."""
    x = x.detach().float().numpy().astype(np.float32)
    amax = np.abs(x).max() if recipe == "tensorwise" else np.abs(x).max(dim, keepdims=True)
    largest = 448 if format == "e4m3" else 57344
    scale = (largest / np.maximum(amax.astype(np.float64), 1e-12)).astype(np.float32)
    if recipe != "tensorwise":
        scale = np.exp2(np.floor(np.log2(scale))).astype(np.float32)
    return fp8lab.encode(x * scale, format), scale


def product(a, b, recipe, fast, formats=("e4m3", "e4m3")):
    """(M, K) and (N, K) with their scales, to bfloat16, as torchao 0.18 composes it."""
    (left, of_left), (right, of_right) = a, b
    sums = torch.from_numpy(fp8lab.gemm(left, right, model="hopper_wgmma_fp8", promote_k=None if fast else 128, format_a=formats[0], format_b=formats[1]))  # fmt: skip
    of_left, of_right = (1 / torch.from_numpy(np.asarray(one, np.float32)) for one in (of_left, of_right))
    if recipe == "tensorwise":
        return (sums * (of_left * of_right)).bfloat16()
    of_right = of_right.view(1, -1)
    if fast:
        return (sums * of_right * of_left).bfloat16()
    return (sums.bfloat16() * (of_left * of_right)).bfloat16()  # torchao multiplies after the GEMM, in place


@pytest.mark.parametrize("name", ["tensorwise", "rowwise"])
def test_torchao_trains_with_the_bits_of_its_composition(name):
    float8 = pytest.importorskip("torchao.float8")
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 96, bias=False), torch.nn.ReLU(), torch.nn.Linear(96, 32, bias=False)
    ).bfloat16()
    config = float8.Float8LinearConfig.from_recipe_name(name)
    with fp8lab.torch.emulate("h100"):
        float8.convert_to_float8_training(model, config=config)
        assert type(model[0]).__name__ == "Float8Linear"
        for step in range(2):
            x = drawn(48, 64, step).bfloat16().requires_grad_()
            dy = drawn(48, 32, 10 + step, 1e-2).bfloat16()
            hidden = model[0](x)
            hidden.retain_grad()
            y = model[2](torch.relu(hidden))
            model.zero_grad()
            y.backward(dy)
            active = torch.relu(hidden.detach())
            dh = check_layer(active, model[2].weight, y, dy, model[2].weight.grad, None, name, config)
            dh = torch.where(hidden > 0, dh, 0)
            assert words_of(hidden.grad) == words_of(dh)
            check_layer(x, model[0].weight, hidden, dh, model[0].weight.grad, x.grad, name, config)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.5 * parameter.grad


def check_layer(x, w, y, dy, dw, dx, name, config):
    of_gradient = "e5m2" if name == "tensorwise" else "e4m3"
    row = {"x": cast(x, "e4m3", name, 1), "w": cast(w, "e4m3", name, 1), "dy": cast(dy, of_gradient, name, 1)}
    column = {"x": cast(x, "e4m3", name, 0), "w": cast(w, "e4m3", name, 0), "dy": cast(dy, of_gradient, name, 0)}
    turned = {key: (np.ascontiguousarray(one.T), scale.T) for key, (one, scale) in column.items()}
    fast = [
        one.use_fast_accum
        for one in (config.gemm_config_output, config.gemm_config_grad_input, config.gemm_config_grad_weight)
    ]
    assert words_of(y) == words_of(product(row["x"], row["w"], name, fast[0]))
    expected = product(row["dy"], turned["w"], name, fast[1], (of_gradient, "e4m3"))
    if dx is not None:
        assert words_of(dx) == words_of(expected)
    assert words_of(dw) == words_of(product(turned["dy"], turned["x"], name, fast[2], (of_gradient, "e4m3")))
    return expected


def test_torchao_is_told_the_capability_of_the_device():
    utils = pytest.importorskip("torchao.utils")
    before = bool(utils.is_sm_at_least_89())
    for name, expected in (("l4", (True, False, False)), ("h100", (True, True, False)), ("b200", (True, True, True))):
        with fp8lab.torch.emulate(name):
            told = (utils.is_sm_at_least_89(), utils.is_sm_at_least_90(), utils.is_sm_at_least_100())
            assert tuple(map(bool, told)) == expected
    assert bool(utils.is_sm_at_least_89()) is before


# --- what is refused --------------------------------------------------------------------------------------------------


def test_one_device_at_a_time():
    with pytest.raises(ValueError, match="unknown device 'h1000'"):
        fp8lab.torch.emulate("h1000")
    with pytest.raises(TypeError, match="device"):
        fp8lab.torch.emulate(90)
    with fp8lab.torch.emulate("h100"):
        with pytest.raises(RuntimeError, match="h100 is emulated already: deactivate that first, then b200"):
            fp8lab.torch.emulate("b200")
        from fp8lab.te import activate

        with pytest.raises(RuntimeError, match=r"fp8lab\.torch emulates h100 already"):
            activate("h100")


def test_under_fp8lab_te_it_is_refused(monkeypatch):
    from types import SimpleNamespace

    from fp8lab.te import _activation, find_device

    monkeypatch.setattr(_activation, "_ACTIVATION", SimpleNamespace(is_active=True, device=find_device("l4")))
    with pytest.raises(RuntimeError, match=r"fp8lab\.te emulates l4 already, and computes torch\._scaled_mm for it"):
        fp8lab.torch.emulate("l4")


def test_fp8lab_te_computes_it_by_the_same_code(monkeypatch):
    from fp8lab.te import find_device, gemm

    monkeypatch.setattr(gemm, "active_device", lambda: find_device("h100"))
    a, b = quantized(32, 256, 1), quantized(16, 256, 2)
    of_a, of_b = drawn(32, 1, 3).abs(), drawn(1, 16, 4).abs()
    with fp8lab.torch.emulate("h100"):
        expected = torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b, out_dtype=torch.bfloat16)
        rowwise = torch.nn.functional.ScalingType.RowWise
        second = torch.nn.functional.scaled_mm(a, b.t(), of_a, rowwise, of_b, rowwise)
    assert words_of(gemm.scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b)) == words_of(expected) == words_of(second)


A, B, ONE = quantized(32, 64, 1), quantized(16, 64, 2), torch.ones(())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch._scaled_mm(A, B.t()[:32], scale_a=ONE, scale_b=ONE), r"cannot multiply \(32, 64\) and \(32, 16\)"),
        (lambda: torch._scaled_mm(A, B.t().contiguous(), scale_a=ONE, scale_b=ONE), "a column-major second matrix"),
        (lambda: torch._scaled_mm(A[:, :24], B[:, :24].t(), scale_a=ONE, scale_b=ONE), "K that is a multiple of 16, not 24"),
        (lambda: torch._scaled_mm(A, B[:8].t(), scale_a=ONE, scale_b=ONE), "N that is a multiple of 16, not 8"),
        (lambda: torch._scaled_mm(A.float(), B.t(), scale_a=ONE, scale_b=ONE), "takes float8_e4m3fn, float8_e5m2 and"),
        (lambda: torch._scaled_mm(A.view(E5M2), B.view(E5M2).t(), scale_a=ONE, scale_b=ONE), "does not multiply float8_e5m2 by"),
        (lambda: torch._scaled_mm(A, B.t(), scale_a=ONE.double(), scale_b=ONE), "scale_a must be float32"),
        (lambda: torch._scaled_mm(A, B.t(), scale_a=torch.ones(5), scale_b=ONE), "scale_a must be float32"),
        (lambda: torch._scaled_mm(A, B.t(), scale_a=torch.ones(32, 1), scale_b=ONE), "no scales of row for the first and of tensor"),
        (lambda: torch._scaled_mm(A, B.t(), scale_a=ONE, scale_b=ONE, out_dtype=torch.float64), "not torch.float64"),
        (lambda: torch._scaled_mm(A, B.t(), scale_a=ONE, scale_b=ONE, out_dtype=torch.float32, bias=torch.ones(16).bfloat16()), "and float32 has none"),
        (lambda: torch._scaled_mm(A, B.t(), scale_a=ONE, scale_b=ONE, out_dtype=torch.float16, bias=torch.ones(16).bfloat16()), "a bias in torch.bfloat16 does not go with a result in torch.float16"),
        (lambda: torch._scaled_mm(A, B.t(), scale_a=torch.ones(32, 2)[:, :1], scale_b=torch.ones(1, 16)), "scale_a must be float32"),
        (lambda: torch.nn.functional.scaled_mm(A, B.t(), torch.ones(512).to(torch.float8_e8m0fnu), torch.nn.functional.ScalingType.BlockWise1x32, torch.ones(512).to(torch.float8_e8m0fnu), torch.nn.functional.ScalingType.BlockWise1x32), "must be swizzled"),
        (lambda: torch._scaled_mm(A, B.t(), scale_a=ONE, scale_b=ONE, out_dtype=torch.bfloat16, bias=torch.ones(8).bfloat16()), "bias must have 16 elements"),
        (lambda: torch.nn.functional.scaled_grouped_mm(A, B.t().unsqueeze(0), torch.ones(32), torch.nn.functional.ScalingType.RowWise, torch.ones(1, 16), torch.nn.functional.ScalingType.RowWise, offs=torch.tensor([32], dtype=torch.int32)), "scaled_grouped_mm is not provided by"),
        (lambda: torch._scaled_grouped_mm(A, B.t(), torch.ones(32), torch.ones(16)), "takes offs where a matrix has 2 dimensions"),
        (lambda: torch._scaled_grouped_mm(A, B.t().unsqueeze(0), torch.ones(32), torch.ones(1, 16), offs=torch.tensor([99], dtype=torch.int32)), "must ascend to at most 32"),
        (lambda: torch._scaled_grouped_mm(A, B.t().unsqueeze(0), torch.ones(31), torch.ones(1, 16), offs=torch.tensor([32], dtype=torch.int32)), "takes float32 scales, 32"),
    ],
)  # fmt: skip
def test_what_a_gpu_refuses_is_refused(call, message):
    with fp8lab.torch.emulate("h100"), pytest.raises((RuntimeError, ValueError, NotImplementedError), match=message):
        call()
