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

std::size_t count(int x) { return static_cast<std::size_t>(x); }

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

StepSum sum_of(const MmaModel& model) {
  const double largest = largest_sum(model);
  const bool bytes = std::ranges::all_of(model.operands, [](const Format& f) { return f.bits() <= 8; });
  if (bytes && !model.scales && model.lowering == Lowering::native && largest <= 0x1p24) return StepSum::floats;
  return largest < 0x1p31 ? StepSum::ints : StepSum::int_pairs;
}

/// Whether exponents of factors are in [-31, 31], and there are no scales but those of groups.
bool is_narrow(const MmaModel& model) {
  return model.group > 1 || (!model.scales && std::ranges::all_of(model.operands, [](const Format& f) {
           return f.exponent_bits <= binary16.exponent_bits;
         }));
}

/// Whether a value times its scale is a float32 in whose range 16 products of such remain: in groups, but for E8M0.
bool scales_values(const MmaModel& model) { return model.group > 1 && model.scales && model.scales->format != e8m0; }

/// A group's scaled sum is a multiple of 2^(the exponents of its scales - group_bits).
int group_bits(const MmaModel& model) {
  if (model.group == 1 || !model.scales) return 0;
  int least = 0;  // of a factor's exponents
  for (const Format& format : model.operands) least = std::min(least, format.min_exponent() - format.mantissa_bits);
  return 2 * (model.scales->format.mantissa_bits - least);
}

FuseShape shape_of(const MmaModel& model, ZeroRule zero_rule) {
  return {.arithmetic = model.arithmetic,
          .steps = count(model.steps),
          .products = count(model.products_per_step),
          .groups = model.group == 1 ? 0 : count(model.products_per_step / model.group),
          .block = model.scales ? count(model.scales->block) : 0,
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
          .sums = count(model.sums),
          .sum_bits = model.sum_bits,
          .drops_small_c = model.drops_small_c};
}

float float_of(const Factor& x) { return static_cast<float>(real_value(x)); }

/// The position of the k-th product of an instruction in the order of the steps, in each of which the products of a sum
/// lie together.
std::size_t position(const MmaModel& model, std::size_t k) {
  if (model.sums > 1) {
    const std::size_t in_step = k % count(model.products_per_step);
    const std::size_t sum = in_step % count(model.sums);
    return k - in_step + sum * count(model.products_per_step / model.sums) + in_step / count(model.sums);
  }
  switch (model.order) {
    case StepOrder::ascending: break;
    case StepOrder::pairs: return k / 4 * 2 + k % 2 + (k % 4 / 2) * count(model.products_per_step);
  }
  return k;
}

/// The parts of a factor that the vector code uses.
template <typename Exponent>
struct Element {
  float value;
  Exponent exponent;

  Element() = default;
  explicit Element(const Factor& x)
      : value(float_of(x)),
        exponent(x.kind == Kind::finite ? static_cast<Exponent>(x.exponent) : absent_exponent_of<Exponent>) {}
  /// A value of a format whose least normal number has the exponent `least`.
  Element(float x, int least) : value(x), exponent(absent_exponent_of<Exponent>) {
    const int field = static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 23 & 0xFF);
    if (x != 0 && field != 0xFF) exponent = static_cast<Exponent>(std::max(field - 127, least));
  }
};

/// The least and the largest of some exponents.
struct ExponentRange {
  int low = 0, high = 0;  // 0 among them harms no one

  void add(int exponent) {
    low = std::min(low, exponent);
    high = std::max(high, exponent);
  }
};

/// Above it, an operand is packed window by window where it is needed: K x tile_columns factors would need much memory.
constexpr std::size_t most_whole_depth = 8192;
/// Elements of K of a window.
constexpr std::size_t window_depth = 2048;

std::size_t rounded_up(std::size_t x, std::size_t unit) { return (x + unit - 1) / unit * unit; }

