# SPDX-License-Identifier: Apache-2.0
"""The plugin for pytest: what its assertions say of kernels with planted bugs. (A whole suite is
docs/examples/validate_kernel.)"""

import subprocess
import sys
import textwrap

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from fp8lab.pytest_plugin import assert_codes_equal, assert_matches

X = fp8lab.sample("normal", 128 * 256, seed=3).astype(np.float32).reshape(128, 256)


class _OnDevice:
    """An array on a device of a library that fp8lab does not know."""

    __cuda_array_interface__ = {"shape": (128, 256), "typestr": "|u1", "data": (0, False), "version": 3}  # noqa: RUF012


def _message(call):
    with pytest.raises(AssertionError) as failed:
        call()
    return str(failed.value)


def test_what_is_right_passes(assert_matches, assert_codes_equal):
    for name in ("te_mxfp8", "te_block_1x128", "torchao_rowwise", "te_current_scaling", "te_nvfp4", "ocp_mxfp4"):
        for direction in ("rowwise", "columnwise"):
            q = fp8lab.quantize(X, name, direction=direction)
            scales = q.scale_inv if q.scale_codes is None else q.scale_codes
            assert_matches(X, q.codes, name, scales, direction=direction)
            assert_codes_equal(q, q)
    mx = fp8lab.quantize(X, "te_mxfp8")
    assert_matches(
        X, mx.codes.view(ml_dtypes.float8_e4m3fn), "te_mxfp8", mx.scales("swizzled"), scale_layout="swizzled"
    )
    half = X.astype(ml_dtypes.bfloat16)
    assert_matches(half, fp8lab.quantize(half, "te_mxfp8").codes, "te_mxfp8")
    rows = fp8lab.quantize(X, "torchao_rowwise")
    assert_matches(X, rows.codes, "torchao_rowwise", rows.scale_inv.reshape(-1))


