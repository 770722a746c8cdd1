# SPDX-License-Identifier: Apache-2.0
"""No floating-point environment and no locale of the caller changes a byte: of every public function, method and
property."""

import contextlib
import inspect
import locale
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import fp8lab
import ml_dtypes
import numpy as np
import pytest
from conftest import splitmix
from environments import DOWNWARD, FLUSH, MACHINES, TOWARD_ZERO, UPWARD, Floats, contents, control, written
from fp8lab import experiments
from sampled import EXHAUSTIVE, sampled
from small_calls import PUBLIC, small_call

sys.path.append(str(pathlib.Path(__file__).parents[1] / "hostile"))
import wrong_calls  # noqa: E402

# 1. A call of everything that is public.

_WORDS = splitmix(20261122, 4096)
#: Floats that show the environment: of every magnitude, and of that of subnormal codes, scales and floats.
ANY = (_WORDS & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
ANY = np.where(np.isfinite(ANY), ANY, np.float32(1.1))
NEAR = (_WORDS[:2048] % np.uint64(2**24)).astype(np.float32) * np.float32(2**-20) - np.float32(7.3)
TINY = (_WORDS[:512] % np.uint64(2**23)).astype(np.uint32).view(np.float32)
MATRIX = np.concatenate([NEAR[:1024], TINY, ANY[:512]]).reshape(16, 128).repeat(2, 0).repeat(2, 1)[:, :128]
CODES = (_WORDS % np.uint64(0x77)).astype(np.uint8).reshape(64, 64)
DOUBLES = NEAR.astype(np.float64) * (1 / 3)
TINY_DOUBLES = DOUBLES * 2.0**-1030
HALVES = NEAR.astype(np.float16)
AMAXES = np.abs(np.concatenate([NEAR[:96], TINY[:32], ANY[:32], np.float32([0, 1e-45, 3e38])]))
RECORDED = (AMAXES.astype(np.float64) * (1 + 2**-30)).tolist()
SCALE = 1 / 3 + 2**-26  # no float32, and nearer to the one below
LINEAR_FP8 = fp8lab.LinearRecipe(
    *[
        fp8lab.LinearGemm("hopper_wgmma_fp8", *["given_scale"] * 2, output=output)
        for output in ("e4m3", "e5m2", "float32")
    ]
)
LINEAR = fp8lab.LinearRecipe(*[fp8lab.LinearGemm("hopper_wgmma_fp8", "te_current_scaling", "te_block_128x128")] * 3)


def _replayed(version: str, algorithm: object = "max", margin: int = 0) -> list[object]:
    recipe = fp8lab.Delayed(version=version, amax_history_len=4, amax_compute_algo=algorithm, margin=margin)
    history = fp8lab.AmaxHistory(recipe)
    seen: list[object] = [recipe]
    for amax in RECORDED:
        history.record_amax(amax)
        history.update_scale()
        seen += [history.scale, history.scale_inv]
    return [*seen, history]


def _history(change) -> fp8lab.AmaxHistory:
    history = fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=3))
    change(history)
    return history


def _histogram() -> fp8lab.Histogram:
    return fp8lab.histogram(ANY, "log", low=1e-40, high=1.1e38, count=7)


