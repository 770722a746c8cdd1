# SPDX-License-Identifier: Apache-2.0
"""Fp8State: steps of Linear layers with their state, from Python."""

import copy
import pickle

import fp8lab
import numpy as np
import pytest

RNG = np.random.default_rng(7)
X, W = (RNG.normal(0, size, (32, 64)).astype(np.float32) for size in (1, 0.02))
DY = RNG.normal(0, 1e-3, (32, 32)).astype(np.float32)
RECIPE = "te_delayed_hopper"
DELAYED = fp8lab.Delayed(amax_history_len=3)


def step(state, x=X, recipe=RECIPE, **arguments):
    with state.autocast(recipe, delayed=DELAYED):
        call = state.forward(0, x, W, **arguments)
    return call, state.backward(call, DY)


def test_a_step_is_the_products_of_what_histories_quantize():
    histories = {name: fp8lab.AmaxHistory(DELAYED, backward=name == "dy") for name in ("x", "w", "dy")}
    state = fp8lab.Fp8State()
    for factor in (1, 3, 0.5):
        x, x_columnwise = fp8lab.quantize_both(X * np.float32(factor), histories["x"])
        w, w_columnwise = fp8lab.quantize_both(W, histories["w"])
        dy, dy_columnwise = fp8lab.quantize_both(DY, histories["dy"])
        call, grads = step(state, X * np.float32(factor))
        assert np.array_equal(call.y.view(np.uint16), fp8lab.linear(x, w, recipe=RECIPE).view(np.uint16))
        assert np.array_equal(
            grads.dx.view(np.uint16), fp8lab.linear_dgrad(dy, w_columnwise, recipe=RECIPE).view(np.uint16)
        )
        assert np.array_equal(grads.dw, fp8lab.linear_wgrad(dy_columnwise, x_columnwise, recipe=RECIPE))
        for name, history in histories.items():
            history.update_scale()
            assert state.arrays()[f"0.{name}.scale"] == history.scale
            assert np.array_equal(state.arrays()[f"0.{name}.amax_history"], history.amaxes)


def test_states_are_values():
    state = fp8lab.Fp8State(layers=2)
    step(state)
    other = state.copy()
    assert state == other == copy.deepcopy(state)
    first, second = step(state), step(other)
    assert np.array_equal(first[0].y.view(np.uint16), second[0].y.view(np.uint16)) and state == other
    step(state)
    assert state != other and state != 1
    with pytest.raises(TypeError, match=r"arrays\(\) gives its histories and scales"):
        pickle.dumps(state)


def test_arrays_go_through_a_file_and_back(tmp_path):
    state = fp8lab.Fp8State(layers=2)
    step(state), step(state, X * np.float32(5))
    np.savez(tmp_path / "state.npz", **state.arrays())
    other = fp8lab.Fp8State(layers=2)
    other.load_arrays(np.load(tmp_path / "state.npz"), delayed=DELAYED)
    assert {name: value.tolist() for name, value in other.arrays().items()} == {
        n: v.tolist() for n, v in state.arrays().items()
    }
    calls = [step(one)[0].y.view(np.uint16) for one in (state, other)]
    assert np.array_equal(*calls)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("0.w.scale"), "arrays has no '0.w.scale'"),
        (lambda a: a.update({"5.x.scale": np.float32(1)}), "arrays has '5.x.scale', which a state of 2 layers has not"),
        (lambda a: a.update({"0.x.amax_history": np.zeros(4, np.float32)}), r"must have shape \(3,\), not \(4,\)"),
        (lambda a: a.update({"0.x.scale": np.float64(1)}), "must be float32, not float64"),
    ],
)
def test_arrays_of_another_shape_are_refused_and_nothing_is_loaded(change, message):
    state, other = fp8lab.Fp8State(layers=2), fp8lab.Fp8State(layers=2)
    step(state)
    arrays = state.arrays()
    change(arrays)
    with pytest.raises((TypeError, ValueError), match=message):
        other.load_arrays(arrays, delayed=DELAYED)
    assert other == fp8lab.Fp8State(layers=2)


