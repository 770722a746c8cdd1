# SPDX-License-Identifier: Apache-2.0
"""The time of a training step of te.TransformerLayer on an emulated device, beside PyTorch's own layer in float32 on the same threads.

    python -m fp8lab.te --device b200 tests/bench/te_layer.py [HIDDEN FFN HEADS [SEQUENCE BATCH]]

A step is forward, backward and AdamW. Before it is timed, a second run of its first steps must give the same bits. The bound is
PyTorch's layer in float32, which computes the same products with the machine's own arithmetic.
"""

import os
import statistics
import sys
import time

import torch
import transformer_engine.pytorch as te
from fp8lab.te import active_device
from transformer_engine.common import recipe as recipes

STEPS = 12


def own_layer(hidden, ffn, heads):
    made = torch.nn.TransformerEncoderLayer(hidden, heads, ffn, dropout=0.0, activation="gelu", norm_first=True)
    return made.float()


def te_layer(hidden, ffn, heads):
    return te.TransformerLayer(
        hidden, ffn, heads, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=torch.bfloat16
    )


class Step:
    """A layer, its optimizer and its draws; calling it is one step."""

    def __init__(self, make, x, recipe):
        torch.manual_seed(1)
        self.layer, self.x, self.recipe = make(), x, recipe
        self.optimizer = torch.optim.AdamW(self.layer.parameters(), lr=1e-3)

    def __call__(self):
        if self.recipe is None:
            y = self.layer(self.x)
        else:
            with te.autocast(enabled=True, recipe=self.recipe):
                y = self.layer(self.x)
        y.float().square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return y.detach()


def milliseconds(make) -> float:
    """The median of a step, after two that are compared with those of another run."""
    outputs = []
    for _ in range(2):
        step = make()
        outputs.append([step(), step()])
    if not all(torch.equal(*pair) for pair in zip(*outputs)):
        raise SystemExit("two runs of the same steps differ: nothing is timed")
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    hidden, ffn, heads, sequence, batch = [*map(int, sys.argv[1:]), *(288, 1152, 6, 64, 16)[len(sys.argv) - 1 :]]
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    x = torch.randn(sequence, batch, hidden)
    bound = milliseconds(lambda: Step(lambda: own_layer(hidden, ffn, heads), x, None))
    print(f"{active_device()}; {torch.get_num_threads()} threads")
    print(f"layer ({hidden}, {ffn}, {heads} heads), {sequence} x {batch} tokens")
    print(f"  torch float32                {bound:8.2f} ms")
    device, made = active_device(), {"delayed": recipes.DelayedScaling(), "current": recipes.Float8CurrentScaling()}
    if device.block:
        made["block"] = recipes.Float8BlockScaling()
    if device.has_all_layouts:
        made |= {"mxfp8": recipes.MXFP8BlockScaling(), "nvfp4": recipes.NVFP4BlockScaling()}
    for name, recipe in made.items():
        took = milliseconds(lambda recipe=recipe: Step(lambda: te_layer(hidden, ffn, heads), x.bfloat16(), recipe))
        print(f"  te.TransformerLayer, {name:8s}{took:8.2f} ms  {took / bound:5.2f} x torch float32")


if __name__ == "__main__":
    main()
