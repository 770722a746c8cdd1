# SPDX-License-Identifier: Apache-2.0
"""Writes the measurements of docs/other_tools.md: python tests/docs/peers.py [FOLDER WITH WHEELS].

Bits first: every finite and infinite float16 number is cast by each package and compared with what NVIDIA's headers give
(profile ``cuda_satfinite``, which the tests hold against them). Then the time to cast 2^24 float32 numbers, the best of
five, of one dot product of a tensor core, of ``import`` beside NumPy's own, and of pip with a wheel. What is not
installed is not measured.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import fp8lab
import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "other_tools.md"
BEGIN, END = "<!-- Measured: python tests/docs/peers.py -->\n", "<!-- end of what was measured -->\n"
COUNT = 2**24
IMPORTS = {"ml_dtypes": "ml_dtypes", "gfloat": "gfloat", "apytypes": "apytypes", "torch": "torch", "torchao": "torchao",
           "mmasim": "mmasim", "mmaemu": "mmaemu", "fp8lab": "fp8lab"}  # fmt: skip


def by_ml_dtypes(name: str) -> Callable[[Any], Any]:
    import ml_dtypes

    kind = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[name]
    return lambda x: x.astype(kind).view(np.uint8)


def by_torch(name: str) -> Callable[[Any], Any]:
    import torch

    torch.set_num_threads(1)
    kind = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[name]
    return lambda x: torch.from_numpy(x).to(kind).view(torch.uint8).numpy()


def by_gfloat(name: str) -> Callable[[Any], Any]:
    import gfloat
    from gfloat import formats

    info = {"e4m3": formats.format_info_ocp_e4m3, "e5m2": formats.format_info_ocp_e5m2}[name]
    return lambda x: gfloat.encode_ndarray(info, gfloat.round_ndarray(info, x, sat=True)).astype(np.uint8)


def by_apytypes(name: str) -> Callable[[Any], Any]:
    import apytypes

    bits = {"e4m3": (4, 3), "e5m2": (5, 2)}[name]
    return lambda x: apytypes.APyFloatArray.from_array(x, *bits).to_bits(numpy=True).astype(np.uint8)


def by_fp8lab(name: str) -> Callable[[Any], Any]:
    return lambda x: fp8lab.encode(x, name, threads=1)


CASTS = {
    "fp8lab": by_fp8lab,
    "ml_dtypes": by_ml_dtypes,
    "torch": by_torch,
    "gfloat": by_gfloat,
    "apytypes": by_apytypes,
}


def differing(codes: Any, expected: Any, x: Any) -> str:
    """The numbers whose codes differ, in words."""
    differs = np.flatnonzero(codes != expected)
    if differs.size == 0:
        return "none"
    of = x[differs]
    sizes = np.abs(of[np.isfinite(of)])
    words = [f"{differs.size}"]
    if sizes.size:
        words.append(f"of magnitudes {sizes.min():g} to {sizes.max():g}")
    if np.isinf(of).any():
        words.append("infinities")
    return ", ".join(words)


def seconds(call: Callable[[], Any], times: int = 5) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def casts() -> str:
    rows = "| package | E4M3: differing codes | E5M2: differing codes | E4M3: s | E5M2: s |\n|---|---|---|---|---|\n"
    words = np.arange(2**16, dtype=np.uint16).view(np.float16)
    few = words[~np.isnan(words)].astype(np.float32)
    few = np.concatenate([few, np.float32([7e4, 1e30, -7e4, -1e30])])
    many = np.random.default_rng(1).normal(size=COUNT).astype(np.float32)
    for package, make in CASTS.items():
        if importlib.util.find_spec(package) is None:
            rows += f"| {package} | not measured | | | |\n"
            continue
        cells = [package]
        times = []
        for name in ("e4m3", "e5m2"):
            cast = make(name)
            cells.append(differing(cast(few), fp8lab.encode(few, name), few))
            times.append(f"{seconds(lambda: cast(many), 5 if package != 'gfloat' else 1):.3g}")
        rows += f"| {' | '.join([*cells, *times])} |\n"
    return rows


def dots() -> str:
    """One dot product of 32 E4M3 numbers, as a tensor core of Hopper's wgmma or of Ada's sums it."""
    import torch

    rng = np.random.default_rng(2)
    a, b = (fp8lab.encode(rng.normal(size=(1, 32)).astype(np.float32), "e4m3") for _ in range(2))
    calls: dict[str, Callable[[], Any]] = {
        "fp8lab": lambda: fp8lab.mma("ada_mma_fp8", a, b, format_a="e4m3", format_b="e4m3"),
    }
    if importlib.util.find_spec("mmasim"):
        os.environ["PATH"] = os.path.join(sys.prefix, "bin") + os.pathsep + os.environ["PATH"]  # where ninja is
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(sys.prefix, "torch_extensions"))
        from mmasim.nv_ptx.sim import MMA

        core = MMA("Ada Lovelace", "m16n8k32.f32.e4m3.e4m3.f32")
        left, right = (torch.from_numpy(one.reshape(-1)).view(torch.float8_e4m3fn) for one in (a, b))
        calls["mmasim"] = lambda: core.dpa(left, right, torch.zeros(()))
    if importlib.util.find_spec("mmaemu"):
        from mmaemu import model

        rows = [torch.from_numpy(one).view(torch.float8_e4m3fn) for one in (a, b)]
        calls["mmaemu"] = lambda: model.dot(*rows, preset="ada")
    text = "| package | Ada, 32 products: microseconds | the same bits as fp8lab |\n|---|---|---|\n"
    expected = np.float32(np.asarray(calls["fp8lab"]()).reshape(-1)[0])
    for package, call in calls.items():
        made = call()
        value = np.float32(np.asarray(made.cpu() if hasattr(made, "cpu") else made).reshape(-1)[0])
        text += f"| {package} | {seconds(call, 200) * 1e6:.0f} | {'yes' if value == expected else 'no'} |\n"
    return text


def install_seconds(wheel: pathlib.Path) -> float:
    """Of the processor, user and system, of pip that unpacks the wheel and compiles its Python; without what it needs."""

    def once() -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--no-index",
                "--no-deps",
                "--target",
                folder,
                str(wheel),
            ]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(3))


def imports(wheels: pathlib.Path | None) -> str:
    def processor_seconds(module: str) -> float:
        code = f"import time, numpy; t = time.process_time(); import {module}; print(time.process_time() - t)"
        runs = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)
        ]
        return min(float(run.stdout.split()[-1]) for run in runs)

    text = "| package | version | import, beside NumPy's: s of the processor | wheel: MB | pip installs it: s of the processor |\n"
    text += "|---|---|---|---|---|\n"
    for package, module in IMPORTS.items():
        if importlib.util.find_spec(module) is None:
            text += f"| {package} | | not measured | | |\n"
            continue
        version = fp8lab.__version__ if package == "fp8lab" else importlib.metadata.version(package)
        found = list(wheels.glob(f"{package}-*.whl")) if wheels else []
        size = f"{found[0].stat().st_size / 1e6:.2f}" if found else "not measured"
        installed = f"{install_seconds(found[0]):.1f}" if found else "not measured"
        text += f"| {package} | {version} | {processor_seconds(module):.2f} | {size} | {installed} |\n"
    return text


def processor() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    return f"{facts['model name']} (family {facts['cpu family']}, model {facts['model']})"


def measured(wheels: pathlib.Path | None) -> str:
    head = (
        f"On one core of {processor()}, a machine that others used at the same time; Python {sys.version.split()[0]}, "
    )
    head += f"NumPy {np.__version__}.\n"
    return BEGIN + "\n" + "\n".join([head, casts(), dots(), imports(wheels)]) + "\n" + END


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + measured(folder) + rest.partition(END)[2])
