# SPDX-License-Identifier: Apache-2.0
"""The three products of a Linear layer, as each system's recipe computes them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_kernel_floats,
    check_bool,
    check_choice,
    check_int,
    check_name,
    check_threads,
    copied,
    empty,
    fill,
    kind_of,
    named,
)
from fp8lab._arrays import (
    output as output_array,
)
from fp8lab._core import MmaModel
from fp8lab._delayed import AmaxHistory, as_amax
from fp8lab._entry import guard as _guard
from fp8lab._gemm_recipes import (
    GemmRecipe,
    NamedGemmRecipe,
    as_gemm_model,
    as_gemm_recipe,
)
from fp8lab._html import facts_html
from fp8lab._recipes import GivenScale, NamedRecipe, Recipe, _recipe, as_recipe
from fp8lab._scaling import Quantized, _random_bits
from fp8lab._tensor_parallel import TensorParallel, as_parallel
from fp8lab._values import Record, changed, record
from fp8lab.literals import (
    GemmModelName,
    GemmRecipeName,
    GemmScaleOrderName,
    GemmZeroRuleName,
    LayerSystemName,
    LinearOutputName,
    LinearRecipeName,
    OperandName,
)

__all__ = [
    "LinearGemm",
    "LinearRecipe",
    "NamedLinearRecipe",
    "linear",
    "linear_dgrad",
    "linear_recipes",
    "linear_wgrad",
    "override_linear_precision",
]

_DTYPES = ("float32", "float16", "bfloat16")
_FP8 = ("e4m3", "e5m2")
_SYSTEMS = ("none", "transformer_engine", "deepseek")
_NONE = np.empty(0, np.float32)


def _as_cast(value: Any, argument: str) -> Recipe | str:
    if isinstance(value, str) and value in _DTYPES:
        return value
    if not isinstance(value, (str, Recipe, NamedRecipe)):
        types = f"{', '.join(_DTYPES[:-1])} or {_DTYPES[-1]}"
        raise TypeError(f"{argument} must be a recipe, its name, or {types}, not {kind_of(value)}")
    return as_recipe(value, argument)


@record
@dataclasses.dataclass(frozen=True, init=False)
class LinearGemm(Record):
    """One GEMM of a Linear layer, of which a ``LinearRecipe`` has three: how it is composed, and how its operands are
    cast.

    Parameters
    ----------
    recipe : GemmRecipe, str or MmaModel
        How the GEMM is composed: a ``GemmRecipe``, the name of one of ``gemm_recipes()`` or of a model. Where it does
        not promote is what Transformer Engine calls fast accumulation, every 128 its split accumulator. Its output is
        ``float32``, ``float16`` or ``bfloat16``; in fprop and dgrad under delayed scaling (both casts are GivenScale)
        also ``e4m3`` or ``e5m2``, the GEMM's FP8 output.
    a, b : str or Recipe
        How the tensors on the left (x in fprop, dy in dgrad and wgrad) and on the right (w in fprop and dgrad, x in
        wgrad) are cast. A recipe, or the name of one of ``recipes()``, quantizes. ``float32``, ``float16`` and
        ``bfloat16`` leave a tensor in high precision, rounded to that type; then both are such.
    promote_k, scale_order, output : int, str, str, optional
        They change these fields of the recipe.
    model : str or MmaModel, optional
        It makes the recipe, or changes that field.
    """

    recipe: GemmRecipe
    a: OperandName | Recipe
    b: OperandName | Recipe

    _made: ClassVar[Any] = None  # the record in C++, which each has

    def __init__(
        self,
        recipe: GemmRecipeName | GemmRecipe | NamedGemmRecipe | MmaModel | None = None,
        a: OperandName | Recipe | NamedRecipe = "float32",
        b: OperandName | Recipe | NamedRecipe = "float32",
        promote_k: int | None = None,
        scale_order: GemmScaleOrderName | None = None,
        output: LinearOutputName | None = None,
        *,
        model: GemmModelName | MmaModel | None = None,
    ) -> None:
        casts = {name: _as_cast(value, name) for name, value in (("a", a), ("b", b))}
        if recipe is None and model is None:
            raise TypeError("a recipe or a model must be given")
        base = as_gemm_recipe(model if recipe is None else recipe, "model" if recipe is None else "recipe")
        fields: dict[str, Any] = {}
        if recipe is not None and model is not None:
            fields["model"] = as_gemm_model(model)
        if promote_k is not None:
            fields["promote_k"] = check_int(promote_k, "promote_k", 0, 2**31 - 1)
        if scale_order is not None:
            fields["scale_order"] = check_name(scale_order, "scale_order")
        if output is not None:
            fields.update(output=check_choice(output, "output", (*_DTYPES, *_FP8)), cast=None)
        own = changed(base, fields)
        left, right = (cast if isinstance(cast, str) else cast._core() for cast in casts.values())
        object.__setattr__(self, "_made", _core.LinearGemm({"recipe": own._core(), "a": left, "b": right}))
        for name, value in {"recipe": own, **casts}.items():
            object.__setattr__(self, name, value)

    @property
    def model(self) -> MmaModel:
        """The tensor core, of the recipe."""
        return as_gemm_model(self.recipe.model)

    @property
    def promote_k(self) -> int:
        """As the recipe has it."""
        return self.recipe.promote_k

    @property
    def scale_order(self) -> str | None:
        """As the recipe has it."""
        return self.recipe.scale_order

    @property
    def output(self) -> str:
        """What the result is rounded to, as the recipe has it."""
        output = self.recipe.output
        return output if isinstance(output, str) else output.name

    @property
    def bias_format(self) -> str:
        """What the bias is rounded to: the output's type, but bfloat16 where operands are quantized and that is float32
        or FP8."""
        bias_format: str = self._made.bias_format
        return bias_format


@record
@dataclasses.dataclass(frozen=True)
class LinearRecipe(Record):
    """How a Linear layer computes its three GEMMs; ``linear_recipes()`` lists those of real systems, ``str()`` explains
    it.

    Parameters
    ----------
    fprop : LinearGemm
        y = x @ w.T, from x and w rowwise.
    dgrad : LinearGemm
        dx = dy @ w, from dy rowwise and w columnwise.
    wgrad : LinearGemm
        dw = dy.T @ x, from dy and x columnwise. Both directions are made of the original tensor, never one of the
        other.
    system : str
        The system that computes the layer: ``transformer_engine`` or ``deepseek``, which refuse some sizes
        (``shape_fits``), or ``none``.

    Raises
    ------
    TypeError, ValueError
        For fields that do not go together; the message names the pass.
    """

    fprop: LinearGemm
    dgrad: LinearGemm
    wgrad: LinearGemm
    system: LayerSystemName = "none"

    _made: ClassVar[Any] = None  # the record in C++, which each has

    def __post_init__(self) -> None:
        system = check_choice(self.system, "system", _SYSTEMS)
        for name in ("fprop", "dgrad", "wgrad"):
            gemm = getattr(self, name)
            if not isinstance(gemm, LinearGemm):
                raise TypeError(f"{name} must be a LinearGemm, not {kind_of(gemm)}")
        core = _core.LinearRecipe(self.fprop._made, self.dgrad._made, self.wgrad._made, system)
        object.__setattr__(self, "_made", core)

    def __str__(self) -> str:
        description: str = self._made.description
        return description


def _linear_recipe(core: _core.LinearRecipe) -> LinearRecipe:
    def gemm(made: _core.LinearGemm) -> LinearGemm:
        fields = dict(made.fields)
        for name in ("a", "b"):
            if isinstance(fields[name], _core.Recipe):
                fields[name] = _recipe(fields[name])
        fields["recipe"] = GemmRecipe._of(fields["recipe"])
        return LinearGemm(**fields)

    return LinearRecipe(
        gemm(core.fprop), gemm(core.dgrad), gemm(core.wgrad), check_choice(core.system, "system", _SYSTEMS)
    )


class NamedLinearRecipe(NamedTuple):
    """A linear recipe with the name users call it by and the source that defines it."""

    name: str
    recipe: LinearRecipe
    source: str

    def __str__(self) -> str:
        return f"{self.name}: {self.recipe} [{self.source}]"

    def _repr_html_(self) -> str:
        return facts_html(self.name, {"source": self.source}, [str(self.recipe)])


def linear_recipes() -> list[NamedLinearRecipe]:
    """The linear recipes of real systems on the tensor cores that they run on; ``str()`` of each explains it."""
    return [NamedLinearRecipe(name, _linear_recipe(core), source) for name, core, source in _core.linear_recipes()]


_LINEAR_RECIPES = {one.name: one.recipe for one in linear_recipes()}


def _as_linear_recipe(value: Any, argument: str = "recipe") -> LinearRecipe:
    if isinstance(value, NamedLinearRecipe):
        return value.recipe
    if isinstance(value, LinearRecipe):
        return value
    name = check_name(value, argument, " or a LinearRecipe")
    return _LINEAR_RECIPES[named(argument, _core.find_linear_recipe, name)]


def override_linear_precision(
    recipe: LinearRecipeName | NamedLinearRecipe | LinearRecipe,
    other: LinearRecipeName | NamedLinearRecipe | LinearRecipe,
    *,
    fprop: bool = False,
    dgrad: bool = False,
    wgrad: bool = False,
) -> LinearRecipe:
    """The recipe with the GEMMs that are marked taken from another, but for their output, which stays.

    What Transformer Engine 0.1 to 1.13 called override_linear_precision; it took wgrad alone.

    Parameters
    ----------
    recipe, other : str or LinearRecipe
        ``other`` is one in high precision, such as ``bf16_hopper``.
    fprop, dgrad, wgrad : bool
    """
    flags = (check_bool(fprop, "fprop"), check_bool(dgrad, "dgrad"), check_bool(wgrad, "wgrad"))
    changed = _core.override_linear_precision(
        _as_linear_recipe(recipe)._made, *flags, _as_linear_recipe(other, "other")._made
    )
    return _linear_recipe(changed)


def _as_matrix(x: Any, argument: str) -> tuple[tuple[Array, str], tuple[int, int]]:
    """Values with the name of their type, and rows and columns."""
    values, source = as_kernel_floats(x, argument)
    if values.ndim != 2:
        raise ValueError(f"{argument} must have two dimensions, not {values.ndim}")
    return (values, source), values.shape


def _as_input(x: Any, argument: str) -> tuple[Any, tuple[int, int]]:
    """What C++ takes, and rows and columns."""
    return (x._core, x.shape) if isinstance(x, Quantized) else _as_matrix(x, argument)


def _typed(out: Array, dtype: str) -> Array:
    """Floats as they are, or 16-bit words as a view of their type."""
    if dtype == "bfloat16":
        import ml_dtypes

        return out.view(ml_dtypes.bfloat16)
    return out if dtype == "float32" else out.view(dtype)


def _as_bias(bias: Any, size: int) -> Array:
    values, source = as_kernel_floats(bias, "bias")
    if values.shape != (size,):
        raise ValueError(f"bias must have shape {(size,)}, one for each row of w, not {values.shape}")
    if source == "float32":
        return values
    widened = np.empty(size, np.float32)
    _core.decode(values, widened, _core.find_format(source), 1)
    return widened


def _scaled(
    pass_name: str,
    recipe: LinearRecipe,
    a: Any,
    b: Any,
    options: tuple[Any, str, Any, Any, Any],
    bias: Array,
    output_scale: Any,
) -> Quantized:
    """An FP8 output: of a history it takes the scale, and records the amax."""
    random_bits, zero_rule, threads, check_shapes, parallel = options
    if as_parallel(parallel).mode != "none":
        raise ValueError("parallel is for an output in high precision: ranks add their results in it")
    output = getattr(recipe, pass_name).output

    def core_of(scale: float) -> _core.Quantized:
        return _core.linear_pass_fp8(
            pass_name, recipe._made, a, b, bias, _random_bits(random_bits), check_name(zero_rule, "zero_rule"),
            check_threads(threads), check_bool(check_shapes, "check_shapes"), scale,
        )  # fmt: skip

    if not isinstance(output_scale, AmaxHistory):
        scale = 1.0 if output_scale is None else as_amax(output_scale, "output_scale")
        if not 0 < scale < float("inf"):
            raise ValueError(f"output_scale must be positive and finite, not {scale}")
        return Quantized(core_of(scale), GivenScale(output, scale), "rowwise")
    with output_scale._lock:  # from reading the scale to recording the amax
        delayed = output_scale.recipe
        format = "e5m2" if output_scale._backward and delayed.fp8_format == "hybrid" else "e4m3"
        if format != output:
            raise ValueError(
                f"output_scale is the history of a tensor in {format}, and the recipe's output is {output}"
            )
        core = core_of(output_scale.scale)
        output_scale.record_amax(core.amax)
        return Quantized(core, delayed, "rowwise")


def _run(
    pass_name: str,
    recipe: Any,
    a: Any,
    b: Any,
    shape: tuple[int, int],
    options: tuple[Any, str, Any, Any, Any],
    bias: Array = _NONE,
    main_grad: Array | None = None,
    output_scale: Any = None,
) -> Any:
    random_bits, zero_rule, threads, check_shapes, parallel = options
    core = _as_linear_recipe(recipe)
    dtype = getattr(core, pass_name).output
    if dtype in _FP8:
        return _scaled(pass_name, core, a, b, options, bias, output_scale)
    if output_scale is not None:
        raise ValueError(f"output_scale is for a recipe whose {pass_name} has the output e4m3 or e5m2, not {dtype}")
    out = copied(main_grad) if main_grad is not None else empty(shape, np.float32 if dtype == "float32" else np.uint16)
    _core.linear_pass(
        pass_name, core._made, a, b, out, bias, main_grad is not None,
        _random_bits(random_bits), check_name(zero_rule, "zero_rule"), check_threads(threads, 4 * shape[0] * shape[1]),
        check_bool(check_shapes, "check_shapes"), as_parallel(parallel)._core(),
    )  # fmt: skip
    return _typed(out, dtype)


def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    recipe: LinearRecipeName | NamedLinearRecipe | LinearRecipe,
    output_scale: float | AmaxHistory | None = None,
    parallel: TensorParallel | None = None,
    zero_rule: GemmZeroRuleName = "floor",
    threads: int | None = None,
    check_shapes: bool = True,
) -> Any:
    """``x @ w.T + bias`` of a Linear layer, bit for bit as the recipe's system computes it; Ctrl-C stops it.

    Both operands are cast rowwise and multiplied; then the bias is added in float32, and the sum is rounded once.

    Parameters
    ----------
    x : array_like of float32, float16 or bfloat16, (tokens, in), or Quantized
    w : array_like of float32, float16 or bfloat16, (out, in), or Quantized
        A Quantized was made by the recipe of that operand, in the direction of the pass. Where the recipe's scale is
        given, it may have another: a tensor under delayed scaling is ``quantize(x, history)``.
    bias : array_like of float32, float16 or bfloat16, (out,), optional
        Rounded to ``recipe.fprop.bias_format`` before it is added.
    recipe : str or LinearRecipe
        One of ``linear_recipes()``, or one's own.
    output_scale : float or AmaxHistory, optional
        Where the recipe's output is FP8: what the result is multiplied with before it is cast (left out: 1). Of a
        history the scale is taken, and the amax of the result before that is recorded; ``update_scale()`` of it ends
        the step.
    parallel : TensorParallel, optional
        How the layer is split over ranks, each of which computes its part; tensors and results are the whole layer's,
        and not quantized. A rank quantizes its part of a weight, and, where the sequence is not split, of x (row) and
        dy (column), by the amax of that part. A part of a split sequence has the amax of all parts where one scale is
        for the tensor, and is gathered as codes; an x in tiles of 1 x 128 whose part is no multiple of 128 is
        quantized, dequantized, gathered and quantized again.
        y (row) and dx (column) of every rank are rounded to the output's type, and then added as ``parallel.reduction``
        says.
        The bias of ``row`` is rounded to the output's type, and added after that in that type. Random bits are those of
        all of dy.
    zero_rule : str
        As for ``mma``.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    check_shapes : bool
        Sizes that the recipe's system refuses (``shape_fits`` tells them) are refused here, too.

    Returns
    -------
    ndarray, (tokens, out), or Quantized
        Of ``recipe.fprop.output``; bfloat16 needs ml_dtypes. A Quantized, rowwise, where that is FP8: its ``amax`` is
        that of the result before it is scaled.

    Raises
    ------
    TypeError, ValueError
        For shapes that do not fit each other, the recipe or its system's rules, a Quantized of another recipe or
        direction, and options that do not fit or that nothing would read; the message names the pass and the tensor.
    """
    left, (tokens, _) = _as_input(x, "x")
    right, (features, _) = _as_input(w, "w")
    given = _NONE if bias is None else _as_bias(bias, features)
    return _run(
        "fprop",
        recipe,
        left,
        right,
        (tokens, features),
        (None, zero_rule, threads, check_shapes, parallel),
        given,
        output_scale=output_scale,
    )


def linear_dgrad(
    dy: Any,
    w: Any,
    *,
    recipe: LinearRecipeName | NamedLinearRecipe | LinearRecipe,
    output_scale: float | AmaxHistory | None = None,
    random_bits: Any = None,
    parallel: TensorParallel | None = None,
    zero_rule: GemmZeroRuleName = "floor",
    threads: int | None = None,
    check_shapes: bool = True,
) -> Any:
    """``dy @ w``, the gradient of a Linear layer's input, bit for bit as the recipe's system computes it; Ctrl-C stops
    it.

    dy is cast rowwise, w columnwise.

    Parameters
    ----------
    dy : array_like of float32, float16 or bfloat16, (tokens, out), or Quantized
    w : array_like of float32, float16 or bfloat16, (out, in), or Quantized
    recipe : str or LinearRecipe
    output_scale : float or AmaxHistory, optional
        As for ``linear``.
    random_bits : array_like of uint8, optional
        Where dy is rounded stochastically: one for each of its codes, in their order.
    parallel, zero_rule, threads, check_shapes
        As for ``linear``, as are the errors.

    Returns
    -------
    ndarray of ``recipe.dgrad.output``, (tokens, in), or Quantized
    """
    left, (tokens, _) = _as_input(dy, "dy")
    right, (_, features) = _as_input(w, "w")
    options = (random_bits, zero_rule, threads, check_shapes, parallel)
    return _run("dgrad", recipe, left, right, (tokens, features), options, output_scale=output_scale)


def linear_wgrad(
    dy: Any,
    x: Any,
    *,
    recipe: LinearRecipeName | NamedLinearRecipe | LinearRecipe,
    main_grad: Array | None = None,
    random_bits: Any = None,
    parallel: TensorParallel | None = None,
    zero_rule: GemmZeroRuleName = "floor",
    threads: int | None = None,
    check_shapes: bool = True,
) -> Array:
    """``dy.T @ x``, the gradient of a Linear layer's weight, bit for bit as the recipe's system computes it; Ctrl-C
    stops it.

    Both are cast columnwise: x is the input itself, not its rowwise codes.

    Parameters
    ----------
    dy : array_like of float32, float16 or bfloat16, (tokens, out), or Quantized
    x : array_like of float32, float16 or bfloat16, (tokens, in), or Quantized
    recipe : str or LinearRecipe
    main_grad : ndarray of float32, (out, in), optional
        Gets the sum of what it has and of the result, in float32; the recipe's output is float32. Where the call fails
        or is interrupted, it stays as it was.
    random_bits, parallel, zero_rule, threads, check_shapes
        As for ``linear_dgrad``.

    Returns
    -------
    ndarray of ``recipe.wgrad.output``, (out, in)
        ``main_grad`` where that is given.
    """
    left, (_, rows) = _as_input(dy, "dy")
    right, (_, columns) = _as_input(x, "x")
    if main_grad is not None:
        dtype = _as_linear_recipe(recipe).wgrad.output
        if dtype != "float32":
            raise ValueError(f"main_grad goes with a recipe whose wgrad has the output float32, not {dtype}")
        main_grad = output_array(main_grad, (rows, columns), np.float32, "main_grad")
    out: Array = _run(
        "wgrad",
        recipe,
        left,
        right,
        (rows, columns),
        (random_bits, zero_rule, threads, check_shapes, parallel),
        main_grad=main_grad,
    )
    if main_grad is None:
        return out
    fill(main_grad, out)
    return main_grad


_guard(__name__, __all__)
