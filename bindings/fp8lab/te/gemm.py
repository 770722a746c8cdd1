# SPDX-License-Identifier: Apache-2.0
"""``tex.generic_gemm`` and the grouped GEMMs: each is a ``GemmRecipe`` of the emulated device.

Operands, epilogue and output follow pytorch/csrc/extensions/gemm.cpp and common/gemm/cublaslt_gemm.cu (2.20). A is the
operand on the right, such as a weight; B the one on the left, such as an input: D = op(B) @ op(A)^T.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch

import fp8lab
from fp8lab.literals import FormatName
from fp8lab.te._activation import active_device, active_functions
from fp8lab.te._functions import refuse
from fp8lab.te._tf32_splits import split_of_k
from fp8lab.te.quantize import as_quantized, bias_gradient, block_scales, quantize_as, threads
from fp8lab.te.tensors import as_tensor, classes, element_type, format_name, kind_of_tensor, logical_shape, rounded

EXPORTED = ("generic_gemm", "te_general_grouped_gemm")
__all__ = [*EXPORTED, "product_into", "scaled_mm"]

_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


#: How cuBLASLt 13.1 rounds float32 to TF32 on an H200.
_CUBLASLT_TF32: Any = "nearest_even"


class Operand(NamedTuple):
    """A matrix as ``fp8lab.gemm`` takes it."""

    kind: str
    """``plain``, ``float8``, ``mxfp8``, ``block`` or ``nvfp4``."""
    array: Any
    """Values or codes, or a Quantized."""
    is_stored_transposed: bool
    """Whether K is the first dimension of the array."""
    scale: Any = None
    format: FormatName | None = None
    has_square_blocks: bool = False
    """Whether a scale is that of 128 x 128 elements."""


def generic_gemm(
    A: Any,
    transA: bool,
    B: Any,
    transB: bool,
    D: Any,
    quantizer: Any,
    output_dtype: Any,
    bias: Any,
    bias_type: Any,
    gelu: bool,
    gelu_in: Any,
    grad: bool,
    workspace: Any,
    workspace_size: int,
    accumulate: bool,
    use_split_accumulator: bool,
    comm_overlap: Any = None,
    comm_type: Any = None,
    extra_output: Any = None,
    bulk_overlap: bool = False,
    alpha: float = 1.0,
    beta: float | None = None,
) -> list[Any]:
    """D, the gradient of the bias, the input of a fused GELU, and the extra output."""
    if comm_overlap is not None:
        refuse("generic_gemm with comm_overlap", "user buffers need NVIDIA GPUs; build the module without ub_overlap")
    beta = (1.0 if accumulate else 0.0) if beta is None else float(beta)
    if not accumulate and beta != 0.0:
        raise ValueError(f"beta is {beta}, and accumulate is False: it must be 0, or accumulate True")
    shape = _output_shape(A, transA, B, transB)
    dtype = _output_type(A, D, output_dtype)
    _check_output(D, shape, dtype, quantizer)
    gradient = None
    adds_output = gelu and grad and bias is not None  # the epilogue DGELU_BGRAD
    if bias is not None and grad and not adds_output:
        gradient = _bias_gradient(A, B, dtype)
    is_empty = 0 in logical_shape(A) or 0 in logical_shape(B)
    if is_empty:
        if adds_output:
            gradient = torch.zeros(shape[-1], dtype=dtype)
        return [_empty_result(D, shape, dtype, quantizer, accumulate), gradient, None, extra_output]
    fuses_cast = _fuses_cast(A, B, quantizer)
    epilogue = {
        "bias": None if bias is None or grad else bias.detach().to(torch.float32).numpy(),
        "c": _accumulated(D, shape) if accumulate and beta else None,
    }
    wide = fuses_cast or gelu
    product = _multiply(
        A,
        bool(transA),
        B,
        bool(transB),
        use_split_accumulator,
        alpha,
        beta,
        "float32" if wide and not adds_output else _NAMES[dtype],
        **epilogue,
    ).view(shape)
    gelu_input = None
    if adds_output:
        product, gradient = _gelu_backward_and_bias_gradient(product, gelu_in, dtype)
    elif gelu:
        low_precision = kind_of_tensor(A) != "plain" or kind_of_tensor(B) != "plain"
        aux = element_type(bias_type) if low_precision else dtype
        is_float32 = not low_precision and A.dtype == torch.float32
        kept = torch.float32 if fuses_cast else dtype
        product, gelu_input = _with_gelu(product, gelu_in, grad, is_float32, aux, kept)
    return [_stored(product, D, dtype, quantizer), gradient, gelu_input, extra_output]


def _output_shape(a: Any, is_a_transposed: bool, b: Any, is_b_transposed: bool) -> tuple[int, ...]:
    right, left = logical_shape(a), logical_shape(b)
    lead = (left[-1],) if is_b_transposed else left[:-1]
    return (*lead, math.prod(right[:-1]) if is_a_transposed else right[-1])


def _output_type(a: Any, out: Any, output_dtype: Any) -> torch.dtype:
    if output_dtype is not None:
        return element_type(output_dtype)
    if kind_of_tensor(a) == "plain":
        return a.dtype
    if out is not None:
        return out.dtype
    raise ValueError("out_dtype must be given where the operands are quantized")


def _check_output(out: Any, shape: tuple[int, ...], dtype: torch.dtype, quantizer: Any) -> None:
    if dtype not in _NAMES:
        raise ValueError(f"a GEMM's output is float32, float16 or bfloat16, not {dtype}")
    if out is None:
        return
    present = logical_shape(out)
    if present != shape and not (len(shape) != len(present) and math.prod(shape) == math.prod(present)):
        raise ValueError(f"D must have the shape {shape} of the product, not {present}")
    if quantizer is None and out.dtype != dtype:
        raise ValueError(f"D must be {dtype}, as the product is, not {out.dtype}")


def _high_precision(tensor: Any) -> Any:
    if kind_of_tensor(tensor) != "plain":
        raise ValueError("the gradient of a bias is taken of a tensor in high precision, not of a quantized one")
    return tensor.detach()


def _bias_gradient(a: Any, b: Any, dtype: torch.dtype) -> Any:
    """The sum of B's rows, in cuBLASLt's order where the device's functions are asked for."""
    gradient = _high_precision(b)
    rows = gradient.reshape(-1, gradient.shape[-1])
    if active_functions() != "hopper" or kind_of_tensor(a) != "plain" or not rows.numel():
        return bias_gradient(gradient, dtype)
    return rounded(as_tensor(fp8lab.operators.cublaslt_row_sums(rows)), dtype)


