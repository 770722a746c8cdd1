// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm/gemm.hpp"

#include <algorithm>
#include <cfenv>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/gemm/problems.hpp"
#include "reference/rational.hpp"
#include "reference/tensor_core/dots.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("a GEMM's element is its chain of instructions, for every model, with a tail of zeros") {
  for (const MmaModel& model : models) {
    if (model.k() == 0 || model.is_fp64()) continue;  // fp64.cpp has those
    const GemmProblem p = hard_problem(model, 2, 3);
    for (const ZeroRule rule : {ZeroRule::floor, ZeroRule::count_zero_factors}) {
      for (const bool promotes : {false, true}) {
        std::vector<float> out(6);
        gemm({.model = model, .zero_rule = rule, .promote_k = promotes ? 2 * model.k() : 0}, p.a(), p.b(), out);
        for (std::size_t i = 0; i < out.size(); ++i) {
          INFO(model.name << " " << name_of(rule) << " promotes " << promotes << " element " << i);
          CHECK(bits(out[i]) == bits(p.slow(i / 3, i % 3, promotes ? 2 : 0, rule)));
        }
      }
    }
  }
}

TEST_CASE("an accumulator may start from c, also from a tiny one, which zeros could outweigh") {
  for (const MmaModel& model : models) {
    if (model.k() == 0 || model.is_fp64()) continue;  // fp64.cpp has those
    const GemmProblem p = hard_problem(model, 16, 3);
    const std::size_t all = (p.depth + static_cast<std::size_t>(model.k()) - 1) / static_cast<std::size_t>(model.k());
    Random random(5);
    for (const int round : {0, 1, 2, 3}) {
      const bool tiny = round % 2 != 0;
      const ZeroRule rule = round < 2 ? ZeroRule::floor : ZeroRule::count_zero_factors;
      std::vector<float> c;
      for (std::size_t i = 0; i < 48; ++i) c.push_back(p.value(accumulator_of(random, model.accumulator())));
      if (tiny) c[5] = 0x1.234p-140F;
      std::vector<float> out(48);
      gemm({.model = model, .zero_rule = rule, .c_enters = CEntry::accumulator}, p.a(), p.b(), out, {.c = c});
      for (std::size_t i = 0; i < out.size(); ++i) {
        INFO(model.name << " " << name_of(rule) << " tiny " << tiny << " element " << i);
        REQUIRE(bits(out[i]) == bits(p.instructions(i / 3, i % 3, 0, all, c[i], rule)));
      }
    }
  }
}

/// Rows whose first instruction has exponents up to `below` under those of its second or third one, which are `top`,
/// and where the other operand has zeros: sums are the first instruction's.
Codes codes_below(Random& random, const MmaModel& model, const Format& format, std::size_t rows, int top, int below,
                  std::size_t large) {
  const int one = format.bias + top;
  Codes codes;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < 3 * static_cast<std::size_t>(model.k()); ++k) {
      const std::size_t instruction = k / static_cast<std::size_t>(model.k());
      if (instruction == 0) codes.push_back(code_between(random, format, one - below, one - below + 4, true));
      if (instruction != 0) codes.push_back(instruction == large ? code_between(random, format, one, one, false) : 0);
    }
  }
  return codes;
}

