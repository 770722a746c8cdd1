# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin for torchao's own tests of float8, unchanged: PyTorch's scaled GEMMs are those of the device that
FP8LAB_DEVICE names, and the CPU answers where the tests ask for an accelerator."""

import os
import sys

import fp8lab.torch
import torch


def asks_for_a_gpu() -> bool:
    """Whether the caller of the caller is torchao, or a file of its tests; PyTorch itself sees the machine that there is."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith(("test_", "torchao."))


def pytest_configure(config) -> None:
    """Before torchao is imported: some of its cases exist only where it finds a compute capability."""
    fp8lab.torch.emulate(os.environ["FP8LAB_DEVICE"])
    accelerator, available = torch.accelerator.current_accelerator, torch.accelerator.is_available
    torch.cuda.is_available = lambda: asks_for_a_gpu()
    torch.accelerator.is_available = lambda: asks_for_a_gpu() or available()
    torch.accelerator.current_accelerator = lambda *args: (
        torch.device("cpu") if asks_for_a_gpu() else accelerator(*args)
    )
    torch.Tensor.cuda = lambda self, *_args, **_options: self
    torch.set_autocast_dtype("cpu", torch.float16)  # CUDA's default
