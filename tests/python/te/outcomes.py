# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin for Transformer Engine's own tests: writes what became of each case to the file that FP8LAB_OUTCOMES names.

A case is ``passed``, ``not applicable`` where its own test skips it, ``refused`` where fp8lab.te does not provide what it calls, or
``failed``; the last three have a reason. With FP8LAB_SECONDS a file ends after that time, its cases in an order that has nothing to do
with what they are about, and a case that takes longer than CASE_SECONDS is left out: what is not run is left out by time alone.
"""

import hashlib
import json
import os
import re
import signal
import time

import pytest

CASE_SECONDS = 20
#: What NotImplementedError says where fp8lab.te refuses.
REFUSAL = re.compile(r"(.{1,120}?) is not provided by fp8lab\.te")


def reason_of(report) -> str:
    """One line: what was refused, or the last line of the error."""
    text = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    refused = [match for match in map(REFUSAL.search, lines) if match]
    if refused:
        return refused[0][1].removeprefix("NotImplementedError: ")
    return (lines[0] if lines else text.strip().splitlines()[-1] if text.strip() else "")[:200]


class TooLongError(BaseException):
    """A case took longer than CASE_SECONDS."""


def end_case(*_signal) -> None:
    raise TooLongError


class Outcomes:
    def __init__(self) -> None:
        self.cases: dict[str, tuple[str, str]] = {}
        self.left_out: set[str] = set()
        self.seconds = float(os.environ.get("FP8LAB_SECONDS", "inf"))
        self.start = time.monotonic()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        if self.seconds != float("inf"):
            signal.signal(signal.SIGALRM, end_case)
            signal.setitimer(signal.ITIMER_REAL, CASE_SECONDS)
        outcome = yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        if outcome.excinfo is not None and issubclass(outcome.excinfo[0], TooLongError):
            self.left_out.add(item.nodeid)
            outcome.force_exception(pytest.skip.Exception("too long"))
        if time.monotonic() - self.start > self.seconds:
            item.session.shouldstop = "the time of the file is over"

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
        for name in self.left_out:
            self.cases.pop(name, None)
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
    print(f"collected: {len(items)}")
    if "FP8LAB_SECONDS" in os.environ:
        items.sort(key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())


def pytest_configure(config) -> None:
    config.pluginmanager.register(Outcomes())
