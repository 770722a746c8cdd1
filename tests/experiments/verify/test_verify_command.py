# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from command import ROOT, column, prints, prints_nothing, refuses

VECTORS = ROOT / "tests" / "vectors" / "mma_sim.json"
ONE_DOT = "verify tensor-cores --models hopper_wgmma_fp8 --dots 1"


def test_casts_are_verified_and_the_result_says_so(tmp_path):
    line = f"verify casts --formats e4m3 --roundings nearest_even --chunks 1 --out {tmp_path}/casts"
    prints(line, r"e4m3 +ml_dtypes +nearest_even +0 .*\n0 mismatches: verified\n")
    assert json.loads((tmp_path / "casts" / "verify_casts.json").read_text())["passed"] is True


def test_quiet_prints_nothing():
    prints_nothing("verify casts --quiet --formats e2m1 --profiles ieee --roundings to_odd --chunks 1")


def test_recorded_words_of_tensor_cores_are_compared(tmp_path):
    line = f"verify tensor-cores --models blackwell_nvf4 --dots 1 --vectors {VECTORS} --out {tmp_path}/cores"
    prints(line, r"blackwell_nvf4 +vectors +2 +160 +0\n.* 0 mismatches: verified\n")
    assert column(tmp_path / "cores" / "verify_tensor_cores.json", "rows", "compared")[1] == 160


@pytest.fixture
def wrong_word(tmp_path):
    """The recorded words with one changed."""
    path = tmp_path / "wrong.json"
    path.write_text(VECTORS.read_text().replace("4743ec00", "4743e800"))
    return path


def test_a_wrong_word_is_status_3_and_told_with_both_words(wrong_word):
    told = (
        "sm90a.wgmma.k32.f32.e4m3.e4m3: 1 wrong; first dot product 0 gives 4743ec00, expected 4743e800\n.*NOT verified"
    )
    prints(f"{ONE_DOT} --vectors {wrong_word}", told, status=3)


def test_quiet_tells_a_wrong_word_by_the_status_alone(wrong_word):
    prints_nothing(f"{ONE_DOT} --quiet --vectors {wrong_word}", status=3)


def test_json_that_is_cut_off_is_refused(tmp_path):
    (tmp_path / "cut.json").write_text(VECTORS.read_text()[:100000])
    refuses(
        f"verify tensor-cores --vectors {tmp_path}/cut.json", "cut.json: it is not JSON, or a part of it is missing"
    )


def test_vectors_are_no_rows():
    told = "mma_sim.json: its JSON does not have the form of rows measured on GPUs"
    refuses(f"verify tensor-cores --rows {VECTORS}", told)


REFUSED = {
    "casts --formats e4m4": "unknown format 'e4m4'; known: e4m3, .*",
    "casts --profiles x": "unknown profile 'x'; known: .*",
    "casts --roundings stochastic": "rounding 'stochastic' depends on random bits.*",
    "casts --chunks 0": "chunks must be from 1 to 4096, not 0",
    "tensor-cores --rows no-such-file": "no-such-file: there is no such file",
    "tensor-cores --models x": "unknown model 'x'; known: .*",
    "tensor-cores --dots 0": r"dots must be from 1 to 2\^40, not 0",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"verify {options}", REFUSED[options])
