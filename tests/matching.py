# SPDX-License-Identifier: Apache-2.0
"""Finds the tests that ``./dev test PATTERN`` builds and runs.

PATTERN is the path of a test, of a page, of a source whose tests are then looked for, or of a folder of these; or
words: those of a Catch case's name or of a Python test's. Prints a line for each test program, ``cpp NAME SPECIFICATION``, and one for each file of Python
tests, ``py FILE EXPRESSION``, where an empty expression takes the whole file. Ends with status 1 where nothing matches.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]
#: Folders of sources, the deepest first, and the test programs that cover them; of reference, those of its parts.
PROGRAMS = {
    "reference/doctor": "doctor",
    "formats": "formats",
    "reference": "products",
    "gpu": "gpu",
    "experiments": "experiments",
}
PARTS = {"scaling": "scaling", "measure": "operators", "operators": "operators", "units": "operators"}
OF_REFERENCE = {PROGRAMS["reference"], *PARTS.values()}
#: Tests with a program of their own, or that need a build of another kind.
APART = (
    "bench/",
    "fakes/",
    "fuzz/",
    "hostile/",
    "structure/",
    "docs/",
    "gpu/compiled/",
    "gpu/races/",
    "gpu/device.cpp",
)


def program_of(path: pathlib.PurePath) -> str | None:
    """The test program of a source, or of a test below ``tests``."""
    text = path.as_posix()
    if text.startswith("tests/"):
        text = text[len("tests/") :]
        if text.startswith(APART):
            return None
    folder = next((folder for folder in PROGRAMS if text.startswith(folder + "/")), None)
    if folder == "reference":
        return next((PARTS[part] for part in text.split("/")[:-1] if part in PARTS), PROGRAMS[folder])
    return None if folder is None else PROGRAMS[folder]


def cpp_tests() -> list[pathlib.Path]:
    """The files of Catch cases, relative to the root."""
    files = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.cpp"))
    return [path for path in files if program_of(path)]


def python_tests() -> list[pathlib.Path]:
    """The files of Python tests, relative to the root."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))


def cases(path: pathlib.Path) -> list[str]:
    """The names of the Catch cases of a file; names in pieces are put together."""
    text = (ROOT / path).read_text()
    found = re.findall(r'\b(?:TEMPLATE_)?TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', text)
    return ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', one)) for one in found]


def of_path(path: pathlib.Path) -> list[tuple[str, str, str]]:
    """The tests of a file: itself where it is one; else those named as it is, or all of its room."""
    if path.suffix == ".py" and path.name.startswith("test_"):
        return [("py", str(path), "")]
    if path.match("tests/docs/*.cpp") or path.match("docs/add_a*.md"):  # whose steps a program of their own compiles
        return [("cpp", "added", "")]
    if path.match("docs/*.md"):
        return [("py", "tests/docs/test_pages.py", path.name)]
    program = program_of(path)
    if path in cpp_tests():
        return [("cpp", str(program), f"[#{path.stem}]")]
    stem = path.stem.removeprefix("_")
    lines: list[tuple[str, str, str]] = []
    own = OF_REFERENCE if program in OF_REFERENCE else {program}
    same = own & {program_of(test) for test in cpp_tests() if test.stem == stem}
    lines += [("cpp", str(one), f"[#{stem}]") for one in sorted(map(str, same))]
    lines += [("py", str(test), "") for test in python_tests() if re.search(rf"_{stem}(_|$)", test.stem)]
    if not lines and program:
        lines.append(("cpp", program, ""))
    return lines


def of_folder(folder: pathlib.Path) -> list[tuple[str, str, str]]:
    """The tests below a folder, or below that of its name in tests; where there are none, those of its room."""
    tags: dict[str, list[str]] = {}
    same = pathlib.Path("tests", *(part for part in folder.parts if part not in ("src", "include", "fp8lab")))
    for test in cpp_tests():
        if test.is_relative_to(folder) or test.is_relative_to(same):
            tags.setdefault(str(program_of(test)), []).append(f"[#{test.stem}]")
    lines = [("cpp", program, ",".join(own)) for program, own in sorted(tags.items())]
    lines += [
        ("py", str(test), "") for test in python_tests() if test.is_relative_to(folder) or test.is_relative_to(same)
    ]
    program = program_of(folder / "any.cpp")
    return lines or ([("cpp", program, "")] if program else [])


def of_words(pattern: str) -> list[tuple[str, str, str]]:
    """The tests whose names have the words."""
    lines = []
    wanted = pattern.lower()
    programs = {str(program_of(path)) for path in cpp_tests() if any(wanted in name.lower() for name in cases(path))}
    escaped = re.sub(r"([,\[\]\\])", r"\\\1", pattern)
    lines += [("cpp", program, f"*{escaped}*") for program in sorted(programs)]
    words = [word for word in re.split(r"[^\w]+", wanted) if word]
    expression = pattern if re.search(r"\b(and|or|not)\b", pattern) else " and ".join(words)
    names = [word for word in re.findall(r"\w+", expression) if word not in ("and", "or", "not")]
    for path in python_tests():
        text = (ROOT / path).read_text().lower() + path.stem
        if names and any(
            re.search(rf"def test_\w*{re.escape(name.lower())}|{re.escape(name.lower())}", text) for name in names
        ):
            tests = [path.stem + " " + test for test in re.findall(r"def (test_\w+)", text)]
            if any(all(name.lower() in test for name in names) for test in tests) or " or " in expression:
                lines.append(("py", str(path), expression))
    return lines


def main(pattern: str) -> int:
    """Prints the lines of the tests that match."""
    given = pathlib.Path(pattern)
    path = given.resolve().relative_to(ROOT) if given.exists() and given.resolve().is_relative_to(ROOT) else given
    if (ROOT / path).is_file():
        lines = of_path(path)
    else:
        lines = (of_folder(path) if (ROOT / path).is_dir() else []) or of_words(pattern)
    for line in lines:
        print("\t".join(line))
    return 0 if lines else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
