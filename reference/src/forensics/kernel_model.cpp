// SPDX-License-Identifier: Apache-2.0
#include "forensics/kernel_model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"

namespace fp8lab::forensics {
namespace {

using enum Departure;

float rounded_to(const Format& format, float x) { return decode(format, encode(format, ieee_policy, x)); }

/// Elements at a time.
constexpr std::size_t most_at_once = 1024;

struct MaxBits {
  std::uint32_t numbers = 0;   // the largest of numbers and infinities
  std::uint32_t with_nan = 0;  // of all
};

MaxBits max_bits(std::span<const float> x, bool is_signed) {
  MaxBits most;
  for (const float value : x) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = is_signed && (bits >> 31) != 0 ? 0 : bits & 0x7FFFFFFFU;
    most.with_nan = std::max(most.with_nan, magnitude);
    most.numbers = std::max(most.numbers, magnitude > 0x7F800000U ? 0 : magnitude);
  }
  return most;
}

/// Adds rows [first, last) to the amaxes of tiles that lie side by side, from that column of tiles on.
void add_rows(const Source& source, const Amaxes& tiles, std::size_t first, std::size_t last, std::size_t tile_column,
              std::span<float> out) {
  const std::size_t begin = tile_column == 0 ? 0 : tiles.end_of(tile_column - 1);
  for (std::size_t row = first; row < last; ++row) {
    std::size_t column = begin;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t next = std::min(tiles.end_of(tile_column + i), source.columns());
      auto elements = source.values({row, column, next - column});
      column = next;
      if (tiles.key.missed == 1 && elements.size() > 1) elements = elements.subspan(1);
      if (tiles.key.missed == 2 && elements.size() > 1) elements = elements.first(elements.size() - 1);
      const MaxBits most = max_bits(elements, tiles.key.is_signed);
      const std::uint32_t bits = tiles.key.counts_nan ? most.with_nan : most.numbers;
      out[i] = std::bit_cast<float>(std::max(std::bit_cast<std::uint32_t>(out[i]), bits));
    }
  }
}

void add_tiles(const Source& source, const Amaxes& tiles, std::size_t tile_row, std::size_t tile_column,
               std::span<float> out) {
  const std::size_t first = tile_row * tiles.across;
  add_rows(source, tiles, first, std::min(first + tiles.across, source.rows()), tile_column, out);
}

/// A single row of tiles, whose rows are shared among threads.
void complete_by_rows(const Source& source, const Amaxes& tiles, std::span<float> values) {
  std::mutex mutex;
  parallel_for(
      source.rows(), source.threads(),
      [&](std::size_t first, std::size_t last) {
        std::vector<float> own(values.size());
        add_rows(source, tiles, first, last, 0, own);
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < own.size(); ++i) {
          const auto bits = std::max(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(own[i]));
          values[i] = std::bit_cast<float>(bits);
        }
      },
      std::max<std::size_t>(1, 4 * scalar_piece / source.columns()));
}

}  // namespace

void narrow(Narrowing narrowing, std::span<float> x) {
  switch (narrowing) {
    case Narrowing::none: return;
    case Narrowing::flushed:
      for (float& value : x) {
        if (std::abs(value) < std::numeric_limits<float>::min()) value = std::copysign(0.0F, value);
      }
      return;
    case Narrowing::float16:
    case Narrowing::bfloat16: break;
  }
  const Format& format = narrowing == Narrowing::float16 ? binary16 : bfloat16;
  std::array<std::uint16_t, most_at_once> words;
  for (std::size_t first = 0; first < x.size(); first += words.size()) {
    const auto own = x.subspan(first, std::min(words.size(), x.size() - first));
    const auto own_words = std::span(words).first(own.size());
    encode(format, ieee_policy, std::span<const float>(own), own_words);
    decode(format, std::span<const std::uint16_t>(own_words), own);
  }
}

Source::Source(const MatrixView& x, int threads)
    : rows_(x.rows()), columns_(x.columns()), threads_(threads), values_(x.size()) {
  x.visit([&](auto elements) {
    using Element = typename decltype(elements)::value_type;
    if constexpr (std::is_same_v<Element, double>) {
      refuse("x is of float64, which no kernel quantizes: convert it to the type that the kernel reads");
    } else {
      if constexpr (std::is_same_v<Element, Half>) type_ = binary16;
      if constexpr (std::is_same_v<Element, BFloat16>) type_ = bfloat16;
      parallel_for(
          x.size(), threads,
          [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) values_[i] = widened(elements[i]);
          },
          scalar_piece);
    }
  });
}

