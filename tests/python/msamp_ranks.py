# SPDX-License-Identifier: Apache-2.0
"""fp8lab.msamp over 2 processes with Gloo, and 4: run as a program with the number of steps, and the word long, it prints
what each training leaves, one JSON line."""

import json
import sys

import fp8lab.msamp
import torch
from msamp_scenarios import in_ranks, moments_of, rank_loss, shared, summary

METHODS = ("code", "ddp", "paper", "O3")


def prepared(method: str):
    """A model, its optimizer, and the module to call."""
    model = shared()
    own = torch.optim.AdamW(model.parameters(), lr=0.01)
    if method == "O3":
        model, optimizer = fp8lab.msamp.initialize_zero(model, own)
        return model, optimizer, model
    model, optimizer = fp8lab.msamp.initialize(model, own, "O2", reduction="paper" if method == "paper" else "code")
    module = fp8lab.msamp.FP8DistributedDataParallel(model) if method == "ddp" else model
    return model, optimizer, module


def ranked(method: str, rank: int, steps: int) -> dict:
    """A training over the ranks by a method."""
    model, optimizer, module = prepared(method)
    losses = []
    for step in range(steps):
        loss, kept = rank_loss(module, step, rank)
        loss.backward()
        if method != "O3":
            optimizer.all_reduce_grads(model)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(kept)
    weights = [one for one in model.parameters() if isinstance(one, fp8lab.msamp.ScalingParameter)]
    if method != "O3":
        return {**summary(losses, model, optimizer), "of weights": moments_of(optimizer, weights)}
    masters = {id(weight): master for weight, _, master in optimizer.weights}
    own = [master for master in masters.values() if master is not None]
    of_weights = moments_of(optimizer.optimizer, [masters[id(one)] for one in weights])
    return {**summary(losses, model, optimizer.optimizer, own), "of weights": of_weights}


def decayed(rank: int) -> dict:
    """The scales of a gradient that is exactly 0, and the step in which it is NaN, of each method."""
    found = {}
    for method in ("code", "ddp"):
        model, optimizer, module = prepared(method)
        scales, nan_at = [], None
        for step in range(1, 131):
            rank_loss(module, 0, rank)[0].backward()
            optimizer.all_reduce_grads(model)
            scales.append(float(model.idle.scaling_metas["wgrad"].scale))
            if nan_at is None and bool(model.idle.weight.grad.float().isnan().any()):
                nan_at = step
            optimizer.zero_grad(set_to_none=True)
        found[method] = {"scales": scales, "nan_at": nan_at}
    return found


def trainings(rank: int, steps: int) -> dict:
    """All methods, one after the other."""
    return {method: ranked(method, rank, steps) for method in METHODS}


def main(steps: int, is_long: bool) -> None:
    torch.set_num_threads(1)
    found = {ranks: in_ranks(ranks, lambda rank: trainings(rank, steps)) for ranks in ((2, 4) if is_long else (2,))}
    if is_long:
        found["decay"] = in_ranks(4, decayed)
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["long"])
