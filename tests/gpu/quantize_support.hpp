// SPDX-License-Identifier: Apache-2.0
// Tensors of any type and alignment, and a quantizer's kernels beside the reference.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/gpu/quantize.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "support.hpp"

namespace fp8lab::tests {

inline const std::array quantize_orders{
    gpu::HostOrder{}, gpu::HostOrder{.kind = gpu::HostOrder::Kind::descending},
    gpu::HostOrder{.kind = gpu::HostOrder::Kind::shuffled, .seed = 5},
    gpu::HostOrder{.kind = gpu::HostOrder::Kind::shuffled, .seed = 6, .threads = 3}};
inline constexpr std::array element_types{gpu::ElementType::float32, gpu::ElementType::float16,
                                          gpu::ElementType::bfloat16};

/// Values of any type, which begin `shift` elements after a multiple of 64 bytes.
class Tensor {
 public:
  /// Gaussian-like values of many magnitudes, and some of every special kind.
  Tensor(gpu::ElementType type, std::size_t rows, std::size_t columns, std::uint64_t seed, std::size_t shift = 0)
      : type_(type), rows_(rows), columns_(columns), bytes_((size() + shift) * width() + 64) {
    begin_ = bytes_.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64 + shift * width();
    bytes_.resize(bytes_.size() + 128);
    begin_ = bytes_.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64 + shift * width();
    for (std::size_t i = 0; i < size(); ++i) {
      const std::uint64_t word = random_bits(seed, i);
      const float magnitude = static_cast<float>(word & 0xFFFF) * 0x1p-14F;
      const float spread = std::ldexp(magnitude, static_cast<int>(word >> 16 & 7) - 4);
      put(i, (word >> 20 & 1) != 0 ? -spread : spread);
    }
    constexpr std::array special{nan, -0.0F, inf, -nan, -inf, 0x1p-140F, 0x1p-24F};
    for (std::size_t i = 0; i < special.size() && seed % 3 == 0; ++i) put(random_bits(seed, i) % size(), special[i]);
  }
  Tensor(Tensor&&) = delete;

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t columns() const { return columns_; }
  [[nodiscard]] std::size_t size() const { return rows_ * columns_; }
  [[nodiscard]] gpu::ElementMatrix matrix() const { return {{begin_, size() * width()}, type_, rows_, columns_}; }
  [[nodiscard]] float operator[](std::size_t i) const {
    if (type_ == gpu::ElementType::float32) return at<float>()[i];
    return type_ == gpu::ElementType::float16 ? widened(at<Half>()[i]) : widened(at<BFloat16>()[i]);
  }
  void put(std::size_t i, float x) {
    if (type_ == gpu::ElementType::float32) {
      std::memcpy(begin_ + i * 4, &x, 4);
    } else {
      const Format format = type_ == gpu::ElementType::float16 ? binary16 : bfloat16;
      const auto word = static_cast<std::uint16_t>(encode(format, ieee_policy, x));
      std::memcpy(begin_ + i * 2, &word, 2);
    }
  }
  void fill(float x) {
    for (std::size_t i = 0; i < size(); ++i) put(i, x);
  }
  [[nodiscard]] MatrixView view() const {
    if (type_ == gpu::ElementType::float32) return {std::span(at<float>(), size()), rows_, columns_};
    if (type_ == gpu::ElementType::float16) return {std::span(at<Half>(), size()), rows_, columns_};
    return {std::span(at<BFloat16>(), size()), rows_, columns_};
  }

 private:
  [[nodiscard]] std::size_t width() const { return type_ == gpu::ElementType::float32 ? 4 : 2; }
  template <typename Source>
  [[nodiscard]] const Source* at() const {
    return reinterpret_cast<const Source*>(begin_);
  }

