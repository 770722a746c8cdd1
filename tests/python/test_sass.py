# SPDX-License-Identifier: Apache-2.0
"""The machine code of the kernels: instructions that must be there, and instructions that must not.

The release build leaves the machine code in build/release/cubins: objects of the library, and cubins for other
architectures that the test "gpu: kernels compile" makes.
"""

import functools
import importlib.util
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

CUBINS = pathlib.Path(__file__).parents[2] / "build" / "release" / "cubins"


def tool(name: str) -> str:
    """A program of the CUDA toolkit, or of PyPI's package nvidia-cuda-NAME."""
    spec = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    packaged = [shutil.which(str(path)) for folder in folders for path in folder.glob(f"*/bin/{name}")]
    program = next(filter(None, [shutil.which(name), *packaged]), None)
    if program is None:
        pytest.skip(f"no {name}: pip install nvidia-cuda-{name}")
    return program


def machine_code(file: str, folder: pathlib.Path) -> pathlib.Path:
    """The cubin of a source file for an architecture, ``gemm_sm90a.sm_90a``; in the folder, if an object has it."""
    cubin = CUBINS / f"{file}.cubin"
    source, architecture = file.rsplit(".", 1)
    library = CUBINS / f"{source}.cu.o"
    if not cubin.exists() and library.exists():
        subprocess.run(
            [tool("cuobjdump"), "-xelf", "all", library.resolve()], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        cubin = next(folder.glob(f"*.{architecture}.cubin"), cubin)
    if not cubin.exists():
        pytest.skip(f"no {cubin}: the release build has no CUDA compiler for it, or its tests have not run")
    return cubin


@functools.cache
def sass(file: str) -> dict[str, list[str]]:
    """The instructions of each kernel in a file, by the kernel's symbol."""
    with tempfile.TemporaryDirectory() as folder:
        command = [tool("nvdisasm"), "-c", machine_code(file, pathlib.Path(folder))]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    kernels: dict[str, list[str]] = {}
    for line in text.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.([^,]+),", line):
            code = kernels.setdefault(section[1], [])
        elif instruction := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][^;]*)", line):
            code.append(instruction[1].strip())
    return kernels


def missing(code: list[str], wanted: list[str]) -> list[str]:
    """The patterns that no instruction begins with."""
    return [pattern for pattern in wanted if not any(re.match(pattern, instruction) for instruction in code)]


CAST = [r"F2FP\.SATFINITE\.E[45]M[32]\.F32\.PACK_AB", r"LDG\.E\.128"]
# FP8 by mma.sync: one instruction on Ada and RTX Blackwell; FP16's, on unpacked factors, on Hopper and Blackwell.
FP8 = [r"QMMA\.168(16|32)\.F(16|32)\.E[45]M[32]\.E[45]M[32]"]
FP8_LOWERED = [r"HMMA\.168(8|16)\.F(16|32)", r"F2FP\.F16\.E[45]M[32]\.UNPACK_B"]
SYNC_FP8 = "MmaSyncILNS0_7MmaTypeE[01]ELS"
COPY = [r"LDSM\.16\.M88\.4", r"LDGSTS\.E\.BYPASS\.128"]
# encode() in software looks for the leading bit: a compiler that takes its place for a constant has no such instruction.
LEADING_BIT = [r"FLO\.U32"]
# What kernels must have: (file, in the kernel's symbol, beginnings of instructions).
EVIDENCE = [
    ("device.sm_90a", "EncodeKernel", LEADING_BIT),
    ("recorder.sm_90a", "GenerateTiles", LEADING_BIT),
    ("quantize_cast.sm_89", "4CastI", CAST),
    ("quantize_cast.sm_90a", "4CastI", CAST),
    ("quantize_rows.sm_90a", "QuantizeRowsI.*TeMxRecipe", CAST),
    ("quantize_rows.sm_100a", "QuantizeRowsI.*TeMxRecipe", CAST),
    ("recorder.sm_89", SYNC_FP8, FP8),
    ("recorder.sm_90a", SYNC_FP8, FP8_LOWERED),
    (
        "recorder.sm_90a",
        "casts.*(E2m1|E2m3|E3m2|Ue8m0|Stochastic)",
        [r"BPT\.TRAP"],
    ),  # no software in place of an instruction
    ("recorder.sm_100a", "(E2m1|E2m3|E3m2)FromF32EE", [r"F2FP\.SATFINITE\.E[23]M[123]\.F32"]),
    ("recorder.sm_100a", "Ue8m0FromF32", [r"F2FP\.SATFINITE\.E8\.F32\.PACK_AB_MERGE_C\.RP"]),
    ("recorder.sm_100a", "FromF32Stochastic", [r"F2FP\.SATFINITE\.E[245]M[123]\.F32\.PACK_AB_MERGE_C\.RS"]),
    ("recorder.sm_100a", "BlackwellTiles", ["UTC[QO]MMA", r"UTCCP\.T\.S\.4", r"STTM\.x32", r"LDTM\.x32"]),
    ("gemm_sm89.sm_89", "MmaSyncGemm", [*FP8, r"LDG\.E\.128"]),
    (
        "gemm_sm90a.sm_90a",
        "WgmmaGemm",
        [r"QGMMA\.64x(128|256)x32\.F32\.E[45]M[32]\.E[45]M[32]", r"UTMALDG\.2D", r"SYNCS", r"USETMAXREG"],
    ),
    ("gemm_sm100a.sm_100a", "MmaKind", ["UTC[QO]MMA", r"UTMALDG\.2D", r"LDTM\.x32", "UTCBAR"]),
    ("gemm_sm100a.sm_100a", "MmaKindE[234]E", ["UTCOMMA", r"UTCCP\.T\.S\.4"]),
    ("gemm_sm120a.sm_120a", "MmaKindE1E", [r"QMMA\.SF\.16832\.F32\.E[45]M[32]\.E[45]M[32]\.E8", *COPY]),
    ("gemm_sm120a.sm_120a", "MmaKindE2E", [r"OMMA\.SF\.16864\.F32\.E2M1\.E2M1\.E8", *COPY]),
    ("gemm_sm120a.sm_120a", "MmaKindE4E", [r"OMMA\.SF\.16864\.F32\.E2M1\.E2M1\.UE4M3\.4X", *COPY]),
]


@pytest.mark.parametrize(("file", "kernels", "wanted"), EVIDENCE)
def test_kernels_have_their_instructions(file: str, kernels: str, wanted: list[str]) -> None:
    found = {symbol: code for symbol, code in sass(file).items() if re.search(kernels, symbol)}
    assert found
    for symbol, code in found.items():
        assert not missing(code, wanted), symbol
        assert missing(code, ["STL", "LDL"]) == ["STL", "LDL"], symbol


def test_a_cast_in_software_and_local_memory_are_found() -> None:
    (software,) = [code for symbol, code in sass("device.sm_90a").items() if "EncodeKernel" in symbol]
    assert missing(software, CAST) == CAST
    (planted,) = sass("planted/local_memory.sm_90a").values()
    assert not missing(planted, ["STL", "LDL"])
