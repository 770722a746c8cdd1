# SPDX-License-Identifier: Apache-2.0
"""From arguments and variables to the fields of a recipe handler of accelerate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fp8lab.te._accelerate_tables import ALGORITHMS, FORMATS, PREFIX, Accelerate


class RaisedError(Exception):
    """accelerate or the backend raises; the text names the type and the step."""


def truth(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("y", "yes", "t", "true", "on", "1"):
        return True
    if lowered in ("n", "no", "f", "false", "off", "0"):
        return False
    raise ValueError(f"invalid truth value {lowered}")


class Handler:
    """The values that a handler ends with, and where each comes from."""

    def __init__(
        self,
        row: Accelerate,
        kind: str,
        given: Mapping[str, Any],
        variables: Mapping[str, str],
        origin: Mapping[str, str],
    ) -> None:
        self.row, self.kind, self.given = row, kind, given
        self.variables, self.origin = variables, origin
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def refusal(self, reason: str) -> RaisedError:
        return RaisedError(f"ValueError when {self.kind} is made: {reason}")

    def take(self, name: str, variable: str, otherwise: Any, read: Callable[[str], Any]) -> None:
        """One field: the argument, else the variable, else the default."""
        variable = PREFIX + variable
        if self.given.get(name) is not None:
            self.values[name], self.sources[name] = self.given[name], "argument"
        elif self.row.reads_environment and variable in self.variables:
            text = self.variables[variable]
            try:
                self.values[name] = read(text)
            except ValueError as error:
                raise self.refusal(str(error)) from None
            self.sources[name] = self.origin.get(variable, "environment")
        else:
            self.values[name], self.sources[name] = otherwise, "default"

    def take_te(self) -> None:
        defaults = self.row.defaults
        if "use_autocast_during_eval" in defaults:
            self.take("use_autocast_during_eval", "USE_AUTOCAST_DURING_EVAL", False, truth)
        self.take("margin", "MARGIN", 0, int)
        self.take("interval", "INTERVAL", 1, int)
        self.take("fp8_format", "FORMAT", defaults["fp8_format"], str)
        self.values["fp8_format"] = str(self.values["fp8_format"]).upper()
        formats = FORMATS if self.row.reads_environment else ("E4M3", "HYBRID")
        if self.values["fp8_format"] not in formats:
            raise self.refusal(f"`fp8_format` must be one of {' or '.join(formats)}")
        self.take("amax_compute_algo", "AMAX_COMPUTE_ALGO", "most_recent", str)
        if self.row.reads_environment:
            self.values["amax_compute_algo"] = str(self.values["amax_compute_algo"]).lower()
        if self.values["amax_compute_algo"] not in ALGORITHMS:
            raise self.refusal(f"`amax_compute_algo` must be one of {' or '.join(ALGORITHMS)}")
        self.take("amax_history_len", "AMAX_HISTORY_LEN", defaults["amax_history_len"], int)
        self.take_override()
        if "use_mxfp8_block_scaling" in defaults:
            self.take("use_mxfp8_block_scaling", "USE_MXFP8_BLOCK_SCALING", False, truth)

    def take_override(self) -> None:
        name = "override_linear_precision"
        if self.given.get(name) is not None:
            self.values[name], self.sources[name] = self.given[name], "argument"
            return
        flags, origin = [], "default"
        for which in ("FPROP", "DGRAD", "WGRAD"):
            variable = f"{PREFIX}OVERRIDE_{which}"
            text = self.variables.get(variable) if self.row.reads_environment else None
            try:
                flags.append(truth(text) if text is not None else False)
            except ValueError as error:
                raise self.refusal(str(error)) from None
            origin = self.origin.get(variable, "environment") if text is not None else origin
        self.values[name], self.sources[name] = tuple(flags), origin

    def keywords(self) -> dict[str, Any]:
        """to_kwargs(): what differs from the handler's own default, which an empty environment gives."""
        return {name: value for name, value in self.values.items() if self.row.defaults.get(name) != value}
