// SPDX-License-Identifier: Apache-2.0
// The library's tensor cores are the slow oracle's, which was written from the specification alone, and MMA-Sim's.
#include "fp8lab/reference/tensor_core/mma.hpp"

#include <functional>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/tensor_core/dots.hpp"
#include "reference/tensor_core/mma_vectors.hpp"
#include "reference/tensor_core/slow_models.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

bool is_amd(const MmaModel& model) { return model.name.starts_with("cdna"); }

/// Compares about `count` dot products of the model with the oracle, over all pairs of formats and all zero rules.
void compare_with_oracle(const MmaModel& model, std::size_t count, std::uint64_t seed) {
  const SlowModel slow = slow_model_of(model);
  const std::size_t pairs = model.operands.size() * model.operands.size();
  const std::size_t rules = rules_of(model).size();
  const std::size_t each = (count + pairs * rules - 1) / (pairs * rules);
  for (const Format& a : model.operands) {
    for (const Format& b : model.operands) {
      for (const ZeroRule rule : rules_of(model)) {
        const Dots dots = hard_dots(model, a, b, each, seed++);
        INFO(model.name << ' ' << format_name(a) << " x " << format_name(b) << " rule " << static_cast<int>(rule));
        REQUIRE_NO(differences(mma_words(model, dots, rule), slow_words(slow, dots, rule), model.name.data()));
      }
    }
  }
}

void compare_with_oracle(const std::function<bool(const MmaModel&)>& which) {
  // With FP8LAB_EXHAUSTIVE, 10^7 dot products a model: half an hour.
  const std::uint64_t rounds = exhaustive() && !sanitized ? 480 : 1;
  for (const MmaModel& model : models) {
    if (model.k() == 0 || !which(model)) continue;
    const std::size_t count =
        is_repeated(model) || is_amd(model) || model.is_fp64() ? 1250 : 5000;  // the oracle is slower there
    for (std::uint64_t i = 0; i < rounds; ++i) compare_with_oracle(model, sanitized ? 1000 : count, 1 + 1000 * i);
  }
}

bool is_fp8(const MmaModel& model) { return model.operands.data() == fp8_operands.data(); }
bool is_narrow(const MmaModel& model) { return model.operands.front().bits() <= 8; }

}  // namespace

TEST_CASE("mma: every vector of MMA-Sim, under its own zero rule") {
  std::size_t vectors = 0;
  for (const RecordedDots& set : recorded().sets) {
    REQUIRE_NO(differences(mma_words(set.model, set.dots, ZeroRule::count_zero_factors), set.d, set.name.c_str()));
    vectors += set.d.size();
  }
  CHECK(vectors == 5282);
}

TEST_CASE("mma: every chain of MMA-Sim is a GEMM, fast and promoted every 128") {
  Mismatches mismatches;
  std::size_t chains = 0;
  for_chains([&](const RecordedChains& set, const RecordedChain& v) {
    const Elements left(v.dot.a, v.dot.format_a), right(v.dot.b, v.dot.format_b);
    const Operand a = left.operand(1, v.dot.k), b = right.operand(1, v.dot.k);
    float out = 0;
    gemm({.model = set.model}, a, b, std::span(&out, 1));
    mismatches.compare(v.dot.k, set.name, bits(out), v.fast, "fast");
    gemm({.model = set.model, .promote_k = 128}, a, b, std::span(&out, 1));
    mismatches.compare(v.dot.k, set.name, bits(out), v.promoted, "promoted");
    ++chains;
  });
  REQUIRE_NO(mismatches);
  CHECK(chains == 270);
}

TEST_CASE("mma: FP8 with a float32 accumulator equals the oracle") {
  compare_with_oracle([](const MmaModel& m) { return is_fp8(m) && m.accumulator() == binary32; });
}
TEST_CASE("mma: FP8 with a float16 accumulator equals the oracle") {
  compare_with_oracle([](const MmaModel& m) { return is_fp8(m) && m.accumulator() == binary16; });
}
TEST_CASE("mma: FP8, FP6 and FP4 without scales equal the oracle") {
  compare_with_oracle([](const MmaModel& m) { return is_narrow(m) && !is_fp8(m) && !is_amd(m) && !m.scales; });
}
TEST_CASE("mma: block-scaled FP8, FP6 and FP4 equal the oracle") {
  compare_with_oracle([](const MmaModel& m) { return m.scales.has_value(); });
}
TEST_CASE("mma: FP16 equals the oracle") {
  compare_with_oracle([](const MmaModel& m) { return m.operands.front() == binary16 && !is_amd(m); });
}
TEST_CASE("mma: BF16 and TF32 equal the oracle") {
  compare_with_oracle(
      [](const MmaModel& m) { return !is_narrow(m) && !is_amd(m) && !m.is_fp64() && m.operands.front() != binary16; });
}
TEST_CASE("mma: AMD's matrix cores equal the oracle") {
  compare_with_oracle([](const MmaModel& m) { return is_amd(m) && !m.is_fp64(); });
}
TEST_CASE("mma: FP64 equals the oracle") {
  compare_with_oracle([](const MmaModel& m) { return m.is_fp64(); });
}

