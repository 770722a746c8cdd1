# SPDX-License-Identifier: Apache-2.0
"""A model of bfloat16 weights with planted outliers, written as shards: as large as is asked for, and alike by its seed."""

import json
import pathlib
import struct

import ml_dtypes
import numpy as np

BF16 = ml_dtypes.bfloat16


def normal_values(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return (random.standard_normal((rows, columns), dtype=np.float32) * 0.02).astype(BF16)


def planted_weights(hidden: int, layers: int):
    """(name, weight) of each layer's q, k, up and down. In every layer, three input channels of q are 64 times as large,
    and row 17 of k is 20 times and row 40 zero. The down of layer 0 has six super-weights."""
    random = np.random.default_rng(41)
    for layer in range(layers):
        begin = f"model.layers.{layer}."
        q, k = normal_values(random, hidden, hidden), normal_values(random, hidden // 4, hidden)
        q[:, [5, 64, 131]] = (q[:, [5, 64, 131]].astype(np.float32) * 64).astype(BF16)
        k[17] = (k[17].astype(np.float32) * 20).astype(BF16)
        k[40] = 0
        down = normal_values(random, hidden, 4 * hidden)
        if layer == 0:
            down[[3, 3, 77, 130, 200, 255], [7, 100, 7, 255, 300, 511]] = [900, -700, 1100, -800, 1000, -600]
        yield begin + "self_attn.q_proj.weight", q
        yield begin + "self_attn.k_proj.weight", k
        yield begin + "mlp.up_proj.weight", normal_values(random, 4 * hidden, hidden)
        yield begin + "mlp.down_proj.weight", down


def write_shard(path: pathlib.Path, shapes: dict[str, tuple[int, int]], tensors=()) -> None:
    """A .safetensors file of bfloat16 tensors; those that are not given are a hole, which reads as zeros."""
    header, end = {}, 0
    for name, (rows, columns) in shapes.items():
        header[name] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [end, end + 2 * rows * columns]}
        end += 2 * rows * columns
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            file.write(tensor.tobytes())
        file.truncate(8 + len(text) + end)


def write_index(folder: pathlib.Path, files: dict[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def write_model(folder: pathlib.Path, hidden: int, layers: int, shards: int) -> int:
    """Writes a shard for some layers each, and the index; returns the bytes of all weights."""
    files, size = {}, 0
    weights = planted_weights(hidden, layers)
    for shard in range(shards):
        own = [next(weights) for _ in range(4 * layers // shards)]
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        write_shard(folder / name, {key: one.shape for key, one in own}, [one for _, one in own])
        files.update({key: name for key, _ in own})
        size += sum(one.nbytes for _, one in own)
    write_index(folder, files)
    return size


def write_sparse(folder: pathlib.Path, gigabytes: int) -> int:
    """Shards of zeros that take no room on the disk, 1 GB each; returns their bytes."""
    files, rows, columns = {}, 8192, 16384
    for shard in range(gigabytes):
        name = f"model-{shard + 1:05}-of-{gigabytes:05}.safetensors"
        shapes = {f"model.layers.{shard}.{part}.weight": (rows, columns) for part in ("q_proj", "o_proj", "up", "down")}
        write_shard(folder / name, shapes)
        files.update(dict.fromkeys(shapes, name))
    write_index(folder, files)
    return gigabytes * 4 * 2 * rows * columns
