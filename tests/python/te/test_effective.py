# SPDX-License-Identifier: Apache-2.0
"""fp8lab.te.effective_recipe against the installed accelerate: handlers, variables, `accelerate launch`, and what prepare() passes on."""

import itertools
import json
import os
from pathlib import Path

import pytest
import warm
from fp8lab.te import converted_layers, effective_recipe

pytestmark = pytest.mark.sample(3)

#: Each is a process of its own; the H100's refuses MXFP8.
DEVICES = ("b200", "h100") if "FP8LAB_EXHAUSTIVE" in os.environ else ("b200",)
RELEASES = {"accelerate": "1.15.0", "transformer_engine": "2.20.2"}


def effective(*args, environment=None, **kwargs):
    return effective_recipe(*args, environment=environment or {}, **{**RELEASES, **kwargs})


@pytest.fixture(scope="module")
def accelerate():
    module = pytest.importorskip("accelerate")
    if module.__version__ != RELEASES["accelerate"]:
        pytest.skip(f"accelerate {module.__version__} is installed, not {RELEASES['accelerate']}")
    if not module.utils.is_transformer_engine_available():
        pytest.skip("transformer_engine is not installed")
    return module


@pytest.fixture
def variables(monkeypatch):
    """Sets the variables of accelerate to these alone."""

    def use(wanted):
        for name in list(os.environ):
            if name.startswith("ACCELERATE_"):
                monkeypatch.delenv(name)
        for name, value in wanted.items():
            monkeypatch.setenv(name, value)

    return use


# 1. The handlers: arguments beat variables, variables beat defaults, and to_kwargs() drops what equals a default.

ARGUMENTS = [
    {},
    {"amax_compute_algo": "most_recent"},
    {"amax_compute_algo": "MAX", "fp8_format": "e4m3"},
    {"fp8_format": "E5M2"},
    {"fp8_format": "E3M4"},
    {"amax_compute_algo": "mean"},
    {"interval": 4, "margin": 2, "amax_history_len": 16},
    {"amax_history_len": 1024, "interval": 1},
    {"override_linear_precision": [False, False, False]},
    {"override_linear_precision": (False, False, True)},
    {"use_mxfp8_block_scaling": True, "use_autocast_during_eval": True},
]
VARIABLES = [
    {},
    {"FORMAT": "E4M3", "AMAX_COMPUTE_ALGO": "Max", "AMAX_HISTORY_LEN": "7"},
    {"MARGIN": "3", "INTERVAL": "2", "USE_AUTOCAST_DURING_EVAL": "yes", "USE_MXFP8_BLOCK_SCALING": "1"},
    {"OVERRIDE_WGRAD": "on", "OVERRIDE_FPROP": "0"},
    {"OVERRIDE_DGRAD": "("},
    {"MARGIN": "two"},
    {"USE_AUTOCAST_DURING_EVAL": "maybe"},
    {"AMAX_HISTORY_LENGTH": "16", "AMAX_COMPUTE_ALGORITHM": "max"},
]


@pytest.mark.parametrize("arguments,named", list(itertools.product(ARGUMENTS, VARIABLES)))
def test_a_handler_has_the_values_of_accelerates(accelerate, variables, arguments, named):
    environment = {f"ACCELERATE_FP8_{name}": value for name, value in named.items()}
    variables(environment)
    found = effective(handler=arguments, environment=environment, device="b200")
    try:
        real = accelerate.utils.TERecipeKwargs(**arguments)
    except ValueError as error:
        assert found.error is not None and found.error.startswith("ValueError when TERecipeKwargs is made: ")
        assert str(error).removesuffix(".") in found.error
        return
    keywords = real.to_kwargs()
    assert found.in_eval == keywords.pop("use_autocast_during_eval", False) or found.error
    is_mx = keywords.pop("use_mxfp8_block_scaling", False)
    if found.error is None:
        assert found.keywords == keywords and (found.recipe == "MXFP8BlockScaling") == is_mx
    elif "E5M2" in found.error:
        assert keywords["fp8_format"] == "E5M2"
    else:
        assert is_mx and {"amax_compute_algo", "amax_history_len"} & set(keywords)


