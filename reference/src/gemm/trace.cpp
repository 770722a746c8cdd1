// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm/trace.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "tensor_core/instruction.hpp"

namespace fp8lab {
namespace {

/// The sum of the factors' exponents; empty where it does not count.
std::optional<int> counting(int exponent) {
  if (exponent < absent_exponent / 2 || exponent > least_special_exponent) return std::nullopt;
  return exponent;
}

std::uint64_t code_of(const Operand& operand, std::size_t k) {
  if (const auto* bytes = std::get_if<std::span<const std::uint8_t>>(&operand.elements)) {
    return operand.packed ? nibble(*bytes, k) : (*bytes)[k];
  }
  if (const auto* words = std::get_if<std::span<const std::uint16_t>>(&operand.elements)) return (*words)[k];
  if (const auto* doubles = std::get_if<std::span<const double>>(&operand.elements)) {
    return std::bit_cast<std::uint64_t>((*doubles)[k]);
  }
  return std::bit_cast<std::uint32_t>(std::get<std::span<const float>>(operand.elements)[k]);
}

/// The two rows, as given and as factors.
class Rows {
 public:
  Rows(const MmaModel& model, const Operand& a, const Operand& b, ZeroRule zero_rule)
      : model_(model),
        zero_rule_(zero_rule),
        a_(model, a, zero_rule, "a"),
        b_(model, b, zero_rule, "b"),
        left_(a_.rows(0, 1)),
        right_(b_.rows(0, 1)) {}

  [[nodiscard]] FactorSpan left(std::size_t k, std::size_t count) const { return left_.part(0, k, count); }
  [[nodiscard]] FactorSpan right(std::size_t k, std::size_t count) const { return right_.part(0, k, count); }

  /// The term of the products from k on: one, or a group.
  [[nodiscard]] TraceTerm term(std::size_t k, std::size_t count) const {
    TraceTerm term{};
    term.k = k;
    int exponent = 0;
    bool any = false;
    for (std::size_t i = k; i < k + count; ++i) {
      const Factor& x = left_.elements[i];
      const Factor& y = right_.elements[i];
      const double product = real_value(x) * real_value(y);
      term.value += product;
      any = any || product != 0;
      if (count == 1) exponent = x.exponent + y.exponent;
      if (count == 1 || product != 0) {
        term.products.push_back({i, code_of(a_.operand(), i), code_of(b_.operand(), i), real_value(x), real_value(y)});
      }
    }
    if (model_.scales) {
      const std::size_t block = k / left_.block;
      const Factor& x = left_.scales[block];
      const Factor& y = right_.scales[block];
      term.scales = {block, a_.scale_code(0, block), b_.scale_code(0, block), real_value(x), real_value(y)};
      term.value *= real_value(x) * real_value(y);
      exponent += x.exponent + y.exponent;
    }
    if (count == 1 || group_counts(zero_rule_, any, term.value)) term.exponent = counting(exponent);
    return term;
  }

