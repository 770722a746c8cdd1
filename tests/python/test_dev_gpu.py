# SPDX-License-Identifier: Apache-2.0
"""``./dev gpu``: what it runs, in which order and with which options, with programs of the same names in place of the
compiler's."""

import gzip
import os
import pathlib
import shutil
import stat
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
#: How the program is called.
ASKS = "fp8lab gpu --ledger results/gpu/ledger.json --words results/gpu/words --out results/gpu"
#: Says how it was called.
STUB = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $*" in "$FAILING"*) exit 1 ;; esac
[ "$(basename "$0")" != nvidia-smi ] || echo "$CAPABILITY"
"""


@pytest.fixture
def machine(tmp_path):
    """A folder with ``dev``, and programs that tell how they are called."""
    shutil.copy(ROOT / "dev", tmp_path)
    bin_ = tmp_path / "stubs"
    bin_.mkdir()
    (tmp_path / "build/gpu/bin").mkdir(parents=True)
    for path in [bin_ / name for name in ("cmake", "ctest", "nvidia-smi", "nvcc")] + [
        tmp_path / "build/gpu/bin/fp8lab"
    ]:
        path.write_text(STUB)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(*options, **environment):
        """The exit status, the output, and the calls."""
        calls = tmp_path / "calls"
        calls.unlink(missing_ok=True)
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA", "FP8LAB"))}
        plain |= {"PATH": f"{bin_}:{os.environ['PATH']}", "CALLS": str(calls), "FAILING": "none", "CAPABILITY": "9.0"}
        plain |= {"FP8LAB_THIRD_PARTY": str(tmp_path / "a folder")}  # and no package is installed
        done = subprocess.run(
            [tmp_path / "dev", "gpu", *options], env=plain | environment, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout + done.stderr, calls.read_text().splitlines() if calls.exists() else []

    return run


def test_it_configures_builds_tests_and_asks(machine):
    status, text, calls = machine("--parts", "casts")
    assert status == 0, text
    programs = [call.split()[0] for call in calls]
    assert programs == ["nvidia-smi", "cmake", "cmake", "ctest", "fp8lab"]
    assert (
        "-B build/gpu" in calls[1]
        and "CMAKE_CUDA_ARCHITECTURES=90a-real" in calls[1]
        and "FP8LAB_THIRD_PARTY=" in calls[1]
    )
    assert "--build build/gpu" in calls[2] and "--target fp8lab test_device" in calls[2]
    assert calls[4].startswith(f"{ASKS} --budget 4")
    assert calls[4].endswith("--parts casts")
    assert "Ledger: results/gpu/ledger.json" in text


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [("10.0", "100a-real"), ("12.0", "120a-real"), ("8.9", "89-real"), ("", "90a-real"), ("9.0\n8.9", "90a-real")],
)
def test_the_architecture_is_that_of_the_device(machine, capability, architecture):
    assert f"CMAKE_CUDA_ARCHITECTURES={architecture}" in machine(CAPABILITY=capability)[2][1]


def test_the_device_is_the_first_that_cuda_sees(machine):
    assert machine(CUDA_VISIBLE_DEVICES="1,0")[2][0].startswith("nvidia-smi -i 1 ")
    assert "-i" not in machine(CUDA_VISIBLE_DEVICES="MIG-1234")[2][0].split()
    calls = machine(FAILING="nvidia-smi", CUDAARCHS="100a-real")[2]
    assert "CMAKE_CUDA_ARCHITECTURES=100a-real" in calls[1]


def test_the_options_given_are_taken(machine):
    assert machine("--budget", "30")[2][4] == f"{ASKS} --budget 30"


def test_what_was_found_is_packed_to_be_sent(machine, tmp_path):
    status, text, _ = machine("--share")
    assert status == 1 and "There is no results/gpu/ledger.json" in text
    words = tmp_path / "results/gpu/words"
    words.mkdir(parents=True)
    ledger = b'{"ledger": 1}'
    (words.parent / "ledger.json").write_bytes(ledger)
    sizes = {f"{name}.z": size for name, size in zip("abcde", (9_000_000, 5_500_000, 8_400_000, 100, 5_000_000))}
    for name, size in sizes.items():
        with (words / name).open("wb") as file:
            file.truncate(size)
    status, text, calls = machine("--share", "--parts", "units")
    assert status == 0, text
    assert calls[-1].startswith(ASKS) and calls[-1].endswith("--parts units")
    found = {}
    archives = sorted(words.parent.glob("share-*.tar"))
    for archive in archives:
        assert archive.stat().st_size <= 14_000_000 and f"To send: results/gpu/{archive.name}" in text
        with tarfile.open(archive) as tar:
            for member in tar:
                assert member.name not in found and member.uid == 0 and member.mtime == 0
                found[member.name] = tar.extractfile(member).read()
    assert gzip.decompress(found.pop("ledger.json.gz")) == ledger
    assert {name: len(content) for name, content in found.items()} == {f"words/{k}": v for k, v in sizes.items()}
    assert len(archives) == 3 and not (words.parent / "ledger.json.gz").exists()


@pytest.mark.parametrize(
    ("failing", "last"),
    [("cmake -S", "cmake -S"), ("cmake --build", "cmake --build"), ("ctest", "fp8lab gpu"), ("fp8lab", "fp8lab gpu")],
)
def test_what_fails_ends_it_but_for_the_tests_of_kernels(machine, failing, last):
    status, text, calls = machine(FAILING=failing)
    assert status == 1, text
    assert calls[-1].startswith(last)


def test_the_program_takes_the_options(request):
    """The real one; the script gives it no others."""
    program = ROOT / "build/release/bin/fp8lab"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    done = subprocess.run([program, "gpu", "--help"], capture_output=True, text=True, timeout=60)
    assert all(option in done.stdout for option in ("--ledger", "--words", "--budget", "--out"))
