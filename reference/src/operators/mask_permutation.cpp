// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/mask_permutation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/tensor_pieces.hpp"

namespace fp8lab {

namespace {

/// Where one row of a token lies.
struct MaskRoute {
  std::size_t row, expert;
};

/// A map that is checked against the rows of an array that it may name.
class MaskRoutes {
 public:
  MaskRoutes(const MaskedRows& at, std::size_t tokens, std::string_view name, std::size_t rows)
      : at_(at), name_(name), tokens_(tokens), width_(2 * at.experts + 1) {
    check_size("map", at.map.size(), tokens * width_);
    check_offsets(rows);
    std::vector<bool> taken(rows);
    for (std::size_t token = 0; token < tokens; ++token) {
      check_token(token, taken);
    }
  }

  [[nodiscard]] std::size_t tokens() const { return tokens_; }
  /// How many rows a token has.
  [[nodiscard]] std::size_t count(std::size_t token) const {
    return static_cast<std::size_t>(entry(token, width_ - 1));
  }
  [[nodiscard]] MaskRoute route(std::size_t token, std::size_t k) const {
    return {static_cast<std::size_t>(row(token, k)), static_cast<std::size_t>(entry(token, at_.experts + k))};
  }
  /// Where a matrix of (token, expert) has a route.
  [[nodiscard]] std::size_t place(std::size_t token, const MaskRoute& route) const {
    return token * at_.experts + route.expert;
  }

  /// Calls run(token, route) for each row of each token.
  template <typename Run>
  void for_each(const Run& run) const {
    for (std::size_t token = 0; token < tokens_; ++token) {
      for (std::size_t k = 0; k < count(token); ++k) run(token, route(token, k));
    }
  }

 private:
  [[nodiscard]] std::int32_t entry(std::size_t token, std::size_t i) const { return at_.map[token * width_ + i]; }
  [[nodiscard]] std::int64_t row(std::size_t token, std::size_t k) const {
    const std::int64_t before_padding = entry(token, k);
    if (at_.pad_offsets.empty()) return before_padding;
    return before_padding + at_.pad_offsets[static_cast<std::size_t>(entry(token, at_.experts + k))];
  }

  void check_offsets(std::size_t rows) const {
    if (at_.pad_offsets.empty()) return;
    check_size("pad_offsets", at_.pad_offsets.size(), at_.experts);
    for (const std::int64_t offset : at_.pad_offsets) {
      if (offset < 0 || std::cmp_greater(offset, rows)) {
        refuse("pad_offsets has ", offset, ", and ", name_, " has ", rows, " rows");
      }
    }
  }
  void check_token(std::size_t token, std::vector<bool>& taken) const {
    const std::int32_t n = entry(token, width_ - 1);
    if (n < 0 || std::cmp_greater(n, at_.experts)) {
      refuse("map has ", n, " rows of token ", token, ", and there are ", at_.experts, " experts");
    }
    for (std::size_t k = 0; std::cmp_less(k, n); ++k) {
      const std::int32_t expert = entry(token, at_.experts + k);
      if (expert < 0 || std::cmp_greater_equal(expert, at_.experts)) {
        refuse("map has expert ", expert, ", and there are ", at_.experts);
      }
      const std::int64_t at = row(token, k);
      if (at < 0 || std::cmp_greater_equal(at, taken.size())) {
        refuse("map has row ", at, ", and ", name_, " has ", taken.size(), " rows");
      }
      if (taken[static_cast<std::size_t>(at)]) refuse("map has row ", at, " twice");
      taken[static_cast<std::size_t>(at)] = true;
    }
  }

