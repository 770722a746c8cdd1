// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/permutation.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "operators/tensor_pieces.hpp"
#include "units/number_pair.hpp"

namespace fp8lab {

namespace {

/// The number that a double rounds to in an element type: every NaN is the one of all ones.
float to_type(double x, const float* /*type*/) { return static_cast<float>(x); }
Half to_type(double x, const Half* /*type*/) {
  return {static_cast<std::uint16_t>(x == x ? encode(binary16, cuda_nosat_policy, x) : 0x7FFFU)};
}
BFloat16 to_type(double x, const BFloat16* /*type*/) {
  return {static_cast<std::uint16_t>(x == x ? encode(bfloat16, cuda_nosat_policy, x) : 0x7FFFU)};
}
template <typename T>
double number(T x) {
  return widened(x);
}

float without_nan_payload(float x) { return x == x ? x : std::bit_cast<float>(0x7FFFFFFFU); }

/// x * factor in the type, and fma(x, factor, sum), and a + b. A product of 16-bit numbers is exact in float64.
template <typename T>
T typed_product(T x, T factor) {
  if constexpr (std::is_same_v<T, float>) return without_nan_payload(x * factor);
  return to_type(number(x) * number(factor), static_cast<T*>(nullptr));
}
template <typename T>
T typed_fused(T x, T factor, T sum) {
  if constexpr (std::is_same_v<T, float>) return without_nan_payload(std::fma(x, factor, sum));
  return to_type(rounded_to_odd(exact_sum(number(x) * number(factor), number(sum))), static_cast<T*>(nullptr));
}
template <typename T>
T typed_sum(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return without_nan_payload(a + b);
  return to_type(rounded_to_odd(exact_sum(number(a), number(b))), static_cast<T*>(nullptr));
}

struct MapShape {
  std::size_t tokens, experts;  // of each token
};

/// Checks a map against the rows that it may name.
MapShape checked_map(std::span<const std::int32_t> map, std::size_t tokens, std::size_t rows) {
  if (tokens == 0 ? !map.empty() : map.size() % tokens != 0) {
    refuse("map must have a multiple of ", tokens, " entries, one for each token, not ", map.size());
  }
  for (const std::int32_t row : map) {
    if (row < -1 || (row >= 0 && std::cmp_greater_equal(row, rows))) {
      refuse("map has row ", row, ", and there are ", rows);
    }
  }
  return {tokens, tokens == 0 ? 0 : map.size() / tokens};
}

/// Probabilities as the element type has them; ones where there are none.
template <typename T>
std::vector<T> typed_probabilities(std::span<const float> probabilities) {
  std::vector<T> typed;
  for (const float p : probabilities) typed.push_back(to_type(p, static_cast<T*>(nullptr)));
  return typed;
}

template <typename T>
void unpermute_token(std::span<const T> x, std::size_t columns, std::span<const std::int32_t> map,
                     const MapShape& shape, std::size_t token, std::span<const T> probabilities, std::span<T> out) {
  std::fill(out.begin(), out.end(), T{});
  for (std::size_t k = 0; k < shape.experts; ++k) {
    const std::int32_t row = map[k * shape.tokens + token];
    if (row < 0) continue;
    const auto values = x.subspan(static_cast<std::size_t>(row) * columns, columns);
    for (std::size_t j = 0; j < columns; ++j) {
      if (probabilities.empty()) {
        out[j] = k == 0 ? values[j] : typed_sum(out[j], values[j]);
      } else {
        const T factor = probabilities[token * shape.experts + k];
        out[j] = k == 0 ? typed_product(values[j], factor) : typed_fused(values[j], factor, out[j]);
      }
    }
  }
}

/// The sum of grad x in the kernel's lanes, each of which has the elements of a load of 16 bytes in turns.
template <typename T>
float probability_gradient_of(std::span<const T> grad, std::span<const T> x) {
  std::array<float, sum_lanes> lanes{};
  for (std::size_t j = 0; j < x.size(); ++j) {
    float& lane = lanes[j / (16 / sizeof(T)) % sum_lanes];
    if constexpr (std::is_same_v<T, float>) {
      lane = std::fma(grad[j], x[j], lane);
    } else {
      lane += widened(typed_product(grad[j], x[j]));
    }
  }
  return without_nan_payload(sum_of_lanes(lanes.data()));
}

template <typename T>
std::span<T> output_like(std::string_view name, const FloatOutput& out, std::span<const T> /*of_type*/) {
  const auto* found = std::get_if<std::span<T>>(&out);
  if (found == nullptr) refuse(name, " must have the element type of x");
  return *found;
}

/// Calls copy(from, to) with the first rows of each group, before and after padding.
template <typename Copy>
void for_each_group(std::span<const std::size_t> counts, std::size_t multiple, const Copy& copy) {
  std::size_t row = 0;
  std::size_t padded_row = 0;
  for (const std::size_t count : counts) {
    copy(row, padded_row, count);
    row += count;
    padded_row += (count + multiple - 1) / multiple * multiple;
  }
}

}  // namespace

std::vector<std::int32_t> permutation_map(std::span<const std::int32_t> experts, std::size_t tokens, std::size_t kept) {
  if (tokens == 0 ? !experts.empty() : experts.size() % tokens != 0) {
    refuse("experts must have a multiple of ", tokens, " entries, one for each token, not ", experts.size());
  }
  if (std::ranges::any_of(experts, [](std::int32_t e) { return e < 0; })) refuse("experts must not be negative");
  if (experts.empty()) return {};
  const std::size_t of_token = experts.size() / tokens;
  std::vector<std::size_t> order(experts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return experts[i]; });
  std::vector<std::int32_t> map(experts.size());
  for (std::size_t row = 0; row < order.size(); ++row) {
    const std::size_t at = order[row] % of_token * tokens + order[row] / of_token;
    map[at] = row < kept ? static_cast<std::int32_t>(row) : -1;
  }
  return map;
}

