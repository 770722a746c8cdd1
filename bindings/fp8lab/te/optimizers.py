# SPDX-License-Identifier: Apache-2.0
"""The multi-tensor kernels of optimizers: each updates the tensors of its lists where they lie."""

from __future__ import annotations

from typing import Any

import torch

from fp8lab.te.operators import kernel_options, operators, options, type_name
from fp8lab.te.quantize import threads
from fp8lab.te.tensors import as_tensor, format_name

EXPORTED = (
    "multi_tensor_adam",
    "multi_tensor_adam_capturable",
    "multi_tensor_adam_capturable_master",
    "multi_tensor_adam_fp8",
    "multi_tensor_adam_param_remainder",
    "multi_tensor_l2norm",
    "multi_tensor_scale",
    "multi_tensor_scale_tensor",
    "multi_tensor_sgd",
    "multi_tensor_unscale_l2norm",
)
__all__ = [*EXPORTED]


def _plain(lists: Any) -> list[list[Any]]:
    return [[one.detach() for one in tensors] for tensors in lists]


def _is_noop(flag: Any) -> bool:
    return flag is not None and flag.numel() > 0 and float(flag.reshape(-1)[0]) == 1.0


def multi_tensor_scale(chunk_size: int, is_infinite: Any, tensor_lists: Any, scale: float) -> None:
    """Each tensor times a number; the flag becomes 1 where an element is not finite."""
    for source, target in zip(*_plain(tensor_lists)):
        made, is_finite = operators().scale_tensor(
            source, float(scale), out_dtype=type_name(target.dtype), threads=threads()
        )
        target.copy_(as_tensor(made).view(target.shape))
        if not is_finite:
            is_infinite.detach().fill_(1)


def multi_tensor_scale_tensor(chunk_size: int, is_infinite: Any, tensor_lists: Any, scale: Any) -> None:
    """The same with a number that a tensor holds."""
    multi_tensor_scale(chunk_size, is_infinite, tensor_lists, float(scale))


def multi_tensor_l2norm(
    chunk_size: int, noop_flag: Any, tensor_lists: Any, per_tensor_python: bool | None = None
) -> tuple[Any, Any]:
    """The norm of all tensors together, and of each where that is wanted."""
    return _norms(_plain(tensor_lists)[0], _norm_options(chunk_size, tensor_lists), per_tensor_python)


def _norm_options(chunk_size: int, tensor_lists: Any) -> dict[str, Any]:
    """The kernel's own order is known of tensors that begin where a vector of four elements may."""
    is_known = chunk_size == 65536 and all(one.storage_offset() % 4 == 0 for one in tensor_lists[0])
    return kernel_options() if is_known else options()


def _norms(tensors: list[Any], given: dict[str, Any], per_tensor_python: bool | None) -> tuple[Any, Any]:
    total, each = operators().l2norm(tensors, **given)
    of_each = torch.tensor(each, dtype=torch.float32) if per_tensor_python else torch.empty(0, dtype=torch.float32)
    return torch.tensor([total], dtype=torch.float32), of_each


def multi_tensor_unscale_l2norm(
    chunk_size: int, noop_flag: Any, tensor_lists: Any, inv_scale: Any, per_tensor_python: bool | None = None
) -> tuple[Any, Any]:
    """The norms of the tensors times a number, each product in float32."""
    unscaled = [
        operators().scale_tensor(one, float(inv_scale), out_dtype="float32", threads=threads())[0]
        for one in _plain(tensor_lists)[0]
    ]
    return _norms(list(map(as_tensor, unscaled)), _norm_options(chunk_size, tensor_lists), per_tensor_python)