def _empty_result(out: Any, shape: tuple[int, ...], dtype: torch.dtype, quantizer: Any, accumulate: bool) -> Any:
    if out is not None and accumulate:
        return out
    zeros = torch.zeros(shape, dtype=dtype)
    return _stored(zeros, out, dtype, quantizer)


def _fuses_cast(a: Any, b: Any, quantizer: Any) -> bool:
    """Whether the GEMM itself casts its result: by the scale of delayed scaling, of operands with one scale each."""
    is_delayed = quantizer is not None and isinstance(quantizer, classes().quantizers["delayed"])
    return is_delayed and "float8" in (kind_of_tensor(a), kind_of_tensor(b))


def _accumulated(out: Any, shape: tuple[int, ...]) -> Any:
    if out is None:
        raise ValueError("accumulate is for an output that is given")
    return out.detach().to(torch.float32).reshape(-1, shape[-1]).numpy()


def _stored(product: Any, out: Any, dtype: torch.dtype, quantizer: Any) -> Any:
    """The product in the output that is given, or as one of its own; quantized where a quantizer is given."""
    if quantizer is not None:
        return quantize_as(product, quantizer, dtype, out)
    if out is None:
        return product
    out.detach().copy_(product.view(out.shape))
    return out


def _with_gelu(
    product: Any, gelu_in: Any, grad: bool, is_float32: bool, aux: torch.dtype, dtype: torch.dtype
) -> tuple[Any, Any]:
    from fp8lab.te.activations import gelu_backward_of, gelu_of

    if grad:
        return gelu_backward_of(product, gelu_in.detach().view(product.shape), dtype), None
    return gelu_of(product, is_float32, dtype), product.to(aux)


