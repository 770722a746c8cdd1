# SPDX-License-Identifier: Apache-2.0
"""What `fp8lab quantize` writes is read by the libraries themselves, to the bits of `fp8lab dequantize`; so is a plan of
`fp8lab check`.

An ordinary run has the packages that ./dev installs. transformers and gguf are for ``./dev test --exhaustive``.
"""

import json
import pathlib
import sys

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from quantized_models import write

sys.path.append(str(pathlib.Path(__file__).parents[2] / "experiments" / "convert"))  # checkpoint_files
real_readers = pytest.importorskip("real_readers", exc_type=ImportError)

#: Of rows that blocks and tiles divide, and one that they do not, where its writer has such.
SHAPES = {
    "self_attn.q_proj": (128, 128),
    "self_attn.k_proj": (64, 128),
    "mlp.gate_proj": (128, 128),
    "mlp.up_proj": (128, 128),
    "mlp.down_proj": (128, 256),
}
COMPRESSED = ["ct_fp8_tensor", "ct_fp8_channel", "ct_fp8_block", "ct_nvfp4", "ct_mxfp4", "ct_mxfp6", "ct_mxfp8"]
MODELOPT = [
    "modelopt_fp8", "modelopt_fp8_channel", "modelopt_fp8_block", "modelopt_nvfp4", "modelopt_mxfp8", "modelopt_mxfp4",
]  # fmt: skip
TORCHAO = [
    "torchao_float8_row", "torchao_float8_tensor", "torchao_nvfp4", "torchao_nvfp4_swizzled", "torchao_mxfp8", "torchao_mxfp4",
]  # fmt: skip
QUARK = ["quark_fp8", "quark_fp8_channel", "quark_mxfp4"]
TRANSFORMERS = [
    "deepseek_fp8_block", "transformers_fp8_block_ue8m0", "transformers_mxfp8", "transformers_fp8_tensor", "deepseek_v4_dense",
    "deepseek_v4_experts", "gpt_oss_mxfp4",
]  # fmt: skip
#: A layout, who reads it, and whose arithmetic that is.
CASES = (
    [(layout, "compressed_tensors", "compressed_tensors") for layout in COMPRESSED]
    + [(layout, "modelopt", "modelopt") for layout in MODELOPT]
    + [(layout, "torchao", "format") for layout in TORCHAO]
    + [(layout, "quark", "quark") for layout in QUARK]
    + [(layout, "transformers_weights", "transformers") for layout in TRANSFORMERS]
)


def weight(name, shape):
    draws = np.random.default_rng(list(name.encode()))
    values = 0.02 * draws.uniform(0.5, 2, (shape[-2], 1)) * draws.standard_normal(shape)
    values[..., 5, :] *= 2.0**-12  # a row of small values
    return values.astype(ml_dtypes.bfloat16)


def as_words(x):
    return np.ascontiguousarray(x).view(np.uint16)


def model(folder, layout):
    names = {f"model.layers.0.{part}.weight": shape for part, shape in SHAPES.items()}
    if layout in ("modelopt_fp8_block", "transformers_fp8_block_ue8m0", "deepseek_v4_dense", "deepseek_fp8_block"):
        del names["model.layers.0.self_attn.k_proj.weight"]  # whose grid these libraries read as blocks of other rows
    if layout == "gpt_oss_mxfp4":
        names = {f"model.layers.0.mlp.experts.{part}": (2, 64, 96) for part in ("gate_up_proj", "down_proj")}
    tensors = {name: ("BF16", as_words(weight(name, shape))) for name, shape in names.items()}
    tensors["model.norm.weight"] = "BF16", as_words(np.ones(128, ml_dtypes.bfloat16))
    tensors["lm_head.weight"] = "BF16", as_words(weight("head", (32, 128)))
    folder.mkdir()
    return write(folder, tensors, {"model_type": "llama"})


def find_releases(*names):
    """What ./dev installs apart can be imported."""
    for folder in sorted((pathlib.Path(sys.prefix) / "releases").glob("*")):
        if folder.name.startswith(names) and str(folder) not in sys.path:
            sys.path.append(str(folder))


def transformers_is_there():
    find_releases("transformers-", "tokenizers-", "regex-")
    pytest.importorskip("transformers")


def dequantized(folder, into, **how):
    fp8lab.experiments.dequantize(model=str(folder), into=str(into), **how)
    return {name: words for name, words in real_readers.loaded(into).items() if name.startswith("model.layers")}


def written(layout, reader, tmp_path):
    if reader == "transformers_weights":
        transformers_is_there()
    out = tmp_path / "out"
    told = fp8lab.experiments.quantize(model=str(model(tmp_path / "model", layout)), into=str(out), layout=layout)
    return out, set(told.tables["weights"]["weight"])


