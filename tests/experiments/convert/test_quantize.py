# SPDX-License-Identifier: Apache-2.0
"""Models are written as quantized checkpoints: the bytes of the layouts' own libraries, and files that their readers take."""

import json
import pathlib
import resource
import subprocess
import sys

import numpy as np
import pytest
from checkpoint_files import read_safetensors, write_safetensors
from fp8lab import experiments
from golden_checkpoints import BF16, COLUMNS, F32, GOLDEN, ROWS, X16, bf, crc

#: The layout of each golden row, and the rule where it is not that of the layout's own writer.
WRITTEN = {
    "deepseek_v3": ("deepseek_fp8_block", "float32_floor"),
    "deepseek_v31": ("deepseek_fp8_block", "deepgemm_weight_ue8m0"),
    "deepseek_v4": ("deepseek_v4_dense", None),
    "transformers": ("deepseek_fp8_block", None),
    "transformers_ue8m0": ("transformers_fp8_block_ue8m0", None),
    "v4_experts": ("deepseek_v4_experts", None),
    "gpt_oss": ("gpt_oss_mxfp4", None),
    "modelopt_mxfp8": ("modelopt_mxfp8", None),
    "torchao_mxfp8": ("torchao_mxfp8", None),
    "ct_tensor": ("ct_fp8_tensor", None),
    "ct_channel": ("ct_fp8_channel", None),
    "ct_block": ("ct_fp8_block", None),
    "ct_nvfp4": ("ct_nvfp4", None),
    "ct_mxfp4": ("ct_mxfp4", None),
    "ct_mxfp8": ("ct_mxfp8", None),
    "modelopt_fp8": ("modelopt_fp8", None),
    "modelopt_nvfp4": ("modelopt_nvfp4", None),
    "modelopt_mxfp4": ("modelopt_mxfp4", None),
    "fbgemm": ("fbgemm_fp8", None),
    "quark_fp8": ("quark_fp8", None),
    "quark_mxfp4": ("quark_mxfp4", None),
    "torchao_row": ("torchao_float8_row", None),
    "torchao_nvfp4": ("torchao_nvfp4", None),
    "torchao_nvfp4_swizzled": ("torchao_nvfp4_swizzled", None),
    "comfy_fp8": ("comfy_fp8", None),
    "comfy_nvfp4": ("comfy_nvfp4", None),
}
#: All layouts that can be written: each golden one, and those without golden numbers.
LAYOUTS = sorted(
    {layout for layout, _ in WRITTEN.values()}
    | {"comfy_scaled_fp8", "ct_mxfp6", "mistral_fp8", "modelopt_fp8_block", "modelopt_fp8_channel", "quark_fp8_channel"}
    | {
        "fnuz_fp8_block",
        "quark_fp8_fnuz",
        "quark_fp8_fnuz_channel",
        "torchao_float8_tensor",
        "torchao_mxfp4",
        "transformers_fp8_tensor",
        "transformers_mxfp8",
    }
)
#: Of stacks of experts alone; `tests/python/checkpoints/test_rare_layouts.py` has their bytes.
STACKS = ["fbgemm_llama4_down", "fbgemm_llama4_gate_up"]
PARTS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


def _golden_model(directory: pathlib.Path, stacked: bool) -> pathlib.Path:
    directory.mkdir()
    tensors = {"w.weight": ("BF16", X16.view(np.uint16))}
    if stacked:
        tensors = {"w": ("BF16", X16.view(np.uint16).T[None].copy())}
    write_safetensors(directory / "model.safetensors", tensors)
    return directory


def weight(name: str) -> np.ndarray:
    draws = np.random.default_rng(list(name.encode()))
    rows = draws.uniform(0.5, 2, (128, 1))
    return (0.02 * rows * draws.standard_normal((128, 256))).astype(BF16)


