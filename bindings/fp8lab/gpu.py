# SPDX-License-Identifier: Apache-2.0
"""The kernels: on arrays that lie on a CUDA device, in place, and the same source on the host where there is none.

An array on a device is a torch tensor, or any with ``__cuda_array_interface__`` (CuPy) or, where it is only read,
DLPack. It is neither copied nor moved: results are new arrays of the same library on the same device, or go to ``out``.
The kernel runs on the caller's stream, torch's current one or that of the interface, and the call does not wait for it.
The device must be the current one.

Every function takes, for arrays on a device,

    stream : int, or a stream of torch or CuPy, optional
        The stream to run on, a handle or an object that has one.

and for arrays on the host, where the same source runs for tests,

    order : str, optional
        In which order threads of a block run between barriers, and blocks: ``ascending``, ``descending`` or
        ``shuffled``. A kernel whose result depends on it has a race.
    seed : int, optional
        Of the shuffled order.
    threads : int, optional
        Host threads that share out what a block does between two barriers.

They raise TypeError and ValueError for arrays that a kernel cannot use, by name: of other element types or shapes, not
C-contiguous on a device (on the host these are copied), read-only, overlapping or elsewhere; and RuntimeError where an
array lies on a device and fp8lab cannot use it, with the reason that ``status()`` tells, or where CUDA fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fp8lab import _core
from fp8lab._arrays import check_bool, check_choice
from fp8lab._core import Format
from fp8lab._delayed import Delayed
from fp8lab._entry import guard as _guard
from fp8lab._gemm_kernels import gemm_arrays
from fp8lab._kernels import (
    QuantizedArrays,
    amax_array,
    cast_arrays,
    dequantize_arrays,
    quantize_arrays,
    update_scale_arrays,
)
from fp8lab._recipes import NamedRecipe, Recipe
from fp8lab._scaling import Quantized
from fp8lab.literals import (
    DirectionName,
    FormatName,
    Fp8QtypeName,
    GemmChipName,
    GemmKernelName,
    GemmScaleLayoutName,
    GpuNanName,
    OrderName,
    OutDtypeName,
    RecipeName,
)

__all__ = [
    "Device",
    "Kernel",
    "QuantizedArrays",
    "Status",
    "amax",
    "cast",
    "cast_both",
    "dequantize",
    "device_count",
    "devices",
    "gemm",
    "kernels",
    "quantize",
    "quantize_both",
    "recipes",
    "status",
    "update_scales",
]


@dataclass(frozen=True)
class Device:
    """A CUDA device."""

    index: int
    name: str
    """As NVIDIA names it."""
    capability: tuple[int, int]
    """Its compute capability: (9, 0) for Hopper."""
    processors: int
    """Streaming multiprocessors."""
    memory: int
    """Bytes in all."""


@dataclass(frozen=True)
class Status:
    """What CUDA says of this machine."""

    count: int
    """Devices that this process may use."""
    driver: str
    """The newest CUDA that the driver supports, such as ``13.0``; empty without a driver, or where fp8lab was built
    without CUDA."""
    cuda: str
    """The CUDA that fp8lab was built with; empty where without."""
    architectures: str
    """Those that the kernels were compiled for, such as ``90``."""
    why_none: str
    """Where count is 0: why, what CUDA's error is, and what to do."""


@dataclass(frozen=True)
class Kernel:
    """What one should know of a kernel before reading it."""

    name: str
    header: str
    """In ``gpu/include/fp8lab/gpu`` of the sources."""
    chips: str
    """That it is compiled for."""
    computes: str
    equals: str
    """The function of fp8lab whose bits it gives."""


def status() -> Status:
    """What CUDA says of this machine: devices, driver, the CUDA that fp8lab was built with, and why there is no
    device."""
    return Status(*_core.gpu_status())


def device_count() -> int:
    """The number of CUDA devices that this process may use; ``status().why_none`` tells why it is 0."""
    return status().count


def devices() -> list[Device]:
    """The CUDA devices that this process may use.

    Raises
    ------
    RuntimeError
        Where CUDA fails.
    """
    return [
        Device(index, name, (major, minor), processors, memory)
        for index, name, major, minor, processors, memory in _core.gpu_devices()
    ]


def kernels() -> list[Kernel]:
    """The kernels that there are, and which function of fp8lab each equals bit for bit."""
    return [Kernel(*one) for one in _core.gpu_kernels()]


def recipes() -> list[str]:
    """The names of those ``fp8lab.recipes()`` that have a kernel; records like them have one, too."""
    return _core.gpu_recipes()


