# SPDX-License-Identifier: Apache-2.0
"""The command line that pip installs: the commands of C++ in this process, and those that need Python."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fp8lab import _core

BAD_INPUT = 2  # the exit status, as in C++


class _Parser(argparse.ArgumentParser):
    """Says in one line what was wrong, as the commands of C++ do."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


def _pair(text: str) -> tuple[str, Any]:
    """NAME=VALUE; a value that is JSON (a number, true, a list) is that, any other is a text."""
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _text_pair(text: str) -> tuple[str, str]:
    name, _ = _pair(text)
    return name, text.partition("=")[2]


def _effective_recipe(words: Sequence[str], summary: str) -> int:
    from fp8lab.te import effective_recipe

    parser = _Parser(
        "fp8lab effective-recipe",
        description=summary + ".",
        epilog="Exit status: 0 what was asked is what runs; 1 something differs, or accelerate raises; 2 bad input.",
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="the file of accelerate launch --config_file")
    add = parser.add_argument
    add("--handler", action="append", type=_pair, metavar="FIELD=VALUE", help="an argument of the recipe handler")
    add("--handler-class", metavar="NAME", help="its class [TERecipeKwargs]")
    add("--option", action="append", type=_pair, metavar="NAME=VALUE", help="an option of accelerate launch")
    add("--variable", action="append", type=_text_pair, metavar="NAME=VALUE", help="a variable of the environment")
    add("--mixed-precision", metavar="NAME", help="the argument of Accelerator")
    add("--device", default="h100", metavar="NAME", help="the GPU, or none [h100]")
    add("--distributed", default="no", metavar="NAME", help="no, ddp, fsdp, fsdp2 or deepspeed [no]")
    add("--accelerate", metavar="RELEASE", help="its release [the installed one]")
    add("--transformer-engine", metavar="RELEASE", help="its release [the installed one]")
    add("--json", action="store_true", help="print JSON instead of text")
    given = parser.parse_args(words)
    handler: Any = dict(given.handler) if given.handler else None
    if given.handler_class:
        handler = (given.handler_class, handler or {})
    found = effective_recipe(
        given.config,
        handler=handler,
        options=dict(given.option or ()),
        environment={**os.environ, **dict(given.variable or ())},
        mixed_precision=given.mixed_precision,
        device=None if given.device == "none" else given.device,
        distributed=given.distributed,
        accelerate=given.accelerate,
        transformer_engine=given.transformer_engine,
    )
    print(json.dumps(dataclasses.asdict(found), indent=2, default=str) if given.json else found)
    return 1 if found.error or found.divergences else 0


#: What runs each of the commands that C++ lists as Python's.
COMMANDS: dict[str, Callable[[Sequence[str], str], int]] = {"effective-recipe": _effective_recipe}


def main(words: Sequence[str] | None = None) -> int:
    """Runs ``fp8lab WORDS...`` and returns the exit status: 0 done, 2 bad input, 1 or 3 as the command says."""
    words = list(sys.argv[1:] if words is None else words)
    summaries = dict(_core.python_commands())
    if words[:1] == ["help"] and words[1:2] and words[1] in summaries:
        words = [words[1], "--help"]
    # Without Python's handlers, signals do to the commands of C++ what they do to a program.
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    if not words or words[0] not in summaries:
        return _core.command_line(words)
    try:
        return COMMANDS[words[0]](words[1:], summaries[words[0]])
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"fp8lab: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