def test_cached_weights_of_1_7_are_off_by_the_change_of_their_scale():
    exact = X @ W.T
    errors = {}
    for rules in ("te_1_6", "te_1_8", "te_2_8"):
        state = fp8lab.Fp8State(rules=rules)
        for first in (True, False):
            with state.autocast(RECIPE, delayed=fp8lab.Delayed(amax_history_len=3, version="te_1_7")):
                y = state.forward(0, X, W, is_first_microbatch=first).y.astype(np.float32)
        errors[rules] = np.abs(y - exact).max() / np.abs(exact).max()
    assert errors["te_1_8"] == errors["te_2_8"] < 0.2 and errors["te_1_6"] > 0.9


def test_gradients_that_are_not_wanted_and_those_that_are_added():
    state = fp8lab.Fp8State()
    with state.autocast("te_mxfp8_blackwell"):
        call = state.forward(0, X, W)
    assert state.backward(call, DY, dw=False).dw is None
    main_grad = np.ones((32, 64), np.float32)
    grads = state.backward(call, DY, dx=False, main_grad=main_grad)
    assert grads.dx is None and grads.dw is main_grad
    alone = fp8lab.linear_wgrad(DY, X, recipe="te_mxfp8_blackwell")
    assert np.array_equal(main_grad, np.float32(1) + alone)
    with pytest.raises(ValueError, match="dx or dw must be wanted"):
        state.backward(call, DY, dx=False, dw=False)


def test_calls_out_of_order_are_refused_and_change_nothing():
    state = fp8lab.Fp8State()
    with pytest.raises(RuntimeError, match="no autocast region is open"):
        state.exit_autocast()
    with state.no_grad():
        call = state.forward(0, X, W)
    with pytest.raises(ValueError, match="ran without gradients"):
        state.backward(call, DY)
    with pytest.raises(TypeError, match="call must be a LinearCall"):
        state.backward(X, DY)
    with pytest.raises(ValueError, match="w must be given"):
        state.forward(0, X)
    state.write_weight(0, W, RECIPE)
    with pytest.raises(ValueError, match="keeps its weight in FP8 only: w must not be given"):
        state.forward(0, X, W)
    with pytest.raises(ValueError, match="has no first forward under recomputation"), state.autocast(RECIPE):
        state.forward(0, X, recompute="second")
    with pytest.raises(ValueError, match="layer must be from 0 to 0, not 1|layer"):
        state.forward(1, X, W)


def test_ranks_wait_for_each_other_and_share_the_largest_amax():
    states = [fp8lab.Fp8State(ranks=2), fp8lab.Fp8State(ranks=2)]
    for state, factor in zip(states, (1, 4)):
        with state.autocast(RECIPE, delayed=DELAYED):
            state.forward(0, np.full((16, 16), factor, np.float32), np.ones((16, 16), np.float32))
        assert state.is_due and state.arrays()["0.x.scale"] == 1
    with pytest.raises(RuntimeError, match="wait for the other ranks"):
        states[0].enter_autocast(RECIPE)
    fp8lab.reduce_and_update(states[::-1])
    assert [float(state.arrays()["0.x.scale"]) for state in states] == [112, 112]
    with pytest.raises(ValueError, match="there must be 2 states"):
        fp8lab.reduce_and_update(states[:1])


def test_the_trace_says_what_was_read_and_written_when():
    state = fp8lab.Fp8State(trace=True)
    step(state)
    assert [(e.name, e.tensor, e.action) for e in state.trace] == [
        ("forward", "x", "cast"), ("forward", "w", "cast"), ("exit_autocast", "x", "update"), ("exit_autocast", "w", "update"),
        ("backward", "dy", "cast"), ("backward", "w", "read"), ("backward", "dy", "update"),
    ]  # fmt: skip
    assert state.trace[0].scale == 1 and state.trace[2].scale == np.float32(448) / np.abs(X).max()
    assert str(fp8lab.state_rules()[0]).startswith("te_0_1: Transformer Engine 0.1")
