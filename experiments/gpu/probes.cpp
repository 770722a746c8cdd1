// SPDX-License-Identifier: Apache-2.0
#include "gpu/probes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <set>

#include "fp8lab/reference/tensor_core/mma.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::experiments {
namespace {

using gpu::Instruction;
using gpu::MmaAccumulator;
using gpu::MmaType;
using gpu::random_word;

/// The accumulator's word of one dot product.
template <typename Element>
std::uint32_t result_of(const Hypothesis& hypothesis, const gpu::TileSet& set, const ProbeDot& dot) {
  const auto elements_of = [](const std::vector<std::uint32_t>& words) {
    std::vector<Element> elements;
    for (const std::uint32_t word : words) {
      if constexpr (sizeof(Element) == 4) {
        elements.push_back(std::bit_cast<float>(word));
      } else {
        elements.push_back(static_cast<Element>(word));
      }
    }
    return elements;
  };
  const std::vector<Element> a = elements_of(dot.a);
  const std::vector<Element> b = elements_of(dot.b);
  const auto operand = [&](const std::vector<Element>& elements, const Format& format) {
    return Operand{.elements = std::span(elements),
                   .format = format,
                   .rows = 1,
                   .depth = set.depth,
                   .tf32_rounding = format == binary32 ? std::optional(hypothesis.tf32_rounding) : std::nullopt};
  };
  const auto run = [&](auto c) {
    mma(hypothesis.model, operand(a, set.a), operand(b, set.b), std::span(std::as_const(c)), std::span(c),
        hypothesis.zero_rule);
    return c[0];
  };
  if (set.accumulator == binary16) return run(std::vector{Half{static_cast<std::uint16_t>(dot.c)}}).bits;
  return std::bit_cast<std::uint32_t>(run(std::vector{std::bit_cast<float>(dot.c)}));
}

std::uint32_t result_of(const Hypothesis& hypothesis, const gpu::TileSet& set, const ProbeDot& dot) {
  switch (gpu::bytes_of(set.a)) {
    case 1: return result_of<std::uint8_t>(hypothesis, set, dot);
    case 2: return result_of<std::uint16_t>(hypothesis, set, dot);
    default: return result_of<float>(hypothesis, set, dot);
  }
}

gpu::TileSet set_of(const Probe& probe) {
  return gpu::instructions().at(probe.instruction).tiles(gpu::Draw::random_bits, 0);
}

/// Words of a format, one tile each, in whose first row the dot product lies.
std::vector<std::byte> tiles_of(const Format& format, const std::vector<std::vector<std::uint32_t>>& firsts,
                                std::size_t words) {
  std::vector<std::byte> bytes(firsts.size() * words * gpu::bytes_of(format));
  for (std::size_t tile = 0; tile < firsts.size(); ++tile) {
    for (std::size_t i = 0; i < firsts[tile].size(); ++i) {
      gpu::store_word(format, bytes.data(), tile * words + i, firsts[tile][i]);
    }
  }
  return bytes;
}

/// The results of the device, in the order of the dots.
std::vector<std::uint32_t> results_of(gpu::Recorder& recorder, const Probe& probe, const std::vector<ProbeDot>& dots) {
  const gpu::TileSet set = set_of(probe);
  std::vector<std::vector<std::uint32_t>> a;
  std::vector<std::vector<std::uint32_t>> b;
  std::vector<std::vector<std::uint32_t>> c;
  for (const ProbeDot& dot : dots) {
    a.push_back(dot.a);
    b.push_back(dot.b);
    c.push_back({dot.c});
  }
  const std::vector<std::uint32_t> words =
      recorder.multiply(probe.instruction, tiles_of(set.a, a, set.words_of_a()), tiles_of(set.b, b, set.words_of_b()),
                        tiles_of(set.accumulator, c, set.dots()));
  std::vector<std::uint32_t> results;
  results.reserve(dots.size());
  for (std::size_t i = 0; i < dots.size(); ++i) results.push_back(words[i * set.dots()]);
  return results;
}

std::string told(const gpu::TileSet& set, const ProbeDot& dot, std::uint32_t result) {
  const auto words = [](const std::vector<std::uint32_t>& all, const Format& format) {
    std::string text;
    for (const std::uint32_t word : all) text += fmt::format("{:0{}x} ", word, (format.bits() + 3) / 4);
    return text;
  };
  const int digits = set.accumulator.bits() / 4;
  return fmt::format("a {}b {}c {:0{}x} gives {:0{}x}", words(dot.a, set.a), words(dot.b, set.b), dot.c, digits, result,
                     digits);
}

// 1. What is tried.

using Drawn = std::span<std::uint32_t>;

std::uint32_t sign_of(const Format& format, std::uint64_t random) {
  return (random & 1) != 0 ? static_cast<std::uint32_t>(format.sign_mask()) : 0;
}

/// Finite words whose exponent field is below `fields`, some of them zero.
std::uint32_t low_word(const Format& format, std::uint64_t random, std::uint64_t fields) {
  if (random % 5 == 0) return 0;
  const std::uint64_t fraction = random >> 8 & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  const std::uint64_t field = (random >> 40) % fields;
  return sign_of(format, random >> 1) | static_cast<std::uint32_t>(field << format.mantissa_bits | fraction);
}

/// 1 or 1.5 times a power of two, whose sign is random; the nearest value of the format.
std::uint32_t power_word(const Format& format, std::uint64_t random, int exponent) {
  const Unpacked value{(random & 1) != 0, fp8lab::Kind::finite, exponent - 1, 2 + (random >> 1 & 1)};
  const CastPolicy policy{};
  return static_cast<std::uint32_t>(encode(format, policy, value, policy.nan));
}

/// Operands of which few products are not zero: one is about as large as the accumulator's smallest value, the others
/// are smaller by up to 30 binades. c is tiny or zero.
void draw_tiny(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint32_t& c) {
  std::ranges::fill(a, 0);
  std::ranges::fill(b, 0);
  const int smallest = set.accumulator.min_exponent() - set.accumulator.mantissa_bits;
  const int least_a = set.a.min_exponent() - set.a.mantissa_bits;
  const int least_b = set.b.min_exponent() - set.b.mantissa_bits;
  for (std::size_t k = 0; k < i % 4; ++k) {
    const std::uint64_t random = random_word(12, i * 64 + k);
    const int below = static_cast<int>(k == 0 ? random >> 8 & 3 : random >> 8 & 31) - 2;
    const int exponent = std::max(smallest - below, least_a + least_b);
    const int of_a = std::max(exponent / 2, least_a);
    a[k] = power_word(set.a, random, of_a);
    b[k] = power_word(set.b, random >> 2, std::max(exponent - of_a, least_b));
  }
  c = i % 3 == 0 ? 0 : low_word(set.accumulator, random_word(11, i), 4 + i % 24);
}

/// Operands of the generator, all draws in turn.
void draw_generated(gpu::TileSet set, std::uint64_t i, Drawn a, Drawn b, std::uint32_t& c) {
  set.draw = static_cast<gpu::Draw>(i % gpu::draws);
  set.seed = 21;
  for (unsigned k = 0; k < a.size(); ++k) {
    a[k] = gpu::operand_word(set, false, i, 0, k);
    b[k] = gpu::operand_word(set, true, i, 0, k);
  }
  c = gpu::accumulator_word(set, i, 0, 0);
}

/// The same without infinities and NaN.
void draw_finite(gpu::TileSet set, std::uint64_t i, Drawn a, Drawn b, std::uint32_t& c) {
  draw_generated(set, i / 2 * gpu::draws + 1 + i % 2, a, b, c);
}

/// NaN, infinities and zeros times infinities.
void draw_special(gpu::TileSet set, std::uint64_t i, Drawn a, Drawn b, std::uint32_t& c) {
  draw_generated(set, i * gpu::draws + 4, a, b, c);
}

// 2. What may be.

MmaModel with_zero_exponent(MmaModel model, int exponent) {
  model.zero_exponent = exponent;
  return model;
}
MmaModel with_fraction_bits(MmaModel model, int bits) {
  model.fraction_bits = bits;
  return model;
}

std::vector<Hypothesis> zero_hypotheses(const MmaModel& model) {
  std::vector<Hypothesis> list;
  for (int change = -8; change <= 8; ++change) {
    list.push_back({.name = fmt::format("a floor of {}", model.zero_exponent + change),
                    .model = with_zero_exponent(model, model.zero_exponent + change),
                    .is_ours = change == 0});
  }
  list.push_back({.name = "no floor", .model = model, .zero_rule = ZeroRule::skip_terms});
  list.push_back({.name = "zero factors count as 2^-126", .model = model, .zero_rule = ZeroRule::count_zero_factors});
  return list;
}

std::vector<Hypothesis> fraction_hypotheses(const MmaModel& model) {
  std::vector<Hypothesis> list;
  for (int bits = model.fraction_bits - 2; bits <= model.fraction_bits + 2; ++bits) {
    list.push_back({.name = fmt::format("{} fraction bits", bits),
                    .model = with_fraction_bits(model, bits),
                    .is_ours = bits == model.fraction_bits});
  }
  return list;
}

/// Divisions of an instruction into steps, and their orders.
std::vector<Hypothesis> step_hypotheses(const MmaModel& model) {
  std::vector<Hypothesis> list;
  const int k = model.k();
  for (int products = 4; products <= k; products *= 2) {
    for (const StepOrder order : {StepOrder::ascending, StepOrder::pairs}) {
      if (order == StepOrder::pairs && k / products != 2) continue;
      for (const Lowering lowering : {Lowering::native, Lowering::fp16_add}) {
        MmaModel other = model;
        other.products_per_step = products;
        other.steps = k / products;
        other.order = order;
        other.lowering = lowering;
        list.push_back(
            {.name = fmt::format("{} products a step, {}{}", products, fp8lab::name_of(order),
                                 lowering == Lowering::fp16_add ? ", c added last" : ""),
             .model = other,
             .is_ours = products == model.products_per_step && order == model.order && lowering == model.lowering});
      }
    }
  }
  return list;
}

std::vector<Hypothesis> underflow_hypotheses(MmaModel model) {
  const bool ours_is_positive = model.underflow == UnderflowSign::positive;
  model.underflow = UnderflowSign::positive;
  Hypothesis positive{.name = "+0", .model = model, .is_ours = ours_is_positive};
  model.underflow = UnderflowSign::kept;
  return {positive, {.name = "-0", .model = model, .is_ours = !ours_is_positive}};
}

std::vector<Hypothesis> tf32_hypotheses(const MmaModel& model) {
  return {{.name = "cut toward zero", .model = model, .is_ours = true},
          {.name = "rounded to nearest, ties away", .model = model, .tf32_rounding = Rounding::nearest_away}};
}

// 3. The list.

/// Instructions whose answers stand for those of mixed operands.
bool is_asked(const Instruction& instruction, int capability) {
  return instruction.is_for(capability) && instruction.type_a == instruction.type_b;
}

/// The answers that fit, in a few words.
std::string answer_of(const std::vector<std::string>& names) {
  if (names.empty()) return "none of the answers that were thought of";
  if (names.size() <= 3) return fmt::format("{}", fmt::join(names, ", or "));
  return fmt::format("{} answers fit, from {} to {}", names.size(), names.front(), names.back());
}

void add_probes(std::size_t number, int capability, std::vector<Probe>& list) {
  const Instruction& instruction = gpu::instructions()[number];
  if (!is_asked(instruction, capability)) return;
  const MmaModel& model = gpu::model_of(instruction, capability);
  const std::string name = instruction.name();
  const gpu::TileSet set = instruction.tiles(gpu::Draw::gaussian, 0);
  const auto add = [&](const char* what, const char* question, const std::vector<Hypothesis>& hypotheses, auto draw) {
    list.push_back(
        {.name = name + ": " + what,
         .question = question,
         .instruction = number,
         .hypotheses = hypotheses,
         .draw = [set, draw](std::uint64_t i, Drawn a, Drawn b, std::uint32_t& c) { draw(set, i, a, b, c); }});
  };
  add("zeros", "What exponent do terms that are zero have?", zero_hypotheses(model), draw_tiny);
  add("fraction bits", "How many bits below the largest exponent are kept?", fraction_hypotheses(model), draw_finite);
  add("steps", "Into which steps is the instruction divided?", step_hypotheses(model), draw_finite);
  if (instruction.accumulator == MmaAccumulator::float16) {
    add("underflow", "Which zero does a tiny negative sum become?", underflow_hypotheses(model), draw_tiny);
  }
  if (instruction.type_a == MmaType::tf32) {
    add("operands", "How does the instruction make TF32 of float32 words?", tf32_hypotheses(model), draw_finite);
  }
  add("NaN and infinities", "Are NaN, infinities and their words those of the model?",
      {{.name = "yes", .model = model, .is_ours = true}}, draw_special);
}

}  // namespace

