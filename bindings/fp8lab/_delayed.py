# SPDX-License-Identifier: Apache-2.0
"""Delayed scaling: its recipe, its versions and the amax history that the caller owns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import Array, as_float32, check_bool, check_choice, check_int, check_name, check_real, kind_of
from fp8lab._core import DelayedVersion
from fp8lab._entry import guard as _guard
from fp8lab._values import Record, State, equal, record, restorer, state
from fp8lab.literals import AmaxAlgorithmName, DelayedVersionName, Fp8FormatName

__all__ = [
    "AmaxHistory",
    "Delayed",
    "delayed_versions",
    "reduced_amax",
]

_MOST = 2**31 - 1
_LONGEST = 2**20


def delayed_versions() -> list[DelayedVersion]:
    """The versions of delayed scaling that there are: whose rules make a scale of an amax history; ``str()`` explains
    each."""
    return _core.delayed_versions()


def as_version(value: Any, argument: str) -> str:
    """The name of a version, or of one that is given as it is."""
    if isinstance(value, DelayedVersion):
        return value.name
    check_name(value, argument, " or a DelayedVersion")
    return str(check_choice(value, argument, [version.name for version in _core.delayed_versions()]))


def as_amax(value: Any, argument: str) -> float:
    """A number that float32 can hold, infinities and NaN included."""
    number = check_real(value, argument)
    if np.isfinite(number) and abs(number) > float(np.finfo(np.float32).max):
        raise ValueError(f"{argument} must be a float32, and {number} is larger than all of them")
    return number


def _as_precision(value: Any) -> tuple[bool, bool, bool]:
    if not isinstance(value, (tuple, list)) or len(value) != 3 or not all(isinstance(flag, bool) for flag in value):
        raise TypeError("override_linear_precision must be three bools, (fprop, dgrad, wgrad)")
    return (value[0], value[1], value[2])


class _Window(np.ndarray):
    """The history that a function for the amax gets: a row of it, ``history[0]``, is a view, as in PyTorch."""

    def __getitem__(self, key: Any) -> Any:
        key = key if isinstance(key, tuple) else (key,)
        return super().__getitem__(key if any(part is Ellipsis for part in key) else (*key, ...))


def _chosen_amax(algo: Callable[[Array], Any], history: Array) -> float | int:
    """What a function for the amax returns, as a float; where it is a view of a row of the history, that row as an
    int."""
    amax = algo(history.view(_Window))
    if isinstance(amax, np.ndarray) and amax.size == 1:
        if amax.dtype == np.float32 and np.may_share_memory(amax, history):
            return int(amax.ctypes.data - history.ctypes.data) // history.itemsize
        amax = amax.item()
    return as_amax(amax, "what amax_compute_algo returns")


@record
@dataclass(frozen=True, kw_only=True)
class Delayed(Record):
    """Delayed scaling: the scale of a cast comes from the amaxes of earlier steps.

    Fields and defaults are those of Transformer Engine's ``DelayedScaling`` recipe; ``str()`` explains the recipe.

    Parameters
    ----------
    margin : int
        The scale is divided by ``2**margin``; -62 to 62.
    interval : int
        At least 1. Read by none of the versions, whose scales change every step.
    fp8_format : str
        ``hybrid`` (E4M3 forward, E5M2 backward) or ``e4m3`` (both).
    amax_history_len : int
        The window, the running step included: 1 to 2^20.
    amax_compute_algo : str or callable
        ``max``, ``most_recent``, or a function that gets the history (a copy, a float32 array, row 0 the running step)
        and returns the amax. A function takes the version's unfused path, as in Transformer Engine. Since 1.6 the
        window moves in its place before the amax is read (with a window of 1 since 0.6), and a row of the history is a
        view of it, as in PyTorch: ``lambda history: history[0]`` returns the 0 that has moved into row 0, and the scale
        stays; ``history[0].copy()`` is the running step's amax. A function that raises leaves the history as it was.
    reduce_amax : bool
        Ranks share the largest of their amaxes: see ``reduced_amax``.
    override_linear_precision : (bool, bool, bool)
        Whether fprop, dgrad and wgrad run in high precision, of which only wgrad may. No scale depends on it.
    version : str or DelayedVersion
        One of ``delayed_versions()``.

    Raises
    ------
    TypeError, ValueError
        For a field that is out of range, or that the version does not have; the message says the rule.
    """

    margin: int = 0
    interval: int = 1
    fp8_format: Fp8FormatName = "hybrid"
    amax_history_len: int = 1024
    amax_compute_algo: AmaxAlgorithmName | Callable[[Array], float] = "max"
    reduce_amax: bool = True
    override_linear_precision: tuple[bool, bool, bool] = (False, False, False)
    version: DelayedVersionName | DelayedVersion = "te_current"

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", as_version(self.version, "version"))
        object.__setattr__(self, "override_linear_precision", _as_precision(self.override_linear_precision))
        self._recipe()

    def _recipe(self) -> _core.DelayedRecipe:
        algo = self.amax_compute_algo
        return _core.DelayedRecipe(
            margin=check_int(self.margin, "margin", -_MOST, _MOST),
            interval=check_int(self.interval, "interval", -_MOST, _MOST),
            fp8_format=check_name(self.fp8_format, "fp8_format"),
            amax_history_len=check_int(self.amax_history_len, "amax_history_len", 1, _LONGEST),
            amax_compute_algo=None if callable(algo) else check_name(algo, "amax_compute_algo", " or a function"),
            reduce_amax=check_bool(self.reduce_amax, "reduce_amax"),
            override_linear_precision=self.override_linear_precision,
            version=as_version(self.version, "version"),
        )

    def __str__(self) -> str:
        return self._recipe().describe()


class AmaxHistory:
    """The state of delayed scaling for one tensor: a value that the caller owns, keeps, copies and pickles.

    Two are equal where recipe, pass and every bit of the state are. Threads may share one: each method, and each
    ``quantize``, has it to itself from reading the scale to recording the amax, and the others wait. Their amaxes all
    count; which cast is first, and so which step an amax belongs to, is the threads' race where one of them calls
    ``update_scale``.

    Parameters
    ----------
    recipe : Delayed
    backward : bool
        Whether the tensor is a gradient: the format of ``hybrid`` is E5M2 then.

    Examples
    --------
    >>> history = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=2))
    >>> for amax in [2.0, 4.0, 1.0, 1.0]:
    ...     history.record_amax(amax)  # the cast: its scale is history.scale
    ...     history.update_scale()     # the end of the step
    >>> history.scale
    448.0
    """

    def __init__(self, recipe: Delayed, *, backward: bool = False) -> None:
        if not isinstance(recipe, Delayed):
            raise TypeError(f"recipe must be a Delayed, not {kind_of(recipe)}")
        backward = check_bool(backward, "backward")
        self._begin(recipe, backward, _core.AmaxHistory(recipe._recipe(), backward))

    def _begin(self, recipe: Delayed, backward: bool, core: _core.AmaxHistory) -> None:
        self._recipe = recipe
        self._backward = backward
        self._history = core
        self._lock = threading.RLock()  # reentrant: the function for the amax may read the history that calls it

    @property
    def recipe(self) -> Delayed:
        """The recipe, with the history's present length."""
        return self._recipe

    @property
    def amaxes(self) -> Array:
        """The window, a float32 array: row 0 is the running step's. A copy; assign one to restore a state."""
        with self._lock:
            return self._history.amaxes

    @amaxes.setter
    def amaxes(self, amaxes: Any) -> None:
        with self._lock:
            self._history.amaxes = as_float32(amaxes, "amaxes", (self._recipe.amax_history_len,))

    @property
    def scale(self) -> float:
        """Of the next cast; after ``record_amax`` that of the cast itself."""
        with self._lock:
            return self._history.scale

    @scale.setter
    def scale(self, scale: float) -> None:
        with self._lock:
            self._history.scale = as_amax(scale, "scale")

    @property
    def scale_inv(self) -> float:
        """Of the last cast's data; Transformer Engine up to 1.10 writes it with the new scale."""
        with self._lock:
            return self._history.scale_inv

    @scale_inv.setter
    def scale_inv(self, scale_inv: float) -> None:
        with self._lock:
            self._history.scale_inv = as_amax(scale_inv, "scale_inv")

    @property
    def position(self) -> int:
        """Steps done; by MS-AMP's rule since it began anew."""
        with self._lock:
            return self._history.position

    @position.setter
    def position(self, position: int) -> None:
        with self._lock:
            self._history.position = check_int(position, "position", 0, 2**64 - 1)

    def record_amax(self, amax: float) -> None:
        """What a cast of a tensor with that amax (rounded to float32) does; several in a step leave the largest.

        NaN of either sign is NaN. Raises TypeError or ValueError for an amax that is negative or larger than every
        float32.
        """
        with self._lock:
            self._history.record_amax(as_amax(amax, "amax"))

    def update_scale(self) -> None:
        """The end of a step: the next scale, and the window moves on.

        Raises what a function for the amax raises, and TypeError or ValueError where it returns no number that a
        float32 holds; the history is as it was then.
        """
        with self._lock:
            algo = self._recipe.amax_compute_algo
            chosen = _chosen_amax(algo, self._history.amaxes) if callable(algo) else None
            self._history.update_scale(chosen)

    def resize_history(self, amax_history_len: int) -> None:
        """Another length in the middle of a run: a shorter history keeps the oldest amaxes and drops the newest.

        Raises TypeError or ValueError unless it is an int from 1 to 2^20.
        """
        length = check_int(amax_history_len, "amax_history_len", 1, _LONGEST)
        with self._lock:
            self._history.resize_history(length)
            self._recipe = replace(self._recipe, amax_history_len=length)

    def copy(self) -> AmaxHistory:
        """The same state, to go on apart."""
        other = AmaxHistory.__new__(AmaxHistory)
        with self._lock:
            other._begin(self._recipe, self._backward, _core.AmaxHistory(self._history))
        return other

    __copy__ = copy
    __hash__ = None  # type: ignore[assignment]

    def _fields(self) -> dict[str, Any]:
        with self._lock:
            core = self._history
            return {
                "recipe": self._recipe,
                "backward": self._backward,
                "amaxes": core.amaxes,
                "scale": core.scale,
                "scale_inv": core.scale_inv,
                "position": core.position,
            }

    def __eq__(self, other: object) -> bool:
        return equal(self._fields(), other._fields()) if isinstance(other, AmaxHistory) else NotImplemented

    def __reduce__(self) -> State:
        return state("AmaxHistory", **self._fields())

    def __repr__(self) -> str:
        return f"<fp8lab.AmaxHistory of {self._recipe.amax_history_len} amaxes, scale {self.scale:g}>"


@restorer("AmaxHistory", "recipe", "backward", "amaxes", "scale", "scale_inv", "position")
def _history(
    *, recipe: Delayed, backward: bool, amaxes: Array, scale: float, scale_inv: float, position: int
) -> AmaxHistory:
    history = AmaxHistory(recipe, backward=check_bool(backward, "backward"))
    history.amaxes, history.scale, history.scale_inv, history.position = amaxes, scale, scale_inv, position
    return history


def reduced_amax(of_ranks: Any) -> float:
    """What an all-reduce with MAX leaves of the ranks' amaxes: the largest; NaN where all are.

    Parameters
    ----------
    of_ranks : array_like of float32
        At least one.

    Raises
    ------
    TypeError, ValueError
        For other types, and for none.
    """
    amaxes = as_float32(of_ranks, "of_ranks").reshape(-1)
    if amaxes.size == 0:
        raise ValueError("of_ranks must have at least one amax")
    return _core.reduced_amax(amaxes)


_guard(__name__, __all__)
