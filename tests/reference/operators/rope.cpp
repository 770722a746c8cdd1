// SPDX-License-Identifier: Apache-2.0
// The rotary embedding is, bit for bit, its two products in 50 digits, the second rounded, on every target; the
// gradient is that of the transposed turn.
#include "fp8lab/reference/operators/rope.hpp"

#include <array>

#include "fp8lab/formats/encode.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

struct Turned {
  std::vector<float> out, dx;
};

/// Vectors of `size` elements of which the first `rotated` are turned, token t by row t of the angles.
Turned step_rope(const std::vector<float>& x, const std::vector<float>& freqs, std::size_t size, std::size_t rotated,
                 std::size_t heads, bool interleaved) {
  Turned turned{x, x};
  const auto sine = [](float angle) { return nearest(sin(Digits(angle))); };
  for (std::size_t vector = 0; vector < x.size() / size; ++vector) {
    for (std::size_t i = 0; i < rotated; ++i) {
      const bool is_first = interleaved ? i % 2 == 0 : i < rotated / 2;
      const std::size_t distance = interleaved ? 1 : rotated / 2;
      const std::size_t j = is_first ? i + distance : i - distance;
      const float own = x[vector * size + i];
      const float other = x[vector * size + j];
      const float* angles = freqs.data() + vector / heads * rotated;
      const float cosine = nearest(cos(Digits(angles[i])));
      const float forward = is_first ? -other : other;
      const float backward = is_first ? sine(angles[j]) : -sine(angles[j]);
      turned.out[vector * size + i] = step_fused(own, cosine, step_product(forward, sine(angles[i])));
      turned.dx[vector * size + i] = step_fused(own, cosine, step_product(other, backward));
    }
  }
  return turned;
}

TEST_CASE("rope: the formula's bits on every target") {
  const UnforceTarget unforce;
  const std::size_t tokens = 4, heads = 2, size = 11, rotated = 8;
  const auto x = normal_draws(1, tokens * heads * size, 1);
  const auto freqs = normal_draws(2, tokens * rotated, 30);
  for (const bool interleaved : {false, true}) {
    const Turned expected = step_rope(x, freqs, size, rotated, heads, interleaved);
    const RopeShape shape{.sequence = tokens, .heads = heads, .size = size, .rotated = rotated};
    for (const auto target : targets()) {
      force_target(target);
      INFO(target);
      std::vector<float> out(x.size()), dx(x.size());
      rope(shape, {.interleaved = interleaved}, std::span(x), freqs, std::span(out), {.threads = 2});
      rope_backward(shape, {.interleaved = interleaved}, std::span(x), freqs, std::span(dx));
      Mismatches mismatches;
      for (std::size_t i = 0; i < x.size(); ++i) {
        mismatches.compare(i, i, bits(out[i]), bits(expected.out[i]), "out");
        mismatches.compare(i, i, bits(dx[i]), bits(expected.dx[i]), "dx");
      }
      REQUIRE_NO(mismatches);
      std::vector<Half> halves(x.size());
      rope(shape, {.interleaved = interleaved}, std::span(x), freqs, std::span(halves));
      for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(halves[i].bits == encode(binary16, cuda_nosat_policy, out[i]));
    }
  }
}

TEST_CASE("rope: what is refused") {
  const std::vector<float> x(24), freqs(8);
  std::vector<float> out(24);
  const auto run = [&](const RopeShape& shape, const RopeOptions& how) {
    rope(shape, how, std::span(x), freqs, std::span(out));
  };
  const RopeShape shape{.sequence = 2, .heads = 2, .size = 6, .rotated = 4};
  run(shape, {});
  REQUIRE_THROWS_WITH(run({.sequence = 2, .heads = 2, .size = 6, .rotated = 3}, {}),
                      ContainsSubstring("an even number"));
  REQUIRE_THROWS_WITH(run({.sequence = 3, .heads = 2, .size = 6, .rotated = 4}, {}),
                      ContainsSubstring("x must have 36 elements, not 24"));
  REQUIRE_THROWS_WITH(run({.sequence = 4, .heads = 1, .size = 6, .rotated = 4}, {}),
                      ContainsSubstring("freqs has 2 positions, and a token of x or grad has position 2"));
  const std::vector<std::int32_t> wrong{0, 3}, start{1};
  REQUIRE_THROWS_WITH(run(shape, {.cu_seqlens = wrong}), ContainsSubstring("cu_seqlens must begin with 0 and end"));
  REQUIRE_THROWS_WITH(run(shape, {.start_positions = start}), ContainsSubstring("has position 2"));
  REQUIRE_THROWS_WITH(run(shape, {.cp_size = 2, .cp_rank = 2}), ContainsSubstring("cp_rank must be below cp_size 2"));
}

