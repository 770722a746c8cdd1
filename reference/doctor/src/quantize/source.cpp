// SPDX-License-Identifier: Apache-2.0
// The tensor, its amaxes, and the dump.
#include "quantize/kernel_model.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <stdexcept>

#include "formats/simd/tiles.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/formats/widen.hpp"

namespace fp8lab::doctor {
namespace {

struct MaxBits {
  std::uint32_t numbers = 0;   // the largest of numbers and infinities
  std::uint32_t with_nan = 0;  // of all
};

/// Bits of magnitudes are compared as signed words, which every vector unit can.
template <bool is_signed, std::size_t step>
MaxBits max_bits(std::span<const float> x) {
  std::int32_t numbers = 0;
  std::int32_t with_nan = 0;
  for (std::size_t i = 0; i < x.size(); i += step) {
    const auto bits = std::bit_cast<std::int32_t>(x[i]);
    const std::int32_t magnitude = is_signed && bits < 0 ? 0 : bits & 0x7FFFFFFF;
    const std::int32_t number = magnitude > 0x7F800000 ? 0 : magnitude;
    with_nan = std::max(with_nan, magnitude);
    numbers = std::max(numbers, number);
  }
  return {static_cast<std::uint32_t>(numbers), static_cast<std::uint32_t>(with_nan)};
}

MaxBits max_bits(std::span<const float> x, bool is_signed, bool skips) {
  if (skips) return is_signed ? max_bits<true, 2>(x) : max_bits<false, 2>(x);
  return is_signed ? max_bits<true, 1>(x) : max_bits<false, 1>(x);
}

/// The largest of many elements, as vector code finds it: the bits of it, or of the largest but NaN.
std::uint32_t max_of_many(std::span<const float> x, NanInAmax nan) {
  std::uint32_t bits = 0;
  add_amax(TileRows<float>{x.data(), 1, x.size(), x.size(), x.size()}, nan, &bits, 0);
  return bits;
}

/// Calls f with those elements that count, where some do not: every second one, or those above zero.
template <typename F>
void for_counted(std::span<const float> x, bool is_signed, bool skips, const F& f) {
  std::array<float, 1024> counted;
  const std::size_t step = skips ? 2 : 1;
  for (std::size_t first = 0; first < x.size(); first += step * counted.size()) {
    const std::size_t count = std::min(counted.size(), (x.size() - first + step - 1) / step);
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = std::bit_cast<std::int32_t>(x[first + i * step]);
      counted[i] = std::bit_cast<float>(is_signed ? bits & ~(bits >> 31) : bits);
    }
    f(std::span<const float>(counted).first(count));
  }
}

/// The bits of the largest element that counts.
std::uint32_t most_of(std::span<const float> x, const AmaxKey& key) {
  constexpr std::size_t many = 64;
  const bool skips = key.part == AmaxPart::even || key.part == AmaxPart::odd;
  if (x.size() < many) {
    const MaxBits most = max_bits(x, key.is_signed, skips);
    return key.counts_nan ? most.with_nan : most.numbers;
  }
  const NanInAmax nan = key.counts_nan ? NanInAmax::counted : NanInAmax::dropped;
  if (!skips && !key.is_signed) return max_of_many(x, nan);
  std::uint32_t most = 0;
  for_counted(x, key.is_signed, skips,
              [&](std::span<const float> own) { most = std::max(most, max_of_many(own, nan)); });
  return most;
}

/// The elements of a tile in one row that count, or of which every second one does.
std::span<const float> part_of(AmaxPart part, std::span<const float> x) {
  if (x.size() < 2) return x;
  switch (part) {
    case AmaxPart::all:
    case AmaxPart::even: break;
    case AmaxPart::without_first:
    case AmaxPart::odd: return x.subspan(1);
    case AmaxPart::without_last: return x.first(x.size() - 1);
    case AmaxPart::first_half: return x.first(x.size() / 2);
    case AmaxPart::second_half: return x.subspan(x.size() / 2);
  }
  return x;
}

/// Whether all elements of each tile count, by magnitude.
bool counts_all(const AmaxKey& key) {
  return key == AmaxKey{.across = key.across,
                        .along = key.along,
                        .is_clamped = key.is_clamped,
                        .counts_rest = key.counts_rest,
                        .is_turned = key.is_turned,
                        .counts_nan = key.counts_nan,
                        .narrowing = key.narrowing};
}

/// Adds rows [first, last) to the amaxes of all tiles that lie side by side.
void add_whole_rows(const Source& source, const Amaxes& tiles, std::size_t first, std::size_t last,
                    std::span<float> out) {
  std::vector<std::uint32_t> bits(out.size());
  std::memcpy(bits.data(), out.data(), out.size_bytes());
  const TileRows<float> rows{source.values({first, 0, 1}).data(), last - first, source.columns(), source.columns(),
                             tiles.along};
  add_amax(rows, tiles.key.counts_nan ? NanInAmax::counted : NanInAmax::dropped, bits.data(), 0);
  std::memcpy(out.data(), bits.data(), out.size_bytes());
}

/// The bits of the largest element that counts of so many rows, which begin with a piece.
std::uint32_t most_of_rows(const Source& source, const Amaxes& tiles, const Piece& piece, std::size_t rows) {
  const AmaxKey& key = tiles.key;
  constexpr std::size_t many = 16;
  const bool are_runs = key.part != AmaxPart::even && key.part != AmaxPart::odd && !key.is_signed && key.elements == 0;
  if (const auto own = part_of(key.part, source.values(piece)); are_runs && own.size() >= many) {
    std::uint32_t bits = 0;
    add_amax(TileRows<float>{own.data(), rows, own.size(), source.columns(), own.size()},
             key.counts_nan ? NanInAmax::counted : NanInAmax::dropped, &bits, 0);
    return bits;
  }
  std::uint32_t most = 0;
  for (std::size_t row = piece.row; row < piece.row + rows; ++row) {
    std::size_t begin = piece.column;
    std::size_t end = piece.column + piece.count;
    if (key.elements != 0) {
      const std::size_t left = key.elements - std::min(key.elements, row * source.columns());
      begin = std::min(begin, left);
      end = std::min(end, left);
    }
    most = std::max(most, most_of(part_of(key.part, source.values({row, begin, end - begin})), key));
  }
  return most;
}

/// Adds rows [first, last) to the amaxes of tiles that lie side by side, from that column of tiles on.
void add_rows(const Source& source, const Amaxes& tiles, std::size_t first, std::size_t last, std::size_t tile_column,
              std::span<float> out) {
  if (out.size() == tiles.tiles_across && counts_all(tiles.key)) {
    return add_whole_rows(source, tiles, first, last, out);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto [begin, end] = tiles.counted_columns(tile_column + i);
    const std::uint32_t bits = most_of_rows(source, tiles, {first, begin, end - begin}, last - first);
    out[i] = std::bit_cast<float>(std::max(std::bit_cast<std::uint32_t>(out[i]), bits));
  }
}

void add_tiles(const Source& source, const Amaxes& tiles, std::size_t tile_row, std::size_t tile_column,
               std::span<float> out) {
  const std::size_t first = tile_row * tiles.across;
  add_rows(source, tiles, first, std::min(first + tiles.across, source.rows()), tile_column, out);
}

/// All amaxes are known from now on, and threads may read them.
void take_all(Amaxes& tiles, std::vector<float> values) {
  tiles.values = std::move(values);
  std::atomic_ref(tiles.are_all_known).store(true, std::memory_order_release);
}

/// A single row of tiles, whose rows are shared among threads.
void complete_by_rows(const Source& source, const Amaxes& tiles, std::span<float> values) {
  std::mutex mutex;
  parallel_for(
      source.rows(), source.threads(),
      [&](std::size_t first, std::size_t last) {
        std::vector<float> own(values.size());
        add_rows(source, tiles, first, last, 0, own);
        const std::scoped_lock lock(mutex);
        for (std::size_t i = 0; i < own.size(); ++i) {
          const auto bits = std::max(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(own[i]));
          values[i] = std::bit_cast<float>(bits);
        }
      },
      std::max<std::size_t>(1, 4 * scalar_piece / source.columns()));
}

}  // namespace

