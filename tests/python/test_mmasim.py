# SPDX-License-Identifier: Apache-2.0
"""A second opinion on the tensor cores, asked live: MMA-Sim (Xie et al., arXiv 2511.10909), the package `mmasim` of
version 2.

Each of its instructions, but one, is compared on dot products of many kinds, word for word, under the zero rule
`floor`, which is MMA-Sim's. NaN words of AMD and of FP64 are open in MMA-Sim: there any NaN is one.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import fp8lab
import numpy as np
import pytest
from sampled import sampled

torch = pytest.importorskip("torch")
os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(sys.prefix, "torch_extensions"))  # mmasim compiles its fma
os.environ["PATH"] = os.path.join(sys.prefix, "bin") + os.pathsep + os.environ["PATH"]  # where ninja is
pytest.importorskip("mmasim")
from mmasim.amd import MFMA, isa_mfma  # noqa: E402
from mmasim.nv_ptx import (  # noqa: E402
    MMA,
    WGMMA,
    MMABlockScale,
    TCGen05MMA,
    TCGen05MMABlockScale,
    isa_mma,
    isa_tcgen05mma,
    isa_wgmma,
)

ROWS = 2048
CHIPS = {"Volta": "volta", "Turing": "turing", "Ampere": "ampere", "Ada Lovelace": "ada", "Hopper": "hopper",
         "Blackwell": "blackwell", "RTX Blackwell": "blackwell"}  # fmt: skip


class Instruction(NamedTuple):
    """One of MMA-Sim's, and the model that is to be the same."""

    make: Callable[[str, str], Any]
    chip: str
    name: str
    model: str
    a: str  # the operands' types, as PTX names them
    b: str
    k: int

    def __str__(self) -> str:
        return f"{self.chip} {self.make.__name__} {self.name}"


def nvidia_model(chip: str, name: str, k: int) -> str:
    """The model of a PTX instruction without block scales."""
    types = [part for part in name.split(".")[1:] if not part.startswith("kind")]
    result, a = types[0], types[1]
    half = "_f16" if result == "f16" else ""
    if a in ("f16", "bf16", "tf32"):
        own = "volta" if name.startswith("m8n8k4.") else CHIPS[chip]
        base = f"{own}_{'fp16' if a == 'f16' else a}"
        return with_k(base, k) + half
    if a == "f64":
        return with_k(f"{CHIPS[chip]}_fp64", k)
    short = "_k16" if k == 16 else ""
    return {"Ada Lovelace": "ada_mma_fp8", "RTX Blackwell": "rtx_blackwell_mma_fp8"}[chip] + short + half


BY_NAME = {model.name: model for model in fp8lab.models()}


def with_k(model: str, k: int) -> str:
    """The model in its shape of that K: the largest has no suffix."""
    return model + (f"_k{k}" if k < BY_NAME[model].k else "")


def k_of(name: str) -> int:
    return int(re.search(r"k(\d+)", name)[1])  # type: ignore[index]


def block_model(name: str) -> str:
    if "mxf8f6f4" in name:
        return "blackwell_mxf8"
    if "ue4m3" in name:
        return "blackwell_nvf4"
    return "blackwell_mxf4_block16" if "block16" in name else "blackwell_mxf4"


