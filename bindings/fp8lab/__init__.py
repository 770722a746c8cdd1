# SPDX-License-Identifier: Apache-2.0
"""What FP8 hardware computes, bit for bit, and what it costs.

>>> import numpy as np, fp8lab
>>> fp8lab.encode(np.float32([0.3, 448, 1e9]), "e4m3")
array([ 42, 126, 126], dtype=uint8)

``formats()``, ``profiles()``, ``models()``, ``recipes()``, ``linear_recipes()``, ``distributions()`` and
``delayed_versions()`` list what there is; ``str()`` of each entry explains it. A whole number may be a float without a
fraction, such as 1e6. Ctrl-C ends a call that takes long within half a second of work.
"""

import sys

from fp8lab import _interpreter  # noqa: F401  # before anything that is compiled

# isort: split
from fp8lab import (
    _casts,
    _compare,
    _delayed,
    _diagnose,
    _distributions,
    _gemm_doctor,
    _gemm_recipes,
    _layer,
    _linear,
    _measures,
    _models,
    _outcomes,
    _products,
    _random,
    _recipes,
    _scaling,
    _shapes,
    _state,
    _tensor_parallel,
    _trace,
    _units,
    experiments,
    gpu,
    operators,
)
from fp8lab._casts import *
from fp8lab._compare import *
from fp8lab._core import (
    DelayedVersion,
    Distribution,
    ErrorTotals,
    Format,
    Histogram,
    MmaModel,
    Profile,
    force_target,
    targets,
)
from fp8lab._core import (
    version as __version__,
)
from fp8lab._delayed import *
from fp8lab._diagnose import *
from fp8lab._distributions import *
from fp8lab._entry import guard as _guard
from fp8lab._gemm_doctor import *
from fp8lab._gemm_recipes import *
from fp8lab._layer import *
from fp8lab._linear import *
from fp8lab._measures import *
from fp8lab._models import *
from fp8lab._outcomes import *
from fp8lab._products import *
from fp8lab._random import *
from fp8lab._recipes import *
from fp8lab._scaling import *
from fp8lab._shapes import *
from fp8lab._state import *
from fp8lab._tensor_parallel import *
from fp8lab._trace import *
from fp8lab._units import *

__all__ = [
    "__version__",
    "experiments",
    "gpu",
    "operators",
    "DelayedVersion",
    "Distribution",
    "ErrorTotals",
    "Format",
    "Histogram",
    "MmaModel",
    "Profile",
    "force_target",
    "targets",
]
__all__ += _casts.__all__
__all__ += _compare.__all__
__all__ += _delayed.__all__
__all__ += _diagnose.__all__
__all__ += _distributions.__all__
__all__ += _gemm_doctor.__all__
__all__ += _gemm_recipes.__all__
__all__ += _layer.__all__
__all__ += _linear.__all__
__all__ += _measures.__all__
__all__ += _models.__all__
__all__ += _outcomes.__all__
__all__ += _products.__all__
__all__ += _random.__all__
__all__ += _recipes.__all__
__all__ += _scaling.__all__
__all__ += _shapes.__all__
__all__ += _state.__all__
__all__ += _tensor_parallel.__all__
__all__ += _trace.__all__
__all__ += _units.__all__

_guard(sys.modules[__name__], __all__)
