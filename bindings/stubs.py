# SPDX-License-Identifier: Apache-2.0
"""Writes what type checkers know of the compiled module and of the experiments: python bindings/stubs.py.

``_core.pyi`` follows from the signatures that pybind11 writes into the docstrings of ``fp8lab._core``, so that each is
typed once, in C++; ``_registered.pyi`` follows from the arguments that the experiments register. Both are committed,
for a package is then built without running what was built; a test compares them with what this program gives.
"""

import ast
import dataclasses
import importlib
import inspect
import pathlib
import re
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# What bindings/stubs.py gives; a test compares.
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from fp8lab.literals import (
    {literals}
)
"""
#: What pybind11 calls numbers. A function takes any integer for an int, and any float for a float.
_NUMBERS = {
    "typing.SupportsInt | typing.SupportsIndex": "int",
    "typing.SupportsFloat | typing.SupportsIndex": "float",
    "typing.SupportsInt": "int",
    "typing.SupportsFloat": "float",
}
#: What its other types are called here.
_TYPES = {
    "object": "Any",
    "handle": "Any",
    "dict": "dict[str, Any]",
    "list": "list[Any]",
    "tuple": "tuple[Any, ...]",
    "numpy.ndarray": "NDArray[Any]",
    "typing_extensions.CapsuleType": "Any",
    "types.CapsuleType": "Any",
    "capsule": "Any",
    "collections.abc.Callable": "Callable[..., Any]",
}
#: Types that are long and stand in many signatures.
_ALIASES = {
    "_Place": "tuple[str, int, int, int]",
    "_Places": "tuple[_Place, _Place | None, _Place | None, _Place | None]",
    "_Parallel": "tuple[str, int, bool, str, Sequence[int], bool]",
}
_WIDTH = 120
#: Names that Python alone reads. A test calls every function with each of them, and with another.
_OF_PYTHON: dict[str, tuple[str, ...]] = {
    "AdamModeName": ("l2", "decoupled"),
    "BinsName": ("linear", "log", "binade", "code"),
    "DeviceFunctionsName": ("correctly_rounded", "hopper"),
    "DirectionName": ("rowwise", "columnwise"),
    "Fp8QtypeName": ("e4m3", "e5m2"),
    "GemmChipName": ("ampere", "ada", "hopper", "blackwell", "rtx_blackwell"),
    "GemmScaleLayoutName": ("compact", "swizzled"),
    "GpuNanName": ("dropped", "counted"),
    "HalfTypeName": ("float16", "bfloat16"),
    "LayoutName": ("nt", "nn", "tn", "tt"),
    "OptLevelName": ("O1", "O2", "O3"),
    "OrderName": ("ascending", "descending", "shuffled"),
    "ParallelModeName": ("none", "column", "row"),
    "ParameterKindName": ("linear", "other"),
    "QtypeName": ("e4m3", "e5m2", "float16", "bfloat16", "float32"),
    "RandomSharingName": ("none", "ptx"),
    "ReductionName": ("code", "paper"),
    "ReductionOrderName": ("sequential", "ring", "pairwise"),
    "RopeQkvLayoutName": ("sbhd", "bshd"),
    "ScaleFormatName": ("e8m0", "ue4m3"),
    "ScaleLayoutName": ("compact", "padded", "swizzled"),
    "ScaledRangeName": ("all", "finite"),
    "ScheduleName": ("ring", "rank_order"),
}


class _Types(ast.NodeTransformer):
    """Replaces the words of pybind11's versions by those of a stub."""

    def _known(self, node: ast.expr) -> ast.expr | None:
        text = ast.unparse(node)
        return ast.parse(_TYPES[text], mode="eval").body if text in _TYPES else None

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._known(node) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        known = self._known(node)
        if known is not None:
            return known
        owner = ast.unparse(node.value)
        return ast.Name(f"np.{node.attr}" if owner == "numpy" else node.attr)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        name, inner = ast.unparse(node.value).rpartition(".")[2], node.slice
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name == "Annotated":
            element = ast.unparse(parts[1])
            if ast.unparse(parts[0]).endswith("ArrayLike"):
                return ast.Name(f"NDArray[{element.replace('numpy.', 'np.')}]")
            return self.visit(parts[0])  # type: ignore[no-any-return]
        if name in ("NDArray", "ndarray"):
            return ast.Name(f"NDArray[{ast.unparse(parts[0]).replace('numpy.', 'np.')}]")
        if name == "Optional":
            return ast.BinOp(self.visit(parts[0]), ast.BitOr(), ast.Constant(None))
        if name == "Union":
            return ast.parse(" | ".join(ast.unparse(self.visit(part)) for part in parts), mode="eval").body
        made = ast.Subscript(ast.Name(name.lower() if name in ("List", "Tuple", "Dict") else name), self.visit(inner))
        return made


