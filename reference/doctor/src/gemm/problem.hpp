// SPDX-License-Identifier: Apache-2.0
// The inputs and the output of a GEMM, as the search for hypotheses needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gemm/hypotheses.hpp"

namespace fp8lab::doctor {

/// One word for all NaNs of the format.
[[nodiscard]] std::uint64_t canonical_word(const Format& format, std::uint64_t word);
/// The word of a result of the recipe, rounded to its output.
[[nodiscard]] std::uint64_t word_of(const GemmRecipe& recipe, float x);

/// Bytes of an element of that format.
[[nodiscard]] std::size_t bytes_of(const Format& format);

/// Row and column of an element.
struct GemmPlace {
  std::size_t row, column;
};

/// Operands and output of a GEMM, which must outlive it. Elements of the output are numbered as its words are.
class GemmProblem {
 public:
  /// Throws as diagnose_gemm() does where sizes and formats do not fit.
  GemmProblem(const Operand& a, const Operand& b, const GemmOutput& out);

  [[nodiscard]] const Operand& a() const { return a_; }
  [[nodiscard]] const Operand& b() const { return b_; }
  [[nodiscard]] const GemmOutput& out() const { return out_; }
  [[nodiscard]] const GemmFacts& facts() const { return facts_; }
  /// The facts as they are for the model: to one that has block scales, those of tiles are such, too.
  /// Where scales of blocks multiply sums as those of tiles do, they are such.
  [[nodiscard]] GemmFacts facts_for(const MmaModel& model, bool blocks_as_tiles = false) const;
  /// Elements that share a scale of the tensor core, by these facts; 0: none.
  [[nodiscard]] std::size_t block_for(const MmaModel& model) const;
  [[nodiscard]] GemmInputs inputs() const;

  /// The number of elements that are known.
  [[nodiscard]] std::size_t known() const;
  [[nodiscard]] GemmPlace element(std::size_t i) const;
  [[nodiscard]] std::uint64_t word(std::size_t i) const;
  /// Elements in the order in which they are looked at: `first` of them are a sieve, in which products cancel most but
  /// for every fourth; the others come as dice have it.
  [[nodiscard]] std::vector<std::size_t> order_of_elements(std::size_t first) const;

  /// Whether each of the elements is the largest number of its format, of up to 16 bits, an infinity or a NaN: what
  /// would be larger is the same.
  [[nodiscard]] bool is_at_ends(std::span<const std::size_t> elements) const;
  /// Elements of K up to the last one whose product is not 0 in any of the elements.
  [[nodiscard]] std::size_t used_depth(std::span<const std::size_t> elements) const;

  /// Elements of a whole output that are not as `words` has them.
  [[nodiscard]] std::size_t count_unexplained(std::span<const std::uint64_t> words) const;

  /// Whether all elements are known, in the order in which they are stored.
  [[nodiscard]] bool is_whole() const { return out_.indices.empty(); }
  /// Bytes of an element of the output.
  [[nodiscard]] std::size_t bytes() const { return bytes_of(out_.format); }

  using Rows = std::pair<std::vector<std::size_t>, std::vector<std::size_t>>;
  /// Rows of a and of b of these elements; of an output that is stored transposed, of those that stand in their place.
  [[nodiscard]] Rows rows_of(std::span<const std::size_t> elements, bool transposed) const;

 private:
  void check() const;
  [[nodiscard]] bool overflowed() const;
  [[nodiscard]] bool is_at_end(std::uint64_t word) const;

  const Operand& a_;
  const Operand& b_;
  const GemmOutput& out_;
  GemmFacts facts_;
};

}  // namespace fp8lab::doctor
