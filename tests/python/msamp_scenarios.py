# SPDX-License-Identifier: Apache-2.0
"""Trainings that MS-AMP's own Python (msamp_real.py) and fp8lab.msamp (test_msamp.py) run, and what is kept of them."""

import hashlib
import json
import math
import os
import sys
import tempfile
import traceback
from pathlib import Path

import torch

#: The ordinary tests', which an outlier and the first delayed scales are in, and those of ./dev test --exhaustive.
FEW_STEPS, STEPS = 34, 200
#: Level, class of the optimizer, its options, and the type of activations.
SCENARIOS = {
    "O1": ("O1", "AdamW", {"lr": 0.01, "weight_decay": 0.01}, torch.float32),
    "O1 L2": ("O1", "Adam", {"lr": 0.01, "weight_decay": 0.05}, torch.bfloat16),
    "O2": ("O2", "AdamW", {"lr": 0.01, "weight_decay": 0.01}, torch.float32),
    "O2 L2": ("O2", "Adam", {"lr": 0.01, "weight_decay": 0.05, "betas": (0.8, 0.95)}, torch.float32),
    "O2 bfloat16": ("O2", "AdamW", {"lr": 0.02, "weight_decay": 0.0, "eps": 1e-6}, torch.bfloat16),
    "O2 ascent": ("O2", "AdamW", {"lr": 0.0005, "maximize": True}, torch.float16),
    "O3": ("O3", "AdamW", {"lr": 0.01, "weight_decay": 0.01}, torch.float32),
}


class Network(torch.nn.Module):
    """Layers whose sides are and are not multiples of 16, with and without a bias.

    Between them are operations on single elements alone, and sums of few rows, which no machine's vectors change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(20, 48)
        self.second = torch.nn.Linear(48, 33, bias=False)
        self.scale = torch.nn.Parameter(torch.ones(33))
        self.last = torch.nn.Linear(33, 5)

    def forward(self, x):
        hidden = self.second(torch.relu(self.first(x)))
        return self.last(hidden * self.scale.to(hidden.dtype)).float()


def network(seed: int = 7) -> Network:
    torch.manual_seed(seed)
    return Network()


def batch(step: int, rank: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch with structure; every 37th is 300 times as large, where scales of a window saturate."""
    draw = torch.Generator().manual_seed(100_000 * rank + step)
    x = torch.randint(-1024, 1025, (12, 20), generator=draw).float() / 512
    target = x[:, :5] - x[:, 5:10].abs()
    return x * (300 if step % 37 == 29 else 1), target


def loss_of(model, step: int, dtype: torch.dtype, rank: int = 0):
    """A loss, and its sum of squares, which no order of additions changes, as ``float.hex()`` has it."""
    x, target = batch(step, rank)
    squares = (model(x.to(dtype)) - target).square()
    return squares.mean(), math.fsum(squares.detach().double().reshape(-1).tolist()).hex()


def train(model, optimizer, dtype, steps: int = STEPS) -> list[str]:
    """The losses. Each fifth step adds up two batches, and gradients of each third one get smaller."""
    losses = []
    for step in range(steps):
        for part in range(2 if step % 5 == 4 else 1):
            loss, kept = loss_of(model, 10_000 * part + step, dtype)
            loss.backward()
        if step % 3 == 2:
            for one in model.parameters():
                one.grad.mul_(0.37)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(kept)
    return losses


def tensors_of(value) -> list[torch.Tensor]:
    """What a tensor of either system keeps."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    return [value.value.detach(), value.meta.scale_inv.detach()]


def summary(losses, model, optimizer, masters=()) -> dict:
    """Digests of all that a training leaves: parameters, moments and the layers' scales, and losses."""
    parameters = list(model.parameters())
    updated = [one for group in optimizer.param_groups for one in group["params"]]
    layers = [one.scaling_metas for one in model.modules() if getattr(one, "scaling_metas", None)]
    kept = {
        "losses": [torch.tensor([float.fromhex(one) for one in losses], dtype=torch.float64)],
        "parameters": [part for one in [*parameters, *masters] for part in tensors_of(one)],
        "moments": [
            part
            for one in updated
            for name in ("exp_avg", "exp_avg_sq")
            for part in tensors_of(optimizer.state[one][name])
        ],
        "scales": [
            part
            for metas in layers
            for name in ("input", "wgrad", "ograd")
            for part in (metas[name].scale, metas[name].amax, torch.tensor(float(metas[name].amax_counter)))
        ],
    }
    digests = {name: digest(parts) for name, parts in kept.items()}
    scaling = [one for one in parameters if not isinstance(one, torch.Tensor)]
    digests["weights"] = digest([part for one in scaling for part in tensors_of(one)])
    return {**digests, "some": [losses[i] for i in (0, len(losses) // 2, len(losses) - 1)]}


def moments_of(optimizer, weights) -> list:
    """A digest of the moments of each weight; None where another rank has them."""
    states = [None if one is None else optimizer.state[one] for one in weights]
    names = ("exp_avg", "exp_avg_sq")
    return [
        None if state is None else digest([part for name in names for part in tensors_of(state[name])])
        for state in states
    ]


def digest(tensors) -> str:
    found = hashlib.sha256()
    for one in tensors:
        flat = one.detach().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


# --- several ranks ----------------------------------------------------------------------------------------------------

#: The ordinary tests', and those of ./dev test --exhaustive.
FEW_RANK_STEPS, RANK_STEPS = 3, 22


class Shared(torch.nn.Module):
    """Two FP8 layers, one whose gradient is exactly 0, and a parameter whose gradients have exact sums."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(20, 48, bias=False)
        self.second = torch.nn.Linear(48, 5, bias=False)
        self.idle = torch.nn.Linear(20, 5, bias=False)
        self.offset = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) + 0 * self.idle(x) + 0 * self.offset.sum()


def shared() -> Shared:
    torch.manual_seed(8)
    return Shared()


def rank_loss(model, step: int, rank: int):
    """The loss of a rank's own batch, and what is kept of it."""
    offset = getattr(model, "module", model).offset
    loss, kept = loss_of(model, step, torch.float32, rank)
    return loss + offset.sum() / 2, kept


def in_ranks(ranks: int, function) -> list:
    """What a function of the rank returns in each of so many processes with Gloo; this one has run no backward yet."""
    import torch._dynamo  # which optimizers import: once, and not in each process

    folder = tempfile.mkdtemp()
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store = torch.distributed.FileStore(f"{folder}/store", ranks)
                torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
                result = function(rank)
                Path(folder, f"{rank}.json").write_text(json.dumps(result))
                torch.distributed.barrier()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0, "a rank failed"
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]
