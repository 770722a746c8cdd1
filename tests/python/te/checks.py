# SPDX-License-Identifier: Apache-2.0
"""What a program sees under ``python -m fp8lab.te``: one function a claim, run by ``inside.py`` in a process per device.

What Transformer Engine's modules compute is compared with fp8lab's own layers and state, which are tested apart.
"""

import dataclasses
import io
import itertools
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np

DTYPES = ("bfloat16", "float16", "float32")
SHAPE = (64, 96, 160)  # tokens, in, out


def words(tensor) -> bytes:
    """Every bit of a tensor or array."""
    import torch

    if isinstance(tensor, torch.Tensor):
        tensor = tensor.detach().contiguous()
        tensor = tensor.view(torch.int16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
    return np.ascontiguousarray(tensor).tobytes()


def drawn(step: int, rows: int, columns: int, dtype: str, size: float = 1.0):
    """A matrix of normal values, some of them outliers, as torch and as fp8lab take it."""
    import torch

    values = np.random.default_rng([step, rows, columns]).standard_normal((rows, columns)).astype(np.float32)
    values[::7, ::5] *= 20
    return torch.from_numpy(values * np.float32(size)).to(getattr(torch, dtype))


def with_type(recipe: str, dtype: str, dy=None):
    """The linear recipe for activations of that type; with another cast of dy where given."""
    import fp8lab

    named = next(one.recipe for one in fp8lab.linear_recipes() if one.name == recipe)

    def gemm(one, output=None, **casts):
        casts = {"a": one.a, "b": one.b, **casts}
        return fp8lab.LinearGemm(one.recipe, casts["a"], casts["b"], output=output)

    of_dy = {} if dy is None else {"a": dy}
    return dataclasses.replace(
        named, fprop=gemm(named.fprop, dtype), dgrad=gemm(named.dgrad, dtype, **of_dy), wgrad=gemm(named.wgrad, **of_dy)
    )


def autocast(recipe, **options):
    """The context of an FP8 region, by the name that the installed release has for it."""
    import transformer_engine.pytorch as te

    if hasattr(te, "autocast"):
        return te.autocast(recipe=recipe, **options)
    return te.fp8_autocast(enabled=True, fp8_recipe=recipe, **options)


def compare_linear(
    te_recipe, recipe: str, dtype: str, steps: int = 3, bias: bool = True, delayed=None, dy=None
) -> None:
    """te.Linear under a recipe against Fp8State: y, dx, dw and db of each step, every bit.

    Under block scaling and NVFP4 Transformer Engine's Python has PyTorch sum the bias's gradient.
    """
    import fp8lab
    import torch
    import transformer_engine.pytorch as te

    tokens, inputs, outputs = SHAPE if "nvfp4" not in recipe else (64, 128, 192)
    layer = te.Linear(inputs, outputs, bias=bias, params_dtype=getattr(torch, dtype))
    with torch.no_grad():
        layer.weight.copy_(drawn(99, outputs, inputs, dtype, 0.05))
        if bias:
            layer.bias.copy_(drawn(98, 1, outputs, dtype)[0])
    state, linear = fp8lab.Fp8State(layers=1), with_type(recipe, dtype, dy)
    for step in range(steps):
        x = drawn(step, tokens, inputs, dtype, step + 1).requires_grad_()
        gradient = drawn(step + 50, tokens, outputs, dtype, 1e-3)
        layer.zero_grad()
        with autocast(te_recipe):
            y = layer(x)
        y.backward(gradient)
        with state.autocast(linear, delayed=delayed):
            call = state.forward(0, x, layer.weight, layer.bias if bias else None)
        dx, dw = state.backward(call, gradient)
        expected_dw = torch.from_numpy(dw).to(layer.weight.dtype)
        assert y.dtype == x.dtype and words(y) == words(call.y), f"y of step {step}"
        assert words(x.grad) == words(dx), f"dx of step {step}"
        assert words(layer.weight.grad) == words(expected_dw), f"dw of step {step}"
        if bias:
            by_torch = "block" in recipe or "nvfp4" in recipe
            sums = gradient.sum(0) if by_torch else torch.from_numpy(fp8lab.linear_bias_gradient(gradient))
            expected = sums.to(layer.bias.dtype)
            assert words(layer.bias.grad) == words(expected), f"db of step {step}"


def recipes():
    from transformer_engine.common import recipe

    return recipe


# --- on an H100 -------------------------------------------------------------------------------------------------------


def linear_under_delayed_scaling(dtype: str) -> None:
    import fp8lab

    compare_linear(
        recipes().DelayedScaling(amax_history_len=3), "te_delayed_hopper", dtype, steps=5,
        delayed=fp8lab.Delayed(amax_history_len=3),
    )  # fmt: skip


def linear_under_current_scaling(dtype: str) -> None:
    compare_linear(recipes().Float8CurrentScaling(), "te_current_scaling_hopper", dtype)


def linear_under_block_scaling(dtype: str) -> None:
    compare_linear(recipes().Float8BlockScaling(), "te_block_hopper", dtype)


def linear_without_bias() -> None:
    compare_linear(recipes().Float8CurrentScaling(), "te_current_scaling_hopper", "bfloat16", bias=False)


def linear_in_high_precision() -> None:
    """Outside of autocast the GEMMs are those of the device's tensor cores: fp32 runs as TF32."""
    import fp8lab
    import torch
    import transformer_engine.pytorch as te

    for recipe, dtype in (("bf16_hopper", "bfloat16"), ("tf32_hopper", "float32")):
        tokens, inputs, outputs = SHAPE
        layer = te.Linear(inputs, outputs, bias=False, params_dtype=getattr(torch, dtype))
        x, gradient = drawn(1, tokens, inputs, dtype).requires_grad_(), drawn(2, tokens, outputs, dtype)
        y = layer(x)
        y.backward(gradient)
        assert words(y) == words(fp8lab.linear(x, layer.weight, recipe=recipe)), f"y in {dtype}"
        assert words(x.grad) == words(fp8lab.linear_dgrad(gradient, layer.weight, recipe=recipe)), f"dx in {dtype}"
        dw = torch.from_numpy(fp8lab.linear_wgrad(gradient, x, recipe=recipe)).to(x.dtype)
        assert words(layer.weight.grad) == words(dw), f"dw in {dtype}"


def gradients_accumulate_into_main_grad() -> None:
    """Microbatches: the weight is quantized once, and wgrad adds to a float32 main_grad in its GEMM."""
    import fp8lab
    import torch
    import transformer_engine.pytorch as te

    tokens, inputs, outputs = SHAPE
    layer = te.Linear(inputs, outputs, bias=False, params_dtype=torch.bfloat16, fuse_wgrad_accumulation=True)
    layer.weight.main_grad = torch.zeros(outputs, inputs)
    state, linear = fp8lab.Fp8State(layers=1), with_type("te_current_scaling_hopper", "bfloat16")
    expected = np.zeros((outputs, inputs), np.float32)
    for step in range(3):
        x = drawn(step, tokens, inputs, "bfloat16").requires_grad_()
        gradient = drawn(step + 50, tokens, outputs, "bfloat16")
        with te.autocast(recipe=recipes().Float8CurrentScaling()):
            y = layer(x, is_first_microbatch=step == 0)
        y.backward(gradient)
        with state.autocast(linear):
            call = state.forward(0, x, layer.weight, is_first_microbatch=step == 0)
        if step == 0:
            expected = state.backward(call, gradient).dw
        else:
            state.backward(call, gradient, main_grad=expected)
        assert words(y) == words(call.y), f"y of microbatch {step}"
        assert words(layer.weight.main_grad) == words(expected), f"main_grad after microbatch {step}"


class AllowedUnpickler(pickle.Unpickler):
    """Of what an ``_extra_state`` is made of, and of nothing else."""

    ALLOWED = {
        "collections": {"OrderedDict"},
        "torch._utils": {"_rebuild_tensor_v2"},
        "torch.storage": {"_load_from_bytes"},
        "transformer_engine.common.recipe": {"DelayedScaling", "Format", "_FormatHelper", "_OverrideLinearPrecision"},
    }

    def find_class(self, module: str, name: str):
        if name not in self.ALLOWED.get(module, set()):
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return super().find_class(module, name)


def unpickled(extra_state) -> dict:
    """What a module's ``_extra_state`` says, as bytes in a tensor or as Transformer Engine 1's file."""
    import torch

    if isinstance(extra_state, io.BytesIO):
        extra_state.seek(0)
        return torch.load(extra_state, weights_only=True)
    return AllowedUnpickler(io.BytesIO(extra_state.numpy().tobytes())).load()


#: The columns of the extension's tensors that a Linear's x, w and dy have.
COLUMNS = {"x": ("fwd", 0), "w": ("fwd", 1), "dy": ("bwd", 0)}


def as_extra_state(arrays: dict, recipe=None):
    """The ``_extra_state`` of a layer of an ``Fp8State``: bytes in a tensor, as Transformer Engine 2 has it, or without a recipe the
    file of Transformer Engine 1."""
    import torch

    extra = {"num_gemms": 1, "fp8_checkpoint": True, "fp8_max_fwd": 448.0, "fp8_max_bwd": 57344.0}
    state: dict = {"extra_fp8_variables": extra, **({} if recipe is None else {"recipe": recipe})}
    length = len(arrays["0.x.amax_history"])
    for side, columns in (("fwd", 3), ("bwd", 2)):
        for name, shape in (("scale", (columns,)), ("scale_inv", (columns,)), ("amax_history", (length, columns))):
            state[f"{name}_{side}"] = torch.zeros(shape) if name == "amax_history" else torch.ones(shape)
            for tensor, (of, column) in COLUMNS.items():
                if of == side:
                    state[f"{name}_{side}"][..., column] = torch.from_numpy(np.asarray(arrays[f"0.{tensor}.{name}"]))
    if recipe is not None:
        return torch.frombuffer(bytearray(pickle.dumps(state)), dtype=torch.uint8)
    file = io.BytesIO()
    torch.save(state, file)
    return file


def the_extra_state_goes_both_ways(form: str) -> None:
    """A layer's ``_extra_state`` has Fp8State's scales and histories; one that is made of these continues with the same bits.

    The first form names no recipe: Transformer Engine 2 reads it as its default, which has 1024 amaxes.
    """
    import fp8lab
    import torch
    import transformer_engine.pytorch as te

    facts = {"amax_history_len": 1024 if form == "first" else 4, "amax_compute_algo": "max"}
    recipe, delayed = recipes().DelayedScaling(**facts), fp8lab.Delayed(**facts)
    tokens, inputs, outputs = SHAPE
    layers = [te.Linear(inputs, outputs, bias=False, params_dtype=torch.float32) for _ in range(2)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(drawn(99, outputs, inputs, "float32", 0.05))
    state, linear = fp8lab.Fp8State(layers=1), with_type("te_delayed_hopper", "float32")

    def step(number: int, layer):
        x = drawn(number, tokens, inputs, "float32", number + 1).requires_grad_()
        with autocast(recipe):
            y = layer(x)
        y.backward(drawn(number + 50, tokens, outputs, "float32", 1e-3))
        return words(y), words(x.grad)

    for number in range(3):
        step(number, layers[0])
        with state.autocast(linear, delayed=delayed):
            call = state.forward(0, drawn(number, tokens, inputs, "float32", number + 1), layers[0].weight.detach())
        state.backward(call, drawn(number + 50, tokens, outputs, "float32", 1e-3))
    arrays, written = state.arrays(), unpickled(layers[0].get_extra_state())
    for tensor, (side, column) in COLUMNS.items():
        for name in ("scale", "amax_history"):
            own, theirs = np.asarray(arrays[f"0.{tensor}.{name}"]), written[f"{name}_{side}"][..., column].numpy()
            assert words(own) == words(theirs), (tensor, name, own, theirs)
    os.environ["NVTE_ALLOW_UNSAFE_PICKLE_EXTRA_STATE"] = "1"
    layers[1].set_extra_state(as_extra_state(arrays, None if form == "first" else recipe))
    assert step(3, layers[0]) == step(3, layers[1])


def a_noop_flag_leaves_all_as_it_is() -> None:
    import torch
    import transformer_engine.pytorch as te
    import transformer_engine_torch as tex

    scale, amax = torch.full((1,), 2.0), torch.zeros(1)
    quantizer = te.Float8Quantizer(scale, amax, tex.DType.kFloat8E4M3)
    kept = quantizer(drawn(1, 32, 32, "float32"))
    before = [words(kept._data), words(kept._transpose), words(kept._scale_inv), words(amax)]
    tex.quantize(drawn(2, 32, 32, "float32") * 100, quantizer, kept, torch.ones(1))
    assert before == [words(kept._data), words(kept._transpose), words(kept._scale_inv), words(amax)]
    tex.quantize(drawn(2, 32, 32, "float32") * 100, quantizer, kept, torch.zeros(1))
    assert before != [words(kept._data), words(kept._transpose), words(kept._scale_inv), words(amax)]


def packed_sequences_move_as_they_should() -> None:
    """Of small examples that were worked out by hand: two sequences of 4 and 8 tokens, and pages of two tokens."""
    import torch
    import transformer_engine_torch as tex

    ends = torch.tensor([0, 4, 12], dtype=torch.int32)
    tokens = torch.arange(12.0).repeat(4, 1).t().contiguous()
    # On two ranks a sequence has four chunks: rank 0 has the first one and the last one.
    of_ranks = [[0, 3, 4, 5, 10, 11], [1, 2, 6, 7, 8, 9]]
    for rank, wanted in enumerate(of_ranks):
        found = tex.thd_get_partitioned_indices(ends, 12, 2, rank)
        assert found.tolist() == wanted and found.dtype == torch.int32
    in_ranks = tex.thd_sequence_order_to_cp_rank_order(tokens, ends, 2, 12)
    assert in_ranks[:, 0].tolist() == of_ranks[0] + of_ranks[1]
    assert torch.equal(tex.thd_cp_rank_order_to_sequence_order(in_ranks, ends, 2, 12), tokens)
    by_head = tokens.view(12, 2, 2)
    for half, wanted in ((0, [0, 1, 4, 5, 6, 7]), (1, [2, 3, 8, 9, 10, 11])):
        assert tex.thd_read_half_tensor(by_head, ends, half)[:, 0, 0].tolist() == wanted
        both = tex.thd_read_half_tensor(torch.stack((by_head, -by_head)), ends, half)
        assert both[1, :, 1, 1].tolist() == [-one for one in wanted]
    packed = tex.thd_read_second_half_lse(torch.arange(24.0).view(2, 12), ends, True, 7)
    assert packed.tolist() == [[2, 3, 8, 9, 10, 11, 0], [14, 15, 20, 21, 22, 23, 0]]
    padded = tex.thd_read_second_half_lse(torch.arange(16.0).view(2, 1, 8), ends, False, 4)
    assert padded.tolist() == [[[2, 3, 0, 0]], [[12, 13, 14, 15]]]
    out = torch.full_like(tokens, -1)
    tex.thd_copy_valid_tokens_from_per_split_to_rank_local(
        out, tokens, ends, torch.tensor([0, 3, 5], dtype=torch.int32)
    )
    assert out[:, 0].tolist() == [0, 1, 2, -1, 4, 5, -1, -1, -1, -1, -1, -1]
    rows = tex.convert_thd_to_bshd(by_head, ends, 2, 9)
    assert rows[:, :, 0, 0].tolist() == [[0, 1, 2, 3, 0, 0, 0, 0, 0], [4, 5, 6, 7, 8, 9, 10, 11, 0]]
    assert torch.equal(tex.convert_bshd_to_thd(rows, ends, 12), by_head)


def new_tokens_go_to_the_cache() -> None:
    """In pages, and by the place of a sequence, of each layout; the caches were worked out by hand."""
    import torch
    import transformer_engine_torch as tex

    def added(layout, new, cache, table, is_non_paged, sizes):
        """Two sequences have 1 and 2 earlier tokens, and 2 and 1 new ones: 10, 11 and 20. 99 is padding."""
        keys = torch.tensor(new).view(*sizes, 1, 1).to(torch.bfloat16)
        cached = torch.tensor(cache).unsqueeze(-1).unsqueeze(-1).to(torch.bfloat16)
        values = -cached.clone()
        tex.copy_to_kv_cache(
            keys, -keys, cached, values, torch.tensor(table, dtype=torch.int32),
            torch.tensor([0, 2, 3], dtype=torch.int32), torch.tensor([0, 3, 6], dtype=torch.int32),
            getattr(tex.NVTE_QKV_Format, f"NVTE_{layout}"), 2, 2, 4, 1 if len(cache[0]) == 4 else 2, is_non_paged,
        )  # fmt: skip
        assert torch.equal(values, -cached)
        return cached[:, :, 0, 0].tolist()

    layouts = {"BSHD": ([10, 11, 20, 99], (2, 2)), "SBHD": ([10, 20, 11, 99], (2, 2)), "THD": ([10, 11, 20], (3,))}
    for layout, (new, sizes) in layouts.items():
        pages = [[0, 0], [2, 3], [0, 0], [1, 0]]  # the first sequence is in pages 3 and 0, the second one in 1 and 2
        found = added(layout, new, pages, [[3, 0], [1, 2]], False, sizes)
        assert found == [[11, 0], [2, 3], [20, 0], [1, 10]], (layout, found)
        places = [[7, 7, 7, 7], [1, 0, 0, 0], [2, 3, 0, 0]]  # they were the second and the third sequence
        found = added(layout, new, places, [1, 2], True, sizes)
        assert found == [[1, 10, 11, 7], [2, 3, 20, 0], [2, 3, 0, 0]], (layout, found)


def programs_may_ask_for_the_gpu_in_other_ways() -> None:
    """By a default device, generators, types of tensors, events, profilers; what PyTorch gives in tuples is there, too."""
    import fp8lab
    import torch
    from fp8lab.te import _mode

    facts = {"sms": torch.cuda.get_device_properties(0).multi_processor_count, "blocks_per_sm": 8}
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator) and isinstance(torch.Generator(), torch.Generator)
    found = torch.rand(40, device="cuda", generator=generator)
    assert words(found) == words(fp8lab.torch_cuda_uniform(40, seed=3, **facts))
    torch.set_default_device("cuda")
    try:
        assert torch.get_default_device() == torch.device("cuda", 0)
        torch.manual_seed(5)
        assert words(torch.rand(40)) == words(fp8lab.torch_cuda_uniform(40, seed=5, **facts))
        assert _mode.is_on_gpu(torch.zeros(3)) and _mode.is_on_cpu(torch.zeros(3, device="cpu"))
    finally:
        torch.set_default_device(None)
    assert torch.get_default_device() == torch.device("cpu") and not _mode.is_on_gpu(torch.zeros(3))
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    assert _mode.is_on_gpu(torch.zeros(3)) and torch.zeros(3).dtype is torch.float32
    torch.set_default_tensor_type(torch.FloatTensor)
    assert not _mode.is_on_gpu(torch.zeros(3))
    halves = torch.cuda.HalfTensor([1, 2])
    assert _mode.is_on_gpu(halves) and halves.dtype is torch.float16
    moved = torch.zeros(3).type(torch.cuda.FloatTensor)
    assert _mode.is_on_gpu(moved) and _mode.is_on_gpu(torch.zeros(3).type("torch.cuda.LongTensor"))
    assert torch.zeros(3).type() == "torch.FloatTensor" and torch.zeros(3).type(torch.int8).dtype is torch.int8
    assert torch.equal(torch.range(0, 3, device=0), torch.arange(4.0)) and _mode.is_on_gpu(torch.range(0, 3, device=0))
    weight = torch.ones(4, 2, device="cuda", requires_grad=True)
    several = (*weight.max(0), *weight.split(2), *torch.autograd.grad((2 * weight).sum(), weight))
    assert len(several) == 5 and all(_mode.is_on_gpu(one) for one in several)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.cuda.current_stream().record_event(end)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert 0 <= begin.elapsed_time(end) < 1e5 and 0 <= begin.elapsed_time(end) < 1e5
    assert len(told) == 1 and "time of the CPU" in str(told[0].message)
    torch.cuda.cudart().cudaProfilerStart()
    torch.cuda.profiler.stop()
    for refused, call in (
        ("memory_snapshot", torch.cuda.memory_snapshot),
        ("current_blas_handle", torch.cuda.current_blas_handle),
    ):
        try:
            call()
            raise AssertionError(refused)
        except NotImplementedError as error:
            assert f"{refused} is not provided by fp8lab.te" in str(error)


def draws_on_cuda_are_the_gpus() -> None:
    """rand, randn, uniform_, normal_ and what is made of them, one after the other from one seed."""
    import fp8lab
    import torch

    facts = {"seed": 12345, "sms": 132, "blocks_per_sm": 8}
    torch.manual_seed(12345)
    first = torch.rand(300, 7, device="cuda")
    assert words(first) == words(fp8lab.torch_cuda_uniform((300, 7), offset=0, **facts))
    second = torch.randn(1000, device=torch.device("cuda"))
    assert words(second) == words(fp8lab.torch_cuda_normal(1000, offset=4, **facts))
    third = torch.empty(50, 20, device="cuda").normal_(1.0, 0.5)
    assert words(third) == words(fp8lab.torch_cuda_normal((50, 20), mean=1.0, std=0.5, offset=8, **facts))
    fourth = torch.nn.init.uniform_(torch.empty(64, device="cuda", dtype=torch.bfloat16))
    drawn_ones = torch.from_numpy(fp8lab.torch_cuda_uniform(64, offset=12, **facts)).bfloat16()
    assert words(fourth) == words(torch.where(drawn_ones == 1, torch.zeros(()).bfloat16(), drawn_ones))
    many = torch.rand(
        3 * 132 * 8 * 256 * 4, device="cuda"
    )  # three numbers a thread and round, so the offset moves by 12
    assert words(many) == words(fp8lab.torch_cuda_uniform(many.numel(), offset=16, **facts))
    assert words(torch.rand(5, device="cuda")) == words(fp8lab.torch_cuda_uniform(5, offset=28, **facts))


def a_uniform_draw_has_bounds_of_its_type() -> None:
    """kaiming_uniform_ as torch.nn.Linear has it, and PyTorch's own words about bounds that will not do."""
    import fp8lab
    import torch

    bound = 48**-0.5
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        torch.cuda.manual_seed(7)
        weight = torch.nn.Linear(48, 40, device="cuda", dtype=dtype).weight
        name = str(dtype).removeprefix("torch.")
        drawn_ones = fp8lab.torch_cuda_uniform((40, 48), low=-bound, high=bound, dtype=name, seed=7, sms=132)
        assert words(weight) == words(drawn_ones), dtype
    for low, high in ((2.0, 1.0), (0.0, 1e39), (-1e5, float("nan"))):
        told = []
        for device in ("cpu", "cuda"):
            try:
                torch.empty(3, device=device).uniform_(low, high)
            except RuntimeError as error:
                told.append(str(error))
        assert len(told) == 2 and told[0] == told[1], told


def a_modules_weights_are_the_gpus() -> None:
    import fp8lab
    import torch
    import transformer_engine.pytorch as te

    torch.manual_seed(12345)
    layer = te.Linear(768, 64)
    expected = fp8lab.torch_cuda_normal((64, 768), std=0.023, seed=12345, sms=132)
    assert words(layer.weight) == words(expected)


def the_generators_state_is_kept_and_restored() -> None:
    import torch

    torch.cuda.manual_seed(3)
    torch.rand(10, device="cuda")
    state = torch.cuda.get_rng_state()
    assert state.dtype == torch.uint8 and state.numel() == 16
    first = torch.rand(10, device="cuda")
    torch.cuda.set_rng_state(state)
    assert words(first) == words(torch.rand(10, device="cuda"))
    assert words(first) != words(torch.rand(10, device="cuda"))


def draws_on_the_cpu_are_pytorchs() -> None:
    import fp8lab
    import torch

    torch.manual_seed(5)
    assert words(torch.rand(40)) == words(fp8lab.torch_cpu_uniform(40, seed=5))


def warnings_of(call) -> list[str]:
    """The names of which a call says that their numbers are not the GPU's, though it was said before."""
    from fp8lab.te import _draws

    _draws._WARNED.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
        call()
    return [str(one.message).split()[0] for one in caught if " the emulated GPU" in str(one.message)]


def other_draws_warn_by_name() -> None:
    import torch
    from torch.nn import functional

    on_gpu = torch.full((4, 8), 0.5, device="cuda")
    batch = torch.ones(1, 1, 4, 8, device="cuda")
    lstm = torch.nn.LSTM(8, 8, 2, dropout=0.5)
    attention = torch.nn.MultiheadAttention(8, 1, dropout=0.5)
    for name, call in {
        "dropout": lambda: functional.dropout(on_gpu, 0.5),
        "alpha_dropout": lambda: torch.alpha_dropout(on_gpu, 0.5, True),
        "native_dropout": lambda: torch.native_dropout(on_gpu, 0.5, True),
        "randperm": lambda: torch.randperm(8, device="cuda"),
        "randint_like": lambda: torch.randint_like(on_gpu, 5),
        "exponential_": lambda: torch.empty(8, device="cuda").exponential_(),
        "poisson": lambda: torch.poisson(on_gpu),
        "bernoulli": lambda: (on_gpu * 0.5).bernoulli(),  # of what PyTorch computed
        "multinomial": lambda: torch.distributions.Categorical(on_gpu).sample(),
        "gumbel_softmax": lambda: functional.gumbel_softmax(on_gpu),
        "rrelu": lambda: functional.rrelu(on_gpu, training=True),
        "scaled_dot_product_attention": lambda: functional.scaled_dot_product_attention(batch, batch, batch, None, 0.5),
        "lstm": lambda: lstm(on_gpu),
        "multi_head_attention_forward": lambda: attention(on_gpu, on_gpu, on_gpu),
        "orthogonal_": lambda: torch.nn.init.orthogonal_(torch.empty(4, 4, device="cuda")),
    }.items():
        assert warnings_of(call) == [name], (name, warnings_of(call))
    for silent in (
        lambda: functional.dropout(on_gpu, 0.5, training=False),
        lambda: torch.dropout(on_gpu, 0.0, True),
        lambda: functional.rrelu(on_gpu),
        lambda: functional.scaled_dot_product_attention(batch, batch, batch),
        lambda: lstm.eval()(on_gpu),
        lambda: torch.nn.LSTM(8, 8, 1).train()(on_gpu),
        lambda: attention.eval()(on_gpu, on_gpu, on_gpu),
        lambda: torch.bernoulli(torch.full((4,), 0.5)),
        lambda: torch.randint_like(on_gpu, 5, device="cpu"),
        lambda: torch.nn.init.orthogonal_(torch.empty(4, 4)),
        lambda: torch.nn.init.trunc_normal_(on_gpu.clone()),
    ):
        assert warnings_of(silent) == []


def draws_beside_what_was_computed_are_the_gpus() -> None:
    """A draw of the form of a tensor that PyTorch or a module computed on the GPU takes the GPU's numbers."""
    import fp8lab
    import torch
    import transformer_engine.pytorch as te

    x = torch.randn(32, 64, device="cuda")
    layer = te.Linear(64, 64)
    for computed in (2 * x, torch.nn.functional.gelu(x), x.double().float(), layer(x).detach(), te.LayerNorm(64)(x)):
        drawn_on = []
        for like in (x, computed):
            torch.cuda.manual_seed(5)
            drawn_on.append((words(torch.randn_like(like)), words(torch.empty_like(like).uniform_())))
        assert drawn_on[0] == drawn_on[1]
    on_cpu = 2 * x.cpu()
    torch.manual_seed(5)
    assert words(torch.rand_like(on_cpu)) == words(fp8lab.torch_cpu_uniform(32 * 64, seed=5).reshape(32, 64))


def figures_of_memory_have_the_usual_names() -> None:
    import torch

    before = torch.cuda.memory_allocated()
    kept = torch.zeros(1000, device="cuda") + 1
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] >= before + kept.nbytes
    assert torch.cuda.memory_stats()["num_ooms"] == 0 and "Allocated memory" in torch.cuda.memory_summary()


