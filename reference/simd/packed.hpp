// SPDX-License-Identifier: Apache-2.0
// Operands as the vector code of a product takes them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/memory.hpp"
#include "simd/fuse.hpp"
#include "tensor_core/factors.hpp"

namespace fp8lab {

inline std::size_t size_of(int x) { return static_cast<std::size_t>(x); }

/// Whether a value times its scale is a float32 in whose range 16 products of such remain: in groups, but for E8M0.
inline bool scales_values(const MmaModel& model) {
  return model.group > 1 && model.scales && model.scales->format != e8m0;
}

inline float float_of(const Factor& x) { return static_cast<float>(real_value(x)); }

/// The position of the k-th product of an instruction in the order of the steps, in each of which the products of a sum
/// lie together.
inline std::size_t position(const MmaModel& model, std::size_t k) {
  if (model.sums > 1) {
    const std::size_t in_step = k % size_of(model.products_per_step);
    const std::size_t sum = in_step % size_of(model.sums);
    return k - in_step + sum * size_of(model.products_per_step / model.sums) + in_step / size_of(model.sums);
  }
  switch (model.order) {
    case StepOrder::ascending: break;
    case StepOrder::pairs: return k / 4 * 2 + k % 2 + (k % 4 / 2) * size_of(model.products_per_step);
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
};

/// The exponent of the last place of a narrow factor, of which it is an odd multiple, where it has this sign.
struct LastPlaces {
  std::int8_t positive = no_last_place, negative = no_last_place;

  LastPlaces() = default;
  explicit LastPlaces(float x) {
    if (x == 0 || !std::isfinite(x)) return;
    int exponent = 0;
    const auto significand = static_cast<std::uint32_t>(std::ldexp(std::abs(std::frexp(x, &exponent)), 24));
    (x < 0 ? negative : positive) = static_cast<std::int8_t>(exponent - 24 + std::countr_zero(significand));
  }
};

/// What a code of up to 8 bits is to the vector code.
template <typename Exponent>
struct ElementOfByte {
  Element<Exponent> element;
  LastPlaces lasts;
  bool special;  // an infinity or a NaN
};

/// What the 256 codes of a format are.
template <typename Exponent>
using ElementsOfBytes = std::array<ElementOfByte<Exponent>, 256>;

/// Products of a few rows take less time than this table: the last ones are kept, as FactorReader keeps its own.
template <typename Exponent>
std::shared_ptr<const ElementsOfBytes<Exponent>> elements_of_bytes(
    const std::shared_ptr<const FactorsOfBytes>& factors) {
  using Known = std::pair<std::shared_ptr<const FactorsOfBytes>, std::shared_ptr<const ElementsOfBytes<Exponent>>>;
  constexpr std::size_t most = 16;
  thread_local std::vector<Known> known;
  const auto found = std::ranges::find(known, factors, &Known::first);
  if (found != known.end()) return found->second;
  ElementsOfBytes<Exponent> table;
  for (std::size_t code = 0; code < 256; ++code) {
    const Element<Exponent> element((*factors)[code]);
    table[code] = {element, LastPlaces(element.value), !std::isfinite(element.value)};
  }
  if (known.size() == most) known.erase(known.begin());
  return known.emplace_back(factors, std::make_shared<const ElementsOfBytes<Exponent>>(table)).second;
}

/// Arrays in one piece of memory, each from a cache line on, uninitialized: a small product takes less time than to
/// allocate them one by one.
class LineArrays {
 public:
  /// The memory that take<T>(count) takes.
  template <typename T>
  static std::size_t bytes(std::size_t count) {
    return (count * sizeof(T) + line - 1) / line * line;
  }
  explicit LineArrays(std::size_t bytes) : memory_(bytes) {}
  template <typename T>
  std::span<T> take(std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    T* const first = reinterpret_cast<T*>(memory_.data() + used_);
    used_ += bytes<T>(count);
    return {first, count};
  }

 private:
  static constexpr std::size_t line = 64;
  Buffer<std::byte> memory_;
  std::size_t used_ = 0;
};

/// Rows of an operand as the vector code takes them, `width` rows side by side: [tile][k][width]. The rest is zeros. It
/// holds `depth` elements of K, a multiple of the instruction's.
template <typename Exponent>
class Packed {
 public:
  Packed(const Packed&) = delete;  // its arrays lie in its own memory
  Packed& operator=(const Packed&) = delete;
  /// `has_lasts`: with what fuse_small() takes.
  Packed(const FactorReader& operand, std::size_t tiles, std::size_t width, std::size_t depth, bool has_lasts)
      : operand_(operand),
        k_(size_of(operand.model().k())),
        width_(width),
        depth_(depth),
        block_(operand.block()),
        blocks_(block_ == 0 ? 0 : depth_ / block_),
        group_(size_of(operand.model().group)),
        groups_(group_ == 1 ? 0 : depth_ / group_),
        scales_values_(scales_values(operand.model())),
        flushes_(operand.model().arithmetic == Arithmetic::flushed_pairs),
        per_tile_(depth_ / k_),
        tiles_(tiles),
        has_lasts_(has_lasts),
        memory_(bytes()),
        values_(memory_.template take<float>(elements())),
        exponents_(memory_.template take<Exponent>(elements())),
        near_(memory_.template take<std::uint8_t>(near_elements())),
        scales_(memory_.template take<double>(tiles * blocks_ * width)),
        scale_exponents_(memory_.template take<std::int16_t>(tiles * blocks_ * width)),
        nonzero_(memory_.template take<std::uint16_t>(tiles * groups_ * width)),
        lasts_(memory_.template take<std::int8_t>(has_lasts ? 2 * elements() : 0)),
        special_(memory_.template take<std::uint8_t>(tiles * per_tile_)),
        of_elements_(memory_.template take<ExponentRange>(tiles)),
        of_scales_(memory_.template take<ExponentRange>(tiles)),
        near_bases_(memory_.template take<std::int16_t>(is_wide ? tiles : 0)),
        positions_(memory_.template take<std::size_t>(k_)) {
    if (tiles == 0) return;
    for (std::size_t k = 0; k < k_; ++k) positions_[k] = position(operand.model(), k) * width;
    if (operand.has_byte_table()) of_bytes_ = elements_of_bytes<Exponent>(operand.of_bytes());
  }

  /// Makes a tile of rows [first, first + count), count <= width, and of K from `from`, where an instruction begins.
  void pack(std::size_t tile, std::size_t first, std::size_t count, std::size_t from = 0) {
    const std::size_t end = std::min(operand_.operand().depth, from + depth_);
    std::fill_n(&special_[tile * per_tile_], per_tile_, std::uint8_t{0});
    if (count != width_ || end - from != depth_) clear(tile);  // elsewhere everything is written
    std::size_t instruction = tile * per_tile_;
    for (std::size_t k0 = from; k0 < end; k0 += k_, ++instruction) {
      checkpoint(k0 - from);
      const std::size_t k1 = std::min(end, k0 + k_);
      const auto place = [&](std::size_t i) { return place_of(tile, k0 - from, i, instruction); };
      if (operand_.has_byte_table()) {
        for (std::size_t i = 0; i < count; ++i) put_codes(place(i), first + i, k0, k1);
      } else {
        put_values(place(0), first, count, k0, k1);
      }
      for (std::size_t i = 0; groups_ != 0 && i < count; ++i) find_nonzero(place(i));
    }
    if (blocks_ != 0) pack_scales(tile, first, count, from / block_, end / block_);
    if constexpr (is_wide) look_at_exponents(tile);
  }

  /// The factors of a tile that instruction number `instruction` takes.
  [[nodiscard]] FactorsOf<Exponent> at(std::size_t tile, std::size_t instruction) const {
    const std::size_t element = (tile * depth_ + instruction * k_) * width_;
    const std::size_t block = blocks_ == 0 ? 0 : (tile * blocks_ + instruction * k_ / block_) * width_;
    const std::size_t group = groups_ == 0 ? 0 : (tile * groups_ + instruction * k_ / group_) * width_;
    return {values_.data() + element,
            exponents_.data() + element,
            near_of(element),
            scales_.data() + block,
            scale_exponents_.data() + block,
            nonzero_.data() + group,
            lasts_.empty() ? nullptr : lasts_.data() + 2 * element,
            special_[tile * per_tile_ + instruction] != 0,
            is_wide ? near_bases_[tile] : 0};
  }
  /// The factors of all tiles that it takes, where tiles are of one row each.
  [[nodiscard]] RowsOf<Exponent> rows_at(std::size_t instruction) const {
    const std::int16_t* const bases = is_wide ? near_bases_.data() : nullptr;
    return {at(0, instruction), &special_[instruction], bases, tiles_, depth_, blocks_, groups_, per_tile_};
  }
  /// Whether fuse() takes tile `own` and one of `other` with all their exponents.
  [[nodiscard]] bool within_limits(std::size_t own, const Packed& other, std::size_t tile) const {
    if constexpr (!is_wide) return true;
    const int low = of_elements_[own].low + other.of_elements_[tile].low;
    const int high = of_elements_[own].high + other.of_elements_[tile].high;
    const int low_scale = of_scales_[own].low + other.of_scales_[tile].low;
    const int high_scale = of_scales_[own].high + other.of_scales_[tile].high;
    return low + low_scale >= -fuse_exponent_limit && high + high_scale <= fuse_exponent_limit;
  }

 private:
  static constexpr bool is_wide = sizeof(Exponent) == 2;
  [[nodiscard]] std::size_t elements() const { return tiles_ * depth_ * width_; }
  [[nodiscard]] std::size_t near_elements() const { return is_wide ? elements() : 0; }
  [[nodiscard]] const NearOf<Exponent>* near_of(std::size_t element) const {
    if constexpr (is_wide) {
      return near_.data() + element;
    } else {
      return exponents_.data() + element;
    }
  }
  /// The memory that the arrays take.
  [[nodiscard]] std::size_t bytes() const {
    const std::size_t scales = tiles_ * blocks_ * width_;
    return LineArrays::bytes<float>(elements()) + LineArrays::bytes<Exponent>(elements()) +
           LineArrays::bytes<std::uint8_t>(near_elements()) + LineArrays::bytes<std::int16_t>(is_wide ? tiles_ : 0) +
           LineArrays::bytes<double>(scales) + LineArrays::bytes<std::int16_t>(scales) +
           LineArrays::bytes<std::uint16_t>(tiles_ * groups_ * width_) +
           LineArrays::bytes<std::int8_t>(has_lasts_ ? 2 * elements() : 0) +
           LineArrays::bytes<std::uint8_t>(tiles_ * per_tile_) + 2 * LineArrays::bytes<ExponentRange>(tiles_) +
           LineArrays::bytes<std::size_t>(k_);
  }
  void clear(std::size_t tile) {
    const auto fill = [&](auto& all, std::size_t count, auto value) {
      if (count != 0) std::fill_n(&all[tile * count], count, value);
    };
    fill(values_, depth_ * width_, 0.0F);
    fill(exponents_, depth_ * width_, absent_exponent_of<Exponent>);
    fill(scales_, blocks_ * width_, 0.0);
    fill(scale_exponents_, blocks_ * width_, groups_ == 0 ? std::int16_t{0} : absent_exponent_of<std::int16_t>);
    fill(nonzero_, groups_ * width_, std::uint16_t{0});
    if (!lasts_.empty()) fill(lasts_, 2 * depth_ * width_, no_last_place);
  }
  /// Where one row of an instruction goes.
  struct Place {
    float* values;
    Exponent* exponents;
    std::uint16_t* nonzero;
    std::int8_t* lasts;
    std::uint8_t* special;
  };
  /// `k` begins an instruction, which is number `instruction` of all tiles'.
  Place place_of(std::size_t tile, std::size_t k, std::size_t i, std::size_t instruction) {
    const std::size_t at = (tile * depth_ + k) * width_ + i;
    return {values_.data() + at, exponents_.data() + at,
            groups_ == 0 ? nullptr : nonzero_.data() + (tile * groups_ + k / group_) * width_ + i,
            lasts_.empty() ? nullptr : lasts_.data() + 2 * (tile * depth_ + k) * width_ + i, &special_[instruction]};
  }
  /// Puts codes of a row, all of one instruction.
  void put_codes(const Place& place, std::size_t row, std::size_t k0, std::size_t k1) {
    const Place to = place;  // copies, which no store of a byte can change: they stay in registers
    const ElementOfByte<Exponent>* const of_bytes = of_bytes_->data();
    const std::size_t* const positions = positions_.data();
    const std::size_t width = width_;
    bool special = false;
    operand_.for_codes(row, k0, k1, [&](std::size_t k, std::uint8_t code) {
      const ElementOfByte<Exponent> x = of_bytes[code];
      const std::size_t position = positions[k - k0];
      to.values[position] = x.element.value;
      to.exponents[position] = x.element.exponent;
      if (to.lasts != nullptr) {
        to.lasts[2 * position] = x.lasts.positive;
        to.lasts[2 * position + width] = x.lasts.negative;
      }
      special |= x.special;
    });
    if (special) *place.special = 1;
  }
  /// Puts elements of 16 or 32 bits of rows, all of one instruction. `place` is that of the first row.
  void put_values(const Place& place, std::size_t first, std::size_t count, std::size_t k0, std::size_t k1) {
    if (operand_.operand().transposed && count > 1) {  // rows lie side by side
      for (std::size_t k = k0; k < k1; ++k) operand_.read_rows(first, k, {place.values + positions_[k - k0], count});
    } else {
      for (std::size_t i = 0; i < count; ++i) put_row(place.values + i, first + i, k0, k1);
    }
    const std::span<float> values(place.values, k_ * width_);
    if (find_exponents(operand_.format().min_exponent(), flushes_, values, place.exponents)) *place.special = 1;
    if (place.lasts == nullptr) return;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const LastPlaces x(values[i]);
      std::int8_t* const to = place.lasts + 2 * (i - i % width_) + i % width_;
      to[0] = x.positive;
      to[width_] = x.negative;
    }
  }
  void put_row(float* values, std::size_t row, std::size_t k0, std::size_t k1) {
    std::array<float, 64> own;
    for (std::size_t k = k0; k < k1; k += own.size()) {
      const auto some = std::span(own).first(std::min(own.size(), k1 - k));
      operand_.read_values(row, k, some);
      for (std::size_t i = 0; i < some.size(); ++i) values[positions_[k - k0 + i]] = some[i];
    }
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
    const std::size_t instruction = block * block_ / k_;
    const Place place = place_of(tile, instruction * k_, i, tile * per_tile_ + instruction);
    for (std::size_t k = block * block_ % k_; k < block * block_ % k_ + block_; ++k) {
      place.values[positions_[k]] = std::numeric_limits<float>::quiet_NaN();
      place.exponents[positions_[k]] = absent_exponent_of<Exponent>;
      *place.special = 1;
    }
  }
  void scale_values(std::size_t tile, std::size_t block, std::size_t i, float scale) {
    float* const values = values_.data() + (tile * depth_ + block * block_) * width_ + i;
    for (std::size_t k = 0; k < block_; ++k) values[k * width_] *= scale;
  }
  void look_at_exponents(std::size_t tile) {
    const std::size_t elements = depth_ * width_;
    const std::size_t scales = blocks_ * width_;
    const auto exponents = exponents_.subspan(tile * elements, elements);
    const ExponentRange range = range_of(exponents);
    near_exponents(exponents, range.high, &near_[tile * elements]);
    near_bases_[tile] = static_cast<std::int16_t>(range.high);
    of_elements_[tile] = with_zero(range);
    of_scales_[tile] = with_zero(range_of(scale_exponents_.subspan(tile * scales, scales)));
  }
  static ExponentRange with_zero(const ExponentRange& range) {
    return {std::min(range.low, 0), std::max(range.high, 0)};
  }

  const FactorReader& operand_;
  std::size_t k_, width_, depth_, block_, blocks_, group_, groups_;  // a group is of products
  bool scales_values_;
  bool flushes_;                  // subnormal elements to zero
  std::size_t per_tile_, tiles_;  // instructions; tiles
  bool has_lasts_;
  LineArrays memory_;  // of all that follow
  std::span<float> values_;
  std::span<Exponent> exponents_;
  std::span<std::uint8_t> near_;  // of wide ones, as near_exponents() makes them
  std::span<double> scales_;
  std::span<std::int16_t> scale_exponents_;
  std::span<std::uint16_t> nonzero_;                  // one a group: bit k is set where its k-th factor is not zero
  std::span<std::int8_t> lasts_;                      // empty where nothing needs them
  std::span<std::uint8_t> special_;                   // one an instruction: whether there is an infinity or a NaN
  std::span<ExponentRange> of_elements_, of_scales_;  // one a tile
  std::span<std::int16_t> near_bases_;                // likewise
  std::span<std::size_t> positions_;                  // indexed by the instruction's k; times the width. Last: vectors
                                                      // are loaded from the ends of arrays on
  std::shared_ptr<const ElementsOfBytes<Exponent>> of_bytes_;
};

}  // namespace fp8lab
