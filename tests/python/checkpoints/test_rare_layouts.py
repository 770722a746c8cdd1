# SPDX-License-Identifier: Apache-2.0
"""Layouts that few models have: Llama 4's stacks of FBGEMM, E4M3 FNUZ, MXFP6, and ModelOpt's pre_quant_scale.

Each is written here by the steps of its own library, recognized, dequantized to the library's values, and audited beside
its original: no finding where it is right, and the planted one where it is not.
"""

import copy
import json

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from quantized_models import F4, names, original, part, weight, words, write

BF16 = ml_dtypes.bfloat16
FNUZ = ml_dtypes.float8_e4m3fnuz
FN = ml_dtypes.float8_e4m3fn


def bf(x):
    return np.asarray(x, F4).astype(BF16)


def audited(folder, beside=None):
    document = fp8lab.experiments.check(file=[str(folder)], original=None if beside is None else str(beside))
    findings = document.tables["findings"].rows if "findings" in document.tables else []
    return document.tables["weights"].rows, [(row["tensor"], row["kind"]) for row in findings]


def values_of(folder, out):
    """The words of bfloat16 that dequantize writes, by names."""
    import safetensors

    fp8lab.experiments.dequantize(model=str(folder), into=str(out))
    with safetensors.safe_open(out / "model.safetensors", "np") as file:
        return {name: file.get_tensor(name).view(np.uint16) for name in file.keys()}  # noqa: SIM118


def stored_in(folder):
    """The dtype, shape and bytes of each tensor of one file."""
    with open(folder / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    return {
        name: (told["dtype"], tuple(told["shape"]), data[slice(*told["data_offsets"])]) for name, told in header.items()
    }


def compare_with_written(tensors, model, layout, tmp_path):
    """What `fp8lab quantize` writes are these tensors, every byte of them, and no finding is beside their original."""
    out = tmp_path / "written"
    told = fp8lab.experiments.quantize(model=str(model), into=str(out), layout=layout)
    written = stored_in(out)
    for name, (dtype, array) in tensors.items():
        assert written[name][:2] == (dtype, array.shape), name
        differ = np.frombuffer(written[name][2], array.dtype) != array.reshape(-1)
        assert np.count_nonzero(differ) == 0, (name, np.count_nonzero(differ))
    assert not told.tables["weights"]["nans"].any()
    for beside in (None, model):
        assert audited(out, beside)[1] == []
    return out


def whole(tensors, config, without):
    """The other tensors of the small model beside these."""
    rest, own = original()
    for name in without:
        del rest[name]
    return {**rest, **tensors}, {**own, "quantization_config": config}


# Llama 4: torch.ops.fbgemm.quantize_fp8_per_row of the transposed stack, whose reference has S = min(448 / amax, 448 * 512)
# and stores fl(1 / S); transformers 5.24.0, integrations/fbgemm_fp8.py, has the shapes.
STACKS = {"gate_up_proj": (3, 64, 96), "down_proj": (3, 48, 64)}
EXPERTS = "model.layers.0.feed_forward.experts."


def stack(part):
    draws = np.random.default_rng([*part.encode()])
    x = 0.02 * draws.uniform(0.5, 2, STACKS[part]) * draws.standard_normal(STACKS[part])
    x[1, :, 5] *= 2.0**-12  # a column whose amax is below 1 / 512
    x[2, :, 7] = 0
    return x.astype(BF16)


def llama4():
    tensors = {}
    for name in STACKS:
        x = stack(name).astype(F4)
        amax = np.abs(x).max(1)
        with np.errstate(divide="ignore"):
            factor = np.minimum(F4(448) / amax, F4(448 * 512))
        codes = np.clip(x * factor[:, None, :], F4(-448), F4(448)).astype(FN).view(np.uint8)
        scale = F4(1) / factor
        tensors[EXPERTS + name] = ("F8_E4M3", codes)
        shape = (3, 1, -1) if name == "gate_up_proj" else (3, -1, 1)
        tensors[EXPERTS + name + "_scale"] = ("F32", scale.reshape(shape))
    config = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}
    return tensors, {"model_type": "llama4", "quantization_config": config}


def test_stacks_of_llama_4(tmp_path):
    model = write(tmp_path / "model", {EXPERTS + name: ("BF16", words(stack(name))) for name in STACKS}, {})
    tensors, config = llama4()
    folder = write(tmp_path / "right", tensors, config)
    for beside in (None, model):
        rows, findings = audited(folder, beside)
        assert findings == []
        assert {row["layout"] for row in rows} == {"fbgemm_llama4_gate_up", "fbgemm_llama4_down"}
    assert {row["recipe"] for row in rows} == {"448 / amax in float32, at most 448 * 512"}
    # fl(code * scale) of its column.
    for name, written in values_of(folder, tmp_path / "values").items():
        scale = tensors[name + "_scale"][1].reshape(3, 1, -1)
        assert (written == words(bf(tensors[name][1].view(FN).astype(F4) * scale))).all(), name
    # The same stacks as fp8lab writes them.
    out = compare_with_written(tensors, model, "fbgemm_fp8", tmp_path)
    assert json.loads((out / "config.json").read_text())["quantization_config"]["quant_method"] == "fbgemm_fp8"
    # Scales of the column before.
    tensors = copy.deepcopy(tensors)
    name = EXPERTS + "gate_up_proj_scale"
    tensors[name] = ("F32", np.ascontiguousarray(np.roll(tensors[name][1], 1, 2)))
    _, findings = audited(write(tmp_path / "rolled", tensors, config), model)
    assert findings == [(name, "rolled_scale")]


