# SPDX-License-Identifier: Apache-2.0
"""Runs the program ``fp8lab`` as a user does: arguments in; exit status, stdout, stderr and files out.

The environment variable FP8LAB names the program; without it the release build is taken, and where that is missing the
test is skipped.
FP8LAB_SANITIZED says that the program is sanitized, and so many times slower.
"""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = pathlib.Path(os.environ.get("FP8LAB") or ROOT / "build" / "release" / "bin" / "fp8lab")

#: A case that takes too long in a sanitized program, which runs the same code in a shorter case.
takes_long = pytest.mark.skipif("FP8LAB_SANITIZED" in os.environ, reason="the sanitized program runs a shorter case")


def arguments_of(line: str) -> list[str]:
    """The arguments that a shell makes of ``line``."""
    return shlex.split(line)


def run(arguments: str | list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the program with the arguments; ``environment`` is added to the environment of the test."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built; ./dev build does it")
    words = arguments_of(arguments) if isinstance(arguments, str) else arguments
    return subprocess.run(
        [str(PROGRAM), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100", **environment},
        timeout=600,
    )


def prints(arguments: str | list[str], pattern: str = "", status: int = 0, **environment: str) -> str:
    """Requires the status, an empty stderr, and ``pattern`` somewhere in stdout; returns stdout. A dot matches any
    character."""
    done = run(arguments, **environment)
    assert (done.returncode, done.stderr) == (status, ""), done.stdout[-2000:]
    assert re.search(pattern, done.stdout, re.DOTALL), done.stdout
    return done.stdout


def prints_nothing(arguments: str | list[str], status: int = 0, **environment: str) -> None:
    """Requires the status, an empty stdout and an empty stderr."""
    done = run(arguments, **environment)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def refuses(arguments: str | list[str], message: str) -> None:
    """Requires status 2, an empty stdout, and one line on stderr that ends with the pattern ``message``."""
    done = run(arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert re.fullmatch(rf"fp8lab: .*{message}\n", done.stderr), done.stderr


def files_in(directory: pathlib.Path) -> list[str]:
    """The names of the files in a directory, sorted, hidden ones too."""
    return sorted(path.name for path in directory.iterdir())


def column(path: pathlib.Path, table: str, name: str) -> list[object]:
    """The values of a table's column in the JSON of a document."""
    sections = json.loads(path.read_text())["sections"]
    columns = next(section for section in sections if section["name"] == table)["columns"]
    values: list[object] = next(one for one in columns if one["name"] == name)["values"]
    return values


def refuses_a_file_as_directory(arguments: str, tmp_path: pathlib.Path) -> None:
    """Requires that ``--out`` refuses what is a file."""
    (tmp_path / "file").write_text("")
    refuses(f"{arguments} --out {tmp_path}/file", "is not a directory")


def keeps_the_old_result(arguments: str, name: str, tmp_path: pathlib.Path) -> None:
    """Requires that a run whose file ``name`` is read-only fails, changes no file of the earlier result, and leaves
    nothing."""
    out = tmp_path / "result"
    prints_nothing(f"{arguments} --quiet --out {out}")
    (out / name).chmod(0o400)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    refuses(f"{arguments} --out {out}", re.escape(name) + ": the file is read-only")
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
    assert files_in(tmp_path) == ["result"]


def leaves_nothing_when_stopped(arguments: str, tmp_path: pathlib.Path) -> None:
    """Requires that Ctrl-C in the middle of a run ends it, with no result and nothing printed."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built; ./dev build does it")
    process = subprocess.Popen(
        [str(PROGRAM), *arguments_of(arguments), "--out", str(tmp_path / "stopped")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode != 0 and stdout == b""
    assert files_in(tmp_path) == []
