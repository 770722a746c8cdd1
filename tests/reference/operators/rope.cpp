// SPDX-License-Identifier: Apache-2.0
// The rotary embedding is, bit for bit, its two products in 50 digits, the second rounded, on every target; the
// gradient is that of the transposed turn.
#include "fp8lab/reference/operators/rope.hpp"

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

}  // namespace
}  // namespace fp8lab::tests