def model(directory: pathlib.Path, files: int = 1) -> pathlib.Path:
    """A layer of attention and an MLP, an embedding, and a norm."""
    directory.mkdir()
    tensors = {f"model.layers.0.{part}.weight": ("BF16", weight(part).view(np.uint16)) for part in PARTS}
    tensors["model.embed_tokens.weight"] = "BF16", weight("embed").view(np.uint16)
    tensors["model.norm.weight"] = "F32", np.ones(256, F32)
    names = sorted(tensors)
    index = {}
    for i in range(files):
        file = f"part-{i}.safetensors" if files > 1 else "model.safetensors"
        write_safetensors(directory / file, {name: tensors[name] for name in names[i::files]})
        index |= dict.fromkeys(names[i::files], file)
    if files > 1:
        (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 256}))
    (directory / "tokenizer.json").write_text("{}")
    return directory


@pytest.mark.parametrize("name", WRITTEN)
def test_codes_and_scales_are_those_of_the_golden_numbers(name, tmp_path):
    layout, recipe = WRITTEN[name]
    expected, _, make, codes, scales, values = GOLDEN[name]
    source = _golden_model(tmp_path / "model", name == "gpt_oss")
    out = tmp_path / "out"
    written = experiments.quantize(model=str(source), into=str(out), layout=layout, recipe=recipe)
    tensors, _ = read_safetensors(out / "model.safetensors")
    stored = []
    for tensor, (dtype, array) in make().items():
        if tensor.endswith("comfy_quant"):
            assert json.loads(tensors[tensor][1].tobytes()) == json.loads(array.tobytes())
            continue
        assert tensors[tensor][0] == dtype
        assert tensors[tensor][1].shape == np.shape(array)
        stored.append(tensors[tensor][1])
    if name == "torchao_row":  # which NaN a row of zeros has is not told
        assert list(written.tables["weights"]["nans"]) == [COLUMNS]
        stored[0] = np.where(np.arange(ROWS)[:, None] == 129, np.uint8(0xFF), stored[0])
    assert crc(stored[0]) == codes
    told = [
        f"{one.view(np.uint32).item():08X}" if one.size == 1 and one.dtype == F32 else crc(one) for one in stored[1:]
    ]
    assert " ".join(told[: len(scales.split())]) == scales
    listed = experiments.tensors(model=str(out)).tables["weights"]
    assert list(listed["layout"]) == [expected] and list(listed["disagreements"]) == [""]
    experiments.dequantize(model=str(out), into=str(tmp_path / "back"))
    ((_, back),) = read_safetensors(tmp_path / "back" / "model.safetensors")[0].values()
    back = back[0].T if name == "gpt_oss" else back
    if name == "torchao_row":
        back = np.where(np.arange(ROWS)[:, None] == 129, np.uint16(0xFFC0), back)
    assert crc(back) == values


def test_files_of_numpy_are_quantized_as_the_same_numbers_of_safetensors(tmp_path):
    x = weight("numpy").astype(F32)
    written = {}
    for kind, array in {"bf16": x.astype(BF16), "f32": x, "f64": x.astype(np.float64)}.items():
        folder = tmp_path / kind
        folder.mkdir()
        np.save(folder / "w.weight.npy", array)  # of bfloat16 as <V2
        out = tmp_path / f"{kind}-out"
        experiments.quantize(model=str(folder), into=str(out), layout="ct_fp8_channel")
        written[kind], _ = read_safetensors(out / "model.safetensors")
    (tmp_path / "st").mkdir()
    write_safetensors(tmp_path / "st" / "w.weight.safetensors", {"w.weight": ("BF16", x.astype(BF16).view(np.uint16))})
    experiments.quantize(model=str(tmp_path / "st"), into=str(tmp_path / "st-out"), layout="ct_fp8_channel")
    written["st"], _ = read_safetensors(tmp_path / "st-out" / "w.weight.safetensors")
    for one, other in (("bf16", "st"), ("f64", "f32")):
        assert set(written[one]) == set(written[other]) == {"w.weight", "w.weight_scale"}
        for name in written[one]:
            assert written[one][name][0] == written[other][name][0]
            assert (written[one][name][1] == written[other][name][1]).all(), (one, name)


