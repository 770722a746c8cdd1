# SPDX-License-Identifier: Apache-2.0
"""The rows of the table: a recipe's name, whose quantizer it is, its oracle here, and what it is compared on."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from quantizers import (
    checkouts,
    inputs,
    installed,
    packages,
    port_nvidia,
    port_sglang,
    port_training,
    port_transformers,
    port_vllm,
)
from quantizers.numerics import Result

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
HALVES = (F16, BF16)


@dataclass(frozen=True)
class Row:
    """``kind`` is "package", whose own functions run, "reference", which are in Python beside its kernels, or "port".

    ``without`` are cases of input that its system leaves undefined, and ``negative_zero`` is False where the oracle
    loses the sign of zeros that its system's kernels keep. Matrices that are not ``usable`` give codes that nobody
    promises.
    What is ``given`` is a number, or a function of the tensor that makes an array. ``input`` makes of the tensor what
    fp8lab quantizes.
    ``how`` is said beside the name. Inputs are at most ``largest``, those of float16 ``largest_half``.
    """

    recipe: str
    package: str
    version: str | Callable[[], str]
    kind: str
    source: str
    oracle: Callable[[torch.Tensor], Result]
    scope: str = "tile"
    tile: tuple[int, int] = (1, 128)
    format: str = "e4m3"
    tensor_scale: bool = False
    dtypes: tuple[torch.dtype, ...] = (F32, F16, BF16)
    without: tuple[str, ...] = ()
    negative_zero: bool = True
    given: tuple[tuple[str, float | Callable[[torch.Tensor], np.ndarray]], ...] = ()
    direction: str = "rowwise"
    input: Callable[[torch.Tensor], torch.Tensor] | None = None
    how: str = ""
    largest: float = math.inf
    largest_half: float = math.inf
    usable: Callable[[torch.Tensor], bool] = lambda x: True

    def name(self) -> str:
        return (
            f"`{self.recipe}`"
            + "".join(f", {what} given" for what, _ in self.given)
            + (f", {self.how}" if self.how else "")
        )

    def version_found(self) -> str:
        """Raises ImportError where the package is missing."""
        return self.version() if callable(self.version) else self.version


TENSOR = {"scope": "tensor", "tile": (4, 16)}
TOKEN = {"scope": "row", "tile": (1, 64)}
GROUP = {"tile": (1, 128)}
BLOCK = {"tile": (128, 128)}
MX8 = {"tile": (1, 32)}
MX4 = {"tile": (1, 32), "format": "e2m1"}
MX6 = {"tile": (1, 32), "format": "e2m3"}
NV4 = {"tile": (1, 16), "format": "e2m1", "tensor_scale": True}


def _vllm(recipe, oracle, source, version="0.33.0", **more):
    return Row(
        recipe, "vllm", version, "port", f"{source}:{oracle.__name__}" if ":" not in source else source, oracle, **more
    )


def _sglang(recipe, oracle, source, **more):
    return Row(recipe, "sglang", "0.5.23", "port", source, oracle, **more)


def _flashinfer(recipe, oracle, source="quantization_utils.cuh", **more):
    return Row(recipe, "flashinfer", "0.7.2.post1", "port", source, oracle, **more)


def _trtllm(recipe, oracle, source="kernels/quantization.cuh", version="0193dbd", **more):
    return Row(recipe, "TensorRT-LLM", version, "port", source, oracle, **more)


#: Scales of a calibration, for rows, columns, groups and blocks: not those of the tensor.
ROW_SCALES = partial(inputs.calibrated, tile=(1, 0))
COLUMN_SCALES = partial(inputs.calibrated, tile=(0, 1))
GROUP_SCALES = partial(inputs.calibrated, tile=(1, 128))
BLOCK_SCALES = partial(inputs.calibrated, tile=(128, 128))
TENSOR_SCALES = partial(inputs.calibrated, tile=(0, 0))

FP8_CU = "csrc/quantization/w8a8/fp8/common.cu"
GROUP_CU = "csrc/quantization/w8a8/fp8/per_token_group_quant.cu"
JIT = "kernels/jit/csrc/gemm"
PORTS = [
    _vllm(
        "vllm_static",
        partial(port_vllm.static, scale=0.0371),
        f"{FP8_CU}:static_scaled_fp8_quant",
        **TENSOR,
        given=(("scale_inv", 0.0371),),
    ),
    _vllm(
        "vllm_static_row",
        partial(port_vllm.static_tiles, scales=ROW_SCALES),
        f"{FP8_CU}:static_scaled_fp8_quant",
        **TOKEN,
        given=(("scale_inv", ROW_SCALES),),
    ),
    _vllm(
        "vllm_static_row",
        partial(port_vllm.static_tiles, scales=COLUMN_SCALES),
        f"{FP8_CU}:static_scaled_fp8_quant",
        **TOKEN,
        given=(("scale_inv", COLUMN_SCALES),),
        direction="columnwise",
        how="by column",
    ),
    _vllm(
        "vllm_static_group",
        partial(port_vllm.static_tiles, scales=GROUP_SCALES),
        f"{FP8_CU}:static_scaled_fp8_quant",
        **GROUP,
        given=(("scale_inv", GROUP_SCALES),),
    ),
    _vllm("vllm_per_tensor", port_vllm.per_tensor, f"{FP8_CU}:dynamic_scaled_fp8_quant", **TENSOR),
    _vllm("vllm_per_token", port_vllm.per_token, f"{FP8_CU}:dynamic_per_token_scaled_fp8_quant", **TOKEN),
    _vllm("vllm_group", port_vllm.group, GROUP_CU, **GROUP),
    _vllm("vllm_group_ue8m0", port_vllm.group_ue8m0, GROUP_CU, **GROUP),
    _vllm("vllm_triton_group", port_vllm.group_triton, "fp8_utils.py:_per_token_group_quant_fp8", **GROUP),
    _vllm("vllm_triton_group_ue8m0", port_vllm.group_triton_ue8m0, "fp8_utils.py:_per_token_group_quant_fp8", **GROUP),
    _vllm("vllm_group_packed", port_vllm.group_packed, GROUP_CU, **GROUP, dtypes=HALVES),
    _vllm(
        "vllm_group_native",
        partial(port_vllm.group_native, ue8m0=False),
        "input_quant_fp8.py:_quantize_group_native",
        **GROUP,
    ),
    _vllm(
        "vllm_group_native_ue8m0",
        partial(port_vllm.group_native, ue8m0=True),
        "input_quant_fp8.py:_quantize_group_native",
        **GROUP,
    ),
    _vllm("vllm_group_before_0_33", port_vllm.group_before_0_33, GROUP_CU, "619f1cf", **GROUP),
    _vllm("vllm_per_token_native", port_vllm.per_token_native, "QuantFP8.forward_native", **TOKEN),
    _vllm("vllm_input_to_float8", port_vllm.input_to_float8, "fp8_utils.py", **TENSOR),
    _vllm("vllm_weight_ue8m0", port_vllm.weight_ue8m0, "utils/deep_gemm.py:per_block_cast_to_fp8", **BLOCK),
    _vllm("vllm_nvfp4", port_vllm.nvfp4, "csrc/quantization/fp4/nvfp4_utils.cuh", **NV4, dtypes=HALVES),
    _vllm("vllm_mxfp4", port_vllm.mxfp4, "csrc/quantization/fp4/nvfp4_utils.cuh", **MX4, dtypes=HALVES),
    _vllm("vllm_mxfp8", port_vllm.mxfp8, "utils/mxfp8_utils.py", **MX8),
    _sglang("sglang_per_tensor", port_sglang.per_tensor, f"{JIT}/per_tensor_quant_fp8.cuh", **TENSOR),
    _sglang("sglang_per_token", port_sglang.per_token, f"{JIT}/per_token_quant_fp8.cuh", **TOKEN),
    _sglang("sglang_per_token_warp", port_sglang.per_token_warp, f"{JIT}/per_token_quant_fp8.cuh", **TOKEN),
    _sglang("sglang_group", port_sglang.group, f"{JIT}/per_token_group_quant.cuh", **GROUP, dtypes=(BF16,)),
    _sglang("sglang_group_half", port_sglang.group, f"{JIT}/per_token_group_quant.cuh", **GROUP, dtypes=(F32, F16)),
    _sglang("sglang_group_ue8m0", port_sglang.group_ue8m0, f"{JIT}/per_token_group_quant.cuh", **GROUP, dtypes=(BF16,)),
    _sglang("sglang_input_to_float8", port_sglang.input_to_float8, "srt/layers/quantization/fp8_utils.py", **TENSOR),
    _sglang("sglang_mxfp8", port_sglang.mxfp8, "mxfp8_quant.py", **MX8),
    _flashinfer("flashinfer_nvfp4", port_nvidia.flashinfer_nvfp4, **NV4, dtypes=HALVES),
    _flashinfer("flashinfer_nvfp4_exact", port_nvidia.flashinfer_nvfp4_exact, **NV4, dtypes=HALVES),
    _flashinfer("flashinfer_nvfp4_cute", port_nvidia.flashinfer_cute_nvfp4, "its CuTe kernel", **NV4, dtypes=HALVES),
    _flashinfer("flashinfer_mxfp4", port_nvidia.flashinfer_cute_mxfp4, "its CuTe kernel", **MX4, dtypes=HALVES),
    _flashinfer("flashinfer_mxfp4_cuda", port_nvidia.flashinfer_mxfp4, **MX4, dtypes=HALVES),
    _flashinfer("flashinfer_mxfp8", port_nvidia.flashinfer_mxfp8, **MX8, dtypes=HALVES),
    _trtllm("trtllm_nvfp4", port_nvidia.trtllm_nvfp4, **NV4, dtypes=HALVES),
    _trtllm("trtllm_mxfp4", port_nvidia.trtllm_mxfp4, **MX4, dtypes=HALVES),
    _trtllm("trtllm_mxfp8", port_nvidia.trtllm_mxfp8, **MX8, dtypes=HALVES),
    _trtllm("trtllm_per_token", port_nvidia.trtllm_per_token, "perTokenQuantization", **TOKEN, dtypes=HALVES),
    _trtllm(
        "trtllm_per_token_min_scaling",
        partial(port_nvidia.trtllm_per_token, min_scaling=True),
        "perTokenQuantization",
        **TOKEN,
        dtypes=HALVES,
    ),
    _trtllm("trtllm_1x128", port_nvidia.trtllm_1x128, "scale_1x128_kernel", "dad183f", **GROUP, dtypes=HALVES),
    _trtllm(
        "trtllm_1x128_ue8m0", port_nvidia.trtllm_1x128_ue8m0, "scale_1x128_kernel", "dad183f", **GROUP, dtypes=HALVES
    ),
    _trtllm(
        "trtllm_1x128_packed",
        port_nvidia.trtllm_1x128_packed,
        "fp8_blockscale_quant_packed.cu",
        "0a31e9b",
        **GROUP,
        dtypes=(BF16,),
    ),
    Row(
        "te_nvfp4_fast_math",
        "Transformer Engine",
        "d0067d0",
        "port",
        "its tuned kernel",
        port_nvidia.transformer_engine_fast_math,
        **NV4,
        dtypes=(BF16,),
    ),  # fmt: skip
    Row(
        "transformers_fp8_activation",
        "finegrained-fp8",
        "017b01b",
        "port",
        "its activation kernel",
        port_transformers.activation,
        **GROUP,
    ),
    Row(
        "transformers_mxfp8",
        "finegrained-fp8",
        "017b01b",
        "port",
        "mx_act_quant_inline",
        port_transformers.mxfp8,
        **MX8,
    ),
]


def _te_port(recipe, oracle, source, **more):
    return Row(recipe, "Transformer Engine", "d0067d0", "port", source, oracle, **more)


def _deepseek(recipe, year, least):
    source = "inference/kernel.py:act_quant_kernel"
    return Row(recipe, "DeepSeek-V3", year, "port", source, partial(port_training.deepseek, least=least), **GROUP)


SCALE_CUH = "common/recipe/recipe_common.cuh:compute_scale_from_amax"
PORTS += [
    _te_port("given_scale", partial(port_training.given, scale=0.37), "the cast of delayed scaling", **TENSOR, given=(("scale", 0.37),)),
    _te_port("te_current_scaling", port_training.transformer_engine_tensor, SCALE_CUH, **TENSOR),
    _te_port("te_current_scaling_pow2", partial(port_training.transformer_engine_tensor, powers=True), SCALE_CUH, **TENSOR),
    _te_port(
        "te_current_scaling_e5m2", partial(port_training.transformer_engine_tensor, format="e5m2"), SCALE_CUH, **TENSOR, format="e5m2"
    ),
    _te_port("te_block_1x128", partial(port_training.transformer_engine_block, tile=(1, 128)), SCALE_CUH, **GROUP),
    _te_port("te_block_128x128", partial(port_training.transformer_engine_block, tile=(128, 128)), SCALE_CUH, **BLOCK),
    _te_port("te_block_1x128_fp32", partial(port_training.transformer_engine_block, tile=(1, 128), powers=False), SCALE_CUH, **GROUP),
    _te_port("te_mxfp8", port_training.transformer_engine_mxfp8, "common/util/ptx_arch_spec.cuh:float_to_e8m0", **MX8),
    _te_port(
        "te_mxfp8_2d", partial(port_training.transformer_engine_mxfp8, tile=(32, 32)), "common/util/ptx_arch_spec.cuh:float_to_e8m0", tile=(32, 32)
    ),
    _deepseek("deepseek_v3_2024", "2024-12", 0),
    _deepseek("deepseek_v3_2025", "2025-08", 1e-4),
    *(
        Row(
            f"ocp_mx{name}", "OCP MX", "1.0", "port", "section 6.3", partial(port_training.ocp_mx, format=format), tile=(1, 32),
            format=format, without=("nonfinite",),
        )
        for name, format in (("fp8_e4m3", "e4m3"), ("fp8_e5m2", "e5m2"), ("fp6_e2m3", "e2m3"), ("fp6_e3m2", "e3m2"), ("fp4", "e2m1"))
    ),
]  # fmt: skip


def _package(recipe, distribution, source, oracle, **more):
    return Row(recipe, distribution, partial(installed.version, distribution), "package", source, oracle, **more)


CT = ("compressed-tensors", "quantization/utils/helpers.py:calculate_qparams")
CT_MX = {"without": ("nonfinite",), "largest": 2.0**127, "largest_half": 2.0**15}
MODELOPT = ("nvidia-modelopt", "torch/quantization/qtensor")
AO = ("torchao", "prototype/mx_formats/mx_tensor.py:to_mx")
AO4 = ("torchao", "prototype/mx_formats/nvfp4_tensor.py:nvfp4_quantize")
AO8 = ("torchao", "quantization/quant_primitives.py:_choose_scale_float8")
HF = ("transformers", "integrations/finegrained_fp8.py:Fp8Quantize")


def not_flushed(x: torch.Tensor) -> bool:
    magnitudes = x.float().abs()
    return not bool(((0 < magnitudes) & (magnitudes < 2.0**-126)).any()) and not 0 < magnitudes.max() < 2.0**-118


QUARK = ("amd-quark", "torch/quantization/observer/observer.py:get_scale")
PACKAGES = [
    _package("compressed_tensors_tensor", *CT, partial(packages.compressed_tensors_fp8, strategy="tensor"), **TENSOR),
    _package("compressed_tensors_channel", *CT, partial(packages.compressed_tensors_fp8, strategy="channel"), **TOKEN),
    _package("compressed_tensors_block", *CT, partial(packages.compressed_tensors_fp8, strategy="block"), **BLOCK),
    *(
        _package(
            f"compressed_tensors_static{'' if strategy == 'tensor' else '_' + strategy}",
            "compressed-tensors",
            "quantization/lifecycle/forward_helpers.py:_quantize",
            partial(packages.compressed_tensors_static, strategy=strategy, scales=scales),
            **scope,
            given=(("scale_inv", scales),),
        )
        for strategy, scope, scales in (
            ("tensor", TENSOR, TENSOR_SCALES),
            ("channel", TOKEN, ROW_SCALES),
            ("group", GROUP, GROUP_SCALES),
            ("block", BLOCK, BLOCK_SCALES),
        )
    ),
    _package("compressed_tensors_nvfp4", *CT, packages.compressed_tensors_nvfp4, **NV4, without=("nonfinite",)),
    _package("compressed_tensors_mxfp8", *CT, partial(packages.compressed_tensors_mx, bits=8), **MX8, **CT_MX),
    _package("compressed_tensors_mxfp4", *CT, partial(packages.compressed_tensors_mx, bits=4), **MX4, **CT_MX),
    _package("compressed_tensors_mxfp6", *CT, partial(packages.compressed_tensors_mx, bits=6), **MX6, **CT_MX),
    _package("modelopt_fp8", *MODELOPT, partial(packages.modelopt_fp8, axis=None), **TENSOR),
    _package("modelopt_fp8_channel", *MODELOPT, partial(packages.modelopt_fp8, axis=0), **TOKEN),
    _package("modelopt_nvfp4_static", *MODELOPT, packages.modelopt_nvfp4_static, **NV4, without=("nonfinite",)),
    _package("modelopt_nvfp4", *MODELOPT, packages.modelopt_nvfp4, **NV4, without=("nonfinite",)),
    _package("modelopt_mxfp4", *MODELOPT, packages.modelopt_mxfp4, **MX4, without=("nonfinite",)),
    _package("modelopt_mxfp8", *MODELOPT, packages.modelopt_mxfp8, **MX8),
    _package("torchao_float8_tensor", *AO8, partial(packages.torchao_float8_tensor, by_row=False), **TENSOR),
    _package(
        "torchao_float8_tensor_e8m0",
        *AO8,
        partial(packages.torchao_float8_tensor, by_row=False, scale_dtype=torch.float8_e8m0fnu),
        **TENSOR,
    ),
    _package("torchao_float8_row", *AO8, partial(packages.torchao_float8_tensor, by_row=True), **TOKEN),
    _package(
        "torchao_tensorwise",
        "torchao",
        "float8/float8_utils.py:tensor_to_scale",
        partial(packages.torchao_training, by_row=False),
        **TENSOR,
    ),
    _package(
        "torchao_rowwise",
        "torchao",
        "float8/float8_utils.py:tensor_to_scale",
        partial(packages.torchao_training, by_row=True),
        **TOKEN,
    ),
    Row(
        "torchao_blockwise",
        "torchao",
        partial(installed.version, "torchao"),
        "reference",
        "blockwise_fp8_training/kernels.py:torch_blockwise_scale_act_quant_lhs",
        packages.torchao_blockwise,
        **GROUP,
    ),  # fmt: skip
    *(
        _package(
            f"torchao_0_18_mxfp{bits}_{mode}",
            *AO,
            partial(packages.torchao_mx, mode=mode, bits=bits),
            **tile,
            dtypes=(F32, BF16),
        )
        for bits, tile in ((8, MX8), (4, MX4 | {"without": ("nonfinite",)}))
        for mode in ("floor", "ceil", "even", "rceil")
    ),
    _package(
        "torchao_nvfp4",
        *AO4,
        partial(packages.torchao_nvfp4, levels=2),
        **NV4,
        without=("nonfinite",),
        dtypes=(F32, BF16),
        usable=lambda x: x.float().abs().max().item() / 2688 >= 2.0**-126,  # else 1 / 0 times 0, and FP4 has no NaN
    ),  # fmt: skip
    _package(
        "torchao_nvfp4_one_level",
        *AO4,
        partial(packages.torchao_nvfp4, levels=1),
        **NV4,
        without=("nonfinite",),
        dtypes=(F32, BF16),
    ),
    _package("transformers_fp8_weight", *HF, partial(packages.transformers_weight, scale_fmt="float"), **BLOCK),
    _package("transformers_fp8_weight_ue8m0", *HF, partial(packages.transformers_weight, scale_fmt="ue8m0"), **BLOCK),
    _package("flax_fp8", "flax", "linen/fp8_ops.py", packages.flax, **TENSOR, usable=not_flushed),
    _package(
        "flax_fp8_bfloat16",
        "flax",
        "linen/fp8_ops.py",
        partial(packages.flax, compute_dtype="bfloat16"),
        **TENSOR,
        dtypes=(BF16,),
        usable=not_flushed,
    ),
    _package(
        "quark_fp8", *QUARK, partial(packages.quark, tile=(4, 16), element="fp8_e4m3", scale_format="float32"), **TENSOR
    ),
    _package(
        "quark_mxfp8",
        *QUARK,
        partial(packages.quark, tile=(1, 32), element="fp8_e4m3", scale_format="e8m0"),
        **MX8,
        largest=2.0**127,
    ),
    _package(
        "quark_mxfp4",
        *QUARK,
        partial(packages.quark, tile=(1, 32), element="fp4", scale_format="e8m0"),
        **MX4,
        largest=2.0**127,
    ),
    _package(
        "quark_nvfp4",
        *QUARK,
        partial(packages.quark, tile=(1, 16), element="fp4", scale_format="e4m3"),
        **NV4,
        without=("nonfinite",),
    ),
]


def _checkout(recipe, name, project, kind, source, oracle, tag="HEAD", **more):
    return Row(recipe, name, partial(installed.commit, project, tag), kind, source, oracle, **more)


TE = ("Transformer Engine", checkouts.TE, "reference", "pytorch/custom_recipes/reference_nvfp4.py")
AO_HEAD = ("torchao", checkouts.AO, "package", "prototype/mx_formats/mx_tensor.py:to_mx")
DEEPGEMM = ("DeepGEMM", checkouts.DEEPGEMM, "package", "deep_gemm/utils/math.py")
MX = ("microxcaling", checkouts.MICROXCALING, "package", "mx/mx_ops.py:_quantize_mx")
TE4 = NV4 | {"dtypes": (F32, BF16), "without": ("nonfinite",), "negative_zero": False}


def turned_without_flush(x: torch.Tensor) -> bool:
    """PyTorch's product of bfloat16 matrices on a CPU flushes subnormals: here quarters of elements."""
    magnitudes = x.float().abs()
    return not bool(((0 < magnitudes) & (magnitudes < 2.0**-124)).any())


