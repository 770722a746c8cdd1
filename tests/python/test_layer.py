# SPDX-License-Identifier: Apache-2.0
"""fp8lab.Linear, a layer that keeps its weight and its state."""

import fp8lab
import numpy as np
import pytest

RNG = np.random.default_rng(11)
X, W = (RNG.normal(0, size, (32, 64)).astype(np.float32) for size in (1, 0.05))
DY, BIAS = RNG.normal(0, 1e-3, (32, 32)).astype(np.float32), RNG.normal(0, 1, 32).astype(np.float32)
DELAYED = fp8lab.Delayed(amax_history_len=4)


def test_a_layer_runs_its_state_step_by_step():
    layer = fp8lab.Linear(W, BIAS, recipe="te_delayed_hopper", delayed=DELAYED)
    state = fp8lab.Fp8State()
    for factor in (1, 2, 0.5):
        x = X * np.float32(factor)
        with state.autocast("te_delayed_hopper", delayed=DELAYED):
            call = state.forward(0, x, W, BIAS)
        grads = state.backward(call, DY)
        assert layer.forward(x).tobytes() == call.y.tobytes()
        dx, dw, db = layer.backward(DY)
        assert (dx.tobytes(), dw.tobytes()) == (grads.dx.tobytes(), grads.dw.tobytes())
        assert db.tobytes() == np.add.accumulate(DY, axis=0)[-1].tobytes()
        assert layer.state == state


def test_layers_share_a_state_and_run_as_its_region_says():
    state = fp8lab.Fp8State(layers=2)
    layers = [fp8lab.Linear(W[:, :32].copy(), recipe="bf16_hopper", state=state, layer=i) for i in range(2)]
    with state.autocast("te_mxfp8_blackwell"):
        y = layers[1].forward(layers[0].forward(X[:, :32].copy()))
    first = fp8lab.linear(X[:, :32].copy(), layers[0].weight, recipe="te_mxfp8_blackwell")
    assert y.tobytes() == fp8lab.linear(first, layers[1].weight, recipe="te_mxfp8_blackwell").tobytes()
    assert layers[1].backward(DY).db is None and "32 -> 32" in repr(layers[0])


def test_the_weight_is_the_callers_array():
    weight = W.copy()
    layer = fp8lab.Linear(weight, recipe="exact")
    before = layer.forward(X)
    weight *= 2
    assert np.array_equal(layer.forward(X), 2 * before)


def test_backward_needs_a_forward_and_a_failed_one_can_be_repeated():
    layer = fp8lab.Linear(W, recipe="te_current_scaling_hopper")
    with pytest.raises(RuntimeError, match="backward needs a forward before it"):
        layer.backward(DY)
    layer.forward(X)
    with pytest.raises(ValueError, match=r"dy must have shape \(32, 32\)"):
        layer.backward(DY[:16])
    layer.backward(DY)
    with pytest.raises(RuntimeError, match="each forward has one backward"):
        layer.backward(DY)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"w": W.astype(np.float64)}, "w must be float32, float16 or bfloat16, not float64"),
        ({"w": W[0]}, "w must have two dimensions"),
        ({"bias": BIAS[:3]}, r"bias must have shape \(32,\)"),
        ({"recipe": "te_fp7"}, "unknown linear recipe"),
        ({"recipe": "te_delayed_hopper", "delayed": fp8lab.Delayed(fp8_format="e4m3")}, "casts dy to e5m2"),
        ({"state": 1}, "state must be an Fp8State"),
        ({"layer": 1}, "layer must be"),
    ],
)
def test_wrong_layers_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fp8lab.Linear(**{"w": W, "recipe": "exact", **arguments})


def test_a_nan_in_the_weight_gives_what_the_tensor_core_makes_of_its_code():
    weight = W.copy()
    weight[3, 5] = np.nan
    y = fp8lab.Linear(weight, recipe="te_delayed_hopper").forward(X).astype(np.float32)
    assert np.isnan(y[:, 3]).all() and np.isfinite(np.delete(y, 3, 1)).all()