class _Drawn:
    """What is drawn on it, in place of matplotlib's axes."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name):
        return lambda *args, **named: self.calls.append(f"{name} {args} {named}")


def _drawn(plot) -> list[str]:
    return plot(axes=_Drawn()).calls


def _undated(page: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "", page)


def _reported(_directory) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        results = pathlib.Path(scratch) / "results"
        results.mkdir()
        (results / "one.json").write_text(DOCUMENT)
        return _undated(fp8lab.report(results).read_text())


def _frame(made) -> str:
    """A frame as text, where there is a package for it."""
    try:
        return str(made.to_frame())
    except ImportError as error:
        return str(error)


SMALL = NEAR.reshape(16, 128) * np.float32(SCALE)


def _state_step(state: fp8lab.Fp8State) -> list[object]:
    """A step of a layer under delayed scaling, with amaxes that no scale of 1 fits."""
    with state.autocast("te_delayed_hopper", delayed=fp8lab.Delayed(amax_history_len=3)):
        call = state.forward(0, NEAR.reshape(16, 128), SMALL, TINY[:16])
    return [call.y, *state.backward(call, NEAR[:256].reshape(16, 16)), state.arrays()]


def _steps() -> list[object]:
    state = fp8lab.Fp8State(trace=True)
    return [_state_step(state), _state_step(state), state.trace]


def _updated() -> list[np.ndarray]:
    arrays = [AMAXES[:12].reshape(4, 3).copy(), np.ones(3, np.float32), np.ones(3, np.float32)]
    fp8lab.gpu.update_scales(fp8lab.Delayed(amax_history_len=4), *arrays)
    return arrays


def _written() -> fp8lab.Fp8State:
    state = fp8lab.Fp8State()
    state.write_weight(0, NEAR.reshape(16, 128), "te_delayed_hopper")
    return state


def _layer_step() -> list[object]:
    layer = fp8lab.Linear(SMALL, TINY[:16], recipe="te_current_scaling_hopper")
    return [layer.forward(NEAR.reshape(16, 128)), layer.backward(NEAR[:256].reshape(16, 16))]


def _reduced() -> list[object]:
    states = [fp8lab.Fp8State(ranks=2), fp8lab.Fp8State(ranks=2)]
    for state in states:
        with state.autocast("te_delayed_hopper"):
            state.forward(0, NEAR.reshape(16, 128), NEAR.reshape(16, 128))
    fp8lab.reduce_and_update(states)
    return [state.arrays() for state in states]


def _quantized(recipe: str, direction: str = "rowwise", **options: object) -> fp8lab.Quantized:
    x = np.where(np.abs(MATRIX) < 1e30, MATRIX, np.float32(3.3))
    return fp8lab.quantize(x.repeat(8, 0), recipe, direction=direction, **options)


GEMM_OUT = fp8lab.gemm(CODES[:4], CODES[:5], model="hopper_wgmma_fp8", scale_a=SCALE, scale_b=3e-20)


def _diagnosed_gemm(times: int = 1) -> fp8lab.GemmDiagnosis:
    return fp8lab.diagnose_gemm(
        CODES[:4] * np.uint8(times), CODES[:5], GEMM_OUT * np.float32(times), scale_a=SCALE, scale_b=3e-20
    )


def _parted(found: fp8lab.GemmDiagnosis) -> tuple[fp8lab.GemmExplanation, ...]:
    probe = found.probe()
    given = {"scale_a": probe.scale_a, "scale_b": probe.scale_b, "c": probe.c, "bias": probe.bias}
    return found.parted_by(probe, found.explanations[0].output(probe.a, probe.b, scale_out=probe.scale_out, **given))


TENSOR_SCALE_INV = float(np.float32(_quantized("torchao_nvfp4").amax) / np.float32(2688))


def _all_recipes() -> list[fp8lab.Quantized]:
    found = []
    for one in fp8lab.recipes():
        bits = np.zeros(MATRIX.size * 8, np.uint8) if getattr(one.recipe, "stochastic_rounding", False) else None
        found.append(_quantized(one.name, random_bits=bits))
    return found


def _products(call) -> list[object]:
    """Of every model that takes CODES."""
    return [
        call(model) for model in fp8lab.models() if model.k and "e4m3" in model.operands and model.scale_block is None
    ]


def _of_k(model: fp8lab.MmaModel) -> np.ndarray:
    return np.ascontiguousarray(CODES.reshape(-1, model.k)[:8])


DOCUMENT = experiments.harmonic(formats=["e5m2"]).to_json()


STORED = tempfile.TemporaryDirectory()


def _stored(factor):
    path = f"{STORED.name}/{factor}.npy"
    np.save(path, np.linspace(-3, 3, 64, dtype=np.float32) * np.float32(factor))
    return path


def _stored_codes():
    path = f"{STORED.name}/codes.npy"
    np.save(path, np.arange(64, dtype=np.uint8))
    return path


def _stored_gemm(name, array):
    path = f"{STORED.name}/gemm_{name}.npy"
    np.save(path, array)
    return path


RAMP = np.linspace(-3, 3, 8 * 128, dtype=np.float32).reshape(8, 128)


def _diagnosed(recipe, wrong=False):
    q = fp8lab.quantize(RAMP, recipe)
    codes = q.codes.copy()
    if wrong:
        codes[3] ^= 1
    return fp8lab.diagnose(RAMP, codes, q.scale_inv if q.scale_codes is None else q.scale_codes, shown=3)


GPU_CODES = np.arange(32 * 128, dtype=np.uint8).reshape(32, 128) & 0xBB
TILE_SCALES = np.full((32, 1), 0.3, np.float32)


def _tiles(kernel):
    return dict.fromkeys(("scale_a", "scale_b"), TILE_SCALES) if "scaled" in kernel else {"scale_a": 0.3}


def _out(run, **arguments: object):
    """An experiment's result, and the files that it writes."""
    return lambda directory: [run(**arguments), run(**arguments, out=directory)]


_ONE_WRITER = threading.Lock()


def _dequantized(directory):
    """One call at a time: a second writer of a directory is refused."""
    with _ONE_WRITER:
        return _out(experiments.dequantize, **small_call("dequantize"))(directory)


MODEL = pathlib.Path(STORED.name, "w.weight.npy")
np.save(MODEL, (np.linspace(-3, 3, 512, dtype=np.float32) ** 3).reshape(8, 64) * np.float32(SCALE))


def _quantized_model(layout):
    """One writer at a time; the bytes that it wrote are compared, too."""
    into = pathlib.Path(STORED.name, f"quantized_{layout}")

    def run(_):
        with _ONE_WRITER:
            made = experiments.quantize(model=MODEL, into=into, layout=layout)
            return made, np.frombuffer((into / "model.safetensors").read_bytes(), np.uint8)

    return run


def _reencoded(directory):
    with _ONE_WRITER:
        into = pathlib.Path(STORED.name, "to_reencode")
        experiments.quantize(model=MODEL, into=into, layout="modelopt_nvfp4")
        return _out(experiments.reencode, model=into, to="mistral_fp8", recipe="float32")(directory)


