# SPDX-License-Identifier: Apache-2.0
"""Trainings that MS-AMP's own Python (msamp_real.py) and fp8lab.msamp (test_msamp.py) run, and what is kept of them."""

import hashlib

import torch

STEPS = 200
#: Level, class of the optimizer, its options, and the type of activations.
SCENARIOS = {
    "O1": ("O1", "AdamW", {"lr": 0.01, "weight_decay": 0.01}, torch.float32),
    "O1 L2": ("O1", "Adam", {"lr": 0.01, "weight_decay": 0.05}, torch.bfloat16),
    "O2": ("O2", "AdamW", {"lr": 0.01, "weight_decay": 0.01}, torch.float32),
    "O2 L2": ("O2", "Adam", {"lr": 0.01, "weight_decay": 0.05, "betas": (0.8, 0.95)}, torch.float32),
    "O2 bfloat16": ("O2", "AdamW", {"lr": 0.02, "weight_decay": 0.0, "eps": 1e-6}, torch.bfloat16),
    "O2 ascent": ("O2", "AdamW", {"lr": 0.001, "maximize": True}, torch.float16),
    "O3": ("O3", "AdamW", {"lr": 0.01, "weight_decay": 0.01}, torch.float32),
}


class Network(torch.nn.Module):
    """Layers whose sides are and are not multiples of 16, with and without a bias; one stays in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(20, 48)
        self.second = torch.nn.Linear(48, 33, bias=False)
        self.scale = torch.nn.Parameter(torch.ones(33))
        self.last = torch.nn.Linear(33, 5)
        self.last.use_fp32_linear = True

    def forward(self, x):
        hidden = self.second(torch.relu(self.first(x)))
        return self.last((hidden * self.scale).float())


def network(seed: int = 7) -> Network:
    torch.manual_seed(seed)
    return Network()


def batch(step: int, dtype: torch.dtype, rank: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch with structure; every 37th is 300 times as large, where scales of a window saturate."""
    x = torch.randn(12, 20, generator=torch.Generator().manual_seed(1000 * rank + step))
    target = x[:, :5] - x[:, 5:10].abs()
    return (x * (300 if step % 37 == 29 else 1)).to(dtype), target


def loss_of(model, step: int, dtype: torch.dtype, rank: int = 0):
    x, target = batch(step, dtype, rank)
    return (model(x) - target).square().mean()


def train(model, optimizer, dtype, steps: int = STEPS, clip=None, reduce=None, rank: int = 0) -> list[str]:
    """The losses, as ``float.hex()`` has them. Each fifth step adds up two batches, and each third one is clipped."""
    losses = []
    for step in range(steps):
        for part in range(2 if step % 5 == 4 else 1):
            loss = loss_of(model, 10_000 * part + step, dtype, rank)
            loss.backward()
        if reduce is not None:
            reduce()
        if clip is not None and step % 3 == 2:
            clip(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
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
    return {**digests, "some": [losses[i] for i in (0, len(losses) // 2, len(losses) - 1)]}


def digest(tensors) -> str:
    found = hashlib.sha256()
    for one in tensors:
        flat = one.detach().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]
