# SPDX-License-Identifier: Apache-2.0
"""torch networks on the CPU, whose linear layers are computed bit for bit as FP8 hardware computes them; needs PyTorch.

>>> import torch, fp8lab.torch
>>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
>>> conversion = fp8lab.torch.convert(model, "te_current_scaling_hopper")
>>> model(torch.randn(32, 64)).sum().backward()

Tensors are read and written in place, without copies, where they are contiguous.
"""

from fp8lab._entry import guard as _guard
from fp8lab.torch._convert import Conversion, ConvertedModule, convert
from fp8lab.torch._converted import ConvertedLinear
from fp8lab.torch._emulate import Emulation, emulate, emulated_device
from fp8lab.torch._linear import Linear, linear
from fp8lab.torch._recorded import record_activations
from fp8lab.torch._selection import LeftModule
from fp8lab.torch._watch import Watch, watch

__all__ = [
    "Conversion",
    "ConvertedLinear",
    "ConvertedModule",
    "Emulation",
    "LeftModule",
    "Linear",
    "Watch",
    "convert",
    "emulate",
    "emulated_device",
    "linear",
    "record_activations",
    "watch",
]

_guard(__name__, ["convert", "emulate", "linear", "record_activations", "watch"])
