# SPDX-License-Identifier: Apache-2.0
"""Transformer Engine's quantizers and quantized tensors: their classes, their buffers, and what fp8lab calls them.

Which buffers a quantizer makes, and of which shapes, follows ``create_tensor`` and ``convert_and_update_tensor`` of
pytorch/csrc/quantizer.cpp (2.20).
"""

from __future__ import annotations

import copy
import functools
import importlib
import math
from types import SimpleNamespace
from typing import Any

import torch

from fp8lab.te import enums
from fp8lab.te._activation import active_device
from fp8lab.te._functions import refuse
from fp8lab.te._releases import installed_release

__all__ = [
    "Codes",
    "as_tensor",
    "as_the_tensor_has",
    "classes",
    "element_type",
    "format_name",
    "kind_of_quantizer",
    "kind_of_tensor",
    "matrix",
    "new_tensor",
    "prepared",
    "rounded",
]

_CPU = torch.device("cpu")


def _by_number(values: dict[str, Any]) -> dict[int, Any]:
    """What belongs to members of DType, by their numbers in the installed release."""
    return {int(member): values[name] for name, member in enums.DType.__members__.items() if name in values}


_ELEMENTS = _by_number(
    {
        "kByte": torch.uint8, "kInt32": torch.int32, "kFloat32": torch.float32, "kFloat16": torch.float16,
        "kBFloat16": torch.bfloat16,
    }
)  # fmt: skip
_FORMATS: dict[int, str] = _by_number({"kFloat8E4M3": "e4m3", "kFloat8E5M2": "e5m2", "kFloat4E2M1": "e2m1"})


_MODULES = {
    "float8": "float8_tensor",
    "mxfp8": "mxfp8_tensor",
    "block": "float8_blockwise_tensor",
    "nvfp4": "nvfp4_tensor",
}
_QUANTIZERS = {
    "delayed": "Float8Quantizer", "current": "Float8CurrentScalingQuantizer", "mxfp8": "MXFP8Quantizer",
    "block": "Float8BlockQuantizer", "nvfp4": "NVFP4Quantizer",
}  # fmt: skip
_TENSORS = {"float8": "Float8Tensor", "mxfp8": "MXFP8Tensor", "block": "Float8BlockwiseQTensor", "nvfp4": "NVFP4Tensor"}


class Codes:
    """FP8 codes of a matrix and their scale, as functions of Transformer Engine 1 are given them."""

    def __init__(self, codes: Any, scale_inv: Any, dtype: Any) -> None:
        self._data, self._scale_inv, self._fp8_dtype, self._transpose = codes, scale_inv, dtype, None


def family_of(kind: str) -> str:
    """Which tensors a kind of quantizer makes."""
    return "float8" if kind in ("delayed", "current") else kind


@functools.cache
def classes() -> Any:
    """The classes of quantizers, storages and tensors that the installed release has, by kind.

    What the newest release's classes have and an older one's do not know, the latter get: the value that says what it
    does.
    """
    release = installed_release()
    found = SimpleNamespace(quantizers={}, storages={}, tensors={})
    if not release.kinds:
        found.storages = {"float8": Codes}
        return found
    for kind in release.kinds:
        family = family_of(kind)
        module = importlib.import_module(f"transformer_engine.pytorch.tensor.{_MODULES[family]}")
        found.quantizers[kind] = getattr(module, _QUANTIZERS[kind])
        found.tensors[family] = getattr(module, _TENSORS[family])
        found.storages[family] = getattr(module, _TENSORS[family] + release.storage)
        for name, value in release.quantizer_defaults.get(kind, {}).items():
            setattr(found.quantizers[kind], name, value)
        for name, value in release.tensor_defaults.get(family, {}).items():
            setattr(found.storages[family], f"_{name}", value)
    return found


def kind_of_quantizer(quantizer: Any) -> str:
    """``delayed``, ``current``, ``mxfp8``, ``block`` or ``nvfp4``. TypeError for other quantizers."""
    for kind, known in classes().quantizers.items():
        if isinstance(quantizer, known):
            return str(kind)
    known_names = ", ".join(one.__name__ for one in classes().quantizers.values())
    raise TypeError(f"quantizer must be one of {known_names}, not {type(quantizer).__name__}")


