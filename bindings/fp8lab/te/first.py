# SPDX-License-Identifier: Apache-2.0
"""Functions of the extension of Transformer Engine 1, which take codes, scales and amaxes as tensors of their own.

An element of a tensor of scales or amaxes is named by an offset, as in pytorch/csrc/extensions of 1.13. All casts are
those of delayed scaling: by the scale that is there, with the amax and the reciprocal scale written beside.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

import fp8lab
from fp8lab.te import enums, norms, state
from fp8lab.te._functions import refuse
from fp8lab.te.gemm import product_into
from fp8lab.te.layouts import fp8_transpose
from fp8lab.te.operators import as_tensor, operators, options
from fp8lab.te.quantize import bias_gradient, threads, write_delayed
from fp8lab.te.tensors import Codes, element_type, format_name, matrix, rounded

_FORWARD = ("geglu", "gelu", "qgelu", "reglu", "relu", "srelu", "swiglu")
EXPORTED = (
    *(f"{name}_ts" for name in _FORWARD), *(f"d{name}" for name in _FORWARD),
    "cast_from_fp8_ts", "cast_to_fp8_noalloc_ts", "cast_to_fp8_ts", "fp8_transpose_noalloc",
    "fp8_transpose_noalloc_noop", "fused_amax_and_scale_update_after_reduction", "fused_cast_transpose_bgrad",
    "fused_cast_transpose_bgrad_dgelu", "fused_cast_transpose_noop", "fused_dswiglu_cast_transpose",
    "fused_multi_cast_transpose_alloc", "layernorm_fwd", "layernorm_fwd_fp8", "layernorm_fwd_fp8_inf_ts",
    "layernorm_fwd_fp8_noalloc", "layernorm_fwd_inf_ts", "layernorm_fwd_noalloc", "rmsnorm_fwd", "rmsnorm_fwd_fp8",
    "rmsnorm_fwd_fp8_inf_ts", "rmsnorm_fwd_fp8_noalloc", "rmsnorm_fwd_inf_ts", "rmsnorm_fwd_noalloc", "te_gemm_ts",
)  # fmt: skip
__all__ = [*EXPORTED]

_FP8 = (int(enums.DType.kFloat8E4M3), int(enums.DType.kFloat8E5M2))


def _element(tensor: Any, offset: int) -> Any:
    """The element so many behind the first, of which C++ takes the address; of no elements, none."""
    plain = tensor.detach()
    return plain.as_strided((1,), (1,), plain.storage_offset() + int(offset)) if plain.numel() else plain


class _Slots:
    """Scale, amax and reciprocal scale of one cast."""

    def __init__(
        self, scale: Any, amax: Any, scale_inv: Any, otype: Any, scale_offset: int = 0, amax_offset: int = 0,
        scale_inv_offset: int = 0,
    ) -> None:  # fmt: skip
        self.quantizer = SimpleNamespace(
            dtype=otype, scale=_element(scale, scale_offset), amax=_element(amax, amax_offset)
        )
        self.scale_inv = _element(scale_inv, scale_inv_offset)

    def cast(self, values: Any, codes: Any, transpose: Any = None) -> Any:
        """Writes the codes, and where it is wanted their transpose."""
        if values.numel():
            result = SimpleNamespace(_data=codes, _transpose=transpose, _scale_inv=self.scale_inv)
            write_delayed(self.quantizer, matrix(values), result, {})
        return codes


def _codes(*shape: int) -> Any:
    return torch.empty(shape, dtype=torch.uint8)


# --- casts ------------------------------------------------------------------------------------------------------------


def cast_to_fp8_ts(input: Any, scale: Any, amax: Any, scale_inv: Any, fp8_tensor: int, otype: Any) -> Any:
    """The codes of a tensor."""
    return cast_to_fp8_noalloc_ts(input, scale, _codes(*input.shape), amax, scale_inv, fp8_tensor, otype)


def cast_to_fp8_noalloc_ts(
    input: Any, scale: Any, output: Any, amax: Any, scale_inv: Any, fp8_tensor: int, otype: Any
) -> Any:
    """The same into a tensor that is there."""
    return _Slots(scale, amax, scale_inv, otype, *[fp8_tensor] * 3).cast(input, output)


def cast_from_fp8_ts(input: Any, scale_inv: Any, fp8_tensor: int, itype: Any, otype: Any) -> Any:
    """The values of codes, rounded to a type."""
    recipe, scale = fp8lab.GivenScale(format_name(itype)), float(_element(scale_inv, fp8_tensor))
    made = fp8lab.Quantized.from_arrays(matrix(input), scale, recipe, allow_special_scales=True)
    values = torch.from_numpy(fp8lab.dequantize(made, threads=threads()))
    return values.to(element_type(otype)).view(input.shape)


def fused_cast_transpose_noop(
    input: Any, noop: Any, scale: Any, amax: Any, scale_inv: Any, input_cast: Any, input_transpose: Any, otype: Any,
    **offsets: int,
) -> None:  # fmt: skip
    """Codes and their transpose; a ``noop`` flag of 1 leaves all as it is."""
    if noop.numel() == 0 or float(noop.detach().reshape(-1)[0]) != 1.0:
        _Slots(scale, amax, scale_inv, otype, **offsets).cast(input, input_cast, input_transpose)


def fused_cast_transpose_bgrad(
    grad_output: Any, scale: Any, amax: Any, scale_inv: Any, otype: Any, **offsets: int
) -> list[Any]:
    """The gradient of a bias, the codes and their transpose."""
    rows, columns = grad_output.shape
    codes, transpose = _codes(rows, columns), _codes(columns, rows)
    _Slots(scale, amax, scale_inv, otype, **offsets).cast(grad_output, codes, transpose)
    return [bias_gradient(grad_output, grad_output.dtype), codes, transpose]


def fused_multi_cast_transpose_alloc(
    input_list: Any, scale: Any, amax: Any, scale_inv: Any, scale_indices: Any, amax_indices: Any,
    scale_inv_indices: Any, otype: Any,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """Codes and transposes of several tensors."""
    casts, transposes = [], []
    for one, *indices in zip(input_list, scale_indices, amax_indices, scale_inv_indices):
        casts.append(_codes(*one.shape))
        transposes.append(_codes(*reversed(one.shape)))
        _Slots(scale, amax, scale_inv, otype, *indices).cast(one, casts[-1], transposes[-1])
    return casts, transposes


def fp8_transpose_noalloc(input: Any, output: Any, otype: Any) -> None:
    """The transpose of codes into a tensor that is there."""
    fp8_transpose(input, otype, out=output)


def fp8_transpose_noalloc_noop(input: Any, output: Any, noop: Any, otype: Any) -> None:
    """The same; a ``noop`` flag of 1 leaves all as it is."""
    if float(noop.detach().reshape(-1)[0]) != 1.0:
        fp8_transpose(input, otype, out=output)


# --- activations ------------------------------------------------------------------------------------------------------


def _define(name: str) -> None:
    """An activation, whose result is cast where its type is FP8, and its gradient."""

    def forward(input: Any, scale: Any, amax: Any, scale_inv: Any, fp8_tensor: int, otype: Any) -> Any:
        wide = as_tensor(operators().activation(name, matrix(input), out_dtype="float32", **options()))
        if int(otype) not in _FP8:
            return wide.to(element_type(otype))
        slots = _Slots(scale, amax, scale_inv, otype, *[fp8_tensor] * 3)
        return slots.cast(wide, _codes(*wide.shape))

    def backward(grad: Any, input: Any, otype: Any) -> Any:
        return _gradient(name, grad, input)[0].to(element_type(otype))

    made: dict[str, Callable[..., Any]] = {f"{name}_ts": forward, f"d{name}": backward}
    for known, function in made.items():
        function.__name__ = function.__qualname__ = known
        function.__doc__ = f"``{known}``: of {name}, by fp8lab.operators."
        globals()[known] = function


def _gradient(name: str, grad: Any, input: Any, **given: Any) -> tuple[Any, Any]:
    """The unrounded gradient, and where it is wanted that of the bias before."""
    made = operators().activation_backward(name, matrix(grad), matrix(input), out_dtype="float32", **given, **options())
    return (as_tensor(made[0]), as_tensor(made[1])) if given else (as_tensor(made), None)


for _name in _FORWARD:
    _define(_name)


def fused_cast_transpose_bgrad_dgelu(
    grad_output: Any, gelu_input: Any, scale: Any, amax: Any, scale_inv: Any, otype: Any, **offsets: int
) -> list[Any]:
    """The gradient of a bias, and that of GELU as codes and their transpose; both of what is not rounded."""
    rows, columns = grad_output.shape
    wide, sums = _gradient("gelu", grad_output, gelu_input, bias_gradient=True)
    codes, transpose = _codes(rows, columns), _codes(columns, rows)
    _Slots(scale, amax, scale_inv, otype, **offsets).cast(wide, codes, transpose)
    return [rounded(sums, grad_output.dtype), codes, transpose]


def fused_dswiglu_cast_transpose(
    grad_output: Any, input: Any, grad_input: Any, grad_input_transpose: Any, scale: Any, amax: Any, scale_inv: Any,
    otype: Any, **offsets: int,
) -> None:  # fmt: skip
    """The gradient of SwiGLU as codes and their transpose."""
    wide, _ = _gradient("swiglu", grad_output, input)
    _Slots(scale, amax, scale_inv, otype, **offsets).cast(wide, grad_input, grad_input_transpose)


# --- norms ------------------------------------------------------------------------------------------------------------


def _layernorm(input: Any, weight: Any, bias: Any, eps: float, otype: Any, zero_centered_gamma: bool) -> list[Any]:
    return norms.layernorm_fwd(input, weight, bias, eps, None, None, otype, 0, zero_centered_gamma)


def _rmsnorm(input: Any, weight: Any, eps: float, otype: Any, zero_centered_gamma: bool) -> list[Any]:
    made, _, rsigma = norms.rmsnorm_fwd(input, weight, eps, None, None, otype, 0, zero_centered_gamma)
    return [made, rsigma]


def layernorm_fwd_fp8_noalloc(
    input: Any, weight: Any, bias: Any, eps: float, scale: Any, ln_out: Any, amax: Any, scale_inv: Any, otype: Any,
    sm_margin: int, zero_centered_gamma: bool, **offsets: int,
) -> list[Any]:  # fmt: skip
    """The codes of the norm, which is not rounded before, and each row's mean and reciprocal deviation."""
    wide, *rest = _layernorm(input, weight, bias, eps, torch.float32, zero_centered_gamma)
    return [_Slots(scale, amax, scale_inv, otype, **offsets).cast(wide, ln_out), *rest]


