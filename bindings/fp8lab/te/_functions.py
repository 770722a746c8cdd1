# SPDX-License-Identifier: Apache-2.0
"""The table of the extension's names: which are provided, by which file, and why the others are not."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

__all__ = ["Function", "functions"]


class Function(NamedTuple):
    """A name that Transformer Engine's Python takes from its extension."""

    name: str
    family: str | None
    """The file of fp8lab.te that provides it; None: it is refused."""
    why: str
    """Why it is refused, and what to do; empty where it is provided."""
    module: str = ""
    """Of a Triton kernel, the module that has it; empty: the extension."""
    is_class: bool = False

    def refusal(self) -> Any:
        """What stands in its place where it is refused: a function, or a class, that raises."""
        name = f"transformer_engine_torch.{self.name}"
        message = f"{name} is not provided by fp8lab.te for transformer_engine 2.20.2: {self.why}"

        def refuse(*_args: Any, **_options: Any) -> Any:
            raise NotImplementedError(message)

        if not self.is_class:
            refuse.__name__ = self.name
            return refuse
        make: Callable[..., Any] = refuse
        return type(self.name, (), {"__init__": make, "__doc__": message})

    def __str__(self) -> str:
        return f"{self.name}: " + (f"provided by fp8lab.te.{self.family}" if self.family else f"refused: {self.why}")


@functools.cache
def _table() -> tuple[Function, ...]:
    text = (resources.files("fp8lab.te") / "functions.json").read_text(encoding="utf-8")
    table = json.loads(text)
    found = [Function(name, family, "") for family, names in table["provided"].items() for name in names]
    for refused in table["refused"]:
        found += [Function(name, None, refused["why"]) for name in refused.get("functions", [])]
        found += [Function(name, None, refused["why"], is_class=True) for name in refused.get("classes", [])]
    return tuple(sorted(found))


def functions() -> list[Function]:
    """The names of transformer_engine 2.20.2's extension, provided and refused; ``str()`` of each explains it."""
    return list(_table())


def refuse(what: str, why: str) -> None:
    """Raises NotImplementedError for an argument, or a combination of some, of a function that is provided."""
    raise NotImplementedError(f"{what} is not provided by fp8lab.te for transformer_engine 2.20.2: {why}")
