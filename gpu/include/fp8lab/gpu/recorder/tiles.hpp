// SPDX-License-Identifier: Apache-2.0
// Generated operands of matrix instructions: every word follows from a seed and its place, on host and device alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/gpu/recorder/digest.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// How operands are drawn.
enum class Draw : std::uint8_t {
  random_bits,  ///< any code; infinities and NaN in one tile of eight alone
  gaussian,     ///< sums of eight uniform integers, times a power of two of the tile
  cancelling,   ///< gaussian, and of two products far apart one is the other's negative, or nearly so
  subnormal,    ///< around the smallest normal value, with zeros, and rows of zeros
  special,      ///< gaussian with NaN, infinities, the largest and smallest values, and zeros of both signs
};
inline constexpr int draws = 5;

/// The version of what the functions below draw. A ledger names it, and a change of any word makes it grow.
inline constexpr int generator_version = 2;

/// Tiles of one instruction: D = A B^T + C with A of rows x depth words, B of columns x depth, C of rows x columns.
///
/// C is zero in tiles of even number. TF32 operands are float32 words, whose low bits are not zero. E2M1 takes a byte
/// for each word. Behind the words of a tile's A lie its block scales, a byte each, and B's behind those of B.
struct TileSet {
  Format a, b;         ///< of the words of A and B
  Format accumulator;  ///< of the words of C and D: binary32, binary16 or binary64
  unsigned rows, columns, depth;
  Draw draw;
  std::uint64_t seed;
  Format scales = {};  ///< of block scales
  unsigned block = 0;  ///< elements of K that share one; 0: there are none

  [[nodiscard]] FP8LAB_HD unsigned blocks() const { return block == 0 ? 0 : depth / block; }
  [[nodiscard]] FP8LAB_HD std::size_t words_of_a() const { return std::size_t{rows} * depth; }
  [[nodiscard]] FP8LAB_HD std::size_t words_of_b() const { return std::size_t{columns} * depth; }
  [[nodiscard]] FP8LAB_HD std::size_t dots() const { return std::size_t{rows} * columns; }
};

/// Bytes of a stored word.
[[nodiscard]] FP8LAB_HD constexpr unsigned bytes_of(const Format& format) {
  if (format.bits() <= 8) return 1;
  if (format.bits() <= 16) return 2;
  return format.bits() <= 32 ? 4 : 8;
}

/// Bytes of a tile's A and B, with their block scales.
[[nodiscard]] FP8LAB_HD inline std::size_t bytes_of_a(const TileSet& set) {
  return set.words_of_a() * bytes_of(set.a) + std::size_t{set.rows} * set.blocks();
}
[[nodiscard]] FP8LAB_HD inline std::size_t bytes_of_b(const TileSet& set) {
  return set.words_of_b() * bytes_of(set.b) + std::size_t{set.columns} * set.blocks();
}

namespace generator {

/// The normal numbers' share of what is drawn: a sum of eight uniform 16-bit integers, centred, times
/// 2^(exponent - 16). Its standard deviation is 0.82 * 2^exponent. Of binary64, 40 random bits follow these 19.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t gaussian(const Format& format, std::uint64_t random, int exponent) {
  std::int64_t sum = -8 * 32767 - 4;
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) sum += static_cast<std::int64_t>(random >> (16 * i) & 0xFFFF);
    random = mixed(random + 0x9E3779B97F4A7C15U);
  }
  const bool negative = sum < 0;
  auto magnitude = static_cast<std::uint64_t>(negative ? -sum : sum);
  exponent -= 16;
  if (format.mantissa_bits > 24) {
    magnitude = magnitude << 40 | random >> 24;
    exponent -= 40;
  }
  const Unpacked value{negative, magnitude == 0 ? Kind::zero : Kind::finite, exponent, magnitude};
  const CastPolicy policy{};
  return encode(format, policy, value, policy.nan);
}

/// Any code; without infinities and NaN where `finite`: the top bit of the exponent falls.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t any_code(const Format& format, std::uint64_t random, bool finite) {
  const std::uint64_t mask = format.sign_mask() | format.magnitude_mask();
  const std::uint64_t code = random & mask;
  const Kind kind = unpack(format, code).kind;
  if (!finite || kind == Kind::zero || kind == Kind::finite) return code;
  return code & ~(std::uint64_t{1} << (format.bits() - 2));
}

/// Zero, or a value below four times the smallest normal one.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t small(const Format& format, std::uint64_t random) {
  const std::uint64_t sign = (random & 1) != 0 ? format.sign_mask() : 0;
  if ((random >> 1 & 7) == 0) return sign;
  return sign | (random >> 8 & ((std::uint64_t{4} << format.mantissa_bits) - 1));
}