def quantize(
    x: Any,
    recipe: RecipeName | NamedRecipe | Recipe,
    *,
    direction: DirectionName = "rowwise",
    layout: GemmScaleLayoutName = "compact",
    philox_seed: int | None = None,
    philox_offset: int | None = None,
    out: QuantizedArrays | None = None,
    stream: Any = None,
    order: OrderName | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> QuantizedArrays:
    """A matrix as codes and scales by the kernel of a recipe: the bits of ``fp8lab.quantize``.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (rows, columns)
    recipe : str or a recipe
        One of ``recipes()``, or a record like one of them.
    direction : str
        ``rowwise`` or ``columnwise``, as for ``fp8lab.quantize``.
    layout : str
        Of scales of one byte: ``compact``, or ``swizzled`` as ``fp8lab.swizzle_scales`` makes them.
    philox_seed, philox_offset : int, optional
        For stochastic rounding: where the Philox generator stands. Four codes share 32 bits, as PTX's ``cvt.rs`` shares
        them out; group g of 16 codes takes the four words of ``philox4x32((offset, offset >> 32, g, g >> 32), (seed,
        seed >> 32))``, each taken modulo 2**32.
    out : QuantizedArrays, optional
        Its arrays take the result.
    stream, order, seed, threads
        As the module says.

    Returns
    -------
    QuantizedArrays
        With arrays of x's library; ``to_host()`` makes a ``Quantized`` of it.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As the module says, and as ``fp8lab.quantize`` does for recipes, sizes and directions.
    """
    way = check_choice(direction, "direction", ("rowwise", "columnwise"))
    return quantize_arrays(
        x, recipe, (way,), layout, (out,), (philox_seed, philox_offset), (stream, order, seed, threads)
    )[0]


def _two(out: tuple[QuantizedArrays, QuantizedArrays] | None) -> tuple[QuantizedArrays | None, QuantizedArrays | None]:
    if out is None:
        return None, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError("out must be a tuple of two QuantizedArrays")
    return out


def quantize_both(
    x: Any,
    recipe: RecipeName | NamedRecipe | Recipe,
    *,
    layout: GemmScaleLayoutName = "compact",
    philox_seed: int | None = None,
    philox_offset: int | None = None,
    out: tuple[QuantizedArrays, QuantizedArrays] | None = None,
    stream: Any = None,
    order: OrderName | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> tuple[QuantizedArrays, QuantizedArrays]:
    """Rowwise and columnwise in one launch, x read once; see ``quantize``. Both take the random words from the first
    on."""
    rowwise, columnwise = quantize_arrays(
        x, recipe, ("rowwise", "columnwise"), layout, _two(out), (philox_seed, philox_offset),
        (stream, order, seed, threads),
    )  # fmt: skip
    return rowwise, columnwise


def cast(
    x: Any,
    format: FormatName | Format,
    *,
    scale: Any = 1.0,
    out: QuantizedArrays | None = None,
    stream: Any = None,
    order: OrderName | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> QuantizedArrays:
    """The codes of x times a given scale, its inverse, and the amax of x in the same pass, as delayed scaling casts.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (rows, columns)
    format : str or Format
        ``e4m3`` or ``e5m2``.
    scale : float, or an array of one float32 where x lies
        Multiplies x.
    out : QuantizedArrays, optional
        Its arrays take the result; its amax is raised to that of x.
    stream, order, seed, threads
        As the module says.

    Returns
    -------
    QuantizedArrays
        Of the recipe ``GivenScale``; a scale that is an array is not in that record.
    """
    return cast_arrays(x, format, scale, ("rowwise",), (out,), (stream, order, seed, threads))[0]


def cast_both(
    x: Any,
    format: FormatName | Format,
    *,
    scale: Any = 1.0,
    out: tuple[QuantizedArrays, QuantizedArrays] | None = None,
    stream: Any = None,
    order: OrderName | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> tuple[QuantizedArrays, QuantizedArrays]:
    """Rowwise and columnwise (the transpose) in one launch, x read once, each with the amax; see ``cast``."""
    rowwise, columnwise = cast_arrays(
        x, format, scale, ("rowwise", "columnwise"), _two(out), (stream, order, seed, threads)
    )
    return rowwise, columnwise


def amax(
    x: Any,
    *,
    nan: GpuNanName = "dropped",
    out: Any = None,
    stream: Any = None,
    order: OrderName | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> Any:
    """The largest magnitude of an array, as an array of one float32.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, of any shape
    nan : str
        ``dropped``: NaN does not count, as by ``fmaxf``; ``counted``: it makes the amax NaN, as by PyTorch's ``amax``.
    out : array of one float32, optional
    stream, order, seed, threads
        As the module says.
    """
    return amax_array(x, nan, out, (stream, order, seed, threads))


def dequantize(
    q: QuantizedArrays | Quantized,
    *,
    out: Any = None,
    stream: Any = None,
    order: OrderName | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> Any:
    """The values that codes and scales stand for: the bits of ``fp8lab.dequantize``.

    Parameters
    ----------
    q : QuantizedArrays or Quantized
    out : array of float32, (rows, columns), optional
    stream, order, seed, threads
        As the module says.

    Returns
    -------
    array of float32, (rows, columns)
    """
    return dequantize_arrays(q, out, (stream, order, seed, threads))


def update_scales(
    recipe: Delayed,
    amaxes: Any,
    scale: Any,
    scale_inv: Any = None,
    *,
    backward: bool = False,
    stream: Any = None,
    order: OrderName | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> None:
    """The end of a step of delayed scaling for many tensors in one launch, in place: ``AmaxHistory.update_scale`` of
    each.

    Parameters
    ----------
    recipe : Delayed
        Of version ``te_1_6``, ``te_1_7`` or ``te_current``, whose kernel is one for all tensors, with an algorithm
        that is a name.
    amaxes : array of float32, (amax_history_len, tensors)
        Row 0 is the running step's.
    scale : array of float32, (tensors,)
    scale_inv : array of float32, (tensors,), optional
        Becomes the inverse of the new scale by ``te_1_6`` and ``te_1_7``, which need it. By ``te_current`` casts write
        theirs beside the data, and it stays as it is.
    backward : bool
        The tensors are gradients, in the backward pass's format.
    stream, order, seed, threads
        As the module says.
    """
    update_scale_arrays(
        recipe, amaxes, scale, scale_inv, check_bool(backward, "backward"), (stream, order, seed, threads)
    )


def gemm(
    a: Any,
    b: Any,
    *,
    kernel: GemmKernelName,
    format_a: Fp8QtypeName | None = None,
    format_b: Fp8QtypeName | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    promote_k: int | None = None,
    bias: Any = None,
    out_dtype: OutDtypeName = "float32",
    chip: GemmChipName | None = None,
    out: Any = None,
    stream: Any = None,
    order: OrderName | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> Any:
    """a times b transposed by a GEMM kernel: the bits of ``fp8lab.gemm`` with the model of its instruction.

    Parameters
    ----------
    a, b : arrays of uint8 codes, (M, K) and (N, K), or Quantized or QuantizedArrays
        Codes may be of a float8 type, which carries its format. K is a multiple of 16, with block scales of 32; arrays
        begin at a multiple of 16 bytes. What was quantized brings its format and scales along; its codes have K along
        rows, as rowwise ones and transposed ones have, and compact block scales are swizzled first.
    kernel : str
        ``wgmma_fast`` and ``wgmma_promoted`` of Hopper, ``wgmma_scaled_1d2d`` and ``wgmma_scaled_1d1d`` with DeepGEMM's
        scaled promotion; ``mma_sync`` and ``mma_sync_float16`` of Ada and later; of Blackwell (compute capabilities
        10.0 and 12.0) ``blackwell_mxf8f6f4`` for MXFP8, ``blackwell_mxf4`` for MXFP4, ``blackwell_mxf4nvf4`` for NVFP4,
        and of 10.0 alone ``blackwell_f8f6f4`` for FP8 and ``blackwell_mxf4nvf4_ue8m0`` for FP4 with E8M0 scales of 16.
    format_a, format_b : str, optional
        Of codes: ``e4m3`` or ``e5m2``; ``e4m3`` if left out.
    scale_a, scale_b : array of float32, optional
        Of codes: one that multiplies on dequantize (for NumPy arrays also a number). Of the scaled wgmma kernels: one
        for 128 of K, (M, K / 128) and (N, K / 128), for ``1d2d`` (N / 128, K / 128), rounded up.
    promote_k : int, optional
        Of ``wgmma_promoted``: a multiple of 32; 128 if left out. CUTLASS's ``mma_promotion_interval`` is promote_k /
        32.
    bias : array of float32, (N,), optional
    out_dtype : str
        ``float32``, ``bfloat16`` or ``float16``.
    chip : str, optional
        For arrays on the host, whose instruction it is: ``ada``, ``hopper``, ``blackwell``, ``rtx_blackwell``, ...; if
        left out, ``blackwell`` for its own kernels and ``hopper`` for the others.
    out : array of out_dtype, (M, N), optional
    stream, order, seed, threads
        As the module says.

    Returns
    -------
    array of out_dtype, (M, N)
    """
    return gemm_arrays(
        a, b, kernel, (format_a, format_b), (scale_a, scale_b), promote_k, bias, out_dtype, chip, out,
        (stream, order, seed, threads),
    )  # fmt: skip


_guard(__name__, __all__)