  MaskedRows at_;
  std::string_view name_;
  std::size_t tokens_, width_;
};

/// All of a tensor as float32.
std::vector<float> wide_values(const FloatSpan& x) {
  const std::size_t size = std::visit([](auto values) { return values.size(); }, x);
  std::vector<float> values(padded(size));
  read_tensor(x, 0, size, values.data());
  values.resize(size);
  return values;
}
/// The probabilities of (token, expert); none where there are none.
std::vector<float> probabilities_of(const FloatSpan& probabilities, std::size_t tokens, std::size_t experts) {
  const std::size_t size = tensor_size("probabilities", probabilities);
  if (size != 0) check_size("probabilities", size, tokens * experts);
  return wide_values(probabilities);
}

/// The gradient of a probability, from rows of float32 (mask_gradient_sums).
float sum_of_fused_products(const std::vector<float>& x, const std::vector<float>& grad, std::size_t columns,
                            std::vector<float>& sums) {
  std::ranges::fill(sums, 0.0F);
  for (std::size_t j = 0; j < columns; ++j) {
    float& sum = sums[j % mask_gradient_sums];
    sum = std::fma(x[j], grad[j], sum);
  }
  for (std::size_t half = mask_gradient_sums / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

template <typename In>
void check_apart_from_output(std::string_view name, const In& in, std::string_view out_name, const FloatOutput& out) {
  std::visit([&](auto x, auto to) { check_apart(name, x, out_name, to); }, in, out);
}

/// Copies rows between i and map[i] in one of the two directions.
template <bool back>
void move_chunks(std::span<const std::byte> x, std::size_t row_bytes, std::span<const std::int32_t> map,
                 std::span<std::byte> out, int threads) {
  check_size("map", map.size(), whole_rows("x", x.size(), row_bytes));
  check_size("out", out.size(), x.size());
  check_apart("x", x, "out", out);
  std::vector<bool> taken(map.size());
  for (const std::int32_t row : map) {
    if (row < 0 || std::cmp_greater_equal(row, map.size())) refuse("map has row ", row, ", and there are ", map.size());
    if (taken[static_cast<std::size_t>(row)]) refuse("map has row ", row, " twice");
    taken[static_cast<std::size_t>(row)] = true;
  }
  parallel_for(map.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      checkpoint(i);
      const auto other = static_cast<std::size_t>(map[i]);
      std::memcpy(out.data() + (back ? i : other) * row_bytes, x.data() + (back ? other : i) * row_bytes, row_bytes);
    }
  });
}

}  // namespace

std::vector<std::int32_t> mask_map(std::span<const std::uint8_t> mask, std::size_t tokens) {
  if (tokens == 0 ? !mask.empty() : mask.size() % tokens != 0) {
    refuse("mask must have a multiple of ", tokens, " entries, one for each token, not ", mask.size());
  }
  if (std::ranges::any_of(mask, [](std::uint8_t m) { return m > 1; })) refuse("mask must be of 0 and 1");
  if (std::cmp_greater(std::ranges::count(mask, 1), std::numeric_limits<std::int32_t>::max())) {
    refuse("mask must name fewer than 2^31 rows");
  }
  if (tokens == 0) return {};
  const std::size_t experts = mask.size() / tokens;
  const std::size_t width = 2 * experts + 1;
  std::vector<std::int32_t> map(tokens * width);
  // The last expert has the largest rows: from there on down a token's rows are written from its first entry on.
  auto row = static_cast<std::int32_t>(std::ranges::count(mask, 1));
  for (std::size_t expert = experts; expert-- > 0;) {
    for (std::size_t token = tokens; token-- > 0;) {
      if (mask[token * experts + expert] == 0) continue;
      std::int32_t& n = map[token * width + 2 * experts];
      map[token * width + static_cast<std::size_t>(n)] = --row;
      map[token * width + experts + static_cast<std::size_t>(n)] = static_cast<std::int32_t>(expert);
      ++n;
    }
  }
  return map;
}

void permute_rows_by_mask(std::span<const std::byte> x, std::size_t row_bytes, const MaskedRows& at,
                          FloatSpan probabilities, std::span<std::byte> out, int threads) {
  const std::size_t tokens = whole_rows("x", x.size(), row_bytes);
  const MaskRoutes routes(at, tokens, "out", whole_rows("out", out.size(), row_bytes));
  check_apart("x", x, "out", out);
  const std::vector<float> weights = probabilities_of(probabilities, tokens, at.experts);
  parallel_for(tokens, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t token = first; token < last; ++token) {
      checkpoint(token);
      for (std::size_t k = 0; k < routes.count(token); ++k) {
        const MaskRoute route = routes.route(token, k);
        std::byte* to = out.data() + route.row * row_bytes;
        if (!weights.empty() && weights[routes.place(token, route)] == 0) {
          std::memset(to, 0, row_bytes);
        } else {
          std::memcpy(to, x.data() + token * row_bytes, row_bytes);
        }
      }
    }
  });
}

void permute_probabilities_by_mask(std::span<const std::byte> probabilities, std::size_t size, const MaskedRows& at,
                                   std::span<std::byte> out) {
  const std::size_t elements = whole_rows("probabilities", probabilities.size(), size);
  const std::size_t tokens = at.map.size() / (2 * at.experts + 1);
  check_size("probabilities", elements, tokens * at.experts);
  const MaskRoutes routes(at, tokens, "out", whole_rows("out", out.size(), size));
  check_apart("probabilities", probabilities, "out", out);
  routes.for_each([&](std::size_t token, const MaskRoute& route) {
    std::memcpy(out.data() + route.row * size, probabilities.data() + routes.place(token, route) * size, size);
  });
}

void unpermute_probabilities_by_mask(std::span<const std::byte> permuted, std::size_t size, const MaskedRows& at,
                                     std::span<std::byte> out) {
  const std::size_t tokens = at.map.size() / (2 * at.experts + 1);
  const MaskRoutes routes(at, tokens, "permuted", whole_rows("permuted", permuted.size(), size));
  check_size("out", whole_rows("out", out.size(), size), tokens * at.experts);
  check_apart("permuted", permuted, "out", out);
  std::ranges::fill(out, std::byte{0});
  routes.for_each([&](std::size_t token, const MaskRoute& route) {
    std::memcpy(out.data() + routes.place(token, route) * size, permuted.data() + route.row * size, size);
  });
}

