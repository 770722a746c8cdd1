# SPDX-License-Identifier: Apache-2.0
"""The kernels: on arrays that lie on a CUDA device, in place, and the same source on the host where there is none."""

from __future__ import annotations

from dataclasses import dataclass

from fp8lab import _core

__all__ = ["Device", "Kernel", "Status", "device_count", "devices", "kernels", "status"]


@dataclass(frozen=True)
class Device:
    """A CUDA device."""

    index: int
    name: str
    """As NVIDIA names it."""
    capability: tuple[int, int]
    """Its compute capability: (9, 0) for Hopper."""
    processors: int
    """Streaming multiprocessors."""
    memory: int
    """Bytes in all."""


@dataclass(frozen=True)
class Status:
    """What CUDA says of this machine."""

    count: int
    """Devices that this process may use."""
    driver: str
    """The newest CUDA that the driver supports, such as ``13.0``; empty without a driver, or where fp8lab was built without CUDA."""
    cuda: str
    """The CUDA that fp8lab was built with; empty where without."""
    architectures: str
    """Those that the kernels were compiled for, such as ``90``."""
    why_none: str
    """Where count is 0: why, what CUDA's error is, and what to do."""


@dataclass(frozen=True)
class Kernel:
    """What one should know of a kernel before reading it."""

    name: str
    header: str
    """In ``gpu/include/fp8lab/gpu`` of the sources."""
    chips: str
    """That it is compiled for."""
    computes: str
    equals: str
    """The function of fp8lab whose bits it gives."""


def status() -> Status:
    """What CUDA says of this machine: devices, driver, the CUDA that fp8lab was built with, and why there is no device."""
    return Status(*_core.gpu_status())


def device_count() -> int:
    """The number of CUDA devices that this process may use; ``status().why_none`` tells why it is 0."""
    return status().count


def devices() -> list[Device]:
    """The CUDA devices that this process may use.

    Raises
    ------
    RuntimeError
        Where CUDA fails.
    """
    return [
        Device(index, name, (major, minor), processors, memory)
        for index, name, major, minor, processors, memory in _core.gpu_devices()
    ]


def kernels() -> list[Kernel]:
    """The kernels that there are, and which function of fp8lab each equals bit for bit."""
    return [Kernel(*one) for one in _core.gpu_kernels()]
