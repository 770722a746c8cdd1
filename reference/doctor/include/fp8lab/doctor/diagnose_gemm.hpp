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

#include "fp8lab/doctor/probed_pairs.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/gemm/gemm_reading.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"
#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab::doctor {

struct Departure;

/// A row of the table of departures about GEMMs: something that a wrong one does otherwise than it is meant to. A row
/// about the scales of an operand is one of a, one of b and one of both.
struct GemmDeparture {
  std::string name, words;
  double cost;                            ///< how implausible it is: what explains equally much is ranked by it
  const Departure* row;                   ///< of the table
  GemmReading reading;                    ///< how it reads what the GEMM is given
  bool of_a = false, of_b = false;        ///< whose scales it is about
  bool drops_tail = false;                ///< products from a depth on are missing
  const GemmDeparture* first = nullptr;   ///< of two that act together, the one
  const GemmDeparture* second = nullptr;  ///< and the other
};
/// All departures, in the order in which they are searched.
[[nodiscard]] std::span<const GemmDeparture> gemm_departures();
/// The departure called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const GemmDeparture& find_gemm_departure(std::string_view name);

/// A departure that was found.
struct FoundDeparture {
  const GemmDeparture* row;
  /// Where it drops the tail: products that count. Where others are missing or added twice: how many. Of blocks of K:
  /// products in each. Of a promotion: the element of K before which it should be.
  std::size_t depth = 0;
  std::vector<float> factors = {};  ///< where it scales elements: the number, or that of each row or column
  /// The blocks of K that are multiplied, in their order. Of a tile that goes on from another one: its first row and
  /// column, its rows and columns, and the first row and column of the other.
  std::vector<std::size_t> blocks = {};

  friend bool operator==(const FoundDeparture&, const FoundDeparture&) = default;
};

/// The output of the same GEMM over the first elements of K alone.
struct GemmPrefix {
  std::size_t depth;                 ///< how many; whole blocks and tiles of scales
  std::span<const std::byte> words;  ///< as those of the whole output, (M, N)
};

/// The output of a GEMM of (M, K) and (N, K), or some elements of it, and what its epilogue adds and multiplies with.
struct GemmOutput {
  Format format = binary32;               ///< binary32, or a format of up to 16 bits
  std::span<const std::byte> words = {};  ///< row-major, (M, N), little-endian; or one for each of `indices`
  std::vector<std::size_t> indices = {};  ///< m * N + n of the elements that are known; empty: all
  std::span<const float> c = {};          ///< (M, N), or empty
  std::span<const float> bias = {};       ///< N elements, or empty
  float scale_out = 1;                    ///< multiplies the result, which is then rounded
  /// Outputs over less of K, of which is asked where the first difference enters if nothing explains this one.
  std::vector<GemmPrefix> prefixes = {};
};

/// Where along K an output begins to differ: the products of elements [from, to) of K bring the first difference.
struct FirstDifference {
  std::size_t from, to;

  friend bool operator==(const FirstDifference&, const FirstDifference&) = default;
};

/// A GEMM recipe and departures from it, and how many elements they explain.
struct GemmExplanation {
  GemmRecipe recipe;                            ///< the GEMM without its departures: gemm() runs it
  std::vector<FoundDeparture> departures = {};  ///< what it does otherwise; empty: nothing
  std::vector<std::string> models = {};         ///< all that give the same, that of the recipe first
  std::size_t checked = 0;                      ///< elements
  std::size_t unexplained = 0;                  ///< of these

  /// Whether it has neither a departure nor a step that a GEMM seldom means: an output that is not rounded once to the
  /// nearest, partial sums that are rounded to 16 bits, or c or a bias that is added before the scales multiply.
  [[nodiscard]] bool is_plain() const;
};
/// In words.
[[nodiscard]] std::string describe(const GemmExplanation& explanation);
/// A number in its simplest form: "2^-2", "1/sqrt(128)", "3", "1/3", or its digits.
[[nodiscard]] std::string words_of_factor(float factor);

/// An element on which hypotheses differ, or that the first one does not explain.
struct GemmElement {
  std::size_t row, column;
  std::uint64_t word;                   ///< that is there
  std::uint64_t first;                  ///< by the first hypothesis
  std::optional<std::uint64_t> second;  ///< by the best one that gives something else, if any does
};

/// The sizes, formats and kinds of scales of a GEMM's inputs, without their numbers.
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

