# SPDX-License-Identifier: Apache-2.0
"""LayerNorm and RMSNorm with the quantizer that follows.

They are composed as in pytorch/csrc/extensions/normalization.cpp (2.20).
"""

from __future__ import annotations

import os
from typing import Any

from fp8lab.te.operators import as_tensor, norm_gradient_options, norm_options, operators, quantized_result, rounded
from fp8lab.te.tensors import element_type, kind_of_tensor

EXPORTED = ("layernorm_bwd", "layernorm_fwd", "rmsnorm_bwd", "rmsnorm_bwd_add", "rmsnorm_fwd")
__all__ = [*EXPORTED]


def layernorm_fwd(
    input: Any,
    weight: Any,
    bias: Any,
    eps: float,
    ln_out: Any,
    quantizer: Any,
    otype: Any,
    sm_margin: int,
    zero_centered_gamma: bool,
) -> list[Any]:
    """The norm, quantized where a quantizer is given, and each row's mean and reciprocal deviation."""
    if bias is None:
        raise NotImplementedError("layernorm_fwd without a bias is not provided by fp8lab.te: TE's module has one")
    made, mean, rsigma = operators().layernorm(
        _plain(input), _plain(weight), _plain(bias), eps=float(eps), zero_centered_gamma=bool(zero_centered_gamma),
        out_dtype="float32", **norm_options(input, element_type(otype)),
    )  # fmt: skip
    return [_result(made, quantizer, ln_out, otype), as_tensor(mean), as_tensor(rsigma)]


def rmsnorm_fwd(
    input: Any,
    weight: Any,
    eps: float,
    ln_out: Any,
    quantizer: Any,
    otype: Any,
    sm_margin: int,
    zero_centered_gamma: bool,
) -> list[Any]:
    """The same without a mean."""
    made, rsigma = operators().rmsnorm(
        _plain(input), _plain(weight), eps=float(eps), zero_centered_gamma=bool(zero_centered_gamma),
        out_dtype="float32", **norm_options(input, element_type(otype)),
    )  # fmt: skip
    return [_result(made, quantizer, ln_out, otype), None, as_tensor(rsigma)]


def _plain(tensor: Any) -> Any:
    if kind_of_tensor(tensor) != "plain":
        raise TypeError(f"a norm takes tensors in high precision, not a {type(tensor).__name__}")
    return tensor.detach().contiguous()


def _result(made: Any, quantizer: Any, output: Any, otype: Any) -> Any:
    """The result in its type; the amax of a quantizer is that of the rounded result."""
    if os.environ.get("NVTE_NORM_FWD_USE_CUDNN", "0") not in ("", "0"):
        raise NotImplementedError("NVTE_NORM_FWD_USE_CUDNN=1 is not provided by fp8lab.te: unset it for TE's kernels")
    wide, dtype = as_tensor(made), element_type(otype)
    if quantizer is not None:
        return quantized_result(wide, dtype, quantizer, output, amax_is_wide=False)
    if output is None:
        return rounded(wide, dtype)
    output.detach().copy_(rounded(wide, dtype).view(output.shape))
    return output


def layernorm_bwd(
    dz: Any, x: Any, mu: Any, rsigma: Any, gamma: Any, sm_margin: int, zero_centered_gamma: bool
) -> list[Any]:
    """The gradients of the input, of gamma and of beta."""
    shaped = _plain(x)
    made = operators().layernorm_backward(
        _plain(dz).view(shaped.shape), shaped, mu.detach(), rsigma.detach(), _plain(gamma),
        zero_centered_gamma=bool(zero_centered_gamma), **norm_gradient_options(x, gamma, dz, sm_margin),
    )  # fmt: skip
    return [as_tensor(one) for one in made]


def rmsnorm_bwd(dz: Any, x: Any, rsigma: Any, gamma: Any, sm_margin: int, zero_centered_gamma: bool) -> list[Any]:
    """The gradients of the input and of gamma."""
    return _rmsnorm_backward(dz, x, None, rsigma, gamma, sm_margin, zero_centered_gamma)


def rmsnorm_bwd_add(
    dz: Any, x: Any, add: Any, rsigma: Any, gamma: Any, sm_margin: int, zero_centered_gamma: bool
) -> list[Any]:
    """The same with a gradient that comes past the norm added to that of the input."""
    return _rmsnorm_backward(dz, x, add, rsigma, gamma, sm_margin, zero_centered_gamma)


def _rmsnorm_backward(
    dz: Any, x: Any, add: Any, rsigma: Any, gamma: Any, sm_margin: int, zero_centered_gamma: bool
) -> list[Any]:
    shaped = _plain(x)
    made = operators().rmsnorm_backward(
        _plain(dz).view(shaped.shape), shaped, rsigma.detach(), _plain(gamma),
        zero_centered_gamma=bool(zero_centered_gamma), add=None if add is None else _plain(add).view(shaped.shape),
        **norm_gradient_options(x, gamma, dz, sm_margin),
    )  # fmt: skip
    return [as_tensor(one) for one in made]
