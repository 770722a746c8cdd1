# SPDX-License-Identifier: Apache-2.0
"""What the installed accelerate makes of requests, one JSON line: run by test_effective.py under ``python -m fp8lab.te``."""

import copy
import importlib.metadata
import importlib.util
import json
import os
import sys

import fp8lab.msamp
import torch
import transformer_engine.pytorch as te
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import MSAMPRecipeKwargs, TERecipeKwargs, is_msamp_available, transformer_engine
from test_effective import models
from transformer_engine.common import recipe as te_recipe

entered: list = []


def watch(model_forward, fp8_recipe, use_during_eval=False):
    """In place of contextual_fp8_autocast: keeps what it is given."""
    entered.append((fp8_recipe, use_during_eval))
    return model_forward


def outcome(request) -> dict:
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    entered.clear()
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
        del os.environ[name]
    os.environ.update(request.get("environment", {}))
    try:
        handler = request.get("handler")
        handlers = None if handler is None else [TERecipeKwargs(**handler)]
        precision = request.get("mixed_precision", "fp8" if handlers else None)
        accelerator = Accelerator(cpu=True, mixed_precision=precision, kwargs_handlers=handlers)
        model = torch.nn.Sequential(torch.nn.Linear(32, 32))
        accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}
    told = {"backend": accelerator.fp8_backend.value, "precision": accelerator.state.mixed_precision}
    if entered:
        recipe, in_eval = entered[-1]
        told |= {"recipe": type(recipe).__name__, "training": True, "evaluation": in_eval}
        told["fields"] = {
            name: value.name if name == "fp8_format" else value
            for name, value in vars(recipe).items()
            if isinstance(value, (bool, int, str)) or name == "fp8_format"
        }
    return told


def converted(name) -> dict:
    model = models()[name]
    with torch.no_grad():
        transformer_engine.convert_model(model)
    return {
        path: f"te.{type(one).__name__}"
        for path, one in model.named_modules()
        if type(one).__module__.startswith("transformer_engine")
    }


def accelerated():
    """A small model and its optimizer under Accelerator, by a handler of Transformer Engine's."""
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    handler = TERecipeKwargs(amax_compute_algo="max", amax_history_len=4)
    accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[handler])
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    return (accelerator, *accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01)))


def train(accelerator, model, optimizer, steps) -> list:
    """The losses, as float.hex() has them."""
    losses = []
    for step in steps:
        x = torch.randn(16, 32, generator=torch.Generator().manual_seed(step))
        loss = (model(x) - x.roll(1)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return losses


def resumed() -> dict:
    """The losses of steps 4 to 6 of one run, and of another that begins with the state of the first after step 3."""
    first = accelerated()
    before = train(*first, range(3))
    model_state, optimizer_state = (copy.deepcopy(one.state_dict()) for one in first[1:])
    after = train(*first, range(3, 6))
    second = accelerated()
    second[1].load_state_dict(model_state)
    second[2].load_state_dict(optimizer_state)
    return {"before": before, "after": after, "resumed": train(*second, range(3, 6)), "keys": list(model_state)}


def small_model():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Embedding(50, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 128), torch.nn.GELU(),
                               torch.nn.Linear(128, 64), torch.nn.Linear(64, 2))  # fmt: skip


def scores(model, optimizer, backward) -> list:
    """Of a training of a classifier of sequences: each step's loss, and the outputs afterwards, as float.hex() has them."""
    found = []
    for step in range(4):
        draw = torch.Generator().manual_seed(step)
        tokens = torch.randint(0, 50, (8, 16), generator=draw)
        labels = tokens[:, 0] % 2
        loss = torch.nn.functional.cross_entropy(model(tokens).float().mean(1), labels)
        backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item().hex())
    model.eval()
    with torch.no_grad():
        outputs = model(torch.arange(32).view(2, 16)).float().mean(1)
    return found + [one.hex() for one in outputs.reshape(-1).tolist()]


def benchmark() -> dict:
    """The question of accelerate's benchmarks/fp8/transformer_engine: is a training under Accelerator the one that Transformer
    Engine's own contexts give a model whose layers were converted by hand?"""
    facts = {"amax_compute_algo": "max", "amax_history_len": 32}
    model = small_model()
    with torch.no_grad():
        transformer_engine.convert_model(model)
    recipe = te_recipe.DelayedScaling(fp8_format=te_recipe.Format.HYBRID, **facts)
    own = model.forward

    def forward(*args):
        with te.autocast(enabled=model.training, recipe=recipe), torch.autocast("cuda", dtype=torch.bfloat16):
            return own(*args).float()

    model.forward = forward
    by_hand = scores(model, torch.optim.AdamW(model.parameters(), lr=0.01), lambda loss: loss.backward())
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    accelerator = Accelerator(
        cpu=True, mixed_precision="fp8", kwargs_handlers=[TERecipeKwargs(fp8_format="HYBRID", **facts)]
    )
    model = small_model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    return {"by hand": by_hand, "by accelerate": scores(model, optimizer, accelerator.backward)}


def ms_amp() -> dict:
    """A training under Accelerator's backend MS-AMP, and one of a model that fp8lab.msamp has made, by hand."""
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[MSAMPRecipeKwargs(opt_level="O2")])
    model = small_model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    kinds = [type(one).__module__ for one in (model[2], optimizer.optimizer)]
    by_accelerate = scores(model, optimizer, accelerator.backward)
    model = small_model()
    model, optimizer = fp8lab.msamp.initialize(model, torch.optim.AdamW(model.parameters(), lr=0.01), "O2")
    own = model.forward

    def forward(*args):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return own(*args).float()

    model.forward = forward
    return {
        "by hand": scores(model, optimizer, lambda loss: loss.backward()),
        "by accelerate": by_accelerate,
        "available": is_msamp_available(),
        "kinds": kinds,
        "distributed": torch.nn.parallel.DistributedDataParallel.__name__,
    }


def without_device() -> dict:
    """Where MS-AMP is found while a device is emulated, and afterwards."""

    def found() -> list:
        names = [one.metadata["Name"] for one in importlib.metadata.distributions(name="ms-amp")]
        wrapper = torch.nn.parallel.DistributedDataParallel.__module__
        return [importlib.util.find_spec("msamp") is not None, "msamp" in sys.modules, names, wrapper]

    import msamp

    before, version = found(), [msamp.__version__, importlib.metadata.version("ms-amp")]
    activation = fp8lab.te.activate(fp8lab.te.active_device().name)
    activation.deactivate()
    activation.deactivate()
    return {"before": before, "version": version, "after": found()}


os.environ["NVTE_ALLOW_UNSAFE_PICKLE_EXTRA_STATE"] = "1"  # the state is this process's own
trained, compared, with_ms_amp = resumed(), benchmark(), ms_amp()
transformer_engine.contextual_fp8_autocast = watch
requests, names = json.load(sys.stdin)
told = {"requests": [outcome(one) for one in requests], "models": {name: converted(name) for name in names}}
told["modules"] = without_device()
print(json.dumps(told | {"trained": trained, "compared": compared, "ms_amp": with_ms_amp}))
