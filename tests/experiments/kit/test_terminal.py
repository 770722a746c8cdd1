# SPDX-License-Identifier: Apache-2.0
"""The terminal: any width, no UTF-8, a pipe that is closed, completion and the manual page."""

import json
import os
import shutil
import subprocess

import pytest
from command import PROGRAM, prints, run
from small_calls import REGISTERED

CAST = "cast --size 100"
TRAIN = "train --sizes 32,32,16 --recipes te_mxfp8_blackwell --batch 32 --steps 3"


def widest(text: str) -> int:
    """The longest line that could have been broken."""
    return max((len(line) for line in text.splitlines() if len(line.split()) > 1), default=0)


def test_text_has_the_width_of_columns_and_80_in_a_pipe():
    assert 70 < widest(prints("cast --size 100000", COLUMNS="")) <= 80
    assert 88 < widest(prints("cast --size 100000", COLUMNS="140")) <= 140
    for wrong in ("wide", "-3", "0", "8x"):
        assert prints(CAST, COLUMNS=wrong) == prints(CAST, COLUMNS="80")
    assert prints(CAST, COLUMNS="7") == prints(CAST, COLUMNS="20")
    assert prints(CAST, COLUMNS="99999999999") == prints(CAST, COLUMNS="80")


@pytest.mark.parametrize("columns", ["40", "80"])
@pytest.mark.parametrize("command", sorted({facts["command"] for facts in REGISTERED.values()}))
def test_a_paragraph_of_help_goes_on_below_its_beginning(command, columns):
    paragraph = prints(f"help {command}", COLUMNS=columns).partition("Usage: ")[0]
    assert paragraph and not [line for line in paragraph.splitlines() if line.startswith(" ")]


@pytest.mark.parametrize(
    "line",
    [
        CAST,
        "accumulate --k 32,128 --rows 4 --columns 4",
        "double-rounding --high 1.001",
        "shapes",
        "models",
        "explain e4m3 0x2A",
        "help train",
        "help",
    ],
)
def test_a_terminal_of_20_columns_gets_all_words(line):
    def words(text):  # a block of columns repeats the labels of its rows
        return {word for word in text.split() if word.isalpha()}

    narrow, wide = prints(line, COLUMNS="20"), prints(line, COLUMNS="200")
    assert words(wide) <= words(narrow)
    # CLI11's names of options, and bars, are not broken.
    assert widest(narrow) <= 28 or "help" in line or line == "models", narrow


@pytest.mark.parametrize("line", [CAST, TRAIN, "explain e4m3 0x2A", "formats"])
def test_without_utf8_pictures_are_ascii(line):
    assert prints(line, LC_ALL="C").isascii()
    assert "\x1b" not in prints(line, NO_COLOR="1")


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_pipe_is_silent(ignored):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    trap = "trap '' PIPE; " if ignored else ""
    line = f"{trap}{PROGRAM} man | head -1; {PROGRAM} models | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(".TH FP8LAB 1")


COMMANDS = sorted(facts["command"] for facts in REGISTERED.values())


def test_the_manual_page_has_every_command_and_option():
    page = prints("man", r"^\.TH FP8LAB 1")
    for command in COMMANDS:
        assert f'.SS "fp8lab {command}"'.replace("-", "\\-") in page, command
    for facts in REGISTERED.values():
        for argument in facts["arguments"]:
            if argument["option"]:
                assert f"\\fB{argument['option']}\\fR".replace("-", "\\-") in page, argument["option"]
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tascii", "-ww", "-Wbreak"], input=page, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and not done.stderr


def completed(words: list[str]) -> list[str]:
    """What bash offers for the last of the words."""
    script = prints("completion bash")
    quoted = " ".join(f"'{word}'" for word in ["fp8lab", *words])
    script += f'COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _fp8lab; printf "%s\\n" "${{COMPREPLY[@]}}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env={"PATH": os.defpath})
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_commands_options_and_names():
    assert completed(["ca"]) == ["cast"]
    assert completed(["verify", "t"]) == ["tensor-cores"] and completed(["help", "prim"]) == ["primer"]
    assert completed(["cast", "--fo"]) == ["--formats"]
    assert completed(["cast", "--formats", "e5m"]) == ["e5m2", "e5m2fnuz"]
    assert completed(["cast", "--formats", "e4m3,e5m2f"]) == ["e4m3,e5m2fnuz"]
    assert completed(["cast", "--size", "9", "--prof"]) == ["--profiles"]
    first = completed([""])
    assert {command.split()[0] for command in COMMANDS} <= {*first}
    assert {"help", "report", "completion", "man", "--version"} <= {*first}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_every_command(shell):
    script = prints(f"completion {shell}")
    for command in COMMANDS:
        assert command.split()[-1] in script
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr


#: What zsh's completion calls, in place of its editor.
OF_ZSH = """
compdef() { :; }
_files() { print FILES; }
compadd() { while [ "$1" != -- ]; do shift; done; shift; print -l -- "$@"; }
_describe() { local name=${@[-1]}; print -l -- "${(@)${(@P)name}%%:*}"; }
"""


def offered(shell: str, words: str, home: str) -> list[str]:
    """What fish or zsh offers for the last of the words."""
    script = prints(f"completion {shell}")
    if shell == "fish":
        script += f"complete -C '{words}' | string split -f 1 \\t\n"
    else:
        script = OF_ZSH + script + f"words=({words}); CURRENT=${{#words}}; _fp8lab\n"
    told = {"PATH": os.defpath, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home, "LC_ALL": "C.UTF-8"}
    command = [shell, "--no-config"] if shell == "fish" else [shell, "-f"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False, env=told)
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_commands_options_and_names(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    home = str(tmp_path)
    assert "cast" in offered(shell, "fp8lab ca", home)
    assert "tensor-cores" in offered(shell, "fp8lab verify t", home)
    assert "cast" not in offered(shell, "fp8lab verify t", home)
    assert "--formats" in offered(shell, "fp8lab cast --fo", home)
    assert "e5m2fnuz" in offered(shell, "fp8lab cast --formats e5m", home)


def test_json_has_all_digits_where_the_text_has_six():
    document = json.loads(run(f"{CAST} --json").stdout)
    table = next(one for one in document["sections"] if one["name"] == "casts")
    sqnr = next(one for one in table["columns"] if one["name"] == "sqnr_db")["values"][0]
    text = prints(CAST)
    assert f"{sqnr:.4f}" in text and repr(sqnr) not in text and len(repr(sqnr)) > 10
