# SPDX-License-Identifier: Apache-2.0
"""``torch._scaled_mm`` and its like as a device computes them, on CPU tensors: each is a ``GemmRecipe``.

What is taken, and which kernel computes it, follows PyTorch 2.13 for CUDA: aten/src/ATen/native/cuda/ScaledBlas.cpp
and RowwiseScaledMM.cu. Scales of rows multiply on Hopper as cuBLASLt 13.1 multiplied them on an H200
(tests/python/test_device_libraries.py). Not modelled: that cuBLASLt splits K where a GEMM has too few tiles for the
chip.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._gemm_recipes import GemmRecipe
from fp8lab._products import gemm
from fp8lab.te.devices import Device
from fp8lab.torch._linear import as_tensor

__all__ = ["codes_of", "scaled_mm", "scaled_mm_v2"]

_FP8 = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
_FP4 = getattr(torch, "float4_e2m1fn_x2", None)  # PyTorch has it since 2.8
_E8M0 = getattr(torch, "float8_e8m0fnu", None)
_WIDE = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
_SWIZZLED = 1  # SwizzleType.SWIZZLE_32_4_4 of torch.nn.functional
#: Which scales there are, as torch.nn.functional.ScalingType numbers them.
_KINDS = ("tensor", "row", "nvfp4", "mxfp8", "1x128", "128x128")


def scaled_mm(
    device: Device,
    self: Any,
    mat2: Any,
    scale_a: Any = None,
    scale_b: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    threads: int | None = None,
) -> Any:
    """``torch._scaled_mm`` of (M, K) and (K, N) on a device: scales of tensors, of rows, of 1 x 128 and 128 x 128
    elements, or E8M0 and E4M3 scales of blocks, swizzled.

    RuntimeError or ValueError for what the device or PyTorch refuses.
    """
    left, right = _operands(device, self, mat2, counts_pairs=False)
    scale_a = torch.ones(()) if scale_a is None else scale_a.detach()
    scale_b = torch.ones(()) if scale_b is None else scale_b.detach()
    across = scale_b.t() if scale_b.ndim == 2 else scale_b
    kinds = _kind_of(left, scale_a, "scale_a"), _kind_of(right, across, "scale_b")
    output = left.dtype if out_dtype is None else out_dtype
    return _product(device, left, right, (scale_a, across), kinds, bias, scale_result, output, use_fast_accum, threads)


def scaled_mm_v2(
    device: Device,
    self: Any,
    mat2: Any,
    scale_a: list[Any],
    recipe_a: list[int],
    swizzle_a: list[int],
    scale_b: list[Any],
    recipe_b: list[int],
    swizzle_b: list[int],
    bias: Any = None,
    out_dtype: Any = None,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
    *,
    threads: int | None = None,
) -> Any:
    """``torch.nn.functional.scaled_mm`` with scales of tensors, rows, or blocks of 32 (E8M0) and 16 (E4M3).

    NotImplementedError for others, and for a contraction of other dimensions than the inner ones.
    """
    left, right = _operands(device, self, mat2, counts_pairs=True)
    if contraction_dim and tuple(contraction_dim) not in ((1, 0), (-1, -2)):
        raise NotImplementedError(f"torch.nn.functional.scaled_mm with contraction_dim={list(contraction_dim)} is not "
                                  "provided by fp8lab.torch.emulate: mat_a is (M, K) and mat_b (K, N)")  # fmt: skip
    kinds = _KINDS[recipe_a[0]], _KINDS[recipe_b[0]]
    if any(kind.endswith("128") for kind in kinds):
        raise NotImplementedError(f"torch.nn.functional.scaled_mm with scales {kinds} is not provided by "
                                  "fp8lab.torch.emulate: torch._scaled_mm has it")  # fmt: skip
    for kind, swizzle in zip(kinds, (swizzle_a, swizzle_b)):
        if kind in ("mxfp8", "nvfp4") and list(swizzle[:1]) != [_SWIZZLED]:
            raise ValueError("scales of blocks must be swizzled: SwizzleType.SWIZZLE_32_4_4")
    if len(scale_a) != len(scale_b):
        raise ValueError("both matrices have scales of the whole tensor over those of blocks, or none has")
    blocks = [one[0].detach() for one in (scale_a, scale_b)]
    scales = [one.reshape(-1, 1) if kind == "row" else one for one, kind in zip(blocks, kinds)]
    of_tensors = [float(one[1]) if len(one) > 1 else 1.0 for one in (scale_a, scale_b)]
    output = torch.bfloat16 if out_dtype is None else out_dtype
    return _product(
        device, left, right, (scales[0], scales[1]), kinds, bias, None, output, use_fast_accum, threads,
        (of_tensors[0], of_tensors[1]),
    )  # fmt: skip


# --- what is multiplied -----------------------------------------------------------------------------------------------


def _operands(device: Device, self: Any, mat2: Any, *, counts_pairs: bool) -> tuple[Any, Any]:
    """(M, K) and (N, K), after PyTorch's checks; whether K counts the elements of FP4, and not the bytes."""
    if self.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"_scaled_mm takes matrices, not tensors of {self.ndim} and {mat2.ndim} dimensions")
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"_scaled_mm cannot multiply {tuple(self.shape)} and {tuple(mat2.shape)}")
    _check_types(self, mat2)
    if self.stride(1) != 1 or mat2.stride(0) != 1:
        raise RuntimeError(f"_scaled_mm on {device.title} takes a row-major first and a column-major second matrix: "
                           "give mat2 as a transpose")  # fmt: skip
    packed = 2 if counts_pairs and self.dtype is _FP4 else 1
    for size, what in ((packed * self.shape[1], "K"), (mat2.shape[1], "N")):
        if size % 16:
            of_torch = ""
            if what == "K":  # programs look for the words of PyTorch
                of_torch = "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: "
                of_torch += f"({self.shape[0]}x{self.shape[1]}). "
            raise RuntimeError(f"{of_torch}_scaled_mm takes a {what} that is a multiple of 16, not {size}")
    return self.detach(), mat2.detach().t()