std::pair<std::size_t, std::size_t> Amaxes::counted_columns(std::size_t tile_column) const {
  const auto length = static_cast<std::ptrdiff_t>(columns);
  // 1. The tile, which may begin before the row and end behind it.
  std::ptrdiff_t first = static_cast<std::ptrdiff_t>(tile_column * along) - shift;
  std::ptrdiff_t last = first + static_cast<std::ptrdiff_t>(along);
  if (key.counts_rest && tile_column == 0) first = std::min<std::ptrdiff_t>(first, 0);
  if (key.counts_rest && tile_column + 1 == tiles_across) last = std::max(last, length);
  // 2. Its window, within the row.
  first = std::clamp<std::ptrdiff_t>(first + key.begin, 0, length);
  last = std::clamp<std::ptrdiff_t>(last + key.end, first, length);
  return {static_cast<std::size_t>(first), static_cast<std::size_t>(last)};
}

void narrow(Narrowing narrowing, std::span<float> x) {
  switch (narrowing) {
    case Narrowing::none: return;
    case Narrowing::flushed:
      for (float& value : x) {
        if (std::abs(value) < std::numeric_limits<float>::min()) value = std::copysign(0.0F, value);
      }
      return;
    case Narrowing::float16:
    case Narrowing::bfloat16:
    case Narrowing::float16_as_bfloat16:
    case Narrowing::bfloat16_as_float16: break;
  }
  const bool is_written_half = narrowing == Narrowing::float16 || narrowing == Narrowing::float16_as_bfloat16;
  const bool is_read_half = narrowing == Narrowing::float16 || narrowing == Narrowing::bfloat16_as_float16;
  const Format& format = is_written_half ? binary16 : bfloat16;
  const Format& read = is_read_half ? binary16 : bfloat16;
  std::array<std::uint16_t, 1024> words;
  for (std::size_t first = 0; first < x.size(); first += words.size()) {
    const auto own = x.subspan(first, std::min(words.size(), x.size() - first));
    const auto own_words = std::span(words).first(own.size());
    encode(format, ieee_policy, std::span<const float>(own), own_words);
    decode(read, std::span<const std::uint16_t>(own_words), own);
  }
}

