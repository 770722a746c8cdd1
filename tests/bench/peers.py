# SPDX-License-Identifier: Apache-2.0
"""What the same casts cost from Python, beside memcpy and the peers that are installed, all on one thread in one
run."""

import importlib
import statistics
import time

import fp8lab
import numpy as np


def milliseconds(work) -> float:
    """The median of seven runs, after one that is not counted."""
    work()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def microseconds(work, calls: int = 200) -> float:
    """The least of 30 runs, a call: of what takes so little, the median tells more of the machine."""
    work()
    times = []
    for _ in range(30):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        times.append(time.perf_counter() - start)
    return 1e6 * min(times) / calls


def small_calls() -> None:
    few = np.linspace(-2, 2, 16, dtype=np.float32)
    square = fp8lab.torch_cuda_normal(64 * 64, seed=1).reshape(64, 64)
    codes = fp8lab.encode(square, "e4m3")
    rows = [
        ("encode 16 floats", 3, lambda: fp8lab.encode(few, "e4m3")),
        ("decode 16 codes", 3, lambda: fp8lab.decode(codes[0, :16], "e4m3")),
        ("quantize 64 x 64, te_mxfp8", 30, lambda: fp8lab.quantize(square, "te_mxfp8")),
        ("quantize 64 x 64, te_current_scaling", 30, lambda: fp8lab.quantize(square, "te_current_scaling")),
        ("gemm 64 x 64 x 64, hopper_wgmma_fp8", 40, lambda: fp8lab.gemm(codes, codes, model="hopper_wgmma_fp8")),
    ]
    try:
        ml_dtypes = importlib.import_module("ml_dtypes")
        rows.append(("  peer: ml_dtypes astype, 16 floats", 1, lambda: few.astype(ml_dtypes.float8_e4m3fn)))
    except ImportError:
        pass
    print(f"\nSmall calls from Python\n\n{'work':<50} {'us':>10} {'aim':>6}")
    for name, aim, work in rows:
        print(f"{name:<50} {microseconds(work):10.2f} {aim:6}")


def main() -> None:
    x = fp8lab.torch_cuda_normal(1 << 24, seed=1)
    y, codes = np.empty_like(x), np.empty(x.shape, np.uint8)
    copy = milliseconds(lambda: np.copyto(y, x))
    rows = [
        ("encode float32 -> e4m3", 5 / 8, lambda: fp8lab.encode(x, "e4m3", out=codes)),
        ("encode float32 -> e5m2", 5 / 8, lambda: fp8lab.encode(x, "e5m2", out=codes)),
        ("cast_to_representable float32, e4m3", 1, lambda: fp8lab.cast_to_representable(x, "e4m3", out=y)),
    ]
    try:
        ml_dtypes = importlib.import_module("ml_dtypes")
        assert (fp8lab.encode(x, "e4m3", profile="ml_dtypes") == x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)).all()
        rows.append(("  peer: ml_dtypes astype, e4m3", 5 / 8, lambda: x.astype(ml_dtypes.float8_e4m3fn)))
        rows.append(("  peer: ml_dtypes astype, e5m2", 5 / 8, lambda: x.astype(ml_dtypes.float8_e5m2)))
    except ImportError:
        print("ml_dtypes is not installed")
    try:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        tensor = torch.from_numpy(x)
        own = fp8lab.encode(x, "e4m3", profile="torch_2_13")
        assert (own == tensor.to(torch.float8_e4m3fn).view(torch.uint8).numpy()).all()
        rows.append(("  peer: torch, one thread, e4m3", 5 / 8, lambda: tensor.to(torch.float8_e4m3fn)))
    except ImportError:
        print("torch is not installed")
    print(f"\nFrom Python, 64 MiB of float32\n\n{'work':<50} {'ms':>10}   {'bound':<20} {'ms':>10} {'ratio':>7}")
    for name, bound, work in rows:
        time_taken = milliseconds(work)
        print(
            f"{name:<50} {time_taken:10.2f}   {'copy, same bytes':<20} {copy * bound:10.2f} {time_taken / copy / bound:6.2f}x"
        )
    small_calls()


if __name__ == "__main__":
    main()
