// SPDX-License-Identifier: Apache-2.0
// The slow oracle is right: worked examples, which the library gives too, every vector MMA-Sim computed, and vectors
// that tell it from its neighbours.
#include "reference/tensor_core/slow_mma.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/tensor_core/dots.hpp"
#include "reference/tensor_core/mma_vectors.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// `count` products of a and b at consecutive k.
struct Products {
  double a, b;
  int count = 1;
};

/// Products from k = 0 on, the rest zero, and what the instruction makes of them.
struct Example {
  std::string_view model;
  Format format;
  std::vector<Products> products;
  std::uint32_t c, d;
  Scales scales = {};  ///< of a; those of b are 1
  Format format_b = format;
};

double two_to(int exponent) { return std::ldexp(1.0, exponent); }

std::uint32_t code_of(const Format& format, double x) {
  return encode(format, CastPolicy{.infinity = Overflow::to_special}, x);
}

/// The code of 1 among a model's scales.
std::uint8_t unit_scale(const SlowModel& model) { return model.scale == SlowScale::ue4m3 ? 0x38 : 127; }

void check(const Example& example) {
  const SlowModel& model = find_slow_model(example.model);
  Codes a, b;
  for (const Products& p : example.products) {
    for (int i = 0; i < p.count; ++i) {
      a.push_back(code_of(example.format, p.a));
      b.push_back(code_of(example.format_b, p.b));
    }
  }
  a.resize(static_cast<std::size_t>(model.k()), 0);
  b.resize(static_cast<std::size_t>(model.k()), 0);
  const Scales scale_b(example.scales.size(), unit_scale(model));
  for (const SlowZeroRule zero : {SlowZeroRule::count_zero_factors, SlowZeroRule::skip_terms}) {
    INFO(example.model << " c " << std::hex << example.c << " zero rule " << static_cast<int>(zero));
    CHECK(slow_mma(model, a, example.format, b, example.format_b, example.c, example.scales, scale_b, zero) ==
          example.d);
  }
  const Dots dots{example.format, example.format_b, a.size(), a, b, example.scales, scale_b, {example.c}};
  for (const ZeroRule zero : {ZeroRule::count_zero_factors, ZeroRule::skip_terms}) {
    INFO(example.model << " of the library, c " << std::hex << example.c << " zero rule " << static_cast<int>(zero));
    CHECK(mma_words(find_model(example.model), dots, zero).front() == example.d);
  }
}

void check(const std::vector<Example>& examples) {
  for (const Example& example : examples) check(example);
}

/// How many of the words that MMA-Sim got come out differently.
std::uint64_t count_of_differences(const SlowModel& model, const RecordedDots& set, ZeroRule rule) {
  return differences(slow_words(model, set.dots, rule), set.d, set.name.c_str()).count();
}

/// The same for each model once `change` has been made to it. It says whether it made one.
std::map<std::string_view, std::uint64_t> changed_differences(const std::function<bool(SlowModel&)>& change) {
  std::map<std::string_view, std::uint64_t> count;
  for (const RecordedDots& set : recorded().sets) {
    SlowModel model = find_slow_model(set.model.name);
    if (change(model)) count[set.model.name] += count_of_differences(model, set, ZeroRule::count_zero_factors);
  }
  return count;
}

void every_model_differs(const char* what, const std::function<bool(SlowModel&)>& change) {
  const auto count = changed_differences(change);
  CHECK_FALSE(count.empty());
  for (const auto& [model, different] : count) {
    INFO(model << " with " << what);
    CHECK(different > 0);
  }
}

/// The accumulator after each step of a chain from zero.
Codes chain(const SlowModel& model, const Codes& a, const Format& format_a, const Codes& b, const Format& format_b) {
  const auto k = static_cast<std::size_t>(model.k());
  Codes words;
  for (std::size_t i = 0; i < a.size(); i += k) {
    words.push_back(slow_mma(model, std::span(a).subspan(i, k), format_a, std::span(b).subspan(i, k), format_b,
                             words.empty() ? 0 : words.back()));
  }
  return words;
}

}  // namespace

