# SPDX-License-Identifier: Apache-2.0
"""Prints a digest of casts, quantized tensors and products on every vector target: two builds print the same line."""

import hashlib
import itertools

import fp8lab
import numpy as np


def digest() -> str:
    """Of every format, profile, recipe and tensor core that takes these shapes, and on each target."""
    words = (np.arange(1 << 16, dtype=np.uint32) << 16) | 0x5A5A
    x = words.view(np.float32)
    normal = fp8lab.sample("normal", 256 * 256, seed=1).astype(np.float32).reshape(256, 256)
    sums = set()
    for target in fp8lab.targets():
        fp8lab.force_target(target)
        told = hashlib.sha256()
        for one, profile in itertools.product(fp8lab.formats(), fp8lab.profiles()):
            try:
                codes = fp8lab.encode(x, one, profile=profile)
            except ValueError:  # a profile of some formats alone
                continue
            told.update(codes.tobytes() + fp8lab.decode(codes, one).tobytes())
        for recipe, direction in itertools.product(fp8lab.recipes(), ("rowwise", "columnwise")):
            try:
                made = fp8lab.quantize(normal, recipe, direction=direction)
            except (TypeError, ValueError):  # a recipe that takes scales, or has no columns
                continue
            told.update(made.codes.tobytes() + made.scales().tobytes())
        codes = fp8lab.encode(normal, "e4m3")
        for model in fp8lab.models():
            try:
                told.update(fp8lab.gemm(codes, codes, model=model.name).tobytes())
            except (TypeError, ValueError):  # of other operands
                continue
        told.update(fp8lab.operators.softmax(normal).tobytes() + fp8lab.device_function("tanhf", x).tobytes())
        totals = fp8lab.errors(fp8lab.decode(codes, "e4m3"), normal)
        told.update(repr((totals.rms_error, totals.sqnr_db)).encode())
        sums.add(told.hexdigest())
    return " ".join(sorted(sums))


if __name__ == "__main__":
    print("digest", digest(), "on", len(fp8lab.targets()), "vector targets")