def layernorm_fwd_fp8(
    input: Any, weight: Any, bias: Any, eps: float, scale: Any, amax: Any, scale_inv: Any, otype: Any,
    sm_margin: int, zero_centered_gamma: bool, **offsets: int,
) -> list[Any]:  # fmt: skip
    """The same into a new tensor."""
    return layernorm_fwd_fp8_noalloc(
        input, weight, bias, eps, scale, _codes(*input.shape), amax, scale_inv, otype, sm_margin, zero_centered_gamma,
        **offsets,
    )  # fmt: skip


def layernorm_fwd_fp8_inf_ts(
    input: Any, weight: Any, bias: Any, eps: float, scale: Any, amax: Any, scale_inv: Any, fp8_tensor: int, otype: Any,
    sm_margin: int, zero_centered_gamma: bool,
) -> Any:  # fmt: skip
    """The codes alone."""
    slots = _Slots(scale, amax, scale_inv, otype, *[fp8_tensor] * 3)
    wide = _layernorm(input, weight, bias, eps, torch.float32, zero_centered_gamma)[0]
    return slots.cast(wide, _codes(*input.shape))


def layernorm_fwd(
    input: Any, weight: Any, bias: Any, eps: float, sm_margin: int, zero_centered_gamma: bool
) -> list[Any]:
    """The norm in the input's type, and each row's mean and reciprocal deviation."""
    return _layernorm(input, weight, bias, eps, input.dtype, zero_centered_gamma)