TEST_CASE("slow oracle: alignment and truncation") {
  const Products big{448, 448, 32};
  check({
      {"hopper_wgmma_fp8", e4m3, {{1, 1}, {0.5, 0.5}}, 0, 0x3FA00000},
      // 1.5 * 1.5 has exponent 0, 2.25 * 1 has 1: equal values that leave different grids.
      {"hopper_wgmma_fp8", e4m3, {{1.5, 1.5}, {-1.5, 1.5}, {two_to(-6), two_to(-7)}}, 0, 0x39000000},
      {"hopper_wgmma_fp8", e4m3, {{2.25, 1}, {-2.25, 1}, {two_to(-6), two_to(-7)}}, 0, 0},
      // The accumulator is truncated like a product.
      {"hopper_wgmma_fp8", e4m3, {}, 0x3F800600, 0x3F800400},
      {"blackwell_tcgen05_fp8", e4m3, {}, 0x3F800600, 0x3F800600},
      {"hopper_mma_sync_fp8", e4m3, {}, 0x3F800601, 0x3F800601},
      {"hopper_wgmma_fp8", e4m3, {{128, 1}, {-128, 1}}, 0x3F800400, 0x3F800000},
      // Sixteen small products, then a large one: one step loses them, two do not.
      {"ada_mma_fp8", e4m3, {{1.5 * two_to(-6), two_to(-8), 16}, {1, 1}}, 0, 0x3F803000},
      {"hopper_wgmma_fp8", e4m3, {{1.5 * two_to(-6), two_to(-8), 16}, {1, 1}}, 0, 0x3F800000},
      {"blackwell_tcgen05_fp8", e4m3, {{1.5 * two_to(-6), two_to(-8), 16}, {1, 1}}, 0, 0x3F803000},
      // A subnormal keeps the exponent of the smallest normal.
      {"hopper_wgmma_fp8", e5m2, {{two_to(-16), 1}, {-two_to(-16), 1}, {two_to(-14), two_to(-14)}}, 0, 0},
      {"hopper_wgmma_fp8", e5m2, {{two_to(-16), two_to(-16)}}, 0, 0x2F800000},
      {"hopper_wgmma_fp8", e4m3, {big}, 0, 0x4AC40000},
      {"blackwell_tcgen05_fp8", e4m3, {big}, 0, 0x4AC40000},
      // Toward zero on both sides.
      {"hopper_wgmma_fp8", e4m3, {{-1, 1}, {-two_to(-7), two_to(-7)}}, 0, 0xBF800000},
      {"hopper_wgmma_fp8", e4m3, {{-1, 1}, {-two_to(-6), two_to(-7)}, {-two_to(-7), two_to(-7)}}, 0, 0xBF800400},
      {"blackwell_tcgen05_fp8", e4m3, {big}, 0x7F7FFFFF, 0x7F7FFFFF},
  });
}

TEST_CASE("slow oracle: mma.sync on Hopper multiplies FP16, where E4M3's subnormals are normal") {
  // 2^-9 * 2^15 has exponent 6 from FP16's -9, and would have 9 from E4M3's -6, with a grid too coarse for 2^-17.
  const std::vector<Products> products{{two_to(-9), two_to(15)}, {two_to(-1), two_to(-16)}};
  check({{"hopper_mma_sync_fp8", e4m3, products, 0, 0x42800001, {}, e5m2}});
}