Source Source::transposed() const {
  Source other;
  other.rows_ = columns_;
  other.columns_ = rows_;
  other.type_ = type_;
  other.threads_ = threads_;
  other.values_.resize(values_.size());
  constexpr std::size_t block = 16;  // a cache line of both
  parallel_for((rows_ + block - 1) / block, threads_, [&](std::size_t first, std::size_t last) {
    for (std::size_t row = first * block; row < std::min(last * block, rows_); row += block) {
      for (std::size_t column = 0; column < columns_; ++column) {
        for (std::size_t r = row; r < std::min(row + block, rows_); ++r) {
          other.values_[column * rows_ + r] = values_[r * columns_ + column];
        }
      }
    }
  });
  return other;
}

Amaxes& Source::tiles(const AmaxKey& key) const {
  const auto [entry, is_new] = amaxes_.try_emplace(key);
  Amaxes& tiles = entry->second;
  if (!is_new) return tiles;
  tiles.key = key;
  tiles.across = key.across == 0 ? rows_ : std::min(key.across, rows_);
  tiles.along = key.along == 0 ? columns_ : std::min(key.along, columns_);
  tiles.shift = key.along == 0 ? 0 : key.shift;
  tiles.tiles_down = (rows_ + tiles.across - 1) / tiles.across;
  tiles.tiles_across = tiles.tile_column(columns_ - 1) + 1;
  return tiles;
}

float Source::amax_of(Amaxes& tiles, std::size_t tile_row, std::size_t tile_column) const {
  const std::size_t tile = tile_row * tiles.tiles_across + tile_column;
  if (!tiles.values.empty()) return tiles.values[tile];
  const auto [entry, is_new] = tiles.some.try_emplace(tile, 0.0F);
  if (is_new && tiles.across * tiles.along >= scalar_piece) {
    complete(tiles);  // on all threads
    return tiles.values[tile];
  }
  if (is_new) {
    add_tiles(*this, tiles, tile_row, tile_column, std::span(&entry->second, 1));
    narrow(tiles.key.narrowing, std::span(&entry->second, 1));  // rounding keeps the order
  }
  return entry->second;
}

void Source::complete(Amaxes& tiles) const {
  if (!tiles.values.empty()) return;
  std::vector<float> values(tiles.tiles_down * tiles.tiles_across);
  if (tiles.tiles_down == 1 && tiles.across > 1) {
    complete_by_rows(*this, tiles, values);
  } else {
    parallel_for(
        tiles.tiles_down, threads_,
        [&](std::size_t first, std::size_t last) {
          for (std::size_t row = first; row < last; ++row) {
            add_tiles(*this, tiles, row, 0, std::span(values).subspan(row * tiles.tiles_across, tiles.tiles_across));
          }
        },
        std::max<std::size_t>(1, scalar_piece / (tiles.across * columns_)));
  }
  narrow(tiles.key.narrowing, values);
  tiles.values = std::move(values);
}

StoredDump::StoredDump(const MatrixView& x, const Dump& dump)
    : codes(x.size()), format(dump.format), scale_format(dump.scales.format), of_tensor(dump.scales.of_tensor) {
  const std::size_t packed = (x.size() + 1) / 2;
  if (dump.codes.size() == x.size()) {
    std::ranges::copy(dump.codes, codes.begin());
  } else if (dump.codes.size() == packed) {
    was_packed = true;
    unpack_pairs(dump.codes, codes);
  } else {
    refuse("codes has ", dump.codes.size(), " bytes; x has ", x.size(), " elements, which have ", x.size(),
           " codes of a byte or ", packed, " bytes of two codes of 4 bits each");
  }
  if (was_packed && format && format->bits() != 4) {
    refuse("codes has two codes in each byte; a code of ", format_name(*format), " has ", format->bits(), " bits");
  }
  const std::size_t width = scale_format ? static_cast<std::size_t>((scale_format->bits() + 7) / 8) : 1;
  if (dump.scales.bytes.size() % width != 0) {
    refuse("scales has ", dump.scales.bytes.size(), " bytes, which are no whole number of elements of ", width);
  }
  scales.resize(dump.scales.bytes.size() / width);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    std::memcpy(&scales[i], dump.scales.bytes.data() + i * width, width);  // both are little-endian
  }
}

