# SPDX-License-Identifier: Apache-2.0
"""Packages that are installed: their own functions, called as their users call them, on a CPU."""

import functools
import importlib
import warnings
from types import SimpleNamespace

import numpy as np
import torch

from quantizers import installed
from quantizers.numerics import Result, codes_of_values, q4


def codes8(x: torch.Tensor) -> np.ndarray:
    return x.contiguous().view(torch.uint8).numpy()


def codes4(packed: torch.Tensor) -> np.ndarray:
    """Pairs with the even element in the low nibble."""
    byte = codes8(packed)
    return np.stack([byte & 15, byte >> 4], axis=-1).reshape(byte.shape[0], -1)


def scales_of(scale: torch.Tensor) -> np.ndarray:
    return codes8(scale) if scale.dtype.itemsize == 1 else scale.float().numpy()


# --- compressed-tensors ---

_HUGGING_FACE = ("transformers", "transformers.file_utils", "transformers.utils")


@functools.cache
def compressed_tensors():
    return SimpleNamespace(
        **vars(installed.module("compressed_tensors.quantization.quant_args", unused=_HUGGING_FACE)),
        helpers=installed.module("compressed_tensors.quantization.utils.helpers", unused=_HUGGING_FACE),
        forward=installed.module("compressed_tensors.quantization.lifecycle.forward_helpers", unused=_HUGGING_FACE),
    )


def compressed_tensors_fp8(x: torch.Tensor, strategy: str) -> Result:
    """Weights by the tensor, the output channel or a block of 128 x 128, as llm-compressor's min-max observer has their
    ranges."""
    ct = compressed_tensors()
    blocks = {"block_structure": [128, 128]} if strategy == "block" else {}
    args = ct.QuantizationArgs(num_bits=8, type="float", strategy=strategy, **blocks)
    if strategy == "block":
        padded = torch.nn.functional.pad(x, (0, -x.shape[1] % 128, 0, -x.shape[0] % 128))  # as the observer pads
        tiled = padded.unflatten(0, (-1, 128)).unflatten(-1, (-1, 128))
        low, high = tiled.amin((1, 3)), tiled.amax((1, 3))
    else:
        low, high = (x.amin(1, keepdim=True), x.amax(1, keepdim=True)) if strategy == "channel" else torch.aminmax(x)
    scale, zero_point = ct.helpers.calculate_qparams(low, high, args)
    process = ct.forward._process_block if strategy == "block" else ct.forward._apply_quantize_op
    bounds = ct.helpers.calculate_range(args, "cpu")
    codes = process(x, scale, zero_point, args=args, q_min=bounds[0], q_max=bounds[1], dtype=torch.float8_e4m3fn, do_quantize=True,
                    do_dequantize=False, global_scale=None)  # fmt: skip
    return Result(codes8(codes), scales_of(scale))


def compressed_tensors_static(x: torch.Tensor, strategy: str, scales) -> Result:
    """With scales of a calibration or a checkpoint, in the type of the tensor, and zero points of 0."""
    ct = compressed_tensors()
    sizes = {"group": {"group_size": 128}, "block": {"block_structure": [128, 128]}}.get(strategy, {})
    args = ct.QuantizationArgs(num_bits=8, type="float", strategy=strategy, **sizes)
    scale = torch.from_numpy(scales(x)).to(x.dtype)
    if strategy == "tensor":
        scale = scale.reshape(1)
    zero_point = torch.zeros(scale.shape, dtype=torch.float8_e4m3fn)
    process = {"group": ct.forward._process_group, "block": ct.forward._process_block}.get(
        strategy, ct.forward._apply_quantize_op
    )
    bounds = ct.helpers.calculate_range(args, "cpu")
    with installed.present("compressed_tensors", unused=_HUGGING_FACE):
        codes = process(x, scale, zero_point, args=args, q_min=bounds[0], q_max=bounds[1], dtype=torch.float8_e4m3fn, do_quantize=True,
                        do_dequantize=False, global_scale=None)  # fmt: skip
    return Result(codes8(codes), scales_of(scale))


def _compressed_tensors_groups(
    x: torch.Tensor, args, global_scale: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    ct = compressed_tensors()
    groups = x.unflatten(-1, (-1, args.group_size))
    scale, zero_point = ct.helpers.calculate_qparams(groups.amin(-1), groups.amax(-1), args, global_scale=global_scale)
    low, high = ct.helpers.calculate_range(args, "cpu")
    with installed.present("compressed_tensors", unused=_HUGGING_FACE):
        values = ct.forward._process_group(x, scale, zero_point, args, low, high, None, True, False, global_scale)
    return values, scale


def compressed_tensors_nvfp4(x: torch.Tensor) -> Result:
    ct = compressed_tensors()
    args = ct.QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype=torch.float8_e4m3fn
    )
    values, scale = _compressed_tensors_groups(x, args, ct.helpers.generate_gparam(*torch.aminmax(x)))
    return Result(codes_of_values(values.float().numpy(), "e2m1"), codes8(scale.to(torch.float8_e4m3fn)))


