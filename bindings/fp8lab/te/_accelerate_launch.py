# SPDX-License-Identifier: Apache-2.0
"""From a YAML file and options to the variables that a script finds: ``accelerate launch``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fp8lab.te._accelerate_tables import ALGORITHMS, FORMATS, PREFIX

_LAUNCH_DEFAULTS: dict[str, Any] = {
    "fp8_use_autocast_during_eval": False,
    "fp8_margin": 0,
    "fp8_interval": 1,
    "fp8_format": "HYBRID",
    "fp8_amax_history_len": 1024,
    "fp8_amax_compute_algo": "most_recent",
    "fp8_override_linear_precision": (False, False, False),
    "fp8_opt_level": "O2",
    "fp8_enable_fsdp_float8_all_gather": 1,
    "fp8_pad_inner_dim": 1,
}
_OPTIONS = ("mixed_precision", "fp8_backend", *_LAUNCH_DEFAULTS)
_CHOICES = {
    "fp8_backend": ("ao", "te", "msamp"),
    "fp8_format": FORMATS,
    "fp8_amax_compute_algo": ALGORITHMS,
    "fp8_opt_level": ("O1", "O2"),
}


def launched(
    config: Mapping[str, Any] | None, options: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The environment of the script, and where each of its ACCELERATE_ variables comes from."""
    values, sources = dict(_LAUNCH_DEFAULTS), dict.fromkeys(_LAUNCH_DEFAULTS, "default")
    for key, value in ((config or {}).get("fp8_config") or {}).items():
        name = key if key.startswith("fp8") else f"fp8_{key}"
        values[name], sources[name] = value, "YAML"
    for name, value in options.items():
        if name != "mixed_precision":
            values[name], sources[name] = value, "option"
    precision = options.get("mixed_precision") or (config or {}).get("mixed_precision") or "no"
    variables = dict(environment)
    variables["ACCELERATE_MIXED_PRECISION"] = str(precision).lower()
    origin = {name: "environment" for name in environment if name.startswith("ACCELERATE_")}
    if str(precision).lower() == "fp8":
        for name, value in values.items():
            if not name.startswith("fp8_") or value is None:
                continue
            if name == "fp8_override_linear_precision":
                for which, one in zip(("FPROP", "DGRAD", "WGRAD"), value):
                    variables[f"{PREFIX}OVERRIDE_{which}"] = str(one)
                    origin[f"{PREFIX}OVERRIDE_{which}"] = sources[name]
            else:
                variables[f"ACCELERATE_{name.upper()}"] = str(value)
                origin[f"ACCELERATE_{name.upper()}"] = sources[name]
    return variables, origin


def read_config(config: Any) -> Mapping[str, Any]:
    """A YAML or JSON file, or what stands in one."""
    if isinstance(config, Mapping):
        content: Any = config
    else:
        path = os.fspath(config)
        try:
            import yaml  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise ImportError("reading a configuration of accelerate needs PyYAML: pip install pyyaml") from None
        try:
            with open(path, encoding="utf-8") as file:
                content = yaml.safe_load(file)
        except OSError as error:
            raise type(error)(f"cannot read {path}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, Mapping):
        raise ValueError(f"config must have named entries, such as mixed_precision, not {type(content).__name__}")
    fp8 = content.get("fp8_config") or {}
    if not isinstance(fp8, Mapping) or not all(isinstance(key, str) for key in fp8):
        raise ValueError(f"fp8_config must have named entries, such as backend, not {type(fp8).__name__}")
    return content


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    named = {name.lstrip("-").replace("-", "_"): value for name, value in options.items()}
    for name, value in named.items():
        if name not in _OPTIONS:
            raise ValueError(f"accelerate launch has no option {name!r} for FP8; it has {', '.join(_OPTIONS)}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"accelerate launch takes {name} from {', '.join(_CHOICES[name])}, not {value!r}")
    return named
