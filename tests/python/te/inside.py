# SPDX-License-Identifier: Apache-2.0
"""Runs the checks of a device in the process that emulates it, and prints what each found: a line of JSON a check."""

import json
import sys
import traceback

from checks import CHECKS


def main(device: str) -> None:
    for name, check in CHECKS[device].items():
        try:
            check()
            found = None
        except Exception:
            found = traceback.format_exc()
        print(json.dumps([name, found]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
