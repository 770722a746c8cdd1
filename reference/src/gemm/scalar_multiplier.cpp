// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "gemm/multiplier.hpp"
#include "tensor_core/instruction.hpp"

namespace fp8lab {
namespace {

class ScalarRows final : public RowBlock {
 public:
  ScalarRows(Factors rows, const FactorReader& b, ZeroRule zero_rule, std::size_t count)
      : rows_(std::move(rows)), b_(b), zero_rule_(zero_rule), count_(count) {}

  void advance(std::size_t tile, std::size_t instruction, float* accumulators) override {
    const MmaModel& model = b_.model();
    const std::size_t first = tile * tile_columns;
    const std::size_t width = std::min(tile_columns, b_.operand().rows - first);
    if (tile != tile_ || columns_.elements.empty()) {
      tile_ = tile;
      columns_ = b_.rows(first, width);
    }
    const std::size_t k = instruction * static_cast<std::size_t>(model.k());
    const std::size_t products = std::min(static_cast<std::size_t>(model.k()), rows_.depth - k);
    for (std::size_t row = 0; row < count_; ++row) {
      const FactorSpan left = rows_.part(row, k, products);
      for (std::size_t j = 0; j < width; ++j) {
        float& accumulator = accumulators[row * tile_columns + j];
        const FactorSpan right = columns_.part(j, k, products);
        const std::uint64_t word =
            mma_instruction(model, left, right, word_of_accumulator(model, accumulator), zero_rule_);
        accumulator = accumulator_value(model, word);
      }
    }
  }

 private:
  Factors rows_;
  const FactorReader& b_;
  ZeroRule zero_rule_;
  std::size_t count_;
  std::size_t tile_ = 0;  // the tile whose columns are loaded
  Factors columns_{{}, {}, 0, 0};
};

class ScalarMultiplier final : public Multiplier {
 public:
  ScalarMultiplier(const FactorReader& a, const FactorReader& b, ZeroRule zero_rule)
      : a_(a), b_(b), zero_rule_(zero_rule) {}
  [[nodiscard]] std::unique_ptr<RowBlock> rows(std::size_t first, std::size_t count, bool /*tiny*/) const override {
    return std::make_unique<ScalarRows>(a_.rows(first, count), b_, zero_rule_, count);
  }

 private:
  const FactorReader& a_;
  const FactorReader& b_;
  ZeroRule zero_rule_;
};

}  // namespace

std::unique_ptr<Multiplier> scalar_multiplier(const FactorReader& a, const FactorReader& b, ZeroRule zero_rule) {
  return std::make_unique<ScalarMultiplier>(a, b, zero_rule);
}

}  // namespace fp8lab
