# SPDX-License-Identifier: Apache-2.0
import json
import re

import fp8lab
import numpy as np
import pytest
from command import ROOT, column, prints, refuses, run


@pytest.fixture
def dumps(tmp_path):
    a = np.full((8, 100), 0x38, np.uint8)
    b = a.copy()
    b[:, 96:] = 0
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    return f"{tmp_path}/a.npy {tmp_path}/b.npy --format e4m3"


def test_it_ends_with_status_1_and_says_what_the_differences_share(dumps, tmp_path):
    done = run(f"compare {dumps} --shown 2 --out {tmp_path}/out")
    assert done.returncode == 1
    assert "Different: 32 of 800 elements (4 %), in 1 of 1 tensor." in done.stdout
    assert "Every one is zero in b and not in a. All lie in columns 96 to 99 of 100, to the end." in " ".join(
        done.stdout.split()
    )
    assert column(tmp_path / "out" / "compare.json", "mismatches", "index") == [96, 97]
    assert column(tmp_path / "out" / "compare.json", "mismatches", "a") == ["38", "38"]


def test_it_ends_with_status_0_where_all_is_equal(dumps):
    a = dumps.split()[0]
    prints(f"compare {a} {a} --format e4m3", "Equal: all 800 elements of 1 tensor, bit for bit")


def test_it_reads_fp8_of_safetensors_that_torch_wrote(tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    codes = torch.arange(-8, 8).to(torch.float8_e4m3fn)
    safetensors.save_file({"w": codes, "b": torch.ones(3, dtype=torch.bfloat16)}, tmp_path / "a.safetensors")
    codes.view(torch.uint8)[3] += 1
    safetensors.save_file({"w": codes, "b": torch.ones(3, dtype=torch.bfloat16)}, tmp_path / "b.safetensors")
    done = run(f"compare {tmp_path}/a.safetensors {tmp_path}/b.safetensors --out {tmp_path}/out")
    assert done.returncode == 1
    assert column(tmp_path / "out" / "compare.json", "tensors", "type") == ["bfloat16", "e4m3"]
    assert column(tmp_path / "out" / "compare.json", "tensors", "differing") == [0, 1]


@pytest.mark.parametrize(
    ("dtype", "a", "b", "words", "shown"),
    [
        ("int64", [2**53 + 1, -1], [2**53, -2], ["0020000000000001", "FFFFFFFFFFFFFFFF"], [2**53 + 1, -1]),
        ("int16", [300, -2], [0, 0], ["012C", "FFFE"], [300, -2]),
        ("uint32", [2**32 - 1, 1], [0, 0], ["FFFFFFFF", "00000001"], [2**32 - 1, 1]),
        ("uint64", [2**64 - 1, 1], [0, 0], ["FFFFFFFFFFFFFFFF", "0000000000000001"], [2**64 - 1, 1]),
    ],
)
def test_integers_are_shown_as_such(dtype, a, b, words, shown, tmp_path):
    np.save(tmp_path / "a.npy", np.array([*a, 3], dtype))
    np.save(tmp_path / "b.npy", np.array([*b, 3], dtype))
    done = run(f"compare {tmp_path}/a.npy {tmp_path}/b.npy --out {tmp_path}/out")
    assert done.returncode == 1
    results = tmp_path / "out" / "compare.json"
    assert column(results, "mismatches", "a") == words
    assert column(results, "mismatches", "integer_a") == shown
    assert column(results, "mismatches", "integer_b") == b
    assert column(results, "mismatches", "value_a") == [None, None]
    assert column(results, "tensors", "numbers") == [None]


def test_the_farthest_float64_of_opposite_signs_are_2_to_the_64_apart(tmp_path):
    np.save(tmp_path / "a.npy", np.array([-np.inf, 1]))
    np.save(tmp_path / "b.npy", np.array([np.inf, 1]))
    done = run(f"compare {tmp_path}/a.npy {tmp_path}/b.npy --out {tmp_path}/out")
    apart = 2 * 0x7FF0000000000000
    assert str(apart) in done.stdout, done.stdout
    assert column(tmp_path / "out" / "compare.json", "tensors", "largest_distance") == [apart]
    assert (tmp_path / "out" / "tensors.csv").read_text().splitlines()[1].endswith(f",{apart}")


def test_a_folder_with_a_tensor_less_is_different(tmp_path):
    for folder, names in (("a", "xy"), ("b", "x")):
        (tmp_path / folder).mkdir()
        for name in names:
            np.save(tmp_path / folder / name, np.ones(8, np.float32))
    done = run(f"compare {tmp_path}/a {tmp_path}/b")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert (
        "Different: not every tensor meets one of its type and shape. Equal are all 8 elements of 1 tensor, bit for bit."
        in text
    )
    assert '"y.npy" is in a alone.' in done.stdout


def test_a_file_in_fortran_order_is_compared_by_index(tmp_path):
    x = np.arange(12 * 7, dtype=np.float32).reshape(12, 7)
    other = np.asfortranarray(x)
    other[5, 3] = -1
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "f.npy", np.asfortranarray(x))
    np.save(tmp_path / "other.npy", other)
    prints(f"compare {tmp_path}/x.npy {tmp_path}/f.npy", "Equal: all 84 elements of 1 tensor, bit for bit")
    done = run(f"compare {tmp_path}/f.npy {tmp_path}/other.npy --input {tmp_path}/f.npy --out {tmp_path}/out")
    assert done.returncode == 1
    results = tmp_path / "out" / "compare.json"
    assert [column(results, "mismatches", name) for name in ("row", "column", "input")] == [[5], [3], [38]]


