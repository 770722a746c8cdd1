# SPDX-License-Identifier: Apache-2.0
"""MS-AMP's own Python on a CPU: run as a program with a folder, it prints what its trainings leave, one JSON line.

The folder is the checkout's tree at COMMIT. What there is CUDA has stand-ins, which are written from adamw.cu, from the
kernels that it calls in Transformer Engine 1.1, and from the C library's fmaf; casts are ml_dtypes'. GEMMs are
``fp8lab.gemm``. No function of fp8lab.msamp runs.
"""

import ctypes
import json
import math
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import fp8lab
import ml_dtypes
import numpy as np
import torch
from msamp_scenarios import RANK_STEPS, SCENARIOS, STEPS, in_ranks, network, rank_loss, shared, summary, train

#: Of github.com/Azure/MS-AMP, version 0.4.0.
COMMIT = "9746ea85289f8e6233646e73ace35f730d1245d5"
CODES = {"kFloat8E4M3": ml_dtypes.float8_e4m3fn, "kFloat8E5M2": ml_dtypes.float8_e5m2}
DTYPES = {"kFloat32": torch.float32, "kFloat16": torch.float16, "kBFloat16": torch.bfloat16}

_C = ctypes.CDLL("libm.so.6")
_C.fmaf.restype, _C.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
_FMAF = np.frompyfunc(_C.fmaf, 3, 1)


def fmaf(a, b, c) -> np.ndarray:
    return np.asarray(_FMAF(a, b, c), np.float32)


# --- Transformer Engine 1.1 -------------------------------------------------------------------------------------------


def codes_of(x: np.ndarray, kind) -> np.ndarray:
    largest = np.float32(ml_dtypes.finfo(kind).max)
    return np.clip(x, -largest, largest).astype(kind).view(np.uint8)


def track(amax: torch.Tensor, x: torch.Tensor) -> None:
    """atomicMax of the bits, of the largest number."""
    numbers = np.abs(x.float().numpy())
    found = np.float32(np.fmax.reduce(numbers, axis=None, initial=np.float32(0)))
    bits = max(int(amax.numpy().view(np.int32).reshape(-1)[0]), int(found.view(np.int32)))
    amax.fill_(float(np.int32(bits).view(np.float32)))


def cast_to_fp8(x, scale, amax, scale_inv, otype):
    track(amax, x)
    codes = codes_of(x.detach().float().numpy() * np.float32(scale), CODES[otype])
    return torch.from_numpy(codes)


def cast_from_fp8(x, scale_inv, itype, otype):
    values = x.numpy().view(CODES[itype]).astype(np.float32) * np.float32(scale_inv)
    return torch.from_numpy(values).to(DTYPES[otype])


def fused_cast_transpose(x, scale, amax, scale_inv, out, out_t, otype):
    codes = cast_to_fp8(x, scale, amax[0], scale_inv, otype)
    out.copy_(codes)
    out_t.copy_(codes.t())


def te_gemm(a, a_inv, a_type, _ta, b, b_inv, b_type, _tb, out, *rest):
    accumulates, splits = rest[-3], rest[-2]
    recipe = fp8lab.GemmRecipe(
        model="hopper_wgmma_fp8",
        promote_k=128 if splits else 0,
        output=str(out.dtype).removeprefix("torch."),
    )
    names = {"kFloat8E4M3": "e4m3", "kFloat8E5M2": "e5m2"}
    made = fp8lab.gemm(
        b.numpy(), a.numpy(), recipe, format_a=names[b_type], format_b=names[a_type], scale_a=float(b_inv),
        scale_b=float(a_inv), c=out.float().numpy() if accumulates else None,
    )  # fmt: skip
    out.copy_(torch.from_numpy(made.astype(np.float32)).to(out.dtype))


# --- adamw.cu, as nvcc contracts it -----------------------------------------------------------------------------------


def number(x) -> np.float32:
    return np.float32(float(x))


def loaded(state: torch.Tensor) -> np.ndarray:
    if state.dtype == torch.uint8:
        return state.numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return state.numpy().astype(np.float32)


def moments(grad, m, m_factor, beta1, v, v_factor, beta2):
    g, beta1, beta2, one = grad.numpy(), number(beta1), number(beta2), np.float32(1)
    first = fmaf(beta1 * loaded(m), number(m_factor), (one - beta1) * g)
    second = fmaf(beta2 * loaded(v), number(v_factor), (one - beta2) * (g * g))
    return first, second


