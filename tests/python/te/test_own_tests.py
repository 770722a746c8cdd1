# SPDX-License-Identifier: Apache-2.0
"""Transformer Engine's own tests give the outcomes that are kept: run from the checkout that FP8LAB_CHECKOUTS names."""

import os

import own_tests
import pytest
import repositories

KEPT = sorted(tuple(path.name.removesuffix(".json.gz").rsplit(".", 1)) for path in own_tests.VECTORS.glob("*.json.gz"))
#: A case may take this long, and a file of cases that are kept some minutes.
LONG = "FP8LAB_EXHAUSTIVE" in os.environ


def file_of(name: str) -> str:
    return name.replace(".", "/") + ".py"


@pytest.mark.parametrize("name,device", KEPT)
def test_its_own_tests_give_the_outcomes_that_are_kept(name, device):
    pytest.importorskip("torch")
    try:
        own_tests.tests_of_checkout()
    except repositories.NoCheckoutError as error:
        pytest.skip(str(error))
    if not LONG:
        pytest.skip("minutes: ./dev test --exhaustive")
    kept = own_tests.recorded(file_of(name), device)
    found = own_tests.outcomes(file_of(name), device, [], list(kept))
    different = {case: (kept[case], found.get(case)) for case in kept if found.get(case) != kept[case]}
    assert not different, f"{len(different)} cases, such as {next(iter(different.items()))}"


@pytest.mark.parametrize("name,device", KEPT)
def test_at_least_97_percent_of_what_applies_passes(name, device):
    kinds = [kind for kind, _ in own_tests.recorded(file_of(name), device).values()]
    applies = [kind for kind in kinds if kind != "not applicable"]
    assert applies.count("passed") >= 0.97 * len(applies)