def compare(out, reader, loader, tmp_path):
    """What the library reads is what dequantize writes; which NaN is not asked. Gives the names and words."""
    try:
        read = getattr(real_readers, reader)(out)
    except ImportError as error:
        pytest.skip(str(error))
    expected = dequantized(out, tmp_path / "back", loader=loader)
    assert set(read) == set(expected)
    for name, words in read.items():
        right = real_readers.words(expected[name])
        words = words.reshape(right.shape)
        both_nan = ((words & 0x7FFF) > 0x7F80) & ((right & 0x7FFF) > 0x7F80)
        differ = np.count_nonzero((words != right) & ~both_nan)
        assert differ == 0, f"{name}: {differ} of {words.size} values differ"
    return read


IDS = [case[0] for case in CASES]


@pytest.mark.parametrize(("layout", "reader", "loader"), CASES, ids=IDS)
def test_the_library_reads_the_bits_that_dequantize_has(layout, reader, loader, tmp_path):
    out, names = written(layout, reader, tmp_path)
    assert set(compare(out, reader, loader, tmp_path)) == names


@pytest.mark.sample(4)
@pytest.mark.parametrize(("layout", "reader", "loader"), CASES, ids=IDS)
def test_codes_and_scales_of_any_bytes_are_read_alike(layout, reader, loader, tmp_path):
    out, _ = written(layout, reader, tmp_path)
    draws = real_readers.torch.Generator().manual_seed(1)
    tensors = real_readers.loaded(out)
    for x in tensors.values():
        if x.dtype.itemsize == 1:
            bytes_of_x = x.view(real_readers.torch.uint8)
            bytes_of_x.random_(0, 256, generator=draws)
    real_readers.save(out / "model.safetensors", tensors)
    compare(out, reader, loader, tmp_path)


def test_a_wrong_byte_is_seen_by_the_comparison(tmp_path):
    source = model(tmp_path / "model", "ct_nvfp4")
    fp8lab.experiments.quantize(model=str(source), into=str(tmp_path / "out"), layout="ct_nvfp4")
    before = real_readers.compressed_tensors(tmp_path / "out")
    file = tmp_path / "out" / "model.safetensors"
    tensors = real_readers.loaded(tmp_path / "out")
    scales = tensors["model.layers.0.mlp.up_proj.weight_scale"].view(real_readers.torch.uint8)
    scales[3, 2] ^= 1
    real_readers.save(file, tensors)
    after = real_readers.compressed_tensors(tmp_path / "out")
    assert [name for name in before if (before[name] != after[name]).any()] == ["model.layers.0.mlp.up_proj.weight"]


def test_gguf_reads_the_bits_that_dequantize_has(tmp_path):
    find_releases("gguf-")
    pytest.importorskip("gguf.constants")
    from checkpoint_files import write_gguf

    draws = np.random.default_rng(7)
    mx = draws.integers(0, 256, (64, 8, 17), np.uint8)
    mx[..., 0] = np.arange(512).reshape(64, 8) % 256  # every scale
    nv = draws.integers(0, 256, (64, 4, 36), np.uint8)
    nv[..., :4] = np.arange(1024).reshape(64, 4, 4) % 256
    tensors = {
        "blk.0.attn_q.weight": (39, [64, 256], mx.reshape(64, -1)), "blk.0.ffn_up.weight": (40, [64, 256], nv.reshape(64, -1)),
    }  # fmt: skip
    write_gguf(tmp_path / "model.gguf", tensors)
    read = real_readers.gguf(tmp_path / "model.gguf")
    fp8lab.experiments.dequantize(model=str(tmp_path / "model.gguf"), into=str(tmp_path / "out"), loader="gguf")
    expected = real_readers.loaded(tmp_path / "out")
    assert set(read) == set(expected) == set(tensors)
    for name, words in read.items():
        assert np.count_nonzero(words != real_readers.words(expected[name])) == 0, name


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 32,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


def llama(folder):
    shapes = {
        "model.embed_tokens": (32, 128), "lm_head": (32, 128),
        **{f"model.layers.0.self_attn.{one}_proj": (128, 128) for one in "qkvo"},
        "model.layers.0.mlp.gate_proj": (256, 128), "model.layers.0.mlp.up_proj": (256, 128),
        "model.layers.0.mlp.down_proj": (128, 256),
    }  # fmt: skip
    tensors = {f"{name}.weight": ("BF16", as_words(weight(name, shape))) for name, shape in shapes.items()}
    for name in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        tensors[f"{name}.weight"] = "BF16", as_words(np.ones(128, ml_dtypes.bfloat16))
    folder.mkdir()
    return write(folder, tensors, LLAMA)