CASES = {
    "AmaxHistory": lambda _: [_replayed(one.name) for one in fp8lab.delayed_versions()],
    "AmaxHistory.copy": lambda _: _history(lambda h: h.record_amax(0.1)).copy(),
    "AmaxHistory.record_amax": lambda _: [_history(lambda h: h.record_amax(a)) for a in (0.1, 1e-40, SCALE, 2.0**127)],
    "AmaxHistory.resize_history": lambda _: _history(lambda h: h.resize_history(2)),
    "AmaxHistory.update_scale": lambda _: [_replayed(v, a, m) for v, a, m in [
        ("te_current", lambda h: h.max(), 3), ("te_current", lambda h: float(h[0]) / 3, -1), ("te_0_1", "most_recent", 2)]],
    "AmaxHistory.scale": lambda _: _history(lambda h: setattr(h, "scale", SCALE)),
    "AmaxHistory.scale_inv": lambda _: _history(lambda h: setattr(h, "scale_inv", 1e-40)),
    "AmaxHistory.amaxes": lambda _: _history(lambda h: setattr(h, "amaxes", TINY[:3])),
    "AmaxHistory.position": lambda _: _history(lambda h: setattr(h, "position", 7)),
    "BestScale": lambda _: fp8lab.BestScale(0.1, 30.5),
    "Block": lambda _: [fp8lab.Block(rule="te", amax_epsilon=SCALE), fp8lab.Block(amax_epsilon=1e-40)],
    "ChainDifferences": lambda _: fp8lab.ChainDifferences(1, 0, np.int64([])),
    "Comparison": lambda _: fp8lab.compare(TINY, TINY[::-1].copy(), input=TINY),
    "Delayed": lambda _: fp8lab.Delayed(margin=2),
    "DelayedVersion": lambda _: fp8lab.delayed_versions(),
    "Diagnosis": lambda _: str(_diagnosed("te_mxfp8", wrong=True)),
    "Diagnosis.exercise": lambda _: _diagnosed("te_mxfp8").exercise(),
    "Diagnosis.probe": lambda _: _diagnosed("te_mxfp8").probe(),
    "Probe": lambda _: _diagnosed("te_mxfp8").probe().alike,
    "Discriminator": lambda _: _diagnosed("deepgemm_cpu").discriminators,
    "Explanation": lambda _: [str(one) for one in _diagnosed("te_nvfp4").explanations],
    "diagnose": lambda _: str(_diagnosed("te_block_1x128_fp32")),
    "Distance": lambda _: fp8lab.compare(NEAR[:512], TINY).distances,
    "Distribution": lambda _: fp8lab.distributions(),
    "ErrorTotals": lambda _: fp8lab.ErrorTotals(),
    "ErrorTotals.merge": lambda _: _merged(fp8lab.errors(NEAR[:100], NEAR[1:101]), fp8lab.errors(TINY, TINY[::-1])),
    "Format": lambda _: [fp8lab.Format(4, 3, 7), fp8lab.Format(8, 7, 127, name="own"), fp8lab.Format(4, 3, 7) == fp8lab.Format(4, 3, 8)],
    "Fp8State": lambda _: _steps(),
    "Fp8State.arrays": lambda _: _written().arrays(),
    "Fp8State.autocast": lambda _: _steps(),
    "Fp8State.backward": lambda _: _steps(),
    "Fp8State.copy": lambda _: _written().copy().arrays(),
    "Fp8State.enter_autocast": lambda _: fp8lab.Fp8State().enter_autocast("te_mxfp8_blackwell"),
    "Fp8State.exit_autocast": lambda _: _steps(),
    "Fp8State.forward": lambda _: _steps(),
    "Fp8State.grad_enabled": lambda _: _steps(),
    "Fp8State.load_arrays": lambda _: _written().load_arrays(_written().arrays()),
    "Fp8State.no_grad": lambda _: _steps(),
    "Fp8State.write_weight": lambda _: [_written().arrays(), _written().forward(0, MATRIX[:, :128]).y],
    "GemmDeparture": lambda _: fp8lab.GemmDeparture("bias_missing", "the bias is not added"),
    "GemmDiagnosis": lambda _: _diagnosed_gemm().verdict,
    "GemmDiagnosis.parted_by": lambda _: _parted(_diagnosed_gemm(0)),
    "GemmDiagnosis.probe": lambda _: _diagnosed_gemm(0).probe(),
    "GemmElement": lambda _: _diagnosed_gemm().shown,
    "GemmExplanation": lambda _: _diagnosed_gemm().explanations,
    "GemmExplanation.output": lambda _, q=_quantized("te_mxfp8"): fp8lab.diagnose_gemm(
        q, q, fp8lab.gemm(q, q, "blackwell_mxf8")
    ).explanations[0].output(q, q),
    "GemmProbe": lambda _: _diagnosed_gemm(0).probe(32).a,
    "GemmRecipe": lambda _: str(fp8lab.GemmRecipe("hopper_wgmma_fp8", alpha=SCALE, beta=1 / 3)),
    "GemmRecipe.from_json": lambda _: fp8lab.GemmRecipe.from_json('{"model": "exact", "alpha": 0.1}'),
    "GemmRecipe.to_json": lambda _: fp8lab.GemmRecipe("exact", alpha=SCALE, beta=1 / 3).to_json(),
    "GivenScale": lambda _: [fp8lab.GivenScale(scale=SCALE), _quantized(fp8lab.GivenScale(scale=SCALE))],
    "Histogram": lambda _: fp8lab.Histogram("linear", -0.1, 0.7, 7, fp8lab.formats()[0]),
    "Histogram.merge": lambda _: _merged(_histogram(), _histogram()),
    "Histogram.to_csv": lambda _: _histogram().to_csv(),
    "Histogram.to_frame": lambda _: _frame(_histogram()),
    "Histogram.plot": lambda _: _drawn(_histogram().plot),
    "JustInTime": lambda _: [fp8lab.JustInTime(amax_epsilon=SCALE), _quantized(fp8lab.JustInTime(amax_epsilon=1e-3))],
    "LayerGrads": lambda _: fp8lab.LayerGrads(None, None, None),
    "Linear": lambda _: _layer_step(),
    "Linear.backward": lambda _: _layer_step(),
    "Linear.forward": lambda _: _layer_step(),
    "linear_bias_gradient": lambda _: fp8lab.linear_bias_gradient(MATRIX),
    "LinearCall": lambda _: _steps(),
    "LinearGemm": lambda _: fp8lab.LinearGemm("hopper_wgmma_fp8", fp8lab.GivenScale(scale=SCALE), "te_current_scaling", 128),
    "LinearGrads": lambda _: fp8lab.LinearGrads(None, None),
    "LinearRecipe": lambda _: fp8lab.LinearRecipe(*[fp8lab.LinearGemm("exact")] * 3),
    "Mismatch": lambda _: fp8lab.compare(DOUBLES, DOUBLES[::-1].copy()).first,
    "MmaModel": lambda _: fp8lab.models(),
    "MxBlock": lambda _: [_quantized(fp8lab.MxBlock(rule=rule)) for rule in ("te", "floor", "ceil", "even", "rceil")],
    "NamedGemmRecipe": lambda _: fp8lab.NamedGemmRecipe("own", fp8lab.gemm_recipes()[0].recipe, "here"),
    "NamedLinearRecipe": lambda _: fp8lab.NamedLinearRecipe("own", fp8lab.linear_recipes()[0].recipe, "here"),
    "NamedRecipe": lambda _: fp8lab.NamedRecipe("own", fp8lab.NvFp4(), "here"),
    "NvFp4": lambda _: _quantized(fp8lab.NvFp4(with_rht=True), "columnwise"),
    "Profile": lambda _: [fp8lab.Profile(rounding="upward"), *fp8lab.profiles()],
    "Reduction": lambda _: fp8lab.Reduction("sequential", (1, 0), True),
    "ShapeFit": lambda _: fp8lab.ShapeFit("fprop", "x", "tokens", 8, 1, "module", "transformer_engine", "here", 8, 8, 8, "it fits"),
    "TensorParallel": lambda _: fp8lab.TensorParallel("column", 2, True),
    "Quantized": lambda _: _quantized("te_nvfp4"),
    "Quantized.from_arrays": lambda _, q=_quantized("torchao_nvfp4"): [
        fp8lab.Quantized.from_arrays(q.codes, q.scale_codes, "torchao_nvfp4", tensor_scale_inv=TENSOR_SCALE_INV),
        fp8lab.dequantize(fp8lab.Quantized.from_arrays(q.codes, q.scale_codes, "torchao_nvfp4", amax=q.amax))],
    "Quantized.scale_inv_at": lambda _: [q.scale_inv_at(3, 17) for q in _all_recipes()],
    "Quantized.tile_scales_inv": lambda _: [(q.tile, q.scale_format, q.factor, q.tile_scales_inv()) for q in _all_recipes()],
    "Quantized.scales": lambda _: [_quantized("te_mxfp8").scales(layout) for layout in ("compact", "padded", "swizzled")],
    "QuantizedComparison": lambda _: fp8lab.compare(_quantized("te_mxfp8"), _quantized("ocp_mxfp8_e4m3")),
    "Recipe": lambda _: [one.recipe for one in fp8lab.recipes()] + [fp8lab.Recipe(least_amax=SCALE, given_scale=1.0)],
    "Recipe.from_json": lambda _: fp8lab.Recipe.from_json('{"least_amax": 0.1, "cast": "ieee"}'),
    "Recipe.to_json": lambda _: fp8lab.JustInTime(amax_epsilon=SCALE).to_json(),
    "Recipe.tile_scale": lambda _: [one.recipe.tile_scale(a, tensor_amax=3.3) for one in fp8lab.recipes() for a in (SCALE, 1e-40)],
    "Recipe.tile_shape": lambda _: [one.recipe.tile_shape((256, 512)) for one in fp8lab.recipes()],
    "TileScale": lambda _: fp8lab.TileScale(SCALE, 0.5, 0),
    "__version__": lambda _: fp8lab.__version__,
    "absolute_error": lambda _: [fp8lab.absolute_error(NEAR[:512], TINY), fp8lab.absolute_error(TINY_DOUBLES[:512], TINY)],
    "best_scale": lambda _: [fp8lab.best_scale("e2m1", one) for one in ("normal", "uniform")],
    "cast_to_representable": lambda _: [
        fp8lab.cast_to_representable(x, "e4m3", scale=scale)
        for x in (NEAR, TINY, DOUBLES, HALVES) for scale in (SCALE, 2.0**-120)],
    "chain_differences": lambda _: fp8lab.chain_differences(DOUBLES, "e4m3", via="float16"),
    "decode": lambda _: [fp8lab.decode(np.arange(2**16).astype(np.uint16), "bfloat16"), fp8lab.decode(CODES, "e8m0")],
    "delayed_versions": lambda _: fp8lab.delayed_versions(),
    "gpu.Device": lambda _: fp8lab.gpu.devices(),
    "gpu.Kernel": lambda _: fp8lab.gpu.kernels(),
    "gpu.Status": lambda _: fp8lab.gpu.status(),
    "gpu.QuantizedArrays": lambda _: fp8lab.gpu.quantize(MATRIX, "te_mxfp8").to_host(),
    "gpu.QuantizedArrays.to_host": lambda _: fp8lab.gpu.quantize(MATRIX, "te_nvfp4").to_host(),
    "gpu.amax": lambda _: [fp8lab.gpu.amax(TINY), fp8lab.gpu.amax(NEAR)],
    "gpu.cast": lambda _: [fp8lab.gpu.cast(x.reshape(16, -1), "e4m3", scale=SCALE).codes for x in (NEAR, TINY)],
    "gpu.dequantize": lambda _: fp8lab.gpu.dequantize(_quantized("te_nvfp4")),
    "gpu.device_count": lambda _: fp8lab.gpu.device_count(),
    "gpu.devices": lambda _: fp8lab.gpu.devices(),
    "gpu.kernels": lambda _: fp8lab.gpu.kernels(),
    "gpu.quantize": lambda _: [fp8lab.gpu.quantize(MATRIX, one).to_host() for one in ("te_mxfp8", "te_block_1x128", "te_nvfp4")],
    "gpu.cast_both": lambda _: [one.to_host() for one in fp8lab.gpu.cast_both(MATRIX, "e5m2", scale=SCALE)],
    "gpu.quantize_both": lambda _: [one.to_host() for one in fp8lab.gpu.quantize_both(MATRIX, "te_current_scaling")],
    "gpu.recipes": lambda _: fp8lab.gpu.recipes(),
    "gpu.gemm": lambda _: [
        fp8lab.gpu.gemm(GPU_CODES, GPU_CODES, kernel=one, **_tiles(one))
        for one in ("wgmma_promoted", "wgmma_scaled_1d1d", "mma_sync", "blackwell_f8f6f4")
    ] + [fp8lab.gpu.gemm(*[_quantized(one)] * 2, kernel=kernel) for one, kernel in (
        ("te_nvfp4", "blackwell_mxf4nvf4"), ("te_mxfp8", "blackwell_mxf8f6f4"))],
    "gpu.update_scales": lambda _: _updated(),
    "gpu.status": lambda _: fp8lab.gpu.status(),
    "operators.Activation": lambda _: fp8lab.operators.activations(),
    "operators.Exactness": lambda _: fp8lab.operators.exactness(),
    "operators.RoutedTokens": lambda _: [fp8lab.operators.moe_topk(x.reshape(16, -1), 2) for x in (NEAR, TINY)],
    "operators.activation": lambda _: [
        fp8lab.operators.activation(row.name, x.reshape(16, -1)) for row in fp8lab.operators.activations() for x in (NEAR, TINY)],
    "operators.activation_backward": lambda _: [
        fp8lab.operators.activation_backward("gelu", x.reshape(16, -1), x.reshape(16, -1), bias_gradient=True) for x in (NEAR, TINY)],
    "operators.elementary": lambda _: [
        fp8lab.operators.elementary(name, x) for name in ("exp", "exp2", "tanh", "log", "log2", "rsqrt", "sin", "cos") for x in (NEAR, TINY)],
    "special_function": lambda _: [
        fp8lab.special_function(name, x, ftz=ftz)
        for name in fp8lab.special_functions() for x in (NEAR, TINY) for ftz in ((None,) if name == "tanh" else (False, True))],
    "special_functions": lambda _: fp8lab.special_functions(),
    "device_function": lambda _: [
        fp8lab.device_function(name, x, x[::-1].copy() if name in ("x / y", "__fdividef", "__fdiv_rn") else None, ftz=ftz, units=units)
        for name in fp8lab.device_functions() for x in (NEAR, TINY) for ftz in (False, True) for units in fp8lab.special_units()],
    "device_functions": lambda _: fp8lab.device_functions(),
    "special_types": lambda _: fp8lab.special_types(),
    "special_units": lambda _: fp8lab.special_units(),
    "device_function_bounds": lambda _: [
        _bounds(fp8lab.device_function_bounds(name, x)) for name in ("expf", "tanhf", "erff") for x in (NEAR, TINY)],
    "Bounds": lambda _: _bounds(fp8lab.device_function_bounds("erff", NEAR)),
    "Bounds.undecided_codes": lambda _: [
        fp8lab.operators.activation_bounds("silu", x.reshape(16, -1)).undecided_codes(scale=SCALE) for x in (NEAR, TINY)],
    "operators.activation_bounds": lambda _: [
        _bounds(fp8lab.operators.activation_bounds(name, x.reshape(16, -1))) for name in ("gelu", "swiglu") for x in (NEAR, TINY)],
    "operators.activation_backward_bounds": lambda _: [
        _bounds(fp8lab.operators.activation_backward_bounds("gelu", x.reshape(16, -1), x.reshape(16, -1))) for x in (NEAR, TINY)],
    "operators.layernorm_bounds": lambda _: [
        _bounds(fp8lab.operators.layernorm_bounds(x.reshape(16, -1), *_row_of(x), eps=1e-40)) for x in (NEAR, TINY)],
    "operators.rmsnorm_bounds": lambda _: [
        _bounds(fp8lab.operators.rmsnorm_bounds(x.reshape(16, -1), _row_of(x)[0], eps=1e-40)) for x in (NEAR, TINY)],
    "operators.layernorm": lambda _: [fp8lab.operators.layernorm(x.reshape(16, -1), *_row_of(x), eps=1e-40) for x in (NEAR, TINY)],
    "operators.rmsnorm": lambda _: [fp8lab.operators.rmsnorm(x.reshape(16, -1), _row_of(x)[0], eps=1e-40) for x in (NEAR, TINY)],
    "operators.softmax": lambda _: [fp8lab.operators.softmax(x.reshape(16, -1), scale=SCALE) for x in (NEAR, TINY)],
    "operators.rope": lambda _: fp8lab.operators.rope(NEAR[:512].reshape(8, 1, 4, 16), NEAR[:128].reshape(8, 16)),
    "operators.scale_of_amax": lambda _: [fp8lab.operators.scale_of_amax(a, eps=e) for a in (SCALE, 1e-40) for e in (0.0, 2e-40)],
    "operators.nvfp4_global_scale": lambda _: [fp8lab.operators.nvfp4_global_scale(a) for a in (SCALE, 1e-40, 3e38)],
    "operators.nvfp4_tile_scales": lambda _: [fp8lab.operators.nvfp4_tile_scales(x, a) for x in (NEAR, TINY) for a in (SCALE, 3e38)],
    "operators.nvfp4_shard_codes": lambda _: fp8lab.operators.nvfp4_shard_codes(
        NEAR[:512], fp8lab.operators.nvfp4_tile_scales(abs(NEAR[:2]).reshape(2, 1), SCALE), SCALE, columns=16),
    "operators.sgd_update": lambda _: _stepped(fp8lab.operators.sgd_update, count=3, lr=SCALE, momentum=SCALE),
    "operators.adam_update": lambda _: _stepped(fp8lab.operators.adam_update, lr=SCALE, step=3, weight_decay=SCALE),
    "operators.adam_update_fp8": lambda _: _stepped(
        fp8lab.operators.adam_update_fp8, np.zeros(128, np.uint8), lr=SCALE, step=3, scale=SCALE),
    "operators.adam_update_remainder": lambda _: _remainder(),
    "hadamard_columns": lambda _: [fp8lab.hadamard_columns(NEAR.reshape(16, 128), rounds=rounds) for rounds in (False, True)],
    "dequantize": lambda _: [fp8lab.dequantize(_quantized(name)) for name in ("te_nvfp4", "te_block_1x128", "te_mxfp8")],
    "diagnose_gemm": lambda _: str(_diagnosed_gemm()),
    "distributions": lambda _: fp8lab.distributions(),
    "encode": lambda _: [
        fp8lab.encode(x, format, profile=profile, rounding=rounding)
        for x in (NEAR, TINY, ANY, TINY_DOUBLES, HALVES) for format in ("e5m2", "float16")
        for profile in ("cuda_satfinite", "ml_dtypes") for rounding in ("nearest_even", "upward")],
    "CastBounds": lambda _: fp8lab.cast_bounds("e4m3"),
    "OutcomeBounds": lambda _: fp8lab.cast_bounds("e5m2", rounding="upward").negative,
    "OutcomeCounts": lambda _: fp8lab.OutcomeCounts(1, 2, 3),
    "OutcomeCounts.merge": lambda _: _merged(fp8lab.OutcomeCounts(1, 2, 3), fp8lab.OutcomeCounts(3, 4, 5, 6, 7)),
    "cast_bounds": lambda _: [fp8lab.cast_bounds(one, rounding="upward") for one in fp8lab.formats()],
    "compare": lambda _: [fp8lab.compare(NEAR[:512], TINY), fp8lab.compare(CODES, CODES.T.copy(), format="e5m2")],
    "count_outcomes": lambda _: fp8lab.count_outcomes(fp8lab.cast_bounds("e4m3"), TINY_DOUBLES, DOUBLES, TINY_DOUBLES),
    "errors": lambda _: [fp8lab.errors(NEAR[:512], TINY), fp8lab.errors(TINY, TINY[::-1])],
    "exact_sqnr_db": lambda _: [fp8lab.exact_sqnr_db("e4m3", one, scale=SCALE) for one in ("normal", "laplace")],
    "experiments.Document": lambda _: experiments.Document(DOCUMENT),
    "experiments.Document.save": lambda directory: experiments.Document(DOCUMENT).save(directory),
    "experiments.Document.text": lambda _: experiments.Document(DOCUMENT).text(width=40, unicode=False),
    "report": _reported,
    "experiments.Document.plot": lambda _: _drawn(experiments.cast(size=10).plot),
    "experiments.Document.to_frame": lambda _: _frame(experiments.Document(DOCUMENT)),
    "experiments.Document.to_html": lambda _: _undated(experiments.Document(DOCUMENT).to_html()),
    "experiments.Document.to_json": lambda _: experiments.Document(DOCUMENT).to_json(),
    "experiments.doctor": _out(experiments.doctor, x=_stored(0.3), codes=_stored_codes()),
    "experiments.doctor_gemm": _out(experiments.doctor_gemm,
        a=_stored_gemm("a", CODES[:4]), b=_stored_gemm("b", CODES[:5]), product=_stored_gemm("product", GEMM_OUT),
        tensor_scale_a=SCALE, tensor_scale_b=3e-20),
    "experiments.cast": _out(
        experiments.cast, formats=["e2m1"], size=300, scales=[SCALE, 1e-3], amax=[3.3], exact=True, best_scale=True),
    "experiments.tensors": _out(experiments.tensors, **small_call("tensors")),
    "experiments.dequantize": _dequantized,
    "experiments.quantize": lambda _: [_quantized_model(one)(_) for one in ("modelopt_nvfp4", "ct_fp8_channel", "comfy_fp8")],
    "experiments.reencode": _reencoded,
    "check": lambda _: fp8lab.check(
        {"w": np.float32([[1, 0.75], [3, 0.125]])}, recipes=["modelopt_fp8", "compressed_tensors_channel"], min_sqnr=SCALE,
        activations={"w": np.float32([[0.3359375, 0.703125], [2.0**-100, 0.1015625]])}),
    "experiments.check": _out(
        experiments.check, rows=128, columns=256, recipes=["modelopt_fp8", "ocp_mxfp4", "modelopt_nvfp4"], min_sqnr=20),
    "experiments.delayed": _out(experiments.delayed, history=[4], margin=1),
    "experiments.dot": _out(experiments.dot, distribution_a="normal", values_b=[0.1, 1e-40, SCALE], promote_k=32),
    "experiments.double_rounding": _out(experiments.double_rounding, uniform=(0.1, 0.9), size=3000),
    "experiments.linear": _out(
        experiments.linear, tokens=32, in_features=32, out_features=32, steps=2, x_factor=SCALE,
        recipes=["te_delayed_hopper", "te_nvfp4_blackwell", "tf32_hopper"]),
    "experiments.primer": _out(experiments.primer, in_features=32, out_features=32, rows=32, scale_x=SCALE),
    "experiments.scaling": _out(
        experiments.scaling, steps=3, rows=32, columns=128, recipes=["te_mxfp8", "te_nvfp4", "te_block_1x128"]),
    "experiments.train": _out(
        experiments.train, sizes=[32, 32, 16], recipes=["te_delayed_hopper", "te_mxfp8_blackwell"], batch=32, steps=3),
    "experiments.transpose": _out(
        experiments.transpose, rows=128, columns=128, outlier_rows=(2, SCALE), recipes=["te_mxfp8", "te_block_1x128"]),
    "experiments.verify_tensor_cores": _out(experiments.verify_tensor_cores, models=["hopper_wgmma_fp8"], dots=200),
    "force_target": lambda _: fp8lab.force_target(""),
    "formats": lambda _: fp8lab.formats(),
    "gemm": lambda _, q=_quantized("te_mxfp8"): [
        fp8lab.gemm(CODES, CODES, model="hopper_wgmma_fp8", scale_a=SCALE, scale_b=3e-20, scale_out=1.1, bias=TINY[:64],
                    promote_k=32, c=MATRIX[:, :64].repeat(2, 0)),
        fp8lab.gemm(q.codes, q.codes, model="blackwell_mxf8", scale_a=q.scale_codes, scale_b=q.scale_codes),
        fp8lab.gemm(q, q, model="blackwell_mxf8", out_dtype="e5m2"),
        *_products(lambda model: fp8lab.gemm(CODES, CODES[:8], model=model))],
    "histogram": lambda _: [
        _histogram(), fp8lab.histogram(ANY), fp8lab.histogram(NEAR, "linear", low=-0.1, high=0.7, count=13),
        fp8lab.histogram(TINY, "code", format="e4m3"), fp8lab.histogram(TINY, cast_input=TINY)],
    "linear": lambda _: [
        *[fp8lab.linear(MATRIX, NEAR.reshape(16, 128), TINY[:16], recipe=one) for one in (LINEAR, "tf32_hopper", "exact")],
        fp8lab.linear(MATRIX, NEAR.reshape(16, 128), recipe=LINEAR_FP8, output_scale=SCALE),
        fp8lab.linear(MATRIX, NEAR.reshape(16, 128), TINY[:16], recipe=LINEAR, parallel=fp8lab.TensorParallel("row", 4))],
    "linear_dgrad": lambda _: [
        fp8lab.linear_dgrad(MATRIX, NEAR.reshape(128, 16), recipe=one) for one in (LINEAR, LINEAR_FP8, "tf32_hopper")],
    "gemm_departures": lambda _: [str(one) for one in fp8lab.gemm_departures()],
    "gemm_activation": lambda _: [
        fp8lab.gemm_activation(name, x) for name in ("none", "relu", "gelu") for x in (NEAR, TINY)],
    "gemm_recipes": lambda _: [str(one) for one in fp8lab.gemm_recipes()],
    "linear_recipes": lambda _: fp8lab.linear_recipes(),
    "linear_wgrad": lambda _: [
        fp8lab.linear_wgrad(MATRIX, MATRIX, recipe=one, main_grad=NEAR.repeat(8).reshape(128, 128))
        for one in ("te_mxfp8_blackwell", "te_delayed_hopper")],
    "mma": lambda _: _products(lambda model: fp8lab.mma(model.name, _of_k(model), _of_k(model))),
    "model_with": lambda _: fp8lab.model_with("hopper_wgmma_fp8", fraction_bits=20),
    "models": lambda _: fp8lab.models(),
    "normal_grid": lambda _: fp8lab.normal_grid(301),
    "StateEvent": lambda _: _steps(),
    "StateRules": lambda _: fp8lab.state_rules(),
    "reduce_and_update": lambda _: _reduced(),
    "state_rules": lambda _: fp8lab.state_rules(),
    "override_linear_precision": lambda _: fp8lab.override_linear_precision("te_delayed_hopper", "bf16_hopper", wgrad=True),
    "pack_pairs": lambda _: fp8lab.pack_pairs(CODES & 15),
    "pad_scales": lambda _: fp8lab.pad_scales(CODES),
    "philox4x32": lambda _: fp8lab.philox4x32([1, 2, 3, 4], [5, 6]),
    "profiles": lambda _: fp8lab.profiles(),
    "quantize": lambda _: _all_recipes(),
    "quantize_both": lambda _: fp8lab.quantize_both(MATRIX.repeat(8, 0), "te_block_1x128", input_type="bfloat16"),
    "recipes": lambda _: fp8lab.recipes(),
    "reduced_amax": lambda _: [fp8lab.reduced_amax(AMAXES), fp8lab.reduced_amax(TINY[1:])],
    "relative_error": lambda _: [fp8lab.relative_error(NEAR[:512], TINY), fp8lab.relative_error(TINY_DOUBLES[:512], NEAR[:512])],
    "roundings": lambda _: fp8lab.roundings(),
    "sample": lambda _: [fp8lab.sample(one, 300, seed=5) for one in fp8lab.distributions()],
    "shape_fits": lambda _: fp8lab.shape_fits("te_mxfp8_blackwell", 1000, 4096, 4096, parallel=fp8lab.TensorParallel("row", 3)),
    "swizzle_scales": lambda _: fp8lab.swizzle_scales(CODES),
    "takes": lambda _, q=_quantized("te_nvfp4"): [fp8lab.takes(model, q) for model in fp8lab.models()],
    "targets": lambda _: fp8lab.targets(),
    "torch_cpu_uniform": lambda _: fp8lab.torch_cpu_uniform((3, 5), seed=1),
    "torch_cuda_normal": lambda _: fp8lab.torch_cuda_normal(300, mean=SCALE, std=1 / 3, seed=1, sms=114),
    "torch_cuda_uniform": lambda _: [
        fp8lab.torch_cuda_uniform(300, low=-1 / 3, high=SCALE, dtype=dtype, seed=1, sms=114) for dtype in ("float32", "float16", "bfloat16")],
    "trace_dot": lambda _: [
        fp8lab.trace_dot(CODES[0], CODES[1], model="hopper_wgmma_fp8", c=c, got=TINY[3]) for c in (13.3125, TINY[0], NEAR[0])],
    "ulp_error": lambda _: [fp8lab.ulp_error(NEAR[:512], TINY, format=format) for format in ("float32", "e4m3")],
    "unpack_pairs": lambda _: fp8lab.unpack_pairs(CODES),
    "unpad_scales": lambda _: fp8lab.unpad_scales(fp8lab.pad_scales(CODES), CODES.shape),
    "unswizzle_scales": lambda _: fp8lab.unswizzle_scales(fp8lab.swizzle_scales(CODES), CODES.shape),
}  # fmt: skip


