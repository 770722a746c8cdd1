// SPDX-License-Identifier: Apache-2.0
#include "gpu/probes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gpu/probe_draws.hpp"

namespace fp8lab::experiments {
namespace {

using gpu::Instruction;
using gpu::MmaAccumulator;
using gpu::MmaType;

/// The accumulator's word of one dot product.
template <typename Element>
std::uint64_t result_of(const Hypothesis& hypothesis, const gpu::TileSet& set, const ProbeDot& dot) {
  const auto elements_of = [&](const std::vector<std::uint64_t>& words) {
    std::vector<Element> elements;
    for (const std::uint64_t word : std::span(words).first(set.depth)) {
      if constexpr (sizeof(Element) == 8) {
        elements.push_back(std::bit_cast<double>(word));
      } else if constexpr (sizeof(Element) == 4) {
        elements.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
      } else {
        elements.push_back(static_cast<Element>(word));
      }
    }
    return elements;
  };
  const std::vector<Element> a = elements_of(dot.a);
  const std::vector<Element> b = elements_of(dot.b);
  const std::vector<std::uint8_t> scales_a(dot.a.begin() + set.depth, dot.a.end());
  const std::vector<std::uint8_t> scales_b(dot.b.begin() + set.depth, dot.b.end());
  const auto operand = [&](const std::vector<Element>& elements, const Format& format,
                           const std::vector<std::uint8_t>& scales) {
    return Operand{.elements = std::span(elements),
                   .format = format,
                   .rows = 1,
                   .depth = set.depth,
                   .scales = {.codes = scales},
                   .tf32_rounding = format == binary32 ? std::optional(hypothesis.tf32_rounding) : std::nullopt};
  };
  const auto run = [&](auto c) {
    mma(hypothesis.model, operand(a, set.a, scales_a), operand(b, set.b, scales_b), std::span(std::as_const(c)),
        std::span(c), hypothesis.zero_rule);
    return c[0];
  };
  if constexpr (sizeof(Element) == 8) {
    const auto c = std::bit_cast<double>(dot.c);
    return std::bit_cast<std::uint64_t>(hypothesis.other ? hypothesis.other(a, b, c) : run(std::vector{c}));
  }
  if (set.accumulator == binary16) return run(std::vector{Half{static_cast<std::uint16_t>(dot.c)}}).bits;
  return std::bit_cast<std::uint32_t>(run(std::vector{std::bit_cast<float>(static_cast<std::uint32_t>(dot.c))}));
}

std::uint64_t result_of(const Hypothesis& hypothesis, const gpu::TileSet& set, const ProbeDot& dot) {
  switch (gpu::bytes_of(set.a)) {
    case 1: return result_of<std::uint8_t>(hypothesis, set, dot);
    case 2: return result_of<std::uint16_t>(hypothesis, set, dot);
    case 4: return result_of<float>(hypothesis, set, dot);
    default: return result_of<double>(hypothesis, set, dot);
  }
}

gpu::TileSet set_of(const Probe& probe) {
  return gpu::instructions().at(probe.instruction).tiles(gpu::Draw::random_bits, 0);
}

/// Tiles of A, B or C, one for each dot product, which lies in the first row; the other rows are zero.
std::vector<std::byte> tiles_of(const Format& format, const std::vector<std::vector<std::uint64_t>>& firsts,
                                std::size_t words, unsigned depth, std::size_t tile_bytes) {
  std::vector<std::byte> bytes(firsts.size() * tile_bytes);
  for (std::size_t tile = 0; tile < firsts.size(); ++tile) {
    std::byte* const to = bytes.data() + tile * tile_bytes;
    for (std::size_t i = 0; i < firsts[tile].size(); ++i) {
      if (i < depth) {
        gpu::store_word(format, to, i, firsts[tile][i]);
      } else {  // block scales lie behind all words
        to[words * gpu::bytes_of(format) + i - depth] = static_cast<std::byte>(firsts[tile][i]);
      }
    }
  }
  return bytes;
}

/// The results of the device, in the order of the dots.
std::vector<std::uint64_t> results_of(gpu::Recorder& recorder, const Probe& probe, const std::vector<ProbeDot>& dots) {
  const gpu::TileSet set = set_of(probe);
  std::vector<std::vector<std::uint64_t>> a;
  std::vector<std::vector<std::uint64_t>> b;
  std::vector<std::vector<std::uint64_t>> c;
  for (const ProbeDot& dot : dots) {
    a.push_back(dot.a);
    b.push_back(dot.b);
    c.push_back({dot.c});
  }
  const std::vector<std::uint64_t> words =
      recorder.multiply(probe.instruction, tiles_of(set.a, a, set.words_of_a(), set.depth, bytes_of_a(set)),
                        tiles_of(set.b, b, set.words_of_b(), set.depth, bytes_of_b(set)),
                        tiles_of(set.accumulator, c, set.dots(), 1, set.dots() * gpu::bytes_of(set.accumulator)));
  std::vector<std::uint64_t> results;
  results.reserve(dots.size());
  for (std::size_t i = 0; i < dots.size(); ++i) results.push_back(words[i * set.dots()]);
  return results;
}

std::string told(const gpu::TileSet& set, const ProbeDot& dot, std::uint64_t result) {
  const auto words = [&](const std::vector<std::uint64_t>& all, const Format& format) {
    std::string text;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == set.depth) text += "scales ";
      text += fmt::format("{:0{}x} ", all[i], i < set.depth ? (format.bits() + 3) / 4 : 2);
    }
    return text;
  };
  const int digits = set.accumulator.bits() / 4;
  return fmt::format("a {}b {}c {:0{}x} gives {:0{}x}", words(dot.a, set.a), words(dot.b, set.b), dot.c, digits, result,
                     digits);
}