TEST_CASE("slow oracle: NaN, infinity and zero") {
  check({
      {"hopper_wgmma_fp8", e4m3, {{nan, 1}}, 0, 0x7FFFFFFF},
      {"hopper_wgmma_fp8", e5m2, {{inf, 1}}, 0, 0x7F800000},
      {"hopper_wgmma_fp8", e5m2, {{inf, 0}}, 0, 0x7FFFFFFF},
      {"hopper_wgmma_fp8", e5m2, {{inf, 1}, {-inf, 1}}, 0, 0x7FFFFFFF},
      {"hopper_wgmma_fp8", e5m2, {{inf, 1}}, 0xFF800000, 0x7FFFFFFF},
      {"hopper_wgmma_fp8", e4m3, {}, 0xFF800000, 0xFF800000},
      {"hopper_wgmma_fp8", e4m3, {}, 0x7F800001, 0x7FFFFFFF},
      {"hopper_wgmma_fp8_f16", e4m3, {{nan, 1}}, 0, 0x7FFF},
      {"hopper_mma_sync_fp8", e5m2, {{inf, 1}}, 0xFF800000, 0x7FFFFFFF},
      {"hopper_mma_sync_fp8_f16", e5m2, {{-inf, 1}}, 0x3C00, 0xFC00},
      {"hopper_wgmma_fp8", e4m3, {{-0.0, 1, 4}}, 0x80000000, 0},
      {"hopper_mma_sync_fp8", e4m3, {{-0.0, 1, 4}}, 0x80000000, 0},
      {"hopper_wgmma_fp8", e4m3, {{1, 1}, {-1, 1}}, 0, 0},
  });
}

TEST_CASE("slow oracle: a binary16 accumulator rounds once, to nearest even") {
  const Products one{1, 1};
  for (const char* model : {"hopper_wgmma_fp8_f16", "ada_mma_fp8_f16", "ada_mma_fp8_k16_f16",
                            "blackwell_tcgen05_fp8_f16", "rtx_blackwell_mma_fp8_k16_f16"}) {
    check({{model, e4m3, {one, {two_to(-6), two_to(-5)}}, 0, 0x3C00},
           {model, e4m3, {one, {1.5 * two_to(-6), two_to(-4)}}, 0, 0x3C02},
           {model, e4m3, {{448, 448}}, 0, 0x7C00}});
  }
  // 65520 is the first to overflow.
  check({{"volta_fp16_f16", binary16, {{65504, 1}, {15, 1}}, 0, 0x7BFF},
         {"hopper_fp16_f16", binary16, {{65504, 1}, {16, 1}}, 0, 0x7C00}});
}

TEST_CASE("slow oracle: block scales move the products' exponents, not the accumulator's") {
  check({
      {"blackwell_tcgen05_fp8", e2m3, {{7.5, 6}}, 0, 0x42340000, {}, e2m1},
      {"blackwell_mxf8", e3m2, {{28, 448}}, 0x3F800000, 0x46C40200, {128}, e4m3},
      {"blackwell_mxf8", e4m3, {{1, 1}}, 0, 0x7FFFFFFF, {0xFF}},
      // UE4M3 ignores the sign bit.
      {"blackwell_nvf4", e2m1, {{6, 6, 64}}, 0, 0x45100000, {0x38, 0xB8, 0x38, 0xB8}},
      {"blackwell_nvf4", e2m1, {{1, 1}}, 0, 0x7FFFFFFF, {0x38, 0x38, 0x38, 0xFF}},
      {"blackwell_mxf4", e2m1, {{1, 1}}, 0x7F800000, 0x7F800000, {127, 127}},
  });
}

TEST_CASE("slow oracle: groups of 16 products of FP4 are truncated one by one") {
  // The upper half of k sets the grid at 1/2, through its scale of 2^34, and cancels.
  const Products quarter{0.5, 0.5}, one{1, 1}, minus_one{-1, 1}, none{0, 0, 15};
  const std::vector<Products> same_group{quarter, {0, 0, 7}, quarter, {0, 0, 23}, one, none, minus_one};
  const std::vector<Products> two_groups{quarter, none, quarter, none, one, none, minus_one};
  check({
      {"blackwell_mxf4", e2m1, same_group, 0, 0x3F000000, {127, 161}},
      {"blackwell_mxf4", e2m1, two_groups, 0, 0, {127, 161}},
      {"blackwell_mxf4_block16", e2m1, same_group, 0, 0x3F000000, {127, 127, 161, 161}},
      {"blackwell_mxf4_block16", e2m1, two_groups, 0, 0, {127, 127, 161, 161}},
  });
}

