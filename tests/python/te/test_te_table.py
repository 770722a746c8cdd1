# SPDX-License-Identifier: Apache-2.0
"""The table of the extension's names is that of the wheel's Python."""

import ast

import fp8lab.te
import pytest
from installed import folder, without_transformer_engine

EXTENSION = "transformer_engine_torch"
#: Named in ways that are no use of the extension: ONNX's own operators, and what C++ calls of its own.
NOT_OF_PYTHON = {
    "get_cudnn_version",
    "multi_tensor_quantize",
    "multi_tensor_swizzle_scales_for_gemm_",
    "group_dequantize",
}


def names_of(source: str) -> set[str]:
    """What a file takes from the extension: by attribute, and by import."""
    tree = ast.parse(source)
    aliases: set[str] = set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {one.asname or one.name for one in node.names if one.name == EXTENSION}
        elif isinstance(node, ast.ImportFrom) and node.module == EXTENSION:
            names |= {one.name for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            names.add(node.attr)
    return names - {"*"}


@without_transformer_engine
def test_the_table_has_every_name_that_the_wheel_uses_and_no_other() -> None:
    used: set[str] = set()
    for file in folder().rglob("*.py"):
        relative = file.relative_to(folder()).parts
        if relative[0] != "jax" and file.name not in ("onnx_extensions.py", "setup.py"):
            used |= names_of(file.read_text(encoding="utf-8"))
    table = {one.name for one in fp8lab.te.functions()}
    assert used - table == set(), "used by the wheel, and not in functions.json"
    assert table - used <= NOT_OF_PYTHON, "in functions.json, and not used by the wheel"
    assert len(used) > 150


def test_a_name_is_provided_or_refused_with_a_reason() -> None:
    table = fp8lab.te.functions()
    assert len({one.name for one in table}) == len(table)
    for one in table:
        assert (one.family is None) == bool(one.why), one.name
        if one.why:
            assert ";" in one.why, f"{one.name}: the reason ends with what to do"
            with pytest.raises(NotImplementedError, match=f"transformer_engine_torch.{one.name} is not provided"):
                one.refusal()()
