// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/memory.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "gemm/multiplier.hpp"
#include "simd/fuse.hpp"

namespace fp8lab {
namespace {

constexpr std::int16_t no_grid = 300;  // above all others, also with another one and scales added

std::size_t count(int x) { return static_cast<std::size_t>(x); }

FuseShape shape_of(const MmaModel& model, ZeroRule zero_rule) {
  return {.steps = count(model.steps),
          .products = count(model.products_per_step),
          .groups = model.group == 1 ? 0 : count(model.products_per_step / model.group),
          .block = model.scales ? count(model.scales->block) : 0,
          .fraction_bits = model.fraction_bits,
          .least_exponent = zero_rule == ZeroRule::floor ? model.zero_exponent : no_zero_exponent,
          .empty_groups_count = zero_rule == ZeroRule::skip_terms,
          .output_bits = model.output.mantissa_bits,
          .half = model.accumulator() == binary16,
          .keeps_sign = model.underflow == UnderflowSign::kept,
          .adds_c_last = model.lowering == Lowering::fp16_add};
}

/// A bound of a step's sum, in units: products are below 4 powers of their exponents, the accumulator below 2.
double largest_sum(const MmaModel& model) {
  if (model.group == 1) return std::ldexp(4.0 * model.products_per_step + 2, model.fraction_bits);
  return std::ldexp(36.0 * model.products_per_step * 4 + 2, model.fraction_bits);  // FP4's products, scales below 2 * 2
}

/// Whether sums and factors fit float lanes and int8 exponents.
bool is_narrow(const MmaModel& model) {
  const bool bytes = std::ranges::all_of(model.operands, [](const Format& f) { return f.bits() <= 8; });
  return bytes && !model.scales && model.lowering == Lowering::native && largest_sum(model) <= 0x1p24;
}

float float_of(const Factor& x) {
  switch (x.kind) {
    case Kind::nan: return std::numeric_limits<float>::quiet_NaN();
    case Kind::infinite: return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(x.value));
    case Kind::zero:
    case Kind::finite: break;
  }
  return static_cast<float>(x.value);
}

/// The position of the k-th product of an instruction in the order of the steps.
std::size_t position(const MmaModel& model, std::size_t k) {
  switch (model.order) {
    case StepOrder::ascending: break;
    case StepOrder::pairs: return k / 4 * 2 + k % 2 + (k % 4 / 2) * count(model.products_per_step);
  }
  return k;
}

/// The exponent of the last bit that is set in x; empty for zero and specials.
std::int16_t grid_of(const Factor& x) {
  if (x.kind != Kind::finite) return no_grid;
  const auto bits = std::bit_cast<std::uint64_t>(x.value);
  const auto exponent = static_cast<int>(bits >> 52 & 0x7FF) - 1023;
  return static_cast<std::int16_t>(exponent - 52 + std::countr_zero(bits | std::uint64_t{1} << 52));
}

/// The parts of a factor that the vector code uses.
template <typename Value, typename Exponent>
struct Element {
  Value value;
  Exponent exponent;
  std::int16_t grid;

  Element() = default;
  explicit Element(const Factor& x)
      : value(float_of(x)),
        exponent(x.kind == Kind::finite ? static_cast<Exponent>(x.exponent) : absent_exponent_of<Exponent>),
        grid(grid_of(x)) {}
};

/// Rows of an operand as the vector code takes them, `width` rows side by side: [tile][k][width]. The rest is zeros.
template <typename Value, typename Exponent>
class Packed {
 public:
  Packed(const FactorReader& operand, std::size_t tiles, std::size_t width)
      : operand_(operand),
        k_(count(operand.model().k())),
        width_(width),
        depth_((operand.operand().depth + k_ - 1) / k_ * k_),
        steps_(depth_ / count(operand.model().products_per_step)),
        block_(operand.block()),
        blocks_(block_ == 0 ? 0 : depth_ / block_),
        values_(tiles * depth_ * width),
        exponents_(tiles * depth_ * width, absent_exponent_of<Exponent>),
        grids_(tiles * steps_ * width, no_grid),
        scales_(tiles * blocks_ * width),
        scale_exponents_(tiles * blocks_ * width, absent_exponent_of<std::int16_t>),
        group_(count(operand.model().group)),
        groups_(group_ == 1 ? 0 : depth_ / group_),
        nonzero_(tiles * groups_ * width) {
    for (std::size_t k = 0; k < k_; ++k) positions_.push_back(position(operand.model(), k));
    if (operand.has_byte_table()) {
      for (std::size_t code = 0; code < 256; ++code) of_byte_[code] = Element<Value, Exponent>(operand.of_byte(code));
    }
  }

