# SPDX-License-Identifier: Apache-2.0
"""Transformer Engine's own tests give the outcomes that are kept: run from the checkout that FP8LAB_CHECKOUTS names."""

from pathlib import Path

import own_tests
import pytest
import repositories
from installed import without_transformer_engine
from sampled import EXHAUSTIVE

PAGE = Path(__file__).parents[3] / "docs" / "transformer_engine.md"


@without_transformer_engine
@pytest.mark.parametrize("file,device", own_tests.kept())
def test_its_own_tests_give_the_outcomes_that_are_kept(file, device):
    try:
        own_tests.tests_of_checkout()
    except repositories.NoCheckoutError as error:
        pytest.skip(str(error))
    if not EXHAUSTIVE:
        pytest.skip("minutes: ./dev test --exhaustive")
    kept = own_tests.recorded(file, device)
    found = own_tests.outcomes(file, device, [], list(kept))
    different = {case: (kept[case], found.get(case)) for case in kept if found.get(case, [""])[0] != kept[case][0]}
    assert not different, f"{len(different)} cases, such as {next(iter(different.items()))}"


def test_at_least_97_percent_of_what_applies_passes():
    """Of all files together; what needs a CUDA graph does not apply."""
    cases = [case for file, device in own_tests.kept() for case in own_tests.recorded(file, device).values()]
    applies = [kind for kind, why in cases if kind != "not applicable" and not own_tests.needs_cuda_graph(why)]
    assert len(applies) > 1000 and applies.count("passed") >= 0.97 * len(applies)


def test_the_page_has_the_table_of_the_outcomes():
    assert "\n".join(own_tests.table()) in PAGE.read_text()
