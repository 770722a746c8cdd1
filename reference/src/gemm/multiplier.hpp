// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "gemm/factors.hpp"

namespace fp8lab {

inline constexpr std::size_t tile_columns = 64;
inline constexpr std::size_t tile_rows = 2;

/// Some rows of a product while instruction after instruction is added to them. Accumulators are float32 numbers, also
/// those of binary16; a NaN has any sign and payload.
class RowBlock {
 public:
  RowBlock() = default;
  RowBlock(const RowBlock&) = delete;
  RowBlock& operator=(const RowBlock&) = delete;
  virtual ~RowBlock() = default;
  /// Makes instruction number `instruction` of the block's rows row and row + 1 (of one row, where the block ends
  /// there) and of the columns of a tile; accumulators are tile_columns a row.
  virtual void advance(std::size_t row, std::size_t tile, std::size_t instruction, float* accumulators0,
                       float* accumulators1) = 0;
};

/// The instructions of a product a * b^T, in one of two ways that give the same bits.
class Multiplier {
 public:
  Multiplier() = default;
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;
  virtual ~Multiplier() = default;
  /// Rows [first, first + count) of a. May be called, and its results used, from several threads.
  [[nodiscard]] virtual std::unique_ptr<RowBlock> rows(std::size_t first, std::size_t count) const = 0;
};

/// Element by element, by mma_instruction(). The readers must outlive it.
[[nodiscard]] std::unique_ptr<Multiplier> scalar_multiplier(const FactorReader& a, const FactorReader& b,
                                                            ZeroRule zero_rule);

/// Whether vector code computes the model's instructions under the rule, given accumulators that are zero or no less
/// than least_vector_accumulator().
[[nodiscard]] bool has_vector_multiplier(const MmaModel& model, ZeroRule zero_rule);
[[nodiscard]] float least_vector_accumulator(const MmaModel& model, ZeroRule zero_rule);
/// Multiplies by vector code. Packs b, on `threads` threads. Precondition: has_vector_multiplier().
[[nodiscard]] std::unique_ptr<Multiplier> vector_multiplier(const FactorReader& a, const FactorReader& b,
                                                            ZeroRule zero_rule, int threads);

}  // namespace fp8lab