def _bounds(bounds):
    return bounds.low, bounds.high, bounds.decided


def _row_of(x):
    """A gamma and a beta for 16 rows of x."""
    columns = x.size // 16
    return x[:columns], x[columns : 2 * columns]


def _stepped(update, *before, count=4, **options):
    """The tensors that an update leaves, and its result; ``before`` are of other types and come in their places."""
    tensors = [np.abs(one[i * 128 : i * 128 + 128]).copy() for one in (NEAR, TINY) for i in range(4)]
    own = [one.copy() for one in before]
    results = [update(tensors[i], *own, *tensors[i + 1 : i + count], **options) for i in (0, 4)]
    return tensors, own, results


def _remainder():
    tensors = [np.abs(NEAR[i * 128 : i * 128 + 128]).copy() for i in range(3)]
    words = np.zeros(128, ml_dtypes.bfloat16), np.arange(128, dtype=np.int16)
    fp8lab.operators.adam_update_remainder(tensors[0], words[0], *tensors[1:], words[1], lr=SCALE, step=2)
    return tensors, words


def _merged(one, other):
    one.merge(other)
    return one


def public() -> dict[str, object]:
    """Everything that a user can call or set, by name; what is only read is read from every result."""
    found = {}
    for prefix, module in [
        ("", fp8lab),
        ("experiments.", experiments),
        ("gpu.", fp8lab.gpu),
        ("operators.", fp8lab.operators),
    ]:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value):
                continue
            found[prefix + name] = value
            if inspect.isclass(value):
                own = [one for one in value.__mro__ if one.__module__.split(".")[0] == "fp8lab"]
                for key, attribute in [item for one in own for item in vars(one).items()]:
                    callable_one = callable(attribute) or type(attribute).__name__ in ("instancemethod", "classmethod")
                    if not key.startswith("_") and (callable_one or getattr(attribute, "fset", None)):
                        if type(attribute).__name__ != "_tuplegetter":
                            found[f"{prefix}{name}.{key}"] = attribute
    return found


