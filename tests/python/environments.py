# SPDX-License-Identifier: Apache-2.0
"""Floating-point environments to call fp8lab in, and every bit of what a call gives, as bytes."""

import ctypes
import ctypes.util
import dataclasses
import inspect
import json
import pathlib
import platform
import re
import struct

import numpy as np
from fp8lab import experiments

# 1. Hostile environments.

UPWARD, DOWNWARD, TOWARD_ZERO, FLUSH = "upward", "downward", "toward_zero", "flush"
#: What <fenv.h> and the processor call them, and where glibc's fenv_t has the register with the bit that flushes.
MACHINES = {
    "x86_64": ({UPWARD: 0x800, DOWNWARD: 0x400, TOWARD_ZERO: 0xC00}, 28, 0x8040),  # MXCSR: FTZ and DAZ
    "aarch64": ({UPWARD: 0x400000, DOWNWARD: 0x800000, TOWARD_ZERO: 0xC00000}, 0, 1 << 24),  # FPCR: FZ
}
LIBM = ctypes.CDLL(ctypes.util.find_library("m"))


def fenv() -> ctypes.Array:
    environment = (ctypes.c_uint8 * 64)()
    LIBM.fegetenv(ctypes.byref(environment))
    return environment


def control() -> tuple:
    """The rounding mode, and the register that flushes, without its flags, which Python's own arithmetic raises."""
    modes, at, flush = MACHINES[platform.machine()]
    word = struct.unpack_from("<I", bytes(fenv()), at)[0]
    return LIBM.fegetround(), word & (flush | 0x7F80 | sum(modes.values()))


class Floats:
    """The calling thread's floating-point environment, with these settings, for as long as a block."""

    def __init__(self, *settings: str) -> None:
        self.settings = settings

    def __enter__(self) -> None:
        modes, at, flush = MACHINES[platform.machine()]
        self.before = fenv()
        if FLUSH in self.settings:
            changed = fenv()
            struct.pack_into("<I", changed, at, struct.unpack_from("<I", bytes(changed), at)[0] | flush)
            assert LIBM.fesetenv(ctypes.byref(changed)) == 0
        for setting in set(self.settings) & set(modes):
            assert LIBM.fesetround(modes[setting]) == 0
        for setting in set(self.settings) & set(modes):
            assert LIBM.fegetround() == modes[setting]

    def __exit__(self, *_: object) -> None:
        LIBM.fesetenv(ctypes.byref(self.before))


# 2. What a result is, as bytes.

#: Keys of what tells when and where a result was made.
TIMES = ("provenance", "seconds")


def timeless(document: str) -> str:
    """The JSON of a document without what tells when and where it was made: as text, for json.loads() would round."""
    rest = re.sub(r'"provenance": \{[^}]*\}', "", document)
    return re.sub(r'("name": "seconds",.*?"values": )\[[^\]]*\]', r"\1[]", rest, flags=re.DOTALL)


def written(value: object) -> bytes:
    """Every bit of a result, but for addresses and times, by integers alone: this too runs in the hostile
    environment."""
    if isinstance(value, (str, int, type(None))):
        return re.sub(r" at 0x[0-9a-f]+|\b[0-9]+\.[0-9] s\b", "", str(value)).encode()
    if isinstance(value, experiments.Document):
        has_times = '"name": "seconds"' in value.to_json()
        return timeless(value.to_json()).encode() + (b"" if has_times else str(value).encode())
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype} {value.shape} ".encode() + value.tobytes()
    if isinstance(value, (bytes, BaseException)):
        return repr(value).encode()
    if isinstance(value, dict):
        body = b", ".join(written(key) + b": " + written(item) for key, item in value.items() if key not in TIMES)
        return b"{" + body + b"}" + (written(str(value)) if type(value) is not dict else b"")
    if isinstance(value, (list, tuple)):
        own = type(value) not in (list, tuple)
        return b"[" + b", ".join(map(written, value)) + b"]" + (written(str(value)) if own else b"")
    if type(value).__module__.partition(".")[0] == "fp8lab":
        names = [name for name, item in inspect.getmembers_static(type(value)) if isinstance(item, property)]
        if dataclasses.is_dataclass(value):
            names += [field.name for field in dataclasses.fields(value)]
        body = b", ".join(name.encode() + b": " + written(getattr(value, name)) for name in names)
        return type(value).__name__.encode() + b"(" + body + b") " + written([str(value), repr(value)])
    if callable(value):
        return b"a function"
    raise AssertionError(f"no bytes of {value!r}")


def contents(directory: pathlib.Path) -> dict[str, bytes]:
    """The files of a result."""

    def content(path: pathlib.Path) -> bytes:
        text = path.read_text()
        if path.suffix == ".json":
            return timeless(text).encode() if '"sections"' in text else written(json.loads(text))
        has_times = text.partition("\n")[0].endswith(",seconds")
        return (re.sub(r",[^,\n]*$", "", text, flags=re.MULTILINE) if has_times else text).encode()

    return {path.name: content(path) for path in sorted(directory.iterdir())}
