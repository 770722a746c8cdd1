# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's precision debug tools (nvdlfw_inspect) beside Transformer Engine: run by test_programs.py under ``python -m fp8lab.te``.

Prints what they logged of an activation that is cast, and what fp8lab counts of the same cast.
"""

import re
import sys
from pathlib import Path

import checks
import fp8lab
import numpy as np
import nvdlfw_inspect.api as debug
import torch
import transformer_engine
import transformer_engine.pytorch as te
from transformer_engine.common import recipe

CONFIG = """
what_casts_lose:
  layers: {layer_name_regex_pattern: .*}
  enabled: True
  transformer_engine:
    LogFp8TensorStats:
      enabled: True
      tensors_struct:
      - {tensor: activation, stats: [underflows%], freq: 1}
"""


def main(folder: Path) -> None:
    config = folder / "config.yaml"
    config.write_text(CONFIG)
    features = Path(transformer_engine.__file__).parent / "debug" / "features"
    debug.initialize(config_file=str(config), feature_dirs=[str(features)], log_dir=str(folder))
    layer = te.Linear(64, 48, name="first", params_dtype=torch.bfloat16)
    x = checks.drawn(1, 32, 64, "bfloat16", 3e-5)
    x[0, :3] = 3.0  # so that most of the others are lost
    with te.autocast(recipe=recipe.Float8CurrentScaling()):
        layer(x).sum().backward()
    debug.step()
    text = "".join(one.read_text() for one in folder.rglob("*statistics*/*.log"))
    logged = [float(one) for one in re.findall(r"first_activation_.*underflows%.*value=([0-9.]+)", text)]
    codes = fp8lab.quantize(x, fp8lab.JustInTime("e4m3")).codes & 0x7F
    lost = (np.count_nonzero(codes == 0) - int((x == 0).sum())) / codes.size * 100
    print(logged, lost)
    assert len(logged) == 1 and 5 < lost < 95
    assert abs(logged[0] - lost) < 1e-4  # a share of 2048 elements, in per cent, that is told as float32


if __name__ == "__main__":
    main(Path(sys.argv[1]))