def instructions() -> list[Instruction]:
    """All of MMA-Sim's, of each shape's rows and columns the first: every dot product of a tile is computed alike."""
    found = []

    def add(make: Any, chip: str, name: str, model: str, types: list[str]) -> None:
        found.append(Instruction(make, chip, name, model, *types[1:3], k_of(name)))  # type: ignore[arg-type]

    def types_of(name: str) -> list[str]:
        return [part for part in name.split(".")[1:] if not part.startswith(("kind", "block"))]

    for chip, names in isa_mma.mma_shape_and_type.items():
        for name in names:
            if name != "m8n8k4.f32.f16.f16.f16":  # c is float16 and the result float32, which mma() does not offer
                add(MMA, chip, name, nvidia_model(chip, name, k_of(name)), types_of(name))
    for name in isa_wgmma.hopper_wgmma_shape_and_type:
        if "n8k" in name:
            types = types_of(name)
            fp8 = "hopper_wgmma_fp8" + ("_f16" if types[0] == "f16" else "")
            add(WGMMA, "Hopper", name, fp8 if types[1][0] == "e" else nvidia_model("Hopper", name, k_of(name)), types)
    for name in isa_tcgen05mma.blackwell_tcgen05mma_shape_and_type:
        if name.startswith("m64n8k"):
            types = types_of(name)
            fp8 = "blackwell_tcgen05_fp8" + ("_f16" if types[0] == "f16" else "")
            add(
                TCGen05MMA,
                "Blackwell",
                name,
                fp8 if types[1][0] == "e" else nvidia_model("Blackwell", name, k_of(name)),
                types,
            )
    for name in isa_mma.mma_block_scale_shape_and_type["RTX Blackwell"]:
        add(MMABlockScale, "RTX Blackwell", name, block_model(name), types_of(name))
    for name in isa_tcgen05mma.tcgen05mma_block_scale_shape_and_type["Blackwell"]:
        if re.match(r"m\d+n8k", name):
            add(TCGen05MMABlockScale, "Blackwell", name, block_model(name), types_of(name))
    for chip, names in isa_mfma.arch_mfma_suffix.items():
        for name in names:
            instruction = MFMA(chip, name)
            a, b = (re.findall(r"xf32|bf16|f16|fp8|bf8|f32|f64", name)[1:] * 2)[:2]
            own = {"f16": "fp16", "f32": "fp32", "xf32": "xf32", "f64": "fp64", "fp8": "fp8", "bf8": "fp8"}.get(a, a)
            model = f"{chip.lower()}_{own}" + ("_1k" if name.endswith("_1k") else "")
            found.append(Instruction(MFMA, chip, name, with_k(model, instruction.k), a, b, instruction.k))
    return found


FORMATS = {"f16": "float16", "bf16": "bfloat16", "ue8m0": "e8m0", "fp8": "e4m3fnuz", "bf8": "e5m2fnuz"}
TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
         "ue8m0": torch.float8_e8m0fnu, "ue4m3": torch.float8_e4m3fn, "fp8": torch.float8_e4m3fnuz,
         "bf8": torch.float8_e5m2fnuz}  # fmt: skip


@functools.cache
def fields(type: str) -> tuple[int, int]:
    """Exponent and mantissa bits of a type."""
    if type == "f64":
        return 11, 52
    if type in ("tf32", "xf32", "f32"):
        return 8, 23
    known = {format.name: format for format in fp8lab.formats()}
    format = known[FORMATS.get(type, type)]
    return format.exponent_bits, format.mantissa_bits


