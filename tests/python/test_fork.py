# SPDX-License-Identifier: Apache-2.0
"""The threads that calls leave waiting are no business of fork(): a child starts its own."""

import os
import signal
import threading
import warnings

import fp8lab
import numpy as np
import pytest

X = np.linspace(-500, 500, 1 << 16, dtype=np.float32)


def _exit_status(work) -> int:
    """What a child ends with that runs ``work``; it is killed after 20 seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that the test itself started
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        os._exit(0 if work() else 1)
    return os.waitpid(child, 0)[1]


def test_a_child_computes_on_threads_what_its_parent_does():
    expected = fp8lab.encode(X, "e4m3", threads=4)
    assert _exit_status(lambda: (fp8lab.encode(X, "e4m3", threads=4) == expected).all()) == 0
    assert (fp8lab.encode(X, "e4m3", threads=4) == expected).all()


def test_a_fork_during_calls_of_other_threads_leaves_both_processes_working():
    expected = fp8lab.encode(X, "e4m3")
    stop = threading.Event()

    def calls():
        while not stop.is_set():
            fp8lab.encode(X, "e4m3", threads=3)

    others = [threading.Thread(target=calls) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(10):
            assert _exit_status(lambda: (fp8lab.encode(X, "e4m3", threads=4) == expected).all()) == 0
    finally:
        stop.set()
        for other in others:
            other.join()


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="the system does not list a process's threads")
def test_threads_wait_for_the_next_call_until_a_fork_ends_them():
    def tasks():
        return set(os.listdir("/proc/self/task"))

    _exit_status(lambda: True)  # ends those of other tests
    before = tasks()
    fp8lab.encode(X, "e4m3", threads=8)
    waiting = tasks() - before
    assert len(waiting) == 7
    for _ in range(20):
        fp8lab.encode(X, "e4m3", threads=8)
    assert tasks() - before == waiting
    _exit_status(lambda: True)
    assert not tasks() & waiting
