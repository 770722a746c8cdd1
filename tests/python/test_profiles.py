# SPDX-License-Identifier: Apache-2.0
"""Profiles named after packages are the packages': compared with each package that is here, from every source type.

The source of a profile begins with the package and the version on which it was measured. Where the package of today
gives other codes, the failure begins with "drifted" and names both versions.
"""

import functools
import importlib
import re

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import splitmix

pytestmark = pytest.mark.sample(2)

DTYPES = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e4m3fnuz": "float8_e4m3fnuz",
    "e5m2fnuz": "float8_e5m2fnuz",
    "e8m0": "float8_e8m0fnu",
    "e3m4": "float8_e3m4",
    "e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn",
    "e2m1": "float4_e2m1fn",
    "bfloat16": "bfloat16",
}
FP8 = ["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"]
ONNX = {name: DTYPES[name].upper().replace("_", "") for name in FP8}
ONNX |= {"e8m0": "FLOAT8E8M0", "e2m3": "FLOAT6E2M3", "e3m2": "FLOAT6E3M2", "e2m1": "FLOAT4E2M1"}
SOURCES = ["float32", "float64", "float16", "bfloat16"]
EXACT = [
    "cuda_satfinite",
    "cuda_nosat",
    "ieee",
    "e8m0_cuda_up",
    "e8m0_cuda_up_nosat",
    "e8m0_cuda_zero",
    "e8m0_cuda_zero_nosat",
]


def around(x: np.ndarray, steps: int) -> np.ndarray:
    """Each x and its neighbours, up to ``steps`` away on both sides."""
    found = [x]
    for end in (np.inf, -np.inf):
        near = x
        for _ in range(steps):
            near = np.nextafter(near, x.dtype.type(end))
            found.append(near)
    return np.unique(np.concatenate(found))


def with_signs(magnitudes: np.ndarray, nans: list[int]) -> np.ndarray:
    """Both signs of all, with zero, infinity and NaNs of several payloads."""
    word = np.uint32 if magnitudes.dtype == np.float32 else np.uint64
    magnitudes = np.abs(magnitudes[np.isfinite(magnitudes)])
    words = np.concatenate(
        [np.append(magnitudes, [0, np.inf]).astype(magnitudes.dtype).view(word), np.array(nans, word)]
    )
    return np.concatenate([words, words | word(1 << (8 * words.itemsize - 1))]).view(magnitudes.dtype)


@functools.cache
def inputs(name: str, source: str) -> np.ndarray:
    """All halves and bfloat16s; every boundary, midpoint and neighbour of the format, and float32 ties next to them."""
    if source == "float16":
        return np.arange(65536, dtype=np.uint16).view(np.float16)
    if source == "bfloat16":
        return np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)
    dtype = np.dtype(getattr(ml_dtypes, DTYPES[name]))
    codes = np.arange(0, 1 << ml_dtypes.finfo(dtype).bits, 97 if name == "bfloat16" else 1)
    with np.errstate(invalid="ignore"):
        values = codes.astype(np.uint8 if dtype.itemsize == 1 else np.uint16).view(dtype).astype(np.float64)
    values = np.unique(np.abs(values[np.isfinite(values)]))
    values = np.append(values, [2 * values[-1] - values[-2], 2 * values[-1]])  # where the next would be
    edges = np.ldexp(1.0, np.array([-149, -148, -134, -133, -127, -126, 14, 15, 16, 127]))
    points = np.unique(np.concatenate([values, (values[1:] + values[:-1]) / 2, edges, [np.finfo(np.float32).max]]))
    with np.errstate(over="ignore"):
        near = around(points[points < 2.0**128].astype(np.float32), 2)
        if source == "float32":
            more = splitmix(15, 1 << 15).astype(np.uint32).view(np.float32)
            nans = [0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FC00001, 0x7FE00000, 0x7FFFFFFF]
            return with_signs(np.concatenate([near, more]), nans)
        near = near[np.isfinite(near)]
        above = np.nextafter(near, np.float32(np.inf)).astype(np.float64)
        above[np.isinf(above)] = 2.0**128
    ties = near + (above - near) / 2
    beyond = np.array([5e-324, 2.0**-1022, 2.0**-151, 2.0**-150, 2.0**128, 2.0**129, 1e300, np.finfo(np.float64).max])
    words = splitmix(16, 1 << 15)
    exponents = np.uint64(1023 - 160) + words % np.uint64(300)
    more = (words >> np.uint64(12) | exponents << np.uint64(52)).view(np.float64)
    nans = [w << 48 for w in (0x7FF4, 0x7FF8, 0x7FFC, 0x7FFF)] + [0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF]
    with np.errstate(over="ignore"):
        return with_signs(np.concatenate([around(np.concatenate([near, points, ties, beyond]), 1), more]), nans)