def words(type: str, shape: tuple[int, ...], kind: str, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Codes of a kind, as 64-bit integers."""
    exponent_bits, mantissa_bits = fields(type)
    bits = exponent_bits + mantissa_bits
    sign = random.integers(0, 2, shape) << bits  # float64's makes a negative integer
    mantissa = random.integers(0, 1 << mantissa_bits, shape) & -(1 << int(random.integers(0, mantissa_bits + 1)))
    top, one = (1 << exponent_bits) - 1, (1 << exponent_bits - 1) - 1
    if kind == "bits":
        return sign | random.integers(0, 1 << bits, shape)
    if kind == "subnormal":
        exponent = random.integers(0, min(3, top), shape)
    elif kind == "near":
        exponent = np.clip(one + random.integers(-3, 4, shape), 0, max(top - 1, 1))
    elif kind == "high":
        exponent = random.integers(max(top - 4, 0), max(top, 1), shape)
    else:
        centre = random.integers(0, top, (*shape[:-1], 1))
        exponent = np.clip(centre + random.integers(-9, 10, shape), 0, max(top - 1, 1))
    result = sign | exponent << mantissa_bits | mantissa
    if kind == "sparse":
        result[random.random(shape) < 0.9] = 0
    return result


def operands(a: str, b: str, k: int, random: np.random.Generator) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    kinds = ("bits", "near", "wide", "subnormal", "sparse", "cancel", "mixed", "high")
    pieces = []
    for kind in kinds:
        shape = (ROWS // len(kinds), k)
        if kind == "cancel":
            x, y = words(a, shape, "near", random), words(b, shape, "near", random)
            x[:, k // 2 : k // 2 * 2] = x[:, : k // 2] ^ np.int64(1) << sum(fields(a))
            y[:, k // 2 : k // 2 * 2] = y[:, : k // 2]
        elif kind == "mixed":
            x, y = words(a, shape, "subnormal", random), words(b, shape, "subnormal", random)
            most = random.random(shape) < 0.1
            x[most] = words(a, shape, "near", random)[most]
        else:
            x, y = words(a, shape, kind, random), words(b, shape, kind, random)
        pieces.append((x, y))
    return np.concatenate([x for x, _ in pieces]), np.concatenate([y for _, y in pieces])


def power(type: str, exponent: int) -> int:
    """The code of 2^exponent; 0 below the least number."""
    exponent_bits, mantissa_bits = fields(type)
    field = exponent + (1 << exponent_bits - 1) - 1
    return field << mantissa_bits if field > 0 else (1 << mantissa_bits - 1) >> -field


def set_floor(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], c: np.ndarray[Any, Any], one: Instruction, model: Any
) -> None:
    """Makes dot products of which the exponent of zero decides the last bit: a sum that is the least result, or half of
    it, and a product beside it at the end of what is kept, or below."""
    half = model.accumulator == "float16"
    if model.zero_exponent is None or one.a not in ("f16", "bf16", "tf32") or (one.a == "f16" and not half):
        return
    deciding, sign = (-25, 0) if half else (-149, 1 << sum(fields(one.a)))
    for row, below in enumerate(range(-2, 4)):
        a[row], b[row], c[row] = 0, 0, 0
        a[row, 0], b[row, 0] = power(one.a, deciding // 2), power(one.a, deciding - deciding // 2)
        least = model.zero_exponent - model.fraction_bits - below
        a[row, 1], b[row, 1] = power(one.a, least // 2) | sign, power(one.a, least - least // 2)


def accumulators(type: str, random: np.random.Generator) -> np.ndarray[Any, Any]:
    exponent_bits, mantissa_bits = fields(type)
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    kinds = [words(type, (ROWS,), kind, random) for kind in ("bits", "subnormal", "near", "wide", "high")]
    kinds += [
        np.zeros(ROWS, np.int64),
        np.ones(ROWS, np.int64) << exponent_bits + mantissa_bits,
        np.full(ROWS, infinity),
    ]
    return np.choose(random.choice(8, ROWS, p=[0.1, 0.15, 0.15, 0.2, 0.1, 0.2, 0.05, 0.05]), kinds)


def scales(type: str, blocks: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    top, one = (254, 127) if type == "ue8m0" else (126, 7 << 3)
    kinds = [np.full((ROWS, blocks), one), random.integers(one - 12, one + 13, (ROWS, blocks)), random.integers(0, 4, (ROWS, blocks)),
             random.integers(top - 3, top + 2, (ROWS, blocks)), random.integers(0, top + 2, (ROWS, blocks)), np.zeros((ROWS, blocks), int)]  # fmt: skip
    return np.choose(random.integers(0, len(kinds), (ROWS, 1)), kinds)


def for_mmasim(codes: np.ndarray[Any, Any], type: str, pairs: bool) -> Any:
    """Codes as MMA-Sim takes them: FP6 in bits 5:0 and FP4 in bits 5:2 of a byte, or two FP4 a byte."""
    if type == "f64":
        return torch.from_numpy(codes).view(torch.float64)
    if type in ("tf32", "xf32", "f32"):
        return torch.from_numpy(codes.astype(np.uint32).view(np.int32)).view(torch.float32)
    if type in ("e3m2", "e2m3"):
        return torch.from_numpy(codes.astype(np.uint8))
    if type == "e2m1":
        packed = codes[:, 0::2] << 4 | codes[:, 1::2]
        return torch.from_numpy((packed if pairs else codes << 2).astype(np.uint8))
    wide = type in ("f16", "bf16")
    return torch.from_numpy(codes.astype(np.uint16 if wide else np.uint8).view(np.int16 if wide else np.uint8)).view(
        TORCH[type]
    )


def for_fp8lab(codes: np.ndarray[Any, Any], type: str) -> tuple[Any, dict[str, str]]:
    if type == "f64":
        return codes.view(np.float64), {}
    if type in ("tf32", "xf32", "f32"):
        return codes.astype(np.uint32).view(np.float32), {}
    if type == "e2m1":
        return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8), {"format": "e2m1"}
    return codes.astype(np.uint16 if type in ("f16", "bf16") else np.uint8), {"format": FORMATS.get(type, type)}


def compare(one: Instruction) -> None:
    random = np.random.default_rng(zlib.crc32(str(one).encode()))
    model = BY_NAME[one.model]
    assert model.k == one.k
    theirs = one.make(one.chip, one.name)
    accumulator = {"float16": "f16", "float32": "f32", "float64": "f64"}[model.accumulator]
    a, b = operands(one.a, one.b, one.k, random)
    c = accumulators(accumulator, random)
    word = np.dtype({"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}[accumulator])
    number, signed = np.dtype(model.accumulator), word.name[1:]
    set_floor(a, b, c, one, model)
    c = c.astype(word)
    x, format_a = for_fp8lab(a, one.a)
    y, format_b = for_fp8lab(b, one.b)
    given: dict[str, Any] = {f"{key}_a": value for key, value in format_a.items()} | {
        f"{key}_b": value for key, value in format_b.items()
    }
    arguments = [for_mmasim(codes, type, one.k == 64) for codes, type in ((a, one.a), (b, one.b))]
    arguments.append(torch.from_numpy(c.view(signed)).view(getattr(torch, model.accumulator)))
    if model.scale_block is not None:
        type = one.name.rpartition(".")[2]
        for side in "ab":
            codes = scales(type, one.k // model.scale_block, random).astype(np.uint8)
            given[f"scale_{side}"] = codes
            arguments.append(torch.from_numpy(codes).view(TORCH[type]))
    expected = theirs.dpa(*arguments).view(getattr(torch, signed)).numpy().view(word)
    got = fp8lab.mma(model, x, y, c.view(number), **given).view(word)
    differs = got != expected
    if one.make is MFMA or accumulator == "f64":  # which leave NaN's word open
        differs &= ~(np.isnan(got.view(number)) & np.isnan(expected.view(number)))
    if model.name.startswith(
        "cdna3_fp8"
    ):  # MMA-Sim drops an accumulator that is infinite or NaN beside products of 2^25 and more
        special = ~np.isfinite(c.view(np.float32)) | (a == 0x80).any(axis=1) | (b == 0x80).any(axis=1)
        differs &= ~special | np.isfinite(got.view(np.float32))
    wrong = np.flatnonzero(differs)
    assert wrong.size == 0, (
        f"{wrong.size} of {ROWS} differ, first row {wrong[0]}: {got[wrong[0]]:x}, MMA-Sim {expected[wrong[0]]:x}"
    )


# Each time a twelfth; what MMA-Sim computes of every instruction is also in a file, which `fp8lab verify tensor-cores` reads.
@pytest.mark.parametrize("one", sampled(instructions(), 12), ids=str)
def test_an_instruction_is_mma_sims(one: Instruction) -> None:
    compare(one)
