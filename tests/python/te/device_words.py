# SPDX-License-Identifier: Apache-2.0
"""What Transformer Engine's kernels compute, word by word: recorded on a GPU, and computed again by fp8lab.te.

Usage: device_words.py OUT.npz SECONDS CASE [REGEX], where Transformer Engine 2.20 runs, or under ``python -m fp8lab.te``.
OUT.npz has, for each tensor of each call, its words, or its first ones with a digest of all where it is large; what a
call raised stands in ``errors``. Operands are made by integer arithmetic, so that they are the same everywhere.
"""

import importlib.metadata
import os
import re
import sys
import time

import numpy as np
import torch
import transformer_engine.pytorch as te
import transformer_engine_torch as tex
from transformer_engine.common import recipe as recipes

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import drawn_words  # noqa: E402
from drawn_words import digest, hashed  # noqa: E402

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
NAMES = {BF16: "bf16", FP16: "fp16", FP32: "fp32"}
DTYPES = {BF16: tex.DType.kBFloat16, FP16: tex.DType.kFloat16, FP32: tex.DType.kFloat32}
E4M3, E5M2 = tex.DType.kFloat8E4M3, tex.DType.kFloat8E5M2
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def drawn(seed, shape, dtype=BF16, scale=1.0, wide=False):
    return torch.from_numpy(drawn_words.drawn(seed, shape, scale, wide)).to(dtype).cuda()


def normal(seed, shape, dtype=BF16, scale=1.0):
    return torch.from_numpy(drawn_words.normal(seed, shape, scale)).to(dtype).cuda()


def every16(dtype):
    """Every word of a type of 16 bits, in rows of 256; as float32: those of bfloat16."""
    words = torch.from_numpy(np.arange(65536, dtype=np.uint16).view(np.int16)).reshape(256, 256)
    return (words.view(BF16).float() if dtype == FP32 else words.view(dtype)).cuda()


PARTS = (
    "_data", "_transpose", "_scale_inv", "_rowwise_data", "_columnwise_data", "_rowwise_scale_inv", "_columnwise_scale_inv",
    "_amax_rowwise", "_amax_columnwise",
)  # fmt: skip


def parts_of(name, value):
    """The plain tensors of what a function returned, with names."""
    if isinstance(value, (list, tuple)):
        for i, one in enumerate(value):
            yield from parts_of(f"{name}.{i}", one)
    elif type(value) in (torch.Tensor, torch.nn.Parameter):
        yield name, value
    elif value is not None:  # a quantized tensor
        for part in PARTS:
            if isinstance(getattr(value, part, None), torch.Tensor):
                yield name + part, getattr(value, part)


# --- casts ------------------------------------------------------------------------------------------------------------


def quantizers():
    for fmt, tag in ((E4M3, "e4m3"), (E5M2, "e5m2")):

        def delayed(fmt=fmt):
            return te.Float8Quantizer(torch.full((1,), 3.7, device="cuda"), torch.zeros(1, device="cuda"), fmt)

        yield f"delayed.{tag}", delayed
        for power in (False, True):
            for epsilon in (0.0, 1e-4):
                yield (
                    f"current.{tag}.{power}.{epsilon}",
                    lambda fmt=fmt, power=power, epsilon=epsilon: te.Float8CurrentScalingQuantizer(
                        fmt, device="cuda", force_pow_2_scales=power, amax_epsilon=epsilon
                    ),
                )
                for dim in (1, 2):
                    yield (
                        f"block{dim}.{tag}.{power}.{epsilon}",
                        lambda fmt=fmt, power=power, epsilon=epsilon, dim=dim: te.Float8BlockQuantizer(
                            fmt,
                            rowwise=True,
                            columnwise=True,
                            force_pow_2_scales=power,
                            amax_epsilon=epsilon,
                            block_scaling_dim=dim,
                        ),
                    )


def operands(dtype):
    yield "wide", drawn(1, (256, 384), dtype, 4.0, wide=True)
    x = normal(2, (128, 256), dtype)
    x[3, 7] = 0.0
    x[5] = 0.0
    x[9, 11] = -0.0
    yield "normal", x
    tiny = drawn(3, (128, 128), dtype, 2.0**-20, wide=True)
    yield "tiny", tiny
    yield "odd", drawn(4, (48, 80), dtype, 100.0, wide=True)
    bad = normal(6, (128, 256), dtype)
    bad[17, 33] = float("nan")
    bad[100, 200] = float("inf")
    yield "special", bad


