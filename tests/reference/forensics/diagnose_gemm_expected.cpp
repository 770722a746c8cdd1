// SPDX-License-Identifier: Apache-2.0
// What a GEMM should have done, and where its elements are that it did not, of GEMMs composed by hand.
#include <bit>
#include <cmath>

#include "reference/forensics/hand_gemm.hpp"

namespace fp8lab::tests {
namespace {

using forensics::ExpectedGemm;

GemmDiagnosis diagnosed(const HandGemm& made, const std::vector<float>& out, const ExpectedGemm& expected) {
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
  const ExpectedGemm descending{.model = name, .split_k = {192, 192, 128}, .split_order = {2, 1, 0}};
  const GemmDiagnosis right = diagnosed(made, ranges, descending);
  INFO(right.verdict);
  CHECK(right.correct());
  CHECK(right.is_expected());
  CHECK_THAT(right.verdict, ContainsSubstring("Correct: all 72 elements"));
  const GemmDiagnosis other = diagnosed(made, ranges, {.model = name});
  CHECK(!other.correct());
  CHECK(other.explained());
  CHECK(other.expected_unexplained > 0);
  CHECK_THAT(other.verdict, ContainsSubstring("Not " + name + ": "));
  CHECK_THROWS_WITH(diagnosed(made, ranges, {.model = name, .promote_k = 48}), ContainsSubstring("promote_k is 48"));
  CHECK_THROWS_WITH(diagnosed(made, ranges, {.model = name, .split_k = {512, 32}}), ContainsSubstring("add up to K"));
}

TEST_CASE("the GEMM doctor locates the elements that it leaves") {
  const HandGemm made(43);
  const MmaModel& model = blackwell_tcgen05_fp8;
  auto out = made.all([&](auto m, auto n) { return made.chain(model, m, n, 0, made.depth); });
  const float right = out[4 * made.columns + 7];
  out[4 * made.columns + 7] = std::nextafter(right, 1e30F);
  const GemmDiagnosis found = diagnosed(made, out, {.model = std::string(model.name)});
  INFO(found.verdict);
  REQUIRE(found.shown.size() == 1);
  CHECK(found.shown.front().row == 4);
  CHECK(found.shown.front().column == 7);
  CHECK(found.shown.front().first == std::bit_cast<std::uint32_t>(right));
  REQUIRE(found.rest.size() == 1);
  CHECK_THAT(found.rest.front(), ContainsSubstring("All lie in row 4 of 8. All lie in column 7 of 9."));
  CHECK(!found.correct());
}

}  // namespace fp8lab::tests
