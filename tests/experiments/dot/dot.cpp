// SPDX-License-Identifier: Apache-2.0
#include "dot/dot.hpp"

#include <cmath>

#include "cast/cast.hpp"
#include "catch.hpp"
#include "experiments/documents.hpp"
#include "experiments/npy.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "scratch.hpp"

namespace fp8lab::experiments {
namespace {

DotArguments of_codes(const MmaModel& model, const Codes& a, const Codes& b) {
  const Format& format = model.operands.front();
  return {model, {format, a, {}, "codes"}, {format, b, {}, "codes"}};
}

/// gemm's float32 of the same dot product.
std::uint32_t gemm_word(const MmaModel& model, const DotArguments& arguments, int promote_k) {
  const Elements left(arguments.a.codes, arguments.a.format);
  const Elements right(arguments.b.codes, arguments.b.format);
  const std::size_t depth = arguments.a.codes.size();
  float out = 0;
  gemm({.model = model, .promote_k = promote_k}, left.operand(1, depth), right.operand(1, depth), std::span(&out, 1));
  return std::bit_cast<std::uint32_t>(out);
}

bool names(const std::vector<DotCandidate>& candidates, std::string_view model, int promote_k) {
  return std::ranges::any_of(candidates, [&](const DotCandidate& candidate) {
    return candidate.model == model && candidate.promote_k == promote_k;
  });
}

}  // namespace

TEST_CASE("dot: a report worked out by hand") {
  // 448 * 448 = 1.53125 * 2^17, whose factors' exponents are 8 and 8: E is 16, and a unit 2^3. c = 13 is 8 + 5, and
  // -30 * 0.5 = -15 is -8 - 7. 200704 + 8 - 8 is 24.5 * 2^13: all of it stays, the word is 48440000.
  DotArguments arguments = of_codes(hopper_wgmma_fp8, {0x7E, 0xDF, 0x00}, {0x7E, 0x30, 0x38});
  arguments.options.c = std::bit_cast<std::uint32_t>(13.0F);
  arguments.got = 0x48440000;
  const DotResult result = run_dot(arguments);
  CHECK(result.passed());
  CHECK(result.exact == 200702.0F);
  const std::string report = text_of(document_of(result), {.unicode = false});
  const std::string told =
      "K = 3, filled up with 29 zeros; zero rule floor; c 41500000 = 13\n"
      "\n"
      "k 0 to 2\n"
      "largest exponent E = 16 (k 0): multiples of 2^3 are kept\n"
      "\n"
      "  k       a       b  product  exp  cut off  kept | cut off, in binary\n"
      "  c                       13    3        5  +  .            1|101\n"
      "  0  7e 448  7e 448   200704   16        0  +11.0001000000000|\n"
      "  1  df -30  30 0.5      -15    3       -7  -  .            1|111\n"
      "\n"
      "sum of what is kept: 25088 * 2^3 = 200704; cut off in all: -2\n"
      "accumulator: 48440000 = 200704, bits 0 10010000 10001000000000000000000\n"
      "\n"
      "Result: 48440000 = 200704, bits 0 10010000 10001000000000000000000\n"
      "Exact: 4843ff80 = 200702, the real sum of what was given, rounded once\n"
      "Got: 48440000 = 200704, equal\n";
  CHECK_THAT(report, ContainsSubstring(told));
  CHECK_THAT(text_of(document_of(result), {.width = 40}), ContainsSubstring("1|101"));  // in a block of its own
}

TEST_CASE("dot: NaN, infinity, groups and the last addition are told") {
  const auto report = [](const DotArguments& arguments) { return text_of(document_of(run_dot(arguments))); };
  DotArguments special = of_codes(blackwell_tcgen05_fp8, {0x7F, 0x38}, {0x38, 0x38});
  special.options.c = 0xFF800000;
  CHECK_THAT(report(special), ContainsSubstring("NaN or infinity decides: c is -inf, k 0 is nan\n"));
  DotArguments lowered = of_codes(hopper_mma_sync_fp8, {0x38, 0x38, 0x40}, {0x38, 0x38, 0x38});
  lowered.options.c = 0x41200000;
  CHECK_THAT(report(lowered), ContainsSubstring("step 2: largest exponent E = 1 (c, k 2)") &&
                                  ContainsSubstring("plus c 41200000 = 10, rounded to nearest: 41600000 = 14\n"));
  DotArguments groups = of_codes(blackwell_mxf4, Codes(64, 2), Codes(64, 2));  // ones
  groups.b.codes.back() = 0;
  groups.a.scales = {127, 128}, groups.b.scales = {127, 127};
  CHECK_THAT(report(groups), ContainsSubstring("scales of block 1: 80 = 2, 7f = 1\n") &&
                                 ContainsSubstring("48-63  15 not zero") && ContainsSubstring("(k 32-47, k 48-63)"));
  const DotArguments zeros = of_codes(hopper_wgmma_fp8, Codes(4, 0), Codes(4, 0x38));
  CHECK_THAT(report(zeros), ContainsSubstring("nothing to align: all terms are zero\n"));
}

TEST_CASE("dot: of many instructions a line each, and one in full") {
  DotArguments arguments = of_codes(hopper_wgmma_fp8, Codes(160, 0x38), Codes(160, 0x38));
  arguments.options.promote_k = 64;
  const std::string lines = text_of(document_of(run_dot(arguments)));
  CHECK_THAT(lines, ContainsSubstring("  k        E  cut off  accumulator  value  promoted\n"
                                      "  0-31     0        0  42000000        32  -\n"
                                      "  32-63    5        0  42800000        64  42800000\n"));
  CHECK_THAT(lines, ContainsSubstring("  128-159  0        0  42000000        32  43200000\n"));
  CHECK_THAT(lines, !ContainsSubstring("largest exponent"));
  arguments.at = 70;
  CHECK_THAT(text_of(document_of(run_dot(arguments))), ContainsSubstring("\nk 64 to 95\nlargest exponent"));
  arguments.at = 160;
  CHECK_THROWS_WITH(run_dot(arguments), "at must be from 0 to 159, not 160");
}

TEST_CASE("dot: what else gives a word is found") {
  // Codes whose models all differ: large ones that cancel, and small ones.
  const Dots dots = hard_dots(same_as(hopper_wgmma_fp8, ""), e4m3, e4m3, 64, 11);
  int found = 0;
  for (const auto& [name, promote_k] :
       {std::pair{"ada_mma_fp8", 0}, std::pair{"blackwell_tcgen05_fp8", 0}, std::pair{"hopper_wgmma_fp8", 32},
        std::pair{"hopper_mma_sync_fp8", 64}, std::pair{"hopper_wgmma_fp8_f16", 0}, std::pair{"exact", 0}}) {
    for (std::size_t i = 0; i + 4 <= dots.count(); i += 4) {
      const auto part = [&](const Codes& codes) {
        const auto first = codes.begin() + static_cast<std::ptrdiff_t>(i * dots.k);
        return Codes(first, first + static_cast<std::ptrdiff_t>(4 * dots.k));
      };
      DotArguments arguments = of_codes(hopper_wgmma_fp8, part(dots.a), part(dots.b));
      arguments.got = gemm_word(find_model(name), arguments, promote_k);
      const DotResult result = run_dot(arguments);
      CHECK(result.passed() == (arguments.got == gemm_word(hopper_wgmma_fp8, arguments, 0)));
      CHECK(result.passed() == result.candidates.empty());
      if (result.passed()) continue;
      INFO(name << " promoted every " << promote_k << ", dot " << i);
      CHECK(names(result.candidates, name, promote_k));
      for (const DotCandidate& candidate : result.candidates) {
        CHECK(gemm_word(find_model(candidate.model), arguments, candidate.promote_k) == arguments.got);
      }
      ++found;
    }
  }
  CHECK(found > 20);

  DotArguments half = of_codes(ada_mma_fp8_f16, {0x38}, {0x38});
  half.options.c = 0x3C00;
  half.got = 0x4001;
  const DotResult nothing = run_dot(half);
  CHECK(nothing.candidates.empty());
  CHECK_THAT(text_of(document_of(nothing)),
             ContainsSubstring("4001 = 2.00195312, NOT equal: it differs by +0.00195312\n") &&
                 ContainsSubstring("No model that takes these operands gives it"));
  half.got = 0x14001;
  CHECK_THROWS_WITH(run_dot(half), "got must be a word of float16, the result's format, of 16 bits");
}

TEST_CASE("dot: a search is stopped by its progress") {
  DotArguments arguments = of_codes(hopper_wgmma_fp8, {0x38}, {0x38});
  arguments.got = 0x12345678;
  CHECK_THROWS_WITH(run_dot(arguments, [](double) { throw std::runtime_error("stopped"); }), "stopped");
}

TEST_CASE("dot: zero rules that give a word are named") {
  // A group of zeros with scales of 2^40 leaves c = 1 nothing, unless its rule does not count it.
  DotArguments arguments = of_codes(blackwell_mxf4, Codes(64, 0), Codes(64, 2));
  arguments.a.scales = arguments.b.scales = Scales(2, 127 + 20);
  arguments.options.c = 0x3F800000;
  arguments.options.zero_rule = ZeroRule::skip_terms;
  arguments.got = 0x3F800000;
  const DotResult result = run_dot(arguments);
  REQUIRE(result.candidates.size() > 0);
  CHECK(result.candidates.front().model == "blackwell_mxf8");  // whose products are alone
  REQUIRE(names(result.candidates, "blackwell_mxf4", 0));
  for (const DotCandidate& candidate : result.candidates) {
    if (candidate.model != "blackwell_mxf4") continue;
    CHECK(candidate.zero_rules ==
          std::vector{ZeroRule::floor, ZeroRule::skip_empty_groups, ZeroRule::skip_zero_groups});
  }
  CHECK_FALSE(result.exact);
}

TEST_CASE("dot: tables tell the same") {
  DotArguments arguments = of_codes(ada_mma_fp8, Codes(40, 0x3B), Codes(40, 0xC1));
  arguments.a.codes[3] = 0x7F;
  arguments.got = 0;
  const Document document = document_of(run_dot(arguments));
  CHECK(document.passed == false);
  CHECK(tests::column_of<Texts>(document, "operands", "codes")[0]->substr(0, 10) == "3b3b3b7f3b");
  CHECK(tests::column_of<Texts>(document, "result", "word") == Texts{"7fffffff"});
  CHECK(std::isnan(tests::column_of<Numbers>(document, "result", "value")[0]));
  CHECK(tests::column_of<Flags>(document, "result", "equal") == Flags{false});
  CHECK(tests::column_of<Integers>(document, "instructions", "products") == Integers{32, 8});
  CHECK(tests::column_of<Integers>(document, "steps", "instruction") == Integers{0, 0, 32, 32});
  CHECK_FALSE(tests::column_of<Integers>(document, "steps", "exponent")[0]);
  CHECK(tests::column_of<Integers>(document, "terms", "k")[4] == 3);  // after the accumulator and three products
  CHECK(std::isnan(tests::column_of<Numbers>(document, "terms", "value")[4]));
  CHECK(tests::column_of<Integers>(document, "products", "k")[2] == 2);
  CHECK(tests::column_of<Texts>(document, "products", "code_b")[2] == "c1");
  CHECK(tests::column_of<Numbers>(document, "products", "a")[2] == 1.375);
  CHECK(tests::column_of<Numbers>(document, "products", "b")[2] == -2.25);
}

TEST_CASE("dot: codes are read with commas and without") {
  CHECK(parse_codes(e4m3, "38,3c,c1") == Codes{0x38, 0x3C, 0xC1});
  CHECK(parse_codes(e4m3, "383cC1") == Codes{0x38, 0x3C, 0xC1});
  CHECK(parse_codes(e4m3, "8,0x3c") == Codes{0x08, 0x3C});
  CHECK(parse_codes(e2m1, "0f0a") == Codes{0xF, 0xA});
  CHECK(parse_codes(binary16, "3c00,1") == Codes{0x3C00, 1});
  CHECK(parse_codes(binary16, "3c00bc00") == Codes{0x3C00, 0xBC00});
  CHECK(parse_codes(binary32, "3f800000") == Codes{0x3F800000});
  CHECK_THROWS_WITH(parse_codes(e4m3, "383"), ContainsSubstring("3 digits are not a multiple of that"));
  CHECK_THROWS_WITH(parse_codes(e4m3, "38,"), "\"\" is not a hexadecimal code of e4m3, which has 8 bits");
  CHECK_THROWS_WITH(parse_codes(e2m1, "10"), "\"10\" is not a hexadecimal code of e2m1, which has 4 bits");
  CHECK_THROWS_WITH(parse_codes(e4m3, "-1,2"), ContainsSubstring("\"-1\" is not a hexadecimal code"));
  CHECK(operand_format("float32") == binary32);
  CHECK_THROWS_WITH(operand_format("tf32"), ContainsSubstring("unknown format 'tf32'; known: e4m3"));
}

TEST_CASE("dot: numbers are rounded, and how many of them changed is said") {
  const std::vector<double> numbers{1, 0.3, 1e9, -0.0, NAN};
  const DotOperand operand = operand_of_values(e4m3, numbers);
  CHECK(operand.codes == Codes{0x38, 0x2A, 0x7E, 0x80, 0x7F});
  CHECK(operand.source == "5 numbers, 2 of them changed by rounding to e4m3");
  CHECK(operand_of_values(binary32, std::vector<double>{0.1}).codes == Codes{0x3DCCCCCD});
  CHECK(operand_of_values(binary16, std::vector<double>{0.1}).codes == Codes{0x2E66});
}

TEST_CASE("dot: rows of .npy files, in either order of memory") {
  const tests::Scratch scratch;
  const std::string path = scratch.path / "x.npy";
  const std::vector<std::uint8_t> codes{1, 2, 3, 4, 5, 6};
  tests::write_npy(path, "|u1", "(2, 3)", codes);
  CHECK(operand_of_tensor(e5m2, StoredTensors{{path}}, 1).codes == Codes{4, 5, 6});
  CHECK_THAT(operand_of_tensor(e5m2, StoredTensors{{path}}, 1).source,
             ContainsSubstring("row 1 of \"") && ContainsSubstring(": 3 codes"));
  tests::write_npy(path, "|u1", "(2, 3)", codes, true);
  CHECK(operand_of_tensor(e5m2, StoredTensors{{path}}, 1).codes == Codes{2, 4, 6});
  CHECK_THROWS_WITH(operand_of_tensor(binary16, StoredTensors{{path}}, 0),
                    ContainsSubstring("holds uint8 codes, and a code of float16 has 16"));
  CHECK_THROWS_WITH(operand_of_tensor(e4m3, StoredTensors{{path}}, 2),
                    ContainsSubstring("x.npy\" has rows 0 to 1, and no row 2"));
  tests::write_npy(path, "<f4", "(2, 2)", std::vector<float>{1, 2, 3, 4.1F});
  const DotOperand rounded = operand_of_tensor(e4m3, StoredTensors{{path}}, 1);
  CHECK(rounded.codes == Codes{0x44, 0x48});
  CHECK_THAT(rounded.source, ContainsSubstring("2 numbers of float32, 1 of them changed by rounding to e4m3"));
  tests::write_npy(path, "<f8", "(2, 2)", std::vector<double>{1, 2, 0.5, 4}, true);
  CHECK(operand_of_tensor(e4m3, StoredTensors{{path}}, 0).codes == Codes{0x38, 0x30});
  tests::write_npy(path, "<f2", "(1, 2)", std::vector<std::uint16_t>{0x3C00, 0xBC00});
  CHECK(operand_of_tensor(binary16, StoredTensors{{path}}, 0).codes == Codes{0x3C00, 0xBC00});
  tests::write_npy(path, "|u1", "(6,)", codes);
  CHECK_THROWS_WITH(operand_of_tensor(e4m3, StoredTensors{{path}}, 0),
                    ContainsSubstring("must hold a matrix, not 1 dimensions"));
  CastArguments cast;
  cast.source = StoredTensors{{path}};
  CHECK_THROWS_WITH(run_cast(cast),
                    ContainsSubstring("holds uint8, which are codes; float32, float64, float16 and bfloat16 are read"));
  CHECK_THROWS_WITH(operand_of_tensor(e4m3, StoredTensors{{scratch.path / "none"}}, 0),
                    ContainsSubstring("there is no such file"));
}

}  // namespace fp8lab::experiments
