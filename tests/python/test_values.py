# SPDX-License-Identifier: Apache-2.0
"""Public values: equal where they are, hashable where they never change, pickled, copied and restored; shared by
threads."""

import copy
import copyreg
import gc
import pickle
import subprocess
import sys
import threading
import time
import weakref

import fp8lab
import numpy as np
import pytest
from fp8lab import _values

pytestmark = pytest.mark.sample(4)

X = np.linspace(-3, 3, 64 * 64, dtype=np.float32).reshape(64, 64)
BFLOATS = fp8lab.encode(X, "bfloat16")
OWN = fp8lab.Format(3, 2, 4, specials="none", name="mine")


def second_largest(history):
    return float(np.sort(history)[-1])


def history(**fields):
    made = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=4, **fields), backward=True)
    for amax in (2.0, 4.0, float("nan")):
        made.record_amax(amax)
        made.update_scale()
    return made


def totals():
    made = fp8lab.errors([1.0, 2.5, np.inf], [1.5, 2.0, 1.0])
    return made


def histograms():
    values = np.array([0.3, 5.0, -2.0, np.nan, 1e9, 0.0])
    yield fp8lab.histogram(values)
    yield fp8lab.histogram(values, "linear", low=-1, high=6, count=7)
    yield fp8lab.histogram(values, "log", low=0.1, high=10, count=5)
    yield fp8lab.histogram(values, "code", format=OWN, cast_input=np.float32(values))


def quantized():
    for recipe in [
        "given_scale",
        "te_current_scaling",
        "te_mxfp8",
        "te_block_1x128",
        "te_nvfp4",
        fp8lab.JustInTime(OWN, axis="row"),
    ]:
        yield from fp8lab.quantize_both(X, recipe)
    infinite = fp8lab.AmaxHistory(fp8lab.Delayed())
    infinite.scale = float("inf")
    yield fp8lab.quantize(X, infinite)
    yield fp8lab.quantize(X, history(amax_compute_algo=second_largest))


MUTABLE = [
    *histograms(), totals(), fp8lab.ErrorTotals(), *quantized(), history(), history(amax_compute_algo=second_largest),
    fp8lab.chain_differences(X, "e4m3", via="float16"), fp8lab.experiments.harmonic(),
    fp8lab.experiments.accumulate(models=["hopper_wgmma_fp8"], k=[32], rows=2, columns=2),
    fp8lab.trace_dot(np.uint8([1, 2]), np.uint8([3, 4]), model="exact"), fp8lab.OutcomeCounts(1, 2, 3, 4, 5),
]  # fmt: skip
FIXED = [
    *fp8lab.formats(), OWN, fp8lab.Format(3, 2, 3, specials="none", name="mine"), *fp8lab.profiles(), fp8lab.Profile(name="mine", rounding="upward"), *fp8lab.models(),
    fp8lab.model_with("blackwell_nvf4", fraction_bits=25, keeps_sign=True), *fp8lab.distributions(), *fp8lab.delayed_versions(),
    *fp8lab.recipes(), *(one.recipe for one in fp8lab.recipes()), fp8lab.TensorParallel("row", 3, True, fp8lab.Reduction("pairwise", [2, 0, 1])), *fp8lab.linear_recipes(), *(one.recipe for one in fp8lab.linear_recipes()), *fp8lab.gemm_recipes(), *(one.recipe for one in fp8lab.gemm_recipes()), fp8lab.MxBlock(OWN), fp8lab.Delayed(margin=2),
    fp8lab.Delayed(amax_compute_algo=second_largest), fp8lab.BestScale(2.0, 30.5), fp8lab.cast_bounds("e4m3"),
    fp8lab.LinearGemm("hopper_wgmma_fp8", fp8lab.JustInTime(OWN), "te_block_1x128", scale_order="accumulator_first", output="float16"),
]  # fmt: skip


def ident(value):
    return f"{type(value).__name__}-{getattr(value, 'name', '')}"


def shown(value):
    return str(value), repr(value)


@pytest.mark.parametrize("value", FIXED + MUTABLE, ids=ident)
def test_a_value_comes_back_from_a_pickle_and_from_copies(value):
    copies = [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for same in [*copies, copy.copy(value), copy.deepcopy(value)]:
        assert type(same) is type(value) and same == value and not same != value and shown(same) == shown(value)
    assert value != 1 and not value == "e4m3" and value is not None


@pytest.mark.parametrize("value", FIXED, ids=ident)
def test_fixed_values_hash_alike_where_they_are_equal(value):
    assert hash(copy.deepcopy(value)) == hash(value) and len({value, copy.copy(value)}) == 1


@pytest.mark.parametrize("value", MUTABLE, ids=ident)
def test_values_that_change_have_no_hash(value):
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)


