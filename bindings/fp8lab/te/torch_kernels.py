# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own kernels compute on an H200 where Transformer Engine calls them, with the functions of Hopper.

Batched products of attention, by cuBLAS 13.1: each is the tensor core's sum over all of K, times alpha, rounded once.
Sums over rows, by PyTorch's reduction. Recorded there (PyTorch 2.11.0, CUDA 13.0).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

import fp8lab
from fp8lab.te._activation import active_device, active_functions
from fp8lab.te.quantize import has_known_order, sum_of_rows, threads
from fp8lab.te.tensors import as_tensor, rounded

__all__ = ["baddbmm", "bmm", "compiled", "row_sum"]

_HALVES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


def _is_recorded(*tensors: Any) -> bool:
    """Whether these are batches of matrices of 16 bits, whose products were recorded."""
    return (
        active_functions() == "hopper"
        and all(type(one) in (torch.Tensor, torch.nn.Parameter) and one.ndim == 3 for one in tensors)
        and tensors[0].dtype in _HALVES
        and all(one.dtype == tensors[0].dtype and one.numel() for one in tensors)
    )


@functools.cache
def _recipe(model: Any, output: Any, alpha: float) -> Any:
    return fp8lab.GemmRecipe(model, alpha=alpha, output=output)


def _product(a: Any, b: Any, alpha: float = 1.0) -> Any:
    """alpha a @ b of each pair of matrices, rounded once to their type."""
    device = active_device()
    recipe = _recipe(device.fp16 if a.dtype == torch.float16 else device.bf16, _HALVES[a.dtype], alpha)
    left, right = a.detach().contiguous(), b.detach().transpose(1, 2).contiguous()
    made = [as_tensor(fp8lab.gemm(x, y, recipe, threads=threads())) for x, y in zip(left, right)]
    return torch.stack(made)


class _BatchedProduct(torch.autograd.Function):  # type: ignore[misc]  # its module has no types
    """alpha a @ b, with the products of its gradients, which are rounded before alpha multiplies them."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, alpha: float) -> Any:
        ctx.save_for_backward(a, b)
        ctx.alpha = alpha
        return _product(a, b, alpha)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # its module has no types
    def backward(ctx: Any, gradient: Any) -> Any:
        a, b = ctx.saved_tensors
        of_a = _product(gradient, b.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        of_b = _product(a.transpose(1, 2), gradient) if ctx.needs_input_grad[1] else None
        scaled = [one if one is None or ctx.alpha == 1 else one * ctx.alpha for one in (of_a, of_b)]
        return (*scaled, None)


def bmm(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``torch.bmm``."""
    if options or len(args) != 2 or not _is_recorded(*args):
        return torch.bmm(*args, **options)
    return _BatchedProduct.apply(*args, 1.0)


def baddbmm(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``torch.baddbmm``, which adds nothing where beta is zero."""
    alpha, beta = options.get("alpha", 1), options.get("beta", 1)
    if set(options) - {"alpha", "beta"} or len(args) != 3 or beta != 0 or not _is_recorded(*args[1:]):
        return torch.baddbmm(*args, **options)
    return _BatchedProduct.apply(*args[1:], float(alpha))


def row_sum(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``Tensor.sum`` over the rows of a matrix, in the order of PyTorch's kernel."""
    rows = args[0]
    is_known = (
        type(rows) is torch.Tensor
        and (args[1:], options) in (((0,), {}), ((), {"dim": 0}))
        and rows.ndim == 2
        and rows.dtype in (torch.float32, torch.bfloat16)
        and not (rows.requires_grad and torch.is_grad_enabled())
        and rows.is_contiguous()
        and has_known_order(rows)
    )
    if not is_known:
        return torch.Tensor.sum(*args, **options)
    return sum_of_rows(rows.detach(), rows.dtype)


def compiled(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What the GPU's compiled code gives for a function that Transformer Engine has PyTorch compile; None of others."""
    own = _COMPILED.get(name)
    if own is None or options or active_functions() != "hopper":
        return None
    if torch.is_grad_enabled() and any(one.requires_grad for one in args):
        return None
    plain = [one.detach() for one in args]
    if (
        len({one.dtype for one in plain}) != 1
        or plain[0].dtype not in (torch.float32, *_HALVES)
        or not plain[0].numel()
        or plain[0].ndim != 2
    ):
        return None
    return own(*plain)


def _bias_gelu(x: Any, bias: Any = None) -> Any:
    return as_tensor(fp8lab.operators.compiled_gelu(x, None if bias is None else bias.float(), threads=threads()))


def _bgrad_dgelu(grad: Any, x: Any, bias: Any) -> Any:
    """By code that is compiled for one shape; where its order is not known, code for any adds what is not rounded."""
    is_known = x.dtype != torch.float16 and fp8lab.operators.has_one_shape_sums(*x.shape)
    made, sums = fp8lab.operators.compiled_gelu_backward(
        grad, x, bias.float(), bias_gradient=True, for_one_shape=is_known, threads=threads(),
        out_dtype=None if is_known else "float32",
    )  # fmt: skip
    return rounded(as_tensor(sums), x.dtype), rounded(as_tensor(made), x.dtype)


def _dgelu(grad: Any, x: Any) -> Any:
    return as_tensor(fp8lab.operators.compiled_gelu_backward(grad, x, threads=threads()))


#: Transformer Engine 2.20, pytorch/jit.py.
_COMPILED: dict[str, Callable[..., Any]] = {
    "bias_gelu_fused_": _bias_gelu,
    "gelu_fused_": _bias_gelu,
    "bgrad_dgelu_fused_": _bgrad_dgelu,
    "dgelu_fused_": _dgelu,
}
