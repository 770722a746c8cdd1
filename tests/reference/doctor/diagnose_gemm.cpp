// SPDX-License-Identifier: Apache-2.0
// GEMMs composed by hand of single instructions, and what the doctor says of them.
#include "fp8lab/doctor/diagnose_gemm.hpp"

#include <cmath>
#include <numeric>

#include "fp8lab/formats/decode.hpp"
#include "reference/doctor/hand_gemm.hpp"

namespace fp8lab::tests {

TEST_CASE("the GEMM doctor names tensor core, promotion, split-K and order") {
  const HandGemm made;
  const std::size_t depth = made.depth;
  for (const MmaModel& model : {hopper_wgmma_fp8, hopper_wgmma_fp8_f16, blackwell_tcgen05_fp8, ada_mma_fp8, exact}) {
    INFO(model.name);
    const auto out = made.all([&](auto m, auto n) { return made.chain(model, m, n, 0, depth); });
    check_named(diagnosed(made, out, binary32), {{.model = model}});
  }
  const auto parts = [&](const MmaModel& model, auto m, auto n, std::size_t length) {
    std::vector<float> all;
    for (std::size_t k = 0; k < depth; k += length) {
      all.push_back(made.chain(model, m, n, k, std::min(depth, k + length)));
    }
    return all;
  };
  for (const int length : {32, 64, 128, 256}) {
    const auto out = made.all([&](auto m, auto n) {
      const auto all = parts(hopper_wgmma_fp8, m, n, static_cast<std::size_t>(length));
      return std::accumulate(all.begin(), all.end(), 0.0F);
    });
    check_named(diagnosed(made, out, binary32), {{.model = hopper_wgmma_fp8, .promote_k = length}});
  }
  // Hopper's accumulators have 14 bits, whose sums float32 mostly holds in any order. Blackwell's show it.
  const MmaModel& blackwell = blackwell_tcgen05_fp8;
  const auto descending = made.all([&](auto m, auto n) {
    const auto all = parts(blackwell, m, n, 128);
    return all[3] + all[2] + all[1] + all[0];
  });
  const GemmDiagnosis found = diagnosed(made, descending, binary32);
  REQUIRE(found.explained());
  CHECK(found.explanations.front().recipe.order == PartialOrder::descending);
  const GemmRecipe& in_order = found.explanations.front().recipe;
  CHECK(static_cast<std::size_t>(in_order.promote_k) + in_order.range_k == 128);
  const auto pairwise = made.all([&](auto m, auto n) {
    const auto all = parts(blackwell, m, n, 64);
    return ((all[0] + all[1]) + (all[2] + all[3])) + ((all[4] + all[5]) + (all[6] + all[7]));
  });
  check_named(diagnosed(made, pairwise, binary32),
              {{.model = blackwell_tcgen05_fp8, .range_k = 64, .order = PartialOrder::pairwise}});
  const auto ranges_descending = made.all([&](auto m, auto n) {
    const auto all = parts(blackwell, m, n, 64);
    return (((all[6] + all[7]) + (all[4] + all[5])) + (all[2] + all[3])) + (all[0] + all[1]);
  });
  check_named(diagnosed(made, ranges_descending, binary32),
              {{.model = blackwell_tcgen05_fp8, .promote_k = 64, .range_k = 128, .order = PartialOrder::descending}});
  const auto both = made.all([&](auto m, auto n) {
    const auto all = parts(blackwell, m, n, 64);
    return (((all[0] + all[1]) + all[2]) + all[3]) + (((all[4] + all[5]) + all[6]) + all[7]);
  });
  check_named(diagnosed(made, both, binary32), {{.model = blackwell_tcgen05_fp8, .promote_k = 64, .range_k = 256}});
}

TEST_CASE("the GEMM doctor names how scales are applied") {
  HandGemm made(7);
  const MmaModel& hopper = hopper_wgmma_fp8;
  SECTION("of tensors") {
    made.scale_a = 0.0137F;
    made.scale_b = 1.731F;
    const auto product = made.all(
        [&](auto m, auto n) { return made.chain(hopper, m, n, 0, made.depth) * (made.scale_a * made.scale_b); });
    check_named(diagnosed(made, product, binary32),
                {{.model = hopper_wgmma_fp8, .scale_order = ScaleOrder::scales_first}});
    const auto after =
        made.all([&](auto m, auto n) { return made.chain(hopper, m, n, 0, made.depth) * made.scale_b * made.scale_a; });
    check_named(diagnosed(made, after, binary32), {{.model = hopper_wgmma_fp8, .scale_order = ScaleOrder::b_first}});
  }
  SECTION("of rows") {
    made.row_a = drawn_scales(made.rows, 3);
    made.row_b = drawn_scales(made.columns, 4);
    const auto out = made.all(
        [&](auto m, auto n) { return made.chain(hopper, m, n, 0, made.depth) * made.row_a[m] * made.row_b[n]; });
    check_named(diagnosed(made, out, binary32),
                {{.model = hopper_wgmma_fp8, .scale_order = ScaleOrder::accumulator_first}});
  }
  SECTION("of tiles, at promotions") {
    made.tile_a = drawn_scales(made.rows * 4, 5);
    made.tile_b = drawn_scales(4, 6);
    const auto tiles = [&](const auto& add) {
      return made.all([&](auto m, auto n) {
        float sum = 0;
        for (std::size_t j = 0; j < 4; ++j) {
          sum = add(sum, made.chain(hopper, m, n, 128 * j, 128 * j + 128), made.tile_a[m * 4 + j], made.tile_b[j]);
        }
        return sum;
      });
    };
    Planted expected{{.model = hopper, .promote_k = 128, .scale_order = ScaleOrder::scales_first}};
    const auto fused = [](float sum, float x, float a, float b) { return std::fma(a * b, x, sum); };
    check_named(diagnosed(made, tiles(fused), binary32), expected);
    expected.recipe.fused = false;
    const auto apart = [](float sum, float x, float a, float b) {
      const float product = x * (a * b);
      return sum + product;
    };
    check_named(diagnosed(made, tiles(apart), binary32), expected);
    expected.recipe.fused = true;
    expected.recipe.scale_order = ScaleOrder::accumulator_first;
    const auto a_first = [](float sum, float x, float a, float b) { return std::fma(x * a, b, sum); };
    check_named(diagnosed(made, tiles(a_first), binary32), expected);
    expected.recipe.scale_order = ScaleOrder::scales_first;
    expected.departure = "scale_b_missing";
    const auto forgotten = [](float sum, float x, float a, float /*b*/) { return std::fma(a, x, sum); };
    check_named(diagnosed(made, tiles(forgotten), binary32), expected);
  }
  SECTION("of blocks, by the tensor core") {
    made.block = 32;
    for (std::size_t i = 0; i < made.rows * 16; ++i) {
      made.block_a.push_back(static_cast<std::uint8_t>(120 + random_bits(8, i) % 9));
    }
    for (std::size_t i = 0; i < made.columns * 16; ++i) {
      made.block_b.push_back(static_cast<std::uint8_t>(122 + random_bits(9, i) % 9));
    }
    const auto whole = [&](const HandGemm& gemm) {
      return gemm.all([&](auto m, auto n) { return gemm.chain(blackwell_mxf8, m, n, 0, gemm.depth); });
    };
    check_named(diagnosed(made, whole(made), binary32), {{.model = blackwell_mxf8}});
    // The type of the scales follows from their number.
    const std::vector<float> right = whole(made);
    Operand untyped = made.left();
    untyped.scales.type.reset();
    const GemmOutput out{.words = std::as_bytes(std::span(right))};
    check_named(diagnose_gemm(untyped, made.right(), out), {{.model = blackwell_mxf8}});
    untyped.scales.codes = untyped.scales.codes.first(3);
    CHECK_THROWS_WITH(diagnose_gemm(untyped, made.right(), out), ContainsSubstring("no model takes 3 block scales"));
    HandGemm bare = made;
    std::ranges::fill(bare.block_b, std::uint8_t{127});
    check_named(diagnosed(made, whole(bare), binary32), {{.model = blackwell_mxf8}, "scale_b_missing"});
  }
}

TEST_CASE("the GEMM doctor names how the output was rounded") {
  HandGemm made(9);
  const auto sums = made.all([&](auto m, auto n) { return made.chain(blackwell_tcgen05_fp8, m, n, 0, made.depth); });
  GemmRecipe expected{.model = blackwell_tcgen05_fp8};
  // What 72 elements of bfloat16 tell of an accumulator: that of this model, or some that are alike.
  const auto check = [&](const std::vector<std::uint16_t>& words, const Format& format) {
    const GemmDiagnosis found = diagnosed(made, words, format);
    INFO(found.verdict);
    REQUIRE(found.explained());
    expected.output = format;
    CHECK(found.explanations.front().recipe.cast == expected.cast);
    CHECK(std::ranges::any_of(std::span(found.explanations).first(found.tied), [&](const auto& one) {
      GemmRecipe own = one.recipe;
      own.model = expected.model;
      return own == expected && one.departures.empty() && std::ranges::count(one.models, expected.model.name) == 1;
    }));
  };
  check(rounded_to(bfloat16, sums), bfloat16);
  check(rounded_to(binary16, sums), binary16);
  expected.cast = cuda_nosat_policy;
  expected.cast->rounding = Rounding::toward_zero;
  check(rounded_to(bfloat16, sums, Rounding::toward_zero), bfloat16);
  std::vector<float> halves;
  for (const std::uint16_t word : rounded_to(binary16, sums)) halves.push_back(decode(binary16, word));
  const GemmDiagnosis twice = diagnosed(made, rounded_to(bfloat16, halves), bfloat16);
  CHECK(twice.explained());
}

TEST_CASE("the GEMM doctor names defects", "[long]") {
  HandGemm made(11, 256);
  made.scale_a = 0.0137F;
  made.scale_b = 1.731F;
  const MmaModel& hopper = hopper_wgmma_fp8;
  const float alpha = made.scale_a * made.scale_b;
  Planted expected{{.model = hopper, .scale_order = ScaleOrder::scales_first}};
  const auto whole = [&](const HandGemm& gemm, float scale) {
    return gemm.all([&](auto m, auto n) { return gemm.chain(hopper, m, n, 0, gemm.depth) * scale; });
  };
  const auto named = [&](const std::vector<float>& out, const std::string& departure, std::size_t depth = 0) {
    expected.departure = departure;
    expected.depth = depth;
    check_named(diagnosed(made, out, binary32), expected);
  };
  HandGemm turned = made;
  for (std::size_t m = 0; m < made.rows; ++m) {
    for (std::size_t k = 0; k < made.depth; ++k) turned.a[m * made.depth + k] = made.a[k * made.rows + m];
  }
  named(whole(turned, alpha), "a_transposed");
  turned = made;
  for (std::size_t n = 0; n < made.columns; ++n) {
    for (std::size_t k = 0; k < made.depth; ++k) turned.b[n * made.depth + k] = made.b[k * made.columns + n];
  }
  named(whole(turned, alpha), "b_transposed");
  const std::vector<float> right = whole(made, alpha);
  std::vector<float> stored(right.size());
  for (std::size_t i = 0; i < right.size(); ++i) stored[i % made.columns * made.rows + i / made.columns] = right[i];
  named(stored, "out_transposed");
  named(whole(made, made.scale_b), "scale_a_missing");
  named(whole(made, 1), "scales_missing");
  named(whole(made, 1 / made.scale_a * (1 / made.scale_b)), "scales_inverted");
  named(whole(made, made.scale_a * made.scale_a * made.scale_b), "scale_a_twice");
  const auto short_of = made.all([&](auto m, auto n) { return made.chain(hopper, m, n, 0, 192) * alpha; });
  named(short_of, "tail_dropped", 192);
}

TEST_CASE("the GEMM doctor works on a few elements, and says what it cannot tell apart, and a probe parts it") {
  const HandGemm made(13);
  const std::vector<float> all =
      made.all([&](auto m, auto n) { return made.chain(hopper_wgmma_fp8, m, n, 0, made.depth); });
  const std::vector<std::size_t> indices{3, 47, 41, 68, 9, 64};
  std::vector<float> few;
  for (const std::size_t i : indices) few.push_back(all[i]);
  const GemmOutput out{.words = std::as_bytes(std::span(few)), .indices = indices};
  const GemmDiagnosis found = diagnose_gemm(made.left(), made.right(), out);
  check_named(found, {{.model = hopper_wgmma_fp8}});
  CHECK(found.elements == 6);
  // One element that is zero tells nothing.
  HandGemm zeros = made;
  std::ranges::fill(zeros.a, std::uint8_t{0});
  const std::vector<float> zero(zeros.rows * zeros.columns, 0.0F);
  const GemmDiagnosis open = diagnosed(zeros, zero, binary32);
  CHECK(open.explained());
  CHECK(open.tied > 10);
  CHECK_THAT(open.verdict, ContainsSubstring("Cannot tell: "));
  CHECK(!open.correct());
  CHECK(!open.is_telling);
  const auto some = std::span(open.explanations).first(6);
  const doctor::GemmProbe probe = doctor::probe_gemm(some, open.inputs);
  CHECK(probe.pairs == 15);
  CHECK(probe.parted() == 15);
}

TEST_CASE("the GEMM doctor says that nothing explains noise, and refuses what is no product", "[long]") {
  const HandGemm made(17);
  std::vector<float> noise(made.rows * made.columns);
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<float>(random_bits(5, i) >> 40) * 0x1.234p-9F;
  const GemmDiagnosis found = diagnosed(made, noise, binary32);
  CHECK(!found.explained());
  CHECK_THAT(found.verdict, ContainsSubstring("No hypothesis explains any"));
  CHECK(!found.shown.empty());
  // Fewer elements than are looked at first, of which one is right.
  const std::vector<float> two{made.chain(blackwell_tcgen05_fp8, 0, 5, 0, made.depth), noise[40]};
  const GemmOutput some{.words = std::as_bytes(std::span(two)), .indices = {5, 40}};
  CHECK(!diagnose_gemm(made.left(), made.right(), some).explained());
  noise.pop_back();
  CHECK_THROWS_WITH(diagnosed(made, noise, binary32), ContainsSubstring("out must have 72 elements of 4 bytes"));
  HandGemm other = made;
  Operand right = other.right();
  right.depth = 256;
  right.rows = 18;
  CHECK_THROWS_WITH(diagnose_gemm(other.left(), right, {}), ContainsSubstring("the same K, not 512 and 256"));
  const std::vector<float> few(1);
  const GemmOutput out{.words = std::as_bytes(std::span(few)), .indices = {72}};
  CHECK_THROWS_WITH(diagnose_gemm(made.left(), made.right(), out), ContainsSubstring("index 72 is beyond"));
}

}  // namespace fp8lab::tests