def _check_types(left: Any, right: Any) -> None:
    types = (left.dtype, right.dtype)
    if types == (_FP4, _FP4) and _FP4 is not None:
        return
    if not set(types) <= set(_FP8):
        raise RuntimeError(
            f"_scaled_mm takes float8_e4m3fn, float8_e5m2 and float4_e2m1fn_x2, not {types[0]} and {types[1]}"
        )
    if types == (torch.float8_e5m2, torch.float8_e5m2):
        raise ValueError("_scaled_mm does not multiply float8_e5m2 by float8_e5m2")


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple)


def _kind_of(matrix: Any, scale: Any, argument: str) -> str:
    """Which scales a matrix whose K is its last dimension has, by their type and shape."""
    rows, columns = matrix.shape
    if matrix.dtype is _FP4:
        wanted = (torch.float8_e4m3fn, 128 * _up(rows, 128) * 4 * _up(2 * columns, 64))
        if (scale.dtype, scale.numel()) == wanted:
            return "nvfp4"
        raise RuntimeError(f"{argument} of FP4 codes has {wanted[1]} scales in float8_e4m3fn, one for 16 elements, "
                           f"swizzled, not {scale.numel()} in {scale.dtype}")  # fmt: skip
    if scale.dtype is _E8M0 and _E8M0 is not None:
        wanted_number = 128 * _up(rows, 128) * 4 * _up(columns, 128)
        if scale.numel() == wanted_number:
            return "mxfp8"
        raise RuntimeError(f"{argument} in float8_e8m0fnu has {wanted_number} scales, one for 32 elements, swizzled, "
                           f"not {scale.numel()}")  # fmt: skip
    tiles, blocks = _up(rows, 128), _up(columns, 128)
    shapes = {"row": (rows, 1), "1x128": (rows, blocks), "128x128": (tiles, blocks)}
    strides = {"row": (1, 1), "1x128": (1, rows), "128x128": (blocks, 1)}
    if scale.dtype == torch.float32:
        if scale.numel() == 1:
            return "tensor"
        for kind, shape in shapes.items():
            lies = all(size <= 1 or given == own for size, given, own in zip(shape, scale.stride(), strides[kind]))
            if tuple(scale.shape) == shape and lies:
                return kind
    allowed = ", ".join(f"{shapes[kind]} with strides {strides[kind]}" for kind in shapes)
    raise RuntimeError(f"{argument} must be float32, one for the tensor, or along K {allowed}; not "
                       f"{tuple(scale.shape)} with {scale.stride()} in {scale.dtype}")  # fmt: skip


