# SPDX-License-Identifier: Apache-2.0
"""The file that older releases of Transformer Engine look for, and run, in place of the compiled extension's."""

import sys

from fp8lab.te.extension import make_extension

sys.modules[__name__] = make_extension(__name__)
