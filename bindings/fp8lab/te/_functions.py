# SPDX-License-Identifier: Apache-2.0
"""The table of the extension's names: which are provided, by which file, and why the others are not."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

from fp8lab.te import _releases

__all__ = ["OPERATORS", "Function", "functions"]


class Function(NamedTuple):
    """A name that Transformer Engine's Python takes from its extension."""

    name: str
    family: str | None
    """The file of fp8lab.te that provides it; None: it is refused."""
    why: str
    """Why it is refused, and what to do; empty where it is provided."""
    module: str = ""
    """The module that has it: of Triton kernels, or ``torch.ops.tex_ts``; empty: the extension."""
    is_class: bool = False
    release: str = _releases.NEWEST
    """The release of Transformer Engine."""

    def refusal(self) -> Any:
        """What stands in its place where it is refused: a function, or a class, that raises."""
        name = f"{self.module or 'transformer_engine_torch'}.{self.name}"
        message = f"{name} is not provided by fp8lab.te for transformer_engine {self.release}: {self.why}"

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
def _table(release: str) -> tuple[Function, ...]:
    text = (resources.files("fp8lab.te") / "functions.json").read_text(encoding="utf-8")
    table = json.loads(text)
    newest = _listed(table, release)
    if release == _releases.NEWEST:
        return tuple(sorted(newest + _triton_kernels(table, release)))
    own = _releases.table()[release]
    named = {one.name: one for one in newest}
    operators = {"provided": own.get("operators", {}), "refused": own.get("refused_operators", [])}
    found = [named[name] for name in own["as_newest"]] + _listed(own, release)
    return tuple(sorted(found + _listed(operators, release, OPERATORS) + _triton_kernels(own, release)))


#: Where Transformer Engine 1 registers functions with PyTorch.
OPERATORS = "torch.ops.tex_ts"


def _triton_kernels(table: dict[str, Any], release: str) -> list[Function]:
    """The functions over Triton's kernels that are provided, by module of ``transformer_engine.pytorch`` and file."""
    modules = table.get("triton", {})
    return [
        one
        for module, families in modules.items()
        for one in _listed({"provided": families, "refused": []}, release, module)
    ]


def _listed(table: dict[str, Any], release: str, module: str = "") -> list[Function]:
    """The functions of a table of those that are provided, by file, and of those that are refused, by reason."""
    found = [
        Function(name, family, "", module, release=release)
        for family, names in table["provided"].items()
        for name in names
    ]
    for refused in table["refused"]:
        for kind in ("functions", "classes"):
            is_class = kind == "classes"
            found += [Function(name, None, refused["why"], module, is_class, release) for name in refused.get(kind, [])]
    return found


def functions(release: str | None = None) -> list[Function]:
    """The names that a release's Python takes from its extension, provided and refused; ``str()`` of each explains it.

    Parameters
    ----------
    release : str, optional
        One of ``fp8lab.te.releases()``; by default the installed one, or else the newest.

    Raises
    ------
    ValueError
        For an unknown release.
    """
    found = _releases.installed_release() if release is None else _releases.find_release(release)
    return list(_table(found.name))


def refuse(what: str, why: str) -> None:
    """Raises NotImplementedError for an argument, or a combination of some, of a function that is provided."""
    release = _releases.installed_release().name
    raise NotImplementedError(f"{what} is not provided by fp8lab.te for transformer_engine {release}: {why}")