def kind_of_tensor(tensor: Any) -> str:
    """``float8``, ``mxfp8``, ``block`` or ``nvfp4``; ``plain`` for tensors that are not quantized."""
    for kind, known in classes().storages.items():
        if isinstance(tensor, known):
            return str(kind)
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return "plain"
    raise TypeError(f"a tensor or a quantized tensor of Transformer Engine is wanted, not {type(tensor).__name__}")


def element_type(dtype: Any) -> torch.dtype:
    """PyTorch's type of a DType, or the type itself."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if int(dtype) not in _ELEMENTS:
        raise ValueError(f"a type of plain tensors is wanted, not {dtype}")
    return _ELEMENTS[int(dtype)]


def format_name(dtype: Any) -> Any:
    """fp8lab's name of a DType of codes."""
    if int(dtype) not in _FORMATS:
        raise ValueError(f"an FP8 or FP4 type is wanted, not {dtype}")
    return _FORMATS[int(dtype)]


def matrix(tensor: Any) -> Any:
    """A tensor as a matrix: all dimensions but the last are rows."""
    plain = tensor.detach()
    return plain.contiguous().reshape(-1, plain.shape[-1]) if plain.ndim else plain.reshape(1, 1)


def as_tensor(array: Any) -> Any:
    """An array of fp8lab as a tensor of PyTorch, without a copy."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def rounded(values: Any, dtype: torch.dtype) -> Any:
    """Float32 results rounded once, NaNs as a GPU writes them; a CPU's word of these depends on its instructions."""
    made = values.to(dtype)
    if dtype in (torch.bfloat16, torch.float16):
        made.view(torch.int16).masked_fill_(made.isnan(), 0x7FFF)
    return made


def _rounded_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    return (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def _transposed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[-1], *shape[:-1]) if shape else shape


def _bytes(shape: tuple[int, ...]) -> Any:
    return torch.empty(shape, dtype=torch.uint8)


