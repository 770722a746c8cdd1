// SPDX-License-Identifier: Apache-2.0
#include "convert/layout_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>

#include "checkpoints/checkpoint.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::experiments {
namespace {

std::uint64_t parts_of(std::uint64_t length, std::uint64_t part) {
  return length / part + (length % part != 0 ? 1 : 0);
}

/// What ComfyUI calls the formats of its layouts.
std::string_view comfy_format(const Layout& layout) {
  if (layout.format == e2m1) return "nvfp4";
  return layout.format == e4m3 ? "float8_e4m3fn" : "float8_e5m2";
}
std::string comfy_marker(const Layout& layout) { return fmt::format(R"({{"format": "{}"}})", comfy_format(layout)); }
bool has_comfy_marker(const Layout& layout) {
  return layout.family == Family::comfyui &&
         std::ranges::any_of(layout.companions, [](const CompanionName& one) { return one.role == Role::marker; });
}

std::vector<std::uint64_t> codes_shape(const Layout& layout, const WeightFacts& facts) {
  switch (layout.packing) {
    case Packing::bytes: return {facts.rows, facts.columns};
    case Packing::pairs_low_first:
    case Packing::pairs_high_first: return {facts.rows, facts.columns / 2};
    case Packing::fours: return {facts.rows, facts.columns / 4 * 3};
    case Packing::gpt_oss_blocks: return {facts.rows, facts.columns / 32, 16};
    case Packing::gguf_mxfp4:
    case Packing::gguf_nvfp4: break;
  }
  throw std::logic_error("a layout of GGUF is written as .safetensors");
}

std::vector<std::uint64_t> scale_shape(const Layout& layout, const WeightFacts& facts) {
  const std::uint64_t across = layout.group == 0 ? 1 : parts_of(facts.columns, layout.group);
  const std::uint64_t down = parts_of(facts.rows, std::max<std::uint64_t>(1, layout.block_rows));
  switch (layout.scale_shape) {
    case ScaleShape::scalar:
      if (layout.family == Family::compressed_tensors) return {1};
      if (layout.family == Family::torchao) return {1, 1};
      return {};
    case ScaleShape::column: return {facts.rows, 1};
    case ScaleShape::vector: return {facts.rows};
    case ScaleShape::columns:  // Llama 4's: (1, N) of gate and up, (N, 1) of down
      if (layout.codes == ".down_proj") return {facts.columns, 1};
      return {1, facts.columns};
    case ScaleShape::grid: return {down, across};
    case ScaleShape::grid_4d: return {down, 1, across, 1};
    case ScaleShape::groups: return {facts.rows, across};
    case ScaleShape::tile_order:
      if (layout.family == Family::torchao) return {parts_of(facts.rows, 128) * 32, parts_of(across, 4) * 16};
      return {parts_of(facts.rows, 128) * 128, parts_of(across, 4) * 4};
    case ScaleShape::in_block: break;
  }
  throw std::logic_error("a layout without a tensor of scales is written as .safetensors");
}

/// compressed-tensors computes in the type of the weight, and stores what it computes.
std::string scale_dtype(const Layout& layout, const WeightFacts& facts) {
  const bool as_weight = layout.family == Family::compressed_tensors && layout.scale_type == ScaleType::number;
  return as_weight ? facts.dtype : std::string(layout.scale_dtypes.front());
}

std::vector<std::byte> packed(const Layout& layout, const CodedMatrix& matrix) {
  const std::vector<std::uint8_t>& codes = matrix.codes;
  std::vector<std::byte> bytes(layout.bytes_of_codes(codes.size()));
  if (layout.packing == Packing::bytes) {
    std::memcpy(bytes.data(), codes.data(), codes.size());
    return bytes;
  }
  if (layout.packing == Packing::fours) {
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
      const std::uint8_t* const four = codes.data() + i / 3 * 4;
      const unsigned word = four[0] | unsigned{four[1]} << 6 | unsigned{four[2]} << 12 | unsigned{four[3]} << 18;
      for (std::size_t byte = 0; byte < 3; ++byte) bytes[i + byte] = static_cast<std::byte>(word >> 8 * byte);
    }
    return bytes;
  }
  const bool high_first = layout.packing == Packing::pairs_high_first;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const unsigned low = codes[2 * i + (high_first ? 1 : 0)];
    const unsigned high = codes[2 * i + (high_first ? 0 : 1)];
    bytes[i] = static_cast<std::byte>(low | high << 4);
  }
  return bytes;
}