std::vector<Probe> probes(int capability) {
  std::vector<Probe> list;
  for (std::size_t i = 0; i < gpu::instructions().size(); ++i) add_probes(i, capability, list);
  return list;
}

std::vector<ProbeDot> telling_dots(const Probe& probe, std::uint64_t tries) {
  const gpu::TileSet set = set_of(probe);
  const std::size_t count = probe.hypotheses.size();
  std::vector<bool> told_apart(count * count);
  std::vector<ProbeDot> dots;
  constexpr std::size_t most = 64;
  for (std::uint64_t i = 0; i < tries && dots.size() < most; ++i) {
    ProbeDot dot{
        .a = std::vector<std::uint32_t>(set.depth), .b = std::vector<std::uint32_t>(set.depth), .c = 0, .results = {}};
    probe.draw(i, dot.a, dot.b, dot.c);
    for (const Hypothesis& hypothesis : probe.hypotheses) dot.results.push_back(result_of(hypothesis, set, dot));
    bool is_new = count == 1 && i < most / 2;
    for (std::size_t one = 0; one < count; ++one) {
      for (std::size_t other = 0; other < one; ++other) {
        if (dot.results[one] == dot.results[other] || told_apart[one * count + other]) continue;
        told_apart[one * count + other] = is_new = true;
      }
    }
    if (is_new) dots.push_back(std::move(dot));
  }
  return dots;
}

Finding ask(gpu::Recorder& recorder, const Probe& probe) {
  const std::vector<ProbeDot> dots = telling_dots(probe);
  Finding finding{
      .part = "probes", .name = probe.name, .question = probe.question, .answer = {}, .agrees = {}, .words = {}};
  if (dots.empty()) {
    finding.answer = "nothing that was tried tells the answers apart";
    return finding;
  }
  const std::vector<std::uint32_t> results = results_of(recorder, probe, dots);
  std::vector<std::string> names;
  finding.agrees = false;
  for (std::size_t h = 0; h < probe.hypotheses.size(); ++h) {
    bool fits = true;
    for (std::size_t i = 0; i < dots.size(); ++i) fits = fits && dots[i].results[h] == results[i];
    if (!fits) continue;
    names.push_back(probe.hypotheses[h].name);
    if (probe.hypotheses[h].is_ours) finding.agrees = true;
  }
  finding.answer = answer_of(names);
  for (std::size_t i = 0; i < dots.size(); ++i) finding.words.push_back(told(set_of(probe), dots[i], results[i]));
  return finding;
}

}  // namespace fp8lab::experiments
