# SPDX-License-Identifier: Apache-2.0
"""The functions of the registered experiments. ``bindings/stubs.py`` writes their stub, ``_registered.pyi``."""

from fp8lab._entry import guard as _guard
from fp8lab._experiments import function_of, registered

__all__ = [name for name, facts in registered().items() if facts["is_public"]]

for _name in __all__:
    globals()[_name] = function_of(registered()[_name])

_guard(__name__, __all__)