def compressed_tensors_mx(x: torch.Tensor, bits: int) -> Result:
    ct = compressed_tensors()
    args = ct.QuantizationArgs(num_bits=bits, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8)
    values, scale = _compressed_tensors_groups(x, args, None)
    byte = (torch.log2(scale.double()) + 127).to(torch.uint8)
    return Result(codes_of_values(values.float().numpy(), {8: "e4m3", 6: "e2m3", 4: "e2m1"}[bits]), byte.numpy())


# --- NVIDIA ModelOpt ---

_MODELOPT_UNUSED = (
    "modelopt.torch.quantization.config", "modelopt.torch.utils", "modelopt.torch.utils.network", "torch.distributed.fsdp",
    "torch.distributed.fsdp._fully_shard._fsdp_param", "torch.distributed.tensor",
)  # fmt: skip


def modelopt(name: str):
    return getattr(
        installed.module(f"modelopt.torch.quantization.qtensor.{name}_tensor", unused=_MODELOPT_UNUSED),
        f"{name.upper()}QTensor",
    )


def modelopt_fp8(x: torch.Tensor, axis: int | None) -> Result:
    tensor, scale = modelopt("fp8").quantize(x, axis=axis)
    return Result(codes8(tensor._quantized_data), scales_of(scale))


def modelopt_nvfp4(x: torch.Tensor) -> Result:
    tensor, scale, _ = modelopt("nvfp4").quantize(x, 16)
    return Result(codes4(tensor._quantized_data), codes8(scale))


def modelopt_nvfp4_static(x: torch.Tensor) -> Result:
    """With the amaxes of blocks and tensor that a calibration leaves in the quantizer: here those of x."""
    nvfp4 = modelopt("nvfp4")
    amax = torch.nn.functional.pad(x.float().abs(), (0, -x.shape[-1] % 16)).unflatten(-1, (-1, 16)).amax(-1)
    quantizer = SimpleNamespace(block_sizes={-1: 16}, global_amax=amax.max(), _amax=amax)
    scale, tensor_scale = nvfp4.get_weights_scaling_factor_from_quantizer(quantizer, x)
    tensor = nvfp4.quantize(x, 16, scale, tensor_scale)[0]
    return Result(codes4(tensor._quantized_data), codes8(scale))


def modelopt_mxfp4(x: torch.Tensor) -> Result:
    tensor, scale = modelopt("mxfp4").quantize(x, 32)
    return Result(codes4(tensor._quantized_data), scale.numpy())


def modelopt_mxfp8(x: torch.Tensor) -> Result:
    tensor, scale = modelopt("mxfp8").quantize(x)
    return Result(codes8(tensor._quantized_data), scale.numpy())


# --- torchao ---


def _torchao(name: str):
    with warnings.catch_warnings():  # which are its own
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def torchao_float8_tensor(x: torch.Tensor, by_row: bool, scale_dtype: torch.dtype = torch.float32) -> Result:
    primitives = _torchao("torchao.quantization.quant_primitives")
    block = [1, x.shape[1]] if by_row else list(x.shape)
    scale = primitives._choose_scale_float8(x, block, torch.float8_e4m3fn, scale_dtype)
    return Result(codes8(primitives._quantize_affine_float8(x, scale, torch.float8_e4m3fn)), scales_of(scale))


def torchao_mx(x: torch.Tensor, mode: str, bits: int) -> Result:
    mx = _torchao("torchao.prototype.mx_formats.mx_tensor")
    modes = _torchao("torchao.prototype.mx_formats.config").ScaleCalculationMode
    dtype = torch.float8_e4m3fn if bits == 8 else torch.float4_e2m1fn_x2
    scale, codes = mx.to_mx(x.contiguous(), dtype, 32, scaling_mode=modes(mode))
    return Result(codes8(codes) if bits == 8 else codes4(codes), codes8(scale))


def torchao_nvfp4(x: torch.Tensor, levels: int) -> Result:
    nvfp4 = _torchao("torchao.prototype.mx_formats.nvfp4_tensor")
    scale, codes = nvfp4.nvfp4_quantize(
        x, 16, nvfp4.per_tensor_amax_to_scale(x.float().abs().max()) if levels == 2 else None
    )
    return Result(codes4(codes), codes8(scale))


def torchao_training(x: torch.Tensor, by_row: bool) -> Result:
    """A tensor of a Float8Linear; its scale multiplies on quantize, and the product takes the reciprocal. Rows have
    powers of two."""
    utils = _torchao("torchao.float8.float8_utils")
    training = _torchao("torchao.float8.float8_training_tensor")
    how = (
        {
            "scaling_granularity": utils.ScalingGranularity.AXISWISE,
            "axiswise_dim": -1,
            "round_scales_to_power_of_2": True,
        }
        if by_row
        else {}
    )
    scale = utils.tensor_to_scale(x, torch.float8_e4m3fn, **how)
    tensor = training.hp_tensor_and_scale_to_float8(x, scale, torch.float8_e4m3fn, training.LinearMMConfig())
    return Result(codes8(tensor._data), scales_of(tensor._scale.reciprocal()))


