// SPDX-License-Identifier: Apache-2.0
// Hypotheses about a GEMM in words.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::doctor {
namespace {

using OrderName = Named<PartialOrder>;
constexpr std::array order_names{OrderName{"ascending", PartialOrder::ascending},
                                 OrderName{"descending", PartialOrder::descending},
                                 OrderName{"pairwise", PartialOrder::pairwise}};

using UseName = Named<ScaleUse>;
constexpr std::array use_names{UseName{"none", ScaleUse::none},
                               UseName{"product_first", ScaleUse::product_first, "accumulator * fl(scale_a * scale_b)"},
                               UseName{"a_first", ScaleUse::a_first, "fl(accumulator * scale_a) * scale_b"},
                               UseName{"b_first", ScaleUse::b_first, "fl(accumulator * scale_b) * scale_a"}};

using AddendName = Named<AddendUse>;
constexpr std::array addend_names{
    AddendName{"none", AddendUse::none},
    AddendName{"after_scales", AddendUse::after_scales},
    AddendName{"fused", AddendUse::fused, "c or the bias is added by the fma that multiplies the last scale"},
    AddendName{"before_scales", AddendUse::before_scales, "c or the bias is added before the scales multiply"},
    AddendName{"after_rounding", AddendUse::after_rounding,
               "c or the bias is added after the result is rounded, and rounded again"},
    AddendName{"accumulator", AddendUse::accumulator, "the accumulation starts from c"}};

using TypeName = Named<AddendType>;
constexpr std::array type_names{TypeName{"as_given", AddendType::as_given}, TypeName{"float16", AddendType::float16},
                                TypeName{"bfloat16", AddendType::bfloat16}};

using OutputName = Named<OutputRounding>;
constexpr std::array output_names{
    OutputName{"nearest", OutputRounding::nearest},
    OutputName{"toward_zero", OutputRounding::toward_zero, "the output is cut off toward zero"},
    OutputName{"nearest_away", OutputRounding::nearest_away, "ties of the output are rounded away from zero"},
    OutputName{"via_float16", OutputRounding::via_float16, "the output is rounded to float16 on its way"},
    OutputName{"via_bfloat16", OutputRounding::via_bfloat16, "the output is rounded to bfloat16 on its way"},
    OutputName{"float16_before_scale", OutputRounding::float16_before_scale,
               "rounded to float16 before the scale of the output multiplies"},
    OutputName{"bfloat16_before_scale", OutputRounding::bfloat16_before_scale,
               "rounded to bfloat16 before the scale of the output multiplies"}};

using DefectName = Named<GemmDefect>;
constexpr std::array defect_names{
    DefectName{"none", GemmDefect::none},
    DefectName{"a_transposed", GemmDefect::a_transposed, "a is read as if it were stored as (K, M)"},
    DefectName{"b_transposed", GemmDefect::b_transposed, "b is read as if it were stored as (K, N)"},
    DefectName{"out_transposed", GemmDefect::out_transposed, "the output is stored transposed, as (N, M)"},
    DefectName{"scale_a_missing", GemmDefect::scale_a_missing, "the scale of a is not applied"},
    DefectName{"scale_b_missing", GemmDefect::scale_b_missing, "the scale of b is not applied"},
    DefectName{"scales_missing", GemmDefect::scales_missing, "no scale is applied"},
    DefectName{"scale_a_twice", GemmDefect::scale_a_twice, "the scale of a is applied twice"},
    DefectName{"scale_b_twice", GemmDefect::scale_b_twice, "the scale of b is applied twice"},
    DefectName{"scales_twice", GemmDefect::scales_twice, "both scales are applied twice"},
    DefectName{"scale_a_inverted", GemmDefect::scale_a_inverted, "the scale of a divides instead of multiplying"},
    DefectName{"scale_b_inverted", GemmDefect::scale_b_inverted, "the scale of b divides instead of multiplying"},
    DefectName{"scales_inverted", GemmDefect::scales_inverted, "both scales divide instead of multiplying"},
    DefectName{"scale_a_of_previous_tile", GemmDefect::scale_a_of_previous_tile,
               "the scale of a is that of the previous tile along K, or block"},
    DefectName{"scale_b_of_previous_tile", GemmDefect::scale_b_of_previous_tile,
               "the scale of b is that of the previous tile along K, or block"},
    DefectName{"scales_of_previous_tile", GemmDefect::scales_of_previous_tile,
               "both scales are those of the previous tile along K, or block"},
    DefectName{"tensor_scale_a_missing", GemmDefect::tensor_scale_a_missing,
               "the scale of the tensor or row of a is not applied, those of its blocks are"},
    DefectName{"tensor_scale_b_missing", GemmDefect::tensor_scale_b_missing,
               "the scale of the tensor or row of b is not applied, those of its blocks are"},
    DefectName{"tensor_scales_missing", GemmDefect::tensor_scales_missing,
               "the scales of both tensors or rows are not applied, those of blocks are"},
    DefectName{"block_scales_a_missing", GemmDefect::block_scales_a_missing,
               "the scales of the blocks of a are not applied, that of its tensor or row is"},
    DefectName{"block_scales_b_missing", GemmDefect::block_scales_b_missing,
               "the scales of the blocks of b are not applied, that of its tensor or row is"},
    DefectName{"block_scales_missing", GemmDefect::block_scales_missing,
               "the scales of blocks are not applied, those of tensors or rows are"},
    DefectName{"scale_layout_a", GemmDefect::scale_layout_a,
               "the block scales of a are read in the other layout, swizzled or compact"},
    DefectName{"scale_layout_b", GemmDefect::scale_layout_b,
               "the block scales of b are read in the other layout, swizzled or compact"},
    DefectName{"scale_layouts", GemmDefect::scale_layouts,
               "the block scales of both are read in the other layout, swizzled or compact"},
    DefectName{"tail_dropped", GemmDefect::tail_dropped, "the last products are missing"},
    DefectName{"c_missing", GemmDefect::c_missing, "c is not added"},
    DefectName{"c_transposed", GemmDefect::c_transposed, "c is read as if it were stored as (N, M)"},
    DefectName{"bias_missing", GemmDefect::bias_missing, "the bias is not added"},
    DefectName{"addends_missing", GemmDefect::addends_missing, "neither c nor the bias is added"},
    DefectName{"bias_along_rows", GemmDefect::bias_along_rows, "the bias is added to rows, not to columns"},
    DefectName{"bias_in_each_range", GemmDefect::bias_in_each_range, "every range of K adds the bias"},
    DefectName{"scale_out_missing", GemmDefect::scale_out_missing, "the scale of the output is not applied"},
    DefectName{"scale_out_inverted", GemmDefect::scale_out_inverted,
               "the scale of the output divides instead of multiplying"}};

}  // namespace