/// The result of diagnose_gemm().
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
  /// Where along K the first difference enters, where nothing explains the output, and prefixes or elements whose
  /// products end early tell it, as those of prefix_probe() do. `rest` says it, too.
  std::optional<FirstDifference> first_difference = {};

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
    return explanations.front().is_plain() && !lacks_tensor_core() && !scales_addends();
  }
};

struct GemmDoctorOptions {
  std::size_t most_products = std::size_t{1} << 27;  ///< to compute when hypotheses are checked: bounds the time
  std::size_t most_shown = 8;                        ///< of explanations and elements
  /// The GEMM that is expected: the first hypothesis. Left out: any plain GEMM.
  /// (Its output is binary32, which stands for any, or that of the GEMM.)
  std::optional<GemmRecipe> expected = {};
  /// Names of departures that are not searched: what is said without a row of the table.
  std::vector<std::string> without = {};
  int threads = 1;  ///< that compute hypotheses; no result depends on it
};

/// Names the tensor core, promotion, split-K, order, use of scales and rounding by which the output follows from its
/// operands, and if none does, a departure that explains it. Hypotheses are sieved on elements that tell much (sums
/// that cancel), and what is left is checked on all elements, or as many as most_products allows. Where K ascending and
/// the usual rule for zeros explain the output, others are not tried; nor are departures where anything explains it
/// without. Where only the sieve is explained, all are tried on elements that contradict what explains it. Where
/// nothing explains the output, codes are dequantized to 16 bits, and multiplied so.
///
/// Throws std::invalid_argument as check_threads() does, and where a and b differ in K, the output, c or the bias has
/// another size, nothing is known of the output, or no model takes the operands; for float64; and where the expected
/// GEMM is none that gemm() has of such operands, adds c exactly, has both scales of tiles and rows without a
/// scale_order, or rounds stochastically.
[[nodiscard]] GemmDiagnosis diagnose_gemm(const Operand& a, const Operand& b, const GemmOutput& out,
                                          const GemmDoctorOptions& options = {});

/// The words of the output by an explanation, its departures included: what it was found from. Of `out`, format, c,
/// bias and scale_out count. A NaN is the format's of all ones. Throws std::invalid_argument as diagnose_gemm() does.
[[nodiscard]] std::vector<std::uint64_t> gemm_words(const GemmExplanation& explanation, const Operand& a,
                                                    const Operand& b, const GemmOutput& out);

/// Inputs of a GEMM of FP8 or FP4 codes on which hypotheses differ, of the kind that it was given: scales of blocks,
/// tiles, rows and tensors, c, bias and a scale of the output where it had such. All are row-major; a is (M, K), b (N,
/// K).
struct GemmProbe : ProbedPairs {
  std::size_t rows = 0, columns = 0, depth = 0;  ///< M, N, K
  std::vector<std::uint8_t> a = {}, b = {};      ///< codes, a byte each; of 4 bits pairs, as pack_pairs() has them
  std::vector<std::uint8_t> blocks_a = {}, blocks_b = {};  ///< codes of block scales, (M, K / block) and (N, K / block)
  std::vector<float> tiles_a = {}, tiles_b = {};           ///< scales of tiles
  std::vector<float> rows_a = {}, rows_b = {};             ///< scales of rows
  float scale_a = 1, scale_b = 1;                          ///< of the tensors; multiply on dequantize
  std::vector<float> c = {}, bias = {};
  float scale_out = 1;
};
/// The inputs, among those tried, that part the most pairs: at most 64 rows and columns, and `depth` elements of K; 0:
/// the fewest that part as many, at most twice the longest promotion or range. (It is K of `given` where an order of K
/// or a departure is about that alone.) Throws std::invalid_argument where there are fewer than two hypotheses, or
/// operands of more than 8 bits.
[[nodiscard]] GemmProbe probe_gemm(std::span<const GemmExplanation> explanations, const GemmInputs& given,
                                   std::size_t depth = 0);

/// Inputs that tell where along K a first difference enters: row i of M is 0 from element (i + 1) * K / M on, rounded
/// up to whole blocks of scales, so that the output has the GEMM over M beginnings of K. What the GEMM makes of them is
/// diagnosed as any output. At most 64 rows and columns; `depth` elements of K, or those of `given` where it is 0.
/// Throws std::invalid_argument for operands of more than 8 bits.
[[nodiscard]] GemmProbe prefix_probe(const GemmInputs& given, std::size_t depth = 0);

}  // namespace fp8lab::doctor
