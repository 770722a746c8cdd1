# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own scaled GEMMs with a GPU's bits: ``emulate`` switches them on."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab.literals import EmulatedDeviceName
from fp8lab.te.devices import Device, find_device
from fp8lab.torch._scaled_grouped_mm import scaled_grouped_mm
from fp8lab.torch._scaled_mm import scaled_mm, scaled_mm_v2

__all__ = ["Emulation", "emulate", "emulated_device"]

#: What the emulated CUDA is called, for packages that ask.
_CUDA_VERSION = "13.0"


class Emulation:
    """A device whose scaled GEMMs are computed; leaving it as a context, or ``deactivate()``, ends it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._depth = 0
        self._library: Any = None
        self._answers: list[tuple[Any, str, Any]] = []

    @property
    def is_active(self) -> bool:
        """Whether it is on."""
        return self._depth > 0

    def deactivate(self) -> None:
        """Ends the emulation, as often as ``emulate`` began it: PyTorch computes and refuses as before."""
        global _ACTIVE
        if self._depth == 0:
            return
        self._depth -= 1
        if self._depth:
            return
        _ACTIVE = None
        self._library._destroy()
        self._library = None
        while self._answers:
            owner, name, value = self._answers.pop()
            setattr(owner, name, value)

    def _begin(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is overridden: that is what this is for
            for name, kernel in _KERNELS.items():
                if hasattr(torch.ops.aten, name):
                    self._library.impl(name, functools.partial(_run, kernel, self.device), "CPU")
        self._answer()

    def _answer(self) -> None:
        """torchao asks for CUDA and its compute capability; all others see the machine that there is."""
        own_available, own_capability = torch.cuda.is_available, torch.cuda.get_device_capability

        def is_available() -> bool:
            return _is_of_torchao() or bool(own_available())

        def get_device_capability(device: Any = None) -> tuple[int, int]:
            if _is_of_torchao():
                return self.device.capability
            major, minor = own_capability(device)
            return int(major), int(minor)

        for owner, name, value in (
            (torch.cuda, "is_available", is_available),
            (torch.cuda, "get_device_capability", get_device_capability),
            (torch.version, "cuda", torch.version.cuda or _CUDA_VERSION),
        ):
            self._answers.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

    def __enter__(self) -> Emulation:
        return self

    def __exit__(self, *_error: object) -> None:
        self.deactivate()

    def __repr__(self) -> str:
        return f"<fp8lab.torch.Emulation of {self.device}: {'on' if self.is_active else 'off'}>"


_ACTIVE: Emulation | None = None


def _is_of_torchao() -> bool:
    """Whether the caller of the caller is torchao's own code."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).split(".")[0] == "torchao"


def _refuse(_device: Device, *_args: Any, **_options: Any) -> Any:
    raise NotImplementedError(
        "torch.nn.functional.scaled_grouped_mm is not provided by fp8lab.torch.emulate: torch._scaled_grouped_mm is"
    )


_KERNELS: dict[str, Callable[..., Any]] = {
    "_scaled_mm": scaled_mm,
    "_scaled_mm_v2": scaled_mm_v2,
    "_scaled_grouped_mm": scaled_grouped_mm,
    "_scaled_grouped_mm_v2": _refuse,
}


def _run(kernel: Callable[..., Any], device: Device, *args: Any, **options: Any) -> Any:
    """A kernel, called by PyTorch's dispatcher."""
    if kernel is not _refuse:
        options["threads"] = max(1, int(torch.get_num_threads()))
    return kernel(device, *args, **options)


def emulated_device() -> Device | None:
    """The device that ``emulate`` has switched on; None while there is none."""
    return None if _ACTIVE is None else _ACTIVE.device


def emulate(device: EmulatedDeviceName = "h100") -> Emulation:
    """Have PyTorch's scaled GEMMs on CPU tensors give a GPU's bits, from now on: ``torch._scaled_mm``,
    ``torch.nn.functional.scaled_mm`` and ``torch._scaled_grouped_mm``, in all threads, backward passes and dispatched
    tensors.

    torchao, which asks for CUDA's compute capability, is told the device's; all else sees the machine that there is.

    Parameters
    ----------
    device : str
        The name of one of ``fp8lab.te.devices()``.

    Returns
    -------
    Emulation
        Also a context, at whose end PyTorch computes as before; ``deactivate()`` ends it, too.

    Raises
    ------
    TypeError, ValueError
        For an unknown device.
    RuntimeError
        Where another device is emulated already, here or by ``fp8lab.te``.

    Examples
    --------
    >>> with fp8lab.torch.emulate("h100"):
    ...     y = torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    """
    global _ACTIVE
    wanted = find_device(device)
    of_te = sys.modules.get("fp8lab.te._activation")
    if of_te is not None and of_te._ACTIVATION is not None and of_te._ACTIVATION.is_active:
        raise RuntimeError(
            f"fp8lab.te emulates {of_te._ACTIVATION.device.name} already, and computes torch._scaled_mm for it: "
            "deactivate that first"
        )
    if _ACTIVE is not None and _ACTIVE.device != wanted:
        raise RuntimeError(f"{_ACTIVE.device.name} is emulated already: deactivate that first, then {wanted.name}")
    active = Emulation(wanted) if _ACTIVE is None else _ACTIVE
    active._begin()
    _ACTIVE = active
    return active
