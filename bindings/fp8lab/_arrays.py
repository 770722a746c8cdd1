# SPDX-License-Identifier: Apache-2.0
"""Turns what users pass (NumPy, ml_dtypes, torch) into contiguous NumPy arrays, or says which argument is wrong."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from fp8lab import _core
from fp8lab._core import Format, MmaModel, Profile

#: FP8 element types of ml_dtypes and torch, and the format each carries.
_CODE_DTYPES = {
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float8_e8m0fnu": "e8m0",
    "float8_e3m4": "e3m4",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
    "float6_e2m3fn": "e2m3",
    "float6_e3m2fn": "e3m2",
    "float4_e2m1fn": "e2m1",
}
_SOURCES = ("float32", "float64", "float16", "bfloat16")
_KERNEL_SOURCES = ("float32", "float16", "bfloat16")
#: The names of the element types that most calls have. NumPy takes as long to tell a name as fp8lab takes to encode a
#: thousand elements.
_DTYPE_NAMES = {np.dtype(name): name for name in ("float32", "float64", "float16", "uint8", "uint16", "uint32")}

_MOST_ENTRIES = 4096  # the longest list of names or numbers that is taken
_PIECE = 2**22  # how many elements NumPy copies at a time

_FORMATS = {known.name: known for known in _core.formats()}
_PROFILES = {known.name: known for known in _core.profiles()}
_BYTE, _WORD, _FLOAT32 = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.float32)
#: The element types of codes, by the names of formats: to ask a format for its bits takes longer.
_WORDS = {name: _BYTE if known.bits <= 8 else _WORD for name, known in _FORMATS.items()}

Array = np.ndarray[Any, np.dtype[Any]]
_Entry = TypeVar("_Entry")
_Found = TypeVar("_Found")

#: The largest number of threads; C++ has the same limit.
MOST_THREADS = 1024
#: From how many elements on a call takes all cores where ``threads`` is left out; it takes 10 to 100 us on one.
_MANY = 2**14


def _from_torch(x: Any, argument: str) -> tuple[Array, str]:
    """A torch tensor as (array, dtype name); 16-bit and 8-bit floats that NumPy lacks come as words."""
    torch: Any = sys.modules["torch"]
    name = str(x.dtype).removeprefix("torch.")
    try:
        x = x.detach().cpu()
        if name == "bfloat16":
            return x.view(torch.int16).numpy().view(np.uint16), name
        if name in _CODE_DTYPES:
            return x.view(torch.uint8).numpy(), name
        if name == "float4_e2m1fn_x2":  # two codes in a byte, the first in the lower half
            return x.view(torch.uint8).numpy(), "uint8"
        return x.numpy(), name
    except (RuntimeError, TypeError, NotImplementedError) as error:
        kind = f"{name} of layout {x.layout} on device {x.device}"
        raise TypeError(f"{argument} must be a dense torch tensor with values, not {kind}") from error


def holds_pairs(x: Any) -> bool:
    """Whether the element type of x says that each byte has two codes of E2M1."""
    return is_torch_tensor(x) and str(x.dtype) == "torch.float4_e2m1fn_x2"


def is_torch_tensor(x: Any) -> bool:
    """Whether x is a tensor of torch, which is not imported for that."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and issubclass(type(x), torch.Tensor)


def as_array(x: Any, argument: str) -> tuple[Array, str]:
    """``x`` as an array and the name of its element type; types that NumPy lacks come as unsigned words."""
    if type(x) is np.ndarray and x.dtype in _DTYPE_NAMES:
        return x, _DTYPE_NAMES[x.dtype]
    if is_torch_tensor(x):
        return _from_torch(x, argument)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{argument} must not be a masked array: fill or compress it first")
    try:
        if by_dlpack_alone(x):
            return _from_dlpack(x)
        array = np.asarray(x)
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:  # raised by NumPy, or by x itself when it is asked
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{argument} must be an array, or nested lists of equal lengths, not {kind_of(x)}") from error
    name = array.dtype.name if array.dtype.isnative else array.dtype.str
    if name == "bfloat16":
        return array.view(np.uint16), name
    if name in _CODE_DTYPES:
        return array.view(np.uint8), name
    return array, short(name)


def dlpack_capsule(x: Any, **options: Any) -> Any:
    """What ``x.__dlpack__()`` gives: of DLPack 1 where its library knows that, else of before."""
    try:
        return x.__dlpack__(max_version=(1, 1), **options)
    except TypeError:  # it does not know the argument
        return x.__dlpack__(**options)


