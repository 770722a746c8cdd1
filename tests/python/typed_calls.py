# SPDX-License-Identifier: Apache-2.0
"""Calls as a type checker reads them; nobody runs them. It refuses the lines that end with ``# refused``, and no other."""

import fp8lab
import fp8lab.gpu
import fp8lab.operators
import numpy as np
from fp8lab.literals import FormatName, RoundingName

x = np.ones((64, 64), np.float32)
codes = np.zeros((64, 64), np.uint8)

fp8lab.encode(x, "e4m3", profile="cuda_satfinite", rounding="toward_zero")
fp8lab.encode(x, "e4m4")  # refused
fp8lab.encode(x, "e4m3", profile="cuda_satfinit")  # refused
fp8lab.encode(x, "e4m3", rounding="nearest")  # refused
fp8lab.encode(x, "e5m2", via="bf16")  # refused
fp8lab.encode(x, fp8lab.Format(3, 4, 3, specials="ieee"), profile=fp8lab.Profile(overflow="saturate"))
fp8lab.encode(x, fp8lab.Format(3, 4, 3, specials="iee"))  # refused
fp8lab.encode(x, "e4m3", profile=fp8lab.Profile(overflow="saturates"))  # refused
fp8lab.decode(codes, "e4m3fn")  # refused
fp8lab.histogram(x, bins="binades")  # refused
fp8lab.cast_bounds("e4m3", rounding="stochastic")  # refused


def own(kind: FormatName, rounding: RoundingName) -> object:
    return fp8lab.encode(x, kind, rounding=rounding)


def any_text(kind: str) -> object:
    return fp8lab.encode(x, kind)  # refused


q = fp8lab.quantize(x, "te_mxfp8", direction="columnwise", input_type="bfloat16")
fp8lab.quantize(x, "te_mxfp9")  # refused
fp8lab.quantize(x, "te_mxfp8", direction="row")  # refused
q.scales(layout="swizzled")
q.scales(layout="swizled")  # refused
fp8lab.quantize(x, fp8lab.MxBlock("e4m3", rule="te"))
fp8lab.quantize(x, fp8lab.MxBlock("e4m3", rule="t"))  # refused
fp8lab.Recipe(rounding="up", scale_type="e8m0")
fp8lab.Recipe(rounding="nearest_even")  # refused
fp8lab.Recipe(scale_type="e8m1")  # refused

fp8lab.mma("hopper_wgmma_fp8", codes, codes, format_a="e4m3", format_b="e5m2", zero_rule="floor")
fp8lab.mma("hopper_wgmma_fp9", codes, codes, format_a="e4m3", format_b="e5m2")  # refused
fp8lab.gemm(q, q, "te_hopper_fprop", layout="nt", out_dtype="bfloat16")
fp8lab.gemm(q, q, "hopper_wgmma_fp8", layout="nm")  # refused
fp8lab.gemm(q, q, "hopper_wgmma_fp8", out_dtype="bf16")  # refused
fp8lab.GemmRecipe("hopper_wgmma_fp8", order="pairwise")
fp8lab.gemm_activation("gelu", x)
fp8lab.gemm_activation("silu", x)  # refused
fp8lab.GemmRecipe("hopper_wgmma_fp8", order="pairs")  # refused
fp8lab.linear(x, x, recipe="te_delayed_hopper")
fp8lab.linear(x, x, recipe="te_delayed_hoper")  # refused
fp8lab.Delayed(amax_compute_algo="most_recent", version="te_1_6")
fp8lab.Delayed(amax_compute_algo="latest")  # refused
fp8lab.sample("normal", 8, seed=1)
fp8lab.sample("gauss", 8, seed=1)  # refused
fp8lab.device_function("expf", x, chip="sm_90")
fp8lab.device_function("exp", x)  # refused

fp8lab.operators.activation("gelu", x, out_dtype="float32", functions="hopper")
fp8lab.operators.activation("gelo", x)  # refused
fp8lab.operators.activation("gelu", x, functions="hoper")  # refused
fp8lab.gpu.gemm(codes, codes, "wgmma")  # refused

fp8lab.experiments.cast(size=8, formats="e4m3", roundings=("nearest_even", "upward"), distribution="normal")
fp8lab.experiments.cast(size=8, formats=["e4m3", "e4m4"])  # refused
fp8lab.experiments.cast(size=8, roundings="nearest")  # refused
fp8lab.experiments.dot(model="hopper")  # refused
fp8lab.experiments.scaling(recipes="te_mxfp9")  # refused
fp8lab.experiments.train(optimizer="adamw2")  # refused
