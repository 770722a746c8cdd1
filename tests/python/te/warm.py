# SPDX-License-Identifier: Apache-2.0
"""Programs, most under ``python -m fp8lab.te``, each in a process of its own that has imported PyTorch already.

Importing PyTorch takes longer than most of what is tested. A process imports it once, emulates nothing, and forks for each program;
what is after the fork is what ``python -m fp8lab.te`` does, or ``python`` itself.
"""

import atexit
import contextlib
import dataclasses
import functools
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path


@dataclasses.dataclass
class Told:
    """What a program printed, and its status."""

    returncode: int
    stdout: str
    stderr: str


@functools.cache
def server() -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    made = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, text=True)
    assert made.stdin is not None
    atexit.register(lambda: (made.stdin.close(), made.wait()))  # it ends with its input
    return made


def run_together(*programs: tuple[list[str], dict]) -> list[Told]:
    """Runs programs side by side: the words of the command line of ``python -m fp8lab.te``, and ``input``, ``env`` and ``path``, what
    stands first on the path of modules, where they are given; with ``plain`` the words are those of ``python``."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for number, (words, given) in enumerate(programs):
            names = {kind: str(Path(folder, f"{number}.{kind}")) for kind in ("stdin", "stdout", "stderr")}
            Path(names["stdin"]).write_text(given.get("input", ""))
            jobs.append({"words": [str(one) for one in words], "files": names, "env": given.get("env", {}),
                         "path": [str(one) for one in given.get("path", [])], "plain": given.get("plain", False)})  # fmt: skip
        running = server()
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write(json.dumps(jobs) + "\n")
        running.stdin.flush()
        statuses = json.loads(running.stdout.readline())
        return [
            Told(status, *(Path(job["files"][kind]).read_text() for kind in ("stdout", "stderr")))
            for status, job in zip(statuses, jobs, strict=True)
        ]


def run(*words, **given) -> Told:
    """Runs one program so."""
    return run_together((list(words), given))[0]


def run_emulated(words: list[str]) -> int:
    """``python -m fp8lab.te``."""
    from fp8lab.te.__main__ import main

    return main(words)


def run_plainly(words: list[str]) -> int:
    """``python`` with a program."""
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")
    return 0


def started(job: dict) -> int:
    """The process of a program."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        for number, (kind, flags) in enumerate((("stdin", os.O_RDONLY), *[(one, os.O_WRONLY | os.O_CREAT) for one in ("stdout", "stderr")])):  # fmt: skip
            os.dup2(os.open(job["files"][kind], flags), number)
        os.environ.update(job["env"])
        paths = [*job["path"], *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        sys.path[:0] = job["path"]
        sys.path_importer_cache.clear()
        status = (run_plainly if job["plain"] else run_emulated)(job["words"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    import fp8lab.te  # noqa: F401
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.tensor  # noqa: F401

    for name in ("onnxscript", "pydantic.plugin"):  # most of what Transformer Engine imports besides
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.stdin.reconfigure(line_buffering=True)
    for line in sys.stdin:
        children = [started(job) for job in json.loads(line)]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(statuses), flush=True)


if __name__ == "__main__":
    serve()
