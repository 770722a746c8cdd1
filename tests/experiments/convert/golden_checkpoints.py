# SPDX-License-Identifier: Apache-2.0
"""One tensor made of integers, as the files that each layout's writer makes of it.

Codes and scales come of fp8lab's recipes where one makes them, else of the writer's steps in NumPy. ``GOLDEN`` has the
CRC-32 of the codes as they are stored, of the scales, and of the dequantized words of bfloat16, as the libraries give them
that it names.
"""

import json
import zlib
from collections.abc import Callable

import fp8lab
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

E4M3, E2M1, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.bfloat16
F32 = np.float32
ROWS, COLUMNS = 256, 512
#: dtype and data of each tensor of a file.
File = dict[str, tuple[str, NDArray]]


def words() -> NDArray:
    """The words of bfloat16: signs, exponents and mantissas are bits of a hash of the index; a few are set by hand."""
    mask = np.uint64(0xFFFFFFFF)
    h = (np.arange(ROWS * COLUMNS, dtype=np.uint64) + np.uint64(7)) * np.uint64(2654435761) & mask
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> np.uint64(shift)) * np.uint64(factor) & mask
    h = h.astype(np.int64)
    trailing = np.full(h.shape, 12)
    for bit in reversed(range(12)):
        trailing[h >> (8 + bit) & 1 == 1] = bit
    made = ((h >> 7 & 1) << 15 | (120 - trailing) << 7 | h & 127).astype(np.uint16).reshape(ROWS, COLUMNS)
    made[41, :32] -= 20 << 7
    made[3, 7], made[200, 301] = 0x3F66, 0xBE80
    made[40, 64:96] = 0
    made[129] = 0
    made[50, :4] = 0x8000
    return made


X16 = words().view(BF16)
X = X16.astype(F32)
AMAX = F32(np.abs(X).max())


def crc(array: NDArray) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(array).tobytes()):08X}"


def bf(x: NDArray) -> NDArray:
    return np.asarray(x, F32).astype(BF16).astype(F32)


def fp8(x: NDArray) -> NDArray:
    return np.clip(np.asarray(x, F32), F32(-448), F32(448)).astype(E4M3).view(np.uint8)


def fp4(x: NDArray) -> NDArray:
    return np.clip(np.asarray(x, F32), F32(-6), F32(6)).astype(E2M1).view(np.uint8) & 15


def decoded(codes: NDArray) -> NDArray:
    return codes.view(E4M3).astype(F32)


def pairs(codes: NDArray) -> NDArray:
    return codes[:, ::2] | codes[:, 1::2] << 4


def grouped(x: NDArray, size: int) -> NDArray:
    return x.reshape(ROWS, -1, size)