Format StoredDump::type_of_scales(const Format& own) const {
  if (scale_format) return *scale_format;
  return own == ue4m3 ? ue4m3 : e8m0;
}

std::optional<std::size_t> ScaleLayout::place_of(std::size_t row, std::size_t column) const {
  std::size_t place = is_transposed ? column * rows + row : row * columns + column;
  if (is_padded) place = row * ((columns + 3) / 4 * 4) + column;
  if (is_swizzled) place = swizzled_place(row, column, columns);
  const auto moved = static_cast<std::ptrdiff_t>(place) + late;
  if (moved < 0 || moved >= static_cast<std::ptrdiff_t>(count)) return std::nullopt;
  return static_cast<std::size_t>(moved);
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
  applies_ = makes_sense();
  if (!applies_) return;
  const AmaxKey key = amax_key();
  amaxes_ = &source.tiles(key);
  AmaxKey whole = key;
  whole.across = whole.along = 0;
  whole.shift = whole.missed = 0;
  facts_ = {.amax = source.amax_of(source.tiles(whole), 0, 0), .input_type = source.type()};
  layout_ = scale_layout();
  constexpr std::array of_places{pairs_swapped,   pairs_of_halves,  bytes_swapped_2, bytes_swapped_4,
                                 bytes_swapped_8, codes_transposed, codes_one_late,  codes_one_early};
  constexpr std::array of_codes{overflow_wraps, subnormals_flushed, negative_zero_lost, sign_lost,
                                nan_is_zero,    columns_unwritten,  rows_unwritten,     end_unwritten};
  const auto has_one = [&](const auto& list) { return std::ranges::any_of(list, [&](Departure d) { return has(d); }); };
  const bool keeps_order = !recipe().transposed_columnwise && recipe().format.bits() != 4;
  is_in_place_ = !has_one(of_places) && !(is_columnwise_ && keeps_order);
  keeps_codes_ = !has_one(of_codes);
  if (has(scale_as_stored) && !layout_.fits) applies_ = false;
}

const Deviation& KernelModel::deviation(Departure departure) const {
  return *std::ranges::find(hypothesis_->deviations, departure, &Deviation::departure);
}

AmaxKey KernelModel::amax_key() const {
  AmaxKey key{.across = recipe().tile_across, .along = recipe().tile_along};
  key.shift = static_cast<int>(has(tile_starts_early)) - static_cast<int>(has(tile_starts_late));
  key.missed = static_cast<int>(has(amax_misses_first)) + 2 * static_cast<int>(has(amax_misses_last));
  key.is_signed = has(amax_signed);
  key.counts_nan = recipe().nan_in_amax == NanInAmax::counted;
  if (has(input_float16) || has(amax_float16)) key.narrowing = Narrowing::float16;
  if (has(input_bfloat16) || has(amax_bfloat16)) key.narrowing = Narrowing::bfloat16;
  if (has(input_flushed)) key.narrowing = Narrowing::flushed;
  return key;
}

void KernelModel::set_scale_recipes() {
  if (has(largest_of_e4m3fnuz)) stored_recipe_.format = e4m3fnuz;
  if (has(largest_of_e5m2)) stored_recipe_.format = e5m2;
  if (has(largest_of_e4m3)) stored_recipe_.format = e4m3;
  if (has(largest_of_e2m1)) stored_recipe_.format = e2m1;
  scale_recipe_ = stored_recipe_;
  if (!has(scale_unrounded)) return;
  scale_recipe_.rounding = ScaleRounding::none;
  scale_recipe_.scale_type = ScaleType::float32;
  if (scale_recipe_.quotient == Quotient::amax_over_power) scale_recipe_.quotient = Quotient::amax_over_largest;
}

bool KernelModel::makes_sense() const {
  const Recipe& r = recipe();
  const std::size_t columns = source_->columns();
  const bool is_packed = dump_ != nullptr && dump_->was_packed;
  const auto swaps = [&](Departure departure, std::size_t bytes) {
    return has(departure) && (is_packed ? (source_->size() + 1) / 2 : source_->size()) % bytes != 0;
  };
  if (r.transform != Transform::none && is_columnwise_) return false;  // quantize() does that
  if (r.whole_tiles) {
    if (r.tile_across > 1 && source_->rows() % r.tile_across != 0) return false;
    if (r.tile_along > 1 && columns % r.tile_along != 0) return false;
  }
  if (is_packed && r.format.bits() != 4) return false;
  if ((has(pairs_swapped) || has(pairs_of_halves)) && (r.format.bits() != 4 || columns % 2 != 0)) return false;
  if (swaps(bytes_swapped_2, 2) || swaps(bytes_swapped_4, 4) || swaps(bytes_swapped_8, 8)) return false;
  if (has(scale_unrounded) && (r.scale_type == ScaleType::float32 && r.rounding == ScaleRounding::none)) return false;
  if (has(scale_unrounded) && has_tensor_scale(r)) return false;
  if (has(scale_as_stored) && (dump_ == nullptr || dump_->scales.empty() || has_tensor_scale(r))) return false;
  return true;
}