def multi_tensor_sgd(
    chunk_size: int, noop_flag: Any, tensor_lists: Any, wd: float, momentum: float, dampening: float, lr: float,
    nesterov: bool, first_run: bool, wd_after_momentum: bool, scale: float,
) -> None:  # fmt: skip
    """SGD with momentum, in place."""
    if _is_noop(noop_flag):
        return
    for grad, param, buffer, *model in zip(*_plain(tensor_lists)):
        operators().sgd_update(
            grad, param, buffer, model=model[0] if model else None, lr=float(lr), weight_decay=float(wd),
            momentum=float(momentum), dampening=float(dampening), nesterov=bool(nesterov), first_run=bool(first_run),
            weight_decay_after_momentum=bool(wd_after_momentum), scale=float(scale), threads=threads(),
        )  # fmt: skip


def _facts(
    lr: Any, beta1: float, beta2: float, epsilon: float, step: Any, mode: int, bias_correction: int, weight_decay: float
) -> dict[str, Any]:
    return {
        "lr": float(lr), "betas": (float(beta1), float(beta2)), "eps": float(epsilon), "step": int(step),
        "mode": "decoupled" if int(mode) == 1 else "l2", "bias_correction": bool(bias_correction),
        "weight_decay": float(weight_decay), **kernel_options(),
    }  # fmt: skip


def multi_tensor_adam(
    chunk_size: int, noop_flag: Any, tensor_lists: Any, lr: Any, beta1: float, beta2: float, epsilon: float, step: Any,
    mode: int, bias_correction: int, weight_decay: float,
) -> None:  # fmt: skip
    """Adam or AdamW, in place; a fifth list holds float32 masters."""
    if _is_noop(noop_flag):
        return
    facts = _facts(lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)
    for grad, param, first, second, *master in zip(*_plain(tensor_lists)):
        operators().adam_update(grad, param, first, second, master=master[0] if master else None, **facts)


def multi_tensor_adam_capturable(
    chunk_size: int, noop_flag: Any, tensor_lists: Any, lr: Any, beta1: float, beta2: float, epsilon: float, step: Any,
    mode: int, bias_correction: int, weight_decay: float, inv_scale: Any,
) -> None:  # fmt: skip
    """The same with lr and step in tensors, and gradients that are multiplied with ``inv_scale`` where they lie."""
    if _is_noop(noop_flag):
        return
    facts = _facts(lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)
    for grad, param, first, second, *master in zip(*_plain(tensor_lists)):
        operators().adam_update(
            grad, param, first, second, master=master[0] if master else None, inverse_scale=float(inv_scale), **facts
        )


multi_tensor_adam_capturable_master = multi_tensor_adam_capturable


def multi_tensor_adam_param_remainder(
    chunk_size: int, noop_flag: Any, tensor_lists: Any, lr: Any, beta1: float, beta2: float, epsilon: float, step: Any,
    mode: int, bias_correction: int, weight_decay: float,
) -> None:  # fmt: skip
    """The same of bfloat16 parameters whose masters' low words are a list of their own."""
    if _is_noop(noop_flag):
        return
    facts = _facts(lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)
    for grad, param, first, second, remainder in zip(*_plain(tensor_lists)):
        operators().adam_update_remainder(grad, param, first, second, remainder, **facts)


def multi_tensor_adam_fp8(
    chunk_size: int, noop_flag: Any, tensor_lists: Any, lr: Any, beta1: float, beta2: float, epsilon: float, step: Any,
    mode: int, bias_correction: int, weight_decay: float, fp8_dtype: Any,
) -> None:  # fmt: skip
    """The same of FP8 parameters: codes of the masters by their scales; amaxes and inverses are written."""
    if _is_noop(noop_flag):
        return
    facts = _facts(lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)
    for grad, codes, first, second, master, scale, amax, scale_inv in zip(*_plain(tensor_lists)):
        largest, inverse = operators().adam_update_fp8(
            grad, codes.view(torch.uint8), first, second, master, format=format_name(fp8_dtype), scale=float(scale),
            amax=float(amax), **facts,
        )  # fmt: skip
        amax.fill_(largest)
        scale_inv.fill_(inverse)
