# SPDX-License-Identifier: Apache-2.0
"""Gives every option of every command hostile values: what comes is a result, or one line that names the option.

python tests/hostile/wrong_options.py FP8LAB [CALLS [SEED]]     a seeded choice; every option with every value if left
out
"""

import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[1] / "experiments" / "kit"))
from small_calls import REGISTERED, small_command  # noqa: E402

#: Commands with the options that make them quick: the small call that each experiment registers.
COMMANDS = dict(map(small_command, REGISTERED))
#: The exit statuses of a run that ends without an error.
STATUSES = {facts["command"]: {0, facts["status_not_passed"]} for facts in REGISTERED.values()}
#: Options that name what is written.
WRITTEN = {"--out", "--html", "--checkpoint", "--probe", "--exercise", "--ledger", "--plan", "--into"}
#: Options that name files: what cannot be read or written is named in their place.
PATHS = {
    (facts["command"], argument["option"])
    for facts in REGISTERED.values()
    for argument in facts["arguments"]
    if argument["kind"] in ("path", "trace")
}
VALUES = [
    b"", b" ", b"x" * 100_000, b"\x1b[31m", b"\xff\xfe", b"\n\n", "\u00fc".encode(), b"%s%n", b",", b"1,,2", b"1,1", b"0", b"-1", b"1.5",
    b"1e6x", b"0x10", b"1e400", b"nan", b"-inf", b"9" * 30, b"--quiet", b"--no-such", b"-", b"/", b"/dev/null", b"no/such/file",
]  # fmt: skip
#: What would be right, and take long.
SLOW = {("double-rounding", "--low"), ("double-rounding", "--high"), ("verify casts", "--all")}


def options_of(fp8lab, command):
    """The options that take a value."""
    text = subprocess.run([fp8lab, *command.split(), "--help"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s+(--[a-z0-9-]+) ([A-Z]+(?:,[A-Z]+)?)\b", text, re.MULTILINE)
    return [option for option, _ in found if (command, option) not in SLOW]


def complaint(fp8lab, command, option, value):
    """What is bad about what comes, or nothing."""
    given = [word for name, words in COMMANDS[command].items() if name != option for word in (name, *words)]
    with tempfile.TemporaryDirectory() as directory:
        call = subprocess.run(
            [fp8lab, *command.split(), *given, option, value],
            capture_output=True,
            cwd=directory,
            timeout=60,
            check=False,
        )
        left = os.listdir(directory)
    if call.returncode in STATUSES[command]:
        return None if option in WRITTEN or not left else f"made {left}"
    text = call.stderr.decode("utf-8", "replace")
    if call.returncode != 2 or call.stdout:
        return f"status {call.returncode}, {len(call.stdout)} bytes of output: {text[:200]!r}"
    if text.count("\n") != 1 or len(text) > 301 or not text[:-1].isascii() or not text[:-1].isprintable():
        return f"{len(text)} characters: {text[:400]!r}"
    name = option.removeprefix("--")
    if (
        not any(word in text for word in (name, name.replace("-", "_"), name.removesuffix("s")))
        and not all(word in text for word in name.split("-"))  # "format of b"
        and not ((command, option) in PATHS | {(command, "--out"), (command, "--html")} and "cannot" in text)
        and not (value.startswith(b"--") and "unknown option" in text)
        and not (name.endswith(("-a", "-b")) and text.startswith("fp8lab: a and b must "))
    ):
        return f"names no option: {text!r}"
    return None


def main():
    fp8lab = os.path.abspath(sys.argv[1])
    calls = [
        (command, option, value) for command in COMMANDS for option in options_of(fp8lab, command) for value in VALUES
    ]
    if len(sys.argv) > 2:
        calls = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1).sample(calls, int(sys.argv[2]))
    bad = 0
    for command, option, value in calls:
        found = complaint(fp8lab, command, option, value)
        if found:
            bad += 1
            print(f"{command} {option} {value[:40]!r}: {found}", flush=True)
    print(f"{len(calls)} calls: {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
