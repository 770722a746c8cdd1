# SPDX-License-Identifier: Apache-2.0
"""``python -m fp8lab`` is the command line."""

import sys

from fp8lab._command_line import main

if __name__ == "__main__":
    sys.exit(main())
