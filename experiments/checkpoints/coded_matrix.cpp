// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/coded_matrix.hpp"

#include <algorithm>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab::experiments {

namespace {

/// The blocks of a recipe: 0 stands for all elements.
std::size_t length_or_all(std::size_t length, std::size_t all) { return length == 0 ? all : std::min(length, all); }

}  // namespace

CodedMatrix coded_matrix(const Quantized& quantized, const Format& input_type, bool global_divides) {
  const Recipe& recipe = quantized.recipe;
  CodedMatrix matrix{.format = quantized.format, .rows = quantized.rows, .columns = quantized.columns};
  matrix.block_rows = length_or_all(recipe.tile_across, matrix.rows);
  matrix.block_columns = length_or_all(recipe.tile_along, matrix.columns);
  matrix.scales_are_powers = recipe.scale_type == fp8lab::ScaleType::e8m0_code;
  matrix.codes.resize(matrix.rows * matrix.columns);
  if (quantized.format.bits() == 4) {
    for (std::size_t i = 0; i < matrix.codes.size(); ++i) {
      matrix.codes[i] = static_cast<std::uint8_t>(quantized.codes[i / 2] >> (i % 2 * 4) & 15);
    }
  } else {
    std::ranges::copy(quantized.codes, matrix.codes.begin());
  }
  if (quantized.scale_codes.empty()) {
    matrix.scales = quantized.scale_inv;
  } else {
    const Format stored = matrix.scales_are_powers ? e8m0 : e4m3;
    for (const std::uint8_t code : quantized.scale_codes) matrix.scales.push_back(decode(stored, code));
  }
  if (recipe.tensor_scale != TensorScaleRule::none) {
    const ScaleConstants constants = scale_constants(recipe, {.amax = quantized.amax,
                                                              .input_type = input_type,
                                                              .tensor_scale = quantized.tensor_scale,
                                                              .tensor_scale_inv = quantized.tensor_scale_inv});
    matrix.global = global_divides ? constants.tensor_scale : constants.tensor_scale_inv;
    matrix.global_divides = global_divides;
  }
  return matrix;
}

float factor_of(const CodedMatrix& matrix, float scale) {
  if (!matrix.global) return scale;
  return matrix.global_divides ? scale / *matrix.global : scale * *matrix.global;
}

std::vector<float> code_values(const Format& format) {
  std::vector<float> of_code(256);
  for (unsigned code = 0; code < 256; ++code) of_code[code] = decode(format, format.bits() == 4 ? code & 15 : code);
  return of_code;
}

std::vector<float> values_of(const CodedMatrix& matrix) {
  std::vector<float> values(matrix.codes.size());
  const std::vector<float> of_code = code_values(matrix.format);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    for (std::size_t column = 0; column < matrix.columns; ++column) {
      const std::size_t i = row * matrix.columns + column;
      values[i] = of_code[matrix.codes[i]] * factor_of(matrix, matrix.scale_of(row, column));
    }
  }
  return values;
}

float nearest_bfloat16(float x) { return decode(bfloat16, encode(bfloat16, ieee_policy, x)); }

}  // namespace fp8lab::experiments
