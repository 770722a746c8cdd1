# SPDX-License-Identifier: Apache-2.0
"""The experiments of the ``fp8lab`` command line; each gives a ``Document``."""

from fp8lab._document import Document
from fp8lab._registered import (
    accumulate,
    cast,
    compare,
    delayed,
    doctor,
    doctor_gemm,
    dot,
    double_rounding,
    gpu,
    harmonic,
    linear,
    primer,
    scaling,
    shapes,
    train,
    transpose,
    verify_casts,
    verify_tensor_cores,
)

__all__ = [
    "Document",
    "accumulate",
    "cast",
    "compare",
    "delayed",
    "doctor",
    "doctor_gemm",
    "dot",
    "double_rounding",
    "gpu",
    "harmonic",
    "linear",
    "primer",
    "scaling",
    "shapes",
    "train",
    "transpose",
    "verify_casts",
    "verify_tensor_cores",
]