def programs_may_have_functions_compiled() -> None:
    import torch

    x = torch.randn(8, device="cuda", requires_grad=True)
    torch.compile(lambda one: one * 2, backend="aot_eager")(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 8
    largest = torch.compile(lambda one: torch.max(one.view(2, 4), 0), backend="eager", fullgraph=True)
    assert largest(x)[0].tolist() == x.detach().view(2, 4).amax(0).tolist()  # which the compiler reads our code for


def a_last_block_of_tokens_may_be_short() -> None:
    """48 tokens have one block of 32 and half of one: the gradient of the weight is that of 64, of which 16 are zeros."""
    import torch
    import transformer_engine.pytorch as te
    from transformer_engine.common import recipe

    gradients = []
    x, dy = drawn(1, 64, 32, "bfloat16"), drawn(2, 64, 48, "bfloat16")
    x[48:], dy[48:] = 0, 0
    for tokens in (48, 64):
        layer = te.Linear(32, 48, bias=False, params_dtype=torch.bfloat16)
        with te.autocast(recipe=recipe.Float8BlockScaling()):
            y = layer(x[:tokens])
        y.backward(dy[:tokens])
        gradients.append(words(layer.weight.grad))
    assert gradients[0] == gradients[1]


def modules_with_quantized_weights_move() -> None:
    """Module.to() names a device, no type, and more."""
    import torch
    import transformer_engine.pytorch as te
    from transformer_engine.common import recipe

    with te.quantized_model_init(recipe=recipe.Float8CurrentScaling()):
        layer = te.Linear(32, 48, bias=False, params_dtype=torch.bfloat16, device="cuda")
    before = words(layer.weight.dequantize())
    for device in ("cuda", torch.device("cuda", 0), 0, "cpu", "cuda"):
        moved = layer.to(device, non_blocking=True)
        assert type(moved.weight.data).__name__ == "Float8Tensor" and words(moved.weight.dequantize()) == before
    assert layer.to("cuda", torch.bfloat16).weight.dtype is torch.bfloat16


def tensors_move_as_copies() -> None:
    import torch

    on_cpu = torch.zeros(4)
    on_gpu = on_cpu.cuda()
    on_gpu.add_(1)
    assert on_cpu.tolist() == [0.0] * 4 and on_gpu.tolist() == [1.0] * 4
    assert on_gpu.cuda() is on_gpu and on_gpu.to("cuda").data_ptr() == on_gpu.data_ptr()
    back = on_gpu.cpu()
    back.add_(1)
    assert on_gpu.tolist() == [1.0] * 4
    from fp8lab.te import _mode

    assert (
        _mode.is_on_cpu(on_gpu.to(back))
        and _mode.is_on_gpu(back.to(on_gpu))
        and _mode.is_on_gpu(back.to(tensor=on_gpu))
    )


def hooks_of_a_backward_pass_see_the_device() -> None:
    """A hook may make tensors on the GPU, as offloading to the CPU does."""
    import torch

    made = []
    x = torch.ones(3, device="cuda", requires_grad=True)
    y = 2 * x
    y.register_hook(lambda gradient: made.append(torch.empty_like(gradient, device=torch.device("cuda"))))
    y.sum().backward(retain_graph=True)
    torch.autograd.grad(y.sum(), x)
    assert len(made) == 2 and x.grad.tolist() == [2.0] * 3


def only_transformer_engine_sees_a_gpu() -> None:
    import torch

    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    assert torch.ones(3, device="cuda").device.type == "cpu" and not torch.ones(3, device="cuda").is_cuda
    seen = {"__name__": "transformer_engine.pytorch.example", "torch": torch}
    exec("answers = torch.cuda.is_available(), torch.ones(3).is_cuda, torch.ones(3).device.type", seen)
    assert seen["answers"] == (True, True, "cuda")


def the_device_answers() -> None:
    import fp8lab.te
    import torch
    import transformer_engine.pytorch as te

    device = fp8lab.te.active_device()
    assert torch.cuda.get_device_capability() == device.capability
    assert torch.cuda.get_device_properties(0).multi_processor_count == device.sms
    assert te.is_fp8_available() and te.is_mxfp8_available() == bool(device.mxfp8 and device.arch < 120)


def a_second_device_is_refused() -> None:
    import fp8lab.te

    other = "b200" if fp8lab.te.active_device().name == "h100" else "h100"
    expect(RuntimeError, f"run {other} in a process of its own", lambda: fp8lab.te.activate(other))


def what_is_not_provided_says_so() -> None:
    import torch
    import transformer_engine_torch as tex

    expect(
        NotImplementedError, "cuDNN's attention; Transformer Engine's UnfusedDotProductAttention", tex.fused_attn_fwd
    )
    expect(NotImplementedError, "NCCL and several GPUs", tex.ep_initialize)
    expect(NotImplementedError, "ub_overlap", lambda: tex.CommOverlap())
    expect(NotImplementedError, "there are no CUDA graphs on a CPU", torch.cuda.CUDAGraph)
    from transformer_engine.pytorch.triton.mhc import mhc_fused_scale

    expect(NotImplementedError, "use PyTorch's function", mhc_fused_scale)
    assert not hasattr(tex, "no_such_function")


def wrong_operands_are_named() -> None:
    import torch
    import transformer_engine.pytorch as te
    import transformer_engine_torch as tex

    def gemm(a, b):
        none = torch.empty(0)
        return tex.generic_gemm(a, True, b, False, None, None, tex.DType.kFloat32, None, tex.DType.kBFloat16, False, None, False, none,
                                0, False, False)  # fmt: skip

    half, whole = torch.ones(16, 16, dtype=torch.float16), torch.ones(16, 16)
    expect(ValueError, "both must have one type", lambda: gemm(half, whole))
    quantizer = te.Float8CurrentScalingQuantizer(tex.DType.kFloat8E4M3, device="cuda")
    expect(RuntimeError, "both must be of one kind", lambda: gemm(quantizer(whole), whole))
    expect(TypeError, "quantizer must be one of", lambda: tex.quantize(whole, object()))


def expect(kind: type, text: str, call) -> None:
    try:
        call()
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def every_provided_function_is_there() -> None:
    """The table, the files of the families and the module agree."""
    import importlib

    import fp8lab.te
    import transformer_engine_torch as tex

    for one in fp8lab.te.functions():
        assert bool(one.module) != hasattr(tex, one.name), one.name
        if one.family is not None:
            assert hasattr(importlib.import_module(f"fp8lab.te.{one.family}"), one.name), one
    provided = {one.name for one in fp8lab.te.functions() if one.family is not None}
    for family in {one.family for one in fp8lab.te.functions()} - {None, "enums"}:
        exported = set(importlib.import_module(f"fp8lab.te.{family}").EXPORTED)
        assert exported - provided <= {
            "multi_tensor_quantize", "nvte_built_with_cublasmp", "get_cudnn_version", "pad_columnwise_scale_inv",
            "multi_tensor_swizzle_scales_for_gemm_",
        }, (family, exported - provided)  # fmt: skip


def the_router_is_fp8labs() -> None:
    """Through Transformer Engine's own functions: probabilities, maps, gradients, the auxiliary loss."""
    import torch
    from fp8lab import operators
    from transformer_engine.pytorch import router

    logits = drawn(5, 12, 20, "bfloat16").requires_grad_()
    options = {"score": "sigmoid", "scaling": 1.5}
    for form in ("bytemap", "bitmap_u8", "indices"):
        indices = torch.zeros(12, 3, dtype=torch.int64) if form == "indices" else None
        bias = torch.linspace(-1, 1, 20)
        probs, routing = router.fused_topk_with_score_function(
            logits, 3, False, None, None, 1.5, "sigmoid", bias, "bytemap" if form == "indices" else form, indices
        )
        made = operators.moe_topk(logits.detach(), 3, bias=bias, **options)
        assert words(probs) == words(made.probabilities)
        if form == "indices":
            assert routing is indices and routing.tolist() == made.experts.tolist()
        else:
            assert words(routing) == words(operators.moe_routing_map(made.experts, 20, bits=form != "bytemap"))
        grad = drawn(6, 12, 20, "bfloat16")
        logits.grad = None
        probs.backward(grad)
        given = {"experts": made.experts} if form == "indices" else {"routing": routing.detach()}
        assert words(logits.grad) == words(operators.moe_topk_backward(grad, made.saved, 3, **given, **options))
    table, scores = router.fused_compute_score_for_moe_aux_loss(logits, 3, "softmax")
    assert words(scores) == words(operators.moe_scores(logits.detach(), 3)[0]) and table.sum() == 36
    counts = table.sum(dim=0)
    loss = router.fused_moe_aux_loss(scores, counts, 12, 20, 3, 0.1)
    expected = {"tokens": 12, "experts": 20, "topk": 3, "coefficient": 0.1}
    assert loss.item() == operators.moe_aux_loss(scores.detach(), counts, **expected)[0]
    assert router.fused_moe_aux_loss(scores, counts, torch.tensor(12), 20, 3, 0.1).item() == loss.item()
    loss.backward()
    assert logits.grad.isfinite().all()
    histogram = torch.zeros(20, 4, dtype=torch.int32)
    router.fused_topk_with_score_function(
        logits, 3, False, None, None, None, "sigmoid", bias, qb_histogram=histogram,
        qb_bin_bounds=torch.tensor([-2.0, 2]), qb_histogram_mode="two_kernel",
    )  # fmt: skip
    assert histogram.sum() == 12 * 20


def _routing(tokens: int, experts: int):
    """A mask of two experts a token and none for the first, probabilities of two bits, some of them 0, and whole numbers:
    all that is computed of them is exact."""
    import torch

    generator = np.random.default_rng(3)
    mask = torch.zeros(tokens, experts, dtype=torch.int32)
    for token in range(1, tokens):
        mask[token, torch.from_numpy(generator.choice(experts, 2, replace=False))] = 1
    probs = torch.from_numpy(generator.integers(0, 4, (tokens, experts)).astype(np.float32)) / 4
    whole = lambda *shape: torch.from_numpy(generator.integers(-4, 5, shape).astype(np.float32))
    return mask, probs, whole


def rows_go_to_experts_by_a_mask(dtype: str) -> None:
    """Through Transformer Engine's own functions and their gradients, against indexing and sums of PyTorch."""
    import torch
    import transformer_engine.pytorch as te

    tokens, experts, columns = 50, 6, 40
    mask, probs, whole = _routing(tokens, experts)
    kind = getattr(torch, dtype)
    expert, token = mask.t().nonzero(as_tuple=True)  # by expert, then by token
    count = len(token)
    x, grad = whole(tokens, columns).to(kind), whole(count, columns).to(kind)

    def leaves():
        return x.clone().requires_grad_(), probs.clone().requires_grad_()

    own, expected = leaves()[0], leaves()[0]
    made, rows = te.moe_permute(own, mask, count, map_type="mask")
    wanted = expected[token]
    made.backward(grad)
    wanted.backward(grad)
    assert words(made) == words(wanted) and words(own.grad) == words(expected.grad)
    assert rows.shape == (tokens, 2 * experts + 1) and rows[:, -1].tolist() == mask.sum(dim=1).tolist()

    own, own_probs = leaves()
    made, of_probs, rows = te.moe_permute_with_probs(own, own_probs, mask, count)
    chosen = probs[token, expert]
    assert (chosen == 0).any() and words(of_probs) == words(chosen)
    assert words(made) == words(torch.where(chosen[:, None] == 0, torch.zeros((), dtype=kind), x[token]))
    of_grad = torch.arange(count, dtype=torch.float32)
    torch.autograd.backward([made, of_probs], [grad, of_grad])
    assert words(own.grad) == words(expected.grad)  # of all rows, as the kernel has it
    assert words(own_probs.grad) == words(torch.zeros_like(probs).index_put((token, expert), of_grad))

    permuted = whole(count, columns).to(kind)
    back = whole(tokens, columns).to(kind)
    for with_probs in (False, True):
        given, weights = permuted.clone().requires_grad_(), probs.clone().requires_grad_()
        plain, plain_weights = permuted.clone().requires_grad_(), probs.clone().requires_grad_()
        merged = te.moe_unpermute(
            given, rows, merging_probs=weights if with_probs else None, restore_shape=x.shape, map_type="mask"
        )
        factors = plain_weights[token, expert] if with_probs else torch.ones(count)
        total = torch.zeros(tokens, columns).index_add(0, token, plain.float() * factors[:, None]).to(kind)
        merged.backward(back)
        total.backward(back)
        assert words(merged) == words(total) and words(given.grad) == words(plain.grad)
        if with_probs:
            assert words(weights.grad) == words(plain_weights.grad)


def rows_by_a_mask_are_padded_and_quantized() -> None:
    """With offsets of experts, of FP8 rows with their scales, of none, and the other way of dealing out, chunks."""
    import torch
    import transformer_engine.pytorch as te
    import transformer_engine_torch as tex

    tokens, experts, columns = 52, 6, 256  # a multiple of 4, up to which scales of blocks are filled up
    mask, probs, whole = _routing(tokens, experts)
    expert, token = mask.t().nonzero(as_tuple=True)
    x = whole(tokens, columns).requires_grad_()
    counts = mask.sum(dim=0)
    made, of_probs, rows, offsets, padded = te.moe_permute_and_pad_with_probs(x, probs, mask, counts, 16)
    starts = torch.cumsum(padded, 0) - padded
    place = torch.cat([int(starts[one]) + torch.arange(int(counts[one])) for one in range(experts)])
    wanted = torch.zeros(int(padded.sum()), columns)
    wanted[place] = torch.where(probs[token, expert][:, None] == 0, torch.zeros(()), x.detach()[token])
    assert words(made) == words(wanted) and len(place) < len(wanted)
    wanted = torch.zeros(len(wanted)).index_put((place,), probs[token, expert])
    assert words(of_probs) == words(wanted)
    weights = probs.clone().requires_grad_()
    given = made.detach().requires_grad_()
    merged = te.moe_unpermute(given, rows, weights, restore_shape=x.shape, pad_offsets=offsets)
    factors = torch.zeros_like(probs).index_put((token, expert), probs[token, expert] * (probs[token, expert] != 0))
    assert words(merged) == words(x.detach() * factors.sum(dim=1, keepdim=True) + 0.0)
    merged.backward(torch.ones_like(merged))
    wanted = torch.zeros(len(given)).index_put((place,), probs[token, expert])
    assert words(given.grad) == words(wanted[:, None].expand(-1, columns))
    wanted = torch.zeros_like(probs).index_put((token, expert), made.detach()[place].sum(dim=1))
    assert words(weights.grad) == words(wanted)

    current = te.Float8CurrentScalingQuantizer(tex.DType.kFloat8E4M3, device="cuda")
    block = te.Float8BlockQuantizer(
        fp8_dtype=tex.DType.kFloat8E4M3, rowwise=True, columnwise=False, block_scaling_dim=1
    )
    given = drawn(9, tokens, columns, "bfloat16")
    codes = current(given)
    moved, _ = te.moe_permute(codes, mask, len(token))
    assert type(moved) is type(codes) and words(moved.dequantize()) == words(codes.dequantize()[token])
    codes = block(given)
    moved, _ = te.moe_permute(codes, mask, len(token))
    assert type(moved) is type(codes) and words(moved._rowwise_data) == words(codes._rowwise_data[token])
    assert words(moved._rowwise_scale_inv) == words(codes._rowwise_scale_inv[:, token])

    empty = torch.empty(0, columns, requires_grad=True)
    made, rows = te.moe_permute(empty, mask[:0], 0)
    assert made.shape == (0, columns)

    sizes, order = torch.tensor([20, 0, 18, 14]), torch.tensor([2, 3, 1, 0])
    own, own_probs = x.detach().clone().requires_grad_(), probs[:, 0].clone().requires_grad_()
    plain, plain_probs = x.detach().clone().requires_grad_(), probs[:, 0].clone().requires_grad_()
    made, of_probs = te.moe_sort_chunks_by_index_with_probs(own, own_probs, sizes, order)
    parts, parts_of_probs = plain.split(sizes.tolist()), plain_probs.split(sizes.tolist())
    wanted = [torch.cat([some[one] for one in order.tolist()]) for some in (parts, parts_of_probs)]
    assert words(made) == words(wanted[0]) and words(of_probs) == words(wanted[1])
    assert words(te.moe_sort_chunks_by_index(x.detach(), sizes, order)) == words(wanted[0])
    back = [whole(tokens, columns), whole(tokens)]
    torch.autograd.backward([made, of_probs], back)
    torch.autograd.backward(wanted, back)
    assert words(own.grad) == words(plain.grad) and words(own_probs.grad) == words(plain_probs.grad)
    expect(ValueError, "map has row", lambda: te.moe_permute(x.detach(), mask, len(token) - 1, map_type="mask"))


def dropout_and_the_rope_of_three_are_fp8labs() -> None:
    import torch
    import transformer_engine.pytorch as te
    import transformer_engine_torch as tex
    from fp8lab import operators
    from transformer_engine.pytorch.attention.rope import apply_fused_qkv_rotary_pos_emb

    x = drawn(7, 6, 32, "bfloat16")
    torch.cuda.manual_seed(11)
    first, mask = tex.dropout_fwd(x, 0.3)
    second = tex.dropout_fwd(x, 0.3)[1]
    for offset, own in ((0, mask), (4, second)):
        expected = operators.dropout(x, 0.3, seed=11, offset=offset)
        assert words(own) == words(expected[1])
    assert words(first) == words(operators.dropout(x, 0.3, seed=11)[0])
    assert words(tex.dropout_bwd(x, mask, 0.3)) == words(first)
    quantizer = te.Float8CurrentScalingQuantizer(tex.DType.kFloat8E4M3, device="cuda")
    torch.cuda.manual_seed(11)
    wide = quantizer(x).dequantize(dtype=torch.float32)
    expected = operators.dropout(wide, 0.3, seed=11, out_dtype="bfloat16")[0]
    assert words(tex.dropout_fwd(quantizer(x), 0.3)[0]) == words(expected)
    qkv = drawn(8, 5 * 2 * 3, 32, "bfloat16").view(5, 2, 3, 32).requires_grad_()
    freqs = [torch.linspace(0, 9, 40).view(5, 1, 1, 8), torch.linspace(0, 5, 40).view(5, 1, 1, 8)]
    out = apply_fused_qkv_rotary_pos_emb(qkv, *freqs, [16, 8, 8])
    made = operators.rope_qkv(qkv.detach(), [16, 8, 8], *freqs)
    assert [one.shape for one in out] == [one.shape for one in made] == [(5, 2, 6, 8), (5, 2, 3, 8), (5, 2, 3, 8)]
    assert [words(one) for one in out] == [words(one) for one in made]
    sum(one.float().square().sum() for one in out).backward()
    grads = tuple(2 * one.detach() for one in out)
    assert words(qkv.grad) == words(operators.rope_qkv_backward(grads, [16, 8, 8], *freqs))


def child_processes_see_the_device() -> None:
    """A program that a program starts, by the environment alone; its own sitecustomize runs as well."""
    script = "import torch, sys; print(torch.cuda.get_device_name(), 'transformer_engine_torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ))
    assert told.stdout.split() == ["NVIDIA", "H100", "80GB", "HBM3", "False"], (told.stdout, told.stderr)
    told = subprocess.run(
        [sys.executable, "-c", "import sys; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert told.stdout.split() == ["False"], told.stderr


# --- on a B200 --------------------------------------------------------------------------------------------------------


def linear_under_delayed_scaling_on_blackwell() -> None:
    import fp8lab

    compare_linear(
        recipes().DelayedScaling(amax_history_len=2, amax_compute_algo="most_recent"), "te_delayed_blackwell", "bfloat16",
        steps=4, delayed=fp8lab.Delayed(amax_history_len=2, amax_compute_algo="most_recent"),
    )  # fmt: skip


def linear_under_mxfp8(dtype: str) -> None:
    compare_linear(recipes().MXFP8BlockScaling(), "te_mxfp8_blackwell", dtype)


def linear_under_block_scaling_on_blackwell() -> None:
    compare_linear(recipes().Float8BlockScaling(), "te_block_blackwell", "bfloat16")


def linear_under_nvfp4() -> None:
    """Without stochastic rounding, whose words a GPU deals out in an order of its own."""
    import fp8lab

    compare_linear(
        recipes().NVFP4BlockScaling(disable_stochastic_rounding=True), "te_nvfp4_blackwell", "bfloat16",
        dy=fp8lab.NvFp4(with_rht=True),
    )  # fmt: skip


def stochastic_rounding_has_the_right_mean() -> None:
    """Each code is one of the two neighbours, and the mean over many is the value."""
    import torch
    import transformer_engine.pytorch as te

    quantizer = te.NVFP4Quantizer(stochastic_rounding=True, columnwise=False)
    x = torch.full((4096, 16), 2.25, dtype=torch.bfloat16)
    x[:, 0] = 6.0
    values = quantizer(x).dequantize(dtype=torch.float32)[:, 1:]
    found = sorted(set(values.reshape(-1).tolist()))
    assert found == [2.0, 3.0], found
    share = float((values == 3.0).float().mean())
    assert abs(share - 0.25) < 6 * (0.25 * 0.75 / values.numel()) ** 0.5, share  # six standard deviations


def swizzled_scales_multiply_the_same() -> None:
    """A GEMM of tensors whose scales the quantizer wrote in the layout of the tensor cores."""
    import torch
    import transformer_engine.pytorch as te
    import transformer_engine_torch as tex
    from transformer_engine.pytorch.cpp_extensions import general_gemm

    x, w = drawn(1, 160, 96, "bfloat16"), drawn(2, 64, 96, "bfloat16")
    for make in (
        lambda: te.MXFP8Quantizer(tex.DType.kFloat8E4M3),
        lambda: te.NVFP4Quantizer(),
        lambda: te.NVFP4Quantizer(with_2d_quantization=True),
    ):
        products = []
        for optimized in (False, True):
            quantizer = make()
            quantizer.optimize_for_gemm = optimized
            a, b = quantizer(w), quantizer(x)
            assert b._with_gemm_swizzled_scales == optimized
            products.append(words(general_gemm(a, b, out_dtype=torch.float32)[0]))
        assert products[0] == products[1]
    turned = {"with_rht": True, "with_post_rht_amax": True}
    for given, sizes, swizzles in (
        ({}, (128, 128), False), (turned, (64, 128), True), (turned, (48, 128), False), (turned, (64, 144), False),
        ({"with_2d_quantization": True}, (64, 128), False),
    ):  # fmt: skip
        quantizer = te.NVFP4Quantizer(**given)
        quantizer.optimize_for_gemm = True
        empty = quantizer.make_empty(sizes, dtype=torch.bfloat16)
        assert empty._with_gemm_swizzled_scales == swizzles, (given, sizes)
        assert quantizer(drawn(3, *sizes, "bfloat16"))._with_gemm_swizzled_scales, (given, sizes)


def quantized_tensors_are_fp8labs(dtype: str) -> None:
    """Codes, scales and amaxes of each quantizer, both directions, against fp8lab's recipes."""
    import fp8lab
    import torch
    import transformer_engine.pytorch as te
    import transformer_engine_torch as tex

    x = drawn(3, 96, 160, dtype)
    e4m3 = tex.DType.kFloat8E4M3
    for quantizer, recipe in (
        (te.MXFP8Quantizer(e4m3), fp8lab.MxBlock("e4m3")),
        (te.MXFP8Quantizer(tex.DType.kFloat8E5M2), fp8lab.MxBlock("e5m2")),
        (te.NVFP4Quantizer(), "te_nvfp4"),
        (te.NVFP4Quantizer(with_2d_quantization=True), "te_nvfp4_2d"),
        (te.NVFP4Quantizer(nvfp4_use_4over6=True, nvfp4_e4m3_max=256), "te_nvfp4_4over6"),
        (te.NVFP4Quantizer(nvfp4_use_4over6=True, nvfp4_4over6_err_mode="MSE"), "te_nvfp4_4over6_448_mse"),
    ):
        made = quantizer(x)
        for direction in ("rowwise", "columnwise"):
            expected = fp8lab.quantize(x, recipe, direction=direction)
            assert words(getattr(made, f"_{direction}_data")) == words(expected.codes), (recipe, direction)
            scales = getattr(made, f"_{direction}_scale_inv")
            assert words(scales) == words(expected.scales("padded")), (recipe, direction)
            if not isinstance(recipe, fp8lab.Recipe):
                assert float(getattr(made, f"_amax_{direction}")) == expected.amax
        if isinstance(recipe, fp8lab.Recipe) or recipe == "te_nvfp4":
            expected = fp8lab.dequantize(fp8lab.quantize(x, recipe))
            assert words(made.dequantize(dtype=torch.float32)) == words(expected)


class environment:
    """Variables of the environment inside a ``with``."""

    def __init__(self, **values: str) -> None:
        self.values = values

    def __enter__(self) -> None:
        os.environ.update(self.values)

    def __exit__(self, *_error) -> None:
        for name in self.values:
            del os.environ[name]


def with_zeros(x):
    """The matrix with a block of zeros, one of -0, one of subnormal numbers and one far below the others."""
    x[0, :16], x[1, :16], x[2, :16], x[3, :16] = 0.0, -0.0, 2.0**-133, 2.0**-20
    return x


def with_ties():
    """Two matrices in which the errors of 4 and 6 are often equal, so that their roundings decide: of quarters, and of
    powers of two."""
    import torch

    generator = np.random.default_rng(3)
    quarters = np.round(generator.standard_normal((128, 192)) * 4) / 4
    powers = np.sign(generator.standard_normal((128, 192))) * 2.0 ** generator.integers(-4, 3, (128, 192))
    return [torch.from_numpy(one.astype(np.float32)).bfloat16() for one in (quarters, powers)]


def nvfp4_errors_without_the_tensors_scale_are_the_references() -> None:
    """Codes and scales of 4over6 under NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH=1 against Transformer Engine's own quantizer
    in Python, which makes +0 of -0."""
    import torch
    import transformer_engine.pytorch as te
    from transformer_engine.pytorch.custom_recipes.reference_nvfp4 import NVFP4QuantizerRef

    differ = set()
    for square, x in itertools.product((False, True), with_ties()):
        for top in (256, 448):
            for mode in ("MAE", "MSE"):
                given = {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": top, "nvfp4_4over6_err_mode": mode}
                quantizer = te.NVFP4Quantizer(with_2d_quantization=square, **given)
                plain = words(quantizer(x)._rowwise_scale_inv)
                with environment(NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH="1"):
                    made = quantizer(x)
                tile = (16, 16) if square else (1, 16)
                reference = NVFP4QuantizerRef(
                    dtype=None, quant_tile_shape=tile, nvfp4_4over6_err_use_fast_math=True, **given
                )
                expected = reference.quantize(x)
                without_sign = lambda codes: torch.where(codes & 7 == 0, codes & 7, codes)
                for direction, codes, scales in (
                    ("rowwise", expected.data, expected.scale), ("columnwise", expected.data_t, expected.scale_t),
                ):  # fmt: skip
                    own = getattr(made, f"_{direction}_data")
                    pairs = lambda one: torch.stack([without_sign(one & 15), without_sign(one >> 4)])
                    assert words(pairs(own)) == words(pairs(codes.view(torch.uint8))), (given, direction)
                    stored = getattr(made, f"_{direction}_scale_inv")[: scales.shape[0], : scales.shape[1]]
                    assert words(stored) == words(scales.view(torch.uint8)), (given, direction)
                differ |= {(square, top, mode)} if words(made._rowwise_scale_inv) != plain else set()
    assert differ >= {(False, top, mode) for top in (256, 448) for mode in ("MAE", "MSE")} | {(True, 256, "MAE")}


def nvfp4_factors_in_bfloat16_are_the_tuned_kernels() -> None:
    """Under NVTE_USE_FAST_MATH=1 by fp8lab's recipe of that kernel, which tests/python/quantizers holds beside a port of
    it; where another kernel runs the variable changes nothing."""
    import fp8lab
    import torch
    import transformer_engine.pytorch as te

    def same(made, x, recipe, *directions: str) -> None:
        for direction in directions:
            expected = fp8lab.quantize(x, recipe, direction=direction)
            assert words(getattr(made, f"_{direction}_data")) == words(expected.codes), (recipe, direction)
            assert words(getattr(made, f"_{direction}_scale_inv")) == words(expected.scales("padded")), recipe

    def quantized(x, **given):
        with environment(NVTE_USE_FAST_MATH="1"):
            return te.NVFP4Quantizer(**given)(x)

    both = ("rowwise", "columnwise")
    x = with_zeros(drawn(6, 96, 160, "bfloat16"))
    assert words(fp8lab.quantize(x, "te_nvfp4").codes) != words(fp8lab.quantize(x, "te_nvfp4_fast_math").codes)
    same(quantized(x), x, "te_nvfp4_fast_math", *both)
    same(quantized(x, columnwise=False), x, "te_nvfp4_fast_math", "rowwise")
    same(quantized(x, rowwise=False), x, "te_nvfp4", "columnwise")
    same(quantized(x.float()), x.float(), "te_nvfp4", *both)
    same(quantized(x[:80].contiguous()), x[:80].contiguous(), "te_nvfp4", *both)
    same(quantized(x, with_2d_quantization=True), x, "te_nvfp4_2d", *both)
    same(quantized(x, nvfp4_use_4over6=True, nvfp4_e4m3_max=256), x, "te_nvfp4_4over6", *both)
    turned = {"with_rht": True, "with_post_rht_amax": True}
    made = quantized(x, **turned)  # of 96 rows, whose transform and cast are two kernels
    same(made, x, "te_nvfp4_fast_math", "rowwise")
    turned_columns = te_reference_turned(x)
    expected = fp8lab.quantize(turned_columns, "te_nvfp4_fast_math")
    assert words(made._columnwise_data) == words(expected.codes)
    assert words(made._columnwise_scale_inv) == words(expected.scales("padded"))
    wide = drawn(7, 64, 128, "bfloat16")
    expect(
        NotImplementedError,
        "NVFP4 with a Hadamard transform and NVTE_USE_FAST_MATH=1",
        lambda: quantized(wide, **turned),
    )
    import transformer_engine_torch as tex

    with environment(NVTE_USE_FAST_MATH="1"):
        of_group = lambda: tex.split_quantize(wide[:48], [16, 32], [te.NVFP4Quantizer(**turned)] * 2)
        expect(NotImplementedError, "NVFP4 with a Hadamard transform", of_group)
    with environment(NVTE_USE_FAST_MATH="yes"):
        expect(RuntimeError, "NVTE_USE_FAST_MATH must be 0 or 1, not 'yes'", lambda: te.NVFP4Quantizer()(x))
    assert torch.equal(quantized(x)._amax_rowwise, x.float().abs().max().reshape(1))


def te_reference_turned(x):
    """The columns of a matrix after the Hadamard transform, as Transformer Engine's own quantizer in Python has them."""
    from transformer_engine.pytorch.custom_recipes.reference_nvfp4 import NVFP4QuantizerRef

    return NVFP4QuantizerRef(dtype=None, with_rht=True)._apply_rht(x.t().contiguous())


def in_float32(value: float) -> float:
    """A quotient, or a product, of float32 numbers, made in float64, rounded once: 53 bits are more than 2 * 24 + 1."""
    return float(np.float32(value))


def nearest_of(value: float, values: list[float]) -> float:
    """The nearest of a format's magnitudes, the one of even code where two are, the largest above."""
    value = min(value, values[-1])
    return min(values, key=lambda one: (abs(one - value), values.index(one) % 2))


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E4M3 = [i * 2.0**-9 for i in range(8)] + [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)][:-1]


def shards_of_nvfp4_are_cast_as_the_kernels_do() -> None:
    """Amaxes, scales and codes of two shards of a weight, step by step in exact numbers, each rounded where the kernels
    of common/recipe/nvfp4.cu round."""
    import torch
    import transformer_engine_torch as tex

    rows, columns = 48, 80
    weight = with_zeros(drawn(8, rows, columns, "float32"))
    weight[16:32, 16:32] = 2.0**-30
    down, across = rows // 16, columns // 16
    amaxes, whole = torch.zeros(down, across), torch.zeros(1)
    cuts = [0, 7 * columns + 6, rows * columns]
    shards = [weight.reshape(-1)[a:b] for a, b in zip(cuts, cuts[1:])]
    for shard, start in zip(shards, cuts):
        own, of_shard = torch.full((down, across), 9.0), torch.zeros(1)
        tex.nvfp4_multi_tensor_compute_partial_amax([shard], [own], [of_shard], [rows], [columns], [start], 16)
        amaxes, whole = torch.maximum(amaxes, own), torch.maximum(whole, of_shard)
    tiles = weight.abs().view(down, 16, across, 16).amax(dim=(1, 3))
    assert torch.equal(amaxes, tiles) and torch.equal(whole, tiles.max().reshape(1))
    # 1. The scales.
    scale = torch.zeros(1)
    tex.nvfp4_compute_global_scale(whole, scale)
    encode_scale = in_float32(2688 / float(whole))
    assert float(scale) == encode_scale
    made, codes, stored = torch.zeros(down, across), torch.full((128, 8), 255, dtype=torch.uint8), torch.zeros(1)
    tex.nvfp4_multi_tensor_fused_scale([amaxes], [whole], [made], [codes], [stored], [down], [across], [128], 16)
    times = in_float32(encode_scale * in_float32(1 / 6))
    block = [[in_float32(one * times) for one in row] for row in tiles.tolist()]
    of_block = [[nearest_of(one, E4M3) for one in row] for row in block]
    assert made.tolist() == block and torch.equal(stored, whole)
    expected = [E4M3.index(of_block[i // 16][j]) for i in range(rows) for j in range(across)]
    assert codes.reshape(-1).tolist()[: 128 * across] == expected + [0] * (128 - rows) * across
    assert codes.reshape(-1).tolist()[128 * across :] == [255] * 128 * (8 - across)
    # 2. The codes, in a buffer of the weight and one byte more.
    packed = torch.full((rows * columns // 2 + 1,), 0xAB, dtype=torch.uint8)
    for shard, start in zip(shards, cuts):
        part = packed[start // 2 : (start + shard.numel() + 1) // 2]
        tex.nvfp4_multi_tensor_2d_partial_cast([shard], [part], [made], [scale], [rows], [columns], [start], 16)
    inverse, most = in_float32(1 / encode_scale), float(np.finfo(np.float32).max)
    for at, value in enumerate(weight.reshape(-1).tolist()):
        d = of_block[at // columns // 16][at % columns // 16]
        product = in_float32(d * inverse)
        factor = min(in_float32(1 / product), most) if product > 0 else most
        code = E2M1.index(nearest_of(abs(in_float32(value * factor)), E2M1)) + (8 if np.signbit(value) else 0)
        assert int(packed[at // 2]) >> at % 2 * 4 & 15 == code, (at, value)
    assert int(packed[-1]) == 0xAB
    # 3. They are those of a cast of the whole.
    import transformer_engine.pytorch as te

    cast = te.NVFP4Quantizer(with_2d_quantization=True, columnwise=False)(weight)
    assert words(cast._rowwise_data) == words(packed[:-1])
    assert words(cast._rowwise_scale_inv[:rows, :across]) == words(codes.reshape(-1)[: rows * across])
    # 4. Ends: an amax of 0, an infinite one and one of a subnormal number; a shard of an odd length, and at an odd place.
    ends = torch.tensor([0.0, float("inf"), 2.0**-149])
    tex.nvfp4_compute_global_scale(ends, ends)
    assert ends.tolist() == [1.0, 0.0, most]
    tex.nvfp4_multi_tensor_2d_partial_cast([shards[0][:3]], [packed[:2]], [made], [scale], [rows], [columns], [0], 16)
    assert words(packed[:1]) == words(cast._rowwise_data.reshape(-1)[:1])
    odd = lambda: tex.nvfp4_multi_tensor_2d_partial_cast(
        [shards[0]], [packed], [made], [scale], [rows], [columns], [1], 16
    )
    expect(NotImplementedError, "an NVFP4 shard that begins at an odd element", odd)


def master_weights_of_nvfp4_are_cast_in_one_process() -> None:
    """Transformer Engine's own distributed cast, of a group of one, gives the codes of the quantizer."""
    import tempfile
    from pathlib import Path

    import torch
    import transformer_engine.pytorch as te
    from transformer_engine.pytorch.tensor.utils import quantize_master_weights

    master = drawn(9, 64, 128, "float32")
    quantizer = te.NVFP4Quantizer(with_2d_quantization=True)
    weight = quantizer(torch.ones_like(master))
    expected = quantizer(master)
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=Path(folder, "store").as_uri(), rank=0, world_size=1)
        try:
            quantize_master_weights([weight], [master.reshape(-1)], [0], torch.distributed.group.WORLD)
        finally:
            torch.distributed.destroy_process_group()
    for name in ("_rowwise_data", "_rowwise_scale_inv", "_amax_rowwise"):
        assert words(getattr(weight, name)) == words(getattr(expected, name)), name


def a_group_in_a_larger_buffer_is_quantized_again() -> None:
    """An MXFP8 group with empty members and unused rows behind them: its values, and columnwise data made of them."""
    import fp8lab
    import torch
    import transformer_engine.pytorch as te
    import transformer_engine_torch as tex

    sizes, columns = [128, 0, 256], 128
    x = drawn(10, 512, columns, "bfloat16")
    first = torch.tensor(sizes)
    quantizer = te.MXFP8Quantizer(tex.DType.kFloat8E4M3, columnwise=False)
    group = tex.group_quantize(x, quantizer, len(sizes), first)
    values = tex.group_dequantize(group, tex.DType.kBFloat16).rowwise_data.view(512, columns)
    parts = [part for part in torch.split(x[:384], sizes) if len(part)]
    expected = torch.cat([torch.from_numpy(fp8lab.dequantize(fp8lab.quantize(one, "te_mxfp8"))) for one in parts])
    assert torch.equal(values[:384].float(), expected) and not values[384:].any()
    scales = group.scale_inv.clone()
    of_op = te.MXFP8Quantizer(tex.DType.kFloat8E4M3)
    of_op.optimize_for_gemm = True
    made = tex.group_requantize_inplace(group, of_op, len(sizes), first, tex.DType.kBFloat16, return_dequantized=True)
    assert torch.equal(made, values) and group.scale_inv.shape == scales.shape and group._with_gemm_swizzled_scales
    start = 0
    for part, member in zip((part for part in torch.split(values[:384], sizes)), group.split_into_quantized_tensors()):
        if not len(part):
            continue
        rowwise = fp8lab.quantize(x[start : start + len(part)], "te_mxfp8")
        columnwise = fp8lab.quantize(part, "te_mxfp8", direction="columnwise")
        start += len(part)
        assert words(member._rowwise_data) == words(rowwise.codes)
        assert words(member._rowwise_scale_inv) == words(rowwise.scales("swizzled"))
        assert words(member._columnwise_data) == words(columnwise.codes)
        assert words(member._columnwise_scale_inv) == words(columnwise.scales("swizzled"))
    again = lambda **given: tex.group_requantize_inplace(group, of_op, len(sizes), first, tex.DType.kBFloat16, **given)
    assert again() is None
    expect(RuntimeError, "compact format", lambda: again(return_dequantized=True))
    group.columnwise_data = None
    expect(RuntimeError, "cannot be rebuilt", again)
    assert tuple(tex.dequantize(of_op(x[:0]), tex.DType.kFloat32).shape) == (0, columns)


def a_group_may_have_tensors_of_several_widths() -> None:
    """Which lie one after the other in the buffer; unused elements, of which no amax knows, lie behind them."""
    import fp8lab
    import torch
    import transformer_engine.pytorch as te
    import transformer_engine_torch as tex

    def group(shapes, quantizer, first, last, spare=0):
        parts = [
            drawn(30 + i, *shape, "bfloat16") if 0 not in shape else torch.empty(shape)
            for i, shape in enumerate(shapes)
        ]
        rows = shapes[0][0] if first is None else 1
        flat = torch.cat(
            [part.reshape(-1).bfloat16() for part in parts] + [torch.full((rows * spare,), 1e4).bfloat16()]
        )
        dims = [None if one is None else torch.tensor(one) for one in (first, last)]
        return tex.group_quantize(flat.view(rows, -1), quantizer, len(shapes), *dims), parts

    widths = [33, 0, 130, 7]
    current = te.Float8CurrentScalingQuantizer(tex.DType.kFloat8E4M3, device="cuda")
    made, parts = group([(48, width) for width in widths], current, None, widths, spare=9)
    expected = [fp8lab.quantize(part, "te_current_scaling") for part in parts if part.numel()]
    codes = torch.cat([torch.from_numpy(one.codes).reshape(-1) for one in expected])
    assert made.first_dims is None and made.last_dims.tolist() == widths
    assert made.tensor_offsets.tolist() == [0, 48 * 33, 48 * 33, 48 * 163, 48 * 170]
    assert torch.equal(made.rowwise_data[: len(codes)], codes) and made.rowwise_data.numel() == 48 * 179
    amaxes = [float(part.abs().max()) if part.numel() else 0.0 for part in parts]
    assert made.amax.tolist() == amaxes
    assert made.scale.tolist() == [expected[0].factor, 1.0, expected[1].factor, expected[2].factor]
    assert [tuple(one.shape) for one in made.split_into_quantized_tensors()] == [(48, width) for width in widths]

    for shapes, dims in (
        ([(128, 128), (128, 384), (128, 256)], (None, [128, 384, 256])),
        ([(128, 256), (0, 128), (256, 128)], ([128, 0, 256], [256, 128, 128])),
    ):
        made, parts = group(shapes, te.MXFP8Quantizer(tex.DType.kFloat8E4M3), *dims)
        for direction, codes_of, scales_of in (
            ("rowwise", "rowwise_data", "scale_inv"),
            ("columnwise", "columnwise_data", "columnwise_scale_inv"),
        ):
            expected = [fp8lab.quantize(part, "te_mxfp8", direction=direction) for part in parts if part.numel()]
            codes = torch.cat([torch.from_numpy(one.codes).reshape(-1) for one in expected])
            scales = torch.cat(
                [torch.from_numpy(one.scales("padded")).view(torch.uint8).reshape(-1) for one in expected]
            )
            assert torch.equal(getattr(made, codes_of), codes), (shapes, direction)
            assert torch.equal(getattr(made, scales_of), scales), (shapes, direction)

    x = torch.zeros(128, 256, dtype=torch.bfloat16)
    mxfp8 = te.MXFP8Quantizer(tex.DType.kFloat8E4M3)
    call = lambda quantizer, first, last: tex.group_quantize(
        x, quantizer, 2, *(None if one is None else torch.tensor(one) for one in (first, last))
    )
    expect(RuntimeError, "first_dims or last_dims, not both", lambda: call(current, [64, 64], [128, 128]))
    expect(RuntimeError, "multiples of 128 rows and columns", lambda: call(mxfp8, None, [64, 128]))
    expect(RuntimeError, "kernels alone have it, not nvfp4", lambda: call(te.NVFP4Quantizer(), None, [128, 128]))
    expect(ValueError, "last_dims make tensors of 49152 elements", lambda: call(mxfp8, None, [128, 256]))
    expect(ValueError, "last_dims must have length 2", lambda: call(mxfp8, None, [128]))
    expect(
        RuntimeError,
        "takes tensors of one width",
        lambda: tex.bgrad_group_quantize(x, mxfp8, 2, None, torch.tensor([128, 128])),
    )


def the_cross_entropy_is_fp8labs(dtype: str) -> None:
    """Of each token, and their mean without those that are ignored, with and without a copy of the input."""
    import fp8lab
    import torch
    import transformer_engine.pytorch as te

    x = (8 * drawn(80, 12, 40, dtype)).reshape(3, 4, 40)
    target = torch.arange(12) * 3
    target[5] = -100
    grad = drawn(81, 12, 1, "float32").reshape(3, 4)
    for smoothing in (0.0, 0.1):
        given = {"label_smoothing": smoothing}
        loss, largest, total = fp8lab.operators.cross_entropy(x.reshape(12, 40), target, **given)
        assert loss[5] == 0 and loss[4] > 0
        for mean, overwrites in ((False, False), (True, False), (False, True)):
            leaf = x.clone().requires_grad_()
            made = te.parallel_cross_entropy(
                leaf * 1 if overwrites else leaf, target.reshape(3, 4), smoothing, mean, overwrite_input=overwrites
            )
            made.backward(None if mean else grad)
            counts = torch.full((12,), 1 / 11) if mean else grad.reshape(-1)
            expected = fp8lab.operators.cross_entropy_backward(
                counts, x.reshape(12, 40), target, largest, total, **given
            )
            assert words(leaf.grad) == words(expected), (smoothing, mean, overwrites)
            if mean:
                assert words(made.reshape(1)) == words(torch.from_numpy(loss).sum().reshape(1) / 11)
            else:
                assert made.shape == (3, 4) and words(made) == words(loss)


def a_groups_biases_are_added_behind_its_gemm() -> None:
    """To products that are rounded already: beside the product, a bias would be rounded with it once."""
    import fp8lab
    import torch
    import transformer_engine_torch as tex
    from transformer_engine.pytorch.tensor.grouped_tensor import GroupedTensor

    sizes, device = [48, 0, 80], torch.device("cpu")
    first = torch.tensor(sizes)
    x, bias, scale = drawn(70, 128, 64, "bfloat16"), drawn(71, 3, 32, "bfloat16"), drawn(72, 128, 1, "float32")
    weights = [drawn(73 + i, 32, 64, "bfloat16") for i in range(3)]

    def grouped(values, shape, dims=None):
        offsets = None if dims is None else torch.tensor([0, *dims]).cumsum(0) * shape[1]
        return GroupedTensor(
            shape=shape, dtype=torch.bfloat16, num_tensors=3, data=values.reshape(-1), first_dims=dims,
            tensor_offsets=offsets,
        )  # fmt: skip

    def multiply(**given):
        out = grouped(torch.zeros(128, 32, dtype=torch.bfloat16), (128, 32), first)
        tex.te_general_grouped_gemm_for_discrete_in(
            weights, True, grouped(x, (128, 64), first), False, out, given.get("bias"), given.get("scale"),
            torch.ones(3), torch.zeros(3), None, torch.empty(0, device=device), False, 0,
        )  # fmt: skip
        return out.rowwise_data.view(128, 32)

    plain = multiply()
    assert plain[48:].any() and words(plain[:48]) == words(tex.generic_gemm(
        weights[0], True, x[:48], False, None, None, tex.DType.kBFloat16, None, tex.DType.kBFloat16, False, None, False,
        None, 0, False, False,
    )[0])  # fmt: skip
    with_bias = multiply(bias=grouped(bias, (3, 32)))
    starts = [0, 48, 48, 128]
    assert words(with_bias) == words(fp8lab.operators.add_group_bias(plain, bias, starts))
    scaled = multiply(bias=grouped(bias, (3, 32)), scale=scale.reshape(-1))
    assert words(scaled) == words(fp8lab.operators.add_group_bias(plain, bias, starts, scales=scale.reshape(-1)))
    expect(RuntimeError, "bias_scale needs a bias", lambda: multiply(scale=scale.reshape(-1)))
    expect(
        RuntimeError, "bias_scale must be float32 of shape", lambda: multiply(bias=grouped(bias, (3, 32)), scale=scale)
    )


def a_hadamard_matrix_may_have_no_signs() -> None:
    """Columns of 16 are turned by Sylvester's matrix over 4; zeros of either sign become +0."""
    import fp8lab
    import numpy as np
    import torch
    import transformer_engine.pytorch as te

    x = drawn(60, 96, 48, "bfloat16")
    x[:16, 0], x[16:32, 1] = 0.0, -0.0
    make = lambda **given: te.NVFP4Quantizer(with_rht=True, with_post_rht_amax=True, **given)
    made, signed = make(with_random_sign_mask=False)(x), make()(x)
    matrix = np.array([[(-1) ** (i & j).bit_count() for i in range(16)] for j in range(16)]) / 4
    turned = torch.from_numpy((matrix @ x.double().numpy().reshape(6, 16, 48)).reshape(96, 48)).bfloat16()
    expected = fp8lab.quantize(turned, "te_nvfp4", direction="columnwise")
    assert words(made._columnwise_data) == words(expected.codes) != words(signed._columnwise_data)
    assert words(made._columnwise_scale_inv) == words(expected.scales("padded"))
    assert float(made._amax_columnwise) == float(turned.abs().max())
    for name in ("_rowwise_data", "_rowwise_scale_inv", "_amax_rowwise"):
        assert words(getattr(made, name)) == words(getattr(signed, name)), name


def biases_of_groups_have_the_sums_of_their_rows() -> None:
    """What Transformer Engine takes from Triton's kernel; tensors that are given are added to in their place."""
    import fp8lab
    import torch
    from transformer_engine.pytorch.triton.grouped_dbias_dscales import (
        compute_grouped_dbias,
        compute_grouped_dbias_dscales,
    )

    grad, bias = drawn(50, 70, 33, "bfloat16"), drawn(51, 3, 33, "bfloat16")
    scales = drawn(52, 70, 1, "float32").reshape(-1)
    offsets = torch.tensor([0, 40, 40, 70])
    made = compute_grouped_dbias(grad, offsets, 3)
    assert words(made) == words(fp8lab.operators.group_bias_gradient(grad, offsets))
    given = [torch.ones(3, 33), torch.ones(70)]
    before = [one.clone() for one in given]
    scaled, of_scales = compute_grouped_dbias_dscales(grad, scales, bias, offsets, *given)
    assert scaled is given[0] and of_scales is given[1]
    expected = fp8lab.operators.scaled_group_bias_gradient(
        grad, scales, bias, offsets, dbias=before[0], dscales=before[1]
    )
    assert words(scaled) == words(expected[0]) and words(of_scales) == words(expected[1])
    expect(ValueError, "offsets must have 3 entries", lambda: compute_grouped_dbias(grad, offsets, 2))


def a_group_by_known_amaxes_is_that_of_its_members() -> None:
    """nvfp4_group_quantize_with_amax by each member's own amaxes is group_quantize; by others it is not."""
    import torch
    import transformer_engine.pytorch as te
    import transformer_engine_torch as tex

    sizes = [128, 0, 128]
    x = drawn(11, 256, 128, "bfloat16")
    quantizer = te.NVFP4Quantizer(with_rht=True, with_post_rht_amax=True)
    expected = tex.group_quantize(x, quantizer, len(sizes), torch.tensor(sizes))
    own = [quantizer(part) for part in torch.split(x, sizes) if len(part)]
    amaxes = {}
    for name in ("rowwise", "columnwise"):
        of_members = [float(getattr(one, f"_amax_{name}")) for one in own]
        amaxes[f"{name}_amax"] = torch.tensor([of_members[0], 1.0, of_members[1]])
        assert getattr(expected, "amax" if name == "rowwise" else "columnwise_amax").tolist() == [
            of_members[0], 0.0, of_members[1],
        ]  # fmt: skip
    middle = expected.split_into_quantized_tensors()[1]
    assert middle._amax_rowwise.shape == middle._amax_columnwise.shape == (1,)
    call = lambda **given: tex.nvfp4_group_quantize_with_amax(x, quantizer, len(sizes), torch.tensor(sizes), **given)
    made = call(**amaxes)
    for name in ("rowwise_data", "columnwise_data", "scale_inv", "columnwise_scale_inv"):
        assert words(getattr(made, name)) == words(getattr(expected, name)), name
    assert made.amax is amaxes["rowwise_amax"] and made.columnwise_amax is amaxes["columnwise_amax"]
    larger = call(rowwise_amax=amaxes["rowwise_amax"] * 3, columnwise_amax=amaxes["columnwise_amax"])
    assert words(larger.scale_inv) != words(expected.scale_inv)
    expect(
        RuntimeError,
        "columnwise_amax must be 3 numbers of float32",
        lambda: call(**{**amaxes, "columnwise_amax": torch.ones(2)}),
    )


def a_gelus_gradient_has_that_of_its_bias_beside_it() -> None:
    """The epilogue DGELU_BGRAD rounds the product to 16 bits, and adds the rows of what GELU's gradient makes of it."""
    import fp8lab
    import torch
    import transformer_engine_torch as tex

    rows, columns, depth = 40, 24, 32
    a, b = (drawn(seed, size, depth, "bfloat16") for seed, size in ((61, columns), (62, rows)))
    given, bias, otype = drawn(63, rows, columns, "bfloat16"), torch.zeros(columns), tex.DType.kBFloat16
    out, gradient, before, _ = tex.generic_gemm(
        a, True, b, False, None, None, otype, bias, otype, True, given, True, None, 0, False, True
    )
    product = torch.from_numpy(fp8lab.gemm(b, a, model="hopper_bf16")).bfloat16().float()
    own = torch.from_numpy(fp8lab.operators.activation_backward("gelu", product, given, out_dtype="float32"))
    assert before is None and torch.equal(out, own.bfloat16())
    sums = torch.zeros(columns)
    for row in own:
        sums += row
    assert torch.equal(gradient, sums.bfloat16()) and not torch.equal(gradient, b.float().sum(0)[:columns].bfloat16())
    empty = tex.generic_gemm(
        a[:, :0], True, b[:, :0], False, None, None, otype, bias, otype, True, given, True, None, 0, False, True
    )
    assert not empty[0].any() and not empty[1].any() and empty[1].shape == (columns,)


def _of(check, *arguments: str):
    return {f"{check.__name__}[{argument}]": lambda argument=argument: check(argument) for argument in arguments}


def _all(*checks):
    return {check.__name__: check for check in checks}


CHECKS = {
    "h100": {
        **_of(linear_under_delayed_scaling, *DTYPES),
        **_of(linear_under_current_scaling, *DTYPES),
        **_of(linear_under_block_scaling, *DTYPES),
        **_of(rows_go_to_experts_by_a_mask, *DTYPES),
        **_of(the_cross_entropy_is_fp8labs, "bfloat16", "float32"),
        **_of(the_extra_state_goes_both_ways, "first", "second"),
        **_all(
            linear_without_bias, linear_in_high_precision, gradients_accumulate_into_main_grad,
            a_noop_flag_leaves_all_as_it_is, packed_sequences_move_as_they_should, new_tokens_go_to_the_cache,
            programs_may_ask_for_the_gpu_in_other_ways, draws_on_cuda_are_the_gpus, a_uniform_draw_has_bounds_of_its_type,
            a_modules_weights_are_the_gpus, the_generators_state_is_kept_and_restored, draws_on_the_cpu_are_pytorchs,
            other_draws_warn_by_name, draws_beside_what_was_computed_are_the_gpus, figures_of_memory_have_the_usual_names,
            programs_may_have_functions_compiled, modules_with_quantized_weights_move, hooks_of_a_backward_pass_see_the_device,
            tensors_move_as_copies,
            only_transformer_engine_sees_a_gpu, the_device_answers,
            a_second_device_is_refused, what_is_not_provided_says_so, wrong_operands_are_named,
            every_provided_function_is_there, child_processes_see_the_device, the_router_is_fp8labs,
            dropout_and_the_rope_of_three_are_fp8labs, a_gelus_gradient_has_that_of_its_bias_beside_it,
            rows_by_a_mask_are_padded_and_quantized,
        ),
    },
    "b200": {
        **_of(linear_under_mxfp8, *DTYPES),
        **_of(quantized_tensors_are_fp8labs, "bfloat16", "float32"),
        **_all(
            linear_under_delayed_scaling_on_blackwell, linear_under_block_scaling_on_blackwell, linear_under_nvfp4,
            a_last_block_of_tokens_may_be_short,
            stochastic_rounding_has_the_right_mean, swizzled_scales_multiply_the_same, the_device_answers,
            nvfp4_errors_without_the_tensors_scale_are_the_references, nvfp4_factors_in_bfloat16_are_the_tuned_kernels,
            shards_of_nvfp4_are_cast_as_the_kernels_do, master_weights_of_nvfp4_are_cast_in_one_process,
            a_group_in_a_larger_buffer_is_quantized_again, a_group_may_have_tensors_of_several_widths,
            a_group_by_known_amaxes_is_that_of_its_members, biases_of_groups_have_the_sums_of_their_rows,
            a_hadamard_matrix_may_have_no_signs, a_groups_biases_are_added_behind_its_gemm,
        ),
    },
}  # fmt: skip