ScaleLayout KernelModel::scale_layout() const {
  ScaleLayout layout;
  if (dump_ == nullptr || dump_->scales.empty()) return layout;
  const std::size_t count = dump_->scales.size();
  layout.count = count;
  layout.columns = amaxes_->tiles_across;
  layout.late = static_cast<std::ptrdiff_t>(has(stored_one_late)) - static_cast<std::ptrdiff_t>(has(stored_one_early));
  const bool keeps_order = !recipe().transposed_columnwise && recipe().format.bits() != 4;
  layout.is_transposed = (is_columnwise_ && keeps_order) != has(stored_transposed);
  // A tile has one entry, or one in each of its rows; rows and columns of entries may be padded.
  for (const bool is_padded : {false, true}) {
    for (const std::size_t entry_rows : {amaxes_->across, std::size_t{1}}) {
      layout.entry_rows = entry_rows;
      layout.rows = (source_->rows() + entry_rows - 1) / entry_rows;
      layout.is_swizzled = has(stored_swizzled);
      layout.is_padded = is_padded && !layout.is_swizzled;
      const bool as_padded = is_padded || layout.is_swizzled;
      layout.fits = count == (as_padded ? swizzled_size(layout.rows, layout.columns) : layout.rows * layout.columns);
      if (layout.fits) return layout;
    }
  }
  return layout;
}

TileScale KernelModel::stored_scale(std::size_t tile_row, std::size_t tile_column) const {
  return tile_scale(stored_recipe_, amax_of(tile_row, tile_column), facts_);
}

float KernelModel::stored_value(std::uint32_t word) const {
  const Format type = dump_->type_of_scales(scale_format_of(recipe()));
  return type == binary32 ? std::bit_cast<float>(word) : decode(type, word);
}

void KernelModel::move_to_neighbor(std::size_t& tile_row, std::size_t& tile_column) const {
  const auto is_here = [&](Departure departure) {
    if (!has(departure)) return false;
    const std::uint64_t place = deviation(departure).place;
    return place / source_->columns() / amaxes_->across == tile_row &&
           amaxes_->tile_column(place % source_->columns()) == tile_column;
  };
  const bool left = has(scale_of_previous_tile) || is_here(tile_of_left_neighbor);
  const bool right = has(scale_of_next_tile) || is_here(tile_of_right_neighbor);
  const bool up = has(scale_of_previous_row) || is_here(tile_of_upper_neighbor);
  const bool down = has(scale_of_next_row) || is_here(tile_of_lower_neighbor);
  if (left && tile_column > 0) --tile_column;
  if (right && tile_column + 1 < amaxes_->tiles_across) ++tile_column;
  if (up && tile_row > 0) --tile_row;
  if (down && tile_row + 1 < amaxes_->tiles_down) ++tile_row;
}

TileScale KernelModel::used_scale(std::size_t tile_row, std::size_t tile_column) const {
  move_to_neighbor(tile_row, tile_column);
  const bool divides = fp8lab::divides(recipe().operation);
  TileScale scale = tile_scale(scale_recipe_, amax_of(tile_row, tile_column), facts_);
  if (has(scale_as_stored)) {
    const auto place = layout_.place_of(tile_row * amaxes_->across / layout_.entry_rows, tile_column);
    const float stored = place ? stored_value(dump_->scales[*place]) : 1;
    const bool is_scale = has(stored_inverted);
    scale.factor = is_scale == divides ? 1 / stored : stored;
  }
  if (has(scale_missing)) scale.factor = 1;
  if (has(scale_stale)) scale.factor = deviation(scale_stale).value;
  if (has(scale_float16)) scale.factor = rounded_to(binary16, scale.factor);
  if (has(scale_bfloat16)) scale.factor = rounded_to(bfloat16, scale.factor);
  if (has(scale_doubled)) scale.factor *= divides ? 0.5F : 2.0F;
  if (has(scale_halved)) scale.factor *= divides ? 2.0F : 0.5F;
  return scale;
}