def _gelu_backward_and_bias_gradient(product: Any, gelu_in: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """GELU's gradient times a product that was rounded, and the sum of its rows, both rounded once."""
    from fp8lab.te.activations import gelu_backward_of

    wide = gelu_backward_of(product.float(), gelu_in.detach().view(product.shape), torch.float32)
    rows = wide.reshape(-1, wide.shape[-1])
    if active_functions() != "hopper":
        return rounded(wide, dtype), bias_gradient(rows, dtype)
    return rounded(wide, dtype), rounded(as_tensor(fp8lab.operators.cublaslt_row_sums(rows, after_gelu=True)), dtype)


# --- the product ------------------------------------------------------------------------------------------------------


def _multiply(
    a: Any,
    is_a_transposed: bool,
    b: Any,
    is_b_transposed: bool,
    splits: bool,
    alpha: float,
    beta: float,
    output: str,
    bias: Any = None,
    c: Any = None,
) -> Any:
    """The matrix op(B) @ op(A)^T."""
    left, right = _operand(b, not is_b_transposed, "B"), _operand(a, is_a_transposed, "A")
    kind = _kind_of_product(left, right)
    has_square_blocks = left.has_square_blocks or right.has_square_blocks
    recipe = _recipe(
        kind, _model(kind, left), bool(splits), float(alpha), float(beta) if c is not None else 1.0, output,
        has_square_blocks, c is not None, _length_of_ranges(kind, left, right),
    )  # fmt: skip
    if kind == "nvfp4":
        made = fp8lab.gemm(left.array, right.array, recipe, bias=bias, c=c, threads=threads())
    else:
        layout: Any = ("t" if left.is_stored_transposed else "n") + ("n" if right.is_stored_transposed else "t")
        made = fp8lab.gemm(
            left.array, right.array, recipe, format_a=left.format, format_b=right.format, scale_a=left.scale,
            scale_b=right.scale, layout=layout, bias=bias, c=c, tf32_rounding=_CUBLASLT_TF32, threads=threads(),
        )  # fmt: skip
    return as_tensor(made)


def _kind_of_product(left: Operand, right: Operand) -> str:
    if left.kind != right.kind:
        raise RuntimeError(
            f"GEMM of B {left.kind} and A {right.kind}: cuBLAS has none; both must be of one kind (scaling_mode)"
        )
    if left.kind == "plain" and left.array.dtype != right.array.dtype:
        raise ValueError(f"GEMM of B {left.array.dtype} and A {right.array.dtype}: both must have one type")
    return left.kind


def _model(kind: str, left: Operand) -> str:
    """The tensor core of the device that computes such a product."""
    device = active_device()
    if kind == "plain":
        types = {torch.float32: device.tf32, torch.float16: device.fp16, torch.bfloat16: device.bf16}
        if left.array.dtype not in types:
            raise ValueError(f"a GEMM's operands are float32, float16 or bfloat16, not {left.array.dtype}")
        return types[left.array.dtype]
    model = {"float8": device.fp8, "mxfp8": device.mxfp8, "block": device.block, "nvfp4": device.nvfp4}[kind]
    if not model:
        raise RuntimeError(f"{device.title} has no GEMM of {kind} operands")
    return model


def _length_of_ranges(kind: str, left: Operand, right: Operand) -> int:
    """How many elements of K an H200 adds apart in a product of float32 operands; 0: all, or it is not known."""
    if kind != "plain" or left.array.dtype != torch.float32 or active_device().name != "h200":
        return 0
    k, n = left.array.shape if left.is_stored_transposed else left.array.shape[::-1]
    m = right.array.shape[1 if right.is_stored_transposed else 0]
    layout = ("N" if right.is_stored_transposed else "T") + ("T" if left.is_stored_transposed else "N")
    count = split_of_k(layout, m, n, k)
    return k // count if count > 1 else 0


@functools.cache
def _recipe(
    kind: str, model: str, splits: bool, alpha: float, beta: float, output: str, has_square_blocks: bool, has_c: bool,
    length_of_ranges: int,
) -> Any:  # fmt: skip
    """How the GEMM is composed. Fast accumulation is one without promotion."""
    device = active_device()
    fields: dict[str, Any] = {"model": model, "alpha": alpha, "beta": beta, "output": output}
    if kind == "float8" and splits:
        fields["promote_k"] = device.promote_k
    if length_of_ranges:
        fields["promote_k"] = length_of_ranges
    if kind == "block" and not device.block_is_mxfp8:  # an H200's cuBLASLt 13.1
        fields["scale_order"] = "scales_first" if has_square_blocks else "accumulator_first"
    if has_c and output in ("bfloat16", "float16"):
        fields["addition"] = "after_rounding"  # as cuBLASLt 13.1 adds on an H200
    return fp8lab.GemmRecipe(**fields)


def _operand(tensor: Any, is_rowwise: bool, argument: str) -> Operand:
    """A tensor whose K is its last dimension (rowwise) or its rows."""
    kind = kind_of_tensor(tensor)
    if kind == "plain":
        plain = tensor.detach()
        array = plain.reshape(-1, plain.shape[-1]) if plain.ndim else plain.reshape(1, 1)
        return Operand("plain", array, not is_rowwise)
    if kind == "float8":
        return _float8_operand(tensor, is_rowwise, argument)
    direction = "rowwise" if is_rowwise else "columnwise"
    codes, scales = getattr(tensor, f"_{direction}_data"), getattr(tensor, f"_{direction}_scale_inv")
    if codes is None or scales is None:
        raise RuntimeError(f"the GEMM needs {direction} data of {argument}, and the {type(tensor).__name__} has none")
    if kind == "nvfp4":
        return Operand("nvfp4", as_quantized(tensor, direction), False)
    codes = codes.detach()
    if kind == "mxfp8":
        return _mxfp8_operand(tensor, codes.reshape(-1, codes.shape[-1]), scales, is_rowwise)
    codes = codes.reshape(-1, codes.shape[-1]) if is_rowwise else codes.reshape(codes.shape[0], -1)
    if active_device().block_is_mxfp8:  # whose last block of 32 may end before K does; what is read there is zeros
        codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % 32))
    scale = block_scales(tensor, codes, scales).contiguous().numpy()
    return Operand("block", codes.numpy(), False, scale, format_name(tensor._fp8_dtype), tensor._is_2D_scaled)


