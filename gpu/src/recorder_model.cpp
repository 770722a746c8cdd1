// SPDX-License-Identifier: Apache-2.0
// The digests of a recording without its kernels: bulk encode(), and gemm() of each tile.
#include <algorithm>
#include <bit>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/gpu/recorder/recorder.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"

namespace fp8lab::gpu {
namespace {

/// Codes of consecutive inputs, by the bulk casts where they have the source.
std::vector<std::uint32_t> cast_words(const CastSweep& sweep, std::uint64_t first, std::size_t count) {
  std::vector<std::uint32_t> words(count);
  const auto take = [&words](const auto& codes) { std::copy(codes.begin(), codes.end(), words.begin()); };
  const auto bulk = [&](const auto& in) {
    if (sweep.to.bits() <= 8) {
      std::vector<std::uint8_t> codes(count);
      encode(sweep.to, sweep.policy, std::span(in), std::span<std::uint8_t>(codes));
      take(codes);
    } else {
      std::vector<std::uint16_t> codes(count);
      encode(sweep.to, sweep.policy, std::span(in), std::span<std::uint16_t>(codes));
      take(codes);
    }
  };
  if (sweep.from == binary32 && sweep.to.bits() <= 16 && !sweep.is_stochastic()) {
    std::vector<float> in(count);
    for (std::size_t i = 0; i < count; ++i) in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i));
    bulk(std::as_const(in));
  } else {
    for (std::size_t i = 0; i < count; ++i) words[i] = casts::model_word(sweep, first + i);
  }
  return words;
}

/// The block scales behind `count` words of a byte.
std::span<const std::uint8_t> scales_behind(const TileSet& set, const void* words, std::size_t count, unsigned rows) {
  return {static_cast<const std::uint8_t*>(words) + count, std::size_t{rows} * set.blocks()};
}

/// One tile's d by gemm(). `Element` is what the operands are in memory.
template <typename Element>
void multiply(const MmaModel& model, const TileSet& set, const void* a, const void* b, std::span<const float> c,
              ZeroRule zero_rule, std::span<float> d) {
  const auto operand = [&](const void* words, const Format& format, unsigned rows) {
    return Operand{.elements = std::span(static_cast<const Element*>(words), std::size_t{rows} * set.depth),
                   .format = format,
                   .rows = rows,
                   .depth = set.depth,
                   .scales = {.codes = scales_behind(set, words, std::size_t{rows} * set.depth, rows)},
                   .tf32_rounding = format == binary32 ? std::optional(Rounding::toward_zero) : std::nullopt};
  };
  gemm({.model = model, .zero_rule = zero_rule, .c_enters = CEntry::accumulator}, operand(a, set.a, set.rows),
       operand(b, set.b, set.columns), d, {.c = c});
}

/// One tile's d of FP64 by mma(), whose batch has both rows of every element of d.
void multiply_fp64(const MmaModel& model, const TileSet& set, const std::byte* a, const std::byte* b,
                   const std::byte* c, std::uint64_t* out) {
  std::vector<double> rows_a;
  std::vector<double> rows_b;
  std::vector<double> d;
  const auto append_row = [&set](std::vector<double>& to, const std::byte* from, std::size_t row) {
    for (std::size_t k = 0; k < set.depth; ++k) {
      to.push_back(std::bit_cast<double>(load_word(binary64, from, row * set.depth + k)));
    }
  };
  for (std::size_t i = 0; i < set.dots(); ++i) {
    append_row(rows_a, a, i / set.columns);
    append_row(rows_b, b, i % set.columns);
    d.push_back(std::bit_cast<double>(load_word(binary64, c, i)));
  }
  const auto operand = [&](const std::vector<double>& rows) {
    return Operand{.elements = std::span(rows), .format = binary64, .rows = d.size(), .depth = set.depth};
  };
  mma(model, operand(rows_a), operand(rows_b), std::span<const double>(d), std::span(d));
  for (std::size_t i = 0; i < d.size(); ++i) out[i] = std::bit_cast<std::uint64_t>(d[i]);
}

/// The word of an accumulator whose value is given as a float32.
std::uint64_t accumulator_word_of(const Format& format, float value) {
  if (format == binary32) return std::bit_cast<std::uint32_t>(value);
  return encode(format, cuda_nosat_policy, value);
}