@case
def quantize():
    for name, make in quantizers():
        for dtype in (BF16, FP32, FP16):
            for what, x in operands(dtype):

                def run(make=make, x=x):
                    quantizer = make()
                    quantizer.set_usage(rowwise=True, columnwise=True)
                    return [quantizer(x), getattr(quantizer, "amax", None)]

                yield f"{name}/{NAMES[dtype]}/{what}", run


@case
def bgrad():
    for name, make in quantizers():
        if "True" in name or "0.0001" in name:
            continue
        for dtype in (BF16, FP32, FP16):
            for rows, columns in ((256, 384), (128, 1024), (2048, 128), (96, 80)):
                x = normal(7, (rows, columns), dtype)
                yield f"{name}/{NAMES[dtype]}/{rows}x{columns}", lambda make=make, x=x: tex.bgrad_quantize(x, make())


@case
def dequantize():
    for name, make in quantizers():
        if "0.0001" in name:
            continue
        for dtype in (BF16, FP32, FP16):
            x = drawn(8, (128, 256), FP32, 4.0, wide=True)
            yield f"{name}/{NAMES[dtype]}", lambda make=make, dtype=dtype, x=x: tex.dequantize(make()(x), DTYPES[dtype])


@case
def delayed_state():
    for algo in ("max", "most_recent"):
        for length in (1, 4, 16):
            for margin in (0, 2):

                def run(algo=algo, length=length, margin=margin):
                    n = 9
                    history = drawn(10, (length, n), FP32, 3.0, wide=True).abs()
                    scale = torch.full((n,), 5.0, device="cuda")
                    reduced = drawn(11, (n,), FP32, 2.0, wide=True).abs()
                    reduced[1] = 0
                    reduced[2] = float("inf")
                    reduced[3] = float("nan")
                    reduced[4] = 1e-44
                    reduced[5] = 448
                    reduced[6] = 57344 * 2.0**80
                    history[:, 1] = 0
                    tex.fused_amax_and_scale_update_after_reduction(reduced, [history], [scale], algo, E4M3, margin)
                    return [history, scale]

                yield f"{algo}/{length}/{margin}", run


@case
def partial():
    x = drawn(12, (256, 512), FP32, 4.0, wide=True)
    for dtype in (FP32, BF16):
        w = x.to(dtype)
        for start, count in ((0, 256 * 512), (1000, 70000), (512 * 128, 512 * 100 + 37)):

            def amax(w=w, start=start, count=count):
                out = torch.zeros(2, 4, device="cuda")
                tex.fp8_block_scaling_compute_partial_amax(
                    w.reshape(-1)[start : start + count].contiguous(), out, 256, 512, start, 128
                )
                return out

            yield f"amax/{NAMES[dtype]}/{start}", amax

            def cast(w=w, start=start, count=count):
                out = torch.zeros(count, dtype=torch.uint8, device="cuda")
                scale = drawn(13, (2, 4), FP32, 100.0).abs() + 1
                tex.fp8_block_scaling_partial_cast(
                    w.reshape(-1)[start : start + count].contiguous(), out, scale, 256, 512, start, 128, E4M3
                )
                return out

            yield f"cast/{NAMES[dtype]}/{start}", cast

    def scales(power, epsilon):
        amax = drawn(14, (300,), FP32, 3.0, wide=True).abs()
        amax[0] = 0
        amax[1] = float("inf")
        amax[2] = 1e-42
        amax[3] = 448
        amax[4] = float("nan")
        amax[5] = 3e38
        s, i = torch.zeros_like(amax), torch.zeros_like(amax)
        tex.multi_tensor_compute_scale_and_scale_inv(
            65536, torch.zeros(1, dtype=torch.int32, device="cuda"), [[amax], [s], [i]], 448.0, power, epsilon
        )
        return [s, i]

    for power in (False, True):
        for epsilon in (0.0, 1e-5):
            yield f"scales/{power}/{epsilon}", lambda power=power, epsilon=epsilon: scales(power, epsilon)


# --- activations ------------------------------------------------------------------------------------------------------

PLAIN = ("gelu", "qgelu", "relu", "srelu", "silu")
GATED = ("glu", "geglu", "qgeglu", "reglu", "sreglu", "swiglu")


