// SPDX-License-Identifier: Apache-2.0
// How a foreign GEMM accumulated, scaled and rounded: found from its operands and elements of its output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"
#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab::doctor {

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

/// How c and the bias are added.
enum class AddendUse : std::uint8_t {
  none,            ///< there are neither
  after_scales,    ///< to the scaled accumulator, in float32
  fused,           ///< the same, but the last scale multiplies and the first of them is added by one fma
  before_scales,   ///< to the accumulator, which the scales multiply then
  after_rounding,  ///< to the result rounded to the type of the output, and the sum is rounded to it again
  accumulator,     ///< the accumulation starts from c; the bias is added after the scales
};

/// A type to which c and the bias, or sums, are rounded before they are added or scaled.
enum class AddendType : std::uint8_t { as_given, float16, bfloat16 };

/// The order in which a tensor core meets the products of K. Each window of K is dealt out to `ways` parts, granule by
/// granule in turn, and the parts follow one after the other: with 2 ways and granules of 1 first the even elements,
/// then the odd ones. Where a part is a range of split-K, this is how warps share K.
struct KOrder {
  std::size_t ways = 1;     ///< 1: K ascending
  std::size_t granule = 0;  ///< neighbouring elements of K that stay together
  std::size_t window = 0;   ///< elements of K

  friend bool operator==(const KOrder&, const KOrder&) = default;
};

/// How the float32 result becomes an element of the output.
enum class OutputRounding : std::uint8_t {
  nearest,                ///< even
  toward_zero,            ///< bits are cut off
  nearest_away,           ///< ties away from zero
  via_float16,            ///< rounded to float16 first
  via_bfloat16,           ///< rounded to bfloat16 first
  float16_before_scale,   ///< rounded to float16 before the scale of the output multiplies
  bfloat16_before_scale,  ///< rounded to bfloat16 before it
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
  scale_a_inverted,  ///< divided by instead of multiplied with
  scale_b_inverted,
  scales_inverted,           ///< both
  scale_a_of_previous_tile,  ///< the scale of the tile or block before along K; of the first its own
  scale_b_of_previous_tile,
  scales_of_previous_tile,
  tensor_scale_a_missing,  ///< scales of blocks are applied, that of the tensor or row is not
  tensor_scale_b_missing,
  tensor_scales_missing,
  block_scales_a_missing,  ///< that of the tensor or row is applied, those of blocks are not
  block_scales_b_missing,
  block_scales_missing,
  scale_layout_a,  ///< scales of blocks are read swizzled where they are compact, or the other way round
  scale_layout_b,
  scale_layouts,
  tail_dropped,  ///< products from GemmHypothesis::depth on are missing
  c_missing,     ///< c is not added
  c_transposed,  ///< c is read as if it were stored as (N, M)
  bias_missing,
  addends_missing,     ///< neither c nor the bias is added
  bias_along_rows,     ///< element m of the bias is added to row m, not element n to column n
  bias_in_each_range,  ///< every range of split-K, or every promotion, adds the bias
  scale_out_missing,
  scale_out_inverted,  ///< divided by instead of multiplied with
};

/// The names of float32 sums without a tensor core: of rounded products, and by fma, which differ where products have
/// more than 24 bits.
inline constexpr std::string_view cuda_cores_name = "cuda_cores";
inline constexpr std::string_view cuda_cores_fma_name = "cuda_cores_fma";

/// What a GEMM may have done.
struct GemmHypothesis {
  std::string model;  ///< the tensor core, a name of `models`, or one of the names above
  /// The type to which codes times their scales are rounded before they are multiplied, which has no scales then.
  AddendType dequantized = AddendType::as_given;
  std::size_t promote_k = 0;  ///< elements of K after which accumulators are added in float32; 0: never
  std::size_t split_k = 0;    ///< elements of K in each range that is summed apart; 0: one range
  PartialOrder order = PartialOrder::ascending;  ///< of ranges, or without these of promoted accumulators
  ScaleUse scale_use = ScaleUse::none;
  AddendType partial_type = AddendType::as_given;  ///< what ranges of split-K are rounded to before they are added
  AddendType total_type = AddendType::as_given;    ///< what their sum is rounded to after each of them
  AddendType sum_type = AddendType::as_given;      ///< what the accumulator is rounded to before the scales multiply
  bool divided = false;                            ///< an inverted scale divides; otherwise its reciprocal multiplies
  bool fused = true;  ///< a promotion with scales ends with an fma; otherwise it multiplies, rounds, and adds
  AddendUse addend_use = AddendUse::none;
  AddendType addend_type = AddendType::as_given;
  bool bias_first = false;       ///< the bias is added before c
  bool scale_out_first = false;  ///< the scale of the output multiplies those of a and b, and their product the sum
  OutputRounding output = OutputRounding::nearest;
  bool saturated = false;  ///< overflow of an output of up to 16 bits becomes its largest number, not infinity or NaN
  KOrder k_order = {};
  ZeroRule zero_rule = ZeroRule::floor;
  GemmDefect defect = GemmDefect::none;
  std::size_t depth = 0;  ///< of tail_dropped: products that count
  // What only an expected GEMM has, for it is not searched.
  std::vector<std::size_t> ranges = {};       ///< of K, where they are not split_k each (which is 0 then)
  std::vector<std::size_t> range_order = {};  ///< their numbers as they are added; empty: ascending
  bool alpha_last =
      false;  ///< scales of tiles or rows multiply by scale_use, then those of the tensors as gemm()'s alpha
  std::optional<CastPolicy> policy = {};  ///< of the output, where `output` and `saturated` do not tell it