  /// Makes a tile of rows [first, first + count), count <= width.
  void pack(std::size_t tile, std::size_t first, std::size_t count) {
    const std::size_t depth = operand_.operand().depth;
    std::fill_n(&values_[tile * depth_ * width_], depth_ * width_, Value{0});
    std::fill_n(&exponents_[tile * depth_ * width_], depth_ * width_, absent_exponent_of<Exponent>);
    if (groups_ != 0) std::fill_n(&nonzero_[tile * groups_ * width_], groups_ * width_, std::uint16_t{0});
    for (std::size_t k0 = 0; k0 < depth; k0 += k_) {
      checkpoint();
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t k1 = std::min(depth, k0 + k_);
        if (operand_.has_byte_table()) {
          operand_.for_codes(first + i, k0, k1, [&](std::size_t k, std::uint8_t code) {
            put(tile, k0, positions_[k - k0], i, of_byte_[code]);
          });
        } else {
          operand_.for_row(first + i, k0, k1, [&](std::size_t k, const Factor& x) {
            put(tile, k0, positions_[k - k0], i, Element<Value, Exponent>(x));
          });
        }
      }
    }
    if (blocks_ != 0) pack_scales(tile, first, count);
  }

  /// What instruction number `instruction` takes of a tile.
  [[nodiscard]] FactorsOf<Value, Exponent> at(std::size_t tile, std::size_t instruction) const {
    const MmaModel& model = operand_.model();
    const std::size_t element = (tile * depth_ + instruction * k_) * width_;
    const std::size_t step = (tile * steps_ + instruction * count(model.steps)) * width_;
    const std::size_t block = blocks_ == 0 ? 0 : (tile * blocks_ + instruction * k_ / block_) * width_;
    const std::size_t group = groups_ == 0 ? 0 : (tile * groups_ + instruction * k_ / group_) * width_;
    return {values_.data() + element, exponents_.data() + element,     grids_.data() + step,
            scales_.data() + block,   scale_exponents_.data() + block, nonzero_.data() + group};
  }

 private:
  void put(std::size_t tile, std::size_t k0, std::size_t position, std::size_t i, const Element<Value, Exponent>& x) {
    const std::size_t at = (tile * depth_ + k0 + position) * width_ + i;
    values_[at] = x.value;
    exponents_[at] = x.exponent;
    if (groups_ != 0 && x.value != 0) {
      std::uint16_t& group = nonzero_[(tile * groups_ + (k0 + position) / group_) * width_ + i];
      group = static_cast<std::uint16_t>(group | 1U << position % group_);
    }
    if constexpr (sizeof(Exponent) == 2) {  // narrow lanes have no use for it
      const std::size_t step = (k0 + position) / count(operand_.model().products_per_step);
      std::int16_t& grid = grids_[(tile * steps_ + step) * width_ + i];
      grid = std::min(grid, x.grid);
    }
  }
  void pack_scales(std::size_t tile, std::size_t first, std::size_t count) {
    const std::size_t blocks = operand_.operand().depth / block_;
    for (std::size_t block = 0; block < blocks; ++block) {
      for (std::size_t i = 0; i < count; ++i) {
        const Factor x = operand_.scale(first + i, block);
        const std::size_t at = (tile * blocks_ + block) * width_ + i;
        scales_[at] = static_cast<double>(float_of(x));
        scale_exponents_[at] = x.kind == Kind::nan ? std::int16_t{0} : x.exponent;
      }
    }
  }