def from_ml_dtypes(name, x):
    with np.errstate(all="ignore"):
        codes = x.astype(getattr(ml_dtypes, DTYPES[name]))
    return codes.view(np.uint8 if codes.itemsize == 1 else np.uint16)


def tensor(x):
    torch = importlib.import_module("torch")
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def from_torch(name, x):
    torch = importlib.import_module("torch")
    return tensor(x).to(getattr(torch, DTYPES[name])).view(torch.uint8).numpy()


def from_torchao(name, x):
    # PyTorch's clamp of bfloat16 makes the NaNs negative that lie in whole vectors, hence float32.
    torch = importlib.import_module("torch")
    saturated = importlib.import_module("torchao.float8.float8_utils").to_fp8_saturated
    x = tensor(x)
    x = x.float() if x.dtype == torch.bfloat16 else x
    return saturated(x, getattr(torch, DTYPES[name])).view(torch.uint8).numpy()


def from_clamp(name, x):
    torch = importlib.import_module("torch")
    dtype = getattr(torch, DTYPES[name])
    largest = torch.finfo(dtype).max
    return tensor(x).float().clamp(-largest, largest).to(dtype).view(torch.uint8).numpy()


def from_onnx(name, x, **attributes):
    """Cast of the newest opset, by the reference evaluator."""
    onnx = importlib.import_module("onnx")
    evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator
    to = getattr(onnx.TensorProto, ONNX[name], None)
    if to is None:
        pytest.skip(f"onnx {onnx.__version__} has no {ONNX[name]}")
    node = onnx.helper.make_node("Cast", ["x"], ["y"], to=to, **attributes)
    source = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    values = [onnx.helper.make_tensor_value_info(*of, [None]) for of in (("x", source), ("y", to))]
    graph = onnx.helper.make_graph([node], "cast", values[:1], values[1:])
    opset = onnx.helper.make_opsetid("", min(onnx.defs.onnx_opset_version(), 25))
    with np.errstate(all="ignore"):
        codes = evaluator(onnx.helper.make_model(graph, opset_imports=[opset])).run(None, {"x": x})[0]
    return codes.view(np.uint8)


def drift(profile, package, version, name, source, x, codes, reference):
    """What to say where codes and reference differ; None where they are equal."""
    differ = np.flatnonzero(codes != reference)
    if not differ.size:
        return None
    measured = re.match(r"\S+ (\S+)", fp8lab._core.find_profile(profile).source).group(1)
    state = "wrong" if version == measured else "drifted"
    word = x.view(f"u{x.itemsize}")[differ[0]]
    return (
        f"{state}: {package} {version}, measured on {measured}: {differ.size} of {x.size} codes of {profile}, {name} from {source} differ;"
        f" {word:0{2 * x.itemsize}x} gives {codes[differ[0]]:02x}, in the package {reference[differ[0]]:02x}"
    )


