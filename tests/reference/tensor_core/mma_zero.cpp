// SPDX-License-Identifier: Apache-2.0
// What a tensor core makes of zeros: the zero rules, the exponent that a zero has, and a scale that is zero.
#include <climits>
#include <cmath>
#include <optional>
#include <utility>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/tensor_core/dots.hpp"
#include "reference/tensor_core/slow_models.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Codes of two numbers whose product is 2^exponent, of least exponent fields.
std::optional<std::pair<std::uint64_t, std::uint64_t>> product_of(const Format& format, int exponent) {
  const auto code_of = [&](int power) -> std::optional<std::uint32_t> {
    const std::uint32_t code = encode(format, CastPolicy{}, std::ldexp(1.0, power));
    return decode(format, code) == std::ldexp(1.0, power) ? std::optional(code) : std::nullopt;
  };
  std::optional<std::pair<std::uint64_t, std::uint64_t>> found;
  int least = INT_MAX;
  for (int x = -150; x <= 16; ++x) {
    const auto a = code_of(x);
    const auto b = code_of(exponent - x);
    const int fields = std::max(x, format.min_exponent()) + std::max(exponent - x, format.min_exponent());
    if (a && b && fields < least) found.emplace(*a, *b), least = fields;
  }
  return found;
}

/// c = 0, and two products: one that a last place of the result hangs on, and 2^exponent that may tip it.
std::optional<Dots> dots_at_the_floor(const MmaModel& model, int exponent) {
  const bool half = model.accumulator() == binary16;
  const Format& format = model.operands.front();
  const auto k = static_cast<std::size_t>(model.k());
  // Half the least float16, which is a tie, and what is above it; or the least float32, and what is below it.
  const int deciding = half ? -25 : -149;
  Dots dots{format, format, k, Codes(k, 0), Codes(k, 0), {}, {}, {0}};
  std::size_t other = 1;
  std::array<int, 2> scales{};
  if (model.scales) {
    const std::size_t blocks = k / static_cast<std::size_t>(model.scales->block);
    if (model.scales->format != e8m0) return std::nullopt;
    scales = {-140, blocks > 1 ? exponent : -140};
    dots.scale_a = Scales(blocks, 127);
    dots.scale_b = Scales(blocks, 127);
    for (std::size_t i = 0; i < std::min<std::size_t>(blocks, 2); ++i) {
      dots.scale_a[i] = static_cast<std::uint8_t>(127 + scales.at(i) / 2);
      dots.scale_b[i] = static_cast<std::uint8_t>(127 + scales.at(i) - scales.at(i) / 2);
    }
    if (blocks > 1) {
      other = static_cast<std::size_t>(model.scales->block);
      dots.scale_a[0] = 127 - 74, dots.scale_b[0] = 127 - 75, scales[0] = -149;
    }
  }
  const auto first = product_of(format, deciding - scales[0]);
  const auto second = product_of(format, exponent - scales[1]);
  if (!first || !second) return std::nullopt;
  dots.a[0] = first->first, dots.b[0] = first->second;
  dots.a[other] = second->first, dots.b[other] = second->second;
  if (!half) dots.a[other] |= format.sign_mask();
  return dots;
}

}  // namespace

TEST_CASE("mma: the zero rules part where a group of FP4 products is zero") {
  // c = 1 against groups of zeros with scales of 2^40: counted, they leave c no bit above 2^5.
  const auto word = [](const Codes& a, ZeroRule rule) {
    const Dots dots{e2m1, e2m1, 64, a, Codes(64, 2), Scales(2, 127 + 20), Scales(2, 127 + 20), {0x3F800000}};
    const Codes result = mma_words(blackwell_mxf4, dots, rule);
    CHECK(result == slow_words(find_slow_model("blackwell_mxf4"), dots, rule));
    return result.front();
  };
  const Codes zeros(64, 0);
  Codes cancels(64, 0);
  cancels[0] = 2, cancels[1] = 10;  // 1 - 1
  CHECK(word(zeros, ZeroRule::skip_terms) == 0);
  CHECK(word(zeros, ZeroRule::count_zero_factors) == 0);
  CHECK(word(zeros, ZeroRule::skip_empty_groups) == 0x3F800000);
  CHECK(word(zeros, ZeroRule::skip_zero_groups) == 0x3F800000);
  CHECK(word(zeros, ZeroRule::floor) == 0x3F800000);
  CHECK(word(cancels, ZeroRule::floor) == 0);
  CHECK(word(cancels, ZeroRule::skip_terms) == 0);
  CHECK(word(cancels, ZeroRule::skip_empty_groups) == 0);
  CHECK(word(cancels, ZeroRule::skip_zero_groups) == 0x3F800000);
}

