# SPDX-License-Identifier: Apache-2.0
"""What the extension answers when it is asked: versions of libraries, streams, sizes of workspaces."""

from __future__ import annotations

from typing import Any

from fp8lab.te import enums
from fp8lab.te._cuda import CUBLASLT_VERSION, CUDNN_VERSION

__all__ = [
    "device_supports_multicast",
    "get_cublasLt_version",
    "get_cudnn_version",
    "get_fused_attn_backend",
    "get_grouped_gemm_setup_workspace_size",
    "get_num_cublas_streams",
    "get_stream_priority_range",
    "nvte_built_with_cublasmp",
    "ubuf_built_with_mpi",
]
EXPORTED = tuple(__all__)
_num_cublas_streams = 4  # the same number, as releases until 2.8 have it


def get_cublasLt_version() -> int:  # noqa: N802  # the extension's name
    """The version of cuBLASLt whose GEMMs are emulated."""
    return CUBLASLT_VERSION


def get_cudnn_version() -> int:
    """The version of cuDNN that support checks see; none of its kernels runs."""
    return CUDNN_VERSION


def get_num_cublas_streams() -> int:
    return 4


def get_stream_priority_range(device_id: int = -1) -> tuple[int, int]:
    return (0, -5)


def device_supports_multicast(device_id: int = -1) -> bool:
    return False


def ubuf_built_with_mpi() -> bool:
    return False


def nvte_built_with_cublasmp() -> bool:
    return False


def get_grouped_gemm_setup_workspace_size(num_tensors: int) -> int:
    """Bytes that a grouped GEMM's pointers take; nothing is written there."""
    return 256


def get_fused_attn_backend(*_args: Any, **_options: Any) -> tuple[Any, str]:
    """No fused attention: Transformer Engine's own UnfusedDotProductAttention computes it."""
    return enums.NVTE_Fused_Attn_Backend.NVTE_No_Backend, "fp8lab.te has no cuDNN attention"