def _scales(shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """Scales with zeros where nothing is quantized; the extension's are whatever was in memory."""
    return torch.zeros(shape, dtype=dtype)


# --- which buffers a tensor has ---------------------------------------------------------------------------------------


def _float8_buffers(quantizer: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    all_layouts = active_device().has_all_layouts
    rowwise = quantizer.rowwise_usage or all_layouts
    columnwise = quantizer.columnwise_usage and not all_layouts
    return {
        "data": _bytes(shape) if rowwise else None,
        "data_transpose": _bytes(_transposed(shape)) if columnwise else None,
        "fp8_scale_inv": torch.zeros(1, dtype=torch.float32),
    }


def _mxfp8_buffers(quantizer: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    rows, columns = _sides(shape)
    if rows % 32 or columns % 32:
        raise ValueError(f"MXFP8 takes multiples of 32 rows and columns, not {rows} and {columns} of shape {shape}")
    made: dict[str, Any] = _no_buffers()
    if quantizer.rowwise_usage:
        made["rowwise_data"] = _bytes(shape)
        made["rowwise_scale_inv"] = _scales((_rounded_up(rows, 128), _rounded_up(columns // 32, 4)), torch.uint8)
    if quantizer.columnwise_usage:
        made["columnwise_data"] = _bytes(shape)
        made["columnwise_scale_inv"] = _scales((_rounded_up(rows // 32, 4), _rounded_up(columns, 128)), torch.uint8)
    return made


def _block_buffers(quantizer: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    rows, columns = _sides(shape)
    down, across = -(-rows // 128), -(-columns // 128)
    is_square = quantizer.block_scaling_dim == 2
    made: dict[str, Any] = _no_buffers()
    if quantizer.rowwise_usage:
        sides = (down, _rounded_up(across, 4)) if is_square else (across, _rounded_up(rows, 4))
        made["rowwise_data"], made["rowwise_scale_inv"] = _bytes(shape), _scales(sides, torch.float32)
    if quantizer.columnwise_usage:
        sides = (across, _rounded_up(down, 4)) if is_square else (down, _rounded_up(columns, 4))
        made["columnwise_data"] = _bytes(_transposed(shape))
        made["columnwise_scale_inv"] = _scales(sides, torch.float32)
    return made


def _nvfp4_buffers(quantizer: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    rows, columns = _sides(shape)
    if rows % 16 or columns % 16:
        raise ValueError(f"NVFP4 takes multiples of 16 rows and columns, not {rows} and {columns} of shape {shape}")
    each_row = quantizer.row_scaled_nvfp4
    if each_row and not quantizer.rowwise_usage:
        raise ValueError("NVFP4 with scales of rows has rowwise data: rowwise_usage must be True")
    made: dict[str, Any] = {**_no_buffers(), "amax_rowwise": None, "amax_columnwise": None}
    if quantizer.rowwise_usage:
        made["rowwise_data"] = _bytes((*shape[:-1], columns // 2))
        made["rowwise_scale_inv"] = _scales((_rounded_up(rows, 128), _rounded_up(columns // 16, 4)), torch.uint8)
        made["amax_rowwise"] = torch.zeros(rows if each_row else 1, dtype=torch.float32)
    if quantizer.columnwise_usage:
        made["columnwise_data"] = _bytes((columns, rows // 2))
        made["columnwise_scale_inv"] = _scales((_rounded_up(columns, 128), _rounded_up(rows // 16, 4)), torch.uint8)
        made["amax_columnwise"] = torch.zeros(columns if each_row else 1, dtype=torch.float32)
    return made


def _no_buffers() -> dict[str, Any]:
    names = ("rowwise_data", "rowwise_scale_inv", "columnwise_data", "columnwise_scale_inv")
    return dict.fromkeys(names)


_BUFFERS = {
    "delayed": _float8_buffers,
    "current": _float8_buffers,
    "mxfp8": _mxfp8_buffers,
    "block": _block_buffers,
    "nvfp4": _nvfp4_buffers,
}


def _facts(kind: str, quantizer: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """What a tensor of that quantizer says of itself, as far as the release knows it."""
    unknown = installed_release().tensor_defaults.get(family_of(kind), {})
    return {name: value for name, value in _all_facts(kind, quantizer, shape).items() if name not in unknown}


def fuses_hadamard(rows_multiple: int, rows: int, columns: int) -> bool:
    """Whether the transform and the cast of such a tensor are one kernel on the device (pytorch/csrc/quantizer.cpp)."""
    return 100 <= active_device().arch <= 110 and rows % rows_multiple == 0 and columns % 128 == 0


def _writes_swizzled_scales(quantizer: Any, shape: tuple[int, ...]) -> bool:
    """Whether the cast by NVFP4 writes its scales in the layout of the tensor cores: the kernel that turns the tensor
    as well does, and that of square tiles, of shapes that fit (pytorch/csrc/quantizer.cpp)."""
    if not quantizer.optimize_for_gemm:
        return False
    if quantizer.with_rht:
        return fuses_hadamard(64, *_sides(shape))
    is_plain = not quantizer.row_scaled_nvfp4 and not quantizer.nvfp4_use_4over6
    return bool(quantizer.with_2d_quantization) and is_plain and fuses_hadamard(128, *_sides(shape))


def _all_facts(kind: str, quantizer: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    if kind in ("delayed", "current"):
        return {"fp8_dtype": quantizer.dtype}
    if kind == "mxfp8":
        return {"fp8_dtype": quantizer.dtype, "with_gemm_swizzled_scales": quantizer.optimize_for_gemm}
    if kind == "block":
        facts = {"fp8_dtype": quantizer.dtype, "is_2D_scaled": quantizer.block_scaling_dim == 2}
        if installed_release().blocks_have_formats:
            if quantizer.all_gather_usage:
                refuse("a Float8BlockQuantizer with all_gather_usage", "its compact layout is not modelled; use 2.20.2")
            facts["data_format"] = enums.Float8BlockScaleTensorFormat.GEMM_READY
        return facts
    return {
        "fp4_dtype": quantizer.dtype,
        "with_gemm_swizzled_scales": _writes_swizzled_scales(quantizer, shape),
        "row_scaled_nvfp4": quantizer.row_scaled_nvfp4,
        "nvfp4_use_4over6": quantizer.nvfp4_use_4over6,
        "nvfp4_e4m3_max": quantizer.nvfp4_e4m3_max,
    }


def new_tensor(quantizer: Any, shape: Any, dtype: torch.dtype) -> Any:
    """A quantized tensor of that shape with buffers and no values."""
    shape = tuple(int(size) for size in shape)
    kind = kind_of_quantizer(quantizer)
    family = family_of(kind)
    fields = {**_BUFFERS[kind](quantizer, shape), **_facts(kind, quantizer, shape), "quantizer": quantizer}
    if quantizer.internal:
        return _made(classes().storages[family], fields, fake_dtype=dtype)
    return _made(classes().tensors[family], fields, shape=list(shape), dtype=dtype, device=_CPU)


def _made(kind: Any, fields: dict[str, Any], **given: Any) -> Any:
    known = {name: value for name, value in given.items() if name not in installed_release().unknown_fields}
    return kind(**known, **fields)


# --- tensors that are there already -----------------------------------------------------------------------------------


def as_the_tensor_has(quantizer: Any, tensor: Any) -> Any:
    """The quantizer, with the usages of a tensor's buffers where the release goes by these."""
    if not installed_release().writes_what_a_tensor_has:
        return quantizer
    own = copy.copy(quantizer)
    if family_of(kind_of_quantizer(quantizer)) == "float8":
        own.rowwise_usage = tensor._data is not None
        own.columnwise_usage = tensor._transpose is not None and not tensor._transpose_invalid
    else:
        own.rowwise_usage = tensor._rowwise_data is not None
        own.columnwise_usage = tensor._columnwise_data is not None
    return own


def prepared(quantizer: Any, tensor: Any) -> Any:
    """A quantized tensor with the buffers that the quantizer's usages want, and without those that they do not."""
    kind = kind_of_quantizer(quantizer)
    family = family_of(kind)
    if not isinstance(tensor, classes().storages[family]):
        wanted = classes().tensors[family].__name__
        raise TypeError(f"{type(quantizer).__name__} writes to a {wanted}, not to a {type(tensor).__name__}")
    shape = logical_shape(tensor)
    if family == "float8":
        _prepare_float8(quantizer, tensor, shape)
        return tensor
    source = quantizer
    if kind == "block" and tensor._is_2D_scaled != (quantizer.block_scaling_dim == 2):
        raise ValueError(f"the quantizer's block_scaling_dim is {quantizer.block_scaling_dim}, and the tensor's is not")
    for name, buffer in _BUFFERS[kind](source, shape).items():
        present = getattr(tensor, f"_{name}")
        if buffer is None or present is None or present.numel() != buffer.numel():
            setattr(tensor, f"_{name}", buffer)
    for name, value in _facts(kind, quantizer, shape).items():
        if name != "is_2D_scaled":
            setattr(tensor, f"_{name}", value)
    return tensor


def _prepare_float8(quantizer: Any, tensor: Any, shape: tuple[int, ...]) -> None:
    made = _float8_buffers(quantizer, shape)
    for own, name in (("_data", "data"), ("_transpose", "data_transpose")):
        if made[name] is None or getattr(tensor, own) is None:
            setattr(tensor, own, made[name])
    tensor._transpose_invalid = made["data_transpose"] is None
    tensor._fp8_dtype = quantizer.dtype


def logical_shape(tensor: Any) -> tuple[int, ...]:
    """The shape of the tensor that is quantized."""
    kind = kind_of_tensor(tensor)
    if kind == "plain":
        return tuple(tensor.shape)
    if kind == "float8":
        rowwise, columnwise = tensor._data, tensor._transpose
        columnwise_first = True
    else:
        rowwise, columnwise = tensor._rowwise_data, tensor._columnwise_data
        columnwise_first = kind != "mxfp8"
    if rowwise is None and columnwise is None:
        raise ValueError(f"a {type(tensor).__name__} has no data: it was cleared, or its usages were switched off")
    packed = 2 if kind == "nvfp4" else 1
    if rowwise is not None:
        return (*rowwise.shape[:-1], rowwise.shape[-1] * packed) if rowwise.ndim else ()
    if not columnwise_first:
        return tuple(columnwise.shape)
    if columnwise.ndim == 0:
        return ()
    first, *rest = columnwise.shape
    return (*rest[:-1], rest[-1] * packed, first) if rest else (first,)
