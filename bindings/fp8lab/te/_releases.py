# SPDX-License-Identifier: Apache-2.0
"""The releases of Transformer Engine whose extension fp8lab.te is, and in what the older ones differ: a table."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
from importlib import resources
from typing import Any

__all__ = ["NEWEST", "Release", "find_release", "installed_release", "releases"]

NEWEST = "2.20.2"


_DTYPE_NUMBERS = {
    "kByte": 0, "kInt32": 2, "kFloat32": 4, "kFloat16": 5, "kBFloat16": 6, "kFloat8E4M3": 7, "kFloat8E5M2": 8,
    "kFloat4E2M1": 10,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Release:
    """What a release's Python expects of its extension."""

    name: str
    kinds: tuple[str, ...] = ("delayed", "current", "mxfp8", "block", "nvfp4")
    """The kinds of quantizers."""
    storage: str = "Storage"
    """How the classes of internal tensors end: Float8TensorStorage, Float8TensorBase."""
    unknown_fields: tuple[str, ...] = ()
    """Arguments of the newest release's tensors that this one's do not take."""
    loads_file: bool = False
    """Whether its Python looks for the extension's file, and does not ask ``transformer_engine.common`` to load it."""
    dtype_numbers: dict[str, int] = dataclasses.field(default_factory=lambda: dict(_DTYPE_NUMBERS))
    """The members of DType and their numbers."""
    fused_attention_backends: tuple[str, ...] = ("NVTE_F16_arbitrary_seqlen", "NVTE_FP8", "NVTE_No_Backend")
    """The members of an enumeration, which the newest release compares with its own."""
    activation_amax_is_wide: bool = True
    """Whether current scaling after an activation takes the amax of the unrounded result."""
    writes_what_a_tensor_has: bool = False
    """Whether a cast into a tensor writes the buffers that it has, whatever the usages of the quantizer are."""
    quantizer_defaults: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """Attributes of the newest release's quantizers that this one does not know, and what it does."""
    tensor_defaults: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """The same of quantized tensors."""

    @property
    def blocks_have_formats(self) -> bool:
        """Whether block-scaled tensors say in which layout their scales are."""
        return "Float8BlockScaleTensorFormat" in table()[self.name].get("provided", {}).get("enums", [])


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    """The older releases by name: their differences from the newest one."""
    text = (resources.files("fp8lab.te") / "releases.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return {NEWEST: {}, **found}


def releases() -> list[str]:
    """The releases of Transformer Engine that fp8lab.te runs, the newest first."""
    return list(table())


@functools.cache
def find_release(name: str) -> Release:
    """The record of a release. ValueError for an unknown one; the message lists those that there are."""
    if name not in table():
        raise ValueError(f"unknown release {name!r} of transformer_engine; known: {', '.join(releases())}")
    facts = {one.name for one in dataclasses.fields(Release)} - {"name"}
    given: dict[str, Any] = {key: value for key, value in table()[name].items() if key in facts}
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    return Release(name, **{**given, **lists})


@functools.cache
def installed_release() -> Release:
    """The installed release; the newest where none is, or another."""
    try:
        found = importlib.metadata.version("transformer_engine")
    except importlib.metadata.PackageNotFoundError:
        return find_release(NEWEST)
    return find_release(found if found in table() else NEWEST)
