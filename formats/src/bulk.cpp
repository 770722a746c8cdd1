// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/bulk.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <stdexcept>
#include <string>
#include <variant>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "random_words.hpp"
#include "simd/decode.hpp"
#include "simd/encode.hpp"
#include "simd/memory.hpp"
#include "simd/targets.hpp"

namespace fp8lab {
namespace {

[[noreturn]] void refuse_code(const Format& format, std::string_view name, std::size_t index, unsigned code) {
  TextStream reason;
  reason << std::hex << std::uppercase << "element " << std::dec << index << std::hex << " of " << name << " is "
         << code << " (hexadecimal); codes of " << format_name(format) << " have " << std::dec << format.bits()
         << " bits: 0 to " << std::hex << ((1U << format.bits()) - 1);
  throw std::invalid_argument(reason.str());
}

/// Elements that are worked on at a time where something has to be put aside: they stay in the first cache.
constexpr std::size_t block = 2048;

/// Calls work(first, last) for blocks that together cover [first, last).
template <typename Work>
void by_blocks(std::size_t first, std::size_t last, const Work& work) {
  for (; first < last; first += block) work(first, std::min(first + block, last));
}

constexpr std::size_t piece_of(bool vector) { return vector ? vector_piece : scalar_piece; }

template <typename Code>
void check_encode(const Format& format, const CastPolicy& policy, std::size_t in, std::size_t out, bool random) {
  check_bulk(format, sizeof(Code) == 1 ? 1 : 9, sizeof(Code) == 1 ? 8 : 16, in, out);
  if ((policy.rounding == Rounding::stochastic) != random) {
    throw std::invalid_argument(random ? "random bits are for rounding 'stochastic' only"
                                       : "rounding 'stochastic' needs random bits");
  }
}

template <typename Source, typename Code>
void encode_all(const Format& format, const CastPolicy& policy, std::span<const Source> in, std::span<Code> out,
                int threads) {
  const DefaultEnvironment environment;
  check_encode<Code>(format, policy, in.size(), out.size(), false);
  check_apart_or_same("x", in, "out", out);
  const auto vector = vector_code_allowed() ? vector_encode(format, policy) : std::nullopt;
  parallel_for(
      in.size(), threads,
      [&](std::size_t first, std::size_t last) {
        if constexpr (!std::same_as<Source, double>) {
          if (vector) {
            encode_vector(*vector, in.data() + first, nullptr, out.data() + first, last - first);
            return;
          }
        }
        for (std::size_t i = first; i < last; ++i) out[i] = static_cast<Code>(encode(format, policy, in[i]));
      },
      piece_of(vector.has_value() && !std::same_as<Source, double>));
}

/// A word for each of the elements from `first` on: in place where the source has just that. The vector code drops the
/// bits that do not count.
const std::uint32_t* words_of(const Format& format, const RandomSource& random, std::size_t first,
                              std::span<std::uint32_t> room) {
  const auto* own = std::get_if<std::span<const std::uint32_t>>(&random.words);
  if (own != nullptr && random.sharing == Sharing::none) return own->data() + first;
  random_words_of(format, random, first, room);
  return room.data();
}

template <typename Source, typename Code>
void encode_stochastic(const Format& format, const CastPolicy& policy, std::span<const Source> in,
                       const RandomSource& random, std::span<Code> out, int threads) {
  const DefaultEnvironment environment;
  check_encode<Code>(format, policy, in.size(), out.size(), true);
  check_random(format, random, in.size());
  check_apart_or_same("x", in, "out", out);
  std::visit([&](auto words) { check_apart_or_same("random_bits", words, "out", out); }, random.words);
  const auto vector = vector_code_allowed() ? vector_encode(format, policy, random.count) : std::nullopt;
  parallel_for(
      in.size(), threads,
      [&](std::size_t first, std::size_t last) {
        if constexpr (!std::same_as<Source, double>) {
          if (vector) {
            std::array<std::uint32_t, block> room;
            by_blocks(first, last, [&](std::size_t from, std::size_t to) {
              const std::uint32_t* words = words_of(format, random, from, std::span(room).first(to - from));
              encode_vector(*vector, in.data() + from, words, out.data() + from, to - from);
            });
            return;
          }
        }
        for (std::size_t i = first; i < last; ++i) {
          out[i] = static_cast<Code>(encode(format, policy, in[i], random_bits_of(format, random, i)));
        }
      },
      scalar_piece);
}

/// Throws std::invalid_argument where a code has bits beyond the format's width, or where threads < 1. `Code` has one
/// or two bytes.
template <typename Code>
void check_widths(const Format& format, std::span<const Code> codes, std::string_view name, int threads) {
  constexpr int room = 8 * sizeof(Code);
  if (format.bits() >= room) return;
  const auto beyond = static_cast<Code>(~0U << format.bits());
  parallel_for(codes.size(), threads, [&](std::size_t first, std::size_t last) {
    by_blocks(first, last, [&](std::size_t from, std::size_t to) {
      Code any = 0;
      for (std::size_t i = from; i < to; ++i) any = static_cast<Code>(any | codes[i]);
      if ((any & beyond) == 0) return;
      while ((codes[from] & beyond) == 0) ++from;
      refuse_code(format, name, from, codes[from]);
    });
  });
}

constexpr std::uint32_t infinite = 0x7F800000;  // of float32, as the NaN below
constexpr std::uint32_t quiet_nan = 0x7FC00000;

/// decode() of bfloat16 codes, by steps that compilers make vectors of.
void decode_bfloat16(const std::uint16_t* codes, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t word = std::uint32_t{codes[i]} << 16;
    const std::uint32_t magnitude = word & 0x7FFFFFFFU;
    out[i] = std::bit_cast<float>((word ^ magnitude) | (magnitude > infinite ? quiet_nan : magnitude));
  }
}

/// The same of halves: exponent and fraction at the places of a float's, times the ratio of the scales, which is exact.
void decode_binary16(const std::uint16_t* codes, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = codes[i] & 0x7FFFU;
    const std::uint32_t sign = (std::uint32_t{codes[i]} ^ magnitude) << 16;
    const auto value = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112F);
    const std::uint32_t special = magnitude > 0x7C00U ? quiet_nan : infinite;
    out[i] = std::bit_cast<float>(sign | (magnitude >= 0x7C00U ? special : value));
  }
}

}  // namespace