TEST_CASE("rope: query and key beside the value are turned as if alone, and lie where they lay") {
  // Two queries and a key for each value, of 6 elements of which 4 are turned; 3 tokens, 2 batches, 2 heads.
  const std::size_t tokens = 3, batches = 2, heads = 2, size = 6, rotated = 4;
  const std::array<std::size_t, 3> widths{12, 6, 6};
  const auto qkv = normal_draws(1, tokens * batches * heads * 24, 1);
  const std::array freqs{normal_draws(2, 8 * rotated, 3), normal_draws(3, 8 * rotated, 3)};
  const std::vector<std::int32_t> starts{2, 0};
  for (const bool sequence_first : {true, false}) {
    const RopeQkvShape shape{tokens, batches, heads, widths, rotated, sequence_first};
    std::array<std::vector<float>, 3> parts, expected, turned_back;
    std::size_t first = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t head = 0; head < qkv.size() / 24; ++head) {
        const auto from = qkv.begin() + static_cast<std::ptrdiff_t>(head * 24 + first);
        parts[i].insert(parts[i].end(), from, from + static_cast<std::ptrdiff_t>(widths[i]));
      }
      first += widths[i];
      expected[i] = turned_back[i] = parts[i];
      if (i == 2) continue;
      const RopeShape alone{tokens, batches, heads * widths[i] / size, size, rotated, sequence_first};
      rope(alone, {.start_positions = starts}, std::span<const float>(parts[i]), freqs[i], std::span(expected[i]));
      rope_backward(alone, {}, std::span<const float>(parts[i]), freqs[i], std::span(turned_back[i]));
    }
    std::array<std::vector<float>, 3> out{parts};
    for (auto& part : out) std::ranges::fill(part, nan);
    rope_qkv(shape, {.start_positions = starts}, std::span(qkv), freqs[0], freqs[1],
             {std::span(out[0]), std::span(out[1]), std::span(out[2])}, {.threads = 2});
    REQUIRE(out == expected);
    std::vector<float> dqkv(qkv.size(), nan);
    rope_qkv_backward(
        shape, {},
        {std::span<const float>(parts[0]), std::span<const float>(parts[1]), std::span<const float>(parts[2])},
        freqs[0], freqs[1], std::span(dqkv), {.threads = 2});
    for (std::size_t head = 0; head < qkv.size() / 24; ++head) {
      for (std::size_t i = 0; i < 24; ++i) {
        const std::size_t part = i < 12 ? 0 : i < 18 ? 1 : 2;
        const std::size_t in_part = i - (part == 0 ? 0 : part == 1 ? 12 : 18);
        REQUIRE(dqkv[head * 24 + i] == turned_back[part][head * widths[part] + in_part]);
      }
    }
    // With chunks the kernel does not read where sequences start.
    const RopeQkvShape even{2, batches, heads, widths, rotated, sequence_first};
    const auto some = std::span(qkv).first(2 * batches * heads * 24);
    const auto run = [&](std::span<const std::int32_t> start_positions) {
      std::array<std::vector<float>, 3> to{std::vector<float>(96), std::vector<float>(48), std::vector<float>(48)};
      rope_qkv(even, {.start_positions = start_positions, .cp_size = 2, .cp_rank = 1}, some, freqs[0], freqs[1],
               {std::span(to[0]), std::span(to[1]), std::span(to[2])});
      return to;
    };
    REQUIRE(run(starts) == run({}));
    REQUIRE_THROWS_WITH(rope_qkv_backward(shape, {.start_positions = starts},
                                          {std::span<const float>(parts[0]), std::span<const float>(parts[1]),
                                           std::span<const float>(parts[2])},
                                          freqs[0], freqs[1], std::span(dqkv)),
                        ContainsSubstring("start_positions are not for the gradient"));
    REQUIRE_THROWS_WITH(rope_qkv({tokens, batches, heads, {11, 7, 6}, rotated}, {}, std::span(qkv), freqs[0], freqs[1],
                                 {std::span(out[0]), std::span(out[1]), std::span(out[2])}),
                        ContainsSubstring("widths of query and key must be multiples of the value's, 6, not 11 and 7"));
  }
}

}  // namespace
}  // namespace fp8lab::tests
