# SPDX-License-Identifier: Apache-2.0
"""One element of a kernel's output is not what Hopper's tensor core gives: what computed it?"""

import fp8lab
import numpy as np

rng = np.random.default_rng(1)
a = fp8lab.encode(rng.standard_normal((16, 256), np.float32), "e4m3")
b = fp8lab.encode(rng.standard_normal((16, 256), np.float32), "e4m3")

kernel = fp8lab.gemm(a, b, model="hopper_wgmma_fp8", promote_k=128)  # a kernel that promotes, unknown to whoever looks
expected = fp8lab.gemm(a, b, model="hopper_wgmma_fp8")
row, column = np.argwhere(kernel != expected)[0]
print(f"element ({row}, {column}): the kernel has {kernel[row, column]}, the model {expected[row, column]}")
print(fp8lab.trace_dot(a[row], b[column], model="hopper_wgmma_fp8", got=kernel[row, column]))