@case
def activation():
    for name in PLAIN:
        for dtype in (BF16, FP16, FP32):
            x = every16(dtype)
            yield f"{name}/{NAMES[dtype]}", lambda name=name, x=x: getattr(tex, name)(x, None)
            grad = drawn(20, (256, 256), dtype, 2.0)
            yield f"d{name}/{NAMES[dtype]}", lambda name=name, x=x, grad=grad: getattr(tex, "d" + name)(grad, x, None)
        x = drawn(21, (512, 512), FP32, 8.0, wide=True)
        yield f"{name}/fp32/wide", lambda name=name, x=x: getattr(tex, name)(x, None)
        yield (
            f"d{name}/fp32/wide",
            lambda name=name, x=x: getattr(tex, "d" + name)(drawn(22, (512, 512), FP32), x, None),
        )
    for name in GATED:
        for dtype in (BF16, FP16, FP32):
            x = torch.cat([every16(dtype), drawn(23, (256, 256), dtype, 3.0)], 1).contiguous()
            y = torch.cat([drawn(24, (256, 256), dtype, 3.0), every16(dtype)], 1).contiguous()
            grad = drawn(25, (256, 256), dtype, 2.0)
            for tag, v in (("a", x), ("b", y)):
                yield f"{name}/{NAMES[dtype]}/{tag}", lambda name=name, v=v: getattr(tex, name)(v, None)
                yield (
                    f"d{name}/{NAMES[dtype]}/{tag}",
                    lambda name=name, v=v, grad=grad: getattr(tex, "d" + name)(grad, v, None),
                )
    for dtype in (BF16, FP32):
        x = drawn(26, (256, 512), dtype, 10.0)
        grad = drawn(27, (256, 256), dtype)
        yield f"clamped_swiglu/{NAMES[dtype]}", lambda x=x: tex.clamped_swiglu(x, None, 7.0, 1.702)
        yield f"clamped_dswiglu/{NAMES[dtype]}", lambda x=x, grad=grad: tex.clamped_dswiglu(grad, x, None, 7.0, 1.702)
        s = drawn(28, (256,), FP32, 2.0)
        yield f"scaled_swiglu/{NAMES[dtype]}", lambda x=x, s=s: tex.scaled_swiglu(x, s, None, 0)
        yield (
            f"scaled_dswiglu/{NAMES[dtype]}",
            lambda x=x, s=s, grad=grad: tex.scaled_dswiglu(grad, x, s, None, 0, True),
        )
        yield f"scaled_srelu/{NAMES[dtype]}", lambda x=x, s=s: tex.scaled_srelu(x, s, None)
        yield (
            f"scaled_dsrelu/{NAMES[dtype]}",
            lambda x=x, s=s: tex.scaled_dsrelu(drawn(29, (256, 512), x.dtype), x, s, None, True),
        )


@case
def activation_cast():
    """With the cast, which takes what is not rounded."""
    for kind in ("delayed.e4m3", "delayed.e5m2", "current.e4m3.False.0.0", "block1.e4m3.True.0.0"):
        make = dict(quantizers())[kind]
        for dtype in (BF16, FP32):
            x, grad = drawn(30, (256, 512), dtype, 5.0, wide=True), drawn(31, (256, 512), dtype)
            for name in PLAIN:
                yield f"{name}/{kind}/{NAMES[dtype]}", lambda name=name, x=x, make=make: getattr(tex, name)(x, make())
                yield (
                    f"dbias_d{name}/{kind}/{NAMES[dtype]}",
                    lambda name=name, x=x, grad=grad, make=make: getattr(tex, "dbias_d" + name)(grad, x, make()),
                )
            for name in GATED:
                yield f"{name}/{kind}/{NAMES[dtype]}", lambda name=name, x=x, make=make: getattr(tex, name)(x, make())
                g = drawn(32, (256, 256), dtype)
                yield (
                    f"d{name}/{kind}/{NAMES[dtype]}",
                    lambda name=name, x=x, g=g, make=make: getattr(tex, "d" + name)(g, x, make()),
                )


# --- norms, softmax, rope ---------------------------------------------------------------------------------------------

HIDDEN = (
    16,
    64,
    100,
    128,
    200,
    256,
    300,
    512,
    768,
    1000,
    1024,
    1152,
    1280,
    1536,
    2048,
    2304,
    3072,
    4096,
    5120,
    6144,
    8192,
    12288,
    16384,
)


def norm_calls(dtype, rows, hidden, centered):
    """LayerNorm and RMSNorm with their gradients, by name."""
    x = normal(40 + rows, (rows, hidden), dtype)
    x[1] *= 30
    w, b = drawn(41, (hidden,), dtype), drawn(42, (hidden,), dtype)
    dz = drawn(43, (rows, hidden), dtype)
    key = f"{NAMES[dtype]}/{rows}x{hidden}/{centered}"

    def layernorm():
        y, mu, rs = tex.layernorm_fwd(x, w, b, 1e-5, None, None, DTYPES[dtype], 0, centered)
        return [y, mu, rs] + list(tex.layernorm_bwd(dz, x, mu, rs, w, 0, centered))

    def rmsnorm():
        y, _, rs = tex.rmsnorm_fwd(x, w, 1e-5, None, None, DTYPES[dtype], 0, centered)
        return [y, rs] + list(tex.rmsnorm_bwd(dz, x, rs, w, 0, centered))

    yield f"layer/{key}", layernorm
    yield f"rms/{key}", rmsnorm


