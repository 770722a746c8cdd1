// SPDX-License-Identifier: Apache-2.0
#include "gemm/multiplier.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "simd/fuse.hpp"
#include "simd/packed.hpp"

namespace fp8lab {
namespace {

/// A bound of the significand of every factor.
double largest_significand(const MmaModel& model) {
  double largest = 0;
  for (const Format& format : model.operands) largest = std::max(largest, 2 - power_of_two(-format.mantissa_bits));
  return largest;
}

/// A bound of a step's sum, in units: products are below the square of their significands' bound, the accumulator below
/// 2. Of FP4's groups, which scales below 2 * 2 multiply, it bounds the sums of the products' values.
double largest_sum(const MmaModel& model) {
  if (model.group > 1) return std::ldexp(36.0 * model.products_per_step * 4 + 2, model.fraction_bits);
  const double significand = largest_significand(model);
  return std::ldexp(significand * significand * model.products_per_step + 2, model.fraction_bits);
}

/// Whether exponents of factors are in [-16, 15], and there are no scales but those of groups.
bool is_narrow(const MmaModel& model) {
  return model.group > 1 || (!model.scales && std::ranges::all_of(model.operands, [](const Format& f) {
           return f.exponent_bits <= binary16.exponent_bits;
         }));
}

StepSum sum_of(const MmaModel& model) {
  const double largest = largest_sum(model);
  const std::size_t products = size_of(model.products_per_step);
  const bool narrow = is_narrow(model) && model.arithmetic == Arithmetic::fused && model.group == 1 &&
                      model.lowering == Lowering::native && products % 16 == 0 && products <= most_small_products;
  if (narrow && largest + model.products_per_step <= 0x1p22) return StepSum::small;  // floors are at most 1 below
  return largest < 0x1p31 ? StepSum::ints : StepSum::int_pairs;
}
/// Whether fuse_small() takes the steps.
bool is_small(const MmaModel& model) { return sum_of(model) == StepSum::small; }

/// A group's scaled sum is a multiple of 2^(the exponents of its scales - group_bits).
int group_bits(const MmaModel& model) {
  if (model.group == 1 || !model.scales) return 0;
  int least = 0;  // of a factor's exponents
  for (const Format& format : model.operands) least = std::min(least, format.min_exponent() - format.mantissa_bits);
  return 2 * (model.scales->format.mantissa_bits - least);
}

FuseShape shape_of(const MmaModel& model, ZeroRule zero_rule) {
  return {.arithmetic = model.arithmetic,
          .steps = size_of(model.steps),
          .products = size_of(model.products_per_step),
          .groups = model.group == 1 ? 0 : size_of(model.products_per_step / model.group),
          .block = model.scales ? size_of(model.scales->block) : 0,
          .sum = sum_of(model),
          .scaled_values = scales_values(model),
          .group_bits = group_bits(model),
          .fraction_bits = model.fraction_bits,
          .least_exponent = zero_rule == ZeroRule::floor ? model.zero_exponent : no_zero_exponent,
          .empty_groups_count = zero_rule == ZeroRule::skip_terms,
          .output_bits = model.output.mantissa_bits,
          .half = model.accumulator() == binary16,
          .keeps_sign = model.underflow == UnderflowSign::kept,
          .adds_c_last = model.lowering == Lowering::fp16_add,
          .sums = size_of(model.sums),
          .sum_bits = model.sum_bits,
          .drops_small_c = model.drops_small_c};
}

/// Above it, an operand is packed window by window where it is needed: K x tile_columns factors would need much memory.
constexpr std::size_t most_whole_depth = 8192;
/// Elements of K of a window.
constexpr std::size_t window_depth = 2048;

std::size_t up_to_multiple(std::size_t x, std::size_t unit) { return (x + unit - 1) / unit * unit; }

std::size_t depth_of(const FactorReader& operand) {
  return up_to_multiple(operand.operand().depth, size_of(operand.model().k()));
}

/// Some rows of a, and what they are multiplied with: a whole b that is packed, or where b is deep a window of one
/// tile.
template <typename Exponent>
class VectorRows final : public RowBlock {
 public:
  using Pack = Packed<Exponent>;

  /// `whole_b` is null where b is deep; `wide`: accumulators are smaller than fuse() takes.
  VectorRows(const FactorReader& a, const FactorReader& b, const Pack* whole_b, ZeroRule zero_rule, std::size_t first,
             std::size_t count, bool wide)
      : shape_(shape_of(a.model(), zero_rule)),
        k_(static_cast<std::size_t>(a.model().k())),
        columns_(b.operand().rows),
        first_(first),
        count_(count),
        whole_b_(whole_b),
        wide_(wide),
        starts_wide_(wide),
        a_(a, count, 1, whole_b == nullptr ? window_size() : depth_of(a), is_small(a.model())),
        b_(b, whole_b == nullptr ? 1 : 0, tile_columns, whole_b == nullptr ? window_size() : 0, is_small(a.model())) {
    if (whole_b != nullptr) pack_rows(0);
  }
  void advance(std::size_t tile, std::size_t instruction, float* accumulators) override {
    if (tile != tile_ || instruction < begin_ || instruction >= end_) load(tile, instruction);
    const auto a = a_.rows_at(instruction - begin_);
    const auto b = whole_b_ == nullptr ? b_.at(0, instruction - begin_) : whole_b_->at(tile, instruction);
    if constexpr (sizeof(Exponent) == 1) {
      if (shape_.groups != 0) return fuse_groups(shape_, a, b, accumulators);
    }
    if (shape_.arithmetic != Arithmetic::fused) return fuse_amd(shape_, !wide_, a, b, accumulators);
    if (wide_) return fuse_wide(shape_, a, b, accumulators);
    if constexpr (sizeof(Exponent) == 1) {
      if (shape_.sum == StepSum::small) return fuse_small(shape_, a, b, accumulators);
    }
    fuse(shape_, a, b, accumulators);
  }

