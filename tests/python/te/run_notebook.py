# SPDX-License-Identifier: Apache-2.0
"""Runs the code cells of a notebook one after the other, and prints JSON: for each what it printed and what the notebook shows."""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path


def shown(cell) -> str:
    """The text below a cell."""
    texts = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"])
    return "".join("".join(text) for text in texts)


def run(source: str, names: dict) -> str:
    """What a cell prints, and the value of its last expression, as a notebook shows them."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue() + ("" if value is None else repr(value))


def main() -> None:
    notebook = Path(sys.argv[1])
    sys.path.insert(0, str(notebook.parent))
    names: dict = {}
    told = []
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        try:
            told.append({"printed": run("".join(cell["source"]), names), "shown": shown(cell)})
        except (RuntimeError, AssertionError) as error:
            told.append({"error": str(error), "shown": shown(cell)})
    print(json.dumps(told))


if __name__ == "__main__":
    main()