@case
def norm():
    for hidden in HIDDEN:
        for dtype in (BF16, FP32, FP16):
            for rows in (8, 64, 512):
                if rows == 512 and (dtype == FP16 or hidden > 8192):
                    continue
                for centered in (False, True):
                    if centered and (rows != 64 or dtype == FP16):
                        continue
                    yield from norm_calls(dtype, rows, hidden, centered)
    for hidden in (256, 512, 768, 1024, 1536, 2048, 4096, 8192):  # more rows than a GPU takes at once
        for dtype in (BF16, FP32):
            for rows in (1000, 4096):
                yield from norm_calls(dtype, rows, hidden, False)
    for hidden in (256, 1024, 4096):
        for kind in ("delayed.e4m3", "current.e4m3.False.0.0", "block1.e4m3.True.0.0"):
            make = dict(quantizers())[kind]
            x, w, b = normal(44, (128, hidden)), drawn(41, (hidden,)), drawn(42, (hidden,))
            yield (
                f"layer/cast/{kind}/{hidden}",
                lambda x=x, w=w, b=b, make=make: tex.layernorm_fwd(x, w, b, 1e-5, None, make(), DTYPES[BF16], 0, False),
            )
            yield (
                f"rms/cast/{kind}/{hidden}",
                lambda x=x, w=w, make=make: tex.rmsnorm_fwd(x, w, 1e-5, None, make(), DTYPES[BF16], 0, False),
            )


@case
def softmax():
    for dtype in (BF16, FP16):
        for keys in (16, 32, 64, 128, 192, 256, 512, 1024, 2048, 4096):
            b, h, q = 2, 2, 64
            x = drawn(50, (b, h, q, keys), dtype, 8.0)
            dy = drawn(51, (b, h, q, keys), dtype)
            mask = (torch.from_numpy(hashed(b * q * keys, 52) % np.uint64(3) == 0).reshape(b, 1, q, keys)).cuda()
            key = f"{NAMES[dtype]}/{keys}"

            def plain(x=x, dy=dy):
                y = tex.scaled_softmax_forward(x, 0.125)
                return [y, tex.scaled_softmax_backward(dy.clone(), y, 0.125)]

            def masked(x=x, dy=dy, mask=mask):
                y = tex.scaled_masked_softmax_forward(x, mask, 0.3)
                return [y, tex.scaled_masked_softmax_backward(dy.clone(), y, 0.3)]

            def aligned(x=x, dy=dy):
                y = tex.scaled_aligned_causal_masked_softmax_forward(x, 0.25)
                return [y, tex.scaled_aligned_causal_masked_softmax_backward(dy.clone(), y, 0.25)]

            yield f"plain/{key}", plain
            yield f"masked/{key}", masked
            yield f"aligned/{key}", aligned
            if keys <= 1024:
                s = drawn(53, (4, keys, keys), dtype, 6.0)
                d = drawn(54, (4, keys, keys), dtype)

                def causal(s=s, d=d):
                    y = tex.scaled_upper_triang_masked_softmax_forward(s, 0.5)
                    return [y, tex.scaled_upper_triang_masked_softmax_backward(d.clone(), y, 0.5)]

                yield f"causal/{key}", causal


@case
def rope():
    from transformer_engine.pytorch.attention.rope import RotaryPositionEmbedding, apply_rotary_pos_emb

    for dtype in (BF16, FP32, FP16):
        for rotary in (1.0, 0.5):
            for interleaved in (False, True):
                for layout in ("sbhd", "bshd"):

                    def run(dtype=dtype, rotary=rotary, interleaved=interleaved, layout=layout):
                        dim = 64
                        freqs = drawn(62, (40, 1, 1, int(dim * rotary)), FP32, 40.0)
                        shape = (40, 2, 3, dim) if layout == "sbhd" else (2, 40, 3, dim)
                        x = drawn(60, shape, dtype, 2.0).requires_grad_()
                        y = apply_rotary_pos_emb(x, freqs, tensor_format=layout, interleaved=interleaved, fused=True)
                        y.backward(drawn(61, shape, dtype))
                        return [y, x.grad]

                    yield f"{NAMES[dtype]}/{rotary}/{interleaved}/{layout}", run
    yield "embedding", lambda: RotaryPositionEmbedding(64)(128)


