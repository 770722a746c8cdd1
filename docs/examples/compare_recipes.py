# SPDX-License-Identifier: Apache-2.0
"""Which recipe keeps most of a tensor? python compare_recipes.py [tensor.npy]; without a file, of normal draws with
outliers."""

import sys

import fp8lab
import numpy as np


def main() -> None:
    if len(sys.argv) > 1:
        x = np.load(sys.argv[1]).astype(np.float32)
    else:
        x = fp8lab.sample("normal", 256 * 512, seed=1).reshape(256, 512)
        x[::64] *= 100
    found = []
    for name in ("te_current_scaling", "te_mxfp8", "te_block_1x128", "te_nvfp4"):
        back = fp8lab.dequantize(fp8lab.quantize(x, name))
        found.append((fp8lab.errors(back, x).sqnr_db, name))
    for sqnr, name in sorted(found, reverse=True):
        print(f"{name:20} {sqnr:6.2f} dB")


main()
