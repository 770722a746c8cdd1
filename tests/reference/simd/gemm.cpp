// SPDX-License-Identifier: Apache-2.0
// The vector code of GEMMs gives the words of the scalar step.
#include "fp8lab/reference/gemm/gemm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/gemm/problems.hpp"
#include "reference/tensor_core/dots.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

bool has_vector_code(const MmaModel& model) { return model.k() != 0 && !model.is_fp64(); }

/// Compares 524,288 dot products a model, each of one instruction and from an accumulator of its own, and 10^7 with
/// FP8LAB_EXHAUSTIVE; half as many of 16-bit factors and of AMD's, whose scalar steps are slow.
void vector_equals_scalar(const std::function<bool(const MmaModel&)>& which) {
  const UnforceTarget guard;
  const std::size_t side = exhaustive() ? 512 : 320;
  for (const MmaModel& model : models) {
    if (sanitized && model.arithmetic != Arithmetic::fused) continue;  // the limits of exponents are tested below
    const std::uint64_t many = (exhaustive() ? 38U : 2U) / (model.operands.front().bits() > 8 ? 2U : 1U);
    const std::uint64_t rounds = sanitized || model.arithmetic != Arithmetic::fused ? 1 : many;
    if (!has_vector_code(model) || !which(model) || is_repeated(model)) continue;
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
        gemm({.model = model, .c_enters = CEntry::accumulator}, a.operand(side, left.k, left.scale_a),
             b.operand(side, right.k, right.scale_b), out, {.c = c});
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
        const auto expected = multiply({.model = hopper_wgmma_fp8, .promote_k = promote_k}, p, e4m3, e5m2);
        for (const std::string_view target : targets()) {
          force_target(target);
          INFO(target << " kind " << kind << " K " << depth << " promote_k " << promote_k);
          REQUIRE_NO(float_differences(
              multiply({.model = hopper_wgmma_fp8, .promote_k = promote_k}, p, e4m3, e5m2, {.threads = rows}),
              expected));
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
      gemm({.model = model}, p.a(), p.b(), out);
      return out;
    };
    const auto expected = run("scalar");
    for (const std::string_view target : targets()) {
      INFO(model.name << " on " << target);
      REQUIRE_NO(float_differences(run(target), expected));
    }
  }
}

TEST_CASE("vector code equals the scalar step on millions of dot products: 16-bit factors") {
  vector_equals_scalar([](const MmaModel& m) { return m.operands.front().bits() > 8; });
}
TEST_CASE("vector code equals the scalar step on millions of dot products: FP8 and float32 accumulators") {
  vector_equals_scalar(
      [](const MmaModel& m) { return m.operands.front().bits() <= 8 && m.group == 1 && m.accumulator() == binary32; });
}
TEST_CASE("vector code equals the scalar step on millions of dot products: float16 accumulators and FP4") {
  vector_equals_scalar(
      [](const MmaModel& m) { return m.operands.front().bits() <= 8 && (m.group > 1 || m.accumulator() == binary16); });
}

/// Codes whose exponent fields lie within `spread` of the bias, with zeros, and with specials where asked.
Codes codes_around_one(Random& random, const Format& format, std::size_t count, int spread, bool specials) {
  Codes result(count);
  for (auto& code : result) {
    if (random.one_in(9)) continue;
    code = code_between(random, format, format.bias - spread, format.bias + spread, specials && random.one_in(200));
  }
  return result;
}

