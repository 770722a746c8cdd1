# SPDX-License-Identifier: Apache-2.0
"""A check on a Dask cluster: ranges of tensors are tasks, and the lines that they give make the result."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import re
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

from fp8lab import _core, _values  # noqa: F401  # the latter makes the pickles of recipes
from fp8lab._arrays import kind_of, short

#: The first is that of an address without one.
_SCHEMES = ("tcp", "tls", "ucx", "ws", "wss")
#: Seconds: until a scheduler answers, until it has a worker, and without any worker.
_CONNECT, _FIRST_WORKER, _NO_WORKER = 5, 10, 60
#: Tasks of a thread of the cluster: more are more even, and each reads the headers of all files.
_TASKS = 4

Sizes = Sequence[tuple[int, int]]


def _library() -> Any:
    try:
        import distributed
    except ImportError:
        raise ImportError("scheduler needs dask.distributed: pip install 'fp8lab[dask]'") from None
    return distributed


def measure(version: str, order: dict[str, Any], tensors: list[int]) -> tuple[str, str]:
    """Runs on a worker: its address, and the lines of these tensors."""
    address = _library().get_worker().address
    if version != _core.version:
        raise ValueError(f"worker {address} has fp8lab {_core.version}, and this process {version}")
    try:
        return f"worker {address}", _core.check_lines(order, tensors)
    except (OSError, ValueError) as error:
        raise type(error)(f"worker {address}: {error}") from None


def ranges(sizes: Sizes, parts: int) -> Iterator[list[int]]:
    """Neighbours of together a part of all elements, or one tensor."""
    most = sum(size for _, size in sizes) / max(1, parts)
    some: list[int] = []
    held = 0
    for tensor, size in sizes:
        if some and held + size > most:
            yield some
            some, held = [], 0
        some.append(tensor)
        held += size
    yield some


class _Quiet:
    """The loggers of dask.distributed and of its event loop, which tell a failure and a cancellation in many lines,
    silent until ``restore()``."""

    def __init__(self) -> None:
        names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
        names.append("tornado.application")
        self._levels = {name: logging.getLogger(name).level for name in names}
        for name in names:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    def restore(self) -> None:
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)


def _knock(scheduler: str) -> None:
    """Raises unless something at the address speaks as a scheduler does, which begins by itself: dask.distributed would
    try a closed port for seconds, and wait for ever for one that is silent."""
    parts = re.fullmatch(r"(?:([a-z]+)://)?\[?([^/\s\[\]]+)\]?:([0-9]{1,5})", scheduler)
    if parts is None or (parts[1] or "tcp") not in _SCHEMES:
        raise ValueError(f"scheduler must be {_SCHEMES[0]}://HOST:PORT, not {short(scheduler)!r}")
    with socket.create_connection((parts[2], min(int(parts[3]), 65535)), _CONNECT) as connection:
        if parts[1] in (None, "tcp") and not connection.recv(1):
            raise OSError("the connection was closed")


def _open(scheduler: str) -> Any:
    """A client of the scheduler of that address."""
    try:
        _knock(scheduler)
        return _library().Client(scheduler, timeout=_CONNECT, set_as_default=False)
    except OSError as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise OSError(f"scheduler {short(scheduler)!r} does not answer: {why}") from None


class Work:
    """What runs on a cluster for one check."""

    def __init__(self, scheduler: str, client: Any, order: dict[str, Any], sizes: Sizes) -> None:
        library = _library()
        self._scheduler = scheduler
        self._own = client is None
        self._quiet = _Quiet() if self._own else None
        self._client: Any = None
        self._futures: list[Any] = []
        self._lonely_since: float | None = None
        try:
            self._client = client if client is not None else _open(scheduler)
            threads = self._threads()
            tasks = ranges(sizes, _TASKS * threads)
            self._futures = [
                self._client.submit(measure, _core.version, order, some, pure=False, key=f"fp8lab-check-{id(self)}-{i}")
                for i, some in enumerate(tasks)
            ]
            self._done = library.as_completed(self._futures, self._client.loop, with_results=True, raise_errors=False)
        except BaseException:
            self.close()
            raise

    def _threads(self) -> int:
        end = time.monotonic() + _FIRST_WORKER
        while True:
            threads = self._client.nthreads()
            if threads:
                return sum(threads.values())
            if time.monotonic() > end:
                raise OSError(f"scheduler {self._scheduler!r} has no workers")
            time.sleep(0.1)

    def next(self) -> list[tuple[str, str]] | None:
        """What has come, with who measured it; None: all has. Waits a twentieth of a second."""
        if self._done.is_empty():
            return None
        come = self._done.next_batch(block=False)
        if not come:
            self._look()
            time.sleep(0.05)
        return [self._result(future, result) for future, result in come]

    def _result(self, future: Any, result: Any) -> tuple[str, str]:
        if future.status == "finished":
            worker, lines = result
            return worker, lines
        if future.status == "cancelled":
            raise OSError(f"scheduler {self._scheduler!r} is gone, or has cancelled the tasks")
        error = result[1] if isinstance(result, tuple) else future.exception()
        if isinstance(error, (OSError, ValueError, ImportError)):
            raise error
        if type(error).__name__ == "KilledWorker":
            raise OSError("the workers end while they measure: a task was tried on several, and each was lost")
        raise OSError(f"a task failed: {type(error).__name__}: {error}")

    def _look(self) -> None:
        """Raises where nobody is left who could measure."""
        if self._client.status not in ("running", "connecting"):
            raise OSError(f"scheduler {self._scheduler!r} is gone")
        if self._client.scheduler_info(n_workers=-1)["workers"]:
            self._lonely_since = None
            return
        now = time.monotonic()
        self._lonely_since = self._lonely_since or now
        if now - self._lonely_since > _NO_WORKER:
            raise OSError(f"scheduler {self._scheduler!r} has had no workers for {_NO_WORKER} s")

    def close(self) -> None:
        """Cancels what has not come."""
        try:
            if self._client is not None and self._futures and self._client.status == "running":
                self._client.cancel([future for future in self._futures if not future.done()], force=True)
            if self._client is not None and self._own:
                self._client.close(timeout=2)
        finally:
            if self._quiet is not None:
                self._quiet.restore()


#: The client that a caller of ``check`` has given.
_GIVEN: contextvars.ContextVar[Any] = contextvars.ContextVar("client", default=None)


def connect(scheduler: str, order: dict[str, Any], sizes: Sizes) -> Work:
    """Gives the tasks to the scheduler of that address."""
    return Work(scheduler, _GIVEN.get(), order, sizes)


@contextlib.contextmanager
def scheduler_of(given: Any) -> Iterator[str]:
    """The address of a scheduler that is named, or of a client, which ``connect`` then uses."""
    library = _library()
    if isinstance(given, str):
        yield given
        return
    if not isinstance(given, library.Client):
        raise TypeError(
            f"scheduler must be the address of a Dask scheduler or a distributed.Client, not {kind_of(given)}"
        )
    if given.asynchronous:
        raise ValueError("scheduler must be a client that is not asynchronous")
    if given.status != "running":
        raise ValueError(f"scheduler must be a client that is running, and it is {given.status}")
    token = _GIVEN.set(given)
    try:
        yield str(given.scheduler.address)
    finally:
        _GIVEN.reset(token)