def _te(recipe, tag="HEAD", **options):
    tile = {"tile": options["quant_tile_shape"]} if "quant_tile_shape" in options else {}
    return _checkout(recipe, *TE, partial(checkouts.transformer_engine_nvfp4, tag=tag, **options), tag, **(TE4 | tile))


def _te_turned(recipe, tag="HEAD"):
    return _checkout(
        recipe, *TE, partial(checkouts.transformer_engine_nvfp4_rht, tag=tag), tag, **(TE4 | {"dtypes": (BF16,)}), direction="columnwise",
        input=lambda x: x.T.contiguous(), usable=turned_without_flush,
    )  # fmt: skip


def _four_over_six(largest: int, mode: str, **more) -> dict:
    return {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": largest, "nvfp4_4over6_err_mode": mode, **more}


CHECKOUTS = [
    _te("te_nvfp4"),
    _te("te_nvfp4_row_scaled", row_scaled_nvfp4=True),
    *(
        _te(f"te_nvfp4_4over6{'_448' if largest == 448 else ''}{'_mse' if mode == 'MSE' else ''}", **_four_over_six(largest, mode))
        for mode in ("MAE", "MSE")
        for largest in (256, 448)
    ),
    _te("te_nvfp4_2d", quant_tile_shape=(16, 16)),
    _te("te_nvfp4_4over6_2d", quant_tile_shape=(16, 16), **_four_over_six(256, "MAE")),
    _te_turned("te_nvfp4_rht"),
    _te("te_nvfp4_before_2_14", checkouts.TE_BEFORE_2_14),
    _te("te_nvfp4_2d_before_2_14", checkouts.TE_BEFORE_2_14, quant_tile_shape=(16, 16)),
    _te_turned("te_nvfp4_rht_before_2_14", checkouts.TE_BEFORE_2_14),
    *(
        _checkout(f"torchao_mxfp{bits}_{mode}", *AO_HEAD, partial(checkouts.torchao_mx, mode=mode, bits=bits), **tile, dtypes=(F32, BF16))
        for bits, tile in ((8, MX8), (4, MX4 | {"without": ("nonfinite",), "largest": 2.0**127}))
        for mode in ("floor", "ceil", "even", "rceil")
    ),
    _checkout("deepgemm_cpu", *DEEPGEMM, partial(checkouts.deepgemm_fp8, ue8m0=False, group=128), **GROUP),
    _checkout("deepgemm_ue8m0", *DEEPGEMM, partial(checkouts.deepgemm_fp8, ue8m0=True, group=128), **GROUP),
    _checkout("deepgemm_weight_ue8m0", *DEEPGEMM, checkouts.deepgemm_fp8_block, **BLOCK),
    _checkout("deepgemm_fp4", *DEEPGEMM, partial(checkouts.deepgemm_fp4, ue8m0=False, group=128), tile=(1, 128), format="e2m1"),
    _checkout("deepgemm_fp4_ue8m0", *DEEPGEMM, partial(checkouts.deepgemm_fp4, ue8m0=True, group=32), **MX4),
    *(
        _checkout(name, *DEEPGEMM, partial(checkouts.on_cuda(oracle), **options), **tile, how="a GPU's divisions")
        for name, oracle, options, tile in (
            ("deepgemm_cuda", checkouts.deepgemm_fp8, {"ue8m0": False, "group": 128}, GROUP),
            ("deepgemm_ue8m0", checkouts.deepgemm_fp8, {"ue8m0": True, "group": 128}, GROUP),
            ("deepgemm_weight_ue8m0", checkouts.deepgemm_fp8_block, {}, BLOCK),
            ("deepgemm_fp4_cuda", checkouts.deepgemm_fp4, {"ue8m0": False, "group": 128}, GROUP | {"format": "e2m1"}),
            ("deepgemm_fp4_ue8m0", checkouts.deepgemm_fp4, {"ue8m0": True, "group": 32}, MX4),
        )
    ),
    *(
        _checkout(
            f"microxcaling_{name}{ending}", *MX,
            partial(checkouts.microxcaling, element=element, round=rounding, flush=flush), **tile, dtypes=(F32, BF16),
        )
        for name, element, tile in (
            ("mxfp8", "fp8_e4m3", MX8), ("mxfp4", "fp4_e2m1", MX4), ("mxfp6_e2m3", "fp6_e2m3", MX6),
            ("mxfp6_e3m2", "fp6_e3m2", MX6 | {"format": "e3m2"}), ("mxfp8_e5m2", "fp8_e5m2", MX8 | {"format": "e5m2"}),
        )
        for ending, rounding, flush in (
            ("", "nearest", False), ("_flush", "nearest", True), ("_even", "even", False), ("_floor", "floor", False)
        )
        if name in ("mxfp8", "mxfp4") or not ending
    ),
]  # fmt: skip

GIVEN = NV4 | {"dtypes": HALVES, "given": (("tensor_scale", 421.3),)}
WITH_GLOBAL_SCALE = [
    _vllm(
        "vllm_nvfp4",
        partial(port_vllm.nvfp4, g=421.3),
        "csrc/quantization/fp4/nvfp4_utils.cuh:cvt_warp_fp16_to_fp4",
        **GIVEN,
    ),
    _flashinfer("flashinfer_nvfp4", partial(port_nvidia.flashinfer_nvfp4, g=421.3), **GIVEN),
    _flashinfer("flashinfer_nvfp4_exact", partial(port_nvidia.flashinfer_nvfp4_exact, g=421.3), **GIVEN),
    _flashinfer(
        "flashinfer_nvfp4_cute", partial(port_nvidia.flashinfer_cute_nvfp4, g=421.3), "its CuTe kernel", **GIVEN
    ),
    _trtllm("trtllm_nvfp4", partial(port_nvidia.trtllm_nvfp4, g=421.3), **GIVEN),
]

# Under this scale the float16 values are exact, and many products are midpoints, which tell the kernels' factors
# apart.
G = 168.0
OF_E4M3 = NV4 | {
    "dtypes": (F16,),
    "given": (("tensor_scale", G),),
    "input": partial(port_nvidia.of_e4m3, g=G),
    "how": "of E4M3",
}
WITH_GLOBAL_SCALE += [
    _flashinfer("flashinfer_fp8_to_nvfp4", partial(port_nvidia.flashinfer_fp8_to_nvfp4, g=G), **OF_E4M3),
    _flashinfer(
        "flashinfer_nvfp4_cute", partial(port_nvidia.flashinfer_cute_fp8_to_nvfp4, g=G), "its CuTe kernel", **OF_E4M3
    ),
    _trtllm("trtllm_fp8_to_nvfp4", partial(port_nvidia.trtllm_fp8_to_nvfp4, g=G), **OF_E4M3),
]

ROWS = PORTS + WITH_GLOBAL_SCALE + PACKAGES + CHECKOUTS