# --- optimizers, permutation ------------------------------------------------------------------------------------------


@case
def optimizer():
    shapes = ((1000,), (64, 65), (2048 * 33 + 5,))

    def lists(dtype, grad_dtype=None):
        g = [drawn(70 + i, s, grad_dtype or dtype, 0.1, wide=True) for i, s in enumerate(shapes)]
        p = [drawn(80 + i, s, dtype) for i, s in enumerate(shapes)]
        m = [drawn(90 + i, s, FP32, 0.01) for i, s in enumerate(shapes)]
        v = [drawn(100 + i, s, FP32, 0.001).abs() for i, s in enumerate(shapes)]
        return [g, p, m, v]

    zero = lambda: torch.zeros(1, dtype=torch.int32, device="cuda")
    for dtype in (FP32, BF16, FP16):
        for mode in (0, 1):
            for correction in (0, 1):

                def adam(dtype=dtype, mode=mode, correction=correction):
                    all4 = lists(dtype)
                    for step in (1, 2, 3):
                        tex.multi_tensor_adam(
                            2048 * 32, zero(), all4, 1e-3, 0.9, 0.999, 1e-8, step, mode, correction, 0.01
                        )
                    return all4[1:]

                yield f"adam/{NAMES[dtype]}/{mode}/{correction}", adam

        def master(dtype=dtype):
            all5 = lists(dtype) + [[one.float() for one in lists(dtype)[1]]]
            tex.multi_tensor_adam(2048 * 32, zero(), all5, 1e-3, 0.9, 0.95, 1e-8, 7, 1, 1, 0.1)
            return all5[1:]

        yield f"adam_master/{NAMES[dtype]}", master
        for nesterov in (False, True):

            def sgd(dtype=dtype, nesterov=nesterov):
                g, p, m, _ = lists(dtype)
                m = [one.to(dtype) if dtype != FP32 else one for one in m]
                tex.multi_tensor_sgd(2048 * 32, zero(), [g, p, m], 0.01, 0.9, 0.0, 0.1, nesterov, False, False, 1.0)
                return [p, m]

            yield f"sgd/{NAMES[dtype]}/{nesterov}", sgd

        def norms(dtype=dtype):
            return list(tex.multi_tensor_l2norm(2048 * 32, zero(), [lists(dtype)[0]], True))

        yield f"l2norm/{NAMES[dtype]}", norms

        def unscaled(dtype=dtype):
            return list(
                tex.multi_tensor_unscale_l2norm(
                    2048 * 32, zero(), [lists(dtype)[0]], torch.full((1,), 0.37, device="cuda"), True
                )
            )

        yield f"unscale_l2norm/{NAMES[dtype]}", unscaled

        def scale(dtype=dtype):
            g = lists(dtype)[0]
            out = [torch.empty_like(one) for one in g]
            tex.multi_tensor_scale(2048 * 32, zero(), [g, out], 0.37)
            return out

        yield f"scale/{NAMES[dtype]}", scale
    for n in (1, 7, 512, 2048, 65536, 65537, 1000003):
        yield (
            f"l2norm/fp32/{n}",
            lambda n=n: list(tex.multi_tensor_l2norm(2048 * 32, zero(), [[drawn(110, (n,), FP32)]], False)),
        )

    def remainder():
        g, p, m, v = lists(BF16)
        low = [
            torch.from_numpy((hashed(int(np.prod(s)), 120) & np.uint64(0xFFFF)).astype(np.uint16).view(np.int16))
            .reshape(s)
            .cuda()
            for s in shapes
        ]
        tex.multi_tensor_adam_param_remainder(
            2048 * 32, zero(), [g, p, m, v, low], 1e-3, 0.9, 0.999, 1e-8, 3, 1, 1, 0.01
        )
        return [p, m, v, low]

    yield "adam_remainder", remainder

    def capturable(scale):
        all4 = lists(FP32)
        tex.multi_tensor_adam_capturable(
            2048 * 32,
            zero(),
            all4,
            torch.full((1,), 1e-3, device="cuda"),
            0.9,
            0.999,
            1e-8,
            torch.full((1,), 5, dtype=torch.int32, device="cuda"),
            1,
            1,
            0.01,
            torch.full((1,), scale, device="cuda"),
        )
        return all4

    yield "adam_capturable/1", lambda: capturable(1.0)
    yield "adam_capturable/0.3", lambda: capturable(0.3)