def _typed(annotation: ast.expr | None) -> str:
    text = "Any" if annotation is None else ast.unparse(_Types().visit(annotation))
    for alias, meaning in _ALIASES.items():
        text = text.replace(meaning, alias)
    return text


@dataclasses.dataclass
class _Signature:
    """A function's name, its arguments with their types and whether they have a default, and the type of its result."""

    name: str
    arguments: dict[str, tuple[str, bool]]
    first_named: str | None
    result: str

    def lines(self, indent: str, decorators: tuple[str, ...]) -> list[str]:
        """Its definition, in the layout of the other Python files."""
        arguments = []
        for name, (kind, has_default) in self.arguments.items():
            arguments += ["*"] if name == self.first_named else []
            arguments.append("self" if name == "self" else f"{name}: {kind}{' = ...' if has_default else ''}")
        head, end = f"{indent}def {self.name}(", f") -> {self.result}: ..."
        lines = [f"{indent}@{one}" for one in decorators]
        if len(head + ", ".join(arguments) + end) <= _WIDTH:
            return [*lines, head + ", ".join(arguments) + end]
        return [*lines, head, *(f"{indent}    {one}," for one in arguments), indent + end]


def _parsed(signature: str) -> _Signature:
    """A signature as pybind11 writes it."""
    signature = re.sub(r"fp8lab::(?:\w+::)*", "", signature)  # of a class that is bound later
    signature = re.sub(r"= (<[^>]*>|\{\})", "= ...", signature)
    for text, kind in _NUMBERS.items():
        signature = signature.replace(text, kind)
    (node,) = ast.parse(f"def {signature}: ...").body
    assert isinstance(node, ast.FunctionDef)
    given = node.args
    assert not given.posonlyargs and given.vararg is None and given.kwarg is None, node.name
    defaults = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    every = zip([*given.args, *given.kwonlyargs], defaults)
    arguments = {one.arg: (_typed(one.annotation), default is not None) for one, default in every}
    first_named = given.kwonlyargs[0].arg if given.kwonlyargs else None
    return _Signature(node.name, arguments, first_named, _typed(node.returns))


def _merged(signatures: list[_Signature]) -> list[_Signature]:
    """Those that differ in nothing but the types of their arguments as one, which takes any of them."""
    merged: list[_Signature] = []
    for one in signatures:
        known = next((other for other in merged if list(other.arguments) == list(one.arguments)), None)
        if known is None or known.result != one.result:
            merged.append(one)
            continue
        for name, (kind, has_default) in one.arguments.items():
            kinds = known.arguments[name][0].split(" | ")
            kinds += [part for part in kind.split(" | ") if part not in kinds]
            known.arguments[name] = " | ".join(kinds), has_default
    return merged


def _signatures(doc: str | None, name: str) -> list[str]:
    """The signatures that pybind11 wrote into a docstring."""
    text = doc or ""
    if "Overloaded function." in text:
        return re.findall(rf"^\d+\. ({name}\(.*)$", text, re.MULTILINE)
    return [text.split("\n", 1)[0]]


def _function(name: str, doc: str | None, indent: str, names: dict[str, str] | None = None) -> list[str]:
    found = _merged([_parsed(one) for one in _signatures(doc, name)])
    for one in found:
        for argument in one.arguments.keys() & (names or {}):
            kind, has_default = one.arguments[argument]
            one.arguments[argument] = kind.replace("str", (names or {})[argument]), has_default
    decorators = ("overload",) if len(found) > 1 else ()
    return [line for signature in found for line in signature.lines(indent, decorators)]


def _property(name: str, value: property) -> list[str]:
    _, _, result = (value.fget.__doc__ or "").strip().rpartition(" -> ")
    getter = _parsed(f"{name}(self) -> {result}")
    lines = getter.lines("    ", ("property",))
    if value.fset is not None:
        lines += [f"    @{name}.setter", f"    def {name}(self, value: {getter.result}) -> None: ..."]
    return lines


def _names_of_fields(kind: type) -> dict[str, str]:
    """The types of the names that a format and a profile are made of."""
    fields = re.findall(r"(\w+): str\b", str(kind.__init__.__doc__)) if kind.__name__ == "Profile" else []  # type: ignore
    return {field: _alias("Profile", field) for field in fields if field != "name"} | {"specials": "SpecialsName"}


