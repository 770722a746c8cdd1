# SPDX-License-Identifier: Apache-2.0
"""A Linear layer with its weight, its recipe and its state, called as a network calls it."""

from __future__ import annotations

from typing import Any, NamedTuple

from fp8lab._arrays import Array, kind_of
from fp8lab._delayed import Delayed
from fp8lab._entry import guard as _guard
from fp8lab._linear import _as_bias, _as_linear_recipe, _as_matrix
from fp8lab._state import Fp8State, LinearCall, RecipeLike, _as_delayed, linear_bias_gradient

__all__ = [
    "LayerGrads",
    "Linear",
]


class LayerGrads(NamedTuple):
    """The gradients of a layer; None for what was not wanted."""

    dx: Array | None
    dw: Array | None
    db: Array | None


class Linear:
    """A Linear layer: its weight, its bias, its recipe, and its part of an ``Fp8State``.

    Outside of the state's regions every forward is a region of its own: under delayed scaling its exit makes the next
    scales of x and w, and its backward that of dy. Inside of ``state.autocast(...)`` the layer runs as that region
    says.

    Parameters
    ----------
    w : ndarray of float32, float16 or bfloat16, (out, in)
        The layer keeps the array itself as ``weight``: an optimizer may change it in place.
    bias : ndarray of the same types, (out,), optional
        Kept as ``bias``.
    recipe : str or LinearRecipe
    delayed : Delayed, optional
        For a recipe of delayed scaling; Transformer Engine's defaults where left out.
    state : Fp8State, optional
        Which layers share; left out, the layer has one of its own.
    layer : int
        Which of the state's layers it is.

    Raises
    ------
    TypeError, ValueError
        For a weight or a bias of other types or shapes, and as ``Fp8State.enter_autocast`` for the recipe.

    Examples
    --------
    >>> layer = fp8lab.Linear(w, recipe="te_delayed_hopper")
    >>> y = layer.forward(x)
    >>> dx, dw, db = layer.backward(dy)
    """

    def __init__(
        self,
        w: Any,
        bias: Any = None,
        *,
        recipe: RecipeLike,
        delayed: Delayed | None = None,
        state: Fp8State | None = None,
        layer: int = 0,
    ) -> None:
        _, (features, _) = _as_matrix(w, "w")
        if bias is not None:
            _as_bias(bias, features)
        if state is not None and not isinstance(state, Fp8State):
            raise TypeError(f"state must be an Fp8State, not {kind_of(state)}")
        self.weight = w
        self.bias = bias
        self.recipe = _as_linear_recipe(recipe)
        self.delayed = _as_delayed(delayed, self.recipe)
        self.state = Fp8State() if state is None else state
        self.layer = self.state._layer(layer)
        self._call: LinearCall | None = None
        Fp8State().enter_autocast(self.recipe, delayed=self.delayed)  # refuses recipes that do not go together

    def forward(self, x: Any, **options: Any) -> Array:
        """``x @ weight.T + bias``, (tokens, out), of the recipe's output; ``options`` are those of
        ``Fp8State.forward``.

        Raises
        ------
        TypeError, ValueError
            As ``Fp8State.forward``; the layer is then as it was.
        """
        if self.state.regions:
            call = self.state.forward(self.layer, x, self.weight, self.bias, **options)
        else:
            with self.state.autocast(self.recipe, delayed=self.delayed):
                call = self.state.forward(self.layer, x, self.weight, self.bias, **options)
        self._call = call
        return call.y

    def backward(self, dy: Any, **options: Any) -> LayerGrads:
        """The gradients of the last forward; ``options`` are those of ``Fp8State.backward``. Each forward has one
        backward.

        db is that of ``linear_bias_gradient``, where the layer has a bias.

        Raises
        ------
        TypeError, ValueError
            As ``Fp8State.backward``.
        RuntimeError
            Without a forward since the last backward.
        """
        if self._call is None:
            raise RuntimeError("backward needs a forward before it: each forward has one backward")
        grads = self.state.backward(self._call, dy, **options)
        self._call = None
        return LayerGrads(grads.dx, grads.dw, None if self.bias is None else linear_bias_gradient(dy))

    def __repr__(self) -> str:
        features, inputs = _as_matrix(self.weight, "weight")[1]
        return f"<fp8lab.Linear {inputs} -> {features}{'' if self.bias is None else ' with bias'}: {self.recipe}>"


_guard(__name__, __all__)