template <typename T>
void append(std::vector<std::byte>& bytes, const T& value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

std::vector<std::byte> numbers(std::span<const float> scales, std::string_view dtype) {
  std::vector<std::byte> bytes;
  for (const float scale : scales) {
    if (dtype == "F32") {
      append(bytes, scale);
    } else {
      append(bytes, static_cast<std::uint16_t>(encode(dtype == "BF16" ? bfloat16 : binary16, ieee_policy, scale)));
    }
  }
  return bytes;
}

std::vector<std::byte> scale_bytes(const Layout& layout, const LayoutTensor& tensor, const CodedMatrix& matrix) {
  if (layout.scale_type == ScaleType::number) return numbers(matrix.scales, tensor.dtype);
  const Format format = layout.scale_type == ScaleType::e8m0 ? e8m0 : e4m3;
  std::vector<std::uint8_t> codes;
  codes.reserve(matrix.scales.size());
  for (const float scale : matrix.scales) codes.push_back(static_cast<std::uint8_t>(encode(format, {}, scale)));
  if (layout.scale_shape == ScaleShape::tile_order) {
    codes = swizzle_scales(codes, matrix.grid_rows(), matrix.grid_columns());
  }
  std::vector<std::byte> bytes(codes.size());
  std::memcpy(bytes.data(), codes.data(), codes.size());
  return bytes;
}

std::uint64_t product_of(const std::vector<std::uint64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

}  // namespace

std::string reason_not_to_fit(const Layout& layout, const WeightFacts& facts) {
  if (facts.rows == 0 || facts.columns == 0) return "it has no elements";
  // A reader takes some of these for whole blocks: transformers and torchao make the block of the shapes.
  const bool ragged_blocks = layout.family == Family::compressed_tensors || layout.family == Family::modelopt ||
                             layout.name == "deepseek_fp8_block" || layout.name == "fnuz_fp8_block";
  if (layout.grouping == Grouping::group && facts.columns % layout.group != 0) {
    return fmt::format("{} columns are no multiple of {}, the elements that share a scale", facts.columns,
                       layout.group);
  }
  if (layout.grouping == Grouping::block && !ragged_blocks &&
      (facts.rows % layout.block_rows != 0 || facts.columns % layout.group != 0)) {
    return fmt::format("{}x{} is no multiple of the block of {}x{}", facts.rows, facts.columns, layout.block_rows,
                       layout.group);
  }
  if (layout.name == "comfy_nvfp4" && facts.rows % 16 != 0) {
    return fmt::format("{} rows are no multiple of 16", facts.rows);
  }
  if (layout.scale_shape == ScaleShape::vector && facts.rows == 1) return "it has one row";
  return "";
}

std::string stem_of(const Layout& layout, const std::string& weight) {
  return weight.substr(0, weight.size() - layout.restored.size());
}

std::vector<LayoutTensor> layout_tensors(const Layout& layout, const WeightFacts& facts) {
  const std::string stem = stem_of(layout, facts.name);
  std::vector<LayoutTensor> all;
  const auto add = [&](WeightPart part, std::string_view suffix, std::string dtype, std::vector<std::uint64_t> shape) {
    if (facts.stacked) shape.insert(shape.begin(), facts.experts);
    const std::uint64_t bytes = product_of(shape) * bits_of_dtype(dtype).value_or(8) / 8;
    all.push_back({part, stem + std::string(suffix), std::move(dtype), std::move(shape), bytes});
  };
  add(WeightPart::codes, layout.codes, std::string(layout.code_dtypes.front()), codes_shape(layout, facts));
  add(WeightPart::scale, layout.scale, scale_dtype(layout, facts), scale_shape(layout, facts));
  if (layout.global != GlobalScale::none) {
    const bool has_dimension = layout.family == Family::compressed_tensors;
    add(WeightPart::global_scale, layout.global_scale, "F32",
        has_dimension ? std::vector<std::uint64_t>{1} : std::vector<std::uint64_t>{});
  }
  if (has_comfy_marker(layout)) {
    const std::uint64_t size = comfy_marker(layout).size();
    all.push_back({WeightPart::marker, stem + ".comfy_quant", "U8", {size}, size});
  }
  return all;
}

std::vector<std::byte> bytes_of(const Layout& layout, const LayoutTensor& tensor, const CodedMatrix& matrix) {
  switch (tensor.part) {
    case WeightPart::codes: return packed(layout, matrix);
    case WeightPart::scale: return scale_bytes(layout, tensor, matrix);
    case WeightPart::global_scale:
      if (!matrix.global) throw std::logic_error("a weight has no global scale");
      return numbers(std::span(&*matrix.global, 1), tensor.dtype);
    case WeightPart::marker: {
      const std::string text = comfy_marker(layout);
      const auto all = std::as_bytes(std::span(text));
      return {all.begin(), all.end()};
    }
  }
  throw std::logic_error("a part of a weight is unknown");
}

}  // namespace fp8lab::experiments
