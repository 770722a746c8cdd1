# SPDX-License-Identifier: Apache-2.0
"""Runs Transformer Engine's own tests, from the checkout, on an emulated device, and tells what became of each case.

    FP8LAB_SECONDS=300 python tests/python/te/own_tests.py FILE DEVICE [--write] [pytest options]

prints the counts (outcomes.py says what is left out after that time; without it a file runs whole and in its own order), and with ``--write`` keeps the outcomes in tests/vectors/transformer_engine, with which test_own_tests.py compares;
``--table`` prints the table of the page on Transformer Engine.
"""

import collections
import functools
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import repositories  # noqa: E402

#: The commit of the checkout nearest to the release 2.20.2, which has no tag there: 2.20.0.dev0 of 2026-08-22.
COMMIT = "d0067d0da6cb01811b8072a7d304f0e00344ce2b"
#: What a file wants to be run as a program before its tests: it writes the checkpoints that they read.
BEFORE = {"test_checkpoint.py": ["--save-checkpoint", "all"]}
VECTORS = HERE.parents[1] / "vectors" / "transformer_engine"
COLLECTED = VECTORS / "collected.json"


@functools.cache
def tests_of_checkout() -> tempfile.TemporaryDirectory:
    """A folder with its tests and documentation at the commit."""
    archive = repositories.git(repositories.TRANSFORMER_ENGINE, "archive", COMMIT, "tests/pytorch", "docs")
    folder = tempfile.TemporaryDirectory(prefix="fp8lab-te-tests-")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder.name, filter="data")
    return folder


def outcomes(file: str, device: str, options: list[str], names: list[str] | None = None) -> dict[str, list[str]]:
    """What became of each case of a file of its tests of PyTorch modules: an outcome and its reason."""
    folder = Path(tests_of_checkout().name, "tests", "pytorch")
    with tempfile.TemporaryDirectory() as scratch:
        found, selection = Path(scratch, "found.json"), Path(scratch, "selection.json")
        environment = {
            **os.environ,
            "FP8LAB_OUTCOMES": str(found),
            "PYTHONPATH": os.pathsep.join([str(HERE), str(folder), os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if names is not None:
            selection.write_text(json.dumps(names))
            environment["FP8LAB_SELECTION"] = str(selection)
        if file in BEFORE:
            program = [sys.executable, "-m", "fp8lab.te", "--device", device, "--pretend-cuda", file, *BEFORE[file]]
            subprocess.run(program, cwd=folder, env=environment, capture_output=True, check=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "outcomes", "-p", "no:cacheprovider"]
        command += ["--fp8lab-te-device", device, *options, file]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if not found.exists():
            raise RuntimeError(f"{file} on {device} did not end:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return json.loads(found.read_text())


def collected(file: str, device: str) -> int:
    """How many cases a file has on a device."""
    folder = Path(tests_of_checkout().name, "tests", "pytorch")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    command += ["--fp8lab-te-device", device, file]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"^(\d+) tests? collected", done.stdout, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{file} on {device} was not collected:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return int(found[1])


def counts_of_cases() -> dict[str, int]:
    """The numbers that are kept of cases that files have, by what path_of() calls them."""
    return json.loads(COLLECTED.read_text()) if COLLECTED.exists() else {}


def keep_count(file: str, device: str) -> None:
    known = {**counts_of_cases(), path_of(file, device).name: collected(file, device)}
    COLLECTED.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def path_of(file: str, device: str) -> Path:
    return VECTORS / f"{file.removesuffix('.py').replace('/', '.')}.{device}.json.gz"


def recorded(file: str, device: str) -> dict[str, list[str]]:
    """The outcomes that are kept."""
    return json.loads(gzip.decompress(path_of(file, device).read_bytes()))


def counts(cases: dict[str, list[str]]) -> str:
    kinds = collections.Counter(kind for kind, _ in cases.values())
    lines = [f"{len(cases)} cases: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())]
    for wanted in ("failed", "refused", "not applicable"):
        reasons = collections.Counter(reason for kind, reason in cases.values() if kind == wanted)
        lines += [f"  {count:5d} {wanted}: {reason}" for reason, count in reasons.most_common(12)]
    return "\n".join(lines)


def kept() -> list[tuple[str, str]]:
    """The files and devices whose outcomes are kept."""
    names = sorted(path.name.removesuffix(".json.gz").rsplit(".", 1) for path in VECTORS.glob("*.json.gz"))
    return [(file.replace(".", "/") + ".py", device) for file, device in names]


def needs_cuda_graph(reason: str) -> bool:
    return "CUDAGraph" in reason or "CUDA graph" in reason


def table() -> list[str]:
    """The rows of the page's table: how many cases a file has, what ran of them, and what became of it."""
    rows, known = [], counts_of_cases()
    for file, device in kept():
        cases = recorded(file, device)
        count = collections.Counter(kind for kind, _ in cases.values())
        reasons = collections.Counter(
            reason.split(":")[0].strip("`") for kind, reason in cases.values() if kind in ("refused", "failed")
        )
        told = "; ".join(f"{number} {reason}" for reason, number in reasons.most_common())
        rows.append(
            f"| `{file}` | {device} | {known[path_of(file, device).name]} | {len(cases)} | {count['passed']} | "
            f"{count['not applicable']} | {count['refused']} | {count['failed']} | {told} |"
        )
    return rows


def main() -> None:
    if sys.argv[1:] == ["--table"]:
        print("\n".join(table()))
        return
    file, device, *options = sys.argv[1:]
    writes = "--write" in options
    cases = outcomes(file, device, [one for one in options if one != "--write"])
    print(file, device)
    print(counts(cases))
    if writes:
        VECTORS.mkdir(parents=True, exist_ok=True)
        path_of(file, device).write_bytes(gzip.compress(json.dumps(cases, indent=0).encode(), mtime=0))
        keep_count(file, device)


if __name__ == "__main__":
    main()