def stage1(param, grad, m, m_factor, m_amax, beta1, v, v_factor, v_amax, beta2, eps, step, lr, corrects):
    first, second = moments(grad, m, m_factor, beta1, v, v_factor, beta2)
    track(m_amax[0], torch.from_numpy(first))
    track(v_amax[0], torch.from_numpy(second))
    correction1 = np.float32(1 - math.pow(float(number(beta1)), step) if corrects else 1.0)
    correction2 = np.float32(1 - math.pow(float(number(beta2)), step) if corrects else 1.0)
    step_size = number(lr) / correction1
    ratio = first / (np.sqrt(second) / np.sqrt(correction2) + number(eps))
    param.copy_(torch.from_numpy(fmaf(-step_size, ratio, param.numpy())))


def stage2(grad, m, m_factor, new_m, beta1, v, v_factor, new_v, beta2, step, corrects):
    first, second = moments(grad, m, m_factor, beta1, v, v_factor, beta2)
    m.copy_(torch.from_numpy(codes_of(first * number(new_m), ml_dtypes.float8_e4m3fn)))
    v.copy_(torch.from_numpy((second * number(new_v)).astype(np.float16)))


def inverse(x: float) -> float:
    """What PyTorch's CUDA kernel multiplies by in place of a division by a number."""
    return float(np.float32(1) / np.float32(x))


# --- the package ------------------------------------------------------------------------------------------------------

#: CUDA becomes the CPU. The last three are PyTorch's CUDA kernels: a division by a number, and a root that is rounded.
EDITS = [
    (".is_cuda", ".is_cpu"), ("def is_cuda", "def is_cpu"), ("device='cuda'", "device='cpu'"), (".cuda()", ".cpu()"),
    ("DistOp.load_dist_lib()", ""), ("denom = (exp_avg_sq_value.sqrt() / math.sqrt(bias_correction2))",
     "denom = (exp_avg_sq_value.double().sqrt().float() * inverse(math.sqrt(bias_correction2)))"),
    ("import msamp_adamw", "import msamp_adamw\nfrom msamp_adamw import inverse"),
]  # fmt: skip


class Stream:
    def __init__(self, *_args, **_kwargs) -> None:
        pass

    def wait_stream(self, _other) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return False


def module(name: str, **attributes):
    made = types.ModuleType(name)
    made.__dict__.update(attributes)
    made.__path__ = []
    sys.modules[name] = made
    return made


def stand_in() -> None:
    """All that MS-AMP imports and a CPU has not."""
    kinds = SimpleNamespace(**{name: name for name in [*CODES, *DTYPES]})
    module("transformer_engine")
    module(
        "transformer_engine_extensions", DType=kinds, cast_to_fp8=cast_to_fp8, cast_from_fp8=cast_from_fp8,
        fused_cast_transpose=fused_cast_transpose, te_gemm=te_gemm, fp8_transpose=lambda x, _: x.t().contiguous(),
    )  # fmt: skip
    module("msamp_adamw", adamw_fp8_stage1_compute=stage1, adamw_fp8_stage2_compute=stage2, inverse=inverse)
    module("msamp_arithmetic")
    module("colorlog", ColoredFormatter=__import__("logging").Formatter)
    for name in ("deepspeed", "deepspeed.ops"):
        module(name)
    module("deepspeed.ops.adam", FusedAdam=type("FusedAdam", (), {}))
    module("msamp.te", TeReplacer=None)
    torch.cuda.get_device_name = lambda *_: "NVIDIA H100 80GB HBM3"
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(major=8)
    torch.cuda.Stream = Stream
    torch.cuda.stream = lambda stream: stream
    torch.cuda.current_stream = torch.cuda.default_stream = lambda *_: Stream()


def prepared_folder(files: dict[str, bytes], folder: Path) -> None:
    """Writes the package's files with the edits."""
    for path, content in files.items():
        text = content.decode()
        for old, new in EDITS:
            text = text.replace(old, new)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def prepare(level: str, kind: str, options: dict, model):
    """The package's initialize(), without its question whether an AdamW is an Adam, which newer PyTorch answers with
    yes, and with DeepSpeed's steps for one rank."""
    from msamp.nn import LinearReplacer, model_state
    from msamp.optim import LBAdam, LBAdamW

    model_state.__init__()
    model = LinearReplacer.replace(model)
    states = (torch.float32, torch.float32) if level == "O1" else (torch.uint8, torch.float16)
    parameters = list(model.parameters())
    kind = {"Adam": LBAdam, "AdamW": LBAdamW}[kind]
    if level != "O3":
        return model, kind(parameters, **options, exp_avg_dtype=states[0], exp_avg_sq_dtype=states[1]), []
    return zero(model, kind, options, states)


