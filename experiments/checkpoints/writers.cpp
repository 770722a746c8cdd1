// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/writers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <type_traits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"

namespace fp8lab::experiments {

namespace {

constexpr std::array<std::string_view, 13> mx_recipes_of_writers{"ocp_mxfp4",
                                                                 "ocp_mxfp8_e4m3",
                                                                 "modelopt_mxfp4",
                                                                 "modelopt_mxfp8",
                                                                 "quark_mxfp4",
                                                                 "compressed_tensors_mxfp4",
                                                                 "quark_mxfp8",
                                                                 "compressed_tensors_mxfp8",
                                                                 "torchao_mxfp8_rceil",
                                                                 "torchao_mxfp4_rceil",
                                                                 "transformers_mxfp8",
                                                                 "torchao_mxfp8_floor",
                                                                 "compressed_tensors_mxfp6"};
constexpr std::array<std::string_view, 5> nvfp4_recipes_of_writers{
    "modelopt_nvfp4", "compressed_tensors_nvfp4", "torchao_nvfp4", "quark_nvfp4", "modelopt_nvfp4_static"};

constexpr std::size_t elements_a_look = std::size_t{1} << 16;  ///< between two looks for Ctrl-C
constexpr CastPolicy nearest_within{.overflow = Overflow::saturate};

std::vector<float> floats_of(const MatrixView& view) {
  std::vector<float> wide;
  wide.reserve(view.size());
  view.visit([&]<typename T>(std::span<const T> values) {
    if constexpr (std::is_same_v<T, double>) {
      wide.assign(values.begin(), values.end());
    } else {
      for (const T value : values) {
        if (wide.size() % elements_a_look == 0) checkpoint();
        wide.push_back(widened(value));
      }
    }
  });
  return wide;
}
float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Source: comfy-kitchen 0.2.40, TensorCoreFP8Layout.quantize of a bfloat16 tensor.
CodedMatrix comfy_float8_matrix(const ExpectedMatrix& expected) {
  const std::vector<float> x = floats_of(expected.original);
  CodedMatrix matrix{.format = e4m3, .rows = expected.original.rows(), .columns = expected.original.columns()};
  matrix.block_rows = matrix.rows;
  matrix.block_columns = matrix.columns;
  const float scale = nearest_bfloat16(expected.group_amax.value_or(largest_magnitude(x)) / 448);
  const float inverse = nearest_bfloat16(1 / scale);
  matrix.scales = {scale};
  matrix.codes.resize(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % elements_a_look == 0) checkpoint();
    const float y = nearest_bfloat16(x[i] * inverse);
    matrix.codes[i] = static_cast<std::uint8_t>(encode(e4m3, nearest_within, y));
  }
  return matrix;
}

/// Source: comfy-kitchen 0.2.40, TensorCoreNVFP4Layout.quantize of a bfloat16 tensor.
CodedMatrix comfy_nvfp4_matrix(const ExpectedMatrix& expected) {
  constexpr std::size_t block = 16;
  const std::vector<float> x = floats_of(expected.original);
  CodedMatrix matrix{.format = e2m1, .rows = expected.original.rows(), .columns = expected.original.columns()};
  matrix.block_columns = block;
  const float of_tensor = nearest_bfloat16(expected.group_amax.value_or(largest_magnitude(x)) / 2688);
  matrix.global = of_tensor;
  matrix.codes.resize(x.size());
  for (std::size_t first = 0; first < x.size(); first += block) {
    if (first % elements_a_look == 0) checkpoint();
    const std::span<const float> values = std::span(x).subspan(first, block);
    const float quotient = std::min(largest_magnitude(values) / 6 / of_tensor, 448.0F);
    const float scale = decode(e4m3, encode(e4m3, nearest_within, quotient));
    matrix.scales.push_back(scale);
    const float divisor = of_tensor * scale;
    for (std::size_t i = 0; i < block; ++i) {
      const float y = divisor == 0 ? 0 : values[i] / divisor;
      matrix.codes[first + i] = static_cast<std::uint8_t>(encode(e2m1, nearest_within, y));
    }
  }
  return matrix;
}

/// E4M3 by the rule, then as engines turn it into E4M3 FNUZ: the same bytes, which stand for half, and a doubled scale.
/// Source: vllm 0.33.0, normalize_e4m3fn_to_e4m3fnuz; amd-quark 0.13, torch/utils/device.py:e4m3fn_to_e4m3fnuz.
CodedMatrix converted_fnuz_matrix(const ExpectedMatrix& expected) {
  ExpectedMatrix before = expected;
  before.recipe.format = e4m3;
  before.make = nullptr;
  CodedMatrix matrix = quantized_as(before);
  matrix.format = e4m3fnuz;
  for (std::uint8_t& code : matrix.codes) {
    const bool is_nan = (code & 0x7FU) == 0x7FU;
    if (is_nan || code == 0x80) code = is_nan ? 0x80 : 0;  // -0 becomes +0
  }
  for (float& scale : matrix.scales) scale *= 2;
  return matrix;
}

/// A recipe of rows by columns.
CodedMatrix by_columns(const ExpectedMatrix& expected) {
  const std::size_t rows = expected.original.rows();
  const std::size_t columns = expected.original.columns();
  CodedMatrix turned;
  expected.original.visit([&]<typename T>(std::span<const T> values) {
    std::vector<T> transposed(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) transposed[i % columns * rows + i / columns] = values[i];
    ExpectedMatrix of_rows = expected;
    of_rows.original = MatrixView(std::span<const T>(transposed), columns, rows);
    of_rows.make = nullptr;
    turned = quantized_as(of_rows);
  });
  CodedMatrix matrix = turned;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.block_rows = rows;
  matrix.block_columns = 1;
  for (std::size_t i = 0; i < turned.codes.size(); ++i) {
    matrix.codes[i] = turned.codes[i % columns * rows + i / columns];
  }
  return matrix;
}

using Maker = CodedMatrix (*)(const ExpectedMatrix&);

class Rules {
 public:
  explicit Rules(const Weight& weight) : weight_(weight), layout_(*weight.layout) {}