def _recipe_of(device: Device, kinds: tuple[str, str], use_fast_accum: bool, output: Any) -> GemmRecipe:
    """How the device's kernel composes the GEMM."""
    fields: dict[str, Any] = {"output": output}
    if kinds in (("tensor", "tensor"), ("row", "row")):
        fields.update(model=device.fp8, promote_k=0 if use_fast_accum else device.promote_k)
        if kinds[0] == "row":  # cuBLASLt, whose left operand is PyTorch's right one; elsewhere CUTLASS
            is_cutlass = device.capability != (9, 0)
            fields["scale_order"] = "accumulator_first" if is_cutlass else "b_first"
            if is_cutlass and output not in ("bfloat16", "float16"):
                raise ValueError(f"scales of rows on {device.title} give bfloat16 or float16, not {output}")
        return GemmRecipe(**fields)
    if kinds in (("mxfp8", "mxfp8"), ("nvfp4", "nvfp4")):
        fields["model"] = getattr(device, kinds[0])
    elif kinds in (("1x128", "1x128"), ("1x128", "128x128"), ("128x128", "1x128")):
        order = "scales_first" if "128x128" in kinds else "accumulator_first"  # an H200's cuBLASLt 13.1
        fields.update(model="" if device.block_is_mxfp8 else device.block, scale_order=order)
    else:
        raise RuntimeError(
            f"_scaled_mm takes no scales of {kinds[0]} for the first and of {kinds[1]} for the second matrix"
        )
    if not fields["model"]:
        raise RuntimeError(f"{device.title} has no GEMM in PyTorch whose scales are those of {kinds[0]} and {kinds[1]}")
    return GemmRecipe(**fields)


def codes_of(matrix: Any) -> tuple[Any, Any]:
    """A matrix's codes as bytes, and their format."""
    name = "e2m1" if matrix.dtype is _FP4 else _FP8[matrix.dtype]
    return matrix.contiguous().view(torch.uint8).numpy(), name


def _scale_argument(scale: Any, kind: str, of_tensor: float) -> Any:
    if kind == "tensor":
        return float(scale)
    if kind in ("mxfp8", "nvfp4"):
        return scale.contiguous().reshape(-1).view(torch.uint8).numpy(), of_tensor
    return scale.contiguous().numpy()


def _check_bias(bias: Any, columns: int, out_dtype: Any) -> None:
    if bias is None:
        return
    if bias.numel() != columns:
        raise RuntimeError(f"bias must have {columns} elements, one for each column, not {bias.numel()}")
    allowed = {torch.float32: (), torch.bfloat16: (torch.bfloat16,), torch.float16: (torch.float16,)}
    if bias.dtype not in allowed.get(out_dtype, (torch.bfloat16, torch.float16)):
        raise RuntimeError(f"a bias in {bias.dtype} does not go with a result in {out_dtype}: it is of the result's "
                           "type, bfloat16 or float16 under float8, and float32 has none")  # fmt: skip


def _product(
    device: Device,
    left: Any,
    right: Any,
    scales: tuple[Any, Any],
    kinds: tuple[str, str],
    bias: Any,
    scale_result: Any,
    out_dtype: Any,
    use_fast_accum: bool,
    threads: int | None,
    of_tensors: tuple[float, float] = (1.0, 1.0),
) -> Any:
    output = {**_WIDE, **_FP8}.get(out_dtype)
    if output is None:
        raise RuntimeError(f"_scaled_mm gives float32, float16, bfloat16 or float8, not {out_dtype}")
    _check_bias(bias, right.shape[0], out_dtype)
    if use_fast_accum and left.dtype is _FP4:
        raise RuntimeError("use_fast_accum is not for float4_e2m1fn_x2")
    if scale_result is not None and out_dtype in _FP8:
        raise NotImplementedError("scale_result is not provided by fp8lab: PyTorch's releases differ in whether it "
                                  "scales an FP8 result")  # fmt: skip
    recipe = _recipe_of(device, kinds, use_fast_accum, output)
    if 0 in (*left.shape, right.shape[0]):
        return torch.zeros((left.shape[0], right.shape[0]), dtype=out_dtype)
    (a, format_a), (b, format_b) = codes_of(left), codes_of(right)
    swizzled = kinds[0] in ("mxfp8", "nvfp4")
    made = gemm(
        a, b, recipe, format_a=format_a, format_b=format_b, scale_a=_scale_argument(scales[0], kinds[0], of_tensors[0]),
        scale_b=_scale_argument(scales[1], kinds[1], of_tensors[1]), scale_layout="swizzled" if swizzled else "compact",
        bias=None if bias is None else bias.detach().to(torch.float32).numpy(), threads=threads,
    )  # fmt: skip
    if out_dtype in _FP8:
        return torch.from_numpy(made).view(out_dtype)
    return as_tensor(made)
