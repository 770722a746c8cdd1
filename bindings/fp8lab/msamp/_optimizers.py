# SPDX-License-Identifier: Apache-2.0
"""LBAdam and LBAdamW: Adam whose moments have few bits, in the order of MS-AMP's kernels.

After msamp/optim of Azure/MS-AMP 9746ea8. Where nvcc contracts a product and a sum of adamw.cu is read from its machine
code (nvcc 13.0.88, sm_90): both moments and the parameter are one fused operation each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch

from fp8lab._arrays import check_bool, check_real, kind_of
from fp8lab._entry import entry
from fp8lab.literals import ScheduleName
from fp8lab.msamp._arithmetic import decoded, encoded, float32, fma, number_amax, rooted
from fp8lab.msamp._distributed import all_reduce_average
from fp8lab.msamp._linear import Linear, ModelState
from fp8lab.msamp._tensors import LARGEST, ScalingParameter, ScalingTensor, cast, scaling_factor

__all__ = ["LBAdam", "LBAdamW", "clip_grad_norm_"]

#: What a state may be kept in; by torch's types as the original has it, whose kernel takes any 8 bits for E4M3.
_STATES = {torch.uint8: "e4m3", torch.float16: "float16", torch.float32: "float32"}


def _as_state(value: Any, argument: str) -> str:
    name = _STATES.get(value, value) if isinstance(value, torch.dtype) else value
    if name not in _STATES.values():
        raise ValueError(f"{argument} must be torch.uint8 (E4M3), torch.float16 or torch.float32, not {value!r}")
    return str(name)


def _number(value: Any, argument: str, below: float = math.inf) -> float:
    number = check_real(float(value) if isinstance(value, torch.Tensor) and value.numel() == 1 else value, argument)
    if not 0 <= number < below:
        raise ValueError(
            f"{argument} must be at least 0{'' if math.isinf(below) else f' and below {below:g}'}, not {number:g}"
        )
    return number


class LBAdamW(torch.optim.Optimizer):
    """AdamW over ``ScalingTensor`` and float32 parameters, as MS-AMP's kernels round it.

    Parameters
    ----------
    params : iterable
        ScalingTensors and torch tensors, or groups of them.
    lr, betas, eps, weight_decay
        As for ``torch.optim.AdamW``.
    bias_correction : bool
    maximize : bool
    exp_avg_dtype, exp_avg_sq_dtype : torch.dtype or str
        Of the first and of the second moment: torch.uint8, which is E4M3, or torch.float16, each with one scale for a
        tensor; or torch.float32 for both.
    tensor_scale : bool
        Without it the scales of the moments stay 1.

    With float32 moments each operation is rounded as PyTorch's CUDA kernels round it: a sum with a factor is a fused
    operation, and a division by a number is a multiplication by its rounded reciprocal. Half and bfloat16 parameters
    that are no ScalingTensors do not change: the original computes their step in a copy that it drops.

    ``zero_grad()`` sets gradients to 0 and not to None, as the original's does.
    """

    _decays_gradient = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        exp_avg_dtype: Any = torch.uint8,
        exp_avg_sq_dtype: Any = torch.float16,
        tensor_scale: bool = True,
    ) -> None:
        self._exp_avg_qtype = _as_state(exp_avg_dtype, "exp_avg_dtype")
        self._exp_avg_sq_qtype = _as_state(exp_avg_sq_dtype, "exp_avg_sq_dtype")
        if (self._exp_avg_qtype == "float32") != (self._exp_avg_sq_qtype == "float32"):
            raise ValueError("exp_avg_dtype and exp_avg_sq_dtype must both be torch.float32, or neither")
        self.bias_correction = check_bool(bias_correction, "bias_correction")
        self.tensor_scale = check_bool(tensor_scale, "tensor_scale")
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": check_bool(maximize, "maximize"),
        }  # fmt: skip
        _check_group(defaults)
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with options of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, not {kind_of(param_group)}")
        given = param_group["params"]
        if isinstance(given, set):
            raise TypeError("params must have an order, and a set has none: give a list")
        parameters = [given] if isinstance(given, (torch.Tensor, ScalingTensor)) else list(given)
        present = {id(one) for group in self.param_groups for one in group["params"]}
        for one in parameters:
            if not isinstance(one, (torch.Tensor, ScalingTensor)):
                raise TypeError(f"params must be torch tensors or ScalingTensors, not {kind_of(one)}")
            if not one.is_leaf:
                raise ValueError("params must be leaves of autograd's graph")
            if id(one) in present:
                raise ValueError("params must not have a parameter twice")
            present.add(id(one))
        group = {**self.defaults, **param_group, "params": parameters}
        _check_group(group)
        self.param_groups.append(group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates parameters and moments, and then the scales of the layers' inputs and gradients of outputs."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        _step(self)
        for state in self._model_states():
            state.update_scales()
        return loss

    def _model_states(self) -> list[ModelState]:
        """The states of the layers whose weights it updates, each once."""
        found: dict[int, ModelState] = {}
        for group in self.param_groups:
            for one in group["params"]:
                layer = getattr(one, "layer", None)
                if layer is not None:
                    found[id(layer.state)] = layer.state
        return list(found.values())

    def all_reduce_grads(self, model: torch.nn.Module, *, schedule: ScheduleName = "ring") -> None:
        """Averages the FP8 gradients of a model over all ranks of torch.distributed: sums in FP8, and a division of the
        inverse scale.

        Parameters
        ----------
        model : torch.nn.Module
            Under ``FP8DistributedDataParallel`` its gradients are reduced already, and nothing happens. Where it was
            initialized with ``reduction="paper"``, its ``AutoScale`` reduces them.
        schedule : str
            As of ``sum_codes``.
        """
        states = [one.state for one in model.modules() if isinstance(one, Linear)]
        weights = [one for one in model.parameters() if isinstance(one, ScalingParameter) and one.grad is not None]
        if states and states[0].auto_scale is not None:
            reduced = states[0].auto_scale.reduce([one.grad for one in weights], schedule=schedule)
            for weight, gradient in zip(weights, reduced, strict=True):
                weight.grad = gradient
        elif not any(state.keeps_gradients for state in states):
            all_reduce_average([one.grad for one in weights], schedule=schedule)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Sets gradients to 0, or to None."""
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                if set_to_none:
                    one.grad = None
                else:
                    one.grad.detach().zero_()

    def state_dict(self) -> dict[str, Any]:
        """States by the numbers of their parameters, and groups."""
        numbers = {id(one): i for i, one in enumerate(self._parameters())}
        groups = [{**group, "params": [numbers[id(one)] for one in group["params"]]} for group in self.param_groups]
        return {"state": {numbers[id(one)]: state for one, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a copy of what ``state_dict()`` gave, of parameters in the same groups."""
        given = deepcopy(state_dict)
        sizes = [len(group["params"]) for group in self.param_groups]
        saved = [len(group["params"]) for group in given["param_groups"]]
        if sizes != saved:
            raise ValueError(f"state_dict must have groups of {sizes} parameters, not of {saved}")
        numbers = [i for group in given["param_groups"] for i in group["params"]]
        parameter_of = dict(zip(numbers, self._parameters(), strict=True))
        self.state = defaultdict(dict, {parameter_of[i]: state for i, state in given["state"].items()})
        for group, loaded in zip(self.param_groups, given["param_groups"], strict=True):
            group.update({key: value for key, value in loaded.items() if key != "params"})

    def _parameters(self) -> list[Any]:
        return [one for group in self.param_groups for one in group["params"]]


class LBAdam(LBAdamW):
    """Adam, whose weight decay is a term of the gradient; all else is as in ``LBAdamW``.

    As in the original, moments of few bits are then stored without that term, while the update and the maxima that make
    their scales have it.
    """

    _decays_gradient = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay, **options)


def _check_group(group: dict[str, Any]) -> None:
    for name in ("lr", "eps", "weight_decay"):
        group[name] = _number(group[name], name)
    betas = group["betas"]
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise TypeError(f"betas must be two numbers, not {betas!r}")
    group["betas"] = tuple(_number(one, f"betas[{i}]", 1.0) for i, one in enumerate(betas))
    if group.get("amsgrad"):
        raise ValueError("amsgrad must be False: MS-AMP has no other")


# --- a step -----------------------------------------------------------------------------------------------------------


@entry
def _step(optimizer: LBAdamW) -> None:
    with torch.no_grad():
        for group in optimizer.param_groups:
            parameters = [one for one in group["params"] if one.grad is not None and one.numel()]
            for one in parameters:
                if one.grad.is_sparse:
                    raise ValueError("gradients must be dense, and one is sparse")
                if not optimizer.state[one]:
                    optimizer.state[one] = {
                        "step": 0,
                        "exp_avg": _first_state(one, optimizer._exp_avg_qtype),
                        "exp_avg_sq": _first_state(one, optimizer._exp_avg_sq_qtype),
                    }
                optimizer.state[one]["step"] += 1
            if optimizer._exp_avg_qtype == "float32":
                for one in parameters:
                    _step_in_float32(optimizer, one, group)
            else:
                for one in parameters:
                    _step_in_few_bits(optimizer, one, group)


def _first_state(parameter: Any, qtype: Any) -> Any:
    zeros = torch.zeros(parameter.shape)
    return zeros if qtype == "float32" else cast(zeros, qtype)


def _decayed(
    optimizer: LBAdamW, parameter: Any, group: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The parameter in float32 and its gradient after the weight decay, and the gradient before."""
    param, plain = parameter.float(), parameter.grad.float()
    grad = plain = -plain if group["maximize"] else plain
    decay = group["weight_decay"]
    if decay != 0:
        if optimizer._decays_gradient:
            grad = fma(decay, param, grad)
        else:
            param.mul_(1 - group["lr"] * decay)
    return param, grad, plain


def _keep(parameter: Any, updated: torch.Tensor) -> None:
    """Casts the update of a ScalingTensor by a scale of its own; the float32 tensor itself was updated."""
    if isinstance(parameter, ScalingTensor):
        parameter.copy_(cast(updated, parameter.qtype, parameter.meta))


def _moments(
    exp_avg: ScalingTensor, exp_avg_sq: ScalingTensor, grad: torch.Tensor, betas: tuple[float, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new moments in float32: fma(beta code, 1 / scale, (1 - beta) g), and of g g."""
    made = []
    for state, beta, term in ((exp_avg, betas[0], grad), (exp_avg_sq, betas[1], grad * grad)):
        beta = float32(beta)
        rest = float32(1 - beta)
        inverse = torch.reciprocal(state.meta.scale)
        code = decoded(state.value, state.qtype) if state.qtype == "e4m3" else state.value.float()
        made.append(fma(float(inverse), code * beta, term * rest))
    return made[0], made[1]


def _corrections(optimizer: LBAdamW, group: dict[str, Any], step: int) -> tuple[float, float]:
    """lr / (1 - beta1^t) and the root of 1 - beta2^t, as the host code of the kernels rounds them."""
    if not optimizer.bias_correction:
        return float32(group["lr"]), 1.0
    corrections = [float32(1 - float32(beta) ** step) for beta in group["betas"]]
    with_zero = float32(group["lr"]) / corrections[0] if corrections[0] else math.inf
    return float32(with_zero), float32(math.sqrt(corrections[1]))


def _step_in_few_bits(optimizer: LBAdamW, parameter: Any, group: dict[str, Any]) -> None:
    """Both stages of the kernel: the update by the moments before they are rounded, and then their rounding."""
    param, grad, plain = _decayed(optimizer, parameter, group)
    state = optimizer.state[parameter]
    first, second = state["exp_avg"], state["exp_avg_sq"]
    step_size, root = _corrections(optimizer, group, state["step"])
    m, v = _moments(first, second, grad, group["betas"])
    amaxes = number_amax(m), number_amax(v)
    ratio = m / (rooted(v) / root + float32(group["eps"]))
    param.copy_(fma(-step_size, ratio, param))
    _keep(parameter, param)
    if grad is not plain:  # the second stage reads the gradient without the term of the decay
        m, v = _moments(first, second, plain, group["betas"])
    for moment, new, amax in ((first, m, amaxes[0]), (second, v, amaxes[1])):
        meta = moment.meta
        meta.amax.fill_(amax)
        one = torch.ones(())
        meta.scale.copy_(scaling_factor(amax, one, LARGEST[moment.qtype]) if optimizer.tensor_scale else one)
        meta.scale_inv.copy_(torch.reciprocal(meta.scale))
        scaled = new * meta.scale
        moment.value.copy_(encoded(scaled, "e4m3") if moment.qtype == "e4m3" else scaled.half())


def _step_in_float32(optimizer: LBAdamW, parameter: Any, group: dict[str, Any]) -> None:
    """The operations of PyTorch, each rounded as its CUDA kernel does it."""
    param, grad, _ = _decayed(optimizer, parameter, group)
    state, (beta1, beta2) = optimizer.state[parameter], group["betas"]
    corrections = [1 - beta ** state["step"] if optimizer.bias_correction else 1.0 for beta in (beta1, beta2)]
    m, v = state["exp_avg"], state["exp_avg_sq"]
    m.copy_(fma(float32(1 - beta1), grad, m.mul(beta1)))
    v.copy_(fma(float32(1 - beta2), grad.square(), v.mul(beta2)))
    reciprocal = float32(1 / float32(math.sqrt(corrections[1])))
    denominator = rooted(v).mul(reciprocal).add(group["eps"])
    param.copy_(fma(-(group["lr"] / corrections[0]), m / denominator, param))
    _keep(parameter, param)


# --- clipping ---------------------------------------------------------------------------------------------------------


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> torch.Tensor:
    """Limits the norm of all gradients together: of a ScalingTensor the inverse scale is multiplied.

    Parameters
    ----------
    parameters : iterable, or one parameter
        ScalingTensors and torch tensors.
    max_norm : float
        With 0 gradients stay as they are.
    norm_type : float
        Of the p-norm; infinity for the maximum.
    error_if_nonfinite : bool

    Returns
    -------
    Tensor of float32
        The norm before. It is summed by this machine's PyTorch, and a GPU may sum in another order.

    Raises
    ------
    RuntimeError
        With ``error_if_nonfinite``, for a norm that is infinite or NaN.
    """
    given = [parameters] if isinstance(parameters, (torch.Tensor, ScalingTensor)) else list(parameters)
    gradients = [one.grad for one in given if one.grad is not None]
    largest, order = check_real(max_norm, "max_norm"), float(norm_type)
    if not gradients:
        return torch.tensor(0.0)
    with torch.no_grad():
        norms = torch.stack([torch.linalg.vector_norm(one.float(), order) for one in gradients])
        total: torch.Tensor = norms.max() if math.isinf(order) else torch.linalg.vector_norm(norms, order)
        if error_if_nonfinite and not bool(torch.isfinite(total)):
            raise RuntimeError(f"the norm of order {order:g} of the gradients is {float(total)}, and cannot be limited")
        coefficient = torch.clamp(largest / (total + 1e-6), max=1.0)
        if largest > 0 and float(coefficient) < 1.0:
            for one in gradients:
                one.detach().mul_(coefficient)
    return total
