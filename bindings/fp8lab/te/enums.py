# SPDX-License-Identifier: Apache-2.0
"""The enumerations and plain classes of Transformer Engine's extension, as its pybind11 module declares them.

Members and their order are those of transformer_engine/common/util/pybind_helper.h and pytorch/csrc/pybind.h (2.20).
"""

from __future__ import annotations

import enum
from typing import Any

from fp8lab.te._releases import installed_release

__all__ = [
    "CommOverlapAlgo",
    "CommOverlapType",
    "DType",
    "FP8BwdTensors",
    "FP8FwdTensors",
    "FP8TensorMeta",
    "Float8BlockScaleTensorFormat",
    "NVTE_Bias_Type",
    "NVTE_Fused_Attn_Backend",
    "NVTE_Mask_Type",
    "NVTE_QKV_Format",
    "NVTE_QKV_Layout",
    "NVTE_Softmax_Type",
    "NVTEQBHistogramMode",
    "NVTERoutingMapFormat",
    "NVTEScalingMode",
]


class _Tag(enum.Enum):
    """An enumeration as pybind11 makes them: not an int, but convertible to one."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __hash__(self) -> int:
        return int(self.value)

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return type(self), (int(self.value),)


class _Number(_Tag):
    """Members are equal where their numbers are."""

    def __eq__(self, other: object) -> bool:
        return int(self) == int(other)  # type: ignore[call-overload, no-any-return]

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = _Tag.__hash__


#: The element types, by the numbers that the release has for them: checkpoints of FP8 weights keep these.
DType: Any = _Number("DType", list(installed_release().dtype_numbers.items()), module=__name__)  # type: ignore[call-arg]


def _tags(name: str, members: str) -> Any:
    return _Tag(name, members.split(), start=0, module=__name__)  # type: ignore[call-arg]


FP8FwdTensors = _tags(
    "FP8FwdTensors",
    "GEMM1_INPUT GEMM1_WEIGHT GEMM1_OUTPUT GEMM2_INPUT GEMM2_WEIGHT GEMM2_OUTPUT GEMM3_INPUT GEMM3_WEIGHT GEMM3_OUTPUT",
)
FP8BwdTensors = _tags("FP8BwdTensors", "GRAD_OUTPUT1 GRAD_INPUT1 GRAD_OUTPUT2 GRAD_INPUT2 GRAD_OUTPUT3 GRAD_INPUT3")
CommOverlapType = _tags("CommOverlapType", "RS AG")
CommOverlapAlgo = _tags(
    "CommOverlapAlgo",
    "BULK_OVERLAP_AG BULK_OVERLAP_RS SPLIT_PIPELINED_AG_P2P SPLIT_PIPELINED_RS SPLIT_PIPELINED_RS_P2P ATOMIC_GEMM_RS "
    "ATOMIC_GEMM_AG_P2P ATOMIC_GEMM_RS_P2P EXTERNAL_BULK_OVERLAP_AG",
)
Float8BlockScaleTensorFormat = _tags("Float8BlockScaleTensorFormat", "GEMM_READY COMPACT INVALID")
NVTE_Bias_Type = _tags("NVTE_Bias_Type", "NVTE_NO_BIAS NVTE_PRE_SCALE_BIAS NVTE_POST_SCALE_BIAS NVTE_ALIBI")
NVTE_Mask_Type = _tags(
    "NVTE_Mask_Type",
    "NVTE_NO_MASK NVTE_PADDING_MASK NVTE_CAUSAL_MASK NVTE_PADDING_CAUSAL_MASK NVTE_CAUSAL_BOTTOM_RIGHT_MASK "
    "NVTE_PADDING_CAUSAL_BOTTOM_RIGHT_MASK",
)
NVTE_Softmax_Type = _tags("NVTE_Softmax_Type", "NVTE_VANILLA_SOFTMAX NVTE_OFF_BY_ONE_SOFTMAX NVTE_LEARNABLE_SOFTMAX")
NVTE_QKV_Format = _tags(
    "NVTE_QKV_Format",
    "NVTE_SBHD NVTE_BSHD NVTE_THD NVTE_BSHD_2SBHD NVTE_SBHD_2BSHD NVTE_THD_2BSHD NVTE_THD_2SBHD NVTE_BHSD "
    "NVTE_QKV_Format_NOT_SET",
)
NVTE_QKV_Layout = _tags(
    "NVTE_QKV_Layout",
    "NVTE_SB3HD NVTE_SBH3D NVTE_SBHD_SB2HD NVTE_SBHD_SBH2D NVTE_SBHD_SBHD_SBHD NVTE_BS3HD NVTE_BSH3D NVTE_BSHD_BS2HD "
    "NVTE_BSHD_BSH2D NVTE_BSHD_BSHD_BSHD NVTE_T3HD NVTE_TH3D NVTE_THD_T2HD NVTE_THD_TH2D NVTE_THD_THD_THD "
    "NVTE_SBHD_BSHD_BSHD NVTE_BSHD_SBHD_SBHD NVTE_THD_BSHD_BSHD NVTE_THD_SBHD_SBHD NVTE_Paged_KV_BSHD_BSHD_BSHD "
    "NVTE_Paged_KV_BSHD_SBHD_SBHD NVTE_Paged_KV_SBHD_BSHD_BSHD NVTE_Paged_KV_SBHD_SBHD_SBHD "
    "NVTE_Paged_KV_THD_BSHD_BSHD NVTE_Paged_KV_THD_SBHD_SBHD NVTE_BHSD_BHSD_BHSD NVTE_QKV_Layout_NOT_SET",
)
NVTE_Fused_Attn_Backend = _tags("NVTE_Fused_Attn_Backend", " ".join(installed_release().fused_attention_backends))
NVTEScalingMode = _tags(
    "NVTEScalingMode",
    "NVTE_DELAYED_TENSOR_SCALING NVTE_MXFP8_1D_SCALING NVTE_BLOCK_SCALING_1D NVTE_BLOCK_SCALING_2D "
    "NVTE_NVFP4_1D_SCALING NVTE_INVALID_SCALING",
)
NVTERoutingMapFormat = _tags("NVTERoutingMapFormat", "BYTEMAP BITMAP_U8")
NVTEQBHistogramMode = _tags("NVTEQBHistogramMode", "TWO_KERNEL FUSED_ATOMIC")


class FP8TensorMeta:
    """Scales and histories of the tensors of a module, which its Python fills."""

    def __init__(self) -> None:
        self.scale: Any = None
        self.scale_inv: Any = None
        self.amax_history: Any = None