def _float8_operand(tensor: Any, is_rowwise: bool, argument: str) -> Operand:
    scale = float(tensor._scale_inv.detach().reshape(-1)[0])
    name = format_name(tensor._fp8_dtype)
    if is_rowwise or active_device().has_all_layouts:
        if tensor._data is None:
            raise RuntimeError(f"the GEMM needs rowwise data of {argument}, and the {type(tensor).__name__} has none")
        codes = tensor._data.detach()
        return Operand("float8", codes.reshape(-1, codes.shape[-1]).numpy(), not is_rowwise, scale, name)
    if tensor._transpose is None or tensor._transpose_invalid:
        raise RuntimeError(
            f"the GEMM needs the transpose of {argument}, and the {type(tensor).__name__} has no valid one"
        )
    codes = tensor._transpose.detach()
    return Operand("float8", codes.reshape(codes.shape[0], -1).numpy(), False, scale, name)


def _mxfp8_operand(tensor: Any, codes: Any, scales: Any, is_rowwise: bool) -> Operand:
    rows, columns = codes.shape
    is_swizzled = tensor._with_gemm_swizzled_scales or getattr(scales, "is_swizzled", False)
    scales = scales.detach()
    if is_swizzled:
        shape = (rows, columns // 32) if is_rowwise else (columns, rows // 32)
        compact = fp8lab.unswizzle_scales(scales.reshape(-1).numpy(), shape)
        compact = compact if is_rowwise else compact.T
    else:
        compact = (scales[:rows, : columns // 32] if is_rowwise else scales[: rows // 32, :columns]).numpy()
    return Operand("mxfp8", codes.numpy(), not is_rowwise, compact, format_name(tensor._fp8_dtype))


# --- many products ----------------------------------------------------------------------------------------------------


def te_general_grouped_gemm(
    A: Any,
    transa: bool,
    B: Any,
    transb: bool,
    D: Any,
    D_type: Any,
    m_splits: Any,
    bias: Any,
    bias_type: Any,
    single_output: bool,
    pre_gelu_out: Any,
    grad: bool,
    workspace: Any,
    workspaceSize: int,  # noqa: N803  # the extension's name
    accumulate: bool,
    use_split_accumulator: bool,
    math_sm_count: int,
) -> Any:
    """A GEMM for each pair; with ``single_output`` their results are the rows of one tensor, one after the other."""
    if single_output and D is None:
        raise ValueError("te_general_grouped_gemm with single_output writes to D, which must be given")
    first = 0
    for i, (right, left) in enumerate(zip(A, B)):
        shape = _output_shape(right, transa, left, transb)
        if single_output:
            out = D[0].detach().reshape(-1, shape[-1])[first : first + shape[0]]
            first += shape[0]
        else:
            out = None if D is None else D[i]
        product_into(
            (right, transa, left, transb), out, bias[i], pre_gelu_out[i], bias_type, grad, accumulate,
            use_split_accumulator,
        )  # fmt: skip
    return bias


def product_into(
    operands: tuple[Any, bool, Any, bool],
    out: Any,
    bias: Any,
    pre_gelu: Any,
    bias_type: Any,
    grad: bool,
    accumulate: bool,
    splits: bool,
) -> None:
    """A product into its output; the gradient of a bias and the input of a GELU into theirs. Empty ones are none."""
    has_bias, has_gelu = bias.numel() > 0, pre_gelu.numel() > 0
    right, transa, left, transb = operands
    _, gradient, gelu_input, _ = generic_gemm(
        right, transa, left, transb, out, None, None if out is None else out.dtype, bias if has_bias else None,
        bias_type, has_gelu, pre_gelu if grad and has_gelu else None, grad, None, 0, accumulate, splits,
    )  # fmt: skip
    if gradient is not None:
        bias.detach().copy_(gradient)
    if gelu_input is not None:
        pre_gelu.detach().copy_(gelu_input)


# --- PyTorch's own ----------------------------------------------------------------------------------------------------


def scaled_mm(
    self: Any,
    mat2: Any,
    scale_a: Any = None,
    scale_b: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """``torch._scaled_mm`` on the device, which Transformer Engine's references call."""
    from fp8lab.torch import _scaled_mm as of_device

    dtype = torch.bfloat16 if out_dtype is None else out_dtype
    return of_device.scaled_mm(
        active_device(), self, mat2, scale_a, scale_b, bias, scale_result, dtype, use_fast_accum, threads=threads()
    )
