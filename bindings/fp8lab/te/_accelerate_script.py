# SPDX-License-Identifier: Apache-2.0
"""From a recipe handler to the backend: what ``Accelerator`` and its ``prepare`` do with a request for FP8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fp8lab.te._accelerate_handler import Handler, RaisedError, truth
from fp8lab.te._accelerate_tables import BACKENDS, MXFP8, PREFIX, Accelerate, TransformerEngine, Version

_UNREAD = {
    "AMAX_HISTORY_LENGTH": "amax_history_len",
    "AMAX_COMPUTE_ALGORITHM": "amax_compute_algo",
    "OPTIMIZATION_LEVEL": "opt_level",
    "BLOCK_SCALING": "use_mxfp8_block_scaling",
}
_OF_BACKENDS = {
    "TE": (
        "USE_AUTOCAST_DURING_EVAL", "MARGIN", "INTERVAL", "FORMAT", "AMAX_HISTORY_LEN", "AMAX_COMPUTE_ALGO",
        "OVERRIDE_FPROP", "OVERRIDE_DGRAD", "OVERRIDE_WGRAD", "USE_MXFP8_BLOCK_SCALING",
    ),
    "MSAMP": ("OPT_LEVEL",),
    "AO": ("PAD_INNER_DIM", "ENABLE_FSDP_FLOAT8_ALL_GATHER"),
}  # fmt: skip
_READ = ("BACKEND", *(suffix for suffixes in _OF_BACKENDS.values() for suffix in suffixes))
_ARGUMENTS_OF_BACKENDS = {
    "TE": (
        "use_autocast_during_eval", "margin", "interval", "fp8_format", "amax_history_len", "amax_compute_algo",
        "override_linear_precision",
    ),
    "MSAMP": ("opt_level",),
}  # fmt: skip


@dataclass(frozen=True)
class Divergence:
    """One way in which the effect differs from the request.

    Attributes
    ----------
    name : str
        The kind: ``equals_default``, ``unknown_to_backend``, ``unread_variable``, ...
    asked, gets : str
        What was written, and what runs.
    why : str
        The step at which it is lost.
    remedy : str
        What to write instead; empty where nothing helps.
    """

    name: str
    asked: str
    gets: str
    why: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f" Remedy: {self.remedy}." if self.remedy else ""
        return f"{self.name}: asked {self.asked}; gets {self.gets}. {self.why}.{remedy}"


@dataclass
class Script:
    """What a script asks for, where it runs, and what has been found so far."""

    version: Version
    te_version: Version
    row: Accelerate
    te_row: TransformerEngine
    kind: str | None
    given: Mapping[str, Any]
    variables: Mapping[str, str]
    origin: Mapping[str, str]
    precision: str | None
    capability: tuple[int, int] | None
    distributed: str
    installed: tuple[str, ...]
    found: dict[str, Any] = field(default_factory=dict)
    divergences: list[Divergence] = field(default_factory=list)

    def diverges(self, name: str, asked: str, gets: str, why: str, remedy: str = "") -> None:
        self.divergences.append(Divergence(name, asked, gets, why, remedy))

    # The backend.

    def read_precision(self) -> bool:
        """Sets mixed_precision, and says whether accelerate takes FP8 to be on."""
        asked = (self.precision or self.variables.get("ACCELERATE_MIXED_PRECISION", "no")).lower()
        state = asked
        is_old_gpu = self.capability is not None and self.capability < (8, 9)
        if asked == "fp8" and is_old_gpu and self.version >= (0, 26):
            state = "fp16"
            layers = (
                "layers are converted and the FP8 context is entered all the same"
                if self.precision
                else "the mode is fp16"
            )
            self.diverges(
                "fp16_instead",
                "mixed_precision='fp8'",
                f"mixed precision fp16; {layers}",
                "FP8 needs compute capability 8.9",
                "a GPU with FP8, or bf16",
            )
        self.found["mixed_precision"] = state
        return state == "fp8" or (self.precision or "").lower() == "fp8"

    def backend_of_environment(self) -> str | None:
        value = self.variables.get(f"{PREFIX}BACKEND", "NO")
        if value == "NO":
            return None
        if value not in BACKENDS:
            known = ", ".join(BACKENDS)
            hint = f" (upper case: {value.upper()})" if value.upper() in BACKENDS else f" (one of {known})"
            raise RaisedError(f"ValueError in Accelerator(): {value!r} is not a valid FP8BackendType{hint}")
        return value

    def detected(self) -> str:
        for package, backend in (("torchao", "AO"), ("transformer_engine", "TE"), ("msamp", "MSAMP")):
            if package in self.installed:
                self.diverges(
                    "backend_detected",
                    "FP8 without a backend",
                    backend,
                    f"Of what is installed, {package} comes first: torchao, then Transformer Engine, then MS-AMP",
                    "a recipe handler, or ACCELERATE_FP8_BACKEND",
                )
                return backend
        raise RaisedError("ImportError in Accelerator(): no FP8 backend is installed")

    def backend(self, enabled: bool) -> tuple[str | None, str | None]:
        """The backend, and the handler that is made or given; no handler where a variable alone switches it on."""
        kinds = {"TERecipeKwargs": "TE", "MSAMPRecipeKwargs": "MSAMP", "AORecipeKwargs": "AO"}
        if self.kind == "FP8RecipeKwargs" or self.version < (1, 4):
            return self.old_backend(enabled)
        if self.kind is not None:
            if not enabled and self.distributed not in ("fsdp", "fsdp2", "deepspeed"):
                raise RaisedError(
                    "ValueError in Accelerator(): an FP8 handler needs mixed_precision='fp8', and it is "
                    + repr(self.found["mixed_precision"])
                )
            return kinds[self.kind], self.kind
        named = self.backend_of_environment()
        if enabled:
            backend = named or self.detected()
            return backend, next(kind for kind, one in kinds.items() if one == backend)
        if named is not None:
            self.diverges(
                "backend_left_in_environment",
                f"mixed precision {self.found['mixed_precision']}",
                f"FP8 by {named}",
                f"prepare() asks for {PREFIX}BACKEND alone, which is {named}; variables of its recipe are not read",
                f"unset {PREFIX}BACKEND",
            )
        return named, None

    def old_backend(self, enabled: bool) -> tuple[str | None, str | None]:
        """FP8RecipeKwargs names its backend; accelerate below 1.4 has no other handler."""
        if self.kind is None and not enabled:
            return None, None
        if self.kind is not None and not enabled and self.version >= (0, 26):
            raise RaisedError("ValueError in Accelerator(): FP8RecipeKwargs needs mixed_precision='fp8'")
        if self.version < (0, 26):
            return "TE", "FP8RecipeKwargs"
        otherwise = "MSAMP" if not self.row.reads_environment or "msamp" in self.installed else "TE"
        asked = self.given.get("backend") or (
            self.variables.get(f"{PREFIX}BACKEND") if self.row.reads_environment else None
        )
        backend = str(asked or otherwise).upper()
        if backend not in ("TE", "MSAMP"):
            raise RaisedError("ValueError when FP8RecipeKwargs is made: `backend` must be 'MSAMP' or 'TE'")
        if backend == "MSAMP" and self.version >= (1, 4):
            raise RaisedError(
                "MS-AMP refuses opt_level None: FP8RecipeKwargs, deprecated, no longer sets it; MSAMPRecipeKwargs does"
            )
        return backend, "FP8RecipeKwargs"

    # Transformer Engine.

    def transformer_engine(self, kind: str | None) -> None:
        keywords: dict[str, Any] = {}
        handler = None
        if kind is not None:
            handler = Handler(self.row, kind, self.given, self.variables, self.origin)
            handler.take_te()
            keywords, self.found["sources"] = handler.keywords(), handler.sources
        if self.distributed == "deepspeed" and kind == "TERecipeKwargs":
            self.lose_to_deepspeed(keywords)
            keywords, handler = {}, None
        in_eval = bool(keywords.pop("use_autocast_during_eval", False)) or self.version < (0, 34)
        is_mx = bool(keywords.pop("use_mxfp8_block_scaling", False))
        enters = self.version >= (0, 26) or self.capability is None or self.capability >= (8, 9)
        self.found.update(layers_converted=True, enters_fp8=enters, in_eval=in_eval and enters)
        if self.version >= (1, 11) and self.te_version < (2, 0):
            raise RaisedError(
                "ImportError in prepare(): accelerate imports check_mxfp8_support, new in Transformer Engine 2.0"
            )
        self.check_mxfp8(is_mx, keywords)
        known = dict(MXFP8) if is_mx else dict(self.te_row.fields)
        self.found.update(recipe="MXFP8BlockScaling" if is_mx else "DelayedScaling", keywords=keywords)
        self.check_recipe({**known, **keywords})
        self.found["fields"] = {**known, **{name: value for name, value in keywords.items() if name in known}}
        if handler is not None:
            self.compare(handler, keywords, known)
        if self.distributed == "fsdp2":
            self.lose_to_fsdp2()

    def check_mxfp8(self, is_mx: bool, keywords: Mapping[str, Any]) -> None:
        if not is_mx:
            return
        if self.capability is None or not (10, 0) <= self.capability < (12, 0):
            where = "on compute capability {}.{}".format(*self.capability) if self.capability else "without a GPU"
            raise RaisedError(f"ValueError in prepare(): MXFP8 block scaling is not available {where}")
        for name in ("amax_compute_algo", "amax_history_len"):
            if name in keywords:
                raise RaisedError(f"ValueError in prepare(): `{name}` is not supported for MXFP8 block scaling")

    def check_recipe(self, fields: Mapping[str, Any]) -> None:
        """What the recipe's class refuses."""
        if fields["fp8_format"] == "E5M2":
            raise RaisedError("ValidationError in prepare(): Transformer Engine has no pure E5M2 training")
        override = fields.get("override_linear_precision")
        if "override_linear_precision" in self.te_row.fields and tuple(override or ()) not in (
            (False, False, False),
            (False, False, True),
        ):
            raise RaisedError("ValidationError in prepare(): Transformer Engine 1 overrides wgrad's precision alone")

    def compare(self, handler: Handler, keywords: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        recipe = self.found["recipe"]
        for name, value in handler.values.items():
            if name in ("use_autocast_during_eval", "use_mxfp8_block_scaling"):
                continue
            source = handler.sources[name]
            asked = f"{name}={value!r} ({source})"
            if name in keywords and name not in known:
                self.diverges(
                    "unknown_to_backend",
                    asked,
                    "nothing",
                    f"{recipe} of this release has no such field, and drops it",
                )
            elif name in keywords and name == "interval" and known[name] == -1:
                self.diverges("unused_by_backend", asked, "nothing", "The field is deprecated and unused since 1.8")
            elif name not in keywords and name in known and known[name] not in (value, -1):
                told = source if source != "default" else "the documented default"
                self.diverges(
                    "equals_default",
                    f"{name}={value!r} ({told})",
                    repr(known[name]),
                    f"The value is {handler.kind}'s own default, which is never passed on, and {recipe}'s default runs",
                )

    def lose_to_deepspeed(self, keywords: Mapping[str, Any]) -> None:
        asked = ", ".join(f"{name}={value!r}" for name, value in keywords.items())
        self.diverges(
            "lost_under_deepspeed",
            asked or "TERecipeKwargs()",
            "DelayedScaling()",
            "Under DeepSpeed, prepare() passes on the deprecated FP8RecipeKwargs alone",
            "FP8RecipeKwargs(backend='TE', ...)",
        )

    def lose_to_fsdp2(self) -> None:
        self.found.update(enters_fp8=False, in_eval=False)
        self.diverges(
            "no_fp8_under_fsdp2",
            f"{self.found['recipe']} with FSDP2",
            "no FP8: layers are converted, and their FP8 context is never entered",
            "prepare() of FSDP2 applies neither the FP8 wrapper nor autocast",
            "FSDP1, or te.autocast in the model's forward",
        )

    # torchao and MS-AMP.

    def torchao(self, kind: str | None) -> None:
        if kind is None:
            raise RaisedError("AttributeError in prepare(): there is no AORecipeKwargs, but the variable")
        fields: dict[str, Any] = {"scaling": "tensorwise, dynamic", "formats": "E4M3 forward, E5M2 gradients"}
        if self.version >= (1, 13):
            handler = Handler(self.row, kind, self.given, self.variables, self.origin)
            handler.take("pad_inner_dim", "PAD_INNER_DIM", True, truth)
            handler.take("enable_fsdp_float8_all_gather", "ENABLE_FSDP_FLOAT8_ALL_GATHER", True, truth)
            fields.update(handler.values)
            self.found.update(keywords=handler.values, sources=handler.sources)
        else:
            fields.update(pad_inner_dim=False, enable_fsdp_float8_all_gather=False)
        config = self.given.get("config")
        if config is not None:
            fields, self.found["keywords"] = {"config": config}, {"config": config}
        self.found.update(recipe="Float8LinearConfig", fields=fields)
        self.found.update(layers_converted=True, enters_fp8=True, in_eval=True)

    def msamp(self, kind: str | None) -> None:
        if kind is None:
            raise RaisedError("AttributeError in prepare(): there is no MSAMPRecipeKwargs, only the backend's variable")
        if self.distributed in ("fsdp", "fsdp2"):
            raise RaisedError("NotImplementedError in Accelerator(): MS-AMP does not run under FSDP")
        handler = Handler(self.row, kind, self.given, self.variables, self.origin)
        handler.take("opt_level", "OPT_LEVEL", "O2", str)
        level = handler.values["opt_level"]
        if level not in ("O1", "O2"):
            raise RaisedError(f"ValueError when {kind} is made: `opt_level` must be one of O1 or O2")
        self.found.update(recipe=f"MS-AMP {level}", fields=handler.values, sources=handler.sources)
        self.found.update(keywords=handler.values, layers_converted=True, enters_fp8=True, in_eval=True)
        if self.distributed != "deepspeed":
            self.diverges(
                "loss_scale_stays",
                "accelerator.backward(loss)",
                "gradients of 65536 times the loss, never unscaled",
                "Accelerator makes a GradScaler, and prepares the optimizer without it",
            )

    def look_for_unread(self) -> None:
        """Variables of FP8 that no handler reads, such as those that `accelerate config` writes."""
        for variable in sorted(self.variables):
            suffix = variable.removeprefix(PREFIX)
            if suffix == variable or suffix in _READ:
                continue
            meant = _UNREAD.get(suffix)
            self.diverges(
                "unread_variable",
                f"{variable}={self.variables[variable]} ({self.origin.get(variable, 'environment')})",
                "nothing",
                "No handler reads this variable" + (f"; the field is called {meant}" if meant else ""),
                f"the key {meant}" if meant else "",
            )

    def look_for_other_backends(self, kind: str | None) -> None:
        """What was asked of a backend that does not run."""
        runs = str(self.found["backend"])

        def lose(asked: str, backend: str) -> None:
            self.diverges(
                "of_another_backend", asked, "nothing", f"It is of the recipe of {backend}, and the backend is {runs}"
            )

        for backend, names in _ARGUMENTS_OF_BACKENDS.items():
            for name in names if backend != runs and self.kind == "FP8RecipeKwargs" else ():
                if self.given.get(name) is not None:
                    lose(f"{name}={self.given[name]!r} (argument)", backend)
        for backend, suffixes in _OF_BACKENDS.items():
            for suffix in suffixes if backend != runs and kind is not None and self.row.reads_environment else ():
                source = self.origin.get(PREFIX + suffix, "environment")
                if PREFIX + suffix in self.variables and source != "default":
                    lose(f"{PREFIX}{suffix}={self.variables[PREFIX + suffix]} ({source})", backend)

    def follow(self) -> None:
        """From the request to the backend, to the first error."""
        enabled = self.read_precision()
        backend, kind = self.backend(enabled)
        self.found["backend"] = backend
        if backend == "TE":
            self.transformer_engine(kind)
        elif backend == "AO":
            self.torchao(kind)
        elif backend == "MSAMP":
            self.msamp(kind)
        if backend is not None:
            self.look_for_other_backends(kind)
