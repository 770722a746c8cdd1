# SPDX-License-Identifier: Apache-2.0
"""MS-AMP's entry, by levels, and the bytes that each level keeps for a parameter."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from fp8lab._arrays import check_bool, check_choice, kind_of
from fp8lab._entry import entry
from fp8lab.literals import OptLevelName, ParameterKindName, ReductionName, ScheduleName
from fp8lab.msamp._distributed import AutoScale
from fp8lab.msamp._linear import Linear, check_model, replace_linears
from fp8lab.msamp._optimizers import LBAdam, LBAdamW
from fp8lab.msamp._zero import ZeroOptimizer

__all__ = ["ParameterBytes", "bytes_per_parameter", "initialize", "initialize_zero"]

_LEVELS = ("O1", "O2")
#: Options of PyTorch's Adam that MS-AMP's has not.
_DROPPED = ("foreach", "capturable", "differentiable", "fused", "amsgrad", "decoupled_weight_decay")


@dataclasses.dataclass(frozen=True)
class ParameterBytes:
    """What is kept for one parameter, in bytes."""

    weight: int
    master: int
    gradient: int
    exp_avg: int
    exp_avg_sq: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.weight + self.master + self.gradient + self.exp_avg + self.exp_avg_sq


def bytes_per_parameter(opt_level: OptLevelName, kind: ParameterKindName = "linear") -> ParameterBytes:
    """The bytes that a level keeps for a parameter.

    Parameters
    ----------
    opt_level : str
        "O1", "O2" or "O3". Of O3 they are those before the ranks divide the master and the moments.
    kind : str
        "linear": a weight of an FP8 layer. "other": any other parameter, in float32.

    Returns
    -------
    ParameterBytes
        Scales, of which each tensor has few, are not counted.
    """
    check_choice(opt_level, "opt_level", (*_LEVELS, "O3"))
    is_linear = check_choice(kind, "kind", ("linear", "other")) == "linear"
    moments = (4, 4) if opt_level == "O1" else (1, 2)
    if not is_linear:
        return ParameterBytes(4, 0, 4, *moments)
    return ParameterBytes(1 if opt_level == "O3" else 2, 2 if opt_level == "O3" else 0, 1, *moments)


def _device(device: str | None) -> str:
    """The one given, the emulated one, or an H100."""
    if device is not None:
        return device
    from fp8lab.te._activation import active_device

    try:
        return active_device().name
    except RuntimeError:
        return "h100"


@entry
def initialize(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    opt_level: OptLevelName = "O1",
    use_te: bool = False,
    *,
    device: str | None = None,
    reduction: ReductionName = "code",
) -> tuple[torch.nn.Module, LBAdamW]:
    """Makes a model and its optimizer those of MS-AMP.

    Parameters
    ----------
    model : torch.nn.Module
        On the CPU. Each ``torch.nn.Linear`` becomes a ``Linear`` of FP8, in place; one with a true attribute
        ``use_fp32_linear`` stays.
    optimizer : torch.optim.Adam or torch.optim.AdamW, optional
        Over parameters of the model; it becomes an ``LBAdam`` or ``LBAdamW`` with its groups and options. Left out:
        AdamW with PyTorch's options.
    opt_level : str
        "O1": float16 weights with a scale, E4M3 gradients of them, float32 moments. "O2": the first moment in E4M3, the
        second one in float16.
    use_te : bool
        False: layers of Transformer Engine are not converted.
    device : str, optional
        One of ``fp8lab.te.devices()``, whose tensor cores compute the GEMMs. Left out: the one that ``fp8lab.te``
        emulates, or else "h100".
    reduction : str
        How ``optimizer.all_reduce_grads(model)`` reduces gradients. "code": as MS-AMP does. "paper": by the
        ``AutoScale`` of FP8-LM; call it each step, also with one process.

    Returns
    -------
    tuple of torch.nn.Module and LBAdamW

    Raises
    ------
    TypeError, ValueError
        For another level, O3 among them, other optimizers and options, parameters of other models, and models whose
        conversion ``replace_linears`` refuses.
    """
    if opt_level == "O3":
        raise ValueError(
            "opt_level must be O1 or O2, not O3, whose weights have masters that ZeRO divides among ranks: "
            "call fp8lab.msamp.initialize_zero"
        )
    check_choice(opt_level, "opt_level", _LEVELS)
    check_choice(reduction, "reduction", ("code", "paper"))
    if check_bool(use_te, "use_te"):
        raise ValueError("use_te must be False: layers of Transformer Engine are not converted; fp8lab.te runs them")
    check_model(model)
    if optimizer is None:
        optimizer = torch.optim.AdamW(model.parameters())
    kind, options = _kind_of(optimizer)
    numbers = {id(one): i for i, one in enumerate(model.parameters())}
    for group in optimizer.param_groups:
        for one in group["params"]:
            if id(one) not in numbers:
                raise ValueError(
                    f"optimizer must have parameters of the model alone, and one of shape {tuple(one.shape)} is not"
                )
    converted = replace_linears(model, device=_device(device))
    parameters = list(converted.parameters())
    groups = [
        {
            **{key: value for key, value in group.items() if key not in _DROPPED},
            "params": [parameters[numbers[id(one)]] for one in group["params"]],
        }
        for group in optimizer.param_groups
    ]
    states = (torch.float32, torch.float32) if opt_level == "O1" else (torch.uint8, torch.float16)
    made = kind(groups, **options, exp_avg_dtype=states[0], exp_avg_sq_dtype=states[1])
    if reduction == "paper":
        scale = AutoScale()
        for layer in converted.modules():
            if isinstance(layer, Linear):
                layer.state.keeps_gradients, layer.state.auto_scale = True, scale
    return converted, made


def _kind_of(optimizer: Any) -> tuple[type[LBAdamW], dict[str, Any]]:
    """What becomes of an optimizer, and its options. In recent releases of PyTorch AdamW is an Adam."""
    if not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
        raise TypeError(f"optimizer must be a torch.optim.Adam or AdamW, not {kind_of(optimizer)}")
    defaults = optimizer.defaults
    for group in (defaults, *optimizer.param_groups):
        if group.get("amsgrad"):
            raise ValueError("amsgrad must be False: MS-AMP has no other")
    is_decoupled = isinstance(optimizer, torch.optim.AdamW) or defaults.get("decoupled_weight_decay", False)
    return (LBAdamW if is_decoupled else LBAdam), {k: v for k, v in defaults.items() if k not in _DROPPED}


@entry
def initialize_zero(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    device: str | None = None,
    group: Any = None,
    schedule: ScheduleName = "ring",
) -> tuple[torch.nn.Module, ZeroOptimizer]:
    """Makes a model and its optimizer those of MS-AMP's O3, whose states the ranks of torch.distributed divide.

    The original reaches it by DeepSpeed's configuration; here one process is a rank by itself.

    Parameters
    ----------
    model, optimizer, device
        As of ``initialize``. Parameters outside of its FP8 layers are float32.
    group : torch.distributed.ProcessGroup, optional
    schedule : str
        As of ``ZeroOptimizer``.

    Returns
    -------
    tuple of torch.nn.Module and ZeroOptimizer
        Weights are E4M3, their masters float16 with a scale, moments E4M3 and float16.
    """
    converted, made = initialize(model, optimizer, "O2", device=device)
    return converted, ZeroOptimizer(made, group=group, schedule=schedule)
