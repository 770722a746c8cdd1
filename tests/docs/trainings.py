# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/train_without_the_hardware.md from the committed results: python tests/docs/trainings.py."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "train_without_the_hardware.md"
PROGRAM = ROOT / "docs" / "examples" / "train_without_the_hardware.py"
RESULTS = ROOT / "docs" / "data" / "train_without_the_hardware"
THRESHOLDS = [0.1, 0.3]
STEPS = [1, 10, 50, 100, 200]


def program():
    """The program of the page, as a module; it imports PyTorch only where it trains."""
    spec = importlib.util.spec_from_file_location("train_without_the_hardware", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables() -> dict[str, str]:
    """The tables, by the names that the page's marks have."""
    shown = program()
    first = shown.runs_of([RESULTS / f"{device}.json" for device in ("h100", "b200", "l40s")])
    seeds = shown.runs_of([RESULTS / "b200_seeds.json"])
    repeated = {one["recipe"] for one in seeds}
    noise = [one for one in first if one["device"] == "b200" and one["recipe"] in repeated] + seeds
    return {
        "runs": shown.table(first, THRESHOLDS),
        "seeds": shown.table(noise, THRESHOLDS),
        "layers": shown.table_of_layers(first),
        "steps": shown.table_of_steps([one for one in first if one["device"] == "b200"], STEPS, "head"),
    }


def page_with(text: str, generated: dict[str, str]) -> str:
    """The page with these tables instead of its own."""
    for name, lines in generated.items():
        begin, end = f"<!-- {name}: python tests/docs/trainings.py writes this table -->\n", f"<!-- end of {name} -->\n"
        before, mark, rest = text.partition(begin)
        if not mark or end not in rest:
            raise ValueError(f"the page has no marks of the table {name}")
        text = before + begin + lines + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(), tables()))
