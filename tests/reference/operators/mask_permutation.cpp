// SPDX-License-Identifier: Apache-2.0
// Permutations by a mask bring every row where its expert wants it, and back in float32.
#include "fp8lab/reference/operators/mask_permutation.hpp"

#include <map>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/widen.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

/// The mask of tokens and experts of which a share of 1 / `one_of` is drawn.
std::vector<std::uint8_t> drawn_mask(std::uint64_t seed, std::size_t size, std::uint64_t one_of) {
  std::vector<std::uint8_t> mask(size);
  for (std::size_t i = 0; i < size; ++i) mask[i] = random_bits(seed, i) % one_of == 0 ? 1 : 0;
  return mask;
}

/// The row of each (expert, token) that a mask names, counted one by one.
std::map<std::pair<std::size_t, std::size_t>, std::size_t> counted_rows(const std::vector<std::uint8_t>& mask,
                                                                        std::size_t tokens, std::size_t experts) {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> rows;
  for (std::size_t expert = 0; expert < experts; ++expert) {
    for (std::size_t token = 0; token < tokens; ++token) {
      if (mask[token * experts + expert] == 1) rows.emplace(std::pair(expert, token), rows.size());
    }
  }
  return rows;
}

BFloat16 as_code(float x) { return {static_cast<std::uint16_t>(encode(bfloat16, ieee_policy, x))}; }

/// The sum of products in 1024 sums and pairs of them, each step in 50 digits.
float stepped_gradient(const std::vector<float>& x, const std::vector<float>& grad) {
  std::vector<float> sums(1024);
  for (std::size_t j = 0; j < x.size(); ++j) sums[j % 1024] = step_fused(x[j], grad[j], sums[j % 1024]);
  return in_pairs(sums);
}

TEST_CASE("permutation by a mask: the map has a token's rows, the largest first, their experts, and their number") {
  // The example of the kernel's source. Rows: expert 0 has tokens 0, 1 and 3, expert 1 tokens 0 and 3, expert 2 tokens
  // 1 and 2.
  const std::vector<std::uint8_t> mask{1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0};
  const std::vector<std::int32_t> expected{3, 0, 0, 1, 0, 0, 2,  //
                                           5, 1, 0, 2, 0, 0, 2,  //
                                           6, 0, 0, 2, 0, 0, 1,  //
                                           4, 2, 0, 1, 0, 0, 2,  //
                                           0, 0, 0, 0, 0, 0, 0};
  REQUIRE(mask_map(mask, 5) == expected);
  REQUIRE(mask_map({}, 0).empty());
  REQUIRE(mask_map(std::vector<std::uint8_t>{0, 0}, 2) == std::vector<std::int32_t>(6));  // nobody is routed
  REQUIRE(mask_map(std::vector<std::uint8_t>{1}, 1) == std::vector<std::int32_t>{0, 0, 1});
}

TEST_CASE("permutation by a mask: maps of more tokens than a block of the kernel has") {
  const std::size_t tokens = 2500, experts = 7, width = 2 * experts + 1;
  const auto mask = drawn_mask(1, tokens * experts, 3);
  const auto rows = counted_rows(mask, tokens, experts);
  const auto map = mask_map(mask, tokens);
  REQUIRE(map.size() == tokens * width);
  for (std::size_t token = 0; token < tokens; ++token) {
    std::size_t n = 0;
    for (std::size_t expert = experts; expert-- > 0;) {
      if (mask[token * experts + expert] == 0) continue;
      REQUIRE(map[token * width + n] == static_cast<std::int32_t>(rows.at({expert, token})));
      REQUIRE(map[token * width + experts + n] == static_cast<std::int32_t>(expert));
      ++n;
    }
    REQUIRE(map[token * width + 2 * experts] == static_cast<std::int32_t>(n));
  }
}