CASES = [("ml_dtypes", "ml_dtypes", from_ml_dtypes, {}, name) for name in DTYPES]
CASES += [("torch_2_13", "torch", from_torch, {}, name) for name in [*FP8, "e8m0"]]
CASES += [("e8m0_torch", "torch", from_torch, {}, "e8m0")]
CASES += [("clamp_then_cast", "torch", from_clamp, {}, name) for name in FP8]
CASES += [("clamp_then_cast", "torchao", from_torchao, {}, name) for name in FP8]
CASES += [("onnx_saturate", "onnx", from_onnx, {"saturate": 1}, name) for name in ONNX if name != "e8m0"]
CASES += [("onnx", "onnx", from_onnx, {"saturate": 0}, name) for name in ONNX if name != "e8m0"]
CASES += [
    (f"e8m0_onnx_{mode}{suffix}", "onnx", from_onnx, {"saturate": saturate, "round_mode": mode}, "e8m0")
    for mode in ("up", "down", "nearest")
    for saturate, suffix in ((1, ""), (0, "_nosat"))
]


@pytest.mark.parametrize(
    ("profile", "package", "cast", "options", "name"),
    CASES,
    ids=[" ".join((case[0], case[1], case[4])) for case in CASES],
)
def test_a_profile_is_the_package(profile, package, cast, options, name):
    version = pytest.importorskip(package, reason=f"{package} is not installed").__version__.split("+")[0]
    for source in SOURCES:
        if source == name:
            continue  # no cast at all: NaNs stay as they are
        x = inputs(name, source)
        codes = fp8lab.encode(x, name, profile=profile)
        said = drift(profile, package, version, name, source, x, codes, cast(name, x, **options))
        assert said is None, said


def test_a_package_that_changes_its_rules_is_said_to_have_drifted():
    x = inputs("e4m3", "float64")
    exact = fp8lab.Profile(overflow="to_special", infinity="to_special", nan="sign_quiet")
    once, twice = (fp8lab.encode(x, "e4m3", profile=profile) for profile in (exact, "ml_dtypes"))
    said = drift("ml_dtypes", "ml_dtypes", "9.1.0", "e4m3", "float64", x, twice, once)
    assert said.startswith("drifted: ml_dtypes 9.1.0, measured on 0.6.0: ")
    assert re.search(
        r"of ml_dtypes, e4m3 from float64 differ; [0-9a-f]{16} gives [0-9a-f]{2}, in the package [0-9a-f]{2}$", said
    )
    assert drift("ml_dtypes", "ml_dtypes", "0.6.0", "e4m3", "float64", x, twice, once).startswith(
        "wrong: ml_dtypes 0.6.0"
    )
    assert drift("ml_dtypes", "ml_dtypes", "9.1.0", "e4m3", "float64", x, twice, twice) is None


def test_the_inputs_tell_float32_first_from_one_rounding():
    # In each format, from float64: else a comparison with a package could not see the difference.
    for name in DTYPES:
        x = inputs(name, "float64")
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = x.astype(np.float32)
        assert np.count_nonzero(fp8lab.encode(x, name) != fp8lab.encode(narrow, name)) > 5, name


def test_profiles_say_which_way_float64_goes():
    profiles = {profile.name: profile for profile in fp8lab.profiles()}
    x = np.float64(1.0625 + 2**-52)  # the double next to a tie
    for name, profile in profiles.items():
        assert ("float64 is rounded to float32 first" in str(profile)) == profile.float64_via_float32
        assert ("float64 is rounded once" in str(profile)) != profile.float64_via_float32
        if name in EXACT:
            assert not profile.float64_via_float32
        if not name.startswith("e8m0"):
            assert fp8lab.encode(x, "e4m3", profile=profile) == (0x38 if profile.float64_via_float32 else 0x39)
    assert [name for name in profiles if not profiles[name].float64_via_float32] == [*EXACT, "e8m0_ml_dtypes_saturate"]


def test_every_profile_names_the_version_it_was_measured_on():
    for profile in fp8lab.profiles():
        known = r"(CUDA \d+\.\d+ |(ml_dtypes|PyTorch|onnx) \d+\.\d+\.\d+ |DeepGEMM at [0-9a-f]{7}|IEEE 754-2019)"
        assert re.match(known, profile.source), profile.source