Source::Source(const MatrixView& x, int threads)
    : rows_(x.rows()), columns_(x.columns()), threads_(threads), values_(x.size()) {
  x.visit([&](auto elements) {
    using Element = decltype(elements)::value_type;
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
  other.is_transpose_ = !is_transpose_;
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

const Source* Source::quantized_before(const Recipe& recipe) const {
  const std::scoped_lock lock(*mutex_);
  const auto [entry, is_new] = quantized_.try_emplace(&recipe);
  if (!is_new) return entry->second.get();
  const Source own = is_transpose_ ? transposed() : Source(MatrixView(values(), rows_, columns_), threads_);
  std::vector<float> left(own.size());
  try {
    const Quantized q = quantize(MatrixView(own.values(), own.rows(), own.columns()), recipe, Direction::rowwise,
                                 {.threads = threads_});
    if (q.rows != own.rows() || q.columns != own.columns()) return nullptr;
    dequantize(q, left, threads_);
  } catch (const std::invalid_argument&) {
    return nullptr;
  }
  if (type_ != binary32) narrow(type_ == binary16 ? Narrowing::float16 : Narrowing::bfloat16, left);
  Source made(MatrixView(std::span<const float>(left), own.rows(), own.columns()), threads_);
  made.type_ = type_;
  entry->second = std::make_shared<const Source>(is_transpose_ ? made.transposed() : std::move(made));
  return entry->second.get();
}

const Source& Source::counted(const AmaxKey& key) const {
  if (!key.is_turned) return *this;
  const std::scoped_lock lock(*mutex_);
  if (!turned_) turned_ = std::make_shared<const Source>(transposed());
  return *turned_;
}

const Landmarks& Source::landmarks() const {
  const std::scoped_lock lock(*mutex_);
  if (!landmarks_) landmarks_ = landmarks_of(values(), threads_);
  return *landmarks_;
}

Amaxes& Source::tiles(const AmaxKey& key) const {
  const std::scoped_lock lock(*mutex_);
  const auto [entry, is_new] = amaxes_.try_emplace(key);
  Amaxes& tiles = entry->second;
  if (!is_new) return tiles;
  tiles.key = key;
  tiles.across = key.across == 0 ? rows_ : std::min(key.across, rows_);
  tiles.along = key.along == 0 ? columns_ : std::min(key.along, columns_);
  tiles.shift = key.along == 0 ? 0 : key.shift;
  tiles.columns = columns_;
  tiles.tiles_down = (rows_ + tiles.across - 1) / tiles.across;
  const std::size_t whole = (columns_ + tiles.along - 1) / tiles.along;
  tiles.tiles_across = whole + 1;
  tiles.tiles_across = std::min(tiles.tile_column(columns_ - 1) + 1, key.is_clamped ? whole : whole + 1);
  return tiles;
}

float Source::amax_of(Amaxes& tiles, std::size_t tile_row, std::size_t tile_column) const {
  const std::size_t tile = tile_row * tiles.tiles_across + tile_column;
  if (std::atomic_ref(tiles.are_all_known).load(std::memory_order_acquire)) return tiles.values[tile];
  {
    const std::scoped_lock lock(*mutex_);
    if (const auto known = tiles.some.find(tile); known != tiles.some.end()) return known->second;
    // Narrow tiles share cache lines, which are read again for each.
    constexpr std::size_t line = 16;
    const bool is_narrow = tiles.along < line && tiles.across > 1;
    const bool reads_much = is_narrow && (tiles.some.size() + 1) * tiles.across * line > size() / 16;
    if (reads_much || tiles.across * tiles.along >= scalar_piece) {
      complete(tiles);  // on all threads
      return tiles.values[tile];
    }
  }
  float amax = 0;  // another thread may make the same
  add_tiles(counted(tiles.key), tiles, tile_row, tile_column, std::span(&amax, 1));
  narrow(tiles.key.narrowing, std::span(&amax, 1));  // rounding keeps the order
  const std::scoped_lock lock(*mutex_);
  return tiles.some.try_emplace(tile, amax).first->second;
}

void Source::complete(Amaxes& tiles) const {
  const std::scoped_lock lock(*mutex_);
  if (tiles.are_all_known) return;
  if (tiles.key.narrowing != Narrowing::none) {
    AmaxKey key = tiles.key;
    key.narrowing = Narrowing::none;
    Amaxes& whole = this->tiles(key);
    complete(whole);
    std::vector<float> narrowed = whole.values;
    narrow(tiles.key.narrowing, narrowed);  // rounding keeps the order
    take_all(tiles, std::move(narrowed));
    return;
  }
  std::vector<float> values(tiles.tiles_down * tiles.tiles_across);
  const Source& source = counted(tiles.key);
  if (tiles.tiles_down == 1 && tiles.across > 1) {
    complete_by_rows(source, tiles, values);
  } else {
    parallel_for(
        tiles.tiles_down, threads_,
        [&](std::size_t first, std::size_t last) {
          for (std::size_t row = first; row < last; ++row) {
            add_tiles(source, tiles, row, 0, std::span(values).subspan(row * tiles.tiles_across, tiles.tiles_across));
          }
        },
        std::max<std::size_t>(1, scalar_piece / (tiles.across * columns_)));
  }
  take_all(tiles, std::move(values));
}

std::string note_on_pairs(std::span<const std::uint64_t> shape_of_x, std::span<const std::uint64_t> shape_of_codes) {
  const auto size_of = [](std::span<const std::uint64_t> shape) {
    return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
  };
  const std::uint64_t size = size_of(shape_of_x);
  const auto is_flat = std::ranges::count_if(shape_of_codes, [](std::uint64_t length) { return length != 1; }) < 2;
  if (is_flat || shape_of_x.empty() || 2 * size_of(shape_of_codes) != size) return "";
  const std::uint64_t across = 2 * shape_of_codes.back();
  // A row of x, or of a transpose of it; or of blocks of a row, each a dimension of its own, as gpt-oss stores them.
  bool is_usual = false;
  std::uint64_t of_blocks = 2;
  for (std::size_t i = shape_of_codes.size(); i-- > 0;) {
    of_blocks *= shape_of_codes[i];
    is_usual = is_usual || std::ranges::find(shape_of_x, of_blocks) != shape_of_x.end();
    if (of_blocks >= size) break;
  }
  if (is_usual || across == size / shape_of_x.back()) return "";
  TextStream text;
  text << "Codes are half as many bytes as x has elements and are taken as pairs of codes of 4 bits, but their shape "
          "is (";
  for (const std::uint64_t& length : shape_of_codes) text << (&length == shape_of_codes.data() ? "" : ", ") << length;
  text << "), and that of pairs would have rows of " << shape_of_x.back() / 2 << " bytes: half of them may be missing.";
  return text.str();
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
    refuse("codes have ", dump.codes.size(), dump.codes.size() == 1 ? " byte; x has " : " bytes; x has ", x.size(),
           x.size() == 1 ? " element, which has " : " elements, which have ", x.size(), " codes of a byte or ", packed,
           " bytes of two codes of 4 bits each");
  }
  if (was_packed && format && format->bits() != 4) {
    refuse("codes have two codes in each byte; a code of ", format_name(*format), " has ", format->bits(), " bits");
  }
  check_codes();
  const std::size_t width = scale_format ? static_cast<std::size_t>((scale_format->bits() + 7) / 8) : 1;
  if (dump.scales.bytes.size() % width != 0) {
    refuse("scales have ", dump.scales.bytes.size(), " bytes, which are no whole number of elements of ", width);
  }
  scales.resize(dump.scales.bytes.size() / width);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    std::memcpy(&scales[i], dump.scales.bytes.data() + i * width, width);  // both are little-endian
  }
}

const std::uint8_t* StoredDump::turned(std::size_t columns, int threads) const {
  std::vector<std::uint8_t>& own = turned_[columns];
  if (!own.empty()) return own.data();
  own.resize(codes.size());
  const std::size_t rows = codes.size() / columns;
  constexpr std::size_t block = 64;  // a cache line of both
  parallel_for((columns + block - 1) / block, threads,
               [&](std::size_t first, std::size_t last) {
                 for (std::size_t column = first * block; column < std::min(last * block, columns); column += block) {
                   const std::size_t end = std::min(column + block, columns);
                   for (std::size_t row = 0; row < rows; row += block) {
                     for (std::size_t c = column; c < end; ++c) {
                       for (std::size_t r = row; r < std::min(row + block, rows); ++r) {
                         own[c * rows + r] = codes[r * columns + c];
                       }
                     }
                   }
                 }
               },
               1);
  return own.data();
}

void StoredDump::check_codes() const {
  if (!format || format->bits() > 7) return;
  const auto beyond = std::ranges::find_if(codes, [&](std::uint8_t code) { return code >> format->bits() != 0; });
  if (beyond == codes.end()) return;
  refuse("codes have the byte ", static_cast<int>(*beyond), " at index ", beyond - codes.begin(), "; a code of ",
         format_name(*format), " has ", format->bits(), " bits");
}

Format StoredDump::type_of_scales(const Format& own) const {
  if (scale_format) return *scale_format;
  return own == ue4m3 ? ue4m3 : e8m0;
}

}  // namespace fp8lab::doctor
