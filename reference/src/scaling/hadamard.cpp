// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/hadamard.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "simd/hadamard.hpp"

namespace fp8lab {
namespace {

double value_of(double x) { return x; }
template <typename Source>
double value_of(Source x) {
  return static_cast<double>(widened(x));
}

HadamardSigns signs_of_rows() {
  HadamardSigns rows{};
  for (std::size_t j = 0; j < hadamard_size; ++j) {
    for (std::size_t i = 0; i < hadamard_size; ++i) {
      rows[j][i] = hadamard_sign(static_cast<unsigned>(j), static_cast<unsigned>(i));
    }
  }
  return rows;
}

/// Rounds to bfloat16, in place.
void round_values(std::span<float> values, Buffer<std::uint16_t>& codes) {
  codes.resize(values.size());
  encode(bfloat16, ieee_policy, std::span<const float>(values), std::span(codes));
  decode(bfloat16, std::span<const std::uint16_t>(codes), values);
}

/// Turns 16 rows that begin at x, `width` columns of them, at most a chunk.
template <typename Source>
void turn_chunk(const Source* x, std::size_t stride, std::size_t width, float* out) {
  static const HadamardSigns matrix = signs_of_rows();
  HadamardRows values{};
  for (std::size_t i = 0; i < hadamard_size; ++i) {
    std::ranges::transform(std::span(x + i * stride, width), values[i].begin(),
                           [](Source value) { return value_of(value); });
  }
  std::array<std::array<float, hadamard_chunk>, hadamard_size> results;
  turn_rows(matrix, values, results);
  for (std::size_t j = 0; j < hadamard_size; ++j) std::copy_n(results[j].begin(), width, out + j * stride);
}

template <typename Source>
Buffer<float> turned(std::span<const Source> x, std::size_t rows, std::size_t columns, bool rounds, int threads) {
  Buffer<float> out(x.size());
  parallel_for(rows / hadamard_size, threads, [&](std::size_t first, std::size_t last) {
    Buffer<std::uint16_t> codes;
    for (std::size_t band = first; band < last; ++band) {
      checkpoint();
      const std::size_t from = band * hadamard_size * columns;
      for (std::size_t column = 0; column < columns; column += hadamard_chunk) {
        turn_chunk(&x[from + column], columns, std::min(hadamard_chunk, columns - column), &out[from + column]);
      }
      if (rounds) round_values(std::span(out).subspan(from, hadamard_size * columns), codes);
    }
  });
  return out;
}

}  // namespace

Buffer<float> hadamard_columns(const MatrixView& x, bool rounds, int threads) {
  const DefaultEnvironment environment;
  if (x.size() == 0 || x.rows() % hadamard_size != 0) {
    refuse("x must have rows in multiples of ", hadamard_size, " and not be empty: it is ", x.rows(), " x ",
           x.columns());
  }
  return x.visit([&](auto values) { return turned(values, x.rows(), x.columns(), rounds, threads); });
}

}  // namespace fp8lab
