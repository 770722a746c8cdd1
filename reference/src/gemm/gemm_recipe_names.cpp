// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"

#include <array>

namespace fp8lab {
namespace {

// In the order of the enumerators. A value with words changes what describe() says.
constexpr std::array step_types{Named{"as_given", StepType::as_given},
                                Named{"float16", StepType::to_float16, "rounded to float16"},
                                Named{"bfloat16", StepType::to_bfloat16, "rounded to bfloat16"}};
constexpr std::array partial_orders{Named{"ascending", PartialOrder::ascending},
                                    Named{"descending", PartialOrder::descending, "in descending order"},
                                    Named{"pairwise", PartialOrder::pairwise, "pairwise"}};
constexpr std::array scale_orders{
    Named{"scales_first", ScaleOrder::scales_first, "accumulator * fl(scale_a * scale_b)"},
    Named{"accumulator_first", ScaleOrder::accumulator_first, "fl(accumulator * scale_a) * scale_b"},
    Named{"b_first", ScaleOrder::b_first, "fl(accumulator * scale_b) * scale_a"}};
constexpr std::array tensor_scale_uses{
    Named{"as_alpha", TensorScaleUse::as_alpha},
    Named{"with_rows", TensorScaleUse::with_rows, "the scale of each tensor multiplies those of its rows"}};
constexpr std::array c_entries{Named{"epilogue", CEntry::epilogue},
                               Named{"accumulator", CEntry::accumulator, "the accumulation starts from c"}};
constexpr std::array additions{
    Named{"after_scales", Addition::after_scales},
    Named{"fused", Addition::fused, "c or the bias is added by the fma that multiplies the last scale"},
    Named{"before_scales", Addition::before_scales, "c or the bias is added before the scales multiply"},
    Named{"after_rounding", Addition::after_rounding,
          "c or the bias is added after the result is rounded, and rounded again"}};
constexpr std::array gemm_activations{Named{"none", GemmActivation::none}, Named{"relu", GemmActivation::relu, "relu"},
                                      Named{"gelu", GemmActivation::gelu, "Hopper's gelu"},
                                      Named{"gelu_float32", GemmActivation::gelu_float32, "Hopper's gelu of float32"},
                                      Named{"dgelu", GemmActivation::dgelu, "the gradient of Hopper's gelu"}};
constexpr std::array bias_gradients{Named{"none", BiasGradient::none},
                                    Named{"of_a", BiasGradient::of_a, "the gradient of a bias is that of a"},
                                    Named{"of_b", BiasGradient::of_b, "the gradient of a bias is that of b"}};

}  // namespace

std::span<const Named<StepType>> named_values(StepType /*any*/) { return step_types; }
std::span<const Named<PartialOrder>> named_values(PartialOrder /*any*/) { return partial_orders; }
std::span<const Named<ScaleOrder>> named_values(ScaleOrder /*any*/) { return scale_orders; }
std::span<const Named<TensorScaleUse>> named_values(TensorScaleUse /*any*/) { return tensor_scale_uses; }
std::span<const Named<CEntry>> named_values(CEntry /*any*/) { return c_entries; }
std::span<const Named<Addition>> named_values(Addition /*any*/) { return additions; }
std::span<const Named<GemmActivation>> named_values(GemmActivation /*any*/) { return gemm_activations; }
std::span<const Named<BiasGradient>> named_values(BiasGradient /*any*/) { return bias_gradients; }

}  // namespace fp8lab
