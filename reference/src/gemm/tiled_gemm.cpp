// SPDX-License-Identifier: Apache-2.0
#include "gemm/tiled_gemm.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/memory.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t most_rows_scalar = 8;  // where a block takes long, and reading its factors costs little

/// The scale that a promotion multiplies with for element (row, k); 1 where there is none.
float scale_at(const Operand& operand, std::size_t row, std::size_t k) {
  return operand.tile_scales.values.empty() ? 1 : tile_scale(operand, row, k);
}

/// Rounds c to the accumulator's format.
float as_accumulator(const MmaModel& model, float c) {
  return model.accumulator() == binary16 ? decode(binary16, encode(binary16, cuda_nosat_policy, c)) : c;
}

}  // namespace

bool promotes_tiles(const MmaModel& model, const Operand& operand) {
  return !model.scales && !operand.tile_scales.values.empty();
}

std::size_t promotion_depth(const MmaModel& model, const Operand& a, const Operand& b, int promote_k) {
  for (const Operand* operand : {&a, &b}) {
    if (promotes_tiles(model, *operand)) return operand->tile_scales.depth;
  }
  return static_cast<std::size_t>(promote_k);
}

/// The accumulators of a block's rows in one tile of columns. A small GEMM takes as long as to clear those of a whole
/// block.
class TiledGemm::Tile {
 public:
  Tile(std::size_t rows, bool promotes)
      : accumulators_((rows + tile_rows - 1) / tile_rows * tile_rows * tile_columns),
        promoted_(promotes ? accumulators_.size() : 0) {}
  float* accumulators(std::size_t row = 0) { return &accumulators_[row * tile_columns]; }
  float* promoted(std::size_t row) { return &promoted_[row * tile_columns]; }
  void clear() {
    std::ranges::fill(accumulators_, 0.0F);
    std::ranges::fill(promoted_, 0.0F);
  }

 private:
  Buffer<float> accumulators_, promoted_;  // the latter where sums are promoted
};

