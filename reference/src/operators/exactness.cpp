// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/exactness.hpp"

#include <algorithm>
#include <array>

namespace fp8lab {

namespace {

constexpr std::string_view ieee_steps = "each operation is rounded as IEEE 754 has it";
constexpr std::string_view exponential = "expf is libdevice's, here rounded correctly";
constexpr std::string_view tangent = "tanhf is libdevice's, here rounded correctly";
constexpr std::string_view tangent_and_exponential = "tanhf and expf are libdevice's, here rounded correctly";
constexpr std::string_view scale_sums = "the order of the sums that are the scales' gradients is the kernel's";
constexpr std::string_view exponential_and_sums =
    "expf is libdevice's, here rounded correctly; the order of the sums that are the scales' gradients is the kernel's";
constexpr std::string_view functions_and_sums =
    "tanhf and expf are libdevice's, here rounded correctly; the order of the sums that are the scales' gradients is "
    "the kernel's";
constexpr std::string_view norm_sums = "rsqrtf is the device's, and the order of sums depends on the kernel's tile";
constexpr std::string_view softmax_steps = "ex2, rcp and the order of sums are the device's";
constexpr std::string_view softmax_sums = "the order of sums depends on the kernel's tile";
constexpr std::string_view adam_steps = "rcp and sqrt are the device's approximations, here rounded correctly";
constexpr std::string_view flushes =
    "but for values within 2^-150 below 2^-126, of which it is unknown whether they are flushed";
constexpr std::string_view normals = "1000 normal numbers, and 100000 for the codes";
constexpr std::string_view scaled_rows = "10 rows of 100 normal numbers of normal scales, and 1000 rows for the codes";
constexpr std::string_view one_row = "a row of 1000 normal numbers";
constexpr std::string_view scores = "32 rows of 64 normal scores, of a deviation of 3";
constexpr std::string_view turns = "sincosf is libdevice's, here rounded correctly";
constexpr std::string_view vectors = "16 tokens of 64 normal numbers, of angles to 1000";
constexpr std::string_view triton = "exp, log, division, the order of sums and what is fused are Triton's";
constexpr std::string_view exponential_and_logarithm =
    "expf and log1pf are libdevice's, here rounded correctly; sums are the kernel's";
constexpr std::string_view routed = "32 rows of 64 normal logits, of which 8 are chosen, by each of the three scores";
constexpr std::string_view measured_order = "an H200 added in this order, PyTorch's or the kernel's";
constexpr std::string_view measured_formula = "an H200's words, with its tanhf and the order of its sums";
constexpr std::string_view tuned_sums = "the kernel's tuning takes 64 to 4096 sums; all else is exact";
constexpr std::string_view atomic_sums =
    "the kernel's order depends on Triton's release, the alignment of rows and the moments of its atomic additions";
constexpr std::string_view group = "1000 sums of 256 normal numbers";
constexpr std::string_view scaled_group = "1000 sums of 256 products of normal numbers, and 256 sums of 1000";
constexpr std::string_view products = "256 sums of 1000 products of normal numbers";
constexpr std::string_view copies = "rows are copied";
constexpr std::string_view training = "1000 normal gradients and parameters, of step 3";

/// In the order in which the test measures them.
constexpr std::array rows{
    Exactness{"activation", "gelu", false, tangent, 46, 0, 3e-05, normals},
    Exactness{"activation", "qgelu", false, exponential, 2.8, 0, 0, normals},
    Exactness{"activation", "relu", true, ieee_steps},
    Exactness{"activation", "srelu", true, ieee_steps},
    Exactness{"activation", "silu", false, exponential, 1.8, 0, 1e-05, normals},
    Exactness{"activation", "glu", false, exponential, 1.9, 0, 1e-05, normals},
    Exactness{"activation", "geglu", false, tangent, 51, 0, 0, normals},
    Exactness{"activation", "qgeglu", false, exponential, 3.1, 0, 1e-05, normals},
    Exactness{"activation", "reglu", true, ieee_steps},
    Exactness{"activation", "sreglu", true, ieee_steps},
    Exactness{"activation", "swiglu", false, exponential, 2.1, 1e-05, 1e-05, normals},
    Exactness{"activation", "clamped_swiglu", false, exponential, 3.3, 0, 0, normals},
    Exactness{"activation", "situglu", false, tangent_and_exponential, 3.2, 0, 0, normals},
    Exactness{"activation_backward", "gelu", false, tangent, 190, 0, 7e-05, normals},
    Exactness{"activation_backward", "qgelu", false, exponential, 250, 1e-05, 0.0001, normals},
    Exactness{"activation_backward", "relu", true, ieee_steps},
    Exactness{"activation_backward", "srelu", true, ieee_steps},
    Exactness{"activation_backward", "silu", false, exponential, 210, 0, 4e-05, normals},
    Exactness{"activation_backward", "glu", false, exponential, 47, 0, 1e-05, normals},
    Exactness{"activation_backward", "geglu", false, tangent, 190, 5e-06, 4.5e-05, normals},
    Exactness{"activation_backward", "qgeglu", false, exponential, 190, 0, 3e-05, normals},
    Exactness{"activation_backward", "reglu", true, ieee_steps},
    Exactness{"activation_backward", "sreglu", true, ieee_steps},
    Exactness{"activation_backward", "swiglu", false, exponential, 310, 0, 5e-05, normals},
    Exactness{"activation_backward", "clamped_swiglu", false, exponential, 200, 0, 4.5e-05, normals},
    Exactness{"activation_backward", "situglu", false, tangent_and_exponential, 180, 0, 4.5e-05, normals},
    Exactness{"scaled_activation", "srelu", true, ieee_steps},
    Exactness{"scaled_activation", "swiglu", false, exponential, 2.5, 0, 0, scaled_rows},
    Exactness{"scaled_activation", "clamped_swiglu", false, exponential, 3.3, 0, 1e-05, scaled_rows},
    Exactness{"scaled_activation", "situglu", false, tangent_and_exponential, 3.7, 0, 1e-05, scaled_rows},
    Exactness{"scaled_activation_backward", "srelu", false, scale_sums, 7.3, 9.9e-06, 4e-05, scaled_rows},
    Exactness{"scaled_activation_backward", "swiglu", false, exponential_and_sums, 590, 0, 5.5e-05, scaled_rows},
    Exactness{"scaled_activation_backward", "clamped_swiglu", false, exponential_and_sums, 420, 0, 5.5e-05,
              scaled_rows},
    Exactness{"scaled_activation_backward", "situglu", false, functions_and_sums, 160, 0, 8.5e-05, scaled_rows},
    Exactness{"layernorm", "", false, norm_sums, 2700, 0, 0.01, one_row},
    Exactness{"layernorm_backward", "", false, norm_sums, 310, 0, 0.036, one_row},
    Exactness{"rmsnorm", "", false, norm_sums, 2.2, 0, 0, one_row},
    Exactness{"rmsnorm_backward", "", false, norm_sums, 19, 0, 0.01, one_row},
    Exactness{"softmax", "", false, softmax_steps, 17, 0, 0, scores},
    Exactness{"softmax_backward", "", false, softmax_sums, 1900, 0, 0, scores},
    Exactness{"adam_update", "", false, adam_steps, 1.7, 0, 0, training},
    Exactness{"adam_update_fp8", "", false, adam_steps, 1.7, 0, 0, training},
    Exactness{"adam_update_remainder", "", false, adam_steps, 1.7, 0, 0, training},
    Exactness{"l2norm", "", false, softmax_sums, 0.66, 0, 0, "100000 normal numbers"},
    Exactness{"rope", "", false, turns, 58, 0, 0, vectors},
    Exactness{"rope_backward", "", false, turns, 110, 0, 0, vectors},
    Exactness{"rope_qkv", "", false, turns, 58, 0, 0, vectors},
    Exactness{"rope_qkv_backward", "", false, turns, 110, 0, 0, vectors},
    Exactness{"cross_entropy", "", false, triton, 0.98, 0, 0, scores},
    Exactness{"cross_entropy_backward", "", false, triton, 15, 0, 0, scores},
    Exactness{"moe_topk", "", false, exponential_and_logarithm, 2.4, 0, 0, routed},
    Exactness{"moe_topk_backward", "", false, exponential_and_logarithm, 41, 0, 0, routed},
    Exactness{"moe_scores", "", false, exponential_and_logarithm, 4.9, 0, 0, routed},
    Exactness{"moe_scores_backward", "", false, exponential_and_logarithm, 540, 0, 0.00049, routed},
    Exactness{"moe_aux_loss", "", false, "the kernel adds its blocks in any order", 0.22, 0, 0,
              "the scores of 32 rows of 64 normal logits"},
    Exactness{"moe_aux_loss_backward", "", true, ieee_steps},
    Exactness{"moe_bias_histogram", "", true, ieee_steps},
    Exactness{"moe_routing_map", "", true, copies},
    Exactness{"moe_permutation_map", "", true, copies},
    Exactness{"moe_permute", "", true, copies},
    Exactness{"moe_unpermute", "", true, ieee_steps},
    Exactness{"moe_unpermute_backward", "", true, "the kernel's warp has this order of sums"},
    Exactness{"moe_mask_map", "", true, copies},
    Exactness{"moe_mask_permute", "", true, copies},
    Exactness{"moe_mask_permute_probabilities", "", true, copies},
    Exactness{"moe_mask_unpermute", "", true, ieee_steps},
    Exactness{"moe_mask_unpermute_backward", "", false, tuned_sums, 330, 0, 0.12, products},
    Exactness{"moe_mask_unpermute_probabilities", "", true, copies},
    Exactness{"moe_chunk_map", "", true, copies},
    Exactness{"moe_sort_chunks", "", true, copies},
    Exactness{"add_group_bias", "", true, ieee_steps},
    Exactness{"group_bias_gradient", "", false, atomic_sums, 450, 0, 0.024, group},
    Exactness{"scaled_group_bias_gradient", "", false, atomic_sums, 750, 0, 0.036, scaled_group},
    Exactness{"pad_rows", "", true, copies},
    Exactness{"unpad_rows", "", true, copies},
    Exactness{"dropout", "", true, ieee_steps},
    Exactness{"dropout_backward", "", true, ieee_steps},
    Exactness{"sgd_update", "", true, flushes},
    Exactness{"scale_tensor", "", true, flushes},
    Exactness{"scale_of_amax", "", true, ieee_steps},
    Exactness{"nvfp4_global_scale", "", true, ieee_steps},
    Exactness{"nvfp4_tile_scales", "", true, ieee_steps},
    Exactness{"nvfp4_shard_codes", "", true, ieee_steps},
    Exactness{"compiled_gelu", "", true, measured_formula},
    Exactness{"compiled_gelu_backward", "", true, measured_formula},
    Exactness{"torch_row_sums", "", true, measured_order},
    Exactness{"cast_transpose_row_sums", "", true, measured_order},
    Exactness{"cublaslt_row_sums", "", true, measured_order},
};

}  // namespace

std::span<const Exactness> exactness() { return rows; }

bool is_exact_on_hopper(const Exactness& row) {
  constexpr std::array<std::string_view, 21> with_functions{"activation",
                                                            "activation_backward",
                                                            "scaled_activation",
                                                            "scaled_activation_backward",
                                                            "layernorm",
                                                            "layernorm_backward",
                                                            "rmsnorm",
                                                            "rmsnorm_backward",
                                                            "softmax",
                                                            "softmax_backward",
                                                            "rope",
                                                            "rope_backward",
                                                            "rope_qkv",
                                                            "rope_qkv_backward",
                                                            "moe_topk",
                                                            "moe_topk_backward",
                                                            "moe_scores",
                                                            "adam_update",
                                                            "adam_update_fp8",
                                                            "adam_update_remainder",
                                                            "l2norm"};
  return row.exact || std::ranges::find(with_functions, row.function) != with_functions.end();
}

}  // namespace fp8lab