# What has no case above is called as the other tests call it.
for _name in PUBLIC:
    CASES.setdefault(f"experiments.{_name}", _out(getattr(experiments, _name), **small_call(_name)))
for _name in public():
    _function, _right = wrong_calls.CALLS.get(_name, (None, None))
    if _name not in CASES and _right is not None:
        CASES[_name] = lambda _, function=_function, right=_right: function(**right)


def test_every_public_name_has_a_case():
    assert sorted(public()) == sorted(CASES)


#: Calls that are refused with a number in the message.
REFUSED = [
    lambda: fp8lab.GivenScale(scale=-1 / 3),
    lambda: fp8lab.GivenScale(scale=1e-40),
    lambda: fp8lab.cast_to_representable(NEAR, "e4m3", scale=-1 / 3),
    lambda: fp8lab.exact_sqnr_db("e4m3", "normal", scale=-1 / 3),
    lambda: fp8lab.gemm(CODES, CODES, model="exact", scale_a=float("inf")),
    lambda: fp8lab.histogram(NEAR, "linear", low=1 / 3, high=-1 / 3),
    lambda: _history(lambda h: h.record_amax(-1 / 3)),
    lambda: _replayed("te_current", lambda h: -float(h[0]) - 1e300),
    lambda: fp8lab.trace_dot(CODES[0], CODES[1], model="hopper_wgmma_fp8", c=1 / 3),
    lambda: experiments.cast(size=10, scales=[-1 / 3]),
    lambda: experiments.primer(scale_x=-1 / 3),
    lambda: experiments.transpose(outlier_rows=(1, float("inf"))),
    lambda: experiments.double_rounding(low=1.5, high=1 / 3),
]


