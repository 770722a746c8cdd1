// SPDX-License-Identifier: Apache-2.0
// What a recipe makes of the rows of a band, without their codes: for the recipes that most checkpoints are made by.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "check/simd/row_loss.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab::experiments {

/// The matrix that bands are rows of.
struct BandedMatrix {
  std::size_t rows = 0, columns = 0;
  float amax = 0;                ///< of the whole matrix
  Format input_type = binary32;  ///< binary32, binary16 or bfloat16
};

/// Whether an amax, over the scale, is above the format's largest value before it is rounded. As the experiment scaling
/// has it: a scale that is no power of two is rounded, so that the amax that made it may lie 2^-23 above.
[[nodiscard]] bool is_beyond(float amax, float scale_inv, double largest);

/// What quantize() and dequantize() make of finite rows, bit for bit, where a recipe's facts are the usual ones: scales
/// of an amax, of the whole matrix or of tiles whose columns are whole runs of 16, and a cast of products or quotients
/// to nearest even.
class BandLoss {
 public:
  /// Whether the recipe, on such a matrix, is one that add_row() knows.
  [[nodiscard]] static bool knows(const Recipe& recipe, const BandedMatrix& matrix);

  /// Precondition: knows().
  BandLoss(const Recipe& recipe, const BandedMatrix& matrix);

  /// Makes the scales of a band that begins with a tile and has `rows` rows, of the amaxes of their runs, row by row.
  /// False where the code of an element may be no number: quantize() is to be asked then.
  [[nodiscard]] bool make_scales(std::span<const float> runs, std::size_t rows);
  /// The loss of row `row` of the band: magnitudes of finite elements.
  [[nodiscard]] RowLoss add_row(std::size_t row, std::span<const float> magnitudes) const;
  /// The tiles of the band, and those whose amax is beyond the format's largest value.
  [[nodiscard]] std::size_t tiles() const { return factors_.size(); }
  [[nodiscard]] std::size_t clipped_tiles() const;

 private:
  /// The scale of an amax that was met before: weights of bfloat16 have few amaxes, and some rules take long.
  struct KnownScale {
    std::uint32_t amax = 0xFFFFFFFFU;  // the word of no amax
    float factor = 0, multiplier = 0;
  };

  void find_amaxes(std::span<const float> runs, std::size_t rows);
  void scale_all();
  void scale_new_ones(std::size_t first, std::size_t end);
  void make_scales_of(std::span<const std::uint32_t> amaxes, std::span<float> factors, std::span<float> multipliers);

  Recipe recipe_;
  BandedMatrix matrix_;
  TileShape tile_;
  float most_;  // magnitude that elements may be scaled to
  SaturatingCast cast_;
  std::size_t across_ = 1;                  // tiles of a row
  std::array<float, 256> of_scale_code_{};  // what each multiplies with
  std::vector<std::uint32_t> amaxes_;       // of tiles, as words
  std::vector<float> factors_, multipliers_;
  std::vector<std::uint8_t> scale_codes_;
  std::vector<KnownScale> known_;  // empty where scales are made of all amaxes at once
  std::vector<std::uint32_t> new_amaxes_;
  std::vector<std::size_t> new_places_;
  std::vector<float> new_factors_, new_multipliers_;
};

}  // namespace fp8lab::experiments