TiledGemm::TiledGemm(const FactorReader& a, const FactorReader& b, const GemmRecipe& recipe, std::span<const float> c,
                     int threads)
    : a_(a.operand()),
      b_(b.operand()),
      model_(a.model()),
      promotes_tiles_(promotes_tiles(model_, a_) || promotes_tiles(model_, b_)),
      promote_k_(promotion_depth(model_, a_, b_, recipe.promote_k)),
      scale_order_(recipe.scale_order.value_or(ScaleOrder::scales_first)),
      c_(c),
      ranges_(instructions_of(recipe)),
      order_(recipe.split_order),
      scalar_(scalar_multiplier(a, b, recipe.zero_rule)) {
  if (promotes_tiles_) {
    for (std::size_t k = 0; k < a_.depth; k += promote_k_) {
      for (std::size_t row = 0; row < b_.rows; ++row) right_scales_.push_back(scale_at(b_, row, k));
    }
  }
  if (order_.empty()) {
    order_.resize(ranges_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (recipe.order == PartialOrder::descending) std::ranges::reverse(order_);
  }
  scalar_if_tiny_ = model_.arithmetic == Arithmetic::fused && recipe.zero_rule == ZeroRule::count_zero_factors;
  if (has_vector_multiplier(model_, recipe.zero_rule)) vector_ = vector_multiplier(a, b, recipe.zero_rule, threads);
}

std::vector<TiledGemm::Range> TiledGemm::instructions_of(const GemmRecipe& recipe) const {
  const auto step = static_cast<std::size_t>(model_.k());
  std::vector<Range> ranges;
  std::size_t first = 0;
  for (const std::size_t length : ranges_of(recipe, a_.depth, std::max(step, promote_k_))) {
    const std::size_t last = first + (length + step - 1) / step;
    ranges.push_back({first, last});
    first = last;
  }
  return ranges;
}

std::size_t TiledGemm::block_rows() const { return vector_ ? most_block_rows : most_rows_scalar; }

void TiledGemm::promote(std::size_t row, std::size_t tile, std::size_t instruction, float* accumulators,
                        float* sums) const {
  const std::size_t first = tile * tile_columns;
  const std::size_t width = std::min(tile_columns, b_.rows - first);
  if (!promotes_tiles_) {
    for (std::size_t i = 0; i < tile_columns; ++i) sums[i] += accumulators[i];
  } else {
    const std::size_t k = instruction * static_cast<std::size_t>(model_.k());
    const float left = scale_at(a_, row, k);
    const float* const right = &right_scales_[k / promote_k_ * b_.rows + first];
    switch (scale_order_) {
      case ScaleOrder::scales_first:
        for (std::size_t i = 0; i < width; ++i) sums[i] = std::fma(left * right[i], accumulators[i], sums[i]);
        break;
      case ScaleOrder::accumulator_first:
        for (std::size_t i = 0; i < width; ++i) sums[i] = std::fma(accumulators[i] * left, right[i], sums[i]);
        break;
      case ScaleOrder::b_first:
        for (std::size_t i = 0; i < width; ++i) sums[i] = std::fma(accumulators[i] * right[i], left, sums[i]);
        break;
    }
  }
  std::fill_n(accumulators, tile_columns, 0.0F);
}

void TiledGemm::accumulate(const Range& range, std::size_t first, std::size_t count, std::size_t tile, RowBlock& block,
                           Tile& state) const {
  const auto step = static_cast<std::size_t>(model_.k());
  for (std::size_t i = range.first; i < range.last; ++i) {
    checkpoint();
    block.advance(tile, i, state.accumulators());
    if (promote_k_ == 0) continue;
    const bool full = (i + 1 - range.first) * step % promote_k_ == 0;
    if (!full && i + 1 != range.last) continue;
    for (std::size_t row = 0; row < count; ++row) {
      promote(first + row, tile, i, state.accumulators(row), state.promoted(row));
    }
  }
}

void TiledGemm::start(std::span<const float> c, std::size_t tile, Tile& state) const {
  const std::size_t columns = b_.rows;
  const std::size_t column = tile * tile_columns;
  const std::size_t width = std::min(tile_columns, columns - column);
  for (std::size_t row = 0; row < c.size() / columns; ++row) {
    const auto from = c.subspan(row * columns + column, width);
    if (promote_k_ == 0) {
      std::ranges::transform(from, state.accumulators(row), [&](float x) { return as_accumulator(model_, x); });
    } else {
      std::ranges::copy(from, state.promoted(row));
    }
  }
}

void TiledGemm::rows(std::size_t first, std::size_t count, std::span<float> out) const {
  const std::size_t columns = b_.rows;
  const auto c = c_.empty() ? c_ : c_.subspan(first * columns, count * columns);
  const bool tiny = std::ranges::any_of(c, [](float x) { return x != 0 && std::abs(x) < tiny_accumulator; });
  const bool scalar = !vector_ || (tiny && scalar_if_tiny_);
  const std::unique_ptr<RowBlock> block = (scalar ? scalar_ : vector_)->rows(first, count, tiny);
  std::vector<Tile> ranges;
  ranges.reserve(ranges_.size());
  for (std::size_t r = 0; r < ranges_.size(); ++r) ranges.emplace_back(count, promote_k_ != 0);
  for (std::size_t tile = 0; tile * tile_columns < columns; ++tile) {
    for (std::size_t r = 0; r < ranges_.size(); ++r) {
      ranges[r].clear();
      if (r == 0) start(c, tile, ranges[r]);
      accumulate(ranges_[r], first, count, tile, *block, ranges[r]);
    }
    const std::size_t column = tile * tile_columns;
    for (std::size_t row = 0; row < count; ++row) {
      const auto sums_of = [&](std::size_t r) {
        return promote_k_ == 0 ? ranges[r].accumulators(row) : ranges[r].promoted(row);
      };
      const auto to = out.subspan(row * columns + column, std::min(tile_columns, columns - column));
      std::copy_n(sums_of(order_.front()), to.size(), to.begin());
      for (const std::size_t r : std::span(order_).subspan(1)) {
        std::ranges::transform(to, std::span(sums_of(r), to.size()), to.begin(), std::plus<>());
      }
    }
  }
}

}  // namespace fp8lab
