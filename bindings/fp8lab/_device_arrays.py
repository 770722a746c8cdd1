# SPDX-License-Identifier: Apache-2.0
"""Where the elements of an array lie: in the host's memory, or on a CUDA device, as torch, CuPy and others tell it."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import as_array, by_dlpack_alone, contiguous, dlpack_capsule, empty, is_torch_tensor, kind_of, short

#: Element types by what __cuda_array_interface__ calls them; bfloat16 as torch and ml_dtypes do.
_TYPESTRS = {"<f4": "float32", "<f2": "float16", "<V2": "bfloat16", "|u1": "uint8", "<u4": "uint32", "<f8": "float64"}
_SIZES = {
    "float64": 8,
    "float32": 4,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
    "uint8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


@dataclass(frozen=True)
class Buffer:
    """The elements of an array, where they lie."""

    argument: str
    owner: Any
    """What keeps the memory."""
    address: int
    shape: tuple[int, ...]
    dtype: str
    """The name of the element type, such as ``bfloat16``; 8-bit floats keep theirs."""
    on_device: bool
    stream: int | None
    """The handle of the stream whose work the elements wait for; None: the array tells none."""
    library: str
    """The module that makes arrays of this kind."""
    device: Any = None
    """What that library calls the device."""

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _SIZES[self.dtype]

    @property
    def place(self) -> tuple[str, int, int, int]:
        """What C++ takes: the argument's name, its address, its bytes and their alignment."""
        return self.argument, self.address, self.size * self.itemsize, self.itemsize


def _check(buffer: Buffer, is_contiguous: bool) -> Buffer:
    if buffer.dtype not in _SIZES:
        raise TypeError(f"{buffer.argument} must be an array of {', '.join(_SIZES)}, not {short(buffer.dtype)}")
    if not is_contiguous:
        raise ValueError(f"{buffer.argument} must be C-contiguous: it lies on a device, where fp8lab makes no copies")
    return buffer


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    """Whether elements of these strides, counted in elements, lie one after the other."""
    if strides is None or 0 in shape:
        return True
    step = 1
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length > 1 and stride != step:
            return False
        step *= length
    return True


