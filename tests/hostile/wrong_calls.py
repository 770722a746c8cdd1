# SPDX-License-Identifier: Apache-2.0
"""A right call of every public function and method, and calls of them with hostile arguments: what comes is a result, or
an error that names the argument.

python tests/hostile/wrong_calls.py [CALLS [SEED]]     seeded calls with one to three wrong arguments each; 50,000 if
left out
"""

import collections
import inspect
import os
import pathlib
import random
import sys
import tempfile

import fp8lab
import ml_dtypes
import numpy as np
from fp8lab import experiments

sys.path.append(str(pathlib.Path(__file__).parents[1] / "experiments" / "kit"))
from small_calls import PUBLIC, small_call  # noqa: E402

X = np.linspace(-3, 3, 64, dtype=np.float32).reshape(2, 32)
WIDE = np.ones((32, 32), np.float32)
#: Of 32 tokens, of which the even ones go to the first of two experts and the others to the second.
MASK_MAP = np.array([[i % 2 * 16 + i // 2, 0, i % 2, 0, 1] for i in range(32)], np.int32)
CODES = np.full((2, 32), 0x38, np.uint8)
DOUBLES = np.array([1.0, -2.0])
WORDS = np.array([[0x21, 0x43]], np.uint8)
SCRATCH = tempfile.mkdtemp()
CODE_FILE = os.path.join(SCRATCH, "codes.npy")
np.save(CODE_FILE, CODES)
RESULTS = os.path.join(SCRATCH, "results")
experiments.cast(size=10, out=RESULTS)


class Raises:
    """An object of which every question is answered by an exception."""

    def _raise(self, *_args, **_named):
        raise RuntimeError("the user's own \x1b[31m exception\n" + "y" * 1000)

    __array__ = __index__ = __float__ = __int__ = __str__ = __repr__ = __len__ = __iter__ = __fspath__ = __bool__ = (
        _raise
    )
    __getitem__ = __call__ = _raise


def torch_values():
    try:
        import torch
    except ImportError:
        return []
    return [
        lambda: torch.ones(2, 32, device="meta"),
        lambda: torch.ones(2, 32, requires_grad=True),
        lambda: torch.ones(2, 32).to_sparse(),
        lambda: torch.ones(2, 32, dtype=torch.complex64),
        lambda: torch.tensor(1.0),
        lambda: torch.ones(2, 32).t(),
    ]


def read_only():
    array = np.zeros((2, 32), np.uint8)
    array.flags.writeable = False
    return array


#: What arguments are replaced by. Those that are made anew may be used up or written to.
HOSTILE = [
    lambda: None,
    lambda: True,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: -1,
    lambda: 0,
    lambda: 1.5,
    lambda: 2**70,
    lambda: 10**5000,
    lambda: -(2**63) - 1,
    lambda: complex(1, 2),
    lambda: "",
    lambda: "x" * 10**6,
    lambda: "e4m3\n",
    lambda: "\x1b[31m",
    lambda: "\ud800",
    lambda: "no_such_name",
    lambda: b"\xff",
    lambda: b"\0",
    lambda: object(),
    lambda: Raises(),
    lambda: Raises,
    lambda: [],
    lambda: [[]],
    lambda: (),
    lambda: [[1.0], [2.0, 3.0]],
    lambda: [None, "x", 2**70],
    lambda: ["x" * 10**6] * 3,
    lambda: {},
    lambda: {"x": 1},
    lambda: {1: X, "y": 2},
    lambda: (i for i in range(3)),
    lambda: lambda *a, **k: "x",
    lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    lambda: np.zeros(3, [("a", "f4"), ("b", "i8")]),
    lambda: np.array(["a" * 1000, "b"]),
    lambda: np.array([object(), None]),
    lambda: np.zeros((2, 32), ">f4"),
    lambda: np.zeros((2, 32), "datetime64[s]"),
    lambda: np.zeros((2, 32), np.complex128),
    lambda: np.zeros((2, 32), np.int64),
    lambda: np.zeros((3, 5, 7), np.float32),
    lambda: np.zeros((0, 32), np.float32),
    lambda: np.zeros((1,) * 30, np.float32),
    lambda: np.float32(1),
    lambda: np.zeros((), np.uint8),
    lambda: read_only(),
    lambda: np.zeros((2, 64), np.uint8)[:, ::2],
    lambda: np.broadcast_to(np.float32(1), (2**30, 2**30)),
    lambda: np.longdouble(1),
    lambda: fp8lab.formats()[0],
    lambda: fp8lab.profiles()[0],
    lambda: fp8lab.models()[0],
    lambda: fp8lab.recipes()[0],
    lambda: fp8lab.Delayed(),
    *torch_values(),
]


def called_backward(**arguments):
    state = fp8lab.Fp8State()
    return state.backward(state.forward(0, WIDE, WIDE), **arguments)


def grad_setter(grad_enabled):
    fp8lab.Fp8State().grad_enabled = grad_enabled


def history():
    return fp8lab.AmaxHistory(fp8lab.Delayed(amax_history_len=4))


def method(make, name):
    """A method of what make() gives, as a function of its arguments."""

    def call(*args, **named):
        return getattr(make(), name)(*args, **named)

    call.__signature__ = inspect.Signature()
    return call


def setter(name):
    def call(**named):
        setattr(history(), name, named[name])

    return call


def quantized():
    return fp8lab.quantize(WIDE, "te_mxfp8")


def files(*shape):
    path = os.path.join(SCRATCH, "x".join(map(str, shape)) + ".npy")
    np.save(path, np.ones(shape, np.float32))
    return path


STOCHASTIC = fp8lab.LinearRecipe(*[fp8lab.LinearGemm("exact", fp8lab.NvFp4(stochastic_rounding=True), "te_nvfp4")] * 3)
TINY = {"rows": 32, "columns": 32, "steps": 2}
#: Functions with arguments that are right, all that are worth replacing; those of a signature are added. An experiment has
#: the call that it registers, and others where other arguments go together.
CALLS = {
    **{f"experiments.{name}": (getattr(experiments, name), small_call(name)) for name in PUBLIC},
    "encode": (fp8lab.encode, {"x": X, "format": "e4m3"}),
    "encode, stochastic": (
        fp8lab.encode,
        {"x": X, "format": "e4m3", "rounding": "stochastic", "random_bits": np.zeros(64, np.uint8), "random_count": 8},
    ),
    "encode by way of": (fp8lab.encode, {"x": X, "format": "e4m3", "via": "float16"}),
    "decode": (fp8lab.decode, {"codes": CODES}),
    "explain": (fp8lab.explain, {"what": "e4m3", "code": 0x2A}),
    "report": (fp8lab.report, {"directory": RESULTS, "html": os.path.join(SCRATCH, "page.html")}),
    "cast_to_representable": (fp8lab.cast_to_representable, {"x": X, "format": "e4m3"}),
    "chain_differences": (fp8lab.chain_differences, {"x": X, "format": "e4m3", "via": "float16"}),
    "pack_pairs": (fp8lab.pack_pairs, {"codes": WORDS & 15}),
    "unpack_pairs": (fp8lab.unpack_pairs, {"packed": WORDS}),
    "formats": (fp8lab.formats, {}),
    "profiles": (fp8lab.profiles, {}),
    "roundings": (fp8lab.roundings, {}),
    "models": (fp8lab.models, {}),
    "recipes": (fp8lab.recipes, {}),
    "distributions": (fp8lab.distributions, {}),
    "delayed_versions": (fp8lab.delayed_versions, {}),
    "targets": (fp8lab.targets, {}),
    "force_target": (fp8lab.force_target, {"name": "scalar"}),
    "Format": (
        fp8lab.Format,
        {"exponent_bits": 4, "mantissa_bits": 3, "bias": 7, "is_signed": True, "has_subnormals": True, "specials": "ieee", "name": "own"},
    ),
    "Profile": (
        fp8lab.Profile,
        {"name": "own", "rounding": "nearest_even", "overflow": "saturate", "infinity": "saturate", "nan": "largest",
         "nan_of_double": "largest", "zero": "nan", "smallest": "zero", "negative": "nan"},
    ),
    "Histogram": (fp8lab.Histogram, {"kind": "log", "low": 0.5, "high": 1.0, "count": 3, "format": fp8lab.formats()[0]}),
    "Histogram.merge": (method(lambda: fp8lab.histogram(DOUBLES), "merge"), {"other": fp8lab.histogram(DOUBLES)}),
    "ErrorTotals": (fp8lab.ErrorTotals, {}),
    "ErrorTotals.merge": (method(lambda: fp8lab.errors(DOUBLES, DOUBLES), "merge"), {"other": fp8lab.errors(DOUBLES, DOUBLES)}),
    "MmaModel": (fp8lab.MmaModel, {}),
    "Distribution": (fp8lab.Distribution, {}),
    "DelayedVersion": (fp8lab.DelayedVersion, {}),
    "absolute_error": (fp8lab.absolute_error, {"actual": DOUBLES, "reference": DOUBLES}),
    "relative_error": (fp8lab.relative_error, {"actual": DOUBLES, "reference": DOUBLES}),
    "ulp_error": (fp8lab.ulp_error, {"actual": DOUBLES, "reference": DOUBLES}),
    "CastBounds": (fp8lab.CastBounds, None),
    "OutcomeBounds": (fp8lab.OutcomeBounds, None),
    "OutcomeCounts": (fp8lab.OutcomeCounts, None),
    "OutcomeCounts.merge": (method(fp8lab.OutcomeCounts, "merge"), {"other": fp8lab.OutcomeCounts()}),
    "cast_bounds": (fp8lab.cast_bounds, {"format": "e5m2", "rounding": "upward"}),
    "count_outcomes": (
        fp8lab.count_outcomes,
        {"bounds": fp8lab.cast_bounds("e4m3"), "x": DOUBLES, "scaled": DOUBLES, "result": DOUBLES, "scaled_range": "all"},
    ),
    "errors": (fp8lab.errors, {"actual": DOUBLES, "reference": DOUBLES}),
    "histogram": (fp8lab.histogram, {"values": DOUBLES, "bins": "linear", "low": 0, "high": 1}),
    "histogram of casts": (fp8lab.histogram, {"values": DOUBLES, "bins": "code", "cast_input": np.float32([1, 2])}),
    "histogram of binades": (fp8lab.histogram, {"values": DOUBLES, "bins": "binade", "low": -3, "high": 3}),
    "sample": (fp8lab.sample, {"distribution": "normal", "size": 3, "seed": 1}),
    "normal_grid": (fp8lab.normal_grid, {"size": 5}),
    "exact_sqnr_db": (fp8lab.exact_sqnr_db, {"format": "e2m1", "distribution": "normal"}),
    "best_scale": (fp8lab.best_scale, {"format": "e2m1", "distribution": "normal"}),
    "BestScale": (fp8lab.BestScale, None),
    "ChainDifferences": (fp8lab.ChainDifferences, None),
    "NamedRecipe": (fp8lab.NamedRecipe, None),
    "TileScale": (fp8lab.TileScale, None),
    "Recipe": (fp8lab.Recipe, {"tile_across": 1, "least_amax": 0.0, "format": "e4m3", "cast": "cuda_satfinite"}),
    "Recipe.tile_shape": (method(lambda: fp8lab.MxBlock(), "tile_shape"), {"shape": (32, 32)}),
    "Recipe.tile_scale": (method(lambda: fp8lab.MxBlock(), "tile_scale"), {"amax": 1.0, "tensor_amax": 1.0}),
    "philox4x32": (fp8lab.philox4x32, {"counter": (1, 2, 3, 4), "key": (1, 2)}),
    "torch_cpu_uniform": (fp8lab.torch_cpu_uniform, {"shape": (2, 3), "seed": 1}),
    "torch_cuda_uniform": (fp8lab.torch_cuda_uniform, {"shape": 3, "seed": 1, "low": -1.0, "high": 2.0}),
    "torch_cuda_normal": (fp8lab.torch_cuda_normal, {"shape": (2, 3), "seed": 1}),
    "GivenScale": (fp8lab.GivenScale, {}),
    "JustInTime": (fp8lab.JustInTime, {}),
    "MxBlock": (fp8lab.MxBlock, {}),
    "Block": (fp8lab.Block, {}),
    "NvFp4": (fp8lab.NvFp4, {}),
    "Delayed": (fp8lab.Delayed, {}),
    "AmaxHistory": (fp8lab.AmaxHistory, {"recipe": fp8lab.Delayed()}),
    "record_amax": (method(history, "record_amax"), {"amax": 1.0}),
    "resize_history": (method(history, "resize_history"), {"amax_history_len": 3}),
    "amaxes": (setter("amaxes"), {"amaxes": np.zeros(4, np.float32)}),
    "scale": (setter("scale"), {"scale": 1.0}),
    "scale_inv": (setter("scale_inv"), {"scale_inv": 1.0}),
    "position": (setter("position"), {"position": 1}),
    "reduced_amax": (fp8lab.reduced_amax, {"of_ranks": np.float32([1, 2])}),
    "quantize": (fp8lab.quantize, {"x": WIDE, "recipe": "te_mxfp8"}),
    "quantize, stochastic": (
        fp8lab.quantize,
        {"x": WIDE, "recipe": fp8lab.NvFp4(stochastic_rounding=True), "random_bits": np.zeros(1024, np.uint8)},
    ),
    "quantize_both": (fp8lab.quantize_both, {"x": WIDE, "recipe": "te_current_scaling", "input_type": "bfloat16"}),
    "hadamard_columns": (fp8lab.hadamard_columns, {"x": WIDE}),
    "dequantize": (fp8lab.dequantize, {"q": quantized()}),
    "Quantized": (fp8lab.Quantized, None),
    "Quantized.scales": (method(quantized, "scales"), {"layout": "padded"}),
    "Quantized.from_arrays": (
        fp8lab.Quantized.from_arrays,
        {"codes": CODES, "scales": np.full((2, 1), 127, np.uint8), "recipe": "ocp_mxfp8_e4m3", "transposed": None, "amax": 1.0},
    ),
    "compare": (fp8lab.compare, {"a": CODES, "b": CODES + 1, "format": "e4m3", "input": X, "shown": 3, "threads": 2}),
    "compare, quantized": (fp8lab.compare, {"a": quantized(), "b": quantized()}),
    "diagnose": (
        fp8lab.diagnose,
        {"x": X, "codes": CODES, "scales": np.ones((2, 1), np.float32), "format": "e4m3", "tensor_scale": 2.0, "expected": "te_mxfp8", "shown": 3},
    ),
    "Diagnosis": (fp8lab.Diagnosis, None),
    "Probe": (fp8lab.Probe, None),
    "Discriminator": (fp8lab.Discriminator, None),
    "Explanation": (fp8lab.Explanation, None),
    "Comparison": (fp8lab.Comparison, None),
    "QuantizedComparison": (fp8lab.QuantizedComparison, None),
    "diagnose_gemm": (
        fp8lab.diagnose_gemm,
        {"a": CODES, "b": CODES, "out": np.zeros((2, 2), np.float32), "scale_a": 1.5, "scale_b": 2.0, "format_a": "e4m3", "format_b": "e5m2"},
    ),
    "diagnose_gemm, elements": (
        fp8lab.diagnose_gemm,
        {"a": CODES, "b": CODES, "out": np.zeros(1, np.float32), "places": [(0, 1)], "expected": {"model": "exact"}, "most_products": 1000},
    ),
    "GemmDeparture": (fp8lab.GemmDeparture, None),
    "GemmDiagnosis": (fp8lab.GemmDiagnosis, None),
    "GemmElement": (fp8lab.GemmElement, None),
    "GemmExplanation": (fp8lab.GemmExplanation, None),
    "GemmProbe": (fp8lab.GemmProbe, None),
    "GemmRecipe": (
        fp8lab.GemmRecipe,
        {"model": "hopper_wgmma_fp8", "promote_k": 128, "range_k": 256, "order": "pairwise", "k_order": (2, 1, 64), "cast": None},
    ),
    "NamedGemmRecipe": (fp8lab.NamedGemmRecipe, None),
    "gemm_departures": (fp8lab.gemm_departures, {}),
    "gemm_activation": (fp8lab.gemm_activation, {"name": "gelu", "x": X}),
    "gemm_recipes": (fp8lab.gemm_recipes, {}),
    "Mismatch": (fp8lab.Mismatch, None),
    "Distance": (fp8lab.Distance, None),
    "swizzle_scales": (fp8lab.swizzle_scales, {"scales": CODES}),
    "pad_scales": (fp8lab.pad_scales, {"scales": CODES}),
    "unswizzle_scales": (fp8lab.unswizzle_scales, {"swizzled": np.zeros(4096, np.uint8), "shape": (2, 32)}),
    "unpad_scales": (fp8lab.unpad_scales, {"padded": np.zeros((128, 32), np.uint8), "shape": (2, 32)}),
    "model_with": (fp8lab.model_with, {"model": "hopper_wgmma_fp8", "fraction_bits": 13}),
    "mma": (fp8lab.mma, {"model": "hopper_wgmma_fp8", "a": CODES, "b": CODES, "c": np.float32([1, 2])}),
    "mma, scaled": (
        fp8lab.mma,
        {"model": "blackwell_mxf8", "a": CODES, "b": CODES, "scale_a": np.full((2, 1), 127, np.uint8), "scale_b": np.full((2, 1), 127, np.uint8)},
    ),
    "gemm": (fp8lab.gemm, {"a": CODES, "b": CODES, "recipe": "te_hopper_wgrad", "model": "hopper_wgmma_fp8"}),
    "gemm, all of it": (
        fp8lab.gemm,
        {"a": CODES, "b": CODES, "model": "hopper_wgmma_fp8", "promote_k": 32, "split_k": [32], "split_order": [0], "c": np.zeros((2, 2), np.float32),
         "bias": np.float32([1, 2]), "out_dtype": "e4m3"},
    ),
    "gemm, scaled": (
        fp8lab.gemm,
        {"a": CODES, "b": CODES, "model": "hopper_wgmma_fp8", "scale_a": np.float32([[1], [1]]), "scale_b": np.float32([[1]]), "promote_k": None},
    ),
    "gemm, quantized": (fp8lab.gemm, {"a": quantized(), "b": quantized(), "model": "blackwell_mxf8"}),
    "linear": (fp8lab.linear, {"x": WIDE, "w": WIDE, "bias": WIDE[0], "recipe": "exact"}),
    "linear, split": (
        fp8lab.linear,
        {"x": WIDE, "w": WIDE, "bias": WIDE[0], "recipe": "exact", "parallel": fp8lab.TensorParallel("row", 2)},
    ),
    "linear_dgrad": (
        fp8lab.linear_dgrad,
        {"dy": WIDE, "w": WIDE, "recipe": STOCHASTIC, "random_bits": np.zeros(1024, np.uint8)},
    ),
    "linear_wgrad": (fp8lab.linear_wgrad, {"dy": WIDE, "x": WIDE, "recipe": "te_mxfp8_blackwell", "main_grad": np.zeros((32, 32), np.float32)}),
    "linear_recipes": (fp8lab.linear_recipes, {}),
    "override_linear_precision": (
        fp8lab.override_linear_precision,
        {"recipe": "te_delayed_hopper", "other": "exact", "fprop": True, "dgrad": True, "wgrad": True},
    ),
    "LinearGemm": (fp8lab.LinearGemm, {"model": "exact", "a": "te_mxfp8", "b": "te_mxfp8"}),
    "LinearRecipe": (fp8lab.LinearRecipe, dict.fromkeys(("fprop", "dgrad", "wgrad"), fp8lab.LinearGemm("exact"))),
    "NamedLinearRecipe": (fp8lab.NamedLinearRecipe, None),
    "shape_fits": (
        fp8lab.shape_fits,
        {"recipe": "te_mxfp8_blackwell", "tokens": 32, "in_features": 32, "out_features": 32, "parallel": fp8lab.TensorParallel("row", 2)},
    ),
    "ShapeFit": (fp8lab.ShapeFit, None),
    "Reduction": (fp8lab.Reduction, {"order": "ring", "ranks": (1, 0), "in_float32": True}),
    "TensorParallel": (fp8lab.TensorParallel, {"mode": "column", "ranks": 2, "sequence_parallel": True, "reduction": fp8lab.Reduction()}),
    "Fp8State": (fp8lab.Fp8State, {"layers": 2, "rules": "te_1_6", "ranks": 2, "high_precision": "exact", "trace": True}),
    "Fp8State.enter_autocast": (
        method(fp8lab.Fp8State, "enter_autocast"),
        {"recipe": "te_delayed_hopper", "delayed": fp8lab.Delayed(), "enabled": True, "group": "a"},
    ),
    "Fp8State.forward": (
        method(fp8lab.Fp8State, "forward"),
        {"layer": 0, "x": WIDE, "w": WIDE, "bias": WIDE[0], "is_first_microbatch": True, "training": True, "requires_grad": True,
         "recompute": "none"},
    ),
    "Fp8State.backward": (called_backward, {"dy": WIDE, "dx": True, "dw": True}),
    "Fp8State.write_weight": (
        method(fp8lab.Fp8State, "write_weight"),
        {"layer": 0, "w": WIDE, "recipe": "te_delayed_hopper", "delayed": fp8lab.Delayed()},
    ),
    "Fp8State.load_arrays": (method(fp8lab.Fp8State, "load_arrays"), {"arrays": {}, "delayed": fp8lab.Delayed()}),
    "Fp8State.grad_enabled": (grad_setter, {"grad_enabled": True}),
    "reduce_and_update": (fp8lab.reduce_and_update, {"states": [fp8lab.Fp8State()]}),
    "state_rules": (fp8lab.state_rules, {}),
    "StateRules": (fp8lab.StateRules, None),
    "StateEvent": (fp8lab.StateEvent, None),
    "LinearCall": (fp8lab.LinearCall, None),
    "LinearGrads": (fp8lab.LinearGrads, None),
    "LayerGrads": (fp8lab.LayerGrads, None),
    "Linear": (fp8lab.Linear, {"w": WIDE, "bias": WIDE[0], "recipe": "te_delayed_hopper", "delayed": fp8lab.Delayed(), "layer": 0}),
    "Linear.forward": (method(lambda: fp8lab.Linear(WIDE, recipe="exact"), "forward"), {"x": WIDE}),
    "linear_bias_gradient": (fp8lab.linear_bias_gradient, {"dy": WIDE}),
    "gpu.Device": (fp8lab.gpu.Device, None),
    "gpu.Kernel": (fp8lab.gpu.Kernel, None),
    "gpu.QuantizedArrays": (fp8lab.gpu.QuantizedArrays, None),
    "gpu.Status": (fp8lab.gpu.Status, None),
    "gpu.device_count": (fp8lab.gpu.device_count, {}),
    "gpu.devices": (fp8lab.gpu.devices, {}),
    "gpu.kernels": (fp8lab.gpu.kernels, {}),
    "gpu.recipes": (fp8lab.gpu.recipes, {}),
    "gpu.status": (fp8lab.gpu.status, {}),
    "gpu.amax": (fp8lab.gpu.amax, {"x": X}),
    "gpu.cast": (fp8lab.gpu.cast, {"x": X, "format": "e4m3", "scale": 2.0}),
    "gpu.dequantize": (fp8lab.gpu.dequantize, {"q": fp8lab.gpu.quantize(WIDE, "te_mxfp8")}),
    "gpu.quantize": (fp8lab.gpu.quantize, {"x": WIDE, "recipe": "te_mxfp8"}),
    "gpu.cast_both": (fp8lab.gpu.cast_both, {"x": WIDE, "format": "e4m3", "scale": 2.0}),
    "gpu.quantize_both": (fp8lab.gpu.quantize_both, {"x": WIDE, "recipe": "te_current_scaling"}),
    "gpu.gemm": (
        fp8lab.gpu.gemm,
        {"a": CODES, "b": CODES, "kernel": "mma_sync", "format_a": "e4m3", "scale_a": 2.0, "bias": np.ones(2, np.float32), "chip": "ada"},
    ),
    "gpu.update_scales": (
        fp8lab.gpu.update_scales,
        {"recipe": fp8lab.Delayed(amax_history_len=4), "amaxes": np.ones((4, 3), np.float32), "scale": np.ones(3, np.float32),
         "scale_inv": np.ones(3, np.float32)},
    ),
    "operators.Activation": (fp8lab.operators.Activation, None),
    "operators.activations": (fp8lab.operators.activations, {}),
    "operators.functions": (fp8lab.operators.functions, {}),
    "operators.elementary": (fp8lab.operators.elementary, {"name": "exp", "x": X}),
    "special_function": (fp8lab.special_function, {"name": "rsqrt", "x": X}),
    "special_functions": (fp8lab.special_functions, {}),
    "device_function": (fp8lab.device_function, {"name": "x / y", "x": X, "y": X, "fast_math": True, "units": "hopper"}),
    "device_functions": (fp8lab.device_functions, {}),
    "special_types": (fp8lab.special_types, {}),
    "special_units": (fp8lab.special_units, {}),
    "device_function_bounds": (fp8lab.device_function_bounds, {"name": "x / y", "x": X, "y": X}),
    "Bounds": (fp8lab.Bounds, None),
    "Bounds.undecided_codes": (
        fp8lab.device_function_bounds("expf", X).undecided_codes, {"format": "e4m3", "scale": 2.0},
    ),
    "operators.activation_bounds": (fp8lab.operators.activation_bounds, {"name": "clamped_swiglu", "x": X, "limit": 5.0}),
    "operators.activation_backward_bounds": (
        fp8lab.operators.activation_backward_bounds, {"name": "gelu", "grad": X, "x": X},
    ),
    "operators.layernorm_bounds": (fp8lab.operators.layernorm_bounds, {"x": WIDE, "gamma": WIDE[0], "beta": WIDE[0]}),
    "operators.rmsnorm_bounds": (fp8lab.operators.rmsnorm_bounds, {"x": WIDE, "gamma": WIDE[0]}),
    "operators.activation": (fp8lab.operators.activation, {"name": "clamped_swiglu", "x": X, "limit": 5.0, "alpha": 1.5, "offset": 0.5}),
    "operators.activation_backward": (
        fp8lab.operators.activation_backward, {"name": "gelu", "grad": X, "x": X, "bias_gradient": True},
    ),
    "operators.scaled_activation": (fp8lab.operators.scaled_activation, {"name": "swiglu", "x": WIDE, "scales": WIDE[0]}),
    "operators.scaled_activation_backward": (
        fp8lab.operators.scaled_activation_backward, {"name": "srelu", "grad": WIDE, "x": WIDE, "scales": WIDE[0]},
    ),
    "operators.layernorm": (fp8lab.operators.layernorm, {"x": WIDE, "gamma": WIDE[0], "beta": WIDE[0]}),
    "operators.rmsnorm": (fp8lab.operators.rmsnorm, {"x": WIDE, "gamma": WIDE[0], "zero_centered_gamma": True}),
    "operators.layernorm_backward": (
        fp8lab.operators.layernorm_backward, {"grad": WIDE, "x": WIDE, "mean": WIDE[0], "rsigma": WIDE[0], "gamma": WIDE[0]},
    ),
    "operators.rmsnorm_backward": (
        fp8lab.operators.rmsnorm_backward, {"grad": WIDE, "x": WIDE, "rsigma": WIDE[0], "gamma": WIDE[0], "add": WIDE},
    ),
    "operators.softmax": (
        fp8lab.operators.softmax, {"x": WIDE.reshape(1, 2, 16, 32), "scale": 0.5, "mask": np.zeros((1, 1, 16, 32), np.uint8)},
    ),
    "operators.softmax_backward": (fp8lab.operators.softmax_backward, {"grad": WIDE, "y": WIDE, "causal": "upper_triangular"}),
    "operators.Exactness": (fp8lab.operators.Exactness, None),
    "operators.exactness": (fp8lab.operators.exactness, {}),
    "operators.rope": (
        fp8lab.operators.rope, {"x": WIDE.reshape(8, 2, 64), "freqs": WIDE, "tensor_format": "thd", "cu_seqlens": [0, 3, 8], "start_positions": [0, 1]},
    ),
    "operators.rope_backward": (
        fp8lab.operators.rope_backward, {"grad": WIDE.reshape(4, 2, 2, 64), "freqs": WIDE, "cp_size": 2, "cp_rank": 1, "interleaved": True},
    ),
    "operators.cross_entropy": (fp8lab.operators.cross_entropy, {"x": WIDE, "targets": np.arange(32), "label_smoothing": 0.1}),
    "operators.cross_entropy_backward": (
        fp8lab.operators.cross_entropy_backward,
        {"grad": WIDE[0], "x": WIDE, "targets": np.arange(32), "largest": WIDE[0], "sum": WIDE[0]},
    ),
    "operators.moe_permutation_map": (fp8lab.operators.moe_permutation_map, {"experts": np.eye(4, 2, dtype=np.int64), "kept": 7}),
    "operators.moe_permute": (fp8lab.operators.moe_permute, {"x": WIDE, "map": np.arange(32, dtype=np.int32).reshape(1, 32)}),
    "operators.moe_unpermute": (
        fp8lab.operators.moe_unpermute,
        {"x": WIDE, "map": np.arange(32, dtype=np.int32).reshape(2, 16), "probabilities": np.ones((16, 2), np.float32)},
    ),
    "operators.moe_unpermute_backward": (
        fp8lab.operators.moe_unpermute_backward,
        {"grad": WIDE[:16], "x": WIDE, "map": np.arange(32, dtype=np.int32).reshape(2, 16), "probabilities": np.ones((16, 2), np.float32)},
    ),
    "operators.moe_mask_map": (fp8lab.operators.moe_mask_map, {"mask": np.eye(32, 3, dtype=np.uint8)}),
    "operators.moe_mask_permute": (
        fp8lab.operators.moe_mask_permute,
        {"x": WIDE, "map": MASK_MAP, "rows": 40, "probabilities": WIDE[:, :2], "pad_offsets": [0, 3]},
    ),
    "operators.moe_mask_permute_probabilities": (
        fp8lab.operators.moe_mask_permute_probabilities,
        {"probabilities": WIDE[:, :2], "map": MASK_MAP, "rows": 40, "pad_offsets": [0, 3]},
    ),
    "operators.moe_mask_unpermute": (
        fp8lab.operators.moe_mask_unpermute, {"x": WIDE, "map": MASK_MAP, "probabilities": WIDE[:, :2], "pad_offsets": [0, 0]},
    ),
    "operators.moe_mask_unpermute_probabilities": (
        fp8lab.operators.moe_mask_unpermute_probabilities, {"probabilities": WIDE[0], "map": MASK_MAP, "pad_offsets": [0, 0]},
    ),
    "operators.moe_mask_unpermute_backward": (
        fp8lab.operators.moe_mask_unpermute_backward,
        {"grad": WIDE, "x": WIDE, "map": MASK_MAP, "probabilities": WIDE[:, :2], "pad_offsets": [0, 0]},
    ),
    "operators.moe_chunk_map": (fp8lab.operators.moe_chunk_map, {"counts": [20, 0, 10], "order": [2, 1, 0], "tokens": 32}),
    "operators.moe_sort_chunks": (
        fp8lab.operators.moe_sort_chunks, {"x": WIDE, "map": np.arange(32, dtype=np.int32)[::-1].copy(), "back": True},
    ),
    "operators.add_group_bias": (
        fp8lab.operators.add_group_bias, {"x": WIDE, "bias": WIDE[:2], "offsets": [0, 20, 32], "scales": WIDE[:, 0].copy()},
    ),
    "operators.group_bias_gradient": (
        fp8lab.operators.group_bias_gradient, {"grad": WIDE, "offsets": [0, 20, 32], "dbias": np.ones((2, 32), np.float32)},
    ),
    "operators.scaled_group_bias_gradient": (
        fp8lab.operators.scaled_group_bias_gradient,
        {"grad": WIDE, "scales": WIDE[:, 0].copy(), "bias": WIDE[:2], "offsets": [0, 20, 32], "dscales": WIDE[:, 1].copy()},
    ),
    "operators.pad_rows": (fp8lab.operators.pad_rows, {"x": WIDE, "counts": [20, 12], "multiple": 16}),
    "operators.unpad_rows": (fp8lab.operators.unpad_rows, {"x": WIDE, "counts": [10, 12], "multiple": 16}),
    "operators.rope_qkv": (
        fp8lab.operators.rope_qkv,
        {"qkv": WIDE.reshape(4, 2, 4, 32), "widths": [16, 8, 8], "query_freqs": WIDE[:, :4], "key_freqs": WIDE[:, :4],
         "start_positions": [0, 1]},
    ),
    "operators.rope_qkv_backward": (
        fp8lab.operators.rope_qkv_backward,
        {"grads": (WIDE.reshape(4, 2, 16, 8), WIDE.reshape(4, 2, 16, 8), WIDE.reshape(4, 2, 16, 8)), "widths": [8, 8, 8],
         "query_freqs": WIDE[:, :4], "key_freqs": WIDE[:, :4]},
    ),
    "operators.dropout": (fp8lab.operators.dropout, {"x": WIDE, "probability": 0.3, "seed": 5, "offset": 8}),
    "operators.dropout_backward": (
        fp8lab.operators.dropout_backward, {"grad": WIDE, "mask": np.zeros(128, np.uint8), "probability": 0.3},
    ),
    "operators.RoutedTokens": (fp8lab.operators.RoutedTokens, None),
    "operators.moe_topk": (
        fp8lab.operators.moe_topk,
        {"logits": WIDE, "topk": 4, "score": "sigmoid", "bias": WIDE[0], "groups": 4, "group_topk": 2, "scaling": 2.0},
    ),
    "operators.moe_topk_backward": (
        fp8lab.operators.moe_topk_backward,
        {"grad": WIDE, "saved": WIDE, "topk": 2, "experts": np.ones((32, 2), np.int32), "softmax_first": True},
    ),
    "operators.moe_routing_map": (
        fp8lab.operators.moe_routing_map, {"experts": np.ones((32, 2), np.int32), "count": 5, "bits": True},
    ),
    "operators.moe_scores": (fp8lab.operators.moe_scores, {"logits": WIDE, "topk": 3, "score": "sqrtsoftplus"}),
    "operators.moe_scores_backward": (fp8lab.operators.moe_scores_backward, {"grad": WIDE, "saved": WIDE}),
    "operators.moe_aux_loss": (
        fp8lab.operators.moe_aux_loss,
        {"probabilities": WIDE, "tokens_per_expert": np.arange(32), "tokens": 32, "experts": 16, "topk": 2,
         "coefficient": 0.1},
    ),
    "operators.moe_aux_loss_backward": (
        fp8lab.operators.moe_aux_loss_backward,
        {"grad": 1.0, "factor": 0.5, "tokens_per_expert": np.arange(32), "rows": 4},
    ),
    "operators.moe_bias_histogram": (
        fp8lab.operators.moe_bias_histogram,
        {"scores": WIDE, "cutoff": WIDE[0], "histogram": np.zeros((32, 3), np.int32), "lower": -1.0, "upper": 1.0},
    ),
    "operators.scale_tensor": (fp8lab.operators.scale_tensor, {"x": X, "scale": 2.0}),
    "operators.l2norm": (fp8lab.operators.l2norm, {"tensors": [X, WIDE], "functions": "hopper"}),
    "operators.compiled_gelu": (fp8lab.operators.compiled_gelu, {"x": WIDE, "bias": WIDE[0], "out_dtype": "bfloat16"}),
    "operators.compiled_gelu_backward": (
        fp8lab.operators.compiled_gelu_backward, {"grad": WIDE, "x": WIDE, "bias": WIDE[0], "bias_gradient": True},
    ),
    "operators.has_one_shape_sums": (fp8lab.operators.has_one_shape_sums, {"rows": 64, "columns": 512}),
    "operators.torch_row_sums": (fp8lab.operators.torch_row_sums, {"x": WIDE, "offset": 1, "multiprocessors": 114}),
    "operators.cublaslt_row_sums": (fp8lab.operators.cublaslt_row_sums, {"x": WIDE}),
    "operators.cast_transpose_row_sums": (
        fp8lab.operators.cast_transpose_row_sums, {"x": WIDE, "item_size": 2, "has_activation": True, "multiprocessors": 114},
    ),
    "operators.cast_transpose_thread_rows": (
        fp8lab.operators.cast_transpose_thread_rows,
        {"rows": 64, "columns": 32, "item_size": 2, "has_activation": True, "multiprocessors": 114},
    ),
    "operators.nvfp4_global_scale": (fp8lab.operators.nvfp4_global_scale, {"amax": 3.0}),
    "operators.nvfp4_tile_scales": (fp8lab.operators.nvfp4_tile_scales, {"amaxes": X, "global_amax": 3.0}),
    "operators.nvfp4_shard_codes": (
        fp8lab.operators.nvfp4_shard_codes,
        {"shard": WIDE, "scales": np.ones((1 + WIDE.size // 512, 2), np.float32), "global_scale": 3.0, "columns": 32, "start": 8},
    ),
    "operators.scale_of_amax": (fp8lab.operators.scale_of_amax, {"amax": 3.0}),
    "operators.sgd_update": (
        fp8lab.operators.sgd_update,
        {"grad": WIDE, "param": np.ones_like(WIDE), "momentum_buffer": np.ones_like(WIDE), "model": np.ones(WIDE.shape, np.float16),
         "lr": 0.1, "momentum": 0.9},
    ),
    "operators.adam_update": (
        fp8lab.operators.adam_update,
        {"grad": WIDE, "param": np.ones_like(WIDE), "exp_avg": np.ones_like(WIDE), "exp_avg_sq": np.ones_like(WIDE),
         "master": np.ones_like(WIDE), "inverse_scale": 0.5, "lr": 0.1, "step": 2},
    ),
    "operators.adam_update_fp8": (
        fp8lab.operators.adam_update_fp8,
        {"grad": WIDE, "codes": np.zeros(WIDE.shape, np.uint8), "exp_avg": np.ones_like(WIDE), "exp_avg_sq": np.ones_like(WIDE),
         "master": np.ones_like(WIDE), "lr": 0.1, "step": 2, "scale": 2.0},
    ),
    "operators.adam_update_remainder": (
        fp8lab.operators.adam_update_remainder,
        {"grad": WIDE, "param": np.ones(WIDE.shape, ml_dtypes.bfloat16), "exp_avg": np.ones_like(WIDE),
         "exp_avg_sq": np.ones_like(WIDE), "remainder": np.zeros(WIDE.shape, np.int16), "lr": 0.1, "step": 2},
    ),
    "takes": (fp8lab.takes, {"model": "blackwell_mxf8", "q": quantized()}),
    "trace_dot": (fp8lab.trace_dot, {"a": CODES[0], "b": CODES[0], "model": "hopper_wgmma_fp8"}),
    "experiments.cast": (experiments.cast, {"x": X}),
    "experiments.cast, drawn": (experiments.cast, {"distribution": "normal", "size": 10, "seed": 3}),
    "check": (
        fp8lab.check,
        {"model": {"w": X}, "recipes": ["modelopt_fp8"], "activations": {"w": X}, "tensor_cores": ["hopper_wgmma_fp8"]},
    ),
    "experiments.check": (experiments.check, {"x": X, "recipes": ["modelopt_fp8"]}),
    "experiments.cast of a grid": (experiments.cast, {"grid": True, "size": 10}),
    "experiments.cast of a file": (experiments.cast, {"file": files(2, 32)}),
    "experiments.double_rounding, drawn": (experiments.double_rounding, {"uniform": (0.0, 1.0), "size": 10, "seed": 2}),
    "experiments.gpu": (experiments.gpu, {"host_team": True, "parts": ["casts"], "inputs": 64, "dots": 10, "seed": 1, "seconds": 10.0}),
    "experiments.linear": (experiments.linear, {"x": WIDE, "w": WIDE, "dy": WIDE, "bias": np.ones(32), "recipes": ["te_delayed_hopper"]}),
    "experiments.linear, drawn": (
        experiments.linear,
        {"tokens": 8, "in_features": 16, "out_features": 24, "steps": 2, "stream": "jump", "seed": 1, "recipes": ["bf16_hopper"]},
    ),
    "experiments.linear of files": (experiments.linear, {"x_file": files(32, 32), "w_file": [files(32, 32)], "margin": 1, "amax_history_len": 4}),
    "experiments.delayed": (experiments.delayed, {"trace": {"t": np.float32([1, 2, 3])}, "history": [4]}),
    "experiments.dot": (experiments.dot, {"a": "38", "b": "3c", "c": "0", "at": 0}),
    "experiments.dot of files": (experiments.dot, {"file_a": files(2, 32), "row": 1, "file_b": files(2, 32), "column": 0, "promote_k": 32}),
    "experiments.dot, drawn": (
        experiments.dot,
        {"distribution_a": "normal", "seed_a": 3, "values_b": [1.0, 2.0], "k": 2, "model": "ada_mma_fp8", "format_a": "e5m2"},
    ),
    "experiments.scaling": (experiments.scaling, {**TINY, "recipes": ["te_mxfp8"], "delayed": ["max:4"]}),
    "experiments.scaling of arrays": (experiments.scaling, {"x": [WIDE], "recipes": ["te_mxfp8"], "delayed": ["max:4"]}),
    "experiments.scaling of files": (experiments.scaling, {"file": [files(32, 32)], "recipes": ["te_mxfp8"], "delayed": ["max:4"]}),
    "experiments.doctor": (experiments.doctor, {"x": files(2, 32), "codes": CODE_FILE, "format": "e4m3", "expected": "te_current_scaling", "shown": 3}),
    "experiments.doctor_gemm": (
        experiments.doctor_gemm,
        {"a": CODE_FILE, "b": CODE_FILE, "product": files(2, 2), "format_a": "e4m3", "tensor_scale_a": 0.5, "scale_out": 2.0, "shown": 3, "expected": "exact"},
    ),
    "experiments.train": (experiments.train, {"sizes": [4, 16, 2], "recipes": ["bf16_hopper"], "batch": 2, "steps": 2}),
    "experiments.transpose": (experiments.transpose, {"x": WIDE, "recipes": ["te_mxfp8"]}),
    "experiments.transpose, drawn": (experiments.transpose, {"rows": 32, "columns": 32, "recipes": ["te_mxfp8"], "outlier_rows": (1, 2.0)}),
    "experiments.transpose of a file": (experiments.transpose, {"file": files(32, 32), "recipes": ["te_mxfp8"]}),
    "experiments.Document": (experiments.Document, {"text": experiments.harmonic(formats=["e5m2"]).to_json()}),
}  # fmt: skip
#: No experiment and no cast is asked for work that takes its time.
SKIPPED = {
    ("experiments.double_rounding", "low"),
    ("experiments.verify_tensor_cores", "models"),
    ("experiments.verify_casts", "all"),
    ("experiments.verify_casts", "formats"),
    ("experiments.verify_casts", "profiles"),
    ("experiments.gpu", "parts"),
    ("experiments.gpu", "inputs"),
    ("experiments.transpose", "recipes"),
    ("experiments.transpose, drawn", "recipes"),
    ("experiments.transpose of a file", "recipes"),
}


#: What an argument is called where another name says more.
ALSO_CALLED = {
    "values_b": ["a and b"],
    "random_bits": ["random words"],
    "name": ["target"],
    "kind": ["bins"],
    "format_a": ["format of a"],
    "format_b": ["format of b"],
    "product_format": ["format of product"],
    "recipe": ["stochastic_rounding"],
    "x": ["columns must be", "random words"],
    "raw": ["without a header"],
    "expected_profile": ["expected: float32"],
    **{
        name: [name.removeprefix("expected_")]
        for name in (
            "expected_promote_k",
            "expected_split_k",
            "expected_split_order",
            "expected_scale_order",
            "expected_c_enters",
            "expected_zero_rule",
        )
    },
    **dict.fromkeys(("x_tensor", "w_tensor", "tensor_a", "tensor_b"), ["the tensor of a .npy file"]),
}


def arguments_of(name):
    """The names of the arguments that are replaced."""
    function, right = CALLS[name]
    if right is None:
        return []
    names = list(right)
    if inspect.isfunction(function) or inspect.isclass(function) and "__signature__" not in vars(function):
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # of the extension module
            parameters = []
        names += [
            p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in names
        ]
    return [argument for argument in names if (name, argument) not in SKIPPED]


def names(text, argument):
    """Whether a message names an argument, also without underscores, or an entry of it, or what it is of."""
    words = [argument.removesuffix("s"), argument.replace("_", " ").removesuffix("s"), *ALSO_CALLED.get(argument, ())]
    return any(word in text for word in words)


def complaint(name, wrong):
    """Calls with the wrong arguments; what is bad about what comes, or nothing."""
    function, right = CALLS[name]
    if function.__module__ == experiments.__name__ and any(value is None for value in wrong.values()):
        return None  # stands for a default, which may take long
    os.chdir(SCRATCH)
    try:
        function(**{**right, **wrong})
    except (TypeError, ValueError, OSError, MemoryError) as error:
        text = str(error)
        if not text or len(text) > 300 or not text.isprintable():
            return f"{type(error).__name__} of {len(text)} characters: {text[:400]!r}"
        if not isinstance(error, (MemoryError, OSError)) and not any(names(text, argument) for argument in wrong):
            return f"{type(error).__name__} names no wrong argument: {text}"
        for foreign in (
            "incompatible",
            "truth value",
            "pybind",
            "_core.",
            "Invoked with",
            "inhomogeneous",
            "subscriptable",
        ):
            if foreign in text:
                return f"{type(error).__name__} in another's words: {text}"
    except Exception as error:  # every other one is wrong
        return f"{type(error).__name__}: {str(error)[:300]!r}"
    finally:
        fp8lab.force_target("")
    return None


def public_names():
    for prefix, module in (
        ("", fp8lab),
        ("experiments.", experiments),
        ("gpu.", fp8lab.gpu),
        ("operators.", fp8lab.operators),
    ):
        yield from (prefix + name for name in module.__all__ if callable(getattr(module, name)))


def main():
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    choose = random.Random(seed)
    names = [name for name in CALLS if arguments_of(name)]
    bad = collections.Counter()
    for i in range(calls):
        name = choose.choice(names)
        arguments = arguments_of(name)
        replaced = choose.sample(arguments, min(len(arguments), choose.choice([1, 1, 1, 2, 3])))
        kinds = [choose.randrange(len(HOSTILE)) for _ in replaced]
        found = complaint(name, {argument: HOSTILE[kind]() for argument, kind in zip(replaced, kinds)})
        if found:
            bad[f"{name}({', '.join(replaced)}): {found}"] += 1
            if sum(bad.values()) <= 50:
                print(f"call {i}: {name}({dict(zip(replaced, kinds))}): {found}", flush=True)
    print(f"{calls} calls, seed {seed}: {sum(bad.values())} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
