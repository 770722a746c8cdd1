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

float float_of(const Factor& x) { return static_cast<float>(real_value(x)); }

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

/// Above it, an operand is packed window by window where it is needed: K x tile_columns factors would need much memory.
constexpr std::size_t most_whole_depth = 8192;
/// Elements of K of a window.
constexpr std::size_t window_depth = 2048;

std::size_t rounded_up(std::size_t x, std::size_t unit) { return (x + unit - 1) / unit * unit; }

/// Rows of an operand as the vector code takes them, `width` rows side by side: [tile][k][width]. The rest is zeros. It
/// holds `depth` elements of K, a multiple of the instruction's.
template <typename Value, typename Exponent>
class Packed {
 public:
  Packed(const FactorReader& operand, std::size_t tiles, std::size_t width, std::size_t depth)
      : operand_(operand),
        k_(count(operand.model().k())),
        width_(width),
        depth_(depth),
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

  /// Makes a tile of rows [first, first + count), count <= width, and of K from `from`, where an instruction begins.
  void pack(std::size_t tile, std::size_t first, std::size_t count, std::size_t from = 0) {
    const std::size_t end = std::min(operand_.operand().depth, from + depth_);
    clear(tile);
    for (std::size_t k0 = from; k0 < end; k0 += k_) {
      checkpoint();
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t k1 = std::min(end, k0 + k_);
        const Place place = place_of(tile, k0 - from, i);
        if (operand_.has_byte_table()) {
          operand_.for_codes(first + i, k0, k1,
                             [&](std::size_t k, std::uint8_t code) { put(place, positions_[k - k0], of_byte_[code]); });
        } else {
          operand_.for_row(first + i, k0, k1, [&](std::size_t k, const Factor& x) {
            put(place, positions_[k - k0], Element<Value, Exponent>(x));
          });
        }
      }
    }
    if (blocks_ != 0) pack_scales(tile, first, count, from / block_, end / block_);
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
  void clear(std::size_t tile) {
    const auto fill = [&](auto& all, std::size_t count, auto value) {
      if (count != 0) std::fill_n(&all[tile * count * width_], count * width_, value);
    };
    fill(values_, depth_, Value{0});
    fill(exponents_, depth_, absent_exponent_of<Exponent>);
    fill(grids_, steps_, no_grid);
    fill(scales_, blocks_, 0.0);
    fill(scale_exponents_, blocks_, absent_exponent_of<std::int16_t>);
    fill(nonzero_, groups_, std::uint16_t{0});
  }
  /// Where one row of an instruction goes.
  struct Place {
    Value* values;
    Exponent* exponents;
    std::int16_t* grids;
    std::uint16_t* nonzero;
  };
  Place place_of(std::size_t tile, std::size_t k, std::size_t i) {
    const std::size_t at = (tile * depth_ + k) * width_ + i;
    const std::size_t step = k / count(operand_.model().products_per_step);
    return {values_.data() + at, exponents_.data() + at, grids_.data() + (tile * steps_ + step) * width_ + i,
            groups_ == 0 ? nullptr : nonzero_.data() + (tile * groups_ + k / group_) * width_ + i};
  }
  void put(const Place& place, std::size_t position, const Element<Value, Exponent>& x) {
    place.values[position * width_] = x.value;
    place.exponents[position * width_] = x.exponent;
    if (place.nonzero != nullptr && x.value != 0) {
      std::uint16_t& group = place.nonzero[position / group_ * width_];
      group = static_cast<std::uint16_t>(group | 1U << position % group_);
    }
    if constexpr (sizeof(Exponent) == 2) {  // narrow lanes have no use for it
      std::int16_t& grid = place.grids[position / count(operand_.model().products_per_step) * width_];
      grid = std::min(grid, x.grid);
    }
  }
  void pack_scales(std::size_t tile, std::size_t first, std::size_t count, std::size_t from, std::size_t end) {
    for (std::size_t block = from; block < end; ++block) {
      for (std::size_t i = 0; i < count; ++i) {
        const Factor x = operand_.scale(first + i, block);
        const std::size_t at = (tile * blocks_ + block - from) * width_ + i;
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

std::size_t depth_of(const FactorReader& operand) {
  return rounded_up(operand.operand().depth, count(operand.model().k()));
}

/// Some rows of a, and what they are multiplied with: a whole b that is packed, or where b is deep a window of one
/// tile.
template <typename Value, typename Exponent>
class VectorRows final : public RowBlock {
 public:
  using Pack = Packed<Value, Exponent>;

  /// `whole_b` is null where b is deep.
  VectorRows(const FactorReader& a, const FactorReader& b, const Pack* whole_b, ZeroRule zero_rule, std::size_t first,
             std::size_t count)
      : shape_(shape_of(a.model(), zero_rule)),
        k_(static_cast<std::size_t>(a.model().k())),
        columns_(b.operand().rows),
        first_(first),
        count_(count),
        whole_b_(whole_b),
        a_(a, count, 1, whole_b == nullptr ? window_size() : depth_of(a)),
        b_(b, whole_b == nullptr ? 1 : 0, tile_columns, whole_b == nullptr ? window_size() : 0) {
    if (whole_b != nullptr) pack_rows(0);
  }
  void advance(std::size_t row, std::size_t tile, std::size_t instruction, float* accumulators0,
               float* accumulators1) override {
    if (whole_b_ == nullptr && (tile != tile_ || instruction < begin_ || instruction >= end_)) load(tile, instruction);
    const auto a0 = a_.at(row, instruction - begin_);
    const auto a1 = a_.at(std::min(row + 1, count_ - 1), instruction - begin_);
    const auto b = whole_b_ == nullptr ? b_.at(0, instruction - begin_) : whole_b_->at(tile, instruction);
    if constexpr (std::is_same_v<Value, float>) {
      if (shape_.groups != 0) return fuse_groups(shape_, a0, a1, b, accumulators0, accumulators1);
    }
    fuse(shape_, a0, a1, b, accumulators0, accumulators1);
  }

 private:
  [[nodiscard]] std::size_t window_size() const { return rounded_up(window_depth, k_); }
  void pack_rows(std::size_t from) {
    for (std::size_t row = 0; row < count_; ++row) a_.pack(row, first_ + row, 1, from);
  }
  void load(std::size_t tile, std::size_t instruction) {
    pack_rows(instruction * k_);
    b_.pack(0, tile * tile_columns, std::min(tile_columns, columns_ - tile * tile_columns), instruction * k_);
    tile_ = tile;
    begin_ = instruction;
    end_ = instruction + window_size() / k_;
  }

  FuseShape shape_;
  std::size_t k_, columns_, first_, count_;
  const Pack* whole_b_;
  Pack a_, b_;
  std::size_t tile_ = 0, begin_ = 0, end_ = 0;  // the window: instructions [begin, end) of a tile
};

template <typename Value, typename Exponent>
class VectorMultiplier final : public Multiplier {
 public:
  VectorMultiplier(const FactorReader& a, const FactorReader& b, ZeroRule zero_rule, int threads)
      : a_(a), b_(b), whole_b_(b, is_deep() ? 0 : tiles(), tile_columns, depth_of(b)), zero_rule_(zero_rule) {
    if (is_deep()) return;
    const std::size_t columns = b.operand().rows;
    parallel_for(tiles(), threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t tile = first; tile < last; ++tile) {
        whole_b_.pack(tile, tile * tile_columns, std::min(tile_columns, columns - tile * tile_columns));
      }
    });
  }
  [[nodiscard]] std::unique_ptr<RowBlock> rows(std::size_t first, std::size_t count) const override {
    return std::make_unique<VectorRows<Value, Exponent>>(a_, b_, is_deep() ? nullptr : &whole_b_, zero_rule_, first,
                                                         count);
  }

 private:
  [[nodiscard]] std::size_t tiles() const { return (b_.operand().rows + tile_columns - 1) / tile_columns; }
  [[nodiscard]] bool is_deep() const { return depth_of(b_) > most_whole_depth; }

  const FactorReader& a_;
  const FactorReader& b_;
  Packed<Value, Exponent> whole_b_;
  ZeroRule zero_rule_;
};

}  // namespace

bool has_vector_multiplier(const MmaModel& model, ZeroRule zero_rule) {
  if (model.arithmetic != Arithmetic::fused) return false;
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