TEST_CASE("permutation by a mask: rows go to their experts, behind those added, and zeros where probabilities are 0") {
  const std::vector<std::uint8_t> mask{1, 1, 0, 1, 1, 0};  // 3 tokens of 2 experts: rows are of tokens 0, 2; 0, 1
  const auto map = mask_map(mask, 3);
  const std::vector<std::byte> x{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}, std::byte{6}};
  const std::vector<std::int64_t> offsets{0, 2};
  const std::vector<float> probabilities{0.5F, -0.0F, 0, 1, 0.25F, 0};
  const auto moved = [&](const MaskedRows& at, FloatSpan weights, std::size_t size) {
    std::vector<std::byte> out(size, std::byte{9});
    permute_rows_by_mask(x, 2, at, weights, out, 2);
    std::vector<int> numbers;
    for (const std::byte one : out) numbers.push_back(std::to_integer<int>(one));
    return numbers;
  };
  REQUIRE(moved({map, 2, {}}, std::span<const float>(), 8) == std::vector<int>{1, 2, 5, 6, 1, 2, 3, 4});
  REQUIRE(moved({map, 2, offsets}, std::span(probabilities), 14) ==
          std::vector<int>{1, 2, 5, 6, 9, 9, 9, 9, 0, 0, 3, 4, 9, 9});  // 9: no token has the row
  std::vector<float> permuted(7, 9);
  permute_probabilities_by_mask(std::as_bytes(std::span(probabilities)), 4, {map, 2, offsets},
                                std::as_writable_bytes(std::span(permuted)));
  REQUIRE(permuted == std::vector<float>{0.5F, 0.25F, 9, 9, -0.0F, 1, 9});
  REQUIRE(std::signbit(permuted[4]));
  std::vector<float> back(6, 9);
  unpermute_probabilities_by_mask(std::as_bytes(std::span(permuted)), 4, {map, 2, offsets},
                                  std::as_writable_bytes(std::span(back)));
  REQUIRE(back == probabilities);
}

TEST_CASE("permutation by a mask: sums are float32's, each product fused, in the order of the map, rounded once") {
  const std::size_t tokens = 40, experts = 5, columns = 33;
  auto mask = drawn_mask(1, tokens * experts, 2);
  std::fill_n(mask.begin(), experts, std::uint8_t{0});  // the first token goes nowhere
  const auto rows = counted_rows(mask, tokens, experts);
  const auto map = mask_map(mask, tokens);
  std::vector<BFloat16> x;
  for (const float value : normal_draws(2, rows.size() * columns, 1)) x.push_back(as_code(value));
  const auto p = normal_draws(3, tokens * experts, 1);
  std::vector<float> wide(tokens * columns), plain(wide.size());
  std::vector<BFloat16> out(wide.size());
  const MaskedRows at{map, experts, {}};
  unpermute_rows_by_mask(std::span<const BFloat16>(x), columns, at, std::span(p), std::span(wide), 2);
  unpermute_rows_by_mask(std::span<const BFloat16>(x), columns, at, std::span(p), std::span(out));
  unpermute_rows_by_mask(std::span<const BFloat16>(x), columns, at, std::span<const float>(), std::span(plain));
  std::size_t in_another_order = 0, not_fused = 0;
  for (std::size_t i = 0; i < wide.size(); ++i) {
    float sum = 0, unweighted = 0, ascending = 0, in_two_steps = 0;
    for (std::size_t k = 0; k < experts; ++k) {
      const auto add = [&](std::size_t expert, const auto& step) {
        const auto found = rows.find({expert, i / columns});
        if (found != rows.end())
          step(widened(x[found->second * columns + i % columns]), p[i / columns * experts + expert]);
      };
      add(experts - 1 - k, [&](float value, float weight) {
        sum = step_fused(value, weight, sum);
        in_two_steps = step_sum(in_two_steps, step_product(value, weight));
        unweighted = step_sum(unweighted, value);
      });
      add(k, [&](float value, float weight) { ascending = step_fused(value, weight, ascending); });
    }
    REQUIRE(bits(wide[i]) == bits(sum));
    REQUIRE(bits(plain[i]) == bits(unweighted));
    REQUIRE(out[i].bits == as_code(sum).bits);
    in_another_order += bits(sum) != bits(ascending) ? 1 : 0;
    not_fused += bits(sum) != bits(in_two_steps) ? 1 : 0;
  }
  REQUIRE((in_another_order > 100 && not_fused > 100));  // the draws tell
}