// 1. What may be.

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
  if (model.group > 1) {
    list.push_back(
        {.name = "no floor, groups of zeros do not count", .model = model, .zero_rule = ZeroRule::skip_empty_groups});
    list.push_back({.name = "no floor, groups whose sum is zero do not count",
                    .model = model,
                    .zero_rule = ZeroRule::skip_zero_groups});
  }
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

/// How many products are added exactly before they are aligned.
std::vector<Hypothesis> group_hypotheses(const MmaModel& model, unsigned block) {
  std::vector<Hypothesis> list;
  for (const unsigned group : {8U, 16U, 32U}) {
    if (group > block) continue;
    MmaModel other = model;
    other.group = static_cast<int>(group);
    list.push_back({.name = fmt::format("groups of {}", group), .model = other, .is_ours = other.group == model.group});
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

/// Lists how a chip may sum up FP64 products, beside the model's chain of fused multiply-adds of ascending k.
std::vector<Hypothesis> fp64_hypotheses(const MmaModel& model) {
  using Words = std::span<const double>;
  const auto chain = [](Words a, Words b, double c, bool is_descending) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::size_t k = is_descending ? a.size() - 1 - i : i;
      c = std::fma(a[k], b[k], c);
    }
    return c;
  };
  const auto pairs = [](Words a, Words b, double c) {
    for (std::size_t k = 0; k < a.size(); k += 2) c += std::fma(a[k + 1], b[k + 1], a[k] * b[k]);
    return c;
  };
  const auto rounded_products = [](Words a, Words b, double c) {
    for (std::size_t k = 0; k < a.size(); ++k) {
      const volatile double product = a[k] * b[k];  // so that no compiler fuses it with the sum
      c += product;
    }
    return c;
  };
  return {{.name = "fused multiply-adds, ascending k", .model = model, .is_ours = true},
          {.name = "fused multiply-adds, descending k",
           .model = model,
           .other = [chain](Words a, Words b, double c) { return chain(a, b, c, true); }},
          {.name = "fused multiply-adds from zero, c added last",
           .model = model,
           .other = [chain](Words a, Words b, double c) { return chain(a, b, 0, false) + c; }},
          {.name = "pairs of products, then their sums", .model = model, .other = pairs},
          {.name = "rounded products, added one by one", .model = model, .other = rounded_products}};
}

