# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import re
import subprocess
import sys

import jsonschema
import pytest
from command import PROGRAM, ROOT, prints, refuses, takes_long

SCHEMA = json.loads((ROOT / "bindings" / "fp8lab" / "ledger.schema.json").read_text())
#: A libcublasLt that computes on the host.
FAKE = PROGRAM.parent / "libfake_cublaslt.so"
SMALL = "gpu --host-team --parts casts,dots --inputs 4096 --dots 1000"


def test_the_host_team_writes_a_ledger_that_its_schema_describes(tmp_path):
    ledger = tmp_path / "folder" / "ledger.json"
    shown = prints(f"{SMALL} --ledger {ledger}", "The host team computes what fp8lab's models compute, as far as it was asked.")
    assert "this is no device, and no evidence" in " ".join(shown.split())
    content = json.loads(ledger.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    assert content["device"]["name"] == "host team" and len(content["casts"]) == 11 and len(content["dots"]) == 180
    skipped = [part["note"] for part in content["parts"] if part["status"] != "done"]
    assert len(skipped) == 8 and set(skipped) == {"this chip has no such instruction"}


@takes_long
def test_the_primer_and_a_library_are_in_the_ledger(tmp_path):
    asked = f"primer,products --cublaslt {FAKE}" if "FP8LAB_EXHAUSTIVE" in os.environ and FAKE.exists() else "primer"
    shown = prints(f"gpu --host-team --parts {asked} --ledger {tmp_path}/a.json", "the documentation: 36 of 36")
    content = json.loads((tmp_path / "a.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    assert len(content["primer"]) == 7 and "as far as it was asked." in shown
    if asked != "primer":
        found = [one["composition"] for one in content["products"]]
        assert [one["promote_k"] for one in found] == [0, 128, 0, 128, 0, 128]
        assert [one["split_k"] for one in found] == [1, 1, 1, 2, 1, 2]


def test_another_seed_gives_other_digests(tmp_path):
    digests = []
    for seed in (1, 1, 2):
        prints(f"gpu --host-team --parts dots --dots 500 --seed {seed} --ledger {tmp_path}/a.json", "computes")
        digests.append([one["digests"] for one in json.loads((tmp_path / "a.json").read_text())["dots"]])
    assert digests[0] == digests[1] != digests[2]


def test_what_is_skipped_is_named():
    prints("gpu --host-team --parts kernels", "kernels +skipped +[0-9]+ +the host team is no device +encode to e4m3, encode to e5m2 and more")


def test_a_task_that_takes_too_long_is_killed_and_told():
    prints("gpu --host-team --parts casts --seconds 0.0001", "casts +timed out +[0-9]+ +it was killed after 0.0001 s", status=3)


REFUSED = {
    "--parts cast": "unknown part 'cast'; known: kernels, .*",
    "--dots 0": "dots must be from 1 to 10\\^12, not 0",
    "--inputs 1": "inputs must be from 4 to 2\\^32, not 1",
    "--seconds 0": "seconds must be above 0 .*",
    "--ledger /dev/null/x.json": ".*/dev/null.*",
}


@pytest.mark.parametrize("line", REFUSED)
def test_bad_arguments_are_refused(line):
    refuses(f"gpu --host-team {line}", REFUSED[line])
