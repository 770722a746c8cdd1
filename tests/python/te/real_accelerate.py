# SPDX-License-Identifier: Apache-2.0
"""What the installed accelerate makes of requests, one JSON line: run by test_effective.py under ``python -m fp8lab.te``."""

import json
import os
import sys

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import TERecipeKwargs, transformer_engine
from test_effective import models

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


transformer_engine.contextual_fp8_autocast = watch
requests, names = json.load(sys.stdin)
print(json.dumps({"requests": [outcome(one) for one in requests], "models": {name: converted(name) for name in names}}))
