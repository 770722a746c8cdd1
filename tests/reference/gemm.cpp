// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm.hpp"

#include <limits>

#include "dots.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/targets.hpp"
#include "rational.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

struct Problem {
  std::size_t rows, columns, depth;
  std::vector<std::uint8_t> a, b;
};

/// Random codes: 0 any code, 1 no specials, 2 one binade and many zeros, 3 exponents spread as far as they go.
Problem problem(std::size_t rows, std::size_t columns, std::size_t depth, int kind, std::uint64_t seed) {
  Problem p{rows, columns, depth, std::vector<std::uint8_t>(rows * depth), std::vector<std::uint8_t>(columns * depth)};
  std::uint64_t i = 0;
  for (auto* side : {&p.a, &p.b}) {
    for (auto& code : *side) {
      const std::uint64_t random = random_bits(seed, i++);
      code = static_cast<std::uint8_t>(random);
      if (kind == 2) code = (random >> 8) % 2 == 0 ? 0 : static_cast<std::uint8_t>((code & 0x87) | 0x38);
      if (kind == 3) code = static_cast<std::uint8_t>((code & 0x83) | ((random >> 8) % 2 == 0 ? 0x70 : 0x04));
      if (kind != 0 && (code & 0x7F) >= 0x7B) code &= 0x87;
    }
  }
  return p;
}

std::vector<float> multiply(const MmaModel& model, const Problem& p, const Format& a, const Format& b,
                            const GemmOptions& options = {}) {
  std::vector<float> out(p.rows * p.columns);
  gemm(model, Operands::codes(p.a, a, p.rows, p.depth), Operands::codes(p.b, b, p.columns, p.depth), out, options);
  return out;
}

Mismatches differences(const std::vector<float>& actual, const std::vector<float>& expected) {
  Mismatches wrong;
  for (std::size_t i = 0; i < actual.size(); ++i) wrong.compare(i, i, bits(actual[i]), bits(expected[i]));
  return wrong;
}

/// Operands that are hard on a model, K ending in the middle of its third instruction where no block of scales does.
struct GemmProblem {
  MmaModel model;
  std::size_t rows, columns, depth;
  Codes left, right;
  Scales scale_left, scale_right;
  Elements left_elements, right_elements;
  Format format;

  [[nodiscard]] Operands a() const { return left_elements.operands(rows, depth, scale_left); }
  [[nodiscard]] Operands b() const { return right_elements.operands(columns, depth, scale_right); }

  /// One element as the oracle has it, the tail filled with codes and scales of 0.
  [[nodiscard]] float slow(std::size_t row, std::size_t column, std::size_t promote_k) const {
    const auto step = static_cast<std::size_t>(model.k());
    const std::size_t block = model.scales ? static_cast<std::size_t>(model.scales->block) : depth;
    const auto part = [](const auto& all, std::size_t width, std::size_t i, std::size_t from, std::size_t count) {
      std::remove_cvref_t<decltype(all)> result(count, 0);
      for (std::size_t k = 0; k < count && from + k < width; ++k) result[k] = all[i * width + from + k];
      return result;
    };
    float promoted = 0;
    Dots dots{.format_a = format, .format_b = format, .k = step, .c = {0}};
    for (std::size_t k = 0; k < depth; k += step) {
      dots.a = part(left, depth, row, k, step);
      dots.b = part(right, depth, column, k, step);
      if (model.scales) {
        dots.scale_a = part(scale_left, depth / block, row, k / block, step / block);
        dots.scale_b = part(scale_right, depth / block, column, k / block, step / block);
      }
      dots.c = slow_words(find_slow_model(model.name), dots, ZeroRule::mma_sim);
      if (promote_k == 0 || (k + step) % promote_k != 0) continue;
      promoted += value(dots.c.front());
      dots.c = {0};
    }
    return promote_k == 0 ? value(dots.c.front()) : promoted + value(dots.c.front());
  }
  [[nodiscard]] float value(std::uint32_t word) const {
    const float x = decode(model.accumulator(), word);
    return std::isnan(x) ? std::bit_cast<float>(0x7FFFFFFFU) : x;
  }
};