std::string_view name_of(PartialOrder order) { return entry_of(order_names, order).name; }
std::string_view name_of(ScaleUse use) { return entry_of(use_names, use).name; }
std::string_view name_of(AddendUse use) { return entry_of(addend_names, use).name; }
std::string_view name_of(AddendType type) { return entry_of(type_names, type).name; }
std::string_view name_of(OutputRounding rounding) { return entry_of(output_names, rounding).name; }
std::string_view name_of(GemmDefect defect) { return entry_of(defect_names, defect).name; }

bool GemmHypothesis::is_plain() const {
  constexpr AddendType exact = AddendType::as_given;
  const bool is_rounded_once =
      output == OutputRounding::nearest && partial_type == exact && total_type == exact && sum_type == exact;
  const bool is_of_codes = dequantized == exact;
  return defect == GemmDefect::none && is_rounded_once && is_of_codes && addend_use != AddendUse::before_scales;
}

bool GemmDiagnosis::lacks_tensor_core() const {
  const auto tied_ones = std::span(explanations).first(tied);
  constexpr Format single = binary32;
  if (inputs.format_a == single && inputs.format_b == single) return false;
  return std::ranges::none_of(tied_ones, [](const auto& one) { return one.hypothesis.has_tensor_core(); });
}

bool GemmDiagnosis::scales_addends() const {
  const GemmHypothesis& h = explanations.front().hypothesis;
  return h.scale_use != ScaleUse::none && inputs.tile_depth == 0 && h.addend_use == AddendUse::accumulator;
}

/// What multiplies, and how sums of products are added.
static void put_sums(TextStream& text, const GemmHypothesis& h) {
  text << h.model;
  if (!h.has_tensor_core()) text << " (float32 sums without a tensor core)";
  if (h.dequantized != AddendType::as_given) {
    text << " of operands that are dequantized to " << name_of(h.dequantized) << " first";
  }
  if (h.promote_k != 0) text << ", promoted every " << h.promote_k;
  if (h.split_k != 0) text << ", K split in ranges of " << h.split_k << " that are added " << name_of(h.order);
  if (!h.ranges.empty()) {
    text << ", K split in ranges of";
    for (const std::size_t length : h.ranges) text << ' ' << length;
    text << " that are added " << (h.range_order.empty() ? "ascending" : "in the order");
    for (const std::size_t number : h.range_order) text << ' ' << number;
  }
  if (h.split_k == 0 && h.order == PartialOrder::descending) text << " in descending order";
  if (h.k_order.ways != 1) {
    text << ", each " << h.k_order.window << " of K dealt out to " << h.k_order.ways << " parts by "
         << h.k_order.granule;
  }
  if (h.partial_type != AddendType::as_given) {
    text << ", each rounded to " << name_of(h.partial_type) << " before";
  }
  if (h.total_type != AddendType::as_given) text << ", and their sum after each of them";
}

/// How scales, c and the bias enter.
static void put_scales(TextStream& text, const GemmHypothesis& h) {
  if (h.sum_type != AddendType::as_given) {
    text << ", the accumulator rounded to " << name_of(h.sum_type) << " before the scales multiply";
  }
  if (h.zero_rule != ZeroRule::floor) text << ", zeros by the rule " << name_of(h.zero_rule);
  if (h.scale_use != ScaleUse::none) {
    text << ", scaled as " << entry_of(use_names, h.scale_use).words;
    if (!h.fused) text << ", rounded before it is added";
  }
  if (h.alpha_last) text << ", then with the scales of the tensors as one number";
  const std::string_view addition = entry_of(addend_names, h.addend_use).words;
  if (!addition.empty()) text << ", " << addition;
  if (h.addend_type != AddendType::as_given) text << ", what is added is rounded to " << name_of(h.addend_type);
  if (h.bias_first) text << ", the bias is added before c";
  if (h.scale_out_first) text << ", the scale of the output multiplies those of a and b";
}

std::string describe(const GemmHypothesis& h) {
  TextStream text;
  put_sums(text, h);
  put_scales(text, h);
  if (h.output != OutputRounding::nearest) text << ", " << entry_of(output_names, h.output).words;
  if (h.saturated) text << ", saturated";
  if (h.policy) text << ", the output rounded by the expected profile (" << name_of(h.policy->rounding) << ")";
  if (h.defect != GemmDefect::none) text << "; but " << entry_of(defect_names, h.defect).words;
  if (h.divided) text << ", by a division";
  if (h.defect == GemmDefect::tail_dropped) text << " (those from k = " << h.depth << " on)";
  return text.str();
}

}  // namespace fp8lab::doctor
