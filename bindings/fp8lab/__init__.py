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

from fp8lab import (
    _interpreter,  # noqa: F401  # before anything that is compiled
    experiments,
    gpu,
)
from fp8lab._casts import (
    ChainDifferences,
    cast_to_representable,
    chain_differences,
    decode,
    encode,
    formats,
    pack_pairs,
    profiles,
    roundings,
    unpack_pairs,
)
from fp8lab._compare import Comparison, Distance, Mismatch, QuantizedComparison, compare
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
from fp8lab._delayed import AmaxHistory, Delayed, delayed_versions, reduced_amax
from fp8lab._diagnose import Diagnosis, Discriminator, Explanation, Probe, diagnose
from fp8lab._distributions import BestScale, best_scale, distributions, exact_sqnr_db, normal_grid, sample
from fp8lab._entry import guard as _guard
from fp8lab._gemm_doctor import (
    GemmDeparture,
    GemmDiagnosis,
    GemmElement,
    GemmExplanation,
    GemmProbe,
    diagnose_gemm,
    gemm_departures,
)
from fp8lab._gemm_recipes import GemmRecipe, NamedGemmRecipe, gemm_recipes
from fp8lab._layer import LayerGrads, Linear
from fp8lab._linear import (
    LinearGemm,
    LinearRecipe,
    NamedLinearRecipe,
    linear,
    linear_dgrad,
    linear_recipes,
    linear_wgrad,
    override_linear_precision,
)
from fp8lab._measures import absolute_error, errors, histogram, relative_error, ulp_error
from fp8lab._models import model_with, models, takes
from fp8lab._outcomes import CastBounds, OutcomeBounds, OutcomeCounts, cast_bounds, count_outcomes
from fp8lab._products import gemm, mma
from fp8lab._random import philox4x32, torch_cpu_uniform, torch_cuda_normal, torch_cuda_uniform
from fp8lab._recipes import Block, GivenScale, JustInTime, MxBlock, NamedRecipe, NvFp4, Recipe, TileScale, recipes
from fp8lab._scaling import (
    Quantized,
    dequantize,
    hadamard_columns,
    pad_scales,
    quantize,
    quantize_both,
    swizzle_scales,
    unpad_scales,
    unswizzle_scales,
)
from fp8lab._shapes import ShapeFit, shape_fits
from fp8lab._state import (
    Fp8State,
    LinearCall,
    LinearGrads,
    StateEvent,
    StateRules,
    linear_bias_gradient,
    reduce_and_update,
    state_rules,
)
from fp8lab._tensor_parallel import Reduction, TensorParallel
from fp8lab._trace import trace_dot

__all__ = [
    "AmaxHistory",
    "BestScale",
    "Block",
    "CastBounds",
    "ChainDifferences",
    "Comparison",
    "Delayed",
    "DelayedVersion",
    "Diagnosis",
    "Discriminator",
    "Distance",
    "Distribution",
    "ErrorTotals",
    "Explanation",
    "Format",
    "Fp8State",
    "GemmDeparture",
    "GemmDiagnosis",
    "GemmElement",
    "GemmExplanation",
    "GemmProbe",
    "GemmRecipe",
    "GivenScale",
    "Histogram",
    "JustInTime",
    "LayerGrads",
    "Linear",
    "LinearCall",
    "LinearGemm",
    "LinearGrads",
    "LinearRecipe",
    "Mismatch",
    "MmaModel",
    "MxBlock",
    "NamedGemmRecipe",
    "NamedLinearRecipe",
    "NamedRecipe",
    "NvFp4",
    "OutcomeBounds",
    "OutcomeCounts",
    "Probe",
    "Profile",
    "Quantized",
    "QuantizedComparison",
    "Recipe",
    "Reduction",
    "ShapeFit",
    "StateEvent",
    "StateRules",
    "TensorParallel",
    "TileScale",
    "__version__",
    "absolute_error",
    "best_scale",
    "cast_bounds",
    "cast_to_representable",
    "chain_differences",
    "compare",
    "count_outcomes",
    "decode",
    "delayed_versions",
    "dequantize",
    "diagnose",
    "diagnose_gemm",
    "distributions",
    "encode",
    "errors",
    "exact_sqnr_db",
    "experiments",
    "force_target",
    "formats",
    "gemm",
    "gemm_departures",
    "gemm_recipes",
    "gpu",
    "hadamard_columns",
    "histogram",
    "linear",
    "linear_bias_gradient",
    "linear_dgrad",
    "linear_recipes",
    "linear_wgrad",
    "mma",
    "model_with",
    "models",
    "normal_grid",
    "override_linear_precision",
    "pack_pairs",
    "pad_scales",
    "philox4x32",
    "profiles",
    "quantize",
    "quantize_both",
    "recipes",
    "reduce_and_update",
    "reduced_amax",
    "relative_error",
    "roundings",
    "sample",
    "shape_fits",
    "state_rules",
    "swizzle_scales",
    "takes",
    "targets",
    "torch_cpu_uniform",
    "torch_cuda_normal",
    "torch_cuda_uniform",
    "trace_dot",
    "ulp_error",
    "unpack_pairs",
    "unpad_scales",
    "unswizzle_scales",
]

_guard(sys.modules[__name__], __all__)