def test_equal_is_what_is_the_same_and_nothing_else():
    for listed in (
        fp8lab.formats,
        fp8lab.profiles,
        fp8lab.models,
        fp8lab.distributions,
        fp8lab.delayed_versions,
        fp8lab.recipes,
    ):
        assert listed() == listed() and len(set(listed())) == len(listed())
    assert fp8lab.model_with("blackwell_nvf4", fraction_bits=25) != fp8lab.model_with(
        "blackwell_nvf4", fraction_bits=26
    )
    assert fp8lab.model_with("blackwell_nvf4", keeps_sign=True) != fp8lab.model_with("blackwell_nvf4", keeps_sign=False)
    assert fp8lab.Profile(name="a") != fp8lab.Profile(name="b") and fp8lab.Profile(nan="largest") != fp8lab.Profile()
    assert fp8lab.GivenScale(fp8lab.formats()[0]) == fp8lab.GivenScale("e4m3")
    assert hash(fp8lab.GivenScale(fp8lab.formats()[0])) == hash(fp8lab.GivenScale("e4m3"))
    assert fp8lab.Delayed(override_linear_precision=[False, False, True]) == fp8lab.Delayed(
        override_linear_precision=(False, False, True)
    )
    one, other = fp8lab.quantize(X, "te_mxfp8"), fp8lab.quantize(X, "te_mxfp8")
    other.codes[3, 3] ^= 1
    assert one != other
    other.codes[3, 3] ^= 1
    assert one == other != fp8lab.quantize(X, "te_mxfp8", direction="columnwise")
    for change in ("scale", "scale_inv", "position"):
        one, other = history(), history()
        setattr(other, change, 7)
        assert one != other
    assert history() != fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=4))
    assert totals() != fp8lab.errors([1.0], [1.5]) and fp8lab.histogram([1.0]) != fp8lab.histogram([1.0], low=-3)


def test_copies_go_on_apart():
    value = history()
    for other in (copy.copy(value), copy.deepcopy(value), value.copy(), pickle.loads(pickle.dumps(value))):
        other.record_amax(100.0)
        assert other != value
    q = fp8lab.quantize(X, "te_mxfp8")
    for other in (copy.copy(q), copy.deepcopy(q)):
        other.codes[0, 0] ^= 1
        assert other != q
    np.testing.assert_array_equal(fp8lab.dequantize(pickle.loads(pickle.dumps(q))), fp8lab.dequantize(q))


def test_another_process_reads_the_pickles(tmp_path):
    values = [value for value in FIXED + MUTABLE if b"second_largest" not in pickle.dumps(value)]
    (tmp_path / "values").write_bytes(pickle.dumps(values))
    text = "import pickle, sys; values = pickle.load(open(sys.argv[1], 'rb')); sys.stdout.buffer.write(pickle.dumps(values))"
    back = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path / "values")], capture_output=True, check=True
    ).stdout
    assert pickle.loads(back) == values


#: By kind, the last of each, and every Quantized and Histogram: those with states that restore() checks.
STATES = {
    type(value).__name__: value
    for value in FIXED + MUTABLE
    if not isinstance(value, (tuple, dict, fp8lab.ChainDifferences))
}
STATES |= {f"{type(value).__name__}{i}": value for i, value in enumerate([*histograms(), *quantized()])}


def state_of(value):
    return copyreg.dispatch_table.get(type(value), type(value).__reduce__)(value)[1]


HOSTILE = [None, -1, 2**70, 1e300, float("nan"), "x" * 10, b"\0", [], {}, np.zeros(3, np.float16), object()]


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_none_is_refused_or_makes_another_value(name):
    kind, fields = state_of(STATES[name])
    assert _values.restore(kind, fields) == STATES[name]
    for field in fields:
        without = {key: value for key, value in fields.items() if key != field}
        with pytest.raises(ValueError, match=f"the state of a {kind} has the fields .*{field}"):
            _values.restore(kind, without)
        for wrong in HOSTILE:
            try:
                made = _values.restore(kind, {**fields, field: wrong})
            except (TypeError, ValueError) as error:
                assert len(str(error)) < 1000 and "incompatible" not in str(error), error
            else:
                assert type(made) is type(STATES[name])
                if isinstance(made, fp8lab.Quantized):
                    fp8lab.dequantize(made)
    with pytest.raises(ValueError, match="the state of a"):
        _values.restore(kind, {**fields, "extra": 1})


