// SPDX-License-Identifier: Apache-2.0
// A tensor in pieces that stay in a core's caches, of whole tiles each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "formats/simd/tiles.hpp"
#include "scaling/quantize_plan.hpp"

namespace fp8lab {

/// The rows and columns of x in one cell, from the first to below the last, and the index of the cell.
struct Cell {
  std::size_t index, row, row_end, column, column_end;
  [[nodiscard]] std::size_t width() const { return column_end - column; }
  [[nodiscard]] std::size_t height() const { return row_end - row; }
};

/// The values of a tensor, row by row: a MatrixView whose type is known.
template <typename Source>
struct Matrix {
  std::span<const Source> values;
  std::size_t rows, columns;
};

/// Whether rows can be taken as one: no tile is higher than one, or shared by two.
inline bool is_flat(std::span<const QuantizePlan> plans, std::size_t columns) {
  return std::ranges::all_of(plans, [&](const QuantizePlan& plan) {
    return !plan.transposed && (plan.uniform || (plan.tile_rows == 1 && columns % plan.tile_columns == 0));
  });
}

/// Cells of whole tiles of every plan. Tiles are as high as a cell, or one row high: no recipe has others.
class Cells {
 public:
  Cells(std::span<const QuantizePlan> plans, std::size_t all_rows, std::size_t all_columns, std::size_t element_bytes)
      : all_rows_(all_rows), all_columns_(all_columns) {
    for (const QuantizePlan& plan : plans) {
      const std::size_t high = plan.transposed ? 64 : 1;  // where the scale leaves it open
      rows_ = std::max(rows_, plan.uniform ? high : plan.tile_rows);
      columns_ = std::max(columns_, plan.uniform ? 1 : plan.tile_columns);
    }
    rows_ = std::min(rows_, all_rows);
    const std::size_t room = (rows_ == 1 ? flat_bytes : std::min(row_bytes, cell_bytes / rows_)) / element_bytes;
    columns_ = std::min(blocks_of(room, columns_) * columns_, all_columns);
    across_ = blocks_of(all_columns, columns_);
  }

  [[nodiscard]] std::size_t count() const { return blocks_of(all_rows_, rows_) * across_; }
  [[nodiscard]] Cell at(std::size_t i) const {
    const std::size_t row = i / across_ * rows_;
    const std::size_t column = i % across_ * columns_;
    return {i, row, std::min(row + rows_, all_rows_), column, std::min(column + columns_, all_columns_)};
  }

 private:
  // Bytes of a cell of one row. The next cell is fetched while one is encoded, and both fit into the first cache.
  static constexpr std::size_t flat_bytes = 6144;
  // Bytes of a row of other cells, long enough for the hardware's prefetcher, and of all rows of a cell.
  static constexpr std::size_t row_bytes = 16384;
  static constexpr std::size_t cell_bytes = 128 * row_bytes;

  std::size_t all_rows_, all_columns_;
  std::size_t rows_ = 1, columns_ = 1;  // of a cell
  std::size_t across_ = 1;              // cells in a row of them
};

/// Calls f with the first and the end of some rows of a cell after the other: as many as fit into the first cache.
template <typename Function>
void for_some_rows(const Cell& cell, const Function& f) {
  constexpr std::size_t rows_at_a_time = 4;
  for (std::size_t r = cell.row; r < cell.row_end; r += rows_at_a_time) {
    f(r, std::min(r + rows_at_a_time, cell.row_end));
  }
}

/// The tiles of one direction, in the cells of a tensor.
template <typename Source>
struct Tiling {
  const Matrix<Source>& x;
  const QuantizePlan& plan;

  [[nodiscard]] std::size_t place(const Cell& cell, std::size_t row) const { return row * x.columns + cell.column; }
  /// Rows from `first` to below `last` of a cell.
  [[nodiscard]] TileRows<Source> rows_of(const Cell& cell, std::size_t first, std::size_t last) const {
    const std::size_t tile = plan.uniform ? cell.width() : plan.tile_columns;
    return {&x.values[place(cell, first)], last - first, cell.width(), x.columns, tile};
  }
  [[nodiscard]] std::size_t tiles_across(const Cell& cell) const { return blocks_of(cell.width(), plan.tile_columns); }
  [[nodiscard]] std::size_t tiles(const Cell& cell) const {
    return blocks_of(cell.height(), plan.tile_rows) * tiles_across(cell);
  }
  /// The index of the first tile of a row in the arrays of tiles, and the distance to that of the next row.
  [[nodiscard]] std::size_t first_tile(const Cell& cell, std::size_t row) const {
    return plan.uniform ? 0 : (row - cell.row) / plan.tile_rows * tiles_across(cell);
  }
  [[nodiscard]] std::size_t tile_stride(const Cell& cell) const {
    return plan.uniform || plan.tile_rows > 1 ? 0 : tiles_across(cell);
  }

  /// The place of tile t of a cell among the tiles of the tensor.
  [[nodiscard]] std::size_t index(const Cell& cell, std::size_t t) const {
    const std::size_t across = tiles_across(cell);
    const std::size_t row = cell.row / plan.tile_rows + t / across;
    return row * blocks_of(x.columns, plan.tile_columns) + cell.column / plan.tile_columns + t % across;
  }

  /// Raises the amaxes of a cell's tiles to those of its rows [first, last), which lie in one row of tiles where these
  /// are higher than one.
  [[nodiscard]] AmaxSeen add_amaxes(const Cell& cell, std::size_t first, std::size_t last,
                                    std::span<std::uint32_t> amaxes) const {
    return add_amax(rows_of(cell, first, last), plan.nan, &amaxes[first_tile(cell, first)], tile_stride(cell));
  }
};

/// The amaxes of all tiles, where they are worked out before any scale: as many for every cell.
struct TileAmaxes {
  std::size_t of_cell = 0;
  std::unique_ptr<std::uint32_t[]> values;

  [[nodiscard]] bool known() const { return values != nullptr; }
  [[nodiscard]] std::span<std::uint32_t> of(const Cell& cell, std::size_t tiles) const {
    return {&values[cell.index * of_cell], tiles};
  }
};

}  // namespace fp8lab
