# SPDX-License-Identifier: Apache-2.0
"""How a foreign GEMM accumulated, scaled and rounded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    as_array,
    as_bytes,
    as_float32,
    as_format,
    as_profile,
    carried_format,
    check_choice,
    check_int,
    check_real,
    check_threads,
    check_unread,
    code_dtype,
    contiguous,
    kind_of,
)
from fp8lab._core import Format, MmaModel
from fp8lab._device_arrays import on_host
from fp8lab._entry import guard as _guard
from fp8lab._gemm_recipes import GemmRecipe, as_gemm_model, as_gemm_recipe
from fp8lab._html import facts_html, table_html
from fp8lab._products import as_typed, gemm_operand, matrix_of, recipe_with
from fp8lab._scaling import Quantized
from fp8lab.literals import FormatName, GemmScaleLayoutName, LayoutName

__all__ = [
    "GemmDeparture",
    "GemmDiagnosis",
    "GemmElement",
    "GemmExplanation",
    "GemmProbe",
    "diagnose_gemm",
    "gemm_departures",
]

_MOST_PARTED = 24  # hypotheses that a probe parts
_LARGEST = float(np.finfo(np.float32).max)


class GemmDeparture(NamedTuple):
    """What a wrong GEMM does otherwise: a row of the table that the doctor searches, ``gemm_departures()``."""

    name: str  #: such as ``b_transposed``
    words: str
    #: Products that count, where it drops the tail; how many it drops at the head, or adds twice, or are in a block of
    #: K; the element of K before which a promotion is missed.
    depth: int = 0
    #: The number that it multiplies elements with, where it does: of all, or of each row or column.
    factors: tuple[float, ...] = ()
    #: The blocks of K that are multiplied, in their order. Of a tile that goes on from another one: its first row and
    #: column, its rows and columns, and the first row and column of the other.
    blocks: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.words}"


def gemm_departures() -> list[GemmDeparture]:
    """What ``diagnose_gemm`` searches of wrong GEMMs, in this order."""
    return [GemmDeparture(name, words) for name, words in _core.gemm_departures()]


@dataclasses.dataclass(frozen=True)
class GemmExplanation:
    """What a GEMM may have done, and how many elements that explains."""

    recipe: GemmRecipe  #: the GEMM without its departures, which ``gemm`` runs
    departures: tuple[GemmDeparture, ...]  #: what it does otherwise; empty: nothing
    description: str
    models: tuple[
        str, ...
    ]  #: tensor cores that give the same; ``cuda_cores`` and ``cuda_cores_fma`` are float32 sums without one
    checked: int  #: elements that were compared
    unexplained: int  #: of these

    def output(
        self,
        a: Any,
        b: Any,
        *,
        format_a: FormatName | Format | None = None,
        format_b: FormatName | Format | None = None,
        scale_a: Any = None,
        scale_b: Any = None,
        layout: LayoutName = "nt",
        scale_layout: GemmScaleLayoutName = "compact",
        c: Any = None,
        bias: Any = None,
        scale_out: float = 1.0,
    ) -> Array:
        """The output that this gives, its departures included: what it was found from.

        Parameters
        ----------
        a, b, format_a, format_b, scale_a, scale_b, layout, scale_layout, c, bias, scale_out
            As for ``diagnose_gemm``.

        Returns
        -------
        ndarray of the recipe's output, or of uint8 codes, (M, N)
            Every NaN has all bits set but the sign. Where there are no departures, ``gemm`` gives the same with the
            recipe, but for NaNs of formats that have several.
        """
        left, right, shape, _ = _operand_pair(
            a, b, layout, scale_layout, format_a=format_a, format_b=format_b, scale_a=scale_a, scale_b=scale_b
        )
        output = self.recipe.output
        format = None if output == "float32" else as_format(output, "output")
        words = _core.gemm_words(
            self.recipe._core(),
            [(one.name, one.depth, one.factors, one.blocks) for one in self.departures],
            left,
            right,
            format,
            _addend(c, "c", shape),
            _addend(bias, "bias", shape[1:]),
            _as_scale_out(scale_out),
        ).reshape(shape)
        if format is None:
            return words.astype(np.uint32).view(np.float32)
        return as_typed(words.astype(code_dtype(format)), format)


class GemmElement(NamedTuple):
    """An element that the first explanation does not explain, or that tells it from the next: words as they are there,
    and by these two."""

    row: int
    column: int
    word: int
    first: int
    second: int | None


class GemmProbe(NamedTuple):
    """What to run through the GEMM, as ``gemm`` takes it: explanations differ on it."""

    a: Array  #: uint8, (M, K)
    b: Array  #: uint8, (N, K)
    scale_a: Any  #: a float, an array, or a tuple of both
    scale_b: Any
    c: Array | None  #: float32, (M, N)
    bias: Array | None  #: float32, (N,)
    scale_out: float
    pairs: int  #: of explanations
    unparted: tuple[tuple[int, int], ...]  #: pairs that do not differ on it, by their numbers

    @property
    def parted(self) -> int:
        """The number of pairs of explanations that differ."""
        return self.pairs - len(self.unparted)


def _words_of(x: Array) -> Array:
    """The words of an output, with one for all NaNs of float32, float16 and bfloat16."""
    words = contiguous(x).view(f"u{x.dtype.itemsize}")
    if x.dtype.itemsize == 1:
        return words
    values = x.astype(np.float32)
    return np.where(np.isnan(values), words.dtype.type(0xFFFF), words)


def _explanation(fields: dict[str, Any]) -> GemmExplanation:
    departures = tuple(GemmDeparture(*one) for one in fields["departures"])
    return GemmExplanation(**{**fields, "recipe": GemmRecipe._of(fields["recipe"]), "departures": departures})


class GemmDiagnosis:
    """What ``diagnose_gemm`` finds. ``str()`` tells it.

    ``explanations`` has the best first. ``shown`` has elements that the first leaves unexplained, or those that tell it
    from the expected one or the next. ``rest`` says what the elements of a whole output that the first leaves
    unexplained have in common: a sentence or a few for each kind and place, where a is what it predicts, and b is what
    is there.
    """

    def __init__(
        self, core: _core.GemmDiagnosis, formats: tuple[Format | None, Format | None], format: Format | None
    ) -> None:
        self._core = core
        self._format = format  # of the output; None: float32
        self._formats = formats  # of codes of both operands
        self.explanations = tuple(_explanation(one) for one in core.explanations)
        self.shown = tuple(GemmElement(*one) for one in core.shown)
        self.rest = tuple(core.rest)

    @property
    def verdict(self) -> str:
        """A sentence."""
        return self._core.verdict

    @property
    def elements(self) -> int:
        """The number of elements that are known."""
        return self._core.elements

    @property
    def searched(self) -> int:
        """The number of hypotheses."""
        return self._core.searched

    @property
    def tied(self) -> int:
        """How many of the first explanations explain equally much: the data cannot tell them apart."""
        return self._core.tied

    @property
    def explained(self) -> bool:
        """Whether the first explanation explains all elements that were compared."""
        return self._core.explained

    @property
    def telling(self) -> bool:
        """Whether the elements could have told a wrong GEMM: zeros and NaNs cannot."""
        return self._core.telling

    @property
    def first_difference(self) -> tuple[int, int] | None:
        """Elements [first, last) of K whose products bring the first difference, where nothing explains the output, and
        ``prefixes`` or elements whose products end early tell it. ``rest`` says it, too."""
        return self._core.first_difference

    @property
    def expected(self) -> str:
        """The expected GEMM in words; empty where none was."""
        return self._core.expected

    @property
    def expected_checked(self) -> int:
        """Elements that were compared with the expected GEMM."""
        return self._core.expected_checked

    @property
    def expected_unexplained(self) -> int:
        """Those of them that are not those of the expected GEMM."""
        return self._core.expected_unexplained

    @property
    def correct(self) -> bool:
        """Whether the output is that of the expected GEMM, or of a plain one where none was expected, and could have
        told otherwise.

        A GEMM is plain without a defect, sums or an output that are rounded in any other way than once to the nearest
        (but a bias or c may be added to the rounded result, which is rounded again), and scales that multiply a bias or
        c, too; and without a tensor core where both operands are float32 alone.
        """
        return self._core.correct

    def probe(self, k: int | None = None) -> GemmProbe:
        """What to run through the GEMM: the explanations that the data cannot tell apart differ on it, as many as
        possible. Where nothing explains the output, what tells where along K the first difference enters: row i of M is
        0 from element (i + 1) * K / M on, and ``diagnose_gemm`` of what the GEMM makes of it has ``first_difference``.

        It is of the kind that was diagnosed, with as many rows and columns, but at most 64: codes, scales where there
        were such, and c, a bias and a scale of the output. With what the GEMM makes of it, ``parted_by`` tells which
        explanations are left.

        Parameters
        ----------
        k : int, optional
            K; if left out the least that parts as many, at most twice the longest promotion or range of these
            explanations, or that of the diagnosis where an order of K or a defect is about that alone.

        Raises
        ------
        ValueError
            Where there are fewer than two explanations of an explained output, or operands are no codes of at most 8
            bits.
        """
        depth = 0 if k is None else check_int(k, "k", 1, 2**20)
        if None in self._formats:
            raise ValueError("probes are of codes of at most 8 bits, which the operands are not")
        most = min(max(self.tied, 2), _MOST_PARTED)
        return GemmProbe(**self._core.probe(most, depth))

    def parted_by(self, probe: GemmProbe, out: Any) -> tuple[GemmExplanation, ...]:
        """The explanations that are left when the GEMM was run on the probe: they give equal bits there.

        Parameters
        ----------
        probe : GemmProbe
            What ``probe()`` gave.
        out : array_like, (M, N)
            What the GEMM made of it, of the type that was diagnosed.

        Returns
        -------
        tuple of GemmExplanation
            Those of the first ``tied`` that the probe is about and that give the bits of ``out``. Two that are left are
            in ``probe.unparted``: no input that was tried tells them apart. None: the GEMM did something else there.

        Raises
        ------
        TypeError, ValueError
            For an output of another shape.
        """
        shape = (probe.a.shape[0], probe.b.shape[0])
        there, name = as_array(on_host(out), "out")
        if there.shape != shape:
            raise ValueError(f"out must have shape {shape}, (M, N), not {there.shape}")
        given = {"scale_a": probe.scale_a, "scale_b": probe.scale_b, "c": probe.c, "bias": probe.bias}
        format_a, format_b = self._formats
        left = []
        for one in self.explanations[: min(self.tied, _MOST_PARTED)]:
            by, own = as_array(
                one.output(probe.a, probe.b, format_a=format_a, format_b=format_b, scale_out=probe.scale_out, **given),
                "out",
            )
            if by.dtype.itemsize != there.dtype.itemsize:
                raise TypeError(f"out must be {own}, as the output that was diagnosed, not {name}")
            if np.array_equal(_words_of(by), _words_of(there)):
                left.append(one)
        return tuple(left)

    def _number(self, word: int) -> str:
        """The word, and its value."""
        if self._format is None:
            return f"{word:08X} = {np.uint32(word).view(np.float32):.9g}"
        code, value = np.array([word], np.uint8 if self._format.bits <= 8 else np.uint16), np.empty(1, np.float32)
        _core.decode(code, value, self._format, 1)
        return f"{word:0{(self._format.bits + 3) // 4}X} = {value[0]:.9g}"

    def __str__(self) -> str:
        lines = [self.verdict, *self.rest]
        for number, one in enumerate(self.explanations[:8], 1):
            others = (
                f" (also {', '.join(one.models[1:5])}{' ...' if len(one.models) > 5 else ''})"
                if len(one.models) > 1
                else ""
            )
            lines.append(
                f"  {number}. {one.description}{others}: {one.unexplained} of {one.checked} elements unexplained"
            )
        if len(self.explanations) > 8:
            lines.append(f"  ... and {len(self.explanations) - 8} more")
        for at in self.shown:
            other = "second" if not self.explained else "expected one" if self.expected_unexplained else "next"
            second = "" if at.second is None else f", by the {other} {self._number(at.second)}"
            lines.append(
                f"  ({at.row}, {at.column}), of row {at.row} of a and row {at.column} of b: "
                f"{self._number(at.word)} is there, by the first {self._number(at.first)}{second}"
            )
        if self.tied > 1:
            lines.append("probe() gives operands that part those that explain equally much, as far as any do.")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return facts_html(self.verdict, {}, self.rest) + table_html(
            "Explanations",
            {
                "explanation": [one.description for one in self.explanations],
                "unexplained": [one.unexplained for one in self.explanations],
                "of elements": [one.checked for one in self.explanations],
            },
        )


def _scale_model(x: Any, argument: str, format: Any, scales: Any, transposed: bool) -> MmaModel:
    """A model that takes such scales of blocks; without these, any."""
    codes = scales[0] if isinstance(scales, tuple) and len(scales) == 2 else scales
    plain = _core.find_model("exact")
    if codes is None or isinstance(codes, (int, float, np.integer, np.floating)):
        return plain
    name = as_array(codes, f"scale_{argument}")[1]
    if name == "float32":
        return plain
    if name in ("float64", "float16", "bfloat16"):
        raise TypeError(f"scale_{argument} must be a number, float32, or codes of block scales, not {name}")
    array, carried = as_bytes(codes, f"scale_{argument}")
    matrix = matrix_of(x, argument, format)
    rows, depth = matrix.shape[::-1] if transposed else matrix.shape
    block = depth * rows // max(array.size, 1)
    wanted = None if carried is None else "ue4m3" if carried.name == "e4m3" else carried.name
    fitting = [
        one for one in _core.models()
        if one.scale_block == block and (wanted is None or one.scale_format == wanted)
        and matrix.format is not None and matrix.format.name in one.operands]  # fmt: skip
    if not fitting:
        raise ValueError(f"scale_{argument} must have a code for every 16 or 32 elements of K, as a model takes them")
    return max(fitting, key=lambda one: one.scale_format == "ue4m3")


def _operand(
    x: Any, argument: str, format: Any, scale: Any, transposed: bool, swizzled: bool
) -> tuple[Any, int, int, Format | None]:
    """The operand, its rows and its K, and the format of its codes."""
    if isinstance(x, Quantized):
        check_unread("arrays; a Quantized has its own", **{f"format_{argument}": format, f"scale_{argument}": scale})
        columnwise = x.direction == "columnwise"
        code_format = as_format(x.format, "format")
        return _core.operand_of(x._core), x.shape[columnwise], x.shape[not columnwise], code_format
    x = on_host(x)
    scale = tuple(on_host(part) for part in scale) if isinstance(scale, tuple) else on_host(scale)
    model = _scale_model(x, argument, format, scale, transposed)
    operand, rows, _ = gemm_operand(x, argument, format, scale, model, transposed, swizzled)
    matrix = matrix_of(x, argument, format)
    own = matrix.format if matrix.format is not None and matrix.format.bits <= 8 else None
    return operand, rows, matrix.shape[not transposed], own


def _words(out: Any, out_format: Any, shape: tuple[int, int], places: Any) -> tuple[Array, Format | None, list[int]]:
    """The bytes of the known elements, their format, and their indices."""
    array, name = as_array(on_host(out), "out")
    carried = carried_format(name)
    if name in ("float32", "float16", "bfloat16"):
        check_unread(f"codes, and out is {name}", out_format=out_format)
        format = None if name == "float32" else _core.find_format(name)
    elif name == "uint8" or carried is not None:
        format = carried if out_format is None else as_format(out_format, "out_format")
        if format is None:
            raise ValueError("out_format must be given: out is uint8, which does not tell what its codes are")
    else:
        raise TypeError(f"out must be float32, float16, bfloat16 or codes of a byte, not {name}")
    indices: list[int] = []
    if places is None:
        if array.shape != shape:
            raise ValueError(f"out must have shape {shape}, (M, N), where places is not given, not {array.shape}")
    else:
        entries, _ = as_array(places, "places")
        if (
            entries.ndim != 2
            or entries.shape[1] != 2
            or entries.dtype.kind not in "iu"
            or array.shape != entries.shape[:1]
        ):
            raise ValueError("places must be pairs (m, n), one for each element of out, which has one dimension then")
        for m, n in entries.tolist():
            if not (0 <= m < shape[0] and 0 <= n < shape[1]):
                raise ValueError(f"places must lie in an output of {shape[0]} x {shape[1]}, and ({m}, {n}) does not")
            indices.append(m * shape[1] + n)
    if array.size == 0:
        raise ValueError("out must not be empty")
    return contiguous(array).reshape(-1).view(np.uint8), format, indices


def _addend(x: Any, argument: str, shape: tuple[int, ...]) -> Array:
    """c or the bias as float32; an empty array where there is none."""
    if x is None:
        return np.empty(0, np.float32)
    array, name = as_array(on_host(x), argument)
    if name == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    elif name == "float16":
        array = array.astype(np.float32)
    return as_float32(array, argument, shape)


_EXPECTED = ("model", "promote_k", "split_k", "split_order", "scale_order", "c_enters", "zero_rule", "out_profile")


def _expected_gemm(value: Any) -> _core.GemmRecipe | None:
    """A recipe, or arguments of ``gemm`` that make one."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return as_gemm_recipe(value, "expected", "an MmaModel, or arguments of gemm")._core()
    given = dict(value)
    unknown = [str(name) for name in given if name not in _EXPECTED]
    if "model" not in given:
        raise ValueError("expected must have the model")
    if unknown:
        raise ValueError(
            f"expected must have the model, and of the arguments of gemm {', '.join(_EXPECTED[1:])}, "
            f"not {', '.join(unknown)}"
        )
    model, profile = given.pop("model"), given.pop("out_profile", None)
    recipe = recipe_with(None, as_gemm_model(model, "expected"), **given)
    if profile is None:
        return recipe._core()
    # A profile goes with an output that is rounded: which one, the GEMM's own tells.
    return _core.expected_with_profile(recipe._core(), as_profile(profile, "out_profile"))