@pytest.mark.parametrize("layout", ["deepseek_fp8_block", "transformers_mxfp8", "transformers_fp8_tensor"])
def test_from_pretrained_loads_a_whole_model(layout, tmp_path):
    transformers_is_there()
    out = tmp_path / "out"
    fp8lab.experiments.quantize(model=str(llama(tmp_path / "model")), into=str(out), layout=layout)
    read = real_readers.transformers_model(out)
    fp8lab.experiments.dequantize(model=str(out), into=str(tmp_path / "back"), loader="transformers")
    expected = real_readers.loaded(tmp_path / "back")
    assert set(read) == set(expected)
    for name, words in read.items():
        assert (words == real_readers.words(expected[name])).all(), name


#: By what a plan stores a module: compressed-tensors' strategy, bits and format, and ModelOpt's algorithm.
SCHEMES = {
    "modelopt_fp8": ("tensor", 8, "float-quantized", "FP8"),
    "compressed_tensors_channel": ("channel", 8, "float-quantized", "FP8_PER_CHANNEL_PER_TOKEN"),
    "compressed_tensors_block": ("block", 8, "float-quantized", "FP8_PB_WO"),
    "modelopt_nvfp4": ("tensor_group", 4, "nvfp4-pack-quantized", "NVFP4"),
    "ocp_mxfp8_e4m3": ("group", 8, "mxfp8-quantized", "MXFP8"),
    "ocp_mxfp4": ("group", 4, "mxfp4-pack-quantized", "W4A8_MXFP4_FP8"),
}
SCHEME_OF_LAYOUT = dict(zip(COMPRESSED, [
    {**SCHEMES, "mxfp6": ("group", 6, "mxfp6-pack-quantized")}[one] for one in ("modelopt_fp8", "compressed_tensors_channel", "compressed_tensors_block", "modelopt_nvfp4",
                             "ocp_mxfp4", "mxfp6", "ocp_mxfp8_e4m3")
]))  # fmt: skip
ALGORITHM_OF_LAYOUT = dict(
    zip(MODELOPT, ["FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4", "MXFP8", "W4A8_MXFP4_FP8"])
)


@pytest.mark.parametrize("how", [
    {"min_sqnr": 25, "recipes": ["modelopt_fp8"]},
    {"bits_per_weight": 7, "recipes": ["compressed_tensors_channel", "modelopt_nvfp4"]},
    {"bits_per_weight": 10, "recipes": ["modelopt_fp8", "modelopt_nvfp4", "ocp_mxfp8_e4m3"]},
    {"bits_per_weight": 9, "recipes": ["compressed_tensors_block", "ocp_mxfp4"]},
])  # fmt: skip
def test_a_plan_is_read_by_compressed_tensors_and_by_modelopt(how, tmp_path):
    source = llama(tmp_path / "model")
    document = fp8lab.experiments.check(file=[str(source)], plan=str(tmp_path / "plan"), **how)
    planned = {row["module"]: SCHEMES.get(row["recipe"]) for row in document.tables["plan"].rows}
    assert len(planned) == 7 and any(planned.values())
    planned |= {"lm_head": None, "model.embed_tokens": None}
    compressed = json.loads((tmp_path / "plan" / "compressed_tensors.json").read_text())
    assert real_readers.schemes_of_compressed_tensors(compressed, planned) == {
        module: scheme and scheme[:3] for module, scheme in planned.items()
    }
    hf = json.loads((tmp_path / "plan" / "hf_quant_config.json").read_text())
    assert real_readers.algorithms_of_modelopt(hf, planned) == {
        module: scheme and scheme[3] for module, scheme in planned.items()
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize("layout", COMPRESSED + MODELOPT)
def test_the_configuration_of_a_checkpoint_is_read_by_its_library(layout, tmp_path):
    out = tmp_path / "out"
    written = fp8lab.experiments.quantize(model=str(llama(tmp_path / "model")), into=str(out), layout=layout)
    quantized = {name.removesuffix(".weight") for name in written.tables["weights"]["weight"]}
    assert len(quantized) == 7
    modules = quantized | {"lm_head", "model.embed_tokens", "model.norm"}
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    if layout in COMPRESSED:
        scheme = SCHEME_OF_LAYOUT[layout][:3]
        read = real_readers.schemes_of_compressed_tensors(config, modules)
    else:
        scheme = ALGORITHM_OF_LAYOUT[layout]
        hf = json.loads((out / "hf_quant_config.json").read_text())
        read = real_readers.algorithms_of_modelopt(hf, modules)
        assert config.items() >= {"quant_method": "modelopt", "quant_algo": scheme}.items()
        assert config["ignore"] == hf["quantization"]["exclude_modules"]
    assert read == {module: scheme if module in quantized else None for module in modules}
