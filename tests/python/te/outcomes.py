# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin for Transformer Engine's own tests: writes what became of each case to the file that FP8LAB_OUTCOMES names.

A case is ``passed``, ``not applicable`` where its own test skips it, ``refused`` where fp8lab.te does not provide what it calls, or
``failed``; the last three have a reason.
"""

import json
import os
import re

import pytest

#: What NotImplementedError says where fp8lab.te refuses.
REFUSAL = re.compile(r"(\S+(?: [^:]{0,60})?) is not provided by fp8lab\.te")


def reason_of(report) -> str:
    """One line: what was refused, or the last line of the error."""
    text = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    refused = REFUSAL.search(text)
    if refused:
        return refused[1]
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    return (lines[0] if lines else text.strip().splitlines()[-1] if text.strip() else "")[:200]


class Outcomes:
    def __init__(self) -> None:
        self.cases: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report) -> None:
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            self.cases[report.nodeid] = ("passed", "")
        elif report.skipped or hasattr(report, "wasxfail"):
            self.cases[report.nodeid] = ("not applicable", reason_of(report).removeprefix("Skipped: "))
        elif report.failed:
            reason = reason_of(report)
            is_refused = "is not provided by fp8lab.te" in str(report.longrepr)
            self.cases[report.nodeid] = ("refused" if is_refused else "failed", reason)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.cases[f"{report.nodeid}::(collection)"] = ("failed", reason_of(report))

    def pytest_sessionfinish(self) -> None:
        with open(os.environ["FP8LAB_OUTCOMES"], "w", encoding="utf-8") as file:
            json.dump(self.cases, file, indent=0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items) -> None:
    """Keeps the cases that FP8LAB_SELECTION lists, where that is set."""
    wanted = os.environ.get("FP8LAB_SELECTION")
    if wanted:
        with open(wanted, encoding="utf-8") as file:
            names = set(json.load(file))
        items[:] = [item for item in items if item.nodeid in names]


def pytest_configure(config) -> None:
    config.pluginmanager.register(Outcomes())