  /// Whether a tensor core multiplied.
  [[nodiscard]] bool has_tensor_core() const { return model != cuda_cores_name && model != cuda_cores_fma_name; }
  /// Whether it has neither a defect nor a step that a GEMM seldom means: an output that is not rounded once to the
  /// nearest, partial sums that are rounded to 16 bits, or c or a bias that is added before the scales multiply.
  [[nodiscard]] bool is_plain() const;
  friend bool operator==(const GemmHypothesis&, const GemmHypothesis&) = default;
};
/// In words.
[[nodiscard]] std::string describe(const GemmHypothesis& hypothesis);
/// The names, as the enumerators are.
[[nodiscard]] std::string_view name_of(PartialOrder order);
[[nodiscard]] std::string_view name_of(ScaleUse use);
[[nodiscard]] std::string_view name_of(AddendUse use);
[[nodiscard]] std::string_view name_of(AddendType type);
[[nodiscard]] std::string_view name_of(OutputRounding rounding);
[[nodiscard]] std::string_view name_of(GemmDefect defect);

/// The output of a GEMM of (M, K) and (N, K), or some elements of it, and what its epilogue adds and multiplies with.
struct GemmOutput {
  Format format = binary32;               ///< binary32, or a format of up to 16 bits
  std::span<const std::byte> words = {};  ///< row-major, (M, N), little-endian; or one for each of `indices`
  std::vector<std::size_t> indices = {};  ///< m * N + n of the elements that are known; empty: all
  std::span<const float> c = {};          ///< (M, N), or empty
  std::span<const float> bias = {};       ///< N elements, or empty
  float scale_out = 1;                    ///< multiplies the result, which is then rounded
};

/// The GEMM that was meant: arguments of gemm() under their names there. c, the bias and the scale of the output are
/// those of GemmOutput.
struct ExpectedGemm {
  std::string model = {};  ///< the tensor core, a name of `models`
  std::size_t promote_k = 0;
  std::vector<std::size_t> split_k = {};
  std::vector<std::size_t> split_order = {};
  std::optional<ScaleOrder> scale_order = {};
  CEntry c_enters = CEntry::epilogue;
  ZeroRule zero_rule = ZeroRule::floor;
  /// The rounding to an output of up to 16 bits; left out: saturated to codes, to infinity of float16 and bfloat16.
  std::optional<CastPolicy> policy = {};
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

/// What a GEMM is given, but for the numbers.
struct GemmInputs {
  std::size_t rows = 0, columns = 0, depth = 0;  ///< M, N, K
  Format format_a = e4m3, format_b = e4m3;
  Format format = binary32;     ///< of the output
  bool tensor_scale_a = false;  ///< a has a float32 scale that is not 1
  bool tensor_scale_b = false;
  bool row_scales_a = false, row_scales_b = false;
  std::size_t tile_rows_a = 0, tile_rows_b = 0;  ///< of the tiles that have scales; 0: there are none
  std::size_t tile_depth = 0;
  std::optional<BlockScales> blocks_a = {}, blocks_b = {};
  bool c = false, bias = false, scale_out = false;  ///< whether there are such
};

/// What diagnose_gemm() finds.
struct GemmDiagnosis {
  std::size_t elements = 0;                   ///< that are known
  std::size_t searched = 0;                   ///< hypotheses
  std::vector<GemmExplanation> explanations;  ///< the best first; hypotheses that differ in the model alone are one
  std::size_t tied = 0;  ///< the first ones that explain equally much: the data cannot tell them apart
  GemmInputs inputs;     ///< for probe_gemm()
  std::vector<GemmElement> shown;
  /// What the elements that the first leaves unexplained have in common, where the output is whole: a sentence or a few
  /// for each kind and place. There, a is what it predicts, and b is what is there.
  std::vector<std::string> rest;
  std::string verdict;  ///< a sentence

