# SPDX-License-Identifier: Apache-2.0
"""The page that computes in a browser gives the bits of the package: node runs its WebAssembly, where ``./dev docs`` has made it."""

import base64
import json
import shutil
import subprocess

import fp8lab
import numpy as np
import pytest
from command import ROOT

COMPILED = ROOT / "build" / "browser" / "fp8lab.wasm"
PAGE = ROOT / "bindings" / "browser" / "page.js"
ROOMS = (
    "formats/include",
    "formats/src",
    "reference/include",
    "reference/src",
    "experiments/explain",
    "experiments/dot",
    "bindings/browser",
)
FORMATS = [one.name for one in fp8lab.formats()]
ROUNDINGS = ["nearest_even", "nearest_away", "nearest_toward_zero", "toward_zero", "upward", "downward", "to_odd"]


def is_made():
    made = COMPILED.stat().st_mtime if COMPILED.exists() else 0
    return all(path.stat().st_mtime < made for room in ROOMS for path in (ROOT / room).rglob("*.[ch]pp"))


pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not is_made(), reason="./dev docs makes the page's library of these sources"),
]


def base64_of(numbers):
    return base64.b64encode(np.asarray(numbers, np.float64).tobytes()).decode()


def array_of(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


def asked(**parts):
    request = {**dict.fromkeys(("decode", "encode", "cast", "dot", "read", "sides"), []), **parts}
    done = subprocess.run(
        ["node", ROOT / "tests/docs/try_it.js", PAGE, COMPILED],
        input=json.dumps(request),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def all_codes(name):
    bits = next(one.bits for one in fp8lab.formats() if one.name == name)
    return np.arange(2**bits, dtype=np.uint8 if bits <= 8 else np.uint16)


def telling_numbers(name):
    """Every tie of the format with the numbers beside it, its values, and numbers far beyond them."""
    values = np.unique(fp8lab.decode(all_codes(name), name).astype(np.float64))
    values = values[np.isfinite(values)]
    if values.size > 1000:
        values = values[:: values.size // 500]
    ties = values[:-1] / 2 + values[1:] / 2
    beyond = np.r_[
        values[-2:] * 1.03125,
        values[-1] * 1.0625,
        values[-1] * 2,
        1e30,
        1e-30,
        1e300,
        5e-324,
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
    ]
    drawn = np.random.default_rng(1).standard_normal(100) * np.exp2(np.random.default_rng(2).integers(-20, 20, 100))
    return np.concatenate(
        [values, ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf), beyond, -beyond, drawn]
    )


def test_it_has_the_lists_of_the_package():
    lists = asked()["lists"]
    assert [one["name"] for one in lists["formats"]] == FORMATS
    assert [one["name"] for one in lists["profiles"]] == [one.name for one in fp8lab.profiles()]
    assert [one["name"] for one in lists["models"]] == [one.name for one in fp8lab.models()]
    assert {*lists["roundings"]} == {*ROUNDINGS, "stochastic"}
    assert sum(one["offered"] for one in lists["models"]) > 40


def test_it_decodes_every_code():
    for name, text in zip(FORMATS, asked(decode=FORMATS)["decoded"]):
        np.testing.assert_array_equal(
            array_of(text, np.float64), fp8lab.decode(all_codes(name), name).astype(np.float64), err_msg=name
        )


def test_it_casts_as_the_package_does():
    rules = [(one.name, None) for one in fp8lab.profiles()] + [("cuda_satfinite", rounding) for rounding in ROUNDINGS]
    cases = [(name, *rule) for name in FORMATS for rule in rules]
    numbers = {name: telling_numbers(name) for name in FORMATS}
    encode = [{"format": f, "profile": p, "rounding": r, "numbers": base64_of(numbers[f])} for f, p, r in cases]
    for (name, profile, rounding), text in zip(cases, asked(encode=encode)["encoded"]):
        expected = fp8lab.encode(
            numbers[name], name, profile=profile, **({} if rounding is None else {"rounding": rounding})
        )
        np.testing.assert_array_equal(array_of(text, np.uint32), expected, err_msg=f"{name} {profile} {rounding}")


def test_it_tells_the_tie_and_the_neighbours():
    tie, between, above = asked(cast=[{"x": x, "format": "e4m3"} for x in (0.296875, 0.3, 1000)])["casts"]
    assert (
        tie["neighbours"]["is_tie"] and tie["result"]["code"] == "0x2A" and tie["neighbours"]["tie_fraction"] == "19/64"
    )
    assert between["neighbours"]["below"]["code"] == "0x29" and between["neighbours"]["above"]["code"] == "0x2A"
    assert between["result"]["bits"] == "0 0101 010" and not between["neighbours"]["is_tie"]
    assert (
        above["result"]["value"] == 448 and above["neighbours"]["above"] is None and above["neighbours"]["tie"] is None
    )


@pytest.mark.parametrize("c", [0.0, 13.25])
def test_its_dot_products_are_those_of_the_package(c):
    names = {one["name"]: one for one in asked()["lists"]["models"] if one["offered"]}
    draws = np.random.default_rng(5)
    cases = []
    for name, model in names.items():
        depth = 2 * model["products"] or 40
        a, b = (draws.standard_normal(depth) * np.exp2(draws.integers(-6, 5, depth)) for _ in range(2))
        cases.append((name, model["operands"][0], a, b))
    dots = asked(dot=[{"model": m, "format": f, "a": base64_of(a), "b": base64_of(b), "c": c} for m, f, a, b in cases])[
        "dots"
    ]
    for (name, format, a, b), found in zip(cases, dots):
        trace = fp8lab.trace_dot(
            fp8lab.encode(a, format), fp8lab.encode(b, format), model=name, format_a=format, format_b=format, c=c
        )
        assert found["result"]["word"] == "0x" + trace.tables["result"].rows[0]["word"].upper(), name
        steps = [
            step["after"]["word"].removeprefix("0x").lower() for one in found["instructions"] for step in one["steps"]
        ]
        assert steps == [row["after"] for row in trace.tables["steps"].rows], name


def test_what_it_cannot_read_is_told():
    answers = asked(
        read=["5/16", "0x2A", " -inf ", "1e-3", "", "three"],
        sides=[
            {"text": "1, 0x38 2", "format": "e4m3"},
            {"text": "0x138", "format": "e4m3"},
            {"text": "  ", "format": "e4m3"},
        ],
        dot=[
            {"model": "hopper_wgmma_fp8", "format": format, "a": base64_of([1.5]), "b": base64_of([2.0]), "c": 0}
            for format in ("float16", "e5m2")
        ],
    )
    assert answers["read"][:2] == [{"x": 0.3125}, {"code": 42}] and answers["read"][3] == {"x": 0.001}
    assert all("is no number: write 0.3" in one["error"] for one in answers["read"][4:])
    assert answers["sides"][0] == [1, 1, 2]
    assert [one["error"] for one in answers["sides"][1:]] == ["0x138 in a is no code of 8 bits", "a has no numbers"]
    refused, right = answers["dots"]
    assert "e4m3, e5m2" in refused["error"] and "float16" in refused["error"]
    assert right["result"]["value"] == 3  # after what it refused it goes on