@case
def permute():
    for dtype in (BF16, FP32, FP16):
        for top in (1, 2, 4):

            def run(dtype=dtype, top=top):
                tokens, hidden, experts = 96, 128, 8
                x = drawn(130, (tokens, hidden), dtype)
                index = (
                    torch.from_numpy(
                        np.argsort(hashed(tokens * experts, 131).reshape(tokens, experts), 1)[:, :top].astype(np.int32)
                    )
                    .contiguous()
                    .cuda()
                )
                y, rows, _ = tex.moe_permute_fwd(x, DTYPES[dtype], index, 0, [], tokens * top)
                prob = drawn(132, (tokens, top), FP32).abs()
                z = tex.moe_unpermute_fwd(
                    y, DTYPES[dtype], rows, prob if top > 1 else torch.empty(0, device="cuda"), tokens, top
                )
                back = tex.moe_unpermute_bwd(
                    drawn(133, (tokens, hidden), dtype),
                    y,
                    DTYPES[dtype],
                    rows,
                    prob if top > 1 else torch.empty(0, device="cuda"),
                )
                return [y, rows, z, list(back)]

            yield f"{NAMES[dtype]}/{top}", run


# --- products ---------------------------------------------------------------------------------------------------------


@case
def product():
    from transformer_engine.pytorch.cpp_extensions import general_gemm

    shapes = ((64, 96, 160), (128, 256, 512), (256, 1024, 256), (16, 4096, 64))
    for m, k, n in shapes:
        for kind in ("delayed.e4m3", "current.e4m3.False.0.0", "block.True.0.0", "block.False.0.0", "plain"):
            for layout in ("TN", "NN", "NT"):
                for out in (BF16, FP32):
                    for split in (True, False):
                        for extra in ("none", "bias", "gelu", "accumulate"):
                            if extra != "none" and (layout != "TN") != (extra == "accumulate"):
                                continue
                            if extra == "accumulate" and layout != "NT":
                                continue
                            if kind.startswith("block") and (extra == "gelu" or not split):
                                continue
                            if extra == "gelu" and out == FP32:
                                continue

                            def run(m=m, k=k, n=n, kind=kind, layout=layout, out=out, split=split, extra=extra):
                                dtype = BF16 if not (kind == "plain" and out == FP32) else FP32
                                # as te.Linear: fprop w[n,k] x[m,k]; dgrad w[n,k] dy[m,n]; wgrad x[m,k] dy[m,n]
                                w, x, dy = (
                                    drawn(140, (n, k), dtype, 0.1),
                                    normal(141, (m, k), dtype),
                                    normal(142, (m, n), dtype, 0.01),
                                )
                                if kind == "plain":
                                    qw = qx = qd = lambda t: t
                                elif kind.startswith("block"):
                                    tail = kind[6:]
                                    qw, qx, qd = (dict(quantizers())[f"block{dim}.e4m3.{tail}"]() for dim in (2, 1, 1))
                                else:
                                    qw, qx = dict(quantizers())[kind](), dict(quantizers())[kind]()
                                    qd = dict(quantizers())[kind.replace("e4m3", "e5m2")]()
                                for q in (qw, qx, qd):
                                    if hasattr(q, "set_usage"):
                                        q.set_usage(rowwise=True, columnwise=True)
                                a, b = {"TN": (qw(w), qx(x)), "NN": (qw(w), qd(dy)), "NT": (qx(x), qd(dy))}[layout]
                                given = {}
                                if extra == "bias":
                                    given["bias"] = drawn(143, (n,), BF16)
                                if extra == "gelu":
                                    given["gelu"] = True
                                if extra == "accumulate":
                                    given.update(accumulate=True, out=drawn(144, (n, k), out))
                                made = general_gemm(
                                    a,
                                    b,
                                    out_dtype=out,
                                    layout=layout,
                                    use_split_accumulator=split,
                                    grad=layout != "TN",
                                    **given,
                                )
                                return list(made)

                            yield f"{kind}/{m}x{k}x{n}/{layout}/{NAMES[out]}/{split}/{extra}", run


# --- modules over steps -----------------------------------------------------------------------------------------------


def fill(module, seed):
    with torch.no_grad():
        for i, (name, p) in enumerate(sorted(module.named_parameters())):
            p.copy_(
                drawn(seed + i, tuple(p.shape), p.dtype, 0.1) + (1.0 if "norm" in name and "weight" in name else 0.0)
            )
    return module


