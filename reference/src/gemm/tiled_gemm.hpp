// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "gemm/multiplier.hpp"

namespace fp8lab {

/// Whether the scales of the operand's tiles multiply at promotions: a model that has block scales makes such of them.
[[nodiscard]] bool promotes_tiles(const MmaModel& model, const Operand& operand);
/// The elements of K after which accumulators are promoted: those of a tile, or else promote_k.
[[nodiscard]] std::size_t promotion_depth(const MmaModel& model, const Operand& a, const Operand& b, int promote_k);

/// A product of many instructions: from their accumulators to the float32 sum that the epilogue gets.
///
/// Ranges of K one after the other; in each, instructions of ascending K, and where accumulators are promoted, after
/// every promote_k of them one addition in float32.
class TiledGemm {
 public:
  /// The recipe must have been checked, and be one that slow_because() finds nothing in; all must outlive it. `c` is
  /// what the accumulation starts from, or empty.
  TiledGemm(const FactorReader& a, const FactorReader& b, const GemmRecipe& recipe, std::span<const float> c,
            int threads);
  /// How many rows to ask for at a time.
  [[nodiscard]] std::size_t block_rows() const;
  /// Rows [first, first + count), in the default floating-point environment; a NaN is any. count <= block_rows().
  void rows(std::size_t first, std::size_t count, std::span<float> out) const;

 private:
  struct Range {
    std::size_t first, last;  // instructions
  };
  class Tile;

  [[nodiscard]] std::vector<Range> instructions_of(const GemmRecipe& recipe) const;
  /// Adds a row's accumulators to its promoted sums, after instruction number `instruction`, and clears them.
  void promote(std::size_t row, std::size_t tile, std::size_t instruction, float* accumulators, float* sums) const;
  /// Starts the accumulation of a tile from c in some rows.
  void start(std::span<const float> c, std::size_t tile, Tile& state) const;
  void accumulate(const Range& range, std::size_t first, std::size_t count, std::size_t tile, RowBlock& block,
                  Tile& state) const;

  const Operand& a_;
  const Operand& b_;
  MmaModel model_;
  bool promotes_tiles_;
  std::size_t promote_k_;
  ScaleOrder scale_order_;
  std::vector<float> right_scales_;  // of the rows of b, promotion by promotion; empty without tile scales
  std::span<const float> c_;         // where the accumulation starts from c
  bool scalar_if_tiny_;              // vector code does not take tiny accumulators
  std::vector<Range> ranges_;
  std::vector<std::size_t> order_;  // the order in which the ranges' sums are added
  std::unique_ptr<Multiplier> scalar_, vector_;
};

}  // namespace fp8lab
