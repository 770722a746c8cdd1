# SPDX-License-Identifier: Apache-2.0
"""The sizes that systems refuse: what Python tells of them, and Transformer Engine's own checks, run.

te.Linear's check is Python; that of its GEMM is C++, compiled here with tensors that have sizes alone. releases.py says
where that code comes from.
"""

import ctypes
import dataclasses
import itertools
import shutil
import subprocess
from types import SimpleNamespace

import fp8lab
import numpy as np
import pytest
import repositories
from releases import module_of, source_of

SIZES = (1, 4, 8, 12, 16, 24, 32, 40, 48, 64, 100, 128)
TAGS = ("v2.9", "v2.18")
RECIPES = {one.name: one.recipe for one in fp8lab.linear_recipes()}


@pytest.mark.parametrize("tag", TAGS)
def test_te_linear_refuses_what_the_rules_of_its_module_do(tmp_path, tag):
    source = source_of(repositories.TRANSFORMER_ENGINE, tag, "transformer_engine/pytorch/utils.py")
    header = (
        "import math\nfrom typing import *\nfrom types import SimpleNamespace\ntorch = SimpleNamespace(Tensor=object)\n"
    )
    real = module_of(tmp_path, header, [(source, {"assert_dim_for_fp8_exec"})]).assert_dim_for_fp8_exec

    def takes(*shapes):
        try:
            real(*[SimpleNamespace(shape=shape, size=lambda shape=shape: shape, dim=lambda: 2) for shape in shapes])
        except (AssertionError, ValueError):
            return False
        return True

    for tokens, inputs, outputs in itertools.product(SIZES, repeat=3):
        for name in ("te_delayed_hopper", "te_mxfp8_blackwell"):
            fits = [fit.fits for fit in fp8lab.shape_fits(name, tokens, inputs, outputs) if fit.check == "module"]
            assert len(fits) == 4 and all(fits) == takes((tokens, inputs), (outputs, inputs))


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(
    ("name", "file"), [("te_mxfp8_blackwell", "mxfp8_tensor"), ("te_nvfp4_blackwell", "nvfp4_tensor")]
)
def test_quantizers_refuse_what_their_rules_do(tmp_path, tag, name, file):
    source = source_of(repositories.TRANSFORMER_ENGINE, tag, f"transformer_engine/pytorch/tensor/{file}.py")
    constants = "MXFP8_BLOCK_SCALING_SIZE, NVFP4_BLOCK_SCALING_SIZE = 32, 16"
    header = f"import math\nfrom types import SimpleNamespace\ntorch = SimpleNamespace(Tensor=object)\n{constants}\n"
    real = module_of(tmp_path, header, [(source, {"is_quantizable"})]).is_quantizable
    for tokens, inputs in itertools.product(SIZES, repeat=2):
        fits = [
            fit.fits
            for fit in fp8lab.shape_fits(name, tokens, inputs, 32)
            if (fit.check, fit.pass_name, fit.tensor) == ("quantizer", "fprop", "x")
        ]
        x = SimpleNamespace(shape=(tokens, inputs), ndim=2)
        assert len(fits) == 2 and all(fits) == real(SimpleNamespace(row_scaled_nvfp4=False), x)