@pytest.mark.parametrize("level", [None, "O1", "O2", "O3", "o1"])
@pytest.mark.parametrize("variable", [None, "O1", "O4"])
def test_the_level_of_ms_amp_is_accelerates(accelerate, variables, level, variable):
    environment = {} if variable is None else {"ACCELERATE_FP8_OPT_LEVEL": variable}
    variables(environment)
    found = effective(handler=("MSAMPRecipeKwargs", {"opt_level": level}), environment=environment)
    try:
        wanted = accelerate.utils.MSAMPRecipeKwargs(opt_level=level).opt_level
    except ValueError:
        assert found.error == "ValueError when MSAMPRecipeKwargs is made: `opt_level` must be one of O1 or O2"
        return
    assert found.fields == {"opt_level": wanted} and found.recipe == f"MS-AMP {wanted}"
    assert [one.name for one in found.divergences] == ["loss_scale_stays"]


@pytest.mark.parametrize("arguments", [{}, {"pad_inner_dim": False}, {"enable_fsdp_float8_all_gather": False}])
@pytest.mark.parametrize("named", [{}, {"PAD_INNER_DIM": "no"}, {"ENABLE_FSDP_FLOAT8_ALL_GATHER": "False"}])
def test_the_configuration_of_torchao_is_accelerates(accelerate, variables, arguments, named):
    pytest.importorskip("torchao")
    environment = {f"ACCELERATE_FP8_{name}": value for name, value in named.items()}
    variables(environment)
    config = accelerate.utils.AORecipeKwargs(**arguments).config
    found = effective(handler=("AORecipeKwargs", arguments), environment=environment)
    assert found.fields["pad_inner_dim"] == config.pad_inner_dim
    assert found.fields["enable_fsdp_float8_all_gather"] == config.enable_fsdp_float8_all_gather
    assert config.cast_config_input.scaling_granularity.value == "tensorwise"


# 2. `accelerate launch`.

FP8_CONFIGS = [
    {},
    {"backend": "TE", "fp8_format": "E4M3", "amax_history_len": 16, "amax_compute_algo": "max"},
    {"backend": "TE", "use_mxfp8_block_scaling": True},
    {"amax_history_length": 16, "amax_compute_algorithm": "max", "optimization_level": "O1"},
    {"override_linear_precision": [False, False, True], "interval": 3},
    {"override_linear_precision": "(false, false, false)"},
    {"backend": "te"},
]
OPTIONS = [{}, {"fp8_backend": "te", "mixed_precision": "fp8"}, {"fp8_format": "E5M2", "fp8_amax_history_len": 3}]


@pytest.mark.parametrize("precision", ["fp8", "bf16", None])
@pytest.mark.parametrize("fp8_config,options", list(itertools.product(FP8_CONFIGS, OPTIONS)))
def test_launch_sets_the_variables_that_accelerates_sets(
    accelerate, variables, tmp_path, fp8_config, options, precision
):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import setup_fp8_env
    from fp8lab.te._accelerate_launch import launched

    variables({})
    content = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "NO", "num_processes": 1}
    content |= {"mixed_precision": precision} if precision else {}
    content["fp8_config"] = fp8_config
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(content))  # which is YAML
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    args = launch_command_parser().parse_args(["--config_file", str(file), *words, "script.py"])
    args, _, _ = _validate_launch_command(args)
    real = {"ACCELERATE_MIXED_PRECISION": str(args.mixed_precision)}
    if args.mixed_precision == "fp8":
        real = setup_fp8_env(args, real)
    assert launched(content, options, {})[0] == real
    found = effective(file, options=options)
    assert found.mixed_precision == args.mixed_precision


