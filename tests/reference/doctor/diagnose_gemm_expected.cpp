// SPDX-License-Identifier: Apache-2.0
// What a GEMM should have done, and where its elements are that it did not, of GEMMs composed by hand.
#include <bit>
#include <cmath>

#include "fp8lab/formats/decode.hpp"
#include "reference/doctor/hand_gemm.hpp"

namespace fp8lab::tests {
namespace {

GemmDiagnosis diagnosed(const HandGemm& made, const std::vector<float>& out, const GemmRecipe& expected) {
  const GemmOutput output{.words = std::as_bytes(std::span(out)), .c = made.c, .bias = made.bias};
  return diagnose_gemm(made.left(), made.right(), output, {.expected = expected});
}

}  // namespace

TEST_CASE("the GEMM doctor calls the expected GEMM correct, and no other") {
  const HandGemm made(41);
  const MmaModel& model = blackwell_tcgen05_fp8;
  const std::string name(model.name);
  const auto ranges = made.all([&](auto m, auto n) {
    return made.chain(model, m, n, 384, 512) + made.chain(model, m, n, 192, 384) + made.chain(model, m, n, 0, 192);
  });
  const GemmRecipe descending{.model = model, .split_k = {192, 192, 128}, .split_order = {2, 1, 0}};
  const GemmDiagnosis right = diagnosed(made, ranges, descending);
  INFO(right.verdict);
  CHECK(right.correct());
  CHECK(right.is_expected());
  CHECK_THAT(right.verdict, ContainsSubstring("Correct: all 72 elements"));
  const GemmDiagnosis other = diagnosed(made, ranges, {.model = model});
  CHECK(!other.correct());
  CHECK(other.explained());
  CHECK(other.expected_unexplained > 0);
  CHECK_THAT(other.verdict, ContainsSubstring("Not " + name + ": "));
  CHECK_THROWS_WITH(diagnosed(made, ranges, {.model = model, .promote_k = 48}),
                    ContainsSubstring("promote_k must be a multiple of 32"));
  CHECK_THROWS_WITH(diagnosed(made, ranges, {.model = model, .split_k = {512, 32}}), ContainsSubstring("add up to K"));
}

TEST_CASE("the GEMM doctor expects ranges of several lengths in any order, promoted and not") {
  const HandGemm made(47);
  const MmaModel& model = blackwell_tcgen05_fp8;
  const std::string name(model.name);
  const auto promoted = [&](auto m, auto n, std::size_t first, std::size_t last) {
    float sum = 0;
    for (std::size_t k = first; k < last; k += 64) sum += made.chain(model, m, n, k, std::min(last, k + 64));
    return sum;
  };
  const auto whole = made.all([&](auto m, auto n) {
    return made.chain(model, m, n, 64, 384) + made.chain(model, m, n, 384, 512) + made.chain(model, m, n, 0, 64);
  });
  const auto parts = made.all([&](auto m, auto n) { return promoted(m, n, 0, 64) + promoted(m, n, 64, 512); });
  const GemmRecipe turned{.model = model, .split_k = {64, 320, 128}, .split_order = {1, 2, 0}};
  CHECK(diagnosed(made, whole, turned).correct());
  CHECK_THAT(diagnosed(made, whole, turned).verdict, ContainsSubstring("ranges of 64 320 128"));
  CHECK(diagnosed(made, parts, {.model = model, .promote_k = 64, .split_k = {64, 448}}).correct());
  CHECK_FALSE(diagnosed(made, whole, {.model = model, .split_k = {64, 320, 128}}).is_expected());
  CHECK_FALSE(
      diagnosed(made, whole, {.model = model, .split_k = {320, 64, 128}, .split_order = {1, 2, 0}}).is_expected());
  CHECK_FALSE(diagnosed(made, parts, {.model = model, .promote_k = 64, .split_k = {448, 64}}).is_expected());
  CHECK_THROWS_WITH(diagnosed(made, whole, {.model = model, .split_k = {0, 512}}), ContainsSubstring("not 0"));
  CHECK_THROWS_WITH(diagnosed(made, whole, {.model = model, .split_k = {100, 412}}),
                    ContainsSubstring("a positive multiple of 32"));
  CHECK_THROWS_WITH(diagnosed(made, whole, {.model = model, .split_k = {64, 448}, .split_order = {1, 1}}),
                    ContainsSubstring("every number from 0 to below 2"));
}

TEST_CASE("the GEMM doctor expects scales of rows and tensors at once, and any rounding of the output") {
  HandGemm made(53);
  const MmaModel& model = blackwell_tcgen05_fp8;
  const std::string name(model.name);
  made.row_a = drawn_scales(made.rows, 1);
  made.row_b = drawn_scales(made.columns, 2);
  made.scale_a = 0.37F;
  made.scale_b = 1.9F;
  const float alpha = made.scale_a * made.scale_b;
  const auto scaled = made.all([&](auto m, auto n) {
    const float by_rows = made.chain(model, m, n, 0, made.depth) * made.row_a[m] * made.row_b[n];
    return by_rows * alpha;
  });
  CHECK(diagnosed(made, scaled, {.model = model}).correct());
  CHECK_FALSE(diagnosed(made, scaled, {.model = model, .scale_order = ScaleOrder::scales_first}).is_expected());
  const HandGemm bare(59);
  CastPolicy upward = cuda_nosat_policy;
  upward.rounding = Rounding::upward;
  std::vector<std::uint16_t> words;
  for (const float x : bare.all([&](auto m, auto n) { return bare.chain(model, m, n, 0, bare.depth); })) {
    // Up to the next bfloat16: the bits that are cut off count for positive numbers alone.
    const std::uint32_t word = std::bit_cast<std::uint32_t>(x);
    words.push_back(static_cast<std::uint16_t>((word >> 16) + (x > 0 && (word & 0xFFFF) != 0 ? 1 : 0)));
  }
  const GemmOutput output{.format = bfloat16, .words = std::as_bytes(std::span(words))};
  GemmRecipe expected{.model = model};
  expected.cast = upward;
  const auto found = diagnose_gemm(bare.left(), bare.right(), output, {.expected = expected});
  INFO(found.verdict);
  CHECK(found.correct());
  CHECK_FALSE(diagnose_gemm(bare.left(), bare.right(), output, {.expected = GemmRecipe{.model = model}}).is_expected());
  expected.cast->rounding = Rounding::stochastic;
  CHECK_THROWS_WITH(diagnose_gemm(bare.left(), bare.right(), output, {.expected = expected}),
                    ContainsSubstring("rounded stochastically"));
  const GemmRecipe slope{.model = hopper_wgmma_fp8, .activation = GemmActivation::dgelu, .output = bfloat16};
  CHECK_THROWS_WITH(diagnose_gemm(bare.left(), bare.right(), output, {.expected = slope}),
                    ContainsSubstring("activation dgelu has an activation_input"));
}

TEST_CASE("the GEMM doctor does not call float32 sums of codes correct, for no tensor core computes them") {
  const HandGemm made(61);
  const auto out = made.all([&](auto m, auto n) {
    float sum = 0;
    for (std::size_t k = 0; k < made.depth; ++k) {
      sum += decode(e4m3, made.a[m * made.depth + k]) * decode(e4m3, made.b[n * made.depth + k]);
    }
    return sum;
  });
  const GemmOutput output{.words = std::as_bytes(std::span(out))};
  const GemmDiagnosis found = diagnose_gemm(made.left(), made.right(), output);
  INFO(found.verdict);
  CHECK(found.explained());
  CHECK_FALSE(found.correct());
  CHECK_THAT(
      found.verdict,
      ContainsSubstring("Explained: all 72 elements are those of cuda_cores (float32 sums without a tensor core)"));
  CHECK_THAT(found.verdict, ContainsSubstring("No tensor core that was searched computes this."));
  // They are what is meant where operands are float32.
  std::vector<float> a;
  std::vector<float> b;
  for (const std::uint8_t code : made.a) a.push_back(decode(e4m3, code));
  for (const std::uint8_t code : made.b) b.push_back(decode(e4m3, code));
  const Operand left = Operand::floats(a, made.rows, made.depth);
  const Operand right = Operand::floats(b, made.columns, made.depth);
  CHECK(diagnose_gemm(left, right, output).correct());
}

TEST_CASE("the GEMM doctor locates the elements that it leaves") {
  const HandGemm made(43);
  const MmaModel& model = blackwell_tcgen05_fp8;
  auto out = made.all([&](auto m, auto n) { return made.chain(model, m, n, 0, made.depth); });
  const float right = out[4 * made.columns + 7];
  out[4 * made.columns + 7] = std::nextafter(right, 1e30F);
  const GemmDiagnosis found = diagnosed(made, out, {.model = model});
  INFO(found.verdict);
  REQUIRE(found.shown.size() == 1);
  CHECK(found.shown.front().row == 4);
  CHECK(found.shown.front().column == 7);
  CHECK(found.shown.front().first == std::bit_cast<std::uint32_t>(right));
  REQUIRE(found.rest.size() == 2);
  CHECK_THAT(found.rest.back(), ContainsSubstring("Located: all rows are near exact sums"));
  CHECK_THAT(found.rest.front(), ContainsSubstring("All lie in row 4 of 8. All lie in column 7 of 9."));
  CHECK(!found.correct());
}

}  // namespace fp8lab::tests
