# SPDX-License-Identifier: Apache-2.0
"""What all commands share: their help and lists, bad options, what cannot be written, the user's locale."""

import os
import subprocess

import pytest
from command import PROGRAM, files_in, prints, prints_nothing, refuses, run

SMALL = "primer --rows 32 --in-features 64 --out-features 48"


def test_the_version_is_one_line():
    prints("--version", r"^fp8lab \d+\.\d+\.\d+\n$")


def test_help_names_the_commands():
    prints("--help", "primer")


def test_help_of_a_command_names_the_exit_status():
    prints("primer --help", "Exit status: 0 done; 2 bad input or unwritable DIR; 3 the default")
    prints("compare --help", "Exit status: 0 equal; 1 different; 2 bad input or unwritable DIR.")


def test_quiet_prints_nothing():
    prints_nothing(f"{SMALL} --quiet")


LISTS = {
    "formats": r"^e4m3\n[^\n]*largest 448[^\n]*\n    8 bits: sign, 4 exponent bits with bias 7, 3 mantissa bits\n",
    "profiles": r"e8m0_deepgemm\n    rounds upward; .*\n    Source: DeepGEMM",
    "models": r"hopper_wgmma_fp8 .*measured\n.*\nmeasured: A100 and A2\n    ampere_fp16, .*Sources",
    "linear-recipes": r"te_mxfp8_blackwell\s+blackwell_mxf8 +te_mxfp8\s.*JSON and CSV: linear_recipes with description",
    "delayed-versions": r"te_1_7\n    .*\n    Source: NVIDIA/TransformerEngine",
    "recipes": r"te_mxfp8\n    e4m3, an E8M0 scale for 1 x 32: .*\n    Source: ",
    "distributions": r"student_t\n",
    "targets": r"scalar\n$",
}


@pytest.mark.parametrize("command", LISTS)
def test_a_list_explains_its_entries(command):
    prints(command, LISTS[command])


def test_an_unknown_command_is_told_the_known_ones():
    refuses("prime", "unknown command 'prime'; known: primer, .*; did you mean primer[?]")


MEANT = {
    "double-roundin": "double-rounding",
    "help primmer": "primer",
    "verify tensor-core": "tensor-cores",
    "double-rounding --format e4m3": "--formats",
    "double-rounding --formats e5m7": "e5m2",
    "accumulate --models hopper_wgma_fp8": "hopper_wgmma_fp8",
    "accumulate --distributions norma": "normal",
    "cats": "cast",  # two neighbours are exchanged
    "cast --fromat e4m3": "--formats",
    "completion bahs": "bash",
}


@pytest.mark.parametrize("line", MEANT)
def test_what_is_misspelt_gets_a_suggestion(line):
    refuses(line, f"; did you mean {MEANT[line]}[?]")


def test_what_is_like_nothing_known_gets_no_suggestion():
    assert "did you mean" not in run("qqqqqqqq").stderr


@pytest.mark.parametrize("command", ["primer", "formats", "verify casts"])
def test_help_of_a_command_is_what_its_option_says(command):
    assert prints(f"help {command}", "Exit status") == prints(f"{command} --help")
    prints("help", "verify")


def test_json_is_the_document(tmp_path):
    line = "double-rounding --high 1.001"
    printed = prints(f"{line} --json --out {tmp_path}/out", '^{\n "experiment": "double_rounding"')
    assert printed == (tmp_path / "out" / "double_rounding.json").read_text()
    prints_nothing(f"{line} --json --quiet")


REFUSED = {
    "": "A subcommand is required.*",
    "-x": "unknown option '-x'.*",
    "primer --no-such-option": "",
    "primer --rows 010x": "'010x' is not a whole number.*",
    "primer --rows=": "--rows.*missing.*",
    "primer --out=": "--out.*missing.*",
    "primer --out-features 99999999999999999999": r"is not from -2.63 to 2.63 - 1.*",
    "primer --seed -1": "--seed: .-1. is not from 0 to 2.64 - 1.*",
    "primer --scale-x 1e400": "--scale-x: .1e400. is out of range.*",
    "cast --size 1.5": "--size: '1.5' is not a whole number.*",
    "cast --out --quiet": "--out: its value is missing, and '--quiet' is an option.*",
    "cast --formats=": "--formats.*missing.*",
    "cast --formats e4m3,,e5m2": "--formats must be a list without empty entries.*",
    "cast --formats e4m3,e5m2,e4m3": "--formats must have each entry once, and has 'e4m3' twice",
    "verify": "subcommand is required.*",
    "cast --formats e4m3 e5m2": "'e5m2' was not expected: the entries of a list have commas between them: "
    "--formats e4m3,e5m2",
    "cast --formats=e4m3 e5m2 --size 9": ".*commas between them: --formats e4m3,e5m2",
    "cast e4m3": "the argument 'e4m3' was not expected",
    "shapes 100 200": "N is missing: fp8lab shapes takes M K N together .see fp8lab help shapes.",
    "report": "DIR is required .*",
    "report /no/such": "'/no/such' is not a directory",
    "completion": "SHELL is required .*",
    "primer --html /no/such/page.html": "cannot write /no/such/page.html: there is no directory /no/such",
    "primer --html /": "cannot write /: .*",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_bad_option_is_named_in_one_line(line):
    refuses(line, REFUSED[line])


def test_an_argument_of_two_lines_is_told_in_one():
    refuses(["primer", "--mma", "a\nb"], r"unknown model for the FP8 product 'a.x0ab'.*")


def test_whole_numbers_may_have_leading_zeros_and_exponents():
    prints("primer --rows 0016 --in-features 16 --out-features 16", ": 16 x 16 inputs")
    prints("cast --size 1e3", "^Casting 1000 float32")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("line", ["--version", "--help", SMALL])
def test_a_full_stdout_is_an_error(line):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(PROGRAM), *line.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert (
        done.stderr.startswith("fp8lab: ") and "cannot write to stdout" in done.stderr and done.stderr.count("\n") == 1
    )


def test_the_locale_of_the_user_changes_no_number(tmp_path):
    # The C locale takes its place where there is no German one.
    prints_nothing(f"{SMALL} --quiet --out {tmp_path}/usual")
    assert run(f"{SMALL} --quiet --out {tmp_path}/german", LC_ALL="de_DE.UTF-8").returncode == 0
    tables = [name for name in files_in(tmp_path / "usual") if name.endswith(".csv")]
    assert tables
    for name in tables:
        assert (tmp_path / "german" / name).read_bytes() == (tmp_path / "usual" / name).read_bytes(), name