void check_bulk(const Format& format, int least, int most, std::size_t in, std::size_t out) {
  check_format(format);
  if (format.bits() < least || format.bits() > most) {
    throw std::invalid_argument("format must have " + std::to_string(least) + " to " + std::to_string(most) +
                                " bits, not " + std::to_string(format.bits()));
  }
  if (in != out) {
    throw std::invalid_argument("out has " + std::to_string(out) + " elements, the input " + std::to_string(in));
  }
}

void encode(const Format& format, const CastPolicy& policy, FloatSpan in, CodeSpan out, int threads) {
  std::visit([&](auto x, auto codes) { encode_all(format, policy, x, codes, threads); }, in, out);
}
void encode(const Format& format, const CastPolicy& policy, FloatSpan in, const RandomSource& random, CodeSpan out,
            int threads) {
  std::visit([&](auto x, auto codes) { encode_stochastic(format, policy, x, random, codes, threads); }, in, out);
}

void check_codes(const Format& format, std::span<const std::uint8_t> codes, std::string_view name, int threads) {
  check_widths(format, codes, name, threads);
}
void check_codes(const Format& format, std::span<const std::uint16_t> codes, std::string_view name, int threads) {
  check_widths(format, codes, name, threads);
}

bool has_vector_encode(const Format& format, const CastPolicy& policy) {
  const DefaultEnvironment environment;
  return vector_encode(format, policy).has_value();
}

void recode(const Format& format, const CastPolicy& policy, std::span<const float> in, float scale,
            std::span<float> out) {
  const DefaultEnvironment environment;
  const auto vector = vector_code_allowed() ? vector_round(format, policy) : std::nullopt;
  if (vector) return round_vector(*vector, scale, in.data(), out.data(), in.size());
  const float inverse = 1 / scale;
  const auto through = [&]<typename Code>(Code /*code*/) {
    std::array<float, block> values;
    std::array<Code, block> codes;
    by_blocks(0, in.size(), [&](std::size_t first, std::size_t last) {
      const std::size_t size = last - first;
      for (std::size_t i = 0; i < size; ++i) values[i] = in[first + i] * scale;
      encode(format, policy, std::span<const float>(values).first(size), std::span(codes).first(size));
      decode(format, std::span<const Code>(codes).first(size), std::span(values).first(size));
      for (std::size_t i = 0; i < size; ++i) out[first + i] = values[i] * inverse;
    });
  };
  if (format.bits() <= 8) return through(std::uint8_t{});
  through(std::uint16_t{});
}

void decode(const Format& format, std::span<const std::uint8_t> codes, std::span<float> out, int threads) {
  const DefaultEnvironment environment;
  check_bulk(format, 1, 8, codes.size(), out.size());
  check_apart("codes", codes, "out", out);
  check_codes(format, codes, "codes", threads);
  const auto vector = vector_code_allowed() ? vector_decode(format) : std::nullopt;
  std::array<float, 256> table{};
  if (!vector) {
    for (std::uint32_t code = 0; code < 256; ++code) table[code] = decode(format, code);
  }
  parallel_for(
      codes.size(), threads,
      [&](std::size_t first, std::size_t last) {
        if (vector) return decode_vector(*vector, codes.data() + first, out.data() + first, last - first);
        for (std::size_t i = first; i < last; ++i) out[i] = table[codes[i]];
      },
      vector_piece);
}

void decode(const Format& format, std::span<const std::uint16_t> codes, std::span<float> out, int threads) {
  const DefaultEnvironment environment;
  check_bulk(format, 9, 16, codes.size(), out.size());
  check_apart("codes", codes, "out", out);
  check_codes(format, codes, "codes", threads);
  parallel_for(
      codes.size(), threads,
      [&](std::size_t first, std::size_t last) {
        if (format == bfloat16) return decode_bfloat16(codes.data() + first, out.data() + first, last - first);
        if (format == binary16) return decode_binary16(codes.data() + first, out.data() + first, last - first);
        for (std::size_t i = first; i < last; ++i) out[i] = decode(format, codes[i]);
      },
      scalar_piece);
}

}  // namespace fp8lab
