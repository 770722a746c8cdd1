// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace fp8lab::experiments {

/// What a Python interpreter with PyTorch runs: python -c SCRIPT FOLDER WHAT ARGUMENTS. It writes FOLDER/out, and tells
/// on its standard output what it is; where something is missing it ends with status 3 and the reason.
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

}  // namespace fp8lab::experiments