/// A NaN, an infinity, an extreme value or a zero.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t special(const Format& format, std::uint64_t random) {
  const std::uint64_t sign = (random & 1) != 0 ? format.sign_mask() : 0;
  const CastPolicy saturating{};
  const CastPolicy special{.overflow = Overflow::to_special, .infinity = Overflow::to_special};
  const Unpacked infinity{sign != 0, Kind::infinite, 0, 0};
  switch (random >> 1 & 7) {
    case 0:
    case 1: return encode(format, special, infinity, special.nan);  // NaN where there is no infinity
    case 2: return sign | encode(format, special, {false, Kind::nan, 0, 0}, special.nan);
    case 3: return encode(format, saturating, infinity, saturating.nan);
    case 4: return sign | 1;  // the smallest subnormal value
    case 5: return sign | std::uint64_t{1} << format.mantissa_bits;
    default: return sign;
  }
}

/// A code of E8M0, or of E4M3, as a draw has block scales.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t block_scale(Draw draw, bool is_e8m0, std::uint64_t random) {
  const std::uint32_t one = is_e8m0 ? 0x7F : 0x38;
  const auto code = static_cast<std::uint32_t>(random & 0xFF);
  const std::uint32_t near_one = is_e8m0 ? one - 4 + code % 8 : one - 16 + code % 32;
  switch (draw) {
    case Draw::random_bits:
      if (is_e8m0 && (random >> 8) % 2 == 0) return one - 32 + code % 64;  // so that sums are not all extreme
      return (code & 0x7F) == 0x7F ? code ^ 0x40 : code;
    case Draw::gaussian:
    case Draw::cancelling: return near_one;
    case Draw::subnormal:
      if ((random >> 8) % 4 == 0) return is_e8m0 ? one + 40 : 0x7E;  // large, for groups that are zero too
      return is_e8m0 ? one - 60 - code % 16 : code % 9;
    case Draw::special:
      if ((random >> 8) % 32 != 0) return near_one;
      switch (code % 4) {
        case 0: return 0;
        case 1: return is_e8m0 ? 0xFF : 0x7F;  // NaN
        case 2: return is_e8m0 ? 0xFE : 0x7E;
        default: return 1;
      }
  }
  return one;
}

}  // namespace generator

/// Block scale `number` of row `row` of A, or of B, of tile `tile`. Where products cancel, a row has one scale.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t scale_word(const TileSet& set, bool is_b, std::uint64_t tile,
                                                           unsigned row, unsigned number) {
  const std::uint64_t own_row = (tile * 2 + (is_b ? 1 : 0)) * 512 + row;
  const std::uint64_t place = own_row * 128 + 64 + (set.draw == Draw::cancelling ? 0 : number);  // elements are below
  return generator::block_scale(set.draw, set.scales.mantissa_bits == 0, random_word(set.seed, place));
}

