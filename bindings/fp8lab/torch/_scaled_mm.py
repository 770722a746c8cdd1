# SPDX-License-Identifier: Apache-2.0
"""``torch._scaled_mm`` and its like as a device computes them, on CPU tensors: each is a ``GemmRecipe``.

What is taken, and which kernel computes it, follows PyTorch 2.13 for CUDA: aten/src/ATen/native/cuda/ScaledBlas.cpp,
RowwiseScaledMM.cu and ScaledGroupMM.cu. Scales of rows multiply on Hopper as cuBLASLt 13.1 multiplied them on an H200
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

__all__ = ["scaled_grouped_mm", "scaled_mm", "scaled_mm_v2"]

_FP8 = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
_FP4 = getattr(torch, "float4_e2m1fn_x2", None)  # PyTorch has it since 2.8
_E8M0 = getattr(torch, "float8_e8m0fnu", None)
_WIDE = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
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
    threads: int = 1,
) -> Any:
    """``torch._scaled_mm`` of (M, K) and (K, N) on a device: scales of tensors, of rows, of 1 x 128 and 128 x 128
    elements, or E8M0 and E4M3 scales of blocks, swizzled.

    RuntimeError for what the device or PyTorch refuses.
    """
    left, right = _operands(device, self, mat2)
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
    threads: int = 1,
) -> Any:
    """``torch.nn.functional.scaled_mm`` with scales of tensors, rows, or blocks of 32 (E8M0) and 16 (E4M3).

    NotImplementedError for others, and for a contraction of other dimensions than the inner ones.
    """
    left, right = _operands(device, self, mat2)
    if contraction_dim and tuple(contraction_dim) not in ((1, 0), (-1, -2)):
        raise NotImplementedError(f"torch.nn.functional.scaled_mm with contraction_dim={list(contraction_dim)} is not "
                                  "provided by fp8lab.torch.emulate: mat_a is (M, K) and mat_b (K, N)")  # fmt: skip
    kinds = _KINDS[recipe_a[0]], _KINDS[recipe_b[0]]
    if any(kind.endswith("128") for kind in kinds):
        raise NotImplementedError(f"torch.nn.functional.scaled_mm with scales {kinds} is not provided by "
                                  "fp8lab.torch.emulate: torch._scaled_mm has it")  # fmt: skip
    scales = [one[0].detach().t() if one[0].ndim == 2 and kind == "row" and one[0].shape[0] == 1 else one[0].detach()
              for one, kind in zip((scale_a, scale_b), kinds)]  # fmt: skip
    scales = [one.reshape(-1, 1) if kind == "row" else one for one, kind in zip(scales, kinds)]
    of_tensors = [float(one[1]) if len(one) > 1 else 1.0 for one in (scale_a, scale_b)]
    output = torch.bfloat16 if out_dtype is None else out_dtype
    return _product(
        device, left, right, (scales[0], scales[1]), kinds, bias, None, output, use_fast_accum, threads,
        (of_tensors[0], of_tensors[1]),
    )  # fmt: skip


# --- what is multiplied -----------------------------------------------------------------------------------------------


def _operands(device: Device, self: Any, mat2: Any) -> tuple[Any, Any]:
    """(M, K) and (N, K), after PyTorch's checks."""
    if self.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"_scaled_mm takes matrices, not tensors of {self.ndim} and {mat2.ndim} dimensions")
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"_scaled_mm cannot multiply {tuple(self.shape)} and {tuple(mat2.shape)}")
    _check_types(self, mat2)
    if not device.has_all_layouts and (self.stride(1) != 1 or mat2.stride(0) != 1):
        raise RuntimeError(f"_scaled_mm on {device.title} takes a row-major first and a column-major second matrix: "
                           "give mat2 as a transpose")  # fmt: skip
    packed = 2 if self.dtype is _FP4 else 1
    for size, what in ((packed * self.shape[1], "K"), (mat2.shape[1], "N")):
        if size % 16:
            raise RuntimeError(f"_scaled_mm takes a {what} that is a multiple of 16, not {size}")
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
        raise RuntimeError("_scaled_mm does not multiply float8_e5m2 by float8_e5m2")


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
    shapes = {"row": (rows, 1), "1x128": (rows, _up(columns, 128)), "128x128": (_up(rows, 128), _up(columns, 128))}
    if scale.dtype == torch.float32:
        if scale.numel() == 1:
            return "tensor"
        for kind, shape in shapes.items():
            if tuple(scale.shape) == shape:
                return kind
    raise RuntimeError(f"{argument} must be float32, one for the tensor or {shapes['row']}, {shapes['1x128']} or "
                       f"{shapes['128x128']} along K, not {tuple(scale.shape)} in {scale.dtype}")  # fmt: skip


