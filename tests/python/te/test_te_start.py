# SPDX-License-Identifier: Apache-2.0
"""Starting fp8lab.te: what it costs those who do not use it, and what it says where it cannot start."""

import os
import re
import subprocess
import sys
from pathlib import Path

import fp8lab.te
import pytest
import warm
from fp8lab.te.__main__ import main
from installed import without_transformer_engine
from sampled import EXHAUSTIVE

ROOT = Path(__file__).parents[3]


def run(*words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, os.environ.get("PYTHONPATH", ""))))}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)


def test_importing_fp8lab_imports_nothing_of_it() -> None:
    seen = "[name for name in sys.modules if name.split('.')[0] in ('torch', 'transformer_engine') or '.te' in name]"
    assert run("-c", f"import sys, fp8lab; print({seen})").stdout.strip() == "[]"
    assert run("-c", "import sys, fp8lab.te; print('torch' in sys.modules)").stdout.strip() == "False"


def test_devices_are_records_of_models_that_there_are() -> None:
    models = {one.name for one in fp8lab.models()}
    names = [one.name for one in fp8lab.te.devices()]
    assert len(set(names)) == len(names) and {"h100", "h200", "l40s", "rtx4090", "b200", "rtx5090"} <= set(names)
    for one in fp8lab.te.devices():
        assert {one.fp8, one.bf16, one.fp16, one.tf32, one.mxfp8, one.nvfp4, one.block} - {""} <= models, one
        assert str(one).startswith(f"{one.name}: NVIDIA")
        assert one.has_all_layouts == (10 <= one.capability[0] < 12)


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(ValueError, match="unknown device 'h1000'; known: h100, "):
        fp8lab.te.activate("h1000")
    with pytest.raises(TypeError, match="device must be a name"):
        fp8lab.te.activate(100)  # type: ignore[arg-type]
    told = run("-m", "fp8lab.te", "--device", "h1000", "script.py")
    assert told.returncode == 2 and "unknown device 'h1000'" in told.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a script or -m MODULE is missing"),
        (["--device"], "--device needs a name"),
        (["--functions"], "--functions needs a name"),
        (["--functions", "exact", "a.py"], "unknown functions 'exact'; known: correctly_rounded, hopper"),
        (["--device=b200", "--functions=hopper", "a.py"], "functions of hopper are not those of b200"),
        (["--divice", "h100", "a.py"], "unknown option --divice"),
        (["-m"], "a script or -m MODULE is missing"),
        (["no_such_script.py"], "there is no script no_such_script.py"),
        (["-m", "no_such_module.main"], "there is no module no_such_module.main"),
    ],
)
def test_a_wrong_command_line_has_status_2(words: list[str], message: str, capsys) -> None:
    status, told = main(words), capsys.readouterr()
    assert (status, told.out) == (2, "") and message in told.err and told.err.startswith("usage: python -m fp8lab.te")


def test_help_lists_the_devices(capsys) -> None:
    assert main(["--help"]) == 0 and "h100, h100_pcie, h200" in capsys.readouterr().out


def test_transformer_engine_that_was_imported_before_is_refused() -> None:
    script = "import sys; sys.modules['transformer_engine'] = sys; import fp8lab.te; fp8lab.te.activate()"
    assert (
        "RuntimeError: transformer_engine was imported before: call fp8lab.te.activate first"
        in run("-c", script).stderr
    )


