# SPDX-License-Identifier: Apache-2.0
import functools
import importlib.util
import json
import pathlib
import re
import zlib

import fp8lab
import numpy as np
import pytest
from sampled import EXHAUSTIVE, sampled
from test_profiles import CASES

ROOT = pathlib.Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors" / "mma_sim.json"
# Measured on Ada, L40S, H100, H200 and B200 by Khattak and Mikaitis (MATLAB-tensor-core, BSD-2-Clause); not part of
# this project.
MEASURED = ROOT.parent / "shared" / "data" / "tensor_core_gpu_rows.json.gz"


def test_a_sample_is_exact_on_every_target(tmp_path):
    result = fp8lab.experiments.verify_casts(
        formats=["e4m3", "e2m1"], profiles=["cuda_satfinite"], chunks=2, threads=2, out=tmp_path
    )
    rows, checks = result.tables["rows"], result.tables["checks"]
    assert result.passed and not rows["mismatches"].any() and len(rows.rows) == 14
    for row in rows.rows:
        encoders = {
            check["encoder"]
            for check in checks.rows
            if all(check[name] == row[name] for name in ("format", "profile", "rounding"))
        }
        assert set(fp8lab.targets()) <= encoders and row["inputs"] == 2 << 20
    assert "0 mismatches: verified" in str(result)
    assert (tmp_path / "verify_casts.json").read_text() == result.to_json()


def test_wrong_arguments_are_named():
    for call, error, message in [
        (lambda: fp8lab.experiments.verify_casts(formats=["e4m4"]), ValueError, "unknown format 'e4m4'"),
        (lambda: fp8lab.experiments.verify_casts(formats=[3]), TypeError, "formats must be a name"),
        (lambda: fp8lab.experiments.verify_casts(all=1), TypeError, "all must be a bool"),
        (
            lambda: fp8lab.experiments.verify_casts(roundings=["stochastic"]),
            ValueError,
            "rounding .stochastic. depends on random bits",
        ),
        (lambda: fp8lab.experiments.verify_casts(chunks=0), ValueError, "chunks must be from 1 to 4096"),
        (lambda: fp8lab.experiments.verify_casts(out=3), TypeError, "out must be a path"),
    ]:
        with pytest.raises(error, match=message):
            call()


def packages():
    """What each package that is here makes of floats, by the format and the profile that say the same."""
    return {
        (name, profile): functools.partial(cast, name, **options)
        for profile, package, cast, options, name in CASES
        if importlib.util.find_spec(package)
    }


def test_digests_are_crc32_of_codes_in_the_order_of_patterns():
    # Over all floats a digest takes a package half a minute (below); here is its rule, on the floats of one chunk.
    x = (np.arange(1 << 20, dtype=np.uint32) + np.uint32(0x3F8 << 20)).view(np.float32)
    for (format, profile), cast in packages().items():
        assert zlib.crc32(fp8lab.encode(x, format, profile=profile)) == zlib.crc32(cast(x))


@pytest.mark.skipif(not EXHAUSTIVE, reason="all 2^32 floats: ./dev test --exhaustive")
def test_the_packages_themselves_give_the_digests_that_are_kept():
    rounding = {profile.name: profile.rounding for profile in fp8lab.profiles()}
    kept = {(format, profile): int(crc, 16) for format, profile, mode, crc in re.findall(
        r'\{"(\w+)", "(\w+)", "(\w+)", 0x(\w+)\}', (ROOT / "experiments/verify/cast_digests.hpp").read_text())
        if mode == rounding[profile]}  # fmt: skip
    casts = packages()
    crc = dict.fromkeys(casts, 0)
    for chunk in range(4096):
        x = (np.arange(1 << 20, dtype=np.uint32) + np.uint32(chunk << 20)).view(np.float32)
        for key, cast in casts.items():
            crc[key] = zlib.crc32(cast(x), crc[key])
    for key, value in crc.items():
        assert value == kept[key], key


def test_tensor_cores_are_equal_on_every_target_and_to_mma_sim(tmp_path):
    """An ordinary run takes some models, for the test of the command in C++ takes all."""
    dots = 3000 if EXHAUSTIVE else 30
    models = sampled([model.name for model in fp8lab.models()], 4)
    result = fp8lab.experiments.verify_tensor_cores(models=models, dots=dots, vectors=VECTORS, threads=2, out=tmp_path)
    rows, checks = result.tables["rows"], result.tables["checks"]
    assert result.passed and not rows["mismatches"].any() and "0 mismatches: verified" in str(result)
    counts = {kind: rows["compared"][rows["kind"] == kind].sum() for kind in ("vectors", "chains")}
    file = json.loads(VECTORS.read_text())
    held = {"vectors": file["groups"], "chains": 2 * file["chains"]}  # fast and promoted
    assert counts == {kind: sum(len(one["rows"]) for one in of if one["model"] in models) for kind, of in held.items()}
    assert min(counts.values()) > 0 and (counts == {"vectors": 5282, "chains": 540} or not EXHAUSTIVE)
    assert rows["model"][rows["kind"] == "targets"].tolist() == models
    for model in models:
        held = (checks["model"] == model) & (checks["kind"] == "targets")
        assert checks["set"][held].tolist() == fp8lab.targets()[:-1]
        assert (checks["compared"][held] >= dots).all()
    assert (tmp_path / "verify_tensor_cores.json").read_text() == result.to_json()


def test_tensor_cores_give_the_words_that_devices_gave():
    if not MEASURED.exists():
        pytest.skip("the rows measured on devices are not here")
    result = fp8lab.experiments.verify_tensor_cores(dots=1, rows=MEASURED)
    measured = [check for check in result.tables["checks"].rows if check["kind"] == "GPU rows"]
    assert result.passed and len(measured) == 18 and sum(check["compared"] for check in measured) == 18000


def test_a_wrong_word_is_found(tmp_path):
    file = json.loads(VECTORS.read_text())
    group = file["groups"][0]
    group["rows"][5][-1] = "00000001"
    (tmp_path / "wrong.json").write_text(json.dumps(file))
    result = fp8lab.experiments.verify_tensor_cores(models=[group["model"]], dots=1, vectors=tmp_path / "wrong.json")
    (check,) = [check for check in result.tables["checks"].rows if check["mismatches"]]
    assert not result.passed and check["set"] == group["name"]
    assert check["first_index"] == 5 and check["first_expected"] == "00000001"


def test_wrong_arguments_of_verify_tensor_cores_are_named(tmp_path):
    (tmp_path / "cut.json").write_text(VECTORS.read_text()[:1000])
    verify = fp8lab.experiments.verify_tensor_cores
    for call, error, message in [
        (lambda: verify(models=["h100"]), ValueError, "unknown model 'h100'; known: "),
        (lambda: verify(models=["exact", "exact"]), ValueError, "has exact twice"),
        (lambda: verify(dots=0), ValueError, "dots must be from 1 to"),
        (lambda: verify(vectors=3), TypeError, "vectors must be a path"),
        (lambda: verify(vectors=tmp_path / "none"), OSError, "there is no such file"),
        (lambda: verify(vectors=tmp_path / "cut.json"), OSError, "it is not JSON, or a part of it is missing"),
        (lambda: verify(rows=VECTORS), OSError, "does not have the form of rows measured on GPUs"),
    ]:
        with pytest.raises(error, match=message):
            call()
