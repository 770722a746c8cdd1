// SPDX-License-Identifier: Apache-2.0
// The format of docs/add_a_format.md and the tensor core of docs/add_a_tensor_core.md, compiled with the pages' steps
// applied to copies of the headers. tests/formats/casts.cpp is compiled with them too, so its cases check the added
// format as any other.
#include "formats/oracle.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/tensor_core/dots.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("docs: an added format is found by its name, and is among those that the tests go through") {
  CHECK(find_format("e4m2").format == e4m2);
  CHECK(format_name(e4m2) == "e4m2");
  CHECK(decode(e4m2, static_cast<std::uint32_t>(e4m2.max_code())) == 224);
  CHECK(std::ranges::count(byte_formats(), e4m2, &NamedFormat::format) == 1);
}

TEST_CASE("docs: an added format rounds as the table of its values says, alone and in bulk") {
  const TableOracle oracle(e4m2);
  const std::vector<float> inputs = boundary_inputs<float>(oracle);
  std::vector<std::uint8_t> codes(inputs.size());
  Mismatches wrong;
  for (const Named<Rounding>& mode : named_roundings) {
    const CastPolicy policy{.rounding = mode.value};
    if (mode.value == Rounding::stochastic) continue;  // needs random bits
    encode(e4m2, policy, std::span<const float>(inputs), codes);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::uint32_t expected = oracle.encode(policy, static_cast<double>(inputs[i]));
      wrong.compare(i, inputs[i], encode(e4m2, policy, inputs[i]), expected, mode.name.data());
      wrong.compare(i, inputs[i], codes[i], expected, "bulk");
    }
  }
  REQUIRE_NO(wrong);
}

TEST_CASE("docs: an added tensor core is found by its name and explains itself") {
  const MmaModel& model = find_model("example_e4m2");
  CHECK(describe(model) ==
        "Example mma with K = 16, float32 accumulator; K 16 in 2 steps, 20 fraction bits kept, results of "
        "23 bits; "
        "takes e4m2");
}

TEST_CASE("docs: an added tensor core computes what the slow oracle computes") {
  const MmaModel& model = find_model("example_e4m2");
  const Dots dots = hard_dots(model, e4m2, e4m2, 5000, 1);
  for (const ZeroRule rule : rules_of(model)) {
    REQUIRE_NO(differences(mma_words(model, dots, rule), slow_words(slow_model_of(model), dots, rule), "mma"));
  }
  MmaModel defective = model;
  --defective.fraction_bits;
  CHECK(differences(mma_words(defective, dots, ZeroRule::skip_terms),
                    slow_words(slow_model_of(model), dots, ZeroRule::skip_terms), "")
            .count() > 0);
}

TEST_CASE("docs: an added tensor core multiplies matrices by chains of its instruction") {
  const MmaModel& model = find_model("example_e4m2");
  constexpr std::size_t depth = 48;
  MmaModel whole = model;  // one instruction of all K
  whole.products_per_step = depth;
  whole.steps = 1;
  const Dots sides = hard_dots(whole, e4m2, e4m2, 1, 3);
  const Elements a(sides.a, e4m2), b(sides.b, e4m2);
  float out = 0;
  gemm({.model = model, .zero_rule = ZeroRule::count_zero_factors}, a.operand(1, depth), b.operand(1, depth),
       std::span(&out, 1));
  Dots dots{.format_a = e4m2, .format_b = e4m2, .k = 16, .c = {0}};
  for (std::size_t k = 0; k < depth; k += dots.k) {
    dots.a.assign(sides.a.begin() + static_cast<std::ptrdiff_t>(k),
                  sides.a.begin() + static_cast<std::ptrdiff_t>(k + 16));
    dots.b.assign(sides.b.begin() + static_cast<std::ptrdiff_t>(k),
                  sides.b.begin() + static_cast<std::ptrdiff_t>(k + 16));
    dots.c = slow_words(slow_model_of(model), dots, ZeroRule::count_zero_factors);
  }
  CHECK(word_of(out) == word_of(from_bits(static_cast<std::uint32_t>(dots.c.front()))));
}

}  // namespace fp8lab::tests