def _as_scale_out(value: Any) -> float:
    factor = check_real(value, "scale_out")
    if not 2.0**-126 <= abs(factor) <= _LARGEST:
        raise ValueError(f"scale_out must be a normal number of float32, not {factor}")
    return factor


def _operand_pair(
    a: Any, b: Any, layout: str, scale_layout: str, **given: Any
) -> tuple[_core.Operand, _core.Operand, tuple[int, int], tuple[Format | None, Format | None]]:
    """Both operands, the shape of the output, and the formats of their codes of a byte or less."""
    layout = check_choice(layout, "layout", ("nt", "nn", "tn", "tt"))
    swizzled = check_choice(scale_layout, "scale_layout", ("compact", "swizzled")) == "swizzled"
    left, rows, depth, own_a = _operand(a, "a", given["format_a"], given["scale_a"], layout[0] == "t", swizzled)
    right, columns, depth_b, own_b = _operand(b, "b", given["format_b"], given["scale_b"], layout[1] == "n", swizzled)
    if depth != depth_b:
        raise ValueError(f"a and b must have the same K, not {depth} and {depth_b}")
    return left, right, (rows, columns), (own_a, own_b)


def _prefixes(value: Any) -> list[tuple[int, Any]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise TypeError(f"prefixes must be a dict of K and outputs, not {kind_of(value)}")
    return [(check_int(depth, "prefixes", 1, 2**40), own) for depth, own in value.items()]


def _prefix_words(own: Any, depth: int, out: Any, shape: tuple[int, int]) -> Array:
    """The bytes of the output over the first elements of K."""
    array, name = as_array(on_host(own), f"prefixes[{depth}]")
    wanted = as_array(on_host(out), "out")[1]
    if name != wanted:
        raise TypeError(f"prefixes[{depth}] must be {wanted}, as out is, not {name}")
    if array.shape != shape:
        raise ValueError(f"prefixes[{depth}] must have shape {shape}, (M, N), not {array.shape}")
    return contiguous(array).reshape(-1).view(np.uint8)


def diagnose_gemm(
    a: Any,
    b: Any,
    out: Any,
    *,
    places: Any = None,
    format_a: FormatName | Format | None = None,
    format_b: FormatName | Format | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    layout: LayoutName = "nt",
    scale_layout: GemmScaleLayoutName = "compact",
    out_format: FormatName | Format | None = None,
    c: Any = None,
    bias: Any = None,
    scale_out: float = 1.0,
    expected: Any = None,
    most_products: int = 2**27,
    prefixes: Mapping[int, Any] | None = None,
    threads: int | None = None,
) -> GemmDiagnosis:
    """Tell how a GEMM came to its output: tensor core, promotion, split-K, order, scales, addition of c and bias,
    rounding; or what is wrong with it.

    Parameters
    ----------
    a, b, format_a, format_b, scale_a, scale_b, layout, scale_layout
        The operands, as ``gemm`` takes them.
    out : array_like, (M, N)
        What the GEMM gave: float32, float16, bfloat16, or codes of a byte. Or some elements of it, with ``places``.
    places : array_like of int, (n, 2), optional
        Row and column of each of these elements. A few are often enough.
    out_format : str or Format, optional
        What uint8 codes of the output are.
    c : array_like of float32, float16 or bfloat16, (M, N), optional
        What was added to the product.
    bias : array_like of the same types, (N,), optional
    scale_out : float
        What the result was multiplied with before it was rounded.
    expected : GemmRecipe, str, MmaModel, or dict, optional
        What the GEMM should do: a recipe, the name of one of ``gemm_recipes()`` or of a model, or arguments of ``gemm``
        by their names, of model, promote_k, split_k, split_order, scale_order, c_enters, zero_rule and out_profile. It
        comes first of what explains equally much, and nothing else is ``correct`` then. Left out: any plain GEMM.
    most_products : int
        How many products to compute when hypotheses are compared with all elements, which bounds the time.
    prefixes : dict of int and array_like, optional
        Outputs of the same GEMM over the first so many elements of K, whole blocks and tiles of scales, of the shape
        and element type of ``out``. Where nothing explains ``out``, they tell where along K the first difference
        enters (``first_difference``): what is expected, or else a plain GEMM, explains those before.
    threads : int, optional
        They compute hypotheses. All cores if left out; no result depends on it.

    Returns
    -------
    GemmDiagnosis
        Its ``probe()`` gives operands that part what the data cannot tell apart.

    Raises
    ------
    TypeError, ValueError
        For operands that ``gemm`` refuses, an output of another shape, places outside of it, and an expected GEMM that
        is none.
    """
    left, right, shape, formats = _operand_pair(
        a, b, layout, scale_layout, format_a=format_a, format_b=format_b, scale_a=scale_a, scale_b=scale_b
    )
    if isinstance(out, Quantized):
        raise TypeError(f"out must be an array, not {kind_of(out)}")
    words, format, indices = _words(out, out_format, shape, places)
    found = _core.diagnose_gemm(
        left,
        right,
        words,
        format,
        indices,
        _addend(c, "c", shape),
        _addend(bias, "bias", shape[1:]),
        _as_scale_out(scale_out),
        check_int(most_products, "most_products", 1, 2**60),
        _expected_gemm(expected),
        [(depth, _prefix_words(own, depth, out, shape)) for depth, own in _prefixes(prefixes)],
        [],
        check_threads(threads),
    )
    return GemmDiagnosis(found, formats, format)


_guard(__name__, __all__)