  const FactorReader& operand_;
  std::size_t k_, width_, depth_, steps_, block_, blocks_;
  std::vector<Value, LineAllocator<Value>> values_;
  std::vector<Exponent, LineAllocator<Exponent>> exponents_;
  std::vector<std::int16_t> grids_;
  std::vector<double> scales_;
  std::vector<std::int16_t> scale_exponents_;
  std::size_t group_, groups_;          // of products
  std::vector<std::uint16_t> nonzero_;  // one a group: bit k is set where its k-th factor is not zero
  std::vector<std::size_t> positions_;  // indexed by the instruction's k
  std::array<Element<Value, Exponent>, 256> of_byte_;
};

template <typename Value, typename Exponent>
class VectorRows final : public RowBlock {
 public:
  VectorRows(const FactorReader& a, const Packed<Value, Exponent>& b, ZeroRule zero_rule, std::size_t first,
             std::size_t count)
      : shape_(shape_of(a.model(), zero_rule)), a_(a, count, 1), b_(b), count_(count) {
    for (std::size_t row = 0; row < count; ++row) a_.pack(row, first + row, 1);
  }
  void advance(std::size_t row, std::size_t tile, std::size_t instruction, float* accumulators0,
               float* accumulators1) override {
    const auto a0 = a_.at(row, instruction);
    const auto a1 = a_.at(std::min(row + 1, count_ - 1), instruction);
    const auto b = b_.at(tile, instruction);
    if constexpr (std::is_same_v<Value, float>) {
      if (shape_.groups != 0) return fuse_groups(shape_, a0, a1, b, accumulators0, accumulators1);
    }
    fuse(shape_, a0, a1, b, accumulators0, accumulators1);
  }

 private:
  FuseShape shape_;
  Packed<Value, Exponent> a_;
  const Packed<Value, Exponent>& b_;
  std::size_t count_;
};

template <typename Value, typename Exponent>
class VectorMultiplier final : public Multiplier {
 public:
  VectorMultiplier(const FactorReader& a, const FactorReader& b, ZeroRule zero_rule, int threads)
      : a_(a), b_(b, tiles_of(b), tile_columns), zero_rule_(zero_rule) {
    const std::size_t columns = b.operand().rows;
    parallel_for(tiles_of(b), threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t tile = first; tile < last; ++tile) {
        b_.pack(tile, tile * tile_columns, std::min(tile_columns, columns - tile * tile_columns));
      }
    });
  }
  [[nodiscard]] std::unique_ptr<RowBlock> rows(std::size_t first, std::size_t count) const override {
    return std::make_unique<VectorRows<Value, Exponent>>(a_, b_, zero_rule_, first, count);
  }

 private:
  static std::size_t tiles_of(const FactorReader& b) { return (b.operand().rows + tile_columns - 1) / tile_columns; }

  const FactorReader& a_;
  Packed<Value, Exponent> b_;
  ZeroRule zero_rule_;
};

}  // namespace

bool has_vector_multiplier(const MmaModel& model, ZeroRule zero_rule) {
  // A zero that MMA-Sim counts as 2^-126 stays below all other terms, unless scales or wide exponents take part.
  const bool modest = !model.scales && std::ranges::all_of(model.operands, [](const Format& f) {
    return f.exponent_bits <= binary16.exponent_bits;
  });
  bool rule = zero_rule != ZeroRule::count_zero_factors || modest;
  if (model.group > 1) rule = zero_rule == ZeroRule::floor || zero_rule == ZeroRule::skip_terms;
  return vector_code_allowed() && rule && largest_sum(model) <= 0x1p53 &&
         (model.group == 1 ||
          (model.steps == 1 && model.group <= 16 && count(model.products_per_step / model.group) <= most_groups));
}

float least_vector_accumulator(const MmaModel& model, ZeroRule zero_rule) {
  // Float lanes have no room for the units of smaller ones, and MMA-Sim's zeros could outweigh them.
  return is_narrow(model) || zero_rule == ZeroRule::count_zero_factors ? 0x1p-80F : 0;
}

std::unique_ptr<Multiplier> vector_multiplier(const FactorReader& a, const FactorReader& b, ZeroRule zero_rule,
                                              int threads) {
  if (a.model().group > 1 || is_narrow(a.model())) {
    return std::make_unique<VectorMultiplier<float, std::int8_t>>(a, b, zero_rule, threads);
  }
  return std::make_unique<VectorMultiplier<double, std::int16_t>>(a, b, zero_rule, threads);
}

}  // namespace fp8lab
