# SPDX-License-Identifier: Apache-2.0
"""The oracles on inputs whose results were recorded: ties, zeros, subnormals and NaN, in bfloat16 unless said."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")


from quantizers import checkouts, packages, port_nvidia, port_sglang, port_transformers, port_vllm  # noqa: E402

BF16 = {
    "F1": "3FC4 3A05 3A2F BF00 8000",
    "F2": "3F8A 3A4F BF0B",
    "Z": "8000 0000",
    "T": "2180 A100",
    "N": "3F80 7FC0 BF80",
}
MX = {
    "A": "3FE00000 3E99999A B9000000",
    "B": "3FE10000 3E9A0000 80000000",
    "C": "3FF80000 BF100000",
    "D": "48E00001 43960000",
    "T": "00080000 80080000",
    "I": "3F800000 7F800000 BF000000",
    "N": "3F800000 7FC00000 BF000000",
}
NVFP4 = "408C BF80 8000 3E9A, 3D91 BCF6, 3DFA 3D4D, 3F16 3E7A BDFA, 3EB4 3E16 BD96, 8000, 3580 B500"
PER_TENSOR = "3B600000 7E 22 25 F1 80; 3B1DB6DC-1 7E 2B F6; 0 7E 7E; 1D124925 7E F6; 3B124925 7E 7E FE"

FP8 = {
    port_vllm.per_tensor: PER_TENSOR,
    port_sglang.per_tensor: PER_TENSOR,
    port_sglang.per_token: PER_TENSOR,
    port_sglang.per_token_warp: PER_TENSOR.replace("0 7E 7E;", "0 80 00;"),
    port_vllm.per_token: "3B600000 7E 22 24 F1 80; 3B1DB6DB 7E 2A F6; 36924925 80 00; 36924925 00 80; 3B124925 7E 7E FE",
    port_vllm.group: "3B600000 7E 22 25 F1 80; 3B1DB6DB 7E 2B F6; 2A7B5123 80 00; 2A7B5123 00 80; 3B124925 7E FE FE",
    port_vllm.group_ue8m0: "3B800000 7C 20 23 F0 80; 3B800000 79 25 F1; 2F000000 80 00; 2F000000 00 80; 3B800000 78 FE F8",
    port_vllm.input_to_float8: "3B607038 7E 22 24 F1 80; 3B1E4CAD 7E 2A F6; 27216B31 80 00; 27216B31 00 80; NaN 7F",
    port_sglang.group: "3B600001 7E 22 25 F1 80; 3B1DB6DC 7E 2A F6; 2A7B5124 80 00; 2A7B5124 00 80; 3B124925 7E 7F FE",
    port_sglang.group_ue8m0: "77 7C 20 23 F0 80; 77 79 25 F1; 55 80 00; 55 00 80; 77 78 7F F8",
    port_sglang.input_to_float8: "3B600001 7E 21 24 F1 80; 3B1DB6DB 7E 2B F6; 2720D7C5 80 00; 2720D7C5 00 80; NaN 7F",
    port_nvidia.trtllm_per_token: "3B600000 7E 22 24 F1 80; 3B1DB6DB 7E 2A F6; 31192492 80 00; 31192492 00 80; 7F800000 00 7F 80",
    port_nvidia.trtllm_1x128: "3B5FFFFF 7E 22 25 F1 80; 3B1DB6DC 7E 2A F6; 3F800000 80 00; 1D124925 7E F6; 3B124925 7E 7F FE",
}
FP8 |= {
    port_vllm.per_token_native: "3B600000 7E 22 25 F1 80; 3B1DB6DB 7E 2B F6; 36924925 80 00; 36924925 00 80; NaN 7F",
    port_transformers.activation: "3B600000 7E 22 24 F1 80; 3B1DB6DB 7E 2A F6; 0 80 00; 1D124925 00 80; 3B124925 7E 7F FE",
}
MXFP8 = {
    port_transformers.mxfp8: "77 7E 6A 90; 78 76 62 80; 78 78 E9; 8A 76 21; 01 00 80; FE 00 7E 80; 77 78 7F F0",
    port_vllm.mxfp8: "77 7E 6A 90; 78 76 62 80; 78 78 E9; 89 7E 29; 00 20 A0; FE 00 7E 80; 00 7F",
    port_nvidia.flashinfer_mxfp8: "77 7E 6A 90; 78 76 62 80; 78 78 E9; ; 00 00 80; FE 00 7E 80; 77 78 7E F0",
    port_nvidia.trtllm_mxfp8: "77 7E 6A 90; 78 76 62 80; 78 78 E9; ; ; ; 77 78 7F F0",
}
MXFP4 = {
    port_vllm.mxfp4: "7E 6 1 8; 7E 6 1 8; 7E 6 A; ; 00 0 8; FD 0 7 8; 7D 6 7 C",
    port_nvidia.flashinfer_cute_mxfp4: "7E 6 1 8; 7E 6 1 8; 7E 6 A; ; 00 0 8; FE 0 7 8; 7D 6 7 C",
}
BLOCKS = "7E 7B81, 4F 7C, 55 74, 67 74A, 61 75B, 00 8, "
NVFP4_BLOCKS = {
    port_nvidia.flashinfer_nvfp4: BLOCKS + "00 7F",
    port_nvidia.flashinfer_nvfp4_exact: BLOCKS + "00 7F",
    port_nvidia.trtllm_nvfp4: BLOCKS + "00 7F",
    port_vllm.nvfp4: BLOCKS + "00 08",
    port_nvidia.transformer_engine_fast_math: "7E 7B01, 4F 7C, 55 74, 67 75B, 61 75B, 00 0, 00 7F",
}

NAN = "NaN 7F"
CT_FP32 = "3B600000 7E 22 24 F1 00; 3B1DB6DB 7E 2A F6; 34000000 00 00; 1D124925 7E F6; " + NAN
CT_BF16 = "3B600000 7E 22 24 F1 00; 3B1E0000 7E 2A F6; 3C000000 00 00; 1D120000 7E F6; " + NAN
DIVIDED_FP32 = "3B600000 7E 22 24 F1 80; 3B1DB6DB 7E 2A F6; 0 7F; 1D124925 7E F6; " + NAN
DIVIDED_BF16 = "3B600000 7E 22 24 F1 80; 3B1E0000 7E 2A F6; 0 7F; 1D120000 7E F6; " + NAN
PACKAGES_FP8 = [
    (packages.compressed_tensors_fp8, {"strategy": "tensor"}, torch.float32, CT_FP32),
    (packages.compressed_tensors_fp8, {"strategy": "channel"}, torch.bfloat16, CT_BF16),
    (packages.torchao_float8_tensor, {"by_row": False}, torch.float32, DIVIDED_FP32),
    (packages.torchao_float8_tensor, {"by_row": True}, torch.bfloat16, DIVIDED_BF16),
    (packages.modelopt_fp8, {"axis": None}, torch.float32, DIVIDED_FP32),
    (packages.modelopt_fp8, {"axis": 0}, torch.bfloat16, DIVIDED_BF16),
    (checkouts.deepgemm_fp8, {"ue8m0": False, "group": 128}, torch.bfloat16,
     "3B600000 7E 22 25 F1 80; 3B1DB6DB 7E 2B F6; 346FACAD 80 00; 346FACAD 00 80; " + NAN),
]  # fmt: skip
PACKAGES_MX = [
    (packages.modelopt_mxfp8, {}, "77 7E 6A 90; 78 76 62 80; 78 78 E9; 89 7E 29; 00 20 A0; FE 00 7E 80; 00 7E 7F FE"),
    (packages.compressed_tensors_mx, {"bits": 8}, "78 76 62 88; 78 76 62 00; 78 78 E9; 8A 76 21; 00 20 A0; ; "),
    (packages.torchao_mx, {"mode": "floor", "bits": 8}, "77 7E 6A 90; 77 7E 6A 80; 77 7E F1; 89 7E 29; 00 18 98; F7 00 7E 80; FF 00 7F 80"),
    (packages.torchao_mx, {"mode": "rceil", "bits": 8}, "77 7E 6A 90; 78 76 62 80; 78 78 E9; 89 7E 29; 00 00 80; FE 00 7E 80; FF 7F 7F 7F"),
    (packages.quark, {"tile": (1, 32), "element": "fp8_e4m3", "scale_format": "e8m0"},
     "77 7E 6A 90; 77 7E 6A 80; 78 78 E9; 89 7E 29; 00 20 A0; FE 00 7E 80; FF"),
    (checkouts.microxcaling, {"element": "fp8_e4m3", "round": "nearest", "flush": False},
     "77 7E 6A 90; 77 7E 6A 00; 77 7E F1; 89 7E 29; 00 20 A0; FF; FF"),
    (checkouts.microxcaling, {"element": "fp8_e4m3", "round": "floor", "flush": False}, "77 7E 69 90; ; ; ; ; ; "),
    (packages.torchao_mx, {"mode": "ceil", "bits": 4}, "7E 6 1 8; 7E 6 1 8; 7E 6 A; 90 6 0; 00 0 8; ; "),
    (packages.torchao_mx, {"mode": "floor", "bits": 4}, "7D 7 2 8; 7D 7 2 8; 7D 7 C; 8F 7 0; 00 0 8; FD; FF"),
    (packages.compressed_tensors_mx, {"bits": 4}, "7E 6 1 8; 7E 6 1 0; 7E 6 A; 90 6 0; 00 0 8; ; "),
    (packages.modelopt_mxfp4, {}, "7E 5 1 8; 7E 6 1 8; 7E 6 A; 90 6 0; 00 0 8; ; "),
    (checkouts.microxcaling, {"element": "fp4_e2m1", "round": "nearest", "flush": False}, "7D 7 2; 7D 7 2 0; 7D 7 C; 8F 7 0; ; FF; FF"),
    (checkouts.deepgemm_fp4, {"ue8m0": True, "group": 32}, "3F000000 5 1 0; 3F000000 6 1 0; 3F000000 6 A; 48000000 6 0; 38000000 0 0; ; "),
]  # fmt: skip
PACKAGES_NVFP4 = [
    (packages.torchao_nvfp4, {"levels": 2}, torch.bfloat16, "7E 7B81, 4E 7D, 55 74, 67 75B, 61 75B, 08 8, 08 08"),
    (packages.torchao_nvfp4, {"levels": 1}, torch.bfloat16, "34 7B81, 08 6C, 0A 75, 1C 75B, 17 75B, 08 8, 08 08"),
    (packages.modelopt_nvfp4, {}, torch.bfloat16, "7E 7B01, 4E 7D, 54 75, 67 74A, 61 74A, 38 0, 01 18"),
    (packages.compressed_tensors_nvfp4, {}, torch.float32, "7E 7B01, 4E 7D, 55 74, 67 75B, 61 75B, 20 0, 20 08"),
    (packages.compressed_tensors_nvfp4, {}, torch.bfloat16, "7E 7B01, 4F 7C, 55 74, 67 75B, 61 75B, 20 0, 20 08"),
    (packages.quark, {"tile": (1, 16), "element": "fp4", "scale_format": "e4m3"}, torch.bfloat16, "7E 7B81, 4E 7D, 55 74, 67 75B, 61 75B, 00, 00 7F"),
    (checkouts.transformer_engine_nvfp4, {}, torch.bfloat16, "7E 7B01, 4F 7C, 55 74, 67 74A, 61 75B, 00 0, 00 7F"),
    (checkouts.transformer_engine_nvfp4, {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": 256}, torch.bfloat16,
     "78 7B01, 48 7D, 53 63, 65 63A, 5F 63A, 00 0, 00 7F"),
    (checkouts.transformer_engine_nvfp4, {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": 448}, torch.bfloat16,
     "7E 7B01, 53 6B, 59 63, 6B 63A, 66 63A, 00 0, 00 7F"),
]  # fmt: skip


def row(words: str, width: int, bits: int) -> torch.Tensor:
    x = np.array([int(word, 16) for word in words.split()] + [0] * width)[:width].astype(np.uint32)
    return torch.from_numpy((x << np.uint32(32 - bits)).view(np.float32)).reshape(1, width)


def assert_cell(got, cell: str, what: object) -> None:
    scale, *codes = cell.replace("3B1DB6DC-1", "3B1DB6DB").split()
    stored = got.scales.reshape(-1)[0]
    if scale == "NaN":
        assert np.isnan(stored), what
    else:
        word = int(stored) if got.scales.dtype == np.uint8 else int(stored.view(np.uint32))
        assert f"{word:X}" == scale.lstrip("0") or (scale.strip("0") == "" and word == 0), what
    got_codes = [
        0x7F if int(code) == 0xFF else int(code) for code in got.codes[0, : len(codes)]
    ]  # a NaN's sign is the processor's
    assert [f"{code:X}" for code in got_codes] == [f"{int(code, 16):X}" for code in codes], what


def of_package(oracle, x, options):
    try:
        return oracle(x, **options)
    except ImportError as missing:
        return pytest.skip(str(missing))


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("quantizer", FP8, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_a_port_of_an_fp8_quantizer_gives_these_bits(quantizer):
    for name, cell in zip(BF16, FP8[quantizer].split("; "), strict=False):
        assert_cell(quantizer(row(BF16[name], 128, 16).bfloat16()), cell, name)


@pytest.mark.parametrize("quantizer", [*MXFP8, *MXFP4], ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_a_port_of_an_mx_quantizer_gives_these_bits(quantizer):
    for name, cell in zip(MX, {**MXFP8, **MXFP4}[quantizer].split("; "), strict=True):
        if cell:
            assert_cell(quantizer(row(MX[name], 32, 32)), cell, name)


@pytest.mark.parametrize("quantizer", NVFP4_BLOCKS, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_a_port_of_an_nvfp4_quantizer_gives_these_bits(quantizer):
    x = torch.cat([row(words, 16, 16) for words in NVFP4.split(", ")], 1).bfloat16()
    assert_blocks(quantizer(x), NVFP4_BLOCKS[quantizer])


def assert_blocks(got, cells: str) -> None:
    for i, cell in enumerate(cells.split(", ")):
        scale, _, codes = cell.partition(" ")
        assert got.scales.reshape(-1)[i] == int(scale, 16), i
        assert [f"{code:X}" for code in got.codes[0, 16 * i : 16 * i + len(codes)]] == list(codes), i


def name(case) -> str:
    return f"{case[0].__name__} {' '.join(str(one) for one in case[1].values())} {str(case[2])[6:] if case[2] is torch.bfloat16 else ''}".strip()


@pytest.mark.parametrize("case", PACKAGES_FP8, ids=name)
def test_a_package_gives_these_fp8_bits(case):
    oracle, options, dtype, cells = case
    for what, cell in zip(BF16, cells.split("; "), strict=True):
        assert_cell(of_package(oracle, row(BF16[what], 128, 16).to(dtype), options), cell, what)


@pytest.mark.parametrize("case", PACKAGES_MX, ids=name)
def test_a_package_gives_these_mx_bits(case):
    oracle, options, cells = case
    for what, cell in zip(MX, cells.split("; "), strict=True):
        if cell:
            assert_cell(of_package(oracle, row(MX[what], 32, 32), options), cell, what)


@pytest.mark.parametrize("case", PACKAGES_NVFP4, ids=name)
def test_a_package_gives_these_nvfp4_bits(case):
    oracle, options, dtype, cells = case
    x = torch.cat([row(words, 16, 16) for words in NVFP4.split(", ")], 1).to(dtype)
    assert_blocks(of_package(oracle, x, options), cells)


def test_the_static_port_gives_these_bits():
    scale = float(np.uint32(0x3C4985F0).view(np.float32))
    for name, codes in zip(BF16, "70 13 16 E2 80; 6B 18 E3; 80 00; 00 80; 6A 7E EA".split("; "), strict=True):
        assert_cell(port_vllm.static(row(BF16[name], 128, 16).bfloat16(), scale), f"3C4985F0 {codes}", name)
