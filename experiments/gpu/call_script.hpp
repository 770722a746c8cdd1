// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace fp8lab::experiments {

/// What PyTorch and Triton compute of operands that integers make: FOLDER WHAT DEVICE SMALL SECONDS. It writes
/// FOLDER/out.npz, an array of words for each tensor, and prints its library, and for each tensor "NAME COUNT DIGEST"
/// or
/// "-NAME reason". After SECONDS it asks for no more. Status 3 and a reason: something is missing.
///
/// tests/vectors/device/README.md says what the names mean; tests/python/test_device_libraries.py and
/// test_device_sums.py make the operands again.
inline constexpr const char* call_script = R"py(
import sys, time

start = time.monotonic()

def skip(reason):
    print(reason)
    sys.exit(3)

try:
    import numpy as np
except ImportError:
    skip("this Python has no NumPy")
try:
    import torch
except ImportError:
    skip("this Python has no PyTorch")
folder, what, device, small, seconds = sys.argv[1:6]
small, seconds = small == "1", float(seconds)
if device == "cuda" and not torch.cuda.is_available():
    skip("this Python's PyTorch %s has no CUDA device" % torch.__version__)

if device == "cpu":
    torch.set_num_threads(1)  # sizes are small, and the processor may have other work

def mixed(z):
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        z = (z ^ z >> np.uint64(shift)) * np.uint64(factor)
    return z

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
lines, arrays = [], {}

def words_of(tensor):
    tensor = tensor.detach().cpu().contiguous()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.view(kind).numpy()

def tell(name, words):
    arrays[name] = words
    flat = np.ascontiguousarray(words).reshape(-1)
    flat = flat.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[flat.itemsize]).astype(np.uint64)
    terms = mixed(mixed(np.arange(flat.size, dtype=np.uint64) + GOLDEN) ^ flat * np.uint64(0xD1B54A32D192ED03))
    lines.append("%s %d %016x" % (name, flat.size, int(np.add.reduce(terms))))

def ask(name, run):
    # run() gives a tensor, or words.
    if time.monotonic() - start > seconds:
        lines.append("-%s the time of %g s for this task was spent" % (name, seconds))
        return
    try:
        given = run()
        tell(name, words_of(given) if isinstance(given, torch.Tensor) else given)
    except Exception as error:
        lines.append("-%s %s" % (name, (" ".join(str(error).split()) or type(error).__name__)[:300]))

# 1. Reductions.

def hashed(count, seed):
    mask = np.uint64(0xFFFFFFFF)
    h = (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed * 0x9E3779B9 % 2**32)) & mask
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39), (15, 1)):
        h ^= h >> np.uint64(shift)
        h = (h * np.uint64(factor)) & mask
    return h