STUBS = r"""
#include <cstddef>
#include <stdexcept>
#include <string>
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
static bool takes_all_layouts;
static int nvte_is_non_tn_fp8_gemm_supported() { return takes_all_layouts; }
namespace transformer_engine {
enum class DType { kFloat8E4M3, kFloat4E2M1, kNumTypes };
enum NVTEScalingMode { NVTE_DELAYED_TENSOR_SCALING, NVTE_BLOCK_SCALING_1D, NVTE_BLOCK_SCALING_2D, NVTE_MXFP8_1D_SCALING, NVTE_NVFP4_1D_SCALING };
struct Data { void* dptr = nullptr; DType dtype = DType::kFloat8E4M3; };
struct Tensor {
  NVTEScalingMode scaling_mode;
  Data data, columnwise_data, scale_inv, columnwise_scale_inv;
  bool has_data() const { return true; }
  bool has_columnwise_data() const { return true; }
};
inline bool is_fp8_dtype(DType type) { return type == DType::kFloat8E4M3; }
inline bool is_tensor_scaling(NVTEScalingMode mode) { return mode == NVTE_DELAYED_TENSOR_SCALING; }
inline bool is_nvfp4_scaling(NVTEScalingMode mode) { return mode == NVTE_NVFP4_1D_SCALING; }
inline bool is_nvfp_scaling(NVTEScalingMode mode) { return mode == NVTE_NVFP4_1D_SCALING; }
inline bool is_mxfp8_scaling(NVTEScalingMode mode) { return mode == NVTE_MXFP8_1D_SCALING; }
inline bool is_mxfp_scaling(NVTEScalingMode mode) { return mode == NVTE_MXFP8_1D_SCALING; }
inline std::string to_string(NVTEScalingMode mode) { return std::to_string(int(mode)); }
}  // namespace transformer_engine
#define NVTE_CHECK(condition, ...) do { if (!(condition)) throw std::runtime_error("refused"); } while (0)
#define NVTE_ERROR(...) throw std::runtime_error("error")
"""
CALL = r"""
extern "C" bool gemm_takes(bool all_layouts, int mode_a, int mode_b, bool trans_a, bool trans_b, int m, int n, int k) {
  takes_all_layouts = all_layouts;
  const transformer_engine::Tensor a{static_cast<transformer_engine::NVTEScalingMode>(mode_a)};
  const transformer_engine::Tensor b{static_cast<transformer_engine::NVTEScalingMode>(mode_b)};
  try {
    CanonicalizeGemmInput(a, trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b, trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k);
  } catch (const std::runtime_error&) {
    return false;
  }
  return true;
}
"""
TENSOR, BLOCK_1D, BLOCK_2D, MXFP8, NVFP4 = range(5)
# Name, whether all layouts are taken, and the scaling modes of x (and dy) and of w.
GEMMS = [
    ("te_delayed_hopper", False, TENSOR, TENSOR),
    ("te_current_scaling_hopper", False, TENSOR, TENSOR),
    ("te_delayed_blackwell", True, TENSOR, TENSOR),
    ("te_current_scaling_blackwell", True, TENSOR, TENSOR),
    ("te_block_hopper", False, BLOCK_1D, BLOCK_2D),
    ("te_mxfp8_blackwell", True, MXFP8, MXFP8),
]


def text_of(source: str, start: str) -> str:
    """From the line that begins with ``start`` to its closing brace."""
    first = source.index("\n" + start) + 1
    return source[first : source.index("\n}", first) + 2]


@pytest.fixture(scope="module", params=TAGS)
def real_gemm(request, tmp_path_factory):
    source = source_of(
        repositories.TRANSFORMER_ENGINE, request.param, "transformer_engine/common/gemm/cublaslt_gemm.cu"
    )
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    folder = tmp_path_factory.mktemp("gemm")
    parts = [text_of(source, "struct GemmParam") + ";", text_of(source, "GemmParam CanonicalizeGemmInput"), CALL]
    (folder / "gemm.cpp").write_text(STUBS + "\n\n".join(parts))
    command = ["g++", "-std=c++20", "-w", "-shared", "-fPIC", "-o", folder / "gemm.so", folder / "gemm.cpp"]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(folder / "gemm.so")).gemm_takes
    function.restype = ctypes.c_bool
    return function


@pytest.mark.parametrize(("name", "all_layouts", "mode", "mode_w"), GEMMS, ids=[gemm[0] for gemm in GEMMS])
def test_transformer_engines_gemm_refuses_what_the_rules_do(real_gemm, name, all_layouts, mode, mode_w):
    for tokens, inputs, outputs in itertools.product(SIZES, repeat=3):
        # m, n and k of cuBLAS: A is w, w and x, and the layouts are TN, NN and NT.
        real = {
            "fprop": real_gemm(all_layouts, mode_w, mode, True, False, outputs, tokens, inputs),
            "dgrad": real_gemm(all_layouts, mode_w, mode, False, False, inputs, tokens, outputs),
            "wgrad": real_gemm(all_layouts, mode, mode, False, True, inputs, outputs, tokens),
        }
        found = dict.fromkeys(real, True)
        for fit in fp8lab.shape_fits(name, tokens, inputs, outputs):
            if fit.check == "gemm":
                found[fit.pass_name] &= fit.fits
        assert found == real, (tokens, inputs, outputs)


