// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/recipe.hpp"

#include <array>
#include <cmath>
#include <stdexcept>
#include <type_traits>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab {
namespace {

constexpr std::array axes{Named{"tensor", Axis::tensor}, Named{"row", Axis::row}};
constexpr std::array just_in_time_rules{
    Named{"te", JustInTimeRule::te, "the largest value / amax, or 1 where the amax is 0 or infinite"},
    Named{"torchao", JustInTimeRule::torchao, "the largest value / max(amax, 1e-12)"}};
constexpr std::array mx_rules{
    Named{"te", MxRule::te, "amax * fl(1 / largest), rounded up to a power of two"},
    Named{"floor", MxRule::floor, "the power of two at or below amax, over that of the largest value"},
    Named{"ceil", MxRule::ceil, "the power of two at or above amax, over that of the largest value"},
    Named{"even", MxRule::even,
          "amax rounded to the format's mantissa, its power of two over that of the largest value"},
    Named{"rceil", MxRule::rceil,
          "amax * fl(1 / largest), rounded up to a power of two; NaN where that is not finite"}};
constexpr std::array block_rules{
    Named{"te", BlockRule::te, "scale = largest / amax, or 1 where the amax is 0 or infinite"},
    Named{"deepseek_2024", BlockRule::deepseek_2024, "scale_inv = amax / largest, codes of x / scale_inv"},
    Named{"deepseek_2025", BlockRule::deepseek_2025, "scale_inv = max(amax, 1e-4) / largest, codes of x / scale_inv"},
    Named{"deepgemm_cpu", BlockRule::deepgemm_cpu,
          "scale_inv = max(amax, 1e-4) / largest, codes of x * (1 / scale_inv)"},
    Named{"deepgemm_cuda", BlockRule::deepgemm_cuda,
          "scale_inv = max(amax, 1e-4) * fl(1 / largest), codes of x * (1 / scale_inv)"},
    Named{"torchao", BlockRule::torchao, "scale = largest / max(amax, 1e-12)"}};
constexpr std::array e8m0_edges{
    Named{"specified", E8m0Edges::specified},
    Named{"te_before_2_19", E8m0Edges::te_before_2_19, "scales 00 and FF dequantize as 0 and infinity"},
    Named{"te_before_2_13", E8m0Edges::te_before_2_13,
          "blocks with scale 00 are multiplied by 1, with FE by 0, with FF by -infinity; 00 and FF dequantize as 0 and "
          "infinity"},
    Named{"torchao_0_18", E8m0Edges::torchao_0_18,
          "blocks with scale 00 are multiplied by 2^126, with FF by 0, and an infinite amax makes no scale NaN"}};
constexpr std::string_view torchao_0_18_rceil = "amax / largest, rounded up to a power of two by its float32 log2";
constexpr std::string_view torchao_0_18_rceil_edges =
    "blocks with scale 00 are multiplied by 1, and an infinite amax makes no scale NaN";
constexpr std::array nans_in_amax{Named{"dropped", NanInAmax::dropped}, Named{"counted", NanInAmax::counted}};

constexpr std::string_view te_current =
    "NVIDIA/TransformerEngine, Float8CurrentScaling, common/recipe/recipe_common.cuh";
constexpr std::string_view te_mx =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), MXFP8BlockScaling, common/cast/mxfp8/quantize_mxfp8.cuh";
constexpr std::string_view te_block =
    "NVIDIA/TransformerEngine, Float8BlockScaling; as in DeepSeek-V3, arXiv 2412.19437";
