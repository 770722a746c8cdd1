// SPDX-License-Identifier: Apache-2.0
// What a trace says is so: its words are those of mma() and gemm(), and its terms, exponents and sums are the slow
// oracle's, held in exact rationals.
#include "fp8lab/reference/gemm/trace.hpp"

#include <cmath>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/rational.hpp"
#include "reference/tensor_core/dots.hpp"

namespace fp8lab::tests {
namespace {

/// One dot product of a batch, ready for both.
struct One {
  const MmaModel& model;
  const Dots& dots;
  std::size_t i;
  Codes a, b;
  Scales scale_a, scale_b;

  One(const MmaModel& of, const Dots& all, std::size_t which) : model(of), dots(all), i(which) {
    const auto row = [&](const auto& codes) {
      const auto width = static_cast<std::ptrdiff_t>(codes.size() / dots.count());
      const auto first = codes.begin() + static_cast<std::ptrdiff_t>(i) * width;
      return std::remove_cvref_t<decltype(codes)>(first, first + width);
    };
    a = row(dots.a), b = row(dots.b), scale_a = row(dots.scale_a), scale_b = row(dots.scale_b);
  }
  [[nodiscard]] DotTrace trace(TraceOptions options) const {
    const Elements left(a, dots.format_a), right(b, dots.format_b);
    return trace_dot(model, left.operand(1, dots.k, scale_a), right.operand(1, dots.k, scale_b), options);
  }
};

/// A finite term's value.
Rational value_of(const SlowTerm& term) {
  return Rational(slow_signed(term)) * power_of_two(term.exponent - term.width);
}

/// Whether a term of the trace says what the oracle knows of it.
bool is_same(const TraceTerm& term, const SlowTerm& slow, bool counts) {
  if (slow.is_nan()) return std::isnan(term.value) && !term.exponent;
  if (slow.is_infinite()) return std::isinf(term.value) && std::signbit(term.value) == slow.negative && !term.exponent;
  return term.exponent == (counts ? std::optional(slow.exponent) : std::nullopt) &&
         rational(term.value) == value_of(slow);
}

/// Whether a product's factors are those that were given; `widened` by an instruction of FP16.
bool is_given(const One& one, const TraceProduct& product) {
  const SlowTerm a = slow_decode(one.a[product.k], one.dots.format_a);
  const SlowTerm b = slow_decode(one.b[product.k], one.dots.format_b);
  const auto same = [](double x, const SlowTerm& y) {
    return y.is_nan() ? std::isnan(x) : y.is_infinite() ? std::isinf(x) : rational(x) == value_of(y);
  };
  const int shift = one.dots.format_a == tf32 ? 13 : 0;
  return same(product.a, a) && same(product.b, b) && product.code_a == one.a[product.k] << shift &&
         product.code_b == one.b[product.k] << shift;
}

/// Checks one step against the oracle's terms, of which the last is the accumulator.
void check_step(const SlowModel& slow, SlowZeroRule zero, const One& one, int index, const TraceStep& step,
                std::vector<std::string>& wrong) {
  const auto check = [&](bool holds, const char* what) {
    if (!holds) wrong.push_back(std::string(slow.name) + " dot " + std::to_string(one.i) + ": " + what);
  };
  std::vector<SlowTerm> terms =
      slow_terms(slow, {one.a, one.dots.format_a, one.scale_a}, {one.b, one.dots.format_b, one.scale_b}, index);
  terms.push_back(slow_accumulator(slow, step.before));
  std::vector<const TraceTerm*> traced;
  for (const TraceTerm& term : step.terms) traced.push_back(&term);
  traced.push_back(&step.accumulator);
  // 1. Term by term.
  std::size_t next = 0;
  std::vector<std::pair<const TraceTerm*, const SlowTerm*>> pairs;
  std::optional<int> leading;
  for (const SlowTerm& term : terms) {
    const bool counts = !term.is_scaled_by_zero &&
                        (zero == SlowZeroRule::count_zero_factors || !term.is_zero() || !term.counts_as_zero);
    if (term.kind == SlowTerm::Kind::finite && counts) leading = std::max(leading, std::optional(term.exponent));
    const bool is_accumulator = &term == &terms.back();
    if (!is_accumulator && term.is_zero() && !counts) continue;
    if (next == traced.size()) return check(false, "a term is missing");
    check(is_same(*traced[next], term, counts), "a term");
    pairs.emplace_back(traced[next++], &term);
  }
  check(next == traced.size(), "the number of terms");
  if (leading && zero == SlowZeroRule::floor_of_zero_terms) leading = std::max(*leading, slow_floor(slow));
  for (const TraceTerm* term : traced) {
    for (const TraceProduct& product : term->products) {
      check(is_given(one, product), "a product's factors");
      check(product.k / static_cast<std::size_t>(slow.group) == term->k / static_cast<std::size_t>(slow.group),
            "a term's k");
    }
  }
  // 2. NaN and infinity leave nothing to align, nor do terms of which none counts.
  if (const auto special = slow_special(terms, slow_word(slow.output))) {
    check(!step.exponent && !step.sum && step.after == *special, "a special step");
    return;
  }
  if (!leading) return check(!step.exponent && step.after == 0, "a step of nothing");
  // 3. The exponent, what is kept and cut, the sum, the word.
  const int unit = *leading - slow.fraction_bits;
  check(step.exponent == leading && step.unit == unit, "the alignment exponent");
  cpp_int sum = 0;
  for (const auto& [term, exact] : pairs) {
    const cpp_int aligned = exact->is_zero() ? cpp_int(0) : slow_aligned(*exact, *leading, slow);
    sum += aligned;
    check(rational(term->kept) == Rational(aligned) * power_of_two(unit), "what is kept");
    check(rational(term->kept) + rational(term->cut) == value_of(*exact), "kept and cut are not the product");
    check(abs(rational(term->cut)) < power_of_two(unit), "more is cut than a unit");
  }
  check(step.sum && cpp_int(*step.sum) == sum, "the sum");
  check(step.after == slow_output(sum, unit, slow.output), "the word");
}

/// What AMD's arithmetic, and FP64's, adds of a term of a step: by the oracle's functions, in exact numbers. `products`
/// are the step's; `c` is the accumulator.
Rational kept_of(const SlowModel& slow, std::span<const SlowTerm> products, const SlowTerm& c, bool is_accumulator,
                 std::size_t i, bool is_first) {
  const auto fixed = [](const cpp_int& x) { return Rational(x) * power_of_two(-slow_point); };
  if (slow.sum == SlowSum::products_first) {
    std::array<std::vector<SlowTerm>, 2> halves;
    for (std::size_t k = 0; k < products.size(); ++k) halves.at(slow.has_two_sums ? k % 2 : 0).push_back(products[k]);
    const std::optional<int> even = slow_dot(slow, halves[0]).exponent;
    const std::optional<int> odd = slow_dot(slow, halves[1]).exponent;
    if (!is_accumulator) {
      const std::optional<int> own = slow.has_two_sums && i % 2 == 1 ? odd : even;
      return own ? fixed(slow_cut(slow_fixed(products[i]), *own - 24, false)) : Rational(0);
    }
    const int top = std::max(std::max(even, odd).value_or(c.exponent), c.exponent);
    const bool drops = slow.has_two_sums && c.exponent < top - 25;
    return drops ? Rational(0) : fixed(slow_cut(slow_fixed(c), top - 24, true));
  }
  const SlowTerm& term = is_accumulator ? c : products[i];
  if (slow.sum != SlowSum::flushed_pairs || (is_accumulator && !is_first)) return value_of(term);
  const bool subnormal = abs(value_of(term)) < power_of_two(-126);
  return subnormal ? Rational(0) : value_of(term);
}

/// Checks what a step keeps of its terms, where they are numbers and no product is beyond float32.
void check_kept(const SlowModel& slow, const One& one, int index, const TraceStep& step,
                std::vector<std::string>& wrong) {
  if (slow.output == SlowOutput::binary64) return;  // whose products no double holds
  std::vector<SlowTerm> products;
  for (int i = 0; i < slow.step_products; ++i) {
    const auto k = static_cast<std::size_t>(index * slow.step_products + i);
    std::array factors{slow_decode(one.a[k], one.dots.format_a), slow_decode(one.b[k], one.dots.format_b)};
    for (SlowTerm& x : factors) {
      const bool subnormal = x.significand < (cpp_int(1) << static_cast<unsigned>(x.width));
      if (slow.sum == SlowSum::flushed_pairs && subnormal) x.significand = 0;
    }
    products.push_back(slow_product(factors[0], factors[1]));
    if (products.back().kind != SlowTerm::Kind::finite || abs(value_of(products.back())) >= power_of_two(127)) return;
  }
  const SlowTerm c = slow_decode(step.before, binary32);
  if (c.kind != SlowTerm::Kind::finite) return;
  const auto check = [&](const TraceTerm& term, bool is_accumulator) {
    const std::size_t i = term.k % static_cast<std::size_t>(slow.step_products);
    const Rational kept = kept_of(slow, products, c, is_accumulator, i, index == 0);
    const bool holds = rational(term.kept) == kept && term.cut == term.value - term.kept;
    if (!holds) wrong.push_back(std::string(slow.name) + " dot " + std::to_string(one.i) + ": what is kept");
  };
  for (const TraceTerm& term : step.terms) check(term, false);
  check(step.accumulator, true);
}

/// Checks all steps of a trace of one instruction, and how they follow from one another.
void check_trace(const SlowModel& slow, ZeroRule rule, const One& one, const DotTrace& trace,
                 std::vector<std::string>& wrong) {
  const SlowZeroRule zero = slow_rule(rule);
  const std::uint64_t c = one.dots.c[one.i];
  const TraceInstruction& instruction = trace.instructions.front();
  const auto check = [&](bool holds, const char* what) {
    if (!holds) wrong.push_back(std::string(slow.name) + " dot " + std::to_string(one.i) + ": " + what);
  };
  check(trace.instructions.size() == 1 && instruction.products == one.dots.k, "one instruction");
  check(std::cmp_equal(instruction.steps.size(), slow.steps), "the number of steps");
  std::uint64_t word = slow.lowered ? 0 : c;
  for (std::size_t i = 0; i < instruction.steps.size(); ++i) {
    check(instruction.steps[i].before == word, "the word before a step");
    if (slow.sum == SlowSum::fused) {
      check_step(under(slow, rule), zero, one, static_cast<int>(i), instruction.steps[i], wrong);
    } else {
      const SlowOperand a{one.a, one.dots.format_a}, b{one.b, one.dots.format_b};
      const std::uint64_t after = slow_amd_step(slow, a, b, static_cast<int>(i), word);
      check(instruction.steps[i].after == after, "the word after a step");
      check_kept(slow, one, static_cast<int>(i), instruction.steps[i], wrong);
    }
    word = instruction.steps[i].after;
  }
  check(instruction.added == (slow.lowered ? std::optional(c) : std::nullopt), "the addition of c");
  if (slow.lowered) word = slow_add(word, c, slow_word(slow.output));
  check(instruction.result == word && trace.word == word && !instruction.promoted, "the result");
}

/// Deep operands of a model: two instructions and a part, or two and a block of scales.
Dots deep_dots(const MmaModel& model, std::size_t count) {
  MmaModel whole = model;
  const int part = model.scales ? model.scales->block : model.k() / 2 + 1;
  whole.products_per_step = model.k() == 0 ? 50 : 2 * model.k() + part;
  whole.steps = 1;
  return hard_dots(whole, model.operands.back(), model.operands.front(), count, 31);
}

std::uint64_t gemm_of(const One& one, const TraceOptions& options) {
  const Elements left(one.a, one.dots.format_a), right(one.b, one.dots.format_b);
  return gemm_words({.model = one.model, .zero_rule = options.zero_rule, .promote_k = options.promote_k},
                    left.operand(1, one.dots.k, one.scale_a), right.operand(1, one.dots.k, one.scale_b))
      .front();
}

/// The trace's word as gemm() has it: a float16 number is a float32 one.
std::uint64_t word_of(const DotTrace& trace) {
  if (trace.format != binary16) return trace.word;
  const float value = decode(binary16, static_cast<std::uint32_t>(trace.word));
  return std::isnan(value) ? 0x7FFFFFFFU : bits(value);
}

}  // namespace

TEST_CASE("trace: every statement of it is the oracle's, for every model, format and zero rule") {
  std::vector<std::string> wrong;
  std::size_t steps = 0;
  for (const MmaModel& model : models) {
    if (model.k() == 0) continue;
    const SlowModel slow = slow_model_of(model);
    for (const Format& a : model.operands) {
      for (const ZeroRule rule : rules_of(model)) {
        const Dots dots = hard_dots(model, a, model.operands.front(), exhaustive() && !sanitized ? 40 : 6, 5);
        const Codes words = mma_words(model, dots, rule);
        for (std::size_t i = 0; i < dots.count(); ++i) {
          const One one(model, dots, i);
          const DotTrace trace = one.trace({.c = dots.c[i], .zero_rule = rule});
          if (trace.word != words[i]) wrong.push_back(std::string(model.name) + ": not the word of mma");
          check_trace(slow, rule, one, trace, wrong);
          steps += trace.instructions.front().steps.size();
        }
      }
    }
  }
  INFO(wrong.size() << " wrong, first: " << (wrong.empty() ? "" : wrong.front()));
  CHECK(wrong.empty());
  CHECK(steps > 1000);
}

TEST_CASE("trace: the result is gemm's, of any K, fast and promoted, for every model") {
  for (const MmaModel& model : models) {
    const Dots dots = deep_dots(model, exhaustive() && !sanitized ? 100 : 16);
    Mismatches wrong;
    for (std::size_t i = 0; i < dots.count(); ++i) {
      const One one(model, dots, i);
      for (const ZeroRule rule : {ZeroRule::skip_terms, ZeroRule::count_zero_factors}) {
        for (const int promote_k : {0, model.k(), 2 * model.k()}) {
          if (model.is_fp64() && promote_k != 0) continue;
          const TraceOptions options{.zero_rule = rule, .promote_k = promote_k};
          const DotTrace trace = one.trace(options);
          wrong.compare(i, promote_k, word_of(trace), gemm_of(one, options), model.name.data());
          const bool chained = trace.instructions.size() == (model.k() == 0 ? 1U : 3U);
          wrong.compare(i, promote_k, chained ? 1 : 0, 1, "instructions");
        }
      }
    }
    REQUIRE_NO(wrong);
  }
}

TEST_CASE("trace: exact keeps everything, and rounds the sum once") {
  const Dots dots = deep_dots(exact, 200);
  for (std::size_t i = 0; i < dots.count(); ++i) {
    const One one(exact, dots, i);
    const DotTrace trace = one.trace({});
    const TraceStep& step = trace.instructions.front().steps.front();
    CHECK_FALSE((step.exponent || step.sum));
    if (std::ranges::any_of(step.terms, &TraceTerm::is_special)) continue;
    Rational sum = 0;
    for (const TraceTerm& term : step.terms) {
      sum += rational(term.products.front().a) * rational(term.products.front().b);
      CHECK((term.kept == term.value && term.cut == 0));
    }
    CHECK(trace.value() == static_cast<double>(nearest_float(sum)));
    CHECK(trace.word == bits(nearest_float(sum)));
  }
}

TEST_CASE("trace: wrong arguments are named") {
  const std::vector<std::uint8_t> codes(64, 0x38);
  const auto row = [&](std::size_t rows, std::size_t depth) {
    return Operand::codes(std::span(codes).first(rows * depth), e4m3, rows, depth);
  };
  CHECK_THROWS_WITH(trace_dot(hopper_wgmma_fp8, row(2, 32), row(1, 32)), "a must be one row, not 2");
  CHECK_THROWS_WITH(trace_dot(hopper_wgmma_fp8, row(1, 32), row(0, 32)), "b must be one row, not 0");
  CHECK_THROWS_WITH(trace_dot(hopper_wgmma_fp8, row(1, 0), row(1, 0)), "K must be at least 1, not 0");
  CHECK_THROWS_WITH(trace_dot(hopper_wgmma_fp8, row(1, 32), row(1, 31)), "a and b must have the same K, not 32 and 31");
  CHECK_THROWS_WITH(trace_dot(ada_mma_fp8_f16, row(1, 32), row(1, 32), {.c = 0x10000}),
                    "c must be a word of float16, the accumulator of ada_mma_fp8_f16");
  const std::vector<double> doubles(4);
  const Operand wide = Operand::doubles(doubles, 1, 4);
  CHECK_THROWS_WITH(trace_dot(cdna3_fp64, wide, wide, {.promote_k = 4}),
                    ContainsSubstring("promote_k does not apply to cdna3_fp64"));
  CHECK_THROWS_WITH(trace_dot(hopper_wgmma_fp8, row(1, 32), row(1, 32), {.promote_k = 48}),
                    ContainsSubstring("promote_k must be a multiple of 32"));
  CHECK_THROWS_WITH(trace_dot(hopper_fp16, row(1, 32), row(1, 32)), ContainsSubstring("hopper_fp16 takes float16"));
  CHECK_THROWS_WITH(trace_dot(blackwell_mxf8, row(1, 32), row(1, 32)), ContainsSubstring("scale_a must have 1 * 1"));
}

}  // namespace fp8lab::tests
