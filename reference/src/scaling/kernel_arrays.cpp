// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/kernel_arrays.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "scaling/quantize_plan.hpp"

namespace fp8lab {
namespace {

/// The recipe with codes stored as the kernel's are.
Recipe stored_as(const KernelArrays& arrays, Recipe recipe) {
  if (!arrays.transposed) return recipe;
  if (arrays.direction == Direction::rowwise) {
    if (*arrays.transposed) refuse("transposed is for columnwise codes: rowwise ones lie along K as they are");
    return recipe;
  }
  if (!*arrays.transposed && recipe.format.bits() == 4) {
    refuse("transposed: columnwise codes of 4 bits are those of the transpose, so that a byte has two along K");
  }
  if (recipe.format.bits() != 4) recipe.transposed_columnwise = *arrays.transposed;
  return recipe;
}

void check_tensor(std::size_t rows, std::size_t columns) {
  if (rows == 0 || columns == 0 || rows > std::numeric_limits<std::size_t>::max() / columns) {
    refuse("rows and columns must be 1 or more, not ", rows, " x ", columns);
  }
}

/// Sizes of a Quantized by its plan.
void set_sizes(Quantized& q, const QuantizePlan& plan) {
  q.format = plan.format;
  q.transposed = plan.transposed;
  const std::size_t high = plan.uniform ? 1 : blocks_of(q.rows, plan.scale_height(q.direction));
  const std::size_t wide = plan.uniform ? 1 : blocks_of(q.columns, plan.scale_width(q.direction));
  q.scale_rows = plan.transposed ? wide : high;
  q.scale_columns = plan.transposed ? high : wide;
}

void check_size(const char* what, std::size_t size, std::size_t wanted, const std::string& why) {
  if (size != wanted) refuse(what, " must have ", wanted, " elements, ", why, ", not ", size);
}

std::string shape_of(std::size_t rows, std::size_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

/// Scales of one byte in the layout of a Quantized.
std::vector<std::uint8_t> compact_codes(const KernelArrays& arrays, const Quantized& q) {
  // Rows of these layouts lie across K.
  const bool turned = q.direction == Direction::columnwise && !q.transposed;
  const std::size_t across = turned ? q.scale_columns : q.scale_rows;
  const std::size_t along = turned ? q.scale_rows : q.scale_columns;
  const std::string why = "those of " + shape_of(across, along) + " scales";
  std::vector<std::uint8_t> codes;
  switch (arrays.layout) {
    case StoredScales::compact:
      check_size("scale_codes", arrays.scale_codes.size(), across * along,
                 shape_of(q.scale_rows, q.scale_columns) + " for these tiles");
      return {arrays.scale_codes.begin(), arrays.scale_codes.end()};
    case StoredScales::padded: {
      check_size("padded scale_codes", arrays.scale_codes.size(), swizzled_size(across, along), why);
      if (!turned) return unpad_scales(arrays.scale_codes, across, along);
      const std::size_t stride = (across + 127) / 128 * 128;
      for (std::size_t row = 0; row < along; ++row) {
        const auto line = arrays.scale_codes.subspan(row * stride, across);
        codes.insert(codes.end(), line.begin(), line.end());
      }
      return codes;
    }
    case StoredScales::swizzled: break;
  }
  check_size("swizzled scale_codes", arrays.scale_codes.size(), swizzled_size(across, along), why);
  std::vector<std::uint8_t> rows = unswizzle_scales(arrays.scale_codes, across, along);
  if (!turned) return rows;
  codes.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) codes[i % along * across + i / along] = rows[i];
  return codes;
}

void set_scales(Quantized& q, const KernelArrays& arrays) {
  const Format format = scale_format_of(q.recipe);
  const bool has_codes = format != binary32;
  if (has_codes && !arrays.scale_inv.empty()) {
    refuse("scale_inv is given, and the recipe's scales are ", format_name(format), " codes");
  }
  if (!has_codes && !arrays.scale_codes.empty()) {
    refuse("scale_codes are given, and the recipe's scales are float32 numbers");
  }
  if (has_codes) {
    q.scale_codes = compact_codes(arrays, q);
    return;
  }
  if (arrays.layout != StoredScales::compact) refuse("padded and swizzled are layouts of scale codes, not of float32");
  check_size("scale_inv", arrays.scale_inv.size(), q.scale_rows * q.scale_columns,
             shape_of(q.scale_rows, q.scale_columns) + " for these tiles");
  q.scale_inv.assign(arrays.scale_inv.begin(), arrays.scale_inv.end());
}

void check_scales(const Quantized& q, bool allow_special) {
  const std::string hint = ": say that special scales are allowed where the recipe makes such";
  for (std::size_t i = 0; i < q.scale_inv.size(); ++i) {
    const float scale = q.scale_inv[i];
    if (scale < 0) refuse("scale ", i, " of scale_inv is ", scale, ": no scale is negative");
    if (!std::isfinite(scale) && !allow_special) {
      refuse("scale ", i, " of scale_inv is ", std::isnan(scale) ? "NaN" : "infinite", hint);
    }
  }
  for (std::size_t i = 0; i < q.row_amaxes.size(); ++i) {
    const float amax = q.row_amaxes[i];
    if (amax < 0 || (!std::isfinite(amax) && !allow_special)) {
      refuse("row_amaxes must be finite, and 0 or above, not ", amax, " as number ", i);
    }
  }
  const std::uint8_t nan = q.recipe.scale_type == ScaleType::e8m0_code ? 0xFF : 0x7F;
  const auto found = std::ranges::find(q.scale_codes, nan);
  if (!allow_special && found != q.scale_codes.end()) {
    refuse("scale ", found - q.scale_codes.begin(), " of scale_codes is NaN", hint);
  }
}

/// The amax of the tensor, where it is given or needed.
float tensor_amax(const KernelArrays& arrays, const Recipe& recipe) {
  const bool has_scale = arrays.tensor_scale || arrays.tensor_scale_inv;
  if (recipe.tensor_scale_for_each_row) {
    if (arrays.amax || has_scale) refuse("each row has a tensor's scale of its own: row_amaxes must be given alone");
    return 0;
  }
  if (!arrays.row_amaxes.empty()) refuse("row_amaxes are for recipes where each row has a scale over those of tiles");
  if (has_scale && !has_tensor_scale(recipe)) {
    refuse(
        "tensor_scale and tensor_scale_inv are for recipes with a scale of the tensor over those of tiles, as NVFP4");
  }
  if (has_scale && arrays.amax) refuse("an amax makes the tensor's scale: give the one or the other");
  if (has_tensor_scale(recipe) && !has_scale && !arrays.amax) {
    refuse("the recipe has a scale of the tensor: amax, tensor_scale or tensor_scale_inv must be given");
  }
  const float amax = arrays.amax.value_or(0);
  if (amax < 0 || (!std::isfinite(amax) && !arrays.allow_special_scales)) {
    refuse("amax must be finite, and 0 or above, not ", amax);
  }
  return amax;
}

/// A scale of the tensor that is given; 0 if it is not.
float given_scale(const char* called, const std::optional<float>& scale) {
  if (scale && (!std::isfinite(*scale) || *scale <= 0)) refuse(called, " must be positive and finite, not ", *scale);
  return scale.value_or(0);
}

}  // namespace

std::span<const Named<StoredScales>> named_values(StoredScales /*any*/) {
  static constexpr std::array stored_scales{Named{"compact", StoredScales::compact},
                                            Named{"padded", StoredScales::padded},
                                            Named{"swizzled", StoredScales::swizzled}};
  static_assert(is_in_order(stored_scales));
  return stored_scales;
}

Quantized quantized_from(const KernelArrays& arrays, const Recipe& recipe) {
  const DefaultEnvironment environment;
  // 1. What the arrays must be.
  check_tensor(arrays.rows, arrays.columns);
  Quantized q;
  q.recipe = stored_as(arrays, recipe);
  q.direction = arrays.direction;
  q.rows = arrays.rows;
  q.columns = arrays.columns;
  set_sizes(q, quantize_plan(q.recipe, q.direction, q.rows, q.columns));
  // 2. What they are.
  const std::size_t bytes = q.rows * q.columns / (q.format.bits() == 4 ? 2 : 1);
  check_size("codes", arrays.codes.size(), bytes, "a tensor of " + shape_of(q.rows, q.columns));
  q.codes.assign(arrays.codes.begin(), arrays.codes.end());
  set_scales(q, arrays);
  q.amax = tensor_amax(arrays, q.recipe);
  q.tensor_scale = given_scale("tensor_scale", arrays.tensor_scale);
  q.tensor_scale_inv = given_scale("tensor_scale_inv", arrays.tensor_scale_inv);
  if (q.recipe.tensor_scale_for_each_row) {
    check_size("row_amaxes", arrays.row_amaxes.size(), q.scale_rows, "one for every row along K");
    q.row_amaxes.assign(arrays.row_amaxes.begin(), arrays.row_amaxes.end());
  }
  check_scales(q, arrays.allow_special_scales);
  check_quantized(q);
  return q;
}

}  // namespace fp8lab