  std::vector<Writer> all() {
    for (const std::string_view name : layout_.recipes) named(name);
    if (layout_.family == Family::compressed_tensors && layout_.format == e4m3) without_zero_point();
    if (layout_.family == Family::comfyui && layout_.scale_type != ScaleType::e8m0) comfy();
    if (layout_.format == e4m3fnuz) {
      writers_.push_back({"amax / 448 in float32, codes of E4M3 read as E4M3 FNUZ, scales doubled",
                          {"converted_fnuz"},
                          plain(),
                          converted_fnuz_matrix});
    }
    switch (layout_.scale_type) {
      case ScaleType::number: numbers(); break;
      case ScaleType::e8m0: powers(); break;
      case ScaleType::e4m3:
      case ScaleType::ue4m3: blocks_of_16(); break;
    }
    return std::move(writers_);
  }

 private:
  void add(std::string name, std::string_view key, Recipe recipe) {
    recipe.whole_tiles = recipe.pads_tiles = false;
    if (recipe.format != layout_.format || !is_valid(recipe) || !has_scales_of_layout(recipe)) return;
    const Maker make = layout_.grouping == Grouping::column ? by_columns : nullptr;
    const auto same = std::ranges::find_if(
        writers_, [&](const Writer& writer) { return writer.recipe == recipe && writer.make == make; });
    if (same == writers_.end()) {
      writers_.push_back({std::move(name), {key}, recipe, make});
    } else if (std::ranges::find(same->keys, key) == same->keys.end()) {
      same->keys.push_back(key);
    }
  }
  void named(std::string_view name) { add(std::string(name), name, find_recipe(name).recipe); }
  /// Recipes of one system may be of other blocks than the layout.
  [[nodiscard]] bool has_scales_of_layout(const Recipe& recipe) const {
    const Recipe own = plain();
    return recipe.tile_across == own.tile_across && recipe.tile_along == own.tile_along;
  }

  /// compressed-tensors adds a zero point of 0 where it has one, which makes +0 of -0; today's files have none.
  void without_zero_point() {
    for (const std::string_view name : layout_.recipes) {
      Recipe recipe = find_recipe(name).recipe;
      recipe.operation =
          recipe.operation == TileOperation::divide_then_add_zero ? TileOperation::divide : TileOperation::multiply;
      add(std::string(name) + " without a zero point", "no_zero_point", recipe);
    }
  }

  /// A recipe with the blocks, format and scales of the layout.
  [[nodiscard]] Recipe plain() const {
    Recipe recipe{.quotient = Quotient::amax_over_largest,
                  .zero_amax = SpecialScale::one,
                  .operation = TileOperation::divide,
                  .format = layout_.format};
    switch (layout_.grouping) {
      case Grouping::tensor: break;
      case Grouping::row:
      case Grouping::column: recipe.tile_across = 1; break;  // by_columns() turns the matrix
      case Grouping::block:
        recipe.tile_across = weight_.block_rows;
        recipe.tile_along = weight_.group;
        break;
      case Grouping::group:
        recipe.tile_across = 1;
        recipe.tile_along = weight_.group;
        break;
    }
    return recipe;
  }

