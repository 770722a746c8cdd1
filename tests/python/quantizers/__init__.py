# SPDX-License-Identifier: Apache-2.0
"""What other systems' quantizers compute: the real packages where they run on a CPU, ports of their kernels' formulas
elsewhere.

Nothing here uses fp8lab but ``table``, which compares.
"""
