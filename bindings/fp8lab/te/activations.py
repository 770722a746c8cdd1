# SPDX-License-Identifier: Apache-2.0
"""Activations and their gradients with the quantizer that follows.

They are composed as in pytorch/csrc/extensions/activation.cpp and bias.cpp (2.20).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import fp8lab
from fp8lab.te._activation import active_functions
from fp8lab.te._releases import installed_release
from fp8lab.te.operators import as_tensor, kernel_options, operators, options, quantized_result, rounded, type_name
from fp8lab.te.quantize import bias_gradient_of_kernel
from fp8lab.te.tensors import kind_of_quantizer

_PLAIN = ("gelu", "qgelu", "relu", "srelu", "silu")
_GATED = ("glu", "geglu", "qgeglu", "reglu", "sreglu", "swiglu")
_SCALED = ("scaled_clamped_dswiglu", "scaled_clamped_swiglu", "scaled_dsituglu", "scaled_dsrelu", "scaled_dswiglu",
           "scaled_situglu", "scaled_srelu", "scaled_swiglu")  # fmt: skip
EXPORTED = (
    *_PLAIN, *_GATED, *(f"d{name}" for name in (*_PLAIN, *_GATED)), *(f"dbias_d{name}" for name in _PLAIN),
    "clamped_dswiglu", "clamped_swiglu", "dsituglu", "situglu", *_SCALED,
)  # fmt: skip
__all__ = [*EXPORTED, "gelu_backward_of", "gelu_of"]


def _result(wide: Any, dtype: torch.dtype, quantizer: Any) -> Any:
    if quantizer is None:
        return rounded(wide, dtype)
    is_wide = installed_release().activation_amax_is_wide
    return quantized_result(wide, dtype, quantizer, None, amax_is_wide=is_wide)


def _plain(tensor: Any) -> Any:
    return tensor.detach().contiguous()


def _forward(name: str, input: Any, quantizer: Any, **given: Any) -> Any:
    made = operators().activation(name, _plain(input), out_dtype="float32", **given, **kernel_options())
    return _result(as_tensor(made), input.dtype, quantizer)


def _backward(name: str, grad: Any, fwd_input: Any, quantizer: Any, **given: Any) -> Any:
    made = operators().activation_backward(
        name, _plain(grad), _plain(fwd_input), out_dtype="float32", **given, **kernel_options()
    )
    return _result(as_tensor(made), grad.dtype, quantizer)


def _with_bias(name: str, grad: Any, fwd_input: Any, quantizer: Any) -> list[Any]:
    """The gradient of the bias before the activation, and that of the activation's input.

    The kernels that cast as well sum what is not rounded; else the rounded gradient is summed.
    """
    made, sums = operators().activation_backward(
        name, _plain(grad), _plain(fwd_input), bias_gradient=True, out_dtype="float32", **kernel_options()
    )
    wide = as_tensor(made)
    result = _result(wide, grad.dtype, quantizer)
    kind = None if quantizer is None else kind_of_quantizer(quantizer)
    if kind == "delayed" and active_functions() == "hopper":
        return [bias_gradient_of_kernel(wide, grad.dtype, quantizer, has_activation=True), result]
    if kind in ("delayed", "mxfp8"):
        return [rounded(as_tensor(sums), grad.dtype), result]
    return [bias_gradient_of_kernel(rounded(wide, grad.dtype), grad.dtype, quantizer), result]


def _define(name: str) -> None:
    """The functions of one activation, by the extension's names."""

    def forward(input: Any, quantizer: Any) -> Any:
        return _forward(name, input, quantizer)

    def backward(grad: Any, fwd_input: Any, quantizer: Any) -> Any:
        return _backward(name, grad, fwd_input, quantizer)

    made: dict[str, Callable[..., Any]] = {name: forward, f"d{name}": backward}
    if name in _PLAIN:
        made[f"dbias_d{name}"] = lambda grad, fwd_input, quantizer: _with_bias(name, grad, fwd_input, quantizer)
    for known, function in made.items():
        function.__name__ = function.__qualname__ = known
        function.__doc__ = f"``tex.{known}``: of {name}, by fp8lab.operators."
        globals()[known] = function


for _name in (*_PLAIN, *_GATED):
    _define(_name)


def clamped_swiglu(
    input: Any, quantizer: Any, limit: float = 7.0, alpha: float = 1.702, glu_linear_offset: float = 1.0
) -> Any:
    """SwiGLU of inputs that are clamped, as GPT-OSS has it."""
    return _forward("clamped_swiglu", input, quantizer, limit=limit, alpha=alpha, offset=glu_linear_offset)


def clamped_dswiglu(
    grad: Any,
    fwd_input: Any,
    quantizer: Any,
    limit: float = 7.0,
    alpha: float = 1.702,
    glu_linear_offset: float = 1.0,
) -> Any:
    """Its gradient."""
    return _backward("clamped_swiglu", grad, fwd_input, quantizer, limit=limit, alpha=alpha, offset=glu_linear_offset)


def situglu(input: Any, quantizer: Any, beta1: float = 4.0, beta2: float = 25.0) -> Any:
    """SiTU-GLU: both halves limited by tanh."""
    return _forward("situglu", input, quantizer, beta1=beta1, beta2=beta2)


def dsituglu(grad: Any, fwd_input: Any, quantizer: Any, beta1: float = 4.0, beta2: float = 25.0) -> Any:
    """Its gradient."""
    return _backward("situglu", grad, fwd_input, quantizer, beta1=beta1, beta2=beta2)


# --- with a scale for each row ----------------------------------------------------------------------------------------