TEST_CASE("mma: an infinite or NaN c of CDNA3's FP8 stays so beside the largest products") {
  Dots dots{e5m2fnuz, e5m2fnuz, 32, Codes(32, 0x7F), Codes(32, 0x7F), {}, {}, {0xFF800000}};
  CHECK(mma_words(cdna3_fp8, dots, ZeroRule::floor).front() == 0xFF800000);
  dots.c = {0x7FC00000};
  CHECK(mma_words(cdna3_fp8, dots, ZeroRule::floor).front() == 0x7FFFFFFF);
}

TEST_CASE("mma: the library has the oracle's models, with its K and its operands") {
  for (const MmaModel& model : models) {
    INFO(model.name << " needs a record in slow_models.hpp, or the evidence \"assumed\"");
    CHECK((has_slow_model(model.name) || model.k() == 0 || model.evidence == Evidence::assumed));
  }
  for (const SlowModel& slow : slow_models) {
    const MmaModel& model = find_model(slow.name);
    CHECK(model.k() == slow.k());
    for (const NamedFormat& a : named_formats) {
      const bool takes = std::ranges::find(model.operands, a.format) != model.operands.end();
      CHECK(takes == slow_takes(slow.operands, a.format, a.format));
    }
  }
}

TEST_CASE("mma: TF32 rounds its operands to nearest, ties away from zero") {
  constexpr std::size_t rows = 500, k = 8;
  Random random(5000);
  Dots rounded{.format_a = tf32, .format_b = tf32, .k = k};
  std::vector<float> a, b;
  for (std::size_t i = 0; i < rows * k; ++i) {
    for (auto* side : {&a, &b}) {
      auto pattern = static_cast<std::uint32_t>(code_between(random, binary32, 110, 140, false));
      if (random.one_in(3)) pattern = (pattern & 0xFFFFE000) | 0x1000;  // a tie
      side->push_back(std::bit_cast<float>(pattern));
      // Half a unit is added to the magnitude; a carry moves the exponent by itself.
      (side == &a ? rounded.a : rounded.b).push_back((pattern + 0x1000) >> 13);
    }
  }
  rounded.c.assign(rows, 0);
  Dots cut = rounded;
  Dots even = rounded;
  const auto to_even = [](std::uint64_t code, float x) {  // of the two neighbours of a tie the even one
    const bool is_tie = (std::bit_cast<std::uint32_t>(x) & 0x1FFFU) == 0x1000U;
    return is_tie && (code & 1U) != 0 ? code - 1 : code;
  };
  for (std::size_t i = 0; i < a.size(); ++i) {
    even.a[i] = to_even(rounded.a[i], a[i]);
    even.b[i] = to_even(rounded.b[i], b[i]);
    cut.a[i] = std::bit_cast<std::uint32_t>(a[i]) >> 13;
    cut.b[i] = std::bit_cast<std::uint32_t>(b[i]) >> 13;
  }
  std::vector<float> out(rows);
  const auto words = [&](std::optional<Rounding> rounding) {
    Operand left = Operand::floats(a, rows, k);
    Operand right = Operand::floats(b, rows, k);
    left.tf32_rounding = right.tf32_rounding = rounding;
    mma(hopper_tf32, left, right, {}, std::span(out));
    Codes result;
    for (const float x : out) result.push_back(bits(x));
    return result;
  };
  const SlowModel& slow = find_slow_model("hopper_tf32");
  REQUIRE_NO(differences(words(Rounding::nearest_away), slow_words(slow, rounded, ZeroRule::floor), "rounded"));
  REQUIRE_NO(differences(words(Rounding::toward_zero), slow_words(slow, cut, ZeroRule::floor), "cut"));
  REQUIRE_NO(differences(words(Rounding::nearest_even), slow_words(slow, even, ZeroRule::floor), "to even"));
  REQUIRE(words({}) == words(Rounding::toward_zero));
  REQUIRE(words({}) != words(Rounding::nearest_away));
  REQUIRE(words(Rounding::nearest_even) != words(Rounding::nearest_away));
  CHECK_THROWS_WITH(words(Rounding::stochastic), ContainsSubstring("tf32_rounding must be toward_zero"));
}

