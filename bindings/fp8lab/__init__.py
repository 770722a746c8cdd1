# SPDX-License-Identifier: Apache-2.0
"""What FP8 hardware computes, bit for bit, and what it costs.

>>> import numpy as np, fp8lab
>>> fp8lab.encode(np.float32([0.3, 448, 1e9]), "e4m3")
array([ 42, 126, 126], dtype=uint8)

``formats()``, ``profiles()``, ``models()``, ``recipes()``, ``linear_recipes()``, ``distributions()`` and
``delayed_versions()`` list what there is; ``str()`` of each entry explains it. A whole number may be a float without a
fraction, such as 1e6. Ctrl-C ends a call that takes long within half a second of work.
"""

from fp8lab import _interpreter  # noqa: F401  # before anything that is compiled

# isort: split
from typing import TYPE_CHECKING

from fp8lab._names import HOMES

if TYPE_CHECKING:  # what __getattr__ does, as a type checker and bindings/stubs.py read it
    from fp8lab import experiments as experiments
    from fp8lab import gpu as gpu
    from fp8lab import operators as operators
    from fp8lab._bounds import *
    from fp8lab._casts import *
    from fp8lab._check import *
    from fp8lab._compare import *
    from fp8lab._delayed import *
    from fp8lab._diagnose import *
    from fp8lab._distributions import *
    from fp8lab._explain import *
    from fp8lab._gemm_doctor import *
    from fp8lab._gemm_recipes import *
    from fp8lab._layer import *
    from fp8lab._linear import *
    from fp8lab._measures import *
    from fp8lab._models import *
    from fp8lab._of_core import *
    from fp8lab._of_core import __version__ as __version__
    from fp8lab._outcomes import *
    from fp8lab._products import *
    from fp8lab._random import *
    from fp8lab._recipes import *
    from fp8lab._report import *
    from fp8lab._scaling import *
    from fp8lab._shapes import *
    from fp8lab._state import *
    from fp8lab._tensor_parallel import *
    from fp8lab._trace import *
    from fp8lab._units import *
else:  # out of a type checker's sight, which then knows what fp8lab has not
    __all__ = list(HOMES)

    def __getattr__(name):
        """Imports a public name on first use; ``import fp8lab`` alone, which each run of pytest does, loads nothing."""
        if name not in HOMES:
            raise AttributeError(f"module 'fp8lab' has no attribute {name!r}")
        from importlib import import_module

        module = import_module(f"fp8lab.{HOMES[name]}")
        value = module if name == HOMES[name] else getattr(module, name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *HOMES})