def by_dlpack_alone(x: Any) -> bool:
    """Whether x lies on the host and tells its elements by DLPack alone."""
    kind = type(x)
    if hasattr(kind, "__array__") or not hasattr(kind, "__dlpack__") or not hasattr(kind, "__dlpack_device__"):
        return False
    return int(x.__dlpack_device__()[0]) in (1, 3)  # kDLCPU and kDLCUDAHost


def _from_dlpack(x: Any) -> tuple[Array, str]:
    """A view of an array, and the name of its element type; two codes of E2M1 in a byte as torch's are."""
    capsule = dlpack_capsule(x)
    name = _core.dlpack_facts(capsule)[3]
    if name == "float4_e2m1fn_x2":
        return _core.dlpack_view(capsule, _BYTE), "uint8"
    words = _WORD if name == "bfloat16" else _BYTE if name in _CODE_DTYPES else np.dtype(name)
    return _core.dlpack_view(capsule, words), name


def fill(out: Array, array: Array) -> None:
    """``out[...] = array``, in pieces of rows, as they lie in memory, between which Ctrl-C comes through."""
    if out.size <= _PIECE:
        out[...] = array
        return
    axis = next(i for i, length in enumerate(out.shape) if length > 1)
    before, middle = (slice(None),) * axis, out.shape[axis] // 2
    for part in (slice(0, middle), slice(middle, None)):
        fill(out[(*before, part)], array[(*before, part)])


def empty(shape: tuple[int, ...] | list[int], dtype: Any) -> Array:
    """A new array, not yet filled; MemoryError where none is so large. NumPy knows bfloat16 by ml_dtypes."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    try:
        return np.empty(shape, dtype)
    except ValueError:
        raise MemoryError from None


def copied(array: Array, dtype: Any = None) -> Array:
    """A C-contiguous copy, of another element type if given."""
    out = empty(array.shape, array.dtype if dtype is None else dtype)
    fill(out, array)
    return out


def contiguous(array: Array) -> Array:
    """``array`` itself where C++ can read it in place, else a C-contiguous, aligned copy."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else copied(array)


def as_floats(x: Any, argument: str, known: tuple[str, ...] = _SOURCES) -> tuple[Array, str]:
    """A C-contiguous array of floats to encode, halves and bfloat16s as words, and the name of the source type, one of
    ``known``."""
    if type(x) is np.ndarray and x.dtype is _FLOAT32:  # the most frequent, in a small call's time; all know it
        return contiguous(x), "float32"
    array, name = as_array(x, argument)
    if name not in known:
        why = ": no kernel reads that" if name in _SOURCES else ""
        raise TypeError(f"{argument} must be {', '.join(known[:-1])} or {known[-1]}, not {name}{why}")
    if name == "float16":
        array = array.view(np.uint16)
    return contiguous(array), name


def as_kernel_floats(x: Any, argument: str) -> tuple[Array, str]:
    """The same of what kernels read, which is not float64."""
    return as_floats(x, argument, _KERNEL_SOURCES)


def carried_format(dtype: str) -> Format | None:
    """The format that an element type of that name carries, if it does."""
    return _FORMATS[_CODE_DTYPES[dtype]] if dtype in _CODE_DTYPES else None


def as_codes(
    x: Any, argument: str, format: str | Format | None, format_argument: str = "format"
) -> tuple[Array, Format]:
    """A C-contiguous array of codes and its format: the one that the element type carries, else ``format``, else E4M3.

    ValueError where the element type carries another format than ``format``.
    """
    array, name = as_array(x, argument)
    if name == "uint8" and (format is None or (type(format) is str and _WORDS.get(format) is _BYTE)):
        return contiguous(array), _FORMATS[format or "e4m3"]
    carried = carried_format(name)
    wanted = None if format is None else as_format(format, format_argument)
    if carried is not None:
        if wanted is not None and wanted != carried:
            raise ValueError(
                f"{format_argument} is {wanted.name}, and {argument} is {carried.name} by its element type, {name}"
            )
        return contiguous(array), carried
    format = _FORMATS["e4m3"] if wanted is None else wanted
    needed = _DTYPE_NAMES[code_dtype(format)]
    if name != needed:
        own = "" if format.bits > 8 else f" or one of {', '.join(_CODE_DTYPES)}"
        raise TypeError(f"{argument} must be {needed} codes{own}, not {name}")
    return contiguous(array), format


