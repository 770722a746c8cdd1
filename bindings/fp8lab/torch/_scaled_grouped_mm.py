# SPDX-License-Identifier: Apache-2.0
"""``torch._scaled_grouped_mm`` as a device computes it, on CPU tensors: one CUTLASS GEMM for each group.

It follows PyTorch 2.13, aten/src/ATen/native/cuda/ScaledGroupMM.cu.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from fp8lab._gemm_recipes import GemmRecipe
from fp8lab._products import gemm
from fp8lab.te.devices import Device
from fp8lab.torch._linear import as_tensor
from fp8lab.torch._scaled_mm import codes_of

__all__ = ["scaled_grouped_mm"]


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
    threads: int | None = None,
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
            codes_of(a)[0], codes_of(b.t())[0], recipe, format_a="e4m3", format_b="e4m3",
            scale_a=_rows(of_a, a.shape[0]), scale_b=_rows(of_b, b.shape[1]), threads=threads,
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
    if any(size % 16 for size in (self.shape[-1], *mat2.shape[-2:])):
        raise ValueError(f"_scaled_grouped_mm takes K and N that are multiples of 16, not {tuple(self.shape)} and "
                         f"{tuple(mat2.shape)}")  # fmt: skip
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