def _is_torch_cuda(x: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and issubclass(type(x), torch.Tensor) and bool(x.is_cuda)


def _of_torch(x: Any, argument: str) -> Buffer:
    torch: Any = sys.modules["torch"]
    if x.layout != torch.strided:
        raise TypeError(f"{argument} must be a dense torch tensor, not one of layout {x.layout}")
    buffer = Buffer(
        argument, x, x.data_ptr(), tuple(x.shape), str(x.dtype).removeprefix("torch."), True,
        int(torch.cuda.current_stream(x.device).cuda_stream), "torch", x.device,
    )  # fmt: skip
    return _check(buffer, x.is_contiguous())


def _of_interface(x: Any, argument: str, writes: bool) -> Buffer:
    """By the CUDA Array Interface, version 2 or 3 (Numba's documentation)."""
    told = x.__cuda_array_interface__
    try:
        address, read_only = told["data"]
        shape, typestr, strides = tuple(told["shape"]), str(told["typestr"]), told.get("strides")
        stream = told.get("stream")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TypeError(
            f"{argument} has a __cuda_array_interface__ without data, shape or typestr: {short(str(error))}"
        ) from None
    if told.get("mask") is not None:
        raise TypeError(f"{argument} must not be masked")
    if stream == 0:
        raise ValueError(f"{argument} tells stream 0, which the CUDA Array Interface does not allow")
    if writes and read_only:
        raise ValueError(f"{argument} must be writable")
    dtype = _TYPESTRS.get(typestr, typestr)
    size = _SIZES.get(dtype, 1)
    steps = None if strides is None else tuple(stride // size if stride % size == 0 else 0 for stride in strides)
    library = type(x).__module__.partition(".")[0]
    buffer = Buffer(
        argument, x, int(address or 0), shape, dtype, True, None if stream is None else int(stream), library
    )
    return _check(buffer, _is_contiguous(shape, steps))


def _of_dlpack(x: Any, argument: str) -> Buffer:
    """By DLPack: the producer makes the default stream, on which the kernel runs, wait for the elements."""
    capsule = dlpack_capsule(x, stream=1)
    address, shape, strides, dtype, _ = _core.dlpack_facts(capsule)
    library = type(x).__module__.partition(".")[0]
    buffer = Buffer(argument, (x, capsule), address, tuple(shape), dtype, True, 1, library)
    return _check(buffer, _is_contiguous(tuple(shape), None if strides is None else tuple(strides)))


def _on_dlpack_device(x: Any) -> bool:
    """Whether x says by DLPack that it lies on a CUDA device: kDLCUDA or kDLCUDAManaged. torch says of its tensors
    which do."""
    if is_torch_tensor(x) or not hasattr(type(x), "__dlpack__") or not hasattr(type(x), "__dlpack_device__"):
        return False
    return int(x.__dlpack_device__()[0]) in (2, 13)


def device_buffer(x: Any, argument: str, writes: bool = False) -> Buffer | None:
    """The elements of an array on a CUDA device; None where it lies on the host, or is none.

    TypeError and ValueError where a kernel cannot use them as they are.
    """
    if isinstance(x, (np.ndarray, list, tuple, int, float)) or x is None:
        return None
    if _is_torch_cuda(x):
        return _of_torch(x, argument)
    try:
        if hasattr(x, "__cuda_array_interface__"):
            return _of_interface(x, argument, writes)
        if _on_dlpack_device(x):
            if writes:
                raise ValueError(
                    f"{argument} must be a torch tensor or have a __cuda_array_interface__: "
                    "by DLPack arrays are only read"
                )
            return _of_dlpack(x, argument)
    except (TypeError, ValueError):
        raise
    except Exception as error:  # raised by x itself when it is asked
        raise TypeError(f"{argument} does not tell where it lies: {short(str(error))}") from error
    return None


def input_buffer(x: Any, argument: str) -> Buffer:
    """The elements of an array that a kernel reads, wherever it lies; on the host a C-contiguous one is not copied."""
    found = device_buffer(x, argument)
    if found is not None:
        return found
    array, name = as_array(x, argument)
    array = contiguous(array)
    return _check(Buffer(argument, array, array.ctypes.data, array.shape, name, False, None, "numpy"), True)


def _allocate(like: Buffer, shape: tuple[int, ...], dtype: str, argument: str) -> Any:
    """An array by the library of ``like``, from its own allocator."""
    if not like.on_device:
        return empty(shape, dtype)
    module: Any = sys.modules.get(like.library) or importlib.import_module(like.library)
    if like.library == "torch":
        return module.empty(shape, dtype=getattr(module, dtype), device=like.device)
    if like.library == "cupy":
        return module.empty(shape, dtype=dtype)
    raise TypeError(f"{argument} must be given: fp8lab does not know how {short(like.library, 40)} makes arrays")


def output_buffer(out: Any, like: Buffer, shape: tuple[int, ...], dtypes: tuple[str, ...], argument: str) -> Buffer:
    """``out`` if a kernel can write its result there, or a new array of the library of ``like`` where it is None."""
    if out is None:
        out = _allocate(like, shape, dtypes[0], argument)
    found = device_buffer(out, argument, writes=True)
    if found is None:
        if like.on_device:
            raise TypeError(
                f"{argument} must lie on the device as {like.argument} does, not be {kind_of(out)} on the host"
            )
        if not isinstance(out, np.ndarray):
            raise TypeError(f"{argument} must be a NumPy array, not {kind_of(out)}")
        if not (out.flags.c_contiguous and out.flags.aligned and out.flags.writeable):
            raise ValueError(f"{argument} must be C-contiguous, aligned and writable")
        name = out.dtype.name if out.dtype.isnative else out.dtype.str
        found = Buffer(argument, out, out.ctypes.data, out.shape, name, False, None, "numpy")
    elif not like.on_device:
        raise TypeError(f"{argument} must lie on the host as {like.argument} does, not on a device")
    if found.dtype not in dtypes:
        raise TypeError(f"{argument} must be {' or '.join(dtypes)}, not {short(found.dtype)}")
    if found.shape != shape:
        raise ValueError(f"{argument} must have shape {shape}, not {found.shape}")
    return found


def stream_of(stream: Any, buffers: list[Buffer]) -> int:
    """The handle of the stream that a kernel runs on: the one that is given, else that of the first array that tells
    one."""
    if stream is None:
        told = [buffer.stream for buffer in buffers if buffer.stream is not None]
        return told[0] if told else 0
    for name in ("cuda_stream", "ptr"):  # the names that torch and CuPy have for it
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    if isinstance(stream, int) and not isinstance(stream, bool) and 0 <= stream < 2**64:
        return stream
    raise TypeError(f"stream must be a handle (int), or a stream of torch or CuPy, not {kind_of(stream)}")


def overlaps(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers share memory."""
    return (
        a.address < b.address + b.size * b.itemsize
        and b.address < a.address + a.size * a.itemsize
        and a.size > 0
        and b.size > 0
    )


def on_host(x: Any) -> Any:
    """``x``, or a copy in the host's memory where it lies on a device: of CuPy, JAX and whatever has DLPack. (What
    reads torch tensors copies them.)
    """
    if isinstance(x, (np.ndarray, np.generic, list, tuple, int, float)) or x is None or hasattr(x, "detach"):
        return x
    try:
        if callable(getattr(x, "get", None)) and hasattr(x, "__cuda_array_interface__"):  # an array of CuPy
            return x.get()
        if hasattr(type(x), "__array__") or not hasattr(type(x), "__dlpack__"):  # JAX's arrays come by __array__
            if not hasattr(type(x), "__array__") and hasattr(x, "__cuda_array_interface__"):
                raise TypeError("it lies on a device, and has neither get() nor __dlpack__")
            return x
        if by_dlpack_alone(x):
            return x
        torch: Any = sys.modules.get("torch")
        return np.from_dlpack(x) if torch is None else torch.from_dlpack(x)
    except Exception as error:  # raised by x itself when it is asked
        raise TypeError(f"{kind_of(x)} cannot be copied to the host: {short(str(error))}") from error


def to_numpy(x: Any) -> Any:
    """A copy of an array in the host's memory, or the array itself where it is one of NumPy."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "detach"):  # a tensor of torch
        array, _ = as_array(x, "x")
        return array
    return x.get()  # an array of CuPy
