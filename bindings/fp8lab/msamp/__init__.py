# SPDX-License-Identifier: Apache-2.0
"""Microsoft's MS-AMP on a CPU, bit for bit: FP8 layers, FP8 gradients and Adam's moments of few bits; needs PyTorch.

>>> import torch, fp8lab.msamp
>>> model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
>>> model, optimizer = fp8lab.msamp.initialize(model, torch.optim.AdamW(model.parameters()), opt_level="O2")
>>> model(torch.randn(16, 32)).square().mean().backward()
>>> optimizer.step()

``initialize_zero`` is O3. While ``fp8lab.te`` emulates a device, ``import msamp`` finds this package, and Hugging Face
accelerate its backend.
"""

from fp8lab.msamp._distributed import (
    AutoScale,
    FP8DistributedDataParallel,
    all_reduce_average,
    all_reduce_codes,
    sum_codes,
)
from fp8lab.msamp._initialize import ParameterBytes, bytes_per_parameter, initialize, initialize_zero
from fp8lab.msamp._linear import Linear, ModelState, replace_linears
from fp8lab.msamp._optimizers import LBAdam, LBAdamW, clip_grad_norm_
from fp8lab.msamp._tensors import ScalingMeta, ScalingParameter, ScalingTensor, cast, scaling_factor
from fp8lab.msamp._zero import ZeroOptimizer

__all__ = [
    "AutoScale",
    "FP8DistributedDataParallel",
    "LBAdam",
    "LBAdamW",
    "Linear",
    "ModelState",
    "ParameterBytes",
    "ScalingMeta",
    "ScalingParameter",
    "ScalingTensor",
    "ZeroOptimizer",
    "all_reduce_average",
    "all_reduce_codes",
    "bytes_per_parameter",
    "cast",
    "clip_grad_norm_",
    "initialize",
    "initialize_zero",
    "replace_linears",
    "scaling_factor",
    "sum_codes",
]
