// SPDX-License-Identifier: Apache-2.0
#include "scaling/hadamard.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <span>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/widen.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t hadamard_size = 16;
constexpr std::array signs{1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};

double value_of(double x) { return x; }
template <typename Source>
double value_of(Source x) {
  return static_cast<double>(widened(x));
}

float rounded(float x) { return decode(bfloat16, encode(bfloat16, ieee_policy, x)); }

template <typename Source>
Buffer<float> turned(std::span<const Source> x, std::size_t rows, std::size_t columns, bool rounds, int threads) {
  Buffer<float> out(x.size());
  parallel_for(rows / hadamard_size, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t band = first; band < last; ++band) {
      for (std::size_t column = 0; column < columns; ++column) {
        checkpoint(column);
        const std::size_t from = band * hadamard_size * columns + column;
        for (std::size_t j = 0; j < hadamard_size; ++j) {
          double sum = 0;
          for (std::size_t i = 0; i < hadamard_size; ++i) {
            const double x_i = signs[i] * value_of(x[from + i * columns]);
            sum += std::popcount(i & j) % 2 == 0 ? x_i : -x_i;
          }
          const auto result = static_cast<float>(sum / 4);
          out[from + j * columns] = rounds ? rounded(result) : result;
        }
      }
    }
  });
  return out;
}

}  // namespace

Buffer<float> hadamard_columns(const MatrixView& x, bool rounds, int threads) {
  return x.visit([&](auto values) { return turned(values, x.rows(), x.columns(), rounds, threads); });
}

}  // namespace fp8lab