def test_dumps_without_elements_are_not_equal(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((0, 8), np.float32))
    refuses(f"compare {tmp_path}/a.npy {tmp_path}/a.npy", "a and b have no elements.*")


def test_what_safetensors_writes_of_torch_is_known(tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    codes = torch.arange(8, dtype=torch.uint8)
    made = {}
    for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2"):
        if hasattr(torch, name):
            made[name] = codes.clone().view(getattr(torch, name))
    try:
        safetensors.save_file(made, tmp_path / "a.safetensors")
    except (KeyError, ValueError, RuntimeError) as error:
        pytest.skip(f"this safetensors does not write them: {error}")
    run(f"compare {tmp_path}/a.safetensors {tmp_path}/a.safetensors --out {tmp_path}/out")
    known = {"float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2fnuz": "e5m2fnuz", "float4_e2m1fn_x2": "e2m1, pairs"}
    assert column(tmp_path / "out" / "compare.json", "tensors", "type") == [known[name] for name in sorted(made)]


def test_a_name_that_no_tensor_has_is_refused_beside_others(tmp_path):
    header = (
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}'
    )
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"12")
    files = f"{tmp_path}/x.safetensors {tmp_path}/x.safetensors --format e4m3"
    prints(f"compare {files} --tensors a,?", "Equal: all 2 elements of 2 tensors")
    prints(f"compare {files} --tensors '{{a,b}}'", "Equal: all 2 elements of 2 tensors")
    refuses(f"compare {files} --tensors a,B", 'tensors names "B", which matches no tensor of a and none of b')


def test_the_first_command_of_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("fp8lab")
    page = (ROOT / "docs" / "compare.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "compare.md", "exec"), names)
    command = re.search(r"^```sh\nfp8lab (.*)", page, re.MULTILINE)
    done = run(command[1])
    assert (
        done.returncode == 1
        and "All lie in columns 60 to 63 of 64, to the end." in " ".join(done.stdout.split())
        and not done.stderr
    )


REFUSED = {
    "": "a and b must be given.*",
    "no_such.npy no_such.npy": "cannot read .*no_such.npy.*",
    "no_such.bin {b} --raw --format e4m3": "cannot read no_such.bin: there is no such file",
    "{a} {b} --raw --format e4m3 --shape 9223372036854775808,2": "the shape .* has more elements than a file can hold",
    "{a} {b}": ".*a format that its file does not tell.*",
    "{a} {b} --pairs": "--pairs can be given only with --format",
    "{a} {b} --format e4m4": ".*e4m4.*",
    "{a} {b} --format e4m3 --raw --shape 3,5": ".*the shape .3, 5. 15.*",
    "{a} {b} --format e4m3 --tensors x": ".*has no name.*",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options, dumps):
    a, b = dumps.split()[:2]
    refuses(f"compare {options.format(a=a, b=b)}", REFUSED[options])


def test_differences_that_are_all_exact_ties_are_said_to_be(tmp_path):
    x = np.arange(1, 257, dtype=np.float32).reshape(4, 64) / 8  # from 16 on, every fourth or eighth lies on a midpoint
    codes = fp8lab.encode(x, "e4m3")
    away = fp8lab.encode(x, "e4m3", rounding="nearest_away")
    for name, array in {"x": x, "codes": codes, "away": away}.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = f"{tmp_path}/away.npy {tmp_path}/codes.npy --format e4m3"
    done = run(f"compare {files} --input {tmp_path}/x.npy --out {tmp_path}/out")
    equal = sum(float(one) % 1 == 0.5 and one < 32 for one in x[away == codes])
    assert done.returncode == 1 and equal > 0
    said = "Every one is an exact tie: what it was made of lies halfway between a and b."
    assert said in " ".join(done.stdout.split())
    document = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert said in " ".join(line for one in document["sections"] for line in one.get("paragraphs", []))
    assert "exact tie" not in run(f"compare {files}").stdout
