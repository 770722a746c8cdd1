# SPDX-License-Identifier: Apache-2.0
"""Makes a Python function of each registered experiment: signature, docstring and checks follow from its arguments."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from fp8lab import _core
from fp8lab._arrays import (
    as_float32,
    as_floats,
    as_format,
    as_profile,
    check_bool,
    check_int,
    check_list,
    check_name,
    check_path,
    check_real,
    check_threads,
    short,
)
from fp8lab._core import DelayedVersion, Distribution, Format, MmaModel, Profile
from fp8lab._delayed import Delayed, as_version
from fp8lab._distributions import as_distribution
from fp8lab._document import Document
from fp8lab._gemm_recipes import GemmRecipe, NamedGemmRecipe, as_gemm_recipe
from fp8lab._linear import LinearRecipe, NamedLinearRecipe
from fp8lab._linear import _as_linear_recipe as as_linear_recipe
from fp8lab._recipes import NamedRecipe, as_named_recipe, as_recipe

Facts = dict[str, Any]


def _as_model(value: Any, argument: str) -> Any:
    return value if isinstance(value, MmaModel) else check_name(value, argument, " or an MmaModel")


def _as_recipe(value: Any, argument: str) -> Any:
    if isinstance(value, tuple) and len(value) == 2:
        return check_name(value[0], f"a name in {argument}"), as_recipe(value[1], argument)._core()
    if isinstance(value, str):
        return check_name(value, argument)
    name, recipe = as_named_recipe(value, argument)
    return name, recipe._core()


def _as_linear_recipe(value: Any, argument: str) -> Any:
    if isinstance(value, NamedLinearRecipe):
        return value.name, value.recipe._made
    if isinstance(value, tuple) and len(value) == 2:
        return check_name(value[0], f"a name in {argument}"), as_linear_recipe(value[1], argument)._made
    if isinstance(value, LinearRecipe):
        raise TypeError(f"{argument} has a LinearRecipe without a name; give (name, recipe)")
    return check_name(value, argument, " or a linear recipe")


def _as_gemm_recipe(value: Any, argument: str) -> Any:
    if isinstance(value, str):
        return check_name(value, argument)
    if isinstance(value, MmaModel):
        return value.name, GemmRecipe(value)._core()
    if isinstance(value, NamedGemmRecipe):
        return value.name, value.recipe._core()
    recipe = as_gemm_recipe(value, argument)
    return str(recipe), recipe._core()


def _as_delayed(value: Any, argument: str) -> Any:
    return value._recipe() if isinstance(value, Delayed) else check_name(value, argument, " or a Delayed")


def _as_tensors(value: Any, argument: str) -> list[Any]:
    """The arrays of one array, of several, or of a mapping that names them."""
    if isinstance(value, Mapping):
        named = {check_name(name, f"a name in {argument}"): array for name, array in value.items()}
        return [(*as_floats(array, f"{argument}[{short(name)!r}]"), name) for name, array in named.items()]
    if hasattr(type(value), "__array__"):
        return [as_floats(value, argument)]
    place = itertools.count()
    return check_list(value, argument, lambda entry, name: as_floats(entry, f"{name}[{next(place)}]"))


def _as_outliers(value: Any, argument: str) -> tuple[int, float]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{argument} must be a tuple of two numbers, (count, factor)")
    return check_int(value[0], argument, 0, 2**40), check_real(value[1], argument)


def _as_amax(value: Any, argument: str) -> Any:
    """A magnitude, or ``"auto"``."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{argument} must be a number or 'auto', not {short(value)!r}")
        return value
    return check_real(value, argument)


def _as_trace(value: Any, argument: str) -> Any:
    """A path, or the amaxes of a mapping."""
    if not isinstance(value, Mapping):
        return check_path(value, argument)
    columns = []
    for name, amaxes in value.items():
        check_name(name, f"a tensor's name in {argument}")
        column = as_float32(amaxes, f"{argument}['{short(name)}']")
        if column.ndim != 1:
            raise ValueError(f"{argument}['{short(name)}'] must have one dimension, not {column.ndim}")
        columns.append(column)
    if not columns:
        raise ValueError(f"a {argument} must have at least one tensor")
    return _core.AmaxTrace(list(value), columns)