// 2. The list.

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
         .draw = [set, draw](std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c) { draw(set, i, a, b, c); }});
  };
  const auto add_special = [&] {
    add("NaN and infinities", "Are NaN, infinities and their words those of the model?",
        {{.name = "yes", .model = model, .is_ours = true}}, draw_special);
  };
  if (model.is_fp64()) {
    add("order", "In which order are products added, and where are sums rounded?", fp64_hypotheses(model), draw_finite);
    return add_special();
  }
  const bool is_scaled = set.blocks() > 0;
  add("zeros", "What exponent do terms that are zero have?", zero_hypotheses(model),
      is_scaled ? draw_scaled_zeros : draw_tiny);
  add("fraction bits", "How many bits below the largest exponent are kept?", fraction_hypotheses(model), draw_finite);
  if (model.group > 1) {
    add("groups", "How many products are added exactly before they are aligned?", group_hypotheses(model, set.block),
        draw_finite);
  } else {
    add("steps", "Into which steps is the instruction divided?", step_hypotheses(model), draw_finite);
  }
  if (instruction.accumulator == MmaAccumulator::float16) {
    add("underflow", "Which zero does a tiny negative sum become?", underflow_hypotheses(model), draw_tiny);
  }
  if (instruction.type_a == MmaType::tf32) {
    add("operands", "How does the instruction make TF32 of float32 words?", tf32_hypotheses(model), draw_finite);
  }
  add_special();
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
    const std::size_t words = set.depth + set.blocks();
    ProbeDot dot{.a = std::vector<std::uint64_t>(words), .b = std::vector<std::uint64_t>(words), .c = 0, .results = {}};
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
  const std::vector<std::uint64_t> results = results_of(recorder, probe, dots);
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

Finding ask_zero_products(gpu::Recorder& recorder, std::size_t instruction, std::uint32_t last, int threads) {
  const gpu::Instruction& facts = gpu::instructions().at(instruction);
  const MmaModel& model = gpu::model_of(facts, recorder.device().capability);
  const gpu::TileSet set = facts.tiles(gpu::Draw::random_bits, 0);
  const std::size_t dots = set.dots();
  constexpr std::size_t words_at_once = std::size_t{1} << 18;
  const std::size_t tiles = gpu::ceil_div(std::min<std::size_t>(words_at_once, last), dots);
  const std::vector<std::byte> a(tiles * bytes_of_a(set));
  const std::vector<std::byte> b(tiles * bytes_of_b(set));
  Finding finding{.part = "probes",
                  .name = facts.name() + ": small c, zero operands",
                  .question = fmt::format("Is d the model's for every c from 00000001 to {:08x}?", last),
                  .answer = {},
                  .agrees = {},
                  .words = {}};
  std::uint64_t wrong = 0;
  std::vector<std::uint32_t> c(tiles * dots);
  for (std::uint64_t first = 1; first <= last; first += c.size()) {
    for (std::size_t i = 0; i < c.size(); ++i) {
      c[i] = static_cast<std::uint32_t>(std::min<std::uint64_t>(first + i, last));
    }
    const auto bytes = std::as_bytes(std::span(c));
    const std::vector<std::uint64_t> got = recorder.multiply(instruction, a, b, bytes);
    std::vector<std::uint64_t> expected(c.size());
    parallel_for(
        tiles, threads,
        [&](std::size_t begin, std::size_t end) {
          const std::size_t count = end - begin;
          std::ranges::copy(model_words(model, set, std::span(a).first(count * bytes_of_a(set)),
                                        std::span(b).first(count * bytes_of_b(set)),
                                        bytes.subspan(begin * dots * 4, count * dots * 4)),
                            expected.begin() + static_cast<std::ptrdiff_t>(begin * dots));
        },
        1);
    for (std::size_t i = 0; i < c.size() && first + i <= last; ++i) {
      if (got[i] == expected[i]) continue;
      if (wrong++ < 4)
        finding.words.push_back(fmt::format("c {:08x} gives {:08x}, not {:08x}", c[i], got[i], expected[i]));
    }
  }
  finding.agrees = wrong == 0;
  finding.answer = wrong == 0 ? fmt::format("yes, all {}", last) : fmt::format("{} of {} differ", wrong, last);
  return finding;
}

}  // namespace fp8lab::experiments
