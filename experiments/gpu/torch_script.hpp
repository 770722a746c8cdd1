// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace fp8lab::experiments {

/// The program that a Python interpreter with PyTorch runs: python -c SCRIPT FOLDER WHAT ARGUMENTS. It writes
/// FOLDER/out, and tells on its standard output what it is; where something is missing it ends with status 3 and the
/// reason.
inline constexpr const char* torch_script = R"py(
import sys

def skip(reason):
    print(reason)
    sys.exit(3)

try:
    import torch
except ImportError:
    skip("this Python has no PyTorch")
if not torch.cuda.is_available():
    skip("this Python's PyTorch %s has no CUDA device" % torch.__version__)
folder, what, arguments = sys.argv[1], sys.argv[2], [int(one) for one in sys.argv[3:]]

def matrix(name, rows, depth):
    with open(folder + "/" + name, "rb") as file:
        codes = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    return codes.reshape(rows, depth).cuda().view(torch.float8_e4m3fn)

if what == "product":
    rows, columns, depth, fast = arguments
    if not hasattr(torch, "_scaled_mm"):
        skip("PyTorch %s has no torch._scaled_mm" % torch.__version__)
    one = torch.ones((), device="cuda")
    out = torch._scaled_mm(matrix("a", rows, depth), matrix("b", columns, depth).t(), scale_a=one, scale_b=one,
                           out_dtype=torch.float32, use_fast_accum=bool(fast))
elif what == "stream":
    count, seed, normal = arguments
    torch.manual_seed(seed)
    out = (torch.randn if normal else torch.rand)(count, device="cuda")
torch.cuda.synchronize()
with open(folder + "/out", "wb") as file:
    file.write(out.contiguous().cpu().view(torch.uint8).numpy().tobytes())
facts = torch.cuda.get_device_properties(0)
print("PyTorch %s, CUDA %s" % (torch.__version__, torch.version.cuda))
print(facts.multi_processor_count, facts.max_threads_per_multi_processor)
)py";

/// How long PyTorch and Transformer Engine take: python -c SCRIPT FOLDER WHAT DEVICE SIZE. Each line of its standard
/// output but the first is "name|what|amount|unit|milliseconds|milliseconds of what it is measured beside". On the
/// device "cpu", for tests, nothing is compiled, and the figures mean nothing.
inline constexpr const char* torch_speed_script = R"py(
import sys, time

def skip(reason):
    print(reason)
    sys.exit(3)

try:
    import torch
except ImportError:
    skip("this Python has no PyTorch")
what, device, size = sys.argv[2], sys.argv[3], int(sys.argv[4])
on_cuda = device == "cuda"
if on_cuda and not torch.cuda.is_available():
    skip("this Python's PyTorch %s has no CUDA device" % torch.__version__)
told = ["PyTorch %s, CUDA %s" % (torch.__version__, torch.version.cuda)]
repetitions, launches = (21, 8) if on_cuda else (3, 1)

def milliseconds(run):
    if not on_cuda:
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(launches):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / launches

def medians(*runs):
    # The median time of each run; the runs follow one another in every repetition, and the first three do not count.
    times = [[milliseconds(run) for run in runs] for _ in range(repetitions + 3)][3:]
    return [sorted(column)[repetitions // 2] for column in zip(*times)]

def beside_a_copy(name, run, moved):
    # Half of the bytes that are moved are read by the copy, half are written.
    source = torch.empty(moved // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    own, copy = medians(run, lambda: target.copy_(source))
    told.append("|".join([name, "%d x %d bfloat16" % (size, size), str(moved), "B", repr(own), repr(copy)]))

def tensor():
    return torch.randn(size, size, device=device, dtype=torch.bfloat16)

if what == "cast":
    def cast_with_amax(x, scale):
        scaled = (x.float() * scale).clamp(-448, 448)
        return scaled.to(torch.float8_e4m3fn), x.abs().amax().float()
    compiled = torch.compile(cast_with_amax, backend="inductor" if on_cuda else "eager")
    x, scale = tensor(), torch.full((), 1.5, device=device)
    beside_a_copy("torch.compile: cast to E4M3 with its amax", lambda: compiled(x, scale), size * size * 3)
elif what == "scaled_mm":
    if not hasattr(torch, "_scaled_mm"):
        skip("PyTorch %s has no torch._scaled_mm" % torch.__version__)
    a, b = (tensor().to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=device)
    def product(fast):
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)
    for fast, (own,) in ((fast, medians(lambda: product(fast))) for fast in (True, False)):
        name = "torch._scaled_mm, " + ("fast accumulation" if fast else "split accumulator")
        told.append("|".join([name, "%d^3, out bfloat16" % size, str(2 * size ** 3), "FLOP", repr(own), "0"]))
elif what == "te":
    try:
        import transformer_engine.pytorch
        import transformer_engine_torch as tex
        from transformer_engine.pytorch.tensor.float8_tensor import Float8Quantizer
        from transformer_engine.pytorch.tensor.mxfp8_tensor import MXFP8Quantizer
    except (ImportError, RuntimeError) as error:  # the latter where only its Python is installed
        skip("this Python has no Transformer Engine: %s" % " ".join(str(error).split()))
    x, code = tensor(), tex.DType.kFloat8E4M3
    scale, amax = torch.ones(1, device=device), torch.zeros(1, device=device)
    delayed = Float8Quantizer(scale, amax, code, rowwise=True, columnwise=False)
    mx, both = (MXFP8Quantizer(code, rowwise=True, columnwise=columnwise) for columnwise in (False, True))
    beside_a_copy("Transformer Engine: cast to E4M3 with its amax", lambda: delayed(x), size * size * 3)
    if not on_cuda or torch.cuda.get_device_capability()[0] >= 10:  # it has no MXFP8 for older chips
        beside_a_copy("Transformer Engine: MXFP8 rowwise", lambda: mx(x), size * size * 3 + size * size // 32)
        beside_a_copy("Transformer Engine: MXFP8 both", lambda: both(x), size * size * 4 + size * size // 16)
print("\n".join(told))
)py";

}  // namespace fp8lab::experiments
