# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every call that may take long within half a second, and leaves states as they were."""

import pathlib
import tempfile

import fp8lab
import numpy as np
import pytest
from conftest import interrupted_after
from fp8lab import experiments
from sampled import EXHAUSTIVE

exhaustive = pytest.mark.skipif(not EXHAUSTIVE, reason="every call: ./dev test --exhaustive")


def zeros(dtype: str, *shape: int) -> np.ndarray:
    """Memory that is there only when it is touched: calls end long before."""
    return np.zeros(shape, dtype)


def strided(dtype: str, *shape: int) -> np.ndarray:
    """Elements that have to be copied before anything else, from memory of 4 KiB."""
    return np.broadcast_to(np.zeros(shape[-1:], dtype), shape)


def quantize_model(layout: str) -> None:
    """A weight of zeros in a sparse file; nothing may be left."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        np.lib.format.open_memmap(directory / "w.weight.npy", "w+", np.float32, (2**12, 2**13)).flush()
        try:
            experiments.quantize(model=directory / "w.weight.npy", into=directory / "out", layout=layout)
        finally:
            assert [path.name for path in directory.iterdir()] == ["w.weight.npy"]


QUICK = {
    "experiments.quantize": lambda: quantize_model("comfy_fp8"),
    "encode on threads": lambda: fp8lab.encode(zeros("float64", 2**29), "e4m3", threads=2),
    "encode a copy": lambda: fp8lab.encode(strided("float32", 2**23, 128), "e4m3"),
    "sample": lambda: fp8lab.sample("lognormal", 2**28, seed=1),
    "normal_grid": lambda: fp8lab.normal_grid(2**28),
    "torch_cuda_normal": lambda: fp8lab.torch_cuda_normal((2**14, 2**15), seed=1),
    "errors": lambda: fp8lab.errors(zeros("float64", 2**29), zeros("float64", 2**29)),
    "quantize": lambda: fp8lab.quantize(zeros("float32", 2**14, 2**15), "te_nvfp4_rht", direction="columnwise"),
    "gemm, exact": lambda: fp8lab.gemm(zeros("uint8", 64, 2**20), zeros("uint8", 64, 2**20), model="exact"),
    "scaling": lambda: experiments.scaling([zeros("float32", 2**14, 2**14)] * 2),
}
LONG = {
    "encode float32": lambda: fp8lab.encode(zeros("float32", 2**32), "e4m3"),
    "encode bfloat16 words": lambda: fp8lab.encode(zeros("float16", 2**32), "e5m2"),
    "encode, stochastic": lambda: fp8lab.encode(
        zeros("float64", 2**28), "e4m3", rounding="stochastic", random_bits=zeros("uint8", 2**28)
    ),
    "encode, stochastic float32": lambda: fp8lab.encode(
        zeros("float32", 2**31), "e4m3", rounding="stochastic", random_bits=zeros("uint8", 2**31), threads=2
    ),
    "encode by way of": lambda: fp8lab.encode(zeros("float64", 2**28), "e4m3", via="e5m2"),
    "encode by way of halves": lambda: fp8lab.encode(zeros("float32", 2**31), "e4m3", via="float16"),
    "encode scalar": lambda: fp8lab.encode(zeros("float32", 2**30), "e4m3", rounding="to_odd"),
    "decode": lambda: fp8lab.decode(zeros("uint8", 2**31)),
    "decode words": lambda: fp8lab.decode(zeros("uint16", 2**31), "float16"),
    "cast_to_representable": lambda: fp8lab.cast_to_representable(zeros("float64", 2**28), "e4m3"),
    "cast_to_representable float32": lambda: fp8lab.cast_to_representable(zeros("float32", 2**32), "e4m3", threads=2),
    "chain_differences": lambda: fp8lab.chain_differences(zeros("float64", 2**28), "e4m3", via="float16"),
    "pack_pairs": lambda: fp8lab.pack_pairs(zeros("uint8", 2**34)),
    "pack_pairs, odd": lambda: fp8lab.pack_pairs(zeros("uint8", 3, 2**32 - 1)),
    "unpack_pairs": lambda: fp8lab.unpack_pairs(zeros("uint8", 2**33)),
    "unpack_pairs, odd": lambda: fp8lab.unpack_pairs(zeros("uint8", 2**33), 2**34 - 1),
    "torch_cpu_uniform": lambda: fp8lab.torch_cpu_uniform((2**16, 2**14), seed=1),
    "torch_cuda_uniform": lambda: fp8lab.torch_cuda_uniform(2**29, seed=1),
    "sample student_t": lambda: fp8lab.sample("student_t", 2**30, seed=1),
    "absolute_error": lambda: fp8lab.absolute_error(zeros("float64", 2**30), zeros("float64", 2**30)),
    "relative_error": lambda: fp8lab.relative_error(zeros("float32", 2**30), zeros("float32", 2**30)),
    "ulp_error": lambda: fp8lab.ulp_error(zeros("float64", 2**29), zeros("float64", 2**29), format="e4m3"),
    "histogram": lambda: fp8lab.histogram(zeros("float64", 2**29)),
    "histogram of float32": lambda: fp8lab.histogram(zeros("float32", 2**30), "linear", low=0, high=1),
    "histogram of casts": lambda: fp8lab.histogram(zeros("float64", 2**28), cast_input=zeros("float32", 2**28)),
    "quantize both": lambda: fp8lab.quantize_both(zeros("float32", 2**15, 2**16), "te_mxfp8", threads=2),
    "quantize float16": lambda: fp8lab.quantize(zeros("float16", 2**15, 2**16), "te_block_1x128"),
    "quantize rounded": lambda: fp8lab.quantize(zeros("float32", 2**15, 2**15), "te_current_scaling", input_type="bfloat16"),
    "quantize stochastically": lambda: fp8lab.quantize(
        zeros("float32", 2**14, 2**14),
        fp8lab.NvFp4(stochastic_rounding=True),
        random_bits=zeros("uint8", 2**28),
    ),
    "quantize rows": lambda: fp8lab.quantize(zeros("float32", 2**15, 2**16), "torchao_rowwise"),
    "swizzle_scales": lambda: fp8lab.swizzle_scales(zeros("uint8", 2**20, 2**8)),
    "pad_scales": lambda: fp8lab.pad_scales(zeros("uint8", 2**20, 2**8)),
    "unswizzle_scales": lambda: fp8lab.unswizzle_scales(zeros("uint8", 2**28), (2**20, 2**8)),
    "unpad_scales": lambda: fp8lab.unpad_scales(zeros("uint8", 2**28), (2**20, 2**8)),
    "mma": lambda: fp8lab.mma("hopper_wgmma_fp8", zeros("uint8", 2**26, 32), zeros("uint8", 2**26, 32)),
    "mma, exact": lambda: fp8lab.mma("exact", zeros("uint8", 4, 2**24), zeros("uint8", 4, 2**24)),
    "mma, long exact": lambda: fp8lab.mma("exact", zeros("uint8", 1, 2**27), zeros("uint8", 1, 2**27)),
    "gemm": lambda: fp8lab.gemm(zeros("uint8", 512, 2**20), zeros("uint8", 512, 2**20), model="hopper_wgmma_fp8"),
    "gemm on threads": lambda: fp8lab.gemm(
        zeros("uint8", 2**13, 2**13), zeros("uint8", 2**13, 2**13), model="hopper_wgmma_fp8", threads=2
    ),
    "gemm scalar": lambda: fp8lab.gemm(
        zeros("uint8", 64, 2**18), zeros("uint8", 64, 2**18), model="ada_mma_fp8_f16", promote_k=64, zero_rule="count_zero_factors"
    ),
    "gemm, exact and wide": lambda: fp8lab.gemm(zeros("uint8", 2**14, 2**10), zeros("uint8", 2**14, 2**10), model="exact"),
    "gemm of halves": lambda: fp8lab.gemm(
        zeros("float16", 2**12, 2**13), zeros("float16", 2**12, 2**13), model="hopper_fp16"
    ),
    "trace_dot": lambda: fp8lab.trace_dot(
        np.full(2**16, 0x38, np.uint8), np.full(2**16, 0x38, np.uint8), model="hopper_wgmma_fp8", got=1.0
    ),
    "primer": lambda: experiments.primer(in_features=4096, out_features=4096, rows=4096),
    "primer on threads": lambda: experiments.primer(in_features=2048, out_features=4096, rows=4096, threads=2),
    "cast": lambda: experiments.cast(size=2**30),
    "cast on threads": lambda: experiments.cast(zeros("float64", 2**28), threads=2),
    "cast of a grid": lambda: experiments.cast(grid=True, size=2**26),
    "cast with best scale": lambda: experiments.cast(distribution="lognormal", size=2**28, best_scale=True, exact=True),
    "double_rounding": lambda: experiments.double_rounding(low=2.0**-20, high=2.0**20),
    "double_rounding, drawn": lambda: experiments.double_rounding(uniform=(-1, 1), size=2**32, threads=2),
    "accumulate": lambda: experiments.accumulate(k=2**20, rows=100, columns=100),
    "accumulate many": lambda: experiments.accumulate(k=1, rows=1024, columns=1024, promote_k=0),
    "delayed": lambda: experiments.delayed({"x": np.ones(2**20, np.float32)}, history=2**20),
    "scaling, drawn": lambda: experiments.scaling(rows=8192, columns=8192, threads=2),
    "scaling, delayed alone": lambda: experiments.scaling(rows=8192, columns=8192, recipes=["te_mxfp8"], bfloat16=True),
    "train": lambda: experiments.train(sizes=[2**12, 2**12, 2], recipes=["te_delayed_hopper"], batch=2**10),
    "train on threads": lambda: experiments.train(sizes=[512, 512, 16], batch=512, threads=2),
    "transpose": lambda: experiments.transpose(zeros("float32", 2**13, 2**14)),
    "transpose, drawn": lambda: experiments.transpose(rows=2**13, columns=2**13, threads=2),
    "verify_casts": lambda: experiments.verify_casts(all=True),
    "verify_casts on threads": lambda: experiments.verify_casts(all=True, formats=["bfloat16"], threads=2),
    "verify_tensor_cores": lambda: experiments.verify_tensor_cores(dots=10**7),
    "verify_tensor_cores on threads": lambda: experiments.verify_tensor_cores(dots=10**7, models=["exact"], threads=2),
}  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_ctrl_c_ends_a_call(name):
    with interrupted_after(0.1):
        QUICK[name]()


@exhaustive
@pytest.mark.parametrize("after", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_ends_every_call(name, after):
    with interrupted_after(after):
        while True:  # some are done sooner where memory is fast
            LONG[name]()


def test_an_interrupted_cast_leaves_the_history():
    history = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=4))
    history.record_amax(3.0)
    before = history.amaxes.tobytes(), history.scale, history.scale_inv, history.position
    with interrupted_after(0.1):
        fp8lab.quantize_both(zeros("float32", 2**15, 2**16), history)
    assert (history.amaxes.tobytes(), history.scale, history.scale_inv, history.position) == before


def test_ctrl_c_waits_for_no_other_thread():
    # Each of the threads ends the piece that it is in: 8 ms of work were the most of one thread in five runs on an
    # EPYC, and 0.36 s of 64 together.
    with interrupted_after(0.1, within=0.5 + 64 * 0.008):
        fp8lab.encode(zeros("float64", 2**28), "e4m3", threads=64)
    assert fp8lab.encode(np.float32([1, 2]), "e4m3", threads=64).tolist() == [0x38, 0x40]  # and the next call works
