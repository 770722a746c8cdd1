# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/kernels.md from ``fp8lab.gpu.kernels()``: python tests/docs/kernels.py."""

import pathlib

from tensor_cores import ROOT, row

PAGE = ROOT / "docs" / "kernels.md"
HEADERS = pathlib.PurePosixPath("../gpu/include/fp8lab/gpu")
BEGIN, END = "<!-- The table is generated: python tests/docs/kernels.py -->\n", "<!-- end of the table -->\n"


def table() -> str:
    import fp8lab

    text = BEGIN + row(["kernel", "what it computes", "equals", "chips", "file"]) + row(["---"] * 5)
    for one in fp8lab.gpu.kernels():
        link = f"[{one.header}]({HEADERS / one.header})"
        text += row([f"`{one.name}`", one.computes, f"`{one.equals}`", one.chips, link])
    return text + END


def page_with(text: str, generated: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return before + generated + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(), table()))
