# SPDX-License-Identifier: Apache-2.0
# What bindings/stubs.py gives; a test compares.
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from fp8lab.literals import (
    ProfileInfinityName,
    ProfileMissingNanName,
    ProfileNanName,
    ProfileNanOfDoubleName,
    ProfileNegativeName,
    ProfileOverflowName,
    ProfileRoundingName,
    ProfileSmallestName,
    ProfileZeroName,
    ProfileZeroSignName,
    SpecialsName,
)

version: str

_Place = tuple[str, int, int, int]
_Places = tuple[_Place, _Place | None, _Place | None, _Place | None]
_Parallel = tuple[str, int, bool, str, Sequence[int], bool]

class Format:
    def __init__(
        self,
        exponent_bits: int,
        mantissa_bits: int,
        bias: int,
        *,
        is_signed: bool = ...,
        has_subnormals: bool = ...,
        specials: SpecialsName = ...,
        name: str | None = ...,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def bits(self) -> int: ...
    @property
    def max(self) -> float: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def _repr_html_(self) -> str: ...
    @property
    def exponent_bits(self) -> int: ...
    @property
    def mantissa_bits(self) -> int: ...
    @property
    def bias(self) -> int: ...
    @property
    def is_signed(self) -> bool: ...
    @property
    def has_subnormals(self) -> bool: ...
    @property
    def specials(self) -> str: ...

class Profile:
    def __init__(
        self,
        *,
        name: str = ...,
        rounding: ProfileRoundingName = ...,
        overflow: ProfileOverflowName = ...,
        infinity: ProfileInfinityName = ...,
        nan: ProfileNanName = ...,
        nan_of_double: ProfileNanOfDoubleName | None = ...,
        missing_nan: ProfileMissingNanName = ...,
        zero: ProfileZeroName = ...,
        smallest: ProfileSmallestName = ...,
        negative: ProfileNegativeName = ...,
        zero_sign: ProfileZeroSignName = ...,
        float64_via_float32: bool = ...,
    ) -> None: ...
    @property
    def rounding(self) -> str: ...
    @property
    def overflow(self) -> str: ...
    @property
    def infinity(self) -> str: ...
    @property
    def nan(self) -> str: ...
    @property
    def nan_of_double(self) -> str: ...
    @property
    def missing_nan(self) -> str: ...
    @property
    def zero(self) -> str: ...
    @property
    def smallest(self) -> str: ...
    @property
    def negative(self) -> str: ...
    @property
    def zero_sign(self) -> str: ...
    @property
    def float64_via_float32(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def source(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

class DelayedVersion:
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def source(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

class DelayedRecipe:
    def __init__(
        self,
        *,
        margin: int = ...,
        interval: int = ...,
        fp8_format: str = ...,
        amax_history_len: int = ...,
        amax_compute_algo: str | None = ...,
        reduce_amax: bool = ...,
        override_linear_precision: tuple[bool, bool, bool] = ...,
        version: str = ...,
    ) -> None: ...
    @property
    def margin(self) -> int: ...
    @property
    def interval(self) -> int: ...
    @property
    def fp8_format(self) -> str: ...
    @property
    def amax_history_len(self) -> int: ...
    @property
    def amax_compute_algo(self) -> str | None: ...
    @property
    def reduce_amax(self) -> bool: ...
    @property
    def override_linear_precision(self) -> tuple[bool, bool, bool]: ...
    @property
    def version(self) -> str: ...
    def describe(self) -> str: ...

class AmaxHistory:
    @overload
    def __init__(self, recipe: DelayedRecipe, backward: bool) -> None: ...
    @overload
    def __init__(self, other: AmaxHistory) -> None: ...
    def record_amax(self, amax: float) -> None: ...
    def update_scale(self, chosen: int | float | None) -> None: ...
    def resize_history(self, amax_history_len: int) -> None: ...
    @property
    def amaxes(self) -> NDArray[np.float32]: ...
    @amaxes.setter
    def amaxes(self, value: NDArray[np.float32]) -> None: ...
    @property
    def scale(self) -> float: ...
    @scale.setter
    def scale(self, value: float) -> None: ...
    @property
    def scale_inv(self) -> float: ...
    @scale_inv.setter
    def scale_inv(self, value: float) -> None: ...
    @property
    def position(self) -> int: ...
    @position.setter
    def position(self, value: int) -> None: ...

class Distribution:
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def second_moment(self) -> float: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

class MmaModel:
    @property
    def name(self) -> str: ...
    @property
    def instruction(self) -> str: ...
    @property
    def arithmetic(self) -> str: ...
    @property
    def products_per_step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def sums(self) -> int: ...
    @property
    def sum_bits(self) -> int: ...
    @property
    def drops_small_c(self) -> bool: ...
    @property
    def fraction_bits(self) -> int: ...
    @property
    def zero_exponent(self) -> int | None: ...
    @property
    def output(self) -> Format: ...
    @property
    def group(self) -> int: ...
    @property
    def order(self) -> str: ...
    @property
    def lowering(self) -> str: ...
    @property
    def underflow(self) -> str: ...
    @property
    def nan(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def evidence(self) -> str: ...
    @property
    def evidence_note(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def maker(self) -> str: ...
    @property
    def chip(self) -> str: ...
    @property
    def k(self) -> int | None: ...
    @property
    def result_bits(self) -> int: ...
    @property
    def keeps_sign(self) -> bool: ...
    def _replace(self, fraction_bits: int | None, zero_exponent: int | None, keeps_sign: bool | None) -> MmaModel: ...
    @property
    def accumulator(self) -> str: ...
    @property
    def operands(self) -> list[str]: ...
    @property
    def scale_format(self) -> str | None: ...
    def _takes(self, q: Quantized) -> bool: ...
    @property
    def scale_block(self) -> int | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def _repr_html_(self) -> str: ...

class Operand:
    def __init__(self, elements: NDArray[Any], format: Format | None, transposed: bool, packed: bool) -> None: ...
    def set_codes(self, codes: NDArray[np.uint8], swizzled: bool, format: str | None, block: int | None) -> None: ...
    def set_float_scales(self, scales: NDArray[np.float32]) -> bool: ...
    def float_scale_shapes(self) -> list[tuple[int, int]]: ...
    def block_scale_shape(self, block: int) -> tuple[int, int]: ...
    @property
    def depth(self) -> int: ...
    def set_tf32_rounding(self, name: str) -> None: ...
    def set_tensor(self, scale: float) -> None: ...

class Histogram:
    def __init__(self, kind: str, low: float, high: float, count: int, format: Format) -> None: ...
    def _add(self, values: NDArray[np.float32] | NDArray[np.float64]) -> None: ...
    def _add_cast(
        self,
        values: NDArray[np.float64],
        input: NDArray[np.float32],
        format: Format,
        rounding: str,
    ) -> None: ...
    def _state(self) -> dict[str, Any]: ...
    def _restore(self, counts: NDArray[np.uint64], apart: Sequence[int]) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def merge(self, other: Histogram) -> None: ...
    def to_csv(self) -> str: ...
    @property
    def counts(self) -> NDArray[Any]: ...
    @property
    def edges(self) -> NDArray[Any]: ...
    @property
    def total(self) -> int: ...
    @property
    def zeros(self) -> int: ...
    @property
    def infinities(self) -> int: ...
    @property
    def nans(self) -> int: ...
    @property
    def below(self) -> int: ...
    @property
    def above(self) -> int: ...
    @property
    def underflows(self) -> int: ...
    @property
    def saturations(self) -> int: ...
    def to_frame(self) -> Any: ...
    def plot(self, axes: Any = ...) -> Any: ...
    def _repr_html_(self) -> str: ...

class ErrorTotals:
    def __init__(self) -> None: ...
    def _add(
        self,
        actual: NDArray[np.float32] | NDArray[np.float64],
        reference: NDArray[np.float32] | NDArray[np.float64],
    ) -> None: ...
    def _state(self) -> dict[str, Any]: ...
    def _restore(self, count: int, not_finite: int, sums: Sequence[float]) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def merge(self, other: ErrorTotals) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def not_finite(self) -> int: ...
    @property
    def max_absolute_error(self) -> float: ...
    @property
    def max_relative_error(self) -> float: ...
    @property
    def mean_error(self) -> float: ...
    @property
    def mean_absolute_error(self) -> float: ...
    @property
    def rms_error(self) -> float: ...
    @property
    def sqnr_db(self) -> float: ...
    def _repr_html_(self) -> str: ...

class Recipe:
    def __init__(self, fields: dict[str, Any]) -> None: ...
    @property
    def description(self) -> str: ...
    @property
    def scale_format(self) -> str: ...
    def tile_shape(self, arg0: str, arg1: int, arg2: int) -> tuple[int, int]: ...
    def tile_scale(self, arg0: float, arg1: float, arg2: Format | None) -> tuple[float, float, int]: ...
    @property
    def fields(self) -> dict[str, Any]: ...

class GemmRecipe:
    def __init__(self, fields: dict[str, Any]) -> None: ...
    @property
    def description(self) -> str: ...
    @property
    def fields(self) -> dict[str, Any]: ...
    @property
    def has_bias_gradient(self) -> bool: ...
    def slow_because(self, a: Operand, b: Operand) -> str: ...

class GemmCall:
    def __init__(
        self,
        c: NDArray[np.float32],
        bias: NDArray[np.float32],
        activation_input: NDArray[np.float32],
        bias_gradient: NDArray[np.float32],
        scale_out: float,
        threads: int,
    ) -> None: ...

class GivenScales:
    def __init__(
        self,
        amaxes: NDArray[np.float32] | None,
        scales: NDArray[np.float32] | None,
        scales_inv: NDArray[np.float32] | None,
        tensor_amax: float | None,
        tensor_scale: float,
        tensor_scale_inv: float,
        row_amaxes: NDArray[np.float32] | None,
    ) -> None: ...

class Quantized:
    @overload
    def __init__(
        self,
        recipe: Recipe,
        direction: str,
        rows: int,
        columns: int,
        transposed: bool,
        codes: NDArray[np.uint8],
        scale_inv: NDArray[np.float32],
        scale_codes: NDArray[np.uint8],
        amax: float,
        row_amaxes: NDArray[np.float32],
        tensor_scale: float,
        tensor_scale_inv: float,
    ) -> None: ...
    @overload
    def __init__(self, other: Quantized) -> None: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def format(self) -> str: ...
    @property
    def given_scale(self) -> float: ...
    @property
    def tile(self) -> tuple[int, int]: ...
    @property
    def scale_format(self) -> str: ...
    @property
    def factor(self) -> float | None: ...
    def tile_scales_inv(self) -> NDArray[np.float32]: ...
    def scale_inv_at(self, row: int, column: int) -> float: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def amax(self) -> float: ...
    @property
    def tensor_scale(self) -> float: ...
    @property
    def tensor_scale_inv(self) -> float: ...
    @property
    def recipe(self) -> Recipe: ...
    @property
    def row_amaxes(self) -> NDArray[np.float32]: ...
    @property
    def codes(self) -> NDArray[np.uint8]: ...
    @property
    def scale_inv(self) -> NDArray[np.float32]: ...
    @property
    def scale_codes(self) -> NDArray[np.uint8]: ...

class Hypothesis:
    @property
    def description(self) -> str: ...
    @property
    def base(self) -> str: ...
    @property
    def also(self) -> list[str]: ...
    @property
    def recipe(self) -> Recipe: ...
    @property
    def changes(self) -> list[str]: ...
    @property
    def departures(self) -> list[str]: ...
    @property
    def columnwise(self) -> bool: ...

class GemmDiagnosis:
    @property
    def elements(self) -> int: ...
    @property
    def searched(self) -> int: ...
    @property
    def tied(self) -> int: ...
    @property
    def verdict(self) -> str: ...
    @property
    def rest(self) -> list[str]: ...
    @property
    def first_difference(self) -> tuple[int, int] | None: ...
    @property
    def expected(self) -> str: ...
    @property
    def expected_checked(self) -> int: ...
    @property
    def expected_unexplained(self) -> int: ...
    @property
    def telling(self) -> bool: ...
    @property
    def explained(self) -> bool: ...
    @property
    def correct(self) -> bool: ...
    @property
    def explanations(self) -> list[Any]: ...
    @property
    def shown(self) -> list[Any]: ...
    def probe(self, most: int, depth: int) -> dict[str, Any]: ...

class LinearGemm:
    def __init__(self, fields: dict[str, Any]) -> None: ...
    @property
    def bias_format(self) -> str: ...
    @property
    def fields(self) -> dict[str, Any]: ...

class LinearRecipe:
    def __init__(self, fprop: LinearGemm, dgrad: LinearGemm, wgrad: LinearGemm, system: str) -> None: ...
    @property
    def fprop(self) -> LinearGemm: ...
    @property
    def dgrad(self) -> LinearGemm: ...
    @property
    def wgrad(self) -> LinearGemm: ...
    @property
    def system(self) -> str: ...
    @property
    def description(self) -> str: ...

class LinearCall:
    @property
    def layer(self) -> int: ...
    @property
    def updates_backward(self) -> bool: ...
    @property
    def has_grad(self) -> bool: ...
    @property
    def recipe(self) -> LinearRecipe: ...
    @property
    def wants_random_bits(self) -> bool: ...
    @property
    def weight_scale_inv(self) -> float | None: ...

class Fp8State:
    @overload
    def __init__(self, layers: int, rules: str, ranks: int, high_precision: LinearRecipe) -> None: ...
    @overload
    def __init__(self, other: Fp8State) -> None: ...
    @property
    def layers(self) -> int: ...
    @property
    def rules(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def regions(self) -> int: ...
    @property
    def is_due(self) -> bool: ...
    @property
    def grad_enabled(self) -> bool: ...
    @grad_enabled.setter
    def grad_enabled(self, value: bool) -> None: ...
    @property
    def is_traced(self) -> bool: ...
    @is_traced.setter
    def is_traced(self, value: bool) -> None: ...
    @property
    def trace(self) -> list[Any]: ...
    def enter_autocast(self, recipe: LinearRecipe, delayed: DelayedRecipe, enabled: bool, group: str) -> None: ...
    def exit_autocast(self) -> None: ...
    def forward(
        self,
        layer: int,
        x: Any,
        w: Any,
        out: Any,
        bias: NDArray[np.float32],
        is_first_microbatch: bool | None,
        training: bool,
        requires_grad: bool,
        recompute: str,
        zero_rule: str,
        threads: int,
        check_shapes: bool,
    ) -> LinearCall: ...
    def backward(
        self,
        call: LinearCall,
        dy: Any,
        dx: Any,
        dw: Any,
        accumulate: bool,
        random_bits: NDArray[np.uint8] | None,
        zero_rule: str,
        threads: int,
        check_shapes: bool,
    ) -> None: ...
    def write_weight(self, layer: int, w: Any, recipe: LinearRecipe, delayed: DelayedRecipe, threads: int) -> None: ...
    def is_started(self, layer: int) -> bool: ...
    def weight_shape(self, layer: int) -> tuple[int, int] | None: ...
    def recipe_of_forward(self, layer: int, recompute: str) -> LinearRecipe: ...
    def history(self, layer: int, tensor: str) -> tuple[Any, ...]: ...
    def set_history(
        self,
        layer: int,
        tensor: str,
        amaxes: NDArray[np.float32],
        scale: float,
        scale_inv: float,
    ) -> None: ...
    def begin_layer(self, layer: int, recipe: DelayedRecipe) -> None: ...
    def equals(self, other: Fp8State) -> bool: ...

class AmaxTrace:
    def __init__(self, names: Sequence[str], columns: Sequence[NDArray[np.float32]]) -> None: ...

def call(function: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Any: ...
def formats() -> list[Format]: ...
def find_format(name: str) -> Format: ...
def profiles() -> list[Profile]: ...
def find_profile(name: str) -> Profile: ...
def refuse_name(kind: str, name: str, known: Sequence[str]) -> None: ...
def roundings() -> list[str]: ...
def encode(
    x: NDArray[Any],
    source: str,
    out: NDArray[Any],
    format: Format,
    profile: Profile,
    rounding: str | None,
    random_bits: NDArray[Any] | None,
    count: int | None,
    ptx: bool,
    threads: int,
) -> None: ...
def decode(codes: NDArray[Any], out: NDArray[np.float32], format: Format, threads: int) -> None: ...
def cast_to_representable(
    x: NDArray[Any],
    source: str,
    out: NDArray[Any],
    format: Format,
    scale: float,
    profile: Profile,
    rounding: str | None,
    threads: int,
) -> None: ...
def encode_via(
    x: NDArray[Any],
    source: str,
    out: NDArray[np.uint8],
    format: Format,
    profile: Profile,
    rounding: str | None,
    via: Format,
    via_profile: Profile,
    via_rounding: str | None,
    threads: int,
) -> None: ...
def chain_differences(
    x: NDArray[Any],
    source: str,
    format: Format,
    profile: Profile,
    rounding: str | None,
    via: Format,
    via_profile: Profile,
    via_rounding: str | None,
    most: int,
    threads: int,
) -> tuple[int, list[int]]: ...
def pack_pairs(codes: NDArray[np.uint8], out: NDArray[np.uint8]) -> None: ...
def unpack_pairs(packed: NDArray[np.uint8], out: NDArray[np.uint8]) -> None: ...
def check_lines(order: dict[str, Any], parts: Sequence[int]) -> str: ...
def philox4x32(counter: Sequence[int], key: Sequence[int]) -> list[int]: ...
def torch_cpu_uniform(out: NDArray[np.float32], seed: int) -> None: ...
def torch_cuda_uniform(
    out: NDArray[np.float32],
    low: float,
    high: float,
    type: str,
    seed: int,
    offset: int,
    sms: int,
    blocks_per_sm: int,
) -> None: ...
def torch_cuda_normal(
    out: NDArray[np.float32],
    mean: float,
    std: float,
    seed: int,
    offset: int,
    sms: int,
    blocks_per_sm: int,
) -> None: ...
def delayed_versions() -> list[DelayedVersion]: ...
def reduced_amax(of_ranks: NDArray[np.float32]) -> float: ...
def distributions() -> list[Distribution]: ...
def find_distribution(name: str) -> Distribution: ...
def sample(out: NDArray[np.float32], distribution: Distribution, seed: int) -> None: ...
def normal_grid(out: NDArray[np.float32]) -> None: ...
def exact_sqnr_db(format: Format, distribution: Distribution, scale: float) -> float: ...
def best_scale(format: Format, distribution: Distribution) -> tuple[float, float]: ...
def models() -> list[MmaModel]: ...
def find_model(arg0: str) -> MmaModel: ...
def mma(
    model: MmaModel,
    a: Operand,
    b: Operand,
    c: NDArray[np.float32] | NDArray[np.float64] | NDArray[np.uint16],
    out: NDArray[np.float32] | NDArray[np.float64] | NDArray[np.uint16],
    zero_rule: str,
) -> None: ...
def targets() -> list[str]: ...
def force_target(name: str) -> None: ...
def absolute_error(actual: NDArray[np.float64], reference: NDArray[np.float64]) -> Any: ...
def relative_error(actual: NDArray[np.float64], reference: NDArray[np.float64]) -> Any: ...
def ulp_error(actual: NDArray[np.float64], reference: NDArray[np.float64], format: Format | None) -> Any: ...
def cast_bounds(format: Format, rounding: str) -> tuple[tuple[float, float], tuple[float, float]]: ...
def count_outcomes(
    positive: tuple[float, float],
    negative: tuple[float, float],
    x: NDArray[np.float64],
    scaled: NDArray[np.float64],
    result: NDArray[np.float64],
    finite: bool,
) -> tuple[int, int, int, int, int]: ...
def given_scale(format: Format, scale: float) -> Recipe: ...
def just_in_time(
    format: Format,
    rule: str,
    axis: str,
    amax_epsilon: float,
    force_pow_2_scales: bool | None,
) -> Recipe: ...
def mx_block(
    format: Format,
    rule: str,
    enable_2d_quantization: bool,
    nan: str | None,
    drop_negative_zero: bool,
    edges: str,
) -> Recipe: ...
def block(
    format: Format,
    rule: str,
    rows: int,
    columns: int,
    amax_epsilon: float,
    force_pow_2_scales: bool | None,
) -> Recipe: ...
def nvfp4(
    with_2d_quantization: bool,
    stochastic_rounding: bool,
    with_rht: bool,
    round_rht: bool,
    nan: str,
) -> Recipe: ...
def recipe_choices() -> dict[str, Any]: ...
def recipes() -> list[tuple[str, Recipe, str]]: ...
def find_recipe(arg0: str) -> str: ...
def gemm_recipe_choices() -> dict[str, Any]: ...
def wide_formats() -> list[Format]: ...
def gemm_recipes() -> list[tuple[str, GemmRecipe, str]]: ...
def gemm_activation(
    name: str,
    x: NDArray[np.float32],
    activation_input: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
def find_gemm(arg0: str) -> GemmRecipe: ...
def find_gemm_model(arg0: str) -> MmaModel: ...
def small_gemm(recipe: GemmRecipe, a: NDArray[Any], b: NDArray[Any], layout: str) -> Any: ...
def gemm(
    recipe: GemmRecipe,
    a: Operand | Quantized,
    b: Operand | Quantized,
    out: NDArray[np.float32] | NDArray[np.float64] | NDArray[np.uint8] | NDArray[np.uint16],
    call: GemmCall,
) -> None: ...
def cast_recipe(recipe: DelayedRecipe, format: Format, scale: float) -> Recipe: ...
def quantize(
    x: NDArray[Any],
    source: str,
    recipe: Recipe,
    direction: str,
    input_type: Format | None,
    amax_before_rounding: bool,
    given: GivenScales,
    random_bits: NDArray[Any] | None,
    count: int,
    threads: int,
) -> tuple[Any, ...]: ...
def quantize_delayed(
    x: NDArray[Any],
    source: str,
    history: AmaxHistory,
    direction: str,
    input_type: Format | None,
    threads: int,
) -> tuple[Any, ...]: ...
def dequantize(q: Quantized, out: NDArray[np.float32], threads: int) -> None: ...
def hadamard_columns(x: NDArray[Any], source: str, rounds: bool, out: NDArray[np.float32], threads: int) -> None: ...
def pad_scales(scales: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]: ...
def unpad_scales(scales: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]: ...
def swizzle_scales(scales: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]: ...
def unswizzle_scales(scales: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]: ...
def quantized_from(
    codes: NDArray[np.uint8],
    scale_inv: NDArray[np.float32],
    scale_codes: NDArray[np.uint8],
    recipe: Recipe,
    direction: str,
    transposed: bool | None,
    layout: str,
    amax: float | None,
    tensor_scale: float | None,
    tensor_scale_inv: float | None,
    row_amaxes: NDArray[np.float32],
    allow_special_scales: bool,
) -> Quantized: ...
def compare(
    a: NDArray[np.uint8],
    b: NDArray[np.uint8],
    format: Format | None,
    name: str,
    pairs: bool,
    columns: int,
    shown: int,
    threads: int,
    input: NDArray[np.float64],
) -> dict[str, Any]: ...
def diagnose(
    x: NDArray[Any],
    source: str,
    codes: NDArray[np.uint8],
    format: Format | None,
    scales: NDArray[np.uint8] | None,
    scale_format: str | None,
    tensor_scale: float | None,
    expected: Recipe | None,
    expected_name: str,
    direction: str | None,
    shown: int,
    threads: int,
) -> dict[str, Any]: ...
def exercise(recipe: Recipe, columnwise: bool, input_type: str) -> NDArray[np.float32]: ...
def kinds_of_elements(x: NDArray[Any], source: str, recipe: Recipe, columnwise: bool) -> NDArray[np.uint16]: ...
def findings_by_kind(kinds: NDArray[np.uint16], differs: NDArray[np.uint8]) -> list[str]: ...
def note_on_pairs(shape_of_x: Sequence[int], shape_of_codes: Sequence[int]) -> str: ...
def probe(hypotheses: Sequence[Hypothesis], input_type: str) -> tuple[NDArray[np.float32], list[int], list[Any]]: ...
def dlpack_facts(capsule: Any) -> tuple[Any, ...]: ...
def dlpack_view(capsule: Any, words: np.dtype) -> NDArray[Any]: ...
def dlpack_capsule(codes: NDArray[Any], format: str, is_versioned: bool, was_copied: bool) -> Any: ...
def diagnose_gemm(
    a: Operand,
    b: Operand,
    words: NDArray[np.uint8],
    format: Format | None,
    indices: Sequence[int],
    c: NDArray[np.float32],
    bias: NDArray[np.float32],
    scale_out: float,
    most_products: int,
    expected: GemmRecipe | None,
    prefixes: Sequence[tuple[int, NDArray[np.uint8]]],
    without: Sequence[str],
    threads: int,
) -> GemmDiagnosis: ...
def gemm_words(
    recipe: GemmRecipe,
    departures: Sequence[tuple[str, int, Sequence[float], Sequence[int]]],
    a: Operand,
    b: Operand,
    format: Format | None,
    c: NDArray[np.float32],
    bias: NDArray[np.float32],
    scale_out: float,
) -> NDArray[np.uint64]: ...
def expected_with_profile(recipe: GemmRecipe, profile: Profile) -> GemmRecipe: ...
def gemm_departures() -> list[tuple[str, str]]: ...
def operand_of(q: Quantized) -> Operand: ...
def override_linear_precision(
    recipe: LinearRecipe,
    fprop: bool,
    dgrad: bool,
    wgrad: bool,
    other: LinearRecipe,
) -> LinearRecipe: ...
def linear_recipes() -> list[tuple[str, LinearRecipe, str]]: ...
def find_linear_recipe(arg0: str) -> str: ...
def linear_pass_fp8(
    name: str,
    recipe: LinearRecipe,
    a: Any,
    b: Any,
    bias: NDArray[np.float32],
    random_bits: NDArray[np.uint8] | None,
    zero_rule: str,
    threads: int,
    check_shapes: bool,
    output_scale: float,
) -> Quantized: ...
def linear_pass(
    name: str,
    recipe: LinearRecipe,
    a: Any,
    b: Any,
    out: NDArray[np.float32] | NDArray[np.uint16],
    bias: NDArray[np.float32],
    accumulate: bool,
    random_bits: NDArray[np.uint8] | None,
    zero_rule: str,
    threads: int,
    check_shapes: bool,
    parallel: _Parallel,
) -> None: ...
def functions() -> list[str]: ...
def elementary(name: str, x: NDArray[np.float32], out: NDArray[np.float32], threads: int) -> None: ...
def special_functions() -> list[tuple[str, str]]: ...
def special_units() -> list[tuple[str, str]]: ...
def special_types() -> list[tuple[str, str]]: ...
def special_function(
    units: str,
    name: str,
    ftz: bool | None,
    x: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
def special_instruction(
    units: str,
    name: str,
    type: str,
    ftz: bool | None,
    words: NDArray[np.uint32],
    threads: int,
) -> None: ...
def device_functions() -> list[tuple[str, str]]: ...
def device_chips() -> list[tuple[str, str]]: ...
def cuda_releases() -> list[tuple[str, str]]: ...
def device_function(
    name: str,
    chip_and_cuda: tuple[str, str],
    units: str,
    flags: tuple[bool, bool, bool, bool],
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
def exactness_rows() -> list[tuple[str, str, bool, str, float, float, float, str, bool]]: ...
def activation_rows() -> list[tuple[str, str, str, bool, bool]]: ...
def activation(
    name: str,
    parameters: tuple[float, float, float, float, float],
    x: tuple[NDArray[Any], str],
    scales: NDArray[np.float32] | None,
    out: tuple[NDArray[Any], str],
    interleave: int,
    options: tuple[str, int, int],
) -> None: ...
def activation_backward(
    name: str,
    parameters: tuple[float, float, float, float, float],
    grad: tuple[NDArray[Any], str],
    x: tuple[NDArray[Any], str],
    scales: NDArray[np.float32] | None,
    dx: tuple[NDArray[Any], str],
    sums: NDArray[np.float32],
    interleave: int,
    options: tuple[str, int, int],
) -> None: ...
def norm(
    parameters: tuple[float, bool],
    x: tuple[NDArray[Any], str],
    gamma: tuple[NDArray[Any], str],
    beta: tuple[NDArray[Any], str] | None,
    out: tuple[NDArray[Any], str],
    mean: NDArray[np.float32],
    rsigma: NDArray[np.float32],
    options: tuple[str, int, int],
) -> None: ...
def layernorm_backward(
    zero_centered_gamma: bool,
    grad: tuple[NDArray[Any], str],
    x: tuple[NDArray[Any], str],
    mean: NDArray[np.float32],
    rsigma: NDArray[np.float32],
    gamma: tuple[NDArray[Any], str],
    dx: tuple[NDArray[Any], str],
    dgamma: tuple[NDArray[Any], str],
    dbeta: tuple[NDArray[Any], str],
    options: tuple[str, int, int],
) -> None: ...
def rmsnorm_backward(
    zero_centered_gamma: bool,
    grad: tuple[NDArray[Any], str],
    x: tuple[NDArray[Any], str],
    rsigma: NDArray[np.float32],
    gamma: tuple[NDArray[Any], str],
    add: tuple[NDArray[Any], str] | None,
    dx: tuple[NDArray[Any], str],
    dgamma: tuple[NDArray[Any], str],
    options: tuple[str, int, int],
) -> None: ...
def softmax(
    kind: str,
    shape: tuple[int, int, int, int],
    scale: float,
    x: tuple[NDArray[Any], str],
    mask: NDArray[np.uint8],
    out: tuple[NDArray[Any], str],
    options: tuple[str, int, int],
) -> None: ...
def softmax_backward(
    kind: str,
    shape: tuple[int, int, int, int],
    scale: float,
    grad: tuple[NDArray[Any], str],
    y: tuple[NDArray[Any], str],
    dx: tuple[NDArray[Any], str],
    options: tuple[str, int, int],
) -> None: ...
def rope(
    backward: bool,
    sizes: tuple[int, int, int, int, int],
    choices: tuple[bool, bool, int, int],
    x: tuple[NDArray[Any], str],
    freqs: NDArray[np.float32],
    cu_seqlens: NDArray[np.int32],
    start_positions: NDArray[np.int32],
    out: tuple[NDArray[Any], str],
    options: tuple[str, int, int],
) -> None: ...
def rope_qkv(
    sizes: tuple[int, int, int, int],
    widths: Sequence[int],
    choices: tuple[bool, bool, int, int],
    qkv: tuple[NDArray[Any], str],
    query_freqs: NDArray[np.float32],
    key_freqs: NDArray[np.float32],
    start_positions: NDArray[np.int32],
    out: Sequence[tuple[NDArray[Any], str]],
    options: tuple[str, int, int],
) -> None: ...
def rope_qkv_backward(
    sizes: tuple[int, int, int, int],
    widths: Sequence[int],
    choices: tuple[bool, bool, int, int],
    grads: Sequence[tuple[NDArray[Any], str]],
    query_freqs: NDArray[np.float32],
    key_freqs: NDArray[np.float32],
    dqkv: tuple[NDArray[Any], str],
    options: tuple[str, int, int],
) -> None: ...
def dropout(
    probability: float,
    state: tuple[int, int] | None,
    x: tuple[NDArray[Any], str],
    out: tuple[NDArray[Any], str],
    mask: NDArray[np.uint8],
    threads: int,
) -> None: ...
def scale_tensor(x: tuple[NDArray[Any], str], scale: float, out: tuple[NDArray[Any], str], threads: int) -> bool: ...
def l2norms(
    tensors: Sequence[tuple[NDArray[Any], str]],
    options: tuple[str, int, int],
) -> tuple[float, list[float]]: ...
def compiled_gelu(
    x: tuple[NDArray[Any], str],
    bias: NDArray[np.float32],
    out: tuple[NDArray[Any], str],
    threads: int,
) -> None: ...
def compiled_gelu_backward(
    grad: tuple[NDArray[Any], str],
    x: tuple[NDArray[Any], str],
    bias: NDArray[np.float32],
    dx: tuple[NDArray[Any], str],
    sums: NDArray[np.float32],
    for_one_shape: bool,
    threads: int,
) -> None: ...
def has_one_shape_sums(rows: int, columns: int) -> bool: ...
def torch_row_sums(x: tuple[NDArray[Any], str], offset: int, multiprocessors: int) -> NDArray[np.float32]: ...
def cublaslt_row_sums(x: tuple[NDArray[Any], str], after_gelu: bool) -> NDArray[np.float32]: ...
def cast_transpose_row_sums(x: tuple[NDArray[Any], str], kernel: tuple[int, bool, int]) -> NDArray[np.float32]: ...
def add_group_bias(
    x: tuple[NDArray[Any], str],
    bias: tuple[NDArray[Any], str],
    offsets: NDArray[np.int64],
    scales: NDArray[np.float32],
    out: tuple[NDArray[Any], str],
    threads: int,
) -> None: ...
def group_bias_gradient(
    grad: tuple[NDArray[Any], str],
    offsets: NDArray[np.int64],
    dbias: NDArray[np.float32],
    threads: int,
) -> None: ...
def scaled_group_bias_gradient(
    grad: tuple[NDArray[Any], str],
    scales: NDArray[np.float32],
    bias: tuple[NDArray[Any], str],
    offsets: NDArray[np.int64],
    dbias: NDArray[np.float32],
    dscales: NDArray[np.float32],
    threads: int,
) -> None: ...
def cast_transpose_thread_rows(rows: int, columns: int, kernel: tuple[int, bool, int]) -> int: ...
def scale_of_amax(amax: float, largest: float, power_of_two: bool, eps: float) -> tuple[float, float]: ...
def nvfp4_global_scale(amax: float) -> float: ...
def nvfp4_tile_scales(amaxes: NDArray[np.float32], global_amax: float, scales: NDArray[np.float32]) -> None: ...
def nvfp4_shard_codes(
    x: tuple[NDArray[Any], str],
    shard: tuple[int, int, int],
    scales: NDArray[np.float32],
    global_scale: float,
    codes: NDArray[np.uint8],
    threads: int,
) -> None: ...
def sgd_update(
    numbers: tuple[float, float, float, float, float],
    flags: tuple[bool, bool, bool],
    grad: tuple[NDArray[Any], str],
    param: tuple[NDArray[Any], str],
    momentum: tuple[NDArray[Any], str],
    model: tuple[NDArray[Any], str] | None,
    threads: int,
) -> None: ...
def adam_update(
    numbers: tuple[float, float, float, float, float],
    choices: tuple[int, bool, str],
    grad: tuple[NDArray[Any], str],
    param: tuple[NDArray[Any], str],
    m: tuple[NDArray[Any], str],
    v: tuple[NDArray[Any], str],
    master: NDArray[np.float32] | None,
    options: tuple[str, int, int],
) -> None: ...
def adam_update_unscaling(
    numbers: tuple[float, float, float, float, float],
    choices: tuple[int, bool, str],
    inverse_scale: float,
    grad: tuple[NDArray[Any], str],
    param: tuple[NDArray[Any], str],
    m: tuple[NDArray[Any], str],
    v: tuple[NDArray[Any], str],
    master: NDArray[np.float32] | None,
    options: tuple[str, int, int],
) -> None: ...
def adam_update_fp8(
    numbers: tuple[float, float, float, float, float],
    choices: tuple[int, bool, str],
    grad: tuple[NDArray[Any], str],
    format: Format,
    scale: float,
    amax: float,
    codes: NDArray[np.uint8],
    m: tuple[NDArray[Any], str],
    v: tuple[NDArray[Any], str],
    master: NDArray[np.float32],
    options: tuple[str, int, int],
) -> float: ...
def adam_update_remainder(
    numbers: tuple[float, float, float, float, float],
    choices: tuple[int, bool, str],
    grad: tuple[NDArray[Any], str],
    param: tuple[NDArray[Any], str],
    m: tuple[NDArray[Any], str],
    v: tuple[NDArray[Any], str],
    remainder: NDArray[np.int16],
    options: tuple[str, int, int],
) -> None: ...
def permutation_map(experts: NDArray[np.int32], tokens: int, kept: int, out: NDArray[np.int32]) -> None: ...
def permute_rows(
    x: NDArray[np.uint8],
    row_bytes: int,
    map: NDArray[np.int32],
    out: NDArray[np.uint8],
    threads: int,
) -> None: ...
def unpermute_rows(
    x: tuple[NDArray[Any], str],
    columns: int,
    map: NDArray[np.int32],
    probabilities: NDArray[np.float32],
    out: tuple[NDArray[Any], str],
    threads: int,
) -> None: ...
def unpermute_rows_backward(
    grad: tuple[NDArray[Any], str],
    x: tuple[NDArray[Any], str],
    columns: int,
    map: NDArray[np.int32],
    probabilities: NDArray[np.float32],
    dx: tuple[NDArray[Any], str],
    probability_gradient: NDArray[np.float32],
    threads: int,
) -> None: ...
def pad_rows(
    back: bool,
    x: NDArray[np.uint8],
    row_bytes: int,
    counts: Sequence[int],
    multiple: int,
    out: NDArray[np.uint8],
) -> None: ...
def cross_entropy(
    label_smoothing: float,
    ignore_index: int,
    x: tuple[NDArray[Any], str],
    targets: NDArray[np.int64],
    loss: NDArray[np.float32],
    largest: NDArray[np.float32],
    sum: NDArray[np.float32],
    options: tuple[str, int, int],
) -> None: ...
def cross_entropy_backward(
    label_smoothing: float,
    ignore_index: int,
    grad: NDArray[np.float32],
    x: tuple[NDArray[Any], str],
    targets: NDArray[np.int64],
    largest: NDArray[np.float32],
    sum: NDArray[np.float32],
    dx: tuple[NDArray[Any], str],
    options: tuple[str, int, int],
) -> None: ...
def mask_map(mask: NDArray[np.uint8], tokens: int, out: NDArray[np.int32]) -> None: ...
def permute_rows_by_mask(
    x: NDArray[np.uint8],
    row_bytes: int,
    at: tuple[NDArray[np.int32], int, NDArray[np.int64]],
    probabilities: tuple[NDArray[Any], str],
    out: NDArray[np.uint8],
    threads: int,
) -> None: ...
def permute_probabilities_by_mask(
    back: bool,
    probabilities: NDArray[np.uint8],
    size: int,
    at: tuple[NDArray[np.int32], int, NDArray[np.int64]],
    out: NDArray[np.uint8],
) -> None: ...
def unpermute_rows_by_mask(
    x: tuple[NDArray[Any], str],
    columns: int,
    at: tuple[NDArray[np.int32], int, NDArray[np.int64]],
    probabilities: tuple[NDArray[Any], str],
    out: tuple[NDArray[Any], str],
    threads: int,
) -> None: ...
def unpermute_rows_by_mask_backward(
    grad: tuple[NDArray[Any], str],
    x: tuple[NDArray[Any], str],
    columns: int,
    at: tuple[NDArray[np.int32], int, NDArray[np.int64]],
    probabilities: tuple[NDArray[Any], str],
    dx: tuple[NDArray[Any], str],
    probability_gradient: tuple[NDArray[Any], str],
    threads: int,
) -> None: ...
def chunk_map(counts: NDArray[np.int64], order: NDArray[np.int64], tokens: int, out: NDArray[np.int32]) -> None: ...
def sort_chunks(
    back: bool,
    x: NDArray[np.uint8],
    row_bytes: int,
    map: NDArray[np.int32],
    out: NDArray[np.uint8],
    threads: int,
) -> None: ...
def router_scores() -> list[str]: ...
def moe_topk(
    sizes: tuple[int, int, int, int],
    choices: tuple[str, bool, float],
    logits: tuple[NDArray[Any], str],
    bias: NDArray[np.float32],
    probabilities: tuple[NDArray[Any], str],
    experts: NDArray[np.int32],
    saved: NDArray[np.float32],
    cutoff: NDArray[np.float32],
    options: tuple[str, int, int],
) -> None: ...
def moe_topk_backward(
    sizes: tuple[int, int, int, int],
    choices: tuple[str, bool, float],
    bytes: NDArray[np.uint8],
    experts: NDArray[np.int32],
    saved: NDArray[np.float32],
    grad: tuple[NDArray[Any], str],
    dlogits: tuple[NDArray[Any], str],
    options: tuple[str, int, int],
) -> None: ...
def moe_scores(
    sizes: tuple[int, int, int, int],
    choices: tuple[str, bool, float],
    logits: tuple[NDArray[Any], str],
    scores: NDArray[np.float32],
    experts: NDArray[np.int32],
    saved: NDArray[np.float32],
    options: tuple[str, int, int],
) -> None: ...
def moe_scores_backward(
    score: str,
    saved: NDArray[np.float32],
    grad: tuple[NDArray[Any], str],
    dlogits: tuple[NDArray[Any], str],
    options: tuple[str, int, int],
) -> None: ...
def moe_aux_loss(
    fields: tuple[int, int, int, float, int],
    probabilities: tuple[NDArray[Any], str],
    tokens_per_expert: NDArray[np.float32],
    options: tuple[str, int, int],
) -> tuple[float, float]: ...
def moe_aux_loss_backward(
    factor: float,
    tokens_per_expert: NDArray[np.float32],
    grad: float,
    rows: int,
    dprobabilities: tuple[NDArray[Any], str],
) -> None: ...
def moe_bias_histogram(
    scores: NDArray[np.float32],
    cutoff: NDArray[np.float32],
    lower: float,
    upper: float,
    histogram: NDArray[np.int32],
) -> None: ...
def shape_fits(
    recipe: LinearRecipe,
    tokens: int,
    in_features: int,
    out_features: int,
    parallel: _Parallel,
) -> list[tuple[str, str, str, int, int, str, str, str, int, int, int, str]]: ...
def check_tensor_parallel(parallel: _Parallel) -> None: ...
def linear_bias_gradient(dy: Any, out: NDArray[np.float32]) -> None: ...
def default_fp8_format(recipe: LinearRecipe) -> str: ...
def reduce_and_update(states: Sequence[Fp8State]) -> None: ...
def state_rules() -> list[tuple[str, str, str]]: ...
def gpu_devices() -> list[tuple[int, str, int, int, int, int]]: ...
def gpu_status() -> tuple[int, str, str, str, str]: ...
def gpu_kernels() -> list[tuple[str, str, str, str, str]]: ...
def gpu_require_device() -> None: ...
def gpu_recipes() -> list[str]: ...
def gpu_sizes(recipe: Recipe, direction: str, rows: int, columns: int, layout: str) -> tuple[int, int, int]: ...
def gpu_quantize(
    x: _Place | None,
    dtype: str,
    rows: int,
    columns: int,
    recipe: Recipe,
    rowwise: _Places | None,
    columnwise: _Places | None,
    layout: str,
    scale: _Place | None,
    philox: tuple[int, int] | None,
    team: tuple[bool, int, str, int, int],
) -> None: ...
def gpu_amax(
    x: _Place | None,
    dtype: str,
    count: int,
    nan: str,
    out: _Place | None,
    team: tuple[bool, int, str, int, int],
) -> None: ...
def gpu_dequantize(
    recipe: Recipe,
    direction: str,
    rows: int,
    columns: int,
    arrays: _Places,
    layout: str,
    out: _Place | None,
    team: tuple[bool, int, str, int, int],
) -> None: ...
def gpu_update_scales(
    recipe: DelayedRecipe,
    backward: bool,
    amaxes: _Place | None,
    scale: _Place | None,
    scale_inv: _Place | None,
    team: tuple[bool, int, str, int, int],
) -> None: ...
def gpu_gemm_kernels() -> list[str]: ...
def nearest_float32(x: float) -> float: ...
def gpu_tensor_divisor(recipe: Recipe) -> float: ...
def gpu_gemm(
    kernel: str,
    m: int,
    n: int,
    k: int,
    facts_a: tuple[str, bool, float],
    facts_b: tuple[str, bool, float],
    places: tuple[_Place | None, _Place | None, _Place | None, _Place | None, _Place | None, _Place | None, _Place | None, _Place | None, _Place | None, _Place | None],
    promote_k: int,
    out_dtype: str,
    chip: str | None,
    team: tuple[bool, int, str, int, int],
) -> None: ...
def gpu_gemm_quantized(
    kernel: str,
    a: Quantized,
    b: Quantized,
    bias: _Place | None,
    out: _Place | None,
    promote_k: int,
    out_dtype: str,
    chip: str | None,
    team: tuple[bool, int, str, int, int],
) -> None: ...
def experiments() -> list[Any]: ...
def command_line(words: Sequence[str]) -> int: ...
def python_commands() -> list[tuple[str, str]]: ...
def names_tensor(pattern: str, name: str) -> bool: ...
def run_experiment(name: str, arguments: dict[str, Any], out: bytes | None, called: Mapping[str, str] = ...) -> str: ...
def document_text(json: str, width: int, unicode: bool) -> str: ...
def document_page(json: str) -> str: ...
def document_fragment(json: str) -> str: ...
def save_page(json: str, path: bytes) -> None: ...
def write_report(directory: bytes, page: bytes) -> tuple[bytes, list[str], list[str]]: ...
def save_document(json: str, out: bytes) -> None: ...