void KernelModel::scale_elements(const Piece& piece, std::span<float> x) const {
  const auto elements = source_->values(piece);
  const bool stale = has(scale_stale);
  TileOperation operation = recipe().operation;
  if (has(scale_inverted)) {
    operation = divides(operation) ? TileOperation::multiply : TileOperation::divide;
  }
  if (stale) operation = TileOperation::multiply;
  const std::size_t tile_row = piece.row / amaxes_->across;
  for (std::size_t i = 0; i < x.size();) {
    const std::size_t tile_column = amaxes_->tile_column(piece.column + i);
    const std::size_t end = std::min(amaxes_->end_of(tile_column) - piece.column, x.size());
    const float factor = used_scale(tile_row, tile_column).factor;
    switch (operation) {
      case TileOperation::multiply:
        for (; i < end; ++i) x[i] *= factor;
        break;
      case TileOperation::divide:
        for (; i < end; ++i) x[i] /= factor;
        break;
      case TileOperation::multiply_add_zero:
        for (; i < end; ++i) x[i] = std::fma(x[i], factor, 0.0F);
        break;
      case TileOperation::multiply_then_add_zero:
        for (; i < end; ++i) x[i] = x[i] * factor + 0.0F;
        break;
      case TileOperation::divide_then_add_zero:
        for (; i < end; ++i) x[i] = x[i] / factor + 0.0F;
        break;
      case TileOperation::multiply_negative_zero:
        for (; i < end; ++i) x[i] = x[i] * factor == 0 ? -0.0F : x[i] * factor;
        break;
    }
  }
  if (recipe().product == ScaleArithmetic::input_type && facts_.input_type != binary32) {
    for (float& one : x) one = rounded_to(facts_.input_type, one);
  }
  // A NaN that an operation makes has no sign, as on a GPU.
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] != x[i] && elements[i] == elements[i]) x[i] = std::numeric_limits<float>::quiet_NaN();
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

void KernelModel::change_codes(const Piece& piece, std::span<const float> products,
                               std::span<std::uint8_t> codes) const {
  if (keeps_codes_) return;
  const Format& format = recipe().format;
  const auto sign = static_cast<std::uint8_t>(format.sign_mask());
  const auto magnitude = static_cast<std::uint8_t>(format.magnitude_mask());
  const int subnormals = (1 << format.mantissa_bits) - 1;
  Format wide = format;
  ++wide.exponent_bits;
  wide.specials = Specials::none;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::uint8_t& code = codes[i];
    const bool is_nan = products[i] != products[i];
    if (has(overflow_wraps) && !is_nan) {
      code = static_cast<std::uint8_t>((code & sign) | (encode(wide, recipe().cast, products[i]) & magnitude));
    }
    if (has(subnormals_flushed) && (code & magnitude) <= subnormals) code &= sign;
    if (has(nan_is_zero) && is_nan) code = 0;
    if (has(negative_zero_lost) && code == sign) code = 0;
    if (has(sign_lost)) code &= magnitude;
  }
  const auto cover = [&](Departure departure, auto is_unwritten) {
    if (!has(departure)) return;
    const Deviation& own = deviation(departure);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (is_unwritten(i, own.place)) codes[i] = static_cast<std::uint8_t>(own.value);
    }
  };
  cover(columns_unwritten, [&](std::size_t i, std::uint64_t place) { return piece.column + i >= place; });
  cover(rows_unwritten, [&](std::size_t /*i*/, std::uint64_t place) { return piece.row >= place; });
  cover(end_unwritten,
        [&](std::size_t i, std::uint64_t place) { return piece.row * source_->columns() + piece.column + i >= place; });
}