  gpu::ElementType type_;
  std::size_t rows_, columns_;
  std::vector<std::byte> bytes_;
  std::byte* begin_;
};

/// The amax, NaNs dropped.
inline float amax_of(const Tensor& x) {
  float amax = 0;
  for (std::size_t i = 0; i < x.size(); ++i) amax = std::fmax(amax, std::abs(x[i]));
  return amax;
}

/// An array between guards, `shift` elements after a multiple of 16 bytes, full of a poison.
template <typename T>
class Guarded {
 public:
  Guarded(std::size_t count, std::size_t shift)
      : count_(count), bytes_((count + shift) * sizeof(T) + 3 * guard, poison) {
    begin_ = guard + (16 - reinterpret_cast<std::uintptr_t>(bytes_.data() + guard) % 16) % 16 + shift * sizeof(T);
  }
  [[nodiscard]] std::span<T> span() { return {reinterpret_cast<T*>(bytes_.data() + begin_), count_}; }
  /// Whether a byte beside the array has changed.
  [[nodiscard]] bool overrun() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + count_ * sizeof(T);
      if (!inside && bytes_[i] != poison) return true;
    }
    return false;
  }

 private:
  static constexpr std::size_t guard = 64;
  static constexpr std::uint8_t poison = 0xC3;
  std::size_t count_;
  std::vector<std::uint8_t> bytes_;
  std::size_t begin_;
};

/// What is quantized, and how.
struct QuantizeCase {
  Recipe recipe;
  ScaleLayout layout = ScaleLayout::compact;
  std::optional<gpu::PhiloxState> random = {};
  std::size_t shift = 0;  ///< of the outputs
};

/// The scales of a Quantized in the rows of its codes' K: as swizzle_scales() wants them.
inline std::vector<std::uint8_t> swizzled(const Quantized& q) {
  if (q.direction == Direction::rowwise || q.transposed) {
    return swizzle_scales(q.scale_codes, q.scale_rows, q.scale_columns);
  }
  std::vector<std::uint8_t> turned(q.scale_codes.size());
  for (std::size_t i = 0; i < turned.size(); ++i) {
    turned[i % q.scale_columns * q.scale_rows + i / q.scale_columns] = q.scale_codes[i];
  }
  return swizzle_scales(turned, q.scale_columns, q.scale_rows);
}

/// Outputs of a direction between guards.
struct GuardedArrays {
  Guarded<std::uint8_t> codes;
  Guarded<float> scale_inv;
  Guarded<std::uint8_t> scale_codes;
  Guarded<float> amax;
  bool has_amax;

  GuardedArrays(const QuantizeCase& one, Direction direction, const Tensor& x)
      : GuardedArrays(one, gpu::quantized_sizes(one.recipe, direction, x.rows(), x.columns(), one.layout)) {}
  GuardedArrays(const QuantizeCase& one, const gpu::QuantizedSizes& sizes)
      : codes(sizes.codes, one.shift),
        scale_inv(sizes.scale_inv, one.shift),
        scale_codes(sizes.scale_codes, one.shift),
        amax(1, one.shift),
        has_amax(one.recipe.tensor_scale != TensorScaleRule::none ||
                 (one.recipe.tile_across == 0 && one.recipe.quotient != Quotient::given_scale &&
                  one.recipe.quotient != Quotient::given_scale_inv)) {}
  [[nodiscard]] gpu::QuantizedArrays arrays() {
    return {codes.span(), scale_inv.span(), scale_codes.span(), has_amax ? amax.span().data() : nullptr};
  }
  [[nodiscard]] bool overrun() const {
    return codes.overrun() || scale_inv.overrun() || scale_codes.overrun() || amax.overrun();
  }
};

inline void compare_direction(const QuantizeCase& one, GuardedArrays& own, const Quantized& expected, const char* what,
                              Mismatches& wrong) {
  wrong.compare(0, what, own.overrun() ? 1 : 0, 0, "bytes beside an array are written");
  const auto codes = own.codes.span();
  for (std::size_t i = 0; i < codes.size(); ++i) wrong.compare(i, what, codes[i], expected.codes[i], "code");
  const auto scales = own.scale_inv.span();
  wrong.compare(0, what, scales.size(), expected.scale_inv.size(), "scales");
  for (std::size_t i = 0; i < scales.size(); ++i) {
    wrong.compare(i, what, word_of(scales[i]), word_of(expected.scale_inv[i]), "scale_inv");
  }
  const std::vector<std::uint8_t> scale_codes =
      one.layout == ScaleLayout::swizzled ? swizzled(expected) : expected.scale_codes;
  const auto own_codes = own.scale_codes.span();
  wrong.compare(0, what, own_codes.size(), scale_codes.size(), "scale codes");
  for (std::size_t i = 0; i < own_codes.size(); ++i) wrong.compare(i, what, own_codes[i], scale_codes[i], "scale code");
  if (own.has_amax) wrong.compare(0, what, word_of(own.amax.span()[0]), word_of(expected.amax), "amax");
}

