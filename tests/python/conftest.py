# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import re
import signal
import threading
import time
import zlib

import numpy as np
import pytest
from sampled import EXHAUSTIVE

#: How many tests the sample leaves out.
LEFT_OUT = pytest.StashKey[int]()


def undated(document) -> str:
    """The JSON of a result without the time of its run, which may pass a second's end between two runs."""
    text, dates = re.subn(r'"date": "[^"]*"', '"date": ""', document.to_json())
    assert dates == 1
    return text


@contextlib.contextmanager
def interrupted_after(seconds: float, within: float = 0.5):
    """A block that Ctrl-C has to end, after so many seconds, with ``within`` seconds of work: also in background jobs,
    which may ignore SIGINT.

    Work is the processor's time of all threads, which other processes do not lengthen.
    """
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(seconds, interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
        if "FP8LAB_SANITIZED" not in os.environ:  # where all work takes many times as long
            assert time.process_time() - sent[0] < within
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, before)


def mixed(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def splitmix(seed: int, count: int) -> np.ndarray:
    """The SplitMix64 sequence as uint64: seeded bits that no library's version changes."""
    return mixed(np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))


@pytest.fixture(scope="session")
def floats() -> np.ndarray:
    """2^22 seeded floats, or 2^24 of them: any bit pattern, and as many again near the formats' range."""
    words = splitmix(20261121, 1 << (24 if EXHAUSTIVE else 22)).astype(np.uint32)
    near = (words & np.uint32(0x80FFFFFF)) + np.uint32(0x36000000) + (words >> np.uint32(29) << np.uint32(25))
    words[::2] = near[::2]
    words.flags.writeable = False
    return words.view(np.float32)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A sample of what is long, or all of it with FP8LAB_EXHAUSTIVE.

    Of a test under ``pytest.mark.sample(every)`` one case of ``every`` is taken, and of a file under ``sample(every, tests=n)`` one
    test of ``n``. Which are taken follows from the names of the test and its file, so that tests of like parameters take different
    cases, and those in every folder that the project is in. Who names a file gets each of its tests, and who names a case or words
    (``-k``) all.
    """
    if EXHAUSTIVE or config.option.keyword or any("::" in one for one in config.args):
        return
    named = any(one.endswith(".py") for one in config.args)
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    seen: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("sample")
        file = item.nodeid.partition("::")[0]
        name = f"{file}::{getattr(item, 'originalname', item.name)}"
        tests = [one.kwargs["tests"] for one in item.iter_markers("sample") if "tests" in one.kwargs]
        number = seen[name] = seen.get(name, -1) + 1
        if tests and not named and zlib.crc32(name.encode()) % tests[0] != 0:
            left.append(item)
        elif mark is None or name == f"{file}::{item.name}":
            kept.append(item)
        else:
            (every,) = mark.args
            # The first case is taken of a test that has fewer cases than that.
            (kept if number == 0 or (number + zlib.crc32(name.encode())) % every == 0 else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        config.stash[LEFT_OUT] = len(left)
        items[:] = kept


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several tells the first one how many tests the sample leaves out, which all of them find."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    left_out = getattr(node, "workeroutput", {}).get("left_out", 0)
    node.config.stash[LEFT_OUT] = max(left_out, node.config.stash.get(LEFT_OUT, 0))


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """Prints a line as of skipped tests, which ./dev test counts."""
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"SKIPPED [{left_out}] sample: left out of the sample: ./dev test --exhaustive")
