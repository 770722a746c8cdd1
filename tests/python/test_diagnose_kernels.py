# SPDX-License-Identifier: Apache-2.0
"""What diagnose() says of NumPy kernels whose defects lie beside those of ``planted.DEFECTS``: how it says it, and where."""

import numpy as np
import pytest

import fp8lab

planted = pytest.importorskip("planted", reason="ml_dtypes is not installed")
F = np.float32
X = planted.X


@pytest.mark.parametrize(("scale", "departures"), [(np.abs(X).max(), ("stored_amax",)), (3.14159, ()), (0, ()), (np.nan, ())])
def test_a_single_scale_has_no_other_place(scale, departures):
    codes, _ = planted.tensorwise(X)
    found = fp8lab.diagnose(X, codes, np.array([scale], F), expected="te_current_scaling")
    first = found.explanations[0]
    assert first.base == "te_current_scaling" and first.departures == departures, found
    assert found.explained == bool(departures) and first.codes == 0, found
