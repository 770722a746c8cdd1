# SPDX-License-Identifier: Apache-2.0
"""What the releases of accelerate and of Transformer Engine take for an FP8 recipe, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Version = tuple[int, ...]
PREFIX = "ACCELERATE_FP8_"
FORMATS = ("HYBRID", "E4M3", "E5M2")
ALGORITHMS = ("max", "most_recent")
BACKENDS = ("TE", "AO", "MSAMP")


@dataclass(frozen=True)
class Accelerate:
    """The handlers of accelerate from a release on (accelerate/utils/dataclasses.py)."""

    since: Version
    handlers: tuple[str, ...]
    defaults: dict[str, Any]  # of the fields that reach Transformer Engine
    reads_environment: bool


_LAST_FIXED = {
    "margin": 0,
    "interval": 1,
    "fp8_format": "E4M3",
    "amax_history_len": 1,
    "amax_compute_algo": "most_recent",
    "override_linear_precision": (False, False, False),
}
_RESOLVED = {"use_autocast_during_eval": False, **_LAST_FIXED, "fp8_format": "HYBRID", "amax_history_len": 1024}
HANDLERS = ("TERecipeKwargs", "MSAMPRecipeKwargs", "AORecipeKwargs", "FP8RecipeKwargs")

ACCELERATE = (
    Accelerate((0, 18), ("FP8RecipeKwargs",), _LAST_FIXED, False),
    Accelerate((0, 34), ("FP8RecipeKwargs",), _RESOLVED, True),
    Accelerate((1, 4), HANDLERS, _RESOLVED, True),
    Accelerate((1, 11), HANDLERS, {**_RESOLVED, "use_mxfp8_block_scaling": False}, True),
)
NEWEST_ACCELERATE, NEWEST_TE = "1.15.0", "2.20.2"
FIRST_LAUNCH = (1, 9)  # from here on, what `accelerate launch` does with a YAML file is followed


@dataclass(frozen=True)
class TransformerEngine:
    """DelayedScaling of Transformer Engine from a release on (transformer_engine/common/recipe)."""

    since: Version
    fields: dict[str, Any]


_OLD_DELAYED = {
    "margin": 0,
    "interval": 1,
    "fp8_format": "HYBRID",
    "amax_history_len": 1,
    "amax_compute_algo": "most_recent",
    "override_linear_precision": (False, False, False),
    "reduce_amax": True,
}
_LONG_DELAYED = {**_OLD_DELAYED, "amax_history_len": 1024, "amax_compute_algo": "max"}
_WITHOUT_OVERRIDE = {
    name: value for name, value in _LONG_DELAYED.items() if name not in ("interval", "override_linear_precision")
}
TRANSFORMER_ENGINE = (
    TransformerEngine((0, 5), _OLD_DELAYED),
    TransformerEngine((0, 7), _LONG_DELAYED),
    TransformerEngine((1, 8), {**_LONG_DELAYED, "interval": -1}),
    TransformerEngine((2, 0), {**_WITHOUT_OVERRIDE, "interval": -1}),
    TransformerEngine((2, 2), _WITHOUT_OVERRIDE),
)
MXFP8 = {"margin": 0, "fp8_format": "E4M3"}


def version_of(text: str, argument: str) -> Version:
    numbers = text.removeprefix("v").split(".")
    if not text or not all(number.isdigit() for number in numbers[:2]):
        raise ValueError(f"{argument} must be a release such as 1.15.0, not {text!r}")
    return tuple(int(number) for number in numbers if number.isdigit())


def row_of(rows: tuple[Any, ...], version: Version, package: str) -> Any:
    found = [row for row in rows if row.since <= version]
    if not found:
        first = ".".join(map(str, rows[0].since))
        raise ValueError(
            f"{package} {'.'.join(map(str, version))} is not in the tables, which begin with {package} {first}"
        )
    return found[-1]
