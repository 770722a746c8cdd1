# SPDX-License-Identifier: Apache-2.0
"""fp8lab doctor-gemm. What it says of tensor cores is in tests/reference/doctor; the products here are sums of
integers, rounded."""

import json
import re
import subprocess

import numpy as np
import pytest
from command import PROGRAM, ROOT, column, refuses, run

pytestmark = pytest.mark.sample(1, tests=2)

M, N, K = 12, 10, 256
SCALE_A, SCALE_B = np.float32(0.0137), np.float32(1.731)


def e4m3_values():
    """Of codes 00 to 7E, from the format's definition."""
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    return np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))


def words(text):
    return " ".join(text.split())


def says(arguments, text, status=0):
    done = run(arguments)
    assert (done.returncode, done.stderr) == (status, "") and text in words(done.stdout), done.stdout + done.stderr


def test_sizes_are_checked_before_the_files_are_read(tmp_path):
    # A file of 2 GB without a block on the disk: what reads it needs as much memory.
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.uint8, (2**15, 2**16))
    np.save(tmp_path / "b.npy", np.zeros((16, 2**15), np.uint8))
    np.save(tmp_path / "out.npy", np.zeros((2**15, 16), np.float32))
    line = [PROGRAM, "doctor-gemm", *(tmp_path / f"{name}.npy" for name in ("a", "b", "out"))]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _, told = process.communicate()
        assert process.returncode == 2 and "a and b must have the same K, not 65536 and 32768" in told
    limited = subprocess.run(
        ["bash", "-c", 'ulimit -v 1500000; exec "$@"', "-", *line], capture_output=True, text=True, check=False
    )
    assert limited.returncode == 2 and limited.stderr == told


@pytest.fixture(scope="module")
def product():
    """Codes, and their real dot products, as integers, rounded once."""
    rng = np.random.default_rng(11)
    a, b = rng.integers(0, 127, (M, K)), rng.integers(0, 127, (N, K))
    signs = rng.integers(0, 2, (M, K)), rng.integers(0, 2, (N, K))
    values = e4m3_values()
    left, right = values[a] * (1 - 2 * signs[0]), values[b] * (1 - 2 * signs[1])
    exact = np.array([[sum(map(int, row * 2**18)) / 2**18 for row in left[m] * right] for m in range(M)])
    return (a | signs[0] << 7).astype(np.uint8), (b | signs[1] << 7).astype(np.uint8), exact.astype(np.float32)


@pytest.fixture
def files(product, tmp_path):
    a, b, out = product
    rng = np.random.default_rng(12)
    bias = rng.normal(0, 100, N).astype(np.float32)
    scaled = out * (SCALE_A * SCALE_B)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    np.save(tmp_path / "b_turned.npy", b.T.copy())
    np.save(tmp_path / "out.npy", out)
    np.save(tmp_path / "scaled.npy", scaled)
    np.save(tmp_path / "bias.npy", bias)
    np.save(tmp_path / "biased.npy", scaled + bias)
    np.save(tmp_path / "scale_a.npy", SCALE_A)
    np.save(tmp_path / "rows_b.npy", np.full((N, 1), SCALE_B))
    np.save(tmp_path / "few.npy", out[[0, 3, 11], [1, 9, 4]])
    for name in ("a", "b", "out", "bias"):
        (tmp_path / f"{name}.raw").write_bytes(np.load(tmp_path / f"{name}.npy").tobytes())
    return tmp_path


def first(directory):
    return column(directory / "doctor_gemm.json", "explanations", "models")[0].split()


def test_a_product_is_named(files):
    done = run(f"doctor-gemm {files}/a.npy {files}/b.npy {files}/out.npy --out {files}/found")
    assert done.returncode == 0, done.stderr
    assert (
        "exact" in first(files / "found")
        and column(files / "found" / "doctor_gemm.json", "explanations", "unexplained")[0] == 0
    )
    assert f"Correct: all {M * N} elements are those of exact" in words(done.stdout)


def test_scales_and_a_bias_come_as_files_and_numbers(files):
    operands = f"{files}/a.npy {files}/b.npy"
    for scales in (
        f"--tensor-scale-a {SCALE_A:.9g} --tensor-scale-b {SCALE_B:.9g}",
        f"--scale-a {files}/scale_a.npy --scale-b {files}/rows_b.npy",
    ):
        says(
            f"doctor-gemm {operands} {files}/scaled.npy {scales}",
            "exact, scaled as accumulator * fl(scale_a * scale_b)",
        )
        says(
            f"doctor-gemm {operands} {files}/biased.npy {scales} --bias {files}/bias.npy",
            f"Correct: all {M * N} elements are those of exact",
        )
    says(f"doctor-gemm {operands} {files}/scaled.npy {scales} --bias {files}/bias.npy", "but the bias is not added", 1)
    says(f"doctor-gemm {operands} {files}/out.npy {scales}", "but no scale is applied", 1)