void unpermute_rows_by_mask(FloatSpan x, std::size_t columns, const MaskedRows& at, FloatSpan probabilities,
                            FloatOutput out, int threads) {
  const std::size_t rows = whole_rows("x", tensor_size("x", x), columns);
  const MaskRoutes routes(at, whole_rows("out", output_size(out), columns), "x", rows);
  check_apart_from_output("x", x, "out", out);
  const std::vector<float> weights = probabilities_of(probabilities, routes.tokens(), at.experts);
  parallel_for(routes.tokens(), threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> sums(padded(columns));
    std::vector<float> row(padded(columns));
    for (std::size_t token = first; token < last; ++token) {
      checkpoint();
      std::ranges::fill(sums, 0.0F);
      for (std::size_t k = 0; k < routes.count(token); ++k) {
        const MaskRoute route = routes.route(token, k);
        read_tensor(x, route.row * columns, columns, row.data());
        if (weights.empty()) {
          for (std::size_t j = 0; j < columns; ++j) sums[j] += row[j];
        } else {
          const float weight = weights[routes.place(token, route)];
          for (std::size_t j = 0; j < columns; ++j) sums[j] = std::fma(row[j], weight, sums[j]);
        }
      }
      write_piece(sums.data(), columns, out, token * columns);
    }
  });
}

void unpermute_rows_by_mask_backward(FloatSpan grad, FloatSpan x, std::size_t columns, const MaskedRows& at,
                                     FloatSpan probabilities, FloatOutput dx, FloatOutput probability_gradient,
                                     int threads) {
  const std::size_t rows = whole_rows("x", tensor_size("x", x), columns);
  const MaskRoutes routes(at, whole_rows("grad", tensor_size("grad", grad), columns), "x", rows);
  const std::size_t places = routes.tokens() * at.experts;
  check_size("dx", output_size(dx), rows * columns);
  check_size("probabilities", tensor_size("probabilities", probabilities), places);
  check_size("probability_gradient", output_size(probability_gradient), places);
  check_apart_from_output("x", x, "dx", dx);
  check_apart_from_output("grad", grad, "dx", dx);
  const std::vector<float> weights = wide_values(probabilities);
  std::vector<float> of_weights(padded(places));
  parallel_for(routes.tokens(), threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> of_token(padded(columns));
    std::vector<float> row(padded(columns));
    std::vector<float> sums(mask_gradient_sums);
    for (std::size_t token = first; token < last; ++token) {
      checkpoint();
      read_tensor(grad, token * columns, columns, of_token.data());
      for (std::size_t k = 0; k < routes.count(token); ++k) {
        const MaskRoute route = routes.route(token, k);
        const std::size_t place = routes.place(token, route);
        read_tensor(x, route.row * columns, columns, row.data());
        of_weights[place] = sum_of_fused_products(row, of_token, columns, sums);
        for (std::size_t j = 0; j < columns; ++j) row[j] = of_token[j] * weights[place];
        write_piece(row.data(), columns, dx, route.row * columns);
      }
    }
  });
  const DefaultEnvironment environment;
  write_piece(of_weights.data(), places, probability_gradient, 0);
}

std::vector<std::int32_t> chunk_map(std::span<const std::int64_t> counts, std::span<const std::int64_t> order,
                                    std::size_t tokens) {
  check_size("order", order.size(), counts.size());
  if (std::cmp_greater(tokens, std::numeric_limits<std::int32_t>::max())) refuse("tokens must be fewer than 2^31");
  std::size_t rows = 0;
  for (const std::int64_t count : counts) {
    if (count < 0) refuse("counts must not be negative");
    if (std::cmp_greater(count, tokens - rows)) refuse("counts must be of at most ", tokens, " rows");
    rows += static_cast<std::size_t>(count);
  }
  std::vector<bool> taken(counts.size());
  std::vector<std::size_t> starts(counts.size());
  std::size_t start = 0;
  for (const std::int64_t chunk : order) {
    if (chunk < 0 || std::cmp_greater_equal(chunk, counts.size()) || taken[static_cast<std::size_t>(chunk)]) {
      refuse("order must have each of ", counts.size(), " chunks once");
    }
    taken[static_cast<std::size_t>(chunk)] = true;
    starts[static_cast<std::size_t>(chunk)] = start;
    start += static_cast<std::size_t>(counts[static_cast<std::size_t>(chunk)]);
  }
  std::vector<std::int32_t> map(tokens);
  std::iota(map.begin(), map.end(), 0);  // of the rows behind all chunks
  std::size_t row = 0;
  for (std::size_t chunk = 0; chunk < counts.size(); ++chunk) {
    for (std::size_t i = 0; std::cmp_less(i, counts[chunk]); ++i) {
      map[row++] = static_cast<std::int32_t>(starts[chunk] + i);
    }
  }
  return map;
}

void sort_chunks(std::span<const std::byte> x, std::size_t row_bytes, std::span<const std::int32_t> map,
                 std::span<std::byte> out, int threads) {
  move_chunks<false>(x, row_bytes, map, out, threads);
}
void unsort_chunks(std::span<const std::byte> x, std::size_t row_bytes, std::span<const std::int32_t> map,
                   std::span<std::byte> out, int threads) {
  move_chunks<true>(x, row_bytes, map, out, threads);
}

}  // namespace fp8lab
