# SPDX-License-Identifier: Apache-2.0
# What fp8lab._experiments.stub() gives; a test compares.
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fp8lab._core import DelayedVersion, Distribution, Format, MmaModel, Profile
from fp8lab._delayed import Delayed
from fp8lab._document import Document
from fp8lab._linear import LinearRecipe, NamedLinearRecipe
from fp8lab._recipes import NamedRecipe, Recipe

def primer(
    *,
    seed: int = 12345,
    sms: int = 114,
    mma: str = 'hopper_wgmma_fp8',
    in_features: int = 768,
    out_features: int = 768,
    rows: int = 1024,
    scale_x: float = 1.0,
    scale_w: float = 1.0,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def cast(
    x: Any | None = None,
    *,
    distribution: str | Distribution | None = None,
    seed: int | None = None,
    size: int | None = None,
    grid: bool = False,
    file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    tensor: str | Sequence[str] | None = None,
    formats: str | Format | Sequence[str | Format] = ('e4m3', 'e5m2'),
    profiles: str | Profile | Sequence[str | Profile] = ('cuda_satfinite',),
    roundings: str | Sequence[str] | None = None,
    scales: float | Sequence[float] | None = None,
    amax: float | Sequence[float] | None = None,
    best_scale: bool = False,
    exact: bool = False,
    out_dtype: str = 'float32',
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def accumulate(
    *,
    models: str | MmaModel | Sequence[str | MmaModel] = ('hopper_wgmma_fp8', 'blackwell_tcgen05_fp8'),
    distributions: str | Sequence[str] = ('abs_uniform', 'normal'),
    k: int | Sequence[int] = (32, 128, 512, 1024, 4096, 16384),
    promote_k: int | Sequence[int] = (0, 128),
    format_a: str | Format | None = None,
    format_b: str | Format | None = None,
    rows: int = 32,
    columns: int = 32,
    seed: int = 1,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def harmonic(
    *,
    formats: str | Format | Sequence[str | Format] = ('float16', 'bfloat16', 'e4m3', 'e5m2'),
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def double_rounding(
    *,
    formats: str | Format | Sequence[str | Format] = ('e4m3',),
    via: str | Format | Sequence[str | Format] = ('float16', 'bfloat16'),
    via_roundings: str | Sequence[str] = ('nearest_even', 'toward_zero'),
    low: float = 1.0,
    high: float = 2.0,
    uniform: float | Sequence[float] | None = None,
    size: int | None = None,
    seed: int | None = None,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def dot(
    *,
    model: str | MmaModel = 'hopper_wgmma_fp8',
    a: str | None = None,
    values_a: float | Sequence[float] | None = None,
    file_a: str | os.PathLike[str] | None = None,
    tensor_a: str | Sequence[str] | None = None,
    row: int | None = None,
    distribution_a: str | Distribution | None = None,
    seed_a: int | None = None,
    format_a: str | Format | None = None,
    scale_a: str | None = None,
    b: str | None = None,
    values_b: float | Sequence[float] | None = None,
    file_b: str | os.PathLike[str] | None = None,
    tensor_b: str | Sequence[str] | None = None,
    column: int | None = None,
    distribution_b: str | Distribution | None = None,
    seed_b: int | None = None,
    format_b: str | Format | None = None,
    scale_b: str | None = None,
    k: int | None = None,
    c: str | None = None,
    promote_k: int = 0,
    zero_rule: str = 'floor',
    got: str | None = None,
    at: int | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def scaling(
    x: Any | Sequence[Any] | None = None,
    *,
    recipes: str | NamedRecipe | Recipe | tuple[str, Recipe] | Sequence[str | NamedRecipe | Recipe | tuple[str, Recipe]] | Mapping[str, Recipe] = ('te_current_scaling', 'te_mxfp8', 'te_block_1x128', 'te_nvfp4'),
    delayed: str | Delayed | Sequence[str | Delayed] = ('max:1024', 'max:8', 'most_recent:1'),
    version: str | DelayedVersion = 'te_current',
    margin: int = 0,
    backward: bool = False,
    stream: str | None = None,
    steps: int | None = None,
    distribution: str | Distribution | None = None,
    seed: int | None = None,
    rows: int | None = None,
    columns: int | None = None,
    grid: bool = False,
    file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    tensor: str | Sequence[str] | None = None,
    bfloat16: bool = False,
    out_dtype: str = 'float32',
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def linear(
    x: Any | Sequence[Any] | None = None,
    w: Any | Sequence[Any] | None = None,
    *,
    dy: Any | Sequence[Any] | None = None,
    bias: Any | Sequence[Any] | None = None,
    recipes: str | NamedLinearRecipe | tuple[str, LinearRecipe] | Sequence[str | NamedLinearRecipe | tuple[str, LinearRecipe]] | Mapping[str, LinearRecipe] = ('te_delayed_hopper', 'te_current_scaling_hopper', 'te_mxfp8_blackwell', 'te_nvfp4_blackwell', 'bf16_hopper', 'tf32_hopper'),
    passes: str | Sequence[str] | None = None,
    tokens: int | None = None,
    in_features: int | None = None,
    out_features: int | None = None,
    steps: int | None = None,
    stream: str | None = None,
    distribution: str | Distribution | None = None,
    seed: int | None = None,
    x_factor: float | None = None,
    w_factor: float | None = None,
    dy_factor: float | None = None,
    bias_factor: float | None = None,
    x_file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    x_tensor: str | Sequence[str] | None = None,
    w_file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    w_tensor: str | Sequence[str] | None = None,
    dy_file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    dy_tensor: str | Sequence[str] | None = None,
    bias_file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    bias_tensor: str | Sequence[str] | None = None,
    amax_history_len: int = 1024,
    margin: int = 0,
    amax_compute_algo: str = 'max',
    version: str | DelayedVersion = 'te_current',
    check_shapes: bool = True,
    rounding_seed: int = 1,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def transpose(
    x: Any | None = None,
    *,
    recipes: str | NamedRecipe | Recipe | tuple[str, Recipe] | Sequence[str | NamedRecipe | Recipe | tuple[str, Recipe]] | Mapping[str, Recipe] = ('te_mxfp8', 'ocp_mxfp8_e4m3', 'ocp_mxfp8_e5m2', 'ocp_mxfp4', 'te_nvfp4', 'te_block_1x128', 'te_block_1x128_fp32', 'te_block_128x128', 'te_current_scaling', 'te_current_scaling_pow2'),
    distribution: str | Distribution | None = None,
    seed: int | None = None,
    rows: int | None = None,
    columns: int | None = None,
    outlier_rows: tuple[int, float] | None = None,
    outlier_columns: tuple[int, float] | None = None,
    file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    tensor: str | Sequence[str] | None = None,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def delayed(
    trace: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    formats: str | Format | Sequence[str | Format] = ('e4m3',),
    versions: str | DelayedVersion | Sequence[str | DelayedVersion] = ('te_current', 'te_current_unfused', 'te_1_6', 'te_0_1', 'ms_amp', 'torchao'),
    algorithms: str | Sequence[str] = ('max', 'most_recent'),
    history: int | Sequence[int] = (1024, 16),
    margin: int = 0,
    reduce_amax: bool = True,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def train(
    *,
    sizes: int | Sequence[int] = (64, 256, 256, 16),
    recipes: str | NamedLinearRecipe | tuple[str, LinearRecipe] | Sequence[str | NamedLinearRecipe | tuple[str, LinearRecipe]] | Mapping[str, LinearRecipe] = ('bf16_hopper', 'te_delayed_hopper', 'te_delayed_hopper_e4m3', 'te_current_scaling_hopper', 'te_block_hopper', 'te_mxfp8_blackwell', 'te_nvfp4_blackwell'),
    head: str = 'high_precision',
    batch: int = 128,
    steps: int = 1000,
    loss: str = 'cross_entropy',
    optimizer: str = 'adam',
    learning_rate: float = 0.002,
    momentum: float = 0.9,
    clip: float = 1.0,
    gradient_scale: float = 1.0,
    amax_history_len: int = 1024,
    amax_compute_algo: str = 'max',
    margin: int = 0,
    delayed_version: str | DelayedVersion = 'te_current',
    jump_step: int | None = None,
    jump_factor: float | None = None,
    jump_of: str | None = None,
    jump_length: int | None = None,
    error_steps: int | Sequence[int] = (1, 10, 100, 1000),
    divergence: float = 2.0,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    seed: int = 1,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def shapes(
    tokens: int | None = None,
    in_features: int | None = None,
    out_features: int | None = None,
    *,
    recipes: str | NamedLinearRecipe | tuple[str, LinearRecipe] | Sequence[str | NamedLinearRecipe | tuple[str, LinearRecipe]] | Mapping[str, LinearRecipe] | None = None,
    parallel: str = 'none',
    ranks: int | None = None,
    sequence_parallel: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def compare(
    a: str | os.PathLike[str] = '',
    b: str | os.PathLike[str] = '',
    *,
    format: str | None = None,
    pairs: bool = False,
    tensors: str | Sequence[str] | None = None,
    input: str | os.PathLike[str] | None = None,
    shown: int = 10,
    raw: bool = False,
    shape: int | Sequence[int] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def doctor(
    x: str | os.PathLike[str] = '',
    codes: str | os.PathLike[str] = '',
    scales: str | os.PathLike[str] | None = None,
    *,
    format: str | None = None,
    scale_format: str | None = None,
    tensor_scale: float | None = None,
    tensors: str | Sequence[str] | None = None,
    expected: str | NamedRecipe | Recipe | tuple[str, Recipe] | None = None,
    direction: str | None = None,
    shown: int = 10,
    probe: str | os.PathLike[str] | None = None,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def verify_casts(
    *,
    formats: str | Sequence[str] | None = None,
    profiles: str | Sequence[str] | None = None,
    roundings: str | Sequence[str] | None = None,
    all: bool = False,
    chunks: int | None = None,
    seed: int | None = None,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def verify_tensor_cores(
    *,
    models: str | Sequence[str] | None = None,
    dots: int = 100000,
    seed: int = 1,
    vectors: str | os.PathLike[str] | None = None,
    rows: str | os.PathLike[str] | None = None,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...

def gpu(
    *,
    parts: str | Sequence[str] | None = None,
    inputs: int = 4294967296,
    dots: int = 100000000,
    seed: int = 1,
    seconds: float = 60.0,
    host_team: bool = False,
    python: str = 'python3',
    cublaslt: str | os.PathLike[str] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    threads: int = 1,
    out: str | os.PathLike[str] | None = None,
) -> Document: ...