def test_what_is_expected_decides(files):
    operands = f"doctor-gemm {files}/a.npy {files}/b.npy {files}/out.npy"
    says(f"{operands} --expected exact", f"Correct: all {M * N} elements are those of exact")
    says(
        f"{operands} --expected ada_mma_fp8 --expected-promote-k 128",
        "Not ada_mma_fp8, promoted every 128: all 120 elements are those of",
        1,
    )
    says(
        f"{operands} --expected ada_mma_fp8 --expected-split-k 128,128 --expected-split-order 1,0 --expected-zero-rule skip_terms",
        "Not ada_mma_fp8, K split",
        1,
    )
    refuses(f"{operands} --expected-promote-k 128", ".*expected.*")
    refuses(f"{operands} --expected exact --expected-split-k 100,156", "expected: .*")
    refuses(
        f"{operands} --expected exact --expected-profile ieee", "expected: float32 is not rounded, and has no profile"
    )


def test_the_name_of_a_recipe_may_be_expected_and_its_fields_be_changed(files):
    operands = f"doctor-gemm {files}/a.npy {files}/b.npy {files}/out.npy"
    says(f"{operands} --expected te_hopper_wgrad", "Not hopper_wgmma_fp8, promoted every 128: all 120 elements", 1)
    says(f"{operands} --expected te_hopper_wgrad --expected-promote-k 0", "Not hopper_wgmma_fp8: all 120 elements", 1)
    says(f"{operands} --expected deepgemm_1d1d_hopper --out {files}/named", "Not hopper_wgmma_fp8", 1)
    assert json.loads((files / "named" / "doctor_gemm.json").read_text())["arguments"]["expected"] == (
        "deepgemm_1d1d_hopper"
    )
    refuses(f"{operands} --expected te_hopper_fprop", "expected: output is bfloat16, and that of the GEMM float32")
    refuses(
        f"{operands} --expected te_hoper_wgrad",
        "--expected: unknown GEMM recipe or model 'te_hoper_wgrad'; known: te_hopper_wgrad, .*; did you mean te_hopper_wgrad.*",
    )
    refuses(f"{operands} --expected exact --expected-promote-k -1", "expected: promote_k must be 0.*, not -1")


def test_layouts_places_and_files_without_a_header(files):
    says(
        f"doctor-gemm {files}/a.npy {files}/b_turned.npy {files}/out.npy --layout nn",
        f"Correct: all {M * N} elements are those of exact",
    )
    says(
        f"doctor-gemm {files}/a.npy {files}/b.npy {files}/few.npy --places 0,1,3,9,11,4", "all 3 elements are those of"
    )
    raw = f"doctor-gemm {files}/a.raw {files}/b.raw {files}/out.raw --raw --sizes {M},{N},{K} --product-format float32"
    says(raw, f"Correct: all {M * N} elements are those of exact")
    refuses(f"{raw} --bias {files}/a.raw", f"bias must have {N} elements, not {M * K // 4}")
    refuses(raw.replace(f"{M},{N}", "12,11"), "b has 2560 bytes; of M,N,K = 12,11,256 it has 2816")


