# SPDX-License-Identifier: Apache-2.0
"""The FP8 state of Linear layers that training carries from step to step."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_float32,
    check_bool,
    check_choice,
    check_int,
    check_name,
    check_threads,
    copied,
    empty,
    fill,
    kind_of,
    short,
)
from fp8lab._arrays import (
    output as output_array,
)
from fp8lab._delayed import Delayed, as_amax
from fp8lab._entry import guard as _guard
from fp8lab._linear import LinearRecipe, NamedLinearRecipe, _as_bias, _as_linear_recipe, _as_matrix, _typed
from fp8lab._scaling import _random_bits
from fp8lab.literals import GemmZeroRuleName, RecomputeName, StateRulesName

__all__ = [
    "Fp8State",
    "LinearCall",
    "LinearGrads",
    "StateEvent",
    "StateRules",
    "linear_bias_gradient",
    "reduce_and_update",
    "state_rules",
]

_TENSORS = ("x", "w", "dy")
_RECOMPUTES = ("none", "first", "second")
_NONE = np.empty(0, np.float32)
_MOST = 2**31 - 1

RecipeLike = str | NamedLinearRecipe | LinearRecipe


class StateRules(NamedTuple):
    """What a release of Transformer Engine does with the FP8 state of its modules; ``str()`` explains it."""

    name: str
    description: str
    source: str

    def __str__(self) -> str:
        return f"{self.name}: {self.description} [{self.source}]"


def state_rules() -> list[StateRules]:
    """The rules that an ``Fp8State`` can have, in the order of the releases; the last ones are the newest."""
    return [StateRules(*one) for one in _core.state_rules()]


_RULES: list[Any] = [one.name for one in state_rules()]


class StateEvent(NamedTuple):
    """One thing that a call on an ``Fp8State`` read or wrote."""

    call: int
    """The number of the call, from 1."""
    name: str
    """Of the call, such as ``forward``."""
    layer: int | None
    tensor: str
    """``x``, ``w`` or ``dy``."""
    action: str
    """``cast``, ``reuse`` (of cached codes), ``read`` (of codes by a backward), ``update`` (of the scale), or ``take
    stash`` (of a recomputed layer)."""
    amax: float
    """In row 0 of the history, afterwards."""
    scale: float
    """Of the history, afterwards."""
    scale_inv: float
    """The same; of ``read`` that of the codes."""


class LinearGrads(NamedTuple):
    """What a backward computes; None for what was not wanted."""

    dx: Array | None
    dw: Array | None


class LinearCall:
    """A forward of a layer: its result ``y``, and what ``Fp8State.backward`` needs of it."""

    def __init__(
        self, core: _core.LinearCall, y: Array, shapes: tuple[tuple[int, int], tuple[int, int]], kept: Any
    ) -> None:
        self._core = core
        self._shapes = shapes
        self._kept = kept  # keeps the arrays alive that C++ has views of
        self.y = y

    @property
    def layer(self) -> int:
        """Which layer ran."""
        return self._core.layer

    @property
    def updates_backward(self) -> bool:
        """Whether its backward ends with the update of all backward scales: it was the first layer of its region."""
        return self._core.updates_backward

    @property
    def wants_random_bits(self) -> bool:
        """Whether its backward casts dy by stochastic rounding."""
        return self._core.wants_random_bits

    @property
    def weight_scale_inv(self) -> float | None:
        """The scale_inv that the GEMMs take for w, where it has a single one."""
        return self._core.weight_scale_inv

    def __repr__(self) -> str:
        return f"<fp8lab.LinearCall of layer {self.layer}, y {self._shapes[0][0]} x {self._shapes[1][0]}>"


def _words(shape: tuple[int, int], dtype: str) -> Array:
    return empty(shape, np.float32 if dtype == "float32" else np.uint16)


def _output_of(gemm: _core.LinearGemm) -> str:
    output = gemm.fields["recipe"].fields["output"]
    return output if isinstance(output, str) else str(output.name)


def _as_delayed(delayed: Any, recipe: LinearRecipe | None = None) -> Delayed:
    if delayed is None:
        return (
            Delayed()
            if recipe is None
            else Delayed(fp8_format="hybrid" if _core.default_fp8_format(recipe._made) == "hybrid" else "e4m3")
        )
    if not isinstance(delayed, Delayed):
        raise TypeError(f"delayed must be a Delayed, not {kind_of(delayed)}")
    return delayed


class Fp8State:
    """The FP8 state of Linear layers on one rank: what Transformer Engine's modules and its global state keep between
    calls.

    It holds the amax histories and scales of each layer's x, w and dy, the open autocast regions, cached weights,
    weights that exist in FP8 only, and what recomputation puts aside. It is a value: ``copy()`` keeps it, ``==``
    compares every bit, and the same calls on equal states give equal results; ``arrays()`` is what a file keeps of it.
    A call that raises leaves it as it was. Each call has it to itself; other threads wait.

    Parameters
    ----------
    layers : int
        How many layers share it; calls name them 0, 1, ...
    rules : str
        One of ``state_rules()``: when scales are made, what a cached weight's GEMM reads, and more that releases differ
        in. (The formulas of the scales are those of ``Delayed.version``.)
    ranks : int
        With more than one, updates wait for ``reduce_and_update``, which the ranks' states are given to together.
    high_precision : str or LinearRecipe
        How layers compute outside of enabled regions.
    trace : bool
        Whether calls add to ``trace``.

    Examples
    --------
    >>> state = fp8lab.Fp8State(layers=1)
    >>> with state.autocast("te_delayed_hopper"):
    ...     call = state.forward(0, x, w)
    >>> dx, dw = state.backward(call, dy)
    """

    def __init__(
        self,
        layers: int = 1,
        *,
        rules: StateRulesName | StateRules = _RULES[-1],
        ranks: int = 1,
        high_precision: RecipeLike = "bf16_hopper",
        trace: bool = False,
    ) -> None:
        name = rules.name if isinstance(rules, StateRules) else check_choice(rules, "rules", _RULES)
        high = _as_linear_recipe(high_precision, "high_precision")
        core = _core.Fp8State(
            check_int(layers, "layers", 1, _MOST), name, check_int(ranks, "ranks", 1, _MOST), high._made
        )
        core.is_traced = check_bool(trace, "trace")
        self._begin(core)

    def _begin(self, core: _core.Fp8State) -> None:
        self._core = core
        self._lock = threading.RLock()
        self._owners: dict[int, weakref.ref[Any]] = {}

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self._core.layers

    @property
    def rules(self) -> str:
        """The name of its rules."""
        return self._core.rules

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self._core.ranks

    @property
    def regions(self) -> int:
        """How many autocast regions are open."""
        return self._core.regions

    @property
    def is_due(self) -> bool:
        """Whether an update waits for the other ranks."""
        return self._core.is_due

    @property
    def grad_enabled(self) -> bool:
        """torch's grad mode. Without it nothing is kept for a backward, and no region's exit makes scales; amaxes are
        recorded."""
        return self._core.grad_enabled

    @grad_enabled.setter
    def grad_enabled(self, enabled: bool) -> None:
        self._core.grad_enabled = check_bool(enabled, "grad_enabled")

    @property
    def trace(self) -> list[StateEvent]:
        """What calls have read and written, in order, where the state was made with ``trace=True``."""
        with self._lock:
            return [StateEvent(*event) for event in self._core.trace]

    def _layer(self, layer: Any) -> int:
        return check_int(layer, "layer", 0, self.layers - 1)

    def _claim(self, layer: int, owner: Any) -> None:
        """Give a layer to an object, which keeps it as long as it lives. ValueError where another has it: two layers
        with one history would make the scales of each other."""
        with self._lock:
            held = self._owners.get(layer)
            holder = held() if held is not None else None
            if holder is owner:
                return
            if holder is not None:
                taken = {one for one, held in self._owners.items() if held() is not None}
                free = next((one for one in range(self.layers) if one not in taken), None)
                advice = f"layer={free} is free" if free is not None else "make the Fp8State with more layers"
                raise ValueError(
                    f"layer {layer} of the state belongs to another {type(holder).__name__}, whose history it is: give "
                    f"each a number of its own; {advice}"
                )
            self._owners[layer] = weakref.ref(owner)

    def _release(self, layer: int, owner: Any) -> None:
        """Take a layer back from an object that has it."""
        with self._lock:
            held = self._owners.get(layer)
            if held is not None and held() is owner:
                del self._owners[layer]

    def _history_of(self, layer: int) -> dict[str, Array]:
        """What ``arrays`` has of one layer, without its number."""
        start = f"{layer}."
        return {name.removeprefix(start): one for name, one in self.arrays().items() if name.startswith(start)}

    def enter_autocast(
        self, recipe: RecipeLike, *, delayed: Delayed | None = None, enabled: bool = True, group: str = ""
    ) -> None:
        """Enter an autocast region.

        Parameters
        ----------
        recipe : str or LinearRecipe
            How layers in it compute.
        delayed : Delayed, optional
            For a recipe of delayed scaling: how scales are made of amaxes; Transformer Engine's defaults where left
            out, with the fp8_format of the recipe. Its amax_compute_algo must be a name.
        enabled : bool
            Layers in a region that is not compute in ``high_precision``.
        group : str
            Over which ranks amaxes are shared; layers that were first run in regions of another group have other
            buffers.

        Raises
        ------
        TypeError, ValueError
            For arguments that do not fit each other, such as an fp8_format that is not what the recipe casts to.
        """
        linear = _as_linear_recipe(recipe)
        region = (
            linear._made,
            _as_delayed(delayed, linear)._recipe(),
            check_bool(enabled, "enabled"),
            check_name(group, "group"),
        )
        with self._lock:
            self._core.enter_autocast(*region)

    def exit_autocast(self) -> None:
        """Leave the innermost region; at the exit of the outermost one, forward amaxes make new scales. RuntimeError
        for none."""
        with self._lock:
            self._core.exit_autocast()

    @contextmanager
    def autocast(
        self, recipe: RecipeLike, *, delayed: Delayed | None = None, enabled: bool = True, group: str = ""
    ) -> Iterator[Fp8State]:
        """``enter_autocast`` and ``exit_autocast`` as a context; where it raises, the region is left as in Transformer
        Engine."""
        self.enter_autocast(recipe, delayed=delayed, enabled=enabled, group=group)
        try:
            yield self
        finally:
            self.exit_autocast()

    @contextmanager
    def no_grad(self) -> Iterator[Fp8State]:
        """A context without grad mode."""
        before = self.grad_enabled
        self.grad_enabled = False
        try:
            yield self
        finally:
            self.grad_enabled = before

    def forward(
        self,
        layer: int,
        x: Any,
        w: Any = None,
        bias: Any = None,
        *,
        is_first_microbatch: bool | None = None,
        training: bool = True,
        requires_grad: bool = True,
        recompute: RecomputeName = "none",
        zero_rule: GemmZeroRuleName = "floor",
        threads: int | None = None,
        check_shapes: bool = True,
    ) -> LinearCall:
        """``x @ w.T + bias`` in the innermost region; the result is ``y`` of the call that it returns.

        Parameters
        ----------
        layer : int
        x : array_like of float32, float16 or bfloat16, (tokens, in)
        w : array_like of the same types, (out, in)
            Left out where ``write_weight`` has made a weight that exists in FP8 only.
        bias : array_like of the same types, (out,), optional
        is_first_microbatch : bool, optional
            True quantizes w and keeps its codes, False uses those that are kept and records no amax, None does neither.
        training : bool
            The module's mode, which old rules and recomputation read.
        requires_grad : bool
            Whether x, w or bias does.
        recompute : str
            ``first`` for a forward that will be repeated before the backward, ``second`` for that repetition.
        zero_rule, threads, check_shapes
            As for ``linear``.

        Raises
        ------
        TypeError, ValueError
            As ``linear``, for a layer that there is not, a w that is missing or not wanted, and a second forward
            without a first.
        RuntimeError
            While an update waits for the other ranks.
        """
        index = self._layer(layer)
        recompute = check_choice(recompute, "recompute", _RECOMPUTES)
        first = None if is_first_microbatch is None else check_bool(is_first_microbatch, "is_first_microbatch")
        flags = (check_bool(training, "training"), check_bool(requires_grad, "requires_grad"), recompute)
        inputs, shape = _as_matrix(x, "x")
        weights = None if w is None else _as_matrix(w, "w")
        with self._lock:
            kept = self._core.weight_shape(index)
            weight_shape = kept if weights is None else weights[1]
            if weight_shape is None:
                raise ValueError(f"w must be given: layer {index} has no weight of its own")
            dtype = _output_of(self._core.recipe_of_forward(index, recompute).fprop)
            out = _words((shape[0], weight_shape[0]), dtype)
            core = self._core.forward(
                index, inputs, None if weights is None else weights[0], out,
                _NONE if bias is None else _as_bias(bias, weight_shape[0]), first, *flags,
                check_name(zero_rule, "zero_rule"), check_threads(threads), check_bool(check_shapes, "check_shapes"),
            )  # fmt: skip
        return LinearCall(core, _typed(out, dtype), (shape, weight_shape), (inputs, weights))

    def backward(
        self,
        call: LinearCall,
        dy: Any,
        *,
        dx: bool = True,
        dw: bool = True,
        main_grad: Array | None = None,
        random_bits: Any = None,
        zero_rule: GemmZeroRuleName = "floor",
        threads: int | None = None,
        check_shapes: bool = True,
    ) -> LinearGrads:
        """``dy @ w`` and ``dy.T @ x`` of a call of ``forward``; the backward of a region's first layer ends with the
        update.

        Parameters
        ----------
        call : LinearCall
        dy : array_like of float32, float16 or bfloat16, (tokens, out)
        dx, dw : bool
            Which gradients are wanted; at least one.
        main_grad : ndarray of float32, (out, in), optional
            As for ``linear_wgrad``; it is the dw of the result.
        random_bits : array_like of uint8, optional
            As for ``linear_dgrad``: one for each code of dy, and both directions take the same.
        zero_rule, threads, check_shapes
            As for ``linear``.

        Raises
        ------
        TypeError, ValueError
            As ``linear_dgrad`` and ``linear_wgrad``, for a call that ran without gradients, and where none is wanted.
        RuntimeError
            While an update waits for the other ranks.
        """
        if not isinstance(call, LinearCall):
            raise TypeError(f"call must be a LinearCall, which forward returns, not {kind_of(call)}")
        wants_dx, wants_dw = check_bool(dx, "dx"), check_bool(dw, "dw")
        gradient, shape = _as_matrix(dy, "dy")
        (tokens, inputs), (features, _) = call._shapes
        if shape != (tokens, features):
            raise ValueError(f"dy must have shape {(tokens, features)}, which y has, not {shape}")
        dx_type, dw_type = _output_of(call._core.recipe.dgrad), _output_of(call._core.recipe.wgrad)
        if main_grad is not None:
            if not wants_dw:
                raise ValueError("main_grad is for dw, which is not wanted")
            if dw_type != "float32":
                raise ValueError(f"main_grad goes with a recipe whose wgrad has the output float32, not {dw_type}")
            main_grad = output_array(main_grad, (features, inputs), np.float32, "main_grad")
        input_grad = _words((tokens, inputs), dx_type) if wants_dx else None
        weight_grad = None
        if wants_dw:
            weight_grad = copied(main_grad) if main_grad is not None else _words((features, inputs), dw_type)
        with self._lock:
            self._core.backward(
                call._core, gradient, input_grad, weight_grad, main_grad is not None, _random_bits(random_bits),
                check_name(zero_rule, "zero_rule"), check_threads(threads), check_bool(check_shapes, "check_shapes"),
            )  # fmt: skip
        if main_grad is not None and weight_grad is not None:
            fill(main_grad, weight_grad)
            weight_grad = main_grad
        return LinearGrads(
            None if input_grad is None else _typed(input_grad, dx_type),
            None if weight_grad is None else _typed(weight_grad, dw_type),
        )

    def write_weight(
        self, layer: int, w: Any, recipe: RecipeLike, *, delayed: Delayed | None = None, threads: int | None = None
    ) -> None:
        """Quantize a weight (out, in) into a layer that keeps it in FP8 only: at its beginning, and after each
        optimizer step.

        Under delayed scaling the scale is the one that the layer has at that moment, 1 at first. The amax goes into the
        history; codes and scale_inv stay until the next write.

        Raises
        ------
        TypeError, ValueError
            As ``quantize``, and for a recipe that does not quantize w.
        """
        index = self._layer(layer)
        weight, _ = _as_matrix(w, "w")
        linear = _as_linear_recipe(recipe)
        with self._lock:
            self._core.write_weight(
                index, weight, linear._made, _as_delayed(delayed, linear)._recipe(), check_threads(threads)
            )

    def arrays(self) -> dict[str, Array]:
        """Histories and scales as float32 arrays, which ``numpy.savez`` takes: what Transformer Engine's checkpoints
        have of it.

        ``0.x.amax_history`` (amax_history_len,), ``0.x.scale`` () and ``0.x.scale_inv`` () of layer 0's x, and so on
        for w, dy and every layer that has run under delayed scaling.
        """
        found: dict[str, Array] = {}
        with self._lock:
            for layer in range(self.layers):
                if not self._core.is_started(layer):
                    continue
                for tensor in _TENSORS:
                    parts = self._core.history(layer, tensor)
                    for name, value in zip(("amax_history", "scale", "scale_inv"), parts):
                        found[f"{layer}.{tensor}.{name}"] = np.asarray(value, np.float32)
        return found

    def load_arrays(self, arrays: Any, *, delayed: Delayed | None = None) -> None:
        """Take histories and scales from what ``arrays`` gave, of a state with as many layers; cached weights are
        forgotten.

        Parameters
        ----------
        arrays : mapping of names to arrays
        delayed : Delayed, optional
            The recipe that they are of.

        Raises
        ------
        TypeError, ValueError
            For names, shapes or types that do not fit, and inside of a region; the state is then as it was.
        """
        recipe = _as_delayed(delayed)
        shapes = {"amax_history": (recipe.amax_history_len,), "scale": (), "scale_inv": ()}
        if not isinstance(arrays, Mapping):
            raise TypeError(f"arrays must be a mapping of names to arrays, not {kind_of(arrays)}")
        given = {str(name): arrays[name] for name in arrays}
        known = {f"{layer}.{tensor}.{name}" for layer in range(self.layers) for tensor in _TENSORS for name in shapes}
        if strange := sorted(given.keys() - known):
            raise ValueError(f"arrays has {short(strange[0])!r}, which a state of {self.layers} layers has not")
        begun = sorted({int(name.split(".")[0]) for name in given})
        values: dict[tuple[int, str], tuple[Array, float, float]] = {}
        for layer in begun:
            for tensor in _TENSORS:
                parts = []
                for name, shape in shapes.items():
                    key = f"{layer}.{tensor}.{name}"
                    if key not in given:
                        raise ValueError(f"arrays has no {key!r}")
                    parts.append(as_float32(given[key], f"arrays[{key!r}]", shape))
                values[layer, tensor] = (
                    parts[0],
                    as_amax(float(parts[1]), "scale"),
                    as_amax(float(parts[2]), "scale_inv"),
                )
        with self._lock:
            if self.regions:
                raise ValueError("the state must not be loaded inside of an autocast region")
            for layer in begun:
                self._core.begin_layer(layer, recipe._recipe())
            for (layer, tensor), history in values.items():
                self._core.set_history(layer, tensor, *history)

    def copy(self) -> Fp8State:
        """The same state, to go on apart."""
        other = Fp8State.__new__(Fp8State)
        with self._lock:
            other._begin(_core.Fp8State(self._core))
        return other

    __copy__ = copy
    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Fp8State:
        return self.copy()

    def __eq__(self, other: object) -> bool:
        return self._core.equals(other._core) if isinstance(other, Fp8State) else NotImplemented

    def __reduce__(self) -> Any:
        raise TypeError(
            "an Fp8State is not pickled: arrays() gives its histories and scales, and copy() keeps all of it"
        )

    def __repr__(self) -> str:
        return f"<fp8lab.Fp8State of {self.layers} layers, rules {self.rules}, {self.regions} regions open>"


def reduce_and_update(states: Sequence[Fp8State]) -> None:
    """Make the scales that the ranks' states wait for: amaxes become the largest of the ranks', where the recipe has
    reduce_amax.

    The order of the ranks does not matter. A NaN is dropped unless all ranks have one.

    Parameters
    ----------
    states : sequence of Fp8State
        One for each rank, all with the same layers and recipes and waiting for the same update.

    Raises
    ------
    TypeError, ValueError
        For states that do not fit each other.
    """
    if not isinstance(states, (list, tuple)) or not all(isinstance(one, Fp8State) for one in states):
        raise TypeError("states must be a list of Fp8State")
    if len({id(one) for one in states}) != len(states):
        raise ValueError("states must be different ones")
    _core.reduce_and_update([one._core for one in states])


def linear_bias_gradient(dy: Any) -> Array:
    """The gradient of a bias: the sum of each column of dy in float32, rows ascending.

    The order in which systems' kernels sum is not documented.

    Parameters
    ----------
    dy : array_like of float32, float16 or bfloat16, (tokens, out)

    Returns
    -------
    ndarray of float32, (out,)

    Raises
    ------
    TypeError, ValueError
        For another type or number of dimensions.
    """
    gradient, shape = _as_matrix(dy, "dy")
    out = empty((shape[1],), np.float32)
    _core.linear_bias_gradient(gradient, out)
    return out


_guard(__name__, __all__)
