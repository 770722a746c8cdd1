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


def _value_parser(argument: dict[str, Any]) -> Callable[[str], Any]:
    kinds: dict[str, Callable[[str], Any]] = {"integer": int, "number": float}
    one = kinds.get(argument["kind"], str)
    if not argument["is_list"] or argument["is_of_words"]:
        return one
    return lambda text: [one(entry) for entry in text.split(",")]


def _check_pickled(words: Sequence[str]) -> int:
    """``fp8lab check`` of files of ``torch.save``, with its options as C++ has them."""
    import inspect

    from fp8lab._check import check

    facts = next(one for one in _core.experiments() if one["name"] == "check")
    parser = _Parser("fp8lab check", add_help=False, allow_abbrev=False)
    parser.add_argument("model")
    takes = inspect.signature(check).parameters
    for argument in facts["arguments"]:
        if not argument["option"] or argument["name"] not in takes:
            continue
        name, option = argument["name"], argument["option"]
        if argument["kind"] == "flag":
            parser.add_argument(option, dest=name, action="store_true", default=None)
        else:
            nargs = "+" if argument["is_list"] and argument["is_of_words"] else None
            parser.add_argument(option, dest=name, type=_value_parser(argument), nargs=nargs)
    for option in ("--quiet", "--json"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--out")
    parser.add_argument("--html")
    given = vars(parser.parse_args(words))
    quiet, as_json, page = (given.pop(name) for name in ("quiet", "json", "html"))
    if given["ignore"] == ["none"]:
        given["ignore"] = []
    document = check(given.pop("model"), **{name: value for name, value in given.items() if value is not None})
    if page is not None:
        with open(page, "w", encoding="utf-8") as file:
            file.write(document.to_html())
    if not quiet:
        print(document.to_json() if as_json else document.text(), end="" if as_json else "\n")
    return 0


_FLAGS = ("--quiet", "--json", "--resume")


def _alone(words: Sequence[str]) -> list[int]:
    """The places of words that are neither options nor, behind one that takes a value, this value."""
    takes_a_word = [False] + [word.startswith("--") and "=" not in word and word not in _FLAGS for word in words[:-1]]
    return [i for i, word in enumerate(words) if not word.startswith("-") and not takes_a_word[i]]


def _is_pickled_check(words: Sequence[str]) -> bool:
    """Whether the words ask for ``fp8lab check`` of a file of ``torch.save``, which Python has to read."""
    if words[:1] != ["check"]:
        return False
    from fp8lab._check import pickled_files

    return any(pickled_files(words[i]) for i in _alone(words) if i > 0)


def _place_of_archive(words: Sequence[str]) -> int:
    """The place of the wheel or ZIP archive whose weights ``check`` or ``tensors`` are asked for; 0: there is none."""
    if words[:1] not in (["check"], ["tensors"]):
        return 0
    from fp8lab._archives import is_archive

    return next((i for i in _alone(words) if i > 0 and is_archive(words[i])), 0)


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
    try:
        if place := _place_of_archive(words):
            from fp8lab import _archives

            return _archives.run_each(words, place)
        if _is_pickled_check(words):
            return _check_pickled(words[1:])
        if not words or words[0] not in summaries:
            return _core.command_line(words)
        return COMMANDS[words[0]](words[1:], summaries[words[0]])
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"fp8lab: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