constexpr std::string_view te_nvfp4 = "NVIDIA/TransformerEngine since 2.8, NVFP4BlockScaling; NVIDIA, arXiv 2509.25149";
constexpr std::string_view ocp = "OCP Microscaling Formats (MX) 1.0";
constexpr std::string_view torchao_mx = "pytorch/ao after 0.18 (36027d8), torchao/prototype/mx_formats/mx_tensor.py";
constexpr std::string_view torchao_0_18_mx = "pytorch/ao 0.18.0, torchao/prototype/mx_formats/mx_tensor.py";
constexpr std::string_view torchao_float8 = "pytorch/ao, torchao/float8/float8_utils.py";
constexpr std::string_view deepseek = "deepseek-ai/DeepSeek-V3, inference/kernel.py";
constexpr std::string_view deepgemm = "deepseek-ai/DeepGEMM, deep_gemm/utils/math.py";
constexpr std::string_view torchao_block = "pytorch/ao, torchao/prototype/blockwise_fp8_training";

constexpr MxBlock torchao_mx_block(MxRule rule, E8m0Edges edges = E8m0Edges::specified) {
  return {.rule = rule, .nan = NanInAmax::counted, .edges = edges};
}

constexpr std::array named_recipes{
    NamedRecipe{"given_scale", GivenScale{}, "a number; delayed scaling gives one every step"},
    NamedRecipe{"te_current_scaling", JustInTime{}, te_current},
    NamedRecipe{"te_current_scaling_pow2", JustInTime{.force_pow_2_scales = true}, te_current},
    NamedRecipe{"te_current_scaling_e5m2", JustInTime{.format = e5m2}, te_current},
    NamedRecipe{"torchao_tensorwise", JustInTime{.rule = JustInTimeRule::torchao}, torchao_float8},
    NamedRecipe{"torchao_rowwise",
                JustInTime{.rule = JustInTimeRule::torchao, .axis = Axis::row, .force_pow_2_scales = true},
                torchao_float8},
    NamedRecipe{"te_mxfp8", MxBlock{}, te_mx},
    NamedRecipe{"te_mxfp8_2d", MxBlock{.enable_2d_quantization = true}, te_mx},
    NamedRecipe{"ocp_mxfp8_e4m3", MxBlock{.rule = MxRule::floor}, ocp},
    NamedRecipe{"ocp_mxfp8_e5m2", MxBlock{.format = e5m2, .rule = MxRule::floor}, ocp},
    NamedRecipe{"ocp_mxfp6_e2m3", MxBlock{.format = e2m3, .rule = MxRule::floor}, ocp},
    NamedRecipe{"ocp_mxfp6_e3m2", MxBlock{.format = e3m2, .rule = MxRule::floor}, ocp},
    NamedRecipe{"ocp_mxfp4", MxBlock{.format = e2m1, .rule = MxRule::floor}, ocp},
    NamedRecipe{"torchao_mxfp8_floor", torchao_mx_block(MxRule::floor), torchao_mx},
    NamedRecipe{"torchao_mxfp8_ceil", torchao_mx_block(MxRule::ceil), torchao_mx},
    NamedRecipe{"torchao_mxfp8_even", torchao_mx_block(MxRule::even), torchao_mx},
    NamedRecipe{"torchao_mxfp8_rceil", torchao_mx_block(MxRule::rceil), torchao_mx},
    NamedRecipe{"torchao_0_18_mxfp8_floor", torchao_mx_block(MxRule::floor, E8m0Edges::torchao_0_18), torchao_0_18_mx},
    NamedRecipe{"torchao_0_18_mxfp8_ceil", torchao_mx_block(MxRule::ceil, E8m0Edges::torchao_0_18), torchao_0_18_mx},
    NamedRecipe{"torchao_0_18_mxfp8_even", torchao_mx_block(MxRule::even, E8m0Edges::torchao_0_18), torchao_0_18_mx},
    NamedRecipe{"torchao_0_18_mxfp8_rceil", torchao_mx_block(MxRule::rceil, E8m0Edges::torchao_0_18), torchao_0_18_mx},
    NamedRecipe{"te_block_1x128", Block{}, te_block},
    NamedRecipe{"te_block_128x128", Block{.rows = 128}, te_block},
    NamedRecipe{"te_block_1x128_fp32", Block{.force_pow_2_scales = false}, te_block},
    NamedRecipe{"deepseek_v3_2024", Block{.rule = BlockRule::deepseek_2024, .force_pow_2_scales = false}, deepseek},
    NamedRecipe{"deepseek_v3_2025", Block{.rule = BlockRule::deepseek_2025, .force_pow_2_scales = false}, deepseek},
    NamedRecipe{"deepgemm_cpu", Block{.rule = BlockRule::deepgemm_cpu, .force_pow_2_scales = false}, deepgemm},
    NamedRecipe{"deepgemm_cuda", Block{.rule = BlockRule::deepgemm_cuda, .force_pow_2_scales = false}, deepgemm},
    NamedRecipe{"deepgemm_ue8m0", Block{.rule = BlockRule::deepgemm_cuda}, deepgemm},
    NamedRecipe{"torchao_blockwise", Block{.rule = BlockRule::torchao, .force_pow_2_scales = false}, torchao_block},
    NamedRecipe{"te_nvfp4", NvFp4{}, te_nvfp4},
    NamedRecipe{"te_nvfp4_2d", NvFp4{.with_2d_quantization = true}, te_nvfp4},
    NamedRecipe{"te_nvfp4_rht", NvFp4{.with_rht = true}, te_nvfp4},
};