TEST_CASE("slow oracle: FP16 and BF16 differ by fraction bits and products per step") {
  const Products one{1, 1};
  const Products two_of_24{two_to(-12), two_to(-12), 2};
  const Products four_of_25{two_to(-13), two_to(-12), 4};
  const Products eight_of_26{two_to(-13), two_to(-13), 8};
  constexpr std::uint32_t lost = 0x3F800000, kept = 0x3F800001;
  check({{"volta_fp16", binary16, {two_of_24, one}, 0, lost},
         {"volta_fp16", binary16, {{two_to(-12), two_to(-11)}, one}, 0, kept},
         {"turing_fp16", binary16, {two_of_24, one}, 0, kept},
         {"turing_fp16", binary16, {four_of_25, one}, 0, lost}});
  const std::map<std::string, Format> formats{{"fp16", binary16}, {"bf16", bfloat16}};
  for (const auto& [suffix, format] : formats) {
    for (const std::string chip : {"ampere_", "ada_"}) {
      const std::string model = chip + suffix;
      check({{model, format, {two_of_24, one}, 0, kept},
             {model, format, {four_of_25, one}, 0, lost},
             {model, format, {four_of_25, {0, 0, 3}, one}, 0, lost},
             {model, format, {four_of_25, {0, 0, 4}, one}, 0, kept}});
    }
    for (const std::string chip : {"hopper_", "blackwell_"}) {
      const std::string model = chip + suffix;
      check({{model, format, {four_of_25, {0, 0, 11}, one}, 0, kept},
             {model, format, {eight_of_26, {0, 0, 7}, one}, 0, lost}});
    }
  }
}

TEST_CASE("slow oracle: TF32 takes half as many products per step") {
  const Products one{1, 1};
  const Products four_of_25{two_to(-13), two_to(-12), 4};
  constexpr std::uint32_t lost = 0x3F800000, kept = 0x3F800001;
  for (const char* model : {"ampere_tf32", "ada_tf32"}) {
    check({{model, tf32, {{two_to(-12), two_to(-12), 2}, one}, 0, kept},
           {model, tf32, {{two_to(-13), two_to(-12), 3}, one}, bits(0x1p-25F), lost},
           {model, tf32, {four_of_25, one}, 0, kept}});
  }
  for (const char* model : {"hopper_tf32", "blackwell_tf32"}) {
    check({{model, tf32, {four_of_25, {0, 0, 3}, one}, 0, kept},
           {model, tf32, {{two_to(-13), two_to(-13), 7}, one}, bits(0x1p-26F), lost}});
  }
}

TEST_CASE("slow oracle: an accumulator that grew swallows its products") {
  // Every step adds 1/8 until 64, where the grid of 2^-7 is coarser than the products' 2^-8.
  const SlowModel& model = find_slow_model("hopper_wgmma_fp8");
  const Codes sixteenths(32, code_of(e4m3, two_to(-4)));
  std::uint64_t word = 0;
  for (int step = 0; step < 511; ++step) word = slow_mma(model, sixteenths, e4m3, sixteenths, e4m3, word);
  CHECK(word == 0x427F8000);
  for (int step = 511; step < 520; ++step) {
    word = slow_mma(model, sixteenths, e4m3, sixteenths, e4m3, word);
    CHECK(word == 0x42800000);
  }
}

TEST_CASE("slow oracle: every vector of MMA-Sim") {
  std::size_t vectors = 0;
  for (const RecordedDots& set : recorded().sets) {
    const Codes words = slow_words(find_slow_model(set.model.name), set.dots, ZeroRule::count_zero_factors);
    REQUIRE_NO(differences(words, set.d, set.name.c_str()));
    vectors += words.size();
  }
  CHECK(vectors == 5282);
}