/// Word (row, k) of A, or word (column, k) of B, of tile `tile`.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t operand_word(const TileSet& set, bool is_b, std::uint64_t tile,
                                                             unsigned row, unsigned k) {
  const Format format = is_b ? set.b : set.a;
  const std::uint64_t own_row = (tile * 2 + (is_b ? 1 : 0)) * 512 + row;
  const std::uint64_t random = random_word(set.seed, own_row * 128 + k);
  const std::uint64_t of_tile = random_word(set.seed ^ 0x7469'6C65U, tile);
  const int exponent = static_cast<int>(of_tile % 7) - 3;
  std::uint64_t word = 0;
  switch (set.draw) {
    case Draw::random_bits: word = generator::any_code(format, random, tile % 8 != 3); break;
    case Draw::gaussian: word = generator::gaussian(format, random, exponent); break;
    case Draw::cancelling: {
      unsigned levels = 1;  // of distances: 1, 2, ... K / 2
      while ((2U << levels) <= set.depth) ++levels;
      const unsigned distance = 1U << (of_tile >> 8) % levels;
      const bool is_second = (k & distance) != 0;
      word = generator::gaussian(format, random_word(set.seed, own_row * 128 + (k & ~distance)), exponent);
      if (is_second && !is_b) word ^= format.sign_mask();
      if (is_second && (random >> 16) % 16 == 0) word ^= 1;
      break;
    }
    case Draw::subnormal:
      word = is_b && (of_tile >> 8) % 2 == 0 ? generator::any_code(format, random, true)
                                             : generator::small(format, random);
      if (!is_b && random_word(set.seed ^ 0x726F'7773U, own_row) % 4 == 0) word &= format.sign_mask();
      break;
    case Draw::special:
      word = (random >> 32) % 64 == 0 ? generator::special(format, mixed(random))
                                      : generator::gaussian(format, random, exponent);
      break;
  }
  return word;
}

/// Word (row, column) of C of tile `tile`.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t accumulator_word(const TileSet& set, std::uint64_t tile, unsigned row,
                                                                 unsigned column) {
  if (tile % 2 == 0) return 0;
  const Format format = set.accumulator;
  const std::uint64_t place = (tile * 256 + row) * 512 + column;
  const std::uint64_t random = random_word(set.seed ^ 0x6163'6375U, place);
  const std::uint64_t other = mixed(random);
  const int exponent = static_cast<int>(random_word(set.seed ^ 0x7469'6C65U, tile) % 7 * 2) - 4;
  std::uint64_t word = 0;
  switch (set.draw) {
    case Draw::random_bits:
      word = other % 2 == 0 ? generator::gaussian(format, random, static_cast<int>(other >> 8 & 31) - 16)
                            : generator::any_code(format, random, tile % 8 != 3);
      break;
    case Draw::gaussian:
    case Draw::cancelling: word = generator::gaussian(format, random, exponent); break;
    case Draw::subnormal:
      word = generator::small(format, random);
      if (other % 4 == 0) word = generator::any_code(format, random, true) >> 1 & format.magnitude_mask();
      break;
    case Draw::special:
      word = other % 8 == 0 ? generator::special(format, other >> 8) : generator::gaussian(format, random, exponent);
      break;
  }
  return word;
}

/// Writes a word of a format where its bytes are.
FP8LAB_HD inline void store_word(const Format& format, void* to, std::size_t i, std::uint64_t word) {
  switch (bytes_of(format)) {
    case 1: static_cast<std::uint8_t*>(to)[i] = static_cast<std::uint8_t>(word); break;
    case 2: static_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(word); break;
    case 4: static_cast<std::uint32_t*>(to)[i] = static_cast<std::uint32_t>(word); break;
    default: static_cast<std::uint64_t*>(to)[i] = word; break;
  }
}
/// Reads it again.
[[nodiscard]] FP8LAB_HD inline std::uint64_t load_word(const Format& format, const void* from, std::size_t i) {
  switch (bytes_of(format)) {
    case 1: return static_cast<const std::uint8_t*>(from)[i];
    case 2: return static_cast<const std::uint16_t*>(from)[i];
    case 4: return static_cast<const std::uint32_t*>(from)[i];
    default: return static_cast<const std::uint64_t*>(from)[i];
  }
}

/// Writes the operands of tiles [first, first + tiles), one tile after the other, rows of K words; block i makes the
/// i-th tile. D is filled with words that no instruction gives but by chance, so that what is not written shows.
struct GenerateTiles {
  static constexpr unsigned threads = 128;
  static constexpr unsigned least_blocks = 6;  // of a multiprocessor
  struct Shared {};

  TileSet set;
  std::uint64_t first;
  std::size_t tiles;
  void* a;
  void* b;
  void* c;
  void* d;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return tiles; }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    const std::uint64_t tile = first + block;
    generate(team, tile, false, static_cast<std::uint8_t*>(a) + block * bytes_of_a(set));
    generate(team, tile, true, static_cast<std::uint8_t*>(b) + block * bytes_of_b(set));
    team.for_each(set.dots(), [&](std::size_t i) {
      const auto row = static_cast<unsigned>(i / set.columns);
      const auto column = static_cast<unsigned>(i % set.columns);
      store_word(set.accumulator, c, block * set.dots() + i, accumulator_word(set, tile, row, column));
      store_word(set.accumulator, d, block * set.dots() + i, 0xA5A5'A5A5'A5A5'A5A5U);
    });
  }

 private:
  template <typename Team>
  FP8LAB_HD void generate(const Team& team, std::uint64_t tile, bool is_b, std::uint8_t* to) const {
    const std::size_t words = is_b ? set.words_of_b() : set.words_of_a();
    const Format format = is_b ? set.b : set.a;
    team.for_each(words, [&](std::size_t i) {
      const auto row = static_cast<unsigned>(i / set.depth);
      const auto k = static_cast<unsigned>(i % set.depth);
      store_word(format, to, i, operand_word(set, is_b, tile, row, k));
    });
    if (set.blocks() == 0) return;
    std::uint8_t* const scales = to + words * bytes_of(format);
    team.for_each(std::size_t{is_b ? set.columns : set.rows} * set.blocks(), [&](std::size_t i) {
      const auto row = static_cast<unsigned>(i / set.blocks());
      const auto number = static_cast<unsigned>(i % set.blocks());
      scales[i] = static_cast<std::uint8_t>(scale_word(set, is_b, tile, row, number));
    });
  }
};

/// Adds the digest terms of the words of `tiles` tiles to `digests`: tile i of all belongs to chunk i /
/// tiles_per_chunk, the first one to digests[0]. The index of a word is its number among all words of all tiles of the
/// set.
struct DigestTiles {
  static constexpr unsigned threads = 128;
  struct Shared {};

  Format format;
  std::size_t dots;  ///< words of a tile
  std::uint64_t first;
  std::size_t tiles;
  std::uint64_t tiles_per_chunk;
  const void* words;
  std::uint64_t* digests;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return tiles; }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    auto own = team.template each<std::uint64_t>();
    team.for_each_thread([&](std::size_t thread) {
      for (std::size_t i = thread; i < dots; i += threads) {
        own[thread] += digest_term((first + block) * dots + i, load_word(format, words, block * dots + i));
      }
    });
    const std::uint64_t sum = team.sum(own);
    team.for_each(1, [&](std::size_t) {
      const std::uint64_t before = first / tiles_per_chunk * tiles_per_chunk;
      atomic_add(digests + (first + block - before) / tiles_per_chunk, sum);
    });
  }
};

}  // namespace fp8lab::gpu