void tile_words(const MmaModel& model, const TileSet& set, const std::byte* a, const std::byte* b, const std::byte* c,
                ZeroRule zero_rule, std::uint64_t* out) {
  if (set.accumulator == binary64) return multiply_fp64(model, set, a, b, c, out);
  std::vector<float> in(set.dots());
  std::vector<float> d(set.dots());
  const Format format = set.accumulator;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint64_t word = load_word(format, c, i);
    const Unpacked value = unpack(format, word);
    in[i] = std::bit_cast<float>(
        static_cast<std::uint32_t>(format == binary32 ? word : encode(binary32, ieee_policy, value, ieee_policy.nan)));
  }
  switch (bytes_of(set.a)) {
    case 1: multiply<std::uint8_t>(model, set, a, b, in, zero_rule, d); break;
    case 2: multiply<std::uint16_t>(model, set, a, b, in, zero_rule, d); break;
    default: multiply<float>(model, set, a, b, in, zero_rule, d); break;
  }
  for (std::size_t i = 0; i < d.size(); ++i) out[i] = accumulator_word_of(format, d[i]);
}

/// Digests of chunks, each made of pieces that `piece(number, digest)` adds.
template <typename Piece>
std::vector<std::uint64_t> digests_of(std::uint64_t chunks, std::uint64_t pieces_per_chunk, int threads,
                                      const Piece& piece) {
  std::vector<std::uint64_t> digests(chunks);
  parallel_for(
      chunks * pieces_per_chunk, threads,
      [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
          const std::uint64_t digest = piece(i);
          atomic_add(&digests[i / pieces_per_chunk], digest);
        }
      },
      1);
  return digests;
}

}  // namespace

std::vector<std::uint64_t> model_cast_digests(const CastSweep& sweep, std::uint64_t first, std::uint64_t count,
                                              std::uint64_t inputs_per_chunk, int threads) {
  const DefaultEnvironment environment;
  const std::uint64_t piece = std::min<std::uint64_t>(inputs_per_chunk, 1U << 16);
  const std::uint64_t pieces = inputs_per_chunk / piece;
  return digests_of(count / inputs_per_chunk, pieces, threads, [&](std::uint64_t i) {
    const std::uint64_t begin = first + i * piece;
    const std::vector<std::uint32_t> words = cast_words(sweep, begin, piece);
    std::uint64_t digest = 0;
    for (std::uint64_t j = 0; j < piece; ++j) digest += digest_term(begin + j, words[j]);
    return digest;
  });
}

std::vector<std::uint64_t> model_words(const MmaModel& model, const TileSet& set, std::span<const std::byte> a,
                                       std::span<const std::byte> b, std::span<const std::byte> c, ZeroRule zero_rule) {
  const DefaultEnvironment environment;
  const std::size_t bytes_a = bytes_of_a(set);
  const std::size_t bytes_b = bytes_of_b(set);
  const std::size_t bytes_c = set.dots() * bytes_of(set.accumulator);
  std::vector<std::uint64_t> words(c.size() / bytes_of(set.accumulator));
  for (std::size_t tile = 0; tile < c.size() / bytes_c; ++tile) {
    tile_words(model, set, a.data() + tile * bytes_a, b.data() + tile * bytes_b, c.data() + tile * bytes_c, zero_rule,
               words.data() + tile * set.dots());
  }
  return words;
}

std::vector<std::uint64_t> model_tile_digests(const MmaModel& model, const TileSet& set, std::uint64_t first,
                                              std::uint64_t chunks, std::uint64_t tiles_per_chunk, int threads) {
  const DefaultEnvironment environment;
  return digests_of(chunks, tiles_per_chunk, threads, [&](std::uint64_t i) {
    const std::uint64_t tile = first + i;
    std::vector<std::uint64_t> a(ceil_div(bytes_of_a(set), 8));
    std::vector<std::uint64_t> b(ceil_div(bytes_of_b(set), 8));
    std::vector<std::uint64_t> c(set.dots());
    std::vector<std::uint64_t> words(set.dots());
    HostTeam team(1, {});
    GenerateTiles::Shared shared;
    GenerateTiles{set, tile, 1, a.data(), b.data(), c.data(), words.data()}(team, 0, shared);
    tile_words(model, set, reinterpret_cast<const std::byte*>(a.data()), reinterpret_cast<const std::byte*>(b.data()),
               reinterpret_cast<const std::byte*>(c.data()), ZeroRule::floor, words.data());
    std::uint64_t digest = 0;
    for (std::size_t j = 0; j < words.size(); ++j) digest += digest_term(tile * set.dots() + j, words[j]);
    return digest;
  });
}

}  // namespace fp8lab::gpu
