# SPDX-License-Identifier: Apache-2.0
"""Ranks of a data-parallel run, whose releases of Transformer Engine reduce their amaxes over one another.

Each rank has its own copy of the release's modules, so its own global state. Its events run in a thread of its own, one
thread at a time, until it calls all_reduce; when all ranks wait there, each goes on with the largest values.
"""

import threading
from types import SimpleNamespace

import numpy as np
from te_environment import replaced
from te_state import RealState


class RealRanks:
    """Like RealState, with a script for each rank. The scripts differ only in their values."""

    def __init__(self, tag: str, world: int, layers: int = 2) -> None:
        self.ranks = [RealState(tag, layers, rank=rank) for rank in range(world)]
        self.torch = self.ranks[0].torch
        self.local = threading.local()
        self.waiting: list = [None] * world
        self.go = [threading.Semaphore(0) for _ in self.ranks]
        self.stopped = threading.Semaphore(0)

    def run(self, scripts: list[list[dict]]) -> list[list[dict]]:
        """The states of each rank after each event."""
        steps = [self.step(list(events)) for events in zip(*scripts, strict=True)]
        return [list(states) for states in zip(*steps, strict=True)]

    def step(self, events: list[dict]) -> list[dict]:
        with self.ranks[0].release.active(), replaced(self.replacements()):
            return self.in_lockstep(events)

    def in_lockstep(self, events: list[dict]) -> list[dict]:
        results: list = [None] * len(events)
        threads = [threading.Thread(target=self.one, args=(rank, events[rank], results)) for rank in range(len(events))]
        for thread in threads:
            thread.start()
        while any(result is None for result in results):
            for rank in range(len(events)):
                with self.ranks[rank].release.imported():
                    self.go[rank].release()
                    self.stopped.acquire()
            self.reduce()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def one(self, rank: int, event: dict, results: list) -> None:
        self.local.rank = rank
        self.go[rank].acquire()
        try:
            results[rank] = self.ranks[rank].step_in_active_release(event)
        except Exception as error:
            results[rank] = error
        self.stopped.release()

    # --- torch.distributed --------------------------------------------------------------------------------------------

    def all_reduce(self, tensor, op=None, group=None, async_op=False) -> None:
        assert op == self.torch.distributed.ReduceOp.MAX and not async_op
        self.waiting[self.local.rank] = tensor
        self.stopped.release()
        self.go[self.local.rank].acquire()

    def reduce(self) -> None:
        """All ranks wait for the same reduction, or none does."""
        tensors = [tensor for tensor in self.waiting if tensor is not None]
        assert len(tensors) in (0, len(self.waiting))
        if tensors:
            largest = np.fmax.reduce([tensor.numpy() for tensor in tensors])
            for tensor in tensors:
                tensor.copy_(self.torch.from_numpy(largest))
        self.waiting = [None] * len(self.waiting)

    def replacements(self) -> list[tuple[object, str, object]]:
        distributed = self.torch.distributed
        operators = {name: self.operator(name) for name in vars(self.ranks[0].extension.operators)}
        return [
            (distributed, "is_initialized", lambda: True),
            (distributed, "get_world_size", lambda group=None: len(self.ranks)),
            (distributed, "get_rank", lambda group=None: self.local.rank),
            (distributed, "all_reduce", self.all_reduce),
            (self.torch.ops, "tex_ts", SimpleNamespace(**operators)),
        ]

    def operator(self, name: str):
        """The operator of the rank that calls it."""
        return lambda *args: getattr(self.ranks[self.local.rank].extension.operators, name)(*args)
