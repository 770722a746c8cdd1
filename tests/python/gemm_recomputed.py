# SPDX-License-Identifier: Apache-2.0
"""The GEMM doctor, held to what it finds: whatever explains an output gives it again, bit for bit."""

import fp8lab
import numpy as np


def words(x, format):
    """Words of an output, with one for every NaN."""
    x = np.asarray(x)
    own = x.view(f"u{x.dtype.itemsize}")
    is_nan = np.isnan(fp8lab.decode(own, format) if format is not None else x.astype(np.float32))
    return np.where(is_nan, own.dtype.type(~np.uint64(0) & np.uint64(2 ** (8 * x.dtype.itemsize - 1) - 1)), own)


def diagnosed(a, b, out, *, expected=None, most_products=2**27, places=None, out_format=None, **operands):
    """``diagnose_gemm``; what explains all of a whole output is recomputed, by ``output`` with the departures, and by
    ``gemm`` with the recipe where there are none."""
    found = fp8lab.diagnose_gemm(
        a, b, out, expected=expected, most_products=most_products, places=places, out_format=out_format, **operands
    )
    first = found.explanations[0]
    if not found.explained or places is not None or first.checked != found.elements:
        return found
    codes = np.asarray(out).dtype.itemsize == 1
    format = out_format or (np.asarray(out).dtype.name.replace("float8_", "")[:4] if codes else None)
    there = words(out, format)
    assert np.array_equal(words(first.output(a, b, **operands), format), there), found
    if not first.departures:
        assert np.array_equal(words(fp8lab.gemm(a, b, first.recipe, **addends(operands)), format), there), found
    return found


def addends(operands):
    """Arguments of ``diagnose_gemm`` as ``gemm`` takes them: c and the bias in float32."""
    return {
        name: np.asarray(value).astype(np.float32) if name in ("c", "bias") and value is not None else value
        for name, value in operands.items()
    }


def departure(found):
    """The name of the first explanation's departure, or ``none``."""
    first = found.explanations[0]
    return first.departures[0].name if first.departures else "none"


def told(recipe):
    """How the output is rounded, where that is not once to the nearest."""
    how = {} if recipe.via_type == "as_given" else {"via_type": recipe.via_type}
    if recipe.cast is not None:
        named = {one.name: one for one in fp8lab.profiles()}
        how["rounding"] = named.get(recipe.cast, recipe.cast).rounding
    return how