def layernorm_fwd_noalloc(
    input: Any, weight: Any, bias: Any, ln_out: Any, eps: float, sm_margin: int, zero_centered_gamma: bool
) -> list[Any]:
    """The same into a tensor that is given."""
    made, *rest = _layernorm(input, weight, bias, eps, input.dtype, zero_centered_gamma)
    return [ln_out.detach().copy_(made), *rest]


def layernorm_fwd_inf_ts(
    input: Any, weight: Any, bias: Any, eps: float, sm_margin: int, zero_centered_gamma: bool
) -> Any:
    """The norm alone."""
    return _layernorm(input, weight, bias, eps, input.dtype, zero_centered_gamma)[0]


def rmsnorm_fwd_fp8_noalloc(
    input: Any, weight: Any, eps: float, scale: Any, ln_out: Any, amax: Any, scale_inv: Any, otype: Any,
    sm_margin: int, zero_centered_gamma: bool, **offsets: int,
) -> list[Any]:  # fmt: skip
    """As LayerNorm's, without a mean."""
    wide, rsigma = _rmsnorm(input, weight, eps, torch.float32, zero_centered_gamma)
    return [_Slots(scale, amax, scale_inv, otype, **offsets).cast(wide, ln_out), rsigma]


def rmsnorm_fwd_fp8(
    input: Any, weight: Any, eps: float, scale: Any, amax: Any, scale_inv: Any, otype: Any, sm_margin: int,
    zero_centered_gamma: bool, **offsets: int,
) -> list[Any]:  # fmt: skip
    """The same into a new tensor."""
    return rmsnorm_fwd_fp8_noalloc(
        input, weight, eps, scale, _codes(*input.shape), amax, scale_inv, otype, sm_margin, zero_centered_gamma,
        **offsets,
    )  # fmt: skip


