# SPDX-License-Identifier: Apache-2.0
"""The FP8 recipe that runs when Hugging Face accelerate is asked for FP8, and where it differs from what was asked.

accelerate computes nothing in FP8 itself: from arguments, environment variables and a YAML file it makes the arguments
of a recipe of Transformer Engine's, torchao's or MS-AMP's. Several requests are lost on that way without a word. This
module follows it, release by release, and imports neither torch nor accelerate nor Transformer Engine.

>>> from fp8lab.te import effective_recipe
>>> found = effective_recipe(handler={"amax_compute_algo": "most_recent"})
>>> found.fields["amax_compute_algo"]
'max'
>>> found.divergences[0].name
'equals_default'
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from fp8lab.te._accelerate_handler import RaisedError
from fp8lab.te._accelerate_launch import check_options, launched, read_config
from fp8lab.te._accelerate_script import Divergence, Script
from fp8lab.te._accelerate_tables import (
    ACCELERATE,
    FIRST_LAUNCH,
    HANDLERS,
    NEWEST_ACCELERATE,
    NEWEST_TE,
    TRANSFORMER_ENGINE,
    Accelerate,
    row_of,
    version_of,
)
from fp8lab.te.devices import find_device

__all__ = ["Divergence", "EffectiveRecipe", "effective_recipe"]

_DISTRIBUTED = ("no", "ddp", "fsdp", "fsdp2", "deepspeed")


@dataclass(frozen=True)
class EffectiveRecipe:
    """What reaches the backend.

    Attributes
    ----------
    accelerate, transformer_engine : str
        The releases that were followed.
    backend : str or None
        ``"TE"``, ``"AO"`` or ``"MSAMP"``; None where no backend is reached.
    recipe : str or None
        The backend's class: ``"DelayedScaling"``, ``"MXFP8BlockScaling"``, ``"Float8LinearConfig"`` or ``"MS-AMP O2"``.
    fields : dict
        Its fields with the values that run.
    keywords : dict
        The arguments with which accelerate calls the class; a field that is not here has the backend's own default.
    sources : dict of str
        Where each requested field came from: ``argument``, ``environment``, ``YAML``, ``option`` or ``default``.
    mixed_precision : str
        What ``Accelerator.state.mixed_precision`` is in the end.
    layers_converted, enters_fp8, in_eval : bool
        Whether layers are replaced, whether the FP8 context is entered in training, and whether in evaluation, too.
    error : str or None
        What is raised, and where, in place of training.
    divergences : tuple of Divergence
        Where the effect differs from the request.
    """

    accelerate: str
    transformer_engine: str
    backend: str | None
    recipe: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    keywords: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    mixed_precision: str = "no"
    layers_converted: bool = False
    enters_fp8: bool = False
    in_eval: bool = False
    error: str | None = None
    divergences: tuple[Divergence, ...] = ()

    def __str__(self) -> str:
        lines = [f"accelerate {self.accelerate}, Transformer Engine {self.transformer_engine}"]
        if self.error:
            lines.append(f"No training: {self.error}")
        elif self.recipe is None:
            lines.append(f"No FP8: mixed precision is {self.mixed_precision}")
        else:
            lines.append(f"Backend {self.backend}, recipe {self.recipe}, mixed precision {self.mixed_precision}")
            for name, value in self.fields.items():
                origin = self.sources.get(name, "default") if name in self.keywords else f"default of {self.recipe}"
                lines.append(f"  {name:28s} {value!s:24s} {origin}")
            answers = {"layers converted": self.layers_converted, "FP8 in training": self.enters_fp8}
            answers["in evaluation"] = self.in_eval
            lines.append("  " + "; ".join(f"{what}: {'yes' if is_so else 'no'}" for what, is_so in answers.items()))
        count = len(self.divergences)
        lines.append(f"{count or 'No'} silent divergence{'' if count == 1 else 's'}{':' if count else '.'}")
        lines += [f"  {number}. {one}" for number, one in enumerate(self.divergences, 1)]
        return "\n".join(lines)


def _installed(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _releases(accelerate: str | None, transformer_engine: str | None) -> tuple[str, str]:
    return (
        accelerate or _installed("accelerate") or NEWEST_ACCELERATE,
        transformer_engine or _installed("transformer_engine") or NEWEST_TE,
    )


def _handler_of(handler: Any, row: Accelerate) -> tuple[str | None, Mapping[str, Any]]:
    """The class of a handler and its arguments: of a mapping, of a pair of both, or of a handler of accelerate's."""
    kind: Any
    given: Any
    if handler is None:
        return None, {}
    if isinstance(handler, Mapping):
        kind, given = row.handlers[0], handler
    elif isinstance(handler, tuple) and len(handler) == 2 and isinstance(handler[1], Mapping):
        kind, given = handler
    elif type(handler).__name__ in HANDLERS:
        kind, given = type(handler).__name__, vars(handler)
    else:
        raise TypeError(
            "handler must be arguments by name, a pair of a class's name and arguments, or a handler of accelerate's, "
            f"not {type(handler).__name__}"
        )
    if kind not in row.handlers:
        raise ValueError(f"this release of accelerate has no handler {kind!r}; it has {', '.join(row.handlers)}")
    fields = {
        "TERecipeKwargs": set(row.defaults),
        "MSAMPRecipeKwargs": {"opt_level"},
        "AORecipeKwargs": {"config", "module_filter_func", "pad_inner_dim", "enable_fsdp_float8_all_gather"},
        "FP8RecipeKwargs": set(row.defaults) | {"backend", "opt_level"},
    }[kind]
    unknown = [name for name in given if name not in fields]
    if unknown:
        raise TypeError(f"{kind} of this release has no argument {unknown[0]!r}; it has {', '.join(sorted(fields))}")
    return kind, given