/// dequantize_on_host() of what the kernels made, beside dequantize().
inline void compare_values(const QuantizeCase& one, GuardedArrays& own, const Quantized& expected,
                           const gpu::HostOrder& order, Mismatches& wrong) {
  std::vector<float> values(expected.rows * expected.columns);
  dequantize(expected, values);
  Guarded<float> out(values.size(), one.shift);
  gpu::dequantize_on_host({.recipe = expected.recipe,
                           .direction = expected.direction,
                           .rows = expected.rows,
                           .columns = expected.columns,
                           .codes = own.codes.span(),
                           .scale_inv = own.scale_inv.span(),
                           .scale_codes = own.scale_codes.span(),
                           .layout = one.layout,
                           .amax = own.has_amax ? own.amax.span().data() : nullptr},
                          out.span(), order);
  wrong.compare(0, "values", out.overrun() ? 1 : 0, 0, "bytes beside the values are written");
  for (std::size_t i = 0; i < values.size(); ++i) wrong.compare(i, "values", bits(out.span()[i]), bits(values[i]), "");
}

/// Both directions alone and together, and the values back: what differs from the reference.
inline Mismatches quantize_mismatches(const QuantizeCase& one, const Tensor& x, const gpu::HostOrder& order) {
  Mismatches wrong;
  const Recipe& recipe = one.recipe;
  std::vector<std::uint32_t> words;
  QuantizeOptions options;
  if (one.random) {
    words = gpu::philox_words(*one.random, (x.size() + 3) / 4);
    options.random = ptx_random(recipe.format, words);
  }
  const bool pairs = recipe.format.bits() == 4;
  const bool has_rows =
      (!recipe.whole_tiles && !recipe.pads_tiles) || (x.columns() % std::max<std::size_t>(recipe.tile_along, 1) == 0 &&
                                                      x.rows() % std::max<std::size_t>(recipe.tile_across, 1) == 0);
  const bool has_columns =
      (!recipe.whole_tiles && !recipe.pads_tiles) || (x.rows() % std::max<std::size_t>(recipe.tile_along, 1) == 0 &&
                                                      x.columns() % std::max<std::size_t>(recipe.tile_across, 1) == 0);
  if (pairs && (x.rows() % 2 != 0 || x.columns() % 2 != 0)) return wrong;
  const auto run = [&](bool rowwise, bool columnwise) {
    std::optional<GuardedArrays> row;
    std::optional<GuardedArrays> column;
    gpu::QuantizeCall call{.x = x.matrix(), .recipe = recipe, .layout = one.layout, .random = one.random};
    if (rowwise) call.rowwise = row.emplace(one, Direction::rowwise, x).arrays();
    if (columnwise) call.columnwise = column.emplace(one, Direction::columnwise, x).arrays();
    gpu::quantize_on_host(call, order);
    const auto check = [&](std::optional<GuardedArrays>& own, Direction direction, const char* what) {
      if (!own) return;
      const Quantized expected = quantize(x.view(), recipe, direction, options);
      compare_direction(one, *own, expected, what, wrong);
      if (rowwise != columnwise) compare_values(one, *own, expected, order, wrong);
    };
    check(row, Direction::rowwise, "rowwise");
    check(column, Direction::columnwise, "columnwise");
  };
  if (has_rows) run(true, false);
  if (has_columns) run(false, true);
  if (has_rows && has_columns) run(true, true);
  return wrong;
}

}  // namespace fp8lab::tests
