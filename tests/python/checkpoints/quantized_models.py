# SPDX-License-Identifier: Apache-2.0
"""Small quantized checkpoints, by fp8lab's recipes, and damage to plant in them.

A checkpoint is a dict of tensors by name, (dtype as safetensors spells it, array), and its configuration. Each damage is a
function that changes it in place and returns the tensors that are to be accused. Sources of the layouts: the writers
named in experiments/checkpoints; of the damage: reports about serving engines and converters, each told in its words.
"""

import functools
import json
import pathlib
import struct

import fp8lab
import ml_dtypes
import numpy as np

F4 = np.float32
BF16 = ml_dtypes.bfloat16
SHAPES = {
    "self_attn.q_proj": (256, 256),
    "self_attn.k_proj": (192, 256),
    "self_attn.v_proj": (192, 256),
    "self_attn.o_proj": (256, 256),
    "mlp.gate_proj": (256, 256),
    "mlp.up_proj": (256, 256),
    "mlp.down_proj": (256, 512),
}
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@functools.cache
def weight(name):
    """Nearly normal values in bfloat16, rows of different size."""
    layer, part = name.split(".", 3)[2:]
    draws = np.random.default_rng([int(layer), *part.encode(), 0])
    shape = SHAPES[part.removesuffix(".weight")]
    rows = draws.uniform(0.5, 2, (shape[0], 1))
    return (0.02 * rows * draws.standard_normal(shape)).astype(BF16)


def names(layers=2):
    return [f"model.layers.{layer}.{part}.weight" for layer in range(layers) for part in SHAPES]


def words(x):
    return np.asarray(x).view(np.uint16)


def original():
    tensors = {name: ("BF16", words(weight(name))) for name in names()}
    tensors["model.norm.weight"] = ("BF16", words(np.ones(256, BF16)))
    tensors["lm_head.weight"] = (
        "BF16",
        words((0.02 * np.random.default_rng(1).standard_normal((64, 256))).astype(BF16)),
    )
    return tensors, {"model_type": "llama"}


@functools.cache
def group_amax(name):
    """The largest magnitude of the weights that a server makes one layer of."""
    for group in FUSED:
        for part in group:
            if f"{part}." in name:
                return max(float(np.abs(weight(name.replace(part, one)).astype(F4)).max()) for one in group)
    return float(np.abs(weight(name).astype(F4)).max())


def from_original(put, config):
    tensors, own = original()
    for name in names():
        del tensors[name]
        put(tensors, name, weight(name))
    return tensors, {**own, "quantization_config": config}