void permute_rows(std::span<const std::byte> x, std::size_t row_bytes, std::span<const std::int32_t> map,
                  std::span<std::byte> out, int threads) {
  const std::size_t tokens = whole_rows("x", x.size(), row_bytes);
  const MapShape shape = checked_map(map, tokens, whole_rows("out", out.size(), row_bytes));
  check_apart("x", x, "out", out);
  parallel_for(shape.tokens, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t token = first; token < last; ++token) {
      checkpoint(token);
      for (std::size_t k = 0; k < shape.experts; ++k) {
        const std::int32_t row = map[k * shape.tokens + token];
        if (row < 0) continue;
        std::memcpy(out.data() + static_cast<std::size_t>(row) * row_bytes, x.data() + token * row_bytes, row_bytes);
      }
    }
  });
}

void unpermute_rows(FloatSpan x, std::size_t columns, std::span<const std::int32_t> map,
                    std::span<const float> probabilities, FloatOutput out, int threads) {
  const std::size_t rows = whole_rows("x", tensor_size("x", x), columns);
  const MapShape shape = checked_map(map, whole_rows("out", output_size(out), columns), rows);
  if (!probabilities.empty()) check_size("probabilities", probabilities.size(), map.size());
  std::visit(
      [&]<typename T>(std::span<const T> values) {
        if constexpr (!std::is_same_v<T, double>) {
          const auto to = output_like("out", out, values);
          check_apart("x", values, "out", to);
          const std::vector<T> typed = typed_probabilities<T>(probabilities);
          parallel_for(shape.tokens, threads, [&](std::size_t first, std::size_t last) {
            for (std::size_t token = first; token < last; ++token) {
              checkpoint();
              unpermute_token<T>(values, columns, map, shape, token, typed, to.subspan(token * columns, columns));
            }
          });
        }
      },
      x);
}

void unpermute_rows_backward(FloatSpan grad, FloatSpan x, std::size_t columns, std::span<const std::int32_t> map,
                             std::span<const float> probabilities, FloatOutput dx,
                             std::span<float> probability_gradient, int threads) {
  const std::size_t rows = whole_rows("x", tensor_size("x", x), columns);
  const MapShape shape = checked_map(map, whole_rows("grad", tensor_size("grad", grad), columns), rows);
  if (grad.index() != x.index()) refuse("grad must have the element type of x");
  check_size("dx", output_size(dx), rows * columns);
  check_size("probabilities", probabilities.size(), map.size());
  check_size("probability_gradient", probability_gradient.size(), map.size());
  std::visit(
      [&]<typename T>(std::span<const T> values) {
        if constexpr (!std::is_same_v<T, double>) {
          const auto to = output_like("dx", dx, values);
          const auto of_output = std::get<std::span<const T>>(grad);
          check_apart("x", values, "dx", to);
          check_apart("grad", of_output, "dx", to);
          const std::vector<T> typed = typed_probabilities<T>(probabilities);
          parallel_for(map.size(), threads, [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) {
              checkpoint();
              const std::int32_t row = map[i];
              const std::size_t token = i % shape.tokens;
              const std::size_t at = token * shape.experts + i / shape.tokens;
              probability_gradient[at] = 0;
              if (row < 0) continue;
              const auto g = of_output.subspan(token * columns, columns);
              const std::size_t place = static_cast<std::size_t>(row) * columns;
              for (std::size_t j = 0; j < columns; ++j) {
                to[place + j] = typed_product(g[j], typed[at]);
              }
              probability_gradient[at] = probability_gradient_of<T>(g, values.subspan(place, columns));
            }
          });
        }
      },
      x);
}

std::size_t padded_count(std::span<const std::size_t> counts, std::size_t multiple) {
  if (multiple == 0) refuse("multiple must not be 0");
  std::size_t rows = 0;
  for (const std::size_t count : counts) rows += (count + multiple - 1) / multiple * multiple;
  return rows;
}

void pad_rows(std::span<const std::byte> x, std::size_t row_bytes, std::span<const std::size_t> counts,
              std::size_t multiple, std::span<std::byte> out) {
  check_size("out", out.size(), padded_count(counts, multiple) * row_bytes);
  check_size("x", x.size(), std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * row_bytes);
  check_apart("x", x, "out", out);
  std::ranges::fill(out, std::byte{0});
  for_each_group(counts, multiple, [&](std::size_t row, std::size_t padded_row, std::size_t count) {
    const auto rows = x.subspan(row * row_bytes, count * row_bytes);
    std::ranges::copy(rows, out.begin() + static_cast<std::ptrdiff_t>(padded_row * row_bytes));
  });
}

void unpad_rows(std::span<const std::byte> padded_rows, std::size_t row_bytes, std::span<const std::size_t> counts,
                std::size_t multiple, std::span<std::byte> out) {
  check_size("padded_rows", padded_rows.size(), padded_count(counts, multiple) * row_bytes);
  check_size("out", out.size(), std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * row_bytes);
  check_apart("padded_rows", padded_rows, "out", out);
  for_each_group(counts, multiple, [&](std::size_t row, std::size_t padded_row, std::size_t count) {
    const auto rows = padded_rows.subspan(padded_row * row_bytes, count * row_bytes);
    std::ranges::copy(rows, out.begin() + static_cast<std::ptrdiff_t>(row * row_bytes));
  });
}

}  // namespace fp8lab
