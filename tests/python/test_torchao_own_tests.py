# SPDX-License-Identifier: Apache-2.0
"""torchao's own tests of float8 linear layers, unchanged, under fp8lab.torch.emulate: from the checkout that
FP8LAB_CHECKOUTS names."""

import importlib.metadata
import importlib.util
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import repositories
from torch_models import EXHAUSTIVE

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "torch.md"
TAG, VERSION = "v0.18.0", "0.18.0"
#: How many cases of each file there are; all pass. The others of the folder want several GPUs, or take more than ten minutes.
PASSED = {
    "test_base.py": 158,
    "test_compile.py": 21,
    "test_float8_utils.py": 16,
    "test_auto_filter.py": 9,
}


@pytest.mark.parametrize("file", PASSED)
def test_its_own_tests_pass(file, tmp_path):
    try:
        archive = repositories.git(repositories.TORCHAO, "archive", TAG, "test/float8")
    except repositories.NoCheckoutError as error:
        pytest.skip(str(error))
    if not EXHAUSTIVE:
        pytest.skip("minutes: ./dev test --exhaustive")
    if importlib.util.find_spec("torchao") is None:
        pytest.skip("torchao is not installed")
    expecttest = Path(sys.prefix, "releases", "expecttest-0.3.0")
    if not expecttest.exists():
        pytest.skip(f"expecttest 0.3.0 is not installed in {expecttest}")
    if importlib.metadata.version("torchao") != VERSION:
        pytest.skip(f"the tests are of torchao {VERSION}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(tmp_path, filter="data")
    environment = {
        **os.environ,
        "FP8LAB_DEVICE": "h100",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(expecttest), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "torchao_device", file]
    folder = tmp_path / "test" / "float8"
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert re.search(rf"^{PASSED[file]} passed(, \d+ warnings?)? in ", done.stdout, re.MULTILINE), done.stdout[-3000:]


def test_the_page_has_the_counts():
    text = PAGE.read_text()
    for file, count in PASSED.items():
        assert f"| `{file}` | {count} | {count} |" in text