def _refused(call) -> bytes:
    try:
        return b"not refused: " + written(call())
    except (ValueError, TypeError, RuntimeError) as error:
        return written(f"{type(error).__name__}: {error}")


def results(directory: pathlib.Path, without: tuple[str, ...] = (), every: int = 1) -> dict[str, bytes]:
    """Of every call its bytes, or of one in ``every``; the files are in ``directory``. After each, the environment is as
    before."""
    calls = {name: (lambda case=case, name=name: written(case(directory / name))) for name, case in CASES.items()}
    calls |= {f"refused {i}": (lambda call=call: _refused(call)) for i, call in enumerate(REFUSED)}
    for name, value in public().items():
        if inspect.isfunction(value) and "." not in name.removeprefix("experiments.").removeprefix("gpu."):
            calls[f"{name} of nothing"] = lambda value=value: _refused(lambda: value(*[object()] * 9))
    found = {}
    for name, call in sampled(calls.items(), every):
        if name in without:
            continue
        before = control(), locale.localeconv()["decimal_point"]
        found[name] = call()
        assert (control(), locale.localeconv()["decimal_point"]) == before, f"{name} changes the environment"
    return found


#: An ordinary run takes one call of so many.
EVERY = 6


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
    """By the default environment, which refuses what it should."""
    directory = tmp_path_factory.mktemp("expected")
    found = results(directory, every=EVERY)
    assert not [value for name, value in found.items() if b"not refused" in value]
    return found, {path.name: contents(path) for path in directory.iterdir()}