def as_bytes(x: Any, argument: str) -> tuple[Array, Format | None]:
    """A C-contiguous array of codes of one byte, of whatever format, and the format that its element type carries, if
    any."""
    array, name = as_array(x, argument)
    carried = carried_format(name)
    if carried is None and name not in ("uint8", "int8"):
        raise TypeError(f"{argument} must be uint8 codes or one of {', '.join(_CODE_DTYPES)}, not {name}")
    array = contiguous(array)
    return (array.view(np.uint8) if name == "int8" else array), carried


def as_doubles(x: Any, argument: str) -> Array:
    """A C-contiguous array of real numbers, converted to float64."""
    array, name = as_array(x, argument)
    if name == "bfloat16":
        values = empty(array.shape, np.float32)
        _core.decode(contiguous(array), values, _core.find_format("bfloat16"), 1)
        array = values
    elif array.dtype.kind not in "fiu" or array.dtype.itemsize > 8 or name in _CODE_DTYPES:
        raise TypeError(f"{argument} must hold real numbers, not {name}")
    with np.errstate(invalid="ignore"):  # a signalling NaN stays a NaN
        return contiguous(array) if array.dtype == np.float64 else copied(array, np.float64)


def as_float32(x: Any, argument: str, shape: tuple[int, ...] | None = None) -> Array:
    """A C-contiguous float32 array, of ``shape`` if given."""
    return as_floats_of(x, argument, "float32", shape)


def as_floats_of(x: Any, argument: str, dtype: str, shape: tuple[int, ...] | None = None) -> Array:
    """A C-contiguous array of the element type ``dtype``, of ``shape`` if given."""
    array, name = as_array(x, argument)
    if name != dtype:
        raise TypeError(f"{argument} must be {dtype}, not {name}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{argument} must have shape {shape}, not {array.shape}")
    return contiguous(array)


def short(text: str, most: int = 80) -> str:
    """Text of unknown origin for a message: one line of printable ASCII, and of what is long the beginning and the
    end."""
    if len(text) > 4 * most:
        text = text[: 2 * most] + text[-2 * most :]
    line = "".join(c if c.isascii() and c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    head = (most - 3) * 2 // 3
    return line if len(line) <= most else line[:head] + "..." + line[len(line) - (most - 3 - head) :]


def kind_of(value: Any) -> str:
    """What a value is, for a message: the name of its type."""
    return short(str(type(value).__name__), 40)


def number_text(value: int) -> str:
    """A whole number for a message; of very large ones only how large."""
    return str(value) if value.bit_length() <= 128 else f"a number of {value.bit_length()} bits"


def check_int(value: Any, argument: str, low: int, high: int) -> int:
    """``value`` as an int from ``low`` to ``high``: an int of Python or NumPy, or a float without a fraction, such as
    1e6."""
    if type(value) is int and low <= value <= high:
        return value
    is_float = isinstance(value, (float, np.floating))
    if is_float and float(value).is_integer():
        number = int(value)
    elif is_float:
        raise TypeError(f"{argument} must be an int, not {float(value)}")
    elif isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{argument} must be an int, not {kind_of(value)}")
    else:
        try:
            number = operator.index(value)
        except Exception:  # x is no array, or raises when it is asked
            raise TypeError(f"{argument} must be an int, not {kind_of(value)}") from None
    if not low <= number <= high:
        raise ValueError(
            f"{argument} must be from {number_text(low)} to {number_text(high)}, not {number_text(number)}"
        )
    return number


def check_bool(value: Any, argument: str) -> bool:
    """``value`` if it is True or False, also NumPy's."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{argument} must be a bool, not {kind_of(value)}")
    return bool(value)


def check_name(value: Any, argument: str, instead: str = "") -> str:
    """The name of something, a string; ``instead`` says what else the argument could be."""
    name = value.name if isinstance(value, MmaModel) else value
    if not isinstance(name, str):
        raise TypeError(f"{argument} must be a name (str){instead}, not {kind_of(value)}")
    if not name.isprintable():
        raise ValueError(f"{argument} must be a name of printable characters, not '{short(name)}'")
    return name


def check_choice(value: Any, argument: str, known: Sequence[str]) -> Any:
    """A name that is one of the known ones."""
    if type(value) is str and value in known:
        return value
    name = check_name(value, argument)
    if name not in known:
        _core.refuse_name(argument, name, known)
    return name


def check_path(value: Any, argument: str) -> bytes:
    """A path as the file system has it."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{argument} must be a path, not {kind_of(value)}")
    try:
        path = os.fsencode(value)
    except Exception as error:  # the text is no path, or its own __fspath__ raised
        raise ValueError(f"{argument} must be a path that the file system can have, not {kind_of(value)}") from error
    if b"\0" in path:
        raise ValueError(f"{argument} must be a path without NUL")
    return path


