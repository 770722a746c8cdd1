# SPDX-License-Identifier: Apache-2.0
"""The devices that Transformer Engine can be run for: what each answers, and which tensor cores compute its GEMMs."""

from __future__ import annotations

import dataclasses

from fp8lab._arrays import check_name
from fp8lab.literals import ModelName

__all__ = ["Device", "devices", "find_device"]


@dataclasses.dataclass(frozen=True)
class Device:
    """What a GPU says of itself, and the models (``fp8lab.models()``) that its GEMMs run on: a record of facts."""

    name: str
    """By which ``activate`` finds it."""
    title: str
    """What ``torch.cuda.get_device_name`` answers."""
    capability: tuple[int, int]
    """Major and minor compute capability."""
    sms: int
    """Streaming multiprocessors."""
    threads_per_sm: int
    """Resident threads of one of them: they decide how the CUDA generator deals out its numbers."""
    memory_gib: int
    fp8: ModelName
    """The model of FP8 GEMMs whose tensors have one scale each."""
    bf16: str
    fp16: str
    tf32: str
    promote_k: int
    """Elements of K after which a split accumulator is added to a float32 one; 0: its accumulator needs none, or what
    it does is not known."""
    has_all_layouts: bool
    """Whether FP8 GEMMs take operands whose K is not the last dimension; else columnwise data is a transpose."""
    mxfp8: str = ""
    """The model of MXFP8 GEMMs; empty: there are none."""
    nvfp4: str = ""
    block: str = ""
    """The model of GEMMs with float32 scales of 1 x 128 and 128 x 128 elements; empty: there are none."""

    special_units: str = ""
    """Its special function unit (``fp8lab.special_units()``); empty: not known."""

    @property
    def arch(self) -> int:
        """Ten times major plus minor, as CUDA's ``sm_90`` has it."""
        return 10 * self.capability[0] + self.capability[1]

    @property
    def block_is_mxfp8(self) -> bool:
        """Whether float32 block scales become E8M0 ones before the GEMM, as they do from compute capability 10.0."""
        return bool(self.block) and self.block == self.mxfp8

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.title}, compute capability {self.capability[0]}.{self.capability[1]}, {self.sms} SMs"
        )


def _hopper(name: str, title: str, sms: int, memory_gib: int) -> Device:
    return Device(
        name, title, (9, 0), sms, 2048, memory_gib, fp8="hopper_wgmma_fp8", bf16="hopper_bf16", fp16="hopper_fp16",
        tf32="hopper_tf32", promote_k=128, has_all_layouts=False, block="hopper_wgmma_fp8",
        special_units="hopper",
    )  # fmt: skip


def _ada(name: str, title: str, sms: int, memory_gib: int) -> Device:
    return Device(
        name, title, (8, 9), sms, 1536, memory_gib, fp8="ada_mma_fp8", bf16="ada_bf16", fp16="ada_fp16",
        tf32="ada_tf32", promote_k=0, has_all_layouts=False,
    )  # fmt: skip


def _blackwell(name: str, title: str, capability: tuple[int, int], sms: int, memory_gib: int) -> Device:
    return Device(
        name, title, capability, sms, 2048, memory_gib, fp8="blackwell_tcgen05_fp8", bf16="blackwell_bf16",
        fp16="blackwell_fp16", tf32="blackwell_tf32", promote_k=0, has_all_layouts=True, mxfp8="blackwell_mxf8",
        nvfp4="blackwell_nvf4", block="blackwell_mxf8",
    )  # fmt: skip


def _rtx_blackwell(name: str, title: str, sms: int, memory_gib: int) -> Device:
    return Device(
        name, title, (12, 0), sms, 1536, memory_gib, fp8="rtx_blackwell_mma_fp8", bf16="blackwell_bf16",
        fp16="blackwell_fp16", tf32="blackwell_tf32", promote_k=0, has_all_layouts=False, mxfp8="blackwell_mxf8",
        nvfp4="blackwell_nvf4", block="blackwell_mxf8",
    )  # fmt: skip


_DEVICES = (
    _hopper("h100", "NVIDIA H100 80GB HBM3", 132, 80),
    _hopper("h100_pcie", "NVIDIA H100 PCIe", 114, 80),
    _hopper("h200", "NVIDIA H200", 132, 141),
    _ada("l4", "NVIDIA L4", 58, 24),
    _ada("l40s", "NVIDIA L40S", 142, 48),
    _ada("rtx4090", "NVIDIA GeForce RTX 4090", 128, 24),
    _blackwell("b200", "NVIDIA B200", (10, 0), 148, 180),
    _blackwell("gb200", "NVIDIA GB200", (10, 0), 152, 186),
    _rtx_blackwell("rtx5070", "NVIDIA GeForce RTX 5070", 48, 12),
    _rtx_blackwell("rtx5090", "NVIDIA GeForce RTX 5090", 170, 32),
)


def devices() -> list[Device]:
    """The devices that there are; ``str()`` explains each."""
    return list(_DEVICES)


def find_device(name: str) -> Device:
    """The device of that name. ValueError for an unknown one; the message lists those that there are."""
    check_name(name, "device")
    for device in _DEVICES:
        if device.name == name:
            return device
    raise ValueError(f"unknown device {name!r}; known: {', '.join(one.name for one in _DEVICES)}")