# 2. Hostile environments.


@pytest.fixture(scope="session")
def comma(tmp_path_factory):
    """The name of a locale with a decimal comma: one that is installed, or made here."""
    before, path = locale.setlocale(locale.LC_ALL), os.environ.get("LOCPATH")
    made = tmp_path_factory.mktemp("locales")
    if shutil.which("localedef"):
        subprocess.run(["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(made / "made_here")], capture_output=True)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "made_here"):
        with contextlib.suppress(locale.Error):
            if name == "made_here":
                os.environ["LOCPATH"] = str(made)  # which glibc reads again for every setlocale
            locale.setlocale(locale.LC_ALL, name)
            assert locale.localeconv()["decimal_point"] == ","
            locale.setlocale(locale.LC_ALL, before)
            yield name
            break
    else:
        pytest.skip("no locale with a decimal comma here, and localedef cannot make one")
    os.environ.pop("LOCPATH", None)
    if path is not None:
        os.environ["LOCPATH"] = path


ENVIRONMENTS = {
    "upward": (UPWARD,),
    "downward": (DOWNWARD,),
    "toward zero": (TOWARD_ZERO,),
    "flush": (FLUSH,),
    "comma": ("comma",),
    "all": (UPWARD, FLUSH, "comma"),
    "all in a new thread": (UPWARD, FLUSH, "comma"),
}
if not EXHAUSTIVE:  # all at once
    ENVIRONMENTS = {name: ENVIRONMENTS[name] for name in ("all in a new thread",)}


@pytest.mark.skipif(
    platform.machine() not in MACHINES or sys.platform != "linux", reason="how to flush here is not known"
)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_environment_changes_a_byte(name, expected, tmp_path, request):
    settings = ENVIRONMENTS[name]

    def run():
        with Floats(*settings):
            return results(tmp_path, every=EVERY)

    before = locale.setlocale(locale.LC_ALL)
    if "comma" in settings:
        locale.setlocale(locale.LC_ALL, request.getfixturevalue("comma"))
    try:
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(run).result() if "thread" in name else run()
    finally:
        locale.setlocale(locale.LC_ALL, before)
    wrong = [call for call in found if found[call] != expected[0][call]]
    wrong += [f"the files of {path.name}" for path in tmp_path.iterdir() if contents(path) != expected[1][path.name]]
    assert wrong == [], f"{len(wrong)} of {len(found)} depend on the environment"


def test_calls_from_several_threads_at_once_give_the_same_bytes(expected, tmp_path):
    directories = [tmp_path / name for name in "ab"]
    for directory in directories:
        directory.mkdir()
    with ThreadPoolExecutor(len(directories)) as threads:
        # The tasks of fp8lab gpu are processes, which must not be made while other threads hold what they need.
        for found in threads.map(
            lambda directory: results(directory, without=("experiments.gpu",), every=EVERY), directories
        ):
            assert [call for call in found if found[call] != expected[0][call]] == []
