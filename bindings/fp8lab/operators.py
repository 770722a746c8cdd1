# SPDX-License-Identifier: Apache-2.0
"""What stands between two GEMMs, as Transformer Engine's kernels compute it: activations, norms and softmaxes, forward
and backward, and optimizers.

Inputs are NumPy, ml_dtypes or torch arrays of float32, float16 or bfloat16 with rows along their last dimension; they
are computed in float32. Results are NumPy arrays of ``out_dtype``, the input's type if left out, rounded to nearest
even; ``float32`` gives the unrounded result, which the kernels quantize under delayed scaling. Every NaN is the
positive one of all ones, as of NVIDIA's instructions.

Where a kernel's bits depend on the device's functions and on its order of sums, the argument ``functions`` says which.
``hopper`` has those of an H100 or H200, for what ``functions()`` says. With ``correctly_rounded`` fp8lab has a
documented choice instead: elementary functions rounded correctly, and sums in a fixed order, whatever the number of
threads:

- along a row, element j is added to lane j % 32, in ascending order, from +0 on, rows being filled up with +0; then
  lane i and lane i + 16 are added, of these i and i + 8, and so on;
- over rows, block b of 32 has rows [b n, (b + 1) n), n = ceil(rows / 32), added in order from +0 on; then block i and
  block i + 16, and so on.

What is fused into one rounding is what nvcc 13.0 fuses of the kernels' formulas for sm_90. ``exactness()`` says of each
function what is exact and how far the rest can be from a device; ``activation_bounds`` and its like say it of each
element, and how many FP8 codes are open.

Every function takes

    functions : str
        Where exp, tanh and the like come from: one of ``functions()``.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray, optional
        Where the (first) result goes: of its shape and type, C-contiguous. Inputs that overlap it are copied first.

and raises TypeError for other element types and ValueError for shapes that do not fit, unknown names (the message lists
the known ones) and options that nothing reads; messages name the argument.
"""

from fp8lab import (
    _activations,
    _compiled_gelu,
    _dropout,
    _elementary,
    _group_bias,
    _mask_permutation,
    _norms,
    _nvfp4_shard,
    _operator_bounds,
    _optimizers,
    _permutation,
    _rope,
    _router,
    _row_sums,
    _softmax,
)
from fp8lab._activations import *
from fp8lab._compiled_gelu import *
from fp8lab._dropout import *
from fp8lab._elementary import *
from fp8lab._group_bias import *
from fp8lab._mask_permutation import *
from fp8lab._norms import *
from fp8lab._nvfp4_shard import *
from fp8lab._operator_bounds import *
from fp8lab._optimizers import *
from fp8lab._permutation import *
from fp8lab._rope import *
from fp8lab._router import *
from fp8lab._row_sums import *
from fp8lab._softmax import *

__all__: list[str] = []
__all__ += _activations.__all__
__all__ += _compiled_gelu.__all__
__all__ += _dropout.__all__
__all__ += _elementary.__all__
__all__ += _group_bias.__all__
__all__ += _mask_permutation.__all__
__all__ += _norms.__all__
__all__ += _nvfp4_shard.__all__
__all__ += _operator_bounds.__all__
__all__ += _optimizers.__all__
__all__ += _permutation.__all__
__all__ += _rope.__all__
__all__ += _router.__all__
__all__ += _row_sums.__all__
__all__ += _softmax.__all__