TEST_CASE("terms are aligned by their largest exponent, however far below the operands' largest ones it is") {
  for (const MmaModel& model : models) {
    const Format format = model.operands.front();
    if (model.k() == 0 || model.is_fp64() || model.scales || format.exponent_bits != 8) continue;
    Random random(3);
    struct Below {
      int top, a, b;
    };
    for (const auto& [top, a, b] : {Below{0, 20, 5},
                                    {0, 27, 0},
                                    {0, 0, 33},
                                    {0, 62, 0},
                                    {0, 0, 63},
                                    {0, 66, 0},
                                    {0, 31, 32},
                                    {0, 50, 48},
                                    {0, 1, 97},
                                    {0, 90, 90},
                                    {45, 70, 70}}) {
      GemmProblem p{model,        3,     2, 3 * static_cast<std::size_t>(model.k()), {}, {}, {}, {}, {{}, format},
                    {{}, format}, format};
      p.left = codes_below(random, model, format, p.rows, top, a, 1);
      p.right = codes_below(random, model, format, p.columns, top, b, 2);
      p.left_elements = Elements(p.left, format);
      p.right_elements = Elements(p.right, format);
      std::vector<float> out(p.rows * p.columns);
      gemm({.model = model}, p.a(), p.b(), out);
      for (std::size_t i = 0; i < out.size(); ++i) {
        INFO(model.name << " " << top << ": " << a << " and " << b << " below, element " << i);
        CHECK(bits(out[i]) == bits(p.slow(i / p.columns, i % p.columns, 0)));
      }
    }
  }
}

TEST_CASE("an infinite accumulator stays infinite beside an infinite product, however small the scales") {
  const UnforceTarget guard;
  std::vector<std::uint8_t> codes(32, 0x3C);
  codes[3] = 0x7C;
  const std::vector<std::uint8_t> ones(32, 0x3C);
  for (const int scale : {0x00, 0x7F, 0xFE}) {
    const std::vector scales{static_cast<std::uint8_t>(scale)};
    for (const std::string_view target : targets()) {
      force_target(target);
      for (const float c : {INFINITY, -INFINITY}) {
        float out = 0;
        gemm({.model = blackwell_mxf8, .c_enters = CEntry::accumulator}, Operand::codes(codes, e5m2, 1, 32, scales),
             Operand::codes(ones, e5m2, 1, 32, scales), std::span(&out, 1), {.c = std::span(&c, 1)});
        CHECK(bits(out) == (c > 0 ? 0x7F800000U : 0x7FFFFFFFU));
      }
    }
  }
}

TEST_CASE("groups of FP4 products that are empty, or have a scale of zero, leave a tiny accumulator alone") {
  const UnforceTarget guard;
  Random random(7);
  for (const MmaModel& model : {blackwell_nvf4, blackwell_mxf4, blackwell_mxf4_block16}) {
    constexpr std::size_t rows = 9, columns = 70, depth = 64;
    const std::size_t blocks = depth / static_cast<std::size_t>(model.scales->block);
    const auto sparse = [&](std::size_t count) {
      Codes codes(count);
      for (auto& code : codes) code = random.one_in(12) ? static_cast<std::uint64_t>(random.between(0, 15)) : 0;
      return codes;
    };
    const auto scales = [&](std::size_t count) {
      Scales codes(count);
      for (auto& code : codes) code = static_cast<std::uint8_t>(random.one_in(3) ? 0 : random.between(0, 126));
      return codes;
    };
    const Codes a = sparse(rows * depth), b = sparse(columns * depth);
    const Scales scale_a = scales(rows * blocks), scale_b = scales(columns * blocks);
    std::vector<float> c(rows * columns), out(rows * columns);
    for (float& x : c) x = std::ldexp(1 + static_cast<float>(random.between(0, 255)) / 256, random.between(-149, 0));
    const Elements left(a, e2m1), right(b, e2m1);
    for (const ZeroRule rule : {ZeroRule::floor, ZeroRule::skip_terms}) {
      for (const std::string_view target : targets()) {
        force_target(target);
        gemm({.model = model, .zero_rule = rule, .c_enters = CEntry::accumulator}, left.operand(rows, depth, scale_a),
             right.operand(columns, depth, scale_b), out, {.c = c});
        for (std::size_t i = 0; i < out.size(); ++i) {
          const auto part = [&](const auto& all, std::size_t row, std::size_t width) {
            const auto first = all.begin() + static_cast<std::ptrdiff_t>(row * width);
            return std::remove_cvref_t<decltype(all)>(first, first + static_cast<std::ptrdiff_t>(width));
          };
          const Dots dots{e2m1,
                          e2m1,
                          depth,
                          part(a, i / columns, depth),
                          part(b, i % columns, depth),
                          part(scale_a, i / columns, blocks),
                          part(scale_b, i % columns, blocks),
                          {bits(c[i])}};
          INFO(model.name << " " << name_of(rule) << " " << target << " element " << i);
          REQUIRE(bits(out[i]) == slow_words(slow_model_of(model), dots, rule).front());
        }
      }
    }
  }
}

