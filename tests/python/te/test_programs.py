# SPDX-License-Identifier: Apache-2.0
"""Programs of Transformer Engine's documentation, unmodified, from the checkout that FP8LAB_CHECKOUTS names."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import own_tests
import pytest
import repositories
import warm
from installed import folder_of, without_transformer_engine
from sampled import EXHAUSTIVE
from test_parallel_layers import on_two_processes

exhaustive = pytest.mark.skipif(
    not EXHAUSTIVE, reason="half a minute, of which importing is most: ./dev test --exhaustive"
)
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def documentation():
    """The folder docs/ of the checkout."""
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    try:
        return Path(own_tests.tests_of_checkout().name, "docs")
    except repositories.NoCheckoutError as error:
        pytest.skip(str(error))


def extract(project: str, tag: str, folder: str, target: Path) -> None:
    """Puts a folder of a checkout as it was at a tag below another; the test is skipped where there is no checkout."""
    try:
        archive = repositories.git(project, "archive", tag, folder)
    except repositories.NoCheckoutError as error:
        pytest.skip(str(error))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(target, filter="data")


def run(device, *words):
    command = [sys.executable, "-m", "fp8lab.te", "--device", device, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@exhaustive
@without_transformer_engine
def test_nvidias_debug_tools_log_what_casts_lose(tmp_path):
    path = [folder_of("0.2.2", "nvdlfw_inspect")]
    done = warm.run("--device", "h100", HERE / "real_debug.py", tmp_path, path=path)
    assert done.returncode == 0, done.stderr[-3000:]


#: accelerate's release whose tests of FP8 are the newest ones: they have not changed until 1.15.
ACCELERATES_TESTS = "v1.14.0"


@exhaustive
@without_transformer_engine
@pytest.mark.parametrize(("device", "passed"), [("h100", 2), ("b200", 3)])
def test_accelerates_own_tests_of_transformer_engine_pass(tmp_path, device, passed):
    """Without those that want DeepSpeed or two GPUs; MXFP8 is a Blackwell's."""
    pytest.importorskip("accelerate")
    extract(repositories.ACCELERATE, ACCELERATES_TESTS, "tests", tmp_path)
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(Path("tests", "test_fp8.py")),
        "-k",
        "TestTransformerEngine",
    ]
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # accelerate's own is there
    done = subprocess.run(
        [sys.executable, "-m", "fp8lab.te", "--device", device, "--pretend-cuda", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": commands, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0 and f"{passed} passed" in done.stdout, done.stdout[-3000:]


def numbers(text: str) -> list[str]:
    return re.findall(r"-?\d+\.\d*", text)


def wrong_digits(device: str, examples: Path, path=()) -> tuple[list[int], list[tuple[int, str, str]]]:
    """How many digits each table of the primer has, and those that a device prints otherwise: the table, ours, NVIDIA's."""
    done = warm.run("--device", device, HERE / "run_notebook.py", examples / "fp8_primer.ipynb", path=path)
    assert done.returncode == 0, done.stderr[-2000:]
    cells = [cell for cell in json.loads(done.stdout) if numbers(cell["shown"])]
    wrong = [
        (number, printed, shown)
        for number, cell in enumerate(cells)
        for printed, shown in zip(numbers(cell["printed"]), numbers(cell["shown"]), strict=True)
        if printed != shown
    ]
    return [len(numbers(cell["shown"])) for cell in cells], wrong


@without_transformer_engine
@pytest.mark.parametrize(("release", "tag"), [("2.20.2", "v2.2"), ("2.2.0", "v2.2"), ("1.13.0", "v1.13")])
def test_the_primer_of_earlier_releases_prints_the_digits_of_an_h100(tmp_path, release, tag):
    """It was run on one of 114 multiprocessors; the notebook of 2.2 runs under the newest release, too."""
    if release != "2.20.2" and not EXHAUSTIVE:
        pytest.skip("seconds, of which importing is most: ./dev test --exhaustive")
    extract(repositories.TRANSFORMER_ENGINE, tag, "docs/examples", tmp_path)
    path = [] if release == "2.20.2" else [folder_of(release)]
    tables, wrong = wrong_digits("h100_pcie", tmp_path / "docs" / "examples", path)
    assert tables == [36] * 4
    assert wrong == [(1, "0.2896", "0.2895"), (1, "0.0771", "0.0772")]  # of TF32; weights drawn by an approximate sine


def test_the_primer_prints_the_digits_of_the_gpu_that_it_was_run_on(documentation):
    """All digits that NVIDIA's notebook shows: FP8 by delayed scaling, the exact product of representable operands, their
    difference, and NVFP4 before MXFP8 in bfloat16.

    It was run on a Blackwell with 152 multiprocessors: of all numbers of multiprocessors, and of 8, 6, 4 or 3 blocks on each, this
    one alone draws weights that give the last columns.
    """
    tables, wrong = wrong_digits("gb200", documentation / "examples")
    assert tables == [36] * 5
    # The weights are drawn on the device with its approximate sine and cosine, which move some of them by an ulp, and one that lies
    # beside a tie of TF32 by 2^-11 of its size, 2e-5: too little to see but on the edge of the fourth digit.
    assert wrong == [(1, "-0.8827", "-0.8826"), (1, "0.2896", "0.2895")]


#: Without the one that takes a minute, and the one that begins amid a program on several GPUs.
LOW_PRECISION = [
    ("h100", "fp8_current_scaling/pytorch_current_scaling_example.py"),
    ("h100", "fp8_delayed_scaling/pytorch_delayed_scaling_example.py"),
    ("h100", "introduction/autocast_pytorch.py"),
    ("b200", "mxfp8/pytorch_mxfp8_example.py"),
    ("b200", "nvfp4/pytorch_nvfp4_example.py"),
    ("h100", "performance_considerations/fused_layers_pytorch.py"),
    ("h100", "performance_considerations/memory_usage_1_pytorch.py"),
    ("h100", "performance_considerations/memory_usage_2_pytorch.py"),
    ("h100", "performance_considerations/memory_usage_3_pytorch.py"),
    ("h100", "performance_considerations/save_original_input_pytorch.py"),
]


@exhaustive
@pytest.mark.parametrize(("device", "script"), LOW_PRECISION)
def test_the_scripts_on_low_precision_run(documentation, device, script):
    done = run(device, documentation / "features" / "low_precision_training" / script)
    assert done.returncode == 0, done.stderr[-2000:]


@exhaustive
def test_the_script_on_block_scaling_names_a_module_that_there_is_not(documentation):
    """``te.common``, which is no part of ``transformer_engine.pytorch``, on a GPU neither; all else of it runs."""
    script = (
        documentation / "features/low_precision_training/fp8_blockwise_scaling/pytorch_blockwise_scaling_example.py"
    )
    assert "has no attribute 'common'" in run("h100", script).stderr
    text = script.read_text().replace("te.common.recipe.Format", "recipes.Format")
    right = script.with_name("right.py")
    right.write_text("import transformer_engine.common.recipe as recipes\n" + text)
    done = run("h100", right)
    assert done.returncode == 0, done.stderr[-2000:]


@exhaustive
@without_transformer_engine
def test_a_llama_of_hugging_face_trains_under_accelerate():
    """transformers 5.24.0 and accelerate 1.15.0, unmodified: all 15 Linear layers are converted and cast."""
    pytest.importorskip("accelerate")
    path = [
        folder_of(release, name)
        for name, release in (("transformers", "5.24.0"), ("tokenizers", "0.23.3"), ("regex", "2026.11.19"))
    ]
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = warm.run("--device", "h100", HERE / "real_llama.py", path=path, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["converted"] == told["in_fp8"] == told["linear"] and len(told["linear"]) == 15
    assert told["losses"][-1] < 0.8 * told["losses"][0]


@exhaustive
@without_transformer_engine
def test_a_layer_of_megatron_is_tensor_parallel():
    """Megatron-core 0.16.1, unmodified, on two processes: both have the same losses, and the MLP is the sum of its parts."""
    path = [folder_of("0.16.1", "megatron_core")]
    ranks = on_two_processes("h100", HERE / "megatron_ranks.py", options=["--pretend-cuda"], path=path)
    assert [one.returncode for one in ranks] == [0, 0], ranks[0].stderr[-3000:]
    first, second = (json.loads(one.stdout.splitlines()[-1]) for one in ranks)
    assert first == second and first["is_equal"]
    assert first["kinds"] == ["TEDotProductAttention", "TELayerNormColumnParallelLinear", "TERowParallelLinear"]
    assert first["losses"][2] < first["losses"][0]
