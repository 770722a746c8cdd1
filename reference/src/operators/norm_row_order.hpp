// SPDX-License-Identifier: Apache-2.0
// The order in which a Hopper chip's kernels add up a row for layernorm and rmsnorm.
//
// Source: Transformer Engine 2.20, common/normalization: ln_fwd_kernels.cuh and rmsnorm_fwd_kernels.cuh, their
// registered shapes in ln_fwd_cuda_kernel.cu and rmsnorm_fwd_cuda_kernel.cu, classes Reducer and Stats in utils.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// A row's mean, and the sum of its squared deviations from it.
struct RowMoments {
  float mean, squares;
};

/// How lanes share a row: they read `per_lane` columns in turns, first the lanes of a warp, then those of the others.
/// Up to 2048 columns a row has one warp, beyond that four of a block, or of two blocks.
class NormRowOrder {
 public:
  static constexpr std::size_t most_columns = 16384;
  enum class Norm : std::uint8_t { layernorm, rmsnorm };

  /// Throws std::invalid_argument for more columns.
  NormRowOrder(Norm norm, const MatrixView& x, const FloatOutput& out);

  /// Whether the kernel is for these columns alone: rows are a multiple of 4, and arrays begin at multiples of 16
  /// bytes, which is taken for granted. Such a kernel of rmsnorm takes moments().
  [[nodiscard]] bool is_tuned() const { return is_tuned_; }
  [[nodiscard]] RowMoments moments(std::span<const float> row) const;
  [[nodiscard]] float sum_of_squares(std::span<const float> row) const;

 private:
  void lay_out_long_rows(Norm norm, const MatrixView& x, bool are_floats);
  /// The columns of a row, given to lanes by turns: add(column, sum of its lane) for each.
  template <typename Add>
  [[nodiscard]] std::vector<float> lanes(std::size_t columns, const Add& add) const;
  [[nodiscard]] float total(std::vector<float> lanes) const;
  [[nodiscard]] RowMoments moments_of_warps(std::span<const float> row) const;

  std::size_t per_lane_ = 0, warps_ = 1, blocks_ = 1;
  bool is_tuned_ = false;
  float inverse_;
};

}  // namespace fp8lab