TEST_CASE("a deep product, which is packed by windows of K, is the chain of its instructions") {
  for (const MmaModel& model :
       {hopper_wgmma_fp8, hopper_mma_sync_fp8, blackwell_nvf4, blackwell_mxf8, hopper_fp16_f16}) {
    constexpr std::size_t rows = 3, columns = 70, depth = 8192 + 2 * 2048 + 128;
    GemmProblem p = plain_problem(model, rows, columns, depth);
    if (model.scales) {
      Random random(3);
      const std::size_t blocks = depth / static_cast<std::size_t>(model.scales->block);
      const int one = model.scales->format.bias << model.scales->format.mantissa_bits;
      for (std::size_t i = 0; i < rows * blocks; ++i)
        p.scale_left.push_back(static_cast<std::uint8_t>(random.between(one - 9, one + 9)));
      for (std::size_t i = 0; i < columns * blocks; ++i)
        p.scale_right.push_back(static_cast<std::uint8_t>(random.between(one - 9, one + 9)));
    }
    const std::vector<std::size_t> split{33 * 128, depth - 33 * 128};
    for (const bool splits : {false, true}) {
      std::vector<float> out(rows * columns), threaded(rows * columns), scalar(rows * columns);
      GemmRecipe recipe{.model = model, .promote_k = splits ? 128 : 0};
      if (splits) recipe.split_k = split;
      gemm(recipe, p.a(), p.b(), out);
      gemm(recipe, p.a(), p.b(), threaded, {.threads = 3});
      CHECK(out == threaded);
      const UnforceTarget guard;
      force_target("scalar");
      gemm(recipe, p.a(), p.b(), scalar, {.threads = 3});
      INFO(model.name << " splits " << splits);
      CHECK(out == scalar);
    }
  }
}

TEST_CASE("ranges of K are computed apart and added in the order given") {
  const GemmProblem p = plain_problem(blackwell_tcgen05_fp8, 3, 70, 32 * 7 + 5);
  std::vector<float> c(3 * 70, 1.5F);
  std::vector<float> out(3 * 70);
  const std::vector<std::size_t> split{64, 96, 69};
  gemm({.model = blackwell_tcgen05_fp8,
        .promote_k = 32,
        .split_k = split,
        .split_order = {2, 0, 1},
        .c_enters = CEntry::accumulator},
       p.a(), p.b(), out, {.c = c});
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto range = [&](std::size_t first, std::size_t last, float sum) {
      for (std::size_t k = first; k < last; ++k) sum += p.instructions(i / 70, i % 70, k, k + 1);
      return sum;
    };
    REQUIRE(bits(out[i]) == bits((range(5, 8, 0) + range(0, 2, 1.5F)) + range(2, 5, 0)));
  }
  gemm({.model = blackwell_tcgen05_fp8, .split_k = split}, p.a(), p.b(), out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto range = [&](std::size_t first, std::size_t last) { return p.instructions(i / 70, i % 70, first, last); };
    REQUIRE(bits(out[i]) == bits((range(0, 2) + range(2, 5)) + range(5, 8)));
  }
}

