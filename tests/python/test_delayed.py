# SPDX-License-Identifier: Apache-2.0
"""Delayed scaling and its replay: against delayed_oracle.py."""

import csv
import dataclasses
import math

import fp8lab
import numpy as np
import pytest
from conftest import interrupted_after
from delayed_oracle import expected
from sampled import sampled


@pytest.fixture(scope="module")
def trace(floats) -> dict[str, np.ndarray]:
    """Amaxes near 1 and of any exponent, with zeros, infinities, NaN and subnormals among them."""
    near = np.float32(1) + np.abs(np.frexp(floats[:400])[0])
    near[~np.isfinite(near)] = 1
    anywhere = np.abs(floats[1000:1400])
    anywhere[~np.isfinite(anywhere)] = 0
    strange = near.copy()
    strange[20::50], strange[30:40], strange[70::90], strange[85::120] = np.inf, 0, np.nan, 1e-42
    return {"near": near, "anywhere": anywhere, "strange": strange}


def column(result, tensor, name):
    """A column of the table of scales, for one tensor."""
    table = result.tables["scales"]
    return table[name][table["tensor"] == tensor]


def scales_of(result, tensor, variant):
    """The scales of a tensor's casts by a variant, and the one after the last; float64 of float32."""
    summary = result.tables["summary"]
    after = summary["next_scale"][(summary["tensor"] == tensor) & (summary["variant"] == variant)]
    return np.append(column(result, tensor, variant.replace(" ", "_")), after)


@pytest.mark.parametrize("margin", sampled([3, 0, -2], 3))
def test_every_scale_is_that_of_float32_operations(trace, floats, margin):
    # Within 2 ulps of 2^k, 1.5 * 2^k and 1.75 * 2^k, where quotients and logarithms round to another side.
    words = floats[2000:2400].view(np.uint32)
    corners = (words % 250 + 2 << 23) + np.uint32([0, 0x400000, 0x600000])[words % 3] + (words >> 9) % 5 - 2
    trace = {**trace, "corners": corners.astype(np.uint32).view(np.float32)}
    versions = fp8lab.delayed_versions()
    result = fp8lab.experiments.delayed(
        trace, versions=versions, history=[1, 16], formats=["e4m3", "e5m2"], margin=margin
    )
    variants = result.tables["variants"].rows
    assert len(variants) == 2 * (12 * 3 + 6 * 2)
    for name, amaxes in trace.items():
        assert np.array_equal(column(result, name, "amax"), amaxes, equal_nan=True)
        for variant in variants:
            fp8_max = {"e4m3": 448, "e5m2": 57344}[variant["format"]]
            scales = expected(
                variant["version"], amaxes, variant["amax_history_len"], variant["amax_compute_algo"],
                variant["margin"], fp8_max,
            )  # fmt: skip
            replayed = scales_of(result, name, variant["name"])
            same = (replayed == scales) | (np.isnan(scales) & np.isnan(replayed))
            assert same.all(), (name, variant["name"], np.flatnonzero(~same)[:4])


def test_partings_are_where_the_scales_differ(trace):
    result = fp8lab.experiments.delayed(
        {"strange": trace["strange"]}, versions=["te_1_6", "te_1_6_unfused", "te_1_7"], history=16
    )
    first = scales_of(result, "strange", "te_1_6 max 16")[:-1]
    for row in result.tables["summary"].rows:
        scales = scales_of(result, "strange", row["variant"])[:-1]
        apart = np.flatnonzero(scales != first)
        assert row["steps_apart"] == apart.size
        if not apart.size:
            assert row["parts_at_step"] is row["widest_index"] is None and np.isnan(row["factor"])
            continue
        factors = scales[apart] / first[apart]
        widths = np.maximum(factors, 1 / factors)
        assert (row["parts_at_index"], row["parts_at_step"]) == (apart[0], apart[0] + 1)
        assert row["factor"] == factors[0]
        assert (row["widest_index"], row["widest_step"]) == (apart[np.argmax(widths)], apart[np.argmax(widths)] + 1)
        assert row["widest_factor"] == factors[np.argmax(widths)]
    assert result.tables["summary"]["steps_apart"].any()