TEST_CASE("permutation by a mask: gradients of rows and of probabilities") {
  const std::size_t tokens = 3, experts = 2, columns = 2600;  // two and a half blocks of sums
  const std::vector<std::uint8_t> mask{1, 0, 1, 1, 0, 0};
  const auto map = mask_map(mask, tokens);
  const std::vector<std::int64_t> offsets{0, 1};
  const std::size_t rows = 5;  // tokens 0 and 1; nobody; token 1; nobody
  std::vector<BFloat16> x, grad, weights;
  for (const float value : normal_draws(1, rows * columns, 1)) x.push_back(as_code(value));
  for (const float value : normal_draws(2, tokens * columns, 1)) grad.push_back(as_code(value));
  const auto p = normal_draws(3, tokens * experts, 1);
  for (const float value : p) weights.push_back(as_code(value));
  const std::vector<BFloat16> untouched(rows * columns, BFloat16{0x1234});
  std::vector<BFloat16> dx = untouched, of_weights(tokens * experts);
  std::vector<float> of_p(tokens * experts, nan);
  const MaskedRows at{map, experts, offsets};
  unpermute_rows_by_mask_backward(std::span<const BFloat16>(grad), std::span<const BFloat16>(x), columns, at,
                                  std::span(p), std::span(dx), std::span(of_p), 2);
  const std::map<std::size_t, std::pair<std::size_t, std::size_t>> places{{0, {0, 0}}, {1, {1, 0}}, {3, {1, 1}}};
  std::vector<float> expected(tokens * experts);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto found = places.find(row);
    std::vector<float> of_x, of_token;
    for (std::size_t j = 0; j < columns; ++j) {
      if (found == places.end()) {
        REQUIRE(dx[row * columns + j].bits == 0x1234);
        continue;
      }
      const auto [token, expert] = found->second;
      of_x.push_back(widened(x[row * columns + j]));
      of_token.push_back(widened(grad[token * columns + j]));
      REQUIRE(dx[row * columns + j].bits == as_code(step_product(of_token.back(), p[token * experts + expert])).bits);
    }
    if (found != places.end())
      expected[found->second.first * experts + found->second.second] = stepped_gradient(of_x, of_token);
  }
  for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(bits(of_p[i]) == bits(expected[i]));
  unpermute_rows_by_mask_backward(std::span<const BFloat16>(grad), std::span<const BFloat16>(x), columns, at,
                                  std::span<const BFloat16>(weights), std::span(dx), std::span(of_weights));
  for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(of_weights[i].bits == as_code(expected[i]).bits);
}

TEST_CASE("permutation by a mask: the sums of a gradient are 1024, each product fused") {
  const std::size_t experts = 2, columns = 2600;  // two and a half blocks of sums
  const auto map = mask_map(std::vector<std::uint8_t>{1, 1}, 1);
  const auto x = normal_draws(1, experts * columns, 1);
  const auto grad = normal_draws(2, columns, 1);
  const auto p = normal_draws(3, experts, 1);
  std::vector<float> dx(x.size()), of_p(experts);
  unpermute_rows_by_mask_backward(std::span(grad), std::span(x), columns, {map, experts, {}}, std::span(p),
                                  std::span(dx), std::span(of_p));
  for (std::size_t expert = 0; expert < experts; ++expert) {
    const auto first = x.begin() + static_cast<std::ptrdiff_t>(expert * columns);
    const std::vector<float> row(first, first + columns);
    REQUIRE(bits(of_p[expert]) == bits(stepped_gradient(row, grad)));
    for (std::size_t j = 0; j < columns; ++j) {
      REQUIRE(bits(dx[expert * columns + j]) == bits(step_product(grad[j], p[expert])));
    }
  }
}

TEST_CASE("permutation by a mask: chunks in another order, and back") {
  const std::vector<std::int64_t> counts{2, 0, 3, 1};
  const std::vector<std::int64_t> order{2, 3, 1, 0};
  const auto map = chunk_map(counts, order, 8);  // two rows are behind all chunks
  REQUIRE(map == std::vector<std::int32_t>{4, 5, 0, 1, 2, 3, 6, 7});
  REQUIRE(chunk_map({}, {}, 0).empty());
  std::vector<std::byte> x, out(16), back(16);
  for (int i = 0; i < 16; ++i) x.push_back(static_cast<std::byte>(i));
  sort_chunks(x, 2, map, out, 2);
  for (std::size_t i = 0; i < 16; ++i) REQUIRE(out[static_cast<std::size_t>(map[i / 2]) * 2 + i % 2] == x[i]);
  unsort_chunks(out, 2, map, back, 2);
  REQUIRE(back == x);
}

TEST_CASE("permutation by a mask: no tokens") {
  const MaskedRows at{{}, 4, {}};
  permute_rows_by_mask({}, 3, at, std::span<const float>(), {});
  unpermute_rows_by_mask(std::span<const float>(), 3, at, std::span<const float>(), std::span<float>());
  unpermute_rows_by_mask_backward(std::span<const float>(), std::span<const float>(), 3, at, std::span<const float>(),
                                  std::span<float>(), std::span<float>());
  sort_chunks({}, 3, {}, {});
}