RECIPES = {
    "delayed": lambda: recipes.DelayedScaling(amax_history_len=3),
    "delayed_e4m3": lambda: recipes.DelayedScaling(
        fp8_format=recipes.Format.E4M3, amax_history_len=2, amax_compute_algo="most_recent"
    ),
    "current": recipes.Float8CurrentScaling,
    "block": recipes.Float8BlockScaling,
    "none": None,
}


def trained(make, shape, recipe, dtype, steps=4, call=lambda m, x: m(x)):
    module = fill(make(), 200)
    optimizer = te.optimizers.FusedAdam(module.parameters(), lr=2.0**-7)
    out = []
    given = RECIPES[recipe]() if RECIPES[recipe] else None
    for step in range(steps):
        x = normal(300 + step, shape, dtype).requires_grad_()
        optimizer.zero_grad()
        with te.autocast(enabled=given is not None, recipe=given):
            y = call(module, x)
        y = y[0] if isinstance(y, tuple) else y
        y.backward(drawn(320 + step, tuple(y.shape), y.dtype, 0.5))
        out.append([y, x.grad, [p.grad for _, p in sorted(module.named_parameters())]])
        optimizer.step()
    return out + [[p for _, p in sorted(module.named_parameters())]]


@case
def module():
    for recipe in RECIPES:
        for dtype in (BF16, FP32):
            given = {"params_dtype": dtype}
            yield (
                f"Linear/{recipe}/{NAMES[dtype]}",
                lambda recipe=recipe, dtype=dtype, given=given: trained(
                    lambda: te.Linear(256, 384, **given), (64, 256), recipe, dtype
                ),
            )
            yield (
                f"LayerNormLinear/{recipe}/{NAMES[dtype]}",
                lambda recipe=recipe, dtype=dtype, given=given: trained(
                    lambda: te.LayerNormLinear(256, 384, **given), (64, 256), recipe, dtype
                ),
            )
            for act in ("gelu", "swiglu"):
                for normalization in ("LayerNorm", "RMSNorm"):
                    yield (
                        f"LayerNormMLP/{recipe}/{NAMES[dtype]}/{act}/{normalization}",
                        lambda recipe=recipe, dtype=dtype, given=given, act=act, normalization=normalization: trained(
                            lambda: te.LayerNormMLP(256, 512, activation=act, normalization=normalization, **given),
                            (64, 256),
                            recipe,
                            dtype,
                        ),
                    )
        yield (
            f"TransformerLayer/{recipe}",
            lambda recipe=recipe: trained(
                lambda: te.TransformerLayer(
                    256, 512, 4, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=BF16, fuse_qkv_params=True
                ),
                (64, 2, 256),
                recipe,
                BF16,
                3,
            ),
        )


