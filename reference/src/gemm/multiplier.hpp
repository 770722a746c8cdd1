// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "tensor_core/factors.hpp"

namespace fp8lab {

inline constexpr std::size_t tile_columns = 64;
inline constexpr std::size_t tile_rows = 2;
inline constexpr std::size_t most_block_rows = 64;  // a tile's factors are read once for all of them
inline constexpr float tiny_accumulator = 0x1p-80F;

/// Some rows of a product while instruction after instruction is added to them. Accumulators are float32 numbers, also
/// those of binary16; a NaN has any sign and payload.
class RowBlock {
 public:
  RowBlock() = default;
  RowBlock(const RowBlock&) = delete;
  RowBlock& operator=(const RowBlock&) = delete;
  virtual ~RowBlock() = default;
  /// Makes instruction number `instruction` of the block's rows and of the columns of a tile. There are tile_columns
  /// accumulators a row, and room for a multiple of tile_rows rows, of which those beyond the block's may change.
  virtual void advance(std::size_t tile, std::size_t instruction, float* accumulators) = 0;
};

/// The instructions of a product a * b^T, in one of two ways that give the same bits.
class Multiplier {
 public:
  Multiplier() = default;
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;
  virtual ~Multiplier() = default;
  /// Rows [first, first + count) of a; `tiny`: an accumulator may start from a number below tiny_accumulator that is
  /// not zero. May be called, and its results used, from several threads.
  [[nodiscard]] virtual std::unique_ptr<RowBlock> rows(std::size_t first, std::size_t count, bool tiny) const = 0;
};

/// Element by element, by mma_instruction(). The readers must outlive it.
[[nodiscard]] std::unique_ptr<Multiplier> scalar_multiplier(const FactorReader& a, const FactorReader& b,
                                                            ZeroRule zero_rule);

/// Whether vector code computes the model's instructions under the rule; under count_zero_factors, from accumulators
/// that are not tiny.
[[nodiscard]] bool has_vector_multiplier(const MmaModel& model, ZeroRule zero_rule);
/// Multiplies by vector code. Packs b, on `threads` threads. Precondition: has_vector_multiplier().
[[nodiscard]] std::unique_ptr<Multiplier> vector_multiplier(const FactorReader& a, const FactorReader& b,
                                                            ZeroRule zero_rule, int threads);

}  // namespace fp8lab