TEST_CASE("slow oracle: every chain of MMA-Sim, also promoted to binary32 every 128 of k") {
  Mismatches mismatches;
  for_chains([&](const RecordedChains& set, const RecordedChain& recorded_chain) {
    const Dots& v = recorded_chain.dot;
    const SlowModel& model = find_slow_model(set.model.name);
    mismatches.compare(v.k, set.name, chain(model, v.a, v.format_a, v.b, v.format_b).back(), recorded_chain.fast);
    std::uint64_t promoted = 0;
    for (std::size_t i = 0; i < v.k; i += 128) {
      const auto from = static_cast<std::ptrdiff_t>(i), to = static_cast<std::ptrdiff_t>(std::min(i + 128, v.k));
      const Codes part_a(v.a.begin() + from, v.a.begin() + to), part_b(v.b.begin() + from, v.b.begin() + to);
      promoted = slow_add(promoted, chain(model, part_a, v.format_a, part_b, v.format_b).back(), binary32);
    }
    mismatches.compare(v.k, set.name, promoted, recorded_chain.promoted, "promoted");
  });
  REQUIRE_NO(mismatches);
}

TEST_CASE("slow oracle: the accumulator of a chain, step by step") {
  const RecordedChains& set = recorded().chains.front();
  REQUIRE(set.model.name == "hopper_wgmma_fp8");
  const auto found = std::ranges::find(set.chains, 128U, [](const RecordedChain& v) { return v.dot.k; });
  REQUIRE(found != set.chains.end());
  CHECK(chain(find_slow_model(set.model.name), found->dot.a, e4m3, found->dot.b, e4m3) ==
        Codes{0x43B63000, 0x43130000, 0xC4F98800, 0xC6273400});
}

TEST_CASE("slow oracle: the vectors tell other parameters") {
  every_model_differs("a fraction bit less", [](SlowModel& m) { return --m.fraction_bits, true; });
  every_model_differs("a fraction bit more", [](SlowModel& m) { return ++m.fraction_bits, true; });
  every_model_differs("floor", [](SlowModel& m) { return m.alignment = SlowAlignment::floor, true; });
  every_model_differs("rounding", [](SlowModel& m) { return m.alignment = SlowAlignment::nearest_even, true; });
  every_model_differs("halves of mma.sync exchanged", [](SlowModel& m) {
    m.order = SlowOrder::pairs_reversed;
    return m.lowered;
  });
  every_model_differs("halves of mma.sync in k order", [](SlowModel& m) {
    m.order = SlowOrder::ascending;
    return m.lowered;
  });
  every_model_differs("the accumulator of mma.sync in the first step",
                      [](SlowModel& m) { return std::exchange(m.lowered, false); });
  every_model_differs("steps of half the size", [](SlowModel& m) {
    m.step_products /= 2;
    m.steps *= 2;
    return !m.lowered && m.group == 1;
  });
  every_model_differs("one step", [](SlowModel& m) {
    m.step_products *= m.steps;
    m.order = SlowOrder::ascending;
    return std::exchange(m.steps, 1) > 1;
  });
  every_model_differs("another width of the result", [](SlowModel& m) {
    if (m.output == SlowOutput::binary16) return false;
    m.output = m.output == SlowOutput::e8m13 ? SlowOutput::binary32 : SlowOutput::e8m13;
    return true;
  });
}

TEST_CASE("slow oracle: the zero rules differ only in binary32 steps") {
  for (const RecordedDots& set : recorded().sets) {
    const SlowModel& model = find_slow_model(set.model.name);
    const std::uint64_t different = count_of_differences(model, set, ZeroRule::skip_terms);
    INFO(set.name);
    CHECK(different <= set.d.size() / 10);
    if (model.output == SlowOutput::binary16 || model.lowered) CHECK(different == 0);
  }
}

TEST_CASE("slow oracle: wrong operands are refused") {
  const Codes few(16, 0), enough(32, 0);
  const SlowModel& model = find_slow_model("hopper_wgmma_fp8");
  CHECK_THROWS_WITH(slow_mma(model, few, e4m3, enough, e4m3, 0), ContainsSubstring("takes k = 32"));
  CHECK_THROWS_WITH(slow_mma(model, enough, e2m1, enough, e4m3, 0), ContainsSubstring("formats it does not take"));
  CHECK_THROWS_WITH(find_slow_model("volta_fp8"), ContainsSubstring("known: volta_fp16"));
}

}  // namespace fp8lab::tests
