// SPDX-License-Identifier: Apache-2.0
// The order in which a Hopper chip's kernels add up the gradients of norms.
//
// Source: Transformer Engine 2.20, common/normalization: ln_bwd_kernels.cuh and rmsnorm_bwd_kernels.cuh, their
// registered shapes in ln_bwd_semi_cuda_kernel.cu and rmsnorm_bwd_semi_cuda_kernel.cu, class Reducer in utils.cuh.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/formats/matrix_view.hpp"

namespace fp8lab {

/// Which of the families of kernels.
enum class NormGradientKind : std::uint8_t { layernorm, rmsnorm, rmsnorm_add };

/// A kernel: how its warps share the rows and columns of a matrix. Blocks take turns: block b has rows b rows_of_block
/// to (b + 1) rows_of_block - 1, a row for each of four warps or one row for all, then those that lie
/// blocks rows_of_block below. Several blocks share a row of more than 4096 columns; they count as one here.
class NormGradientOrder {
 public:
  static constexpr std::size_t most_columns = 16384;

  /// Throws std::invalid_argument for more columns, and for types of x, gamma and grad that no kernel takes together.
  NormGradientOrder(NormGradientKind kind, const MatrixView& x, const MatrixView& gamma, const MatrixView& grad);

  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  /// Whether dx of layernorm is made of both means, and not of one of them and a fused product with the other's sum:
  /// nvcc 13.0 fuses the latter in the kernel whose lanes read a row at once.
  [[nodiscard]] bool has_means() const { return !reads_row_at_once_; }
  /// Whether the products that dgamma is the sum of are rounded before they are added, but for those of
  /// is_fused(column).
  [[nodiscard]] bool rounds_products() const { return rounds_products_; }
  /// Whether such a kernel fuses this column's product and sum: that of each lane's first element, without the 1 of a
  /// zero-centred gamma.
  [[nodiscard]] bool is_fused(std::size_t column, bool zero_centered_gamma) const {
    return !zero_centered_gamma && column % per_lane_ == 0 && column < 32 * warps_of_row_ * blocks_of_row_ * per_lane_;
  }
  [[nodiscard]] std::size_t rows_of_block() const { return warps_of_row_ == 1 ? 4 : 1; }

  /// The sum along a row of add(i, sum so far) of a lane, for all columns.
  template <typename Add>
  [[nodiscard]] float sum_of_row(const Add& add) const {
    std::array<float, most_lanes> lanes{};
    const std::size_t count = 32 * warps_of_row_ * blocks_of_row_;
    for (std::size_t first = 0, lane = 0; first < columns_;
         first += per_lane_, lane = lane + 1 == count ? 0 : lane + 1) {
      float sum = lanes[lane];
      const std::size_t last = std::min(first + per_lane_, columns_);
      for (std::size_t i = first; i < last; ++i) sum = add(i, sum);
      lanes[lane] = sum;
    }
    return warps_of_row_ == 1 ? sum_of_warp(lanes.data()) : sum_of_warps(lanes);
  }
  /// out = for each column the sum of a block's warps, of which each has padded(columns) sums behind those of the last.
  void sum_of_block(std::span<const float> warps, std::span<float> out) const;
  /// out = for each column the sum of all blocks.
  void sum_of_blocks(std::span<const float> blocks, std::span<float> out) const;

 private:
  /// Lanes add those of their partner, at a distance of 1, 2, 4, 8 and 16.
  static float sum_of_warp(float* lanes);
  static constexpr std::size_t most_lanes = 640;  ///< five blocks of four warps
  /// Each warp adds lanes at a distance of 16, 8, 4, 2 and 1; then the sums of a block's warps follow each other, and
  /// blocks are added as the lanes of a warp are.
  float sum_of_warps(std::array<float, most_lanes>& lanes) const;

  std::size_t columns_;
  bool is_tuned_ = false;
  bool reads_row_at_once_ = false;
  bool rounds_products_ = false;
  std::size_t per_lane_ = 0;  ///< elements that a lane reads at a time
  std::size_t warps_of_row_ = 1;
  std::size_t blocks_of_row_ = 1;
  std::size_t blocks_ = 0;
};

}  // namespace fp8lab
