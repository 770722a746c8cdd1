// SPDX-License-Identifier: Apache-2.0
// How a foreign GEMM accumulated, scaled and rounded: found from its operands and elements of its output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/reference/gemm/operand.hpp"

namespace fp8lab::forensics {

/// The order in which partial sums are added in float32.
enum class PartialOrder : std::uint8_t {
  ascending,
  descending,
  pairwise,  ///< neighbours first, then their sums
};

/// The order in which an accumulator meets float32 scales of a and b: those of tiles at a promotion, those of rows or
/// of the tensors in the epilogue. alpha is what gemm() makes of the scales of two tensors.
enum class ScaleUse : std::uint8_t {
  none,           ///< there are no such scales
  product_first,  ///< accumulator * fl(scale_a * scale_b)
  a_first,        ///< fl(accumulator * scale_a) * scale_b
  b_first,        ///< fl(accumulator * scale_b) * scale_a
};

/// How the float32 result becomes an element of the output.
enum class OutputRounding : std::uint8_t {
  nearest,       ///< even
  toward_zero,   ///< bits are cut off
  nearest_away,  ///< ties away from zero
  via_float16,   ///< rounded to float16 first
  via_bfloat16,  ///< rounded to bfloat16 first
};

/// What a GEMM does wrong.
enum class GemmDefect : std::uint8_t {
  none,
  a_transposed,     ///< a is read as if it were stored as (K, M)
  b_transposed,     ///< b is read as if it were stored as (K, N)
  out_transposed,   ///< the output is stored as (N, M)
  scale_a_missing,  ///< no scale of a is applied
  scale_b_missing,
  scales_missing,
  scale_a_twice,
  scale_b_twice,
  scales_twice,
  scales_inverted,  ///< divided by instead of multiplied with
  tail_dropped,     ///< products from GemmHypothesis::depth on are missing
};

/// What a GEMM may have done.
struct GemmHypothesis {
  std::string model;          ///< the tensor core, a name of `models`
  std::size_t promote_k = 0;  ///< elements of K after which accumulators are added in float32; 0: never
  std::size_t split_k = 0;    ///< elements of K in each range that is summed apart; 0: one range
  PartialOrder order = PartialOrder::ascending;  ///< of ranges, or without these of promoted accumulators
  ScaleUse scale_use = ScaleUse::none;
  bool fused = true;  ///< a promotion with scales ends with an fma; otherwise it multiplies, rounds, and adds
  OutputRounding output = OutputRounding::nearest;
  GemmDefect defect = GemmDefect::none;
  std::size_t depth = 0;  ///< of tail_dropped: products that count

  friend bool operator==(const GemmHypothesis&, const GemmHypothesis&) = default;
};
/// In words.
[[nodiscard]] std::string describe(const GemmHypothesis& hypothesis);
/// The names, as the enumerators are.
[[nodiscard]] std::string_view name_of(PartialOrder order);
[[nodiscard]] std::string_view name_of(ScaleUse use);
[[nodiscard]] std::string_view name_of(OutputRounding rounding);
[[nodiscard]] std::string_view name_of(GemmDefect defect);

/// The output of a GEMM of (M, K) and (N, K), or some elements of it.
struct GemmOutput {
  Format format = binary32;               ///< binary32, or a format of up to 16 bits
  std::span<const std::byte> words = {};  ///< row-major, (M, N), little-endian; or one for each of `indices`
  std::vector<std::size_t> indices = {};  ///< m * N + n of the elements that are known; empty: all
};

/// How many elements a hypothesis explains.
struct GemmExplanation {
  GemmHypothesis hypothesis;
  std::vector<std::string> models;  ///< all that give the same, the hypothesis' own first
  std::size_t checked = 0;          ///< elements
  std::size_t unexplained = 0;      ///< of these
};

/// An element on which hypotheses differ, or that the first one does not explain.
struct GemmElement {
  std::size_t row, column;
  std::uint64_t word;                   ///< that is there
  std::uint64_t first;                  ///< by the first hypothesis
  std::optional<std::uint64_t> second;  ///< by the best one that gives something else, if any does
};

/// What diagnose_gemm() finds.
struct GemmDiagnosis {
  std::size_t elements = 0;                   ///< that are known
  std::size_t searched = 0;                   ///< hypotheses
  std::vector<GemmExplanation> explanations;  ///< the best first; hypotheses that differ in the model alone are one
  std::size_t tied = 0;  ///< the first ones that explain equally much: the data cannot tell them apart
  std::vector<GemmElement> shown;
  std::string verdict;  ///< a sentence

  /// Whether the first hypothesis leaves none of the checked elements unexplained.
  [[nodiscard]] bool explained() const { return !explanations.empty() && explanations.front().unexplained == 0; }
  /// Whether it also has no defect.
  [[nodiscard]] bool correct() const {
    return explained() && explanations.front().hypothesis.defect == GemmDefect::none;
  }
};

struct GemmDoctorOptions {
  std::size_t most_products = std::size_t{1} << 27;  ///< to compute when hypotheses are checked: bounds the time
  std::size_t most_shown = 8;                        ///< of explanations and elements
};

/// Names the tensor core, promotion, split-K, order, use of scales and rounding by which the output follows from its
/// operands, and if none does, a defect that explains it. Hypotheses are sieved on elements that tell much (sums that
/// cancel), and what is left is checked on all elements, or as many as most_products allows.
///
/// Throws std::invalid_argument where a and b differ in K, the output has another size, nothing is known of it, or no
/// model takes the operands; for float64.
[[nodiscard]] GemmDiagnosis diagnose_gemm(const Operand& a, const Operand& b, const GemmOutput& out,
                                          const GemmDoctorOptions& options = {});

/// Operands of FP8 or FP4 codes on which hypotheses differ, with a scale of each tensor; scales of blocks, tiles and
/// rows are 1.
struct GemmProbe {
  std::size_t rows = 0, columns = 0, depth = 0;  ///< M, N, K
  std::vector<std::uint8_t> a = {}, b = {};      ///< codes, a byte each
  float scale_a = 1, scale_b = 1;                ///< multiply on dequantize
  std::size_t parted = 0;                        ///< pairs of hypotheses that differ on them
  std::size_t pairs = 0;                         ///< of all
};
/// The operands, among those tried, that part the most pairs. Their K is `depth`, and the output is of `format`. Throws
/// std::invalid_argument where there are fewer than two hypotheses, or operands of more than 8 bits.
[[nodiscard]] GemmProbe probe_gemm(std::span<const GemmExplanation> explanations, const Format& format_a,
                                   const Format& format_b, const Format& format, std::size_t depth);

}  // namespace fp8lab::forensics
