# SPDX-License-Identifier: Apache-2.0
"""O3: E4M3 weights, float16 masters, and optimizer states of which each rank keeps a part (ZeRO 1).

After msamp/deepspeed/runtime/zero/fp8_stage_1_and_2.py of Azure/MS-AMP 9746ea8, without DeepSpeed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from fp8lab._arrays import check_choice, kind_of
from fp8lab.literals import ScheduleName
from fp8lab.msamp._distributed import SCHEDULES, _chain, _ranks
from fp8lab.msamp._linear import ModelState
from fp8lab.msamp._optimizers import LBAdamW, _step
from fp8lab.msamp._tensors import ScalingMeta, ScalingParameter, ScalingTensor

__all__ = ["ZeroOptimizer"]

#: DeepSpeed pads flat tensors so that each rank's part is a multiple of this many elements.
_ALIGNMENT = 2


class ZeroOptimizer:
    """An ``LBAdamW`` whose states are divided among the ranks of torch.distributed; ``initialize_zero`` makes one.

    A weight of an FP8 layer belongs to one rank, which has its float16 master and its moments: the largest weight goes
    to the rank that has the least so far. Float32 parameters are one flat tensor, of which each rank has an equal part.

    ``step()`` reduces gradients, to a weight's rank by sums in FP8, updates what the rank has, and sends the new
    weights to all. It changes nothing where a gradient is infinite or NaN, and then ``overflow`` is True.

    Parameters
    ----------
    optimizer : LBAdamW
        Over the parameters of a model that ``initialize`` has made. It is changed.
    group : torch.distributed.ProcessGroup, optional
    schedule : str
        "ring": the sum of a weight's gradient begins at the rank after its own and ends there. "rank_order": it begins
        at rank 0.
    """

    def __init__(self, optimizer: LBAdamW, *, group: Any = None, schedule: ScheduleName = "ring") -> None:
        if not isinstance(optimizer, LBAdamW):
            raise TypeError(f"optimizer must be an fp8lab.msamp.LBAdamW or LBAdam, not {kind_of(optimizer)}")
        self.schedule = check_choice(schedule, "schedule", SCHEDULES)
        self.optimizer, self.group = optimizer, group
        self.ranks = _ranks(group)
        self.rank = dist.get_rank(group) if self.ranks > 1 else 0
        self.overflow = False
        self._states: list[ModelState] = optimizer._model_states()
        self.weights: list[tuple[ScalingParameter, int, ScalingTensor | None]] = []
        self._flats: list[tuple[list[torch.nn.Parameter], torch.nn.Parameter]] = []
        sizes = [0] * self.ranks
        for param_group in optimizer.param_groups:
            given = [one for one in param_group["params"] if one.requires_grad]
            scaling = [one for one in given if isinstance(one, ScalingParameter)]
            plain = [one for one in given if not isinstance(one, ScalingParameter)]
            for one in plain:
                if one.dtype != torch.float32:
                    raise TypeError(f"parameters outside of FP8 layers must be float32, not {one.dtype}")
            order = sorted(enumerate(scaling), key=lambda item: (-item[1].numel(), item[0] % self.ranks))
            masters = [self._divide(weight, sizes) for _, weight in order]
            parts = [self._part(plain)] if plain else []
            param_group["params"] = [*parts, *(one for one in masters if one is not None)]
        optimizer.state.clear()

    def _divide(self, weight: ScalingParameter, sizes: list[int]) -> ScalingParameter | None:
        """Gives a weight to a rank; its master, if that is this one."""
        owner = sizes.index(min(sizes))
        sizes[owner] += weight.numel()
        master = None
        if owner == self.rank:
            copied = ScalingTensor(weight.value.clone(), weight.meta.clone())
            master = ScalingParameter(copied.cast("float16"))
        weight.cast_("e4m3")
        self.weights.append((weight, owner, master))
        return master

    def _part(self, parameters: list[torch.nn.Parameter]) -> torch.nn.Parameter:
        """This rank's part of the flat tensor of parameters."""
        flat = self._flat([one.detach() for one in parameters])
        part = torch.nn.Parameter(flat.chunk(self.ranks)[self.rank].clone())
        self._flats.append((parameters, part))
        return part

    def _flat(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        flat = torch.cat([one.reshape(-1) for one in tensors])
        return torch.nn.functional.pad(flat, (0, -flat.numel() % (_ALIGNMENT * self.ranks)))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the optimizer: options, and what this rank updates."""
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        return groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops all gradients, as ZeRO does, or sets them to 0."""
        for one in [weight for weight, _, _ in self.weights] + [one for flat, _ in self._flats for one in flat]:
            if one.grad is not None and not set_to_none:
                one.grad.detach().zero_()
            elif set_to_none:
                one.grad = None

    def step(self) -> None:
        """Reduces gradients, updates this rank's part and sends it to all."""
        with torch.no_grad():
            for weight, owner, master in self.weights:
                reduced = self._reduced(weight, owner)
                if master is not None:
                    master.grad = reduced
            for parameters, part in self._flats:
                part.grad = self._average(parameters)
            self.overflow = self._overflows()
        if not self.overflow:
            _step(self.optimizer)
            for state in self._states:
                state.update_scales()
            with torch.no_grad():
                self._send()
        for group in self.param_groups:
            for one in group["params"]:
                one.grad = None

    def _reduced(self, weight: ScalingParameter, owner: int) -> ScalingTensor:
        """The average of a weight's gradient, which its rank alone needs."""
        gradient: ScalingTensor | None = weight.grad
        if gradient is None:
            zeros = torch.zeros(weight.shape, dtype=torch.uint8)
            gradient = ScalingTensor(zeros, ScalingMeta("e4m3"))
        if self.ranks == 1:
            return gradient.div_(1)
        of_ranks = [torch.empty(weight.shape, dtype=torch.uint8) for _ in range(self.ranks)]
        dist.all_gather(of_ranks, gradient.value.contiguous(), group=self.group)
        first = owner + 1 if self.schedule == "ring" else 0
        if owner == self.rank:
            order = [of_ranks[(first + i) % self.ranks] for i in range(self.ranks)]
            gradient = ScalingTensor(_chain(order, "e4m3"), gradient.meta).div_(self.ranks)
        return gradient

    def _average(self, parameters: list[torch.nn.Parameter]) -> torch.Tensor:
        """This rank's part of the average of float32 gradients: each is divided, and then they are added by rank."""
        flat = self._flat([torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]) / self.ranks
        of_ranks = [flat]
        if self.ranks > 1:
            of_ranks = [torch.empty_like(flat) for _ in range(self.ranks)]
            dist.all_gather(of_ranks, flat, group=self.group)
        total = of_ranks[0]
        for one in of_ranks[1:]:
            total = total + one
        return total.chunk(self.ranks)[self.rank].clone()

    def _overflows(self) -> bool:
        bad = any(master is not None and master.grad.has_inf_or_nan() for _, _, master in self.weights)
        bad = bad or any(not bool(torch.isfinite(part.grad).all()) for _, part in self._flats)
        flag = torch.tensor(float(bad))
        if self.ranks > 1:
            dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.group)
        return bool(flag)

    def _send(self) -> None:
        """Weights of their masters, and parameters of their parts, on all ranks."""
        for weight, owner, master in self.weights:
            if master is not None:
                weight.copy_(master.cast("e4m3"))
            if self.ranks > 1:
                source = owner if self.group is None else dist.get_global_rank(self.group, owner)
                dist.broadcast(weight.value, source, group=self.group)
                dist.broadcast(weight.meta.scale_inv, source, group=self.group)
        for parameters, part in self._flats:
            parts = [part.detach()]
            if self.ranks > 1:
                parts = [torch.empty_like(parts[0]) for _ in range(self.ranks)]
                dist.all_gather(parts, part.detach(), group=self.group)
            flat = torch.cat(parts)
            begin = 0
            for one in parameters:
                one.copy_(flat[begin : begin + one.numel()].view(one.shape))
                begin += one.numel()

    def state_dict(self) -> dict[str, Any]:
        """This rank's part: masters, the flat parameters, and the optimizer's states."""
        return {
            "masters": [None if master is None else master.detach() for _, _, master in self.weights],
            "parts": [part.detach() for _, part in self._flats],
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what ``state_dict()`` gave on this rank of as many; the model's own ``load_state_dict`` has the
        weights."""
        masters, parts = state_dict["masters"], state_dict["parts"]
        if len(masters) != len(self.weights) or len(parts) != len(self._flats):
            raise ValueError(
                f"state_dict must have {len(self.weights)} masters and {len(self._flats)} parts, not {len(masters)} "
                f"and {len(parts)}"
            )
        if [one is None for one in masters] != [master is None for _, _, master in self.weights]:
            raise ValueError("state_dict must be that of this rank, among as many ranks")
        with torch.no_grad():
            for saved, (_, _, master) in zip(masters, self.weights, strict=True):
                if master is not None:
                    master.copy_(saved)
            for saved, (_, part) in zip(parts, self._flats, strict=True):
                part.copy_(saved)
        self.optimizer.load_state_dict(state_dict["optimizer"])