def _class(kind: type) -> list[str]:
    lines = []
    for name, value in vars(kind).items():
        if name.startswith("_pybind11"):
            continue
        if name == "__eq__":
            lines.append("    def __eq__(self, other: object, /) -> bool: ...")
        elif name == "__hash__":
            none = "    __hash__: ClassVar[None]  # type: ignore[assignment]"
            lines.append(none if value is None else "    def __hash__(self) -> int: ...")
        elif isinstance(value, property):
            lines += _property(name, value)
        elif callable(value) and (name == "__init__" or not name.startswith("__")):
            doc = getattr(kind, name).__doc__
            lines += (
                _function(name, doc, "    ", _names_of_fields(kind)) if f"{name}(" in doc else []
            )  # of a class that has no constructor
    return [f"class {kind.__name__}:", *(lines or ["    ..."])]


def stub_of(core: ModuleType) -> str:
    """The text of ``_core.pyi``."""
    members = {name: value for name, value in vars(core).items() if not name.startswith("__")}
    constants = [f"{name}: {type(value).__name__}" for name, value in members.items() if isinstance(value, str)]
    constants += ["", *(f"{alias} = {meaning}" for alias, meaning in _ALIASES.items())]
    aliases = sorted({*_names_of_fields(core.Profile).values(), *_names_of_fields(core.Format).values()})
    text = (
        HEAD.replace("{literals}", "\n    ".join(f"{alias}," for alias in aliases)) + "\n" + "\n".join(constants) + "\n"
    )
    for value in members.values():
        if inspect.isclass(value):
            text += "\n" + "\n".join(_class(value)) + "\n"
    functions = [
        line
        for name, value in members.items()
        if callable(value) and not inspect.isclass(value)
        for line in _function(name, value.__doc__, "")
    ]
    return text + "\n" + "\n".join(functions) + "\n"


def names() -> str:
    """The text of ``_names.py``: the modules of the star imports of ``fp8lab``, which only a type checker makes."""
    text = pathlib.Path(__file__).with_name("fp8lab").joinpath("__init__.py").read_text()
    homes = {name: name for name in ("experiments", "gpu", "operators")}
    for module in re.findall(r"^    from fp8lab\.(\w+) import \*$", text, re.MULTILINE):
        homes.update(dict.fromkeys(importlib.import_module(f"fp8lab.{module}").__all__, module))
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        '"""Which module has each public name of ``fp8lab``. What bindings/stubs.py gives; a test compares."""',
        "",
        "HOMES = {",
        *(f'    "{name}": "{home}",' for name, home in homes.items()),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _known(call: Callable[[], object]) -> tuple[str, ...]:
    """The names that C++ lists in its refusal of the name ``?``."""
    try:
        call()
    except ValueError as error:
        listed = re.search(r"; known: ([^;]*)", str(error))
        assert listed is not None and " more" not in listed[1], error
        return tuple(listed[1].split(", "))
    raise AssertionError("? was taken for a name")


