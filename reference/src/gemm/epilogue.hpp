// SPDX-License-Identifier: Apache-2.0
// From an accumulator to what the output's type rounds, by a GEMM's recipe.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "fp8lab/reference/gemm/gemm_reading.hpp"
#include "fp8lab/reference/gemm/gemm_recipe.hpp"
#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab {

/// The facts that the arithmetic of a GEMM's elements depends on beside its recipe.
struct GemmGiven {
  std::size_t tile_depth = 0;  ///< of tile scales that multiply at promotions; 0: none
  bool c = false, bias = false;
  float scale_out = 1;
};

/// Scales of the rows of an element in a and in b; 1 where there are none.
struct RowScales {
  float a = 1, b = 1;
};
/// The addends of one element, and the input of the activation whose gradient it is multiplied with.
struct ElementAddends {
  float c = 0, bias = 0, activation_input = 0;
};
/// The same of a row: as many elements, or none.
struct RowAddends {
  std::span<const float> c = {}, bias = {}, activation_input = {};
};

/// A number that the accumulator is multiplied with, or divided by.
struct ScaleFactor {
  float value = 1;
  bool divides = false;
};
[[nodiscard]] inline float times(float x, const ScaleFactor& factor) {
  return factor.divides ? x / factor.value : x * factor.value;
}

/// Both scales of an element or a tile, as a kernel reads them.
class ScalePair {
 public:
  ScalePair(const GemmRecipe& recipe, const GemmReading& reading, float a, float b)
      : first_(read(a, reading.a.scales, recipe.divided)), second_(read(b, reading.b.scales, recipe.divided)) {}

  [[nodiscard]] ScaleFactor first() const { return first_; }
  [[nodiscard]] ScaleFactor second() const { return second_; }
  [[nodiscard]] ScaleFactor product() const {
    const float a = first_.value;
    const float b = second_.value;
    if (first_.divides && second_.divides) return {a * b, true};
    if (first_.divides) return {b / a};
    return {second_.divides ? a / b : a * b};
  }

 private:
  static ScaleFactor read(float scale, ScaleReading reading, bool divided) {
    switch (reading) {
      case ScaleReading::own: break;
      case ScaleReading::missing: return {1};
      case ScaleReading::twice: return {scale * scale};
      case ScaleReading::inverted: return divided ? ScaleFactor{scale, true} : ScaleFactor{1 / scale};
    }
    return {scale};
  }

  ScaleFactor first_, second_;
};

/// The factors of an epilogue, in the order in which they multiply.
struct EpilogueFactors {
  std::array<ScaleFactor, 4> values{};
  std::size_t count = 0;

  void add(const ScaleFactor& factor) { values[count++] = factor; }
  [[nodiscard]] float scaled(float x) const {
    for (std::size_t i = 0; i < count; ++i) x = times(x, values[i]);
    return x;
  }
};

/// The epilogue of one GEMM.
class Epilogue {
 public:
  /// All references must outlive it.
  Epilogue(const GemmRecipe& recipe, const GemmGiven& given, const GemmReading& reading, const TensorScale& a,
           const TensorScale& b);

  /// The factors that multiply the accumulator of an element.
  [[nodiscard]] EpilogueFactors factors(const RowScales& rows) const;
  /// The results of accumulators of one row, in their place; scales of columns are of as many elements, or empty.
  void row(std::span<float> x, float scale_a, std::span<const float> scales_b, const RowAddends& addends) const;
  /// The result of an element's accumulator, before it is rounded to the output.
  [[nodiscard]] float operator()(float accumulator, const RowScales& rows, const ElementAddends& addends) const;

 private:
  /// The addends of an element, in the order in which they are added.
  struct Terms {
    std::array<float, 2> values{};
    std::size_t count = 0;
  };
  [[nodiscard]] Terms terms(const ElementAddends& addends) const;
  [[nodiscard]] float added(float x, const RowScales& rows, const ElementAddends& addends) const;
  [[nodiscard]] float as_output(float x) const;
  void scale_row(std::span<float> x, float scale_a, std::span<const float> scales_b) const;

  const GemmRecipe& recipe_;
  const GemmReading& reading_;
  float tensor_a_, tensor_b_;  // each as one number
  float alpha_;                // of both
  float scale_out_first_;      // that of the output, where it multiplies them
  bool has_divisor_;
  bool adds_c_, adds_bias_;
  bool is_usual_;          // scales multiply, c and the bias are added as they are, and the output's scale multiplies
  ScaleFactor scale_out_;  // at the end
};

}  // namespace fp8lab