TEST_CASE("mma: a scale that is zero has no exponent, under any zero rule, and leaves c alone") {
  // MMA-Sim 2.1.1 gives c. Two code 2 in the first byte make a product; scale_b is zero, with bit 7 set or not.
  Codes a(64, 0);
  a[0] = 2;
  for (const std::uint8_t zero : {std::uint8_t{0x00}, std::uint8_t{0x80}}) {
    const Dots dots{e2m1, e2m1, 64, a, a, Scales(4, 0x7E), Scales(4, zero), {0x2B800001}};
    for (const ZeroRule rule : every_rule) {
      INFO(name_of(rule));
      CHECK(mma_words(blackwell_nvf4, dots, rule).front() == 0x2B800001);
      const Elements side(a, e2m1);
      float out = 0;
      const float c = std::bit_cast<float>(0x2B800001U);
      gemm({.model = blackwell_nvf4, .zero_rule = rule, .c_enters = CEntry::accumulator},
           side.operand(1, 64, dots.scale_a), side.operand(1, 64, dots.scale_b), std::span(&out, 1),
           {.c = std::span(&c, 1)});
      CHECK(bits(out) == 0x2B800001);
    }
  }
}

TEST_CASE("mma: terms that are zero bound the alignment from below") {
  // 5 * 2^-25 and 2^-47 in float16, whose unit is 2^-24: the floor of 2^-21 keeps no bit of the second, so that a tie
  // goes to even.
  Dots dots{binary16, binary16, 16, Codes(16, 0), Codes(16, 0), {}, {}, {0}};
  dots.a[0] = encode(binary16, ieee_policy, 0x5p-11F), dots.a[1] = encode(binary16, ieee_policy, 0x1p-23F);
  dots.b[0] = encode(binary16, ieee_policy, 0x1p-14F), dots.b[1] = encode(binary16, ieee_policy, 0x1p-24F);
  CHECK(mma_words(hopper_fp16_f16, dots, ZeroRule::floor).front() == 2);
  CHECK(mma_words(hopper_fp16_f16, dots, ZeroRule::skip_terms).front() == 3);
}

TEST_CASE("mma: the exponent of zero shows where it is one higher or lower, if the operands reach it") {
  int reached = 0;
  for (const MmaModel& model : models) {
    if (model.arithmetic != Arithmetic::fused) continue;
    const int least = model.zero_exponent - model.fraction_bits;
    const std::optional<Dots> kept = dots_at_the_floor(model, least);
    const std::optional<Dots> cut = dots_at_the_floor(model, least - 1);
    if (!kept || !cut) continue;
    INFO(model.name);
    const auto equals = [&](const MmaModel& changed, const Dots& dots) {
      return mma_words(changed, dots, ZeroRule::floor) == slow_words(slow_model_of(model), dots, ZeroRule::floor);
    };
    MmaModel higher = model, lower = model;
    ++higher.zero_exponent, --lower.zero_exponent;
    CHECK((equals(model, *kept) && equals(model, *cut)));
    CHECK((!equals(higher, *kept) && !equals(lower, *cut)));
    ++reached;
  }
  CHECK(reached == 28);
}

TEST_CASE("mma: a floor of zero terms and a floor of all are one, for an accumulator that is not zero lies above") {
  for (const MmaModel& model : models) {
    if (model.arithmetic != Arithmetic::fused) continue;
    const SlowModel slow = under(slow_model_of(model), ZeroRule::floor);
    for (const Format& format : model.operands) {
      const Dots dots = hard_dots(model, format, format, 300, 11);
      REQUIRE_NO(differences(slow_words(slow, dots, SlowZeroRule::floor_of_zero_terms),
                             slow_words(slow, dots, SlowZeroRule::floor_always), model.name.data()));
    }
  }
}

}  // namespace fp8lab::tests