@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one != "gpt_oss_mxfp4"])
def test_the_audit_finds_the_recipe_of_every_weight(layout, tmp_path):
    source = model(tmp_path / "model")
    out = tmp_path / "out"
    written = experiments.quantize(model=str(source), into=str(out), layout=layout)
    names = [f"model.layers.0.{part}.weight" for part in PARTS]
    assert sorted(written.tables["weights"]["weight"]) == sorted(names)
    assert list(written.tables["kept"]["tensor"]) == ["model.embed_tokens.weight"]
    document = experiments.check(file=[str(out)], original=str(source))
    assert "findings" not in document.tables and document.passed
    rows = document.tables["weights"].rows
    assert sorted(row["weight"] for row in rows) == sorted(names)
    for row in rows:
        assert row["layout"] == layout and row["recipe"], row
        assert row["codes_differing"] == row["scales_differing"] == 0
    alone = experiments.check(file=[str(out)])
    assert "findings" not in alone.tables
    tensors, _ = read_safetensors(out / "model.safetensors")
    assert (tensors["model.embed_tokens.weight"][1] == weight("embed").view(np.uint16)).all()
    assert tensors["model.norm.weight"][0] == "F32"


def test_all_layouts_that_can_be_written_are_tested(tmp_path):
    listed = experiments.tensors(layouts=True).tables["layouts"]
    assert sorted(row["layout"] for row in listed.rows if row["writer"]) == sorted(LAYOUTS + STACKS)


@pytest.mark.parametrize(("layout", "suffix", "of"), [
    ("modelopt_nvfp4", "weight_scale_2", lambda amax: amax / F32(2688)),
    ("modelopt_fp8", "weight_scale", lambda amax: amax / F32(448)),
    ("ct_nvfp4", "weight_global_scale", lambda amax: bf(F32(2688) * bf(F32(1) / amax))),
])  # fmt: skip
def test_fused_weights_share_the_scale_of_their_tensor(layout, suffix, of, tmp_path):
    source = model(tmp_path / "model", files=3)  # the parts of a fused layer lie in several files
    experiments.quantize(model=str(source), into=str(tmp_path / "out"), layout=layout)
    tensors = {}
    for file in (tmp_path / "out").glob("*.safetensors"):
        tensors |= read_safetensors(file)[0]
    for group in (PARTS[:3], PARTS[3:5], PARTS[5:]):
        amax = F32(max(np.abs(weight(part).astype(F32)).max() for part in group))
        for part in group:
            assert tensors[f"model.layers.0.{part}.{suffix}"][1].item() == of(amax), part


def test_shards_index_and_the_other_files_of_a_model(tmp_path):
    source = model(tmp_path / "model", files=2)
    out = tmp_path / "out"
    experiments.quantize(model=str(source), into=str(out), layout="ct_fp8_block")
    names = {path.name for path in out.iterdir()}
    assert names == {"part-0.safetensors", "part-1.safetensors", "model.safetensors.index.json", "config.json",
                     "tokenizer.json", "fp8lab.json"}  # fmt: skip
    index = json.loads((out / "model.safetensors.index.json").read_text())
    found = {name: file.name for file in out.glob("*.safetensors") for name in read_safetensors(file)[0]}
    assert index["weight_map"] == found
    config = json.loads((out / "config.json").read_text())
    assert config["hidden_size"] == 256
    assert config["quantization_config"]["ignore"] == ["model.embed_tokens", "model.norm"]
    # 49152 bytes of codes and scales, or so, in each file.
    experiments.quantize(model=str(source), into=str(out), layout="ct_fp8_block", shard_size=7e-5)
    files = sorted(path.name for path in out.glob("*.safetensors"))
    assert files == [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))] and len(files) > 2
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert len(experiments.tensors(model=str(out)).tables["weights"]["weight"]) == len(PARTS)