std::string size_text(std::size_t rows, std::size_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

std::string number_text(float x) {
  TextStream text;
  text << x;
  return text.str();
}

constexpr const char* by_log2 = " by its float32 log2";

std::string words(const GivenScale& recipe) {
  return format_name(recipe.format) + ", one scale for the tensor: " + number_text(recipe.scale);
}
std::string words(const JustInTime& recipe) {
  std::string text = format_name(recipe.format) + ", one scale for ";
  text += recipe.axis == Axis::tensor ? "the tensor: " : "a row: ";
  text += entry_of(just_in_time_rules, recipe.rule).words;
  if (recipe.amax_epsilon != 0) text += ", amax at least " + number_text(recipe.amax_epsilon);
  if (recipe.force_pow_2_scales) text += ", rounded down to a power of two";
  return text + (recipe.force_pow_2_scales && recipe.rule == JustInTimeRule::torchao ? by_log2 : "");
}
std::string words(const MxBlock& recipe) {
  std::string text = format_name(recipe.format) + ", an E8M0 scale for ";
  text += size_text(recipe.enable_2d_quantization ? 32 : 1, 32) + ": ";
  const bool rceil_0_18 = recipe.rule == MxRule::rceil && recipe.edges == E8m0Edges::torchao_0_18;
  text += rceil_0_18 ? torchao_0_18_rceil : entry_of(mx_rules, recipe.rule).words;
  if (recipe.nan == NanInAmax::counted) text += "; a NaN makes its block NaN";
  if (recipe.drop_negative_zero) text += "; -0 becomes +0";
  if (recipe.edges == E8m0Edges::specified) return text;
  return text + "; " + std::string(rceil_0_18 ? torchao_0_18_rceil_edges : entry_of(e8m0_edges, recipe.edges).words);
}
std::string words(const Block& recipe) {
  std::string text = format_name(recipe.format) + ", a float32 scale for ";
  text += size_text(recipe.rows, recipe.columns) + ": " + std::string(entry_of(block_rules, recipe.rule).words);
  if (recipe.amax_epsilon != 0) text += ", amax at least " + number_text(recipe.amax_epsilon);
  if (recipe.force_pow_2_scales) text += ", a power of two";
  return text + (recipe.force_pow_2_scales && recipe.rule == BlockRule::torchao ? by_log2 : "");
}
std::string words(const NvFp4& recipe) {
  std::string text = "e2m1, an E4M3 scale for ";
  text += size_text(recipe.with_2d_quantization ? 16 : 1, 16) + " and a float32 scale of the tensor";
  if (recipe.stochastic_rounding) text += ", rounded stochastically";
  if (recipe.with_rht) text += ", turned by a Hadamard matrix where columnwise";
  if (recipe.with_rht && recipe.round_rht) text += " and rounded to bfloat16";
  if (recipe.nan == NanInAmax::counted) text += "; a NaN makes its block's scale NaN";
  return text;
}

void check_element(const Format& format) {
  check_format(format);
  if (format.is_signed && format.has_subnormals && format.bits() <= 8) return;
  throw std::invalid_argument("format must have a sign, subnormals and at most 8 bits, as " + format_name(e4m3) +
                              " and " + format_name(e2m1) + " do; " + format_name(format) + " has not");
}
void check_epsilon(float epsilon, bool counts) {
  if (!(epsilon >= 0) || std::isinf(epsilon)) {
    throw std::invalid_argument("amax_epsilon must be 0 or more, and finite, not " + number_text(epsilon));
  }
  if (epsilon != 0 && !counts) throw std::invalid_argument("amax_epsilon is for rule 'te' only");
}
void check_one(const GivenScale& recipe) {
  if (!(recipe.scale > 0) || std::isinf(recipe.scale)) {
    throw std::invalid_argument("scale must be positive and finite, not " + number_text(recipe.scale));
  }
  if (std::isinf(1 / recipe.scale)) {
    throw std::invalid_argument("scale must have a finite inverse, which " + number_text(recipe.scale) + " has not");
  }
}
void check_one(const JustInTime& recipe) { check_epsilon(recipe.amax_epsilon, recipe.rule == JustInTimeRule::te); }
void check_one(const MxBlock& /*recipe*/) {}
void check_one(const Block& recipe) {
  check_epsilon(recipe.amax_epsilon, recipe.rule == BlockRule::te);
  if (recipe.columns == 0) throw std::invalid_argument("columns of a block must be 1 or more, not 0");
  if (recipe.rows != 1 && recipe.rows != recipe.columns) {
    throw std::invalid_argument("rows of a block must be 1 or as its columns, " + std::to_string(recipe.columns) +
                                ", not " + std::to_string(recipe.rows));
  }
}
void check_one(const NvFp4& recipe) {
  if (!recipe.round_rht && !recipe.with_rht) throw std::invalid_argument("round_rht is for with_rht only");
}

}  // namespace

