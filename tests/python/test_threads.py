# SPDX-License-Identifier: Apache-2.0
"""``threads``: left out, it means all cores everywhere, but for calls of microseconds; results are the same."""

import inspect
import os

import fp8lab
import numpy as np
import pytest
from fp8lab import _arrays

CORES = min(len(os.sched_getaffinity(0)), _arrays.MOST_THREADS)


def functions():
    for owner in (fp8lab, fp8lab.operators, fp8lab.experiments, fp8lab.gpu):
        for name in owner.__all__:
            value = getattr(owner, name)
            kinds = [value.__init__, *vars(value).values()] if inspect.isclass(value) else [value]
            for one in kinds:
                if (
                    callable(one)
                    and inspect.isfunction(inspect.unwrap(one))
                    and "threads" in inspect.signature(one).parameters
                ):
                    yield f"{owner.__name__}.{name}", value, one


def test_threads_may_be_left_out_everywhere():
    found = list(functions())
    assert len(found) > 60
    for name, _, function in found:
        assert inspect.signature(function).parameters["threads"].default is None, name


def test_docstrings_say_what_that_means():
    for name, owner, function in functions():
        text = " ".join((function.__doc__ or owner.__doc__ or "").split())
        if "threads : int" in text and not name.startswith("fp8lab.gpu"):
            assert "All cores if left out" in text, name


@pytest.mark.parametrize(
    ("call", "elements"),
    [
        (lambda x: fp8lab.encode(x, "e4m3"), 1),
        (lambda x: fp8lab.decode(fp8lab.encode(x, "e4m3", threads=1), "e4m3"), 1),
        (lambda x: fp8lab.quantize(x.reshape(-1, 16), "te_current_scaling"), 1),
        (
            lambda x: fp8lab.gemm(*[fp8lab.encode(x, "e4m3", threads=1).reshape(16, -1)] * 2, model="hopper_wgmma_fp8"),
            16,
        ),
        (lambda x: fp8lab.operators.softmax(x.reshape(-1, 16)), 1),
    ],
    ids=["encode", "decode", "quantize", "gemm", "softmax"],
)
def test_a_call_of_microseconds_stays_on_one_thread(monkeypatch, call, elements):
    asked = []
    monkeypatch.setattr(_arrays.os, "sched_getaffinity", lambda pid: asked.append(pid) or range(CORES))
    call(np.ones(64, np.float32) if elements == 1 else np.ones(64 * 16, np.float32))
    assert not asked
    call(np.ones(2**16, np.float32))
    assert asked


def test_left_out_and_told_give_the_same_bytes():
    x = fp8lab.sample("normal", 2**16, seed=1).astype(np.float32).reshape(256, 256)
    for threads in (1, 2, CORES):
        assert np.array_equal(fp8lab.encode(x, "e4m3"), fp8lab.encode(x, "e4m3", threads=threads))
        assert fp8lab.quantize(x, "te_mxfp8") == fp8lab.quantize(x, "te_mxfp8", threads=threads)
    told = [
        fp8lab.experiments.accumulate(k=[64], rows=8, columns=8, threads=threads).to_json()
        for threads in (None, 1, CORES)
    ]
    assert len({text.split('"sections"')[1] for text in told}) == 1
    with pytest.raises(ValueError, match="threads must be from 1 to 1024, not 0"):
        fp8lab.encode(x, "e4m3", threads=0)