  std::string expected = {};             ///< the expected GEMM in words; empty: none was
  std::size_t expected_checked = 0;      ///< elements that were compared with the expected GEMM
  std::size_t expected_unexplained = 0;  ///< of these: those that it does not explain
  /// Whether the elements could have told a wrong GEMM: not where nearly every hypothesis gives the same, or half of
  /// the products change nothing.
  bool is_telling = true;

  /// Whether the first hypothesis leaves none of the checked elements unexplained.
  [[nodiscard]] bool explained() const { return !explanations.empty() && explanations.front().unexplained == 0; }
  /// Whether the expected GEMM explains them, or none was expected.
  [[nodiscard]] bool is_expected() const { return expected.empty() || expected_unexplained == 0; }
  /// Whether only float32 sums without a tensor core explain most, and operands are such that a tensor core was meant:
  /// not both float32, which no tensor core multiplies as they are.
  [[nodiscard]] bool lacks_tensor_core() const;
  /// Whether the accumulation of the first hypothesis starts from c and float32 scales multiply both in the epilogue.
  [[nodiscard]] bool scales_addends() const;
  /// Whether the output is that of the expected GEMM, or where none was expected, of a plain one, on a tensor core
  /// unless both operands are float32; and the elements could have told otherwise.
  [[nodiscard]] bool correct() const {
    if (!explained() || !is_telling) return false;
    if (!expected.empty()) return expected_unexplained == 0;
    return explanations.front().hypothesis.is_plain() && !lacks_tensor_core() && !scales_addends();
  }
};

struct GemmDoctorOptions {
  std::size_t most_products = std::size_t{1} << 27;  ///< to compute when hypotheses are checked: bounds the time
  std::size_t most_shown = 8;                        ///< of explanations and elements
  /// What the GEMM should do: the first hypothesis. Left out: any plain GEMM.
  std::optional<ExpectedGemm> expected = {};
};

/// Names the tensor core, promotion, split-K, order, use of scales and rounding by which the output follows from its
/// operands, and if none does, a defect that explains it. Hypotheses are sieved on elements that tell much (sums that
/// cancel), and what is left is checked on all elements, or as many as most_products allows. Where K ascending and the
/// usual rule for zeros explain the output, others are not tried; nor are defects where anything explains it without.
/// Where only the sieve is explained, all are tried on elements that contradict what explains it. Where nothing
/// explains the output, codes are dequantized to 16 bits, and multiplied so.
///
/// Throws std::invalid_argument where a and b differ in K, the output, c or the bias has another size, nothing is known
/// of the output, or no model takes the operands; for float64; and where the expected GEMM is none that gemm() has of
/// such operands, adds c exactly, has both scales of tiles and rows without a scale_order, or rounds stochastically.
[[nodiscard]] GemmDiagnosis diagnose_gemm(const Operand& a, const Operand& b, const GemmOutput& out,
                                          const GemmDoctorOptions& options = {});

/// Inputs of a GEMM of FP8 or FP4 codes on which hypotheses differ, of the kind that it was given: scales of blocks,
/// tiles, rows and tensors, c, bias and a scale of the output where it had such. All are row-major; a is (M, K), b (N,
/// K).
struct GemmProbe {
  std::size_t rows = 0, columns = 0, depth = 0;  ///< M, N, K
  std::vector<std::uint8_t> a = {}, b = {};      ///< codes, a byte each; of 4 bits pairs, as pack_pairs() has them
  std::vector<std::uint8_t> blocks_a = {}, blocks_b = {};  ///< codes of block scales, (M, K / block) and (N, K / block)
  std::vector<float> tiles_a = {}, tiles_b = {};           ///< scales of tiles
  std::vector<float> rows_a = {}, rows_b = {};             ///< scales of rows
  float scale_a = 1, scale_b = 1;                          ///< of the tensors; multiply on dequantize
  std::vector<float> c = {}, bias = {};
  float scale_out = 1;
  std::size_t pairs = 0;  ///< of hypotheses
  /// Pairs that do not differ on it, by their numbers. What differs on none of many draws seldom differs at all.
  std::vector<std::pair<std::size_t, std::size_t>> unparted = {};

  [[nodiscard]] std::size_t parted() const { return pairs - unparted.size(); }
};
/// The inputs, among those tried, that part the most pairs: at most 128 rows and columns, and K as in `inputs`. Throws
/// std::invalid_argument where there are fewer than two hypotheses, or operands of more than 8 bits.
[[nodiscard]] GemmProbe probe_gemm(std::span<const GemmExplanation> explanations, const GemmInputs& inputs);

}  // namespace fp8lab::doctor