TEST_CASE("vector code equals the scalar step about the limits of exponents, with any c") {
  const UnforceTarget guard;
  constexpr std::size_t rows = 37;
  constexpr std::size_t columns = 67;
  std::size_t number = 0;
  for (const MmaModel& model : models) {
    if (!has_vector_code(model) || is_repeated(model)) continue;
    ++number;
    const auto depth = static_cast<std::size_t>(model.scales ? 3 * model.k() : 5 * model.k() / 2);
    const std::size_t blocks = model.scales ? depth / static_cast<std::size_t>(model.scales->block) : 0;
    for (const int spread : {6, 24, 25, 26, 49, 50, 51}) {  // limits of products and scales: 100, alone 50 a side
      if (!exhaustive() && spread != (number % 2 == 0 ? 25 : 50)) continue;
      const bool specials = spread % 2 == 0;
      Random random(static_cast<std::uint64_t>(spread));
      const Format format = model.operands.front();
      const Elements a(codes_around_one(random, format, rows * depth, spread, specials), format);
      const Elements b(codes_around_one(random, format, columns * depth, spread, specials), format);
      Scales scales(columns * blocks);
      for (auto& scale : scales) {
        scale = static_cast<std::uint8_t>(specials && random.one_in(300) ? 255 : 127 + random.between(-spread, spread));
        if (model.scales->format != e8m0) scale = static_cast<std::uint8_t>(random.bits() & 0x7F);
      }
      const Scales scales_a(scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(rows * blocks));
      std::vector<float> c(rows * columns);
      for (float& x : c) {
        x = decode(model.accumulator(), static_cast<std::uint32_t>(accumulator_of(random, model.accumulator())));
        if (spread % 3 != 0 && std::abs(x) < 0x1p-80F) x = 0;  // they keep float lanes out
      }
      const auto run = [&](std::string_view target, CEntry c_enters) {
        force_target(target);
        std::vector<float> out(rows * columns);
        gemm({.model = model, .c_enters = c_enters}, a.operand(rows, depth, scales_a),
             b.operand(columns, depth, scales), out, {.c = c});
        return out;
      };
      for (const CEntry c_enters : {CEntry::epilogue, CEntry::accumulator}) {
        const auto expected = run("scalar", c_enters);
        for (const std::string_view target : targets()) {
          INFO(model.name << " on " << target << ", exponents within " << spread);
          REQUIRE_NO(float_differences(run(target, c_enters), expected));
        }
      }
    }
  }
}

/// A line of K where a step's sum is hard to get right, one of seven kinds.
Codes line_at_a_limit(Random& random, const Format& format, std::size_t depth, std::size_t kind) {
  const std::uint64_t sign = std::uint64_t{1} << static_cast<unsigned>(format.bits() - 1);
  const std::uint64_t largest = format.max_code();
  Codes line(depth);
  for (std::size_t k = 0; k < depth; ++k) {
    const std::uint64_t flipped = random.one_in(2) ? sign : 0;
    const std::uint64_t tiny = (1 + random.bits() % 3) | flipped;
    switch (kind) {
      case 0: line[k] = largest; break;                                        // the largest sums
      case 1: line[k] = largest | sign; break;                                 // and their negatives
      case 2: line[k] = largest | (k % 2 * sign); break;                       // that cancel, where K is even
      case 3: line[k] = k % 16 == 3 ? largest | flipped : tiny | sign; break;  // cut: nothing, or 1 if cut downward
      case 4: line[k] = tiny; break;                                           // subnormal numbers
      case 5: line[k] = random.one_in(3) ? flipped : 0; break;                 // zeros
      default: line[k] = random.bits() & (2 * sign - 1);                       // any, with infinities and NaN
    }
  }
  return line;
}