/// Rows of an operand as the vector code takes them, `width` rows side by side: [tile][k][width]. The rest is zeros. It
/// holds `depth` elements of K, a multiple of the instruction's.
template <typename Exponent>
class Packed {
 public:
  Packed(const FactorReader& operand, std::size_t tiles, std::size_t width, std::size_t depth)
      : operand_(operand),
        k_(count(operand.model().k())),
        width_(width),
        depth_(depth),
        block_(operand.block()),
        blocks_(block_ == 0 ? 0 : depth_ / block_),
        group_(count(operand.model().group)),
        groups_(group_ == 1 ? 0 : depth_ / group_),
        scales_values_(scales_values(operand.model())),
        flushes_(operand.model().arithmetic == Arithmetic::flushed_pairs),
        values_(tiles * depth_ * width),
        exponents_(tiles * depth_ * width),
        scales_(tiles * blocks_ * width),
        scale_exponents_(tiles * blocks_ * width),
        nonzero_(tiles * groups_ * width),
        special_(tiles * depth_ / k_),
        of_elements_(tiles),
        of_scales_(tiles) {
    for (std::size_t k = 0; k < k_; ++k) positions_.push_back(position(operand.model(), k) * width);
    if (operand.has_byte_table()) {
      for (std::size_t code = 0; code < 256; ++code) of_byte_[code] = Element<Exponent>(operand.of_byte(code));
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
          const int least = operand_.format().min_exponent();
          operand_.for_values(first + i, k0, k1, [&](std::size_t k, float x) {
            const bool flushed = flushes_ && std::abs(x) < power_of_two(least);
            put(place, positions_[k - k0], Element<Exponent>(flushed ? 0.0F : x, least));
          });
        }
        if (groups_ != 0) find_nonzero(place);
      }
    }
    if (blocks_ != 0) pack_scales(tile, first, count, from / block_, end / block_);
    if constexpr (sizeof(Exponent) == 2) find_range(tile);
  }

  /// What instruction number `instruction` takes of a tile.
  [[nodiscard]] FactorsOf<Exponent> at(std::size_t tile, std::size_t instruction) const {
    const std::size_t element = (tile * depth_ + instruction * k_) * width_;
    const std::size_t block = blocks_ == 0 ? 0 : (tile * blocks_ + instruction * k_ / block_) * width_;
    const std::size_t group = groups_ == 0 ? 0 : (tile * groups_ + instruction * k_ / group_) * width_;
    return {values_.data() + element, exponents_.data() + element,
            scales_.data() + block,   scale_exponents_.data() + block,
            nonzero_.data() + group,  special_[tile * depth_ / k_ + instruction] != 0};
  }
  /// The same of all tiles, which are of one row each.
  [[nodiscard]] RowsOf<Exponent> rows_at(std::size_t instruction) const {
    return {at(0, instruction), &special_[instruction], of_elements_.size(), depth_, blocks_, groups_, depth_ / k_};
  }
  /// Whether fuse() takes tile `own` and one of `other` with all their exponents.
  [[nodiscard]] bool within_limits(std::size_t own, const Packed& other, std::size_t tile) const {
    if constexpr (sizeof(Exponent) == 1) return true;
    const int low = of_elements_[own].low + other.of_elements_[tile].low;
    const int high = of_elements_[own].high + other.of_elements_[tile].high;
    const int low_scale = of_scales_[own].low + other.of_scales_[tile].low;
    const int high_scale = of_scales_[own].high + other.of_scales_[tile].high;
    return low + low_scale >= -fuse_exponent_limit && high + high_scale <= fuse_exponent_limit;
  }

 private:
  void clear(std::size_t tile) {
    const auto fill = [&](auto& all, std::size_t count, auto value) {
      if (count != 0) std::fill_n(&all[tile * count], count, value);
    };
    fill(values_, depth_ * width_, 0.0F);
    fill(exponents_, depth_ * width_, absent_exponent_of<Exponent>);
    fill(scales_, blocks_ * width_, 0.0);
    fill(scale_exponents_, blocks_ * width_, groups_ == 0 ? std::int16_t{0} : absent_exponent_of<std::int16_t>);
    fill(nonzero_, groups_ * width_, std::uint16_t{0});
    fill(special_, depth_ / k_, std::uint8_t{0});
  }
  /// Where one row of an instruction goes.
  struct Place {
    float* values;
    Exponent* exponents;
    std::uint16_t* nonzero;
    std::uint8_t* special;
  };
  Place place_of(std::size_t tile, std::size_t k, std::size_t i) {
    const std::size_t at = (tile * depth_ + k) * width_ + i;
    return {values_.data() + at, exponents_.data() + at,
            groups_ == 0 ? nullptr : nonzero_.data() + (tile * groups_ + k / group_) * width_ + i,
            special_.data() + (tile * depth_ + k) / k_};
  }
  /// `position`: where the element goes, from there on.
  void put(const Place& place, std::size_t position, const Element<Exponent>& x) {
    place.values[position] = x.value;
    place.exponents[position] = x.exponent;
    if (!std::isfinite(x.value)) *place.special = 1;
  }
  /// Finds which factors of an instruction's groups are not zero.
  void find_nonzero(const Place& place) {
    for (std::size_t group = 0; group < k_ / group_; ++group) {
      unsigned bits = 0;
      for (std::size_t k = 0; k < group_; ++k) {
        bits |= static_cast<unsigned>(place.values[(group * group_ + k) * width_] != 0) << k;
      }
      place.nonzero[group * width_] = static_cast<std::uint16_t>(bits);
    }
  }
  void pack_scales(std::size_t tile, std::size_t first, std::size_t count, std::size_t from, std::size_t end) {
    for (std::size_t block = from; block < end; ++block) {
      for (std::size_t i = 0; i < count; ++i) {
        const Factor x = operand_.scale(first + i, block);
        const std::size_t at = (tile * blocks_ + block - from) * width_ + i;
        scales_[at] = static_cast<double>(float_of(x));
        scale_exponents_[at] = x.kind == Kind::nan ? std::int16_t{0} : x.exponent;
        if (x.kind == Kind::nan && groups_ == 0) make_nan(tile, block - from, i);
        if (scales_values_) scale_values(tile, block - from, i, float_of(x));
      }
    }
  }
  /// Makes what a NaN scales: NaN. The steps of a block are those of one instruction.
  void make_nan(std::size_t tile, std::size_t block, std::size_t i) {
    const Place place = place_of(tile, block * block_ / k_ * k_, i);
    for (std::size_t k = block * block_ % k_; k < block * block_ % k_ + block_; ++k) {
      put(place, positions_[k], Element<Exponent>(std::numeric_limits<float>::quiet_NaN(), 0));
    }
  }
  void scale_values(std::size_t tile, std::size_t block, std::size_t i, float scale) {
    float* const values = values_.data() + (tile * depth_ + block * block_) * width_ + i;
    for (std::size_t k = 0; k < block_; ++k) values[k * width_] *= scale;
  }
  void find_range(std::size_t tile) {
    const auto range = [&](const auto& exponents, std::size_t count) {
      ExponentRange result;
      for (const std::int16_t x : std::span(exponents).subspan(tile * count, count)) {
        if (x != absent_exponent_of<std::int16_t>) result.add(x);
      }
      return result;
    };
    of_elements_[tile] = range(exponents_, depth_ * width_);
    of_scales_[tile] = range(scale_exponents_, blocks_ * width_);
  }

  const FactorReader& operand_;
  std::size_t k_, width_, depth_, block_, blocks_, group_, groups_;  // a group is of products
  bool scales_values_;
  bool flushes_;  // subnormal elements to zero
  std::vector<float, LineAllocator<float>> values_;
  std::vector<Exponent, LineAllocator<Exponent>> exponents_;
  std::vector<double> scales_;
  std::vector<std::int16_t> scale_exponents_;
  std::vector<std::uint16_t> nonzero_;                  // one a group: bit k is set where its k-th factor is not zero
  std::vector<std::uint8_t> special_;                   // one an instruction: whether there is an infinity or a NaN
  std::vector<ExponentRange> of_elements_, of_scales_;  // one a tile
  std::vector<std::size_t> positions_;                  // indexed by the instruction's k; times the width
  std::array<Element<Exponent>, 256> of_byte_;
};

