// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/row_sums.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/row_buffers.hpp"

namespace fp8lab {

namespace {

void check_shape(std::size_t rows, std::size_t columns, int multiprocessors) {
  if (rows == 0 || columns == 0) refuse("x must have one element or more, not ", rows, " x ", columns);
  if (multiprocessors < 1) refuse("multiprocessors must be 1 or more, not ", multiprocessors);
}

/// One sum for each column.
using ColumnSums = std::vector<float>;

void add(const ColumnSums& part, ColumnSums& total) { row_functions().add(part.data(), part.size(), total.data()); }

/// Part i and part i + n / 2 are added, of these i and i + n / 4, and so on; n is a power of two.
ColumnSums halved(std::vector<ColumnSums> parts) {
  for (std::size_t half = parts.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) add(parts[i + half], parts[i]);
  }
  return std::move(parts.front());
}

/// The rows of a matrix as float32, each filled up to whole vectors.
class AddedRows {
 public:
  explicit AddedRows(const MatrixView& x) : x_(&x), row_(padded(x.columns())) {}

  [[nodiscard]] ColumnSums zeros() const { return ColumnSums(row_.size()); }
  /// Adds row r, which is +0 behind the last one.
  void add_row(std::size_t r, ColumnSums& total) {
    if (r >= x_->rows()) return;
    read_piece(*x_, r * x_->columns(), x_->columns(), row_.data());
    add(row_, total);
  }
  /// The sums without what fills them up.
  [[nodiscard]] std::vector<float> result(ColumnSums sums) const {
    sums.resize(x_->columns());
    for (float& sum : sums) {
      if (std::isnan(sum)) sum = std::bit_cast<float>(0x7FFFFFFFU);
    }
    return sums;
  }

 private:
  const MatrixView* x_;
  std::vector<float> row_;
};

/// How many threads of a block, and how many blocks, share the rows of a column; powers of two and any number.
struct RowSharing {
  std::size_t threads = 1, blocks = 1;
};

constexpr std::size_t divided_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }
constexpr std::size_t power_below(std::size_t number, std::size_t most) {
  return std::bit_floor(std::min(number, most));
}

RowSharing row_sharing(std::size_t rows, std::size_t columns, std::size_t offset, int multiprocessors) {
  constexpr std::size_t threads_of_multiprocessor = 2048;
  std::size_t vector = 4;
  while (columns % vector != 0 || offset % vector != 0) vector /= 2;
  const std::size_t most = 512 / vector;
  std::size_t width = power_below(columns / vector, most);
  const std::size_t height = std::min(power_below(rows, most), most / std::min<std::size_t>(width, 32));
  width = std::min(width, most / height);
  if (rows < std::min<std::size_t>(16 * height, 256)) return {};
  const std::size_t of_thread = divided_up(rows, height);
  const std::size_t grid = divided_up(columns, vector * width);
  const std::size_t largest =
      static_cast<std::size_t>(multiprocessors) * (threads_of_multiprocessor / (width * height));
  if (of_thread < 256 || grid > largest) return {height, 1};
  return {height, std::max(std::min(divided_up(largest, grid), divided_up(of_thread, 16)), divided_up(of_thread, 256))};
}

/// What one thread of a block adds: every (4 blocks threads)-th row to each of four sums.
ColumnSums sums_of_thread(AddedRows& rows, std::size_t count, const RowSharing& sharing, std::size_t block,
                          std::size_t thread) {
  ColumnSums total = rows.zeros();
  const std::size_t turn = sharing.blocks * sharing.threads;
  for (std::size_t j = 0; j < 4; ++j) {
    ColumnSums sums = rows.zeros();
    for (std::size_t r = j * turn + block * sharing.threads + thread; r < count; r += 4 * turn) rows.add_row(r, sums);
    add(sums, total);
  }
  return total;
}

/// What the last block adds of the others' sums.
ColumnSums sums_of_blocks(const AddedRows& rows, const std::vector<ColumnSums>& blocks, std::size_t threads) {
  std::vector<ColumnSums> of_threads(threads, rows.zeros());
  for (std::size_t block = 0; block < blocks.size(); ++block) add(blocks[block], of_threads[block % threads]);
  return halved(std::move(of_threads));
}

/// Elements of a cache line that a tile loads, writes and writes transposed, and the multiprocessors that are busy.
struct TileCost {
  std::array<std::uint64_t, 3> lines;
  std::uint64_t busy;
};

/// Whether a tile's cost is lower, in whole numbers of 64 bits, as the kernel's choice computes it: the sum of the
/// lines' reciprocals over the busy multiprocessors, with the loads twice where there are two inputs.
bool is_cheaper(const TileCost& one, const TileCost& other, bool has_activation) {
  const auto product = [&](const TileCost& of) {
    return of.lines[0] * of.lines[1] * of.lines[2] * of.busy * (has_activation ? of.lines[0] : 1);
  };
  const std::uint64_t whole = product(one) * product(other);
  const auto cost = [&](const TileCost& of) {
    std::uint64_t sum = has_activation ? whole / of.lines[0] : 0;
    for (const std::uint64_t part : of.lines) sum += whole / part;
    return sum / of.busy;
  };
  return cost(one) < cost(other);
}

/// The bytes that a thread loads and stores at a time.
struct ThreadBytes {
  std::size_t loads, stores;
};
/// In the order in which they are compared.
constexpr std::array<ThreadBytes, 16> thread_bytes = {{{8, 8},
                                                       {4, 8},
                                                       {8, 4},
                                                       {4, 4},
                                                       {2, 8},
                                                       {8, 2},
                                                       {2, 4},
                                                       {4, 2},
                                                       {2, 2},
                                                       {1, 8},
                                                       {8, 1},
                                                       {1, 4},
                                                       {4, 1},
                                                       {1, 2},
                                                       {2, 1},
                                                       {1, 1}}};