def rmsnorm_fwd_fp8_inf_ts(
    input: Any, weight: Any, eps: float, scale: Any, amax: Any, scale_inv: Any, fp8_tensor: int, otype: Any,
    sm_margin: int, zero_centered_gamma: bool,
) -> Any:  # fmt: skip
    """The codes alone."""
    slots = _Slots(scale, amax, scale_inv, otype, *[fp8_tensor] * 3)
    return slots.cast(_rmsnorm(input, weight, eps, torch.float32, zero_centered_gamma)[0], _codes(*input.shape))


def rmsnorm_fwd(input: Any, weight: Any, eps: float, sm_margin: int, zero_centered_gamma: bool) -> list[Any]:
    """The norm in the input's type, and each row's reciprocal deviation."""
    return [*_rmsnorm(input, weight, eps, input.dtype, zero_centered_gamma)]


def rmsnorm_fwd_noalloc(
    input: Any, weight: Any, ln_out: Any, eps: float, sm_margin: int, zero_centered_gamma: bool
) -> list[Any]:
    """The same into a tensor that is given."""
    made, rsigma = _rmsnorm(input, weight, eps, input.dtype, zero_centered_gamma)
    return [ln_out.detach().copy_(made), rsigma]


def rmsnorm_fwd_inf_ts(input: Any, weight: Any, eps: float, sm_margin: int, zero_centered_gamma: bool) -> Any:
    """The norm alone."""
    return _rmsnorm(input, weight, eps, input.dtype, zero_centered_gamma)[0]


# --- GEMM and state ---------------------------------------------------------------------------------------------------


def te_gemm_ts(
    A: Any, A_scale_inverse: Any, A_fp8_tensor: int, A_type: Any, transa: bool, B: Any, B_scale_inverse: Any,
    B_fp8_tensor: int, B_type: Any, transb: bool, D: Any, D_scale: Any, D_type: Any, D_amax: Any, bias: Any,
    bias_type: Any, pre_gelu_out: Any, grad: bool, workspace: Any, workspaceSize: int, accumulate: bool,
    use_split_accumulator: bool,
) -> Any:  # fmt: skip  # noqa: N803  # the extension's names
    """D, with the gradient of a bias and the input of a GELU in theirs."""
    if int(D_type) in _FP8:
        refuse("te_gemm_ts with an FP8 output", "it belongs to FP8 attention and user buffers; ask for a wider type")
    right = _operand(A, A_scale_inverse, A_fp8_tensor, A_type)
    left = _operand(B, B_scale_inverse, B_fp8_tensor, B_type)
    product_into(
        (right, bool(transa), left, bool(transb)), D, bias, pre_gelu_out, bias_type, bool(grad), bool(accumulate),
        bool(use_split_accumulator),
    )  # fmt: skip
    return D


def _operand(tensor: Any, scale_inv: Any, index: int, dtype: Any) -> Any:
    return Codes(tensor, _element(scale_inv, int(index)), dtype) if int(dtype) in _FP8 else tensor


def fused_amax_and_scale_update_after_reduction(
    amax_reduction_buffer: Any, amax_histories: Any, scales: Any, scale_invs: Any, amax_compute_algo: str,
    fp8_dtype: Any, margin: float,
) -> None:  # fmt: skip
    """The end of a step, with the reciprocals of the next scales."""
    state.fused_amax_and_scale_update_after_reduction(
        amax_reduction_buffer, amax_histories, scales, amax_compute_algo, fp8_dtype, margin
    )
    for scale, inverse in zip(scales, scale_invs):
        inverse.detach().copy_(1.0 / scale.detach())