def _torchao_blockwise_kernels():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return installed.module(
            "torchao.prototype.blockwise_fp8_training.kernels", unused=("triton", "triton.language")
        )


def torchao_blockwise(x: torch.Tensor) -> Result:
    """The quantizer in PyTorch that its tests hold the Triton kernel to."""
    codes, scale_inv = _torchao_blockwise_kernels().torch_blockwise_scale_act_quant_lhs(x)
    return Result(codes8(codes), scales_of(scale_inv.contiguous()))


def torchao_blockwise_columns(x: torch.Tensor) -> Result:
    """The same along columns."""
    codes, scale_inv = _torchao_blockwise_kernels().torch_blockwise_scale_act_quant_rhs(x)
    return Result(codes8(codes.contiguous()), scales_of(scale_inv.contiguous()))


# --- transformers, Quark ---

_FINE_UNUSED = (
    "transformers.activations", "transformers.core_model_loading", "transformers.quantizers.quantizers_utils", "transformers.utils",
    "transformers.utils.import_utils", "transformers.integrations.deepgemm", "transformers.integrations.hub_kernels",
    "transformers.integrations.moe",
)  # fmt: skip


def transformers_weight(x: torch.Tensor, scale_fmt: str) -> Result:
    fine = installed.module("transformers.integrations.finegrained_fp8", unused=_FINE_UNUSED)
    config = SimpleNamespace(weight_block_size=(128, 128), scale_fmt=scale_fmt)
    parts = fine.Fp8Quantize(SimpleNamespace(quantization_config=config))._quantize_one("weight", x)
    codes, scale = parts.values()
    return Result(codes8(codes), scales_of(scale))


_QUARK_UNUSED = (
    "transformers",
    "transformers.feature_extraction_utils",
    "quark.torch.kernel", "quark.common.utils.import_utils", "quark.common.utils.log",
    "quark.torch.kernel.hw_emulation.hw_emulation_interface", "quark.torch.quantization.nn.utils", "quark.torch.utils.accelerate_helper",
    "quark.torch.utils.torch_utils",
)  # fmt: skip


def quark(x: torch.Tensor, tile: tuple[int, int], element: str, scale_format: str) -> Result:
    """Its own scale of amaxes in the input's type; the division in float32, the clamp and the cast are a port of its
    kernel."""
    observer = installed.module("quark.torch.quantization.observer.observer", unused=_QUARK_UNUSED)
    dtypes = installed.module("quark.torch.quantization.config.type", unused=_QUARK_UNUSED).Dtype
    spec = SimpleNamespace(dtype=getattr(dtypes, element), mx_element_dtype=None)
    told = SimpleNamespace(
        qspec=spec, scale_calculation_mode="even", scale_torch_dtype=None, quant_max_first_level=None
    )
    tiled = x.unflatten(0, (-1, tile[0])).unflatten(-1, (-1, tile[1]))
    eps = torch.tensor(torch.finfo(torch.float32).eps).to(x.dtype)
    amax = tiled.abs().amax((1, 3))
    scale = observer.ObserverBase.get_scale(told, amax, eps, scale_format)
    scaled = tiled.float() / scale.float()[:, None, :, None]
    largest = 448 if element == "fp8_e4m3" else 6
    scaled = scaled.clamp(-largest, largest).reshape(x.shape)
    if scale_format == "float32":
        stored = scales_of(scale)
    elif scale_format == "e8m0":
        stored = np.where(scale.isnan().numpy(), 255, np.nan_to_num(torch.log2(scale.double()).numpy()) + 127).astype(
            np.uint8
        )
    else:  # the E4M3 scale, which it divides by the tensor's and does not return
        stored = codes8(((amax.float() / 6.0) * (448.0 * (6.0 / amax.max().float()))).to(torch.float8_e4m3fn))
    return Result(codes8(scaled.to(torch.float8_e4m3fn)) if element == "fp8_e4m3" else q4(scaled.numpy()), stored)


# --- Flax ---


def flax(x: torch.Tensor, compute_dtype: str = "float32") -> Result:
    """A scale made from the one before, 1, and an amax; the quotient in the compute_dtype. XLA flushes subnormals."""
    import jax.numpy as jnp
    from flax.linen import fp8_ops

    values = jnp.asarray(x.float().numpy())
    scale = fp8_ops.compute_scale(jnp.max(jnp.abs(values)), jnp.float32(1), jnp.float32(448))
    own = jnp.dtype(compute_dtype)
    codes = fp8_ops.quantize(values.astype(own), jnp.float8_e4m3fn, scale, own)
    return Result(np.asarray(codes).view(np.uint8), np.asarray(scale, np.float32).reshape(1))