def test_clipped_steps_and_unused_binades(trace):
    result = fp8lab.experiments.delayed({"near": trace["near"]}, versions="te_current", algorithms="most_recent")
    [row] = result.tables["summary"].rows
    scaled = trace["near"].astype(np.float64) * scales_of(result, "near", "te_current most_recent")[:-1]
    assert row["clipped_steps"] == np.count_nonzero(scaled > 464)  # half a unit above 448
    assert row["unused_binades"] == pytest.approx(np.mean(np.log2(448 / scaled)), abs=1e-12)


def test_a_history_gives_the_replay_step_by_step(trace):
    recipe = fp8lab.Delayed(amax_history_len=16, version="ms_amp", fp8_format="hybrid")
    history, used = fp8lab.AmaxHistory(recipe, backward=True), []
    for amax in trace["strange"]:
        history.record_amax(amax)
        used.append(history.scale)
        assert history.scale_inv == np.float32(1) / np.float32(history.scale)
        history.update_scale()
    result = fp8lab.experiments.delayed(trace, versions="ms_amp", history=16, formats="e5m2")
    assert scales_of(result, "strange", "ms_amp max 16 e5m2").tolist() == [*used, history.scale]


def test_golden_trace_of_both_updates():
    amaxes = [2, 0, 4, math.inf, 1, 1, 1]
    for version, histories in {
        "te_current": [[0, 0, 2], [0, 0, 2], [0, 2, 4], [0, 4, math.inf], [0, math.inf, 1], [0, 1, 1], [0, 1, 1]],
        "te_current_unfused": [
            [0, 0, 2],
            [0, 2, 0],
            [0, 0, 4],
            [0, 4, math.inf],
            [0, math.inf, 1],
            [0, 1, 1],
            [0, 1, 1],
        ],
    }.items():
        history = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=3, version=version))
        seen, scales = [], []
        for amax in amaxes:
            history.record_amax(amax)
            history.update_scale()
            seen.append(history.amaxes.tolist())
            scales.append(history.scale)
        assert seen == histories
        assert scales == [224, 224, 112, 112, 112, 112, 448]


def test_a_function_for_the_amax():
    seen = []

    def second_largest(history):
        seen.append(history)
        return np.sort(history)[-2]

    history = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=3, amax_compute_algo=second_largest))
    for amax in [8.0, 2.0, 4.0]:
        history.record_amax(amax)
        history.update_scale()
    assert [rows.tolist() for rows in seen] == [[8, 0, 0], [2, 0, 8], [4, 8, 2]]
    assert history.scale == 448 / 4
    broken = fp8lab.AmaxHistory(fp8lab.Delayed(amax_compute_algo=lambda history: "large"))
    with pytest.raises(TypeError, match="what amax_compute_algo returns must be a number"):
        broken.update_scale()


def test_a_row_of_the_history_is_a_view_of_it():
    def after(version, length, algo):
        recipe = fp8lab.Delayed(version=version, amax_history_len=length, amax_compute_algo=algo)
        history, scales = fp8lab.AmaxHistory(recipe), []
        for amax in [2.0, 4.0, 1.0, 8.0]:
            history.record_amax(amax)
            history.update_scale()
            scales.append(history.scale)
        return scales

    newest = [224, 112, 448, 56]
    for version in ["te_1_6", "te_1_6_unfused", "te_1_7", "te_1_7_unfused", "te_current", "te_current_unfused"]:
        for algo in [lambda h: h[0], lambda h: h[:1], lambda h: h[0, ...], lambda h: h.reshape(-1, 1)[0]]:
            assert after(version, 3, algo) == after(version, 1, algo) == [1, 1, 1, 1]
        assert after(version, 3, lambda h: h[-1]) == newest  # where the running step's amax has moved to
        for algo in [
            lambda h: h[0].copy(),
            lambda h: h[0] * 1,
            lambda h: float(h[0]),
            lambda h: h.max(where=[True, False, False], initial=0),
        ]:
            assert after(version, 3, algo) == newest
    for version in ["te_0_13", "te_1_4"]:
        assert after(version, 3, lambda h: h[0]) == newest
        assert after(version, 1, lambda h: h[0]) == [1, 1, 1, 1]
    assert after("te_0_1", 1, lambda h: h[0]) == [128, 64, 256, 32]


