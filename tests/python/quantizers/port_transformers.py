# SPDX-License-Identifier: Apache-2.0
"""Ports of the kernels of finegrained-fp8, 017b01b, which transformers 5.23.0 loads from its hub."""

import numpy as np
import torch

from quantizers.numerics import MAX8, F, Result, Tiles, e8m0_up, power, q8


def activation(x: torch.Tensor) -> Result:
    """The scale is stored as it is; what divides is at least 1e-12."""
    groups = Tiles(x, (1, 128))
    scale = groups.amax() / MAX8
    return Result(q8(groups.x / groups.at_elements(np.fmax(scale, F(1e-12)))), scale)


def mxfp8(x: torch.Tensor) -> Result:
    """mx_act_quant_inline: bytes from 1 to 254; what divides is at least 1e-12 here too."""
    blocks = Tiles(x, (1, 32))
    byte = np.clip(e8m0_up(blocks.amax() / MAX8), 1, 254).astype(np.uint8)
    return Result(q8(blocks.x / blocks.at_elements(np.fmax(power(byte), F(1e-12)))), byte)