def test_bins_that_no_int_holds_are_refused():
    for low in (1e300, float("nan"), float("-inf"), 0.5, -1075):
        with pytest.raises(ValueError, match="low and high of binade bins must be whole numbers from -1074 to 1023"):
            fp8lab.Histogram("binade", low, 3, 1, fp8lab.formats()[0])


def test_unknown_kinds_are_refused():
    for kind in ("Kernel", 3, None, "x" * 1000):
        with pytest.raises(ValueError, match="unknown kind of state"):
            _values.restore(kind, {})
    with pytest.raises(TypeError, match="must be a dict"):
        _values.restore("Format", [])


def test_truncated_pickles_are_refused():
    whole = pickle.dumps(
        [fp8lab.formats()[0], history(), fp8lab.quantize(X, "te_mxfp8"), totals(), fp8lab.histogram([1.0])]
    )
    for length in range(0, len(whole), 97):
        with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError)):
            pickle.loads(whole[:length])


def in_threads(count, work):
    errors = []

    def run(i):
        try:
            work(i)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_no_amax_is_lost_where_threads_share_a_history():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            shared = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=4))
            tensors = [np.full((64, 512), amax, np.float32) for amax in (1, 2, 8, 3, 5, 4, 7, 6)]
            in_threads(8, lambda i: fp8lab.quantize(tensors[i], shared))
            assert shared.amaxes[0] == 8
    finally:
        sys.setswitchinterval(before)


def test_an_amax_recorded_during_another_cast_is_not_lost():
    large = np.ones((2048, 1024), np.float32)
    for _ in range(5):
        shared = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=4))
        cast = threading.Thread(target=fp8lab.quantize, args=(large, shared))
        cast.start()
        time.sleep(0.001)  # it casts now, and has read the history
        fp8lab.quantize(np.full((1, 1), 8, np.float32), shared)
        cast.join()
        assert shared.amaxes[0] == 8


def test_every_scale_that_threads_cast_with_is_one_of_the_run():
    shared = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=2))
    x = np.full((32, 128), 3.0, np.float32)
    used, scales = [], [1.0]

    def work(i):
        if i == 0:
            for amax in (448.0, 224.0, 896.0, 112.0) * 10:
                shared.record_amax(amax)
                shared.update_scale()
                scales.append(shared.scale)
            return
        for _ in range(40):
            q = fp8lab.quantize(x, shared)
            used.append((1 / q.scale_inv.item(), q.codes[0, 0]))

    in_threads(5, work)
    for scale, code in used:
        assert scale in scales and code == fp8lab.encode(np.float32(3 * scale), "e4m3")
    assert shared.position == 40 and len(used) == 160


def test_updates_of_many_threads_all_count():
    shared = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=1000, amax_compute_algo=second_largest))

    def work(i):
        for k in range(50):
            shared.record_amax(float(i + 1))
            shared.update_scale()
            shared.resize_history(1000 + k % 2)
            assert pickle.loads(pickle.dumps(shared)).amaxes.shape in ((1000,), (1001,))

    in_threads(6, work)
    assert shared.position == 300


def test_a_function_for_the_amax_may_look_at_its_own_history():
    seen = []
    own = fp8lab.AmaxHistory(fp8lab.Delayed(amax_compute_algo=lambda amaxes: seen.append(own.scale) or 2.0))
    own.record_amax(4.0)
    own.update_scale()
    assert seen == [1.0] and own.scale == 224


def test_a_cycle_through_a_function_for_the_amax_is_collected():
    class Watched:
        pass

    def make():
        watched = Watched()

        def algorithm(amaxes):
            return float(amaxes.max()) + 0 * len(watched.histories)

        watched.histories = [fp8lab.AmaxHistory(fp8lab.Delayed(amax_compute_algo=algorithm))]
        watched.histories[0].record_amax(2.0)
        watched.histories[0].update_scale()
        watched.histories.append(watched.histories[0].copy())
        str(watched.histories[0].recipe)
        fp8lab.quantize(X, watched.histories[1])
        return weakref.ref(watched)

    reference = make()
    gc.collect()
    assert reference() is None


def test_merging_a_value_with_itself_doubles_it():
    one = fp8lab.histogram([1.0, 2.0, 0.0])
    one.merge(one)
    assert one.total == 6 and one.zeros == 2
    two = totals()
    two.merge(two)
    assert two.count == 4 and two.not_finite == 2


@pytest.mark.parametrize("value", [one for one in FIXED if hasattr(one, "to_json")], ids=ident)
def test_a_recipe_comes_back_from_its_json(value):
    same = type(value).from_json(value.to_json())
    assert same == value and shown(same) == shown(value)
    with pytest.raises(ValueError, match=f"a {type(value).__name__} has the fields .*, not no_such"):
        type(value).from_json('{"no_such": 1}')
