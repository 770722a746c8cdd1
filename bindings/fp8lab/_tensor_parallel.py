# SPDX-License-Identifier: Apache-2.0
"""How a Linear layer is split over ranks, and how their parts are summed up."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from fp8lab import _core
from fp8lab._arrays import check_bool, check_choice, check_int, check_list, kind_of
from fp8lab._entry import guard as _guard
from fp8lab._values import Record, record
from fp8lab.literals import ParallelModeName, ReductionOrderName

__all__ = [
    "Reduction",
    "TensorParallel",
]

_MOST_RANKS = 2**31 - 1


@record
@dataclasses.dataclass(frozen=True)
class Reduction(Record):
    """The order in which a collective adds the ranks' results, each of which its GEMM has rounded to the output's type.

    Parameters
    ----------
    order : str
        ``ring``: a chunk begins at the rank behind its own, goes around, and is complete at its own, as NCCL's ring
        does. Chunks are the ranks' parts of the tokens where the sum is scattered; where all ranks get all of it, they
        are as many equal parts as there are ranks. (NCCL cuts further, by channels and buffer sizes, which it does not
        promise.) ``sequential``: rank after rank. ``pairwise``: neighbours in pairs, then pairs of pairs.
    ranks : sequence of int
        In which order ranks follow one another; empty: 0, 1, 2, ...
    in_float32 : bool
        Sums stay in float32 until the last, which is rounded. Otherwise every sum of two is rounded to the output's
        type, as NCCL's are.

    Raises
    ------
    TypeError, ValueError
        For unknown orders, and ranks that are no list of numbers.
    """

    order: ReductionOrderName = "ring"
    ranks: Sequence[int] = ()
    in_float32: bool = False

    def __post_init__(self) -> None:
        check_choice(self.order, "order", ("sequential", "ring", "pairwise"))
        ranks = check_list(self.ranks, "ranks", lambda rank, name: check_int(rank, name, 0, _MOST_RANKS))
        object.__setattr__(self, "ranks", tuple(ranks))
        object.__setattr__(self, "in_float32", check_bool(self.in_float32, "in_float32"))


@record
@dataclasses.dataclass(frozen=True)
class TensorParallel(Record):
    """How a Linear layer is split over ranks, as Transformer Engine's te.Linear has it.

    Parameters
    ----------
    mode : str
        ``column`` splits the weight's out: every rank computes columns of y from all of x, and dx is summed over the
        ranks.
        ``row`` splits its in: every rank has columns of x, and y is summed over the ranks. ``none`` splits nothing.
    ranks : int
    sequence_parallel : bool
        Between layers, every rank has a part of the tokens: of x (column), or of y and dy (row). They are gathered
        before they are multiplied, and sums are reduce-scattered.
    reduction : Reduction
        Of y (row) and dx (column).

    Raises
    ------
    TypeError, ValueError
        For a number of ranks out of range, or more than one of them where nothing is split, and for a reduction that
        does not have each of them once.
    """

    mode: ParallelModeName
    ranks: int = 1
    sequence_parallel: bool = False
    reduction: Reduction = Reduction()

    def __post_init__(self) -> None:
        check_choice(self.mode, "mode", ("none", "column", "row"))
        object.__setattr__(self, "ranks", check_int(self.ranks, "ranks", 1, _MOST_RANKS))
        object.__setattr__(self, "sequence_parallel", check_bool(self.sequence_parallel, "sequence_parallel"))
        if not isinstance(self.reduction, Reduction):
            raise TypeError(f"reduction must be a Reduction, not {kind_of(self.reduction)}")
        _core.check_tensor_parallel(self._core())

    def _core(self) -> tuple[str, int, bool, str, list[int], bool]:
        reduction = self.reduction
        return (
            self.mode,
            self.ranks,
            self.sequence_parallel,
            reduction.order,
            list(reduction.ranks),
            reduction.in_float32,
        )


_WHOLE = TensorParallel("none")


def as_parallel(value: Any) -> TensorParallel:
    """The value, or, of None, a layer that is not split."""
    if value is None:
        return _WHOLE
    if not isinstance(value, TensorParallel):
        raise TypeError(f"parallel must be a TensorParallel, not {kind_of(value)}")
    return value


_guard(__name__, __all__)