def test_each_way_in_which_a_file_goes_wrong_is_told(tmp_path):
    launched = lambda **fp8: effective({"mixed_precision": "fp8", "fp8_config": {"backend": "TE", **fp8}})
    names = lambda found: [one.name for one in found.divergences]
    assert names(launched(amax_compute_algo="max")) == []
    assert names(launched(amax_history_length=16, amax_compute_algo="max")) == ["unread_variable"]
    assert "amax_history_len" in str(launched(amax_history_length=16))
    assert launched(override_linear_precision="(false, false, false)").error.endswith("invalid truth value (")
    assert "upper case: TE" in launched(backend="te").error
    assert "one of TE, AO, MSAMP" in launched(backend="MS-AMP").error
    assert launched(amax_history_len=16).sources["amax_history_len"] == "YAML"
    found = launched(amax_compute_algo="max", interval=4)
    assert names(found) == ["unknown_to_backend"] and found.fields["amax_compute_algo"] == "max"
    other = launched(backend="MSAMP", opt_level="O1", amax_history_len=16)
    assert names(other) == ["loss_scale_stays", "of_another_backend"]
    assert other.divergences[1].asked == "ACCELERATE_FP8_AMAX_HISTORY_LEN=16 (YAML)"
    assert names(launched(amax_compute_algo="max", pad_inner_dim=True)) == ["of_another_backend"]
    file = tmp_path / "broken.yaml"
    file.write_text("a: [")
    pytest.importorskip("yaml")
    with pytest.raises(ValueError, match="is no YAML"):
        effective(file)
    with pytest.raises(FileNotFoundError, match=r"^cannot read .*none\.yaml: No such file or directory$"):
        effective(tmp_path / "none.yaml")


# 3. Where the request is lost: releases, precision, distribution.


def test_most_recent_cannot_be_had():
    for handler in ({}, {"amax_compute_algo": "most_recent"}):
        found = effective(handler=handler)
        assert found.fields["amax_compute_algo"] == "max" and [one.name for one in found.divergences] == [
            "equals_default"
        ]
    assert effective(handler={"amax_compute_algo": "max"}).divergences == ()


def test_older_releases_lose_other_requests():
    old = effective(
        handler={"fp8_format": "E4M3", "amax_history_len": 1}, accelerate="0.25.0", transformer_engine="1.3"
    )
    assert (old.fields["fp8_format"], old.fields["amax_history_len"]) == ("HYBRID", 1024)
    oldest = effective(handler={}, accelerate="0.18.0", transformer_engine="0.6")
    assert oldest.fields["amax_history_len"] == 1 and oldest.fields["amax_compute_algo"] == "most_recent"
    assert [one.asked for one in oldest.divergences] == ["fp8_format='E4M3' (the documented default)"]
    override = effective(
        handler={"override_linear_precision": (False, False, True)}, accelerate="1.10.1", transformer_engine="1.13.0"
    )
    assert override.fields["override_linear_precision"] == (False, False, True)
    assert "ImportError" in effective(handler={}, accelerate="1.11.0", transformer_engine="1.13.0").error
    assert effective(handler=("FP8RecipeKwargs", {"backend": "msamp"})).error.startswith(
        "MS-AMP refuses opt_level None"
    )
    means_ms_amp = effective(handler={"fp8_format": "E4M3", "margin": 0}, accelerate="0.30.0")
    assert means_ms_amp.backend == "MSAMP"
    assert [one.asked for one in means_ms_amp.divergences if one.name == "of_another_backend"] == [
        "margin=0 (argument)", "fp8_format='E4M3' (argument)",
    ]  # fmt: skip
    level = effective(handler={"backend": "TE", "opt_level": "O1"}, accelerate="0.30.0")
    assert "opt_level='O1' (argument)" in [one.asked for one in level.divergences]
    interval = effective(handler={"interval": 3}, accelerate="1.10.1", transformer_engine="2.1.0")
    assert "unused_by_backend" in [one.name for one in interval.divergences]


