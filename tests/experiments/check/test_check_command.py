# SPDX-License-Identifier: Apache-2.0
"""`fp8lab check` on a checkpoint with planted outliers; its figures recomputed with NumPy and ml_dtypes."""

import json
import pathlib
import re
import struct

import ml_dtypes
import numpy as np
import pytest
from command import prints, refuses

BF16 = ml_dtypes.bfloat16
DTYPES = {np.dtype(BF16): "BF16", np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}


def write_safetensors(path, tensors):
    """A .safetensors file: the length of the header, the header, and the data of one tensor after the other."""
    header, data = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": DTYPES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two shards: a q whose channels 3 and 77 are 8 times as large, a k with row 17 times 20 and row 40 zero, a down
    with super-weights, experts of which the last is 2^-9 times as large, and what is not measured."""
    random = np.random.default_rng(41)

    def draw(*shape):
        return (random.standard_normal(shape) * 0.02).astype(np.float32)

    q, k, down, plain, experts = draw(64, 256), draw(64, 256), draw(256, 128), draw(128, 256), draw(4, 64, 128)
    q[:, [3, 77]] *= 8
    k[17] *= 20
    k[40] = 0
    down[[2, 9, 30], [1, 5, 99]] = [900, -1100, 1000]
    experts[3] *= 2.0**-9
    first = {
        "model.embed_tokens.weight": draw(512, 64),
        "model.layers.0.self_attn.q_proj.weight": q,
        "model.layers.0.self_attn.k_proj.weight": k,
        "model.layers.0.input_layernorm.weight": draw(256),
    }
    second = {
        "model.layers.0.mlp.down_proj.weight": down,
        "model.layers.1.mlp.down_proj.weight": plain,
        "model.layers.1.mlp.experts.up_proj": experts,
        "conv.weight": draw(32, 1, 64, 1),
    }
    folder = tmp_path_factory.mktemp("model")
    shards = {"model-1.safetensors": first, "model-2.safetensors": second}
    for name, tensors in shards.items():
        write_safetensors(folder / name, {key: array.astype(BF16) for key, array in tensors.items()})
    write_safetensors(folder / "model-3.safetensors", {"ids": np.arange(4)})
    weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors} | {
        "ids": "model-3.safetensors"
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder, {**first, **second}


def tables_of(document):
    """The columns of each table of a document in JSON."""
    tables = [section for section in document["sections"] if section["kind"] == "table"]
    return {table["name"]: {column["name"]: column["values"] for column in table["columns"]} for table in tables}


def rows_of(document, table):
    """The rows of a table of a document in JSON, as dicts."""
    columns = tables_of(document)[table]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def measures(document, name):
    return {row["recipe"]: row for row in rows_of(document, "measures") if name in row["tensor"]}


def row_sqnrs(x, back):
    x, back = x.astype(np.float64), back.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        sqnr = 10 * np.log10((x**2).sum(1) / ((x - back) ** 2).sum(1))
    return sqnr[~np.isnan(sqnr)]


def ocp_mxfp8(x):
    """Blocks of 32 with the scale 2^(floor(log2 amax) - 8), as OCP MX 1.0 has it in section 6.3."""
    blocks = x.reshape(-1, 32)
    amax = np.abs(blocks).max(1, keepdims=True)
    scale = np.where(amax > 0, np.exp2(np.floor(np.log2(np.where(amax > 0, amax, 1))) - 8), 1).astype(np.float32)
    codes = np.clip(blocks / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return (codes.astype(np.float32) * scale).reshape(x.shape)


def test_the_figures_are_those_of_numpy_and_what_is_planted_is_told(model):
    folder, tensors = model
    document = json.loads(prints(f"check {folder}/model.safetensors.index.json --json"))
    # 1. Row by row.
    for name in ("self_attn.q_proj", "self_attn.k_proj", "0.mlp.down_proj"):
        [key] = [one for one in tensors if name in one]
        x = tensors[key].astype(BF16).astype(np.float32)
        measured = measures(document, name)["ocp_mxfp8_e4m3"]
        expected = np.sort(row_sqnrs(x, ocp_mxfp8(x)))
        assert abs(measured["median_row_sqnr_db"] - expected[(len(expected) - 1) // 2]) < 1e-9
        assert abs(measured["worst_row_sqnr_db"] - expected[0]) < 1e-9
    # 2. What is planted.
    ranked = rows_of(document, "tensors")
    [down] = [row for row in ranked if "layers.0.mlp.down_proj" in row["tensor"]]
    assert down["suitability"] == "hurts"
    assert "3 of 32768 elements hold" in down["verdict"] and "the SQNR is theirs" in down["verdict"]
    by_name = {row["tensor"]: row for row in ranked}
    [k] = [row for name, row in by_name.items() if "k_proj" in name]
    assert k["zero_rows"] == 1 and k["rows"] == 64
    experts = [name for name in by_name if "expert " in name]
    assert len(experts) == 4 and all(by_name[name]["rows"] == 64 for name in experts)
    [conv] = [row for name, row in by_name.items() if "conv" in name]
    assert (conv["rows"], conv["columns"]) == (32, 64)
    # Per tensor, the third expert is as good as the others: each has a scale of its own.
    assert all(by_name[name]["suitability"] == "suits" for name in experts)
    # 3. What is left out.
    left_out = {row["name"].rsplit(" ", 1)[1].strip('"'): row["reason"] for row in rows_of(document, "left_out")}
    assert set(left_out) == {"ids", "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight"}
    assert left_out["ids"] == "its dtype is I64"
    assert left_out["model.embed_tokens.weight"] == "ignore names it: *embed*"


def test_a_folder_an_index_and_patterns_give_the_same(model):
    folder, _ = model

    def tables(options):
        return tables_of(json.loads(prints(f"check {options} --json")))

    whole = tables(folder)
    assert tables(f"{folder}/model.safetensors.index.json") == whole
    chosen = tables(f"{folder} --tensors '*.[01].*.{{q,k}}_proj.weight'")
    assert [row.rsplit(".", 2)[1] for row in sorted(chosen["tensors"]["tensor"])] == ["k_proj", "q_proj"]


def test_a_run_goes_on_from_its_checkpoint(model, tmp_path):
    folder, _ = model
    kept = tmp_path / "kept.jsonl"
    whole = tables_of(json.loads(prints(f"check {folder} --json")))
    prints(f"check {folder} --json --checkpoint {kept}")
    lines = kept.read_text().splitlines(keepends=True)
    assert len(lines) == 9  # a matrix each
    kept.write_text("".join(lines[5:2:-1]) + lines[0][:100])
    assert tables_of(json.loads(prints(f"check {folder} --json --checkpoint {kept} --resume"))) == whole
    assert sorted(kept.read_text().splitlines(keepends=True)) == sorted(lines)


def test_a_plan_is_written_as_other_tools_read_it(model, tmp_path):
    folder, _ = model
    plan = tmp_path / "plan"
    recipes = "compressed_tensors_channel,modelopt_nvfp4"
    text = prints(f"check {folder} --min-sqnr 25 --recipes {recipes} --plan {plan}")
    assert re.search(r"Plan: \d+ of 6 modules stay in bfloat16", text)
    config = json.loads((plan / "compressed_tensors.json").read_text())
    assert config["config_groups"]["group_0"]["weights"]["strategy"] == "channel"
    assert "model.embed_tokens" in config["ignore"]
    quantization = json.loads((plan / "hf_quant_config.json").read_text())["quantization"]
    assert quantization["quant_algo"] == "FP8_PER_CHANNEL_PER_TOKEN"
    prints(f"check {folder} --bits-per-weight 6 --recipes {recipes} --plan {plan}")
    mixed = json.loads((plan / "hf_quant_config.json").read_text())["quantization"]
    assert mixed["quant_algo"] == "MIXED_PRECISION"
    assert {layer["quant_algo"] for layer in mixed["quantized_layers"].values()} <= {
        "NVFP4",
        "FP8_PER_CHANNEL_PER_TOKEN",
    }
    # q and k are served as one.
    q, k = (mixed["quantized_layers"].get(f"model.layers.0.self_attn.{name}_proj") for name in "qk")
    assert q == k


def test_an_index_without_its_shards_is_told(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a.weight": "gone.safetensors"}}')
    refuses(
        f"check {tmp_path}",
        '.* has no tensor that can be read; "a.weight": cannot read .*gone.safetensors: there is no such file',
    )


def draws(*names):
    return {f"{name}.weight": np.random.default_rng(len(name)).standard_normal((64, 96)).astype(BF16) for name in names}


def plain_model(folder, shards, index=None):
    """Shards by their names, and an index that sends tensors to files."""
    for name, tensors in shards.items():
        write_safetensors(folder / name, tensors)
    if index is not None:
        weight_map = {f"{tensor}.weight": file for tensor, file in index.items()}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def cut(path):
    path.write_bytes(path.read_bytes()[:-1000])


def overlap(path):
    """The second tensor begins 64 bytes before the end of the first."""
    whole = path.read_bytes()
    size = 64 * 96 * 2
    before, after = f"[{size}, {2 * size}]", f"[{size - 64}, {2 * size - 64}]"
    assert before.encode() in whole
    path.write_bytes(whole.replace(before.encode(), after.encode()).ljust(len(whole), b" "))


INDEX = {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"}
SHARDS = {"1.safetensors": draws("a", "b"), "2.safetensors": draws("c")}
#: What is in the folder, its index, what is done then, and what must be told of which file; the tensors measured.
DAMAGED = {
    "shard missing": ({"1.safetensors": SHARDS["1.safetensors"]}, INDEX, None,
                      ("2.safetensors", "the index sends 1 tensor to this file, which is not there"), "ab"),
    "shard cut": (SHARDS, INDEX, lambda folder: cut(folder / "2.safetensors"),
                  ("2.safetensors", "the file has .* bytes, its header describes .*: 1 tensor cannot be read"), "ab"),
    "shard garbage": (SHARDS, INDEX, lambda folder: (folder / "2.safetensors").write_bytes(b"garbage"),
                      ("2.safetensors", "cannot read .*2.safetensors: .*too short.*"), "ab"),
    "names twice": ({"1.safetensors": draws("a", "b"), "2.safetensors": draws("c", "a")}, INDEX, None,
                    ("2.safetensors", "1 tensor of this file are in 1.safetensors, too"), "abca"),
    "names twice, no index": ({"1.safetensors": draws("a"), "2.safetensors": draws("a", "b")}, None, None,
                              ("2.safetensors", "1 tensor of this file are in 1.safetensors, too"), "aab"),
    "promise not kept": (SHARDS, {**INDEX, "d": "2.safetensors"}, None,
                         ("2.safetensors", "the index sends 1 tensor to this file, which has none of this name"), "abc"),
    "tensors overlap": (SHARDS, INDEX, lambda folder: overlap(folder / "1.safetensors"),
                        ("b.weight", "its header gives the last 64 bytes of the first tensor to the second, too.*"), "c"),
    "shard copied": ({"1.safetensors": draws("a"), "2.safetensors": draws("a")}, None, None,
                     ("2.safetensors", "the file is a copy of 1.safetensors, byte by byte.*"), "aa"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_of_a_model_are_named_and_the_rest_is_measured(name, tmp_path):
    shards, index, damage, (tensor, words), measured = DAMAGED[name]
    plain_model(tmp_path, shards, index)
    if damage is not None:
        damage(tmp_path)
    document = json.loads(prints(f"check {tmp_path} --recipes modelopt_fp8 --json", status=1))
    findings = rows_of(document, "findings")
    assert any(row["tensor"] == tensor and re.match(words, row["words"]) for row in findings), findings
    assert {row["kind"] for row in findings} == {"file"}
    told = [re.search(r'\b([a-d])(\.weight)?"?$', row["tensor"])[1] for row in rows_of(document, "tensors")]
    assert sorted(told) == sorted(measured)
    if name == next(iter(DAMAGED)):
        text = prints(f"check {tmp_path} --recipes modelopt_fp8", status=1)
        assert "The files of the model are damaged" in text and "What is wrong" in text


def test_damage_of_tensors_that_are_not_asked_for_is_not_told(tmp_path):
    plain_model(tmp_path, {"1.safetensors": SHARDS["1.safetensors"]}, INDEX)
    prints(f"check {tmp_path} --recipes modelopt_fp8 --tensors 'a.*'")
    prints(f"check {tmp_path} --recipes modelopt_fp8 --tensors '*'", status=1)
    plain_model(tmp_path, SHARDS, INDEX)
    prints(f"check {tmp_path} --recipes modelopt_fp8")


def test_a_checkpoint_that_cannot_be_written_is_told(model, tmp_path):
    folder, _ = model
    refuses(f"check {folder} --checkpoint {tmp_path}/none/kept", "cannot write .*/none/kept: No such file or directory")
    refuses(
        f"check {folder} --checkpoint /dev/full", "/dev/full is no regular file, which a checkpoint is: name a new one"
    )
    (tmp_path / "circle").symlink_to("circle")
    refuses(f"check {tmp_path}/circle", "cannot read .*/circle: it is a link that leads back to itself")


def write_gguf(path, tensors):
    """A GGUF file of version 3 (GGUF of github.com/ggml-org/ggml): types 0 F32, 1 F16, 8 Q8_0, 30 BF16; the
    innermost length comes first, and data begin at multiples of 32."""
    kinds = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(BF16): 30, np.dtype(np.uint8): 8}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0)
    data = b""
    for name, array in tensors.items():
        shape = array.shape if array.dtype != np.uint8 else (array.shape[0], array.shape[1] // 34 * 32)
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kinds[array.dtype], len(data))
        data += array.tobytes()
        data += bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


@pytest.fixture(scope="module")
def containers(tmp_path_factory):
    """The same tensors as .npy files, GGUF, and archives, deflated and not; and some that are left out."""
    random = np.random.default_rng(3)
    folder = tmp_path_factory.mktemp("containers")
    tensors = {
        "blk.0.up": random.standard_normal((160, 96)).astype(np.float32),
        "blk.0.down": random.standard_normal((96, 160)).astype(np.float16),
    }
    tensors["blk.1.up"] = (tensors["blk.0.up"] * 3).astype(BF16)
    (folder / "npy").mkdir()
    for name, array in tensors.items():
        np.save(folder / "npy" / f"{name}.npy", array)
    write_gguf(folder / "a.gguf", {**tensors, "norm": np.ones(96, np.float32), "q": np.zeros((4, 34), np.uint8)})
    np.savez(folder / "a.npz", ids=np.arange(3), **tensors)
    np.savez_compressed(folder / "b.npz", **tensors)
    return folder


def figures_of(line):
    rows = rows_of(json.loads(prints(f"check {line} --json")), "measures")
    names = [re.split("/|tensor ", row["tensor"])[-1].replace(".npy", "").strip('"') for row in rows]
    return sorted((name, *list(row.values())[1:]) for name, row in zip(names, rows, strict=True))


def test_gguf_files_and_archives_give_the_figures_of_the_same_arrays(containers):
    expected = figures_of(f"{containers}/npy")
    assert len(expected) == 18
    for name in ("a.gguf", "a.npz", "b.npz"):
        assert figures_of(f"{containers}/{name}") == expected, name
    assert figures_of(f"{containers}/a.gguf --tensors '*.down'") == [row for row in expected if "down" in row[0]]
    left_out = rows_of(json.loads(prints(f"check {containers}/a.gguf --ignore none --json --tensors '*'")), "left_out")
    reasons = {row["name"].split("tensor ")[-1].strip('"'): row["reason"] for row in left_out}
    assert reasons["q"] == "its dtype is Q8_0"
    assert reasons["norm"].startswith("it has fewer than two dimensions")


def test_containers_that_cannot_be_read_are_told(containers, tmp_path):
    refuses(f"check {containers}/a.gguf --tensors none", ".*a.gguf. has no tensor .none.")
    refuses(f"check {containers}/a.gguf --tensors q", ".*a.gguf., tensor .q.: its dtype is Q8_0")
    whole = (containers / "b.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    refuses(f"check {tmp_path}/cut.npz", ".*cut.npz.*")
    short = (containers / "a.gguf").read_bytes()[:-2000]
    (tmp_path / "cut.gguf").write_bytes(short)
    document = json.loads(prints(f"check {tmp_path}/cut.gguf --json", status=1))
    assert "its file ends within it" in {row["reason"] for row in rows_of(document, "left_out")}


def test_files_of_torch_save_need_python(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"PK\3\4" + bytes(100))
    (tmp_path / "old.bin").write_bytes(b"\x80\x02}q\x00." + bytes(100))
    for name in ("model.pt", "old.bin"):
        refuses(f"check {tmp_path}/{name}", f".*{name}.*torch.save.*fp8lab from pip, with PyTorch.*")


REFUSED = {
    "none": "cannot read none: .*",
    "--tensors x": "--tensors can be given only with --file",
    "--min-sqnr 5 --bits-per-weight 5": "--min-sqnr cannot be given with --bits-per-weight",
    "--plan x": "plan needs min_sqnr or bits_per_weight, .*",
    "--bits-per-weight 0": "bits_per_weight must be above 0 and at most 64, not 0",
    "--bits-per-weight 4": "bits_per_weight is too low: .*",
    "--tolerance -1": "tolerance must be 0 or more and finite, not -1",
    "--recipes none": "unknown recipe 'none'.*",
    "--resume": "--resume can be given only with --checkpoint",
    "--min-sqnr 3 --recipes torchao_mxfp8_rceil,microxcaling_mxfp6_e2m3 --plan x": "plan has no name of .*microxcaling_mxfp6_e2m3.*",
}  # fmt: skip


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuses(f"check {options}", REFUSED[options])
    assert not list(pathlib.Path().iterdir())
