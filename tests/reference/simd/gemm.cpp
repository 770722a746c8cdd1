// SPDX-License-Identifier: Apache-2.0
// The vector code of GEMMs gives the words of the scalar step.
#include "fp8lab/reference/gemm/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/gemm/problems.hpp"
#include "reference/tensor_core/dots.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Compares about 10^7 dot products a model, each of one instruction and from an accumulator of its own.
void vector_equals_scalar(const std::function<bool(const MmaModel&)>& which) {
  const UnforceTarget guard;
  constexpr std::size_t side = 512;
  const std::uint64_t rounds = sanitized ? 1 : 38;
  for (const MmaModel& model : models) {
    if (model.arithmetic != Arithmetic::fused || !which(model) || is_repeated(model)) continue;
    for (std::uint64_t seed = 0; seed < rounds; ++seed) {
      const Format a_format = model.operands[seed % model.operands.size()];
      const Format b_format = model.operands[seed / 2 % model.operands.size()];
      const Dots left = hard_dots(model, a_format, b_format, side, 2 * seed + 1);
      const Dots right = hard_dots(model, a_format, b_format, side, 2 * seed + 2);
      const Elements a(left.a, a_format), b(right.b, b_format);
      Random random(seed);
      std::vector<float> c(side * side);
      for (float& x : c) {
        x = decode(model.accumulator(), static_cast<std::uint32_t>(accumulator_of(random, model.accumulator())));
        if (std::abs(x) < 0x1p-80F && model.output == e8m13) x = 0;  // vector code leaves them to the scalar step
      }
      const auto run = [&](std::string_view target) {
        force_target(target);
        std::vector<float> out(side * side);
        gemm(model, a.operand(side, left.k, left.scale_a), b.operand(side, right.k, right.scale_b), out,
             {.c = c, .c_enters = CEntry::accumulator});
        return out;
      };
      const auto expected = run("scalar");
      INFO(model.name << " seed " << seed);
      REQUIRE_NO(float_differences(run(targets().at(seed % (targets().size() - 1))), expected));
    }
  }
}

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
          REQUIRE_NO(float_differences(
              multiply(hopper_wgmma_fp8, p, e4m3, e5m2, {.promote_k = promote_k, .threads = rows}), expected));
        }
      }
    }
  }
}

TEST_CASE("vector code equals the scalar step for every model that it serves") {
  const UnforceTarget guard;
  for (const MmaModel& model : models) {
    if (model.is_fp64()) continue;  // which has no vector code
    const GemmProblem p = hard_problem(model.k() == 0 ? hopper_wgmma_fp8 : model, 5, 70);
    const auto run = [&](std::string_view target) {
      force_target(target);
      std::vector<float> out(5 * 70);
      gemm(model, p.a(), p.b(), out);
      return out;
    };
    const auto expected = run("scalar");
    for (const std::string_view target : targets()) {
      INFO(model.name << " on " << target);
      REQUIRE_NO(float_differences(run(target), expected));
    }
  }
}

TEST_CASE("vector code equals the scalar step on 10^7 dot products: 16-bit factors") {
  vector_equals_scalar([](const MmaModel& m) { return m.operands.front().bits() > 8; });
}
TEST_CASE("vector code equals the scalar step on 10^7 dot products: FP8 and float32 accumulators") {
  vector_equals_scalar(
      [](const MmaModel& m) { return m.operands.front().bits() <= 8 && m.group == 1 && m.accumulator() == binary32; });
}
TEST_CASE("vector code equals the scalar step on 10^7 dot products: float16 accumulators and FP4") {
  vector_equals_scalar(
      [](const MmaModel& m) { return m.operands.front().bits() <= 8 && (m.group > 1 || m.accumulator() == binary16); });
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
      gemm(hopper_tf32, Operand::floats(a, 3, 50), Operand::floats(b, 40, 50), out);
      return out;
    };
    force_target("scalar");
    const auto expected = run();
    for (const std::string_view target : targets()) {
      force_target(target);
      INFO(target << " spread " << spread);
      REQUIRE_NO(float_differences(run(), expected));
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

}  // namespace fp8lab::tests