  /// By functions of their own: no recipe rounds an inverse to bfloat16, or the tensor's scale.
  void comfy() {
    if (layout_.scale_type == ScaleType::number) {
      writers_.push_back({"comfy-kitchen: amax / 448 in bfloat16, products with its inverse in bfloat16",
                          {"comfy_kitchen"},
                          plain(),
                          comfy_float8_matrix});
    } else {
      writers_.push_back({"comfy-kitchen: amax / 2688 in bfloat16, E4M3 of amax / 6 over it, codes of x over both",
                          {"comfy_kitchen"},
                          find_recipe("torchao_nvfp4").recipe,
                          comfy_nvfp4_matrix});
    }
  }

  /// FBGEMM's, whose factor is at most 448 * 512.
  void add_fbgemm() {
    Recipe capped = plain();
    capped.quotient = Quotient::largest_over_amax;
    capped.operation = TileOperation::multiply;
    capped.least_amax = 1.0 / 512;
    capped.zero_amax = SpecialScale::computed;
    add("448 / amax in float32, at most 448 * 512", "fbgemm", capped);
  }

  void numbers() {
    // 1. amax / 448 in float32; DeepSeek's floor of the amax; quotients rounded to the type of the tensor.
    if (layout_.family == Family::fbgemm) add_fbgemm();
    const Recipe in_float32 = plain();
    add("amax / 448 in float32", "float32", in_float32);
    Recipe floored = in_float32;
    floored.least_amax = 1e-4;
    floored.least_amax_type = ScaleArithmetic::float32;
    add("amax / 448 in float32, amax at least 1e-4", "float32_floor", floored);
    Recipe rounded = in_float32;
    rounded.product = ScaleArithmetic::input_type;
    add("amax / 448 in float32, quotients in the tensor's type", "float32_scale", rounded);
    rounded.arithmetic = ScaleArithmetic::input_type;
    add("amax / 448 and quotients in the tensor's type", "input_type", rounded);
    rounded.product = ScaleArithmetic::float32;
    add("amax / 448 in the tensor's type", "input_type_scale", rounded);
    Recipe quark = in_float32;  // amd-quark 0.13, observer.py: a tensor of zeros
    quark.zero_amax = SpecialScale::epsilon;
    if (layout_.family == Family::quark) add("amax / 448 in float32, 2^-23 of zeros", "quark", quark);
    add_fbgemm();
    // 2. Powers of two as float32.
    for (Recipe power : {in_float32, floored}) {
      power.rounding = ScaleRounding::up;
      add(power.least_amax == 0 ? "amax / 448, up to a power of two"
                                : "amax / 448, amax at least 1e-4, up to a power of two",
          power.least_amax == 0 ? "power_of_two" : "power_of_two_floor", power);
    }
  }

  void powers() {
    for (const std::string_view name : mx_recipes_of_writers) named(name);
    // Powers of two for blocks of any size, DeepSeek's floor among them. ggml takes the first of the nearest codes.
    Recipe up = plain();
    up.scale_type = fp8lab::ScaleType::e8m0_code;
    up.operation = TileOperation::multiply;  // by an exact inverse
    up.rounding = ScaleRounding::up;
    up.zero_amax = SpecialScale::smallest;
    add("amax over the largest value, up to a power of two", "power_of_two", up);
    Recipe floored = up;
    floored.least_amax = 1e-4;
    add("amax over the largest value, amax at least 1e-4, up to a power of two", "power_of_two_floor", floored);
    Recipe down = up;
    down.quotient = Quotient::amax_over_power;
    down.rounding = ScaleRounding::down;
    down.cast.rounding = Rounding::nearest_toward_zero;
    down.cast.zero_sign = ZeroSign::dropped;
    add("ggml: down to a power of two, ties toward zero", "ggml", down);
  }

  void blocks_of_16() {
    for (const std::string_view name : nvfp4_recipes_of_writers) named(name);
  }

  const Weight& weight_;
  const Layout& layout_;
  std::vector<Writer> writers_;
};

}  // namespace

std::vector<Writer> writers_of(const Weight& weight) { return Rules(weight).all(); }

std::vector<std::string_view> layouts_to_write() {
  std::vector<std::string_view> names;
  for (const Layout& layout : all_layouts()) {
    if (!layout.writer.empty()) names.push_back(layout.name);
  }
  return names;
}

Writer find_writer(const Weight& weight, std::string_view key) {
  const std::string_view wanted = key.empty() ? weight.layout->writer : key;
  std::vector<std::string_view> known;
  for (const Writer& writer : writers_of(weight)) {
    if (std::ranges::find(writer.keys, wanted) != writer.keys.end()) return writer;
    known.insert(known.end(), writer.keys.begin(), writer.keys.end());
  }
  refuse_name("recipe of " + std::string(weight.layout->name), wanted, known);
}

}  // namespace fp8lab::experiments