void KernelModel::predict(const Piece& piece, std::span<std::uint8_t> codes, std::span<std::uint8_t> others) const {
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

std::uint64_t KernelModel::place_of(std::size_t row, std::size_t column) const {
  if (is_in_place_) return row * source_->columns() + column;
  const std::size_t rows = source_->rows();
  const std::size_t columns = source_->columns();
  const bool keeps_order = !recipe().transposed_columnwise && recipe().format.bits() != 4;
  const bool is_transposed = (is_columnwise_ && keeps_order) != has(codes_transposed);
  std::uint64_t place = is_transposed ? column * rows + row : row * columns + column;
  if (has(pairs_of_halves)) {
    const std::size_t half = columns / 2;
    place = row * columns + (column < half ? 2 * column : 2 * (column - half) + 1);
  }
  if (has(pairs_swapped)) place ^= 1;
  const bool is_packed = dump_ != nullptr && dump_->was_packed;
  const auto swapped = [&](std::uint64_t bytes) { place ^= is_packed ? 2 * (bytes - 1) : bytes - 1; };
  if (has(bytes_swapped_2)) swapped(2);
  if (has(bytes_swapped_4)) swapped(4);
  if (has(bytes_swapped_8)) swapped(8);
  if (has(codes_one_late)) ++place;
  if (has(codes_one_early)) --place;  // before the first: behind the last
  return place;
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
      if (stored == codes[i] || stored == others[i]) continue;
      ++count;
      if (which != nullptr && which->size() < most) which->push_back(part.row * source_->columns() + part.column + i);
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
  return is_within(bias, bias_variance) && is_within(slope / 512, slope_variance / (512 * 512));
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

bool KernelModel::is_stored(const TileScale& scale, float amax, std::uint32_t word) const {
  const Format own = scale_format_of(recipe());
  const Format type = dump_->type_of_scales(own);
  constexpr std::uint32_t exponent = 0x7F800000U;
  float value = scale.scale_inv;
  bool is_own = true;  // what is stored is what the recipe stores
  const auto change = [&](Departure departure, auto f) {
    if (!has(departure)) return;
    value = f(value);
    is_own = false;
  };
  const auto with_bits = [](float x, std::uint32_t added) {
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + added) & exponent);
  };
  change(stored_amax, [&](float) { return amax; });
  change(stored_inverted, [](float x) { return 1 / x; });
  change(stored_doubled, [](float x) { return x * 2; });
  change(stored_halved, [](float x) { return x / 2; });
  change(stored_rounded_down, [&](float x) { return with_bits(x, 0); });
  change(stored_rounded_up, [&](float x) { return with_bits(x, 0x7FFFFFU); });
  change(stored_rounded_nearest, [&](float x) { return with_bits(x, 0x400000U); });
  if (has(stored_bytes_reversed)) {
    word = type.bits() == 32   ? __builtin_bswap32(word)
           : type.bits() == 16 ? __builtin_bswap16(static_cast<std::uint16_t>(word))
                               : word;
  }
  if (is_own && own == type && type.bits() <= 8) return word == scale.code;
  if (type == binary32) {
    const auto there = std::bit_cast<float>(word);
    return word == std::bit_cast<std::uint32_t>(value) || (there != there && value != value);
  }
  if (type.bits() == 16)
    return rounded_to(type, value) == decode(type, word) ||
           (value != value && decode(type, word) != decode(type, word));
  const float there = decode(type, word);
  return there == value || (there != there && value != value);
}

std::uint64_t KernelModel::scale_mismatches(const Piece& piece) const {
  if (dump_ == nullptr || dump_->scales.empty()) return 0;
  const std::size_t tile_row = piece.row / amaxes_->across;
  const std::size_t last = amaxes_->tile_column(piece.column + piece.count - 1);
  std::uint64_t count = 0;
  for (std::size_t column = amaxes_->tile_column(piece.column); column <= last; ++column) {
    const auto place = layout_.fits ? layout_.place_of(piece.row / layout_.entry_rows, column) : std::nullopt;
    if (layout_.fits && !place) continue;
    const float amax = amax_of(tile_row, column);
    const bool is_explained =
        has(scale_as_stored) || (place && is_stored(stored_scale(tile_row, column), amax, dump_->scales[*place]));
    count += is_explained ? 0 : 1;
  }
  return count;
}

std::uint64_t KernelModel::scale_mismatches() const {
  std::uint64_t count = 0;
  if (dump_ == nullptr) return 0;
  if (dump_->of_tensor && has_tensor_scale(recipe())) {
    const ScaleConstants constants = scale_constants(recipe(), facts_);
    const bool is_explained =
        *dump_->of_tensor == constants.tensor_scale || *dump_->of_tensor == constants.tensor_scale_inv;
    count += is_explained ? 0 : 1;
  }
  if (dump_->scales.empty()) return count;
  if (!layout_.fits) return count + dump_->scales.size();
  for (std::size_t row = 0; row < source_->rows(); row += layout_.entry_rows) {
    count += scale_mismatches(Piece{row, 0, source_->columns()});
  }
  return count;
}

}  // namespace fp8lab::forensics
