# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own Transformer Engine, unmodified, on a CPU with a GPU's bits: fp8lab takes the place of its compiled part.

>>> import fp8lab.te
>>> fp8lab.te.activate("h100")                # doctest: +SKIP
>>> import transformer_engine.pytorch as te   # doctest: +SKIP

``python -m fp8lab.te script.py`` runs a program so, and what it starts. ``devices()`` lists the devices, and
``functions()`` what is provided of the extension and what is refused, with the reason. ``effective_recipe()`` says
which recipe runs when Hugging Face accelerate is asked for one, and ``converted_layers()`` in which layers.
"""

from fp8lab.te._activation import Activation, activate, active_device
from fp8lab.te._exactness import exactness
from fp8lab.te._functions import Function, functions
from fp8lab.te._releases import releases
from fp8lab.te.devices import Device, devices, find_device
from fp8lab.te.effective import Divergence, EffectiveRecipe, effective_recipe
from fp8lab.te.layers import ConvertedLayer, converted_layers

__all__ = [
    "Activation",
    "ConvertedLayer",
    "Device",
    "Divergence",
    "EffectiveRecipe",
    "Function",
    "activate",
    "active_device",
    "converted_layers",
    "devices",
    "effective_recipe",
    "exactness",
    "find_device",
    "functions",
    "releases",
]
