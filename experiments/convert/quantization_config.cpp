// SPDX-License-Identifier: Apache-2.0
#include "convert/quantization_config.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::experiments {
namespace {

using OrderedObject = nlohmann::ordered_json;

/// How compressed-tensors and ModelOpt call what a layout stores. Source: compressed-tensors 0.20.0,
/// quantization/quant_args.py and config/base.py; nvidia-modelopt 0.47.0, torch/export/quant_utils.py.
struct ToolWords {
  std::string_view layout;
  std::string_view strategy, format, scale_dtype;  ///< of compressed-tensors
  std::string_view algorithm;                      ///< of ModelOpt
  std::size_t group = 0;
};
constexpr std::array tool_words{
    ToolWords{"ct_fp8_tensor", "tensor", "float-quantized", "", ""},
    ToolWords{"ct_fp8_channel", "channel", "float-quantized", "", ""},
    ToolWords{"ct_fp8_block", "block", "float-quantized", "", ""},
    ToolWords{"ct_nvfp4", "tensor_group", "nvfp4-pack-quantized", "torch.float8_e4m3fn", "", 16},
    ToolWords{"ct_mxfp4", "group", "mxfp4-pack-quantized", "torch.uint8", "", 32},
    ToolWords{"ct_mxfp6", "group", "mxfp6-pack-quantized", "torch.uint8", "", 32},
    ToolWords{"ct_mxfp8", "group", "mxfp8-quantized", "torch.uint8", "", 32},
    ToolWords{"modelopt_fp8", "", "", "", "FP8"},
    ToolWords{"modelopt_fp8_channel", "", "", "", "FP8_PER_CHANNEL_PER_TOKEN"},
    ToolWords{"modelopt_fp8_block", "", "", "", "FP8_PB_WO"},
    ToolWords{"modelopt_nvfp4", "", "", "", "NVFP4", 16},
    ToolWords{"modelopt_mxfp8", "", "", "", "MXFP8", 32},
    ToolWords{"modelopt_mxfp4", "", "", "", "W4A8_MXFP4_FP8", 32},
};
const ToolWords& words_of(const Layout& layout) {
  return *std::ranges::find(tool_words, layout.name, &ToolWords::layout);
}

std::vector<const Layout*> layouts_of(const ModuleLayouts& modules) {
  std::vector<const Layout*> all;
  for (const ModuleLayout& one : modules.quantized) {
    if (std::ranges::find(all, one.layout) == all.end()) all.push_back(one.layout);
  }
  return all;
}

OrderedObject compressed_weights(const ToolWords& words, std::uint64_t bits) {
  OrderedObject weights{
      {"num_bits", bits}, {"type", "float"}, {"strategy", words.strategy}, {"symmetric", true}, {"dynamic", false}};
  if (words.strategy == "block") weights["block_structure"] = {128, 128};
  if (words.group != 0) weights["group_size"] = words.group;
  if (!words.scale_dtype.empty()) weights["scale_dtype"] = words.scale_dtype;
  return weights;
}

/// Scales of activations are made as they come: nobody has seen activations here.
OrderedObject compressed_inputs(const ToolWords& words) {
  if (words.format != "float-quantized") return nullptr;
  OrderedObject inputs{
      {"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"symmetric", true}, {"dynamic", true}};
  if (words.strategy == "block") {
    inputs["strategy"] = "group";
    inputs["group_size"] = 128;
  }
  return inputs;
}

OrderedObject compressed_config(const ModuleLayouts& modules) {
  const std::vector<const Layout*> layouts = layouts_of(modules);
  OrderedObject groups = OrderedObject::object();
  for (const Layout* layout : layouts) {
    const ToolWords& words = words_of(*layout);
    OrderedObject targets = OrderedObject::array();
    if (layouts.size() == 1) targets.push_back("Linear");
    for (const ModuleLayout& one : modules.quantized) {
      if (layouts.size() > 1 && one.layout == layout) targets.push_back(one.module);
    }
    groups["group_" + std::to_string(groups.size())] = {
        {"targets", targets},
        {"weights", compressed_weights(words, static_cast<std::uint64_t>(layout->format.bits()))},
        {"input_activations", compressed_inputs(words)},
        {"output_activations", nullptr},
        {"format", words.format}};
  }
  const std::string_view format = layouts.size() == 1 ? words_of(*layouts.front()).format : "mixed-precision";
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups", groups},
          {"ignore", modules.kept},
          {"kv_cache_scheme", nullptr}};
}

/// The facts that both of ModelOpt's files have.
OrderedObject modelopt_facts(const ModuleLayouts& modules) {
  const std::vector<const Layout*> layouts = layouts_of(modules);
  if (layouts.size() == 1) {
    const ToolWords& words = words_of(*layouts.front());
    OrderedObject facts{{"quant_algo", words.algorithm}};
    if (words.group != 0) facts["group_size"] = words.group;
    return facts;
  }
  OrderedObject layers = OrderedObject::object();
  for (const ModuleLayout& one : modules.quantized) {
    const ToolWords& words = words_of(*one.layout);
    layers[one.module] = {{"quant_algo", words.algorithm}};
    if (words.group != 0) layers[one.module]["group_size"] = words.group;
  }
  return {{"quant_algo", "MIXED_PRECISION"}, {"quantized_layers", layers}};
}

OrderedObject modelopt_config(const ModuleLayouts& modules) {
  OrderedObject config{{"quant_method", "modelopt"}, {"producer", {{"name", "fp8lab"}}}};
  config.update(modelopt_facts(modules));
  config["ignore"] = modules.kept;
  return config;
}

OrderedObject block_config(const ModuleLayouts& modules) {
  const Layout& layout = *modules.quantized.front().layout;
  OrderedObject config{{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}};
  if (layout.grouping == Grouping::block || layout.name == "deepseek_v4_experts") {
    config["weight_block_size"] = {128, 128};
  } else {
    config["weight_block_size"] = nullptr;
  }
  if (layout.scale_type == ScaleType::e8m0 || modules.powers_of_two) config["scale_fmt"] = "ue8m0";
  if (layout.name == "transformers_mxfp8") {
    config["quant_method"] = "mxfp8";
    config["weight_block_size"] = {1, 32};
  }
  config["modules_to_not_convert"] = modules.kept;
  return config;
}

OrderedObject quark_config(const ModuleLayouts& modules) {
  const Layout& layout = *modules.quantized.front().layout;
  const bool is_fp4 = layout.format == e2m1;
  const bool is_row = layout.grouping == Grouping::row;
  const char* const of_fp8 = is_row ? "per_channel" : "per_tensor";
  const auto spec = [&](bool dynamic) {
    OrderedObject one{{"dtype", is_fp4 ? "fp4" : "fp8_e4m3"},
                      {"is_dynamic", dynamic},
                      {"qscheme", is_fp4 ? "per_group" : of_fp8},
                      {"ch_axis", nullptr},
                      {"group_size", nullptr},
                      {"round_method", "half_even"},
                      {"scale_type", "float"}};
    if (is_fp4) {
      one["ch_axis"] = -1;
      one["group_size"] = 32;
      one["scale_format"] = "e8m0";
      one["scale_calculation_mode"] = "even";
    }
    if (is_row) one["ch_axis"] = 0;
    return one;
  };
  return {
      {"quant_method", "quark"},
      {"quant_mode", "eager_mode"},
      {"global_quant_config", {{"weight", spec(false)}, {"input_tensors", spec(true)}, {"output_tensors", nullptr}}},
      {"exclude", modules.kept},
      {"layer_quant_config", OrderedObject::object()},
      {"layer_type_quant_config", OrderedObject::object()},
      {"export",
       {{"kv_cache_group", OrderedObject::array()}, {"pack_method", "reorder"}, {"weight_format", "real_quantized"}}}};
}

std::string_view torchao_type(const Layout& layout) {
  if (layout.name.starts_with("torchao_float8")) return "Float8DynamicActivationFloat8WeightConfig";
  return layout.name.starts_with("torchao_nvfp4") ? "NVFP4DynamicActivationNVFP4WeightConfig"
                                                  : "MXDynamicActivationMXWeightConfig";
}

OrderedObject torchao_dtype(std::string_view name) { return {{"_type", "torch.dtype"}, {"_data", name}}; }
std::string_view torch_name(const std::string& dtype) {
  if (dtype == "BF16") return "bfloat16";
  return dtype == "F16" ? "float16" : "float32";
}

/// The layout that compressed-tensors or ModelOpt call so; nullptr: none.
const Layout* layout_called(std::string_view strategy, std::string_view format, std::string_view algorithm) {
  for (const ToolWords& words : tool_words) {
    const bool of_compressed = !strategy.empty() && words.strategy == strategy && words.format == format;
    const bool of_modelopt = !algorithm.empty() && words.algorithm == algorithm;
    if (of_compressed || of_modelopt) return &find_layout(words.layout);
  }
  return nullptr;
}

std::vector<std::string> texts_of(const nlohmann::json& object, const char* key) {
  std::vector<std::string> texts;
  if (!object.contains(key) || !object[key].is_array()) return texts;
  for (const auto& one : object[key]) {
    if (one.is_string()) texts.push_back(one.get<std::string>());
  }
  return texts;
}
std::string text_of_key(const nlohmann::json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

ReadPlan read_compressed(const nlohmann::json& content, const std::string& called) {
  ReadPlan plan{.modules = {}, .everywhere = nullptr, .kept = texts_of(content, "ignore")};
  for (const auto& group : content["config_groups"]) {
    const nlohmann::json weights = group.is_object() && group.contains("weights") ? group["weights"] : nlohmann::json();
    const Layout* layout = layout_called(text_of_key(weights, "strategy"), text_of_key(group, "format"), "");
    if (layout == nullptr) refuse(called, " has a group that no layout stands for: ", weights.dump());
    const std::vector<std::string> targets = texts_of(group, "targets");
    if (targets == std::vector<std::string>{"Linear"}) {
      plan.everywhere = layout;
      continue;
    }
    for (const std::string& module : targets) plan.modules.push_back({module, layout});
  }
  return plan;
}

ReadPlan read_modelopt(const nlohmann::json& content, const std::string& called) {
  const nlohmann::json& facts = content["quantization"];
  ReadPlan plan{.modules = {}, .everywhere = nullptr, .kept = texts_of(facts, "exclude_modules")};
  const auto layout_of = [&](const nlohmann::json& one) {
    const std::string algorithm = text_of_key(one, "quant_algo");
    const Layout* layout = layout_called("", "", algorithm);
    if (layout == nullptr) refuse(called, " has the quant_algo \"", algorithm, "\", which no layout stands for");
    return layout;
  };
  if (!facts.contains("quantized_layers")) {
    plan.everywhere = layout_of(facts);
    return plan;
  }
  for (const auto& [module, one] : facts["quantized_layers"].items()) plan.modules.push_back({module, layout_of(one)});
  return plan;
}

}  // namespace

OrderedObject quantization_config(const ModuleLayouts& modules) {
  const Layout& layout = *modules.quantized.front().layout;
  switch (layout.family) {
    case Family::deepseek:
    case Family::transformers:
    case Family::mistral: return block_config(modules);
    case Family::gpt_oss: return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", modules.kept}};
    case Family::compressed_tensors: return compressed_config(modules);
    case Family::modelopt: return modelopt_config(modules);
    case Family::fbgemm:
      return {
          {"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200.0}, {"modules_to_not_convert", modules.kept}};
    case Family::quark: return quark_config(modules);
    case Family::torchao:
      return {{"quant_method", "torchao"},
              {"quant_type",
               {{"default", {{"_type", torchao_type(layout)}, {"_version", 2}, {"_data", OrderedObject::object()}}}}},
              {"modules_to_not_convert", modules.kept}};
    case Family::comfyui:
    case Family::gguf: break;
  }
  return nullptr;
}

OrderedObject hf_quant_config(const ModuleLayouts& modules) {
  if (modules.quantized.front().layout->family != Family::modelopt) return nullptr;
  OrderedObject facts = modelopt_facts(modules);
  facts["kv_cache_quant_algo"] = nullptr;
  facts["exclude_modules"] = modules.kept;
  return {{"producer", {{"name", "fp8lab"}}}, {"quantization", facts}};
}

ReadPlan read_plan(const nlohmann::json& content, const std::string& called) {
  if (content.is_object() && content.contains("config_groups")) return read_compressed(content, called);
  if (content.is_object() && content.contains("quantization")) return read_modelopt(content, called);
  refuse("plan: ", called, " has neither config_groups nor quantization, as `fp8lab check --plan` writes them");
}

std::string torchao_metadata(const Layout* layout, const WeightFacts& facts) {
  if (layout == nullptr) return R"({"_type": "Tensor"})";
  const OrderedObject type = torchao_dtype(torch_name(facts.dtype));
  const auto kernel = [](std::string_view name) {
    return OrderedObject{{"_type", "KernelPreference"}, {"_data", name}};
  };
  const bool is_swizzled = layout->scale_shape == ScaleShape::tile_order;
  OrderedObject names{"qdata", "scale"};
  if (layout->name.starts_with("torchao_float8")) {
    const std::uint64_t rows = layout->grouping == Grouping::row ? 1 : facts.rows;
    return OrderedObject{{"_type", "Float8Tensor"},
                         {"_data",
                          {{"block_size", {rows, facts.columns}},
                           {"mm_config", nullptr},
                           {"act_quant_kwargs", nullptr},
                           {"kernel_preference", kernel("AUTO")},
                           {"dtype", type}}},
                         {"_tensor_data_names", names}}
        .dump();
  }
  if (layout->name.starts_with("torchao_nvfp4")) {
    names.insert(names.begin(), "per_tensor_scale");
    return OrderedObject{{"_type", "NVFP4Tensor"},
                         {"_data",
                          {{"is_swizzled_scales", is_swizzled},
                           {"use_triton_kernel", false},
                           {"act_quant_kwargs", nullptr},
                           {"block_size", 16},
                           {"orig_dtype", type}}},
                         {"_tensor_data_names", names}}
        .dump();
  }
  const bool is_fp4 = layout->format == e2m1;
  return OrderedObject{{"_type", "MXTensor"},
                       {"_data",
                        {{"elem_dtype", torchao_dtype(is_fp4 ? "float4_e2m1fn_x2" : "float8_e4m3fn")},
                         {"block_size", 32},
                         {"orig_dtype", type},
                         {"kernel_preference", kernel("EMULATED")},
                         {"act_quant_kwargs", nullptr},
                         {"is_swizzled_scales", is_swizzled}}},
                       {"_tensor_data_names", names}}
      .dump();
}

}  // namespace fp8lab::experiments