def test_precision_and_distribution_decide_whether_there_is_fp8():
    assert "needs mixed_precision='fp8'" in effective(handler={}, mixed_precision="bf16").error
    left = effective(environment={"ACCELERATE_FP8_BACKEND": "TE"}, mixed_precision="bf16")
    assert left.enters_fp8 and [one.name for one in left.divergences] == ["backend_left_in_environment"]
    assert effective(environment={"ACCELERATE_FP8_BACKEND": "AO"}, mixed_precision="bf16").error.startswith(
        "AttributeError"
    )
    assert effective(mixed_precision="bf16").recipe is None
    old_gpu = effective(handler={"amax_compute_algo": "max"}, device=(8, 0))
    assert old_gpu.mixed_precision == "fp16" and old_gpu.enters_fp8
    fsdp2 = effective(handler={"amax_compute_algo": "max"}, distributed="fsdp2")
    assert fsdp2.layers_converted and not fsdp2.enters_fp8
    deepspeed = effective(handler={"amax_compute_algo": "max", "fp8_format": "E4M3"}, distributed="deepspeed")
    assert deepspeed.keywords == {} and [one.name for one in deepspeed.divergences] == ["lost_under_deepspeed"]
    assert effective(mixed_precision="fp8", installed=()).error.startswith("ImportError")
    assert effective(mixed_precision="fp8", installed=("transformer_engine", "torchao")).backend == "AO"


WRONG = [
    ({"accelerate": "0.1.0"}, ValueError, "begin with accelerate 0.18"),
    ({"transformer_engine": "newest"}, ValueError, "must be a release such as"),
    ({"distributed": "horovod"}, ValueError, "no, ddp, fsdp"),
    ({"handler": 3}, TypeError, "arguments by name"),
    ({"handler": {"optimization_level": "O1"}}, TypeError, "has no argument 'optimization_level'"),
    ({"handler": ("Recipe", {})}, ValueError, "has no handler 'Recipe'"),
    ({"options": {"fp8_backend": "TE"}}, ValueError, "ao, te, msamp"),
    ({"options": {"lr": 1}}, ValueError, "no option 'lr'"),
    ({"options": {"fp8_margin": 1}, "accelerate": "1.8.0"}, ValueError, "from accelerate 1.9"),
    ({"config": {"fp8_config": [1]}}, ValueError, "named entries"),
    ({"config": "missing.yaml"}, OSError, "missing.yaml"),
    ({"device": "a100"}, ValueError, "known: h100"),
    ({"device": 8.9}, TypeError, "compute capability"),
]


@pytest.mark.parametrize("arguments,kind,words", WRONG)
def test_what_is_no_request_is_refused(arguments, kind, words):
    with pytest.raises(kind, match=words):
        effective(**arguments)


# 4. Which layers.


def models():
    from torch import nn

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(32, 32)
            self.second = self.first
            self.inner = nn.Sequential(self.first, nn.LayerNorm(32))

    return {
        "stops at the first": nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 10), nn.Linear(32, 32), nn.LayerNorm(32)),
        "stops in its container": nn.Sequential(
            nn.Sequential(nn.Linear(10, 16), nn.Sequential(nn.Linear(16, 16))), nn.Linear(16, 32), nn.LayerNorm(32)
        ),
        "attention": nn.TransformerEncoderLayer(32, 2, 64),
        "tied": Tied(),
        "root": nn.Linear(32, 32),
        "norm without bias": nn.Sequential(nn.LayerNorm(32, bias=False), nn.Linear(32, 16)),
    }


MODELS = ("stops at the first", "stops in its container", "attention", "tied", "root", "norm without bias")


@pytest.mark.parametrize("name", MODELS)
def test_torchao_converts_the_layers_that_are_told(accelerate, name):
    pytest.importorskip("torchao")
    from accelerate.utils.ao import convert_model_to_fp8_ao

    model = models()[name]
    if name == "root":
        pytest.skip("torchao returns another root, which accelerate drops")
    told = {one.name for one in converted_layers(model, "AO") if one.becomes}
    convert_model_to_fp8_ao(model)
    assert {path for path, one in model.named_modules() if type(one).__name__ == "Float8Linear"} == told


# 5. The real Accelerator, with Transformer Engine's own Python on fp8lab: a process for all cases.