def _scaled_forward(name: str, input: Any, act_scales: Any, quantizer: Any, **given: Any) -> Any:
    made = operators().scaled_activation(
        name, _plain(input), _scales(act_scales), out_dtype="float32", **given, **kernel_options()
    )
    return _result(as_tensor(made), input.dtype, quantizer)


def _scales(act_scales: Any) -> Any:
    return act_scales.detach().to(torch.float32).contiguous()


def _scaled_backward(
    name: str, grad: Any, fwd_input: Any, act_scales: Any, quantizer: Any, compute_scale_grad: bool, **given: Any
) -> tuple[Any, Any]:
    made, sums = operators().scaled_activation_backward(
        name, _plain(grad), _plain(fwd_input), _scales(act_scales), out_dtype="float32", **given, **kernel_options()
    )
    of_scales = rounded(as_tensor(sums), act_scales.dtype).view(act_scales.shape) if compute_scale_grad else None
    return _result(as_tensor(made), grad.dtype, quantizer), of_scales


def scaled_swiglu(input: Any, act_scales: Any, quantizer: Any, glu_interleave_size: int = 0) -> Any:
    """SwiGLU times a scale for each row."""
    return _scaled_forward("swiglu", input, act_scales, quantizer, interleave=glu_interleave_size)


def scaled_srelu(input: Any, act_scales: Any, quantizer: Any) -> Any:
    """Squared ReLU times a scale for each row."""
    return _scaled_forward("srelu", input, act_scales, quantizer)


def scaled_clamped_swiglu(
    input: Any,
    act_scales: Any,
    quantizer: Any,
    limit: float = 7.0,
    alpha: float = 1.702,
    glu_linear_offset: float = 1.0,
    glu_interleave_size: int = 0,
) -> Any:
    """Clamped SwiGLU times a scale for each row."""
    return _scaled_forward(
        "clamped_swiglu", input, act_scales, quantizer, limit=limit, alpha=alpha, offset=glu_linear_offset,
        interleave=glu_interleave_size,
    )  # fmt: skip


def scaled_situglu(
    input: Any,
    act_scales: Any,
    quantizer: Any,
    beta1: float = 4.0,
    beta2: float = 25.0,
    glu_interleave_size: int = 0,
) -> Any:
    """SiTU-GLU times a scale for each row."""
    return _scaled_forward(
        "situglu", input, act_scales, quantizer, beta1=beta1, beta2=beta2, interleave=glu_interleave_size
    )


def scaled_dswiglu(
    grad: Any,
    fwd_input: Any,
    act_scales: Any,
    quantizer: Any,
    glu_interleave_size: int = 0,
    compute_scale_grad: bool = True,
) -> tuple[Any, Any]:
    """Its gradients, of the input and of the scales."""
    return _scaled_backward(
        "swiglu", grad, fwd_input, act_scales, quantizer, compute_scale_grad, interleave=glu_interleave_size
    )


def scaled_dsrelu(
    grad: Any, fwd_input: Any, act_scales: Any, quantizer: Any, compute_scale_grad: bool = True
) -> tuple[Any, Any]:
    """Its gradients, of the input and of the scales."""
    return _scaled_backward("srelu", grad, fwd_input, act_scales, quantizer, compute_scale_grad)


def scaled_clamped_dswiglu(
    grad: Any,
    fwd_input: Any,
    act_scales: Any,
    quantizer: Any,
    limit: float = 7.0,
    alpha: float = 1.702,
    glu_linear_offset: float = 1.0,
    glu_interleave_size: int = 0,
    compute_scale_grad: bool = True,
) -> tuple[Any, Any]:
    """Its gradients, of the input and of the scales."""
    return _scaled_backward(
        "clamped_swiglu", grad, fwd_input, act_scales, quantizer, compute_scale_grad, limit=limit, alpha=alpha,
        offset=glu_linear_offset, interleave=glu_interleave_size,
    )  # fmt: skip


def scaled_dsituglu(
    grad: Any,
    fwd_input: Any,
    act_scales: Any,
    quantizer: Any,
    beta1: float = 4.0,
    beta2: float = 25.0,
    glu_interleave_size: int = 0,
    compute_scale_grad: bool = True,
) -> tuple[Any, Any]:
    """Its gradients, of the input and of the scales."""
    return _scaled_backward(
        "situglu", grad, fwd_input, act_scales, quantizer, compute_scale_grad, beta1=beta1, beta2=beta2,
        interleave=glu_interleave_size,
    )  # fmt: skip


# --- in the epilogue of a GEMM ----------------------------------------------------------------------------------------


def gelu_of(wide: Any, is_float32: bool, dtype: torch.dtype) -> Any:
    """GELU of an accumulator of such operands, rounded once: cuBLASLt's on Hopper where the device's functions are
    asked for."""
    if active_functions() == "hopper":
        name: Any = "gelu_float32" if is_float32 else "gelu"
        return rounded(as_tensor(fp8lab.gemm_activation(name, wide.contiguous().numpy(), **options())), dtype)
    return as_tensor(operators().activation("gelu", wide.contiguous(), out_dtype=type_name(dtype), **options()))


def gelu_backward_of(wide: Any, pre_gelu: Any, dtype: torch.dtype) -> Any:
    """The gradient of GELU at its input times an accumulator, rounded once; as gelu_of()."""
    if active_functions() == "hopper":
        given = _plain(pre_gelu).to(torch.float32).contiguous().numpy()
        return rounded(as_tensor(fp8lab.gemm_activation("dgelu", wide.contiguous().numpy(), given, **options())), dtype)
    made = operators().activation_backward(
        "gelu", wide.contiguous(), _plain(pre_gelu), out_dtype=type_name(dtype), **options()
    )
    return as_tensor(made)