def uniform(rows, columns, seed):
    values = (hashed(rows * columns, seed) >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    return torch.from_numpy(values.reshape(rows, columns)).to(device)

def reduce_rows(tag, dtype, rows, columns):
    name = "/%s/%dx%d" % (tag, rows, columns)
    x = uniform(rows, columns, columns + rows).to(dtype)
    weight, bias = uniform(1, columns, 101)[0].to(dtype), uniform(1, columns, 102)[0].to(dtype)
    functional = torch.nn.functional
    ask("sum" + name, lambda: x.sum(-1))
    ask("sum0" + name, lambda: x.sum(0))
    ask("mean" + name, lambda: x.mean(-1))
    ask("amax" + name, lambda: x.amax(-1))
    ask("sumsq" + name, lambda: torch.linalg.vector_norm(x, dim=-1))
    ask("softmax" + name, lambda: torch.softmax(4 * x, -1)[0])
    ask("layer_norm" + name, lambda: functional.layer_norm(x, (columns,), weight, bias)[0])
    ask("layer_norm_plain" + name, lambda: functional.layer_norm(x, (columns,))[0])
    if hasattr(functional, "rms_norm"):
        ask("rms_norm" + name, lambda: functional.rms_norm(x, (columns,), weight, 1e-5)[0])
    ask("layer_norm_mean" + name, lambda: torch.native_layer_norm(x, (columns,), None, None, 1e-5)[1].reshape(-1)[:64])
    ask("layer_norm_rstd" + name, lambda: torch.native_layer_norm(x, (columns,), None, None, 1e-5)[2].reshape(-1)[:64])

def tree(dtype, axis, rows, count):
    # With 2^60 at i, -2^60 at j and ones elsewhere, the sum is how many ones are added after both.
    pairs = np.array([(i, j) for i in range(count) for j in range(i + 1, count)])
    after = np.empty(len(pairs), np.int16)
    for begin in range(0, len(pairs), rows):
        some = pairs[begin : begin + rows]
        x = np.ones((rows, count), np.float32)
        at = np.arange(len(some))
        x[at, some[:, 0]], x[at, some[:, 1]] = 2.0**60, -(2.0**60)
        x = torch.from_numpy(x).to(device).to(dtype)
        total = x.sum(-1) if axis == -1 else x.t().contiguous().sum(0)
        after[begin : begin + rows] = total.float().cpu().numpy()[: len(some)]
    return after

def reductions(tag, dtype):
    for rows in (4, 64) if small else (4, 64, 1024):
        for columns in (16, 64, 128) if small else (
            16, 32, 64, 100, 128, 256, 512, 768, 1000, 1024, 1280, 2048, 4096, 5120, 8192, 16384):
            reduce_rows(tag, dtype, rows, columns)
    for rows, count in ((64, 16),) if small else ((64, 32), (64, 64), (64, 100), (64, 128), (64, 256), (1024, 32),
                                                  (1024, 64), (1024, 100), (1024, 128), (1024, 256)):
        ask("tree/%s/axis-1/%dx%d" % (tag, rows, count), lambda: tree(dtype, -1, rows, count))
        if count == 64:
            ask("tree/%s/axis0/%dx%d" % (tag, rows, count), lambda: tree(dtype, 0, rows, count))

# 2. Products and casts.

def stream(seed, index):
    begin = mixed(np.array([seed], np.uint64) + GOLDEN)
    return mixed(begin + (index.astype(np.uint64) + np.uint64(1)) * GOLDEN)

def codes(seed, rows, columns):
    w = stream(seed, np.arange(rows * columns))
    exponent = np.uint64(3) + (w >> np.uint64(8)) % np.uint64(8)
    out = (w >> np.uint64(63)) << np.uint64(7) | exponent << np.uint64(3) | w & np.uint64(7)
    tensor = torch.from_numpy(out.astype(np.uint8).reshape(rows, columns)).to(device)
    return tensor.view(torch.float8_e4m3fn)

def centred(seed, count):
    w = stream(seed, np.arange(count))
    total = sum((w >> np.uint64(16 * i) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4))
    return ((total - 131070) / 32768.0).astype(np.float32)

def scaled_mm(kind):
    sizes = ((16, 64), (128, 128)) if small else ((16, 64), (128, 128), (512, 1024), (4096, 4096))
    for m, n in sizes:
        for k in (128, 512) if small else (128, 512, 1024, 4096, 7168, 16384):
            a, b = codes(1, m, k), codes(2, n, k)
            if kind == "tensor":
                scale_a = torch.tensor(0.0078125 * 1.3125, device=device)
                scale_b = torch.tensor(0.015625 * 1.171875, device=device)
            else:
                scale_a, scale_b = (
                    torch.from_numpy(np.abs(centred(seed, size)) * np.float32(0.01) + np.float32(0.001)).to(device)
                    for seed, size in ((4, m), (5, n)))
                scale_a, scale_b = scale_a.reshape(m, 1), scale_b.reshape(1, n)
            bias = torch.from_numpy(centred(3, n)).to(device).to(torch.bfloat16)
            places = torch.from_numpy((stream(9, np.arange(256)) % np.uint64(m * n)).astype(np.int64)).to(device)
            for dtype in (torch.bfloat16, torch.float32):
                for fast in (True, False):
                    for with_bias in (False, True) if dtype == torch.bfloat16 else (False,):
                        name = "mm/%dx%dx%d/%s/%s/%s/%s" % (
                            m, n, k, kind, str(dtype)[6:], "fast" if fast else "split", "bias" if with_bias else "nobias")
                        ask(name, lambda: torch._scaled_mm(
                            a, b.t(), scale_a=scale_a, scale_b=scale_b, bias=bias if with_bias else None,
                            out_dtype=dtype, use_fast_accum=fast).reshape(-1)[places])

def triton_calls():
    try:
        import triton
        import triton.language as tl
    except ImportError:
        skip("this Python has no Triton")
    if device == "cpu":
        skip("Triton needs a GPU")
    global library
    library += ", Triton " + triton.__version__
    globals()["tl"] = tl  # which the kernels name

    @triton.jit
    def cast(x, out, KIND: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + at)
        if KIND == 0:
            tl.store(out + at, value.to(tl.float8e4nv).to(tl.uint8, bitcast=True))
        else:
            tl.store(out + at, value.to(tl.float8e5).to(tl.uint8, bitcast=True))

    @triton.jit
    def dot(a, b, out, K: tl.constexpr, BLOCK: tl.constexpr, MODE: tl.constexpr):
        row = tl.arange(0, 64)
        k = tl.arange(0, BLOCK)
        acc = tl.zeros((64, 64), tl.float32)
        for at in range(0, K, BLOCK):
            left = tl.load(a + row[:, None] * K + at + k[None, :])
            right = tl.load(b + row[None, :] * K + at + k[:, None])
            if MODE == 0:
                acc = tl.dot(left, right, acc)
            elif MODE == 1:
                acc += tl.dot(left, right)
            else:
                acc = tl.dot(left, right, acc, max_num_imprecise_acc=MODE)
        tl.store(out + row[:, None] * 64 + row[None, :], acc)

    def run_cast(x, kind):
        out = torch.empty(x.numel(), dtype=torch.uint8, device=device)
        cast[(x.numel() // 1024,)](x, out, kind, 1024)
        return out

    every = torch.from_numpy(np.arange(65536, dtype=np.uint16).view(np.int16)).to(device)
    drawn = torch.from_numpy(stream(6, np.arange(1 << 22)).astype(np.uint32).view(np.int32)).to(device)
    for kind, format in enumerate(("e4m3", "e5m2")):
        for tag, x in (("float16", every.view(torch.float16)), ("bfloat16", every.view(torch.bfloat16)),
                       ("float32", drawn.view(torch.float32))):
            ask("triton_cast/%s/%s" % (format, tag), lambda: run_cast(x, kind))

    def run_dot(depth, block, mode):
        a, b = codes(41, 64, depth), codes(42, 64, depth)
        out = torch.empty(64, 64, device=device)
        dot[(1,)](a, b, out, depth, block, mode)
        return out

    for depth in (64, 256, 1024, 4096):
        for block in (32, 64, 128):
            for mode in (0, 1, 32, 64, 128):
                if block <= depth:
                    ask("triton_dot/%d/%d/%d" % (depth, block, mode), lambda: run_dot(depth, block, mode))

library = "PyTorch %s, CUDA %s" % (torch.__version__, torch.version.cuda)
if what.startswith("torch_reductions"):
    tag = what.rsplit("_", 1)[1]
    reductions(tag, getattr(torch, tag))
elif what.startswith("libraries_scaled_mm"):
    scaled_mm(what.rsplit("_", 1)[1])
else:
    triton_calls()
np.savez_compressed(folder + "/out.npz", **arrays)
print("\n".join([library, *lines]))
)py";

}  // namespace fp8lab::experiments