constexpr std::size_t warp_threads = 32;

/// The cost of a tile of one warp's loads and stores, or nothing where the kernel cannot have it.
std::optional<TileCost> tile_cost(const CastTransposeKernel& kernel, const ThreadBytes& bytes, std::size_t rows,
                                  std::size_t columns) {
  constexpr std::uint64_t line = 128;  // bytes
  if (bytes.loads % kernel.item_size != 0) return std::nullopt;
  const std::size_t width = warp_threads * bytes.loads / kernel.item_size;
  const std::size_t height = warp_threads * bytes.stores;
  if (columns % width != 0 || rows % height != 0) return std::nullopt;
  const std::uint64_t blocks = divided_up(columns / width * (rows / height) * 8, 16);
  return TileCost{{std::min<std::uint64_t>(line / kernel.item_size, width), std::min<std::uint64_t>(line, width),
                   std::min<std::uint64_t>(line, height)},
                  std::min<std::uint64_t>(blocks, static_cast<std::uint64_t>(kernel.multiprocessors))};
}

/// Rows of a block are added one after the other, and so are the blocks' sums.
std::vector<float> sums_of_blocks_in_order(const MatrixView& x, std::size_t block_rows) {
  AddedRows rows(x);
  ColumnSums total = rows.zeros();
  for (std::size_t first = 0; first < x.rows(); first += block_rows) {
    checkpoint();
    ColumnSums block = rows.zeros();
    for (std::size_t i = first; i < first + block_rows; ++i) rows.add_row(i, block);
    add(block, total);
  }
  return rows.result(std::move(total));
}

}  // namespace

std::vector<float> torch_row_sums(const MatrixView& x, std::size_t offset, int multiprocessors) {
  check_kernel_floats("x", x);
  check_shape(x.rows(), x.columns(), multiprocessors);
  if (x.columns() < 2) refuse("x must have 2 columns or more, not ", x.columns(), ", which another kernel adds");
  const DefaultEnvironment environment;
  const RowSharing sharing = row_sharing(x.rows(), x.columns(), offset, multiprocessors);
  AddedRows rows(x);
  std::vector<ColumnSums> blocks(sharing.blocks);
  for (std::size_t block = 0; block < sharing.blocks; ++block) {
    std::vector<ColumnSums> threads(sharing.threads);
    for (std::size_t thread = 0; thread < sharing.threads; ++thread) {
      checkpoint();
      threads[thread] = sums_of_thread(rows, x.rows(), sharing, block, thread);
    }
    blocks[block] = halved(std::move(threads));
  }
  if (sharing.blocks == 1) return rows.result(std::move(blocks.front()));
  return rows.result(sums_of_blocks(rows, blocks, sharing.threads));
}

std::vector<float> cublaslt_row_sums(const MatrixView& x, bool after_gelu) {
  check_kernel_floats("x", x);
  check_shape(x.rows(), x.columns(), 1);
  const DefaultEnvironment environment;
  if (after_gelu) return sums_of_blocks_in_order(x, 32);
  const bool has_few = x.rows() <= 160 || x.columns() > 1024;
  const std::size_t many = x.rows() <= 2048 ? 64 : 128;
  const std::size_t places = has_few ? 16 : many;
  AddedRows rows(x);
  std::vector<ColumnSums> parts(places, rows.zeros());
  for (std::size_t i = 0; i < x.rows(); ++i) {
    checkpoint();
    rows.add_row(i, parts[i % places]);
  }
  return rows.result(halved(std::move(parts)));
}

std::size_t cast_transpose_thread_rows(const CastTransposeKernel& kernel, std::size_t rows, std::size_t columns) {
  check_shape(rows, columns, kernel.multiprocessors);
  if (kernel.item_size != 1 && kernel.item_size != 2 && kernel.item_size != 4) {
    refuse("item_size must be 1, 2 or 4, not ", kernel.item_size);
  }
  const std::size_t most = kernel.has_activation ? 4 : 8;
  if (rows % warp_threads != 0 || columns % warp_threads != 0) return most;  // a kernel that is compiled before
  std::optional<TileCost> lowest;
  std::size_t stores = most;
  for (const ThreadBytes& bytes : thread_bytes) {
    if (std::max(bytes.loads, bytes.stores) > most) continue;
    const auto cost = tile_cost(kernel, bytes, rows, columns);
    if (!cost || (lowest && !is_cheaper(*cost, *lowest, kernel.has_activation))) continue;
    lowest = cost;
    stores = bytes.stores;
  }
  return stores;
}

std::vector<float> cast_transpose_row_sums(const MatrixView& x, const CastTransposeKernel& kernel) {
  constexpr std::size_t warps = 8;
  constexpr std::size_t turns = 4;
  check_kernel_floats("x", x);
  const std::size_t of_thread = cast_transpose_thread_rows(kernel, x.rows(), x.columns());
  const DefaultEnvironment environment;
  AddedRows rows(x);
  ColumnSums total = rows.zeros();
  for (std::size_t first = 0; first < x.rows();) {
    ColumnSums tile = rows.zeros();
    for (std::size_t warp = 0; warp < warps; ++warp) {
      checkpoint();
      ColumnSums of_warp = rows.zeros();
      for (std::size_t turn = 0; turn < turns; ++turn) {
        ColumnSums sums = rows.zeros();
        for (std::size_t i = 0; i < of_thread; ++i) rows.add_row(first++, sums);
        add(sums, of_warp);
      }
      add(of_warp, tile);
    }
    add(tile, total);
  }
  return rows.result(std::move(total));
}

}  // namespace fp8lab