def blockwise(x: NDArray) -> NDArray:
    return x.reshape(ROWS // 128, 128, COLUMNS // 128, 128)


def exponent_of(x: NDArray) -> NDArray:
    """ceil(log2(x)) of positive normal numbers."""
    bits = np.asarray(x, F32).view(np.uint32).astype(np.int64)
    return (bits >> 23) - 127 + (bits & 0x7FFFFF != 0)


def tiles(scales: NDArray) -> NDArray:
    """Block scales in the order of cuBLAS's tiles of 128x4: row r of a tile lies at (r % 32) * 16 + r // 32 * 4."""
    rows, columns = scales.shape
    return scales.reshape(rows // 128, 4, 32, columns // 4, 4).transpose(0, 3, 2, 1, 4)


def by_recipe(name: str) -> tuple[NDArray, NDArray]:
    """Codes and scales of a recipe. compressed-tensors keeps -0 where no zero point is stored, as in all files today; the
    recipe has the older rule, which adds one."""
    q = fp8lab.quantize(X16, name)
    codes = np.array(q.codes)
    if name.startswith("compressed_tensors") and codes.shape == X.shape:
        assert (codes[50, :4] == 0).all()
        codes[50, :4] = 0x80
    return codes, np.asarray(q.scale_codes if q.scale_codes is not None else q.scale_inv)


def tile_128(scale_of: Callable[[NDArray], NDArray]) -> tuple[NDArray, NDArray]:
    s = scale_of(np.maximum(np.abs(blockwise(X)).max((1, 3)), F32(1e-4)) / F32(448)).astype(F32)
    return fp8(blockwise(X) / s[:, None, :, None]).reshape(X.shape), s


def _file(codes: NDArray, scale: NDArray, suffix: str, dtype: str, codes_dtype: str = "F8_E4M3") -> File:
    return {"w.weight": (codes_dtype, codes), "w" + suffix: (dtype, scale)}


def deepseek_v3() -> File:
    codes, s = tile_128(lambda s: s)
    return _file(codes, s, ".weight_scale_inv", "F32")


def deepseek_v31() -> File:
    codes, s = by_recipe("deepgemm_weight_ue8m0")
    return _file(codes, s, ".weight_scale_inv", "F32")


def deepseek_v4() -> File:
    codes, s = by_recipe("transformers_fp8_weight_ue8m0")
    return _file(codes, s, ".scale", "F8_E8M0")


def transformers() -> File:
    codes, s = by_recipe("transformers_fp8_weight")
    return _file(codes, s, ".weight_scale_inv", "F32")


def transformers_ue8m0() -> File:
    codes, s = by_recipe("transformers_fp8_weight_ue8m0")
    return _file(codes, s, ".weight_scale_inv", "F8_E8M0")


def v4_experts() -> File:
    amax = np.abs(grouped(X, 32)).max(-1)
    e = np.where(amax > 0, exponent_of(np.where(amax > 0, amax / F32(6), F32(1))), -127)
    codes = fp4(np.ldexp(grouped(X, 32), -e[..., None])).reshape(X.shape)
    return _file(pairs(codes), (e + 127).astype(np.uint8), ".scale", "F8_E8M0", "I8")


def gpt_oss() -> File:
    codes, s = by_recipe("ocp_mxfp4")
    return {"w_blocks": ("U8", codes.reshape(1, ROWS, -1, 16)), "w_scales": ("U8", s[None])}


def modelopt_mxfp8() -> File:
    codes, s = by_recipe("modelopt_mxfp8")
    return _file(codes, s, ".weight_scale", "U8")


def torchao_mxfp8() -> File:
    codes, s = by_recipe("torchao_mxfp8_rceil")
    return {"w._weight_qdata": ("F8_E4M3", codes), "w._weight_scale": ("F8_E8M0", s)}


def _compressed_fp8(name: str, shape: tuple[int, ...]) -> File:
    codes, s = by_recipe(name)
    return _file(codes, s.astype(BF16).view(np.uint16).reshape(shape), ".weight_scale", "BF16")


def ct_tensor() -> File:
    return _compressed_fp8("compressed_tensors_tensor", (1,))


def ct_channel() -> File:
    return _compressed_fp8("compressed_tensors_channel", (ROWS, 1))


def ct_block() -> File:
    return _compressed_fp8("compressed_tensors_block", (ROWS // 128, COLUMNS // 128))


def ct_nvfp4() -> File:
    codes, s = by_recipe("compressed_tensors_nvfp4")
    divisor = bf(F32(2688) * bf(F32(1) / AMAX))
    return {
        "w.weight_packed": ("U8", codes),
        "w.weight_scale": ("F8_E4M3", s),
        "w.weight_global_scale": ("F32", divisor.reshape(1)),
    }


def ct_mxfp4() -> File:
    codes, s = by_recipe("compressed_tensors_mxfp4")
    return {"w.weight_packed": ("U8", codes), "w.weight_scale": ("U8", s)}


def ct_mxfp8() -> File:
    codes, s = by_recipe("compressed_tensors_mxfp8")
    return _file(codes, s, ".weight_scale", "U8")


def modelopt_fp8() -> File:
    s = AMAX / F32(448)  # of an amax in float32; the recipe modelopt_fp8 makes it in the weight's type
    return _file(fp8(bf(X / s)), s, ".weight_scale", "F32")


def modelopt_nvfp4() -> File:
    codes, s = by_recipe("modelopt_nvfp4")
    return {
        "w.weight": ("U8", codes),
        "w.weight_scale": ("F8_E4M3", s),
        "w.weight_scale_2": ("F32", AMAX / F32(2688)),
    }


def modelopt_mxfp4() -> File:
    codes, s = by_recipe("modelopt_mxfp4")
    return _file(codes, s, ".weight_scale", "U8", "U8")


def fbgemm() -> File:
    with np.errstate(divide="ignore"):
        s = np.minimum(F32(448) / np.abs(X).max(1, keepdims=True), F32(448 * 512))
    return _file(fp8(X * s), F32(1) / s, ".weight_scale", "F32")


def quark_fp8() -> File:
    s = AMAX / F32(448)
    return _file(fp8(X / s), s, ".weight_scale", "F32")


def quark_mxfp4() -> File:
    codes, s = by_recipe("quark_mxfp4")
    return _file(codes, s, ".weight_scale", "U8", "U8")


def torchao_row() -> File:
    codes, s = by_recipe("torchao_float8_row")
    codes[129] = 0xFF  # 0 / 0 of a row of zeros: a NaN, whose sign x86 sets; the recipe's has none
    return {"w._weight_qdata": ("F8_E4M3", codes), "w._weight_scale": ("F32", s)}


def torchao_nvfp4() -> File:
    codes, s = by_recipe("torchao_nvfp4")
    return {
        "w._weight_qdata": ("U8", codes),
        "w._weight_scale": ("F8_E4M3", s),
        "w._weight_per_tensor_scale": ("F32", AMAX / F32(2688)),
    }


def torchao_nvfp4_swizzled() -> File:
    file = torchao_nvfp4()
    s = file["w._weight_scale"][1]
    return file | {"w._weight_scale": ("F8_E4M3", tiles(s).reshape(ROWS // 4, -1))}


def _comfy(format: str) -> tuple[str, NDArray]:
    return "U8", np.frombuffer(json.dumps({"format": format}).encode(), np.uint8)


def comfy_fp8() -> File:
    s = bf(AMAX / F32(448))
    codes = fp8(bf(X * bf(F32(1) / s)))
    return _file(codes, s, ".weight_scale", "F32") | {"w.comfy_quant": _comfy("float8_e4m3fn")}


def comfy_nvfp4() -> File:
    p = bf(AMAX / F32(2688))
    s = fp8(np.minimum(np.abs(grouped(X, 16)).max(-1) / F32(6) / p, F32(448)))
    total = (p * decoded(s))[..., None]
    codes = fp4(np.where(total == 0, F32(0), grouped(X, 16) / np.where(total == 0, F32(1), total))).reshape(X.shape)
    return {
        "w.weight": ("U8", codes[:, ::2] << 4 | codes[:, 1::2]),  # the even element in the high nibble
        "w.weight_scale": ("F8_E4M3", tiles(s).reshape(ROWS, -1)),
        "w.weight_scale_2": ("F32", p),
        "w.comfy_quant": _comfy("nvfp4"),
    }


_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], F32)


def _nearest(x: NDArray, half_scale: NDArray) -> NDArray:
    """ggml's codes: the first of the sixteen values with the least error."""
    return np.abs(_DOUBLED * half_scale[..., None, None] - x[..., None]).argmin(-1).astype(np.uint8)


def gguf_mxfp4() -> NDArray:
    b = grouped(X, 32)
    amax = np.abs(b).max(-1)
    e = np.where(amax > 0, np.frexp(np.where(amax > 0, amax, F32(1)))[1] - 1 - 2 + 127, 0)
    codes = _nearest(b, np.ldexp(F32(1), e - 128).astype(F32))
    return np.concatenate([e.astype(np.uint8)[..., None], codes[..., :16] | codes[..., 16:] << 4], -1).reshape(ROWS, -1)


def _nvfp4_blocks(codes: NDArray, scales: NDArray) -> NDArray:
    halves = grouped(codes, 16)
    data = (halves[..., :8] | halves[..., 8:] << 4).reshape(ROWS, -1, 32)
    return np.concatenate([scales.reshape(ROWS, -1, 4), data], -1).reshape(ROWS, -1)


def gguf_nvfp4() -> NDArray:
    """ggml's own quantizer: scales round half up, and all from 256 on become 448."""
    b = grouped(X, 16)
    target = np.abs(b).max(-1) / F32(6)
    bits = target.view(np.uint32).astype(np.int64)
    rounded = (bits + (1 << 19) >> 20) - (120 << 3)  # exponent and mantissa of E4M3 with its bias
    below = np.floor(target * F32(512) + F32(0.5)).astype(np.int64)
    s = np.where(target < F32(2.0**-6), np.minimum(below, 7), np.minimum(rounded, 0x7E)).astype(np.uint8)
    s = np.where(target >= 256, 0x7E, s).astype(np.uint8)
    return _nvfp4_blocks(_nearest(b, decoded(s) / F32(2)).reshape(X.shape), s)


def gguf_repacked() -> NDArray:
    file = modelopt_nvfp4()
    packed = file["w.weight"][1]
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(X.shape)
    return _nvfp4_blocks(codes, file["w.weight_scale"][1])


#: layout that is recognized, configuration's quant_method, file, CRC-32 of codes, scales (a lone float32: its bits) and
#: values, and who gives them.
GOLDEN = {
    "deepseek_v3": ("deepseek_fp8_block", "fp8", deepseek_v3, "71C17C6F", "CE4172E0", "772581D9"),
    "deepseek_v31": ("deepseek_fp8_block", "fp8", deepseek_v31, "45E715B5", "697DE7E9", "6B76826C"),
    "deepseek_v4": ("deepseek_v4_dense", "fp8", deepseek_v4, "45E715B5", "7E9E82E3", "6B76826C"),
    "transformers": ("deepseek_fp8_block", "fp8", transformers, "71C17C6F", "CE4172E0", "772581D9"),
    "transformers_ue8m0": (
        "transformers_fp8_block_ue8m0",
        "fp8",
        transformers_ue8m0,
        "45E715B5",
        "7E9E82E3",
        "6B76826C",
    ),
    "v4_experts": ("deepseek_v4_experts", "fp8", v4_experts, "25DBFB8B", "3B5C4619", "736EC592"),
    "gpt_oss": ("gpt_oss_mxfp4", "mxfp4", gpt_oss, "A49D5A69", "F1644A72", "EB884D25"),
    "modelopt_mxfp8": ("modelopt_mxfp8", "modelopt", modelopt_mxfp8, "AB626C7B", "F3EBC855", "9CFCC7D0"),
    "torchao_mxfp8": ("torchao_mxfp8", "torchao", torchao_mxfp8, "AB626C7B", "F3EBC855", "9CFCC7D0"),
    "ct_tensor": ("ct_fp8_tensor", "compressed-tensors", ct_tensor, "AAFB22D0", "DBFFA818", "CDCE20A7"),
    "ct_channel": ("ct_fp8_channel", "compressed-tensors", ct_channel, "7C4E1F76", "00891D3A", "B0EAB9AB"),
    "ct_block": ("ct_fp8_block", "compressed-tensors", ct_block, "F42F1A95", "30F96E85", "A5A41B31"),
    "ct_nvfp4": ("ct_nvfp4", "compressed-tensors", ct_nvfp4, "DB9FA133", "CCF94DDD 453A0000", "0AA40C58"),
    "ct_mxfp4": ("ct_mxfp4", "compressed-tensors", ct_mxfp4, "A4EEE60E", "FC097C5E", "84CE65DD"),
    "ct_mxfp8": ("ct_mxfp8", "compressed-tensors", ct_mxfp8, "CA30BAB6", "4A8211CB", "9CFCC7D0"),
    "modelopt_fp8": ("modelopt_fp8", "modelopt", modelopt_fp8, "101C0D37", "3B036DB7", "5C91A596"),
    "modelopt_nvfp4": ("modelopt_nvfp4", "modelopt", modelopt_nvfp4, "48A7DDD4", "9C858C74 39AF3CF4", "851D9BF0"),
    "modelopt_mxfp4": ("modelopt_mxfp4", "modelopt", modelopt_mxfp4, "2C06E91E", "3B5C4619", "920703D4"),
    "fbgemm": ("fbgemm_fp8", "fbgemm_fp8", fbgemm, "010B7A92", "1086F56C", "5E19937C"),
    "quark_fp8": ("quark_fp8", "quark", quark_fp8, "44E5B235", "3B036DB7", "0AF0AD86"),
    "quark_mxfp4": ("quark_mxfp4", "quark", quark_mxfp4, "B43E5DBB", "FC097C5E", "F4F8CD73"),
    "torchao_row": ("torchao_float8_row", "torchao", torchao_row, "1FA0EC8F", "1D54C44F", "AC5474C7"),
    "torchao_nvfp4": ("torchao_nvfp4", "torchao", torchao_nvfp4, "A3FFE612", "90CAA8AC 39AF3CF4", "0DEA5874"),
    "torchao_nvfp4_swizzled": ("torchao_nvfp4_swizzled", "torchao", torchao_nvfp4_swizzled, "A3FFE612", "", "0DEA5874"),
    "comfy_fp8": ("comfy_fp8", None, comfy_fp8, "D8C3A65F", "3B030000", "EDA162F7"),
    "comfy_nvfp4": ("comfy_nvfp4", None, comfy_nvfp4, "158C8772", "EF878EB7 39AF0000", "2C0CF33C"),
    "gguf_mxfp4": ("gguf_mxfp4", None, gguf_mxfp4, "9AFEDA53", "", "FAC48056"),
    "gguf_nvfp4": ("gguf_nvfp4", None, gguf_nvfp4, "F0AF638B", "", "B1C5B591"),
    "gguf_repacked": ("gguf_nvfp4", None, gguf_repacked, "6053C0C2", "", "D665544E"),
}
#: Whose library makes these numbers. Codes and scales too but where "values" is said.
MADE_BY = {
    "deepseek_v3": "transformers 5.24.0, values",
    "deepseek_v31": "no library: the steps of the format",
    "deepseek_v4": "no library: the steps of the format",
    "transformers": "transformers 5.24.0",
    "transformers_ue8m0": "transformers 5.24.0",
    "v4_experts": "transformers 5.24.0, values",
    "gpt_oss": "transformers 5.24.0, values",
    "modelopt_mxfp8": "nvidia-modelopt 0.47.0",
    "torchao_mxfp8": "torchao 0.18.0",
    **dict.fromkeys(
        ["ct_tensor", "ct_channel", "ct_block", "ct_nvfp4", "ct_mxfp4", "ct_mxfp8"], "compressed-tensors 0.20.0"
    ),
    **dict.fromkeys(["modelopt_fp8", "modelopt_nvfp4", "modelopt_mxfp4"], "nvidia-modelopt 0.47.0"),
    "fbgemm": "no library: the steps of FBGEMM's reference",
    **dict.fromkeys(["quark_fp8", "quark_mxfp4"], "amd-quark 0.13, values"),
    **dict.fromkeys(["torchao_row", "torchao_nvfp4", "torchao_nvfp4_swizzled"], "torchao 0.18.0"),
    **dict.fromkeys(["comfy_fp8", "comfy_nvfp4"], "comfy-kitchen 0.2.40"),
    "gguf_mxfp4": "gguf 0.19.0",
    **dict.fromkeys(["gguf_nvfp4", "gguf_repacked"], "gguf 0.19.0, values"),
}
