# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own Transformer Engine, unmodified, on a CPU with a GPU's bits: fp8lab takes the place of its compiled part.

>>> import fp8lab.te
>>> fp8lab.te.activate("h100")                # doctest: +SKIP
>>> import transformer_engine.pytorch as te   # doctest: +SKIP

``python -m fp8lab.te script.py`` runs a program so, and what it starts. ``devices()`` lists the devices,
``functions()`` what is provided of the extension and what is refused, with the reason.
"""

from fp8lab.te._activation import Activation, activate, active_device
from fp8lab.te._functions import Function, functions
from fp8lab.te.devices import Device, devices, find_device

__all__ = ["Activation", "Device", "Function", "activate", "active_device", "devices", "find_device", "functions"]
