# SPDX-License-Identifier: Apache-2.0
"""One code, a format, a recipe or a model, explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fp8lab import _core
from fp8lab._arrays import check_int, check_name, kind_of
from fp8lab._core import Format, MmaModel, Profile
from fp8lab._document import Document
from fp8lab._entry import guard as _guard
from fp8lab._gemm_recipes import NamedGemmRecipe, gemm_recipes
from fp8lab._linear import NamedLinearRecipe, linear_recipes
from fp8lab._recipes import NamedRecipe, recipes
from fp8lab.literals import ExplainedName

__all__ = [
    "explain",
]

_LISTS: dict[type, Callable[[], list[Any]]] = {
    MmaModel: _core.models,
    Profile: _core.profiles,
    NamedRecipe: recipes,
    NamedLinearRecipe: linear_recipes,
    NamedGemmRecipe: gemm_recipes,
}
_NAMED = tuple(_LISTS)


def _check_listed(what: Any) -> None:
    """Refuses what has the name of another, whose words would be told."""
    listed = next(all_of for kind, all_of in _LISTS.items() if isinstance(what, kind))()
    if not any(one == what and one.name == what.name for one in listed):
        raise ValueError(f"what must be one that fp8lab lists; str() explains {what.name[:80]!r}, one of your own")


def explain(
    what: ExplainedName | Format | Profile | MmaModel | NamedRecipe | NamedLinearRecipe | NamedGemmRecipe,
    code: int | None = None,
) -> Document:
    """Explain one code of a format, a format, a recipe, a model or a profile.

    Parameters
    ----------
    what : str, Format, Profile, MmaModel, NamedRecipe, NamedLinearRecipe or NamedGemmRecipe
        By its name, or as ``formats()``, ``models()`` and their like list it. A ``Format`` may be one's own, of at most
        16 bits.
    code : int, optional
        A code of the format.

    Returns
    -------
    experiments.Document
        Of a code: tables ``code``, ``neighbours`` and ``rounds_to_it``, the interval of numbers that become this code
        where they are rounded to the nearest value, a tie to the even code, and nothing saturates; and a picture of its
        binade. Of a format: ``landmarks`` and ``codes``. Of what else has a name: ``things``.

    Raises
    ------
    TypeError, ValueError
        For an unknown name, a code that is none, and a code of what has none.
    """
    given: dict[str, Any] = {}
    if isinstance(what, Format):
        given["format"] = [what]
        bits = what.exponent_bits + what.mantissa_bits + what.is_signed
    elif not isinstance(what, str) and isinstance(what, _NAMED):
        _check_listed(what)
        given["what"] = [what.name]
        bits = 16
    elif isinstance(what, str):
        given["what"] = [check_name(what, "what")]
        bits = 16
    else:
        raise TypeError(f"what must be a name, a Format, a Profile, a model or a named recipe, not {kind_of(what)}")
    if code is not None:
        given["code"] = [str(check_int(code, "code", 0, 2**bits - 1))]
    return Document(_core.run_experiment("explain", given, None))


_guard(__name__, __all__)