def test_scales_in_the_layout_of_tensor_cores_and_columnwise_output_in_either_order():
    """Swizzled bytes by hand: of row r and block c, byte r % 32 * 16 + r // 32 * 4 + c % 4 of the tile c // 4 of
    512."""
    for name in ("te_mxfp8", "te_nvfp4"):
        q = fp8lab.quantize(X, name)
        row, block = np.indices(q.scale_codes.shape)
        swizzled = np.empty(q.scale_codes.size, np.uint8)
        swizzled[block // 4 * 512 + row % 32 * 16 + row // 32 * 4 + block % 4] = q.scale_codes
        for shape in ((-1,), (128, -1), (1, -1, 32, 4, 4)):
            assert_matches(X, q.codes, name, swizzled.reshape(shape), scale_layout="swizzled")
        swizzled[17] ^= 1
        assert "Scales of the kernel" in _message(
            lambda: assert_matches(X, q.codes, name, swizzled.reshape(128, -1), scale_layout="swizzled")
        )
    for name in ("te_mxfp8", "te_block_1x128"):
        turned = fp8lab.quantize(np.ascontiguousarray(X.T), name)  # the same values with K along rows
        scales = turned.scale_inv if turned.scale_codes is None else turned.scale_codes
        assert_matches(X, turned.codes, name, scales, direction="columnwise", transposed=True)
        assert_matches(X, turned.codes.T, name, scales.T, direction="columnwise", transposed=False)
        wrong = turned.codes.copy()
        wrong[5, 3] ^= 1
        for stored, by, at in ((wrong, True, "(5, 3)"), (wrong.T, False, "(3, 5)")):
            told = _message(lambda: assert_matches(X, stored, name, direction="columnwise", transposed=by))
            assert at in told and "no diagnosis" not in told, told
    pairs = fp8lab.quantize(X, "te_nvfp4", direction="columnwise")
    assert_matches(
        X,
        pairs.codes,
        "te_nvfp4",
        pairs.scales("swizzled"),
        direction="columnwise",
        transposed=True,
        scale_layout="swizzled",
    )
    with pytest.raises(ValueError, match="columnwise codes of 4 bits are those of the transpose"):
        assert_matches(X, pairs.codes, "te_nvfp4", direction="columnwise", transposed=False)
    with pytest.raises(ValueError, match="transposed is for columnwise codes"):
        assert_matches(X, pairs.codes, "te_mxfp8", transposed=True)
    with pytest.raises(TypeError, match="transposed must be a bool"):
        assert_matches(X, pairs.codes, "te_mxfp8", transposed=1)


def test_leading_dimensions_and_a_number_for_the_scale_pass():
    x = X.reshape(4, 32, 256)
    for name in ("te_mxfp8", "torchao_rowwise"):
        q = fp8lab.quantize(x, name)
        scales = q.scale_inv if q.scale_codes is None else q.scale_codes
        assert_matches(x, q.codes.reshape(x.shape), name, scales.reshape(4, 32, -1))
        wrong = q.codes.copy()
        wrong[40, 7] ^= 1
        assert "(40, 7)" in _message(lambda: assert_matches(x, wrong.reshape(x.shape), name, scales.reshape(4, 32, -1)))
    whole = fp8lab.quantize(X, "te_current_scaling")
    assert_matches(X, whole.codes, "te_current_scaling", float(whole.scale_inv[0, 0]))


def test_kernels_that_are_given_their_scales():
    """Static FP8 as vLLM's kernel makes it, a product with the rounded inverse; and NVFP4 under a tensor scale of a
    calibration."""
    scale = np.float32(0.0123)
    inverse = np.float32(1) / scale
    codes = np.clip(X * inverse, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    assert_matches(X, codes, "vllm_static", scale, scale_inv=scale)
    other = _message(lambda: assert_matches(X, codes, "vllm_static", scale, scale_inv=np.float32(0.0124)))
    assert "given scales" in other.splitlines()[0] and "Correct: vllm_static" in other.splitlines()[0], other
    truncated = np.clip(X * inverse, -448, 448)
    truncated = fp8lab.encode(truncated, "e4m3", rounding="toward_zero")
    assert (
        "toward"
        in _message(lambda: assert_matches(X, truncated, "vllm_static", scale, scale_inv=scale)).splitlines()[0]
    )
    with pytest.raises(ValueError, match="scale"):
        assert_matches(X, codes, "te_mxfp8", scale_inv=scale)

    x = X.astype(ml_dtypes.bfloat16)
    wide, tensor = x.astype(np.float32).reshape(128, 16, 16), np.float32(300)
    blocks = (tensor * (np.abs(wide).max(-1) * np.float32(1 / 6)).astype(np.float32)).astype(ml_dtypes.float8_e4m3fn)
    factor = np.float32(1) / (blocks.astype(np.float32) * (np.float32(1) / tensor))
    fours = (wide * factor[..., None]).astype(ml_dtypes.float4_e2m1fn).view(np.uint8).reshape(128, 128, 2)
    pairs = fours[..., 0] | fours[..., 1] << 4
    assert_matches(x, pairs, "vllm_nvfp4", blocks, tensor_scale=float(tensor))
    assert "Different" in _message(lambda: assert_matches(x, pairs, "vllm_nvfp4", blocks, tensor_scale=301.0))


def test_the_message_begins_with_what_the_kernel_did():
    q = fp8lab.quantize(X, "te_mxfp8")
    swapped = _message(lambda: assert_matches(X, q.codes.T.copy().reshape(q.codes.shape), "te_mxfp8", q.scale_codes))
    assert "transpose" in swapped.splitlines()[0]
    truncated = fp8lab.encode(X * np.float32(64), "e4m3", rounding="toward_zero")
    right = fp8lab.encode(X * np.float32(64), "e4m3")
    message = _message(lambda: assert_codes_equal(truncated, right, format="e4m3", input=X))
    assert "Different: " in message and "in a" in message and "toward" in message.splitlines()[0], message


def test_a_wrong_scale_is_shown():
    q = fp8lab.quantize(X, "te_mxfp8")
    scales = q.scale_codes.copy()
    scales[5, 3] += 1
    message = _message(lambda: assert_matches(X, q.codes, "te_mxfp8", scales))
    assert "Scales of the kernel" in message and "(5, 3)" in message


def test_arrays_that_cannot_be_compared_are_errors():
    q = fp8lab.quantize(X, "te_mxfp8")
    for call, kind, message in (
        (lambda: assert_matches(X, q.codes[:64], "te_mxfp8"), ValueError, "codes must have shape"),
        (lambda: assert_matches(X, X, "te_mxfp8"), TypeError, "codes must be uint8"),
        (lambda: assert_matches(X, q.codes, "te_mxfp8", q.scale_codes[:3]), ValueError, "scales must have shape"),
        (lambda: assert_matches(X, q.codes, "te_mxfp8", X), TypeError, "scales must be uint8"),
        (lambda: assert_matches(X, q.codes, "te_mxfp9"), ValueError, "te_mxfp9"),
        (lambda: assert_matches(X, q.codes.T, "te_mxfp8"), ValueError, r"codes must have shape \(128, 256\)"),
        (lambda: assert_matches(X, q.codes.view(ml_dtypes.float8_e5m2), "te_mxfp8"), ValueError, "codes are e5m2 by their element type"),
        (lambda: assert_matches(X, _OnDevice(), "te_mxfp8"), TypeError, "_OnDevice cannot be copied to the host: it lies on a device"),
    ):  # fmt: skip
        with pytest.raises(kind, match=message):
            call()


def test_pytest_finds_the_plugin_and_shows_the_diagnosis(tmp_path):
    (tmp_path / "test_kernel.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            import fp8lab

            def kernel(x):  # a block of 32 at a time, as a program of Triton does it
                codes, scales = np.empty(x.shape, np.uint8), np.empty((x.shape[0], x.shape[1] // 32), np.uint8)
                for row in range(x.shape[0]):
                    for block in range(scales.shape[1]):
                        values = x[row, 32 * block : 32 * block + 32]
                        exponent = int(np.floor(np.log2(np.abs(values).max()))) - 8
                        scales[row, block] = exponent + 127
                        codes[row, 32 * block : 32 * block + 32] = fp8lab.encode(
                            values / np.float32(2.0**exponent), "e4m3", rounding="toward_zero")  # the bug
                return codes, scales

            def test_kernel(assert_matches):
                x = fp8lab.sample("normal", 32 * 256, seed=1).astype(np.float32).reshape(32, 256)
                codes, scales = kernel(x)
                assert_matches(x, codes, "ocp_mxfp8_e4m3", scales)
            """
        )
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    first = next(line for line in done.stdout.splitlines() if line.startswith("E "))
    assert "ocp_mxfp8_e4m3" in first and "toward" in first, done.stdout
