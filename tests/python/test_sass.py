# SPDX-License-Identifier: Apache-2.0
"""The machine code of the kernels: instructions that must be there, and instructions that must not.

The test "gpu: kernels compile" of the release build leaves the machine code in build/release/cubins.
"""

import importlib.util
import pathlib
import re
import shutil
import subprocess

import pytest

CUBINS = pathlib.Path(__file__).parents[2] / "build" / "release" / "cubins"


def nvdisasm() -> str:
    """The disassembler, of the CUDA toolkit or of PyPI's nvidia-cuda-nvdisasm."""
    spec = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [shutil.which("nvdisasm"), *(shutil.which(str(path)) for folder in folders for path in folder.glob("*/bin/nvdisasm"))]
    program = next(filter(None, found), None)
    if program is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm")
    return program


def sass(cubin: pathlib.Path) -> dict[str, list[str]]:
    """The instructions of each kernel, by the kernel's symbol."""
    text = subprocess.run([nvdisasm(), "-c", cubin], capture_output=True, text=True, check=True).stdout
    kernels: dict[str, list[str]] = {}
    for line in text.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.([^,]+),", line):
            code = kernels.setdefault(section[1], [])
        elif instruction := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][^;]*)", line):
            code.append(instruction[1].strip())
    return kernels


@pytest.fixture(scope="module")
def machine_code() -> dict[tuple[str, str], dict[str, list[str]]]:
    """The kernels of each (source, architecture)."""
    cubins = sorted(CUBINS.glob("*.cubin"))
    if not cubins:
        pytest.skip(f"no machine code in {CUBINS}: the release build has no CUDA compiler, or its tests have not run")
    return {(cubin.name.split(".")[0], cubin.suffixes[-2][1:]): sass(cubin) for cubin in cubins}


def missing(code: list[str], wanted: list[str]) -> list[str]:
    """The patterns that no instruction begins with."""
    return [pattern for pattern in wanted if not any(re.match(pattern, instruction) for instruction in code)]


# What kernels must have: (part of the symbol, architecture, beginnings of instructions).
CAST = [r"F2FP\.SATFINITE\.E[45]M[32]\.F32\.PACK_AB", r"LDG\.E\.128"]
EVIDENCE: list[tuple[str, str, list[str]]] = [
    ("GemmSm120INS0_13MmaSyncScaledILNS0_10ScaledKindE0E", "sm_120a", [r"QMMA\.SF\.16832\.F32\.E[45]M[32]\.E[45]M[32]\.E8", r"LDSM\.16\.M88\.4", r"LDGSTS\.E\.BYPASS\.128"]),
    ("GemmSm120INS0_13MmaSyncScaledILNS0_10ScaledKindE1E", "sm_120a", [r"OMMA\.SF\.16864\.F32\.E2M1\.E2M1\.E8", r"LDSM\.16\.M88\.4"]),
    ("GemmSm120INS0_13MmaSyncScaledILNS0_10ScaledKindE3E", "sm_120a", [r"OMMA\.SF\.16864\.F32\.E2M1\.E2M1\.UE4M3\.4X", r"LDSM\.16\.M88\.4"]),
    # One instruction of FP8 on Ada and RTX Blackwell; FP16's, on unpacked factors, on Hopper and Blackwell.
    ("12MmaSyncTilesINS0_7MmaSyncILNS0_7MmaTypeE0ELS3_0E", "sm_89", [r"QMMA\.168(16|32)\.F(16|32)\.E4M3\.E4M3"]),
    ("12MmaSyncTilesINS0_7MmaSyncILNS0_7MmaTypeE0ELS3_0E", "sm_120a", [r"QMMA\.168(16|32)\.F(16|32)\.E4M3\.E4M3"]),
    ("12MmaSyncTilesINS0_7MmaSyncILNS0_7MmaTypeE0ELS3_0E", "sm_90a", [r"HMMA\.168(08|16)\.F(16|32)", r"F2FP\.F16\.E4M3\.UNPACK_B"]),
    ("12MmaSyncTilesINS0_7MmaSyncILNS0_7MmaTypeE0ELS3_0E", "sm_100a", [r"HMMA\.168(08|16)\.F(16|32)", r"F2FP\.F16\.E4M3\.UNPACK_B"]),
]  # fmt: skip
# Kernels that may use local memory: EncodeKernel's format is known at run time only, so it has no instruction of its own.
LOCAL = [("EncodeKernel", "sm_89")]


def test_kernels_have_their_instructions(machine_code) -> None:
    for part, architecture, wanted in EVIDENCE:
        found = {symbol: code for (_, arch), kernels in machine_code.items() if arch == architecture
                 for symbol, code in kernels.items() if part in symbol}  # fmt: skip
        assert found, f"no {part} for {architecture}"
        for symbol, code in found.items():
            assert not missing(code, wanted), (symbol, architecture)


def test_no_kernel_uses_local_memory(machine_code) -> None:
    for (source, architecture), kernels in machine_code.items():
        assert kernels, source
        for symbol, code in kernels.items():
            assert len(code) > 5, symbol
            if not any(part in symbol and architecture == exception for part, exception in LOCAL):
                assert not [line for line in code if re.match(r"(STL|LDL)\b", line)], (symbol, architecture)


def test_a_cast_in_software_and_local_memory_are_found(machine_code) -> None:
    software = [code for kernels in machine_code.values() for symbol, code in kernels.items() if "EncodeKernel" in symbol]
    assert len(software) >= 2
    assert all(missing(code, CAST) == CAST for code in software)
    planted = sass(CUBINS / "planted" / "local_memory.sm_90a.cubin")
    (code,) = planted.values()
    assert not missing(code, ["STL", "LDL"])