TEST_CASE("vector code equals the scalar step where few bits are kept, at the limits of sums and accumulators") {
  const UnforceTarget guard;
  constexpr std::size_t rows = 75;  // more than a block of rows, and no multiple of rows that go together
  constexpr std::size_t columns = 77;
  constexpr std::array moderate{0.0F,      -0.0F,       1.0F,        -1.0F,      0x1.fffp17F, -0x1.fffp17F,
                                0x1.8p30F, -0x1.8p30F,  0x1.fffp99F, -0x1p99F,   0x1p-40F,    -0x1p-40F,
                                0x1p-79F,  -0x1.8p-79F, 0x1.ffep-1F, -0x1.002p3F};
  constexpr float infinite = std::numeric_limits<float>::infinity();
  constexpr float most = std::numeric_limits<float>::max();
  constexpr std::array huge{0x1p100F, -0x1p100F, most, -most, infinite, -infinite, NAN};
  std::size_t tested = 0;
  for (const MmaModel& model : models) {
    if (model.fraction_bits != 13 || is_repeated(model)) continue;
    ++tested;
    const std::size_t depth = 2 * static_cast<std::size_t>(model.k());
    for (const Format& format_a : model.operands) {
      for (const Format& format_b : model.operands) {
        Random random(7);
        Codes codes_a;
        Codes codes_b;
        for (std::size_t i = 0; i < rows; ++i) {
          std::ranges::copy(line_at_a_limit(random, format_a, depth, i % 7), std::back_inserter(codes_a));
        }
        for (std::size_t i = 0; i < columns; ++i) {
          std::ranges::copy(line_at_a_limit(random, format_b, depth, i / 7 % 7), std::back_inserter(codes_b));
        }
        const Elements a(codes_a, format_a);
        const Elements b(codes_b, format_b);
        std::vector<float> c(rows * columns);
        for (std::size_t i = 0; i < c.size(); ++i) {
          const bool huge_row = i / columns % 5 == 4;  // other code takes it
          c[i] = huge_row && i % 3 == 0 ? huge.at(i % huge.size()) : moderate.at(i % moderate.size());
        }
        const auto run = [&](std::string_view target) {
          force_target(target);
          std::vector<float> out(rows * columns);
          gemm({.model = model, .c_enters = CEntry::accumulator}, a.operand(rows, depth), b.operand(columns, depth),
               out, {.c = c});
          return out;
        };
        const auto expected = run("scalar");
        for (const std::string_view target : targets()) {
          INFO(model.name << " on " << target << ": " << format_name(format_a) << " x " << format_name(format_b));
          REQUIRE_NO(float_differences(run(target), expected));
        }
      }
    }
  }
  CHECK(tested >= 4);
}

/// Rows of which all elements have the exponent 0 and the largest significand, or in row i the first i one less; every
/// other row is negative.
Codes codes_below_two(const Format& format, std::size_t rows, std::size_t depth) {
  const std::uint64_t most = (std::uint64_t{1} << format.mantissa_bits) - 1;
  const std::uint64_t below_two = static_cast<std::uint64_t>(format.bias) << format.mantissa_bits | most;
  Codes codes;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < depth; ++k) {
      codes.push_back((below_two - (k < i ? 1 : 0)) | (i % 2 == 0 ? 0 : format.sign_mask()));
    }
  }
  return codes;
}

TEST_CASE("vector code equals the scalar step where sums are as large as they can be") {
  const UnforceTarget guard;
  constexpr std::size_t rows = 6;
  constexpr std::size_t columns = 6;
  std::size_t tested = 0;
  for (const MmaModel& model : models) {
    const bool has_codes = model.operands.front() != tf32 && model.operands.front().bits() <= 16;
    if (!has_vector_code(model) || !has_codes || model.scales || is_repeated(model)) continue;
    ++tested;
    const Format& format = model.operands.front();
    const auto depth = static_cast<std::size_t>(model.k());
    const Elements a(codes_below_two(format, rows, depth), format);
    const Elements b(codes_below_two(format, columns, depth), format);
    for (const float magnitude : {0x1.ffcp1F, 0x1.ffcp0F, 0x1p0F, 0.0F}) {
      std::vector<float> c(rows * columns);
      for (std::size_t i = 0; i < c.size(); ++i) c[i] = (i / columns + i % columns) % 2 == 0 ? magnitude : -magnitude;
      const auto run = [&](std::string_view target) {
        force_target(target);
        std::vector<float> out(rows * columns);
        gemm({.model = model, .c_enters = CEntry::accumulator}, a.operand(rows, depth), b.operand(columns, depth), out,
             {.c = c});
        return out;
      };
      const auto expected = run("scalar");
      for (const std::string_view target : targets()) {
        INFO(model.name << " on " << target << " from " << magnitude);
        REQUIRE_NO(float_differences(run(target), expected));
      }
    }
  }
  REQUIRE(tested > 20);
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
      gemm({.model = hopper_tf32}, Operand::floats(a, 3, 50), Operand::floats(b, 40, 50), out);
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
