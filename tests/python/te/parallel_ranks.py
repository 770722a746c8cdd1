# SPDX-License-Identifier: Apache-2.0
"""Tensor and sequence parallel te.Linear on two processes against the parts of the layer, each in one: run by torchrun under
``python -m fp8lab.te``, with the names of recipes.

A column-parallel layer is its own half of the weight's rows. A row-parallel one is the sum of what the halves of the weight's columns
give. Prints one JSON line on rank 0: what differs.
"""

import json
import sys

import torch
import torch.distributed as dist
import transformer_engine.pytorch as te
from transformer_engine.common import recipe as recipes

RECIPES = {
    "delayed": lambda: recipes.DelayedScaling(amax_history_len=3, amax_compute_algo="max"),
    "current": recipes.Float8CurrentScaling,
    "block": recipes.Float8BlockScaling,
    "mxfp8": recipes.MXFP8BlockScaling,
}
SIZE, STEPS = 256, 3


def layer(weight, **parallel):
    rows, columns = SIZE, SIZE
    if not parallel:
        rows, columns = weight.shape
    made = te.Linear(columns, rows, bias=False, params_dtype=torch.float32, **parallel)
    with torch.no_grad():
        made.weight.copy_(weight)
    return made


def run(one, x, gradient, recipe):
    """Output, gradient of the input and of the weight; amaxes are those of both processes."""
    x = x.detach().clone().requires_grad_()
    one.weight.grad = None
    with te.autocast(enabled=True, recipe=recipe, amax_reduction_group=dist.group.WORLD):
        y = one(x)
    y.backward(gradient)
    return y.detach(), x.grad, one.weight.grad


def summed(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total


def differences(name: str, mode: str, sequence: bool, half: slice) -> list[str]:
    torch.manual_seed(1)
    weight = torch.randn(SIZE, SIZE) * 0.1
    draws = [(torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)) for _ in range(STEPS)]
    part = weight[half] if mode == "column" else weight[:, half].contiguous()
    alone = layer(part)
    group = {"tp_group": dist.group.WORLD, "tp_size": 2, "parallel_mode": mode, "sequence_parallel": sequence}
    shared, recipe, found = layer(part, **group), RECIPES[name](), []
    for x, gradient in draws:
        own = (lambda tensor: tensor[half].contiguous()) if sequence else lambda tensor: tensor
        if mode == "column":
            got = run(shared, own(x), gradient[:, half].contiguous(), recipe)
            y, dx, dw = run(alone, x, gradient[:, half].contiguous(), recipe)
            wanted = (y, own(summed(dx)), dw)
        else:
            got = run(shared, x[:, half].contiguous(), own(gradient), recipe)
            y, dx, dw = run(alone, x[:, half].contiguous(), gradient, recipe)
            wanted = (own(summed(y)), dx, dw)
        for what, mine, other in zip(("y", "dx", "dw"), got, wanted, strict=True):
            if not torch.equal(mine, other):
                found.append(f"{name}, {mode}, sequence parallel {sequence}: {what}")
    return found


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    half = slice(rank * SIZE // 2, (rank + 1) * SIZE // 2)
    found = [
        one
        for name in sys.argv[1:]
        for mode in ("column", "row")
        for sequence in (False, True)
        for one in differences(name, mode, sequence, half)
    ]
    gathered: list = [None, None]
    dist.all_gather_object(gathered, found)
    if rank == 0:
        print(json.dumps(gathered), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