GemmProblem hard_problem(const MmaModel& model, std::size_t rows, std::size_t columns) {
  const auto k = static_cast<std::size_t>(model.k());
  const std::size_t depth = 2 * k + (model.scales ? static_cast<std::size_t>(model.scales->block) : k / 2 + 1);
  MmaModel whole = model;  // one instruction of all K
  whole.products_per_step = static_cast<int>(depth);
  whole.steps = 1;
  const Format format = model.operands.back();
  const Dots sides = hard_dots(whole, format, format, std::max(rows, columns), 9);
  const auto first = [&](const auto& all, std::size_t count) {
    const std::size_t width = all.size() / sides.count();
    return std::remove_cvref_t<decltype(all)>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count * width));
  };
  const Codes left = first(sides.a, rows);
  const Codes right = first(sides.b, columns);
  return {model,
          rows,
          columns,
          depth,
          left,
          right,
          first(sides.scale_a, rows),
          first(sides.scale_b, columns),
          Elements(left, format),
          Elements(right, format),
          format};
}

struct UnforceTarget {
  ~UnforceTarget() { force_target(""); }
};

}  // namespace

TEST_CASE("vector code equals the scalar step on every target, any shape, promotion and threads") {
  const UnforceTarget guard;
  for (int kind = 0; kind < 4; ++kind) {
    for (const auto& [rows, columns, depth] : {std::tuple{1, 1, 32}, std::tuple{3, 33, 96}, std::tuple{5, 64, 100},
                                               std::tuple{2, 31, 1}, std::tuple{4, 70, 512}}) {
      const Problem p = problem(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns),
                                static_cast<std::size_t>(depth), kind, 42);
      for (const int promote_k : {0, 32, 128}) {
        force_target("scalar");
        const auto expected = multiply(hopper_wgmma_fp8, p, e4m3, e5m2, {.promote_k = promote_k});
        for (const std::string_view target : targets()) {
          force_target(target);
          INFO(target << " kind " << kind << " K " << depth << " promote_k " << promote_k);
          REQUIRE_NO(differences(multiply(hopper_wgmma_fp8, p, e4m3, e5m2, {.promote_k = promote_k, .threads = rows}),
                                 expected));
        }
      }
    }
  }
}

TEST_CASE("vector code equals the scalar step for every model that it serves") {
  const UnforceTarget guard;
  for (const MmaModel& model : models) {
    const GemmProblem p = hard_problem(model.arithmetic == Arithmetic::exact ? hopper_wgmma_fp8 : model, 5, 70);
    const auto run = [&](std::string_view target) {
      force_target(target);
      std::vector<float> out(5 * 70);
      gemm(model, p.a(), p.b(), out);
      return out;
    };
    const auto expected = run("scalar");
    for (const std::string_view target : targets()) {
      INFO(model.name << " on " << target);
      REQUIRE_NO(differences(run(target), expected));
    }
  }
}

TEST_CASE("TF32's vector code equals the scalar step on every target") {
  const UnforceTarget guard;
  for (int spread : {8, 60, 254}) {  // exponents: ordinary; beyond what vector code takes; everything
    std::vector<float> a(3 * 50);
    std::vector<float> b(40 * 50);
    std::uint64_t i = 0;
    for (auto* side : {&a, &b}) {
      for (float& x : *side) {
        const std::uint64_t random = random_bits(77, i++);
        const auto field = static_cast<std::uint32_t>(
            127 - spread / 2 + static_cast<int>((random >> 32) % static_cast<std::uint64_t>(spread)));
        x = random % 11 == 0 ? 0.0F
                             : std::bit_cast<float>((static_cast<std::uint32_t>(random) & 0x807FFFFF) | (field << 23));
      }
    }
    const auto run = [&] {
      std::vector<float> out(3 * 40);
      gemm(hopper_tf32, Operands::floats(a, 3, 50), Operands::floats(b, 40, 50), out);
      return out;
    };
    force_target("scalar");
    const auto expected = run();
    for (const std::string_view target : targets()) {
      force_target(target);
      INFO(target << " spread " << spread);
      REQUIRE_NO(differences(run(), expected));
    }
  }
}