std::size_t depth_of(const FactorReader& operand) {
  return rounded_up(operand.operand().depth, count(operand.model().k()));
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
        a_(a, count, 1, whole_b == nullptr ? window_size() : depth_of(a)),
        b_(b, whole_b == nullptr ? 1 : 0, tile_columns, whole_b == nullptr ? window_size() : 0) {
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
    fuse(shape_, a, b, accumulators);
  }

 private:
  [[nodiscard]] std::size_t window_size() const { return rounded_up(window_depth, k_); }
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
    // What is wide stays so: its accumulators may have become too small for fuse().
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
      : a_(a), b_(b), whole_b_(b, is_deep() ? 0 : tiles(), tile_columns, depth_of(b)), zero_rule_(zero_rule) {
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
    case Arithmetic::exact: return false;
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
          (model.steps == 1 && model.group <= 16 && count(model.products_per_step / model.group) <= most_groups));
}

std::unique_ptr<Multiplier> vector_multiplier(const FactorReader& a, const FactorReader& b, ZeroRule zero_rule,
                                              int threads) {
  if (is_narrow(a.model())) return std::make_unique<VectorMultiplier<std::int8_t>>(a, b, zero_rule, threads);
  return std::make_unique<VectorMultiplier<std::int16_t>>(a, b, zero_rule, threads);
}

}  // namespace fp8lab
