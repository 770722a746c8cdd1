// SPDX-License-Identifier: Apache-2.0
// The elements of a GEMM one by one, by any recipe: what the fast path does not compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gemm/epilogue.hpp"
#include "gemm/plain_rows.hpp"

namespace fp8lab {

/// c and the bias of all elements.
struct GemmAddends {
  std::span<const float> c = {}, bias = {};
  std::size_t rows = 0, columns = 0;
};
/// c and the bias as element (row, column) gets them.
[[nodiscard]] ElementAddends addends_of(const GemmReading& reading, const GemmAddends& addends, std::size_t row,
                                        std::size_t column);

/// The recipe with the promotion of tiles and the length of ranges written out, for operands of that K: `tile_depth` is
/// that of scales that multiply at promotions, or 0.
[[nodiscard]] GemmRecipe resolved(GemmRecipe recipe, std::size_t depth, std::size_t tile_depth);

/// Some elements: the partial sums of each, as partial_sums() gives them, and their factors' scales.
struct GemmSums {
  std::span<const float> partials;
  const PlainRows& a;
  const PlainRows& b;

  [[nodiscard]] RowScales rows(std::size_t entry) const { return {a.row_scale(entry), b.row_scale(entry)}; }
};

// Recipes are resolved() from here on.

/// Elements of K in each partial sum that the recipe is made of.
[[nodiscard]] std::size_t partial_length(const GemmRecipe& recipe, std::size_t depth);
/// Accumulators of pieces of K by the recipe, as partial_sums() has them; `starts` is c of the elements.
[[nodiscard]] std::vector<float> partial_sums_by(const GemmRecipe& recipe, PlainRows& a, PlainRows& b,
                                                 std::span<const float> starts);

/// The arithmetic of one GEMM after its partial sums.
class ElementGemm {
 public:
  /// All references must outlive it.
  ElementGemm(const GemmRecipe& recipe, const GemmGiven& given, const GemmReading& reading, const TensorScale& a,
              const TensorScale& b)
      : recipe_(recipe), given_(given), reading_(reading), epilogue_(recipe, given, reading, a, b) {}

  /// The accumulator of element `entry` before the epilogue.
  [[nodiscard]] float accumulated(const GemmSums& sums, std::size_t entry, const ElementAddends& addends) const;
  /// Its result, before it is rounded to the output.
  [[nodiscard]] float finished(const GemmSums& sums, std::size_t entry, const ElementAddends& addends,
                               float accumulator) const {
    return epilogue_(accumulator, sums.rows(entry), addends);
  }

 private:
  [[nodiscard]] float promoted(float sum, float x, const ScalePair& scales) const;
  [[nodiscard]] float with_partial(const GemmSums& sums, std::size_t entry, std::size_t length, std::size_t j,
                                   float sum) const;

  const GemmRecipe& recipe_;
  const GemmGiven& given_;
  const GemmReading& reading_;
  Epilogue epilogue_;
};

/// The accumulators of a product whose recipe the fast path does not have.
class SlowGemm {
 public:
  /// The recipe must have been checked; all must outlive it.
  SlowGemm(const GemmRecipe& recipe, const GemmGiven& given, const Operand& a, const Operand& b,
           std::span<const float> c);
  /// How many rows to ask for at a time.
  [[nodiscard]] static std::size_t block_rows() { return 4; }
  /// Rows [first, first + count), in the default floating-point environment; a NaN is any.
  void rows(std::size_t first, std::size_t count, std::span<float> out) const;

 private:
  void some(std::span<const std::size_t> left, std::span<const std::size_t> right, std::span<float> out) const;

  GemmRecipe recipe_;
  GemmGiven given_;
  GemmReading reading_;
  Operand a_, b_;
  std::span<const float> c_;
  std::size_t tiles_as_blocks_ = 0;
};

}  // namespace fp8lab