def literals() -> dict[str, tuple[str, ...]]:
    """The names that an argument may have, by the name of their type. All but those of Python's own arguments are
    asked from the compiled module."""
    from fp8lab import _bounds, _core, _elementary, _linear, _operator_arrays, _products, _rope, _softmax, _state

    devices = pathlib.Path(__file__).with_name("fp8lab") / "te" / "devices.py"  # importing it takes PyTorch

    def named(entries: Iterable[Any]) -> tuple[str, ...]:
        return tuple(one if isinstance(one, str) else one[0] if isinstance(one, tuple) else one.name for one in entries)

    def core(name: str) -> tuple[str, ...]:
        return named(getattr(_core, name)())

    e4m3, models = _core.find_format("e4m3"), core("models")
    gemm_models = ("cuda_cores", "cuda_cores_fma", *models)
    found = {
        "FormatName": core("formats"),
        "OutputName": (*core("wide_formats"), *core("formats")),
        "ProfileName": core("profiles"),
        "RoundingName": core("roundings"),
        "DrawlessRoundingName": tuple(name for name in core("roundings") if name != "stochastic"),
        "ModelName": models,
        "GemmModelName": gemm_models,
        "RecipeName": core("recipes"),
        "OperandName": (*_linear._DTYPES, *core("recipes")),
        "LinearRecipeName": core("linear_recipes"),
        "GemmRecipeName": (*core("gemm_recipes"), *gemm_models),
        "DistributionName": core("distributions"),
        "DelayedVersionName": core("delayed_versions"),
        "StateRulesName": core("state_rules"),
        "ActivationName": core("activation_rows"),
        "FunctionsName": core("functions"),
        "SpecialFunctionName": core("special_functions"),
        "SpecialTypeName": core("special_types"),
        "SpecialUnitsName": core("special_units"),
        "DeviceFunctionName": core("device_functions"),
        "DeviceChipName": core("device_chips"),
        "CudaReleaseName": core("cuda_releases"),
        "ScoreName": core("router_scores"),
        "GemmKernelName": core("gpu_gemm_kernels"),
        "JustInTimeRuleName": _known(lambda: _core.just_in_time(e4m3, "?", "tensor", 0.0, False)),
        "JustInTimeAxisName": _known(lambda: _core.just_in_time(e4m3, "te", "?", 0.0, False)),
        "MxRuleName": _known(lambda: _core.mx_block(e4m3, "?", False, None, False, "specified")),
        "BlockRuleName": _known(lambda: _core.block(e4m3, "?", 1, 128, 0.0, None)),
        "Fp8FormatName": _known(lambda: _core.DelayedRecipe(fp8_format="?")),
        "AmaxAlgorithmName": _known(lambda: _core.DelayedRecipe(amax_compute_algo="?")),
        "SpecialsName": _known(lambda: _core.Format(4, 3, 7, specials="?")),
        "EmulatedDeviceName": tuple(re.findall(r'^    _\w+\("(\w+)"', devices.read_text(), re.MULTILINE)),
        "ElementaryName": _elementary._ELEMENTARY,
        "DocumentedFunctionName": tuple(_bounds._DOCUMENTED),
        "LinearOutputName": (*_linear._DTYPES, *_linear._FP8),
        "GemmOutDtypeName": ("float64", "float32", *_products._OUT_DTYPES),
        "LayerSystemName": _linear._SYSTEMS,
        "OutDtypeName": _operator_arrays.OUT_DTYPES,
        "RopeLayoutName": _rope._ROPE_FORMATS,
        "MaskName": _softmax._MASKS,
        "RecomputeName": _state._RECOMPUTES,
    }
    for field, alias in _names_of_fields(_core.Profile).items():
        if field != "specials":
            found[alias] = _known(lambda field=field: _core.Profile(**{field: "?"}))  # type: ignore
    for prefix, choices in (("Recipe", _core.recipe_choices()), ("Gemm", _core.gemm_recipe_choices())):
        for field, names in choices.items():
            found[_alias(prefix, field)] = tuple(names)
    listed = ("FormatName", "ProfileName", "ModelName", "RecipeName", "LinearRecipeName", "GemmRecipeName")
    found["ExplainedName"] = tuple(dict.fromkeys(name for alias in listed for name in found[alias]))
    return {**found, **_OF_PYTHON}


def _alias(prefix: str, field: str) -> str:
    """The name of the type of a record's field."""
    return prefix + "".join(map(str.title, field.split("_"))) + "Name"


def literals_text() -> str:
    """The text of ``literals.py``."""
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        '"""The names that arguments may have, as types: a checker such as mypy refuses ``encode(x, "e4m4")``.',
        "",
        "Annotate your own functions with them where these hand a name on. bindings/stubs.py makes this.",
        '"""',
        "",
        "from typing import Literal",
    ]
    for alias, names in sorted(literals().items()):
        quoted = [f'"{name}"' for name in names]
        line = f"{alias} = Literal[{', '.join(quoted)}]"
        if len(line) > _WIDTH:
            line = "\n".join([f"{alias} = Literal[", *(f"    {name}," for name in quoted), "]"])
        lines += ["", line] if alias == min(literals()) else [line]
    return "\n".join(lines) + "\n"


def stubs() -> dict[str, str]:
    """The texts of the package's generated files, by their names."""
    from fp8lab import _core, _experiments

    return {
        "_core.pyi": stub_of(_core),
        "_registered.pyi": _experiments.stub(),
        "_names.py": names(),
        "literals.py": literals_text(),
    }


class _Unwritten(ModuleType):
    """``literals.py`` before it is written: any name in it is a type."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return str


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose fp8lab lacks the compiled module
    sys.modules["fp8lab.literals"] = _Unwritten("fp8lab.literals")
    for stub_name, stub_text in stubs().items():
        (pathlib.Path(__file__).with_name("fp8lab") / stub_name).write_text(stub_text)