 private:
  const MmaModel& model_;
  ZeroRule zero_rule_;
  FactorReader a_, b_;
  Factors left_, right_;
};

/// Whether the instruction takes its product k in `step`.
bool is_of_step(const MmaModel& model, int step, std::size_t k) {
  switch (model.order) {
    case StepOrder::ascending: break;
    case StepOrder::pairs: return std::cmp_equal(k / 2 % 2, step);
  }
  return model.k() == 0 || std::cmp_equal(k / static_cast<std::size_t>(model.products_per_step), step);
}

TraceTerm accumulator_term(const MmaModel& model, std::uint64_t word, ZeroRule zero_rule) {
  const Factor c = model.is_fp64() ? factor(std::bit_cast<double>(word))
                                   : factor(model.accumulator(), static_cast<std::uint32_t>(word), zero_rule);
  TraceTerm term{};
  term.value = real_value(c);
  term.exponent = counting(c.exponent);
  return term;
}

/// Keeps what `cut`, std::trunc or std::floor, leaves of the term in multiples of 2^unit. Scaling by a power of two is
/// exact, and so is the difference of a number and its leading bits.
template <typename Cut>
void keep(TraceTerm& term, int unit, const Cut& cut) {
  term.kept = std::ldexp(cut(std::ldexp(term.value, -unit)) + 0.0, unit);  // without -0
  term.cut = term.value - term.kept;
}

/// Arithmetic::products_first: products beside the largest exponent of their sum, c beside that of all.
void align_products_first(const MmaModel& model, TraceStep& step) {
  const auto is_vast = [](const TraceTerm& term) { return std::abs(term.value) >= 0x1p128; };  // it counts as infinite
  if (std::ranges::any_of(step.terms, is_vast)) return;
  const auto sums = static_cast<std::size_t>(model.sums);
  std::optional<int> top;
  for (std::size_t i = 0; i < sums; ++i) {
    std::optional<int> leading;
    for (const TraceTerm& term : step.terms) {
      if (term.k % sums == i && term.value != 0) leading = std::max(leading, term.exponent);
    }
    for (TraceTerm& term : step.terms) {
      if (term.k % sums == i && leading)
        keep(term, *leading - model.fraction_bits, [](double x) { return std::trunc(x); });
    }
    top = std::max(top, leading);
  }
  TraceTerm& c = step.accumulator;
  const int exponent = c.value == 0 ? binary32.min_exponent() : c.exponent.value_or(0);
  const int all = std::max(top.value_or(exponent), exponent);
  if (model.drops_small_c && exponent < all - model.fraction_bits - 1) {
    c.cut = c.value;
  } else {
    keep(c, all - model.fraction_bits, [](double x) { return std::floor(x); });
  }
}

/// Arithmetic::flushed_pairs: factors, products and an instruction's c, subnormal ones as zeros.
void align_flushed(const MmaModel& model, bool is_first, TraceStep& step) {
  const auto flushed = [](double x, const Format& format) {
    return std::abs(x) < std::ldexp(1.0, format.min_exponent()) ? 0.0 : x;
  };
  const Format& format = model.operands.front();
  for (TraceTerm& term : step.terms) {
    const TraceProduct& product = term.products.front();
    const auto rounded = static_cast<float>(flushed(product.a, format) * flushed(product.b, format));
    term.kept = flushed(rounded, binary32);
    term.cut = term.value - term.kept;
  }
  TraceTerm& c = step.accumulator;
  c.kept = is_first ? flushed(c.value, binary32) : c.value;
  c.cut = c.value - c.kept;
}

/// Aligns the terms of step `index`, where they are numbers; `exact` and a chain of fma keep all of them whole.
void align(const MmaModel& model, int index, ZeroRule zero_rule, TraceStep& step) {
  std::vector<TraceTerm*> terms{&step.accumulator};
  for (TraceTerm& term : step.terms) terms.push_back(&term);
  if (std::ranges::any_of(terms, [](const TraceTerm* term) { return term->is_special(); })) return;
  switch (model.arithmetic) {
    case Arithmetic::fused: break;
    case Arithmetic::exact:
    case Arithmetic::fma_chain:
      for (TraceTerm* term : terms) term->kept = term->value;
      return;
    case Arithmetic::products_first: return align_products_first(model, step);
    case Arithmetic::flushed_pairs: return align_flushed(model, index == 0, step);
  }
  // 1. The largest exponent; an optional without a value is less than any with one.
  for (const TraceTerm* term : terms) step.exponent = std::max(step.exponent, term->exponent);
  if (step.exponent && zero_rule == ZeroRule::floor) step.exponent = std::max(*step.exponent, model.zero_exponent);
  if (!step.exponent) return;
  step.unit = *step.exponent - model.fraction_bits;
  // 2. What is kept, and its sum.
  step.sum = 0;
  for (TraceTerm* term : terms) {
    keep(*term, *step.unit, [](double x) { return std::trunc(x); });
    *step.sum += static_cast<std::int64_t>(std::ldexp(term->kept, -*step.unit));
  }
}

TraceStep traced_step(const MmaModel& model, int index, const Rows& rows, const TraceInstruction& instruction,
                      std::uint64_t before, ZeroRule zero_rule) {
  TraceStep step{};
  step.before = before;
  step.accumulator = accumulator_term(model, before, zero_rule);
  const auto group = static_cast<std::size_t>(model.group);
  for (std::size_t k = 0; k < instruction.products; k += group) {
    checkpoint(k);
    if (!is_of_step(model, index, k)) continue;
    TraceTerm term = rows.term(instruction.k + k, group);
    if (term.value != 0 || term.exponent) step.terms.push_back(std::move(term));
  }
  align(model, index, zero_rule, step);
  step.after = mma_step(model, index, rows.left(instruction.k, instruction.products),
                        rows.right(instruction.k, instruction.products), before, zero_rule);
  return step;
}

TraceInstruction traced_instruction(const MmaModel& model, const Rows& rows, std::size_t k, std::size_t products,
                                    std::uint64_t c, ZeroRule zero_rule) {
  TraceInstruction instruction{};
  instruction.k = k;
  instruction.products = products;
  std::uint64_t accumulator = c;
  switch (model.lowering) {
    case Lowering::native: break;
    case Lowering::fp16_add:
      instruction.added = c;
      accumulator = 0;
      break;
  }
  for (int index = 0; index < model.steps; ++index) {
    instruction.steps.push_back(traced_step(model, index, rows, instruction, accumulator, zero_rule));
    accumulator = instruction.steps.back().after;
  }
  instruction.result = instruction.added ? ieee_sum(model, accumulator, c) : accumulator;
  return instruction;
}

void check(const MmaModel& model, const Operand& a, const Operand& b, const TraceOptions& options) {
  for (const auto& [name, side] : {std::pair{"a", &a}, std::pair{"b", &b}}) {
    if (side->rows != 1) {
      throw std::invalid_argument(std::string(name) + " must be one row, not " + std::to_string(side->rows));
    }
    if (!side->tile_scales.values.empty() || !side->row_scales.empty() || side->tensor_scale != TensorScale{}) {
      throw std::invalid_argument(std::string(name) +
                                  " has scales of tiles, rows or a tensor, which a trace leaves out");
    }
  }
  if (a.depth == 0 && b.depth == 0) throw std::invalid_argument("K must be at least 1, not 0");
  const Format& word = model.accumulator();
  if ((options.c & ~(word.sign_mask() | word.magnitude_mask())) != 0) {
    throw std::invalid_argument("c must be a word of " + format_name(word) + ", the accumulator of " +
                                std::string(model.name));
  }
  const GemmRecipe checked{
      .model = model, .zero_rule = options.zero_rule, .promote_k = options.promote_k};  // gemm checks the rest
  float out = 0;
  double wide = 0;
  if (model.is_fp64()) {
    gemm(checked, a, b, std::span(&wide, 1));
  } else {
    gemm(checked, a, b, std::span(&out, 1));
  }
}

}  // namespace

bool TraceTerm::is_special() const { return !std::isfinite(value); }

double DotTrace::value() const {
  return format == binary64 ? std::bit_cast<double>(word) : decode(format, static_cast<std::uint32_t>(word));
}

DotTrace trace_dot(const MmaModel& model, const Operand& a, const Operand& b, const TraceOptions& options) {
  const DefaultEnvironment environment;
  check(model, a, b, options);
  const Rows rows(model, a, b, options.zero_rule);
  const auto promote_k = static_cast<std::size_t>(options.promote_k);
  const std::size_t step = model.k() == 0 ? a.depth : static_cast<std::size_t>(model.k());
  DotTrace trace{model, options, a.depth, {}, options.c, promote_k == 0 ? model.accumulator() : binary32};
  float promoted = 0;
  for (std::size_t k = 0; k < a.depth; k += step) {
    checkpoint();
    const std::size_t products = std::min(step, a.depth - k);
    TraceInstruction instruction = traced_instruction(model, rows, k, products, trace.word, options.zero_rule);
    trace.word = instruction.result;
    if (promote_k != 0 && ((k + step) % promote_k == 0 || k + step >= a.depth)) {
      promoted += accumulator_value(model, instruction.result);
      if (std::isnan(promoted)) promoted = std::bit_cast<float>(0x7FFFFFFFU);  // as a GPU has it
      instruction.promoted = promoted;
      trace.word = 0;
    }
    trace.instructions.push_back(std::move(instruction));
  }
  if (promote_k != 0) trace.word = std::bit_cast<std::uint32_t>(promoted);
  return trace;
}

}  // namespace fp8lab
