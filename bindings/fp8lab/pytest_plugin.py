# SPDX-License-Identifier: Apache-2.0
"""For test suites of kernels: assertions whose failure says what the kernel did.

pytest finds this plugin where fp8lab is installed. Tests take its fixtures ``assert_codes_equal`` and
``assert_matches``, or import these functions. Arrays may be of NumPy, ml_dtypes, torch, JAX and CuPy; those on a device
are copied to the host once. ``--fp8lab-te-device NAME`` emulates a device for Transformer Engine.

pytest imports this module in every run where fp8lab is installed. What compares is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fp8lab._assertions import assert_codes_equal, assert_matches

__all__ = ["assert_codes_equal", "assert_matches"]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'fp8lab.pytest_plugin' has no attribute {name!r}")
        from fp8lab import _assertions

        return getattr(_assertions, name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--fp8lab-te-device``: tests of Transformer Engine, or of code on it, run on the CPU with a device's bits."""
    parser.addoption(
        "--fp8lab-te-device",
        metavar="NAME",
        help="emulate this device for Transformer Engine in tests and what they start: h100, b200, ... (fp8lab.te)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Emulates the device before a test is imported. All code sees a GPU: test suites ask whether there is one."""
    device = early_config.known_args_namespace.fp8lab_te_device
    if device is None:
        return
    from fp8lab.te import activate
    from fp8lab.te.__main__ import inherit

    try:
        activate(device, pretend_cuda=True)
    except (RuntimeError, ValueError) as error:
        raise pytest.UsageError(f"--fp8lab-te-device: {error}") from error
    inherit(device, True)


@pytest.fixture(name="assert_codes_equal", scope="session")
def _assert_codes_equal() -> Callable[..., None]:
    """The function ``fp8lab.pytest_plugin.assert_codes_equal``."""
    from fp8lab import _assertions

    return _assertions.assert_codes_equal


@pytest.fixture(name="assert_matches", scope="session")
def _assert_matches() -> Callable[..., None]:
    """The function ``fp8lab.pytest_plugin.assert_matches``."""
    from fp8lab import _assertions

    return _assertions.assert_matches
