# SPDX-License-Identifier: Apache-2.0
"""Every message names the argument or option and what is allowed, in one line of at most 300 printable characters."""

import inspect
import os
import pathlib
import random
import sys

import fp8lab
import numpy as np
import pytest
from fp8lab import experiments
from sampled import EXHAUSTIVE
from small_calls import PUBLIC

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "hostile"))
import wrong_calls  # noqa: E402
import wrong_options  # noqa: E402

COMMAND = pathlib.Path(os.environ.get("FP8LAB", pathlib.Path(__file__).parents[2] / "build/release/bin/fp8lab"))
exhaustive = pytest.mark.skipif(not EXHAUSTIVE, reason="50,000 calls: ./dev test --exhaustive")
has_command = pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")


def bad_calls(count: int, seed: int) -> list[str]:
    choose = random.Random(seed)
    names = [name for name in wrong_calls.CALLS if wrong_calls.arguments_of(name)]
    found = []
    for _ in range(count):
        name = choose.choice(names)
        replaced = choose.sample(wrong_calls.arguments_of(name), 1)
        wrong = {argument: choose.choice(wrong_calls.HOSTILE)() for argument in replaced}
        bad = wrong_calls.complaint(name, wrong)
        if bad:
            found.append(f"{name}({replaced[0]}): {bad}")
    return found


def test_hostile_arguments_give_one_line_that_names_them():
    assert set(wrong_calls.public_names()) <= set(wrong_calls.CALLS)
    assert bad_calls(300, 20261122) == []


@pytest.mark.parametrize(
    ("name", "argument", "wrong", "told"),
    [
        ("quantize_both", "amax", ["x"], "amax must hold real numbers, not str32"),
        ("quantize_both", "scale", 10**300 * 10**300, "scale must hold real numbers, not object"),
        ("quantize_both", "scale_inv", float("nan"), "scale_inv must be positive and finite, not nan"),
        ("quantize", "scale_inv", 2.0, "scale and scale_inv are given to recipes whose scales are float32"),
        ("gemm", "tf32_rounding", "up", "tf32_rounding: unknown rounding 'up'; known: nearest_even"),
        (
            "diagnose_gemm",
            "expected",
            3,
            "expected must be a GemmRecipe, the name of one or of a model, an MmaModel, or arguments of gemm, not int",
        ),
        ("diagnose_gemm", "expected", "", "expected: unknown GEMM recipe or model ''; known: exact"),
        (
            "diagnose_gemm",
            "places",
            [[1], [1, 2]],
            "places must be an array, or nested lists of equal lengths, not list",
        ),
        (
            "diagnose",
            "tensor_scale",
            -1.0,
            "tensor_scale, the scale of the tensor, must be positive and finite, not -1",
        ),
        ("experiments.doctor_gemm", "expected_promote_k", 32, "expected: promote_k must be left out for exact"),
        ("experiments.cast", "x", pathlib.PurePath("a\0.npy"), "x must be a path without NUL"),
    ],
)
def test_a_message_says_which_argument_is_wrong_and_what_is_allowed(name, argument, wrong, told):
    function, right = wrong_calls.CALLS[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        function(**{**right, argument: wrong})
    assert told in str(caught.value)


def test_a_tensor_without_values_is_named():
    torch = pytest.importorskip("torch")
    for function in (fp8lab.gpu.amax, fp8lab.encode):
        with pytest.raises(
            TypeError,
            match="x must be a dense torch tensor with values, not float32 of layout torch.strided on device meta",
        ):
            function(torch.ones(2, 32, device="meta"), *["e4m3"] * (function is fp8lab.encode))


def test_a_path_that_is_no_text_is_told_in_escapes(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff"
    with open(path, "wb"):
        pass
    with pytest.raises(ValueError, match=r"\\xff is there already; resume goes on from it"):
        experiments.train(sizes=[4, 16, 2], recipes=["bf16_hopper"], batch=2, steps=2, checkpoint=path)


@exhaustive
def test_50000_wrong_calls(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["wrong_calls.py"])
    assert wrong_calls.main() == 0


@has_command
@pytest.mark.parametrize("calls", ["25", pytest.param("", marks=exhaustive)])
def test_hostile_options_give_one_line_that_names_them(monkeypatch, calls):
    monkeypatch.setattr(sys, "argv", ["wrong_options.py", str(COMMAND), *([calls] if calls else [])])
    assert wrong_options.main() == 0


def test_counts_may_be_written_with_an_exponent():
    expected = fp8lab.sample("normal", 1000, seed=100).tobytes()
    for size in (1e3, np.int16(1000), np.float32(1000), np.array(1000)):
        assert fp8lab.sample("normal", size, seed=1e2).tobytes() == expected
    for size in (1000.5, float("inf"), "1000", True, [1000]):
        with pytest.raises(TypeError, match=r"^size must be an int, not "):
            fp8lab.sample("normal", size, seed=1)


MATRIX = np.ones((32, 32), np.float32)
CODES = np.full((2, 32), 0x38, np.uint8)
THREADED = {
    "encode": lambda n: fp8lab.encode(MATRIX, "e4m3", threads=n),
    "decode": lambda n: fp8lab.decode(CODES, threads=n),
    "cast_to_representable": lambda n: fp8lab.cast_to_representable(MATRIX, "e4m3", threads=n),
    "chain_differences": lambda n: fp8lab.chain_differences(MATRIX, "e4m3", via="float16", threads=n),
    "quantize": lambda n: fp8lab.quantize(MATRIX, "te_mxfp8", threads=n),
    "dequantize": lambda n: fp8lab.dequantize(fp8lab.quantize(MATRIX, "te_mxfp8"), threads=n),
    "gemm": lambda n: fp8lab.gemm(CODES, CODES, model="exact", threads=n),
    **{
        name: lambda n, name=name: getattr(experiments, name)(threads=n)
        for name in PUBLIC
        if "threads" in inspect.signature(getattr(experiments, name)).parameters
    },
}


@pytest.mark.parametrize("name", THREADED)
def test_threads_have_one_limit_everywhere(name):
    for threads in (0, 1025):
        with pytest.raises(ValueError, match=rf"^threads must be from 1 to 1024, not {threads}$"):
            THREADED[name](threads)


def test_a_tensor_that_breaks_a_rule_is_named(tmp_path):
    np.save(tmp_path / "step1.npy", MATRIX)
    np.save(tmp_path / "step2.npy", MATRIX[:, :7])
    with pytest.raises(ValueError, match=r"step2\.npy.*: columns must be a multiple of 32"):
        experiments.scaling(file=[tmp_path / "step1.npy", tmp_path / "step2.npy"], recipes=["te_mxfp8"])
    with pytest.raises(ValueError, match=r"^x\[1\]: columns must be a multiple of 32"):
        experiments.scaling([MATRIX, MATRIX[:, :7]], recipes=["te_mxfp8"])


def test_an_exception_of_the_users_function_is_passed_on():
    class UserError(ValueError):
        pass

    def raises(_history):
        raise UserError("two\nlines")

    history = fp8lab.AmaxHistory(fp8lab.Delayed(amax_compute_algo=raises))
    with pytest.raises(UserError, match="two\nlines"):
        history.update_scale()