def _capability_of(device: Any) -> tuple[int, int] | None:
    if device is None:
        return None
    if isinstance(device, tuple) and len(device) == 2 and all(type(number) is int for number in device):
        return device
    if isinstance(device, str):
        return find_device(device).capability
    raise TypeError("device must be a name such as 'h100', a compute capability such as (8, 0), or None")


def effective_recipe(
    config: Any = None,
    *,
    handler: Any = None,
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    mixed_precision: str | None = None,
    device: Any = "h100",
    distributed: str = "no",
    installed: tuple[str, ...] | None = None,
    accelerate: str | None = None,
    transformer_engine: str | None = None,
) -> EffectiveRecipe:
    """The recipe that reaches the FP8 backend, and each silent divergence from what was asked.

    Parameters
    ----------
    config : path or dict, optional
        What ``accelerate launch --config_file`` reads. With it or ``options``, the script is taken as launched; without
        both, it is run by ``python``, and only the environment counts.
    handler : dict, (str, dict) or a handler of accelerate's, optional
        What stands in ``Accelerator(kwargs_handlers=[...])``: the arguments of TERecipeKwargs (FP8RecipeKwargs before
        1.4), or a pair of the class's name and its arguments.
    options : dict, optional
        Options of ``accelerate launch``, such as ``{"fp8_backend": "te"}``.
    environment : dict of str, optional
        The variables, in place of those of this process.
    mixed_precision : str, optional
        The argument of ``Accelerator``. Where it is not given and nothing is launched, a handler stands for ``"fp8"``.
    device : str, (int, int) or None
        Where it runs: one of ``fp8lab.te.devices()``, or a compute capability; None where there is no GPU.
    distributed : {"no", "ddp", "fsdp", "fsdp2", "deepspeed"}
    installed : tuple of str, optional
        Which of ``"torchao"``, ``"transformer_engine"`` and ``"msamp"`` are there; by default what is found here.
    accelerate, transformer_engine : str, optional
        The releases to follow, by default those installed, or else 1.15.0 and 2.20.2. From accelerate 0.18 and
        Transformer Engine 0.5 on; files and options of ``accelerate launch`` from accelerate 1.9 on.

    Returns
    -------
    EffectiveRecipe
        ``str()`` of it is a report. Where accelerate or the backend would raise, ``error`` says what and where.

    Raises
    ------
    ValueError, TypeError
        For an argument that is none of these; the message lists what is allowed.
    OSError
        Where ``config`` cannot be read.
    ImportError
        Where ``config`` is a file and PyYAML is not installed.

    Notes
    -----
    Follows accelerate/utils/dataclasses.py, accelerate/utils/transformer_engine.py, accelerate/accelerator.py and
    accelerate/commands/launch.py, and transformer_engine/common/recipe.
    """
    releases = _releases(accelerate, transformer_engine)
    version, te_version = version_of(releases[0], "accelerate"), version_of(releases[1], "transformer_engine")
    row = row_of(ACCELERATE, version, "accelerate")
    if distributed not in _DISTRIBUTED:
        raise ValueError(f"distributed must be one of {', '.join(_DISTRIBUTED)}, not {distributed!r}")
    variables: Mapping[str, str] = dict(os.environ if environment is None else environment)
    origin: Mapping[str, str] = {}
    kind, given = _handler_of(handler, row)
    if config is not None or options:
        if version < FIRST_LAUNCH:
            raise ValueError(
                "config and options are followed from accelerate 1.9 on; before, give environment and handler"
            )
        read = None if config is None else read_config(config)
        variables, origin = launched(read, check_options(options or {}), variables)
    elif mixed_precision is None and kind is not None:
        mixed_precision = "fp8"
    if installed is None:
        installed = tuple(name for name in ("torchao", "transformer_engine", "msamp") if find_spec(name))
    script = Script(
        version, te_version, row, row_of(TRANSFORMER_ENGINE, te_version, "Transformer Engine"), kind, given,
        variables, origin, mixed_precision, _capability_of(device), distributed, installed,
    )  # fmt: skip
    error = None
    try:
        script.follow()
    except RaisedError as raised:
        error = str(raised)
        script.found = {key: script.found[key] for key in ("backend", "mixed_precision") if key in script.found}
    script.look_for_unread()
    script.found.setdefault("backend", None)
    return EffectiveRecipe(*releases, **script.found, error=error, divergences=tuple(script.divergences))