def test_a_function_that_raises_leaves_the_history_as_it_was():
    fails = []

    def algo(history):
        history[:] = 5  # of a copy
        if fails:
            raise ZeroDivisionError
        return max(history.tolist())

    for bad in [algo, lambda history: "large", lambda history: 1e39, lambda history: history, lambda history: None]:
        history = fp8lab.AmaxHistory(
            fp8lab.Delayed(
                amax_history_len=3, version="te_1_7", amax_compute_algo=lambda h: fails[0](h) if fails else 7
            )
        )
        for amax in [2.0, 4.0]:
            history.record_amax(amax)
            history.update_scale()
        history.record_amax(1)
        fails.append(bad)
        before = (history.amaxes.tolist(), history.scale, history.scale_inv, history.position)
        with pytest.raises((ZeroDivisionError, TypeError, ValueError)):
            history.update_scale()
        assert before == (history.amaxes.tolist(), history.scale, history.scale_inv, history.position)
        assert before == ([1, 2, 4], 64, 1 / 64, 2)
        fails.clear()


def test_nan_of_either_sign_is_nan():
    negative = -np.float32(np.nan)
    assert np.signbit(negative)
    for version in fp8lab.delayed_versions():
        history, other = (fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=2, version=version)) for _ in range(2))
        for amax in [1.0, np.nan, 0.0, 4.0]:
            history.record_amax(amax)
            other.record_amax(-amax if np.isnan(amax) or amax == 0 else amax)
            history.update_scale()
            other.update_scale()
            assert history.amaxes.tobytes() == other.amaxes.tobytes()
            assert (
                np.float32([history.scale, history.scale_inv]).tobytes()
                == np.float32([other.scale, other.scale_inv]).tobytes()
            )


def test_a_state_is_a_value():
    history = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=4))
    for amax in [8.0, 4.0, 2.0]:
        history.record_amax(amax)
        history.update_scale()
    other = history.copy()
    other.record_amax(100)
    other.update_scale()
    assert history.amaxes.tolist() == [0, 8, 4, 2]
    history.amaxes[0] = 5  # of a copy
    assert history.amaxes[0] == 0
    restored = fp8lab.AmaxHistory(history.recipe)
    restored.amaxes, restored.scale, restored.scale_inv, restored.position = (
        history.amaxes,
        history.scale,
        history.scale_inv,
        3,
    )
    restored.record_amax(100)
    restored.update_scale()
    assert (restored.amaxes.tolist(), restored.scale, restored.position) == (
        other.amaxes.tolist(),
        other.scale,
        other.position,
    )
    history.resize_history(2)
    assert history.amaxes.tolist() == [0, 8]
    assert history.recipe == fp8lab.Delayed(amax_history_len=2)
    history.update_scale()
    assert repr(history) == "<fp8lab.AmaxHistory of 2 amaxes, scale 56>"


