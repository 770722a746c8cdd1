# SPDX-License-Identifier: Apache-2.0
"""The sizes of a Linear layer that a recipe's system takes."""

from __future__ import annotations

from typing import NamedTuple

from fp8lab import _core
from fp8lab._arrays import check_int
from fp8lab._entry import guard as _guard
from fp8lab._linear import LinearRecipe, NamedLinearRecipe, _as_linear_recipe
from fp8lab._tensor_parallel import TensorParallel, as_parallel
from fp8lab.literals import LinearRecipeName

__all__ = [
    "ShapeFit",
    "shape_fits",
]


class ShapeFit(NamedTuple):
    """A size of a Linear layer, and what a rule of its recipe's system says about it; ``str()`` says it in words.

    ``pass_name`` stops where ``dimension`` (tokens, in or out) of ``tensor`` (x, w or dy) is no multiple of
    ``multiple``, on each of ``ranks`` that share the dimension. ``check`` is who checks: the split into ranks, the
    module, the quantizer or the gemm.
    ``below`` and ``above`` are the nearest sizes that no rule of the recipe refuses; ``below`` is 0 where there is
    none.
    """

    pass_name: str
    tensor: str
    dimension: str
    multiple: int
    ranks: int
    check: str
    system: str
    source: str
    size: int
    below: int
    above: int
    words: str

    @property
    def fits(self) -> bool:
        return self.size % (self.multiple * self.ranks) == 0

    def __str__(self) -> str:
        return self.words


def shape_fits(
    recipe: LinearRecipeName | NamedLinearRecipe | LinearRecipe,
    tokens: int,
    in_features: int,
    out_features: int,
    *,
    parallel: TensorParallel | None = None,
) -> list[ShapeFit]:
    """What the recipe's system checks of a Linear layer's sizes, pass by pass, in the order in which it does.

    Parameters
    ----------
    recipe : str or LinearRecipe
        The tensor core decides which layouts its GEMMs take: FP8 with a scale for the tensor wants K contiguous on Ada,
        Hopper and RTX Blackwell, and takes all layouts on ``blackwell_tcgen05_fp8``.
    tokens, in_features, out_features : int
        x is (tokens, in), w (out, in), dy (tokens, out): the whole layer's, of all ranks.
    parallel : TensorParallel, optional
        Ranks each check what they have.

    Returns
    -------
    list of ShapeFit
        Empty where the recipe's system is ``none``.

    Raises
    ------
    TypeError, ValueError
        For sizes that are not from 1 to 2**40.
    """
    sizes = [
        check_int(size, name, 1, 2**40)
        for name, size in (("tokens", tokens), ("in_features", in_features), ("out_features", out_features))
    ]
    split = as_parallel(parallel)._core()
    found = _core.shape_fits(_as_linear_recipe(recipe)._made, sizes[0], sizes[1], sizes[2], split)
    return [ShapeFit(*fields) for fields in found]


_guard(__name__, __all__)
