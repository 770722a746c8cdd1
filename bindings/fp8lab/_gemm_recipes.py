# SPDX-License-Identifier: Apache-2.0
"""How a GEMM is composed, as a record of facts."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    as_float32,
    as_format,
    as_profile,
    check_bool,
    check_choice,
    check_int,
    check_list,
    check_name,
    check_real,
    check_threads,
    kind_of,
    named,
    output,
)
from fp8lab._core import Format, MmaModel, Profile
from fp8lab._entry import guard as _guard
from fp8lab._html import facts_html
from fp8lab._values import WIDE_FORMATS, CoreRecord, record
from fp8lab.literals import (
    GemmActivationName,
    GemmAddendTypeName,
    GemmAdditionName,
    GemmBiasGradientName,
    GemmCEntersName,
    GemmDequantizedName,
    GemmModelName,
    GemmOrderName,
    GemmPartialTypeName,
    GemmScaleOrderName,
    GemmSumTypeName,
    GemmTensorScalesName,
    GemmTotalTypeName,
    GemmUnscaledTypeName,
    GemmViaTypeName,
    GemmZeroRuleName,
    OutputName,
    ProfileName,
)

__all__ = [
    "GemmRecipe",
    "NamedGemmRecipe",
    "gemm_activation",
    "gemm_recipes",
]

_MOST = 2**62


def as_gemm_model(model: Any, argument: str = "model") -> MmaModel:
    """A model by name, ``cuda_cores`` and ``cuda_cores_fma`` included, or one that is given as it is."""
    if isinstance(model, MmaModel):
        return model
    return named(argument, _core.find_gemm_model, check_name(model, argument, " or an MmaModel"))


def check_sizes(values: Any, argument: str) -> list[int]:
    """A list of sizes; none where nothing is given."""
    if values is None:
        return []
    return check_list(values, argument, lambda value, argument: check_int(value, argument, 0, _MOST))


def _as_k_order(value: Any, argument: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    sizes = check_sizes(value, argument)
    if len(sizes) != 3:
        raise ValueError(f"{argument} must be (ways, granule, window), not of {len(sizes)} numbers")
    return tuple(sizes)


def _as_output(value: Any, argument: str) -> Format:
    wide = WIDE_FORMATS.get(value) if isinstance(value, str) else None
    return as_format(value, argument) if wide is None else wide


@record
@dataclasses.dataclass(frozen=True, repr=False)
class GemmRecipe(CoreRecord):
    """How a GEMM is composed: a record of facts. ``gemm`` runs it, a ``LinearGemm`` has one, and ``diagnose_gemm``
    finds one; ``gemm_recipes()`` lists those of real systems.

    It is a function of the operands alone: c, the bias and the scale of the output are arguments of ``gemm``.
    ``str()`` says the record in words; ValueError for fields that do not go together, whose message says why. What the
    fast path does not have is computed element by element, with the same bits where both could (``slow_because``).

    Parameters
    ----------
    model : str or MmaModel
        The tensor core, one of ``models()``; or ``cuda_cores`` or ``cuda_cores_fma``, float32 sums of K ascending
        without one, which round each product, or use an fma.
    dequantized : str
        The type to which each code times its scales is rounded before it is multiplied: ``as_given`` is none.
    zero_rule : str
        As for ``mma``.
    k_order : tuple of int, optional
        (ways, granule, window): each window of K is dealt out to so many parts, granule by granule, and the parts
        follow one after the other. K ascends if left out.
    promote_k : int
        Elements of K after which the accumulator is added to a float32 one and cleared; 0: never, or where operands
        have tile scales, their depth.
    ranges, range_k, split_k : int, int, list of int
        Split-K, one of three: how many ranges of K are computed apart, how long each is, or each length. The last may
        be shorter. 0 and empty: one range.
    split_order, order : list of int, str
        The ranges' numbers as they are added, or ``ascending``, ``descending`` or ``pairwise``; the latter are of
        promoted accumulators where there is one range.
    partial_type, total_type : str, str
        What ranges are rounded to before they are added, and their sum after each of them.
    scale_order : str, optional
        How float32 scales multiply: ``scales_first``, ``accumulator_first`` or ``b_first``. Left out, scales_first for
        tiles, accumulator_first for rows.
    tensor_scales : str
        Scales of the tensors multiply ``as_alpha``, one number, after those of rows; or ``with_rows``, that of each
        multiplies those of its rows, and the products the accumulator by ``scale_order``.
    fused, divided, sum_type : bool, bool, str
        Whether a promotion with scales ends with an fma; whether divisors of tensor scales divide; what the accumulator
        is rounded to before the scales multiply.
    alpha, beta : float, float
        They multiply the product, and c.
    c_enters, addition, addend_type, bias_first : str, str, str, bool
        Whether the accumulation starts from c; how c and the bias are added in the epilogue; what they are rounded to
        before; whether the bias is added before c.
    activation, bias_gradient : str, str
        What is applied to the sum: ``relu``, or ``gelu`` as cuBLASLt has it on Hopper (``gemm_activation``), whose
        models it goes with; and which operand's gradient of a bias is written: ``of_a``, as cuBLASLt adds it on Hopper
        (``operators.cublaslt_row_sums``), with ``hopper_bf16`` and ``hopper_tf32``. What is not known is refused.
    scale_out_first, unscaled_type : bool, str
        Whether the scale of the output multiplies those of a and b; what the result is rounded to before it does.
    via_type, output, cast : str, str or Format, str or Profile, optional
        What the result is rounded to on its way; the type of the output, ``float32`` or one of up to 16 bits; and the
        profile of that rounding (left out: saturated to codes, to infinity of float16 and bfloat16).
    """

    model: GemmModelName | MmaModel = "exact"
    dequantized: GemmDequantizedName = "as_given"
    zero_rule: GemmZeroRuleName = "floor"
    k_order: tuple[int, int, int] | None = None
    promote_k: int = 0
    ranges: int = 0
    range_k: int = 0
    split_k: tuple[int, ...] = ()
    split_order: tuple[int, ...] = ()
    order: GemmOrderName = "ascending"
    partial_type: GemmPartialTypeName = "as_given"
    total_type: GemmTotalTypeName = "as_given"
    scale_order: GemmScaleOrderName | None = None
    tensor_scales: GemmTensorScalesName = "as_alpha"
    fused: bool = True
    divided: bool = False
    sum_type: GemmSumTypeName = "as_given"
    alpha: float = 1.0
    beta: float = 1.0
    c_enters: GemmCEntersName = "epilogue"
    addition: GemmAdditionName = "after_scales"
    addend_type: GemmAddendTypeName = "as_given"
    bias_first: bool = False
    activation: GemmActivationName = "none"
    bias_gradient: GemmBiasGradientName = "none"
    scale_out_first: bool = False
    unscaled_type: GemmUnscaledTypeName = "as_given"
    via_type: GemmViaTypeName = "as_given"
    output: OutputName | Format = "float32"
    cast: ProfileName | Profile | None = None

    _kind: ClassVar[Any] = _core.GemmRecipe
    _checks: ClassVar[dict[str, Any]] = {
        "str | MmaModel": as_gemm_model,
        "tuple[int, int, int] | None": _as_k_order,
        "tuple[int, ...]": lambda value, name: tuple(check_sizes(value, name)),
        "int": lambda value, name: check_int(value, name, 0, 2**31 - 1 if name == "promote_k" else _MOST),
        "bool": check_bool,
        "float": check_real,
        "str": check_name,
        "str | None": lambda value, name: None if value is None else check_name(value, name),
        "str | Format": _as_output,
        "str | Profile | None": lambda value, name: None if value is None else as_profile(value, name),
    }

    def _core(self) -> _core.GemmRecipe:
        made: _core.GemmRecipe = self._made
        return made

    @property
    def slow_because(self) -> str:
        """What of it the fast path of ``gemm`` does not have, so that each element is computed by itself; empty:
        nothing.

        Operands with scales of tiles may add to it: promotions within a tile, that are not fused, or with the scales of
        b first.
        """
        return self._core().slow_because(_NOTHING, _NOTHING)


_NOTHING = _core.Operand(np.empty((0, 0), np.uint8), _core.find_format("e4m3"), False, False)
GemmRecipe.__doc__ = f"{GemmRecipe.__doc__}\n    Notes\n    -----\n    The names that fields take:\n\n" + "".join(
    f"    - {field} : {', '.join(choices)}\n" for field, choices in _core.gemm_recipe_choices().items()
)


class NamedGemmRecipe(NamedTuple):
    """A GEMM recipe with the name users call it by and the source that defines it."""

    name: str
    recipe: GemmRecipe
    source: str

    def __str__(self) -> str:
        return f"{self.name}: {self.recipe} [{self.source}]"

    def _repr_html_(self) -> str:
        return facts_html(self.name, {"source": self.source}, [str(self.recipe)])


def gemm_recipes() -> list[NamedGemmRecipe]:
    """The GEMM recipes of real systems; ``str()`` of each explains it."""
    return [NamedGemmRecipe(name, GemmRecipe._of(core), source) for name, core, source in _core.gemm_recipes()]


def gemm_activation(
    name: GemmActivationName,
    x: Any,
    activation_input: Any = None,
    *,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """What the epilogue of a GEMM makes of its float32 sum, unrounded: a ``GemmRecipe`` with this activation, of a sum
    that is there already.

    Parameters
    ----------
    name : str
        ``relu``, ``none``, or one of cuBLASLt's on Hopper: ``gelu`` of operands of 8 and 16 bits, ``gelu_float32``, and
        ``dgelu``, the gradient of either at the activation input, times x.
    x : array_like of float32
    activation_input : array_like of float32, of x's shape, optional
        What the GELU was of; ``dgelu`` alone takes it, and needs it.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of float32, of x's shape, optional

    Returns
    -------
    ndarray of float32, of x's shape
        Every NaN is the word 7FFFFFFF.

    Raises
    ------
    ValueError
        For an unknown name, a wrong shape, an activation input that is missing or that nothing reads.

    Notes
    -----
    Every operation is rounded to float32. R is the word 3F4C422A (0.79788458), C is 3D372713 (0.044715), T is
    ``special_function("tanh", z)``:

    * ``gelu``: ``fma(x, t, x) / 2`` with ``t = T(x fma(x c, x, R))`` and c = 3D12227E;
    * ``gelu_float32``: ``(x / 2) (t + 1)`` with ``t = T((R x) fma(C x, x, 1))``;
    * ``dgelu``: for the activation input i, t of it as for ``gelu_float32``, ``s = fma(-t, t, 1)`` and
      ``p = fma(3DDB33B6 i, i, R)``: ``((i / 2) (s p) + (t + 1) / 2) x``.

    Found from the words of an H200 (cuBLASLt 13.1). Of each function, 131,072 float32 words are these, for all values
    of bfloat16 and for drawn ones, by kernels of FP8, float16, bfloat16, TF32 and float32 operands.

    >>> import numpy as np, fp8lab
    >>> fp8lab.gemm_activation("gelu", np.float32([-1, 0, 1])).view(np.uint32)
    array([3189939734,          0, 1062688890], dtype=uint32)
    >>> fp8lab.gemm_activation("dgelu", np.float32([1, 2]), np.float32([0, 100])).tolist()
    [0.5, 2.0]
    """
    chosen = check_choice(name, "name", tuple(_core.gemm_recipe_choices()["activation"]))
    array = as_float32(x, "x")
    given = np.empty(0, np.float32)
    if activation_input is not None:
        given = as_float32(activation_input, "activation_input", array.shape)
    result = output(out, array.shape, np.float32)
    _core.gemm_activation(
        chosen, apart(array, result), apart(given, result), result, check_threads(threads, array.size)
    )
    return result


def as_gemm_recipe(value: Any, argument: str = "recipe", instead: str = "or an MmaModel") -> GemmRecipe:
    """A recipe; one by its name; or by a model, or its name, what that computes as it is."""
    if isinstance(value, GemmRecipe):
        return value
    if isinstance(value, NamedGemmRecipe):
        return value.recipe
    if isinstance(value, MmaModel):
        return GemmRecipe(value)
    if not isinstance(value, str):
        raise TypeError(
            f"{argument} must be a GemmRecipe, the name of one or of a model, {instead}, not {kind_of(value)}"
        )
    return GemmRecipe._of(named(argument, _core.find_gemm, check_name(value, argument)))


_guard(__name__, __all__)