TEST_CASE("the vector code is what runs where it can, and forcing works") {
  const UnforceTarget guard;
  REQUIRE(targets().back() == "scalar");
  REQUIRE(targets().size() > 1);
  for (const std::string_view target : targets()) force_target(target);
  CHECK_THROWS_WITH(force_target("AVX9"), ContainsSubstring("unknown target 'AVX9'; known: "));
}

TEST_CASE("a GEMM's element is its chain of instructions, for every model, with a tail of zeros") {
  for (const MmaModel& model : models) {
    if (model.arithmetic == Arithmetic::exact) continue;
    const GemmProblem p = hard_problem(model, 2, 3);
    const auto k = static_cast<std::size_t>(model.k());
    for (const bool promotes : {false, true}) {
      std::vector<float> out(6);
      gemm(model, p.a(), p.b(), out, {.promote_k = promotes ? 2 * model.k() : 0, .zero_rule = ZeroRule::mma_sim});
      for (std::size_t i = 0; i < out.size(); ++i) {
        INFO(model.name << " promotes " << promotes << " element " << i);
        CHECK(bits(out[i]) == bits(p.slow(i / 3, i % 3, promotes ? 2 * k : 0)));
      }
    }
  }
}

TEST_CASE("exact is the real dot product, rounded once, on benign and on hostile floats") {
  for (const int spread : {4, 60, 254}) {
    constexpr std::size_t depth = 37;
    std::vector<float> a(2 * depth);
    std::vector<float> b(5 * depth);
    std::uint64_t i = 0;
    for (auto* side : {&a, &b}) {
      for (float& x : *side) {
        const std::uint64_t random = random_bits(static_cast<std::uint64_t>(spread), i++);
        const auto field = static_cast<std::uint32_t>(
            127 - spread / 2 + static_cast<int>((random >> 32) % static_cast<std::uint64_t>(spread)));
        x = std::bit_cast<float>((static_cast<std::uint32_t>(random) & 0x807FFFFF) | (field << 23));
      }
    }
    for (std::size_t k = 0; k < depth; ++k) a[depth + k] = k % 2 == 1 ? -a[depth + k - 1] : a[depth + k];
    for (std::size_t k = 0; k < depth; ++k) b[k] = k % 2 == 1 ? b[k - 1] : b[k];  // row 1, column 0 cancels but for one
    std::vector<float> out(10);
    gemm(exact, Operands::floats(a, 2, depth), Operands::floats(b, 5, depth), out, {.threads = 2});
    for (std::size_t row = 0; row < 2; ++row) {
      for (std::size_t column = 0; column < 5; ++column) {
        Rational sum = 0;
        for (std::size_t k = 0; k < depth; ++k) {
          sum +=
              rational(static_cast<double>(a[row * depth + k])) * rational(static_cast<double>(b[column * depth + k]));
        }
        INFO(spread << " row " << row << " column " << column);
        REQUIRE(bits(out[row * 5 + column]) == bits(nearest_float(sum)));
      }
    }
  }
}

TEST_CASE("exact keeps infinities, NaN and zero sums as tensor cores do") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> a{inf, 1, 0, 1, -1, 0, 0, 0, 0};
  const std::vector<float> b{1, 1, 1, 0, 1, 1, -inf, 1, 1};
  std::vector<float> out(9);
  gemm(exact, Operands::floats(a, 3, 3), Operands::floats(b, 3, 3), out);
  CHECK(out[0] == inf);
  CHECK(bits(out[1]) == 0x7FFFFFFF);  // infinity times zero
  CHECK(out[2] == -inf);              // infinity times minus infinity
  CHECK(bits(out[3]) == 0);           // 1 - 1
  CHECK(bits(out[6]) == 0);
  CHECK(bits(out[8]) == 0x7FFFFFFF);  // zero times infinity
}