# E4M3 FNUZ: amd-quark 0.13, torch/utils/device.py:e4m3fn_to_e4m3fnuz: half of the value within 224, and a doubled scale.
def fnuz(shape):
    """The codes and scale of each weight: of the tensor, a row or 128x128."""
    tensors = {}
    for name in names():
        x = np.asarray(weight(name), F4)
        size = {"tensor": x.shape, "row": (1, x.shape[1]), "block": (128, 128)}[shape]
        grid = tuple(-(-n // m) for n, m in zip(x.shape, size, strict=True))
        scales = np.zeros(grid, F4)
        codes = np.zeros(x.shape, np.uint8)
        for i, j in np.ndindex(grid):
            at = (slice(i * size[0], (i + 1) * size[0]), slice(j * size[1], (j + 1) * size[1]))
            scales[i, j] = np.abs(x[at]).max() / F4(448)
            fn = np.clip(x[at] / scales[i, j], F4(-448), F4(448)).astype(FN).astype(np.float16)
            codes[at] = np.clip(fn / np.float16(2), -224, 224).astype(FNUZ).view(np.uint8)
        tensors[name] = ("F8_E4M3FNUZ", codes)
        tensors[name + ("_scale_inv" if shape == "block" else "_scale")] = ("F32", 2 * scales)
    return tensors


def stored(tensors, shape):
    stored_as = {"tensor": (), "row": (-1,)}.get(shape)
    return {
        name: (dtype, array.reshape(stored_as) if name.endswith("_scale") else array)
        for name, (dtype, array) in tensors.items()
    }


FNUZ_LAYOUTS = {"tensor": "quark_fp8_fnuz", "row": "quark_fp8_fnuz_channel", "block": "fnuz_fp8_block"}


@pytest.mark.parametrize("shape", FNUZ_LAYOUTS)
def test_codes_of_e4m3_fnuz(shape, tmp_path):
    model = write(tmp_path / "model", *original())
    config = {"quant_method": "quark", "exclude": ["lm_head"]}
    if shape == "block":
        config = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}
    made = fnuz(shape)
    tensors, config = whole(stored(made, shape), config, names())
    folder = write(tmp_path / "right", tensors, config)
    for beside in (None, model):
        rows, findings = audited(folder, beside)
        assert findings == []
        assert {row["layout"] for row in rows} == {FNUZ_LAYOUTS[shape]} and len(rows) == 14
    assert {row["recipe"] for row in rows} == {"amax / 448 in float32, codes of E4M3 read as E4M3 FNUZ, scales doubled"}
    out = compare_with_written(stored(made, shape), model, FNUZ_LAYOUTS[shape], tmp_path)
    with pytest.raises(ValueError, match="has stacks of experts alone"):
        fp8lab.experiments.reencode(model=str(out), to="fbgemm_llama4_down")
    # The kernel of PyTorch's dtype.
    torch = pytest.importorskip("torch")
    values = values_of(folder, tmp_path / "values")
    name = part(0, "mlp.down_proj")
    codes = torch.from_numpy(made[name][1]).view(torch.float8_e4m3fnuz).float()
    scale = torch.from_numpy(made[name + ("_scale_inv" if shape == "block" else "_scale")][1])
    if shape == "block":
        scale = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    expected = (codes * scale).bfloat16().view(torch.uint16).numpy()
    assert (values[name] == expected).all()
    # A NaN: the byte 80.
    tensors = copy.deepcopy(tensors)
    tensors[name][1][3, 5] = 0x80
    _, findings = audited(write(tmp_path / "nan", tensors, config))
    assert findings == [(name, "nan_codes")]


def mxfp6():
    """compressed-tensors: E8M0 by the exponent of amax, rounded so that 7.5 is the most; four codes in three bytes."""
    tensors = {}
    for name in names():
        q = fp8lab.quantize(weight(name), "compressed_tensors_mxfp6")
        codes = np.asarray(q.codes).astype(np.uint32).reshape(q.codes.shape[0], -1, 4)
        word = codes[..., 0] | codes[..., 1] << 6 | codes[..., 2] << 12 | codes[..., 3] << 18
        three = np.stack([word & 255, word >> 8 & 255, word >> 16], -1).astype(np.uint8)
        stem = name.removesuffix("weight")
        tensors[stem + "weight_packed"] = ("U8", three.reshape(len(codes), -1))
        tensors[stem + "weight_scale"] = ("U8", np.asarray(q.scale_codes))
    return tensors


def test_mxfp6(tmp_path):
    model = write(tmp_path / "model", *original())
    config = {"quant_method": "compressed-tensors", "format": "mxfp6-pack-quantized", "ignore": ["lm_head"]}
    tensors, config = whole(mxfp6(), config, names())
    rows, findings = audited(write(tmp_path / "right", tensors, config), model)
    assert findings == []
    assert {(row["layout"], row["recipe"]) for row in rows} == {("ct_mxfp6", "compressed_tensors_mxfp6")}
    name = part(0, "mlp.up_proj").removesuffix("weight") + "weight_scale"
    tensors[name] = ("U8", tensors[name][1] - 2)
    _, findings = audited(write(tmp_path / "low", tensors, config), model)
    assert findings == [(name, "exponent_offset")]


# ModelOpt's AWQ: the weight times fl(1 / pre_quant_scale) of its column, rounded to bfloat16, then NVFP4;
# nvidia-modelopt 0.47.0, model_calib.py:apply_pre_quant_scale_and_smooth.
def awq(scale_of):
    tensors = {}

    def divided(name):
        scale = scale_of(name)
        return bf(np.asarray(weight(name), F4) * (F4(1) / scale)), scale

    for name in names():
        stem = name.removesuffix("weight")
        x, scale = divided(name)
        group = next((g for g in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")) if f"{stem}".split(".")[-2] in g), None)  # fmt: skip
        own = stem.split(".")[-2]
        parts = [name.replace(own, one) for one in group] if group else [name]
        amax = max(float(np.abs(divided(one)[0].astype(F4)).max()) for one in parts)
        q = fp8lab.quantize(x, "modelopt_nvfp4", tensor_amax=amax)
        tensors[name] = ("U8", np.asarray(q.codes))
        tensors[stem + "weight_scale"] = ("F8_E4M3", np.asarray(q.scale_codes))
        tensors[stem + "weight_scale_2"] = ("F32", F4(amax) / F4(2688))
        tensors[stem + "input_scale"] = ("F32", F4(0.01))
        tensors[stem + "pre_quant_scale"] = ("BF16", words(bf(scale)))
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ", "ignore": ["lm_head"]}
    return whole(tensors, config, names())


def scale_in_float32(name):
    """Layers that are fused have one input, and so one scale."""
    layer = int(name.split(".")[2])
    columns = weight(name).shape[1]
    return np.random.default_rng([layer, columns]).uniform(0.25, 4, columns).astype(F4)


def scale_in_bfloat16(name):
    return bf(scale_in_float32(name)).astype(F4)


def test_a_pre_quant_scale_is_undone_before_a_weight_meets_its_original(tmp_path):
    model = write(tmp_path / "model", *original())
    tensors, config = awq(scale_in_bfloat16)
    rows, findings = audited(write(tmp_path / "right", tensors, config), model)
    assert findings == []
    assert {row["recipe"] for row in rows} == {"modelopt_nvfp4"}
    # The scale that was used had more bits than the one that is stored: few codes differ, and nothing is accused.
    rounded, _ = awq(scale_in_float32)
    folder = write(tmp_path / "rounded", rounded, config)
    rows, findings = audited(folder, model)
    assert findings == []
    assert any(row["codes_differing"] for row in rows)
    assert all("pre_quant_scale" in row["verdict"] for row in rows if not row["recipe"])
    # Damage is told all the same.
    name = part(0, "mlp.gate_proj")
    damaged = dict(rounded)
    damaged[name] = ("U8", rounded[name][1] >> 4 | rounded[name][1] << 4)
    _, findings = audited(write(tmp_path / "nibbles", damaged, config), model)
    assert [tensor for tensor, _ in findings] == [name]
    # A scale that is none.
    name = part(1, "self_attn.o_proj").removesuffix("weight") + "pre_quant_scale"
    for scale in (words(bf(np.zeros(256, F4))), words(bf(np.ones(3, F4)))):
        damaged = {**tensors, name: ("BF16", scale)}
        _, findings = audited(write(tmp_path / f"of {len(scale)}", damaged, config), model)
        assert findings == [(name, "input_scale")]


def test_a_weight_with_a_part_of_low_rank_is_not_compared(tmp_path):
    model = write(tmp_path / "model", *original())
    tensors, config = awq(scale_in_bfloat16)
    name = part(0, "self_attn.q_proj")
    stem = name.removesuffix("weight")
    tensors[stem + "svdquant_lora_a"] = ("BF16", words(bf(np.ones((4, 256), F4))))
    tensors[stem + "svdquant_lora_b"] = ("BF16", words(bf(np.ones((256, 4), F4))))
    tensors[name][1][:] ^= 1
    rows, findings = audited(write(tmp_path / "svd", tensors, config), model)
    assert findings == []
    (row,) = [row for row in rows if row["weight"] == name]
    assert row["verdict"].startswith("not compared: a matrix of low rank")