std::span<const NamedRecipe> recipes() { return named_recipes; }

const NamedRecipe& find_recipe(std::string_view name) { return find_named(named_recipes, "recipe", name); }
Axis find_axis(std::string_view name) { return find_named(axes, "axis", name).value; }
JustInTimeRule find_just_in_time_rule(std::string_view name) {
  return find_named(just_in_time_rules, "rule", name).value;
}
MxRule find_mx_rule(std::string_view name) { return find_named(mx_rules, "rule", name).value; }
BlockRule find_block_rule(std::string_view name) { return find_named(block_rules, "rule", name).value; }
E8m0Edges find_e8m0_edges(std::string_view name) { return find_named(e8m0_edges, "edges", name).value; }
NanInAmax find_nan_in_amax(std::string_view name) { return find_named(nans_in_amax, "nan", name).value; }
std::string_view name_of(Axis axis) { return entry_of(axes, axis).name; }
std::string_view name_of(JustInTimeRule rule) { return entry_of(just_in_time_rules, rule).name; }
std::string_view name_of(MxRule rule) { return entry_of(mx_rules, rule).name; }
std::string_view name_of(BlockRule rule) { return entry_of(block_rules, rule).name; }
std::string_view name_of(E8m0Edges edges) { return entry_of(e8m0_edges, edges).name; }
std::string_view name_of(NanInAmax nan) { return entry_of(nans_in_amax, nan).name; }

std::string describe(const Recipe& recipe) {
  const DefaultEnvironment environment;
  return std::visit([](const auto& one) { return words(one); }, recipe);
}

Format format_of(const Recipe& recipe) {
  return std::visit(
      [](const auto& one) {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, NvFp4>) {
          return e2m1;
        } else {
          return one.format;
        }
      },
      recipe);
}

void check_recipe(const Recipe& recipe) {
  const DefaultEnvironment environment;
  check_element(format_of(recipe));
  std::visit([](const auto& one) { check_one(one); }, recipe);
}

}  // namespace fp8lab