def _recipe_of(device: Device, kinds: tuple[str, str], use_fast_accum: bool, output: Any) -> GemmRecipe:
    """How the device's kernel composes the GEMM."""
    fields: dict[str, Any] = {"output": output}
    if kinds in (("tensor", "tensor"), ("row", "row")):
        fields.update(model=device.fp8, promote_k=0 if use_fast_accum else device.promote_k)
        if kinds[0] == "row":  # cuBLASLt, whose left operand is PyTorch's right one; elsewhere CUTLASS
            fields["scale_order"] = "b_first" if device.capability == (9, 0) else "accumulator_first"
        return GemmRecipe(**fields)
    if kinds in (("mxfp8", "mxfp8"), ("nvfp4", "nvfp4")):
        fields["model"] = getattr(device, kinds[0])
    elif kinds in (("1x128", "1x128"), ("1x128", "128x128"), ("128x128", "1x128")):
        fields.update(model="" if device.block_is_mxfp8 else device.block, scale_order="accumulator_first")
    else:
        raise RuntimeError(
            f"_scaled_mm takes no scales of {kinds[0]} for the first and of {kinds[1]} for the second matrix"
        )
    if not fields["model"]:
        raise RuntimeError(f"{device.title} has no GEMM in PyTorch whose scales are those of {kinds[0]} and {kinds[1]}")
    return GemmRecipe(**fields)


def _codes(matrix: Any) -> tuple[Any, str]:
    name = "e2m1" if matrix.dtype is _FP4 else _FP8[matrix.dtype]
    return matrix.contiguous().view(torch.uint8).numpy(), name


def _scale_argument(scale: Any, kind: str, of_tensor: float) -> Any:
    if kind == "tensor":
        return float(scale)
    if kind in ("mxfp8", "nvfp4"):
        return scale.contiguous().reshape(-1).view(torch.uint8).numpy(), of_tensor
    return scale.contiguous().numpy()


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
    threads: int,
    of_tensors: tuple[float, float] = (1.0, 1.0),
) -> Any:
    output = {**_WIDE, **_FP8}.get(out_dtype)
    if output is None:
        raise RuntimeError(f"_scaled_mm gives float32, float16, bfloat16 or float8, not {out_dtype}")
    if bias is not None:
        if bias.numel() != right.shape[0]:
            raise RuntimeError(f"bias must have {right.shape[0]} elements, one for each column, not {bias.numel()}")
        if out_dtype == torch.float32 or bias.dtype not in (torch.bfloat16, torch.float16):
            raise RuntimeError("bias must be bfloat16 or float16, and goes with no float32 result")
    recipe = _recipe_of(device, kinds, use_fast_accum, output)
    result_type = out_dtype
    if 0 in (left.shape[0], right.shape[0]):
        return torch.empty((left.shape[0], right.shape[0]), dtype=result_type)
    (a, format_a), (b, format_b) = _codes(left), _codes(right)
    swizzled = kinds[0] in ("mxfp8", "nvfp4")
    made = gemm(
        a, b, recipe, format_a=format_a, format_b=format_b, scale_a=_scale_argument(scales[0], kinds[0], of_tensors[0]),
        scale_b=_scale_argument(scales[1], kinds[1], of_tensors[1]), scale_layout="swizzled" if swizzled else "compact",
        bias=None if bias is None else bias.detach().to(torch.float32).numpy(),
        scale_out=float(scale_result) if scale_result is not None and out_dtype in _FP8 else 1.0, threads=threads,
    )  # fmt: skip
    if out_dtype in _FP8:
        return torch.from_numpy(made).view(result_type)
    return as_tensor(made)


# --- many products ----------------------------------------------------------------------------------------------------