#: By kind of argument: the function that checks an entry, and the type of an entry in signatures.
_KINDS: dict[str, tuple[Callable[[Any, str], Any], str]] = {
    "flag": (check_bool, "bool"),
    "number": (check_real, "float"),
    "name": (check_name, "str"),
    "path": (check_path, "str | os.PathLike[str]"),
    "format": (as_format, "str | Format"),
    "profile": (as_profile, "str | Profile"),
    "model": (_as_model, "str | MmaModel"),
    "distribution": (as_distribution, "str | Distribution"),
    "version": (as_version, "str | DelayedVersion"),
    "recipe": (_as_recipe, "str | NamedRecipe | Recipe | tuple[str, Recipe]"),
    "linear_recipe": (_as_linear_recipe, "str | NamedLinearRecipe | tuple[str, LinearRecipe]"),
    "gemm_recipe": (_as_gemm_recipe, "str | NamedGemmRecipe | GemmRecipe | MmaModel"),
    "delayed": (_as_delayed, "str | Delayed"),
    "tensor": (as_floats, "Any"),
    "outliers": (_as_outliers, "tuple[int, float]"),
    "amax": (_as_amax, "float | str"),
    "trace": (_as_trace, "str | os.PathLike[str] | Mapping[str, Any]"),
}
#: The suffixes of a path that may be given as a text in place of an array.
SUFFIXES = (".npy", ".safetensors", ".index.json")
_SINGLE = (
    Delayed,
    DelayedVersion,
    Distribution,
    Format,
    GemmRecipe,
    LinearRecipe,
    MmaModel,
    NamedGemmRecipe,
    NamedLinearRecipe,
    NamedRecipe,
    Profile,
    os.PathLike,
)
#: The words for some of these types in a docstring.
_WORDS = {
    "Any": "array_like of float32, float64, float16 or bfloat16, or path",
    "tuple[int, float]": "(int, float)",
    "str | NamedLinearRecipe | tuple[str, LinearRecipe]": "str, NamedLinearRecipe or (str, LinearRecipe)",
    "str | NamedRecipe | Recipe | tuple[str, Recipe]": "str, NamedRecipe, recipe or (str, recipe)",
}


