# SPDX-License-Identifier: Apache-2.0
"""Writes and reads .safetensors and GGUF files, by the formats' descriptions alone."""

import json
import pathlib
import struct

import numpy as np
from numpy.typing import NDArray

_TYPES = {"F32": np.float32, "BF16": np.uint16, "F16": np.float16, "I32": np.int32}


def write_safetensors(
    path: pathlib.Path, tensors: dict[str, tuple[str, NDArray]], metadata: dict | None = None
) -> None:
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, array) in tensors.items():
        raw = np.asarray(array).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(np.shape(array)),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path: pathlib.Path) -> tuple[dict[str, tuple[str, NDArray]], dict]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, about in header.items():
        begin, end = (8 + length + at for at in about["data_offsets"])
        raw = np.frombuffer(content[begin:end], _TYPES.get(about["dtype"], np.uint8))
        tensors[name] = about["dtype"], raw.reshape(about["shape"])
    return tensors, metadata


def write_gguf(path: pathlib.Path, tensors: dict[str, tuple[int, list[int], NDArray]]) -> None:
    """``tensors``: type, shape, and bytes of each."""

    def text(words: str) -> bytes:
        return struct.pack("<Q", len(words)) + words.encode()

    header = (
        b"GGUF"
        + struct.pack("<IQQ", 3, len(tensors), 1)
        + text("general.architecture")
        + struct.pack("<I", 8)
        + text("qwen3")
    )
    data = b""
    for name, (kind, shape, array) in tensors.items():
        header += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        header += struct.pack("<IQ", kind, len(data))
        raw = array.tobytes()
        data += raw + bytes(-len(raw) % 32)
    path.write_bytes(header + bytes(-len(header) % 32) + data)
