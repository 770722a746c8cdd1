# SPDX-License-Identifier: Apache-2.0
"""The scales that two releases of Transformer Engine make of the same amaxes."""

import fp8lab
import numpy as np

trace = {
    "activation": np.float32([1, 1, 1, 30, 1, 1, 1, 1]),
    "gradient": np.float32([4, 2, 1, 0.5, 0.25, 0, 0.25, 0.5]),
}
result = fp8lab.experiments.delayed(trace, versions=["te_current", "te_0_1"], history=[4], algorithms=["max"])
print(result)