def test_a_fit_says_in_words_what_it_says_in_numbers():
    fits = fp8lab.shape_fits("te_mxfp8_blackwell", 1024, 4096, 11008, parallel=fp8lab.TensorParallel("column", 16))
    broken = [fit for fit in fits if not fit.fits]
    assert str(broken[0]) == (
        "w: out (rows) must be a multiple of 512 (32 on each of 16 ranks), not 11008 (nearest: 10752 or 11264), "
        "for Transformer Engine's quantizer"
    )
    assert broken[0][:7] == ("fprop", "w", "out", 32, 16, "quantizer", "transformer_engine")
    assert [(fit.size, fit.below, fit.above) for fit in broken] == [(11008, 10752, 11264)] * 4
    assert "quantizer.cpp" in broken[0].source
    assert fp8lab.shape_fits("exact", 1, 3, 5) == []
    ada = dataclasses.replace(
        RECIPES["te_delayed_blackwell"],
        wgrad=dataclasses.replace(RECIPES["te_delayed_blackwell"].wgrad, model="ada_mma_fp8"),
    )
    assert [fit.pass_name for fit in fp8lab.shape_fits(ada, 40, 64, 64) if not fit.fits] == ["wgrad", "wgrad"]
    document = fp8lab.experiments.shapes(40, 64, 64, recipes={"on Ada": ada})
    assert not document.passed and list(document.tables["broken"]["operand"]) == ["x", "dy"]


def test_a_layer_refuses_the_same_sizes_unless_it_is_told_not_to():
    x, w, dy = np.ones((40, 32), np.float32), np.ones((48, 32), np.float32), np.ones((40, 48), np.float32)
    assert fp8lab.linear_dgrad(dy, w, recipe="te_delayed_hopper").shape == (40, 32)
    with pytest.raises(
        ValueError, match=r"^wgrad: x: tokens \(rows\) must be a multiple of 16, not 40 \(nearest: 32 or 48\)"
    ):
        fp8lab.linear_wgrad(dy, x, recipe="te_delayed_hopper")
    assert fp8lab.linear_wgrad(dy, x, recipe="te_delayed_hopper", check_shapes=False)[0, 0] == 40
    with pytest.raises(ValueError, match=r"^fprop: x: tokens \(rows\) must be a multiple of 8, not 39"):
        fp8lab.linear(x[:39], w, recipe="te_delayed_hopper")
    with pytest.raises(ValueError, match=r"^dgrad: dy: tokens \(rows\) must be a multiple of 32, not 40"):
        fp8lab.linear_dgrad(dy, w, recipe="te_mxfp8_blackwell")
    own = dataclasses.replace(RECIPES["te_delayed_hopper"], system="none")
    assert fp8lab.linear_wgrad(dy, x, recipe=own)[0, 0] == 40


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fp8lab.shape_fits("exact", 0, 1, 1), ValueError, r"tokens must be from 1 to 1099511627776, not 0"),
        (lambda: fp8lab.shape_fits("exact", 1, 1.5, 1), TypeError, "in_features must be an int"),
        (lambda: fp8lab.shape_fits("exact", 1, 1, 1, parallel="row"), TypeError, "parallel must be a TensorParallel"),
        (lambda: fp8lab.TensorParallel("rows"), ValueError, "known: none, column, row"),
        (lambda: fp8lab.TensorParallel("row", 0), ValueError, "ranks must be from 1 to"),
        (lambda: fp8lab.TensorParallel("none", 2), ValueError, "ranks must be 1 where the parallel mode is none, not 2"),
        (lambda: fp8lab.TensorParallel("none", 1, True), ValueError, "sequence_parallel is for the parallel modes column and row"),
        (lambda: dataclasses.replace(RECIPES["exact"], system="te"), ValueError, "unknown system 'te'"),
        (lambda: fp8lab.linear(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), recipe="exact", check_shapes=1), TypeError, "check_shapes must be a bool"),
    ],
)  # fmt: skip
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