TEST_CASE("permutation by a mask: what is refused") {
  const std::vector<float> x(4), p(4);
  std::vector<float> out(4);
  std::vector<std::int32_t> map = mask_map(std::vector<std::uint8_t>{1, 0, 0, 1}, 2);  // 0 0 0 0 1, 1 0 1 0 1
  const std::vector<std::int64_t> offsets{0, 0};
  const auto run = [&](const MaskedRows& at) {
    unpermute_rows_by_mask(std::span(x), 2, at, std::span(p), std::span(out));
  };
  run({map, 2, offsets});
  REQUIRE_THROWS_WITH(run({map, 3, {}}), ContainsSubstring("map must have 14 elements, not 10"));
  REQUIRE_THROWS_WITH(run({map, 2, std::span(offsets).first(1)}),
                      ContainsSubstring("pad_offsets must have 2 elements"));
  const std::vector<std::int64_t> negative{0, -1};
  REQUIRE_THROWS_WITH(run({map, 2, negative}), ContainsSubstring("pad_offsets has -1, and x has 2 rows"));
  const std::vector<std::int64_t> wide{0, 1};
  REQUIRE_THROWS_WITH(run({map, 2, wide}), ContainsSubstring("map has row 2, and x has 2 rows"));
  const auto with = [&](std::size_t at, std::int32_t value) {
    auto changed = map;
    changed[at] = value;
    run({changed, 2, {}});
  };
  REQUIRE_THROWS_WITH(with(4, 3), ContainsSubstring("map has 3 rows of token 0, and there are 2 experts"));
  REQUIRE_THROWS_WITH(with(4, 2), ContainsSubstring("map has row 0 twice"));
  REQUIRE_THROWS_WITH(with(7, 2), ContainsSubstring("map has expert 2, and there are 2"));
  REQUIRE_THROWS_WITH(with(5, -1), ContainsSubstring("map has row -1, and x has 2 rows"));
  REQUIRE_THROWS_WITH(with(5, 0), ContainsSubstring("map has row 0 twice"));
  REQUIRE_THROWS_WITH(unpermute_rows_by_mask(std::span(x), 2, {map, 2, {}}, std::span(x).first(3), std::span(out)),
                      ContainsSubstring("probabilities must have 4 elements, not 3"));
  REQUIRE_THROWS_WITH(unpermute_rows_by_mask(std::span(x), 3, {map, 2, {}}, std::span(p), std::span(out)),
                      ContainsSubstring("x must be of whole rows of 3, not 4"));
  REQUIRE_THROWS_WITH(
      unpermute_rows_by_mask(std::span<const float>(out), 2, {map, 2, {}}, std::span(p), std::span(out)),
      ContainsSubstring("x and out overlap"));
  REQUIRE_THROWS_WITH(mask_map(std::vector<std::uint8_t>{2}, 1), ContainsSubstring("mask must be of 0 and 1"));
  REQUIRE_THROWS_WITH(mask_map(std::vector<std::uint8_t>(3), 2), ContainsSubstring("mask must have a multiple of 2"));
  const std::vector<std::int64_t> counts{2, 3};
  const auto chunks = [&](std::vector<std::int64_t> order, std::size_t tokens) {
    return chunk_map(counts, order, tokens);
  };
  REQUIRE_THROWS_WITH(chunks({0, 1}, 4), ContainsSubstring("counts must be of at most 4 rows"));
  REQUIRE_THROWS_WITH(chunks({0, 0}, 5), ContainsSubstring("order must have each of 2 chunks once"));
  REQUIRE_THROWS_WITH(chunks({0, 2}, 5), ContainsSubstring("order must have each of 2 chunks once"));
  REQUIRE_THROWS_WITH(chunks({0}, 5), ContainsSubstring("order must have 2 elements, not 1"));
  REQUIRE_THROWS_WITH(chunk_map(negative, offsets, 5), ContainsSubstring("counts must not be negative"));
  const std::vector<std::int32_t> twice{0, 0}, high{0, 2};
  const std::vector<std::byte> bytes(4);
  std::vector<std::byte> sorted(4);
  REQUIRE_THROWS_WITH(sort_chunks(bytes, 2, twice, sorted), ContainsSubstring("map has row 0 twice"));
  REQUIRE_THROWS_WITH(unsort_chunks(bytes, 2, high, sorted), ContainsSubstring("map has row 2, and there are 2"));
}

}  // namespace
}  // namespace fp8lab::tests