def test_tensors_of_safetensors_files_are_named_in_order(files, product):
    path = files / "all.safetensors"
    tensors, offset, data = {}, 0, b""
    for name, array, dtype in (("b", product[1], "F8_E4M3"), ("a", product[0], "F8_E4M3"), ("d", product[2], "F32")):
        tensors[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
        data += array.tobytes()
    header = json.dumps(tensors).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    says(f"doctor-gemm {path} {path} {path} --tensors a,b,d", f"Correct: all {M * N} elements are those of exact")
    folder = files / "folder"
    folder.mkdir()
    (folder / "all.safetensors").write_bytes(path.read_bytes())
    says(f"doctor-gemm {folder} {path} {folder} --tensors 'a,[b],{{d,}}'", f"Correct: all {M * N} elements")
    refuses(f"doctor-gemm {folder} {path} {folder} --tensors '?,b,d'", "a: 3 tensors have that name; name one")
    refuses(
        f"doctor-gemm {files}/a.npy {path} {files}/out.npy --tensors b,a",
        "tensors names 2 tensors, and 1 .safetensors files are given",
    )


def test_a_probe_is_what_the_kernel_is_to_run(files):
    np.save(files / "zeros.npy", np.zeros((M, K), np.uint8))
    np.save(files / "nothing.npy", np.zeros((M, N), np.float32))
    done = run(
        f"doctor-gemm {files}/zeros.npy {files}/b.npy {files}/nothing.npy --tensor-scale-a 0.5 --probe {files}/probe"
    )
    assert done.returncode == 1, done.stderr
    assert "Cannot tell: " in words(done.stdout)
    assert re.search(r"The probe has inputs on which \d+ of the \d+ pairs", words(done.stdout))
    text = (files / "probe" / "probe.txt").read_text()
    assert np.load(files / "probe" / "a.npy").shape == (M, K) and np.load(files / "probe" / "b.npy").shape == (N, K)
    # The kernel that runs it: real sums, rounded once, times the scale.
    a, b = np.load(files / "probe" / "a.npy"), np.load(files / "probe" / "b.npy")
    value = np.append(e4m3_values(), np.nan)
    x, y = (value[codes & 127] * np.where(codes & 128, -1, 1) for codes in (a, b))
    command = next(line for line in text.splitlines() if line.startswith("fp8lab doctor-gemm")).removeprefix("fp8lab ")
    scale = np.float32(re.search(r"--tensor-scale-a (\S+)", command)[1])
    np.save(files / "out.npy", (x @ y.T).astype(np.float32) * scale)
    found = run(command.replace(" out.npy", f" {files}/out.npy") + f" --out {files}/again")
    assert found.returncode == 0, found.stderr
    assert "exact" in first(files / "again")


def test_what_does_not_fit_is_refused(files):
    operands = f"doctor-gemm {files}/a.npy {files}/b.npy"
    refuses(f"{operands} {files}/bias.npy", f"the product must have the shape {M} x {N}, M x N, not \\({N},\\)")
    refuses(f"{operands} {files}/a.npy", "format of product must be given: its file does not tell what its bytes are")
    refuses(f"{operands} {files}/out.npy --layout xy", 'layout must be nt or nn or tn or tt, not "xy"')
    refuses(f"{operands} {files}/out.npy --layout nn", "a and b must have the same K, not 256 and 10")
    refuses(
        f"{operands} {files}/out.npy --scale-a {files}/bias.npy", "scale_a has 10 scales; of an operand of 12 rows.*"
    )
    refuses(f"{operands} {files}/few.npy --places 0,1,3", "places must be pairs m,n, an even number of them")
    refuses(
        f"{operands} {files}/few.npy --places 0,1,3,10,1,1", r"places: \(3, 10\) lies outside of an output of 12 x 10"
    )
    refuses(f"{operands} {files}/few.npy --places 0,1", "places are 1, the elements of the product 3")
    refuses(f"{operands} {files}/out.npy --scale-out 0", "scale_out must be a normal number of float32, not 0")
    refuses(f"{operands} {files}/out.npy --raw", "files without a header need sizes.*")
    huge = "--raw --product-format float32 --sizes 4294967296,4294967296,4294967296"
    refuses(f"{operands} {files}/out.npy {huge}", "sizes must be from 1 to 1073741824, not 4294967296")
    np.save(files / "wide.npy", np.ones((M, K)))
    refuses(f"doctor-gemm {files}/wide.npy {files}/b.npy {files}/out.npy", "a is of float64, which is not diagnosed")


def test_the_python_and_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("fp8lab")
    page = (ROOT / "docs" / "gemm_doctor.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "gemm_doctor.md", "exec"), names)
    assert capsys.readouterr().out
    commands = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    assert len(commands) >= 2
    for command in commands:
        done = run(command.removeprefix("fp8lab ").partition("  #")[0])
        assert done.returncode in (0, 1) and not done.stderr, done.stderr


def test_the_probe_of_what_nothing_explains_tells_where_along_k_it_begins(tmp_path):
    values = np.concatenate([e4m3_values(), [np.nan]])

    def kernel(a, b):
        """Whole numbers, whose sums are exact; those from k = 96 on are cut to 10 bits and 3 % too large."""
        x, y = (np.where(codes < 128, 1, -1) * values[codes & 0x7F] for codes in (a, b))
        rest = (x[:, 96:] @ y[:, 96:].T).astype(np.float32)
        rest = (rest.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) * np.float32(1.03)
        return (x[:, :96] @ y[:, :96].T).astype(np.float32) + rest

    rng = np.random.default_rng(5)
    a, b = (rng.choice([0x38, 0x40, 0x44, 0xB8, 0xC0], (n, K)).astype(np.uint8) for n in (M, N))
    for name, array in {"a": a, "b": b, "out": kernel(a, b)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    done = run(
        f"doctor-gemm {tmp_path}/a.npy {tmp_path}/b.npy {tmp_path}/out.npy --format-a e4m3 --format-b e4m3 "
        f"--probe {tmp_path}/probe"
    )
    assert done.returncode == 1 and "The probe's rows end one after the other along K" in words(done.stdout), done
    assert "where along K the first difference enters" in words((tmp_path / "probe" / "probe.txt").read_text())
    a, b = np.load(tmp_path / "probe" / "a.npy"), np.load(tmp_path / "probe" / "b.npy")
    ends = [np.flatnonzero(row)[-1] + 1 for row in a]
    assert a.shape == (M, K) and all(abs(end - K * (i + 1) / M) < 2 for i, end in enumerate(ends)), ends
    np.save(tmp_path / "answer.npy", kernel(a, b))
    arguments = f"{tmp_path}/probe/a.npy {tmp_path}/probe/b.npy {tmp_path}/answer.npy --format-a e4m3 --format-b e4m3"
    done = run(f"doctor-gemm {arguments} --out {tmp_path}/found")
    results = tmp_path / "found" / "doctor_gemm.json"
    (first,), (last,) = (column(results, "along_k", name) for name in ("from", "to"))
    assert first <= 96 < last and last - first <= K // M + 3, (first, last)
    assert f"behind the first {first} elements, and within the first {last}" in words(done.stdout)