@case
def further():
    """What fp8lab.te refuses today."""
    for dtype in (FP32, BF16):
        logits = drawn(400, (64, 16), dtype, 4.0)
        for score in ("softmax", "sigmoid", "sqrtsoftplus"):
            for pre in (True, False):
                for groups in (None, 4):

                    def topk(logits=logits, score=score, pre=pre, groups=groups):
                        bias = drawn(401, (16,), FP32, 0.1) if score != "softmax" else None
                        made = tex.fused_topk_with_score_function_fwd(
                            logits, 4, pre, groups, 2 if groups else None, 1.5, score, bias
                        )
                        return [
                            t.to(torch.int32) if isinstance(t, torch.Tensor) and t.dtype == torch.bool else t
                            for t in made
                        ]

                    yield f"topk/{NAMES[dtype]}/{score}/{pre}/{groups}", topk

            def aux(logits=logits, score=score):
                made = tex.fused_score_for_moe_aux_loss_fwd(logits, 4, score)
                return [t.to(torch.int32) if isinstance(t, torch.Tensor) and t.dtype == torch.bool else t for t in made]

            yield f"aux_score/{NAMES[dtype]}/{score}", aux

            def wide(dtype=dtype, score=score):
                logits = drawn(403, (128, 256), dtype, 6.0)
                bias = drawn(404, (256,), FP32, 0.1) if score != "softmax" else None
                probs, routed, inner = tex.fused_topk_with_score_function_fwd(logits, 8, True, 8, 4, 2.5, score, bias)
                grad = torch.empty_like(logits)
                tex.fused_topk_with_score_function_bwd(
                    routed, inner, drawn(405, (128, 256), dtype), grad, 8, True, 2.5, score
                )
                return [probs, routed, inner, grad]

            yield f"topk256/{NAMES[dtype]}/{score}", wide

        def loss(dtype=dtype):
            probs = drawn(402, (64, 16), dtype).abs()
            tokens = torch.arange(16, dtype=torch.int32, device="cuda") * 3
            return list(tex.fused_moe_aux_loss_fwd(probs, tokens, 64, 16, 64, 16, 4, 0.01))

        yield f"aux_loss/{NAMES[dtype]}", loss
    from transformer_engine.pytorch.attention.rope import apply_fused_qkv_rotary_pos_emb

    for dtype in (BF16, FP32, FP16):
        for interleaved in (False, True):

            def qkv(dtype=dtype, interleaved=interleaved):
                freqs = drawn(62, (40, 1, 1, 64), FP32, 40.0)
                x = drawn(415, (40, 2, 2, 64 * 4), dtype, 2.0).requires_grad_()
                made = apply_fused_qkv_rotary_pos_emb(x, freqs, freqs, [128, 64, 64], interleaved=interleaved)
                torch.autograd.backward(made, [drawn(416 + i, tuple(one.shape), dtype) for i, one in enumerate(made)])
                return [*made, x.grad]

            yield f"qkv_rope/{NAMES[dtype]}/{interleaved}", qkv

        def dropout(dtype=dtype):
            torch.manual_seed(77)
            y, mask = tex.dropout_fwd(drawn(410, (64, 256), dtype), 0.3, None)
            return [y, mask, tex.dropout_bwd(drawn(411, (64, 256), dtype), mask, 0.3, None)]

        yield f"dropout/{NAMES[dtype]}", dropout
        x, g = drawn(412, (64, 512), dtype, 5.0), drawn(413, (64, 256), dtype)
        yield f"situglu/{NAMES[dtype]}", lambda x=x: tex.situglu(x, None)
        yield f"dsituglu/{NAMES[dtype]}", lambda x=x, g=g: tex.dsituglu(g, x, None)
        x = drawn(414, (64, 2048), dtype)
        yield (
            f"torch_dropout/{NAMES[dtype]}",
            lambda x=x: (torch.manual_seed(5), torch.nn.functional.dropout(x, 0.25))[1],
        )
        yield f"torch_softmax/{NAMES[dtype]}", lambda x=x: torch.softmax(x, -1)


@case
def mx_on_hopper():
    """Whether the quantizers of Blackwell run here."""
    from transformer_engine.pytorch.tensor.mxfp8_tensor import MXFP8Quantizer
    from transformer_engine.pytorch.tensor.nvfp4_tensor import NVFP4Quantizer

    for dtype in (BF16, FP32):
        x = normal(500, (128, 256), dtype)
        yield f"mxfp8/{NAMES[dtype]}", lambda x=x: MXFP8Quantizer(E4M3)(x)
        yield f"nvfp4/{NAMES[dtype]}", lambda x=x: NVFP4Quantizer()(x)


# --- the record -------------------------------------------------------------------------------------------------------


def words_of(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bool:
        tensor = tensor.to(torch.uint8)
    if tensor.element_size() == 1:
        return tensor.view(torch.uint8).cpu().numpy()
    return tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]).cpu().numpy()


MOST = 1 << 13


def record(path, seconds, case, pattern):
    """Runs one case's calls whose names match, and writes their words."""
    start, kept, errors, count = time.time(), {}, [], 0
    for tag, run in CASES[case]():
        if not re.search(pattern, tag):
            continue
        if time.time() - start > seconds:
            errors.append(f"{tag}\ttime is up")
            break
        try:
            for part, tensor in parts_of(f"{case}/{tag}", run()):
                words = words_of(tensor)
                if words.size > MOST:
                    kept[f"{part}#digest"], kept[f"{part}#shape"] = digest(words), np.array(words.shape)
                    words, part = words.reshape(-1)[: MOST // 2], f"{part}#first"
                kept[part] = words
            count += 1
        except Exception as error:  # whatever a release or a chip refuses is an answer, too
            errors.append(f"{tag}\t{type(error).__name__}: {str(error)[:300]}")
    versions = [torch.__version__, importlib.metadata.version("transformer_engine"), torch.cuda.get_device_name()]
    np.savez_compressed(path, errors=np.array(errors), versions=np.array(versions), **kept)
    print(
        f"{case}: {count} calls, {len(kept)} arrays, {len(errors)} errors, {time.time() - start:.1f} s",
        *errors[:20],
        sep="\n  ",
    )


if __name__ == "__main__":
    out, budget, wanted, *rest = sys.argv[1:]
    record(out, float(budget), wanted, rest[0] if rest else "")
