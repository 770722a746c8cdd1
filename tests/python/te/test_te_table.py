# SPDX-License-Identifier: Apache-2.0
"""The table of the extension's names is that of the wheel's Python."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import fp8lab.te
import pytest
import repositories
from installed import folder, folder_of, without_transformer_engine
from sampled import sampled

EXTENSION, ITS_PYTHON, OPERATORS = "transformer_engine_torch", "cpp_extensions", "tex_ts"
OPERATORS_MODULE = f"torch.ops.{OPERATORS}"
#: Named in ways that are no use of the extension: ONNX's own operators, and what C++ calls of its own.
NOT_OF_PYTHON = {
    "get_cudnn_version",
    "multi_tensor_quantize",
    "multi_tensor_swizzle_scales_for_gemm_",
    "group_dequantize",
}


def names_of(nodes: list[ast.AST], module: str) -> set[str]:
    """What a file takes from a module: by attribute, and by import."""
    aliases: set[str] = set()
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            aliases |= {one.asname or one.name for one in node.names if one.name.split(".")[-1] == module}
        elif isinstance(node, ast.ImportFrom):
            aliases |= {one.asname or one.name for one in node.names if one.name == module}
            if str(node.module).split(".")[-1] == module:
                names |= {one.name for one in node.names}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            names.add(node.attr)
    return names - {"*"}


def operators_of(nodes: list[ast.AST]) -> set[str]:
    """What a file takes of ``torch.ops.tex_ts``."""
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)]
    return {node.attr for node in attributes if node.value.attr == OPERATORS}


def used_by(package: Path) -> tuple[set[str], set[str]]:
    """What the Python of a release takes of its extension, and of the operators that it registers."""
    used: set[str] = set()
    passed_on: set[str] = set()
    own: set[str] = set()
    operators: set[str] = set()
    for file in package.rglob("*.py"):
        relative = file.relative_to(package).parts
        if relative[0] not in ("pytorch", "common") or file.name in ("onnx_extensions.py", "te_onnx_extensions.py"):
            continue
        text = file.read_text(encoding="utf-8")
        if not any(one in text for one in (EXTENSION, ITS_PYTHON, OPERATORS)) and ITS_PYTHON not in relative:
            continue
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        used |= names_of(nodes, EXTENSION)
        operators |= operators_of(nodes)
        passed_on |= names_of(nodes, ITS_PYTHON)  # which imports all of the extension
        if ITS_PYTHON in relative:
            own |= {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
            own |= {
                one.id
                for node in nodes
                if isinstance(node, ast.Assign)
                for one in node.targets
                if isinstance(one, ast.Name)
            }
            own |= {Path(relative[-1]).stem} | {"tex"}
    return used | (passed_on - own), operators


def package_of(release: str) -> Path:
    return folder() if release == fp8lab.te.releases()[0] else folder_of(release) / "transformer_engine"


@without_transformer_engine
@pytest.mark.parametrize("release", sampled(fp8lab.te.releases(), 4))
def test_the_table_has_every_name_that_the_wheel_uses_and_no_other(release: str) -> None:
    newest = fp8lab.te.releases()[0]
    used, operators = used_by(package_of(release))
    table = {one.name for one in fp8lab.te.functions(release) if not one.module}
    assert used - table == set(), "used by the wheel, and not in the table"
    assert table - used <= NOT_OF_PYTHON, "in the table, and not used by the wheel"
    assert {one.name for one in fp8lab.te.functions(release) if one.module == OPERATORS_MODULE} == operators
    assert len(used) > {newest: 150}.get(release, 70)


@without_transformer_engine
@pytest.mark.parametrize("release", ["2.20.2", "2.10.0"])
def test_functions_over_triton_kernels_are_the_wheels_with_its_arguments(release: str) -> None:
    """Of each module of which one is provided all are, and each has the arguments of the wheel's."""
    table = [one for one in fp8lab.te.functions(release) if one.module.startswith("triton.")]
    assert {one.module for one in table} >= {"triton.permutation"}
    package = package_of(release)
    for module in {one.module for one in table}:
        tree = ast.parse(Path(package, "pytorch", *module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        wheels = {node.name: node for node in functions if not node.name.startswith("_")}
        own = {one.name: one for one in table if one.module == module}
        assert set(own) == set(wheels)
        for name, one in own.items():
            function = getattr(importlib.import_module(f"fp8lab.te.{one.family}"), name)
            assert list(inspect.signature(function).parameters) == [arg.arg for arg in wheels[name].args.args], name


#: The commit of each release, of the newest one the nearest.
COMMITS = {"2.20.2": "d0067d0da6cb01811b8072a7d304f0e00344ce2b", "2.10.0": "v2.10", "2.2.0": "v2.2", "1.13.0": "v1.13"}


def arguments_of(declarations: str) -> dict[str, int]:
    """How many arguments the functions of a C++ header take, by name."""
    found = {}
    text = re.sub(r"//[^\n]*", "", declarations)
    for name, arguments in re.findall(r"\b(\w+)\(([^;{}]*)\)\s*;", text):
        while re.search(r"<[^<>]*>|\([^()]*\)", arguments):
            arguments = re.sub(r"<[^<>]*>|\([^()]*\)", "", arguments)
        found[name] = arguments.count(",") + 1 if arguments.strip() else 0
    return found


@without_transformer_engine
@pytest.mark.parametrize("release", fp8lab.te.releases())
def test_a_function_takes_as_many_arguments_as_the_extension_of_its_release(release: str) -> None:
    file = f"{COMMITS[release]}:transformer_engine/pytorch/csrc/extensions.h"
    try:
        header = repositories.git(repositories.TRANSFORMER_ENGINE, "show", file)
    except repositories.NoCheckoutError as error:
        pytest.skip(str(error))
    declared = arguments_of(header.decode())
    compared = 0
    for one in fp8lab.te.functions(release):
        if one.family in (None, "enums") or one.name not in declared:
            continue
        parameters = inspect.signature(getattr(importlib.import_module(f"fp8lab.te.{one.family}"), one.name)).parameters
        open_ended = any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters.values())
        named = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
        least = sum(each.default is each.empty for each in named)
        most = 99 if open_ended else len(parameters)
        assert least <= declared[one.name] <= most, f"{one.name} takes {least} to {most}, not {declared[one.name]}"
        compared += 1
    assert compared > 40


def test_an_unknown_release_is_named() -> None:
    with pytest.raises(ValueError, match="unknown release '2.3.0' of transformer_engine; known: 2.20.2, 2.10.0, "):
        fp8lab.te.functions("2.3.0")


PAGE = Path(__file__).parents[3] / "docs" / "transformer_engine.md"


@pytest.mark.parametrize("release", fp8lab.te.releases())
def test_the_page_has_the_counts_of_a_release(release: str) -> None:
    provided = [one.family is not None for one in fp8lab.te.functions(release)]
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {release} |"))
    assert f"| {provided.count(True)}, {provided.count(False)} |" in row


@pytest.mark.parametrize("release", fp8lab.te.releases())
def test_a_name_is_provided_or_refused_with_a_reason(release: str) -> None:
    table = fp8lab.te.functions(release)
    assert len({one.name for one in table}) == len(table)
    for one in table:
        assert (one.family is None) == bool(one.why), one.name
        if one.why:
            assert ";" in one.why, f"{one.name}: the reason ends with what to do"
            with pytest.raises(NotImplementedError, match=rf"{one.name} is not provided .* {release}: "):
                one.refusal()()