def check_list(
    values: Any, argument: str, entry: Callable[[Any, str], _Entry], single: tuple[type, ...] = ()
) -> list[_Entry]:
    """A list of checked entries; a string, one of the ``single`` types and what has no entries is a list of one."""
    if isinstance(values, (str, bytes, *single)) or not isinstance(values, Iterable):
        values = [values]
    try:
        entries = iter(values)
    except Exception as error:  # an array without dimensions cannot be iterated over
        raise TypeError(f"{argument} must be a list, not {kind_of(values)}") from error
    checked: list[_Entry] = []
    for value in entries:
        if len(checked) == _MOST_ENTRIES:
            raise ValueError(f"{argument} must have at most {_MOST_ENTRIES} entries")
        checked.append(entry(value, argument))
    return checked


def named(argument: str, find: Callable[..., _Found], *names: Any) -> _Found:
    """What ``find`` finds of names; where it finds nothing, the message begins with the argument."""
    try:
        return find(*names)
    except ValueError as error:
        told = str(error)
        raise ValueError(told if argument in told else f"{argument}: {told}") from None


def check_threads(value: Any, elements: int = _MANY) -> int:
    """The argument ``threads``; None: all cores for a call of so many elements, or one where others would begin too
    late."""
    if value is None:
        return min(len(os.sched_getaffinity(0)), MOST_THREADS) if elements >= _MANY else 1
    return check_int(value, "threads", 1, MOST_THREADS)


def as_format(value: Any, argument: str) -> Format:
    """A format by name, or one that is given as it is."""
    if isinstance(value, Format):
        return value
    if type(value) is str and value in _FORMATS:
        return _FORMATS[value]
    return named(argument, _core.find_format, check_name(value, argument, " or a Format"))


def as_profile(value: Any, argument: str) -> Profile:
    """A profile by name, or one that is given as it is."""
    if isinstance(value, Profile):
        return value
    if type(value) is str and value in _PROFILES:
        return _PROFILES[value]
    return named(argument, _core.find_profile, check_name(value, argument, " or a Profile"))


def code_dtype(format: Format, name: Any = None) -> np.dtype[Any]:
    """The element type of a format's codes; ``name`` may be what the format was found by."""
    if type(name) is str and name in _WORDS:
        return _WORDS[name]
    return _BYTE if format.bits <= 8 else _WORD


def check_real(value: Any, argument: str) -> float:
    """``value`` as a float."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{argument} must be a number, not {kind_of(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{argument} is too large for a float") from None


def check_unread(reason: str, **arguments: Any) -> None:
    """ValueError where one of the arguments, which nothing would read, is given: not None. ``reason`` says what it goes
    with."""
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(f"{' and '.join(given)} {'goes' if len(given) == 1 else 'go'} with {reason}")


def apart(array: Array, out: Array) -> Array:
    """``array`` itself where writing ``out`` changes no element before it is read: where both lie apart, or are the
    same elements; else a copy. Every function with an ``out`` passes its inputs through this. Both are C-contiguous.
    """
    if not np.may_share_memory(array, out):
        return array
    same = array.ctypes.data == out.ctypes.data and array.itemsize == out.itemsize and array.nbytes == out.nbytes
    return array if same else copied(array)


def output(out: Any, shape: tuple[int, ...], dtype: Any, argument: str = "out") -> Array:
    """``out`` if it can take the result as it is, or a new array where it is None."""
    if out is None:
        return empty(shape, dtype)
    dtype = np.dtype(dtype)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{argument} must be a NumPy array, not {kind_of(out)}")
    if out.dtype != dtype:
        raise TypeError(
            f"{argument} must be {dtype.name}, not {short(out.dtype.name if out.dtype.isnative else out.dtype.str)}"
        )
    if out.shape != shape:
        raise ValueError(f"{argument} must have shape {shape}, not {out.shape}")
    if not (out.flags.c_contiguous and out.flags.aligned and out.flags.writeable):
        raise ValueError(f"{argument} must be C-contiguous, aligned and writable")
    return out