def padded(x, block=128):
    rows, columns = (-(-size // block) * block for size in x.shape)
    whole = np.zeros((rows, columns), x.dtype)
    whole[: x.shape[0], : x.shape[1]] = x
    return whole


def deepseek():
    def put(tensors, name, x):
        codes, scales = block_codes(x)
        tensors[name] = ("F8_E4M3", codes)
        tensors[name + "_scale_inv"] = ("F32", scales)

    config = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    return from_original(put, config)


def block_codes(x, rows=128, columns=128, floor=1e-4, rounding="nearest_even", format="e4m3"):
    """s = max(amax, 1e-4) / 448 of each block, and the codes of x / s: numpy's division, fp8lab's cast."""
    largest = {"e4m3": 448, "e4m3fnuz": 240, "e5m2": 57344}[format]
    x = np.asarray(x, F4)
    scales = np.zeros((-(-x.shape[0] // rows), -(-x.shape[1] // columns)), F4)
    codes = np.zeros(x.shape, np.uint8)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            scales[i, j] = max(np.abs(x[at]).max(), F4(floor)) / F4(largest)
            codes[at] = fp8lab.encode(x[at] / scales[i, j], format, rounding=rounding)
    return codes, scales


def channel(tensors, name, x):
    """compressed-tensors: s = bf16(amax / 448) of each row, the code of bf16(x / s)."""
    x = np.asarray(x, F4)
    scales = (np.abs(x).max(1, keepdims=True) / F4(448)).astype(BF16)
    tensors[name] = ("F8_E4M3", fp8lab.encode((x / scales.astype(F4)).astype(BF16), "e4m3"))
    tensors[name + "_scale"] = ("BF16", words(scales))


def compressed_tensors_channel():
    weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    config = {
        "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": group}, "quantization_status": "compressed",
    }  # fmt: skip
    return from_original(channel, config)


def modelopt_nvfp4():
    def put(tensors, name, x):
        stem = name.removesuffix("weight")
        q = fp8lab.quantize(x, "modelopt_nvfp4", tensor_amax=group_amax(name))
        tensors[name] = ("U8", q.codes)
        tensors[stem + "weight_scale"] = ("F8_E4M3", q.scale_codes)
        tensors[stem + "weight_scale_2"] = ("F32", F4(group_amax(name)) / F4(2688))
        tensors[stem + "input_scale"] = ("F32", F4(0.01))

    config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    return from_original(put, config)


def put_compressed_nvfp4(tensors, name, x, amax):
    stem = name.removesuffix("weight")
    q = fp8lab.quantize(x, "compressed_tensors_nvfp4", tensor_amax=amax)
    inverse = (F4(1) / F4(amax)).astype(BF16).astype(F4)
    tensors[stem + "weight_packed"] = ("U8", q.codes)
    tensors[stem + "weight_scale"] = ("F8_E4M3", q.scale_codes)
    tensors[stem + "weight_global_scale"] = ("F32", np.asarray([(F4(2688) * inverse).astype(BF16)], F4))
    tensors[stem + "input_global_scale"] = ("F32", np.asarray([500], F4))


def compressed_tensors_nvfp4():
    def put(tensors, name, x):
        put_compressed_nvfp4(tensors, name, x, group_amax(name))

    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": dict(weights, dynamic="local")}
    config = {
        "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": group}, "quantization_status": "compressed",
    }  # fmt: skip
    return from_original(put, config)


def modelopt_fp8():
    def put(tensors, name, x):
        stem = name.removesuffix("weight")
        scale = F4(group_amax(name)) / F4(448)
        tensors[name] = ("F8_E4M3", fp8lab.encode((np.asarray(x, F4) / scale).astype(BF16), "e4m3"))
        tensors[stem + "weight_scale"] = ("F32", scale)
        tensors[stem + "input_scale"] = ("F32", F4(0.01))

    return from_original(put, {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]})


def transformers_mxfp8():
    def put(tensors, name, x):
        q = fp8lab.quantize(x, "modelopt_mxfp8")  # ceil(log2(amax / 448)), as transformers has it
        tensors[name] = ("F8_E4M3", q.codes)
        tensors[name + "_scale_inv"] = ("U8", q.scale_codes)

    config = {
        "quant_method": "mxfp8",
        "weight_block_size": [1, 32],
        "activation_scheme": "dynamic",
        "ignored_layers": ["lm_head"],
    }
    return from_original(put, config)


LAYOUTS = {
    "deepseek": deepseek,
    "compressed_tensors_channel": compressed_tensors_channel,
    "compressed_tensors_nvfp4": compressed_tensors_nvfp4,
    "modelopt_fp8": modelopt_fp8,
    "modelopt_nvfp4": modelopt_nvfp4,
    "transformers_mxfp8": transformers_mxfp8,
}


@functools.cache
def right(layout):
    """An undamaged checkpoint, which nobody may change."""
    return LAYOUTS[layout]()


def write(folder, tensors, config):
    """One file of safetensors, and config.json."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    for name, (dtype, array) in tensors.items():
        array = np.asarray(array)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())
    (folder / "config.json").write_text(json.dumps(config))
    return folder


# Damage: (layout, kind, whether the files alone show it, function).
DAMAGE = {}


def damage(layout, kind, alone=False):
    def keep(function):
        DAMAGE[function.__name__] = (layout, kind, alone, function)
        return function

    return keep


def part(layer, name):
    return f"model.layers.{layer}.{name}.weight"


def change(tensors, name, function):
    dtype, array = tensors[name]
    tensors[name] = (dtype, function(np.array(array)))
    return [name]


@damage("modelopt_nvfp4", "nan_scale", True)
def nan_block_scale(tensors, config):
    name = part(1, "self_attn.o_proj") + "_scale"

    def with_nan(scales):
        scales[9, 3], scales[200, 11] = 0x7F, 0xFF
        return scales

    return change(tensors, name, with_nan)


@damage("modelopt_nvfp4", "inverted_global_scale", True)
def inverted_global_scale(tensors, config):
    return change(tensors, part(0, "mlp.down_proj") + "_scale_2", lambda scale: F4(1) / scale)


@damage("compressed_tensors_nvfp4", "inverted_global_scale", True)
def multipliers_for_divisors(tensors, config):
    every = [name for name in tensors if name.endswith("weight_global_scale")]
    for name in every:
        change(tensors, name, lambda scale: F4(1) / scale)
    return every


@damage("deepseek", "inverted_scale", True)
def inverted_scale(tensors, config):
    return change(tensors, part(0, "mlp.up_proj") + "_scale_inv", lambda scales: F4(1) / scales)


@damage("deepseek", "transposed_scale", True)
def transposed_scale(tensors, config):
    return change(tensors, part(0, "mlp.down_proj") + "_scale_inv", lambda scales: np.ascontiguousarray(scales.T))


@damage("deepseek", "transposed_scale")
def transposed_square(tensors, config):
    return change(tensors, part(0, "self_attn.q_proj") + "_scale_inv", lambda scales: np.ascontiguousarray(scales.T))


@damage("modelopt_nvfp4", "stale_global_scale")
def stale_global_scale(tensors, config):
    return change(tensors, part(1, "mlp.down_proj") + "_scale_2", lambda scale: scale * F4(1.37))


@damage("deepseek", "missing_scale", True)
def missing_scale(tensors, config):
    del tensors[part(1, "mlp.gate_proj") + "_scale_inv"]
    return [part(1, "mlp.gate_proj")]


@damage("modelopt_nvfp4", "missing_global_scale", True)
def missing_global_scale(tensors, config):
    del tensors[part(1, "mlp.up_proj") + "_scale_2"]
    return [part(1, "mlp.up_proj")]


@damage("compressed_tensors_channel", "rolled_scale")
def rolled_scale(tensors, config):
    return change(tensors, part(0, "self_attn.k_proj") + "_scale", lambda scales: np.roll(scales, 1, 0))


@damage("deepseek", "exchanged_scales")
def exchanged_scales(tensors, config):
    a, b = (part(0, f"mlp.{name}_proj") + "_scale_inv" for name in ("gate", "up"))
    tensors[a], tensors[b] = tensors[b], tensors[a]
    return [a, b]


@damage("transformers_mxfp8", "exponent_offset")
def exponent_offset(tensors, config):
    return change(tensors, part(0, "mlp.down_proj") + "_scale_inv", lambda scales: scales - 2)


@damage("deepseek", "scale_rounded_after")
def scale_rounded_after(tensors, config):
    return change(tensors, part(1, "self_attn.q_proj") + "_scale_inv", lambda scales: np.exp2(np.ceil(np.log2(scales))))


@damage("deepseek", "e8m0_as_number", True)
def e8m0_as_number(tensors, config):
    return change(tensors, part(1, "mlp.down_proj") + "_scale_inv", lambda scales: np.ceil(np.log2(scales)) + F4(127))


@damage("deepseek", "bfloat16_scale")
def bfloat16_scale(tensors, config):
    return change(tensors, part(1, "self_attn.o_proj") + "_scale_inv", lambda scales: scales.astype(BF16).astype(F4))


@damage("deepseek", "other_block")
def other_block(tensors, config):
    name = part(0, "self_attn.k_proj")
    codes, scales = block_codes(weight(name), rows=96)
    tensors[name], tensors[name + "_scale_inv"] = ("F8_E4M3", codes), ("F32", scales)
    return [name]


@damage("modelopt_fp8", "clipped")
def clipped(tensors, config):
    name = part(0, "mlp.down_proj")
    scale = F4(group_amax(name)) / F4(448) * F4(0.05)
    tensors[name] = ("F8_E4M3", fp8lab.encode((weight(name).astype(F4) / scale).astype(BF16), "e4m3"))
    tensors[name + "_scale"] = ("F32", scale)
    return [name]


@damage("modelopt_fp8", "unused_range", True)
def unused_range(tensors, config):
    name = part(1, "self_attn.o_proj")
    scale = F4(group_amax(name)) / F4(448) * F4(60000)
    tensors[name] = ("F8_E4M3", fp8lab.encode((weight(name).astype(F4) / scale).astype(BF16), "e4m3"))
    tensors[name + "_scale"] = ("F32", scale)
    return [name]


@damage("compressed_tensors_nvfp4", "fused_global_scales", True)
def fused_global_scales(tensors, config):
    for name in "qkv":
        own = part(0, f"self_attn.{name}_proj")
        put_compressed_nvfp4(tensors, own, weight(own), float(np.abs(weight(own).astype(F4)).max()))
    return [part(0, f"self_attn.{name}_proj") for name in "qkv"]


@damage("modelopt_nvfp4", "nibble_order")
def nibble_order(tensors, config):
    return change(tensors, part(0, "mlp.gate_proj"), lambda codes: codes >> 4 | codes << 4)


@damage("deepseek", "fnuz_codes", True)
def fnuz_codes(tensors, config):
    name = part(0, "self_attn.v_proj")
    codes, scales = block_codes(weight(name), format="e4m3fnuz")
    tensors[name], tensors[name + "_scale_inv"] = ("F8_E4M3", codes), ("F32", scales)
    return [name]


@damage("compressed_tensors_channel", "nan_codes", True)
def nan_codes(tensors, config):
    def with_nan(codes):
        codes[3, 5], codes[100, 200] = 0x7F, 0xFF
        return codes

    return change(tensors, part(0, "mlp.up_proj"), with_nan)


@damage("deepseek", "sign_lost", True)
def sign_lost(tensors, config):
    return change(tensors, part(1, "mlp.up_proj"), lambda codes: codes & 0x7F)


@damage("deepseek", "toward_zero")
def toward_zero(tensors, config):
    name = part(1, "mlp.gate_proj")
    tensors[name] = ("F8_E4M3", block_codes(weight(name), rounding="toward_zero")[0])
    return [name]


@damage("deepseek", "double_quantized")
def double_quantized(tensors, config):
    name = part(0, "mlp.down_proj")
    first = {}
    channel(first, name, weight(name))
    scales = first[name + "_scale"][1].view(BF16).astype(F4)
    values = (fp8lab.decode(first[name][1], "e4m3") * scales).astype(BF16)
    codes, scales = block_codes(values)
    tensors[name], tensors[name + "_scale_inv"] = ("F8_E4M3", codes), ("F32", scales)
    return [name]


@damage("deepseek", "elements_shifted")
def elements_shifted(tensors, config):
    return change(tensors, part(1, "mlp.down_proj"), lambda codes: np.roll(codes.reshape(-1), 1).reshape(codes.shape))


@damage("modelopt_nvfp4", "random_codes", True)
def random_codes(tensors, config):
    draws = np.random.default_rng(5)
    return change(tensors, part(1, "mlp.up_proj"), lambda codes: draws.integers(0, 256, codes.shape, np.uint8))


@damage("modelopt_nvfp4", "zero_codes", True)
def zero_codes(tensors, config):
    return change(tensors, part(1, "self_attn.v_proj"), lambda codes: codes * 0)


@damage("compressed_tensors_channel", "repeated_rows", True)
def repeated_rows(tensors, config):
    name = part(0, "mlp.gate_proj")
    for one in (name, name + "_scale"):
        change(tensors, one, lambda array: np.concatenate([array[:128], array[:128]]))
    return [name]


@damage("compressed_tensors_channel", "rows_permuted")
def rows_permuted(tensors, config):
    name = part(1, "mlp.gate_proj")
    for one in (name, name + "_scale"):
        change(tensors, one, lambda array: np.concatenate([array[0::2], array[1::2]]))
    return [name]


@damage("deepseek", "exchanged_tensors")
def exchanged_tensors(tensors, config):
    a, b = part(0, "self_attn.o_proj"), part(1, "self_attn.o_proj")
    for suffix in ("", "_scale_inv"):
        tensors[a + suffix], tensors[b + suffix] = tensors[b + suffix], tensors[a + suffix]
    return [a, b]


@damage("compressed_tensors_channel", "duplicate_tensor", True)
def duplicate_tensor(tensors, config):
    for suffix in ("", "_scale"):
        tensors[part(1, "mlp.up_proj") + suffix] = tensors[part(0, "mlp.up_proj") + suffix]
    return [part(1, "mlp.up_proj")]