def _entries(value: Any, argument: Facts, name: str) -> list[Any]:
    """The checked entries of an argument, which the caller named so; one where it is no list."""
    if name == "threads":
        return [check_threads(value)]
    check: Callable[[Any, str], Any]
    if argument["kind"] == "integer":
        check = functools.partial(check_int, low=argument["least"], high=argument["most"])
    else:
        check = _KINDS[argument["kind"]][0]
    if not argument["is_list"]:
        return [check(value, name)]
    if argument["kind"] == "tensor":
        entries = _as_tensors(value, name)
    else:
        # A mapping of names to recipes is a list of pairs.
        entries = check_list(value.items() if isinstance(value, Mapping) else value, name, check, _SINGLE)
    if not entries and not argument["takes_none"]:
        raise ValueError(f"{name} must have at least one entry; leave it out for its default")
    return entries


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _with_files(facts: Facts, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The same with tensors that are given as paths as the argument for their files, which means the same; and what the
    caller named it.

    That argument of ``w`` is ``w_file``, or ``file`` where an experiment has one tensor.
    """
    called: dict[str, str] = {}
    names = {argument["name"] for argument in facts["arguments"]}
    for argument in facts["arguments"]:
        name = argument["name"]
        value = given.get(name)
        paths = list(value) if argument["is_list"] and isinstance(value, (list, tuple)) else [value]
        file = f"{name}_file" if f"{name}_file" in names else "file"
        if argument["kind"] != "tensor" or file not in names or not any(map(_is_path, paths)):
            continue
        for path in paths:
            if not _is_path(path):
                raise TypeError(f"{name} must have arrays or paths, not both")
            if isinstance(path, str) and not path.lower().endswith(SUFFIXES) and not os.path.isdir(path):
                raise ValueError(
                    f"{name} must be an array, or the path of a .npy or .safetensors file, an index or a folder, "
                    f"not {short(path)!r}"
                )
        if given.get(file) is not None:
            raise ValueError(f"{name} cannot be given with {file}")
        given = {**given, name: None, file: value}
        called[file] = name
    return given, called


def run(name: str, given: dict[str, Any], out: Any = None) -> Document:
    """Runs an experiment with the arguments that are given, of which None counts as left out."""
    facts = registered()[name]
    given, called = _with_files(facts, given)
    arguments = {
        argument["name"]: _entries(given[argument["name"]], argument, called.get(argument["name"], argument["name"]))
        for argument in facts["arguments"]
        if given.get(argument["name"]) is not None
    }
    if any(argument["name"] == "threads" for argument in facts["arguments"]) and "threads" not in arguments:
        arguments["threads"] = [check_threads(None)]
    path = None if out is None else check_path(out, "out")
    return Document(_core.run_experiment(facts["name"], arguments, path, called))


def _default(argument: Facts) -> Any:
    value = json.loads(argument["default"])
    if argument["name"] == "threads":
        return None
    if argument["kind"] != "flag" and (argument["is_optional"] or argument["excludes"] or argument["needs"]):
        return None
    return tuple(value) or None if argument["is_list"] else value


def _type(argument: Facts) -> str:
    kind = "int" if argument["kind"] == "integer" else _KINDS[argument["kind"]][1]
    names = {"recipe": " | Mapping[str, Recipe]", "linear_recipe": " | Mapping[str, LinearRecipe]"}.get(
        argument["kind"], ""
    )
    return f"{kind} | Sequence[{kind}]{names}" if argument["is_list"] else kind


def _described(argument: Facts) -> str:
    """The default in words, where the signature has none."""
    if argument["name"] == "threads":
        return "all cores if left out; they change nothing but the time"
    text = "; ".join(part for part in (argument["help"], argument["conditions"]) if part)
    if argument["otherwise"]:
        return f"{text}; {argument['otherwise']} if left out"
    if _default(argument) is None and json.loads(argument["default"]) not in (None, []):
        return f"{text}; {argument['default']} if left out"
    return text


def _docstring(facts: Facts) -> str:
    lines = [f"{facts['summary']}; Ctrl-C stops it.", ""]
    lines += [*textwrap.wrap(facts["description"], 110), ""] if facts["description"] else []
    lines += ["Parameters", "----------"]
    for argument in facts["arguments"]:
        kind = "int" if argument["kind"] == "integer" else _KINDS[argument["kind"]][1]
        kind = _WORDS.get(kind, kind.replace("os.PathLike[str]", "path").replace(" | ", " or "))
        optional = ", optional" if _default(argument) is None else ""
        lines += [f"{argument['name']} : {'sequence of ' if argument['is_list'] else ''}{kind}{optional}"]
        sentence = _described(argument)
        lines += textwrap.wrap(
            sentence[0].upper() + sentence[1:] + ".", 106, initial_indent="    ", subsequent_indent="    "
        )
    lines += [
        "out : path, optional",
        f"    Directory for ``{facts['name']}.json`` and a CSV for each table, histogram and set of curves.",
        "",
    ]
    lines += [
        "Returns",
        "-------",
        "Document",
        *textwrap.wrap(f"With the {facts['result']}.", 106, initial_indent="    ", subsequent_indent="    "),
        "",
    ]
    lines += [
        "Raises",
        "------",
        "TypeError, ValueError",
        "    For wrong arguments; the message says the rule.",
        "OSError",
    ]
    return "\n".join(
        [*lines, "    Where a file cannot be read or ``out`` cannot be written; nothing is left half-written."]
    )


def _place(argument: Facts) -> Any:
    """Whether an argument may be given without its name."""
    return inspect.Parameter.POSITIONAL_OR_KEYWORD if argument["is_positional"] else inspect.Parameter.KEYWORD_ONLY


def _signature(facts: Facts) -> inspect.Signature:
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            argument["name"], _place(argument), default=_default(argument), annotation=_annotation(argument)
        )
        for argument in facts["arguments"]
    ]
    parameters.append(inspect.Parameter("out", kind, default=None, annotation="str | os.PathLike[str] | None"))
    return inspect.Signature(parameters, return_annotation="Document")


def _annotation(argument: Facts) -> str:
    return _type(argument) + (" | None" if _default(argument) is None else "")


def function_of(facts: Facts) -> Callable[..., Document]:
    """The function of an experiment."""
    signature = _signature(facts)

    def experiment(*positional: Any, **named: Any) -> Document:
        given = signature.bind(*positional, **named).arguments
        return run(facts["name"], given, given.pop("out", None))

    experiment.__name__ = experiment.__qualname__ = facts["name"]
    experiment.__module__ = "fp8lab.experiments"
    experiment.__doc__ = _docstring(facts)
    experiment.__signature__ = signature  # type: ignore[attr-defined]
    return experiment


_registered: dict[str, Facts] = {}


def registered() -> dict[str, Facts]:
    """What is known of all experiments, by name."""
    if not _registered:
        _registered.update({facts["name"]: facts for facts in _core.experiments()})
    return _registered


#: By kind of argument: the type of its names.
_NAMES = {
    "format": "FormatName",
    "profile": "ProfileName",
    "model": "ModelName",
    "distribution": "DistributionName",
    "version": "DelayedVersionName",
    "recipe": "RecipeName",
    "linear_recipe": "LinearRecipeName",
    "gemm_recipe": "GemmRecipeName",
}
#: Of arguments that an experiment reads when it runs: the type of their names.
_READ_LATER = {
    "algorithms": "AmaxAlgorithmName",
    "direction": "DirectionName",
    "expected_c_enters": "GemmCEntersName",
    "expected_scale_order": "GemmScaleOrderName",
    "expected_zero_rule": "GemmZeroRuleName",
    "layout": "LayoutName",
    "mma": "ModelName",
    "roundings": "RoundingName",
    "scale_layout": "GemmScaleLayoutName",
    "via_roundings": "DrawlessRoundingName",
}

#: An experiment's argument that has such a name and other names: those of checkpoints.
_OTHERS = {("quantize", "layout")}


def _names_of(facts: Facts, argument: Facts) -> str | None:
    """The type of an argument's names, as the experiment lists them where it refuses ``?``; None: any text."""
    if argument["kind"] != "name":
        return _NAMES.get(argument["kind"])
    if (facts["name"], argument["name"]) in _OTHERS:
        return None
    if argument["name"] in _READ_LATER:
        return _READ_LATER[argument["name"]]
    try:  # the second argument is refused, so that nothing runs where the first is not
        _core.run_experiment(facts["name"], {argument["name"]: ["?"], "?": ["?"]}, None, {})
    except ValueError as error:
        listed = re.search(r"unknown (\w+) '\?'; known: ([^;]*)", str(error))
        if listed is None or listed[1] == "argument":
            return None
        if " more" in listed[2]:
            return _NAMES[listed[1]]
        names = ", ".join(f"'{name}'" for name in listed[2].split(", "))
        return f"Literal[{names}]"
    return None


def _stub_annotation(facts: Facts, argument: Facts) -> str:
    names = _names_of(facts, argument)
    return re.sub(r"\bstr\b(?!,)", names, _annotation(argument)) if names else _annotation(argument)


def stub() -> str:
    """The text of ``_registered.pyi``: each function as a type checker sees it."""
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        "# What bindings/stubs.py gives; a test compares.",
        "import os",
        "from collections.abc import Mapping, Sequence",
        "from typing import Any, Literal",
        "",
        "from fp8lab._core import DelayedVersion, Distribution, Format, MmaModel, Profile",
        "from fp8lab._delayed import Delayed",
        "from fp8lab._document import Document",
        "from fp8lab._gemm_recipes import GemmRecipe, NamedGemmRecipe",
        "from fp8lab._linear import LinearRecipe, NamedLinearRecipe",
        "from fp8lab._recipes import NamedRecipe, Recipe",
        "from fp8lab.literals import (",
        *(f"    {name}," for name in sorted({*_NAMES.values(), *_READ_LATER.values()})),
        ")",
    ]
    public = [facts for facts in registered().values() if facts["is_public"]]
    lines += ["", "__all__ = [", *(f'    "{facts["name"]}",' for facts in public), "]"]
    for facts in public:
        lines += ["", f"def {facts['name']}("]
        for is_positional in (True, False):
            lines += [] if is_positional else ["    *,"]
            those = [one for one in facts["arguments"] if one["is_positional"] is is_positional]
            lines += [f"    {one['name']}: {_stub_annotation(facts, one)} = {_default(one)!r}," for one in those]
        lines += ["    out: str | os.PathLike[str] | None = None,", ") -> Document: ..."]
    return "\n".join(lines) + "\n"