def scaled_grouped_mm(
    device: Device,
    self: Any,
    mat2: Any,
    scale_a: Any,
    scale_b: Any,
    offs: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    threads: int = 1,
) -> Any:
    """``torch._scaled_grouped_mm`` of E4M3 codes with a float32 scale for each row: one CUTLASS GEMM for each group.

    Groups are ranges of the rows of ``self`` (2 and 3 dimensions), of the columns of ``mat2`` (3 and 2), of K (2 and
    2), which end at ``offs``, or the first dimension of both (3 and 3). RuntimeError for what the device or PyTorch
    refuses.
    """
    if device.capability != (9, 0):
        raise RuntimeError(f"_scaled_grouped_mm with scales of rows runs on compute capability 9.0 alone, and "
                           f"{device.title} has {device.capability[0]}.{device.capability[1]}")  # fmt: skip
    _check_grouped(self, mat2, offs, bias, scale_result, out_dtype)
    recipe = GemmRecipe(model=device.fp8, promote_k=0 if use_fast_accum else device.promote_k,
                        scale_order="accumulator_first", output="bfloat16")  # fmt: skip

    def multiply(a: Any, b: Any, of_a: Any, of_b: Any) -> Any:
        """(M, K) and (K, N)."""
        if 0 in (*a.shape, *b.shape):
            return torch.zeros(a.shape[0], b.shape[1], dtype=torch.bfloat16)
        return as_tensor(gemm(
            _codes(a)[0], _codes(b.t())[0], recipe, format_a="e4m3", format_b="e4m3", scale_a=_rows(of_a, a.shape[0]),
            scale_b=_rows(of_b, b.shape[1]), threads=threads,
        ))  # fmt: skip

    left, right = self.detach(), mat2.detach()
    ranges = _ranges(offs, left, right)
    if left.ndim == 2 and right.ndim == 3:
        out = torch.zeros(left.shape[0], right.shape[2], dtype=torch.bfloat16)  # rows after the last group stay
        for group, (first, last) in enumerate(ranges):
            out[first:last] = multiply(left[first:last], right[group], scale_a[first:last], scale_b[group])
        return out
    if left.ndim == 3 and right.ndim == 2:
        out = torch.zeros(left.shape[1], right.shape[1], dtype=torch.bfloat16)
        for group, (first, last) in enumerate(ranges):
            out[:, first:last] = multiply(left[group], right[:, first:last], scale_a[group], scale_b[first:last])
        return out
    if left.ndim == 3:
        return torch.stack([multiply(*one) for one in zip(left, right, scale_a, scale_b)])
    of_a, of_b = (scale.detach().reshape(len(ranges), -1) for scale in (scale_a, scale_b))
    return torch.stack([
        multiply(left[:, first:last], right[first:last], of_a[group], of_b[group])
        for group, (first, last) in enumerate(ranges)
    ])  # fmt: skip


def _rows(scale: Any, rows: int) -> Any:
    if scale.dtype != torch.float32 or scale.numel() != rows:
        raise RuntimeError(
            f"_scaled_grouped_mm takes float32 scales, {rows} for these rows, not {scale.numel()} in {scale.dtype}"
        )
    return scale.detach().reshape(rows, 1).contiguous().numpy()


def _check_grouped(self: Any, mat2: Any, offs: Any, bias: Any, scale_result: Any, out_dtype: Any) -> None:
    if (self.dtype, mat2.dtype) != (torch.float8_e4m3fn, torch.float8_e4m3fn):
        raise RuntimeError(f"_scaled_grouped_mm takes float8_e4m3fn, not {self.dtype} and {mat2.dtype}")
    if self.ndim not in (2, 3) or mat2.ndim not in (2, 3):
        raise RuntimeError(f"_scaled_grouped_mm takes 2 or 3 dimensions, not {self.ndim} and {mat2.ndim}")
    if self.stride(-1) != 1 or mat2.stride(-2) != 1:
        raise RuntimeError("_scaled_grouped_mm takes row-major first and column-major second matrices")
    if bias is not None or scale_result is not None:
        raise RuntimeError("_scaled_grouped_mm takes neither bias nor scale_result")
    if out_dtype not in (None, torch.bfloat16):
        raise RuntimeError(f"_scaled_grouped_mm gives bfloat16, not {out_dtype}")
    if (offs is None) != (self.ndim == mat2.ndim == 3):
        raise RuntimeError("_scaled_grouped_mm takes offs where a matrix has 2 dimensions, and nowhere else")
    if self.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(f"_scaled_grouped_mm cannot multiply {tuple(self.shape)} and {tuple(mat2.shape)}")


def _ranges(offs: Any, left: Any, right: Any) -> list[tuple[int, int]]:
    """The first and last of each group, of the dimension that is split."""
    if offs is None:
        return []
    if offs.dtype != torch.int32 or offs.ndim != 1:
        raise RuntimeError("offs must be int32, one end for each group")
    ends = [int(end) for end in offs]
    size = left.shape[0] if right.ndim == 3 else right.shape[1] if left.ndim == 3 else left.shape[1]
    if any(first > last for first, last in zip([0, *ends], [*ends, size])):
        raise RuntimeError(f"offs must ascend to at most {size}, not {ends}")
    groups = [one.shape[0] for one in (left, right) if one.ndim == 3]
    if groups and groups[0] != len(ends):
        raise RuntimeError(f"offs must have {groups[0]} ends, one for each matrix, not {len(ends)}")
    return list(zip([0, *ends], ends))
