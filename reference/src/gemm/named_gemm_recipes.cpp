// SPDX-License-Identifier: Apache-2.0
// The table of real systems' GEMMs. A new one is an entry, with the package, version and file that it is of.
#include "fp8lab/reference/gemm/named_gemm_recipes.hpp"

#include <algorithm>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view te_gemm =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), transformer_engine/pytorch/module/linear.py and "
    "common/gemm/cublaslt_gemm.cu";
constexpr std::string_view te_block_gemm =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), common/gemm/cublaslt_gemm.cu; the order of the scales is that of "
    "cuBLASLt 13.1 on an H200";
constexpr std::string_view te_split_gemm =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), transformer_engine/pytorch/module/linear.py "
    "(use_split_accumulator);"
    " the interval is CUTLASS's, for that of cuBLAS is not documented";
constexpr std::string_view deepgemm_1d2d =
    "deepseek-ai/DeepGEMM (54e2261), deep_gemm/include/deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh";
constexpr std::string_view deepgemm_1d1d =
    "deepseek-ai/DeepGEMM (54e2261), deep_gemm/include/deep_gemm/impls/sm90_fp8_gemm_1d1d.cuh";
constexpr std::string_view torch_rowwise =
    "pytorch/pytorch, aten/src/ATen/native/cuda/RowwiseScaledMM.cu, use_fast_accum=True";
constexpr std::string_view cublas_bf16 = "cuBLAS in bfloat16, float32 accumulation";
constexpr ScaleOrder scales_first = ScaleOrder::scales_first;
constexpr ScaleOrder accumulator_first = ScaleOrder::accumulator_first;

/// y, or dx where no other is named: bfloat16. dw: binary32, as is the main_grad that it is added to.
std::vector<NamedGemmRecipe> all_gemm_recipes() {
  return {
      {"te_hopper_fprop", {.model = hopper_wgmma_fp8, .output = bfloat16}, te_gemm},
      {"te_hopper_dgrad", {.model = hopper_wgmma_fp8, .promote_k = 128, .output = bfloat16}, te_split_gemm},
      {"te_hopper_wgrad", {.model = hopper_wgmma_fp8, .promote_k = 128}, te_split_gemm},
      {"te_blackwell_fprop", {.model = blackwell_tcgen05_fp8, .output = bfloat16}, te_gemm},
      {"te_blackwell_wgrad", {.model = blackwell_tcgen05_fp8}, te_gemm},
      {"te_mxfp8_blackwell_fprop", {.model = blackwell_mxf8, .output = bfloat16}, te_gemm},
      {"te_mxfp8_blackwell_wgrad", {.model = blackwell_mxf8}, te_gemm},
      {"te_nvfp4_blackwell_fprop", {.model = blackwell_nvf4, .output = bfloat16}, te_gemm},
      {"te_nvfp4_blackwell_wgrad", {.model = blackwell_nvf4}, te_gemm},
      {"te_block_hopper_fprop",
       {.model = hopper_wgmma_fp8, .scale_order = scales_first, .output = bfloat16},
       te_block_gemm},
      {"te_block_hopper_wgrad", {.model = hopper_wgmma_fp8, .scale_order = accumulator_first}, te_block_gemm},
      {"deepgemm_1d2d_hopper",
       {.model = hopper_wgmma_fp8, .scale_order = scales_first, .output = bfloat16},
       deepgemm_1d2d},
      {"deepgemm_1d1d_hopper", {.model = hopper_wgmma_fp8, .scale_order = scales_first}, deepgemm_1d1d},
      {"torch_rowwise_hopper",
       {.model = hopper_wgmma_fp8, .scale_order = accumulator_first, .output = bfloat16},
       torch_rowwise},
      {"bf16_hopper", {.model = hopper_bf16, .output = bfloat16}, cublas_bf16},
      {"bf16_blackwell", {.model = blackwell_bf16, .output = bfloat16}, cublas_bf16},
      {"tf32_hopper", {.model = hopper_tf32}, te_gemm},
      {"fp32_cdna3",
       {.model = cdna3_fp32},
       "float32 on AMD's CDNA3: one fused multiply-add after the other, of ascending k"},
      {"exact", {.model = exact}, "the real product, rounded once"},
  };
}

}  // namespace

std::span<const NamedGemmRecipe> gemm_recipes() {
  static const std::vector<NamedGemmRecipe> all = all_gemm_recipes();
  return all;
}

const NamedGemmRecipe& find_gemm_recipe(std::string_view name) { return find_named(gemm_recipes(), "recipe", name); }

GemmRecipe find_gemm(std::string_view name) {
  std::vector<std::string_view> known;
  for (const NamedGemmRecipe& one : gemm_recipes()) {
    if (one.name == name) return one.recipe;
    known.push_back(one.name);
  }
  for (const MmaModel* model : {&cuda_cores, &cuda_cores_fma}) {
    if (model->name == name) return {.model = *model};
    known.push_back(model->name);
  }
  for (const MmaModel& model : models) {
    if (model.name == name) return {.model = model};
    if (std::ranges::find(known, model.name) == known.end()) known.push_back(model.name);  // exact is a recipe, too
  }
  refuse_name("GEMM recipe or model", name, known);
}

}  // namespace fp8lab
