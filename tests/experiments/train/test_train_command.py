# SPDX-License-Identifier: Apache-2.0
import json
import re
import signal
import subprocess
import time

import pytest
from command import PROGRAM, arguments_of, column, keeps_the_old_result, prints, prints_nothing, refuses, takes_long

SMALL = "train --sizes 32,64,64,8 --batch 32 --loss mse --learning-rate 0.005"


def results(path):
    """The sections of a document: all but its arguments and when it was made."""
    return json.loads(path.read_text())["sections"]


def test_a_jump_is_told_with_its_cause(tmp_path):
    line = f"{SMALL} --steps 330 --error-steps 5 --jump-step 300 --recipe te_delayed_hopper,te_current_scaling_hopper --out {tmp_path}/out"
    prints(
        line,
        r"te_delayed_hopper diverged at step 300: .*First, at step 300, 100 % of x of layer 1 were saturated: amax 1.8\d+e\+06, scale 25\d"
        r".*flushed to zero +301 +1 +x +100.00 %.*by binade",
    )
    assert column(tmp_path / "out" / "train.json", "runs", "diverged_at") == [None, 300, None]
    assert len(column(tmp_path / "out" / "train.json", "losses", "te_delayed_hopper")) == 330


def test_the_report_fits_on_two_screens():
    text = prints("train --steps 10 --error-steps 1,10", "No run diverged")
    assert len(text.splitlines()) <= 80 and max(map(len, text.splitlines())) <= 100


@takes_long
def test_ctrl_c_saves_the_state_and_resume_goes_on_to_the_same_bits(tmp_path):
    line = "train --recipe te_delayed_hopper --steps 24 --error-steps 3"
    prints_nothing(f"{line} --quiet --out {tmp_path}/whole")
    state = tmp_path / "state"
    process = subprocess.Popen(
        [str(PROGRAM), *arguments_of(f"{line} --checkpoint {state}")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not state.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.15)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (-signal.SIGINT, b"")
    told = rf"fp8lab: stopped after step \d+ of 24, which {state} has; the same command goes on with --resume\n"
    assert re.fullmatch(told, stderr.decode()), stderr
    prints_nothing(f"{line} --checkpoint {state} --resume --quiet --out {tmp_path}/resumed")
    assert results(tmp_path / "resumed" / "train.json") == results(tmp_path / "whole" / "train.json")
    refuses(f"{line} --checkpoint {state}", "checkpoint: .*state is there already; resume goes on from it")
    refuses(f"{line} --checkpoint {state} --resume --seed 2", "resume: .*state is of another seed: 1, not 2")
    state.write_bytes(state.read_bytes()[:-1])
    refuses(f"{line} --checkpoint {state} --resume", "cannot read .*state: it is cut or damaged")


def test_it_refuses_a_size_that_a_recipe_does_not_take():
    message = "sizes, batch: deepseek_v3_hopper does not take them: layer 1: .*columns.* must be a multiple of 128.*"
    refuses("train --recipe deepseek_v3_hopper", message)


REFUSED = {
    "--sizes 64": "the number of sizes must be from 2 to 64, not 1",
    "--sizes 64,32,40": "the first of sizes must be at least twice the last.*64 is less than 2 \\* 40",
    "--steps 0": "steps must be from 1 to 1000000, not 0",
    "--recipe te_mxfp9": "--recipe: unknown linear recipe 'te_mxfp9'; .*",
    "--loss hinge": "--loss: unknown loss 'hinge'; known: cross_entropy, mse",
    "--optimizer lion": "--optimizer: unknown optimizer 'lion'; known: adam, sgd",
    "--jump-factor 2": "--jump-factor can be given only with --jump-step",
    "--resume": "--resume can be given only with --checkpoint",
    "--checkpoint none --resume": "cannot read none: there is no such file",
    "--checkpoint /none/here": "cannot write /none/here: No such file or directory",
    "--delayed-version ms_amp --margin 2": ".*margin.*",
}


def test_sizes_that_a_recipe_refuses_leave_no_checkpoint(tmp_path):
    line = f"train --steps 2 --batch 32 --recipe te_mxfp8_blackwell --checkpoint {tmp_path}/state --quiet"
    refuses(f"{line} --sizes 64,48,32", ".*multiple of 32.*")
    assert not (tmp_path / "state").exists()
    prints_nothing(f"{line} --sizes 64,32,32 --out {tmp_path}/trained")


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"train {options}", REFUSED[options])


def test_a_run_that_cannot_write_keeps_the_old_result(tmp_path):
    keeps_the_old_result(f"{SMALL} --recipe none --steps 2", "losses.csv", tmp_path)
