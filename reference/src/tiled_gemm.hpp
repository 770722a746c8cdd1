// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "factors.hpp"

namespace fp8lab {

struct GemmShape {
  std::size_t rows;
  std::size_t columns;
  std::size_t depth;
};

/// Reports the share done; false asks to stop.
using Report = std::function<bool(double)>;

/// A GEMM of fused steps. A tile of 32 columns goes through the vector code where all factors of the tile and the row
/// allow it (finite, moderate exponents), and through mma_instruction otherwise; the bits are the same.
class TiledGemm {
 public:
  TiledGemm(const MmaModel& model, const GemmShape& shape, const Factors& a, const Factors& b, int promote_k,
            ZeroRule zero_rule, std::span<float> out);
  /// Computes rows [first, last).
  void operator()(std::size_t first, std::size_t last, const Report& report) const;

 private:
  struct Rows {
    std::vector<float> value, power;  // of A: [row][k]; of B: [tile][k][tile_columns]
    std::vector<bool> ordinary;       // by row, or by tile
  };
  [[nodiscard]] Rows rows_of(std::span<const Factor> a) const;
  [[nodiscard]] Rows tiles_of(std::span<const Factor> b) const;
  [[nodiscard]] float dot(std::size_t row, std::size_t column) const;
  void tile_of_rows(std::size_t tile, std::size_t row0, std::size_t row1) const;

  MmaModel model_;
  GemmShape shape_;
  const Factors& a_;
  const Factors& b_;
  std::size_t promote_k_;
  ZeroRule zero_rule_;
  std::span<float> out_;
  std::size_t padded_depth_;
  bool vector_code_;
  Rows left_, right_;
};

}  // namespace fp8lab
