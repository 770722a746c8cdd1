# SPDX-License-Identifier: Apache-2.0
"""Training steps of Transformer Engine's modules have the words of an NVIDIA H200, every one.

tests/vectors/device/h200_te_modules.npz has a digest of each tensor that tests/python/te/device_words.py recorded there
in its case ``module`` on 2026-11-27 (driver 580.159.04, CUDA 13.0, PyTorch 2.11.0, Transformer Engine 2.20.2): of four
steps, three of a TransformerLayer, the output, the input's gradient and all parameters' gradients, and at the end the
parameters. fp8lab.te runs the same file.
"""

import re
from pathlib import Path

import numpy as np
import warm
from drawn_words import digest
from installed import without_transformer_engine
from sampled import EXHAUSTIVE

with np.load(Path(__file__).parents[2] / "vectors" / "device" / "h200_te_modules.npz") as file:
    RECORDED = dict(zip(str(file["names"]).split("\n"), file["digests"].tolist(), strict=True))
SCRIPT = Path(__file__).parent / "device_words.py"
SAMPLE = "LayerNormMLP/current/bf16/gelu/LayerNorm$|^Linear/block/fp32$|^LayerNormMLP/none/bf16/gelu/LayerNorm$|TransformerLayer/delayed$|^LayerNormMLP/none/fp32/gelu/RMSNorm$"


def own_digests(pattern: str, path: Path) -> dict[str, int]:
    """The digests of the tensors of those calls, as fp8lab.te computes them."""
    told = warm.run("--device", "h200", "--functions", "hopper", SCRIPT, path, 3000, "module", pattern)
    assert told.returncode == 0, told.stderr[-3000:]
    with np.load(path) as made:
        assert not made["errors"].size, made["errors"]
        whole = {name: int(digest(made[name])) for name in made.files if name.startswith("module/") and "#" not in name}
        return whole | {name[:-7]: int(made[name]) for name in made.files if name.endswith("#digest")}


@without_transformer_engine
def test_training_steps_have_an_h200s_words(tmp_path):
    pattern = "" if EXHAUSTIVE else SAMPLE
    own = own_digests(pattern, tmp_path / "own.npz")
    assert set(own) == {name for name in RECORDED if re.search(pattern, name.removeprefix("module/").split(".")[0])}
    assert not [name for name in own if own[name] != RECORDED[name]]
