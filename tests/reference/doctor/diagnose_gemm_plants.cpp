// SPDX-License-Identifier: Apache-2.0
// Epilogues, orders of K and rules for zeros, composed by hand of single instructions: the doctor names each.
#include <cmath>
#include <string>

#include "reference/doctor/hand_gemm.hpp"

namespace fp8lab::tests {
namespace {

float as_bfloat16(float x) { return decode(bfloat16, encode(bfloat16, CastPolicy{}, x)); }
float as_float16(float x) { return decode(binary16, encode(binary16, CastPolicy{}, x)); }

/// Scales of both tensors, and c and a bias as large as the scaled sums.
HandGemm with_addends(std::uint64_t seed, bool has_c, bool has_bias) {
  HandGemm made(seed, 256);
  made.scale_a = 0.0137F;
  made.scale_b = 1.731F;
  const auto draw = [&](std::size_t count, std::uint64_t stream) {
    std::vector<float> all(count);
    for (std::size_t i = 0; i < count; ++i) {
      all[i] =
          static_cast<float>(static_cast<std::int64_t>(random_bits(seed + stream, i) >> 40) - (1 << 23)) * 0x1p-21F;
    }
    return all;
  };
  if (has_c) made.c = draw(made.rows * made.columns, 300);
  if (has_bias) made.bias = draw(made.columns, 400);
  return made;
}

/// The order of K with granules dealt out to parts, written as a loop over what each part gets.
std::vector<std::size_t> dealt(std::size_t depth, const KOrder& order) {
  std::vector<std::size_t> ks;
  for (std::size_t first = 0; first < depth; first += order.window) {
    for (std::size_t part = 0; part < order.ways; ++part) {
      for (std::size_t k = 0; k < order.window; ++k) {
        if (k / order.granule % order.ways == part) ks.push_back(first + k);
      }
    }
  }
  return ks;
}

}  // namespace

TEST_CASE("the GEMM doctor names how c and the bias are added", "[long]") {
  const MmaModel& model = blackwell_tcgen05_fp8;
  using Add = std::function<float(float sum, float c, float bias)>;
  const auto check = [&](const HandGemm& made, const Planted& expected, const Add& add, const Format& format) {
    const auto out = made.all([&](auto m, auto n) {
      const float c = made.c.empty() ? 0 : made.c[m * made.columns + n];
      return add(made.chain(model, m, n, 0, made.depth), c, made.bias.empty() ? 0 : made.bias[n]);
    });
    constexpr Format single = binary32;
    const GemmDiagnosis found =
        format == single ? diagnosed(made, out, format) : diagnosed(made, rounded_to(format, out), format);
    INFO(found.verdict);
    REQUIRE(found.explained());
    const GemmRecipe& first = found.explanations.front().recipe;
    CHECK(first.addition == expected.recipe.addition);
    CHECK(first.c_enters == CEntry::epilogue);
    CHECK(first.addend_type == expected.recipe.addend_type);
    CHECK(first.bias_first == expected.recipe.bias_first);
    CHECK(first.scale_order == expected.recipe.scale_order);
    CHECK(!first.cast);
    CHECK(departure_of(found.explanations.front()) == expected.departure);
  };
  Planted expected{{.model = model, .scale_order = ScaleOrder::scales_first}};
  SECTION("a bias") {
    const HandGemm made = with_addends(21, false, true);
    const float alpha = made.scale_a * made.scale_b;
    const Add after = [&](float x, float, float bias) { return x * alpha + bias; };
    check(made, expected, after, binary32);
    check(made, expected, after, bfloat16);
    expected.recipe.addition = Addition::fused;
    check(made, expected, [&](float x, float, float bias) { return std::fma(x, alpha, bias); }, binary32);
    expected.recipe.scale_order = ScaleOrder::accumulator_first;
    check(
        made, expected, [&](float x, float, float bias) { return std::fma(x * made.scale_a, made.scale_b, bias); },
        binary32);
    expected.recipe.scale_order = ScaleOrder::scales_first;
    expected.recipe.addition = Addition::before_scales;
    check(made, expected, [&](float x, float, float bias) { return (x + bias) * alpha; }, binary32);
    expected.recipe.addition = Addition::after_rounding;
    check(made, expected, [&](float x, float, float bias) { return as_bfloat16(x * alpha) + bias; }, bfloat16);
    check(made, expected, [&](float x, float, float bias) { return as_float16(x * alpha) + bias; }, binary16);
    expected.recipe.addend_type = StepType::to_bfloat16;
    check(
        made, expected, [&](float x, float, float bias) { return as_bfloat16(x * alpha) + as_bfloat16(bias); },
        bfloat16);
    expected.recipe.addition = Addition::after_scales;
    check(made, expected, [&](float x, float, float bias) { return x * alpha + as_bfloat16(bias); }, binary32);
    expected.recipe.addend_type = StepType::to_float16;
    check(made, expected, [&](float x, float, float bias) { return x * alpha + as_float16(bias); }, binary32);
    expected = {{.model = model, .scale_order = ScaleOrder::scales_first}, "bias_missing"};
    check(made, expected, [&](float x, float, float) { return x * alpha; }, binary32);
  }
  SECTION("c and a bias") {
    const HandGemm made = with_addends(22, true, true);
    const float alpha = made.scale_a * made.scale_b;
    check(made, expected, [&](float x, float c, float bias) { return x * alpha + c + bias; }, binary32);
    expected.recipe.bias_first = true;
    check(made, expected, [&](float x, float c, float bias) { return x * alpha + bias + c; }, binary32);
    expected.recipe.bias_first = false;
    expected.departure = "c_missing";
    check(made, expected, [&](float x, float, float bias) { return x * alpha + bias; }, binary32);
  }
}

TEST_CASE("the GEMM doctor names an accumulation that starts from c, and where c and the bias went wrong") {
  const MmaModel& model = blackwell_tcgen05_fp8;
  HandGemm made = with_addends(23, true, false);
  Planted expected{{.model = model, .c_enters = CEntry::accumulator}};
  made.scale_a = made.scale_b = 1;
  const auto started =
      made.all([&](auto m, auto n) { return made.chain(model, m, n, 0, made.depth, made.c[m * made.columns + n]); });
  check_named(diagnosed(made, started, binary32), expected);
  const auto promoted = made.all([&](auto m, auto n) {
    float sum = made.c[m * made.columns + n];
    for (std::size_t k = 0; k < made.depth; k += 64) sum += made.chain(model, m, n, k, k + 64);
    return sum;
  });
  expected.recipe.promote_k = 64;
  check_named(diagnosed(made, promoted, binary32), expected);
  expected = {{.model = model}};
  const auto turned =
      made.all([&](auto m, auto n) { return made.chain(model, m, n, 0, made.depth) + made.c[n * made.rows + m]; });
  expected.departure = "c_transposed";
  check_named(diagnosed(made, turned, binary32), expected);

  HandGemm biased = with_addends(24, false, true);
  expected.recipe.scale_order = ScaleOrder::scales_first;
  const float alpha = biased.scale_a * biased.scale_b;
  const auto along =
      biased.all([&](auto m, auto n) { return biased.chain(model, m, n, 0, biased.depth) * alpha + biased.bias[m]; });
  expected.departure = "bias_along_rows";
  check_named(diagnosed(biased, along, binary32), expected);
  const auto twice = biased.all([&](auto m, auto n) {
    const float first = biased.chain(model, m, n, 0, 128) * alpha + biased.bias[n];
    return first + (biased.chain(model, m, n, 128, 256) * alpha + biased.bias[n]);
  });
  expected.departure = "bias_in_each_range";
  expected.recipe.promote_k = 128;
  check_named(diagnosed(biased, twice, binary32), expected);
}

TEST_CASE("the GEMM doctor names the order in which K is shared out", "[long]") {
  const MmaModel& model = blackwell_tcgen05_fp8;
  const HandGemm made(25);
  const std::size_t depth = made.depth;
  Planted expected{{.model = model}};
  // 1. Within an instruction or a few: one accumulator.
  for (const KOrder& order : {KOrder{2, 1, 64}, KOrder{2, 8, 64}, KOrder{4, 4, 128}}) {
    expected.recipe.k_order = order;
    const auto ks = dealt(depth, order);
    const auto out = made.all([&](auto m, auto n) { return made.chain_of(model, m, n, ks); });
    check_named(diagnosed(made, out, binary32), expected);
  }
  // 2. Warps that take instructions in turn: accumulators of their own.
  for (const KOrder& order : {KOrder{2, 32, 512}, KOrder{4, 64, 512}}) {
    const auto ks = dealt(depth, order);
    const std::size_t part = depth / order.ways;
    const auto out = made.all([&](auto m, auto n) {
      float sum = 0;
      for (std::size_t i = 0; i < order.ways; ++i) {
        const auto begin = ks.begin() + static_cast<std::ptrdiff_t>(i * part);
        sum += made.chain_of(model, m, n, {begin, begin + static_cast<std::ptrdiff_t>(part)});
      }
      return sum;
    });
    expected.recipe.k_order = order;
    expected.recipe.range_k = part;
    check_named(diagnosed(made, out, binary32), expected);
  }
}

TEST_CASE("the GEMM doctor names another rule for zeros") {
  // Blocks of zeros with a large scale, which counts by the other rule, so that the other products are cut.
  HandGemm made(27, 128);
  made.format = e2m1;
  made.block = 32;
  for (auto* codes : {&made.a, &made.b}) {
    for (std::size_t i = 0; i < codes->size(); ++i) (*codes)[i] = i / 32 % 2 == 0 ? 0 : (*codes)[i] & 0xFU;
  }
  for (std::size_t i = 0; i < made.rows * 4; ++i) made.block_a.push_back(i % 2 == 0 ? 147 : 127);
  for (std::size_t i = 0; i < made.columns * 4; ++i) made.block_b.push_back(i % 2 == 0 ? 144 : 126);
  made.zero_rule = ZeroRule::skip_terms;
  const MmaModel& model = blackwell_mxf4;
  const auto out = made.all([&](auto m, auto n) { return made.chain(model, m, n, 0, made.depth); });
  const GemmDiagnosis found = diagnosed(made, out, binary32);
  INFO(found.verdict);
  REQUIRE(found.explained());
  CHECK(found.explanations.front().recipe.zero_rule == ZeroRule::skip_terms);
  made.zero_rule = ZeroRule::floor;
  const auto usual = made.all([&](auto m, auto n) { return made.chain(model, m, n, 0, made.depth); });
  CHECK(usual != out);
  CHECK(diagnosed(made, usual, binary32).explanations.front().recipe.zero_rule == ZeroRule::floor);
}

TEST_CASE("the GEMM doctor takes scales of tiles as those of blocks where the tensor core multiplies with such") {
  HandGemm made(29);
  made.tile_a = drawn_scales(made.rows * 4, 5);
  made.tile_b = drawn_scales(4, 6);
  for (auto* scales : {&made.tile_a, &made.tile_b}) {
    for (float& scale : *scales) scale = std::exp2(std::round(std::log2(scale)));
  }
  HandGemm blocks = made;  // the same scales, a code for every 32 of K
  blocks.tile_a.clear();
  blocks.tile_b.clear();
  blocks.block = 32;
  const auto code = [](float scale) { return static_cast<std::uint8_t>(127 + std::ilogb(scale)); };
  for (std::size_t i = 0; i < made.rows * 16; ++i) blocks.block_a.push_back(code(made.tile_a[i / 4]));
  for (std::size_t i = 0; i < made.columns * 16; ++i) blocks.block_b.push_back(code(made.tile_b[i % 16 / 4]));
  const MmaModel& model = blackwell_mxf8;
  const auto out = blocks.all([&](auto m, auto n) { return blocks.chain(model, m, n, 0, blocks.depth); });
  check_named(diagnosed(made, out, binary32), {{.model = model}});
  std::ranges::fill(blocks.block_a, std::uint8_t{127});
  const auto bare = blocks.all([&](auto m, auto n) { return blocks.chain(model, m, n, 0, blocks.depth); });
  check_named(diagnosed(made, bare, binary32), {{.model = model}, "scale_a_missing"});
}

TEST_CASE("the GEMM doctor names how an output of FP8 is scaled and rounded") {
  HandGemm made(31, 128);
  made.scale_a = 0.0137F;
  made.scale_b = 1.731F;
  made.scale_out = 0.913F;
  const float alpha = made.scale_a * made.scale_b;
  const MmaModel& model = blackwell_tcgen05_fp8;
  const auto codes = [&](Rounding rounding, Overflow overflow, const std::function<float(float)>& epilogue) {
    std::vector<std::uint8_t> all;
    for (std::size_t m = 0; m < made.rows; ++m) {
      for (std::size_t n = 0; n < made.columns; ++n) {
        const float x = epilogue(made.chain(model, m, n, 0, made.depth));
        const CastPolicy policy{.rounding = rounding, .overflow = overflow};
        all.push_back(static_cast<std::uint8_t>(encode(e4m3, policy, x)));
      }
    }
    return all;
  };
  const auto check = [&](const std::vector<std::uint8_t>& words, Rounding rounding, bool saturated,
                         const std::string& departure = "") {
    const GemmDiagnosis found = diagnosed(made, words, e4m3);
    INFO(found.verdict);
    REQUIRE(found.explained());
    const CastPolicy cast = cast_of(found.explanations.front().recipe);
    CHECK(cast.rounding == rounding);
    CHECK((cast.overflow == Overflow::saturate) == saturated);
    CHECK(departure_of(found.explanations.front()) == departure);
  };
  const auto scaled = [&](float factor) { return [=](float x) { return x * alpha * factor; }; };
  using enum Rounding;
  check(codes(nearest_even, Overflow::saturate, scaled(made.scale_out)), nearest_even, true);
  check(codes(toward_zero, Overflow::saturate, scaled(made.scale_out)), toward_zero, true);
  check(codes(nearest_even, Overflow::saturate, scaled(1)), nearest_even, true, "scale_out_missing");
  check(codes(nearest_even, Overflow::saturate, scaled(1 / made.scale_out)), nearest_even, true, "scale_out_inverted");
  made.scale_out = 91.3F;  // some sums are beyond 448
  check(codes(nearest_even, Overflow::saturate, scaled(made.scale_out)), nearest_even, true);
  check(codes(nearest_even, Overflow::to_special, scaled(made.scale_out)), nearest_even, false);
}

TEST_CASE("the GEMM doctor shows what tells its first hypothesis from the next, and a probe is of the same kind") {
  HandGemm made = with_addends(33, true, true);
  made.row_a = drawn_scales(made.rows, 3);
  const MmaModel& model = blackwell_tcgen05_fp8;
  const auto out = made.all([&](auto m, auto n) {
    const float scaled = made.chain(model, m, n, 0, made.depth) * (made.row_a[m] * made.scale_a * made.scale_b);
    return scaled + made.c[m * made.columns + n] + made.bias[n];
  });
  const GemmDiagnosis found = diagnosed(made, out, binary32);
  INFO(found.verdict);
  REQUIRE(found.explained());
  REQUIRE(!found.shown.empty());
  CHECK(found.explanations.size() > found.tied);
  for (const doctor::GemmElement& one : found.shown) {
    CHECK(one.word == one.first);
    REQUIRE(one.second);
    CHECK(*one.second != one.first);
  }
  const doctor::GemmProbe probe = doctor::probe_gemm(std::span(found.explanations).first(2), found.inputs);
  CHECK(probe.rows == made.rows);
  CHECK(probe.depth <= made.depth);
  CHECK(probe.a.size() == made.rows * probe.depth);
  CHECK(probe.rows_a.size() == made.rows);
  CHECK(probe.rows_b.empty());
  CHECK(probe.c.size() == made.c.size());
  CHECK(probe.bias.size() == made.bias.size());
  CHECK(probe.scale_a != 1);
  CHECK(probe.scale_out == 1);
  CHECK(probe.alike.empty());
  HandGemm wrong = made;
  wrong.bias.pop_back();
  CHECK_THROWS_WITH(diagnosed(wrong, out, binary32), ContainsSubstring("the bias must have 9 elements"));
  wrong = made;
  wrong.c.pop_back();
  CHECK_THROWS_WITH(diagnosed(wrong, out, binary32), ContainsSubstring("c must have 8 x 9 elements"));
}

}  // namespace fp8lab::tests
