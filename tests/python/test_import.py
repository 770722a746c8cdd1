# SPDX-License-Identifier: Apache-2.0
"""What ``import fp8lab`` loads, and what pytest pays for the plugin in an environment that has it: next to nothing.
Counted in modules, for seconds are the machine's."""

import os
import pickle
import subprocess
import sys

import fp8lab
import pytest
from fp8lab._names import HOMES

#: All that ``import fp8lab`` may load of the package.
AT_IMPORT = {"fp8lab", "fp8lab._interpreter", "fp8lab._names"}
#: What takes long to load, and which neither ``import fp8lab`` nor the plugin may.
HEAVY = {"numpy", "json", "dataclasses", "inspect", "ml_dtypes", "torch", "transformer_engine", "matplotlib"}
TELL = "print(*sorted(name for name in sys.modules if name.partition('.')[0] == 'fp8lab' or name in HEAVY))"


def loaded(program: str) -> set[str]:
    program = f"import sys; HEAVY = {HEAVY}; {program}; {TELL}"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return set(told.stdout.splitlines()[-1].split())


def test_import_loads_nothing():
    assert loaded("import fp8lab; dir(fp8lab); fp8lab.__all__") == AT_IMPORT


def test_a_first_use_loads_what_it_needs():
    after = loaded("import fp8lab; fp8lab.encode")
    assert {"fp8lab._core", "fp8lab._casts", "numpy"} <= after
    unneeded = {
        "_experiments",
        "_registered",
        "_document",
        "_diagnose",
        "_gemm_doctor",
        "_products",
        "_scaling",
        "gpu",
        "operators",
    }
    assert not after & ({f"fp8lab.{name}" for name in unneeded} | {"ml_dtypes", "torch"})


def test_the_command_line_loads_no_numpy():
    assert "numpy" not in loaded("from fp8lab._command_line import main")


def test_each_name_is_where_its_module_says():
    modules = sorted({*HOMES.values()})
    for module in modules:
        __import__(f"fp8lab.{module}")
    listed = {name: home for home in modules if home.startswith("_") for name in sys.modules[f"fp8lab.{home}"].__all__}
    assert {**listed, "experiments": "experiments", "gpu": "gpu", "operators": "operators"} == HOMES
    assert set(fp8lab.__all__) == set(HOMES) <= set(dir(fp8lab))
    for name in HOMES:
        assert getattr(fp8lab, name) is getattr(fp8lab, name)
    with pytest.raises(AttributeError, match="module 'fp8lab' has no attribute 'encoder'"):
        fp8lab.encoder  # noqa: B018


def test_a_pickle_comes_back_in_a_process_that_has_loaded_nothing():
    values = (fp8lab.GemmRecipe("hopper_wgmma_fp8"), fp8lab.formats()[0], fp8lab.models()[0])
    program = f"import pickle; values = pickle.loads({pickle.dumps(values)!r}); print(*map(repr, values))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert told.stdout.rstrip("\n") == " ".join(map(repr, values))


def test_a_run_of_pytest_that_does_not_use_the_plugin_loads_nothing_for_it(tmp_path):
    (tmp_path / "test_other.py").write_text(
        f"import sys\nHEAVY = {HEAVY - {'json', 'dataclasses', 'inspect'}}\ndef test_other():\n    {TELL}\n"
    )
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-q", "-p", "fp8lab.pytest_plugin", "-p", "no:cacheprovider", "test_other.py"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    assert set(told.stdout.splitlines()[0].split()) == AT_IMPORT | {"fp8lab.pytest_plugin"}


def test_threads_may_use_names_for_the_first_time_at_once():
    program = """
import sys, threading
sys.setswitchinterval(1e-6)
import fp8lab
from fp8lab._names import HOMES
names, found, failed = sorted(HOMES), [{} for _ in range(6)], []
barrier = threading.Barrier(len(found))
def use(part):
    barrier.wait()
    try:
        for name in names[part * len(names) // len(found):] + names:
            found[part][name] = getattr(fp8lab, name)
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=use, args=(part,)) for part in range(len(found))]
[one.start() for one in threads]
[one.join() for one in threads]
assert not failed, failed
from fp8lab._entry import _ENTERED
for name in names:
    assert len({id(one[name]) for one in found}) == 1, name
    value = getattr(fp8lab, name)
    if type(value) is type(lambda: 0):
        assert value in _ENTERED and value.__wrapped__ not in _ENTERED, name
print(fp8lab.encode([0.3, 448.0, 1e9], "e4m3").tolist())
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert told.stdout == "[42, 126, 126]\n"