REQUESTS = [
    {"handler": {}},
    {"handler": {"amax_compute_algo": "max", "amax_history_len": 32}},
    {"handler": {"fp8_format": "E4M3", "margin": 1}},
    {"handler": {"fp8_format": "E5M2"}},
    {"handler": {"interval": 4, "override_linear_precision": [False, False, True]}},
    {"handler": {"use_autocast_during_eval": True}},
    {"handler": {"use_mxfp8_block_scaling": True}},
    {"handler": {"use_mxfp8_block_scaling": True, "amax_history_len": 4}},
    {"handler": {}, "mixed_precision": "bf16"},
    {"environment": {"BACKEND": "TE", "AMAX_COMPUTE_ALGO": "max"}, "mixed_precision": "fp8"},
    {"environment": {"BACKEND": "te"}, "mixed_precision": "fp8"},
    {"environment": {"BACKEND": "TE", "FORMAT": "E4M3"}, "mixed_precision": "bf16"},
    {"environment": {"BACKEND": "AO"}, "mixed_precision": "bf16"},
    {"environment": {"OVERRIDE_FPROP": "(", "BACKEND": "TE"}, "mixed_precision": "fp8"},
    {"environment": {}, "mixed_precision": "fp8"},
]
if "FP8LAB_EXHAUSTIVE" not in os.environ:
    REQUESTS = REQUESTS[::2]
for request in REQUESTS:
    request["environment"] = {f"ACCELERATE_FP8_{name}": value for name, value in request.get("environment", {}).items()}
#: What the messages of accelerate or Transformer Engine and of fp8lab have in common.
COMMON = (
    "E5M2",
    "not available",
    "not supported for MXFP8",
    "mixed_precision='fp8'",
    "FP8BackendType",
    "truth value (",
)


def check_request(request, real, device):
    """What accelerate did is what effective_recipe tells."""
    found = effective(**request, device=device)
    if "error" in real:
        assert found.error is not None and found.error.startswith(real["error"]), (request, real)
        common = [words for words in COMMON if words in real["message"]]
        assert [words for words in COMMON if words in found.error] == common, (request, real)
        return
    assert found.error is None and found.backend == real["backend"] and found.mixed_precision == real["precision"], (
        request
    )
    if found.backend == "TE":
        assert found.recipe == real["recipe"], request
        assert {name: real["fields"][name] for name in found.fields} == found.fields, request
        assert (real["training"], real["evaluation"]) == (found.enters_fp8, found.in_eval), request


@pytest.mark.parametrize("device", DEVICES)
def test_the_real_accelerator_does_what_is_told(accelerate, device):
    script = Path(__file__).with_name("real_accelerate.py")
    done = warm.run("--device", device, script, input=json.dumps([REQUESTS, list(MODELS)]))
    assert done.returncode == 0, done.stderr[-3000:]
    real = json.loads(done.stdout.splitlines()[-1])
    for request, outcome in zip(REQUESTS, real["requests"], strict=True):
        check_request(request, outcome, device)
    for name in MODELS:
        told = {one.name: one.becomes for one in converted_layers(models()[name], "TE") if one.becomes}
        assert real["models"][name] == told
    assert real["compared"]["by hand"] == real["compared"]["by accelerate"]
    ms_amp = real["ms_amp"]
    assert ms_amp["available"] and ms_amp["by hand"] == ms_amp["by accelerate"] and len(set(ms_amp["by hand"])) > 4
    assert ms_amp["kinds"] == ["fp8lab.msamp._linear", "fp8lab.msamp._optimizers"]
    assert ms_amp["distributed"] == "FP8DistributedDataParallel"
    modules = real["modules"]
    assert modules["before"] == [True, True, ["ms-amp"], "fp8lab.msamp._distributed"]
    assert modules["version"] == ["0.4.0"] * 2
    assert modules["after"] == [False, False, [], "torch.nn.parallel.distributed"]
    trained = real["trained"]
    assert trained["resumed"] == trained["after"] and len(set(trained["before"] + trained["after"])) == 6
    assert [key for key in trained["keys"] if key.endswith("_extra_state")]
