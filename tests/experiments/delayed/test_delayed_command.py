# SPDX-License-Identifier: Apache-2.0
import pytest
from command import column, files_in, keeps_the_old_result, prints, prints_nothing, refuses


@pytest.fixture
def trace(tmp_path):
    """The amaxes of two tensors in six steps, in a file."""
    path = tmp_path / "trace.csv"
    path.write_text("step,x,y\n1,4,1\n2,0,1\n3,0,1\n4,0,1\n5,1,1\n6,1,1\n")
    return path


def test_the_built_in_traces_are_replayed_by_all_variants(tmp_path):
    shown = r"the built-in example: 48 steps, 5 tensors, 16 variants\n.*parts at step.*Scale against step"
    prints(f"delayed --out {tmp_path}/delayed", shown)
    assert {"delayed.json", "scales.csv", "summary.csv"} <= set(files_in(tmp_path / "delayed"))
    assert column(tmp_path / "delayed" / "delayed.json", "summary", "widest_factor")[4 * 16 + 8] == "inf"


def test_a_trace_tells_at_which_step_two_versions_part(trace):
    line = f"delayed --amax {trace} --versions te_1_6,te_1_6_unfused --algorithms max --history 3"
    prints(line, r"\n  b te_1_6_unfused max 3\s+6 +4 +4 +6 +1 .*\n  6        1      112      448\n")


def test_format_margin_and_reduction_can_be_chosen(trace):
    line = f"delayed --amax {trace} --versions te_0_1 --history 4 --formats e5m2 --margin 1 --no-reduce"
    prints(line, "a te_0_1 max 4 e5m2")


def test_quiet_prints_nothing(trace):
    prints_nothing(f"delayed --amax {trace} --quiet")


REFUSED = {
    "--history 16,0": "history must be from 1 to 1048576, not 0",
    "--history -5": "history must be from 1 to 1048576, not -5",
    "--algorithms mean": "unknown entry of algorithms 'mean'; known: max, most_recent",
    "--versions te_9": "unknown version of delayed scaling 'te_9'; known: te_0_1, .* and 2 more",
    "--formats e2m1": "delayed scaling is for e4m3 and e5m2, not e2m1",
    "--margin 63": "margin must be from -62 to 62, not 63",
    "--amax none.csv": "cannot read .*none.csv: there is no such file",
    "--amax /": "cannot read .*: it is a directory",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"delayed {options}", REFUSED[options])


WRONG_TRACES = {
    "step,x\n1,abc": "line 2: column x: 'abc' is not a number",
    "step,x,y\n1,2": "line 2: it has 2 fields, and the header has 3",
    "step,x\n1,2,3": "line 2: it has 3 fields",
    "": "line 1: it is empty",
    "step,x": "line 1: there is no step",
    "x,y\n1,2": "line 1: the first column must be called step",
    "step,x\n2,1\n1,1": "line 3: steps must increase, and 1 follows 2",
}


@pytest.mark.parametrize("text", WRONG_TRACES)
def test_a_wrong_trace_is_told_by_file_and_line(tmp_path, text):
    (tmp_path / "wrong.csv").write_text(text)
    refuses(f"delayed --amax {tmp_path}/wrong.csv", f"wrong.csv, {WRONG_TRACES[text]}.*")


def test_a_run_that_cannot_write_keeps_the_old_result(tmp_path):
    keeps_the_old_result("delayed", "scales.csv", tmp_path)
