// SPDX-License-Identifier: Apache-2.0
#include "quantize/kernel_model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "reference/src/scaling/float32_steps.hpp"

namespace fp8lab::doctor {
namespace {

using enum Departure;

/// Elements and their factor.
void meet(TileOperation operation, float factor, std::span<float> x) {
  switch (operation) {
    case TileOperation::multiply:
      for (float& one : x) one *= factor;
      break;
    case TileOperation::divide:
      for (float& one : x) one /= factor;
      break;
    case TileOperation::multiply_add_zero:
      for (float& one : x) one = std::fma(one, factor, 0.0F);
      break;
    case TileOperation::multiply_then_add_zero:
      for (float& one : x) one = one * factor + 0.0F;
      break;
    case TileOperation::divide_then_add_zero:
      for (float& one : x) one = one / factor + 0.0F;
      break;
    case TileOperation::multiply_negative_zero:
      for (float& one : x) one = one * factor == 0 ? -0.0F : one * factor;
      break;
  }
}

/// Elements at a time.
constexpr std::size_t most_at_once = 1024;

}  // namespace

float rounded_to(const Format& format, float x) { return decode(format, encode(format, ieee_policy, x)); }

bool is_nan_of_other_sign(const Format& format, std::uint8_t a, std::uint8_t b) {
  if (!format.is_signed || format.bits() > 8 || (a ^ b) != static_cast<int>(format.sign_mask())) return false;
  return std::isnan(decode(format, a)) && std::isnan(decode(format, b));
}

KernelModel::KernelModel(const Source& source, const Hypothesis& hypothesis, const StoredDump* dump)
    : source_(&source),
      hypothesis_(&hypothesis),
      dump_(dump),
      stored_recipe_(hypothesis.recipe),
      scale_recipe_(hypothesis.recipe),
      is_columnwise_(hypothesis.direction == Direction::columnwise) {
  for (const Deviation& one : hypothesis.deviations) present_.set(static_cast<std::size_t>(one.departure));
  if (has(input_float16) || has(elements_float16)) narrowing_ = Narrowing::float16;
  if (has(input_bfloat16) || has(elements_bfloat16)) narrowing_ = Narrowing::bfloat16;
  if (has(input_flushed)) narrowing_ = Narrowing::flushed;
  set_scale_recipes();
  const bool keeps_order = !recipe().transposed_columnwise && recipe().format.bits() != 4;
  is_transposed_ = (is_columnwise_ && keeps_order) != has(codes_transposed);
  applies_ = makes_sense();
  if (!applies_) return;
  const AmaxKey key = amax_key();
  amaxes_ = &source.tiles(key);
  const AmaxKey whole{
      .across = 0, .along = 0, .is_signed = key.is_signed, .counts_nan = key.counts_nan, .narrowing = key.narrowing};
  facts_.input_type = source.type();
  if (has_tensor_scale(recipe())) facts_.amax = source.amax_of(source.tiles(whole), 0, 0);
  take_tensor_scale();
  stored_constants_ = constants_of(stored_recipe_);
  scale_constants_ = constants_of(scale_recipe_);
  layout_ = scale_layout();
  const bool is_moved_along = has(stored_of_previous_tile) || has(stored_of_next_tile);
  const bool is_moved_down = has(stored_of_previous_row) || has(stored_of_next_row);
  if (is_moved_along && amaxes_->tiles_across == 1) applies_ = false;
  if (is_moved_down && amaxes_->tiles_down == 1) applies_ = false;
  constexpr std::array of_codes{overflow_wraps, subnormals_flushed, negative_zero_lost, sign_lost,
                                sign_inverted,  negatives_zeroed,   nan_is_zero,        columns_unwritten,
                                rows_unwritten, end_unwritten,      block_unwritten};
  const bool is_moved = std::ranges::any_of(hypothesis.deviations, [](const Deviation& one) {
    return one.departure >= pairs_swapped && one.departure <= codes_one_early;
  });
  is_in_place_ = !is_moved && !is_transposed_;
  keeps_codes_ = std::ranges::none_of(of_codes, [&](Departure departure) { return has(departure); });
  constexpr std::array of_scales{
      scale_of_next_tile,     scale_of_previous_tile, scale_of_next_row,  scale_of_previous_row, scale_row_stride,
      scale_of_first_row,     scale_of_first_tile,    scale_index_turned, scale_float16,         scale_bfloat16,
      scale_doubled,          scale_halved,           scale_missing,      scale_as_stored,       tile_scales_given,
      tensor_scale_missing,   tiles_as_stored,        scale_stale,        tile_of_left_neighbor, tile_of_right_neighbor,
      tile_of_upper_neighbor, tile_of_lower_neighbor};
  keeps_scales_ = std::ranges::none_of(of_scales, [&](Departure departure) { return has(departure); });
  if ((takes_all_stored() || has(tiles_as_stored)) && !layout_.fits) applies_ = false;
}

const Deviation& KernelModel::deviation(Departure departure) const {
  return *std::ranges::find(hypothesis_->deviations, departure, &Deviation::departure);
}

void KernelModel::take_tensor_scale() {
  for (const Deviation& one : hypothesis_->deviations) {
    if (one.departure != tensor_scale_stale && one.departure != tensor_scale_given) continue;
    const ScaleConstants own = scale_constants(recipe(), facts_);
    // A given one that follows from the tensor is none.
    const float made = one.place == 1 ? own.tensor_scale_inv : own.tensor_scale;
    if (one.departure == tensor_scale_given && one.value == made) applies_ = false;
    (one.place == 1 ? facts_.tensor_scale_inv : facts_.tensor_scale) = one.value;
  }
}

bool KernelModel::makes_sense() const {
  const Recipe& r = recipe();
  const std::size_t columns = source_->columns();
  const bool is_packed = dump_ != nullptr && dump_->was_packed;
  if (r.transform != Transform::none && is_columnwise_) return false;  // quantize() does that
  if ((r.whole_tiles || r.pads_tiles) && !has(tile_shape)) {
    if (r.tile_across > 1 && source_->rows() % r.tile_across != 0) return false;
    if (r.tile_along > 1 && columns % r.tile_along != 0) return false;
  }
  if (is_packed && r.format.bits() != 4) return false;
  if ((has(pairs_swapped) || has(pairs_of_halves)) && (r.format.bits() != 4 || columns % 2 != 0)) return false;
  for (const Departure one : {amax_of_first, amax_of_last}) {
    const std::size_t along = r.tile_along == 0 ? columns : r.tile_along;
    if (has(one) && !(deviation(one).value < static_cast<float>(along))) return false;
  }
  // Tiles of the transpose are as many where it is square, and others where tiles are not.
  if (has(amax_of_other_axis) && (source_->rows() != columns || r.tile_along == r.tile_across)) return false;
  if (!has_room(is_packed)) return false;
  return has_meant_scales();
}

bool KernelModel::has_meant_scales() const {
  const Recipe& r = recipe();
  const bool is_as_stored = takes_all_stored() || has(tiles_as_stored);
  if (has(tile_scales_given) && (r.quotient != Quotient::given_scale_inv || r.tile_across == 0)) return false;
  if (has(scale_unrounded) && (r.scale_type == ScaleType::float32 && r.rounding == ScaleRounding::none)) return false;
  if (has(stored_unrounded) && (has_tensor_scale(r) || is_given(r) || has(scale_unrounded))) return false;
  if (has(stored_unrounded) && r.scale_type == ScaleType::float32 && r.rounding == ScaleRounding::none) return false;
  if (has(tensor_scale_missing) && (!has_tensor_scale(r) || is_as_stored)) return false;
  if (is_as_stored && has(scale_missing)) return false;  // these codes are made with another
  if (has(stored_quotient) && (has_tensor_scale(r) || is_given(r) || r.scale_type != ScaleType::float32)) return false;
  if ((has(block_scale_truncated) || has(block_scale_rounded_up)) && !has_tensor_scale(r)) return false;
  if (has(scale_nearest_power) && (has_tensor_scale(r) || is_given(r) || r.scale_type == ScaleType::e4m3_code))
    return false;
  if ((has(tensor_scale_stale) || has(tensor_scale_given)) && !has_tensor_scale(r)) return false;
  if (is_as_stored && (dump_ == nullptr || dump_->scales.empty())) return false;
  if (has(scale_as_stored) && has_tensor_scale(r)) return false;
  if (is_as_stored && has(scale_stale)) {
    // The stored number may be the inverse of that factor, but for the last bits.
    const float product = stored_value(dump_->scales.front()) * deviation(scale_stale).value;
    if (dump_->scales.size() != 1 || !(std::abs(product - 1) < 0x1p-20F)) return false;
  }
  return true;
}

void KernelModel::scale_elements(const Piece& piece, std::span<float> x) const {
  const auto elements = source_->values(piece);
  const bool stale = has(scale_stale);
  TileOperation operation = recipe().operation;
  if (has(scale_inverted)) {
    operation = divides(operation) ? TileOperation::multiply : TileOperation::divide;
  }
  if (stale) operation = TileOperation::multiply;
  if (has(tensor_scale_missing)) {
    const bool multiplies = deviation(tensor_scale_missing).place == 1;
    operation = multiplies ? TileOperation::multiply : TileOperation::divide;
  }
  const std::size_t tile_row = piece.row / amaxes_->across;
  for (std::size_t i = 0; i < x.size();) {
    const std::size_t tile_column = amaxes_->tile_column(piece.column + i);
    const std::size_t end = std::min(amaxes_->end_of(tile_column) - piece.column, x.size());
    const float factor = used_scale(tile_row, tile_column).factor;
    meet(operation, factor, x.subspan(i, end - i));
    i = end;
  }
  if (const Format type = type_of(recipe().product, facts_.input_type); type != binary32) {
    for (float& one : x) one = rounded_to(type, one);
    if (adds_zero_after(operation)) std::ranges::for_each(x, [](float& one) { one += 0.0F; });
  }
  if (recipe().float32_steps) {
    for (float& one : x) one = after_float32_steps(recipe().format, recipe().cast.rounding, one);
  }
  // A NaN that an operation makes has no sign, as on a GPU.
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && !std::isnan(elements[i])) x[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

void KernelModel::encode_products(std::span<const float> products, std::span<std::uint8_t> codes,
                                  std::span<std::uint8_t> others) const {
  const Format& format = recipe().format;
  CastPolicy policy = recipe().cast;
  if (policy.rounding != Rounding::stochastic) {
    encode(format, policy, products, codes);
    std::ranges::copy(codes, others.begin());
    return;
  }
  policy.rounding = Rounding::upward;
  encode(format, policy, products, codes);
  policy.rounding = Rounding::downward;
  encode(format, policy, products, others);
}

std::uint8_t KernelModel::changed_code(std::uint8_t code, float product) const {
  const Format& format = recipe().format;
  const auto sign = static_cast<std::uint8_t>(format.sign_mask());
  const auto magnitude = static_cast<std::uint8_t>(format.magnitude_mask());
  const int subnormals = (1 << format.mantissa_bits) - 1;
  const bool is_nan = std::isnan(product);
  if (has(overflow_wraps) && !is_nan) {
    Format wide = format;
    ++wide.exponent_bits;
    wide.specials = Specials::none;
    code = static_cast<std::uint8_t>((code & sign) | (encode(wide, recipe().cast, product) & magnitude));
  }
  if (has(subnormals_flushed) && (code & magnitude) <= subnormals) code &= sign;
  if (has(nan_is_zero) && is_nan) code = 0;
  if (has(negative_zero_lost) && code == sign) code = 0;
  if (has(sign_lost)) code &= magnitude;
  if (has(sign_inverted)) code ^= sign;
  if (has(negatives_zeroed) && (code & sign) != 0 && !is_nan) code = 0;
  return code;
}

void KernelModel::change_codes(const Piece& piece, std::span<const float> products,
                               std::span<std::uint8_t> codes) const {
  if (keeps_codes_) return;
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = changed_code(codes[i], products[i]);
  const auto cover = [&](Departure departure, auto is_unwritten) {
    if (!has(departure)) return;
    const Deviation& own = deviation(departure);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (is_unwritten(i, own.place)) codes[i] = static_cast<std::uint8_t>(own.value);
    }
  };
  cover(columns_unwritten, [&](std::size_t i, std::uint64_t place) { return piece.column + i >= place; });
  cover(rows_unwritten, [&](std::size_t /*i*/, std::uint64_t place) { return piece.row >= place; });
  const std::size_t columns = source_->columns();
  const std::uint64_t last = has(block_unwritten) ? deviation(block_unwritten).last : 0;
  cover(block_unwritten, [&](std::size_t i, std::uint64_t place) {
    const std::size_t column = piece.column + i;
    return piece.row >= place / columns && piece.row <= last / columns && column >= place % columns &&
           column <= last % columns;
  });
  cover(end_unwritten,
        [&](std::size_t i, std::uint64_t place) { return piece.row * source_->columns() + piece.column + i >= place; });
}

void KernelModel::predict(const Piece& piece, std::span<std::uint8_t> codes, std::span<std::uint8_t> others) const {
  if (has(codes_unwritten)) {
    std::ranges::fill(codes, std::uint8_t{0});
    std::ranges::fill(others, std::uint8_t{0});
    return;
  }
  std::array<float, most_at_once> products;
  for (std::size_t first = 0; first < piece.count; first += most_at_once) {
    const Piece part{piece.row, piece.column + first, std::min(most_at_once, piece.count - first)};
    const auto x = std::span(products).first(part.count);
    std::ranges::copy(source_->values(part), x.begin());
    // 1. The input and its scale.
    narrow(narrowing_, x);
    scale_elements(part, x);
    // 2. The product.
    if (has(product_float16)) narrow(Narrowing::float16, x);
    if (has(product_bfloat16)) narrow(Narrowing::bfloat16, x);
    if (has(clamped_to_240)) {
      for (float& value : x) value = std::clamp(value, -240.0F, 240.0F);
    }
    if (has(product_flushed)) {
      const float least = decode(recipe().format, std::uint32_t{1} << recipe().format.mantissa_bits);
      for (float& value : x) value = std::abs(value) < least ? std::copysign(0.0F, value) : value;
    }
    // 3. The code.
    const auto own = codes.subspan(first, part.count);
    const auto own_others = others.subspan(first, part.count);
    encode_products(x, own, own_others);
    change_codes(part, x, own);
    if (recipe().cast.rounding == Rounding::stochastic) {
      change_codes(part, x, own_others);
    } else {
      std::ranges::copy(own, own_others.begin());
    }
  }
}

std::uint64_t KernelModel::code_mismatches(const Piece& piece, std::vector<std::uint64_t>* which,
                                           std::size_t most) const {
  std::array<std::uint8_t, most_at_once> codes;
  std::array<std::uint8_t, most_at_once> others;
  std::uint64_t count = 0;
  for (std::size_t first = 0; first < piece.count; first += most_at_once) {
    const Piece part{piece.row, piece.column + first, std::min(most_at_once, piece.count - first)};
    predict(part, std::span(codes).first(part.count), std::span(others).first(part.count));
    if (is_in_place_) {
      const std::uint8_t* const stored = dump_->codes.data() + part.row * source_->columns() + part.column;
      if (std::memcmp(stored, codes.data(), part.count) == 0) continue;
    }
    for (std::size_t i = 0; i < part.count; ++i) {
      const std::uint64_t place = place_of(part.row, part.column + i);
      if (place >= dump_->codes.size()) continue;
      const std::uint8_t stored = dump_->codes[place];
      if (stored == codes[i] || stored == others[i] || is_nan_of_other_sign(recipe().format, stored, codes[i]))
        continue;
      ++count;
      if (which != nullptr && which->size() < most) which->push_back(part.row * source_->columns() + part.column + i);
    }
  }
  return count;
}

std::uint64_t KernelModel::nans_of_other_sign() const {
  std::vector<std::uint8_t> codes(source_->columns());
  std::vector<std::uint8_t> others(source_->columns());
  std::uint64_t count = 0;
  for (std::size_t row = 0; row < source_->rows(); ++row) {
    predict({row, 0, codes.size()}, codes, others);
    for (std::size_t column = 0; column < codes.size(); ++column) {
      const std::uint64_t place = place_of(row, column);
      if (place >= dump_->codes.size()) continue;
      count += is_nan_of_other_sign(recipe().format, dump_->codes[place], codes[column]) ? 1 : 0;
    }
  }
  return count;
}

void Randomness::add(const Randomness& other) {
  inexact += other.inexact;
  bias += other.bias;
  slope += other.slope;
  bias_variance += other.bias_variance;
  slope_variance += other.slope_variance;
}

bool Randomness::is_random() const {
  const auto is_within = [](std::int64_t sum, std::int64_t variance) {
    return std::abs(static_cast<double>(sum)) <= 5 * std::sqrt(static_cast<double>(variance)) + 1024;
  };
  return is_within(bias, bias_variance) && is_within(slope / 512, slope_variance / (std::int64_t{512} * 512));
}

Randomness KernelModel::randomness(const Piece& piece) const {
  Randomness all;
  if (recipe().cast.rounding != Rounding::stochastic) return all;
  const Format& format = recipe().format;
  std::array<float, most_at_once> products;
  for (std::size_t first = 0; first < piece.count; first += most_at_once) {
    const Piece part{piece.row, piece.column + first, std::min(most_at_once, piece.count - first)};
    const auto x = std::span(products).first(part.count);
    std::ranges::copy(source_->values(part), x.begin());
    narrow(narrowing_, x);
    scale_elements(part, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint64_t place = place_of(part.row, part.column + i);
      if (place >= dump_->codes.size()) continue;
      const double magnitude = std::abs(static_cast<double>(x[i]));
      const CastPolicy down{.rounding = Rounding::toward_zero};
      const std::uint32_t low = encode(format, down, std::abs(x[i]));
      if (!(magnitude < static_cast<double>(max_value(format))) || low >= format.max_code()) continue;
      const double lower = decode(format, low);
      const double part_cut = (magnitude - lower) / (static_cast<double>(decode(format, low + 1)) - lower);
      const auto p = static_cast<std::int64_t>(part_cut * 1024);
      if (part_cut == 0) continue;
      const std::int64_t away = (dump_->codes[place] & format.magnitude_mask()) == low ? 0 : 1024;
      const std::int64_t variance = p * (1024 - p);
      all.add({1, away - p, (away - p) * (p - 512), variance, variance * (p - 512) * (p - 512)});
    }
  }
  return all;
}

}  // namespace fp8lab::doctor
