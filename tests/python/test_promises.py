# SPDX-License-Identifier: Apache-2.0
"""docs/promises.md: each promise names a test that is there. And those promises that no other file tests."""

import pathlib
import re
import subprocess
import sys

import fp8lab
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "promises.md"
SECTIONS = [
    "Bits",
    "Threads",
    "Files",
    "Memory",
    "Signals",
    "Errors",
    "Exit statuses",
    "Versions",
    "Python interpreters",
    "Security",
]


def promises(text: str) -> list[str]:
    """The list items of the page, each in one line."""
    return [" ".join(item.split()) for item in re.findall(r"^- (.*?)(?=^- |^#|\Z|^$)", text, re.DOTALL | re.MULTILINE)]


def missing_tests(promise: str) -> list[str]:
    """The tests that a promise names and that are not there; a promise that names none lacks one."""
    named = re.findall(r"`(tests/[\w./-]+)(?:::([^`]+))?`", promise)
    if not named:
        return ["no test is named"]
    absent = []
    for path, name in named:
        file = ROOT / path
        text = file.read_text() if file.is_file() else None
        pattern = rf"^def {name}\(" if path.endswith(".py") else rf'^TEST_CASE\(\s*"{re.escape(name)}"'
        if text is None or (name and not re.search(pattern, text, re.MULTILINE)):
            absent.append(f"{path}::{name}")
    return absent


def test_every_promise_names_a_test_that_is_there():
    text = PAGE.read_text()
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == SECTIONS
    found = promises(text)
    assert len(found) >= len(SECTIONS)
    for promise in found:
        assert missing_tests(promise) == [], promise
    assert missing_tests("a promise") and missing_tests("`tests/python/test_promises.py::test_of_nothing`")


def test_import_into_a_subinterpreter_is_refused():
    program = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
try:
    print(interpreters.run_string(interpreters.create(), "import fp8lab"))
except Exception as error:
    print(error)
"""
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "subinterpreters are not supported" in told.stdout


def test_a_free_threaded_python_keeps_its_lock_off():
    if not hasattr(sys, "_is_gil_enabled") or sys.flags.gil == 1:
        pytest.skip("this Python has a lock")
    assert fp8lab.encode([1.0], "e4m3").tolist() == [56] and not sys._is_gil_enabled()
