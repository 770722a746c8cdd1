# SPDX-License-Identifier: Apache-2.0
"""The small call that each experiment registers (``small`` in its record): what tests of all experiments make."""

import json
import pathlib
import tempfile

import numpy as np
from fp8lab import _experiments

REGISTERED = _experiments.registered()
_SCRATCH = tempfile.TemporaryDirectory()
#: The files that a small call may read. Other paths of it are places to write to, in the same directory.
FILES = {
    "x.npy": np.ones(4, np.float32),
    "codes.npy": np.uint8([0x38, 0x38, 0x38, 0xB8]),
    "a.npy": np.float32([0.5, -0.0, np.nan, 3]),
    "b.npy": np.float32([0.25, 0.0, 1, 3]),
    "left.npy": np.full((2, 32), 0x38, np.uint8),
    "right.npy": np.full((3, 32), 0x39, np.uint8),
    "product.npy": np.full((2, 3), 36, np.float32),
    "bias.npy": np.zeros(3, np.float32),
    "w.weight.npy": np.ones((2, 32), np.float32),
}
for _name, _array in FILES.items():
    np.save(pathlib.Path(_SCRATCH.name) / _name, _array)
#: A row of four codes, and its scale.
_HEADER = (
    b'{"w.weight":{"dtype":"F8_E4M3","shape":[1,4],"data_offsets":[0,4]},'
    b'"w.weight_scale_inv":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}}'
)
(pathlib.Path(_SCRATCH.name) / "quantized.safetensors").write_bytes(
    len(_HEADER).to_bytes(8, "little") + _HEADER + bytes([0x38, 0, 0xB8, 0x7E]) + np.float32(0.5).tobytes()
)


def path_of(name: str) -> str:
    """Where one of FILES lies, or where a file of that name may be written."""
    return str(pathlib.Path(_SCRATCH.name) / name)


def small_call(name: str) -> dict[str, object]:
    """The arguments of the small call of an experiment."""
    facts = REGISTERED[name]
    kinds = {argument["name"]: argument["kind"] for argument in facts["arguments"]}
    made = {"path": path_of, "outliers": tuple}
    return {
        argument: made.get(kinds[argument], lambda x: x)(value)
        for argument, value in json.loads(facts["small"]).items()
    }


def small_command(name: str) -> tuple[str, dict[str, list[str]]]:
    """The command of the small call of an experiment, and its options with their words."""
    facts = REGISTERED[name]
    arguments = {argument["name"]: argument for argument in facts["arguments"]}
    options = {}
    for key, value in small_call(name).items():
        argument = arguments[key]
        words = [str(one) for one in value] if isinstance(value, (list, tuple)) else [str(value)]
        if argument["kind"] == "flag":
            words = []
        elif not argument["is_of_words"]:
            words = [",".join(words)]
        options[argument["option"]] = words
    return facts["command"], options


PUBLIC = [name for name, facts in REGISTERED.items() if facts["is_public"]]