TEST_CASE("mma: a batch of any size, and no accumulators, for every model") {
  for (const MmaModel& model : models) {
    const std::size_t k = model.k() == 0 ? 48 : static_cast<std::size_t>(model.k());
    const Format format = model.operands.front();
    MmaModel any = model;
    if (k == 48) any.products_per_step = 48;
    Dots dots = hard_dots(any, format, format, 700, 3);
    const Codes all = mma_words(model, dots, ZeroRule::skip_terms);
    for (const std::size_t row : {0U, 63U, 64U, 699U}) {
      const auto part = [&](const auto& codes) {
        const auto width = static_cast<std::ptrdiff_t>(codes.size() / dots.count());
        const auto first = codes.begin() + static_cast<std::ptrdiff_t>(row) * width;
        return std::remove_cvref_t<decltype(codes)>(first, first + width);
      };
      const Dots one{format,       format, k, part(dots.a), part(dots.b), part(dots.scale_a), part(dots.scale_b),
                     {dots.c[row]}};
      INFO(model.name << " row " << row);
      CHECK(mma_words(model, one, ZeroRule::skip_terms).front() == all[row]);
    }
  }
  const std::vector<std::uint8_t> ones(64, 0x38);
  const Operand two = Operand::codes(ones, e4m3, 2, 32);
  std::vector<float> out(2);
  mma(hopper_wgmma_fp8, two, two, {}, std::span(out));
  CHECK(out == std::vector<float>{32, 32});
  std::vector<Half> halves(2);
  mma(hopper_wgmma_fp8_f16, two, two, {}, std::span(halves));
  CHECK(halves[1].bits == 0x5000);
  const Operand none = Operand::codes(std::span(ones).first(0), e4m3, 0, 5);
  mma(exact, none, none, {}, std::span<float>());
}

