# SPDX-License-Identifier: Apache-2.0
"""FP8 gradients over the ranks of torch.distributed: as MS-AMP's code reduces them, and as FP8-LM's text does.

The code is msamp/common/tensor/tensor_dist.py, msamp/nn/distributed.py and msamp/operators/dist_op of Azure/MS-AMP
9746ea8; the text is section 2.1 of Peng et al., FP8-LM: Training FP8 Large Language Models (arXiv 2310.18313).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from fp8lab._arrays import check_choice, check_int, kind_of
from fp8lab._entry import entry
from fp8lab.literals import Fp8QtypeName, ScheduleName
from fp8lab.msamp._arithmetic import decoded, encoded
from fp8lab.msamp._linear import Linear
from fp8lab.msamp._tensors import (
    FP8,
    LARGEST,
    ScalingMeta,
    ScalingParameter,
    ScalingTensor,
    cast,
    check_plain,
    scaling_factor,
)

__all__ = ["AutoScale", "FP8DistributedDataParallel", "all_reduce_average", "all_reduce_codes", "sum_codes"]

SCHEDULES = ("ring", "rank_order")


@entry
def sum_codes(
    of_ranks: Sequence[torch.Tensor], qtype: Fp8QtypeName = "e4m3", *, schedule: ScheduleName = "ring"
) -> torch.Tensor:
    """The sum of FP8 codes as a collective of MS-AMP's library makes it: each addition is rounded to FP8.

    Parameters
    ----------
    of_ranks : sequence of Tensor of uint8
        The codes of each rank, of one shape.
    qtype : str
        "e4m3" or "e5m2".
    schedule : str
        "ring": rank r's part of N equal ones of the flat tensor, the last ones shorter, begins at rank r + 1 and ends
        at r. "rank_order": all begins at rank 0. Which order NCCL takes depends on the machine's connections.

    Returns
    -------
    Tensor of uint8
        What the library's addition in float16 and its satfinite cast give is the sum rounded once: both agree for all
        pairs of finite codes.

    Raises
    ------
    TypeError, ValueError
        For codes of other types and shapes, and for unknown names.
    """
    check_choice(qtype, "qtype", FP8)
    check_choice(schedule, "schedule", SCHEDULES)
    if not of_ranks:
        raise ValueError("of_ranks must have the codes of at least one rank")
    for one in of_ranks:
        if not isinstance(one, torch.Tensor) or one.dtype != torch.uint8:
            raise TypeError(f"of_ranks must be torch tensors of uint8, not {getattr(one, 'dtype', kind_of(one))}")
        if one.shape != of_ranks[0].shape:
            raise ValueError(f"of_ranks must have one shape, not {tuple(of_ranks[0].shape)} and {tuple(one.shape)}")
    ranks = len(of_ranks)
    flat = [one.contiguous().view(-1) for one in of_ranks]
    if schedule == "rank_order":
        return _chain(flat, qtype).view(of_ranks[0].shape)
    size = max(1, -(-flat[0].numel() // ranks))
    parts = []
    for part in range(ranks):
        order = [(part + 1 + i) % ranks for i in range(ranks)]
        parts.append(_chain([flat[rank][part * size : (part + 1) * size] for rank in order], qtype))
    return torch.cat(parts).view(of_ranks[0].shape)


def _chain(codes: list[torch.Tensor], qtype: Fp8QtypeName) -> torch.Tensor:
    total = codes[0]
    for one in codes[1:]:
        total = encoded(decoded(total, qtype) + decoded(one, qtype), qtype)
    return total.clone()


def _ranks(group: Any = None) -> int:
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def all_reduce_codes(
    codes: torch.Tensor, qtype: Fp8QtypeName = "e4m3", *, schedule: ScheduleName = "ring", group: Any = None
) -> None:
    """Makes of FP8 codes their sum over the ranks of torch.distributed, in place: ``sum_codes`` of all ranks' codes.

    Parameters
    ----------
    codes : Tensor of uint8
    qtype, schedule : str
        As of ``sum_codes``.
    group : torch.distributed.ProcessGroup, optional
    """
    ranks = _ranks(group)
    if ranks == 1:
        return
    of_ranks = [torch.empty_like(codes, memory_format=torch.contiguous_format) for _ in range(ranks)]
    dist.all_gather(of_ranks, codes.contiguous(), group=group)
    codes.copy_(sum_codes(of_ranks, qtype, schedule=schedule))


def all_reduce_average(
    gradients: Sequence[ScalingTensor], *, schedule: ScheduleName = "ring", group: Any = None
) -> None:
    """Averages FP8 gradients over the ranks: one flat tensor of the codes of all is summed, and each inverse scale is
    divided by the number of ranks. Their scales must be those of all ranks already, as a cast with ``sync`` makes them.

    Parameters
    ----------
    gradients : sequence of ScalingTensor
        Of one qtype, E4M3 or E5M2.
    schedule : str
        As of ``sum_codes``.
    group : torch.distributed.ProcessGroup, optional
    """
    for one in gradients:
        if not isinstance(one, ScalingTensor) or one.qtype not in FP8:
            raise TypeError(f"gradients must be ScalingTensors of E4M3 or E5M2, not {one!r:.80}")
        if one.qtype != gradients[0].qtype:
            raise TypeError(f"gradients must have one qtype, not {gradients[0].qtype} and {one.qtype}")
    ranks = _ranks(group)
    if ranks == 1 or not gradients:
        return
    flat = torch.cat([one.value.contiguous().view(-1) for one in gradients])
    all_reduce_codes(flat, gradients[0].qtype, schedule=schedule, group=group)
    begin = 0
    for one in gradients:
        one.value = flat[begin : begin + one.numel()].view(one.shape)
        begin += one.numel()
        one.div_(ranks)


# --- automatic scaling, as FP8-LM describes it ------------------------------------------------------------------------


class AutoScale:
    """The automatic scaling of FP8-LM, section 2.1, which MS-AMP's code does not have.

    Each rank quantizes mu g by a scale of its own. The smallest scale of the ranks is the one of all, by which codes
    are made again; their sum in FP8 is the gradient. mu halves after a step in which more than ``threshold`` of a
    tensor's codes are the largest one, and otherwise doubles over ``interval`` steps.

    Parameters
    ----------
    threshold : float
        The paper's example is 0.001 %, which is 1e-5.
    interval : int
        Steps over which mu doubles: the paper's are 1,000.
    """

    def __init__(self, threshold: float = 1e-5, interval: int = 1000) -> None:
        self.threshold = float(threshold)
        self.interval = check_int(interval, "interval", 1, 2**31 - 1)
        self.mu = 1.0

    def update(self, saturated: float) -> None:
        """mu after a step in which the fraction ``saturated`` of codes was the largest."""
        self.mu = self.mu / 2 if saturated > self.threshold else self.mu * 2 ** (1 / self.interval)

    def reduce(
        self, gradients: Sequence[torch.Tensor], *, schedule: ScheduleName = "ring", group: Any = None
    ) -> list[ScalingTensor]:
        """The averages of gradients over the ranks, and mu for the next step.

        Parameters
        ----------
        gradients : sequence of Tensor of float32, float16 or bfloat16
        schedule : str
            As of ``sum_codes``.
        group : torch.distributed.ProcessGroup, optional

        Returns
        -------
        list of ScalingTensor
            E4M3. The inverse scale is that of N times the common scale and mu.
        """
        ranks, made = _ranks(group), []
        saturated = torch.zeros(())
        for gradient in gradients:
            own = cast(check_plain(gradient, "gradients").detach().float() * self.mu, "e4m3")
            saturated = torch.maximum(saturated, ((own.value & 0x7F) == 0x7E).float().mean())
            scale = own.meta.scale.clone()
            if ranks > 1:
                dist.all_reduce(scale, op=dist.ReduceOp.MIN, group=group)
            codes = encoded(own.float() * scale, "e4m3")
            all_reduce_codes(codes, schedule=schedule, group=group)
            own.meta.scale.copy_(scale)
            own.meta.scale_inv.copy_(torch.reciprocal(scale * ranks * self.mu))
            made.append(ScalingTensor(codes, own.meta))
        if ranks > 1:
            dist.all_reduce(saturated, op=dist.ReduceOp.MAX, group=group)
        self.update(float(saturated))
        return made


# --- the code's own wrapper -------------------------------------------------------------------------------------------


class FP8DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """PyTorch's DistributedDataParallel, which also reduces the FP8 gradients of ``Linear`` layers, as MS-AMP's does.

    A weight's gradient keeps its precision until those of its bucket are there. Then all get the scale of the largest
    amax of the ranks, times 1 / sqrt(N), are cast, summed in FP8, and their inverse scales are divided by N.

    As in the original the scale of a gradient that is exactly 0 is the last one times 1 / sqrt(N), so that it decays:
    of 4 ranks its inverse overflows after 128 steps, and the gradient is NaN.

    Parameters
    ----------
    module : torch.nn.Module
        Of a model that ``initialize`` or ``replace_linears`` has made; it must have other parameters too.
    schedule : str
        As of ``sum_codes``.
    **options
        Those of DistributedDataParallel.
    """

    def __init__(self, module: torch.nn.Module, *, schedule: ScheduleName = "ring", **options: Any) -> None:
        check_choice(schedule, "schedule", SCHEDULES)
        super().__init__(module, **options)
        self._buckets: list[list[ScalingParameter]] = []
        self._waiting: list[set[int]] = []
        self._schedule = schedule
        layers = [one for one in module.modules() if isinstance(one, Linear)]
        weights = [one for one in module.parameters() if isinstance(one, ScalingParameter) and one.requires_grad]
        if not weights:
            return
        for layer in layers:
            layer.state.keeps_gradients = True
        self._build(weights, self.bucket_bytes_cap)
        for number, bucket in enumerate(self._buckets):
            for i, weight in enumerate(bucket):
                weight.register_backward_post_hook(functools.partial(self._ready, number, i))

    def _build(self, weights: list[ScalingParameter], cap: int) -> None:
        """Buckets from the last weight to the first."""
        bucket: list[ScalingParameter] = []
        for weight in reversed(weights):
            bucket.append(weight)
            if sum(one.numel() for one in bucket) >= cap:
                self._buckets.append(bucket)
                bucket = []
        if bucket:
            self._buckets.append(bucket)

    def _ready(self, number: int, i: int, _gradient: Any) -> None:
        if not self._waiting:
            raise RuntimeError("backward ran without a forward pass of the DistributedDataParallel module before it")
        waiting = self._waiting[number]
        if i not in waiting:
            raise RuntimeError("a gradient is reduced already: call forward again before the next backward")
        waiting.remove(i)
        if not waiting:
            reduce_bucket(self._buckets[number], self.process_group, self._schedule)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """That of the module."""
        if self._buckets and torch.is_grad_enabled():
            if any(0 < len(one) for one in self._waiting) and any(
                len(one) < len(bucket) for one, bucket in zip(self._waiting, self._buckets, strict=True)
            ):
                raise RuntimeError(
                    "some weights got no gradient in the last backward: each must take part in each step"
                )
            self._waiting = [set(range(len(bucket))) for bucket in self._buckets]
        return super().forward(*inputs, **options)


@entry
def reduce_bucket(weights: Sequence[ScalingTensor], group: Any, schedule: ScheduleName) -> None:
    """Replaces the gradients of weights, in high precision, by their averages in E4M3."""
    gradients = [one.grad for one in weights]
    ranks = _ranks(group)
    metas = [_wgrad_meta(one, group) for one in weights]
    with torch.no_grad():
        amaxes = torch.stack([one.abs().max().float() for one in gradients])
        amaxes = torch.nan_to_num(amaxes, nan=torch.inf, posinf=torch.inf)
        if ranks > 1:
            dist.all_reduce(amaxes, op=dist.ReduceOp.MAX, group=group)
        scales = scales_before_sum(amaxes, torch.stack([meta.scale for meta in metas]), ranks)
        values = []
        for gradient, meta, amax, scale in zip(gradients, metas, amaxes, scales, strict=True):
            meta.amax[0] = amax
            meta.scale.copy_(scale)
            meta.scale_inv.copy_(torch.reciprocal(scale))
            values.append(encoded(gradient.float() * scale, "e4m3").view(-1))
        flat = torch.cat(values)
        all_reduce_codes(flat, schedule=schedule, group=group)
    for weight, part, meta in zip(weights, flat.split([one.numel() for one in values]), metas, strict=True):
        weight.grad = ScalingTensor(part.view(weight.shape), meta).div_(ranks)


def _wgrad_meta(weight: ScalingTensor, group: Any) -> ScalingMeta:
    layer = getattr(weight, "layer", None)
    return ScalingMeta("e4m3", group=group) if layer is None else layer.scaling_metas["wgrad"]


def scales_before_sum(amaxes: torch.Tensor, scales: torch.Tensor, ranks: int) -> torch.Tensor:
    """The scales of the ranks' gradients: by the largest amaxes, times 1 / sqrt(N), also where the old one stays."""
    return scaling_factor(amaxes, scales, LARGEST["e4m3"]).mul(1 / math.sqrt(ranks))
