# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/tensor_cores.md from ``fp8lab models --json``: python tests/docs/tensor_cores.py."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tensor_cores.md"
BEGIN, END = "<!-- The tables are generated: python tests/docs/tensor_cores.py -->\n", "<!-- end of the tables -->\n"
MAKERS = {"any": "No chip: what the others are compared with"}
HEADS = [
    "model", "chip", "instruction", "operands", "accumulator", "K", "products", "steps", "fraction", "zero", "result", "group",
    "arithmetic", "scales", "order", "evidence", "source",
]  # fmt: skip


def cells(model: dict[str, object]) -> list[object]:
    scales = f"{model['scale_format']} / {model['scale_block']}" if model["scale_format"] else None
    order = f"{model['order']}, {model['lowering']}" if model["lowering"] != "native" else model["order"]
    note = f"{model['evidence']}: {model['evidence_note']}" if model["evidence_note"] else model["evidence"]
    numbers = [
        model[name]
        for name in ("k", "products_per_step", "steps", "fraction_bits", "zero_exponent", "result_bits", "group")
    ]
    return [
        f"`{model['name']}`", model["chip"], model["instruction"], model["operands"], model["accumulator"], *numbers, model["arithmetic"],
        scales, order, note,
        model["source"],
    ]  # fmt: skip


def row(values: list[object]) -> str:
    return "| " + " | ".join("" if value is None else str(value) for value in values) + " |\n"


def tables(document: dict[str, object]) -> str:
    """The models of a document of ``fp8lab models``, a table for each maker."""
    models = rows_of(document)
    text = BEGIN
    for maker in dict.fromkeys(model["maker"] for model in models):
        text += f"\n## {MAKERS.get(maker, maker)}\n\n" + row(HEADS) + row(["---"] * len(HEADS))
        text += "".join(row(cells(model)) for model in models if model["maker"] == maker)
    return text + "\n" + END


def rows_of(document: dict[str, object]) -> list[dict[str, object]]:
    (table,) = [section for section in document["sections"] if section["name"] == "models"]
    columns = {column["name"]: column["values"] for column in table["columns"]}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def page_with(text: str, generated: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return before + generated + rest.partition(END)[2]


if __name__ == "__main__":
    program = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "release" / "bin" / "fp8lab")
    done = subprocess.run([program, "models", "--json"], capture_output=True, text=True, check=True)
    PAGE.write_text(page_with(PAGE.read_text(), tables(json.loads(done.stdout))))