TEST_CASE("scales and bias are the epilogue's, in float32") {
  const Problem p = problem(3, 4, 64, 1, 8);
  const auto plain = multiply(hopper_wgmma_fp8, p, e4m3, e4m3);
  const std::vector<float> bias{0.1F, -2, 3e7F, 0};
  const auto out = multiply(hopper_wgmma_fp8, p, e4m3, e4m3, {.scale_a = 0.3F, .scale_b = 1.7F, .bias = bias});
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float scaled = plain[i] * (0.3F * 1.7F);
    REQUIRE(bits(out[i]) == bits(scaled + bias[i % 4]));
  }
}

TEST_CASE("an exception from progress cancels, and progress ends at 1") {
  const Problem p = problem(200, 40, 32, 1, 4);
  double last = 0;
  multiply(hopper_wgmma_fp8, p, e4m3, e4m3, {.threads = 2, .progress = [&](double share) { last = share; }});
  CHECK(last == 1);
  const auto cancel = [](double) { throw std::runtime_error("cancelled"); };
  CHECK_THROWS_WITH(multiply(hopper_wgmma_fp8, p, e4m3, e4m3, {.threads = 2, .progress = cancel}), "cancelled");
}

TEST_CASE("empty matrices and bad arguments") {
  CHECK(multiply(hopper_wgmma_fp8, problem(0, 3, 32, 0, 1), e4m3, e4m3).empty());
  CHECK(multiply(hopper_wgmma_fp8, problem(2, 0, 32, 0, 1), e4m3, e4m3).empty());
  CHECK(multiply(hopper_wgmma_fp8, problem(2, 2, 0, 0, 1), e4m3, e4m3) == std::vector<float>(4));
  CHECK(multiply(exact, problem(2, 2, 0, 0, 1), e4m3, e4m3) == std::vector<float>(4));
  const Problem p = problem(2, 2, 64, 1, 1);
  const std::vector<float> bias(3);
  CHECK_THROWS_WITH(multiply(hopper_wgmma_fp8, p, e4m3, e4m3, {.promote_k = 48}),
                    "promote_k must be a multiple of 32, one instruction of hopper_wgmma_fp8, not 48");
  CHECK_THROWS_WITH(multiply(hopper_wgmma_fp8, p, e4m3, e4m3, {.promote_k = -1}),
                    ContainsSubstring("promote_k must be 0"));
  CHECK_THROWS_WITH(multiply(exact, p, e4m3, e4m3, {.promote_k = 128}), ContainsSubstring("does not apply to exact"));
  CHECK_THROWS_WITH(multiply(exact, p, e4m3, e4m3, {.bias = bias}), "bias must have 2 elements, one a row of b, not 3");
  CHECK_THROWS_WITH(multiply(exact, p, e4m3, e4m3, {.threads = 0}), "threads must be at least 1, not 0");
  CHECK_THROWS_WITH(multiply(exact, p, e4m3, e4m3, {.scale_a = NAN}), ContainsSubstring("must be finite"));
  std::vector<float> out(3);
  CHECK_THROWS_WITH(gemm(exact, Operands::codes(p.a, e4m3, 2, 64), Operands::codes(p.b, e4m3, 4, 32), out),
                    "a and b must have the same K, not 64 and 32");
  CHECK_THROWS_WITH(gemm(exact, Operands::codes(p.a, e4m3, 2, 64), Operands::codes(p.b, e4m3, 2, 64), out),
                    "out must have 2 * 2 elements, not 3");
}

}  // namespace fp8lab::tests