TEST_CASE("mma: bad arguments are named") {
  const std::vector<std::uint8_t> a(128);
  const std::vector<std::uint16_t> wide(64);
  const std::vector<float> f(64);
  std::vector<float> out(2);
  std::vector<Half> halves(2);
  const auto run = [&](const MmaModel& model, const Operand& x, const Operand& y, std::size_t c, std::size_t n) {
    mma(model, x, y, std::span(f).first(c), std::span(out).first(n));
  };
  const auto codes = [&](const Format& format, std::size_t rows, std::size_t depth, std::size_t scales = 0) {
    const std::span<const std::uint8_t> all(a);
    return Operand::codes(all.first(rows * depth), format, rows, depth, all.first(scales));
  };
  const Operand two = codes(e4m3, 2, 32);
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, two, codes(e4m3, 4, 16), 0, 2),
                    "a and b must have the same shape, not (2, 32) and (4, 16)");
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, two, two, 3, 2), "c must have 2 elements, one a row, not 3");
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, two, two, 0, 1), "out must have 2 elements, one a row, not 1");
  CHECK_THROWS_WITH(run(hopper_tf32, Operand::floats(f, 2, 32), Operand::floats(f, 2, 32), 0, 2),
                    "K must be 8, one instruction of hopper_tf32, not 32; gemm takes any K. Models with K = 32: exact");
  CHECK_THROWS_WITH(run(ada_mma_fp8_k16, two, two, 0, 2),
                    "K must be 16, one instruction of ada_mma_fp8_k16, not 32; gemm takes any K. Models with K = 32: "
                    "hopper_wgmma_fp8, hopper_wgmma_fp8_f16, ada_mma_fp8, ada_mma_fp8_f16, hopper_mma_sync_fp8, "
                    "hopper_mma_sync_fp8_f16, blackwell_tcgen05_fp8, blackwell_tcgen05_fp8_f16 and 3 more (fp8lab "
                    "models lists all)");
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, two, codes(e8m0, 2, 32), 0, 2),
                    "b is e8m0; hopper_wgmma_fp8 takes e4m3, e5m2. Models that take e8m0: exact");
  CHECK_THROWS_WITH(
      run(rtx_blackwell_mma_fp8_k16, codes(e2m1, 2, 16), codes(e2m1, 2, 16), 0, 2),
      "a is e2m1; rtx_blackwell_mma_fp8_k16 takes e4m3, e5m2. Models that take e2m1: blackwell_tcgen05_fp8, "
      "blackwell_tcgen05_fp8_f16, rtx_blackwell_mma_fp8, rtx_blackwell_mma_fp8_f16, blackwell_mxf8, "
      "blackwell_mxf4, blackwell_mxf4_block16, blackwell_nvf4 and 1 more (fp8lab models lists all)");
  CHECK_THROWS_WITH(run(hopper_fp16, codes(binary16, 2, 16), codes(binary16, 2, 16), 0, 2),
                    "a has elements of 1 bytes; those of float16 have 2");
  CHECK_THROWS_WITH(run(hopper_tf32, Operand::codes(wide, tf32, 2, 8), Operand::codes(wide, tf32, 2, 8), 0, 2),
                    "a has elements of 2 bytes; those of float32 have 4");
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, Operand::codes(a, e4m3, 1, 32), Operand::codes(a, e4m3, 1, 32), 0, 1),
                    "a has 128 elements, not 1 * 32");
  CHECK_THROWS_WITH(
      run(blackwell_mxf8, two, codes(e4m3, 2, 32, 2), 0, 2),
      "scale_a must have 2 * 1 codes, one for every 32 of K, not 0. Models that take e4m3 without block scales: "
      "hopper_wgmma_fp8, hopper_wgmma_fp8_f16, ada_mma_fp8, ada_mma_fp8_f16, ada_mma_fp8_k16, "
      "ada_mma_fp8_k16_f16, hopper_mma_sync_fp8, hopper_mma_sync_fp8_f16 and 9 more (fp8lab models lists "
      "all)");
  CHECK_THROWS_WITH(run(blackwell_nvf4, codes(e2m1, 2, 64, 8), codes(e2m1, 2, 64, 4), 0, 2),
                    "scale_b must have 2 * 4 codes, one for every 16 of K, not 4");
  CHECK_THROWS_WITH(
      run(hopper_wgmma_fp8, codes(e4m3, 2, 32, 2), two, 0, 2),
      "scale_a has 2 codes; hopper_wgmma_fp8 has no block scales. Models that take e4m3 with such scales: "
      "blackwell_mxf8");
  CHECK_THROWS_WITH(run(blackwell_mxf8, codes(e4m3fnuz, 2, 32, 2), two, 0, 2),
                    ContainsSubstring(". No model takes e4m3fnuz with such scales"));
  CHECK_THROWS_WITH(run(ada_mma_fp8_f16, two, two, 0, 2),
                    "c and out must be float16, the accumulator of ada_mma_fp8_f16, not float32");
  CHECK_THROWS_WITH(mma(ada_mma_fp8, two, two, {}, std::span(halves)),
                    "c and out must be float32, the accumulator of ada_mma_fp8, not float16");
  CHECK_THROWS_WITH(find_model("h100"), ContainsSubstring("known: "));
  CHECK_THROWS_WITH(
      find_value<ZeroRule>("zero_rule", "x"),
      ContainsSubstring("known: floor, skip_terms, skip_empty_groups, skip_zero_groups, count_zero_factors"));
}

TEST_CASE("mma: a model explains itself") {
  CHECK(describe(hopper_mma_sync_fp8) ==
        "Hopper, Blackwell mma.sync m16n8k32, float32 accumulator; "
        "K 32 in 2 steps (of every four k the first two, then the last two), 25 fraction bits kept (zero counts as "
        "2^-133), results of 23 bits, "
        "made of FP16 instructions, c added at the end; takes e4m3, e5m2");
  CHECK(evidence_of(hopper_mma_sync_fp8_f16) == "measured: H100, H200 and B200; an H200 (ledger)");
  CHECK(evidence_of(turing_fp16) == "published");
  CHECK_THAT(describe(blackwell_nvf4), ContainsSubstring("summed exactly in groups of 16") &&
                                           ContainsSubstring("takes e2m1 with scales ue4m3, one for 16"));
  for (const MmaModel& model : models) CHECK_FALSE((model.source.empty() || model.instruction.empty()));
}

}  // namespace fp8lab::tests