def test_the_recipe_has_the_defaults_of_transformer_engine():
    recipe = fp8lab.Delayed()
    assert dataclasses.asdict(recipe) == {
        "margin": 0, "interval": 1, "fp8_format": "hybrid", "amax_history_len": 1024, "amax_compute_algo": "max",
        "reduce_amax": True, "override_linear_precision": (False, False, False), "version": "te_current",
    }  # fmt: skip
    assert str(recipe).startswith(
        "delayed scaling of te_current: fp8_format hybrid (E4M3 forward, E5M2 backward), margin 0"
    )
    assert fp8lab.Delayed(version=fp8lab.delayed_versions()[0]).version == "te_0_1"
    assert [version.name for version in fp8lab.delayed_versions()] == [
        "te_0_1", "te_0_5", "te_0_13", "te_1_4", "te_1_6", "te_1_6_unfused", "te_1_7", "te_1_7_unfused", "te_1_7_single",
        "te_current", "te_current_unfused", "te_current_single", "ms_amp_0_1", "ms_amp",
        "torchao_0_4", "torchao_0_4_float16", "torchao_0_6_float16", "torchao",
    ]  # fmt: skip
    assert all(version.source in str(version) and version.description for version in fp8lab.delayed_versions())


def test_ranks():
    assert fp8lab.reduced_amax(np.float32([1, np.nan, 3])) == 3
    with pytest.raises(ValueError, match="at least one"):
        fp8lab.reduced_amax(np.float32([]))
    trace = {"a@0": np.float32([1, 4]), "a@1": np.float32([2, 2])}
    shared = fp8lab.experiments.delayed(trace, versions="te_current", algorithms="most_recent")
    assert scales_of(shared, "a", "te_current most_recent").tolist() == [1, 224, 112]
    own = fp8lab.experiments.delayed(trace, versions="te_current", algorithms="most_recent", reduce_amax=False)
    assert own.tables["summary"]["tensor"].tolist() == ["a@0", "a@1"]
    assert scales_of(own, "a@1", "te_current most_recent").tolist() == [1, 224, 224]


def test_a_file_gives_what_arrays_give_and_files_are_written(tmp_path, trace):
    steps = len(trace["near"])
    with (tmp_path / "trace.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *trace])
        writer.writerows([i + 1, *(repr(float(trace[name][i])) for name in trace)] for i in range(steps))
    result = fp8lab.experiments.delayed(tmp_path / "trace.csv", out=tmp_path / "new")
    same = fp8lab.experiments.delayed(trace)
    for name in ("variants", "summary", "scales"):
        assert str(result.tables[name].rows) == str(same.tables[name].rows)
    assert column(result, "near", "step").tolist() == list(range(1, steps + 1))
    assert fp8lab.experiments.Document((tmp_path / "new" / "delayed.json").read_text()) == result
    with (tmp_path / "new" / "scales.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * steps
    written = [float(row["te_1_6_max_16"] or "nan") for row in rows[2 * steps :]]
    assert np.array_equal(written, scales_of(result, "strange", "te_1_6 max 16")[:-1], equal_nan=True)
    with (tmp_path / "new" / "summary.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 3 * len(result.tables["variants"].rows)
    assert "How to read it" in str(result)


def test_ctrl_c_stops_it_and_leaves_nothing(tmp_path):
    with interrupted_after(0.3):
        fp8lab.experiments.delayed({"x": np.ones(2**20, np.float32)}, history=2**15, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"margin": 63}, ValueError, "margin must be from -62 to 62, not 63"),
        ({"margin": 1.5}, TypeError, "margin must be an int, not 1.5"),
        ({"interval": 0}, ValueError, "interval must be at least 1, not 0"),
        ({"fp8_format": "e5m2"}, ValueError, "unknown fp8_format 'e5m2'; known: hybrid, e4m3"),
        ({"amax_history_len": 0}, ValueError, "amax_history_len must be from 1 to 1048576, not 0"),
        ({"amax_compute_algo": "mean"}, ValueError, "unknown amax_compute_algo 'mean'; known: max, most_recent"),
        ({"amax_compute_algo": 3}, TypeError, "amax_compute_algo must be a name .str. or a function, not int"),
        ({"reduce_amax": 1}, TypeError, "reduce_amax must be a bool"),
        ({"override_linear_precision": True}, TypeError, "must be three bools"),
        ({"override_linear_precision": (True, False, False)}, ValueError, "wgrad alone"),
        ({"version": "te_9"}, ValueError, "known: te_0_1, te_0_5"),
        ({"version": 9}, TypeError, "version must be a name .str. or a DelayedVersion, not int"),
        ({"version": "torchao", "margin": 1}, ValueError, "torchao has no margin"),
        ({"version": "ms_amp", "amax_compute_algo": "most_recent"}, ValueError, "must be max"),
    ],
)
def test_bad_recipes_are_named(fields, error, message):
    with pytest.raises(error, match=message):
        fp8lab.Delayed(**fields)


