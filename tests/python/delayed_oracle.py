# SPDX-License-Identifier: Apache-2.0
"""The scales of delayed scaling, recomputed with NumPy's float32 operations, from the formulas."""

import math

import numpy as np

MAX = np.float32(np.finfo(np.float32).max)


def usable(amax):
    return np.isfinite(amax) and amax > 0


def margin_first(fp8_max, margin, amax, old):
    return np.float32(fp8_max * np.float32(2.0**-margin)) / amax if usable(amax) else old


def by_torch(number, amax):
    """What PyTorch makes of ``number / amax``, a number and a tensor."""
    return number.dtype.type(1) / amax * number


def margin_last(fp8_max, margin, amax, old):
    return by_torch(fp8_max, amax) / np.float32(2.0**margin) if usable(amax) else old


def clamped(formula):
    def scale_of(fp8_max, margin, amax, old):
        scale = formula(fp8_max, margin, amax, old)
        return MAX if np.isinf(scale) else scale

    return scale_of


def power_of_two(fp8_max, margin, amax, old):
    quotient = by_torch(fp8_max, amax)
    exponent = np.float32(np.nan)
    if np.isfinite(quotient) and quotient > 0:
        exponent = np.floor(np.float32(math.log2(float(quotient)))) - margin
    elif quotient == 0 or np.isinf(quotient):
        exponent = np.float32(-np.inf if quotient == 0 else np.inf)
    scale = np.exp2(np.float64(np.abs(exponent))).astype(np.float32) if usable(amax) else old
    return np.float32(1) / scale if exponent < 0 else scale


def te_fused(amaxes, length, algorithm, scale_of, zero_rolls):
    """The scale of each step's cast; history[1:] are the amaxes of earlier steps, the oldest first."""
    history, scale, used = np.zeros(length, np.float32), np.float32(1), []
    for amax in amaxes:
        used.append(scale)
        if amax != 0 or zero_rolls:
            window = np.append(history[1:], amax)
            largest = np.fmax.reduce(window, initial=np.float32(0))
            history = window.copy()
            history[0] = 0
            scale = scale_of(largest if algorithm == "max" else amax, scale)
    return np.array([*used, scale], np.float32)


def te_unfused(amaxes, length, algorithm, scale_of):
    history, scale, used = np.zeros(length, np.float32), np.float32(1), []
    for amax in amaxes:
        used.append(scale)
        history[0] = amax
        scale = scale_of(np.max(history) if algorithm == "max" else amax, scale)  # np.max gives NaN where one is
        history = np.roll(history, -1)
        history[0] = 0
    return np.array([*used, scale], np.float32)


def ms_amp(amaxes, length, scale_of, keeps_bad):
    window, scale, counter, used = np.zeros(length, np.float32), np.float32(1), 0, []
    for amax in amaxes:
        if length == 1 or counter < length:
            window[0] = amax
            scale = scale_of(amax, scale)
        else:
            window[0] = np.fmax(window[0], amax)
        used.append(scale)
        bad = not np.isfinite(window[0])
        if bad and not keeps_bad:
            window[0] = 0
        if not (bad and keeps_bad):
            scale = scale_of(window.max(), scale)
        window = np.roll(window, 1)
        window[0] = 0
        counter = 0 if bad else counter + 1
    return np.array([*used, scale], np.float32)


def torchao(amaxes, length, fp8_max, real, largest):
    def scale_of(amax):
        amax = amax if np.isnan(amax) else max(real(amax), real(1e-12))
        return np.minimum(np.float32(by_torch(real(fp8_max), amax)), np.float32(largest))

    scales = [scale_of(np.max(amaxes[[0, i]]) if length > 1 else amaxes[i]) for i in range(len(amaxes))]
    return np.array([scales[0], *scales], np.float32)


def expected(version, amaxes, length, algorithm, margin, fp8_max):
    fp8_max = np.float32(fp8_max)

    def by(formula):
        return lambda amax, old: formula(fp8_max, margin, amax, old)

    with np.errstate(all="ignore"):
        match version:
            case "te_0_1" | "te_0_5":
                return te_unfused(amaxes, length, algorithm, by(power_of_two))
            case "te_1_4":
                return te_fused(amaxes, length, algorithm, by(margin_first), True)
            case "te_1_6":
                return te_fused(amaxes, length, algorithm, by(margin_first), False)
            case "te_1_7" | "te_current":
                return te_fused(amaxes, length, algorithm, by(clamped(margin_first)), False)
            case "te_1_7_single" | "te_current_single":
                return te_fused(amaxes, length, algorithm, by(clamped(margin_first)), True)
            case "te_0_13" | "te_1_6_unfused":
                return te_unfused(amaxes, length, algorithm, by(margin_last))
            case "te_1_7_unfused" | "te_current_unfused":
                return te_unfused(amaxes, length, algorithm, by(clamped(margin_last)))
            case "ms_amp" | "ms_amp_0_1":
                return ms_amp(
                    amaxes, length, lambda amax, old: power_of_two(fp8_max, 0, amax, old), version == "ms_amp_0_1"
                )
            case "torchao_0_4" | "torchao_0_4_float16":
                return torchao(amaxes, length, fp8_max, np.float32, 65504 if "float16" in version else np.inf)
            case "torchao" | "torchao_0_6_float16":
                return torchao(amaxes, length, fp8_max, np.float64, 65504 if "float16" in version else np.inf)
    raise ValueError(version)
