# SPDX-License-Identifier: Apache-2.0
"""The pages of the root and of docs/: the commands print what the pages show, the programs run, the links lead somewhere."""

import functools
import json
import pathlib
import re
import shutil
import subprocess
import sys

import kernels
import pytest
import trainings
from command import PROGRAM, ROOT, prints, run
from sampled import EXHAUSTIVE
from tensor_cores import page_with, tables

PAGES = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


def blocks(page: pathlib.Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def missing_lines(shown: list[str], printed: list[str]) -> list[str]:
    """The first lines of ``shown`` that are not in ``printed``, in this order and together; "..." stands for any
    lines."""
    at = 0
    for part in "\n".join(shown).split("\n...\n") if shown else []:
        lines = [line for line in part.split("\n") if line != "..."]
        while at + len(lines) <= len(printed) and printed[at : at + len(lines)] != lines:
            at += 1
        if at + len(lines) > len(printed):
            return lines
        at += len(lines)
    return []


#: What a command prints, which pages have in common: it runs once.
ran = functools.cache(run)
#: Only the command line that pip installs has these.
PYTHON_COMMANDS = ("effective-recipe",)
#: Commands that take some ten seconds stand in blocks "console slow".
slow = pytest.mark.skipif(not EXHAUSTIVE, reason="tens of seconds: ./dev test --exhaustive")
SHOWN = [
    *((page, block) for page in PAGES for block in blocks(page, "console")),
    *(pytest.param(page, block, marks=slow) for page in PAGES for block in blocks(page, "console slow")),
]


@pytest.mark.parametrize(
    "page, block", SHOWN, ids=lambda value: value.name if isinstance(value, pathlib.Path) else value.split("\n")[0]
)
def test_a_command_prints_what_the_page_shows(page, block):
    command, *shown = block.splitlines()
    assert command.startswith("$ fp8lab ")
    words = command.removeprefix("$ fp8lab ")
    if words.split()[0] in PYTHON_COMMANDS:
        pytest.importorskip("yaml")
        done = subprocess.run(
            [sys.executable, "-m", "fp8lab", *words.split()], capture_output=True, text=True, check=False, cwd=ROOT
        )
    else:
        done = ran(words)
    assert done.stderr == "" and done.returncode in (0, 1, 3)
    assert missing_lines(shown, done.stdout.splitlines()) == [], done.stdout


def test_a_line_that_is_not_printed_is_found():
    printed = ["a", "b", "c"]
    assert missing_lines(["a", "...", "c"], printed) == []
    assert missing_lines(["...", "a", "b", "..."], printed) == []
    assert missing_lines(["a", "c"], printed) == ["a", "c"]
    assert missing_lines(["...", "d"], printed) == ["d"]
    assert missing_lines(["b", "...", "a"], printed) == ["a"]


#: Pages whose Python writes what their commands read; the tests of those commands run both.
RUN_WITH_COMMANDS = ("doctor.md", "gemm_doctor.md")
PROGRAMS = [page for page in PAGES if blocks(page, "python") and page.name not in RUN_WITH_COMMANDS]


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page, monkeypatch, tmp_path, capsys):
    pytest.importorskip("fp8lab")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    if any("import torch" in block for block in blocks(page, "python")):
        pytest.importorskip("torch")
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
    printed = capsys.readouterr().out
    assert printed
    for shown in blocks(page, "text printed"):
        assert missing_lines(shown.splitlines(), printed.splitlines()) == [], printed


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.name)
def test_a_program_of_a_user_runs(program, tmp_path):
    pytest.importorskip("fp8lab")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_compare_recipes_reads_a_file(tmp_path):
    np = pytest.importorskip("numpy")
    pytest.importorskip("fp8lab")
    np.save(tmp_path / "x.npy", np.ones((32, 128), np.float32))
    program = ROOT / "docs" / "examples" / "compare_recipes.py"
    done = subprocess.run(
        [sys.executable, str(program), "x.npy"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "te_mxfp8 " in done.stdout


@pytest.mark.parametrize("page, program", [("cpp.md", "cpp"), ("validate_a_kernel.md", "validate_kernel")])
def test_the_cpp_that_a_page_shows_is_that_of_the_program(page, program):
    files = [path.read_text() for path in (ROOT / "docs" / "examples" / program).iterdir()]
    shown = [*blocks(ROOT / "docs" / page, "cpp"), *blocks(ROOT / "docs" / page, "cmake")]
    assert shown and all(any(block in text for text in files) for block in shown)


def test_the_check_of_a_kernel_runs_and_finds_its_bug(tmp_path):
    pytest.importorskip("fp8lab")
    program = ROOT / "docs" / "examples" / "validate_kernel" / "test_kernel.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(program), "--rootdir", str(program.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert done.returncode == 0 and re.match(r"\.[s.]\.", done.stdout), done.stdout


def links(page: pathlib.Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        headings = [re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in target.read_text().splitlines()
                    if line.startswith("#")] if anchor else []  # fmt: skip
        assert not anchor or anchor in headings, link


def test_every_page_is_reached_from_the_readme():
    reached, todo = set(), [PAGES[0]]
    while todo:
        page = todo.pop()
        reached.add(page.resolve())
        targets = [
            page.parent / link.partition("#")[0] for link in links(page) if link.partition("#")[0].endswith(".md")
        ]
        todo += [target for target in targets if target.resolve() not in reached]
    assert {page.resolve() for page in PAGES} - {ROOT / "docs" / "index.md"} <= reached  # that one is the site's


def test_the_readme_is_short():
    assert len(PAGES[0].read_text().splitlines()) <= 160


def test_the_commands_of_dev_that_pages_name_are_there():
    usage = subprocess.run([str(ROOT / "dev"), "--help"], capture_output=True, text=True, check=True).stdout
    for page in PAGES:
        for command in re.findall(r"\./dev ([a-z-]+)", page.read_text()):
            assert re.search(rf"^  {command}\b", usage, re.MULTILINE), (page, command)


def test_paths_that_pages_name_for_dev_have_tests():
    given = [path for page in PAGES for path in re.findall(r"\./dev test (\w+/[^ `,]+)", page.read_text())]
    folders = ["tests/python/te", "tests/reference/doctor", "reference/doctor/src/gemm", "experiments/cast"]
    for path in [*given, *folders, "docs/add_a_recipe.md", "docs/doctor.md", *(ROOT / "tests" / "docs").glob("*.cpp")]:
        done = subprocess.run(
            [sys.executable, ROOT / "tests" / "matching.py", path], stdout=subprocess.PIPE, text=True, check=False
        )
        assert done.returncode == 0 and done.stdout, path


def test_commands_that_pages_name_are_there():
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built; ./dev build does it")
    known = set(re.findall(r"^  ([a-z-]+)  ", prints("--help"), re.MULTILINE))
    known |= {"range"}  # the example of docs/add_an_experiment.md
    for page in PAGES:
        named = re.findall(r"`(?:\$ )?fp8lab ([a-z-]+)", page.read_text())
        assert set(named) <= known, page


def test_the_json_and_the_statuses_are_as_agents_md_says(tmp_path):
    np, fp8lab = pytest.importorskip("numpy"), pytest.importorskip("fp8lab")
    x = fp8lab.sample("normal", 64 * 256, seed=1).astype(np.float32).reshape(64, 256)
    right = fp8lab.quantize(x, "te_mxfp8")
    wrong = right.codes.copy()
    wrong[3, 7] ^= 1
    files = {"x": x, "codes": right.codes, "wrong": wrong, "scales": right.scale_codes}
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array)
    at = {name: str(tmp_path / f"{name}.npy") for name in files}
    asked = f"--format e4m3 --input {at['x']} --json"
    found = {
        "right": run(f"doctor {at['x']} {at['codes']} {at['scales']} --format e4m3 --expected te_mxfp8 --json"),
        "wrong": run(f"doctor {at['x']} {at['wrong']} {at['scales']} --format e4m3 --expected te_mxfp8 --json"),
        "equal": run(f"compare {at['codes']} {at['codes']} {asked}"),
        "different": run(f"compare {at['codes']} {at['wrong']} {asked}"),
    }
    assert [one.returncode for one in found.values()] == [0, 1, 0, 1]
    documents = {name: json.loads(one.stdout) for name, one in found.items()}
    assert [one["passed"] for one in documents.values()] == [True, False, True, False]
    for name, tables_of in {"right": {"explanations"}, "different": {"mismatches"}}.items():
        first, *others = documents[name]["sections"]
        assert first["paragraphs"] and tables_of <= {one["name"] for one in others}
    refused = run(f"doctor {at['x']} nosuch.npy --json")
    assert refused.returncode == 2 and refused.stdout == "" and len(refused.stderr.splitlines()) == 1


def test_the_tables_of_tensor_cores_are_those_of_the_models():
    text = (ROOT / "docs" / "tensor_cores.md").read_text()
    document = json.loads(prints("models --json"))
    assert text == page_with(text, tables(document)), "python tests/docs/tensor_cores.py writes them"
    document["sections"][0]["columns"][0]["values"][0] = "another"
    assert text != page_with(text, tables(document))


def test_the_table_of_kernels_is_that_of_the_list():
    pytest.importorskip("fp8lab")
    text = (ROOT / "docs" / "kernels.md").read_text()
    assert text == kernels.page_with(text, kernels.table()), "python tests/docs/kernels.py writes it"
    assert text != kernels.page_with(text, kernels.table().replace("encode()", "decode()"))


def test_the_tables_of_the_study_are_those_of_its_results():
    page, tables_of = trainings.PAGE.read_text(), trainings.tables()
    assert page == trainings.page_with(page, tables_of), "python tests/docs/trainings.py writes them"
    wrong = {**tables_of, "runs": tables_of["runs"].replace("nvfp4", "mxfp4")}
    assert page != trainings.page_with(page, wrong)


def test_a_step_that_is_done_already_is_not_done_twice(tmp_path):
    pages = ("add_a_format", "add_a_tensor_core", "add_an_experiment")
    script = ROOT / "tests" / "docs" / "apply.cmake"

    def applied(root: pathlib.Path, out: pathlib.Path) -> dict[pathlib.Path, str]:
        options = ("-D", f"ROOT={root}", "-D", f"OUT={out}", "-D", f"PAGES={','.join(pages)}")
        subprocess.run(["cmake", *options, "-P", str(script)], check=True)
        return {path.relative_to(out): path.read_text() for path in out.rglob("*") if path.is_file()}

    once = applied(ROOT, tmp_path / "once")
    followed = tmp_path / "followed"  # the project of somebody who has followed the pages
    for path, text in once.items():
        (followed / path).parent.mkdir(parents=True, exist_ok=True)
        (followed / path).write_text(text)
    shutil.copytree(ROOT / "docs", followed / "docs", dirs_exist_ok=True, ignore=lambda *_: ["notebooks", "static"])
    assert applied(followed, tmp_path / "twice") == once
