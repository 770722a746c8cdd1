# SPDX-License-Identifier: Apache-2.0
"""What NCCL does between processes and gloo does not: several collectives that are issued as one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["coalescing_manager_of"]


class _Ended:
    """Collectives that have ended when they were called."""

    def wait(self) -> bool:
        return True


def coalescing_manager_of(own: Any) -> Any:
    """``torch.distributed._coalescing_manager``, also for groups of a backend that has none: their collectives are
    issued one by one, with the same values."""
    import torch.distributed as dist

    @contextlib.contextmanager
    def coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[Any]:
        if dist.get_backend(group) != "nccl":
            yield _Ended()
            return
        with own(group, device, async_ops) as works:
            yield works

    return coalescing_manager
