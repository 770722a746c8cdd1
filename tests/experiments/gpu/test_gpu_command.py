# SPDX-License-Identifier: Apache-2.0
import importlib.util
import json
import os
import re
import subprocess
import sys
import zlib

import jsonschema
import numpy as np
import pytest
from command import PROGRAM, ROOT, prints, refuses, takes_long
from sampled import EXHAUSTIVE

SCHEMA = json.loads((ROOT / "bindings" / "fp8lab" / "ledger.schema.json").read_text())
#: A libcublasLt that computes on the host.
FAKE = PROGRAM.parent / "libfake_cublaslt.so"
SMALL = "gpu --host-team --parts casts,dots --inputs 4096 --dots 1000"


def test_the_host_team_writes_a_ledger_that_its_schema_describes(tmp_path):
    ledger = tmp_path / "folder" / "ledger.json"
    shown = prints(
        f"{SMALL} --ledger {ledger}", "The host team computes what fp8lab's models compute, as far as it was asked."
    )
    assert "this is no device, and no evidence" in " ".join(shown.split())
    content = json.loads(ledger.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    assert content["device"]["name"] == "host team" and len(content["casts"]) == 11 and len(content["dots"]) == 200
    skipped = [part["note"] for part in content["parts"] if part["status"] != "done"]
    assert len(skipped) == 29 and set(skipped) == {"this chip has no such instruction"}


def test_words_of_units_are_packed_beside_the_ledger(tmp_path):
    prints(
        f"gpu --host-team --parts units --inputs 1024 --ledger {tmp_path}/a.json --words {tmp_path}/words",
        "The host team computes what fp8lab's models compute, as far as it was asked.",
    )
    content = json.loads((tmp_path / "a.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    assert len(content["functions"]) == 25 and {one["variant"] for one in content["functions"]} == {"units"}
    assert sorted(os.listdir(tmp_path / "words")) == sorted(one["file"] for one in content["words"])
    different = 0
    for record in content["words"]:
        exact = {"rcp": lambda x: 1 / x, "rsqrt": lambda x: x**-0.5, "ex2": np.exp2}.get(
            record["function"].split(".")[0]
        )
        if exact is None or record["first"] not in (0x3F800000, 0x40000000) or "ftz.f32" not in record["function"]:
            continue
        packed = (tmp_path / "words" / record["file"]).read_bytes()
        planes = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(4, -1)
        steps = sum(planes[i].astype(np.uint32) << np.uint32(8 * i) for i in range(4))
        words = np.cumsum(steps, dtype=np.uint32)
        assert words.size == record["count"] == 1024
        x = np.arange(record["first"], record["first"] + 1024, dtype=np.uint32).view(np.float32).astype(np.float64)
        distance = words.view(np.int32) - exact(x).astype(np.float32).view(np.int32)
        assert np.abs(distance).max() <= 2  # the unit is not rounded correctly, and no further off
        different += np.count_nonzero(distance)
    assert different > 100


@pytest.mark.skipif(not EXHAUSTIVE, reason="PyTorch five times: ./dev test --exhaustive")
def test_the_script_that_asks_pytorch_runs_on_a_cpu(tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no PyTorch")
    prints(
        f"gpu --host-team --parts reductions,calls --python {sys.executable} --seconds 300 --budget 900 "
        f"--ledger {tmp_path}/a.json --words {tmp_path}/w",
        "as far as it was asked",
    )
    content = json.loads((tmp_path / "a.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    assert {one["task"] for one in content["parts"] if one["status"] != "done"} <= {"libraries_triton"}
    named = {one["name"]: one for one in content["calls"]}
    words = dict(np.load(tmp_path / "w/torch_reductions_float32.npz"))
    assert named["amax/float32/64x128"]["count"] == words["amax/float32/64x128"].size == 64
    sums = np.abs(words["sum/float32/64x128"].view(np.float32)).max()
    assert 5 < sums < 30  # of 128 numbers in [-1, 1): their deviation is 6.5
    # 16 ones, of which the device adds all but two at most after both that cancel.
    tree = words["tree/float32/axis-1/64x16"]
    assert tree.shape == (120,) and tree.min() >= 0 and tree.max() == 14
    products = np.load(tmp_path / "w/libraries_scaled_mm_tensor.npz")
    fast, split = (products[f"mm/16x64x128/tensor/float32/{one}/nobias"] for one in ("fast", "split"))
    assert fast.shape == (256,) and (fast == split).all()  # a CPU has one accumulation


@takes_long
def test_the_schema_describes_the_primer_in_the_ledger_of_a_device():
    content = json.loads((ROOT / "tests" / "vectors" / "device" / "h200.json").read_text())
    assert len(content["primer"]) == 7
    some = {name: value[:7] if isinstance(value, list) else value for name, value in content.items()}
    jsonschema.Draft202012Validator(SCHEMA).validate(some)
    del some["primer"][6]["tensor"]
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(some)


# A test of C++ records a small primer each time, and holds it to the models.
@pytest.mark.skipif(not EXHAUSTIVE, reason="7 seconds: ./dev test --exhaustive")
def test_the_primer_and_a_library_are_in_the_ledger(tmp_path):
    asked = f"primer,products --cublaslt {FAKE}" if FAKE.exists() else "primer"
    shown = prints(f"gpu --host-team --parts {asked} --ledger {tmp_path}/a.json", "the documentation: 36 of 36")
    content = json.loads((tmp_path / "a.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    assert len(content["primer"]) == 7 and "as far as it was asked." in shown
    if asked != "primer":
        found = [one["composition"] for one in content["products"]]
        assert [one["promote_k"] for one in found] == [0, 128, 0, 128, 0, 128]
        assert [one["split_k"] for one in found] == [0, 0, 0, 2048, 0, 8192]


def test_another_seed_gives_other_digests(tmp_path):
    digests = []
    for seed in (1, 1, 2):
        prints(f"gpu --host-team --parts dots --dots 500 --seed {seed} --ledger {tmp_path}/a.json", "computes")
        digests.append([one["digests"] for one in json.loads((tmp_path / "a.json").read_text())["dots"]])
    assert digests[0] == digests[1] != digests[2]


def test_what_is_skipped_is_named():
    prints(
        "gpu --host-team --parts kernels",
        "kernels +skipped +[0-9]+ +the host team is no device +encode to e4m3, encode to e5m2 and more",
    )


def test_a_task_that_takes_too_long_is_killed_and_told():
    prints(
        "gpu --host-team --parts casts --seconds 0.0001",
        "casts +timed out +[0-9]+ +it was killed after 0.0001 s",
        status=3,
    )


# Packages with Transformer Engine's names, whose quantizers copy.
FAKE_TE = {
    "transformer_engine/__init__.py": "",
    "transformer_engine/pytorch/__init__.py": "",
    "transformer_engine/pytorch/tensor/__init__.py": "",
    "transformer_engine/pytorch/tensor/float8_tensor.py": """
class Float8Quantizer:
    def __init__(self, scale, amax, fp8_dtype, *, rowwise=True, columnwise=True):
        assert scale.shape == amax.shape == (1,) and fp8_dtype == "E4M3"
    def __call__(self, tensor):
        return tensor.clone()
""",
    "transformer_engine/pytorch/tensor/mxfp8_tensor.py": """
class MXFP8Quantizer:
    def __init__(self, fp8_dtype, *, rowwise=True, columnwise=True, with_2d_quantization=False):
        assert fp8_dtype == "E4M3"
    def __call__(self, tensor):
        return tensor.clone()
""",
    "transformer_engine_torch.py": "class DType:\n    kFloat8E4M3 = 'E4M3'\n",
}


# PyTorch is imported once for all that the script can be asked.
RUN_ALL = """
import sys
script, folder = sys.argv[1:3]
def run(what):
    print("asked", what)
    sys.argv = ["-c", folder, what, "cpu", "64"]
    try:
        exec(script, {})
    except SystemExit as end:
        print("status", end.code)
for what in ("cast", "scaled_mm", "te"):
    run(what)
sys.path.remove(folder)
for name in [name for name in sys.modules if name.startswith("transformer_engine")]:
    del sys.modules[name]
run("te")
"""


@pytest.mark.skipif(not EXHAUSTIVE, reason="half a minute, of which importing is most: ./dev test --exhaustive")
def test_the_script_that_times_others_runs_on_a_cpu(tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no PyTorch")
    for file, text in FAKE_TE.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    script = (
        (ROOT / "experiments/gpu/torch_script.hpp").read_text().split('torch_speed_script = R"py(')[1].split(')py"')[0]
    )
    ran = subprocess.run([sys.executable, "-c", RUN_ALL, script, tmp_path], capture_output=True, text=True,
                         env=os.environ | {"PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    _, cast, product, te, without = (
        part.splitlines()[1:] for part in re.split("^asked", ran.stdout, flags=re.MULTILINE)
    )
    assert all(part[0].startswith("PyTorch ") for part in (cast, product, te))
    rows = [line.split("|") for part in (cast, product, te) for line in part[1:]]
    assert [row[0] for row in rows] == [
        "torch.compile: cast to E4M3 with its amax", "torch._scaled_mm, fast accumulation", "torch._scaled_mm, split accumulator",
        "Transformer Engine: cast to E4M3 with its amax", "Transformer Engine: MXFP8 rowwise", "Transformer Engine: MXFP8 both",
    ]  # fmt: skip
    assert [int(row[2]) for row in rows] == [
        64 * 64 * 3,
        2 * 64**3,
        2 * 64**3,
        64 * 64 * 3,
        64 * 64 * 3 + 128,
        64 * 64 * 4 + 256,
    ]
    assert all(len(row) == 6 and float(row[4]) > 0 for row in rows)
    assert without[0].startswith("this Python has no Transformer Engine") and without[1] == "status 3"


REFUSED = {
    "--parts cast": "unknown part 'cast'; known: kernels, .*",
    "--dots 0": "dots must be from 1 to 10\\^12, not 0",
    "--inputs 1": "inputs must be from 4 to 2\\^32, not 1",
    "--seconds 0": "seconds must be above 0 .*",
    "--ledger /dev/null/x.json": ".*/dev/null.*",
}


@pytest.mark.parametrize("line", REFUSED)
def test_bad_arguments_are_refused(line):
    refuses(f"gpu --host-team {line}", REFUSED[line])