TEST_CASE("scales of tiles multiply where accumulators are promoted, fused") {
  const GemmProblem p = plain_problem(hopper_wgmma_fp8, 5, 70, 300);
  const std::vector<float> scale_a{0.1F, 1.7F, 3e-4F, 0.3F, 1.1F, 7,    0.9F, 2,
                                   3,    1e3F, 0.01F, 5,    0.7F, 0.6F, 1};                // 5 x 3
  const std::vector<float> scale_b{0.2F, 1.3F, 0.6F, 0.01F, 1.9F, 33, 1e-5F, 2.5F, 0.7F};  // 3 x 3
  Operand a = p.a();
  Operand b = p.b();
  a.tile_scales = {scale_a, 1, 128};
  b.tile_scales = {scale_b, 32, 128};
  for (const ScaleOrder order : {ScaleOrder::scales_first, ScaleOrder::accumulator_first}) {
    for (const int promote_k : {0, 128}) {
      std::vector<float> out(5 * 70);
      gemm({.model = hopper_wgmma_fp8, .promote_k = promote_k, .scale_order = order}, a, b, out);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t row = i / 70;
        const std::size_t column = i % 70;
        float sum = 0;
        for (std::size_t tile = 0; tile < 3; ++tile) {
          const float part = p.instructions(row, column, 4 * tile, std::min<std::size_t>(4 * tile + 4, 10));
          const float left = scale_a[row * 3 + tile];
          const float right = scale_b[column / 32 * 3 + tile];
          sum =
              order == ScaleOrder::scales_first ? std::fma(left * right, part, sum) : std::fma(part * left, right, sum);
        }
        REQUIRE(bits(out[i]) == bits(sum));
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
    gemm({.model = exact}, Operand::floats(a, 2, depth), Operand::floats(b, 5, depth), out, {.threads = 2});
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
  const std::vector<float> a{inf, 1, 0, 1, -1, 0, 0, 0, 0};
  const std::vector<float> b{1, 1, 1, 0, 1, 1, -inf, 1, 1};
  std::vector<float> out(9);
  gemm({.model = exact}, Operand::floats(a, 3, 3), Operand::floats(b, 3, 3), out);
  CHECK(out[0] == inf);
  CHECK(bits(out[1]) == 0x7FFFFFFF);  // infinity times zero
  CHECK(out[2] == -inf);              // infinity times minus infinity
  CHECK(bits(out[3]) == 0);           // 1 - 1
  CHECK(bits(out[6]) == 0);
  CHECK(bits(out[8]) == 0x7FFFFFFF);  // zero times infinity
}

TEST_CASE("scales and bias are the epilogue's, in float32") {
  const Problem p = problem(3, 4, 64, 1, 8);
  const auto plain = multiply({.model = hopper_wgmma_fp8}, p, e4m3, e4m3);
  const std::vector<float> bias{0.1F, -2, 3e7F, 0};
  const auto out = multiply({.model = hopper_wgmma_fp8}, p, e4m3, e4m3, {.bias = bias}, {0.3F}, {1.7F});
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float scaled = plain[i] * (0.3F * 1.7F);
    REQUIRE(bits(out[i]) == bits(scaled + bias[i % 4]));
  }
}

TEST_CASE("the epilogue adds c, then the bias, scales, and rounds to the output's format once") {
  const Problem p = problem(3, 4, 64, 1, 8);
  const auto plain = multiply({.model = hopper_wgmma_fp8}, p, e4m3, e4m3);
  const std::vector<float> bias{0.1F, -2, 3e7F, 0};
  std::vector<float> c(12, 0.7F);
  const GemmCall call{.c = c, .bias = bias, .scale_out = 0.01F};
  std::vector<float> expected;
  for (std::size_t i = 0; i < 12; ++i) {
    float x = plain[i] * (0.3F * 1.7F);
    x += c[i];
    x += bias[i % 4];
    x *= 0.01F;
    expected.push_back(x);
  }
  CHECK(multiply({.model = hopper_wgmma_fp8}, p, e4m3, e4m3, call, {0.3F}, {1.7F}) == expected);
  Operand a = Operand::codes(p.a, e4m3, 3, 64), b = Operand::codes(p.b, e4m3, 4, 64);
  a.tensor_scale = {0.3F};
  b.tensor_scale = {1.7F};
  std::vector<std::uint8_t> bytes(12), want(12);
  gemm({.model = hopper_wgmma_fp8, .output = e4m3}, a, b, bytes, call);
  for (std::size_t i = 0; i < 12; ++i) want[i] = static_cast<std::uint8_t>(encode(e4m3, {}, expected[i]));
  CHECK(bytes == want);
  CHECK((bytes[2] & 0x7F) == 0x7E);  // 3e5 saturates
  std::vector<std::uint16_t> halves(12);
  gemm({.model = hopper_wgmma_fp8, .output = binary16, .cast = find_profile("ieee").policy}, a, b, halves, call);
  CHECK(halves[2] == 0x7C00);
  CHECK(halves[0] == encode(binary16, {}, expected[0]));
  CHECK_THROWS_AS(gemm({.model = hopper_wgmma_fp8, .output = binary16}, a, b, bytes, call), std::invalid_argument);
  CHECK_THROWS_WITH(gemm({.model = hopper_wgmma_fp8}, a, b, bytes, call), "out must be float32, the recipe's output");
}

TEST_CASE("a GEMM's bits do not depend on the caller's rounding mode, nor do threads change it") {
  const Problem p = problem(7, 66, 300, 0, 3);
  const std::vector<float> bias(66, 0.1F);
  for (const MmaModel& model : {hopper_wgmma_fp8, blackwell_tcgen05_fp8_f16, hopper_mma_sync_fp8}) {
    const GemmRecipe recipe{.model = model, .promote_k = 128};
    const auto expected = multiply(recipe, p, e4m3, e5m2, {.bias = bias}, {0.3F});
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      for (const int threads : {1, 3}) {
        std::fesetround(mode);
        const auto out = multiply(recipe, p, e4m3, e5m2, {.bias = bias, .threads = threads}, {0.3F});
        const int after = std::fegetround();
        std::fesetround(FE_TONEAREST);
        CHECK(after == mode);
        REQUIRE_NO(float_differences(out, expected));
      }
      if (model.accumulator() == binary16) continue;
      const Operand a = Operand::codes(std::span(p.a).first(7 * 32), e4m3, 7, 32);
      const std::vector<float> c{1e-3F, -2, 3e7F, 0.7F, 0, -1e-20F, 1};
      std::vector<float> nearest(7);
      std::vector<float> other(7);
      mma(model, a, a, c, std::span(nearest));
      std::fesetround(mode);
      mma(model, a, a, c, std::span(other));
      std::fesetround(FE_TONEAREST);
      REQUIRE_NO(float_differences(other, nearest));
    }
  }
}