def zero(model, kind, options, states):
    """FP8DeepSpeedZeroOptimizer with one rank: masters, a flat tensor of the others, and the refresh after a step."""
    from msamp.common.dtype import Dtypes
    from msamp.nn import ScalingParameter

    weights = [one for one in model.parameters() if isinstance(one, ScalingParameter)]
    plain = [one for one in model.parameters() if not isinstance(one, ScalingParameter)]
    weights.sort(key=lambda one: -one.numel())
    masters = []
    for weight in weights:
        master = weight.clone().cast(Dtypes.kfloat16)
        master.requires_grad = True
        masters.append(master)
        weight.cast_(Dtypes.kfloat8_e4m3)
    flat = torch.cat([one.detach().reshape(-1) for one in plain])
    part = torch.nn.Parameter(torch.nn.functional.pad(flat, (0, -flat.numel() % 2)))
    inner = kind([part, *masters], **options, exp_avg_dtype=states[0], exp_avg_sq_dtype=states[1])

    class Zero:
        state, param_groups = inner.state, inner.param_groups

        def step(self):
            for weight, master in zip(weights, masters, strict=True):
                master.grad = weight.grad.div_(1)
            grads = torch.cat([one.grad.reshape(-1) for one in plain])
            part.grad = torch.nn.functional.pad(grads, (0, -grads.numel() % 2))
            inner.step()
            for weight, master in zip(weights, masters, strict=True):
                weight.copy_(master.cast(weight.qtype))
            begin = 0
            for one in plain:
                one.data.copy_(part.detach()[begin : begin + one.numel()].view(one.shape))
                begin += one.numel()

        def zero_grad(self):
            for one in [*weights, *plain]:
                one.grad = None

    return model, Zero(), masters


# --- several ranks ----------------------------------------------------------------------------------------------------


def summed(tensor, qtype, op=None, group=None, async_op=False):
    """The library's all-reduce, along a ring: an addition of two codes in float16, and a satfinite cast."""
    import torch.distributed as dist

    kind = {"kFloat8E4M3": ml_dtypes.float8_e4m3fn, "kFloat8E5M2": ml_dtypes.float8_e5m2}[qtype.name]
    ranks = dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    gathered = [torch.empty_like(flat) for _ in range(ranks)]
    dist.all_gather(gathered, flat)
    size = -(-flat.numel() // ranks)
    made = []
    for part in range(ranks):
        chunks = [one.numpy()[part * size : (part + 1) * size].view(kind) for one in gathered]
        total = chunks[(part + 1) % ranks]
        for i in range(2, ranks + 1):
            exact = total.astype(np.float16) + chunks[(part + i) % ranks].astype(np.float16)
            total = codes_of(exact.astype(np.float32), kind).view(kind)
        made.append(total.view(np.uint8))
    flat.copy_(torch.from_numpy(np.concatenate(made)))
    if flat.data_ptr() != tensor.data_ptr():
        tensor.copy_(flat.view(tensor.shape))
    return SimpleNamespace(wait=lambda: None) if async_op else None


def ranked(method: str, rank: int, steps: int) -> dict:
    """A training over ranks: by all_reduce_grads, or under FP8DistributedDataParallel."""
    from msamp.nn.distributed import FP8DistributedDataParallel
    from msamp.operators.dist_op import DistOp

    DistOp.all_reduce = summed
    model, optimizer, _ = prepare("O2", "AdamW", {"lr": 0.01}, shared())
    module = FP8DistributedDataParallel(model) if method == "ddp" else model
    losses = []
    for step in range(steps):
        loss, kept = rank_loss(module, step, rank)
        loss.backward()
        optimizer.all_reduce_grads(model)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(kept)
    return summary(losses, model, optimizer)


def main(folder: str, steps: int = STEPS, rank_steps: int = RANK_STEPS) -> None:
    torch.set_num_threads(1)
    stand_in()
    sys.path.insert(0, folder)
    found = {}
    for ranks in (2, 4):
        for method in ("code", "ddp"):
            made = in_ranks(ranks, lambda rank, method=method: ranked(method, rank, rank_steps))
            found[f"{method} {ranks}"] = made[0]
    for name, (level, kind, options, dtype) in SCENARIOS.items():
        model, optimizer, masters = prepare(level, kind, options, network())
        losses = train(model, optimizer, dtype, steps)
        found[name] = summary(losses, model, optimizer, masters)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
