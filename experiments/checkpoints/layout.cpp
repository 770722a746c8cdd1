// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/layout.hpp"

#include <array>
#include <iterator>
#include <utility>

#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::span<const Named<Family>> named_values(Family /*any*/) {
  static constexpr std::array families{Named{"deepseek", Family::deepseek},
                                       Named{"transformers", Family::transformers},
                                       Named{"mistral", Family::mistral},
                                       Named{"gpt_oss", Family::gpt_oss},
                                       Named{"compressed_tensors", Family::compressed_tensors},
                                       Named{"modelopt", Family::modelopt},
                                       Named{"fbgemm", Family::fbgemm},
                                       Named{"quark", Family::quark},
                                       Named{"torchao", Family::torchao},
                                       Named{"comfyui", Family::comfyui},
                                       Named{"gguf", Family::gguf}};
  static_assert(is_in_order(families));
  return families;
}

std::span<const Named<Packing>> named_values(Packing /*any*/) {
  static constexpr std::array packings{Named{"bytes", Packing::bytes},
                                       Named{"pairs_low_first", Packing::pairs_low_first},
                                       Named{"pairs_high_first", Packing::pairs_high_first},
                                       Named{"fours", Packing::fours},
                                       Named{"gpt_oss_blocks", Packing::gpt_oss_blocks},
                                       Named{"gguf_mxfp4", Packing::gguf_mxfp4},
                                       Named{"gguf_nvfp4", Packing::gguf_nvfp4}};
  static_assert(is_in_order(packings));
  return packings;
}

std::span<const Named<Grouping>> named_values(Grouping /*any*/) {
  static constexpr std::array groupings{Named{"tensor", Grouping::tensor}, Named{"row", Grouping::row},
                                        Named{"column", Grouping::column}, Named{"block", Grouping::block},
                                        Named{"group", Grouping::group}};
  static_assert(is_in_order(groupings));
  return groupings;
}

std::span<const Named<ScaleType>> named_values(ScaleType /*any*/) {
  static constexpr std::array types{Named{"number", ScaleType::number}, Named{"e8m0", ScaleType::e8m0},
                                    Named{"e4m3", ScaleType::e4m3}, Named{"ue4m3", ScaleType::ue4m3}};
  static_assert(is_in_order(types));
  return types;
}

std::span<const Named<ScaleShape>> named_values(ScaleShape /*any*/) {
  static constexpr std::array shapes{
      Named{"scalar", ScaleShape::scalar},    Named{"column", ScaleShape::column},
      Named{"vector", ScaleShape::vector},    Named{"columns", ScaleShape::columns},
      Named{"grid", ScaleShape::grid},        Named{"grid_4d", ScaleShape::grid_4d},
      Named{"groups", ScaleShape::groups},    Named{"tile_order", ScaleShape::tile_order},
      Named{"in_block", ScaleShape::in_block}};
  static_assert(is_in_order(shapes));
  return shapes;
}

std::span<const Named<Role>> named_values(Role /*any*/) {
  static constexpr std::array roles{Named{"scale", Role::scale},
                                    Named{"global_scale", Role::global_scale},
                                    Named{"input_scale", Role::input_scale},
                                    Named{"input_global_scale", Role::input_global_scale},
                                    Named{"pre_quant_scale", Role::pre_quant_scale},
                                    Named{"bias", Role::bias},
                                    Named{"marker", Role::marker},
                                    Named{"other", Role::other}};
  static_assert(is_in_order(roles));
  return roles;
}

std::span<const Named<GlobalScale>> named_values(GlobalScale /*any*/) {
  static constexpr std::array kinds{Named{"none", GlobalScale::none}, Named{"multiplier", GlobalScale::multiplier},
                                    Named{"divisor", GlobalScale::divisor}, Named{"after", GlobalScale::after}};
  static_assert(is_in_order(kinds));
  return kinds;
}

std::span<const Named<Loader>> named_values(Loader /*any*/) {
  static constexpr std::array loaders{
      Named{"format", Loader::format, "the layout's own library"},
      Named{"compressed_tensors", Loader::compressed_tensors},
      Named{"deepseek", Loader::deepseek},
      Named{"gguf", Loader::gguf, "gguf's dequantize, which leaves .scale to the layer"},
      Named{"modelopt", Loader::modelopt},
      Named{"quark", Loader::quark},
      Named{"transformers", Loader::transformers},
      Named{"vllm", Loader::vllm}};
  static_assert(is_in_order(loaders));
  return loaders;
}

std::span<const Named<Product>> named_values(Product /*any*/) {
  static constexpr std::array products{
      Named{"scale", Product::scale, "code * scale"},
      Named{"rounded_scale", Product::rounded_scale, "code * bf16(scale)"},
      Named{"multiplied", Product::multiplied, "code * (scale * global)"},
      Named{"divided", Product::divided, "code * (scale / global)"},
      Named{"divided_rounded", Product::divided_rounded, "code * bf16(scale / global)"},
      Named{"rounded_multiplied", Product::rounded_multiplied, "code * bf16(bf16(global) * scale)"},
      Named{"codes_first", Product::codes_first, "(code * scale) * global"}};
  static_assert(is_in_order(products));
  return products;
}

std::span<const Named<Exclusion>> named_values(Exclusion /*any*/) {
  static constexpr std::array kinds{Named{"none", Exclusion::none}, Named{"dotted", Exclusion::dotted},
                                    Named{"module", Exclusion::module}, Named{"wildcard", Exclusion::wildcard},
                                    Named{"exact", Exclusion::exact}};
  static_assert(is_in_order(kinds));
  return kinds;
}

const std::vector<Layout>& all_layouts() {
  static const std::vector<Layout> all = [] {
    std::vector<Layout> list;
    for (auto* const layouts_of :
         {&deepseek_layouts, &transformers_layouts, &mistral_layouts, &gpt_oss_layouts, &compressed_tensors_layouts,
          &modelopt_layouts, &fbgemm_layouts, &quark_layouts, &torchao_layouts, &comfy_layouts, &gguf_layouts}) {
      std::vector<Layout> some = layouts_of();
      list.insert(list.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
    }
    return list;
  }();
  return all;
}

const Layout& find_layout(std::string_view name) { return find_named(all_layouts(), "layout", name); }

std::vector<std::string> fused_names(const Layout& layout, const std::string& weight) {
  for (const auto& group : layout.fused) {
    for (const std::string_view part : group) {
      const std::size_t at = weight.rfind("." + std::string(part) + ".");
      if (at == std::string::npos) continue;
      std::vector<std::string> names;
      names.reserve(group.size());
      for (const std::string_view other : group)
        names.push_back(std::string(weight).replace(at + 1, part.size(), other));
      return names;
    }
  }
  return {};
}

}  // namespace fp8lab::experiments
