// SPDX-License-Identifier: Apache-2.0
// Hypotheses about a GEMM in words, and operands on which they differ.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "forensics/gemm_hypotheses.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/forensics/diagnose_gemm.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::forensics {
namespace {

using OrderName = Named<PartialOrder>;
constexpr std::array order_names{OrderName{"ascending", PartialOrder::ascending},
                                 OrderName{"descending", PartialOrder::descending},
                                 OrderName{"pairwise", PartialOrder::pairwise}};

using UseName = Named<ScaleUse>;
constexpr std::array use_names{UseName{"none", ScaleUse::none},
                               UseName{"product_first", ScaleUse::product_first, "accumulator * fl(scale_a * scale_b)"},
                               UseName{"a_first", ScaleUse::a_first, "fl(accumulator * scale_a) * scale_b"},
                               UseName{"b_first", ScaleUse::b_first, "fl(accumulator * scale_b) * scale_a"}};

using OutputName = Named<OutputRounding>;
constexpr std::array output_names{
    OutputName{"nearest", OutputRounding::nearest},
    OutputName{"toward_zero", OutputRounding::toward_zero, "the output is cut off toward zero"},
    OutputName{"nearest_away", OutputRounding::nearest_away, "ties of the output are rounded away from zero"},
    OutputName{"via_float16", OutputRounding::via_float16, "the output is rounded to float16 on its way"},
    OutputName{"via_bfloat16", OutputRounding::via_bfloat16, "the output is rounded to bfloat16 on its way"}};

using DefectName = Named<GemmDefect>;
constexpr std::array defect_names{
    DefectName{"none", GemmDefect::none},
    DefectName{"a_transposed", GemmDefect::a_transposed, "a is read as if it were stored as (K, M)"},
    DefectName{"b_transposed", GemmDefect::b_transposed, "b is read as if it were stored as (K, N)"},
    DefectName{"out_transposed", GemmDefect::out_transposed, "the output is stored transposed, as (N, M)"},
    DefectName{"scale_a_missing", GemmDefect::scale_a_missing, "the scale of a is not applied"},
    DefectName{"scale_b_missing", GemmDefect::scale_b_missing, "the scale of b is not applied"},
    DefectName{"scales_missing", GemmDefect::scales_missing, "no scale is applied"},
    DefectName{"scale_a_twice", GemmDefect::scale_a_twice, "the scale of a is applied twice"},
    DefectName{"scale_b_twice", GemmDefect::scale_b_twice, "the scale of b is applied twice"},
    DefectName{"scales_twice", GemmDefect::scales_twice, "both scales are applied twice"},
    DefectName{"scales_inverted", GemmDefect::scales_inverted, "scales divide instead of multiplying"},
    DefectName{"tail_dropped", GemmDefect::tail_dropped, "the last products are missing"}};

/// A code of the format without infinities and NaNs, with an exponent near that of 1 or, now and then, any.
std::uint8_t drawn_code(const Format& format, std::uint64_t word) {
  const auto top = static_cast<std::uint64_t>(format.max_code());
  const std::uint64_t one = static_cast<std::uint64_t>(format.bias) << format.mantissa_bits;
  const std::uint64_t step = std::uint64_t{1} << format.mantissa_bits;
  const std::uint64_t near = one - step + word % (3 * step);
  const std::uint64_t magnitude = (word >> 20) % 4 == 0 ? (word >> 24) % (top + 1) : std::min(near, top);
  return static_cast<std::uint8_t>(magnitude | ((word >> 60) % 2 == 0 ? 0 : format.sign_mask()));
}

std::uint64_t drawn_word(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed * 0xD1342543DE82EF95U + (i + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// The words of all elements under a hypothesis.
std::vector<std::uint64_t> words_by(const GemmHypothesis& h, const Operand& a, const Operand& b, const Format& format) {
  std::vector<std::size_t> left;
  std::vector<std::size_t> right;
  for (std::size_t i = 0; i < a.rows * b.rows; ++i) {
    const bool turned = h.defect == GemmDefect::out_transposed;
    left.push_back(turned ? i % a.rows : i / b.rows);
    right.push_back(turned ? i / a.rows : i % b.rows);
  }
  const std::size_t depth = h.defect == GemmDefect::tail_dropped ? std::min(h.depth, a.depth) : a.depth;
  PlainRows x(a, left, depth, {h.defect == GemmDefect::a_transposed});
  PlainRows y(b, right, depth, {h.defect == GemmDefect::b_transposed});
  const std::vector<float> partials = partial_sums(find_model(h.model), x, y, partial_length(h, depth));
  std::vector<std::uint64_t> words(left.size());
  const GemmFacts facts{.depth = depth, .format = format};
  for (std::size_t i = 0; i < left.size(); ++i) words[i] = gemm_word(h, facts, partials, x, y, i);
  return words;
}

}  // namespace

std::string_view name_of(PartialOrder order) { return entry_of(order_names, order).name; }
std::string_view name_of(ScaleUse use) { return entry_of(use_names, use).name; }
std::string_view name_of(OutputRounding rounding) { return entry_of(output_names, rounding).name; }
std::string_view name_of(GemmDefect defect) { return entry_of(defect_names, defect).name; }

std::string describe(const GemmHypothesis& h) {
  TextStream text;
  text << h.model;
  if (h.promote_k != 0) text << ", promoted every " << h.promote_k;
  if (h.split_k != 0) text << ", K split in ranges of " << h.split_k << " that are added " << name_of(h.order);
  if (h.split_k == 0 && h.order == PartialOrder::descending) text << " in descending order";
  if (h.scale_use != ScaleUse::none) {
    text << ", scaled as " << entry_of(use_names, h.scale_use).words;
    if (!h.fused) text << ", rounded before it is added";
  }
  if (h.output != OutputRounding::nearest) text << ", " << entry_of(output_names, h.output).words;
  if (h.defect != GemmDefect::none) text << "; but " << entry_of(defect_names, h.defect).words;
  if (h.defect == GemmDefect::tail_dropped) text << " (those from k = " << h.depth << " on)";
  return text.str();
}

GemmProbe probe_gemm(std::span<const GemmExplanation> explanations, const Format& format_a, const Format& format_b,
                     const Format& format, std::size_t depth) {
  const DefaultEnvironment environment;
  constexpr std::size_t side = 4;
  constexpr std::uint64_t tries = 12;
  if (format_a.bits() > 8 || format_b.bits() > 8) refuse("probes are of formats of at most 8 bits");
  if (explanations.size() < 2) refuse("a probe needs two hypotheses or more");
  GemmProbe best{.rows = side, .columns = side, .depth = depth};
  const auto has_scales = [](const GemmExplanation& one) { return one.hypothesis.scale_use != ScaleUse::none; };
  if (std::ranges::any_of(explanations, has_scales)) {
    best.scale_a = 0.7310586F;  // products with these are rounded
    best.scale_b = 1.3132617F;
  }
  best.pairs = explanations.size() * (explanations.size() - 1) / 2;
  for (std::uint64_t seed = 1; seed <= tries && (seed == 1 || best.parted < best.pairs); ++seed) {
    std::vector<std::uint8_t> a(side * depth);
    std::vector<std::uint8_t> b(side * depth);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = drawn_code(format_a, drawn_word(seed, 2 * i));
      b[i] = drawn_code(format_b, drawn_word(seed, 2 * i + 1));
    }
    Operand left = Operand::codes(a, format_a, side, depth);
    Operand right = Operand::codes(b, format_b, side, depth);
    left.tensor_scale = {best.scale_a};
    right.tensor_scale = {best.scale_b};
    std::vector<std::vector<std::uint64_t>> words;
    for (const GemmExplanation& one : explanations) words.push_back(words_by(one.hypothesis, left, right, format));
    std::size_t parted = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) parted += words[i] != words[j] ? 1 : 0;
    }
    if (seed != 1 && parted <= best.parted) continue;
    best.parted = parted;
    best.a = std::move(a);
    best.b = std::move(b);
  }
  return best;
}

}  // namespace fp8lab::forensics