 private:
  [[nodiscard]] std::size_t window_size() const { return up_to_multiple(window_depth, k_); }
  void pack_rows(std::size_t from) {
    for (std::size_t row = 0; row < count_; ++row) a_.pack(row, first_ + row, 1, from);
  }
  /// Goes to a tile, or to another window of it.
  void load(std::size_t tile, std::size_t instruction) {
    if (tile != tile_ || instruction == 0) wide_ = starts_wide_;
    tile_ = tile;
    begin_ = 0;
    end_ = std::numeric_limits<std::size_t>::max();
    if (whole_b_ == nullptr) {
      pack_rows(instruction * k_);
      b_.pack(0, tile * tile_columns, std::min(tile_columns, columns_ - tile * tile_columns), instruction * k_);
      begin_ = instruction;
      end_ = instruction + window_size() / k_;
    }
    // A product that has been wide stays so: its accumulators may have become too small for fuse().
    for (std::size_t row = 0; row < count_; ++row) {
      wide_ = wide_ || !(whole_b_ == nullptr ? a_.within_limits(row, b_, 0) : a_.within_limits(row, *whole_b_, tile));
    }
  }

  FuseShape shape_;
  std::size_t k_, columns_, first_, count_;
  const Pack* whole_b_;
  bool wide_, starts_wide_;  // fuse() does not take the tile
  Pack a_, b_;
  std::size_t tile_ = 0, begin_ = 0, end_ = 0;  // the window: instructions [begin, end) of a tile
};

template <typename Exponent>
class VectorMultiplier final : public Multiplier {
 public:
  VectorMultiplier(const FactorReader& a, const FactorReader& b, ZeroRule zero_rule, int threads)
      : a_(a),
        b_(b),
        whole_b_(b, is_deep() ? 0 : tiles(), tile_columns, depth_of(b), is_small(b.model())),
        zero_rule_(zero_rule) {
    if (is_deep()) return;
    const std::size_t columns = b.operand().rows;
    parallel_for(tiles(), threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t tile = first; tile < last; ++tile) {
        whole_b_.pack(tile, tile * tile_columns, std::min(tile_columns, columns - tile * tile_columns));
      }
    });
  }
  [[nodiscard]] std::unique_ptr<RowBlock> rows(std::size_t first, std::size_t count, bool tiny) const override {
    return std::make_unique<VectorRows<Exponent>>(a_, b_, is_deep() ? nullptr : &whole_b_, zero_rule_, first, count,
                                                  tiny);
  }

 private:
  [[nodiscard]] std::size_t tiles() const { return (b_.operand().rows + tile_columns - 1) / tile_columns; }
  [[nodiscard]] bool is_deep() const { return depth_of(b_) > most_whole_depth; }

  const FactorReader& a_;
  const FactorReader& b_;
  Packed<Exponent> whole_b_;
  ZeroRule zero_rule_;
};

}  // namespace

bool has_vector_multiplier(const MmaModel& model, ZeroRule zero_rule) {
  switch (model.arithmetic) {
    case Arithmetic::fused: break;
    case Arithmetic::exact: return vector_code_allowed() && model.k() != 0;
    case Arithmetic::products_first: return vector_code_allowed() && model.sums <= 2;
    case Arithmetic::flushed_pairs:
    case Arithmetic::fma_chain: return vector_code_allowed();  // no zero rule matters
  }
  // A zero that MMA-Sim counts as 2^-126 stays below all other terms, unless scales or wide exponents take part.
  const bool modest = !model.scales && std::ranges::all_of(model.operands, [](const Format& f) {
    return f.exponent_bits <= binary16.exponent_bits;
  });
  bool rule = zero_rule != ZeroRule::count_zero_factors || modest;
  if (model.group > 1) rule = zero_rule == ZeroRule::floor || zero_rule == ZeroRule::skip_terms;
  return vector_code_allowed() && rule && largest_sum(model) <= 0x1p53 &&
         (model.group == 1 ||
          (model.steps == 1 && model.group <= 16 && size_of(model.products_per_step / model.group) <= most_groups));
}

std::unique_ptr<Multiplier> vector_multiplier(const FactorReader& a, const FactorReader& b, ZeroRule zero_rule,
                                              int threads) {
  if (is_narrow(a.model())) return std::make_unique<VectorMultiplier<std::int8_t>>(a, b, zero_rule, threads);
  return std::make_unique<VectorMultiplier<std::int16_t>>(a, b, zero_rule, threads);
}

}  // namespace fp8lab