def test_a_release_that_is_missing_or_another_says_how_to_install_it() -> None:
    blocked = (
        "import importlib.util as u; own = u.find_spec; "
        "u.find_spec = lambda name, *rest: None if name == 'transformer_engine' else own(name, *rest); "
    )
    told = run("-c", blocked + "import fp8lab.te; fp8lab.te.activate()").stderr
    if "needs torch" not in told:
        assert (
            "fp8lab.te needs transformer_engine, which is not installed: pip install transformer_engine==2.20.2" in told
        )
    extra = re.search(r"^te = (.*)$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    named = re.search(r"which is not installed: pip install ([^(]*) \(", told)[1].split()
    assert {one.split("==")[0] for one in named} == set(re.findall(r'"([a-z_]+)', extra))


@without_transformer_engine
def test_the_extension_may_be_imported_first(tmp_path) -> None:
    program = tmp_path / "first.py"
    program.write_text("import transformer_engine_torch as tex; print(tex.__name__)")
    told = warm.run(program)
    assert told.stdout.strip() == "transformer_engine_torch", told.stderr[-2000:]


@without_transformer_engine
def test_another_release_is_named() -> None:
    other = "import importlib.metadata as m; m.version = lambda name: '2.9.0'; "
    told = run("-c", other + "import fp8lab.te; fp8lab.te.activate()").stderr
    assert "is the extension of transformer_engine 2.20.2, 2.10.0, 2.2.0, 1.13.0, and 2.9.0 is installed" in told


def test_another_extension_that_is_installed_is_refused(tmp_path) -> None:
    (tmp_path / "transformer_engine_torch.py").write_text("")
    told = run("-c", "import fp8lab.te; fp8lab.te.activate()", path=str(tmp_path)).stderr
    assert "another transformer_engine_torch is installed" in told and "uninstall it" in told


def test_a_program_without_torch_is_left_alone_and_its_own_sitecustomize_runs(tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('own')")
    startup = os.path.join(os.path.dirname(fp8lab.te.__file__), "_startup")
    environment = {**os.environ, "FP8LAB_TE_DEVICE": "h100", "PYTHONPATH": os.pathsep.join((startup, str(tmp_path)))}
    told = subprocess.run(
        [sys.executable, "-c", "import sys; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert told.stdout.split() == ["own", "False"], told.stderr


NORMS_ON_HOPPER = """
import sys
import numpy as np, torch, fp8lab, transformer_engine_torch as tex
sys.path.insert(0, sys.argv[1])
from drawn_words import drawn, normal
recorded = np.load(sys.argv[2])
otype = tex.DType.kBFloat16
for columns in (100, 256, 512):
    x, w, b = (torch.from_numpy(one).to(torch.bfloat16) for one in (normal(104, (64, columns)), drawn(41, (columns,)), drawn(42, (columns,))))
    x[1] *= 30
    key = f"bf16/64x{columns}/False"
    y, mean, rsigma = tex.layernorm_fwd(x, w, b, 1e-5, None, None, otype, 0, False)
    words = y.view(torch.int16).numpy().reshape(-1)[:1024]
    assert (words == recorded[f"layer/{key}/y"]).all() and (rsigma.numpy().view(np.int32) == recorded[f"layer/{key}/rs"]).all()
    y, _, rsigma = tex.rmsnorm_fwd(x, w, 1e-5, None, None, otype, 0, False)
    words = y.view(torch.int16).numpy().reshape(-1)[:1024]
    assert (words == recorded[f"rms/{key}/y"]).all() and (rsigma.numpy().view(np.int32) == recorded[f"rms/{key}/rs"]).all()
x = torch.from_numpy(normal(7, (4, 4096)))
gelu = fp8lab.operators.activation("gelu", x, functions="hopper")
assert (tex.gelu(x, None).numpy() == gelu).all() and (gelu != fp8lab.operators.activation("gelu", x)).any()
y, _, rsigma = tex.rmsnorm_fwd(x, x[0], 1e-5, None, None, tex.DType.kFloat32, 0, False)
assert (rsigma.numpy() == fp8lab.operators.rmsnorm(x, x[0], functions="hopper")[1]).all()
assert tex.rmsnorm_bwd(x, x, rsigma, x[0], 0, False)[0].shape == x.shape  # gradients of longer rows: rounded correctly
long = torch.zeros(4, 16385)
assert tex.rmsnorm_fwd(long, long[0], 1e-5, None, None, tex.DType.kFloat32, 0, False)[0].shape == long.shape
lists = [[torch.from_numpy(drawn(seed, (1000,)) + np.float32(shift))] for seed, shift in ((1, 0), (2, 0), (3, 0), (4, 2))]
updated = [one[0].numpy().copy() for one in lists]
zero = torch.zeros(1, dtype=torch.int32)
tex.multi_tensor_adam(65536, zero, lists, 1e-3, 0.9, 0.999, 1e-8, 3, 1, 1, 0.01)
fp8lab.operators.adam_update(*updated, lr=1e-3, step=3, weight_decay=0.01, functions="hopper")
assert all((one[0].numpy() == other).all() for one, other in zip(lists, updated))
a, b = (torch.from_numpy(normal(seed, (32, 64))).to(torch.bfloat16) for seed in (8, 9))
made, _, before, _ = tex.generic_gemm(a, True, b, False, None, None, otype, None, otype, True, None, False, None, 0, False, True)
wide = fp8lab.gemm(b, a, "hopper_bf16")
assert (before == torch.from_numpy(wide).to(torch.bfloat16)).all()
assert (made == torch.from_numpy(fp8lab.gemm_activation("gelu", wide)).to(torch.bfloat16)).all()
assert (made != torch.from_numpy(fp8lab.operators.activation("gelu", wide, functions="hopper")).to(torch.bfloat16)).any()
x = torch.from_numpy(drawn(110, (65537,)))
norm, rounded = (fp8lab.operators.l2norm(x, functions=name)[0] for name in ("hopper", "correctly_rounded"))
assert norm != rounded and float(tex.multi_tensor_l2norm(65536, zero, [[x]])[0]) == norm
moved = torch.cat([x[:1], x])[1:]  # no kernel's vector of four elements begins there
assert float(tex.multi_tensor_l2norm(65536, zero, [[moved]])[0]) == rounded
assert float(tex.multi_tensor_l2norm(4096, zero, [[x]])[0]) == rounded
print("as an H200")
"""


@without_transformer_engine
@pytest.mark.skipif(not EXHAUSTIVE, reason="8 seconds, of which importing is most: ./dev test --exhaustive")
def test_norms_activations_and_optimizers_are_those_of_an_h200(tmp_path) -> None:
    program = tmp_path / "norms.py"
    program.write_text(NORMS_ON_HOPPER)
    folder = Path(__file__).parent
    vectors = folder.parents[1] / "vectors" / "device" / "h200_norms.npz"
    told = warm.run("--device", "h200", "--functions", "hopper", program, folder, vectors)
    assert told.stdout.strip() == "as an H200", told.stderr[-2000:]
