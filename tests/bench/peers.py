# SPDX-License-Identifier: Apache-2.0
"""What the same casts cost from Python, beside memcpy and the peers that are installed, all on one thread in one run."""

import importlib
import statistics
import time

import numpy as np

import fp8lab


def milliseconds(work) -> float:
    """The median of seven runs, after one that is not counted."""
    work()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


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
        print(f"{name:<50} {time_taken:10.2f}   {'copy, same bytes':<20} {copy * bound:10.2f} {time_taken / copy / bound:6.2f}x")


if __name__ == "__main__":
    main()