TEST_CASE("an exception from progress cancels, and progress ends at 1") {
  const Problem p = problem(200, 40, 32, 1, 4);
  double last = 0;
  multiply({.model = hopper_wgmma_fp8}, p, e4m3, e4m3, {.threads = 2, .progress = [&](double share) { last = share; }});
  CHECK(last == 1);
  const auto cancel = [](double) { throw std::runtime_error("cancelled"); };
  CHECK_THROWS_WITH(multiply({.model = hopper_wgmma_fp8}, p, e4m3, e4m3, {.threads = 2, .progress = cancel}),
                    "cancelled");
}

TEST_CASE("empty matrices and bad arguments") {
  CHECK(multiply({.model = hopper_wgmma_fp8}, problem(0, 3, 32, 0, 1), e4m3, e4m3).empty());
  CHECK(multiply({.model = hopper_wgmma_fp8}, problem(2, 0, 32, 0, 1), e4m3, e4m3).empty());
  CHECK(multiply({.model = hopper_wgmma_fp8}, problem(2, 2, 0, 0, 1), e4m3, e4m3) == std::vector<float>(4));
  CHECK(multiply({.model = exact}, problem(2, 2, 0, 0, 1), e4m3, e4m3) == std::vector<float>(4));
  const Problem p = problem(2, 2, 64, 1, 1);
  const std::vector<float> bias(3);
  CHECK_THROWS_WITH(
      multiply({.model = hopper_wgmma_fp8, .promote_k = 48}, p, e4m3, e4m3),
      "promote_k must be a multiple of 32, one instruction of hopper_wgmma_fp8, not 48 (nearest: 32 or 64)");
  CHECK_THROWS_WITH(multiply({.model = hopper_wgmma_fp8, .promote_k = -1}, p, e4m3, e4m3),
                    ContainsSubstring("promote_k must be 0"));
  CHECK_THROWS_WITH(multiply({.model = exact, .promote_k = 128}, p, e4m3, e4m3),
                    ContainsSubstring("does not apply to exact"));
  const auto wgmma = [&](GemmRecipe recipe, const GemmCall& call = {}) {
    recipe.model = hopper_wgmma_fp8;
    return multiply(recipe, p, e4m3, e4m3, call);
  };
  CHECK_THROWS_WITH(wgmma({.split_k = {48, 16}}),
                    "split_k: a range must be a positive multiple of 32 (the last: any positive number), not 48");
  CHECK_THROWS_WITH(wgmma({.split_k = {64, 0}}), ContainsSubstring("not 0"));
  CHECK_THROWS_WITH(wgmma({.split_k = {32, 33}}), "split_k: the ranges must add up to K, 64, not 65");
  CHECK_THROWS_WITH(wgmma({.split_k = {32, 32}, .split_order = {1, 1}}),
                    ContainsSubstring("every number from 0 to below 2"));
  CHECK_THROWS_WITH(wgmma({.split_order = {1}}), ContainsSubstring("every number from 0 to below 0"));
  CHECK_THROWS_WITH(wgmma({}, {.c = bias}), "c must have 2 * 2 elements, not 3");
  CHECK_THROWS_WITH(wgmma({}, {.scale_out = INFINITY}), ContainsSubstring("must be finite"));
  CHECK_THROWS_WITH(multiply({.model = exact, .split_k = {64}}, p, e4m3, e4m3),
                    ContainsSubstring("does not apply to exact"));
  Operand a = Operand::codes(p.a, e4m3, 2, 64);
  const Operand b = Operand::codes(p.b, e4m3, 2, 64);
  std::vector<float> four(4);
  a.tile_scales = {bias, 1, 128};
  CHECK_THROWS_WITH(gemm({.model = hopper_wgmma_fp8}, a, b, four),
                    "tile scales of a must be 2 * 1, one for every 1 * 128, not 3");
  CHECK_THROWS_WITH(gemm({.model = hopper_wgmma_fp8, .promote_k = 96}, a, b, four),
                    "promote_k must be 128, the depth of a's tile scales, or divide it, which 96 does not");
  CHECK_THROWS_WITH(mma(hopper_wgmma_fp8, a, a, std::span<const float>(), std::span(four).first(2)),
                    ContainsSubstring("tiles, rows and tensors are for gemm"));
  a.tile_scales = {bias, 1, 48};
  CHECK_THROWS_WITH(gemm({.model = hopper_wgmma_fp8}, a, b, four), ContainsSubstring("not 1 * 48"));
  CHECK_THROWS_WITH(multiply({.model = exact}, p, e4m3, e4m3, {.bias = bias}),
                    "bias must have 2 elements, one a row of b, not 3");
  CHECK_THROWS_WITH(multiply({.model = exact}, p, e4m3, e4m3, {.threads = 0}), "threads must be from 1 to 1024, not 0");
  CHECK_THROWS_WITH(multiply({.model = exact}, p, e4m3, e4m3, {.scale_out = NAN}), ContainsSubstring("must be finite"));
  std::vector<float> out(3);
  CHECK_THROWS_WITH(gemm({.model = exact}, Operand::codes(p.a, e4m3, 2, 64), Operand::codes(p.b, e4m3, 4, 32), out),
                    "a and b must have the same K, not 64 and 32");
  CHECK_THROWS_WITH(gemm({.model = exact}, Operand::codes(p.a, e4m3, 2, 64), Operand::codes(p.b, e4m3, 2, 64), out),
                    "out must have 2 * 2 elements, not 3");
}

}  // namespace fp8lab::tests
