// SPDX-License-Identifier: Apache-2.0
#include "gpu/probe_draws.hpp"

#include <algorithm>

#include "fp8lab/formats/encode.hpp"

namespace fp8lab::experiments {
namespace {

using gpu::random_word;

std::uint64_t sign_of(const Format& format, std::uint64_t random) { return (random & 1) != 0 ? format.sign_mask() : 0; }

/// Finite words whose exponent field is below `fields`, some of them zero.
std::uint64_t low_word(const Format& format, std::uint64_t random, std::uint64_t fields) {
  if (random % 5 == 0) return 0;
  const std::uint64_t fraction = random >> 8 & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  const std::uint64_t field = (random >> 40) % fields;
  return sign_of(format, random >> 1) | field << format.mantissa_bits | fraction;
}

/// 1 or 1.5 times a power of two, whose sign is random; the nearest value of the format.
std::uint64_t power_word(const Format& format, std::uint64_t random, int exponent) {
  const Unpacked value{(random & 1) != 0, fp8lab::Kind::finite, exponent - 1, 2 + (random >> 1 & 1)};
  const CastPolicy policy{};
  return encode(format, policy, value, policy.nan);
}

/// Sets all scales of a and b so that their product is 2^exponent, and gives back what they really have.
int set_scales(const gpu::TileSet& set, int exponent, Drawn a, Drawn b) {
  const bool is_e8m0 = set.scales == e8m0;
  const int least = is_e8m0 ? -127 : -6;
  const int of_a = std::max(exponent / 2, least);
  const int of_b = std::max(exponent - of_a, least);
  const auto code = [&](int own) { return static_cast<std::uint32_t>(is_e8m0 ? own + 127 : (own + 7) * 8); };
  std::ranges::fill(a.subspan(set.depth), code(of_a));
  std::ranges::fill(b.subspan(set.depth), code(of_b));
  return of_a + of_b;
}

/// A scale that is large, tiny, zero (of E8M0: any) or any, by random bits.
std::uint32_t any_scale(bool is_e8m0, std::uint64_t bits) {
  const auto any = static_cast<std::uint32_t>(bits >> 8 & 0x7F);
  switch (bits % 4) {
    case 0: return is_e8m0 ? 0x7F + any : 0x7E;
    case 1: return is_e8m0 ? 60 - any % 16 : 1 + any % 8;
    case 2: return is_e8m0 ? 0x38 + any : 0;
    default: return any == 0x7F ? 1 : any;
  }
}

/// Scaled operands: every group of products is zero, or cancels to zero, or has one product, each a third of the time.
/// c is any finite word, or tiny.
void draw_groups(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c) {
  std::ranges::fill(a, 0);
  std::ranges::fill(b, 0);
  for (unsigned first = 0; first < set.depth; first += 16) {
    const std::uint64_t random = random_word(13, i * 8 + first / 16);
    const auto one = static_cast<std::uint32_t>(1 + (random >> 8) % 7);  // E2M1's magnitudes; small ones of FP8
    if (random % 3 == 0) continue;
    a[first + 1] = b[first + 1] = one;
    if (random % 3 == 1) continue;
    a[first + 5] = one | set.a.sign_mask();
    b[first + 5] = one;
  }
  for (unsigned j = 0; j < set.blocks(); ++j) {
    const std::uint64_t random = random_word(14, i * 8 + j);
    a[set.depth + j] = any_scale(set.scales == e8m0, random);
    b[set.depth + j] = any_scale(set.scales == e8m0, random >> 32);
  }
  c = i % 4 == 0 ? 0 : low_word(set.accumulator, random_word(15, i), i % 2 == 0 ? 28 : 254);
}

/// Two products cancel, and others are `below` binades below: what is kept of these shows.
void draw_spread_values(const gpu::TileSet& set, std::uint64_t i, int below, Drawn a, Drawn b) {
  constexpr int of_large = 7;
  set_scales(set, 0, a, b);
  a[0] = a[1] = power_word(set.a, 0, of_large);
  b[0] = b[1] = power_word(set.b, 0, of_large);
  a[1] ^= set.a.sign_mask();
  for (unsigned k = 2; k < std::min(set.depth, 8U); ++k) {
    const std::uint64_t own = random_word(17, i * 8 + k);
    const int of_a = (2 * of_large - below - static_cast<int>(own >> 16 & 3)) / 2;
    a[k] = power_word(set.a, own, of_a);
    b[k] = power_word(set.b, own >> 2, 2 * of_large - below - of_a);
  }
}
/// The same of FP4: two groups of 16 cancel, and the products of half of K have small scales.
void draw_spread_groups(const gpu::TileSet& set, std::uint64_t i, std::uint32_t below, Drawn a, Drawn b) {
  for (unsigned k = set.depth / 2; k < set.depth; ++k) {
    const std::uint64_t own = random_word(17, i * 64 + k);
    a[k] = static_cast<std::uint32_t>(own % 16);
    b[k] = static_cast<std::uint32_t>(own >> 8 & 7);
  }
  a[0] = b[0] = b[16] = 7;
  a[16] = 15;
  const bool is_e8m0 = set.scales == e8m0;
  const std::uint32_t large = is_e8m0 ? 0x7F : 0x78;
  const std::uint32_t small = is_e8m0 ? 0x7F - below : 1 + below % 7;
  for (unsigned j = 0; j < set.blocks(); ++j) {
    const bool is_large = j < set.blocks() / 2;
    a[set.depth + j] = is_large ? large : small;
    b[set.depth + j] = is_large || is_e8m0 ? large : 1 + small / 2;
  }
}
void draw_spread(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c) {
  const auto below = static_cast<std::uint32_t>(20 + random_word(16, i) % 24);
  std::ranges::fill(a, 0);
  std::ranges::fill(b, 0);
  if (set.a == e2m1) {
    draw_spread_groups(set, i, below, a, b);
  } else {
    draw_spread_values(set, i, static_cast<int>(below), a, b);
  }
  c = 0;
}

/// Operands of the generator, all draws in turn.
void draw_generated(gpu::TileSet set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c) {
  set.draw = static_cast<gpu::Draw>(i % gpu::draws);
  set.seed = 21;
  for (unsigned k = 0; k < set.depth; ++k) {
    a[k] = gpu::operand_word(set, false, i, 0, k);
    b[k] = gpu::operand_word(set, true, i, 0, k);
  }
  for (unsigned j = 0; j < set.blocks(); ++j) {
    a[set.depth + j] = gpu::scale_word(set, false, i, 0, j);
    b[set.depth + j] = gpu::scale_word(set, true, i, 0, j);
  }
  c = gpu::accumulator_word(set, i, 0, 0);
}

}  // namespace

void draw_tiny(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c) {
  std::ranges::fill(a, 0);
  std::ranges::fill(b, 0);
  int smallest = set.accumulator.min_exponent() - set.accumulator.mantissa_bits;
  if (set.blocks() > 0) smallest -= set_scales(set, smallest + 4 + static_cast<int>(i / 4 % 16), a, b);
  const int least_a = set.a.min_exponent() - set.a.mantissa_bits;
  const int least_b = set.b.min_exponent() - set.b.mantissa_bits;
  for (std::size_t k = 0; k < i % 4; ++k) {
    const std::uint64_t random = random_word(12, i * 64 + k);
    const int below = static_cast<int>(k == 0 ? random >> 8 & 3 : random >> 8 & 31) - 2;
    const int exponent = std::max(smallest - below, least_a + least_b);
    const int of_a = std::max(exponent / 2, least_a);
    a[k] = power_word(set.a, random, of_a);
    b[k] = power_word(set.b, random >> 2, std::max(exponent - of_a, least_b));
  }
  c = i % 3 == 0 ? 0 : low_word(set.accumulator, random_word(11, i), 4 + i % 24);
}

void draw_scaled_zeros(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c) {
  i % 2 == 0 ? draw_groups(set, i / 2, a, b, c) : draw_tiny(set, i / 2, a, b, c);
}

void draw_finite(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c) {
  if (i % 3 == 2) return draw_spread(set, i / 3, a, b, c);
  draw_generated(set, i / 3 * gpu::draws + 1 + i % 3, a, b, c);
}

void draw_special(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c) {
  draw_generated(set, i * gpu::draws + 4, a, b, c);
}

}  // namespace fp8lab::experiments