def test_bad_states_are_named():
    with pytest.raises(TypeError, match="recipe must be a Delayed, not str"):
        fp8lab.AmaxHistory("te_current")
    with pytest.raises(TypeError, match="backward must be a bool, not int"):
        fp8lab.AmaxHistory(fp8lab.Delayed(), backward=1)
    history = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=2))
    with pytest.raises(ValueError, match="must not be negative, and is -1"):
        history.record_amax(-1)
    with pytest.raises(ValueError, match="amax must be a float32"):
        history.record_amax(1e39)
    with pytest.raises(TypeError, match="amax must be a number, not str"):
        history.record_amax("1")
    with pytest.raises(ValueError, match="amax_history_len must be from 1 to 1048576, not 0"):
        history.resize_history(0)
    with pytest.raises(ValueError, match=r"amaxes must have shape \(2,\), not \(3,\)"):
        history.amaxes = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"trace": 5}, TypeError, "trace must be a path, not int"),
        ({"trace": {}}, ValueError, "at least one tensor"),
        ({"trace": {"x": [1.0]}}, TypeError, r"trace\['x'\] must be float32, not float64"),
        ({"trace": {"x": np.zeros((2, 2), np.float32)}}, ValueError, r"trace\['x'\] must have one dimension, not 2"),
        ({"trace": {"x": np.zeros(0, np.float32)}}, ValueError, "at least one step"),
        (
            {"trace": {"x": np.float32([1]), "y": np.float32([1, 2])}},
            ValueError,
            "column y has 2 amaxes, and there are 1 steps",
        ),
        ({"trace": {"x": np.float32([-1])}}, ValueError, "column x: an amax must not be negative, and is -1"),
        (
            {"trace": {"x@0": np.float32([1]), "x@1": np.float32([1]), "y@1": np.float32([1])}},
            ValueError,
            "'y@0' is missing",
        ),
        ({"trace": "/nowhere/trace.csv"}, OSError, "cannot read /nowhere/trace.csv: there is no such file"),
        ({"formats": "e2m1"}, ValueError, "for e4m3 and e5m2, not e2m1"),
        ({"versions": []}, ValueError, "versions must have at least one entry"),
        ({"versions": "te_9"}, ValueError, "known: te_0_1"),
        ({"algorithms": ["max", "max"]}, ValueError, "has max twice"),
        ({"history": [0]}, ValueError, "history must be from 1 to 1048576, not 0"),
        ({"margin": 100}, ValueError, "margin must be from -62 to 62, not 100"),
        ({"reduce_amax": 0}, TypeError, "reduce_amax must be a bool"),
        ({"out": 5}, TypeError, "out must be a path, not int"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        fp8lab.experiments.delayed(**arguments)


def test_bad_files_are_named_with_the_line(tmp_path):
    (tmp_path / "trace.csv").write_text("step,x\n1,2\n2,two\n")
    with pytest.raises(ValueError, match=r"trace.csv, line 3: column x: 'two' is not a number that float32 holds"):
        fp8lab.experiments.delayed(tmp_path / "trace.csv")