def test_a_plan_of_check_is_written_with_mixed_recipes(tmp_path):
    source = model(tmp_path / "model")
    recipes = ["compressed_tensors_channel", "modelopt_nvfp4"]
    experiments.check(file=[str(source)], recipes=recipes, bits_per_weight=6, plan=str(tmp_path / "plan"))
    for file, family in (("", "ct"), ("hf_quant_config.json", "modelopt")):
        out = tmp_path / family
        experiments.quantize(model=str(source), into=str(out), plan=str(tmp_path / "plan" / file))
        document = experiments.check(file=[str(out)], original=str(source))
        assert "findings" not in document.tables
        layouts = {row["weight"]: row["layout"] for row in document.tables["weights"].rows}
        assert set(layouts.values()) == (
            {"ct_fp8_channel", "ct_nvfp4"} if family == "ct" else {"modelopt_fp8_channel", "modelopt_nvfp4"}
        )
        planned = json.loads((tmp_path / "plan" / "hf_quant_config.json").read_text())["quantization"][
            "quantized_layers"
        ]
        assert set(layouts) == {module + ".weight" for module in planned}
        for name, layout in layouts.items():
            assert layout.endswith("nvfp4") == (planned[name.removesuffix(".weight")]["quant_algo"] == "NVFP4")


@pytest.mark.parametrize(("change", "words"), [
    ({"layout": "gguf_mxfp4"}, "layout to write"),
    ({"layout": "ct_fp8_chanel"}, "ct_fp8_channel"),
    ({"layout": None}, "layout must be given"),
    ({"recipe": "no_such"}, "no_zero_point"),
    ({"ignore": ["*"]}, "ignore names it"),
    ({"tensors": ["no.such"]}, "tensors does not name it"),
    ({"shard_size": 0.0}, "shard_size must be above 0"),
    ({"layout": None, "plan": "config.json"}, "config_groups"),
])  # fmt: skip
def test_wrong_arguments_are_named_and_nothing_is_left(change, words, tmp_path):
    source = model(tmp_path / "model")
    call = {"model": str(source), "into": str(tmp_path / "out"), "layout": "ct_fp8_channel"} | change
    if call.get("plan"):
        call["plan"] = str(source / call["plan"])
    with pytest.raises(ValueError, match=words):
        experiments.quantize(**call)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_cannot_be_quantized_is_told_and_copied(tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    odd = weight("odd").view(np.uint16)[:, :40].copy()
    write_safetensors(source / "model.safetensors", {
        "a.weight": ("BF16", weight("a").view(np.uint16)), "b.weight": ("BF16", odd),
        "c.weight": ("I32", np.ones((2, 32), np.uint32)), "d.bias_table": ("BF16", odd),
        "e.weight": ("BF16", odd[None].copy()),
    })  # fmt: skip
    document = experiments.quantize(model=str(source), into=str(tmp_path / "out"), layout="modelopt_mxfp4")
    reasons = {row["tensor"]: row["reason"] for row in document.tables["kept"].rows}
    assert reasons == {
        "b.weight": "40 columns are no multiple of 32, the elements that share a scale",
        "c.weight": "its type is I32, not BF16, F16, F32 or F64",
        "d.bias_table": "its name does not end in .weight",
        "e.weight": "it has more than two dimensions",
    }
    tensors, _ = read_safetensors(tmp_path / "out" / "model.safetensors")
    assert (tensors["b.weight"][1] == odd).all() and tensors["c.weight"][0] == "I32"
    with pytest.raises(ValueError, match="a.weight.*is quantized"):
        experiments.quantize(model=str(tmp_path / "out"), into=str(tmp_path / "again"), layout="modelopt_mxfp4")
    with pytest.raises(ValueError, match="is the model that is read"):
        experiments.quantize(model=str(source), into=str(source), layout="modelopt_mxfp4")


_FULL = """
import resource, signal, sys
import fp8lab
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
fp8lab.experiments.quantize(model=sys.argv[1], into=sys.argv[2], layout="ct_fp8_channel")
"""


def test_a_full_disk_leaves_what_was_there(tmp_path):
    source, out = model(tmp_path / "model"), tmp_path / "out"
    experiments.quantize(model=str(source), into=str(out), layout="modelopt_nvfp4")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    run = subprocess.run([sys.executable, "-c", _FULL, source, out], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "cannot write" in run.stderr.splitlines()[-1] and "File too large" in run.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]
